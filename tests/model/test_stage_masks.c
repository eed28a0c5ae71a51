/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_stage_masks.c: targets that are not learned, and documents of a sequence, which do not see
 * one another: their logits are those of each alone, to the bit where the BLAS treats all rows alike. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/model/whole.h"

static const model_config_t llama = {.vocab = 11,
                                     .seq = 8,
                                     .layers = 2,
                                     .hidden = 8,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 4,
                                     .ffn = 12,
                                     .leaves = 2,
                                     .pos = MODEL_POS_ROPE,
                                     .norm = MODEL_NORM_RMS,
                                     .act = MODEL_ACT_SILU,
                                     .gated = 1};

/* The loss and a copy of all gradients with these targets hidden: bit t of `hidden`. */
static double masked(whole_t *w, unsigned hidden, double *grads)
{
    model_token_t targets[16];
    const model_sequence_t keep = w->sequence;
    memcpy(targets, w->targets, sizeof targets);
    for (size_t t = 0; t < w->params->config.seq; t++)
        if (hidden >> t & 1)
            targets[t] = MODEL_IGNORED;
    w->sequence.targets = targets;
    memset(w->grads, 0xff, w->params->grad_total * sizeof(double));
    double loss = loss_of(w);
    assert_int_equal(model_stage_backward_f64(w->stage, 0, 1.0, NULL, NULL), GYRE_OK);
    memcpy(grads, w->grads, w->params->grad_total * sizeof(double));
    w->sequence = keep;
    return loss;
}

/* The loss is the sum over learned positions, over the number of all positions; gradients are those of it. */
static void check_ignored(const model_config_t *config)
{
    whole_t w = {0};
    double each[16], sum = 0.0;
    const unsigned all = (1u << config->seq) - 1, some = 0x2d;
    make(&w, config, (model_stage_config_t){0});
    const size_t n = w.params->grad_total;
    double *whole = calloc(3 * n, sizeof *whole), *part = whole + n, *rest = part + n;
    assert_non_null(whole);
    double loss = masked(&w, 0, whole);
    loss_of(&w);
    model_stage_losses_f64(w.stage, each);
    for (size_t t = 0; t < config->seq; t++)
        sum += some >> t & 1 ? 0.0 : each[t];
    assert_true(masked(&w, some, part) == sum / (double)config->seq);
    double other = masked(&w, all & ~some, rest), most = 0.0;
    assert_true(fabs(sum / (double)config->seq + other - loss) < 1e-14);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(whole[i]));
    for (size_t i = 0; i < n; i++)
        assert_true(fabs(part[i] + rest[i] - whole[i]) <= 1e-13 * most);
    assert_true(masked(&w, all, whole) == 0.0);
    for (size_t i = 0; i < n; i++)
        assert_true(whole[i] == 0.0);
    free(whole);
    unmake(&w);
}

static void ignored(void **state)
{
    (void)state;
    check_ignored(&gpt2);
    check_ignored(&llama);
}

/* ---- documents ----------------------------------------------------------------------------------------- */

enum { LONG = 320, VOCAB = 96, DOCUMENTS = 4 };
/* two of more than a block of attention; and padding */
static const size_t length[DOCUMENTS] = {147, 1, 131, 9};

static const model_config_t shapes[] = {
    {.vocab = VOCAB, .seq = LONG, .layers = 2, .hidden = 64, .heads = 4, .leaves = 2, .pos_offset = 2},
    {.vocab = VOCAB,
     .seq = LONG,
     .layers = 2,
     .hidden = 64,
     .heads = 4,
     .leaves = 4,
     .pos = MODEL_POS_ALIBI,
     .embed_norm = 1},
    {.vocab = VOCAB,
     .seq = LONG,
     .layers = 2,
     .hidden = 64,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .ffn = 96,
     .leaves = 2,
     .pos = MODEL_POS_ROPE,
     .norm = MODEL_NORM_RMS,
     .act = MODEL_ACT_SILU,
     .gated = 1},
};

