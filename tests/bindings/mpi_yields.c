/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/mpi_yields.c: preloaded: counts how often libgyre-mpi yields while no time passes for it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int yields;

double PMPI_Wtime(void);
double PMPI_Wtime(void)
{
    return 0;
}
int sched_yield(void);
int sched_yield(void)
{
    Dl_info from;
    if (dladdr(__builtin_return_address(0), &from) != 0 && strstr(from.dli_fname, "libgyre-mpi") != NULL)
        atomic_fetch_add(&yields, 1);
    return (int)syscall(SYS_sched_yield);
}
__attribute__((destructor)) static void print(void)
{
    if (strstr(program_invocation_short_name, "start") != NULL)
        fprintf(stderr, "yields: %d\n", atomic_load(&yields));
}
