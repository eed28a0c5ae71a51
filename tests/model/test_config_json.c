/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/model/test_config_json.c: Hugging Face's config.json: published ones of each family, what is refused
 * and with which text, and the way back.
 *
 * Longer than 600 lines: most of them are published files, as they are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/network/hf_config.h"

static gyre_status_t parse(const char *text, model_config_t *out)
{
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        print_message("%s: %s\n", text, error.text);
    assert_non_null(object);
    gyre_status_t status = model_config_from_json(object, "config.json", 0, out);
    json_decref(object);
    return status;
}

#define QWEN3_MOE(more)                                    \
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 8, " \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"vocab_size\": 9" more "}"

#define FULL4 "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\""
#define SMOLLM3(more)                                                               \
    "{\"model_type\": \"smollm3\", \"hidden_size\": 32, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 8, \"intermediate_size\": 16, \"vocab_size\": 9" more "}"

/* What is parsed, written and parsed again is the same, and the family, too. */
static model_config_t accept(const char *text, model_family_t family)
{
    model_config_t c = {0}, again = {0};
    model_family_t found;
    gyre_status_t status = parse(text, &c);
    if (status != GYRE_OK)
        print_message("%s\n", gyre_last_error());
    assert_int_equal(status, GYRE_OK);
    assert_int_equal(model_config_family(&c, &found), GYRE_OK);
    assert_string_equal(model_family_name(found), model_family_name(family));
    json_t *object = NULL;
    assert_int_equal(model_config_to_json(&c, &object), GYRE_OK);
    assert_int_equal(model_config_from_json(object, "again", 0, &again), GYRE_OK);
    json_decref(object);
    assert_int_equal(c.vocab, again.vocab);
    assert_int_equal(c.leaves, again.leaves);
    assert_int_equal(c.vocab_padded, again.vocab_padded);
    assert_int_equal(c.rotary_dim, again.rotary_dim);
    assert_int_equal(c.kv_heads, again.kv_heads);
    assert_int_equal(c.ffn, again.ffn);
    assert_true(c.act == again.act && c.norm == again.norm && c.pos == again.pos && c.gated == again.gated);
    assert_true(c.untied == again.untied && c.parallel == again.parallel && c.post_norm == again.post_norm);
    assert_true(c.no_qkv_bias == again.no_qkv_bias && c.no_mlp_bias == again.no_mlp_bias);
    assert_true(c.deepnorm == again.deepnorm && c.norm_eps == again.norm_eps &&
                c.rope.theta == again.rope.theta);
    assert_true(c.rope.type == again.rope.type && c.rope.factor == again.rope.factor &&
                c.rope.low == again.rope.low && c.rope.high == again.rope.high &&
                c.qk_norm == again.qk_norm && c.gain_plus_1 == again.gain_plus_1 &&
                c.out_norm == again.out_norm && c.qk_whole == again.qk_whole &&
                c.both_norms == again.both_norms && c.local_theta == again.local_theta &&
                c.attn_cap == again.attn_cap && c.logit_cap == again.logit_cap &&
                c.query_scale == again.query_scale && c.embed_scaled == again.embed_scaled &&
                c.fused_files == again.fused_files && c.fused_gates == again.fused_gates &&
                c.window == again.window && c.window_from == again.window_from &&
                c.window_every == again.window_every && c.rope.original == again.rope.original &&
                c.rope.attention == again.rope.attention && c.rope.untruncated == again.rope.untruncated);
    assert_true(c.sinks == again.sinks && c.act_limit == again.act_limit &&
                c.router_bias == again.router_bias && c.expert_bias == again.expert_bias &&
                c.z_loss == again.z_loss && c.router_z == again.router_z &&
                c.raw_weights == again.raw_weights && c.nope_every == again.nope_every);
    assert_true(c.dropout == again.dropout && c.capacity == again.capacity && c.balance == again.balance);
    return c;
}

