/* pipeline/config/values.c: settings from defaults, texts and JSON, and what goes together. text.c writes
 * them. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings/parse.h"
#include "base/settings/size.h"
#include "base/text/shortest.h"
#include "pipeline/config/table.h"

/* For weights that are loaded, which the default for random ones would wreck. Full fine-tunings of published
 * models take 1e-5 to 5e-5. */
#define LOADED_LR 2e-5
/* For adapters, which begin as if they were not there. */
#define LORA_LR 2e-4

static void *field(train_config_t *options, const train_row_t *row)
{
    return (char *)options + row->at;
}

/* The row of a name, which may have _ for -; NULL: there is none. */
static const train_row_t *train_config_find(const char *name)
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

void train_config_mark(train_config_t *options, const train_row_t *row)
{
    options->given[row - train_rows] = 1;
}

static int train_config_has(const train_config_t *options, const train_row_t *row)
{
    return options->given[row - train_rows];
}

int train_config_given(const train_config_t *options, const char *name)
{
    const train_row_t *row = train_config_find(name);
    return row && train_config_has(options, row);
}

const char *train_config_nearest(const char *name)
{
    const char *nearest = NULL;
    size_t least = base_setting_slip(strlen(name)) + 1;
    for (size_t i = 0; i < train_rows_count; i++)
        if (base_setting_nearer(name, train_rows[i].name, &least))
            nearest = train_rows[i].name;
    return nearest;
}

/* ---- values -------------------------------------------------------------------------------------------- */

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

int train_config_set(train_config_t *options, const train_row_t *row, const char *text)
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
    case TRAIN_CHOICE:
        return pipe_word_parse(row->words, text, field(options, row));
    }
    return 0;
}

void train_row_argument(const train_row_t *row, char *text, size_t bytes)
{
    if (row->words)
        pipe_words_join(row->words, "|", text, bytes);
    else
        snprintf(text, bytes, "%s", row->argument);
}

void train_row_wanted(const train_row_t *row, char *text, size_t bytes)
{
    char low[BASE_SHORTEST], high[BASE_SHORTEST], words[160];
    train_row_argument(row, words, sizeof words);
    if (row->kind == TRAIN_TEXT)
        snprintf(text, bytes, "wants a text that is not empty");
    else if (row->kind == TRAIN_SWITCH)
        snprintf(text, bytes, "wants 0 or 1");
    else if (row->kind == TRAIN_CHOICE)
        snprintf(text, bytes, "wants one of %s", words);
    else
        snprintf(text, bytes, "wants a %s from %s to %s%s",
                 row->kind == TRAIN_REAL ? "number" : "whole number", base_shortest(row->low, low),
                 base_shortest(row->high, high), row->kind == TRAIN_BYTES ? " (K, M, G allowed)" : "");
}

/* ": the nearest is NAME", to follow a name that no row has; empty if none is near. */
static void train_config_hint(const char *name, char *text, size_t bytes)
{
    const char *nearest = train_config_nearest(name);
    *text = 0;
    if (nearest)
        snprintf(text, bytes, ": the nearest is %s", nearest);
}

int train_config_defaults(train_config_t *options)
{
    memset(options, 0, sizeof *options);
    for (size_t i = 0; i < train_rows_count; i++)
        if (train_rows[i].preset && !train_config_set(options, &train_rows[i], train_rows[i].preset))
            return 0;
    return 1;
}

optim_batch_t train_config_batch(const train_config_t *options)
{
    return (optim_batch_t){.batch = options->batch,
                           .leaf = options->grad_sequences,
                           .parts = options->sequence_parts,
                           .lanes = options->lanes,
                           .groups = options->groups,
                           .equal = options->variant};
}

/* ---- from JSON ----------------------------------------------------------------------------------------- */

/* A number, or a truth value for a switch, as the text that a flag would have. 0: it is neither. */
static int number_text(const train_row_t *row, const json_t *value, char *text, size_t bytes)
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
    if (json_is_boolean(value) && row->kind == TRAIN_SWITCH)
        return snprintf(text, bytes, "%d", json_is_true(value)) < (int)bytes;
    return 0;
}

