/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/experts.cu: routing and rows of a mixture of experts. Compiled without contraction. */
#include "model/gpu/layers/experts.h"
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/wide.h"

enum { THREADS = 256, WARP = 32, WARPS = THREADS / WARP, ROWS = THREADS / MODEL_LANES };
#define ALL 0xffffffffu

static size_t blocks_of(size_t rows, size_t each)
{
    return (rows + each - 1) / each;
}

/* ---- choices ------------------------------------------------------------------------------------------- */

/* An expert and its probability, or no expert (at < 0). The order of choice is total: the larger probability
 * first, of equals the lower number. NaN counts as -1 and comes last. Choices are thus experts and differ for
 * any logits. */
typedef struct {
    float p;
    int32_t at;
} candidate_t;

static __device__ __forceinline__ int precedes(candidate_t a, candidate_t b)
{
    return a.p > b.p || (a.p == b.p && a.at < b.at);
}

/* The first candidate of all after `last`, among 16 lanes; every lane gets it. */
static __device__ candidate_t next_candidate(const float *prob, size_t experts, candidate_t last, size_t lane)
{
    candidate_t best = {-2.0f, -1};
    for (size_t e = lane; e < experts; e += MODEL_LANES) {
        candidate_t c = {prob[e] >= 0.0f ? prob[e] : -1.0f, (int32_t)e};
        if ((last.at < 0 || precedes(last, c)) && (best.at < 0 || precedes(c, best)))
            best = c;
    }
    for (int w = MODEL_LANES / 2; w > 0; w /= 2) {
        candidate_t c = {__shfl_xor_sync(ALL, best.p, w), __shfl_xor_sync(ALL, best.at, w)};
        if (c.at >= 0 && (best.at < 0 || precedes(c, best)))
            best = c;
    }
    return best;
}

/* Softmax and the k most probable. Block: 16 positions of 16 threads; grid: positions / 16. No shared memory;
 * a lane reads the probabilities that it wrote. The sum runs in the host's 16 lanes. */
static __global__ void route(const model_cuda_routing_t r)
{
    size_t rows = r.sequences * r.T, lane = threadIdx.x % MODEL_LANES;
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / MODEL_LANES;
    int live = row < rows; /* the others keep their warp's shuffles whole */
    size_t E = live ? r.experts : 0;
    float *prob = r.prob + row * r.experts, max = -INFINITY, sum = 0.0f;
    for (size_t e = lane; e < E; e += MODEL_LANES)
        max = prob[e] > max ? prob[e] : max;
    for (int w = MODEL_LANES / 2; w > 0; w /= 2) {
        float other = __shfl_xor_sync(ALL, max, w);
        max = other > max ? other : max;
    }
    for (size_t e = lane; e < E; e += MODEL_LANES) {
        prob[e] = exp_one_f32(prob[e] - max);
        sum = sum + prob[e];
    }
    float inverse = 1.0f / model_join_lanes(sum), total = 0.0f;
    for (size_t e = lane; e < E; e += MODEL_LANES)
        prob[e] = prob[e] * inverse;
    candidate_t last = {0.0f, -1}, mine = last;
    for (size_t j = 0; j < r.top_k; j++) {
        last = next_candidate(prob, E, last, lane);
        if (last.p < 0.0f)
            total = NAN;
        total = total + last.p;
        if (lane == j)
            mine = last;
    }
    if (!live || lane >= r.top_k)
        return;
    float p = mine.p < 0.0f ? NAN : mine.p;
    r.choice[row * r.top_k + lane] = mine.at;
    r.share[row * r.top_k + lane] = r.top_k > 1 ? p / total : p;
}

extern "C" gyre_status_t model_cuda_route(const model_cuda_routing_t *r, struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(r->sequences * r->T, ROWS)), block(THREADS);
    return model_cuda_launched(GYRE_LAUNCH(route, grid, block, 0, stream, *r), "route", grid, block);
}

/* ---- slots --------------------------------------------------------------------------------------------- */

