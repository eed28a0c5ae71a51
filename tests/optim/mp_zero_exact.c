/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 3 */
/* tests/optim/mp_zero_exact.c: biases of a router's choices stay fp32 where weights are held in 16 bits, in
 * every ZeRO stage, with and without a state, and are what is written again. */
#include "tests/optim/zero_trial.h"

static const model_config_t mixture = {ZERO_MIXTURE, .router_sigmoid = 1};

/* Of element i of a row of the whole table; no number of 16 bits. */
static float value_of(size_t global, size_t i)
{
    return 1.0f + (float)(8 * global + i + 1) * 0x1p-20f;
}

static gyre_status_t give(void *user, const optim_zero_range_t *range)
{
    (void)user;
    for (size_t i = 0; i < range->count; i++)
        range->weight[i] = value_of(range->global, range->first + i);
    optim_zero_no_moments(range);
    return GYRE_OK;
}

/* What is written again. */
static gyre_status_t take_back(void *user, const optim_zero_range_t *range)
{
    const job_t *job = user;
    for (size_t i = 0; job->whole->row[range->global].kind == MODEL_ROUTER_CHOICE && i < range->count; i++)
        CHECK(range->weight[i] == value_of(range->global, range->first + i));
    return GYRE_OK;
}

static void check_row(const optim_zero_t *zero, const model_store_t_f32 *store, size_t r, int exact)
{
    const model_param_t *row = &zero->plan.params->row[r];
    const float *value;
    MP_OK(store->acquire(store->user, r, 1, 0, 0, &value));
    for (size_t i = 0; i < row->count; i++)
        MP_CHECK((value[i] == value_of(row->global, i)) == exact, "%s: element %zu is %a", row->name, i,
                 (double)value[i]);
    store->release(store->user, r, 1);
}

static void check_kept(job_t *job, int stage, model_precision_t precision, int weights_only, int keep)
{
    const trial_t t = {.tp = 1,
                       .dp = job->ranks,
                       .pp = 1,
                       .batch = job->ranks,
                       .zero = {.stage = stage,
                                .bucket_bytes = 3000,
                                .precision = precision,
                                .keep = keep,
                                .weights_only = weights_only}};
    begin_layout(job, &t);
    optim_zero_t *zero = make(job, &t);
    const model_params_t *params = zero->plan.params;
    const model_store_t_f32 *store = optim_zero_store(zero);
    for (int again = 0; again < 2; again++) { /* a second load takes the place of the first */
        MP_OK(optim_zero_state(zero, OPTIM_STATE_LOAD, give, NULL));
        MP_OK(optim_zero_loaded(zero, 0, NULL));
    }
    for (size_t l = 0; l < LAYERS; l++) {
        check_row(zero, store, model_params_find(params, MODEL_ROUTER_CHOICE, l), 1);
        check_row(zero, store, model_params_find(params, MODEL_LN1_W, l), 0);
    }
    MP_OK(optim_zero_state(zero, OPTIM_STATE_OWNED, take_back, job));
    optim_zero_destroy(zero);
    end_layout(job);
}

int main(void)
{
    job_t job;
    begin_job_of(&job, &mixture);
    for (int stage = 0; stage < 4; stage++)
        for (int only = 0; only < (stage % 3 == 0 ? 2 : 1); only++) {
            check_kept(&job, stage, MODEL_BFLOAT16, only, 0);
            check_kept(&job, stage, MODEL_FLOAT16, only, 1);
        }
    end_job(&job);
    return 0;
}
