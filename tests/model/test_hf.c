/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Hugging Face's files: every family there and back, whole, in shards, in slices and in 16 bits; where q, k,
 * v, gates, heads and experts lie in a file. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/formats/hf.h"
#include "model/random.h"
#include "tests/model/hf_folder.h"
#include "tests/support/entries.h"
#include "tests/support/weights.h"

#define SHAPE .vocab = 21, .seq = 8, .layers = 2, .hidden = 12, .heads = 6
#define LLAMA_BODY                                                                                      \
    .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .act = MODEL_ACT_SILU, .gated = 1, \
    .untied = 1, .no_proj_bias = 1, .no_mlp_bias = 1
#define LLAMA  LLAMA_BODY, .no_qkv_bias = 1
#define LATENT .ffn = 10, .head_dim = 6, .rotary_dim = 2, .value_dim = 4, .kv_latent = 6
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
    {MODEL_FAMILY_QWEN2, {SHAPE, .leaves = 2, LLAMA_BODY, .kv_heads = 2, .ffn = 20}},
    {MODEL_FAMILY_QWEN3, {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20, .head_dim = 4, .qk_norm = 1}},
    {MODEL_FAMILY_QWEN3_MOE,
     {SHAPE, .leaves = 2, LLAMA, .ffn = 10, .qk_norm = 1, .experts = 4, .top_k = 2, .capacity = 2.0}},
    {MODEL_FAMILY_QWEN3_MOE,
     {SHAPE, .leaves = 2, LLAMA, .ffn = 10, .qk_norm = 1, .experts = 4, .top_k = 2, .capacity = 2.0,
      .raw_weights = 1}},
    {MODEL_FAMILY_PHI3, {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20, .fused_files = 1}},
    {MODEL_FAMILY_GEMMA,
     {SHAPE, .leaves = 2, .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .gated = 1,
      .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1, .kv_heads = 2, .head_dim = 4, .ffn = 20,
      .gain_plus_1 = 1, .embed_scaled = 1}},
    {MODEL_FAMILY_OLMO2,
     {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20, .out_norm = 1, .qk_norm = 1, .qk_whole = 1}},
    {MODEL_FAMILY_GEMMA2,
     {SHAPE, .leaves = 2, .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .gated = 1,
      .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1, .kv_heads = 2, .head_dim = 4, .ffn = 20,
      .gain_plus_1 = 1, .embed_scaled = 1, .both_norms = 1, .attn_cap = 2, .window = 3, .window_every = 2}},
    {MODEL_FAMILY_GEMMA3,
     {SHAPE, .leaves = 2, .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .gated = 1,
      .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1, .kv_heads = 2, .head_dim = 4, .ffn = 20,
      .gain_plus_1 = 1, .embed_scaled = 1, .both_norms = 1, .qk_norm = 1, .local_theta = 100, .window = 3,
      .window_every = 2}},
    {MODEL_FAMILY_GLM_HF,
     {SHAPE, .leaves = 2, LLAMA_BODY, .kv_heads = 2, .ffn = 20, .head_dim = 4, .rotary_dim = 2,
      .rope_interleaved = 1, .fused_gates = 1}},
    {MODEL_FAMILY_GLM4,
     {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20, .head_dim = 4, .rotary_dim = 2,
      .rope_interleaved = 1, .fused_gates = 1, .both_norms = 1}},
    {MODEL_FAMILY_GPT_OSS,
     {SHAPE,
      .leaves = 2,
      .pos = MODEL_POS_ROPE,
      .norm = MODEL_NORM_RMS,
      .act = MODEL_ACT_GELU_FAST,
      .act_limit = 7,
      .gated = 1,
      .untied = 1,
      .no_mlp_bias = 1,
      .kv_heads = 2,
      .head_dim = 4,
      .ffn = 10,
      .sinks = 1,
      .window = 3,
      .window_every = 2,
      .experts = 4,
      .top_k = 2,
      .capacity = 2.0,
      .router_bias = 1,
      .expert_bias = 1}},
    {MODEL_FAMILY_DEEPSEEK_V3,
     {SHAPE, .leaves = 2, LLAMA, LATENT, .q_latent = 6, .experts = 4, .top_k = 2, .dense_first = 1,
      .dense_ffn = 20, .shared_ffn = 20, .groups = 2, .top_groups = 1, .router_sigmoid = 1,
      .routed_scale = 2.5, .capacity = 2.0}},
    {MODEL_FAMILY_DEEPSEEK_V2,
     {SHAPE, .leaves = 2, LLAMA, LATENT, .rope_interleaved = 1, .experts = 4, .top_k = 2, .shared_ffn = 10,
      .raw_weights = 1, .capacity = 2.0}},
    {MODEL_FAMILY_GYRE,
     {SHAPE, .leaves = 2, LLAMA, LATENT, .parallel = 1, .experts = 4, .dense_first = 1, .shared_ffn = 10,
      .router_sigmoid = 1}},
    {MODEL_FAMILY_SMOLLM3,
     {SHAPE, .leaves = 2, .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .norm_eps = 1e-6, .gated = 1,
      .act = MODEL_ACT_SILU, .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1, .kv_heads = 2, .ffn = 20,
      .nope_every = 2}},
    {MODEL_FAMILY_MISTRAL, {SHAPE, .leaves = 2, LLAMA, .kv_heads = 2, .ffn = 20, .window = 3}},
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
            model_family_t family;
            float *flat = make(&families[f].config, &params);
            assert_int_equal(model_config_family(&params->config, &family), GYRE_OK);
            assert_string_equal(model_family_name(family), model_family_name(families[f].family));
            assert_int_equal(save_hf(folder, params, flat, MODEL_HF_F32, shard), GYRE_OK);
            char path[256];
            path_of(path, "model.safetensors.index.json");
            assert_int_equal(access(path, F_OK) == 0, shard > 0);

            assert_int_equal(model_hf_config(folder, 0, &config), GYRE_OK);
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

    size_t oss = 0;
    while (families[oss].family != MODEL_FAMILY_GPT_OSS)
        oss++;
    assert_int_equal(model_params_create(&families[oss].config, &params), GYRE_OK);
    expert = &params->row[model_params_find(params, MODEL_EXPERT_FC_W, 1)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_GPT_OSS, expert, 0, &t), 1);
    assert_string_equal(t.name, "model.layers.1.mlp.experts.gate_up_proj");
    assert_true(t.dims == 3 && t.shape[0] == 4 && t.shape[1] == C && t.shape[2] == 20);
    for (size_t i = 0; i < 4 * C * 20; i++)
        file[i] = (float)i;
    model_tensor_to_whole(&t, file, whole, expert->shape[1]);
    assert_true(whole[(2 * C + 3) * 20 + 14] ==
                (float)((2 * C + 3) * 20 + 9)); /* up 4 of expert 2, input 3 */
    bias = &params->row[model_params_find(params, MODEL_EXPERT_FC_B, 0)];
    assert_int_equal(model_row_tensor(params, MODEL_FAMILY_GPT_OSS, bias, 0, &t), 1);
    assert_true(t.dims == 2 && t.shape[0] == 4 && t.shape[1] == 20);
    model_tensor_to_whole(&t, file, whole, 1);
    assert_true(whole[3 * 20 + 7] == (float)(3 * 20 + 14)); /* gate 7 of expert 3 */
    model_params_destroy(params);
    free(whole);
    free(file);
}

