/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/comm.c: communicators: made from a group or as a member of a team, ended, asked. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "collectives/api/comm.h"
#include "collectives/api/persistent.h"
#include "collectives/api/sized.h"
#include "collectives/choose/tune.h"
#include "collectives/gpu/gpu.h"
#include "collectives/run/bounce.h"
#include "collectives/run/reach/stage.h"
#include "collectives/schedules/algorithms.h"
#include "comm/memory/memory.h"

/* No program has the handle of a communicator that could not be made. */
static const char NOT_MADE[] = "the communicator was not made";

static int size_of_part(const int *part_of, int n, int part)
{
    int size = 0;
    for (int r = 0; r < n; r++)
        size += part_of[r] == part;
    return size;
}

/* What hierarchical works on: hosts, or one host's cells if there are several and in each at least two
 * ranks. */
static void find_parts(gyre_comm_t *comm)
{
    int cells, least = comm->n;
    const int *cell_of = comm_group_cells(comm->group, &cells);
    for (int c = 0; c < cells && least > 1; c++) {
        const int size = size_of_part(cell_of, comm->n, c);
        least = size < least ? size : least;
    }
    const int use_cells = comm->hosts == 1 && cells > 1 && least > 1;
    comm->part_of = use_cells ? cell_of : comm->host_of;
    comm->parts = use_cells ? cells : comm->hosts;
    comm->even_parts = 1;
    for (int p = 0; p < comm->parts && comm->even_parts; p++)
        comm->even_parts = size_of_part(comm->part_of, comm->n, p) * comm->parts == comm->n;
    comm->part_places = coll_places_by_parts(comm->part_of, comm->n, comm->parts);
}

/* No deadline, or one beyond a century: so far off that nothing adds up to an overflow. */
void coll_comm_set_timeout(gyre_comm_t *comm, double seconds)
{
    comm->timeout_s = seconds;
    comm->timeout_ns = seconds > 0 && seconds < 3e9 ? (base_time_t)(seconds * 1e9) : BASE_TIME_NEVER / 4;
}

gyre_status_t coll_comm_around(comm_world_t *world, comm_group_t *group, int n, int rank, base_time_t start,
                               gyre_comm_t **out)
{
    gyre_comm_t *comm = coll_handle_new(world);
    if (!comm) {
        comm_group_destroy(group);
        return GYRE_ERR_NO_MEMORY;
    }
    comm->world_ranks = malloc((size_t)n * sizeof *comm->world_ranks);
    if (!comm->world_ranks) {
        comm_group_destroy(group);
        coll_handle_end(comm, NOT_MADE);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", n);
    }
    for (int r = 0; r < n; r++)
        comm->world_ranks[r] = comm_group_world_rank(group, r);
    comm->group = group;
    comm->rank = rank;
    comm->n = n;
    comm->id = comm_group_id(group);
    comm->board = comm_group_board(comm->group);
    comm->tune = coll_world_tune(world);
    comm_group_set_ring(comm->group, coll_stage_ring_best(comm), coll_cost_takes(&comm->tune->cost));
    comm->troubles = comm_watch_trouble(world->watch);
    coll_comm_set_timeout(comm, world->timeout_s);
    comm->host_of = comm_group_hosts(comm->group, &comm->hosts);
    for (int r = 0; r < n; r++)
        if (comm->host_of[r] == comm->host_of[rank]) {
            comm->local_rank += r < rank;
            comm->local_size++;
        }
    comm->order = comm_group_order(comm->group);
    find_parts(comm);
    comm->made_in = base_now() - start;
    *out = comm;
    return GYRE_OK;
}

gyre_status_t coll_comm_make(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                             comm_all_gather_fn all_gather, void *user, base_time_t deadline,
                             gyre_comm_t **out)
{
    const base_time_t start = base_now();
    comm_group_t *group;
    gyre_status_t st = comm_group_create(world, id, world_ranks, n, rank, all_gather, user, deadline, &group);
    return st == GYRE_OK ? coll_comm_around(world, group, n, rank, start, out) : st;
}

