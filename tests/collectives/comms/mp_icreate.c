/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/mp_icreate.c: communicators that are made without blocking: gyre_comm_idup,
 * gyre_comm_isplit, gyre_comm_isplit_type, gyre_comm_icreate_group, gyre_comm_icreate, gyre_comm_icreate_id;
 * operations of the parent meanwhile, deadlines, aborts, deaths, and what is refused.
 * ranks: 1 2 4
 * over UCX: 3 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "comm/boot/tree.h"
#include "comm/boot/members/letters.h"
#include "comm/memory/rooms.h"
#include "tests/collectives/comms/members.h"

/* The last rank calls it only after a collective of all, which nobody could pass if the others waited. */
static void does_not_block(void)
{
    int all[64];
    gyre_comm_t *comm = world;
    gyre_request_t *r = NULL;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    for (int i = 0; i < n; i++)
        all[i] = i;
    if (rank < n - 1)
        MP_OK(gyre_comm_idup(world, &comm, &r));
    world_works();
    if (rank < n - 1) {
        MP_CHECK(r && comm == world, "out was set before the request has ended");
        MP_CHECK(gyre_test(&r) == GYRE_IN_PROGRESS && r, "a rank is missing");
        MP_EXPECT(gyre_comm_set(world, &options), GYRE_ERR_INVALID, "not waited for");
    }
    MP_OK(gyre_barrier(world));
    if (rank == n - 1)
        MP_OK(gyre_comm_idup(world, &comm, &r));
    MP_OK(gyre_wait(&r));
    MP_CHECK(!r && comm != world, "out was not set");
    is_of(comm, all, n);
    MP_OK(gyre_comm_destroy(comm));
    world_works();
}

static _Atomic int over;

/* Once this rank has met all others of the parent, and is about to meet those of the new communicator. */
static void *abort_between(void *parent)
{
    const gyre_comm_t *comm = parent;
    comm_boot_t *boot = comm->world->boot;
    for (int met = 0; !met && !atomic_load(&over);) {
        boot_lock(boot);
        for (const boot_circles_t *c = boot->circles; c; c = c->next)
            for (int i = 0; c->comm == comm->id && i < BOOT_TAG_LISTS; i++)
                for (const boot_turns_t *t = c->of[i]; t; t = t->next)
                    met |= t->closed > 0;
        boot_unlock(boot);
    }
    MP_OK(gyre_comm_abort(parent, "in between"));
    return NULL;
}

