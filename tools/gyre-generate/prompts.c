/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate/prompts.c: prompts from an option, a file or standard input, as ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
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
        if (!base_grow(&prompts->text, &room, prompts->bytes, 4096, 1))
            return no_memory();
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
    if (!options->prompt_file || !strcmp(options->prompt_file, "-"))
        return read_stream(stdin, "standard input", prompts);
    FILE *in = fopen(options->prompt_file, "rb");
    if (!in)
        return gyre_fail(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, "--prompt-file %s: %s",
                         options->prompt_file, strerror(errno));
    gyre_status_t status = read_stream(in, options->prompt_file, prompts);
    fclose(in);
    return status;
}

/* text[begin .. end) without the first byte of a line break of Windows. */
static size_t line_end(const char *text, size_t begin, size_t end)
{
    return end > begin && text[end - 1] == '\r' ? end - 1 : end;
}

/* One prompt, or one for each line that is not empty. A line break that ends a stream is left out, and so is
 * a byte-order mark before the first line. */
static gyre_status_t split(const generate_options_t *options, prompts_t *prompts, size_t *count)
{
    const char *text = prompts->text;
    size_t bytes = prompts->bytes, lines = 1;
    const size_t mark = options->lines && bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (!options->prompt && bytes > 0 && text[bytes - 1] == '\n')
        bytes = line_end(text, 0, bytes - 1);
    for (size_t i = 0; options->lines && i < bytes; i++)
        lines += text[i] == '\n';
    prompts->begin = calloc(lines, sizeof *prompts->begin);
    prompts->end = calloc(lines, sizeof *prompts->end);
    prompts->line = calloc(lines, sizeof *prompts->line);
    if (!prompts->begin || !prompts->end || !prompts->line)
        return no_memory();
    *count = 0;
    for (size_t line = 1, at = mark; line <= lines; line++, at++) {
        const size_t begin = at;
        while (at < bytes && !(options->lines && text[at] == '\n'))
            at++;
        const size_t end = options->lines ? line_end(text, begin, at) : at;
        if (options->lines && end == begin)
            continue;
        prompts->begin[*count] = begin;
        prompts->end[*count] = end;
        prompts->line[(*count)++] = options->lines ? line : 0;
    }
    return *count > 0 ? GYRE_OK : gyre_fail(GYRE_ERR_INVALID, "there is no prompt: all lines are empty");
}

static gyre_status_t check_utf8(const prompts_t *prompts, size_t p)
{
    const unsigned char *text = (const unsigned char *)prompts->text + prompts->begin[p];
    const size_t bytes = prompts->end[p] - prompts->begin[p], good = base_utf8_span(text, bytes);
    const size_t line = prompts->line[p];
    return good == bytes
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_INVALID,
                           "%s %zu is not UTF-8: byte 0x%02x at its offset %zu: convert the text, or "
                           "give --tokenizer bytes, if the model's ids are bytes",
                           line ? "line" : "prompt", line ? line : p + 1, text[good], good);
}

static gyre_status_t encode(model_encoder_t *encoder, prompts_t *prompts, size_t p)
{
    const model_token_t *ids = NULL;
    size_t count = 0;
    gyre_status_t status = model_encode(encoder, prompts->text + prompts->begin[p],
                                        prompts->end[p] - prompts->begin[p], &ids, &count);
    if (status == GYRE_OK)
        status = pipe_prompts_add(&prompts->ids, ids, count, 0);
    if (status == GYRE_OK)
        prompts->ids.prompt[p].line = prompts->line[p];
    return status;
}

gyre_status_t prompts_read(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                           prompts_t *prompts)
{
    model_encoder_t *encoder = NULL;
    model_specials_t begin = {0};
    size_t count = 0;
    const int bytes = strcmp(model_tokenizer_name(tokenizer), "bytes") == 0;
    gyre_status_t status = read_text(options, prompts);
    if (status == GYRE_OK)
        status = split(options, prompts, &count);
    for (size_t p = 0; status == GYRE_OK && !bytes && p < count; p++)
        status = check_utf8(prompts, p);
    if (status == GYRE_OK)
        status = model_encoder_create(tokenizer, &encoder);
    if (status == GYRE_OK && !options->no_bos)
        status = model_tokenizer_begin(tokenizer, &begin);
    if (status == GYRE_OK)
        model_encoder_begin(encoder, &begin);
    for (size_t p = 0; status == GYRE_OK && p < count; p++)
        status = encode(encoder, prompts, p);
    model_encoder_destroy(encoder);
    return status;
}

void prompts_free(prompts_t *prompts)
{
    free(prompts->text);
    free(prompts->begin);
    free(prompts->end);
    free(prompts->line);
    pipe_prompts_free(&prompts->ids);
}
