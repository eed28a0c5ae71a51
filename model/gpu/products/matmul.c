/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/matmul.c: checks products and passes them to cuBLASLt (lt.c) or to Gyre's own kernels
 * (matmul.cu). */
#include "model/gpu/products/matmul.h"

#ifdef GYRE_CUDA

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/gpu/products/internal.h"
#include "model/gpu/products/lt.h"

/* Room for the library and for partial sums of columns; what NVIDIA recommends for the former on Hopper. */
#define WORKSPACE ((size_t)32 << 20)

struct model_cuda_matmul_handle {
    model_cuda_lt_t *lt; /* NULL: our own kernels */
    void *workspace;     /* device */
    int processors;      /* of the device */
    char told[320];
    model_cuda_by_t by; /* the last product */
};

static gyre_status_t failed(cudaError_t rc, const char *what)
{
    cudaGetLastError(); /* clears the runtime's error, which this call returns */
    return gyre_fail(rc == cudaErrorMemoryAllocation ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM, "%s: %s", what,
                     cudaGetErrorString(rc));
}

gyre_status_t model_cuda_matmul_create(model_cuda_matmul_t **matmul)
{
    int device = 0;
    cudaError_t rc;
    model_cuda_matmul_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "products on the GPU: no memory left");
    gyre_status_t status = GYRE_OK;
    if ((rc = cudaGetDevice(&device)) != cudaSuccess)
        status = failed(rc, "asking for the current CUDA device");
    else if ((rc = cudaDeviceGetAttribute(&fresh->processors, cudaDevAttrMultiProcessorCount, device)) !=
             cudaSuccess)
        status = failed(rc, "asking for the number of multiprocessors");
    else if ((rc = cudaMalloc(&fresh->workspace, WORKSPACE)) != cudaSuccess)
        status = failed(rc, "allocating 32 MiB of device memory for products");
    else
        status = model_cuda_lt_create(&fresh->lt, fresh->told, sizeof(fresh->told));
    if (status != GYRE_OK) {
        model_cuda_matmul_destroy(fresh);
        return status;
    }
    *matmul = fresh;
    return GYRE_OK;
}

void model_cuda_matmul_destroy(model_cuda_matmul_t *matmul)
{
    if (matmul == NULL)
        return;
    model_cuda_lt_destroy(matmul->lt);
    if (matmul->workspace)
        cudaFree(matmul->workspace); /* allocated here and idle: no error to report */
    free(matmul);
}

const char *model_cuda_matmul_told(const model_cuda_matmul_t *matmul)
{
    return matmul->told;
}

model_cuda_by_t model_cuda_matmul_by(const model_cuda_matmul_t *matmul)
{
    return matmul->by;
}

static gyre_status_t check(const model_cuda_product_t *p)
{
    const size_t most = INT_MAX - 1024;
    if (p->M > most || p->N > most || p->K > most || p->batch > 65535)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "a product on the GPU: [%zu,%zu] x [%zu,%zu], %zu times, is more than one call takes", p->M, p->K,
            p->K, p->N, p->batch);
    if (p->lda < (p->trans_a ? p->M : p->K) || p->ldb < (p->trans_b ? p->K : p->N) || p->ldd < p->N)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a product on the GPU: [%zu,%zu] x [%zu,%zu] has rows %zu, %zu and %zu elements "
                         "apart, which is too close",
                         p->M, p->K, p->K, p->N, p->lda, p->ldb, p->ldd);
    if (p->in == MODEL_CUDA_F32 && p->out == MODEL_CUDA_BF16)
        return gyre_fail(GYRE_ERR_INVALID, "a product on the GPU: bf16 output needs bf16 inputs, not fp32");
    if ((p->epilogue == MODEL_CUDA_BIAS && !p->bias) || (p->epilogue == MODEL_CUDA_ACT_BACK && !p->pre) ||
        (p->pre && p->epilogue >= MODEL_CUDA_ACT && p->ldpre < p->N))
        return gyre_fail(GYRE_ERR_INVALID,
                         "a product on the GPU: its epilogue lacks the bias or the pre-activation [%zu,%zu]",
                         p->M, p->N);
    return GYRE_OK;
}

/* Large tiles move less; small ones, when large ones would leave multiprocessors idle. */
static model_cuda_tile_t tile_for(const model_cuda_matmul_t *matmul, const model_cuda_product_t *p)
{
    size_t large = (p->M + 127) / 128 * ((p->N + 127) / 128) * p->batch;
    return large >= (size_t)matmul->processors ? MODEL_CUDA_TILE_LARGE : MODEL_CUDA_TILE_SMALL;
}

gyre_status_t model_cuda_matmul(model_cuda_matmul_t *matmul, const model_cuda_product_t *product,
                                const void *A, const void *B, void *D, struct CUstream_st *stream)
{
    model_cuda_product_t p = *product;
    if (p.batch == 0)
        p.batch = 1;
    gyre_status_t status = check(&p);
    if (status != GYRE_OK || p.M == 0 || p.N == 0)
        return status;
    if (matmul->lt && p.K > 0) {
        status =
            model_cuda_lt_matmul(matmul->lt, &p, A, B, D, matmul->workspace, WORKSPACE, stream, &matmul->by);
        if (status != GYRE_OK || matmul->by != MODEL_CUDA_BY_US)
            return status;
    }
    /* only now: the library's choice must be the same for a matrix alone and for one in a batch */
    if (p.batch == 1)
        p.step_a = p.step_b = p.step_d = p.step_bias = p.step_pre = 0;
    matmul->by = MODEL_CUDA_BY_US;
    cudaError_t rc = model_cuda_product_launch(&p, A, B, D, tile_for(matmul, &p), stream);
    if (rc == cudaSuccess)
        return GYRE_OK;
    char what[160];
    snprintf(what, sizeof(what), "a product [%zu,%zu] x [%zu,%zu], %zu times, %s, on the GPU", p.M, p.K, p.K,
             p.N, p.batch, p.in == MODEL_CUDA_BF16 ? "bf16" : "fp32");
    return failed(rc, what);
}

gyre_status_t model_cuda_column_sum(model_cuda_matmul_t *matmul, float *sum, const void *d,
                                    model_cuda_type_t type, size_t M, size_t N, size_t ld, size_t batch,
                                    size_t step, struct CUstream_st *stream)
{
    /* So many columns at a time that the blocks' sums fit. */
    const size_t blocks = (M + MODEL_CUDA_SUM_ROWS - 1) / MODEL_CUDA_SUM_ROWS,
                 element = type == MODEL_CUDA_BF16 ? 2 : 4;
    const size_t room = WORKSPACE / sizeof(float) / (blocks ? blocks : 1) / (batch ? batch : 1),
                 wide = room < N ? room : N;
    if (batch > 65535 || blocks > 65535 || ld < N || (wide == 0 && N > 0))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "sums of columns of %zu matrices [%zu,%zu], rows %zu elements apart, on the GPU: too large",
            batch, M, N, ld);
    for (size_t first = 0; first < N && batch > 0; first += wide) {
        size_t columns = N - first < wide ? N - first : wide;
        cudaError_t rc =
            model_cuda_column_sum_launch(sum + first, N, matmul->workspace, (const char *)d + first * element,
                                         type, M, columns, ld, batch, step, stream);
        if (rc != cudaSuccess)
            return failed(rc, "sums of columns on the GPU");
    }
    return GYRE_OK;
}

#endif
