/* SPDX-License-Identifier: Apache-2.0 */
/* tests/hosts/rank.c: one rank of a job that something happens to; tests/hosts/failures.py and shrink.py
 * start it and watch.
 *
 *     rank [--at RANK --do WHAT] [--shrink] [--count ELEMENTS]
 *
 * Calls all_reduce again and again, checks each result, and writes one line to stdout for what an observer
 * wants to know, with the time of the clock that all processes of a machine share, CLOCK_MONOTONIC, in
 * seconds:
 *
 *     START t              gyre_init is called
 *     READY t              the first few calls are done
 *     EVENT t              this rank, RANK, now does WHAT on SIGUSR1: exit (with 0, without gyre_finalize),
 *     stuck (computes for
 *                          ever), disagree (calls with another count) or abort
 *     ERROR t STATUS text  the first operation that failed, or gyre_init
 *     SHRUNK t ranks       with --shrink: gyre_comm_shrink made a communicator of so many
 *     GOOD t ranks sum     ... and the next collective gave what it should: the sum of those ranks' first
 *     numbers
 *     ADDRESS t host:port  at SIGUSR2, of any rank: where one newcomer is to knock; all call gyre_comm_grow
 *     for it now
 *     GROWN t ranks sum    the newcomer is in, and the next collective gave what it should; the newcomer
 *     (GYRE_JOIN) says so, too
 *
 * Ends with 0 after an error that nothing is left to do about, 3 after a wrong result; at SIGTERM, which all
 * ranks must get, through gyre_finalize. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>

enum {
    READY_AFTER = 5,
    /* in element 0: some rank wants the job to grow; below it: how many want to stop */
    GROW = 1 << 20
};

static volatile sig_atomic_t told, growing, stopping;

typedef struct {
    gyre_comm_t *comm;
    int64_t *in, *out;
    size_t count;
    int64_t name;     /* this rank's first number, + 1 */
    int64_t expected; /* sum of the names of all in comm */
    int grows;        /* this rank has read that the job shall grow */
} job_t;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        told = 1;
    else if (number == SIGUSR2)
        growing = 1;
    else
        stopping = 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static gyre_status_t failed(gyre_status_t status)
{
    printf("ERROR %.6f %d %s\n", now(), (int)status, gyre_last_error());
    fflush(stdout);
    return status;
}

/* Element 0 counts the ranks that want to stop, or to grow; the others add up names. */
static gyre_status_t add(job_t *job)
{
    job->in[0] = stopping + GROW * job->grows;
    gyre_status_t status =
        gyre_all_reduce(job->in, job->out, job->count, GYRE_INT64, GYRE_OP(GYRE_SUM), job->comm);
    for (size_t i = 1; status == GYRE_OK && i < job->count; i++) {
        if (job->out[i] != job->expected) {
            printf("WRONG %.6f element %zu is %lld, not %lld\n", now(), i, (long long)job->out[i],
                   (long long)job->expected);
            exit(3);
        }
    }
    return status;
}

/* The present ranks of the communicator. */
static gyre_status_t meet(job_t *job)
{
    int n = gyre_comm_size(job->comm);
    int64_t *names = calloc((size_t)n, sizeof *names);
    if (!names)
        exit(4);
    gyre_status_t status = gyre_all_gather(&job->name, names, 1, GYRE_INT64, job->comm);
    job->expected = 0;
    for (int r = 0; r < n; r++)
        job->expected += names[r];
    free(names);
    return status;
}

/* Until a collective succeeds among the survivors, or there is nothing left to try. */
static gyre_status_t go_on(job_t *job)
{
    gyre_comm_t *next;
    gyre_status_t status = gyre_comm_shrink(job->comm, &next);
    if (status != GYRE_OK)
        return failed(status);
    gyre_comm_destroy(job->comm);
    job->comm = next;
    int n = gyre_comm_size(next);
    printf("SHRUNK %.6f %d\n", now(), n);
    status = meet(job);
    if (status == GYRE_OK)
        status = add(job);
    if (status == GYRE_OK)
        printf("GOOD %.6f %d %lld\n", now(), n, (long long)job->expected);
    fflush(stdout);
    return status;
}

