/* ranks: 1 2 3 4 */
/* tests/optim/mp_zero.c: ZeRO stages 0 to 3 over data, tensor and pipeline parallelism, with a model whose gradients are pure
 * functions of (row, element, sequence, weight): weights and norms are, to the bit, those of one process that adds
 * gradients in the tree of the contract; memory and traffic are what the formulas say. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "optim/batch.h"
#include "optim/convert.h"
#include "optim/exact.h"
#include "optim/tree.h"
#include "optim/zero_internal.h"
#include "tests/support/mp.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { STEPS = 3, LAYERS = 4, MAX_ROWS = 80 };
static const model_config_t shape = {
    .vocab = 37, .seq = 6, .layers = LAYERS, .hidden = 16, .heads = 4, .leaves = 4};
static const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
#define CLIP 2.0
#define RATE 0.01
#define SEED 11

/* A layout of the ranks, and what is tried on it. */
typedef struct {
    size_t tp, dp, pp, batch;
    size_t micro; /* sequences that go through a unit together; 0: 1 */
    optim_zero_config_t zero;
    int chunks;    /* 1: the upper units get all their sequences before the lower ones get any */
    int overflow;  /* 1: one gradient of step 1 is infinite */
    int idle_last; /* 1: ranks with fewer sequences are idle in the last ones, not in the first */
    int astray;    /* 1: weights are not looked at */
} trial_t;

typedef struct {
    gyre_comm_t *world;
    model_params_t *whole, *local;
    size_t rank, ranks;
    size_t tp_rank, dp_rank, pp_rank;
    optim_zero_groups_t groups;
    size_t first, share, longest;
    optim_batch_t batch;
    size_t step;
    /* the serial reference, whole layouts */
    float *w, *m, *v, *seen; /* seen: what the model computes with */
    double norm[STEPS + 1], scale[STEPS + 1];
    int skipped[STEPS + 1];
} job_t;

static float noise(size_t row, size_t element, size_t sequence, size_t step)
{
    uint64_t state = row * 1000003 + element * 7919 + sequence * 104729 + step * 15485863;
    mp_next(&state);
    return (float)((int64_t)(mp_next(&state) >> 40) - (1 << 23)) * 0x1p-26f;
}

/* Gradient of one element for one sequence, as the model would give it under this loss scale. */
static float gradient(const trial_t *t, size_t row, size_t element, size_t sequence, size_t step,
                      float weight, double scale)
{
    if (t->overflow && step == 1 && row == 5 && element == 3 && sequence == 1)
        return INFINITY;
    return (noise(row, element, sequence, step) + 0.25f * weight) * (float)scale;
}

/* ---- the reference ------------------------------------------------------------------------------------------------------------ */

static float *zeros(size_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    CHECK(x != NULL);
    return x;
}

static void leaf(const job_t *job, const trial_t *t, size_t sequence, double scale, float *out)
{
    for (size_t r = 0; r < job->whole->rows; r++) {
        const model_param_t *row = &job->whole->row[r];
        for (size_t i = 0; i < row->count; i++)
            out[row->grad + i] = gradient(t, r, i, sequence, job->step, job->seen[row->offset + i], scale);
    }
}

static void round_all(model_precision_t precision, float *x, size_t n)
{
    uint16_t half;
    for (size_t i = 0; i < n; i++) {
        optim_round(precision, x + i, &half, 1);
        optim_expand(precision, &half, x + i, 1);
    }
}

/* 16-bit gradients are rounded at every node. */
static void sum_leaves(const job_t *job, const trial_t *t, size_t first, size_t n, double scale, float *out)
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

