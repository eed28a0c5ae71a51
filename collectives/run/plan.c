/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/plan.c: from a call's shape to a plan, and the cache of plans.
 *
 * Long operations are cut into segments (segments.c), which run one after the other with shifted base
 * pointers. */
#include "collectives/run/plan.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "collectives/run/oneshot.h"
#include "collectives/schedules/algorithms.h"
#include "collectives/schedules/generator.h"
#include "collectives/run/reach/joint.h"
#include "collectives/run/reach/stage.h"
#include "comm/peer_memory.h"

static uint64_t shape_key(const coll_shape_t *s, int n)
{
    uint64_t head[9] = {(uint64_t)s->op,       (uint64_t)s->type,    (uint64_t)s->redop,
                        (uint64_t)s->order,    (uint64_t)s->scaled,  (uint64_t)s->root,
                        (uint64_t)s->in_place, (uint64_t)s->uniform, s->count};
    uint64_t key = base_hash64(head, sizeof head, 1);
    const size_t *arrays[4] = {s->counts, s->displs, s->rcounts, s->rdispls};
    for (int i = 0; i < 4; i++)
        if (arrays[i])
            key = base_hash64(arrays[i], (size_t)n * sizeof(size_t), key + (uint64_t)i);
    return key;
}

/* A number of the program's own may have come to stand for another type since. */
static inline int same_size(const coll_plan_t *p)
{
    return p->shape.type < GYRE_TYPE_USER || p->esize == gyre_type_size(p->shape.type);
}

static int same_arrays(const coll_plan_t *p, const coll_shape_t *b, int n)
{
    const coll_shape_t *a = &p->shape;
    const size_t *mine[4] = {a->counts, a->displs, a->rcounts, a->rdispls};
    const size_t *theirs[4] = {b->counts, b->displs, b->rcounts, b->rdispls};
    for (unsigned i = 0; i < 4; i++) {
        if ((p->given >> i & 1) != (theirs[i] != NULL))
            return 0;
        if (theirs[i] && memcmp(mine[i], theirs[i], (size_t)n * sizeof(size_t)))
            return 0;
    }
    return 1;
}

static int same_shape(const coll_plan_t *p, const coll_shape_t *b, int n)
{
    return coll_shape_alike(&p->shape, b) && same_size(p) && same_arrays(p, b, n);
}

/* What ranks must agree on. Counts that a rank need not know (gather, scatter, all_to_all of uneven sizes)
 * stay out. */
static uint32_t shape_sig(const coll_shape_t *s, const coll_plan_t *p, int n)
{
    const size_t own_bytes = s->type < GYRE_TYPE_USER ? 0 : p->esize;
    uint64_t head[10] = {(uint64_t)s->op,
                         (uint64_t)s->type | (uint64_t)own_bytes << 8,
                         (uint64_t)s->redop,
                         (uint64_t)s->root,
                         (uint64_t)p->algo,
                         (uint64_t)p->one_shot,
                         p->chunk,
                         (uint64_t)p->oneshot << 8 | (uint64_t)s->order,
                         (uint64_t)s->scaled,
                         p->cut.n > 1 ? p->cut.count : 0};
    uint64_t h = base_hash64(head, sizeof head, 2);
    if (coll_op_is_vector(s->op))
        h = base_hash64(&s->count, sizeof s->count, h);
    else if (s->op == COLL_REDUCE_SCATTER || s->op == COLL_ALL_GATHER)
        h = base_hash64(s->counts, (size_t)n * sizeof(size_t), h);
    else if (s->uniform && n > 0 && s->counts)
        h = base_hash64(&s->counts[0], sizeof(size_t), h);
    return (uint32_t)(h ^ (h >> 32));
}

static size_t *copy_array(base_arena_t *arena, const size_t *a, int n, int *failed)
{
    if (!a)
        return NULL;
    size_t *c = base_arena_alloc(arena, (size_t)n, sizeof *c);
    if (c)
        memcpy(c, a, (size_t)n * sizeof *c);
    else
        *failed = 1;
    return c;
}