/* This rank was asked to let a newcomer in: at which address? All ranks get it in the next call. */
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

static void say_grown(const job_t *job)
{
    printf("GROWN %.6f %d %lld\n", now(), gyre_comm_size(job->comm), (long long)job->expected);
    fflush(stdout);
}

/* All ranks got in the same call that one newcomer comes. */
static gyre_status_t grow(job_t *job)
{
    gyre_comm_t *next;
    gyre_status_t status = gyre_comm_grow(job->comm, 1, &next);
    job->grows = 0;
    if (status != GYRE_OK)
        return status;
    gyre_comm_destroy(job->comm);
    job->comm = next;
    status = meet(job);
    if (status == GYRE_OK)
        status = add(job);
    if (status == GYRE_OK)
        say_grown(job);
    return status;
}

static void happen(job_t *job, const char *what)
{
    printf("EVENT %.6f\n", now());
    fflush(stdout);
    if (!strcmp(what, "exit"))
        exit(0);
    while (!strcmp(what, "stuck") && !stopping)
        usleep(10000); /* as good as computing to everybody else, and leaves them the processor */
    if (!strcmp(what, "disagree"))
        job->count--;
    if (!strcmp(what, "abort"))
        gyre_comm_abort(job->comm, "rank.c was asked to abort");
}

int main(int argc, char **argv)
{
    const char *what = "";
    int at = -1, shrinks = 0;
    job_t job = {.count = 1024};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--shrink"))
            shrinks = 1;
        else if (!strcmp(argv[i], "--at") && i + 1 < argc)
            at = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--do") && i + 1 < argc)
            what = argv[++i];
        else if (!strcmp(argv[i], "--count") && i + 1 < argc)
            job.count = strtoul(argv[++i], NULL, 10);
        else
            return 2;
    }
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    signal(SIGTERM, on_signal);
    printf("START %.6f\n", now());
    fflush(stdout);
    gyre_status_t status = gyre_init(NULL, &job.comm);
    if (status != GYRE_OK) {
        failed(status);
        return 0;
    }
    int rank = gyre_comm_rank(job.comm);
    job.name = rank + 1;
    job.in = malloc(job.count * sizeof *job.in);
    job.out = malloc(job.count * sizeof *job.out);
    if (!job.in || !job.out || job.count < 3)
        return 4;
    for (size_t i = 0; i < job.count; i++)
        job.in[i] = job.name;
    status = meet(&job);
    for (int calls = 0; status == GYRE_OK; calls++) {
        if (calls == READY_AFTER) {
            printf("READY %.6f\n", now());
            fflush(stdout);
        }
        if (told && rank == at) {
            told = 0;
            happen(&job, what);
        }
        if (growing)
            invite(&job);
        status = add(&job);
        if (status == GYRE_OK && calls == 0 && getenv("GYRE_JOIN"))
            say_grown(&job);
        if (status == GYRE_OK && job.out[0] == gyre_comm_size(job.comm))
            break; /* all ranks were asked to stop, and see it in the same call */
        if (status == GYRE_OK && job.out[0] >= GROW)
            status = grow(&job);
        while (status != GYRE_OK) {
            failed(status);
            if (!shrinks)
                return 0;
            status = go_on(&job);
            if (status != GYRE_OK && status != GYRE_ERR_PEER_DEAD && status != GYRE_ERR_TIMEOUT)
                return 0;
        }
        usleep(2000); /* the ranks of this test share a few cores */
    }
    if (status != GYRE_OK) {
        failed(status);
        return 0;
    }
    status = gyre_finalize(job.comm);
    printf("END %.6f %d\n", now(), (int)status);
    return status == GYRE_OK ? 0 : 5;
}
