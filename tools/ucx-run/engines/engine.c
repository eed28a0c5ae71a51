/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/engines/engine.c: chooses the engine that starts the ranks, and their hosts, as far as the
 * command line leaves it open.
 *
 *     hosts given, all of them this one                     fork
 *     hosts given, within a Slurm allocation                slurm
 *     hosts given                                           ssh
 *     none, within a Slurm allocation (but not in a step)   its nodes and tasks: fork if that is this host,
 *     else slurm
 *     none, as the launcher of Kubernetes' MPI Operator     ssh to the hosts of its file
 *     none                                                  fork
 *
 * Open MPI's, Hydra's and PRRTE's engines are used only when named: they end ranks and report their ends in
 * ways of their own, and ucx-run can promise less with them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "tools/ucx-run/engines/foreign.h"
#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/run.h"

static const char *const names[] = {"auto", "fork", "ssh", "slurm", "openmpi", "hydra", "prrte"};
enum { NAMES = sizeof names / sizeof names[0] };

const char *run_engine_name(run_engine_t engine)
{
    return names[engine];
}

int run_engine_parse(const char *word, run_engine_t *engine)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(word, names[i]) == 0) {
            *engine = (run_engine_t)i;
            return 1;
        }
    return 0;
}

static const char *env(const char *name)
{
    const char *text = base_env(name);
    return text ? text : "";
}

/* Within a step of several tasks ucx-run would be one of the tasks, and would start everything once per task.
 * The batch and interactive steps are numbered from the top. */
static int in_step(void)
{
    return *env("SLURM_STEP_ID") && strtoul(env("SLURM_STEP_ID"), NULL, 10) < 0xfffffff0UL;
}

/* 1 if this is a node of an allocation whose nodes wait for job steps. */
static int in_allocation(void)
{
    return *env("SLURM_JOB_ID") && *env("SLURM_JOB_NODELIST") && !in_step();
}

int run_in_path(const char *program)
{
    char path[PATH_MAX];
    if (strchr(program, '/'))
        return access(program, X_OK) == 0;
    for (const char *at = env("PATH"); *at;) {
        size_t n = strcspn(at, ":");
        int wrote = snprintf(path, sizeof path, "%.*s/%s", (int)n, at, program);
        if (wrote > 0 && (size_t)wrote < sizeof path && access(path, X_OK) == 0)
            return 1;
        at += n + (at[n] == ':');
    }
    return 0;
}

static int all_here(const run_hostlist_t *hosts)
{
    for (int i = 0; i < hosts->count; i++)
        if (!run_is_here(hosts->host[i].name))
            return 0;
    return 1;
}

static int hosts_of_slurm(run_options_t *options)
{
    char why[300];
    const char *tasks = env("SLURM_TASKS_PER_NODE");
    const char *counts = *tasks ? tasks : env("SLURM_JOB_CPUS_PER_NODE");
    if (!run_hostlist_parse_slurm(&options->hosts, env("SLURM_JOB_NODELIST"), *counts ? counts : NULL, why,
                                  sizeof why))
        return run_usage("the Slurm allocation: %s", why);
    return -1;
}

/* The MPI Operator starts its launcher with a file of hosts for Open MPI's or Hydra's mpirun. */
static const char *hostfile_of_operator(void)
{
    if (strcmp(env("K_MPI_JOB_ROLE"), "launcher") != 0)
        return "";
    return *env("OMPI_MCA_orte_default_hostfile") ? env("OMPI_MCA_orte_default_hostfile")
                                                  : env("HYDRA_HOST_FILE");
}

static int choose_hosts(run_options_t *options)
{
    int any = options->engine == RUN_ENGINE_AUTO, rc = -1;
    if (options->hosts_given)
        return -1;
    if ((any || options->engine == RUN_ENGINE_SLURM) && atoi(env("SLURM_HET_SIZE")) > 1 && !in_step())
        return run_usage(
            "a Slurm job of several components (SLURM_HET_SIZE=%s): say which of its hosts with -H "
            "or --hostfile (here alone: -H localhost), or start the ranks with srun --mpi=pmix",
            env("SLURM_HET_SIZE"));
    if ((any || options->engine == RUN_ENGINE_SLURM) && in_allocation())
        return hosts_of_slurm(options);
    if (options->engine == RUN_ENGINE_SLURM)
        return run_usage(
            "--launcher slurm: there is no Slurm allocation here; run it within salloc or sbatch");
    if ((any || options->engine == RUN_ENGINE_SSH) && *hostfile_of_operator()) {
        rc = run_options_hostfile(options, hostfile_of_operator());
        if (rc < 0 && !options->launcher_args) {
            const char *ompi = env("OMPI_MCA_plm_rsh_args"), *hydra = env("HYDRA_LAUNCH_EXTRA_ARGS");
            options->launcher_args = *ompi ? ompi : *hydra ? hydra : NULL;
        }
    }
    return rc;
}

static int choose_ranks(run_options_t *options)
{
    run_hostlist_t *hosts = &options->hosts;
    char why[100];
    if (hosts->count == 0 && !run_is_foreign(options->engine) &&
        (options->per_node || options->engine != RUN_ENGINE_FORK) &&
        !run_hostlist_add(hosts, "localhost", strlen("localhost"),
                          options->per_node      ? options->per_node
                          : options->ranks_given ? options->ranks
                                                 : 1,
                          why, sizeof why))
        return run_usage("%s", why);
    if (options->per_node && !run_hostlist_set_slots(hosts, options->per_node))
        return run_usage("%d ranks on each of %d hosts are more than %d", options->per_node, hosts->count,
                         RUN_MAX_RANKS);
    if (!options->ranks_given)
        options->ranks = hosts->slots ? hosts->slots : 1;
    if (options->per_node && hosts->count > 0 && options->ranks > hosts->slots)
        return run_usage("%d ranks are more than %d on each of %d host%s", options->ranks, options->per_node,
                         hosts->count, hosts->count == 1 ? "" : "s");
    return -1;
}

int run_engine_choose(run_options_t *options)
{
    int rc = choose_hosts(options);
    if (rc >= 0)
        return rc;
    if (options->engine == RUN_ENGINE_AUTO)
        options->engine = all_here(&options->hosts) ? RUN_ENGINE_FORK
                          : in_allocation()         ? RUN_ENGINE_SLURM
                                                    : RUN_ENGINE_SSH;
    if (!options->rsh && *base_setting_string(SET_RSH))
        options->rsh = base_setting_string(SET_RSH);
    if (options->engine == RUN_ENGINE_FORK && !all_here(&options->hosts)) {
        int i = 0;
        while (run_is_here(options->hosts.host[i].name))
            i++;
        return run_usage(
            "--launcher fork: host '%s' is not this machine (%s), and fork starts ranks nowhere else",
            options->hosts.host[i].name, run_hostname());
    }
    if (options->rsh && !*options->rsh)
        options->rsh = NULL;
    rc = choose_ranks(options);
    return rc < 0 && run_is_foreign(options->engine) ? run_foreign_check(options) : rc;
}
