/* collectives/gpu/ll/kernel.h: the kernel of short operations, which move data and flag in one store
 * (lines.h says how and why that is safe); for .cu files.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread has one line: it pushes the line of its rank to the peers, polls the same line of all ranks in its
 * own memory, adds them up in the canonical tree, and stores the result. Before anything is stored the block
 * knows that all ranks make the same call. Nothing is read from the host, unless a peer is late.
 *
 * Grid: a block for each COLL_LL_BLOCK bytes of a part. Block: a thread per line, in whole warps, but on the
 * emulator THREADS, each of which then has several lines. */
#ifndef COLLECTIVES_GPU_LL_KERNEL_H
#define COLLECTIVES_GPU_LL_KERNEL_H

#include "collectives/gpu/ll/lines.h"
#include "collectives/gpu/shots/meeting.h"

enum { LL_AT_ONCE = 8 }; /* ranks whose lines a thread has on their way before it uses the first */

/* What is given as `A`: a struct with
 *   adds             1: it has the three functions
 *   join(p, a, b)    two lines' data become one
 *   scale(p, a)      an input times the operation's factor
 *   finish(p, a)     the end of an average */

static __device__ __forceinline__ coll_cuda_head_t *ll_head(const coll_cuda_ll_t &p, int rank)
{
    return (coll_cuda_head_t *)p.arena[rank];
}

