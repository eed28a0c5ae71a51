/* tools/gyre-plan/options.c: flags by a table, for getopt_long. */
#include "tools/gyre-plan/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/settings/size.h"
#include "tools/gyre-plan/plan.h"

enum { MOST_ROWS = 24, FIRST = 256 }; /* getopt_long's number of row i is FIRST + i */

int plan_usage_error(const char *subcommand, const char *what, const char *value)
{
    fprintf(stderr, "gyre-plan: %s %s; see gyre-plan %s --help\n", what, value, subcommand);
    return PLAN_USAGE;
}

static int read_int(const plan_option_t *row, const char *text, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < row->low || value > row->high)
        return 0;
    *out = (int)value;
    return 1;
}

static int read_bytes(const plan_option_t *row, const char *text, size_t *out)
{
    uint64_t value;
    if (!base_size_parse(text, &value) || value < (uint64_t)row->low || value > (uint64_t)1 << 50)
        return 0;
    *out = (size_t)value;
    return 1;
}

static int read_time(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0.0 && value <= 1e9))
        return 0;
    *out = value;
    return 1;
}

/* As plan_option_t.read. */
static int read_value(const plan_option_t *row, const char *text, void *options)
{
    void *to = (char *)options + row->at;
    if (row->read)
        return row->read(options, text);
    switch (row->kind) {
    case PLAN_INT:
        return read_int(row, text, to);
    case PLAN_BYTES:
        return read_bytes(row, text, to);
    case PLAN_TIME:
        return read_time(text, to);
    case PLAN_TEXT:
        *(const char **)to = text;
        return 1;
    case PLAN_SWITCH:
        *(int *)to = 1;
        return 1;
    }
    return 0;
}

static int take(const char *subcommand, const plan_option_t *row, const char *text, void *options)
{
    char what[400];
    int good = read_value(row, text, options);
    if (good > 0)
        return -1;
    snprintf(what, sizeof what, "--%s wants %s, not", row->name, row->wants);
    return good < 0 ? PLAN_USAGE : plan_usage_error(subcommand, what, text);
}

/* Which row getopt_long's answer is; `rows`: none. */
static size_t row_of(const plan_option_t *row, size_t rows, int flag)
{
    size_t i = 0;
    while (i < rows && flag != FIRST + (int)i && (!row[i].letter || flag != row[i].letter))
        i++;
    return i;
}

int plan_options_parse(int argc, char **argv, const plan_option_t *row, size_t rows, const char *help,
                       void *options)
{
    struct option known[MOST_ROWS + 2] = {{"help", no_argument, NULL, 'h'}};
    char letters[2 * MOST_ROWS + 2] = "h", *letter = letters + 1;
    for (size_t i = 0; i < rows; i++) {
        int wants = row[i].kind == PLAN_SWITCH ? no_argument : required_argument;
        known[i + 1] = (struct option){row[i].name, wants, NULL, FIRST + (int)i};
        if (row[i].letter) {
            *letter++ = row[i].letter;
            if (wants == required_argument)
                *letter++ = ':';
        }
    }
    for (int flag; (flag = getopt_long(argc, argv, letters, known, NULL)) != -1;) {
        size_t i = row_of(row, rows, flag);
        if (flag == 'h') {
            fputs(help, stdout);
            return PLAN_OK;
        }
        if (i == rows) { /* getopt has said what is wrong */
            fprintf(stderr, "gyre-plan: see gyre-plan %s --help\n", argv[0]);
            return PLAN_USAGE;
        }
        int done = take(argv[0], &row[i], optarg, options);
        if (done >= 0)
            return done;
    }
    return optind < argc ? plan_usage_error(argv[0], "does not know what to do with", argv[optind]) : -1;
}
