/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/aside.c: see aside.h. */
#include "base/thread/aside.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Freed by the last of the two: the thread, or the caller that waited. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int done, abandoned;
    void (*work)(void *);
    void (*drop)(void *);
    void *arg;
} errand_t;

static void errand_free(errand_t *e)
{
    pthread_cond_destroy(&e->moved);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static errand_t *errand_new(void (*work)(void *), void (*drop)(void *), void *arg)
{
    pthread_condattr_t attr;
    errand_t *e = calloc(1, sizeof(*e));
    if (e == NULL || pthread_condattr_init(&attr) != 0) {
        free(e);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&e->moved, &attr);
    pthread_condattr_destroy(&attr);
    if (bad == 0 && (bad = pthread_mutex_init(&e->lock, NULL)) != 0)
        pthread_cond_destroy(&e->moved);
    if (bad != 0) {
        free(e);
        return NULL;
    }
    e->work = work;
    e->drop = drop;
    e->arg = arg;
    return e;
}

static void *errand_main(void *user)
{
    errand_t *e = user;
    e->work(e->arg);
    pthread_mutex_lock(&e->lock);
    e->done = 1;
    int alone = e->abandoned;
    pthread_cond_signal(&e->moved);
    pthread_mutex_unlock(&e->lock);
    if (alone) {
        e->drop(e->arg);
        errand_free(e);
    }
    return NULL;
}

int base_aside(void (*work)(void *arg), void (*drop)(void *arg), void *arg, base_time_t deadline)
{
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    pthread_t thread;
    errand_t *e = errand_new(work, drop, arg);
    if (e == NULL)
        return ENOMEM;
    int err = pthread_create(&thread, NULL, errand_main, e);
    if (err != 0) {
        errand_free(e);
        return err;
    }
    pthread_mutex_lock(&e->lock);
    while (!e->done && pthread_cond_timedwait(&e->moved, &e->lock, &until) != ETIMEDOUT)
        ;
    int done = e->done;
    e->abandoned = !done;
    pthread_mutex_unlock(&e->lock);
    if (!done) {
        pthread_detach(thread);
        return ETIMEDOUT;
    }
    pthread_join(thread, NULL);
    errand_free(e);
    return 0;
}
