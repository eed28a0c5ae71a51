/* pipeline/train/step.c: groups, stages and callbacks of a training step in any layout. */
#include <gyre/cuda.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "optim/tree.h"
#include "pipeline/train/train.h"
#include "pipeline/train/worker.h"

typedef struct {
    pipe_worker_t *worker;
    size_t in_flight;   /* micro-batches between forward and backward */
    size_t first, rows; /* its rows of the local table */
    int embed, head;
} chunk_t;

/* Sequences of a column that go through the pipeline together in an evaluation; many enough for its bubble. */
enum { EVALUATED = 32 };

/* Losses that a GPU may owe: more than most steps have, so that it is waited for at their end only. */
enum { LOSSES = 1024 };

/* What travels behind the losses: rank 0's notes, two numbers of ranks, and what became of the choices of experts. Balance losses
 * are added up as multiples of 2^-40 in two halves of 26 bits and up, whose sums are exact: in any order, cut anywhere. */
enum { WORD_UNREAD = PIPE_NOTES, WORD_STOP, WORD_BALANCE, WORD_BALANCE_LOW, WORD_DROPPED, WORDS };
#define BALANCE_UNIT  0x1p-40
#define BALANCE_SPLIT 0x1p26

/* What the callbacks of the present step or evaluation work on. */
typedef struct {
    pipe_fetch_fn fetch;
    void *user;
    double *loss;       /* [sequences], by index; the head's rank of tensor rank 0 fills in its own */
    size_t first, step; /* index of local sequence i is first + i * step */
    size_t count;       /* local sequences; those behind are idle, so that all columns run one schedule */
    size_t micro;       /* sequences of a micro-batch */
    uint64_t number;    /* of the training step */
    float scale;
    int evaluate; /* 1: losses of validation, without dropout */
} work_t;

struct pipe_train {
    pipe_train_config_t config;
    gyre_comm_t *world, *tp, *dp, *pp, *tied;
    pipe_layout_t layout;
    pipe_load_t load;
    pipe_place_t place;
    optim_batch_t batch;
    model_params_t *whole, *local;
    optim_zero_t *zero;
    pipe_gpu_t *gpu;     /* NULL: stages are on the CPU */
    pipe_links_t *links; /* between the GPUs of pp; NULL like it */
    chunk_t *chunk;      /* [layout.chunks] */
    pipe_executor_t *executor, *evaluator;
    size_t first, share, longest;    /* sequences of this data-parallel rank; of the rank with most */
    size_t boundary;                 /* elements of one sequence between stages */
    gyre_type_t type;                /* of them */
    double *loss;                    /* [batch + WORDS] */
    model_sequence_t *sequence;      /* [micro_batch], those of a forward pass */
    model_token_t *tokens, *targets; /* [micro_batch, seq] */
    int32_t *positions;              /* the same, of a model with prefixes and rotary positions; else NULL */
    work_t work;
    double *lost;         /* losses of an evaluation that failed */
    gyre_status_t unread; /* the first sequence of this step that could not be read */
    int missed;           /* some rank had one, and all know */
};

/* ---- callbacks ----------------------------------------------------------------------------------------------- */

/* Sequences of micro-batch mb, idle ones included. */
static size_t sequences_of(const pipe_train_t *train, int mb)
{
    size_t from = (size_t)mb * train->work.micro;
    return base_min_size(train->work.micro, train->longest - base_min_size(from, train->longest));
}

static size_t slot_of(const pipe_train_t *train, const chunk_t *chunk, int mb, size_t j)
{
    return (size_t)mb % chunk->in_flight * train->work.micro + j;
}

/* How many of a micro-batch's n sequences, the first ones, this column does not have: columns with fewer sequences are idle in
 * the first ones, so that all end together (optim_zero_idle). */
static size_t idle_of(const pipe_train_t *train, int mb, size_t n)
{
    size_t from = (size_t)mb * train->work.micro, idle = train->longest - train->work.count;
    return base_min_size(n, idle - base_min_size(idle, from));
}

/* Bytes of j sequences between stages. */
static size_t edge_bytes(const pipe_train_t *train, size_t j)
{
    return j * train->boundary * gyre_type_size(train->type);
}

static const void *part(const void *tensor, const pipe_train_t *train, size_t j)
{
    return tensor ? (const char *)tensor + edge_bytes(train, j) : NULL;
}

