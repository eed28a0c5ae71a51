/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4 */
/* TSan in check-long: mp_train_api runs the same threads */
/* tests/pipeline/mp_train.c: ten training steps on every number of ranks: loss, gradient norm and weights
 * are, to the bit, what one process computes without any of it: a stage for one sequence after another (or
 * for those that have one gradient), the tree over the batch written out, AdamW row by row.
 * The norm is that of the exact sum of squares. What ZeRO 3 sends under a pipeline is counted, and batches
 * change their size between steps: down, up, with split backward passes and with state in a file.
 *
 *   mp_train              checks that, for data parallelism over all ranks and for another layout of them
 *   mp_train FOLDER       one rank: also writes what tests/model/torch_compare.py compares with PyTorch
 */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/text/json.h"
#include "base/log.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "optim/schedule.h"
#include "optim/tree.h"
#include "pipeline/train/train.h"
#include "tests/support/mp.h"
#include "tests/support/create.h"
#include "tests/support/weights.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { STEPS = 10, SEQ = 32, VOCAB = 64, SEED = 17, EVALUATED = 5, LEAF = 4, BATCH = 16 /* at most */ };
static const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
static const optim_schedule_t schedule = {.peak = 0.002, .floor = 0.1, .warmup = 3, .steps = STEPS};
#define CLIP 1.0

typedef struct {
    model_config_t shape;
    optim_batch_t batch;
    size_t step;
    int last;      /* this is the last rank */
    int alike;     /* all sequences are the first one */
    size_t hidden; /* targets at the beginning of each sequence that are not learned */
    const char *folder;
    json_t *steps;

    /* the reference */
    model_params_t *params;
    float *flat, *m, *v; /* [total] */
    float *grad;         /* [grad_total] */
    double loss[BATCH];  /* of each sequence */
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
} job_t;

static float *zeros(size_t n)
{
    float *x = calloc(n, sizeof *x);
    CHECK(x != NULL);
    return x;
}

/* A text with structure, so that there is something to learn: runs that count upwards. */
static gyre_status_t fetch(void *user, size_t index, model_example_t *out)
{
    const job_t *job = user;
    index = job->alike ? 0 : index;
    uint64_t start = model_random_bits(5, MODEL_RANDOM_DATA, (uint32_t)index, job->step);
    for (size_t t = 0; t <= SEQ; t++) {
        model_token_t token =
            (model_token_t)((start + t * (1 + index % 3) + (t % 5 == 4 ? start >> 9 : 0)) % VOCAB);
        if (t < SEQ)
            out->tokens[t] = token;
        if (t > 0)
            out->targets[t - 1] = t > job->hidden ? token : MODEL_IGNORED;
    }
    return GYRE_OK;
}

/* One bit by the last rank, and another by all. */
static unsigned last_rank_asks(void *user)
{
    const job_t *job = user;
    return job->last ? 5 : 1;
}

/* ---- the reference ------------------------------------------------------------------------------------- */

static void make_reference(job_t *job)
{
    const model_tp_t alone = {.size = 1};
    const model_stage_config_t one = {.layers = job->shape.layers,
                                      .embed = 1,
                                      .head = 1,
                                      .slots = LEAF,
                                      .together = LEAF,
                                      .grad_sequences = job->batch.leaf};
    CHECK(model_params_create(&job->shape, &job->params) == GYRE_OK);
    job->flat = zeros(job->params->total);
    job->m = zeros(job->params->total);
    job->v = zeros(job->params->total);
    job->grad = zeros(job->params->grad_total);
    init_params(job->params, SEED, job->flat);
    job->plain = (model_plain_store_t_f32){.params = job->params, .weights = job->flat};
    const model_store_t_f32 store = model_plain_store_f32(&job->plain);
    CHECK(model_stage_create_f32(job->params, &alone, &one, &store, MODEL_ISA_BASE, &job->stage) == GYRE_OK);
}

static void free_reference(job_t *job)
{
    model_stage_destroy_f32(job->stage);
    model_params_destroy(job->params);
    free(job->flat);
    free(job->m);
    free(job->v);
    free(job->grad);
}

