/* SPDX-License-Identifier: Apache-2.0 */
/* comm/group.c: life of a group, and what can be asked of it.
 *
 * Making one is collective. It costs three or four all-gathers, or, of ranks that know each other already,
 * one and an agreement (comm/derive.c). Afterwards nothing is connected yet (comm/link.c). A group of one
 * makes none and no shared memory. */
#include "comm/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/peer_memory.h"

/* From the watcher's thread: something died or was aborted; a thread that sleeps in this group must look. */
static void wake_sleeper(void *user)
{
    comm_group_t *group = user;

    comm_bell_wake(group->bell);
}

static gyre_status_t allocate(comm_group_t *group, const int *world_ranks)
{
    size_t n = (size_t)group->n;

    group->world_ranks = calloc(n, sizeof *group->world_ranks);
    group->host_of = calloc(n, sizeof *group->host_of);
    group->node_of = calloc(n, sizeof *group->node_of);
    group->cell_of = calloc(n, sizeof *group->cell_of);
    group->local_of = calloc(n, sizeof *group->local_of);
    group->links = calloc(n * COMM_LANES, sizeof *group->links);
    group->peer_memory = calloc(n, sizeof(void *));
    group->private_bytes = sizeof *group + n * (5 * sizeof(int) + (COMM_LANES + 1) * sizeof(void *));
    if (group->n > 1) {
        group->cards = calloc(n, sizeof *group->cards);
        group->private_bytes += n * sizeof *group->cards;
    }
    if (!group->world_ranks || !group->host_of || !group->node_of || !group->cell_of || !group->local_of ||
        !group->links || !group->peer_memory || (n > 1 && !group->cards))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", group->n);
    memcpy(group->world_ranks, world_ranks, n * sizeof *world_ranks);
    return GYRE_OK;
}

/* The next row from *at on that may join the group's hosts: the one that GYRE_TRANSPORT names, or each that
 * every rank says it can use. */
static const comm_transport_ops_t *next_network(const comm_group_t *group, int *at)
{
    for (; *at < COMM_TRANSPORTS && comm_transports[*at]; ++*at) {
        int everywhere = comm_transports[*at]->scope == COMM_BETWEEN_HOSTS;
        for (int r = 0; r < group->n; r++)
            everywhere &= group->cards[r].said[*at][0] != 0;
        if (group->forced ? group->forced == comm_transports[*at] : everywhere)
            return comm_transports[(*at)++];
    }
    return NULL;
}

/* Joins the hosts by the first network that works: it carries messages where shared memory does not. All
 * ranks decide alike: locate has compared the setting and has given every rank the hosts and each rank's
 * usable transports. */
static gyre_status_t join_hosts(comm_group_t *group, comm_all_gather_fn all_gather, void *user,
                                base_time_t deadline)
{
    gyre_status_t status = GYRE_OK;
    int at = 0;

    if (group->forced ? group->forced->scope != COMM_BETWEEN_HOSTS : group->hosts == 1)
        return GYRE_OK;
    group->network = next_network(group, &at);
    while (group->network) {
        const comm_transport_ops_t *next = next_network(group, &at);
        status = group->network->prepare(group, next != NULL, all_gather, user, deadline);
        if (status != GYRE_ERR_UNSUPPORTED || !next)
            break;
        group->network = next;
    }
    return status;
}

/* Everything that needs the others. */
static gyre_status_t join(comm_group_t *group, comm_all_gather_fn all_gather, void *user,
                          base_time_t deadline)
{
    gyre_status_t status;
    int locals = 0;

    status = comm_group_locate(group, all_gather, user, deadline);
    if (status != GYRE_OK)
        return status;
    for (int r = 0; r < group->n; r++)
        locals += group->local_of[r] >= 0;
    if (locals < 2)
        comm_segment_close(&group->seg);
    comm_group_move_in(group);
    return join_hosts(group, all_gather, user, deadline);
}

void comm_group_move_in(comm_group_t *group)
{
    if (group->seg.base) {
        group->bell = comm_segment_bell(&group->seg, group->seg.local);
        group->board = comm_segment_board(&group->seg, group->seg.local);
        if (group->seg.locals <= COMM_FENCE_RANKS)
            comm_bell_promise(group->bell);
        group->pool.count = group->seg.buffers;
    }
    /* Members that share one host and whose places are all taken, in rank order. */
    if (group->seg.base && group->hosts == 1 && group->seg.locals == group->n &&
        group->seg.outbox.lines > 0 && !comm_group_shuns_memory(group)) {
        comm_outbox_open(&group->outbox, &group->seg.outbox, comm_segment_outbox(&group->seg, 0),
                         group->seg.outbox_stride, group->n, group->rank);
    }
    if (group->oversubscribed)
        atomic_store_explicit(&group->world->crowded, 1, memory_order_relaxed);
}

/* A rank that sleeps on a network's descriptors must hear the ranks of its host, too, and the threads of its
 * own process. */