static void reference_step(job_t *job, const trial_t *t, optim_scaler_t *scaler, uint64_t *steps)
{
    const optim_scaler_config_t config = optim_scaler_complete(&t->zero.scaler);
    double scale = t->zero.precision == MODEL_FLOAT16 ? scaler->scale : 1.0;
    size_t total = job->whole->grad_total;
    float *grad = zeros(total);
    sum_leaves(job, t, 0, t->batch, scale, grad);
    size_t head = model_params_find(job->whole, MODEL_HEAD, 0),
           wte = model_params_find(job->whole, MODEL_WTE, 0);
    const model_param_t *h = &job->whole->row[head], *e = &job->whole->row[wte];
    for (size_t i = 0; h->twin && i < h->count; i++)
        grad[e->grad + i] = grad[h->grad + i] + grad[e->grad + i];
    if (t->zero.grad16)
        round_all(t->zero.precision, grad, total);
    optim_exact_t exact;
    optim_exact_begin(&exact);
    for (size_t r = 0; r < job->whole->rows; r++)
        if (job->whole->row[r].alias == MODEL_NONE)
            optim_exact_add(&exact, grad + job->whole->row[r].grad, job->whole->row[r].count);
    optim_exact_close(&exact);
    double factor = 1.0 / (double)t->batch / scale, norm = sqrt(optim_exact_value(exact.word)) * factor;
    job->norm[job->step] = norm;
    job->scale[job->step] = scale;
    job->skipped[job->step] = !isfinite(norm);
    if (isfinite(norm)) {
        const optim_adamw_factors_t f =
            optim_adamw_factors(&how, ++*steps, (float)(factor * optim_clip_factor(norm, CLIP)), RATE);
        for (size_t r = 0; r < job->whole->rows; r++) {
            const model_param_t *row = &job->whole->row[r];
            if (row->alias == MODEL_NONE)
                optim_adamw_update(&f, row->decay, job->w + row->offset, job->m + row->offset,
                                   job->v + row->offset, grad + row->grad, row->count);
        }
    }
    if (t->zero.precision == MODEL_FLOAT16)
        optim_scaler_update(scaler, &config, job->skipped[job->step]);
    memcpy(job->seen, job->w, job->whole->total * sizeof(float));
    if (t->zero.precision != MODEL_FLOAT32)
        round_all(t->zero.precision, job->seen, job->whole->total);
    free(grad);
}

/* ---- the model ------------------------------------------------------------------------------------------------------------------ */

static void unit_of(const model_params_t *p, size_t row, size_t *begin, size_t *end)
{
    for (*begin = row; *begin > 0 && p->row[*begin - 1].layer == p->row[row].layer;)
        --*begin;
    for (*end = row + 1; *end < p->rows && p->row[*end].layer == p->row[row].layer;)
        ++*end;
}

static void check_weights(const job_t *job, size_t begin, size_t end, const float *const *value)
{
    for (size_t r = begin; r < end; r++) {
        const model_param_t *row = &job->local->row[r];
        const float *want = job->seen + job->whole->row[row->global].offset + row->first;
        CHECK(memcmp(value[r - begin], want, row->count * sizeof(float)) == 0);
    }
}

static size_t micro_of(const trial_t *t)
{
    return t->micro ? t->micro : 1;
}

/* The gradient of one unit for one sequence. */
static void make_gradient(job_t *job, const trial_t *t, const model_store_t_f32 *store, size_t begin,
                          size_t end, size_t sequence, const float *const *value, double scale)
{
    float *grad[MAX_ROWS];
    MP_OK(store->place(store->user, sequence % 2, begin, end - begin, grad));
    for (size_t r = begin; r < end; r++) {
        const model_param_t *row = &job->local->row[r];
        const float *w = job->seen + job->whole->row[row->global].offset + row->first;
        for (size_t i = 0; i < row->count; i++)
            grad[r - begin][i] = gradient(t, row->global, row->first + i, job->first + sequence, job->step,
                                          value ? value[r - begin][i] : w[i], scale);
    }
    MP_OK(store->ready(store->user, sequence % 2, begin, end - begin));
}

/* Rows [first, end), a stage's, sequences [from, to): forward from below, or backward from above, unit by unit. */
static void run_pass(job_t *job, const trial_t *t, const model_store_t_f32 *store, size_t first, size_t last,
                     size_t from, size_t to, int backward, double scale)
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
        for (size_t i = from; backward && i < to; i++)
            make_gradient(job, t, store, begin, end, i, weights ? value : NULL, scale);
        if (weights)
            store->release(store->user, begin, end - begin);
    }
}

