/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/agent_command.h: the command line that starts an agent.
 *
 * On this host the agent is simply executed. Elsewhere ssh gets options by which it asks nothing, gives up on
 * a host that does not answer and notices one that falls silent. Within a Slurm allocation the agent is a job
 * step of one task: Slurm accounts for and contains it, and no ssh between the nodes is needed. */
#ifndef TOOLS_UCX_RUN_HOSTS_AGENT_COMMAND_H
#define TOOLS_UCX_RUN_HOSTS_AGENT_COMMAND_H

#include <stdio.h>

#include "tools/ucx-run/run.h"

typedef struct {
    char **word; /* [count], NULL at the end */
    int count, failed;
    size_t room;
} run_words_t; /* all zero is empty */

void run_words_add(run_words_t *words, const char *word);
void run_words_add_format(run_words_t *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends the words of `text`, divided as the shell would do with quotes ' and " and backslashes, but without
 * expanding anything. 0: a quote is open at its end. */
int run_words_split(run_words_t *words, const char *text);
/* The words, for run_words_free; NULL if memory was exhausted on the way. */
char **run_words_take(run_words_t *words);
void run_words_free(char **words);
void run_print_words(FILE *out, char *const *words); /* quoted for the shell, and a newline */

/* "ssh", "srun" or the program of --rsh, for error texts. Static storage. */
const char *run_remote_caller(const run_options_t *options, const char *host);
/* The path of ucx-run on the other hosts. */
const char *run_remote_agent_path(const run_options_t *options);

#endif
