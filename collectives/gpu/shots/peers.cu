/* collectives/gpu/shots/peers.cu: one kernel for all collectives between ranks that map each other's device memory.
 *
 * An operation is made of three moves, in rounds of one slot per block (peers.h):
 *
 *   publish   this rank's parts of IN go to the slots of its own region       all_reduce: the vector, or its n shards
 *   add up    one part of every rank, in the canonical tree                   reductions only
 *   take      one part of every rank goes to its place in OUT                 everything else; two-shot: the shards' sums
 *
 * with a sync of all ranks behind the first, and behind the second if its result is published: in one launch, whose blocks
 * wait for those of the peers, or in a launch per phase with streams that wait in between (collectives/gpu/shots/peers.c). *One shot*: everybody
 * publishes the whole vector, adds all of them up for itself: one sync, n reads of the vector, for short ones. *Two shots*: shards:
 * rank r adds up shard r, publishes it, all take all shards: two syncs, and about 2 reads of the vector however many ranks.
 *
 * Designed for an H100: 512 threads a block, 16-byte vectors, IN_FLIGHT (8) loads of them per thread before the first is used,
 * which are as many vectors of few ranks as of one vector of many: 64 KiB per block, whatever the number of ranks. Estimate: at
 * 3.35 TB/s and 700 ns of latency 2.3 MB must be on their way to read as fast as the memory can, 1.2 MB where as much is written
 * as read; 24 blocks have 1.6 MB (an SM draws no more than 64 bytes a clock, 110 GB/s; 24 of them 2.7 TB/s). It costs 115 registers a
 * thread, so one block is all that an SM holds. No fence but the release and acquire of the flags, which one thread per peer
 * does. Peers' memory is read with volatile loads, which no L1 holds. Few blocks on purpose (GYRE_CUDA_BLOCKS): communication
 * leaves the SMs to what it overlaps with. None of this has been measured.
 *
 * Grid: `blocks`, one dimension; block: THREADS. Shared memory: 4 KiB, the operation and what the block's threads agree on. */
#include "collectives/gpu/shots/peers.h"

#include <gyre/types.h>

#include "collectives/gpu/shots/arithmetic.h"
#include "collectives/gpu/shots/copy.h"
#include "collectives/gpu/shots/meeting.h"
#include "collectives/gpu/plans/schedule.h"
#include "collectives/gpu/shots/vectors.h"

static __device__ __forceinline__ size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

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

/* to[0..bytes) = from times the operation's factor; `to` is a slot. */
template <typename T>
static __device__ APART void scale_range(char *to, const char *from, size_t bytes, double factor,
                                         uint64_t whole)
{
    typedef typename T::value V;
    for (size_t i = threadIdx.x; i < bytes / sizeof(V); i += blockDim.x)
        ((volatile V *)to)[i] = T::scale(load_any<V>(from + i * sizeof(V)), factor, whole);
}

static __device__ void publish_scaled(const coll_cuda_op_t &op, char *to, const char *from, size_t bytes)
{
    switch (op.type) {
#define SCALED(TYPE, T)                                      \
    case TYPE:                                               \
        scale_range<T>(to, from, bytes, op.scale, op.whole); \
        break
        SCALED(GYRE_INT8, coll_u8);
        SCALED(GYRE_UINT8, coll_u8);
        SCALED(GYRE_INT16, coll_u16);
        SCALED(GYRE_UINT16, coll_u16);
        SCALED(GYRE_INT32, coll_u32);
        SCALED(GYRE_UINT32, coll_u32);
        SCALED(GYRE_INT64, coll_u64);
        SCALED(GYRE_UINT64, coll_u64);
        SCALED(GYRE_FLOAT16, coll_f16);
        SCALED(GYRE_BFLOAT16, coll_b16);
        SCALED(GYRE_FLOAT32, coll_f32);
        SCALED(GYRE_FLOAT64, coll_f64);
#undef SCALED
    }
}

/* ---- the canonical tree (collectives/schedules/canonical.h) ------------------------------------------------------- */

/* Of up to 8 ranks from `first` on `width` (1, 2, 4 or 8) share v: v[m * width] becomes the sum of vector i + m * blockDim.x of
 * them, for each of 8 / width places m: few ranks, more vectors of each, always 8 loads before the first is used. The tree is
 * the complete one over `width` leaves without those that are missing on the right; that is the canonical one, as its nodes are
 * aligned blocks of ranks. Which registers meet is known when it is compiled, whether they do is the same for all threads. */
