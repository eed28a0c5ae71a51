/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_zero_plan.c: bytes and traffic of ZeRO against the published formulas, and the cut of
 * shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "optim/store/shard.h"
#include "optim/store/zero.h"

static model_params_t *table(int untied)
{
    const model_config_t config = {
        .vocab = 128, .seq = 64, .layers = 3, .hidden = 128, .heads = 4, .leaves = 4, .untied = untied};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    return params;
}

/* Persistent bytes per parameter, times N, in stage `stage` of N ranks: Rajbhandari et al. 2020, figure 1,
 * and the same sum for fp32 gradients and for training in fp32. */
static size_t formula(int stage, size_t n, size_t weights, size_t gradients, size_t state)
{
    return (stage < 3 ? n : 1) * weights + (stage < 2 ? n : 1) * gradients + (stage < 1 ? n : 1) * state;
}

static void test_bytes(void **unused)
{
    (void)unused;
    model_params_t *params = table(0);
    for (size_t n = 1; n <= 8; n *= 2)
        for (int stage = 0; stage < 4; stage++)
            for (int kind = 0; kind < 3; kind++) {
                const optim_zero_config_t config = {.stage = stage,
                                                    .share = 1,
                                                    .bucket_bytes = 100000,
                                                    .precision = kind ? MODEL_BFLOAT16 : MODEL_FLOAT32,
                                                    .grad16 = kind == 2};
                size_t bytes[OPTIM_MEMORY_KINDS];
                size_t want = kind == 0   ? formula(stage, n, 4, 4, 8)
                              : kind == 1 ? formula(stage, n, 2, 4, 12)
                                          : formula(stage, n, 2, 2, 12);
                for (size_t rank = 0; rank < n; rank++) {
                    assert_int_equal(optim_zero_predict(params, &config, n, rank, 1, bytes, NULL), GYRE_OK);
                    size_t held = bytes[OPTIM_MEMORY_WEIGHTS] + bytes[OPTIM_MEMORY_GRADIENTS] +
                                  bytes[OPTIM_MEMORY_MASTER] + bytes[OPTIM_MEMORY_MOMENTS];
                    assert_int_equal(held * n, want * params->total);
                    assert_int_equal(bytes[OPTIM_MEMORY_ACCUMULATION], 0);
                    assert_int_equal(bytes[OPTIM_MEMORY_BUCKETS] > 0, (stage >= 2 && n > 1) || kind == 2);
                    assert_int_equal(bytes[OPTIM_MEMORY_GATHERED] > 0, (stage == 3 && n > 1) || kind > 0);
                }
            }
    model_params_destroy(params);
}

/* Moments alone are those of the whole prediction; with Muon ranks differ in them. */
static void test_moments(void **unused)
{
    (void)unused;
    model_params_t *params = table(0);
    size_t least = SIZE_MAX, most = 0;
    for (int muon = 0; muon < 2; muon++)
        for (size_t n = 1; n <= 6; n++)
            for (size_t rank = 0; rank < n; rank++) {
                const optim_zero_config_t config = {
                    .stage = 2, .share = 1, .bucket_bytes = 50000, .muon = muon, .momentum = 0.9};
                size_t bytes[OPTIM_MEMORY_KINDS], moments;
                assert_int_equal(optim_zero_predict(params, &config, n, rank, 1, bytes, NULL), GYRE_OK);
                assert_int_equal(optim_zero_predict_moments(params, &config, n, rank, &moments), GYRE_OK);
                assert_int_equal(moments, bytes[OPTIM_MEMORY_MOMENTS]);
                least = muon && n == 6 && moments < least ? moments : least;
                most = muon && n == 6 && moments > most ? moments : most;
            }
    assert_true(least < most);
    model_params_destroy(params);
}

/* All ranks together send 2 (N - 1) elements per parameter where they all-reduce gradients, the same in
 * stages 1 and 2, and half as much again in stage 3, but for the embeddings, which backward does not read. */
static void test_traffic(void **unused)
{
    (void)unused;
    model_params_t *params = table(1);
    size_t embeddings = 0;
    for (size_t r = 0; r < params->rows; r++)
        embeddings += params->row[r].layer < 0 ? params->row[r].count : 0;
    for (size_t n = 1; n <= 6; n++)
        for (int stage = 0; stage < 4; stage++) {
            const optim_zero_config_t config = {.stage = stage, .share = 1, .bucket_bytes = 50000};
            uint64_t all[OPTIM_TRAFFIC_KINDS] = {0}, total = 0;
            for (size_t rank = 0; rank < n; rank++) {
                uint64_t sent[OPTIM_TRAFFIC_KINDS];
                assert_int_equal(optim_zero_predict(params, &config, n, rank, 1, NULL, sent), GYRE_OK);
                for (int k = 0; k < OPTIM_TRAFFIC_KINDS; k++)
                    all[k] += sent[k];
            }
            for (int k = 0; k < OPTIM_TRAFFIC_KINDS; k++)
                total += all[k];
            uint64_t want = (stage < 3 ? 2 : 3) * params->total - (stage < 3 ? 0 : embeddings);
            assert_int_equal(total, (n - 1) * want);
            assert_int_equal(all[OPTIM_TRAFFIC_REDUCE_SCATTER], stage > 0 ? (n - 1) * params->total : 0);
        }
    model_params_destroy(params);
}

