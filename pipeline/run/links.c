/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/run/links.c: communicators and streams between the GPUs of a pipeline's ranks. */
#include "pipeline/run/links.h"

#include <gyre/cuda.h>
#include <stdlib.h>

#include "base/error.h"
#include "pipeline/schedules/match.h"

typedef struct {
    gyre_comm_t *comm; /* of two ranks; NULL: no such link */
    base_stream_t *stream;
} link_t;

struct pipe_links {
    base_device_t device;
    gyre_comm_t *all; /* the pipeline's ranks; borrowed */
    base_stream_t *compute;
    base_event_t *here; /* on it, where a link's stream goes on */
    link_t *to, *from;  /* [ranks] */
    int ranks, rank;
};

gyre_status_t pipe_links_create(base_device_t device, void *stream, pipe_links_t **out)
{
    pipe_links_t *l = calloc(1, sizeof *l);
    if (!l)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a pipeline's links");
    l->device = device;
    gyre_status_t status = base_stream_wrap(device, stream, &l->compute);
    if (status == GYRE_OK)
        status = base_event_create(device, 0, &l->here);
    if (status != GYRE_OK) {
        pipe_links_destroy(l);
        return status;
    }
    *out = l;
    return GYRE_OK;
}

/* ---- who talks to whom --------------------------------------------------------------------------------- */

/* used [ranks, ranks]: 1 where the row's rank sends to the column's. */
static void find_ways(const pipe_schedule_t *schedule, unsigned char *used)
{
    const int n = schedule->shape.ranks;
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < schedule->count[r]; i++) {
            const pipe_action_t *a = &schedule->action[r][i];
            if (pipe_op_sends(a->op))
                used[r * n + a->peer] = 1;
        }
}

static gyre_status_t open_link(pipe_links_t *l, link_t *link, gyre_comm_t *comm)
{
    link->comm = comm;
    /* a message is one block, for which all later passes wait */
    gyre_status_t status = base_stream_create_urgent(l->device, &link->stream);
    return status == GYRE_OK ? gyre_comm_prepare_cuda(comm) : status;
}

/* One way of the pairs of a turn, in which each rank has one partner or none (-1). */
static gyre_status_t open_ways(pipe_links_t *l, gyre_comm_t *all, const int *partner,
                               const unsigned char *used, int upwards)
{
    const int n = l->ranks, me = l->rank, peer = partner[me];
    int any = 0, color = -1;
    for (int r = 0; r < n; r++)
        any = any || (partner[r] > r && used[upwards ? r * n + partner[r] : partner[r] * n + r]);
    if (!any)
        return GYRE_OK;
    if (peer >= 0) {
        const int low = peer < me ? peer : me, high = peer < me ? me : peer;
        if (used[upwards ? low * n + high : high * n + low])
            color = low;
    }
    gyre_comm_t *comm = NULL;
    gyre_status_t status = gyre_comm_split(all, color, me, &comm);
    if (status != GYRE_OK || color < 0)
        return status;
    const int sends = upwards == (me < peer);
    return open_link(l, sends ? &l->to[peer] : &l->from[peer], comm);
}

/* Pairs that talk, in as many turns as it takes for each rank to be in one pair at a time: a link is one
 * of many that a split makes. */
static gyre_status_t open_links(pipe_links_t *l, gyre_comm_t *comm, unsigned char *used, int *partner,
                                unsigned char *open)
{
    const int n = l->ranks;
    gyre_status_t status = GYRE_OK;
    for (int found = 1; found && status == GYRE_OK;) {
        found = 0;
        for (int r = 0; r < n; r++)
            partner[r] = -1;
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b < n; b++) {
                if (open[a * n + b] || partner[a] >= 0 || partner[b] >= 0 ||
                    !(used[a * n + b] || used[b * n + a]))
                    continue;
                open[a * n + b] = 1;
                partner[a] = b;
                partner[b] = a;
                found = 1;
            }
        if (found)
            status = open_ways(l, comm, partner, used, 1);
        if (found && status == GYRE_OK)
            status = open_ways(l, comm, partner, used, 0);
    }
    return status;
}

