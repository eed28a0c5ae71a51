/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/setup.c: from options to a run that is ready for its first step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/log.h"
#include "model/formats/weights.h"
#include "model/network/hf_config.h"
#include "model/network/stage/flops.h"
#include "model/formats/hf.h"
#include "pipeline/agree/agree.h"
#include "pipeline/load/export.h"
#include "pipeline/train/host/memory.h"
#include "pipeline/train/peak.h"
#include "pipeline/train/run.h"
#include "pipeline/train/text.h"

/* ---- the model's shape --------------------------------------------------------------------------------- */

static gyre_status_t read_config(const char *path, size_t seq, model_config_t *shape)
{
    json_t *object;
    gyre_status_t status = base_json_read(path, &object);
    if (status != GYRE_OK)
        return status;
    status = model_config_from_json(object, path, seq, shape);
    json_decref(object);
    return status;
}

static gyre_status_t read_recipe(const train_config_t *options, model_config_t *shape)
{
    pipe_recipe_t recipe;
    gyre_status_t status = train_recipe_read(options, &recipe);
    if (status == GYRE_OK)
        *shape = recipe.model;
    return status;
}

/* --load's checkpoint. */
static gyre_status_t open_checkpoint(train_run_t *run, size_t seq)
{
    pipe_source_config_t config = run->chosen;
    config.seq = seq;
    config.leaves = run->options->leaves;
    config.precision = -1;
    gyre_status_t status = pipe_source_open(&config, &run->source);
    if (status == GYRE_OK)
        run->shape = *pipe_source_model(run->source);
    return status;
}

/* Hugging Face's config.json: --model, that in a recipe, or that in the folder which --load names, if it is
 * not a checkpoint. Flags that speak of the shape contradict it, but for --seq, which may be shorter. */
static gyre_status_t shape_of_file(train_run_t *run)
{
    static const char *const others[] = {"layers", "hidden", "heads", "vocab", "load"};
    const train_config_t *options = run->options;
    const model_data_t *data = run->data;
    model_config_t *shape = &run->shape;
    const char *path = options->recipe ? options->recipe : options->model ? options->model : options->load;
    const char *flag = options->recipe ? "recipe" : options->model ? "model" : "load";
    size_t seq = train_config_given(options, "seq") ? options->seq : 0;
    gyre_status_t status = options->recipe                   ? read_recipe(options, shape)
                           : options->model                  ? read_config(path, seq, shape)
                           : pipe_source_is_checkpoint(path) ? open_checkpoint(run, seq)
                                                             : model_hf_config(path, seq, shape);
    for (size_t i = 0; status == GYRE_OK && i < sizeof others / sizeof others[0]; i++)
        if (train_config_given(options, others[i]) && strcmp(others[i], flag) != 0)
            status = gyre_fail(GYRE_ERR_INVALID, "--%s and --%s exclude each other: %s describes the model",
                               others[i], flag, path);
    if (status == GYRE_OK && data->vocab > shape->vocab)
        status = gyre_fail(GYRE_ERR_INVALID, "%s has token ids up to %zu, but the vocabulary of %s is %zu",
                           options->data, data->vocab - 1, path, shape->vocab);
    if (status == GYRE_OK && seq > shape->seq)
        status = gyre_fail(GYRE_ERR_INVALID, "--seq %zu: %s has %zu positions", seq, path, shape->seq);
    if (status == GYRE_OK && seq > 0)
        shape->seq = seq;
    return status;
}

/* The checkpoint's shape where --load is given, else the flags' and the data's. A flag that contradicts the
 * checkpoint is an error. */
