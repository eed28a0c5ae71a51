/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/reach/joint.c: see the header.
 *
 * Memory in windows is read and written where it lies. Other memory is fetched into TMP in pieces that stay
 * in the second-level cache, and results are written to it from there (process_vm_readv,
 * process_vm_writev). */
#include "collectives/run/reach/joint.h"

#include <string.h>

#include "base/checked.h"
#include "base/machine/copy.h"
#include "base/error.h"
#include "collectives/kernels/kernels.h"
#include "comm/memory/memory.h"
#include "comm/peer_memory.h"

enum {
    AT_ONCE = 1 << 20, /* bytes after which other work gets a turn */
    HOT = 4096         /* a result goes to all destinations while it is in the first-level cache */
};

_Static_assert((int)HOT >= (int)GYRE_TYPE_BYTES_MOST, "a piece has one element at least");

/* What travels. */
typedef struct {
    comm_place_t in, out;
    uint64_t unmapped; /* 1: the program's buffers do not lie in windows; for sums with a fine_cut */
} announcement_t;

/* A peer's buffers, once its announcement was read. */
struct coll_joint_peer {
    comm_peer_memory_t *memory;
    char *in, *out; /* NULL: not mapped here */
    announcement_t said;
    int known;
};

size_t coll_joint_place(const gyre_comm_t *comm, const coll_shape_t *shape)
{
    if ((shape->op != COLL_ALL_REDUCE && shape->op != COLL_BROADCAST) || !comm_peer_memory_all(comm->group))
        return 0;
    const size_t esize = gyre_type_size(shape->type);
    return (sizeof(announcement_t) + esize - 1) / esize;
}

gyre_status_t coll_joint_prepare(const gyre_comm_t *comm, size_t bytes, coll_segment_t *segment)
{
    segment->joint = base_arena_alloc(&segment->arena, (size_t)comm->n, sizeof *segment->joint);
    segment->joint_bytes = bytes;
    return segment->joint ? GYRE_OK
                          : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %d ranks", comm->n);
}

void coll_joint_announce(const gyre_request_t *r, coll_segment_t *segment, void *tmp, const void *in,
                         const void *out)
{
    announcement_t mine = {.in = comm_place_of(in, segment->joint_bytes),
                           .out = comm_place_of(out, segment->joint_bytes)};
    if (r->plan->fine_cut.n > 0)
        mine.unmapped = r->run.staged_in || r->run.staged_out || mine.in.window == 0 || mine.out.window == 0;
    memcpy(tmp, &mine, sizeof mine);
    segment->joint_window = mine.out.window != 0;
    segment->joint_unmapped = (int)mine.unmapped;
    memset(segment->joint, 0, (size_t)r->comm->n * sizeof *segment->joint);
}

/* Where the announcement of `peer` was received: as the generator placed them. */
static const char *announcement_in(const gyre_request_t *r, const char *tmp, int peer)
{
    size_t esize = r->plan->esize, places = (sizeof(announcement_t) + esize - 1) / esize,
           stride = base_round_up(places, 64) * esize;
    return tmp + (size_t)(peer < r->comm->rank ? peer + 1 : peer) * stride;
}

static gyre_status_t map(const coll_segment_t *g, int peer, const comm_place_t *place, char **at)
{
    void *found = NULL;
    gyre_status_t status = comm_peer_memory_map(g->joint[peer].memory, place, g->joint_bytes, &found);
    *at = found;
    return status == GYRE_ERR_UNSUPPORTED ? GYRE_OK : status;
}