/* Blocks back to back. */
static size_t *packed(base_arena_t *arena, const size_t *counts, int n, int *failed)
{
    size_t *d = base_arena_alloc(arena, (size_t)n, sizeof *d);
    for (int r = 1; d && r < n; r++)
        d[r] = d[r - 1] + counts[r - 1];
    *failed = *failed || !d;
    return d;
}

/* Spells out the blocks of a call that has any: equal counts, packed displs. */
static gyre_status_t own_blocks(coll_plan_t *p, const coll_shape_t *shape, int n)
{
    const size_t *given[4] = {shape->counts, shape->displs, shape->rcounts, shape->rdispls};
    for (unsigned i = 0; i < 4; i++)
        p->given |= (given[i] != NULL ? 1u : 0u) << i;
    if (coll_op_is_vector(shape->op) || shape->op == COLL_BARRIER)
        return GYRE_OK;
    int failed = 0;
    size_t *counts = shape->uniform ? base_arena_alloc(&p->arena, (size_t)n, sizeof *counts)
                                    : copy_array(&p->arena, shape->counts, n, &failed);
    if (!counts)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %d ranks", n);
    for (int r = 0; shape->uniform && r < n; r++)
        counts[r] = shape->count;
    p->shape.counts = counts;
    p->shape.displs = shape->displs ? copy_array(&p->arena, shape->displs, n, &failed)
                                    : packed(&p->arena, counts, n, &failed);
    if (shape->op == COLL_ALL_TO_ALL) {
        p->shape.rcounts = shape->uniform ? counts : copy_array(&p->arena, shape->rcounts, n, &failed);
        if (!p->shape.rcounts)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %d ranks", n);
        p->shape.rdispls = shape->rdispls ? copy_array(&p->arena, shape->rdispls, n, &failed)
                                          : packed(&p->arena, p->shape.rcounts, n, &failed);
    }
    if (failed)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %d ranks", n);
    return GYRE_OK;
}

/* Elements from one leaf in a rank's input to the next. */
static size_t leaf_stride(const gyre_comm_t *comm, const coll_shape_t *s)
{
    size_t sum = 0;
    if (coll_op_is_vector(s->op))
        return s->count;
    for (int r = 0; r < comm->n; r++)
        sum += s->uniform ? s->count : s->counts[r];
    return sum;
}

coll_args_t coll_call_args(const gyre_comm_t *comm, const coll_shape_t *s)
{
    const int reduces = coll_op_reduces(s->op);
    return (coll_args_t){.op = s->op,
                         .n = comm->n,
                         .rank = comm->rank,
                         .root = s->root < 0 ? 0 : s->root,
                         .count = s->count,
                         .counts = s->counts,
                         .displs = s->displs,
                         .rcounts = s->rcounts,
                         .rdispls = s->rdispls,
                         .uniform = s->uniform,
                         .in_place = s->in_place,
                         .fast_order = s->order == GYRE_ORDER_FAST,
                         .exact = coll_shape_is_exact(s),
                         .leaves = reduces ? comm->leaves : NULL,
                         .stride = reduces && comm->leaves ? leaf_stride(comm, s) : 0,
                         .chunk = 1,
                         .host = comm->part_of};
}

coll_args_t coll_plan_args(const gyre_comm_t *comm, const coll_shape_t *s)
{
    coll_args_t args = coll_call_args(comm, s);
    args.place = coll_joint_place(comm, s);
    args.order = comm->order;
    return args;
}

static const char *algorithm_of(const coll_options_t *options)
{
    return *options->algorithm ? options->algorithm : base_setting_string(SET_ALGO);
}

const char *coll_comm_algorithm(const gyre_comm_t *comm)
{
    return algorithm_of(&comm->options);
}