/* Rank 0 fails in the second meeting while others may still be in the first one, which has other members. */
static void aborted_between(void)
{
    enum { TIMES = 120 };
    for (int i = 0; i < TIMES; i++) {
        gyre_comm_t *parent, *comm = NULL;
        gyre_request_t *r;
        pthread_t thread;
        MP_OK(gyre_comm_dup(world, &parent));
        atomic_store(&over, 0);
        if (rank == 0)
            MP_CHECK(pthread_create(&thread, NULL, abort_between, parent) == 0, "pthread_create");
        gyre_status_t st = gyre_comm_isplit(parent, rank % 2, 0, &comm, &r);
        if (st == GYRE_OK)
            st = gyre_wait(&r);
        MP_CHECK(st == GYRE_OK || st == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        atomic_store(&over, 1);
        if (rank == 0)
            pthread_join(thread, NULL);
        MP_OK(gyre_comm_destroy(comm));
        MP_OK(gyre_comm_destroy(parent));
        MP_OK(gyre_barrier(world));
    }
}

/* By each way to end a request; the options are those of the parent at the call. */
static void splits(void)
{
    int like[64], count = 0, all[64];
    gyre_comm_t *parent, *made[4] = {NULL, NULL, NULL, world};
    gyre_request_t *r[5];
    gyre_status_t st;
    ptrdiff_t at;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    int64_t one = 1, sum = 0;
    for (int i = n - 1; i >= 0; i--) {
        all[n - 1 - i] = i;
        if (i % 2 == rank % 2)
            like[count++] = i;
    }
    MP_OK(gyre_comm_dup(world, &parent));
    options.order = GYRE_ORDER_FAST;
    options.timeout_s = 77;
    MP_OK(gyre_comm_set(parent, &options));
    MP_OK(gyre_comm_isplit(parent, rank % 2, -rank, &made[0], &r[0]));
    MP_OK(gyre_comm_isplit(parent, 7, -rank, &made[1], &r[1]));
    MP_OK(gyre_comm_isplit_type(parent, GYRE_SPLIT_HOST, -rank, &made[2], &r[2]));
    MP_OK(gyre_comm_isplit(parent, rank == 0 ? -1 : 0, 0, &made[3], &r[3]));
    MP_OK(gyre_iall_reduce(&one, &sum, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), parent, &r[4]));
    MP_EXPECT(gyre_comm_destroy(parent), GYRE_ERR_INVALID, "5 requests");
    for (int left = 5; left > 3; left--) {
        MP_OK(gyre_wait_any(5, r, &at));
        MP_CHECK(at >= 0 && !r[at], "%td", at);
    }
    while ((st = gyre_test_any(5, r, &at)) == GYRE_IN_PROGRESS)
        ;
    MP_OK(st);
    while ((st = gyre_test_all(5, r)) == GYRE_IN_PROGRESS)
        ;
    MP_OK(st);
    MP_CHECK(sum == n, "%d", (int)sum);
    is_of(made[0], like, count);
    is_of(made[1], all, n);
    is_of(made[2], all, n);
    MP_CHECK(rank == 0 ? !made[3] : gyre_comm_size(made[3]) == n - 1, "the split without rank 0");
    MP_CHECK(made[0]->options.order == GYRE_ORDER_FAST && made[0]->timeout_s == 77, "options of the parent");
    for (int i = 0; i < 4; i++)
        MP_OK(gyre_comm_destroy(made[i]));
    MP_OK(gyre_comm_destroy(parent));
}

/* Nothing is kept of those that were made, also by a rank that is in none: a program may make a million. */
static void forgets(void)
{
    gyre_comm_t *comm[2];
    gyre_request_t *r[2];
    for (int i = 0; i < 3; i++) {
        MP_OK(gyre_comm_idup(world, &comm[0], &r[0]));
        MP_OK(gyre_comm_isplit(world, rank - 1, 0, &comm[1], &r[1]));
        MP_OK(gyre_wait_all(2, r));
        MP_CHECK(!world->world->boot->circles, "after %d of them", i + 1);
        for (int k = 0; k < 2; k++)
            MP_OK(gyre_comm_destroy(comm[k]));
    }
}

/* Rank r is in {r, r + 1} and {r - 1, r}. Each rank begins and waits in an order of its own. */
static void overlapping(void)
{
    gyre_comm_t *comm[2];
    gyre_request_t *r[2];
    int list[2][2];
    if (n < 3)
        return;
    for (int k = 0; k < 2; k++) {
        const int first = (rank + n - (k ^ (rank & 1))) % n;
        list[k][0] = first;
        list[k][1] = (first + 1) % n;
        MP_OK(gyre_comm_icreate_group(world, list[k], 2, (uint64_t)first, &comm[k], &r[k]));
    }
    world_works();
    for (int k = 2; k-- > 0;)
        MP_OK(gyre_wait(&r[k]));
    for (int k = 0; k < 2; k++) /* the group of the lower number first, as all do: rank 0 has 0 and n - 1 */
        if (list[k][0] < list[1 - k][0])
            is_of(comm[k], list[k], 2);
    for (int k = 0; k < 2; k++)
        if (list[k][0] > list[1 - k][0])
            is_of(comm[k], list[k], 2);
    for (int k = 0; k < 2; k++)
        MP_OK(gyre_comm_destroy(comm[k]));
    world_works();
}

/* A program that sleeps on the descriptor of the parent wakes up for it. */
static void by_event(void)
{
    int fd, all[64];
    gyre_comm_t *comm = NULL;
    gyre_request_t *r;
    gyre_status_t st;
    for (int i = 0; i < n; i++)
        all[i] = i;
    MP_OK(gyre_comm_fd(world, &fd));
    MP_OK(gyre_comm_idup(world, &comm, &r));
    while ((st = gyre_test(&r)) == GYRE_IN_PROGRESS) {
        struct pollfd event = {.fd = fd, .events = POLLIN};
        if (gyre_comm_arm(world) == GYRE_OK)
            MP_CHECK(poll(&event, 1, 60000) == 1, "it slept for a minute");
    }
    MP_OK(st);
    is_of(comm, all, n);
    MP_OK(gyre_comm_destroy(comm));
}

