/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/worker_gpu.c: a chunk on the GPU. Tensors between stages are on the device, where the
 * executor has its slots. */
#include "pipeline/train/worker_gpu.h"

#include <string.h>

#include "base/error.h"

#ifdef GYRE_CUDA
#include <stdlib.h>

#include "base/checked.h"
#include "model/gpu/products/matmul.h"
#include "model/gpu/stage/stage.h"

struct pipe_gpu {
    base_device_t device;
    base_stream_t *stream;
    double *pinned;   /* [losses] */
    double **deliver; /* [losses] where each goes */
    size_t losses, outstanding;
    /* of models with experts */
    model_routed_t *routed;       /* pinned; NULL: nobody asks */
    size_t most_routed, routings; /* how many it has room for, and are outstanding */
    pipe_routed_fn tell;
    void *user;
};

/* Layers of sequences that may be outstanding, 1 MiB, if no micro-batch has more; a step that has waits on
 * its way. */
enum { MANY_ROUTED = 1 << 16 };

enum { ALIGN = 16 }; /* of tensors, as kernels like them */

struct pipe_gpu_stage {
    pipe_gpu_t *gpu;
    model_cuda_stage_t *stage;
    size_t layers;
    size_t edge; /* bytes of a sequence's tensor between stages */
    int watched; /* 1: passes are waited for, so that what is noted of them is their time on the GPU */
    int head;
    void *low, *high; /* [together] tensors, where kernels cannot work in any part of one; else NULL */
};

/* ---- the GPU ------------------------------------------------------------------------------------------- */

/* Room for so many losses; none is outstanding. */
static gyre_status_t reserve(pipe_gpu_t *g, size_t losses)
{
    void *pinned;
    if (losses <= g->losses)
        return GYRE_OK;
    double **deliver = calloc(losses, sizeof *deliver);
    if (!deliver)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the losses of %zu sequences", losses);
    gyre_status_t status = base_pinned_alloc(g->device, losses * sizeof *g->pinned, &pinned);
    if (status != GYRE_OK) {
        free(deliver);
        return status;
    }
    if (g->pinned)
        base_pinned_free(g->device, g->pinned);
    free(g->deliver);
    g->pinned = pinned;
    g->deliver = deliver;
    g->losses = losses;
    return GYRE_OK;
}

/* Room for a stage's, of which none is outstanding. */
static gyre_status_t expect_routed(pipe_gpu_t *g, const pipe_worker_config_t *config)
{
    size_t together = base_max_size(1, config->config->together),
           most = base_max_size(MANY_ROUTED, together * config->config->layers);
    void *pinned;
    if (!config->routed || most <= g->most_routed)
        return GYRE_OK;
    gyre_status_t status = base_pinned_alloc(g->device, most * sizeof *g->routed, &pinned);
    if (status != GYRE_OK)
        return status;
    if (g->routed)
        base_pinned_free(g->device, g->routed);
    g->routed = pinned;
    g->most_routed = most;
    g->tell = config->routed;
    g->user = config->user;
    return GYRE_OK;
}

gyre_status_t pipe_gpu_create(int index, size_t losses, pipe_gpu_t **out)
{
    const base_device_t device = {.kind = BASE_CUDA, .index = index};
    pipe_gpu_t *g = calloc(1, sizeof *g);
    if (!g)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a GPU's work");
    g->device = device;
    gyre_status_t status = base_device_use(device);
    if (status == GYRE_OK)
        status = base_stream_create(device, &g->stream);
    if (status == GYRE_OK)
        status = reserve(g, losses);
    if (status != GYRE_OK) {
        pipe_gpu_destroy(g);
        return status;
    }
    *out = g;
    return GYRE_OK;
}

void pipe_gpu_destroy(pipe_gpu_t *g)
{
    if (!g)
        return;
    if (g->pinned)
        base_pinned_free(g->device, g->pinned);
    if (g->routed)
        base_pinned_free(g->device, g->routed);
    if (g->stream)
        base_stream_destroy(g->stream);
    free(g->deliver);
    free(g);
}

gyre_status_t pipe_gpu_zero(pipe_gpu_t *g, void *memory, size_t bytes)
{
    if (g)
        return base_stream_zero(g->stream, memory, bytes);
    memset(memory, 0, bytes);
    return GYRE_OK;
}