static void run_stage(job_t *job, const trial_t *t, optim_zero_t *zero, size_t first, size_t end)
{
    size_t idle = t->idle_last ? 0 : job->longest - job->share, micro = micro_of(t);
    for (size_t i = 0; i < job->longest; i += micro)
        for (int backward = 0; backward < 2; backward++) {
            size_t from = i > idle ? i - idle : 0, to = i + micro > idle ? i + micro - idle : 0;
            to = to < job->share ? to : job->share;
            if (from >= to)
                MP_OK(optim_zero_idle(zero, first, end - first, (optim_pass_t)backward));
            else
                run_pass(job, t, optim_zero_store(zero), first, end, from, to, backward,
                         optim_zero_loss_scale(zero));
        }
}

static gyre_status_t try_step(job_t *job, const trial_t *t, optim_zero_t *zero, optim_zero_step_t *step)
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

/* What a step says of its time is there: when it moved gradients and weights, the norm, the update. */
static void run_step(job_t *job, const trial_t *t, optim_zero_t *zero, optim_zero_step_t *step)
{
    enum { ROOM = 4096 };
    static model_span_t span[ROOM];
    model_spans_t spans = {.span = span, .room = ROOM};
    base_time_t exposed = 0, updated = 0, now = base_now();
    optim_zero_watch(zero, &spans);
    MP_OK(try_step(job, t, zero, step));
    optim_zero_watch(zero, NULL);
    CHECK(spans.count > 0 && spans.dropped == 0);
    for (size_t i = 0; i < spans.count; i++) {
        CHECK(span[i].start >= now && span[i].end >= span[i].start);
        int moves = span[i].kind == MODEL_SPAN_REDUCE || span[i].kind == MODEL_SPAN_GATHER;
        exposed += moves ? span[i].end - span[i].start : 0;
        updated += span[i].kind == MODEL_SPAN_OPTIMISER;
    }
    CHECK(updated == 2);
    CHECK(exposed > 0 || !job->groups.dp);
}

/* ---- layouts -------------------------------------------------------------------------------------------------------------------- */

static gyre_comm_t *split(job_t *job, size_t size, size_t color)
{
    gyre_comm_t *comm = NULL;
    MP_OK(gyre_comm_split(job->world, size > 1 ? (int)color : -1, (int)job->rank, &comm));
    return comm;
}

static void begin_layout(job_t *job, const trial_t *t)
{
    CHECK(t->tp * t->dp * t->pp == job->ranks);
    job->tp_rank = job->rank % t->tp;
    job->dp_rank = job->rank / t->tp % t->dp;
    job->pp_rank = job->rank / t->tp / t->dp;
    unsigned char has[LAYERS];
    for (size_t l = 0; l < LAYERS; l++)
        has[l] = l * t->pp / LAYERS == job->pp_rank;
    const model_slice_t slice = {.tp_rank = job->tp_rank,
                                 .tp_size = t->tp,
                                 .has = has,
                                 .embed = job->pp_rank == 0,
                                 .head = job->pp_rank + 1 == t->pp};
    MP_OK(model_params_slice(job->whole, &slice, &job->local));
    CHECK(job->local->rows <= MAX_ROWS);
    job->groups = (optim_zero_groups_t){.world = job->world};
    job->groups.dp = split(job, t->dp, job->tp_rank + t->tp * job->pp_rank);
    job->groups.tp = split(job, t->tp, job->dp_rank + t->dp * job->pp_rank);
    job->groups.tied = split(job, t->pp, job->tp_rank + t->tp * job->dp_rank); /* of two stages: all of pp */
    CHECK(t->pp <= 2);
    const optim_batch_t batch = {.batch = t->batch};
    job->batch = optim_batch_complete(&batch);
    job->longest = 0;
    for (size_t d = 0; d < t->dp; d++) {
        size_t first, share;
        optim_batch_share(&job->batch, t->dp, d, &first, &share);
        job->longest = share > job->longest ? share : job->longest;
    }
    optim_batch_share(&job->batch, t->dp, job->dp_rank, &job->first, &job->share);
}

