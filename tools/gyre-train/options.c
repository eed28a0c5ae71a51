/* tools/gyre-train/options.c: one table of options serves flags, config file, help, log and report. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tools/gyre-train/train.h"

typedef enum { TEXT, COUNT, BYTES, REAL, SWITCH } kind_t;

/* To the bits of a run that goes on: not; by its value, which --may-change permits to differ; by what it names, ditto; by
 * its value, always. */
typedef enum { FREE, CURVE, CONTENT, SHAPE } matters_t;

typedef struct {
    const char *name;
    kind_t kind;
    size_t at;          /* in train_options_t */
    const char *preset; /* default, as text; NULL: none */
    double low, high;   /* of COUNT, BYTES and REAL */
    const char *argument, *help;
    matters_t matters;
} row_t;

#define AT(field) offsetof(train_options_t, field)
static const row_t rows[] = {
    {"data", TEXT, AT(data), "/usr/share/common-licenses", 0, 0, "FILE|DIR", "text to train on", CONTENT},
    {"layers", COUNT, AT(layers), "2", 1, 4096, "N", "transformer layers", SHAPE},
    {"hidden", COUNT, AT(hidden), "128", 1, 65536, "N", "channels; a multiple of heads", SHAPE},
    {"heads", COUNT, AT(heads), "4", 1, 4096, "N", "attention heads", SHAPE},
    {"seq", COUNT, AT(seq), "128", 1, 65536, "N", "tokens (bytes) per sequence", SHAPE},
    {"batch", COUNT, AT(batch), "8", 1, 1048576, "N", "sequences per step, over all ranks", CURVE},
    {"accum", COUNT, AT(accum), "1", 1, 1048576, "N", "micro-batches that a rank's share is cut into", FREE},
    {"steps", COUNT, AT(steps), "1500", 0, 1e12, "N", "updates; 0: only evaluate and sample", CURVE},
    {"time-limit", REAL, AT(time_limit), "0", 0, 1e9, "S",
     "stop after about S seconds, then also without --steps; 0: never", FREE},
    {"lr", REAL, AT(lr), "0.003", 1e-12, 100, "X", "learning rate behind warm-up", CURVE},
    {"min-lr", REAL, AT(min_lr), "0.1", 0, 1, "X", "learning rate at the end, as a part of lr", CURVE},
    {"warmup", COUNT, AT(warmup), "40", 0, 1e12, "N", "steps of warm-up", CURVE},
    {"weight-decay", REAL, AT(weight_decay), "0.1", 0, 100, "X", "decoupled, on matrices", CURVE},
    {"beta1", REAL, AT(beta1), "0.9", 0, 0.999999, "X", "AdamW's first moment", CURVE},
    {"beta2", REAL, AT(beta2), "0.99", 0, 0.999999999, "X", "AdamW's second moment", CURVE},
    {"clip", REAL, AT(clip), "1", 0, 1e12, "X", "largest gradient norm; 0: no clipping", CURVE},
    {"seed", COUNT, AT(seed), "1", 0, 9e15, "N", "of weights, batches and sample", CURVE},
    {"bucket-bytes", BYTES, AT(bucket_bytes), "512K", 0, 1e15, "N",
     "of a gradient bucket (K M G); 0: Gyre's default", FREE},
    {"progress-thread", SWITCH, AT(progress_thread), "0", 0, 1, "",
     "a thread drives communication beside backward", FREE},
    {"eval-every", COUNT, AT(eval_every), "100", 0, 1e12, "N",
     "steps between validations; 0: at the end only", FREE},
    {"eval-sequences", COUNT, AT(eval_sequences), "256", 1, 1e9, "N",
     "at most this many, spread over the last tenth", FREE},
    {"sample-tokens", COUNT, AT(sample_tokens), "400", 0, 1e7, "N", "of text to generate at the end", FREE},
    {"temperature", REAL, AT(temperature), "0.7", 0, 100, "X", "of the sample; 0: the likeliest always",
     FREE},
    {"top-k", COUNT, AT(top_k), "0", 0, 1e6, "N", "sample from the N likeliest only; 0: from all", FREE},
    {"prompt", TEXT, AT(prompt), "\n", 0, 0, "TEXT", "that the sample goes on from", FREE},
    {"log", TEXT, AT(log), NULL, 0, 0, "FILE", "JSON lines, one per step", FREE},
    {"report", TEXT, AT(report), "gyre-train.html", 0, 0, "FILE", "HTML page about the run; none: no page",
     FREE},
    {"save", TEXT, AT(save), NULL, 0, 0, "FILE", "write the weights (safetensors, GPT-2's names)", FREE},
    {"load", TEXT, AT(load), NULL, 0, 0, "FILE", "begin with these weights, and their shape", FREE},
    {"checkpoint", TEXT, AT(checkpoint), NULL, 0, 0, "DIR", "keep checkpoints of the run in this folder",
     FREE},
    {"checkpoint-every", COUNT, AT(checkpoint_every), "100", 0, 1e12, "N",
     "steps between checkpoints; 0: at the end only", FREE},
    {"checkpoint-keep", COUNT, AT(checkpoint_keep), "2", 1, 1000, "N", "the newest that stay", FREE},
    {"resume", SWITCH, AT(resume), "0", 0, 1, "",
     "go on from the newest good checkpoint in DIR, if there is one", FREE},
    {"may-change", TEXT, AT(may_change), NULL, 0, 0, "NAME,...",
     "options that may differ from those of the checkpoint", FREE},
    {"config", TEXT, AT(config), NULL, 0, 0, "FILE", "JSON object of these names; flags win", FREE},
};
#define ROWS (sizeof rows / sizeof rows[0])
_Static_assert(ROWS <= 64, "`given` has one bit per row");

