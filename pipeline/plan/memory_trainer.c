/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/memory_trainer.c: what gyre-train itself will hold, by the plans of its parts: of its
 * optimiser (optim/store/zero.h), of the stages of its layers (model/network/stage/stage.h), and of the
 * pipeline's boundary tensors (pipeline/schedules/program.h). */
#include "pipeline/plan/memory_trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/gpu/stage/stage.h"
#include "pipeline/schedules/program.h"

/* A run, and what all its stages have in common. */
typedef struct {
    const pipe_recipe_t *recipe;
    const plan_trainer_t *how;
    optim_zero_config_t zero;
    int stored;   /* as of plan_trainer */
    size_t micro; /* sequences of a micro-batch */
    pipe_schedule_t *step, *evaluation;
    model_params_t *whole;
    model_adapters_t *adapters; /* NULL: none are trained */
} run_t;

static optim_zero_config_t store_config(const pipe_recipe_t *r, const plan_trainer_t *how)
{
    optim_zero_config_t c = {.stage = r->layout.zero,
                             .bucket_bytes = how->bucket_bytes,
                             .precision = r->precision.type,
                             .grad16 =
                                 r->precision.type != MODEL_FLOAT32 && r->precision.grad == r->precision.type,
                             .keep = how->keep,
                             .adamw = {.beta1 = r->optimizer.beta1,
                                       .beta2 = r->optimizer.beta2,
                                       .epsilon = r->optimizer.eps,
                                       .weight_decay = r->optimizer.weight_decay},
                             .muon = r->optimizer.muon,
                             .momentum = r->optimizer.momentum,
                             .clip = r->optimizer.clip,
                             .on_device = how->device,
                             .offload = how->offload ? "." : NULL};
    c.ep = pipe_layout_experts(&r->layout);
    return c;
}

/* ---- weights, gradients, optimiser state --------------------------------------------------------------- */

/* Data-parallel rank `rank`, of a run whose share is in `zero`. factors: of the adapters, or NULL. again: the
 * share is that of the rank before, so that only moments can be more than its. */
static gyre_status_t predict_replica(const run_t *run, const optim_zero_config_t *zero, size_t rank,
                                     int again, const model_params_t *local, const model_params_t *factors,
                                     size_t bytes[OPTIM_MEMORY_KINDS])
{
    const size_t replicas = pipe_layout_replicas(&run->recipe->layout);
    memset(bytes, 0, OPTIM_MEMORY_KINDS * sizeof *bytes);
    if (again && !factors)
        return optim_zero_predict_moments(local, zero, replicas, rank, &bytes[OPTIM_MEMORY_MOMENTS]);
    const optim_lora_config_t lora = {.adapters = run->adapters, .weights = local, .factors = factors};
    return factors ? optim_lora_predict(&lora, zero, replicas, rank, bytes)
                   : optim_zero_predict(local, zero, replicas, rank, 1, bytes, NULL);
}

static int same_share(const optim_part_t *a, const optim_part_t *b)
{
    return a->count == b->count && a->run == b->run && a->blocks == b->blocks &&
           a->block_group == b->block_group;
}

/* Of each kind the most that a rank holds. Ranks differ in their shares of the batch and, with Muon, in the
 * matrices of which they have first moments alone. Else the first has the largest shard of each bucket
 * (optim/store/shard.h). */
static gyre_status_t predict_replicas(const run_t *run, const model_params_t *local,
                                      const model_params_t *factors, size_t bytes[OPTIM_MEMORY_KINDS])
{
    const pipe_layout_t *l = &run->recipe->layout;
    const optim_batch_t *batch = &run->recipe->batch;
    const int spreads = pipe_layout_spreads(l, batch);
    optim_part_t last = {0};
    gyre_status_t status = GYRE_OK;
    memset(bytes, 0, OPTIM_MEMORY_KINDS * sizeof *bytes);
    for (size_t rank = 0; status == GYRE_OK && rank < pipe_layout_replicas(l); rank++) {
        const optim_part_t part = pipe_layout_part(l, batch, rank / pipe_layout_context(l), spreads);
        optim_zero_config_t zero = run->zero;
        size_t here[OPTIM_MEMORY_KINDS];
        const int again = rank > 0 && same_share(&part, &last);
        if (again && !zero.muon)
            continue;
        optim_zero_share(&zero, batch, &part);
        status = predict_replica(run, &zero, zero.muon ? rank : 0, again, local, factors, here);
        for (int k = 0; status == GYRE_OK && k < OPTIM_MEMORY_KINDS; k++)
            bytes[k] = base_max_size(bytes[k], here[k]);
        last = part;
    }
    return status;
}

