/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3, guard: 2 */
/* tests/gpu/ranks/mp_zero.c: ZeRO stages 0 to 3 with everything on a device: weights, norms, checkpoints are
 * those of one process on the host, to the bit, over data, tensor and pipeline parallelism. */
#include "base/settings/settings.h"
#include "collectives/gpu/state.h"
#include "tests/gpu/gpu.h"
#include "tests/optim/zero_train.h"

/* Peers read gradients that have places of their own where they lie, and weights that are gathered there: the
 * latter are whole in stages 1 and 2. */
static void in_their_places(const optim_zero_t *zero)
{
    const gyre_comm_t *dp = zero->groups.dp;
    const int stage = zero->plan.config.stage, wanted = zero->plan.pools == 0 || stage == 1 || stage == 2;
    if (dp && gyre_comm_size(dp) > 1)
        MP_CHECK((dp->cuda->read_directly > 0) == wanted, "stage %d: %llu operations on registered memory",
                 stage, (unsigned long long)dp->cuda->read_directly);
}

static void try_layout(job_t *job, size_t tp, size_t dp, size_t pp, cudaStream_t stream)
{
    for (int stage = 0; stage < 4; stage++) {
        trial_t t = {.tp = tp, .dp = dp, .pp = pp, .batch = 8, .micro = 2, .look = in_their_places};
        t.zero =
            (optim_zero_config_t){.stage = stage, .bucket_bytes = 6000, .on_device = 1, .stream = stream};
        try(job, t);
        t.zero.precision = MODEL_BFLOAT16;
        t.zero.keep = stage % 2;
        t.batch = 6;
        if (tp * pp > 1)
            t.chunks = 1;
        try(job, t);
        t.zero.grad16 = 1;
        t.zero.bucket_bytes = 3000;
        t.batch = dp == 3 ? 2 : 5; /* a rank without a sequence, shares that differ */
        try(job, t);
    }
}

int main(void)
{
    job_t job;
    cudaStream_t stream;
    if (!gpu_here())
        return 77;
    begin_job(&job);
    MP_OK(
        base_settings_set(SET_CUDA_ONE_SHOT, "1K", "test")); /* buckets are longer, and read where they lie */
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    try_layout(&job, 1, job.ranks, 1, stream);
    if (job.ranks == 2) {
        try_layout(&job, 2, 1, 1, stream);
        try_layout(&job, 1, 1, 2, stream);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    end_job(&job);
    return 0;
}
