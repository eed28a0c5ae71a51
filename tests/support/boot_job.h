/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/boot_job.h: jobs of several ranks inside one test, as threads or as forked processes, over
 * loopback. */
#ifndef TESTS_BOOT_JOB_H
#define TESTS_BOOT_JOB_H

#include "comm/boot/bootstrap.h"
#include "comm/watch/watch.h"

/* In a rank's body: gives the line back that failed (0 is success). cmocka's asserts work on the main
 * thread only. */
#define RANK_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank check failed: %s (last error: %s)\n", __FILE__, __LINE__, \
                    #condition, gyre_last_error());                                                \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

typedef struct {
    int n;
    int root_fd; /* rank 0's socket, which holds the port; closed by boot_job_end */
    int port;
} boot_job_t;

/* With a root that listens. */
void boot_job_begin(boot_job_t *job, int n);
/* With a root that does not: connections are refused until another socket of the job listens on the port, and
 * no other process gets the port meanwhile. */
void boot_job_reserve(boot_job_t *job, int n);
void boot_job_end(boot_job_t *job);
/* The identity of one rank; every job has the same secret. */
void boot_job_identity(const boot_job_t *job, int rank, comm_identity_t *out);

/* A stranger's connection to a port of the loopback, whose recv gives up after 5 s; -1: failed. flags: those
 * that socket(2) takes in addition to its type; with SOCK_NONBLOCK it may still be on its way. */
int boot_job_dial(int port, int flags);
void nap(int ms);

/* What a rank does after it joined. watch: NULL unless asked for. Returns 0, or the line that failed. */
typedef int (*boot_body_t)(comm_boot_t *boot, comm_watch_t *watch, void *arg);

/* Runs all ranks as threads: join, body, barrier-free graceful leave. Returns how many failed. */
int boot_job_threads(int n, int watched, boot_body_t body, void *arg);
/* The same as forked processes; codes: [n], wait status of each (may be NULL). `seconds`: then they are
 * killed. */
int boot_job_processes(int n, int watched, boot_body_t body, void *arg, int *codes, double seconds);

#endif