static void refused(void)
{
    gyre_comm_t *comm = world;
    gyre_request_t *r = NULL;
    const int outside[1] = {n};
    MP_EXPECT(gyre_comm_idup(NULL, &comm, &r), GYRE_ERR_INVALID, "gyre_comm_idup: comm is NULL");
    MP_EXPECT(gyre_comm_idup(world, NULL, &r), GYRE_ERR_INVALID, "gyre_comm_idup: out is NULL");
    MP_EXPECT(gyre_comm_idup(world, &comm, NULL), GYRE_ERR_INVALID, "gyre_comm_idup: request is NULL");
    MP_EXPECT(gyre_comm_isplit(world, 0, 0, &comm, NULL), GYRE_ERR_INVALID, "request is NULL");
    MP_EXPECT(gyre_comm_isplit_type(world, (gyre_split_t)3, 0, &comm, &r), GYRE_ERR_INVALID,
              "gyre_comm_isplit_type: 3 is not a kind of place");
    MP_EXPECT(gyre_comm_icreate_group(world, outside, 1, 0, &comm, &r), GYRE_ERR_INVALID, "ranks[0] is");
    MP_EXPECT(gyre_comm_icreate_group(world, NULL, 1, 0, &comm, &r), GYRE_ERR_INVALID, "ranks is NULL");
    MP_EXPECT(gyre_comm_icreate_group(world, &rank, 0, 0, &comm, &r), GYRE_ERR_INVALID, "nranks is 0");
    MP_OK(gyre_group_start());
    MP_EXPECT(gyre_comm_isplit(world, 0, 0, &comm, &r), GYRE_ERR_INVALID, "cannot be part of a group");
    MP_OK(gyre_group_end());
    MP_CHECK(comm == world && !r, "out or request was set");
    world_works();
}

/* All ranks hear of it, the parent works, and so does the next one. */
static void mismatch(void)
{
    gyre_comm_t *comm = world;
    gyre_request_t *r;
    char text[80];
    if (n == 1)
        return;
    snprintf(text, sizeof text, "rank 0 called gyre_comm_idup and rank %d gyre_comm_isplit", n - 1);
    MP_OK(rank == n - 1 ? gyre_comm_isplit(world, 0, 0, &comm, &r) : gyre_comm_idup(world, &comm, &r));
    MP_EXPECT(gyre_wait(&r), GYRE_ERR_MISMATCH, text);
    MP_OK(gyre_comm_isplit_type(world, rank ? GYRE_SPLIT_NUMA : GYRE_SPLIT_HOST, 0, &comm, &r));
    MP_EXPECT(gyre_wait(&r), GYRE_ERR_MISMATCH, "called it with GYRE_SPLIT_HOST and rank 1 with");
    MP_CHECK(comm == world, "out was set");
    MP_OK(gyre_comm_idup(world, &comm, &r));
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_comm_destroy(comm));
    world_works();
}

/* The last rank does not come: TIMEOUT names it, and the parent is as before. */
/* Of its own ones, that are given to a communicator. */
static int rooms_in_use(void)
{
    int used = 0;
    comm_backing_t *backing = atomic_load(&world->world->backing);
    for (int i = 0; backing && i < COMM_ROOMS_OWN; i++)
        used += comm_backing_rooms(backing)->room[i].state == COMM_ROOM_USED;
    return used;
}