/* Buffers for gradients on their way: what is longest once, what a layer has twice. A model whose embedding
 * is many times a layer's longest matrix does not hold a buffer of that length for each bucket of a layer. */
static void test_buffers(void **unused)
{
    (void)unused;
    for (int untied = 0; untied < 2; untied++)
        for (size_t bucket = 1; bucket < 1 << 20; bucket *= 64) {
            const model_config_t config = {.vocab = 5000,
                                           .seq = 64,
                                           .layers = 5,
                                           .hidden = 64,
                                           .heads = 4,
                                           .leaves = 4,
                                           .untied = untied};
            model_params_t *params = NULL;
            assert_int_equal(model_params_create(&config, &params), GYRE_OK);
            size_t layer = 0, table = params->row[model_params_find(params, MODEL_WTE, 0)].count, rest = 0;
            for (size_t r = 0; r < params->rows; r++) {
                layer += params->row[r].layer == 0 ? params->row[r].count : 0;
                rest +=
                    params->row[r].layer < 0 && params->row[r].kind != MODEL_WTE ? params->row[r].count : 0;
            }
            for (int stage = 2; stage < 4; stage++) {
                const optim_zero_config_t c = {.stage = stage, .share = 1, .bucket_bytes = bucket};
                size_t bytes[OPTIM_MEMORY_KINDS];
                assert_int_equal(optim_zero_predict(params, &c, 2, 0, 1, bytes, NULL), GYRE_OK);
                /* a bucket that is filled up may hold rows of two units */
                assert_in_range(bytes[OPTIM_MEMORY_BUCKETS], table * sizeof(float),
                                (table + rest + 2 * layer) * sizeof(float) + 3 * bucket);
            }
            model_params_destroy(params);
        }
}

/* Gathered weights: two units next to each other as they travel; of 16 bits one, and the one in use in fp32,
 * unless the device takes 16 bits. A model whose embedding is many times a layer does not hold two as long
 * as the embedding. */
static void test_gathered(void **unused)
{
    (void)unused;
    const model_config_t config = {
        .vocab = 5000, .seq = 64, .layers = 5, .hidden = 64, .heads = 4, .leaves = 4, .untied = 1};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    size_t layer = 0, ends = 0, room = 256; /* room: units begin on lines of memory */
    for (size_t r = 0; r < params->rows; r++) {
        layer += params->row[r].layer == 0 ? params->row[r].count : 0;
        ends += params->row[r].layer < 0 ? params->row[r].count : 0;
    }
    for (int of = 0; of < 3; of++) /* fp32, bf16, bf16 on a GPU */
        for (int keep = 0; keep < 2; keep++) {
            const optim_zero_config_t c = {.stage = 3,
                                           .share = 1,
                                           .bucket_bytes = 4096,
                                           .keep = keep,
                                           .on_device = of == 2,
                                           .precision = of ? MODEL_BFLOAT16 : MODEL_FLOAT32};
            const size_t bits = of ? 2 : 4, all = params->grad_total;
            const size_t want = of == 1 ? ends * bits + (keep ? all : ends) * sizeof(float)
                                        : (keep ? all : ends + layer) * bits;
            size_t bytes[OPTIM_MEMORY_KINDS];
            assert_int_equal(optim_zero_predict(params, &c, 2, 0, 1, bytes, NULL), GYRE_OK);
            assert_in_range(bytes[OPTIM_MEMORY_GATHERED], want, want + room * sizeof(float));
        }
    model_params_destroy(params);
}

static void test_cut(void **unused)
{
    (void)unused;
    for (size_t ranks = 1; ranks <= 7; ranks++)
        for (size_t total = 0; total < 700; total += 13) {
            size_t at = 0, most = 0, least = SIZE_MAX;
            for (size_t rank = 0; rank < ranks; rank++) {
                size_t first, count;
                optim_shard_cut(total, ranks, rank, &first, &count);
                assert_int_equal(first, at);
                assert_true(count == 0 || first % OPTIM_SHARD_UNIT == 0);
                at += count;
                most = count > most ? count : most;
                least = count < least ? count : least;
            }
            assert_int_equal(at, total);
            assert_true(most - least <= 2 * OPTIM_SHARD_UNIT);
        }
}

static void test_refused(void **unused)
{
    (void)unused;
    model_params_t *params = table(0);
    base_log_set_level(BASE_LOG_NONE);
    const optim_zero_config_t bad[] = {{.stage = 4},
                                       {.stage = -1},
                                       {.grad16 = 1},
                                       {.precision = MODEL_FLOAT16, .scaler.start = 3.0},
                                       {.precision = (model_precision_t)7}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(optim_zero_predict(params, &bad[i], 1, 0, 1, NULL, NULL), GYRE_ERR_INVALID);
    model_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),   cmocka_unit_test(test_moments),  cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_buffers), cmocka_unit_test(test_gathered), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
