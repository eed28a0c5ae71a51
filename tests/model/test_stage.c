/* SPDX-License-Identifier: Apache-2.0 */
/* A stage alone: gradients against central differences in double, refusals, memory. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/model/kinds.h"
#include "tests/model/whole.h"

#define EPS 1e-5
#define TOL 1e-7

#define SMALL .vocab = 11, .seq = 6, .layers = 2, .leaves = 2

static const model_stage_config_t defaults = {0};
static const model_stage_config_t split = {.split = 1, .recompute = MODEL_RECOMPUTE_FULL};

/* Sums of the gradients that are reported as ready. */
typedef struct {
    const whole_t *whole;
    double *sum;            /* [grad_total] */
    size_t calls, slots[2]; /* of the first row's */
} gathered_t;

static gyre_status_t gather(void *user, size_t slot, size_t first, size_t rows)
{
    gathered_t *g = user;
    const model_param_t *row = &g->whole->params->row[first];
    if (first == 0)
        g->slots[g->calls++ % 2] = slot;
    for (size_t i = row->grad; i < row[rows - 1].grad + row[rows - 1].count; i++)
        g->sum[i] += g->whole->grads[i];
    return GYRE_OK;
}

enum { MANY = 6 };
/* The gradients of MANY sequences, of which config.grad_sequences at a time have one. */
static gathered_t gathered(whole_t *w, const model_config_t *config, model_stage_config_t how)
{
    model_token_t tokens[MANY][16];
    model_sequence_t sequence[MANY];
    double loss[MANY];
    how.slots = how.together = MANY;
    make(w, config, how);
    gathered_t g = {.whole = w, .sum = calloc(w->params->grad_total, sizeof(double))};
    assert_non_null(g.sum);
    w->plain.user = &g;
    w->plain.ready = gather;
    memset(w->grads, 0xff, w->params->grad_total * sizeof(double));
    for (size_t j = 0; j < MANY; j++) {
        for (size_t t = 0; t < config->seq; t++)
            tokens[j][t] = (model_token_t)((t * (j + 1) + j) % config->vocab);
        sequence[j] = w->sequence;
        sequence[j].tokens = tokens[j];
        sequence[j].sequence = j;
    }
    assert_int_equal(model_stage_forward_batch_f64(w->stage, 0, MANY, sequence, NULL, NULL, loss), GYRE_OK);
    if (how.grad_sequences > 1)
        assert_int_equal(model_stage_backward_batch_f64(w->stage, 0, how.grad_sequences - 1, 1.0, NULL, NULL),
                         GYRE_ERR_INVALID);
    assert_int_equal(model_stage_backward_batch_f64(w->stage, 0, MANY, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_batch_f64(w->stage, 0, MANY), GYRE_OK);
    return g;
}

/* One gradient of three sequences is the sum of theirs, except for last bits, and is reported once, under the
 * first one's slot. */
static void check_several(const model_config_t *config, model_stage_config_t how)
{
    whole_t each = {0}, three = {0};
    gathered_t want = gathered(&each, config, how);
    how.grad_sequences = 3;
    gathered_t got = gathered(&three, config, how);
    assert_int_equal(want.calls, MANY);
    assert_int_equal(got.calls, MANY / 3);
    assert_int_equal(got.slots[0], 0);
    assert_int_equal(got.slots[1], 3);
    double most = 0.0;
    for (size_t i = 0; i < each.params->grad_total; i++)
        most = fmax(most, fabs(want.sum[i]));
    for (size_t i = 0; i < each.params->grad_total; i++)
        assert_true(fabs(got.sum[i] - want.sum[i]) <= 1e-14 * most);
    free(want.sum);
    free(got.sum);
    unmake(&each);
    unmake(&three);
}

/* Every gradient of the table against central differences; a tied weight's is the sum of two. And those of
 * several sequences. */
static void check_gradients(const char *what, const model_config_t *config, model_stage_config_t how)
{
#ifdef __SANITIZE_ADDRESS__ /* one in five touches the same memory */
    const size_t step = getenv("TEST_LONG") ? 1 : 5;
#else
    const size_t step = 1;
#endif
    whole_t w = {0};
    f64_block = 4; /* positions of the head, of 6 */
    make(&w, config, how);
    memset(w.grads, 0xff, w.params->grad_total * sizeof(double)); /* NaN: every element must be written */
    loss_of(&w);
    assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_f64(w.stage, 0), GYRE_OK);
    double worst = 0.0;
    for (size_t r = 0; r < w.params->rows; r++) {
        const model_param_t *row = &w.params->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        size_t head = row->twin ? model_params_find(w.params, MODEL_HEAD, 0) : MODEL_NONE;
        for (size_t i = 0; i < row->count; i += step) {
            double *x = w.weights + row->offset + i, keep = *x, got = w.grads[row->grad + i];
            if (head != MODEL_NONE)
                got += w.grads[w.params->row[head].grad + i];
            *x = keep + EPS;
            double up = loss_of(&w);
            *x = keep - EPS;
            double want = (up - loss_of(&w)) / (2 * EPS);
            *x = keep;
            double error = fabs(want - got) / fmax(1.0, fabs(want));
            if (!(error < TOL))
                print_message("%s[%zu]: %.12g, differences say %.12g\n", row->name, i, got, want);
            worst = fmax(worst, error);
            assert_true(error < TOL);
        }
    }
    print_message("%-44s %.1e\n", what, worst);
    unmake(&w);
    check_several(config, how);
}

