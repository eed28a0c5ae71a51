/* tools/gyre-train/options.c: one table of options serves flags, config file, help, log and report; options_text.c writes
 * values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "base/settings/parse.h"
#include "base/settings/size.h"
#include "base/text/shortest.h"
#include "tools/gyre-train/options.h"

static void *field(train_options_t *options, const train_row_t *row)
{
    return (char *)options + row->at;
}

static const train_row_t *find(const char *name)
{
    for (size_t i = 0; i < train_rows_count; i++) {
        const char *a = train_rows[i].name, *b = name;
        while (*a && (*a == *b || (*a == '-' && *b == '_')))
            a++, b++;
        if (!*a && !*b)
            return &train_rows[i];
    }
    return NULL;
}

static void mark(train_options_t *options, const train_row_t *row)
{
    options->given[row - train_rows] = 1;
}

static int is_given(const train_options_t *options, const train_row_t *row)
{
    return options->given[row - train_rows];
}

int train_options_given(const train_options_t *options, const char *name)
{
    const train_row_t *row = find(name);
    return row && is_given(options, row);
}

const char *train_options_nearest(const char *name)
{
    const char *nearest = NULL;
    size_t least = strlen(name) / 3 + 2; /* further away it is another word, not a slip */
    for (size_t i = 0; i < train_rows_count; i++) {
        size_t distance = base_setting_distance(name, train_rows[i].name);
        if (distance < least) {
            least = distance;
            nearest = train_rows[i].name;
        }
    }
    return nearest;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

static int parse_count(const train_row_t *row, const char *text, uint64_t *out)
{
    uint64_t value;
    if (row->kind == TRAIN_COUNT && strspn(text, "0123456789") != strlen(text))
        return 0;
    if (!base_size_parse(text, &value) || (double)value < row->low || (double)value > row->high)
        return 0;
    *out = value;
    return 1;
}

static int parse_real(const train_row_t *row, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < row->low || value > row->high)
        return 0;
    *out = value;
    return 1;
}

/* 1, or 0 with nothing changed: the value is malformed or out of range (or, for text, memory is exhausted). */
static int set(train_options_t *options, const train_row_t *row, const char *text)
{
    char *copy;
    switch (row->kind) {
    case TRAIN_TEXT:
        if (!*text || !(copy = strdup(text)))
            return 0;
        free(*(char **)field(options, row));
        *(char **)field(options, row) = copy;
        return 1;
    case TRAIN_COUNT:
    case TRAIN_BYTES:
        return parse_count(row, text, field(options, row));
    case TRAIN_REAL:
        return parse_real(row, text, field(options, row));
    case TRAIN_SWITCH:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return 0;
        *(int *)field(options, row) = *text == '1';
        return 1;
    case TRAIN_CHOICE: {
        size_t length;
        const char *word;
        for (int i = 0; (word = base_setting_word(row->argument, i, &length)); i++)
            if (strlen(text) == length && strncmp(text, word, length) == 0) {
                *(int *)field(options, row) = i;
                return 1;
            }
        return 0;
    }
    }
    return 0;
}

static void wanted(const train_row_t *row, char *text, size_t bytes)
{
    char low[BASE_SHORTEST], high[BASE_SHORTEST];
    if (row->kind == TRAIN_TEXT)
        snprintf(text, bytes, "wants a text that is not empty");
    else if (row->kind == TRAIN_SWITCH)
        snprintf(text, bytes, "wants 0 or 1");
    else if (row->kind == TRAIN_CHOICE)
        snprintf(text, bytes, "wants one of %s", row->argument);
    else
        snprintf(text, bytes, "wants a %s from %s to %s%s",
                 row->kind == TRAIN_REAL ? "number" : "whole number", base_shortest(row->low, low),
                 base_shortest(row->high, high), row->kind == TRAIN_BYTES ? " (K, M, G allowed)" : "");
}

