/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/members/split.c: communicators of some of a communicator's ranks, or of all of them.
 * All ranks of the parent take part.
 *
 * Where all ranks of the parent are on one host, what they know of each other holds for a new communicator.
 * One exchange says who belongs together and where each would have its memory (comm/derive.c), another one
 * whether all could make theirs. Elsewhere the members meet as those of a job do, in five exchanges or
 * more. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/api/members/asks.h"

enum { FEW = 512 /* bytes that travel with a round itself: a rank's card, a transport's addresses */ };

typedef struct {
    uint64_t bytes; /* that this rank wants to exchange in this round */
    int32_t needs;  /* 0: it has all it needs and only helps the others */
    int32_t failed;
    unsigned char few[FEW]; /* these bytes, if no rank has more of them */
} split_round_t;

/* What all ranks say first: what they ask for, and what a communicator can be made of at once if all ranks of
 * the parent are on one host. Short enough for the line of its flag in an outbox. */
typedef struct {
    coll_split_ask_t ask;
    comm_offer_t offer;
} split_first_t;
_Static_assert(sizeof(split_first_t) <= COMM_OUTBOX_INLINE, "one cache line of each rank");

/* The members of a split exchange over the parent. Its other ranks, who may need more exchanges, fewer or
 * none, take part in each round all the same, so that a split is nothing but collectives of the parent. */
typedef struct {
    const char *name; /* of the call, for errors */
    coll_inside_t inside;
    gyre_comm_t *parent;
    split_round_t *said; /* [ranks of the parent] */
    const int *members;  /* [n] parent ranks */
    int n;
} subset_t;

/* Whether all have the memory to exchange `most` bytes. If one has not, nobody begins: those that need the
 * round fail, and the others go on helping. */
static gyre_status_t split_can(const subset_t *s, const split_round_t *ask, int can, size_t most,
                               int *all_can)
{
    const split_round_t mine = {.failed = !can};
    int lacks = s->parent->n;
    gyre_status_t st = coll_inside_all_gather(&mine, s->said, sizeof mine, s->parent, s->inside);
    while (st == GYRE_OK && lacks > 0 && !s->said[lacks - 1].failed)
        lacks--;
    *all_can = st == GYRE_OK && lacks == 0;
    if (st != GYRE_OK || *all_can || !ask->needs)
        return st;
    return can ? gyre_fail(GYRE_ERR_ABORTED, "%s: rank %d has no memory to make a communicator", s->name,
                           lacks - 1)
               : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory to exchange %zu bytes with %d ranks", s->name,
                           most, s->parent->n);
}

/* What does not travel with the round itself: `most` bytes of each rank. */
static gyre_status_t split_long(const subset_t *s, const split_round_t *ask, const void *mine, size_t most,
                                void *all)
{
    char *everything = malloc((size_t)s->parent->n * most), *padded = calloc(1, most);
    int all_can = 0;
    gyre_status_t st = split_can(s, ask, everything && padded, most, &all_can);
    if (all_can) {
        if (ask->needs)
            memcpy(padded, mine, ask->bytes);
        st = coll_inside_all_gather(padded, everything, most, s->parent, s->inside);
    }
    for (int i = 0; st == GYRE_OK && all_can && ask->needs && i < s->n; i++)
        memcpy((char *)all + (size_t)i * ask->bytes, everything + (size_t)s->members[i] * most, ask->bytes);
    free(padded);
    free(everything);
    return st;
}

/* One round. *busy: somebody still needed one; *failed: the lowest member that has given up, or -1. */
static gyre_status_t split_round(const subset_t *s, split_round_t *ask, const void *mine, void *all,
                                 int *busy, int *failed)
{
    size_t most = 0;
    if (ask->needs && ask->bytes <= FEW)
        memcpy(ask->few, mine, ask->bytes);
    gyre_status_t st = coll_inside_all_gather(ask, s->said, sizeof *ask, s->parent, s->inside);
    *busy = 0;
    *failed = -1;
    for (int r = 0; st == GYRE_OK && r < s->parent->n; r++) {
        *busy |= s->said[r].needs;
        most = s->said[r].needs && s->said[r].bytes > most ? s->said[r].bytes : most;
    }
    for (int i = s->n; st == GYRE_OK && i-- > 0;)
        *failed = s->said[s->members[i]].failed ? i : *failed;
    if (st == GYRE_OK && most > FEW)
        return split_long(s, ask, mine, most, all);
    for (int i = 0; st == GYRE_OK && ask->needs && i < s->n; i++)
        memcpy((char *)all + (size_t)i * ask->bytes, s->said[s->members[i]].few, ask->bytes);
    return st;
}

