/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/bounce.c: pinned memory for messages from and to device memory, kept by the communicator
 * for the next ones. */
#include "collectives/run/bounce.h"

#include <stdlib.h>

#include "base/device/device.h"
#include "base/error.h"

struct coll_bounce {
    coll_bounce_t *next; /* in the communicator's list of free ones */
    gyre_comm_t *comm;
    base_device_t device;
    base_stream_t *copies; /* the host's: copies are over when the call returns */
    void *memory;
    size_t room;
    void *buffer; /* the program's */
    size_t bytes;
    int receives;
    gyre_request_t *request;
};

static void destroy(coll_bounce_t *b)
{
    /* base/ reports the errors of giving back; they change nothing */
    if (b->memory)
        (void)base_pinned_free(b->device, b->memory);
    if (b->copies)
        (void)base_stream_destroy(b->copies);
    free(b);
}

static coll_bounce_t *make(gyre_comm_t *comm, base_device_t device, size_t bytes)
{
    size_t room = 4096;
    coll_bounce_t *b = calloc(1, sizeof *b);
    if (!b) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a message of device memory");
        return NULL;
    }
    while (room < bytes && room <= SIZE_MAX / 2)
        room *= 2;
    b->comm = comm;
    b->device = device;
    b->room = room > bytes ? room : bytes;
    comm->allocations++;
    if (base_stream_create((base_device_t){BASE_HOST, 0}, &b->copies) != GYRE_OK ||
        base_pinned_alloc(device, b->room, &b->memory) != GYRE_OK) {
        destroy(b);
        return NULL;
    }
    return b;
}

coll_bounce_t *coll_bounce_take(gyre_comm_t *comm, coll_req_kind_t kind, void *buffer, size_t bytes)
{
    const base_device_t device = base_device_of(buffer);
    coll_bounce_t *b = NULL;
    for (coll_bounce_t **at = &comm->bounces; *at && !b; at = &(*at)->next)
        if ((*at)->room >= bytes && (*at)->room / 4 <= bytes + 4096 && (*at)->device.index == device.index) {
            b = *at;
            *at = b->next;
            break;
        }
    if (!b)
        b = make(comm, device, bytes);
    if (!b)
        return NULL;
    b->buffer = buffer;
    b->bytes = bytes;
    b->receives = kind == COLL_REQ_RECV;
    b->request = NULL;
    if (!b->receives && base_stream_copy(b->copies, b->memory, buffer, bytes) != GYRE_OK) {
        coll_bounce_give(b);
        return NULL;
    }
    return b;
}

void *coll_bounce_memory(coll_bounce_t *b)
{
    return b->memory;
}

static void finished(void *user, gyre_status_t status)
{
    coll_bounce_t *b = user;
    if (status == GYRE_OK && b->receives)
        b->request->status = base_stream_copy(b->copies, b->buffer, b->memory, b->bytes);
    coll_bounce_give(b);
}

void coll_bounce_attach(coll_bounce_t *b, gyre_request_t *r)
{
    b->request = r;
    r->finished = finished;
    r->user = b;
}

void coll_bounce_give(coll_bounce_t *b)
{
    b->next = b->comm->bounces;
    b->comm->bounces = b;
}

void coll_bounce_free_all(gyre_comm_t *comm)
{
    while (comm->bounces) {
        coll_bounce_t *b = comm->bounces;
        comm->bounces = b->next;
        destroy(b);
    }
}
