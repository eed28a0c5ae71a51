/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/group.c: gyre_group_start and gyre_group_end: this thread's calls between them are
 * collected, started together at the end, and then those that block are waited for. A group with a call
 * that was refused starts nothing. */
#include <stdio.h>

#include "base/error.h"
#include "collectives/run/communicator.h"

static _Thread_local struct {
    int depth;
    gyre_request_t *head, *tail;
    coll_first_t refused;
    const coll_device_ops_t *device; /* messages on a device were collected */
} group;

_Atomic uint32_t coll_groups;

void coll_first_note(coll_first_t *first, gyre_status_t status)
{
    if (status == GYRE_OK || first->status != GYRE_OK)
        return;
    first->status = status;
    snprintf(first->text, sizeof first->text, "%s", gyre_last_error());
}

gyre_status_t coll_first_end(const coll_first_t *first)
{
    return first->status == GYRE_OK ? GYRE_OK : gyre_fail_quiet(first->status, "%s", first->text);
}

gyre_status_t gyre_group_start(void)
{
    if (group.depth++ == 0)
        atomic_fetch_add_explicit(&coll_groups, 1, memory_order_relaxed);
    return GYRE_OK;
}

void coll_group_collect(gyre_request_t *r, gyre_request_t **request)
{
    r->next = NULL;
    if (group.tail)
        group.tail->next = r;
    else
        group.head = r;
    group.tail = r;
    r->collected = request ? COLL_COLLECTED_ASYNC : COLL_COLLECTED_BLOCKING;
    if (request)
        *request = r;
}

int coll_group_open_here(void)
{
    return group.depth > 0;
}

int coll_group_uses(const void *base, size_t bytes, comm_call_t *call)
{
    return coll_requests_use(group.head, base, bytes, call);
}

void coll_group_note_error(gyre_status_t status)
{
    if (group.depth > 0)
        coll_first_note(&group.refused, status);
}

void coll_group_note_device(const coll_device_ops_t *ops)
{
    group.device = ops;
}

/* Nothing of a group with a bad call is started: its requests end with that call's status. */
static void group_discard(gyre_request_t *list, gyre_status_t status)
{
    while (list) {
        gyre_request_t *r = list;
        list = r->next;
        int blocking = r->collected == COLL_COLLECTED_BLOCKING;
        r->collected = 0;
        if (coll_request_orphaned(r))
            continue;
        if (r->kind == COLL_REQ_DEVICE) { /* has been enqueued: cannot be taken back */
            if (blocking)
                (void)coll_request_wait(r); /* the group's own error is the one that is returned */
            continue;
        }
        coll_drive(r->comm);
        coll_request_finish(r, status);
        if (blocking) {
            r->comm->open--;
            coll_request_free_driving(r);
        }
        coll_stop_driving(r->comm);
    }
}

gyre_status_t gyre_group_end(void)
{
    if (group.depth == 0)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_group_end without gyre_group_start");
    if (group.depth == 1 && group.device) {
        const coll_device_ops_t *device = group.device;
        group.device = NULL;
        coll_group_note_error(device->group_end(group.refused.status));
    }
    if (--group.depth > 0)
        return GYRE_OK;
    atomic_fetch_sub_explicit(&coll_groups, 1, memory_order_relaxed);
    gyre_request_t *list = group.head;
    coll_first_t first;
    coll_first_begin(&first);
    group.head = group.tail = NULL;
    if (group.refused.status != GYRE_OK) {
        group_discard(list, group.refused.status);
        const gyre_status_t status = coll_first_end(&group.refused);
        group.refused.status = GYRE_OK;
        return status;
    }
    gyre_request_t *blocking = NULL, **end = &blocking;
    const base_time_t now = base_now();
    for (gyre_request_t *r = list, *next; r; r = next) {
        next = r->next;
        int waits = r->collected == COLL_COLLECTED_BLOCKING;
        r->collected = 0;
        r->group_next = NULL;
        if (waits) {
            *end = r;
            end = &r->group_next;
        }
        if (coll_request_orphaned(r))
            continue;
        gyre_comm_t *comm = r->comm; /* it may finish r, and a waiter elsewhere may free it */
        coll_request_enqueue(r, now);
        coll_registry_add(comm);
    }
    if (list && !blocking) { /* else the first wait moves all of them */
        int others;
        (void)coll_registry_advance(NULL, &others);
    }
    for (gyre_request_t *r = blocking, *next; r; r = next) {
        next = r->group_next;
        coll_first_note(&first, coll_request_wait(r));
    }
    return coll_first_end(&first);
}
