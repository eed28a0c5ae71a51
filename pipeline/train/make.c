/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/make.c: makes a training engine: groups, slices, stages, store, executors; resizes and
 * ends it. */
#include <gyre/cuda.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"
#include "pipeline/agree/agree.h"
#include "pipeline/train/engine.h"

/* The neighbours in dp that share experts, and those that hold the same. */
static gyre_status_t make_expert_groups(pipe_train_t *train)
{
    const pipe_layout_t *l = &train->layout;
    const pipe_place_t at = train->place;
    const size_t sharing = (at.pp * (l->dp / l->ep) + at.dp / l->ep) * l->tp + at.tp,
                 same = (at.pp * l->ep + at.dp % l->ep) * l->tp + at.tp;
    gyre_status_t status = gyre_comm_split(train->world, (int)sharing, (int)(at.dp % l->ep), &train->ep);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, (int)same, (int)(at.dp / l->ep), &train->edp);
    if (status == GYRE_OK && train->config.zero.muon && l->tp > 1)
        status = gyre_comm_split(train->world, (int)at.pp,
                                 (int)((at.dp / l->ep * l->tp + at.tp) * l->ep + at.dp % l->ep),
                                 &train->experts_plane);
    return status;
}

static gyre_status_t make_groups(pipe_train_t *train)
{
    const pipe_layout_t *l = &train->layout;
    pipe_place_t at = train->place;
    const pipe_shape_t shape = pipe_layout_shape(l, 1, 0);
    int last; /* the pipeline rank of the last stage */
    pipe_place_of(&shape, pipe_stages(&shape) - 1, &last, NULL);
    const size_t replicas = pipe_layout_replicas(l), replica = at.dp * l->cp + at.cp;
    int column = (int)(replica * l->tp + at.tp);
    int tied = !train->config.model.untied && last != 0 && (at.pp == 0 || at.pp == (size_t)last);
    gyre_status_t status =
        gyre_comm_split(train->world, (int)(at.pp * replicas + replica), (int)at.tp, &train->tp);
    const model_config_t model = model_config_complete(&train->config.model);
    const size_t sharing = model_config_sharing(&model, l->tp);
    if (status == GYRE_OK && sharing > 1)
        status = gyre_comm_split(train->tp, (int)(at.tp / sharing), (int)at.tp, &train->keys);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, (int)(at.pp * l->tp + at.tp), (int)replica, &train->dp);
    if (status == GYRE_OK && l->cp > 1)
        status = gyre_comm_split(train->world, (int)((at.pp * l->dp + at.dp) * l->tp + at.tp), (int)at.cp,
                                 &train->cp);
    if (status == GYRE_OK && l->ep > 1)
        status = make_expert_groups(train);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, column, (int)at.pp, &train->pp);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, tied ? column : -1, (int)at.pp, &train->tied);
    if (status == GYRE_OK && train->config.zero.muon && l->tp > 1 && replicas > 1)
        status = gyre_comm_split(train->world, (int)at.pp, column, &train->plane);
    return status;
}

static int in_chunk(const pipe_train_t *train, const model_param_t *row, const chunk_t *chunk, size_t first,
                    size_t layers)
{
    if (row->layer < 0)
        return chunk->embed;
    if ((size_t)row->layer == train->whole->config.layers)
        return chunk->head;
    return (size_t)row->layer >= first && (size_t)row->layer < first + layers;
}

static void chunk_layers(const pipe_train_t *train, size_t c, size_t *first, size_t *layers)
{
    const pipe_shape_t shape = pipe_layout_shape(&train->layout, 1, 0);
    size_t stage = (size_t)pipe_stage_of(&shape, (int)train->place.pp, (int)c);
    pipe_layout_layers(&train->layout, train->whole->config.layers, stage, first, layers);
    train->chunk[c].embed = stage == 0;
    train->chunk[c].head = stage + 1 == pipe_layout_stages(&train->layout);
}

