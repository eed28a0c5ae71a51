/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/test_shrink.c: ranks are killed at random moments, also while the others agree on
 * the survivors. The rest goes on together, with right results. A hundred rounds of it in make check-long. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gyre/collectives.h>

#include "base/clock.h"
#include "tests/support/boot_job.h"

enum { RANKS = 8, OPERATIONS = 20 };

/* What ranks and the test see of each other. */
typedef struct {
    _Atomic int killed;    /* all victims have been */
    _Atomic int running;   /* ranks that have finished an operation */
    _Atomic int shrinking; /* that have called gyre_comm_shrink */
    _Atomic int child;     /* process that outlives its rank */
    _Atomic int size[RANKS];
    _Atomic uint64_t members[RANKS]; /* bit mask of the ranks that a survivor found left */
} shared_t;

typedef struct {
    shared_t *shared;
    int rank, n, port, root_fd;
    void (*body)(gyre_comm_t *world, int rank, shared_t *shared);
} start_t;

static void nap_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static unsigned seed = 1;
static unsigned draw(unsigned below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* The ranks that take part, as a bit mask; the result shows that every one of them gave the right data.
 * *killed: all of them know that no further rank will be killed. */
static gyre_status_t take_part(gyre_comm_t *comm, int rank, const shared_t *shared, uint64_t *mask,
                               int *killed)
{
    uint64_t bit = 1ull << rank;
    double ones[1000];
    for (int i = 0; i < 1000; i++)
        ones[i] = 1;
    *killed = atomic_load(&shared->killed);
    gyre_status_t st = gyre_all_reduce(&bit, mask, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm);
    if (st == GYRE_OK)
        st = gyre_all_reduce(killed, killed, 1, GYRE_INT32, GYRE_OP(GYRE_MIN), comm);
    if (st == GYRE_OK)
        st = gyre_all_reduce(ones, ones, 1000, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
    for (int i = 0; st == GYRE_OK && i < 1000; i++)
        if (ones[i] != gyre_comm_size(comm))
            return GYRE_ERR_INTERNAL;
    return st;
}

/* Works until some have died, then goes on with the others for a number of operations. */
static void survive(gyre_comm_t *comm, int rank, shared_t *shared)
{
    uint64_t mask = 0;
    /* operations since the newest shrink and the last death; -1: no rank has died yet */
    int after = -1;
    int counted = 0, killed = 0;
    while (after < OPERATIONS) {
        gyre_status_t st = take_part(comm, rank, shared, &mask, &killed);
        if (st == GYRE_OK) {
            if (!counted++)
                atomic_fetch_add(&shared->running, 1);
            after += after >= 0 && killed;
            continue;
        }
        if (getenv("SHRINK_VERBOSE"))
            fprintf(stderr, "rank %d: %s\n", rank, gyre_last_error());
        if (st != GYRE_ERR_PEER_DEAD && st != GYRE_ERR_ABORTED)
            exit(10);
        atomic_fetch_add(&shared->shrinking, 1);
        gyre_comm_t *old = comm;
        st = gyre_comm_shrink(old, &comm);
        if (st != GYRE_OK) {
            fprintf(stderr, "rank %d: shrink: %s\n", rank, gyre_last_error());
            exit(11);
        }
        gyre_comm_destroy(old);
        after = 0;
    }
    shared->size[rank] = gyre_comm_size(comm);
    shared->members[rank] = mask;
    exit(gyre_finalize(comm) == GYRE_OK ? 0 : 12);
}

static void rank_main(const start_t *start)
{
    char root[32];
    gyre_comm_t *world = NULL;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    snprintf(root, sizeof root, "127.0.0.1:%d", start->port);
    config.rank = start->rank;
    config.nranks = start->n;
    config.root = root;
    config.timeout_s = 10;
    if (start->rank == 0) {
        char fd[16];
        snprintf(fd, sizeof fd, "%d", start->root_fd);
        setenv("GYRE_ROOT_FD", fd, 1);
    } else {
        close(start->root_fd);
    }
    if (gyre_init(&config, &world) != GYRE_OK) {
        fprintf(stderr, "rank %d: %s\n", start->rank, gyre_last_error());
        exit(9);
    }
    start->body(world, start->rank, start->shared);
    exit(0);
}

/* Waits for a counter, not past the deadline. */
static void wait_for(const _Atomic int *counter, int least, base_time_t deadline)
{
    while (atomic_load(counter) < least && base_poll_ms(deadline) != 0)
        nap_us(200);
}

/* Starts a job, kills `victims` (bit mask) in it: the first at some moment, the others while it shrinks; says
 * what became of the rest. */
static void round_of(const int *victims, int victims_n)
{
    shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    boot_job_t job;
    pid_t pids[RANKS];
    uint64_t left = (1ull << RANKS) - 1;
    base_time_t deadline = base_deadline(30);
    assert_ptr_not_equal(shared, MAP_FAILED);
    boot_job_begin(&job, RANKS);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* none stays when the test fails */
            start_t start = {.shared = shared,
                             .rank = r,
                             .n = RANKS,
                             .port = job.port,
                             .root_fd = job.root_fd,
                             .body = survive};
            rank_main(&start);
        }
    }
    wait_for(&shared->running, RANKS, deadline);
    nap_us(draw(20000));
    for (int v = 0; v < victims_n; v++) {
        kill(pids[victims[v]], SIGKILL);
        left &= ~(1ull << victims[v]);
        if (v + 1 < victims_n) {
            wait_for(&shared->shrinking, 1, base_deadline(5));
            nap_us(draw(15000));
        }
    }
    atomic_store(&shared->killed, 1);
    for (int r = 0; r < RANKS; r++) {
        int status = 0, got;
        while ((got = waitpid(pids[r], &status, WNOHANG)) == 0 && base_poll_ms(deadline) != 0)
            nap_us(1000);
        if (got == 0) {
            fprintf(stderr, "rank %d hangs\n", r);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], &status, 0);
        }
        int victim = !(left >> r & 1);
        if (victim ? !WIFSIGNALED(status) : status != 0) {
            fprintf(stderr, "rank %d ended with status %x; killed were", r, (unsigned)status);
            for (int v = 0; v < victims_n; v++)
                fprintf(stderr, " %d", victims[v]);
            fail_msg("a survivor did not get through");
        }
        if (!victim) {
            assert_int_equal(shared->members[r], left);
            assert_int_equal(shared->size[r], __builtin_popcountll(left));
        }
    }
    boot_job_end(&job);
    munmap(shared, sizeof *shared);
}