static void *field(train_options_t *options, const row_t *row)
{
    return (char *)options + row->at;
}

static const row_t *find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++) {
        const char *a = rows[i].name, *b = name;
        while (*a && (*a == *b || (*a == '-' && *b == '_')))
            a++, b++;
        if (!*a && !*b)
            return &rows[i];
    }
    return NULL;
}

static void mark(train_options_t *options, const row_t *row)
{
    options->given |= (uint64_t)1 << (row - rows);
}

static int is_given(const train_options_t *options, const row_t *row)
{
    return options->given >> (row - rows) & 1;
}

int train_options_given(const train_options_t *options, const char *name)
{
    const row_t *row = find(name);
    return row && is_given(options, row);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

static int parse_count(const row_t *row, const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || strchr(text, '-') || errno)
        return 0;
    if (row->kind == BYTES && *end && !end[1]) {
        const char *units = "KMG", *unit = strchr(units, *end);
        if (!unit)
            return 0;
        int shift = 10 * (int)(unit - units + 1);
        if (value > UINT64_MAX >> shift)
            return 0;
        value <<= shift;
        end++;
    }
    if (*end || (double)value < row->low || (double)value > row->high)
        return 0;
    *out = value;
    return 1;
}

static int parse_real(const row_t *row, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < row->low || value > row->high)
        return 0;
    *out = value;
    return 1;
}

/* 1, or 0 with nothing changed: the value is malformed or out of range (or, for text, memory is exhausted). */
static int set(train_options_t *options, const row_t *row, const char *text)
{
    char *copy;
    switch (row->kind) {
    case TEXT:
        if (!*text || !(copy = strdup(text)))
            return 0;
        free(*(char **)field(options, row));
        *(char **)field(options, row) = copy;
        return 1;
    case COUNT:
    case BYTES:
        return parse_count(row, text, field(options, row));
    case REAL:
        return parse_real(row, text, field(options, row));
    case SWITCH:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return 0;
        *(int *)field(options, row) = *text == '1';
        return 1;
    }
    return 0;
}

static void wanted(const row_t *row, char *text, size_t bytes)
{
    if (row->kind == TEXT)
        snprintf(text, bytes, "wants a text that is not empty");
    else if (row->kind == SWITCH)
        snprintf(text, bytes, "wants 0 or 1");
    else
        snprintf(text, bytes, "wants a %s from %.10g to %.10g%s",
                 row->kind == REAL ? "number" : "whole number", row->low, row->high,
                 row->kind == BYTES ? " (K, M, G allowed)" : "");
}

/* ---- config file --------------------------------------------------------------------------------------------- */

static int complain(int speak, const char *where, const char *what, const char *why)
{
    if (speak)
        fprintf(stderr, "gyre-train: %s%s%s; see gyre-train --help\n", where, what, why);
    return TRAIN_USAGE;
}

