/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_decode.c: a model that reads tokens one by one, some at a time, with other sequences, or
 * with a prefix, gives each token the log-probability that a stage's forward over the whole sequence gives
 * it, to the bit, for every feature of the architecture, in every precision. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/network/decode/decode.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "tests/model/kinds.h"

enum { VOCAB = 64, SEQ = 32, LONG = 300, SLOTS = 3 };

static size_t positions; /* of the decoders that are made */

typedef struct {
    model_params_t *params;
    float *weights;
    model_decoder_t *decoder;
    model_token_t tokens[LONG + 1];
    float *expected; /* [T] of a stage: -log p of the next token */
    float *logits;   /* [SLOTS, V'] */
    float *scratch;
} pair_t;

static void expect(pair_t *p, size_t prefix, model_precision_t precision)
{
    const model_config_t *c = &p->params->config;
    const model_tp_t alone = {.size = 1};
    model_plain_store_t_f32 plain = {.params = p->params, .weights = p->weights};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    const model_stage_config_t all = {
        .layers = c->layers, .embed = 1, .head = 1, .slots = 1, .precision = precision};
    const model_sequence_t sequence = {
        .tokens = p->tokens, .targets = p->tokens + 1, .prefix = prefix, .evaluate = 1};
    model_stage_t_f32 *stage;
    double loss;
    assert_int_equal(model_stage_create_f32(p->params, &alone, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_OK);
    assert_int_equal(model_stage_forward_f32(stage, 0, &sequence, NULL, NULL, &loss), GYRE_OK);
    model_stage_losses_f32(stage, p->expected);
    model_stage_destroy_f32(stage);
}

static void make(pair_t *p, model_config_t config, size_t prefix, model_precision_t precision)
{
    config.vocab = config.vocab ? config.vocab : VOCAB;
    config.seq = config.seq ? config.seq : SEQ;
    config.layers = 2;
    config.hidden = 32;
    config.heads = 8;
    config.leaves = config.leaves ? config.leaves : 2;
    assert_int_equal(model_params_create(&config, &p->params), GYRE_OK);
    const model_config_t *c = &p->params->config;
    p->weights = calloc(p->params->total, sizeof(float));
    p->expected = calloc(c->seq, sizeof(float));
    p->logits = calloc(SLOTS * c->vocab_padded, sizeof(float));
    p->scratch = calloc(c->vocab_padded + c->leaves, sizeof(float));
    assert_true(p->weights && p->expected && p->logits && p->scratch);
    for (size_t i = 0; i < p->params->total; i++)
        p->weights[i] = (float)(0.3 * model_random_normal(11, MODEL_RANDOM_DATA, 0, i));
    for (size_t r = 0; r < p->params->rows; r++)
        for (size_t i = 0; p->params->row[r].init == MODEL_INIT_ONE && i < p->params->row[r].count; i++)
            p->weights[p->params->row[r].offset + i] += 1.0f;
    for (size_t t = 0; t <= c->seq; t++)
        p->tokens[t] = (model_token_t)(t * t % c->vocab);
    expect(p, prefix, precision);
    const model_decoder_config_t how = {.params = p->params,
                                        .weights = p->weights,
                                        .tp = {.size = 1},
                                        .layers = c->layers,
                                        .embed = 1,
                                        .head = 1,
                                        .slots = SLOTS,
                                        .rows = c->seq,
                                        .positions = positions,
                                        .precision = precision};
    assert_int_equal(model_decoder_create(&how, &p->decoder), GYRE_OK);
}

static void unmake(pair_t *p)
{
    model_decoder_destroy(p->decoder);
    model_params_destroy(p->params);
    free(p->weights);
    free(p->expected);
    free(p->logits);
    free(p->scratch);
}

/* The log-probability of the token after position t, from logits of row i, is the stage's. */
static void same_bits(const pair_t *p, size_t i, size_t t)
{
    const model_config_t *c = &p->params->config;
    float got = -model_log_probability(c, p->logits + i * c->vocab_padded, p->tokens[t + 1], p->scratch);
    if (got != p->expected[t])
        print_error("position %zu: %a, a stage has %a\n", t, (double)got, (double)p->expected[t]);
    assert_true(got == p->expected[t]);
}

/* Reads tokens [at, at + n) into slot 0. */
static void reads(const pair_t *p, size_t at, size_t n, int open)
{
    const model_piece_t piece = {.tokens = p->tokens + at, .count = n, .open = open};
    assert_int_equal(model_decoder_length(p->decoder, 0), at);
    assert_int_equal(model_decoder_read(p->decoder, &piece, 1, NULL, NULL, p->logits), GYRE_OK);
    same_bits(p, 0, at + n - 1);
}

#define LATENT                                                                                 \
    .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .gated = 1, .head_dim = 7, .rotary_dim = 4, \
    .value_dim = 5, .kv_latent = 6, .ffn = 24, .no_qkv_bias = 1, .no_mlp_bias = 1
static const model_config_t kinds[] = {
    {0},
    {.leaves = 1},
    {.leaves = 8},
    {LLAMA_LIKE, .kv_heads = 4},
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
    {.pos = MODEL_POS_ROPE, .window = 5},
    {.pos = MODEL_POS_ROPE, .nope_every = 2, .kv_heads = 4},
    {.pos = MODEL_POS_ROPE,
     .norm = MODEL_NORM_RMS,
     .qk_norm = 1,
     .kv_heads = 4,
     .head_dim = 6,
     .no_proj_bias = 1},
    {.norm = MODEL_NORM_RMS, .gain_plus_1 = 1, .embed_scaled = 1},
    {.norm = MODEL_NORM_RMS, .kv_heads = 4, .out_norm = 1, .qk_norm = 1, .qk_whole = 1, .no_qkv_bias = 1},
    {.norm = MODEL_NORM_RMS,
     .gain_plus_1 = 1,
     .both_norms = 1,
     .attn_cap = 0.9,
     .logit_cap = 1.1,
     .query_scale = 3,
     .window = 5,
     .window_every = 2},
    {.norm = MODEL_NORM_RMS,
     .pos = MODEL_POS_ROPE,
     .gain_plus_1 = 1,
     .qk_norm = 1,
     .window = 5,
     .window_every = 2,
     .local_theta = 100},
    {.norm = MODEL_NORM_RMS, .pos = MODEL_POS_ROPE, .rope_interleaved = 1, .rotary_dim = 2, .both_norms = 1},
    {.top_query = 1, .qk_norm = 1},
    {.norm = MODEL_NORM_RMS,
     .pos = MODEL_POS_ROPE,
     .act = MODEL_ACT_GELU_FAST,
     .act_limit = 0.1,
     .gated = 1,
     .kv_heads = 4,
     .sinks = 1,
     .window = 5,
     .window_every = 2,
     .experts = 4,
     .router_bias = 1,
     .expert_bias = 1,
     .capacity = 2.0},
    {LATENT, .q_latent = 12, .experts = 8, .top_k = 3, .dense_first = 1, .dense_ffn = 20, .shared_ffn = 12,
     .groups = 4, .top_groups = 2, .router_sigmoid = 1, .routed_scale = 2.5},
    {LATENT, .experts = 4, .raw_weights = 1, .capacity = 0.5, .rope_interleaved = 1, .shared_ffn = 8},
    {LATENT, .act = MODEL_ACT_RELU},
    {.pos = MODEL_POS_ALIBI, .window = 9, .window_every = 2, .kv_heads = 2},
};

/* One by one; again after a reset, all at once; three at a time. */
static void check_reads(const model_config_t *kind, model_precision_t precision)
{
    pair_t p;
    make(&p, *kind, 0, precision);
    const size_t T = p.params->config.seq;
    for (size_t t = 0; t < T; t++)
        reads(&p, t, 1, 0);
    model_decoder_reset(p.decoder, 0);
    reads(&p, 0, T, 0);
    model_decoder_reset(p.decoder, 0);
    for (size_t t = 0; t + 3 <= T; t += 3)
        reads(&p, t, 3, 0);
    unmake(&p);
}

static void every_kind(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        check_reads(&kinds[k], MODEL_FLOAT32);
}

static void every_precision(void **unused)
{
    (void)unused;
    const model_config_t some[] = {
        {0},
        kinds[3],
        {.experts = 4, .untied = 1},
        {.qk_norm = 1},
        {.norm = MODEL_NORM_RMS, .gain_plus_1 = 1, .embed_scaled = 1},
        {.out_norm = 1, .qk_norm = 1, .qk_whole = 1},
        {.norm = MODEL_NORM_RMS, .both_norms = 1, .attn_cap = 0.9, .logit_cap = 1.1},
        {.experts = 4, .sinks = 1, .router_bias = 1, .expert_bias = 1},
        {LATENT, .q_latent = 12, .experts = 4, .dense_first = 1, .shared_ffn = 12, .router_sigmoid = 1}};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        check_reads(&some[k], MODEL_BFLOAT16);
        check_reads(&some[k], MODEL_FLOAT16);
    }
}

