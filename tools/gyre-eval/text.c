/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval/text.c: a file of text or tokens, as ids on every rank, and its perplexity. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "pipeline/agree/agree.h"
#include "tools/gyre-eval/eval.h"

enum { CHUNK = 1 << 16, LONG_WINDOW = 4096 };

static int is_bytes(const model_tokenizer_t *tokenizer)
{
    return tokenizer && strcmp(model_tokenizer_name(tokenizer), "bytes") == 0;
}

/* Ids as they are stored. */
static gyre_status_t read_ids(const eval_t *eval, const model_tokens_t *tokens, pipe_prompts_t *ids)
{
    const size_t vocab = pipe_source_model(eval->part.source)->vocab, limit = eval->options->limit;
    const uint64_t count = limit > 0 && limit < tokens->count ? limit : tokens->count;
    model_token_t *chunk = calloc(CHUNK, sizeof *chunk);
    gyre_status_t status =
        chunk ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", tokens->path);
    for (uint64_t at = 0; status == GYRE_OK && at < count; at += CHUNK) {
        const size_t n = (size_t)(count - at < CHUNK ? count - at : CHUNK);
        status = model_tokens_read(tokens, at, n, vocab, chunk);
        if (status == GYRE_OK)
            status = pipe_prompts_extend(ids, chunk, n);
    }
    free(chunk);
    return status;
}

/* Adds the bytes of a text's first token that are not of the text: some tokenizers put a space in front. */
static gyre_status_t add_spare(const model_tokenizer_t *tokenizer, model_token_t first, size_t *spare)
{
    unsigned char *text;
    size_t whole = 0, own;
    gyre_status_t status = model_decode(tokenizer, &first, 1, &text, &own);
    if (status != GYRE_OK)
        return status;
    if (model_tokenizer_bytes(tokenizer, first, &whole) && whole > own)
        *spare += whole - own;
    free(text);
    return GYRE_OK;
}

/* Text as the tokenizer's ids, file by file; what it puts in front of a text is in front of the first.
 * *spare: bytes of scored tokens that are not of a text. */
static gyre_status_t encode(const eval_t *eval, const model_tokens_t *tokens, pipe_prompts_t *ids,
                            size_t *spare)
{
    const size_t limit = eval->options->limit ? eval->options->limit : SIZE_MAX;
    const model_specials_t nothing = {0};
    model_encoder_t *encoder = NULL;
    gyre_status_t status = model_encoder_create(eval->tokenizer, &encoder);
    for (size_t p = 0; status == GYRE_OK && ids->total < limit && p < tokens->parts; p++) {
        const model_tokens_part_t *part = &tokens->part[p];
        const model_token_t *made = NULL;
        const size_t before = p == 0 ? eval->begin.count : 0;
        const size_t bytes = (size_t)part->count, good = base_utf8_span(part->at, bytes);
        size_t count = 0;
        if (good < bytes)
            status = gyre_fail(GYRE_ERR_INVALID,
                               "%s is not UTF-8: byte 0x%02x at its offset %zu: convert the text, or give "
                               "--tokenizer bytes, if the model's ids are bytes",
                               tokens->file[part->file].path, part->at[good], good);
        model_encoder_begin(encoder, p == 0 ? &eval->begin : &nothing);
        if (status == GYRE_OK)
            status = model_encode(encoder, part->at, bytes, &made, &count);
        const size_t kept = base_min_size(count, limit - ids->total);
        if (status == GYRE_OK && kept > before &&
            ids->total + before > 0) /* the first of all is not scored */
            status = add_spare(eval->tokenizer, made[before], spare);
        if (status == GYRE_OK)
            status = pipe_prompts_extend(ids, made, kept);
    }
    model_encoder_destroy(encoder);
    return status;
}

