/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/questions.h: questions of which one of some choices is the answer, from files in the form
 * in which their authors publish them. A model reads for each choice: context, a space, choice.
 *
 * Contexts are those of EleutherAI's lm-evaluation-harness without examples (lm_eval/tasks: hellaswag, arc,
 * mmlu/default). Letters and spaces that are not ASCII stay as they are.
 *
 *   hellaswag  JSON lines: activity_label, ctx_a, ctx_b, endings, label. Marks of WikiHow, such as [step],
 *              are taken out (Zellers et al. 2019)
 *   arc        JSON lines: question (stem, choices of text and label), answerKey; or question as a string,
 *              with choices.text and choices.label. "Question: ...\nAnswer:" (Clark et al. 2018)
 *   mmlu       CSV without a header: question, four choices, A, B, C or D. The subject is the file's name
 *              without _test.csv, _val.csv or _dev.csv. The choices' letters are scored (Hendrycks et al.
 *              2021) */
#ifndef PIPELINE_EVALUATE_QUESTIONS_H
#define PIPELINE_EVALUATE_QUESTIONS_H

#include <stddef.h>

#include <gyre/status.h>

typedef enum { PIPE_HELLASWAG, PIPE_ARC, PIPE_MMLU } pipe_questions_kind_t;

typedef struct {
    size_t line; /* of the file, from 1 on: its first */
    char *context;
    char **choice; /* [choices], not empty */
    size_t choices, answer;
} pipe_question_t;

typedef struct {
    const char *path;          /* borrowed */
    pipe_question_t *question; /* [count] */
    size_t count, room;
} pipe_questions_t;

/* The first `limit` questions of a file; 0: all. NOT_FOUND, IO, NO_MEMORY; FORMAT: the message names file,
 * line and key or field; INVALID: there is none. pipe_questions_free follows in any case. */
gyre_status_t pipe_questions_read(const char *path, pipe_questions_kind_t kind, size_t limit,
                                  pipe_questions_t *out);
void pipe_questions_free(pipe_questions_t *questions);

#endif
