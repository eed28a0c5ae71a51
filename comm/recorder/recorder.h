/* SPDX-License-Identifier: Apache-2.0 */
/* comm/recorder/recorder.h: the flight recorder: what each rank is doing, in shared memory that outlives the
 * rank.
 *
 * ucx-run makes one for the ranks of a host and passes its descriptor (GYRE_RECORDER_FD). The rank with local
 * number i writes slot i; the launcher reads all slots when something fails. A process without ucx-run makes
 * a recorder for itself. It is a memfd, or a file below GYRE_RECORD (ucx-run --record), which remains when
 * all ranks are dead; gyre-doctor --job finds either. Plain stores, no system call.
 *
 *     0                 COMM_RECORDER_HEAD                                       the size of the memfd or
 *                       file
 *     | head | nothing  | slot 0 | slot 1 | ...                        | nothing |
 *
 * The head is written once, before another process sees the recorder. A rank writes its slot, except the last
 * fields, which the launcher writes. Readers check everything in it: file.h. */
#ifndef COMM_RECORDER_RECORDER_H
#define COMM_RECORDER_RECORDER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread/bias.h"

/* COMM_CALL_P2P: a send, or with COMM_CALL_RECV a receive; root is the peer and seq counts that pair's
 * messages. COMM_CALL_DEVICE: on the memory of a device. COMM_CALL_REGISTERED: on registered device memory
 * that peers read directly. COMM_CALL_CAPTURED: into a graph. COMM_CALL_V: with a count per rank, as
 * all_to_allv. COMM_CALL_INSIDE: another call of the program made it; redop says which (coll_inside_t). */
typedef enum {
    COMM_CALL_SCALED = 1,
    COMM_CALL_RECV = 2,
    COMM_CALL_P2P = 4,
    COMM_CALL_DEVICE = 8,
    COMM_CALL_REGISTERED = 16,
    COMM_CALL_CAPTURED = 32,
    COMM_CALL_V = 64,
    COMM_CALL_INSIDE = 128
} comm_call_flags_t;

/* One call with its arguments: enough to report it and to compare ranks. 40 bytes, no pointers, since it
 * travels in messages and lies in shared memory. */
typedef struct {
    uint32_t seq;      /* number of the call on its communicator, from 1 */
    uint8_t op;        /* coll_op_t; 0: no call */
    uint8_t type;      /* gyre_type_t */
    uint8_t redop;     /* gyre_redop_kind_t */
    uint8_t flags;     /* comm_call_flags_t */
    int32_t root;      /* or peer; -1: no root */
    uint32_t sig;      /* hash of all that must agree */
    uint64_t count;    /* elements as the caller gave them */
    uint32_t algo;     /* coll_algo_t */
    uint32_t comm;     /* low bits of the communicator id */
    uint32_t user_tag; /* gyre_options_t.tag; 0: none. Ranks need not agree on it */
    uint32_t reserved; /* 0 */
} comm_call_t;

enum { COMM_RECORDER_CALLS = 16 };

typedef struct {
    _Atomic uint32_t state; /* 0 unused, 1 idle, 2 in a call, 3 failed, 4 left gracefully */
    int32_t rank;
    int32_t pid;
    _Atomic uint32_t head;       /* calls recorded so far; call k lies in calls[k % COMM_RECORDER_CALLS] */
    _Atomic int64_t started_ns;  /* base_now() at the start of the newest call */
    _Atomic int32_t waiting_for; /* rank that the newest call waits for; -1: no rank */
    /* writes under way that must be finished: the launcher puts SIGKILL off until there are none */
    _Atomic uint32_t finishing;
    comm_call_t calls[COMM_RECORDER_CALLS];
    char error[512]; /* last-error text once state is 3 */
    /* written by the launcher: */
    _Atomic int32_t child;    /* process id; 0: not started */
    _Atomic int32_t status;   /* as waitpid gives it, once ended_ns is set */
    _Atomic int64_t ended_ns; /* base_now() when it was found dead; 0: not found dead */
} __attribute__((aligned(64))) comm_recorder_slot_t;

enum { COMM_RECORDER_HEAD = 4096, COMM_RECORDER_VERSION = 1, COMM_RECORDER_SLOTS_MAX = 1 << 16 };

