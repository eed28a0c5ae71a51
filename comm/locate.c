/* SPDX-License-Identifier: Apache-2.0 */
/* comm/locate.c: finds by trying which ranks of a group share this host.
 *
 * Every rank sends every other its watcher's address and a hint. The hint is a hash of what ranks of one host
 * normally have in common (boot id, network namespace). Then there are rounds, normally one:
 *
 *  1. Among the ranks that have no host yet, the lowest rank of each hint makes a segment and offers it: in a
 *     file of its own, or in a backing file, if all of these ranks have one in common
 *     (comm/memory/backing.h).
 *  2. The other ranks of that hint fetch the file and compare a random cookie in it.
 *  3. Ranks that succeed share the host of the lowest rank. Ranks that fail try again among themselves. A
 *     wrong hint costs rounds, never correctness.
 *
 * Each round is two all-gathers. A rank that meets an error takes part in them to the end and sends its
 * status along. So no other rank waits for it, and all return the same error. */
#include "comm/link.h"
#include "comm/memory/cma.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/identity.h"
#include "base/settings/settings.h"

enum { CARD_MAGIC = 0x47594331 /* "GYC1" */ };

/* What leaders say in the first all-gather of a round, and members in the second. */
typedef struct {
    int32_t status;     /* of this rank so far */
    int32_t host;       /* second all-gather: the leader whose segment this rank has; -1: none */
    uint64_t cookie;    /* first all-gather: of the segment that this rank offers; 0: none */
    uint64_t at;        /* its offset in the backing file; 0: it has a file of its own */
    double cma_call_ns; /* comm_world_t's */
} round_t;

/* The same for ranks that see the same machine and network, most likely. */
static uint64_t host_hint(comm_world_t *world)
{
    const int64_t every = base_setting_int(SET_HOST_RANKS);
    uint64_t host = atomic_load_explicit(&world->host_hint, memory_order_relaxed);

    if (host == 0) {
        host = base_machine(BASE_MACHINE_NET);
        atomic_store_explicit(&world->host_hint, host, memory_order_relaxed);
    }
    const uint64_t words[2] = {host, every > 0 ? (uint64_t)(world->rank / every) + 1 : 0};
    return base_hash64(words, sizeof words, 1);
}

static uint64_t probe_word(comm_world_t *world)
{
    uint64_t none = 0;

    if (atomic_load_explicit(&world->probe, memory_order_relaxed) == 0)
        (void)atomic_compare_exchange_strong(&world->probe, &none, base_random64() | 1); /* never 0 */
    return atomic_load_explicit(&world->probe, memory_order_relaxed);
}

/* What may change while the process runs: by its settings, and where the calling thread may run. */
static void fill_state(const comm_group_t *group, comm_card_t *card)
{
    const char *copy = base_setting_string(SET_SHM_COPY);
    cpu_set_t mine;
    _Static_assert(sizeof card->cores <= sizeof(cpu_set_t), "a cpu_set_t has at least as many bits");

    card->transport = comm_transport_find(base_setting_string(SET_TRANSPORT));
    card->reaches = strcmp(copy, "auto") == 0 || strcmp(copy, "cma") == 0;
    card->hint = host_hint(group->world);
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        CPU_SET(0, &mine);
    memcpy(card->cores, &mine, sizeof card->cores);
}

int comm_card_holds(const comm_group_t *group)
{
    const comm_card_t *said = &group->cards[group->rank];
    comm_card_t now;

    fill_state(group, &now);
    return now.transport == said->transport && now.reaches == said->reaches && now.hint == said->hint &&
           memcmp(now.cores, said->cores, sizeof now.cores) == 0;
}

comm_backing_t *comm_world_backing(comm_world_t *world)
{
    if (!world->watch || (atomic_load(comm_watch_trouble(world->watch)) != 0 &&
                          comm_watch_dead(world->watch, NULL, 0, NULL, 0) >= 0))
        return NULL;
    return atomic_load_explicit(&world->backing, memory_order_acquire);
}