/* The index of expert x among a position's choices; -1: not chosen. */
static __device__ __forceinline__ int choice_of(const int32_t *choice, size_t k, int32_t x)
{
    int found = -1;
    for (size_t i = 0; i < k; i++)
        found = choice[i] == x ? (int)i : found;
    return found;
}

/* Block: 256 threads, one expert of one sequence; grid: (E, n). Shared: 1 KiB. 256 positions at a time: votes
 * of a warp and counts of the warps in front number those that chose the expert. */
static __global__ void assign(const model_cuda_routing_t r)
{
    __shared__ int32_t votes_of[WARPS];
    __shared__ float part[THREADS];
    size_t x = blockIdx.x, j = blockIdx.y, k = r.top_k;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t taken = 0, cap = (int32_t)r.cap;
    int32_t *owner =
        x >= r.first && x - r.first < r.here ? r.owner + ((x - r.first) * r.sequences + j) * r.cap : NULL;
    float sum = 0.0f;
    for (size_t begin = 0; begin < r.T; begin += THREADS) {
        size_t t = begin + threadIdx.x, row = j * r.T + t;
        int found = t < r.T ? choice_of(r.choice + row * k, k, (int32_t)x) : -1;
        if (t < r.T)
            sum = sum + r.prob[row * r.experts + x];
        unsigned votes = __ballot_sync(ALL, found >= 0);
        if (lane == 0)
            votes_of[warp] = __popc(votes);
        __syncthreads();
        int32_t at = taken + __popc(votes & ((1u << lane) - 1));
        for (unsigned w = 0; w < WARPS; w++) {
            at += w < warp ? votes_of[w] : 0;
            taken += votes_of[w];
        }
        if (found >= 0)
            r.place[row * k + (size_t)found] = at < cap ? at : -1;
        if (found >= 0 && at < cap && owner)
            owner[at] = (int32_t)(t * k) + found;
        __syncthreads(); /* before the counts are written again */
    }
    for (int32_t at = taken + (int32_t)threadIdx.x; owner && at < cap; at += THREADS)
        owner[at] = -1;
    part[threadIdx.x] = sum;
    for (unsigned n = THREADS / 2; n > 0; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n)
            part[threadIdx.x] = part[threadIdx.x] + part[threadIdx.x + n];
    }
    if (threadIdx.x == 0) {
        r.chosen[j * r.experts + x] = taken;
        r.mass[j * r.experts + x] = part[0];
    }
}

extern "C" gyre_status_t model_cuda_assign(const model_cuda_routing_t *r, struct CUstream_st *stream)
{
    dim3 grid((unsigned)r->experts, (unsigned)r->sequences), block(THREADS);
    return model_cuda_launched(GYRE_LAUNCH(assign, grid, block, 0, stream, *r), "assign", grid, block);
}

/* The position of a slot that is taken, in [n][T]. */
static __device__ __forceinline__ size_t position_of(const model_cuda_routing_t &r, size_t slot,
                                                     int32_t owner)
{
    return slot / r.cap % r.sequences * r.T + (size_t)owner / r.top_k;
}

/* One warp per slot, whose row is `width` pieces of type V; grid: slots / 8. */
template <typename V>
static __global__ void fill_slots(const model_cuda_routing_t r, size_t width, V *slots, const V *x)
{
    size_t slot = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (slot >= r.here * r.sequences * r.cap)
        return;
    int32_t owner = r.owner[slot];
    const V *from = owner < 0 ? NULL : x + position_of(r, slot, owner) * width;
    for (size_t i = threadIdx.x % WARP; i < width; i += WARP)
        slots[slot * width + i] = from ? from[i] : V();
}

