/* collectives/gpu/shots/rounds.h: the kernel of collectives between ranks that map each other's device
 * memory, for .cu files.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An operation is made of three moves, in rounds of one slot per block (peers.h):
 *
 *   publish   this rank's parts of IN go to the slots of its own region   all_reduce: the vector, or n shards
 *   add up    one part of every rank, in the canonical tree               reductions only
 *   take      one part of every rank goes to its place in OUT             else; two shots: the shards' sums
 *
 * All ranks meet after the first move, and after the second if its result is published. Either one launch
 * does all of it and its blocks wait for those of the peers, or each phase is a launch and streams wait in
 * between (peers.c).
 *
 *   one shot    Every rank publishes the whole vector and adds up all of them for itself: one sync, n reads
 *               of the vector. For short vectors.
 *   two shots   Rank r adds up shard r and publishes the sum; all ranks take all shards: two syncs, and about
 *               2 reads of the vector, whatever n is.
 *
 * The kernel is a template over what it adds: one element type (sums.h), or nothing (moves.cu). So a kernel
 * that only moves needs few registers, and each file compiles in seconds.
 *
 * Designed for an H100: 512 threads a block, 16-byte vectors, IN_FLIGHT (8) loads of them per thread
 * before the first is used: 64 KiB per block, whatever the number of ranks. Estimate: at 3.35 TB/s and 700
 * ns of latency 2.3 MB must be on their way to read as fast as the memory can, 1.2 MB where as much is
 * written as read; 27 blocks (docs/gpu.md, "How many blocks") have 1.8 MB (an SM draws no more than 64
 * bytes a clock, 127 GB/s; 27 of them 3.4 TB/s).
 *
 * The loads take registers: a kernel that adds has 102 to 124 a thread (nvcc 13.0, sm_90), so an
 * SM holds one block of it; one that only moves has 64, two blocks. None spills.
 *
 * There is no fence but the release and acquire of the flags, which one thread per peer does. Peers'
 * memory is read with volatile loads, which no L1 holds. Blocks are few on purpose (GYRE_CUDA_BLOCKS):
 * communication leaves the SMs to what it overlaps with. None of this has been measured.
 *
 * Grid: `blocks`, one dimension; block: THREADS. Shared memory: 4 KiB, the operation and what the block's
 * threads agree on. */
#ifndef COLLECTIVES_GPU_SHOTS_ROUNDS_H
#define COLLECTIVES_GPU_SHOTS_ROUNDS_H

#include "collectives/gpu/shots/copy.h"
#include "collectives/gpu/shots/meeting.h"
#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/shots/vectors.h"

/* What is given as `A`: a struct with
 *   adds                                1: it has the two functions
 *   scale(op, to, from, bytes)          to = from times the operation's factor
 *   add_up(op, sources, to, at, bytes)  to = the sum of what lies at sources[rank] + at */

/* How much of `all` bytes lies in the slot that starts at `from`. */
static __device__ __forceinline__ size_t piece(size_t all, size_t from, size_t slot)
{
    return all > from ? least_of(all - from, slot) : 0;
}

/* Compiled once: it is called in many places. */
static __device__ APART void copy_range(char *to, const char *from, size_t bytes)
{
    coll_copy_block(to, from, bytes);
}

/* Where half `epoch % 2` of this block's region begins in any arena. */
static __device__ __forceinline__ size_t half_at(const coll_cuda_op_t &op, uint32_t epoch)
{
    return COLL_CUDA_HEAD + blockIdx.x * op.region + (epoch % 2) * (op.region / 2);
}

/* Uneven operations: what this rank means for each other goes with the first sync, and is compared with
 * what they expect; the number of rounds is the largest that any rank needs. */
static __device__ void tell_lengths(const coll_cuda_op_t &op, uint32_t epoch)
{
    volatile uint64_t *lengths = head_of(op, op.rank)->lengths[blockIdx.x][epoch % 2];
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        lengths[peer] = op.parts == 0 ? 0 : op.part_bytes[op.parts == 1 ? 0 : peer];
}

static __device__ void compare_lengths(const coll_cuda_op_t &op, uint32_t epoch, state_t *state)
{
    const int dead = state->dead;
    __syncthreads(); /* all have read it before a thread that is ahead sets it */
    if (dead)
        return;
    if (threadIdx.x == 0)
        for (int peer = 0; peer < op.n; peer++) {
            const volatile coll_cuda_flag_t *flag = &head_of(op, op.rank)->flags[blockIdx.x][epoch % 2][peer];
            if (peer != op.rank && flag->rounds > state->rounds)
                state->rounds = flag->rounds;
        }
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x) {
        const volatile uint64_t *lengths = head_of(op, peer)->lengths[blockIdx.x][epoch % 2];
        if (peer == op.rank || op.take_bytes[peer] == UINT64_MAX || lengths[op.rank] == op.take_bytes[peer])
            continue;
        disagree(head_of(op, op.rank), op.board, peer);
        state->dead = 1;
    }
    __syncthreads();
}

