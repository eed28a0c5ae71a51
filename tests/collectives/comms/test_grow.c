/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/test_grow.c: newcomers join a running job, at the beginning of which there may be
 * one rank only, and after a death. */
#include <errno.h>
#include <math.h>
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
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gyre/collectives.h>

#include "base/clock.h"
#include "tests/support/boot_job.h"

enum { PROCESSES = 6 };

static const char *host_name; /* NULL: the system's */

/* Stands for the system's. */
int gethostname(char *name, size_t bytes)
{
    struct utsname system;
    if (uname(&system) != 0)
        return -1;
    const char *all = host_name ? host_name : system.nodename;
    const size_t length = strlen(all) + 1;
    memcpy(name, all, length < bytes ? length : bytes);
    errno = ENAMETOOLONG;
    return length <= bytes ? 0 : -1;
}

/* What the processes of a test see of each other. */
typedef struct {
    char address[2][128]; /* where newcomers knock; of the second time */
    _Atomic int told;     /* how many of these are known */
    _Atomic int through;  /* processes whose operations before the death are over */
} shared_t;

typedef struct {
    shared_t *shared;
    int port, root_fd, began; /* began: ranks at the beginning */
    int number;               /* of the process: below `began` a rank, else a newcomer */
} start_t;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "process %d, line %d: %s (%s)\n", start->number, __LINE__, #condition, \
                    gyre_last_error());                                                            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* As a rank or a newcomer; those that come wait for the `time`th address. */
static gyre_comm_t *begin(const start_t *start, int time, double timeout_s)
{
    char text[32];
    gyre_comm_t *comm = NULL;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.timeout_s = timeout_s;
    config.options = &options;
    options.order = GYRE_ORDER_EXACT; /* newcomers give what the others have */
    if (start->number < start->began) {
        snprintf(text, sizeof text, "127.0.0.1:%d", start->port);
        config.rank = start->number;
        config.nranks = start->began;
        config.root = text;
        if (start->number == 0) {
            char fd[16];
            snprintf(fd, sizeof fd, "%d", start->root_fd);
            setenv("GYRE_ROOT_FD", fd, 1);
        }
    } else {
        while (atomic_load(&start->shared->told) < time)
            nap_ms(1);
        setenv("GYRE_JOIN", "nowhere", 1);
        MUST(gyre_init(&config, &comm) == GYRE_ERR_INVALID &&
             strstr(gyre_last_error(), "GYRE_JOIN=nowhere is not host:port"));
        config.init_timeout_s = 0.01;
        setenv("GYRE_JOIN", "127.0.0.1:1", 1);
        MUST(gyre_init(&config, &comm) == GYRE_ERR_BOOTSTRAP &&
             strstr(gyre_last_error(), "this newcomer could not reach the job at 127.0.0.1:1 "));
        config.init_timeout_s = 0;
        setenv("GYRE_JOIN", start->shared->address[time - 1], 1);
        setenv("GYRE_JOB", "another", 1);
        MUST(gyre_init(&config, &comm) == GYRE_ERR_AUTH &&
             strncmp(gyre_last_error(), "the job at ", 11) == 0);
        unsetenv("GYRE_JOB");
        options.leaves = 2;
        MUST(gyre_init(&config, &comm) == GYRE_ERR_INVALID && strstr(gyre_last_error(), "leaves is 2"));
        options.leaves = 1;
    }
    MUST(gyre_init(&config, &comm) == GYRE_OK);
    return comm;
}

static void tell_address(const start_t *start, gyre_comm_t *comm, int time)
{
    if (gyre_comm_rank(comm) != 0)
        return;
    MUST(gyre_comm_address(comm, start->shared->address[time - 1], sizeof start->shared->address[0]) ==
         GYRE_OK);
    atomic_store(&start->shared->told, time);
}

