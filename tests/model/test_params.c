/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* The parameter table, initial values, safetensors, sampling. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "pipeline/train/sample.h"
#include "tests/model/kinds.h"
#include "tests/support/weights.h"

static const model_config_t config = {.vocab = 13, .seq = 8, .layers = 3, .hidden = 12, .heads = 3};
static char path[] = "/tmp/gyre-weights-XXXXXX";

static void table(void **state)
{
    (void)state;
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    assert_int_equal(params->rows, 1 + 3 * 12 + 4); /* the first: the head's share of the tied embedding */
    size_t C = config.hidden, offset = 0;
    assert_int_equal(params->total, 3 * (12 * C * C + 13 * C) + 2 * C + (config.seq + config.vocab) * C);
    assert_int_equal(params->row[0].kind, MODEL_HEAD);
    assert_int_equal(params->row[0].alias, params->rows - 1);
    assert_int_equal(params->row[0].offset, params->row[params->rows - 1].offset);
    for (size_t r = 1; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        assert_int_equal(row->offset, offset);
        offset += row->count;
        assert_int_equal(model_params_find(params, row->kind, (size_t)(row->layer < 0 ? 0 : row->layer)), r);
        assert_int_equal(row->decay, row->dims == 2);
        assert_true(row->cut < (int)row->dims);
    }
    assert_string_equal(params->row[1].name, "transformer.ln_f.weight");
    assert_string_equal(params->row[3].name, "transformer.h.2.mlp.c_proj.weight");
    assert_string_equal(params->row[params->rows - 1].name, "transformer.wte.weight");
    const model_param_t *qkv = &params->row[model_params_find(params, MODEL_ATTN_QKV_W, 1)];
    assert_string_equal(qkv->name, "transformer.h.1.attn.c_attn.weight");
    assert_int_equal(qkv->shape[0], C);
    assert_int_equal(qkv->shape[1], 3 * C);
    assert_int_equal(qkv->cut, 1);
    assert_int_equal(qkv->parts, 3);
    model_params_destroy(params);
}

static void bad_shapes(void **state)
{
    (void)state;
    model_params_t *params = NULL;
    model_config_t bad = config;
    bad.heads = 5;
    assert_int_equal(model_params_create(&bad, &params), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "heads 4 or 6"));
    bad = config;
    bad.layers = 0;
    assert_int_equal(model_params_create(&bad, &params), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "layers is 0"));
    assert_null(params);
}

static void initial_values(void **state)
{
    (void)state;
    model_config_t wide = config;
    wide.hidden = 96;
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&wide, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat), *again = calloc(params->total, sizeof *again);
    assert_true(flat && again);
    init_params(params, 42, flat);
    init_params(params, 42, again);
    assert_memory_equal(flat, again, params->total * sizeof *flat);
    init_params(params, 43, again);
    assert_memory_not_equal(flat, again, params->total * sizeof *flat);
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < row->count; i++) {
            sum += (double)flat[row->offset + i];
            squares += (double)flat[row->offset + i] * (double)flat[row->offset + i];
        }
        if (row->init == MODEL_INIT_NORMAL && row->count > 5000) {
            double residual =
                row->kind == MODEL_MLP_PROJ_W || row->kind == MODEL_ATTN_PROJ_W ? sqrt(6.0) : 1.0;
            double std = 0.02 * sqrt(768.0 / 96.0) / residual;
            assert_true(fabs(sqrt(squares / (double)row->count) - std) < 0.05 * std);
            assert_true(fabs(sum / (double)row->count) < 0.05 * std);
        } else if (row->init != MODEL_INIT_NORMAL) {
            assert_true(sum == (row->init == MODEL_INIT_ONE ? (double)row->count : 0.0));
        }
    }
    free(flat);
    free(again);
    model_params_destroy(params);
}

