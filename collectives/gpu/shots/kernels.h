/* collectives/gpu/shots/kernels.h: the kernels that are compiled once per element type, as the host sees
 * them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each kernel of rounds.h is compiled for one thing that it adds, in a file of its own: sum_NAME.cu for an
 * element type, moves.cu for operations that add nothing. launch.c picks one by the operation. */
#ifndef COLLECTIVES_GPU_SHOTS_KERNELS_H
#define COLLECTIVES_GPU_SHOTS_KERNELS_H

#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/shots/types.h"

typedef struct {
    /* Has the driver load them. */
    cudaError_t (*load)(void);
    /* How many blocks of the kernel of `rounds` one multiprocessor holds at once. */
    cudaError_t (*held)(int *blocks);
    /* As coll_cuda_launch_peers, _add and _scale. */
    cudaError_t (*rounds)(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
    cudaError_t (*add)(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
    cudaError_t (*scale)(const coll_cuda_op_t *op, size_t bytes, int blocks, cudaStream_t stream);
} coll_cuda_kernels_t;

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_CUDA_DECLARE(TYPE, name) extern const coll_cuda_kernels_t coll_cuda_sum_##name;
COLL_CUDA_TYPES(COLL_CUDA_DECLARE)
#undef COLL_CUDA_DECLARE
/* `add` and `scale` are NULL. */
extern const coll_cuda_kernels_t coll_cuda_moves;

#ifdef __cplusplus
}
#endif
#endif
