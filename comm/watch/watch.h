/* SPDX-License-Identifier: Apache-2.0 */
/* comm/watch/watch.h: one thread per process that handles what must not wait for the next call.
 *
 * The thread owns the bootstrap connections after init and a Unix socket (abstract name, no file). It sleeps
 * in poll(2) until an event or a heart beat (comm/boot/heartbeat.c), so its cost is close to zero while
 * nothing happens. It
 *  - turns a closed connection into "rank r died" and floods that through the tree; a rank that leaves after
 *    an error sends that instead;
 *  - floods and receives aborts: (communicator id, status, text);
 *  - passes descriptors of memory windows to local peers that prove that they know the job's secret. */
#ifndef COMM_WATCH_WATCH_H
#define COMM_WATCH_WATCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "comm/boot/bootstrap.h"

typedef struct comm_watch comm_watch_t;

/* Takes over `boot`'s connections. comm_boot_all_gather and comm_boot_barrier still work and go through the
 * thread. */
gyre_status_t comm_watch_start(comm_boot_t *boot, comm_watch_t **out);
/* Starts the thread if there is none: a job of one rank starts it only when needed. */
gyre_status_t comm_watch_ensure(comm_watch_t *watch);
/* Joins the thread. Call before comm_boot_leave. */
void comm_watch_stop(comm_watch_t *watch);

/* A trouble counter, which changes whenever a death or abort was noted. The wait path reads it with one
 * relaxed load and looks closer after a change. */
const _Atomic uint32_t *comm_watch_trouble(const comm_watch_t *watch);

/* Called after every death or abort to wake sleepers: from the watcher's thread, or in a job of one rank from
 * the thread that aborts. Must not block and must not call on_trouble or off_trouble; it may call
 * comm_watch_dead. It is not called after off_trouble has returned. */
typedef void (*comm_watch_wake_fn)(void *user);
/* Owned by the caller, who fills in wake and user; it stays where it is until off_trouble. */
typedef struct comm_watch_sleeper {
    comm_watch_wake_fn wake;
    void *user;
    struct comm_watch_sleeper *next, **at; /* the watcher's */
} comm_watch_sleeper_t;
void comm_watch_on_trouble(comm_watch_t *watch, comm_watch_sleeper_t *sleeper);
void comm_watch_off_trouble(comm_watch_t *watch, comm_watch_sleeper_t *sleeper);

/* Returns the world rank among ranks[0..n), or with NULL among all, whose death was noted here first. If no
 * rank died: the first that left after an error; a rank that left thus never hides the death that caused it.
 * Else -1. `how` (may be NULL) gets "died: its connection closed" or "left after an error". */
int comm_watch_dead(const comm_watch_t *watch, const int *ranks, int n, char *how, size_t bytes);

/* Returns 1 if a present member of the job is dead or the members have changed again: the ranks must agree on
 * them anew. */
int comm_watch_lost_member(const comm_watch_t *watch);

/* 1: this thread was interrupted in one of these calls: a signal handler must not make another one, which
 * would wait for the first. */
int comm_watch_interrupted(void);

/* Declares communicator `id` dead on all ranks of the job, which see it through comm_watch_aborted. */
void comm_watch_abort(comm_watch_t *watch, uint64_t id, gyre_status_t status, const char *text);
/* Returns GYRE_OK, or the status with which communicator `id` was aborted (text: the reason, with the rank
 * that aborted). */
gyre_status_t comm_watch_aborted(const comm_watch_t *watch, uint64_t id, char *text, size_t bytes);
void comm_watch_forget(comm_watch_t *watch, uint64_t id); /* the communicator is gone */

/* Memory windows. offer: local peers may fetch a duplicate of `fd` under `key`. The caller keeps `fd`, open
 * until it withdraws the key or stops the watcher: an offer takes no descriptor. INVALID if the key is
 * offered already. */
gyre_status_t comm_watch_offer(comm_watch_t *watch, uint64_t key, int fd);
void comm_watch_withdraw(comm_watch_t *watch, uint64_t key);
/* This process's address for fetch: 32 bytes, to be passed to peers by any means. */
void comm_watch_address(const comm_watch_t *watch, unsigned char address[32]);
/* Fetches a descriptor (close-on-exec, owned by the caller) from the process at `address`.
 *  - UNSUPPORTED (quiet), at once: that process is on another host or in another network namespace
 *  - NOT_FOUND (quiet): it does not offer `key`
 *  - TIMEOUT (quiet)
 *  - AUTH: it belongs to another job
 *  - NO_MEMORY: no free descriptor here or there */
gyre_status_t comm_watch_fetch(comm_watch_t *watch, const unsigned char address[32], uint64_t key, int *fd,
                               base_time_t deadline);
/* A fetch under way: owned by the caller, all zero before the first step and after the last. */
typedef struct {
    int step;
    int fd;   /* socket; open unless step is 0 */
    int lost; /* times that the other side closed the connection in the middle */
    base_time_t since;
    unsigned char question[40], nonce[32];
} comm_watch_fetch_t;
/* The same in steps. IN_PROGRESS if the fetch is not finished at `until` (a past time: never waits). The
 * caller then calls it again with the same arguments, or gives up by drop. It makes a connection that the
 * peer closes again, and gives up after several: TRANSPORT (quiet). */
gyre_status_t comm_watch_fetch_some(comm_watch_t *watch, const unsigned char address[32], uint64_t key,
                                    comm_watch_fetch_t *fetch, int *fd, base_time_t until);
void comm_watch_fetch_drop(comm_watch_fetch_t *fetch);

#endif
