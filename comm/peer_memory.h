/* SPDX-License-Identifier: Apache-2.0 */
/* comm/peer_memory.h: the memory of another rank of this host: read and written where it lies.
 *
 *     place     where a buffer lies: its owner sends it, in a message's head (comm/shm) or in an announcement
 *     map       where that is mapped here, if it lies in a window (comm/memory)
 *     read, write   by the kernel (process_vm_readv, process_vm_writev), if it does not
 *
 * There is one object for each peer of a group, for all links with the peer and for collectives
 * (collectives/run/reach/joint.h). The object belongs to the thread that drives the group. Messages or a
 * schedule decide which rank may touch which bytes at which time.
 *
 * After a rank has given up, no peer may write to its memory. So a rank that works in others' memory without
 * messages announces that (enter), and so does a receiver that takes the lines of what it has read (take). A
 * rank whose group failed closes its memory and waits for the ranks that are inside (close). A rank that only
 * reads is not waited for: it looks afterwards whether the memory was closed meanwhile (closed). */
#ifndef COMM_PEER_MEMORY_H
#define COMM_PEER_MEMORY_H

#include "comm/memory/memory.h"
#include "comm/transport.h"

/* Where a buffer of a rank lies, for its local peers. */
typedef struct {
    uint64_t window, offset; /* window 0: in none */
    uint64_t address;        /* in that rank's address space */
} comm_place_t;

/* Also shows peers what is in the buffer (comm_mem_show). */
comm_place_t comm_place_of(const void *ptr, size_t bytes);

typedef struct comm_peer_memory comm_peer_memory_t;

/* That of `peer`, which shares this host; made at the first call, and gone with the group's links. NULL: no
 * memory. */
comm_peer_memory_t *comm_peer_memory(comm_group_t *group, int peer);

/* OK: *at is where `bytes` at `place` are mapped here. IN_PROGRESS: not yet, call again. UNSUPPORTED (quiet):
 * they are in no window, or it cannot be mapped: use read and write. */
gyre_status_t comm_peer_memory_map(comm_peer_memory_t *memory, const comm_place_t *place, size_t bytes,
                                   void **at);
/* Keeps what was mapped for `place` just now, until comm_mapping_release: however many other windows are
 * mapped, and even if its owner frees it. */
comm_mapping_t *comm_peer_memory_hold(comm_peer_memory_t *memory, const comm_place_t *place);
/* Copies `bytes` at `offset` from `place`, of a peer's input, or to it, of its output. IN_PROGRESS: the peer
 * may have died, call again. TRANSPORT at once (quiet): it lives, and the kernel does not let others reach
 * this memory (EFAULT). */
gyre_status_t comm_peer_memory_read(comm_peer_memory_t *memory, const comm_place_t *place, size_t offset,
                                    void *to, size_t bytes);
gyre_status_t comm_peer_memory_write(comm_peer_memory_t *memory, const comm_place_t *place, size_t offset,
                                     const void *from, size_t bytes);
/* After a failure that may be the peer's death, which the watcher may learn of a moment later. IN_PROGRESS:
 * that moment is not over. Then what comm_group_lost says; OK: the peer lives. */
gyre_status_t comm_peer_memory_lost(comm_peer_memory_t *memory);

/* 1: every rank of the group can reach all memory of every other: the same answer on all ranks. */
int comm_peer_memory_all(const comm_group_t *group);
/* Before and after touching any of it without messages. 0: a rank has closed its memory; its failure will be
 * reported. */
int comm_peer_memory_enter(comm_group_t *group);
void comm_peer_memory_leave(comm_group_t *group);
/* 1: the peer's operations have failed, so its program may be writing to the buffers again. To be asked after
 * they were read: what was read is not to be used then. The peer's failure will be reported. */
int comm_peer_memory_closed(const comm_peer_memory_t *memory);
/* base_take_within of what this rank alone has read of the peer's memory, before the peer learns that it was
 * read. Nothing is written if the peer has failed meanwhile. The caller is not inside. */
void comm_peer_memory_take(comm_peer_memory_t *memory, void *at, size_t bytes);
/* From now on no peer writes to this rank's memory. Waits for the ranks that still do, until they are known
 * to be dead, at most GYRE_HEARTBEAT and a second. Then it ends their processes. */
void comm_peer_memory_close(comm_group_t *group);

#endif
