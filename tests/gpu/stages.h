/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/stages.h: small models of every architecture, and a stage of the GPU run over a micro-batch of
 * two sequences, compared with the CPU's (tests/model/mp_stage.c has the same shapes). */
#ifndef TESTS_GPU_STAGES_H
#define TESTS_GPU_STAGES_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu/stage/stage.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "tests/gpu/gpu.h"
#include "tests/support/weights.h"

enum { LAYERS = 2, SEQUENCES = 2, LONGEST = 24 };

typedef struct {
    const char *name;
    model_config_t config;
} shape_t;

#define SMALL .layers = LAYERS, .hidden = 32
/* "GPT-2": blocks of positions are not all of a length, and leaves of the vocabulary are partly or wholly
 * padding */
static const shape_t shapes[] = {
    {"GPT-2", {SMALL, .vocab = 29, .vocab_padded = 44, .seq = 20, .heads = 4, .ffn = 48, .leaves = 4}},
    {"dropout, grouped, untied, no biases",
     {SMALL, .vocab = 40, .seq = 16, .heads = 8, .kv_heads = 4, .leaves = 4, .untied = 1, .no_qkv_bias = 1,
      .no_proj_bias = 1, .no_mlp_bias = 1, .dropout = 0.1, .attn_dropout = 0.2}},
    {"BLOOM",
     {SMALL, .vocab = 40, .seq = 16, .heads = 4, .leaves = 4, .pos = MODEL_POS_ALIBI, .embed_norm = 1,
      .dropout = 0.1}},
    {"GPT-NeoX",
     {SMALL, .vocab = 40, .seq = 16, .heads = 4, .leaves = 4, .pos = MODEL_POS_ROPE, .rotary_dim = 2,
      .rope_interleaved = 1, .act = MODEL_ACT_GELU_ERF, .parallel = 1, .untied = 1}},
    {"LLaMA",
     {SMALL, .vocab = 40, .seq = 16, .heads = 8, .kv_heads = 4, .ffn = 48, .leaves = 4, .pos = MODEL_POS_ROPE,
      .norm = MODEL_NORM_RMS, .act = MODEL_ACT_SILU, .gated = 1, .untied = 1, .no_qkv_bias = 1,
      .no_proj_bias = 1, .no_mlp_bias = 1}},
    {"SmolLM3", /* its second layer has no positions */
     {SMALL, .vocab = 40, .seq = 16, .heads = 8, .kv_heads = 4, .ffn = 48, .leaves = 4, .pos = MODEL_POS_ROPE,
      .norm = MODEL_NORM_RMS, .act = MODEL_ACT_SILU, .gated = 1, .no_qkv_bias = 1, .no_proj_bias = 1,
      .no_mlp_bias = 1, .nope_every = 2}},
    {"GLM-130B",
     {SMALL, .vocab = 40, .seq = 16, .heads = 4, .ffn = 48, .leaves = 4, .pos = MODEL_POS_ROPE,
      .post_norm = 1, .deepnorm = 2.8, .act = MODEL_ACT_GELU_ERF, .gated = 1, .prefix = 1,
      .embed_shrink = 0.1, .dropout = 0.1}},
    {"CodeGeeX",
     {SMALL, .vocab = 40, .seq = 16, .heads = 4, .leaves = 4, .act = MODEL_ACT_GELU_FAST, .top_query = 1}},
    {"experts", /* of which some drop positions */
     {SMALL, .vocab = 40, .seq = 16, .heads = 4, .ffn = 24, .leaves = 4, .pos = MODEL_POS_ROPE,
      .norm = MODEL_NORM_RMS, .act = MODEL_ACT_SILU, .gated = 1, .untied = 1, .no_qkv_bias = 1,
      .no_proj_bias = 1, .no_mlp_bias = 1, .experts = 8, .top_k = 3, .capacity = 1.0, .balance = 0.1,
      .dropout = 0.1}},
    {"experts, not gated",
     {SMALL, .vocab = 40, .seq = 18, .heads = 4, .ffn = 24, .leaves = 4, .experts = 4, .top_k = 1,
      .balance = 0.01}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct {
    size_t stages, grad_sequences;
    int sequence, split, offload;
    model_recompute_t recompute;
    model_precision_t precision;
    /* not OFF: the run goes three times over: kernel by kernel, captured, and by graphs alone */
    model_graphs_t graphs;
} layout_t;

/* A model, its batch, and what a run of it gave: losses, and the gradients of each sequence in the order
 * of the whole table. */
typedef struct {
    model_params_t *params;
    float *weights; /* [total] */
    model_token_t tokens[SEQUENCES][LONGEST], targets[SEQUENCES][LONGEST];
    int32_t positions[LONGEST];
    model_sequence_t sequence[SEQUENCES];
} whole_t;

typedef struct {
    double loss[SEQUENCES];
    float *grads[SEQUENCES];                  /* [grad_total] */
    model_routed_t routed[SEQUENCES][LAYERS]; /* with experts */
} result_t;

static inline void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s failed: %s\n", what, gyre_last_error());
    exit(1);
}

static inline uint16_t half_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Weights that are values of the precision, as an optimiser hands them out. */
static inline void make_whole(whole_t *w, const model_config_t *config, model_precision_t precision)
{
    const model_config_t c = model_config_complete(config);
    check(model_params_create(config, &w->params) == GYRE_OK, "the table");
    w->weights = malloc(w->params->total * sizeof(float));
    check(w->weights != NULL, "memory");
    init_params(w->params, 3, w->weights);
    for (size_t i = 0; i < w->params->total; i++) {
        uint32_t u;
        w->weights[i] +=
            0.02f * (float)model_random_normal(9, MODEL_RANDOM_PROBE, 0, i); /* biases and gains, too */
        u = (uint32_t)half_of(w->weights[i]) << 16;
        if (precision == MODEL_BFLOAT16)
            memcpy(&w->weights[i], &u, sizeof u);
    }
    for (size_t t = 0; t < c.seq; t++)
        w->positions[t] = t < 5 ? (int32_t)t : 2; /* as after a blank */
    for (size_t i = 0; i < SEQUENCES; i++) {
        for (size_t t = 0; t < c.seq; t++) {
            w->tokens[i][t] =
                (model_token_t)(model_random_bits(5, MODEL_RANDOM_PROBE, (uint32_t)i, t) % c.vocab);
            w->targets[i][t] =
                (model_token_t)(model_random_bits(6, MODEL_RANDOM_PROBE, (uint32_t)i, t) % c.vocab);
        }
        w->sequence[i] = (model_sequence_t){
            .tokens = w->tokens[i],
            .targets = w->targets[i],
            .sequence = i,
            .step = 7,
            .prefix = c.prefix ? 3 * i : 0,
            .positions = c.prefix && c.pos == MODEL_POS_ROPE && i == 1 ? w->positions : NULL};
    }
}

static inline void free_whole(whole_t *w)
{
    model_params_destroy(w->params);
    free(w->weights);
}

static inline result_t make_result(const whole_t *w)
{
    result_t r = {.grads = {calloc(w->params->grad_total, sizeof(float)),
                            calloc(w->params->grad_total, sizeof(float))}};
    check(r.grads[0] && r.grads[1], "memory");
    return r;
}

static inline void free_result(result_t *r)
{
    free(r->grads[0]);
    free(r->grads[1]);
}

/* ---- the GPU's store: weights and one sequence's gradients in device memory; ready puts those aside ---- */

typedef struct {
    model_params_t *params; /* this stage's slice */
    size_t size;            /* of a weight */
    char *weights;          /* device */
    float *grads;           /* device */
    float *aside;           /* device, [SEQUENCES][grad_total] */
    struct CUstream_st *stream;
    size_t held; /* units between acquire and release */
    size_t base; /* slot of sequence 0 */
    model_cuda_stage_t *stage;
} part_t;

static inline gyre_status_t part_acquire(void *user, size_t first, size_t rows, size_t next_first,
                                         size_t next_rows, const void **value)
{
    part_t *part = user;
    (void)next_first;
    (void)next_rows;
    check(part->held++ == 0, "acquire: one unit at a time");
    for (size_t i = 0; i < rows; i++)
        value[i] = part->weights + part->params->row[first + i].offset * part->size;
    return GYRE_OK;
}

static inline void part_release(void *user, size_t first, size_t rows)
{
    (void)first;
    (void)rows;
    ((part_t *)user)->held--;
}

static inline gyre_status_t part_place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    const part_t *part = user;
    (void)slot;
    for (size_t i = 0; i < rows; i++)
        grad[i] = part->grads + part->params->row[first + i].grad;
    return GYRE_OK;
}

