/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_wait.c: deadlines, and sleeping on a word that another process changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread/futex.h"

static void now_moves_forward(void **state)
{
    (void)state;
    base_time_t a = base_now();
    struct timespec nap = {0, 2000000};
    nanosleep(&nap, NULL);
    assert_in_range(base_now() - a, 2000000, 5000000000);
}

static void deadlines(void **state)
{
    (void)state;
    base_time_t now = base_now();
    assert_in_range(base_deadline(1.5) - now, 1500000000, 3000000000);
    assert_true(base_deadline(0.0) == BASE_TIME_NEVER);
    assert_true(base_deadline(-3.0) == BASE_TIME_NEVER);
    assert_true(base_deadline(NAN) == BASE_TIME_NEVER);
    assert_true(base_deadline(INFINITY) == BASE_TIME_NEVER);
    assert_true(base_deadline(1e300) == BASE_TIME_NEVER);
    assert_true(base_deadline(9.3e9) == BASE_TIME_NEVER); /* 295 years: more than 2^63 ns */
    assert_true(base_deadline(1e9) > now && base_deadline(1e9) < BASE_TIME_NEVER);
}

static void poll_times(void **state)
{
    (void)state;
    base_time_t now = base_now();
    assert_int_equal(base_poll_ms(BASE_TIME_NEVER), -1);
    assert_int_equal(base_poll_ms(now - 1), 0);
    assert_int_equal(base_poll_ms(INT64_MIN), 0);
    assert_int_equal(base_poll_ms(BASE_TIME_NEVER - 1), INT_MAX);
    assert_in_range(base_poll_ms(base_now() + 500000000), 1, 500);
    /* Rounded up: a part of a millisecond must not become a busy loop of poll(0). */
    assert_int_equal(base_poll_ms(base_now() + 900000), 1);
}

static void futex_times_out(void **state)
{
    (void)state;
    _Atomic uint32_t word = 5;
    base_time_t start = base_now();
    assert_int_equal(base_futex_wait(&word, 4, base_deadline(10)), 0); /* it differs: no sleep */
    assert_int_equal(base_futex_wait(&word, 5, start - 1), 1);
    assert_int_equal(base_futex_wait(&word, 5, -1), 1);
    int rc = 0;
    while (rc == 0)
        rc = base_futex_wait(&word, 5, start + 20000000);
    assert_in_range(base_now() - start, 20000000, 5000000000);
    base_futex_wake(&word, INT_MAX); /* no thread waits there */
}

static void *ring(void *word)
{
    struct timespec nap = {0, 5000000};
    nanosleep(&nap, NULL);
    *(_Atomic uint32_t *)word = 1;
    base_futex_wake(word, 1);
    return NULL;
}

static void futex_between_threads(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    pthread_t thread;
    base_time_t deadline = base_deadline(20);
    assert_int_equal(pthread_create(&thread, NULL, ring, (void *)&word), 0);
    while (word == 0)
        assert_int_equal(base_futex_wait(&word, 0, deadline), 0);
    pthread_join(thread, NULL);
}

/* Two processes hand a word to each other and back. Each wait's deadline is far away: a lost or
 * process-private wake-up would be seen as a timeout. */
static void futex_between_processes(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    _Atomic uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(word, MAP_FAILED);
    base_time_t deadline = base_deadline(20);
    pid_t child = fork();
    assert_true(child >= 0);
    for (uint32_t turn = child == 0; turn < 2 * ROUNDS; turn += 2) {
        uint32_t seen;
        while ((seen = *word) != turn)
            if (base_futex_wait(word, seen, deadline) != 0) {
                if (child == 0)
                    _exit(9);
                fail_msg("no wake-up in turn %u", turn);
            }
        *word = turn + 1;
        base_futex_wake(word, 1);
    }
    if (child == 0)
        _exit(0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap((void *)word, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(now_moves_forward),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(poll_times),
        cmocka_unit_test(futex_times_out),
        cmocka_unit_test(futex_between_threads),
        cmocka_unit_test(futex_between_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
