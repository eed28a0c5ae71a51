/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/matmul.h: products of matrices on the GPU, fused with bias, activation, and the
 * activation's backward.
 *
 * Two backends with one interface. cuBLASLt is opened at run time if it is found (GYRE_CUBLASLT). It is asked
 * for an algorithm once per shape, and only for one that adds up without atomics and without splitting K.
 * Gyre's own kernels (matmul.cu) are for machines without it: bf16 on tensor cores, fp32 in fp32 (never
 * TF32). Their sums over K have one order that no other extent changes, so a row has the same bits for any M,
 * N and batch.
 *
 * A product goes to the library unless the library has no such algorithm for the shape. That depends on the
 * shape only: bits are the same on every rank and in every layout, and no run mixes the two by chance.
 *
 * Everything is enqueued on the caller's stream and nothing waits. The first call of a shape may allocate
 * host memory; no later one does. A handle is for one thread, one device, the current one when it was made,
 * and one stream at a time: its workspace is used in stream order. */
#ifndef MODEL_GPU_PRODUCTS_MATMUL_H
#define MODEL_GPU_PRODUCTS_MATMUL_H

#include <stddef.h>

#include <gyre/status.h>

#include "model/network/config.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t is a pointer to it */

typedef enum { MODEL_CUDA_F32, MODEL_CUDA_BF16 } model_cuda_type_t;

/* What happens to v = alpha op(A) op(B) + beta D (in fp32) before it is stored. */
typedef enum {
    MODEL_CUDA_PLAIN, /* D = v */
    MODEL_CUDA_BIAS,  /* D = v + bias */
    MODEL_CUDA_ACT,   /* pre = v + bias; D = act(pre), of pre before or after it is rounded to be stored */
    /* D = v act'(pre): the gradient before an activation; bias is not read */
    MODEL_CUDA_ACT_BACK
} model_cuda_epilogue_t;

/* D [M,N] of a product; row-major like all matrices here. op(A) is [M,K]: A is [M,K] if trans_a is 0, else
 * [K,M]; op(B) is [K,N] likewise. */
typedef struct {
    int trans_a, trans_b;
    size_t M, N, K;
    size_t lda, ldb, ldd; /* elements between rows */
    size_t batch;         /* so many products; 0 is 1 */
    size_t step_a, step_b,
        step_d;            /* elements from one product's matrix to the next's; 0: all share it (not D) */
    float alpha, beta;     /* beta 0: D need not be initialised */
    model_cuda_type_t in;  /* of A and B */
    model_cuda_type_t out; /* of D, bias and pre; F32 if `in` is */
    model_cuda_epilogue_t epilogue;
    model_act_t act;  /* of ACT and ACT_BACK */
    const void *bias; /* BIAS, ACT: [N], on the device; NULL with ACT: no bias */
    size_t step_bias; /* elements from one product's bias to the next's */
    void *pre;        /* ACT: [M,N] is written, NULL: not kept; ACT_BACK: is read. Not D itself with ACT */
    size_t ldpre, step_pre;
} model_cuda_product_t;

typedef struct model_cuda_matmul_handle model_cuda_matmul_t;

/* Makes a handle for the current device. Without the library that GYRE_CUBLASLT names: an error; with `auto`:
 * Gyre's own kernels. */
gyre_status_t model_cuda_matmul_create(model_cuda_matmul_t **matmul);
/* Nothing enqueued through the handle may be running. NULL is allowed. */
void model_cuda_matmul_destroy(model_cuda_matmul_t *matmul);
/* The backend and the reason for it, in one line: "cuBLASLt 13.0.2 (libcublasLt.so.13)", "own kernels: no
 * libcublasLt found". */
const char *model_cuda_matmul_told(const model_cuda_matmul_t *matmul);

/* The backend that computed a product. */
typedef enum {
    MODEL_CUDA_BY_US = 0,
    MODEL_CUDA_BY_LIBRARY, /* cuBLASLt, epilogue and batch in one call */
    /* cuBLASLt with the epilogue, a call for each matrix of a batch that it does not take as one */
    MODEL_CUDA_MATRIX_BY_MATRIX,
    MODEL_CUDA_ACTIVATED_BY_US /* cuBLASLt, then Gyre's kernel for the activation */
} model_cuda_by_t;
/* The last one of this handle. */
model_cuda_by_t model_cuda_matmul_by(const model_cuda_matmul_t *matmul);

/* A, B, D, bias, pre: device memory of any alignment (16 bytes and leading dimensions that are multiples of
 * 16 bytes are fast). D overlaps neither A nor B. M or N 0: nothing; K 0: v = beta D. */
gyre_status_t model_cuda_matmul(model_cuda_matmul_t *matmul, const model_cuda_product_t *product,
                                const void *A, const void *B, void *D, struct CUstream_st *stream);

/* sum [batch][N] (fp32) = sums over the rows of d [batch][M,N], rows ld and matrices `step` elements apart:
 * the gradient of a bias. Rows are added one after another in blocks of 64. Sums of every 32nd block are
 * added one after another, and a tree joins those 32: the order is a function of M alone. */
gyre_status_t model_cuda_column_sum(model_cuda_matmul_t *matmul, float *sum, const void *d,
                                    model_cuda_type_t type, size_t M, size_t N, size_t ld, size_t batch,
                                    size_t step, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
