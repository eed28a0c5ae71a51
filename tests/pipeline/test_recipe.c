/* SPDX-License-Identifier: Apache-2.0 */
/* tests/pipeline/test_recipe.c: every recipe of examples/recipes: what it says, and what its tiny form
 * keeps. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "model/network/count.h"
#include "pipeline/plan/recipe.h"

#define FOLDER "examples/recipes/"

static void load(const char *name, pipe_recipe_t *out)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    if (pipe_recipe_load(path, out) != GYRE_OK)
        fail_msg("%s", gyre_last_error());
    assert_string_equal(out->name, name);
}

/* What section 1 of the field's survey says of each: degrees, batch, parameters. */
static const struct {
    const char *name;
    size_t dp, tp, pp, batch;
    int zero;
    model_precision_t type, grad;
    size_t parameters;
    size_t tiny_dp, tiny_tp, tiny_pp;
} known[] = {
    {"codegeex-13b", 192, 8, 1, 3072, 2, MODEL_FLOAT16, MODEL_FLOAT16, 12873943040, 2, 4, 1},
    {"gpt-neox-20b", 12, 2, 4, 1536, 1, MODEL_FLOAT16, MODEL_FLOAT16, 20554567680, 2, 2, 2},
    {"glm-130b", 24, 4, 8, 4224, 1, MODEL_FLOAT16, MODEL_FLOAT16, 128697769984, 2, 2, 2},
    {"opt-175b", 124, 8, 1, 992, 3, MODEL_FLOAT16, MODEL_FLOAT16, 174604468224, 4, 2, 1},
    {"bloom-176b", 8, 4, 12, 2048, 1, MODEL_BFLOAT16, MODEL_FLOAT32, 176247271424, 2, 2, 2},
    {"mt-nlg-530b", 16, 8, 35, 1920, 0, MODEL_BFLOAT16, MODEL_FLOAT32, 529600819200, 2, 2, 2},
    {"gpt-3-175b", 16, 8, 12, 1536, 0, MODEL_FLOAT16, MODEL_FLOAT32, 174615846912, 2, 2, 2},
    {"llama-7b", 128, 1, 1, 2048, 3, MODEL_BFLOAT16, MODEL_FLOAT32, 6738415616, 8, 1, 1},
    {"llama-13b", 128, 2, 1, 2048, 2, MODEL_BFLOAT16, MODEL_FLOAT32, 13015864320, 4, 2, 1},
    {"llama-30b", 64, 4, 2, 2048, 1, MODEL_BFLOAT16, MODEL_FLOAT32, 32528943616, 2, 2, 2},
    {"llama-65b", 128, 8, 2, 2048, 1, MODEL_BFLOAT16, MODEL_FLOAT32, 65285660672, 2, 2, 2},
    {"mixtral-8x7b", 8, 8, 4, 512, 1, MODEL_BFLOAT16, MODEL_FLOAT32, 46702792704, 2, 2, 2},
    {"mixtral-8x22b", 16, 2, 8, 512, 1, MODEL_BFLOAT16, MODEL_FLOAT32, 140620634112, 2, 2, 2},
};
#define KNOWN (sizeof known / sizeof known[0])

static void facts(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        pipe_recipe_t r;
        model_count_t count;
        load(known[i].name, &r);
        assert_int_equal(r.layout.dp, known[i].dp);
        assert_int_equal(r.layout.tp, known[i].tp);
        assert_int_equal(r.layout.pp, known[i].pp);
        assert_int_equal(r.layout.zero, known[i].zero);
        assert_int_equal(r.batch.batch, known[i].batch);
        assert_int_equal(r.precision.type, known[i].type);
        assert_int_equal(r.precision.grad, known[i].grad);
        assert_int_equal(r.precision.scale > 0.0, r.precision.type == MODEL_FLOAT16);
        assert_int_equal(model_count(&r.model, &count), GYRE_OK);
        assert_int_equal(model_count_total(&count), known[i].parameters);
        size_t ranks = r.layout.dp * r.layout.tp * r.layout.pp;
        assert_int_equal(r.nodes * r.per_node, ranks);
        for (size_t d = 0; d < r.layout.dp; d++) { /* DP 24, 12, 124 and 192 have equal shares, too */
            size_t first, share;
            optim_batch_share(&r.batch, r.layout.dp, d, &first, &share);
            assert_int_equal(share * r.layout.dp, r.batch.batch);
        }
    }
}

