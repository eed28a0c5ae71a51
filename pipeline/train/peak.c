/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/peak.c: what the processors of a job can do at most, for the use that training makes of them
 * (MFU, Chowdhery et al. 2022, appendix B).
 *
 * Each rank multiplies large matrices for a moment, with the library that training uses, on one thread, and
 * counts the time that this thread was running: what else the machine does at that moment does not count.
 * Threads that share a core share its peak: a host's is the mean rate of its ranks times the cores that they
 * may use, or their threads if there are fewer. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "model/kernels/kernels.h"
#include "pipeline/train/worker.h"
#include "pipeline/report/timeline.h"
#include "pipeline/train/peak.h"

#define MEASURE_S 0.02
enum {
    SIDE =
        384, /* three such matrices fit most second-level caches, and are large enough to run at full speed */
    WORDS = 16, /* 1,024 processors */
    LEAST = 3   /* products */
};

/* What a rank sends: its host, its rate (bits of a double), its threads, and the processors that it may run
 * on. */
typedef struct {
    uint64_t host, rate, threads, cpus[WORDS];
} told_t;
_Static_assert(sizeof(told_t) % sizeof(uint64_t) == 0, "it travels as words");

static double running_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The best of a few products: the first one also makes the library ready. */
static gyre_status_t rate_of_rank(int bf16, double *best)
{
    const size_t area = (size_t)SIDE * SIDE;
    float *matrix = malloc(3 * area * sizeof *matrix);
    void *pack = bf16 ? malloc(MODEL_PACK_BYTES) : NULL;
    if (!matrix || (bf16 && !pack)) {
        free(matrix);
        free(pack);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the products that --peak-flops is measured with");
    }
    for (size_t i = 0; i < 3 * area; i++)
        matrix[i] = (float)(i % 7) * 0.25f;
    model_matmul_init();
    *best = 0.0;
    double start = running_s(), before = start;
    for (int i = 0; i < LEAST || before - start < MEASURE_S; i++) {
        if (bf16)
            model_matmul_bf16_f32(pack, 0, 0, SIDE, SIDE, SIDE, matrix, SIDE, matrix + area, SIDE, 0,
                                  matrix + 2 * area, SIDE);
        else
            model_matmul_f32(0, 0, SIDE, SIDE, SIDE, 1.0f, matrix, SIDE, matrix + area, SIDE, 0.0f,
                             matrix + 2 * area, SIDE);
        double now = running_s(), rate = 2.0 * SIDE * SIDE * SIDE / (now - before + 1e-9);
        *best = rate > *best ? rate : *best;
        before = now;
    }
    free(matrix);
    free(pack);
    return GYRE_OK;
}

double train_peak_sum(const uint64_t *told, size_t ranks)
{
    const told_t *all = (const told_t *)(const void *)told;
    double sum = 0.0;
    for (size_t r = 0; r < ranks; r++) {
        int first = 1;
        uint64_t cpus[WORDS] = {0};
        size_t here = 0, threads = 0, cores = 0;
        double rates = 0.0, rate;
        for (size_t q = 0; q < r; q++)
            first &= all[q].host != all[r].host;
        for (size_t q = r; first && q < ranks; q++) {
            if (all[q].host != all[r].host)
                continue;
            memcpy(&rate, &all[q].rate, sizeof rate);
            rates += rate;
            threads += all[q].threads;
            here++;
            for (size_t w = 0; w < WORDS; w++)
                cpus[w] |= all[q].cpus[w];
        }
        for (size_t w = 0; w < WORDS; w++)
            cores += (size_t)__builtin_popcountll(cpus[w]);
        if (here > 0)
            sum += rates / (double)here * (double)(cores > 0 && cores < threads ? cores : threads);
    }
    return sum;
}

gyre_status_t train_peak_measure(gyre_comm_t *comm, size_t threads, int bf16, double *flops)
{
    const size_t words = sizeof(told_t) / sizeof(uint64_t), ranks = (size_t)gyre_comm_size(comm);
    told_t mine = {.host = train_host_clock(), .threads = threads};
    uint64_t *all = NULL;
    double rate = 0.0;
    cpu_set_t allowed;
    gyre_status_t status = rate_of_rank(bf16, &rate);
    memcpy(&mine.rate, &rate, sizeof rate);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        for (size_t c = 0; c < 64 * WORDS && c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, &allowed))
                mine.cpus[c / 64] |= UINT64_C(1) << c % 64;
    if (status == GYRE_OK && gyre_comm_rank(comm) == 0 && !(all = calloc(ranks, words * sizeof *all)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the rates of %zu ranks", ranks);
    if (status == GYRE_OK)
        status = gyre_gather(&mine, all, words, GYRE_UINT64, 0, comm);
    *flops = status == GYRE_OK && all ? train_peak_sum(all, ranks) : 0.0;
    free(all);
    return status;
}

gyre_status_t train_peak_measure_gpu(gyre_comm_t *comm, base_device_t device, model_precision_t precision,
                                     double *flops)
{
    double mine = 0.0;
    gyre_status_t status = GYRE_OK;
    if (gyre_comm_local_rank(comm) <
        base_device_count(BASE_CUDA)) /* the others share a GPU with one of these */
        status = pipe_gpu_peak(device, precision, &mine);
    return status == GYRE_OK ? gyre_all_reduce(&mine, flops, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm)
                             : status;
}