typedef struct {
    model_params_t *params;
    float *weights, *grads;
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
    model_token_t tokens[LONG], targets[LONG];
    int32_t documents[LONG];
} packed_t;

static void make_packed(packed_t *w, const model_config_t *config, model_precision_t precision)
{
    assert_int_equal(model_params_create(config, &w->params), GYRE_OK);
    w->weights = calloc(w->params->total, sizeof *w->weights);
    w->grads = calloc(w->params->grad_total, sizeof *w->grads);
    assert_true(w->weights && w->grads);
    for (size_t i = 0; i < w->params->total; i++)
        w->weights[i] = (float)(0.2 * model_random_normal(5, MODEL_RANDOM_DATA, 0, i));
    w->plain = (model_plain_store_t_f32){.params = w->params, .weights = w->weights, .grads = w->grads};
    const model_store_t_f32 store = model_plain_store_f32(&w->plain);
    const model_stage_config_t how = {
        .layers = 2, .embed = 1, .head = 1, .slots = 1, .documents = 1, .precision = precision};
    assert_int_equal(model_stage_create_f32(w->params, &alone, &how, &store, MODEL_ISA_BEST, &w->stage),
                     GYRE_OK);
}

static void unmake_packed(packed_t *w)
{
    model_stage_destroy_f32(w->stage);
    model_params_destroy(w->params);
    free(w->weights);
    free(w->grads);
}

/* Token i of document d; -1: padding. */
static model_token_t token_of(int d, size_t i)
{
    return d < 0 ? 0 : (model_token_t)((7 * (size_t)d + i * i + 3) % VOCAB);
}

static size_t put_document(packed_t *w, size_t at, int d, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        w->tokens[at + i] = token_of(d, i);
        w->targets[at + i] = d < 0 ? MODEL_IGNORED : token_of(d, i + 1);
        w->documents[at + i] = (int32_t)at;
    }
    return at + count;
}

static model_sequence_t sequence_of(const packed_t *w)
{
    return (model_sequence_t){.tokens = w->tokens, .targets = w->targets, .documents = w->documents};
}

/* 1: the BLAS treats all rows of the stage's products alike: a sequence of documents of the same one token
 * has the same logits everywhere. */
static int rows_are_alike(packed_t *w)
{
    static float logits[LONG * VOCAB];
    const model_sequence_t sequence = sequence_of(w);
    for (size_t at = 0; at < LONG; at++)
        put_document(w, at, 0, 1);
    assert_int_equal(model_stage_logits_f32(w->stage, &sequence, NULL, 0, LONG, logits), GYRE_OK);
    for (size_t at = 1; at < LONG; at++)
        if (memcmp(logits + at * VOCAB, logits, VOCAB * sizeof *logits) != 0)
            return 0;
    return 1;
}

/* To the bit, or as close as other orders of addition are. */
static void check_same(const float *a, const float *b, size_t n, int alike, model_precision_t precision)
{
    if (alike) {
        assert_memory_equal(a, b, n * sizeof *a);
        return;
    }
    float most = 0.0f, off = 0.0f;
    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(a[i]));
        off = fmaxf(off, fabsf(a[i] - b[i]));
    }
    assert_true(off <= most * (precision == MODEL_FLOAT32 ? 1e-5f : 4e-2f));
}