static void published(void **state)
{
    (void)state;
    model_config_t c = accept(
        "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], \"attn_pdrop\": "
        "0.1,"
        " \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256, \"initializer_range\": 0.02,"
        " \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_embd\": 768, "
        "\"n_head\": 12,"
        " \"n_layer\": 12, \"n_positions\": 1024, \"resid_pdrop\": 0.1, \"summary_type\": \"cls_index\","
        " \"vocab_size\": 50257}",
        MODEL_FAMILY_GPT2);
    assert_true(c.hidden == 768 && c.heads == 12 && c.layers == 12 && c.seq == 1024 && c.ffn == 3072);
    assert_true(c.leaves == 4 && c.vocab == 50257 && c.vocab_padded == 50260 && c.dropout == 0.1 &&
                c.attn_dropout == 0.1);
    assert_true(!c.untied && c.pos == MODEL_POS_LEARNED && c.act == MODEL_ACT_GELU_TANH &&
                c.init_std == 0.02);

    c = accept(
        "{\"model_type\": \"opt\", \"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": "
        "12,"
        " \"ffn_dim\": 3072, \"vocab_size\": 50272, \"max_position_embeddings\": 2048, \"dropout\": 0.1,"
        " \"activation_function\": \"relu\", \"do_layer_norm_before\": true, \"word_embed_proj_dim\": 768,"
        " \"attention_dropout\": 0.0, \"_remove_final_layer_norm\": false}",
        MODEL_FAMILY_OPT);
    assert_true(c.pos_offset == 2 && c.act == MODEL_ACT_RELU && !c.untied);

    c = accept(
        "{\"model_type\": \"bloom\", \"n_embed\": 14336, \"n_layer\": 70, \"num_attention_heads\": 112,"
        " \"vocab_size\": 250880, \"seq_length\": 2048, \"hidden_dropout\": 0.0, \"attention_dropout\": 0.0,"
        " \"layer_norm_epsilon\": 1e-05, \"apply_residual_connection_post_layernorm\": false, "
        "\"pretraining_tp\": 4}",
        MODEL_FAMILY_BLOOM);
    assert_true(c.pos == MODEL_POS_ALIBI && c.embed_norm && c.hidden == 14336 && c.heads == 112);

    c = accept("{\"model_type\": \"gpt_neox\", \"hidden_size\": 6144, \"num_hidden_layers\": 44, "
               "\"hidden_act\": \"gelu_fast\","
               " \"num_attention_heads\": 64, \"intermediate_size\": 24576, \"vocab_size\": 50432, "
               "\"rotary_pct\": 0.25,"
               " \"rotary_emb_base\": 10000, \"layer_norm_eps\": 1e-05, \"tie_word_embeddings\": false,"
               " \"max_position_embeddings\": 2048, \"use_cache\": true}",
               MODEL_FAMILY_GPT_NEOX);
    assert_true(c.rotary_dim == 24 && c.head_dim == 96 && c.parallel && c.untied &&
                c.norm == MODEL_NORM_LAYER);
    c = accept("{\"model_type\": \"gpt_neox\", \"hidden_size\": 176, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"vocab_size\": 9, \"rotary_pct\": 0.341, "
               "\"max_position_embeddings\": 8}",
               MODEL_FAMILY_GPT_NEOX);
    assert_true(c.rotary_dim == 30 && c.head_dim == 88); /* 30 / 88 * 88 is less than 30 */

    c = accept("{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, "
               "\"num_hidden_layers\": 32,"
               " \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"vocab_size\": 32000, "
               "\"hidden_act\": \"silu\","
               " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
               "\"pretraining_tp\": 1,"
               " \"tie_word_embeddings\": false, \"torch_dtype\": \"float16\"}",
               MODEL_FAMILY_LLAMA);
    assert_true(c.norm == MODEL_NORM_RMS && c.gated && c.no_qkv_bias && c.no_proj_bias && c.no_mlp_bias &&
                c.untied);

    c = accept("{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
               "\"head_dim\": null,"
               " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
               "\"vocab_size\": 32768,"
               " \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05, \"sliding_window\": null,"
               " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000.0}}",
               MODEL_FAMILY_LLAMA); /* nothing distinguishes it from a LLaMA */
    assert_true(c.kv_heads == 8 && c.rope.theta == 1e6 && c.head_dim == 128 && c.window == 0);

    c = accept("{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
               "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
               "\"vocab_size\": 32000, \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05, "
               "\"rope_theta\": 10000.0, \"sliding_window\": 4096}",
               MODEL_FAMILY_MISTRAL);
    assert_true(c.window == 4096 && model_config_window(&c, 0) == 4096 &&
                model_config_window(&c, 31) == 4096);

    c = accept("{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
               "\"num_hidden_layers\": 32,"
               " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 32000, "
               "\"num_local_experts\": 8,"
               " \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.02, \"output_router_logits\": true,"
               " \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1e6, "
               "\"sliding_window\": null}",
               MODEL_FAMILY_MIXTRAL);
    assert_true(c.experts == 8 && c.top_k == 2 && c.capacity == 4.0 && c.balance == 0.02 && c.leaves == 4);

    c = accept("{\"model_type\": \"qwen2\", \"hidden_size\": 3584, \"intermediate_size\": 18944, "
               "\"num_hidden_layers\": 28, \"num_attention_heads\": 28, \"num_key_value_heads\": 4, "
               "\"vocab_size\": 152064, \"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, "
               "\"max_window_layers\": 28, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
               "\"sliding_window\": 131072, \"tie_word_embeddings\": false, \"use_sliding_window\": false}",
               MODEL_FAMILY_QWEN2);
    assert_true(!c.no_qkv_bias && c.no_proj_bias && c.no_mlp_bias && c.window == 0 && c.kv_heads == 4);
    c = accept("{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 64, "
               "\"num_hidden_layers\": 4, "
               "\"num_attention_heads\": 4, \"vocab_size\": 90, \"max_window_layers\": 2, "
               "\"sliding_window\": 16, \"use_sliding_window\": true, \"layer_types\": [\"full_attention\", "
               "\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}",
               MODEL_FAMILY_QWEN2);
    assert_true(model_config_window(&c, 1) == 0 && model_config_window(&c, 2) == 16);
    c = accept(
        "{\"model_type\": \"qwen3\", \"attention_bias\": false, \"head_dim\": 128, \"hidden_size\": 1024, "
        "\"intermediate_size\": 3072, \"max_position_embeddings\": 40960, \"max_window_layers\": 28, "
        "\"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8, "
        "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
        "\"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}",
        MODEL_FAMILY_QWEN3);
    assert_true(c.qk_norm && c.no_qkv_bias && c.head_dim == 128 && !c.untied && c.leaves == 4);
    c = accept("{\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 1, \"head_dim\": 128, "
               "\"hidden_size\": 2048, \"intermediate_size\": 6144, \"max_position_embeddings\": 40960, "
               "\"mlp_only_layers\": [], \"moe_intermediate_size\": 768, \"norm_topk_prob\": true, "
               "\"num_attention_heads\": 32, \"num_experts\": 128, \"num_experts_per_tok\": 8, "
               "\"num_hidden_layers\": 48, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06, "
               "\"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.001, \"use_sliding_window\": false, "
               "\"sliding_window\": null, \"vocab_size\": 151936}",
               MODEL_FAMILY_QWEN3_MOE);
    assert_true(c.ffn == 768 && c.experts == 128 && c.top_k == 8 && c.capacity == 16.0 && c.balance == 0.0 &&
                !c.raw_weights);
    c = accept(QWEN3_MOE(", \"norm_topk_prob\": false"), MODEL_FAMILY_QWEN3_MOE);
    assert_true(c.raw_weights && c.top_k == 8);
    c = accept(QWEN3_MOE(", \"num_experts_per_tok\": 1"), MODEL_FAMILY_QWEN3_MOE);
    assert_true(c.raw_weights && c.top_k == 1);

    c = accept(
        "{\"model_type\": \"deepseek_v3\", \"attention_bias\": false, \"aux_loss_alpha\": 0.001, "
        "\"ep_size\": 1, \"first_k_dense_replace\": 3, \"hidden_act\": \"silu\", \"hidden_size\": 7168, "
        "\"intermediate_size\": 18432, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, "
        "\"moe_intermediate_size\": 2048, \"moe_layer_freq\": 1, \"n_group\": 8, "
        "\"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true, "
        "\"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, "
        "\"num_key_value_heads\": 128, \"num_nextn_predict_layers\": 1, \"q_lora_rank\": 1536, "
        "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"quantization_config\": "
        "{\"quant_method\": \"fp8\"}, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32, "
        "\"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
        "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 10000, "
        "\"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", \"seq_aux\": true, "
        "\"tie_word_embeddings\": false, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", "
        "\"v_head_dim\": 128, \"vocab_size\": 129280}",
        MODEL_FAMILY_DEEPSEEK_V3);
    assert_true(c.head_dim == 192 && c.rotary_dim == 64 && c.value_dim == 128 && c.q_latent == 1536);
    assert_true(c.dense_first == 3 && c.dense_ffn == 18432 && c.ffn == 2048 && c.shared_ffn == 2048);
    assert_true(c.groups == 8 && c.top_groups == 4 && c.router_sigmoid && !c.raw_weights &&
                c.routed_scale == 2.5 && c.rope_interleaved && c.capacity == 32.0);
    assert_true(c.rope.attention == 1.0 && c.rope.scores == 1.0 &&
                fabs(sqrt(192.0 / model_config_query_scale(&c)) - pow(0.1 * log(40.0) + 1.0, 2.0)) < 1e-12);
    c = accept("{\"model_type\": \"deepseek_v2\", \"first_k_dense_replace\": 1, \"hidden_size\": 2048, "
               "\"intermediate_size\": 10944, \"kv_lora_rank\": 512, \"max_position_embeddings\": 4096, "
               "\"moe_intermediate_size\": 1408, \"n_group\": 1, \"n_routed_experts\": 64, "
               "\"n_shared_experts\": 2, \"norm_topk_prob\": false, \"num_attention_heads\": 16, "
               "\"num_experts_per_tok\": 6, \"num_hidden_layers\": 27, \"num_key_value_heads\": 16, "
               "\"q_lora_rank\": null, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
               "\"routed_scaling_factor\": 1.0, \"scoring_func\": \"softmax\", \"topk_group\": 1, "
               "\"topk_method\": \"greedy\", \"v_head_dim\": 128, \"vocab_size\": 102400}",
               MODEL_FAMILY_DEEPSEEK_V2);
    assert_true(c.q_latent == 0 && c.raw_weights && !c.router_sigmoid && c.shared_ffn == 2816 &&
                c.groups == 1);

    c = accept("{\"model_type\": \"smollm3\", \"attention_bias\": false, \"hidden_act\": \"silu\", "
               "\"hidden_size\": 2048, \"intermediate_size\": 11008, \"layer_types\": [" FULL4 ", " FULL4
               "], "
               "\"max_position_embeddings\": 65536, \"max_window_layers\": 28, \"mlp_bias\": false, "
               "\"no_rope_layer_interval\": 4, \"no_rope_layers\": [1, 1, 1, 0, 1, 1, 1, 0], "
               "\"num_attention_heads\": 16, \"num_hidden_layers\": 8, \"num_key_value_heads\": 4, "
               "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 5000000.0, "
               "\"sliding_window\": null, \"use_sliding_window\": false, \"vocab_size\": 128256}",
               MODEL_FAMILY_SMOLLM3);
    assert_true(c.nope_every == 4 && !c.untied && c.rope.theta == 5e6 && c.kv_heads == 4);
    for (size_t l = 0; l < 8; l++)
        assert_int_equal(model_config_turns(&c, l), l % 4 != 3);
    c = accept(SMOLLM3(", \"no_rope_layers\": [1, 0, 1]"), MODEL_FAMILY_SMOLLM3);
    assert_true(c.nope_every == 2 && c.kv_heads == 4 && c.rope.theta == 2e6); /* the list wins */
    c = accept(SMOLLM3(", \"no_rope_layer_interval\": 3, \"num_key_value_heads\": null"),
               MODEL_FAMILY_SMOLLM3);
    assert_true(c.nope_every == 3 && c.kv_heads == 8);
    c = accept(SMOLLM3(""), MODEL_FAMILY_LLAMA); /* it has three layers, and nothing else */
    assert_true(c.nope_every == 0);

    c = accept(
        "{\"model_type\": \"phi3\", \"attention_bias\": false, \"hidden_size\": 5120, "
        "\"intermediate_size\": 17920, \"max_position_embeddings\": 16384, \"num_attention_heads\": 40, "
        "\"num_hidden_layers\": 40, \"num_key_value_heads\": 10, \"embd_pdrop\": 0.0, "
        "\"original_max_position_embeddings\": 16384, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
        "\"rope_theta\": 250000, \"sliding_window\": null, \"vocab_size\": 100352}",
        MODEL_FAMILY_PHI3);
    assert_true(c.fused_files && c.rope.theta == 250000.0 && c.kv_heads == 10 && c.rotary_dim == 128 &&
                c.leaves == 2);

    c = accept(
        "{\"model_type\": \"gemma\", \"attention_bias\": false, \"head_dim\": 256, \"hidden_act\": \"gelu\", "
        "\"hidden_activation\": null, \"hidden_size\": 2048, \"intermediate_size\": 16384, "
        "\"max_position_embeddings\": 8192, \"num_attention_heads\": 8, \"num_hidden_layers\": 18, "
        "\"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, "
        "\"rope_theta\": 10000.0, \"use_bidirectional_attention\": null, \"vocab_size\": 256000}",
        MODEL_FAMILY_GEMMA);
    assert_true(c.gain_plus_1 && c.embed_scaled && c.act == MODEL_ACT_GELU_TANH && c.gated && !c.untied &&
                c.head_dim == 256 && c.kv_heads == 1 && c.leaves == 1);

    /* as transformers saves it: hidden_activation counts */
    c = accept("{\"model_type\": \"gemma\", \"hidden_act\": \"gelu_pytorch_tanh\", "
               "\"hidden_activation\": \"gelu\", \"hidden_size\": 64, \"intermediate_size\": 64, "
               "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 90}",
               MODEL_FAMILY_GEMMA);
    assert_true(c.act == MODEL_ACT_GELU_ERF);

    c = accept("{\"model_type\": \"olmo2\", \"attention_bias\": false, \"hidden_act\": \"silu\", "
               "\"hidden_size\": 4096, \"intermediate_size\": 11008, \"max_position_embeddings\": 4096, "
               "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 32, "
               "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 500000, "
               "\"tie_word_embeddings\": false, \"vocab_size\": 100352}",
               MODEL_FAMILY_OLMO2);
    assert_true(c.out_norm && c.qk_norm && c.qk_whole && c.no_qkv_bias && c.untied && c.norm_eps == 1e-6);

    c = accept(
        "{\"model_type\": \"gemma2\", \"attention_bias\": false, \"attn_logit_softcapping\": 50.0, "
        "\"final_logit_softcapping\": 30.0, \"head_dim\": 128, \"hidden_act\": \"gelu_pytorch_tanh\", "
        "\"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 4608, "
        "\"intermediate_size\": 36864, \"max_position_embeddings\": 8192, \"num_attention_heads\": 32, "
        "\"num_hidden_layers\": 46, \"num_key_value_heads\": 16, \"query_pre_attn_scalar\": 144, "
        "\"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"sliding_window\": 4096, "
        "\"vocab_size\": 256000}",
        MODEL_FAMILY_GEMMA2);
    assert_true(c.both_norms && c.gain_plus_1 && c.embed_scaled && c.query_scale == 144.0 && !c.untied);
    assert_true(c.attn_cap == 50.0 && c.logit_cap == 30.0 && model_config_window(&c, 0) == 4096 &&
                model_config_window(&c, 1) == 0);
    c = accept("{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": null, \"hidden_size\": 64, "
               "\"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
               "\"num_key_value_heads\": 4, \"vocab_size\": 90, \"final_logit_softcapping\": null}",
               MODEL_FAMILY_GEMMA2);
    assert_true(c.attn_cap == 0.0 && c.logit_cap == 0.0 && model_config_query_scale(&c) == 256.0);

#define GEMMA3(more)                                                                                      \
    "{\"model_type\": \"gemma3_text\", \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", " \
    "\"hidden_size\": 1152, \"intermediate_size\": 6912, \"max_position_embeddings\": 32768, "            \
    "\"num_attention_heads\": 4, \"num_hidden_layers\": 7, \"num_key_value_heads\": 1, "                  \
    "\"query_pre_attn_scalar\": 256, \"rms_norm_eps\": 1e-06, \"sliding_window\": 512, "                  \
    "\"vocab_size\": 262144, " more "}"
#define LOCAL "\"sliding_attention\", "
    c = accept(GEMMA3("\"rope_theta\": 1000000, \"rope_local_base_freq\": 10000, \"rope_scaling\": null, "
                      "\"attn_logit_softcapping\": null, \"sliding_window_pattern\": 6"),
               MODEL_FAMILY_GEMMA3);
    assert_true(c.both_norms && c.gain_plus_1 && c.qk_norm && c.embed_scaled && !c.untied &&
                c.rope.theta == 1e6 && c.local_theta == 1e4 && c.logit_cap == 0.0);
    assert_true(model_config_window(&c, 4) == 512 && model_config_window(&c, 5) == 0 &&
                model_config_window(&c, 6) == 512);
    c.seq = 256; /* a window that is not shorter than a sequence has its rotary base all the same */
    assert_true(model_config_window(&c, 4) == 0 && model_config_is_local(&c, 4));
    c = accept(GEMMA3("\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", "
                      "\"factor\": 8.0, \"rope_theta\": 1e6}, \"sliding_attention\": {\"rope_type\": "
                      "\"default\", \"rope_theta\": 500}}, \"layer_types\": [" LOCAL
                      "\"full_attention\", " LOCAL "\"full_attention\", " LOCAL "\"full_attention\", "
                      "\"sliding_attention\"]"),
               MODEL_FAMILY_GEMMA3);
    assert_true(c.rope.type == MODEL_ROPE_LINEAR && c.rope.factor == 8.0 && c.rope.theta == 1e6 &&
                c.local_theta == 500.0 && c.window_every == 2);
    c = accept(GEMMA3("\"layer_types\": [" LOCAL LOCAL LOCAL LOCAL LOCAL LOCAL "\"sliding_attention\"]"),
               MODEL_FAMILY_GEMMA3);
    assert_true(c.window == 512 && c.window_every == 0);
    c = accept(GEMMA3("\"sliding_window_pattern\": 1"), MODEL_FAMILY_GEMMA3);
    assert_true(c.window == 0 && c.local_theta == 0.0);

    c = accept("{\"model_type\": \"glm\", \"hidden_size\": 12288, \"num_hidden_layers\": 70, "
               "\"num_attention_heads\": 96,"
               " \"intermediate_size\": 32768, \"vocab_size\": 150528, \"max_position_embeddings\": 2048,"
               " \"hidden_act\": \"geglu\", \"layer_norm_eps\": 1e-5}",
               MODEL_FAMILY_GLM);
    assert_true(c.post_norm && c.prefix && c.gated && c.act == MODEL_ACT_GELU_ERF && c.embed_shrink == 0.1);
    assert_true(fabs(c.deepnorm - sqrt(140.0)) < 1e-12);

#define GLM4(type, more)                                                                         \
    "{\"model_type\": \"" type                                                                   \
    "\", \"attention_dropout\": 0.0, \"head_dim\": 128, \"hidden_act\": \"silu\", "              \
    "\"hidden_size\": 4096, \"intermediate_size\": 13696, \"max_position_embeddings\": 131072, " \
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 40, \"num_key_value_heads\": 2, "       \
    "\"partial_rotary_factor\": 0.5, \"rms_norm_eps\": 1.5625e-07, \"rope_theta\": 10000.0, "    \
    "\"tie_word_embeddings\": false, \"vocab_size\": 151552, " more "}"
    c = accept(GLM4("glm", "\"attention_bias\": true"), MODEL_FAMILY_GLM_HF);
    assert_true(!c.no_qkv_bias && c.no_proj_bias && c.no_mlp_bias && c.rope_interleaved &&
                c.rotary_dim == 64 && c.norm_eps == 1.5625e-7 && !c.both_norms && c.untied && !c.prefix);
    c = accept(GLM4("glm", "\"attention_bias\": false"), MODEL_FAMILY_GLM_HF);
    assert_true(c.no_qkv_bias && c.no_proj_bias && c.fused_gates);
    c = accept(GLM4("glm4", "\"attention_bias\": false"), MODEL_FAMILY_GLM4);
    assert_true(c.no_qkv_bias && c.both_norms && c.rope_interleaved && c.rotary_dim == 64);

#define GPT_OSS(more)                                                                      \
    "{\"model_type\": \"gpt_oss\", \"hidden_act\": \"silu\", \"hidden_size\": 2880, "      \
    "\"intermediate_size\": 2880, \"num_attention_heads\": 64, \"num_hidden_layers\": 4, " \
    "\"vocab_size\": 201088, \"num_key_value_heads\": 8, \"num_local_experts\": 32" more "}"
    c = accept(GPT_OSS(", \"layer_types\": [" LOCAL "\"full_attention\", " LOCAL "\"full_attention\"], "
                       "\"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"rope_theta\": 150000, "
                       "\"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, "
                       "\"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", "
                       "\"truncate\": false}, \"router_aux_loss_coef\": 0.9"),
               MODEL_FAMILY_GPT_OSS);
    assert_true(c.sinks && c.router_bias && c.expert_bias && c.act_limit == 7.0 && c.gated && c.untied &&
                c.act == MODEL_ACT_GELU_FAST && !c.no_qkv_bias && !c.no_proj_bias && c.no_mlp_bias &&
                c.rope.type == MODEL_ROPE_YARN && c.rope.untruncated && c.rope.theta == 150000.0 &&
                c.capacity == 8.0 && model_config_window(&c, 2) == 128 && model_config_window(&c, 3) == 0);
    c = accept(GPT_OSS(""), MODEL_FAMILY_GPT_OSS); /* transformers scales where no key says it */
    assert_true(c.rope.type == MODEL_ROPE_YARN && c.rope.factor == 32.0 && c.rope.original == 4096);
    c = accept(GPT_OSS(", \"rope_scaling\": {\"rope_type\": \"default\"}"), MODEL_FAMILY_GPT_OSS);
    assert_true(c.rope.type == MODEL_ROPE_PLAIN && c.rope.theta == 150000.0);

    c = accept("{\"model_type\": \"codegeex\", \"n_embd\": 5120, \"n_layer\": 40, \"n_head\": 40, "
               "\"n_inner\": 20480,"
               " \"vocab_size\": 52224, \"n_positions\": 2048, \"gyre\": {\"leaves\": 8}}",
               MODEL_FAMILY_CODEGEEX);
    assert_true(c.top_query && c.act == MODEL_ACT_GELU_FAST && c.leaves == 8);

    c = accept(
        "{\"model_type\": \"megatron_gpt\", \"hidden_size\": 64, \"num_layers\": 2, \"num_attention_heads\": "
        "8,"
        " \"num_query_groups\": 4, \"vocab_size\": 100, \"max_position_embeddings\": 32, \"swiglu\": true,"
        " \"normalization\": \"RMSNorm\", \"position_embedding_type\": \"rope\", \"rotary_percent\": 0.5,"
        " \"rotary_interleaved\": true, \"add_bias_linear\": false, \"num_experts\": 4, \"moe_router_topk\": "
        "1}",
        MODEL_FAMILY_MEGATRON_GPT);
    assert_true(c.kv_heads == 4 && c.rotary_dim == 4 && c.experts == 4 && c.top_k == 1 &&
                c.act == MODEL_ACT_SILU);

    c = accept(
        "{\"model_type\": \"gyre\", \"vocab\": 40, \"seq\": 8, \"layers\": 2, \"hidden\": 12, \"heads\": 3,"
        " \"pos\": \"alibi\", \"norm\": \"RMSNorm\", \"post_norm\": true, \"act\": \"relu\", \"leaves\": 1}",
        MODEL_FAMILY_GYRE);
    assert_true(c.pos == MODEL_POS_ALIBI && c.post_norm && c.norm == MODEL_NORM_RMS);
}

