/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/groups.c: the groups that use this process's worker: how one begins and ends, and which one a
 * message or a process belongs to.
 *
 * Every group sends its worker's address to all its ranks when it is made: O(n) memory, for now. */
#include "comm/ucx/ucx.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static comm_ucx_group_t *groups;
static int users; /* groups, with those that are about to begin */

int ucx_needed_elsewhere(const comm_ucx_group_t *ug, int rank)
{
    const uint64_t process = ucx_address_hash(ug, rank); /* ranks differ from job to job */

    for (const comm_ucx_group_t *other = groups; other; other = other->next) {
        for (int r = 0; other != ug && other->addresses && other->leave_by == 0 && r < other->group->n; r++) {
            if (ucx_address_hash(other, r) == process && !comm_group_failed(other->group))
                return 1;
        }
    }
    return 0;
}

int ucx_busy_elsewhere(const comm_ucx_group_t *ug, const ucx_peer_t *peer)
{
    int busy = 0;

    for (const comm_ucx_group_t *other = groups; other && !busy; other = other->next)
        busy = other != ug && ucx_links_busy(other, peer);
    return busy;
}

comm_ucx_group_t *ucx_group_of(const ucx_header_t *header)
{
    for (comm_ucx_group_t *ug = groups; ug; ug = ug->next) {
        if (ug->group->id == header->group && ug->group->rank == header->dest)
            return ug;
    }
    return NULL;
}

comm_ucx_group_t *ucx_group_with(uint64_t address_hash, int *rank)
{
    for (comm_ucx_group_t *ug = groups; ug; ug = ug->next) {
        for (int r = 0; ug->agreed && ug->leave_by == 0 && r < ug->group->n; r++) {
            if (r != ug->group->rank && ucx_address_hash(ug, r) == address_hash) {
                *rank = r;
                return ug;
            }
        }
    }
    return NULL;
}

/* What has moved is perhaps for a group in which another thread sleeps on the descriptor. The descriptor may
 * not show it any more, so that thread's bell is rung. */
void ucx_wake_others(const comm_group_t *mine)
{
    if (!groups || (!groups->next && groups->group == mine))
        return;
    base_fence(); /* as in comm_bell_order */
    for (const comm_ucx_group_t *ug = groups; ug; ug = ug->next) {
        if (ug->group != mine && atomic_load_explicit(&ug->group->bell->sleeping, memory_order_relaxed))
            comm_bell_ring_slow(ug->group->bell);
    }
}

/* Before UCX closes its end of a connection it says so to the other end, and tries again and again as long as
 * the socket is full: for minutes if that host is cut off, forever if the process is stopped. A socket that
 * is shut down refuses at once. Which socket belongs to which peer UCX does not say, so this is done only
 * where none is needed any more. */
void ucx_end_connections(const comm_ucx_group_t *ug)
{
    if (users == 1 && comm_group_failed(ug->group))
        ucx_sockets_end(ucx_event_fd());
}

static void leave_locked(comm_ucx_group_t *ug)
{
    comm_ucx_group_t **link = &groups;
    int failed = comm_group_failed(ug->group);

    ucx_end_connections(ug);
    while (*link && *link != ug)
        link = &(*link)->next;
    if (*link)
        *link = ug->next;
    ucx_give_back(ug, -1);
    for (size_t i = 0; ug->inboxes && i < (size_t)ug->group->n * COMM_LANES; i++)
        free(ug->inboxes[i]);
    free(ug->inboxes);
    free(ug->withdrawn);
    free(ug->addresses);
    free(ug->failed);
    free(ug);
    if (--users == 0) {
        ucx_peers_close(failed);
        ucx_links_reap();
        ucx_stop();
        ucx_links_drop();
    }
}

void ucx_leave(comm_group_t *group)
{
    ucx_lock();
    if (!comm_group_failed(group))
        ucx_peers_flush(ucx_of(group));
    ucx_remote_leave(ucx_of(group));
    leave_locked(ucx_of(group));
    group->network_state = NULL;
    ucx_unlock();
    ucx_free_retired();
}

enum { SAYS_LINKS, SAYS_PIECE }; /* words of a card; piece 0: this process has not started UCX */

void ucx_introduce(uint32_t word[COMM_SAID_WORDS])
{
    ucx_lock();
    word[SAYS_LINKS] = (uint32_t)ucx_links();
    word[SAYS_PIECE] = ucx_piece();
    ucx_unlock();
}

/* Shorter pieces are needed to stripe the chunks of a collective, and cost more where one link carries all. A
 * process whose UCX already runs cannot change its piece, so the ranks that join it take its piece. */
