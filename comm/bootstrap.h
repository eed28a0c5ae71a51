/* comm/bootstrap.h: how the ranks of a job find and trust each other, before any fast path exists.
 *
 * Rank 0 listens on the rendezvous address. Every other rank connects, proves that it knows the job secret
 * (mutual challenge, libsodium; all later frames carry a MAC and a counter), and is told its parent in a binomial tree
 * over ranks; it then keeps O(log n) connections: one to its parent, one from each child. Collectives of the
 * bootstrap run on that tree in O(log n) rounds. Every wait has a deadline.
 *
 * After init, the same connections are given to the watcher (comm/watch.h), which sits in poll(2) and beats now and
 * then (boot_beat.c): a death or an abort reaches every rank within a few tree hops. */
#ifndef COMM_BOOTSTRAP_H
#define COMM_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#include "base/clock.h"
#include "comm/identity.h"

typedef struct comm_boot comm_boot_t;

/* Joins; returns when all ranks are connected to their parents and children, or on all with an error. Errors: BOOTSTRAP (port in use,
 * unreachable root: says what to do), AUTH, TIMEOUT (names the ranks that have not arrived, at rank 0). */
gyre_status_t comm_boot_join(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out);

/* Collective. all: [size * bytes], in rank order. 2 ceil(log2 n) rounds. A rank that fails (TIMEOUT, PEER_DEAD,
 * MISMATCH: it names who called what) makes the call fail on all ranks with its text; the next one starts afresh. */
gyre_status_t comm_boot_all_gather(comm_boot_t *boot, const void *mine, size_t bytes, void *all,
                                   base_time_t deadline);
gyre_status_t comm_boot_barrier(comm_boot_t *boot, base_time_t deadline);
/* Collective: what rank 0 has goes to all. data: [room]; *bytes: in: rank 0's length (others: ignored), out: the length. With
 * a `status` other than OK at rank 0 (others pass OK) all ranks fail with it and rank 0's last error text. */
gyre_status_t comm_boot_share(comm_boot_t *boot, gyre_status_t status, void *data, size_t room, size_t *bytes,
                              base_time_t deadline);

/* Key-value exchange: put is local; fence (collective) makes all puts visible; get asks up the tree for what
 * is not known here. Keys < 256 bytes; values < 64 KiB; a key is put by one rank. get: *bytes in: capacity, out: length.
 * NOT_FOUND (quiet). Before the watcher runs, the ranks above answer only while they are in a call of the bootstrap. */
gyre_status_t comm_boot_put(comm_boot_t *boot, const char *key, const void *value, size_t bytes);
gyre_status_t comm_boot_fence(comm_boot_t *boot, base_time_t deadline);
gyre_status_t comm_boot_get(comm_boot_t *boot, const char *key, void *value, size_t *bytes,
                            base_time_t deadline);

int comm_boot_rank(const comm_boot_t *boot);
int comm_boot_size(const comm_boot_t *boot);
const char *comm_boot_job(const comm_boot_t *boot);
/* 32 bytes derived from the job secret for `purpose`, so that no two uses share a key. */
void comm_boot_key(const comm_boot_t *boot, const char *purpose, unsigned char key[32]);
/* Number of open bootstrap connections: O(log n), tested. */
int comm_boot_connections(const comm_boot_t *boot);

/* Collective: opens this rank's door and learns where all others' are, so that the job can be put together again when the tree
 * has lost a rank (boot_shrink.h). Wants the watcher. 64 bytes per rank of the job. */
gyre_status_t comm_boot_meet(comm_boot_t *boot, base_time_t deadline);
/* Collective over the members that live: agrees on who they are and makes them the members; the dead and those that do not
 * call it within `patience_s` seconds are no longer. PEER_DEAD: the part of the job that this rank hears is the smaller one.
 * ABORTED: the others went on without this rank. TIMEOUT. */
gyre_status_t comm_boot_shrink(comm_boot_t *boot, double patience_s, base_time_t deadline);
/* Where newcomers are to knock, "host:port"; changes when the member with the lowest rank does. The watcher must run. */
gyre_status_t comm_boot_where(comm_boot_t *boot, char *text, size_t bytes);
/* Collective: lets `wanted` newcomers in, which become the members with the highest ranks. TIMEOUT, and nothing has changed: they did
 * not come. The watcher must run. */
gyre_status_t comm_boot_grow(comm_boot_t *boot, int wanted, base_time_t deadline);
/* The other side: an identity from GYRE_JOIN, GYRE_SECRET and GYRE_JOB; waits at the door of the job until it is let in; then,
 * with a watcher, takes its place. */
gyre_status_t comm_boot_newcomer(comm_identity_t *who);
gyre_status_t comm_boot_knock(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out);
gyre_status_t comm_boot_enter(comm_boot_t *boot, base_time_t deadline);
/* The members in ascending order of their ranks; how many. ranks: [that many], or NULL. place: of this rank, or NULL. */
int comm_boot_members(const comm_boot_t *boot, int *ranks, int *place);
uint32_t comm_boot_epoch(const comm_boot_t *boot); /* number of changes of the members */

/* What this rank is doing, in words, for others that wait for it: called by the watcher's thread, under the boot's lock. */
typedef void (*comm_boot_describe_fn)(void *user, char *text, size_t bytes);
void comm_boot_describe(comm_boot_t *boot, comm_boot_describe_fn describe, void *user);
/* Asks what `rank` says about itself. text: [bytes], at most 255 characters. TIMEOUT, NOT_FOUND (both quiet). */
gyre_status_t comm_boot_ask(comm_boot_t *boot, int rank, char *text, size_t bytes, base_time_t deadline);
/* This process ends without leaving: tells its neighbours `how`. From an exit handler: never waits long. */
void comm_boot_ending(comm_boot_t *boot, const char *how);

/* Says goodbye (so that the others do not take the closing for a death) and frees. With `graceful` 0 it says that it
 * leaves after an error: whoever waits for this rank is told at once (comm_watch_dead). At most 1 s. */
void comm_boot_leave(comm_boot_t *boot, int graceful);

#endif
