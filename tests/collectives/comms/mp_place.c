/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_pairs asks for places from two threads */
/* tests/collectives/comms/mp_place.c: where the ranks of a communicator are: gyre_comm_hosts and
 * gyre_comm_place, on one host and on several (GYRE_HOST_RANKS), of communicators that were split, duplicated
 * and shrunk.
 * ranks: 1 2 4 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/support/mp.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"

static gyre_comm_t *world;
static int rank, n;

/* Each rank of `comm` is at the place of world rank from[r]; so many ranks of the world are on each host. */
static void is_at(const gyre_comm_t *comm, const int *from, int size, int per_host)
{
    char own[64] = "";
    int first[8], hosts = 0; /* of each host, as numbers of the world's */
    MP_CHECK(gethostname(own, 36) == 0 || own[0], "no name");
    own[35] = '\0';
    for (int r = 0; r < size; r++) {
        int host = 0, before = 0, all = 0;
        gyre_place_t place = {.size = sizeof place};
        MP_OK(gyre_comm_place(comm, r, &place));
        while (host < hosts && first[host] != from[r] / per_host)
            host++;
        if (host == hosts)
            first[hosts++] = from[r] / per_host;
        for (int other = 0; other < size; other++) {
            before += other < r && from[other] / per_host == from[r] / per_host;
            all += from[other] / per_host == from[r] / per_host;
        }
        MP_CHECK(place.size == sizeof place && place.host == host && place.host_rank == before &&
                     place.host_size == all && place.job_rank == from[r],
                 "rank %d: host %d, %d of %d there, rank %d of the job", r, place.host, place.host_rank,
                 place.host_size, place.job_rank);
        MP_CHECK(place.device == -1 && !place.device_bus[0], "rank %d: device %d", r, place.device);
        MP_CHECK(!strcmp(place.host_name, own), "rank %d: \"%s\", not \"%s\"", r, place.host_name, own);
        if (r == gyre_comm_rank(comm))
            MP_CHECK(place.host_rank == gyre_comm_local_rank(comm) &&
                         place.host_size == gyre_comm_local_size(comm),
                     "%d of %d", place.host_rank, place.host_size);
    }
    MP_CHECK(gyre_comm_hosts(comm) == hosts, "%d hosts, not %d", gyre_comm_hosts(comm), hosts);
}

/* Duplicates, the ranks turned round, and each second rank. */
static void on_hosts_of(int per_host, const char *setting)
{
    gyre_comm_t *comm;
    int from[8];
    MP_OK(base_settings_set(SET_HOST_RANKS, setting, "test"));
    for (int r = 0; r < n; r++)
        from[r] = r;
    MP_OK(gyre_comm_dup(world, &comm));
    is_at(comm, from, n, per_host);
    MP_OK(gyre_comm_destroy(comm));
    for (int r = 0; r < n; r++)
        from[r] = n - 1 - r;
    MP_OK(gyre_comm_split(world, 0, -rank, &comm));
    is_at(comm, from, n, per_host);
    MP_OK(gyre_comm_destroy(comm));
    for (int r = rank % 2; r < n; r += 2)
        from[r / 2] = r;
    MP_OK(gyre_comm_split(world, rank % 2, 0, &comm));
    is_at(comm, from, (n + 1 - rank % 2) / 2, per_host);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(base_settings_set(SET_HOST_RANKS, "0", "test"));
}

/* A rank that is bound to one processor is on the node that the kernel names; every rank knows it. */
static void on_nodes(void)
{
    gyre_comm_t *comm;
    cpu_set_t before, one;
    unsigned cpu, node;
    int mine, all[8];
    MP_CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "no affinity");
    MP_CHECK(getcpu(&cpu, &node) == 0, "no processor");
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    MP_CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "cannot bind");
    MP_CHECK(getcpu(&cpu, &node) == 0, "no processor");
    mine = (int)node;
    MP_OK(gyre_all_gather(&mine, all, 1, GYRE_INT32, world));
    MP_OK(gyre_comm_dup(world, &comm));
    MP_CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "cannot unbind");
    for (int r = 0; r < n; r++) {
        gyre_place_t place = {.size = sizeof place};
        MP_OK(gyre_comm_place(comm, r, &place));
        MP_CHECK(place.numa == all[r], "rank %d: node %d, not %d", r, place.numa, all[r]);
    }
    MP_OK(gyre_comm_destroy(comm));
}

static void refused(gyre_status_t got, const char *text)
{
    MP_CHECK(got == GYRE_ERR_INVALID && strstr(gyre_last_error(), text), "%s: \"%s\" instead of \"%s\"",
             gyre_status_string(got), gyre_last_error(), text);
}

static void bad_arguments(void)
{
    gyre_place_t place = {.size = sizeof place, .host = 77};
    refused(gyre_comm_place(NULL, 0, &place), "gyre_comm_place: comm is NULL");
    refused(gyre_comm_place(world, 0, NULL), "gyre_comm_place: place is NULL");
    refused(gyre_comm_place(world, -1, &place), "gyre_comm_place: rank -1 is not in 0..");
    refused(gyre_comm_place(world, n, &place), "is not in 0..");
    place.size = 8;
    refused(gyre_comm_place(world, 0, &place), "gyre_comm_place");
    MP_CHECK(place.host == 77, "%d was written", place.host);
    MP_CHECK(gyre_comm_hosts(NULL) == -1, "%d", gyre_comm_hosts(NULL));
}

/* A communicator that has failed still knows, and so does the one that replaces it. */
static void after_a_failure(void)
{
    gyre_comm_t *old = world;
    int from[8];
    for (int r = 0; r < n; r++)
        from[r] = r;
    gyre_status_t st = gyre_barrier(old); /* the shrink of a faster rank ends it */
    MP_CHECK(st == GYRE_OK || st == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_OK(gyre_comm_shrink(old, &world));
    is_at(old, from, n, n);
    is_at(world, from, n, n);
    MP_OK(gyre_comm_destroy(old));
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    on_hosts_of(n, "0");
    on_hosts_of(2, "2");
    on_nodes();
    bad_arguments();
    after_a_failure();
    MP_OK(gyre_finalize(world));
    return 0;
}