static gyre_status_t find_shape(train_run_t *run)
{
    const train_config_t *options = run->options;
    const model_data_t *data = run->data;
    model_config_t *shape = &run->shape;
    gyre_status_t status = GYRE_OK;
    if (options->recipe || options->model || train_is_folder(options->load))
        return shape_of_file(run);
    *shape = (model_config_t){.vocab = options->vocab ? options->vocab : data->vocab,
                              .seq = options->seq,
                              .layers = options->layers,
                              .hidden = options->hidden,
                              .heads = options->heads,
                              .leaves = options->leaves};
    if (options->load) {
        model_config_t found;
        status = pipe_source_check_file(options->load);
        if (status == GYRE_OK)
            status = model_checkpoint_config(options->load, &found);
        if (status != GYRE_OK)
            return status;
        if (found.heads == 0 && !train_config_given(options, "heads"))
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s does not say how many attention heads its model has: give --heads",
                             options->load);
        if (found.heads == 0)
            found.heads = shape->heads;
        if (train_config_given(options, "seq") && shape->seq < found.seq)
            found.seq = shape->seq; /* the first positions alone */
        const struct {
            const char *name;
            size_t flag, file;
        } pair[] = {{"vocab", shape->vocab, found.vocab},
                    {"seq", shape->seq, found.seq},
                    {"layers", shape->layers, found.layers},
                    {"hidden", shape->hidden, found.hidden},
                    {"heads", shape->heads, found.heads}};
        for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++)
            if (train_config_given(options, pair[i].name) && pair[i].flag != pair[i].file)
                return gyre_fail(GYRE_ERR_INVALID, "--%s is %zu, but the model in %s has %zu: leave --%s out",
                                 pair[i].name, pair[i].flag, options->load, pair[i].file, pair[i].name);
        *shape = found;
    }
    if (shape->vocab == 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s does not say how large its vocabulary is: give --vocab N (GPT-2's is 50257)",
                         options->data);
    return model_config_check(shape);
}

static gyre_status_t complete_shape(const train_config_t *options, model_config_t *shape)
{
    if (options->leaves > 0)
        shape->leaves = options->leaves;
    else if (shape->leaves == 0)
        shape->leaves = model_config_leaves(shape);
    if (options->leaves > 0)
        shape->vocab_padded = 0; /* anew, for these leaves */
    if (train_config_given(options, "dropout"))
        shape->dropout = options->dropout;
    if (train_config_given(options, "z-loss"))
        shape->z_loss = options->z_loss;
    if (train_config_given(options, "router-z-loss"))
        shape->router_z = options->router_z;
    gyre_status_t status = model_config_check(shape);
    *shape = model_config_complete(shape);
    return status;
}

/* ---- the job ------------------------------------------------------------------------------------------- */

/* GPUs are dealt out to the ranks of a host one by one; ranks beyond their number share. It is this thread's
 * from here on, so that no call opens a context on the first one. */
static gyre_status_t choose_device(train_run_t *run)
{
    int count = base_device_count(BASE_CUDA);
    if (!run->options->device || count == 0)
        return GYRE_OK;
    run->device = (base_device_t){.kind = BASE_CUDA, .index = gyre_comm_local_rank(run->comm) % count};
    return base_device_use(run->device);
}

gyre_status_t train_join(train_run_t *run, gyre_comm_t *comm)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    if (run->options->progress_thread)
        config.progress_thread = 1;
    run->borrowed = comm != NULL;
    gyre_status_t status =
        comm ? gyre_comm_split(comm, 0, gyre_comm_rank(comm), &run->comm) : gyre_init(&config, &run->comm);
    if (status == GYRE_OK) {
        run->rank = gyre_comm_rank(run->comm);
        status = choose_device(run);
    }
    return status;
}

static gyre_status_t open_data(train_run_t *run)
{
    const train_config_t *options = run->options;
    const model_data_config_t config = {.path = options->data,
                                        .valid_path = options->valid_data,
                                        .valid_fraction = options->valid_fraction,
                                        .format = (model_tokens_format_t)options->data_format,
                                        .sampling = (model_sampling_t)options->sampling};
    gyre_status_t status = model_data_open(&config, &run->data);
    if (status == GYRE_OK && options->checkpoint)
        status = model_data_identify(run->data);
    return status;
}

/* Rank 0: the tokenizer of the data, and whether the model's ids are of it. */
static gyre_status_t check_text(train_run_t *run)
{
    const train_config_t *options = run->options;
    gyre_status_t status = train_text_open(options, run->data, &run->tokenizer);
    if (status == GYRE_OK)
        status = train_text_identify(run->data, run->tokenizer, &run->ids);
    if (status != GYRE_OK)
        return status;
    return run->source ? train_text_compare(options, run->data, run->shape.vocab, &run->ids,
                                            pipe_source_learned(run->source))
                       : train_text_check(options, run->data, &run->shape, run->tokenizer);
}

