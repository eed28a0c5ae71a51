/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/host.c: the device calls: the host's part, and the way to CUDA's.
 *
 * The host's streams copy at once, so waiting for one is nothing. */
#include "base/device/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"

struct base_stream {
    base_device_t device;
    base_cuda_stream_t *cuda; /* NULL on the host; owned */
};

struct base_event {
    base_device_t device;
    base_cuda_event_t *cuda; /* NULL on the host; owned */
    int timed;
    base_time_t at; /* the host's: when it was recorded, which is when the work was done; 0: never */
};

void base_device_prepare_process(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32",
                 0); /* fails without memory only; then the driver's own choice holds */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

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

gyre_status_t base_device_current(unsigned char uuid[16])
{
    int index = 0;
    gyre_status_t status = check((base_device_t){BASE_CUDA, 0}, "current device");
    if (status == GYRE_OK)
        status = base_cuda_current(&index);
    return status == GYRE_OK ? base_cuda_identity(index, uuid) : status;
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

gyre_status_t base_device_memory(base_device_t device, size_t *free_bytes, size_t *total)
{
    gyre_status_t status = check(device, "device memory");
    if (status != GYRE_OK)
        return status;
    if (device.kind == BASE_CUDA)
        return base_cuda_memory(device.index, free_bytes, total);
    long page = sysconf(_SC_PAGESIZE), left = sysconf(_SC_AVPHYS_PAGES), all = sysconf(_SC_PHYS_PAGES);
    if (page <= 0 || left < 0 || all < 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot read the size of memory (sysconf)");
    if (free_bytes != NULL)
        *free_bytes = (size_t)left * (size_t)page;
    if (total != NULL)
        *total = (size_t)all * (size_t)page;
    return GYRE_OK;
}

gyre_status_t base_device_use(base_device_t device)
{
    gyre_status_t status = check(device, "device use");
    return status == GYRE_OK && device.kind == BASE_CUDA ? base_cuda_use(device.index) : status;
}

gyre_status_t base_device_enter(base_device_t device, int *before)
{
    gyre_status_t status = check(device, "device use");
    return status == GYRE_OK && device.kind == BASE_CUDA ? base_cuda_enter(device.index, before) : status;
}

void base_device_leave(base_device_t device, int before)
{
    if (device.kind == BASE_CUDA)
        base_cuda_leave(device.index, before);
}

gyre_status_t base_device_primary(base_device_t device)
{
    return device.kind == BASE_CUDA ? base_cuda_primary(device.index) : GYRE_OK;
}

gyre_status_t base_device_driver(const char *name, void **function)
{
    if (base_cuda_count() == 0)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s: no CUDA device: %s", name, base_cuda_why_not());
    return base_cuda_driver(name, function);
}

gyre_status_t base_pinned_alloc(base_device_t device, size_t bytes, void **ptr)
{
    if (device.kind != BASE_CUDA)
        return base_device_alloc(device, bytes, ptr);
    gyre_status_t status = check(device, "pinned alloc");
    return status == GYRE_OK ? base_cuda_pinned_alloc(device.index, bytes, ptr) : status;
}

gyre_status_t base_pinned_free(base_device_t device, void *ptr)
{
    if (device.kind != BASE_CUDA || ptr == NULL)
        return base_device_free(device, ptr);
    gyre_status_t status = check(device, "pinned free");
    return status == GYRE_OK ? base_cuda_pinned_free(device.index, ptr) : status;
}

typedef enum { STREAM_PLAIN, STREAM_URGENT, STREAM_WRAPPED } stream_kind_t;

static gyre_status_t make_stream(base_device_t device, stream_kind_t kind, void *native,
                                 base_stream_t **stream)
{
    gyre_status_t status = check(device, kind == STREAM_WRAPPED ? "stream wrap" : "stream create");
    if (status != GYRE_OK)
        return status;
    base_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream create: no memory left");
    fresh->device = device;
    if (device.kind == BASE_CUDA)
        status = kind == STREAM_WRAPPED
                     ? base_cuda_stream_wrap(device.index, native, &fresh->cuda)
                     : base_cuda_stream_create(device.index, kind == STREAM_URGENT, &fresh->cuda);
    if (status != GYRE_OK) {
        free(fresh);
        return status;
    }
    *stream = fresh;
    return GYRE_OK;
}

gyre_status_t base_stream_create(base_device_t device, base_stream_t **stream)
{
    return make_stream(device, STREAM_PLAIN, NULL, stream);
}

gyre_status_t base_stream_create_urgent(base_device_t device, base_stream_t **stream)
{
    return make_stream(device, STREAM_URGENT, NULL, stream);
}

gyre_status_t base_stream_wrap(base_device_t device, void *native, base_stream_t **stream)
{
    return make_stream(device, STREAM_WRAPPED, native, stream);
}

void *base_stream_native(const base_stream_t *stream)
{
    return stream->cuda != NULL ? base_cuda_stream_native(stream->cuda) : NULL;
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

gyre_status_t base_event_create(base_device_t device, int timed, base_event_t **event)
{
    gyre_status_t status = check(device, "event create");
    if (status != GYRE_OK)
        return status;
    base_event_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "event create: no memory left");
    fresh->device = device;
    fresh->timed = timed;
    if (device.kind == BASE_CUDA)
        status = base_cuda_event_create(device.index, timed, &fresh->cuda);
    if (status != GYRE_OK) {
        free(fresh);
        return status;
    }
    *event = fresh;
    return GYRE_OK;
}

gyre_status_t base_event_destroy(base_event_t *event)
{
    if (event == NULL)
        return GYRE_OK;
    gyre_status_t status = event->cuda != NULL ? base_cuda_event_destroy(event->cuda) : GYRE_OK;
    free(event);
    return status;
}

gyre_status_t base_event_record(base_event_t *event, base_stream_t *stream)
{
    if (event->device.kind != stream->device.kind || event->device.index != stream->device.index)
        return gyre_fail(GYRE_ERR_INVALID,
                         "event record: the event is of %s device %d, the stream of %s device %d: both must "
                         "be of one device",
                         event->cuda != NULL ? "CUDA" : "host", event->device.index,
                         stream->cuda != NULL ? "CUDA" : "host", stream->device.index);
    if (event->cuda != NULL)
        return base_cuda_event_record(event->cuda, stream->cuda);
    event->at = base_now();
    return GYRE_OK;
}

gyre_status_t base_stream_wait_event(base_stream_t *stream, base_event_t *event)
{
    if (event->cuda == NULL)
        return GYRE_OK; /* what a host's event stands for was done when it was recorded */
    if (stream->cuda == NULL)
        return base_cuda_event_wait(event->cuda);
    return base_cuda_stream_wait_event(stream->cuda, event->cuda);
}

gyre_status_t base_event_done(base_event_t *event, int *done)
{
    if (event->cuda != NULL)
        return base_cuda_event_done(event->cuda, done);
    *done = 1;
    return GYRE_OK;
}

gyre_status_t base_event_wait(base_event_t *event)
{
    return event->cuda != NULL ? base_cuda_event_wait(event->cuda) : GYRE_OK;
}

gyre_status_t base_event_elapsed_ms(base_event_t *from, base_event_t *to, double *ms)
{
    if (from->device.kind != to->device.kind || from->device.index != to->device.index)
        return gyre_fail(GYRE_ERR_INVALID, "time between events: they are of different devices");
    if (from->cuda != NULL)
        return base_cuda_event_elapsed_ms(from->cuda, to->cuda, ms);
    if (!from->timed || !to->timed || from->at == 0 || to->at == 0)
        return gyre_fail(GYRE_ERR_INVALID, "time between events of the host: an event %s",
                         !from->timed || !to->timed ? "was created without time" : "was never recorded");
    *ms = (double)(to->at - from->at) * 1e-6;
    return GYRE_OK;
}