static void *part_out(void *tensor, const pipe_train_t *train, size_t j)
{
    return tensor ? (char *)tensor + edge_bytes(train, j) : NULL;
}

/* Sequence `index` into place j of those of a micro-batch. What cannot be read is zeros, so that this rank goes on with the others
 * until all hear of it. */
static void read_sequence(pipe_train_t *train, size_t index, size_t j)
{
    size_t seq = train->whole->config.seq;
    model_example_t example = {.tokens = train->tokens + j * seq,
                               .targets = train->targets + j * seq,
                               .positions = train->positions ? train->positions + j * seq : NULL};
    /* one that cannot be read is told; the step is lost, and others would only repeat it */
    gyre_status_t status =
        train->unread == GYRE_OK ? train->work.fetch(train->work.user, index, &example) : train->unread;
    if (status != GYRE_OK) {
        memset(example.tokens, 0, seq * sizeof *example.tokens);
        memset(example.targets, 0, seq * sizeof *example.targets);
        if (example.positions)
            memset(example.positions, 0, seq * sizeof *example.positions);
        example.prefix = 0;
        train->unread = status;
    }
    model_sequence_t *sequence = &train->sequence[j];
    sequence->tokens = example.tokens;
    sequence->targets = example.targets;
    sequence->positions = example.positions;
    sequence->prefix = example.prefix;
}

/* This rank's error, or that of others, which they have told. */
static gyre_status_t unread(pipe_train_t *train, double ranks)
{
    train->missed = ranks > 0.0;
    if (train->unread != GYRE_OK || ranks == 0.0)
        return train->unread;
    return gyre_fail_quiet(GYRE_ERR_FORMAT, "%g ranks could not read their sequences", ranks);
}

/* Notes what the router of a layer has done with a sequence; all ranks of its tensor-parallel group know the same. */
static void note_routing(void *user, const model_routed_t *routed)
{
    pipe_train_t *train = user;
    double *word = train->loss + train->batch.batch;
    double units = routed->balance < 0x1p12 ? nearbyint(routed->balance / BALANCE_UNIT) : (double)NAN;
    double high = floor(units / BALANCE_SPLIT);
    word[WORD_BALANCE] += high;
    word[WORD_BALANCE_LOW] += units - high * BALANCE_SPLIT;
    word[WORD_DROPPED] += (double)routed->dropped;
}

static gyre_status_t forward(void *user, int chunk_index, int mb, const void *in, void *out)
{
    pipe_train_t *train = user;
    const work_t *work = &train->work;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    gyre_status_t status =
        out && idle > 0 ? pipe_gpu_zero(train->gpu, out, edge_bytes(train, idle)) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    if (idle == n)
        return n ? optim_zero_idle(train->zero, chunk->first, chunk->rows, OPTIM_PASS_FORWARD) : GYRE_OK;
    size_t first = (size_t)mb * work->micro + idle - (train->longest - work->count); /* of this column's */
    for (size_t j = 0; j < n - idle; j++) {
        size_t index = work->first + (first + j) * work->step;
        train->sequence[j] =
            (model_sequence_t){.sequence = index, .step = work->number, .evaluate = work->evaluate};
        if (chunk->embed || chunk->head || train->whole->config.prefix)
            read_sequence(train, index, j);
    }
    return pipe_worker_forward(chunk->worker, slot_of(train, chunk, mb, idle), n - idle, train->sequence,
                               part(in, train, idle), part_out(out, train, idle),
                               train->place.tp == 0 ? work->loss + work->first + first * work->step : NULL,
                               work->step);
}

static gyre_status_t backward(void *user, int chunk_index, int mb, const void *d_out, void *d_in,
                              unsigned flags)
{
    pipe_train_t *train = user;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    (void)flags; /* the stage was told at its creation whether passes are split */
    gyre_status_t status =
        d_in && idle > 0 ? pipe_gpu_zero(train->gpu, d_in, edge_bytes(train, idle)) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    if (idle == n)
        return n ? optim_zero_idle(train->zero, chunk->first, chunk->rows, OPTIM_PASS_BACKWARD) : GYRE_OK;
    return pipe_worker_backward(chunk->worker, slot_of(train, chunk, mb, idle), n - idle, train->work.scale,
                                part(d_out, train, idle), part_out(d_in, train, idle));
}

