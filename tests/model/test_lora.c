/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/model/test_lora.c: adapters: which weights have them, what they begin with, merged weights against
 * products with the two factors, and gradients of the factors; slices have the bits of the whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/kernels/kernels.h"
#include "model/network/lora.h"
#include "model/random.h"
#include "tests/model/kinds.h"

enum { RANK = 3, LEAVES = 4 };
static const model_config_t config = {.vocab = 16,
                                      .seq = 8,
                                      .layers = 2,
                                      .hidden = 16,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .ffn = 24,
                                      LLAMA_LIKE,
                                      .leaves = LEAVES};

static model_params_t *table(void)
{
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    return params;
}

static model_adapters_t *adapters_on(const model_params_t *params, const char *on)
{
    const model_lora_t lora = {.rank = RANK, .on = on};
    model_adapters_t *adapters = NULL;
    assert_int_equal(model_adapters_create(params, &lora, &adapters), GYRE_OK);
    return adapters;
}

static void names(void **state)
{
    (void)state;
    model_params_t *params = table();
    model_adapters_t *all = adapters_on(params, NULL),
                     *mlp = adapters_on(params, "*.1.mlp.down*,*layers.1*up*");
    assert_int_equal(all->table->rows, 2 * 4 * 2);
    assert_true(all->scale == 2.0f);
    assert_int_equal(mlp->table->rows, 2 * 2);
    assert_string_equal(mlp->table->row[0].name, "model.layers.1.mlp.down_proj.lora_A.weight");
    assert_string_equal(mlp->table->row[1].name, "model.layers.1.mlp.down_proj.lora_B.weight");
    assert_int_equal(model_adapters_find(mlp, mlp->weight[1]), 1);
    assert_int_equal(model_adapters_find(mlp, 0), MODEL_NONE); /* the head */
    model_adapters_destroy(all);
    model_adapters_destroy(mlp);
    const model_lora_t unknown = {.rank = RANK, .on = "*mlp*,*embed*"}, wide = {.rank = 17};
    assert_int_equal(model_adapters_create(params, &unknown, &mlp), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "--lora-on *embed*: no weight that can have an adapter"));
    assert_non_null(strstr(gyre_last_error(), "model.layers.0.self_attn.qkv_proj.weight"));
    assert_int_equal(model_adapters_create(params, &wide, &mlp), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "takes a rank of up to 16"));
    model_params_destroy(params);
}

/* B is zero; A is as in any other number of leaves. */
static void begin(void **state)
{
    (void)state;
    model_config_t one = config;
    model_params_t *params = table(), *other = NULL;
    one.leaves = 1;
    assert_int_equal(model_params_create(&one, &other), GYRE_OK);
    model_adapters_t *adapters = adapters_on(params, NULL), *same = adapters_on(other, NULL);
    float canonical[24 * RANK * 2], file[24 * RANK * 2], whole[24 * RANK * 2];
    for (size_t r = 0; r < adapters->table->rows; r++) {
        const model_param_t *row = &adapters->table->row[r];
        assert_true(row->count <= sizeof whole / sizeof *whole);
        model_param_init(row, 7, 0, row->count, canonical);
        model_param_to_file(row, canonical, file);
        model_param_init(&same->table->row[r], 7, 0, row->count, whole);
        assert_memory_equal(file, whole, row->count * sizeof *file);
        for (size_t i = 0; r % 2 && i < row->count; i++)
            assert_true(whole[i] == 0.0f);
        assert_true(r % 2 || whole[0] != 0.0f);
    }
    model_adapters_destroy(adapters);
    model_adapters_destroy(same);
    model_params_destroy(params);
    model_params_destroy(other);
}

static void draw(float *x, size_t n, uint64_t what)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)model_random_normal(3, MODEL_RANDOM_PROBE, (uint32_t)what, i);
}

/* One adapted weight and its factors, canonical and as row-major wholes [in, out], [in, R], [R, out]. */
typedef struct {
    const model_param_t *row, *row_a, *row_b;
    float w[512 * 2], a[512], b[512], grad[512 * 2];
    float w_file[512 * 2], a_file[512], b_file[512], grad_file[512 * 2];
} one_t;

static void take(const model_params_t *params, const model_adapters_t *adapters, size_t i, one_t *x)
{
    x->row = &params->row[adapters->weight[i]];
    x->row_a = &adapters->table->row[2 * i];
    x->row_b = x->row_a + 1;
    assert_true(x->row->count <= 1024 && x->row_a->count <= 512 && x->row_b->count <= 512);
    draw(x->w, x->row->count, 0);
    draw(x->grad, x->row->count, 1);
    draw(x->a, x->row_a->count, 2);
    draw(x->b, x->row_b->count, 3);
    model_param_to_file(x->row, x->w, x->w_file);
    model_param_to_file(x->row, x->grad, x->grad_file);
    model_param_to_file(x->row_a, x->a, x->a_file);
    model_param_to_file(x->row_b, x->b, x->b_file);
}

