/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/rdma.h: what network adapters need to know of a CUDA device's memory, to read and write it
 * without the host's memory between (GPUDirect RDMA). In a build without CUDA all of it is UNSUPPORTED. */
#ifndef BASE_DEVICE_RDMA_H
#define BASE_DEVICE_RDMA_H

#include "base/device/device.h"

/* "0000:17:00.0", in lower case as hwloc writes it. */
gyre_status_t base_device_pci(base_device_t device, char *text, size_t bytes);

/* A dma-buf of the pages that hold [ptr, + bytes) of device memory: *fd, which the caller closes, and where
 * in it ptr lies. What lasts as long as a registration that was made from it is the memory itself: the buffer
 * must not be freed before. UNSUPPORTED: the driver or the kernel offers none; quiet. */
gyre_status_t base_device_dmabuf(const void *ptr, size_t bytes, int *fd, size_t *offset);

/* Does the device see what an adapter wrote, in work that begins after the host has learned that it was
 * written? */
typedef enum {
    BASE_RDMA_SEES = 0, /* yes */
    BASE_RDMA_FLUSH,    /* after base_device_rdma_flush */
    BASE_RDMA_BLIND     /* no */
} base_rdma_order_t;
gyre_status_t base_device_rdma_order(base_device_t device, base_rdma_order_t *order);
/* Returns when the device sees all that adapters have written to its memory. Waits for no stream. */
gyre_status_t base_device_rdma_flush(base_device_t device);

#endif
