/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/show.c: what a token file holds, and its text. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tools/gyre-tokenize/tokenize.h"

static uint64_t count_learned(const model_tokens_t *tokens)
{
    uint64_t learned = 0, at = 0;
    while ((at = model_tokens_next_learned(tokens, at, tokens->count)) < tokens->count) {
        learned++;
        at++;
    }
    return learned;
}

gyre_status_t tokenize_info(const tokenize_options_t *options)
{
    static const char *const types[] = {"8 bits",         "8 bits signed", "16 bits",       "16 bits signed",
                                        "32 bits signed", "32 bits",       "64 bits signed"};
    model_tokens_t *tokens;
    model_token_t most;
    gyre_status_t status = model_tokens_open(options->info, options->format, &tokens);
    if (status != GYRE_OK)
        return status;
    printf("format      %s\n", model_tokens_format_name(tokens->format));
    printf("files       %zu\n", tokens->files);
    printf("tokens      %" PRIu64 "\n", tokens->count);
    printf("width       %s\n", types[tokens->file[0].type]);
    if (tokens->documents > 0)
        printf("documents   %" PRIu64 "\n", tokens->documents);
    else
        printf("documents   not in this format\n");
    if (tokens->masked)
        printf("learned     %" PRIu64 " tokens\n", count_learned(tokens));
    if (tokens->vocab > 0)
        printf("vocabulary  %zu\n", tokens->vocab);
    else
        printf("vocabulary  not in this format\n");
    if (*tokens->tokenizer)
        printf("tokenizer   %s\n", tokens->tokenizer);
    if (tokens->tokenizer_hash)
        printf("            %016" PRIx64 "\n", tokens->tokenizer_hash);
    if (tokens->eot >= 0)
        printf("end of text %" PRId64 "\n", tokens->eot);
    fflush(stdout);
    uint64_t hash = 0;
    if ((status = model_tokens_verify(tokens, tokens->vocab, &most)) == GYRE_OK &&
        (status = model_tokens_hash(tokens, &hash)) == GYRE_OK) {
        printf("largest id  %d\n", (int)most);
        printf("content     %016" PRIx64 "\n", hash);
        printf("checked     %s\n",
               tokens->format == MODEL_TOKENS_GYRE ? "checksums, documents, every id" : "every id");
    }
    model_tokens_close(tokens);
    return status;
}

/* The tokenizer that wrote the file, as far as that is known. */
static gyre_status_t open_tokenizer(const tokenize_options_t *options, const model_tokens_t *tokens,
                                    model_tokenizer_t **out)
{
    const char *spec = options->tokenizer                        ? options->tokenizer
                       : strcmp(tokens->tokenizer, "bytes") == 0 ? "bytes"
                                                                 : NULL;
    if (!spec)
        return gyre_fail(GYRE_ERR_INVALID, "%s holds ids of tokenizer '%s': name its file with --tokenizer",
                         options->decode, *tokens->tokenizer ? tokens->tokenizer : "unknown");
    gyre_status_t status = model_tokenizer_open(spec, out);
    if (status != GYRE_OK || tokens->tokenizer_hash == 0 ||
        tokens->tokenizer_hash == model_tokenizer_hash(*out))
        return status;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s was written with tokenizer '%s' (%016" PRIx64 "), but %s is another (%016" PRIx64 ")",
        options->decode, tokens->tokenizer, tokens->tokenizer_hash, spec, model_tokenizer_hash(*out));
}

/* The text of ids that begin a text, or that go on with one: then a space in front stays. */
static gyre_status_t text_of(const model_tokenizer_t *tokenizer, int begins, const model_token_t *id,
                             size_t n, unsigned char **text, size_t *bytes)
{
    size_t one = 0, all = 0;
    if (begins)
        return model_decode(tokenizer, id, n, text, bytes);
    for (size_t i = 0; i < n; i++)
        all += model_tokenizer_bytes(tokenizer, id[i], &one) ? one : 0;
    *bytes = 0;
    if (!(*text = malloc(all + 1)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *piece = model_tokenizer_bytes(tokenizer, id[i], &one);
        if (!piece) {
            free(*text);
            *text = NULL;
            return gyre_fail(GYRE_ERR_FORMAT, "the file holds token %d, which tokenizer '%s' does not have",
                             (int)id[i], model_tokenizer_name(tokenizer));
        }
        memcpy(*text + *bytes, piece, one);
        *bytes += one;
    }
    return GYRE_OK;
}

/* How many of n > 4 tokens are decoded together: not those at their end that are single bytes of a character
 * which may go on. */
static size_t whole_characters(const model_tokenizer_t *tokenizer, const model_token_t *id, size_t n)
{
    for (size_t back = 1; back <= 4; back++) {
        size_t bytes = 0;
        const unsigned char *text = model_tokenizer_bytes(tokenizer, id[n - back], &bytes);
        if (!text || bytes != 1 || *text < 0x80)
            break;
        if (*text >= 0xC0) /* the first */
            return n - back;
    }
    return n;
}

static gyre_status_t print_text(const model_tokens_t *tokens, const model_tokenizer_t *tokenizer,
                                uint64_t from, uint64_t end)
{
    enum { PIECE = 4096 };
    model_token_t id[PIECE];
    gyre_status_t status = GYRE_OK;
    int begins = from == 0;
    while (status == GYRE_OK && from < end) {
        size_t n = end - from < PIECE ? (size_t)(end - from) : PIECE, bytes;
        unsigned char *text = NULL;
        status = model_tokens_read(tokens, from, n, model_tokenizer_vocab(tokenizer), id);
        if (status == GYRE_OK && from + n < end)
            n = whole_characters(tokenizer, id, n);
        if (status == GYRE_OK)
            status = text_of(tokenizer, begins, id, n, &text, &bytes);
        if (status == GYRE_OK && fwrite(text, 1, bytes, stdout) != bytes)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the text");
        free(text);
        from += n;
        begins = 0;
    }
    return status;
}

gyre_status_t tokenize_decode(const tokenize_options_t *options)
{
    model_tokens_t *tokens = NULL;
    model_tokenizer_t *tokenizer = NULL;
    gyre_status_t status = model_tokens_open(options->decode, options->format, &tokens);
    if (status == GYRE_OK)
        status = open_tokenizer(options, tokens, &tokenizer);
    if (status == GYRE_OK && options->from > tokens->count)
        status = gyre_fail(GYRE_ERR_INVALID, "--from %" PRIu64 ": %s has %" PRIu64 " tokens", options->from,
                           options->decode, tokens->count);
    if (status == GYRE_OK) {
        uint64_t left = tokens->count - options->from;
        status = print_text(tokens, tokenizer, options->from,
                            options->from + (options->count < left ? options->count : left));
    }
    model_tokenizer_destroy(tokenizer);
    model_tokens_close(tokens);
    return status;
}