static gyre_status_t backward_weight(void *user, int chunk_index, int mb, unsigned flags)
{
    pipe_train_t *train = user;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    (void)flags;
    if (idle == n)
        return n ? optim_zero_idle(train->zero, chunk->first, chunk->rows, OPTIM_PASS_BACKWARD_WEIGHT)
                 : GYRE_OK;
    return pipe_worker_backward_weight(chunk->worker, slot_of(train, chunk, mb, idle), n - idle);
}

/* ---- making it ------------------------------------------------------------------------------------------------- */

static pipe_shape_t shape_of(const pipe_layout_t *layout, size_t micro_batches, int forward_only)
{
    return (pipe_shape_t){.kind = layout->schedule,
                          .ranks = (int)layout->pp,
                          .chunks = (int)layout->chunks,
                          .micro_batches = (int)micro_batches,
                          .forward_only = forward_only};
}

static gyre_status_t make_groups(pipe_train_t *train)
{
    const pipe_layout_t *l = &train->layout;
    pipe_place_t at = train->place;
    const pipe_shape_t shape = shape_of(l, 1, 0);
    int last; /* the pipeline rank of the last stage */
    pipe_place_of(&shape, pipe_stages(&shape) - 1, &last, NULL);
    int column = (int)(at.dp * l->tp + at.tp);
    int tied = !train->config.model.untied && last != 0 && (at.pp == 0 || at.pp == (size_t)last);
    gyre_status_t status =
        gyre_comm_split(train->world, (int)(at.pp * l->dp + at.dp), (int)at.tp, &train->tp);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, (int)(at.pp * l->tp + at.tp), (int)at.dp, &train->dp);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, column, (int)at.pp, &train->pp);
    if (status == GYRE_OK)
        status = gyre_comm_split(train->world, tied ? column : -1, (int)at.pp, &train->tied);
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
    const pipe_shape_t shape = shape_of(&train->layout, 1, 0);
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
    model_slice_t slice = {.tp_rank = train->place.tp, .tp_size = train->layout.tp, .has = has};
    for (size_t c = 0; c < train->layout.chunks; c++) {
        size_t first, count;
        chunk_layers(train, c, &first, &count);
        memset(has + first, 1, count);
        slice.embed |= train->chunk[c].embed;
        slice.head |= train->chunk[c].head;
    }
    gyre_status_t status = model_params_slice(train->whole, &slice, &train->local);
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

/* Micro-batches of each chunk that are between their forward and their (last) backward pass at the same time. */
static void count_in_flight(pipe_train_t *train, const pipe_schedule_t *schedule)
{
    size_t rank = train->place.pp;
    pipe_op_t over = pipe_kind_splits(schedule->shape.kind) ? PIPE_BACKWARD_WEIGHT : PIPE_BACKWARD;
    for (size_t c = 0; c < train->layout.chunks; c++) {
        size_t now = 0;
        train->chunk[c].in_flight = 1;
        for (size_t i = 0; i < schedule->count[rank]; i++) {
            const pipe_action_t *action = &schedule->action[rank][i];
            if ((size_t)action->chunk != c)
                continue;
            now += action->op == PIPE_FORWARD;
            now -= action->op == over;
            train->chunk[c].in_flight = base_max_size(train->chunk[c].in_flight, now);
        }
    }
}

static gyre_status_t make_executor(pipe_train_t *train, size_t micro_batches, size_t micro, int forward_only,
                                   pipe_executor_t **out)
{
    const pipe_shape_t shape = shape_of(&train->layout, micro_batches, forward_only);
    const pipe_executor_config_t config = {
        .call = {.forward = forward, .backward = backward, .backward_weight = backward_weight},
        .user = train,
        .count = micro * train->boundary,
        .type = train->type,
        .grad_type = train->type,
        .device = train->config.device,
        .links = train->links};
    pipe_schedule_t *schedule = NULL;
    gyre_status_t status = pipe_schedule_create(&shape, &schedule);
    if (status == GYRE_OK)
        status = pipe_executor_create(train->pp, schedule, &config, out);
    pipe_schedule_destroy(schedule);
    return status;
}