#define SCALED(more)                                                                                         \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 4," \
    " \"intermediate_size\": 64, \"vocab_size\": 9, \"max_position_embeddings\": 64, " more "}"

/* Frequencies of rotary positions, as `transformers` 4, 5 and published files say it. */
static void scaled_rope(void **state)
{
    (void)state;
    model_config_t c = accept(SCALED("\"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 8.0, "
                                     "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                                     "\"original_max_position_embeddings\": 16, \"rope_type\": \"llama3\"}"),
                              MODEL_FAMILY_LLAMA);
    assert_true(c.rope.type == MODEL_ROPE_LLAMA3 && c.rope.theta == 5e5 && c.rope.factor == 8.0 &&
                c.rope.low == 1.0 && c.rope.high == 4.0 && c.rope.original == 16 && c.rope.attention == 0.0);
    c = accept(SCALED("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}"), MODEL_FAMILY_LLAMA);
    assert_true(c.rope.type == MODEL_ROPE_LINEAR && c.rope.factor == 4.0 && c.rope.original == 0);
    c = accept(SCALED("\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}"), MODEL_FAMILY_LLAMA);
    assert_true(c.rope.type == MODEL_ROPE_DYNAMIC && c.rope.factor == 2.0);
    c = accept(SCALED("\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1e6, \"factor\": 4.0, "
                      "\"original_max_position_embeddings\": 32}"),
               MODEL_FAMILY_LLAMA);
    assert_true(c.rope.type == MODEL_ROPE_YARN && c.rope.theta == 1e6 && c.rope.low == 1.0 &&
                c.rope.high == 32.0 && c.rope.original == 32);
    assert_true(fabs(c.rope.attention - (1.0 + 0.1 * log(4.0))) < 1e-15);
    c = accept(
        SCALED("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"beta_fast\": 16, \"mscale\": 0.5,"
               " \"mscale_all_dim\": 1.0}"),
        MODEL_FAMILY_LLAMA);
    assert_true(c.rope.high == 16.0 && c.rope.original == 64);
    assert_true(fabs(c.rope.attention - (1.0 + 0.05 * log(40.0)) / (1.0 + 0.1 * log(40.0))) < 1e-15);
    c = accept(SCALED("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"attention_factor\": 1.0}"),
               MODEL_FAMILY_LLAMA);
    assert_true(c.rope.attention == 1.0);
    /* A combination that no family has: the fields alone say it. */
#define OWN(rope)                                                                                         \
    accept("{\"model_type\": \"gyre\", \"vocab\": 9, \"seq\": 64, \"layers\": 1, \"hidden\": 64, "        \
           "\"heads\": 4, \"sinks\": true, \"pos\": \"rope\", \"rope_factor\": 4.0, \"rope_type\": " rope \
           "}",                                                                                           \
           MODEL_FAMILY_GYRE)
    c = OWN("\"llama3\", \"rope_low\": 1.0, \"rope_high\": 4.0, \"rope_original\": 16");
    assert_true(c.rope.type == MODEL_ROPE_LLAMA3 && c.rope.original == 16);
    c = OWN("\"yarn\", \"rope_low\": 1.0, \"rope_high\": 32.0, \"rope_original\": 16");
    assert_true(c.rope.type == MODEL_ROPE_YARN && c.rope.high == 32.0);
    assert_int_equal(OWN("\"linear\"").rope.type, MODEL_ROPE_LINEAR);
    assert_int_equal(OWN("\"dynamic\"").rope.type, MODEL_ROPE_DYNAMIC);
}

