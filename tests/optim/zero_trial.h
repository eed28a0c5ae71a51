/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/zero_trial.h: ZeRO over data, tensor and pipeline parallelism, with a model whose gradients are
 * pure functions of (row, element, sequence, weight), compared with one process that adds gradients in the
 * tree of the contract. mp_zero.c and mp_zero_drift.c train it. */
#ifndef TESTS_OPTIM_ZERO_TRIAL_H
#define TESTS_OPTIM_ZERO_TRIAL_H

#include <math.h>
#include <string.h>

#include "optim/batch.h"
#include "optim/convert.h"
#include "optim/tree.h"
#include "optim/store/internal.h"
#include "tests/support/mp.h"
#include "tests/support/create.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { STEPS = 3, LAYERS = 4, MAX_ROWS = 80 };
static const model_config_t shape = {
    .vocab = 37, .seq = 6, .layers = LAYERS, .hidden = 16, .heads = 4, .leaves = 4};
/* And with experts, for configs of mp_zero_experts.c and mp_zero_exact.c. */
#define ZERO_MIXTURE                                                                                        \
    .vocab = 37, .seq = 6, .layers = LAYERS, .hidden = 16, .heads = 4, .leaves = 4, .ffn = 8, .experts = 8, \
    .top_k = 2, .no_mlp_bias = 1
static const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
#define CLIP 2.0
#define RATE 0.01
#define SEED 11

/* A layout of the ranks, and what is tried on it. */
typedef struct {
    size_t tp, dp, pp, batch;
    size_t lanes; /* of the batch (optim/batch.h) */
    size_t micro; /* sequences that go through a unit together; 0: 1 */
    optim_zero_config_t zero;
    int chunks;   /* 1: the upper units get all their sequences before the lower ones get any */
    int overflow; /* 1: one gradient of step 1 is infinite */
    int frozen;   /* 1: row 5 is frozen, and no moment can hold some of its gradients */
    int astray;   /* 1: weights are not looked at */
    void (*look)(const optim_zero_t *zero); /* after each step; may be NULL */
} trial_t;

typedef struct {
    gyre_comm_t *world;
    model_params_t *whole, *local;
    size_t rank, ranks;
    size_t tp_rank, dp_rank, pp_rank;
    optim_zero_groups_t groups;
    gyre_comm_t *plane; /* of dp and tp; NULL: one of them is one rank */
    gyre_comm_t *experts_plane;
    size_t share, longest;
    optim_batch_t batch;
    optim_part_t part;
    size_t step;
    /* the serial reference, whole layouts */
    float *w, *m, *v, *seen; /* seen: what the model computes with */
    double norm[STEPS + 1], scale[STEPS + 1];
    int skipped[STEPS + 1];
} job_t;

static inline float noise(size_t row, size_t element, size_t sequence, size_t step)
{
    uint64_t state = row * 1000003 + element * 7919 + sequence * 104729 + step * 15485863;
    random_next(&state);
    return (float)((int64_t)(random_next(&state) >> 40) - (1 << 23)) * 0x1p-26f;
}

/* Gradient of one element for one sequence, as the model would give it under this loss scale. */
static inline float gradient(const trial_t *t, size_t row, size_t element, size_t sequence, size_t step,
                             float weight, double scale)
{
    if (t->overflow && step == 1 && row == 5 && element == 3 && sequence == 1)
        return INFINITY;
    if (t->frozen && row == 5 && element < 3 && sequence == 1)
        return element == 0 ? INFINITY : element == 1 ? NAN : 1e30f;
    return (noise(row, element, sequence, step) + 0.25f * weight) * (float)scale;
}

/* ---- the reference ------------------------------------------------------------------------------------- */

static inline float *zeros(size_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    CHECK(x != NULL);
    return x;
}

static inline void leaf(const job_t *job, const trial_t *t, size_t sequence, double scale, float *out)
{
    for (size_t r = 0; r < job->whole->rows; r++) {
        const model_param_t *row = &job->whole->row[r];
        for (size_t i = 0; i < row->count; i++)
            out[row->grad + i] = gradient(t, r, i, sequence, job->step, job->seen[row->offset + i], scale);
    }
}

static inline void round_all(model_precision_t precision, float *x, size_t n)
{
    uint16_t half;
    for (size_t i = 0; i < n; i++) {
        optim_round(precision, x + i, &half, 1);
        optim_expand(precision, &half, x + i, 1);
    }
}