/* No file is left out of the table above. */
static void complete(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    size_t files = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".json"))
            files++;
    closedir(folder);
    assert_int_equal(files, KNOWN);
}

static void same_features(const model_config_t *a, const model_config_t *b)
{
    assert_int_equal(a->pos, b->pos);
    assert_int_equal(a->pos_offset, b->pos_offset);
    assert_int_equal(a->rope_interleaved, b->rope_interleaved);
    assert_int_equal(a->norm, b->norm);
    assert_int_equal(a->post_norm, b->post_norm);
    assert_int_equal(a->embed_norm, b->embed_norm);
    assert_int_equal(a->out_norm, b->out_norm);
    assert_int_equal(a->both_norms, b->both_norms);
    assert_int_equal(a->gain_plus_1, b->gain_plus_1);
    assert_int_equal(a->local_theta > 0.0, b->local_theta > 0.0);
    assert_int_equal(a->embed_scaled, b->embed_scaled);
    assert_true(a->embed_shrink == b->embed_shrink);
    assert_int_equal(a->act, b->act);
    assert_int_equal(a->gated, b->gated);
    assert_int_equal(a->parallel, b->parallel);
    assert_int_equal(a->untied, b->untied);
    assert_int_equal(a->no_qkv_bias, b->no_qkv_bias);
    assert_int_equal(a->no_proj_bias, b->no_proj_bias);
    assert_int_equal(a->no_mlp_bias, b->no_mlp_bias);
    assert_int_equal(a->prefix, b->prefix);
    assert_int_equal(a->top_query, b->top_query);
    assert_int_equal(a->experts > 0, b->experts > 0);
    assert_int_equal(a->top_k, b->top_k);
    assert_true(a->dropout == b->dropout);
    assert_true(a->attn_dropout == b->attn_dropout);
    if (b->heads * a->kv_heads % a->heads == 0) /* 8 heads can have the same ratio */
        assert_int_equal(a->heads * b->kv_heads, b->heads * a->kv_heads);
    assert_int_equal(a->head_dim * b->rotary_dim, b->head_dim * a->rotary_dim);
    assert_true(fabs((double)a->ffn / (double)a->hidden / ((double)b->ffn / (double)b->hidden) - 1) < 0.05);
    assert_int_equal(a->deepnorm > 1.0, b->deepnorm > 1.0);
}

static void tiny(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        pipe_recipe_t full, t;
        load(known[i].name, &full);
        t = pipe_recipe_tiny(&full);
        if (pipe_recipe_check(&t) != GYRE_OK)
            fail_msg("%s: %s", known[i].name, gyre_last_error());
        same_features(&full.model, &t.model);
        assert_int_equal(t.layout.dp, known[i].tiny_dp);
        assert_int_equal(t.layout.tp, known[i].tiny_tp);
        assert_int_equal(t.layout.pp, known[i].tiny_pp);
        assert_int_equal(t.layout.dp * t.layout.tp * t.layout.pp, 8);
        assert_int_equal(t.layout.zero, full.layout.zero);
        assert_int_equal(t.layout.schedule, full.layout.schedule);
        assert_int_equal(t.layout.sequence, full.layout.sequence);
        assert_int_equal(t.layout.balance, full.layout.balance);
        assert_int_equal(t.recompute, full.recompute);
        assert_memory_equal(&t.precision, &full.precision, sizeof t.precision);
        assert_int_equal(t.optimizer.curve, full.optimizer.curve);
        assert_int_equal(t.optimizer.ramp_start > 0, full.optimizer.ramp_start > 0);
        assert_true(t.model.layers >= 2 && t.model.layers <= 4);
        assert_int_equal(t.model.hidden, 64);
        int infill = full.objective.said; /* only GLM's says it */
        assert_int_equal(infill, full.model.prefix);
        assert_int_equal(infill, full.objective.kind == MODEL_OBJECTIVE_INFILL);
        assert_int_equal(t.model.vocab, infill ? 260 : 256);
        assert_int_equal(t.model.seq, 64);
        assert_int_equal(t.batch.batch, 8);
        if (full.model.deepnorm > 1.0)
            assert_true(fabs(t.model.deepnorm - sqrt(2.0 * (double)t.model.layers)) < 1e-6);
        pipe_recipe_t again = pipe_recipe_tiny(&t); /* what is tiny stays */
        assert_memory_equal(&again.layout, &t.layout, sizeof t.layout);
        assert_int_equal(again.model.ffn, t.model.ffn);
    }
    pipe_recipe_t bloom, glm;
    load("bloom-176b", &bloom); /* 72 slots of 6: the ends hold a layer less */
    load("glm-130b", &glm);
    assert_int_equal(glm.objective.infill.mask, 150000);
    assert_int_equal(glm.objective.infill.eop, 150005);
    glm = pipe_recipe_tiny(&glm);
    assert_int_equal(glm.objective.infill.mask, 256);
    assert_int_equal(glm.objective.infill.eop, 259);
    for (size_t s = 0; s < 12; s++) {
        size_t first, count;
        pipe_layout_layers(&bloom.layout, 70, s, &first, &count);
        assert_int_equal(count, s == 0 || s == 11 ? 5 : 6);
        assert_int_equal(first, s == 0 ? 0 : 6 * s - 1);
    }
}

