/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate/output.c: text and log-probabilities as tokens come. Sequences overlap, and what is
 * written is in the order of prompts: tokens of a later one wait for those before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text/json.h"
#include "pipeline/train/text.h"
#include "tools/gyre-generate/generate.h"
#include "tools/shared/unfinished.h"

/* Of a prompt, from its first token until all of it is written. */
typedef struct {
    model_token_t *tokens; /* [made]; room for --tokens */
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

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the tokens after a prompt");
}

/* The log is not written over what is read. */
static gyre_status_t check_apart(const generate_options_t *o)
{
    gyre_status_t status = pipe_source_check_input("logprobs", o->logprobs, o->prompt_file);
    return status == GYRE_OK
               ? pipe_source_check_output("logprobs", o->logprobs, o->part.source.path, o->tokenizer)
               : status;
}

gyre_status_t output_open(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                          const prompts_t *prompts, output_t **out)
{
    output_t *o = calloc(1, sizeof *o);
    made_t *made = calloc(prompts->ids.count + 1, sizeof *made);
    gyre_status_t status = GYRE_OK;
    if (!o || !made) {
        free(made);
        free(o);
        return no_memory();
    }
    *o = (output_t){.options = options, .tokenizer = tokenizer, .prompts = prompts, .made = made};
    *out = o;
    status = check_apart(options);
    if (status == GYRE_OK && options->logprobs &&
        (status = unfinished_begin(options->logprobs, &o->log)) == GYRE_OK)
        o->logs = 1;
    if (status == GYRE_OK && options->echo && !options->lines) {
        fwrite(prompts->text + prompts->begin[0], 1, prompts->end[0] - prompts->begin[0], stdout);
        fflush(stdout);
    }
    return status;
}

/* The JSON string of a text, quotes included, as base_json_string makes it; caller frees. NULL: no memory. */
static char *quoted(const char *text, size_t bytes)
{
    json_t *string = base_json_string(text, bytes);
    char *made = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    json_decref(string);
    return made;
}

/* The same of ids. */
static char *quoted_ids(const output_t *o, const model_token_t *tokens, size_t count)
{
    size_t bytes;
    unsigned char *text = train_text_bytes(o->tokenizer, tokens, count, &bytes);
    char *made = text ? quoted((const char *)text, bytes) : NULL;
    free(text);
    return made;
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

/* A line of JSON. */
static gyre_status_t write_line(const output_t *o, size_t p)
{
    const made_t *made = &o->made[p];
    const prompts_t *prompts = o->prompts;
    char *text = quoted_ids(o, made->tokens, made->made), *before = NULL;
    if (o->options->echo)
        before = quoted(prompts->text + prompts->begin[p], prompts->end[p] - prompts->begin[p]);
    gyre_status_t status = text && (before || !o->options->echo) ? GYRE_OK : no_memory();
    if (status == GYRE_OK && before)
        printf("{\"prompt\":%zu,\"before\":%s,\"text\":%s}\n", p, before, text);
    else if (status == GYRE_OK)
        printf("{\"prompt\":%zu,\"text\":%s}\n", p, text);
    free(before);
    free(text);
    return status;
}

static void free_made(made_t *made)
{
    free(made->tokens);
    free(made->log_probability);
    made->tokens = NULL;
    made->log_probability = NULL;
}

static gyre_status_t end_prompt(output_t *o, size_t p)
{
    gyre_status_t status = GYRE_OK;
    if (o->options->lines)
        status = write_line(o, p);
    else
        fputc('\n', stdout);
    fflush(stdout); /* before the line on standard error */
    free_made(&o->made[p]);
    return status;
}

static gyre_status_t take_token(output_t *o, made_t *made, size_t index, model_token_t token,
                                float log_probability)
{
    const size_t most = o->options->how.tokens;
    if (!made->tokens) {
        made->tokens = calloc(most, sizeof *made->tokens);
        made->log_probability = calloc(most, sizeof *made->log_probability);
    }
    if (!made->tokens || !made->log_probability)
        return no_memory();
    made->tokens[index] = token;
    made->log_probability[index] = log_probability;
    made->made = index + 1;
    return GYRE_OK;
}

static gyre_status_t write_all(output_t *o)
{
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && o->current < o->prompts->ids.count) {
        made_t *made = &o->made[o->current];
        while (status == GYRE_OK && made->written < made->made)
            status = write_token(o, o->current, made->written++);
        if (status != GYRE_OK || !made->ended)
            break;
        status = end_prompt(o, o->current++);
    }
    return status == GYRE_OK && ferror(stdout)
               ? gyre_fail(GYRE_ERR_IO, "cannot write to standard output: %s", strerror(errno))
               : status;
}

/* The other ranks go on after an error, and so does this one, without output: output_close has the error. */
gyre_status_t output_said(void *user, size_t prompt, size_t index, model_token_t token, float log_probability,
                          int last)
{
    output_t *o = user;
    o->total++;
    if (o->status == GYRE_OK)
        o->status = take_token(o, &o->made[prompt], index, token, log_probability);
    o->made[prompt].ended = last;
    if (o->status == GYRE_OK)
        o->status = write_all(o);
    return GYRE_OK;
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
    for (size_t p = 0; p < o->prompts->ids.count; p++)
        free_made(&o->made[p]);
    free(o->made);
    free(o);
    return status;
}
