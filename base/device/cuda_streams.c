/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/cuda_streams.c: streams and events with the CUDA runtime. */
#include "base/device/cuda.h"

#ifdef GYRE_CUDA

#include <stdlib.h>
#include <string.h>

#include "base/device/cuda_error.h"
#include "base/error.h"

struct base_cuda_stream {
    int index;
    int borrowed; /* the caller's: not destroyed */
    cudaStream_t stream;
};

struct base_cuda_event {
    int index;
    int timed, recorded;
    cudaEvent_t event;
};

/* ---- streams ------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_stream_create(int index, int urgent, base_cuda_stream_t **stream)
{
    int before, least = 0, greatest = 0;
    base_cuda_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream create: no memory left");
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        goto free_stream;
    fresh->index = index;
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&fresh->stream, cudaStreamNonBlocking, urgent ? greatest : least);
    if (rc != cudaSuccess)
        status = base_cuda_failed(rc, index, "cudaStreamCreateWithPriority(%d)", urgent ? greatest : least);
    base_cuda_leave(index, before);
    if (status != GYRE_OK)
        goto free_stream;
    *stream = fresh;
    return GYRE_OK;
free_stream:
    free(fresh);
    return status;
}

gyre_status_t base_cuda_stream_wrap(int index, void *native, base_cuda_stream_t **stream)
{
    base_cuda_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream wrap: no memory left");
    fresh->index = index;
    fresh->borrowed =
        1; /* NULL is the default stream of whatever device is current: calls make `index` current */
    fresh->stream = native;
    *stream = fresh;
    return GYRE_OK;
}

gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream)
{
    int index = stream->index, before;
    gyre_status_t status = stream->borrowed ? GYRE_OK : base_cuda_enter(index, &before);
    if (status == GYRE_OK && !stream->borrowed) {
        cudaError_t rc = cudaStreamDestroy(stream->stream);
        if (rc != cudaSuccess)
            status = base_cuda_failed(rc, index, "cudaStreamDestroy");
        base_cuda_leave(index, before);
    }
    free(stream);
    return status;
}

void *base_cuda_stream_native(const base_cuda_stream_t *stream)
{
    return stream->stream;
}

gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream);
    return base_cuda_end(rc, stream->index, before, "cudaMemcpyAsync(to %p, from %p, %zu bytes)", to, from,
                         bytes);
}

gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes)
{
    /* The runtime knows no host memory here, while the contract of base_stream_zero takes any. */
    int index, before;
    gyre_status_t status;
    if (!base_cuda_of(ptr, &index)) {
        status = base_cuda_stream_wait(stream); /* what was queued before comes before */
        if (status == GYRE_OK)
            memset(ptr, 0, bytes);
        return status;
    }
    status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemsetAsync(ptr, 0, bytes, stream->stream);
    return base_cuda_end(rc, stream->index, before, "cudaMemsetAsync(%p, 0, %zu bytes)", ptr, bytes);
}

gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaStreamSynchronize(stream->stream);
    return base_cuda_end(rc, stream->index, before, "cudaStreamSynchronize");
}

/* ---- events -------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_event_create(int index, int timed, base_cuda_event_t **event)
{
    int before;
    base_cuda_event_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "event create: no memory left");
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        goto free_event;
    fresh->index = index;
    fresh->timed = timed;
    cudaError_t rc =
        cudaEventCreateWithFlags(&fresh->event, timed ? cudaEventDefault : cudaEventDisableTiming);
    if (rc != cudaSuccess)
        status = base_cuda_failed(rc, index, "cudaEventCreateWithFlags");
    base_cuda_leave(index, before);
    if (status != GYRE_OK)
        goto free_event;
    *event = fresh;
    return GYRE_OK;
free_event:
    free(fresh);
    return status;
}

gyre_status_t base_cuda_event_destroy(base_cuda_event_t *event)
{
    int index = event->index, before;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status == GYRE_OK) {
        cudaError_t rc = cudaEventDestroy(event->event);
        if (rc != cudaSuccess)
            status = base_cuda_failed(rc, index, "cudaEventDestroy");
        base_cuda_leave(index, before);
    }
    free(event);
    return status;
}

gyre_status_t base_cuda_event_record(base_cuda_event_t *event, base_cuda_stream_t *stream)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaEventRecord(event->event, stream->stream);
    if (rc == cudaSuccess)
        event->recorded = 1;
    return base_cuda_end(rc, stream->index, before, "cudaEventRecord(an event of device %d)", event->index);
}

gyre_status_t base_cuda_stream_wait_event(base_cuda_stream_t *stream, base_cuda_event_t *event)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaStreamWaitEvent(stream->stream, event->event, 0);
    return base_cuda_end(rc, stream->index, before, "cudaStreamWaitEvent");
}

gyre_status_t base_cuda_event_done(base_cuda_event_t *event, int *done)
{
    int before;
    gyre_status_t status = base_cuda_enter(event->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaEventQuery(event->event);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        status = base_cuda_failed(rc, event->index, "cudaEventQuery");
    else
        *done = rc == cudaSuccess;
    if (rc == cudaErrorNotReady)
        cudaGetLastError(); /* the runtime keeps it, and it is no error */
    base_cuda_leave(event->index, before);
    return status;
}

gyre_status_t base_cuda_event_wait(base_cuda_event_t *event)
{
    int before;
    gyre_status_t status = base_cuda_enter(event->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaEventSynchronize(event->event);
    return base_cuda_end(rc, event->index, before, "cudaEventSynchronize");
}

gyre_status_t base_cuda_event_elapsed_ms(base_cuda_event_t *from, base_cuda_event_t *to, double *ms)
{
    float value = 0;
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        return gyre_fail(GYRE_ERR_INVALID, "time between events of CUDA device %d: an event %s", from->index,
                         !from->timed || !to->timed ? "was created without time" : "was never recorded");
    cudaError_t rc = cudaEventElapsedTime(&value, from->event, to->event);
    if (rc == cudaErrorNotReady) {
        cudaGetLastError();
        return gyre_fail(GYRE_ERR_INVALID,
                         "time between events of CUDA device %d: the device has not reached them yet",
                         from->index);
    }
    if (rc != cudaSuccess)
        return base_cuda_failed(rc, from->index, "cudaEventElapsedTime");
    *ms = value;
    return GYRE_OK;
}

#endif
