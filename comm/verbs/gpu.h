/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/gpu.h: registers memory of a GPU with adapters: the ways, the order in which they are tried, and
 * the text on those that fail. It calls CUDA and libibverbs by a table of functions only, which lets a test
 * replace both. */
#ifndef COMM_VERBS_GPU_H
#define COMM_VERBS_GPU_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "comm/lend.h"

/* Registrations are void *; NULL: failed, with errno. */
typedef struct {
    /* base_device_dmabuf */
    gyre_status_t (*dmabuf)(const void *ptr, size_t bytes, int *fd, size_t *offset);
    void (*close)(int fd);
    void *(*reg_dmabuf)(void *rail, int fd, size_t offset, void *ptr, size_t bytes);
    void *(*reg)(void *rail, void *ptr,
                 size_t bytes); /* a device's address used like the host's: nvidia-peermem */
    void (*dereg)(void *registration);
} verbs_gpu_calls_t;

/* Registers [ptr, + bytes) with all rails in one way: by a dma-buf, which the kernel provides, else by its
 * address, which needs a module of NVIDIA's. want names one of them, or AUTO. made: [rails]. Returns 1, or 0
 * with nothing registered. text: the way and why the one before it failed, or why both failed. */
int verbs_gpu_register(const verbs_gpu_calls_t *calls, comm_rdma_t want, void *const *rail,
                       const char *const *names, int rails, void *ptr, size_t bytes, void **made, char *text,
                       size_t text_bytes);

/* The rails for a device's memory: the nearest ones. distance: [rails] as topo_device_distance has it.
 * Returns a mask; never 0. */
uint32_t verbs_gpu_near(const int *distance, int rails);

#endif
