/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/combine.c: reductions by functions of the program, in the canonical tree and with the
 * operands in their order. */
#include <string.h>

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "collectives/kernels/kernels.h"

enum {
    ROOM = GYRE_TYPE_BYTES_MOST, /* bytes of a partial result: one element at least */
    ROWS = 12                    /* partial results of the tree over 2048 sources, and the result */
};

/* A call under way: its function, and the piece that it works on. */
typedef struct {
    base_redop_t redop;
    gyre_type_t type;
    const void *const *srcs;
    size_t offset, count, bytes; /* bytes, elements, bytes */
} piece_t;

static const void *source(const piece_t *p, int k)
{
    return (const unsigned char *)p->srcs[k] + p->offset;
}

/* to = the tree over sources first .. first + k - 1; `to` overlaps none of them. */
static gyre_status_t tree(const piece_t *p, int first, int k, void *to, unsigned char (*room)[ROOM])
{
    if (k == 1) {
        memcpy(to, source(p, first), p->bytes);
        return GYRE_OK;
    }
    int left = 1;
    while (left < k - left)
        left *= 2;
    const void *operand = source(p, first);
    if (left > 1) {
        gyre_status_t st = tree(p, first, left, *room, room + 1);
        if (st != GYRE_OK)
            return st;
        operand = *room++;
    }
    gyre_status_t st = tree(p, first + left, k - left, to, room);
    return st == GYRE_OK ? base_redop_call(&p->redop, operand, to, p->count, p->type) : st;
}

static gyre_status_t combine(const base_redop_t *redop, gyre_type_t type, void *dst, const void *const *srcs,
                             int k, size_t count, size_t elem)
{
    _Alignas(64) unsigned char room[ROWS][ROOM];
    if (k == 2 && dst == srcs[1] && dst != srcs[0])
        return base_redop_call(redop, srcs[0], dst, count, type);
    int aliased = 0;
    for (int s = 0; s < k; s++)
        aliased |= dst == srcs[s];
    for (size_t done = 0, part; done < count; done += part) {
        part = base_min_size(count - done, ROOM / elem);
        const piece_t p = {*redop, type, srcs, done * elem, part, part * elem};
        unsigned char *to = (unsigned char *)dst + p.offset;
        gyre_status_t st = tree(&p, 0, k, aliased ? room[0] : to, room + aliased);
        if (st != GYRE_OK)
            return st;
        if (aliased)
            memcpy(to, room[0], p.bytes);
    }
    return GYRE_OK;
}

gyre_status_t coll_kernel_failed(gyre_redop_kind_t op, gyre_status_t returned)
{
    if (returned == GYRE_OP_THREW)
        return gyre_fail_quiet(GYRE_ERR_ABORTED,
                               "an exception has left the program's operation %s: catch it "
                               "there, and return an error",
                               gyre_redop_name(op));
    const gyre_scope_t scope = gyre_status_scope(returned);
    const int fatal = scope == GYRE_SCOPE_COMMUNICATOR || scope == GYRE_SCOPE_PROCESS;
    /* the Python binding looks for the text before %d */
    return gyre_fail_quiet(fatal ? returned : GYRE_ERR_ABORTED, "the program's operation %s returned %d (%s)",
                           gyre_redop_name(op), (int)returned, gyre_status_string(returned));
}

gyre_status_t coll_kernel_combine(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs,
                                  int k, size_t count)
{
    if (op < GYRE_REDOP_COUNT) {
        coll_kernel_reduce(op, type, dst, srcs, k, count);
        return GYRE_OK;
    }
    const base_redop_t redop = base_redop_find(op);
    const size_t elem = gyre_type_size(type);
    if (count == 0)
        return GYRE_OK;
    if (!redop.function || elem == 0) /* freed, which the calls forbid while it is used */
        return GYRE_ERR_TYPE;
    if (k == 1) {
        coll_kernel_copy(dst, srcs[0], count * elem);
        return GYRE_OK;
    }
    return combine(&redop, type, dst, srcs, k, count, elem);
}
