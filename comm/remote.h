/* SPDX-License-Identifier: Apache-2.0 */
/* comm/remote.h: memory of ranks on other hosts, written and read without a call of their program, by the
 * group's network.
 *
 * Every rank exposes a range and passes the key on to all. Then each moves bytes to and from the ranges
 * of the others. What was moved has arrived once a flush has returned OK. All calls are made by one
 * thread at a time, and none waits. */
#ifndef COMM_REMOTE_H
#define COMM_REMOTE_H

#include "comm/transport.h"

enum { COMM_REMOTE_KEY = 240 };

/* What another rank needs to reach a range. */
typedef struct {
    uint64_t base;
    uint32_t bytes, pad; /* of data; 0: the owner has exposed nothing */
    unsigned char data[COMM_REMOTE_KEY];
} comm_remote_key_t;

/* A transport's record of what one rank has exposed, and of the keys of the others. */
typedef struct comm_remote comm_remote_t;

/* UNSUPPORTED, quiet: the network of the group cannot do it, and the text names that. */
gyre_status_t comm_remote_check(const comm_group_t *group);
/* Exposes [base, base + bytes) to all ranks of the group until comm_remote_conceal, or the group's end. */
gyre_status_t comm_remote_expose(comm_group_t *group, void *base, size_t bytes, comm_remote_key_t *key,
                                 comm_remote_t **out);
/* keys: [n], what the ranks have exposed; copied. NO_MEMORY. */
gyre_status_t comm_remote_know(comm_group_t *group, comm_remote_t *remote, const comm_remote_key_t *keys);
void comm_remote_conceal(comm_group_t *group, comm_remote_t *remote);
/* Begins to write to (or read from) the range of `peer`, `offset` bytes from its base. IN_PROGRESS: it has
 * not begun, call again. OK: `local` is in use until comm_remote_flush returns OK, or the group has ended.
 * TRANSPORT, or a death. */
gyre_status_t comm_remote_move(comm_group_t *group, comm_remote_t *remote, int peer, int writes,
                               size_t offset, void *local, size_t bytes);
/* Memory that was exposed, and that its owner frees though others may still be moving bytes: UCX's emulation
 * over TCP copies to and from addresses without asking whose they are. */
typedef struct comm_retired {
    struct comm_retired *next; /* a transport's */
    void *base;                /* of comm_mem_alloc_shared */
} comm_retired_t;
/* comm_mem_free(retired->base), once no network of this process can reach it. Takes `retired`, from malloc,
 * over. Any thread. */
gyre_status_t comm_remote_retire(comm_retired_t *retired);
/* OK: all that this rank has moved to and from `peer` in this group is there. IN_PROGRESS: call again. */
gyre_status_t comm_remote_flush(comm_group_t *group, int peer);

#endif
