/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/start.c: the checks of collective calls, and how a call that passed them starts: with a
 * plan, without a schedule, or on a device. Or it is kept for later: persistent.c. */
#include "collectives/api/start.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "collectives/api/persistent.h"
#include "collectives/gpu/gpu.h"
#include "collectives/kernels/kernels.h"

gyre_status_t coll_check_comm_whole(const char *name, gyre_comm_t *comm)
{
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "%s: comm is NULL", name);
    if (coll_comm_troubled(comm) && coll_try_drive(comm)) {
        coll_comm_notice(comm);
        coll_stop_driving(comm);
    }
    gyre_status_t error = (gyre_status_t)atomic_load_explicit(&comm->error, memory_order_acquire);
    if (error == GYRE_ERR_INVALID)
        return coll_check_live(name, comm);
    if (error != GYRE_OK)
        return gyre_fail_quiet(error, "%s: the communicator failed before: %s", name, comm->error_text);
    /* Another thread drives, and may be about to say so. A program that has seen the error sees it here. */
    return coll_comm_ask(comm);
}

gyre_status_t coll_check_type_whole(const char *name, gyre_type_t type)
{
    if (gyre_type_size(type) == 0)
        return gyre_fail(GYRE_ERR_TYPE, "%s: %d is not a type (gyre_type_t)", name, (int)type);
    return GYRE_OK;
}

static void append(char *text, size_t bytes, const char *word)
{
    const size_t length = strlen(text);
    snprintf(text + length, bytes - length, " %s", word);
}

/* An operation of the program's own works on every type. */
static gyre_status_t check_own_redop(const char *name, gyre_redop_t op)
{
    if (!base_redop_find(op.kind).function)
        return gyre_fail(GYRE_ERR_TYPE, "%s: %d is not a reduction (gyre_redop_kind_t)", name, (int)op.kind);
    if (op.scaled)
        return gyre_fail(GYRE_ERR_TYPE, "%s: only sums can be scaled, this is %s", name,
                         gyre_redop_name(op.kind));
    return GYRE_OK;
}

/* Names what the type can be reduced by, and what else can be reduced so. */
static gyre_status_t refuse_pair(const char *name, gyre_redop_kind_t kind, gyre_type_t type)
{
    char kinds[128] = "", types[320] = "";
    if (type >= GYRE_TYPE_USER)
        return gyre_fail(GYRE_ERR_TYPE,
                         "%s: there is no %s of %s, a type of gyre_type_create: these have "
                         "operations of gyre_op_create only",
                         name, gyre_redop_name(kind), gyre_type_name(type));
    for (int k = 0; k < GYRE_REDOP_COUNT; k++)
        if (coll_kernel_has((gyre_redop_kind_t)k, type))
            append(kinds, sizeof kinds, gyre_redop_name((gyre_redop_kind_t)k));
    for (int t = 0; t < GYRE_TYPE_COUNT; t++)
        if (coll_kernel_has(kind, (gyre_type_t)t))
            append(types, sizeof types, gyre_type_name((gyre_type_t)t));
    return gyre_fail(GYRE_ERR_TYPE, "%s: there is no %s of %s, which has%s; types that have %s:%s", name,
                     gyre_redop_name(kind), gyre_type_name(type), kinds, gyre_redop_name(kind), types);
}

gyre_status_t coll_check_redop_whole(const char *name, gyre_redop_t op, gyre_type_t type)
{
    if ((int)op.kind < 0 || (int)op.kind >= GYRE_REDOP_COUNT)
        return check_own_redop(name, op);
    if (!coll_kernel_has(op.kind, type))
        return refuse_pair(name, op.kind, type);
    if (op.scaled && op.kind != GYRE_SUM)
        return gyre_fail(GYRE_ERR_TYPE, "%s: only sums can be scaled, this is %s", name,
                         gyre_redop_name(op.kind));
    return GYRE_OK;
}

/* Sums and products of it are rounded. */
static int is_rounded(gyre_type_t type)
{
    switch (type) {
    case GYRE_FLOAT16:
    case GYRE_BFLOAT16:
    case GYRE_FLOAT32:
    case GYRE_FLOAT64:
    case GYRE_COMPLEX64:
    case GYRE_COMPLEX128:
    case GYRE_FLOAT8_E4M3:
    case GYRE_FLOAT8_E5M2:
        return 1;
    default:
        return 0;
    }
}

int coll_has_exact(gyre_redop_kind_t kind, gyre_type_t type)
{
    const int sums = kind == GYRE_SUM || kind == GYRE_AVG;
    if (kind >= GYRE_REDOP_USER)
        return 0;
    return !is_rounded(type) || (sums ? coll_kernel_has_exact(type) : kind != GYRE_PROD);
}

