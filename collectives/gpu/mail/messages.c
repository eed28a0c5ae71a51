/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/mail/messages.c: messages on device memory, in stream order, cut into pieces; those of a
 * group are collected until its end. Between ranks that map each other's memory a piece goes by peer.c, else
 * through a slot. Slots are pinned memory of the host, or memory of the device if the network reaches it
 * (collectives/gpu/through/lent.c). The proxy's thread sends and receives between slots
 * (collectives/gpu/through/proxy.h). A sent piece leaves its slot later: `sent` counts that, and the next
 * user of the slot waits for it. */
#include "collectives/gpu/through/proxy.h"

#ifdef GYRE_CUDA

#include <stdlib.h>

#include "base/checked.h"
#include "base/device/rdma.h"
#include "base/error.h"
#include "base/grow.h"
#include "comm/lend.h"

size_t coll_cuda_proxy_slots(const coll_cuda_t *c)
{
    return (COLL_CUDA_SENDS + 1) * c->proxy->message;
}

/* ---- the proxy's side ---------------------------------------------------------------------------------- */

gyre_status_t coll_cuda_reap_messages(coll_cuda_proxy_t *p, int *moved)
{
    while (p->send_ended != p->send_began) {
        gyre_request_t **request = &p->pending[p->send_ended % COLL_CUDA_SENDS];
        gyre_status_t st = *request ? gyre_test(request) : GYRE_OK;
        if (st == GYRE_IN_PROGRESS)
            return GYRE_OK;
        p->send_ended++;
        __atomic_store_n(&p->words->sent, p->send_ended, __ATOMIC_RELEASE);
        *moved = 1;
        if (st != GYRE_OK)
            return st;
    }
    return GYRE_OK;
}

static gyre_status_t begin_send(coll_cuda_proxy_t *p, const coll_cuda_job_t *job)
{
    gyre_status_t st = coll_check_comm("isend", p->c->shadow);
    if (st != GYRE_OK)
        return st;
    gyre_request_t **request = &p->pending[p->send_began % COLL_CUDA_SENDS];
    *request = NULL;
    p->send_began++;
    return coll_p2p_start(COLL_REQ_SEND, job->in, job->bytes, GYRE_UINT8, job->peer, p->c->shadow, request);
}

gyre_status_t coll_cuda_run_message(coll_cuda_proxy_t *p, const coll_cuda_job_t *job)
{
    if (job->kind == COLL_CUDA_SEND)
        return begin_send(p, job);
    gyre_status_t st = coll_check_comm("recv", p->c->shadow);
    if (st == GYRE_OK)
        st = coll_p2p_start(COLL_REQ_RECV, job->out, job->bytes, GYRE_UINT8, job->peer, p->c->shadow, NULL);
    return st == GYRE_OK && job->direct && p->c->flush
               ? base_device_rdma_flush((base_device_t){BASE_CUDA, p->c->device})
               : st;
}

void coll_cuda_drop_messages(coll_cuda_proxy_t *p)
{
    for (uint32_t q = p->send_ended; q != p->send_began; q++)
        if (p->pending[q % COLL_CUDA_SENDS]) /* of a communicator that has failed: it ends at once */
            (void)gyre_wait(&p->pending[q % COLL_CUDA_SENDS]);
}

/* ---- the stream's side --------------------------------------------------------------------------------- */

/* One piece. */
static gyre_status_t enqueue_slot(coll_cuda_t *c, coll_req_kind_t kind, void *buffer, size_t bytes, int peer,
                                  cudaStream_t stream)
{
    coll_cuda_proxy_t *p = c->proxy;
    char *sends = p->memory + (c->path == COLL_CUDA_STAGED ? 2 * COLL_CUDA_SLOTS * p->slot : 0);
    coll_cuda_job_t job = {
        .kind = kind == COLL_REQ_SEND ? COLL_CUDA_SEND : COLL_CUDA_RECV, .bytes = bytes, .peer = peer};
    job.direct = c->direct && c->direct[peer] && bytes > COMM_LEND_LEAST;
    char *slots = job.direct ? c->slots : sends;
    uint32_t number;
    gyre_status_t st = GYRE_OK;
    if (kind == COLL_REQ_SEND) {
        const uint32_t q = p->sends++;
        job.in = slots + q % COLL_CUDA_SENDS * p->message;
        if (q >= COLL_CUDA_SENDS)
            st = coll_cuda_proxy_await(p, &p->words->sent, q - COLL_CUDA_SENDS + 1, stream);
        if (st == GYRE_OK)
            st = coll_cuda_proxy_copy(job.in, buffer, bytes, stream);
        return st == GYRE_OK ? coll_cuda_proxy_post(p, &job, stream, &number) : st;
    }
    job.out = slots + COLL_CUDA_SENDS * p->message;
    st = coll_cuda_proxy_post(p, &job, stream, &number);
    if (st == GYRE_OK)
        st = coll_cuda_proxy_await(p, &p->words->done, number, stream);
    return st == GYRE_OK ? coll_cuda_proxy_copy(buffer, job.out, bytes, stream) : st;
}

