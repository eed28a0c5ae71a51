/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/internal.h: the kernels of matmul.cu, for matmul.c, which checks arguments and chooses
 * the backend. */
#ifndef MODEL_GPU_PRODUCTS_INTERNAL_H
#define MODEL_GPU_PRODUCTS_INTERNAL_H

#include <driver_types.h>

#include "model/gpu/products/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which tile a product is computed in; the bits are the same. */
typedef enum { MODEL_CUDA_TILE_SMALL, MODEL_CUDA_TILE_LARGE } model_cuda_tile_t;

/* Computes a product with our own kernels. All extents fit in int; batch is at least 1; K may be 0. */
cudaError_t model_cuda_product_launch(const model_cuda_product_t *product, const void *A, const void *B,
                                      void *D, model_cuda_tile_t tile, cudaStream_t stream);
/* The epilogue by itself, for a product whose backend has no such epilogue: D holds v (ACT: v + bias lies in
 * `from`, which may be D or pre) and becomes act(from) or D act'(pre). */
cudaError_t model_cuda_epilogue_launch(const model_cuda_product_t *product, const void *from, size_t ldfrom,
                                       size_t step_from, void *D, cudaStream_t stream);
/* partial [batch][blocks][N], blocks = ceil(M / MODEL_CUDA_SUM_ROWS). */
#define MODEL_CUDA_SUM_ROWS  64
#define MODEL_CUDA_SUM_LANES 32
cudaError_t model_cuda_column_sum_launch(float *sum, size_t step_sum, float *partial, const void *d,
                                         model_cuda_type_t type, size_t M, size_t N, size_t ld, size_t batch,
                                         size_t step, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