static void deadline(void)
{
    gyre_comm_t *comm = world, *parent;
    gyre_request_t *r[2];
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    char late[32];
    int all[64], reversed[64];
    if (n == 1)
        return;
    for (int i = 0; i < n; i++)
        all[i] = reversed[n - 1 - i] = i;
    snprintf(late, sizeof late, "in vain for rank %d", n - 1);
    MP_OK(gyre_comm_dup(world, &parent));
    options.timeout_s = 1; /* in which gyre_comm_set below must end, also at a high load */
    MP_OK(gyre_comm_set(parent, &options));
    if (rank == 0) {
        const int used = rooms_in_use();
        MP_OK(gyre_comm_idup(parent, &comm, &r[0]));
        MP_OK(gyre_comm_icreate_group(parent, reversed, n, 3, &comm, &r[1]));
        MP_EXPECT(gyre_wait(&r[0]), GYRE_ERR_TIMEOUT, "gyre_comm_idup (call 1): rank 0 waited for ");
        MP_EXPECT(gyre_wait(&r[1]), GYRE_ERR_TIMEOUT, "gyre_comm_icreate_group (tag 3): rank 0 waited for ");
        MP_CHECK(strstr(gyre_last_error(), late) || n > 2, "%s", gyre_last_error());
        MP_CHECK(comm == world, "out was set");
        MP_CHECK(rooms_in_use() == used, "%d rooms, %d before", rooms_in_use(), used);
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_set(parent, NULL));
    is_of(parent, all, n);
    MP_OK(gyre_comm_destroy(parent));
}

/* An abort of the parent ends what waits for its ranks. */
static void aborted(void)
{
    gyre_comm_t *comm = world, *parent;
    gyre_request_t *r = NULL;
    if (n == 1)
        return;
    MP_OK(gyre_comm_dup(world, &parent));
    if (rank < n - 1)
        MP_OK(gyre_comm_isplit(parent, 0, 0, &comm, &r));
    MP_OK(gyre_barrier(world));
    if (rank == 0)
        MP_OK(gyre_comm_abort(parent, "enough"));
    if (rank < n - 1)
        MP_EXPECT(gyre_wait(&r), GYRE_ERR_ABORTED, "enough");
    MP_OK(gyre_barrier(world));
    gyre_status_t st = gyre_comm_idup(parent, &comm, &r); /* the last rank may not have heard of it yet */
    MP_EXPECT(st == GYRE_OK ? gyre_wait(&r) : st, GYRE_ERR_ABORTED, "enough");
    MP_CHECK(comm == world, "out was set");
    MP_OK(gyre_comm_destroy(parent));
    world_works();
}

static gyre_status_t by_comm(const void *mine, void *all, size_t bytes, void *comm)
{
    return gyre_all_gather(mine, all, bytes, GYRE_UINT8, comm);
}

static gyre_status_t fails(const void *mine, void *all, size_t bytes, void *user)
{
    (void)mine, (void)all, (void)bytes, (void)user;
    return GYRE_ERR_SYSTEM;
}

/* Jobs by the program's own means; the job of ucx-run works meanwhile. */
static void jobs(void)
{
    gyre_comm_t *gather, *made[2] = {NULL, NULL}, *child;
    gyre_request_t *r[3], *end;
    gyre_unique_id_t id = {{0}};
    MP_OK(gyre_comm_dup(world, &gather));
    if (rank == 0)
        MP_OK(gyre_get_unique_id(&id));
    MP_OK(gyre_broadcast(&id, &id, sizeof id, GYRE_UINT8, 0, world));
    {
        char name[] = "by gather"; /* the caller's memory is read during the call only */
        gyre_create_t config = GYRE_CREATE_INITIALIZER;
        config.rank = rank;
        config.nranks = n;
        config.all_gather = by_comm;
        config.user = gather;
        config.init_timeout_s = 20;
        config.name = name;
        MP_OK(gyre_comm_icreate(&config, &made[0], &r[0]));
        memset(name, rank, sizeof name - 1);
        memset(&config, 0, sizeof config);
    }
    world_works();
    MP_OK(gyre_comm_icreate_id(&id, rank, n, NULL, &made[1], &r[1]));
    memset(&id, 0, sizeof id);
    MP_OK(gyre_ibarrier(world, &r[2]));
    MP_OK(gyre_wait_all(3, r));
    for (int i = 0; i < 2; i++) {
        MP_OK(gyre_comm_idup(made[i], &child, &end));
        MP_OK(gyre_wait(&end));
        MP_CHECK(gyre_comm_rank(child) == rank && gyre_comm_size(child) == n, "%d", gyre_comm_rank(child));
        MP_OK(gyre_barrier(child));
        MP_OK(gyre_finalize(made[i]));
    }
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    config.rank = rank;
    config.nranks = n;
    MP_EXPECT(gyre_comm_icreate(NULL, &made[0], &end), GYRE_ERR_INVALID, "gyre_comm_icreate: config is NULL");
    MP_EXPECT(gyre_comm_icreate_id(NULL, 0, 1, NULL, &made[0], &end), GYRE_ERR_INVALID, "id is NULL");
    config.all_gather = fails;
    MP_EXPECT(gyre_comm_icreate(&config, &made[0], NULL), GYRE_ERR_INVALID, "request is NULL");
    MP_OK(gyre_group_start());
    MP_EXPECT(gyre_comm_icreate(&config, &made[0], &end), GYRE_ERR_INVALID,
              "gyre_comm_icreate cannot be part of a group");
    MP_OK(gyre_group_end());
    if (n > 1) {
        MP_OK(gyre_comm_icreate(&config, &made[0], &end));
        while (gyre_test(&end) == GYRE_IN_PROGRESS)
            ;
        MP_CHECK(strstr(gyre_last_error(), "gyre_comm_icreate"), "%s", gyre_last_error());
    }
    MP_OK(gyre_comm_destroy(gather));
}

