/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_count.c: parameters and operations of the published models, to the digit; ranks' shares
 * against the table. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "model/network/count.h"
#include "model/network/stage/flops.h"

static model_config_t gpt(size_t vocab, size_t seq, size_t layers, size_t hidden, size_t heads)
{
    return (model_config_t){.vocab = vocab, .seq = seq, .layers = layers, .hidden = hidden, .heads = heads};
}

static model_config_t llama(size_t layers, size_t hidden, size_t heads, size_t ffn)
{
    model_config_t c = gpt(32000, 2048, layers, hidden, heads);
    c.ffn = ffn;
    c.pos = MODEL_POS_ROPE;
    c.norm = MODEL_NORM_RMS;
    c.act = MODEL_ACT_SILU;
    c.gated = c.untied = c.no_qkv_bias = c.no_proj_bias = c.no_mlp_bias = 1;
    return c;
}

static model_config_t neox20(void)
{
    model_config_t c = gpt(50432, 2048, 44, 6144, 64);
    c.pos = MODEL_POS_ROPE;
    c.rotary_dim = 24;
    c.parallel = c.untied = 1;
    return c;
}

static model_config_t bloom(void)
{
    model_config_t c = gpt(250880, 2048, 70, 14336, 112);
    c.pos = MODEL_POS_ALIBI;
    c.embed_norm = 1;
    return c;
}

static model_config_t opt(size_t layers, size_t hidden, size_t heads)
{
    model_config_t c = gpt(50272, 2048, layers, hidden, heads);
    c.act = MODEL_ACT_RELU;
    c.pos_offset = 2;
    return c;
}

static model_config_t glm130(void)
{
    model_config_t c = gpt(150528, 2048, 70, 12288, 96);
    c.ffn = 32768;
    c.pos = MODEL_POS_ROPE;
    c.gated = c.post_norm = c.prefix = 1;
    c.deepnorm = sqrt(140.0);
    return c;
}

static model_config_t mixtral(void)
{
    model_config_t c = llama(32, 4096, 32, 14336);
    c.kv_heads = 8;
    c.experts = 8;
    c.top_k = 2;
    return c;
}

static model_config_t deepseek3(void)
{
    model_config_t c = llama(61, 7168, 128, 2048);
    c.vocab = 129280;
    c.head_dim = 192;
    c.rotary_dim = 64;
    c.value_dim = 128;
    c.kv_latent = 512;
    c.q_latent = 1536;
    c.experts = 256;
    c.top_k = 8;
    c.dense_first = 3;
    c.dense_ffn = 18432;
    c.shared_ffn = 2048;
    c.groups = 8;
    c.top_groups = 4;
    c.router_sigmoid = 1;
    return c;
}

static model_config_t gemma_of(size_t layers, size_t hidden, size_t heads, size_t ffn, size_t vocab,
                               size_t kv_heads)
{
    model_config_t c = llama(layers, hidden, heads, ffn);
    c.vocab = vocab;
    c.head_dim = 256;
    c.kv_heads = kv_heads;
    c.untied = 0;
    return c;
}

static size_t total(model_config_t config)
{
    model_count_t count;
    assert_int_equal(model_count(&config, &count), GYRE_OK);
    return model_count_total(&count);
}

/* What Hugging Face's model cards and the papers say; the GPTs are 12 L C^2 (1 + 13 / 12 C) + (V + T) C +
 * 2 C. */
