/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/choices.h: the words that stand for choices in recipes, flags and config files, each list
 * once. */
#ifndef PIPELINE_PLAN_CHOICES_H
#define PIPELINE_PLAN_CHOICES_H

#include <stddef.h>

/* A list ends with a NULL word. */
typedef struct {
    const char *word;
    int value;
} pipe_word_t;

extern const pipe_word_t pipe_recompute_words[]; /* model_recompute_t */
extern const pipe_word_t pipe_precision_words[]; /* model_precision_t */
extern const pipe_word_t pipe_curve_words[];     /* optim_curve_t */
extern const pipe_word_t pipe_optimizer_words[]; /* 1: Muon */
extern const pipe_word_t pipe_schedule_words[];  /* pipe_kind_t */
extern const pipe_word_t pipe_context_words[];   /* pipe_layout_t.ring */
extern const pipe_word_t pipe_balance_words[];   /* pipe_layout_t.balance */
extern const pipe_word_t pipe_objective_words[]; /* model_objective_t */

/* 1 and *value; 0: the list has no such word. */
int pipe_word_parse(const pipe_word_t *list, const char *word, int *value);
/* The word of a value; NULL: it has none. */
const char *pipe_word_name(const pipe_word_t *list, int value);
/* All words with `separator` between them, such as "none|selective|full". */
void pipe_words_join(const pipe_word_t *list, const char *separator, char *text, size_t bytes);

#endif