static void hear_bell(comm_group_t *group)
{
    if (!group->network_state)
        return;
    group->bell_fd = comm_bell_open(group->bell);
    if (group->bell_fd < 0)
        log_info("no socket for a doorbell (%s): a rank that sleeps looks at shared memory each millisecond",
                 strerror(errno));
}

/* NULL: GYRE_TRANSPORT leaves it to the group. */
static const comm_transport_ops_t *forced_transport(void)
{
    const int number = comm_transport_find(base_setting_string(SET_TRANSPORT));

    return number < 0 ? NULL : comm_transports[number];
}

gyre_status_t comm_group_new(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                             comm_group_t **out)
{
    comm_group_t *group = aligned_alloc(_Alignof(comm_group_t), sizeof *group);
    gyre_status_t status;

    if (!group)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", n);
    memset(group, 0, sizeof *group);
    group->world = world;
    group->id = id;
    group->n = n;
    group->rank = rank;
    group->bell = &group->own_bell;
    group->bell_fd = -1;
    group->board = &group->own_board;
    group->hosts = group->cells = 1;
    group->cores = 1;
    group->forced = forced_transport();
    group->spin_ns = base_setting_int(SET_SPIN) * 1000; /* microseconds there */
    status = allocate(group, world_ranks);
    if (status != GYRE_OK) {
        comm_group_destroy(group);
        return status;
    }
    *out = group;
    return GYRE_OK;
}

void comm_group_begin(comm_group_t *group)
{
    hear_bell(group);
    group->sleeper = (comm_watch_sleeper_t){.wake = wake_sleeper, .user = group};
    comm_watch_on_trouble(group->world->watch, &group->sleeper);
}

gyre_status_t comm_group_create(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                                comm_all_gather_fn all_gather, void *user, base_time_t deadline,
                                comm_group_t **out)
{
    comm_group_t *group;
    gyre_status_t status;

    if (n < 1 || rank < 0 || rank >= n || !world_ranks || (n > 1 && !all_gather))
        return gyre_fail(GYRE_ERR_INVALID, "rank %d of %d is not a place in a group", rank, n);
    if (n > 1 && !world->watch)
        return gyre_fail(GYRE_ERR_INTERNAL, "a group of %d ranks needs a watcher", n);
    status = comm_group_new(world, id, world_ranks, n, rank, &group);
    if (status != GYRE_OK)
        return status;
    if (n == 1)
        group->node_of[0] = comm_own_seat().numa;
    else
        status = join(group, all_gather, user, deadline);
    if (status == GYRE_OK && n > 1)
        comm_group_begin(group);
    if (status != GYRE_OK) {
        comm_group_destroy(group);
        return status;
    }
    *out = group;
    return GYRE_OK;
}

static void close_links(comm_group_t *group)
{
    for (size_t i = 0; group->links && i < (size_t)group->n * COMM_LANES; i++) {
        if (group->links[i])
            group->links[i]->ops->close(group->links[i]);
        group->links[i] = NULL;
    }
    if (group->network_state) {
        group->network->reclaim(group);
        group->network->leave(group);
    }
    comm_peer_memory_free(group);
}

void comm_group_let_go(comm_group_t *group)
{
    comm_peer_memory_close(group);
    if (group->network_state && group->network->let_go)
        group->network->let_go(group);
}

void comm_group_shut(comm_group_t *group)
{
    group->failed = 1;
    close_links(group);
}

/* What its segment was used for, before the links are closed. */
static void note_use(comm_group_t *group)
{
    comm_segment_t *seg = &group->seg;

    seg->lines = (uint32_t)(group->outbox.number < UINT32_MAX ? group->outbox.number : UINT32_MAX);
    seg->soiled = group->populated > 0 || atomic_load(&group->failed) != 0;
    for (size_t i = 0; group->links && i < (size_t)group->n * COMM_LANES; i++)
        seg->soiled |= group->links[i] != NULL;
}

void comm_group_destroy(comm_group_t *group)
{
    if (!group)
        return;
    if (group->sleeper.wake)
        comm_watch_off_trouble(group->world->watch, &group->sleeper);
    note_use(group);
    close_links(group);
    comm_segment_close(&group->seg);
    comm_bell_close(group->bell_fd);
    free(group->peer_memory);
    free(group->links);
    free(group->cards);
    free(group->local_of);
    free(group->cell_of);
    free(group->node_of);
    free(group->order);
    free(group->host_of);
    free(group->world_ranks);
    free(group);
}

void comm_group_progress(comm_group_t *group)
{
    if (group->network_state)
        group->network->progress(group);
}

int comm_group_unanswered(const comm_group_t *group, char *text, size_t bytes)
{
    if (!group->network_state || !group->network->unanswered)
        return 0;
    return group->network->unanswered(group, text, bytes);
}

uint64_t comm_group_id(const comm_group_t *group)
{
    return group->id;
}

int comm_group_world_rank(const comm_group_t *group, int rank)
{
    return group->world_ranks[rank];
}

const int *comm_group_hosts(const comm_group_t *group, int *hosts)
{
    if (hosts)
        *hosts = group->hosts;
    return group->host_of;
}

