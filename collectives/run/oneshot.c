/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/oneshot.c: small collectives of one host as a single exchange (comm/memory/outbox.h).
 *
 * Every rank posts the part of its input that the others need. Every rank makes its result directly from the
 * posts.
 *
 *     all_reduce, reduce       the whole input is posted; each rank that wants the result adds all inputs
 *     reduce_scatter           likewise, of its own block only
 *     all_gather, gather       own block; copied by the ranks that want it
 *     broadcast, scatter       the root's input; each rank copies its part. A long broadcast is an exchange
 *                              for each piece, and the root may be ahead by as many as its outbox has room
 *     all_to_all               the whole input; each rank copies the block meant for it
 *     barrier                  nothing, but each rank waits for the posts of all
 *
 * There is no intermediate result that could be combined in another order. A reduction is one multi-source
 * addition over all ranks in rank order, which is the canonical tree by itself
 * (collectives/kernels/kernels.h). The reuse of the outboxes is the risk: tests/comm/test_exchange.c tests
 * comm/memory/outbox.c for it. */
#include "collectives/run/oneshot.h"

#include <string.h>

#include "base/machine/copy.h"
#include "base/thread/cacheline.h"
#include "base/thread/futex.h"
#include "collectives/run/call.h"
#include "collectives/kernels/kernels.h"

