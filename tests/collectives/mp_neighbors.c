/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_pairs runs grouped messages on the same threads */
/* tests/collectives/mp_neighbors.c: gyre_neighbor_exchange: rings, a torus, random lists with repeated
 * neighbours, the own rank and empty blocks; as requests, persistent, in groups, among other messages; its
 * errors.
 * ranks: 1 2 3 4 5
 * over UCX: 3 */
#include "tests/support/mp.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { EDGES = 40, ROOM = 1 << 17 };

static gyre_comm_t *world;
static int rank, n;
static int32_t out[ROOM], in[ROOM];

/* To the next rank, from the one before; the halo of an array: elements 0 and 3 are the neighbours'. */
static void ring(void)
{
    const int around[2] = {(rank + n - 1) % n, (rank + 1) % n};
    const size_t one[2] = {1, 1}, inner[2] = {1, 2}, outer[2] = {3, 0};
    /* What goes back comes from ahead. With two ranks, or one, both neighbours are the same: then the order
     * of the lists says which block is which. */
    const int from[2] = {around[1], around[0]};
    int32_t field[4] = {-1, 10 * rank, 10 * rank + 1, -1};
    MP_OK(
        gyre_neighbor_exchange(field, one, inner, 2, around, field, one, outer, 2, from, GYRE_INT32, world));
    MP_CHECK(field[0] == 10 * around[0] + 1 && field[3] == 10 * around[1] && field[1] == 10 * rank &&
                 field[2] == 10 * rank + 1,
             "%d %d %d %d", field[0], field[1], field[2], field[3]);
}

/* A torus of rows x columns, in which a rank may be its own neighbour, or one twice. Back to back. */
static void torus(void)
{
    const int rows = n == 4 ? 2 : 1, columns = n / rows, row = rank / columns, column = rank % columns;
    const int left = row * columns + (column + columns - 1) % columns,
              right = row * columns + (column + 1) % columns, up = (row + rows - 1) % rows * columns + column,
              down = (row + 1) % rows * columns + column;
    const int to[4] = {left, right, up, down}, from[4] = {right, left, down, up};
    const size_t counts[4] = {1, 2, 3, 4};
    int32_t mine[10], theirs[10];
    for (int i = 0; i < 10; i++)
        mine[i] = 100 * rank + i;
    MP_OK(
        gyre_neighbor_exchange(mine, counts, NULL, 4, to, theirs, counts, NULL, 4, from, GYRE_INT32, world));
    for (int side = 0, i = 0; side < 4; side++)
        for (size_t k = 0; k < counts[side]; k++, i++)
            MP_CHECK(theirs[i] == 100 * from[side] + i, "side %d: %d", side, theirs[i]);
}

/* The edges of a graph, which all ranks know: the messages of an exchange in their order. */
typedef struct {
    int n, from[EDGES], to[EDGES];
    size_t count[EDGES];
} graph_t;

typedef struct {
    int n, ranks[EDGES];
    size_t counts[EDGES], displs[EDGES], edges[EDGES];
} list_t;

static graph_t random_graph(uint64_t *seed)
{
    static const size_t counts[] = {0, 1, 2, 7, 1000, 1100, 3000};
    graph_t g = {.n = (int)(random_next(seed) % EDGES)};
    for (int e = 0; e < g.n; e++) {
        g.from[e] = (int)(random_next(seed) % (uint64_t)n);
        g.to[e] = (int)(random_next(seed) % (uint64_t)n);
        g.count[e] = counts[random_next(seed) % (sizeof counts / sizeof *counts)];
    }
    return g;
}

/* This rank's part, with gaps of one element; ranks: of the other ends. */
static list_t part_of(const graph_t *g, const int *own, const int *other)
{
    list_t list = {0};
    size_t at = 0;
    for (int e = 0; e < g->n; e++) {
        if (own[e] != rank)
            continue;
        list.ranks[list.n] = other[e];
        list.counts[list.n] = g->count[e];
        list.displs[list.n] = at;
        list.edges[list.n++] = (size_t)e;
        at += g->count[e] + 1;
    }
    return list;
}

static int32_t value(size_t edge, size_t element)
{
    return (int32_t)(edge * 100000 + element);
}

