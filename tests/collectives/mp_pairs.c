/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2, over UCX: 2 */
/* tests/collectives/mp_pairs.c: the table of docs/threads.md: each call that may run next to another one
 * does, on two threads, and both get what they would get alone. Meant for ThreadSanitizer, too. */
#include "tests/support/mp.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { TIMES = 6, LONG = 5000 };

static int n, rank;
static void *shared; /* of gyre_mem_alloc_shared, on the world */
static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};

/* What a thread works with. */
typedef struct {
    gyre_comm_t *comm; /* its own, or that of the other thread for those who only look */
    int64_t in[LONG], out[LONG];
} work_t;
typedef void (*use_t)(work_t *w);

static int64_t total(int64_t i)
{
    return (int64_t)n * (n - 1) / 2 + n * i;
}

static void set(work_t *w)
{
    for (int64_t i = 0; i < LONG; i++) {
        w->in[i] = rank + i;
        w->out[i] = -1;
    }
}

static void check(const work_t *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MP_CHECK(w->out[i] == total((int64_t)i), "element %zu: %lld", i, (long long)w->out[i]);
}

/* ---- calls on a communicator of the thread's own ---- */

static void blocking(work_t *w)
{
    MP_OK(gyre_all_reduce(w->in, w->out, 3, GYRE_INT64, sum, w->comm));
    check(w, 3);
    MP_OK(gyre_all_reduce(w->in, w->out, LONG, GYRE_INT64, sum, w->comm));
    check(w, LONG);
}

static void request(work_t *w)
{
    gyre_request_t *r[2] = {NULL, NULL};
    gyre_status_t st;
    ptrdiff_t at;
    MP_OK(gyre_iall_reduce(w->in, w->out, LONG, GYRE_INT64, sum, w->comm, &r[0]));
    MP_OK(gyre_ibarrier(w->comm, &r[1]));
    while ((st = gyre_test(&r[0])) == GYRE_IN_PROGRESS)
        ;
    MP_OK(st);
    MP_OK(gyre_wait_any(2, r, &at));
    MP_CHECK(at == 1, "%td", at);
    check(w, LONG);
}

static void persistent(work_t *w)
{
    gyre_plan_t *plan;
    gyre_request_t *r;
    MP_OK(gyre_plan_all_reduce(w->in, w->out, 100, GYRE_INT64, sum, w->comm, &plan));
    MP_OK(gyre_start(plan, NULL));
    MP_OK(gyre_start(plan, &r));
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_plan_free(&plan));
    check(w, 100);
}

static void group(work_t *w)
{
    MP_OK(gyre_group_start());
    MP_OK(gyre_send(w->in, LONG, GYRE_INT64, (rank + 1) % n, w->comm));
    MP_OK(gyre_recv(w->out, LONG, GYRE_INT64, (rank + n - 1) % n, w->comm));
    MP_OK(gyre_barrier(w->comm));
    MP_OK(gyre_group_end());
    const int64_t from = (rank + n - 1) % n;
    for (int64_t i = 0; i < LONG; i++)
        MP_CHECK(w->out[i] == from + i, "element %lld: %lld", (long long)i, (long long)w->out[i]);
}

static void quiet(gyre_comm_t *comm, gyre_status_t status, void *user)
{
    (void)comm, (void)status, (void)user;
}

static void made(work_t *w)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_on_failure(w->comm, quiet, NULL));
    MP_OK(gyre_comm_split(w->comm, 0, rank, &comm));
    MP_OK(gyre_all_reduce(w->in, w->out, 2, GYRE_INT64, sum, comm));
    void *mine, *theirs;
    MP_OK(gyre_mem_alloc_shared(comm, 16, &mine));
    MP_OK(gyre_mem_peer(mine, (rank + 1) % n, &theirs, NULL));
    *(int64_t *)theirs = rank;
    const int64_t one = 1;
    int64_t got = 0;
    MP_OK(gyre_put(&one, 8, mine, (rank + 1) % n, 8));
    MP_OK(gyre_flush(mine, -1));
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_get(&got, 8, mine, (rank + 1) % n, 8));
    MP_OK(gyre_flush(mine, (rank + 1) % n));
    MP_CHECK(got == 1, "%lld", (long long)got);
    MP_CHECK(*(int64_t *)mine == (rank + n - 1) % n, "%lld", (long long)*(int64_t *)mine);
    MP_OK(gyre_mem_free(mine));
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_on_failure(w->comm, NULL, NULL));
    check(w, 2);
}

