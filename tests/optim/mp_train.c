/* ranks: 1 2 3 4 */
/* tests/optim/mp_train.c: ten training steps on every number of ranks: gradients, loss and weights are, to the bit, what one process computes
 * for the whole batch by the tree of the contract.
 *
 *   mp_train              checks that
 *   mp_train FOLDER       also writes what tests/model/torch_compare.py compares with PyTorch
 */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/log.h"
#include "model/checkpoint.h"
#include "model/random.h"
#include "optim/adamw.h"
#include "optim/ddp.h"
#include "optim/schedule.h"
#include "optim/tree.h"
#include "tests/support/mp.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { STEPS = 10, SEQ = 32, VOCAB = 64 };
static const model_config_t shape = {.vocab = VOCAB, .seq = SEQ, .layers = 2, .hidden = 48, .heads = 3};
static const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
static const optim_schedule_t schedule = {.peak = 0.002, .floor = 0.1, .warmup = 3, .steps = STEPS};
#define CLIP 1.0

typedef struct {
    model_params_t *params;
    model_gpt_t_f32 *gpt;
    float *flat;
    size_t batch, step;
    float *leaf, *reference; /* [total] */
    json_t *steps;
    const char *folder;
} job_t;

/* A text with structure, so that there is something to learn: runs that count upwards. */
static void fetch(void *user, size_t index, model_token_t *tokens, model_token_t *targets)
{
    const job_t *job = user;
    uint64_t start = model_random_bits(5, MODEL_RANDOM_DATA, (uint32_t)index, job->step);
    for (size_t t = 0; t <= SEQ; t++) {
        model_token_t token =
            (model_token_t)((start + t * (1 + index % 3) + (t % 5 == 4 ? start >> 9 : 0)) % VOCAB);
        if (t < SEQ)
            tokens[t] = token;
        if (t > 0)
            targets[t - 1] = token;
    }
}

/* Sum of the gradients of leaves [first, first + n) into out [total]: the tree as it is defined. */
static double sum_leaves(job_t *job, size_t first, size_t n, float *out)
{
    size_t total = job->params->total, half = 1;
    if (n == 1) {
        model_token_t tokens[SEQ], targets[SEQ];
        float *grads[64];
        double loss = 0.0;
        CHECK(job->params->rows <= 64);
        for (size_t r = 0; r < job->params->rows; r++)
            grads[r] = out + job->params->row[r].offset;
        fetch(job, first, tokens, targets);
        CHECK(model_gpt_forward_f32(job->gpt, tokens, targets, SEQ, &loss) == GYRE_OK);
        CHECK(model_gpt_backward_f32(job->gpt, grads, NULL, NULL) == GYRE_OK);
        return loss;
    }
    while (2 * half < n)
        half *= 2;
    float *right = malloc(total * sizeof *right);
    CHECK(right != NULL);
    double loss = sum_leaves(job, first, half, out);
    loss = loss + sum_leaves(job, first + half, n - half, right);
    for (size_t i = 0; i < total; i++)
        out[i] = out[i] + right[i];
    free(right);
    return loss;
}

/* The tree over `ranks` equal runs of leaves. It is the plain tree if both numbers are powers of two, and with uneven
 * runs it always is. */
static double reference(job_t *job, size_t ranks, size_t first, size_t share, float *out)
{
    size_t total = job->params->total, half = 1;
    if (ranks == 1)
        return sum_leaves(job, first, share, out);
    while (2 * half < ranks)
        half *= 2;
    float *right = malloc(total * sizeof *right);
    CHECK(right != NULL);
    double loss = reference(job, half, first, share, out);
    loss = loss + reference(job, ranks - half, first + half * share, share, right);
    for (size_t i = 0; i < total; i++)
        out[i] = out[i] + right[i];
    free(right);
    return loss;
}

static void dump(job_t *job, double loss, double norm, double rate, float *const *grads)
{
    char path[512];
    json_t *batch = json_array();
    for (size_t b = 0; b < job->batch; b++) {
        model_token_t tokens[SEQ], targets[SEQ];
        fetch(job, b, tokens, targets);
        json_t *row = json_array();
        for (size_t t = 0; t < SEQ; t++)
            CHECK(json_array_append_new(row, json_integer(tokens[t])) == 0);
        CHECK(json_array_append_new(row, json_integer(targets[SEQ - 1])) == 0);
        CHECK(json_array_append_new(batch, row) == 0);
    }
    CHECK(json_array_append_new(job->steps, json_pack("{s:f, s:f, s:f, s:o}", "loss", loss, "norm", norm,
                                                      "rate", rate, "batch", batch)) == 0);
    for (size_t r = 0; r < job->params->rows; r++)
        for (size_t i = 0; i < job->params->row[r].count; i++)
            job->leaf[job->params->row[r].offset + i] = grads[r][i] / (float)job->batch;
    snprintf(path, sizeof path, "%s/grad%zu.safetensors", job->folder, job->step);
    CHECK(model_checkpoint_save(path, job->params, job->leaf) == GYRE_OK);
}

static void dump_end(job_t *job)
{
    char path[512];
    snprintf(path, sizeof path, "%s/steps.json", job->folder);
    json_t *object =
        json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:O}", "layers", (int)shape.layers, "hidden",
                  (int)shape.hidden, "heads", (int)shape.heads, "beta1", how.beta1, "beta2", how.beta2,
                  "epsilon", how.epsilon, "decay", how.weight_decay, "clip", CLIP, "steps", job->steps);
    CHECK(object != NULL);
    CHECK(base_json_write(path, object) == GYRE_OK);
    json_decref(object);
    snprintf(path, sizeof path, "%s/end.safetensors", job->folder);
    CHECK(model_checkpoint_save(path, job->params, job->flat) == GYRE_OK);
}