/* 16-bit gradients are rounded at every node. */
static inline void sum_leaves(const job_t *job, const trial_t *t, size_t first, size_t n, double scale,
                              float *out)
{
    size_t total = job->whole->grad_total;
    if (n == 1) {
        leaf(job, t, first, scale, out);
    } else {
        size_t left = optim_tree_split(n, optim_batch_group(&job->batch));
        float *right = zeros(total);
        sum_leaves(job, t, first, left, scale, out);
        sum_leaves(job, t, first + left, n - left, scale, right);
        for (size_t i = 0; i < total; i++)
            out[i] = out[i] + right[i];
        free(right);
    }
    if (t->zero.grad16)
        round_all(t->zero.precision, out, total);
}

/* The sum of each round, added to those before it. */
static inline void sum_rounds(const job_t *job, const trial_t *t, double scale, float *out)
{
    size_t total = job->whole->grad_total, lanes = optim_batch_lanes(&job->batch);
    float *next = zeros(total);
    for (size_t at = 0; at < t->batch; at += lanes) {
        sum_leaves(job, t, at, lanes, scale, at ? next : out);
        for (size_t i = 0; at > 0 && i < total; i++)
            out[i] = out[i] + next[i];
        if (t->zero.grad16)
            round_all(t->zero.precision, out, total);
    }
    free(next);
}

/* Muon of a whole row by itself (tests/optim/test_muon.c has it against doubles). */
static inline void muon_row(job_t *job, const trial_t *t, const model_param_t *row,
                            const optim_adamw_factors_t *f, const float *grad)
{
    const float momentum = (float)t->zero.momentum;
    float *u = zeros(row->count), *w = job->w + row->offset, *m = job->m + row->offset;
    void *work;
    MP_OK(gyre_mem_alloc(optim_muon_work(&job->whole->config, row) * sizeof *u, &work));
    optim_muon_momentum(momentum, f->scale, m, grad, row->count);
    optim_muon_look_ahead(momentum, f->scale, m, grad, u, row->count);
    optim_muon_direction(&job->whole->config, row, u, work);
    optim_muon_apply(f->keep[1], (float)f->rate, w, u, row->count);
    gyre_mem_free(work);
    free(u);
}

/* The moments of a frozen row, with 0 where they can hold no gradient. */
static inline void frozen_row(job_t *job, const model_param_t *row, const optim_adamw_factors_t *f,
                              float *grad)
{
    float *w = zeros(row->count);
    for (size_t i = 0; i < row->count; i++)
        if (!(fabsf(grad[i] * f->scale) < 1e19f))
            grad[i] = 0.0f;
    optim_adamw_update(f, row->decay, w, job->m + row->offset, job->v + row->offset, grad, row->count);
    free(w);
}

static inline void compute_reference(job_t *job, const trial_t *t, optim_scaler_t *scaler, uint64_t *steps)
{
    const optim_scaler_config_t config = optim_scaler_complete(&t->zero.scaler);
    double scale = t->zero.precision == MODEL_FLOAT16 ? scaler->scale : 1.0;
    size_t total = job->whole->grad_total;
    float *grad = zeros(total);
    sum_rounds(job, t, scale, grad);
    size_t head = model_params_find(job->whole, MODEL_HEAD, 0),
           wte = model_params_find(job->whole, MODEL_WTE, 0);
    const model_param_t *h = &job->whole->row[head], *e = &job->whole->row[wte];
    for (size_t i = 0; h->twin && i < h->count; i++)
        grad[e->grad + i] = grad[h->grad + i] + grad[e->grad + i];
    if (t->zero.grad16)
        round_all(t->zero.precision, grad, total);
    gyre_exact_t *exact = NULL;
    double squares = 0;
    MP_OK(gyre_exact_create(&exact));
    for (size_t r = 0; r < job->whole->rows; r++)
        if (job->whole->row[r].alias == MODEL_NONE && !job->whole->row[r].frozen)
            MP_OK(gyre_exact_add_norm2(exact, grad + job->whole->row[r].grad, job->whole->row[r].count,
                                       GYRE_FLOAT32));
    MP_OK(gyre_exact_value(exact, &squares));
    MP_OK(gyre_exact_destroy(exact));
    double factor = 1.0 / (double)t->batch / scale, norm = sqrt(squares) * factor;
    job->norm[job->step] = norm;
    job->scale[job->step] = scale;
    job->skipped[job->step] = !isfinite(norm);
    if (isfinite(norm)) {
        const optim_adamw_factors_t f =
            optim_adamw_factors(&how, ++*steps, (float)(factor * optim_clip_factor(norm, CLIP)), RATE);
        for (size_t r = 0; r < job->whole->rows; r++) {
            const model_param_t *row = &job->whole->row[r];
            if (t->zero.muon && optim_muon_takes(row))
                muon_row(job, t, row, &f, grad + row->grad);
            else if (row->frozen)
                frozen_row(job, row, &f, grad + row->grad);
            else if (row->alias == MODEL_NONE)
                optim_adamw_update(&f, row->decay, job->w + row->offset, job->m + row->offset,
                                   job->v + row->offset, grad + row->grad, row->count);
        }
    }
    if (t->zero.precision == MODEL_FLOAT16)
        optim_scaler_update(scaler, &config, job->skipped[job->step]);
    free(grad);
}

