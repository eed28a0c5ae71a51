/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/cuda.h: what host.c asks of CUDA; inside base/ only.
 *
 * cuda.c answers with the CUDA runtime, none.c in a build without it. Nothing of CUDA is touched
 * before the first call that needs it. */
#ifndef BASE_DEVICE_CUDA_H
#define BASE_DEVICE_CUDA_H

#include "base/device/device.h"

typedef struct base_cuda_stream base_cuda_stream_t;

int base_cuda_count(void);
const char *base_cuda_why_not(void);
/* 1 and the ordinal if `ptr` is CUDA memory. Does not wake CUDA up in a process that has not used it. */
int base_cuda_of(const void *ptr, int *index);

/* CUDA is at work in this process though no device file or library of the driver shows it. */
void base_cuda_seen(void);

/* The caller has checked that 0 <= index < base_cuda_count(). */
gyre_status_t base_cuda_name(int index, char *name, size_t bytes);
gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr);
gyre_status_t base_cuda_free(int index, void *ptr);
gyre_status_t base_cuda_memory(int index, size_t *free_bytes, size_t *total);
gyre_status_t base_cuda_use(int index);
gyre_status_t base_cuda_current(int *index); /* the calling thread's */
gyre_status_t base_cuda_enter(int index, int *before);
void base_cuda_leave(int index, int before);
gyre_status_t base_cuda_primary(int index);
gyre_status_t base_cuda_driver(const char *name, void **function);
gyre_status_t base_cuda_pinned_alloc(int index, size_t bytes, void **ptr);
gyre_status_t base_cuda_pinned_free(int index, void *ptr);
/* Returns when the bytes are there; for host streams that meet device memory. */
gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes);
gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes);

gyre_status_t base_cuda_stream_create(int index, int urgent, base_cuda_stream_t **stream);
gyre_status_t base_cuda_stream_wrap(int index, void *native, base_cuda_stream_t **stream);
gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream);
void *base_cuda_stream_native(const base_cuda_stream_t *stream);
gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes);
gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes);
gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream);

typedef struct base_cuda_event base_cuda_event_t;
gyre_status_t base_cuda_event_create(int index, int timed, base_cuda_event_t **event);
gyre_status_t base_cuda_event_destroy(base_cuda_event_t *event);
gyre_status_t base_cuda_event_record(base_cuda_event_t *event, base_cuda_stream_t *stream);
gyre_status_t base_cuda_stream_wait_event(base_cuda_stream_t *stream, base_cuda_event_t *event);
gyre_status_t base_cuda_event_done(base_cuda_event_t *event, int *done);
gyre_status_t base_cuda_event_wait(base_cuda_event_t *event);
gyre_status_t base_cuda_event_elapsed_ms(base_cuda_event_t *from, base_cuda_event_t *to, double *ms);

/* For base/device/peer.c, which tries: their errors are recorded, not logged. */
enum { BASE_CUDA_IPC_BYTES = 64 };
gyre_status_t base_cuda_identity(int index, unsigned char uuid[16]);
/* The allocation that `ptr` lies in. */
gyre_status_t base_cuda_range(const void *ptr, void **begin, size_t *bytes);
gyre_status_t base_cuda_ipc_export(const void *begin, unsigned char handle[BASE_CUDA_IPC_BYTES]);
gyre_status_t base_cuda_ipc_open(int index, const unsigned char handle[BASE_CUDA_IPC_BYTES], void **begin);
gyre_status_t base_cuda_ipc_close(int index, void *begin);
/* Lets device `index` read and write what lies on `other`. */
gyre_status_t base_cuda_reach(int index, int other);

#endif