static void train(job_t *job, gyre_comm_t *comm, size_t accum, size_t bucket_bytes)
{
    size_t ranks = (size_t)gyre_comm_size(comm);
    const optim_ddp_config_t config = {
        .batch = {.batch = job->batch, .equal = 1}, .accum = accum, .bucket_bytes = bucket_bytes};
    optim_adamw_t *adamw = NULL;
    optim_ddp_t *ddp = NULL;
    double first_loss = 0.0;
    uint64_t hash;
    model_params_init(job->params, 17, job->flat);
    CHECK(optim_adamw_create(job->params, &how, &adamw) == GYRE_OK);
    CHECK(optim_ddp_create(comm, job->params, job->gpt, &config, &ddp) == GYRE_OK);
    for (job->step = 0; job->step < STEPS; job->step++) {
        optim_ddp_step_t step = {.note = {gyre_comm_rank(comm) == 0 ? 0.1 : 7.0, (double)job->step}};
        CHECK(optim_ddp_step(ddp, fetch, job, &step) == GYRE_OK);
        CHECK(step.note[0] == 0.1);
        CHECK(step.exposed_s >= 0.0 && step.hidden_s >= 0.0);
        double want = job->batch % ranks ? sum_leaves(job, 0, job->batch, job->reference)
                                         : reference(job, ranks, 0, job->batch / ranks, job->reference);
        want /= (double)job->batch;
        CHECK(step.loss == want);
        float *const *grads = optim_ddp_grads(ddp);
        for (size_t r = 0; r < job->params->rows; r++)
            CHECK(memcmp(grads[r], job->reference + job->params->row[r].offset,
                         job->params->row[r].count * sizeof(float)) == 0);
        double norm = 0.0, scale = 1.0 / (double)job->batch,
               rate = optim_schedule_rate(&schedule, job->step, 0.0);
        CHECK(optim_grad_norm(job->params, grads, &norm) == GYRE_OK);
        norm *= scale;
        if (job->folder)
            dump(job, step.loss, norm, rate, grads);
        optim_adamw_step(adamw, job->flat, grads, (float)(scale * optim_clip_factor(norm, CLIP)), rate);
        first_loss = job->step == 0 ? step.loss : first_loss;
        CHECK(job->step + 1 < STEPS || step.loss < 0.95 * first_loss);
    }
    CHECK(optim_ddp_verify(ddp, job->flat, &hash) == GYRE_OK);

    double loss = 0.0, each[5];
    CHECK(optim_ddp_evaluate(ddp, fetch, job, 5, &loss) == GYRE_OK);
    for (size_t i = 0; i < 5; i++)
        each[i] = sum_leaves(job, i, 1, job->leaf);
    CHECK(loss == optim_tree_sum(each, 5, 1) / 5.0);

    if (ranks > 1 && gyre_comm_rank(comm) == 0)
        job->flat[7] += 0.25f; /* one rank goes astray: all must notice */
    if (ranks > 1)
        CHECK(optim_ddp_verify(ddp, job->flat, &hash) == GYRE_ERR_MISMATCH);
    if (ranks > 1 && gyre_comm_rank(comm) == 0)
        job->flat[7] -= 0.25f;
    optim_ddp_destroy(ddp);
    optim_adamw_destroy(adamw);
}

int main(int argc, char **argv)
{
    gyre_comm_t *comm = NULL;
    job_t job = {.steps = json_array()};
    CHECK(gyre_init(NULL, &comm) == GYRE_OK);
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for below */
    size_t ranks = (size_t)gyre_comm_size(comm);
    job.batch = 8; /* uneven shares on 3 ranks, and still the bits of one */
    CHECK(model_params_create(&shape, &job.params) == GYRE_OK);
    job.flat = calloc(job.params->total, sizeof(float));
    job.leaf = calloc(job.params->total, sizeof(float));
    job.reference = calloc(job.params->total, sizeof(float));
    CHECK(job.flat && job.leaf && job.reference);
    CHECK(model_gpt_create_f32(job.params, job.flat, MODEL_ISA_BEST, &job.gpt) == GYRE_OK);
    if (argc > 1) {
        char path[512];
        CHECK(ranks == 1);
        job.folder = argv[1];
        model_params_init(job.params, 17, job.flat);
        snprintf(path, sizeof path, "%s/start.safetensors", job.folder);
        CHECK(model_checkpoint_save(path, job.params, job.flat) == GYRE_OK);
    }
    train(&job, comm, 1, 0);
    if (job.folder)
        dump_end(&job);
    job.folder = NULL;
    train(&job, comm, 2, 16384); /* micro-batches and many buckets: the same reference */
    job.batch = 3 * ranks;       /* equal shares, whatever that means for the bits */
    train(&job, comm, 2, 0);
    const optim_ddp_config_t odd = {.batch = {.batch = ranks - 1}, .accum = 1};
    optim_ddp_t *ddp = NULL;
    CHECK(optim_ddp_create(comm, job.params, job.gpt, &odd, &ddp) == GYRE_ERR_INVALID);
    CHECK(strstr(gyre_last_error(), ranks == 1 ? "must be 1 or more" : "fewer sequences than") != NULL);
    model_gpt_destroy_f32(job.gpt);
    model_params_destroy(job.params);
    free(job.flat);
    free(job.leaf);
    free(job.reference);
    json_decref(job.steps);
    CHECK(gyre_finalize(comm) == GYRE_OK);
    return 0;
}