static void published(void **state)
{
    (void)state;
    assert_int_equal(total(gpt(50257, 1024, 12, 768, 12)), 124439808);
    assert_int_equal(total(gpt(50257, 1024, 48, 1600, 25)), 1557611200);
    assert_int_equal(total(llama(32, 4096, 32, 11008)), 6738415616);
    assert_int_equal(total(llama(40, 5120, 40, 13824)), 13015864320);
    assert_int_equal(total(llama(60, 6656, 52, 17920)), 32528943616);
    assert_int_equal(total(llama(80, 8192, 64, 22016)), 65285660672);
    assert_int_equal(total(neox20()), 20554567680);
    assert_int_equal(total(bloom()), 176247271424);
    assert_int_equal(total(opt(32, 4096, 32)), 6658473984); /* OPT-6.7B */
    assert_int_equal(total(mixtral()), 46702792704);
    model_config_t gemma = gemma_of(18, 2048, 8, 16384, 256000, 1); /* Gemma 2B */
    gemma.gain_plus_1 = gemma.embed_scaled = 1;
    assert_int_equal(total(gemma), 2506172416);
    model_config_t olmo = llama(32, 4096, 32, 11008); /* OLMo 2 7B */
    olmo.vocab = 100352;
    olmo.qk_norm = olmo.qk_whole = olmo.out_norm = 1;
    assert_int_equal(total(olmo), 7298617344);
    gemma = gemma_of(26, 2304, 8, 9216, 256000, 4); /* Gemma 2 2B */
    gemma.both_norms = 1;
    assert_int_equal(total(gemma), 2614341888);
    gemma = gemma_of(26, 1152, 4, 6912, 262144, 1); /* Gemma 3 1B */
    gemma.both_norms = gemma.qk_norm = 1;
    assert_int_equal(total(gemma), 999885952);
    model_config_t glm = llama(40, 4096, 32, 13696); /* GLM-4 9B, of 2024 and of 2025 */
    glm.vocab = 151552;
    glm.kv_heads = 2;
    glm.no_qkv_bias = 0;
    assert_int_equal(total(glm), 9399951360);
    glm.both_norms = 1;
    assert_int_equal(total(glm), 9400279040);
    model_count_t count;
    model_config_t oss = llama(24, 2880, 64, 2880); /* gpt-oss 20b */
    oss.vocab = 201088;
    oss.kv_heads = 8;
    oss.head_dim = 64;
    oss.no_qkv_bias = oss.no_proj_bias = 0;
    oss.sinks = oss.router_bias = oss.expert_bias = 1;
    oss.experts = 32;
    oss.top_k = 4;
    assert_int_equal(total(oss), 20914757184);
    assert_int_equal(model_count(&oss, &count),
                     GYRE_OK); /* its card has 3.6 billion, without the embedding */
    assert_int_equal(model_count_active(&count) - 201088ul * 2880, 3608307264);
    oss.layers = 36; /* 120b */
    oss.experts = 128;
    assert_int_equal(total(oss), 116829156672);
    model_config_t moe = mixtral();
    assert_int_equal(model_count(&moe, &count), GYRE_OK);
    assert_int_equal(model_count_active(&count), 12879925248);
    moe = deepseek3(); /* without the layer that predicts further tokens */
    assert_int_equal(total(moe), 671026404352 + 58 * 256);
    assert_int_equal(model_count(&moe, &count), GYRE_OK);
    assert_int_equal(model_count_active(&count), total(moe) - 58ul * 248 * 3 * 7168 * 2048);
    model_config_t lite = llama(27, 2048, 16, 1408); /* DeepSeek-V2 Lite */
    lite.vocab = 102400;
    lite.head_dim = 192;
    lite.rotary_dim = 64;
    lite.value_dim = 128;
    lite.kv_latent = 512;
    lite.experts = 64;
    lite.top_k = 6;
    lite.dense_first = 1;
    lite.dense_ffn = 10944;
    lite.shared_ffn = 2816;
    lite.raw_weights = 1;
    assert_int_equal(total(lite), 15706484224);
    size_t c = 12288; /* three matrices of C F, four of C^2, their biases, two norms of two vectors */
    assert_int_equal(total(glm130()), 70 * (3 * c * 32768 + 4 * c * c + 2 * 32768 + 9 * c) + 150528 * c);
    model_config_t geex = gpt(52224, 2048, 40, 5120, 40);
    geex.top_query = 1;
    assert_int_equal(total(geex), 40ul * (12 * 5120 * 5120 + 13 * 5120) + (52224 + 2048 + 2048 + 2) * 5120ul);
}