/* Rank 0 computes it, which takes longer than the step of all ranks together. */
static inline void reference_step(job_t *job, const trial_t *t, optim_scaler_t *scaler, uint64_t *steps)
{
    float *const arrays[] = {job->w, job->m, job->v};
    if (job->rank == 0)
        compute_reference(job, t, scaler, steps);
    mp_wait_for_0(job->world);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        MP_OK(gyre_broadcast(arrays[i], arrays[i], job->whole->total, GYRE_FLOAT32, 0, job->world));
    struct {
        double norm, scale;
        uint64_t steps;
        optim_scaler_t scaler;
        int skipped;
    } told = {job->norm[job->step], job->scale[job->step], *steps, *scaler, job->skipped[job->step]};
    MP_OK(gyre_broadcast(&told, &told, sizeof told, GYRE_UINT8, 0, job->world));
    job->norm[job->step] = told.norm;
    job->scale[job->step] = told.scale;
    job->skipped[job->step] = told.skipped;
    *steps = told.steps;
    *scaler = told.scaler;
    memcpy(job->seen, job->w, job->whole->total * sizeof(float));
    if (t->zero.precision != MODEL_FLOAT32)
        round_all(t->zero.precision, job->seen, job->whole->total);
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static inline void unit_of(const model_params_t *p, size_t row, size_t *begin, size_t *end)
{
    for (*begin = row; *begin > 0 && p->row[*begin - 1].layer == p->row[row].layer;)
        --*begin;
    for (*end = row + 1; *end < p->rows && p->row[*end].layer == p->row[row].layer;)
        ++*end;
}

static inline void check_weights(const job_t *job, size_t begin, size_t end, const float *const *value)
{
    for (size_t r = begin; r < end; r++) {
        const model_param_t *row = &job->local->row[r];
        const float *want = job->seen + job->whole->row[row->global].offset + row->first;
        CHECK(memcmp(value[r - begin], want, row->count * sizeof(float)) == 0);
    }
}

static inline size_t micro_of(const trial_t *t)
{
    return t->micro ? t->micro : 1;
}

static inline size_t sharing_of(const trial_t *t)
{
    return t->zero.ep ? t->zero.ep : 1;
}

/* The gradient of rows of one unit for one sequence of this rank; of experts' rows for that of rank `origin`
 * of those that share them. */
static inline void make_gradient(job_t *job, const trial_t *t, const model_store_t_f32 *store, size_t begin,
                                 size_t end, size_t sequence, const float *const *value, double scale,
                                 size_t origin)
{
    float *grad[MAX_ROWS];
    const size_t ep = sharing_of(t);
    const optim_part_t other =
        optim_batch_part(&job->batch, t->dp, job->dp_rank / ep * ep + origin, t->zero.stage > 0);
    MP_OK(store->place(store->user, sequence % 2, begin, end - begin, grad));
    for (size_t r = begin; r < end; r++) {
        const int expert = ep > 1 && model_kind_of_experts(job->local->row[r].kind);
        const size_t index = optim_part_index(expert ? &other : &job->part, sequence);
        const model_param_t *row = &job->local->row[r];
        const float *w = job->seen + job->whole->row[row->global].offset + row->first;
        for (size_t i = 0; i < row->count; i++)
            grad[r - begin][i] = gradient(t, row->global, row->first + i, index, job->step,
                                          value ? value[r - begin][i] : w[i], scale);
    }
    MP_OK(store->ready(store->user, sequence % 2, begin, end - begin));
}

/* A device's store as a host's, with copies: the model's arithmetic above is the host's. */
typedef struct {
    optim_zero_t *zero;
    const model_params_t *params;
    float *value[MAX_ROWS], *grad[MAX_ROWS], *there[MAX_ROWS];
} mirror_t;

static inline gyre_status_t mirror_acquire(void *user, size_t first, size_t rows, size_t next_first,
                                           size_t next_rows, const float **value)
{
    mirror_t *mirror = user;
    optim_zero_t *zero = mirror->zero;
    const model_cuda_store_t *store = optim_zero_cuda_store(zero);
    const void *there[MAX_ROWS];
    gyre_status_t status = store->acquire(store->user, first, rows, next_first, next_rows, there);
    for (size_t i = 0; status == GYRE_OK && i < rows; i++) {
        size_t n = mirror->params->row[first + i].count;
        uint16_t *half = calloc(n, sizeof *half);
        CHECK(half != NULL);
        free(mirror->value[first + i]);
        mirror->value[first + i] = zeros(n);
        value[i] = mirror->value[first + i];
        if (zero_half(zero)) {
            status = zero->on->read(zero, half, there[i], n * sizeof *half);
            optim_expand(zero->plan.config.precision, half, mirror->value[first + i], n);
        } else {
            status = zero->on->read(zero, mirror->value[first + i], there[i], n * sizeof(float));
        }
        free(half);
    }
    return status;
}

static inline void mirror_release(void *user, size_t first, size_t rows)
{
    mirror_t *mirror = user;
    const model_cuda_store_t *store = optim_zero_cuda_store(mirror->zero);
    store->release(store->user, first, rows);
}

static inline gyre_status_t mirror_place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    mirror_t *mirror = user;
    const model_cuda_store_t *store = optim_zero_cuda_store(mirror->zero);
    gyre_status_t status = store->place(store->user, slot, first, rows, mirror->there + first);
    for (size_t i = 0; i < rows; i++) {
        free(mirror->grad[first + i]);
        grad[i] = mirror->grad[first + i] = zeros(mirror->params->row[first + i].count);
    }
    return status;
}