static void fill(const list_t *list, int32_t *data)
{
    for (int i = 0; i < list->n; i++)
        for (size_t k = 0; k < list->counts[i]; k++)
            data[list->displs[i] + k] = value(list->edges[i], k);
}

static void compare(const list_t *list, const int32_t *data)
{
    for (int i = 0; i < list->n; i++) {
        for (size_t k = 0; k < list->counts[i]; k++)
            MP_CHECK(data[list->displs[i] + k] == value(list->edges[i], k), "block %d of %d from rank %d: %d",
                     i, list->n, list->ranks[i], data[list->displs[i] + k]);
        MP_CHECK(data[list->displs[i] + list->counts[i]] == -7, "block %d: one element more", i);
    }
}

static void random_lists(void)
{
    uint64_t seed = 20261122;
    for (int round = 0; round < 40; round++) {
        const graph_t g = random_graph(&seed);
        const list_t to = part_of(&g, g.from, g.to), from = part_of(&g, g.to, g.from);
        gyre_request_t *request = NULL;
        fill(&to, out);
        for (int i = 0; i < ROOM; i++)
            in[i] = -7;
        if (round % 2) {
            MP_OK(gyre_neighbor_exchange(out, to.counts, to.displs, to.n, to.ranks, in, from.counts,
                                         from.displs, from.n, from.ranks, GYRE_INT32, world));
        } else {
            MP_OK(gyre_ineighbor_exchange(out, to.counts, to.displs, to.n, to.ranks, in, from.counts,
                                          from.displs, from.n, from.ranks, GYRE_INT32, world, &request));
            MP_CHECK(request, "no request");
            if (round % 4)
                MP_OK(gyre_wait(&request));
            while (request) {
                gyre_status_t st = gyre_test(&request);
                MP_CHECK(st == GYRE_OK || st == GYRE_IN_PROGRESS, "%s", gyre_last_error());
            }
        }
        compare(&from, in);
    }
}

/* No neighbours: nothing happens, and no other rank takes part. */
static void nobody(void)
{
    gyre_request_t *request = NULL;
    MP_OK(gyre_neighbor_exchange(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, GYRE_INT32, world));
    if (rank == 0) {
        MP_OK(gyre_ineighbor_exchange(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, GYRE_INT32, world,
                                      &request));
        MP_OK(gyre_test(&request));
        MP_CHECK(!request, "not ended");
    }
    const int self = rank;
    const size_t none = 0;
    MP_OK(
        gyre_neighbor_exchange(NULL, &none, NULL, 1, &self, NULL, &none, NULL, 1, &self, GYRE_INT32, world));
}

/* Two exchanges, messages and a collective at once: in order between two ranks, and done in any. */
static void among_others(void)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const size_t one = 1;
    int32_t mine[4] = {rank, rank + 100, rank + 200, rank + 300}, theirs[4] = {0}, sum = 0;
    gyre_request_t *requests[4] = {NULL};
    ptrdiff_t at;
    MP_OK(gyre_group_start());
    MP_OK(gyre_ineighbor_exchange(mine, &one, NULL, 1, &next, theirs, &one, NULL, 1, &before, GYRE_INT32,
                                  world, &requests[0]));
    MP_CHECK(gyre_wait(&requests[0]) == GYRE_ERR_INVALID && requests[0], "a group was waited for");
    MP_CHECK(gyre_test(&requests[0]) == GYRE_IN_PROGRESS, "a group was tested");
    MP_OK(gyre_send(mine + 1, 1, GYRE_INT32, next, world));
    MP_OK(gyre_recv(theirs + 1, 1, GYRE_INT32, before, world));
    MP_OK(gyre_all_reduce(mine, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), world));
    MP_OK(gyre_neighbor_exchange(mine + 2, &one, NULL, 1, &next, theirs + 2, &one, NULL, 1, &before,
                                 GYRE_INT32, world));
    MP_OK(gyre_group_end());
    MP_OK(gyre_irecv(theirs + 3, 1, GYRE_INT32, before, world, &requests[1]));
    MP_OK(gyre_isend(mine + 3, 1, GYRE_INT32, next, world, &requests[3]));
    for (int i = 0; i < 3; i++)
        MP_OK(gyre_wait_any(4, requests, &at));
    MP_CHECK(!requests[0] && !requests[1] && !requests[3], "some are left");
    MP_CHECK(sum == n * (n - 1) / 2, "sum %d", sum);
    for (int i = 0; i < 4; i++)
        MP_CHECK(theirs[i] == before + 100 * i, "message %d: %d", i, theirs[i]);
}

