/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/test_given_back.c: a buffer belongs to its program again once an operation has
 * failed: nobody takes what its program writes there for a message, and a rank that was stopped at work in
 * it never goes on with that. A page without rights in a rank's own input holds the rank up in the middle of
 * its work. */
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
#include <unistd.h>

#include <cmocka.h>

#include <gyre/collectives.h>

#include "base/clock.h"
#include "collectives/run/communicator.h"
#include "comm/peer_memory.h"
#include "tests/support/boot_job.h"

enum { RANKS = 3, SHARD = 1 << 18, COUNT = RANKS * SHARD / 4, CHUNK = 16384, PAGE_BYTES = 4096 };

/* What ranks and the test see of each other. */
typedef struct {
    _Atomic int held_up; /* the rank stands in the middle of its work */
    _Atomic int go_on;
    _Atomic int survivors; /* that have got a communicator of their own */
    _Atomic int resumed;   /* the rank that was stopped may have done what it wants */
    int windows;           /* buffers are from gyre_mem_alloc */
} shared_t;

static shared_t *shared;
static unsigned char *guarded;
static int stops;

static int wait_for(const _Atomic int *counter, int least)
{
    const base_time_t deadline = base_deadline(20);
    while (atomic_load(counter) < least && base_poll_ms(deadline) != 0)
        nap(1);
    return atomic_load(counter) >= least;
}

static void hold_up(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if ((unsigned char *)info->si_addr < guarded || (unsigned char *)info->si_addr >= guarded + PAGE_BYTES) {
        signal(sig, SIG_DFL);
        return;
    }
    shared->held_up = 1;
    if (stops)
        kill(getpid(), SIGSTOP);
    else
        (void)wait_for(&shared->go_on, 1);
    if (mprotect(guarded, PAGE_BYTES, PROT_READ | PROT_WRITE) != 0)
        _exit(20);
}

/* Holds this thread up when it reads the middle of the page of `buffer` that `offset` lies in. */
static void guard(unsigned char *buffer, size_t offset)
{
    const struct sigaction action = {.sa_sigaction = hold_up, .sa_flags = SA_SIGINFO};
    guarded = buffer + offset;
    guarded -= (uintptr_t)guarded % PAGE_BYTES;
    if (sigaction(SIGSEGV, &action, NULL) != 0 || mprotect(guarded, PAGE_BYTES, PROT_NONE) != 0)
        _exit(21);
}

static float *new_buffer(float value)
{
    float *at = NULL;
    if (shared->windows ? gyre_mem_alloc(COUNT * sizeof *at, (void **)&at) != GYRE_OK
                        : !(at = malloc(COUNT * sizeof *at)))
        _exit(22);
    for (size_t i = 0; i < COUNT; i++)
        at[i] = value;
    return at;
}

/* Rank 1 fails while rank 0 adds up views of its input, and its program writes there. */
static int failing_sender(gyre_comm_t *world, int rank)
{
    float *in = new_buffer(1), *out = new_buffer(0);
    gyre_request_t *request = NULL;
    if (rank == 0)
        guard((unsigned char *)in, CHUNK * sizeof *in / 2);
    if (rank != 1) {
        gyre_status_t status = gyre_reduce(in, out, CHUNK, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), 0, world);
        if (rank == 0 && !shared->held_up)
            fprintf(stderr, "rank 0 was not held up\n");
        shared->survivors += rank == 0;
        return rank != 0 || (status != GYRE_OK && shared->held_up) ? 0 : 30;
    }
    if (gyre_ireduce(in, out, CHUNK, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), 0, world, &request) != GYRE_OK)
        return 31;
    while (!shared->held_up && gyre_test(&request) == GYRE_IN_PROGRESS)
        nap(1);
    /* What a rank that fails does first; the others will hear of it much later. */
    coll_drive(world);
    comm_peer_memory_close(world->group);
    memset(in, 0x55, COUNT * sizeof *in);
    shared->go_on = 1;
    return wait_for(&shared->survivors, 1) ? 0 : 32;
}