/* Shapes for which the BLAS may have other orders: odd numbers of positions and ids, short and long ones. */
static void odd_shapes(void **unused)
{
    (void)unused;
    const model_config_t odd[] = {
        {.seq = 12, .vocab = 21},     {.seq = 37, .vocab = 101}, {.seq = 1},
        {.seq = 100, .head_dim = 12}, {.seq = 160, .ffn = 344},  {.seq = 160, .window = 37}};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
        check_reads(&odd[k], MODEL_FLOAT32);
}

/* Positions in several blocks of attention: whole ones only, a short one at the end, and windows that leave
 * out blocks. */
static void blocks(void **unused)
{
    (void)unused;
    const model_config_t some[] = {{.seq = 256, .kv_heads = 4},
                                   {.seq = LONG, .pos = MODEL_POS_ROPE},
                                   {.seq = LONG, .pos = MODEL_POS_ALIBI, .window = 1},
                                   {.seq = LONG, .window = 130},
                                   {.seq = LONG, LATENT},
                                   {.seq = 129}};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++)
        check_reads(&some[k], k == 1 ? MODEL_BFLOAT16 : MODEL_FLOAT32);
}

static gyre_status_t try_read(const pair_t *p, const model_token_t *tokens, size_t n, int open)
{
    const model_piece_t piece = {.tokens = tokens, .count = n, .open = open};
    return model_decoder_read(p->decoder, &piece, 1, NULL, NULL, p->logits);
}

