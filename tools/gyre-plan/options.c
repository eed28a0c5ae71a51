/* tools/gyre-plan/options.c: what the subcommands' command lines share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/gyre-plan/plan.h"

int plan_usage_error(const char *subcommand, const char *what, const char *value)
{
    fprintf(stderr, "gyre-plan: %s %s; see gyre-plan %s --help\n", what, value, subcommand);
    return PLAN_USAGE;
}

int plan_parse_int(const char *text, long least, long most, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most)
        return 0;
    *out = (int)value;
    return 1;
}