/* An all-gather that does not return ends the request all the same. */
static _Atomic int let_go, gone;

static gyre_status_t hangs(const void *mine, void *all, size_t bytes, void *user)
{
    (void)mine, (void)user;
    while (!let_go)
        usleep(1000);
    memset(all, 0, (size_t)n * bytes); /* its memory is there as long as it runs */
    gone++;
    return GYRE_OK;
}

static void hanging(void)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_comm_t *made = world;
    gyre_request_t *r;
    if (n == 1) /* it is not called */
        return;
    config.rank = rank;
    config.nranks = n;
    config.all_gather = hangs;
    config.init_timeout_s = 0.2;
    MP_OK(gyre_comm_icreate(&config, &made, &r));
    MP_EXPECT(gyre_wait(&r), GYRE_ERR_TIMEOUT, "the all_gather function has not returned in time");
    MP_CHECK(made == world && !gone, "out was set, or it returned");
    let_go = 1;
    while (!gone)
        usleep(1000);
    world_works();
}

/* A child of fork has no thread that would end the request. */
static void child(void)
{
    gyre_comm_t *comm;
    gyre_request_t *r;
    int status = -1;
    MP_OK(gyre_comm_idup(world, &comm, &r));
    const pid_t pid = fork();
    if (pid == 0) {
        gyre_request_t *one = r, *list[2] = {NULL, r};
        ptrdiff_t at;
        const int refuses = gyre_wait(&one) == GYRE_ERR_INVALID && !one &&
                            gyre_wait_any(2, list, &at) == GYRE_ERR_INVALID && at == 1;
        _exit(refuses ? 0 : 1);
    }
    MP_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "status %d", status);
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_comm_destroy(comm));
}

/* The last rank dies: the others hear that from their requests. */
static void death(void)
{
    gyre_comm_t *comm = world;
    gyre_request_t *r;
    if (n == 1)
        return;
    if (rank == n - 1) { /* once all others have begun */
        for (int i = 0; i < n - 1; i++)
            MP_OK(gyre_recv(NULL, 0, GYRE_UINT8, i, world));
        _exit(0);
    }
    MP_OK(gyre_comm_idup(world, &comm, &r));
    MP_OK(gyre_send(NULL, 0, GYRE_UINT8, n - 1, world));
    MP_EXPECT(gyre_wait(&r), GYRE_ERR_PEER_DEAD, "gyre_comm_idup");
    MP_CHECK(comm == world, "out was set");
    MP_OK(gyre_comm_shrink(world, &comm));
    gyre_comm_t *old = world;
    world = comm;
    MP_OK(gyre_comm_destroy(old));
    MP_OK(gyre_comm_idup(world, &comm, &r));
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    does_not_block();
    splits();
    forgets();
    overlapping();
    by_event();
    refused();
    mismatch();
    deadline();
    aborted();
    aborted_between();
    jobs();
    hanging();
    child();
    death();
    MP_OK(gyre_finalize(world));
    return 0;
}
