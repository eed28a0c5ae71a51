/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/ops.c: operations and types of the program's own, and combining arrays without a
 * communicator. */
#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "collectives/api/start.h"
#include "collectives/kernels/kernels.h"

gyre_status_t gyre_op_create(gyre_op_function_t function, void *user, unsigned flags, gyre_redop_t *op)
{
    return gyre_op_create_guarded(NULL, function, user, flags, op);
}

gyre_status_t gyre_op_create_guarded(gyre_op_guard_t guard, gyre_op_function_t function, void *user,
                                     unsigned flags, gyre_redop_t *op)
{
    if (!function || !op)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_op_create: %s is NULL", function ? "op" : "function");
    if (flags & ~GYRE_OP_COMMUTATIVE)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_op_create: flags %#x are not known", flags);
    const base_redop_t redop = {function, guard, user, (flags & GYRE_OP_COMMUTATIVE) != 0};
    gyre_redop_t made = GYRE_OP(GYRE_REDOP_NONE);
    gyre_status_t st = base_redop_define(&redop, &made.kind);
    if (st == GYRE_OK)
        *op = made;
    return st;
}

gyre_status_t gyre_op_free(gyre_redop_t *op)
{
    if (!op || op->kind == GYRE_REDOP_NONE)
        return GYRE_OK;
    gyre_status_t st = base_redop_end(op->kind);
    if (st == GYRE_OK)
        *op = GYRE_OP(GYRE_REDOP_NONE);
    return st;
}

gyre_status_t gyre_type_create(size_t bytes, gyre_type_t *type)
{
    if (!type)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_type_create: type is NULL");
    if (bytes == 0 || bytes > GYRE_TYPE_BYTES_MOST)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_type_create: an element has 1 to %d bytes, not %zu",
                         (int)GYRE_TYPE_BYTES_MOST, bytes);
    return base_type_define(bytes, type);
}

gyre_status_t gyre_type_free(gyre_type_t *type)
{
    if (!type || *type == GYRE_TYPE_NONE)
        return GYRE_OK;
    gyre_status_t st = base_type_end(*type);
    if (st == GYRE_OK)
        *type = GYRE_TYPE_NONE;
    return st;
}

/* Apart, or the same. */
static int may_share(const void *a, const void *b, size_t bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x == y || x + bytes <= y || y + bytes <= x;
}

gyre_status_t gyre_reduce_local(const void *left, const void *right, void *result, size_t count,
                                gyre_type_t type, gyre_redop_t op)
{
    static const char name[] = "gyre_reduce_local";
    const void *const sources[2] = {left, right};
    size_t bytes;
    gyre_status_t st = coll_check_type(name, type);
    if (st == GYRE_OK)
        st = coll_check_redop(name, op, type);
    if (st != GYRE_OK)
        return st;
    if (op.scaled)
        return gyre_fail(GYRE_ERR_TYPE, "%s: a scaled sum scales what a rank puts in: there is none here",
                         name);
    if (!base_mul(count, gyre_type_size(type), &bytes) || bytes > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s: count %zu is more than memory can hold", name, count);
    if (bytes == 0)
        return GYRE_OK;
    if (!left || !right || !result)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %s is NULL", name,
                         !left    ? "left"
                         : !right ? "right"
                                  : "result");
    if (!may_share(left, result, bytes) || !may_share(right, result, bytes))
        return gyre_fail(GYRE_ERR_OVERLAP, "%s: result overlaps left or right and does not begin with it",
                         name);
    st = coll_kernel_combine(op.kind, type, result, sources, 2, count);
    return st == GYRE_OK ? st : coll_kernel_failed(op.kind, st);
}