/* This rank's rows, and which of them are which chunk's. */
static gyre_status_t make_slice(pipe_train_t *train)
{
    size_t layers = train->whole->config.layers;
    unsigned char *has = calloc(layers, 1);
    if (!has)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %zu layers", layers);
    model_slice_t slice = {.tp_rank = train->place.tp,
                           .tp_size = train->layout.tp,
                           .ep_rank = train->place.dp % train->layout.ep,
                           .ep_size = train->layout.ep,
                           .has = has};
    for (size_t c = 0; c < train->layout.chunks; c++) {
        size_t first, count;
        chunk_layers(train, c, &first, &count);
        memset(has + first, 1, count);
        slice.embed |= train->chunk[c].embed;
        slice.head |= train->chunk[c].head;
    }
    gyre_status_t status = model_params_slice(train->whole, &slice, &train->local);
    if (status == GYRE_OK && train->config.lora.rank > 0)
        status = train_make_adapters(train, &slice);
    free(has);
    for (size_t c = 0; status == GYRE_OK && c < train->layout.chunks; c++) {
        chunk_t *chunk = &train->chunk[c];
        size_t first, count;
        chunk_layers(train, c, &first, &count);
        for (size_t r = train->local->rows; r-- > 0;)
            if (in_chunk(train, &train->local->row[r], chunk, first, count)) {
                chunk->first = r;
                chunk->rows++;
            }
    }
    return status;
}

gyre_status_t train_make_executor(pipe_train_t *train, const pipe_shape_t *shape, size_t micro,
                                  pipe_executor_t **out)
{
    const pipe_executor_config_t config = {.call = {.forward = train_on_forward,
                                                    .backward = train_on_backward,
                                                    .backward_weight = train_on_backward_weight},
                                           .user = train,
                                           .count = micro * train->boundary,
                                           .type = train->type,
                                           .grad_type = train->type,
                                           .device = train->config.device,
                                           .links = train->links};
    pipe_schedule_t *schedule = NULL;
    gyre_status_t status = pipe_schedule_create(shape, &schedule);
    if (status == GYRE_OK)
        status = pipe_executor_create(train->pp, schedule, &config, out);
    pipe_schedule_destroy(schedule);
    return status;
}

static model_tp_t tp_of(const pipe_train_t *train)
{
    return (model_tp_t){.comm = train->layout.tp > 1 ? train->tp : NULL,
                        .rank = train->place.tp,
                        .size = train->layout.tp,
                        .sequence = train->layout.sequence,
                        .keys = train->keys};
}

static model_stage_config_t stage_config(const pipe_train_t *train, size_t c, model_graphs_t graphs)
{
    const pipe_train_config_t *config = &train->config;
    const chunk_t *chunk = &train->chunk[c];
    const size_t here = train_parts_here(train);
    model_stage_config_t how = {.embed = chunk->embed,
                                .head = chunk->head,
                                .slots = chunk->in_flight * train->layout.micro_batch * here,
                                .together = train->layout.micro_batch * here,
                                .grad_sequences = train->batch.leaf,
                                .recompute = config->recompute,
                                .offload = config->offload_activations,
                                .graphs = graphs,
                                .stages = train->layout.chunks,
                                .precision = config->precision,
                                .matmul_bf16 = config->matmul_bf16,
                                .split = pipe_kind_splits(train->layout.schedule),
                                .seed = config->seed,
                                .documents = config->documents,
                                .parts = train->batch.parts,
                                .parts_here = here,
                                .context = train->cp,
                                .ring = train->layout.ring,
                                .ep = train->layout.ep,
                                .experts = train->ep,
                                .threads = config->threads};
    chunk_layers(train, c, &how.first, &how.layers);
    return how;
}

