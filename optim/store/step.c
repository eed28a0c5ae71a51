/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/step.c: the end of a step: tied rows, the exact norm, agreement, the update. */
#include <math.h>
#include <string.h>

#include "base/device/ranges.h"
#include "base/error.h"
#include "optim/store/internal.h"

static gyre_status_t check_complete(const optim_zero_t *zero)
{
    const model_params_t *params = zero->plan.params;
    for (size_t r = 0; r < params->rows; r++)
        if (zero->seen[r] != zero->plan.config.share)
            return gyre_fail(GYRE_ERR_INVALID,
                             "the step ends, but %s has the gradients of only %zu of %zu sequences",
                             params->row[r].name, zero->seen[r], zero->plan.config.share);
    return GYRE_OK;
}

/* A tied weight has two gradients, as head and as embedding, each summed over the batch: their sum is the
 * gradient. */
static gyre_status_t join_tied(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    for (size_t b = 0; b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        if (!plan->params->row[k->row].twin)
            continue;
        if (k->alias != MODEL_NONE) {
            gyre_status_t status =
                zero->on->add_grads(zero, zero_grad_own(zero, k->alias), zero_grad_own(zero, b), k->own);
            if (status != GYRE_OK)
                return status;
        } else if (zero->groups.tied) { /* of two: a + b is b + a */
            gyre_status_t status = zero->on->sum_tied(zero, zero_grad_own(zero, b), k->own);
            if (status != GYRE_OK)
                return status;
            zero->sent[OPTIM_TRAFFIC_TIED] += k->own;
        }
    }
    return GYRE_OK;
}

/* Of elements lo .. hi - 1 of `row`'s slice all but copies; grad: of the first of them. */
static gyre_status_t squares_without_copies(optim_zero_t *zero, squares_fn fn, void *user,
                                            const model_param_t *row, size_t lo, size_t hi, const char *grad)
{
    gyre_status_t status = GYRE_OK;
    for (size_t at = lo, end; status == GYRE_OK && at < hi; at = end) {
        const int copy = model_param_is_copy(row, row->first + at);
        for (end = at; end < hi && model_param_is_copy(row, row->first + end) == copy;)
            end += model_param_run(row, row->first + end);
        end = end < hi ? end : hi;
        if (!copy)
            status = fn(zero, user, grad + (at - lo) * zero->plan.grad_bytes, end - at);
    }
    return status;
}

/* Squares of what only this rank counts: its shard (also where it holds all), rows that all ranks of tp hold
 * on the first of them, tied weights where the embedding is. Frozen rows and copies do not count. */
gyre_status_t zero_squares(optim_zero_t *zero, squares_fn fn, void *user)
{
    gyre_status_t status = GYRE_OK;
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = plan->params->row;
    for (size_t r = 0; status == GYRE_OK && r < plan->params->rows; r++) {
        size_t b = plan->bucket_of[r];
        const zero_bucket_t *k = &plan->bucket[b];
        size_t lo = row[r].grad - k->grad, hi = lo + row[r].count;
        if (k->tied || row[r].frozen || (row[r].cut < 0 && zero->tp_rank > 0))
            continue;
        lo = lo > k->cut_first ? lo : k->cut_first;
        hi = hi < k->cut_first + k->cut_count ? hi : k->cut_first + k->cut_count;
        const size_t begin = row[r].grad - k->grad;
        const char *grad = zero_grad_own(zero, b) + (lo - k->first) * plan->grad_bytes;
        if (lo < hi && row[r].copies > 1)
            status = squares_without_copies(zero, fn, user, &row[r], lo - begin, hi - begin, grad);
        else if (lo < hi)
            status = fn(zero, user, grad, hi - lo);
    }
    return status;
}

/* *norm: that of all ranks' gradients, as they lie. *drifted: whether this rank found replicas apart; becomes
 * how many did. They say so by a sum that is not a number, and are counted where there is one. */
static gyre_status_t agree(optim_zero_t *zero, uint64_t *drifted, double *norm)
{
    gyre_comm_t *world = zero->groups.world;
    const double apart = (double)NAN;
    double squares = 0;
    gyre_status_t status = gyre_exact_add(zero->squares, &apart, *drifted, GYRE_FLOAT64);
    if (status == GYRE_OK && world)
        status = gyre_exact_all_reduce(zero->squares, world);
    if (status == GYRE_OK)
        status = gyre_exact_value(zero->squares, &squares);
    if (status == GYRE_OK && world && isnan(squares))
        status = gyre_all_reduce(drifted, drifted, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), world);
    *norm = sqrt(squares);
    return status;
}

