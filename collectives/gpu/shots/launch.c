/* collectives/gpu/shots/launch.c: which kernel an operation runs: by its element type if it reduces, else
 * the one that only moves.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A value that is no type or no reduction is refused here (cudaErrorInvalidValue): device code has no
 * default that would compute something else. */
#ifdef GYRE_CUDA

#include "collectives/gpu/shots/kernels.h"

#define ROW(TYPE, name) , &coll_cuda_sum_##name
static const coll_cuda_kernels_t *const all_kernels[] = {&coll_cuda_moves COLL_CUDA_TYPES(ROW)};
#undef ROW
enum { KERNELS = sizeof all_kernels / sizeof all_kernels[0] };

/* NULL: not an element type. */
static const coll_cuda_kernels_t *kernels_of(gyre_type_t type)
{
    switch (type) {
#define CASE(TYPE, name) \
    case TYPE:           \
        return &coll_cuda_sum_##name;
        /* NOLINTNEXTLINE(bugprone-branch-clone): types of one width share an instance */
        COLL_CUDA_TYPES(CASE)
#undef CASE
#define CASE(TYPE) case TYPE:
        COLL_CUDA_HOST_TYPES(CASE)
#undef CASE
    case GYRE_TYPE_USER:
    case GYRE_TYPE_NONE:
        return NULL;
    }
    return NULL;
}

/* A kind that has no row has no kernel. */
static int is_redop(gyre_redop_kind_t redop)
{
    static const unsigned char has[GYRE_REDOP_COUNT] = {
#define REDOP(id, name, kernels, device) [GYRE_##id] = 1,
#define REDOP_HOST(id, name, rows, of)   [GYRE_##id] = 0,
#include "base/redops.def"
#undef REDOP
    };
    return redop >= 0 && redop < GYRE_REDOP_COUNT && has[redop];
}

int coll_cuda_has_kernel(gyre_redop_kind_t redop, gyre_type_t type)
{
    return kernels_of(type) && is_redop(redop);
}

int coll_cuda_can_add(const coll_cuda_op_t *op)
{
    return coll_cuda_has_kernel((gyre_redop_kind_t)op->redop, (gyre_type_t)op->type);
}

cudaError_t coll_cuda_launch_peers(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    if (!op->reduces)
        return coll_cuda_moves.rounds(op, blocks, stream);
    return coll_cuda_can_add(op) ? kernels_of((gyre_type_t)op->type)->rounds(op, blocks, stream)
                                 : cudaErrorInvalidValue;
}

cudaError_t coll_cuda_launch_add(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    return coll_cuda_can_add(op) ? kernels_of((gyre_type_t)op->type)->add(op, blocks, stream)
                                 : cudaErrorInvalidValue;
}

cudaError_t coll_cuda_launch_scale(const coll_cuda_op_t *op, size_t bytes, int blocks, cudaStream_t stream)
{
    return coll_cuda_can_add(op) ? kernels_of((gyre_type_t)op->type)->scale(op, bytes, blocks, stream)
                                 : cudaErrorInvalidValue;
}

cudaError_t coll_cuda_load(void)
{
    cudaError_t rc = coll_cuda_load_signals();
    for (int i = 0; i < KERNELS && rc == cudaSuccess; i++)
        rc = all_kernels[i]->load();
    return rc;
}

cudaError_t coll_cuda_blocks_held(int *blocks)
{
    cudaError_t rc = cudaSuccess;
    int least = 0, held;
    for (int i = 0; i < KERNELS && rc == cudaSuccess; i++) {
        rc = all_kernels[i]->held(&held);
        least = i == 0 || (rc == cudaSuccess && held < least) ? held : least;
    }
    if (rc == cudaSuccess)
        *blocks = least;
    return rc;
}

#else
typedef int launch_nothing_t; /* a build without CUDA has no kernels; ISO C wants a declaration */
#endif