static gyre_status_t predict_store(const run_t *run, const model_slice_t *slice,
                                   size_t bytes[OPTIM_MEMORY_KINDS])
{
    model_params_t *local = NULL, *factors = NULL;
    gyre_status_t status = model_params_slice(run->whole, slice, &local);
    if (status == GYRE_OK && run->adapters)
        status = model_params_slice(run->adapters->table, slice, &factors);
    if (status == GYRE_OK)
        status = predict_replicas(run, local, factors, bytes);
    model_params_destroy(factors);
    model_params_destroy(local);
    return status;
}

/* ---- activations --------------------------------------------------------------------------------------- */

/* As pipeline/train/make.c makes it, of chunk c of the pipeline's rank. */
static model_stage_config_t stage_config(const run_t *run, size_t rank, size_t c)
{
    const pipe_layout_t *l = &run->recipe->layout;
    const size_t stage = (size_t)pipe_stage_of(&run->step->shape, (int)rank, (int)c);
    const size_t here = base_max_size(1, run->recipe->batch.parts) / pipe_layout_context(l);
    model_stage_config_t config = {.embed = stage == 0,
                                   .head = stage + 1 == pipe_layout_stages(l),
                                   .slots = pipe_schedule_in_flight(run->step, rank, c) * run->micro * here,
                                   .together = run->micro * here,
                                   .grad_sequences = optim_batch_complete(&run->recipe->batch).leaf,
                                   .recompute = run->recipe->recompute,
                                   .offload = run->how->away,
                                   .stages = l->chunks,
                                   .precision = run->recipe->precision.type,
                                   .matmul_bf16 = run->how->matmul_bf16,
                                   .split = pipe_kind_splits(l->schedule),
                                   .parts = run->recipe->batch.parts,
                                   .parts_here = here,
                                   .ring = l->ring,
                                   .ep = pipe_layout_experts(l),
                                   .threads = base_max_size(1, run->how->threads)};
    pipe_layout_layers(l, run->recipe->model.layers, stage, &config.first, &config.layers);
    return config;
}

/* Boundary tensors of `elements` of `size` bytes per sequence. */
static gyre_status_t boundary_bytes(const pipe_schedule_t *schedule, size_t rank, size_t sequences,
                                    size_t elements, size_t size, size_t *bytes)
{
    pipe_program_t program;
    size_t slot;
    gyre_status_t status = pipe_program_build(schedule, (int)rank, &program);
    if (status != GYRE_OK)
        return status;
    status = pipe_program_bytes(&program, sequences * elements, size, &slot, bytes);
    pipe_program_free(&program);
    return status;
}

