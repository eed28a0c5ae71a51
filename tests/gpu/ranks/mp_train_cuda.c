/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2, and in check-long: 4, guard: 2 */
/* tests/gpu/ranks/mp_train_cuda.c: training steps on the GPU: losses are those of the CPU to 1e-5, and those,
 * norms, validation and the final weights are in every layout, with CUDA graphs, too, the same bits as those
 * of rank 0 alone without them. The ranks share the GPU.
 *
 * With our own products bits know nothing of micro-batches: in fp32 they are of one and of two sequences, and
 * ZeRO 3 evaluates two together. cuBLASLt may add in another order for another number of rows, so in bf16,
 * where it computes if it is there, all runs have the same micro-batches. Last, two sequences have one
 * gradient of each weight: other bits, and again the same in every layout, and where shares are uneven.
 *
 * Each run holds what the planner says without a device, by kind and to the byte. */
#include <math.h>
#include <string.h>

#include "base/settings/settings.h"
#include "model/random.h"
#include "pipeline/plan/memory_trainer.h"
#include "pipeline/train/train.h"
#include "tests/gpu/gpu.h"
#include "tests/support/mp.h"
#include "tests/support/create.h"

enum { STEPS = 3, SEQ = 16, VOCAB = 40, SEED = 17, BATCH = 4, EVALUATED = 3 };

#define SHAPE .vocab = VOCAB, .seq = SEQ, .layers = 2, .hidden = 32, .heads = 4, .leaves = 4, .dropout = 0.1
static const model_config_t dense = {SHAPE, .ffn = 64};
static const model_config_t experts = {SHAPE,        .ffn = 32,  .gated = 1,     .act = MODEL_ACT_SILU,
                                       .experts = 8, .top_k = 2, .balance = 0.05};

typedef struct {
    double loss[STEPS], norm[STEPS], valid;
    double balance[STEPS], dropped[STEPS]; /* of experts, else 0 */
    uint64_t digest;
} curve_t;

typedef struct {
    const model_config_t *shape;
    size_t ranks;
    pipe_layout_t layout;
    model_recompute_t recompute;
    model_graphs_t graphs; /* 3 steps: kernel by kernel, captured, and by graphs alone */
} tried_t;
static const tried_t tried[] = {
    /* fp32, bf16, fp32, ...; with two sequences to a gradient those of fp32 */
    {&dense, 2, {.tp = 2, .pp = 1, .dp = 1, .micro_batch = 2}, MODEL_RECOMPUTE_NONE, MODEL_GRAPHS_ON},
    {&dense,
     2,
     {.tp = 1, .pp = 1, .dp = 2, .zero = 1, .micro_batch = 2},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_AUTO},
    {&dense,
     2,
     {.tp = 1, .pp = 1, .dp = 2, .zero = 3, .micro_batch = 2},
     MODEL_RECOMPUTE_FULL,
     MODEL_GRAPHS_ON},
    {&dense,
     2,
     {.tp = 1, .pp = 2, .dp = 1, .schedule = PIPE_ZB_H1, .micro_batch = 2},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_OFF},
    {&dense,
     4,
     {.tp = 2, .pp = 1, .dp = 2, .zero = 2, .sequence = 1, .micro_batch = 1},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_ON},
    {&dense,
     4,
     {.tp = 1, .pp = 2, .dp = 2, .zero = 1, .micro_batch = 2},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_ON},
    {&experts,
     2,
     {.tp = 2, .pp = 1, .dp = 1, .sequence = 1, .micro_batch = 2},
     MODEL_RECOMPUTE_FULL,
     MODEL_GRAPHS_ON},
    {&experts,
     2,
     {.tp = 1, .pp = 2, .dp = 1, .schedule = PIPE_ZB_H1, .micro_batch = 2},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_ON},
    {&experts,
     4,
     {.tp = 2, .pp = 1, .dp = 2, .zero = 3, .micro_batch = 1},
     MODEL_RECOMPUTE_NONE,
     MODEL_GRAPHS_OFF},
};

/* Runs that count upwards. */
static gyre_status_t fetch(void *user, size_t index, model_example_t *out)
{
    uint64_t start = model_random_bits(5, MODEL_RANDOM_DATA, (uint32_t)index, *(const uint64_t *)user);
    for (size_t t = 0; t < SEQ; t++) {
        out->tokens[t] = (model_token_t)((start + t * (1 + index % 3)) % VOCAB);
        out->targets[t] = (model_token_t)((start + (t + 1) * (1 + index % 3)) % VOCAB);
    }
    return GYRE_OK;
}