static void wrong_order(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    model_params_t *params = NULL;
    model_hf_writer_t *writer = NULL;
    float *flat = make(&families[0].config, &params);
    assert_int_equal(model_hf_create(folder, params, MODEL_HF_F32, 0, NULL, &writer), GYRE_OK);
    assert_int_equal(model_hf_write(writer, 0, flat), GYRE_OK); /* the tied head: nothing */
    assert_int_equal(model_hf_write(writer, 2, flat + params->row[2].offset), GYRE_ERR_INVALID);
    assert_int_equal(model_hf_write(writer, 1, flat + params->row[1].offset), GYRE_OK);
    assert_int_equal(model_hf_finish(writer), GYRE_ERR_INVALID);
    free(flat);
    model_params_destroy(params);
    clear();
}

/* An older model stays until the new one is whole, and none of it stays then. */
static void replaces(void **state)
{
    (void)state;
    char model[64], path[80], command[400];
    model_params_t *params = NULL;
    float *flat = make(&families[4].config, &params), *back = calloc(params->total, sizeof *back);
    assert_non_null(back);
    snprintf(model, sizeof model, "%s/model", folder);
    assert_int_equal(save_hf(model, params, flat, MODEL_HF_F32, 2000), GYRE_OK);
    size_t many = entries(model);
    assert_true(many > 4);
    snprintf(command, sizeof command,
             "cd %s; touch tokenizer.json vocab.json tekken.json qwen.tiktoken chat_template.jinja;"
             "cp -r . ../copy; echo mine >README.md; mkdir notes",
             model);
    assert_int_equal(system(command), 0);

    /* given up, and a disk that is full: the old model is as it was, and nothing else is left */
    model_hf_writer_t *writer = NULL;
    assert_int_equal(model_hf_create(model, params, MODEL_HF_F32, 0, NULL, &writer), GYRE_OK);
    assert_int_equal(model_hf_write(writer, 0, flat + params->row[0].offset), GYRE_OK);
    model_hf_abandon(writer);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 3000, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    gyre_status_t status = save_hf(model, params, flat, MODEL_HF_F32, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, GYRE_ERR_IO);
    snprintf(command, sizeof command, "for f in %s/copy/*; do cmp $f %s/${f##*/} || exit 1; done", folder,
             model);
    assert_int_equal(system(command), 0);
    assert_int_equal(entries(folder), 2);

    /* no shard and no tokenizer of the old model stays; what is no file of a model does */
    flat[0] = 7.0f;
    assert_int_equal(save_hf(model, params, flat, MODEL_HF_F32, 0), GYRE_OK);
    assert_int_equal(entries(model), 4); /* model.safetensors, config.json, README.md, notes */
    assert_int_equal(entries(folder), 2);
    snprintf(path, sizeof path, "%s/README.md", model);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(model_hf_load(model, params, back), GYRE_OK);
    assert_memory_equal(flat, back, params->total * sizeof *back);
    free(flat);
    free(back);
    model_params_destroy(params);
    clear();
}