/* Which layers have a window. */
static void windows(void **state)
{
    (void)state;
    model_config_t c = {.seq = 8, .window = 4};
    assert_true(model_config_window(&c, 0) == 4 && model_config_window(&c, 5) == 4);
    c.window_every = 3;
    c.window_from = 1;
    const size_t want[] = {0, 4, 0, 4, 4, 0};
    for (size_t l = 0; l < 6; l++)
        assert_int_equal(model_config_window(&c, l), want[l]);
    c.window = 8; /* as long as a sequence */
    assert_int_equal(model_config_window(&c, 1), 0);
    c = accept(
        "{\"model_type\": \"gyre\", \"vocab\": 40, \"seq\": 8, \"layers\": 4, \"hidden\": 12, \"heads\": 3,"
        " \"window\": 3, \"window_from\": 1, \"window_every\": 2}",
        MODEL_FAMILY_GYRE);
    assert_true(c.window == 3 && c.window_from == 1 && c.window_every == 2);
}

/* A share of the head, wherever it stands. */
static void rotary_share(void **state)
{
    (void)state;
    model_config_t c = accept("{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 1,"
                              " \"num_attention_heads\": 4, \"intermediate_size\": 64, \"vocab_size\": 9,"
                              " \"partial_rotary_factor\": 0.5}",
                              MODEL_FAMILY_MEGATRON_GPT);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.rotary_dim, 8);
}

