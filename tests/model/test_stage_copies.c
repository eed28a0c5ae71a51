/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/model/test_stage_copies.c: a model whose leaves share heads of keys and values against the same model
 * with no more leaves than such heads, in double: loss, the gradient of every weight, the gradients of its
 * adapters; copies have the same bits. Bits over ranks: mp_stage and tests/layouts/check. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "model/network/lora.h"
#include "tests/model/whole.h"

enum { LEAVES = 4, RANK = 3 };

/* Row by row the weights or the gradients of `from` in the order of `to`, which has other leaves. */
static void convert(const model_params_t *from, const double *values, const model_params_t *to, double *out,
                    int grads)
{
    double file[2048];
    assert_int_equal(from->rows, to->rows);
    for (size_t r = 0; r < from->rows; r++) {
        const model_param_t *a = &from->row[r], *b = &to->row[r];
        assert_true(a->shape[0] * a->shape[1] <= 2048);
        for (size_t i = 0; i < a->count; i++)
            file[model_param_place(a, i)] = values[(grads ? a->grad : a->offset) + i];
        for (size_t i = 0; i < b->count; i++)
            out[(grads ? b->grad : b->offset) + i] = file[model_param_place(b, i)];
    }
}

static void compare(model_config_t c, model_stage_config_t how)
{
    whole_t few = {0}, many = {0};
    how.seed = 3;
    c.vocab_padded = 12;
    c.leaves = c.kv_heads;
    make(&few, &c, how);
    c.leaves = LEAVES;
    make(&many, &c, how);
    convert(few.params, few.weights, many.params, many.weights, 0);
    assert_true(fabs(loss_of(&few) - loss_of(&many)) < 1e-12);
    assert_int_equal(model_stage_backward_f64(few.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    assert_int_equal(model_stage_backward_f64(many.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    if (how.split) {
        assert_int_equal(model_stage_backward_weight_f64(few.stage, 0), GYRE_OK);
        assert_int_equal(model_stage_backward_weight_f64(many.stage, 0), GYRE_OK);
    }
    double *want = calloc(many.params->grad_total, sizeof *want);
    assert_non_null(want);
    convert(few.params, few.grads, many.params, want, 1);
    for (size_t i = 0; i < many.params->grad_total; i++)
        assert_true(fabs(want[i] - many.grads[i]) < 1e-12 * fmax(1.0, fabs(want[i])));
    convert(many.params, many.grads, many.params, want, 1); /* of copies one */
    assert_memory_equal(want, many.grads, many.params->grad_total * sizeof *want);
    free(want);
    unmake(&few);
    unmake(&many);
}

static void leaves_change_nothing(void **state)
{
    (void)state;
    model_config_t c = gpt2;
    for (c.kv_heads = 1; c.kv_heads <= 2; c.kv_heads++) {
        compare(c, (model_stage_config_t){.split = c.kv_heads == 1});
        model_config_t qwen = c;
        qwen.norm = MODEL_NORM_RMS;
        qwen.pos = MODEL_POS_ROPE;
        qwen.untied = qwen.gated = qwen.qk_norm = 1;
        qwen.heads = 8;
        qwen.head_dim = 6;
        qwen.attn_dropout = 0.2;
        compare(qwen, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL});
    }
}

/* Gradients of the factors of q, k and v's weight from its gradient [in, out] in the file's order. */
static void adapter(size_t leaves, const float *file, float *own, float *shared)
{
    float grad[512], a[8 * RANK], b[256], b_own[256], part[LEAVES * 8 * RANK];
    model_config_t c = gpt2;
    model_params_t *params = NULL;
    model_adapters_t *adapters = NULL;
    c.kv_heads = 1;
    c.leaves = leaves;
    assert_int_equal(model_params_create(&c, &params), GYRE_OK);
    assert_int_equal(model_adapters_create(params, &(model_lora_t){.rank = RANK}, &adapters), GYRE_OK);
    const size_t r = model_params_find(params, MODEL_ATTN_QKV_W, 0), at = model_adapters_find(adapters, r);
    const model_param_t *w = &params->row[r], *fb = &adapters->table->row[2 * at + 1];
    for (size_t i = 0; i < w->count; i++)
        grad[i] = file[model_param_place(w, i)];
    for (size_t i = 0; i < 8 * RANK; i++)
        a[i] = (float)(i % 5) - 2;
    for (size_t i = 0; i < fb->count; i++)
        b[i] = (float)(model_param_place(fb, i) % 7) - 3;
    model_lora_gradient(w, RANK, 1, a, b, grad, b_own, shared, part);
    model_param_to_file(fb, b_own, own);
    model_lora_merge(w, RANK, 1, a, b, grad);
    for (size_t i = 0; i < w->count; i++) { /* whole numbers: sums are exact in any order */
        const size_t place = model_param_place(w, i), line = place / w->shape[1];
        float sum = file[place];
        for (size_t k = 0; k < RANK; k++)
            sum += a[line * RANK + k] * ((float)((k * w->shape[1] + place % w->shape[1]) % 7) - 3);
        assert_true(grad[i] == sum);
    }
    model_adapters_destroy(adapters);
    model_params_destroy(params);
}

static void adapters_have_their_gradients(void **state)
{
    (void)state;
    float file[512], own[2][256], shared[2][8 * RANK];
    for (size_t i = 0; i < 512; i++)
        file[i] = (float)(i % 11) - 5;
    adapter(1, file, own[0], shared[0]);
    adapter(LEAVES, file, own[1], shared[1]);
    assert_memory_equal(shared[0], shared[1], sizeof shared[0]);
    assert_memory_equal(own[0], own[1], RANK * (8 + 2 * 2) * sizeof(float));
}

static void refusals(void **state)
{
    (void)state;
    model_config_t c = gpt2;
    c.heads = c.hidden = 24;
    c.kv_heads = 6;
    assert_int_equal(model_config_check(&c), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "kv_heads 6 and leaves 4: one must divide the other"));
    c.kv_heads = 2;
    c.qk_norm = c.qk_whole = 1;
    assert_int_equal(model_config_check(&c), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "leaves 4 share 2 kv_heads"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(leaves_change_nothing),
                                       cmocka_unit_test(adapters_have_their_gradients),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