static void any_rank(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim += 3)
        round_of(&victim, 1);
}

static void several_while_shrinking(void **state)
{
    int rounds = getenv("TEST_LONG") ? 100 : 3;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        int victims[RANKS], n = 1 + (int)draw(3);
        for (int v = 0; v < n; v++) {
            int fresh;
            do {
                fresh = 1;
                victims[v] = i % 2 == 0 && v < 2 ? v : (int)draw(RANKS); /* the leaders, every other time */
                for (int u = 0; u < v; u++)
                    fresh &= victims[u] != victims[v];
                if (!fresh && i % 2 == 0 && v < 2)
                    victims[v] = RANKS - 1 - v, fresh = 1;
            } while (!fresh);
        }
        round_of(victims, n);
    }
}

/* Two ranks of three stop: the third is the smaller part and must not go on. */
static void alone(gyre_comm_t *comm, int rank, shared_t *shared)
{
    gyre_comm_t *none = NULL;
    double one = 1;
    (void)shared;
    if (gyre_barrier(comm) != GYRE_OK)
        _exit(1);
    if (rank != 2)
        kill(getpid(), SIGSTOP);
    while (gyre_all_reduce(&one, &one, 1, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), comm) == GYRE_OK)
        ;
    gyre_status_t st = gyre_comm_shrink(comm, &none);
    _exit(st == GYRE_ERR_PEER_DEAD && strstr(gyre_last_error(), "the smaller part must not") ? 0 : 2);
}

/* How the last of `n` ranks ends; the others are killed then. */
static int last_of(int n, void (*body)(gyre_comm_t *, int, shared_t *), shared_t *shared)
{
    boot_job_t job;
    pid_t pids[RANKS];
    int status = -1, got = 0;
    base_time_t deadline = base_deadline(20);
    boot_job_begin(&job, n);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            start_t start = {
                .shared = shared, .rank = r, .n = n, .port = job.port, .root_fd = job.root_fd, .body = body};
            rank_main(&start);
        }
    }
    while ((got = waitpid(pids[n - 1], &status, WNOHANG)) == 0 && base_poll_ms(deadline) != 0)
        nap_us(1000);
    for (int r = 0; r < (got == 0 ? n : n - 1); r++) {
        kill(pids[r], SIGKILL);
        waitpid(pids[r], NULL, 0);
    }
    boot_job_end(&job);
    return status;
}

static void the_smaller_part_gives_up(void **state)
{
    (void)state;
    setenv("GYRE_HEARTBEAT", "0.5", 1);
    const int status = last_of(3, alone, NULL);
    unsetenv("GYRE_HEARTBEAT");
    assert_int_equal(status, 0);
}

/* Rank 0 is killed while a child that it has forked lives on, as a loader of data may: it is dead all the
 * same, by its closed connection, and not only silent. */
static void parent_of_one(gyre_comm_t *comm, int rank, shared_t *shared)
{
    gyre_comm_t *left = NULL;
    double one = 1;
    if (gyre_barrier(comm) != GYRE_OK)
        _exit(1);
    atomic_fetch_add(&shared->running, 1);
    if (rank == 0) {
        wait_for(&shared->running, 2, base_deadline(10)); /* the other one's barrier must not fail */
        const pid_t child = fork();
        if (child == 0) {
            alarm(30); /* should the test fail */
            for (;;)
                pause();
        }
        atomic_store(&shared->child, child);
        kill(getpid(), SIGKILL);
    }
    while (gyre_all_reduce(&one, &one, 1, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), comm) == GYRE_OK)
        ;
    const int closed = strstr(gyre_last_error(), "silent") == NULL;
    gyre_status_t st = gyre_comm_shrink(comm, &left);
    _exit(!closed ? 2 : st != GYRE_OK ? 3 : 0);
}

static void a_child_outlives_its_rank(void **state)
{
    shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_ptr_not_equal(shared, MAP_FAILED);
    const int status = last_of(2, parent_of_one, shared);
    if (shared->child > 0)
        kill(shared->child, SIGKILL);
    munmap(shared, sizeof *shared);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rank),
        cmocka_unit_test(several_while_shrinking),
        cmocka_unit_test(the_smaller_part_gives_up),
        cmocka_unit_test(a_child_outlives_its_rank),
    };
    if (!getenv("SHRINK_VERBOSE"))
        setenv("GYRE_LOG", "none", 1); /* the deaths are meant */
    setenv("GYRE_SECRET", "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
