/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/executor.c: runs a plan for real.
 *
 * One loop over the channels: each goes forward until its next step cannot move; sends that are under way are
 * asked again in each turn. Nothing blocks, nothing is allocated, no system call is made here: waiting is the
 * business of collectives/run/request.c. */
#include "collectives/run/communicator.h"

#include "base/checked.h"
#include "base/log.h"
#include "collectives/run/reach/joint.h"
#include "collectives/run/reach/stage.h"
#include "collectives/kernels/kernels.h"
#include "comm/memory/memory.h"
#include "comm/memory/segment.h"

static coll_segment_t *segment_of(const gyre_request_t *r)
{
    return &r->plan->segments[r->run.cut->of[r->run.segment]];
}

static char *buffer_base(const gyre_request_t *r, uint8_t buf)
{
    const coll_plan_t *p = r->plan;
    size_t shift = r->run.segment * r->run.cut->count * p->esize;
    char *scratch = r->comm->scratch.base;
    switch (buf) {
    case COLL_IN:
        if (p->shape.scaled)
            return scratch;
        return (char *)(uintptr_t)(r->run.staged_in ? r->run.staged_in : r->run.in + shift);
    case COLL_OUT:
        return r->run.staged_out ? r->run.staged_out : r->run.out + shift;
    default:
        return scratch + p->scaled_bytes;
    }
}

/* Writes this rank's scaled contribution, packed, to the start of the scratch memory. */
static void scale_input(gyre_request_t *r, const coll_segment_t *g)
{
    const coll_plan_t *p = r->plan;
    size_t shift = r->run.segment * r->run.cut->count;
    char *to = r->comm->scratch.base;
    if (!g->counts) {
        coll_kernel_scale(p->shape.type, to, r->run.in + shift * p->esize, g->scaled_count, r->run.scale);
        return;
    }
    for (int b = 0; b < r->comm->n; b++) {
        const char *from = r->run.in + (p->shape.displs[b] + shift) * p->esize;
        coll_kernel_scale(p->shape.type, to, from, g->counts[b], r->run.scale);
        to += g->counts[b] * p->esize;
    }
}

/* Scratch memory grows to what the largest plan so far needs; nothing of this communicator runs meanwhile. It
 * is a window, so that peers can read partial results where they lie. */
static gyre_status_t need_scratch(gyre_comm_t *comm, size_t bytes)
{
    if (bytes <= comm->scratch.bytes)
        return GYRE_OK;
    void *base;
    int muted = base_log_mute(1); /* the operation's error has the text */
    gyre_status_t st = comm_mem_alloc(bytes, &base);
    base_log_mute(muted);
    if (st != GYRE_OK)
        return st;
    comm->allocations++;
    if (comm->scratch.base)
        st = comm_mem_free(comm->scratch.base);
    comm->scratch = (coll_scratch_t){.base = base, .bytes = bytes, .staged = comm->scratch.staged};
    return st;
}

/* Of a communicator: before its copies take turns, which makes all of their room resident. */
enum { STAGED_ONCE = 16 };

/* Scratch memory to which staged copies of `bytes` may go, from `own` on, and its end; or 0. A repeated call
 * allocates nothing: the room is there from the first call on, but for cold inputs (coll_stage_choose). */
static size_t stage_room(gyre_comm_t *comm, size_t own, size_t bytes)
{
    coll_scratch_t *scratch = &comm->scratch;
    const size_t room = base_max_size(coll_cost_stage_room(&comm->tune->cost), bytes);
    if (scratch->staged >= 0 && need_scratch(comm, own + room) != GYRE_OK)
        scratch->staged = -1;
    if (need_scratch(comm, own + bytes) != GYRE_OK)
        return 0;
    if (scratch->staged < 0)
        return own + bytes;
    if (scratch->staged < STAGED_ONCE && ++scratch->staged == STAGED_ONCE)
        comm_segment_populate((char *)scratch->base + own,
                              room); /* or each of the next would wait for pages */
    return own + (scratch->staged < STAGED_ONCE ? bytes : room);
}

/* Takes the place after that of the call before (coll_cost_stage_room). Without memory for it, peers read the
 * program's buffers by the kernel. */
