/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/internal.h: what the readers of questions share. */
#ifndef PIPELINE_EVALUATE_INTERNAL_H
#define PIPELINE_EVALUATE_INTERNAL_H

#include <stdio.h>

#include "pipeline/evaluate/questions.h"

/* The next question of a file into an empty *out, with its line; *line: lines that were read. NOT_FOUND,
 * silently: there is none. */
gyre_status_t pipe_read_json(FILE *in, const char *path, pipe_questions_kind_t kind, size_t *line,
                             pipe_question_t *out);
gyre_status_t pipe_read_csv(FILE *in, const char *path, size_t *line, pipe_question_t *out);

/* Room for so many choices, which are NULL as yet; NO_MEMORY, silently. */
gyre_status_t pipe_question_choices(pipe_question_t *question, size_t choices);
gyre_status_t pipe_question_no_memory(const char *path);

#endif