static coll_facts_t facts_with(const gyre_comm_t *comm, const coll_options_t *options)
{
    coll_facts_t facts = {.hosts = comm->hosts,
                          .parts = comm->parts,
                          .reach = comm_peer_memory_all(comm->group),
                          .chunk = options->chunk ? options->chunk : (size_t)base_setting_int(SET_CHUNK),
                          .algo = algorithm_of(options),
                          .tune = comm->tune,
                          .pin = comm->pin.op ? &comm->pin : NULL};
    if (comm->tune)
        facts.cost = comm->tune->cost;
    else
        coll_cost_builtin(&facts.cost);
    facts.cost.cores = comm_group_cores(comm->group); /* a file's are those of the job that measured */
    return facts;
}

coll_facts_t coll_comm_facts(const gyre_comm_t *comm)
{
    return facts_with(comm, &comm->options);
}

/* Arguments of the segment that starts `from` elements into every block and takes at most `len` of each. */
static gyre_status_t segment_args(const gyre_comm_t *comm, const coll_plan_t *p, size_t from, size_t len,
                                  base_arena_t *arena, coll_args_t *out)
{
    const coll_shape_t *s = &p->shape;
    coll_args_t a = coll_plan_args(comm, s);
    a.chunk = p->chunk;
    a.one_shot = p->one_shot;
    if (coll_op_is_vector(s->op)) {
        a.count = base_min_size(len, s->count - from);
    } else if (p->cut.n > 1 || s->scaled) {
        int failed = 0;
        size_t *c = copy_array(arena, s->counts, comm->n, &failed);
        size_t *rc = copy_array(arena, s->rcounts, comm->n, &failed);
        size_t *d = copy_array(arena, s->displs, comm->n, &failed);
        if (failed)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %d ranks", comm->n);
        for (int r = 0; r < comm->n; r++) {
            c[r] = c[r] > from ? base_min_size(len, c[r] - from) : 0;
            if (rc)
                rc[r] = rc[r] > from ? base_min_size(len, rc[r] - from) : 0;
            if (s->scaled && s->op == COLL_REDUCE_SCATTER) /* IN is the packed scaled copy */
                d[r] = r ? d[r - 1] + c[r - 1] : 0;
        }
        a.counts = c;
        a.rcounts = rc;
        a.displs = d;
        if (s->op == COLL_REDUCE_SCATTER || s->op == COLL_ALL_GATHER)
            a.count = c[comm->rank];
    }
    if (s->scaled)
        a.in_place = 0;
    *out = a;
    return GYRE_OK;
}

static gyre_status_t build_segment(const gyre_comm_t *comm, coll_plan_t *p, size_t from, size_t len,
                                   coll_segment_t *out)
{
    base_arena_t scratch = {0};
    coll_args_t args;
    coll_schedule_t schedule = {0};
    gyre_status_t st = segment_args(comm, p, from, len, &scratch, &args);
    if (st == GYRE_OK)
        st = coll_schedule_build(p->algo, &args, &schedule);
    if (st == GYRE_ERR_UNSUPPORTED)
        st = gyre_fail(st, "%s has no %s for this call", coll_op_name(p->shape.op), coll_algo_name(p->algo));
    if (st == GYRE_OK)
        st = coll_segment_compile(&schedule, p->esize, out);
    if (st == GYRE_OK && coll_algo_is(p->algo, COLL_REACHES) && comm->n > 1) {
        out->joint_room = coll_joint_room(&args) * p->esize;
        st = coll_joint_prepare(comm, args.count * p->esize, out);
        if (st != GYRE_OK)
            coll_segment_free(out);
    }
    if (st == GYRE_OK && p->shape.scaled) {
        out->scaled_count = args.count;
        if (!coll_op_is_vector(p->shape.op)) {
            int failed = 0;
            out->counts = copy_array(&out->arena, args.counts, comm->n, &failed);
            out->scaled_count = 0;
            for (int r = 0; r < comm->n; r++)
                out->scaled_count += args.counts[r];
            if (failed) {
                coll_segment_free(out);
                st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %d ranks", comm->n);
            }
        }
    }
    coll_schedule_free(&schedule);
    base_arena_free(&scratch);
    return st;
}