/* ---- config file --------------------------------------------------------------------------------------------- */

static int complain(int speak, const char *where, const char *what, const char *why)
{
    if (speak)
        fprintf(stderr, "gyre-train: %s%s%s; see gyre-train --help\n", where, what, why);
    return TRAIN_USAGE;
}

/* What to say behind a name that is no option's; empty if none is near. */
static void hint(const char *name, const char *dashes, char *text, size_t bytes)
{
    const char *nearest = train_options_nearest(name);
    *text = 0;
    if (nearest)
        snprintf(text, bytes, ": the nearest is %s%s", dashes, nearest);
}

/* A number or a truth value as the text that a flag would have. 0: it is neither. */
static int number_text(const json_t *value, char *text, size_t bytes)
{
    if (json_is_integer(value))
        return snprintf(text, bytes, "%lld", (long long)json_integer_value(value)) < (int)bytes;
    if (json_is_real(value)) {
        /* 1e3 is a whole number, too */
        double x = json_real_value(value);
        char real[BASE_SHORTEST];
        if (floor(x) == x && fabs(x) < 1e15)
            return snprintf(text, bytes, "%.0f", x) < (int)bytes;
        return snprintf(text, bytes, "%s", base_shortest(x, real)) < (int)bytes;
    }
    if (json_is_boolean(value))
        return snprintf(text, bytes, "%d", json_is_true(value)) < (int)bytes;
    return 0;
}

static int read_config(train_options_t *options, int speak)
{
    json_t *object;
    const char *name;
    json_t *value;
    char text[64], why[5000], where[4200];
    int status = -1;
    if (base_json_read(options->config, &object) != GYRE_OK)
        return TRAIN_USAGE; /* it has said why */
    snprintf(where, sizeof where, "%.4000s: ", options->config);
    if (!json_is_object(object))
        status = complain(speak, where, "", "is not a JSON object of options");
    else
        json_object_foreach(object, name, value)
        {
            const train_row_t *row = find(name);
            if (!row || row->at == offsetof(train_options_t, config)) {
                int n = snprintf(why, sizeof why, ": there is no such option");
                if (!row)
                    hint(name, "", why + n, sizeof why - (size_t)n);
                status = complain(speak, where, name, why);
                break;
            }
            if (is_given(options, row)) /* by flag */
                continue;
            const char *as = json_is_string(value)                   ? json_string_value(value)
                             : number_text(value, text, sizeof text) ? text
                                                                     : NULL;
            if (!as || !set(options, row, as)) {
                why[0] = ' ';
                wanted(row, why + 1, sizeof why - 1);
                status = complain(speak, where, name, why);
                break;
            }
            mark(options, row);
        }
    json_decref(object);
    return status;
}

/* ---- flags ------------------------------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 30 }; /* where the meaning of a flag begins */

static void print_row(const train_row_t *row)
{
    char flag[128];
    const char *preset = row->preset;
    int length =
        snprintf(flag, sizeof flag, "  --%s%s%s", row->name, *row->argument ? " " : "", row->argument);
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
static int parse_flag(int argc, char **argv, int *i, train_options_t *options, int speak)
{
    char name[64], why[256];
    const char *flag = argv[*i], *equals = strchr(flag, '='), *value = equals ? equals + 1 : NULL;
    if (strncmp(flag, "--", 2) != 0 || !flag[2])
        return complain(speak, "does not know what to do with '", flag, "'");
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - flag - 2) : (int)strlen(flag + 2), flag + 2);
    const train_row_t *row = find(name);
    if (!row) {
        hint(name, "--", why, sizeof why);
        return complain(speak, "there is no option ", flag, why);
    }
    if (row->kind == TRAIN_SWITCH && !value)
        value = "1";
    if (!value && ++*i < argc)
        value = argv[*i];
    if (!value)
        return complain(speak, "--", row->name, " needs a value");
    if (!set(options, row, value)) {
        int n = snprintf(why, sizeof why, " ");
        wanted(row, why + n, sizeof why - (size_t)n - 40);
        n = (int)strlen(why);
        snprintf(why + n, sizeof why - (size_t)n, ", not '%.30s'", value);
        return complain(speak, "--", row->name, why);
    }
    mark(options, row);
    return -1;
}

