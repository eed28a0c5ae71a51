/* collectives/gpu/plans/schedule.c: the host's schedules on device memory: where they are cut, and the programs that the kernel of
 * collectives/gpu/plans/schedule.cu reads. Which calls run them is collectives/gpu/call/choose.c's.
 *
 * A call's program is made once per shape: the schedules of all ranks for one segment of it are lowered (lower.c), and played
 * through with as many slots per link as the regions have room for; if they do not fit, or would not come to an end, chunks and segments
 * are made shorter. All of that depends only on what all ranks know, so all come to the same. Programs lie in memory of this
 * rank's device, in slabs that are used again when there are too many, except by those that a graph may run again.
 *
 * Ranks of one process must not wait for a device at a call, as a kernel there may wait for the next rank's. So theirs all lie in
 * the arena and stay, and shapes for which it has no room are left to shots: by the first rank that comes, for all. */
#include "collectives/gpu/call/state.h"

#ifdef GYRE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/settings/settings.h"
#include "collectives/gpu/plans/lower.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/algorithms.h"

enum {
    CHUNK_MOST = 128 << 10,
    CHUNK_LEAST = 256,
    DEPTH_LEAST = 4,
    DEPTH_GOOD =
        8, /* slots per link, if there is room: a chunk is written while others are on their way and read */
    DEPTH_MOST = 32,
    FORMS_MOST = 80, /* of segments: more than COLL_CUDA_RANKS, as uneven blocks end in different ones */
    SEGMENTS_MOST = 1 << 20, /* of an operation */
    SLAB = 1 << 20,
    PROGRAM_BYTES_MOST = 64 << 20
};

/* What was made of a shape. */
typedef coll_cuda_plan_t plan_t;
struct coll_cuda_plan {
    plan_t *next;
    coll_op_t op;
    coll_algo_t algo;
    size_t esize, count;
    int root, in_place;
    size_t *blocks_of; /* [2 n] counts and displs; NULL: a vector; owned */
    int served;        /* 0: no kernel can run it; shots do, because: */
    char refused[96];
    coll_cuda_schedule_t run;
    int blocks;
    int kept; /* in a slab for graphs */
};

typedef struct slab slab_t;
struct slab {
    slab_t *next;
    char *base;
    size_t bytes, used;
    int kept; /* graphs run what lies here */
    int lent; /* of the arena */
};

struct coll_cuda_plans {
    plan_t *list;
    slab_t *slabs;
    size_t in_use; /* bytes of programs that are not kept */
    cudaStream_t stream;
};

/* ---- making a program --------------------------------------------------------------------------------------- */

typedef struct {
    const coll_cuda_t *c;
    const coll_shape_t *s;
    plan_t *p;
    size_t longest;
    int n, me, lanes;
    size_t chunk, length; /* elements; length: of a segment */
    uint32_t segments, forms;
    uint32_t *form_of;            /* [segments] */
    size_t *counts;               /* [n] of the segment at hand */
    coll_cuda_lowered_t *lowered; /* [forms][n][lanes] */
    uint32_t *memory;             /* [2 n n] */
    base_arena_t arena;           /* of one attempt */
} maker_t;

static size_t part(size_t all, size_t from, size_t length)
{
    return all > from ? base_min_size(all - from, length) : 0;
}

/* Arguments of the segment that begins `from` elements into the vector or every block. */
static coll_args_t args_of(const maker_t *m, int rank, size_t from)
{
    coll_args_t a = coll_call_args(m->c->comm, m->s);
    a.rank = rank;
    a.chunk = m->chunk;
    a.in_place = rank == m->me ? m->s->in_place : 0; /* what is sent does not depend on it */
    if (coll_op_is_vector(m->s->op)) {
        a.count = part(m->s->count, from, m->length);
        return a;
    }
    for (int r = 0; r < m->n; r++)
        m->counts[r] = part(m->p->blocks_of[r], from, m->length);
    a.counts = a.rcounts = m->counts;
    a.displs = a.rdispls = m->p->blocks_of + m->n;
    a.count = m->counts[rank];
    return a;
}

