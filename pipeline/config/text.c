/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/config/text.c: the values of options as text, for messages and report, for checkpoints, and as the
 * JSON object that --config takes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "base/text/shortest.h"
#include "base/utf8.h"
#include "pipeline/config/table.h"

static const void *field(const train_config_t *options, const train_row_t *row)
{
    return (const char *)options + row->at;
}

static const char *text_of(const train_config_t *options, const train_row_t *row)
{
    return *(const char *const *)field(options, row);
}

static uint64_t count_of(const train_config_t *options, const train_row_t *row)
{
    return *(const uint64_t *)field(options, row);
}

static double real_of(const train_config_t *options, const train_row_t *row)
{
    return *(const double *)field(options, row);
}

static int int_of(const train_config_t *options, const train_row_t *row)
{
    return *(const int *)field(options, row);
}

/* The word of a CHOICE. */
static const char *word_of(const train_config_t *options, const train_row_t *row)
{
    return pipe_word_name(row->words, int_of(options, row));
}

static void row_text(const train_config_t *options, const train_row_t *row, char *value, size_t bytes)
{
    char real[BASE_SHORTEST];
    const char *text;
    switch (row->kind) {
    case TRAIN_TEXT:
        text = text_of(options, row);
        snprintf(value, bytes, "%s", !text ? "" : strcmp(text, "\n") == 0 ? "(a line break)" : text);
        break;
    case TRAIN_COUNT:
    case TRAIN_BYTES:
        if (count_of(options, row) == UINT64_MAX)
            snprintf(value, bytes, "until the time limit");
        else
            snprintf(value, bytes, "%llu", (unsigned long long)count_of(options, row));
        break;
    case TRAIN_REAL:
        snprintf(value, bytes, "%s", base_shortest(real_of(options, row), real));
        break;
    case TRAIN_SWITCH:
        snprintf(value, bytes, "%s", int_of(options, row) ? "on" : "off");
        break;
    case TRAIN_CHOICE:
        snprintf(value, bytes, "%s", word_of(options, row));
        break;
    }
}

int train_config_row(const train_config_t *options, size_t i, const char **name, char *value, size_t bytes)
{
    if (i >= train_rows_count)
        return 0;
    *name = train_rows[i].name;
    row_text(options, &train_rows[i], value, bytes);
    return 1;
}

/* Replaces the end of a text that has no room by a hash of the whole. */
static void mark_long(const char *text, char *value, size_t bytes)
{
    enum { HASH = 18 }; /* "#" and 16 digits, and the end */
    const size_t length = strlen(text);
    if (length < bytes || bytes < HASH)
        return;
    const size_t keep = base_utf8_span((const unsigned char *)text, bytes - HASH);
    snprintf(value + keep, HASH, "#%016llx", (unsigned long long)base_hash64(text, length, 0));
}

int train_config_exact(const train_config_t *options, size_t i, const char **name, char *value, size_t bytes)
{
    while (i < train_rows_count && train_rows[i].matters != TRAIN_CURVE &&
           train_rows[i].matters != TRAIN_SHAPE)
        i++;
    if (i >= train_rows_count)
        return -1;
    *name = train_rows[i].name;
    row_text(options, &train_rows[i], value, bytes);
    if (train_rows[i].kind == TRAIN_TEXT && *value)
        mark_long(text_of(options, &train_rows[i]), value, bytes);
    if (!*value)
        snprintf(value, bytes, "none");
    return (int)i;
}

/* "2:04:100" is "2:4:100": numbers are compared as such, all else byte by byte. What is too large for a
 * number is the largest in both, but no value that was accepted holds such a one. */
static int same_numbers(const char *a, const char *b)
{
    for (;;) {
        char *end_a, *end_b;
        a += strspn(a, " +");
        b += strspn(b, " +");
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            if (strtoull(a, &end_a, 10) != strtoull(b, &end_b, 10))
                return 0;
            a = end_a;
            b = end_b;
        } else if (*a != *b) {
            return 0;
        } else if (!*a) {
            return 1;
        } else {
            a++;
            b++;
        }
    }
}

int train_config_same(size_t i, const char *value, const char *old, char *shown, size_t bytes)
{
    char real[BASE_SHORTEST], *end;
    if (train_rows[i].kind == TRAIN_TEXT && !*old)
        old = "none"; /* so checkpoints had it for a while */
    snprintf(shown, bytes, "%s", old);
    if (train_rows[i].kind == TRAIN_TEXT)
        return same_numbers(value, old);
    if (train_rows[i].kind != TRAIN_REAL)
        return strcmp(value, old) == 0;
    double number = strtod(old, &end);
    if (end == old || *end)
        return 0;
    snprintf(shown, bytes, "%s", base_shortest(number, real));
    return number == strtod(value, NULL);
}

