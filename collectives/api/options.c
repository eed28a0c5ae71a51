/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/options.c: how a communicator makes its operations: what it is made with, and
 * gyre_comm_set. */
#include "collectives/api/comm.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/gpu/gpu.h"

enum { COLL_LEAVES_MOST = COLL_MAX_SOURCES }; /* of a rank; in exact order of all ranks */

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

/* OK: `field` of the struct given to the call `name` is 0 or more seconds. INVALID. */
static gyre_status_t check_seconds(const char *name, const char *field, double seconds)
{
    if (seconds >= 0) /* not NaN */
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID, "%s: %s is %g; 0 or a number of seconds", name, field, seconds);
}

gyre_status_t coll_check_deadlines(const char *call, double init_timeout_s, double timeout_s)
{
    gyre_status_t st = check_seconds(call, "config.init_timeout_s", init_timeout_s);
    return st == GYRE_OK ? check_seconds(call, "config.timeout_s", timeout_s) : st;
}

static gyre_status_t check(const char *name, const gyre_options_t *o)
{
    if ((int)o->order < GYRE_ORDER_DEFAULT || o->order > GYRE_ORDER_EXACT)
        return gyre_fail(GYRE_ERR_INVALID, "%s: order %d is not a gyre_order_t", name, (int)o->order);
    if (o->leaves < 0 || o->leaves > COLL_LEAVES_MOST)
        return gyre_fail(GYRE_ERR_INVALID, "%s: leaves is %d; 0 to %d", name, o->leaves, COLL_LEAVES_MOST);
    if (check_seconds(name, "timeout_s", o->timeout_s) != GYRE_OK)
        return GYRE_ERR_INVALID;
    if (o->tag > UINT32_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "%s: tag is %llu; at most %lu", name, (unsigned long long)o->tag,
                         (unsigned long)UINT32_MAX);
    if (o->algorithm && strlen(o->algorithm) >= COLL_ALGORITHM_BYTES)
        return gyre_fail(GYRE_ERR_INVALID, "%s: algorithm has %zu characters; at most %d", name,
                         strlen(o->algorithm), COLL_ALGORITHM_BYTES - 1);
    return o->algorithm ? coll_check_algorithms(name, o->algorithm)
                        : coll_check_algorithms("GYRE_ALGO", base_setting_string(SET_ALGO));
}

gyre_status_t coll_options_read(const char *name, const gyre_options_t *given, coll_asked_t *out)
{
    gyre_options_t o = GYRE_OPTIONS_INITIALIZER;
    gyre_status_t st =
        given ? coll_sized_read(&o, sizeof o, offsetof(gyre_options_t, tag), given, name) : GYRE_OK;
    if (st == GYRE_OK)
        st = check(name, &o);
    if (st != GYRE_OK)
        return st;
    memset(out, 0, sizeof *out); /* others get its bytes */
    out->options = coll_options_default();
    if (o.order != GYRE_ORDER_DEFAULT)
        out->options.order = o.order;
    out->options.chunk = o.chunk;
    out->options.tag = (uint32_t)o.tag;
    if (o.algorithm)
        strcpy(out->options.algorithm, o.algorithm);
    out->leaves = o.leaves;
    out->timeout_s = o.timeout_s;
    out->chooses = o.order != GYRE_ORDER_DEFAULT || o.algorithm || o.chunk;
    return GYRE_OK;
}

/* OK: all ranks ask for the same. */
static gyre_status_t compare(const char *name, const gyre_comm_t *comm, const coll_asked_t *all)
{
    const coll_options_t *mine = &all[comm->rank].options;
    int leaves = 0;
    for (int r = 0; r < comm->n; r++) {
        const coll_options_t *theirs = &all[r].options;
        leaves += all[r].leaves;
        if (mine->order != theirs->order || mine->chunk != theirs->chunk ||
            strcmp(mine->algorithm, theirs->algorithm) != 0)
            return gyre_fail(GYRE_ERR_MISMATCH,
                             "%s: this rank %d set order %s, algorithm \"%s\", chunk %zu, but rank %d set "
                             "order %s, algorithm \"%s\", chunk %zu: nothing is set",
                             name, comm->rank, coll_order_name(mine->order), mine->algorithm, mine->chunk, r,
                             coll_order_name(theirs->order), theirs->algorithm, theirs->chunk);
    }
    if (leaves < 1 || (mine->order == GYRE_ORDER_EXACT && leaves > COLL_LEAVES_MOST))
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: the ranks have %d leaves together; 1 or more%s: nothing is set", name, leaves,
                         leaves < 1 ? "" : ", and 1024 at most in exact order");
    return GYRE_OK;
}

static int one_each(const int *leaves, int n)
{
    for (int r = 0; r <= n; r++)
        if (leaves[r] != r)
            return 0;
    return 1;
}

/* Takes `leaves` over. INVALID (no text): operations are under way. */
static gyre_status_t take(gyre_comm_t *comm, const coll_asked_t *mine, int *leaves)
{
    coll_drive(comm);
    gyre_status_t st = coll_comm_forget_plans(comm);
    if (st == GYRE_OK) {
        comm->options = mine->options;
        free(comm->leaves);
        comm->leaves = one_each(leaves, comm->n) ? NULL : leaves;
        coll_comm_set_timeout(comm, mine->timeout_s > 0 ? mine->timeout_s : comm->world->timeout_s);
        coll_cuda_set(comm);
    }
    const int taken = comm->leaves == leaves;
    coll_stop_driving(comm);
    if (!taken)
        free(leaves);
    return st;
}

gyre_status_t coll_options_agree(const char *name, const coll_asked_t *mine, gyre_comm_t *comm,
                                 comm_all_gather_fn all_gather, void *user)
{
    const size_t n = (size_t)comm->n;
    coll_asked_t *all = malloc(n * sizeof *all);
    int *leaves = calloc(n + 1, sizeof *leaves); /* where each rank's begin */
    gyre_status_t st = all && leaves ? all_gather(user, mine, sizeof *mine, all)
                                     : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %zu ranks", name, n);
    if (st == GYRE_OK)
        st = compare(name, comm, all);
    for (size_t r = 0; st == GYRE_OK && r < n; r++)
        leaves[r + 1] = leaves[r] + all[r].leaves;
    free(all);
    if (st != GYRE_OK) {
        free(leaves);
        return st;
    }
    st = take(comm, mine, leaves);
    return st == GYRE_OK ? st : gyre_fail(st, "%s: operations of the communicator are under way", name);
}

static gyre_status_t gather_inside(void *comm, const void *mine, size_t bytes, void *all)
{
    return coll_inside_all_gather(mine, all, bytes, comm, COLL_INSIDE_SET);
}

gyre_status_t gyre_comm_set(gyre_comm_t *comm, const gyre_options_t *options)
{
    static const char name[] = "gyre_comm_set";
    coll_asked_t mine;
    gyre_status_t st = coll_check_live(name, comm);
    if (st == GYRE_OK)
        st = coll_options_read(name, options, &mine);
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                       "%s: the ranks of a communicator of gyre_cuda_comms_create have the settings' options",
                       name);
    if (st == GYRE_OK)
        st = coll_check_unused(name, comm);
    return st == GYRE_OK ? coll_options_agree(name, &mine, comm, gather_inside, comm) : st;
}
