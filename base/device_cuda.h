/* base/device_cuda.h: what device_host.c asks of CUDA; inside base/ only.
 *
 * device_cuda.c answers with the CUDA runtime, device_none.c in a build without it. Nothing of CUDA is touched
 * before the first call that needs it. */
#ifndef BASE_DEVICE_CUDA_H
#define BASE_DEVICE_CUDA_H

#include "base/device.h"

typedef struct base_cuda_stream base_cuda_stream_t;

int base_cuda_count(void);
const char *base_cuda_why_not(void);
/* 1 and the ordinal if `ptr` is CUDA memory. Does not wake CUDA up in a process that has not used it. */
int base_cuda_of(const void *ptr, int *index);

/* The caller has checked that 0 <= index < base_cuda_count(). */
gyre_status_t base_cuda_name(int index, char *name, size_t bytes);
gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr);
gyre_status_t base_cuda_free(int index, void *ptr);
/* Returns when the bytes are there; for host streams that meet device memory. */
gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes);
gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes);

gyre_status_t base_cuda_stream_create(int index, base_cuda_stream_t **stream);
gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream);
gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes);
gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes);
gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream);

#endif
