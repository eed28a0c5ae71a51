/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/rank.c: one rank of a job that tests/faults/check does something to.
 *
 *     rank SEED [late]     late: buffers come back when the failed communicator is destroyed, as over UCX
 *                          (docs/transports.md), not already with the error
 *
 * It runs one random collective after the other and checks every element of each result. All ranks draw the
 * same calls from SEED and the number of the call. After an error it shrinks the job and goes on. It keeps
 * the buffers of before the error and watches that nobody writes to them any more.
 * Signals: TERM: finish (once one rank has got it, all finish in the same call), USR1: abort, USR2: invite
 * one newcomer (GYRE_JOIN), HUP: exit without gyre_finalize.
 * One line to stdout for each event, with the time of CLOCK_MONOTONIC in seconds:
 *
 *     NAME t name          a newcomer: it is in the job
 *     READY t n            in the job, some calls are done
 *     ERROR t status text  of an operation, of gyre_init or of gyre_comm_shrink
 *     GOOD t n sum         after a shrink, or when no newcomer came: n ranks, the sum of their names, and
 *                          some calls that were right
 *     ADDRESS t host:port  where the newcomer is to come
 *     GROWN t n sum        with the newcomer
 *     WRONG t text         a result or an old buffer that is not as it should be
 *     END t status fds     gyre_finalize; descriptors that are open more than before gyre_init
 *
 * Exits with 0 after END, 1 where it can only leave (its last error is in ERROR), 3 after WRONG. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/clock.h"
#include "base/hash.h"

enum {
    MOST = 1 << 16, /* elements of a rank's part of a call, at most */
    RANKS = 16,     /* of a job, at most */
    OLD = 8,        /* pairs of buffers of earlier communicators */
    SOME = 3,       /* calls before READY and GOOD */
    GROW = 1 << 20, /* element 0 of the vote: some rank wants the job to grow; below it: how many finish */
    PATTERN = 0x5a
};

typedef struct {
    gyre_comm_t *comm;
    uint64_t seed, calls; /* calls: of this communicator */
    int64_t *in, *out;    /* [RANKS * MOST] */
    int64_t name, names[RANKS];
    int n, rank, grows, late;
    int64_t *old[2 * OLD];
    int olds;
} job_t;

static volatile sig_atomic_t aborting, growing, stopping, leaving;

static void on_signal(int number)
{
    *(number == SIGUSR1   ? &aborting
      : number == SIGUSR2 ? &growing
      : number == SIGHUP  ? &leaving
                          : &stopping) = 1;
}

static double now(void)
{
    return (double)base_now() * 1e-9;
}

static gyre_status_t failed(gyre_status_t status)
{
    printf("ERROR %.6f %d %s\n", now(), (int)status, gyre_last_error());
    fflush(stdout);
    return status;
}

static void wrong(const job_t *job, const char *what, size_t i, int64_t is, int64_t should)
{
    printf("WRONG %.6f %s, call %llu of %d ranks: element %zu is %lld, not %lld\n", now(), what,
           (unsigned long long)job->calls, job->n, i, (long long)is, (long long)should);
    fflush(stdout);
    _exit(3);
}

/* Open descriptors, without the flight recorder's, which lasts as long as the process, and one arena that the
 * allocator keeps. out: where each is printed; NULL: nowhere. */
static int descriptors(FILE *out)
{
    int n = 0, arenas = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *d; all != NULL && (d = readdir(all)) != NULL;) {
        char path[300], to[100] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
        if (readlink(path, to, sizeof to - 1) <= 0 || strstr(to, "gyre-recorder") != NULL)
            continue;
        if (strstr(to, "gyre-window") != NULL && arenas++ == 0)
            continue;
        n++;
        if (out != NULL)
            fprintf(out, "descriptor %s: %s\n", d->d_name, to);
    }
    if (all != NULL)
        closedir(all);
    return n;
}

static uint64_t draw(const job_t *job, uint64_t what)
{
    return base_mix64(job->seed * 0x9e3779b97f4a7c15u + job->calls * 0xbf58476d1ce4e5b9u + what);
}

/* What the rank with that name puts into element i of its input. */
static int64_t input(const job_t *job, int64_t name, size_t i)
{
    return name * 1000003 + (int64_t)(i * 7) + (int64_t)(job->calls % 1000);
}
static int64_t sum(const job_t *job, size_t i)
{
    int64_t s = 0;
    for (int r = 0; r < job->n; r++)
        s += input(job, job->names[r], i);
    return s;
}

