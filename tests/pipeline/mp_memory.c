/* SPDX-License-Identifier: Apache-2.0 */
/* TSan in check-long: mp_train_api runs the same threads */
/* ranks: 2 3 4 */
/* tests/pipeline/mp_memory.c: what the planner says that the trainer will hold (plan_trainer, as `gyre-plan
 * memory --trainer` prints it) is what it holds, by kind and to the byte, activations among them, in every
 * ZeRO stage and precision, for a model whose embedding is much longer than a layer's matrices, for its
 * adapters, with Muon, where ranks share sequences, experts, or heads of keys and values, in pipelines of
 * every schedule, with recomputation, kept weights and offloaded state. With lanes it is as much for 2, 3 and
 * 8 rounds of accumulation. */
#include <string.h>

#include "pipeline/plan/memory_trainer.h"
#include "pipeline/train/train.h"
#include "tests/support/create.h"
#include "tests/support/mp.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

static const char recipe_text[] =
    "{\"model\": {%s, \"hidden_size\": 32, \"intermediate_size\": 64, "
    "\"num_hidden_layers\": 4,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": %d, \"vocab_size\": 2000, "
    "\"max_position_embeddings\": 16, "
    "\"gyre\": {\"leaves\": 4}},"
    " \"optimizer\": {\"type\": \"%s\"},"
    " \"layout\": {\"tp\": %d, \"pp\": %d, \"schedule\": \"%s\", \"recompute\": \"%s\","
    "  \"dp\": %d, \"zero\": %d, \"global_batch\": %d%s},"
    " \"precision\": {\"dtype\": \"%s\", \"grad_dtype\": \"%s\"}}";

static const char *optimizer = "adamw";
static int kv_heads = 4;
static const char *family = "\"model_type\": \"llama\"";
static int ep = 1; /* data-parallel ranks that share experts */
static int cp = 1; /* ranks that share each sequence, a part each, or two without rounds */
static int pp = 1;
static const char *schedule = "1f1b", *recompute = "none";
static int keep, offload; /* of the trainer */
static const char *freeze;

/* Any tokens. */
static gyre_status_t fetch(void *user, size_t index, model_example_t *out)
{
    (void)user;
    for (size_t t = 0; t < 16; t++)
        out->tokens[t] = out->targets[t] = (model_token_t)(index + t);
    return GYRE_OK;
}

/* Plans the run of `config`, and compares what the ranks of this one's stage hold with it: of each kind, the
 * most. An evaluation takes what was counted before it. */
static void compare_held(gyre_comm_t *world, const pipe_recipe_t *recipe, const pipe_train_config_t *config,
                         pipe_train_t *train, size_t held[OPTIM_MEMORY_KINDS])
{
    enum { ACTIVATIONS = OPTIM_MEMORY_KINDS, KINDS };
    const plan_trainer_t how = {.bucket_bytes = config->zero.bucket_bytes,
                                .keep = keep,
                                .offload = offload,
                                .threads = config->threads,
                                .lora = config->lora,
                                .freeze = freeze};
    const size_t ranks = (size_t)gyre_comm_size(world) / (size_t)pp;
    const pipe_place_t at = pipe_layout_place(&recipe->layout, (size_t)gyre_comm_rank(world));
    plan_held_t planned[4];
    uint64_t mine[KINDS], all[4 * KINDS], total = 0; /* [rank, kind], stage by stage */
    unsigned asked;
    double loss;
    CHECK(plan_trainer(recipe, &how, 0, planned) == GYRE_OK);
    pipe_train_memory(train, held);
    size_t before = pipe_train_activation_bytes(train);
    if (pp > 1)
        CHECK(pipe_train_evaluate(train, fetch, NULL, 1, NULL, &asked, &loss) == GYRE_OK);
    size_t after = pipe_train_activation_bytes(train);
    MP_CHECK(after == before, "pp %d: %zu bytes, %zu after an evaluation", pp, before, after);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        mine[k] = held[k];
    mine[ACTIVATIONS] = after;
    CHECK(gyre_all_gather(mine, all, KINDS, GYRE_UINT64, world) == GYRE_OK);
    for (int k = 0; k < KINDS; k++) {
        const size_t plan = k < ACTIVATIONS ? planned[at.pp].store[k] : planned[at.pp].activations;
        uint64_t most = 0;
        for (size_t r = 0; r < ranks; r++) {
            const uint64_t there = all[(at.pp * ranks + r) * KINDS + (size_t)k];
            most = there > most ? there : most;
        }
        MP_CHECK(plan == most,
                 "%s, %s, ZeRO %d, %s, %s, tp %zu, stage %zu of %d: %zu bytes planned, %llu held",
                 k < ACTIVATIONS ? optim_memory_name((optim_memory_t)k) : "activations", optimizer,
                 recipe->layout.zero, schedule, recompute, recipe->layout.tp, at.pp, pp, plan,
                 (unsigned long long)most);
        total += most;
    }
    MP_CHECK(planned[at.pp].total == total, "%zu bytes planned, %llu held", planned[at.pp].total,
             (unsigned long long)total);
}

