/* SPDX-License-Identifier: Apache-2.0 */
/* comm/seats.c: where ranks run, and the order of ranks that follows from it.
 *
 * Every rank puts its seat in its card. All ranks have all cards, and know the hosts: so all compute the same
 * order, by a pure function (topo_seat_order), and send nothing. */
#include "comm/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"

/* The switches above this host: the setting, or what Slurm says, which ends with the host's own name. */
static uint64_t own_fabric(void)
{
    const char *path = base_setting_string(SET_SWITCHES), *slurm = base_env("SLURM_TOPOLOGY_ADDR");
    char above[256];

    if (*path || !slurm)
        return topo_fabric(path);
    const char *end = strrchr(slurm, '.');
    const size_t length = end ? (size_t)(end - slurm) : 0;
    if (length >= sizeof above)
        return 0;
    memcpy(above, slurm, length);
    above[length] = '\0';
    return topo_fabric(above);
}

/* The one NUMA node that the calling thread may run on, or -1. */
static int own_node(void)
{
    uint64_t nodes[TOPO_SETS];
    int node = -1;

    if (topo_own_nodes(nodes) == 1)
        for (int i = 0; i < TOPO_SETS; i++)
            node = nodes[i] ? 64 * i + __builtin_ctzll(nodes[i]) : node;
    return node;
}

topo_seat_t comm_own_seat(void)
{
    /* Asking reads files. Not of the thread: gyre_comm_idup and its like ask on a thread of their own. */
    static struct {
        pthread_mutex_t lock;
        int known;
        cpu_set_t set;
        topo_seat_t seat;
    } last = {.lock = PTHREAD_MUTEX_INITIALIZER};
    enum { WORDS = sizeof(cpu_set_t) / sizeof(uint64_t) };
    uint64_t mask[WORDS];
    cpu_set_t mine;
    topo_seat_t seat;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return (topo_seat_t){.package = -1, .numa = -1, .cache = -1};
    pthread_mutex_lock(&last.lock);
    if (!last.known || !CPU_EQUAL(&mine, &last.set)) {
        memcpy(mask, &mine, sizeof mask);
        last.seat = (topo_seat_t){.package = topo_package(NULL, mask, WORDS),
                                  .numa = own_node(),
                                  .cache = topo_cache(NULL, mask, WORDS)};
        last.set = mine;
        last.known = 1;
    }
    seat = last.seat;
    pthread_mutex_unlock(&last.lock);
    seat.fabric = own_fabric();
    return seat;
}

gyre_status_t comm_seats_order(comm_group_t *group)
{
    const size_t n = (size_t)group->n;
    topo_seat_t *seats = calloc(n, sizeof *seats);
    int *order = calloc(n, sizeof *order), moved = 0;
    gyre_status_t status = GYRE_OK;

    if (!seats || !order)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the places of %d ranks", group->n);
    for (size_t r = 0; status == GYRE_OK && r < n; r++) {
        seats[r] = group->cards[r].seat;
        seats[r].host = group->host_of[r];
    }
    if (status == GYRE_OK)
        status = topo_seat_order(group->n, seats, order);
    for (size_t i = 0; status == GYRE_OK && i < n; i++)
        moved |= order[i] != (int)i;
    if (moved) {
        group->order = order;
        group->private_bytes += n * sizeof *order;
        order = NULL;
    }
    free(order);
    free(seats);
    return status;
}