static gyre_status_t agree_on_piece(const comm_group_t *group, uint32_t *piece)
{
    enum { WHOLE = 64 << 10 /* UCX's own */, STRIPED = 16 << 10 };
    const int number = comm_transport_number(&comm_ucx);
    int fixed = -1;

    *piece = WHOLE;
    for (int r = 0; r < group->n; r++) {
        const uint32_t *said = group->cards[r].said[number];
        if (said[SAYS_LINKS] > 1)
            *piece = STRIPED;
        if (said[SAYS_PIECE] == 0)
            continue;
        if (fixed >= 0 && said[SAYS_PIECE] != group->cards[fixed].said[number][SAYS_PIECE])
            return gyre_fail(
                GYRE_ERR_UNSUPPORTED,
                "ranks %d and %d have started UCX apart, for other numbers of links per host, and cannot "
                "be joined: start them as one job, or with the same UCX_NET_DEVICES",
                fixed, r);
        fixed = r;
    }
    if (fixed >= 0)
        *piece = group->cards[fixed].said[number][SAYS_PIECE];
    return GYRE_OK;
}

/* Makes this rank's part; *bytes: the length of its address; *failed: how many connections have failed. */
static gyre_status_t begin(comm_group_t *group, uint32_t *bytes, uint32_t *failed)
{
    comm_ucx_group_t *ug;
    uint32_t piece;
    size_t address_bytes;
    gyre_status_t status = agree_on_piece(group, &piece);

    if (status != GYRE_OK)
        return status;
    ug = calloc(1, sizeof *ug);
    if (!ug)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", group->n);
    ug->group = group;
    ug->inboxes = calloc((size_t)group->n * COMM_LANES, sizeof *ug->inboxes);
    ug->withdrawn = calloc((size_t)group->n, sizeof *ug->withdrawn);
    ucx_lock();
    users++;
    status = ug->inboxes && ug->withdrawn ? ucx_start(piece)
                                          : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for inboxes");
    if (status == GYRE_OK)
        status = ucx_peers_list_failed(ug);
    if (status == GYRE_OK) {
        /* Known before any peer can have this rank's address: no message finds its group missing. */
        ug->next = groups;
        groups = ug;
        group->network_state = ug;
        ucx_address(&address_bytes);
        *bytes = (uint32_t)address_bytes;
        *failed = ug->nfailed;
    } else {
        leave_locked(ug);
    }
    ucx_unlock();
    return status;
}

/* A record: 4 bytes of length, the worker's address, and from failed_at on the hashed addresses to which
 * connections have failed; 0 after the last, up to most_failed. */
static void write_record(const comm_ucx_group_t *ug, unsigned char *record, size_t failed_at)
{
    size_t bytes;
    const ucp_address_t *address = ucx_address(&bytes);
    const uint32_t length = (uint32_t)bytes;

    memcpy(record, &length, sizeof length);
    memcpy(record + sizeof length, address, length);
    memcpy(record + failed_at, ug->failed, ug->nfailed * sizeof *ug->failed);
}

/* Collective: exchanges the workers' addresses. */
gyre_status_t ucx_prepare(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                          base_time_t deadline)
{
    struct {
        int32_t status;
        uint32_t bytes, failed;
    } mine = {0}, *all = calloc((size_t)group->n, sizeof *all);
    comm_ucx_group_t *ug;
    size_t most = 0;
    uint32_t most_failed = 0;
    unsigned char *record;
    gyre_status_t status;

    (void)quiet; /* UCX works everywhere */
    (void)deadline;
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for addresses of %d ranks", group->n);
    mine.status = (int32_t)begin(group, &mine.bytes, &mine.failed);
    status = all_gather(user, &mine, sizeof mine, all);
    for (int r = 0; status == GYRE_OK && r < group->n; r++) {
        if (all[r].status != GYRE_OK)
            status = r == group->rank
                         ? (gyre_status_t)all[r].status
                         : gyre_fail((gyre_status_t)all[r].status,
                                     "rank %d (world rank %d) could not start UCX; its message says why", r,
                                     group->world_ranks[r]);
        most = all[r].bytes > most ? all[r].bytes : most;
        most_failed = all[r].failed > most_failed ? all[r].failed : most_failed;
    }
    free(all);
    if (status != GYRE_OK)
        return status;
    /* Records as long as the longest: all ranks know that length now. */
    ug = ucx_of(group);
    most += sizeof mine.bytes;
    ug->record_bytes = most + most_failed * sizeof(uint64_t);
    ug->addresses = calloc((size_t)group->n, ug->record_bytes);
    record = calloc(1, ug->record_bytes);
    if (!ug->addresses || !record) {
        free(record);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for addresses of %d ranks", group->n);
    }
    write_record(ug, record, most);
    status = all_gather(user, record, ug->record_bytes, ug->addresses);
    free(record);
    group->private_bytes += (size_t)group->n * (ug->record_bytes + COMM_LANES * sizeof(void *) + 1);
    ucx_lock();
    if (status == GYRE_OK)
        status = ucx_peers_agree(ug, ucx_own_hash(), most, most_failed);
    ucx_unlock();
    return status;
}