static void fill_card(comm_group_t *group, comm_card_t *card)
{
    memset(card, 0, sizeof *card);
    card->magic = CARD_MAGIC + (uint32_t)sizeof *card;
    card->pid = (int32_t)getpid();
    fill_state(group, card);
    card->status = GYRE_OK;
    if (group->forced && group->forced->missing)
        card->status = (int32_t)gyre_fail(GYRE_ERR_UNSUPPORTED, "GYRE_TRANSPORT=%s: this build has no %s; %s",
                                          group->forced->name, group->forced->name, group->forced->missing);
    for (int i = 0; i < COMM_TRANSPORTS && comm_transports[i]; i++)
        if (comm_transports[i]->introduce && (!group->forced || group->forced == comm_transports[i]))
            comm_transports[i]->introduce(card->said[i]);
    const comm_backing_t *backing = comm_world_backing(group->world);
    card->backing = comm_backing_name(backing);
    card->place = comm_backing_place(backing);
    card->probe_address = (uint64_t)(uintptr_t)&group->world->probe;
    card->probe_value = probe_word(group->world);
    if (group->world->watch)
        comm_watch_address(group->world->watch, card->address);
    card->seat = comm_own_seat();
}

/* ---- one round ----------------------------------------------------------------------------------------- */

/* The lowest rank without a host whose hint is that of `rank`. */
static int leader_of(const comm_group_t *group, int rank)
{
    for (int r = 0; r < rank; r++) {
        if (group->host_of[r] < 0 && group->cards[r].hint == group->cards[rank].hint)
            return r;
    }
    return rank;
}

/* How many ranks without a host have the hint of `leader`, and which of them `rank` is. */
static int candidates(const comm_group_t *group, int leader, int rank, int *place)
{
    int count = 0;

    for (int r = 0; r < group->n; r++) {
        if (group->host_of[r] >= 0 || group->cards[r].hint != group->cards[leader].hint)
            continue;
        if (r == rank)
            *place = count;
        count++;
    }
    return count;
}

static uint64_t segment_key(const comm_group_t *group, int leader)
{
    uint64_t mix[2] = {group->id, (uint64_t)leader};

    return base_hash64(mix, sizeof mix, 2) |
           1ull << 63; /* windows have numbers below that (comm/memory/window.c) */
}

/* The backing file that all candidates of `leader` have, or NULL; the same answer for all of them. */
static comm_backing_t *common_backing(const comm_group_t *group, int leader)
{
    const uint64_t name = group->cards[leader].backing;

    for (int r = 0; r < group->n; r++)
        if (group->host_of[r] < 0 && group->cards[r].hint == group->cards[leader].hint &&
            group->cards[r].backing != name)
            return NULL;
    return name ? atomic_load_explicit(&group->world->backing, memory_order_acquire) : NULL;
}

/* *fd: the segment's file, owned by the caller; -1: it lies in the backing file. */
static gyre_status_t make_segment(comm_group_t *group, int count, comm_backing_t *backing, round_t *say,
                                  int *fd)
{
    size_t budget = (size_t)base_setting_int(SET_SHM_BUDGET);
    gyre_status_t status;

    say->cookie = base_random64() | 1; /* 0: none */
    status = comm_segment_create(budget, count, say->cookie, backing, &group->seg, fd);
    if (status != GYRE_OK)
        return status;
    say->at = group->seg.at;
    if (count == group->n)
        comm_cells_divide(group);
    if (*fd >= 0)
        status = comm_watch_offer(group->world->watch, segment_key(group, group->rank), *fd);
    if (status != GYRE_OK)
        comm_segment_close(&group->seg);
    return status;
}

/* 1: has it. 0: that rank is not on this host. An error only for what is wrong here. *fd as above. */
static gyre_status_t fetch_segment(comm_group_t *group, int leader, int count, comm_backing_t *backing,
                                   const round_t *said, base_time_t deadline, int *fd, int *have)
{
    gyre_status_t status;

    *have = 0;
    if (said->at && !backing)
        return GYRE_OK;
    if (said->at) {
        status = comm_segment_open_in(backing, said->at, count, said->cookie, &group->seg);
    } else {
        status = comm_watch_fetch(group->world->watch, group->cards[leader].address,
                                  segment_key(group, leader), fd, deadline);
        if (status == GYRE_OK)
            status = comm_segment_open(*fd, count, said->cookie, &group->seg);
        else
            *fd = -1;
    }
    if (status == GYRE_ERR_UNSUPPORTED)
        return GYRE_OK;
    *have = status == GYRE_OK;
    return status;
}

/* Whether this process is able to read and write the memory of `rank`: tried, or known since the backing
 * file was made. */
