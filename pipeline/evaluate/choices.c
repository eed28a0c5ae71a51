/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/choices.c: choices as tokens after a context, and the best of their scores. */
#include "pipeline/evaluate/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"

/* What one choice is encoded with. */
typedef struct {
    const pipe_questions_t *questions;
    model_encoder_t *encoder;
    size_t seq;
    int cut;
    pipe_prompts_t *prompts;
    size_t *cuts;
    char *text;         /* context, a space, choice */
    model_token_t *ids; /* of both together, once more */
    size_t text_room, id_room;
} encoding_t;

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of a question");
}

/* Room for a text of so many bytes, the last of them NUL, and for so many ids. */
static gyre_status_t make_room(encoding_t *e, size_t bytes, size_t ids)
{
    if (!base_grow(&e->text, &e->text_room, 0, bytes, 1) ||
        !base_grow(&e->ids, &e->id_room, 0, ids, sizeof *e->ids))
        return no_memory();
    return GYRE_OK;
}

/* Bytes of a context without spaces at its end. */
static size_t context_bytes(const char *context)
{
    size_t n = strlen(context);
    while (n > 0 && strchr(" \t\n\r\v\f", context[n - 1]))
        n--;
    return n;
}

/* `context` ids and `choice` ids after them, cut where they must be. */
static gyre_status_t add(encoding_t *e, const pipe_question_t *q, size_t c, size_t context, size_t choice)
{
    const char *path = e->questions->path;
    size_t most = e->seq + 1, left_out = 0; /* the last token is not read */
    if (context == 0)
        return gyre_fail(GYRE_ERR_INVALID, "%s:%zu: the context has no tokens", path, q->line);
    if (choice == 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s:%zu: choice %zu adds no token to its context: the tokenizer may not be the model's", path,
            q->line, c + 1);
    if (choice >= most)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s:%zu: choice %zu has %zu tokens alone, but the model has %zu positions", path,
                         q->line, c + 1, choice, e->seq);
    if (context + choice > most) {
        left_out = context + choice - most;
        ++*e->cuts;
        if (!e->cut)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s:%zu: context and choice %zu have %zu and %zu tokens, but the model has %zu "
                             "positions: --long cut leaves out the context's beginning",
                             path, q->line, c + 1, context, choice, e->seq);
    }
    return pipe_prompts_add(e->prompts, e->ids + left_out, context - left_out, choice);
}

static gyre_status_t encode(encoding_t *e, const pipe_question_t *q, size_t c)
{
    const size_t before = context_bytes(q->context), all = strlen(q->context) + 1 + strlen(q->choice[c]);
    const model_token_t *ids = NULL;
    size_t context = 0, both = 0;
    gyre_status_t status = make_room(e, all + 1, 1);
    if (status != GYRE_OK)
        return status;
    snprintf(e->text, all + 1, "%s %s", q->context, q->choice[c]);
    status = model_encode(e->encoder, e->text, all, &ids, &both);
    if (status == GYRE_OK)
        status = make_room(e, all + 1, both + 1);
    if (status != GYRE_OK)
        return status;
    memcpy(e->ids, ids, both * sizeof *ids);
    status = model_encode(e->encoder, e->text, before, &ids, &context);
    if (status != GYRE_OK)
        return status;
    memcpy(e->ids, ids, base_min_size(context, both) * sizeof *ids); /* those of the context alone */
    return add(e, q, c, context, both - base_min_size(context, both));
}

gyre_status_t pipe_choices_encode(const pipe_questions_t *questions, model_encoder_t *encoder, size_t seq,
                                  int cut, pipe_prompts_t *prompts, size_t *cuts)
{
    encoding_t e = {
        .questions = questions, .encoder = encoder, .seq = seq, .cut = cut, .prompts = prompts, .cuts = cuts};
    *cuts = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < questions->count; i++)
        for (size_t c = 0; status == GYRE_OK && c < questions->question[i].choices; c++)
            status = encode(&e, &questions->question[i], c);
    free(e.text);
    free(e.ids);
    return status;
}

size_t pipe_choice_characters(const char *choice)
{
    size_t n = 0;
    for (; *choice; choice++)
        n += ((unsigned char)*choice & 0xc0) != 0x80;
    return n;
}

void pipe_choices_count(const pipe_questions_t *questions, const double *score, size_t right[PIPE_ACCS])
{
    memset(right, 0, PIPE_ACCS * sizeof *right);
    for (size_t i = 0; i < questions->count; i++) {
        const pipe_question_t *q = &questions->question[i];
        size_t best[PIPE_ACCS] = {0};
        double most[PIPE_ACCS] = {0};
        for (size_t c = 0; c < q->choices; c++, score++) {
            const double value[PIPE_ACCS] = {*score, *score / (double)pipe_choice_characters(q->choice[c]),
                                             *score / (double)strlen(q->choice[c])};
            for (int a = 0; a < PIPE_ACCS; a++)
                if (c == 0 || value[a] > most[a]) {
                    best[a] = c;
                    most[a] = value[a];
                }
        }
        for (int a = 0; a < PIPE_ACCS; a++)
            right[a] += best[a] == q->answer;
    }
}