static void end_layout(job_t *job)
{
    gyre_comm_destroy(job->groups.dp);
    gyre_comm_destroy(job->groups.tp);
    gyre_comm_destroy(job->groups.tied);
    model_params_destroy(job->local);
}

static optim_zero_t *make(job_t *job, const trial_t *t)
{
    optim_zero_config_t config = t->zero;
    optim_zero_t *zero = NULL;
    config.share = job->share;
    config.group = optim_batch_group(&job->batch);
    config.adamw = how;
    config.clip = CLIP;
    MP_OK(optim_zero_create(job->local, &job->groups, &config, &zero));
    return zero;
}

/* ---- checks --------------------------------------------------------------------------------------------------------------------- */

static void check_formulas(const job_t *job, const trial_t *t, const optim_zero_t *zero,
                           const optim_zero_step_t *step)
{
    size_t want[OPTIM_MEMORY_KINDS], got[OPTIM_MEMORY_KINDS];
    uint64_t sent[OPTIM_TRAFFIC_KINDS];
    optim_zero_config_t config = t->zero;
    config.share = job->share;
    config.group = optim_batch_group(&job->batch);
    size_t passes = (job->longest + micro_of(t) - 1) / micro_of(t);
    MP_OK(optim_zero_predict(job->local, &config, t->dp, job->dp_rank, passes, passes, want, sent));
    optim_zero_memory(zero, got);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        MP_CHECK(got[k] == want[k] || ((t->chunks || job->share < job->longest) && k == OPTIM_MEMORY_BUCKETS),
                 "%s: %zu bytes, the formula says %zu", optim_memory_name((optim_memory_t)k), got[k],
                 want[k]);
    for (int k = 0; k < OPTIM_TRAFFIC_KINDS; k++)
        MP_CHECK(step->sent[k] == (step->skipped && k == OPTIM_TRAFFIC_ALL_GATHER ? 0 : sent[k]),
                 "%s: %llu elements, the formula says %llu", optim_traffic_name((optim_traffic_t)k),
                 (unsigned long long)step->sent[k], (unsigned long long)sent[k]);
}

static void check_rows(job_t *job, optim_zero_t *zero)
{
    float *row = zeros(job->whole->total);
    for (size_t r = 0; r < job->whole->rows; r++) {
        MP_OK(optim_zero_gather_row(zero, job->whole, r, job->rank == 0 ? row : NULL));
        if (job->rank == 0)
            CHECK(memcmp(row, job->w + job->whole->row[r].offset, job->whole->row[r].count * sizeof(float)) ==
                  0);
    }
    free(row);
}

/* Elements that check_rows asks a rank for: the head's, too, which are the embedding's. */
typedef struct {
    const model_params_t *whole;
    uint64_t elements;
} asked_t;

static gyre_status_t ask_range(void *user, const optim_zero_range_t *range)
{
    asked_t *asked = user;
    asked->elements += range->count * (asked->whole->row[range->global].twin ? 2 : 1);
    return GYRE_OK;
}

/* All rows from a file: each rank reads its master weights, once, and no moments. */
static void check_file(job_t *job, optim_zero_t *zero)
{
    asked_t asked = {.whole = job->whole};
    uint64_t before = zero->file_read;
    MP_OK(optim_zero_state(zero, OPTIM_STATE_LISTED, ask_range, &asked));
    check_rows(job, zero);
    uint64_t want = zero_half(zero) && zero->file >= 0 ? asked.elements * sizeof(float) : 0;
    MP_CHECK(zero->file_read - before == want, "%llu bytes read, not %llu",
             (unsigned long long)(zero->file_read - before), (unsigned long long)want);
}

