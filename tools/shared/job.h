/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/job.h: tools whose processes are the ranks of a job: joining, leaving, the exit status. */
#ifndef GYRE_SHARED_JOB_H
#define GYRE_SHARED_JOB_H

#include <gyre/gyre.h>

enum { JOB_OK = 0, JOB_ERROR = 1, JOB_USAGE = 2 };

/* JOB_USAGE: what the user gave is wrong. */
static inline int job_exit(gyre_status_t status)
{
    switch (status) {
    case GYRE_OK:
        return JOB_OK;
    case GYRE_ERR_INVALID:
    case GYRE_ERR_NOT_FOUND:
    case GYRE_ERR_FORMAT:
    case GYRE_ERR_UNSUPPORTED:
        return JOB_USAGE;
    default:
        return JOB_ERROR;
    }
}

/* Joins, does `run`, and leaves. Returns the exit status. */
static inline int job_main(gyre_status_t (*run)(gyre_comm_t *comm, void *user), void *user)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_comm_t *comm;
    gyre_status_t status = gyre_init(&config, &comm);
    if (status == GYRE_OK) {
        status = run(comm, user);
        gyre_status_t left = gyre_finalize(comm);
        status = status == GYRE_OK ? left : status;
    }
    return job_exit(status);
}

#endif
