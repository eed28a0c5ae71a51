/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/none.c: a build without CUDA. There are no devices, so only the first three are ever reached;
 * the others say why, should that change. */
#include "base/device/cuda.h"

#ifndef GYRE_CUDA

#include "base/error.h"

int base_cuda_count(void)
{
    return 0;
}

const char *base_cuda_why_not(void)
{
    return "this build has no CUDA (install the CUDA Toolkit 12 or newer and build with CUDA=1)";
}

int base_cuda_of(const void *ptr, int *index)
{
    (void)ptr;
    (void)index;
    return 0;
}

static gyre_status_t none(void)
{
    return gyre_fail(GYRE_ERR_UNSUPPORTED, "no CUDA device: %s", base_cuda_why_not());
}

_Atomic int base_device_cuda_memory = -1;

void base_cuda_seen(void) {}

void base_cuda_leave(int index, int before)
{
    (void)index;
    (void)before;
}

void *base_cuda_stream_native(const base_cuda_stream_t *stream)
{
    (void)stream;
    return NULL;
}

#define NONE(call, ...)             \
    gyre_status_t call(__VA_ARGS__) \
    {                               \
        return none();              \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter" /* none of them looks at its arguments */
NONE(base_cuda_name, int index, char *name, size_t bytes)
NONE(base_cuda_alloc, int index, size_t bytes, void **ptr)
NONE(base_cuda_free, int index, void *ptr)
NONE(base_cuda_memory, int index, size_t *free_bytes, size_t *total)
NONE(base_cuda_use, int index)
NONE(base_cuda_current, int *index)
NONE(base_cuda_enter, int index, int *before)
NONE(base_cuda_primary, int index)
NONE(base_cuda_driver, const char *name, void **function)
NONE(base_cuda_pinned_alloc, int index, size_t bytes, void **ptr)
NONE(base_cuda_pinned_free, int index, void *ptr)
NONE(base_cuda_copy_now, void *to, const void *from, size_t bytes)
NONE(base_cuda_zero_now, void *ptr, size_t bytes)
NONE(base_cuda_stream_create, int index, int urgent, base_cuda_stream_t **stream)
NONE(base_cuda_stream_wrap, int index, void *native, base_cuda_stream_t **stream)
NONE(base_cuda_stream_destroy, base_cuda_stream_t *stream)
NONE(base_cuda_stream_copy, base_cuda_stream_t *stream, void *to, const void *from, size_t bytes)
NONE(base_cuda_stream_zero, base_cuda_stream_t *stream, void *ptr, size_t bytes)
NONE(base_cuda_stream_wait, base_cuda_stream_t *stream)
NONE(base_cuda_event_create, int index, int timed, base_cuda_event_t **event)
NONE(base_cuda_event_destroy, base_cuda_event_t *event)
NONE(base_cuda_event_record, base_cuda_event_t *event, base_cuda_stream_t *stream)
NONE(base_cuda_stream_wait_event, base_cuda_stream_t *stream, base_cuda_event_t *event)
NONE(base_cuda_event_done, base_cuda_event_t *event, int *done)
NONE(base_cuda_event_wait, base_cuda_event_t *event)
NONE(base_cuda_event_elapsed_ms, base_cuda_event_t *from, base_cuda_event_t *to, double *ms)
NONE(base_cuda_identity, int index, unsigned char uuid[16])
NONE(base_cuda_range, const void *ptr, void **begin, size_t *bytes)
NONE(base_cuda_ipc_export, const void *begin, unsigned char handle[BASE_CUDA_IPC_BYTES])
NONE(base_cuda_ipc_open, int index, const unsigned char handle[BASE_CUDA_IPC_BYTES], void **begin)
NONE(base_cuda_ipc_close, int index, void *begin)
NONE(base_cuda_reach, int index, int other)

#endif
