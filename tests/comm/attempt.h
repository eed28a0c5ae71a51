/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/attempt.h: one rank's attempt to join a job; for the tests of joining. */
#ifndef TESTS_COMM_ATTEMPT_H
#define TESTS_COMM_ATTEMPT_H

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "tests/support/boot_job.h"

#define SOON base_deadline(60.0)

/* One rank's attempt to join, on a thread of its own. */
typedef struct {
    comm_identity_t who;
    double seconds;
    gyre_status_t status;
    char error[512];
    base_time_t took;
    pthread_t thread;
} attempt_t;

static void *attempt_main(void *user)
{
    attempt_t *a = user;
    comm_boot_t *boot = NULL;
    base_time_t start = base_now();
    a->status = comm_boot_join(&a->who, base_deadline(a->seconds), &boot);
    a->took = base_now() - start;
    snprintf(a->error, sizeof(a->error), "%s", a->status == GYRE_OK ? "" : gyre_last_error());
    if (a->status == GYRE_OK) {
        char mine = (char)a->who.rank, all[64];
        a->status = comm_boot_all_gather(boot, &mine, 1, all, SOON); /* the job works */
        comm_boot_leave(boot, 1);
    }
    return NULL;
}

static void attempt_start(attempt_t *a, const boot_job_t *job, int rank, double seconds)
{
    boot_job_identity(job, rank, &a->who);
    a->seconds = seconds;
    assert_int_equal(pthread_create(&a->thread, NULL, attempt_main, a), 0);
}

static void attempt_end(attempt_t *a)
{
    pthread_join(a->thread, NULL);
}

/* Waits for ranks 0 to n - 1, all of which join. */
static void attempts_join(attempt_t *a, int n)
{
    for (int r = 0; r < n; r++) {
        attempt_end(&a[r]);
        assert_string_equal(a[r].error, "");
        assert_int_equal(a[r].status, GYRE_OK);
    }
}

#endif