static void made_later(work_t *w)
{
    gyre_comm_t *comm = NULL;
    gyre_request_t *r[2];
    MP_OK(gyre_comm_isplit(w->comm, 0, rank, &comm, &r[0]));
    MP_OK(gyre_iall_reduce(w->in, w->out, LONG, GYRE_INT64, sum, w->comm, &r[1]));
    MP_OK(gyre_barrier(w->comm));
    MP_OK(gyre_wait_all(2, r));
    check(w, LONG);
    MP_OK(gyre_all_reduce(w->in, w->out, 2, GYRE_INT64, sum, comm));
    MP_OK(gyre_comm_destroy(comm));
    check(w, 2);
}

/* ---- calls from any thread ---- */

static void progress(work_t *w)
{
    MP_OK(gyre_progress(w->comm));
}

static void look(work_t *w)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    MP_OK(gyre_comm_error(w->comm));
    MP_OK(gyre_comm_stats(w->comm, &stats));
    MP_CHECK(gyre_comm_rank(w->comm) == rank && gyre_comm_size(w->comm) == n, "rank");
    MP_CHECK(gyre_comm_local_rank(w->comm) <= rank && gyre_comm_local_size(w->comm) <= n, "local rank");
    gyre_place_t place = {.size = sizeof place};
    MP_OK(gyre_comm_place(w->comm, n - 1, &place));
    MP_CHECK(place.job_rank == n - 1 && gyre_comm_hosts(w->comm) <= n, "place");
}

static void memory(work_t *w)
{
    void *at, *theirs;
    size_t bytes;
    (void)w;
    MP_OK(gyre_mem_peer(shared, (rank + 1) % n, &theirs, &bytes));
    MP_CHECK(bytes == 100 && theirs != shared, "%zu bytes", bytes);
    MP_OK(gyre_mem_alloc(100000, &at));
    memset(at, 1, 100000);
    MP_OK(gyre_mem_free(at));
}

static gyre_status_t first_of(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    (void)user;
    memcpy(right, left, count * gyre_type_size(type));
    return GYRE_OK;
}

static void names(work_t *w)
{
    (void)w;
    MP_CHECK(gyre_wait(NULL) == GYRE_ERR_INVALID && strstr(gyre_last_error(), "gyre_wait"), "%s",
             gyre_last_error());
    MP_CHECK(gyre_type_size(GYRE_INT64) == 8 && *gyre_type_name(GYRE_INT64) && *gyre_redop_name(GYRE_SUM),
             "names");
    gyre_redop_t own;
    gyre_type_t type;
    int32_t a = 1, b = 2, both = 0;
    MP_OK(gyre_op_create(first_of, NULL, 0, &own));
    MP_OK(gyre_type_create(12, &type));
    MP_OK(gyre_reduce_local(&a, &b, &both, 1, GYRE_INT32, own));
    MP_CHECK(both == 1 && gyre_type_size(type) == 12, "%d", (int)both);
    MP_OK(gyre_type_free(&type));
    MP_OK(gyre_op_free(&own));
    MP_CHECK(*gyre_version() && gyre_api_version() > 0 && *gyre_status_string(GYRE_OK), "version");
}

/* ---- calls of members, on a communicator that the other thread uses meanwhile ---- */

enum { TAG = 7, TAG_LATER };