/* No model_type has caps of attention next to what else llama has: names are Gyre's own then, and the error
 * says so. */
/* Ranges of a row that follow each other decode it once: what happens to the file meanwhile is not seen. */
static void ranges(void **state)
{
    (void)state;
    char model[64], command[400];
    model_params_t *params = NULL;
    model_hf_t *hf = NULL;
    float *flat = make(&families[4].config, &params);
    const model_param_t *row = &params->row[model_params_find(params, MODEL_MLP_FC_W, 0)],
                        *other = &params->row[model_params_find(params, MODEL_MLP_FC_W, 1)];
    const size_t half = row->count / 2;
    float *back = calloc(row->count, sizeof *back);
    assert_non_null(back);
    snprintf(model, sizeof model, "%s/model", folder);
    assert_int_equal(save_hf(model, params, flat, MODEL_HF_F32, 0), GYRE_OK);
    assert_int_equal(model_hf_open(model, params, &hf), GYRE_OK);
    assert_int_equal(model_hf_read(hf, row, 0, half, back), GYRE_OK);
    snprintf(command, sizeof command,
             "f=%s/model.safetensors; n=$(stat -c %%s $f); head -c $((8 + $(od -An -tu8 -N8 $f))) $f "
             ">$f.head; truncate -s 0 $f; "
             "cat $f.head >$f; truncate -s $n $f",
             model);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_hf_read(hf, row, half, row->count - half, back + half), GYRE_OK);
    assert_memory_equal(back, flat + row->offset, row->count * sizeof *back);
    assert_int_equal(model_hf_read(hf, other, 0, half, back), GYRE_OK);
    assert_memory_not_equal(back, flat + other->offset, half * sizeof *back);
    assert_int_equal(model_hf_read(hf, row, 0, half, back), GYRE_OK);
    assert_memory_not_equal(back, flat + row->offset, half * sizeof *back);
    model_hf_close(hf);
    free(flat);
    free(back);
    model_params_destroy(params);
    clear();
}