/* Losses of n sequences, to loss; the one gradient of each weight that they have to out, unless it is
 * NULL. */
static void leaf(job_t *job, size_t first, size_t n, double *loss, float *out)
{
    model_token_t tokens[LEAF][SEQ], targets[LEAF][SEQ];
    model_sequence_t sequence[LEAF];
    for (size_t j = 0; j < n; j++) {
        model_example_t example = {.tokens = tokens[j], .targets = targets[j]};
        CHECK(fetch(job, first + j, &example) == GYRE_OK);
        sequence[j] = (model_sequence_t){
            .tokens = tokens[j], .targets = targets[j], .sequence = first + j, .step = job->step};
    }
    job->plain.grads = out;
    CHECK(model_stage_forward_batch_f32(job->stage, 0, n, sequence, NULL, NULL, loss) == GYRE_OK);
    if (out)
        CHECK(model_stage_backward_batch_f32(job->stage, 0, n, 1.0f, NULL, NULL) == GYRE_OK);
}

/* Losses and the sum of the gradients of leaves [first, first + n) of the batch: the tree as it is
 * defined. */
static void sum_leaves(job_t *job, size_t first, size_t n, float *out)
{
    const optim_batch_t batch = optim_batch_complete(&job->batch);
    if (n == 1) {
        leaf(job, first * batch.leaf, batch.leaf, job->loss + first * batch.leaf, out);
        return;
    }
    size_t left = optim_tree_split(n, optim_batch_leaves(&batch, optim_batch_group(&batch)));
    float *right = zeros(job->params->grad_total);
    sum_leaves(job, first, left, out);
    sum_leaves(job, first + left, n - left, right);
    for (size_t i = 0; i < job->params->grad_total; i++)
        out[i] = out[i] + right[i];
    free(right);
}

/* The same of the whole batch: rounds from the first to the last. */
static void sum_batch(job_t *job, float *out)
{
    size_t lanes = optim_batch_lanes(&job->batch), leaves = optim_batch_leaves(&job->batch, job->batch.batch);
    float *next = zeros(job->params->grad_total);
    for (size_t at = 0; at < leaves; at += lanes) {
        sum_leaves(job, at, lanes, at ? next : out);
        for (size_t i = 0; at > 0 && i < job->params->grad_total; i++)
            out[i] = out[i] + next[i];
    }
    free(next);
}

/* The head's share of a tied weight's gradient joins the embedding's. */
static void join_tied(job_t *job)
{
    for (size_t r = 0; r < job->params->rows; r++) {
        const model_param_t *row = &job->params->row[r];
        if (row->alias == MODEL_NONE)
            continue;
        const model_param_t *wte = &job->params->row[row->alias];
        for (size_t i = 0; i < row->count; i++)
            job->grad[wte->grad + i] = job->grad[row->grad + i] + job->grad[wte->grad + i];
    }
}

static double norm_of(const job_t *job)
{
    gyre_exact_t *exact = NULL;
    double squares = 0;
    MP_OK(gyre_exact_create(&exact));
    for (size_t r = 0; r < job->params->rows; r++)
        if (job->params->row[r].alias == MODEL_NONE)
            MP_OK(gyre_exact_add_norm2(exact, job->grad + job->params->row[r].grad, job->params->row[r].count,
                                       GYRE_FLOAT32));
    MP_OK(gyre_exact_value(exact, &squares));
    MP_OK(gyre_exact_destroy(exact));
    return sqrt(squares) * (1.0 / (double)job->batch.batch);
}

static void update(job_t *job, double norm, double rate)
{
    float scale = (float)(1.0 / (double)job->batch.batch * optim_clip_factor(norm, CLIP));
    const optim_adamw_factors_t f = optim_adamw_factors(&how, job->step + 1, scale, rate);
    for (size_t r = 0; r < job->params->rows; r++) {
        const model_param_t *row = &job->params->row[r];
        if (row->alias == MODEL_NONE)
            optim_adamw_update(&f, row->decay, job->flat + row->offset, job->m + row->offset,
                               job->v + row->offset, job->grad + row->grad, row->count);
    }
}

