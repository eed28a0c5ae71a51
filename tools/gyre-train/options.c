/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/options.c: the command line, whose flags are the rows of one table
 * (pipeline/config/table.c). */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "pipeline/config/table.h"
#include "tools/gyre-train/options.h"
#include "tools/shared/flags.h"
#include "tools/shared/output.h"

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
    int status = train_config_read(options, object, why) == GYRE_OK ? -1 : complain(speak, where, why, "");
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
           "       gyre-train --export CHECKPOINT DIR [--save-type TYPE] [--load MODEL]\n"
           "\n"
           "Trains a GPT on the bytes of a text, or on token files, on N ranks, and writes a report. Every "
           "option "
           "is also\n"
           "a key of the JSON object that --config names. Defaults are in parentheses.\n");
    for (int group = 0; group < TRAIN_GROUPS; group++) {
        int shown = 0;
        for (size_t i = 0; i < train_rows_count; i++)
            if ((int)train_rows[i].group == group) {
                if (!shown++)
                    printf("\n%s:\n", train_group_names[group]);
                print_row(&train_rows[i]);
            }
    }
    printf("  %-*s only write the model of a checkpoint to DIR, in Hugging Face format\n", HELP_COLUMN - 3,
           "--export CHECKPOINT DIR");
    printf("\n  %-*s this text\n  %-*s the version\n", HELP_COLUMN - 3, "-h, --help", HELP_COLUMN - 3,
           "--version");
}

static int apply(train_config_t *options, const train_row_t *row, const char *value, int speak)
{
    char why[256];
    if (train_config_set(options, row, value)) {
        train_config_mark(options, row);
        return -1;
    }
    int n = snprintf(why, sizeof why, " ");
    train_row_wanted(row, why + n, sizeof why - (size_t)n - 40);
    n = (int)strlen(why);
    snprintf(why + n, sizeof why - (size_t)n, ", not '%.30s'", value);
    return complain(speak, "--", row->name, why);
}

static int refuse_unknown(const flags_walk_t *walk, int speak)
{
    char why[256];
    const char *near = flags_nearest(walk->flags, walk->typed);
    if (walk->length < 3)
        return complain(speak, "does not know what to do with '", walk->typed, "'");
    snprintf(why, sizeof why, "%s%s", near ? ": the nearest is --" : "", near ? near : "");
    return complain(speak, "there is no option ", walk->typed, why);
}

/* A word is --export's folder. -1: go on. */
static int take_word(const char *word, export_options_t *export, int speak)
{
    if (!export->checkpoint || export->folder)
        return complain(speak, "does not know what to do with '", word, "'");
    export->folder = word;
    return -1;
}

/* --export with what it takes. -1: go on. */
static int check_export(const train_config_t *options, const export_options_t *export, int speak)
{
    if (!export->folder)
        return complain(speak, "--export ", export->checkpoint,
                        ": name the folder to write, too: --export CHECKPOINT DIR");
    for (size_t i = 0; i < train_rows_count; i++)
        if (options->given[i] && strcmp(train_rows[i].name, "load") != 0 &&
            strcmp(train_rows[i].name, "save-type") != 0)
            return complain(speak, "--export and --", train_rows[i].name,
                            " exclude each other: the checkpoint says what the model is");
    return -1;
}

/* -1: go on. */
static int parse_flags(int argc, char **argv, train_config_t *options, export_options_t *export, int speak)
{
    flag_t rows[TRAIN_KEYS + 1];
    for (size_t i = 0; i < train_rows_count; i++)
        rows[i] = (flag_t){.name = train_rows[i].name,
                           .kind = train_rows[i].kind == TRAIN_SWITCH ? FLAG_SWITCH : FLAG_TEXT};
    rows[train_rows_count] = (flag_t){.name = "export", .kind = FLAG_TEXT};
    const flags_t flags = {.program = "gyre-train", .flag = rows, .count = train_rows_count + 1};
    flags_walk_t walk = {.flags = &flags, .argc = argc, .argv = argv, .at = 1};
    for (flag_at_t at; (at = flags_next(&walk)) != FLAG_AT_END;) {
        if (at == FLAG_AT_WORD) {
            const int status = take_word(argv[walk.at++], export, speak);
            if (status >= 0)
                return status;
            continue;
        }
        if (at == FLAG_AT_UNKNOWN)
            return refuse_unknown(&walk, speak);
        if (at == FLAG_AT_BARE)
            return complain(speak, "--", walk.flag->name, " needs a value");
        if (strcmp(walk.flag->name, "help") == 0) {
            if (speak)
                print_help();
            return output_end("gyre-train", TRAIN_OK, EXIT_FAILURE);
        }
        if (strcmp(walk.flag->name, "version") == 0) {
            if (speak)
                printf("gyre-train %s\n", GYRE_VERSION);
            return output_end("gyre-train", TRAIN_OK, EXIT_FAILURE);
        }
        if (walk.flag == &rows[train_rows_count]) {
            export->checkpoint = walk.value;
            continue;
        }
        int status = apply(options, &train_rows[walk.flag - rows], walk.value ? walk.value : "1", speak);
        if (status >= 0)
            return status;
    }
    return -1;
}

int train_options_parse(int argc, char **argv, train_config_t *options, export_options_t *export, int speak)
{
    char why[TRAIN_WHY];
    if (!train_config_defaults(options))
        return complain(speak, "no memory for the defaults", "", "");
    int status = parse_flags(argc, argv, options, export, speak);
    if (status >= 0)
        return status;
    if (export->checkpoint)
        return check_export(options, export, speak);
    if (options->config) {
        status = read_config(options, speak);
        if (status >= 0)
            return status;
    }
    if (train_config_complete(options, why) != GYRE_OK)
        return *why ? complain(speak, "", why, "") : TRAIN_USAGE; /* a recipe's error is logged */
    return -1;
}
