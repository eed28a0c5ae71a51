/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/mp_worlds.c: jobs that a program makes by its own means, and several of them at
 * once: by an all-gather over another job, by unique ids, with ranks of different numbers, in two threads;
 * what goes wrong with each, within its deadline. The job of ucx-run is only what the ranks tell each other
 * by. */
/* ranks: 1 2 3, over UCX: 2 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/descriptors.h"
#include "tests/support/mp.h"

static gyre_comm_t *launched;
static int rank, n;

/* The five lines of a program that has an all-gather. */
static gyre_status_t by_comm(const void *mine, void *all, size_t bytes, void *comm)
{
    return gyre_all_gather(mine, all, bytes, GYRE_UINT8, comm);
}

static gyre_create_t config_of(int as, int of)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    config.rank = as;
    config.nranks = of;
    config.all_gather = by_comm;
    config.user = launched;
    config.init_timeout_s = 20;
    return config;
}

static void works(gyre_comm_t *comm, int as, int of)
{
    int64_t mine = as, all[64], sum = 0;
    MP_CHECK(gyre_comm_rank(comm) == as && gyre_comm_size(comm) == of, "%d of %d", gyre_comm_rank(comm),
             gyre_comm_size(comm));
    MP_OK(gyre_all_gather(&mine, all, 1, GYRE_INT64, comm));
    for (int i = 0; i < of; i++)
        MP_CHECK(all[i] == i, "%d: %d", i, (int)all[i]);
    MP_OK(gyre_all_reduce(&mine, &sum, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), comm));
    MP_CHECK(sum == of * (of - 1) / 2, "%d", (int)sum);
}

/* A second job whose ranks are numbered the other way round, and one of some of the ranks. Memory of one
 * serves all; one ends, and the others go on. */
static void several(void)
{
    gyre_create_t config = config_of(n - 1 - rank, n);
    gyre_comm_t *turned, *some = NULL, *half = NULL, *part;
    void *memory;
    const size_t bytes = 300000;
    MP_OK(gyre_mem_alloc(2 * bytes, &memory));
    memset(memory, rank, 2 * bytes);
    config.name = "turned";
    /* the all-gather hands the rows over in the order of ranks of `launched`: pass them on in that of the
     * job */
    MP_OK(gyre_comm_split(launched, 0, -rank, &half));
    config.user = half;
    MP_OK(gyre_comm_create(&config, &turned));
    works(turned, n - 1 - rank, n);
    works(launched, rank, n);
    if (rank > 0) { /* rank 0 has its own */
        gyre_create_t less = config_of(rank - 1, n - 1);
        MP_OK(gyre_comm_split(launched, 1, 0, &part));
        less.user = part;
        MP_OK(gyre_comm_create(&less, &some));
        MP_OK(gyre_comm_destroy(part));
        works(some, rank - 1, n - 1);
    } else {
        gyre_create_t alone = GYRE_CREATE_INITIALIZER;
        alone.rank = 0;
        alone.nranks = 1;
        MP_OK(gyre_comm_split(launched, 0, 0, &part));
        MP_OK(gyre_comm_destroy(part));
        MP_OK(gyre_comm_create(&alone, &some));
        works(some, 0, 1);
    }
    for (int i = 0; i < 3; i++) { /* the same memory in each */
        gyre_comm_t *in = i == 0 ? launched : i == 1 ? turned : some;
        unsigned char *mine = memory;
        memset(mine, gyre_comm_rank(in) + 1, bytes);
        MP_OK(gyre_all_reduce(mine, mine + bytes, bytes, GYRE_UINT8, GYRE_OP(GYRE_MAX), in));
        MP_CHECK(mine[bytes] == gyre_comm_size(in) && mine[2 * bytes - 1] == gyre_comm_size(in), "%d",
                 mine[bytes]);
    }
    MP_OK(gyre_comm_split(turned, 0, 0, &part));
    works(part, n - 1 - rank, n);
    MP_EXPECT(gyre_comm_destroy(turned), GYRE_ERR_INVALID, "gyre_finalize");
    MP_EXPECT(gyre_comm_grow(turned, 1, &part), GYRE_ERR_UNSUPPORTED,
              "gyre_comm_grow: this job was not made by");
    MP_OK(gyre_finalize(turned));
    MP_CHECK(gyre_barrier(part) == GYRE_ERR_INVALID, "a communicator outlived its job");
    works(some, rank > 0 ? rank - 1 : 0, rank > 0 ? n - 1 : 1);
    works(launched, rank, n);
    MP_OK(gyre_finalize(some));
    MP_OK(gyre_comm_destroy(half));
    MP_OK(gyre_mem_free(memory));
    works(launched, rank, n);
}

