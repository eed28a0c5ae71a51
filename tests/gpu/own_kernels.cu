/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/own_kernels.cu: see own_kernels.h. */
#include <gyre/device.cuh>

#include "base/device/kernel.h"
#include "tests/gpu/own_kernels.h"

static __global__ void exchange(gyre_cuda_peers_t peers, uint32_t *seen)
{
    const int all = (int)(gridDim.x * blockDim.x), own = (int)(blockIdx.x * blockDim.x + threadIdx.x),
              slot = (int)blockIdx.x;
    const size_t at = (size_t)(peers.rank * all + own) * sizeof(uint32_t);
    for (int peer = 0; peer < peers.n; peer++)
        *(volatile uint32_t *)gyre_device_pointer(peers, peer, at) =
            1000 * (uint32_t)peers.rank + 100 * blockIdx.x + threadIdx.x;
    if (!gyre_device_barrier(peers, slot))
        return;
    volatile uint32_t *words = (volatile uint32_t *)gyre_device_pointer(peers, peers.rank, 0);
    uint32_t sum = 0;
    for (int peer = 0; peer < peers.n; peer++) {
        sum += words[peer * all + own];
        words[peer * all + own] = 0; /* a stale word does not do the next time */
    }
    seen[own] += sum;
    (void)gyre_device_barrier(peers, slot);
}

cudaError_t api_exchange(const gyre_cuda_peers_t *peers, uint32_t *seen, cudaStream_t stream)
{
    return GYRE_LAUNCH(exchange, API_BLOCKS, API_THREADS, 0, stream, *peers, seen);
}

enum { TOKEN = GYRE_PEERS_SLOTS - 1 }; /* the last slot */

static __global__ void token(gyre_cuda_peers_t peers, uint32_t first)
{
    const int next = (peers.rank + 1) % peers.n, before = (peers.rank + peers.n - 1) % peers.n;
    volatile uint32_t *own = (volatile uint32_t *)gyre_device_pointer(peers, peers.rank, 0);
    if (peers.rank == 0)
        *own = first;
    else if (!gyre_device_wait(peers, before, TOKEN))
        return;
    if (next != 0)
        *(volatile uint32_t *)gyre_device_pointer(peers, next, 0) = *own + 1;
    gyre_device_signal(peers, next, TOKEN);
    if (peers.rank == 0)
        (void)gyre_device_wait(peers, before, TOKEN);
}

cudaError_t api_token(const gyre_cuda_peers_t *peers, uint32_t first, cudaStream_t stream)
{
    return GYRE_LAUNCH(token, 1, 1, 0, stream, *peers, first);
}

static __global__ void wait_once(gyre_cuda_peers_t peers, int peer, int barrier, uint32_t *got)
{
    const int came =
        barrier ? gyre_device_barrier(peers, 0) : (threadIdx.x == 0 ? gyre_device_wait(peers, peer, 0) : 0);
    if (threadIdx.x == 0)
        *got = (uint32_t)came;
}

cudaError_t api_wait(const gyre_cuda_peers_t *peers, int peer, int barrier, uint32_t *got,
                     cudaStream_t stream)
{
    return GYRE_LAUNCH(wait_once, 1, API_THREADS, 0, stream, *peers, peer, barrier, got);
}
