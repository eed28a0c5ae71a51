/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/environment.c: identities that launchers write into variables and nothing else. Such a launcher
 * has no channel that could carry a secret. A secret must therefore be given (GYRE_SECRET), unless the ranks
 * meet on loopback. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "comm/launch/internal.h"
#include "comm/launch/nodelist.h"

/* Ports that the rendezvous may get from a job's number: below the kernel's ephemeral ones (32768 and up),
 * above most services. */
enum { PORT_LOW = 20000, PORT_HIGH = 31999 };

/* All ranks compute the same port from a number of the job; neighbouring numbers get different ones. */
static gyre_status_t port_from(uint64_t number, int *port)
{
    int low, high;
    gyre_status_t st = boot_port_range(&low, &high);
    if (st != GYRE_OK)
        return st;
    if (low == 0) {
        low = PORT_LOW;
        high = PORT_HIGH;
    }
    *port = low + (int)(number % (uint64_t)(high - low + 1));
    return GYRE_OK;
}

static uint64_t number_from(const char *text)
{
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static const char *first_of(const char *a, const char *b, const char *c)
{
    return identity_has(a) ? a : identity_has(b) ? b : c;
}

/* ---- Open MPI without PMIx: rank and size are known; rank 0's host is not, unless it is this one ------- */

gyre_status_t identity_from_ompi(comm_identity_t *out)
{
    int local = 0, port = 0;
    gyre_status_t st =
        identity_number("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", COMM_RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = identity_number("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", COMM_RANKS_MAX, &out->size);
    if (st == GYRE_OK)
        st = identity_check(out, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (st != GYRE_OK)
        return st;
    const char *name = base_env("PMIX_NAMESPACE");
    if (name == NULL)
        name = base_env("OMPI_MCA_ess_base_jobid");
    identity_job(out, name != NULL ? name : "openmpi", name == NULL);
    if (out->size == 1) {
        identity_alone(out, "Open MPI");
        return GYRE_OK;
    }
    snprintf(out->source, sizeof(out->source), "Open MPI");
    if (out->root[0] != '\0')
        return identity_secret(out, "");
    if (identity_has("OMPI_COMM_WORLD_LOCAL_SIZE"))
        st = identity_number("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", COMM_RANKS_MAX, &local);
    if (st == GYRE_OK && local != out->size)
        return gyre_fail(GYRE_ERR_INVALID,
                         "OMPI_COMM_WORLD_RANK gives the rank, but without libpmix.so.2 the address of rank "
                         "0 on other hosts is unknown: install it on all hosts (Debian: libpmix2), or pass "
                         "mpirun -x GYRE_ROOT=host:port "
                         "-x "
                         "GYRE_SECRET");
    if (st == GYRE_OK)
        st = port_from(number_from(out->job), &port);
    if (st == GYRE_OK)
        st = identity_root(out, "127.0.0.1", port, "OMPI_COMM_WORLD_LOCAL_SIZE");
    return st == GYRE_OK ? identity_secret(out, "") : st;
}

/* ---- srun without PMI ---- */

/* A batch script and an interactive shell carry SLURM_PROCID=0, too, and are no tasks: they have no step,
 * or a reserved one. */
static int is_step(void)
{
    const char *text = base_env(identity_has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
    return text != NULL && *text != '\0' && strtoull(text, NULL, 10) < 0xfffffff0u;
}

int identity_is_slurm(void)
{
    /* Inside an allocation the ranks of mpirun and of Hydra carry the SLURM_PROCID of the daemon that
     * started them. */
    const char *space = base_env("PMIX_NAMESPACE");
    int foreign = identity_has("PMI_RANK") || identity_has("OMPI_COMM_WORLD_RANK") ||
                  (identity_has("PMIX_RANK") && (space == NULL || strncmp(space, "slurm.pmix.", 11) != 0));
    return identity_has("SLURM_PROCID") && !foreign && is_step();
}

/* Rank 0's host and a port that no other step of this cluster is likely to use at the same time. */
static gyre_status_t slurm_root(comm_identity_t *out)
{
    static const char elsewhere[] =
        "rank 0 is not on the first host of %s (%s=%s), where the others will look for it: use srun "
        "--mpi=pmix or --mpi=pmi2, or give GYRE_ROOT=host:port";
    int64_t job = 0, step = 0;
    int port = 0, nodes = 0, node = 0;
    char host[256];
    const char *jobs = first_of("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_ID");
    const char *steps = first_of("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_ID");
    const char *lists = first_of("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST");
    const char *counts = first_of("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES");
    gyre_status_t st = identity_large(jobs, "SLURM_PROCID", UINT32_MAX, &job);
    if (st == GYRE_OK)
        st = identity_large(steps, "SLURM_PROCID", UINT32_MAX, &step);
    if (st == GYRE_OK)
        st = identity_number(counts, "SLURM_PROCID", INT32_MAX, &nodes);
    if (st == GYRE_OK && out->rank == 0 && identity_has("SLURM_NODEID"))
        st = identity_number("SLURM_NODEID", "SLURM_PROCID", INT32_MAX, &node);
    if (st != GYRE_OK)
        return st;
    if (node != 0)
        return gyre_fail(GYRE_ERR_INVALID, elsewhere, lists, "SLURM_NODEID", base_env("SLURM_NODEID"));
    char text[48];
    snprintf(text, sizeof(text), "slurm-%lld.%lld", (long long)job, (long long)step);
    identity_job(out, text, 0);
    st = port_from((uint64_t)job * 61 + (uint64_t)step, &port);
    if (st != GYRE_OK)
        return st;
    if (nodes == 1)
        return identity_root(out, "127.0.0.1", port, counts);
    const char *list = base_env(lists);
    if (list == NULL || *list == '\0')
        return gyre_fail(GYRE_ERR_INVALID, "SLURM_NODELIST is not set although SLURM_PROCID is");
    if (!comm_nodelist_first(list, strlen(list), host, sizeof(host)))
        return gyre_fail(GYRE_ERR_INVALID, "%s=%.200s is not a list of hosts as Slurm writes it", lists,
                         list);
    /* The hosts of a step over several components of a job are sorted by their names. */
    if (out->rank == 0 && identity_has("SLURMD_NODENAME") && strcmp(base_env("SLURMD_NODENAME"), host) != 0)
        return gyre_fail(GYRE_ERR_INVALID, elsewhere, lists, "SLURMD_NODENAME", base_env("SLURMD_NODENAME"));
    return identity_root(out, host, port, lists);
}

gyre_status_t identity_from_slurm(comm_identity_t *out)
{
    const char *sizes = first_of("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS");
    if (!identity_has(sizes))
        sizes = "SLURM_NTASKS";
    gyre_status_t st = identity_number("SLURM_PROCID", sizes, COMM_RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = identity_number(sizes, "SLURM_PROCID", COMM_RANKS_MAX, &out->size);
    if (st == GYRE_OK)
        st = identity_check(out, "SLURM_PROCID", sizes);
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) {
        identity_alone(out, "Slurm");
        return GYRE_OK;
    }
    snprintf(out->source, sizeof(out->source), "Slurm");
    if (out->root[0] == '\0')
        st = slurm_root(out);
    else
        identity_job(out, "slurm", 1);
    return st == GYRE_OK
               ? identity_secret(
                     out, "; srun --mpi=pmix and --mpi=pmi2 need none: they have a private channel for one")
               : st;
}

/* ---- torchrun: its own store holds MASTER_PORT, so our rendezvous is one port above ---- */

gyre_status_t identity_from_torchrun(comm_identity_t *out)
{
    int port = 0, local = 0;
    gyre_status_t st = identity_number("RANK", "WORLD_SIZE", COMM_RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = identity_number("WORLD_SIZE", "RANK", COMM_RANKS_MAX, &out->size);
    if (st == GYRE_OK)
        st = identity_check(out, "RANK", "WORLD_SIZE");
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) {
        identity_alone(out, "torchrun");
        return GYRE_OK;
    }
    snprintf(out->source, sizeof(out->source), "torchrun");
    const int has_run = identity_has("TORCHELASTIC_RUN_ID");
    const char *run = has_run ? base_env("TORCHELASTIC_RUN_ID") : "torchrun";
    identity_job(out, run, !has_run || strcmp(run, "none") == 0); /* "none": torchrun without --rdzv-id */
    if (out->root[0] == '\0') {
        if (!identity_has("MASTER_ADDR"))
            return gyre_fail(GYRE_ERR_INVALID, "MASTER_ADDR is not set although RANK and WORLD_SIZE are");
        st = identity_number("MASTER_PORT", "MASTER_ADDR", 65534, &port);
        if (st == GYRE_OK && port < 1)
            return gyre_fail(GYRE_ERR_INVALID, "MASTER_PORT=%d is not in 1..65534", port);
        if (st == GYRE_OK && identity_has("LOCAL_WORLD_SIZE"))
            st = identity_number("LOCAL_WORLD_SIZE", "WORLD_SIZE", COMM_RANKS_MAX, &local);
        if (st == GYRE_OK)
            st = identity_root(out, local == out->size ? "127.0.0.1" : base_env("MASTER_ADDR"), port + 1,
                               "MASTER_ADDR");
    }
    return st == GYRE_OK ? identity_secret(out, "") : st;
}

/* ---- a pod of an Indexed Job: the size and rank 0's name come from the manifest ---- */

gyre_status_t identity_from_index(comm_identity_t *out)
{
    static const char *const none =
        "JOB_COMPLETION_INDEX says that this is a pod of an Indexed Job, but %s is not set: the manifest "
        "gives %s; pods "
        "that do not belong together get GYRE_RANK=0 and GYRE_SIZE=1 (docs/launching.md)";
    if (base_setting_is_default(SET_SIZE))
        return gyre_fail(GYRE_ERR_INVALID, none, "GYRE_SIZE", "the number of completions");
    out->size = (int)base_setting_int(SET_SIZE);
    gyre_status_t st = identity_number("JOB_COMPLETION_INDEX", "GYRE_SIZE", COMM_RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = identity_check(out, "JOB_COMPLETION_INDEX", "GYRE_SIZE");
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) {
        identity_alone(out, "Indexed Job");
        return GYRE_OK;
    }
    snprintf(out->source, sizeof(out->source), "Indexed Job");
    identity_job(out, "indexed", 1);
    if (out->root[0] == '\0')
        return gyre_fail(GYRE_ERR_INVALID, none, "GYRE_ROOT",
                         "the DNS name of the pod with index 0 and a port");
    return identity_secret(out, "; in a pod it comes from a Secret");
}
