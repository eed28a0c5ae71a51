/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/members/icreate.c: communicators made of another one without blocking.
 *
 * To make one takes several agreements, and three transports wait inside theirs. So a thread of its own
 * makes the blocking steps (collectives/run/task.c). What ranks say to each other for that goes over the
 * bootstrap (comm/boot/members/circle.h), which the watchers pass on: no collective of the parent is
 * used, so the program may call any meanwhile. One thread for each creation: two that wait for each
 * other's ranks in different orders must both go on.
 *
 * A creation that only some ranks begin ends after the deadline of an operation, which was the parent's
 * at the call; one of a parent that is aborted, or of which a rank dies, ends then. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/api/members/asks.h"
#include "comm/boot/members/circle.h"

typedef enum { OF_DUP, OF_SPLIT, OF_TYPE, OF_GROUP, CALLS } kind_t;
static const char *const names[CALLS] = {"gyre_comm_idup", "gyre_comm_isplit", "gyre_comm_isplit_type",
                                         "gyre_comm_icreate_group"};

typedef struct {
    kind_t kind;
    const gyre_comm_t *parent; /* what never changes of it: the program's threads may use it meanwhile */
    gyre_comm_t **out, *made;  /* out: the program's */
    coll_members_t members;    /* ranks and world_ranks are of this struct */
    int *ranks, *world_ranks;
    coll_options_t options;
    char label[64];
    coll_split_ask_t ask;
    coll_place_t place; /* of the calling thread */
    char why[400];      /* the text of place.status */
} making_t;

static void making_free(making_t *m)
{
    free(m->ranks);
    free(m->world_ranks);
    free(m);
}

static void hand_over(void *user, gyre_status_t status)
{
    making_t *m = user;
    if (status == GYRE_OK)
        *m->out = m->made;
    making_free(m);
}

static gyre_status_t make_group(void *user)
{
    making_t *m = user;
    return coll_members_make(&m->members, &m->made);
}

/* ---- splits ----------------------------------------------------------------------------------------- */

/* All see the same, so all fail. */
static gyre_status_t compare(const making_t *m, const coll_split_ask_t *asks)
{
    for (int r = 1; r < m->parent->n; r++)
        if (asks[r].call != asks[0].call)
            return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank 0 called %s and rank %d %s", m->label,
                             names[(uint32_t)asks[0].call % CALLS], r, names[(uint32_t)asks[r].call % CALLS]);
    return GYRE_OK;
}

/* The colors of ranks that are split by place. */
static gyre_status_t gather_colors(making_t *m, comm_circle_t *circle, coll_split_ask_t *asks)
{
    const gyre_comm_t *parent = m->parent;
    coll_place_t *places = calloc((size_t)parent->n, sizeof *places);
    int color = 0;
    gyre_status_t st = places
                           ? comm_circle_gather(circle, &m->place, sizeof *places, places)
                           : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", m->label, parent->n);
    if (st == GYRE_OK)
        st = coll_place_color(names[OF_TYPE], parent, places, m->why, &color);
    free(places);
    m->ask.color = color;
    return st == GYRE_OK ? comm_circle_gather(circle, &m->ask, sizeof *asks, asks) : st;
}

/* What all ranks of the parent ask for. Collective over it. */
static gyre_status_t gather_asks(making_t *m, coll_split_ask_t *asks)
{
    comm_circle_t *circle;
    const gyre_comm_t *parent = m->parent;
    gyre_status_t st =
        comm_circle_open(m->members.world->boot, m->label, m->members.parent, m->members.tag, m->ranks,
                         parent->world_ranks, parent->n, parent->rank, m->members.deadline, &circle);
    if (st != GYRE_OK)
        return st;
    st = comm_circle_gather(circle, &m->ask, sizeof *asks, asks);
    if (st == GYRE_OK)
        st = compare(m, asks);
    if (st == GYRE_OK && m->kind == OF_TYPE)
        st = gather_colors(m, circle, asks);
    return comm_circle_close(circle, st);
}

static gyre_status_t make_split(void *user)
{
    making_t *m = user;
    const gyre_comm_t *parent = m->parent;
    const uint64_t tags[2] = {m->members.tag, m->members.tag + 1};
    coll_split_ask_t *asks = calloc((size_t)parent->n, sizeof *asks);
    gyre_status_t st = asks
                           ? gather_asks(m, asks)
                           : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", m->label, parent->n);
    if (st == GYRE_OK && m->ask.color >= 0) {
        m->members.n = coll_split_members(asks, parent->n, parent->rank, m->ranks, &m->members.rank);
        m->members.tag = tags[1]; /* what is said there says nothing of the first meeting */
        for (int i = 0; i < m->members.n; i++)
            m->world_ranks[i] = parent->world_ranks[m->ranks[i]];
        st = coll_members_make(&m->members, &m->made);
    }
    for (int i = 0; i < 2; i++) /* they were of this call only */
        comm_circle_forget(m->members.world->boot, m->members.parent, tags[i]);
    free(asks);
    return st;
}

/* ---- the calls -------------------------------------------------------------------------------------- */

