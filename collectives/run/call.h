/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/call.h: a collective call with its arguments checked, as collectives/api/calls.c passes
 * it on: to a plan of this room, or to collectives/gpu where its buffers are in a device's memory. */
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
    coll_inside_t inside;
    double scale;
    uint32_t tag;             /* comm_call_t.user_tag */
    gyre_request_t **request; /* NULL: blocking, or streamed */
    coll_finished_fn finished;
    void *user;
    gyre_cuda_stream_t stream;
    int streamed;                /* gyre_x_stream: on `stream` */
    gyre_plan_t **plan;          /* not NULL: made into a persistent operation, instead of being started */
    _Atomic uint32_t *under_way; /* of a persistent operation that is started; or NULL */
} coll_call_t;

#endif
