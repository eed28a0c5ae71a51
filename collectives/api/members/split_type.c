/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/members/split_type.c: communicators of the ranks of one host, of one NUMA node, or of one
 * device. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/error.h"
#include "collectives/api/members/asks.h"

static const char NAME[] = "gyre_comm_split_type";
static const char *const types[] = {"GYRE_SPLIT_HOST", "GYRE_SPLIT_NUMA", "GYRE_SPLIT_DEVICE"};
enum { TYPES = sizeof types / sizeof types[0] };

gyre_status_t coll_place_find(const char *name, gyre_split_t type, coll_place_t *place)
{
    unsigned char uuid[16];
    gyre_status_t st = GYRE_OK;
    if ((int)type < 0 || (int)type >= TYPES)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %d is not a kind of place (gyre_split_t)", name, (int)type);
    *place = (coll_place_t){.type = (int32_t)type};
    if (type == GYRE_SPLIT_NUMA)
        topo_own_nodes(place->word);
    if (type == GYRE_SPLIT_DEVICE) {
        st = base_device_current(uuid);
        if (st == GYRE_OK)
            memcpy(place->word, uuid, sizeof uuid);
    }
    place->status = (int32_t)st;
    return GYRE_OK;
}

gyre_status_t coll_place_color(const char *name, const gyre_comm_t *comm, const coll_place_t *places,
                               const char *why, int *color)
{
    const coll_place_t *mine = &places[comm->rank];
    for (int r = 0; r < comm->n; r++)
        if (places[r].type != places[0].type)
            return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank 0 called it with %s and rank %d with %s", name,
                             types[places[0].type % TYPES], r, types[places[r].type % TYPES]);
    if (mine->status != GYRE_OK)
        return gyre_fail_quiet((gyre_status_t)mine->status, "%s(%s): %s", name, types[mine->type], why);
    for (int r = 0; r < comm->n; r++)
        if (places[r].status != GYRE_OK)
            return gyre_fail((gyre_status_t)places[r].status, "%s(%s): rank %d is in no such place: %s", name,
                             types[mine->type], r, gyre_status_string((gyre_status_t)places[r].status));
    *color = 0;
    while (comm->host_of[*color] != comm->host_of[comm->rank] ||
           memcmp(places[*color].word, mine->word, sizeof mine->word) != 0)
        ++*color;
    return GYRE_OK;
}

gyre_status_t gyre_comm_split_type(gyre_comm_t *comm, gyre_split_t type, int key, gyre_comm_t **out)
{
    coll_place_t mine;
    int color = 0;
    gyre_status_t st = coll_check_parent(NAME, comm, out);
    if (st == GYRE_OK)
        st = coll_place_find(NAME, type, &mine);
    if (st != GYRE_OK)
        return st;
    coll_place_t *places = calloc((size_t)comm->n, sizeof *places);
    char why[400];
    snprintf(why, sizeof why, "%s", gyre_last_error());
    if (!places)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", NAME, comm->n);
    if (st == GYRE_OK)
        st = coll_inside_all_gather(&mine, places, sizeof mine, comm, COLL_INSIDE_SPLIT_TYPE);
    if (st == GYRE_OK)
        st = coll_place_color(NAME, comm, places, why, &color);
    free(places);
    return st == GYRE_OK ? coll_split(COLL_INSIDE_SPLIT_TYPE, comm, color, key, out) : st;
}