/* Those of an open group. */
static _Thread_local struct {
    coll_cuda_message_t *list;
    size_t count, room;
} collected;

static size_t piece_of(const coll_cuda_t *c)
{
    return c->mail ? coll_cuda_mail_piece(c) : c->proxy->message;
}

static gyre_status_t enqueue_piece(const coll_cuda_message_t *m, size_t k)
{
    const size_t at = k * piece_of(m->c), bytes = base_min_size(m->bytes - at, piece_of(m->c));
    int before;
    gyre_status_t st = coll_cuda_enter(m->c, &before);
    if (st != GYRE_OK)
        return st;
    st = coll_cuda_follow(m->c, m->stream, 0);
    if (st == GYRE_OK) {
        st = m->c->mail ? coll_cuda_mail_enqueue(m, (uint32_t)k, at, bytes)
                        : enqueue_slot(m->c, m->kind, m->buffer + at, bytes, m->as.root, m->stream);
        st = coll_cuda_note_call(m->c, m->stream, 0, st);
    }
    coll_cuda_exit(m->c, before);
    return st;
}

/* Ranks from here to the peer, the way that the message goes. */
static int distance(const coll_cuda_message_t *m)
{
    const int n = m->c->comm->n, ahead = m->as.root - m->c->comm->rank + n;
    return (m->kind == COLL_REQ_SEND ? ahead : 2 * n - ahead) % n;
}

static int same_lane(const coll_cuda_message_t *a, const coll_cuda_message_t *b)
{
    return a->c == b->c && a->kind == b->kind && a->as.root == b->as.root;
}

static int by_lane(const void *one, const void *other)
{
    const coll_cuda_message_t *a = one, *b = other;
    const gyre_comm_t *of_a = a->c->comm, *of_b = b->c->comm;
    if (of_a->id != of_b->id)
        return of_a->id < of_b->id ? -1 : 1;
    if (distance(a) != distance(b))
        return distance(a) < distance(b) ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind == COLL_REQ_SEND ? -1 : 1;
    if (of_a->rank != of_b->rank) /* ranks of this process, on one communicator */
        return of_a->rank < of_b->rank ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Enqueues all pieces of several messages. Those to or from one rank, a *lane*, go one after the other, as
 * without a group; lanes take turns of a piece. Lanes are sorted alike on all ranks: by distance from sender
 * to receiver, sends before receives.
 *
 * So every wait is for a piece of an earlier turn, or of the same turn and no greater distance: a receive
 * waits for the piece itself, whose sender waits for nothing but earlier receives (the room that they leave).
 * Among pieces that cannot move, one is first, and it has nothing to wait for. Ranks whose groups belong
 * together thus do not wait for each other forever, with room for one piece on its way. */
static gyre_status_t enqueue_messages(coll_cuda_message_t *list, size_t count)
{
    gyre_status_t st = GYRE_OK;
    size_t left = count;
    for (size_t i = 0; i < count; i++) {
        list[i].order = i;
        list[i].done = 0;
    }
    qsort(list, count, sizeof *list, by_lane);
    while (left > 0 && st == GYRE_OK)
        for (size_t i = 0; i < count && st == GYRE_OK; i++) {
            coll_cuda_message_t *m = &list[i];
            const size_t pieces = base_max_size((m->bytes + piece_of(m->c) - 1) / piece_of(m->c), 1);
            if (m->done == pieces)
                continue;
            st = enqueue_piece(m, m->done++);
            left -= m->done == pieces;
            while (i + 1 < count && same_lane(m, &list[i + 1])) /* their turn comes after it */
                i++;
        }
    if (st != GYRE_OK) /* some of it is on its way: the communicators cannot go on */
        for (size_t i = 0; i < count; i++)
            (void)coll_cuda_fail_numbered(list[i].c->comm, st);
    return st;
}

static gyre_status_t collect(const coll_cuda_message_t *m)
{
    if (!base_grow(&collected.list, &collected.room, collected.count, 1, sizeof *m))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu messages of a group", collected.count + 1);
    collected.list[collected.count++] = *m;
    coll_group_note_device(m->c->comm->device_ops);
    return GYRE_OK;
}

gyre_status_t coll_cuda_group_end(gyre_status_t error)
{
    gyre_status_t st = GYRE_OK;
    if (error == GYRE_OK && collected.count > 0)
        st = coll_check_live("gyre_group_end", collected.list[0].c->comm); /* it is not in a child of fork */
    if (error == GYRE_OK && st == GYRE_OK && collected.count > 0)
        st = enqueue_messages(collected.list, collected.count);
    free(collected.list);
    collected.list = NULL;
    collected.count = collected.room = 0;
    return st;
}

gyre_status_t coll_cuda_enqueue_message(coll_cuda_message_t *m)
{
    return coll_group_open() ? collect(m) : enqueue_messages(m, 1);
}

#endif
