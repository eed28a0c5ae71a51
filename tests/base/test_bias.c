/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_bias.c: a biased lock excludes other threads, for any first owner and any later one. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/thread/bias.h"
#include "base/thread/fence.h"

enum { TURNS = 20000, THREADS = 3, ROUNDS = 50 };

typedef struct {
    base_bias_t lock;
    long counter; /* plain: only the lock orders its writers */
    int inside;
    pthread_barrier_t start;
} guarded_t;

static void enter(guarded_t *g)
{
    while (!base_bias_try(&g->lock))
        sched_yield();
}

static void *add(void *user)
{
    guarded_t *g = user;
    pthread_barrier_wait(&g->start);
    for (int i = 0; i < TURNS; i++) {
        enter(g);
        if (g->inside++ != 0)
            g->counter -= 1000000;
        g->counter++;
        g->inside--;
        base_bias_leave(&g->lock);
    }
    return NULL;
}

static void one_thread(void **state)
{
    (void)state;
    guarded_t g = {0};
    assert_int_equal(pthread_barrier_init(&g.start, NULL, 1), 0);
    add(&g);
    assert_int_equal(g.counter, TURNS);
    assert_int_equal(atomic_load(&g.lock.revoked),
                     base_fence_threads_ready() ? BASE_BIAS_OWNED : BASE_BIAS_REVOKED);
    assert_true(base_bias_try(&g.lock));
    base_bias_leave(&g.lock);
}

static void *try_it(void *user)
{
    return base_bias_try(user) ? user : NULL;
}

static void held_by_the_owner(void **state)
{
    (void)state;
    base_bias_t lock = {0};
    pthread_t other;
    void *got;
    assert_true(base_bias_try(&lock));
    for (int i = 0; i < 2; i++) { /* the first revokes, the second finds it revoked */
        assert_int_equal(pthread_create(&other, NULL, try_it, &lock), 0);
        pthread_join(other, &got);
        assert_null(got);
    }
    base_bias_leave(&lock);
    assert_int_equal(pthread_create(&other, NULL, try_it, &lock), 0);
    pthread_join(other, &got);
    assert_ptr_equal(got, &lock);
    assert_false(base_bias_try(&lock)); /* its former owner has no right any more */
}

static void *take_and_disown(void *user)
{
    base_bias_t *lock = user;
    if (!base_bias_try(lock))
        return NULL;
    base_bias_leave(lock);
    base_bias_disown(lock);
    return user;
}

static void disowned(void **state)
{
    (void)state;
    base_bias_t lock = {0};
    pthread_t other;
    void *got;
    assert_int_equal(pthread_create(&other, NULL, take_and_disown, &lock), 0);
    pthread_join(other, &got);
    assert_ptr_equal(got, &lock);
    assert_true(base_bias_try(&lock)); /* the next one is the owner */
    assert_int_equal(base_bias_unwanted(&lock), base_fence_threads_ready());
    base_bias_leave(&lock);
    assert_int_equal(pthread_create(&other, NULL, take_and_disown, &lock), 0); /* whose it is not */
    pthread_join(other, &got);
    assert_ptr_equal(got, &lock);
    assert_false(base_bias_unwanted(&lock));
    assert_true(base_bias_try(&lock));
    base_bias_leave(&lock);
}

static void many_threads(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) { /* revoked at another moment each time */
        guarded_t g = {0};
        pthread_t thread[THREADS];
        assert_int_equal(pthread_barrier_init(&g.start, NULL, THREADS), 0);
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&thread[t], NULL, add, &g), 0);
        for (int t = 0; t < THREADS; t++)
            pthread_join(thread[t], NULL);
        assert_int_equal(g.counter, (long)THREADS * TURNS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(held_by_the_owner),
        cmocka_unit_test(disowned),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