/* All of them take part and have the ranks that they should. */
static void works(const start_t *start, gyre_comm_t *comm, int size)
{
    int rank = gyre_comm_rank(comm), sum = 0, one = 1, all[PROCESSES];
    double third = 1.0 / 3, thirds = 0; /* in the order that all have agreed on */
    MUST(gyre_comm_size(comm) == size);
    for (int i = 0; i < 20; i++)
        MUST(gyre_all_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm) == GYRE_OK && sum == size);
    MUST(gyre_all_reduce(&third, &thirds, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm) == GYRE_OK);
    MUST(fabs(thirds - third * size) < 1e-12);
    MUST(gyre_all_gather(&rank, all, 1, GYRE_INT32, comm) == GYRE_OK);
    for (int r = 0; r < size; r++)
        MUST(all[r] == r);
}

/* `rank` is the process that got this number when it joined, and its host is known. */
static void is_process(const start_t *start, const gyre_comm_t *comm, int rank, int number)
{
    gyre_place_t place = {.size = sizeof place}, mine = {.size = sizeof mine};
    MUST(gyre_comm_place(comm, rank, &place) == GYRE_OK && place.job_rank == number);
    MUST(gyre_comm_place(comm, gyre_comm_rank(comm), &mine) == GYRE_OK);
    MUST(place.host_name[0] && strcmp(place.host_name, mine.host_name) == 0);
}

static gyre_comm_t *grow(const start_t *start, gyre_comm_t *comm, int newcomers, int size)
{
    gyre_comm_t *more = NULL;
    int old = gyre_comm_rank(comm);
    MUST(gyre_comm_grow(comm, newcomers, &more) == GYRE_OK);
    MUST(gyre_comm_rank(more) == old);
    works(start, comm, size - newcomers); /* the old one works on */
    MUST(gyre_comm_destroy(comm) == GYRE_OK);
    return more;
}

static void from_one(const start_t *start)
{
    gyre_comm_t *comm = begin(start, 1, 10), *none = NULL;
    if (start->number < start->began) {
        MUST(gyre_comm_grow(comm, 0, &none) == GYRE_ERR_INVALID);
        tell_address(start, comm, 1);
        comm = grow(start, comm, 3, 4);
    } else {
        MUST(gyre_comm_rank(comm) >= start->began);
    }
    works(start, comm, 4);
    gyre_comm_t *half = NULL;
    MUST(gyre_comm_split(comm, gyre_comm_rank(comm) % 2, 0, &half) == GYRE_OK);
    works(start, half, 2);
    MUST(gyre_comm_destroy(half) == GYRE_OK);
    MUST(gyre_finalize(comm) == GYRE_OK);
}