static gyre_status_t make_stages(pipe_train_t *train, const pipe_train_config_t *config)
{
    const model_tp_t tp = {.comm = train->layout.tp > 1 ? train->tp : NULL,
                           .rank = train->place.tp,
                           .size = train->layout.tp,
                           .sequence = train->layout.sequence};
    /* a graph is made in the middle of a step, where links' streams wait for other ranks, and that may wait for the device: until it
     * was seen on GPUs, only who insists has graphs in a pipeline */
    const model_graphs_t graphs =
        config->graphs == MODEL_GRAPHS_AUTO && train->layout.pp > 1 ? MODEL_GRAPHS_OFF : config->graphs;
    gyre_status_t status = GYRE_OK;
    int told = train->whole->config.experts > 0 && train->place.tp == 0;
    for (size_t c = 0; status == GYRE_OK && c < train->layout.chunks; c++) {
        chunk_t *chunk = &train->chunk[c];
        model_stage_config_t how = {.embed = chunk->embed,
                                    .head = chunk->head,
                                    .slots = chunk->in_flight * train->layout.micro_batch,
                                    .together = train->layout.micro_batch,
                                    .grad_sequences = train->batch.leaf,
                                    .recompute = config->recompute,
                                    .offload = config->offload_activations,
                                    .graphs = graphs,
                                    .stages = train->layout.chunks,
                                    .precision = config->precision,
                                    .split = pipe_kind_splits(train->layout.schedule),
                                    .seed = config->seed};
        chunk_layers(train, c, &how.first, &how.layers);
        status = pipe_worker_create(&(pipe_worker_config_t){.params = train->local,
                                                            .tp = &tp,
                                                            .config = &how,
                                                            .store = optim_zero_store(train->zero),
                                                            .cuda_store = optim_zero_cuda_store(train->zero),
                                                            .isa = config->isa,
                                                            .gpu = train->gpu,
                                                            .routed = told ? note_routing : NULL,
                                                            .user = train},
                                    &chunk->worker);
    }
    if (status == GYRE_OK) {
        train->boundary = pipe_worker_boundary(train->chunk[0].worker);
        train->type = pipe_worker_type(train->chunk[0].worker);
    }
    return status;
}

static gyre_status_t make_zero(pipe_train_t *train)
{
    const pipe_train_config_t *config = &train->config;
    optim_zero_config_t how = config->zero;
    how.stage = train->layout.zero;
    how.share = optim_batch_leaves(&train->batch, train->share);
    how.group = optim_batch_leaves(&train->batch, optim_batch_group(&train->batch));
    how.precision = config->precision;
    if (train->gpu) {
        how.on_device = 1;
        how.device = config->device.index;
        how.stream = pipe_gpu_stream(train->gpu);
    }
    const optim_zero_groups_t groups = {.world = train->world,
                                        .dp = train->layout.dp > 1 ? train->dp : NULL,
                                        .tp = train->layout.tp > 1 ? train->tp : NULL,
                                        .tied = train->tied};
    return optim_zero_make(train->local, &groups, &how, &train->zero);
}

static void find_shares(pipe_train_t *train)
{
    train->longest = pipe_layout_longest(&train->layout, &train->batch);
    optim_batch_share(&train->batch, train->layout.dp, train->place.dp, &train->first, &train->share);
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
    train->sequence = calloc(micro, sizeof *train->sequence);
    train->tokens = calloc(tokens, sizeof *train->tokens);
    train->targets = calloc(tokens, sizeof *train->targets);
    train->positions = placed ? calloc(tokens, sizeof *train->positions) : NULL;
    if (!train->sequence || !train->tokens || !train->targets || (placed && !train->positions))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for micro-batches of %zu sequences", micro);
    return GYRE_OK;
}

static void free_sequences(pipe_train_t *train)
{
    free(train->sequence);
    free(train->tokens);
    free(train->targets);
    free(train->positions);
    train->sequence = NULL;
    train->tokens = train->targets = NULL;
    train->positions = NULL;
}

static gyre_status_t take_memory(pipe_train_t *train)
{
    train->chunk = calloc(train->layout.chunks, sizeof *train->chunk);
    train->loss = calloc(train->batch.batch + WORDS, sizeof *train->loss);
    return train->chunk && train->loss
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a batch of %zu sequences", train->batch.batch);
}

/* What a step works in, for the present batch. */
static gyre_status_t make_parts(pipe_train_t *train)
{
    size_t micro = train->layout.micro_batch, micro_batches = (train->longest + micro - 1) / micro;
    const pipe_shape_t shape = shape_of(&train->layout, micro_batches, 0);
    pipe_schedule_t *schedule = NULL;
    gyre_status_t status = pipe_schedule_create(&shape, &schedule);
    if (status != GYRE_OK)
        return status;
    count_in_flight(train, schedule);
    pipe_schedule_destroy(schedule);
    status = take_sequences(train);
    if (status == GYRE_OK)
        status = make_stages(train, &train->config);
    return status == GYRE_OK ? make_executor(train, micro_batches, micro, 0, &train->executor) : status;
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
    find_shares(train);
    if ((status = make_groups(train)) != GYRE_OK) {
        pipe_train_destroy(train);
        return status;
    }
    *out = train;
    return GYRE_OK;
}

