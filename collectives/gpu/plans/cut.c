/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/cut.c: where a schedule is cut for a device. The schedules of all ranks for one
 * segment are lowered (lower.c), and played through with as many slots per link as the regions have room for;
 * if they do not fit, or would not come to an end, chunks and segments are made shorter. */
#include "collectives/gpu/plans/cut.h"

#ifdef GYRE_CUDA

#include "base/checked.h"
#include "base/error.h"
#include "collectives/schedules/algorithms.h"

enum {
    CHUNK_MOST = 128 << 10,
    CHUNK_LEAST = 256,
    DEPTH_LEAST = 4,
    DEPTH_GOOD =
        8, /* slots per link, if there is room: a chunk is written while others are on their way and read */
    DEPTH_MOST = 32,
    FORMS_MOST = 80, /* of segments: more than COLL_CUDA_RANKS, as uneven blocks end in different ones */
    SEGMENTS_MOST = 1 << 20 /* of an operation */
};

typedef coll_cuda_maker_t maker_t;

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

coll_cuda_lowered_t *coll_cuda_lowered_at(const maker_t *m, uint32_t form, int rank, int lane)
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
            coll_cuda_lowered_t *to = coll_cuda_lowered_at(m, form, r, lane);
            if (form > 0)
                *to = *coll_cuda_lowered_at(m, form - 1, r, lane); /* its links */
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
            if (!coll_cuda_ends(coll_cuda_lowered_at(m, f, 0, lane), COLL_CUDA_LANES, m->n, depth, m->memory))
                return 0;
    return 1;
}

/* The depth with which the lists fit into regions and come to their end; 0: none. The slots' size and
 * TMP's place with it. */
static uint32_t find_depth(const maker_t *m, size_t *slot, size_t *tmp_at)
{
    size_t message = 0, tmp = 0, links = 0;
    for (uint32_t f = 0; f < m->forms; f++)
        for (int r = 0; r < m->n; r++)
            for (int lane = 0; lane < m->lanes; lane++) {
                const coll_cuda_lowered_t *l = coll_cuda_lowered_at(m, f, r, lane);
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
gyre_status_t coll_cuda_fit(maker_t *m, uint32_t *depth, size_t *slot, size_t *tmp_at)
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

#endif
