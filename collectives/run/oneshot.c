/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/oneshot.c: small collectives of one host as a single exchange (comm/memory/outbox.h).
 *
 * Every rank posts the part of its input that the others need. Every rank makes its result directly from the
 * posts.
 *
 *     all_reduce, reduce       the whole input is posted; each rank that wants the result adds all inputs
 *     reduce_scatter           likewise, of its own block only
 *     all_gather, gather       own block; copied by the ranks that want it
 *     broadcast, scatter       the root's input; each rank copies its part
 *     all_to_all               the whole input; each rank copies the block meant for it
 *     barrier                  nothing, but each rank waits for the posts of all
 *
 * There is no intermediate result that could be combined in another order. A reduction is one multi-source
 * addition over all ranks in rank order, which is the canonical tree by itself
 * (collectives/kernels/kernels.h). The reuse of the outboxes is the risk: tests/comm/test_exchange.c tests
 * comm/memory/outbox.c for it. */
#include "collectives/run/oneshot.h"

#include <string.h>

#include "base/thread/futex.h"
#include "collectives/run/communicator.h"
#include "collectives/kernels/kernels.h"

enum {
    LOOKS = 4000,           /* about 100 us: then the general way of waiting takes over */
    LOOKS_BEFORE_YIELD = 8, /* where ranks outnumber cores */
    YIELDS = 64
};

/* What every rank can work out: the largest post of the call in elements; SIZE_MAX if not everyone knows. */
static size_t posted_count(const coll_shape_t *s, int n)
{
    size_t sum = 0, most = 0;
    switch (s->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
    case COLL_BROADCAST:
        return s->count;
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_GATHER:
        for (int r = 0; r < n; r++) {
            if (s->counts[r] > COLL_ONESHOT_MOST)
                return SIZE_MAX;
            sum += s->counts[r];
            most = s->counts[r] > most ? s->counts[r] : most;
        }
        return s->op == COLL_ALL_GATHER ? most : sum;
    case COLL_GATHER:
        return s->uniform ? s->count : SIZE_MAX;
    case COLL_SCATTER:
    case COLL_ALL_TO_ALL:
        return s->uniform && s->count <= COLL_ONESHOT_MOST ? s->count * (size_t)n : SIZE_MAX;
    default:
        return 0;
    }
}

int coll_oneshot_serves(const gyre_comm_t *comm, const coll_shape_t *s, size_t esize)
{
    comm_outbox_t *x = comm_group_outbox(comm->group);
    size_t most = posted_count(s, comm->n);
    if (!x || (comm->leaves && coll_op_reduces(s->op)) || most > COLL_ONESHOT_MOST / esize ||
        most * esize > comm_outbox_most(&x->shape))
        return 0;
    return most > 0 || s->op == COLL_BARRIER;
}

/* 1: `rank` posts. */
static int posts(const coll_shape_t *s, int rank)
{
    switch (s->op) {
    case COLL_BROADCAST:
    case COLL_SCATTER:
        return rank == s->root;
    case COLL_REDUCE: /* a scaled input is scaled on its way into the outbox, also the root's own */
        return s->scaled || rank != s->root;
    case COLL_GATHER:
        return rank != s->root;
    default:
        return 1;
    }
}

/* 1: `rank` needs what others post. */
static int needs(const coll_shape_t *s, int rank)
{
    switch (s->op) {
    case COLL_BROADCAST:
    case COLL_SCATTER:
        return rank != s->root;
    case COLL_REDUCE:
    case COLL_GATHER:
        return rank == s->root;
    default:
        return 1;
    }
}

/* 1: no rank both posts and reads. */
static int streams(coll_op_t op)
{
    return op == COLL_BROADCAST || op == COLL_SCATTER || op == COLL_REDUCE || op == COLL_GATHER;
}