/* The first line that comes from `from` in anybody's area. */
static __device__ __forceinline__ size_t ll_lines(const coll_cuda_ll_t &p, uint32_t number, int from)
{
    return p.at + number % 2 * COLL_LL_HALF +
           ((size_t)blockIdx.x * p.n + (unsigned)from) * (COLL_LL_LINES * 16);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void ll_push(char *line, uint2 data, uint32_t flag)
{
    const uint64_t high = (uint64_t)flag << 32;
    gyre_store8x2(line, high | data.x, high | data.y);
}

static __device__ __forceinline__ uint2 ll_get(const char *from, unsigned bytes)
{
    uint64_t all = 0;
    if (bytes == COLL_LL_DATA && (size_t)from % 8 == 0)
        all = *(const uint64_t *)from;
    else if (((size_t)from | bytes) % 4 == 0)
        for (unsigned i = 0; i < bytes; i += 4)
            all |= (uint64_t) * (const uint32_t *)(from + i) << (8 * i);
    else
        for (unsigned i = 0; i < bytes; i++)
            all |= (uint64_t) * (const uint8_t *)(from + i) << (8 * i);
    return make_uint2((uint32_t)all, (uint32_t)(all >> 32));
}

static __device__ __forceinline__ void ll_put(char *to, uint2 data, unsigned bytes)
{
    const uint64_t all = (uint64_t)data.y << 32 | data.x;
    if (bytes == COLL_LL_DATA && (size_t)to % 8 == 0)
        *(uint64_t *)to = all;
    else if (((size_t)to | bytes) % 4 == 0)
        for (unsigned i = 0; i < bytes; i += 4)
            *(uint32_t *)(to + i) = (uint32_t)(all >> (8 * i));
    else
        for (unsigned i = 0; i < bytes; i++)
            *(uint8_t *)(to + i) = (uint8_t)(all >> (8 * i));
}

/* Bytes [at, + bytes) of this rank's parts go to the peers; returns what is for this rank. */
template <typename A>
static __device__ __forceinline__ uint2 ll_send(const coll_cuda_ll_t &p, uint32_t number, unsigned line,
                                                size_t at, unsigned bytes)
{
    uint2 data = make_uint2(0, 0), mine = data;
    int loaded = 0;
    const size_t place = ll_lines(p, number, p.rank) + line * 16;
    for (int i = 1; i <= p.n; i++) { /* the next rank first: not all to one */
        const int peer = p.rank + i < p.n ? p.rank + i : p.rank + i - p.n;
        if (peer < p.to || peer >= p.to_end)
            continue;
        if (p.each || !loaded) {
            loaded = 1;
            data = ll_get(p.in + (p.each ? (size_t)peer * p.bytes : 0) + at, bytes);
            if constexpr (A::adds)
                if (p.scaled)
                    data = A::scale(p, data);
        }
        if (peer == p.rank)
            mine = data;
        else
            ll_push(p.arena[peer] + place, data, number + 1);
    }
    return mine;
}

/* The lines of ranks [first, + count): one look at all of them at a time. Returns 0 if the operation is
 * over. */
static __device__ __forceinline__ int ll_receive(const coll_cuda_ll_t &p, uint32_t number, unsigned line,
                                                 int first, int count, uint2 mine, uint2 v[LL_AT_ONCE])
{
    const char *const from = p.arena[p.rank] + ll_lines(p, number, first) + line * 16;
    const uint32_t flag = number + 1;
    for (uint32_t looks = 1;; looks++) {
        uint64_t word[LL_AT_ONCE][2];
        uint32_t wrong = 0;
#pragma unroll
        for (int j = 0; j < LL_AT_ONCE; j++) {
            word[j][0] = (uint64_t)flag << 32 | mine.x;
            word[j][1] = (uint64_t)flag << 32 | mine.y;
            if (j < count && first + j != p.rank)
                gyre_load8x2(from + (size_t)j * (COLL_LL_LINES * 16), word[j]);
        }
#pragma unroll
        for (int j = 0; j < LL_AT_ONCE; j++) {
            v[j] = make_uint2((uint32_t)word[j][0], (uint32_t)word[j][1]);
            wrong |= ((uint32_t)(word[j][0] >> 32) ^ flag) | ((uint32_t)(word[j][1] >> 32) ^ flag);
        }
        if (wrong == 0)
            return 1;
        if (is_over(&ll_head(p, p.rank)->over, &p.board->abort, looks))
            return 0;
        GYRE_SPIN();
    }
}

/* ---- meeting ------------------------------------------------------------------------------------------- */

static_assert(offsetof(coll_cuda_flag_t, epoch) == 0 && offsetof(coll_cuda_flag_t, sig) == 4 &&
                  sizeof(coll_cuda_flag_t) % 8 == 0,
              "one store of 8 bytes has both");

/* To every peer: this block has come to that sync, with that call. */
static __device__ __forceinline__ void ll_tell(const coll_cuda_ll_t &p, uint32_t epoch)
{
    for (int peer = (int)threadIdx.x; peer < p.n; peer += (int)blockDim.x)
        if (peer != p.rank)
            *(volatile uint64_t *)&ll_head(p, peer)->flags[blockIdx.x][epoch % 2][p.rank] =
                (uint64_t)p.sig << 32 | epoch;
}

/* Returns 0 if the operation is over: a rank that does not agree, or an abort. */
static __device__ __forceinline__ int ll_meet(const coll_cuda_ll_t &p, uint32_t epoch)
{
    coll_cuda_head_t *head = ll_head(p, p.rank);
    for (int peer = (int)threadIdx.x; peer < p.n; peer += (int)blockDim.x) {
        const volatile uint64_t *flag = (const volatile uint64_t *)&head->flags[blockIdx.x][epoch % 2][peer];
        uint64_t seen;
        if (peer == p.rank)
            continue;
        for (uint32_t looks = 1; (int32_t)((uint32_t)(seen = *flag) - epoch) < 0; looks++) {
            if (is_over(&head->over, &p.board->abort, looks))
                return 0;
            if (looks == LOOKS_BEFORE_LATE)
                *(volatile uint32_t *)&p.board->late = (uint32_t)peer + 1;
            GYRE_SPIN();
        }
        if ((uint32_t)(seen >> 32) != p.sig) {
            disagree(head, p.board, peer);
            return 0;
        }
    }
    return 1;
}

/* Operation 0: no line of this block has a flag, on any rank, when the block goes on. Returns 0 as ll_meet,
 * to all threads alike. */
static __device__ __forceinline__ int ll_sweep(const coll_cuda_ll_t &p, uint32_t epoch)
{
    for (uint32_t k = 0; k < 2; k++)
        for (unsigned i = threadIdx.x; i < p.n * (unsigned)COLL_LL_LINES; i += blockDim.x)
            gyre_store8x2(p.arena[p.rank] + ll_lines(p, k, 0) + (size_t)i * 16, 0, 0);
    __syncthreads();
    __threadfence_system(); /* by the threads that store flags: a release, also of what the others swept */
    ll_tell(p, epoch);
    const int ok = ll_meet(p, epoch);
    __threadfence_system();
    return !__syncthreads_or(!ok);
}

/* ---- the operation ------------------------------------------------------------------------------------- */

/* v[0] becomes the sum of `count` ranks, whose first is a multiple of LL_AT_ONCE: the canonical tree
 * (collectives/schedules/canonical.h), as its nodes are aligned blocks of ranks. */
template <typename A>
static __device__ __forceinline__ void ll_tree(const coll_cuda_ll_t &p, int count, uint2 v[LL_AT_ONCE])
{
#pragma unroll
    for (int s = 1; s < LL_AT_ONCE; s *= 2)
#pragma unroll
        for (int j = 0; j + s < LL_AT_ONCE; j += 2 * s)
            if (j + s < count)
                v[j] = A::join(p, v[j], v[j + s]);
}

/* The sums of groups of LL_AT_ONCE ranks, as add_all of sums/add.h has them: carries of a binary counter,
 * and in the end the left parts of the tree's right spine, from the right. */
struct ll_digits_t {
    uint2 digit[2];
    int have; /* bit i: digit[i] is in use */
};
static_assert(COLL_LL_RANKS <= LL_AT_ONCE * 4, "two digits count the groups but the last");

template <typename A>
static __device__ __forceinline__ uint2 ll_carry(const coll_cuda_ll_t &p, ll_digits_t *d, uint2 sum, int last)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (d->have >> i & 1) {
            sum = A::join(p, d->digit[i], sum);
            d->have &= ~(1 << i);
        } else if (!last) {
            d->digit[i] = sum;
            d->have |= 1 << i;
            break;
        }
    }
    return sum;
}