template <typename T, typename O>
static __device__ __forceinline__ void add_eight(const coll_cuda_op_t &op, char *const *sources,
                                                 const coll_order_t &order, int first, int width, size_t at,
                                                 size_t i, size_t vectors, uint4 v[IN_FLIGHT])
{
    const int k = op.n - first;
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int leaf = j & (width - 1);
        const size_t vector = i + (size_t)((unsigned)(j - leaf) / (unsigned)width) * blockDim.x;
        v[j] = leaf < k && vector < vectors ? gyre_load16(sources[first + leaf] + at + 16 * vector)
                                            : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int s = 1; s < IN_FLIGHT; s *= 2)
#pragma unroll
        for (int j = 0; j + s < IN_FLIGHT; j += 2 * s)
            if (s < width && (j & (width - 1)) + s < k)
                v[j] = coll_join<T, O>(v[j], v[j + s], order);
}

/* More than 8 ranks: groups of 8 carry into each other like the digits of a binary counter; what is left are the left
 * parts of the tree's right spine, which join from the right. */
template <typename T, typename O>
static __device__ __forceinline__ void add_all(const coll_cuda_op_t &op, char *const *sources,
                                               const coll_order_t &order, int width, size_t at, size_t i,
                                               size_t vectors, uint4 v[IN_FLIGHT])
{
    uint4 digit[3];
    const int groups = (op.n + 7) / 8; /* at most 8 */
    int have = 0;                      /* bit i: digit[i] is in use */
#pragma unroll 1
    for (int g = 0;; g++) {
        add_eight<T, O>(op, sources, order, g * 8, width, at, i, vectors, v);
        int last = g + 1 == groups;
#pragma unroll
        for (int d = 0; d < 3; d++) { /* carries over all digits at the end, over those in a row before */
            if (have >> d & 1) {
                v[0] = coll_join<T, O>(digit[d], v[0], order);
                have &= ~(1 << d);
            } else if (!last) {
                digit[d] = v[0];
                have |= 1 << d;
                break;
            }
        }
        if (last)
            return;
    }
}

static __device__ __forceinline__ int divisor_of(const coll_cuda_op_t &op)
{
    return op.divisor ? op.divisor : op.n;
}

/* Integers of an average, by the thread that wrote them. */
template <typename V> static __device__ APART void divide_range(char *to, size_t bytes, int n)
{
    for (size_t i = threadIdx.x; i < (bytes + 15) / 16; i += blockDim.x)
        for (size_t at = 16 * i; at < 16 * i + 16 && at < bytes; at += sizeof(V)) {
            const V value = (V)(load_any<V>(to + at) / (V)n);
            store_any<V>(to + at, value);
        }
}

static __device__ void divide_integers(const coll_cuda_op_t &op, char *to, size_t bytes)
{
    switch (op.type) {
#define DIVIDED(TYPE, V)                            \
    case TYPE:                                      \
        divide_range<V>(to, bytes, divisor_of(op)); \
        break
        DIVIDED(GYRE_INT8, int8_t);
        DIVIDED(GYRE_UINT8, uint8_t);
        DIVIDED(GYRE_INT16, int16_t);
        DIVIDED(GYRE_UINT16, uint16_t);
        DIVIDED(GYRE_INT32, int32_t);
        DIVIDED(GYRE_UINT32, uint32_t);
        DIVIDED(GYRE_INT64, int64_t);
        DIVIDED(GYRE_UINT64, uint64_t);
#undef DIVIDED
    }
}

/* Vector i of a sum of `bytes` goes to its place, which may have any alignment. */
template <typename T>
static __device__ __forceinline__ void store_sum(const coll_cuda_op_t &op, char *to, size_t i, size_t bytes,
                                                 uint4 sum)
{
    typedef typename T::value V;
    coll_vector<T> v;
    v.whole = sum;
    if (T::is_float && op.average)
#pragma unroll
        for (unsigned j = 0; j < 16 / sizeof(V); j++)
            v.each[j] = T::divide(v.each[j], divisor_of(op));
    const size_t rest = bytes - 16 * i;
    if ((size_t)to % 16 == 0 && rest >= 16) {
        gyre_store16(to + 16 * i, v.whole);
    } else {
        for (unsigned j = 0; j < 16 / sizeof(V) && j * sizeof(V) < rest; j++)
            store_any<V>(to + 16 * i + j * sizeof(V), v.each[j]);
    }
}