static gyre_status_t make_stages(pipe_train_t *train, const pipe_train_config_t *config)
{
    const model_tp_t tp = tp_of(train);
    /* a graph is made in the middle of a step, where links' streams wait for other ranks, and that may wait
     * for the device: until it was seen on GPUs, only who insists has graphs in a pipeline */
    const model_graphs_t graphs =
        config->graphs == MODEL_GRAPHS_AUTO && train->layout.pp > 1 ? MODEL_GRAPHS_OFF : config->graphs;
    gyre_status_t status = GYRE_OK;
    const int told = train->whole->config.experts > 0 && train->place.tp == 0,
              z = train->whole->config.z_loss > 0.0 && train->place.tp == 0;
    for (size_t c = 0; status == GYRE_OK && c < train->layout.chunks; c++) {
        chunk_t *chunk = &train->chunk[c];
        const model_stage_config_t how = stage_config(train, c, graphs);
        status = pipe_worker_create(&(pipe_worker_config_t){.params = train->local,
                                                            .tp = &tp,
                                                            .config = &how,
                                                            .store = train_store(train),
                                                            .cuda_store = optim_zero_cuda_store(train->zero),
                                                            .isa = config->isa,
                                                            .gpu = train->gpu,
                                                            .routed = told ? train_on_routing : NULL,
                                                            .z_loss = z ? train_on_z_loss : NULL,
                                                            .user = train},
                                    &chunk->worker);
    }
    if (status == GYRE_OK) {
        train->boundary = pipe_worker_boundary(train->chunk[0].worker) * train_parts_here(train);
        train->type = pipe_worker_type(train->chunk[0].worker);
    }
    return status;
}

static optim_zero_config_t store_config(const pipe_train_t *train)
{
    optim_zero_config_t how = train->config.zero;
    how.stage = train->layout.zero;
    optim_zero_share(&how, &train->batch, &train->part);
    how.precision = train->config.precision;
    how.ep = train->layout.ep;
    return how;
}

static gyre_status_t make_zero(pipe_train_t *train)
{
    optim_zero_config_t how = store_config(train);
    if (train->gpu) {
        how.on_device = 1;
        how.device = train->config.device.index;
        how.stream = pipe_gpu_stream(train->gpu);
    }
    const optim_zero_groups_t groups = {.world = train->world,
                                        .dp = pipe_layout_replicas(&train->layout) > 1 ? train->dp : NULL,
                                        .edp = train->edp,
                                        .tp = train->layout.tp > 1 ? train->tp : NULL,
                                        .tied = train->tied,
                                        .plane = train->plane           ? train->plane
                                                 : train->layout.tp > 1 ? train->tp
                                                                        : train->dp,
                                        .experts_plane =
                                            train->experts_plane ? train->experts_plane : train->dp};
    return train_make_stores(train, &groups, &how);
}

static void find_shares(pipe_train_t *train)
{
    train->longest = pipe_layout_longest(&train->layout, &train->batch);
    train->part = pipe_layout_part(&train->layout, &train->batch, train->place.dp, train->spread);
    train->layout.micro_batch = base_min_size(train->layout.micro_batch, base_max_size(1, train->longest));
}

/* For a micro-batch. */
static gyre_status_t take_sequences(pipe_train_t *train)
{
    size_t micro = train->layout.micro_batch, tokens;
    const model_config_t *shape = &train->whole->config;
    int placed = shape->prefix && shape->pos == MODEL_POS_ROPE;
    if (!base_mul(micro, train->whole->config.seq, &tokens))
        return gyre_fail(GYRE_ERR_OVERFLOW,
                         "micro-batches of %zu sequences of %zu tokens are more than memory can hold", micro,
                         train->whole->config.seq);
    train->sequence = calloc(micro * train_parts_here(train), sizeof *train->sequence);
    train->tokens = calloc(tokens, sizeof *train->tokens);
    train->targets = calloc(tokens, sizeof *train->targets);
    train->positions = placed ? calloc(tokens, sizeof *train->positions) : NULL;
    train->documents = train->config.documents ? calloc(tokens, sizeof *train->documents) : NULL;
    if (!train->sequence || !train->tokens || !train->targets || (placed && !train->positions) ||
        (train->config.documents && !train->documents))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for micro-batches of %zu sequences", micro);
    return GYRE_OK;
}