static void gradients(void **state)
{
    (void)state;
    model_config_t c = gpt2;
    check_gradients("gpt-2, four leaves", &c, defaults);
    c.z_loss = 0.3;
    check_gradients("z-loss", &c, (model_stage_config_t){.split = 1});
    c.z_loss = 0.0;
    check_gradients("split backward, full recomputation", &c, split);
    c.leaves = 1;
    c.vocab_padded = 0;
    check_gradients("one leaf", &c, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_SELECTIVE});
    c = gpt2;
    c.leaves = c.kv_heads = 2;
    c.untied = 1;
    c.no_qkv_bias = 1;
    check_gradients("grouped queries, untied, no bias of q, k, v", &c, defaults);
    c.no_proj_bias = c.no_mlp_bias = 1;
    c.pos_offset = 2;
    c.dropout = 0.2;
    check_gradients("no biases, offset positions, dropout", &c, (model_stage_config_t){.seed = 9});
}

/* Each feature that distinguishes an architecture from GPT-2, and the architectures themselves. */
static void architectures(void **state)
{
    (void)state;
    const model_config_t opt = {SMALL, .hidden = 8, .heads = 4,
                                .act = MODEL_ACT_GELU_FAST, /* ReLU has no derivative at 0 */
                                .pos_offset = 2};
    check_gradients("OPT, fast GELU", &opt, defaults);
    const model_config_t bloom = {SMALL,           .hidden = 12,        .heads = 6,    .pos = MODEL_POS_ALIBI,
                                  .embed_norm = 1, .attn_dropout = 0.2, .dropout = 0.1};
    check_gradients("BLOOM", &bloom, defaults);
    check_gradients("BLOOM, split", &bloom, split);
    model_config_t neox = {SMALL,           .hidden = 16,
                           .heads = 2,      .pos = MODEL_POS_ROPE,
                           .rotary_dim = 4, .act = MODEL_ACT_GELU_ERF,
                           .parallel = 1,   .untied = 1};
    check_gradients("GPT-NeoX", &neox, defaults);
    neox.dropout = 0.1;
    check_gradients("GPT-NeoX, split", &neox, split);
    model_config_t llama = {SMALL,         .hidden = 8, .heads = 4, .kv_heads = 2,
                            .head_dim = 4, .ffn = 12,   LLAMA_LIKE, .norm_eps = 1e-6};
    check_gradients("LLaMA", &llama, defaults);
    llama.untied = 0;
    llama.rope_interleaved = 1;
    check_gradients("LLaMA, tied, neighbours, recomputation", &llama,
                    (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL});
    llama.qk_norm = 1;
    llama.no_qkv_bias = 0;
    check_gradients("Qwen3, with biases of q, k, v", &llama, defaults);
    check_gradients("Qwen3, split", &llama, split);
    llama.qk_norm = 0;
    llama.gain_plus_1 = llama.embed_scaled = 1;
    check_gradients("Gemma", &llama, defaults);
    llama.gain_plus_1 = llama.embed_scaled = 0;
    llama.qk_norm = llama.qk_whole = llama.out_norm = 1;
    check_gradients("OLMo 2", &llama, defaults);
    llama.dropout = 0.1;
    check_gradients("OLMo 2, dropout, split", &llama, split);
    llama.qk_norm = llama.qk_whole = llama.out_norm = 0;
    llama.gain_plus_1 = llama.both_norms = 1;
    llama.attn_cap = 0.8;
    llama.logit_cap = 1.2;
    llama.query_scale = 2.5;
    llama.z_loss = 0.2;
    check_gradients("Gemma 2, dropout, split, z-loss", &llama, split);
    llama.dropout = llama.z_loss = 0.0;
    llama.qk_norm = 1;
    llama.window = 3;
    llama.window_every = 2;
    llama.local_theta = 5;
    check_gradients("Gemma 2 and 3", &llama, defaults);
    llama.gain_plus_1 = llama.both_norms = llama.qk_norm = 0;
    llama.window_every = 0;
    llama.local_theta = 0.0;
    llama.attn_cap = llama.logit_cap = llama.query_scale = 0.0;
    llama.window = 3;
    llama.nope_every = 2;
    check_gradients("SmolLM3", &llama, defaults);
    check_gradients("SmolLM3, split", &llama, (model_stage_config_t){.split = 1});
    llama.nope_every = 0;
    check_gradients("Mistral, a window of 3", &llama, defaults);
    llama.window_every = 2;
    check_gradients("windows in turn", &llama,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_SELECTIVE});
    const model_config_t glm = {SMALL,
                                .hidden = 8,
                                .heads = 2,
                                .ffn = 12,
                                .pos = MODEL_POS_ROPE,
                                .post_norm = 1,
                                .deepnorm = 2.0,
                                .act = MODEL_ACT_GELU_ERF,
                                .gated = 1,
                                .prefix = 1};
    check_gradients("GLM-130B", &glm, defaults);
    model_config_t glm_z = glm;
    glm_z.z_loss = 0.3;
    check_gradients("GLM-130B, z-loss", &glm_z, defaults);
    check_gradients("GLM-130B, split", &glm, split);
    const model_config_t codegeex = {SMALL, .hidden = 8, .heads = 4, .act = MODEL_ACT_GELU_FAST,
                                     .top_query = 1};
    check_gradients("CodeGeeX", &codegeex, defaults);
    check_gradients("CodeGeeX, split", &codegeex,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_SELECTIVE});
}