/* Where the host is known by its name alone, newcomers get all of that name, or none. */
static void long_name(const start_t *start)
{
    char address[128];
    host_name = "ip-172-31-12-123.us-west-2.compute.internal";
    gyre_comm_t *comm = begin(start, 1, 10);
    gyre_place_t place = {.size = sizeof place};
    MUST(gyre_comm_place(comm, 0, &place) == GYRE_OK);
    MUST(strlen(place.host_name) == 31 && strncmp(place.host_name, host_name, 31) == 0); /* gyre/comm.h */
    MUST(gyre_comm_address(comm, address, sizeof address) == GYRE_OK);
    *strchr(address, ':') = '\0';
    MUST(strcmp(address, host_name) == 0);
    char endless[300];
    memset(endless, 'h', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    host_name = endless;
    MUST(gyre_comm_address(comm, address, sizeof address) == GYRE_ERR_SYSTEM &&
         strstr(gyre_last_error(), "cannot read the name of this host"));
    MUST(gyre_finalize(comm) == GYRE_OK);
}

/* Three ranks, one newcomer, rank 0 dies, two newcomers more. */
static void after_a_death(const start_t *start)
{
    int late = start->number >= start->began + 1, value = 1;
    gyre_comm_t *comm = begin(start, late ? 2 : 1, 10);
    if (!late) {
        if (start->number < start->began) {
            tell_address(start, comm, 1);
            comm = grow(start, comm, 1, 4);
        }
        works(start, comm, 4);
        atomic_fetch_add(&start->shared->through, 1);
        if (start->number == 0) { /* a death fails the operations that others are still in */
            while (atomic_load(&start->shared->through) < 4)
                nap_ms(1);
            kill(getpid(), SIGKILL);
        }
        while (gyre_all_reduce(&value, &value, 1, GYRE_INT32, GYRE_OP(GYRE_MAX), comm) == GYRE_OK)
            ;
        gyre_comm_t *old = comm;
        MUST(gyre_comm_shrink(old, &comm) == GYRE_OK);
        MUST(gyre_comm_destroy(old) == GYRE_OK);
        works(start, comm, 3);
        tell_address(start, comm, 2);
        comm = grow(start, comm, 2, 5);
    }
    works(start, comm, 5);
    for (int r = 0; r < 5; r++)
        is_process(start, comm, r, r + 1);
    MUST(gyre_finalize(comm) == GYRE_OK);
}

/* No newcomer comes: nothing has changed. The deadline is also that of the operations after it, which a busy
 * machine may keep waiting. */
static void in_vain(const start_t *start)
{
    gyre_comm_t *comm = begin(start, 1, 2), *more = NULL;
    MUST(gyre_comm_grow(comm, 2, &more) == GYRE_ERR_TIMEOUT);
    MUST(more == NULL && strstr(gyre_last_error(), "0 of 2 newcomers have come") != NULL);
    works(start, comm, start->began);
    MUST(gyre_finalize(comm) == GYRE_OK);
}

/* Ranks ask for other numbers of newcomers, of which one may be none: all of them learn so at once, and
 * nothing has changed. */
static void other_numbers(const start_t *start)
{
    gyre_comm_t *comm = begin(start, 1, 10), *more = NULL;
    for (int time = 0; time < 3; time++) {
        const int wanted = start->number != time ? 1 : time < 2 ? 2 : 0;
        MUST(gyre_comm_grow(comm, wanted, &more) == GYRE_ERR_MISMATCH);
        MUST(more == NULL && strstr(gyre_last_error(), "pass the same number") != NULL);
        works(start, comm, start->began);
    }
    MUST(gyre_finalize(comm) == GYRE_OK);
}

/* Runs `body` in `processes` processes, of which `began` are a job from the beginning; `victim` is to be
 * killed. */
static void run_job(void (*body)(const start_t *), int processes, int began, int victim)
{
    shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    boot_job_t job;
    pid_t pids[PROCESSES];
    base_time_t deadline = base_deadline(30);
    assert_ptr_not_equal(shared, MAP_FAILED);
    boot_job_begin(&job, began);
    fflush(NULL);
    for (int p = 0; p < processes; p++) {
        pids[p] = fork();
        assert_true(pids[p] >= 0);
        if (pids[p] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* none stays when the test fails */
            start_t start = {shared, job.port, job.root_fd, began, p};
            body(&start);
            _exit(0);
        }
    }
    for (int p = 0; p < processes; p++) {
        int status = 0, got;
        while ((got = waitpid(pids[p], &status, WNOHANG)) == 0 && base_poll_ms(deadline) != 0)
            nap_ms(1);
        if (got == 0) {
            fprintf(stderr, "process %d hangs\n", p);
            kill(pids[p], SIGKILL);
            waitpid(pids[p], &status, 0);
        }
        if (p == victim)
            assert_true(WIFSIGNALED(status));
        else
            assert_int_equal(status, 0);
    }
    boot_job_end(&job);
    munmap(shared, sizeof *shared);
}

static void a_job_of_one_grows(void **state)
{
    (void)state;
    run_job(from_one, 4, 1, -1);
}

static void the_name_of_the_host_is_long(void **state)
{
    (void)state;
    run_job(long_name, 1, 1, -1);
}

static void a_job_grows_after_a_death(void **state)
{
    (void)state;
    run_job(after_a_death, 6, 3, 0);
}

static void nobody_comes(void **state)
{
    (void)state;
    run_job(in_vain, 2, 2, -1);
}

static void ranks_differ(void **state)
{
    (void)state;
    run_job(other_numbers, 3, 3, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_of_one_grows),
        cmocka_unit_test(the_name_of_the_host_is_long),
        cmocka_unit_test(a_job_grows_after_a_death),
        cmocka_unit_test(nobody_comes),
        cmocka_unit_test(ranks_differ),
    };
    if (!getenv("GYRE_LOG"))
        setenv("GYRE_LOG", "none", 1); /* the deaths are meant */
    setenv("GYRE_SECRET", "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
