/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/memory.c: a stage's creation on the GPU: the places of its rows, and its memory. */
#ifdef GYRE_CUDA
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/gpu/stage/runtime.h"

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Rows of the table with this `layer`, which stand together. */
static unit_t find_rows(const model_params_t *params, int layer)
{
    unit_t unit = {0, 0};
    for (size_t r = 0; r < params->rows; r++)
        if (params->row[r].layer == layer) {
            unit.first = unit.rows == 0 ? r : unit.first;
            unit.rows++;
        }
    return unit;
}

static gyre_status_t take_rows(stage_t *s)
{
    int all = 1;
    s->unit_layer = calloc(s->config.layers + 1, sizeof *s->unit_layer);
    if (!s->unit_layer)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stage of %zu layers", s->config.layers);
    for (size_t l = 0; l < s->config.layers; l++) {
        s->unit_layer[l] = find_rows(s->params, (int)(s->config.first + l));
        all &= s->unit_layer[l].rows > 0;
    }
    s->unit_embed = find_rows(s->params, -1);
    s->unit_head = find_rows(s->params, (int)s->c.layers);
    all &= (!s->config.embed || s->unit_embed.rows > 0) && (!s->config.head || s->unit_head.rows > 0);
    if (!all)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the table of parameters lacks rows of layers %zu..%zu%s%s: slice it for this stage",
                         s->config.first, s->config.first + s->config.layers - 1,
                         s->config.embed ? ", embedding" : "", s->config.head ? ", head" : "");
    return GYRE_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static gyre_status_t no_memory(const stage_t *s, const char *what)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY,
                     "no memory for the activations of %zu micro-batches of %zu sequences of %zu positions "
                     "in %zu layers, hidden "
                     "%zu, on the GPU (%zu MiB and %zu MiB of workspace): %s: take recomputation, a smaller "
                     "micro-batch or more "
                     "pipeline stages",
                     s->config.slots, s->config.together, s->c.seq, s->config.layers, s->c.hidden,
                     s->kept.used >> 20, s->work.used >> 20, what);
}

static gyre_status_t take_host(stage_t *s)
{
    input_t in;
    s->slot = calloc(s->config.slots, sizeof *s->slot);
    s->last = malloc(s->c.vocab * sizeof *s->last);
    if (!s->slot || !s->last)
        return no_memory(s, "the host's is out");
    memset(s->last, 0xff, s->c.vocab * sizeof *s->last);
    s->input_bytes = stage_lay_input(s, &in, NULL);
    for (size_t i = 0; i < s->config.slots; i++) {
        slot_t *slot = &s->slot[i];
        slot->layer = calloc(s->config.layers + 1, sizeof *slot->layer);
        if (!slot->layer)
            return no_memory(s, "the host's is out");
        cudaError_t rc = cudaHostAlloc(&slot->host, s->input_bytes, cudaHostAllocDefault);
        if (rc == cudaSuccess)
            rc = cudaEventCreateWithFlags(&slot->read, cudaEventDisableTiming);
        if (rc != cudaSuccess)
            return no_memory(s, cudaGetErrorString(rc));
        memset(slot->host, 0, s->input_bytes);
        stage_lay_input(s, &slot->in, slot->host);
    }
    return GYRE_OK;
}

static gyre_status_t take_device(stage_t *s)
{
    if (!stage_countable(s))
        return no_memory(s, "more than there can be");
    stage_lay_out(s);
    const size_t bytes[2] = {s->kept.used + 256, s->work.used + 256};
    pool_t *pool[2] = {&s->kept, &s->work};
    for (size_t i = 0; i < 2; i++) {
        void *base = NULL;
        cudaError_t rc = cudaMalloc(&base, bytes[i]);
        if (rc != cudaSuccess)
            return no_memory(s, cudaGetErrorString(rc));
        pool[i]->base = base;
        stage_call(s, cudaMemsetAsync(base, 0, bytes[i], s->stream), "clearing memory");
    }
    stage_lay_out(s);
    return s->status;
}