/* A checkpoint as bits: three arrays of the whole, and how often each element was visited. */
typedef struct {
    const job_t *job;
    uint32_t *part[4]; /* [total] */
} dump_t;

static gyre_status_t dump_range(void *user, const optim_zero_range_t *range)
{
    dump_t *dump = user;
    size_t at = dump->job->whole->row[range->global].offset + range->first;
    memcpy(dump->part[0] + at, range->weight, range->count * sizeof(float));
    memcpy(dump->part[1] + at, range->exp_avg, range->count * sizeof(float));
    memcpy(dump->part[2] + at, range->exp_avg_sq, range->count * sizeof(float));
    for (size_t i = 0; i < range->count; i++)
        dump->part[3][at + i]++;
    return GYRE_OK;
}

static gyre_status_t load_range(void *user, const optim_zero_range_t *range)
{
    const dump_t *dump = user;
    size_t at = dump->job->whole->row[range->global].offset + range->first;
    memcpy(range->weight, dump->part[0] + at, range->count * sizeof(float));
    memcpy(range->exp_avg, dump->part[1] + at, range->count * sizeof(float));
    memcpy(range->exp_avg_sq, dump->part[2] + at, range->count * sizeof(float));
    return GYRE_OK;
}

static gyre_status_t list_range(void *user, const optim_zero_range_t *range)
{
    CHECK(!range->weight && !range->exp_avg && !range->exp_avg_sq);
    *(uint64_t *)user += range->count;
    return GYRE_OK;
}

static void dump_state(job_t *job, optim_zero_t *zero, dump_t *dump)
{
    size_t total = job->whole->total;
    dump->job = job;
    for (int i = 0; i < 4; i++)
        CHECK((dump->part[i] = calloc(total, sizeof(uint32_t))) != NULL);
    uint64_t listed = 0, owned = 0;
    MP_OK(optim_zero_state(zero, OPTIM_STATE_OWNED, dump_range, dump));
    MP_OK(optim_zero_state(zero, OPTIM_STATE_LISTED, list_range, &listed));
    for (size_t i = 0; i < total; i++)
        owned += dump->part[3][i] == 1;
    CHECK(listed == owned);
    for (int i = 0; i < 4; i++)
        MP_OK(
            gyre_all_reduce(dump->part[i], dump->part[i], total, GYRE_UINT32, GYRE_OP(GYRE_SUM), job->world));
    CHECK(memcmp(dump->part[0], job->w, total * sizeof(float)) == 0);
    CHECK(memcmp(dump->part[1], job->m, total * sizeof(float)) == 0);
    CHECK(memcmp(dump->part[2], job->v, total * sizeof(float)) == 0);
    for (size_t i = 0; i < total; i++)
        CHECK(dump->part[3][i] == 1);
}

static void free_dump(dump_t *dump)
{
    for (int i = 0; i < 4; i++)
        free(dump->part[i]);
}

static void begin_reference(job_t *job, const trial_t *t, optim_scaler_t *scaler)
{
    const optim_scaler_config_t config = optim_scaler_complete(&t->zero.scaler);
    size_t total = job->whole->total;
    optim_scaler_begin(scaler, &config);
    model_params_init(job->whole, SEED, job->w);
    memset(job->m, 0, total * sizeof(float));
    memset(job->v, 0, total * sizeof(float));
    memcpy(job->seen, job->w, total * sizeof(float));
    if (t->zero.precision != MODEL_FLOAT32)
        round_all(t->zero.precision, job->seen, total);
}

static void check_step(const job_t *job, const optim_zero_step_t *step)
{
    double want = job->norm[job->step];
    MP_CHECK(step->skipped == job->skipped[job->step], "step %zu", job->step);
    MP_CHECK(memcmp(&step->norm, &want, sizeof want) == 0 || (isnan(want) && isnan(step->norm)),
             "step %zu: norm %.17g, reference %.17g", job->step, step->norm, want);
}

