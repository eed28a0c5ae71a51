/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/host.c: ZeRO's memory, arithmetic and collectives on the host (zero_ops_t). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread/team.h"
#include "optim/convert.h"
#include "optim/store/internal.h"

static gyre_status_t take(optim_zero_t *zero, size_t bytes, int travels, void **out)
{
    (void)zero;
    if (travels)
        return gyre_mem_alloc(bytes, out);
    *out = calloc(bytes, 1);
    return *out ? GYRE_OK : GYRE_ERR_NO_MEMORY; /* zero_take says for what */
}

static void give(optim_zero_t *zero, void *memory, int travels)
{
    (void)zero;
    if (travels)
        gyre_mem_free(memory);
    else
        free(memory);
}

static gyre_status_t copy(optim_zero_t *zero, void *to, const void *from, size_t bytes)
{
    (void)zero;
    memcpy(to, from, bytes);
    return GYRE_OK;
}

/* 16-bit gradients are rounded at every node of the tree, inside a rank as the reduction does between
 * ranks. */
static gyre_status_t stack(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    const model_kernels_t_f32 *k = model_kernels_f32(MODEL_ISA_BEST);
    optim_round_fn rounding = !plan->config.grad16                       ? NULL
                              : plan->config.precision == MODEL_BFLOAT16 ? k->round_bf16
                                                                         : k->round_fp16;
    gyre_status_t status = optim_stack_create(plan->config.run, plan->config.group, plan->lanes,
                                              plan->params->grad_total, rounding, &zero->stack);
    return status == GYRE_OK && plan->lanes > 1
               ? optim_stack_create(plan->lanes, 1, 1, plan->max_unit, rounding, &zero->turns)
               : status;
}

static gyre_status_t round_half(optim_zero_t *zero, const float *from, char *to, size_t n)
{
    optim_round(zero->plan.config.precision, from, (uint16_t *)(void *)to, n);
    return GYRE_OK;
}

static gyre_status_t add_grads(optim_zero_t *zero, char *sum, const char *other, size_t n)
{
    float a[ZERO_BLOCK], b[ZERO_BLOCK];
    if (!zero->plan.config.grad16) {
        float *to = (float *)(void *)sum;
        const float *from = (const float *)(const void *)other;
        for (size_t i = 0; i < n; i++)
            to[i] = from[i] + to[i];
        return GYRE_OK;
    }
    model_precision_t type = zero->plan.config.precision;
    uint16_t *to = (uint16_t *)(void *)sum;
    const uint16_t *from = (const uint16_t *)(const void *)other;
    for (size_t at = 0; at < n; at += ZERO_BLOCK) {
        size_t len = n - at < ZERO_BLOCK ? n - at : ZERO_BLOCK;
        optim_expand(type, to + at, a, len);
        optim_expand(type, from + at, b, len);
        for (size_t i = 0; i < len; i++)
            a[i] = b[i] + a[i];
        optim_round(type, a, to + at, len);
    }
    return GYRE_OK;
}

static gyre_status_t no_grads(optim_zero_t *zero, char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) /* x + -0.0 is x, to the bit */
        if (zero->plan.config.grad16)
            ((uint16_t *)(void *)data)[i] = 0x8000u;
        else
            ((float *)(void *)data)[i] = -0.0f;
    return GYRE_OK;
}

/* sum: the squares of n gradients more. */
static gyre_status_t add_squares_to(const optim_zero_t *zero, gyre_exact_t *sum, const char *grad, size_t n)
{
    float block[ZERO_BLOCK];
    if (!zero->plan.config.grad16)
        return gyre_exact_add_norm2(sum, grad, n, GYRE_FLOAT32);
    const uint16_t *from = (const uint16_t *)(const void *)grad;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < n; at += ZERO_BLOCK) {
        size_t len = n - at < ZERO_BLOCK ? n - at : ZERO_BLOCK;
        optim_expand(zero->plan.config.precision, from + at, block, len);
        status = gyre_exact_add_norm2(sum, block, len, GYRE_FLOAT32);
    }
    return status;
}

/* Gradients of which a thread takes so many at least. */
#define SQUARES ((size_t)1 << 15)

typedef struct {
    optim_zero_t *zero;
    const char *grad;
    size_t n, parts;
    gyre_status_t status[ZERO_PARTS];
} squares_t;

