/* comm/peer_memory.h: working in the memory of other ranks of this host, without messages.
 *
 * Between an announcement (a comm_place_t that a rank sends) and a notice (that the others are done), its peers may read
 * and write the announced buffers: through a mapping where these lie in windows, else by process_vm_readv and
 * process_vm_writev. Who may touch what meanwhile is the schedule's business (collectives/run/joint.h).
 *
 * A rank that gives up early must not have its memory written to afterwards. So who works in others' memory says so
 * (comm_reach_enter), and a rank whose communicator failed closes its memory and waits for those who are inside
 * (comm_reach_close). */
#ifndef COMM_PEER_MEMORY_H
#define COMM_PEER_MEMORY_H

#include "comm/transport.h"

/* Where a buffer of a rank lies, for its local peers. */
typedef struct {
    uint64_t window, offset; /* window 0: in none */
    uint64_t address;        /* in that rank's address space */
} comm_place_t;

/* 1: every rank of the group can reach all memory of every other: the same answer on all ranks. */
int comm_reach_all(const comm_group_t *group);

comm_place_t comm_reach_place(const void *ptr, size_t bytes);

/* OK: *at is where `bytes` of `peer` at `place` are mapped here. IN_PROGRESS: not yet, call again. UNSUPPORTED (quiet): they
 * are in no window, or it cannot be mapped: use read and write. */
gyre_status_t comm_reach_map(comm_group_t *group, int peer, const comm_place_t *place, size_t bytes,
                             void **at);
/* Copies `bytes` at `offset` from `place`, of a peer's input, or to it, of its output. IN_PROGRESS: the peer may have died, call
 * again. TRANSPORT at once (quiet): it lives, and the kernel does not let others reach this memory (EFAULT). */
gyre_status_t comm_reach_read(comm_group_t *group, int peer, const comm_place_t *place, size_t offset,
                              void *to, size_t bytes);
gyre_status_t comm_reach_write(comm_group_t *group, int peer, const comm_place_t *place, size_t offset,
                               const void *from, size_t bytes);

/* Before and after touching any of it. 0: a rank has closed its memory; its failure will be told. */
int comm_reach_enter(comm_group_t *group);
void comm_reach_leave(comm_group_t *group);
/* From now on nobody touches this rank's memory; waits up to a second for those who do. */
void comm_reach_close(comm_group_t *group);

#endif
