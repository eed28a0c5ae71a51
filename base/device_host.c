/* base/device_host.c: the device calls: the host's part, and the way to CUDA's.
 *
 * The host's streams copy at once, so waiting for one is nothing. */
#include "base/device_cuda.h"

#include <stdlib.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

struct base_stream {
    base_device_t device;
    base_cuda_stream_t *cuda; /* NULL on the host; owned */
};

int base_device_count(base_device_kind_t kind)
{
    if (kind == BASE_HOST)
        return 1;
    return kind == BASE_CUDA ? base_cuda_count() : 0;
}

const char *base_device_why_not(base_device_kind_t kind)
{
    if (kind == BASE_HOST)
        return "";
    return kind == BASE_CUDA ? base_cuda_why_not() : "there is no such kind of device";
}

/* OK if the device exists. */
static gyre_status_t check(base_device_t device, const char *what)
{
    if (device.kind != BASE_HOST && device.kind != BASE_CUDA)
        return gyre_fail(GYRE_ERR_INVALID, "%s: device kind %d is neither host (0) nor CUDA (1)", what,
                         (int)device.kind);
    int count = base_device_count(device.kind);
    if (device.index >= 0 && device.index < count)
        return GYRE_OK;
    if (count == 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: no CUDA device: %s", what,
                         base_device_why_not(device.kind));
    return gyre_fail(GYRE_ERR_NOT_FOUND, "%s: %s device %d is not in 0..%d", what,
                     device.kind == BASE_HOST ? "host" : "CUDA", device.index, count - 1);
}

gyre_status_t base_device_name(base_device_t device, char *name, size_t bytes)
{
    gyre_status_t status = check(device, "device name");
    if (status != GYRE_OK)
        return status;
    if (device.kind == BASE_CUDA)
        return base_cuda_name(device.index, name, bytes);
    snprintf(name, bytes, "host");
    return GYRE_OK;
}

gyre_status_t base_device_alloc(base_device_t device, size_t bytes, void **ptr)
{
    gyre_status_t status = check(device, "device alloc");
    if (status != GYRE_OK)
        return status;
    if (device.kind == BASE_CUDA)
        return base_cuda_alloc(device.index, bytes, ptr);
    void *memory = NULL;
    if (bytes <= PTRDIFF_MAX - 64) /* no object is larger */
        memory = aligned_alloc(64, bytes == 0 ? 64 : base_round_up(bytes, 64));
    if (memory == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "device alloc: the host has no %zu bytes left", bytes);
    *ptr = memory;
    return GYRE_OK;
}

gyre_status_t base_device_free(base_device_t device, void *ptr)
{
    if (ptr == NULL)
        return GYRE_OK;
    gyre_status_t status = check(device, "device free");
    if (status != GYRE_OK)
        return status;
    if (device.kind == BASE_CUDA)
        return base_cuda_free(device.index, ptr);
    free(ptr);
    return GYRE_OK;
}

base_device_t base_device_of(const void *ptr)
{
    int index;
    if (base_cuda_of(ptr, &index))
        return (base_device_t){BASE_CUDA, index};
    return (base_device_t){BASE_HOST, 0};
}

gyre_status_t base_stream_create(base_device_t device, base_stream_t **stream)
{
    gyre_status_t status = check(device, "stream create");
    if (status != GYRE_OK)
        return status;
    base_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream create: no memory left");
    fresh->device = device;
    if (device.kind == BASE_CUDA) {
        status = base_cuda_stream_create(device.index, &fresh->cuda);
        if (status != GYRE_OK) {
            free(fresh);
            return status;
        }
    }
    *stream = fresh;
    return GYRE_OK;
}

gyre_status_t base_stream_destroy(base_stream_t *stream)
{
    if (stream == NULL)
        return GYRE_OK;
    gyre_status_t status = stream->cuda != NULL ? base_cuda_stream_destroy(stream->cuda) : GYRE_OK;
    free(stream);
    return status;
}

gyre_status_t base_stream_copy(base_stream_t *stream, void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return GYRE_OK;
    if (to == NULL || from == NULL)
        return gyre_fail(GYRE_ERR_INVALID, "stream copy of %zu bytes: %s is null", bytes,
                         to == NULL ? "the target" : "the source");
    if (stream->cuda != NULL)
        return base_cuda_stream_copy(stream->cuda, to, from, bytes);
    if (base_device_of(to).kind == BASE_CUDA || base_device_of(from).kind == BASE_CUDA)
        return base_cuda_copy_now(to, from, bytes);
    memmove(to, from, bytes);
    return GYRE_OK;
}

gyre_status_t base_stream_zero(base_stream_t *stream, void *ptr, size_t bytes)
{
    if (bytes == 0)
        return GYRE_OK;
    if (ptr == NULL)
        return gyre_fail(GYRE_ERR_INVALID, "stream zero of %zu bytes: the pointer is null", bytes);
    if (stream->cuda != NULL)
        return base_cuda_stream_zero(stream->cuda, ptr, bytes);
    if (base_device_of(ptr).kind == BASE_CUDA)
        return base_cuda_zero_now(ptr, bytes);
    memset(ptr, 0, bytes);
    return GYRE_OK;
}

gyre_status_t base_stream_wait(base_stream_t *stream)
{
    return stream->cuda != NULL ? base_cuda_stream_wait(stream->cuda) : GYRE_OK;
}