static void no_family(void **state)
{
    (void)state;
    model_config_t config = families[4].config;
    model_params_t *llama = NULL, *capped = NULL;
    float *flat = make(&config, &llama), *back = calloc(llama->total, sizeof *back);
    assert_non_null(back);
    assert_int_equal(save_hf(folder, llama, flat, MODEL_HF_F32, 0), GYRE_OK);
    config.attn_cap = 50.0;
    assert_int_equal(model_params_create(&config, &capped), GYRE_OK);
    assert_int_equal(model_hf_load(folder, capped, back), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "no model_type of Hugging Face's has this architecture"));
    model_params_destroy(llama);
    model_params_destroy(capped);
    free(flat);
    free(back);
    clear();
}

/* A model of more positions than sequences have tokens: the first ones are read, and an export has all. */
static void fewer_positions(void **state)
{
    (void)state;
    static const size_t learned[] = {0, 1, 6}; /* GPT-2, OPT, CodeGeeX with its table of top queries */
    for (size_t f = 0; f < sizeof learned / sizeof *learned; f++) {
        model_config_t config = families[learned[f]].config;
        model_params_t *whole = NULL, *trained = NULL;
        model_hf_origin_t *origin = NULL;
        model_hf_writer_t *writer = NULL;
        float *flat = make(&config, &whole), *back = calloc(whole->total, sizeof *back);
        char to[64];
        assert_non_null(back);
        assert_int_equal(save_hf(folder, whole, flat, MODEL_HF_F32, 0), GYRE_OK);
        assert_int_equal(model_hf_config(folder, 9, &config), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "has 8 positions"));
        assert_int_equal(model_hf_config(folder, 3, &config), GYRE_OK);
        assert_int_equal(config.seq, 3);
        assert_int_equal(model_params_create(&config, &trained), GYRE_OK);
        assert_int_equal(model_hf_load(folder, trained, back), GYRE_OK);
        for (size_t r = 0; r < trained->rows; r++)
            assert_memory_equal(back + trained->row[r].offset, flat + whole->row[r].offset,
                                trained->row[r].count * sizeof *back);

        assert_int_equal(model_hf_origin_open(folder, trained, &origin), GYRE_OK);
        clear(); /* the files are not needed any more */
        const model_params_t *all = model_hf_origin_params(origin);
        assert_int_equal(all->total, whole->total);
        snprintf(to, sizeof to, "%s/export", folder);
        assert_int_equal(model_hf_create(to, all, model_hf_origin_type(origin), 0, origin, &writer), GYRE_OK);
        for (size_t r = 0; r < all->rows; r++) {
            float row[21 * 12 * 8];
            assert_true(all->row[r].count <= sizeof row / sizeof *row);
            memcpy(row, back + trained->row[r].offset, trained->row[r].count * sizeof *row);
            model_hf_origin_fill(origin, r, row);
            assert_int_equal(model_hf_write(writer, r, row), GYRE_OK);
        }
        assert_int_equal(model_hf_finish(writer), GYRE_OK);
        assert_int_equal(model_hf_config(to, 0, &config), GYRE_OK);
        assert_int_equal(config.seq, 8);
        assert_int_equal(model_hf_load(to, whole, back), GYRE_OK);
        assert_memory_equal(flat, back, whole->total * sizeof *back);
        model_hf_origin_close(origin);
        model_params_destroy(whole);
        model_params_destroy(trained);
        free(flat);
        free(back);
        clear();
    }
}

static void copy_files(const char *from, const model_params_t *params, const char *to)
{
    model_hf_origin_t *origin = NULL;
    assert_int_equal(model_hf_origin_open(from, params, &origin), GYRE_OK);
    assert_int_equal(model_hf_origin_copy(origin, to), GYRE_OK);
    model_hf_origin_close(origin);
}

