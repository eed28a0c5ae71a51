/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/launch.c: checks the arguments of the attention kernels and launches them. */
#include "model/gpu/attention/attention.h"

#ifdef GYRE_CUDA

#include <cuda_runtime_api.h>
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "model/gpu/attention/kernels.h"

static gyre_status_t check(const model_cuda_attention_t *a)
{
    if (a->head_dim < 1 || a->head_dim > MODEL_CUDA_HEAD_MAX)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "attention on the GPU: heads of %zu channels, but it has 1 to %d", a->head_dim,
                         MODEL_CUDA_HEAD_MAX);
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "attention on the GPU: %zu heads cannot share keys and values of %zu", a->heads,
                         a->kv_heads);
    /* the grid's y and z, and positions that are int with a block's to spare */
    if (a->leaves * a->heads > 65535 || a->batch > 65535 || a->T > INT_MAX - 1024)
        return gyre_fail(GYRE_ERR_INVALID,
                         "attention on the GPU: %zu leaves of %zu heads, %zu sequences of %zu positions are "
                         "too many in one call",
                         a->leaves, a->heads, a->batch, a->T);
    return GYRE_OK;
}

static gyre_status_t told(cudaError_t rc, const char *what, const model_cuda_attention_t *a)
{
    if (rc == cudaSuccess)
        return GYRE_OK;
    cudaGetLastError(); /* clears the runtime's error, which this call returns */
    return gyre_fail(
        GYRE_ERR_SYSTEM,
        "%s of %zu sequences, %zu x %zu heads (%zu of keys) of %zu, %zu positions, %s, on the GPU: %s", what,
        a->batch, a->leaves, a->heads, a->kv_heads, a->head_dim, a->T,
        a->type == MODEL_CUDA_BF16 ? "bf16" : "fp32", cudaGetErrorString(rc));
}

gyre_status_t model_cuda_attention_fits(model_cuda_type_t type, size_t head_dim)
{
    const size_t needed = model_cuda_attention_backward_shared(type, head_dim);
    int device = 0, most = 0;
    cudaError_t rc = cudaGetDevice(&device);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (rc != cudaSuccess)
        return gyre_fail(GYRE_ERR_SYSTEM, "cudaDeviceGetAttribute of shared memory: %s",
                         cudaGetErrorString(rc));
    if (needed > (size_t)most)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "training attention heads of %zu channels in %s takes %zu KiB of shared memory per "
                         "block, and this GPU has %d: take %s--device cpu",
                         head_dim, type == MODEL_CUDA_BF16 ? "bf16" : "fp32", (needed + 1023) / 1024,
                         most / 1024,
                         model_cuda_attention_backward_shared(MODEL_CUDA_BF16, head_dim) <= (size_t)most
                             ? "--precision bf16, or "
                             : "heads of 64 channels or fewer in bf16, or ");
    return GYRE_OK;
}

/* wgmma.cu's kernels are for compute capability 9.0 alone. */
static cudaError_t by_wgmma(model_cuda_type_t type, size_t head_dim, int *wgmma)
{
    int device = 0, major = 0, minor = 0;
    *wgmma = 0;
    if (type != MODEL_CUDA_BF16 || (head_dim > 64 && head_dim <= 96) || !model_cuda_attention_wgmma_built() ||
        strcmp(base_setting_string(SET_WGMMA), "off") == 0)
        return cudaSuccess;
    cudaError_t rc = cudaGetDevice(&device);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *wgmma = rc == cudaSuccess && major == 9 && minor == 0;
    return rc;
}

const char *model_cuda_attention_by(model_cuda_type_t type, size_t head_dim)
{
    int wgmma;
    if (by_wgmma(type, head_dim, &wgmma) != cudaSuccess)
        return "unknown";
    return type == MODEL_CUDA_F32 ? "fma" : wgmma ? "wgmma" : "mma.sync";
}

static int nothing(const model_cuda_attention_t *a)
{
    return a->batch == 0 || a->leaves == 0 || a->heads == 0 || a->T == 0;
}

gyre_status_t model_cuda_attention(const model_cuda_attention_t *attention, struct CUstream_st *stream)
{
    if (nothing(attention))
        return GYRE_OK;
    gyre_status_t status = check(attention);
    if (status != GYRE_OK)
        return status;
    int wgmma;
    cudaError_t rc = by_wgmma(attention->type, attention->head_dim, &wgmma);
    if (rc == cudaSuccess)
        rc = model_cuda_attention_forward_launch(attention, wgmma, stream);
    return told(rc, "attention", attention);
}

gyre_status_t model_cuda_attention_backward(const model_cuda_attention_t *attention,
                                            struct CUstream_st *stream)
{
    if (nothing(attention))
        return GYRE_OK;
    gyre_status_t status = check(attention);
    if (status == GYRE_OK)
        status = model_cuda_attention_fits(attention->type, attention->head_dim);
    if (status != GYRE_OK)
        return status;
    int wgmma;
    cudaError_t rc = by_wgmma(attention->type, attention->head_dim, &wgmma);
    if (rc == cudaSuccess)
        rc = model_cuda_attention_backward_launch(attention, wgmma, stream);
    return told(rc, "attention's backward", attention);
}

#endif
