/* collectives/gpu/sums/launch.c: which kernel an operation runs: by its element type if it reduces, else
 * the one that only moves.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A value that is no type or no reduction is refused here (cudaErrorInvalidValue): device code has no
 * default that would compute something else. */
#ifdef GYRE_CUDA

#include "collectives/gpu/sums/kernels.h"

#define ROW(TYPE, name) , &coll_cuda_sum_##name
static const coll_cuda_kernels_t *const all_kernels[] = {&coll_cuda_moves, &coll_cuda_exact_f16,
                                                         &coll_cuda_exact_bf16, &coll_cuda_exact_f32,
                                                         &coll_cuda_exact_f64 COLL_CUDA_TYPES(ROW)};
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

/* Of sums that are rounded once. NULL: the type has none. */
static const coll_cuda_kernels_t *exact_kernels_of(gyre_type_t type)
{
    switch ((int)type) {
    case GYRE_FLOAT16:
        return &coll_cuda_exact_f16;
    case GYRE_BFLOAT16:
        return &coll_cuda_exact_bf16;
    case GYRE_FLOAT32:
        return &coll_cuda_exact_f32;
    case GYRE_FLOAT64:
        return &coll_cuda_exact_f64;
    default:
        return NULL;
    }
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

static const coll_cuda_kernels_t *kernels_for(const coll_cuda_op_t *op)
{
    const gyre_type_t type = (gyre_type_t)op->type;
    const gyre_redop_kind_t redop = (gyre_redop_kind_t)op->redop;
    if (!coll_cuda_has_kernel(redop, type))
        return NULL;
    if (op->exact)
        return redop == GYRE_SUM || redop == GYRE_AVG ? exact_kernels_of(type) : NULL;
    return kernels_of(type);
}

int coll_cuda_can_add(const coll_cuda_op_t *op)
{
    return kernels_for(op) != NULL;
}

cudaError_t coll_cuda_launch_peers(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    if (!op->reduces)
        return coll_cuda_moves.rounds(op, blocks, stream);
    const coll_cuda_kernels_t *kernels = kernels_for(op);
    return kernels ? kernels->rounds(op, blocks, stream) : cudaErrorInvalidValue;
}

cudaError_t coll_cuda_launch_ll(const coll_cuda_ll_t *op, cudaStream_t stream)
{
    if (!op->sums)
        return coll_cuda_moves.ll(op, stream);
    return coll_cuda_has_kernel((gyre_redop_kind_t)op->redop, (gyre_type_t)op->type)
               ? kernels_of((gyre_type_t)op->type)->ll(op, stream)
               : cudaErrorInvalidValue;
}

cudaError_t coll_cuda_launch_add(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    const coll_cuda_kernels_t *kernels = kernels_for(op);
    return kernels ? kernels->add(op, blocks, stream) : cudaErrorInvalidValue;
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
