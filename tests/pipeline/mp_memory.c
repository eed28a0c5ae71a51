/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4 */
/* tests/pipeline/mp_memory.c: what the planner says that the trainer will hold (plan_trainer, as `gyre-plan
 * memory --trainer` prints it) is what it holds, by kind and to the byte, in every ZeRO stage and precision,
 * for a model whose embedding is much longer than a layer's matrices, for its adapters, with Muon, and where
 * ranks share sequences, experts, or heads of keys and values. With lanes it is as much for 2, 3 and 8
 * rounds of accumulation. */
#include <string.h>

#include "base/log.h"
#include "pipeline/plan/memory_trainer.h"
#include "pipeline/train/train.h"
#include "tests/support/create.h"
#include "tests/support/mp.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

static const char recipe_text[] =
    "{\"model\": {%s, \"hidden_size\": 32, \"intermediate_size\": 64, "
    "\"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": %d, \"vocab_size\": 2000, "
    "\"max_position_embeddings\": 16, "
    "\"gyre\": {\"leaves\": 4}},"
    " \"optimizer\": {\"type\": \"%s\"},"
    " \"layout\": {\"tp\": %d, \"dp\": %d, \"zero\": %d, \"global_batch\": %d%s},"
    " \"precision\": {\"dtype\": \"%s\", \"grad_dtype\": \"%s\"}}";

static const char *optimizer = "adamw";
static int kv_heads = 4;
static const char *family = "\"model_type\": \"llama\"";
static int ep = 1; /* data-parallel ranks that share experts */
static int cp = 1; /* ranks that share each sequence, a part each, or two without rounds */

/* `rounds` of a gradient or, of two ranks, two on each data-parallel rank; 0: one round of two, as without
 * lanes. lora: rank of adapters that are trained; 0: none. Returns what rank 0 holds. */
static size_t compare(gyre_comm_t *world, int tp, int zero, const char *type, const char *grad, int rounds,
                      size_t lora)
{
    enum { BUCKET = 4096 };
    char text[704], more[64] = "";
    int dp = gyre_comm_size(world) / tp / cp;
    pipe_recipe_t recipe;
    plan_base_t base;
    int lanes = dp == 2 ? 2 * dp : dp;
    if (rounds > 0)
        snprintf(more, sizeof more, ", \"lanes\": %d", lanes);
    snprintf(text, sizeof text, recipe_text, family, kv_heads, optimizer, tp, dp, zero,
             rounds > 0 ? rounds * lanes : 2 * dp, more, type, grad);
    json_t *object = json_loads(text, 0, NULL);
    CHECK(object && pipe_recipe_from_json(object, "test", &recipe) == GYRE_OK);
    json_decref(object);
    recipe.layout.cp = (size_t)cp;
    recipe.layout.ep = (size_t)ep;
    recipe.batch.parts = (size_t)(cp > 1 && rounds == 0 ? 2 * cp : cp);
    const pipe_train_config_t config = {.model = recipe.model,
                                        .layout = recipe.layout,
                                        .batch = recipe.batch,
                                        .precision = recipe.precision.type,
                                        .zero = {.bucket_bytes = BUCKET,
                                                 .grad16 = recipe.precision.type != MODEL_FLOAT32 &&
                                                           recipe.precision.grad == recipe.precision.type,
                                                 .adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8},
                                                 .muon = recipe.optimizer.muon,
                                                 .momentum = recipe.optimizer.momentum,
                                                 .clip = 1.0},
                                        .lora = {.rank = lora, .on = ep > 1 ? "*attn*" : "*mlp*"}};
    pipe_train_t *train = NULL;
    model_params_t *whole = NULL;
    model_adapters_t *adapters = NULL;
    size_t planned[OPTIM_MEMORY_KINDS], held[OPTIM_MEMORY_KINDS];
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    CHECK(plan_base(&recipe, &base) == GYRE_OK && plan_trainer_table(&recipe, &whole) == GYRE_OK);
    CHECK(lora == 0 || model_adapters_create(whole, &config.lora, &adapters) == GYRE_OK);
    CHECK(plan_trainer(&recipe, &base, whole, adapters, 0, BUCKET, planned) == GYRE_OK);
    pipe_train_memory(train, held);
    for (int k = 0; gyre_comm_rank(world) == 0 && k < OPTIM_MEMORY_KINDS; k++)
        MP_CHECK(planned[k] == held[k], "%s, ZeRO %d, tp %d, %s: %zu bytes planned, %zu held",
                 optim_memory_name((optim_memory_t)k), zero, tp, type, planned[k], held[k]);
    /* a buffer for the embedding, and not one for each bucket of a layer */
    size_t longest = recipe.model.vocab_padded * recipe.model.hidden * (size_t)(4 / tp);
    MP_CHECK(zero < 2 || held[OPTIM_MEMORY_BUCKETS] < 3 * longest, "ZeRO %d, tp %d, %s: %zu bytes of buckets",
             zero, tp, type, held[OPTIM_MEMORY_BUCKETS]);
    /* with ZeRO no rank holds sums of its own: what there is more than without is shards, and a layer's of
     * ranks that share its experts */
    MP_CHECK(rounds == 0 || zero == 0 || lora > 0 || ep > 1 ||
                 held[OPTIM_MEMORY_ACCUMULATION] <= held[OPTIM_MEMORY_GRADIENTS] + held[OPTIM_MEMORY_TIED],
             "ZeRO %d, tp %d, %s: %zu bytes of sums", zero, tp, type, held[OPTIM_MEMORY_ACCUMULATION]);
    size_t all = 0;
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        all += held[k];
    /* what the trainer asks its host for: the same, on every rank, and the most of its activations */
    uint64_t need, most = all + pipe_train_activation_bytes(train);
    CHECK(pipe_train_need(train, &need) == GYRE_OK);
    MP_CHECK(need > all && need <= most, "ZeRO %d, tp %d, %s: %llu bytes needed, %zu and %llu held", zero, tp,
             type, (unsigned long long)need, all, (unsigned long long)most);
    model_adapters_destroy(adapters);
    model_params_destroy(whole);
    pipe_train_destroy(train);
    return all;
}