/* Three steps, a checkpoint, and a fourth in an object with another stage that has loaded it. */
static uint64_t train(job_t *job, const trial_t *t)
{
    optim_scaler_t scaler;
    uint64_t steps = 0, digest = 0;
    dump_t dump;
    optim_zero_step_t step;
    begin_layout(job, t);
    begin_reference(job, t, &scaler);
    optim_zero_t *zero = make(job, t);
    MP_OK(optim_zero_init(zero, SEED));
    MP_OK(optim_zero_verify(zero));
    for (job->step = 0; job->step < STEPS; job->step++) {
        if (job->step == 1 && !t->zero.keep) /* an evaluation between two steps is no part of either */
            MP_OK(optim_zero_idle(zero, 0, job->local->rows, OPTIM_PASS_FORWARD));
        optim_zero_begin(zero);
        run_step(job, t, zero, &step);
        reference_step(job, t, &scaler, &steps);
        check_step(job, &step);
        check_formulas(job, t, zero, &step);
        CHECK(optim_zero_steps(zero) == steps);
    }
    dump_state(job, zero, &dump);
    if (t->zero.offload)
        check_file(job, zero);
    MP_OK(optim_zero_verify(zero));
    MP_OK(optim_zero_digest(zero, &digest));
    optim_scaler_t saved = {0};
    if (optim_zero_scaler(zero))
        saved = *optim_zero_scaler(zero);
    CHECK(optim_zero_loss_scale(zero) == (t->zero.precision == MODEL_FLOAT16 ? scaler.scale : 1.0));
    optim_zero_destroy(zero);

    trial_t other = *t;
    other.zero.stage = 3 - t->zero.stage;
    other.zero.keep = !t->zero.keep;
    other.zero.offload = NULL;
    zero = make(job, &other);
    MP_OK(optim_zero_state(zero, OPTIM_STATE_LOAD, load_range, &dump));
    MP_OK(optim_zero_loaded(zero, steps, optim_zero_scaler(zero) ? &saved : NULL));
    run_step(job, &other, zero, &step);
    reference_step(job, &other, &scaler, &steps);
    check_step(job, &step);
    check_rows(job, zero);
    optim_zero_destroy(zero);
    free_dump(&dump);
    end_layout(job);
    return digest;
}

/* The last element of a row's weights, as the model has them, all of which are here, changes. */
static void flip(optim_zero_t *zero, size_t row)
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *p = &plan->params->row[row];
    size_t b = plan->bucket_of[row], last = p->count - 1;
    CHECK(plan->config.stage < 3 || plan->ranks == 1);
    char *weight = plan->config.stage < 3
                       ? zero->weights + p->offset * plan->weight_bytes
                       : zero_weight_own(zero, b) + (p->grad - plan->bucket[b].grad) * plan->weight_bytes;
    weight += last * plan->weight_bytes;
    if (zero_half(zero))
        weight[0] ^= 1 << 6;
    else /* by more than an update would swallow */
        *(float *)(void *)weight += 0.125f;
}

/* The weights of one rank change: a step is refused on all of them, and those that hold the row name it. With parts
 * of rows looked at (`parts`: 16 unless told, and the last has the change) that is the last of so many steps, else the next one. */
static void drift_at(job_t *job, const trial_t *layout, size_t victim, model_kind_t kind, const char *who,
                     size_t parts)
{
    trial_t t = *layout;
    optim_zero_step_t step;
    t.astray = 1;
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    MP_OK(optim_zero_verify(zero));
    size_t row = model_params_find(job->local, kind, 0);
    CHECK(row != MODEL_NONE || job->rank != victim);
    if (job->rank == victim)
        flip(zero, row);
    for (job->step = 0; job->step + 1 < parts; job->step++)
        MP_OK(try_step(job, &t, zero, &step));
    CHECK(try_step(job, &t, zero, &step) == GYRE_ERR_MISMATCH);
    int named = strncmp(gyre_last_error(), "replicas", 8) != 0;
    CHECK(named || job->rank != victim);
    if (named)
        CHECK(strstr(gyre_last_error(), who) &&
              (row == MODEL_NONE || strstr(gyre_last_error(), job->local->row[row].name)));
    optim_zero_destroy(zero);
    end_layout(job);
}

