/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/commands.c: the subcommands, one line each: what gyre-perf measures in addition to one
 * collective over a range of sizes. */
#include "tools/gyre-perf/perf.h"

#include <string.h>

int perf_init_main(int argc, char **argv, int typed_count, char **typed);
int perf_latency_main(int argc, char **argv, int typed_count, char **typed);
int perf_messages_main(int argc, char **argv, int typed_count, char **typed);
int perf_bucket_main(int argc, char **argv, int typed_count, char **typed);
int perf_tune_main(int argc, char **argv, int typed_count, char **typed);
int perf_overlap_main(int argc, char **argv, int typed_count, char **typed);
int perf_recover_main(int argc, char **argv, int typed_count, char **typed);

const perf_command_t perf_commands[] = {
    {"init", "time to the first collective, connections and memory per rank; mock ranks", perf_init_main},
    {"latency", "every call timed singly: histogram, tail, jitter", perf_latency_main},
    {"messages", "pairs of ranks: latency, bandwidth, both directions, rate", perf_messages_main},
    {"bucket", "a model's tensors through buckets: against one all_reduce, one each, and computing",
     perf_bucket_main},
    {"overlap", "how much of a non-blocking collective is hidden by computing", perf_overlap_main},
    {"recover", "a rank dies: time until the others know, are a job again, have a result", perf_recover_main},
    {"--tune", "measures the machine and the algorithms again; --tune=FILE", perf_tune_main},
};
const int perf_command_count = sizeof perf_commands / sizeof *perf_commands;

const perf_command_t *perf_command_find(const char *name)
{
    for (int i = 0; i < perf_command_count; i++) {
        const size_t length = strlen(perf_commands[i].name);
        const int flag = perf_commands[i].name[0] == '-'; /* may have a value: --tune=FILE */
        if (strncmp(perf_commands[i].name, name, length) == 0 &&
            (name[length] == '\0' || (flag && name[length] == '=')))
            return &perf_commands[i];
    }
    return NULL;
}