/* ---- what PyTorch is compared with --------------------------------------------------------------------- */

static void save(const job_t *job, const char *name, const float *flat)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.safetensors", job->folder, name);
    CHECK(save_weights(path, job->params, flat) == GYRE_OK);
}

static void dump(job_t *job, double loss, double norm, double rate)
{
    char name[32];
    float *mean = zeros(job->params->total);
    json_t *batch = json_array();
    for (size_t b = 0; b < job->batch.batch; b++) {
        model_token_t tokens[SEQ], targets[SEQ];
        model_example_t example = {.tokens = tokens, .targets = targets};
        CHECK(fetch(job, b, &example) == GYRE_OK);
        json_t *row = json_array();
        for (size_t t = 0; t < SEQ; t++)
            CHECK(json_array_append_new(row, json_integer(tokens[t])) == 0);
        CHECK(json_array_append_new(row, json_integer(targets[SEQ - 1])) == 0);
        CHECK(json_array_append_new(batch, row) == 0);
    }
    CHECK(json_array_append_new(job->steps, json_pack("{s:f, s:f, s:f, s:o}", "loss", loss, "norm", norm,
                                                      "rate", rate, "batch", batch)) == 0);
    for (size_t r = 0; r < job->params->rows; r++) {
        const model_param_t *row = &job->params->row[r];
        for (size_t i = 0; row->alias == MODEL_NONE && i < row->count; i++)
            mean[row->offset + i] = job->grad[row->grad + i] / (float)job->batch.batch;
    }
    snprintf(name, sizeof name, "grad%zu", job->step);
    save(job, name, mean);
    free(mean);
}

static void dump_end(const job_t *job)
{
    char path[512];
    const model_config_t *c = &job->shape;
    snprintf(path, sizeof path, "%s/steps.json", job->folder);
    json_t *object =
        json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:O}", "layers", (int)c->layers, "hidden",
                  (int)c->hidden, "heads", (int)c->heads, "beta1", how.beta1, "beta2", how.beta2, "epsilon",
                  how.epsilon, "decay", how.weight_decay, "clip", CLIP, "steps", job->steps);
    CHECK(object != NULL);
    CHECK(base_json_write(path, object) == GYRE_OK);
    json_decref(object);
    save(job, "end", job->flat);
}

/* ---- the trainer for comparison ----------------------------------------------------------------------- */

/* The reference's step, but for the update; the trainer's loss and norm are its own. Returns the norm. Rank 0
 * computes the gradients: they are most of this test's work. */
static double compare_step(job_t *job, gyre_comm_t *world, const pipe_train_step_t *step, double *loss)
{
    if (gyre_comm_rank(world) == 0)
        sum_batch(job, job->grad);
    mp_wait_for_0(world);
    MP_OK(gyre_broadcast(job->grad, job->grad, job->params->grad_total, GYRE_FLOAT32, 0, world));
    MP_OK(gyre_broadcast(job->loss, job->loss, BATCH, GYRE_FLOAT64, 0, world));
    *loss = optim_batch_sum(&job->batch, job->loss) / (double)job->batch.batch;
    MP_CHECK(step->loss == *loss, "step %zu: loss %a, one process has %a", job->step, step->loss, *loss);
    join_tied(job);
    double norm = norm_of(job);
    MP_CHECK(step->zero.norm == norm, "step %zu: norm %a, one process has %a", job->step, step->zero.norm,
             norm);
    return norm;
}

static void compare_weights(const job_t *job, pipe_train_t *train, int rank)
{
    for (size_t r = 0; r < job->params->rows; r++) {
        const model_param_t *row = &job->params->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        float *got = zeros(row->count);
        CHECK(optim_zero_gather_row(pipe_train_zero(train), pipe_train_whole(train), r,
                                    rank == 0 ? got : NULL) == GYRE_OK);
        MP_CHECK(rank != 0 || memcmp(got, job->flat + row->offset, row->count * sizeof *got) == 0,
                 "step %zu: weights of %s", job->step, row->name);
        free(got);
    }
}

