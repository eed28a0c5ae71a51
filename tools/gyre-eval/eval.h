/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval/eval.h: what the parts of gyre-eval share. */
#ifndef GYRE_EVAL_EVAL_H
#define GYRE_EVAL_EVAL_H

#include "model/data/tokens.h"
#include "pipeline/evaluate/choices.h"
#include "pipeline/evaluate/perplexity.h"

typedef enum { TASK_PERPLEXITY, TASK_HELLASWAG, TASK_ARC, TASK_MMLU } eval_task_t;

typedef struct {
    pipe_part_config_t part;
    pipe_generate_config_t generate; /* of questions */
    int task;                        /* an eval_task_t */
    size_t stride;                   /* 0: all positions */
    size_t limit;                    /* tokens or questions of each file; 0: all */
    model_tokens_format_t format;
    int cut; /* 1: contexts that are too long */
    const char *tokenizer, *json, *logprobs;
    int no_bos, quiet;
    char **file;
    size_t files;
} eval_options_t;

/* What comes of it: a table on standard output, a JSON document, log-probabilities. On rank 0 alone. */
typedef struct results results_t;

/* A file of questions, read. */
typedef struct {
    pipe_questions_t questions; /* rank 0 */
    size_t cuts;                /* rank 0: contexts without their beginning */
    pipe_prompts_t prompts;     /* every choice after its context */
} eval_asked_t;

/* A run. */
typedef struct {
    const eval_options_t *options;
    gyre_comm_t *comm;
    pipe_part_t part;
    pipe_evaluator_t *evaluator;  /* of texts */
    pipe_generator_t *generator;  /* of questions */
    eval_asked_t *asked;          /* [options->files] of questions; NULL: not read yet */
    model_tokenizer_t *tokenizer; /* rank 0; NULL: not known */
    model_specials_t begin;       /* rank 0: in front of a text or context */
    results_t *results;           /* rank 0; else NULL */
    int warned;                   /* rank 0: of a window that is much longer than a text */
} eval_t;

/* IO, NO_MEMORY: an output cannot be written. */
gyre_status_t results_open(eval_t *eval);
/* A text's row. tokens [count]; bytes: of those that were scored; 0: not known. */
void results_text(results_t *results, const char *path, const model_token_t *tokens, size_t count,
                  const float *log_probability, size_t bytes, const pipe_perplexity_t *perplexity);
/* A file's row. score, tokens: of all choices, as encoded. */
void results_questions(results_t *results, const pipe_questions_t *questions, size_t cuts,
                       const double *score, const pipe_prompts_t *prompts);
/* Writes what is due at the end, if all went well so far, and frees. The first error of this or of a row. */
gyre_status_t results_close(results_t *results, gyre_status_t status);

/* One file. Collective. */
gyre_status_t eval_text(eval_t *eval, const char *path);
gyre_status_t eval_questions(eval_t *eval, size_t file);
/* All files of questions, and a generator with memory for the longest. Collective. */
gyre_status_t eval_questions_open(eval_t *eval);
void eval_questions_close(eval_t *eval);

#endif
