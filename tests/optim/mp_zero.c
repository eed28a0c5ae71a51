/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 3 4 */
/* tests/optim/mp_zero.c: ZeRO stages 0 to 3 over data, tensor and pipeline parallelism: weights and norms
 * are, to the bit, those of one process; memory and traffic are what the formulas say. What goes wrong:
 * mp_zero_drift.c. */
#include "tests/optim/zero_train.h"

/* Three rounds of lanes, one or two to a rank, in micro-batches that end within a round and beyond it. */
static void try_rounds(job_t *job, size_t tp, size_t dp, size_t pp, int stage)
{
    trial_t t = {.tp = tp,
                 .dp = dp,
                 .pp = pp,
                 .lanes = dp * (size_t)(1 + stage % 2),
                 .micro = (size_t)(1 + stage),
                 .zero = {.stage = stage, .bucket_bytes = 6000}};
    t.batch = 3 * t.lanes;
    if (dp == 3)
        t.lanes = dp; /* two to a rank would be no subtree */
    try(job, t);
    t.lanes = dp == 3 ? dp : 4 * dp; /* sums of several reductions on several levels */
    t.batch = 2 * t.lanes;
    t.micro = 2;
    t.chunks = 1;
    t.zero.grad16 = 1;
    t.zero.precision = stage % 2 ? MODEL_BFLOAT16 : MODEL_FLOAT16;
    t.zero.scaler = (optim_scaler_config_t){.start = 1024.0, .interval = 2, .hysteresis = 1};
    t.overflow = 1;
    try(job, t);
}

/* Muon of the layers' matrices. */
static void try_muon(job_t *job, size_t tp, size_t dp, size_t pp, int stage)
{
    trial_t t = {.tp = tp,
                 .dp = dp,
                 .pp = pp,
                 .batch = 6,
                 .zero = {.stage = stage, .bucket_bytes = 3000, .muon = 1, .momentum = 0.9}};
    try(job, t);
    t.zero.bucket_bytes = 0; /* vectors and matrices in one bucket */
    t.zero.grad16 = stage % 2;
    t.zero.precision = MODEL_FLOAT16;
    t.zero.scaler = (optim_scaler_config_t){.start = 1024.0, .interval = 2, .hysteresis = 1};
    t.overflow = 1;
    try(job, t);
}

/* A frozen row, with gradients of 32 and of 16 bits. */
static void try_frozen(job_t *job, int stage)
{
    trial_t t = {.tp = 1,
                 .dp = job->ranks,
                 .pp = 1,
                 .batch = 6,
                 .frozen = 1,
                 .zero = {.stage = stage, .bucket_bytes = 3000}};
    try(job, t);
    t.zero.grad16 = 1;
    t.zero.precision = stage % 2 ? MODEL_BFLOAT16 : MODEL_FLOAT16;
    try(job, t);
}

/* All stages on one layout of the ranks, with what else there is spread over the trials. With tensor or
 * pipeline parallelism rounds and Muon in every second stage, with TEST_LONG=1 in each. */
static void try_layout(job_t *job, size_t tp, size_t dp, size_t pp)
{
    const int all = tp * pp == 1 || getenv("TEST_LONG");
    for (int stage = 0; stage < 4; stage++) {
        if (all || stage % 2 == (tp > 1))
            try_rounds(job, tp, dp, pp, stage);
        if (all || stage % 2 == (pp > 1))
            try_muon(job, tp, dp, pp, stage);
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
        t.batch = dp == 4 ? 5 : dp; /* not divisible (2, 2, 1, 0 sequences); one sequence each */
        t.zero = (optim_zero_config_t){.stage = stage, .offload = P_tmpdir, .bucket_bytes = 3000};
        try(job, t);
    }
}

int main(void)
{
    job_t job;
    begin_job(&job);
    try_layout(&job, 1, job.ranks, 1);
    try_frozen(&job, 0);
    try_frozen(&job, 3);
    if (job.ranks % 2 == 0) {
        try_layout(&job, 2, job.ranks / 2, 1);
        try_layout(&job, 1, job.ranks / 2, 2);
    }
    if (job.ranks == 4)
        try_layout(&job, 2, 1, 2);
    end_job(&job);
    return 0;
}
