/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/host/memory.c: see the header. */
#include "pipeline/train/host/memory.h"

#include <stdio.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/cgroup.h"
#include "base/machine/memory.h"
#include "base/settings/size.h"

/* A hash of /proc/self/cgroup: processes with the same text have the same limits, and share them. */
static uint64_t control_groups(void)
{
    char text[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    const size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return base_hash64(text, bytes, 1);
}

static gyre_status_t refuse(uint64_t need, size_t ranks, uint64_t has, const char *whose)
{
    char all[BASE_SIZE_TEXT], least[BASE_SIZE_TEXT];
    base_size_about((double)need, all);
    base_size_about((double)has, least);
    return gyre_fail(
        GYRE_ERR_NO_MEMORY,
        "this run needs at least %s for %s%zu rank%s, and %s %s: take --zero 1, 2 or 3, a smaller "
        "--micro-batch, --recompute full, or ranks on more hosts; gyre-plan memory says what "
        "takes how much",
        all, ranks > 1 ? "the " : "", ranks, ranks > 1 ? "s of this host" : "", whose, least);
}

/* The kernel promises memory that it does not have, and ends a process when it is used: perhaps hours later.
 * need: of the ranks of this host together; sharers: of those with this one's control groups. */
static gyre_status_t judge(uint64_t need, size_t ranks, uint64_t together, size_t sharers)
{
    const base_memory_t host = base_memory_now();
    const uint64_t limit = base_cgroup_limits("").memory;
    if (together > limit)
        return refuse(together, sharers, limit, "the control group (a container's or a job's) has");
    return host.available != UINT64_MAX && need > host.available + host.swap
               ? refuse(need, ranks, host.available + host.swap, "the host has, with its swap,")
               : GYRE_OK;
}

static gyre_status_t compare_host(gyre_comm_t *host, uint64_t mine)
{
    const size_t ranks = (size_t)gyre_comm_size(host);
    const uint64_t group = control_groups();
    uint64_t all = mine, ends[2] = {group, ~group}; /* the least, and what the greatest is not */
    gyre_status_t status = gyre_all_reduce(&all, &all, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), host);
    if (status == GYRE_OK)
        status = gyre_all_reduce(ends, ends, 2, GYRE_UINT64, GYRE_OP(GYRE_MIN), host);
    if (status != GYRE_OK)
        return status;
    const int shared = ends[0] == ~ends[1];
    return judge(all, ranks, shared ? all : mine, shared ? ranks : 1);
}

gyre_status_t train_host_check(gyre_comm_t *comm, uint64_t bytes)
{
    gyre_comm_t *host = NULL;
    gyre_status_t status = gyre_comm_split_type(comm, GYRE_SPLIT_HOST, 0, &host);
    if (status != GYRE_OK)
        return status;
    status = compare_host(host, bytes);
    gyre_comm_destroy(host);
    return status;
}
