/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval/questions.c: files of questions: every choice as given tokens after its context. */
#include <stdlib.h>

#include "base/checked.h"
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
static gyre_status_t read_questions(const eval_t *eval, const char *path, eval_asked_t *asked)
{
    static const pipe_questions_kind_t kind[] = {
        [TASK_HELLASWAG] = PIPE_HELLASWAG, [TASK_ARC] = PIPE_ARC, [TASK_MMLU] = PIPE_MMLU};
    const eval_options_t *o = eval->options;
    model_encoder_t *encoder = NULL;
    gyre_status_t status = pipe_questions_read(path, kind[o->task], o->limit, &asked->questions);
    if (status == GYRE_OK)
        status = model_encoder_create(eval->tokenizer, &encoder);
    if (status == GYRE_OK) {
        model_encoder_begin(encoder, &eval->begin);
        status = pipe_choices_encode(&asked->questions, encoder, pipe_source_model(eval->part.source)->seq,
                                     o->cut, &asked->prompts, &asked->cuts);
    }
    model_encoder_destroy(encoder);
    return status;
}

/* On all ranks: the choices of all files, and how many positions the longest takes. */
static gyre_status_t share_questions(eval_t *eval, size_t *positions)
{
    const eval_options_t *o = eval->options;
    gyre_status_t status = GYRE_OK;
    eval->asked = calloc(o->files, sizeof *eval->asked);
    if (!eval->asked)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu files of questions", o->files);
    for (size_t i = 0; status == GYRE_OK && gyre_comm_rank(eval->comm) == 0 && i < o->files; i++)
        status = read_questions(eval, o->file[i], &eval->asked[i]);
    status = pipe_agree(eval->comm, status, NULL);
    for (size_t i = 0; status == GYRE_OK && i < o->files; i++) {
        status = pipe_prompts_share(eval->comm, status, &eval->asked[i].prompts);
        *positions = base_max_size(*positions, pipe_prompts_positions(&eval->asked[i].prompts, 0));
    }
    return status;
}

gyre_status_t eval_questions_open(eval_t *eval)
{
    pipe_generate_config_t how = eval->options->generate;
    how.batch = how.batch ? how.batch : 8;
    how.prefill = how.prefill ? how.prefill : 64;
    gyre_status_t status = share_questions(eval, &how.positions);
    return status == GYRE_OK ? pipe_generator_create(&eval->part, &how, &eval->generator) : status;
}

void eval_questions_close(eval_t *eval)
{
    for (size_t i = 0; eval->asked && i < eval->options->files; i++) {
        pipe_prompts_free(&eval->asked[i].prompts);
        pipe_questions_free(&eval->asked[i].questions);
    }
    free(eval->asked);
    pipe_generator_destroy(eval->generator);
}

gyre_status_t eval_questions(eval_t *eval, size_t file)
{
    const pipe_generate_t how = {0};
    const eval_asked_t *asked = &eval->asked[file];
    const pipe_prompts_t *prompts = &asked->prompts;
    double *score = calloc(prompts->count, sizeof *score);
    gyre_status_t status =
        score ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu choices", prompts->count);
    status = pipe_agree(eval->comm, status, NULL);
    if (status == GYRE_OK)
        status = pipe_generate(eval->generator, prompts->prompt, prompts->count, &how, add, score);
    if (status == GYRE_OK && eval->results)
        results_questions(eval->results, &asked->questions, asked->cuts, score, prompts);
    free(score);
    return status;
}
