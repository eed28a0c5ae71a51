/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/infill.c: draws blanks and lays them out. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/data/infill.h"

#define SHORT_SHARE   0.3 /* of the sequences */
#define SHORT_PERCENT 15  /* of their text */
#define SHORT_MEAN    3.0
#define SHORT_LONGEST 39
#define END_PERCENT   20 /* of the text, at least */
#define SEQ_LEAST     8

typedef struct {
    size_t begin, length; /* in the text */
    int32_t at;           /* position of its [MASK] */
} blank_t;

struct model_infill {
    model_infill_ids_t ids;
    size_t seq;
    double below[SHORT_LONGEST]; /* [k]: probability that a blank has at most k + 1 tokens */
    blank_t *blank;              /* [seq / 2] */
    model_token_t *text;         /* [seq] */
};

typedef struct {
    uint64_t seed, number;
    model_random_use_t use;
    uint32_t next;
} draw_t;

static size_t draw_below(draw_t *d, size_t n)
{
    return (size_t)(model_random_bits(d->seed, d->use, d->next++, d->number) % n);
}

static double draw_uniform(draw_t *d)
{
    return model_random_uniform(d->seed, d->use, d->next++, d->number);
}

model_infill_ids_t model_infill_ids_last(size_t vocab)
{
    model_token_t first = (model_token_t)(vocab - MODEL_INFILL_IDS);
    return (model_infill_ids_t){.mask = first, .gmask = first + 1, .sop = first + 2, .eop = first + 3};
}

static gyre_status_t check_ids(const model_infill_ids_t *ids, size_t vocab)
{
    const model_token_t id[MODEL_INFILL_IDS] = {ids->mask, ids->gmask, ids->sop, ids->eop};
    for (size_t i = 0; i < MODEL_INFILL_IDS; i++) {
        if (id[i] < 0 || (size_t)id[i] >= vocab)
            return gyre_fail(GYRE_ERR_INVALID, "id %d for blank infilling: the vocabulary is 0..%zu",
                             (int)id[i], vocab - 1);
        for (size_t j = 0; j < i; j++)
            if (id[i] == id[j])
                return gyre_fail(GYRE_ERR_INVALID,
                                 "id %d is named twice: [MASK], [gMASK], [sop] and [eop] need one each",
                                 (int)id[i]);
    }
    return GYRE_OK;
}

/* Sums of 3^k / k!, divided by the last. Only products and sums: every machine has the same bits. */
static void fill_lengths(double below[SHORT_LONGEST])
{
    double term = 1.0, sum = 0.0;
    for (int k = 1; k <= SHORT_LONGEST; k++) {
        term = term * SHORT_MEAN / k;
        sum += term;
        below[k - 1] = sum;
    }
    for (int k = 0; k < SHORT_LONGEST; k++)
        below[k] /= sum;
}

gyre_status_t model_infill_create(const model_infill_ids_t *ids, size_t vocab, size_t seq,
                                  model_infill_t **out)
{
    gyre_status_t status = check_ids(ids, vocab);
    if (status != GYRE_OK)
        return status;
    if (seq < SEQ_LEAST)
        return gyre_fail(GYRE_ERR_INVALID, "blank infilling needs sequences of %d tokens or more, not %zu",
                         SEQ_LEAST, seq);
    model_infill_t *infill = calloc(1, sizeof *infill);
    if (infill) {
        infill->blank = calloc(seq / 2, sizeof *infill->blank);
        infill->text = calloc(seq, sizeof *infill->text);
    }
    if (!infill || !infill->blank || !infill->text) {
        model_infill_destroy(infill);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blanks of %zu tokens", seq);
    }
    infill->ids = *ids;
    infill->seq = seq;
    fill_lengths(infill->below);
    *out = infill;
    return GYRE_OK;
}

void model_infill_destroy(model_infill_t *infill)
{
    if (!infill)
        return;
    free(infill->blank);
    free(infill->text);
    free(infill);
}

/* ---- the end is missing -------------------------------------------------------------------------------- */

static void lay_out_end(const model_infill_t *infill, draw_t *d, model_example_t *out)
{
    size_t length = infill->seq - 1, least = length * END_PERCENT / 100;
    least = least > 0 ? least : 1;
    size_t kept = length - least - draw_below(d, length - least + 1);
    const model_token_t *text = infill->text;
    memcpy(out->tokens, text, kept * sizeof *text);
    out->tokens[kept] = infill->ids.gmask;
    out->tokens[kept + 1] = infill->ids.sop;
    memcpy(out->tokens + kept + 2, text + kept, (length - kept - 1) * sizeof *text);
    memcpy(out->targets + kept + 1, text + kept, (length - kept) * sizeof *text);
    out->prefix = kept + 1;
    for (size_t t = 0; t < infill->seq; t++)
        out->positions[t] = (int32_t)t;
}