gyre_status_t coll_comm_make_member(coll_team_t *team, int rank, gyre_comm_t **out)
{
    static _Atomic uint64_t made;
    int *ranks = malloc((size_t)team->n * sizeof *ranks);
    if (!ranks)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", team->n);
    gyre_comm_t *comm = coll_handle_new(&team->rank[rank].world);
    if (!comm) {
        free(ranks);
        return GYRE_ERR_NO_MEMORY;
    }
    for (int r = 0; r < team->n; r++)
        ranks[r] = r;
    comm->team = team;
    comm->board = &team->rank[rank].board;
    comm->world_ranks = ranks;
    comm->troubles = &team->trouble;
    comm->rank = comm->local_rank = rank;
    comm->n = comm->local_size = team->n;
    comm->hosts = comm->parts = comm->even_parts = 1;
    comm->host_of = comm->part_of = team->host_of;
    comm->id = atomic_fetch_add(&made, 1) + 1;
    comm->tune = coll_process_tune();
    comm->options = coll_options_default();
    coll_comm_set_timeout(comm, coll_process_timeout());
    atomic_fetch_add(&team->users, 1);
    *out = comm;
    return GYRE_OK;
}

void coll_comm_end(gyre_comm_t *comm, const char *why)
{
    coll_comm_off_failure(comm);
    coll_registry_remove(comm);
    coll_drive(comm); /* a thread that took it from the registry is done with it now; no other finds it */
    coll_stop_driving(comm);
    coll_cuda_free(comm); /* its guard and its proxy drive, too, until they have gone */
    coll_drive(comm);
    for (gyre_request_t *r = comm->free_requests, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    coll_persistent_end(comm);
    coll_plan_cache_free(&comm->plans);
    coll_bounce_free_all(comm);
    /* Before the watcher forgets, so that the group is known to have failed; before the scratch memory goes,
     * in which messages may be under way after an error. */
    comm_event_close(comm->event);
    if (comm->group)
        comm_group_destroy(comm->group);
    if (comm->scratch.base)
        comm_mem_free(comm->scratch.base);
    if (comm->world->watch)
        comm_watch_forget(comm->world->watch, comm->id);
    if (comm->team)
        coll_team_leave(comm->team, comm->rank);
    free(comm->world_ranks);
    free(comm->own_count);
    free(comm->leaves);
    free(comm->p2p);
    coll_handle_end(comm, why);
}

void coll_comm_free(gyre_comm_t *comm)
{
    coll_comm_end(comm, "gyre_comm_destroy was called on this communicator before");
}

/* Requests point into their communicator: it goes last. */
gyre_status_t coll_check_unused(const char *name, gyre_comm_t *comm)
{
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "%s cannot be part of a group: call gyre_group_end first", name);
    coll_drive(comm);
    uint32_t open = comm->open;
    coll_stop_driving(comm);
    if (open)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s: %u request%s of the communicator %s not waited for (gyre_wait; gyre_comm_abort ends "
            "what cannot finish)",
            name, open, open == 1 ? "" : "s", open == 1 ? "was" : "were");
    return GYRE_OK;
}

gyre_status_t gyre_comm_destroy(gyre_comm_t *comm)
{
    if (!comm)
        return GYRE_OK;
    gyre_status_t st = coll_check_live("gyre_comm_destroy", comm);
    if (st == GYRE_OK && comm->is_world)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "gyre_comm_destroy: this is the job's communicator; call gyre_finalize");
    if (st == GYRE_OK)
        st = coll_check_unused("gyre_comm_destroy", comm);
    if (st == GYRE_OK)
        coll_comm_free(comm);
    return st;
}

void coll_comm_abort(gyre_comm_t *comm, const char *text)
{
    coll_comm_claim_abort(comm, text);
    if (coll_comm_idle(comm))
        (void)coll_cuda_stop(comm); /* of what is on streams nobody may wait */
    else
        coll_comm_fail(comm, NULL, GYRE_ERR_ABORTED, text);
}

gyre_status_t gyre_comm_abort(gyre_comm_t *comm, const char *reason)
{
    gyre_status_t st = coll_check_live("gyre_comm_abort", comm);
    if (st != GYRE_OK)
        return st;
    char text[512];
    snprintf(text, sizeof text, "aborted: %s", reason ? reason : "no reason given");
    coll_comm_claim_abort(comm, text);
    return GYRE_OK;
}

gyre_status_t coll_comm_forget_plans(gyre_comm_t *comm)
{
    if (!coll_comm_idle(comm) || comm->open)
        return GYRE_ERR_INVALID;
    uint64_t built = comm->plans.built;
    coll_plan_cache_free(&comm->plans);
    comm->plans.built = built;
    return GYRE_OK;
}

