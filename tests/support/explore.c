/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/explore.c: see explore.h. Each run follows the choices of the run before but for the last one
 * that has an alternative: a depth-first search without copies of the threads. */
#undef _FORTIFY_SOURCE /* its check of longjmp takes another stack for a mistake */
#include "explore.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/hash.h"
#include "tests/support/states.h"

enum { STACK = 256 << 10, STORES = 8, STEPS = 1000, ROOM = 1 << 22 };

typedef struct {
    volatile uint32_t *at;
    uint32_t value;
} store_t;

typedef struct {
    ucontext_t context;
    jmp_buf here; /* where it goes on, once it has begun */
    int begun;
    unsigned char *stack;
    uint64_t past; /* hash of its steps' results */
    int done;
    volatile uint32_t *asleep_on; /* NULL: not in a futex */
    int (*ready)(void);           /* NULL: waits for nothing */
    store_t stores[STORES];       /* not visible yet, the oldest first */
    int nstores;
} thread_t;

typedef struct {
    int thread;
    const char *call;
    ptrdiff_t at;
    uint32_t value;
} step_t;

static const explore_t *what;
static thread_t threads[EXPLORE_THREADS];
static int running = -1;
static states_t met;
static struct {
    int taken, of;
} choice[STEPS];
static step_t steps[STEPS];
static int nsteps;

static void give_up(const char *why)
{
    fprintf(stderr, "explore: %s\n", why);
    abort();
}

static ptrdiff_t place(const volatile void *at)
{
    return at ? (const volatile unsigned char *)at - (const volatile unsigned char *)what->memory : -1;
}

static void note(int thread, const char *call, const volatile void *at, uint32_t value)
{
    if (nsteps == STEPS)
        give_up("a run has too many steps: does a body wait in a loop?");
    steps[nsteps++] = (step_t){thread, call, place(at), value};
}

/* ---- what the threads do ------------------------------------------------------------------------------- */

/* swapcontext asks the kernel for the signal mask, which costs more than all else in a step. Sanitizers know
 * no other way to change the stack. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static ucontext_t scheduler;

static void pause_here(void)
{
    swapcontext(&threads[running].context, &scheduler);
}

static void go_on(thread_t *t)
{
    swapcontext(&scheduler, &t->context);
}
#else
static jmp_buf scheduler;

static void pause_here(void)
{
    if (_setjmp(threads[running].here) == 0)
        _longjmp(scheduler, 1);
}

static void go_on(thread_t *t)
{
    if (_setjmp(scheduler) != 0)
        return;
    if (t->begun)
        _longjmp(t->here, 1);
    t->begun = 1;
    setcontext(&t->context);
}
#endif

/* The step that the thread has come back for has this result. */
static uint32_t learn(const char *call, const volatile void *at, uint32_t value)
{
    thread_t *t = &threads[running];
    const struct {
        uint64_t past;
        ptrdiff_t at;
        uint64_t value;
    } record = {t->past, place(at), value};

    t->past = base_hash64(&record, sizeof record, 1);
    note(running, call, at, value);
    return value;
}

static void show_oldest(thread_t *t)
{
    *t->stores[0].at = t->stores[0].value;
    memmove(t->stores, t->stores + 1, (size_t)--t->nstores * sizeof *t->stores);
}

static void show_all(thread_t *t)
{
    while (t->nstores > 0)
        show_oldest(t);
}

int explore_thread(void)
{
    return running;
}

uint32_t explore_load(const volatile void *at)
{
    if (running < 0)
        return *(const volatile uint32_t *)at;
    pause_here();
    const thread_t *t = &threads[running];
    uint32_t value = *(const volatile uint32_t *)at;
    for (int i = 0; i < t->nstores; i++)
        if (t->stores[i].at == at)
            value = t->stores[i].value;
    return learn("load", at, value);
}

void explore_store(volatile void *at, uint32_t value)
{
    if (running < 0) {
        *(volatile uint32_t *)at = value;
        return;
    }
    pause_here();
    thread_t *t = &threads[running];
    if (t->nstores == STORES)
        show_oldest(t);
    t->stores[t->nstores++] = (store_t){at, value};
    learn("store", at, value);
}

uint32_t explore_exchange(volatile void *at, uint32_t value)
{
    if (running >= 0) {
        pause_here();
        show_all(&threads[running]);
    }
    uint32_t old = *(volatile uint32_t *)at;
    *(volatile uint32_t *)at = value;
    return running >= 0 ? learn("exchange", at, old) : old;
}

uint32_t explore_add(volatile void *at, uint32_t value)
{
    if (running >= 0) {
        pause_here();
        show_all(&threads[running]);
    }
    uint32_t old = *(volatile uint32_t *)at;
    *(volatile uint32_t *)at = old + value;
    return running >= 0 ? learn("add", at, old) : old;
}

void explore_fence(void)
{
    if (running < 0)
        return;
    pause_here();
    show_all(&threads[running]);
    learn("fence", NULL, 0);
}

void explore_fence_all(void)
{
    if (running < 0)
        return;
    pause_here();
    for (int i = 0; i < what->threads; i++)
        show_all(&threads[i]);
    learn("fence of all", NULL, 0);
}

