/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/bootstrap.h: how the ranks of a job find and trust each other, before any fast path exists.
 *
 *  1. Rank 0 listens on the rendezvous address.
 *  2. Every other rank connects to rank 0 and proves that it knows the job secret (mutual challenge,
 *     libsodium). All later frames carry a MAC and a counter.
 *  3. Rank 0 sends each rank its parent in a binomial tree over ranks. A rank then keeps O(log n)
 *     connections: one to its parent, one from each child.
 *
 * Collectives of the bootstrap run on the tree in O(log n) rounds. Every wait has a deadline.
 *
 * After init, the same connections are given to the watcher (comm/watch/watch.h). The watcher sleeps in
 * poll(2) and sends heartbeats (heartbeat.c). A death or an abort reaches every rank within a few tree
 * hops. */
#ifndef COMM_BOOT_BOOTSTRAP_H
#define COMM_BOOT_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#include "base/clock.h"
#include "comm/launch/identity.h"
#include "comm/recorder/recorder.h"

typedef struct comm_boot comm_boot_t;

/* Joins. Returns when all ranks are connected to their parents and children, or on all ranks with an error.
 * Errors: BOOTSTRAP (port in use, unreachable root: says what to do), AUTH, TIMEOUT (names the ranks that
 * have not arrived, at rank 0). */
gyre_status_t comm_boot_join(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out);

/* Collective. all: [size * bytes], in rank order. 2 ceil(log2 n) rounds. A rank that fails (TIMEOUT,
 * PEER_DEAD, MISMATCH: it names the ranks' calls) makes the call fail on all ranks with its text; the next
 * one starts afresh. */
gyre_status_t comm_boot_all_gather(comm_boot_t *boot, const void *mine, size_t bytes, void *all,
                                   base_time_t deadline);
gyre_status_t comm_boot_barrier(comm_boot_t *boot, base_time_t deadline);
/* Collective: sends rank 0's data to all. data: [room]. *bytes: in: rank 0's length (others: ignored), out:
 * the length. If rank 0 passes a `status` other than OK (others pass OK), all ranks fail with that status and
 * rank 0's last error text. */
gyre_status_t comm_boot_share(comm_boot_t *boot, gyre_status_t status, void *data, size_t room, size_t *bytes,
                              base_time_t deadline);

int comm_boot_rank(const comm_boot_t *boot);
int comm_boot_size(const comm_boot_t *boot);
/* 32 bytes derived from the job secret for `purpose`, so that no two uses share a key. */
void comm_boot_key(const comm_boot_t *boot, const char *purpose, unsigned char key[32]);
/* Number of open bootstrap connections: O(log n), tested. */
int comm_boot_connections(const comm_boot_t *boot);

/* Collective. Opens this rank's listening socket and gathers the addresses of all others, 64 bytes per rank.
 * With them the job can be connected again after the tree has lost a rank (shrink.h). Needs the watcher. */
gyre_status_t comm_boot_meet(comm_boot_t *boot, base_time_t deadline);
/* Collective over the members that live: agrees on these ranks and makes them the members. Dead ranks, and
 * ranks that do not call it within `patience_s` seconds, are no longer members. PEER_DEAD: the part of the
 * job that this rank hears is the smaller one. ABORTED: the others went on without this rank. TIMEOUT. */
gyre_status_t comm_boot_shrink(comm_boot_t *boot, double patience_s, base_time_t deadline);
/* text: the address for newcomers, "host:port". Changes when the member with the lowest rank does. The
 * watcher must run. */
gyre_status_t comm_boot_where(comm_boot_t *boot, char *text, size_t bytes);
/* Collective: admits `wanted` newcomers, which become the members with the highest ranks. The watcher must
 * run. Nothing has changed after INVALID: not 1 to BOOT_NEWCOMERS_MAX; MISMATCH: ranks asked for other
 * numbers; and TIMEOUT: they did not come. */
gyre_status_t comm_boot_grow(comm_boot_t *boot, int wanted, base_time_t deadline);
/* The newcomer's side, in three calls. The first makes an identity from GYRE_JOIN, GYRE_SECRET and GYRE_JOB.
 * The second connects to the job and waits until the newcomer is admitted. The third, with a watcher, takes
 * the newcomer's place. */
