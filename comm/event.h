/* SPDX-License-Identifier: Apache-2.0 */
/* comm/event.h: a descriptor for the event loop of a program: readable when it is worth moving a group.
 *
 *     comm_event_begin(event);              // rings and arrivals end the sleep from here on
 *     moved = look();
 *     if (!moved && comm_event_end(event, period))
 *         poll(event->fd);                  // not driving
 *
 * The first two steps are those of comm/wait.h into sleep, and are made while driving. No wake-up is lost. */
#ifndef COMM_EVENT_H
#define COMM_EVENT_H

#include "base/clock.h"
#include "comm/wait.h"

typedef struct {
    comm_group_t *group; /* borrowed */
    int fd;              /* an epoll instance with the next three in it */
    int timer;
    int npolls; /* of the network */
    int polls[COMM_SLEEP_POLLS];
    int untimed; /* for tests: no period passes */
} comm_event_t;

/* The group's doorbell gets a socket if it has none. NO_MEMORY, SYSTEM. */
gyre_status_t comm_event_open(comm_group_t *group, comm_event_t **out);
/* Before the group is destroyed. NULL is allowed. */
void comm_event_close(comm_event_t *event);
/* The descriptor is not readable any more, and becomes so with the next ring. */
void comm_event_begin(comm_event_t *event);
/* 1: arrivals make it readable, too, and so does a `period` that passes (0: none does). 0: look again. */
int comm_event_end(comm_event_t *event, base_time_t period);
/* Makes it readable. Any thread. */
void comm_event_ring(comm_event_t *event);
/* How long it may stay without a look while operations are under way. As comm/wait.c sleeps. */
base_time_t comm_event_period(const comm_event_t *event);

#endif