static coll_cuda_lowered_t *lowered_at(const maker_t *m, uint32_t form, int rank, int lane)
{
    return &m->lowered[((size_t)form * (size_t)m->n + (size_t)rank) * COLL_CUDA_LANES + (size_t)lane];
}

/* All ranks' lists for segments like the one at `from`. *lanes: those there are. */
static gyre_status_t make_form(maker_t *m, uint32_t form, size_t from, int *lanes)
{
    gyre_status_t st = GYRE_OK;
    for (int r = 0; r < m->n && st == GYRE_OK; r++) {
        coll_schedule_t schedule = {0};
        const coll_args_t args = args_of(m, r, from);
        st = coll_schedule_build(m->p->algo, &args, &schedule);
        for (uint32_t i = 0; st == GYRE_OK && i < schedule.nsteps; i++)
            *lanes = schedule.steps[i].channel + 1 > *lanes ? schedule.steps[i].channel + 1 : *lanes;
        for (int lane = 0; lane < COLL_CUDA_LANES && st == GYRE_OK; lane++) {
            coll_cuda_lowered_t *to = lowered_at(m, form, r, lane);
            if (form > 0)
                *to = *lowered_at(m, form - 1, r, lane); /* its links */
            st = coll_cuda_lower(&schedule, &args, lane, m->p->esize, &m->arena, to);
        }
        coll_schedule_free(&schedule);
    }
    return st;
}

/* 1: the segment at `from` is as the one before it. */
static int like_before(const maker_t *m, size_t from)
{
    if (coll_op_is_vector(m->s->op))
        return m->s->count - from >= m->length;
    for (int r = 0; r < m->n; r++)
        if (part(m->p->blocks_of[r], from, m->length) !=
            part(m->p->blocks_of[r], from - m->length, m->length))
            return 0;
    return 1;
}

/* Which form each segment has. */
static gyre_status_t find_forms(maker_t *m)
{
    const size_t all = (m->longest + m->length - 1) / m->length;
    if (all > SEGMENTS_MOST)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "too many segments");
    m->segments = (uint32_t)all;
    m->forms = 0;
    m->form_of = base_arena_alloc(&m->arena, all, sizeof *m->form_of);
    if (!m->form_of)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu segments", all);
    for (uint32_t k = 0; k < m->segments; k++) {
        if (k == 0 || !like_before(m, k * m->length))
            m->forms++;
        m->form_of[k] = m->forms - 1;
    }
    if (m->forms > FORMS_MOST)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "too many kinds of segments");
    m->lowered =
        base_arena_alloc(&m->arena, (size_t)m->forms * (size_t)m->n * COLL_CUDA_LANES, sizeof *m->lowered);
    return m->lowered ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %u forms", m->forms);
}

static gyre_status_t make_forms(maker_t *m, int *lanes)
{
    gyre_status_t st = find_forms(m);
    uint32_t made = 0;
    for (uint32_t k = 0; st == GYRE_OK && k < m->segments; k++)
        if (m->form_of[k] == made)
            st = make_form(m, made++, k * m->length, lanes);
    return st;
}

static int ends(const maker_t *m, uint32_t depth)
{
    for (uint32_t f = 0; f < m->forms; f++)
        for (int lane = 0; lane < m->lanes; lane++)
            if (!coll_cuda_ends(lowered_at(m, f, 0, lane), COLL_CUDA_LANES, m->n, depth, m->memory))
                return 0;
    return 1;
}

/* The depth with which the lists fit into regions and come to their end; 0: none. The slots' size and TMP's place with it. */
static uint32_t find_depth(const maker_t *m, size_t *slot, size_t *tmp_at)
{
    size_t message = 0, tmp = 0, links = 0;
    for (uint32_t f = 0; f < m->forms; f++)
        for (int r = 0; r < m->n; r++)
            for (int lane = 0; lane < m->lanes; lane++) {
                const coll_cuda_lowered_t *l = lowered_at(m, f, r, lane);
                message = base_max_size(message, l->message);
                tmp = base_max_size(tmp, l->tmp);
                links = base_max_size(links, l->nfrom);
            }
    *slot = base_round_up(message, 128);
    uint32_t depth = DEPTH_LEAST;
    while (depth <= DEPTH_MOST && links * depth * *slot + tmp <= m->c->region && !ends(m, depth))
        depth *= 2;
    if (depth > DEPTH_MOST || links * depth * *slot + tmp > m->c->region)
        return 0;
    while (depth < DEPTH_GOOD && links * 2 * depth * *slot + tmp <= m->c->region)
        depth *= 2;
    *tmp_at = links * depth * *slot;
    return depth;
}