static void free_sequences(pipe_train_t *train)
{
    free(train->sequence);
    free(train->tokens);
    free(train->targets);
    free(train->positions);
    free(train->documents);
    train->sequence = NULL;
    train->tokens = train->targets = NULL;
    train->positions = train->documents = NULL;
}

static gyre_status_t take_memory(pipe_train_t *train)
{
    train->chunk = calloc(train->layout.chunks, sizeof *train->chunk);
    train->loss = calloc(train->batch.batch * train->batch.parts + WORDS, sizeof *train->loss);
    train->own_loss = calloc(base_max_size(train->batch.batch, PIPE_EVALUATED) * train_parts_here(train),
                             sizeof *train->own_loss);
    return train->chunk && train->loss && train->own_loss
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a batch of %zu sequences", train->batch.batch);
}

static size_t micro_batches_of(const pipe_train_t *train)
{
    return (train->longest + train->layout.micro_batch - 1) / train->layout.micro_batch;
}

static gyre_status_t find_in_flight(pipe_train_t *train)
{
    const pipe_shape_t shape = pipe_layout_shape(&train->layout, micro_batches_of(train), 0);
    pipe_schedule_t *schedule = NULL;
    gyre_status_t status = pipe_schedule_create(&shape, &schedule);
    for (size_t c = 0; status == GYRE_OK && c < train->layout.chunks; c++)
        train->chunk[c].in_flight = pipe_schedule_in_flight(schedule, train->place.pp, c);
    pipe_schedule_destroy(schedule);
    return status;
}

/* What a step works in, for the present batch. */
static gyre_status_t make_parts(pipe_train_t *train)
{
    const pipe_shape_t shape = pipe_layout_shape(&train->layout, micro_batches_of(train), 0);
    gyre_status_t status = take_sequences(train);
    if (status == GYRE_OK)
        status = make_stages(train, &train->config);
    if (status == GYRE_OK)
        status = train_make_executor(train, &shape, train->layout.micro_batch, &train->executor);
    return status;
}

static void free_parts(pipe_train_t *train)
{
    pipe_executor_destroy(train->evaluator);
    pipe_executor_destroy(train->executor);
    train->evaluator = train->executor = NULL;
    for (size_t c = 0; train->chunk && c < train->layout.chunks; c++) {
        pipe_worker_destroy(train->chunk[c].worker);
        train->chunk[c].worker = NULL;
    }
    free_sequences(train);
}

pipe_load_t pipe_train_load(const pipe_train_config_t *config, size_t batch)
{
    return (pipe_load_t){.model = config->model,
                         .batch = optim_batch_sized(&config->batch, batch),
                         .precision = config->precision,
                         .recompute = config->recompute,
                         .grad16 = config->zero.grad16,
                         .keep = config->zero.keep,
                         .offload = config->zero.offload != NULL};
}

gyre_status_t pipe_train_begin(gyre_comm_t *world, const pipe_train_config_t *config, pipe_train_t **out)
{
    size_t ranks = (size_t)gyre_comm_size(world);
    const pipe_load_t load = pipe_train_load(config, config->batch.batch);
    const pipe_layout_t layout = pipe_layout_complete(&config->layout, ranks, &load);
    gyre_status_t status = model_config_check(&config->model);
    if (status == GYRE_OK)
        status = pipe_layout_check(&layout, &config->model, ranks, &config->batch);
    if (status == GYRE_OK)
        status = optim_batch_check(&config->batch, layout.dp);
    if (status != GYRE_OK)
        return status;
    pipe_train_t *train = calloc(1, sizeof *train);
    if (!train)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a training run");
    train->world = world;
    train->config = *config;
    train->layout = layout;
    train->load = load;
    train->place = pipe_layout_place(&layout, (size_t)gyre_comm_rank(world));
    train->batch = optim_batch_complete(&config->batch);
    train->spread = pipe_layout_spreads(&layout, &train->batch);
    find_shares(train);
    if (train->config.threads == 0 && config->device.kind != BASE_CUDA)
        status = pipe_threads_share(world, &train->config.threads);
    if (status == GYRE_OK)
        status = make_groups(train);
    if (status != GYRE_OK) {
        pipe_train_destroy(train);
        return status;
    }
    *out = train;
    return GYRE_OK;
}

