/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/offload.c: activations that wait in host memory.
 *
 * With full recomputation a slot keeps one tensor per layer, its input x. With offloading the GPU has two of
 * them for the whole stage, which take turns. While layer l computes, its x goes to pinned memory of the
 * host. In backward the x of the layer below comes while a layer is computed again and differentiated
 * (Rajbhandari et al. 2021; Megatron's and DeepSpeed's CPU checkpointing). A copy moves R C elements while
 * the layer makes at least 24 R C^2 operations with them. By that, on an H100 at half of its bf16 peak with
 * 50 GB/s of PCIe, the copy is hidden from C = 1024 or so on (*estimate*). Bits do not change. */
#ifdef GYRE_CUDA
#include "base/error.h"
#include "model/gpu/stage/runtime.h"

static size_t slot_bytes(const stage_t *s, size_t n)
{
    return n * s->here * s->c.hidden * s->size;
}

/* Where layer l's x of the slot waits. */
static void *away_at(const stage_t *s, const slot_t *slot, size_t l)
{
    return (char *)slot->away + l * slot_bytes(s, s->config.together);
}

gyre_status_t stage_offload_create(stage_t *s)
{
    offload_t *o = &s->offload;
    size_t bytes = s->config.layers * slot_bytes(s, s->config.together);
    if (!s->config.offload)
        return GYRE_OK;
    cudaError_t rc = cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking);
    cudaEvent_t *event[] = {&o->saved[0], &o->saved[1], &o->fetched[0], &o->fetched[1], &o->edge};
    for (size_t i = 0; rc == cudaSuccess && i < sizeof event / sizeof *event; i++)
        rc = cudaEventCreateWithFlags(event[i], cudaEventDisableTiming);
    for (size_t i = 0; rc == cudaSuccess && i < s->config.slots; i++)
        rc = cudaHostAlloc(&s->slot[i].away, bytes + 1, cudaHostAllocDefault);
    if (rc == cudaSuccess)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NO_MEMORY,
                     "offload of activations: %zu times %zu MiB of pinned host memory: %s: take smaller "
                     "micro-batches or more pipeline stages, or leave them on the GPU",
                     s->config.slots, bytes >> 20, cudaGetErrorString(rc));
}

void stage_offload_destroy(stage_t *s)
{
    offload_t *o = &s->offload;
    cudaEvent_t event[] = {o->saved[0], o->saved[1], o->fetched[0], o->fetched[1], o->edge};
    if (o->stream)
        cudaStreamSynchronize(o->stream); /* as in model_cuda_stage_destroy */
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        if (event[i])
            cudaEventDestroy(event[i]);
    if (o->stream)
        cudaStreamDestroy(o->stream);
    for (size_t i = 0; s->slot && i < s->config.slots; i++)
        if (s->slot[i].away)
            cudaFreeHost(s->slot[i].away);
}

void stage_offload_room(stage_t *s, size_t l)
{
    if (s->config.offload && s->status == GYRE_OK && l < s->config.layers)
        stage_call(s, cudaStreamWaitEvent(s->stream, s->offload.saved[l % 2], 0), "waiting for an offload");
}

/* Enqueues a copy on the offload's stream, after the work that the stage's stream has so far; `done` is
 * recorded after the copy. */
static void move(stage_t *s, void *to, const void *from, size_t bytes, cudaEvent_t done)
{
    offload_t *o = &s->offload;
    if (s->status == GYRE_OK)
        stage_call(s, cudaEventRecord(o->edge, s->stream), "recording an event");
    if (s->status == GYRE_OK)
        stage_call(s, cudaStreamWaitEvent(o->stream, o->edge, 0), "waiting for an event");
    if (s->status == GYRE_OK)
        stage_call(s, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, o->stream), "moving activations");
    if (s->status == GYRE_OK)
        stage_call(s, cudaEventRecord(done, o->stream), "recording an event");
}

void stage_offload_save(stage_t *s, const slot_t *slot, size_t l)
{
    if (s->config.offload)
        move(s, away_at(s, slot, l), s->offload.ring[l % 2], slot_bytes(s, slot->n), s->offload.saved[l % 2]);
}

static void fetch(stage_t *s, const slot_t *slot, size_t l)
{
    move(s, s->offload.ring[l % 2], away_at(s, slot, l), slot_bytes(s, slot->n), s->offload.fetched[l % 2]);
}

void stage_offload_bring(stage_t *s, const slot_t *slot, size_t l)
{
    if (!s->config.offload)
        return;
    if (l + 1 == s->config.layers)
        fetch(s, slot, l);
    if (s->status == GYRE_OK)
        stage_call(s, cudaStreamWaitEvent(s->stream, s->offload.fetched[l % 2], 0),
                   "waiting for activations");
    if (l > 0) /* it takes the place of the layer above, whose work is in the stage's stream by now */
        fetch(s, slot, l - 1);
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
