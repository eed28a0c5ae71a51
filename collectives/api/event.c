/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/event.c: gyre_comm_fd and gyre_comm_arm: a communicator in the event loop of a program. */
#include "comm/event.h"

#include "base/error.h"
#include "collectives/run/communicator.h"

enum { DEVICE_PERIOD_NS = 1000 * 1000 /* a device rings no bell */ };

gyre_status_t gyre_comm_fd(gyre_comm_t *comm, int *fd)
{
    gyre_status_t st = coll_check_live("gyre_comm_fd", comm);
    if (st == GYRE_OK && !fd)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_fd: fd is NULL");
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "gyre_comm_fd: ranks of one process (gyre_cuda_comms_create) work on devices, which ring "
            "no bell: call gyre_progress now and then");
    if (st != GYRE_OK)
        return st;
    coll_drive(comm);
    if (!comm->event)
        st = comm_event_open(comm->group, &comm->event);
    if (comm->event)
        atomic_store_explicit(&comm->has_event, 1, memory_order_release);
    coll_stop_driving(comm);
    if (st == GYRE_OK)
        *fd = comm->event->fd;
    return st;
}

/* The caller is driving. */
static gyre_status_t arm_driving(gyre_comm_t *comm)
{
    base_time_t period = 0;
    comm_event_begin(comm->event);
    /* Another thread may finish what the caller has just tested. It stores `news`, then looks at `armed`; we
     * store `armed`, then look at `news`. So it rings, or we do not sleep. */
    atomic_store(&comm->event_armed, 1);
    if (atomic_exchange(&comm->event_news, 0) || coll_comm_advance_driving(comm))
        return GYRE_IN_PROGRESS;
    if (comm->device_head)
        period = DEVICE_PERIOD_NS;
    else if (!coll_comm_idle(comm))
        period = comm_event_period(comm->event);
    return comm_event_end(comm->event, period) ? GYRE_OK : GYRE_IN_PROGRESS;
}

gyre_status_t gyre_comm_arm(gyre_comm_t *comm)
{
    gyre_status_t st = coll_check_live("gyre_comm_arm", comm);
    if (st == GYRE_OK && !comm->event)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_arm: call gyre_comm_fd before");
    if (st != GYRE_OK)
        return st;
    if (!coll_try_drive(comm)) /* another thread moves it, and may finish what the caller waits for */
        return GYRE_IN_PROGRESS;
    st = arm_driving(comm);
    coll_stop_driving(comm);
    const gyre_status_t error = coll_comm_ask(comm);
    return error == GYRE_OK ? st : error;
}

void coll_event_ring(gyre_comm_t *comm)
{
    atomic_store(&comm->event_news, 1);
    if (atomic_load(&comm->event_armed) && atomic_exchange(&comm->event_armed, 0))
        comm_event_ring(comm->event);
}