static gyre_status_t know(gyre_request_t *r, coll_segment_t *g, int peer, const char *tmp)
{
    struct coll_joint_peer *p = &g->joint[peer];
    gyre_status_t status = GYRE_OK;
    if (p->known)
        return GYRE_OK;
    p->memory = comm_peer_memory(r->comm->group, peer);
    if (!p->memory)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to remember windows of rank %d", peer);
    memcpy(&p->said, announcement_in(r, tmp, peer), sizeof p->said);
    if (p->said.in.address)
        status = map(g, peer, &p->said.in, &p->in);
    if (status == GYRE_OK && p->said.out.address)
        status = map(g, peer, &p->said.out, &p->out);
    p->known = status == GYRE_OK;
    return status;
}

/* ---- reductions ---- */

/* A piece [at, at + bytes) of the shard: what its sources are, where they must be fetched first. */
static gyre_status_t gather_sources(gyre_request_t *r, coll_segment_t *g, size_t at, size_t bytes, char *room,
                                    size_t stride, const char *in, const void **from)
{
    const int n = r->comm->n, rank = r->comm->rank;
    from[rank] = in + at;
    for (int i = 1; i < n; i++) {
        int peer = rank + i < n ? rank + i : rank + i - n;
        const struct coll_joint_peer *p = &g->joint[peer];
        if (p->in) {
            from[peer] = p->in + at;
            continue;
        }
        char *to = room + (size_t)(i - 1) * stride;
        gyre_status_t status = comm_peer_memory_read(p->memory, &p->said.in, at, to, bytes);
        if (status != GYRE_OK)
            return status;
        from[peer] = to;
    }
    return GYRE_OK;
}

/* Reduces into OUT here and in all mapped OUTs. */
static gyre_status_t reduce_piece(gyre_request_t *r, coll_segment_t *g, size_t at, size_t bytes,
                                  const void *const *from, char *out)
{
    const coll_plan_t *p = r->plan;
    const int n = r->comm->n, rank = r->comm->rank;
    const void *now[COLL_MAX_SOURCES];
    const size_t hot = HOT / p->esize * p->esize;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = base_min_size(bytes - done, hot);
        char *to = out + at + done;
        for (int k = 0; k < n; k++)
            now[k] = (const char *)from[k] + done;
        gyre_status_t st = coll_plan_reduce(p, to, now, n, part / p->esize);
        if (st != GYRE_OK)
            return coll_kernel_failed(p->shape.redop, st);
        coll_plan_finish(p, to, part / p->esize);
        for (int i = 1; i < n; i++) {
            int peer = rank + i < n ? rank + i : rank + i - n;
            if (g->joint[peer].out)
                base_copy(g->joint[peer].out + at + done, to, part);
        }
    }
    return GYRE_OK;
}