/* Without tensor parallelism all ranks together send 2 (n - 1) elements per gradient, n ranks being
 * data-parallel, and in stage 3 with m micro-batches (2 m + 1) (n - 1), less m times the embeddings, which
 * backward does not read; with `keep` 2 (n - 1). Gradients count once for each reduction. Of experts that ep
 * ranks share n / ep ranks have the same. */
static void check_traffic(const job_t *job, gyre_comm_t *world, const pipe_layout_t *l, int keep,
                          const optim_zero_step_t *step)
{
    uint64_t sent = 0, embeddings = 0, experts = 0, all = job->params->grad_total,
             m = pipe_layout_rounds(l, &job->batch);
    for (int k = 0; k < OPTIM_TRAFFIC_KINDS; k++)
        sent += step->sent[k];
    CHECK(gyre_all_reduce(&sent, &sent, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), world) == GYRE_OK);
    for (size_t r = 0; r < job->params->rows; r++) {
        embeddings += job->params->row[r].layer < 0 ? job->params->row[r].count : 0;
        experts += model_kind_of_experts(job->params->row[r].kind) ? job->params->row[r].count : 0;
    }
    uint64_t gathered = l->zero < 3 ? job->params->total : keep ? all : 2 * m * all - m * embeddings;
    const optim_part_t part = pipe_layout_most(l, &job->batch);
    const uint64_t reductions = part.count / part.run, again = l->zero < 3 || keep ? 1 : 2 * m;
    uint64_t want = (l->dp - 1) * (reductions * all + gathered) -
                    (l->dp - l->dp / l->ep) * experts * (reductions + again);
    MP_CHECK(sent == want, "stage %d, %llu micro-batches: %llu sent, not %llu", l->zero,
             (unsigned long long)m, (unsigned long long)sent, (unsigned long long)want);
}

static void run(job_t *job, gyre_comm_t *world, const pipe_layout_t *layout)
{
    const pipe_train_config_t config = {.model = job->shape,
                                        .layout = *layout,
                                        .batch = job->batch,
                                        .zero = {.adamw = how, .clip = CLIP, .bucket_bytes = 16384},
                                        .seed = SEED};
    pipe_train_t *train = NULL;
    double first_loss = 0.0;
    int rank = gyre_comm_rank(world);
    make_reference(job);
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    CHECK(optim_zero_init(pipe_train_zero(train), SEED) == GYRE_OK);
    compare_weights(job, train, rank);
    if (job->folder)
        save(job, "start", job->flat);
    for (job->step = 0; job->step < STEPS; job->step++) {
        double rate = optim_schedule_rate(&schedule, job->step, 0.0);
        pipe_train_step_t step = {.note = {rank == 0 ? 0.1 : 7.0, (double)job->step}};
        CHECK(pipe_train_step(train, job->step, fetch, job, rate, &step) == GYRE_OK);
        CHECK(step.note[0] == 0.1);
        double loss, norm = compare_step(job, world, &step, &loss);
        if (layout->tp == 1 && layout->pp == 1 && layout->zero > 0)
            check_traffic(job, world, pipe_train_layout(train), 0, &step.zero);
        if (job->folder)
            dump(job, loss, norm, rate);
        update(job, norm, rate);
        first_loss = job->step == 0 ? loss : first_loss;
        CHECK(job->step + 1 < STEPS || loss < 0.95 * first_loss);
        compare_weights(job, train, rank);
    }
    if (job->batch.leaf > 1) {
        CHECK(pipe_train_resize(train, job->batch.leaf + 1) == GYRE_ERR_INVALID);
        CHECK(strstr(gyre_last_error(), "does not divide evenly: take --grad-sequences") != NULL);
    }
    double loss = 0.0, each[EVALUATED];
    unsigned asked = 9;
    job->last = rank + 1 == gyre_comm_size(world);
    CHECK(pipe_train_evaluate(train, fetch, job, EVALUATED, NULL, &asked, &loss) == GYRE_OK);
    for (size_t i = 0; i < EVALUATED; i++)
        leaf(job, i, 1, each + i, NULL);
    CHECK(asked == 0 && loss == optim_tree_sum(each, EVALUATED, 1) / EVALUATED);
    size_t many = 64 * pipe_train_layout(train)->dp + 1; /* not all at once */
    CHECK(pipe_train_evaluate(train, fetch, job, many, last_rank_asks, &asked, &loss) == GYRE_OK);
    CHECK(asked == 5 && isnan(loss)); /* on all ranks */
    if (job->folder)
        dump_end(job);
    pipe_train_destroy(train);
    free_reference(job);
}