/* Into how many parts a schedule divides a segment before it cuts chunks. */
static size_t parts_of(const maker_t *m)
{
    const int parts = coll_algo_parts(m->p->algo);
    return parts > 0 ? (size_t)parts : m->s->op == COLL_ALL_REDUCE ? (size_t)m->n : 1;
}

/* Segments of at most `most` elements, so many that all blocks have as many. */
static void set_length(maker_t *m, size_t most)
{
    const size_t streams = (size_t)(m->c->resident / m->lanes);
    const size_t share = base_round_up((m->longest + streams - 1) / streams, 64);
    const size_t each = (share + most - 1) / most;
    m->length = base_round_up((share + each - 1) / each, 64);
}

/* One attempt. UNSUPPORTED: no way; *depth 0: not with these sizes. */
static gyre_status_t attempt(maker_t *m, size_t chunk, size_t chunks, uint32_t *depth, size_t *slot,
                             size_t *tmp_at)
{
    int lanes = m->lanes;
    *depth = 0;
    m->chunk = chunk;
    for (;;) {
        base_arena_free(&m->arena);
        set_length(m, base_round_up(parts_of(m) * chunks * chunk, 64));
        gyre_status_t st = make_forms(m, &lanes);
        if (st != GYRE_OK)
            return st;
        if (lanes == m->lanes)
            break;
        m->lanes = lanes;
        if (m->c->resident < lanes)
            return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                                   "it needs %d blocks, but kernels that wait have only %d here", lanes,
                                   m->c->resident);
    }
    *depth = find_depth(m, slot, tmp_at);
    return GYRE_OK;
}

/* Long chunks, and few of them in a segment rather than short ones. */
static gyre_status_t fit(maker_t *m, uint32_t *depth, size_t *slot, size_t *tmp_at)
{
    const size_t most = coll_algo_parts(m->p->algo) > 0 ? 16 : 4;
    for (size_t bytes = CHUNK_MOST; bytes >= CHUNK_LEAST; bytes /= 2)
        for (size_t chunks = most; chunks > 0; chunks /= 2) {
            const size_t chunk = base_max_size(bytes / m->p->esize & ~(size_t)63, 64);
            gyre_status_t st = attempt(m, chunk, chunks, depth, slot, tmp_at);
            if (st != GYRE_OK || *depth > 0)
                return st;
        }
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "GYRE_CUDA_STAGING is too little for it");
}

/* ---- memory of programs --------------------------------------------------------------------------------------- */

/* The first slabs are of the arena: no memory is taken at a call until they are full, which on some drivers would wait for kernels
 * that wait for this call. */
static gyre_status_t open_plans(coll_cuda_t *c)
{
    int least, greatest;
    if (c->plans)
        return GYRE_OK;
    struct coll_cuda_plans *all = calloc(1, sizeof *all);
    slab_t *first = calloc(1, sizeof *first), *second = calloc(1, sizeof *second);
    cudaError_t rc = cudaSuccess;
    if (all && first && second) {
        rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
        if (rc == cudaSuccess)
            rc = cudaStreamCreateWithPriority(&all->stream, cudaStreamNonBlocking, greatest);
    }
    if (!all || !first || !second || rc != cudaSuccess) {
        free(second);
        free(first);
        free(all);
        return rc != cudaSuccess
                   ? coll_cuda_failed(rc, "cudaStreamCreateWithPriority on device %d", c->device)
                   : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for schedules");
    }
    char *base = c->arena[c->comm->rank] + coll_cuda_arena_bytes(c->region, c->blocks, c->engine_half) -
                 COLL_CUDA_PLANS;
    const size_t passing = c->comm->team ? 0 : COLL_CUDA_PLANS / 2; /* a team keeps all */
    *second = (slab_t){.base = base + passing, .bytes = COLL_CUDA_PLANS - passing, .lent = 1, .kept = 1};
    *first = (slab_t){.next = second, .base = base, .bytes = passing, .lent = 1};
    all->slabs = first;
    c->plans = all;
    return GYRE_OK;
}