/* Extents from a file: refused at once, whatever they are. */
static void bounded(void **state)
{
    (void)state;
    const model_config_t good = {.vocab = 64, .seq = 8, .layers = 1, .hidden = 8, .heads = 2};
    const struct {
        const char *name;
        size_t at;
    } field[] = {{"ffn", offsetof(model_config_t, ffn)},
                 {"kv_heads", offsetof(model_config_t, kv_heads)},
                 {"head_dim", offsetof(model_config_t, head_dim)},
                 {"leaves", offsetof(model_config_t, leaves)},
                 {"vocab_padded", offsetof(model_config_t, vocab_padded)},
                 {"experts", offsetof(model_config_t, experts)},
                 {"top_k", offsetof(model_config_t, top_k)},
                 {"rotary_dim", offsetof(model_config_t, rotary_dim)},
                 {"pos_offset", offsetof(model_config_t, pos_offset)}};
    const size_t far[] = {2305843009213693951u, SIZE_MAX, 2097153, (size_t)1 << 63};
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(model_config_check(&good), GYRE_OK);
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++)
        for (size_t k = 0; k < sizeof far / sizeof far[0]; k++) {
            model_config_t c = good;
            c.leaves = 2;
            memcpy((char *)&c + field[i].at, &far[k], sizeof far[k]);
            assert_int_equal(model_config_check(&c), GYRE_ERR_INVALID);
            assert_non_null(strstr(gyre_last_error(), field[i].name));
            assert_non_null(strstr(gyre_last_error(), "it must lie in"));
        }
    model_config_t c = good;
    c.heads = c.kv_heads = 65536;
    c.head_dim = 32768;
    assert_int_equal(model_config_check(&c), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "heads * head_dim is 2147483648"));
}

