/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/device.cuh: kernels of the program that work with the other ranks of their node: pointers to the
 * peers' memory, signals, waits and barriers. For .cu files; the host's part is gyre/cuda.h.
 *
 *     gyre_comm_register_cuda(comm, x, bytes, &registration);
 *     gyre_comm_peers_cuda(comm, registration, &peers);          then: kernel<<<...>>>(peers, ...)
 *
 * Slots. A signal goes to a slot of a peer, 0 <= slot < GYRE_PEERS_SLOTS, and ends that peer's wait for
 * this rank in the same slot: the k-th signal the k-th wait. Counters lie in device memory and only grow, so
 * kernels can be captured and launched again. A slot belongs to one block at a time: usually block b uses
 * slot b of all ranks, and all ranks launch as many blocks. A barrier is a signal to every peer and a wait
 * for every peer.
 *
 * Memory order. What a thread wrote before its signal is seen by the thread whose wait the signal ended.
 * __syncthreads before a signal and after a wait makes that hold for the blocks; a barrier has both. Read
 * what peers write through volatile pointers or after a wait; not through __ldg or const __restrict__
 * pointers.
 *
 * Failures. Waits return 1; or 0 once the communicator has failed or was aborted on any rank, then and from
 * there on. A kernel that gets 0 returns, and leaves results that mean nothing; gyre_comm_error has the
 * reason. No other error exists here: ranks, slots and offsets are not checked. */
#ifndef GYRE_DEVICE_CUH
#define GYRE_DEVICE_CUH

#include <cuda_runtime.h>

#include <gyre/cuda.h>

/* The address here of the byte at `offset` in that rank's registered memory; rank may be this one. */
static __device__ __forceinline__ void *gyre_device_pointer(const gyre_cuda_peers_t &peers, int rank,
                                                            size_t offset)
{
    return (char *)peers.memory[rank] + offset;
}

/* Of this library's own use: counter `kind` (0: came, 1: sent, 2: waited for) of rank `owner` for `peer`. */
static __device__ __forceinline__ volatile uint32_t *
gyre_device_counter(const gyre_cuda_peers_t &peers, int owner, int kind, int slot, int peer)
{
    return peers.counters[owner] + ((size_t)kind * GYRE_PEERS_SLOTS + (size_t)slot) * GYRE_PEERS_MOST + peer;
}

/* By one thread for a slot and a peer, which may be this rank itself. */
static __device__ __forceinline__ void gyre_device_signal(const gyre_cuda_peers_t &peers, int peer, int slot)
{
    volatile uint32_t *sent = gyre_device_counter(peers, peers.rank, 1, slot, peer);
    const uint32_t number = *sent + 1;
    *sent = number;
    __threadfence_system(); /* what came before, then the word; pairs with the fence of the wait */
    *gyre_device_counter(peers, peer, 0, slot, peers.rank) = number;
}

/* Waits for the peer's next signal, by one thread for a slot and a peer. 0: the communicator is over. */
static __device__ __forceinline__ int gyre_device_wait(const gyre_cuda_peers_t &peers, int peer, int slot)
{
    volatile uint32_t *awaited = gyre_device_counter(peers, peers.rank, 2, slot, peer);
    const volatile uint32_t *came = gyre_device_counter(peers, peers.rank, 0, slot, peer);
    volatile uint32_t *over = peers.over;
    const uint32_t number = *awaited + 1;
    for (uint32_t looks = 1; (int32_t)(*came - number) < 0; looks++) {
        if (looks % 64 == 0 && *over != 0)
            return 0;
        /* over PCIe: for a device whose copies from the host do not come through */
        if (looks % 4096 == 0 && *(const volatile uint32_t *)peers.abort != 0)
            *over = 1; /* for the waits after this one */
        __nanosleep(40);
    }
    if (*over != 0) /* also where the signal had come before */
        return 0;
    *awaited = number;
    __threadfence_system();
    return 1;
}

/* By all threads of a block: returns when the blocks of all ranks that use the slot are here, and see what
 * each other wrote before. The same result for all threads; 0: the communicator is over. */
static __device__ __forceinline__ int gyre_device_barrier(const gyre_cuda_peers_t &peers, int slot)
{
    const int threads = (int)(blockDim.x * blockDim.y * blockDim.z),
              thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    int over = 0;
    __syncthreads();
    for (int peer = thread; peer < peers.n; peer += threads)
        if (peer != peers.rank)
            gyre_device_signal(peers, peer, slot);
    for (int peer = thread; peer < peers.n && !over; peer += threads)
        if (peer != peers.rank)
            over = !gyre_device_wait(peers, peer, slot);
    return !__syncthreads_or(over);
}

#endif
