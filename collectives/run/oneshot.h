/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/oneshot.h: small collectives among the ranks of one host as one exchange of outboxes
 * (comm/memory/outbox.h), without a schedule. */
#ifndef COLLECTIVES_RUN_ONESHOT_H
#define COLLECTIVES_RUN_ONESHOT_H

#include "collectives/run/plan.h"
#include "comm/memory/outbox.h"

enum {
    COLL_ONESHOT_MOST = 16 << 10, /* bytes that a rank posts at most */
    COLL_ONESHOT_PIECES = 32      /* exchanges of a longer broadcast, at most */
};

typedef enum { COLL_ONESHOT_POSTS, COLL_ONESHOT_WAITS } coll_oneshot_state_t;

/* A communicator's exchange under way. The first five are the caller's. */
typedef struct {
    const coll_plan_t *plan;
    const char *in;
    char *out;
    double scale;
    comm_tag_t tag;

    /* The same in all of the communicator's. */
    gyre_comm_t *comm;
    comm_outbox_t *x;
    int takes; /* 1: it takes the lines of what it has read (base/thread/cacheline.h) */

    const coll_oneshot_part_t *part; /* the plan's, of the present exchange */
    uint32_t left;                   /* exchanges of the call that follow */
    coll_oneshot_state_t state;
    int next;             /* the lowest rank whose post is needed and has not come; >= part.end: none */
    gyre_status_t failed; /* what the program's own operation returned: the communicator fails then */
    const void *from[COMM_OUTBOX_RANKS];
} coll_oneshot_run_t;

/* 1 if a call of this shape can go this way: all ranks on one host, and the posts, which every rank must know
 * the size of, short enough. The same on all ranks. */
int coll_oneshot_serves(const gyre_comm_t *comm, const coll_shape_t *shape, size_t esize);
/* Sets plan->part, for a plan that goes this way and whose shape is spelled out, and has the memory mapped
 * that its posts use. */
void coll_oneshot_prepare(gyre_comm_t *comm, coll_plan_t *plan);
/* Begins the communicator's next exchange, and posts if there is room; no other may be under way. The caller
 * is driving. */
void coll_oneshot_begin(coll_oneshot_run_t *e);
/* A step further. OK: finished. IN_PROGRESS: call again; this call does not wait. MISMATCH; an error of
 * the program's own operation, again and again. The caller is driving. */
gyre_status_t coll_oneshot_advance(coll_oneshot_run_t *e);
/* A rank that this operation waits for; -1: none. */
int coll_oneshot_late(const coll_oneshot_run_t *e);

#endif
