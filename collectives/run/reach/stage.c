/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/reach/stage.c: see the header. */
#include "collectives/run/reach/stage.h"

#include <string.h>

#include "base/checked.h"
#include "base/machine/copy.h"
#include "base/settings/settings.h"
#include "collectives/schedules/algorithms.h"
#include "comm/memory/memory.h"
#include "comm/peer_memory.h"

/* Of the other's predicted time: what makes a choice worth while. Sums in one place were never slower than
 * the kernel's way, wherever the processors lay. */
static const double SURELY = 0.75;
/* Second-level caches that the staged copies of all ranks may fill together, before they go to memory. */
enum { CACHES = 8 };

/* 1: the one peer reads each byte once, and adds nothing up. */
static int is_moved(const gyre_comm_t *comm, coll_op_t op)
{
    return comm->n == 2 && !coll_op_is_vector(op) && op != COLL_REDUCE_SCATTER;
}

/* Bytes that this rank gives and gets in a segment; 0 where its buffer is not used. Where an all_to_all gives
 * and gets other blocks, as if it got what it gives. */
static void extents(const coll_plan_t *p, int rank, size_t n, size_t *in, size_t *out)
{
    const coll_shape_t *s = &p->shape;
    const size_t block = s->counts ? s->counts[rank] : 0; /* none: a barrier */
    const size_t vector = base_min_size(s->count, coll_stage_cut(p)->count);
    const size_t one = (coll_op_is_vector(s->op) ? vector : block) * p->esize;
    size_t all = 0;
    for (size_t i = 0; s->counts && i < n; i++)
        all += s->counts[i] * p->esize;
    const int root = s->root == rank;
    switch (s->op) {
    case COLL_REDUCE:
        *in = one, *out = root ? one : 0;
        break;
    case COLL_BROADCAST:
        *in = root ? one : 0, *out = one;
        break;
    case COLL_REDUCE_SCATTER:
        *in = all, *out = one;
        break;
    case COLL_ALL_GATHER:
        *in = one, *out = all;
        break;
    case COLL_GATHER:
        *in = one, *out = root ? all : 0;
        break;
    case COLL_SCATTER:
        *in = root ? all : 0, *out = one;
        break;
    case COLL_ALL_TO_ALL:
        *in = *out = all;
        break;
    default:
        *in = *out = one;
        break;
    }
}

/* What the plan has peers do with this rank's buffers, and this rank with theirs, if nothing is staged. */
typedef struct {
    int in, out; /* the kernel, or a ring, copies from there, or to there */
    double ring; /* bytes that this rank puts into rings, beyond small messages */
    /* and what the kernel copies */
    double sent, got;       /* bytes */
    double sends, receives; /* messages */
} reach_t;

static reach_t reach_of(const gyre_comm_t *comm, const coll_plan_t *p)
{
    const coll_segment_t *g = &p->segments[coll_stage_cut(p)->of[0]];
    const int others = comm->n - 1;
    reach_t reach = {0};
    for (uint32_t i = 0; i < g->schedule.nsteps; i++) {
        const coll_pstep_t *s = &g->steps[i];
        const int every = s->peer == COLL_FROM_ALL;
        const int through_ring = s->bytes <= comm_group_ring_most(comm->group, s->lane);
        if (s->kind == COLL_STEP_JOINT) {
            reach.in = reach.out = 1;
            reach.got += (double)s->bytes * (every ? 2 * others : 1);
            reach.receives += every ? 2 * others : 1;
        } else if (s->kind == COLL_STEP_SEND && s->bytes > COMM_SHM_EAGER_MOST) {
            reach.in |= s->buf == COLL_IN;
            reach.out |= s->buf == COLL_OUT;
            if (through_ring) {
                reach.ring += (double)s->bytes;
                continue;
            }
            reach.sent += (double)s->bytes;
            reach.sends++;
        } else if (s->kind == COLL_STEP_RECV && !through_ring) {
            reach.got += (double)s->bytes;
            reach.receives++;
        }
    }
    return reach;
}

/* ns of a call of the kernel that reads a peer's memory. */
static double call_of(const gyre_comm_t *comm)
{
    const double measured = comm_group_cma_call(comm->group);
    return comm->tune->source == COLL_TUNE_FILE || measured <= 0 ? comm->tune->cost.cma_call : measured;
}

size_t coll_stage_ring_best(const gyre_comm_t *comm)
{
    return coll_cost_ring_best(&comm->tune->cost, call_of(comm));
}

/* 1: each rank reads a part of all inputs, and then writes the same part of all results. */
static int is_joint_sum(const coll_plan_t *p)
{
    return p->shape.op == COLL_ALL_REDUCE && coll_algo_is(p->algo, COLL_REACHES);
}

const coll_cut_t *coll_stage_cut(const coll_plan_t *p)
{
    return p->fine_cut.n > 0 ? &p->fine_cut : &p->cut;
}