static void of_members(work_t *w)
{
    const int all[2] = {0, 1};
    gyre_comm_t *comm;
    MP_OK(gyre_comm_create_group(w->comm, all, n, TAG, &comm));
    MP_OK(gyre_barrier(comm)); /* the tag is free on all members */
    MP_OK(gyre_comm_destroy(comm));
}

static void of_members_later(work_t *w)
{
    const int all[2] = {0, 1};
    gyre_comm_t *comm = NULL;
    gyre_request_t *r;
    gyre_status_t st;
    MP_OK(gyre_comm_icreate_group(w->comm, all, n, TAG_LATER, &comm, &r));
    while ((st = gyre_test(&r)) == GYRE_IN_PROGRESS)
        sched_yield();
    MP_OK(st);
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_destroy(comm));
}

/* ---- pairs ---- */

static const use_t own[] = {blocking, request, persistent, group, made, made_later},
                   any[] = {progress, look, memory, names}, members[] = {of_members, of_members_later};
enum {
    OWN = sizeof own / sizeof *own,
    ANY = sizeof any / sizeof *any,
    MEMBERS = sizeof members / sizeof *members
};

typedef struct {
    use_t use;
    work_t *work;
    _Atomic int *until; /* NULL: TIMES times; else until it is 1 */
    pthread_t thread;
} side_t;

static void *run(void *arg)
{
    side_t *side = arg;
    const int makes = side->use == made || side->use == made_later || side->use == of_members ||
                      side->use == of_members_later;
    const int times = makes ? 1 : TIMES;
    for (int i = 0; i < times || (side->until && !atomic_load(side->until)); i++) {
        side->use(side->work);
        sched_yield();
    }
    return NULL;
}

/* a is done TIMES times, b as often or until a has ended. What makes communicators takes long: once. */
static void pair(use_t a, work_t *wa, use_t b, work_t *wb, int until)
{
    _Atomic int ended = 0;
    side_t first = {.use = a, .work = wa}, second = {.use = b, .work = wb, .until = until ? &ended : NULL};
    MP_CHECK(!pthread_create(&first.thread, NULL, run, &first), "no thread");
    MP_CHECK(!pthread_create(&second.thread, NULL, run, &second), "no thread");
    pthread_join(first.thread, NULL);
    atomic_store(&ended, 1);
    pthread_join(second.thread, NULL);
}

static void *abort_it(void *comm)
{
    MP_OK(gyre_comm_abort(comm, "from another thread"));
    return NULL;
}

int main(void)
{
    static work_t one, two, looks;
    gyre_comm_t *world;
    pthread_t thread;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(gyre_comm_split(world, 0, rank, &one.comm));
    MP_OK(gyre_comm_split(world, 0, rank, &two.comm));
    MP_OK(gyre_mem_alloc_shared(world, 100, &shared));
    looks.comm = one.comm;
    set(&one);
    set(&two);
    for (int a = 0; a < OWN; a++) {
        for (int b = a; b < OWN; b++)
            pair(own[a], &one, own[b], &two, 0);
        for (int b = 0; b < ANY; b++)
            pair(own[a], &one, any[b], &looks, 1);
        for (int b = 0; b < MEMBERS; b++)
            pair(own[a], &one, members[b], &looks, 0);
    }
    for (int a = 0; a < MEMBERS; a++)
        for (int b = 0; b < ANY; b++)
            pair(members[a], &one, any[b], &looks, 1);
    pair(of_members, &one, of_members_later, &looks, 0);
    for (int a = 0; a < ANY; a++)
        for (int b = a; b < ANY; b++)
            pair(any[a], &one, any[b], &looks, 0);
    /* one thread waits for what never comes, until the other ends it */
    if (rank == 0) {
        MP_CHECK(!pthread_create(&thread, NULL, abort_it, two.comm), "no thread");
        MP_CHECK(gyre_barrier(two.comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        pthread_join(thread, NULL);
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(two.comm));
    MP_OK(gyre_comm_destroy(one.comm));
    MP_OK(gyre_mem_free(shared));
    MP_OK(gyre_finalize(world));
    return 0;
}
