/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/self.c: the link of a rank with itself: messages are handed over by pointer and copied once, or
 * viewed.
 *
 * A send waits in a queue of COMM_SENDS_OPEN places until the receive of the same lane takes it. One thread
 * drives both ends, so nothing here is atomic. */
#include "comm/shm/link.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef enum { SELF_FREE = 0, SELF_SENT, SELF_VIEWED, SELF_DONE } self_state_t;

typedef struct {
    const void *buf;
    size_t bytes;
    comm_tag_t tag;
    self_state_t state;
} self_entry_t;

typedef struct {
    comm_link_t base;
    uint64_t sent;     /* messages sent so far; message k lies in queue[k % COMM_SENDS_OPEN] */
    uint64_t received; /* messages taken so far */
    self_entry_t queue[COMM_SENDS_OPEN];
} self_link_t;

static gyre_status_t self_send(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag,
                               comm_msg_t *msg)
{
    self_link_t *self = (self_link_t *)link;
    self_entry_t *entry;

    if (msg->phase == 0) {
        entry = &self->queue[self->sent % COMM_SENDS_OPEN];
        if (entry->state != SELF_FREE)
            return GYRE_IN_PROGRESS;
        *entry = (self_entry_t){buf, bytes, tag, SELF_SENT};
        msg->ticket = self->sent++;
        msg->phase = 1;
        return GYRE_IN_PROGRESS;
    }
    entry = &self->queue[msg->ticket % COMM_SENDS_OPEN];
    if (entry->state != SELF_DONE)
        return GYRE_IN_PROGRESS;
    entry->state = SELF_FREE;
    return GYRE_OK;
}

/* The oldest message that was not taken yet. */
static gyre_status_t self_head(self_link_t *self, size_t bytes, comm_tag_t tag, self_entry_t **head)
{
    self_entry_t *entry = &self->queue[self->received % COMM_SENDS_OPEN];

    if (self->received == self->sent)
        return GYRE_IN_PROGRESS;
    if (entry->bytes != bytes || entry->tag.seq != tag.seq || entry->tag.sig != tag.sig)
        return gyre_fail_quiet(GYRE_ERR_MISMATCH, "message of %zu bytes to itself met a receive of %zu bytes",
                               entry->bytes, bytes);
    *head = entry;
    return GYRE_OK;
}

static gyre_status_t self_recv(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    self_link_t *self = (self_link_t *)link;
    self_entry_t *entry = NULL;
    gyre_status_t status = self_head(self, bytes, tag, &entry);

    if (status != GYRE_OK)
        return status;
    if (bytes > 0 && buf != entry->buf)
        memmove(buf, entry->buf, bytes);
    entry->state = SELF_DONE;
    msg->phase = 1;
    self->received++;
    return GYRE_OK;
}

static gyre_status_t self_recv_view(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                                    const void **view)
{
    self_link_t *self = (self_link_t *)link;
    self_entry_t *entry = NULL;
    gyre_status_t status = self_head(self, bytes, tag, &entry);

    if (status != GYRE_OK)
        return status;
    entry->state = SELF_VIEWED;
    msg->phase = 1;
    msg->ticket = self->received++;
    *view = entry->buf;
    return GYRE_OK;
}

static void self_release(comm_link_t *link, comm_msg_t *msg)
{
    self_link_t *self = (self_link_t *)link;

    self->queue[msg->ticket % COMM_SENDS_OPEN].state = SELF_DONE;
}

static int self_their_call(comm_link_t *link, comm_call_t *call)
{
    return comm_board_read(link->group->board, call);
}

static void self_close(comm_link_t *link)
{
    free(link);
}

static gyre_status_t self_connect(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    self_link_t *self = calloc(1, sizeof *self);

    if (!self)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link");
    self->base = (comm_link_t){&comm_self, group, peer, lane, sizeof *self};
    *out = &self->base;
    return GYRE_OK;
}

const comm_transport_ops_t comm_self = {
    .name = "self",
    .scope = COMM_TO_ITSELF,
    .send = self_send,
    .recv = self_recv,
    .recv_view = self_recv_view,
    .release = self_release,
    .their_call = self_their_call,
    .connect = self_connect,
    .close = self_close,
};
