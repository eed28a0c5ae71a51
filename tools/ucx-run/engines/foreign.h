/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/engines/foreign.h: mpirun, mpiexec.hydra and prterun: their command lines (foreign.c) and
 * supervision (supervise.c). */
#ifndef TOOLS_UCX_RUN_ENGINES_FOREIGN_H
#define TOOLS_UCX_RUN_ENGINES_FOREIGN_H

#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/run.h"

/* Returns -1, or an exit code: the engine cannot do what the options ask for. */
int run_foreign_check(const run_options_t *options);
const char *run_foreign_program(run_engine_t engine);
/* The variables to set in the engine's environment, which the engine passes on: "K=V", for run_words_free. */
char **run_foreign_environment(const run_options_t *options, const run_job_t *job, int mask);
/* The engine's command line; only the names in `environment` count. For run_words_free. NULL: no memory. */
char **run_foreign_command(const run_options_t *options, char *const *environment);
int run_foreign_dry(const run_options_t *options, const run_job_t *job);
/* Runs the engine, restarts it as often as --max-restarts allows, and returns the exit code. */
int run_foreign(const run_options_t *options);

#endif