/* Two threads make, use and leave jobs at once: on odd ranks in the other order. */
typedef struct {
    gyre_comm_t *by;
    int turned;
} thread_t;

static void *in_thread(void *user)
{
    const thread_t *t = user;
    for (int i = 0; i < 3; i++) {
        const int as = t->turned ? n - 1 - rank : rank;
        gyre_create_t config = config_of(as, n);
        gyre_comm_t *made;
        config.user = t->by;
        MP_OK(gyre_comm_create(&config, &made));
        for (int k = 0; k < 20; k++)
            works(made, as, n);
        MP_OK(gyre_finalize(made));
    }
    return NULL;
}

static void two_threads(void)
{
    pthread_t thread;
    thread_t one = {.turned = 0}, other = {.turned = 1};
    MP_OK(gyre_comm_dup(launched, &one.by));
    MP_OK(gyre_comm_split(launched, 0, -rank, &other.by));
    thread_t *first = rank % 2 ? &other : &one, *second = rank % 2 ? &one : &other;
    MP_CHECK(pthread_create(&thread, NULL, in_thread, first) == 0, "no thread");
    (void)in_thread(second);
    MP_CHECK(pthread_join(thread, NULL) == 0, "no end");
    MP_OK(gyre_comm_destroy(one.by));
    MP_OK(gyre_comm_destroy(other.by));
}

static gyre_unique_id_t id_of_rank_0(void)
{
    gyre_unique_id_t id;
    if (rank == 0)
        MP_OK(gyre_get_unique_id(&id));
    MP_OK(gyre_broadcast(&id, &id, sizeof id, GYRE_UINT8, 0, launched));
    return id;
}

static void by_id(void)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_unique_id_t id = id_of_rank_0(), wrong = {{0}};
    gyre_comm_t *made, *none = NULL;
    MP_OK(gyre_comm_create_id(&id, rank, n, NULL, &made));
    works(made, rank, n);
    MP_EXPECT(gyre_comm_create_id(&id, rank, n, NULL, &none), GYRE_ERR_INVALID, "has used the id before");
    MP_EXPECT(gyre_comm_create_id(&wrong, rank, n, NULL, &none), GYRE_ERR_INVALID, "these are not the bytes");
    MP_EXPECT(gyre_comm_create_id(&id, n, n, NULL, &none), GYRE_ERR_INVALID, "rank is");
    MP_EXPECT(gyre_comm_create_id(&id, 0, 0, NULL, &none), GYRE_ERR_INVALID, "nranks is 0");
    MP_EXPECT(gyre_comm_create_id(NULL, rank, n, NULL, &none), GYRE_ERR_INVALID, "id is NULL");
    MP_EXPECT(gyre_comm_create_id(&id, rank, n, NULL, NULL), GYRE_ERR_INVALID, "out is NULL");
    config.reserved = 1;
    MP_EXPECT(gyre_comm_create_id(&id, rank, n, &config, &none), GYRE_ERR_INVALID, "reserved");
    MP_CHECK(!none, "out was set");
    works(made, rank, n);
    MP_OK(gyre_finalize(made));
}

