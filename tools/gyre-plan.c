/* tools/gyre-plan.c: answers questions about machines that are not here. See gyre-plan(1). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/gyre-plan/plan.h"

static const char help[] =
    "usage: gyre-plan schedule --collective NAME --algo NAME|all --ranks N --topology NAME|FILE [options]\n"
    "       gyre-plan pipeline --schedule NAME|all --stages P --micro-batches M [options]\n"
    "\n"
    "  schedule   runs the schedule of a collective in virtual time over a network: time, bandwidth, bytes "
    "per link,\n"
    "             the hottest link; gyre-plan schedule --help has its options\n"
    "  pipeline   proves and times a pipeline schedule: a chart, the bubble, what each rank holds; gyre-plan "
    "pipeline --help\n"
    "\n"
    "  -h, --help   this text\n"
    "  --version    the version\n";

static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "gyre-plan: cannot write the output: %s\n", strerror(errno));
    return PLAN_FAILED;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "schedule"))
        return finish(plan_schedule(argc - 1, argv + 1));
    if (!strcmp(what, "pipeline"))
        return finish(plan_pipeline(argc - 1, argv + 1));
    if (!strcmp(what, "-h") || !strcmp(what, "--help")) {
        fputs(help, stdout);
        return finish(PLAN_OK);
    }
    if (!strcmp(what, "--version")) {
        printf("gyre-plan %s\n", GYRE_VERSION);
        return finish(PLAN_OK);
    }
    if (argc < 2)
        fputs("gyre-plan: which question? There are: schedule, pipeline; see gyre-plan --help\n", stderr);
    else
        fprintf(stderr,
                "gyre-plan: does not know \"%s\"; there are: schedule, pipeline; see gyre-plan --help\n",
                what);
    return PLAN_USAGE;
}
