/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/choices.h: what a model chooses. A choice's score is the sum of log p of its tokens after
 * the context; the model chooses the highest, of equals the first.
 *
 * Accuracy is counted in three ways, those of EleutherAI's lm-evaluation-harness (lm_eval/api/task.py,
 * process_results). acc takes the sums. acc_norm divides them by the choice's length in characters, acc_bytes
 * by that in bytes of UTF-8. The space in front of a choice does not count. */
#ifndef PIPELINE_EVALUATE_CHOICES_H
#define PIPELINE_EVALUATE_CHOICES_H

#include "model/tokenizer/tokenizer.h"
#include "pipeline/evaluate/questions.h"
#include "pipeline/generate/prompts.h"

/* A prompt for each choice of each question, in their order, for a model of `seq` positions. A context begins
 * with what the encoder puts in front of a text. As the harness:
 * spaces at the end of a context belong to the choice; the choice's tokens are those of context and choice
 * together that stand after as many as the context alone has. cut 1: the beginning of a context that is too
 * long is left out, and *cuts counts these prompts; 0: INVALID. INVALID, too: a choice that adds no token, or
 * that alone is too long, a context without tokens: the message names file and line. NO_MEMORY. */
gyre_status_t pipe_choices_encode(const pipe_questions_t *questions, model_encoder_t *encoder, size_t seq,
                                  int cut, pipe_prompts_t *prompts, size_t *cuts);

typedef enum { PIPE_ACC, PIPE_ACC_NORM, PIPE_ACC_BYTES, PIPE_ACCS } pipe_acc_t;

/* right: questions whose answer is chosen, each way. score: of all choices, as encoded. */
void pipe_choices_count(const pipe_questions_t *questions, const double *score, size_t right[PIPE_ACCS]);

/* Characters of a text in UTF-8. */
size_t pipe_choice_characters(const char *choice);

#endif
