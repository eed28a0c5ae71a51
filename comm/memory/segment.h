/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/segment.h: the shared memory of one group on one host: who writes what, and where it lies.
 *
 * One per group and host, made by the lowest rank there: a memfd of its own, or a place in that of the job's
 * first group (backing.h). GYRE_SHM_BUDGET is for up to COMM_BUDGET_RANKS ranks; each further rank has as
 * much as each of those. Only pages that are used become memory, on the NUMA node of the rank that writes to
 * them first: that is the rank whose outbox or buffer it is.
 *
 *     +------------------+ 0
 *     | header           |  written once by the maker, before it is offered
 *     +------------------+ cells_at
 *     | cell of each local                    | written once by the maker, before it is offered
 *     +------------------+ locals_at
 *     | local 0: bell, board, CMA results     | each written by its owner (the bell also by those who ring
 *     it)
 *     | local 1: ...                          |
 *     +------------------+ outbox_at (none if there are too many ranks for the budget)
 *     | outbox of local 0, of local 1, ...    |  written by their owners; comm/memory/outbox.h
 *     +------------------+ pool_at (none if rings are long)
 *     | buffers of local 0, of local 1, ...   |  written by their owners; comm/memory/pool.h
 *     +------------------+ lane_at[0]
 *     | lane 0: 0 -> 1: control line, slots   | control written by the receiver, slots by the sender
 *     |         0 -> 2: ...                   |
 *     +------------------+ lane_at[1]
 *     | lane 1: ...                           |  a lane that nobody uses takes no memory
 *     +------------------+
 *
 * All numbers that are read from the segment are taken from the header once, checked against its size, and
 * kept in private memory. */
#ifndef COMM_MEMORY_SEGMENT_H
#define COMM_MEMORY_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <gyre/status.h>

#include "comm/memory/backing.h"
#include "comm/memory/bell.h"
#include "comm/memory/outbox.h"
#include "comm/memory/pool.h"
#include "comm/recorder/recorder.h"
#include "comm/memory/message.h"

enum {
    COMM_LINE = 64,       /* cache line: unit of the layout */
    COMM_BUDGET_RANKS = 8 /* that share one GYRE_SHM_BUDGET */
};

/* A rank's newest calls, one per cache line. A sequence number guards each call: odd while the call is
 * written. There are several, because a rank that only sends may have made its next call before a peer finds
 * a mismatch. */
enum { COMM_CALL_WORDS = sizeof(comm_call_t) / 8, COMM_BOARD_CALLS = 8 };
typedef struct {
    _Atomic uint64_t seq; /* 0: no call yet; else 2 * (number of the post) once it is complete */
    _Atomic uint64_t words[COMM_CALL_WORDS];
} __attribute__((aligned(64))) comm_board_entry_t;
typedef struct comm_board {
    comm_board_entry_t entry[COMM_BOARD_CALLS];
    uint64_t posts; /* the owner's own count; nobody else reads it */
    /* See comm/peer_memory.h. Others read the cache line of `inside` only after a failure. The line of
     * `closed` never changes before a failure. */
    _Atomic uint32_t inside;                              /* 1: the owner works in others' memory */
    _Atomic uint32_t closed __attribute__((aligned(64))); /* 1: no rank may work in the owner's memory */
} __attribute__((aligned(64))) comm_board_t;

/* Written by the receiver of a ring, read by its sender. */
typedef struct {
    _Atomic uint64_t consumed; /* slots that the receiver is done with */
    /* Bit r % 64 flips when rendezvous message r is done with. A sender has at most 64 of them open and waits
     * for the answer to message r before it sends message r + 64, so one bit is enough. */
    _Atomic uint64_t acks;
    uint64_t pad[6];
} __attribute__((aligned(64))) comm_ring_ctl_t;

typedef struct {
    unsigned char *base; /* NULL: none */
    size_t bytes;
    comm_backing_t *backing; /* the file in which it lies, borrowed; NULL: one of its own */
    uint64_t at;             /* its offset there */
    comm_room_t *room;       /* where it is mapped; NULL: for this group alone */
    int kept;                /* 1: the place is used again after this group (rooms.h) */
    uint32_t lines;          /* set before it is closed: of each outbox, at most this rank has used so many */
    int soiled;              /* likewise; 1: this rank has used more than its area and these lines */
    int locals;              /* places for ranks; some may be empty */
    int local;               /* ours */
    uint32_t slots[COMM_LANES]; /* per ring; powers of two */
    comm_outbox_shape_t outbox; /* lines 0: none */
    uint32_t buffers;           /* of each rank's pool; 0: none */
    size_t cells_at, locals_at, local_stride, outbox_at, outbox_stride, pool_at, lane_at[COMM_LANES];
} comm_segment_t;

/* budget: GYRE_SHM_BUDGET. Bytes that a segment for `locals` ranks may have, unless its smallest form has
 * more. */
size_t comm_segment_budget(size_t budget, int locals);
/* Makes a segment for `locals` ranks: in the backing file, then *fd is -1, or, if there is none or it is
 * full, in a file of its own, that can back later ones if the process may make it so long. *fd:
 * close-on-exec, sealed against shrinking, owned by the caller. */
gyre_status_t comm_segment_create(size_t budget, int locals, uint64_t cookie, comm_backing_t *backing,
                                  comm_segment_t *seg, int *fd);
