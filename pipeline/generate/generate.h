/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/generate.h: tokens after prompts, from a model on the ranks of a job.
 *
 * The log-probability of each token is, to the bit, that of the trainer's forward over the same tokens
 * (model/network/decode/decode.h): whatever the degrees, the number of sequences together, and the pieces in
 * which prompts are read. */
#ifndef PIPELINE_GENERATE_GENERATE_H
#define PIPELINE_GENERATE_GENERATE_H

#include "pipeline/generate/draw.h"
#include "pipeline/load/part.h"

typedef struct {
    size_t batch;   /* sequences together, at most */
    size_t prefill; /* tokens of prompts that are read at a time */
    /* of the longest sequence, with the tokens that follow: memory is taken for so many. 0: as many as the
     * model has */
    size_t positions;
    int fast; /* 1: without the bits of the trainer (model_decoder_config_t) */
} pipe_generate_config_t;

typedef struct pipe_generator pipe_generator_t;

/* `part` is open and outlives the generator. Collective; an error is that of every rank, and the first rank
 * that failed has logged it: NO_MEMORY. */
gyre_status_t pipe_generator_create(const pipe_part_t *part, const pipe_generate_config_t *config,
                                    pipe_generator_t **out);
void pipe_generator_destroy(pipe_generator_t *generator);

typedef struct {
    const model_token_t *tokens; /* [count + given] */
    size_t count;
    size_t given; /* so many tokens follow that are given, not drawn; 0: they are drawn */
    size_t line;  /* for messages, on rank 0: of the file that it is from, from 1 on; 0: its number counts */
} pipe_prompt_t;

typedef struct {
    pipe_draw_t draw;
    size_t tokens;         /* after each prompt, at most, if they are drawn */
    model_specials_t stop; /* each ends a sequence that is drawn */
} pipe_generate_t;

/* A token after prompt `prompt`: its number there, from 0 on, and its log-probability. `last`: the sequence
 * ends. Tokens of a sequence come in their order; sequences overlap. Called on every rank. A status other
 * than GYRE_OK ends the call on this rank. */
typedef gyre_status_t (*pipe_said_fn)(void *user, size_t prompt, size_t index, model_token_t token,
                                      float log_probability, int last);

/* All ranks have the same prompts. Collective. INVALID: a prompt without tokens; no room for those that
 * follow in the model's positions, of which the last token needs none; an id outside of the vocabulary. */
gyre_status_t pipe_generate(pipe_generator_t *generator, const pipe_prompt_t *prompt, size_t prompts,
                            const pipe_generate_t *how, pipe_said_fn said, void *user);

#endif
