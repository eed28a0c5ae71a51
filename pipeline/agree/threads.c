/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/agree/threads.c: how many threads a rank computes with, if nobody says.
 *
 * The ranks of a host count on each processor those that may run there. A processor on which n ranks may run
 * is 1 / n of one to each. */
#include <sched.h>
#include <stdint.h>

#include "base/machine/cgroup.h"
#include "base/thread/team.h"
#include "pipeline/agree/agree.h"

/* Processors' worth of time for a rank among `ranks` of its host: `own` is where it may run, `count` how many
 * of them may run on each processor. */
static double share_of(const cpu_set_t *own, const int32_t count[CPU_SETSIZE], int ranks)
{
    const double limit = base_cgroup_limits("").cpus / ranks;
    double share = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, own))
            share += 1.0 / count[cpu];
    return limit > 0 && limit < share ? limit : share;
}

gyre_status_t pipe_threads_share(gyre_comm_t *comm, size_t *out)
{
    gyre_place_t place = {.size = sizeof place};
    gyre_comm_t *host = NULL;
    cpu_set_t own;
    int32_t count[CPU_SETSIZE];
    if (sched_getaffinity(0, sizeof own, &own) != 0) /* they are more than CPU_SETSIZE */
        CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        count[cpu] = CPU_ISSET((size_t)cpu, &own) != 0;
    gyre_status_t status = gyre_comm_place(comm, gyre_comm_rank(comm), &place);
    if (status == GYRE_OK && gyre_comm_size(comm) > 1) {
        status = gyre_comm_split(comm, place.host, place.host_rank, &host);
        if (status == GYRE_OK)
            status = gyre_all_reduce(count, count, CPU_SETSIZE, GYRE_INT32, GYRE_OP(GYRE_SUM), host);
        gyre_comm_destroy(host);
    }
    if (status != GYRE_OK)
        return status;
    /* thirds of a processor from three ranks are one */
    const double share = share_of(&own, count, place.host_size) + 1e-6;
    *out = share < 1 ? 1 : share > BASE_TEAM_MOST ? BASE_TEAM_MOST : (size_t)share;
    return GYRE_OK;
}
