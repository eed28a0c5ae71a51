/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/exact.c: exact sums of local data (gyre/exact.h). */
#include <gyre/exact.h>

#include <stdlib.h>

#include "base/error.h"
#include "collectives/kernels/accumulate.h"
#include "collectives/run/communicator.h"

struct gyre_exact {
    coll_accumulator_t sum;
};

static gyre_status_t is_null(const char *name, const char *argument)
{
    return gyre_fail(GYRE_ERR_INVALID, "%s: %s is NULL", name, argument);
}

static gyre_status_t check(const char *name, const gyre_exact_t *exact, const void *x, const void *y,
                           size_t count, gyre_type_t type)
{
    if (!exact)
        return is_null(name, "exact");
    if (type != GYRE_FLOAT32 && type != GYRE_FLOAT64)
        return gyre_fail(GYRE_ERR_TYPE, "%s: type %s (%d) is not float or double", name, gyre_type_name(type),
                         (int)type);
    if (count > 0 && (!x || !y))
        return is_null(name, x ? "y" : "x");
    return GYRE_OK;
}

gyre_status_t gyre_exact_create(gyre_exact_t **out)
{
    if (!out)
        return is_null("gyre_exact_create", "out");
    gyre_exact_t *exact = malloc(sizeof *exact);
    if (!exact)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_exact_create: no memory for %zu bytes", sizeof *exact);
    coll_accumulator_clear(&exact->sum);
    *out = exact;
    return GYRE_OK;
}

gyre_status_t gyre_exact_destroy(gyre_exact_t *exact)
{
    free(exact);
    return GYRE_OK;
}

gyre_status_t gyre_exact_reset(gyre_exact_t *exact)
{
    if (!exact)
        return is_null("gyre_exact_reset", "exact");
    coll_accumulator_clear(&exact->sum);
    return GYRE_OK;
}

gyre_status_t gyre_exact_add(gyre_exact_t *exact, const void *x, size_t count, gyre_type_t type)
{
    gyre_status_t st = check("gyre_exact_add", exact, x, x, count, type);
    if (st == GYRE_OK)
        coll_accumulator_add(&exact->sum, x, count, type);
    return st;
}

gyre_status_t gyre_exact_add_dot(gyre_exact_t *exact, const void *x, const void *y, size_t count,
                                 gyre_type_t type)
{
    gyre_status_t st = check("gyre_exact_add_dot", exact, x, y, count, type);
    if (st == GYRE_OK)
        coll_accumulator_add_dot(&exact->sum, x, y, count, type);
    return st;
}

gyre_status_t gyre_exact_add_norm2(gyre_exact_t *exact, const void *x, size_t count, gyre_type_t type)
{
    gyre_status_t st = check("gyre_exact_add_norm2", exact, x, x, count, type);
    if (st == GYRE_OK)
        coll_accumulator_add_dot(&exact->sum, x, x, count, type);
    return st;
}

gyre_status_t gyre_exact_merge(gyre_exact_t *exact, const gyre_exact_t *from)
{
    if (!exact || !from)
        return is_null("gyre_exact_merge", exact ? "from" : "exact");
    if (exact == from)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_exact_merge: a sum cannot be merged into itself");
    coll_accumulator_merge(&exact->sum, &from->sum);
    return GYRE_OK;
}

/* Makes the sum a row of integers that may be added up in place. */
static gyre_status_t prepare(const char *name, gyre_exact_t *exact, gyre_comm_t *comm)
{
    if (!exact)
        return coll_refuse(is_null(name, "exact"));
    gyre_status_t st = coll_check_comm(name, comm);
    if (st != GYRE_OK)
        return coll_refuse(st);
    if (comm->leaves)
        return coll_refuse(gyre_fail(GYRE_ERR_UNSUPPORTED,
                                     "%s: the communicator has other than one leaf per rank (gyre_comm_set): "
                                     "use one made with gyre_comm_dup",
                                     name));
    coll_accumulator_settle(&exact->sum);
    return GYRE_OK;
}

static gyre_status_t add_up(gyre_exact_t *exact, gyre_comm_t *comm, gyre_request_t **request)
{
    return coll_inside_all_reduce(&exact->sum.total, COLL_TOTAL_WORDS, GYRE_INT64, GYRE_OP(GYRE_SUM), comm,
                                  COLL_INSIDE_EXACT, request);
}

gyre_status_t gyre_exact_all_reduce(gyre_exact_t *exact, gyre_comm_t *comm)
{
    gyre_status_t st = prepare("gyre_exact_all_reduce", exact, comm);
    return st == GYRE_OK ? add_up(exact, comm, NULL) : st;
}

gyre_status_t gyre_exact_iall_reduce(gyre_exact_t *exact, gyre_comm_t *comm, gyre_request_t **request)
{
    gyre_status_t st = prepare("gyre_exact_iall_reduce", exact, comm);
    if (st == GYRE_OK)
        st = coll_check_request("gyre_exact_iall_reduce", request);
    return st == GYRE_OK ? add_up(exact, comm, request) : st;
}

gyre_status_t gyre_exact_value(const gyre_exact_t *exact, double *value)
{
    if (!exact || !value)
        return is_null("gyre_exact_value", exact ? "value" : "exact");
    *value = coll_accumulator_value(&exact->sum);
    return GYRE_OK;
}