static void plan_free(plan_t *p)
{
    free(p->blocks_of);
    free(p);
}

/* Nothing runs any more of what is not in a graph: its slabs are empty. */
static gyre_status_t forget(coll_cuda_t *c)
{
    struct coll_cuda_plans *all = c->plans;
    cudaError_t rc = c->any ? cudaEventSynchronize(c->newest) : cudaSuccess;
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaEventSynchronize on device %d", c->device);
    for (plan_t **at = &all->list; *at;) {
        plan_t *p = *at;
        if (p->kept) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        plan_free(p);
    }
    for (slab_t *slab = all->slabs; slab; slab = slab->next)
        slab->used = slab->kept ? slab->used : 0;
    all->in_use = 0;
    return GYRE_OK;
}

static gyre_status_t take_slab(coll_cuda_t *c, size_t bytes, int kept, slab_t **out)
{
    struct coll_cuda_plans *all = c->plans;
    for (slab_t *slab = all->slabs; slab; slab = slab->next)
        if (slab->kept == kept && slab->bytes - slab->used >= bytes) {
            *out = slab;
            return GYRE_OK;
        }
    if (c->comm->team)
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "a schedule of %zu bytes is longer than the room its team has for it", bytes);
    slab_t *slab = calloc(1, sizeof *slab);
    if (!slab)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for programs");
    *slab = (slab_t){.next = all->slabs, .bytes = base_max_size(bytes, SLAB), .kept = kept};
    cudaError_t rc = cudaMalloc((void **)&slab->base, slab->bytes);
    if (rc != cudaSuccess) {
        const size_t wanted = slab->bytes;
        free(slab);
        return coll_cuda_failed(rc, "cudaMalloc(%zu) on device %d for a schedule", wanted, c->device);
    }
    all->slabs = slab;
    c->comm->allocations++;
    *out = slab;
    return GYRE_OK;
}

/* `image` to the device. What is captured elsewhere is not disturbed: the calling thread's mode is relaxed meanwhile. */
static gyre_status_t place(coll_cuda_t *c, const void *image, size_t bytes, int kept, char **there)
{
    slab_t *slab = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t rc = cudaThreadExchangeStreamCaptureMode(&mode);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaThreadExchangeStreamCaptureMode");
    gyre_status_t st = take_slab(c, base_round_up(bytes, 256), kept, &slab);
    if (st == GYRE_OK) {
        *there = slab->base + slab->used;
        slab->used += base_round_up(bytes, 256);
        c->plans->in_use += kept ? 0 : base_round_up(bytes, 256);
        rc = cudaMemcpyAsync(*there, image, bytes, cudaMemcpyHostToDevice, c->plans->stream);
        if (rc == cudaSuccess)
            rc = cudaStreamSynchronize(c->plans->stream);
        if (rc != cudaSuccess)
            st = coll_cuda_failed(rc, "copying %zu bytes of a schedule to device %d", bytes, c->device);
    }
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return st;
}

/* ---- the image ------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t expected, programs, actions, bytes; /* where each begins; form_of is first */
} layout_t;

static layout_t lay_out(const maker_t *m, int rank, int blocks)
{
    layout_t l = {0};
    size_t actions = 0;
    for (uint32_t f = 0; f < m->forms; f++)
        for (int lane = 0; lane < m->lanes; lane++)
            actions += lowered_at(m, f, rank, lane)->count;
    l.expected = base_round_up(m->segments * sizeof(uint32_t), 16);
    l.programs = l.expected + (size_t)blocks * COLL_CUDA_LINKS * sizeof(uint32_t);
    l.actions = base_round_up(l.programs + m->forms * (size_t)m->lanes * sizeof(coll_cuda_program_t), 16);
    l.bytes = l.actions + actions * sizeof(coll_cuda_action_t);
    return l;
}