void *pipe_gpu_stream(const pipe_gpu_t *g)
{
    return base_stream_native(g->stream);
}

gyre_status_t pipe_gpu_finish(pipe_gpu_t *g)
{
    gyre_status_t status = g ? base_stream_wait(g->stream) : GYRE_OK;
    for (size_t i = 0; g && status == GYRE_OK && i < g->outstanding; i++)
        *g->deliver[i] = g->pinned[i];
    for (size_t i = 0; g && status == GYRE_OK && i < g->routings; i++)
        g->tell(g->user, &g->routed[i]);
    if (g)
        g->outstanding = g->routings = 0;
    return status;
}

/* ---- a stage ------------------------------------------------------------------------------------------- */

gyre_status_t pipe_gpu_stage_create(const pipe_worker_config_t *config, pipe_gpu_stage_t **out)
{
    pipe_gpu_t *g = config->gpu;
    size_t together = config->config->together ? config->config->together : 1;
    pipe_gpu_stage_t *s = calloc(1, sizeof *s);
    if (!s)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stage");
    s->gpu = g;
    s->layers = config->config->layers;
    gyre_status_t status =
        model_cuda_stage_create(config->params, config->tp, config->config, config->cuda_store,
                                base_stream_native(g->stream), &s->stage);
    if (status == GYRE_OK)
        s->edge = model_cuda_stage_boundary(s->stage) * gyre_type_size(model_cuda_stage_type(s->stage));
    if (status == GYRE_OK)
        status = expect_routed(g, config);
    s->head = config->config->head;
    if (status == GYRE_OK && s->head)
        status = reserve(g, together); /* one pass has as many losses */
    if (status == GYRE_OK && s->edge % ALIGN && !config->config->embed)
        status = base_device_alloc(g->device, together * s->edge, &s->low);
    if (status == GYRE_OK && s->edge % ALIGN && !config->config->head)
        status = base_device_alloc(g->device, together * s->edge, &s->high);
    if (status != GYRE_OK) {
        pipe_gpu_stage_destroy(s);
        return status;
    }
    *out = s;
    return GYRE_OK;
}

void pipe_gpu_stage_destroy(pipe_gpu_stage_t *s)
{
    if (!s)
        return;
    model_cuda_stage_destroy(s->stage);
    if (s->low)
        base_device_free(s->gpu->device, s->low);
    if (s->high)
        base_device_free(s->gpu->device, s->high);
    free(s);
}

size_t pipe_gpu_stage_boundary(const pipe_gpu_stage_t *s)
{
    return model_cuda_stage_boundary(s->stage);
}

gyre_type_t pipe_gpu_stage_type(const pipe_gpu_stage_t *s)
{
    return model_cuda_stage_type(s->stage);
}

size_t pipe_gpu_stage_bytes(const pipe_gpu_stage_t *s)
{
    size_t workspace, kept = model_cuda_stage_bytes(s->stage, &workspace);
    return kept + workspace;
}

/* What the routers do in a forward of n sequences, for pipe_gpu_finish. */
static gyre_status_t note_routed(pipe_gpu_stage_t *s, size_t slot, size_t n)
{
    pipe_gpu_t *g = s->gpu;
    gyre_status_t status = model_cuda_stage_routed(s->stage, slot, n, g->routed + g->routings);
    g->routings += status == GYRE_OK ? n * s->layers : 0;
    return status;
}

/* ---- passes -------------------------------------------------------------------------------------------- */

/* A part of a micro-batch's tensor begins where its sequences do, which need not be where kernels can
 * work: those go by a copy. */
static int is_apart(const void *tensor, const void *own)
{
    return tensor && own && (uintptr_t)tensor % ALIGN != 0;
}

static gyre_status_t bring(pipe_gpu_stage_t *s, void *own, const void **tensor, size_t n)
{
    const void *from = *tensor;
    if (!is_apart(from, own))
        return GYRE_OK;
    *tensor = own;
    return base_stream_copy(s->gpu->stream, own, from, n * s->edge);
}

/* The end of a pass, whose output lies in `made`. */
static gyre_status_t hand_over(pipe_gpu_stage_t *s, void *tensor, const void *made, size_t n)
{
    gyre_status_t status =
        tensor != made ? base_stream_copy(s->gpu->stream, tensor, made, n * s->edge) : GYRE_OK;
    return status == GYRE_OK && s->watched ? base_stream_wait(s->gpu->stream) : status;
}