/* Ids that ranks use wrongly: each that calls gets an error before its deadline is long over. */
static void by_wrong_id(void)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_comm_t *none = NULL;
    if (n < 2)
        return;
    config.init_timeout_s = 0.5;
    const base_time_t until = base_deadline(30);
    gyre_unique_id_t id = id_of_rank_0();
    gyre_status_t st = gyre_comm_create_id(&id, 0, n, &config, &none); /* all say that they are rank 0 */
    if (rank == 0)
        MP_EXPECT(st, GYRE_ERR_TIMEOUT, "rank");
    else
        MP_EXPECT(st, GYRE_ERR_INVALID, "rank 0 must be the process that called gyre_get_unique_id");
    MP_OK(gyre_barrier(launched));
    id = id_of_rank_0();
    st = gyre_comm_create_id(&id, rank, n + rank, &config, &none); /* each another number of ranks */
    MP_CHECK(st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_BOOTSTRAP, "%s", gyre_status_string(st));
    MP_OK(gyre_barrier(launched));
    id = id_of_rank_0();
    if (n == 2)
        config.init_timeout_s = 20; /* this one is to succeed, on a machine that is busy, too */
    st = gyre_comm_create_id(&id, rank > 0, n, &config, &none); /* too many ranks 1, or one that is missing */
    if (n > 2 && rank == 0) {
        MP_EXPECT(st, GYRE_ERR_TIMEOUT,
                  "for rank(s) 2 to join"); /* two that say that they are rank 1 are not two */
    } else if (n > 2) {
        MP_CHECK(st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_BOOTSTRAP, "%s", gyre_status_string(st));
    } else {
        MP_OK(st);
        works(none, rank, n);
        MP_OK(gyre_finalize(none));
        none = NULL;
    }
    config.init_timeout_s = 0.5;
    MP_OK(gyre_barrier(launched));
    id = id_of_rank_0();
    id.bytes[20] ^= (unsigned char)rank; /* another secret */
    st = gyre_comm_create_id(&id, rank, n, &config, &none);
    MP_CHECK(st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_AUTH, "%s", gyre_status_string(st));
    MP_CHECK(!none, "out was set");
    MP_CHECK(base_now() < until, "more than 30 s");
    MP_OK(gyre_barrier(launched));
}

/* All-gathers that go wrong on the last rank. */
static enum { RIGHT, FAILS, SHORT, STALE, SWAPPED, LONG } mistake;

static gyre_status_t by_mistake(const void *mine, void *all, size_t bytes, void *comm)
{
    static char before[64 * 1024];
    char *to = all;
    gyre_status_t st = gyre_all_gather(mine, all, bytes, GYRE_UINT8, comm);
    if (rank != n - 1)
        return st;
    switch (mistake) {
    case RIGHT:
        break;
    case FAILS:
        return GYRE_ERR_IO;
    case SHORT:
        memset(to + (size_t)n * bytes - 1, 1, 1);
        memset(to, 0, bytes / 2);
        break;
    case STALE: /* the rows of the call before */
        if (before[0])
            memcpy(to, before, (size_t)n * bytes);
        break;
    case SWAPPED:
        memcpy(to, to + (size_t)(n - 1) * bytes, bytes);
        break;
    case LONG:
        memset(to + (size_t)n * bytes, 1, 8);
        break;
    }
    memcpy(before, to, (size_t)n * bytes);
    return st;
}