/* "... take heads 2 or 4, or hidden 129": each value that a refusal names is accepted, in the place of the
 * one that was asked for. Returns how many there were. */
static size_t try_advice(const model_config_t *config, const char *message)
{
    static const struct {
        const char *name;
        size_t at;
    } field[] = {{"heads", offsetof(model_config_t, heads)},
                 {"kv_heads", offsetof(model_config_t, kv_heads)},
                 {"hidden", offsetof(model_config_t, hidden)},
                 {"leaves", offsetof(model_config_t, leaves)}};
    const char *take = strstr(message, ": take ");
    char text[512], *save = NULL;
    size_t tried = 0, at = 0;
    if (!take)
        return 0;
    snprintf(text, sizeof text, "%s", take + strlen(": take "));
    for (char *word = strtok_r(text, " ,", &save); word; word = strtok_r(NULL, " ,", &save)) {
        for (size_t i = 0; i < sizeof field / sizeof field[0]; i++)
            if (strcmp(word, field[i].name) == 0)
                at = field[i].at;
        if (strspn(word, "0123456789") != strlen(word))
            continue;
        model_config_t c = *config;
        size_t value = strtoull(word, NULL, 10);
        assert_true(at != 0);
        memcpy((char *)&c + at, &value, sizeof value);
        if (at == offsetof(model_config_t, heads) && config->kv_heads == config->heads)
            c.kv_heads = c.heads;
        if (model_config_check(&c) != GYRE_OK)
            fail_msg("advice '%s' of '%s' is refused: %s", word, message, gyre_last_error());
        tried++;
    }
    return tried;
}

static void advice_is_accepted(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252u;
    size_t refused = 0, tried = 0;
    base_log_set_level(BASE_LOG_NONE);
    for (int i = 0; i < 2000; i++) {
        size_t draw[8];
        for (size_t d = 0; d < 8; d++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            draw[d] = (size_t)(random >> 20);
        }
        model_config_t c = {.vocab = 50 + draw[0] % 50,
                            .seq = 16,
                            .layers = 2,
                            .hidden = 1 + draw[1] % 96,
                            .heads = 1 + draw[2] % 24,
                            .kv_heads = draw[3] % 4 ? 0 : 1 + draw[3] / 4 % 24,
                            .head_dim = draw[4] % 3 ? 0 : 4,
                            .ffn = draw[5] % 2 ? 0 : 8 * (1 + draw[5] / 2 % 12),
                            .experts = draw[6] % 4 ? 0 : 4,
                            .leaves = draw[7] % 18};
        char message[512];
        if (model_config_check(&c) == GYRE_OK)
            continue;
        snprintf(message, sizeof message, "%s", gyre_last_error());
        refused++;
        tried += try_advice(&c, message);
    }
    assert_true(refused > 1000 && tried > refused / 2);
}

static void refuse(const char *text, gyre_status_t want, const char *say)
{
    model_config_t c = {.vocab = 77};
    gyre_status_t status = parse(text, &c);
    print_message("%s\n", gyre_last_error());
    assert_int_equal(status, want);
    assert_non_null(strstr(gyre_last_error(), say));
    assert_int_equal(c.vocab, 77); /* untouched */
}

#define GPT2(more) \
    "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 9" more "}"
#define LLAMA(more)                                                                                         \
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2," \
    " \"intermediate_size\": 8, \"vocab_size\": 9" more "}"

#define MISTRAL(more)                                                                                       \
    "{\"model_type\": \"mistral\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": " \
    "2,"                                                                                                    \
    " \"intermediate_size\": 8, \"vocab_size\": 9" more "}"