gyre_status_t pipe_train_make(pipe_train_t *train)
{
    gyre_status_t status = model_params_create(&train->config.model, &train->whole);
    if (status == GYRE_OK)
        status = take_memory(train);
    if (status == GYRE_OK)
        status = make_slice(train);
    if (status == GYRE_OK && train->config.device.kind == BASE_CUDA)
        status = pipe_gpu_create(train->config.device.index, LOSSES, &train->gpu);
    if (status == GYRE_OK && train->gpu)
        status = pipe_links_create(train->config.device, pipe_gpu_stream(train->gpu), &train->links);
    if (status == GYRE_OK)
        status = make_zero(train);
    train->config.zero.offload = NULL; /* which is the caller's, and needed no more */
    return status == GYRE_OK ? make_parts(train) : status;
}

/* How many micro-batches there are is no matter to who talks to whom. */
static gyre_status_t connect_links(pipe_train_t *train)
{
    const pipe_shape_t shape = shape_of(&train->layout, train->layout.pp, 0);
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
    /* before any step: memory that is taken in one may have to wait for a device whose streams wait for what other ranks send */
    if (train->gpu && train->layout.tp > 1)
        status = gyre_comm_prepare_cuda(train->tp);
    if (status == GYRE_OK)
        status = optim_zero_join(train->zero);
    return status == GYRE_OK && train->links && train->layout.pp > 1 ? connect_links(train) : status;
}

gyre_status_t pipe_train_create(gyre_comm_t *world, const pipe_train_config_t *config, pipe_train_t **out)
{
    pipe_train_t *train;
    gyre_status_t status = pipe_train_begin(world, config, &train);
    if (status != GYRE_OK)
        return status;
    if ((status = pipe_train_make(train)) == GYRE_OK)
        status = pipe_train_join(train);
    if (status != GYRE_OK) {
        pipe_train_destroy(train);
        return status;
    }
    *out = train;
    return GYRE_OK;
}

gyre_status_t pipe_train_resize(pipe_train_t *train, size_t batch)
{
    const optim_batch_t sized = optim_batch_sized(&train->config.batch, batch);
    if (batch == train->batch.batch)
        return GYRE_OK;
    if (batch < 1 || batch > train->config.batch.batch)
        return gyre_fail(GYRE_ERR_INVALID, "a batch of %zu sequences: this run was made for 1 to %zu", batch,
                         train->config.batch.batch);
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
    const optim_batch_t *b = &train->batch;
    status =
        optim_zero_resize(train->zero, optim_batch_leaves(b, train->share),
                          optim_batch_leaves(b, optim_batch_group(b)), optim_batch_leaves(b, train->longest));
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
    gyre_comm_t *const group[] = {train->tp, train->pp, train->dp, train->tied};
    for (size_t i = 0; i < sizeof group / sizeof *group; i++)
        if (group[i])
            gyre_comm_abort(group[i], reason);
    pipe_links_abort(train->links, reason);
    if (train->zero)
        optim_zero_abort(train->zero, reason);
}

/* Executors and stages wait for their requests themselves, whatever happens. */
void pipe_train_leave(pipe_train_t *train)
{
    if (!train)
        return;
    if (train->zero)
        optim_zero_leave(train->zero);
    (void)pipe_gpu_finish(train->gpu); /* what went wrong there has been told, and nobody goes on */
    pipe_links_leave(train->links);
    destroy_group(&train->tied);
    destroy_group(&train->pp);
    destroy_group(&train->dp);
    destroy_group(&train->tp);
}

void pipe_train_release(pipe_train_t *train)
{
    if (!train)
        return;
    pipe_train_leave(train);
    free_parts(train);
    optim_zero_destroy(train->zero);
    train->zero = NULL;
    pipe_links_destroy(train->links);
    train->links = NULL;
    pipe_gpu_destroy(train->gpu);
    train->gpu = NULL;
    free(train->lost);
    train->lost = NULL;
}