size_t coll_stage_segment(const gyre_comm_t *comm, const coll_plan_t *p)
{
    if (comm->n < 2 || !is_joint_sum(p) || p->shape.scaled || comm->leaves)
        return 0;
    const coll_cost_t *cost = &comm->tune->cost;
    const size_t most = CACHES * cost->cache_bytes / (size_t)comm->n;
    if (p->shape.count * p->esize <= most || !coll_cost_stages_sums(cost, comm->n))
        return 0;
    const size_t part = base_min_size(cost->cache_bytes, most) / p->esize & ~(size_t)63;
    const size_t shared =
        16 * (size_t)comm->n * (size_t)comm->n; /* of more each rank adds some (coll_shard) */
    return part > shared ? part : 0;
}

/* 1: each part of an input is sent to one rank, and a rank reads its own apart from that. */
static int is_sent_once(const coll_plan_t *p)
{
    const coll_op_t op = p->shape.op;
    return p->algo == COLL_DIRECT && (op == COLL_ALL_TO_ALL || op == COLL_REDUCE_SCATTER ||
                                      op == COLL_GATHER || op == COLL_SCATTER || op == COLL_REDUCE);
}

/* ns of both copies. An input goes to where a peer has read some time ago (what a ring takes goes to
 * where it has just read), or has written: where results come to lie, or its one reader takes the lines;
 * a result comes from where a peer has just written. Peers fetch the one and write the other in all
 * cases. shared: root and receivers share a broadcast, and the receivers' copies come after the root's.
 * beyond: caches hold neither input nor result, so that the input comes from beyond them, and drives out
 * as much. Where several peers read it, or add it up, that is little compared with the kernel's work. */
static double staged_ns(const coll_cost_t *cost, const coll_plan_t *p, double in, double out, int shared,
                        int beyond)
{
    const int written = p->staging.one_place && is_joint_sum(p);
    const int given = is_sent_once(p) && coll_cost_takes(cost);
    const double store = written ? cost->peer_cache : given ? cost->turn_write : cost->peer_stage;
    return (shared ? out : in) / store + out / cost->peer_cache + (beyond ? 2 * in / cost->peer_cache : 0);
}

void coll_stage_plan(const gyre_comm_t *comm, coll_plan_t *p)
{
    const coll_shape_t *s = &p->shape;
    const coll_cost_t *cost = &comm->tune->cost;
    size_t in, out;
    p->staging = p->staging_cold = (coll_staging_t){0};
    extents(p, comm->rank, (size_t)comm->n, &in, &out);
    p->passes = coll_stage_cut(p)->n * (s->in_place ? base_max_size(in, out) : in + out);
    if (!comm_peer_memory_all(comm->group) || strcmp(base_setting_string(SET_SHM_COPY), "auto") != 0)
        return;
    p->staging.chunks =
        p->segments[0].stages && coll_cost_stages_pay(cost, comm->n) ? s->count * p->esize : 0;
    const int joint = is_joint_sum(p);
    if (p->cut.n != 1 || comm->leaves || p->staging.chunks)
        return;
    if (!coll_op_is_vector(s->op) && (p->given || s->in_place)) /* gaps between blocks, blocks among others */
        return;
    const reach_t reach = reach_of(comm, p);
    p->staging.given = in;
    const int beyond = is_moved(comm, s->op) && (double)(2 * in + out) > (double)cost->cache_bytes;
    in = reach.in && !s->scaled ? in : 0; /* a scaled input lies in a window already */
    /* In place what was staged is a result, too, but the root of a broadcast keeps what it has. Between two
     * that is not counted: the one copy waits for the other (16 KiB: 1.2 us by the kernel, 2.9 staged). */
    const int keeps = s->op == COLL_BROADCAST && comm->n > 2;
    out = reach.out || (in && s->in_place && !keeps) ? out : 0;
    p->staging.one_place = out && (s->in_place || (in && joint));
    const size_t places = p->staging.one_place ? base_max_size(in, out) : in + out;
    if ((double)places * comm->n > CACHES * (double)cost->cache_bytes)
        return;
    const double volume = reach.got > reach.sent ? reach.got : reach.sent;
    const double calls = (reach.receives > reach.sends ? reach.receives : reach.sends) * call_of(comm);
    const double ring = reach.ring / coll_cost_ring_write(cost), sure = joint ? 1 : SURELY;
    const int shared = s->op == COLL_BROADCAST && reach.in && reach.out;
    p->staging_cold = p->staging;
    const double staged = staged_ns(cost, p, (double)in, (double)out, shared, beyond);
    if (staged < sure * (calls + volume / cost->cma_rate + ring))
        p->staging.in = in, p->staging.out = out, p->staging.ns = staged;
    /* This rank brings to the cache what else the kernel or a ring would, its own part apart from that. A
     * copy that the cache does not hold is as `beyond`. */
    const double copied = (double)(in + out), fetched = volume + reach.ring;
    const double moved = copied < fetched ? copied : fetched;
    const int too_long = is_moved(comm, s->op) && in > cost->cache_bytes;
    const double cold =
        staged_ns(cost, p, (double)in, (double)out, shared, too_long) + moved / cost->copy_pages;
    if (cold < sure * (calls + volume / cost->cma_memory + ring + reach.ring / cost->copy_pages))
        p->staging_cold.in = in, p->staging_cold.out = out, p->staging_cold.ns = cold;
}