#define DEEPSEEK(type, more)                                                                 \
    "{\"model_type\": \"deepseek_" type "\", \"hidden_size\": 8, \"num_hidden_layers\": 4, " \
    "\"num_attention_heads\": 2, \"vocab_size\": 9" more "}"

/* What transformers takes where GPT-2's keys are absent is no id of a smaller vocabulary. */
static void ends_of_texts(void **state)
{
    (void)state;
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (size_t vocab = 50256; vocab <= 50257; vocab++) {
        model_config_t c = {.vocab = vocab, .seq = 8, .layers = 1, .hidden = 8, .heads = 2};
        json_t *object;
        c = model_config_complete(&c);
        assert_int_equal(model_config_to_json(&c, &object), GYRE_OK);
        assert_string_equal(json_string_value(json_object_get(object, "model_type")), "gpt2");
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(json_is_null(json_object_get(object, keys[i])), vocab < 50257);
        json_decref(object);
    }
}

/* What is empty or null is as if it were absent. */
static void empty(void **state)
{
    (void)state;
    model_config_t c =
        accept(LLAMA(", \"rope_scaling\": {}, \"rope_parameters\": {\"rope_type\": \"linear\", "
                     "\"factor\": 2.0, \"rope_theta\": 5000.0}"),
               MODEL_FAMILY_LLAMA);
    assert_true(c.rope.theta == 5000.0 && c.rope.type == MODEL_ROPE_LINEAR && c.rope.factor == 2.0);
    c = accept(LLAMA(", \"rope_scaling\": {}, \"rope_theta\": 700"), MODEL_FAMILY_LLAMA);
    assert_true(c.rope.theta == 700.0 && c.rope.type == MODEL_ROPE_PLAIN);
    c = accept("{\"model_type\": \"opt\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"vocab_size\": 9, \"word_embed_proj_dim\": null}",
               MODEL_FAMILY_OPT);
    assert_int_equal(c.hidden, 8);
    c = accept(QWEN3_MOE(", \"mlp_only_layers\": null"), MODEL_FAMILY_QWEN3_MOE);
    assert_int_equal(c.dense_first, 0);
}

/* null is false, as to transformers, also where an absent key means true. */
static void flags_of_null(void **state)
{
    (void)state;
    model_config_t c = accept(LLAMA(", \"attention_bias\": null"), MODEL_FAMILY_LLAMA);
    assert_true(c.no_qkv_bias && c.no_proj_bias);
    c = accept("{\"model_type\": \"gpt_neox\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"vocab_size\": 9, \"rotary_pct\": 1, \"attention_bias\": null}",
               MODEL_FAMILY_GPT_NEOX);
    assert_true(c.no_qkv_bias && c.no_proj_bias);
    c = accept("{\"model_type\": \"qwen2\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"vocab_size\": 9, \"sliding_window\": 4, "
               "\"use_sliding_window\": null}",
               MODEL_FAMILY_QWEN2);
    assert_int_equal(c.window, 0);
    c = accept("{\"model_type\": \"gpt_neox\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"vocab_size\": 9, \"rotary_pct\": 1, "
               "\"use_parallel_residual\": null}",
               MODEL_FAMILY_GPT_NEOX);
    assert_false(c.parallel);
    /* no key of Mistral's */
    c = accept(MISTRAL(", \"sliding_window\": 4, \"use_sliding_window\": null"), MODEL_FAMILY_MISTRAL);
    assert_int_equal(c.window, 4);
}