void pipe_train_destroy(pipe_train_t *train)
{
    if (!train)
        return;
    pipe_train_release(train);
    model_params_destroy(train->local);
    model_params_destroy(train->whole);
    free(train->chunk);
    free(train->loss);
    free(train);
}

/* ---- steps -------------------------------------------------------------------------------------------------------- */

/* What the executor noted. */
static void add_spans(const pipe_train_t *train, model_spans_t *spans)
{
    static const model_span_kind_t kind[PIPE_OP_END] = {[PIPE_FORWARD] = MODEL_SPAN_FORWARD,
                                                        [PIPE_BACKWARD] = MODEL_SPAN_BACKWARD,
                                                        [PIPE_BACKWARD_INPUT] = MODEL_SPAN_BACKWARD,
                                                        [PIPE_BACKWARD_WEIGHT] = MODEL_SPAN_BACKWARD_WEIGHT};
    const pipe_event_t *event;
    size_t events = spans ? pipe_executor_timeline(train->executor, &event) : 0;
    for (size_t i = 0; i < events; i++) {
        const pipe_event_t *e = &event[i];
        if (e->waited > 0)
            model_spans_add(spans, MODEL_SPAN_WAIT, e->start - e->waited, e->start, e->micro_batch, e->chunk);
        model_spans_add(spans, kind[e->op], e->start, e->end, e->micro_batch, e->chunk);
    }
}

/* Whoever computes or communicates in a step notes it. */
static void watch(pipe_train_t *train, model_spans_t *spans)
{
    for (size_t c = 0; c < train->layout.chunks; c++)
        pipe_worker_watch(train->chunk[c].worker, spans);
    pipe_executor_watch(train->executor, spans != NULL);
    optim_zero_watch(train->zero, spans);
}

/* Nanoseconds that this thread has spent in collectives of its tensor-parallel group so far. */
static base_time_t tensor_time(const pipe_train_t *train)
{
    base_time_t sum = 0;
    for (size_t c = 0; c < train->layout.chunks; c++)
        sum += pipe_worker_exposed(train->chunk[c].worker);
    return sum;
}

/* From the words of all ranks. */
static void tell_routing(const pipe_train_t *train, const double *word, pipe_train_step_t *out)
{
    const model_config_t *c = &train->whole->config;
    double batch = (double)train->batch.batch,
           choices = batch * (double)(c->layers * c->seq) * (double)c->top_k;
    out->balance = out->dropped = NAN;
    if (c->experts == 0)
        return;
    out->balance = (word[WORD_BALANCE] * BALANCE_SPLIT + word[WORD_BALANCE_LOW]) * BALANCE_UNIT / batch;
    out->dropped = word[WORD_DROPPED] / choices;
}

/* All passes of a batch, and their losses. */
static gyre_status_t run(pipe_train_t *train, pipe_executor_t *executor)
{
    gyre_status_t status = pipe_executor_step(executor);
    if (status == GYRE_OK)
        status = pipe_gpu_finish(train->gpu);
    return status == GYRE_OK ? pipe_links_error(train->links) : status;
}

gyre_status_t pipe_train_step(pipe_train_t *train, uint64_t step, pipe_fetch_fn fetch, void *user,
                              double rate, pipe_train_step_t *out)
{
    size_t batch = train->batch.batch, words = batch + WORDS;
    memset(train->loss, 0, words * sizeof *train->loss);
    train->work = (work_t){.fetch = fetch,
                           .user = user,
                           .loss = train->loss,
                           .first = train->first,
                           .step = 1,
                           .count = train->share,
                           .micro = train->layout.micro_batch,
                           .number = step,
                           .scale = (float)optim_zero_loss_scale(train->zero)};
    train->unread = GYRE_OK;
    train->missed = 0;
    base_time_t tensor = tensor_time(train);
    optim_zero_begin(train->zero);
    watch(train, out->spans);
    gyre_status_t status = run(train, train->executor);
    if (status == GYRE_OK)
        add_spans(train, out->spans);
    base_time_t reducing = base_now();
    if (gyre_comm_rank(train->world) == 0)
        memcpy(train->loss + batch, out->note, sizeof out->note);
    train->loss[batch + WORD_UNREAD] = train->unread != GYRE_OK;
    train->loss[batch + WORD_STOP] = out->stop != 0;
    if (status == GYRE_OK) /* one rank has each loss, and the others zero: sums are exact */
        status =
            gyre_all_reduce(train->loss, train->loss, words, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), train->world);
    base_time_t joined = base_now();
    model_spans_add(out->spans, MODEL_SPAN_REDUCE, reducing, joined, -1, -1);
    out->join_s = (double)(joined - reducing) * 1e-9;
    out->stop = train->loss[batch + WORD_STOP] > 0.0;
    if (status == GYRE_OK)
        status = unread(train, train->loss[batch + WORD_UNREAD]);
    if (status == GYRE_OK)
        status = optim_zero_finish(train->zero, 1.0 / (double)batch, rate, &out->zero);
    watch(train, NULL);
    if (status != GYRE_OK)
        return status;
    out->loss = optim_tree_sum(train->loss, batch, optim_batch_group(&train->batch)) / (double)batch;
    memcpy(out->note, train->loss + batch, sizeof out->note);
    tell_routing(train, train->loss + batch, out);
    pipe_report_t report;
    pipe_executor_report(train->executor, &report);
    out->pipe_busy_s = report.busy_s;
    out->pipe_wait_s = report.wait_s;
    out->tensor_s = (double)(tensor_time(train) - tensor) * 1e-9;
    return GYRE_OK;
}