static int reads(const comm_group_t *group, int rank)
{
    const comm_card_t *card = &group->cards[rank];

    if (group->seg.backing)
        return comm_backing_reads(group->seg.backing, card->place);
    return comm_cma_works(card->pid, card->probe_address, card->probe_value);
}

/* Later groups lie in this one's file. */
static void keep_backing(const comm_group_t *group, int fd, uint64_t cookie)
{
    const unsigned char *row = (const unsigned char *)comm_segment_cma(&group->seg, group->seg.local, 0);
    comm_backing_t *none = NULL, *backing = NULL;

    if (!atomic_load_explicit(&group->world->backing, memory_order_relaxed))
        backing = comm_backing_open(fd, group->seg.bytes, cookie, group->seg.locals, group->seg.local, row);
    if (backing && !atomic_compare_exchange_strong(&group->world->backing, &none, backing))
        comm_backing_close(backing); /* another thread's was first */
}

/* The first rank's error, if any: the same answer everywhere. */
static gyre_status_t worst(const comm_group_t *group, const round_t *said)
{
    for (int r = 0; r < group->n; r++) {
        if (said[r].status == GYRE_OK)
            continue;
        if (r == group->rank)
            return (gyre_status_t)said[r].status; /* its text was already reported */
        return gyre_fail(
            (gyre_status_t)said[r].status,
            "rank %d (world rank %d) could not set up shared memory: %s; its own message says why", r,
            group->world_ranks[r], gyre_status_string((gyre_status_t)said[r].status));
    }
    return GYRE_OK;
}

/* Assigns hosts from what members said; a leader is always on its own host. Returns how many have none
 * yet. */
static int assign(comm_group_t *group, const round_t *said)
{
    int left = 0;

    for (int r = 0; r < group->n; r++) {
        if (group->host_of[r] < 0 && said[r].host >= 0)
            group->host_of[r] = said[r].host; /* a leader's rank for now */
        left += group->host_of[r] < 0;
    }
    return left;
}

/* Numbers in the segment: every candidate of the round has a place, whether it got there or not. */
static void number_locals(comm_group_t *group, const int *places, int leader)
{
    for (int r = 0; r < group->n; r++)
        group->local_of[r] = group->host_of[r] == leader ? places[r] : -1;
}

/* The same number on all of the host's ranks, which choose by it. */
static double mean_call(const comm_group_t *group, const round_t *said, int host)
{
    double sum = 0;
    int known = 0;

    for (int r = 0; r < group->n; r++)
        if (said[r].host == host && said[r].cma_call_ns > 0) {
            sum += said[r].cma_call_ns;
            known++;
        }
    return known ? sum / known : 0;
}

