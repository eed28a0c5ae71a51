/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/scenario.h: what a rank of test_failing does in a job, in one file for each idea:
 *
 *   calls.c     the calls of a communicator, its memory and its buckets; shrinking and growing
 *   training.c  steps, checkpoints, models
 *   formats.c   every kind of file that is loaded
 *
 * and tests/gpu/failing/device.c: collectives on a device, in the emulator's build only. */
#ifndef TESTS_FAILING_SCENARIO_H
#define TESTS_FAILING_SCENARIO_H

#include <gyre/gyre.h>
#include <gyre/train.h>

enum { MORE = 3 /* communicators of a job */ };
enum { RANKS = 3, JOBS = 2, LARGE = 1 << 17 /* doubles: over the arenas' limit */ };

/* Where a newcomer of the job joins, or the job aside. In memory that all share. */
typedef struct {
    _Atomic int told, gone; /* that is known; a rank gave up, and nobody may wait for it */
    char address[128];
    gyre_unique_id_t aside;
} meeting_t;

/* A job as a rank sees it. The runner frees what is left in it. */
typedef struct {
    int rank, n; /* the newcomer, if there is one, has the last number */
    int hosts;   /* 1: each rank counts as one of another host */
    gyre_comm_t *world, *part, *later, *more[MORE];
    gyre_comm_t *aside; /* of another job of the same processes */
    gyre_buckets_t *buckets;
    double *window, *own, *shared, moved[2];
    int registered;
    gyre_train_t *train;
    struct device_job *device;
    meeting_t *meeting;
    const char *folder; /* the run's; what is left in it is met by the next job */
    const char *step;   /* the call that is made */
    int wrong;          /* a result was */
} job_t;

#define STEP(name, call)            \
    do {                            \
        job->step = name;           \
        gyre_status_t st_ = (call); \
        if (st_ != GYRE_OK)         \
            return st_;             \
    } while (0)

/* The calls of a job; patience: its deadlines in seconds. */
typedef gyre_status_t (*work_t)(job_t *job, double patience);

gyre_status_t calls_all(job_t *job, double patience);
gyre_status_t calls_grow(job_t *job, double patience);
gyre_status_t training_alone(job_t *job, double patience);
/* With the optimizer's state cut between the ranks by ZeRO. */
gyre_status_t training_zero_1(job_t *job, double patience);
gyre_status_t training_zero_2(job_t *job, double patience);
gyre_status_t training_zero_3(job_t *job, double patience);
gyre_status_t formats_load(job_t *job, double patience);
gyre_status_t device_direct(job_t *job, double patience) __attribute__((weak));
gyre_status_t device_staged(job_t *job, double patience) __attribute__((weak));
/* Frees what the program has on the device, when the job has ended. */
void device_end(job_t *job) __attribute__((weak));

/* Before all runs: the files of training.c and formats.c, in FOLDER/files of the runner. 0: it failed. */
int training_prepare(const char *files);
int formats_prepare(const char *files);

#endif
