/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_decode.c: a model that reads tokens one by one, some at a time, or with a prefix, has the
 * logits that a stage has for the whole sequence, for every feature of the architecture. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "model/network/decode.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"

enum { VOCAB = 21, SEQ = 12, LONG = 150 };

typedef struct {
    model_params_t *params;
    float *weights;
    model_decoder_t *decoder;
    model_token_t tokens[LONG];
    float *expected; /* [T,V] of a stage */
} pair_t;

static void make(pair_t *p, model_config_t config, size_t prefix)
{
    const model_tp_t alone = {.size = 1};
    config.vocab = VOCAB;
    config.seq = config.seq ? config.seq : SEQ;
    config.layers = 3;
    config.hidden = 32;
    config.heads = 8;
    config.leaves = config.leaves ? config.leaves : 2;
    assert_int_equal(model_params_create(&config, &p->params), GYRE_OK);
    p->weights = calloc(p->params->total, sizeof(float));
    p->expected = calloc(config.seq * VOCAB, sizeof(float));
    assert_true(p->weights && p->expected);
    for (size_t i = 0; i < p->params->total; i++)
        p->weights[i] = (float)(0.3 * model_random_normal(11, MODEL_RANDOM_DATA, 0, i));
    for (size_t r = 0; r < p->params->rows; r++)
        for (size_t i = 0; p->params->row[r].init == MODEL_INIT_ONE && i < p->params->row[r].count; i++)
            p->weights[p->params->row[r].offset + i] += 1.0f;
    for (size_t t = 0; t < config.seq; t++)
        p->tokens[t] = (model_token_t)(t * t % VOCAB);
    model_plain_store_t_f32 plain = {.params = p->params, .weights = p->weights};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    const model_stage_config_t all = {.layers = config.layers, .embed = 1, .head = 1, .slots = 1};
    const model_sequence_t sequence = {.tokens = p->tokens, .prefix = prefix};
    model_stage_t_f32 *stage;
    assert_int_equal(model_stage_create_f32(p->params, &alone, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_OK);
    assert_int_equal(model_stage_logits_f32(stage, &sequence, NULL, 0, config.seq, p->expected), GYRE_OK);
    model_stage_destroy_f32(stage);
    assert_int_equal(model_decoder_create(p->params, p->weights, &p->decoder), GYRE_OK);
}

static void unmake(pair_t *p)
{
    model_decoder_destroy(p->decoder);
    model_params_destroy(p->params);
    free(p->weights);
    free(p->expected);
}

/* Reads tokens [at, at + n) and compares the logits of the last one. */
static void reads(const pair_t *p, size_t at, size_t n, int open)
{
    float logits[VOCAB], largest = 0;
    assert_int_equal(model_decoder_length(p->decoder), at);
    assert_int_equal(model_decoder_read(p->decoder, p->tokens + at, n, open, logits), GYRE_OK);
    const float *expected = p->expected + (at + n - 1) * VOCAB;
    for (size_t i = 0; i < VOCAB; i++)
        largest = fmaxf(largest, fabsf(expected[i]));
    assert_true(largest > 0.01f);
    for (size_t i = 0; i < VOCAB; i++)
        assert_true(fabsf(logits[i] - expected[i]) < 1e-4f * largest);
}

static const model_config_t kinds[] = {
    {0},
    {.leaves = 1},
    {.leaves = 8},
    {.norm = MODEL_NORM_RMS,
     .pos = MODEL_POS_ROPE,
     .act = MODEL_ACT_SILU,
     .gated = 1,
     .untied = 1,
     .no_qkv_bias = 1,
     .no_proj_bias = 1,
     .no_mlp_bias = 1,
     .kv_heads = 4},
    {.pos = MODEL_POS_ALIBI, .embed_norm = 1},
    {.pos = MODEL_POS_ROPE, .parallel = 1, .untied = 1, .rotary_dim = 2, .act = MODEL_ACT_GELU_ERF},
    {.pos = MODEL_POS_ROPE, .rope_interleaved = 1, .head_dim = 8},
    {.pos_offset = 2, .act = MODEL_ACT_RELU},
    {.post_norm = 1, .deepnorm = 2.5},
    {.top_query = 1},
    {.top_query = 1, .no_qkv_bias = 1},
    {.experts = 4, .untied = 1, .capacity = 4.0},
    {.experts = 4, .gated = 1, .act = MODEL_ACT_SILU, .capacity = 0.5}, /* most find no slot */
    {.experts = 4, .top_k = 1},
};

/* One by one; again after a reset, all at once; three at a time. */
static void same_logits(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        pair_t p;
        make(&p, kinds[k], 0);
        for (size_t t = 0; t < SEQ; t++)
            reads(&p, t, 1, 0);
        model_decoder_reset(p.decoder);
        reads(&p, 0, SEQ, 0);
        model_decoder_reset(p.decoder);
        for (size_t t = 0; t < SEQ; t += 3)
            reads(&p, t, 3, 0);
        unmake(&p);
    }
}

/* More rows than it takes at a time. */
static void long_text(void **unused)
{
    (void)unused;
    pair_t p;
    make(&p, (model_config_t){.seq = LONG, .pos = MODEL_POS_ROPE}, 0);
    reads(&p, 0, LONG - 2, 0);
    reads(&p, LONG - 2, 2, 0);
    unmake(&p);
}

static void prefixes(void **unused)
{
    (void)unused;
    const model_config_t prefixed[] = {{.prefix = 1},
                                       {.prefix = 1, .pos = MODEL_POS_ROPE, .post_norm = 1, .deepnorm = 2},
                                       {.prefix = 1, .pos = MODEL_POS_ALIBI}};
    for (size_t k = 0; k < sizeof prefixed / sizeof *prefixed; k++) {
        pair_t p;
        make(&p, prefixed[k], 5);
        reads(&p, 0, 5, 1);
        reads(&p, 5, 1, 0);
        reads(&p, 6, 4, 0);
        unmake(&p);
    }
}

static void refusals(void **unused)
{
    (void)unused;
    pair_t p;
    float logits[VOCAB];
    const model_token_t bad[] = {VOCAB, -1};
    make(&p, (model_config_t){0}, 0);
    assert_int_equal(model_decoder_read(p.decoder, p.tokens, 0, 0, logits), GYRE_ERR_INVALID);
    assert_int_equal(model_decoder_read(p.decoder, p.tokens, SEQ + 1, 0, logits), GYRE_ERR_INVALID);
    assert_int_equal(model_decoder_read(p.decoder, p.tokens, 2, 1, logits), GYRE_ERR_INVALID);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(model_decoder_read(p.decoder, bad + i, 1, 0, logits), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "the vocabulary is 0..20"));
    }
    reads(&p, 0, SEQ, 0);
    assert_int_equal(model_decoder_read(p.decoder, p.tokens, 1, 0, logits), GYRE_ERR_INVALID);
    model_decoder_destroy(NULL);
    unmake(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_logits), cmocka_unit_test(long_text),
                                       cmocka_unit_test(prefixes), cmocka_unit_test(refusals)};
    base_log_set_level(BASE_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