void coll_oneshot_prepare(const gyre_comm_t *comm, coll_plan_t *p)
{
    const int rank = comm->rank, n = comm->n;
    const coll_shape_t *s = &p->shape;
    const int from_root = s->op == COLL_BROADCAST || s->op == COLL_SCATTER;
    coll_oneshot_part_t *part = &p->part;
    part->posts = posts(s, rank);
    part->first = from_root ? s->root : 0;
    part->end = !needs(s, rank) ? part->first : from_root ? s->root + 1 : n;
    part->count = coll_op_is_vector(s->op) ? s->count : 0;
    if (s->op == COLL_REDUCE_SCATTER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL)
        for (int r = 0; r < n; r++)
            part->count += s->counts[r];
    comm_group_outbox_populate(comm->group, posted_count(s, n) * p->esize, streams(s->op));
}

/* Elements that `rank` posts. */
static inline size_t post_count(const coll_plan_t *p, int rank)
{
    const coll_shape_t *s = &p->shape;
    return s->op == COLL_ALL_GATHER || s->op == COLL_GATHER ? s->counts[rank] : p->part.count;
}

/* Copies the blocks of IN back to back, or scaled. */
static void write_post(const coll_oneshot_run_t *e, char *to)
{
    const coll_plan_t *p = e->plan;
    const coll_shape_t *s = &p->shape;
    int blocks = s->op == COLL_REDUCE_SCATTER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL;
    int n = blocks ? e->comm->n : 1;
    for (int b = 0; b < n; b++) {
        size_t count = blocks ? s->counts[b] : e->posted;
        const char *from = e->in + (blocks ? s->displs[b] * p->esize : 0);
        if (s->scaled)
            coll_kernel_scale(s->type, to, from, count, e->scale);
        else
            memcpy(to, from, count * p->esize);
        to += count * p->esize;
    }
}

/* dst = all ranks' elements [at, at + count) of what they posted, added up. Own input is taken from where it
 * lies, unless it was scaled on the way. */
static gyre_status_t add_up(coll_oneshot_run_t *e, char *dst, const char *own, size_t at, size_t count)
{
    const coll_plan_t *p = e->plan;
    const void *from[COMM_OUTBOX_RANKS];
    for (int r = 0; r < e->comm->n; r++)
        from[r] = (const char *)e->from[r] + at * p->esize;
    if (!p->shape.scaled)
        from[e->comm->rank] = own;
    gyre_status_t st = coll_plan_reduce(p, dst, from, e->comm->n, count);
    if (st == GYRE_OK)
        coll_plan_finish(p, dst, count);
    return st;
}

