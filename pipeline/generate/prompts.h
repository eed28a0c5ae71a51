/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/prompts.h: the prompts of a job: rank 0 has read them, all ranks get their ids. */
#ifndef PIPELINE_GENERATE_PROMPTS_H
#define PIPELINE_GENERATE_PROMPTS_H

#include "pipeline/generate/generate.h"

/* Zeros: none. */
typedef struct {
    model_token_t *tokens; /* [total] ids of all, one prompt after another */
    size_t total;
    pipe_prompt_t *prompt; /* [count]; their `tokens` are set by pipe_prompts_share */
    size_t count;
    size_t token_room, prompt_room;
} pipe_prompts_t;

/* One more: count ids that are read, and `given` after them that follow. NO_MEMORY. */
gyre_status_t pipe_prompts_add(pipe_prompts_t *prompts, const model_token_t *ids, size_t count, size_t given);
/* More ids that are read at the end of the last one, which has none given. NO_MEMORY. */
gyre_status_t pipe_prompts_extend(pipe_prompts_t *prompts, const model_token_t *ids, size_t count);
/* Rank 0's to all. `mine`: rank 0's status so far; others have GYRE_OK. Collective; an error is that of every
 * rank. */
gyre_status_t pipe_prompts_share(gyre_comm_t *comm, gyre_status_t mine, pipe_prompts_t *prompts);
/* Positions of the longest prompt with the tokens that follow, `tokens` where none are given; at least 1. */
size_t pipe_prompts_positions(const pipe_prompts_t *prompts, size_t tokens);
void pipe_prompts_free(pipe_prompts_t *prompts);

#endif