template <typename A>
static __device__ __forceinline__ void publish(const coll_cuda_op_t &op, uint32_t epoch, size_t from)
{
    char *slots = op.arena[op.rank] + half_at(op, epoch);
    for (int i = 0; i < op.parts; i++) {
        const size_t bytes = piece(op.part_bytes[i], from, op.slot);
        if (bytes == 0)
            continue;
        char *to = slots + (size_t)i * op.slot;
        const char *part = op.in + op.part_at[i] + from;
        if constexpr (A::adds) {
            if (op.scaled) {
                A::scale(op, to, part, bytes);
                continue;
            }
        }
        copy_range(to, part, bytes);
    }
}

/* Beginning with the next rank, so that not all read from one. */
static __device__ void take(const coll_cuda_op_t &op, uint32_t epoch, size_t from, size_t slot)
{
    const size_t at = half_at(op, epoch) + slot * op.slot;
    for (int i = 1; i <= op.n; i++) {
        const int rank = (op.rank + i) % op.n;
        const size_t all = op.take_bytes[rank] == UINT64_MAX ? 0 : op.take_bytes[rank];
        const size_t bytes = piece(all, from, op.slot);
        if (bytes)
            copy_range(op.out + op.take_at[rank] + from, op.arena[rank] + at, bytes);
    }
}

static __device__ int does(const coll_cuda_op_t &op, int phase)
{
    return op.first_phase <= phase && phase < op.end_phase;
}

/* ---- registered buffers (collectives/gpu/shots/registered.c) ------------------------------------------- */

/* In shared memory. */
struct places_t {
    int odd;                      /* not all of them are aligned */
    char *from[COLL_CUDA_RANKS];  /* where this operation reads of each rank, */
    char *aside[COLL_CUDA_RANKS]; /* and where what is not aligned is put first */
};

/* After a sync: where this operation reads of every rank, from the places that have come with the flags;
 * which 0: inputs, 1: outputs. A rank that only receives sends no place: nothing is read of it. */
static __device__ APART void find_places(const coll_cuda_op_t &op, const state_t *state, places_t *places,
                                         int which, size_t at)
{
    const size_t pitch = op.region / op.n / COLL_CUDA_ALIGN * COLL_CUDA_ALIGN;
    const coll_cuda_head_t *head = head_of(op, op.rank);
    if (threadIdx.x == 0)
        places->odd = 0;
    __syncthreads();
    for (int r = (int)threadIdx.x; r < op.n; r += (int)blockDim.x) {
        const volatile coll_cuda_flag_t *flag = &head->flags[blockIdx.x][state->epoch % 2][r];
        char *begin = which ? op.out : (char *)op.in;
        if (r != op.rank) {
            const uint64_t place = flag->places[which], number = place >> COLL_CUDA_PLACE_BITS;
            begin = NULL;
            if (number > 0)
                begin = (char *)(((const volatile uint64_t *)head->registered[number - 1])[r] +
                                 (place & (((uint64_t)1 << COLL_CUDA_PLACE_BITS) - 1)));
        }
        places->from[r] = begin + at;
        places->aside[r] = op.arena[op.rank] + COLL_CUDA_HEAD + blockIdx.x * op.region + (size_t)r * pitch;
        if (begin && (size_t)(begin + at) % COLL_CUDA_ALIGN != 0)
            places->odd = 1;
    }
    __syncthreads();
}

/* to[0..bytes) = the sum of all inputs. Whole vectors are read where they lie; those that are not, the end
 * and what is not aligned, are put aside first, into the own region: no peer reads there, as all have come
 * to this operation. */
template <typename A>
static __device__ __forceinline__ void add_places(const coll_cuda_op_t &op, const places_t *places, char *to,
                                                  size_t from, size_t bytes)
{
    const size_t pitch = op.region / op.n / COLL_CUDA_ALIGN * COLL_CUDA_ALIGN;
    size_t done = places->odd ? 0 : bytes / COLL_CUDA_ALIGN * COLL_CUDA_ALIGN;
    if (done)
        A::add_up(op, places->from, to, from, done);
    for (size_t some; done < bytes; done += some) {
        some = least_of(bytes - done, pitch);
        for (int r = 0; r < op.n; r++)
            copy_range(places->aside[r], places->from[r] + from + done, some);
        __syncthreads();
        A::add_up(op, places->aside, to + done, 0, some);
        __syncthreads(); /* before it is used again */
    }
}

