/* collectives/gpu/sums/kernels.h: the kernels that are compiled once per element type, as the host sees
 * them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each kernel of rounds.h is compiled for one thing that it adds, in a file of its own: sum_NAME.cu for an
 * element type, exact_NAME.cu for sums of it that are rounded once, moves.cu for operations that add
 * nothing. launch.c picks one by the operation. */
#ifndef COLLECTIVES_GPU_SUMS_KERNELS_H
#define COLLECTIVES_GPU_SUMS_KERNELS_H

#include "collectives/gpu/ll/lines.h"
#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/sums/types.h"

typedef struct {
    /* Has the driver load them. */
    cudaError_t (*load)(void);
    /* How many blocks of the kernel of `rounds` one multiprocessor holds at once. */
    cudaError_t (*held)(int *blocks);
    /* As coll_cuda_launch_peers, _add and _scale. */
    cudaError_t (*rounds)(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
    cudaError_t (*add)(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
    cudaError_t (*scale)(const coll_cuda_op_t *op, size_t bytes, int blocks, cudaStream_t stream);
    /* As coll_cuda_launch_ll. One multiprocessor holds a block of it, as its launch bounds say. */
    cudaError_t (*ll)(const coll_cuda_ll_t *op, cudaStream_t stream);
} coll_cuda_kernels_t;

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_CUDA_DECLARE(TYPE, name) extern const coll_cuda_kernels_t coll_cuda_sum_##name;
COLL_CUDA_TYPES(COLL_CUDA_DECLARE)
#undef COLL_CUDA_DECLARE
/* `scale` is NULL: it is that of the sum; so is `ll`: short ones are added up by `rounds`. */
extern const coll_cuda_kernels_t coll_cuda_exact_f16, coll_cuda_exact_bf16, coll_cuda_exact_f32,
    coll_cuda_exact_f64;
/* `add` and `scale` are NULL. */
extern const coll_cuda_kernels_t coll_cuda_moves;

#ifdef __cplusplus
}
#endif
#endif