/* Blocking, as a request, and in a group, blocking or not. */
static gyre_status_t start(gyre_plan_t *plan, int form)
{
    gyre_request_t *request = NULL;
    if (form > 1)
        MP_OK(gyre_group_start());
    gyre_status_t st = gyre_start(plan, form % 2 ? &request : NULL);
    if (form > 1)
        st = gyre_group_end();
    return form % 2 && st == GYRE_OK ? gyre_wait(&request) : st;
}

/* Plans of random lists, whose arrays are gone when they start; every second rank makes plain calls. */
static void planned(void)
{
    uint64_t seed = 20261123;
    for (int round = 0; round < 20; round++) {
        const graph_t g = random_graph(&seed);
        const list_t to = part_of(&g, g.from, g.to), from = part_of(&g, g.to, g.from);
        list_t gone_to = to, gone_from = from;
        gyre_plan_t *plan;
        MP_OK(gyre_plan_neighbor_exchange(out, gone_to.counts, gone_to.displs, to.n, gone_to.ranks, in,
                                          gone_from.counts, gone_from.displs, from.n, gone_from.ranks,
                                          GYRE_INT32, world, &plan));
        memset(&gone_to, 0xff, sizeof gone_to);
        memset(&gone_from, 0xff, sizeof gone_from);
        for (int again = 0; again < 4; again++) {
            fill(&to, out);
            for (int i = 0; i < ROOM; i++)
                in[i] = -7;
            if ((rank + again) % 2)
                MP_OK(start(plan, (again + round) % 4));
            else
                MP_OK(gyre_neighbor_exchange(out, to.counts, to.displs, to.n, to.ranks, in, from.counts,
                                             from.displs, from.n, from.ranks, GYRE_INT32, world));
            compare(&from, in);
        }
        MP_OK(gyre_plan_free(&plan));
        MP_CHECK(!plan, "not NULL");
    }
}

/* To the next rank, from the one before, back to back. */
static gyre_plan_t *plan_around(gyre_comm_t *comm, int32_t *mine, int32_t *theirs)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const int to[2] = {next, next}, from[2] = {before, before};
    const size_t counts[2] = {1, 2};
    gyre_plan_t *plan;
    MP_OK(gyre_plan_neighbor_exchange(mine, counts, NULL, 2, to, theirs, counts, NULL, 2, from, GYRE_INT32,
                                      comm, &plan));
    return plan;
}

/* A start allocates nothing, and waits for no collective. */
static void steady_plan(void)
{
    gyre_comm_stats_t first = {.size = sizeof first}, last = {.size = sizeof last};
    int32_t mine[3], theirs[3];
    gyre_plan_t *plan = plan_around(world, mine, theirs);
    for (int round = 0; round < 20; round++) {
        if (round == 10)
            MP_OK(gyre_comm_stats(world, &first));
        for (int i = 0; i < 3; i++)
            mine[i] = 100 * round + 10 * i + rank;
        MP_OK(start(plan, round % 4));
        for (int i = 0; i < 3; i++)
            MP_CHECK(theirs[i] == 100 * round + 10 * i + (rank + n - 1) % n, "start %d: %d", round,
                     theirs[i]);
    }
    MP_OK(gyre_comm_stats(world, &last));
    MP_CHECK(last.allocations == first.allocations && last.operations == first.operations + 40,
             "%llu allocations, %llu operations", (unsigned long long)(last.allocations - first.allocations),
             (unsigned long long)(last.operations - first.operations));
    MP_OK(gyre_plan_free(&plan));
}