/* From the embeddings up, the order in which the next forward pass wants the weights. */
static gyre_status_t update(optim_zero_t *zero, float scale, double rate)
{
    const zero_plan_t *plan = &zero->plan;
    const optim_adamw_factors_t f = optim_adamw_factors(&plan->config.adamw, ++zero->steps, scale, rate);
    if (plan->muon.rows > 0) {
        gyre_status_t status = zero_muon_update(zero, &f);
        if (status != GYRE_OK)
            return status;
    }
    for (size_t b = plan->buckets; b-- > 0;) {
        const zero_bucket_t *k = &plan->bucket[b];
        zero_view_t state;
        if (k->alias != MODEL_NONE)
            continue;
        gyre_status_t status = zero_state_open(zero, b, &state);
        if (status != GYRE_OK)
            return status;
        if (b > 0)
            zero_state_ahead(zero, b - 1);
        int rounded = 0;
        if ((status = zero->on->update(zero, b, &f, &state, &rounded)) != GYRE_OK)
            return status;
        if ((status = zero_weights_publish(zero, b, rounded ? NULL : state.w)) != GYRE_OK ||
            (status = zero_state_close(zero, b, 1)) != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

/* All gradients are sums over the batch; *drifted 1: this rank has found replicas apart. */
static gyre_status_t close_step(optim_zero_t *zero, int *drifted)
{
    const optim_zero_config_t *config = &zero->plan.config;
    gyre_status_t status = check_complete(zero);
    if (status == GYRE_OK && config->share == 0)
        status = zero_buckets_nothing(zero);
    if (status == GYRE_OK)
        status = zero_buckets_wait(zero);
    if (status == GYRE_OK)
        status = zero_store_forget(zero);
    for (size_t b = 0; status == GYRE_OK && b < zero->plan.buckets; b++)
        status = zero_weights_wait(zero, b);
    if (status == GYRE_OK)
        status = join_tied(zero);
    if (status == GYRE_OK)
        status =
            zero_verify_part(zero, zero->verified++ % config->verify_steps, config->verify_steps, drifted);
    return status;
}

/* zero->squares: of all gradients that this rank counts. */
static gyre_status_t add_squares(optim_zero_t *zero)
{
    optim_zero_t *experts = zero_of_experts(zero);
    gyre_status_t status = gyre_exact_reset(zero->squares);
    if (status == GYRE_OK)
        status = zero->on->squares(zero);
    if (status != GYRE_OK || !experts)
        return status;
    status = add_squares(experts);
    return status == GYRE_OK ? gyre_exact_merge(zero->squares, experts->squares) : status;
}

/* Of both stores, where there are two: one norm, and one decision on what becomes of the step. */
static gyre_status_t finish(optim_zero_t *zero, double scale, double rate, optim_zero_step_t *step)
{
    const optim_zero_config_t *config = &zero->plan.config;
    optim_zero_t *experts = zero_of_experts(zero);
    uint64_t ranks_drifted = 0;
    double norm = 0;
    int drifted = 0, experts_drifted = 0;
    gyre_status_t status = close_step(zero, &drifted);
    if (status == GYRE_OK && experts)
        status = close_step(experts, &experts_drifted);
    if (status != GYRE_OK)
        return status;
    base_time_t begin = model_spans_now(zero->spans);
    if ((status = add_squares(zero)) != GYRE_OK)
        return status;
    base_time_t middle = base_now();
    model_spans_add(zero->spans, MODEL_SPAN_OPTIMISER, begin, middle, -1, -1);
    ranks_drifted = drifted || experts_drifted;
    if ((status = agree(zero, &ranks_drifted, &norm)) != GYRE_OK)
        return status;
    zero_exposed(zero, MODEL_SPAN_REDUCE, middle);
    begin = model_spans_now(zero->spans);
    if (ranks_drifted && drifted)
        return gyre_fail(GYRE_ERR_MISMATCH, "%s", zero->drift);
    if (ranks_drifted && experts_drifted)
        return gyre_fail(GYRE_ERR_MISMATCH, "%s", experts->drift);
    if (ranks_drifted)
        return gyre_fail(GYRE_ERR_MISMATCH,
                         "replicas of weights have drifted apart; the error texts of the %llu ranks that "
                         "hold them name them",
                         (unsigned long long)ranks_drifted);
    scale /= optim_zero_loss_scale(zero);
    step->norm = norm * scale;
    step->skipped = !isfinite(step->norm);
    step->spiked = !step->skipped && step->norm > zero->limit;
    zero->limit = INFINITY;
    const float factor = (float)(scale * optim_clip_factor(step->norm, config->clip));
    if (!step->skipped && !step->spiked) {
        zero->torn = 1;
        status = update(zero, factor, rate);
        if (status == GYRE_OK && experts)
            status = update(experts, factor, rate);
        zero->torn = status != GYRE_OK;
    }
    if (config->precision == MODEL_FLOAT16)
        optim_scaler_update(&zero->scaler, &config->scaler, step->skipped);
    model_spans_add(zero->spans, MODEL_SPAN_OPTIMISER, begin, model_spans_now(zero->spans), -1, -1);
    return status;
}

void optim_zero_begin(optim_zero_t *zero)
{
    memset(zero->sent, 0, sizeof zero->sent);
    zero->exposed = zero->travel->total = 0;
    if (zero->experts)
        optim_zero_begin(zero->experts->store);
}

int optim_zero_torn(const optim_zero_t *zero)
{
    return zero->torn;
}

void optim_zero_limit(optim_zero_t *zero, double norm)
{
    zero->limit = norm;
}

void optim_zero_watch(optim_zero_t *zero, model_spans_t *spans)
{
    zero->spans = spans;
    if (zero->experts)
        zero->experts->store->spans = spans;
}

void optim_zero_moved(const optim_zero_t *zero, optim_zero_step_t *step)
{
    step->exposed_s += (double)zero->exposed * 1e-9;
    for (size_t i = 0; i < OPTIM_TRAFFIC_KINDS; i++)
        step->sent[i] += zero->sent[i];
    if (zero->experts)
        optim_zero_moved(zero->experts->store, step);
}

gyre_status_t optim_zero_finish(optim_zero_t *zero, double scale, double rate, optim_zero_step_t *step)
{
    base_range_begin("optimizer", zero->steps);
    gyre_status_t status = finish(zero, scale, rate, step);
    base_range_end();
    if (status != GYRE_OK)
        return status;
    step->exposed_s = zero->plan.config.on_device ? NAN : 0.0;
    memset(step->sent, 0, sizeof step->sent);
    optim_zero_moved(zero, step);
    const double hidden_s = (double)zero->travel->total * 1e-9 - step->exposed_s;
    step->hidden_s = hidden_s < 0.0 ? 0.0 : hidden_s;
    zero_buckets_reset(zero);
    if (zero->experts)
        zero_buckets_reset(zero->experts->store);
    return GYRE_OK;
}