/* Less positions than the model has: the same bits, up to there, and no memory for the others. */
static void few_positions(void **unused)
{
    (void)unused;
    const model_config_t some[] = {{.seq = LONG, .pos = MODEL_POS_ROPE, .kv_heads = 4},
                                   {.seq = LONG, LATENT}};
    pair_t p;
    for (size_t k = 0; k < sizeof some / sizeof *some; k++)
        for (positions = 100; positions <= 290; positions += 90) {
            make(&p, some[k], 0, MODEL_FLOAT32);
            reads(&p, 0, 97, 0);
            reads(&p, 97, positions - 98, 0);
            reads(&p, positions - 1, 1, 0);
            assert_int_equal(try_read(&p, p.tokens, 1, 0), GYRE_ERR_INVALID);
            unmake(&p);
        }
    make(&p, (model_config_t){.pos = MODEL_POS_ROPE}, 0, MODEL_FLOAT32);
    p.params->config.seq = (size_t)1 << 61; /* bytes that cannot be counted: no allocator is asked */
    model_decoder_config_t how = {.params = p.params,
                                  .weights = p.weights,
                                  .tp = {.size = 1},
                                  .layers = 2,
                                  .embed = 1,
                                  .head = 1,
                                  .slots = SLOTS,
                                  .rows = 9,
                                  .fast = 1};
    model_decoder_t *decoder;
    assert_int_equal(model_decoder_create(&how, &decoder), GYRE_ERR_NO_MEMORY);
    how.positions = 1000;
    assert_int_equal(model_decoder_create(&how, &decoder), GYRE_OK);
    model_decoder_destroy(decoder);
    positions = 0;
    unmake(&p);
}