/* A token file must be of the model's tokenizer, as far as both are known. */
static gyre_status_t check_tokenizer(const eval_t *eval, const model_tokens_t *tokens)
{
    const model_tokenizer_t *own = eval->tokenizer;
    const pipe_tokenizer_t of_file = pipe_tokenizer_named(tokens->tokenizer, tokens->tokenizer_hash);
    gyre_status_t status = pipe_tokenizer_compare(pipe_source_learned(eval->part.source),
                                                  eval->options->part.source.path, tokens->path, &of_file);
    if (status != GYRE_OK)
        return status;
    if (!tokens->tokenizer_hash || !own || tokens->tokenizer_hash == model_tokenizer_hash(own))
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s was written with tokenizer '%s' (%016" PRIx64 "), but the model's is '%s' (%016" PRIx64
        "): write it again with that; if only the kind of file differs, and the ids are the same, "
        "name the file's with --tokenizer",
        tokens->path, tokens->tokenizer, tokens->tokenizer_hash, model_tokenizer_name(own),
        model_tokenizer_hash(own));
}

/* Rank 0. */
static gyre_status_t read_text(const eval_t *eval, const char *path, pipe_prompts_t *ids, size_t *spare)
{
    model_tokens_t *tokens;
    gyre_status_t status = model_tokens_open(path, eval->options->format, &tokens);
    if (status != GYRE_OK)
        return status;
    const int text = tokens->format == MODEL_TOKENS_TEXT;
    status = text ? GYRE_OK : check_tokenizer(eval, tokens);
    if (status == GYRE_OK && text && !eval->tokenizer)
        status = pipe_source_no_tokenizer(eval->part.source);
    if (status == GYRE_OK)
        status = pipe_prompts_add(ids, NULL, 0, 0);
    if (status == GYRE_OK)
        status = text && !is_bytes(eval->tokenizer) ? encode(eval, tokens, ids, spare)
                                                    : read_ids(eval, tokens, ids);
    if (status == GYRE_OK && ids->total < 2)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "%s has %zu token%s: 2 or more are needed, since the first is not scored", path,
                           ids->total, ids->total == 1 ? "" : "s");
    model_tokens_close(tokens);
    return status;
}

/* Bytes of text that all tokens but the first stand for. An end of text and special tokens stand for none. */
static size_t count_bytes(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count)
{
    size_t sum = 0, one;
    for (size_t i = 1; tokenizer && i < count; i++)
        if (tokens[i] != model_tokenizer_eot(tokenizer) && !model_tokenizer_special(tokenizer, tokens[i]) &&
            model_tokenizer_bytes(tokenizer, tokens[i], &one))
            sum += one;
    return sum;
}

/* A model of 131,072 positions takes its time for a line of text. Only of the first text: if that is long
 * enough, so is the longest, for which --seq would have to be. */
static void warn_of_positions(eval_t *eval, const char *path, size_t tokens)
{
    const size_t seq = pipe_source_model(eval->part.source)->seq;
    if (!eval->warned && seq >= LONG_WINDOW && tokens < seq / 4)
        log_warning(
            "%s has %zu tokens, but all %zu positions of a window are computed: --seq with as many as "
            "the longest text has is quicker",
            path, tokens, seq);
    eval->warned = 1;
}

gyre_status_t eval_text(eval_t *eval, const char *path)
{
    const size_t stride =
        eval->options->stride ? eval->options->stride : pipe_source_model(eval->part.source)->seq;
    pipe_prompts_t ids = {0};
    pipe_perplexity_t perplexity;
    float *said = NULL;
    size_t spare = 0;
    gyre_status_t status = gyre_comm_rank(eval->comm) == 0 ? read_text(eval, path, &ids, &spare) : GYRE_OK;
    status = pipe_prompts_share(eval->comm, status, &ids);
    if (status == GYRE_OK) {
        said = calloc(ids.total, sizeof *said);
        status = said ? GYRE_OK
                      : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the log-probabilities of %zu tokens",
                                  ids.total);
        status = pipe_agree(eval->comm, status, NULL);
    }
    if (status == GYRE_OK && eval->results)
        warn_of_positions(eval, path, ids.total);
    if (status == GYRE_OK)
        status = pipe_perplexity(eval->evaluator, ids.tokens, ids.total, stride, said, &perplexity);
    if (status == GYRE_OK && eval->results && !isfinite(perplexity.nats))
        log_warning("%s: its log-probabilities are no finite numbers: %s", path,
                    pipe_source_overflow(eval->part.source));
    if (status == GYRE_OK && eval->results)
        results_text(eval->results, path, ids.tokens, ids.total, said,
                     count_bytes(eval->tokenizer, ids.tokens, ids.total) - spare, &perplexity);
    free(said);
    pipe_prompts_free(&ids);
    return status;
}