static void expect(const char *text, gyre_status_t status, const char *message)
{
    pipe_recipe_t r;
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    if (!object)
        fail_msg("%s: %s", text, error.text);
    if (pipe_recipe_from_json(object, "a/b.json", &r) != status)
        fail_msg("%s: %s", text, gyre_last_error());
    if (message && !strstr(gyre_last_error(), message))
        fail_msg("\"%s\" lacks \"%s\"", gyre_last_error(), message);
    json_decref(object);
}
#define MODEL                                                                                               \
    "\"model\": {\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 4, \"n_embd\": 64, \"vocab_size\": " \
    "256, \"n_positions\": 1024}"

static void mistakes(void **state)
{
    (void)state;
    expect("{" MODEL "}", GYRE_OK, NULL);
    expect("{}", GYRE_ERR_FORMAT, "a recipe needs \"model\"");
    expect("{" MODEL ", \"layuot\": {}}", GYRE_ERR_FORMAT, "has no \"layuot\"; it has model, layout");
    expect("{" MODEL ", \"layout\": {\"tpp\": 2}}", GYRE_ERR_FORMAT, "layout has no \"tpp\"; it has dp, tp");
    expect("{" MODEL ", \"layout\": 3}", GYRE_ERR_FORMAT, "layout must be an object");
    expect("{" MODEL ", \"layout\": {\"tp\": \"2\"}}", GYRE_ERR_FORMAT, "layout.tp must be a whole number");
    expect("{" MODEL ", \"layout\": {\"tp\": 2.5}}", GYRE_ERR_FORMAT, "layout.tp must be a whole number");
    expect("{" MODEL ", \"layout\": {\"zero\": 4}}", GYRE_ERR_FORMAT,
           "layout.zero is 4: it must lie in 0..3");
    expect("{" MODEL ", \"layout\": {\"schedule\": \"2f2b\"}}", GYRE_ERR_FORMAT,
           "layout.schedule is \"2f2b\": it must be one of gpipe, 1f1b");
    expect("{" MODEL ", \"layout\": {\"recompute\": \"some\"}}", GYRE_ERR_FORMAT,
           "one of none, selective, full");
    expect("{" MODEL ", \"layout\": {\"seq\": 4096}}", GYRE_ERR_INVALID, "the model knows 1024 positions");
    expect("{" MODEL ", \"layout\": {\"pp\": 5, \"global_batch\": 8}}", GYRE_ERR_INVALID,
           "the model has 4 layers");
    expect("{" MODEL ", \"layout\": {\"tp\": 3}}", GYRE_ERR_INVALID, "tp 3 does not divide");
    expect("{" MODEL ", \"precision\": {\"dtype\": \"fp32\", \"grad_dtype\": \"fp16\"}}", GYRE_ERR_INVALID,
           "grad_dtype");
    expect("{" MODEL ", \"precision\": {\"dtype\": \"bf16\", \"loss_scale\": {\"start\": 8}}}",
           GYRE_ERR_INVALID, "is for fp16");
    expect("{" MODEL ", \"optimizer\": {\"rampup\": {\"start\": 8}}}", GYRE_ERR_FORMAT,
           "start, increment and samples");
    expect("{" MODEL ", \"optimizer\": {\"eps\": 0}}", GYRE_ERR_FORMAT, "must lie in 1e-18..1");
    expect("{" MODEL ", \"hardware\": {\"nodes\": 2, \"per_node\": 8}}", GYRE_ERR_INVALID,
           "are 16 accelerators");
    expect("{" MODEL ", \"objective\": {\"name\": \"causal\"}}", GYRE_OK, NULL);
    expect("{" MODEL ", \"objective\": {\"name\": \"infill\"}}", GYRE_ERR_INVALID, "no prefix masks");
    expect("{" MODEL ", \"objective\": {\"name\": \"mlm\"}}", GYRE_ERR_FORMAT,
           "one of causal, prefix, infill");
    expect("{" MODEL ", \"objective\": {}}", GYRE_ERR_FORMAT, "objective needs a name");
    expect("{" MODEL ", \"objective\": {\"name\": \"infill\", \"mask_id\": 3}}", GYRE_ERR_FORMAT, "or none");
    expect("{" MODEL ", \"objective\": {\"name\": \"infill\", \"mask_id\": 256}}", GYRE_ERR_FORMAT,
           "must lie in 0..255");
    expect("{" MODEL ", \"layout\": {\"grad_sequences\": 4, \"global_batch\": 18}}", GYRE_ERR_INVALID,
           "take --grad-sequences 3");
    expect("{" MODEL
           ", \"layout\": {\"grad_sequences\": 4, \"global_batch\": 16}, \"optimizer\": {\"rampup\": "
           "{\"start\": 4, \"increment\": 2, \"samples\": 64}}}",
           GYRE_ERR_INVALID, "take multiples of 4 for both");
    pipe_recipe_t r;
    json_t *several = json_loads("{" MODEL ", \"layout\": {\"dp\": 2, \"grad_sequences\": 4}}", 0, NULL);
    assert_int_equal(pipe_recipe_from_json(several, "several", &r), GYRE_OK);
    assert_int_equal(r.layout.micro_batch, 4);
    assert_int_equal(r.batch.batch, 8);
    assert_int_equal(r.batch.groups, 2);
    json_decref(several);
    assert_int_equal(pipe_recipe_load("no/such.json", &r), GYRE_ERR_NOT_FOUND);
}

