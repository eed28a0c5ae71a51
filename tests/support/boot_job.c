/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/boot_job.c: see boot_job.h. */
#include "tests/support/boot_job.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define JOB_SECONDS 20.0

typedef struct {
    const boot_job_t *job;
    int rank, watched;
    boot_body_t body;
    void *arg;
    int result;
} rank_t;

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

void boot_job_reserve(boot_job_t *job, int n)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof(at);
    int one = 1;
    job->n = n;
    job->root_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->root_fd < 0 || setsockopt(job->root_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(job->root_fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        getsockname(job->root_fd, (struct sockaddr *)&at, &len) != 0) {
        perror("boot_job_reserve");
        exit(99);
    }
    job->port = ntohs(at.sin_port);
}

void boot_job_begin(boot_job_t *job, int n)
{
    boot_job_reserve(job, n);
    if (listen(job->root_fd, 4096) != 0) {
        perror("boot_job_begin");
        exit(99);
    }
}

void boot_job_end(boot_job_t *job)
{
    close(job->root_fd);
}

int boot_job_dial(int port, int flags)
{
    struct sockaddr_in at = loopback(port);
    struct timeval patience = {.tv_sec = 5, .tv_usec = 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ||
        ((flags & SOCK_NONBLOCK) && errno == EINPROGRESS))
        return fd;
    close(fd);
    return -1;
}

void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000L}, NULL);
}

void boot_job_identity(const boot_job_t *job, int rank, comm_identity_t *out)
{
    memset(out, 0, sizeof(*out));
    out->rank = rank;
    out->size = job->n;
    out->root_fd = rank == 0 ? job->root_fd : -1;
    out->have_secret = 1;
    memset(out->secret, 0x5a, sizeof(out->secret));
    snprintf(out->root, sizeof(out->root), "127.0.0.1:%d", job->port);
    snprintf(out->job, sizeof(out->job), "test");
}

static void *rank_main(void *user)
{
    rank_t *rank = user;
    comm_identity_t who;
    comm_boot_t *boot = NULL;
    comm_watch_t *watch = NULL;
    boot_job_identity(rank->job, rank->rank, &who);
    gyre_status_t st = comm_boot_join(&who, base_deadline(JOB_SECONDS), &boot);
    if (st == GYRE_OK && rank->watched)
        st = comm_watch_start(boot, &watch);
    if (st != GYRE_OK) {
        fprintf(stderr, "rank %d: %s\n", rank->rank, gyre_last_error());
        rank->result = 1;
    } else {
        rank->result = rank->body(boot, watch, rank->arg);
    }
    comm_watch_stop(watch);
    comm_boot_leave(boot, 1);
    return NULL;
}

int boot_job_threads(int n, int watched, boot_body_t body, void *arg)
{
    boot_job_t job;
    rank_t *ranks = calloc((size_t)n, sizeof(*ranks));
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    int failed = 0;
    boot_job_begin(&job, n);
    for (int r = 0; r < n; r++) {
        ranks[r] = (rank_t){&job, r, watched, body, arg, -1};
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0)
            exit(99);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
        failed += ranks[r].result != 0;
    }
    boot_job_end(&job);
    free(ranks);
    free(threads);
    return failed;
}

int boot_job_processes(int n, int watched, boot_body_t body, void *arg, int *codes, double seconds)
{
    boot_job_t job;
    pid_t *pids = calloc((size_t)n, sizeof(*pids));
    base_time_t deadline = base_deadline(seconds);
    int failed = 0;
    boot_job_begin(&job, n);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            rank_t rank = {&job, r, watched, body, arg, -1};
            if (r > 0)
                close(job.root_fd);
            base_log_set_rank(r);
            rank_main(&rank);
            fflush(NULL);
            _exit(rank.result == 0 ? 0 : 1);
        }
    }
    for (int r = 0; r < n; r++) {
        int status = 0;
        pid_t got;
        while ((got = waitpid(pids[r], &status, WNOHANG)) == 0 && base_poll_ms(deadline) != 0)
            nanosleep(&(struct timespec){0, 2000000}, NULL);
        if (got == 0) {
            fprintf(stderr, "rank %d ran past the deadline\n", r);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], &status, 0);
        }
        if (WIFSIGNALED(status) && codes == NULL)
            fprintf(stderr, "rank %d: %s\n", r, strsignal(WTERMSIG(status)));
        failed += status != 0;
        if (codes != NULL)
            codes[r] = status;
    }
    boot_job_end(&job);
    free(pids);
    return failed;
}
