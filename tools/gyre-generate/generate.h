/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate/generate.h: what the parts of gyre-generate share. */
#ifndef GYRE_GENERATE_GENERATE_H
#define GYRE_GENERATE_GENERATE_H

#include <stdio.h>

#include "pipeline/generate/prompts.h"

typedef struct {
    pipe_part_config_t part;
    pipe_generate_config_t config;
    pipe_generate_t how;
    const char *tokenizer, *prompt, *prompt_file, *logprobs, *stop;
    int lines, echo, ignore_eot, no_bos, quiet;
} generate_options_t;

/* The prompts of a run; on ranks other than 0 only their ids. */
typedef struct {
    char *text; /* all of them */
    size_t bytes;
    size_t *begin, *end; /* [ids.count] of each in it */
    size_t *line;        /* [ids.count], from 1 on; 0: not of --lines */
    pipe_prompts_t ids;
} prompts_t;

/* Rank 0: reads the option, file or standard input, and encodes each prompt, with what the
 * tokenizer puts in front of it unless --no-bos says otherwise. INVALID: what is no UTF-8, where
 * the tokenizer is not "bytes"; empty lines alone; NOT_FOUND, IO, NO_MEMORY. */
gyre_status_t prompts_read(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                           prompts_t *prompts);
void prompts_free(prompts_t *prompts);

/* Where tokens go, on rank 0: standard output and --logprobs, in the order of prompts. */
typedef struct output output_t;
gyre_status_t output_open(const generate_options_t *options, const model_tokenizer_t *tokenizer,
                          const prompts_t *prompts, output_t **out);
/* A pipe_said_fn; user is the output. */
gyre_status_t output_said(void *user, size_t prompt, size_t index, model_token_t token, float log_probability,
                          int last);
size_t output_tokens(const output_t *output); /* so far */
/* Frees. `status`: the run's so far; unless it is OK, an older --logprobs stays as it was. The first error of
 * the run or of what was written: NO_MEMORY, IO. */
gyre_status_t output_close(output_t *output, gyre_status_t status);

#endif
