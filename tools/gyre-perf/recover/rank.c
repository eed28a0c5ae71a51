/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/recover/rank.c: rounds of death and recovery, as one of the ranks. */
#include "tools/gyre-perf/recover/recover.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

enum { LEAST = 3 };          /* ranks that a round begins with */
#define STRIKE_SECONDS 120.0 /* that a victim has to be found dead */

/* The record that survivors exchange after a round. */
typedef struct {
    int rank; /* in the job as it began */
    int wrong, shrinks, failed;
    double detect, shrink, result;
} told_t;

static double ms_since(base_time_t from, base_time_t to)
{
    return (double)(to - from) * 1e-6;
}

/* A stopped or stuck process ends some time, even if no other process ends it. It closes its descriptors, the
 * connections by which the others learn of an end. */
static void end_later(void)
{
    pid_t parent = getpid();
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left once the parent was killed */
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    sleep((unsigned)STRIKE_SECONDS);
    if (getppid() == parent)
        kill(parent, SIGKILL);
    _exit(0);
}

static void strike(const char *kind)
{
    if (strcmp(kind, "exit") == 0)
        exit(0);
    if (strcmp(kind, "kill") == 0)
        kill(getpid(), SIGKILL);
    end_later();
    if (strcmp(kind, "stop") == 0)
        kill(getpid(), SIGSTOP);
    for (;;)
        pause();
}

/* This process dies within some milliseconds, wherever it is. */
static void strike_soon(uint64_t random)
{
    struct itimerval soon = {.it_value = {.tv_usec = (suseconds_t)(1 + random % 20000)}};
    signal(SIGALRM, SIG_DFL); /* which kills */
    if (setitimer(ITIMER_REAL, &soon, NULL) != 0)
        kill(getpid(), SIGKILL);
}

static int expected(gyre_status_t st)
{
    return st == GYRE_ERR_PEER_DEAD || st == GYRE_ERR_ABORTED || st == GYRE_ERR_TIMEOUT;
}

/* Shrinks until an operation goes through. */
static gyre_status_t recover(gyre_comm_t **comm, int doomed, told_t *told)
{
    gyre_status_t st;
    base_time_t began = base_now(), made;
    do {
        gyre_comm_t *old = *comm;
        double ones = 1;
        st = gyre_comm_shrink(old, comm);
        told->shrinks++;
        if (st != GYRE_OK) { /* for good */
            told->failed = 1;
            return st;
        }
        made = base_now();
        st = gyre_comm_destroy(old);
        if (st == GYRE_OK && doomed)
            pause(); /* it comes any moment */
        if (st == GYRE_OK)
            st = gyre_all_reduce(&ones, &ones, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), *comm);
        told->wrong = st == GYRE_OK && ones != gyre_comm_size(*comm);
    } while (expected(st));
    told->shrink = ms_since(began, made);
    told->result = ms_since(made, base_now());
    return st;
}

/* ranks: [size of *comm] the survivors' ranks in the job as it began; in and out. */
static gyre_status_t round_of(gyre_comm_t **comm, const recover_options_t *o, int number, int *ranks,
                              recover_round_t *record)
{
    int n = gyre_comm_size(*comm), rank = gyre_comm_rank(*comm), mine = ranks[rank];
    uint64_t words[2] = {(uint64_t)o->seed, (uint64_t)number};
    uint64_t random = base_hash64(words, sizeof words, 17);
    int victim = (int)(random % (uint64_t)n);
    int second = o->during && number % 2 == 1 && n > LEAST
                     ? (victim + 1 + (int)((random >> 32) % (uint64_t)(n - 1))) % n
                     : -1;
    told_t told = {.rank = mine};
    base_time_t began = base_now();
    gyre_status_t st = gyre_barrier(*comm);
    if (st == GYRE_OK)
        began = base_now();
    else if (!expected(st)) /* the victim may be dead before this rank is through */
        return st;
    *record = (recover_round_t){.victim = ranks[victim], .second = second >= 0 ? ranks[second] : -1};
    base_time_t until = base_deadline(STRIKE_SECONDS);
    if (rank == victim)
        strike(o->kind);
    while (st == GYRE_OK) {
        double word = 1;
        st = gyre_all_reduce(&word, &word, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), *comm);
        if (st == GYRE_OK && base_now() > until)
            return gyre_fail(GYRE_ERR_INTERNAL, "rank %d had to die and did not", record->victim);
    }
    if (!expected(st))
        return st;
    told.detect = ms_since(began, base_now());
    if (rank == second)
        strike_soon(random >> 13);
    told_t all[RECOVER_RANKS];
    do { /* a rank that was to die later may do so in here, too */
        st = recover(comm, rank == second, &told);
        if (st == GYRE_OK)
            st = gyre_all_gather(&told, all, sizeof told, GYRE_UINT8, *comm);
    } while (expected(st) && !told.failed && base_now() < until);
    if (st != GYRE_OK)
        return st;
    record->left = gyre_comm_size(*comm);
    for (int r = 0; r < record->left; r++) {
        ranks[r] = all[r].rank;
        record->detect = all[r].detect > record->detect ? all[r].detect : record->detect;
        record->shrink = all[r].shrink > record->shrink ? all[r].shrink : record->shrink;
        record->result = all[r].result > record->result ? all[r].result : record->result;
        record->shrinks = all[r].shrinks > record->shrinks ? all[r].shrinks : record->shrinks;
        record->wrong |= all[r].wrong;
        record->wrong |= all[r].rank == record->victim || all[r].rank == record->second;
    }
    return GYRE_OK;
}

gyre_status_t recover_rounds(gyre_comm_t **comm, const recover_options_t *o, int first, int rounds,
                             recover_round_t *records, int *done)
{
    int ranks[RECOVER_RANKS];
    for (int r = 0; r < RECOVER_RANKS; r++)
        ranks[r] = r;
    *done = 0;
    while (*done < rounds && gyre_comm_size(*comm) >= LEAST) {
        gyre_status_t st = round_of(comm, o, first + *done, ranks, &records[*done]);
        if (st != GYRE_OK)
            return st;
        ++*done;
    }
    return GYRE_OK;
}