static gyre_status_t write_piece(gyre_request_t *r, coll_segment_t *g, size_t at, size_t bytes,
                                 const char *out)
{
    const int n = r->comm->n, rank = r->comm->rank;
    for (int i = 1; i < n; i++) {
        int peer = rank + i < n ? rank + i : rank + i - n;
        const struct coll_joint_peer *p = &g->joint[peer];
        if (p->out)
            continue;
        gyre_status_t status = comm_peer_memory_write(p->memory, &p->said.out, at, out + at, bytes);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

enum { PIECE_NEW = 0, PIECE_ADDED = 1 }; /* s->msg.phase: in place, a piece must not be added twice */

static gyre_status_t reduce(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s, char *tmp, const char *in,
                            char *out)
{
    const int n = r->comm->n;
    const size_t stride = g->joint_room, first = g->tmp_bytes - (size_t)(n - 1) * stride;
    const void *from[COLL_MAX_SOURCES];
    gyre_status_t status = GYRE_OK;
    for (size_t until = s->msg.done + AT_ONCE; s->msg.done < s->bytes && s->msg.done < until;) {
        size_t at = s->offset + s->msg.done, bytes = base_min_size(stride, s->bytes - s->msg.done);
        if (s->msg.phase == PIECE_NEW) {
            status = gather_sources(r, g, at, bytes, tmp + first, stride, in, from);
            if (status != GYRE_OK)
                return status;
            status = reduce_piece(r, g, at, bytes, from, out);
            if (status != GYRE_OK)
                return status;
            s->msg.phase = PIECE_ADDED;
        }
        status = write_piece(r, g, at, bytes, out);
        if (status != GYRE_OK)
            return status;
        s->msg.phase = PIECE_NEW;
        s->msg.done += bytes;
        r->comm->traffic.bytes_sent += bytes * (size_t)(n - 1);
        r->comm->traffic.bytes_received += bytes * (size_t)(n - 1);
    }
    return s->msg.done < s->bytes ? GYRE_IN_PROGRESS : GYRE_OK;
}

/* ---- copies ---- */

/* From the root's IN to the OUT of s->peer; this rank is one of the two. */
static gyre_status_t copy(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s, const char *in, char *out)
{
    const int root = r->plan->shape.root, push = s->peer != r->comm->rank, other = push ? s->peer : root;
    const struct coll_joint_peer *p = &g->joint[other];
    size_t at = s->offset + s->msg.done, bytes = base_min_size(AT_ONCE, s->bytes - s->msg.done);
    gyre_status_t status = GYRE_OK;
    if (push && p->out)
        base_copy(p->out + at, in + at, bytes);
    else if (push)
        status = comm_peer_memory_write(p->memory, &p->said.out, at, in + at, bytes);
    else if (p->in)
        base_copy(out + at, p->in + at, bytes);
    else
        status = comm_peer_memory_read(p->memory, &p->said.in, at, out + at, bytes);
    if (status != GYRE_OK)
        return status;
    s->msg.done += bytes;
    if (push)
        r->comm->traffic.bytes_sent += bytes;
    else
        r->comm->traffic.bytes_received += bytes;
    return s->msg.done < s->bytes ? GYRE_IN_PROGRESS : GYRE_OK;
}

gyre_status_t coll_joint_advance(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s, char *tmp,
                                 const char *in, char *out)
{
    const int all = s->peer == COLL_FROM_ALL, rank = r->comm->rank;
    gyre_status_t status = GYRE_OK;
    for (int peer = 0; peer < r->comm->n && status == GYRE_OK; peer++)
        if (peer != rank && (all || peer == (s->peer == rank ? r->plan->shape.root : s->peer)))
            status = know(r, g, peer, tmp);
    if (status != GYRE_OK)
        return status;
    if (!comm_peer_memory_enter(r->comm->group))
        return GYRE_IN_PROGRESS;
    status = all ? reduce(r, g, s, tmp, in, out) : copy(r, g, s, in, out);
    /* Also where the step is not finished: a rank that fails meanwhile waits for those inside, and the caller
     * may compute for long before it comes here again. */
    comm_peer_memory_leave(r->comm->group);
    return status;
}

/* All ranks have heard all others, so all know the same. */
static int any_unmapped(const gyre_comm_t *comm, const coll_segment_t *g)
{
    int any = g->joint_unmapped;
    for (int peer = 0; peer < comm->n; peer++)
        any |= peer != comm->rank && g->joint[peer].said.unmapped;
    return any;
}

void coll_joint_finish(gyre_request_t *r, const coll_segment_t *g, char *out)
{
    const int rank = r->comm->rank, root = r->plan->shape.root;
    size_t from = 0, to = 0; /* what this rank has written itself */

    /* Later segments may leave ranks without a part. */
    if (r->plan->fine_cut.n > 0 && r->run.segment == 0)
        r->comm->unmapped = any_unmapped(r->comm, g);
    if (rank == root || !g->joint_window)
        return; /* it has written all, or they have where it belongs */
    for (uint32_t i = 0; i < g->schedule.nsteps; i++)
        if (g->steps[i].kind == COLL_STEP_JOINT) {
            from = g->steps[i].offset;
            to = from + g->steps[i].bytes;
        }
    comm_mem_fetch(out, from);
    comm_mem_fetch(out + to, g->joint_bytes - to);
}