gyre_status_t pipe_links_connect(pipe_links_t *l, gyre_comm_t *comm, const pipe_schedule_t *schedule)
{
    const size_t n = (size_t)schedule->shape.ranks;
    l->all = comm;
    l->ranks = schedule->shape.ranks;
    l->rank = gyre_comm_rank(comm);
    l->to = calloc(2 * n, sizeof *l->to);
    unsigned char *used = calloc(2 * n, n);
    int *partner = calloc(n, sizeof *partner);
    gyre_status_t status = GYRE_OK;
    if (!l->to || !used || !partner)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the links of %zu ranks", n);
    if (status == GYRE_OK) {
        l->from = l->to + n;
        find_ways(schedule, used);
        status = open_links(l, comm, used, partner, used + n * n);
    }
    free(partner);
    free(used);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

void pipe_links_leave(pipe_links_t *l)
{
    if (l)
        l->all = NULL;
    for (int i = 0; l && l->to && i < 2 * l->ranks; i++) {
        if (l->to[i].stream)
            (void)base_stream_wait(
                l->to[i].stream); /* an error was reported, or is the device's, which all calls get */
        if (l->to[i].comm)
            gyre_comm_destroy(l->to[i].comm);
        l->to[i].comm = NULL;
    }
}

void pipe_links_abort(pipe_links_t *l, const char *reason)
{
    for (int i = 0; l && l->to && i < 2 * l->ranks; i++)
        if (l->to[i].comm)
            gyre_comm_abort(l->to[i].comm, reason);
}

void pipe_links_destroy(pipe_links_t *l)
{
    if (!l)
        return;
    pipe_links_leave(l);
    for (int i = 0; l->to && i < 2 * l->ranks; i++)
        if (l->to[i].stream)
            base_stream_destroy(l->to[i].stream);
    if (l->here)
        base_event_destroy(l->here);
    if (l->compute)
        base_stream_destroy(l->compute);
    free(l->to);
    free(l);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* The link's stream goes on after the work that the computation's stream holds so far. */
static gyre_status_t follow(pipe_links_t *l, const link_t *link)
{
    gyre_status_t status = base_event_record(l->here, l->compute);
    return status == GYRE_OK ? base_stream_wait_event(link->stream, l->here) : status;
}

static int other_of(const link_t *link)
{
    return 1 - gyre_comm_rank(link->comm);
}

gyre_status_t pipe_links_receive(pipe_links_t *l, int peer, void *buffer, size_t count, gyre_type_t type,
                                 base_event_t *moved)
{
    const link_t *link = &l->from[peer];
    gyre_status_t status = follow(l, link);
    if (status == GYRE_OK)
        status = gyre_recv_stream(buffer, count, type, other_of(link), link->comm,
                                  base_stream_native(link->stream));
    return status == GYRE_OK ? base_event_record(moved, link->stream) : status;
}

gyre_status_t pipe_links_send(pipe_links_t *l, int peer, const void *buffer, size_t count, gyre_type_t type,
                              base_event_t *moved)
{
    const link_t *link = &l->to[peer];
    gyre_status_t status = follow(l, link);
    if (status == GYRE_OK)
        status = gyre_send_stream(buffer, count, type, other_of(link), link->comm,
                                  base_stream_native(link->stream));
    return status == GYRE_OK ? base_event_record(moved, link->stream) : status;
}

gyre_status_t pipe_links_await(pipe_links_t *l, base_event_t *moved)
{
    return base_stream_wait_event(l->compute, moved);
}

gyre_status_t pipe_links_note(pipe_links_t *l, base_event_t *event)
{
    return base_event_record(event, l->compute);
}

gyre_status_t pipe_links_error(const pipe_links_t *l)
{
    for (int i = 0; l && l->to && i < 2 * l->ranks; i++) {
        const gyre_status_t status = l->to[i].comm ? gyre_comm_error(l->to[i].comm) : GYRE_OK;
        if (status != GYRE_OK)
            return gyre_fail_quiet(status, "the pipeline's tensors %s rank %d of its %d: %s",
                                   i < l->ranks ? "to" : "from", i % l->ranks, l->ranks,
                                   gyre_status_string(status));
    }
    /* no operation is under way on it that would see what other ranks report of it: this call sees it */
    const gyre_status_t status = l && l->all ? gyre_progress(l->all) : GYRE_OK;
    return status == GYRE_OK ? status
                             : gyre_fail_quiet(status, "another rank's step of the pipeline failed: %s",
                                               gyre_status_string(status));
}