/* Experts with room for all, with too little room (positions are dropped), one choice, gates and the
 * balance loss. */
static void experts(void **state)
{
    (void)state;
    model_config_t c = {SMALL,      .hidden = 8,  .heads = 2, .ffn = 10,
                        LLAMA_LIKE, .experts = 4, .top_k = 2, .capacity = 2.0};
    check_gradients("experts", &c, defaults);
    c.router_z = 0.2;
    c.z_loss = 0.1;
    check_gradients("experts, z-losses", &c, defaults);
    c.balance = 0.5;
    c.capacity = 0.5;
    check_gradients("experts, dropped positions, balance", &c, defaults);
    check_gradients("experts, split", &c, split);
    c.top_k = 1;
    c.gated = 0;
    c.dropout = 0.1;
    c.capacity = 4.0;
    check_gradients("experts, one choice", &c, defaults);
    c.dropout = 0.0;
    c.post_norm = 1;
    c.deepnorm = 1.5;
    c.leaves = 4;
    c.heads = 4;
    check_gradients("experts after a post-norm", &c, (model_stage_config_t){.split = 1});
    c = (model_config_t){SMALL,
                         .hidden = 8,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 4,
                         .ffn = 10,
                         .pos = MODEL_POS_ROPE,
                         .norm = MODEL_NORM_RMS,
                         .act = MODEL_ACT_GELU_FAST,
                         .act_limit = 0.15,
                         .gated = 1,
                         .untied = 1,
                         .no_mlp_bias = 1,
                         .sinks = 1,
                         .window = 3,
                         .window_every = 2,
                         .experts = 4,
                         .top_k = 2,
                         .router_bias = 1,
                         .expert_bias = 1,
                         .capacity = 2.0};
    check_gradients("gpt-oss", &c, defaults);
    check_gradients("gpt-oss, split", &c, split);
}

/* Latent attention, a layer without experts in front of one with some, shared experts, and both routers.
 * Biases of choices are steps of a size that no difference flips. */
