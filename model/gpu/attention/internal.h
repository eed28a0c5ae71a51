/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/internal.h: what the kernels of mma.cu, wgmma.cu and f32.cu share: addresses of
 * heads, the columns that a row sees, dropout, launching. For .cu files only. */
#ifndef MODEL_GPU_ATTENTION_INTERNAL_H
#define MODEL_GPU_ATTENTION_INTERNAL_H

#include "base/device/kernel.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "model/gpu/attention/attention.h"
#include "model/gpu/attention/kernels.h"
#include "model/gpu/scalar.h"

typedef __nv_bfloat16 bf16;

#define LN2 0.69314718055994530942f

typedef struct {
    model_cuda_attention_t a;
    float scale_2; /* scale log2(e) */
    int fast;      /* 16-byte accesses are aligned everywhere */
} attend_t;

/* Head h of the view: an address. */
static __device__ __forceinline__ void *head_at(const model_cuda_heads_t *x, int leaf, int b, int h,
                                                int head_dim, size_t bytes)
{
    return (char *)x->data + (leaf * x->leaf + b * x->sequence + (size_t)h * head_dim) * bytes;
}

/* Where a head's row begins in lse and delta. */
static __device__ __forceinline__ size_t row_stats(const model_cuda_attention_t *a, int leaf, int b, int h)
{
    return ((leaf * a->batch + b) * a->heads + h) * a->T;
}

/* lse log2(e) (which 0) or delta (1) of a query; beyond T a value that makes its weights 0. */
static __device__ __forceinline__ float stat_of(const model_cuda_attention_t *a, int which, size_t first,
                                                int query)
{
    if ((size_t)query >= a->T)
        return which ? 0 : INFINITY;
    return which ? a->delta[first + query] : a->lse[first + query] * LOG2E;
}

static __device__ __forceinline__ int prefix_of(const model_cuda_attention_t *a, int b)
{
    return !a->prefix ? 0 : a->prefix[b] < a->T ? (int)a->prefix[b] : (int)a->T;
}

/* Columns that row t sees; more for later rows. */
static __device__ __forceinline__ int seen(int t, int prefix)
{
    return t < prefix ? prefix : t + 1;
}

/* The end of the columns that any row before `rows_end` sees. */
static __device__ __forceinline__ int columns_end(int rows_end, int prefix, int T)
{
    int end = seen(rows_end - 1, prefix);
    return end < T ? end : T;
}

/* The number of element (head, row, 0) in dropout's tensor [heads of the model][T][T]. `head`: of this
 * call. */
static __device__ __forceinline__ uint64_t first_element(const model_cuda_attention_t *a, int head, int row)
{
    return ((uint64_t)(a->first_head + head) * a->T + row) * a->T;
}

/* Bit 0: element `index` of sequence b's weights is dropped; bit 1: the next one. */
static __device__ __forceinline__ uint32_t dropped_pair(const model_cuda_attention_t *a, int b,
                                                        uint64_t index)
{
    const uint32_t *key = a->keys + b * 4;
    uint32_t number[4];
    model_dropout_numbers(key, key[3], index / 4, number);
    const uint32_t first = model_number(number, index) < a->below;
    if (index % 4 == 3)
        model_dropout_numbers(key, key[3], index / 4 + 1, number);
    return first | (uint32_t)(model_number(number, index + 1) < a->below) << 1;
}

/* ---- launching ----------------------------------------------------------------------------------------- */

typedef void attention_kernel_t(attend_t);

static inline cudaError_t attention_launch(attention_kernel_t *kernel, const attend_t *p, dim3 grid,
                                           int threads, size_t bytes, cudaStream_t stream)
{
    return GYRE_LAUNCH(kernel, grid, dim3(threads), bytes, stream, *p);
}

static inline int view_is_aligned(const model_cuda_heads_t *x, size_t element)
{
    return (uintptr_t)x->data % 16 == 0 &&
           (x->row * element % 16 | x->sequence * element % 16 | x->leaf * element % 16) == 0;
}

static inline attend_t attend_of(const model_cuda_attention_t *a)
{
    size_t element = a->type == MODEL_CUDA_BF16 ? 2 : 4;
    attend_t p;
    p.a = *a;
    p.scale_2 = a->scale * LOG2E;
    p.fast = a->head_dim * element % 16 == 0 && view_is_aligned(&a->q, element) &&
             view_is_aligned(&a->k, element) && view_is_aligned(&a->v, element) &&
             view_is_aligned(&a->o, element) && view_is_aligned(&a->d_o, element) &&
             view_is_aligned(&a->d_q, element) && view_is_aligned(&a->d_k, element) &&
             view_is_aligned(&a->d_v, element);
    return p;
}

cudaError_t attention_f32_forward(const attend_t *p, cudaStream_t stream);
cudaError_t attention_f32_backward(const attend_t *p, cudaStream_t stream); /* delta is there */
size_t attention_f32_backward_bytes(void);                                  /* of shared memory per block */

/* by wgmma: bf16, heads of at most 64 or at least 97 channels (kernels.h) */
cudaError_t attention_wgmma_forward(const attend_t *p, cudaStream_t stream);
cudaError_t attention_wgmma_backward(const attend_t *p, cudaStream_t stream); /* delta is there */

#endif