static void copy(char *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

static size_t before(const size_t *counts, int rank)
{
    size_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += counts[r];
    return sum;
}

/* Everything that is needed has come: makes the result. Not OK: what the program's own operation returned. */
static gyre_status_t make_result(coll_oneshot_run_t *e)
{
    const coll_plan_t *p = e->plan;
    const coll_shape_t *s = &p->shape;
    int me = e->comm->rank, n = e->comm->n;
    const int blocks = !coll_op_is_vector(s->op) && s->op != COLL_BARRIER;
    size_t es = p->esize, mine = blocks ? s->counts[me] : 0;
    switch (s->op) {
    case COLL_ALL_REDUCE:
        return add_up(e, e->out, e->in, 0, s->count);
    case COLL_REDUCE:
        if (me == s->root)
            return add_up(e, e->out, e->in, 0, s->count);
        break;
    case COLL_REDUCE_SCATTER:
        return add_up(e, e->out, e->in + s->displs[me] * es, before(s->counts, me), mine);
    case COLL_BROADCAST:
        copy(e->out, me == s->root ? e->in : e->from[s->root], s->count * es);
        break;
    case COLL_SCATTER:
        if (me == s->root)
            copy(e->out, e->in + s->displs[me] * es, mine * es);
        else
            copy(e->out, (const char *)e->from[s->root] + (size_t)me * mine * es, mine * es);
        break;
    case COLL_GATHER:
    case COLL_ALL_GATHER:
        for (int r = 0; r < n && needs(s, me); r++)
            copy(e->out + s->displs[r] * es, r == me ? e->in : e->from[r], s->counts[r] * es);
        break;
    case COLL_ALL_TO_ALL:
        for (int r = 0; r < n; r++)
            copy(e->out + s->rdispls[r] * es,
                 r == me ? e->in + s->displs[me] * es : (const char *)e->from[r] + (size_t)me * mine * es,
                 mine * es);
        break;
    default:
        break;
    }
    return GYRE_OK;
}

/* Posts, if this rank has something to say and there is room. */
static int try_post(coll_oneshot_run_t *e)
{
    comm_outbox_t *x = e->x;
    size_t bytes = e->posted * e->plan->esize;
    if (!e->plan->part.posts) {
        e->state = COLL_ONESHOT_WAITS;
        return 1;
    }
    char *to = comm_outbox_reserve(x, bytes);
    if (!to)
        return 0;
    if (bytes)
        write_post(e, to);
    comm_outbox_post(x, bytes, e->tag);
    /* who needs nothing finishes at once, and rings then */
    if (e->next < e->plan->part.end)
        comm_group_ring(e->comm->group);
    /* a reduction of what was scaled reads it here */
    e->from[e->comm->rank] = to;
    e->comm->traffic.bytes_sent += bytes;
    e->comm->traffic.messages_sent++;
    e->state = COLL_ONESHOT_WAITS;
    return 1;
}

/* A rank reads its own input where it lies. */
static inline void skip_own(coll_oneshot_run_t *e)
{
    e->next += e->next == e->comm->rank && e->next < e->plan->part.end;
}

void coll_oneshot_begin(coll_oneshot_run_t *e)
{
    e->x = comm_group_outbox(e->comm->group);
    e->state = COLL_ONESHOT_POSTS;
    e->next = e->plan->part.first;
    skip_own(e);
    e->failed = GYRE_OK;
    e->posted = post_count(e->plan, e->comm->rank);
    /* A post stands for all calls so far: a disagreement between ranks none of which read what the other
     * posted (two roots of a broadcast) is found by the next call in which they do. */
    e->comm->exchange_chain = (e->comm->exchange_chain + e->tag.sig) * 0x9E3779B1u;
    e->tag.sig = e->comm->exchange_chain;
    comm_outbox_begin(e->x, streams(e->plan->shape.op));
    (void)try_post(e); /* no room: coll_oneshot_advance tries again */
}

gyre_status_t coll_oneshot_advance(coll_oneshot_run_t *e)
{
    const coll_plan_t *p = e->plan;
    if (e->state == COLL_ONESHOT_POSTS && !try_post(e))
        return GYRE_IN_PROGRESS;
    while (e->next < p->part.end) {
        const int from = e->next;
        const size_t bytes = post_count(p, from) * p->esize;
        gyre_status_t st = comm_outbox_look(e->x, from, bytes, e->tag, &e->from[from]);
        if (st != GYRE_OK)
            return st;
        e->comm->traffic.bytes_received += bytes;
        e->next++;
        skip_own(e);
    }
    if (e->failed == GYRE_OK) /* what is in place is spoilt else: it is not tried again */
        e->failed = make_result(e);
    if (e->failed != GYRE_OK)
        return coll_kernel_failed(p->shape.redop, e->failed);
    comm_outbox_finish(e->x);
    if (e->x->stream) /* the post above; and who is ahead may sleep until there is room again */
        comm_group_ring(e->comm->group);
    return GYRE_OK;
}

gyre_status_t coll_oneshot_spin(coll_oneshot_run_t *e)
{
    comm_group_t *group = e->comm->group;
    gyre_status_t first = coll_oneshot_advance(e);
    if (first != GYRE_IN_PROGRESS)
        return first;
    int scarce = comm_wait_scarce(group);
    int looks = scarce ? LOOKS_BEFORE_YIELD : LOOKS, most = scarce ? YIELDS : 0;
    for (int yields = 0;; yields++) {
        for (int i = 0; i < looks; i++) {
            gyre_status_t st = coll_oneshot_advance(e);
            if (st != GYRE_IN_PROGRESS)
                return st;
            base_relax();
        }
        if (yields == most || !comm_wait_yield(group, yields == 0))
            return GYRE_IN_PROGRESS;
    }
}

int coll_oneshot_late(const coll_oneshot_run_t *e)
{
    if (e->state == COLL_ONESHOT_POSTS)
        return comm_outbox_laggard(e->x);
    return e->next < e->plan->part.end ? e->next : -1;
}