/* What a plan of messages refuses, and what refuses one. */
static void refused_plan(void)
{
    const int self = rank, beyond = n;
    const size_t one = 1;
    int32_t mine[3] = {rank, rank, rank}, theirs[3];
    gyre_plan_t *plan = NULL;
    gyre_request_t *request = NULL;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    gyre_comm_t *comm;
#define PLAN(nto, to, into, on, made) \
    gyre_plan_neighbor_exchange(out, &one, NULL, nto, to, into, &one, NULL, 1, &self, GYRE_INT32, on, made)
    MP_EXPECT(PLAN(1, &beyond, in, world, &plan), GYRE_ERR_INVALID, "to[0] is");
    MP_EXPECT(PLAN(1, &self, NULL, world, &plan), GYRE_ERR_INVALID, "recv is NULL");
    MP_EXPECT(PLAN(-1, &self, in, world, &plan), GYRE_ERR_INVALID, "nto is -1");
    MP_EXPECT(PLAN(1, &self, in, NULL, &plan), GYRE_ERR_INVALID, "comm is NULL");
    MP_EXPECT(PLAN(1, &self, in, world, NULL), GYRE_ERR_INVALID, "plan is NULL");
#undef PLAN
    MP_CHECK(!plan, "a plan without arguments");
    MP_OK(gyre_comm_dup(world, &comm));
    plan = plan_around(comm, mine, theirs);
    options.chunk = 512;
    MP_EXPECT(gyre_plan_set(plan, &options), GYRE_ERR_UNSUPPORTED, "neighbor_exchange");
    MP_OK(gyre_start(plan, &request));
    MP_EXPECT(gyre_start(plan, NULL), GYRE_ERR_INVALID, "neighbor_exchange is under way");
    MP_EXPECT(gyre_plan_free(&plan), GYRE_ERR_INVALID, "neighbor_exchange is under way");
    MP_OK(gyre_wait(&request));
    MP_OK(gyre_group_start()); /* nothing of a group with a refused call is started */
    MP_OK(gyre_start(plan, &request));
    MP_EXPECT(gyre_start(plan, NULL), GYRE_ERR_INVALID, "under way");
    MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "a call was refused");
    MP_EXPECT(gyre_wait(&request), GYRE_ERR_INVALID, "neighbor_exchange was not started");
    MP_OK(start(plan, 0));
    MP_CHECK(theirs[2] == (rank + n - 1) % n, "%d", theirs[2]);
    MP_OK(gyre_barrier(world));
    if (rank == n - 1)
        MP_OK(gyre_comm_abort(comm, "enough"));
    while (gyre_comm_error(comm) == GYRE_OK)
        ;
    MP_EXPECT(gyre_start(plan, &request), GYRE_ERR_ABORTED, "enough");
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    MP_EXPECT(gyre_start(plan, NULL), GYRE_ERR_INVALID, "has ended");
    MP_OK(gyre_plan_free(&plan));
}

/* A repeated exchange makes no allocation, and counts as its messages. */
static void steady(void)
{
    gyre_comm_stats_t first = {.size = sizeof first}, last = {.size = sizeof last};
    for (int round = 0; round < 20; round++) {
        if (round == 10)
            MP_OK(gyre_comm_stats(world, &first));
        ring();
    }
    MP_OK(gyre_comm_stats(world, &last));
    MP_CHECK(last.allocations == first.allocations && last.operations == first.operations + 40,
             "%llu allocations, %llu operations", (unsigned long long)(last.allocations - first.allocations),
             (unsigned long long)(last.operations - first.operations));
}

/* What a group starts is on its way when it ends: rank 1 gets it while rank 0 is in no call of Gyre. */
static void goes_at_once(void)
{
    const struct timespec nap = {.tv_nsec = 1000 * 1000};
    const char *transport = getenv("GYRE_TRANSPORT");
    const size_t count = 1;
    const int next = 1;
    gyre_request_t *r;
    _Atomic int *come;
    void *theirs;
    if (n == 1 || (transport && strcmp(transport, "ucx") == 0)) /* whose sends may need the sender */
        return;
    MP_OK(gyre_mem_alloc_shared(world, sizeof *come, (void **)&come));
    MP_OK(gyre_mem_peer(come, 0, &theirs, NULL));
    for (int form = 0; form < 2; form++) {
        MP_OK(gyre_barrier(world));
        if (rank == 1) {
            MP_OK(gyre_recv(in, 1, GYRE_INT32, 0, world));
            atomic_fetch_add((_Atomic int *)theirs, 1);
        } else if (rank == 0) {
            if (form == 0) {
                MP_OK(gyre_ineighbor_exchange(out, &count, NULL, 1, &next, NULL, NULL, NULL, 0, NULL,
                                              GYRE_INT32, world, &r));
            } else {
                MP_OK(gyre_group_start());
                MP_OK(gyre_isend(out, 1, GYRE_INT32, next, world, &r));
                MP_OK(gyre_group_end());
            }
            for (int ms = 0; ms < 20000 && atomic_load(come) == form; ms++)
                nanosleep(&nap, NULL);
            MP_CHECK(atomic_load(come) == form + 1, "form %d: nothing has come", form);
            MP_OK(gyre_wait(&r));
        }
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(come));
}

