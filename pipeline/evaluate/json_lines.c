/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/json_lines.c: questions of HellaSwag and ARC, a JSON object in each line. */
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/text/json.h"
#include "pipeline/evaluate/internal.h"

/* A line, for messages. */
typedef struct {
    const char *path;
    size_t line;
} place_t;

static gyre_status_t wrong(const place_t *at, const char *key, const char *wants)
{
    return gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: key \"%s\" wants %s", at->path, at->line, key, wants);
}

/* NULL: `status` has why. `name`: the key as the message calls it. */
static const char *string_of(const place_t *at, const json_t *object, const char *key, const char *name,
                             gyre_status_t *status)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text && *status == GYRE_OK)
        *status = wrong(at, name, "a string");
    return text;
}

/* ---- HellaSwag ----------------------------------------------------------------------------------------- */

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* In place: without spaces at its ends. */
static void strip(char *text)
{
    size_t n = strlen(text), from = 0;
    while (n > 0 && is_space(text[n - 1]))
        n--;
    while (from < n && is_space(text[from]))
        from++;
    memmove(text, text + from, n - from);
    text[n - from] = 0;
}

/* In place: each `from` becomes `to`, which is shorter. */
static void replace(char *text, const char *from, const char *to)
{
    char *out = text;
    const size_t n = strlen(from), m = strlen(to);
    while (*text) {
        if (strncmp(text, from, n) == 0) {
            memcpy(out, to, m);
            out += m;
            text += n;
        } else {
            *out++ = *text++;
        }
    }
    *out = 0;
}

/* In place: without what stands in brackets on one line. */
static void drop_brackets(char *text)
{
    char *out = text;
    while (*text) {
        const size_t inside = *text == '[' ? strcspn(text, "]\n") : 0;
        if (inside > 0 && text[inside] == ']')
            text += inside + 1;
        else
            *out++ = *text++;
    }
    *out = 0;
}

