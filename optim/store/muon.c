/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/muon.c: Muon's update (optim/muon.h) of rows that lie in pieces over data- and tensor-parallel
 * ranks.
 *
 * A matrix is made orthogonal as a whole. Its row has an owner, one rank of the plane of dp and tp. In a
 * round each rank owns one row:
 *
 *     1. every rank updates its momentum, and sends the owners its pieces of u     (all-to-all)
 *     2. the owner has the canonical row, and makes its matrices orthogonal
 *     3. every rank gets its pieces of the steps back, and updates its weights     (all-to-all)
 *
 * The longest rows come first, so rows of a round are about as long. Steps 1 and 3 go element by element, and
 * step 2 sees the canonical row: no bit depends on who owns what. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"
#include "optim/convert.h"
#include "optim/store/internal.h"

/* ---- the plan ------------------------------------------------------------------------------------------ */

static size_t whole_of(const model_param_t *row)
{
    return row->leaves * row->leaf_count;
}

/* What rank p of the plane has of row r: elements [first, first + count) of the canonical row, and where they
 * begin in what it updates of their bucket. all 0: what it gives to a round, so that each element comes once;
 * 1: what it updates. */
typedef struct {
    size_t first, count, at;
} piece_range_t;
static piece_range_t piece_of(const zero_plan_t *plan, size_t r, size_t p, int all)
{
    const model_param_t *row = &plan->params->row[r];
    const zero_bucket_t *k = &plan->bucket[plan->bucket_of[r]];
    const size_t t = p % plan->muon.tp, begin = row->grad - k->grad,
                 slice = row->cut < 0 ? 0 : t * row->count;
    size_t first, count;
    optim_shard_cut(k->count, plan->ranks, p / plan->muon.tp, &first, &count);
    const size_t kept = plan->config.stage == 0 ? 0 : first; /* where what it updates begins */
    if (all && plan->config.stage == 0) {
        first = 0;
        count = k->count;
    }
    const size_t lo = base_max_size(begin, first), hi = base_min_size(begin + row->count, first + count);
    if (lo >= hi || (!all && row->cut < 0 && t > 0))
        return (piece_range_t){0};
    return (piece_range_t){.first = slice + lo - begin, .count = hi - lo, .at = lo - kept};
}

/* The row that rank p owns in the round that begins with row[at]; MODEL_NONE: none. */
static size_t owned(const zero_plan_t *plan, size_t at, size_t p)
{
    return at + p < plan->muon.rows ? plan->muon.row[at + p] : MODEL_NONE;
}

static size_t own_place(const zero_plan_t *plan)
{
    return plan->rank * plan->muon.tp + plan->muon.tp_rank;
}

static void sort_rows(const zero_plan_t *plan, size_t *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i;
             j > 0 && whole_of(&plan->params->row[list[j]]) > whole_of(&plan->params->row[list[j - 1]]);
             j--) {
            const size_t row = list[j];
            list[j] = list[j - 1];
            list[j - 1] = row;
        }
}

/* The most that a rank of the plane has of the rows of one round. */
static size_t longest_pack(const zero_plan_t *plan)
{
    size_t most = 0;
    for (size_t at = 0; at < plan->muon.rows; at += plan->muon.plane)
        for (size_t p = 0; p < plan->muon.plane; p++) {
            size_t sum = 0;
            for (size_t o = 0; o < plan->muon.plane && owned(plan, at, o) != MODEL_NONE; o++)
                sum += piece_of(plan, owned(plan, at, o), p, 1).count;
            most = base_max_size(most, sum);
        }
    return most;
}