gyre_status_t pipe_gpu_stage_forward(pipe_gpu_stage_t *s, size_t slot, size_t n,
                                     const model_sequence_t *sequence, const void *in, void *out,
                                     double *loss, size_t step)
{
    pipe_gpu_t *g = s->gpu;
    int asked = loss && s->head, routed = g->routed && !sequence->evaluate;
    int full =
        (asked && g->outstanding + n > g->losses) || (routed && g->routings + n * s->layers > g->most_routed);
    void *made = is_apart(out, s->high) ? s->high : out;
    gyre_status_t status = full ? pipe_gpu_finish(g) : GYRE_OK;
    if (status == GYRE_OK)
        status = bring(s, s->low, &in, n);
    if (status == GYRE_OK)
        status = model_cuda_stage_forward(s->stage, slot, n, sequence, in, made,
                                          asked ? g->pinned + g->outstanding : NULL);
    for (size_t j = 0; asked && status == GYRE_OK && j < n; j++)
        g->deliver[g->outstanding++] = loss + j * step;
    if (routed && status == GYRE_OK)
        status = note_routed(s, slot, n);
    return status == GYRE_OK ? hand_over(s, out, made, n) : status;
}

gyre_status_t pipe_gpu_stage_backward(pipe_gpu_stage_t *s, size_t slot, size_t n, float scale,
                                      const void *d_out, void *d_in)
{
    void *made = is_apart(d_in, s->low) ? s->low : d_in;
    gyre_status_t status = bring(s, s->high, &d_out, n);
    if (status == GYRE_OK)
        status = model_cuda_stage_backward(s->stage, slot, n, scale, d_out, made);
    return status == GYRE_OK ? hand_over(s, d_in, made, n) : status;
}

gyre_status_t pipe_gpu_stage_backward_weight(pipe_gpu_stage_t *s, size_t slot, size_t n)
{
    gyre_status_t status = model_cuda_stage_backward_weight(s->stage, slot, n);
    return status == GYRE_OK ? hand_over(s, NULL, NULL, n) : status;
}

void pipe_gpu_stage_watch(pipe_gpu_stage_t *s, int watched)
{
    s->watched = watched;
}

/* ---- what it can do at most ---------------------------------------------------------------------------- */

enum { SHORTEST_SIDE = 128, LONGEST_SIDE = 8192, TIMES = 3 };
#define LONG_ENOUGH_MS 5.0

/* The best rate of a few products of side x side matrices. */
static gyre_status_t rate_of(model_cuda_matmul_t *matmul, base_stream_t *stream, base_event_t *const event[2],
                             size_t side, model_cuda_type_t type, char *memory, double *flops, double *ms)
{
    const model_cuda_product_t p = {.M = side,
                                    .N = side,
                                    .K = side,
                                    .lda = side,
                                    .ldb = side,
                                    .ldd = side,
                                    .alpha = 1,
                                    .in = type,
                                    .out = type};
    size_t bytes = side * side * (type == MODEL_CUDA_BF16 ? 2 : 4);
    gyre_status_t status = base_stream_zero(stream, memory, 3 * bytes);
    for (size_t i = 0; status == GYRE_OK && i < TIMES; i++) {
        if ((status = base_event_record(event[0], stream)) == GYRE_OK)
            status = model_cuda_matmul(matmul, &p, memory, memory + bytes, memory + 2 * bytes,
                                       base_stream_native(stream));
        if (status == GYRE_OK && (status = base_event_record(event[1], stream)) == GYRE_OK)
            status = base_event_wait(event[1]);
        if (status == GYRE_OK && (status = base_event_elapsed_ms(event[0], event[1], ms)) == GYRE_OK &&
            *ms > 0.0) {
            double rate = 2.0 * (double)side * (double)side * (double)side / (*ms * 1e-3);
            *flops = rate > *flops ? rate : *flops;
        }
    }
    return status;
}