/* ---- short blanks -------------------------------------------------------------------------------------- */

/* Lengths of blanks until enough is gone of the text that fills the sequence with them: a blank adds [MASK]
 * and [sop], so n tokens of text with m blanks are n + 2 m. As many tokens stay as there are blanks, at
 * least. */
static size_t draw_lengths(model_infill_t *infill, draw_t *d, size_t *text, size_t *gone)
{
    size_t count = 0;
    *text = infill->seq;
    *gone = 0;
    do {
        double u = draw_uniform(d);
        size_t length = 1, room;
        while (length < SHORT_LONGEST && u >= infill->below[length - 1])
            length++;
        *text -= 2;
        room = *text - *gone - (count + 1);
        infill->blank[count].length = length < room ? length : room;
        *gone += infill->blank[count++].length;
    } while (*gone < *text * SHORT_PERCENT / 100);
    return count;
}

/* Where they begin: so many places among the tokens that stay, in order, a token or more apart. */
static void draw_places(model_infill_t *infill, draw_t *d, size_t count, size_t free_tokens)
{
    blank_t *blank = infill->blank;
    for (size_t i = 0; i < count; i++) {
        size_t place = draw_below(d, free_tokens + 1), at = i;
        for (; at > 0 && blank[at - 1].begin > place; at--)
            blank[at].begin = blank[at - 1].begin;
        blank[at].begin = place;
    }
    for (size_t i = 0, before = 0; i < count; i++) {
        blank[i].begin += before;
        before += blank[i].length + 1;
    }
}

static void shuffle(blank_t *blank, draw_t *d, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = draw_below(d, i);
        const blank_t keep = blank[i - 1];
        blank[i - 1] = blank[j];
        blank[j] = keep;
    }
}

static void lay_out_short(model_infill_t *infill, draw_t *d, model_example_t *out)
{
    size_t length, gone, count = draw_lengths(infill, d, &length, &gone), at = 0, from = 0;
    blank_t *blank = infill->blank;
    draw_places(infill, d, count, length - gone - (count - 1));
    for (size_t i = 0; i <= count; i++) {
        size_t until = i < count ? blank[i].begin : length;
        memcpy(out->tokens + at, infill->text + from, (until - from) * sizeof *out->tokens);
        at += until - from;
        if (i == count)
            break;
        blank[i].at = (int32_t)at;
        out->tokens[at++] = infill->ids.mask;
        from = until + blank[i].length;
    }
    out->prefix = at;
    for (size_t t = 0; t < at; t++)
        out->positions[t] = (int32_t)t;
    shuffle(blank, d, count);
    for (size_t i = 0; i < count; i++) {
        const model_token_t *text = infill->text + blank[i].begin;
        size_t n = blank[i].length;
        out->tokens[at] = infill->ids.sop;
        memcpy(out->tokens + at + 1, text, n * sizeof *text);
        memcpy(out->targets + at, text, n * sizeof *text);
        out->targets[at + n] = infill->ids.eop;
        for (size_t j = 0; j <= n; j++)
            out->positions[at + j] = blank[i].at;
        at += n + 1;
    }
}

gyre_status_t model_infill_make(model_infill_t *infill, uint64_t seed, model_random_use_t use,
                                uint64_t number, model_example_t *example)
{
    const model_infill_ids_t *ids = &infill->ids;
    draw_t d = {.seed = seed, .number = number, .use = use};
    if (!example->positions)
        return gyre_fail(GYRE_ERR_INVALID,
                         "blank infilling needs a model with prefixes and rotary positions");
    for (size_t t = 0; t < infill->seq; t++) {
        model_token_t id = infill->text[t] = example->tokens[t];
        if (id == ids->mask || id == ids->gmask || id == ids->sop || id == ids->eop)
            return gyre_fail(
                GYRE_ERR_FORMAT,
                "the data holds id %d, which blank infilling has for itself: name ids that no text "
                "has with --infill-ids",
                (int)id);
    }
    if (draw_uniform(&d) < SHORT_SHARE)
        lay_out_short(infill, &d, example);
    else
        lay_out_end(infill, &d, example);
    memcpy(example->targets, example->tokens,
           example->prefix * sizeof *example->targets); /* no loss reads them */
    return GYRE_OK;
}