static void fresh_buffers(job_t *job)
{
    job->in = malloc(RANKS * MOST * sizeof *job->in);
    job->out = malloc(RANKS * MOST * sizeof *job->out);
    if (job->in == NULL || job->out == NULL)
        exit(4);
}

/* The buffers of a communicator that has failed are this program's again: nobody may write to them. */
static void retire_buffers(job_t *job)
{
    if (job->olds + 2 > 2 * OLD)
        return;
    job->old[job->olds++] = job->in;
    job->old[job->olds++] = job->out;
    for (int i = job->olds - 2; i < job->olds; i++)
        memset(job->old[i], PATTERN, RANKS * MOST * sizeof(int64_t));
    fresh_buffers(job);
}
static void look_at_old_buffers(const job_t *job)
{
    int64_t should;
    memset(&should, PATTERN, sizeof should);
    for (int i = 0; i < job->olds; i++) {
        for (size_t k = 0; k < RANKS * MOST; k++) {
            if (job->old[i][k] != should)
                wrong(job, "a buffer of before the error", k, job->old[i][k], should);
        }
    }
}

/* One random collective, and a look at its result. */
static gyre_status_t call(job_t *job)
{
    enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, REDUCE, GATHER, SCATTER, KINDS };
    static const char *const NAMES[KINDS] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                             "broadcast",  "reduce",     "gather",         "scatter"};
    int kind = (int)(draw(job, 1) % KINDS), n = job->n, root = (int)(draw(job, 2) % (uint64_t)n);
    size_t count = (size_t)1 << draw(job, 3) % 17;
    count += draw(job, 4) % count;
    count = count > MOST ? MOST : count;
    const gyre_type_t type = GYRE_INT64;
    const gyre_redop_t op = GYRE_OP(GYRE_SUM);
    int many = kind == REDUCE_SCATTER || kind == ALL_TO_ALL || kind == SCATTER;
    for (size_t i = 0; i < (many ? (size_t)n : 1) * count; i++)
        job->in[i] = input(job, job->name, i);
    gyre_status_t status = GYRE_OK;
    switch (kind) {
    case ALL_REDUCE:
        status = gyre_all_reduce(job->in, job->out, count, type, op, job->comm);
        break;
    case ALL_GATHER:
        status = gyre_all_gather(job->in, job->out, count, type, job->comm);
        break;
    case REDUCE_SCATTER:
        status = gyre_reduce_scatter(job->in, job->out, count, type, op, job->comm);
        break;
    case ALL_TO_ALL:
        status = gyre_all_to_all(job->in, job->out, count, type, job->comm);
        break;
    case BROADCAST:
        status = gyre_broadcast(job->in, job->out, count, type, root, job->comm);
        break;
    case REDUCE:
        status = gyre_reduce(job->in, job->out, count, type, op, root, job->comm);
        break;
    case GATHER:
        status = gyre_gather(job->in, job->out, count, type, root, job->comm);
        break;
    case SCATTER:
        status = gyre_scatter(job->in, job->out, count, type, root, job->comm);
        break;
    }
    if (status != GYRE_OK)
        return status;
    int mine = job->rank == root, parts = kind == ALL_GATHER || kind == ALL_TO_ALL || kind == GATHER;
    size_t length = (kind == REDUCE || kind == GATHER) && !mine ? 0 : (parts ? (size_t)n : 1) * count;
    size_t ahead = (size_t)job->rank * count; /* of this rank's part in each rank's input */
    for (size_t i = 0; i < length; i++) {
        int from = (int)(i / count);
        int64_t should = kind == ALL_REDUCE || kind == REDUCE ? sum(job, i)
                         : kind == REDUCE_SCATTER             ? sum(job, ahead + i)
                         : kind == BROADCAST                  ? input(job, job->names[root], i)
                         : kind == SCATTER                    ? input(job, job->names[root], ahead + i)
                         : kind == ALL_TO_ALL ? input(job, job->names[from], ahead + i % count)
                                              : input(job, job->names[from], i % count);
        if (job->out[i] != should)
            wrong(job, NAMES[kind], i, job->out[i], should);
    }
    job->calls++;
    return GYRE_OK;
}