/* Any number of rounds beyond the first takes the same memory. */
static void compare_rounds(gyre_comm_t *world, int tp, int zero, const char *type, const char *grad)
{
    size_t two = compare(world, tp, zero, type, grad, 2, 0);
    compare(world, tp, zero, type, grad, 1, 0);
    for (int rounds = 3; rounds <= 8; rounds += 5) {
        size_t more = compare(world, tp, zero, type, grad, rounds, 0);
        MP_CHECK(more == two, "ZeRO %d, tp %d, %s: %zu bytes with %d rounds, %zu with 2", zero, tp, type,
                 more, rounds, two);
    }
}

/* Adapters: no gradient and no state of the weights, which are most of it. */
static void compare_lora(gyre_comm_t *world, int tp, int zero, const char *type, const char *grad)
{
    size_t all = compare(world, tp, zero, type, grad, 0, 0), few = compare(world, tp, zero, type, grad, 0, 4);
    compare(world, tp, zero, type, grad, 2, 4);
    MP_CHECK(3 * few < 2 * all, "ZeRO %d, tp %d, %s: %zu bytes with adapters, %zu without", zero, tp, type,
             few, all);
}

/* Sequences are shared: gradients are reduced sequence by sequence, into shards with ZeRO. */
static void compare_context(gyre_comm_t *world, int tp, int zero)
{
    cp = 2;
    compare(world, tp, zero, "fp32", "fp32", 0, 0);
    compare(world, tp, zero, "bf16", "bf16", 2, 0);
    compare(world, tp, zero, "bf16", "fp32", 0, 4);
    cp = 1;
}

/* Muon: no second moments of the layers' matrices; a matrix and what it is made orthogonal in. */
static void compare_muon(gyre_comm_t *world, int tp, int zero)
{
    optimizer = "muon";
    compare(world, tp, zero, "fp32", "fp32", 0, 0);
    compare(world, tp, zero, "bf16", "bf16", 2, 0);
    optimizer = "adamw";
}

/* Experts over all data-parallel ranks, or two of them: with fewer of them a rank holds less. */
static void compare_experts(gyre_comm_t *world, int tp, int zero)
{
    const char *before = family;
    const int dp = gyre_comm_size(world) / tp;
    size_t all = 0;
    family = "\"model_type\": \"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2";
    for (ep = 1; dp % ep == 0 && tp * ep <= 8; ep *= 2) {
        size_t bytes = compare(world, tp, zero, "fp32", "fp32", 0, 0);
        MP_CHECK(ep == 1 || zero == 3 || bytes < all, "ZeRO %d, tp %d, ep %d: %zu bytes, %zu with less", zero,
                 tp, ep, bytes, all);
        all = bytes;
        compare(world, tp, zero, "bf16", "bf16", 2, 0);
        compare(world, tp, zero, "bf16", "fp32", 0, ep > 1 ? 4 : 0);
        compare_muon(world, tp, zero);
    }
    ep = 1;
    family = before;
}

/* One head of keys and values, of which each tensor-parallel rank has a copy. */
static void compare_copies(gyre_comm_t *world, int tp, int zero)
{
    kv_heads = 1;
    compare(world, tp, zero, "fp32", "fp32", 0, 0);
    compare(world, tp, zero, "bf16", "bf16", 2, 0);
    compare(world, tp, zero, "bf16", "fp32", 0, 4);
    kv_heads = 4;
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    for (int tp = 1; tp < gyre_comm_size(world); tp *= 2)
        for (int zero = 0; zero < 4 && gyre_comm_size(world) % tp == 0; zero++) {
            compare(world, tp, zero, "fp32", "fp32", 0, 0);
            compare(world, tp, zero, "bf16", "fp32", 0, 0);
            compare(world, tp, zero, "bf16", "bf16", 0, 0);
            compare_muon(world, tp, zero);
            compare_copies(world, tp, zero);
            compare_experts(world, tp, zero);
            compare_lora(world, tp, zero, "fp32", "fp32");
            compare_lora(world, tp, zero, "bf16", "bf16");
            compare_rounds(world, tp, zero, "fp32", "fp32");
            compare_rounds(world, tp, zero, "bf16", "bf16");
            if (gyre_comm_size(world) % (2 * tp) == 0)
                compare_context(world, tp, zero);
        }
    MP_OK(gyre_finalize(world));
    return 0;
}