/* What the ranks of each stage hold: of each kind, the most. */
static void check_planned(gyre_comm_t *comm, const pipe_train_config_t *config, const pipe_train_t *run)
{
    enum { ACTIVATIONS = OPTIM_MEMORY_KINDS, KINDS, STAGES = 2 };
    const plan_trainer_t how = {
        .bucket_bytes = config->zero.bucket_bytes, .device = 1, .away = config->offload_activations};
    const pipe_recipe_t recipe = {.model = config->model,
                                  .layout = *pipe_train_layout(run),
                                  .batch = optim_batch_complete(&config->batch),
                                  .precision = {.type = config->precision},
                                  .recompute = config->recompute};
    const size_t stage = pipe_layout_place(&recipe.layout, (size_t)gyre_comm_rank(comm)).pp;
    plan_held_t planned[STAGES];
    uint64_t held[STAGES][KINDS] = {{0}};
    size_t store[OPTIM_MEMORY_KINDS];
    pipe_train_memory(run, store);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        held[stage][k] = store[k];
    held[stage][ACTIVATIONS] = pipe_train_activation_bytes(run);
    MP_OK(gyre_all_reduce(held, held, (size_t)STAGES * KINDS, GYRE_UINT64, GYRE_OP(GYRE_MAX), comm));
    MP_OK(plan_trainer(&recipe, &how, 0, planned));
    for (size_t p = 0; p < recipe.layout.pp; p++)
        for (int k = 0; k < KINDS; k++) {
            const size_t plan = k < ACTIVATIONS ? planned[p].store[k] : planned[p].activations;
            MP_CHECK(plan == held[p][k], "%s of stage %zu: %zu bytes planned, %llu held",
                     k < ACTIVATIONS ? optim_memory_name((optim_memory_t)k) : "activations", p, plan,
                     (unsigned long long)held[p][k]);
        }
}

static curve_t train(gyre_comm_t *comm, const model_config_t *shape, const pipe_layout_t *layout,
                     model_recompute_t recompute, model_graphs_t graphs, model_precision_t precision,
                     size_t batch, size_t leaf, base_device_kind_t device)
{
    const pipe_train_config_t config = {
        .model = *shape,
        .layout = *layout,
        .batch = {.batch = batch, .leaf = leaf},
        .zero = {.bucket_bytes = 8192,
                 .adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                 .clip = 1.0},
        .precision = precision,
        .recompute = recompute,
        .offload_activations = recompute == MODEL_RECOMPUTE_FULL && device == BASE_CUDA,
        .graphs = graphs,
        .device = {.kind = device},
        .seed = SEED};
    curve_t curve = {0};
    pipe_train_t *run;
    uint64_t step = 0, valid = 1000;
    unsigned asked;
    MP_OK(create_train(comm, &config, &run));
    if (device == BASE_CUDA)
        check_planned(comm, &config, run);
    MP_OK(optim_zero_init(pipe_train_zero(run), SEED));
    for (; step < STEPS; step++) {
        pipe_train_step_t out = {0};
        if (step == 1) /* its result is not kept */
            MP_OK(pipe_train_evaluate(run, fetch, &valid, EVALUATED, NULL, &asked, &curve.valid));
        MP_OK(pipe_train_step(run, step, fetch, &step, 0.01, &out));
        curve.loss[step] = out.loss;
        curve.norm[step] = out.zero.norm;
        curve.balance[step] = shape->experts ? out.balance : 0.0;
        curve.dropped[step] = shape->experts ? out.dropped : 0.0;
    }
    MP_OK(pipe_train_evaluate(run, fetch, &valid, EVALUATED, NULL, &asked, &curve.valid));
    MP_OK(optim_zero_verify(pipe_train_zero(run)));
    MP_OK(optim_zero_digest(pipe_train_zero(run), &curve.digest));
    pipe_train_destroy(run);
    return curve;
}

static void near(const curve_t *gpu, const curve_t *cpu)
{
    for (size_t i = 0; i < STEPS; i++)
        MP_CHECK(fabs(gpu->loss[i] - cpu->loss[i]) <= 1e-5 * cpu->loss[i],
                 "step %zu: loss %.9g, the CPU's is %.9g", i, gpu->loss[i], cpu->loss[i]);
    for (size_t i = 0; i < STEPS; i++)
        MP_CHECK(gpu->dropped[i] == cpu->dropped[i] &&
                     fabs(gpu->balance[i] - cpu->balance[i]) <= 1e-5 * cpu->balance[i],
                 "step %zu: balance loss %.9g, %g dropped; on the CPU %.9g, %g", i, gpu->balance[i],
                 gpu->dropped[i], cpu->balance[i], cpu->dropped[i]);
    MP_CHECK(cpu->loss[STEPS - 1] < cpu->loss[0], "nothing is learned: %g, then %g", cpu->loss[0],
             cpu->loss[STEPS - 1]);
    MP_CHECK(fabs(gpu->valid - cpu->valid) <= 1e-5 * cpu->valid, "validation: %.9g, the CPU's is %.9g",
             gpu->valid, cpu->valid);
}

/* Whether this layout runs. Of two ranks with two sequences to a gradient the first does, and check_uneven
 * has ZeRO 3; with TEST_LONG=1 all. */
static int wanted(size_t i, const model_config_t *shape, size_t ranks, size_t leaf)
{
    return tried[i].ranks == ranks && tried[i].shape == shape &&
           (leaf == 1 || ranks != 2 || i == 0 || getenv("TEST_LONG"));
}

