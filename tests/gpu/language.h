/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/language.h: kernels that use each word of CUDA and of base/device/kernel.h once; test_language.c
 * knows what they must find. All pointers are of the device. */
#ifndef TESTS_GPU_LANGUAGE_H
#define TESTS_GPU_LANGUAGE_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] += a x[i], a grid-stride loop. */
cudaError_t language_axpy(size_t n, float a, const float *x, float *y, cudaStream_t stream);
/* sums[block] = sum of 1024 integers x[1024 block ...], with shuffles and static shared memory. */
cudaError_t language_block_sums(int blocks, const int *x, int *sums, cudaStream_t stream);
/* d [16,8] = a [16,16] b [8,16]^T in bf16, rows through cp.async, ldmatrix and mma of one warp; the sums
 * are fp32. */
cudaError_t language_product(const uint16_t *a, const uint16_t *b, float *d, cudaStream_t stream);
/* The same with b [16,8] as it lies, loaded with ldmatrix.trans. */
cudaError_t language_product_trans(const uint16_t *a, const uint16_t *b, float *d, cudaStream_t stream);
/* Products of warpgroups, for compute capability 9.0 alone: of a [128,128], b [64,128], c [64,128] in bf16, d
 * has a b^T [128,64], then of a's first 64 columns the products with the first 64 of c, [128,64], and with c,
 * [128,128]. cudaErrorNoKernelImageForDevice: a build without sm_90. */
cudaError_t language_wgmma(const uint16_t *a, const uint16_t *b, const uint16_t *c, float *d,
                           cudaStream_t stream);
/* Every block waits for the one after it, the last for no block: order[i] is block i's place in that
 * order. */
cudaError_t language_chain(int blocks, uint32_t *flags, uint32_t *counter, uint32_t *order,
                           cudaStream_t stream);
/* Each thread of one block of n <= 1024: out[i] = votes, lanes and reversed neighbours through dynamic shared
 * memory:
 *   out[4i] ballot of (i % 3 == 0), out[4i+1] value of lane i ^ 5, out[4i+2] x[n-1-i], out[4i+3] count of
 *   (i % 7 == 0) */
cudaError_t language_votes(int n, size_t shared_bytes, const uint32_t *x, uint32_t *out, cudaStream_t stream);
/* Block 0 writes n lines of two words with a flag in each, which block 1 waits for: out[i] = x[i], 2n words.
 * The lines are zeroed before. */
cudaError_t language_lines(int n, uint64_t *lines, const uint32_t *x, uint32_t *out, cudaStream_t stream);
/* 96 KiB of dynamic shared memory: y[i] = x[n-1-i] for n = 24576 floats. */
cudaError_t language_reverse(const float *x, float *y, cudaStream_t stream);
/* One half of a warp waits for a lane of the other half, which waits at the block's barrier: forever. */
cudaError_t language_stuck(uint32_t *out, cudaStream_t stream);
/* y = x rounded to bf16 and to fp16 and back: y[2i], y[2i+1]. */
cudaError_t language_round(int n, const float *x, float *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