static inline gyre_status_t mirror_ready(void *user, size_t slot, size_t first, size_t rows)
{
    mirror_t *mirror = user;
    const model_cuda_store_t *store = optim_zero_cuda_store(mirror->zero);
    gyre_status_t status = GYRE_OK;
    for (size_t r = first; status == GYRE_OK && r < first + rows; r++)
        status = mirror->zero->on->write(mirror->zero, mirror->there[r], mirror->grad[r],
                                         mirror->params->row[r].count * sizeof(float));
    return status == GYRE_OK ? store->ready(store->user, slot, first, rows) : status;
}

/* Where the trial's model finds its weights; lives until the next call. */
static inline const model_store_t_f32 *store_of(const job_t *job, optim_zero_t *zero)
{
    static mirror_t mirror;
    static model_store_t_f32 store;
    if (!zero->device)
        return optim_zero_store(zero);
    mirror.zero = zero;
    mirror.params = job->local;
    store = (model_store_t_f32){mirror_acquire, mirror_release, mirror_place, mirror_ready, &mirror};
    return &store;
}

/* Rows [first, end), a stage's, sequences [from, to): forward from below, or backward from above, unit by
 * unit. */
static inline void run_pass(job_t *job, const trial_t *t, const model_store_t_f32 *store, size_t first,
                            size_t last, size_t from, size_t to, int backward, double scale)
{
    const float *value[MAX_ROWS];
    const model_params_t *p = job->local;
    for (size_t at = backward ? first : last; backward ? at < last : at > first;) {
        size_t begin, end, next_begin = 0, next_end = 0;
        unit_of(p, backward ? at : at - 1, &begin, &end);
        at = backward ? end : begin;
        if (backward ? end < last : begin > first)
            unit_of(p, backward ? end : begin - 1, &next_begin, &next_end);
        if (backward && p->row[next_begin].layer < 0)
            next_end = next_begin;
        int weights = !backward || p->row[begin].layer >= 0;
        if (weights) {
            MP_OK(store->acquire(store->user, begin, end - begin, next_begin, next_end - next_begin, value));
            if (!t->astray)
                check_weights(job, begin, end, value);
        }
        size_t expert = begin, experts = begin; /* rows of experts, which stand together */
        for (size_t r = end; r-- > begin && sharing_of(t) > 1;)
            if (model_kind_of_experts(p->row[r].kind)) {
                expert = r;
                experts = experts > begin ? experts : r + 1;
            }
        for (size_t i = from; backward && i < to; i++) {
            make_gradient(job, t, store, begin, end, i, weights ? value : NULL, scale, 0);
            for (size_t origin = 1; expert < experts && origin < sharing_of(t); origin++)
                make_gradient(job, t, store, expert, experts, i, value + (expert - begin), scale, origin);
        }
        if (weights)
            store->release(store->user, begin, end - begin);
    }
}