/* With verify_steps as it is by itself, and 1. */
static void drift(job_t *job, const trial_t *layout, size_t victim, model_kind_t kind, const char *who)
{
    trial_t t = *layout;
    int anew = t.zero.precision != MODEL_FLOAT32 || (t.dp > 1 && (t.zero.stage == 1 || t.zero.stage == 2));
    drift_at(job, &t, victim, kind, who, anew ? 1 : 16);
    t.zero.verify_steps = 1;
    drift_at(job, &t, victim, kind, who, 1);
}

/* One rank cannot read its part of a row: all of them hear of it, and nobody waits. */
static void unreadable(job_t *job)
{
    const trial_t t = {.tp = 1,
                       .dp = job->ranks,
                       .pp = 1,
                       .batch = 8,
                       .zero = {.stage = 1, .precision = MODEL_BFLOAT16, .offload = P_tmpdir}};
    float *row = zeros(job->whole->total);
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    if (job->rank == 1)
        CHECK(ftruncate(zero->file, 0) == 0);
    size_t wte = model_params_find(job->whole, MODEL_WTE, 0); /* all have a part of it */
    CHECK(optim_zero_gather_row(zero, job->whole, wte, job->rank == 0 ? row : NULL) == GYRE_ERR_IO);
    CHECK(strstr(gyre_last_error(), job->rank == 1 ? "offload: read" : "rank 1 cannot read") != NULL);
    optim_zero_destroy(zero);
    end_layout(job);
    free(row);
}

/* What callers get wrong, one rank by itself. */
static void misuse(job_t *job)
{
    const trial_t t = {.tp = 1, .dp = 1, .pp = 1, .batch = 1};
    const model_slice_t last = {.tp_size = 1, .head = 1};
    optim_zero_config_t config = {.share = 1, .adamw = how};
    optim_zero_groups_t none = {0};
    optim_zero_step_t step;
    optim_zero_t *zero = NULL;
    float *grad[MAX_ROWS];
    const float *value[MAX_ROWS];
    MP_OK(model_params_slice(job->whole, &last, &job->local));
    CHECK(optim_zero_create(job->local, &none, &config, &zero) ==
          GYRE_ERR_INVALID); /* the embedding is elsewhere */
    model_params_destroy(job->local);
    begin_layout(job, &t);
    job->groups = none;
    config.offload = P_tmpdir "/no such folder";
    CHECK(optim_zero_create(job->local, &none, &config, &zero) == GYRE_ERR_IO);
    CHECK(strstr(gyre_last_error(), "no such folder") != NULL);
    zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    const model_store_t_f32 *store = optim_zero_store(zero);
    size_t rows = job->local->rows, begin, end;
    unit_of(job->local, 0, &begin, &end);
    CHECK(optim_zero_finish(zero, 1.0, RATE, &step) == GYRE_ERR_INVALID);   /* no gradients */
    CHECK(store->ready(store->user, 0, begin, end) == GYRE_ERR_INVALID);    /* no place */
    CHECK(store->place(store->user, 0, 0, rows, grad) == GYRE_ERR_INVALID); /* more than a unit */
    CHECK(store->acquire(store->user, rows, 1, 0, 0, value) == GYRE_ERR_INVALID);
    MP_OK(store->place(store->user, 0, begin, end, grad));
    MP_OK(store->ready(store->user, 0, begin, end));
    CHECK(store->place(store->user, 0, begin, end, grad) == GYRE_ERR_INVALID); /* more than the share */
    optim_zero_destroy(zero);
    end_layout(job);
}

static uint64_t digest;
static void try(job_t *job, trial_t t)
{
    uint64_t got = train(job, &t);
    if (t.batch != 8 || t.zero.precision != MODEL_FLOAT32)
        return;
    MP_CHECK(digest == 0 || digest == got, "%016llx here, %016llx in another layout", (unsigned long long)got,
             (unsigned long long)digest);
    digest = got;
}