/* What each rank does for itself, without a word to the others. */
static gyre_status_t prepare(void *user)
{
    train_run_t *run = user;
    train_config_t *options = run->options;
    gyre_status_t status = open_data(run);
    if (status == GYRE_OK)
        status = find_shape(run);
    if (status == GYRE_OK)
        status = complete_shape(options, &run->shape);
    options->vocab = run->shape.vocab;   /* the data may have said it */
    options->layers = run->shape.layers; /* --load or --model may have given it */
    options->hidden = run->shape.hidden;
    options->heads = run->shape.heads;
    options->seq = run->shape.seq;
    options->leaves = run->shape.leaves;
    options->dropout = run->shape.dropout;
    options->z_loss = run->shape.z_loss;
    options->router_z = run->shape.router_z;
    if (status == GYRE_OK)
        status = train_check_input(run);
    if (status == GYRE_OK && run->rank == 0)
        status = check_text(run);
    return status == GYRE_OK && run->rank == 0 ? train_open_outputs(run) : status;
}

gyre_status_t train_by_all(train_run_t *run, gyre_status_t (*step)(void *run))
{
    return pipe_by_all(run->comm, step, run, &run->agreed);
}

/* The environment may tell rank 0 only that the job was started anew: its word counts. */
static gyre_status_t decide(train_run_t *run)
{
    uint64_t word = (uint64_t)run->resuming;
    gyre_status_t status = gyre_broadcast(&word, &word, 1, GYRE_UINT64, 0, run->comm);
    run->resuming = word != 0;
    return status;
}

/* ---- the parts of a run that a checkpoint holds -------------------------------------------------------- */

train_parts_t train_parts_of(train_run_t *run)
{
    return (train_parts_t){.comm = run->comm,
                           .options = run->options,
                           .folder = run->folder ? run->folder : run->options->checkpoint,
                           .data = run->data,
                           .params = pipe_train_table(run->train),
                           .zero = pipe_train_zero(run->train),
                           .base = run->base,
                           .tokenizer = run->ids,
                           .origin = run->source ? pipe_source_began(run->source) : run->options->load};
}

/* ---- weights to begin with ----------------------------------------------------------------------------- */

typedef struct {
    const model_params_t *whole;
    const pipe_source_t *checkpoint; /* NULL: file */
    model_hf_t *file;
    model_peft_t *adapters; /* NULL: none */
} source_t;

/* A rank's part of a row. */
static gyre_status_t load_range(void *user, const optim_zero_range_t *range)
{
    const source_t *source = user;
    optim_zero_no_moments(range);
    if (source->checkpoint)
        return pipe_source_range(source->checkpoint, source->whole, range->global, range->first, range->count,
                                 range->weight);
    return model_hf_read(source->file, &source->whole->row[range->global], range->first, range->count,
                         range->weight);
}

/* What --load gives its weights to. */
static optim_zero_t *weights_of(train_run_t *run)
{
    optim_zero_t *base = pipe_train_base(run->train);
    return base ? base : pipe_train_zero(run->train);
}

static gyre_status_t load(void *user)
{
    train_run_t *run = user;
    source_t source = {.whole = pipe_train_whole(run->train), .checkpoint = run->source};
    const size_t ranks = (size_t)gyre_comm_size(run->comm);
    gyre_status_t status = run->source
                               ? pipe_source_verify(run->source, source.whole, (size_t)run->rank, ranks)
                               : model_hf_open(run->options->load, source.whole, &source.file);
    if (status == GYRE_OK && source.file)
        model_hf_report(source.file);
    if (status == GYRE_OK && run->options->load_adapters) {
        status = source.file
                     ? model_peft_open(run->options->load_adapters, source.whole, &source.adapters)
                     : gyre_fail(GYRE_ERR_INVALID,
                                 "--load-adapters %s: the weights in %s are a checkpoint's: write them "
                                 "as a folder first (gyre-train --export)",
                                 run->options->load_adapters, run->options->load);
        if (status == GYRE_OK)
            model_hf_merge(source.file, source.adapters);
    }
    if (status == GYRE_OK)
        status = optim_zero_state(weights_of(run), OPTIM_STATE_LOAD, load_range, &source);
    model_hf_close(source.file);
    model_peft_close(source.adapters);
    return status;
}

