/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate/prompts.c: prompts from an option, a file or standard input, as ids on every rank. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tools/gyre-generate/generate.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the prompts");
}

/* All of a stream into prompts->text. */
static gyre_status_t read_stream(FILE *in, const char *name, prompts_t *prompts)
{
    size_t room = 0, got = 1;
    while (got > 0) {
        if (prompts->bytes == room) {
            char *more = realloc(prompts->text, room = 2 * room + 4096);
            if (!more)
                return no_memory();
            prompts->text = more;
        }
        got = fread(prompts->text + prompts->bytes, 1, room - prompts->bytes, in);
        prompts->bytes += got;
    }
    return ferror(in) ? gyre_fail(GYRE_ERR_IO, "cannot read prompts from %s: %s", name, strerror(errno))
                      : GYRE_OK;
}

static gyre_status_t read_text(const generate_options_t *options, prompts_t *prompts)
{
    if (options->prompt) {
        prompts->text = strdup(options->prompt);
        prompts->bytes = strlen(options->prompt);
        return prompts->text ? GYRE_OK : no_memory();
    }
    if (!options->prompt_file)
        return read_stream(stdin, "standard input", prompts);
    FILE *in = fopen(options->prompt_file, "rb");
    if (!in)
        return gyre_fail(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, "--prompt-file %s: %s",
                         options->prompt_file, strerror(errno));
    gyre_status_t status = read_stream(in, options->prompt_file, prompts);
    fclose(in);
    return status;
}

/* One prompt, or one for each line. A line break that ends a stream is left out. */
static gyre_status_t split(const generate_options_t *options, prompts_t *prompts)
{
    const char *text = prompts->text;
    size_t bytes = prompts->bytes;
    if (!options->prompt && bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    prompts->count = 1;
    for (size_t i = 0; options->lines && i < bytes; i++)
        prompts->count += text[i] == '\n';
    prompts->begin = calloc(prompts->count, sizeof *prompts->begin);
    prompts->end = calloc(prompts->count, sizeof *prompts->end);
    if (!prompts->begin || !prompts->end)
        return no_memory();
    for (size_t p = 0, at = 0; p < prompts->count; p++, at++) {
        prompts->begin[p] = at;
        while (at < bytes && !(options->lines && text[at] == '\n'))
            at++;
        prompts->end[p] = at;
    }
    return GYRE_OK;
}

static gyre_status_t check_utf8(const prompts_t *prompts, size_t p)
{
    const unsigned char *text = (const unsigned char *)prompts->text;
    uint32_t letter;
    for (size_t at = prompts->begin[p], n; at < prompts->end[p]; at += n)
        if ((n = base_utf8_decode(text + at, prompts->end[p] - at, &letter)) == 0)
            return gyre_fail(GYRE_ERR_INVALID,
                             "prompt %zu is not UTF-8: byte 0x%02x at its offset %zu: convert the text, or "
                             "give --tokenizer bytes, if the model's ids are bytes",
                             p + 1, text[at], at - prompts->begin[p]);
    return GYRE_OK;
}

static gyre_status_t encode(model_encoder_t *encoder, prompts_t *prompts, size_t p)
{
    const model_token_t *ids = NULL;
    size_t count = 0, first = prompts->total;
    gyre_status_t status = model_encode(encoder, prompts->text + prompts->begin[p],
                                        prompts->end[p] - prompts->begin[p], &ids, &count);
    if (status != GYRE_OK)
        return status;
    model_token_t *more = realloc(prompts->tokens, (first + count + 1) * sizeof *more);
    if (!more)
        return no_memory();
    prompts->tokens = more;
    for (size_t i = 0; i < count; i++)
        more[first + i] = ids[i];
    prompts->prompt[p].count = count;
    prompts->total += count;
    return GYRE_OK;
}

static void point(prompts_t *prompts)
{
    for (size_t p = 0, at = 0; p < prompts->count; at += prompts->prompt[p++].count)
        prompts->prompt[p].tokens = prompts->tokens + at;
}

gyre_status_t prompts_read(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                           prompts_t *prompts)
{
    model_encoder_t *encoder = NULL;
    const int bytes = strcmp(model_tokenizer_name(tokenizer), "bytes") == 0;
    gyre_status_t status = read_text(options, prompts);
    if (status == GYRE_OK)
        status = split(options, prompts);
    if (status == GYRE_OK && !(prompts->prompt = calloc(prompts->count, sizeof *prompts->prompt)))
        status = no_memory();
    for (size_t p = 0; status == GYRE_OK && !bytes && p < prompts->count; p++)
        status = check_utf8(prompts, p);
    if (status == GYRE_OK)
        status = model_encoder_create(tokenizer, &encoder);
    for (size_t p = 0; status == GYRE_OK && p < prompts->count; p++)
        status = encode(encoder, prompts, p);
    model_encoder_destroy(encoder);
    if (status == GYRE_OK)
        point(prompts);
    return status;
}

gyre_status_t prompts_share(gyre_comm_t *comm, gyre_status_t mine, prompts_t *prompts)
{
    const int rank = gyre_comm_rank(comm);
    uint64_t word[3] = {(uint64_t)mine, prompts->count, prompts->total};
    gyre_status_t status = gyre_broadcast(word, word, 3, GYRE_UINT64, 0, comm);
    if (status != GYRE_OK || mine != GYRE_OK)
        return mine != GYRE_OK ? mine : status;
    if (word[0] != GYRE_OK)
        return gyre_fail_quiet((gyre_status_t)word[0], "rank 0 failed: see its log");
    if (rank != 0) {
        prompts->count = word[1];
        prompts->total = word[2];
        prompts->prompt = calloc(prompts->count, sizeof *prompts->prompt);
        prompts->tokens = calloc(prompts->total + 1, sizeof *prompts->tokens);
    }
    uint64_t *counts = calloc(prompts->count, sizeof *counts);
    if (!counts || !prompts->prompt || (prompts->total > 0 && !prompts->tokens)) {
        free(counts);
        return no_memory();
    }
    for (size_t p = 0; p < prompts->count; p++)
        counts[p] = prompts->prompt[p].count;
    status = gyre_broadcast(counts, counts, prompts->count, GYRE_UINT64, 0, comm);
    if (status == GYRE_OK && prompts->total > 0)
        status = gyre_broadcast(prompts->tokens, prompts->tokens, prompts->total, GYRE_INT32, 0, comm);
    for (size_t p = 0; p < prompts->count; p++)
        prompts->prompt[p].count = (size_t)counts[p];
    point(prompts);
    free(counts);
    return status;
}

void prompts_free(prompts_t *prompts)
{
    free(prompts->text);
    free(prompts->begin);
    free(prompts->end);
    free(prompts->tokens);
    free(prompts->prompt);
}
