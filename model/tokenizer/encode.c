/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/encode.c: text to ids. Added tokens are taken from the text as it stands; what is between
 * them is normalized, and added tokens are taken from that, too; the rest is cut into pieces, whose ids
 * bpe.c, unigram.c or wordpiece.c find. Short pieces that have been seen are cached. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/hash.h"
#include "model/tokenizer/internal.h"
#include "model/tokenizer/sentencepiece.h"

#define CACHE       8192 /* pieces */
#define CACHE_BYTES 22
#define CACHE_IDS   8
typedef struct {
    unsigned char bytes, ids; /* bytes 0: empty */
    unsigned char piece[CACHE_BYTES];
    model_token_t id[CACHE_IDS];
} remembered_t;

struct model_encoder {
    const model_tokenizer_t *tokenizer;
    int specials;                 /* special tokens are taken from text */
    const model_token_t *refused; /* [refused_count], borrowed: never are */
    size_t refused_count;
    model_specials_t begin;
    tokenizer_cutter_t *cutter;
    tokenizer_normal_t *normal;
    tokenizer_bpe_t *bpe;
    tokenizer_unigram_t unigram;
    tokenizer_buffer_t word;
    tokenizer_buffer_t valid; /* the text, with U+FFFD for what is not UTF-8 */
    model_token_t *id;        /* [room] */
    size_t count, room;
    remembered_t *cache; /* [CACHE] */
};

gyre_status_t model_encoder_create(const model_tokenizer_t *tokenizer, model_encoder_t **out)
{
    model_encoder_t *encoder = calloc(1, sizeof *encoder);
    if (encoder)
        encoder->cache = calloc(CACHE, sizeof *encoder->cache);
    if (!encoder || !encoder->cache) {
        free(encoder);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to encode text");
    }
    encoder->tokenizer = tokenizer;
    gyre_status_t status = tokenizer_cutter_create(tokenizer->split, &encoder->cutter);
    if (status == GYRE_OK)
        status = tokenizer_normal_create(tokenizer->normalizer, &encoder->normal);
    if (status == GYRE_OK)
        status = tokenizer_bpe_create(&encoder->bpe);
    if (status != GYRE_OK) {
        model_encoder_destroy(encoder);
        return status;
    }
    *out = encoder;
    return GYRE_OK;
}

void model_encoder_destroy(model_encoder_t *encoder)
{
    if (!encoder)
        return;
    tokenizer_cutter_destroy(encoder->cutter);
    tokenizer_normal_destroy(encoder->normal);
    tokenizer_bpe_destroy(encoder->bpe);
    free(encoder->unigram.place);
    free(encoder->word.bytes);
    free(encoder->valid.bytes);
    free(encoder->id);
    free(encoder->cache);
    free(encoder);
}

void model_encoder_specials(model_encoder_t *encoder, int taken)
{
    encoder->specials = taken;
}

void model_encoder_begin(model_encoder_t *encoder, const model_specials_t *begin)
{
    encoder->begin = *begin;
}

void model_encoder_refuse(model_encoder_t *encoder, const model_token_t *ids, size_t count)
{
    encoder->refused = ids;
    encoder->refused_count = count;
}

static int is_refused(const model_encoder_t *e, model_token_t id)
{
    size_t i = 0;
    while (i < e->refused_count && e->refused[i] != id)
        i++;
    return i < e->refused_count;
}

static gyre_status_t make_room(model_encoder_t *e, size_t more)
{
    if (!base_grow(&e->id, &e->room, e->count, more, sizeof *e->id))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens", e->count + more);
    return GYRE_OK;
}

/* ---- pieces -------------------------------------------------------------------------------------------- */

static gyre_status_t take_piece(void *user, const unsigned char *piece, size_t bytes)
{
    model_encoder_t *e = user;
    gyre_status_t status = make_room(e, bytes);
    if (status != GYRE_OK)
        return status;
    remembered_t *seen = NULL;
    if (bytes <= CACHE_BYTES) {
        seen = &e->cache[base_hash64(piece, bytes, 0) % CACHE];
        if (seen->bytes == bytes && memcmp(seen->piece, piece, bytes) == 0) {
            memcpy(e->id + e->count, seen->id, seen->ids * sizeof *e->id);
            e->count += seen->ids;
            return GYRE_OK;
        }
    }
    model_token_t *made = e->id + e->count;
    size_t count = 0;
    if (e->tokenizer->kind == TOKENIZER_UNIGRAM)
        status = tokenizer_unigram_piece(&e->unigram, e->tokenizer, piece, bytes, made, &count);
    else if (e->tokenizer->kind == TOKENIZER_PIECES || e->tokenizer->kind == TOKENIZER_WORDS)
        status = tokenizer_word_piece(&e->word, e->tokenizer, piece, bytes, made, &count);
    else
        status = tokenizer_bpe_piece(e->bpe, e->tokenizer, piece, bytes, made, &count);
    e->count += count;
    if (status == GYRE_OK && seen && count <= CACHE_IDS) {
        seen->bytes = (unsigned char)bytes;
        seen->ids = (unsigned char)count;
        memcpy(seen->piece, piece, bytes);
        memcpy(seen->id, made, count * sizeof *made);
    }
    return status;
}