/* ---- what ZeRO 3 sends under a pipeline, and other batches in between ---------------------------------- */

static pipe_train_config_t config_of(const job_t *job, const pipe_layout_t *layout)
{
    return (pipe_train_config_t){.model = job->shape,
                                 .layout = *layout,
                                 .batch = job->batch,
                                 .zero = {.adamw = how, .clip = CLIP, .bucket_bytes = 16384},
                                 .seed = SEED};
}

/* Stage 3 sends 2 m + 1 values per parameter under a pipeline as without one, and 2 where weights are
 * kept. */
static void gathers(job_t *job, gyre_comm_t *world)
{
    const pipe_layout_t cut[] = {{.tp = 1, .pp = 1, .zero = 3, .micro_batch = 2, .schedule = PIPE_1F1B},
                                 {.tp = 1, .pp = 2, .zero = 3, .micro_batch = 1, .schedule = PIPE_1F1B}};
    job->shape.untied = 1; /* a tied row would be on two stages */
    CHECK(model_params_create(&job->shape, &job->params) == GYRE_OK);
    for (size_t i = 0; i < 4; i++) {
        pipe_train_config_t config = config_of(job, &cut[i / 2]);
        pipe_train_step_t step = {0};
        pipe_train_t *train = NULL;
        if (gyre_comm_size(world) % (int)config.layout.pp != 0)
            break;
        config.zero.keep = i % 2 == 1;
        CHECK(create_train(world, &config, &train) == GYRE_OK);
        CHECK(optim_zero_init(pipe_train_zero(train), SEED) == GYRE_OK);
        CHECK(pipe_train_step(train, 0, fetch, job, 0.001, &step) == GYRE_OK);
        check_traffic(job, world, pipe_train_layout(train), config.zero.keep, &step.zero);
        pipe_train_destroy(train);
    }
    model_params_destroy(job->params);
    job->shape.untied = 0;
}

/* Bytes of all kinds, but for buckets on their way: a rank whose share is smaller takes one more where it
 * cannot wait (docs/zero.md). *sums: those of the sums over its sequences. */
static size_t held(pipe_train_t *train, size_t *sums)
{
    size_t bytes[OPTIM_MEMORY_KINDS], all = 0;
    optim_zero_memory(pipe_train_zero(train), bytes);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        all += k == OPTIM_MEMORY_BUCKETS ? 0 : bytes[k];
    *sums = bytes[OPTIM_MEMORY_ACCUMULATION];
    return all + pipe_train_activation_bytes(train);
}

/* A batch of 8 sequences, then 3 (which feed not all of four ranks), then 8: the steps are those of one
 * process, a run that was made for the size, the memory is that of before. With lanes 8 sequences are two
 * rounds, and 3 are one, in uneven shares, which have sums of their own. */
