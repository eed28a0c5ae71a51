/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/call.h: a collective call with its arguments checked, as collectives/api/calls.c passes
 * it on: to a plan of this module, or to collectives/gpu where its buffers are in a device's memory. */
#ifndef COLLECTIVES_RUN_CALL_H
#define COLLECTIVES_RUN_CALL_H

#include <gyre/cuda.h>

#include "collectives/run/communicator.h"

/* Extents in elements; 0: this rank does not use that buffer. */
typedef struct {
    const char *name;
    gyre_comm_t *comm;
    coll_shape_t shape;
    const void *send;
    void *recv;
    size_t send_count, recv_count;
    size_t shown; /* the count as the caller gave it */
    int v;        /* the form with a count per rank */
    double scale;
    uint32_t tag; /* comm_call_t.user_tag */
    int streamed; /* gyre_x_stream: on `stream` */
    gyre_cuda_stream_t stream;
    gyre_request_t **request; /* NULL: blocking, or streamed */
    coll_finished_fn finished;
    void *user;
    gyre_plan_t **plan;          /* not NULL: made into a persistent operation, instead of being started */
    _Atomic uint32_t *under_way; /* of a persistent operation that is started; or NULL */
} coll_call_t;

/* Two ways of a call on host memory that holds its plan. call: as the others see it, but for its number. The
 * caller is driving, and stops driving here.
 *
 * As a request. */
gyre_status_t coll_call_queue(const coll_call_t *c, coll_plan_t *plan, const comm_call_t *call);
/* Blocking, by an exchange, with nothing else in the queue: at once, without a request as long as the others
 * are on time. */
gyre_status_t coll_call_exchange(const coll_call_t *c, coll_plan_t *plan, comm_call_t *call);
/* The others were not: the exchange that has begun becomes a request. */
gyre_status_t coll_call_wait(const coll_call_t *c, coll_plan_t *plan, const comm_call_t *call);

/* Calls of one kind meet in their parts, no others do. Those that make communicators are one: they tell each
 * other what they are, and leave `comm` usable when they differ. */
static inline uint32_t coll_inside_kind(coll_inside_t inside)
{
    return inside == COLL_INSIDE_DUP || inside == COLL_INSIDE_SPLIT_TYPE ? COLL_INSIDE_SPLIT : inside;
}

/* Starts a checked call on host memory with its plan. The caller is driving, and stops driving here. */
static inline gyre_status_t coll_call_run(const coll_call_t *c, coll_plan_t *plan)
{
    comm_call_t call = plan->call;
    call.count = c->shown;
    call.user_tag = c->tag;
    if (c->shape.inside) {
        call.redop = c->shape.inside;
        call.flags |= COMM_CALL_INSIDE;
        call.sig = (call.sig + coll_inside_kind((coll_inside_t)c->shape.inside)) * 0x9E3779B1u;
        call.user_tag = c->shape.inside == COLL_INSIDE_EXACT ? c->tag : 0;
    }
    coll_plan_hold(plan); /* the end of the call releases it */
    if (plan->oneshot && !c->request && !c->comm->head && !coll_group_open())
        return coll_call_exchange(c, plan, &call);
    return coll_call_queue(c, plan, &call);
}

#endif