static gyre_status_t exchange_by_parent(void *user, const void *mine, size_t bytes, void *all)
{
    const subset_t *s = user;
    split_round_t ask = {.bytes = bytes, .needs = 1};
    int busy, failed;
    gyre_status_t st = split_round(s, &ask, mine, all, &busy, &failed);
    if (st == GYRE_OK && failed >= 0)
        st = gyre_fail(GYRE_ERR_ABORTED, "%s: rank %d of the new communicator could not go on", s->name,
                       failed);
    return st;
}

/* Helps the others until nobody needs a round any more; all ranks of the new communicator then agree on
 * whether it was made. */
static gyre_status_t split_finish(const subset_t *s, gyre_status_t mine)
{
    split_round_t ask = {.failed = mine != GYRE_OK};
    int busy, failed;
    gyre_status_t st;
    do
        st = split_round(s, &ask, NULL, NULL, &busy, &failed);
    while (st == GYRE_OK && busy);
    if (mine != GYRE_OK)
        return mine;
    if (st == GYRE_OK && failed >= 0)
        st = gyre_fail(GYRE_ERR_ABORTED, "%s: rank %d could not make the new communicator", s->name, failed);
    return st;
}

int coll_split_members(const coll_split_ask_t *asks, int n, int rank, int *members, int *mine)
{
    int count = 0;
    for (int r = 0; r < n; r++) {
        if (asks[r].color != asks[rank].color)
            continue;
        int at = count++;
        while (at > 0 && asks[members[at - 1]].key > asks[r].key) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
    }
    for (int i = 0; i < count; i++)
        if (members[i] == rank)
            *mine = i;
    return count;
}

static uint64_t split_id(const gyre_comm_t *comm, int color)
{
    uint64_t words[3] = {comm->id, comm->splits, (uint64_t)(uint32_t)color};
    return base_hash64(words, sizeof words, 3);
}

/* By exchanges over the parent, whatever joins its ranks. */
static gyre_status_t split_meet(const subset_t *s, int color, int rank, int *world_ranks, gyre_comm_t **out)
{
    gyre_comm_t *comm = s->parent;
    for (int i = 0; i < s->n; i++)
        world_ranks[i] = comm_group_world_rank(comm->group, s->members[i]);
    return coll_comm_make(comm->world, split_id(comm, color), world_ranks, s->n, rank, exchange_by_parent,
                          (void *)(uintptr_t)s, base_deadline(comm->timeout_s), out);
}

/* By what all have said first. */
static gyre_status_t split_derive(const subset_t *s, int color, int rank, const comm_offer_t *offers,
                                  double cma_call_ns, gyre_comm_t **out)
{
    const base_time_t start = base_now();
    gyre_comm_t *comm = s->parent;
    comm_group_t *group;
    gyre_status_t st = comm_group_derive(comm->group, split_id(comm, color), s->members, s->n, rank,
                                         &offers[s->members[0]], cma_call_ns, &group);
    return st == GYRE_OK ? coll_comm_around(comm->world, group, s->n, rank, start, out) : st;
}

/* As split_finish, where nobody needs a round any more. */
static gyre_status_t split_agree(const subset_t *s, gyre_status_t mine)
{
    const int32_t failed = mine != GYRE_OK;
    int32_t *said = (int32_t *)(void *)s->said;
    gyre_status_t st = coll_inside_all_gather(&failed, said, sizeof failed, s->parent, s->inside);
    if (mine != GYRE_OK)
        return mine;
    for (int i = 0; st == GYRE_OK && i < s->n; i++)
        if (said[s->members[i]])
            st = gyre_fail(GYRE_ERR_ABORTED, "%s: rank %d could not make the new communicator", s->name, i);
    return st;
}

/* Not all could make it, and so nobody has it; or the parent has failed before this rank heard whether all
 * could. Then another member may have heard that they could: its operations must not wait for this rank. */
static void split_drop(const gyre_comm_t *parent, gyre_comm_t *made)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", gyre_last_error());
    const gyre_status_t failed = (gyre_status_t)atomic_load(&parent->error);
    if (failed != GYRE_OK)
        coll_comm_claim_abort(made, text);
    coll_comm_free(made);
    if (failed != GYRE_OK)
        gyre_fail_quiet(failed, "%s", text);
}

