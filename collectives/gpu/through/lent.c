/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/lent.c: decides whether ranks that a network joins send each other data from device
 * memory to device memory: slots lie on the device, and verbs or UCX read and write them directly
 * (comm/lend.h). Short messages, and those of ranks that cannot, go through pinned memory of the host.
 * Collectives go through it if any of their ranks cannot (wire.c). Both ends must know the path, so all ranks
 * exchange their abilities once. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/lend.h"

enum {
    GRAIN = 2 << 20, /* the driver's own: no two allocations share a page */
    ALIGNMENT = 512
};

/* The record that every rank sends. */
typedef struct {
    int32_t status, works;
    int32_t flat; /* all others are reached over the network */
    char why[400];
} offer_t;

/* This rank's slots. That there is no memory for them, or no way, is no failure. */
static gyre_status_t offer(coll_cuda_t *c, size_t bytes, offer_t *mine)
{
    comm_lent_t direct = {0};
    const size_t wire = mine->flat ? coll_cuda_wire_bytes(c) : 0, all = base_round_up(bytes + wire, GRAIN);
    gyre_status_t st = coll_cuda_take_memory(c, all, &c->slots);
    if (st != GYRE_OK) {
        snprintf(mine->why, sizeof mine->why, "%s", gyre_last_error());
        return GYRE_OK;
    }
    coll_drive(c->shadow);
    st = comm_group_lend(c->shadow->group, (base_device_t){BASE_CUDA, c->device}, c->slots, all, &direct);
    coll_stop_driving(c->shadow);
    mine->works = direct.works;
    c->flush = direct.flush;
    if (st == GYRE_OK && direct.works && mine->flat && wire)
        st = coll_cuda_wire_start(c, c->slots + bytes);
    snprintf(mine->why, sizeof mine->why, "%.*s", (int)sizeof mine->why - 1,
             st == GYRE_OK ? direct.why : gyre_last_error());
    return st;
}

/* Finds which ranks can with which, and the text about it. */
static void settle(coll_cuda_t *c, const offer_t *offers)
{
    const int n = c->comm->n, me = c->comm->rank;
    int with = 0, without = -1;
    for (int r = 0; r < n; r++) {
        const int networked = comm_group_is_networked(c->shadow->group, r);
        c->direct[r] = (unsigned char)(networked && offers[me].works && offers[r].works);
        with += c->direct[r];
        if (networked && !offers[r].works && without < 0)
            without = r;
    }
    if (!offers[me].works)
        snprintf(c->messages, sizeof c->messages, "through pinned host memory: %s", offers[me].why);
    else if (with == 0 && without >= 0)
        snprintf(c->messages, sizeof c->messages, "through pinned host memory: rank %d cannot otherwise: %s",
                 without, offers[without].why);
    else if (without >= 0)
        snprintf(c->messages, sizeof c->messages,
                 "with %d ranks from device memory (%s); with rank %d through pinned host memory: %s", with,
                 offers[me].why, without, offers[without].why);
    else
        snprintf(c->messages, sizeof c->messages, "between hosts from device memory: %s", offers[me].why);
}

/* Collectives go so only if every rank can with every other. Returns 1 if all that is in the way is that
 * some share a host. */
static int settle_collectives(coll_cuda_t *c, const offer_t *offers)
{
    const int n = c->comm->n;
    int without = -1, near = -1;
    for (int r = n - 1; r >= 0; r--) {
        without = offers[r].works ? without : r;
        near = offers[r].flat ? near : r;
    }
    if (without >= 0)
        snprintf(c->collectives, sizeof c->collectives,
                 "through pinned host memory: rank %d cannot otherwise: %s", without, offers[without].why);
    else if (near >= 0)
        snprintf(c->collectives, sizeof c->collectives,
                 "through pinned host memory: rank %d shares its host with another", near);
    else if (!c->wire)
        snprintf(c->collectives, sizeof c->collectives,
                 "through pinned host memory: GYRE_CUDA_STAGING=%s is too little for %d ranks, or they are "
                 "more than %d",
                 base_setting_string(SET_CUDA_STAGING), n, (int)COLL_CUDA_RANKS);
    else
        snprintf(c->collectives, sizeof c->collectives, "parts of more than %d KiB from device memory: %s",
                 COMM_LEND_LEAST >> 10, offers[c->comm->rank].why);
    if (c->wire && (without >= 0 || near >= 0))
        coll_cuda_wire_stop(c);
    return without < 0 && near >= 0 && c->comm->hosts > 1;
}

gyre_status_t coll_cuda_lent_start(coll_cuda_t *c, size_t bytes)
{
    const int n = c->comm->n;
    offer_t mine, *offers;
    if (n == 1 || !comm_group_has_network(c->shadow->group)) {
        snprintf(c->messages, sizeof c->messages,
                 "through pinned host memory: no rank is reached over a network");
        snprintf(c->collectives, sizeof c->collectives,
                 "through pinned host memory: no rank is reached over a network");
        return GYRE_OK;
    }
    memset(&mine, 0, sizeof mine);
    mine.flat = 1;
    for (int r = 0; r < n; r++)
        mine.flat = mine.flat && (r == c->comm->rank || comm_group_is_networked(c->shadow->group, r));
    offers = calloc((size_t)n, sizeof *offers);
    c->direct = calloc((size_t)n, 1);
    gyre_status_t st = coll_cuda_agree(
        c,
        offers && c->direct ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for what %d ranks tell", n));
    if (st != GYRE_OK || !offers || !c->direct) { /* without those it is not OK */
        free(offers);
        return st;
    }
    mine.status = (int32_t)offer(c, base_round_up(bytes, ALIGNMENT), &mine);
    st = gyre_all_gather(&mine, offers, sizeof mine, GYRE_UINT8, c->comm);
    for (int r = 0; st == GYRE_OK && r < n; r++)
        if (offers[r].status != GYRE_OK)
            st = gyre_fail((gyre_status_t)offers[r].status, "rank %d: %s", r, offers[r].why);
    if (st == GYRE_OK)
        settle(c, offers);
    const int shared = st == GYRE_OK && settle_collectives(c, offers);
    free(offers);
    if (shared)
        st = coll_cuda_hosts_start(c);
    return st;
}

void coll_cuda_lent_stop(coll_cuda_t *c)
{
    coll_cuda_wire_stop(c);
    if (c->slots)
        coll_cuda_give_memory(c->slots);
    free(c->direct);
}

#endif
