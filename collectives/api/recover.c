/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/recover.c: makes the job's communicator anew, over the ranks that are left or with
 * newcomers.
 *
 * comm/boot/shrink.c agrees on the ranks, comm/boot/grow.c admits newcomers. Before a shrink the old
 * communicator is put out of use, so that none of its operations is under way when the new one begins. */
#include "collectives/run/communicator.h"

#include "base/error.h"
#include "base/log.h"
#include "collectives/api/world.h"

/* No operation of `comm` is under way afterwards, here or, in the end, anywhere: it has failed. */
static void put_out_of_use(gyre_comm_t *comm)
{
    coll_drive(comm);
    coll_comm_notice(comm); /* a death that nobody has met yet is the better story */
    coll_comm_abort(comm, "aborted: gyre_comm_shrink was called");
    comm_group_shut(comm->group);
    coll_stop_driving(comm);
}

static gyre_status_t check(const char *name, gyre_comm_t *comm, gyre_comm_t **out)
{
    gyre_status_t st = coll_check_live(name, comm);
    if (st == GYRE_OK && !out)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: newcomm is NULL", name);
    if (st != GYRE_OK)
        return st;
    if (!comm->is_world)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s takes the job's communicator: that of gyre_init, or the newest of gyre_comm_shrink and "
            "gyre_comm_grow; split the new one to replace others",
            name);
    return coll_check_unused(name, comm);
}

/* The job's communicator is another one from here on. */
static void hand_over(gyre_comm_t *comm, gyre_comm_t *made)
{
    coll_options_inherit(made, comm);
    comm->is_world = 0;
}

gyre_status_t gyre_comm_shrink(gyre_comm_t *comm, gyre_comm_t **newcomm)
{
    gyre_status_t st = check("gyre_comm_shrink", comm, newcomm);
    if (st != GYRE_OK)
        return st;
    gyre_comm_t *made = NULL;
    comm_boot_t *boot = comm->world->boot;
    /* A rank that does not come within the deadline of an operation is left out. There are three such
     * deadlines: ranks may find one after the other that their leader does not come. */
    const base_time_t deadline = base_deadline(3 * comm->timeout_s);
    put_out_of_use(comm);
    do {
        st = comm_boot_members(boot, NULL, NULL) > 1 ? comm_boot_shrink(boot, comm->timeout_s, deadline)
                                                     : GYRE_OK;
        if (st != GYRE_OK)
            return st;
        st = coll_world_make(comm->world, deadline, &made);
        if (st != GYRE_OK)
            log_info("gyre_comm_shrink: once more: %s", gyre_last_error());
    } while (st != GYRE_OK && comm_watch_lost_member(comm->world->watch) && base_now() < deadline);
    if (st != GYRE_OK)
        return st;
    hand_over(comm, made);
    *newcomm = made;
    return GYRE_OK;
}

/* Newcomers get the job's secret and name from the environment. */
static gyre_status_t check_launched(const char *name, const gyre_comm_t *comm)
{
    if (coll_world_launched(comm->world))
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_UNSUPPORTED,
                     "%s: this job was not made by gyre_init: no newcomer can know its secret", name);
}

gyre_status_t gyre_comm_address(const gyre_comm_t *comm, char *text, size_t bytes)
{
    gyre_status_t st = coll_check_live("gyre_comm_address", comm);
    if (st == GYRE_OK && !text)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_address: text is NULL");
    if (st != GYRE_OK)
        return st;
    if (comm->team)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "gyre_comm_address: the communicator's ranks are all in this "
                                               "process, which no other process can join");
    st = check_launched("gyre_comm_address", comm);
    if (st == GYRE_OK)
        st = comm_watch_ensure(comm->world->watch);
    return st == GYRE_OK ? comm_boot_where(comm->world->boot, text, bytes) : st;
}

gyre_status_t gyre_comm_grow(gyre_comm_t *comm, int newcomers, gyre_comm_t **newcomm)
{
    gyre_status_t st = check("gyre_comm_grow", comm, newcomm);
    if (st == GYRE_OK)
        st = coll_check_comm("gyre_comm_grow", comm);
    if (st == GYRE_OK)
        st = check_launched("gyre_comm_grow", comm);
    if (st == GYRE_OK)
        st = comm_watch_ensure(comm->world->watch);
    if (st != GYRE_OK)
        return st;
    gyre_comm_t *made = NULL;
    const base_time_t deadline = base_deadline(comm->timeout_s);
    st = comm_boot_grow(comm->world->boot, newcomers, deadline);
    if (st != GYRE_OK)
        return st;
    const base_time_t more =
        base_deadline(comm->timeout_s); /* the newcomers may have come in the last moment */
    st = coll_world_retune(comm->world, more);
    if (st == GYRE_OK)
        st = coll_world_make(comm->world, more, &made);
    if (st != GYRE_OK)
        return st;
    hand_over(comm, made);
    *newcomm = made;
    return GYRE_OK;
}
