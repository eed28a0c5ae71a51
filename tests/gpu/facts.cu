/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/facts.cu: see facts.h. */
#include "tests/gpu/facts.h"

#include "base/device/kernel.h"

static __global__ void empty(void) {}

static __global__ void parameters(facts_parameters_t p, uint32_t *out)
{
    uint32_t sum = 0;
    for (size_t i = threadIdx.x; i < sizeof(p.words) / sizeof(p.words[0]); i += blockDim.x)
        sum |= p.words[i];
    if (sum)
        *out = sum;
}

/* block: 512. A round of a block is 8 x 512 words that lie together. */
template <int as_peers>
static __global__ void __launch_bounds__(512) read(const uint4 *from, size_t count, uint32_t *out)
{
    enum { DEEP = 8 };
    uint32_t sum = 0;
    for (size_t at = (size_t)blockIdx.x * DEEP * 512; at < count; at += (size_t)gridDim.x * DEEP * 512) {
        uint4 words[DEEP];
#pragma unroll
        for (int i = 0; i < DEEP; i++) {
            const size_t here = at + (size_t)i * 512 + threadIdx.x;
            const uint4 *word = from + (here < count ? here : count - 1);
            words[i] = as_peers ? gyre_load16(word) : *word;
        }
        /* All words wait for the last load: else the compiler saves registers by fewer loads at a time */
        for (int i = 0; i < DEEP; i++)
            sum += words[i].x;
        for (int i = 0; i < DEEP; i++)
            sum = 3 * (3 * (3 * sum + words[i].y) + words[i].z) + words[i].w;
    }
    if (sum)
        *out = sum;
}

static __global__ void chase(const uint4 *zero, int count, uint32_t *out)
{
    uint32_t next = 0; /* always 0, which the compiler does not know */
    for (int i = 0; i < count; i++)
        next = gyre_load16(zero + next).x;
    if (next)
        *out = next;
}

static __global__ void add(uint32_t *counter, int count)
{
    for (int i = 0; i < count; i++)
        gyre_add_acq_rel(counter, 1);
}

static __global__ void release(uint32_t *flag, uint32_t *posted, int count)
{
    for (int i = 0; i < count; i++) {
        if (posted)
            for (int word = 0; word < 3; word++)
                ((volatile uint32_t *)posted)[word] = (uint32_t)i;
        gyre_store_release(flag, (uint32_t)i);
    }
}

static __global__ void flags(uint32_t *theirs, uint32_t *mine, uint32_t first, int count, int begins,
                             long looks)
{
    for (uint32_t i = 1; i <= (uint32_t)count; i++) {
        if (begins)
            gyre_store_release(theirs, first + i);
        for (long look = 0; gyre_load_acquire(mine) != first + i; look++) {
            if (look == looks)
                return;
            GYRE_SPIN();
        }
        if (!begins)
            gyre_store_release(theirs, first + i);
    }
}

cudaError_t facts_empty(cudaStream_t stream)
{
    return GYRE_LAUNCH(empty, 1, 32, 0, stream);
}

cudaError_t facts_parameters(const facts_parameters_t *p, uint32_t *out, cudaStream_t stream)
{
    return GYRE_LAUNCH(parameters, 1, 512, 0, stream, *p, out);
}

cudaError_t facts_read(int blocks, int as_peers, const void *from, size_t count, uint32_t *out,
                       cudaStream_t stream)
{
    return as_peers ? GYRE_LAUNCH(read<1>, blocks, 512, 0, stream, (const uint4 *)from, count, out)
                    : GYRE_LAUNCH(read<0>, blocks, 512, 0, stream, (const uint4 *)from, count, out);
}

cudaError_t facts_chase(const void *zero, int count, uint32_t *out, cudaStream_t stream)
{
    return GYRE_LAUNCH(chase, 1, 1, 0, stream, (const uint4 *)zero, count, out);
}

cudaError_t facts_add(uint32_t *counter, int count, cudaStream_t stream)
{
    return GYRE_LAUNCH(add, 1, 1, 0, stream, counter, count);
}

cudaError_t facts_release(uint32_t *flag, uint32_t *posted, int count, cudaStream_t stream)
{
    return GYRE_LAUNCH(release, 1, 1, 0, stream, flag, posted, count);
}

cudaError_t facts_flags(uint32_t *theirs, uint32_t *mine, uint32_t first, int count, int begins, long looks,
                        cudaStream_t stream)
{
    return GYRE_LAUNCH(flags, 1, 1, 0, stream, theirs, mine, first, count, begins, looks);
}
