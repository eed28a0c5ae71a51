/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/facts.h: small kernels by which gpu_facts measures what this GPU's instructions cost. Pointers
 * are of the device or of pinned host memory. */
#ifndef TESTS_GPU_FACTS_H
#define TESTS_GPU_FACTS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As many bytes of parameters as a kernel of collectives has. */
typedef struct {
    uint32_t words[680];
} facts_parameters_t;

/* One block that does nothing; with parameters: it reads all of them. */
cudaError_t facts_empty(cudaStream_t stream);
cudaError_t facts_parameters(const facts_parameters_t *parameters, uint32_t *out, cudaStream_t stream);
/* `blocks` of 512 threads read `count` words of 16 bytes, eight at a time; as_peers: as collectives read what
 * peers write (volatile). out: a word that is written if the words are not all zero. */
cudaError_t facts_read(int blocks, int as_peers, const void *from, size_t count, uint32_t *out,
                       cudaStream_t stream);
/* One thread, `count` times, each after the one before: reads 16 zero bytes; adds 1 with system scope;
 * releases the flag, after three stores to `posted` (NULL: after none). */
cudaError_t facts_chase(const void *zero, int count, uint32_t *out, cudaStream_t stream);
cudaError_t facts_add(uint32_t *counter, int count, cudaStream_t stream);
cudaError_t facts_release(uint32_t *flag, uint32_t *posted, int count, cudaStream_t stream);
/* One thread: writes first + 1, first + 2, ... to `theirs`, `count` of them, each after it has seen the same
 * number in `mine`; the one that begins writes first. Ends early after so many looks in vain. */
cudaError_t facts_flags(uint32_t *theirs, uint32_t *mine, uint32_t first, int count, int begins, long looks,
                        cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
