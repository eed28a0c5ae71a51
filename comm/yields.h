/* SPDX-License-Identifier: Apache-2.0 */
/* comm/yields.h: whether a rank that waits where cores are scarce yields its core, or sleeps at once.
 *
 * A rank that yields waits for the turns of all others on its core. Turns of ranks are short. A program that
 * computes keeps the core for a slice of some milliseconds. A rank that sleeps does not wait for that slice,
 * since the scheduler runs a rank as soon as it is woken. But a sleep has a price: a system call of each peer
 * that rings. So:
 *
 *  1. A slice is lost if a yield takes longer than turns of the ranks explain, and than a millisecond. Turns
 *     of an operation on much data are long: each rank copies its part of them. Of a wait, one slice counts.
 *  2. A rank that has lost a slice sleeps an eighth as many times as the slice pays for, then yields again:
 *     one slice may be an accident, or a peer that was late once.
 *  3. Each further slice doubles that number, up to a largest one.
 *  4. Each time that so many waits in a row yielded as one slice pays for sleeps, the number is halved.
 *
 * By 2, a slice that is lost by accident costs little more than itself. By 3 and 4, the number grows while a
 * slice is lost more often than it pays for, that is while sleeps are cheaper than yields, and only then. */
#ifndef COMM_YIELDS_H
#define COMM_YIELDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* All zeros: always yield. Threads that wait in one group share it without a lock. A change that gets lost
 * does no harm. */
typedef struct {
    base_time_t turns;       /* nanoseconds that a yield may take because of other ranks */
    base_time_t per_core;    /* ranks of a core */
    int32_t worth;           /* sleeps that a slice pays for, at least 1 */
    int32_t first;           /* sleeps after the first slice, at least 1 */
    _Atomic int32_t doubled; /* how often */
    _Atomic int32_t sleeps;  /* left, before this rank yields again */
    _Atomic int32_t waits;   /* that began to yield since a slice was lost or the number was halved */
    _Atomic int32_t lost;    /* 1: this wait has lost a slice */
    /* For gyre_comm_stats: yields, and the nanoseconds that they and sleeps took. */
    _Atomic int64_t count, ns, sleep_ns;
} comm_yields_t;

/* For `ranks` ranks of this host that may use `cores` cores, both at least 1. */
void comm_yields_begin(comm_yields_t *yields, int ranks, int cores);
/* A wait is about to yield, for the first time. */
void comm_yields_wait(comm_yields_t *yields);
/* A yield began and ended. bytes: what each rank moves in the operation that is waited for, about. */
void comm_yields_took(comm_yields_t *yields, base_time_t before, base_time_t after, size_t bytes);

/* 1: yield; 0: sleep. */
int comm_yields_pay(const comm_yields_t *yields);
/* A sleep is announced. */
void comm_yields_slept(comm_yields_t *yields);
/* A sleep began and ended. */
void comm_yields_woke(comm_yields_t *yields, base_time_t before, base_time_t after);

#endif
