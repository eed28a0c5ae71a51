/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Every factor that a stage gives to the tiles of bfloat16 is a number of that type already: what the tiles
 * round first is then only what tensors are rounded to, and --matmul-type changes nothing but sums. The
 * functions of model/kernels/products/amx.c are here ones that look, so no such processor is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/kernels/instances.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "tests/model/kinds.h"

static size_t products, others; /* products; factors that have more bits */

int model_matmul_has_bf16(void)
{
    return 1;
}

const char *model_matmul_no_bf16(void)
{
    return "";
}

static size_t unrounded(const float *matrix, size_t rows, size_t columns, size_t ld)
{
    size_t count = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            uint32_t bits;
            memcpy(&bits, &matrix[r * ld + c], sizeof bits);
            count += (bits & 0xffff) != 0;
        }
    return count;
}

void model_matmul_bf16_f32(void *pack, int trans_a, int trans_b, size_t M, size_t N, size_t K, const float *A,
                           size_t lda, const float *B, size_t ldb, int add, float *C, size_t ldc)
{
    (void)pack;
    products++;
    others += unrounded(A, trans_a ? K : M, trans_a ? M : K, lda);
    others += unrounded(B, trans_b ? N : K, trans_b ? K : N, ldb);
    model_matmul_f32(trans_a, trans_b, M, N, K, 1, A, lda, B, ldb, add ? 1 : 0, C, ldc);
}

static float *numbers(const model_params_t *params)
{
    float *weights = calloc(params->total, sizeof *weights);
    assert_non_null(weights);
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        for (size_t i = 0; row->alias == MODEL_NONE && i < row->count; i++)
            weights[row->offset + i] =
                (float)(0.1 * model_random_normal(1, MODEL_RANDOM_DATA, (uint32_t)r, i)) +
                (row->init == MODEL_INIT_ONE ? 1.0f : 0.0f);
    }
    model_kernels_f32(MODEL_ISA_BEST)->round_bf16(weights, params->total);
    return weights;
}

static void look(const model_config_t *config, model_stage_config_t how)
{
    enum { TOKENS = 16 };
    const model_tp_t alone = {.size = 1};
    model_params_t *params = NULL;
    model_stage_t_f32 *stage = NULL;
    model_token_t tokens[TOKENS], targets[TOKENS];
    double loss = 0;
    assert_int_equal(model_params_create(config, &params), GYRE_OK);
    float *weights = numbers(params), *grads = calloc(params->grad_total, sizeof *grads);
    assert_non_null(grads);
    for (size_t t = 0; t < TOKENS; t++) {
        tokens[t] = (model_token_t)(t * t % config->vocab);
        targets[t] = (model_token_t)((t * 5 + 2) % config->vocab);
    }
    model_plain_store_t_f32 plain = {.params = params, .weights = weights, .grads = grads};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    how.layers = config->layers;
    how.embed = how.head = 1;
    how.slots = 1;
    how.precision = MODEL_BFLOAT16;
    how.matmul_bf16 = 1;
    how.seed = 5;
    assert_int_equal(model_stage_create_f32(params, &alone, &how, &store, MODEL_ISA_BEST, &stage), GYRE_OK);
    products = others = 0;
    const model_sequence_t sequence = {.tokens = tokens, .targets = targets};
    assert_int_equal(model_stage_forward_f32(stage, 0, &sequence, NULL, NULL, &loss), GYRE_OK);
    const size_t forward = products;
    assert_int_equal(model_stage_backward_f32(stage, 0, 0.3f, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_f32(stage, 0), GYRE_OK);
    assert_true(forward >= 4 * config->layers && products > 2 * forward);
    assert_int_equal(others, 0);
    model_stage_destroy_f32(stage);
    model_params_destroy(params);
    free(weights);
    free(grads);
}

#define SHAPE .vocab = 37, .seq = 16, .layers = 2, .hidden = 24, .heads = 4

static void factors_are_rounded(void **state)
{
    (void)state;
    static const model_config_t kinds[] = {
        {SHAPE, .leaves = 2},
        {SHAPE, .leaves = 2, LLAMA_LIKE, .norm_eps = 1e-5, .kv_heads = 2, .ffn = 40, .qk_norm = 1},
        {SHAPE, .leaves = 1, .attn_dropout = 0.1, .dropout = 0.1, .parallel = 1},
        {SHAPE, .leaves = 2, LLAMA_LIKE, .norm_eps = 1e-5, .ffn = 20, .experts = 4, .top_k = 2,
         .capacity = 2.0}};
    static const model_stage_config_t hows[] = {{0}, {.recompute = MODEL_RECOMPUTE_FULL}, {.split = 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < sizeof hows / sizeof *hows; k++)
            look(&kinds[i], hows[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(factors_are_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
