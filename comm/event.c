/* SPDX-License-Identifier: Apache-2.0 */
/* comm/event.c: see event.h. The descriptor is an epoll instance: the socket of the doorbell, the network's
 * descriptors, and a timer for what none of these hears. */
#include "comm/event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/link.h"

#define MEMORY_PERIOD (50 * BASE_MS)
/* A network's descriptor does not hear perhaps a plain write by RDMA whose sender has not seen yet that this
 * rank sleeps. */
#define NETWORK_PERIOD (5 * BASE_MS)

/* A descriptor that is there stays; one that was closed has left the instance by itself. */
static gyre_status_t watch(const comm_event_t *e, int fd, uint32_t events)
{
    struct epoll_event what = {.events = events, .data.fd = fd};
    if (epoll_ctl(e->fd, EPOLL_CTL_MOD, fd, &what) == 0)
        return GYRE_OK;
    if (errno == ENOENT && epoll_ctl(e->fd, EPOLL_CTL_ADD, fd, &what) == 0)
        return GYRE_OK;
    return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "epoll_ctl of descriptor %d", fd);
}

static gyre_status_t open_parts(comm_event_t *e)
{
    comm_group_t *group = e->group;
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    e->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (group->bell_fd < 0)
        group->bell_fd = comm_bell_open(group->bell);
    if (e->fd < 0 || e->timer < 0 || group->bell_fd < 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "no descriptor for events of a communicator");
    gyre_status_t status = watch(e, e->timer, EPOLLIN);
    return status == GYRE_OK ? watch(e, group->bell_fd, EPOLLIN) : status;
}

gyre_status_t comm_event_open(comm_group_t *group, comm_event_t **out)
{
    comm_event_t *e = malloc(sizeof *e);
    if (!e)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for events of a communicator");
    *e = (comm_event_t){.group = group, .fd = -1, .timer = -1};
    gyre_status_t status = open_parts(e);
    if (status != GYRE_OK) {
        comm_event_close(e);
        return status;
    }
    *out = e;
    return GYRE_OK;
}

void comm_event_close(comm_event_t *e)
{
    if (!e)
        return;
    if (e->timer >= 0)
        close(e->timer);
    if (e->fd >= 0)
        close(e->fd);
    free(e);
}

/* A timer of 0 stops, and is not readable. */
static void set_timer(const comm_event_t *e, base_time_t after)
{
    const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(after / (1000 * BASE_MS)),
                                                 .tv_nsec = (long)(after % (1000 * BASE_MS))}};
    (void)timerfd_settime(e->timer, 0, &when, NULL); /* fails for bad arguments only */
}

void comm_event_begin(comm_event_t *e)
{
    comm_group_t *group = e->group;
    uint32_t word;
    set_timer(e, 0);
    comm_bell_drain(group->bell_fd);
    group->fences += (uint64_t)comm_bell_announce(group->bell, COMM_BELL_SOCKET, &word);
    if (group->network_state && group->network->arm)
        group->network->arm(group);
}

/* Descriptors that the network does not name any more leave the instance. */
static void forget_others(const comm_event_t *e, const struct pollfd *polls, int n)
{
    for (int i = 0; i < e->npolls; i++) {
        int named = 0;
        for (int k = 0; k < n; k++)
            named |= polls[k].fd == e->polls[i];
        if (!named)
            (void)epoll_ctl(e->fd, EPOLL_CTL_DEL, e->polls[i], NULL); /* it may be closed */
    }
}

int comm_event_end(comm_event_t *e, base_time_t period)
{
    comm_group_t *group = e->group;
    struct pollfd polls[COMM_SLEEP_POLLS];
    int n = 0;
    if (group->network_state) {
        n = group->network->sleep_on(group, polls);
        if (n == 0)
            return 0;
    }
    forget_others(e, polls, n);
    e->npolls = 0;
    for (int i = 0; i < n; i++) { /* POLLIN and its like have the same values */
        if (polls[i].fd < 0 || watch(e, polls[i].fd, (uint32_t)polls[i].events) != GYRE_OK)
            continue; /* the period is short then */
        e->polls[e->npolls++] = polls[i].fd;
    }
    set_timer(e, e->untimed ? 0 : period);
    return 1;
}

void comm_event_ring(comm_event_t *e)
{
    comm_bell_wake(e->group->bell);
}

base_time_t comm_event_period(const comm_event_t *e)
{
    return e->group->network_state ? NETWORK_PERIOD : MEMORY_PERIOD;
}
