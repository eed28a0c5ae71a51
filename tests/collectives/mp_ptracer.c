/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4 */
/* tests/collectives/mp_ptracer.c: ranks let each other read their memory while they are in the job
 * (GYRE_PTRACER), where Yama's ptrace_scope is 1. What Yama does with that shows only on a kernel that has it
 * and with that scope; everywhere the calls are counted. */
#include "tests/support/mp.h"

#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "comm/peer_memory.h"

static int calls;
static unsigned long tracer;

int prctl(int option, ...) /* instead of libc's */
{
    unsigned long arg[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        arg[i] = va_arg(list, unsigned long);
    va_end(list);
    calls += option == PR_SET_PTRACER;
    if (option == PR_SET_PTRACER)
        tracer = arg[0];
    return (int)syscall(SYS_prctl, option, arg[0], arg[1], arg[2], arg[3]);
}

static int scope(void)
{
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int found = -1;
    if (file && fscanf(file, "%d", &found) != 1)
        found = -1;
    if (file)
        fclose(file);
    return found;
}

int main(void)
{
    /* A process can be in one job only, so the number of ranks chooses. */
    const struct {
        const char *setting;
        unsigned long who;
    } cases[] = {{"any", PR_SET_PTRACER_ANY}, {"none", 0}, {"parent", (unsigned long)getppid()}};
    const char *size = getenv("GYRE_SIZE");
    const int which = size ? (atoi(size) - 2) % 3 : 0, expected = cases[which].who != 0;
    gyre_comm_t *world;
    setenv("GYRE_PTRACER", cases[which].setting, 1);
    MP_OK(gyre_init(NULL, &world));
    MP_CHECK(calls == expected && tracer == cases[which].who, "%s: %d calls, the last one for %lu",
             cases[which].setting, calls, tracer);
    if (scope() == 1)
        MP_CHECK(comm_peer_memory_all(world->group) == expected, "%s: ranks can reach each other: %d",
                 cases[which].setting, comm_peer_memory_all(world->group));
    else if (gyre_comm_rank(world) == 0)
        fprintf(stderr, "[  SKIPPED ] what_yama_allows\n"); /* kernel.yama.ptrace_scope is not 1 here */
    MP_OK(gyre_finalize(world));
    MP_CHECK(calls == 2 * expected && tracer == 0, "%s: %d calls, and it stays for %lu", cases[which].setting,
             calls, tracer);
    return 0;
}
