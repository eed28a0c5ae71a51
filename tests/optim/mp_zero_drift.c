/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 3 4 */
/* tests/optim/mp_zero_drift.c: errors in ZeRO: a replica whose weights drift is named, all ranks report a
 * file that cannot be read, an update that fails half-way is known, and calls out of order are refused. */
#include <unistd.h>

#include "base/log.h"
#include "tests/optim/zero_trial.h"
#include "tests/support/create.h"

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

/* The weights of one rank change: a step is refused on all ranks, and those that hold the row name it. With
 * parts of rows checked in turn (`parts`: 16 by default, and the last has the change) that is the last of so
 * many steps, else the next one. before: updates of a run that goes on, which count among these steps.
 * skipped 1: none of the others makes an update. */
static void drift_at(job_t *job, const trial_t *layout, size_t victim, model_kind_t kind, const char *who,
                     size_t parts, size_t before, int skipped)
{
    trial_t t = *layout;
    optim_zero_step_t step;
    t.astray = 1;
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    if (before > 0)
        MP_OK(optim_zero_loaded(zero, before, NULL));
    MP_OK(optim_zero_verify(zero));
    size_t row = model_params_find(job->local, kind, 0);
    CHECK(row != MODEL_NONE || job->rank != victim);
    if (job->rank == victim)
        flip(zero, row);
    for (job->step = 0; before + job->step + 1 < parts; job->step++) {
        if (skipped)
            optim_zero_limit(zero, -1.0);
        MP_OK(try_step(job, &t, zero, &step));
    }
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
    drift_at(job, &t, victim, kind, who, anew ? 1 : 16, 0, 0);
    t.zero.verify_steps = 1;
    drift_at(job, &t, victim, kind, who, 1, 0, 0);
}

/* One rank cannot read its part of a row: all ranks get the error, and no rank waits. */
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
    CHECK(strstr(gyre_last_error(), job->rank == 1 ? "offload: cannot read" : "rank 1 cannot read") != NULL);
    optim_zero_destroy(zero);
    end_layout(job);
    free(row);
}

/* Muon's ranks are lost between the momentum and the weights: what is left is no state of a step. */
static void torn(job_t *job)
{
    const trial_t t = {
        .tp = 1, .dp = job->ranks, .pp = 1, .batch = 8, .astray = 1, .zero = {.muon = 1, .momentum = 0.9}};
    optim_zero_step_t step;
    begin_layout(job, &t);
    gyre_comm_t *plane = split_by(job, 0, job->rank); /* not dp: only the update works on it */
    job->groups.plane = plane;
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    MP_OK(try_step(job, &t, zero, &step));
    CHECK(!optim_zero_torn(zero));
    MP_OK(gyre_barrier(job->world)); /* the step has ended on all */
    gyre_comm_abort(plane, "a rank is lost");
    CHECK(try_step(job, &t, zero, &step) != GYRE_OK);
    CHECK(optim_zero_torn(zero));
    optim_zero_leave(zero);
    gyre_comm_destroy(plane); /* it may be at work in memory of the store until then */
    optim_zero_destroy(zero);
    end_layout(job);
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
    CHECK(create_zero(job->local, &none, &config, &zero) ==
          GYRE_ERR_INVALID); /* the embedding is elsewhere */
    model_params_destroy(job->local);
    begin_layout(job, &t);
    job->groups = none;
    config.offload = P_tmpdir "/no such folder";
    CHECK(create_zero(job->local, &none, &config, &zero) == GYRE_ERR_IO);
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

/* A change on ranks whose weights have a replica elsewhere, in every stage that keeps them whole; and in
 * stage 3 if tensor or pipeline parallelism has one. */
static void drifts(job_t *job)
{
    trial_t t = {.tp = 1, .dp = job->ranks, .pp = 1, .batch = 8};
    for (int half = 0; half < 2; half++)
        for (int stage = 0; stage < 3; stage++) {
            t.zero =
                (optim_zero_config_t){.stage = stage, .precision = half ? MODEL_BFLOAT16 : MODEL_FLOAT32};
            drift(job, &t, 1, MODEL_LNF_W, job->ranks == 2 ? "ranks 0, 1" : "rank 1 ");
            drift(job, &t, job->ranks - 1, MODEL_WPE,
                  job->ranks == 2   ? "ranks 0, 1"
                  : job->ranks == 3 ? "rank 2 "
                                    : "rank 3 ");
        }
    t.zero = (optim_zero_config_t){.stage = 0};
    drift_at(job, &t, 1, MODEL_LNF_W, job->ranks == 2 ? "ranks 0, 1" : "rank 1 ", 16, 0, 1);
    drift_at(job, &t, 1, MODEL_LNF_W, job->ranks == 2 ? "ranks 0, 1" : "rank 1 ", 16, 15, 0);
    if (job->ranks % 2)
        return;
    t = (trial_t){.tp = 1, .dp = job->ranks / 2, .pp = 2, .batch = 8, .zero.stage = 3};
    if (job->ranks == 2)
        drift(job, &t, 0, MODEL_WTE, "ranks 0, ");
    t = (trial_t){
        .tp = 2, .dp = job->ranks / 2, .pp = 1, .batch = 8, .zero = {.stage = job->ranks == 2 ? 3 : 1}};
    drift(job, &t, 0, MODEL_LNF_W, "ranks 0, ");
}

int main(void)
{
    job_t job;
    begin_job(&job);
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for */
    if (job.ranks == 1) {
        misuse(&job);
    } else {
        unreadable(&job);
        torn(&job);
        drifts(&job);
    }
    end_job(&job);
    return 0;
}