/* Two segments with equal block sizes share one schedule: only a change needs a new one. */
static int segment_like_previous(const coll_plan_t *p, const coll_cut_t *cut, int n, uint32_t k)
{
    size_t from = k * cut->count, len = cut->count;
    const coll_shape_t *s = &p->shape;
    if (k == 0)
        return 0;
    if (coll_op_is_vector(s->op))
        return s->count - from >= len;
    for (int r = 0; r < n; r++)
        if (s->counts[r] > from - len && s->counts[r] < from + len) /* cut short here or in the one before */
            return 0;
    return 1;
}

static gyre_status_t build_cut(const gyre_comm_t *comm, coll_plan_t *p, coll_cut_t *cut)
{
    cut->of = base_arena_alloc(&p->arena, cut->n, sizeof *cut->of);
    if (!cut->of)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %u segments", cut->n);
    for (uint32_t k = 0; k < cut->n; k++) {
        if (!segment_like_previous(p, cut, comm->n, k)) {
            coll_segment_t *g = &p->segments[p->ndistinct];
            gyre_status_t st = build_segment(comm, p, k * cut->count, cut->count, g);
            if (st != GYRE_OK)
                return st;
            p->ndistinct++;
            p->tmp_bytes = base_max_size(p->tmp_bytes, g->tmp_bytes);
            p->scaled_bytes = base_max_size(p->scaled_bytes, base_round_up(g->scaled_count * p->esize, 64));
        }
        cut->of[k] = p->ndistinct - 1;
    }
    return GYRE_OK;
}

static gyre_status_t build_segments(const gyre_comm_t *comm, coll_plan_t *p)
{
    coll_size_segments(comm, p);
    const uint32_t most = p->cut.n + p->fine_cut.n;
    p->segments = base_arena_alloc(&p->arena, most, sizeof *p->segments);
    if (!p->segments)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %u segments", most);
    gyre_status_t st = build_cut(comm, p, &p->cut);
    if (st == GYRE_OK && p->fine_cut.n > 0)
        st = build_cut(comm, p, &p->fine_cut);
    if (st != GYRE_OK)
        return st;
    p->tmp_bytes += p->scaled_bytes;
    coll_stage_plan(comm, p);
    return GYRE_OK;
}

void coll_plan_free(coll_plan_t *p)
{
    for (uint32_t i = 0; i < p->ndistinct; i++)
        coll_segment_free(&p->segments[i]);
    base_arena_free(&p->arena);
    free(p);
}

static comm_call_t as_others_see_it(const gyre_comm_t *comm, const coll_plan_t *p)
{
    const coll_shape_t *s = &p->shape;
    return (comm_call_t){.op = (uint8_t)s->op,
                         .type = (uint8_t)s->type,
                         .redop = (uint8_t)s->redop,
                         .flags =
                             (uint8_t)((s->scaled ? COMM_CALL_SCALED : 0) | (p->given ? COMM_CALL_V : 0)),
                         .root = s->root,
                         .sig = shape_sig(s, p, comm->n),
                         .algo = (uint32_t)p->algo,
                         .comm = (uint32_t)comm->id};
}

