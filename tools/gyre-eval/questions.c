/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval/questions.c: a file of questions: every choice as given tokens after its context. */
#include <stdlib.h>

#include "base/error.h"
#include "pipeline/agree/agree.h"
#include "tools/gyre-eval/eval.h"

/* A pipe_said_fn: sums of log-probabilities. Tokens of a choice come in their order. */
static gyre_status_t add(void *user, size_t prompt, size_t index, model_token_t token, float log_probability,
                         int last)
{
    double *score = user;
    (void)index;
    (void)token;
    (void)last;
    score[prompt] += (double)log_probability;
    return GYRE_OK;
}

/* Rank 0. */
static gyre_status_t read_questions(const eval_t *eval, const char *path, pipe_questions_t *questions,
                                    pipe_prompts_t *prompts, size_t *cuts)
{
    static const pipe_questions_kind_t kind[] = {
        [TASK_HELLASWAG] = PIPE_HELLASWAG, [TASK_ARC] = PIPE_ARC, [TASK_MMLU] = PIPE_MMLU};
    const eval_options_t *o = eval->options;
    model_encoder_t *encoder = NULL;
    gyre_status_t status = pipe_questions_read(path, kind[o->task], o->limit, questions);
    if (status == GYRE_OK)
        status = model_encoder_create(eval->tokenizer, &encoder);
    if (status == GYRE_OK) {
        model_encoder_begin(encoder, &eval->begin);
        status = pipe_choices_encode(questions, encoder, pipe_source_model(eval->part.source)->seq, o->cut,
                                     prompts, cuts);
    }
    model_encoder_destroy(encoder);
    return status;
}

gyre_status_t eval_questions(eval_t *eval, const char *path)
{
    const pipe_generate_t how = {0};
    pipe_questions_t questions = {0};
    pipe_prompts_t prompts = {0};
    double *score = NULL;
    size_t cuts = 0;
    gyre_status_t status = GYRE_OK;
    if (gyre_comm_rank(eval->comm) == 0)
        status = read_questions(eval, path, &questions, &prompts, &cuts);
    status = pipe_prompts_share(eval->comm, status, &prompts);
    if (status == GYRE_OK) {
        score = calloc(prompts.count, sizeof *score);
        status = score ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu choices", prompts.count);
        status = pipe_agree(eval->comm, status, NULL);
    }
    if (status == GYRE_OK)
        status = pipe_generate(eval->generator, prompts.prompt, prompts.count, &how, add, score);
    if (status == GYRE_OK && eval->results)
        results_questions(eval->results, &questions, cuts, score, &prompts);
    free(score);
    pipe_prompts_free(&prompts);
    pipe_questions_free(&questions);
    return status;
}