gyre_status_t pipe_gpu_peak(base_device_t device, model_precision_t precision, double *flops)
{
    const model_cuda_type_t type = precision == MODEL_BFLOAT16 ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
    size_t side = LONGEST_SIDE, free_bytes = 0, element = type == MODEL_CUDA_BF16 ? 2 : 4;
    model_cuda_matmul_t *matmul = NULL;
    base_stream_t *stream = NULL;
    base_event_t *event[2] = {NULL, NULL};
    void *memory = NULL;
    double ms = 0.0;
    *flops = 0.0;
    gyre_status_t status = base_device_use(device);
    if (status == GYRE_OK)
        status = base_device_memory(device, &free_bytes, NULL);
    while (side > SHORTEST_SIDE && 3 * side * side * element > free_bytes / 4)
        side /= 2;
    size_t bytes = 3 * side * side * element, longest = side;
    if (status == GYRE_OK && (status = base_device_alloc(device, bytes, &memory)) == GYRE_OK &&
        (status = base_stream_create(device, &stream)) == GYRE_OK &&
        (status = base_event_create(device, 1, &event[0])) == GYRE_OK &&
        (status = base_event_create(device, 1, &event[1])) == GYRE_OK)
        status = model_cuda_matmul_create(&matmul);
    for (side = SHORTEST_SIDE; status == GYRE_OK && side <= longest && ms < LONG_ENOUGH_MS; side *= 2)
        status = rate_of(matmul, stream, event, side, type, memory, flops, &ms);
    model_cuda_matmul_destroy(matmul);
    for (size_t i = 0; i < 2; i++)
        if (event[i])
            base_event_destroy(event[i]);
    if (stream)
        base_stream_destroy(stream);
    if (memory)
        base_device_free(device, memory);
    return status;
}

#else

/* Without the first none of the others is reached. */
gyre_status_t pipe_gpu_create(int index, size_t losses, pipe_gpu_t **out)
{
    (void)index, (void)losses, (void)out;
    return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s", base_device_why_not(BASE_CUDA));
}

void pipe_gpu_destroy(pipe_gpu_t *g)
{
    (void)g;
}

gyre_status_t pipe_gpu_zero(pipe_gpu_t *g, void *memory, size_t bytes)
{
    (void)g;
    memset(memory, 0, bytes);
    return GYRE_OK;
}

void *pipe_gpu_stream(const pipe_gpu_t *g)
{
    (void)g;
    return NULL;
}

gyre_status_t pipe_gpu_finish(pipe_gpu_t *g)
{
    (void)g;
    return GYRE_OK;
}

gyre_status_t pipe_gpu_stage_create(const pipe_worker_config_t *config, pipe_gpu_stage_t **out)
{
    (void)config, (void)out;
    return GYRE_ERR_UNSUPPORTED;
}

void pipe_gpu_stage_destroy(pipe_gpu_stage_t *s)
{
    (void)s;
}

size_t pipe_gpu_stage_boundary(const pipe_gpu_stage_t *s)
{
    (void)s;
    return 0;
}

gyre_type_t pipe_gpu_stage_type(const pipe_gpu_stage_t *s)
{
    (void)s;
    return GYRE_FLOAT32;
}

size_t pipe_gpu_stage_bytes(const pipe_gpu_stage_t *s)
{
    (void)s;
    return 0;
}

gyre_status_t pipe_gpu_stage_forward(pipe_gpu_stage_t *s, size_t slot, size_t n,
                                     const model_sequence_t *sequence, const void *in, void *out,
                                     double *loss, size_t step)
{
    (void)s, (void)slot, (void)n, (void)sequence, (void)in, (void)out, (void)loss, (void)step;
    return GYRE_ERR_UNSUPPORTED;
}

gyre_status_t pipe_gpu_stage_backward(pipe_gpu_stage_t *s, size_t slot, size_t n, float scale,
                                      const void *d_out, void *d_in)
{
    (void)s, (void)slot, (void)n, (void)scale, (void)d_out, (void)d_in;
    return GYRE_ERR_UNSUPPORTED;
}

gyre_status_t pipe_gpu_stage_backward_weight(pipe_gpu_stage_t *s, size_t slot, size_t n)
{
    (void)s, (void)slot, (void)n;
    return GYRE_ERR_UNSUPPORTED;
}

void pipe_gpu_stage_watch(pipe_gpu_stage_t *s, int watched)
{
    (void)s, (void)watched;
}

gyre_status_t pipe_gpu_peak(base_device_t device, model_precision_t precision, double *flops)
{
    (void)device, (void)precision, (void)flops;
    return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s", base_device_why_not(BASE_CUDA));
}
#endif