static void round_trip(void **state)
{
    (void)state;
    model_params_t *params = NULL, *other = NULL;
    model_config_t found, narrow = config;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat), *again = calloc(params->total, sizeof *again);
    assert_true(flat && again);
    init_params(params, 3, flat);
    assert_int_equal(save_weights(path, params, flat), GYRE_OK);
    assert_int_equal(model_hf_load(path, params, again), GYRE_OK);
    assert_memory_equal(flat, again, params->total * sizeof *flat);
    assert_int_equal(model_checkpoint_config(path, &found), GYRE_OK);
    assert_memory_equal(&found, &config, sizeof found);

    narrow.hidden = 6;
    assert_int_equal(model_params_create(&narrow, &other), GYRE_OK);
    assert_int_equal(model_hf_load(path, other, again), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "this model needs"));
    model_params_destroy(other);

    static const char *const bad_heads[] = {"\"m_head\":\"3\"", "\"n_head\":\"x\"", "\"n_head\":\"0\"",
                                            "\"n_head\":\"\" ", "\"n_head\": 12",   "\"n_head\":\"-\""};
    /* every way to damage it is refused, none crashes */
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *image = malloc(bytes);
    assert_non_null(image);
    assert_int_equal(fread(image, 1, bytes, file), bytes);
    fclose(file);
    uint64_t header;
    memcpy(&header, image, sizeof header);
    assert_int_equal(header % 8, 0);
    assert_int_equal(bytes, 8 + header + params->total * sizeof *flat);
    const size_t lengths[] = {0, 5, 8, 100, (size_t)header, (size_t)header + 8, bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(truncate(path, 0), 0);
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(image, 1, lengths[i], file), lengths[i]);
        fclose(file);
        assert_int_equal(model_hf_load(path, params, again), GYRE_ERR_FORMAT);
    }
    for (size_t i = 0; i < 400; i++) {
        image[i] ^= 0x41;
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(image, 1, bytes, file), bytes);
        fclose(file);
        (void)model_hf_load(path, params, again);
        (void)model_checkpoint_config(path, &found);
        image[i] ^= 0x41;
    }
    for (size_t i = 0; i < sizeof bad_heads / sizeof bad_heads[0]; i++) {
        char *at = memmem(image, header + 8, "\"n_head\":\"3\"", 12), kept[12];
        assert_non_null(at);
        memcpy(kept, at, sizeof kept);
        memcpy(at, bad_heads[i], sizeof kept);
        file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(image, 1, bytes, file), bytes);
        fclose(file);
        memcpy(at, kept, sizeof kept);
        if (i == 0) { /* without: it says so */
            assert_int_equal(model_checkpoint_config(path, &found), GYRE_OK);
            assert_int_equal(found.heads, 0);
        } else {
            assert_int_equal(model_checkpoint_config(path, &found), GYRE_ERR_FORMAT);
            assert_non_null(strstr(gyre_last_error(), "n_head"));
        }
    }
    assert_int_equal(model_hf_load("/tmp/gyre-no-such-file", params, again), GYRE_ERR_NOT_FOUND);
    assert_int_equal(save_weights("/tmp/gyre-no-such-folder/x", params, flat), GYRE_ERR_IO);
    free(image);
    free(flat);
    free(again);
    model_params_destroy(params);
}

static void sampling(void **state)
{
    (void)state;
    model_params_t *params = NULL;
    model_config_t whole = config;
    whole.leaves = 1;
    assert_int_equal(model_params_create(&whole, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat);
    assert_non_null(flat);
    init_params(params, 5, flat);
    model_token_t a[64] = {1}, b[64] = {1}, greedy[64] = {1}, top1[64] = {1};
    size_t na = 1, nb = 1, ng = 1, n1 = 1, seen = 0;
    model_sample_t how = {.temperature = 1.0, .top_k = 0, .seed = 9};
    assert_int_equal(model_sample(params, flat, &how, a, &na, 60),
                     GYRE_OK); /* beyond seq: the window slides */
    assert_int_equal(model_sample(params, flat, &how, b, &nb, 60), GYRE_OK);
    assert_int_equal(na, 61);
    assert_memory_equal(a, b, sizeof a);
    for (size_t i = 0; i < na; i++) {
        assert_true(a[i] >= 0 && (size_t)a[i] < config.vocab);
        seen |= (size_t)1 << a[i];
    }
    assert_true(__builtin_popcountll(seen) > 6); /* an untrained model is nearly uniform */
    how.seed = 10;
    nb = 1;
    assert_int_equal(model_sample(params, flat, &how, b, &nb, 60), GYRE_OK);
    assert_memory_not_equal(a, b, sizeof a);
    how.temperature = 0.0;
    assert_int_equal(model_sample(params, flat, &how, greedy, &ng, 20), GYRE_OK);
    how.temperature = 2.0;
    how.top_k = 1;
    assert_int_equal(model_sample(params, flat, &how, top1, &n1, 20), GYRE_OK);
    assert_memory_equal(greedy, top1, sizeof greedy);
    na = 0;
    assert_int_equal(model_sample(params, flat, &how, a, &na, 1), GYRE_ERR_INVALID);
    model_params_destroy(params);
    free(flat);
}

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

/* A file alone says its model, also where shapes of tensors would say another one. */
static void described(void **state)
{
    (void)state;
    const model_config_t kinds[] = {
        {.act = MODEL_ACT_RELU, .window = 3, .attn_cap = 5.0},
        {.norm_eps = 1e-3},
        {.pos = MODEL_POS_ALIBI, .embed_norm = 1},
        {LLAMA_LIKE,
         .rope = {.type = MODEL_ROPE_LLAMA3, .factor = 4.0, .low = 1.0, .high = 4.0, .original = 4},
         .kv_heads = 1, .dropout = 0.1},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        model_config_t given = kinds[i], found;
        json_t *want = NULL, *have = NULL;
        model_params_t *params = NULL;
        given.vocab = 40;
        given.seq = 8;
        given.layers = 2;
        given.hidden = 24;
        given.heads = 3;
        assert_int_equal(model_params_create(&given, &params), GYRE_OK);
        float *flat = calloc(params->total, sizeof *flat);
        assert_non_null(flat);
        assert_int_equal(save_weights(path, params, flat), GYRE_OK);
        assert_int_equal(model_checkpoint_config(path, &found), GYRE_OK);
        assert_true(found.leaves == 0 && found.vocab_padded == 0);
        given.dropout = 0.0; /* each run chooses */
        assert_int_equal(model_config_to_json(&given, &want), GYRE_OK);
        assert_int_equal(model_config_to_json(&found, &have), GYRE_OK);
        assert_true(json_equal(want, have));
        json_decref(want);
        json_decref(have);
        free(flat);
        model_params_destroy(params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),      cmocka_unit_test(bad_shapes), cmocka_unit_test(initial_values),
        cmocka_unit_test(round_trip), cmocka_unit_test(described),  cmocka_unit_test(sampling),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