extern "C" gyre_status_t model_cuda_fill_slots(model_cuda_type_t type, const model_cuda_routing_t *r,
                                               size_t channels, void *slots, const void *x,
                                               struct CUstream_st *stream)
{
    size_t bytes = channels * (type == MODEL_CUDA_BF16 ? sizeof(uint16_t) : sizeof(float));
    dim3 grid((unsigned)blocks_of(r->here * r->sequences * r->cap, WARPS)), block(THREADS);
    cudaError_t rc;
    if (bytes % sizeof(uint4) == 0 && ((uintptr_t)slots | (uintptr_t)x) % sizeof(uint4) == 0)
        rc = GYRE_LAUNCH(fill_slots<uint4>, grid, block, 0, stream, *r, bytes / sizeof(uint4), (uint4 *)slots,
                         (const uint4 *)x);
    else
        rc = GYRE_LAUNCH(fill_slots<uint16_t>, grid, block, 0, stream, *r, bytes / sizeof(uint16_t),
                         (uint16_t *)slots, (const uint16_t *)x);
    return model_cuda_launched(rc, "fill_slots", grid, block);
}

/* ---- sums over experts --------------------------------------------------------------------------------- */

/* The i-th expert, in their order, that a position has a slot of here, as lane i of a warp holds it. */
typedef struct {
    int32_t slot;
    float weight;
    /* where its leaf meets that of the expert before: 0, they are one leaf; l, their subtrees have 2^(l-1)
     * leaves */
    int level;
} meeting_t;

/* Returns how many there are. All 32 lanes come here. */
static __device__ int meetings_of(const model_cuda_routing_t &r, size_t row, int weighted, unsigned lane,
                                  meeting_t *out)
{
    int k = (int)r.top_k, chose = lane < (unsigned)k, rank = 0, from = (int)lane;
    size_t i = row * r.top_k + lane;
    int32_t expert = chose ? r.choice[i] - (int32_t)r.first : -1, place = chose ? r.place[i] : -1;
    int here = place >= 0 && expert >= 0 && expert < (int32_t)r.here;
    int32_t key = here ? expert : INT32_MAX;
    meeting_t m = {0, 1.0f, 0};
    if (here) {
        m.slot = (int32_t)(((size_t)expert * r.sequences + row / r.T) * r.cap) + place;
        m.weight = weighted ? r.share[i] : 1.0f;
    }
    for (int other = 0; other < k; other++) {
        int32_t theirs = __shfl_sync(ALL, key, other);
        rank += theirs < key || (theirs == key && other < (int)lane);
    }
    for (int place_in_order = 0; place_in_order < k; place_in_order++) {
        unsigned votes = __ballot_sync(ALL, chose && rank == place_in_order);
        from = (int)lane == place_in_order ? __ffs((int)votes) - 1 : from;
    }
    out->slot = __shfl_sync(ALL, m.slot, from);
    out->weight = __shfl_sync(ALL, m.weight, from);
    int leaf = __shfl_sync(ALL, key, from) / (int)r.leaf_experts, before = __shfl_up_sync(ALL, leaf, 1);
    out->level = 32 - __clz(leaf ^ before);
    return __popc(__ballot_sync(ALL, here));
}

/* A row's sum, N channels of a lane at a time. Subtrees that wait for their right neighbour lie in `left`,
 * the larger ones first: a new one closes those that meet below it. An absent leaf is +0, and no sum that
 * begins with +0 is -0: so it may be left out. */
template <int N, typename S>
static __device__ __forceinline__ void join_row(float *sum, const S *slots, size_t C, const meeting_t &mine,
                                                int count, unsigned lane)
{
    float left[8][N];
    int edge[8];
    for (size_t first = 0; first < C; first += WARP * N) { /* all lanes as often: they shuffle */
        size_t c = first + lane * N;
        int depth = 0;
        float right[N], v[N];
        for (int i = 0; i < N; i++)
            right[i] = 0.0f;
        for (int m = 0; m < count; m++) {
            size_t slot = (size_t)__shfl_sync(ALL, mine.slot, m);
            float weight = __shfl_sync(ALL, mine.weight, m);
            int level = __shfl_sync(ALL, mine.level, m);
            if (c >= C)
                continue;
            load_some(v, slots + slot * C + c);
            if (m == 0 || count == 2) { /* two meet the same way, whichever leaves they are of */
                for (int i = 0; i < N; i++)
                    right[i] = weight * v[i] + right[i];
                continue;
            }
            for (; depth > 0 && edge[depth - 1] <= level; depth--)
                for (int i = 0; i < N; i++)
                    right[i] = left[depth - 1][i] + right[i];
            edge[depth] = level;
            for (int i = 0; i < N; i++) {
                left[depth][i] = right[i];
                right[i] = weight * v[i] + 0.0f;
            }
            depth++;
        }
        for (; depth > 0; depth--)
            for (int i = 0; i < N; i++)
                right[i] = left[depth - 1][i] + right[i];
        if (c < C)
            store_some(sum + c, right);
    }
}