static void stage(gyre_request_t *r)
{
    coll_scratch_t *scratch = &r->comm->scratch;
    const coll_staging_t needs = coll_stage_needs(r);
    const size_t own = base_round_up(r->plan->tmp_bytes, 64);
    const size_t bytes = base_round_up(needs.in, 64) + base_round_up(needs.out, 64);
    const size_t end = bytes > 0 ? stage_room(r->comm, own, bytes) : 0;
    if (end == 0)
        return;
    const size_t next = base_max_size(scratch->stage, own), at = next + bytes <= end ? next : own;
    scratch->stage = at + bytes;
    coll_stage_begin(r, &needs, (char *)scratch->base + at);
}

static gyre_status_t segment_start(gyre_request_t *r, coll_segment_t *g)
{
    r->run.unstaged = g->stages && !coll_stage_chunks(r);
    gyre_status_t st = r->run.unstaged ? GYRE_OK : need_scratch(r->comm, r->plan->tmp_bytes);
    if (st != GYRE_OK && !g->stages)
        return st;
    r->run.unstaged |= st != GYRE_OK; /* the kernel needs no scratch memory */
    if ((r->run.staging->in || r->run.staging->out) && r->run.cut == coll_stage_cut(r->plan))
        stage(r);
    const int gives = coll_stage_gives(r);
    for (uint32_t i = 0; i < g->schedule.nsteps; i++) {
        coll_pstep_t *s = &g->steps[i];
        s->done = 0;
        s->viewed = 0;
        s->msg = (comm_msg_t){.gives = gives && s->kind == COLL_STEP_SEND && s->buf == COLL_IN};
    }
    r->run.nopen = 0;
    r->run.nblocked = 0;
    for (int c = 0; c < COLL_MAX_CHANNELS; c++)
        r->run.pc[c] = g->first[c];
    if (r->plan->shape.scaled)
        scale_input(r, g);
    if (g->joint) {
        const int sends = r->plan->shape.root < 0 || r->plan->shape.root == r->comm->rank;
        coll_joint_announce(r, g, buffer_base(r, COLL_TMP), sends ? buffer_base(r, COLL_IN) : NULL,
                            buffer_base(r, COLL_OUT));
    }
    r->run.started = 1;
    return GYRE_OK;
}

static gyre_status_t step_link(gyre_request_t *r, coll_pstep_t *s)
{
    if (s->link)
        return GYRE_OK;
    return comm_group_link(r->comm->group, s->peer, s->lane, &s->link);
}

/* 1 if an earlier send of `link`'s lane still waits for its place, so that a later one may not be started. */
static int lane_blocked(const gyre_request_t *r, const coll_segment_t *g, uint32_t earlier,
                        const comm_link_t *link)
{
    for (uint32_t i = 0; r->run.nblocked && i < earlier; i++) {
        const coll_pstep_t *s = &g->steps[g->open_sends[i]];
        if (s->link == link && !comm_send_accepted(&s->msg))
            return 1;
    }
    return 0;
}

static const char *send_source(const gyre_request_t *r, const coll_pstep_t *s)
{
    if (r->run.unstaged && s->staged_from != SIZE_MAX)
        return buffer_base(r, COLL_IN) + s->staged_from;
    return buffer_base(r, s->buf) + s->offset;
}

/* Posts a send. It never holds up its channel, however full the lane is: a schedule is free of deadlock on
 * that condition (schedule.h), so what finds no place yet is kept with the sends under way and tried again
 * in order. */
static gyre_status_t advance_send(gyre_request_t *r, coll_segment_t *g, uint32_t index)
{
    coll_pstep_t *s = &g->steps[index];
    gyre_status_t st = step_link(r, s);
    if (st != GYRE_OK)
        return st;
    r->comm->traffic.bytes_sent += s->bytes;
    r->comm->traffic.messages_sent++;
    st = GYRE_IN_PROGRESS;
    if (!lane_blocked(r, g, r->run.nopen, s->link))
        st = comm_send(s->link, send_source(r, s), s->bytes, r->tag, &s->msg);
    if (st == GYRE_OK)
        s->done = 1;
    if (st != GYRE_IN_PROGRESS)
        return st;
    r->run.nblocked += !comm_send_accepted(&s->msg);
    g->open_sends[r->run.nopen++] = index;
    return GYRE_OK;
}

