/* SPDX-License-Identifier: Apache-2.0 */
/* call.h: one call of a collective: methods.c sorts its arguments, collectives.c checks and makes it. */
#ifndef GYRE_PYTHON_CALL_H
#define GYRE_PYTHON_CALL_H

#include "binding.h"

enum argument {
    SEND,
    RECV,
    BUFFER,
    OP,
    ROOT,
    PEER,
    COUNTS,
    DISPLS,
    SEND_COUNTS,
    SEND_DISPLS,
    RECV_COUNTS,
    RECV_DISPLS,
    TO,
    FROM,
    SCALE,
    TYPE,
    ARGUMENTS,
    LIST_END
};
extern const char *const argument_names[ARGUMENTS];

typedef struct call call_t;
typedef struct {
    const char *name;
    enum argument takes[11]; /* in order, up to LIST_END */
    int needs;               /* how many of them must be given */
    int (*run)(call_t *call);
} collective_t;

/* One call. */
struct call {
    const collective_t *of;
    PyObject *given[ARGUMENTS]; /* borrowed; NULL: not given, or None */
    comm_t *comm;
    gyre_comm_t *handle;
    array_t send, recv;
    size_t *lists[ARGUMENTS]; /* of the arguments that are lists */
    int *ranks[2];            /* TO and FROM */
    gyre_redop_t op;
    int root;
    gyre_request_t **request; /* both NULL: the call blocks */
    gyre_plan_t **plan;
    gyre_status_t status;
};

/* They take the arrays, check the sizes and call Gyre without the GIL: call->status. -1: a Python exception
 * is set, and nothing was called. prefix: scan and exscan. */
int run_all_reduce(call_t *call);
int run_reduce_scatter(call_t *call);
int run_reduce_scatterv(call_t *call);
int run_reduce(call_t *call);
int run_prefix(call_t *call);
int run_broadcast(call_t *call);
int run_all_gather(call_t *call);
int run_all_gatherv(call_t *call);
int run_gather(call_t *call);
int run_gatherv(call_t *call);
int run_scatter(call_t *call);
int run_scatterv(call_t *call);
int run_all_to_all(call_t *call);
int run_all_to_allv(call_t *call);
int run_barrier(call_t *call);
int run_send(call_t *call);
int run_recv(call_t *call);
int run_neighbor_exchange(call_t *call);

#endif