/* Tables that do not change: angles, slopes. */
static gyre_status_t fill_tables(stage_t *s)
{
    size_t half = s->c.rotary_dim / 2, heads = s->g * s->leaf_heads,
           count = base_max_size(s->c.seq * s->c.rotary_dim, heads);
    float *host = calloc(count + 1, sizeof *host);
    if (!host)
        return no_memory(s, "the host's is out");
    if (s->turn) {
        model_rope_table_f32(host, s->c.seq, half, &s->c.rope);
        stage_copy(s, s->turn, host, s->c.seq * 2 * half * sizeof *host);
    }
    for (size_t h = 0; s->slopes && h < heads; h++)
        host[h] = (float)model_alibi_slope(s->tp.rank * heads + h, s->c.heads);
    if (s->slopes)
        stage_copy(s, s->slopes, host, heads * sizeof *host);
    if (s->status == GYRE_OK)
        stage_call(s, cudaStreamSynchronize(s->stream), "filling tables");
    free(host);
    return s->status;
}

/* ---- creation ------------------------------------------------------------------------------------------ */

gyre_status_t model_cuda_stage_create(const model_params_t *params, const model_tp_t *tp,
                                      const model_stage_config_t *config, const model_cuda_store_t *store,
                                      struct CUstream_st *stream, model_cuda_stage_t **out)
{
    gyre_status_t status = stage_check(&params->config, tp, config);
    if (status == GYRE_OK)
        status = model_cuda_attention_fits(
            config->precision == MODEL_FLOAT32 ? MODEL_CUDA_F32 : MODEL_CUDA_BF16, params->config.head_dim);
    if (status != GYRE_OK)
        return status;
    stage_t *s = calloc(1, sizeof *s);
    if (!s)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stage");
    s->params = params;
    s->c = params->config;
    s->config = *config;
    s->tp = *tp;
    s->store = *store;
    s->stream = stream;
    stage_measure(s);
    if ((status = take_rows(s)) == GYRE_OK && (status = take_host(s)) == GYRE_OK &&
        (status = take_device(s)) == GYRE_OK && (status = stage_offload_create(s)) == GYRE_OK &&
        (status = fill_tables(s)) == GYRE_OK && (status = model_cuda_matmul_create(&s->matmul)) == GYRE_OK)
        status = stage_graphs_create(s);
    if (status != GYRE_OK) {
        model_cuda_stage_destroy(s);
        return status;
    }
    *out = s;
    return GYRE_OK;
}

void model_cuda_stage_destroy(model_cuda_stage_t *s)
{
    if (!s)
        return;
    cudaStreamSynchronize(s->stream); /* an error here was returned earlier, or has no effect any more */
    stage_graphs_destroy(s);
    stage_offload_destroy(s);
    model_cuda_matmul_destroy(s->matmul);
    for (size_t i = 0; s->slot && i < s->config.slots; i++) {
        free(s->slot[i].layer);
        if (s->slot[i].host)
            cudaFreeHost(s->slot[i].host);
        if (s->slot[i].read)
            cudaEventDestroy(s->slot[i].read);
    }
    cudaFree(s->kept.base);
    cudaFree(s->work.base);
    free(s->slot);
    free(s->last);
    free(s->unit_layer);
    free(s);
}

gyre_type_t model_cuda_stage_type(const model_cuda_stage_t *s)
{
    return s->type == MODEL_CUDA_BF16 ? GYRE_BFLOAT16 : GYRE_FLOAT32;
}

size_t model_cuda_stage_boundary(const model_cuda_stage_t *s)
{
    return s->here * s->c.hidden;
}

size_t model_cuda_stage_bytes(const model_cuda_stage_t *s, size_t *workspace)
{
    if (workspace)
        *workspace = s->work.used;
    return s->kept.used;
}

void model_cuda_stage_traffic(const model_cuda_stage_t *s, model_traffic_t *out)
{
    *out = s->traffic;
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
