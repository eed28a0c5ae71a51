/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/identity.h: the identity of this process: its rank, the number of ranks, the address of rank 0
 * and the job's secret.
 *
 * Sources in this order; the first that matches counts (docs/launching.md has the table):
 *     the caller's config and GYRE_*      given by hand, by ucx-run
 *     PMIx                                mpirun of Open MPI, prterun, srun --mpi=pmix
 *     PMI-1's wire protocol on PMI_FD     mpiexec.hydra of MPICH and Intel MPI, srun --mpi=pmi2
 *     OMPI_COMM_WORLD_*                   mpirun where libpmix is missing
 *     SLURM_PROCID                        srun without PMI
 *     RANK, WORLD_SIZE                    torchrun
 *     JOB_COMPLETION_INDEX                Kubernetes, Indexed Job
 *     nothing                             alone: rank 0 of 1
 * torchrun comes second if TORCHELASTIC_RUN_ID shows that torchrun started this process. The reason: srun or
 * mpirun may start torchrun once per host, and torchrun leaves their variables in place. Half an identity is
 * an error that names what is missing, never a guess. */
#ifndef COMM_LAUNCH_IDENTITY_H
#define COMM_LAUNCH_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#include "base/clock.h"

enum { COMM_RANKS_MAX = 1 << 20, COMM_JOB_BYTES = 64 };

/* How root and secret become known to all ranks. */
typedef enum {
    COMM_MEET_KNOWN = 0, /* they are in the identity already */
    COMM_MEET_PMIX,      /* rank 0 makes them and publishes them through PMIx, ... */
    COMM_MEET_PMI1       /* ... or through the PMI-1 connection `pmi_fd` */
} comm_meet_t;

typedef struct {
    int rank;
    int size; /* COMM_MEET_PMIX: 0 until comm_identity_meet */
    /* "host:port"; after comm_identity_meet perhaps several, separated by commas; empty when size is 1 */
    char root[256];
    int root_fd; /* rank 0: listening socket that outlives the bootstrap, or -1 */
    unsigned char secret[32];
    int have_secret;
    char job[COMM_JOB_BYTES];
    int job_is_common; /* neither user nor launcher gave `job`: other jobs have it, too */
    /* "GYRE_*", "config", "PMIx", "PMI-1", "Open MPI", "Slurm", "torchrun", "Indexed Job", "singleton" */
    char source[32];
    comm_meet_t meet;
    int pmi_fd;
} comm_identity_t;

/* Reads config and environment; communicates with no other process. INVALID names the variable that is
 * missing, bad or contradicts another one. AUTH: there is no secret, and the ranks would meet on a network.
 * *out is set only on success. */
gyre_status_t comm_identity_find(const gyre_config_t *config, comm_identity_t *out);

/* Collective unless who->meet is KNOWN. Rank 0 listens and publishes its address and a fresh secret over the
 * launcher's private channel. The process keeps the result: a later call with the same channel returns it
 * again. BOOTSTRAP, TIMEOUT (some rank has not called), INVALID. */
gyre_status_t comm_identity_meet(comm_identity_t *who, base_time_t deadline);

/* For jobs that a program makes itself. call: its name, for errors; name: the job's, the same on all ranks,
 * or "". *out->root_fd is the caller's to close when rank 0 has joined, or has failed to. */
typedef struct {
    const char *call;
    gyre_status_t (*gather)(const void *mine, void *all, size_t bytes, void *user);
    void *user;
    base_time_t deadline; /* 0: gather is called by this thread. Else by another one, which may outlive it */
} comm_gather_t;
/* By the program's own all-gather, which is called twice, or not at all for one rank. BOOTSTRAP: it failed,
 * here or at another rank; MISMATCH: it gave something else than what the ranks passed; TIMEOUT: it has not
 * returned; INVALID. */
gyre_status_t comm_identity_gather(const comm_gather_t *by, const char *name, int rank, int size,
                                   comm_identity_t *out);
enum { COMM_ID_BYTES = 128 };
/* An id by which ranks find this process, which is rank 0. It has a secret in it. */
gyre_status_t comm_unique_id(unsigned char id[COMM_ID_BYTES]);
/* Communicates with nobody. INVALID: these are not the bytes of an id, it was used, or rank 0 is another
 * process than the one that made it. by->gather is not used. */
gyre_status_t comm_identity_by_id(const comm_gather_t *by, const unsigned char id[COMM_ID_BYTES],
                                  const char *name, int rank, int size, comm_identity_t *out);

/* The job's id as gyre-doctor --job shows it, into text: [COMM_JOB_BYTES]; after comm_identity_meet. A common
 * id (job_is_common) gets a part of a hash of the secret. */
void comm_identity_job(const comm_identity_t *who, char *text);

/* Closes what comm_identity_meet still holds of the launcher's channel, if anything. */
void comm_identity_leave(void);

/* The rank that gyre_init would find without a config; 0 for a singleton and where gyre_init would return an
 * error. For tools that print an error of their command line once, before the ranks know each other. */
int comm_identity_rank_hint(void);

#endif