static void resized(job_t *job, gyre_comm_t *world, const pipe_layout_t *layout, const char *offload,
                    size_t lanes)
{
    static const size_t sizes[] = {8, 8, 3, 3, 8, 8};
    pipe_train_t *train = NULL;
    size_t first = 0, sums = 0, now, sums_now;
    int rank = gyre_comm_rank(world);
    job->batch = (optim_batch_t){.batch = 8, .lanes = lanes};
    pipe_train_config_t config = config_of(job, layout);
    config.zero.offload = offload;
    make_reference(job);
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    CHECK(optim_zero_init(pipe_train_zero(train), SEED) == GYRE_OK);
    CHECK(pipe_train_resize(train, 0) == GYRE_ERR_INVALID);
    CHECK(pipe_train_resize(train, 9) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "a batch of 9 sequences: this run was made for 1 to 8") != NULL);
    for (job->step = 0; job->step < sizeof sizes / sizeof *sizes; job->step++) {
        pipe_train_step_t step = {0};
        job->batch = optim_batch_sized(&config.batch, sizes[job->step]);
        CHECK(pipe_train_resize(train, sizes[job->step]) == GYRE_OK);
        CHECK(pipe_train_step(train, job->step, fetch, job, 0.002, &step) == GYRE_OK);
        now = held(train, &sums_now);
        if (job->step == 1) {
            first = now;
            sums = sums_now;
        }
        MP_CHECK(job->step != 3 || lanes > 0 || (now <= first && sums_now <= sums),
                 "3 sequences hold %zu bytes, 8 %zu", now, first);
        MP_CHECK(job->step != 5 || (now == first && sums_now == sums), "%zu bytes, %zu before", now, first);
        double loss;
        update(job, compare_step(job, world, &step, &loss), 0.002);
    }
    compare_weights(job, train, rank);
    pipe_train_destroy(train);
    free_reference(job);
}

/* Data-parallel ranks that share experts; a batch of unequal shares is refused. */
static void shared_experts(job_t *job, gyre_comm_t *world)
{
    pipe_layout_t layout = {.tp = 1, .pp = 1, .ep = 2, .zero = 2, .schedule = PIPE_1F1B};
    pipe_train_t *train = NULL;
    job->shape.experts = 4;
    job->shape.top_k = 2;
    run(job, world, &layout);
    layout.zero = 3;
    layout.micro_batch = 2;
    run(job, world, &layout);
    const pipe_train_config_t config = config_of(job, &layout);
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    CHECK(pipe_train_resize(train, 3) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), "ep 2: a batch of 3 has no equal shares for dp ") != NULL);
    pipe_train_destroy(train);
    job->shape.experts = job->shape.top_k = 0;
}

/* The first step of a batch of `sequences` that are alike, of which `hidden` targets are not learned. */
static pipe_train_step_t first_step(job_t *job, gyre_comm_t *world, size_t sequences, size_t hidden)
{
    const pipe_layout_t layout = {.tp = 1, .pp = 1, .zero = 1, .schedule = PIPE_1F1B};
    const pipe_train_config_t config = config_of(job, &layout);
    pipe_train_step_t step = {0};
    pipe_train_t *train = NULL;
    job->alike = 1;
    job->step = 0;
    job->hidden = hidden;
    CHECK(create_train(world, &config, &train) == GYRE_OK);
    CHECK(optim_zero_init(pipe_train_zero(train), SEED) == GYRE_OK);
    CHECK(pipe_train_resize(train, sequences) == GYRE_OK);
    CHECK(pipe_train_step(train, 0, fetch, job, 0.002, &step) == GYRE_OK);
    pipe_train_destroy(train);
    job->alike = 0;
    job->hidden = 0;
    return step;
}

/* Routers' auxiliary losses are divided as the loss is: they count positions / learned positions times. Of a
 * batch in which nothing is learned they are the mean. */
static void masked_experts(job_t *job, gyre_comm_t *world)
{
    job->shape.experts = 4;
    job->shape.top_k = 2;
    job->shape.balance = 0.5;
    job->shape.router_z = 0.25;
    const pipe_train_step_t all = first_step(job, world, 8, 0), half = first_step(job, world, 8, SEQ / 2),
                            none = first_step(job, world, 8, SEQ), one = first_step(job, world, 1, SEQ);
    CHECK(all.balance > 0.0 && all.router_z > 0.0);
    MP_CHECK(half.balance == 2 * all.balance && half.router_z == 2 * all.router_z,
             "half of it is learned: balance %g, router_z %g; all: %g, %g", half.balance, half.router_z,
             all.balance, all.router_z);
    MP_CHECK(none.learned == 0.0 && none.loss == 0.0 && none.balance == all.balance &&
                 none.router_z == all.router_z && one.balance == all.balance,
             "nothing is learned: loss %g, balance %g, router_z %g; all: %g, %g", none.loss, none.balance,
             none.router_z, all.balance, all.router_z);
    MP_CHECK(one.zero.norm > 0.0 && none.zero.norm == one.zero.norm,
             "nothing is learned: norm %g, of one sequence %g", none.zero.norm, one.zero.norm);
    job->shape.experts = job->shape.top_k = 0;
    job->shape.balance = job->shape.router_z = 0.0;
}

