/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/options.c: the command line, whose flags are the rows of one table
 * (pipeline/config/table.c). */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "pipeline/config/table.h"
#include "tools/gyre-train/options.h"

static int complain(int speak, const char *where, const char *what, const char *why)
{
    if (speak)
        fprintf(stderr, "gyre-train: %s%s%s; see gyre-train --help\n", where, what, why);
    return TRAIN_USAGE;
}

static int read_config(train_config_t *options, int speak)
{
    json_t *object;
    char why[TRAIN_WHY], where[4200];
    if (base_json_read(options->config, &object) != GYRE_OK)
        return TRAIN_USAGE; /* it has said why */
    snprintf(where, sizeof where, "%.4000s: ", options->config);
    int status = train_config_read(options, object, why) ? -1 : complain(speak, where, why, "");
    json_decref(object);
    return status;
}

/* ---- flags --------------------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 30 }; /* where the meaning of a flag begins */

static void print_row(const train_row_t *row)
{
    char flag[128], argument[96];
    const char *preset = row->preset;
    train_row_argument(row, argument, sizeof argument);
    int length = snprintf(flag, sizeof flag, "  --%s%s%s", row->name, *argument ? " " : "", argument);
    if (length > HELP_COLUMN - 2)
        printf("%s\n%-*s", flag, HELP_COLUMN, "");
    else
        printf("%-*s", HELP_COLUMN, flag);
    printf("%s", row->help);
    if (preset && strcmp(preset, "\n") == 0)
        printf(" (a line break)");
    else if (preset && row->kind != TRAIN_SWITCH)
        printf(" (%s)", preset);
    printf("\n");
}

static void print_help(void)
{
    printf("usage: gyre-train [--data PATH] [OPTION...]\n"
           "       ucx-run -n N gyre-train [OPTION...]\n"
           "\n"
           "Trains a GPT on the bytes of a text, or on token files, on N ranks, and writes a report. Every "
           "option "
           "is also\n"
           "a key of the JSON object that --config names. Defaults stand in brackets.\n");
    for (int group = 0; group < TRAIN_GROUPS; group++) {
        int shown = 0;
        for (size_t i = 0; i < train_rows_count; i++)
            if ((int)train_rows[i].group == group) {
                if (!shown++)
                    printf("\n%s:\n", train_group_names[group]);
                print_row(&train_rows[i]);
            }
    }
    printf("\n  %-*s this text\n  %-*s the version\n", HELP_COLUMN - 3, "-h, --help", HELP_COLUMN - 3,
           "--version");
}

/* One flag at argv[*i]; moves *i over its value. -1: go on. */
static int parse_flag(int argc, char **argv, int *i, train_config_t *options, int speak)
{
    char name[64], why[256];
    const char *flag = argv[*i], *equals = strchr(flag, '='), *value = equals ? equals + 1 : NULL;
    if (strncmp(flag, "--", 2) != 0 || !flag[2])
        return complain(speak, "does not know what to do with '", flag, "'");
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - flag - 2) : (int)strlen(flag + 2), flag + 2);
    const train_row_t *row = train_config_find(name);
    if (!row) {
        train_config_hint(name, "--", why, sizeof why);
        return complain(speak, "there is no option ", flag, why);
    }
    if (row->kind == TRAIN_SWITCH && !value)
        value = "1";
    if (!value && ++*i < argc)
        value = argv[*i];
    if (!value)
        return complain(speak, "--", row->name, " needs a value");
    if (!train_config_set(options, row, value)) {
        int n = snprintf(why, sizeof why, " ");
        train_row_wanted(row, why + n, sizeof why - (size_t)n - 40);
        n = (int)strlen(why);
        snprintf(why + n, sizeof why - (size_t)n, ", not '%.30s'", value);
        return complain(speak, "--", row->name, why);
    }
    train_config_mark(options, row);
    return -1;
}

int train_options_parse(int argc, char **argv, train_config_t *options, int speak)
{
    char why[TRAIN_WHY];
    if (!train_config_defaults(options))
        return complain(speak, "no memory for the defaults", "", "");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            if (speak)
                print_help();
            return TRAIN_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            if (speak)
                printf("gyre-train %s\n", GYRE_VERSION);
            return TRAIN_OK;
        }
        int status = parse_flag(argc, argv, &i, options, speak);
        if (status >= 0)
            return status;
    }
    if (options->config) {
        int status = read_config(options, speak);
        if (status >= 0)
            return status;
    }
    if (!train_config_complete(options, why))
        return *why ? complain(speak, "", why, "") : TRAIN_USAGE; /* a recipe's error is logged */
    return -1;
}