gyre_status_t coll_comm_pin(gyre_comm_t *comm, const coll_tune_line_t *line)
{
    coll_drive(comm);
    gyre_status_t st = coll_comm_forget_plans(comm);
    if (st == GYRE_OK)
        comm->pin = line ? *line : (coll_tune_line_t){0};
    coll_stop_driving(comm);
    return st == GYRE_OK
               ? st
               : gyre_fail(st, "the choice of algorithms cannot change while operations are under way");
}

gyre_status_t gyre_comm_error(const gyre_comm_t *comm)
{
    gyre_status_t st = coll_check_live("gyre_comm_error", comm);
    if (st != GYRE_OK)
        return st;
    return coll_comm_ask(comm);
}

int gyre_comm_rank(const gyre_comm_t *comm)
{
    return comm ? comm->rank : -1;
}

int gyre_comm_size(const gyre_comm_t *comm)
{
    return comm ? comm->n : -1;
}

int gyre_comm_local_rank(const gyre_comm_t *comm)
{
    return comm ? comm->local_rank : -1;
}

int gyre_comm_local_size(const gyre_comm_t *comm)
{
    return comm ? comm->local_size : -1;
}

int gyre_comm_hosts(const gyre_comm_t *comm)
{
    return comm ? comm->hosts : -1;
}

int gyre_comm_leaves(const gyre_comm_t *comm)
{
    if (!comm || comm->n < 1)
        return -1;
    return comm->leaves ? comm->leaves[comm->rank + 1] - comm->leaves[comm->rank] : 1;
}

gyre_status_t gyre_comm_place(const gyre_comm_t *comm, int rank, gyre_place_t *place)
{
    gyre_status_t st = coll_check_live("gyre_comm_place", comm);
    if (st == GYRE_OK && !place)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_place: place is NULL");
    if (st == GYRE_OK && (rank < 0 || rank >= comm->n))
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_place: rank %d is not in 0..%d", rank, comm->n - 1);
    if (st != GYRE_OK)
        return st;
    gyre_comm_t *driven = (gyre_comm_t *)(uintptr_t)comm; /* the driver changes what is known of devices */
    gyre_place_t p = {.host = comm->host_of[rank],
                      .numa = comm->group ? comm_group_nodes(comm->group)[rank] : -1,
                      .job_rank = comm->world_ranks[rank]};
    for (int r = 0; r < comm->n; r++) {
        p.host_rank += r < rank && comm->host_of[r] == p.host;
        p.host_size += comm->host_of[r] == p.host;
    }
    comm_boot_host(comm->world->boot, p.job_rank, p.host_name, sizeof p.host_name);
    coll_drive(driven);
    p.device = coll_cuda_where(comm, rank, p.device_bus);
    coll_stop_driving(driven);
    return coll_sized_write(place, sizeof(gyre_place_t), &p, sizeof p, "gyre_comm_place");
}

gyre_status_t gyre_comm_stats(const gyre_comm_t *comm, gyre_comm_stats_t *stats)
{
    gyre_status_t st = coll_check_live("gyre_comm_stats", comm);
    if (st == GYRE_OK && !stats)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_stats: stats is NULL");
    if (st != GYRE_OK)
        return st;
    gyre_comm_t *driven =
        (gyre_comm_t *)(uintptr_t)comm; /* reading takes a turn, too: the counters belong to the driver */
    comm_group_stats_t g = {0};
    coll_drive(driven);
    if (comm->group)
        comm_group_stats(comm->group, &g);
    gyre_comm_stats_t s = {.operations = comm->operations,
                           .bytes_sent = comm->traffic.bytes_sent,
                           .bytes_received = comm->traffic.bytes_received,
                           .messages_sent = comm->traffic.messages_sent,
                           .plans_built = comm->plans.built,
                           .allocations = comm->allocations,
                           .sleeps = comm->sleeps,
                           .shared_bytes = g.shared_bytes,
                           .private_bytes = g.private_bytes + sizeof *comm + comm->scratch.bytes +
                                            comm->plans.bytes + comm->held_bytes,
                           .connections = g.connections,
                           .wait_seconds = (double)comm->waited * 1e-9,
                           .yields = g.yields,
                           .yield_seconds = (double)g.yield_ns * 1e-9,
                           .sleep_seconds = (double)g.sleep_ns * 1e-9};
    coll_stop_driving(driven);
    return coll_sized_write(stats, offsetof(gyre_comm_stats_t, bytes_sent), &s, sizeof s, "gyre_comm_stats");
}
