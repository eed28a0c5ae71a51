/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/split_type.c: communicators of the ranks of one host, of one NUMA node, or of one
 * device. */
#include "collectives/run/communicator.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/error.h"
#include "collectives/api/comm.h"
#include "topo/topo.h"

static const char NAME[] = "gyre_comm_split_type";
static const char *const types[] = {"GYRE_SPLIT_HOST", "GYRE_SPLIT_NUMA", "GYRE_SPLIT_DEVICE"};
enum { TYPES = sizeof types / sizeof types[0] };

/* Where a rank is. Ranks of one host with the same words are together. */
typedef struct {
    int32_t type;             /* gyre_split_t, which must be the same on all ranks */
    int32_t status;           /* of finding the rest */
    uint64_t word[TOPO_SETS]; /* the set of NUMA nodes, the device's UUID, or zeros */
} place_t;

static gyre_status_t find_nodes(uint64_t nodes[TOPO_SETS])
{
    uint64_t mask[sizeof(cpu_set_t) / sizeof(uint64_t)];
    cpu_set_t mine;
    topo_t *topo;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: this machine has more processors than %zu", NAME,
                         8 * sizeof mine);
    memcpy(mask, &mine, sizeof mask);
    gyre_status_t st = topo_load_cores(&topo);
    if (st == GYRE_OK) {
        st = topo_numa_set(topo, mask, (int)(sizeof mask / sizeof mask[0]), nodes);
        topo_free(topo);
    }
    return st;
}

static gyre_status_t find_place(place_t *place)
{
    unsigned char uuid[16];
    gyre_status_t st = GYRE_OK;
    if (place->type == GYRE_SPLIT_NUMA)
        st = find_nodes(place->word);
    if (place->type == GYRE_SPLIT_DEVICE) {
        st = base_device_current(uuid);
        if (st == GYRE_OK)
            memcpy(place->word, uuid, sizeof uuid);
    }
    return st;
}

/* All ranks see the same places and so fail alike. why: of this rank's status. *color: the lowest rank that
 * is where this one is. */
static gyre_status_t find_color(const gyre_comm_t *comm, const place_t *places, const char *why, int *color)
{
    const place_t *mine = &places[comm->rank];
    for (int r = 0; r < comm->n; r++)
        if (places[r].type != places[0].type)
            return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank 0 called it with %s and rank %d with %s", NAME,
                             types[places[0].type % TYPES], r, types[places[r].type % TYPES]);
    if (mine->status != GYRE_OK)
        return gyre_fail_quiet((gyre_status_t)mine->status, "%s(%s): %s", NAME, types[mine->type], why);
    for (int r = 0; r < comm->n; r++)
        if (places[r].status != GYRE_OK)
            return gyre_fail((gyre_status_t)places[r].status, "%s(%s): rank %d is in no such place: %s", NAME,
                             types[mine->type], r, gyre_status_string((gyre_status_t)places[r].status));
    *color = 0;
    while (comm->host_of[*color] != comm->host_of[comm->rank] ||
           memcmp(places[*color].word, mine->word, sizeof mine->word) != 0)
        ++*color;
    return GYRE_OK;
}

gyre_status_t gyre_comm_split_type(gyre_comm_t *comm, gyre_split_t type, int key, gyre_comm_t **out)
{
    gyre_status_t st = coll_check_parent(NAME, comm, out);
    if (st == GYRE_OK && ((int)type < 0 || (int)type >= TYPES))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: %d is not a kind of place (gyre_split_t)", NAME, (int)type);
    if (st != GYRE_OK)
        return st;
    int color = 0;
    place_t mine = {.type = (int32_t)type};
    place_t *places = calloc((size_t)comm->n, sizeof *places);
    char why[400];
    mine.status = (int32_t)find_place(&mine);
    snprintf(why, sizeof why, "%s", gyre_last_error());
    if (!places)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", NAME, comm->n);
    if (st == GYRE_OK)
        st = coll_inside_all_gather(&mine, places, sizeof mine, comm, COLL_INSIDE_SPLIT_TYPE);
    if (st == GYRE_OK)
        st = find_color(comm, places, why, &color);
    free(places);
    return st == GYRE_OK ? coll_split(COLL_INSIDE_SPLIT_TYPE, comm, color, key, out) : st;
}
