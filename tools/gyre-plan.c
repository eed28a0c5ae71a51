/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan.c: answers questions about machines that are not here. See gyre-plan(1). */
#include <stdio.h>
#include <string.h>

#include <gyre/version.h>

#include "tools/gyre-plan/plan.h"
#include "tools/shared/blas.h"
#include "tools/shared/output.h"

static const char help[] =
    "usage: gyre-plan schedule --collective NAME --algo NAME|all --ranks N --topology NAME|FILE [options]\n"
    "       gyre-plan pipeline --schedule NAME|all --stages P --micro-batches M [options]\n"
    "       gyre-plan memory|time [--recipe FILE] [options]\n"
    "       gyre-plan search [--recipe FILE] [--gpus N] [options]\n"
    "\n"
    "  schedule   runs the schedule of a collective in virtual time over a network: time, bandwidth, bytes "
    "per link,\n"
    "             the hottest link\n"
    "  pipeline   proves and times a pipeline schedule: a chart, the bubble, what each rank holds\n"
    "  memory     what the ranks of a training run hold, by kind, stage by stage\n"
    "  time       how long its step takes, TFLOP/s, MFU, what it sends; next to measured runs\n"
    "  search     the layouts of a model on N accelerators, the fastest first, and why others do not work\n"
    "\n"
    "  gyre-plan QUESTION --help has its options\n"
    "\n"
    "  -h, --help   this text\n"
    "  --version    the version\n";

static const struct {
    const char *name;
    int (*answer)(int argc, char **argv);
} questions[] = {{"schedule", plan_schedule},
                 {"pipeline", plan_pipeline},
                 {"memory", plan_memory_question},
                 {"time", plan_time_question},
                 {"search", plan_search_question}};
#define QUESTIONS "schedule, pipeline, memory, time, search"

static int finish(int code)
{
    return output_end("gyre-plan", code, PLAN_FAILED);
}

int main(int argc, char **argv)
{
    blas_leave_out_threads(argv);
    const char *what = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
        if (!strcmp(what, questions[i].name))
            return finish(questions[i].answer(argc - 1, argv + 1));
    if (!strcmp(what, "-h") || !strcmp(what, "--help")) {
        fputs(help, stdout);
        return finish(PLAN_OK);
    }
    if (!strcmp(what, "--version")) {
        printf("gyre-plan %s\n", GYRE_VERSION);
        return finish(PLAN_OK);
    }
    if (argc < 2)
        fputs("gyre-plan: which question? There are: " QUESTIONS "; see gyre-plan --help\n", stderr);
    else
        fprintf(stderr, "gyre-plan: does not know \"%s\"; there are: " QUESTIONS "; see gyre-plan --help\n",
                what);
    return PLAN_USAGE;
}