/* One key of the object; with an error `why` has the reason. */
static gyre_status_t read_key(train_config_t *options, const char *name, const json_t *value,
                              char why[TRAIN_WHY])
{
    char text[64];
    const train_row_t *row = train_config_find(name);
    int n = snprintf(why, TRAIN_WHY, "%.300s", name);
    if (!row || row->at == offsetof(train_config_t, config)) {
        n += snprintf(why + n, TRAIN_WHY - (size_t)n, ": there is no such option");
        if (!row)
            train_config_hint(name, why + n, TRAIN_WHY - (size_t)n);
        return GYRE_ERR_INVALID;
    }
    if (train_config_has(options, row)) /* by flag */
        return GYRE_OK;
    const char *as = json_is_string(value)                        ? json_string_value(value)
                     : number_text(row, value, text, sizeof text) ? text
                                                                  : NULL;
    if (!as || !train_config_set(options, row, as)) {
        why[n++] = ' ';
        if (as && *as && row->kind == TRAIN_TEXT) {
            snprintf(why + n, TRAIN_WHY - (size_t)n, "has a value that there is no memory for");
            return GYRE_ERR_NO_MEMORY;
        }
        train_row_wanted(row, why + n, TRAIN_WHY - (size_t)n);
        return GYRE_ERR_INVALID;
    }
    train_config_mark(options, row);
    return GYRE_OK;
}

gyre_status_t train_config_read(train_config_t *options, const json_t *object, char why[TRAIN_WHY])
{
    const char *name;
    json_t *value;
    gyre_status_t status = GYRE_OK;
    if (!json_is_object(object)) {
        snprintf(why, TRAIN_WHY, "is not a JSON object of options");
        return GYRE_ERR_INVALID;
    }
    json_object_foreach((json_t *)object, name, value)
    {
        if ((status = read_key(options, name, value, why)) != GYRE_OK)
            break;
    }
    return status;
}

/* ---- what goes together -------------------------------------------------------------------------------- */

int train_steps_range(const char *text, uint64_t *from, uint64_t *to)
{
    unsigned long long a, b;
    int end = 0, fields = text ? sscanf(text, "%llu:%llu%n", &a, &b, &end) : 0;
    if (fields != 2 || text[end] || strchr(text, '-') || a < 1 || b < a || b - a >= TRAIN_WATCHED)
        return 0;
    *from = a;
    *to = b;
    return 1;
}

/* 1, or 0 and `why` has the reason. */
static int check_may_change(const train_config_t *options, char why[TRAIN_WHY])
{
    char name[64];
    for (const char *list = options->may_change; list && *list;) {
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), list);
        const train_row_t *row = train_config_find(name);
        if (!row) {
            int n = snprintf(why, TRAIN_WHY, "--may-change: %s: there is no such option", name);
            train_config_hint(name, why + n, TRAIN_WHY - (size_t)n);
            return 0;
        }
        if (row->matters < TRAIN_CURVE || row->matters == TRAIN_SHAPE) {
            snprintf(why, TRAIN_WHY, "--may-change: %s%s", name,
                     row->matters == TRAIN_SHAPE ? " is the shape of the model, which cannot change"
                                                 : " may differ anyway");
            return 0;
        }
        if (row->at == offsetof(train_config_t, optimizer) && !options->optimizer) {
            snprintf(why, TRAIN_WHY,
                     "--may-change: optimizer: a run may go from adamw to muon only, since "
                     "Muon holds no second moments");
            return 0;
        }
        list += length + (list[length] == ',');
    }
    return 1;
}

static int check_checkpoint(const train_config_t *options, char why[TRAIN_WHY])
{
    const char *const needy[] = {"resume", "checkpoint-every", "checkpoint-keep", "may-change"};
    for (size_t i = 0; !options->checkpoint && i < sizeof needy / sizeof *needy; i++)
        if (train_config_given(options, needy[i]) && (i > 0 || options->resume)) {
            snprintf(why, TRAIN_WHY, "--%s needs --checkpoint DIR", needy[i]);
            return 0;
        }
    return check_may_change(options, why);
}

/* "none" is a word for: there is none. */
static void forget_none(char **text)
{
    if (*text && strcmp(*text, "none") == 0) {
        free(*text);
        *text = NULL;
    }
}

/* A single file has one type. */
static int check_save_type(const train_config_t *options, char why[TRAIN_WHY])
{
    size_t n = options->save ? strlen(options->save) : 0;
    if (n == 0 || options->save[n - 1] == '/' || options->save_type == TRAIN_SAVE_AUTO)
        return 1;
    snprintf(why, TRAIN_WHY,
             "--save-type is for a folder, and a file is written in fp32: --save %.300s/ writes a folder",
             options->save);
    return 0;
}

/* What is held out of the data is validated on only without data for it. */
static int check_valid(const train_config_t *options, char why[TRAIN_WHY])
{
    if (!options->valid_data || !train_config_given(options, "valid-fraction"))
        return 1;
    snprintf(why, TRAIN_WHY,
             "--valid-data has all that is for validation, and --valid-fraction holds some of --data out for "
             "it: leave one of them out");
    return 0;
}

