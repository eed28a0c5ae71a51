/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_team.c: a team makes each piece once, on several threads; with fewer threads than wanted;
 * in a child of fork. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "base/thread/futex.h"
#include "base/thread/team.h"
#include "tests/base/capture.h"

enum { MOST = 5000 };

/* Threads that pthread_create still gives. */
static int given = INT32_MAX;

int pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*body)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &found, sizeof real);
    return given-- > 0 ? real(to, attr, body, arg) : EAGAIN;
}

typedef struct {
    unsigned char made[MOST]; /* how often */
    _Atomic size_t
        inner[MOST]; /* a sum that a loop within the piece makes: of a loop of one, on many threads */
} loop_t;

static void add_one(void *arg, size_t at)
{
    atomic_fetch_add((_Atomic size_t *)arg, at);
}

static void make_piece(void *arg, size_t at)
{
    loop_t *loop = arg;
    loop->made[at]++;
    loop->inner[at] = 0;
    base_each(4, add_one, &loop->inner[at]);
}

static void check_loop(size_t n)
{
    static loop_t loop;
    memset(&loop, 0, sizeof loop);
    base_each(n, make_piece, &loop);
    for (size_t i = 0; i < MOST; i++) {
        assert_int_equal(loop.made[i], i < n);
        assert_int_equal(loop.inner[i], i < n ? 6 : 0);
    }
}

/* Also loops that follow at once, and those after the workers have fallen asleep. */
static void each_piece_once(void **state)
{
    (void)state;
    const size_t threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < 4; i++) {
        base_team_t *team = NULL;
        assert_int_equal(base_team_create(threads[i], "--threads", &team), GYRE_OK);
        assert_int_equal(base_team_threads(team), threads[i]);
        assert_null(base_team_use(team));
        assert_int_equal(base_team_here(), threads[i]);
        for (size_t n = 0; n < 40; n++)
            check_loop(n);
        for (int pause = 0; pause < 3; pause++) {
            usleep(2000);
            check_loop(MOST);
        }
        assert_ptr_equal(base_team_use(NULL), team);
        assert_int_equal(base_team_here(), 1);
        base_team_destroy(team);
    }
    check_loop(MOST); /* without a team */
    base_team_destroy(NULL);
}

/* Each of three threads waits within its piece until three are in one. */
static void meet(void *arg, size_t at)
{
    _Atomic int *in = arg;
    const base_time_t until = base_now() + (base_time_t)60000000000;
    (void)at;
    atomic_fetch_add(in, 1);
    while (atomic_load(in) < 3 && base_now() < until)
        base_relax();
}

static void threads_work_together(void **state)
{
    (void)state;
    base_team_t *team = NULL;
    _Atomic int in = 0;
    assert_int_equal(base_team_create(3, "--threads", &team), GYRE_OK);
    base_team_use(team);
    const base_time_t begin = base_now();
    base_each(3, meet, &in);
    assert_true(base_now() - begin < (base_time_t)60000000000);
    base_team_use(NULL);
    base_team_destroy(team);
}

static void fewer_threads(void **state)
{
    (void)state;
    base_team_t *team = NULL;
    char said[512];
    given = 2;
    capture_t capture = capture_begin();
    gyre_status_t status = base_team_create(6, "--threads", &team);
    capture_end(capture, said, sizeof said);
    given = INT32_MAX;
    assert_int_equal(status, GYRE_OK);
    assert_non_null(strstr(said, "--threads 6: the system gives only 3"));
    assert_int_equal(base_team_threads(team), 3);
    base_team_use(team);
    check_loop(100);
    base_team_use(NULL);
    base_team_destroy(team);
    team = NULL;
    assert_int_equal(base_team_create(BASE_TEAM_MOST + 1, "--threads", &team), GYRE_ERR_INVALID);
    assert_null(team);
}

/* What is said of a team of so many threads. */
static void said_of(size_t threads, char *said, size_t bytes)
{
    base_team_t *team = NULL;
    capture_t capture = capture_begin();
    gyre_status_t status = base_team_create(threads, "--threads", &team);
    capture_end(capture, said, bytes);
    assert_int_equal(status, GYRE_OK);
    base_team_destroy(team);
}

static void more_than_processors(void **state)
{
    (void)state;
    char said[512];
    cpu_set_t own, one;
    size_t cpu = 0;
    assert_int_equal(unsetenv("GYRE_LAUNCH"), 0);
    base_settings_reload();
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    while (!CPU_ISSET(cpu, &own))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    said_of(1, said, sizeof said);
    assert_string_equal(said, "");
    said_of(2, said, sizeof said);
    assert_non_null(
        strstr(said, "--threads 2: the threads take turns on 1 processor, all that this process"));
    /* ucx-run's option is for its ranks: taskset, a cpuset or mpirun have their own */
    const int others = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    assert_null(strstr(said, "ucx-run"));
    assert_int_equal(strstr(said, "add to the processors that this process may run on") != NULL, others);
    assert_int_equal(setenv("GYRE_LAUNCH", "1", 1), 0);
    base_settings_reload();
    said_of(2, said, sizeof said);
    assert_int_equal(strstr(said, "(ucx-run --bind none or numa)") != NULL, others);
    assert_int_equal(unsetenv("GYRE_LAUNCH"), 0);
    base_settings_reload();
    assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
    said_of((size_t)CPU_COUNT(&own), said, sizeof said);
    assert_string_equal(said, "");
}

static void after_fork(void **state)
{
    (void)state;
    base_team_t *team = NULL;
    int status = 0;
    assert_int_equal(base_team_create(3, "--threads", &team), GYRE_OK);
    base_team_use(team);
    check_loop(100);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        size_t sum = 0;
        base_each(4, add_one, &sum);
        base_team_use(NULL);
        base_team_destroy(team);
        _exit(sum == 6 ? 7 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check_loop(100);
    base_team_use(NULL);
    base_team_destroy(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_once), cmocka_unit_test(threads_work_together),
        cmocka_unit_test(fewer_threads),   cmocka_unit_test(more_than_processors),
        cmocka_unit_test(after_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