/* Rank 2 is stopped at work in the others' memory; they go on without it, and in the same buffers. */
static int stopped_inside(gyre_comm_t *world, int rank)
{
    float *in = new_buffer(1), *out = new_buffer(0);
    gyre_comm_t *left = NULL;
    if (rank == 2) {
        stops = 1;
        guard((unsigned char *)in, 2 * SHARD + SHARD / 2);
    }
    gyre_status_t status = gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world);
    if (rank == 2)
        return status == GYRE_OK ? 40 : 0;
    if (status == GYRE_OK || !shared->held_up)
        return 41;
    memset(in, 0x55, COUNT * sizeof *in);
    memset(out, 0x55, COUNT * sizeof *out);
    status = gyre_comm_shrink(world, &left);
    if (status != GYRE_OK || gyre_comm_size(left) != 2) {
        fprintf(stderr, "rank %d: %s\n", rank, gyre_last_error());
        return 42;
    }
    shared->survivors++;
    if (!wait_for(&shared->resumed, 1))
        return 43;
    for (size_t i = 0; i < COUNT * sizeof *out; i++)
        if (((unsigned char *)in)[i] != 0x55 || ((unsigned char *)out)[i] != 0x55) {
            fprintf(stderr, "rank %d: byte %zu was overwritten\n", rank, i);
            return 44;
        }
    for (size_t i = 0; i < COUNT; i++)
        in[i] = 1;
    status = gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), left);
    for (size_t i = 0; i < COUNT; i++)
        if (status != GYRE_OK || out[i] != 2)
            return 45;
    return gyre_comm_destroy(world) == GYRE_OK && gyre_finalize(left) == GYRE_OK ? 0 : 46;
}

typedef int body_t(gyre_comm_t *world, int rank);

static void rank_main(const boot_job_t *job, int rank, double timeout_s, body_t *body)
{
    char root[32], fd[16];
    gyre_comm_t *world = NULL;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* none stays when the test fails */
    snprintf(root, sizeof root, "127.0.0.1:%d", job->port);
    snprintf(fd, sizeof fd, "%d", job->root_fd);
    config.rank = rank;
    config.nranks = RANKS;
    config.root = root;
    config.timeout_s = timeout_s;
    if (rank == 0)
        setenv("GYRE_ROOT_FD", fd, 1);
    else
        close(job->root_fd);
    if (gyre_init(&config, &world) != GYRE_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, gyre_last_error());
        _exit(9);
    }
    _exit(body(world, rank));
}

/* Runs the ranks; wakes rank 2 where it is stopped. status: [RANKS] how they ended. */
static void run(const char *algorithm, double timeout_s, body_t *body, int windows, int *status)
{
    boot_job_t job;
    pid_t pids[RANKS];
    const base_time_t deadline = base_deadline(30);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    shared->windows = windows;
    setenv("GYRE_ALGO", algorithm, 1);
    setenv("GYRE_SHM_COPY", windows ? "auto" : "cma", 1); /* peers reach what is from malloc, too */
    boot_job_begin(&job, RANKS);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            rank_main(&job, r, timeout_s, body);
    }
    if (body == stopped_inside) {
        assert_true(wait_for(&shared->survivors, RANKS - 1));
        kill(pids[2], SIGCONT);
        nap(300);
        shared->resumed = 1;
    }
    for (int r = 0; r < RANKS; r++) {
        int got;
        while ((got = waitpid(pids[r], &status[r], WNOHANG)) == 0 && base_poll_ms(deadline) != 0)
            nap(1);
        if (got == 0) {
            fprintf(stderr, "rank %d hangs\n", r);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], &status[r], 0);
        }
    }
    boot_job_end(&job);
    munmap(shared, sizeof *shared);
}

static void views_of_a_failing_sender(void **state)
{
    int status[RANKS];
    (void)state;
    run("direct", 2, failing_sender, 1, status);
    for (int r = 0; r < 2; r++)
        assert_int_equal(status[r], 0);
}

static void stopped_while_at_work(void **state)
{
    int status[RANKS];
    (void)state;
    setenv("GYRE_HEARTBEAT", "0.5", 1);
    for (int windows = 0; windows < 2; windows++) {
        run("shared", 20, stopped_inside, windows, status);
        for (int r = 0; r < 2; r++)
            assert_int_equal(status[r], 0);
        assert_true(WIFSIGNALED(status[2]) && WTERMSIG(status[2]) == SIGKILL);
    }
    unsetenv("GYRE_HEARTBEAT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_a_failing_sender),
        cmocka_unit_test(stopped_while_at_work),
    };
    if (!getenv("GIVEN_BACK_VERBOSE"))
        setenv("GYRE_LOG", "none", 1); /* the failures are meant */
    setenv("GYRE_SECRET", "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