static void fill(const maker_t *m, int blocks, const layout_t *l, char *image)
{
    uint32_t *form_of = (uint32_t *)image, *expected = (uint32_t *)(image + l->expected);
    coll_cuda_program_t *programs = (coll_cuda_program_t *)(image + l->programs);
    coll_cuda_action_t *actions = (coll_cuda_action_t *)(image + l->actions);
    uint32_t at = 0;
    memcpy(form_of, m->form_of, m->segments * sizeof *form_of);
    for (uint32_t f = 0; f < m->forms; f++)
        for (int lane = 0; lane < m->lanes; lane++) {
            const coll_cuda_lowered_t *from = lowered_at(m, f, m->me, lane);
            coll_cuda_program_t *p = &programs[f * (uint32_t)m->lanes + (uint32_t)lane];
            p->first = at;
            p->actions = from->count;
            memcpy(p->sent, from->sent, sizeof p->sent);
            memcpy(p->received, from->received, sizeof p->received);
            memcpy(actions + at, from->actions, from->count * sizeof *actions);
            at += from->count;
        }
    const uint32_t streams = (uint32_t)(blocks / m->lanes);
    for (int b = 0; b < blocks; b++)
        for (uint32_t k = (uint32_t)(b / m->lanes); k < m->segments; k += streams)
            for (int link = 0; link < COLL_CUDA_LINKS; link++)
                expected[b * COLL_CUDA_LINKS + link] +=
                    lowered_at(m, form_of[k], m->me, b % m->lanes)->received[link];
}

static void describe_lanes(const maker_t *m, coll_cuda_schedule_t *run)
{
    for (int lane = 0; lane < m->lanes; lane++) {
        const coll_cuda_lowered_t *mine = lowered_at(m, m->forms - 1, m->me, lane);
        coll_cuda_lane_t *to = &run->lane[lane];
        memcpy(to->from, mine->from, sizeof to->from);
        memcpy(to->to, mine->to, sizeof to->to);
        for (uint32_t i = 0; i < mine->nto; i++) {
            const coll_cuda_lowered_t *peer = lowered_at(m, m->forms - 1, mine->to[i], lane);
            uint32_t link = 0;
            while (link < peer->nfrom && peer->from[link] != m->me)
                link++;
            to->place[i] = link * run->depth * run->slot;
        }
    }
}

static gyre_status_t spell_blocks(const coll_cuda_t *c, const coll_shape_t *s, plan_t *p)
{
    const size_t n = (size_t)c->comm->n;
    size_t packed = 0;
    if (coll_op_is_vector(s->op))
        return GYRE_OK;
    p->blocks_of = calloc(2 * n, sizeof *p->blocks_of);
    if (!p->blocks_of)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %zu ranks", n);
    for (size_t r = 0; r < n; r++) {
        p->blocks_of[r] = coll_cuda_count(s, (int)r);
        p->blocks_of[n + r] = s->displs ? s->displs[r] : packed;
        packed += p->blocks_of[r];
    }
    return GYRE_OK;
}

/* What all ranks know of a shape is as it was when the team decided on it. */
static int alike(const plan_t *decided, const plan_t *p, int n)
{
    if (decided->op != p->op || decided->algo != p->algo || decided->esize != p->esize ||
        decided->root != p->root || !decided->blocks_of != !p->blocks_of ||
        (!p->blocks_of && decided->count != p->count))
        return 0;
    return !p->blocks_of || memcmp(decided->blocks_of, p->blocks_of, (size_t)n * sizeof *p->blocks_of) == 0;
}

/* A rank may make a shape's program twice, in place and not, the longer half as long again. Where blocks go is each rank's own affair,
 * so that there may be any number of programs of an all_gather of uneven ones. */
