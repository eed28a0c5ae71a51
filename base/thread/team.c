/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/team.c: workers that take pieces from one counter.
 *
 *     ticket    number of the loop (upper half), pieces that nobody has taken (lower half)
 *     done      pieces that have been made
 *
 * A thread that takes a piece by a compare-and-exchange of `ticket` knows that the loop cannot end before
 * `done` has counted that piece, so `piece` and `arg` stay as they are. The caller waits for pieces that were
 * taken, never for a worker that has not come: workers that are late, or that exist only in the parent of a
 * fork, take nothing. A thread that finds nothing to do spins a little and then sleeps. */
#include "base/thread/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "base/thread/cacheline.h"
#include "base/thread/futex.h"

/* How long a thread spins before it sleeps: a few times what waking it takes. Between two loops of a
 * training step there is less than that, as a rule. */
#define SPIN     ((base_time_t)50000) /* ns */
#define LOOKS    64                   /* at the word, between two at the clock */
#define LOWER(t) ((uint32_t)(t))

struct base_team {
    /* written by the caller of base_each before `ticket`, read by who has taken a piece */
    void (*piece)(void *arg, size_t at);
    void *arg;
    uint32_t pieces;
    _Alignas(BASE_LINE) _Atomic uint64_t ticket;
    _Alignas(BASE_LINE) _Atomic uint32_t done;
    _Atomic uint32_t waits;                    /* 1: the caller may sleep on `done` */
    _Alignas(BASE_LINE) _Atomic uint32_t bell; /* workers sleep on it; changes when they are called */
    _Atomic uint32_t asleep;                   /* workers that are about to, or do */
    _Atomic uint32_t ends;
    pid_t pid;
    size_t workers;
    pthread_t worker[];
};

static _Thread_local base_team_t *here;

/* Makes pieces until none is left. */
static void work(base_team_t *team)
{
    /* acquire: pairs with the store of the caller, so `piece` and what it reads are there */
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    while (LOWER(ticket) > 0) {
        if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket - 1, memory_order_acquire,
                                                   memory_order_acquire))
            continue;
        const uint32_t pieces = team->pieces;
        team->piece(team->arg, pieces - LOWER(ticket));
        /* The caller stores `waits` and then loads `done`; one of the two sees the other. Release: what the
         * piece has written is there when the caller has counted it. */
        if (atomic_fetch_add(&team->done, 1) + 1 == pieces && atomic_load(&team->waits))
            base_futex_wake(&team->done, 1);
        ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    }
}

static int has_work(base_team_t *team)
{
    return LOWER(atomic_load(&team->ticket)) > 0 || atomic_load(&team->ends);
}

static int all_done(base_team_t *team)
{
    return atomic_load(&team->done) == team->pieces;
}

/* 1: it is so; 0: it was not for a while. */
static int spin(base_team_t *team, int (*is_so)(base_team_t *team))
{
    const base_time_t until = base_now() + SPIN;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (is_so(team))
                return 1;
            base_relax();
        }
    } while (base_now() < until);
    return 0;
}

static void *worker_main(void *user)
{
    base_team_t *team = user;
    for (;;) {
        if (!spin(team, has_work)) {
            const uint32_t bell = atomic_load(&team->bell);
            /* the caller stores `ticket` and then loads `asleep`; one of the two sees the other */
            atomic_fetch_add(&team->asleep, 1);
            if (!has_work(team))
                base_futex_wait(&team->bell, bell, BASE_TIME_NEVER);
            atomic_fetch_sub(&team->asleep, 1);
        }
        work(team);
        if (atomic_load(&team->ends))
            return NULL;
    }
}

/* Wakes up to `most` workers. */
static void call_workers(base_team_t *team, size_t most)
{
    const size_t asleep = atomic_load(&team->asleep);
    if (asleep == 0)
        return;
    atomic_fetch_add(&team->bell, 1);
    base_futex_wake(&team->bell, (int)(most < asleep ? most : asleep));
}

static void start_workers(base_team_t *team, size_t threads, const char *option)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int bad = 0;
    while (bad == 0 && team->workers + 1 < threads) {
        bad = pthread_create(&team->worker[team->workers], NULL, worker_main, team);
        team->workers += bad == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (bad != 0)
        log_warning("%s %zu: the system gives only %zu (%s); the results are the same, later", option,
                    threads, team->workers + 1, strerror(bad));
}

void base_team_check(size_t threads, const char *option)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) /* they are more than CPU_SETSIZE */
        return;
    const size_t count = (size_t)CPU_COUNT(&own);
    if (threads > count)
        log_warning("%s %zu: the threads take turns on %zu processor%s, all that this process may use: take "
                    "%s %zu%s",
                    option, threads, count, count == 1 ? "" : "s", option, count,
                    sysconf(_SC_NPROCESSORS_ONLN) <= (long)count ? ""
                    : *base_setting_string(SET_LAUNCH)
                        ? ", or more processors (ucx-run --bind none or numa)"
                        : ", or add to the processors that this process may run on");
}

gyre_status_t base_team_create(size_t threads, const char *option, base_team_t **out)
{
    if (threads < 1 || threads > BASE_TEAM_MOST)
        return gyre_fail(GYRE_ERR_INVALID, "%s %zu: 1 to %d threads are possible", option, threads,
                         BASE_TEAM_MOST);
    const size_t bytes = sizeof(base_team_t) + (threads - 1) * sizeof(pthread_t);
    base_team_t *team = aligned_alloc(BASE_LINE, (bytes + BASE_LINE - 1) / BASE_LINE * BASE_LINE);
    if (!team)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s %zu: no memory for so many threads", option, threads);
    memset(team, 0, bytes);
    team->pid = getpid();
    base_team_check(threads, option);
    start_workers(team, threads, option);
    *out = team;
    return GYRE_OK;
}

void base_team_destroy(base_team_t *team)
{
    if (!team)
        return;
    if (team->pid == getpid()) {
        atomic_store(&team->ends, 1);
        call_workers(team, team->workers);
        for (size_t i = 0; i < team->workers; i++)
            pthread_join(team->worker[i], NULL);
    }
    free(team);
}

size_t base_team_threads(const base_team_t *team)
{
    return team ? team->workers + 1 : 1;
}

base_team_t *base_team_use(base_team_t *team)
{
    base_team_t *before = here;
    here = team;
    return before;
}

size_t base_team_here(void)
{
    return base_team_threads(here);
}

/* n below 2^32. */
static void divide(base_team_t *team, uint32_t n, void (*piece)(void *arg, size_t at), void *arg)
{
    team->piece = piece;
    team->arg = arg;
    team->pieces = n;
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    const uint64_t loop = (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&team->ticket, loop << 32 | n);
    call_workers(team, n - 1);
    work(team);
    while (!spin(team, all_done)) {
        const uint32_t done = atomic_load(&team->done);
        atomic_store(&team->waits, 1);
        if (atomic_load(&team->done) == done && done != n)
            base_futex_wait(&team->done, done, BASE_TIME_NEVER);
        atomic_store(&team->waits, 0);
    }
}

void base_each(size_t n, void (*piece)(void *arg, size_t at), void *arg)
{
    base_team_t *team = here;
    if (n < 2 || n > UINT32_MAX || !team || team->workers == 0) {
        for (size_t at = 0; at < n; at++)
            piece(arg, at);
        return;
    }
    here = NULL; /* a piece that has a loop makes it itself */
    divide(team, (uint32_t)n, piece, arg);
    here = team;
}