static void by_wrong_gather(void)
{
    static const struct {
        gyre_status_t status;
        const char *text;
    } wanted[] = {[FAILS] = {GYRE_ERR_BOOTSTRAP, "the all_gather function returned 107"},
                  [SHORT] = {GYRE_ERR_MISMATCH, "gave a wrong row 0"},
                  [STALE] = {GYRE_ERR_MISMATCH, "it is of another call of the function"},
                  [SWAPPED] = {GYRE_ERR_MISMATCH, "gave a wrong row 0: it is another rank's"},
                  [LONG] = {GYRE_ERR_MISMATCH, "wrote more than"}};
    gyre_comm_t *none = NULL, *by;
    if (n < 2)
        return;
    for (mistake = FAILS; mistake <= LONG; mistake = mistake + 1) {
        gyre_create_t config = config_of(rank, n);
        config.all_gather = by_mistake;
        config.init_timeout_s = 0.3;
        MP_OK(gyre_comm_dup(launched, &by));
        config.user = by;
        gyre_status_t st = gyre_comm_create(&config, &none);
        if (rank == n - 1)
            MP_EXPECT(st, wanted[mistake].status, wanted[mistake].text);
        if (rank == n - 1 &&
            mistake == FAILS) /* else the others would wait for it in their second all-gather */
            MP_OK(gyre_comm_abort(by, "the program's means have failed"));
        if (rank < n - 1)
            MP_CHECK(st == GYRE_ERR_BOOTSTRAP || st == GYRE_ERR_TIMEOUT, "%s", gyre_status_string(st));
        MP_CHECK(!none, "out was set");
        MP_OK(gyre_barrier(launched));
        MP_OK(gyre_comm_destroy(by));
    }
}

static void by_wrong_config(void)
{
    gyre_create_t config = config_of(rank, n);
    gyre_comm_t *none = NULL;
    MP_EXPECT(gyre_comm_create(NULL, &none), GYRE_ERR_INVALID, "config is NULL");
    MP_EXPECT(gyre_comm_create(&config, NULL), GYRE_ERR_INVALID, "out is NULL");
    config.size = 8;
    MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_INVALID, "size is 8");
    config = config_of(n, n);
    MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_INVALID, "rank is");
    config = config_of(rank, n);
    config.init_timeout_s = -1;
    MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_INVALID, "config.init_timeout_s is -1");
    config = config_of(rank, n);
    config.timeout_s = -0.5;
    MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_INVALID, "config.timeout_s is -0.5");
    config = config_of(0, 2);
    config.all_gather = NULL;
    MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_INVALID, "all_gather is NULL");
    if (n > 1) {
        config = config_of(rank, rank == 0 ? n : n + 1); /* all_gather has the real number */
        config.nranks = n;
        config.name = rank == 0 ? "one" : "another";
        MP_EXPECT(gyre_comm_create(&config, &none), GYRE_ERR_MISMATCH, "it has another name");
    }
    MP_CHECK(!none, "out was set");
}

/* A sum that is 1 in exact order, and 0 from left to right. */
static double cancelling(gyre_comm_t *comm)
{
    const double all[] = {1e16, 1.0, -1e16};
    double mine[3] = {0}, sum[3];
    for (int i = rank; i < 3; i += n)
        mine[i] = all[i];
    const double one = mine[0] + mine[1] + mine[2];
    MP_OK(gyre_all_reduce(&one, sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm));
    return sum[0];
}

