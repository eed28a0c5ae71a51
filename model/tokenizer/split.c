/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/split.c: text to pieces, in steps: each cuts the pieces of the step before it, at what a
 * pattern matches, or puts a mark in front of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/hash.h"
#include "model/tokenizer/pattern.h"

#define MOST_STEPS 12

typedef struct {
    /* the pattern as given, after other parameters where they are not the usual ones: for the hash */
    char *name;
    pcre2_code *code; /* NULL: a step with a mark */
    split_behavior_t behavior;
    int invert;
    char mark[8];
    size_t mark_bytes;
    split_prepend_t prepend;
    int replace, cut;
} step_t;

struct tokenizer_split {
    size_t steps;
    step_t step[MOST_STEPS];
};

static gyre_status_t next_step(tokenizer_split_t **split, const char *path, const char *name,
                               const char *parameters, step_t **step)
{
    if (!*split && !(*split = calloc(1, sizeof **split)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
    if ((*split)->steps == MOST_STEPS)
        return gyre_fail(GYRE_ERR_INVALID, "%s cuts text in more than %d steps", path, MOST_STEPS);
    size_t room = strlen(name) + strlen(parameters) + 1;
    char *copy = malloc(room);
    if (!copy)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
    snprintf(copy, room, "%s%s", parameters, name);
    *step = &(*split)->step[(*split)->steps++];
    (*step)->name = copy;
    return GYRE_OK;
}

gyre_status_t tokenizer_split_add(tokenizer_split_t **split, const char *path, const char *pattern,
                                  int literal, split_behavior_t behavior, int invert)
{
    char parameters[40] = "";
    step_t *step = NULL;
    if (literal || behavior != SPLIT_ISOLATED || invert)
        snprintf(parameters, sizeof parameters, "\1%d,%d,%d:", literal, (int)behavior, invert);
    gyre_status_t status = next_step(split, path, pattern, parameters, &step);
    if (status != GYRE_OK)
        return status;
    step->behavior = behavior;
    step->invert = invert;
    return tokenizer_pattern_compile(path, pattern, literal, &step->code);
}

gyre_status_t tokenizer_split_add_mark(tokenizer_split_t **split, const char *path, const char *mark,
                                       split_prepend_t prepend, int replace, int cut)
{
    char parameters[40];
    step_t *step = NULL;
    snprintf(parameters, sizeof parameters, "\2%d,%d,%d:", (int)prepend, replace, cut);
    if (strlen(mark) == 0 || strlen(mark) >= sizeof step->mark)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the mark '%.20s' of spaces is not one character", path, mark);
    gyre_status_t status = next_step(split, path, mark, parameters, &step);
    if (status != GYRE_OK)
        return status;
    snprintf(step->mark, sizeof step->mark, "%s", mark);
    step->mark_bytes = strlen(mark);
    step->prepend = prepend;
    step->replace = replace;
    step->cut = cut;
    return GYRE_OK;
}

void tokenizer_split_destroy(tokenizer_split_t *split)
{
    if (!split)
        return;
    for (size_t i = 0; i < split->steps; i++) {
        pcre2_code_free(split->step[i].code);
        free(split->step[i].name);
    }
    free(split);
}

uint64_t tokenizer_split_hash(const tokenizer_split_t *split, uint64_t hash)
{
    for (size_t i = 0; split && i < split->steps; i++)
        hash = base_hash64(split->step[i].name, strlen(split->step[i].name), hash);
    return hash;
}

/* ---- cutting ------------------------------------------------------------------------------------------- */

typedef struct {
    size_t begin, end;
    int match;
} span_t;

typedef struct {
    pcre2_match_data *match;
    tokenizer_buffer_t text; /* with marks */
    span_t *span;            /* [room] */
    size_t room;
} state_t;

struct tokenizer_cutter {
    const tokenizer_split_t *split; /* borrowed; NULL: a text is one piece */
    state_t state[MOST_STEPS];
    const unsigned char *origin; /* where the text begins */
    model_after_t after;         /* of its first piece, until that has been cut */
    tokenizer_take_fn take;
    void *user;
};

gyre_status_t tokenizer_cutter_create(const tokenizer_split_t *split, tokenizer_cutter_t **out)
{
    tokenizer_cutter_t *cutter = calloc(1, sizeof *cutter);
    if (!cutter)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to cut text");
    cutter->split = split;
    for (size_t i = 0; split && i < split->steps; i++)
        if (!(cutter->state[i].match = pcre2_match_data_create(1, NULL))) {
            tokenizer_cutter_destroy(cutter);
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to cut text");
        }
    *out = cutter;
    return GYRE_OK;
}

void tokenizer_cutter_destroy(tokenizer_cutter_t *cutter)
{
    if (!cutter)
        return;
    for (size_t i = 0; i < MOST_STEPS; i++) {
        pcre2_match_data_free(cutter->state[i].match);
        free(cutter->state[i].text.bytes);
        free(cutter->state[i].span);
    }
    free(cutter);
}

static gyre_status_t cut_from_step(tokenizer_cutter_t *cutter, size_t step, const unsigned char *text,
                                   size_t bytes);

/* The parts that a step makes: what matches, and what stands between. */
typedef struct {
    tokenizer_cutter_t *cutter;
    size_t number;
    const unsigned char *text;
    size_t bytes, done, begin, end; /* the next match, from done on */
} parts_t;

static gyre_status_t look(parts_t *p)
{
    const step_t *step = &p->cutter->split->step[p->number];
    int found = tokenizer_pattern_next(step->code, p->cutter->state[p->number].match, p->text, p->bytes,
                                       p->done, &p->begin, &p->end);
    if (found < 0)
        return tokenizer_pattern_gave_up(step->name, p->bytes, found);
    if (!found)
        p->begin = p->end = p->bytes;
    return GYRE_OK;
}

/* Each part by itself, or without those that match. */
static gyre_status_t cut_apart(parts_t *p, const step_t *step)
{
    const int removed = step->behavior == SPLIT_REMOVED;
    gyre_status_t status = GYRE_OK;
    for (; status == GYRE_OK && p->done < p->bytes; p->done = p->end) {
        if ((status = look(p)) != GYRE_OK)
            return status;
        if (p->begin > p->done && !(removed && step->invert))
            status = cut_from_step(p->cutter, p->number + 1, p->text + p->done, p->begin - p->done);
        if (status == GYRE_OK && p->end > p->begin && !(removed && !step->invert))
            status = cut_from_step(p->cutter, p->number + 1, p->text + p->begin, p->end - p->begin);
    }
    return status;
}

static gyre_status_t keep_span(state_t *state, size_t *count, size_t begin, size_t end, int match)
{
    if (!base_grow(&state->span, &state->room, *count, 1, sizeof *state->span))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu pieces of a text", *count + 1);
    if (end > begin)
        state->span[(*count)++] = (span_t){begin, end, match};
    return GYRE_OK;
}

/* Joins spans in place; the new count. */
static size_t join(split_behavior_t behavior, span_t *span, size_t count)
{
    size_t kept = 0;
    int before = 0;
    if (behavior == SPLIT_MERGED_WITH_NEXT) { /* from the end */
        size_t first = count;
        for (size_t i = count; i-- > 0;) {
            int match = span[i].match;
            if (match && !before && first < count)
                span[first].begin = span[i].begin;
            else
                span[--first] = span[i];
            before = match;
        }
        memmove(span, span + first, (count - first) * sizeof *span);
        return count - first;
    }
    for (size_t i = 0; i < count; i++) {
        int match = span[i].match;
        int joins = behavior == SPLIT_CONTIGUOUS ? match == before : match && !before;
        if (joins && kept > 0)
            span[kept - 1].end = span[i].end;
        else
            span[kept++] = span[i];
        before = match;
    }
    return kept;
}

static gyre_status_t cut_and_join(parts_t *p, const step_t *step)
{
    state_t *state = &p->cutter->state[p->number];
    gyre_status_t status = GYRE_OK;
    size_t count = 0;
    for (; status == GYRE_OK && p->done < p->bytes; p->done = p->end) {
        if ((status = look(p)) == GYRE_OK)
            status = keep_span(state, &count, p->done, p->begin, step->invert);
        if (status == GYRE_OK)
            status = keep_span(state, &count, p->begin, p->end, !step->invert);
    }
    if (status == GYRE_OK && count > 0)
        count = join(step->behavior, state->span, count);
    for (size_t i = 0; status == GYRE_OK && i < count; i++)
        status = cut_from_step(p->cutter, p->number + 1, p->text + state->span[i].begin,
                               state->span[i].end - state->span[i].begin);
    return status;
}

/* ---- marks --------------------------------------------------------------------------------------------- */

static int begins(const step_t *step, const unsigned char *text, size_t bytes)
{
    return bytes >= step->mark_bytes && memcmp(text, step->mark, step->mark_bytes) == 0;
}

/* The text with marks, into the step's buffer. */
static gyre_status_t put_marks(tokenizer_buffer_t *out, const step_t *step, const unsigned char *text,
                               size_t bytes, model_after_t after)
{
    gyre_status_t status = GYRE_OK;
    int already = begins(step, text, bytes) || (step->replace && bytes > 0 && *text == ' ');
    out->count = 0;
    if (!already && ((step->prepend == PREPEND_ALWAYS && after != MODEL_AFTER_TEXT) ||
                     (step->prepend == PREPEND_FIRST && after == MODEL_AFTER_NOTHING)))
        status = tokenizer_append(out, step->mark, step->mark_bytes);
    for (size_t done = 0, end; status == GYRE_OK && done < bytes; done = end) {
        const unsigned char *space = step->replace ? memchr(text + done, ' ', bytes - done) : NULL;
        end = space ? (size_t)(space - text) : bytes;
        status = tokenizer_append(out, text + done, end - done);
        if (status == GYRE_OK && space) {
            status = tokenizer_append(out, step->mark, step->mark_bytes);
            end++;
        }
    }
    return status;
}

static gyre_status_t cut_at_marks(tokenizer_cutter_t *cutter, size_t number, const unsigned char *text,
                                  size_t bytes)
{
    const step_t *step = &cutter->split->step[number];
    tokenizer_buffer_t *buffer = &cutter->state[number].text;
    const int first = cutter->after != MODEL_AFTER_TOKEN && text == cutter->origin;
    gyre_status_t status = put_marks(buffer, step, text, bytes, first ? cutter->after : MODEL_AFTER_TOKEN);
    if (status != GYRE_OK)
        return status;
    text = buffer->bytes;
    bytes = buffer->count;
    if (first)
        cutter->origin = text;
    for (size_t done = 0, end; status == GYRE_OK && done < bytes; done = end) {
        const unsigned char *next =
            step->cut ? memmem(text + done + 1, bytes - done - 1, step->mark, step->mark_bytes) : NULL;
        end = next ? (size_t)(next - text) : bytes;
        status = cut_from_step(cutter, number + 1, text + done, end - done);
        if (first)
            cutter->after = MODEL_AFTER_TOKEN;
    }
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static gyre_status_t cut_from_step(tokenizer_cutter_t *cutter, size_t number, const unsigned char *text,
                                   size_t bytes)
{
    if (!cutter->split || number == cutter->split->steps)
        return cutter->take(cutter->user, text, bytes);
    const step_t *step = &cutter->split->step[number];
    parts_t parts = {.cutter = cutter, .number = number, .text = text, .bytes = bytes};
    if (!step->code)
        return cut_at_marks(cutter, number, text, bytes);
    return step->behavior <= SPLIT_REMOVED ? cut_apart(&parts, step) : cut_and_join(&parts, step);
}

gyre_status_t tokenizer_cut(tokenizer_cutter_t *cutter, model_after_t after, const unsigned char *text,
                            size_t bytes, tokenizer_take_fn take, void *user)
{
    cutter->origin = text;
    cutter->after = after;
    cutter->take = take;
    cutter->user = user;
    return cut_from_step(cutter, 0, text, bytes);
}