static void add_part(void *arg, size_t part)
{
    squares_t *all = arg;
    const size_t from = part * all->n / all->parts, to = (part + 1) * all->n / all->parts;
    all->status[part] = add_squares_to(all->zero, all->zero->part[part],
                                       all->grad + from * all->zero->plan.grad_bytes, to - from);
}

/* Sums are exact: whichever part a square is in, their total has the same bits. */
static gyre_status_t add_squares(optim_zero_t *zero, void *user, const char *grad, size_t n)
{
    squares_t all = {zero, grad, n, n / SQUARES < ZERO_PARTS ? n / SQUARES : ZERO_PARTS, {GYRE_OK}};
    gyre_status_t status = GYRE_OK;
    (void)user;
    if (all.parts < 2 || base_team_here() == 1)
        return add_squares_to(zero, zero->squares, grad, n);
    base_each(all.parts, add_part, &all);
    for (size_t i = 0; status == GYRE_OK && i < all.parts; i++)
        status = all.status[i];
    return status;
}

static gyre_status_t squares(optim_zero_t *zero)
{
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < ZERO_PARTS; i++)
        status = gyre_exact_reset(zero->part[i]);
    if (status == GYRE_OK)
        status = zero_squares(zero, add_squares, NULL);
    for (size_t i = 0; status == GYRE_OK && i < ZERO_PARTS; i++)
        status = gyre_exact_merge(zero->squares, zero->part[i]);
    return status;
}

/* n elements of a row, whose state and gradient these are. */
typedef struct {
    const optim_zero_t *zero;
    const optim_adamw_factors_t *factors;
    const model_param_t *row;
    const zero_view_t *state;
    const char *grad;
    size_t n;
} update_t;

/* Block `piece` of the gradient, into grad [ZERO_BLOCK]. *at: its first element. Returns its length. */
static size_t block_of(const update_t *u, size_t piece, float *grad, size_t *at)
{
    const size_t first = piece * ZERO_BLOCK, n = u->n - first < ZERO_BLOCK ? u->n - first : ZERO_BLOCK;
    const char *from = u->grad + first * u->zero->plan.grad_bytes;
    if (u->zero->plan.config.grad16)
        optim_expand(u->zero->plan.config.precision, (const uint16_t *)(const void *)from, grad, n);
    else
        memcpy(grad, from, n * sizeof *grad);
    *at = first;
    return n;
}

/* Of 16-bit gradients. */
static void update_16(void *arg, size_t piece)
{
    const update_t *u = arg;
    const zero_view_t *state = u->state;
    float grad[ZERO_BLOCK];
    size_t at;
    const size_t n = block_of(u, piece, grad, &at);
    optim_adamw_update(u->factors, u->row->decay, state->w + at, state->m + at, state->v + at, grad, n);
}

/* Of a frozen row: its moments are made, so that training may go on with it later. The norm does not count
 * its gradient, so nothing skips the step where it is not finite, and nothing clips it: where its square is
 * not finite, it is 0. */
static void update_frozen(void *arg, size_t piece)
{
    const update_t *u = arg;
    const zero_view_t *state = u->state;
    float grad[ZERO_BLOCK], still[ZERO_BLOCK] = {0};
    size_t at;
    const size_t n = block_of(u, piece, grad, &at);
    for (size_t i = 0; i < n; i++) {
        const float g = grad[i] * u->factors->scale;
        grad[i] = isfinite(g * g) ? grad[i] : 0.0f;
    }
    optim_adamw_update(u->factors, u->row->decay, still, state->m + at, state->v + at, grad, n);
}

static void update_row(update_t *u)
{
    const size_t blocks = u->n / ZERO_BLOCK + (u->n % ZERO_BLOCK > 0);
    if (u->row->frozen)
        base_each(blocks, update_frozen, u);
    else if (u->zero->plan.config.grad16)
        base_each(blocks, update_16, u);
    else
        optim_adamw_update(u->factors, u->row->decay, u->state->w, u->state->m, u->state->v,
                           (const float *)(const void *)u->grad, u->n);
}

