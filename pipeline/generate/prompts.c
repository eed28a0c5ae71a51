/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/prompts.c: ids of prompts, one after another, from rank 0 to all. */
#include "pipeline/generate/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "pipeline/agree/agree.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the tokens of prompts");
}

static gyre_status_t append(pipe_prompts_t *p, const model_token_t *ids, size_t count)
{
    if (!base_grow(&p->tokens, &p->token_room, p->total, count, sizeof *p->tokens))
        return no_memory();
    if (count > 0)
        memcpy(p->tokens + p->total, ids, count * sizeof *ids);
    p->total += count;
    return GYRE_OK;
}

gyre_status_t pipe_prompts_add(pipe_prompts_t *p, const model_token_t *ids, size_t count, size_t given)
{
    if (!base_grow(&p->prompt, &p->prompt_room, p->count, 1, sizeof *p->prompt))
        return no_memory();
    p->prompt[p->count++] = (pipe_prompt_t){.count = count, .given = given};
    return append(p, ids, count + given);
}

gyre_status_t pipe_prompts_extend(pipe_prompts_t *p, const model_token_t *ids, size_t count)
{
    p->prompt[p->count - 1].count += count;
    return append(p, ids, count);
}

/* On a rank that has not read them. */
static gyre_status_t take_memory(pipe_prompts_t *p, size_t count, size_t total)
{
    p->prompt = calloc(count + 1, sizeof *p->prompt);
    p->tokens = calloc(total + 1, sizeof *p->tokens);
    if (!p->prompt || !p->tokens)
        return no_memory();
    p->count = p->prompt_room = count;
    p->total = p->token_room = total;
    return GYRE_OK;
}

/* Numbers of ids, and ids. words [2 * count] */
static gyre_status_t send(gyre_comm_t *comm, pipe_prompts_t *p, uint64_t *word)
{
    for (size_t i = 0; i < p->count; i++) {
        word[2 * i] = p->prompt[i].count;
        word[2 * i + 1] = p->prompt[i].given;
    }
    gyre_status_t status = gyre_broadcast(word, word, 2 * p->count, GYRE_UINT64, 0, comm);
    if (status == GYRE_OK && p->total > 0)
        status = gyre_broadcast(p->tokens, p->tokens, p->total, GYRE_INT32, 0, comm);
    size_t at = 0;
    for (size_t i = 0; i < p->count; i++) {
        p->prompt[i].tokens = p->tokens + at;
        p->prompt[i].count = (size_t)word[2 * i];
        p->prompt[i].given = (size_t)word[2 * i + 1];
        at += p->prompt[i].count + p->prompt[i].given;
    }
    return status;
}

gyre_status_t pipe_prompts_share(gyre_comm_t *comm, gyre_status_t mine, pipe_prompts_t *p)
{
    uint64_t size[2] = {p->count, p->total}, *word = NULL;
    gyre_status_t status = pipe_agree(comm, mine, NULL);
    if (status == GYRE_OK)
        status = gyre_broadcast(size, size, 2, GYRE_UINT64, 0, comm);
    if (status != GYRE_OK || size[0] == 0)
        return status;
    if (gyre_comm_rank(comm) != 0)
        mine = take_memory(p, (size_t)size[0], (size_t)size[1]);
    if (mine == GYRE_OK && !(word = calloc((size_t)size[0], 2 * sizeof *word)))
        mine = no_memory();
    status = pipe_agree(comm, mine, NULL);
    if (status == GYRE_OK && word) /* all have it */
        status = send(comm, p, word);
    free(word);
    return status;
}

size_t pipe_prompts_positions(const pipe_prompts_t *p, size_t tokens)
{
    size_t most = 1;
    for (size_t i = 0; i < p->count; i++) {
        const size_t count = p->prompt[i].count, follow = p->prompt[i].given ? p->prompt[i].given : tokens;
        most = base_max_size(most, follow < SIZE_MAX - count ? count + follow : SIZE_MAX);
    }
    return most;
}

void pipe_prompts_free(pipe_prompts_t *p)
{
    free(p->tokens);
    free(p->prompt);
    *p = (pipe_prompts_t){0};
}
