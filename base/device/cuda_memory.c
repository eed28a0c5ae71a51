/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/cuda_memory.c: memory of devices with the CUDA runtime: allocated, pinned, copied, and reached
 * from other processes and devices. */
#include "base/device/cuda.h"

#ifdef GYRE_CUDA

#include <cuda.h>
#include <string.h>

#include "base/device/cuda_error.h"
#include "base/error.h"

/* ---- memory -------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr)
{
    int before;
    void *memory = NULL;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMalloc(&memory, bytes == 0 ? 64 : bytes); /* at least 256-byte aligned */
    if (rc == cudaSuccess)
        *ptr = memory;
    return base_cuda_end(rc, index, before, "cudaMalloc(%zu bytes)", bytes);
}

gyre_status_t base_cuda_free(int index, void *ptr)
{
    cudaError_t rc = cudaFree(ptr); /* CUDA knows which device it is on */
    return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, index, "cudaFree(%p)", ptr);
}

gyre_status_t base_cuda_memory(int index, size_t *free_bytes, size_t *total)
{
    int before;
    size_t left = 0, all = 0;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemGetInfo(&left, &all);
    if (rc != cudaSuccess)
        status = base_cuda_failed(rc, index, "cudaMemGetInfo");
    base_cuda_leave(index, before);
    if (status == GYRE_OK && free_bytes != NULL)
        *free_bytes = left;
    if (status == GYRE_OK && total != NULL)
        *total = all;
    return status;
}

gyre_status_t base_cuda_pinned_alloc(int index, size_t bytes, void **ptr)
{
    int before;
    void *memory = NULL;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc =
        cudaHostAlloc(&memory, bytes == 0 ? 64 : bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc == cudaSuccess)
        *ptr = memory;
    return base_cuda_end(rc, index, before, "cudaHostAlloc(%zu bytes)", bytes);
}

gyre_status_t base_cuda_pinned_free(int index, void *ptr)
{
    cudaError_t rc = cudaFreeHost(ptr);
    return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, index, "cudaFreeHost(%p)", ptr);
}

gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes)
{
    int index = 0, before;
    if (!base_cuda_of(to, &index))
        base_cuda_of(from, &index);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (rc == cudaSuccess) /* between two places on devices cudaMemcpy may return early */
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    return base_cuda_end(rc, index, before, "cudaMemcpy(to %p, from %p, %zu bytes)", to, from, bytes);
}

gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes)
{
    int index = 0, before;
    base_cuda_of(ptr, &index);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemset(ptr, 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    return base_cuda_end(rc, index, before, "cudaMemset(%p, 0, %zu bytes)", ptr, bytes);
}

/* ---- memory of other processes and devices ------------------------------------------------------------- */

_Static_assert(BASE_CUDA_IPC_BYTES == sizeof(cudaIpcMemHandle_t), "a handle's size");

gyre_status_t base_cuda_range(const void *ptr, void **begin, size_t *bytes)
{
    /* cuMemGetAddressRange would want a current context, which a thread that has done nothing yet lacks */
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *function = NULL;
    CUdeviceptr base = 0;
    size_t size = 0;
    void *answers[] = {&base, &size};
    gyre_status_t status = base_cuda_driver("cuPointerGetAttributes", &function);
    if (status != GYRE_OK)
        return gyre_fail_quiet(
            status, "the allocation of %p is unknown: the CUDA driver has no cuPointerGetAttributes", ptr);
    CUresult (*attributes)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
    memcpy(&attributes, &function, sizeof(function)); /* ISO C converts no pointer to a function's */
    CUresult rc = attributes(2, asked, answers, (CUdeviceptr)ptr);
    if (rc != CUDA_SUCCESS || base == 0 || size == 0)
        return gyre_fail_quiet(
            GYRE_ERR_INVALID, "cuPointerGetAttributes(%p): error %d: it is not memory of CUDA", ptr, (int)rc);
    *begin = (void *)base;
    *bytes = size;
    return GYRE_OK;
}

gyre_status_t base_cuda_ipc_export(const void *begin, unsigned char handle[BASE_CUDA_IPC_BYTES])
{
    cudaIpcMemHandle_t native;
    int index = 0, before;
    base_cuda_of(begin, &index);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaIpcGetMemHandle(&native, (void *)begin);
    if (rc != cudaSuccess)
        status = base_cuda_cannot(rc, index, "cudaIpcGetMemHandle(%p)", begin);
    else
        memcpy(handle, &native, BASE_CUDA_IPC_BYTES);
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_ipc_open(int index, const unsigned char handle[BASE_CUDA_IPC_BYTES], void **begin)
{
    cudaIpcMemHandle_t native;
    int before;
    void *memory = NULL;
    memcpy(&native, handle, BASE_CUDA_IPC_BYTES);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaIpcOpenMemHandle(&memory, native, cudaIpcMemLazyEnablePeerAccess);
    if (rc != cudaSuccess)
        status = base_cuda_cannot(rc, index, "cudaIpcOpenMemHandle");
    else
        *begin = memory;
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_ipc_close(int index, void *begin)
{
    int before;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaIpcCloseMemHandle(begin);
    if (rc != cudaSuccess)
        status = base_cuda_cannot(rc, index, "cudaIpcCloseMemHandle(%p)", begin);
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_reach(int index, int other)
{
    int before, can = 0;
    if (index == other)
        return GYRE_OK;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaDeviceCanAccessPeer(&can, index, other);
    if (rc == cudaSuccess && !can)
        status = gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "CUDA device %d cannot reach the memory of device %d",
                                 index, other);
    else if (rc == cudaSuccess)
        rc = cudaDeviceEnablePeerAccess(other, 0);
    if (rc == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else if (rc != cudaSuccess)
        status = base_cuda_cannot(rc, index, "cudaDeviceEnablePeerAccess(%d)", other);
    base_cuda_leave(index, before);
    return status;
}

#endif