static __device__ void take_places(const coll_cuda_op_t &op, const places_t *places, int which, size_t from)
{
    for (int i = 1; i <= op.n; i++) {
        const int rank = (op.rank + i) % op.n;
        const size_t bytes = piece(op.take_bytes[rank], from, op.slot);
        if (bytes) /* an output has every shard in its place; of inputs one part is read, wherever it goes */
            copy_range(op.out + op.take_at[rank] + from,
                       places->from[rank] + (which ? op.take_at[rank] : 0) + from, bytes);
    }
}

template <typename A>
static __device__ __forceinline__ void registered_round(const coll_cuda_op_t &op, state_t *state,
                                                        places_t *places)
{
    const size_t from = blockIdx.x * op.slot;
    if (does(op, 0))
        tell(op, state);
    if (does(op, 1)) {
        meet(op, state);
        if (state->dead)
            return;
        find_places(op, state, places, 0, op.read_at);
        if constexpr (A::adds) {
            const size_t bytes = piece(op.sum_bytes, from, op.slot);
            if (bytes)
                add_places<A>(op, places, op.sum_to + from, from, bytes);
        } else {
            take_places(op, places, 0, from);
        }
        tell(op, state);
    }
    if (A::adds && op.reduces == 2 && does(op, 2)) {
        meet(op, state);
        if (state->dead)
            return;
        find_places(op, state, places, 1, 0);
        take_places(op, places, 1, from);
        tell(op, state);
    }
    if (does(op, A::adds && op.reduces == 2 ? 3 : 2))
        meet(op, state); /* nobody reads this rank's buffers any more */
}

template <typename A>
static __device__ __forceinline__ void one_round(const coll_cuda_op_t &op, uint32_t round, state_t *state,
                                                 places_t *places)
{
    const size_t from = ((size_t)round * gridDim.x + blockIdx.x) * op.slot;
    if (op.registered) {
        registered_round<A>(op, state, places);
        return;
    }
    if (does(op, 0)) {
        if (op.uneven && round == 0)
            tell_lengths(op, state->epoch + 1);
        publish<A>(op, state->epoch + 1, from);
        tell(op, state);
    }
    if (does(op, 1)) {
        meet(op, state);
        if (op.uneven && round == 0)
            compare_lengths(op, state->epoch, state);
        if (state->dead)
            return;
        if constexpr (A::adds) {
            const size_t bytes = piece(op.sum_bytes, from, op.slot);
            char *to = op.reduces == 2 ? op.arena[op.rank] + half_at(op, state->epoch + 1) : op.sum_to + from;
            if (bytes)
                A::add_up(op, op.arena, to, half_at(op, state->epoch) + op.sum_slot * op.slot, bytes);
            if (op.reduces == 2)
                tell(op, state);
        } else {
            take(op, state->epoch, from, op.take_slot);
        }
    }
    if (A::adds && op.reduces == 2 && does(op, 2)) {
        meet(op, state);
        if (!state->dead)
            take(op, state->epoch, from, op.take_slot);
    }
}

template <typename A>
static __global__ void __launch_bounds__(THREADS) rounds_kernel(const __grid_constant__ coll_cuda_op_t given)
{
    __shared__ state_t state;
    __shared__ places_t places;
    /* indexed at run time by functions that are not inlined: in shared memory it is near */
    __shared__ coll_cuda_op_t op;
    for (unsigned i = threadIdx.x; i < sizeof op / sizeof(uint32_t); i += blockDim.x)
        ((uint32_t *)&op)[i] = ((const uint32_t *)&given)[i];
    __syncthreads();
    begin(op, &state);
    for (uint32_t round = op.first_round; round < state.rounds && !state.dead; round++) {
        if (op.first_phase > 0) /* which meets at once: all have read the word before one sets it */
            __syncthreads();
        one_round<A>(op, round, &state, &places);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        leave(op, &state);
}

template <typename A>
static cudaError_t launch_rounds(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    return GYRE_LAUNCH(rounds_kernel<A>, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op);
}

template <typename A> static cudaError_t held_rounds(int *blocks)
{
#ifndef GYRE_EMULATED
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, rounds_kernel<A>, THREADS, 0);
#else
    *blocks = 4; /* as far as threads go */
    return cudaSuccess;
#endif
}

#endif