/* Narayanan et al. 2021, table 1: billions of parameters, as printed. */
static const struct {
    double billions;
    size_t layers, hidden, heads, gpus, batch;
    double teraflops, seconds;
} sc21[] = {
    {1.7, 24, 2304, 24, 32, 512, 137, 3.53},          {3.6, 30, 3072, 32, 64, 512, 138, 3.70},
    {7.5, 36, 4096, 32, 128, 512, 142, 3.70},         {18.4, 40, 6144, 48, 256, 1024, 135, 9.40},
    {39.1, 48, 8192, 64, 512, 1536, 138, 14.45},      {76.1, 60, 10240, 80, 1024, 1792, 140, 16.06},
    {145.6, 80, 12288, 96, 1536, 2304, 148, 24.82},   {310.1, 96, 16384, 128, 1920, 2160, 155, 37.61},
    {529.6, 105, 20480, 128, 2520, 2520, 163, 54.08}, {1008.0, 128, 25600, 160, 3072, 3072, 163, 102.63}};

static void sc21_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sc21 / sizeof sc21[0]; i++) {
        model_config_t c = gpt(51200, 2048, sc21[i].layers, sc21[i].hidden, sc21[i].heads);
        assert_true(fabs((double)total(c) / 1e9 - sc21[i].billions) <= 0.0501);
        model_flops_t flops = model_flops(&c);
        double step =
            (double)sc21[i].batch * model_flops_step(&flops, (double)c.layers, MODEL_RECOMPUTE_FULL);
        double l = (double)c.layers, h = (double)c.hidden, s = 2048, v = 51200;
        double closed = 96 * (double)sc21[i].batch * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
        assert_true(fabs(step / closed - 1.0) < 1e-12);
        assert_true(fabs(step / ((double)sc21[i].gpus * sc21[i].teraflops * 1e12) - sc21[i].seconds) < 0.006);
        /* without recomputation: 72, and V / 12LC */
        double model = model_flops_step(&flops, l, MODEL_RECOMPUTE_NONE);
        closed = 72 * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
        assert_true(fabs(model / closed - 1.0) < 1e-12);
    }
}

/* Megatron-Core r0.8, weak scaling on H100: T 4096, V 131,072, untied; P as printed. */
static void h100_table(void **state)
{
    (void)state;
    static const struct {
        double billions;
        size_t heads, hidden, layers;
    } row[] = {{1.7, 16, 2048, 24},  {7.1, 32, 4096, 30},   {16, 48, 6144, 32},
               {32, 56, 7168, 48},   {70, 64, 8192, 84},    {119, 80, 10240, 92},
               {177, 96, 12288, 96}, {314, 128, 16384, 96}, {462, 144, 18432, 112}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        model_config_t c = gpt(131072, 4096, row[i].layers, row[i].hidden, row[i].heads);
        c.untied = 1;
        double printed = row[i].billions < 10 ? 0.06 : 0.6;
        assert_true(fabs((double)total(c) / 1e9 - row[i].billions) < printed);
    }
}

/* Korthikanti et al. 2022, table 5: MFU and HFU, whose ratio is that of the operations. Their equation 8
 * counts the attention that selective recomputation repeats three times (with its backward), so the check
 * does, too. */
static void selective(void **state)
{
    (void)state;
    static const struct {
        size_t layers, hidden, heads;
        double mfu, hfu;
    } row[] = {{48, 6144, 64, 41.5, 43.7},
               {96, 12288, 96, 51.4, 52.8},
               {105, 20480, 128, 56.0, 57.0},
               {128, 25600, 160, 56.3, 57.0}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        model_config_t c = gpt(51200, 2048, row[i].layers, row[i].hidden, row[i].heads);
        model_flops_t flops = model_flops(&c);
        double l = (double)c.layers, model = model_flops_step(&flops, l, MODEL_RECOMPUTE_NONE);
        double redo = model_flops_step(&flops, l, MODEL_RECOMPUTE_SELECTIVE) - model;
        assert_true(fabs((model + 3 * redo) / model - row[i].hfu / row[i].mfu) < 0.0035);
        assert_true(fabs(redo / (4.0 * 2048 * 2048 * (double)c.hidden * l) - 1) < 1e-12);
    }
}