#define EXPERTS(n, layout)                                                                                   \
    "{\"model\": {\"model_type\": \"mixtral\", \"num_hidden_layers\": 4, \"num_attention_heads\": 8, "       \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"vocab_size\": 256, \"max_position_embeddings\": 64, " \
    "\"num_local_experts\": " n ", \"num_experts_per_tok\": 2}, \"layout\": {" layout "}}"

/* Ranks that share experts: read, refused with what is wrong, and in the tiny form as many as it has. */
static void shares_experts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t ep, tiny_tp, tiny_dp, tiny_ep, tiny_experts;
    } right[] = {
        {EXPERTS("16", "\"dp\": 16"), 1, 1, 8, 1, 4},
        {EXPERTS("16", "\"dp\": 16, \"ep\": 2"), 2, 1, 8, 2, 4},
        {EXPERTS("16", "\"dp\": 16, \"ep\": 16"), 16, 1, 8, 8, 8},
        {EXPERTS("16", "\"dp\": 4, \"tp\": 4, \"ep\": 4"), 4, 4, 2, 2, 8},
        {EXPERTS("16", "\"dp\": 4, \"tp\": 4, \"ep\": 4, \"zero\": 3"), 4, 2, 4, 4, 8},
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        pipe_recipe_t r, tiny;
        json_t *object = json_loads(right[i].text, 0, NULL);
        if (pipe_recipe_from_json(object, "shared", &r) != GYRE_OK)
            fail_msg("%s: %s", right[i].text, gyre_last_error());
        assert_int_equal(r.layout.ep, right[i].ep);
        tiny = pipe_recipe_tiny(&r);
        if (pipe_recipe_check(&tiny) != GYRE_OK)
            fail_msg("%s, tiny: %s", right[i].text, gyre_last_error());
        assert_int_equal(tiny.layout.tp, right[i].tiny_tp);
        assert_int_equal(tiny.layout.dp, right[i].tiny_dp);
        assert_int_equal(tiny.layout.ep, right[i].tiny_ep);
        assert_int_equal(tiny.model.experts, right[i].tiny_experts);
        json_decref(object);
    }
    expect("{" MODEL ", \"layout\": {\"dp\": 2, \"ep\": 2}}", GYRE_ERR_INVALID,
           "ep 2: the model has no experts");
    expect(EXPERTS("16", "\"dp\": 4, \"ep\": 8"), GYRE_ERR_INVALID,
           "ep 8 must be a power of two that divides dp 4");
    expect(EXPERTS("16", "\"dp\": 2, \"ep\": 0"), GYRE_ERR_FORMAT, "layout.ep is 0: it must lie in 1..1024");
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts),    cmocka_unit_test(complete),       cmocka_unit_test(tiny),
        cmocka_unit_test(mistakes), cmocka_unit_test(shares_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
