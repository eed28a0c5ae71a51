/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_questions.c: files of questions in the three formats. Each question that was taken has a
 * context, choices that are not empty, and an answer among them; all of them can be encoded. */
#include "pipeline/evaluate/choices.h"
#include "tests/fuzz/fuzz.h"

static model_encoder_t *encoder;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static model_tokenizer_t *tokenizer; /* outlives the encoder */
    FUZZ_CHECK(model_tokenizer_open("bytes", &tokenizer) == GYRE_OK);
    FUZZ_CHECK(model_encoder_create(tokenizer, &encoder) == GYRE_OK);
    return 0;
}

static void encode(const pipe_questions_t *questions)
{
    pipe_prompts_t prompts = {0};
    size_t cuts, choices = 0;
    for (size_t i = 0; i < questions->count; i++) {
        const pipe_question_t *q = &questions->question[i];
        FUZZ_CHECK(q->line > 0 && q->context && q->choices > 1 && q->answer < q->choices);
        for (size_t c = 0; c < q->choices; c++)
            FUZZ_CHECK(*q->choice[c]);
        choices += q->choices;
    }
    if (pipe_choices_encode(questions, encoder, 64, 1, &prompts, &cuts) == GYRE_OK) {
        FUZZ_CHECK(prompts.count == choices && cuts <= choices);
        for (size_t i = 0; i < prompts.count; i++)
            FUZZ_CHECK(prompts.prompt[i].count > 0 && prompts.prompt[i].given > 0 &&
                       prompts.prompt[i].count + prompts.prompt[i].given <= 65);
    }
    pipe_prompts_free(&prompts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pipe_questions_kind_t kinds[] = {PIPE_HELLASWAG, PIPE_ARC, PIPE_MMLU};
    const char *path = fuzz_file(data, size);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        pipe_questions_t questions;
        if (pipe_questions_read(path, kinds[k], 0, &questions) == GYRE_OK)
            encode(&questions);
        pipe_questions_free(&questions);
    }
    return 0;
}
