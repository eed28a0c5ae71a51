/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/sample.c: the window that a model sees of its text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/network/decode/decode.h"
#include "pipeline/generate/draw.h"
#include "pipeline/train/sample.h"

#define TOGETHER 64 /* rows at a time: enough for good products, little memory */

/* What a model reads next, and the logits that it then has. */
typedef struct {
    model_decoder_t *decoder;
    size_t seq, vocab, rows;
    size_t unread; /* tokens at the end of the text that it has not read */
    size_t begin;  /* with infill: where what is said for the present blank begins */
    int started;
    model_token_t *window; /* [seq] */
    float *logits;         /* [vocab_padded] */
} reader_t;

/* n tokens, as many at a time as the model takes; a prefix at once. */
static gyre_status_t read_tokens(reader_t *r, const model_token_t *tokens, size_t n, int open)
{
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0, count; status == GYRE_OK && at < n; at += count) {
        count = base_min_size(n - at, r->rows);
        const model_piece_t piece = {.tokens = tokens + at, .count = count, .open = open};
        status = model_decoder_read(r->decoder, &piece, 1, NULL, NULL, r->logits);
    }
    return status;
}

/* The text so far. When the model has no place for more it forgets the older half of it: to let the window
 * slide would cost all of its positions for each token, since they all move. */
static gyre_status_t read_text(reader_t *r, const model_token_t *tokens, size_t length)
{
    size_t keep = r->started ? (r->seq + 1) / 2 : r->seq;
    r->unread = r->started ? r->unread : length;
    if (model_decoder_length(r->decoder, 0) + r->unread > r->seq) {
        model_decoder_reset(r->decoder, 0);
        r->unread = length < keep ? length : keep;
    }
    return read_tokens(r, tokens + length - r->unread, r->unread, 0);
}

/* The same of a model that fills blanks: the text up to r->begin, as much as leaves half of the window free,
 * and [gMASK] are the prefix; then come [sop] and what has been said since. When that is half of the window
 * it becomes text to go on from. */
static gyre_status_t read_blank(reader_t *r, const model_infill_ids_t *ids, const model_token_t *tokens,
                                size_t length)
{
    const size_t half = r->seq / 2, room = r->seq - 2 - half;
    if (r->started && length - r->begin < half)
        return read_tokens(r, tokens + length - 1, 1, 0);
    size_t kept = length < room ? length : room;
    r->begin = length;
    memcpy(r->window, tokens + length - kept, kept * sizeof *r->window);
    r->window[kept] = ids->gmask;
    model_decoder_reset(r->decoder, 0);
    gyre_status_t status = read_tokens(r, r->window, kept + 1, 1);
    return status == GYRE_OK ? read_tokens(r, &ids->sop, 1, 0) : status;
}

/* All tokens of `count` more, each from the logits of the position before it. scratch: [vocab]. */
static gyre_status_t grow(reader_t *r, const model_sample_t *how, model_token_t *tokens, size_t *length,
                          size_t count, float *scratch)
{
    const pipe_draw_t draw = {.temperature = how->temperature, .top_k = how->top_k, .seed = how->seed};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < count; i++) {
        status = how->infill ? read_blank(r, how->infill, tokens, *length) : read_text(r, tokens, *length);
        if (status == GYRE_OK)
            tokens[(*length)++] = (model_token_t)pipe_draw(&draw, r->logits, r->vocab, 0, i, scratch);
        r->started = 1;
        r->unread = 1;
    }
    return status;
}

gyre_status_t model_sample(const model_params_t *whole, const float *weights, const model_sample_t *how,
                           model_token_t *tokens, size_t *length, size_t count)
{
    const model_config_t *config = &whole->config;
    if (*length < 1 || !(how->temperature >= 0.0) || !isfinite(how->temperature))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "sampling needs a prompt of 1 token or more, not %zu, and a temperature of 0 or more, not %g",
            *length, how->temperature);
    if (how->infill && config->seq < 4)
        return gyre_fail(GYRE_ERR_INVALID, "filling a blank needs 4 positions or more, not %zu", config->seq);
    float *scratch = calloc(config->vocab, sizeof *scratch);
    reader_t reader = {.seq = config->seq,
                       .vocab = config->vocab,
                       .rows = config->prefix ? config->seq : base_min_size(config->seq, TOGETHER),
                       .window = calloc(config->seq, sizeof *reader.window),
                       .logits = calloc(config->vocab_padded, sizeof *reader.logits)};
    const model_decoder_config_t how_read = {.params = whole,
                                             .weights = weights,
                                             .tp = {.size = 1},
                                             .layers = config->layers,
                                             .embed = 1,
                                             .head = 1,
                                             .slots = 1,
                                             .rows = reader.rows,
                                             .fast = 1};
    gyre_status_t status;
    if (!scratch || !reader.window || !reader.logits)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the logits of %zu tokens", config->vocab);
    else if ((status = model_decoder_create(&how_read, &reader.decoder)) == GYRE_OK)
        status = grow(&reader, how, tokens, length, count, scratch);
    model_decoder_destroy(reader.decoder);
    free(scratch);
    free(reader.window);
    free(reader.logits);
    return status;
}