static void together_as_alone(void **state)
{
    (void)state;
    static float all[LONG * VOCAB], one[LONG * VOCAB];
    const model_precision_t precisions[] = {MODEL_FLOAT32, MODEL_BFLOAT16};
    for (size_t c = 0; c < 2 * sizeof shapes / sizeof *shapes; c++) {
        packed_t w = {0};
        size_t at = 0;
        make_packed(&w, &shapes[c / 2], precisions[c % 2]);
        const int alike = rows_are_alike(&w);
        if (!alike)
            print_message("this BLAS does not treat all rows of a product alike: not to the bit\n");
        for (int d = 0; d < DOCUMENTS; d++)
            at = put_document(&w, at, d, length[d]);
        put_document(&w, at, -1, LONG - at);
        model_sequence_t sequence = sequence_of(&w);
        assert_int_equal(model_stage_logits_f32(w.stage, &sequence, NULL, 0, LONG, all), GYRE_OK);
        at = 0;
        for (int d = 0; d < DOCUMENTS; d++) {
            put_document(&w, put_document(&w, 0, d, length[d]), -1, LONG - length[d]);
            assert_int_equal(model_stage_logits_f32(w.stage, &sequence, NULL, 0, length[d], one), GYRE_OK);
            check_same(one, all + at * VOCAB, length[d] * VOCAB, alike, precisions[c % 2]);
            at += length[d];
        }
        /* a document that fills the sequence is a sequence without documents */
        put_document(&w, 0, 0, LONG);
        assert_int_equal(model_stage_logits_f32(w.stage, &sequence, NULL, 0, LONG, all), GYRE_OK);
        sequence.documents = NULL;
        assert_int_equal(model_stage_logits_f32(w.stage, &sequence, NULL, 0, LONG, one), GYRE_OK);
        assert_memory_equal(one, all, sizeof all);
        unmake_packed(&w);
    }
}

/* All gradients of packed documents against central differences. */
static void check_gradients(const model_config_t *config, model_stage_config_t how)
{
    static const int32_t documents[8] = {0, 0, 0, 3, 3, 3, 3, 7};
    whole_t w = {0};
    how.documents = 1;
    make(&w, config, how);
    w.sequence.documents = documents;
    w.targets[2] = w.targets[5] = MODEL_IGNORED;
    memset(w.grads, 0xff, w.params->grad_total * sizeof(double));
    loss_of(&w);
    assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    for (size_t r = 0; r < w.params->rows; r++) {
        const model_param_t *row = &w.params->row[r];
        if (row->twin)
            continue;
        for (size_t i = 0; i < row->count; i++) {
            double *x = w.weights + row->offset + i, keep = *x;
            *x = keep + 1e-5;
            double up = loss_of(&w);
            *x = keep - 1e-5;
            double want = (up - loss_of(&w)) / 2e-5;
            *x = keep;
            assert_true(fabs(w.grads[row->grad + i] - want) < 1e-7 * fmax(1.0, fabs(want)));
        }
    }
    unmake(&w);
}

static void document_gradients(void **state)
{
    (void)state;
    model_config_t c = gpt2;
    c.seq = 8;
    c.dropout = c.attn_dropout = 0.2;
    check_gradients(&c, (model_stage_config_t){.seed = 3});
    check_gradients(&llama, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_SELECTIVE});
    check_gradients(&llama, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL});
    c.pos = MODEL_POS_ALIBI;
    c.attn_dropout = 0.0;
    check_gradients(&c, (model_stage_config_t){0});
}

static void document_refusals(void **state)
{
    (void)state;
    packed_t w = {0};
    double loss;
    make_packed(&w, &shapes[0], MODEL_FLOAT32);
    put_document(&w, put_document(&w, 0, 0, 20), 1, LONG - 20);
    w.documents[30] = 3;
    const model_sequence_t sequence = sequence_of(&w);
    assert_int_equal(model_stage_forward_f32(w.stage, 0, &sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "position 30 is said to be of a document that begins at 3"));
    w.documents[30] = 20;
    assert_int_equal(model_stage_forward_f32(w.stage, 0, &sequence, NULL, NULL, &loss), GYRE_OK);
    unmake_packed(&w);
    whole_t plain = {0};
    const int32_t zeros[16] = {0};
    make(&plain, &gpt2, (model_stage_config_t){0});
    plain.sequence.documents = zeros;
    assert_int_equal(model_stage_forward_f64(plain.stage, 0, &plain.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    unmake(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ignored), cmocka_unit_test(together_as_alone),
                                       cmocka_unit_test(document_gradients),
                                       cmocka_unit_test(document_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