static void latents(void **state)
{
    (void)state;
    model_config_t c = {
        SMALL,
        .hidden = 8,
        .heads = 4,
        .head_dim = 5,
        .rotary_dim = 2,
        .value_dim = 3,
        .kv_latent = 4,
        .q_latent = 6,
        .ffn = 6,
        LLAMA_LIKE,
        .rope_interleaved = 1,
        .rope =
            {.type = MODEL_ROPE_YARN, .factor = 4, .low = 0.01, .high = 1.5, .original = 6, .scores = 0.7},
        .experts = 8,
        .top_k = 3,
        .capacity = 8.0 / 3.0,
        .dense_first = 1,
        .dense_ffn = 10,
        .shared_ffn = 4,
        .groups = 4,
        .top_groups = 2,
        .router_sigmoid = 1,
        .routed_scale = 2.5};
    check_gradients("DeepSeek-V3", &c, defaults);
    c.dropout = 0.1;
    check_gradients("DeepSeek-V3, dropout, split", &c, split);
    c.dropout = 0.0;
    c.q_latent = 0;
    c.router_sigmoid = 0;
    c.raw_weights = 1;
    c.balance = 0.3;
    check_gradients("DeepSeek-V2", &c, defaults);
    c.dense_first = c.shared_ffn = 0;
    check_gradients("DeepSeek-V2, experts only, split", &c, (model_stage_config_t){.split = 1});
}

/* Validation and logits see the model without dropout of any kind: to the bit what one that has none
 * computes. */
static void no_dropout_in_evaluation(void **state)
{
    (void)state;
    whole_t plain = {0}, dropping = {0};
    double out[2][6 * 11];
    model_config_t c = gpt2;
    make(&plain, &c, defaults);
    c.dropout = 0.5;
    c.attn_dropout = 0.5;
    make(&dropping, &c, (model_stage_config_t){.seed = 9, .recompute = MODEL_RECOMPUTE_FULL});
    double loss = loss_of(&plain);
    assert_true(loss_of(&dropping) != loss);
    dropping.sequence.evaluate = 1;
    assert_true(loss_of(&dropping) == loss);
    dropping.sequence.evaluate = 0;
    assert_int_equal(model_stage_logits_f64(plain.stage, &plain.sequence, NULL, 0, 6, out[0]), GYRE_OK);
    assert_int_equal(model_stage_logits_f64(dropping.stage, &dropping.sequence, NULL, 0, 6, out[1]), GYRE_OK);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    unmake(&plain);
    unmake(&dropping);
}

/* Logits of one position are those among the logits of all, with a sum's last bits at most apart. */
static void logits_of_one_position(void **state)
{
    (void)state;
    whole_t w = {0};
    double all[6 * 11], one[11];
    make(&w, &gpt2, defaults);
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 0, 6, all), GYRE_OK);
    for (size_t t = 0; t < 6; t++) {
        assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, t, 1, one), GYRE_OK);
        for (size_t v = 0; v < 11; v++)
            assert_true(fabs(one[v] - all[t * 11 + v]) <= 1e-12);
    }
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 6, 1, one), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 1, SIZE_MAX, one), GYRE_ERR_INVALID);
    unmake(&w);
}