/* `nranks` places for lists of ranks. */
static gyre_status_t making_new(kind_t kind, const gyre_comm_t *comm, int nranks, gyre_comm_t **out,
                                making_t **made)
{
    making_t *m = calloc(1, sizeof *m);
    if (m)
        m->ranks = malloc((size_t)nranks * sizeof *m->ranks);
    if (!m || !m->ranks) {
        free(m);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", names[kind], nranks);
    }
    m->kind = kind;
    m->parent = comm;
    m->out = out;
    m->options = comm->options;
    m->members = coll_members_of(comm);
    m->members.options = &m->options;
    m->members.label = m->label;
    m->members.ranks = m->ranks;
    m->members.n = nranks;
    *made = m;
    return GYRE_OK;
}

static gyre_status_t check(kind_t kind, gyre_comm_t *comm, gyre_comm_t **out, gyre_request_t **request)
{
    gyre_status_t st = coll_check_parent(names[kind], comm, out);
    if (st == GYRE_OK)
        st = coll_check_request(names[kind], request);
    return st == GYRE_OK ? coll_check_comm(names[kind], comm) : st;
}

/* place: NULL, or of this thread; its status has its text in gyre_last_error. */
static gyre_status_t split(kind_t kind, gyre_comm_t *comm, int color, int key, const coll_place_t *place,
                           gyre_comm_t **out, gyre_request_t **request)
{
    static const coll_task_ops_t ops = {.run = make_split, .end = hand_over};
    const size_t n = (size_t)comm->n;
    char why[sizeof((making_t *)NULL)->why];
    making_t *m;
    snprintf(why, sizeof why, "%s", gyre_last_error());
    /* Counted also if this rank cannot go on: the next call is the next one on all ranks. */
    const uint64_t words[2] = {comm->id, ++comm->isplits};
    gyre_status_t st = making_new(kind, comm, comm->n, out, &m);
    if (st != GYRE_OK)
        return st;
    memcpy(m->why, why, sizeof why);
    m->world_ranks = malloc(n * sizeof *m->world_ranks);
    if (!m->world_ranks) {
        making_free(m);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %zu ranks", names[kind], n);
    }
    for (int r = 0; r < comm->n; r++)
        m->ranks[r] = r;
    snprintf(m->label, sizeof m->label, "%s (call %u)", names[kind], comm->isplits);
    m->members.tag = base_hash64(words, sizeof words, 8);
    m->members.world_ranks = m->world_ranks;
    m->ask = (coll_split_ask_t){.call = kind, .color = color < 0 ? -1 : color, .key = key};
    if (place)
        m->place = *place;
    st = coll_task_start(names[kind], comm, &ops, m, request);
    if (st != GYRE_OK)
        making_free(m);
    return st;
}

gyre_status_t gyre_comm_idup(gyre_comm_t *comm, gyre_comm_t **out, gyre_request_t **request)
{
    gyre_status_t st = check(OF_DUP, comm, out, request);
    return st == GYRE_OK ? split(OF_DUP, comm, 0, 0, NULL, out, request) : st;
}

gyre_status_t gyre_comm_isplit(gyre_comm_t *comm, int color, int key, gyre_comm_t **out,
                               gyre_request_t **request)
{
    gyre_status_t st = check(OF_SPLIT, comm, out, request);
    return st == GYRE_OK ? split(OF_SPLIT, comm, color, key, NULL, out, request) : st;
}

gyre_status_t gyre_comm_isplit_type(gyre_comm_t *comm, gyre_split_t type, int key, gyre_comm_t **out,
                                    gyre_request_t **request)
{
    coll_place_t place;
    gyre_status_t st = check(OF_TYPE, comm, out, request);
    if (st == GYRE_OK)
        st = coll_place_find(names[OF_TYPE], type, &place);
    return st == GYRE_OK ? split(OF_TYPE, comm, 0, key, &place, out, request) : st;
}

gyre_status_t gyre_comm_icreate_group(gyre_comm_t *comm, const int *ranks, int nranks, uint64_t tag,
                                      gyre_comm_t **out, gyre_request_t **request)
{
    static const coll_task_ops_t ops = {.run = make_group, .end = hand_over};
    int *world_ranks, rank;
    making_t *m;
    gyre_status_t st = check(OF_GROUP, comm, out, request);
    if (st == GYRE_OK)
        st = coll_members_read(names[OF_GROUP], comm, ranks, nranks, &world_ranks, &rank);
    if (st != GYRE_OK)
        return st;
    st = making_new(OF_GROUP, comm, nranks, out, &m);
    if (st != GYRE_OK) {
        free(world_ranks);
        return st;
    }
    memcpy(m->ranks, ranks, (size_t)nranks * sizeof *ranks);
    snprintf(m->label, sizeof m->label, "%s (tag %llu)", names[OF_GROUP], (unsigned long long)tag);
    m->members.tag = tag;
    m->members.world_ranks = m->world_ranks = world_ranks;
    m->members.rank = rank;
    st = coll_task_start(names[OF_GROUP], comm, &ops, m, request);
    if (st != GYRE_OK)
        making_free(m);
    return st;
}