/* One warp per position; grid: positions / 8. */
template <typename S>
static __global__ void join_slots(const model_cuda_routing_t r, size_t C, float *sum, const S *slots,
                                  int weighted)
{
    size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    unsigned lane = threadIdx.x % WARP;
    if (row >= r.sequences * r.T) /* a whole warp */
        return;
    meeting_t mine;
    int count = meetings_of(r, row, weighted, lane, &mine);
    if (C % 4 == 0)
        join_row<4>(sum + row * C, slots, C, mine, count, lane);
    else
        join_row<1>(sum + row * C, slots, C, mine, count, lane);
}

extern "C" gyre_status_t model_cuda_join_slots(model_cuda_type_t type, const model_cuda_routing_t *r,
                                               size_t channels, float *sum, const void *slots, int weighted,
                                               struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(r->sequences * r->T, WARPS)), block(THREADS);
    cudaError_t rc = type == MODEL_CUDA_BF16 ? GYRE_LAUNCH(join_slots<uint16_t>, grid, block, 0, stream, *r,
                                                           channels, sum, (const uint16_t *)slots, weighted)
                                             : GYRE_LAUNCH(join_slots<float>, grid, block, 0, stream, *r,
                                                           channels, sum, (const float *)slots, weighted);
    return model_cuda_launched(rc, "join_slots", grid, block);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* Block: 16 slots of 16 threads; grid: slots / 16. The product runs in the host's 16 lanes. */
template <typename S>
static __global__ void slots_back(const model_cuda_routing_t r, size_t C, S *d_slots, float *d_share,
                                  const S *slots, const S *dy)
{
    size_t all = r.here * r.sequences * r.cap, lane = threadIdx.x % MODEL_LANES;
    size_t slot = (size_t)blockIdx.x * ROWS + threadIdx.x / MODEL_LANES;
    int live = slot < all; /* the others keep their warp's shuffles whole */
    int32_t owner = live ? r.owner[slot] : -1;
    size_t position = owner < 0 ? 0 : position_of(r, slot, owner);
    size_t choice = owner < 0 ? 0 : position * r.top_k + (size_t)owner % r.top_k;
    const S *d = dy + position * C;
    float weight = owner < 0 ? 0.0f : r.share[choice], dot = 0.0f;
    for (size_t c = lane; live && c < C; c += MODEL_LANES) {
        float v = owner < 0 ? 0.0f : model_load(d + c);
        if (owner >= 0)
            dot = dot + model_load(slots + slot * C + c) * v;
        model_store(d_slots + slot * C + c, weight * v);
    }
    dot = model_join_lanes(dot);
    if (lane == 0 && owner >= 0)
        d_share[choice] = dot + 0.0f; /* never -0, which a sum with other ranks' +0 would not keep */
}

extern "C" gyre_status_t model_cuda_slots_back(model_cuda_type_t type, const model_cuda_routing_t *r,
                                               size_t channels, void *d_slots, float *d_share,
                                               const void *slots, const void *dy, struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(r->here * r->sequences * r->cap, ROWS)), block(THREADS);
    cudaError_t rc =
        type == MODEL_CUDA_BF16
            ? GYRE_LAUNCH(slots_back<uint16_t>, grid, block, 0, stream, *r, channels, (uint16_t *)d_slots,
                          d_share, (const uint16_t *)slots, (const uint16_t *)dy)
            : GYRE_LAUNCH(slots_back<float>, grid, block, 0, stream, *r, channels, (float *)d_slots, d_share,
                          (const float *)slots, (const float *)dy);
    return model_cuda_launched(rc, "slots_back", grid, block);
}

