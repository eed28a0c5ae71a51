/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face's files: every family there and back, whole, in shards, in slices and in 16 bits; where q, k,
 * v, gates, heads and experts lie in a file; files that are wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/formats/hf.h"
#include "model/random.h"
#include "tests/support/weights.h"

static char folder[] = "/tmp/gyre-hf-XXXXXX";

static void path_of(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static void clear(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
}

#define SHAPE .vocab = 21, .seq = 8, .layers = 2, .hidden = 12, .heads = 6
#define LLAMA                                                                                           \
    .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .act = MODEL_ACT_SILU, .gated = 1, \
    .untied = 1, .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1
typedef struct {
    model_family_t family;
    model_config_t config;
} family_t;
static const family_t families[] = {
    {MODEL_FAMILY_GPT2, {SHAPE, .leaves = 2}},
    {MODEL_FAMILY_OPT, {SHAPE, .leaves = 2, .act = MODEL_ACT_RELU, .pos_offset = 2}},
    {MODEL_FAMILY_BLOOM, {SHAPE, .leaves = 2, .pos = MODEL_POS_ALIBI, .embed_norm = 1}},
    {MODEL_FAMILY_GPT_NEOX,
     {SHAPE, .leaves = 2, .pos = MODEL_POS_ROPE, .act = MODEL_ACT_GELU_ERF, .parallel = 1, .untied = 1}},
    {MODEL_FAMILY_LLAMA, {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20}},
    {MODEL_FAMILY_MIXTRAL, {SHAPE, .leaves = 2, LLAMA, .ffn = 10, .experts = 4, .top_k = 2, .capacity = 2.0}},
    {MODEL_FAMILY_CODEGEEX, {SHAPE, .leaves = 2, .act = MODEL_ACT_GELU_FAST, .top_query = 1}},
    {MODEL_FAMILY_MEGATRON_GPT, {SHAPE, .leaves = 2, .experts = 4, .ffn = 10}},
    {MODEL_FAMILY_GYRE, {SHAPE, .leaves = 2, .norm = MODEL_NORM_RMS, .prefix = 1}},
    {MODEL_FAMILY_OPT, {SHAPE, .leaves = 1, .act = MODEL_ACT_RELU, .pos_offset = 2}},
};

/* Weights with a name each: rows after the vocabulary are zero, as an import leaves them. */
static float *make(const model_config_t *config, model_params_t **params)
{
    assert_int_equal(model_params_create(config, params), GYRE_OK);
    float *flat = calloc((*params)->total, sizeof *flat);
    assert_non_null(flat);
    for (size_t r = 0; r < (*params)->rows; r++) {
        const model_param_t *row = &(*params)->row[r];
        for (size_t i = 0; row->alias == MODEL_NONE && i < row->count; i++) {
            int padding = (row->kind == MODEL_WTE || row->kind == MODEL_HEAD) &&
                          model_param_place(row, i) / row->shape[1] >= config->vocab;
            flat[row->offset + i] =
                padding ? 0.0f : (float)model_random_normal(1, MODEL_RANDOM_DATA, (uint32_t)r, i);
        }
    }
    return flat;
}

static void there_and_back(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (size_t shard = 0; shard <= 2000; shard += 2000) {
            model_params_t *params = NULL, *again = NULL;
            model_config_t config;
            float *flat = make(&families[f].config, &params);
            assert_string_equal(model_family_name(model_config_family(&params->config)),
                                model_family_name(families[f].family));
            assert_int_equal(save_hf(folder, params, flat, MODEL_HF_F32, shard), GYRE_OK);
            char path[256];
            path_of(path, "model.safetensors.index.json");
            assert_int_equal(access(path, F_OK) == 0, shard > 0);

            assert_int_equal(model_hf_config(folder, &config), GYRE_OK);
            assert_int_equal(model_params_create(&config, &again), GYRE_OK);
            assert_int_equal(again->total, params->total);
            float *back = calloc(params->total, sizeof *back);
            assert_non_null(back);
            assert_int_equal(model_hf_load(folder, again, back), GYRE_OK);
            assert_memory_equal(flat, back, params->total * sizeof *flat);

            for (size_t rank = 0; rank < again->config.leaves;
                 rank++) { /* what a rank of as many as leaves holds, a stage without the embedding */
                const unsigned char has[2] = {0, 1};
                const model_slice_t slice = {
                    .tp_rank = rank, .tp_size = again->config.leaves, .has = has, .head = 1};
                model_params_t *part = NULL;
                assert_int_equal(model_params_slice(again, &slice, &part), GYRE_OK);
                memset(back, 0xff, params->total * sizeof *back);
                assert_int_equal(model_hf_load(folder, part, back), GYRE_OK);
                for (size_t r = 0; r < part->rows; r++) {
                    const model_param_t *row = &part->row[r];
                    const float *want = flat + params->row[row->global].offset + row->first;
                    assert_memory_equal(want, back + row->offset, row->count * sizeof *want);
                }
                model_params_destroy(part);
            }
            model_params_destroy(params);
            model_params_destroy(again);
            free(flat);
            free(back);
            clear();
        }
}

static void sixteen_bits(void **state)
{
    (void)state;
    model_params_t *params = NULL;
    float *flat = make(&families[4].config, &params), *back = calloc(params->total, sizeof *back);
    assert_non_null(back);
    for (int type = MODEL_HF_BF16; type <= MODEL_HF_F16; type++) {
        assert_int_equal(save_hf(folder, params, flat, (model_hf_type_t)type, 0), GYRE_OK);
        assert_int_equal(model_hf_load(folder, params, back), GYRE_OK);
        float step = type == MODEL_HF_BF16 ? 0x1p-8f : 0x1p-11f;
        int exact = 0;
        for (size_t i = 0; i < params->total; i++) {
            assert_true(fabsf(back[i] - flat[i]) <= fmaxf(fabsf(flat[i]) * step, 0x1p-24f));
            exact += back[i] == flat[i];
        }
        assert_true(exact < (int)params->total / 2); /* they were rounded */
        clear();
    }
    free(flat);
    free(back);
    model_params_destroy(params);
}

/* Where single elements lie, by hand. */
static void orientation(void **state)
{
    (void)state;
    model_tensor_t t;
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&families[4].config, &params), GYRE_OK); /* LLaMA */
    size_t C = 12, D = 2;
    float *whole = calloc(64 * 64, sizeof *whole), *file = calloc(64 * 64, sizeof *file);
    assert_true(whole && file);
    const model_param_t *qkv = &params->row[model_params_find(params, MODEL_ATTN_QKV_W, 1)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_LLAMA, qkv, 1, &t), 1);
    assert_string_equal(t.name, "model.layers.1.self_attn.k_proj.weight");
    assert_true(t.dims == 2 && t.shape[0] == 2 * D && t.shape[1] == C); /* [out, in] */
    for (size_t i = 0; i < 2 * D * C; i++)
        file[i] = (float)i;
    model_tensor_to_whole(&t, file, whole, qkv->shape[1]);
    assert_true(whole[5 * qkv->shape[1] + 12 + 3] == (float)(3 * C + 5)); /* k's column 3 of input 5 */
    const model_param_t *fc = &params->row[model_params_find(params, MODEL_MLP_FC_W, 0)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_LLAMA, fc, 0, &t), 1);
    assert_string_equal(t.name, "model.layers.0.mlp.gate_proj.weight");
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_LLAMA, fc, 1, &t), 1);
    assert_string_equal(t.name, "model.layers.0.mlp.up_proj.weight");
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_LLAMA, fc, 2, &t), 0);
    const model_param_t *wte = &params->row[model_params_find(params, MODEL_WTE, 0)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_LLAMA, wte, 0, &t), 1);
    assert_true(t.shape[0] == 21 && t.shape[1] == C && wte->shape[0] == 22); /* padding is in no file */
    model_params_destroy(params);

    assert_int_equal(model_params_create(&families[3].config, &params), GYRE_OK); /* GPT-NeoX */
    qkv = &params->row[model_params_find(params, MODEL_ATTN_QKV_W, 0)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_GPT_NEOX, qkv, 0, &t), 1);
    assert_string_equal(t.name, "gpt_neox.layers.0.attention.query_key_value.weight");
    for (size_t i = 0; i < 3 * C * C; i++)
        file[i] = (float)i;
    model_tensor_to_whole(&t, file, whole, qkv->shape[1]);
    /* v of head 4, channel 1, of input 7: the file's row (4 * 3 + 2) D + 1 */
    assert_true(whole[7 * qkv->shape[1] + 2 * C + 4 * D + 1] == (float)(((4 * 3 + 2) * D + 1) * C + 7));
    const model_param_t *bias = &params->row[model_params_find(params, MODEL_ATTN_QKV_B, 0)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_GPT_NEOX, bias, 0, &t), 1);
    model_tensor_to_whole(&t, file, whole, 1);
    assert_true(whole[C + 3 * D] == (float)((3 * 3 + 1) * D)); /* k of head 3 */
    model_params_destroy(params);

    assert_int_equal(model_params_create(&families[5].config, &params), GYRE_OK); /* Mixtral */
    const model_param_t *expert = &params->row[model_params_find(params, MODEL_EXPERT_FC_W, 1)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_MIXTRAL, expert, 5, &t), 1);
    assert_string_equal(t.name, "model.layers.1.block_sparse_moe.experts.2.w3.weight");
    assert_true(t.row == 2 * C && t.column == 10 && t.shape[0] == 10 && t.shape[1] == C);
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_MIXTRAL, expert, 8, &t), 0);
    model_params_destroy(params);
    free(whole);
    free(file);
}