enum {
    LOOKS = 4000,           /* about 100 us: then the general way of waiting takes over */
    LOOKS_BEFORE_YIELD = 8, /* where ranks outnumber cores */
    TAKES_FROM = 1 << 10,   /* bytes; to take fewer lines costs as much as it gains */
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

/* Bytes that a rank posts at most. */
static size_t post_most(const comm_outbox_t *x)
{
    return base_min_size(COLL_ONESHOT_MOST, comm_outbox_most(&x->shape));
}

int coll_oneshot_serves(const gyre_comm_t *comm, const coll_shape_t *s, size_t esize)
{
    comm_outbox_t *x = comm_group_outbox(comm->group);
    size_t most = posted_count(s, comm->n);
    if (!x || (comm->leaves && coll_op_reduces(s->op)))
        return 0;
    if (most > post_most(x) * (s->op == COLL_BROADCAST ? COLL_ONESHOT_PIECES : 1) / esize)
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

/* Bytes that `rank` posts. */
static inline size_t post_bytes(const coll_plan_t *p, const coll_oneshot_part_t *part, int rank)
{
    return part->counts ? part->counts[rank] * p->esize : part->post;
}

static size_t received_bytes(const coll_plan_t *p, const coll_oneshot_part_t *part, int rank)
{
    size_t sum = 0;
    for (int r = part->first; r < part->end; r++)
        sum += r != rank ? post_bytes(p, part, r) : 0;
    return sum;
}

void coll_oneshot_prepare(gyre_comm_t *comm, coll_plan_t *p)
{
    const int rank = comm->rank, n = comm->n;
    const coll_shape_t *s = &p->shape;
    const int from_root = s->op == COLL_BROADCAST || s->op == COLL_SCATTER;
    coll_oneshot_part_t *part = &p->part;
    part->posts = posts(s, rank);
    part->streams = streams(s->op);
    part->first = from_root ? s->root : 0;
    part->end = !needs(s, rank) ? part->first : from_root ? s->root + 1 : n;
    part->first += part->first == rank;
    part->end -= part->end - 1 == rank;
    part->counts = s->op == COLL_ALL_GATHER || s->op == COLL_GATHER ? s->counts : NULL;
    part->post = coll_op_is_vector(s->op) ? s->count * p->esize : 0;
    if (s->op == COLL_REDUCE_SCATTER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL)
        for (int r = 0; r < n; r++)
            part->post += s->counts[r] * p->esize;
    part->sent = post_bytes(p, part, rank);
    comm->oneshot.x = comm_group_outbox(comm->group);
    const size_t piece = post_most(comm->oneshot.x), whole = part->post;
    if (s->op == COLL_BROADCAST && whole > piece) {
        part->more = (uint32_t)((whole - 1) / piece);
        part->post = piece;
        part->sent = part->posts ? piece : 0;
    }
    p->last = *part;
    if (part->more) {
        p->last.post = whole - part->more * piece;
        p->last.sent = part->posts ? p->last.post : 0;
    }
    part->received = received_bytes(p, part, rank);
    p->last.received = received_bytes(p, &p->last, rank);
    comm->oneshot.comm = comm;
    comm->oneshot.takes = n == 2 && coll_cost_takes(&comm->tune->cost);
    comm_group_outbox_populate(comm->group, base_min_size(posted_count(s, n) * p->esize, piece),
                               part->streams);
}

/* ---- what a rank posts --------------------------------------------------------------------------------- */

/* `part` .. 2 * part bytes, which do not overlap, as the first and the last `part` of them. */
static inline void copy_ends(char *to, const char *from, size_t bytes, size_t part)
{
    uint64_t first, last;
    memcpy(&first, from, part);
    memcpy(&last, from + bytes - part, part);
    memcpy(to, &first, part);
    memcpy(to + bytes - part, &last, part);
}

/* They are the same, and nothing is written, or do not overlap. A number or two go without a call. */
static inline void copy(char *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return;
    if (bytes >= 8 && bytes <= 16)
        copy_ends(to, from, bytes, 8);
    else if (bytes >= 4 && bytes < 8)
        copy_ends(to, from, bytes, 4);
    else
        base_copy(to, from, bytes);
}

/* Copies `count` elements of IN, or scales them. */
static char *put(const coll_oneshot_run_t *e, char *to, const char *from, size_t count)
{
    const coll_plan_t *p = e->plan;
    if (p->shape.scaled)
        coll_kernel_scale(p->shape.type, to, from, count, e->scale);
    else
        copy(to, from, count * p->esize);
    return to + count * p->esize;
}

/* Blocks back to back. */
static __attribute__((noinline)) void put_blocks(const coll_oneshot_run_t *e, char *to)
{
    const coll_plan_t *p = e->plan;
    for (int r = 0; r < e->comm->n; r++)
        to = put(e, to, e->in + p->shape.displs[r] * p->esize, p->shape.counts[r]);
}

static inline void write_post(const coll_oneshot_run_t *e, char *to)
{
    const coll_shape_t *s = &e->plan->shape;
    if (s->op == COLL_REDUCE_SCATTER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL)
        put_blocks(e, to);
    else if (s->scaled)
        (void)put(e, to, e->in, s->count);
    else
        copy(to, e->in, e->part->sent);
}

/* Posts, if there is room. */
static int try_post(coll_oneshot_run_t *e)
{
    const coll_oneshot_part_t *part = e->part;
    char *to = comm_outbox_reserve(e->x, part->sent);
    if (!to)
        return 0;
    if (part->sent)
        write_post(e, to);
    comm_outbox_post(e->x, part->sent, e->tag);
    /* who needs nothing finishes at once, and rings then */
    if (e->next < part->end)
        comm_group_ring(e->comm->group);
    if (e->plan->shape.scaled)
        e->from[e->comm->rank] = to;
    e->comm->traffic.bytes_sent += part->sent;
    e->comm->traffic.messages_sent++;
    e->state = COLL_ONESHOT_WAITS;
    return 1;
}

/* ---- what it makes of the posts ------------------------------------------------------------------------ */

/* OUT = all ranks' `from`, of `count` elements each, added up. */
static gyre_status_t add_up(const coll_oneshot_run_t *e, const void *const *from, size_t count)
{
    gyre_status_t st = coll_plan_reduce(e->plan, e->out, from, e->comm->n, count);
    if (st == GYRE_OK)
        coll_plan_finish(e->plan, e->out, count);
    return st;
}

/* Of all posts this rank's block. */
static gyre_status_t add_up_block(const coll_oneshot_run_t *e)
{
    const coll_shape_t *s = &e->plan->shape;
    const size_t es = e->plan->esize;
    const int me = e->comm->rank;
    const void *from[COMM_OUTBOX_RANKS];
    size_t at = 0; /* posts hold the blocks back to back */
    for (int r = 0; r < me; r++)
        at += s->counts[r];
    for (int r = 0; r < e->comm->n; r++)
        from[r] = (const char *)e->from[r] + at * es;
    if (!s->scaled)
        from[me] = e->in + s->displs[me] * es;
    return add_up(e, from, s->counts[me]);
}

/* Of operations on blocks. */
static __attribute__((noinline)) gyre_status_t make_blocks(const coll_oneshot_run_t *e)
{
    const coll_shape_t *s = &e->plan->shape;
    const size_t es = e->plan->esize;
    const int me = e->comm->rank, n = e->comm->n;
    const size_t mine = s->counts[me] * es;
    switch (s->op) {
    case COLL_REDUCE_SCATTER:
        return add_up_block(e);
    case COLL_SCATTER:
        if (me == s->root)
            copy(e->out, e->in + s->displs[me] * es, mine);
        else
            copy(e->out, (const char *)e->from[s->root] + (size_t)me * mine, mine);
        break;
    case COLL_GATHER:
    case COLL_ALL_GATHER:
        for (int r = 0; r < n && needs(s, me); r++)
            copy(e->out + s->displs[r] * es, e->from[r], s->counts[r] * es);
        break;
    case COLL_ALL_TO_ALL:
        for (int r = 0; r < n; r++)
            copy(e->out + s->rdispls[r] * es,
                 r == me ? e->in + s->displs[me] * es : (const char *)e->from[r] + (size_t)me * mine, mine);
        break;
    default:
        break;
    }
    return GYRE_OK;
}

/* Everything that is needed has come. Not OK: what the program's own operation returned. */
static inline gyre_status_t make_result(const coll_oneshot_run_t *e)
{
    const coll_shape_t *s = &e->plan->shape;
    switch (s->op) {
    case COLL_BARRIER:
        return GYRE_OK;
    case COLL_BROADCAST:
        copy(e->out, e->from[s->root], e->part->post);
        return GYRE_OK;
    case COLL_ALL_REDUCE:
        return add_up(e, e->from, s->count);
    case COLL_REDUCE:
        return e->comm->rank == s->root ? add_up(e, e->from, s->count) : GYRE_OK;
    default:
        return make_blocks(e);
    }
}

/* ---- its steps ----------------------------------------------------------------------------------------- */

static inline void begin_part(coll_oneshot_run_t *e, const coll_oneshot_part_t *part)
{
    e->part = part;
    e->state = part->posts ? COLL_ONESHOT_POSTS : COLL_ONESHOT_WAITS;
    e->next = part->first;
    e->from[e->comm->rank] = e->in; /* read where it lies, unless it is scaled on its way into the post */
    comm_outbox_begin(e->x, part->streams);
    if (part->posts)
        (void)try_post(e); /* no room: coll_oneshot_advance tries again */
}

static inline void begin(coll_oneshot_run_t *e)
{
    gyre_comm_t *comm = e->comm;
    /* A post stands for all calls so far: a disagreement between ranks none of which read what the other
     * posted (two roots of a broadcast) is found by the next call in which they do. */
    comm->exchange_chain = (comm->exchange_chain + e->tag.sig) * 0x9E3779B1u;
    e->tag.sig = comm->exchange_chain;
    e->left = e->plan->part.more;
    begin_part(e, &e->plan->part);
}

/* The next piece of a long broadcast. */
static __attribute__((noinline)) void begin_next(coll_oneshot_run_t *e)
{
    e->in += e->part->post;
    e->out += e->part->post;
    e->left--;
    begin_part(e, e->left ? &e->plan->part : &e->plan->last);
}

/* Of two ranks each is the only reader of what the other posts (base/thread/cacheline.h), unless that is
 * scaled: then the other adds it up, too. */
static __attribute__((noinline)) void take_lines(const coll_oneshot_run_t *e)
{
    const int peer = 1 - e->comm->rank;
    base_take((void *)(uintptr_t)e->from[peer], post_bytes(e->plan, e->part, peer));
}

/* All that is needed is there. */
static inline gyre_status_t finish(coll_oneshot_run_t *e)
{
    const gyre_status_t st = e->failed == GYRE_OK ? make_result(e) : e->failed;
    if (st != GYRE_OK) {
        e->failed = st; /* what is in place is spoilt: it is not tried again */
        return coll_kernel_failed(e->plan->shape.redop, st);
    }
    e->comm->traffic.bytes_received += e->part->received;
    if (e->takes && e->part->received > TAKES_FROM && !e->plan->shape.scaled)
        take_lines(e);
    comm_outbox_finish(e->x);
    if (e->x->stream) /* the post above; and who is ahead may sleep until there is room again */
        comm_group_ring(e->comm->group);
    return GYRE_OK;
}

static inline gyre_status_t advance(coll_oneshot_run_t *e)
{
    for (;; begin_next(e)) {
        const coll_oneshot_part_t *part = e->part;
        if (e->state == COLL_ONESHOT_POSTS && !try_post(e))
            return GYRE_IN_PROGRESS;
        while (e->next < part->end) {
            const int from = e->next;
            gyre_status_t st =
                comm_outbox_look(e->x, from, post_bytes(e->plan, part, from), e->tag, &e->from[from]);
            if (st != GYRE_OK)
                return st;
            e->next += 1 + (from + 1 == e->comm->rank);
        }
        const gyre_status_t st = finish(e);
        if (st != GYRE_OK || e->left == 0)
            return st;
    }
}

void coll_oneshot_begin(coll_oneshot_run_t *e)
{
    begin(e);
}

gyre_status_t coll_oneshot_advance(coll_oneshot_run_t *e)
{
    return advance(e);
}

/* Advances again and again, for a short and bounded while. */
static __attribute__((noinline)) gyre_status_t spin(coll_oneshot_run_t *e)
{
    comm_group_t *group = e->comm->group;
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

gyre_status_t coll_call_exchange(const coll_call_t *c, coll_plan_t *plan, comm_call_t *call)
{
    gyre_comm_t *comm = c->comm;
    coll_oneshot_run_t *e = &comm->oneshot;
    comm_recorder_slot_t *recorder = comm->world->recorder;
    call->seq = ++comm->seq;
    e->plan = plan;
    e->in = c->send;
    e->out = c->recv;
    e->scale = c->scale;
    e->tag = (comm_tag_t){.seq = call->seq, .sig = call->sig};
    coll_post_call(comm, call); /* before the data: who finds a mismatch reads it */
    begin(e);
    comm_recorder_begin(recorder, call, 0); /* no time for the clock: coll_call_wait has */
    gyre_status_t st = advance(e);
    if (st == GYRE_IN_PROGRESS)
        st = spin(e);
    if (st != GYRE_OK)
        return coll_call_wait(c, plan, call);
    coll_plan_release(plan);
    comm->operations++;
    if (!comm->p2p_head)
        comm_recorder_end(recorder);
    coll_stop_driving(comm);
    return GYRE_OK;
}

int coll_oneshot_late(const coll_oneshot_run_t *e)
{
    if (e->state == COLL_ONESHOT_POSTS)
        return comm_outbox_laggard(e->x);
    return e->next < e->part->end ? e->next : -1;
}