/* A mixture of experts computes what its active parameters need, and the router. */
static void experts(void **state)
{
    (void)state;
    model_config_t moe = mixtral(), dense = llama(32, 4096, 32, 2 * 14336);
    dense.kv_heads = 8;
    model_flops_t a = model_flops(&moe), b = model_flops(&dense);
    assert_true(fabs(a.matrix - b.matrix - 2.0 * 2048 * 4096 * 8) < 1);
    assert_true(fabs(a.attention - b.attention) < 1);
}

/* model_count_rank against model_params_slice: every architecture, degree and kind of stage. */
static void shares(void **state)
{
    (void)state;
    model_config_t small[] = {
        gpt(512, 64, 5, 64, 8), llama(5, 64, 8, 176), neox20(), bloom(), opt(5, 64, 8), glm130(), mixtral(),
        gpt(512, 64, 5, 64, 8), deepseek3()};
    small[8].hidden = 64;
    small[8].heads = 8;
    small[8].experts = 16;
    small[2].hidden = small[3].hidden = small[5].hidden = small[6].hidden = 64;
    small[2].heads = small[3].heads = small[5].heads = small[6].heads = 8;
    small[2].rotary_dim = 2;
    small[5].ffn = small[6].ffn = 192;
    small[7].top_query = 1;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        for (size_t tp = 1; tp <= 8; tp *= 2) {
            model_config_t c = small[i];
            c.layers = 5;
            c.leaves = 8;
            model_params_t *whole, *slice;
            model_count_t count;
            assert_int_equal(model_params_create(&c, &whole), GYRE_OK);
            assert_int_equal(model_count(&c, &count), GYRE_OK);
            assert_int_equal(model_count_total(&count), whole->total);
            for (int ends = 0; ends < 4; ends++)
                for (size_t first = 0; first < 5; first++) {
                    unsigned char has[5] = {0};
                    memset(has + first, 1, 5 - first);
                    const size_t dense = c.dense_first > first ? c.dense_first - first : 0;
                    model_holds_t holds = {5 - first, ends & 1, ends >> 1, 1, dense};
                    for (size_t ep = 1; ep <= (c.experts ? c.experts / tp : 1); ep *= 2) {
                        const model_slice_t how = {tp - 1, tp, has, ends & 1, ends >> 1, ep - 1, ep};
                        size_t experts = 0;
                        assert_int_equal(model_params_slice(whole, &how, &slice), GYRE_OK);
                        for (size_t r = 0; r < slice->rows; r++)
                            experts += model_kind_of_experts(slice->row[r].kind) ? slice->row[r].count : 0;
                        assert_int_equal(model_count_rank(&count, &holds, tp, ep), slice->total);
                        assert_int_equal(model_count_experts(&count, &holds, tp, ep), experts);
                        model_params_destroy(slice);
                    }
                }
            model_params_destroy(whole);
        }
}

static void refused(void **state)
{
    (void)state;
    model_count_t count;
    model_config_t bad = gpt(512, 64, 5, 64, 7);
    assert_int_equal(model_count(&bad, &count), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "heads 4 or 8"));
    bad = gpt(1048576, 1048576, 1048576, 1048576, 1); /* its MLP would be wider than any extent may be */
    assert_int_equal(model_count(&bad, &count), GYRE_ERR_INVALID);
    bad = gpt(1048576, 1048576, 1048576, 262144, 1);
    bad.experts = 1048576;
    assert_int_equal(model_count(&bad, &count), GYRE_ERR_OVERFLOW);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published), cmocka_unit_test(sc21_table), cmocka_unit_test(h100_table),
        cmocka_unit_test(selective), cmocka_unit_test(experts),    cmocka_unit_test(shares),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