static gyre_status_t advance_recv(gyre_request_t *r, coll_pstep_t *s)
{
    gyre_status_t st = step_link(r, s);
    if (st != GYRE_OK)
        return st;
    st = GYRE_ERR_UNSUPPORTED;
    if (s->may_view && s->msg.phase == 0) {
        st = comm_recv_view(s->link, s->bytes, r->tag, &s->msg, &s->view);
        s->viewed = st == GYRE_OK;
    }
    if (st == GYRE_ERR_UNSUPPORTED)
        st = comm_recv(s->link, buffer_base(r, s->buf) + s->offset, s->bytes, r->tag, &s->msg);
    if (st == GYRE_OK) {
        s->done = 1;
        r->comm->traffic.bytes_received += s->bytes;
    }
    return st;
}

static const void *source_pointer(const gyre_request_t *r, const coll_segment_t *g, uint32_t source)
{
    const coll_psource_t *src = &g->sources[source];
    if (src->recv != UINT32_MAX && g->steps[src->recv].viewed)
        return (const char *)g->steps[src->recv].view + src->recv_offset;
    return buffer_base(r, src->buf) + src->offset;
}

/* 1 if a peer whose memory the step has read there has failed meanwhile. */
static int read_lost_view(const coll_segment_t *g, const coll_pstep_t *s)
{
    for (uint32_t k = 0; k < s->nsrc; k++) {
        const coll_psource_t *src = &g->sources[s->src + k];
        if (src->recv != UINT32_MAX && g->steps[src->recv].viewed && comm_view_lost(g->steps[src->recv].link))
            return 1;
    }
    return 0;
}

/* 1: a copy that is not made. It writes nothing, so it waits for nothing, either. */
static int left_out(const gyre_request_t *r, const coll_pstep_t *s)
{
    return r->run.unstaged && (s->flags & COLL_STAGE) != 0;
}

/* An error: of the program's own operation. IN_PROGRESS: a peer has failed, which will be reported. Its views
 * stay open, and what the step has written is neither sent on nor returned. */
static gyre_status_t run_local(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s)
{
    const coll_plan_t *p = r->plan;
    if (left_out(r, s)) {
        s->done = 1;
        return GYRE_OK;
    }
    char *to = buffer_base(r, s->buf) + s->offset;
    if (read_lost_view(g, s))
        return GYRE_IN_PROGRESS;
    if (s->kind == COLL_STEP_COPY) {
        coll_kernel_copy(to, source_pointer(r, g, s->src), s->bytes);
    } else {
        const void *from[COLL_MAX_SOURCES];
        for (uint32_t k = 0; k < s->nsrc; k++)
            from[k] = source_pointer(r, g, s->src + k);
        gyre_status_t st = coll_plan_reduce(p, to, from, (int)s->nsrc, s->bytes / p->esize);
        if (st != GYRE_OK)
            return coll_kernel_failed(p->shape.redop, st);
    }
    if (s->flags & COLL_FINAL)
        coll_plan_finish(p, to, s->bytes / p->esize);
    if (read_lost_view(g, s))
        return GYRE_IN_PROGRESS;
    for (uint32_t k = 0; k < s->nrelease; k++) {
        coll_pstep_t *recv = &g->steps[g->releases[s->release + k]];
        if (recv->viewed) {
            comm_release(recv->link, &recv->msg);
            recv->viewed = 0;
        }
    }
    s->done = 1;
    return GYRE_OK;
}

static gyre_status_t advance_joint(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s)
{
    gyre_status_t st = coll_joint_advance(r, g, s, buffer_base(r, COLL_TMP), buffer_base(r, COLL_IN),
                                          buffer_base(r, COLL_OUT));
    s->done = st == GYRE_OK;
    return st;
}

static int deps_done(const coll_segment_t *g, const coll_pstep_t *s)
{
    for (uint32_t k = 0; k < s->ndep; k++)
        if (!g->steps[g->schedule.deps[s->dep + k]].done)
            return 0;
    return 1;
}