/* A JSON value as the text that a flag would have. 0: a list, an object or null. */
static int as_text(const json_t *value, char *text, size_t bytes)
{
    if (json_is_string(value))
        return snprintf(text, bytes, "%s", json_string_value(value)) < (int)bytes;
    if (json_is_integer(value))
        return snprintf(text, bytes, "%lld", (long long)json_integer_value(value)) < (int)bytes;
    if (json_is_real(value)) {
        /* 1e3 is a whole number, too */
        double x = json_real_value(value);
        return snprintf(text, bytes, floor(x) == x && fabs(x) < 1e15 ? "%.0f" : "%.17g", x) < (int)bytes;
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
    char text[4096], why[5000], where[4200];
    int status = -1;
    if (base_json_read(options->config, &object) != GYRE_OK)
        return TRAIN_USAGE; /* it has said why */
    snprintf(where, sizeof where, "%.4000s: ", options->config);
    if (!json_is_object(object))
        status = complain(speak, where, "", "is not a JSON object of options");
    else
        json_object_foreach(object, name, value)
        {
            const row_t *row = find(name);
            if (!row || row->at == AT(config)) {
                status = complain(speak, where, name, ": there is no such option");
                break;
            }
            if (is_given(options, row)) /* by flag */
                continue;
            if (!as_text(value, text, sizeof text) || !set(options, row, text)) {
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

static void print_help(void)
{
    printf("usage: gyre-train [--data FILE|DIR] [OPTION...]\n"
           "       ucx-run -n N gyre-train [OPTION...]\n"
           "\n"
           "Trains a GPT on the bytes of a text, on N ranks, and writes a report. Every option is also a key "
           "of the\n"
           "JSON object that --config names.\n\n");
    for (size_t i = 0; i < ROWS; i++) {
        char flag[48];
        const char *preset = rows[i].preset;
        snprintf(flag, sizeof flag, "--%s%s%s", rows[i].name, *rows[i].argument ? " " : "", rows[i].argument);
        printf("  %-22s %s", flag, rows[i].help);
        if (preset && strcmp(preset, "\n") == 0)
            printf(" (a line break)");
        else if (preset && rows[i].kind != SWITCH)
            printf(" (%s)", preset);
        printf("\n");
    }
    printf("  %-22s this text\n  %-22s the version\n", "-h, --help", "--version");
}

/* One flag at argv[*i]; moves *i over its value. -1: go on. */
static int parse_flag(int argc, char **argv, int *i, train_options_t *options, int speak)
{
    char name[64], why[256];
    const char *flag = argv[*i], *equals = strchr(flag, '='), *value = equals ? equals + 1 : NULL;
    if (strncmp(flag, "--", 2) != 0 || !flag[2])
        return complain(speak, "does not know what to do with '", flag, "'");
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - flag - 2) : (int)strlen(flag + 2), flag + 2);
    const row_t *row = find(name);
    if (!row)
        return complain(speak, "there is no option ", flag, "");
    if (row->kind == SWITCH && !value)
        value = "1";
    if (!value && ++*i < argc)
        value = argv[*i];
    if (!value)
        return complain(speak, "--", row->name, " wants a value behind it");
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
    char name[64];
    for (size_t i = 0; !options->checkpoint && i < sizeof needy / sizeof *needy; i++)
        if (train_options_given(options, needy[i]) && (i > 0 || options->resume))
            return complain(speak, "--", needy[i], " needs --checkpoint DIR");
    for (const char *list = options->may_change; list && *list;) {
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), list);
        const row_t *row = find(name);
        if (!row || row->matters == FREE || row->matters == SHAPE)
            return complain(speak, "--may-change: ", name,
                            row && row->matters == SHAPE ? " is the shape of the model, which cannot change"
                            : row                        ? " may differ anyway"
                                                         : ": there is no such option");
        list += length + (list[length] == ',');
    }
    return -1;
}

int train_options_parse(int argc, char **argv, train_options_t *options, int speak)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].preset && !set(options, &rows[i], rows[i].preset))
            return complain(speak, "no memory for ", rows[i].name, "");
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
    int status = check_checkpoint(options, speak);
    if (status >= 0)
        return status;
    if (options->time_limit > 0.0 && !train_options_given(options, "steps"))
        options->steps = UINT64_MAX;
    if (strcmp(options->report, "none") == 0) {
        free(options->report);
        options->report = NULL;
    }
    return -1;
}

void train_options_free(train_options_t *options)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == TEXT)
            free(*(char **)field(options, &rows[i]));
    memset(options, 0, sizeof *options);
}

static void row_text(const train_options_t *options, const row_t *row, int exact, char *value, size_t bytes)
{
    const char *at = (const char *)options + row->at, *text;
    switch (row->kind) {
    case TEXT:
        text = *(const char *const *)(const void *)at;
        snprintf(value, bytes, "%s", !text ? "" : strcmp(text, "\n") == 0 ? "(a line break)" : text);
        break;
    case COUNT:
    case BYTES:
        if (*(const uint64_t *)(const void *)at == UINT64_MAX)
            snprintf(value, bytes, "until the time limit");
        else
            snprintf(value, bytes, "%llu", (unsigned long long)*(const uint64_t *)(const void *)at);
        break;
    case REAL:
        snprintf(value, bytes, "%.*g", exact ? 17 : 6, *(const double *)(const void *)at);
        break;
    case SWITCH:
        snprintf(value, bytes, "%s", *(const int *)(const void *)at ? "on" : "off");
        break;
    }
}

int train_options_row(const train_options_t *options, size_t i, const char **name, char *value, size_t bytes)
{
    if (i >= ROWS)
        return 0;
    *name = rows[i].name;
    row_text(options, &rows[i], 0, value, bytes);
    return 1;
}

int train_options_exact(const train_options_t *options, size_t i, const char **name, char *value,
                        size_t bytes)
{
    while (i < ROWS && rows[i].matters != CURVE && rows[i].matters != SHAPE)
        i++;
    if (i >= ROWS)
        return -1;
    *name = rows[i].name;
    row_text(options, &rows[i], 1, value, bytes);
    return (int)i;
}

/* 1 if the list NAME,NAME,... holds this row. */
static int listed(const char *list, const row_t *row)
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
    const row_t *row = find(name);
    return row && row->matters != SHAPE && listed(options->may_change, row);
}

int train_options_is_shape(const char *name)
{
    const row_t *row = find(name);
    return row && row->matters == SHAPE;
}