static gyre_status_t decide(coll_team_t *team, const maker_t *m, plan_t **out)
{
    size_t most = 0;
    plan_t *p = calloc(1, sizeof *p);
    if (!p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to note a schedule");
    *p = *m->p;
    p->blocks_of = NULL;
    gyre_status_t st = spell_blocks(m->c, m->s, p);
    if (st != GYRE_OK) {
        plan_free(p);
        return st;
    }
    for (int r = 0; r < m->n; r++)
        most = base_max_size(most, lay_out(m, r, p->blocks).bytes);
    const size_t room = base_round_up(most, 512) / 2 * 5;
    p->served = (m->s->op != COLL_ALL_GATHER || m->s->uniform) && room <= COLL_CUDA_PLANS - team->planned;
    team->planned += p->served ? room : 0;
    p->next = team->plans;
    team->plans = p;
    *out = p;
    return GYRE_OK;
}

static gyre_status_t fits_in_team(const coll_cuda_t *c, const maker_t *m, int *fits)
{
    coll_team_t *team = c->comm->team;
    gyre_status_t st = GYRE_OK;
    pthread_mutex_lock(&team->lock);
    plan_t *decided = team->plans;
    while (decided && !alike(decided, m->p, m->n))
        decided = decided->next;
    if (!decided)
        st = decide(team, m, &decided);
    if (st == GYRE_OK)
        *fits = decided->served;
    pthread_mutex_unlock(&team->lock);
    return st;
}

void coll_cuda_team_plans_free(coll_team_t *team)
{
    for (plan_t *p = team->plans, *next; p; p = next) {
        next = p->next;
        plan_free(p);
    }
    team->plans = NULL;
}

static gyre_status_t make_image(coll_cuda_t *c, maker_t *m, int kept)
{
    plan_t *p = m->p;
    const layout_t l = lay_out(m, m->me, p->blocks);
    char *image = calloc(1, l.bytes), *there = NULL;
    if (!image)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule of %zu bytes", l.bytes);
    fill(m, p->blocks, &l, image);
    int fits = 1;
    gyre_status_t st = c->comm->team ? fits_in_team(c, m, &fits) : GYRE_OK;
    if (!fits)
        st = gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the team has no room for it");
    if (st == GYRE_OK && c->plans->in_use + l.bytes > PROGRAM_BYTES_MOST && !kept)
        st = forget(c);
    if (st == GYRE_OK)
        st = place(c, image, l.bytes, kept, &there);
    free(image);
    if (st != GYRE_OK)
        return st;
    p->run.form_of = (const uint32_t *)there;
    p->run.expected = (const uint32_t *)(there + l.expected);
    p->run.programs = (const coll_cuda_program_t *)(there + l.programs);
    p->run.actions = (const coll_cuda_action_t *)(there + l.actions);
    return GYRE_OK;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static gyre_status_t make(coll_cuda_t *c, const coll_shape_t *s, plan_t *p)
{
    maker_t m = {
        .c = c, .s = s, .p = p, .longest = coll_cuda_longest(c, s), .n = c->comm->n, .me = c->comm->rank};
    uint32_t depth = 0;
    size_t slot = 0, tmp_at = 0;
    m.lanes = 1;
    m.counts = calloc((size_t)m.n, sizeof *m.counts);
    m.memory = calloc(2 * (size_t)m.n * (size_t)m.n, sizeof *m.memory);
    gyre_status_t st = m.counts && m.memory ? fit(&m, &depth, &slot, &tmp_at)
                                            : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule");
    if (st == GYRE_OK) {
        const size_t streams = base_min_size((size_t)(c->resident / m.lanes), m.segments);
        p->blocks = (int)streams * m.lanes;
        p->run.segments = m.segments;
        p->run.lanes = (uint32_t)m.lanes;
        p->run.depth = depth;
        p->run.slot = (uint32_t)slot;
        p->run.tmp_at = (uint32_t)tmp_at;
        p->run.shift = m.length * p->esize;
        describe_lanes(&m, &p->run);
        st = make_image(c, &m, p->kept);
    }
    p->served = st == GYRE_OK;
    if (!p->served)
        snprintf(p->refused, sizeof p->refused, "%s", gyre_last_error());
    base_arena_free(&m.arena);
    free(m.counts);
    free(m.memory);
    return st == GYRE_ERR_UNSUPPORTED ? GYRE_OK : st;
}

static int same(const coll_cuda_t *c, const plan_t *p, const coll_shape_t *s, coll_algo_t algo)
{
    size_t packed = 0;
    if (p->op != s->op || p->algo != algo || p->esize != gyre_type_size(s->type) || p->root != s->root ||
        p->in_place != s->in_place || p->count != s->count)
        return 0;
    for (int r = 0; p->blocks_of && r < c->comm->n; r++) {
        const size_t count = coll_cuda_count(s, r);
        if (p->blocks_of[r] != count || p->blocks_of[c->comm->n + r] != (s->displs ? s->displs[r] : packed))
            return 0;
        packed += count;
    }
    return 1;
}

gyre_status_t coll_cuda_find_plan(coll_cuda_t *c, const coll_shape_t *s, coll_algo_t algo, int capturing,
                                  plan_t **out)
{
    *out = NULL;
    const int kept = capturing || c->comm->team;
    gyre_status_t st = open_plans(c);
    if (st != GYRE_OK)
        return st;
    for (plan_t *p = c->plans->list; p; p = p->next)
        if (same(c, p, s, algo) && (p->kept || !kept || !p->served)) {
            *out = p->served ? p : NULL;
            return GYRE_OK;
        }
    plan_t *p = calloc(1, sizeof *p);
    if (!p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule");
    *p = (plan_t){.op = s->op,
                  .algo = algo,
                  .esize = gyre_type_size(s->type),
                  .count = s->count,
                  .root = s->root,
                  .in_place = s->in_place,
                  .kept = kept};
    st = spell_blocks(c, s, p);
    if (st == GYRE_OK)
        st = make(c, s, p);
    if (st != GYRE_OK) {
        plan_free(p);
        return st;
    }
    p->next = c->plans->list;
    c->plans->list = p;
    *out = p->served ? p : NULL;
    return GYRE_OK;
}

const char *coll_cuda_plan_refused(const coll_cuda_t *c, const coll_shape_t *s, coll_algo_t algo)
{
    for (const plan_t *p = c->plans ? c->plans->list : NULL; p; p = p->next)
        if (!p->served && same(c, p, s, algo))
            return p->refused;
    return "";
}

void coll_cuda_plan_shape(const plan_t *p, int *blocks, uint32_t *rounds)
{
    const uint32_t streams = (uint32_t)p->blocks / p->run.lanes;
    *blocks = p->blocks;
    *rounds = (p->run.segments + streams - 1) / streams;
}

gyre_status_t coll_cuda_enqueue_plan(plan_t *p, const coll_cuda_op_t *op, const char *name,
                                     cudaStream_t stream)
{
    const uint32_t cut[] = {p->run.segments, p->run.lanes, p->run.depth, p->run.slot, (uint32_t)p->blocks};
    p->run.op = *op;
    p->run.op.rounds = p->run.op.end_round = 1;
    p->run.op.sig ^= (uint32_t)base_hash64(cut, sizeof cut, 7); /* ranks that cut it otherwise are told */
    cudaError_t rc = coll_cuda_launch_schedule(&p->run, p->blocks, stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "launching the %s of %s on %d blocks",
                                                coll_algo_name(p->algo), name, p->blocks);
}

void coll_cuda_plans_free(coll_cuda_t *c)
{
    struct coll_cuda_plans *all = c->plans;
    if (!all)
        return;
    for (plan_t *p = all->list, *next; p; p = next) {
        next = p->next;
        plan_free(p);
    }
    for (slab_t *slab = all->slabs, *next; slab; slab = next) {
        next = slab->next;
        if (!slab->lent && cudaFree(slab->base) != cudaSuccess)
            (void)cudaGetLastError(); /* the device has failed */
        free(slab);
    }
    (void)cudaStreamDestroy(all->stream);
    free(all);
    c->plans = NULL;
}

#endif