static gyre_status_t round_once(comm_group_t *group, comm_all_gather_fn all_gather, void *user,
                                base_time_t deadline, round_t *said, int *places, int *left)
{
    int me = group->rank, searching = group->host_of[me] < 0, place = 0, have = 0;
    int leader = searching ? leader_of(group, me) : -1, fd = -1;
    int count = searching ? candidates(group, leader, me, &place) : 0;
    comm_backing_t *backing = searching ? common_backing(group, leader) : NULL;
    round_t say = {.status = GYRE_OK, .host = -1};
    gyre_status_t status;

    if (leader == me && count > 1)
        say.status = (int32_t)make_segment(group, count, backing, &say, &fd);
    status = all_gather(user, &say, sizeof say, said);
    if (status == GYRE_OK)
        status = worst(group, said);
    if (status != GYRE_OK)
        goto withdraw;
    if (searching && leader != me)
        say.status =
            (int32_t)fetch_segment(group, leader, count, backing, &said[leader], deadline, &fd, &have);
    if (searching) {
        say.host = leader == me || have ? leader : -1;
        for (int r = 0, at = 0; r < group->n; r++) {
            if (group->host_of[r] < 0 && group->cards[r].hint == group->cards[leader].hint)
                places[r] = at++;
        }
    }
    if (say.host >= 0 && group->seg.base)
        group->seg.local = place;
    /* CMA is tried by every reader on every owner now; the all-gather makes the results visible. A place
     * whose rank did not come keeps its 0, as nobody asks for it. */
    if (say.host >= 0 && group->seg.base) {
        for (int r = 0; r < group->n; r++) {
            if (r == me || group->host_of[r] >= 0 || group->cards[r].hint != group->cards[leader].hint)
                continue;
            if (!reads(group, r))
                continue;
            atomic_store_explicit(comm_segment_cma(&group->seg, place, places[r]), 1, memory_order_release);
            if (atomic_load_explicit(&group->world->cma_call_ns, memory_order_relaxed) <= 0)
                atomic_store_explicit(&group->world->cma_call_ns,
                                      comm_cma_call_ns(group->cards[r].pid, group->cards[r].probe_address),
                                      memory_order_relaxed);
        }
    }
    say.cma_call_ns = atomic_load_explicit(&group->world->cma_call_ns, memory_order_relaxed);
    status = all_gather(user, &say, sizeof say, said);
    if (status == GYRE_OK)
        status = worst(group, said);
    if (status == GYRE_OK) {
        *left = assign(group, said);
        if (say.host >= 0) {
            number_locals(group, places, leader);
            group->cma_call_ns = mean_call(group, said, say.host);
        }
        if (say.host >= 0 && fd >= 0)
            keep_backing(group, fd, said[leader].cookie);
    }
withdraw:
    if (say.cookie != 0 && fd >= 0)
        comm_watch_withdraw(group->world->watch, segment_key(group, me));
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- afterwards ---------------------------------------------------------------------------------------- */

/* Leaders' ranks become host numbers 0.. in order of their lowest rank, which is the leader. */
static void number_hosts(comm_group_t *group)
{
    group->hosts = 0;
    for (int r = 0; r < group->n; r++) {
        int leader = group->host_of[r];
        group->host_of[r] = leader == r ? group->hosts++ : group->host_of[leader];
    }
}

void comm_group_count_crowd(comm_group_t *group)
{
    int ranks = 0, cores = 0;

    for (int w = 0; w < COMM_CORE_WORDS; w++) {
        uint64_t any = 0;
        for (int r = 0; r < group->n; r++) {
            if (group->host_of[r] == group->host_of[group->rank])
                any |= group->cards[r].cores[w];
        }
        cores += __builtin_popcountll(any);
    }
    for (int r = 0; r < group->n; r++)
        ranks += group->host_of[r] == group->host_of[group->rank];
    group->cores = cores > 0 ? cores : 1;
    group->oversubscribed = ranks > cores;
    comm_yields_begin(&group->yields, ranks, group->cores);
}

static gyre_status_t check_cards(const comm_group_t *group)
{
    const comm_card_t *first = &group->cards[0];

    for (int r = 0; r < group->n; r++) {
        gyre_status_t status = (gyre_status_t)group->cards[r].status;
        if (group->cards[r].magic == first->magic && status != GYRE_OK)
            return r == group->rank
                       ? status /* reported before */
                       : gyre_fail(status,
                                   "rank %d (world rank %d) cannot take part: %s; its own message says why",
                                   r, group->world_ranks[r], gyre_status_string(status));
    }
    for (int r = 1; r < group->n; r++) {
        if (group->cards[r].magic != first->magic)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "rank %d (world rank %d) runs another version of Gyre than rank 0; use the same build on all "
                "ranks",
                r, group->world_ranks[r]);
        if (group->cards[r].transport != first->transport)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "rank %d (world rank %d) has another GYRE_TRANSPORT than rank 0; set it alike on all ranks",
                r, group->world_ranks[r]);
    }
    return GYRE_OK;
}

gyre_status_t comm_group_locate(comm_group_t *group, comm_all_gather_fn all_gather, void *user,
                                base_time_t deadline)
{
    size_t n = (size_t)group->n;
    round_t *said = calloc(n, sizeof *said);
    int *places = calloc(n, sizeof *places);
    comm_card_t mine;
    gyre_status_t status;
    int left = group->n;

    fill_card(group, &mine);
    if (!said || !places) {
        free(said);
        free(places);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to look for the hosts of %d ranks", group->n);
    }
    for (int r = 0; r < group->n; r++)
        group->host_of[r] = group->local_of[r] = -1;
    status = all_gather(user, &mine, sizeof mine, group->cards);
    if (status == GYRE_OK)
        status = check_cards(group);
    while (status == GYRE_OK && left > 0)
        status = round_once(group, all_gather, user, deadline, said, places, &left);
    if (status == GYRE_OK) {
        number_hosts(group);
        for (int r = 0; r < group->n; r++)
            group->node_of[r] = group->cards[r].seat.numa;
        comm_group_count_crowd(group);
        comm_cells_take(group);
        status = comm_seats_order(group);
    }
    free(said);
    free(places);
    return status;
}