gyre_status_t pipe_train_plan(pipe_train_t *train)
{
    gyre_status_t status = model_params_create(&train->config.model, &train->whole);
    if (status == GYRE_OK && train->config.freeze)
        status = model_params_freeze(train->whole, train->config.freeze);
    if (status == GYRE_OK && train->config.lora.rank == 0)
        status = train_set_groups(train, train->whole);
    if (status == GYRE_OK)
        status = take_memory(train);
    if (status == GYRE_OK)
        status = make_slice(train);
    return status == GYRE_OK ? find_in_flight(train) : status;
}

gyre_status_t pipe_train_need(const pipe_train_t *train, uint64_t *bytes)
{
    const model_tp_t tp = tp_of(train);
    const optim_zero_config_t how = store_config(train);
    size_t kinds[OPTIM_MEMORY_KINDS];
    gyre_status_t status = train_predict_stores(train, &how, kinds);
    *bytes = 0;
    for (size_t k = 0; status == GYRE_OK && k < OPTIM_MEMORY_KINDS; k++)
        *bytes += kinds[k];
    for (size_t c = 0; status == GYRE_OK && c < train->layout.chunks; c++) {
        const model_stage_config_t stage = stage_config(train, c, MODEL_GRAPHS_OFF);
        size_t kept, workspace, boundary;
        status = model_stage_plan_f32(&train->whole->config, &tp, &stage, &kept, &workspace, &boundary);
        if (status == GYRE_OK)
            *bytes += (uint64_t)kept + workspace;
    }
    return status;
}

gyre_status_t pipe_train_make(pipe_train_t *train)
{
    const pipe_train_config_t *config = &train->config;
    gyre_status_t status = GYRE_OK;
    if (config->device.kind == BASE_CUDA)
        status = pipe_gpu_create(config->device.index, LOSSES, &train->gpu);
    else
        status = base_team_create(config->threads, "--threads", &train->team);
    if (status == GYRE_OK && train->gpu)
        status = pipe_links_create(config->device, pipe_gpu_stream(train->gpu), &train->links);
    if (status == GYRE_OK)
        status = make_zero(train);
    /* which are the caller's, and needed no more */
    train->config.zero.offload = train->config.freeze = train->config.lora.on = NULL;
    train->config.rates = train->config.decays = NULL;
    if (status == GYRE_OK)
        status = make_parts(train);
    return status == GYRE_OK && train->team ? model_matmul_room(base_team_threads(train->team)) : status;
}

/* How many micro-batches there are is no matter to who talks to whom. */
static gyre_status_t connect_links(pipe_train_t *train)
{
    const pipe_shape_t shape = pipe_layout_shape(&train->layout, train->layout.pp, 0);
    pipe_schedule_t *schedule = NULL;
    gyre_status_t status = pipe_schedule_create(&shape, &schedule);
    if (status == GYRE_OK)
        status = pipe_links_connect(train->links, train->pp, schedule);
    pipe_schedule_destroy(schedule);
    return status;
}

gyre_status_t pipe_train_join(pipe_train_t *train)
{
    gyre_status_t status = GYRE_OK;
    /* before any step: memory that is taken in one may have to wait for a device whose streams wait for
     * what other ranks send */
    if (train->gpu && train->layout.tp > 1)
        status = gyre_comm_prepare_cuda(train->tp);
    if (status == GYRE_OK)
        status = optim_zero_join(train->zero);
    if (status == GYRE_OK && train->base)
        status = optim_zero_join(train->base);
    return status == GYRE_OK && train->links && train->layout.pp > 1 ? connect_links(train) : status;
}