/* to[0..bytes) = the sum of what lies at sources[rank] + at. Sources are aligned, and vectors may be loaded whole to the
 * end, as of slots; `to` is the user's and may have any alignment. */
template <typename T, typename O>
static __device__ APART void add_range(const coll_cuda_op_t &op, char *const *sources, char *to, size_t at,
                                       size_t bytes)
{
    const coll_order_t order = {op.sign, op.redop == GYRE_MAX};
    const int width = op.n > 4 ? 8 : op.n > 2 ? 4 : op.n;
    const size_t vectors = (bytes + 15) / 16, step = blockDim.x;
    for (size_t i = threadIdx.x; i < vectors; i += step * (IN_FLIGHT / (unsigned)width)) {
        uint4 v[IN_FLIGHT];
        add_all<T, O>(op, sources, order, width, at, i, vectors, v);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            const size_t vector = i + (size_t)((unsigned)j / (unsigned)width) * step;
            if ((j & (width - 1)) == 0 && vector < vectors)
                store_sum<T>(op, to, vector, bytes, v[j]);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void add_type(const coll_cuda_op_t &op, char *const *sources, char *to,
                                                size_t at, size_t bytes)
{
    switch (op.redop) {
    case GYRE_PROD:
        add_range<T, coll_do_prod>(op, sources, to, at, bytes);
        break;
    case GYRE_MIN:
    case GYRE_MAX:
        add_range<T, coll_do_first>(op, sources, to, at, bytes);
        break;
    default:
        add_range<T, coll_do_sum>(op, sources, to, at, bytes);
        break;
    }
}

static __device__ void add_up(const coll_cuda_op_t &op, char *const *sources, char *to, size_t at,
                              size_t bytes)
{
    switch (op.type) {
    case GYRE_INT8:
    case GYRE_UINT8:
        add_type<coll_u8>(op, sources, to, at, bytes);
        break;
    case GYRE_INT16:
    case GYRE_UINT16:
        add_type<coll_u16>(op, sources, to, at, bytes);
        break;
    case GYRE_INT32:
    case GYRE_UINT32:
        add_type<coll_u32>(op, sources, to, at, bytes);
        break;
    case GYRE_INT64:
    case GYRE_UINT64:
        add_type<coll_u64>(op, sources, to, at, bytes);
        break;
    case GYRE_FLOAT16:
        add_type<coll_f16>(op, sources, to, at, bytes);
        break;
    case GYRE_BFLOAT16:
        add_type<coll_b16>(op, sources, to, at, bytes);
        break;
    case GYRE_FLOAT32:
        add_type<coll_f32>(op, sources, to, at, bytes);
        break;
    case GYRE_FLOAT64:
        add_type<coll_f64>(op, sources, to, at, bytes);
        break;
    }
    if (op.average)
        divide_integers(op, to, bytes);
}

/* ---- meeting -------------------------------------------------------------------------------------------- */

/* Where half `epoch % 2` of this block's region begins in any arena. */
static __device__ __forceinline__ size_t half_at(const coll_cuda_op_t &op, uint32_t epoch)
{
    return COLL_CUDA_HEAD + blockIdx.x * op.region + (epoch % 2) * (op.region / 2);
}

/* ---- the operation -------------------------------------------------------------------------------------- */

/* Uneven operations: what this rank means for each other goes with the first sync, and is compared with what they expect; the
 * number of rounds is the largest that any rank needs. */
static __device__ void tell_lengths(const coll_cuda_op_t &op, uint32_t epoch)
{
    volatile uint64_t *lengths = head_of(op, op.rank)->lengths[blockIdx.x][epoch % 2];
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        lengths[peer] = op.parts == 0 ? 0 : op.part_bytes[op.parts == 1 ? 0 : peer];
}

static __device__ void compare_lengths(const coll_cuda_op_t &op, uint32_t epoch, state_t *state)
{
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
        *(volatile uint32_t *)&op.board->mismatch = (uint32_t)peer + 1;
        state->dead = 1;
    }
    __syncthreads();
}

static __device__ void publish(const coll_cuda_op_t &op, uint32_t epoch, size_t from)
{
    char *slots = op.arena[op.rank] + half_at(op, epoch);
    for (int i = 0; i < op.parts; i++) {
        const size_t bytes = piece(op.part_bytes[i], from, op.slot);
        if (bytes == 0)
            continue;
        if (op.scaled)
            publish_scaled(op, slots + (size_t)i * op.slot, op.in + op.part_at[i] + from, bytes);
        else
            copy_range(slots + (size_t)i * op.slot, op.in + op.part_at[i] + from, bytes);
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

/* ---- registered buffers (collectives/gpu/shots/registered.c) --------------------------------------------------- */

/* In shared memory. */
struct places_t {
    int odd;                      /* not all of them are aligned */
    char *from[COLL_CUDA_RANKS];  /* where this operation reads of each rank, */
    char *aside[COLL_CUDA_RANKS]; /* and where what is not aligned is put first */
};

/* After a sync: where this operation reads of every rank, from the places that have come with the flags; which 0: inputs, 1: outputs.
 * Of a rank that told no place (who only receives) nothing is read. */
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

/* to[0..bytes) = the sum of all inputs. Whole vectors are read where they lie; those that are not, the end and what is not aligned,
 * are put aside first, into the own region: no peer reads there, as all have come to this operation. */
static __device__ void add_places(const coll_cuda_op_t &op, const places_t *places, char *to, size_t from,
                                  size_t bytes)
{
    const size_t pitch = op.region / op.n / COLL_CUDA_ALIGN * COLL_CUDA_ALIGN;
    size_t done = places->odd ? 0 : bytes / COLL_CUDA_ALIGN * COLL_CUDA_ALIGN;
    if (done)
        add_up(op, places->from, to, from, done);
    for (size_t some; done < bytes; done += some) {
        some = least_of(bytes - done, pitch);
        for (int r = 0; r < op.n; r++)
            copy_range(places->aside[r], places->from[r] + from + done, some);
        __syncthreads();
        add_up(op, places->aside, to + done, 0, some);
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

static __device__ void registered_round(const coll_cuda_op_t &op, state_t *state, places_t *places)
{
    const size_t from = blockIdx.x * op.slot;
    if (does(op, 0))
        tell(op, state);
    if (does(op, 1)) {
        meet(op, state);
        if (state->dead)
            return;
        find_places(op, state, places, 0, op.read_at);
        const size_t bytes = piece(op.sum_bytes, from, op.slot);
        if (!op.reduces)
            take_places(op, places, 0, from);
        else if (bytes)
            add_places(op, places, op.sum_to + from, from, bytes);
        tell(op, state);
    }
    if (op.reduces == 2 && does(op, 2)) {
        meet(op, state);
        if (state->dead)
            return;
        find_places(op, state, places, 1, 0);
        take_places(op, places, 1, from);
        tell(op, state);
    }
    if (does(op, op.reduces == 2 ? 3 : 2))
        meet(op, state); /* nobody reads this rank's buffers any more */
}

static __device__ void one_round(const coll_cuda_op_t &op, uint32_t round, state_t *state, places_t *places)
{
    const size_t from = ((size_t)round * gridDim.x + blockIdx.x) * op.slot;
    if (op.registered) {
        registered_round(op, state, places);
        return;
    }
    if (does(op, 0)) {
        if (op.uneven && round == 0)
            tell_lengths(op, state->epoch + 1);
        publish(op, state->epoch + 1, from);
        tell(op, state);
    }
    if (does(op, 1)) {
        meet(op, state);
        if (op.uneven && round == 0 && !state->dead)
            compare_lengths(op, state->epoch, state);
        if (state->dead)
            return;
        if (!op.reduces) {
            take(op, state->epoch, from, op.take_slot);
            return;
        }
        const size_t bytes = piece(op.sum_bytes, from, op.slot);
        char *to = op.reduces == 2 ? op.arena[op.rank] + half_at(op, state->epoch + 1) : op.sum_to + from;
        if (bytes)
            add_up(op, op.arena, to, half_at(op, state->epoch) + op.sum_slot * op.slot, bytes);
        if (op.reduces == 2)
            tell(op, state);
    }
    if (op.reduces == 2 && does(op, 2)) {
        meet(op, state);
        if (!state->dead)
            take(op, state->epoch, from, op.take_slot);
    }
}

static __global__ void __launch_bounds__(THREADS) peers_kernel(const __grid_constant__ coll_cuda_op_t given)
{
    __shared__ state_t state;
    __shared__ places_t places;
    __shared__ coll_cuda_op_t
        op; /* indexed at run time by functions that are not inlined: in shared memory it is near */
    for (unsigned i = threadIdx.x; i < sizeof op / sizeof(uint32_t); i += blockDim.x)
        ((uint32_t *)&op)[i] = ((const uint32_t *)&given)[i];
    __syncthreads();
    begin(op, &state);
    for (uint32_t round = op.first_round; round < state.rounds && !state.dead; round++) {
        one_round(op, round, &state, &places);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        leave(op, &state);
}

static __global__ void goodbye_kernel(const __grid_constant__ coll_cuda_op_t op)
{
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        if (peer != op.rank)
            gyre_store_release(&head_of(op, peer)->goodbye[op.rank], 1);
}

/* One thread each: the stream's word to a thread of the host, and the other way round. */
static __global__ void post_kernel(uint32_t *word, uint32_t value)
{
    gyre_store_release(word, value);
}

static __global__ void await_kernel(const uint32_t *word, uint32_t value, const uint32_t *abort)
{
    while ((int32_t)(gyre_load_acquire(word) - value) < 0 && gyre_load_acquire(abort) == 0)
        GYRE_SPIN();
}

/* The bytes [*from, + the result) of `bytes` are this block's, in whole vectors. */
static __device__ __forceinline__ size_t share(size_t bytes, size_t *from)
{
    const size_t each = (bytes / 16 / gridDim.x + 1) * 16;
    *from = least_of(bytes, blockIdx.x * each);
    return least_of(bytes - *from, each);
}

/* Slots that came over a network are added up, by as many blocks of THREADS as the host thinks right. */
static __global__ void __launch_bounds__(THREADS) add_kernel(const __grid_constant__ coll_cuda_op_t given)
{
    __shared__ coll_cuda_op_t op;
    size_t from;
    for (unsigned i = threadIdx.x; i < sizeof op / sizeof(uint32_t); i += blockDim.x)
        ((uint32_t *)&op)[i] = ((const uint32_t *)&given)[i];
    __syncthreads();
    const size_t bytes = share(op.sum_bytes, &from);
    if (bytes)
        add_up(op, op.arena, op.sum_to + from, from, bytes);
}

static __global__ void __launch_bounds__(THREADS)
    scale_kernel(const __grid_constant__ coll_cuda_op_t op, size_t all)
{
    size_t from;
    const size_t bytes = share(all, &from);
    if (bytes)
        publish_scaled(op, op.out + from, op.in + from, bytes);
}

extern "C" cudaError_t coll_cuda_load(void)
{
#ifndef GYRE_EMULATED
    const void *kernels[] = {(const void *)peers_kernel, (const void *)goodbye_kernel,
                             (const void *)post_kernel,  (const void *)await_kernel,
                             (const void *)add_kernel,   (const void *)scale_kernel};
    for (const void *kernel : kernels) {
        cudaFuncAttributes attributes;
        cudaError_t rc = cudaFuncGetAttributes(&attributes, kernel);
        if (rc != cudaSuccess)
            return rc;
    }
#endif
    return coll_cuda_load_schedule();
}

extern "C" cudaError_t coll_cuda_blocks_held(int *blocks)
{
#ifndef GYRE_EMULATED
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, peers_kernel, THREADS, 0);
#else
    *blocks = 4; /* as far as threads go */
    return cudaSuccess;
#endif
}

extern "C" cudaError_t coll_cuda_launch_peers(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    return GYRE_LAUNCH(peers_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op);
}

extern "C" cudaError_t coll_cuda_launch_goodbye(const coll_cuda_op_t *op, cudaStream_t stream)
{
    return GYRE_LAUNCH(goodbye_kernel, dim3(1), dim3(32), 0, stream, *op);
}

extern "C" cudaError_t coll_cuda_launch_add(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    return GYRE_LAUNCH(add_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op);
}

extern "C" cudaError_t coll_cuda_launch_scale(const coll_cuda_op_t *op, size_t bytes, int blocks,
                                              cudaStream_t stream)
{
    return GYRE_LAUNCH(scale_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op, bytes);
}

extern "C" cudaError_t coll_cuda_launch_post(uint32_t *word, uint32_t value, cudaStream_t stream)
{
    return GYRE_LAUNCH(post_kernel, dim3(1), dim3(1), 0, stream, word, value);
}

extern "C" cudaError_t coll_cuda_launch_await(const uint32_t *word, uint32_t value, const uint32_t *abort,
                                              cudaStream_t stream)
{
    return GYRE_LAUNCH(await_kernel, dim3(1), dim3(1), 0, stream, word, value, abort);
}