/* The embedding's gradient is shrunk, and only that; a prefix must leave something to learn. */
static void shrunk_embedding(void **state)
{
    (void)state;
    whole_t plain = {0}, shrunk = {0};
    model_config_t c = gpt2;
    c.untied = 1;
    c.prefix = 1;
    make(&plain, &c, defaults);
    c.embed_shrink = 0.25;
    make(&shrunk, &c, defaults);
    assert_true(loss_of(&plain) == loss_of(&shrunk));
    assert_int_equal(model_stage_backward_f64(plain.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    assert_int_equal(model_stage_backward_f64(shrunk.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    for (size_t r = 0; r < plain.params->rows; r++) {
        const model_param_t *row = &plain.params->row[r];
        double factor = row->kind == MODEL_WTE ? 0.25 : 1.0;
        for (size_t i = 0; i < row->count; i++)
            assert_true(fabs(shrunk.grads[row->grad + i] - factor * plain.grads[row->grad + i]) < 1e-15);
    }
    double loss;
    plain.sequence.positions = plain.positions; /* learned ones are where they are */
    assert_int_equal(model_stage_forward_f64(plain.stage, 0, &plain.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    plain.sequence.positions = NULL;
    plain.sequence.prefix = 6;
    assert_int_equal(model_stage_forward_f64(plain.stage, 0, &plain.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    unmake(&plain);
    unmake(&shrunk);
}

/* Positions that count up are those of no positions, to the bit; others are refused beyond the sequence. */
static void positions(void **state)
{
    (void)state;
    whole_t w = {0};
    model_config_t c = gpt2;
    c.pos = MODEL_POS_ROPE;
    c.prefix = 1;
    c.heads = c.leaves = 2;
    make(&w, &c, defaults);
    double turned = loss_of(&w);
    w.sequence.positions = NULL;
    double plain = loss_of(&w);
    assert_true(plain != turned);
    for (size_t t = 0; t < c.seq; t++)
        w.positions[t] = (int32_t)t;
    w.sequence.positions = w.positions;
    assert_true(loss_of(&w) == plain);
    double loss;
    for (int bad = 0; bad < 2; bad++) {
        w.positions[3] = bad ? -1 : 6;
        assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss),
                         GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "position 3 is"));
    }
    unmake(&w);
}

static void refusals(void **state)
{
    (void)state;
    whole_t w = {0};
    double loss;
    make(&w, &gpt2, defaults);
    const model_store_t_f64 store = model_plain_store_f64(&w.plain);
    model_stage_t_f64 *stage = NULL;
    w.tokens[2] = 11; /* a padded row is no token */
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    w.tokens[2] = 0;
    w.targets[5] = -2;
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    w.targets[5] = 0;
    assert_int_equal(model_stage_forward_f64(w.stage, 1, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_forward_batch_f64(w.stage, 0, 2, &w.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    w.sequence.targets = NULL;
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    const model_tp_t eight = {.size = 8}, shards = {.size = 4, .sequence = 1};
    const model_stage_config_t all = {.layers = 2, .embed = 1, .head = 1, .slots = 1};
    const model_stage_config_t wrong[] = {{.layers = 3, .embed = 1, .head = 1, .slots = 1},
                                          {.layers = 2, .embed = 1, .head = 1, .slots = 1, .together = 2},
                                          {.layers = 2, .embed = 1, .head = 1},
                                          {.first = 1, .layers = 1, .embed = 1, .head = 1, .slots = 1},
                                          {.layers = 1, .embed = 1, .head = 1, .slots = 1}};
    assert_int_equal(model_stage_create_f64(w.params, &eight, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    assert_int_equal(model_stage_create_f64(w.params, &shards, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(model_stage_create_f64(w.params, &alone, &wrong[i], &store, MODEL_ISA_BEST, &stage),
                         GYRE_ERR_INVALID);
    model_params_t *upper = NULL;
    const unsigned char has[2] = {0, 1};
    assert_int_equal(
        model_params_slice(w.params, &(model_slice_t){.tp_size = 1, .has = has, .head = 1}, &upper), GYRE_OK);
    const model_stage_config_t top = {.first = 1, .layers = 1, .head = 1, .slots = 1};
    double loss_of_top, edge[6 * 8] = {0};
    w.targets[5] = 0;
    w.sequence.targets = w.targets;
    assert_int_equal(model_stage_create_f64(upper, &alone, &top, &store, MODEL_ISA_BEST, &stage), GYRE_OK);
    assert_int_equal(model_stage_forward_f64(stage, 0, &w.sequence, NULL, NULL, &loss_of_top),
                     GYRE_ERR_INVALID);
    assert_int_equal(model_stage_forward_f64(stage, 0, &w.sequence, edge, NULL, &loss_of_top), GYRE_OK);
    assert_int_equal(model_stage_backward_f64(stage, 0, 1.0, NULL, NULL), GYRE_ERR_INVALID);
    model_stage_destroy_f64(stage);
    stage = NULL;
    assert_int_equal(model_stage_create_f64(upper, &alone, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    model_params_destroy(upper);
    unmake(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(architectures),
        cmocka_unit_test(experts),
        cmocka_unit_test(latents),
        cmocka_unit_test(no_dropout_in_evaluation),
        cmocka_unit_test(logits_of_one_position),
        cmocka_unit_test(shrunk_embedding),
        cmocka_unit_test(positions),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