/* Cuts a piece before each mark that follows another character: no token reaches over such a place. */
static gyre_status_t take_between_marks(void *user, const unsigned char *piece, size_t bytes)
{
    const model_encoder_t *e = user;
    const unsigned char *mark = e->tokenizer->mark;
    const size_t width = e->tokenizer->mark_bytes;
    gyre_status_t status = GYRE_OK;
    for (size_t done = 0, end; status == GYRE_OK && done < bytes; done = end) {
        for (end = done; bytes - end >= width && memcmp(piece + end, mark, width) == 0;)
            end += width;
        const unsigned char *next = memmem(piece + end, bytes - end, mark, width);
        end = next ? (size_t)(next - piece) : bytes;
        status = take_piece(user, piece + done, end - done);
    }
    return status;
}

/* ---- added tokens -------------------------------------------------------------------------------------- */

/* Whether text[begin .. end) is the token, and *begin and *end with the spaces that it takes. */
static int accept_added(const model_encoder_t *e, const tokenizer_added_t *added, const unsigned char *text,
                        size_t bytes, size_t from, size_t *begin, size_t *end)
{
    uint32_t c = 0;
    size_t n;
    if ((added->special && !e->specials) || is_refused(e, (model_token_t)added->id))
        return 0;
    if (added->single_word && *begin > 0 && tokenizer_before(text, *begin, &c) > 0 && tokenizer_is_word(c))
        return 0;
    if (added->single_word && base_utf8_decode(text + *end, bytes - *end, &c) > 0 && tokenizer_is_word(c))
        return 0;
    if (added->lstrip)
        while (*begin > from && (n = tokenizer_before(text, *begin, &c)) > 0 && base_utf8_is_space(c))
            *begin -= n;
    if (added->rstrip)
        while ((n = base_utf8_decode(text + *end, bytes - *end, &c)) > 0 && base_utf8_is_space(c))
            *end += n;
    return *begin >= from;
}

typedef gyre_status_t (*between_fn)(model_encoder_t *e, model_after_t after, const unsigned char *text,
                                    size_t bytes);

/* The ids of added tokens in their places, and between(...) for what is between. */
static gyre_status_t encode_around(model_encoder_t *e, const tokenizer_words_t *words, model_after_t after,
                                   const unsigned char *text, size_t bytes, between_fn between)
{
    size_t from = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && words->count > 0 && at < bytes;) {
        size_t begin = at;
        const tokenizer_word_t *longest = NULL, *word;
        tokenizer_walk_t walk = tokenizer_walk(words, text[at]);
        while ((word = tokenizer_walk_next(words, &walk, text + at, bytes - at)))
            if (!longest || word->count > longest->count)
                longest = word;
        if (!longest) {
            at++;
            continue;
        }
        const tokenizer_added_t *added = &e->tokenizer->added[longest->value];
        at += longest->count;
        size_t end = at;
        if (!accept_added(e, added, text, bytes, from, &begin, &end))
            continue;
        if (begin > from)
            status = between(e, after, text + from, begin - from);
        if (status == GYRE_OK && (status = make_room(e, 1)) == GYRE_OK)
            e->id[e->count++] = (model_token_t)added->id;
        from = end;
        after = MODEL_AFTER_TOKEN;
    }
    return status == GYRE_OK && from < bytes ? between(e, after, text + from, bytes - from) : status;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static gyre_status_t encode_normal(model_encoder_t *e, model_after_t after, const unsigned char *text,
                                   size_t bytes)
{
    return tokenizer_cut(e->cutter, after, text, bytes,
                         e->tokenizer->cut_marks ? take_between_marks : take_piece, e);
}