gyre_status_t pipe_train_resize(pipe_train_t *train, size_t batch)
{
    const optim_batch_t sized = optim_batch_sized(&train->config.batch, batch);
    if (batch == train->batch.batch)
        return GYRE_OK;
    if (batch < 1 || batch > train->config.batch.batch)
        return gyre_fail(GYRE_ERR_INVALID, "a batch of %zu sequences: this run was made for 1 to %zu", batch,
                         train->config.batch.batch);
    if (train->layout.ep > 1 && !pipe_layout_equal(&train->layout, &sized))
        return gyre_fail(GYRE_ERR_INVALID, "ep %zu: a batch of %zu has no equal shares for dp %zu",
                         train->layout.ep, batch, train->layout.dp);
    gyre_status_t status = optim_batch_check(&sized, 1);
    if (status != GYRE_OK)
        return status;
    free_parts(train);
    train->batch = optim_batch_complete(&sized);
    train->load.batch = sized;
    train->layout.micro_batch =
        pipe_layout_complete(&train->config.layout, (size_t)gyre_comm_size(train->world), &train->load)
            .micro_batch;
    find_shares(train);
    optim_zero_config_t how = {0};
    optim_zero_share(&how, &train->batch, &train->part);
    status = optim_zero_resize(train->zero, &how);
    if (status == GYRE_OK)
        status = find_in_flight(train);
    return status == GYRE_OK ? make_parts(train) : status;
}

static void destroy_group(gyre_comm_t **comm)
{
    if (*comm)
        gyre_comm_destroy(*comm);
    *comm = NULL;
}

void pipe_train_abort(pipe_train_t *train, const char *reason)
{
    if (!train)
        return;
    gyre_comm_t *const group[] = {train->keys, train->tp,   train->cp,  train->ep,    train->pp,
                                  train->dp,   train->tied, train->edp, train->plane, train->experts_plane};
    for (size_t i = 0; i < sizeof group / sizeof *group; i++)
        if (group[i])
            gyre_comm_abort(group[i], reason);
    pipe_links_abort(train->links, reason);
    if (train->zero)
        optim_zero_abort(train->zero, reason);
    if (train->base)
        optim_zero_abort(train->base, reason);
}

/* Executors and stages wait for their requests themselves, whatever happens. */
void pipe_train_leave(pipe_train_t *train)
{
    if (!train)
        return;
    if (train->zero)
        optim_zero_leave(train->zero);
    if (train->base)
        optim_zero_leave(train->base);
    (void)pipe_gpu_finish(train->gpu); /* what went wrong there is logged, and nobody goes on */
    pipe_links_leave(train->links);
    destroy_group(&train->experts_plane);
    destroy_group(&train->plane);
    destroy_group(&train->tied);
    destroy_group(&train->pp);
    destroy_group(&train->edp);
    destroy_group(&train->ep);
    destroy_group(&train->dp);
    destroy_group(&train->cp);
    destroy_group(&train->keys);
    destroy_group(&train->tp);
}

void pipe_train_release(pipe_train_t *train)
{
    if (!train)
        return;
    pipe_train_leave(train);
    free_parts(train);
    optim_lora_destroy(train->lora);
    optim_zero_destroy(train->base);
    optim_zero_destroy(train->zero);
    train->lora = NULL;
    train->zero = train->base = NULL;
    pipe_links_destroy(train->links);
    train->links = NULL;
    pipe_gpu_destroy(train->gpu);
    train->gpu = NULL;
    base_team_destroy(train->team);
    train->team = NULL;
    free(train->lost);
    train->lost = NULL;
}

void pipe_train_destroy(pipe_train_t *train)
{
    if (!train)
        return;
    pipe_train_release(train);
    model_params_destroy(train->local);
    model_params_destroy(train->factors);
    model_adapters_destroy(train->adapters);
    model_params_destroy(train->whole);
    free(train->chunk);
    free(train->loss);
    free(train->own_loss);
    free(train);
}