static void write_file(const char *name, const char *header, size_t data)
{
    char path[256];
    path_of(path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t length = strlen(header);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, length, 1, file), 1);
    for (size_t i = 0; i < data; i++)
        fputc(0, file);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    path_of(path, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void refuse(gyre_status_t want, const char *say)
{
    static const model_config_t config = {
        .vocab = 3, .seq = 2, .layers = 1, .hidden = 2, .heads = 1, .leaves = 1};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat);
    assert_non_null(flat);
    assert_int_equal(model_hf_load(folder, params, flat), want);
    print_message("%s\n", gyre_last_error());
    assert_non_null(strstr(gyre_last_error(), say));
    free(flat);
    model_params_destroy(params);
    clear();
}

#define LNF "\"transformer.ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
static void wrong_files(void **state)
{
    (void)state;
    char path[256];
    base_log_set_level(BASE_LOG_NONE);
    refuse(GYRE_ERR_NOT_FOUND, "neither model.safetensors nor");
    write_file("model.safetensors", "{" LNF "}", 8);
    refuse(GYRE_ERR_FORMAT, "no tensor transformer.ln_f.bias");
    write_file("model.safetensors", "{" LNF "}", 7);
    refuse(GYRE_ERR_FORMAT, "offsets outside of the file");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12);
    refuse(GYRE_ERR_FORMAT, "is [3]; this model needs [2]");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16);
    refuse(GYRE_ERR_UNSUPPORTED, "F64: F32, BF16 and F16");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 16);
    refuse(GYRE_ERR_FORMAT, "shape and offsets do not go together");
    write_file("model.safetensors",
               "{" LNF ",\"b\":{\"dtype\":\"I64\",\"shape\":[2,2],\"data_offsets\":[8,32]}}", 40);
    refuse(GYRE_ERR_FORMAT, "b in"); /* not read, and wrong all the same */
    write_file("model.safetensors",
               "{" LNF ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[7,11]}}", 16);
    refuse(GYRE_ERR_FORMAT, "transformer.ln_f.weight and b overlap");
    write_file("one", "{" LNF "}", 8);
    write_file("two", "{" LNF "}", 8);
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"one\", \"b\": \"two\"}}");
    refuse(GYRE_ERR_FORMAT, "both hold a tensor transformer.ln_f.weight");
    write_file("model.safetensors", "[1,2]", 0);
    refuse(GYRE_ERR_FORMAT, "not a safetensors file");
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}");
    refuse(GYRE_ERR_FORMAT, "not a name in this folder");

    /* an export that is left in the middle has no config.json, not even an older one, and its order is
     * checked */
    write_text("config.json", "{}");
    write_text("model.safetensors", "an older one");
    write_text("model.safetensors.index.json", "{}");
    model_params_t *params = NULL;
    model_hf_writer_t *writer = NULL;
    float *flat = make(&families[0].config, &params);
    assert_int_equal(model_hf_create(folder, params, MODEL_HF_F32, 0, &writer), GYRE_OK);
    path_of(path, "model.safetensors.index.json");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(model_hf_write(writer, 0, flat), GYRE_OK); /* the tied head: nothing */
    assert_int_equal(model_hf_write(writer, 2, flat + params->row[2].offset), GYRE_ERR_INVALID);
    assert_int_equal(model_hf_write(writer, 1, flat + params->row[1].offset), GYRE_OK);
    assert_int_equal(model_hf_finish(writer), GYRE_ERR_INVALID);
    path_of(path, "config.json");
    assert_int_not_equal(access(path, F_OK), 0);
    path_of(path, "model.safetensors");
    assert_int_not_equal(access(path, F_OK), 0);
    free(flat);
    model_params_destroy(params);
    clear();
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(orientation),
        cmocka_unit_test(wrong_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