/* All stages on one layout of the ranks, with what else there is spread over the trials. */
static void try_layout(job_t *job, size_t tp, size_t dp, size_t pp)
{
    for (int stage = 0; stage < 4; stage++) {
        trial_t t = {
            .tp = tp, .dp = dp, .pp = pp, .batch = 8, .zero = {.stage = stage, .bucket_bytes = 6000}};
        try(job, t);
        t.micro = 8; /* all of a rank: 3 per parameter in stage 3, less what backward does not read */
        try(job, t);
        t.micro = 2;
        t.chunks = 1;
        t.batch = 6;
        t.zero.keep = stage % 2;
        t.zero.offload = P_tmpdir;
        t.zero.grad16 = 1;
        t.zero.bucket_bytes = 3000;
        t.zero.precision = MODEL_FLOAT16;
        t.zero.scaler = (optim_scaler_config_t){.start = 1024.0, .interval = 2, .hysteresis = 1};
        t.overflow = 1;
        try(job, t);
        if (tp * pp > 1)
            continue;
        t.overflow = 0;
        t.zero = (optim_zero_config_t){.stage = stage, .precision = MODEL_BFLOAT16, .keep = 1};
        try(job, t);
        t.micro = (size_t)stage;
        t.chunks = 0;
        t.idle_last = 1;
        t.batch = dp == 4 ? 5 : dp; /* not divisible (2, 2, 1, 0 sequences); one sequence each */
        t.zero = (optim_zero_config_t){.stage = stage, .offload = P_tmpdir, .bucket_bytes = 3000};
        try(job, t);
    }
}

int main(void)
{
    job_t job = {0};
    MP_OK(gyre_init(NULL, &job.world));
    job.rank = (size_t)gyre_comm_rank(job.world);
    job.ranks = (size_t)gyre_comm_size(job.world);
    MP_OK(model_params_create(&shape, &job.whole));
    job.w = zeros(job.whole->total);
    job.m = zeros(job.whole->total);
    job.v = zeros(job.whole->total);
    job.seen = zeros(job.whole->total);
    try_layout(&job, 1, job.ranks, 1);
    if (job.ranks % 2 == 0) {
        try_layout(&job, 2, job.ranks / 2, 1);
        try_layout(&job, 1, job.ranks / 2, 2);
    }
    if (job.ranks == 4)
        try_layout(&job, 2, 1, 2);
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for below */
    if (job.ranks == 1)
        misuse(&job);
    if (job.ranks > 1) {
        unreadable(&job);
        trial_t t = {.tp = 1, .dp = job.ranks, .pp = 1, .batch = 8};
        for (int half = 0; half < 2; half++)
            for (int stage = 0; stage < 3; stage++) {
                t.zero =
                    (optim_zero_config_t){.stage = stage, .precision = half ? MODEL_BFLOAT16 : MODEL_FLOAT32};
                drift(&job, &t, 1, MODEL_LNF_W, job.ranks == 2 ? "ranks 0, 1" : "rank 1 ");
                drift(&job, &t, job.ranks - 1, MODEL_WPE,
                      job.ranks == 2   ? "ranks 0, 1"
                      : job.ranks == 3 ? "rank 2 "
                                       : "rank 3 ");
            }
        if (job.ranks % 2 == 0) {
            t = (trial_t){.tp = 1, .dp = job.ranks / 2, .pp = 2, .batch = 8, .zero.stage = 3};
            if (job.ranks == 2)
                drift(&job, &t, 0, MODEL_WTE, "ranks 0, ");
            t = (trial_t){
                .tp = 2, .dp = job.ranks / 2, .pp = 1, .batch = 8, .zero = {.stage = job.ranks == 2 ? 3 : 1}};
            drift(&job, &t, 0, MODEL_LNF_W, "ranks 0, ");
        }
    }
    model_params_destroy(job.whole);
    free(job.w);
    free(job.m);
    free(job.v);
    free(job.seen);
    MP_OK(gyre_finalize(job.world));
    return 0;
}