void explore_sleep(volatile void *at, uint32_t value)
{
    thread_t *t = &threads[running];

    pause_here();
    show_all(t);
    if (*(volatile uint32_t *)at != value) {
        learn("sleeps not", at, value);
        return;
    }
    learn("sleeps", at, value);
    t->asleep_on = at;
    pause_here(); /* comes back once it is woken */
    learn("is awake", at, value);
}

void explore_wake(volatile void *at)
{
    if (running < 0)
        return;
    pause_here();
    for (int i = 0; i < what->threads; i++)
        if (threads[i].asleep_on == at)
            threads[i].asleep_on = NULL;
    learn("wakes", at, 0);
}

void explore_until(int (*ready)(void))
{
    threads[running].ready = ready;
    pause_here();
    threads[running].ready = NULL;
    show_all(&threads[running]); /* it was a system call */
    learn("is ready", NULL, 0);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

static void begin(void)
{
    what->body[running]();
    threads[running].done = 1;
    pause_here();
}

static void start(void)
{
    what->reset();
    nsteps = 0;
    for (int i = 0; i < what->threads; i++) {
        thread_t *t = &threads[i];
        unsigned char *stack = t->stack;
        *t = (thread_t){.stack = stack, .past = (uint64_t)i + 1};
#if defined(__SANITIZE_ADDRESS__)
        ASAN_UNPOISON_MEMORY_REGION(stack, STACK); /* of a run that was left in the middle */
#endif
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = stack;
        t->context.uc_stack.ss_size = STACK;
        t->context.uc_link = NULL;
        makecontext(&t->context, begin, 0);
    }
}

/* Runs thread i up to its next step, which is not part of that. */
static void resume(int i)
{
    running = i;
    go_on(&threads[i]);
    running = -1;
}

/* Alternative k of what may happen next; for k from 0 until it returns 0. Even threads' numbers run, then the
 * oldest stores become visible. */
static int find_next(int k, int *thread, int *shows)
{
    for (int i = 0; i < what->threads; i++) {
        const thread_t *t = &threads[i];
        if (t->done || t->asleep_on || (t->ready && !t->ready()))
            continue;
        if (k-- == 0) {
            *thread = i;
            *shows = 0;
            return 1;
        }
    }
    for (int i = 0; i < what->threads; i++) {
        if (threads[i].nstores > 0 && k-- == 0) {
            *thread = i;
            *shows = 1;
            return 1;
        }
    }
    return 0;
}

static int is_new(void)
{
    uint64_t hash = base_hash64(what->memory, what->bytes, 7);

    for (int i = 0; i < what->threads; i++) {
        const thread_t *t = &threads[i];
        const uint64_t state[] = {hash, t->past, (uint64_t)t->done, t->asleep_on != NULL,
                                  (uint64_t)t->nstores};
        hash = base_hash64(state, sizeof state, 8);
    }
    /* the stores that are not visible follow from what the thread did, and their number */
    const int is = states_new(&met, hash);
    if (is < 0)
        give_up("there are too many states");
    return is;
}

static void describe(char *text, size_t bytes)
{
    size_t used = 0;

    for (int s = 0; s < nsteps && used < bytes; s++)
        used += (size_t)snprintf(text + used, bytes - used, "%d %s [%td] %u\n", steps[s].thread,
                                 steps[s].call, steps[s].at, steps[s].value);
}

/* One run, with the first `depth` choices as they stand. Returns how many there are then that have not been
 * met before. */
static int run(int depth, explore_result_t *result)
{
    int at = 0, thread, shows, of, done = 0, known = -1;

    start();
    for (int i = 0; i < what->threads; i++)
        resume(i); /* to its first step */
    for (;; at++) {
        for (of = 0; find_next(of, &thread, &shows); of++) {
        }
        if (of == 0)
            break;
        if (at == STEPS)
            give_up("a run has too many choices");
        if (at >= depth) {
            if (known < 0 && !is_new()) {
                known = at;
                if (!what->completes)
                    return at;
            }
            choice[at].taken = 0;
            choice[at].of = of;
        }
        find_next(choice[at].taken, &thread, &shows);
        if (shows) {
            note(thread, "shows", threads[thread].stores[0].at, threads[thread].stores[0].value);
            show_oldest(&threads[thread]);
        } else {
            resume(thread);
        }
    }
    for (int i = 0; i < what->threads; i++)
        done += threads[i].done;
    result->stuck = done < what->threads;
    result->wrong = !result->stuck && what->right && !what->right();
    if (result->stuck || result->wrong)
        describe(result->text, sizeof result->text);
    return known < 0 ? at : known;
}

explore_result_t explore(const explore_t *of_what)
{
    explore_result_t result = {0};
    int depth = 0;

    what = of_what;
    if (!states_open(&met, ROOM))
        give_up("there is no memory for the states");
    for (int i = 0; i < what->threads; i++)
        threads[i].stack = malloc(STACK);
    do {
        depth = run(depth, &result);
        result.runs++;
        while (depth > 0 && ++choice[depth - 1].taken == choice[depth - 1].of)
            depth--;
    } while (depth > 0 && !result.stuck && !result.wrong);
    result.states = met.met;
    for (int i = 0; i < what->threads; i++)
        free(threads[i].stack);
    states_close(&met);
    return result;
}