static inline gyre_status_t part_ready(void *user, size_t slot, size_t first, size_t rows)
{
    const part_t *part = user;
    for (size_t i = first; i < first + rows; i++) {
        const model_param_t *row = &part->params->row[i];
        float *to = part->aside + (slot - part->base) * part->params->grad_total + row->grad;
        check(cudaMemcpyAsync(to, part->grads + row->grad, row->count * sizeof(float),
                              cudaMemcpyDeviceToDevice, part->stream) == cudaSuccess,
              "putting a gradient aside");
    }
    return GYRE_OK;
}

static inline void *device_memory(size_t bytes)
{
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes) == cudaSuccess && cudaMemset(memory, 0xff, bytes) == cudaSuccess,
          "device memory");
    return memory;
}

static inline void make_part(const whole_t *w, const model_tp_t *tp, const layout_t *layout, size_t index,
                             struct CUstream_st *stream, part_t *part)
{
    unsigned char has[LAYERS] = {0};
    size_t layers = LAYERS / layout->stages;
    const model_slice_t slice = {.tp_rank = tp->rank,
                                 .tp_size = tp->size,
                                 .has = has,
                                 .embed = index == 0,
                                 .head = index + 1 == layout->stages};
    memset(has + index * layers, 1, layers);
    *part = (part_t){.stream = stream, .size = layout->precision == MODEL_BFLOAT16 ? 2 : 4, .base = 2};
    check(model_params_slice(w->params, &slice, &part->params) == GYRE_OK, "slicing");
    part->weights = device_memory(part->params->total * part->size);
    part->grads = device_memory(part->params->grad_total * sizeof(float));
    part->aside = device_memory(SEQUENCES * part->params->grad_total * sizeof(float));
    for (size_t r = 0; r < part->params->rows; r++) {
        const model_param_t *row = &part->params->row[r];
        const float *from = w->weights + w->params->row[row->global].offset + row->first;
        uint16_t *half = malloc(row->count * 2);
        for (size_t i = 0; i < row->count; i++)
            half[i] = half_of(from[i]);
        check(cudaMemcpy(part->weights + row->offset * part->size,
                         part->size == 2 ? (const void *)half : from, row->count * part->size,
                         cudaMemcpyHostToDevice) == cudaSuccess,
              "copying weights");
        free(half);
    }
    const model_cuda_store_t store = {part_acquire, part_release, part_place, part_ready, part};
    const model_stage_config_t config = {.first = index * layers,
                                         .layers = layers,
                                         .embed = slice.embed,
                                         .head = slice.head,
                                         .slots = 2 * SEQUENCES,
                                         .together = SEQUENCES,
                                         .grad_sequences = layout->grad_sequences,
                                         .recompute = layout->recompute,
                                         .precision = layout->precision,
                                         .split = layout->split,
                                         .offload = layout->offload,
                                         .graphs = layout->graphs,
                                         .seed = 5};
    check(model_cuda_stage_create(part->params, tp, &config, &store, stream, &part->stage) == GYRE_OK,
          "creating a stage");
}