int main(int argc, char **argv)
{
    gyre_comm_t *world = NULL;
    CHECK(gyre_init(NULL, &world) == GYRE_OK);
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for below */
    size_t ranks = (size_t)gyre_comm_size(world), four = ranks % 4 == 0;
    job_t job = {.shape = {.vocab = VOCAB, .seq = SEQ, .layers = 2, .hidden = 48, .heads = 4, .leaves = 1},
                 .batch = {.batch = 8}, /* uneven shares on 3 ranks, and still the bits of one */
                 .folder = argc > 1 ? argv[1] : NULL,
                 .steps = json_array()};
    CHECK(ranks == 1 || !job.folder);
    const pipe_layout_t data = {.tp = 1, .pp = 1, .zero = 1, .schedule = PIPE_1F1B};
    run(&job, world, &data);
    job.folder = NULL;
    job.shape.leaves = 4;
    job.batch.batch = 6;
    const pipe_layout_t mixed = {
        .tp = ranks % 2 ? 1 : 2, .pp = four ? 2 : 1, .zero = 2, .micro_batch = 2, .schedule = PIPE_1F1B};
    run(&job, world, &mixed);
    job.batch.batch = 8;
    run(&job, world, &(pipe_layout_t){.tp = 1, .pp = 1, .zero = 3, .schedule = PIPE_1F1B});

    /* several sequences with one gradient: two, in micro-batches of one and of two gradients, and four */
    job.batch.leaf = 2;
    pipe_layout_t split = mixed;
    split.schedule = four ? PIPE_ZB_H1 : PIPE_1F1B;
    run(&job, world, &split);
    split.micro_batch = 4;
    run(&job, world, &split);
    job.batch = (optim_batch_t){.batch = BATCH, .leaf = 4};
    run(&job, world, &(pipe_layout_t){.tp = 1, .pp = 1, .zero = 3, .schedule = PIPE_1F1B});
    job.batch = (optim_batch_t){.batch = 8};

    /* rounds of lanes: one gradient a rank, and two; micro-batches that end within a round, with it, beyond
     * */
    job.batch = (optim_batch_t){.batch = 12, .lanes = ranks == 3 ? 3 : 4};
    run(&job, world, &(pipe_layout_t){.tp = 1, .pp = 1, .zero = 3, .micro_batch = 2, .schedule = PIPE_1F1B});
    split.micro_batch = 3;
    run(&job, world, &split);
    job.batch = (optim_batch_t){.batch = 8};

    gathers(&job, world);
    resized(&job, world, &(pipe_layout_t){.tp = 1, .pp = 1, .zero = 3, .schedule = PIPE_1F1B}, NULL, 0);
    resized(&job, world,
            &(pipe_layout_t){.tp = 1, .pp = 1, .zero = 2, .micro_batch = 2, .schedule = PIPE_1F1B}, P_tmpdir,
            0);
    if (ranks % 2 == 0)
        resized(&job, world, &(pipe_layout_t){.tp = 1, .pp = 2, .zero = 1, .schedule = PIPE_ZB_H1}, NULL, 4);

    if (ranks % 2 == 0)
        shared_experts(&job, world);
    masked_experts(&job, world);

    const pipe_train_config_t odd = {
        .model = job.shape, .layout = data, .batch = {.batch = ranks - 1}, .zero = {.adamw = how}};
    pipe_train_t *train = NULL;
    CHECK(create_train(world, &odd, &train) == GYRE_ERR_INVALID);
    json_decref(job.steps);
    CHECK(gyre_finalize(world) == GYRE_OK);
    return 0;
}