/* Keys that training does not change, and the files of the tokenizer, come along. */
static void keeps_keys(void **state)
{
    (void)state;
    static const char mistral[] =
        "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 8,"
        " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 9,"
        " \"max_position_embeddings\": 64, \"sliding_window\": 16, \"rope_scaling\": null,"
        " \"bos_token_id\": 3, \"eos_token_id\": [4, 5], \"use_cache\": true, \"dtype\": \"bfloat16\"}";
    model_config_t config;
    model_params_t *params = NULL;
    model_hf_origin_t *origin = NULL;
    json_t *was, *now, *value;
    const char *key;
    char path[80], weights[64], command[300];
    write_text("config.json", mistral);
    write_text("tokenizer.json", "{\"a tokenizer\": 1}");
    write_text("generation_config.json", "{\"eos_token_id\": 5}");
    assert_int_equal(model_hf_config(folder, 17, &config), GYRE_OK);
    assert_int_equal(model_config_window(&config, 0), 16);
    assert_int_equal(model_hf_config(folder, 16, &config), GYRE_OK);
    assert_int_equal(model_config_window(&config, 0), 0);
    float *flat = make(&config, &params);
    snprintf(weights, sizeof weights, "%s/weights", folder);
    assert_int_equal(save_hf(weights, params, flat, MODEL_HF_BF16, 0), GYRE_OK);
    snprintf(command, sizeof command, "mv %s/model.safetensors %s", weights, folder);
    assert_int_equal(system(command), 0);

    assert_int_equal(model_hf_origin_open(folder, params, &origin), GYRE_OK);
    assert_int_equal(model_hf_origin_type(origin), MODEL_HF_BF16);
    model_config_t trained = params->config;
    trained.dropout = 0.5; /* which a family without it says in Gyre's own object */
    assert_int_equal(model_hf_origin_config(origin, &trained, &now), GYRE_OK);
    assert_non_null(was = json_loads(mistral, 0, NULL));
    json_object_foreach(was, key, value) assert_true(json_equal(value, json_object_get(now, key)));
    assert_true(json_number_value(json_object_get(json_object_get(now, "gyre"), "dropout")) == 0.5);
    assert_int_equal(json_object_size(now), json_object_size(was) + 1);
    json_decref(now);
    json_decref(was);
    assert_int_equal(model_hf_origin_copy(origin, weights), GYRE_OK);
    snprintf(path, sizeof path, "%s/tokenizer.json", weights);
    assert_non_null(now = json_load_file(path, 0, NULL));
    json_decref(now);
    assert_int_equal(entries(weights), 3); /* config.json and the two files */
    model_hf_origin_close(origin);

    /* code that tokenizer_config.json or config.json names, and what it may import: all of the folder's */
    snprintf(path, sizeof path, "%s/code.py", weights);
    write_text("code.py", "class Model: pass");
    snprintf(command, sizeof command, "cd %s; ln -s nowhere added_tokens.json; mkdir folder.py", folder);
    assert_int_equal(system(command), 0);
    copy_files(folder, params, weights);
    assert_int_equal(access(path, F_OK), -1);
    write_text("tokenizer_config.json", "{\"auto_map\": {\"AutoTokenizer\": [\"code.Tokenizer\", null]}}");
    copy_files(folder, params, weights);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(command, sizeof command,
             "cd %s; rm tokenizer_config.json weights/tokenizer_config.json weights/code.py;"
             "sed -i '1s/{/{\"auto_map\": {\"AutoModel\": \"code.Model\"},/' config.json",
             folder);
    assert_int_equal(system(command), 0);
    copy_files(folder, params, weights);
    assert_int_equal(unlink(path), 0);

    /* of a single file: what lies next to it */
    snprintf(command, sizeof command, "rm %s/tokenizer.json; touch %s/tekken.json", weights, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    copy_files(path, params, weights);
    assert_int_equal(entries(weights), 4);
    model_params_destroy(params);
    free(flat);
    clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(sixteen_bits), cmocka_unit_test(orientation),
        cmocka_unit_test(wrong_order),    cmocka_unit_test(replaces),     cmocka_unit_test(fewer_positions),
        cmocka_unit_test(ranges),         cmocka_unit_test(no_family),    cmocka_unit_test(keeps_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
