/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/schedule.c: the programs that the kernel of collectives/gpu/plans/schedule.cu reads:
 * the host's schedules, cut for device memory (cut.c). collectives/gpu/call/choose.c decides which calls run
 * them.
 *
 * A call's program is made once per shape. All of it depends only on what all ranks know, so all ranks make
 * the same. Programs lie in memory of this rank's device, in slabs. When there are too many, slabs are used
 * again, except those that a graph may run again.
 *
 * Ranks of one process must not wait for a device at a call, as a kernel there may wait for the next rank's.
 * Their programs all lie in the arena and stay. Shapes for which it has no room are left to shots: the first
 * rank that comes decides for all. */
#include "collectives/gpu/plans/cut.h"

#ifdef GYRE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

enum { SLAB = 1 << 20, PROGRAM_BYTES_MOST = 64 << 20 };

typedef coll_cuda_plan_t plan_t;
typedef coll_cuda_maker_t maker_t;

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

/* ---- memory of programs -------------------------------------------------------------------------------- */

/* The first slabs are of the arena: no memory is taken at a call until they are full, which on some drivers
 * would wait for kernels that wait for this call. */
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
    char *base = c->arena[c->comm->rank] + coll_cuda_plans_at(c->region, c->blocks, c->engine_half);
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

/* As long as the communicator lives: its guard ends what waits for peers. What the program enqueued before
 * may not end. */
static gyre_status_t wait_for_newest(const coll_cuda_t *c)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    const base_time_t from = base_now();
    cudaError_t rc = cudaSuccess;
    while (c->any && (rc = coll_cuda_query(c, c->newest)) == cudaErrorNotReady) {
        const gyre_status_t failed = (gyre_status_t)atomic_load(&c->comm->error);
        if (failed != GYRE_OK)
            return gyre_fail_quiet(failed, "%s", c->comm->error_text);
        if (base_now() - from > c->comm->timeout_ns)
            return gyre_fail(GYRE_ERR_TIMEOUT,
                             "room for another schedule on CUDA device %d: stream %p has not ended what was "
                             "enqueued there within %g s",
                             c->device, (void *)c->on, (double)c->comm->timeout_ns / 1e9);
        nanosleep(&pause, NULL);
    }
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaEventQuery on device %d", c->device);
}

/* Nothing runs any more of what is not in a graph: its slabs are empty. */
static gyre_status_t forget(coll_cuda_t *c)
{
    struct coll_cuda_plans *all = c->plans;
    const gyre_status_t st = wait_for_newest(c);
    if (st != GYRE_OK)
        return st;
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

/* `image` to the device. What is captured elsewhere is not disturbed: the calling thread's mode is relaxed
 * meanwhile. */
static gyre_status_t place(coll_cuda_t *c, const void *image, size_t bytes, int kept, char **there)
{
    slab_t *slab = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t rc = cudaThreadExchangeStreamCaptureMode(&mode);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaThreadExchangeStreamCaptureMode");
    gyre_status_t st = take_slab(c, base_round_up(bytes, 256), kept, &slab);
    if (st == GYRE_OK && slab) {
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

/* ---- the image ----------------------------------------------------------------------------------------- */

typedef struct {
    size_t expected, programs, actions, bytes; /* where each begins; form_of is first */
} layout_t;

static layout_t lay_out(const maker_t *m, int rank, int blocks)
{
    layout_t l = {0};
    size_t actions = 0;
    for (uint32_t f = 0; f < m->forms; f++)
        for (int lane = 0; lane < m->lanes; lane++)
            actions += coll_cuda_lowered_at(m, f, rank, lane)->count;
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
            const coll_cuda_lowered_t *from = coll_cuda_lowered_at(m, f, m->me, lane);
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
                    coll_cuda_lowered_at(m, form_of[k], m->me, b % m->lanes)->received[link];
}

static void describe_lanes(const maker_t *m, coll_cuda_schedule_t *run)
{
    for (int lane = 0; lane < m->lanes; lane++) {
        const coll_cuda_lowered_t *mine = coll_cuda_lowered_at(m, m->forms - 1, m->me, lane);
        coll_cuda_lane_t *to = &run->lane[lane];
        memcpy(to->from, mine->from, sizeof to->from);
        memcpy(to->to, mine->to, sizeof to->to);
        for (uint32_t i = 0; i < mine->nto; i++) {
            const coll_cuda_lowered_t *peer = coll_cuda_lowered_at(m, m->forms - 1, mine->to[i], lane);
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
        decided->root != p->root || decided->fast != p->fast || !decided->blocks_of != !p->blocks_of ||
        (!p->blocks_of && decided->count != p->count))
        return 0;
    return !p->blocks_of || memcmp(decided->blocks_of, p->blocks_of, (size_t)n * sizeof *p->blocks_of) == 0;
}

/* A rank may make a shape's program twice, in place and not, the longer half as long again. Where blocks go
 * is each rank's own affair, so that there may be any number of programs of an all_gather of uneven ones. */
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
    coll_team_lock(team);
    plan_t *decided = team->plans;
    while (decided && !alike(decided, m->p, m->n))
        decided = decided->next;
    if (!decided)
        st = decide(team, m, &decided);
    if (st == GYRE_OK)
        *fits = decided->served;
    coll_team_unlock(team);
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

/* ---- programs ------------------------------------------------------------------------------------------ */

static gyre_status_t make(coll_cuda_t *c, const coll_shape_t *s, plan_t *p)
{
    maker_t m = {
        .c = c, .s = s, .p = p, .longest = coll_cuda_longest(c, s), .n = c->comm->n, .me = c->comm->rank};
    uint32_t depth = 0;
    size_t slot = 0, tmp_at = 0;
    m.lanes = 1;
    m.counts = calloc((size_t)m.n, sizeof *m.counts);
    m.memory = calloc(2 * (size_t)m.n * (size_t)m.n, sizeof *m.memory);
    gyre_status_t st = m.counts && m.memory ? coll_cuda_fit(&m, &depth, &slot, &tmp_at)
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
        p->in_place != s->in_place || p->count != s->count || p->fast != (s->order == GYRE_ORDER_FAST))
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
                  .fast = s->order == GYRE_ORDER_FAST,
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
    p->run.op.sig ^= (uint32_t)base_hash64(cut, sizeof cut, 7); /* ranks that cut it otherwise get an error */
    cudaError_t rc = coll_op_reduces(p->op) && !coll_cuda_can_add(op)
                         ? cudaErrorInvalidValue /* what only moves takes every type */
                         : coll_cuda_launch_schedule(&p->run, p->blocks, stream);
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
