/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/options.c: how a communicator makes its operations: gyre_comm_set. */
#include "collectives/api/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"

#define NAME "gyre_comm_set"

enum { COLL_LEAVES_MOST = COLL_MAX_SOURCES }; /* of a rank; in exact order of all ranks */

/* What a rank asks for, as the others see it. */
typedef struct {
    coll_options_t options;
    int leaves;
} asked_t;

coll_options_t coll_options_default(void)
{
    return (coll_options_t){.order = (gyre_order_t)(GYRE_ORDER_CANONICAL + base_setting_int(SET_ORDER))};
}

void coll_options_inherit(gyre_comm_t *made, const gyre_comm_t *comm)
{
    made->options = comm->options;
    coll_comm_set_timeout(made, comm->timeout_s);
}

const char *coll_order_name(gyre_order_t order)
{
    static const char *const names[] = {"default", "canonical", "fast", "exact"};
    return names[order];
}

static gyre_status_t check(const char *name, const gyre_options_t *o)
{
    if ((int)o->order < GYRE_ORDER_DEFAULT || o->order > GYRE_ORDER_EXACT)
        return gyre_fail(GYRE_ERR_INVALID, "%s: order %d is not a gyre_order_t", name, (int)o->order);
    if (o->leaves < 0 || o->leaves > COLL_LEAVES_MOST)
        return gyre_fail(GYRE_ERR_INVALID, "%s: leaves is %d; 0 to %d", name, o->leaves, COLL_LEAVES_MOST);
    if (!(o->timeout_s >= 0))
        return gyre_fail(GYRE_ERR_INVALID, "%s: timeout_s is %g; 0 or a number of seconds", name,
                         o->timeout_s);
    if (o->algorithm && strlen(o->algorithm) >= COLL_ALGORITHM_BYTES)
        return gyre_fail(GYRE_ERR_INVALID, "%s: algorithm has %zu characters; at most %d", name,
                         strlen(o->algorithm), COLL_ALGORITHM_BYTES - 1);
    return o->algorithm ? coll_check_algorithms(name, o->algorithm) : GYRE_OK;
}

gyre_status_t coll_options_read(const char *name, const gyre_options_t *given, gyre_options_t *own,
                                coll_options_t *out)
{
    *own = (gyre_options_t)GYRE_OPTIONS_INITIALIZER;
    gyre_status_t st =
        given ? coll_sized_read(own, sizeof *own, sizeof(gyre_options_t), given, name) : GYRE_OK;
    if (st == GYRE_OK)
        st = check(name, own);
    if (st != GYRE_OK)
        return st;
    *out = coll_options_default();
    if (own->order != GYRE_ORDER_DEFAULT)
        out->order = own->order;
    out->chunk = own->chunk;
    if (own->algorithm)
        strcpy(out->algorithm, own->algorithm);
    return GYRE_OK;
}

/* OK: all ranks ask for the same. */
static gyre_status_t compare(const gyre_comm_t *comm, const asked_t *all)
{
    const coll_options_t *mine = &all[comm->rank].options;
    int leaves = 0;
    for (int r = 0; r < comm->n; r++) {
        const coll_options_t *theirs = &all[r].options;
        leaves += all[r].leaves;
        if (mine->order != theirs->order || mine->chunk != theirs->chunk ||
            strcmp(mine->algorithm, theirs->algorithm) != 0)
            return gyre_fail(GYRE_ERR_MISMATCH,
                             NAME ": this rank %d set order %s, algorithm \"%s\", chunk %zu, but rank %d set "
                                  "order %s, algorithm \"%s\", chunk %zu: nothing is set",
                             comm->rank, coll_order_name(mine->order), mine->algorithm, mine->chunk, r,
                             coll_order_name(theirs->order), theirs->algorithm, theirs->chunk);
    }
    if (leaves < 1 || (mine->order == GYRE_ORDER_EXACT && leaves > COLL_LEAVES_MOST))
        return gyre_fail(GYRE_ERR_INVALID,
                         NAME ": the ranks have %d leaves together; 1 or more%s: nothing is set", leaves,
                         leaves < 1 ? "" : ", and 1024 at most in exact order");
    return GYRE_OK;
}

/* leaves: [n + 1], set to where each rank's begin. */
static gyre_status_t agree(gyre_comm_t *comm, const asked_t *mine, int *leaves)
{
    asked_t *all = malloc((size_t)comm->n * sizeof *all);
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, NAME ": no memory for %d ranks", comm->n);
    gyre_status_t st = coll_inside_all_gather(mine, all, sizeof *mine, comm, COLL_INSIDE_SET);
    if (st == GYRE_OK)
        st = compare(comm, all);
    for (int r = 0; st == GYRE_OK && r < comm->n; r++)
        leaves[r + 1] = leaves[r] + all[r].leaves;
    free(all);
    return st;
}

static int one_each(const int *leaves, int n)
{
    for (int r = 0; r <= n; r++)
        if (leaves[r] != r)
            return 0;
    return 1;
}

/* Takes `leaves` over. The caller is driving. */
static void take(gyre_comm_t *comm, const coll_options_t *options, int *leaves)
{
    comm->options = *options;
    free(comm->leaves);
    comm->leaves = leaves;
    if (one_each(leaves, comm->n)) {
        free(leaves);
        comm->leaves = NULL;
    }
}

gyre_status_t gyre_comm_set(gyre_comm_t *comm, const gyre_options_t *options)
{
    gyre_options_t o;
    asked_t mine = {0};
    gyre_status_t st = coll_check_live(NAME, comm);
    if (st == GYRE_OK)
        st = coll_options_read(NAME, options, &o, &mine.options);
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED, NAME ": the ranks of a communicator of gyre_cuda_comms_create "
                                                  "have the settings' options");
    if (st == GYRE_OK)
        st = coll_check_unused(NAME, comm);
    if (st != GYRE_OK)
        return st;
    int *leaves = calloc((size_t)comm->n + 1, sizeof *leaves);
    if (!leaves)
        return gyre_fail(GYRE_ERR_NO_MEMORY, NAME ": no memory for %d ranks", comm->n);
    mine.leaves = o.leaves;
    st = agree(comm, &mine, leaves);
    if (st != GYRE_OK) {
        free(leaves);
        return st;
    }
    coll_drive(comm);
    st = coll_comm_forget_plans(comm);
    if (st == GYRE_OK)
        take(comm, &mine.options, leaves);
    coll_stop_driving(comm);
    if (st != GYRE_OK) {
        free(leaves);
        return gyre_fail(st, NAME ": operations of the communicator are under way");
    }
    coll_comm_set_timeout(comm, o.timeout_s > 0 ? o.timeout_s : comm->world->timeout_s);
    return GYRE_OK;
}