static gyre_status_t update(optim_zero_t *zero, size_t b, const optim_adamw_factors_t *f,
                            const zero_view_t *state, int *rounded)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    *rounded = 0;
    for (size_t r = k->row; r < k->row + k->rows; r++) {
        const model_param_t *row = &zero->plan.params->row[r];
        const optim_adamw_factors_t own = optim_adamw_row(f, row->rate, row->own_decay);
        size_t lo, hi;
        if (zero_plan_muon(&zero->plan, r) || !zero_plan_part(&zero->plan, r, &lo, &hi))
            continue;
        const size_t at = lo - k->first;
        const zero_view_t here = {state->w + at, state->m + at, zero_second(zero, state, r, lo)};
        update_row(&(update_t){zero, &own, row, &here, zero_grad_own(zero, b) + at * zero->plan.grad_bytes,
                               hi - lo});
    }
    return GYRE_OK;
}

/* Slice `part` of `parts` of n elements. */
static uint64_t hash_slice(const zero_piece_t *piece, size_t part, size_t parts, uint64_t seed)
{
    size_t n = piece->n, each = (n + parts - 1) / parts, lo = part * each < n ? part * each : n,
           hi = lo + each < n ? lo + each : n;
    return lo < hi ? base_hash64(piece->data + lo * piece->bytes, (hi - lo) * piece->bytes, seed) : seed;
}

static gyre_status_t hash(optim_zero_t *zero, zero_group_t group, size_t part, size_t parts, uint64_t *out)
{
    zero_piece_t piece[ZERO_PIECES];
    for (size_t r = 0; r < zero->plan.params->rows; r++) {
        size_t pieces = zero_hashed(zero, group, r, piece);
        out[r] = 0;
        for (size_t i = 0; i < pieces; i++)
            out[r] = hash_slice(&piece[i], piece[i].sliced ? part : 0, piece[i].sliced ? parts : 1, out[r]);
    }
    return GYRE_OK;
}

static gyre_status_t started(gyre_status_t status, zero_ticket_t *ticket)
{
    ticket->pending = ticket->request != NULL;
    return status;
}

static gyre_status_t reduce(optim_zero_t *zero, size_t b)
{
    zero_run_t *run = &zero->run[b];
    gyre_type_t type = zero_grad_type(zero);
    if (zero->plan.config.stage == 0)
        return started(gyre_iall_reduce(run->data, zero_sum_own(zero, b), zero->plan.bucket[b].count, type,
                                        GYRE_OP(GYRE_SUM), zero->groups.dp, &run->reduce.request),
                       &run->reduce);
    return started(gyre_ireduce_scatterv(run->data, zero_sum_own(zero, b), run->shards, type,
                                         GYRE_OP(GYRE_SUM), zero->groups.dp, &run->reduce.request),
                   &run->reduce);
}

static gyre_status_t gather(optim_zero_t *zero, const char *own, char *whole, const size_t *counts, int ahead,
                            zero_ticket_t *ticket)
{
    return started(gyre_iall_gatherv(own, whole, counts, NULL,
                                     zero_half(zero) ? zero_type16(zero) : GYRE_FLOAT32,
                                     ahead ? zero->gather_comm : zero->groups.dp, &ticket->request),
                   ticket);
}

static gyre_status_t sum_tied(optim_zero_t *zero, char *grad, size_t n)
{
    return gyre_all_reduce(grad, grad, n, zero_grad_type(zero), GYRE_OP(GYRE_SUM), zero->groups.tied);
}

static gyre_status_t wait_for(optim_zero_t *zero, zero_ticket_t *ticket)
{
    (void)zero;
    ticket->pending = 0;
    return gyre_wait(&ticket->request);
}

static gyre_status_t test(optim_zero_t *zero, zero_ticket_t *ticket)
{
    (void)zero;
    gyre_status_t status = gyre_test(&ticket->request);
    ticket->pending = status == GYRE_IN_PROGRESS;
    return status;
}

static void nothing(optim_zero_t *zero)
{
    (void)zero;
}

static gyre_status_t join(optim_zero_t *zero)
{
    (void)zero;
    return GYRE_OK;
}

const zero_ops_t zero_host_ops = {
    .take = take,
    .give = give,
    .copy = copy,
    .read = copy,
    .write = copy,
    .stack = stack,
    .round_grads = round_half,
    .add_grads = add_grads,
    .no_grads = no_grads,
    .round_weights = round_half,
    .squares = squares,
    .update = update,
    .hash = hash,
    .reduce = reduce,
    .gather = gather,
    .sum_tied = sum_tied,
    .wait = wait_for,
    .test = test,
    .join = join,
    .leave = nothing,
    .end = nothing,
};