/* The threads' lines from `line` on. Returns 1 if the operation is over, to all threads alike. */
template <typename A>
static __device__ __forceinline__ int ll_pass(const coll_cuda_ll_t &p, uint32_t number, uint32_t epoch,
                                              unsigned line, int is_first)
{
    const size_t at = (size_t)blockIdx.x * COLL_LL_BLOCK + (size_t)line * COLL_LL_DATA;
    const int has = line < COLL_LL_LINES && at < p.bytes;
    const unsigned bytes = has ? (unsigned)least_of(p.bytes - at, COLL_LL_DATA) : 0;
    uint2 mine = make_uint2(0, 0);
    ll_digits_t digits = {};
    if (has)
        mine = ll_send<A>(p, number, line, at, bytes);
    if (is_first)
        ll_tell(p, epoch);
    for (int first = p.from; first == p.from || first < p.from_end; first += LL_AT_ONCE) {
        const int count = p.from_end - first < LL_AT_ONCE ? p.from_end - first : (int)LL_AT_ONCE;
        uint2 v[LL_AT_ONCE];
        int ok = 1;
        /* first: of ranks that disagree none may push what another waits for */
        if (is_first && first == p.from)
            ok = ll_meet(p, epoch);
        if (ok && has && count > 0)
            ok = ll_receive(p, number, line, first, count, mine, v);
        if (__syncthreads_or(!ok))
            return 1;
        if (!has || count <= 0)
            continue;
        if constexpr (A::adds) {
            ll_tree<A>(p, count, v);
            const int last = first + count == p.from_end;
            const uint2 sum = ll_carry<A>(p, &digits, v[0], last);
            if (last)
                ll_put(p.out + at, A::finish(p, sum), bytes);
        } else {
#pragma unroll
            for (int j = 0; j < LL_AT_ONCE; j++)
                if (j < count)
                    ll_put(p.out + (size_t)(first - p.from + j) * p.bytes + at, v[j], bytes);
        }
    }
    return 0;
}

/* Thread 0 of each block, when the others are done. Nobody waits for what is noted here, so nothing is
 * released: the next kernel of this rank reads it, and the host now and then. */
static __device__ __forceinline__ void ll_leave(const coll_cuda_ll_t &p, uint32_t number, uint32_t epoch)
{
    coll_cuda_head_t *head = ll_head(p, p.rank);
    head->epochs[blockIdx.x] = epoch;
    head->ll[blockIdx.x] = number + 1 == COLL_LL_PERIOD ? 0 : number + 1;
    if (gridDim.x > 1 && atomicAdd(&head->left, 1u) + 1 != gridDim.x)
        return;
    head->left = 0;
    *(volatile uint32_t *)&p.board->finished = ++head->operations;
}

template <typename A>
static __global__ void __launch_bounds__(COLL_LL_LINES) ll_kernel(const __grid_constant__ coll_cuda_ll_t p)
{
    const volatile coll_cuda_head_t *head = ll_head(p, p.rank);
    const uint32_t number = head->ll[blockIdx.x];
    uint32_t epoch = head->epochs[blockIdx.x];
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        volatile coll_cuda_board_t *board = p.board;
        board->late = 0;
        board->call = p.call;
        board->started = head->operations + 1;
    }
    int dead = __syncthreads_or(head->over != 0); /* it may come while they look */
    if (!dead && number == 0)
        dead = !ll_sweep(p, ++epoch);
    if (!dead) {
        epoch++;
        const unsigned lines =
            (unsigned)(least_of(p.bytes - least_of(p.bytes, blockIdx.x * (size_t)COLL_LL_BLOCK),
                                COLL_LL_BLOCK) +
                       COLL_LL_DATA - 1) /
            COLL_LL_DATA;
        for (unsigned first = 0; (first == 0 || first < lines) && !dead; first += blockDim.x)
            dead = ll_pass<A>(p, number, epoch, first + threadIdx.x, first == 0);
    }
    __syncthreads(); /* all have read the head */
    if (threadIdx.x == 0)
        ll_leave(p, number, epoch);
}

template <typename A> static cudaError_t launch_ll(const coll_cuda_ll_t *op, cudaStream_t stream)
{
    const unsigned lines = (op->bytes + COLL_LL_DATA - 1) / COLL_LL_DATA,
                   blocks = lines > COLL_LL_LINES ? (lines + COLL_LL_LINES - 1) / COLL_LL_LINES : 1,
                   most = (unsigned)least_of(COLL_LL_LINES, THREADS),
                   threads = lines > 32 ? (unsigned)least_of((lines + 31) / 32 * 32, most) : 32;
    return GYRE_LAUNCH(ll_kernel<A>, dim3(blocks), dim3(threads), 0, stream, *op);
}

#endif