/* What all ranks shall do next, added up. */
static gyre_status_t vote(job_t *job, int64_t *all)
{
    int64_t mine = stopping + (int64_t)GROW * job->grows;
    return gyre_all_reduce(&mine, all, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), job->comm);
}

/* A new communicator: who is in it, and whether it works. Then says so. */
static gyre_status_t begin(job_t *job, const char *word)
{
    job->calls = 0;
    job->n = gyre_comm_size(job->comm);
    job->rank = gyre_comm_rank(job->comm);
    if (job->n > RANKS)
        exit(4);
    gyre_status_t status = gyre_all_gather(&job->name, job->names, 1, GYRE_INT64, job->comm);
    for (int i = 0; i < SOME && status == GYRE_OK; i++)
        status = call(job);
    int64_t names = 0;
    for (int r = 0; r < job->n; r++)
        names += job->names[r];
    if (status == GYRE_OK)
        printf("%s %.6f %d %lld\n", word, now(), job->n, (long long)names);
    fflush(stdout);
    return status;
}

static void replace(job_t *job, gyre_comm_t *next)
{
    gyre_comm_destroy(job->comm);
    job->comm = next;
}

/* *out: 1: this rank is not of the job any more. */
static gyre_status_t shrink(job_t *job, int *out)
{
    gyre_comm_t *next;
    if (!job->late)
        retire_buffers(job);
    gyre_status_t status = gyre_comm_shrink(job->comm, &next);
    *out = status != GYRE_OK;
    if (*out)
        return status;
    replace(job, next);
    if (job->late)
        retire_buffers(job);
    return begin(job, "GOOD");
}

static void invite(job_t *job)
{
    char address[256];
    growing = 0;
    if (gyre_comm_address(job->comm, address, sizeof address) != GYRE_OK) {
        failed(GYRE_ERR_BOOTSTRAP);
        return;
    }
    job->grows = 1;
    printf("ADDRESS %.6f %s\n", now(), address);
    fflush(stdout);
}

static gyre_status_t grow(job_t *job)
{
    gyre_comm_t *next;
    gyre_status_t status = gyre_comm_grow(job->comm, 1, &next);
    job->grows = 0;
    if (status == GYRE_ERR_TIMEOUT) { /* nobody came: nothing has changed */
        failed(status);
        return begin(job, "GOOD");
    }
    if (status != GYRE_OK)
        return status;
    replace(job, next);
    return begin(job, "GROWN");
}

/* Until all are to finish, or an error. */
static gyre_status_t work(job_t *job)
{
    for (;;) {
        if (leaving)
            exit(0);
        if (aborting) {
            aborting = 0;
            gyre_comm_abort(job->comm, "the test asked for it");
        }
        if (growing)
            invite(job);
        int64_t all;
        gyre_status_t status = vote(job, &all);
        if (status == GYRE_OK && all >= GROW)
            status = grow(job);
        else if (status == GYRE_OK && all > 0)
            return GYRE_OK;
        else if (status == GYRE_OK)
            status = call(job);
        if (status != GYRE_OK)
            return status;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int before = descriptors(NULL);
    job_t job = {.seed = strtoull(argv[1], NULL, 10), .late = argc > 2 && strcmp(argv[2], "late") == 0};
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    fresh_buffers(&job);
    const char *join = getenv("GYRE_JOIN");
    gyre_status_t status = gyre_init(NULL, &job.comm);
    if (status != GYRE_OK) {
        failed(status);
        return 1;
    }
    job.name = gyre_comm_rank(job.comm) + 1;
    if (join != NULL)
        printf("NAME %.6f %lld\n", now(), (long long)job.name);
    status = begin(&job, join != NULL ? "GROWN" : "READY");
    for (int out = 0;;) {
        if (status == GYRE_OK)
            status = work(&job);
        if (status == GYRE_OK)
            break;
        failed(status);
        if (out || gyre_status_scope(status) != GYRE_SCOPE_COMMUNICATOR)
            return 1;
        status = shrink(&job, &out);
    }
    look_at_old_buffers(&job);
    status = gyre_finalize(job.comm);
    int more = descriptors(NULL) - before;
    printf("END %.6f %d %d\n", now(), (int)status, more);
    if (more > 0)
        descriptors(stderr);
    return status == GYRE_OK ? 0 : 1;
}
