/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/attention.h: attention on the GPU that never stores its [T,T] weights: FlashAttention-2
 * (Dao 2023, "FlashAttention-2: faster attention with better parallelism and work partitioning", algorithms 1
 * and 2).
 *
 * Per head s = scale q k^T - slope |i - j|, p = softmax(s) over the columns that a row sees, o = drop(p) v:
 * the same as model/network/stage/attention.inc. bf16 runs on tensor cores with fp32 softmax and sums, fp32
 * in fp32. Everything is deterministic: every sum has one order that depends on T and head_dim only, and no
 * atomics are used. */
#ifndef MODEL_GPU_ATTENTION_ATTENTION_H
#define MODEL_GPU_ATTENTION_ATTENTION_H

#include <stdint.h>

#include "model/gpu/products/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_CUDA_HEAD_MAX 128 /* the largest head_dim */

/* The addresses of the heads of one tensor: element d of head h of position t of sequence b of leaf l is
 * data[l * leaf + b * sequence + t * row + h * head_dim + d]. Any alignment; 16 bytes everywhere is fast. */
typedef struct {
    void *data;
    size_t row, sequence, leaf; /* elements */
} model_cuda_heads_t;

typedef struct {
    model_cuda_type_t type; /* of all tensors */
    size_t batch, leaves;   /* sequences; leaves of each (model/network/stage/stage.h), 1 if nothing is cut */
    size_t heads, kv_heads; /* of one leaf; consecutive heads / kv_heads heads share keys and values */
    size_t T, head_dim;     /* 1 .. MODEL_CUDA_HEAD_MAX */
    float scale;            /* 1 / sqrt(head_dim) */
    const float *slopes;    /* device, [leaves * heads]: ALiBi's, by head (leaf * heads + h); NULL: no bias */
    /* device, [batch]: rows t < prefix see all columns below prefix; NULL: causal throughout */
    const uint32_t *prefix;
    /* Dropout of the weights with the CPU's numbers (model/random.h): element (first_head + leaf * heads + h)
     * T T + row T + column of the tensor that keys[b] names is dropped if its number is less than `below`,
     * else scaled by `kept`. */
    const uint32_t *keys; /* device, [batch][4], model_dropout_key; NULL: no dropout */
    uint32_t below;       /* model_dropout_below */
    float kept;           /* 1 / (1 - probability) */
    size_t first_head;    /* of the model: this call's first */
    model_cuda_heads_t q, k, v, o;
    float *
        /* device, [leaves][batch][heads][T]: log of the sum of e^s; forward writes it, backward reads it */
        lse;
    /* backward only */
    model_cuda_heads_t d_o, d_q, d_k, d_v; /* d_o in; the others out, overwritten */
    float *delta;                          /* device, as lse: scratch */
} model_cuda_attention_t;

/* Whether the current device can run backward of such heads: UNSUPPORTED if a block of it takes more shared
 * memory than the device gives (99 KiB at compute capability 8.6, 8.9 and 12.0, where 8.0, 9.0 and 10.0 have
 * 163 or more). */
gyre_status_t model_cuda_attention_fits(model_cuda_type_t type, size_t head_dim);

/* Which kernels the current device has for such heads: "fma", "mma.sync" or "wgmma" (GYRE_WGMMA);
 * "unknown" if CUDA does not say what device it is. */
const char *model_cuda_attention_by(model_cuda_type_t type, size_t head_dim);

/* o, lse from q, k, v. Enqueued on `stream`; nothing waits. o must not overlap q, k, v. */
gyre_status_t model_cuda_attention(const model_cuda_attention_t *attention, struct CUstream_st *stream);

/* d_q, d_k, d_v from q, k, v, o, lse and d_o. Gradients of keys and values that heads share are summed
 * over them in their order. */
gyre_status_t model_cuda_attention_backward(const model_cuda_attention_t *attention,
                                            struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