/* Three sequences in one call, of other lengths; the middle one begins later. */
static void other_sequences(void **unused)
{
    (void)unused;
    pair_t p;
    make(&p, kinds[3], 0, MODEL_FLOAT32);
    const size_t count[] = {5, 2, 9};
    size_t at[SLOTS] = {0, 0, 0};
    for (int round = 0; round < 3; round++) {
        model_piece_t piece[SLOTS];
        size_t slot[SLOTS], n = 0;
        for (size_t i = 0; i < SLOTS; i++)
            if (i != 1 || round > 0) {
                piece[n] = (model_piece_t){.slot = i, .tokens = p.tokens + at[i], .count = count[i]};
                slot[n++] = i;
                at[i] += count[i];
            }
        assert_int_equal(model_decoder_read(p.decoder, piece, n, NULL, NULL, p.logits), GYRE_OK);
        for (size_t i = 0; i < n; i++)
            same_bits(&p, i, at[slot[i]] - 1);
    }
    unmake(&p);
}

static void prefixes(void **unused)
{
    (void)unused;
    const model_config_t prefixed[] = {{.prefix = 1},
                                       {.prefix = 1, .pos = MODEL_POS_ROPE, .post_norm = 1, .deepnorm = 2},
                                       {.prefix = 1, .pos = MODEL_POS_ALIBI},
                                       {.prefix = 1, .seq = LONG}};
    for (size_t k = 0; k < sizeof prefixed / sizeof *prefixed; k++) {
        const size_t first = prefixed[k].seq ? 270 : 5;
        pair_t p;
        make(&p, prefixed[k], first, MODEL_FLOAT32);
        reads(&p, 0, first, 1);
        reads(&p, first, 1, 0);
        reads(&p, first + 1, 4, 0);
        unmake(&p);
    }
}

static void refusals(void **unused)
{
    (void)unused;
    pair_t p;
    const model_token_t bad[] = {VOCAB, -1};
    make(&p, (model_config_t){0}, 0, MODEL_FLOAT32);
    assert_int_equal(try_read(&p, p.tokens, 0, 0), GYRE_ERR_INVALID);
    assert_int_equal(try_read(&p, p.tokens, SEQ + 1, 0), GYRE_ERR_INVALID);
    assert_int_equal(try_read(&p, p.tokens, 2, 1), GYRE_ERR_INVALID);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(try_read(&p, bad + i, 1, 0), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "the vocabulary is 0..63"));
    }
    const model_piece_t two[] = {{.slot = 0, .tokens = p.tokens, .count = SEQ},
                                 {.slot = 1, .tokens = p.tokens, .count = 1}};
    assert_int_equal(model_decoder_read(p.decoder, two, 2, NULL, NULL, p.logits), GYRE_ERR_INVALID);
    reads(&p, 0, SEQ, 0);
    assert_int_equal(try_read(&p, p.tokens, 1, 0), GYRE_ERR_INVALID);
    model_decoder_destroy(NULL);
    unmake(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind),      cmocka_unit_test(every_precision),
                                       cmocka_unit_test(odd_shapes),      cmocka_unit_test(blocks),
                                       cmocka_unit_test(other_sequences), cmocka_unit_test(prefixes),
                                       cmocka_unit_test(refusals),        cmocka_unit_test(few_positions)};
    base_log_set_level(BASE_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