gyre_status_t train_resume_run(void *user)
{
    train_run_t *run = user;
    const train_parts_t parts = train_parts_of(run);
    train_state_t state;
    gyre_status_t status = train_resume(&parts, &state, &run->resumed);
    if (status != GYRE_OK || !run->resumed)
        return status;
    run->next = run->saved_step = state.step;
    run->ramp_at = (optim_ramp_at_t){.steps = state.step, .sequences = state.sequences};
    run->before = state.seconds;
    run->progress = state.progress;
    run->record.first_val = state.first_val;
    run->record.final_val = state.final_val;
    memcpy(run->record.set, state.set, sizeof state.set);
    run->record.id = state.id;
    run->spike = state.spike;
    run->record.spikes = state.spike.skipped;
    run->record.unlearned = state.unlearned;
    run->scaler = state.scaler;
    run->unvalidated = state.unvalidated;
    return GYRE_OK;
}

gyre_status_t train_open_saver(void *user)
{
    train_run_t *run = user;
    const train_parts_t parts = train_parts_of(run);
    return train_save_open(&parts, run->next, run->id, &run->saver);
}

/* Rank 0 writes --save. */
static gyre_status_t open_origin(void *user)
{
    train_run_t *run = user;
    const model_params_t *whole = pipe_train_whole(run->train);
    if (run->rank != 0)
        return GYRE_OK;
    return run->source ? pipe_source_origin(run->source, NULL, whole, &run->origin)
                       : model_hf_origin_open(run->options->load, whole, &run->origin);
}

static gyre_status_t plan_parts(void *user)
{
    train_run_t *run = user;
    return pipe_train_plan(run->train);
}

/* Whether this rank's host has the memory for the run, before it is taken. Collective. */
static gyre_status_t check_memory(void *user)
{
    train_run_t *run = user;
    uint64_t bytes;
    gyre_status_t need = pipe_train_need(run->train, &bytes), status = train_host_check(run->comm, bytes);
    return need == GYRE_OK ? status : need;
}

static gyre_status_t make_parts(void *user)
{
    train_run_t *run = user;
    return pipe_train_make(run->train);
}

static gyre_status_t make_train(train_run_t *run)
{
    const pipe_train_config_t config = train_engine_config(run);
    gyre_status_t status = pipe_train_begin(run->comm, &config, &run->train);
    if (status == GYRE_OK)
        status = train_by_all(run, plan_parts);
    if (status == GYRE_OK && !run->options->device) /* a device says itself what it cannot give */
        status = train_by_all(run, check_memory);
    if (status == GYRE_OK)
        status = train_by_all(run, make_parts);
    if (status == GYRE_OK)
        status = pipe_train_join(run->train);
    return status == GYRE_OK && run->options->load ? train_by_all(run, open_origin) : status;
}

/* Those of --load, or random ones. */
static gyre_status_t begin_weights(train_run_t *run)
{
    optim_zero_t *zero = weights_of(run);
    base_time_t start = base_now();
    gyre_status_t status =
        run->options->load ? train_by_all(run, load) : pipe_train_init(run->train, zero, run->options->seed);
    if (status == GYRE_OK && run->options->load)
        status = optim_zero_loaded(zero, 0, NULL);
    if (status == GYRE_OK && run->rank == 0)
        log_info("%s weights: %.3f s", run->options->load ? "loaded" : "random",
                 (double)(base_now() - start) * 1e-9);
    return status;
}

/* Weights that stay as they are while their adapters are trained, also when the run goes on. */
static gyre_status_t begin_base(train_run_t *run)
{
    gyre_status_t status = begin_weights(run);
    return status == GYRE_OK ? optim_zero_digest(pipe_train_base(run->train), &run->base) : status;
}

gyre_status_t train_gather_memory(train_run_t *run)
{
    enum { ACTIVATIONS = OPTIM_MEMORY_KINDS, CHECKPOINT, KINDS };
    train_memory_t *memory = &run->record.memory;
    size_t ranks = (size_t)gyre_comm_size(run->comm), bytes[OPTIM_MEMORY_KINDS];
    uint64_t mine[KINDS], *all = calloc(ranks, sizeof mine);
    _Static_assert((int)KINDS <= (int)TRAIN_MEMORY_KINDS, "every kind has a place in the record");
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the memory of %zu ranks", ranks);
    pipe_train_memory(run->train, bytes);
    for (size_t k = 0; k < OPTIM_MEMORY_KINDS; k++) {
        mine[k] = bytes[k];
        memory->kind[k] = optim_memory_name((optim_memory_t)k);
    }
    mine[ACTIVATIONS] = pipe_train_activation_bytes(run->train);
    mine[CHECKPOINT] = optim_saver_bytes(run->saver);
    memory->kind[ACTIVATIONS] = "activations";
    memory->kind[CHECKPOINT] = "checkpoint";
    gyre_status_t status = gyre_all_gather(mine, all, KINDS, GYRE_UINT64, run->comm);
    if (status != GYRE_OK) {
        free(all);
        return status;
    }
    free(memory->bytes);
    memory->bytes = all;
    memory->kinds = KINDS;
    memory->ranks = ranks;
    return GYRE_OK;
}