static inline void free_part(part_t *part)
{
    model_cuda_stage_destroy(part->stage);
    model_params_destroy(part->params);
    check(cudaFree(part->weights) == cudaSuccess && cudaFree(part->grads) == cudaSuccess &&
              cudaFree(part->aside) == cudaSuccess,
          "freeing device memory");
}

/* What one round left over is gone in the next. */
static inline void run_round(const whole_t *w, part_t *part, const layout_t *layout, void *const *edge,
                             double *loss, model_routed_t *routed)
{
    size_t P = layout->stages, each = LAYERS / layout->stages;
    for (size_t p = 0; p < P; p++) {
        size_t bytes = part[p].params->grad_total * sizeof(float);
        check(cudaMemsetAsync(part[p].grads, 0xff, bytes, part[p].stream) == cudaSuccess &&
                  cudaMemsetAsync(part[p].aside, 0xff, SEQUENCES * bytes, part[p].stream) == cudaSuccess,
              "forgetting gradients");
        check(model_cuda_stage_forward(part[p].stage, 2, SEQUENCES, w->sequence, edge[p], edge[p + 1],
                                       loss) == GYRE_OK,
              "forward");
        check(w->params->config.experts == 0 ||
                  model_cuda_stage_routed(part[p].stage, 2, SEQUENCES, routed + p * SEQUENCES * each) ==
                      GYRE_OK,
              "what became of choices");
    }
    for (size_t p = P; p-- > 0;)
        check(model_cuda_stage_backward(part[p].stage, 2, SEQUENCES, 0.5f, edge[p + 1], edge[p]) == GYRE_OK,
              "backward");
    for (size_t p = P; layout->split && p-- > 0;)
        check(model_cuda_stage_backward_weight(part[p].stage, 2, SEQUENCES) == GYRE_OK,
              "backward of weights");
}