/* A gradient of logits as numbers of S, E apart; the differences are exact. */
static __device__ __forceinline__ void store_parts(float *p, size_t, float v)
{
    *p = v;
}

static __device__ __forceinline__ void store_parts(uint16_t *p, size_t E, float v)
{
    for (size_t i = 0; i < 3; i++) {
        model_store(p + i * E, v);
        v = v - model_load(p + i * E);
    }
}

static __device__ __forceinline__ float load_parts(const float *p, size_t)
{
    return *p;
}

static __device__ __forceinline__ float load_parts(const uint16_t *p, size_t E)
{
    return model_load(p) + model_load(p + E) + model_load(p + 2 * E);
}

/* With w_j = p_j / S:  dp_j = (dw_j - sum_i dw_i w_i) / S, and the balance loss's share;  dlogit = p (dp -
 * sum(p dp)). Block, grid and sums as route. */
template <typename S>
static __global__ void route_back(const model_cuda_routing_t r, double balance, S *d_logits,
                                  const float *d_share)
{
    size_t rows = r.sequences * r.T, lane = threadIdx.x % MODEL_LANES, k = r.top_k;
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.x / MODEL_LANES;
    int live = row < rows; /* the others keep their warp's shuffles whole */
    size_t E = live ? r.experts : 0;
    const float *prob = r.prob + row * r.experts, *share = r.share + row * k, *d = d_share + row * k;
    const int32_t *choice = r.choice + row * k, *chosen = r.chosen + row / r.T * r.experts;
    float sum = 0.0f, inner = 0.0f, dot = 0.0f;
    double squared = (double)r.T * (double)r.T;
    size_t parts = sizeof(S) == sizeof(float) ? 1 : 3;
    for (size_t i = 0; live && i < k; i++) {
        sum = sum + prob[choice[i]];
        inner = inner + d[i] * share[i];
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t e = lane; e < E; e += MODEL_LANES) {
            int i = choice_of(choice, k, (int32_t)e);
            float v = balance == 0.0 ? 0.0f : (float)(balance * (double)chosen[e] / squared);
            if (i >= 0)
                v = v + (k > 1 ? (d[i] - inner) / sum : d[i]);
            if (pass == 0)
                dot = dot + v * prob[e];
            else
                store_parts(d_logits + row * parts * r.experts + e, r.experts, prob[e] * (v - dot));
        }
        if (pass == 0)
            dot = model_join_lanes(dot);
    }
}

extern "C" gyre_status_t model_cuda_route_back(model_cuda_type_t type, const model_cuda_routing_t *r,
                                               double balance, void *d_logits, const float *d_share,
                                               struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(r->sequences * r->T, ROWS)), block(THREADS);
    cudaError_t rc = type == MODEL_CUDA_BF16 ? GYRE_LAUNCH(route_back<uint16_t>, grid, block, 0, stream, *r,
                                                           balance, (uint16_t *)d_logits, d_share)
                                             : GYRE_LAUNCH(route_back<float>, grid, block, 0, stream, *r,
                                                           balance, (float *)d_logits, d_share);
    return model_cuda_launched(rc, "route_back", grid, block);
}

enum { CHANNELS = 128, TILE = 16, DEPTH = 16 };

/* Block: 128 channels of 16 rows; grid: (rows / 16, C / 128). Shared: 1 KiB, the rows' gradients of 16
 * experts. A thread keeps 16 weights of its channel and 16 sums. */
