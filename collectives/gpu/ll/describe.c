/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/ll/describe.c: which calls run the kernel of ll/kernel.h, and what it is given. All of it
 * is a function of the call's shape and of what the ranks have agreed on. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"

gyre_status_t coll_cuda_ll_setting(size_t *bytes)
{
    *bytes = (size_t)base_setting_int(SET_CUDA_LL);
    return *bytes <= COLL_LL_MOST ? GYRE_OK
                                  : gyre_fail(GYRE_ERR_INVALID, "GYRE_CUDA_LL=%s is not in 0..%d bytes",
                                              base_setting_string(SET_CUDA_LL), (int)COLL_LL_MOST);
}

void coll_cuda_ll_limit(coll_cuda_t *c)
{
    const int n = c->comm->n;
    size_t blocks = n > 1 && n <= COLL_LL_RANKS ? COLL_LL_PIECES / (size_t)n : 0;
    blocks = base_min_size(base_min_size(blocks, COLL_LL_BLOCKS), (size_t)c->resident);
    c->ll_most = base_min_size((size_t)base_setting_int(SET_CUDA_LL), blocks * COLL_LL_BLOCK);
}

static int is_served(coll_op_t op)
{
    switch (op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_GATHER:
    case COLL_GATHER:
    case COLL_BROADCAST:
    case COLL_SCATTER:
    case COLL_ALL_TO_ALL:
        return 1;
    default: /* a barrier orders what streams did before it in any memory: it wants releases */
        return 0;
    }
}

void coll_cuda_ll_shape(const coll_shape_t *s, size_t *bytes, int *blocks)
{
    *bytes = s->count * gyre_type_size(s->type);
    *blocks = (int)base_max_size((*bytes + COLL_LL_BLOCK - 1) / COLL_LL_BLOCK, 1);
}

int coll_cuda_in_ll(const coll_cuda_t *c, const coll_shape_t *s, coll_algo_t algo, int capturing)
{
    const size_t esize = gyre_type_size(s->type);
    return c->ll_most > 0 && esize > 0 && algo == COLL_ALGO_AUTO && is_served(s->op) &&
           (s->uniform || coll_op_is_vector(s->op)) && !s->displs && !s->rdispls && !coll_shape_is_exact(s) &&
           (capturing || !c->stream_waits) && s->count <= c->ll_most / esize;
}

static uint8_t what_it_does(gyre_redop_kind_t redop)
{
    static const uint8_t does[GYRE_REDOP_COUNT] = {
#define REDOP(id, name, kernels, device) [GYRE_##id] = COLL_LL_##device,
#define REDOP_HOST(id, name, rows, of)   [GYRE_##id] = COLL_LL_none,
#include "base/redops.def"
#undef REDOP
    };
    return does[redop];
}

/* Ranks [*first, *end): all, or the root, or none. */
static void choose_ranks(const coll_cuda_ll_t *op, int all, int root, uint8_t *first, uint8_t *end)
{
    *first = all || root < 0 ? 0 : (uint8_t)root;
    *end = all ? op->n : root < 0 ? 0 : (uint8_t)(root + 1);
}

static void choose_peers(coll_cuda_ll_t *op, const coll_shape_t *s)
{
    const int spreads = s->op == COLL_BROADCAST || s->op == COLL_SCATTER,
              collects = s->op == COLL_REDUCE || s->op == COLL_GATHER, is_root = op->rank == s->root;
    op->each = s->op == COLL_REDUCE_SCATTER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL;
    choose_ranks(op, spreads ? is_root : !collects, collects ? s->root : -1, &op->to, &op->to_end);
    choose_ranks(op, collects ? is_root : !spreads, spreads ? s->root : -1, &op->from, &op->from_end);
}

gyre_status_t coll_cuda_enqueue_ll(const coll_cuda_t *c, const coll_call_t *call, const comm_call_t *as,
                                   cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    coll_cuda_op_t plain;
    coll_cuda_ll_t op;
    size_t bytes;
    int blocks;
    coll_cuda_describe_arithmetic(c, s, &plain);
    coll_cuda_ll_shape(s, &bytes, &blocks);
    memset(&op, 0, sizeof op);
    memcpy(op.arena, c->arena, sizeof op.arena);
    op.board = c->board;
    op.in = call->send;
    op.out = call->recv;
    op.scale = call->scale;
    op.whole = coll_kernel_whole(call->scale);
    op.sign = plain.sign;
    op.at = coll_cuda_ll_at(c->region, c->blocks, c->engine_half);
    op.sig = as->sig;
    op.call = as->seq;
    op.bytes = (uint32_t)bytes;
    op.divisor = plain.divisor;
    op.n = (uint8_t)plain.n;
    op.rank = (uint8_t)plain.rank;
    op.type = plain.type;
    op.redop = plain.redop;
    op.average = plain.average;
    op.scaled = plain.scaled;
    op.sums = (uint8_t)coll_op_reduces(s->op);
    op.does = op.sums ? what_it_does(s->redop) : (uint8_t)COLL_LL_none;
    choose_peers(&op, s);
    const cudaError_t rc = coll_cuda_launch_ll(&op, stream);
    return rc == cudaSuccess
               ? GYRE_OK
               : coll_cuda_failed(rc, "launching the LL kernel of %s on %d blocks", call->name, blocks);
}

#endif