/* `rounds` of a gradient or, of two ranks, two on each data-parallel rank; 0: one round of two, as without
 * lanes. lora: rank of adapters that are trained; 0: none. Returns what rank 0 holds. */
static size_t compare(gyre_comm_t *world, int tp, int zero, const char *type, const char *grad, int rounds,
                      size_t lora)
{
    enum { BUCKET = 4096 };
    char text[768], more[64] = "";
    int dp = gyre_comm_size(world) / tp / cp / pp;
    pipe_recipe_t recipe;
    int lanes = dp == 2 ? 2 * dp : dp;
    if (rounds > 0)
        snprintf(more, sizeof more, ", \"lanes\": %d", lanes);
    snprintf(text, sizeof text, recipe_text, family, kv_heads, optimizer, tp, pp, schedule, recompute, dp,
             zero, rounds > 0 ? rounds * lanes : 2 * dp, more, type, grad);
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
                                        .recompute = recipe.recompute,
                                        .threads = 1,
                                        .freeze = freeze,
                                        .zero = {.bucket_bytes = BUCKET,
                                                 .keep = keep,
                                                 .offload = offload ? "/tmp" : NULL,
                                                 .grad16 = recipe.precision.type != MODEL_FLOAT32 &&
                                                           recipe.precision.grad == recipe.precision.type,
                                                 .adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8},
                                                 .muon = recipe.optimizer.muon,
                                                 .momentum = recipe.optimizer.momentum,
                                                 .clip = 1.0},
                                        .lora = {.rank = lora, .on = ep > 1 ? "*attn*" : "*mlp*"}};
    pipe_train_t *train = NULL;
    size_t held[OPTIM_MEMORY_KINDS];
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    compare_held(world, &recipe, &config, train, held);
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
    MP_CHECK(offload /* whose folder is forgotten by now */ ||
                 (pp > 1 ? need > all && need < most : need == most),
             "ZeRO %d, tp %d, %s: %llu bytes needed, %zu and %llu held", zero, tp, type,
             (unsigned long long)need, all, (unsigned long long)most);
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
    freeze = "*attn*"; /* those have second moments, of AdamW */
    compare(world, tp, zero, "fp32", "fp32", 0, 0);
    freeze = NULL;
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

/* Stages of a pipeline, whose boundary tensors lie on pages, with recomputation. */
static void compare_pipeline(gyre_comm_t *world, int zero)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    static const char *const all[] = {"none", "selective", "full"};
    pp = 2;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        schedule = schedules[i];
        if (zero % 3 != 0 && strcmp(schedule, "1f1b") != 0)
            continue; /* gradients' shards are not the schedule's business */
        recompute = all[(i + (size_t)zero) % 3];
        compare(world, 1, zero, "fp32", "fp32", 0, 0);
        compare(world, 1, zero, "bf16", "fp32", 2, 0);
    }
    compare(world, 1, zero, "bf16", "fp32", 0, 4);
    schedule = "1f1b";
    for (pp = 4; gyre_comm_size(world) % pp == 0; pp *= 2) /* two stages in the middle that are alike */
        compare(world, 1, zero, "bf16", "fp32", 0, 0);
    pp = 1;
    recompute = "full";
    compare(world, 1, zero, "bf16", "bf16", 0, 0);
    recompute = "none";
}

/* Weights that are kept, and a state in a file. */
static void compare_flags(gyre_comm_t *world, int zero)
{
    size_t without = compare(world, 1, zero, "bf16", "fp32", 0, 0), with;
    offload = 1;
    with = compare(world, 1, zero, "bf16", "fp32", 0, 0);
    MP_CHECK(with < without, "ZeRO %d: %zu bytes with offload, %zu without", zero, with, without);
    compare(world, 1, zero, "fp32", "fp32", 2, 0);
    offload = 0;
    keep = 1;
    with = compare(world, 1, zero, "bf16", "fp32", 0, 0);
    MP_CHECK(with > without, "ZeRO %d: %zu bytes with weights kept, %zu without", zero, with, without);
    compare(world, 1, zero, "bf16", "bf16", 0, 4);
    keep = 0;
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    for (int zero = 0; zero < 4; zero++) {
        if (gyre_comm_size(world) % 2 == 0)
            compare_pipeline(world, zero);
        compare_flags(world, zero);
    }
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