template <typename S>
static __global__ void router_input(const model_cuda_routing_t r, size_t C, size_t rows, size_t begin, S *out,
                                    const float *sum, const S *d_logits, const S *w)
{
    __shared__ float d[TILE][DEPTH];
    size_t all = r.sequences * rows, E = r.experts, first = (size_t)blockIdx.x * TILE;
    size_t c = (size_t)blockIdx.y * CHANNELS + threadIdx.x;
    size_t parts = sizeof(S) == sizeof(float) ? 1 : 3;
    float acc[TILE], weight[DEPTH];
    for (int i = 0; i < TILE; i++)
        acc[i] = c < C && first + i < all ? sum[(first + i) * C + c] : 0.0f;
    for (size_t from = 0; from < E; from += DEPTH) {
        __syncthreads(); /* the last experts have been read */
        for (unsigned i = threadIdx.x; i < TILE * DEPTH; i += CHANNELS) {
            size_t row = first + i / DEPTH, e = from + i % DEPTH;
            d[i / DEPTH][i % DEPTH] =
                row < all && e < E
                    ? load_parts(d_logits + (row / rows * r.T + begin + row % rows) * parts * E + e, E)
                    : 0.0f;
        }
        for (int i = 0; i < DEPTH; i++)
            weight[i] = c < C && from + i < E ? model_load(w + c * E + from + i) : 0.0f;
        __syncthreads();
        for (int row = 0; row < TILE; row++)
            for (int i = 0; i < DEPTH; i++)
                acc[row] = fmaf(d[row][i], weight[i], acc[row]);
    }
    for (int i = 0; i < TILE; i++)
        if (c < C && first + i < all)
            model_store(out + (first + i) * C + c, acc[i]);
}

extern "C" gyre_status_t model_cuda_router_input(model_cuda_type_t type, const model_cuda_routing_t *r,
                                                 size_t channels, size_t rows, size_t begin, void *out,
                                                 const float *sum, const void *d_logits, const void *w,
                                                 struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(r->sequences * rows, TILE), (unsigned)blocks_of(channels, CHANNELS)),
        block(CHANNELS);
    cudaError_t rc =
        type == MODEL_CUDA_BF16
            ? GYRE_LAUNCH(router_input<uint16_t>, grid, block, 0, stream, *r, channels, rows, begin,
                          (uint16_t *)out, sum, (const uint16_t *)d_logits, (const uint16_t *)w)
            : GYRE_LAUNCH(router_input<float>, grid, block, 0, stream, *r, channels, rows, begin,
                          (float *)out, sum, (const float *)d_logits, (const float *)w);
    return model_cuda_launched(rc, "router_input", grid, block);
}

/* ---- statistics --------------------------------------------------------------------------------------- */

typedef struct {
    model_routed_t *routed;
    const int32_t *chosen;
    const float *mass;
    size_t layers, stride, sequences, T, experts, cap;
    double balance;
} told_t;

/* The balance loss: weight E sum over experts of (share of choices) (mean probability). One thread per
 * layer and sequence. */
static __global__ void tell_routed(const told_t p)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, l = i % p.layers, j = i / p.layers;
    if (i >= p.layers * p.sequences)
        return;
    size_t at = (l * p.stride + j) * p.experts, dropped = 0;
    double sum = 0.0, T = (double)p.T;
    for (size_t x = 0; x < p.experts; x++) {
        size_t chosen = (size_t)p.chosen[at + x];
        dropped += chosen > p.cap ? chosen - p.cap : 0;
        sum = sum + (double)chosen / T * ((double)p.mass[at + x] / T);
    }
    p.routed[i].balance = p.balance > 0.0 ? p.balance * (double)p.experts * sum : 0.0;
    p.routed[i].z = 0.0;
    p.routed[i].dropped = dropped;
}

extern "C" gyre_status_t model_cuda_routed(model_routed_t *routed, const int32_t *chosen, const float *mass,
                                           size_t layers, size_t stride, size_t sequences, size_t T,
                                           size_t experts, size_t cap, double balance,
                                           struct CUstream_st *stream)
{
    const told_t p = {routed, chosen, mass, layers, stride, sequences, T, experts, cap, balance};
    dim3 grid((unsigned)blocks_of(layers * sequences, WARP)), block(WARP);
    if (grid.x == 0)
        return GYRE_OK;
    return model_cuda_launched(GYRE_LAUNCH(tell_routed, grid, block, 0, stream, p), "routed", grid, block);
}
