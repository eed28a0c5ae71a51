/* comm/watch/watch.h: one thread per process that notices what must not wait for the next call.
 *
 * It owns the bootstrap connections after init and a Unix socket (abstract name, no file). It sleeps in poll(2)
 * until something comes or its heart beats (comm/boot/heartbeat.c), so it costs next to nothing while nothing happens. It
 *  - turns a closed connection into "rank r died" and floods that through the tree; a rank that leaves after an error
 *    says so instead;
 *  - floods and receives aborts: (communicator id, status, text);
 *  - hands descriptors of memory windows to local peers that prove they know the job secret. */
#ifndef COMM_WATCH_WATCH_H
#define COMM_WATCH_WATCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "comm/boot/bootstrap.h"

typedef struct comm_watch comm_watch_t;

/* Takes over `boot`'s connections; comm_boot_all_gather/share/barrier still work and go through the
 * thread. */
gyre_status_t comm_watch_start(comm_boot_t *boot, comm_watch_t **out);
/* Makes sure that there is a thread: a job of one rank has none until it needs one. */
gyre_status_t comm_watch_ensure(comm_watch_t *watch);
/* Joins the thread. Call before comm_boot_leave. */
void comm_watch_stop(comm_watch_t *watch);

/* A trouble counter: changes whenever a death or abort was noted. One relaxed load on the wait path tells
 * whether to look closer. */
const _Atomic uint32_t *comm_watch_trouble(const comm_watch_t *watch);

/* Called after every death or abort, so that sleepers can be woken: from the watcher's thread, or in a job of one rank
 * from the thread that aborts. Must not block and must not call on_trouble or off_trouble; it may ask who is dead.
 * After off_trouble has returned it is not called any more. */
typedef void (*comm_watch_wake_fn)(void *user);
gyre_status_t comm_watch_on_trouble(comm_watch_t *watch, comm_watch_wake_fn wake, void *user);
void comm_watch_off_trouble(comm_watch_t *watch, void *user);

/* The world rank among ranks[0..n) whose death was noted here first, whatever its number; if none died, the one that
 * left after an error first (so a leaving never hides the death that was its cause); or -1. `how` (may be NULL) gets
 * "died: its connection closed" or "left after an error". */
int comm_watch_dead(const comm_watch_t *watch, const int *ranks, int n, char *how, size_t bytes);

/* 1: one of the job's present members is dead, or the members have changed again: they must be agreed on anew. */
int comm_watch_lost_member(const comm_watch_t *watch);

/* Declares communicator `id` dead on all ranks of the job; they see it through comm_watch_aborted. */
void comm_watch_abort(comm_watch_t *watch, uint64_t id, gyre_status_t status, const char *text);
/* GYRE_OK, or the status with which communicator `id` was aborted (text: why, with the rank that said so). */
gyre_status_t comm_watch_aborted(const comm_watch_t *watch, uint64_t id, char *text, size_t bytes);
void comm_watch_forget(comm_watch_t *watch, uint64_t id); /* the communicator is gone */

/* Memory windows. offer: local peers may fetch a duplicate of `fd` under `key` (not taken over; dup'ed).
 * INVALID if the key is offered already. */
gyre_status_t comm_watch_offer(comm_watch_t *watch, uint64_t key, int fd);
void comm_watch_withdraw(comm_watch_t *watch, uint64_t key);
/* This process's address for fetch: 32 bytes to be passed to peers by whatever means. */
void comm_watch_address(const comm_watch_t *watch, unsigned char address[32]);
/* Fetches a descriptor (close-on-exec, owned by the caller) from the process behind `address`. Fails with
 * UNSUPPORTED at once if that process is not on this host (or in another network namespace), NOT_FOUND if it does not
 * offer `key`, TIMEOUT (these are quiet), AUTH if it belongs to another job, NO_MEMORY without a free descriptor here or there. */
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
/* The same in steps: IN_PROGRESS if it is not finished at `until` (a past time: never waits); to be called again with
 * the same arguments, or given up by drop. A connection that the peer
 * closes is made again; it gives up itself when that goes on: TRANSPORT (quiet). */
gyre_status_t comm_watch_fetch_some(comm_watch_t *watch, const unsigned char address[32], uint64_t key,
                                    comm_watch_fetch_t *fetch, int *fd, base_time_t until);
void comm_watch_fetch_drop(comm_watch_fetch_t *fetch);

#endif