static void clean(char *text)
{
    strip(text);
    replace(text, " [title]", ". ");
    drop_brackets(text);
    replace(text, "  ", " ");
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* "ACTIVITY: CTX_A Ctx_b" */
static char *hellaswag_context(const char *activity, const char *a, const char *b)
{
    const size_t room = strlen(activity) + strlen(a) + strlen(b) + sizeof ":  ";
    char *text = malloc(room);
    if (!text)
        return NULL;
    int n = snprintf(text, room, "%s: %s ", activity, a);
    char *to = text + n;
    for (size_t i = 0; b[i]; i++)
        *to++ = i == 0 ? upper(b[i]) : lower(b[i]);
    *to = 0;
    clean(text);
    return text;
}

/* An integer or a string of one; SIZE_MAX: neither. */
static size_t label_of(const json_t *label)
{
    const char *text = json_string_value(label);
    char *end;
    if (json_is_integer(label))
        return json_integer_value(label) < 0 ? SIZE_MAX : (size_t)json_integer_value(label);
    if (!text || *text < '0' || *text > '9')
        return SIZE_MAX;
    const unsigned long value = strtoul(text, &end, 10);
    return *end ? SIZE_MAX : value;
}

static gyre_status_t read_hellaswag(const place_t *at, const json_t *object, pipe_question_t *q)
{
    const json_t *endings = json_object_get(object, "endings");
    const size_t choices = json_array_size(endings);
    gyre_status_t status = GYRE_OK;
    const char *activity = string_of(at, object, "activity_label", "activity_label", &status),
               *a = string_of(at, object, "ctx_a", "ctx_a", &status),
               *b = string_of(at, object, "ctx_b", "ctx_b", &status);
    if (status == GYRE_OK && choices < 2)
        status = wrong(at, "endings", "a list of two strings or more");
    if (status != GYRE_OK)
        return status;
    q->answer = label_of(json_object_get(object, "label"));
    if (q->answer >= choices)
        return wrong(at, "label", "the number of an ending, from 0 on (files for tests do not have it)");
    q->context = hellaswag_context(activity, a, b);
    if (!q->context || pipe_question_choices(q, choices) != GYRE_OK)
        return pipe_question_no_memory(at->path);
    for (size_t c = 0; c < choices; c++) {
        const char *ending = json_string_value(json_array_get(endings, c));
        if (!ending)
            return wrong(at, "endings", "strings alone");
        if (!(q->choice[c] = strdup(ending)))
            return pipe_question_no_memory(at->path);
        clean(q->choice[c]);
    }
    return GYRE_OK;
}

/* ---- ARC ----------------------------------------------------------------------------------------------- */

/* The question's text and its choices: {stem, choices: [{text, label}]}, or those of the whole object. */
static gyre_status_t arc_choice(const place_t *at, const json_t *choices, size_t c, const char **text,
                                const char **label)
{
    gyre_status_t status = GYRE_OK;
    const int listed = json_is_array(choices);
    const json_t *one = json_array_get(choices, c);
    *text = listed ? string_of(at, one, "text", "question.choices.text", &status)
                   : json_string_value(json_array_get(json_object_get(choices, "text"), c));
    *label = listed ? string_of(at, one, "label", "question.choices.label", &status)
                    : json_string_value(json_array_get(json_object_get(choices, "label"), c));
    if (status == GYRE_OK && (!*text || !*label))
        status = wrong(at, "choices", "as many strings in \"text\" as in \"label\"");
    return status;
}

static gyre_status_t read_arc(const place_t *at, const json_t *object, pipe_question_t *q)
{
    static const char before[] = "Question: ", after[] = "\nAnswer:";
    const json_t *question = json_object_get(object, "question");
    const int nested = json_is_object(question);
    const json_t *choices = json_object_get(nested ? question : object, "choices");
    const size_t count =
        json_is_array(choices) ? json_array_size(choices) : json_array_size(json_object_get(choices, "text"));
    gyre_status_t status = GYRE_OK;
    const char *stem = nested ? string_of(at, question, "stem", "question.stem", &status)
                              : string_of(at, object, "question", "question", &status),
               *key = string_of(at, object, "answerKey", "answerKey", &status), *text, *label;
    if (status == GYRE_OK && count < 2)
        status = wrong(at, nested ? "question.choices" : "choices", "two choices or more");
    if (status != GYRE_OK)
        return status;
    const size_t room = strlen(stem) + sizeof before + sizeof after;
    q->context = malloc(room);
    if (!q->context || pipe_question_choices(q, count) != GYRE_OK)
        return pipe_question_no_memory(at->path);
    snprintf(q->context, room, "%s%s%s", before, stem, after);
    q->answer = SIZE_MAX;
    for (size_t c = 0; c < count; c++) {
        if ((status = arc_choice(at, choices, c, &text, &label)) != GYRE_OK)
            return status;
        if (!(q->choice[c] = strdup(text)))
            return pipe_question_no_memory(at->path);
        if (q->answer == SIZE_MAX && strcmp(label, key) == 0)
            q->answer = c;
    }
    return q->answer < count ? GYRE_OK : wrong(at, "answerKey", "the label of a choice");
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static gyre_status_t read_object(const place_t *at, const char *text, size_t bytes,
                                 pipe_questions_kind_t kind, pipe_question_t *q)
{
    json_error_t error;
    int lacks;
    json_t *object = base_json_text(text, bytes, &error, &lacks);
    gyre_status_t status = GYRE_OK;
    if (!object && lacks)
        status = pipe_question_no_memory(at->path);
    else if (!json_is_object(object))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: the line is not a JSON object: %s", at->path, at->line,
                           object ? "it is another value" : error.text);
    else
        status = kind == PIPE_ARC ? read_arc(at, object, q) : read_hellaswag(at, object, q);
    json_decref(object);
    return status;
}

gyre_status_t pipe_read_json(FILE *in, const char *path, pipe_questions_kind_t kind, size_t *line,
                             pipe_question_t *out)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    gyre_status_t status = GYRE_ERR_NOT_FOUND;
    while ((bytes = getline(&text, &room, in)) >= 0) {
        ++*line;
        size_t n = (size_t)bytes;
        while (n > 0 && is_space(text[n - 1]))
            n--;
        if (n == 0)
            continue;
        const place_t at = {.path = path, .line = *line};
        out->line = *line;
        status = read_object(&at, text, n, kind, out);
        break;
    }
    if (bytes < 0 && !feof(in) && !ferror(in))
        status = pipe_question_no_memory(path);
    free(text);
    return status;
}