static void refused(void)
{
    const int self = rank, selves[2] = {rank, rank}, beyond[2] = {rank, n}, below = -1;
    const size_t one[2] = {1, 1}, two[1] = {2}, huge = SIZE_MAX / 2, far = SIZE_MAX;
    gyre_request_t *request = NULL;
#define SEND(nto, to, counts, displs, buffer, type) \
    gyre_neighbor_exchange(buffer, counts, displs, nto, to, in, one, NULL, 1, &self, type, world)
#define RECV(nfrom, from, counts, displs, buffer) \
    gyre_neighbor_exchange(out, one, NULL, 1, &self, buffer, counts, displs, nfrom, from, GYRE_INT32, world)
    MP_EXPECT(SEND(-1, &self, one, NULL, out, GYRE_INT32), GYRE_ERR_INVALID, "nto is -1");
    MP_EXPECT(SEND(1, NULL, one, NULL, out, GYRE_INT32), GYRE_ERR_INVALID, "nto is 1, and to is NULL");
    MP_EXPECT(SEND(1, &self, NULL, NULL, out, GYRE_INT32), GYRE_ERR_INVALID, "send_counts is NULL");
    MP_EXPECT(SEND(2, beyond, one, NULL, out, GYRE_INT32), GYRE_ERR_INVALID, "to[1] is");
    MP_EXPECT(SEND(1, &self, one, NULL, NULL, GYRE_INT32), GYRE_ERR_INVALID, "send is NULL");
    MP_EXPECT(SEND(1, &self, &huge, NULL, out, GYRE_INT32), GYRE_ERR_OVERFLOW, "send_counts");
    MP_EXPECT(SEND(1, &self, one, &far, out, GYRE_INT32), GYRE_ERR_OVERFLOW, "send_displs");
    MP_EXPECT(SEND(1, &self, one, NULL, out, (gyre_type_t)-1), GYRE_ERR_TYPE, "is not a type");
    MP_EXPECT(RECV(-2, &self, one, NULL, in), GYRE_ERR_INVALID, "nfrom is -2");
    MP_EXPECT(RECV(1, &below, one, NULL, in), GYRE_ERR_INVALID, "from[0] is -1");
    MP_EXPECT(RECV(1, &self, one, NULL, NULL), GYRE_ERR_INVALID, "recv is NULL");
    MP_EXPECT(RECV(1, &self, one, &far, in), GYRE_ERR_OVERFLOW, "recv_displs");
#undef SEND
#undef RECV
    MP_EXPECT(gyre_neighbor_exchange(out, one, NULL, 1, &self, in, one, NULL, 1, &self, GYRE_INT32, NULL),
              GYRE_ERR_INVALID, "neighbor_exchange: comm is NULL");
    MP_EXPECT(
        gyre_ineighbor_exchange(out, one, NULL, 1, &self, in, one, NULL, 1, &self, GYRE_INT32, world, NULL),
        GYRE_ERR_INVALID, "request is NULL");
#define STREAM(counts, nto, nfrom)                                                                          \
    gyre_neighbor_exchange_stream(out, counts, NULL, nto, selves, in, one, NULL, nfrom, selves, GYRE_INT32, \
                                  world, NULL)
    MP_EXPECT(STREAM(two, 1, 1), GYRE_ERR_INVALID,
              "sends itself 2 elements (to[0]) and receives 1 (from[0])");
    MP_EXPECT(STREAM(one, 2, 1), GYRE_ERR_INVALID, "has more blocks to itself than from");
    MP_EXPECT(STREAM(one, 1, 2), GYRE_ERR_INVALID, "has more blocks from itself than to");
#undef STREAM
    /* a group with a refused call starts nothing, and the requests that it had end with that */
    MP_OK(gyre_group_start());
    MP_OK(gyre_ineighbor_exchange(out, one, NULL, 1, &self, in, one, NULL, 1, &self, GYRE_INT32, world,
                                  &request));
    MP_OK(gyre_neighbor_exchange(out, one, NULL, 1, &self, in, one, NULL, 1, &self, GYRE_INT32, world));
    MP_EXPECT(gyre_send(out, 1, GYRE_INT32, n, world), GYRE_ERR_INVALID, "is not in");
    MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "the group was started");
    MP_EXPECT(gyre_wait(&request), GYRE_ERR_INVALID, "was not started");
}

