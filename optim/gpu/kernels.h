/* SPDX-License-Identifier: Apache-2.0 */
/* optim/gpu/kernels.h: the optimiser's loops on a CUDA device, with the bits of the host's: optim/adamw.c,
 * convert.c, tree.c, and exact squares. What goes over many rows of different lengths goes over a list of
 * spans in device memory, in one launch.
 *
 * All pointers are device memory but where said, all calls enqueue on `stream` and return; an error is one
 * of the launch. */
#ifndef OPTIM_GPU_KERNELS_H
#define OPTIM_GPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include <gyre/exact.h>

#include "optim/adamw.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { OPTIM_CUDA_FLOAT32, OPTIM_CUDA_BFLOAT16, OPTIM_CUDA_FLOAT16 } optim_cuda_type_t;

/* Elements of a row that this rank updates. */
typedef struct {
    float *w, *m, *v;
    const void *grad;
    uint16_t *rounded; /* w in 16 bits; NULL: nobody wants it */
    uint64_t n;
    int decay;
} optim_cuda_span_t;
/* optim_adamw_update over `spans` spans of gradients of type `grad`; then w rounded to `store`. longest:
 * of the spans. */
cudaError_t optim_cuda_adamw(const optim_cuda_span_t *span, size_t spans, size_t longest,
                             optim_cuda_type_t grad, optim_cuda_type_t store,
                             const optim_adamw_factors_t *factors /* host */, cudaStream_t stream);

typedef struct {
    const void *data;
    uint64_t n;
} optim_cuda_values_t;
/* word [OPTIM_EXACT_WORDS] += squares of all values: sums of integers, whose order does not count. The sum is
 * that of word[k] * 2^(32 k - 298) for k below OPTIM_EXACT_LIMBS; 2^40 floats fit. word[OPTIM_EXACT_LIMBS]
 * counts what is not finite. */
#define OPTIM_EXACT_LIMBS 20
#define OPTIM_EXACT_WORDS (OPTIM_EXACT_LIMBS + 1)
cudaError_t optim_cuda_exact(const optim_cuda_values_t *list, size_t spans, size_t longest,
                             optim_cuda_type_t type, uint64_t *word, cudaStream_t stream);

/* Adds what the words, in host memory, stand for. */
gyre_status_t optim_cuda_exact_add(gyre_exact_t *sum, const uint64_t word[OPTIM_EXACT_WORDS]);

typedef struct {
    const void *data;
    uint64_t bytes; /* a multiple of 2 */
    uint32_t word;  /* to which its hash is added */
    int sliced;     /* 1: only the slice that is asked for */
    uint64_t salt;
} optim_cuda_hashed_t;
/* word[list[i].word] += a hash of slice `part` of `parts` of data: equal for equal bits and salts, of
 * whatever order. */
cudaError_t optim_cuda_hash(const optim_cuda_hashed_t *list, size_t spans, size_t longest_bytes, size_t part,
                            size_t parts, uint64_t *word, cudaStream_t stream);

enum { OPTIM_CUDA_LEVELS = 64 };
/* value [n] = left[0] + value, then left[1] + that, and so on; the last sum goes to left[joins - 1] if
 * `keep`, else to value. type: what leaves and every sum are rounded to, held as floats. left: a host
 * array. */
cudaError_t optim_cuda_join(float *value, float *const *left, size_t joins, int keep, optim_cuda_type_t type,
                            size_t n, cudaStream_t stream);
/* sum [n] = other + sum, both of `type`. */
cudaError_t optim_cuda_add(void *sum, const void *other, optim_cuda_type_t type, size_t n,
                           cudaStream_t stream);
cudaError_t optim_cuda_round(optim_cuda_type_t type, const float *from, uint16_t *to, size_t n,
                             cudaStream_t stream);
/* n times -0.0, which added to a number is that number. */
cudaError_t optim_cuda_nothing(optim_cuda_type_t type, void *data, size_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