int train_config_unsaid(size_t i, int prefix_masks, char *value, size_t bytes)
{
    const train_row_t *row = &train_rows[i];
    const char *meant = row->preset ? row->preset : "none";
    if (row->matters == TRAIN_SHAPE)
        return 0;
    if (strcmp(row->name, "objective") == 0) /* all that such a model learned before there was a choice */
        meant = prefix_masks ? "prefix" : "causal";
    snprintf(value, bytes, "%s", meant);
    return 1;
}

/* ---- as --config takes it ------------------------------------------------------------------------------ */

static int is_one_of(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0)
            return 1;
    return 0;
}
#define ONE_OF(name, list) is_one_of(name, list, sizeof(list) / sizeof *(list))

/* 1: the row's value is said by others, or has no meaning with them: gyre-train would refuse or warn of
 * it. */
static int is_implied(const train_config_t *o, const train_row_t *row)
{
    static const char *const shape[] = {"layers", "hidden",  "heads",  "vocab",        "seq",
                                        "leaves", "dropout", "z-loss", "router-z-loss"};
    static const char *const keeping[] = {"checkpoint-every", "checkpoint-keep", "resume"};
    if (strcmp(row->name, "config") == 0)
        return 1;
    if (ONE_OF(row->name, shape)) /* a file says what the model is */
        return (o->recipe || o->model || o->load) && !train_config_given(o, row->name);
    if (strcmp(row->name, "scale") == 0)
        return !o->recipe;
    if (row->at == offsetof(train_config_t, valid_fraction))
        return o->valid_data != NULL;
    if (ONE_OF(row->name, keeping))
        return !o->checkpoint;
    if (strncmp(row->name, "loss-scale", 10) == 0)
        return o->precision != MODEL_FLOAT16;
    if (strcmp(row->name, "schedule") == 0)
        return o->pp == 1 && !train_config_given(o, row->name);
    return 0;
}

static int is_utf8(const char *text)
{
    const size_t bytes = strlen(text);
    return base_utf8_span((const unsigned char *)text, bytes) == bytes;
}

/* The value as JSON, in new memory. NULL: there is none to give (*none), or no memory. */
static char *row_json(const train_config_t *o, const train_row_t *row, int *none)
{
    char value[64];
    const char *text;
    json_t *string;
    *none = 0;
    switch (row->kind) {
    case TRAIN_TEXT:
    case TRAIN_CHOICE:
        text = row->kind == TRAIN_CHOICE ? word_of(o, row) : text_of(o, row);
        if (!text &&
            (row->at == offsetof(train_config_t, report) ||
             (row->at == offsetof(train_config_t, batch_rampup) && train_config_given(o, row->name))))
            text = "none";
        *none = !text || !is_utf8(text); /* JSON has no text for it */
        string = *none ? NULL : json_string(text);
        char *json = string ? base_json_dump(string, JSON_ENCODE_ANY) : NULL;
        json_decref(string);
        return json;
    case TRAIN_COUNT:
    case TRAIN_BYTES:
        *none = count_of(o, row) == UINT64_MAX; /* steps, which --time-limit then implies */
        snprintf(value, sizeof value, "%llu", (unsigned long long)count_of(o, row));
        break;
    case TRAIN_REAL:
        base_shortest(real_of(o, row), value);
        break;
    case TRAIN_SWITCH:
        snprintf(value, sizeof value, "%s", int_of(o, row) ? "true" : "false");
        break;
    }
    return *none ? NULL : strdup(value);
}

gyre_status_t train_config_write(const train_config_t *options, FILE *out)
{
    const char *comma = "";
    fputc('{', out);
    for (size_t i = 0; i < train_rows_count; i++) {
        int none = is_implied(options, &train_rows[i]);
        char *json = none ? NULL : row_json(options, &train_rows[i], &none);
        if (!json && !none)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for --%s as text", train_rows[i].name);
        if (json)
            fprintf(out, "%s\"%s\":%s", comma, train_rows[i].name, json);
        comma = json ? "," : comma;
        free(json);
    }
    fputc('}', out);
    return GYRE_OK;
}