/* Notes a call with this input, `moved` being that of all calls before. 1: an earlier one had it, and what
 * passed since through calls fits a second-level cache. */
static int see_input(coll_recent_t *recent, const void *in, const coll_plan_t *p, size_t cache)
{
    const size_t bytes = p->staging.given;
    uint32_t i = recent->last;
    if (recent->at[i] != in || recent->bytes[i] != bytes)
        for (i = 0; i < COLL_RECENT && (recent->at[i] != in || recent->bytes[i] != bytes); i++) {
        }
    const int known = i < COLL_RECENT;
    if (!known) {
        i = recent->next;
        recent->next = (i + 1) % COLL_RECENT;
    }
    const int fits = known && recent->moved - recent->when[i] <= cache;
    recent->at[i] = in;
    recent->bytes[i] = bytes;
    recent->when[i] = recent->moved + p->passes;
    recent->last = i;
    recent->cold += !fits && recent->cold < COLL_RECENT;
    return fits;
}

static int stages(const coll_staging_t *s)
{
    return s->in > 0 || s->out > 0;
}

/* 1: what the plan stages needs no new memory. */
static int has_room(const gyre_comm_t *comm, const coll_plan_t *p)
{
    const coll_staging_t *s = stages(&p->staging) ? &p->staging : &p->staging_cold;
    const size_t in = base_round_up(s->in, 64), out = base_round_up(s->out, 64);
    const size_t bytes = s->one_place ? base_max_size(in, out) : in + out;
    const size_t room = base_max_size(coll_cost_stage_room(&comm->tune->cost), bytes);
    return base_round_up(p->tmp_bytes, 64) + room <= comm->scratch.bytes;
}

/* A new window costs as much as many calls. So without the room, cold inputs are staged only by a
 * communicator that has had some. Where warm ones alone are, the first call stages all the same: it has the
 * room made, so that the next one allocates nothing. */
const coll_staging_t *coll_stage_choose(const gyre_request_t *r)
{
    const coll_plan_t *p = r->plan;
    coll_recent_t *recent = &r->comm->recent;
    int warm = stages(&p->staging) == stages(&p->staging_cold);
    if (!warm) {
        const int early = stages(&p->staging) || recent->cold < COLL_RECENT;
        warm = see_input(recent, r->run.in, p, r->comm->tune->cost.cache_bytes) ||
               (early && !has_room(r->comm, p));
    }
    recent->moved += p->passes;
    return warm ? &p->staging : &p->staging_cold;
}

static int in_window(const void *buffer, size_t bytes)
{
    uint64_t window;
    size_t offset;
    return comm_mem_find(buffer, bytes, &window, &offset);
}

int coll_stage_chunks(const gyre_request_t *r)
{
    const size_t bytes = r->plan->staging.chunks;
    return bytes > 0 && !in_window(r->run.in, bytes);
}

/* Where the running segment begins in a vector, and its bytes; of one segment alone, all that is staged. */
static size_t segment_begin(const gyre_request_t *r)
{
    return r->run.segment * r->run.cut->count * r->plan->esize;
}

static size_t segment_bytes(const gyre_request_t *r, size_t all)
{
    const coll_plan_t *p = r->plan;
    const size_t rest = r->run.cut->n > 1 ? p->shape.count * p->esize - segment_begin(r) : all;
    return base_min_size(all, rest);
}

coll_staging_t coll_stage_needs(const gyre_request_t *r)
{
    coll_staging_t needs = *r->run.staging;
    const size_t begin = segment_begin(r);
    needs.in = segment_bytes(r, needs.in);
    needs.out = segment_bytes(r, needs.out);
    needs.given = segment_bytes(r, needs.given);
    if (needs.out && in_window(r->run.out + begin, needs.out))
        needs.out = 0;
    if (needs.in && in_window(r->run.in + begin, needs.in))
        needs.in = 0;
    needs.one_place &= r->plan->shape.in_place || (needs.in && needs.out);
    if (needs.one_place)
        needs.in = 0;
    return needs;
}

void coll_stage_begin(gyre_request_t *r, const coll_staging_t *needs, char *at)
{
    char *to = NULL;
    if (needs->out) {
        r->run.staged_out = at;
        to = needs->one_place ? at : NULL;
        at += base_round_up(needs->out, 64);
    }
    if (needs->in)
        to = at;
    if (!to)
        return;
    if (needs->given)
        base_copy(to, r->run.in + segment_begin(r), needs->given);
    r->run.staged_in = to;
}

int coll_stage_gives(const gyre_request_t *r)
{
    return r->run.staged_in && is_sent_once(r->plan);
}

void coll_stage_end(gyre_request_t *r)
{
    if (r->run.staged_out)
        base_copy(r->run.out + segment_begin(r), r->run.staged_out, segment_bytes(r, r->run.staging->out));
    r->run.staged_in = r->run.staged_out = NULL;
}