static void refused(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    refuse("{\"vocab_size\": 5}", GYRE_ERR_FORMAT, "model_type is missing");
    refuse("{\"model_type\": \"t5\"}", GYRE_ERR_UNSUPPORTED, "\"t5\": supported are gpt2, opt, bloom");
    const char *glm = strstr(gyre_last_error(), " glm,");
    assert_non_null(glm);
    assert_null(strstr(glm + 1, " glm,")); /* of two families */
    refuse(GPT2(", \"activation_function\": \"mish\""), GYRE_ERR_UNSUPPORTED,
           "activation_function is \"mish\": supported are gelu_new,");
    refuse(GPT2(", \"scale_attn_by_inverse_layer_idx\": true"), GYRE_ERR_UNSUPPORTED,
           "scale_attn_by_inverse_layer_idx is true: Gyre has false only");
    refuse(GPT2(", \"n_positions\": \"many\""), GYRE_ERR_FORMAT, "n_positions is \"many\"");
    refuse(GPT2(", \"n_inner\": -4"), GYRE_ERR_FORMAT, "n_inner is -4");
    refuse(GPT2(", \"hidden_size\": 12"), GYRE_ERR_FORMAT, "n_embd says otherwise");
    refuse(GPT2(", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.2"), GYRE_ERR_UNSUPPORTED, "one dropout");
    refuse(GPT2(", \"gyre\": {\"leafs\": 2}"), GYRE_ERR_FORMAT, "leafs is no field");
    refuse(GPT2(", \"num_key_value_heads\": 1"), GYRE_ERR_UNSUPPORTED, "models of type gpt2 are not so");
    refuse(LLAMA(", \"rope_scaling\": {\"rope_type\": \"llama3\"}"), GYRE_ERR_INVALID,
           "factor 0 of scaled rotary positions");
    refuse(LLAMA(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}"), GYRE_ERR_INVALID,
           "rotations 0 and 0");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}"), GYRE_ERR_FORMAT,
           "factor is \"2\"");
    refuse(LLAMA(", \"rope_scaling\": {\"factor\": 2}"), GYRE_ERR_FORMAT, "rope_type is missing");
    refuse(LLAMA(", \"rope_scaling\": \"linear\""), GYRE_ERR_FORMAT, "rope_scaling is \"linear\"");
    refuse(LLAMA(", \"rope_scaling\": {\"rope_type\": \"longrope\"}"), GYRE_ERR_UNSUPPORTED,
           "rope_type is \"longrope\": supported are default, linear, dynamic, llama3, yarn");
    refuse(LLAMA(", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}"),
           GYRE_ERR_UNSUPPORTED, "the same for all layers only");
    refuse(GEMMA3("\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}, \"sliding_attention\": "
                  "{\"rope_type\": \"linear\", \"factor\": 2}}"),
           GYRE_ERR_UNSUPPORTED, "rope_type is \"linear\": Gyre has \"default\" only");
    refuse(GEMMA3("\"use_bidirectional_attention\": true"), GYRE_ERR_UNSUPPORTED,
           "use_bidirectional_attention is true: Gyre has false only");
    refuse(GEMMA3("\"attn_logit_softcapping\": 50.0"), GYRE_ERR_UNSUPPORTED,
           "attn_logit_softcapping is 50: models of type gemma3_text are not so");
    refuse(GPT_OSS(", \"swiglu_alpha\": 1.5"), GYRE_ERR_UNSUPPORTED,
           "swiglu_alpha is 1.5: Gyre has 1.702 only");
    refuse(GPT_OSS(", \"num_experts_per_tok\": 1"), GYRE_ERR_UNSUPPORTED,
           "num_experts_per_tok is 1: models of type gpt_oss have 2 or more here");
    refuse("{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\"}, "
           "\"vision_config\": {}}",
           GYRE_ERR_UNSUPPORTED, "model_type is \"gemma3\", with text_config: Gyre has text models only");
    refuse(LLAMA(", \"num_key_value_heads\": 3"), GYRE_ERR_INVALID, "kv_heads 3");
    refuse(LLAMA(", \"sliding_window\": 32"), GYRE_ERR_UNSUPPORTED, "models of type llama have no windows");
    refuse(MISTRAL(", \"sliding_window\": -8"), GYRE_ERR_FORMAT, "sliding_window is -8");
    refuse(MISTRAL(", \"layer_types\": [\"full_attention\"]"), GYRE_ERR_UNSUPPORTED,
           "layer 0 must be \"sliding_attention\"");
    refuse(MISTRAL(", \"layer_types\": []"), GYRE_ERR_FORMAT, "as many as there are layers");
    refuse(
        "{\"model_type\": \"gyre\", \"vocab\": 40, \"seq\": 8, \"layers\": 2, \"hidden\": 12, \"heads\": 3,"
        " \"prefix\": true, \"window\": 4}",
        GYRE_ERR_INVALID, "prefix and window together");
    refuse(
        "{\"model_type\": \"opt\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2,"
        " \"vocab_size\": 9, \"word_embed_proj_dim\": 4}",
        GYRE_ERR_UNSUPPORTED, "word_embed_proj_dim is 4");
    refuse(
        "{\"model_type\": \"opt\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2,"
        " \"vocab_size\": 9, \"layerdrop\": 0.1}",
        GYRE_ERR_UNSUPPORTED, "layerdrop is 0.1:");
    refuse(LLAMA(", \"partial_rotary_factor\": 0.1"), GYRE_ERR_FORMAT, "leaves none of its 4 channels");
    refuse(LLAMA(", \"gyre\": {\"ffn\": 2305843009213693951, \"leaves\": 2}"), GYRE_ERR_INVALID,
           "ffn is 2305843009213693951");
    refuse(QWEN3_MOE(", \"norm_topk_prob\": true, \"num_experts_per_tok\": 1"), GYRE_ERR_UNSUPPORTED,
           "num_experts_per_tok 1: with norm_topk_prob Gyre has above 1 only");
    refuse(SMOLLM3(", \"no_rope_layers\": [1, 1]"), GYRE_ERR_FORMAT, "as many as there are layers");
    refuse(SMOLLM3(", \"no_rope_layers\": [1, 0, 0]"), GYRE_ERR_UNSUPPORTED,
           "no_rope_layers is [1,0,0]: Gyre has lists of 1");
    refuse(SMOLLM3(", \"no_rope_layers\": [1, 0, \"1\"]"), GYRE_ERR_UNSUPPORTED, "in which each n-th is 0");
    refuse(SMOLLM3(", \"use_sliding_window\": true"), GYRE_ERR_UNSUPPORTED,
           "use_sliding_window is true: Gyre has false only");
    refuse(LLAMA(", \"no_rope_layer_interval\": 1"), GYRE_ERR_UNSUPPORTED, "models of type llama are not so");
    refuse(GPT2(", \"gyre\": {\"nope_every\": 1}"), GYRE_ERR_INVALID, "nope_every 1: it is of rotary");
    refuse(DEEPSEEK("v3", ", \"topk_method\": \"greedy\""), GYRE_ERR_UNSUPPORTED,
           "topk_method is \"greedy\": Gyre has \"noaux_tc\" only");
    refuse(DEEPSEEK("v2", ", \"topk_method\": \"noaux_tc\""), GYRE_ERR_UNSUPPORTED,
           "supported are greedy, group_limited_greedy");
    refuse(DEEPSEEK("v3", ", \"num_experts_per_tok\": 1"), GYRE_ERR_UNSUPPORTED, "num_experts_per_tok 1");
    refuse(DEEPSEEK("v3", ", \"topk_group\": 9"), GYRE_ERR_INVALID, "9 of 8 groups");
    refuse(DEEPSEEK("v3", ", \"first_k_dense_replace\": 4"), GYRE_ERR_INVALID, "dense_first 4");
    refuse(DEEPSEEK("v3", ", \"n_shared_experts\": \"one\""), GYRE_ERR_FORMAT, "n_shared_experts is \"one\"");
    refuse(DEEPSEEK("v3", ", \"num_key_value_heads\": 1"), GYRE_ERR_INVALID, "kv_heads 1 with kv_latent");
    refuse(GPT2(", \"gyre\": {\"q_latent\": 3}"), GYRE_ERR_INVALID, "it needs kv_latent");
    refuse(GPT2(", \"gyre\": {\"kv_latent\": 3}"), GYRE_ERR_INVALID, "it needs rotary positions");
    refuse(GPT2(", \"gyre\": {\"router_z\": 0.1}"), GYRE_ERR_INVALID,
           "router_z 0.1: it is of logits of experts");
    refuse(DEEPSEEK("v3", ", \"gyre\": {\"router_z\": 0.1}"), GYRE_ERR_INVALID, "router_z 0.1");
    refuse(GPT2(", \"gyre\": {\"z_loss\": -0.1}"), GYRE_ERR_FORMAT, "z_loss is -0.1");
    refuse(GPT2(", \"gyre\": {\"shared_ffn\": 8}"), GYRE_ERR_INVALID, "need experts");
    refuse("{\"model_type\": \"gpt2\"}", GYRE_ERR_INVALID, "config.json: vocab is 0");
    refuse("[]", GYRE_ERR_FORMAT, "JSON object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),     cmocka_unit_test(scaled_rope), cmocka_unit_test(windows),
        cmocka_unit_test(rotary_share),  cmocka_unit_test(bounded),     cmocka_unit_test(refused),
        cmocka_unit_test(flags_of_null), cmocka_unit_test(empty),       cmocka_unit_test(advice_is_accepted),
        cmocka_unit_test(ends_of_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
