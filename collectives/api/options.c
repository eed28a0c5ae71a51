/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/options.c: how a communicator makes its operations: gyre_comm_set. */
#include "collectives/api/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"

#define NAME "gyre_comm_set"

coll_options_t coll_options_default(void)
{
    return (coll_options_t){.order = (gyre_order_t)(GYRE_ORDER_CANONICAL + base_setting_int(SET_ORDER))};
}

void coll_options_inherit(gyre_comm_t *made, const gyre_comm_t *comm)
{
    made->options = comm->options;
    coll_comm_set_timeout(made, comm->timeout_s);
}

static const char *order_name(gyre_order_t order)
{
    static const char *const names[] = {"default", "canonical", "fast", "exact"};
    return names[order];
}

static gyre_status_t check(const gyre_options_t *o)
{
    if ((int)o->order < GYRE_ORDER_DEFAULT || o->order > GYRE_ORDER_EXACT)
        return gyre_fail(GYRE_ERR_INVALID, NAME ": order %d is not a gyre_order_t", (int)o->order);
    if (!(o->timeout_s >= 0))
        return gyre_fail(GYRE_ERR_INVALID, NAME ": timeout_s is %g; 0 or a number of seconds", o->timeout_s);
    if (o->algorithm && strlen(o->algorithm) >= COLL_ALGORITHM_BYTES)
        return gyre_fail(GYRE_ERR_INVALID, NAME ": algorithm has %zu characters; at most %d",
                         strlen(o->algorithm), COLL_ALGORITHM_BYTES - 1);
    return o->algorithm ? coll_check_algorithms(NAME, o->algorithm) : GYRE_OK;
}

/* OK: all ranks ask for the same. */
static gyre_status_t compare(const gyre_comm_t *comm, const coll_options_t *all)
{
    const coll_options_t *mine = &all[comm->rank];
    for (int r = 0; r < comm->n; r++) {
        const coll_options_t *theirs = &all[r];
        if (mine->order != theirs->order || mine->chunk != theirs->chunk ||
            strcmp(mine->algorithm, theirs->algorithm) != 0)
            return gyre_fail(GYRE_ERR_MISMATCH,
                             NAME ": this rank %d set order %s, algorithm \"%s\", chunk %zu, but rank %d set "
                                  "order %s, algorithm \"%s\", chunk %zu: nothing is set",
                             comm->rank, order_name(mine->order), mine->algorithm, mine->chunk, r,
                             order_name(theirs->order), theirs->algorithm, theirs->chunk);
    }
    return GYRE_OK;
}

static gyre_status_t agree(gyre_comm_t *comm, const coll_options_t *mine)
{
    coll_options_t *all = malloc((size_t)comm->n * sizeof *all);
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, NAME ": no memory for %d ranks", comm->n);
    gyre_status_t st = coll_inside_all_gather(mine, all, sizeof *mine, comm, COLL_INSIDE_SET);
    if (st == GYRE_OK)
        st = compare(comm, all);
    free(all);
    return st;
}

gyre_status_t gyre_comm_set(gyre_comm_t *comm, const gyre_options_t *options)
{
    gyre_options_t o = GYRE_OPTIONS_INITIALIZER;
    gyre_status_t st = coll_check_live(NAME, comm);
    if (st == GYRE_OK && options)
        st = coll_sized_read(&o, sizeof o, sizeof o, options, NAME);
    if (st == GYRE_OK)
        st = check(&o);
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED, NAME ": the ranks of a communicator of gyre_cuda_comms_create "
                                                  "have the settings' options");
    if (st == GYRE_OK)
        st = coll_check_unused(NAME, comm);
    if (st != GYRE_OK)
        return st;
    coll_options_t mine = coll_options_default();
    if (o.order != GYRE_ORDER_DEFAULT)
        mine.order = o.order;
    mine.chunk = o.chunk;
    if (o.algorithm)
        strcpy(mine.algorithm, o.algorithm);
    st = agree(comm, &mine);
    if (st != GYRE_OK)
        return st;
    coll_drive(comm);
    st = coll_comm_forget_plans(comm);
    if (st == GYRE_OK)
        comm->options = mine;
    coll_stop_driving(comm);
    if (st != GYRE_OK)
        return gyre_fail(st, NAME ": operations of the communicator are under way");
    coll_comm_set_timeout(comm, o.timeout_s > 0 ? o.timeout_s : comm->world->timeout_s);
    return GYRE_OK;
}