/* What rank 0 has alone, and all layouts of this shape and precision against it. */
static void check_shape(gyre_comm_t *world, gyre_comm_t *alone, const model_config_t *shape, int half,
                        size_t leaf)
{
    static const pipe_layout_t one = {.tp = 1, .pp = 1, .dp = 1, .micro_batch = 2};
    const model_precision_t precision = half ? MODEL_BFLOAT16 : MODEL_FLOAT32;
    size_t ranks = (size_t)gyre_comm_size(world), tries = 0;
    curve_t want = {0};
    for (size_t i = (size_t)half; i < sizeof tried / sizeof *tried; i += 2)
        tries += (size_t)wanted(i, shape, ranks, leaf);
    if (tries == 0)
        return;
    if (gyre_comm_rank(world) == 0) {
        want = train(alone, shape, &one, MODEL_RECOMPUTE_NONE, MODEL_GRAPHS_OFF, precision, BATCH, leaf,
                     BASE_CUDA);
        if (!half) {
            const curve_t cpu = train(alone, shape, &one, MODEL_RECOMPUTE_NONE, MODEL_GRAPHS_OFF, precision,
                                      BATCH, leaf, BASE_HOST);
            near(&want, &cpu);
        }
    }
    MP_OK(gyre_broadcast(&want, &want, sizeof want / sizeof(double), GYRE_FLOAT64, 0, world));
    for (size_t i = (size_t)half; i < sizeof tried / sizeof *tried; i += 2) {
        pipe_layout_t layout = tried[i].layout;
        if (!wanted(i, shape, ranks, leaf))
            continue;
        layout.micro_batch = layout.micro_batch < leaf ? leaf : layout.micro_batch;
        const curve_t got = train(world, shape, &layout, tried[i].recompute, tried[i].graphs, precision,
                                  BATCH, leaf, BASE_CUDA);
        for (size_t k = 0; k < STEPS; k++)
            MP_CHECK(memcmp(&got.loss[k], &want.loss[k], sizeof(double)) == 0 &&
                         memcmp(&got.norm[k], &want.norm[k], sizeof(double)) == 0,
                     "layout %zu, %zu to a gradient, step %zu: loss %a, norm %a; alone %a, %a", i, leaf, k,
                     got.loss[k], got.norm[k], want.loss[k], want.norm[k]);
        MP_CHECK(memcmp(got.balance, want.balance, sizeof got.balance) == 0 &&
                     memcmp(got.dropped, want.dropped, sizeof got.dropped) == 0,
                 "layout %zu: balance loss %a, %g dropped; alone %a, %g", i, got.balance[0], got.dropped[0],
                 want.balance[0], want.dropped[0]);
        MP_CHECK(memcmp(&got.valid, &want.valid, sizeof(double)) == 0, "layout %zu: validation %a, alone %a",
                 i, got.valid, want.valid);
        MP_CHECK(got.digest == want.digest, "layout %zu: other weights than one rank's", i);
    }
}

/* Shares of 4 and of 2 sequences, of which one is no whole micro-batch: the other rank waits for it, and
 * not the other way round. */
static void check_uneven(gyre_comm_t *world, gyre_comm_t *alone)
{
    enum { UNEVEN = 6, LEAF = 2 };
    static const pipe_layout_t one = {.tp = 1, .pp = 1, .dp = 1, .micro_batch = LEAF},
                               two = {.tp = 1, .pp = 1, .dp = 2, .zero = 3, .micro_batch = 4};
    curve_t want = {0};
    if (gyre_comm_rank(world) == 0)
        want = train(alone, &dense, &one, MODEL_RECOMPUTE_NONE, MODEL_GRAPHS_OFF, MODEL_FLOAT32, UNEVEN, LEAF,
                     BASE_CUDA);
    MP_OK(gyre_broadcast(&want, &want, sizeof want / sizeof(double), GYRE_FLOAT64, 0, world));
    const curve_t got = train(world, &dense, &two, MODEL_RECOMPUTE_NONE, MODEL_GRAPHS_ON, MODEL_FLOAT32,
                              UNEVEN, LEAF, BASE_CUDA);
    MP_CHECK(memcmp(&got, &want, sizeof got) == 0,
             "uneven shares: loss %a, norm %a, validation %a; alone %a, %a, %a", got.loss[STEPS - 1],
             got.norm[STEPS - 1], got.valid, want.loss[STEPS - 1], want.norm[STEPS - 1], want.valid);
}

int main(void)
{
    gyre_comm_t *world, *alone;
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    MP_OK(gyre_comm_split(world, gyre_comm_rank(world), 0, &alone));
    for (int round = 0; round < 3; round++) {
        const int half = round == 1;
        const size_t leaf = round == 2 ? 2 : 1;
        MP_OK(base_settings_set(SET_CUBLASLT, half ? NULL : "off", "the test"));
        check_shape(world, alone, &dense, half, leaf);
        if (leaf == 1 || gyre_comm_size(world) == 4) /* one layout, for the time that the others take */
            check_shape(world, alone, &experts, half, leaf);
    }
    if (gyre_comm_size(world) == 2)
        check_uneven(world, alone);
    MP_OK(gyre_comm_destroy(alone));
    MP_OK(gyre_finalize(world));
    return 0;
}