/* asks, offers: [ranks of the parent]. */
static gyre_status_t split_make(const subset_t *of, const coll_split_ask_t *asks, const comm_offer_t *offers,
                                int *members, int *world_ranks, gyre_comm_t **out)
{
    gyre_comm_t *comm = of->parent, *made = NULL;
    const int color = asks[comm->rank].color;
    double cma_call_ns;
    const int derives = comm_offers_serve(offers, comm->n, &cma_call_ns);
    subset_t subset = *of;
    gyre_status_t st = GYRE_OK;
    int rank = 0;
    subset.members = members;
    if (color >= 0)
        subset.n = coll_split_members(asks, comm->n, comm->rank, members, &rank);
    if (!derives || subset.n < 2 || rank > 0)
        comm_group_withdraw(comm->group, &offers[comm->rank]);
    if (color >= 0)
        st = derives ? split_derive(&subset, color, rank, offers, cma_call_ns, &made)
                     : split_meet(&subset, color, rank, world_ranks, &made);
    if (made)
        coll_options_inherit(made, comm);
    gyre_status_t agreed = derives ? split_agree(&subset, st) : split_finish(&subset, st);
    if (agreed != GYRE_OK && made)
        split_drop(comm, made);
    if (agreed == GYRE_OK)
        *out = made;
    return agreed;
}

/* All ranks see the same, so all of them fail, and the parent is as good as before. */
static gyre_status_t split_compare(const subset_t *s, const coll_split_ask_t *asks)
{
    for (int r = 1; r < s->parent->n; r++)
        if (asks[r].call != asks[0].call)
            return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank 0 called %s and rank %d %s", s->name,
                             coll_call_name(COLL_ALL_GATHER, 0, (unsigned)asks[0].call), r,
                             coll_call_name(COLL_ALL_GATHER, 0, (unsigned)asks[r].call));
    return GYRE_OK;
}

gyre_status_t coll_check_parent(const char *name, gyre_comm_t *comm, gyre_comm_t **out)
{
    gyre_status_t st = coll_check_live(name, comm);
    if (st == GYRE_OK && !out)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: out is NULL", name);
    if (st == GYRE_OK && coll_group_open())
        st = gyre_fail(GYRE_ERR_INVALID, "%s cannot be part of a group", name);
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                       "%s: the communicator's ranks are all in this process: make another of some of their "
                       "devices with gyre_cuda_comms_create",
                       name);
    return st;
}

gyre_status_t coll_split(coll_inside_t inside, gyre_comm_t *comm, int color, int key, gyre_comm_t **out)
{
    gyre_status_t st = GYRE_OK;
    size_t n = (size_t)comm->n;
    const subset_t all = {.name = coll_call_name(COLL_ALL_GATHER, 0, inside),
                          .inside = inside,
                          .parent = comm,
                          .said = malloc(n * sizeof *all.said)};
    coll_split_ask_t *asks = malloc(n * sizeof *asks);
    split_first_t *first = malloc(n * sizeof *first);
    comm_offer_t *offers = malloc(n * sizeof *offers);
    int *members = malloc(n * sizeof *members), *world_ranks = malloc(n * sizeof *world_ranks);
    if (!all.said || !asks || !first || !offers || !members || !world_ranks)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", all.name, comm->n);
    split_first_t mine = {.ask = {.call = (int32_t)inside, .color = color < 0 ? -1 : color, .key = key}};
    if (st == GYRE_OK) {
        mine.offer = comm_group_offer(comm->group);
        st = coll_inside_all_gather(&mine, first, sizeof mine, comm, inside);
    }
    comm->splits++;
    for (size_t r = 0; st == GYRE_OK && r < n; r++) {
        asks[r] = first[r].ask;
        offers[r] = first[r].offer;
    }
    if (st == GYRE_OK && (st = split_compare(&all, asks)) != GYRE_OK)
        comm_group_withdraw(comm->group, &mine.offer);
    gyre_comm_t *made = NULL;
    if (st == GYRE_OK)
        st = split_make(&all, asks, offers, members, world_ranks, &made);
    free(all.said);
    free(asks);
    free(first);
    free(offers);
    free(members);
    free(world_ranks);
    if (st == GYRE_OK)
        *out = made;
    return st;
}

gyre_status_t gyre_comm_split(gyre_comm_t *comm, int color, int key, gyre_comm_t **out)
{
    gyre_status_t st = coll_check_parent("gyre_comm_split", comm, out);
    return st == GYRE_OK ? coll_split(COLL_INSIDE_SPLIT, comm, color, key, out) : st;
}

gyre_status_t gyre_comm_dup(gyre_comm_t *comm, gyre_comm_t **out)
{
    gyre_status_t st = coll_check_parent("gyre_comm_dup", comm, out);
    return st == GYRE_OK ? coll_split(COLL_INSIDE_DUP, comm, 0, 0, out) : st;
}