static gyre_status_t plan_build(gyre_comm_t *comm, const coll_options_t *options, const coll_shape_t *shape,
                                uint64_t key, coll_plan_t **out)
{
    coll_plan_t *p = calloc(1, sizeof *p);
    if (!p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan");
    p->key = key;
    p->shape = *shape;
    p->exact = coll_shape_is_exact(shape);
    p->inputs = comm->leaves ? comm->leaves[comm->n] : comm->n;
    p->esize = shape->op == COLL_BARRIER ? 1 : gyre_type_size(shape->type);
    gyre_status_t st = own_blocks(p, shape, comm->n);
    coll_choice_t choice = {0};
    if (st == GYRE_OK) {
        coll_args_t args = coll_plan_args(comm, &p->shape);
        if (!coll_op_is_vector(shape->op)) /* what the choice may look at must be the same on all ranks */
            args.count = coll_longest_block(&p->shape, comm->n);
        coll_facts_t facts = facts_with(comm, options);
        if (shape->inside)
            facts.algo = "";
        st = coll_select(&facts, &args, p->esize, coll_oneshot_serves(comm, &p->shape, p->esize), &choice);
    }
    if (st == GYRE_OK) {
        p->algo = choice.algo;
        p->one_shot = choice.one_shot;
        p->chunk = choice.chunk;
        p->choice = choice;
        p->oneshot = choice.oneshot;
        if (p->oneshot)
            coll_oneshot_prepare(comm, p);
        else
            st = build_segments(comm, p);
        p->call = as_others_see_it(comm, p);
    }
    if (st != GYRE_OK) {
        coll_plan_free(p);
        return st;
    }
    *out = p;
    return GYRE_OK;
}

static size_t plan_bytes(const coll_plan_t *p)
{
    size_t sum = sizeof *p + p->arena.bytes;
    for (uint32_t i = 0; i < p->ndistinct; i++)
        sum += p->segments[i].arena.bytes + p->segments[i].schedule.arena.bytes;
    return sum;
}

/* Drops the least recently used plan that no request holds; 0 if there is none. */
static int cache_evict(coll_plan_cache_t *cache)
{
    coll_plan_t **victim = NULL;
    for (int c = 0; c < COLL_PLAN_CHAINS; c++)
        for (coll_plan_t **at = &cache->chain[c]; *at; at = &(*at)->next)
            if (!(*at)->busy && (!victim || (*at)->used < (*victim)->used))
                victim = at;
    if (!victim)
        return 0;
    coll_plan_t *p = *victim;
    *victim = p->next;
    if (cache->last[p->shape.op] == p)
        cache->last[p->shape.op] = NULL;
    cache->count--;
    cache->bytes -= p->bytes;
    coll_plan_free(p);
    return 1;
}

gyre_status_t coll_plan_make(gyre_comm_t *comm, const coll_options_t *options, const coll_shape_t *shape,
                             coll_plan_t **out)
{
    gyre_status_t st = plan_build(comm, options, shape, 0, out);
    if (st != GYRE_OK)
        return st;
    (*out)->bytes = plan_bytes(*out);
    comm->plans.built++;
    return GYRE_OK;
}

gyre_status_t coll_plan_find(gyre_comm_t *comm, const coll_shape_t *shape, coll_plan_t **out)
{
    coll_plan_cache_t *cache = &comm->plans;
    coll_plan_t *last = cache->last[shape->op];
    if (last && same_shape(last, shape, comm->n)) {
        last->used = ++cache->uses;
        *out = last;
        return GYRE_OK;
    }
    uint64_t key = shape_key(shape, comm->n);
    coll_plan_t **chain = &cache->chain[key % COLL_PLAN_CHAINS];
    cache->uses++;
    for (coll_plan_t *p = *chain; p; p = p->next)
        if (p->key == key && same_shape(p, shape, comm->n)) {
            p->used = cache->uses;
            *out = cache->last[shape->op] = p;
            return GYRE_OK;
        }
    coll_plan_t *p = NULL;
    gyre_status_t st = plan_build(comm, &comm->options, shape, key, &p);
    if (st != GYRE_OK)
        return st;
    p->bytes = plan_bytes(p);
    while ((cache->count >= COLL_PLANS_MOST || cache->bytes + p->bytes > COLL_PLAN_BYTES_MOST) &&
           cache_evict(cache))
        ;
    p->used = cache->uses;
    p->next = *chain;
    *chain = p;
    cache->count++;
    cache->bytes += p->bytes;
    cache->built++;
    *out = cache->last[shape->op] = p;
    return GYRE_OK;
}

void coll_plan_cache_free(coll_plan_cache_t *cache)
{
    for (int c = 0; c < COLL_PLAN_CHAINS; c++)
        while (cache->chain[c]) {
            coll_plan_t *p = cache->chain[c];
            cache->chain[c] = p->next;
            coll_plan_free(p);
        }
    *cache = (coll_plan_cache_t){0};
}
