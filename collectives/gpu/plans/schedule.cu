/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/schedule.cu: a kernel that runs the host's schedules (ring, tree, butterfly, ...)
 * as data, between ranks that map each other's device memory: schedule.h has the form,
 * collectives/gpu/plans/lower.c makes it.
 *
 * Each block works through a list of actions for its segments: waits until the messages that the action
 * reads have come and there is room for the one that it sends, moves or adds, and signals both neighbours. A
 * sum that travels on is written into the neighbour's slot at once and nowhere else; what a rank passes on
 * is read once. Data is written to peers, never read from them: writes need not wait for an answer, which
 * is what NVLink and still more PCIe are good at. One barrier before an action's data and one after it;
 * one release per message (the barrier orders the block's writes before it), one per slot that is free
 * again.
 *
 * The sums are those of the schedule, whose order the host's checker has proved to be the canonical one
 * (or the ring's, where the communicator has GYRE_ORDER=fast).
 *
 * Grid: `blocks`, one dimension; block: THREADS. 8 loads of 16 bytes per thread before the first is used:
 * 96 registers for sm_90 (nvcc 13.0), none spilled, so one block on an SM. Shared memory: 5 KiB. */
#include "collectives/gpu/plans/schedule.h"

#include "collectives/gpu/sums/arithmetic.h"
#include "collectives/gpu/shots/meeting.h"
#include "collectives/gpu/sums/types.h"
#include "collectives/gpu/shots/vectors.h"

enum { ACTIONS = 16 /* read from memory at a time */ };

struct run_t {
    coll_cuda_schedule_t s;
    state_t state;
    uint32_t sent[COLL_CUDA_LINKS], received[COLL_CUDA_LINKS]; /* before this segment */
    uint32_t told[COLL_CUDA_LINKS];                            /* room that the sender knows of */
    __align__(16) coll_cuda_action_t actions[ACTIONS];
};
static_assert(offsetof(run_t, actions) % 16 == 0, "written in vectors");

/* What an action comes to. */
struct move_t {
    const char *from[2]; /* [1] NULL: one source */
    char *to[2];         /* NULL: not there */
    size_t bytes;
    int scaled[2]; /* a source is input of a scaled sum */
    int divides;
};

/* ---- bytes --------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void store_twice(const move_t &m, size_t at, uint4 v)
{
    if (m.to[0])
        gyre_store16(m.to[0] + at, v);
    if (m.to[1])
        gyre_store16(m.to[1] + at, v);
}

template <typename V>
static __device__ __forceinline__ void move_as(const move_t &m, size_t first, size_t end)
{
    for (size_t at = first + threadIdx.x * sizeof(V); at + sizeof(V) <= end; at += blockDim.x * sizeof(V)) {
        const V v = *(const volatile V *)(m.from[0] + at);
        for (int i = 0; i < 2; i++)
            if (m.to[i])
                *(volatile V *)(m.to[i] + at) = v;
    }
}

/* One source as it is. */
static __device__ APART void move_range(const move_t &m)
{
    const size_t ends = (size_t)m.from[0] | (size_t)m.to[0] | (size_t)m.to[1];
    if (ends % 16 == 0) {
        const size_t vectors = m.bytes / 16, step = blockDim.x;
        size_t i = threadIdx.x;
        for (; i + (IN_FLIGHT - 1) * step < vectors; i += IN_FLIGHT * step) {
            uint4 v[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++)
                v[j] = gyre_load16(m.from[0] + 16 * (i + (size_t)j * step));
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++)
                store_twice(m, 16 * (i + (size_t)j * step), v[j]);
        }
        for (; i < vectors; i += step)
            store_twice(m, 16 * i, gyre_load16(m.from[0] + 16 * i));
        move_as<uint8_t>(m, vectors * 16, m.bytes);
    } else if (ends % 4 == 0) {
        move_as<uint32_t>(m, 0, m.bytes);
        move_as<uint8_t>(m, m.bytes / 4 * 4, m.bytes);
    } else {
        move_as<uint8_t>(m, 0, m.bytes);
    }
}

/* ---- elements ------------------------------------------------------------------------------------------ */

template <typename T> static __device__ APART uint4 divide_all(const coll_cuda_op_t &op, uint4 sum)
{
    coll_vector<T> v;
    v.whole = sum;
#pragma unroll
    for (unsigned j = 0; j < 16 / sizeof(typename T::value); j++)
        v.each[j] = T::divide(v.each[j], op.sign, op.divisor);
    return v.whole;
}

/* A vector of which only `rest` bytes may be there, at any address. Compiled once per type, as loops: for
 * ends, for buffers that are not aligned, and for scaled sums. */
template <typename T>
static __device__ APART uint4 load_part(const coll_cuda_op_t &op, const char *from, size_t rest, int scaled)
{
    typedef typename T::value V;
    coll_vector<T> v;
    v.whole = make_uint4(0, 0, 0, 0);
    if ((size_t)from % 16 == 0 && rest >= 16)
        v.whole = gyre_load16(from);
    else
#pragma unroll 1
        for (unsigned j = 0; j < 16 / sizeof(V) && j * sizeof(V) < rest; j++)
            v.each[j] = load_any<V>(from + j * sizeof(V));
    if (scaled)
#pragma unroll 1
        for (unsigned j = 0; j < 16 / sizeof(V); j++)
            v.each[j] = T::scale(v.each[j], op.scale, op.whole);
    return v.whole;
}

template <typename T> static __device__ APART void store_part(char *to, size_t rest, uint4 sum)
{
    typedef typename T::value V;
    coll_vector<T> v;
    v.whole = sum;
    if ((size_t)to % 16 == 0 && rest >= 16)
        gyre_store16(to, v.whole);
    else
#pragma unroll 1
        for (unsigned j = 0; j < 16 / sizeof(V) && j * sizeof(V) < rest; j++)
            store_any<V>(to + j * sizeof(V), v.each[j]);
}

/* The sum of two sources, or one that is scaled. A source may be a destination. */
template <typename T, typename O>
static __device__ APART void add_range(const coll_cuda_op_t &op, const move_t &m)
{
    const coll_order_t order = {op.sign, op.redop == GYRE_MAX};
    const size_t step = blockDim.x,
                 ends = (size_t)m.from[0] | (size_t)m.from[1] | (size_t)m.to[0] | (size_t)m.to[1];
    const int fast = ends % 16 == 0 && m.from[1] && !m.scaled[0] && !m.scaled[1];
    const size_t whole = fast ? m.bytes / 16 : 0;
    for (size_t i = threadIdx.x; i < whole; i += IN_FLIGHT / 2 * step) {
        uint4 a[IN_FLIGHT / 2], b[IN_FLIGHT / 2];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT / 2; j++) {
            const size_t at = 16 * (i + (size_t)j * step);
            const int here = at < 16 * whole;
            a[j] = here ? gyre_load16(m.from[0] + at) : make_uint4(0, 0, 0, 0);
            b[j] = here ? gyre_load16(m.from[1] + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int j = 0; j < IN_FLIGHT / 2; j++) {
            const size_t at = 16 * (i + (size_t)j * step);
            uint4 sum = coll_join<T, O>(a[j], b[j], order);
            if (m.divides)
                sum = divide_all<T>(op, sum);
            if (at < 16 * whole)
                store_twice(m, at, sum);
        }
    }
    for (size_t i = whole + threadIdx.x; 16 * i < m.bytes; i += step) {
        const size_t rest = m.bytes - 16 * i;
        uint4 sum = load_part<T>(op, m.from[0] + 16 * i, rest, m.scaled[0]);
        if (m.from[1])
            sum = coll_join<T, O>(sum, load_part<T>(op, m.from[1] + 16 * i, rest, m.scaled[1]), order);
        if (m.divides)
            sum = divide_all<T>(op, sum);
        for (int k = 0; k < 2; k++)
            if (m.to[k])
                store_part<T>(m.to[k] + 16 * i, rest, sum);
    }
}

template <typename T>
static __device__ __forceinline__ void add_type(const coll_cuda_op_t &op, const move_t &m)
{
    switch ((gyre_redop_kind_t)op.redop) {
#define REDOP(id, name, kernels, device)       \
    case GYRE_##id:                            \
        add_range<T, coll_do_##device>(op, m); \
        break;
#define REDOP_HOST(id, name, rows, of)                     \
    case GYRE_##id: /* coll_cuda_can_add has refused it */ \
        break;
#include "base/redops.def"
#undef REDOP
    case GYRE_REDOP_USER:
    case GYRE_REDOP_NONE:
        break;
    }
}

static __device__ void add_up(const coll_cuda_op_t &op, const move_t &m)
{
    switch ((gyre_type_t)op.type) {
#define CASE(TYPE, name)              \
    case TYPE:                        \
        add_type<coll_##name>(op, m); \
        break;
        COLL_CUDA_TYPES(CASE)
#undef CASE
#define CASE(TYPE) case TYPE:
        COLL_CUDA_HOST_TYPES(CASE) /* coll_cuda_can_add has refused them */
#undef CASE
    case GYRE_TYPE_USER:
    case GYRE_TYPE_NONE:
        break;
    }
}

/* ---- links --------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ const coll_cuda_lane_t &lane_of(const run_t &run)
{
    return run.s.lane[blockIdx.x % run.s.lanes];
}

/* This block's region in a rank's arena. */
static __device__ __forceinline__ char *region_of(const run_t &run, int rank)
{
    return run.s.op.arena[rank] + COLL_CUDA_HEAD + blockIdx.x * run.s.op.region;
}

/* Until *count, which only grows, has come to `enough`. */
static __device__ void wait_count(run_t *run, const uint32_t *count, uint32_t enough, int peer)
{
    for (uint32_t looks = 1; gyre_load_acquire(count) < enough; looks++) {
        if (is_over(&head_of(run->s.op, run->s.op.rank)->over, &run->s.op.board->abort, looks)) {
            run->state.dead = 1;
            return;
        }
        if (looks == LOOKS_BEFORE_LATE)
            *(volatile uint32_t *)&run->s.op.board->late = (uint32_t)peer + 1;
        GYRE_SPIN();
    }
}

/* Threads 0 and 1 wait for the sources, thread 2 for room. */
static __device__ void wait_for_action(run_t *run, const coll_cuda_action_t &a)
{
    coll_cuda_head_t *head = head_of(run->s.op, run->s.op.rank);
    const unsigned k = threadIdx.x;
    if (k < 2 && a.from[k] == COLL_CUDA_SLOT) {
        const int peer = lane_of(*run).from[a.from_link[k]];
        wait_count(run, &head->came[blockIdx.x][peer], run->received[a.from_link[k]] + a.number[k] + 1, peer);
    } else if (k == 2 && a.to_link != COLL_CUDA_NO_LINK) {
        const int peer = lane_of(*run).to[a.to_link];
        const uint32_t before = run->sent[a.to_link] + a.push;
        if (before >= run->s.depth)
            wait_count(run, &head->room[blockIdx.x][peer], before + 1 - run->s.depth, peer);
    }
}

/* The barrier before this orders all that the block read and wrote. Thread 0: the message is there;
 * threads 1 and 2: slots are free. */
static __device__ void tell_of_action(run_t *run, const coll_cuda_action_t &a)
{
    const coll_cuda_op_t &op = run->s.op;
    if (threadIdx.x == 0 && a.to_link != COLL_CUDA_NO_LINK) {
        const int peer = lane_of(*run).to[a.to_link];
        gyre_store_release(&head_of(op, peer)->came[blockIdx.x][op.rank], run->sent[a.to_link] + a.push + 1);
    } else if (threadIdx.x == 1 || threadIdx.x == 2) {
        const unsigned k = threadIdx.x - 1, link = a.free_link[k];
        if (link == COLL_CUDA_NO_LINK)
            return;
        /* the sender asks for room until its last message is under way, and for no more */
        const uint32_t all = run->s.expected[blockIdx.x * COLL_CUDA_LINKS + link];
        const uint32_t most = all > run->s.depth ? all - run->s.depth : 0;
        const uint32_t read = run->received[link] + a.freed[k], room = read < most ? read : most;
        if (room > run->told[link]) {
            run->told[link] = room;
            gyre_store_release(&head_of(op, lane_of(*run).from[link])->room[blockIdx.x][op.rank], room);
        }
    }
}

/* ---- actions ------------------------------------------------------------------------------------------- */

static __device__ const char *source(const run_t &run, const coll_cuda_action_t &a, int k, uint32_t segment)
{
    const coll_cuda_op_t &op = run.s.op;
    const unsigned link = a.from_link[k];
    switch (a.from[k]) {
    case COLL_CUDA_IN:
        return op.in + segment * run.s.shift + a.from_at[k];
    case COLL_CUDA_OUT:
        return op.out + segment * run.s.shift + a.from_at[k];
    case COLL_CUDA_TMP:
        return region_of(run, op.rank) + run.s.tmp_at + a.from_at[k];
    case COLL_CUDA_SLOT:
        return region_of(run, op.rank) +
               (size_t)(link * run.s.depth + (run.received[link] + a.number[k]) % run.s.depth) * run.s.slot +
               a.from_at[k];
    default:
        return NULL;
    }
}

static __device__ char *destination(const run_t &run, const coll_cuda_action_t &a, uint32_t segment)
{
    const coll_cuda_op_t &op = run.s.op;
    switch (a.to) {
    case COLL_CUDA_OUT:
        return op.out + segment * run.s.shift + a.to_at;
    case COLL_CUDA_TMP:
        return region_of(run, op.rank) + run.s.tmp_at + a.to_at;
    default:
        return NULL;
    }
}

static __device__ char *pushed_to(const run_t &run, const coll_cuda_action_t &a)
{
    if (a.to_link == COLL_CUDA_NO_LINK)
        return NULL;
    const coll_cuda_lane_t &lane = lane_of(run);
    const uint32_t number = run.sent[a.to_link] + a.push;
    return region_of(run, lane.to[a.to_link]) + lane.place[a.to_link] +
           (size_t)(number % run.s.depth) * run.s.slot;
}

/* Returns 1 if the operation is over, to all threads alike: between these two barriers no thread sets the
 * word. */
static __device__ int act(run_t *run, const coll_cuda_action_t &a, uint32_t segment)
{
    const coll_cuda_op_t &op = run->s.op;
    wait_for_action(run, a);
    __syncthreads();
    if (run->state.dead)
        return 1;
    move_t m;
    m.bytes = a.bytes;
    m.divides = a.final && op.average;
    m.to[0] = destination(*run, a, segment);
    m.to[1] = pushed_to(*run, a);
    for (int k = 0; k < 2; k++) {
        m.from[k] = source(*run, a, k, segment);
        m.scaled[k] = op.scaled && a.from[k] == COLL_CUDA_IN;
    }
    if (m.from[1] || m.scaled[0])
        add_up(op, m);
    else
        move_range(m);
    __syncthreads();
    tell_of_action(run, a);
    return 0;
}

static __device__ int run_segment(run_t *run, uint32_t segment)
{
    const coll_cuda_program_t &p =
        run->s.programs[run->s.form_of[segment] * run->s.lanes + blockIdx.x % run->s.lanes];
    const uint32_t actions = p.actions;
    for (uint32_t i = 0; i < actions; i += ACTIONS) {
        const uint32_t some = actions - i < ACTIONS ? actions - i : (uint32_t)ACTIONS;
        __syncthreads(); /* those before are read no more */
        for (unsigned k = threadIdx.x; k < some * sizeof(coll_cuda_action_t) / 16; k += blockDim.x)
            ((uint4 *)run->actions)[k] = ((const uint4 *)(run->s.actions + p.first + i))[k];
        __syncthreads();
        for (uint32_t k = 0; k < some; k++)
            if (act(run, run->actions[k], segment))
                return 1;
    }
    __syncthreads();
    if (threadIdx.x < COLL_CUDA_LINKS) {
        run->sent[threadIdx.x] += p.sent[threadIdx.x];
        run->received[threadIdx.x] += p.received[threadIdx.x];
    }
    __syncthreads();
    return 0;
}

static __global__ void __launch_bounds__(THREADS, 1)
    schedule_kernel(const __grid_constant__ coll_cuda_schedule_t given)
{
    __shared__ __align__(16) run_t run;
    for (unsigned i = threadIdx.x; i < sizeof given / sizeof(uint32_t); i += blockDim.x)
        ((uint32_t *)&run.s)[i] = ((const uint32_t *)&given)[i];
    if (threadIdx.x < COLL_CUDA_LINKS)
        run.sent[threadIdx.x] = run.received[threadIdx.x] = run.told[threadIdx.x] = 0;
    __syncthreads();
    const coll_cuda_op_t &op = run.s.op;
    begin(op, &run.state);
    int dead = run.state.dead; /* the same for all threads, see act */
    if (!dead) {
        coll_cuda_head_t *head = head_of(op, op.rank);
        for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x) {
            *(volatile uint32_t *)&head->came[blockIdx.x][peer] = 0;
            *(volatile uint32_t *)&head->room[blockIdx.x][peer] = 0;
        }
        tell(op, &run.state);
        meet(op, &run.state);
        dead = run.state.dead;
        __syncthreads(); /* all have read it */
    }
    for (uint32_t segment = blockIdx.x / run.s.lanes; segment < run.s.segments && !dead;
         segment += gridDim.x / run.s.lanes)
        dead = run_segment(&run, segment);
    if (threadIdx.x == 0)
        leave(op, &run.state);
}

extern "C" cudaError_t coll_cuda_load_schedule(void)
{
    return gyre_load(schedule_kernel);
}

extern "C" cudaError_t coll_cuda_launch_schedule(const coll_cuda_schedule_t *s, int blocks,
                                                 cudaStream_t stream)
{
    return GYRE_LAUNCH(schedule_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *s);
}