/* A graph of every layer and of both ends: forward, backward, and each of the weights' gradients. */
static inline void check_graphs(const part_t *part, size_t index, const layout_t *layout)
{
    model_cuda_graphs_count_t count;
    size_t units = LAYERS / layout->stages + (index == 0) + (index + 1 == layout->stages),
           gradients = SEQUENCES / (layout->grad_sequences ? layout->grad_sequences : 1),
           graphs = layout->graphs ? units * (2 + gradients) : 0;
    model_cuda_stage_graphs(part->stage, &count);
    check(count.captured == graphs && count.launched == 2 * graphs && count.plain == graphs &&
              count.dropped == 0,
          "graphs");
}

/* Both sequences, which may have one gradient, the first one's, through all stages, all of whose leaves or a
 * share of whose leaves are here. What this rank does not have of the gradients stays as it is in `out`. */
static inline void run_gpu(const whole_t *w, const model_tp_t *tp, const layout_t *layout, result_t *out,
                           model_traffic_t *traffic)
{
    part_t part[LAYERS];
    void *edge[LAYERS + 1] = {0};
    size_t P = layout->stages, rounds = layout->graphs ? 3 : 1;
    size_t each = LAYERS / layout->stages;
    struct CUstream_st *stream;
    double *loss;
    model_routed_t *routed; /* [stages][SEQUENCES][its layers] */
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    check(cudaHostAlloc((void **)&loss, SEQUENCES * sizeof *loss, cudaHostAllocDefault) == cudaSuccess,
          "pinned memory");
    check(cudaHostAlloc((void **)&routed, LAYERS * SEQUENCES * sizeof *routed, cudaHostAllocDefault) ==
              cudaSuccess,
          "pinned memory");
    for (size_t p = 0; p < P; p++)
        make_part(w, tp, layout, p, stream, &part[p]);
    for (size_t p = 1; p < P; p++)
        edge[p] = device_memory(SEQUENCES * model_cuda_stage_boundary(part[p].stage) * part[p].size);
    for (size_t round = 0; round < rounds; round++)
        run_round(w, part, layout, edge, loss, routed);
    check(cudaStreamSynchronize(stream) == cudaSuccess, "waiting for the stream");
    memcpy(out->loss, loss, sizeof out->loss);
    for (size_t i = 0; w->params->config.experts > 0 && i < SEQUENCES; i++)
        for (size_t l = 0; l < LAYERS; l++)
            out->routed[i][l] = routed[(l / each * SEQUENCES + i) * each + l % each];
    *traffic = (model_traffic_t){0};
    for (size_t p = 0; p < P; p++) {
        const model_params_t *params = part[p].params;
        model_traffic_t t;
        float *host = malloc(SEQUENCES * params->grad_total * sizeof *host);
        check(host && cudaMemcpy(host, part[p].aside, SEQUENCES * params->grad_total * sizeof *host,
                                 cudaMemcpyDeviceToHost) == cudaSuccess,
              "copying gradients");
        for (size_t i = 0; i < SEQUENCES; i++)
            for (size_t r = 0; r < params->rows; r++) {
                const model_param_t *row = &params->row[r];
                memcpy(out->grads[i] + w->params->row[row->global].grad + row->first,
                       host + i * params->grad_total + row->grad, row->count * sizeof *host);
            }
        free(host);
        model_cuda_stage_traffic(part[p].stage, &t);
        check(t.all_reduce % rounds == 0 && t.reduce_scatter % rounds == 0 && t.all_gather % rounds == 0 &&
                  t.sums % rounds == 0 && t.loss % rounds == 0,
              "every round has the same traffic");
        traffic->all_reduce += t.all_reduce / rounds;
        traffic->reduce_scatter += t.reduce_scatter / rounds;
        traffic->all_gather += t.all_gather / rounds;
        traffic->sums += t.sums / rounds;
        traffic->loss += t.loss / rounds;
        check_graphs(&part[p], p, layout);
        free_part(&part[p]);
        check(cudaFree(edge[p]) == cudaSuccess, "freeing device memory");
    }
    check(cudaFreeHost(loss) == cudaSuccess && cudaFreeHost(routed) == cudaSuccess &&
              cudaStreamDestroy(stream) == cudaSuccess,
          "ending");
}

#endif
