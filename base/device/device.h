/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/device.h: memory, streams and events of a device, host or CUDA, with one set of calls; memory
 * of one process's device in another: base/device/peer.h.
 *
 * In a build without CUDA, or on a machine without its driver, BASE_CUDA calls fail with GYRE_ERR_UNSUPPORTED
 * and one clear line; nothing else changes. */
#ifndef BASE_DEVICE_DEVICE_H
#define BASE_DEVICE_DEVICE_H

#include <stddef.h>

#include <gyre/status.h>

typedef enum { BASE_HOST = 0, BASE_CUDA = 1 } base_device_kind_t;
typedef struct {
    base_device_kind_t kind;
    int index; /* CUDA ordinal; 0 for the host */
} base_device_t;
typedef struct base_stream base_stream_t; /* ordered work on one device */
typedef struct base_event base_event_t;   /* a place in a stream's work */

int base_device_count(base_device_kind_t kind); /* 1 for the host; 0 where there is no driver */
/* Why base_device_count(kind) is 0, in one line; "" if it is not. */
const char *base_device_why_not(base_device_kind_t kind);
gyre_status_t base_device_name(base_device_t device, char *name, size_t bytes);
/* The UUID of the CUDA device that is the calling thread's current one: the same in every process and
 * container of the host, whatever number it has there. UNSUPPORTED: there is none. */
gyre_status_t base_device_current(unsigned char uuid[16]);

gyre_status_t base_device_alloc(base_device_t device, size_t bytes,
                                void **ptr); /* 64-byte aligned or better */
gyre_status_t base_device_free(base_device_t device, void *ptr);
/* Where `ptr` lives: host memory unless CUDA knows better. */
base_device_t base_device_of(const void *ptr);
/* CUDA memory in this process: 1: there may be some; 0: nobody has looked yet; -1: none, and there never will
 * be. */
extern _Atomic int base_device_cuda_memory;

/* Bytes of the device's memory that are free now, and all of it; of the host: physical memory. Either may
 * be NULL. */
gyre_status_t base_device_memory(base_device_t device, size_t *free_bytes, size_t *total);
/* At the top of main, before any thread: settings of the CUDA driver's that streams which wait for each other
 * need (CUDA_DEVICE_MAX_CONNECTIONS=32: queues of their own; CUDA_MODULE_LOADING=EAGER: no kernel is loaded
 * while another waits), where the environment does not set them. Nothing for a driver that is at work
 * already. */
void base_device_prepare_process(void);
/* Makes a CUDA device the calling thread's current one, as launches of kernels want it; nothing for the
 * host. */
gyre_status_t base_device_use(base_device_t device);
/* Makes `device` current for a while, in its primary context; *before is for leave, which is called by the
 * same thread and restores what was current, if that was no device at all, too (no context is opened on any
 * other device). Nothing for the host. */
enum { BASE_DEVICE_PUSHED = -2 };
gyre_status_t base_device_enter(base_device_t device, int *before);
void base_device_leave(base_device_t device, int before);
/* UNSUPPORTED: the calling thread works on the device in another context than the primary one, in which
 * all of Gyre's streams and memory are. */
gyre_status_t base_device_primary(base_device_t device);
/* A function of the CUDA driver by name ("cuStreamWaitValue32"; of CUDA 12 or newer), which no build links.
 * UNSUPPORTED: no driver, or it has no such function. */
gyre_status_t base_device_driver(const char *name, void **function);

/* Host memory, page-aligned, that the device reads and writes directly and copies without the host; for
 * BASE_HOST ordinary memory. */
gyre_status_t base_pinned_alloc(base_device_t device, size_t bytes, void **ptr);
gyre_status_t base_pinned_free(base_device_t device, void *ptr);

gyre_status_t base_stream_create(base_device_t device, base_stream_t **stream);
/* Urgent: where streams compete for the device, work of this one goes first. */
gyre_status_t base_stream_create_urgent(base_device_t device, base_stream_t **stream);
/* The caller's own cudaStream_t (NULL: the default stream), which stays the caller's; destroy forgets it. */
gyre_status_t base_stream_wrap(base_device_t device, void *native, base_stream_t **stream);
/* The cudaStream_t; NULL for the host. */
void *base_stream_native(const base_stream_t *stream);
gyre_status_t base_stream_destroy(base_stream_t *stream);
/* Either pointer may be host or device memory. Host streams copy at once. */
gyre_status_t base_stream_copy(base_stream_t *stream, void *to, const void *from, size_t bytes);
gyre_status_t base_stream_zero(base_stream_t *stream, void *ptr, size_t bytes);
gyre_status_t base_stream_wait(base_stream_t *stream); /* all work so far is done */

/* timed: base_event_elapsed_ms may be asked; costs a little. */
gyre_status_t base_event_create(base_device_t device, int timed, base_event_t **event);
gyre_status_t base_event_destroy(base_event_t *event);
/* The event is from now on: the work so far of `stream`, which is of the event's device. */
gyre_status_t base_event_record(base_event_t *event, base_stream_t *stream);
/* Work that is given to `stream` from now on waits for the event, as it was recorded last; never recorded:
 * for nothing. A host stream waits at once. */
gyre_status_t base_stream_wait_event(base_stream_t *stream, base_event_t *event);
gyre_status_t base_event_done(base_event_t *event, int *done); /* does not wait */
gyre_status_t base_event_wait(base_event_t *event);
/* Milliseconds from one to the other; both timed, of one device, recorded and done. INVALID: they are not. */
gyre_status_t base_event_elapsed_ms(base_event_t *from, base_event_t *to, double *ms);

#endif
