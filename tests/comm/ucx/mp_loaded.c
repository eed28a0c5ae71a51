/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2, over UCX: 2 */
/* tests/comm/ucx/mp_loaded.c: a job loads UCX if its ranks reach each other over UCX, and only then. The
 * program's handlers of signals stay. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/mp.h"

static int is_mapped(const char *library)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;

    MP_CHECK(maps != NULL, "no /proc/self/maps");
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

static void handle(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
}

int main(void)
{
    static const int signals[] = {SIGSEGV, SIGILL, SIGBUS, SIGFPE, SIGALRM};
    const struct sigaction before = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    struct sigaction after;
    const char *transport = getenv("GYRE_TRANSPORT");
    const int over_ucx = transport && strcmp(transport, "ucx") == 0;
    gyre_comm_t *world;
    double one = 1, sum = 0;

    MP_CHECK(!is_mapped("/libucp.so"), "UCX is loaded before the job begins");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        MP_CHECK(sigaction(signals[i], &before, NULL) == 0, "%s", strsignal(signals[i]));
    MP_CHECK(signal(SIGHUP, SIG_IGN) != SIG_ERR, "hangup"); /* as nohup does */
    MP_OK(gyre_init(NULL, &world));
    MP_OK(gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(sum == gyre_comm_size(world), "%g", sum);
    MP_CHECK(is_mapped("/libucp.so") == over_ucx, "UCX is%s loaded", over_ucx ? " not" : "");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        MP_CHECK(sigaction(signals[i], NULL, &after) == 0 && after.sa_sigaction == handle &&
                     (after.sa_flags & SA_SIGINFO),
                 "%s has another handler", strsignal(signals[i]));
    MP_CHECK(sigaction(SIGHUP, NULL, &after) == 0 && after.sa_handler == SIG_IGN, "hangup is not ignored");
    MP_OK(gyre_finalize(world));
    return 0;
}
