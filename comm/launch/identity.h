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

#include <gyre/comm.h>

#include "base/clock.h"

enum { COMM_RANKS_MAX = 1 << 20 };

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
    char job[64];
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

/* Closes what comm_identity_meet still holds of the launcher's channel, if anything. */
void comm_identity_leave(void);

/* The rank that gyre_init would find without a config; 0 for a singleton and where gyre_init would return an
 * error. For tools that print an error of their command line once, before the ranks know each other. */
int comm_identity_rank_hint(void);

#endif