/* Those of a checkpoint keep their losses. */
static void name_sets(train_run_t *run)
{
    train_record_t *record = &run->record;
    train_set_t then[MODEL_DATA_SETS];
    memcpy(then, record->set, sizeof then);
    memset(record->set, 0, sizeof record->set);
    for (size_t s = 0; s < run->data->sets; s++) {
        train_set_t *set = &record->set[s];
        *set = (train_set_t){.first_val = NAN, .final_val = NAN};
        snprintf(set->name, sizeof set->name, "%s", run->data->set[s].name);
        for (size_t t = 0; *set->name && t < MODEL_DATA_SETS; t++)
            if (strcmp(then[t].name, set->name) == 0)
                *set = then[t];
        record->sets += *set->name != 0;
    }
}

/* What the record and its drawings need in addition to the steps. */
static gyre_status_t set_up_record(train_run_t *run)
{
    const train_config_t *options = run->options;
    train_record_t *record = &run->record;
    const model_flops_t flops = model_flops(&run->shape);
    record->unigram = run->data->unigram_entropy;
    name_sets(run);
    record->ranks = gyre_comm_size(run->comm);
    record->model = &run->shape;
    record->parameters = pipe_train_whole(run->train)->total;
    record->tokens_per_step = options->batch * run->shape.seq;
    record->batch = options->batch;
    record->grows = optim_ramp_sizes(&run->ramp) > 1;
    record->flops_per_step =
        (double)options->batch * model_flops_step(&flops, (double)run->shape.layers, MODEL_RECOMPUTE_NONE);
    record->layout = *pipe_train_layout(run->train);
    record->peak_flops = options->peak_flops;
    if (options->device && base_device_name(run->device, record->device, sizeof record->device) != GYRE_OK)
        snprintf(record->device, sizeof record->device, "unknown"); /* base has logged why */
    gyre_status_t status = train_gather_memory(run);
    if (status == GYRE_OK && !(options->peak_flops > 0.0))
        status = options->device
                     ? train_peak_measure_gpu(run->comm, run->device, (model_precision_t)options->precision,
                                              &record->peak_flops)
                     : train_peak_measure(run->comm, pipe_train_threads(run->train), options->matmul_type,
                                          &record->peak_flops);
    return status;
}

gyre_status_t train_set_up(train_run_t *run)
{
    const train_config_t *options = run->options;
    run->record.first_val = run->record.final_val = NAN;
    run->chosen.path = options->load;
    gyre_status_t status = pipe_source_choose(run->comm, &run->chosen, &run->agreed);
    if (status == GYRE_OK)
        status = train_by_all(run, prepare);
    if (status == GYRE_OK) /* nothing that follows may depend on the options of one rank alone */
        status = train_compare_ranks(run);
    if (status == GYRE_OK && options->checkpoint)
        status = decide(run);
    if (status == GYRE_OK)
        status = make_train(run);
    if (status == GYRE_OK)
        train_choose_sample(run);
    if (status == GYRE_OK && pipe_train_base(run->train))
        status = begin_base(run);
    if (status == GYRE_OK && run->resuming)
        status = train_by_all(run, train_resume_run);
    if (status == GYRE_OK && !run->resumed) /* a checkpoint has all of them */
        status = pipe_train_base(run->train)
                     ? pipe_train_init(run->train, pipe_train_zero(run->train), options->seed)
                     : begin_weights(run);
    if (status == GYRE_OK && options->checkpoint)
        status = train_by_all(run, train_open_saver);
    if (status == GYRE_OK) /* the ranks' files may differ */
        status = pipe_train_verify(run->train);
    if (status != GYRE_OK) {
        optim_lock_leave(run->lock);
        run->lock = NULL;
        if (run->made_checkpoints)
            (void)rmdir(options->checkpoint); /* if it is still empty */
        return status;
    }
    return set_up_record(run);
}