/* Every version has magic, version, slot_bytes and job where they are here. */
typedef struct {
    char magic[8]; /* "GYREREC\n" */
    uint32_t version, slot_bytes;
    int32_t slots, size; /* on this host; ranks of the job, on all hosts */
    int32_t maker;       /* process id of ucx-run or of the rank itself */
    int32_t launcher;    /* 1: ucx-run made it and notes which processes end, and how */
    int64_t made_ns;     /* base_now() */
    int64_t wall_ns;     /* the wall clock at that time, since 1970 */
    char boot[40];       /* the host's boot: base_now() of different boots cannot be compared */
    char job[64], host[256];
} comm_recorder_head_t;

/* Bytes of a recorder for `slots` ranks. */
size_t comm_recorder_bytes(int slots);
/* Opens this process's slot: in GYRE_RECORDER_FD (slot GYRE_LOCAL_RANK), or in a recorder of its own. Of
 * several jobs of a process the first has that slot, the next the recorder. Never fails: falls back to memory
 * that no other process sees. */
comm_recorder_slot_t *comm_recorder_open(const char *job, int rank, int size);
/* Closes the slot. A file that this process made is removed if the rank left without an error. */
void comm_recorder_close(comm_recorder_slot_t *slot);
/* A write that must be finished begins (1) or has ended (0). From any thread, also before the slot is opened
 * and after it is closed: the launcher sees the number of the process, as long as it has had a slot. */
void comm_recorder_hold(int begins);
/* Hot path: begin and end of a call. Threads of one process take turns. `now`: base_now(), which the caller
 * has read already. */
static inline void comm_recorder_begin(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now);
/* Notes that the newest call has been waiting for `rank` for a while. */
static inline void comm_recorder_wait(comm_recorder_slot_t *slot, int rank)
{
    atomic_store_explicit(&slot->waiting_for, rank, memory_order_relaxed);
}
/* Notes that the newest call began at `now` or shortly before: for long calls whose beginning passed `now` =
 * 0. */
static inline void comm_recorder_since(comm_recorder_slot_t *slot, int64_t now)
{
    atomic_store_explicit(&slot->started_ns, now, memory_order_relaxed);
}
/* What this process's own slot holds, read by any of its threads: for the ranks that wait for this rank. */
enum { COMM_DOING_CALLS = 3 };
typedef struct {
    uint32_t state;                      /* the slot's */
    int waiting_for;                     /* world rank that the newest call waits for; -1: no rank */
    double seconds;                      /* since the newest call began; < 0: just now */
    int calls_n;                         /* recorded, COMM_DOING_CALLS at most */
    comm_call_t calls[COMM_DOING_CALLS]; /* newest first */
} comm_doing_t;
void comm_recorder_doing(comm_recorder_slot_t *slot, comm_doing_t *doing);
static inline void comm_recorder_end(comm_recorder_slot_t *slot)
{
    if (atomic_load_explicit(&slot->state, memory_order_relaxed) == 2)
        atomic_store_explicit(&slot->state, 1, memory_order_release);
}
void comm_recorder_fail(comm_recorder_slot_t *slot, const char *text);
/* The process could not join: its launcher sees why. A recorder of its own is removed by comm_recorder_close,
 * since the next attempt makes one of the same name. */
void comm_recorder_fail_join(comm_recorder_slot_t *slot, const char *text);

/* Held while a thread of this process records. Not in the slot: a process that dies must not leave it taken
 * there. */
extern base_bias_t comm_recorder_turn;
/* In turn. */
static inline void comm_recorder_write(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now)
{
    uint32_t head = atomic_load_explicit(&slot->head, memory_order_relaxed);
    slot->calls[head % COMM_RECORDER_CALLS] = *call;
    atomic_store_explicit(&slot->waiting_for, -1, memory_order_relaxed);
    atomic_store_explicit(&slot->started_ns, now, memory_order_relaxed);
    atomic_store_explicit(&slot->head, head + 1, memory_order_release); /* the call before its number */
    atomic_store_explicit(&slot->state, 2, memory_order_release);
}
/* Where other threads record, too. */
void comm_recorder_begin_late(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now);
static inline void comm_recorder_begin(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now)
{
    if (!base_bias_enter(&comm_recorder_turn)) {
        comm_recorder_begin_late(slot, call, now);
        return;
    }
    comm_recorder_write(slot, call, now);
    base_bias_exit(&comm_recorder_turn);
}

#endif