/* Maps one that was fetched. UNSUPPORTED (quiet) if it is not the one with `cookie` for `locals` ranks. */
gyre_status_t comm_segment_open(int fd, int locals, uint64_t cookie, comm_segment_t *seg);
/* Maps one that lies in the backing file. at: its offset there, as its maker says. Errors as above. */
gyre_status_t comm_segment_open_in(comm_backing_t *backing, uint64_t at, int locals, uint64_t cookie,
                                   comm_segment_t *seg);
/* Maps one for `locals` ranks in a room that its maker has reserved there (rooms.h), all zeros, and lays it
 * out as `budget`, the maker's, asks: all ranks know the layout, and none reads what another wrote.
 * NO_MEMORY. */
gyre_status_t comm_segment_enter(comm_backing_t *backing, uint64_t room, size_t budget, int locals,
                                 comm_segment_t *seg);
/* Bytes of a room that takes the segment of any number of ranks up to `locals`. */
size_t comm_segment_room(size_t budget, int locals);
void comm_segment_close(comm_segment_t *seg);
/* Says in the segment, which lies in the backing file, what this rank has used, and that it has left. 1: it
 * is the last one. For comm_segment_close and comm_room_leave. */
int comm_segment_leave(const comm_segment_t *seg);
/* By the last rank of all. If much was used, all but the header goes back to the system. */
void comm_segment_unsoil(const comm_segment_t *seg);
/* Of a segment that was closed here, and is still mapped. 1: all its ranks have closed it, and little of it
 * takes memory. */
int comm_segment_left_by_all(const comm_segment_t *seg);
/* Makes such a segment all zeros again; keep: by writing them. 0: that failed. */
int comm_segment_clean(comm_backing_t *backing, const comm_segment_t *seg, int keep);

/* Bytes of the longest message that an empty ring takes whole. 0: one packet is all. The second: of the
 * segment that would be made for `locals` ranks. */
size_t comm_segment_ring_holds(const comm_segment_t *seg, int lane);
size_t comm_segment_ring_would_hold(size_t budget, int locals, int lane);

/* Has the pages of [at, at + bytes) mapped now, so that no message meets a page fault (25 us of it were seen
 * in a virtual machine). Where the kernel does not know the advice (before 5.14) they come one by one. */
void comm_segment_populate(const void *at, size_t bytes);

/* The area of a rank begins with its bell. */
static inline comm_bell_t *comm_segment_bell(const comm_segment_t *seg, int local)
{
    return (comm_bell_t *)(void *)(seg->base + seg->locals_at + (size_t)local * seg->local_stride);
}
comm_board_t *comm_segment_board(const comm_segment_t *seg, int local);
/* [locals] which of them are near each other (comm/cells.c). */
int32_t *comm_segment_cells(const comm_segment_t *seg);
/* One byte: 1 if `reader` was able to read the memory of `owner` with process_vm_readv. Written by
 * `reader`. */
_Atomic unsigned char *comm_segment_cma(const comm_segment_t *seg, int reader, int owner);
/* Where the outbox of a rank lies, and a buffer of its pool. */
unsigned char *comm_segment_outbox(const comm_segment_t *seg, int local);
unsigned char *comm_segment_buffer(const comm_segment_t *seg, int local, uint32_t buffer);
/* The ring from local rank `from` to local rank `to`: its control line, followed by its slots. */
comm_ring_ctl_t *comm_segment_ring(const comm_segment_t *seg, int from, int to, int lane);

/* A sequence lock with one writer. The words are atomics so that a torn read is a value, not undefined
 * behaviour; the sequence shows whether it was torn. */
static inline void comm_board_post(comm_board_t *board, const comm_call_t *call)
{
    comm_board_entry_t *e = &board->entry[board->posts % COMM_BOARD_CALLS];
    const uint64_t seq = 2 * ++board->posts;

    atomic_store_explicit(&e->seq, seq - 1, memory_order_relaxed);
    /* Each word is stored with release: a reader that acquires the word also sees the odd number before it.
     * On x86 this costs nothing; on Arm five stlr per call. */
    uint64_t word[COMM_CALL_WORDS];
    _Static_assert(COMM_CALL_WORDS == 5, "all are stored, without a loop, whose steps would cost more");
    memcpy(word, call, sizeof word);
    atomic_store_explicit(&e->words[0], word[0], memory_order_release);
    atomic_store_explicit(&e->words[1], word[1], memory_order_release);
    atomic_store_explicit(&e->words[2], word[2], memory_order_release);
    atomic_store_explicit(&e->words[3], word[3], memory_order_release);
    atomic_store_explicit(&e->words[4], word[4], memory_order_release);
    /* Release: all words are visible before the even number. */
    atomic_store_explicit(&e->seq, seq, memory_order_release);
}
/* The newest call. 0: none posted, or never still. */
int comm_board_read(comm_board_t *board, comm_call_t *call);
/* The newest call with number `seq` that is (p2p: with rank `peer`) or is not point to point. 0: not there
 * any more. */
int comm_board_find(comm_board_t *board, uint32_t seq, int p2p, int peer, comm_call_t *call);
/* The same for the board's owner, who needs no guard against a concurrent writer. *call is overwritten in any
 * case. Searches the newest call first: that is nearly always the right one. */
int comm_board_find_own(const comm_board_t *board, uint32_t seq, int p2p, int peer, comm_call_t *call);

#endif
