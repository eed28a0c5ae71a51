/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/bench_stage.c: what a stage's options cost: forward and backward of one sequence, all variants
 * in turns in one process.
 *
 *   make build/tests/model/bench_stage
 *   build/tests/model/bench_stage [ROUNDS [HIDDEN SEQ LAYERS HEADS VOCAB]]     default: 200 rounds of the
 *   demo's model
 *   build/bin/ucx-run -n 2 build/tests/model/bench_stage ...                   all ranks are one
 *   tensor-parallel group
 *
 * Prints per variant the median of the rounds, the fastest, the median of the processor's time, and the
 * ratios of both medians to those of the first line. Products of bf16 only where the processor has them. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model/network/stage/plain_store.h"
#include "base/order.h"
#include "model/random.h"
#include "tests/support/weights.h"

#define OK(call)                                                   \
    do {                                                           \
        if ((call) != GYRE_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, gyre_last_error()); \
            exit(1);                                               \
        }                                                          \
    } while (0)

/* Sequences of a variant in turn: what the one before left in the caches shall not count. */
#define PASSES 4

typedef struct {
    const char *name;
    size_t leaves;
    int sequence;
    model_recompute_t recompute;
    model_precision_t precision;
    int matmul_bf16;

    model_params_t *whole, *params;
    float *weights, *grads;
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
    double *seconds, *running; /* [rounds] */
} variant_t;

static void *memory(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (!p) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

static void make(variant_t *v, model_config_t config, model_tp_t tp, size_t rounds)
{
    config.leaves = v->leaves;
    tp.sequence = v->sequence;
    OK(model_params_create(&config, &v->whole));
    const model_slice_t slice = {.tp_rank = tp.rank, .tp_size = tp.size, .embed = 1, .head = 1};
    OK(model_params_slice(v->whole, &slice, &v->params));
    v->weights = memory(v->params->total, sizeof(float));
    v->grads = memory(v->params->grad_total, sizeof(float));
    v->seconds = memory(rounds, sizeof(double));
    v->running = memory(rounds, sizeof(double));
    init_params(v->params, 1, v->weights);
    v->plain = (model_plain_store_t_f32){.params = v->params, .weights = v->weights, .grads = v->grads};
    const model_store_t_f32 store = model_plain_store_f32(&v->plain);
    const model_stage_config_t how = {.layers = config.layers,
                                      .embed = 1,
                                      .head = 1,
                                      .slots = 1,
                                      .recompute = v->recompute,
                                      .precision = v->precision,
                                      .matmul_bf16 = v->matmul_bf16};
    OK(model_stage_create_f32(v->params, &tp, &how, &store, MODEL_ISA_BEST, &v->stage));
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pass(const variant_t *v, const model_sequence_t *sequence)
{
    OK(model_stage_forward_f32(v->stage, 0, sequence, NULL, NULL, NULL));
    OK(model_stage_backward_f32(v->stage, 0, 1.0f, NULL, NULL));
}

int main(int argc, char **argv)
{
    model_config_t config = {.vocab = 65, .seq = 64, .layers = 4, .hidden = 128, .heads = 4};
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 200;
    if (argc == 7) {
        size_t *field[5] = {&config.hidden, &config.seq, &config.layers, &config.heads, &config.vocab};
        for (int i = 0; i < 5; i++)
            *field[i] = strtoul(argv[2 + i], NULL, 10);
    }
    if (rounds < 1 || (argc > 2 && argc != 7)) {
        fprintf(stderr, "usage: %s [ROUNDS [HIDDEN SEQ LAYERS HEADS VOCAB]]\n", argv[0]);
        return 2;
    }
    variant_t all[] = {{.name = "leaves 1", .leaves = 1},
                       {.name = "leaves 2", .leaves = 2},
                       {.name = "leaves 4", .leaves = 4},
                       {.name = "leaves 4, sequence parallel", .leaves = 4, .sequence = 1},
                       {.name = "leaves 4, all recomputed", .leaves = 4, .recompute = MODEL_RECOMPUTE_FULL},
                       {.name = "leaves 4, bf16", .leaves = 4, .precision = MODEL_BFLOAT16},
                       {.name = "leaves 4, bf16, products of bf16",
                        .leaves = 4,
                        .precision = MODEL_BFLOAT16,
                        .matmul_bf16 = 1},
                       {.name = "leaves 4, fp16", .leaves = 4, .precision = MODEL_FLOAT16}};
    const size_t variants = sizeof all / sizeof all[0];
    gyre_comm_t *world = NULL;
    OK(gyre_init(NULL, &world));
    const model_tp_t tp = {
        .comm = world, .rank = (size_t)gyre_comm_rank(world), .size = (size_t)gyre_comm_size(world)};
    model_token_t *tokens = memory(config.seq, sizeof *tokens);
    for (size_t t = 0; t < config.seq; t++)
        tokens[t] = (model_token_t)(model_random_bits(1, MODEL_RANDOM_DATA, 0, t) % config.vocab);
    const model_sequence_t sequence = {.tokens = tokens, .targets = tokens};

    const variant_t *first = NULL;
    for (size_t i = 0; i < variants; i++)
        if (all[i].leaves % tp.size == 0 && (!all[i].matmul_bf16 || model_matmul_has_bf16()))
            make(&all[i], config, tp, rounds);
    for (size_t r = 0; r < rounds + 3; r++) /* three to warm up */
        for (size_t i = 0; i < variants; i++) {
            if (!all[i].stage)
                continue;
            OK(gyre_barrier(world));
            const double start = now(CLOCK_MONOTONIC), ran = now(CLOCK_THREAD_CPUTIME_ID);
            for (int p = 0; p < PASSES; p++)
                pass(&all[i], &sequence);
            all[i].seconds[r < 3 ? 0 : r - 3] = (now(CLOCK_MONOTONIC) - start) / PASSES;
            all[i].running[r < 3 ? 0 : r - 3] = (now(CLOCK_THREAD_CPUTIME_ID) - ran) / PASSES;
        }
    for (size_t i = 0; i < variants; i++) {
        variant_t *v = &all[i];
        if (!v->stage)
            continue;
        qsort(v->seconds, rounds, sizeof(double), base_order_double);
        qsort(v->running, rounds, sizeof(double), base_order_double);
        first = first ? first : v;
        if (tp.rank == 0)
            printf("%-32s median %9.3f ms   fastest %9.3f ms   running %9.3f ms   ratios %.3f %.3f\n",
                   v->name, v->seconds[rounds / 2] * 1e3, v->seconds[0] * 1e3, v->running[rounds / 2] * 1e3,
                   v->seconds[rounds / 2] / first->seconds[rounds / 2],
                   v->running[rounds / 2] / first->running[rounds / 2]);
        model_stage_destroy_f32(v->stage);
        model_params_destroy(v->params);
        model_params_destroy(v->whole);
        free(v->weights);
        free(v->grads);
        free(v->seconds);
        free(v->running);
    }
    free(tokens);
    OK(gyre_finalize(world));
    return 0;
}