/* UNSUPPORTED: this reduction has no exact result. */
static gyre_status_t check_exact(const char *name, gyre_redop_kind_t kind, gyre_type_t type)
{
    if (coll_has_exact(kind, type))
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_UNSUPPORTED,
                     "%s: the order is exact, and %s of %s has no exact result: use canonical order, on "
                     "another communicator or in a plan (gyre_comm_set, gyre_plan_set)",
                     name, gyre_redop_name(kind), gyre_type_name(type));
}

gyre_status_t coll_call_order(coll_call_t *c, gyre_order_t order)
{
    const gyre_redop_kind_t kind = c->shape.redop;
    gyre_status_t st = GYRE_OK;
    if (!coll_op_reduces(c->shape.op)) {
        c->shape.order = order;
        return GYRE_OK;
    }
    if (order == GYRE_ORDER_EXACT)
        st = check_exact(c->name, kind, c->shape.type);
    if (order == GYRE_ORDER_FAST && kind >= GYRE_REDOP_USER && !base_redop_find(kind).commutes)
        order = GYRE_ORDER_CANONICAL;
    if (st == GYRE_OK)
        c->shape.order = order;
    return st;
}

gyre_status_t coll_refuse_root(const char *name, int root, const gyre_comm_t *comm)
{
    return gyre_fail(GYRE_ERR_INVALID, "%s: root %d is not in 0..%d", name, root, comm->n - 1);
}

static int touches(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

static gyre_status_t check_buffers(const coll_call_t *c, size_t esize)
{
    size_t sb, rb;
    if (!base_mul(c->send_count, esize, &sb) || !base_mul(c->recv_count, esize, &rb) || sb > PTRDIFF_MAX ||
        rb > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW,
                         "%s: count %zu x %zu bytes on %d ranks is more than memory can hold", c->name,
                         c->shown, esize, c->comm->n);
    if (sb && !c->send)
        return gyre_fail(GYRE_ERR_INVALID, "%s: send is NULL but %zu elements are to be sent", c->name,
                         c->send_count);
    if (rb && !c->recv)
        return gyre_fail(GYRE_ERR_INVALID, "%s: recv is NULL but %zu elements are to be received", c->name,
                         c->recv_count);
    if (!c->shape.in_place && touches(c->send, sb, c->recv, rb))
        return gyre_fail(GYRE_ERR_OVERLAP,
                         "%s: send [%p, +%zu) and recv [%p, +%zu) overlap, and this is not the in-place form "
                         "(gyre/collectives.h says which it is)",
                         c->name, c->send, sb, c->recv, rb);
    return GYRE_OK;
}

static gyre_status_t check_on_device(const coll_call_t *c)
{
    if (c->comm->leaves && coll_op_reduces(c->shape.op))
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "%s: the communicator has leaves (gyre_comm_set), which are added up in host memory "
                         "only",
                         c->name);
    return GYRE_OK;
}

gyre_status_t coll_call_start(coll_call_t *c)
{
    gyre_comm_t *comm = c->comm;
    const size_t esize = base_type_size(c->shape.type);
    gyre_status_t st = check_buffers(c, esize);
    const int on_device = st == GYRE_OK && coll_call_on_device(c);
    if (on_device)
        st = check_on_device(c);
    if (st != GYRE_OK)
        return coll_refuse(st);
    if (c->plan)
        return coll_persistent_make(c);
    if (comm->fault_at && comm->seq + 1 >= comm->fault_at)
        coll_fault_strike(comm, &c->shape, &c->send, &c->recv);
    if (on_device)
        return coll_cuda_start(c);
    coll_plan_t *plan;
    coll_drive(comm);
    st = coll_plan_get(comm, &c->shape, &plan);
    if (st != GYRE_OK) {
        coll_stop_driving(comm);
        return coll_refuse(st);
    }
    return coll_call_run(c, plan);
}

gyre_status_t coll_check_request(const char *name, gyre_request_t **request)
{
    if (!request)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "%s: request is NULL", name));
    return GYRE_OK;
}

int coll_counts_extent(const size_t *counts, const size_t *displs, int n, size_t *out)
{
    size_t end = 0, packed = 0;
    for (int r = 0; r < n; r++) {
        size_t to;
        if (!base_add(displs ? displs[r] : packed, counts[r], &to))
            return 0;
        packed = to;
        end = counts[r] ? base_max_size(end, to) : end;
    }
    *out = end;
    return 1;
}

gyre_status_t coll_refuse_overflow(const char *name)
{
    return coll_refuse(
        gyre_fail(GYRE_ERR_OVERFLOW, "%s: counts and displs add up to more than size_t holds", name));
}

size_t coll_packed_displ(const size_t *counts, const size_t *displs, int rank)
{
    if (displs)
        return displs[rank];
    size_t at = 0;
    for (int r = 0; r < rank; r++)
        at += counts[r];
    return at;
}
