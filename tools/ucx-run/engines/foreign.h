/* tools/ucx-run/engines/foreign.h: mpirun, mpiexec.hydra and prterun: their words (foreign.c) and looking after them (supervise.c). */
#ifndef TOOLS_UCX_RUN_ENGINES_FOREIGN_H
#define TOOLS_UCX_RUN_ENGINES_FOREIGN_H

#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/run.h"

/* -1, or an exit code: the engine cannot do what is asked for. */
int run_foreign_check(const run_options_t *options);
const char *run_foreign_program(run_engine_t engine);
/* What is to be set in the engine's environment, so that it hands it on: "K=V", for run_words_free. */
char **run_foreign_environment(const run_options_t *options, const run_job_t *job, int mask);
/* Its command line; only the names in `environment` count. For run_words_free. NULL: no memory. */
char **run_foreign_command(const run_options_t *options, char *const *environment);
int run_foreign_dry(const run_options_t *options, const run_job_t *job);
/* Runs it, as often as --max-restarts allows, and returns the exit code. */
int run_foreign(const run_options_t *options);

#endif
