/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/rdma.c: see the header. */
#include "base/device/rdma.h"

#include "base/error.h"

#ifdef GYRE_CUDA

#include <ctype.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"

static gyre_status_t failed(cudaError_t rc, const char *what, int index)
{
    (void)cudaGetLastError(); /* the runtime keeps the error; it is not the application's */
    return gyre_fail(GYRE_ERR_SYSTEM, "CUDA device %d: %s: %s (%s)", index, what, cudaGetErrorString(rc),
                     cudaGetErrorName(rc));
}

gyre_status_t base_device_pci(base_device_t device, char *text, size_t bytes)
{
    cudaError_t rc = cudaDeviceGetPCIBusId(text, (int)bytes, device.index);
    if (rc != cudaSuccess)
        return failed(rc, "cudaDeviceGetPCIBusId", device.index);
    for (char *at = text; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    return GYRE_OK;
}

gyre_status_t base_device_dmabuf(const void *ptr, size_t bytes, int *fd, size_t *offset)
{
    CUresult (*export)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* the driver takes whole pages of the host */
    const uintptr_t begin = (uintptr_t)ptr & ~(uintptr_t)(page - 1);
    const size_t length = base_round_up((uintptr_t)ptr + bytes - begin, page);
    void *function = NULL;
    gyre_status_t status = base_device_driver("cuMemGetHandleForAddressRange", &function);
    if (status != GYRE_OK)
        return status;
    memcpy(&export, &function, sizeof export); /* ISO C converts no pointer to a function's */
    *fd = -1;
    const CUresult rc = export(fd, (CUdeviceptr)begin, length, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (rc != CUDA_SUCCESS)
        return gyre_fail_quiet(
            GYRE_ERR_UNSUPPORTED, "cuMemGetHandleForAddressRange(%p, %zu) gives no dma-buf: error %d%s",
            (const void *)begin, length, (int)rc, /* NOLINT: an address of the device */
            rc == CUDA_ERROR_NOT_SUPPORTED
                ? ", not supported: it takes the open kernel modules of the driver and Linux 5.12"
                : "");
    *offset = (uintptr_t)ptr - begin;
    return GYRE_OK;
}

gyre_status_t base_device_rdma_order(base_device_t device, base_rdma_order_t *order)
{
    int writes = 0, flushes = 0;
    cudaError_t rc = cudaDeviceGetAttribute(&writes, cudaDevAttrGPUDirectRDMAWritesOrdering, device.index);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&flushes, cudaDevAttrGPUDirectRDMAFlushWritesOptions, device.index);
    if (rc != cudaSuccess)
        return failed(rc, "cudaDeviceGetAttribute of GPUDirect RDMA", device.index);
    *order = writes >= cudaGPUDirectRDMAWritesOrderingOwner     ? BASE_RDMA_SEES
             : flushes & cudaFlushGPUDirectRDMAWritesOptionHost ? BASE_RDMA_FLUSH
                                                                : BASE_RDMA_BLIND;
    return GYRE_OK;
}

gyre_status_t base_device_rdma_flush(base_device_t device)
{
    int before = device.index;
    cudaError_t rc = cudaGetDevice(&before);
    if (rc == cudaSuccess && before != device.index)
        rc = cudaSetDevice(device.index);
    if (rc == cudaSuccess)
        rc = cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                cudaFlushGPUDirectRDMAWritesToOwner);
    if (before != device.index)
        (void)cudaSetDevice(before); /* it was current a moment ago */
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "cudaDeviceFlushGPUDirectRDMAWrites", device.index);
}

#else

static gyre_status_t none(void)
{
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s", base_device_why_not(BASE_CUDA));
}

gyre_status_t base_device_pci(base_device_t device, char *text, size_t bytes)
{
    (void)device, (void)text, (void)bytes;
    return none();
}

gyre_status_t base_device_dmabuf(const void *ptr, size_t bytes, int *fd, size_t *offset)
{
    (void)ptr, (void)bytes, (void)fd, (void)offset;
    return none();
}

gyre_status_t base_device_rdma_order(base_device_t device, base_rdma_order_t *order)
{
    (void)device, (void)order;
    return none();
}

gyre_status_t base_device_rdma_flush(base_device_t device)
{
    (void)device;
    return none();
}

#endif
