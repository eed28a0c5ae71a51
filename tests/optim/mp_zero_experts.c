/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 2 4 8 */
/* tests/optim/mp_zero_experts.c: ZeRO where data-parallel ranks share experts, in every stage, with tensor
 * and pipeline parallelism: weights, moments and norms are, to the bit, those of one process that has all
 * experts; a gradient of an expert that is not finite stops the step everywhere; memory and traffic are what
 * the formulas say. A replica of an expert that drifts is named, and what cannot be is refused. */
#include "tests/optim/zero_train.h"

static const model_config_t mixture = {ZERO_MIXTURE, .dense_first = 1, .dense_ffn = 16};

static void try_stage(job_t *job, size_t tp, size_t dp, size_t pp, size_t ep, int stage)
{
    trial_t t = {
        .tp = tp, .dp = dp, .pp = pp, .batch = 8, .zero = {.stage = stage, .bucket_bytes = 6000, .ep = ep}};
    try(job, t);
    t.batch = 4 * dp; /* levels in each lane */
    t.micro = 4;
    t.zero.bucket_bytes = 3000;
    t.zero.offload = P_tmpdir;
    t.zero.keep = stage % 2;
    t.zero.precision = MODEL_BFLOAT16;
    try(job, t);
    t.zero.offload = NULL;
    t.lanes = 2 * dp; /* several reductions */
    t.zero.grad16 = 1;
    t.zero.precision = MODEL_FLOAT16;
    t.zero.scaler = (optim_scaler_config_t){.start = 1024.0, .interval = 2, .hysteresis = 1};
    t.overflow = 1;
    t.chunks = 1;
    try(job, t);
    t.lanes = 0;
    t.batch = 2 * dp;
    t.zero.muon = 1;
    t.zero.momentum = 0.9;
    t.zero.keep = 0;
    try(job, t);
}

/* A weight of an expert changes on one of its two replicas. */
static void drift(job_t *job)
{
    const trial_t t = {
        .tp = 1, .dp = 4, .pp = 1, .batch = 8, .astray = 1, .zero = {.ep = 2, .verify_steps = 1}};
    optim_zero_step_t step;
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    MP_OK(optim_zero_verify(zero));
    if (job->rank == 3)
        ((float *)(void *)zero->experts->store->weights)[5] += 0.125f;
    job->step = 0;
    CHECK(try_step(job, &t, zero, &step) == GYRE_ERR_MISMATCH);
    const int holds = job->rank % 2 == 1;
    CHECK(strstr(gyre_last_error(), holds ? ": ranks 1, 3 of 2 data-parallel replicas hold" : "replicas") !=
          NULL);
    CHECK(optim_zero_verify(zero) == (holds ? GYRE_ERR_MISMATCH : GYRE_OK));
    optim_zero_destroy(zero);
    end_layout(job);
}

/* A weight that is no expert's changes where some ranks alone can see it: all ranks come back from each
 * comparison, and those that hold the row name it. Stage 3: one rank's part, which ranks of tp compare. */
static void drift_of_some(job_t *job, int stage, model_kind_t kind)
{
    const trial_t t = {.tp = 2,
                       .dp = job->ranks / 2,
                       .pp = 1,
                       .batch = 8,
                       .astray = 1,
                       .zero = {.stage = stage, .ep = 2, .verify_steps = 1}};
    optim_zero_step_t step;
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    MP_OK(optim_zero_init(zero, SEED));
    const model_params_t *params = zero->plan.params;
    const size_t row = model_params_find(params, kind, 0);
    const zero_bucket_t *bucket = &zero->plan.bucket[zero->plan.bucket_of[row]];
    size_t lo, hi;
    const int held = zero_plan_part(&zero->plan, row, &lo, &hi) && lo == params->row[row].grad - bucket->grad;
    if (stage < 3 && job->rank == 0)
        ((float *)(void *)zero->weights)[params->row[row].offset] += 0.125f;
    if (stage == 3 && held && job->tp_rank == 0)
        ((float *)(void *)zero->weights)[bucket->at + lo - bucket->first] += 0.125f;
    const int sees = stage < 3 ? job->tp_rank == 0 : held;
    job->step = 0;
    CHECK(try_step(job, &t, zero, &step) == GYRE_ERR_MISMATCH);
    CHECK(strstr(gyre_last_error(), sees ? params->row[row].name : "replicas") != NULL);
    CHECK(optim_zero_verify(zero) == (sees ? GYRE_ERR_MISMATCH : GYRE_OK));
    optim_zero_destroy(zero);
    end_layout(job);
}

static void refused(job_t *job)
{
    const trial_t t = {.tp = 1, .dp = job->ranks, .pp = 1, .batch = job->ranks, .zero = {.ep = 2}};
    begin_layout(job, &t);
    optim_zero_config_t config = {.share = 1, .adamw = how, .ep = 3};
    optim_zero_groups_t groups = job->groups;
    optim_zero_t *zero = NULL;
    CHECK(create_zero(job->local, &groups, &config, &zero) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "expert parallelism of 3 must be a power of two") != NULL);
    config.ep = 2;
    /* rows of all experts, of which a rank has a half at most */
    CHECK(create_zero(job->whole, &groups, &config, &zero) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "a slice for expert parallelism of 2") != NULL);
    config.on_device = 1;
    CHECK(create_zero(job->local, &groups, &config, &zero) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "expert parallelism is on the host") != NULL);
    CHECK(optim_zero_predict(job->local, &config, job->ranks, 0, 1, NULL, NULL) == GYRE_ERR_INVALID);
    config.on_device = 0;
    groups.edp = groups.dp;
    CHECK(create_zero(job->local, &groups, &config, &zero) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "ranks that hold the same experts must be given") != NULL);
    zero = make(job, &t);
    CHECK(optim_zero_idle(zero, 0, job->local->rows, OPTIM_PASS_FORWARD) == GYRE_ERR_INVALID);
    optim_zero_destroy(zero);
    end_layout(job);
}

int main(void)
{
    job_t job;
    begin_job_of(&job, &mixture);
    if (job.ranks >= 4) {
        drift_of_some(&job, 0, MODEL_ATTN_QKV_W);
        drift_of_some(&job, 3, MODEL_LNF_W);
    }
    for (int stage = 0; job.ranks < 8 && stage < 4; stage++) {
        for (size_t ep = 2; ep <= job.ranks; ep *= 2)
            try_stage(&job, 1, job.ranks, 1, ep, stage);
        if (job.ranks == 4)
            try_stage(&job, stage % 2 ? 2 : 1, 2, stage % 2 ? 1 : 2, 2, stage);
    }
    if (job.ranks == 4)
        drift(&job);
    refused(&job);
    end_job(&job);
    return 0;
}