/* y = x (W + s A B) of merged weights is x W + s (x A) B. */
static void check_merged(const one_t *x, float scale)
{
    const size_t in = x->row->shape[0], out = x->row->shape[1];
    float merged[1024], file[1024], input[24];
    memcpy(merged, x->w, x->row->count * sizeof *merged);
    model_lora_merge(x->row, RANK, scale, x->a, x->b, merged);
    model_param_to_file(x->row, merged, file);
    draw(input, in, 4);
    for (size_t o = 0; o < out; o++) {
        double got = 0.0, want = 0.0;
        for (size_t i = 0; i < in; i++) {
            got += (double)input[i] * (double)file[i * out + o];
            want += (double)input[i] * (double)x->w_file[i * out + o];
        }
        for (size_t k = 0; k < RANK; k++) {
            double inner = 0.0;
            for (size_t i = 0; i < in; i++)
                inner += (double)input[i] * (double)x->a_file[i * RANK + k];
            want += (double)scale * inner * (double)x->b_file[k * out + o];
        }
        assert_true(fabs(got - want) < 1e-4 * (1.0 + fabs(want)));
    }
}

/* What the factors' gradients are, [in, R] and [R, out], and that slices on `ranks` ranks have their bits. */
static void check_gradient(const one_t *x, float scale, size_t ranks)
{
    const size_t in = x->row->shape[0], out = x->row->shape[1], n = model_lora_shared(x->row, RANK);
    int b_shared = x->row->cut == 0;
    float own[512], shared[512], part[LEAVES * 512], file[512], sum[LEAVES][512];
    model_lora_gradient(x->row, RANK, scale, x->a, x->b, x->grad, own, shared, part);
    model_param_to_file(x->row_a, b_shared ? own : shared, file);
    for (size_t i = 0; i < in * RANK; i++) {
        double want = 0.0;
        for (size_t o = 0; o < out; o++)
            want += (double)scale * (double)x->grad_file[i / RANK * out + o] *
                    (double)x->b_file[i % RANK * out + o];
        assert_true(fabs((double)file[i] - want) < 1e-4 * (1.0 + fabs(want)));
    }
    model_param_to_file(x->row_b, b_shared ? shared : own, file);
    for (size_t i = 0; i < RANK * out; i++) {
        double want = 0.0;
        for (size_t j = 0; j < in; j++)
            want += (double)scale * (double)x->a_file[j * RANK + i / out] *
                    (double)x->grad_file[j * out + i % out];
        assert_true(fabs((double)file[i] - want) < 1e-4 * (1.0 + fabs(want)));
    }
    for (size_t p = 0; p < ranks; p++) {
        model_param_t slice = *x->row;
        float mine[512];
        slice.count /= ranks;
        size_t a = x->row_a->cut < 0 ? 0 : p * x->row_a->count / ranks,
               b = x->row_b->cut < 0 ? 0 : p * x->row_b->count / ranks, at = b_shared ? a : b;
        model_lora_gradient(&slice, RANK, scale, x->a + a, x->b + b, x->grad + p * slice.count, mine, sum[p],
                            part);
        assert_memory_equal(mine, own + at, (b_shared ? x->row_a : x->row_b)->count / ranks * sizeof *mine);
    }
    for (size_t step = 1; step < ranks; step *= 2)
        for (size_t p = 0; p < ranks; p += 2 * step)
            for (size_t i = 0; i < n; i++)
                sum[p][i] += sum[p + step][i];
    assert_memory_equal(sum[0], shared, n * sizeof *shared);
}

static void products(void **state)
{
    (void)state;
    model_params_t *params = table();
    model_adapters_t *adapters = adapters_on(params, "*layers.0*");
    model_matmul_init();
    assert_int_equal(adapters->table->rows, 8);
    for (size_t i = 0; i < 4; i++) {
        static one_t x;
        take(params, adapters, i, &x);
        check_merged(&x, adapters->scale);
        for (size_t ranks = 1; ranks <= LEAVES; ranks *= 2)
            check_gradient(&x, adapters->scale, ranks);
    }
    model_adapters_destroy(adapters);
    model_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(begin),
                                       cmocka_unit_test(products)};
    base_log_set_level(BASE_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
