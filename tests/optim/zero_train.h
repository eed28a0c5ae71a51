/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/zero_train.h: a trial from its beginning to its end: three steps, a checkpoint, and a fourth
 * step in another stage that has loaded it; each compared with one process, to the bit, and with the
 * formulas for memory and traffic. */
#ifndef TESTS_OPTIM_ZERO_TRAIN_H
#define TESTS_OPTIM_ZERO_TRAIN_H

#include "tests/optim/zero_trial.h"
#include "tests/support/weights.h"

/* ---- checks -------------------------------------------------------------------------------------------- */

static inline void check_formulas(const job_t *job, const trial_t *t, const optim_zero_t *zero,
                                  const optim_zero_step_t *step)
{
    size_t want[OPTIM_MEMORY_KINDS], got[OPTIM_MEMORY_KINDS];
    uint64_t sent[OPTIM_TRAFFIC_KINDS];
    optim_zero_config_t config = t->zero;
    optim_zero_share(&config, &job->batch, &job->part);
    size_t passes = (job->longest + micro_of(t) - 1) / micro_of(t);
    MP_OK(optim_zero_predict(job->local, &config, t->dp, job->dp_rank, passes, want, sent));
    optim_zero_memory(zero, got);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        MP_CHECK(got[k] == want[k] || (t->chunks && k == OPTIM_MEMORY_BUCKETS),
                 "%s: %zu bytes, the formula says %zu", optim_memory_name((optim_memory_t)k), got[k],
                 want[k]);
    for (int k = 0; k < OPTIM_TRAFFIC_KINDS; k++)
        MP_CHECK(
            step->sent[k] ==
                (step->skipped && (k == OPTIM_TRAFFIC_ALL_GATHER || k == OPTIM_TRAFFIC_MUON) ? 0 : sent[k]),
            "traffic of kind %d: %llu elements, the formula says %llu", k, (unsigned long long)step->sent[k],
            (unsigned long long)sent[k]);
    if (t->look)
        t->look(zero);
}

static inline void check_rows(job_t *job, optim_zero_t *zero)
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

static inline gyre_status_t ask_range(void *user, const optim_zero_range_t *range)
{
    asked_t *asked = user;
    asked->elements += range->count * (asked->whole->row[range->global].twin ? 2 : 1);
    return GYRE_OK;
}

static inline uint64_t bytes_read(const optim_zero_t *zero)
{
    return zero->file_read + (zero->experts ? zero->experts->store->file_read : 0);
}

/* All rows from a file: each rank reads its master weights, once, and no moments. */
static inline void check_file(job_t *job, optim_zero_t *zero)
{
    asked_t asked = {.whole = job->whole};
    uint64_t before = bytes_read(zero);
    MP_OK(optim_zero_state(zero, OPTIM_STATE_LISTED, ask_range, &asked));
    check_rows(job, zero);
    uint64_t want = zero_half(zero) && zero->file >= 0 ? asked.elements * sizeof(float) : 0;
    MP_CHECK(bytes_read(zero) - before == want, "%llu bytes read, not %llu",
             (unsigned long long)(bytes_read(zero) - before), (unsigned long long)want);
}

/* A checkpoint as bits: three arrays of the whole, and how often each element was visited. */
typedef struct {
    const job_t *job;
    uint32_t *part[4]; /* [total] */
} dump_t;

static inline gyre_status_t dump_range(void *user, const optim_zero_range_t *range)
{
    dump_t *dump = user;
    size_t at = dump->job->whole->row[range->global].offset + range->first;
    memcpy(dump->part[0] + at, range->weight, range->count * sizeof(float));
    memcpy(dump->part[1] + at, range->exp_avg, range->count * sizeof(float));
    if (range->exp_avg_sq)
        memcpy(dump->part[2] + at, range->exp_avg_sq, range->count * sizeof(float));
    for (size_t i = 0; i < range->count; i++)
        dump->part[3][at + i]++;
    return GYRE_OK;
}

static inline gyre_status_t load_range(void *user, const optim_zero_range_t *range)
{
    const dump_t *dump = user;
    size_t at = dump->job->whole->row[range->global].offset + range->first;
    memcpy(range->weight, dump->part[0] + at, range->count * sizeof(float));
    memcpy(range->exp_avg, dump->part[1] + at, range->count * sizeof(float));
    if (range->exp_avg_sq)
        memcpy(range->exp_avg_sq, dump->part[2] + at, range->count * sizeof(float));
    return GYRE_OK;
}

static inline gyre_status_t list_range(void *user, const optim_zero_range_t *range)
{
    CHECK(!range->weight && !range->exp_avg && !range->exp_avg_sq);
    *(uint64_t *)user += range->count;
    return GYRE_OK;
}

static inline void dump_state(job_t *job, optim_zero_t *zero, dump_t *dump)
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

static inline void free_dump(dump_t *dump)
{
    for (int i = 0; i < 4; i++)
        free(dump->part[i]);
}

static inline void begin_reference(job_t *job, const trial_t *t, optim_scaler_t *scaler)
{
    const optim_scaler_config_t config = optim_scaler_complete(&t->zero.scaler);
    size_t total = job->whole->total;
    optim_scaler_begin(scaler, &config);
    init_params(job->whole, SEED, job->w);
    memset(job->m, 0, total * sizeof(float));
    memset(job->v, 0, total * sizeof(float));
    memcpy(job->seen, job->w, total * sizeof(float));
    if (t->zero.precision != MODEL_FLOAT32)
        round_all(t->zero.precision, job->seen, total);
}

static inline void check_step(const job_t *job, const optim_zero_step_t *step)
{
    double want = job->norm[job->step];
    MP_CHECK(step->skipped == job->skipped[job->step], "step %zu", job->step);
    MP_CHECK(memcmp(&step->norm, &want, sizeof want) == 0 || (isnan(want) && isnan(step->norm)),
             "step %zu: norm %.17g, reference %.17g", job->step, step->norm, want);
}

/* Three steps, a checkpoint, and a fourth in an object with another stage that has loaded it. */
static inline uint64_t train(job_t *job, const trial_t *t)
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
        if (job->step == 1 && !t->zero.keep &&
            sharing_of(t) == 1) /* an evaluation between two steps is no part of either */
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

static uint64_t digest;
static inline void try(job_t *job, trial_t t)
{
    uint64_t got = train(job, &t);
    if (t.batch != 8 || t.lanes > 0 || t.zero.precision != MODEL_FLOAT32 || t.zero.muon)
        return;
    MP_CHECK(digest == 0 || digest == got, "%016llx here, %016llx in another layout", (unsigned long long)got,
             (unsigned long long)digest);
    digest = got;
}

#endif