/* Valid UTF-8 is normalized. Bytes that are not are pieces; the text ends before them and begins anew after
 * them. */
static gyre_status_t encode_section(model_encoder_t *e, model_after_t after, const unsigned char *text,
                                    size_t bytes)
{
    gyre_status_t status = GYRE_OK;
    for (size_t done = 0; status == GYRE_OK && done < bytes;) {
        const unsigned char *normal;
        size_t bad, count, run = tokenizer_valid_run(text + done, bytes - done, &bad);
        if (run == 0)
            status = take_piece(e, text + done, run = bad);
        else if ((status = tokenizer_normalize(e->normal, after, text + done, run, &normal, &count)) ==
                 GYRE_OK)
            status = encode_around(e, &e->tokenizer->normal, after, normal, count, encode_normal);
        done += run;
        after = MODEL_AFTER_TOKEN;
    }
    return status;
}

/* The library takes its symbols from any text: those that are refused are encoded anew, in two parts. */
static gyre_status_t encode_by_library(model_encoder_t *e, model_after_t after, const unsigned char *text,
                                       size_t bytes)
{
    int32_t *ids = NULL;
    size_t count = 0;
    gyre_status_t status =
        tokenizer_library_encode(e->tokenizer->library, after == MODEL_AFTER_TEXT, text, bytes, &ids, &count);
    for (size_t i = 0; status == GYRE_OK && i < count; i++) {
        const tokenizer_token_t *token = &e->tokenizer->token[ids[i]];
        const unsigned char *letters = e->tokenizer->blob + token->at;
        uint32_t c;
        const size_t one = is_refused(e, ids[i]) ? base_utf8_decode(letters, token->count, &c) : 0;
        if (one == 0 || one == token->count) {
            if ((status = make_room(e, count - i)) == GYRE_OK)
                e->id[e->count++] = ids[i];
        } else if ((status = encode_by_library(e, MODEL_AFTER_TEXT, letters, one)) == GYRE_OK)
            status = encode_by_library(e, MODEL_AFTER_TEXT, letters + one, token->count - one);
    }
    free(ids);
    return status;
}

/* Tokenizers of characters get U+FFFD for what is not UTF-8. */
static gyre_status_t make_valid(model_encoder_t *e, const unsigned char **text, size_t *bytes)
{
    size_t bad;
    if (tokenizer_valid_run(*text, *bytes, &bad) == *bytes)
        return GYRE_OK;
    e->valid.count = 0;
    gyre_status_t status = tokenizer_replace_bad(&e->valid, *text, *bytes);
    *text = e->valid.bytes;
    *bytes = e->valid.count;
    return status;
}

gyre_status_t model_encode_after(model_encoder_t *encoder, model_after_t after, const void *text,
                                 size_t bytes, const model_token_t **ids, size_t *count)
{
    const model_tokenizer_t *t = encoder->tokenizer;
    const unsigned char *byte = text;
    encoder->count = 0;
    gyre_status_t status = make_room(encoder, MODEL_SPECIALS);
    const size_t begin = after == MODEL_AFTER_NOTHING ? encoder->begin.count : 0;
    for (; status == GYRE_OK && encoder->count < begin; encoder->count++)
        encoder->id[encoder->count] = encoder->begin.id[encoder->count];
    if (status == GYRE_OK && t->kind != TOKENIZER_BYTES && t->kind != TOKENIZER_MODEL)
        status = make_valid(encoder, &byte, &bytes);
    if (status == GYRE_OK && t->kind == TOKENIZER_MODEL)
        status = encode_by_library(encoder, after, byte, bytes);
    else if (status == GYRE_OK && t->kind == TOKENIZER_BYTES && !t->split && t->merged && t->merges == 0 &&
             t->added_count == 0) { /* "bytes" */
        if ((status = make_room(encoder, bytes)) == GYRE_OK)
            for (size_t i = 0; i < bytes; i++)
                encoder->id[encoder->count++] = (model_token_t)t->byte_id[byte[i]];
    } else if (status == GYRE_OK)
        status = encode_around(encoder, &t->raw, after, byte, bytes, encode_section);
    if (status != GYRE_OK)
        return status;
    *ids = encoder->id;
    *count = encoder->count;
    return GYRE_OK;
}

gyre_status_t model_encode(model_encoder_t *encoder, const void *text, size_t bytes,
                           const model_token_t **ids, size_t *count)
{
    return model_encode_after(encoder, MODEL_AFTER_NOTHING, text, bytes, ids, count);
}
