/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/arrivals.c: messages that arrived over UCX and were not received yet.
 *
 * Messages are UCP active messages: Gyre's header (sender, lane, number, tag, present call) and the payload,
 * eager or by rendezvous (link.c chooses). Arrivals wait in inboxes per group, rank and lane, in order of
 * their numbers, since UCX does not promise an order between the two kinds. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/ucx/ucx.h"

enum { ARRIVALS_BLOCK = 64 };

typedef struct arrivals_block {
    struct arrivals_block *next;
    ucx_arrival_t entries[ARRIVALS_BLOCK];
} arrivals_block_t;

static struct {
    ucx_arrival_t *spare; /* grows in blocks and is kept: nothing is allocated per message once warm */
    arrivals_block_t *blocks;
} arrivals;

void ucx_arrivals_end(void)
{
    while (arrivals.blocks) {
        arrivals_block_t *block = arrivals.blocks;
        arrivals.blocks = block->next;
        free(block);
    }
    arrivals.spare = NULL;
}

static ucx_arrival_t *arrival_new(void)
{
    ucx_arrival_t *arrival = arrivals.spare;

    if (!arrival) {
        arrivals_block_t *block = calloc(1, sizeof *block);
        if (!block)
            return NULL;
        block->next = arrivals.blocks;
        arrivals.blocks = block;
        for (int i = 0; i < ARRIVALS_BLOCK; i++) {
            block->entries[i].next = arrivals.spare;
            arrivals.spare = &block->entries[i];
        }
        arrival = arrivals.spare;
    }
    arrivals.spare = arrival->next;
    return arrival;
}

void ucx_arrival_free(ucx_arrival_t *arrival)
{
    arrival->next = arrivals.spare;
    arrivals.spare = arrival;
}

ucx_inbox_t *ucx_inbox(comm_ucx_group_t *ug, int source, int lane)
{
    ucx_inbox_t **place = &ug->inboxes[(size_t)source * COMM_LANES + (size_t)lane];

    if (!*place) {
        *place = calloc(1, sizeof **place);
        if (*place)
            ug->group->private_bytes += sizeof **place;
    }
    return *place;
}

/* Almost always at the end; rendezvous and eager messages may overtake each other. */
static void inbox_insert(ucx_inbox_t *inbox, ucx_arrival_t *arrival)
{
    ucx_arrival_t **link = &inbox->head;

    if (inbox->tail && inbox->tail->header.number < arrival->header.number)
        link = &inbox->tail->next;
    while (*link && (*link)->header.number < arrival->header.number)
        link = &(*link)->next;
    arrival->next = *link;
    *link = arrival;
    if (!arrival->next)
        inbox->tail = arrival;
}

/* Drops an inbox's messages; all: those whose payload has come, too. UCX reports the end of a rendezvous to
 * its sender. */
static void inbox_drop(ucx_inbox_t *inbox, int all)
{
    ucx_arrival_t **link = &inbox->head;

    inbox->tail = NULL;
    while (*link) {
        ucx_arrival_t *arrival = *link;
        if (!all && !arrival->rndv) {
            inbox->tail = arrival;
            link = &arrival->next;
            continue;
        }
        *link = arrival->next;
        if (arrival->data)
            ucx_lib.ucp_am_data_release(ucx_worker(), arrival->data);
        ucx_arrival_free(arrival);
    }
}

void ucx_give_back(comm_ucx_group_t *ug, int source)
{
    const size_t first = source < 0 ? 0 : (size_t)source * COMM_LANES;
    const size_t end = source < 0 ? (size_t)ug->group->n * COMM_LANES : first + COMM_LANES;

    for (size_t i = first; ug->inboxes && i < end; i++) {
        if (ug->inboxes[i])
            inbox_drop(ug->inboxes[i], source < 0);
    }
}

/* UCX's callback for every message, under the lock (inside ucp_worker_progress). UCS_INPROGRESS keeps
 * `data`. */
ucs_status_t ucx_on_message(void *arg, const void *head, size_t head_bytes, void *data, size_t bytes,
                            const ucp_am_recv_param_t *param)
{
    ucx_arrival_t *arrival;
    ucx_header_t header;
    comm_ucx_group_t *ug;
    ucx_inbox_t *inbox;
    int rndv;

    (void)arg;
    if (head_bytes == sizeof(ucx_hello_t)) {
        ucx_hello_t hello;
        memcpy(&hello, head, sizeof hello);
        ucx_on_hello(&hello);
        return UCS_OK;
    }
    if (head_bytes != sizeof header) {
        log_warning("ucx: dropped a message whose header has %zu bytes", head_bytes);
        return UCS_OK;
    }
    memcpy(&header, head, sizeof header);
    ug = ucx_group_of(&header);
    if (!ug || ug->leave_by != 0) {
        log_debug("ucx: dropped a message for a communicator that is gone");
        return UCS_OK; /* UCX then reports the end of the rendezvous to its sender */
    }
    if (header.source < 0 || header.source >= ug->group->n || header.lane >= COMM_LANES ||
        header.bytes != bytes) {
        log_warning("ucx: dropped a message with an invalid header");
        return UCS_OK;
    }
    if (header.number == UCX_WITHDRAWN) {
        ug->withdrawn[header.source] = 1;
        ucx_give_back(ug, header.source);
        return UCS_OK;
    }
    rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (rndv && ug->withdrawn[header.source])
        return UCS_OK;
    inbox = ucx_inbox(ug, header.source, (int)header.lane);
    if (inbox && header.taken > inbox->acked)
        inbox->acked = header.taken;
    if (header.number == UCX_NO_NUMBER)
        return UCS_OK; /* no inbox: the next message repeats it */
    arrival = inbox ? arrival_new() : NULL;
    if (!arrival) {
        ug->lost = 1;
        /* UCX asserts that the callback of an eager message returns no error. */
        return rndv ? UCS_ERR_NO_MEMORY : UCS_OK;
    }
    arrival->header = header;
    arrival->data = bytes > 0 ? data : NULL;
    arrival->rndv = rndv;
    inbox_insert(inbox, arrival);
    return arrival->data ? UCS_INPROGRESS : UCS_OK;
}