/* Counts that do not match end the communicator, and the text shows both calls. */
static void mismatch(void)
{
    gyre_comm_t *comm;
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const size_t counts[2] = {3, 3}, wrong[2] = {3, 4};
    const int to[2] = {next, next}, from[2] = {before, before};
    MP_OK(gyre_comm_dup(world, &comm));
    gyre_status_t st = gyre_neighbor_exchange(out, counts, NULL, 2, to, in, rank == 0 ? wrong : counts, NULL,
                                              2, from, GYRE_INT32, comm);
    if (rank == 0) {
        char text[96];
        MP_EXPECT(st, GYRE_ERR_MISMATCH, "count 4, int32");
        snprintf(text, sizeof text, "recv from rank %d #2", before);
        MP_EXPECT(st, GYRE_ERR_MISMATCH, text);
    } else {
        MP_CHECK(st == GYRE_OK || st == GYRE_ERR_MISMATCH, "%s", gyre_last_error());
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

/* A neighbour that does not call: the error names the message and that rank. */
static void too_late(void)
{
    gyre_comm_t *comm;
    gyre_request_t *request;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const int self_and_last[2] = {rank, n - 1};
    const size_t one[2] = {1, 1};
    options.timeout_s = 0.2;
    MP_OK(gyre_comm_dup(world, &comm));
    MP_OK(gyre_comm_set(comm, &options));
    if (rank == 0 && n > 1) {
        MP_OK(gyre_ineighbor_exchange(out, one, NULL, 1, self_and_last, in, one, NULL, 2, self_and_last,
                                      GYRE_INT32, comm, &request));
        char text[96];
        gyre_status_t st = gyre_wait(&request);
        snprintf(text, sizeof text, "recv from rank %d #1 (count 1, int32) on rank 0 did not finish", n - 1);
        MP_EXPECT(st, GYRE_ERR_TIMEOUT, text);
        MP_EXPECT(gyre_neighbor_exchange(out, one, NULL, 1, self_and_last, in, one, NULL, 1, self_and_last,
                                         GYRE_INT32, comm),
                  GYRE_ERR_TIMEOUT, "failed before");
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

/* An abort ends requests under way, of which no part is left. */
static void aborted(void)
{
    gyre_comm_t *comm;
    gyre_request_t *requests[2] = {NULL, NULL};
    const int last = n - 1;
    const size_t one = 1;
    MP_OK(gyre_comm_dup(world, &comm));
    if (rank == 0 && n > 1)
        for (int i = 0; i < 2; i++)
            MP_OK(gyre_ineighbor_exchange(NULL, NULL, NULL, 0, NULL, in + i, &one, NULL, 1, &last, GYRE_INT32,
                                          comm, &requests[i]));
    MP_OK(gyre_barrier(world));
    if (rank == n - 1)
        MP_OK(gyre_comm_abort(comm, "enough"));
    for (int i = 0; rank == 0 && n > 1 && i < 2; i++)
        MP_EXPECT(gyre_wait(&requests[i]), GYRE_ERR_ABORTED, "enough");
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    ring();
    torus();
    random_lists();
    nobody();
    among_others();
    steady();
    goes_at_once();
    planned();
    steady_plan();
    refused();
    refused_plan();
    mismatch();
    too_late();
    aborted();
    MP_OK(gyre_finalize(world));
    return 0;
}
