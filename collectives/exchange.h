/* collectives/exchange.h: small collectives among the ranks of one host as one exchange of outboxes (comm/exchange.h),
 * without a schedule. */
#ifndef COLL_EXCHANGE_H
#define COLL_EXCHANGE_H

#include "collectives/plan.h"
#include "comm/exchange.h"

enum { COLL_EXCHANGE_MOST = 16 << 10 }; /* bytes that a rank posts at most */

typedef enum { COLL_EXCHANGE_POSTS, COLL_EXCHANGE_WAITS } coll_exchange_state_t;

/* One operation under way. The first five are the caller's. */
typedef struct {
    gyre_comm_t *comm;
    const coll_plan_t *plan;
    const char *in;
    char *out;
    double scale;
    comm_tag_t tag;

    comm_exchange_t *x;
    coll_exchange_state_t state;
    int next;      /* everything that ranks below this posted has come */
    size_t posted; /* elements that this rank posts */
    const void *from[COMM_EXCHANGE_RANKS];
} coll_exchange_run_t;

/* 1 if a call of this shape can go this way: all ranks on one host, and the posts, which every rank must know the size of, short
 * enough. The same on all ranks. */
int coll_exchange_serves(const gyre_comm_t *comm, const coll_shape_t *shape, size_t esize);
/* Begins the communicator's next exchange; no other may be under way. The caller is driving. */
void coll_exchange_begin(coll_exchange_run_t *e);
/* A step further. OK: finished. IN_PROGRESS: nobody is to be waited for here. MISMATCH. The caller is driving. */
gyre_status_t coll_exchange_advance(coll_exchange_run_t *e);
/* Advances again and again, for a short and bounded while. */
gyre_status_t coll_exchange_spin(coll_exchange_run_t *e);
/* A rank that this operation waits for; -1: none. */
int coll_exchange_late(const coll_exchange_run_t *e);

#endif
