/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/worker.c: a chunk on the CPU, or handed on to the GPU (worker_gpu.c). */
#include <stdlib.h>

#include "base/error.h"
#include "pipeline/train/worker_gpu.h"

struct pipe_worker {
    model_stage_t_f32 *stage; /* NULL: on the GPU */
    pipe_gpu_stage_t *gpu;
    int head;
    size_t layers;
    pipe_routed_fn routed;
    void *user;
    void (*z_loss)(void *user, double z);
    double *each; /* [together] losses */
};

gyre_status_t pipe_worker_create(const pipe_worker_config_t *config, pipe_worker_t **out)
{
    pipe_worker_t *w = calloc(1, sizeof *w);
    size_t together = config->config->together ? config->config->together : 1;
    if (!w || !(w->each = calloc(together, sizeof *w->each))) {
        free(w);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stage");
    }
    w->head = config->config->head;
    w->layers = config->config->layers;
    w->routed = config->routed;
    w->z_loss = config->z_loss;
    w->user = config->user;
    gyre_status_t status = config->gpu ? pipe_gpu_stage_create(config, &w->gpu)
                                       : model_stage_create_f32(config->params, config->tp, config->config,
                                                                config->store, config->isa, &w->stage);
    if (status != GYRE_OK) {
        pipe_worker_destroy(w);
        return status;
    }
    *out = w;
    return GYRE_OK;
}

void pipe_worker_destroy(pipe_worker_t *w)
{
    if (!w)
        return;
    model_stage_destroy_f32(w->stage);
    pipe_gpu_stage_destroy(w->gpu);
    free(w->each);
    free(w);
}

size_t pipe_worker_boundary(const pipe_worker_t *w)
{
    return w->gpu ? pipe_gpu_stage_boundary(w->gpu) : model_stage_boundary_f32(w->stage);
}

gyre_type_t pipe_worker_type(const pipe_worker_t *w)
{
    return w->gpu ? pipe_gpu_stage_type(w->gpu) : GYRE_FLOAT32;
}

size_t pipe_worker_bytes(const pipe_worker_t *w)
{
    size_t workspace;
    if (w->gpu)
        return pipe_gpu_stage_bytes(w->gpu);
    size_t kept = model_stage_bytes_f32(w->stage, &workspace);
    return kept + workspace;
}

base_time_t pipe_worker_exposed(const pipe_worker_t *w)
{
    return w->gpu ? 0 : model_stage_exposed_f32(w->stage);
}

void pipe_worker_watch(pipe_worker_t *w, model_spans_t *spans)
{
    if (w->gpu)
        pipe_gpu_stage_watch(w->gpu, spans != NULL);
    else
        model_stage_watch_f32(w->stage, spans);
}

static void tell_routed(const pipe_worker_t *w, size_t slot, size_t n)
{
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < w->layers; l++) {
            model_routed_t routed;
            model_stage_routed_f32(w->stage, slot + j, l, &routed);
            w->routed(w->user, &routed);
        }
}

gyre_status_t pipe_worker_forward(pipe_worker_t *w, size_t slot, size_t n, const model_sequence_t *sequence,
                                  const void *in, void *out, double *loss, size_t step)
{
    if (w->gpu)
        return pipe_gpu_stage_forward(w->gpu, slot, n, sequence, in, out, loss, step);
    gyre_status_t status = model_stage_forward_batch_f32(w->stage, slot, n, sequence, in, out,
                                                         sequence->evaluate ? w->each : NULL);
    for (size_t j = 0; w->head && loss && sequence->evaluate && j < n; j++)
        loss[j * step] = w->each[j];
    if (status == GYRE_OK && w->routed && !sequence->evaluate)
        tell_routed(w, slot, n);
    return status;
}

gyre_status_t pipe_worker_backward(pipe_worker_t *w, size_t slot, size_t n, float scale, const void *d_out,
                                   void *d_in, double *loss, size_t step)
{
    if (w->gpu)
        return pipe_gpu_stage_backward(w->gpu, slot, n, scale, d_out, d_in);
    gyre_status_t status = model_stage_backward_batch_f32(w->stage, slot, n, scale, d_out, d_in);
    for (size_t j = 0; w->head && loss && j < n; j++)
        loss[j * step] = model_stage_loss_f32(w->stage, slot + j);
    for (size_t j = 0; w->head && w->z_loss && j < n; j++)
        w->z_loss(w->user, model_stage_z_loss_f32(w->stage, slot + j));
    return status;
}

gyre_status_t pipe_worker_backward_weight(pipe_worker_t *w, size_t slot, size_t n)
{
    return w->gpu ? pipe_gpu_stage_backward_weight(w->gpu, slot, n)
                  : model_stage_backward_weight_batch_f32(w->stage, slot, n);
}