/* A job takes options when it is made, and what is made of its communicator has them, too. */
static void with_options(void)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    gyre_create_t config = config_of(rank, n);
    gyre_comm_t *made = NULL, *copy;
    config.options = &options;
    options.order = GYRE_ORDER_EXACT;
    MP_OK(gyre_comm_create(&config, &made));
    MP_OK(gyre_comm_dup(made, &copy));
    if (n >= 3)
        MP_CHECK(cancelling(made) == 1.0 && cancelling(copy) == 1.0, "%g, %g", cancelling(made),
                 cancelling(copy));
    MP_OK(gyre_comm_destroy(copy));
    MP_OK(gyre_finalize(made));

    const float leaves[] = {rank == 0 ? 1.0f : (float)rank + 2, 2}; /* of the others the first */
    float sum;
    options = (gyre_options_t)GYRE_OPTIONS_INITIALIZER;
    options.leaves = rank == 0 ? 2 : 1;
    gyre_unique_id_t id = id_of_rank_0();
    MP_OK(gyre_comm_create_id(&id, rank, n, &config, &made));
    MP_OK(gyre_all_reduce(leaves, &sum, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), made));
    MP_CHECK(sum == (float)((n + 1) * (n + 2) / 2), "%g", (double)sum);
    MP_OK(gyre_finalize(made));
    made = NULL;

    options.leaves = 0;
    MP_EXPECT(gyre_comm_create(&config, &made), GYRE_ERR_INVALID, "0 leaves together");
    options.leaves = -1;
    MP_EXPECT(gyre_comm_create(&config, &made), GYRE_ERR_INVALID, "gyre_comm_create: leaves is -1");
    options.leaves = 1;
    options.algorithm = "rink";
    MP_EXPECT(gyre_comm_create(&config, &made), GYRE_ERR_INVALID, "there is no algorithm \"rink\"");
    options.algorithm = NULL;
    if (n > 1) { /* rank 0 passes none at all */
        options.order = GYRE_ORDER_FAST;
        config.options = rank == 0 ? NULL : &options;
        MP_EXPECT(gyre_comm_create(&config, &made), GYRE_ERR_MISMATCH, "order canonical");
        MP_CHECK(strstr(gyre_last_error(), "order fast"), "%s", gyre_last_error());
    }
    MP_CHECK(!made, "out was set");
}

static void in_child(void)
{
    int status;
    pid_t child = fork();
    MP_CHECK(child >= 0, "no child");
    if (child == 0) {
        gyre_create_t config = config_of(0, 1);
        gyre_comm_t *none;
        _exit(gyre_comm_create(&config, &none) == GYRE_ERR_INVALID ? 0 : 1);
    }
    MP_CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

/* A process of a job in which rank 2 dies: the others hear it, and go on without it. */
static int survive(const gyre_unique_id_t *id, int as)
{
    gyre_comm_t *comm, *left;
    MP_OK(gyre_comm_create_id(id, as, 3, NULL, &comm));
    works(comm, as, 3);
    char done = 0; /* the two have all of what the third has sent */
    if (as < 2)
        MP_OK(gyre_send(&done, 1, GYRE_UINT8, 2, comm));
    for (int r = 0; as == 2 && r < 2; r++)
        MP_OK(gyre_recv(&done, 1, GYRE_UINT8, r, comm));
    if (as == 2)
        _exit(7);
    gyre_status_t st = gyre_barrier(comm);
    MP_CHECK(st == GYRE_ERR_PEER_DEAD, "%s", gyre_status_string(st));
    MP_OK(gyre_comm_shrink(comm, &left));
    works(left, as, 2);
    MP_OK(gyre_finalize(left));
    return 0;
}

/* Before this process is in a job: three children are one. */
static void children(void)
{
    gyre_unique_id_t id;
    pid_t child[3];
    int status;
    MP_OK(gyre_get_unique_id(&id));
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        MP_CHECK(child[i] >= 0, "no child");
        if (child[i] == 0)
            _exit(survive(&id, i));
    }
    for (int i = 0; i < 3; i++) {
        MP_CHECK(waitpid(child[i], &status, 0) == child[i], "no end");
        MP_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i == 2 ? 7 : 0), "rank %d: status %d", i,
                 status);
    }
}

int main(void)
{
    children();
    MP_OK(gyre_init(NULL, &launched));
    rank = gyre_comm_rank(launched);
    n = gyre_comm_size(launched);
    works(launched, rank, n);
    by_id();
    several();
    const int files = descriptors();
    several();
    two_threads();
    by_id();
    by_wrong_id();
    by_wrong_gather();
    by_wrong_config();
    with_options();
    in_child();
    works(launched, rank, n);
    MP_CHECK(descriptors() <= files + 2, "%d descriptors, %d before", descriptors(), files);
    MP_OK(gyre_finalize(launched));
    return 0;
}
