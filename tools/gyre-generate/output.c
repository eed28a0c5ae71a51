/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate/output.c: text and log-probabilities as tokens come. Sequences overlap, and what is
 * written is in the order of prompts: tokens of a later one wait for those before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text/json.h"
#include "base/utf8.h"
#include "tools/gyre-generate/generate.h"

typedef struct {
    model_token_t *tokens; /* [made] */
    float *log_probability;
    size_t made, written;
    int ended;
} made_t;

struct output {
    const generate_options_t *options;
    const model_tokenizer_t *tokenizer;
    const prompts_t *prompts;
    made_t *made;          /* [count] */
    size_t current, total; /* the prompt whose tokens are being written; tokens of all */
    base_file_t log;
    int logs;
    gyre_status_t status;
};

gyre_status_t output_open(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                          const prompts_t *prompts, output_t **out)
{
    output_t *o = calloc(1, sizeof *o);
    made_t *made = calloc(prompts->ids.count, sizeof *made);
    gyre_status_t status = GYRE_OK;
    for (size_t p = 0; made && status == GYRE_OK && p < prompts->ids.count; p++) {
        made[p].tokens = calloc(options->how.tokens + 1, sizeof *made[p].tokens);
        made[p].log_probability = calloc(options->how.tokens + 1, sizeof *made[p].log_probability);
        if (!made[p].tokens || !made[p].log_probability)
            status = GYRE_ERR_NO_MEMORY;
    }
    if (!o || !made || status != GYRE_OK) {
        for (size_t p = 0; made && p < prompts->ids.count; p++) {
            free(made[p].tokens);
            free(made[p].log_probability);
        }
        free(made);
        free(o);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens after each of %zu prompts",
                         options->how.tokens, prompts->ids.count);
    }
    *o = (output_t){.options = options, .tokenizer = tokenizer, .prompts = prompts, .made = made};
    *out = o;
    if (options->logprobs && (status = base_file_begin(options->logprobs, &o->log)) == GYRE_OK)
        o->logs = 1;
    if (status == GYRE_OK && options->echo && !options->lines) {
        fwrite(prompts->text + prompts->begin[0], 1, prompts->end[0] - prompts->begin[0], stdout);
        fflush(stdout);
    }
    return status;
}

/* The JSON string of a text, quotes included, with U+FFFD for each byte that is not UTF-8; caller frees.
 * NULL: no memory. */
static char *quoted(const char *text, size_t bytes)
{
    char *valid = malloc(3 * bytes + 1), *made = NULL;
    size_t used = 0;
    for (size_t at = 0; valid && at < bytes;) {
        const size_t good = base_utf8_span((const unsigned char *)text + at, bytes - at);
        memcpy(valid + used, text + at, good);
        used += good;
        at += good;
        if (at++ < bytes) {
            memcpy(valid + used, "\xef\xbf\xbd", 3);
            used += 3;
        }
    }
    json_t *string = valid ? json_stringn(valid, used) : NULL;
    if (string)
        made = json_dumps(string, JSON_ENCODE_ANY);
    json_decref(string);
    free(valid);
    return made;
}

/* The same of ids; one that stands for nothing, which a padded vocabulary has, is as a byte that is not
 * UTF-8. */
static char *quoted_ids(const output_t *o, const model_token_t *tokens, size_t count)
{
    size_t bytes = 0, used = 0, one;
    for (size_t i = 0; i < count; i++)
        bytes += model_tokenizer_bytes(o->tokenizer, tokens[i], &one) ? one : 1;
    char *text = malloc(bytes + 1);
    for (size_t i = 0; text && i < count; i++) {
        const void *piece = model_tokenizer_bytes(o->tokenizer, tokens[i], &one);
        memcpy(text + used, piece ? piece : "\xff", one = piece ? one : 1);
        used += one;
    }
    char *made = text ? quoted(text, bytes) : NULL;
    free(text);
    return made;
}

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of a token");
}

static gyre_status_t write_token(output_t *o, size_t p, size_t i)
{
    const made_t *made = &o->made[p];
    size_t bytes;
    if (!o->options->lines) {
        const unsigned char *piece = model_tokenizer_bytes(o->tokenizer, made->tokens[i], &bytes);
        if (piece)
            fwrite(piece, 1, bytes, stdout);
        fflush(stdout);
    }
    if (!o->logs)
        return GYRE_OK;
    char *text = quoted_ids(o, made->tokens + i, 1);
    if (!text)
        return no_memory();
    char real[BASE_JSON_REAL];
    double value = (double)made->log_probability[i];
    fprintf(o->log.out,
            "{\"prompt\":%zu,\"index\":%zu,\"token\":%d,\"text\":%s,\"logprob\":%s,\"logprob_hex\":\"%a\"}\n",
            p, i, (int)made->tokens[i], text, base_json_real(real, 9, value), value);
    free(text);
    return GYRE_OK;
}

static gyre_status_t end_prompt(output_t *o, size_t p)
{
    const made_t *made = &o->made[p];
    if (!o->options->lines) {
        fputc('\n', stdout);
        fflush(stdout); /* before the line on standard error */
        return GYRE_OK;
    }
    char *text = quoted_ids(o, made->tokens, made->made);
    if (!text)
        return no_memory();
    if (o->options->echo) {
        const prompts_t *prompts = o->prompts;
        char *prompt = quoted(prompts->text + prompts->begin[p], prompts->end[p] - prompts->begin[p]);
        if (prompt)
            printf("{\"prompt\":%zu,\"before\":%s,\"text\":%s}\n", p, prompt, text);
        free(prompt);
    } else {
        printf("{\"prompt\":%zu,\"text\":%s}\n", p, text);
    }
    free(text);
    fflush(stdout);
    return GYRE_OK;
}

gyre_status_t output_said(void *user, size_t prompt, size_t index, model_token_t token, float log_probability,
                          int last)
{
    output_t *o = user;
    gyre_status_t status = GYRE_OK;
    o->made[prompt].tokens[index] = token;
    o->made[prompt].log_probability[index] = log_probability;
    o->made[prompt].made = index + 1;
    o->made[prompt].ended = last;
    o->total++;
    while (status == GYRE_OK && o->current < o->prompts->ids.count) {
        made_t *made = &o->made[o->current];
        while (status == GYRE_OK && made->written < made->made)
            status = write_token(o, o->current, made->written++);
        if (status != GYRE_OK || !made->ended)
            break;
        status = end_prompt(o, o->current++);
    }
    if (status == GYRE_OK && ferror(stdout))
        status = gyre_fail(GYRE_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    o->status = status;
    return GYRE_OK; /* the other ranks go on, and so does this one: output_close has the error */
}

size_t output_tokens(const output_t *o)
{
    return o->total;
}

gyre_status_t output_close(output_t *o, gyre_status_t status)
{
    if (!o)
        return status;
    if (status == GYRE_OK)
        status = o->status;
    if (o->logs && status == GYRE_OK)
        status = base_file_commit(&o->log);
    else if (o->logs)
        base_file_abandon(&o->log);
    for (size_t p = 0; p < o->prompts->ids.count; p++) {
        free(o->made[p].tokens);
        free(o->made[p].log_probability);
    }
    free(o->made);
    free(o);
    return status;
}
