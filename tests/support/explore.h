/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/explore.h: runs a few threads of a protocol in every interleaving of their steps.
 *
 * The threads are coroutines, the steps are the calls below. A step is a load, a store, a read-modify-write,
 * a fence, or going to sleep. A store waits in its thread's buffer until it becomes visible, at any later
 * time, in the order of the stores: so a load may overtake it. That is x86's order; what weaker machines
 * also do is not explored. Code under test is compiled with its atomics defined as these calls.
 *
 * A thread's state is the results of its steps so far, and whether it sleeps. A state that was met before is
 * not explored again. Bodies must depend on nothing else, and must end after a bounded number of steps if the
 * others move. */
#ifndef TESTS_EXPLORE_H
#define TESTS_EXPLORE_H

#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_THREADS = 4 };

typedef struct {
    int threads;
    void (*body[EXPLORE_THREADS])(void);
    void (*reset)(void); /* makes everything as it is before the threads begin */
    int completes;       /* 1: every run goes on to its end, since bodies hold memory or descriptors */
    int (*right)(void);  /* 1: memory is as it must be when all threads have ended; NULL: it always is */
    void *memory;        /* what the threads share: all words that the calls below are given */
    size_t bytes;
} explore_t;

typedef struct {
    size_t states, runs;
    int stuck;       /* 1: at the end of some interleaving a thread sleeps forever, */
    int wrong;       /* or all have ended and memory is not right */
    char text[4000]; /* its steps: thread, call, place in memory, value */
} explore_result_t;

/* Stops at the first interleaving that is stuck or wrong. */
explore_result_t explore(const explore_t *what);

/* Steps, by a thread's body. Elsewhere they do the same at once. Words have 4 bytes. */
uint32_t explore_load(const volatile void *at);
void explore_store(volatile void *at, uint32_t value);
uint32_t explore_exchange(volatile void *at, uint32_t value);
uint32_t explore_add(volatile void *at, uint32_t value); /* the value before */
void explore_fence(void);
void explore_fence_all(void); /* in all threads, as by membarrier */
/* A futex: sleeps if the word has that value, until it is woken; never shorter, as a real one may. */
void explore_sleep(volatile void *at, uint32_t value);
void explore_wake(volatile void *at); /* all that sleep there */
/* Sleeps until `ready`, which looks at memory; one word of it is enough. */
void explore_until(int (*ready)(void));
int explore_thread(void); /* the number of the thread that calls; -1: none */

#endif