const int *comm_group_nodes(const comm_group_t *group)
{
    return group->node_of;
}

const int *comm_group_order(const comm_group_t *group)
{
    return group->order;
}

const int *comm_group_cells(const comm_group_t *group, int *cells)
{
    if (cells)
        *cells = group->cells;
    return group->cell_of;
}

int comm_group_oversubscribed(const comm_group_t *group)
{
    return group->oversubscribed || atomic_load_explicit(&group->world->crowded, memory_order_relaxed);
}

int comm_group_cores(const comm_group_t *group)
{
    return group->cores;
}

comm_board_t *comm_group_board(const comm_group_t *group)
{
    return group->board;
}

static comm_board_t *board_of(const comm_group_t *group, int rank)
{
    if (rank == group->rank)
        return group->board;
    if (!group->seg.base || group->local_of[rank] < 0)
        return NULL;
    return comm_segment_board(&group->seg, group->local_of[rank]);
}

int comm_group_peer_call(const comm_group_t *group, int peer, comm_call_t *call)
{
    comm_board_t *board = board_of(group, peer);
    return board && comm_board_read(board, call);
}

int comm_group_find_call(const comm_group_t *group, int rank, uint32_t seq, int p2p, int partner,
                         comm_call_t *call)
{
    comm_board_t *board = board_of(group, rank);
    return board && comm_board_find(board, seq, p2p, partner, call);
}

void comm_group_stats(const comm_group_t *group, comm_group_stats_t *out)
{
    out->shared_bytes = group->seg.bytes;
    out->private_bytes = group->private_bytes;
    out->connections = group->connections;
    out->fences = atomic_load_explicit(&group->bell->heavy, memory_order_relaxed) ? group->fences : 0;
    out->yields = (uint64_t)atomic_load_explicit(&group->yields.count, memory_order_relaxed);
    out->yield_ns = atomic_load_explicit(&group->yields.ns, memory_order_relaxed);
    out->sleep_ns = atomic_load_explicit(&group->yields.sleep_ns, memory_order_relaxed);
}

double comm_group_cma_call(const comm_group_t *group)
{
    return group->cma_call_ns;
}

void comm_group_set_ring(comm_group_t *group, size_t best, int takes)
{
    group->ring_best = best;
    group->ring_takes = takes;
}

size_t comm_group_ring_most(const comm_group_t *group, int lane)
{
    const size_t holds = group->seg.base ? comm_segment_ring_holds(&group->seg, lane) : 0;

    return base_max_size(COMM_SHM_EAGER_MOST, base_min_size(group->ring_best, holds));
}

comm_outbox_t *comm_group_outbox(comm_group_t *group)
{
    return group->outbox.base ? &group->outbox : NULL;
}

void comm_group_outbox_populate(comm_group_t *group, size_t bytes, int stream)
{
    const comm_outbox_t *x = &group->outbox;
    const size_t reach = comm_outbox_reach(x, bytes, stream);

    if (reach <= group->populated)
        return;
    comm_segment_populate(comm_segment_outbox(&group->seg, x->mine) + group->populated,
                          reach - group->populated);
    group->populated = reach;
}

static __attribute__((noinline)) void ring_sleepers(const comm_group_t *group)
{
    for (int l = 0; l < group->seg.locals; l++)
        if (l != group->seg.local)
            comm_bell_ring_for(comm_segment_bell(&group->seg, l), group->seg.local);
}

/* A promise is never taken back, so one look at all of them is enough. */
static int all_promised(comm_group_t *group)
{
    if (group->all_promised || group->seg.locals > COMM_FENCE_RANKS)
        return group->all_promised;
    int all = atomic_load_explicit(&comm_bell_registered, memory_order_relaxed);
    for (int l = 0; l < group->seg.locals; l++)
        all &= (int)atomic_load_explicit(&comm_segment_bell(&group->seg, l)->heavy, memory_order_relaxed);
    return group->all_promised = all;
}

static __attribute__((noinline)) void ring_with_fence(comm_group_t *group)
{
    if (all_promised(group)) /* as in comm_bell_order */
        base_fence_light();
    else
        base_fence();
    ring_sleepers(group);
}

void comm_group_ring(comm_group_t *group)
{
    if (!group->all_promised) {
        ring_with_fence(group);
        return;
    }
    base_fence_light();
    /* Hardly ever one sleeps: a look at all of them, for every small call, before any is rung. */
    const unsigned char *bell = (const unsigned char *)comm_segment_bell(&group->seg, 0);
    const size_t stride = group->seg.local_stride;
    const int locals = group->seg.locals, own = group->seg.local;
    uint32_t sleeping = COMM_BELL_AWAKE;
    for (int l = 0; l < locals; l++, bell += stride)
        if (l != own)
            sleeping |= atomic_load_explicit(&((const comm_bell_t *)(const void *)bell)->sleeping,
                                             memory_order_relaxed);
    if (sleeping != COMM_BELL_AWAKE)
        ring_sleepers(group);
}
