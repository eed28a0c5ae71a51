/* SPDX-License-Identifier: Apache-2.0 */
/* comm/wait.h: waiting: spin, then yield, then sleep, never past the deadline and never past a peer's death.
 *
 *     comm_wait_t wait;
 *     comm_wait_begin(&wait, group, deadline);
 *     while (!done) {
 *         if (!try_to_drive()) { comm_wait_busy(&wait); continue; }
 *         moved = look(); // or done, by another thread
 *         st = moved ? GYRE_OK : comm_wait_idle(&wait);
 *         stop_driving();
 *         if (moved) comm_wait_moved(&wait);
 *         else if (st != GYRE_OK || (st = comm_wait_rest(&wait)) != GYRE_OK) break;
 *     }
 *     comm_wait_end(&wait);
 *
 * A group's transport is used by the thread that drives the group. So comm_wait_idle, which may prepare a
 * sleep there, is called while driving; it never blocks. comm_wait_rest yields or sleeps, without driving:
 * other threads may drive the group meanwhile. Where one thread alone uses the group, there is nothing to
 * lock.
 *
 * Sleeping takes two calls of comm_wait_idle. The first call announces the sleep, so that a sender rings from
 * now on. The caller looks once more, and only after the second call comm_wait_rest sleeps. No wake-up can be
 * lost. */
#ifndef COMM_WAIT_H
#define COMM_WAIT_H

#include <poll.h>

#include "base/clock.h"
#include "comm/transport.h"

enum { COMM_SLEEP_POLLS = 4 }; /* descriptors to sleep on, of a group's network */

/* What comm_wait_rest does next. */
typedef enum { COMM_REST_RELAX, COMM_REST_YIELD, COMM_REST_SLEEP } comm_rest_t;

typedef struct {
    comm_group_t *group;
    base_time_t deadline;
    size_t bytes;      /* set after comm_wait_begin: what each rank moves in the operation, about */
    base_time_t since; /* when the present idling began; 0: not idling */
    uint32_t turns;
    uint32_t armed; /* 1: sleep was announced with `bell` as the doorbell's value */
    uint32_t bell;
    int whom;         /* for whose post, or -1 (awaited in comm/wait.c) */
    uint32_t trouble; /* the watcher's counter as last checked */
    uint32_t yields;  /* since idling began */
    uint32_t busy;    /* calls of comm_wait_busy in a row */
    comm_rest_t rest;
    int npolls; /* if it sleeps on descriptors of the network; 0: on the doorbell */
    struct pollfd polls[COMM_SLEEP_POLLS + 1]; /* the last may be the socket of the doorbell */
    uint64_t sleeps;                           /* times that this wait slept */
    base_time_t waited;                        /* nanoseconds spent idling */
} comm_wait_t;

void comm_wait_begin(comm_wait_t *wait, comm_group_t *group, base_time_t deadline);
void comm_wait_moved(comm_wait_t *wait);
/* The caller is driving the group, has looked, and nothing has moved. OK: stop driving, call comm_wait_rest
 * and look again. PEER_DEAD, ABORTED (or the status it was aborted with), TIMEOUT: quiet; the text is in
 * gyre_last_error and the caller adds what it was doing. */
gyre_status_t comm_wait_idle(comm_wait_t *wait);
/* After that, not driving. OK: look again; TIMEOUT as above. */
gyre_status_t comm_wait_rest(comm_wait_t *wait);
/* Another thread is driving, so this one could not look. Relaxes, yields or naps for a moment: the other one
 * may copy for long, and rings nobody when it stops driving. */
void comm_wait_busy(comm_wait_t *wait);
void comm_wait_end(comm_wait_t *wait);
/* 1: cores are scarce in this group, so a thread that waits should hand its core on soon. */
int comm_wait_scarce(const comm_group_t *group);
/* 1: waiting begins with a long spin, so a thread that waits may look often before it reads the clock. */
int comm_wait_patient(const comm_group_t *group);
/* A wait ended in such a spin, without comm_wait_begin: teaches what other short waits teach. */
void comm_wait_was_short(comm_group_t *group);
/* Hands the core to another thread that wants it. first: 1 for the first call in a wait. 0: did not, since
 * sleeps are the cheaper ones (yields.h). */
int comm_wait_yield(comm_group_t *group, int first);

#endif