gyre_status_t zero_plan_rounds(zero_plan_t *plan)
{
    const model_params_t *params = plan->params;
    zero_muon_t *m = &plan->muon;
    m->tp = 1;
    if (!(m->row = calloc(params->rows + 1, sizeof *m->row)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %zu rows", params->rows);
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        if (whole_of(row) > row->count) {
            m->tp = whole_of(row) / row->count;
            m->tp_rank = row->first / row->count;
        }
        if (!zero_plan_muon(plan, r))
            continue;
        m->row[m->rows++] = r;
        m->whole = base_max_size(m->whole, (whole_of(row) + 15) / 16 * 16);
        m->work = base_max_size(m->work, optim_muon_work(&params->config, row));
    }
    m->plane = m->rows > 0 ? m->tp * plan->ranks : 1;
    sort_rows(plan, m->row, m->rows);
    m->pack = m->plane > 1 ? longest_pack(plan) : 0;
    return GYRE_OK;
}

uint64_t zero_plan_muon_sent(const zero_plan_t *plan)
{
    const size_t me = own_place(plan);
    uint64_t sent = 0;
    for (size_t i = 0; i < plan->muon.rows; i++) {
        const size_t owner = i % plan->muon.plane;
        if (owner != me)
            sent += piece_of(plan, plan->muon.row[i], me, 0).count;
        for (size_t p = 0; owner == me && p < plan->muon.plane; p++)
            sent += p == me ? 0 : piece_of(plan, plan->muon.row[i], p, 1).count;
    }
    return sent;
}

/* ---- the update ---------------------------------------------------------------------------------------- */

gyre_status_t zero_muon_take(optim_zero_t *zero)
{
    const zero_muon_t *m = &zero->plan.muon;
    void *memory;
    model_matmul_init();
    gyre_status_t status =
        zero_take(zero, OPTIM_MEMORY_MUON, (m->whole + m->work) * sizeof(float), 1, &memory);
    zero->muon_whole = memory;
    if (status == GYRE_OK && m->pack > 0) {
        status = zero_take(zero, OPTIM_MEMORY_MUON, m->pack * sizeof(float), 1, &memory);
        zero->muon_pack = memory;
    }
    if (status == GYRE_OK && !(zero->muon_counts = calloc(4 * m->plane, sizeof *zero->muon_counts)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the counts of %zu ranks", m->plane);
    return status;
}

/* Calls momentum or, with u, look_ahead on n elements from `at` of what this rank updates of row r's
 * bucket. */
static gyre_status_t walk(optim_zero_t *zero, size_t r, size_t at, size_t n, float scale, float *u)
{
    const size_t b = zero->plan.bucket_of[r];
    const float momentum = (float)zero->plan.config.momentum;
    float expanded[ZERO_BLOCK];
    zero_view_t state;
    gyre_status_t status = zero_state_open(zero, b, &state);
    for (size_t i = 0; status == GYRE_OK && i < n; i += ZERO_BLOCK) {
        const size_t len = base_min_size(n - i, ZERO_BLOCK);
        const char *own = zero_grad_own(zero, b) + (at + i) * zero->plan.grad_bytes;
        const float *grad = (const float *)(const void *)own;
        if (zero->plan.config.grad16) {
            optim_expand(zero->plan.config.precision, (const uint16_t *)(const void *)own, expanded, len);
            grad = expanded;
        }
        if (u)
            optim_muon_look_ahead(momentum, scale, state.m + at + i, grad, u + i, len);
        else
            optim_muon_momentum(momentum, scale, state.m + at + i, grad, len);
    }
    return status;
}

/* The four arrays of a round: what this rank sends to and gets from each, of the rows that others own (`all`)
 * and of the row that it owns. */
typedef struct {
    size_t *pack, *pack_at, *whole, *whole_at;
} counts_t;

static counts_t count_round(const optim_zero_t *zero, size_t at, int all)
{
    const zero_plan_t *plan = &zero->plan;
    const size_t n = plan->muon.plane, me = own_place(plan), mine = owned(plan, at, me);
    const counts_t c = {zero->muon_counts, zero->muon_counts + n, zero->muon_counts + 2 * n,
                        zero->muon_counts + 3 * n};
    size_t sum = 0;
    for (size_t p = 0; p < n; p++) {
        const size_t r = owned(plan, at, p);
        const piece_range_t none = {0}, there = mine == MODEL_NONE ? none : piece_of(plan, mine, p, all);
        c.pack[p] = r == MODEL_NONE ? 0 : piece_of(plan, r, me, all).count;
        c.pack_at[p] = sum;
        c.whole[p] = there.count;
        c.whole_at[p] = there.first;
        sum += c.pack[p];
    }
    return c;
}

static void count_sent(optim_zero_t *zero, const size_t *counts)
{
    const size_t me = own_place(&zero->plan);
    for (size_t p = 0; p < zero->plan.muon.plane; p++)
        zero->sent[OPTIM_TRAFFIC_MUON] += p == me ? 0 : counts[p];
}

/* Step 1: u of the row that this rank owns comes into muon_whole. */
static gyre_status_t bring(optim_zero_t *zero, size_t at, float scale)
{
    const zero_plan_t *plan = &zero->plan;
    const size_t n = plan->muon.plane, me = own_place(plan);
    const counts_t c = count_round(zero, at, 0);
    gyre_status_t status = GYRE_OK;
    for (size_t o = 0; status == GYRE_OK && o < n && owned(plan, at, o) != MODEL_NONE; o++) {
        const size_t r = owned(plan, at, o);
        const piece_range_t held = piece_of(plan, r, me, 1), given = piece_of(plan, r, me, 0);
        status = walk(zero, r, held.at, held.count, scale, NULL);
        if (status == GYRE_OK)
            status = walk(zero, r, given.at, given.count, scale,
                          n > 1 ? zero->muon_pack + c.pack_at[o] : zero->muon_whole);
    }
    if (status != GYRE_OK || n == 1)
        return status;
    const base_time_t begin = base_now();
    status = gyre_all_to_allv(zero->muon_pack, c.pack, c.pack_at, zero->muon_whole, c.whole, c.whole_at,
                              GYRE_FLOAT32, zero->groups.plane);
    zero_exposed(zero, MODEL_SPAN_REDUCE, begin);
    count_sent(zero, c.pack);
    return status;
}

/* Step 3: from muon_whole to the weights. */
static gyre_status_t hand_out(optim_zero_t *zero, size_t at, const optim_adamw_factors_t *factors)
{
    const zero_plan_t *plan = &zero->plan;
    const size_t n = plan->muon.plane, me = own_place(plan);
    const counts_t c = count_round(zero, at, 1);
    gyre_status_t status = GYRE_OK;
    if (n > 1) {
        const base_time_t begin = base_now();
        status = gyre_all_to_allv(zero->muon_whole, c.whole, c.whole_at, zero->muon_pack, c.pack, c.pack_at,
                                  GYRE_FLOAT32, zero->groups.plane);
        zero_exposed(zero, MODEL_SPAN_GATHER, begin);
        count_sent(zero, c.whole);
    }
    for (size_t o = 0; status == GYRE_OK && o < n && owned(plan, at, o) != MODEL_NONE; o++) {
        const size_t r = owned(plan, at, o);
        const model_param_t *row = &plan->params->row[r];
        const piece_range_t held = piece_of(plan, r, me, 1);
        const optim_adamw_factors_t own = optim_adamw_row(factors, row->rate, row->own_decay);
        zero_view_t state;
        status = zero_state_open(zero, plan->bucket_of[r], &state);
        if (status == GYRE_OK)
            optim_muon_apply(own.keep[row->decay != 0], (float)own.rate, state.w + held.at,
                             n > 1 ? zero->muon_pack + c.pack_at[o] : zero->muon_whole, held.count);
    }
    return status;
}

gyre_status_t zero_muon_update(optim_zero_t *zero, const optim_adamw_factors_t *factors)
{
    const zero_plan_t *plan = &zero->plan;
    const size_t me = own_place(plan);
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < plan->muon.rows; at += plan->muon.plane) {
        const size_t mine = owned(plan, at, me);
        status = bring(zero, at, factors->scale);
        if (status == GYRE_OK && mine != MODEL_NONE)
            optim_muon_direction(&plan->params->config, &plan->params->row[mine], zero->muon_whole,
                                 zero->muon_whole + plan->muon.whole);
        if (status == GYRE_OK)
            status = hand_out(zero, at, factors);
    }
    return status;
}
