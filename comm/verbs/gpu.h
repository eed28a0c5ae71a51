/* comm/verbs/gpu.h: how memory of a GPU is registered with adapters: which ways there are, in which order they are tried, and what
 * is told of those that fail. It knows CUDA and libibverbs by a table of functions only, so that a test can be both. */
#ifndef COMM_VERBS_GPU_H
#define COMM_VERBS_GPU_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "comm/lend.h"

/* Registrations are void *; NULL: errno says why not. */
typedef struct {
    /* base_device_dmabuf */
    gyre_status_t (*dmabuf)(const void *ptr, size_t bytes, int *fd, size_t *offset);
    void (*close)(int fd);
    void *(*reg_dmabuf)(void *rail, int fd, size_t offset, void *ptr, size_t bytes);
    void *(*reg)(void *rail, void *ptr,
                 size_t bytes); /* a device's address as if it were memory: nvidia-peermem */
    void (*dereg)(void *registration);
} verbs_gpu_calls_t;

/* Registers [ptr, + bytes) with all rails in one way: by a dma-buf, which is the kernel's own, else by its address, which a module of
 * NVIDIA's makes sense of; want names one of them, or AUTO. made: [rails]. Returns 1, or 0 with nothing registered;
 * text: the way, and why not the one before it, or why none. */
int verbs_gpu_register(const verbs_gpu_calls_t *calls, comm_rdma_t want, void *const *rail,
                       const char *const *names, int rails, void *ptr, size_t bytes, void **made, char *text,
                       size_t text_bytes);

/* Which rails a device's memory goes over: the nearest of them. distance: [rails] as topo_device_distance has it.
 * Returns a mask; never 0. */
uint32_t verbs_gpu_near(const int *distance, int rails);

#endif