/* What goes together about checkpoints. -1: all of it. */
static int check_checkpoint(const train_options_t *options, int speak)
{
    const char *const needy[] = {"resume", "checkpoint-every", "checkpoint-keep", "may-change"};
    char name[64], why[128];
    for (size_t i = 0; !options->checkpoint && i < sizeof needy / sizeof *needy; i++)
        if (train_options_given(options, needy[i]) && (i > 0 || options->resume))
            return complain(speak, "--", needy[i], " needs --checkpoint DIR");
    for (const char *list = options->may_change; list && *list;) {
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), list);
        const train_row_t *row = find(name);
        if (!row) {
            int n = snprintf(why, sizeof why, ": there is no such option");
            hint(name, "", why + n, sizeof why - (size_t)n);
            return complain(speak, "--may-change: ", name, why);
        }
        if (row->matters == TRAIN_FREE || row->matters == TRAIN_SHAPE)
            return complain(speak, "--may-change: ", name,
                            row->matters == TRAIN_SHAPE ? " is the shape of the model, which cannot change"
                                                        : " may differ anyway");
        list += length + (list[length] == ',');
    }
    return -1;
}

int train_options_parse(int argc, char **argv, train_options_t *options, int speak)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < train_rows_count; i++)
        if (train_rows[i].preset && !set(options, &train_rows[i], train_rows[i].preset))
            return complain(speak, "no memory for ", train_rows[i].name, "");
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
    if (train_recipe_apply(options) != GYRE_OK)
        return TRAIN_USAGE; /* it has said why */
    int status = check_checkpoint(options, speak);
    if (status >= 0)
        return status;
    uint64_t from = 0, to;
    if (options->trace_steps && !train_steps_range(options->trace_steps, &from, &to))
        return complain(speak, "--trace-steps ", options->trace_steps,
                        ": wants FROM:TO, such as 10:12, 64 steps at most");
    if (options->time_limit > 0.0 && !train_options_given(options, "steps"))
        options->steps = UINT64_MAX;
    if (options->trace_steps && from > options->steps) {
        char why[96];
        snprintf(why, sizeof why, ": the run ends with step %llu, so none of them is made: see --steps",
                 (unsigned long long)options->steps);
        return complain(speak, "--trace-steps ", options->trace_steps, why);
    }
    if (strcmp(options->report, "none") == 0) {
        free(options->report);
        options->report = NULL;
    }
    if (options->batch_rampup && strcmp(options->batch_rampup, "none") == 0) {
        free(options->batch_rampup);
        options->batch_rampup = NULL;
    }
    return -1;
}

void train_options_free(train_options_t *options)
{
    for (size_t i = 0; i < train_rows_count; i++)
        if (train_rows[i].kind == TRAIN_TEXT)
            free(*(char **)field(options, &train_rows[i]));
    memset(options, 0, sizeof *options);
}

/* 1 if the list NAME,NAME,... holds this row. */
static int listed(const char *list, const train_row_t *row)
{
    char name[64];
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)length, list);
            if (find(name) == row)
                return 1;
        }
        list += length + (list[length] == ',');
    }
    return 0;
}

int train_options_may_change(const train_options_t *options, const char *name)
{
    const train_row_t *row = find(name);
    if (!row || row->matters == TRAIN_SHAPE)
        return 0;
    return listed(options->may_change, row) || (row->at == offsetof(train_options_t, infill_ids) &&
                                                listed(options->may_change, find("objective")));
}

int train_options_is_shape(const char *name)
{
    const train_row_t *row = find(name);
    return row && row->matters == TRAIN_SHAPE;
}
