/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/own_kernels.h: kernels that use gyre/device.cuh, for test_own_kernels.c. */
#ifndef TESTS_GPU_OWN_KERNELS_H
#define TESTS_GPU_OWN_KERNELS_H

#include <cuda_runtime_api.h>

#include <gyre/cuda.h>

enum { API_BLOCKS = 3, API_THREADS = 40 };

#ifdef __cplusplus
extern "C" {
#endif

/* Rank r of n, by block b and thread t: seen[b * API_THREADS + t] += the sum over the ranks p of
 * 1000 p + 100 b + t, each of which rank p writes to words[p * blocks * threads + ...] of everyone's memory;
 * between two barriers, so that launches may follow each other. */
cudaError_t api_exchange(const gyre_cuda_peers_t *peers, uint32_t *seen, cudaStream_t stream);
/* A token goes once around the ranks, by signals: rank 0 begins. The first word of each rank's memory
 * becomes that of the rank before it + 1, rank 0's `first`. */
cudaError_t api_token(const gyre_cuda_peers_t *peers, uint32_t first, cudaStream_t stream);
/* *got: what a wait for `peer` returned, 7 before; barrier: what a barrier returned. */
cudaError_t api_wait(const gyre_cuda_peers_t *peers, int peer, int barrier, uint32_t *got,
                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