/* Sequences of a micro-batch of an evaluation: one, which keeps the bubble small, but where each costs a gather of the weights. */
static size_t evaluated_together(const pipe_train_t *train)
{
    return train->layout.zero == 3 ? base_min_size(train->layout.micro_batch, EVALUATED) : 1;
}

/* Losses of sequences first .. first + count - 1 of `fetch` to each [count], where this rank computes them. They are dealt out
 * to the columns one by one. */
static gyre_status_t evaluate_some(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t first,
                                   size_t count, double *each)
{
    size_t dp = train->layout.dp, longest = train->longest;
    train->work = (work_t){.fetch = fetch,
                           .user = user,
                           .loss = each,
                           .first = first + train->place.dp,
                           .step = dp,
                           .count = count > train->place.dp ? (count - train->place.dp - 1) / dp + 1 : 0,
                           .micro = evaluated_together(train),
                           .number = 0,
                           .scale = 1.0f,
                           .evaluate = 1};
    train->longest = (count + dp - 1) / dp;
    gyre_status_t status = run(train, train->evaluator);
    train->longest = longest;
    return status;
}

gyre_status_t pipe_train_evaluate(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t count,
                                  double *loss)
{
    size_t at_once = train->layout.dp * EVALUATED;
    *loss = NAN;
    if (count == 0)
        return GYRE_OK;
    if (!train->evaluator) {
        size_t micro = evaluated_together(train);
        gyre_status_t status =
            make_executor(train, (EVALUATED + micro - 1) / micro, micro, 1, &train->evaluator);
        if (status != GYRE_OK)
            return status;
    }
    double *each = calloc(count + 1, sizeof *each);
    if (!each)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the losses of %zu sequences", count);
    train->unread = GYRE_OK;
    train->missed = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < count; at += at_once)
        status = evaluate_some(train, fetch, user, at, base_min_size(at_once, count - at), each);
    each[count] = train->unread != GYRE_OK;
    if (status == GYRE_OK)
        status = gyre_all_reduce(each, each, count + 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), train->world);
    if (status == GYRE_OK)
        status = unread(train, each[count]);
    if (status == GYRE_OK)
        *loss = optim_tree_sum(each, count, 1) / (double)count;
    if (gyre_comm_error(train->world) != GYRE_OK && !train->lost)
        train->lost = each; /* which world may still send from */
    else
        free(each);
    return status;
}

int pipe_train_unread(const pipe_train_t *train)
{
    return train->missed;
}

const model_params_t *pipe_train_whole(const pipe_train_t *train)
{
    return train->whole;
}

optim_zero_t *pipe_train_zero(pipe_train_t *train)
{
    return train->zero;
}

const pipe_layout_t *pipe_train_layout(const pipe_train_t *train)
{
    return &train->layout;
}

size_t pipe_train_activation_bytes(const pipe_train_t *train)
{
    pipe_report_t report;
    pipe_executor_report(train->executor, &report);
    size_t bytes = report.buffer_bytes;
    if (train->evaluator) {
        pipe_executor_report(train->evaluator, &report);
        bytes += report.buffer_bytes;
    }
    for (size_t c = 0; c < train->layout.chunks; c++) {
        bytes += pipe_worker_bytes(train->chunk[c].worker);
    }
    return bytes;
}