gyre_status_t comm_boot_newcomer(comm_identity_t *who);
gyre_status_t comm_boot_dial_job(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out);
gyre_status_t comm_boot_enter(comm_boot_t *boot, base_time_t deadline);
/* The members in ascending order of their ranks; how many. ranks: [that many], or NULL. place: of this
 * rank, or NULL. */
int comm_boot_members(const comm_boot_t *boot, int *ranks, int *place);
/* name: [bytes], of the host that `rank` is on, cut to 31 characters; "": not known. boot NULL: of this
 * host. */
void comm_boot_host(const comm_boot_t *boot, int rank, char *name, size_t bytes);
uint32_t comm_boot_epoch(const comm_boot_t *boot); /* number of changes of the members */

/* What this rank is doing, for others that wait for it, is read from `recorder` from here on. */
void comm_boot_record(comm_boot_t *boot, comm_recorder_slot_t *recorder);
/* Notes that work on this rank's device has waited for `rank` for a while (-1: no more), which the recorder
 * does not know: the calls that enqueued it have returned. Any thread. */
void comm_boot_stream_waits(comm_boot_t *boot, int rank);

/* What a rank does, as its watcher says, or itself while it is in a call of the bootstrap. */
typedef enum {
    COMM_AT_CALLS = 0,  /* the program, or its calls: `calls` */
    COMM_AT_BOOT = 1,   /* in a collective of the bootstrap, waiting for `waits_for` */
    COMM_AT_JOINING = 2 /* waiting for the ranks `missing` to join */
} comm_boot_at_t;
typedef struct {
    comm_boot_at_t at;
    int waits_for; /* rank; -1: nobody */
    comm_doing_t calls;
    char missing[160];
} comm_boot_doing_t;

/* Who keeps others waiting in the end. */
enum { COMM_BLAME_CHAIN = 16, COMM_BLAME_HOST = 40 };
typedef struct {
    int rank;    /* the culprit */
    int silent;  /* 1: it does not answer, though it had its time, and `doing` is empty */
    int unheard; /* 1: it could not be asked, or not for long enough: it, or whom it waits for */
    int circle;  /* 1: ranks of the chain wait for each other, and no rank is the culprit */
    int back;    /* then: to which the chain comes back, one of it or the rank that asks */
    int chain_n; /* ranks from the first one that was asked to the culprit */
    int chain[COMM_BLAME_CHAIN]; /* the first of them */
    char host[COMM_BLAME_HOST];  /* the culprit's; "": not known */
    char died[200];              /* "died: ..." or "left ...": it has; "": not that we know */
    comm_boot_doing_t doing;     /* the culprit's */
} comm_blame_t;
/* Follows the chain of waits from rank `from`, for which this rank waits, to a rank that waits for no other.
 * Ends at `deadline` at the latest, and lasts long only if a rank does not answer. Then that rank, or the
 * rank through which it cannot be asked, is the culprit if it had its full time; else it is `unheard`.
 * ABORTED (quiet), at once: communicator `about` has been aborted meanwhile, by a rank that found out
 * sooner. */
gyre_status_t comm_boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline,
                              comm_blame_t *out);
/* When this rank should say that it still waits for something that began at `began`, after it has said so
 * `spoken` times: GYRE_PATIENCE, and ever more rarely. NEVER: it is switched off. */
base_time_t comm_boot_patience(const comm_boot_t *boot, base_time_t began, unsigned spoken);
/* 1: go on, and the other ranks keep quiet for a while. 0: another rank has just spoken. */
int comm_boot_may_speak(comm_boot_t *boot);
#define COMM_BLAME_SECONDS 0.8 /* what to give it: for ranks whose watchers have no core of their own */
/* This process ends without leaving: sends `how` to its neighbours. From an exit handler: never waits
 * long. */
void comm_boot_ending(comm_boot_t *boot, const char *how);

/* Sends a goodbye, so that the others do not take the closing for a death, and frees. At most 1 s. With
 * `graceful` 0 the goodbye says that this rank leaves after an error: ranks that wait for it see that at once
 * (comm_watch_dead). */
void comm_boot_leave(comm_boot_t *boot, int graceful);

#endif
