/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/choices.c: lists of words and their values. */
#include "pipeline/plan/choices.h"

#include <stdio.h>
#include <string.h>

#include "model/data/data.h"
#include "model/network/stage/stage.h"
#include "optim/schedule.h"
#include "pipeline/schedules/schedule.h"

const pipe_word_t pipe_recompute_words[] = {{"none", MODEL_RECOMPUTE_NONE},
                                            {"selective", MODEL_RECOMPUTE_SELECTIVE},
                                            {"full", MODEL_RECOMPUTE_FULL},
                                            {NULL, 0}};
const pipe_word_t pipe_precision_words[] = {
    {"fp32", MODEL_FLOAT32}, {"bf16", MODEL_BFLOAT16}, {"fp16", MODEL_FLOAT16}, {NULL, 0}};
const pipe_word_t pipe_curve_words[] = {{"cosine", OPTIM_CURVE_COSINE},
                                        {"linear", OPTIM_CURVE_LINEAR},
                                        {"constant", OPTIM_CURVE_CONSTANT},
                                        {"wsd", OPTIM_CURVE_WSD},
                                        {"inverse-sqrt", OPTIM_CURVE_INVERSE_SQRT},
                                        {NULL, 0}};
const pipe_word_t pipe_optimizer_words[] = {{"adamw", 0}, {"muon", 1}, {NULL, 0}};
const pipe_word_t pipe_schedule_words[] = {
#define KIND(id, stem, name, ...) {name, PIPE_##id},
#include "pipeline/schedules/kinds.def"
#undef KIND
    {NULL, 0}};
const pipe_word_t pipe_context_words[] = {{"heads", 0}, {"ring", 1}, {NULL, 0}};
const pipe_word_t pipe_balance_words[] = {{"layers", 0}, {"embedding", 1}, {NULL, 0}};
const pipe_word_t pipe_objective_words[] = {{"causal", MODEL_OBJECTIVE_CAUSAL},
                                            {"prefix", MODEL_OBJECTIVE_PREFIX},
                                            {"infill", MODEL_OBJECTIVE_INFILL},
                                            {NULL, 0}};

int pipe_word_parse(const pipe_word_t *list, const char *word, int *value)
{
    for (; list->word; list++)
        if (strcmp(list->word, word) == 0) {
            *value = list->value;
            return 1;
        }
    return 0;
}

const char *pipe_word_name(const pipe_word_t *list, int value)
{
    while (list->word && list->value != value)
        list++;
    return list->word;
}

void pipe_words_join(const pipe_word_t *list, const char *separator, char *text, size_t bytes)
{
    size_t used = 0;
    *text = 0;
    for (const char *before = ""; list->word && used < bytes; list++, before = separator)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", before, list->word);
}