static inline void run_stage(job_t *job, const trial_t *t, optim_zero_t *zero, size_t first, size_t end)
{
    size_t idle = job->longest - job->share, micro = micro_of(t);
    for (size_t i = 0; i < job->longest; i += micro)
        for (int backward = 0; backward < 2; backward++) {
            size_t from = i > idle ? i - idle : 0, to = i + micro > idle ? i + micro - idle : 0;
            to = to < job->share ? to : job->share;
            if (from >= to)
                MP_OK(optim_zero_idle(zero, first, end - first, (optim_pass_t)backward));
            else
                run_pass(job, t, store_of(job, zero), first, end, from, to, backward,
                         optim_zero_loss_scale(zero));
        }
}

static inline gyre_status_t try_step(job_t *job, const trial_t *t, optim_zero_t *zero,
                                     optim_zero_step_t *step)
{
    size_t rows = job->local->rows, half = 0, end;
    for (size_t r = 0; t->chunks && r < rows / 2; r = half)
        unit_of(job->local, r, &end, &half);
    if (half > 0)
        run_stage(job, t, zero, 0, half);
    run_stage(job, t, zero, half, rows);
    double loss =
        1.0; /* as callers do before they end the step: nobody is held up by a rank without a sequence */
    MP_OK(gyre_all_reduce(&loss, &loss, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), job->world));
    return optim_zero_finish(zero, 1.0 / (double)t->batch, RATE, step);
}

/* What a step says of its time is there: when it moved gradients and weights, the norm, the update. What
 * travels does so once at a time, and hides no longer than that. */
static inline void run_step(job_t *job, const trial_t *t, optim_zero_t *zero, optim_zero_step_t *step)
{
    enum { ROOM = 4096 };
    static model_span_t span[ROOM];
    model_spans_t spans = {.span = span, .room = ROOM};
    base_time_t exposed = 0, updated = 0, travels = 0, arrived = 0, now = base_now();
    optim_zero_watch(zero, &spans);
    MP_OK(try_step(job, t, zero, step));
    optim_zero_watch(zero, NULL);
    CHECK(spans.count > 0 && spans.dropped == 0);
    for (size_t i = 0; i < spans.count; i++) {
        CHECK(span[i].start >= now && span[i].end >= span[i].start);
        int moves = span[i].kind == MODEL_SPAN_REDUCE || span[i].kind == MODEL_SPAN_GATHER;
        exposed += moves ? span[i].end - span[i].start : 0;
        updated += span[i].kind == MODEL_SPAN_OPTIMISER;
        if (span[i].kind == MODEL_SPAN_TRAVEL) {
            CHECK(span[i].start >= arrived);
            arrived = span[i].end;
            travels += span[i].end - span[i].start;
        }
    }
    CHECK(updated == 2);
    CHECK(t->zero.on_device || step->hidden_s <= (double)travels * 1e-9); /* a device does not say: NAN */
    CHECK(exposed > 0 || !job->groups.dp);
}

/* ---- layouts ------------------------------------------------------------------------------------------- */

static inline gyre_comm_t *split(job_t *job, size_t size, size_t color)
{
    gyre_comm_t *comm = NULL;
    MP_OK(gyre_comm_split(job->world, size > 1 ? (int)color : -1, (int)job->rank, &comm));
    return comm;
}

static inline gyre_comm_t *split_by(job_t *job, size_t color, size_t key)
{
    gyre_comm_t *comm = NULL;
    MP_OK(gyre_comm_split(job->world, (int)color, (int)key, &comm));
    return comm;
}

/* Which sequences are this rank's: the stage says where it reduces. */
static inline void take_part(job_t *job, const trial_t *t)
{
    job->part = optim_batch_part(&job->batch, t->dp, job->dp_rank, t->zero.stage > 0);
    job->share = job->part.count;
}