/* Goes forward in one channel as far as possible. IN_PROGRESS: something must happen elsewhere first. */
static gyre_status_t advance_channel(gyre_request_t *r, coll_segment_t *g, int channel, int *moved)
{
    while (r->run.pc[channel] < g->last[channel]) {
        uint32_t index = g->order[r->run.pc[channel]];
        coll_pstep_t *s = &g->steps[index];
        if (!deps_done(g, s) && !left_out(r, s))
            return GYRE_IN_PROGRESS;
        gyre_status_t st = GYRE_OK;
        uint64_t before = s->msg.done;
        if (s->kind == COLL_STEP_SEND)
            st = advance_send(r, g, index);
        else if (s->kind == COLL_STEP_RECV)
            st = advance_recv(r, s);
        else if (s->kind == COLL_STEP_JOINT)
            st = advance_joint(r, g, s);
        else
            st = run_local(r, g, s);
        if (st == GYRE_IN_PROGRESS && s->msg.done != before)
            *moved = 1;
        if (st != GYRE_OK)
            return st;
        *moved = 1;
        r->run.pc[channel]++;
    }
    return GYRE_OK;
}

/* One open send a step further; `kept` of those before it are still open. */
static gyre_status_t continue_send(gyre_request_t *r, coll_segment_t *g, coll_pstep_t *s, uint32_t kept,
                                   int *moved)
{
    int accepted = comm_send_accepted(&s->msg);
    uint64_t before = s->msg.done;
    if (!accepted && lane_blocked(r, g, kept, s->link))
        return GYRE_IN_PROGRESS;
    gyre_status_t st = comm_send(s->link, send_source(r, s), s->bytes, r->tag, &s->msg);
    s->done = st == GYRE_OK;
    if (s->done || s->msg.done != before || accepted != comm_send_accepted(&s->msg))
        *moved = 1;
    return st;
}

static gyre_status_t advance_open_sends(gyre_request_t *r, coll_segment_t *g, int *moved)
{
    uint32_t kept = 0, blocked = 0;
    gyre_status_t result = GYRE_OK;
    for (uint32_t i = 0; i < r->run.nopen; i++) {
        coll_pstep_t *s = &g->steps[g->open_sends[i]];
        gyre_status_t st = continue_send(r, g, s, kept, moved);
        if (st == GYRE_OK)
            continue;
        g->open_sends[kept++] = g->open_sends[i];
        blocked += !comm_send_accepted(&s->msg);
        if (st != GYRE_IN_PROGRESS)
            result = st;
    }
    r->run.nopen = kept;
    r->run.nblocked = blocked;
    return result;
}

/* An exchange needs no schedule. */
static gyre_status_t exchange_advance(gyre_request_t *r, int *moved)
{
    coll_oneshot_run_t *e = &r->comm->oneshot;
    if (!r->run.started) {
        e->plan = r->plan;
        e->in = r->run.in;
        e->out = r->run.out;
        e->scale = r->run.scale;
        e->tag = r->tag;
        coll_oneshot_begin(e);
        r->run.started = 1;
    }
    coll_oneshot_state_t state = e->state;
    const int next = e->next;
    const uint32_t left = e->left;
    gyre_status_t st = coll_oneshot_advance(e);
    *moved |= st == GYRE_OK || e->state != state || e->next != next || e->left != left;
    return st;
}

gyre_status_t coll_run_advance(gyre_request_t *r, int *moved)
{
    if (r->plan->oneshot)
        return exchange_advance(r, moved);
    if (r->run.segment == 0 && !r->run.started) { /* all calls before have ended, here and elsewhere */
        r->run.cut = r->plan->fine_cut.n && r->comm->unmapped ? &r->plan->fine_cut : &r->plan->cut;
        r->run.staging = coll_stage_choose(r);
    }
    while (r->run.segment < r->run.cut->n) {
        coll_segment_t *g = segment_of(r);
        gyre_status_t st = r->run.started ? GYRE_OK : segment_start(r, g);
        if (st == GYRE_OK)
            st = advance_open_sends(r, g, moved);
        if (st != GYRE_OK)
            return st;
        int finished = 1;
        for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
            st = advance_channel(r, g, c, moved);
            if (st != GYRE_OK && st != GYRE_IN_PROGRESS)
                return st;
            finished = finished && st == GYRE_OK;
        }
        if (!finished || r->run.nopen)
            return GYRE_IN_PROGRESS;
        if (g->joint)
            coll_joint_finish(r, g, buffer_base(r, COLL_OUT));
        coll_stage_end(r);
        r->run.segment++;
        r->run.started = 0;
    }
    return GYRE_OK;
}