static gyre_status_t predict_activations(const run_t *run, size_t rank, size_t *bytes)
{
    const pipe_layout_t *l = &run->recipe->layout;
    const model_tp_t tp = {.size = l->tp, .sequence = l->sequence};
    const size_t size =
        run->how->device && run->recipe->precision.type != MODEL_FLOAT32 ? sizeof(uint16_t) : sizeof(float);
    size_t boundary = 0, step = 0, evaluation = 0;
    gyre_status_t status = GYRE_OK;
    *bytes = 0;
    for (size_t c = 0; status == GYRE_OK && c < l->chunks; c++) {
        const model_stage_config_t stage = stage_config(run, rank, c);
        size_t kept = 0, workspace = 0;
        status = (run->how->device ? model_cuda_stage_plan : model_stage_plan_f32)(
            &run->whole->config, &tp, &stage, &kept, &workspace, &boundary);
        boundary *= stage.parts_here;
        if (status == GYRE_OK && (!base_add(*bytes, kept, bytes) || !base_add(*bytes, workspace, bytes)))
            status = gyre_fail(GYRE_ERR_OVERFLOW, "the activations of stage %zu are more than can be counted",
                               rank);
    }
    if (status == GYRE_OK)
        status = boundary_bytes(run->step, rank, run->micro, boundary, size, &step);
    if (status == GYRE_OK)
        status = boundary_bytes(run->evaluation, rank, pipe_layout_evaluated_together(l), boundary, size,
                                &evaluation);
    *bytes += step + evaluation;
    return status;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Layers of a rank that has no other rows, and none of the first layers, which may lack experts; 0: it has
 * some. */
static size_t plain_layers(const run_t *run, size_t rank)
{
    size_t layers = 0;
    for (size_t c = 0; c < run->recipe->layout.chunks; c++) {
        const model_stage_config_t stage = stage_config(run, rank, c);
        if (stage.embed || stage.head || stage.first < run->recipe->model.dense_first)
            return 0;
        layers += stage.layers;
    }
    return layers;
}

static gyre_status_t predict_slice(const run_t *run, size_t rank, size_t bytes[OPTIM_MEMORY_KINDS])
{
    const pipe_layout_t *l = &run->recipe->layout;
    unsigned char *has = calloc(run->recipe->model.layers, 1);
    if (!has)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu layers", run->recipe->model.layers);
    model_slice_t slice = {.tp_size = l->tp, .ep_size = l->ep, .has = has};
    for (size_t c = 0; c < l->chunks; c++) {
        const model_stage_config_t stage = stage_config(run, rank, c);
        memset(has + stage.first, 1, stage.layers);
        slice.embed |= stage.embed;
        slice.head |= stage.head;
    }
    gyre_status_t status = predict_store(run, &slice, bytes);
    free(has);
    return status;
}

static gyre_status_t predict_rank(const run_t *run, size_t rank, plan_held_t *held)
{
    const size_t plain = rank > 0 ? plain_layers(run, rank) : 0;
    plan_held_t *own = &held[rank];
    gyre_status_t status = GYRE_OK;
    if (run->stored)
        ; /* it is there */
    else if (plain > 0 && plain_layers(run, rank - 1) == plain)
        memcpy(own->store, held[rank - 1].store, sizeof own->store);
    else
        status = predict_slice(run, rank, own->store);
    if (status == GYRE_OK)
        status = predict_activations(run, rank, &own->activations);
    own->total = own->activations;
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        own->total += own->store[k];
    return status;
}

static gyre_status_t make_schedules(run_t *run)
{
    const pipe_layout_t *l = &run->recipe->layout;
    const size_t longest = pipe_layout_longest(l, &run->recipe->batch),
                 evaluated = pipe_layout_evaluated_together(l);
    run->micro = base_min_size(l->micro_batch, base_max_size(1, longest));
    const pipe_shape_t step = pipe_layout_shape(l, (longest + run->micro - 1) / run->micro, 0),
                       evaluation = pipe_layout_shape(l, (PIPE_EVALUATED + evaluated - 1) / evaluated, 1);
    gyre_status_t status = pipe_schedule_create(&step, &run->step);
    return status == GYRE_OK ? pipe_schedule_create(&evaluation, &run->evaluation) : status;
}

gyre_status_t plan_trainer(const pipe_recipe_t *recipe, const plan_trainer_t *how, int stored,
                           plan_held_t *held)
{
    run_t run = {.recipe = recipe, .how = how, .zero = store_config(recipe, how), .stored = stored};
    gyre_status_t status = model_params_create(&recipe->model, &run.whole);
    if (status == GYRE_OK && how->freeze)
        status = model_params_freeze(run.whole, how->freeze);
    if (status == GYRE_OK && how->lora.rank > 0)
        status = model_adapters_create(run.whole, &how->lora, &run.adapters);
    if (status == GYRE_OK)
        status = make_schedules(&run);
    for (size_t rank = 0; status == GYRE_OK && rank < recipe->layout.pp; rank++)
        status = predict_rank(&run, rank, held);
    pipe_schedule_destroy(run.step);
    pipe_schedule_destroy(run.evaluation);
    model_adapters_destroy(run.adapters);
    model_params_destroy(run.whole);
    return status;
}

size_t plan_trainer_worst(const plan_held_t *held, size_t stages)
{
    size_t worst = 0;
    for (size_t s = 1; s < stages; s++)
        worst = held[s].total > held[worst].total ? s : worst;
    return worst;
}