static inline void begin_layout(job_t *job, const trial_t *t)
{
    CHECK(t->tp * t->dp * t->pp == job->ranks);
    job->tp_rank = job->rank % t->tp;
    job->dp_rank = job->rank / t->tp % t->dp;
    job->pp_rank = job->rank / t->tp / t->dp;
    unsigned char has[LAYERS];
    job->whole->row[5].frozen = t->frozen;
    for (size_t l = 0; l < LAYERS; l++)
        has[l] = l * t->pp / LAYERS == job->pp_rank;
    const model_slice_t slice = {.tp_rank = job->tp_rank,
                                 .tp_size = t->tp,
                                 .has = has,
                                 .embed = job->pp_rank == 0,
                                 .head = job->pp_rank + 1 == t->pp,
                                 .ep_rank = job->dp_rank % sharing_of(t),
                                 .ep_size = sharing_of(t)};
    MP_OK(model_params_slice(job->whole, &slice, &job->local));
    CHECK(job->local->rows <= MAX_ROWS);
    job->groups = (optim_zero_groups_t){.world = job->world};
    job->groups.dp = split(job, t->dp, job->tp_rank + t->tp * job->pp_rank);
    job->groups.edp =
        sharing_of(t) > 1
            ? split(job, t->dp / sharing_of(t),
                    job->tp_rank + t->tp * (job->dp_rank % sharing_of(t) + sharing_of(t) * job->pp_rank))
            : NULL;
    job->experts_plane =
        t->zero.muon && sharing_of(t) > 1 && t->tp > 1
            ? split_by(job, job->pp_rank,
                       (job->dp_rank / sharing_of(t) * t->tp + job->tp_rank) * sharing_of(t) +
                           job->dp_rank % sharing_of(t))
            : NULL;
    job->groups.experts_plane = job->experts_plane ? job->experts_plane : job->groups.dp;
    job->groups.tp = split(job, t->tp, job->dp_rank + t->dp * job->pp_rank);
    if (t->tp > 1 && t->dp > 1)
        job->plane = split(job, t->tp * t->dp, job->pp_rank);
    job->groups.plane = job->plane ? job->plane : t->tp > 1 ? job->groups.tp : job->groups.dp;
    job->groups.tied = split(job, t->pp, job->tp_rank + t->tp * job->dp_rank); /* of two stages: all of pp */
    CHECK(t->pp <= 2);
    const optim_batch_t batch = {.batch = t->batch, .lanes = t->lanes};
    job->batch = optim_batch_complete(&batch);
    job->longest = 0;
    for (size_t d = 0; d < t->dp; d++) {
        size_t first, share;
        optim_batch_share(&job->batch, t->dp, d, &first, &share);
        job->longest = share > job->longest ? share : job->longest;
    }
    take_part(job, t);
}

static inline void end_layout(job_t *job)
{
    gyre_comm_destroy(job->groups.dp);
    gyre_comm_destroy(job->groups.edp);
    gyre_comm_destroy(job->groups.tp);
    gyre_comm_destroy(job->groups.tied);
    gyre_comm_destroy(job->plane);
    gyre_comm_destroy(job->experts_plane);
    job->plane = job->experts_plane = NULL;
    model_params_destroy(job->local);
}

static inline optim_zero_t *make(job_t *job, const trial_t *t)
{
    optim_zero_config_t config = t->zero;
    optim_zero_t *zero = NULL;
    take_part(job, t);
    optim_zero_share(&config, &job->batch, &job->part);
    config.adamw = how;
    config.clip = CLIP;
    MP_OK(create_zero(job->local, &job->groups, &config, &zero));
    return zero;
}

/* The job's model and room for the reference. */
static inline void begin_job_of(job_t *job, const model_config_t *config)
{
    *job = (job_t){0};
    MP_OK(gyre_init(NULL, &job->world));
    job->rank = (size_t)gyre_comm_rank(job->world);
    job->ranks = (size_t)gyre_comm_size(job->world);
    MP_OK(model_params_create(config, &job->whole));
    job->w = zeros(job->whole->total);
    job->m = zeros(job->whole->total);
    job->v = zeros(job->whole->total);
    job->seen = zeros(job->whole->total);
}

static inline void begin_job(job_t *job)
{
    begin_job_of(job, &shape);
}

static inline void end_job(job_t *job)
{
    model_params_destroy(job->whole);
    free(job->w);
    free(job->m);
    free(job->v);
    free(job->seen);
    MP_OK(gyre_finalize(job->world));
}

#endif
