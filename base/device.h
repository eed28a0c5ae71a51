/* base/device.h: memory and streams of a device, host or CUDA, behind one set of calls.
 *
 * In a build without CUDA, or on a machine without its driver, BASE_CUDA calls fail with GYRE_ERR_UNSUPPORTED and
 * one clear line; nothing else changes. */
#ifndef BASE_DEVICE_H
#define BASE_DEVICE_H

#include <stddef.h>

#include <gyre/status.h>

typedef enum { BASE_HOST = 0, BASE_CUDA = 1 } base_device_kind_t;
typedef struct {
    base_device_kind_t kind;
    int index; /* CUDA ordinal; 0 for the host */
} base_device_t;
typedef struct base_stream base_stream_t; /* ordered work on one device */

int base_device_count(base_device_kind_t kind); /* 1 for the host; 0 where there is no driver */
/* Why base_device_count(kind) is 0, in one line; "" if it is not. */
const char *base_device_why_not(base_device_kind_t kind);
gyre_status_t base_device_name(base_device_t device, char *name, size_t bytes);

gyre_status_t base_device_alloc(base_device_t device, size_t bytes,
                                void **ptr); /* 64-byte aligned or better */
gyre_status_t base_device_free(base_device_t device, void *ptr);
/* Where `ptr` lives: host memory unless CUDA knows better. */
base_device_t base_device_of(const void *ptr);

gyre_status_t base_stream_create(base_device_t device, base_stream_t **stream);
gyre_status_t base_stream_destroy(base_stream_t *stream);
/* Either pointer may be host or device memory. Host streams copy at once. */
gyre_status_t base_stream_copy(base_stream_t *stream, void *to, const void *from, size_t bytes);
gyre_status_t base_stream_zero(base_stream_t *stream, void *ptr, size_t bytes);
gyre_status_t base_stream_wait(base_stream_t *stream); /* all work so far is done */

#endif