/* Adapters are for weights that are there, and leave all of them as they are. */
static int check_lora(const train_config_t *options, char why[TRAIN_WHY])
{
    /* by values: the log of a run without adapters gives them all */
    const char *needy = options->lora_on          ? "lora-on"
                        : options->lora_alpha > 0 ? "lora-alpha"
                        : options->save_adapters  ? "save-adapters"
                                                  : NULL;
    if (options->lora == 0 && needy)
        snprintf(why, TRAIN_WHY, "--%s needs --lora RANK", needy);
    else if (options->load_adapters && !options->load)
        snprintf(why, TRAIN_WHY, "--load-adapters needs --load: adapters are for weights that are there");
    else if (options->lora > 0 && !options->load)
        snprintf(why, TRAIN_WHY, "--lora needs --load: adapters are for weights that are there");
    else if (options->lora > 0 && options->freeze)
        snprintf(why, TRAIN_WHY,
                 "--lora and --freeze exclude each other: with adapters all weights stay as "
                 "they are; --lora-on says which have adapters");
    else
        return 1;
    return 0;
}

/* What Muon's update is not made for. */
static int check_muon(const train_config_t *options, char why[TRAIN_WHY])
{
    const char *name = options->lora > 0 ? "lora" : options->offload ? "offload" : NULL;
    if (options->optimizer && name)
        snprintf(why, TRAIN_WHY, "--optimizer muon and --%s exclude each other: take --optimizer adamw",
                 name);
    return !options->optimizer || !name;
}

/* With a factor below 1 half of all steps would be skipped. */
static int check_spikes(const train_config_t *options, char why[TRAIN_WHY])
{
    const struct {
        const char *name;
        double value;
    } factor[] = {{"spike-loss", options->spike_loss}, {"spike-norm", options->spike_norm}};
    for (size_t i = 0; i < sizeof factor / sizeof factor[0]; i++)
        if (factor[i].value > 0.0 && factor[i].value < 1.0) {
            snprintf(why, TRAIN_WHY, "--%s %g: wants 0, or 1 and more: a factor of the median",
                     factor[i].name, factor[i].value);
            return 0;
        }
    return 1;
}

gyre_status_t train_config_complete(train_config_t *options, char why[TRAIN_WHY])
{
    uint64_t from = 0, to;
    *why = 0;
    if (options->time_limit > 0.0 && !train_config_given(options, "steps"))
        options->steps = UINT64_MAX; /* unless a recipe has some */
    gyre_status_t status = train_recipe_apply(options);
    if (status != GYRE_OK)
        return status;
    if (!check_checkpoint(options, why) || !check_valid(options, why) || !check_save_type(options, why) ||
        !check_lora(options, why) || !check_muon(options, why) || !check_spikes(options, why))
        return GYRE_ERR_INVALID;
    if (options->trace_steps && !train_steps_range(options->trace_steps, &from, &to)) {
        snprintf(why, TRAIN_WHY, "--trace-steps %.300s: wants FROM:TO, such as 10:12, 64 steps at most",
                 options->trace_steps);
        return GYRE_ERR_INVALID;
    }
    if (options->load && !train_config_given(options, "lr"))
        options->lr = options->lora > 0 ? LORA_LR : LOADED_LR;
    if (options->trace_steps && from > options->steps) {
        snprintf(why, TRAIN_WHY,
                 "--trace-steps %.300s: the run ends with step %llu, so none of them is made: see --steps",
                 options->trace_steps, (unsigned long long)options->steps);
        return GYRE_ERR_INVALID;
    }
    forget_none(&options->report);
    forget_none(&options->batch_rampup);
    return GYRE_OK;
}

void train_config_free(train_config_t *options)
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
            if (train_config_find(name) == row)
                return 1;
        }
        list += length + (list[length] == ',');
    }
    return 0;
}

int train_config_may_change(const train_config_t *options, const char *name)
{
    const train_row_t *row = train_config_find(name);
    if (!row || row->matters == TRAIN_SHAPE)
        return 0;
    const char *with = row->at == offsetof(train_config_t, infill_ids)       ? "objective"
                       : row->at == offsetof(train_config_t, valid_fraction) ? "data"
                       : strncmp(row->name, "loss-scale", 10) == 0           ? "precision"
                                                                             : NULL;
    return listed(options->may_change, row) || (with && listed(options->may_change, train_config_find(with)));
}

int train_config_is_shape(const char *name)
{
    const train_row_t *row = train_config_find(name);
    return row && row->matters == TRAIN_SHAPE;
}
