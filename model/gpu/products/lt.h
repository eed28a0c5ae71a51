/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/lt.h: cuBLASLt, found at run time: the products of matmul.c where the machine has the
 * library. */
#ifndef MODEL_GPU_PRODUCTS_LT_H
#define MODEL_GPU_PRODUCTS_LT_H

#include "model/gpu/products/matmul.h"

typedef struct model_cuda_lt model_cuda_lt_t;

/* Opens the library that GYRE_CUBLASLT names for the current device. *lt NULL with GYRE_OK: it is off, or
 * `auto` found no library. The text [bytes] gets the library's name, or why there is none. */
gyre_status_t model_cuda_lt_create(model_cuda_lt_t **lt, char *told, size_t bytes);
void model_cuda_lt_destroy(model_cuda_lt_t *lt); /* NULL is allowed */

/* *by BY_US: the library has no suitable algorithm for this shape, and nothing was enqueued. Extents are
 * checked and not 0. `workspace` is 256-byte aligned device memory that is used in stream order. */
gyre_status_t model_cuda_lt_matmul(model_cuda_lt_t *lt, const model_cuda_product_t *product, const void *A,
                                   const void *B, void *D, void *workspace, size_t bytes,
                                   struct CUstream_st *stream, model_cuda_by_t *by);

#endif
