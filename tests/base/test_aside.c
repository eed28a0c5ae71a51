/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_aside.c: work on a thread of its own: done in time, too late, and cleaned up after
 * either way. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread/aside.h"

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int released, worked, dropped;
} work_t;

static void waits(void *arg)
{
    work_t *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->released)
        pthread_cond_wait(&w->moved, &w->lock);
    w->worked++;
    pthread_mutex_unlock(&w->lock);
}

static void drops(void *arg)
{
    work_t *w = arg;
    pthread_mutex_lock(&w->lock);
    w->dropped++;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static void in_time(void **state)
{
    (void)state;
    work_t w = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .released = 1};
    assert_int_equal(base_aside(waits, drops, &w, base_deadline(60)), 0);
    assert_int_equal(base_aside(waits, drops, &w, BASE_TIME_NEVER), 0);
    assert_int_equal(w.worked, 2);
    assert_int_equal(w.dropped, 0);
}

static void too_late(void **state)
{
    (void)state;
    static work_t w = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    assert_int_equal(base_aside(waits, drops, &w, base_deadline(0.05)), ETIMEDOUT);
    pthread_mutex_lock(&w.lock);
    assert_int_equal(w.worked + w.dropped, 0); /* it is the thread's now, and still at work */
    w.released = 1;
    pthread_cond_broadcast(&w.moved);
    while (!w.dropped) /* the test's own deadline ends this if it never comes */
        pthread_cond_wait(&w.moved, &w.lock);
    assert_int_equal(w.worked, 1);
    pthread_mutex_unlock(&w.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_time), cmocka_unit_test(too_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
