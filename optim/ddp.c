/* optim/ddp.c: one training step's gradients, computed here and summed everywhere. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "optim/ddp.h"
#include "optim/tree.h"

struct optim_ddp {
    gyre_comm_t *comm;
    const model_params_t *params;
    model_gpt_t_f32 *gpt;
    size_t ranks, rank;
    optim_batch_t batch;
    size_t group; /* of the batch */
    size_t accum;
    size_t first, share; /* sequences of this rank */
    size_t micro;        /* sequences of a micro-batch; the last may have fewer */
    gyre_buckets_t *buckets;
    optim_stack_t *stack;            /* over this rank's share */
    float **grad;                    /* [rows] in bucket memory */
    float **place;                   /* [rows] on the stack, for leaves that are computed there */
    double *loss;                    /* [share] */
    model_token_t *tokens, *targets; /* [micro, seq] */
    model_spans_t *spans;            /* of the present step; NULL: nobody asks */
};

static gyre_status_t make_buckets(optim_ddp_t *ddp, size_t bucket_bytes)
{
    const model_params_t *params = ddp->params;
    const gyre_buckets_config_t config = {.size = sizeof config,
                                          .type = GYRE_FLOAT32,
                                          .op = GYRE_OP(GYRE_SUM),
                                          .mode = GYRE_BUCKET_ALL_REDUCE,
                                          .bucket_bytes = bucket_bytes};
    size_t *counts = malloc(params->rows * sizeof *counts);
    if (!counts)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the sizes of %zu parameters", params->rows);
    for (size_t r = 0; r < params->rows; r++)
        counts[r] = params->row[r].count;
    gyre_status_t status = gyre_buckets_create(ddp->comm, &config, params->rows, counts, &ddp->buckets);
    free(counts);
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++)
        ddp->grad[r] = gyre_buckets_tensor(ddp->buckets, r);
    return status;
}

gyre_status_t optim_ddp_create(gyre_comm_t *comm, const model_params_t *params, model_gpt_t_f32 *gpt,
                               const optim_ddp_config_t *config, optim_ddp_t **out)
{
    size_t ranks = (size_t)gyre_comm_size(comm), seq = params->config.seq;
    gyre_status_t status = optim_batch_check(&config->batch, ranks);
    if (status == GYRE_OK && config->accum < 1)
        status = gyre_fail(GYRE_ERR_INVALID, "accum %zu: it must be 1 or more", config->accum);
    if (status != GYRE_OK)
        return status;
    optim_ddp_t *ddp = calloc(1, sizeof *ddp);
    if (!ddp)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for data parallelism");
    *ddp = (optim_ddp_t){.comm = comm,
                         .params = params,
                         .gpt = gpt,
                         .ranks = ranks,
                         .rank = (size_t)gyre_comm_rank(comm),
                         .batch = optim_batch_complete(&config->batch),
                         .group = optim_batch_group(&config->batch),
                         .accum = config->accum};
    optim_batch_share(&ddp->batch, ranks, ddp->rank, &ddp->first, &ddp->share);
    ddp->micro = base_max_size(1, (ddp->share + ddp->accum - 1) / ddp->accum);
    ddp->grad = calloc(params->rows, sizeof *ddp->grad);
    ddp->place = calloc(params->rows, sizeof *ddp->place);
    ddp->loss = calloc(base_max_size(1, ddp->share), sizeof *ddp->loss);
    ddp->tokens = calloc(ddp->micro, seq * sizeof *ddp->tokens);
    ddp->targets = calloc(ddp->micro, seq * sizeof *ddp->targets);
    if (!ddp->grad || !ddp->place || !ddp->loss || !ddp->tokens || !ddp->targets)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a batch of %zu sequences", ddp->share);
    if (status == GYRE_OK)
        status = optim_stack_create(ddp->share, ddp->group, params->total, &ddp->stack);
    if (status == GYRE_OK)
        status = make_buckets(ddp, config->bucket_bytes);
    if (status != GYRE_OK) {
        optim_ddp_destroy(ddp);
        return status;
    }
    *out = ddp;
    return GYRE_OK;
}

void optim_ddp_destroy(optim_ddp_t *ddp)
{
    if (!ddp)
        return;
    if (ddp->buckets)
        gyre_buckets_destroy(ddp->buckets);
    optim_stack_destroy(ddp->stack);
    free(ddp->grad);
    free(ddp->place);
    free(ddp->loss);
    free(ddp->tokens);
    free(ddp->targets);
    free(ddp);
}

float *const *optim_ddp_grads(const optim_ddp_t *ddp)
{
    return ddp->grad;
}

/* Row `row` of the last sequence is final: join it with the sums of the sequences before and let its bucket go. */
static gyre_status_t row_ready(void *user, size_t row)
{
    optim_ddp_t *ddp = user;
    const model_param_t *param = &ddp->params->row[row];
    optim_stack_finish(ddp->stack, ddp->grad[row], param->offset, param->count);
    return gyre_buckets_ready(ddp->buckets, row); /* which also moves what runs */
}

/* While other sequences are to come, bucket memory is free to be computed in. */
static gyre_status_t backward_early(optim_ddp_t *ddp, size_t i)
{
    const model_params_t *params = ddp->params;
    float *place = optim_stack_place(ddp->stack, i);
    for (size_t r = 0; place && r < params->rows; r++)
        ddp->place[r] = place + params->row[r].offset;
    gyre_status_t status = model_gpt_backward_f32(ddp->gpt, place ? ddp->place : ddp->grad, NULL, NULL);
    for (size_t r = 0; status == GYRE_OK && !place && r < params->rows; r++)
        optim_stack_push(ddp->stack, i, ddp->grad[r], params->row[r].offset, params->row[r].count);
    return status;
}

static gyre_status_t sequence(optim_ddp_t *ddp, size_t i, const model_token_t *tokens,
                              const model_token_t *targets)
{
    size_t seq = ddp->params->config.seq;
    int micro = (int)(i / ddp->micro);
    base_time_t start = model_spans_now(ddp->spans);
    gyre_status_t status = model_gpt_forward_f32(ddp->gpt, tokens, targets, seq, &ddp->loss[i]);
    if (status != GYRE_OK)
        return status;
    base_time_t middle = model_spans_now(ddp->spans);
    model_spans_add(ddp->spans, MODEL_SPAN_FORWARD, start, middle, micro, 0);
    if (i + 1 < ddp->share)
        status = backward_early(ddp, i);
    else
        status = model_gpt_backward_f32(ddp->gpt, ddp->grad, row_ready, ddp);
    model_spans_add(ddp->spans, MODEL_SPAN_BACKWARD, middle, model_spans_now(ddp->spans), micro, 0);
    return status;
}

/* A rank without a sequence adds nothing: x + -0.0 is x, to the bit. */
static gyre_status_t nothing(optim_ddp_t *ddp)
{
    gyre_status_t status = GYRE_OK;
    for (size_t r = 0; status == GYRE_OK && r < ddp->params->rows; r++) {
        for (size_t i = 0; i < ddp->params->row[r].count; i++)
            ddp->grad[r][i] = -0.0f;
        status = gyre_buckets_ready(ddp->buckets, r);
    }
    return status;
}

/* Sums the loss and carries rank 0's notes: all others add zero, which changes no bits of them. */
static gyre_status_t reduce_loss(optim_ddp_t *ddp, optim_ddp_step_t *step)
{
    double word[1 + OPTIM_NOTES] = {optim_tree_sum(ddp->loss, ddp->share, ddp->group)};
    for (size_t i = 0; i < OPTIM_NOTES; i++)
        word[1 + i] = ddp->rank == 0 ? step->note[i] : 0.0;
    base_time_t start = base_now();
    gyre_status_t status =
        gyre_all_reduce(word, word, 1 + OPTIM_NOTES, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), ddp->comm);
    base_time_t end = base_now();
    model_spans_add(ddp->spans, MODEL_SPAN_REDUCE, start, end, -1, -1);
    step->exposed_s += (double)(end - start) * 1e-9;
    step->loss = word[0] / (double)ddp->batch.batch;
    memcpy(step->note, word + 1, sizeof step->note);
    return status;
}

gyre_status_t optim_ddp_step(optim_ddp_t *ddp, optim_fetch_fn fetch, void *user, optim_ddp_step_t *step)
{
    size_t seq = ddp->params->config.seq;
    gyre_status_t status = ddp->share == 0 ? nothing(ddp) : GYRE_OK;
    ddp->spans = step->spans;
    for (size_t at = 0; status == GYRE_OK && at < ddp->share; at += ddp->micro) {
        size_t micro = base_min_size(ddp->micro, ddp->share - at);
        for (size_t i = 0; i < micro; i++)
            fetch(user, ddp->first + at + i, ddp->tokens + i * seq, ddp->targets + i * seq);
        for (size_t i = 0; status == GYRE_OK && i < micro; i++)
            status = sequence(ddp, at + i, ddp->tokens + i * seq, ddp->targets + i * seq);
    }
    base_time_t start = model_spans_now(ddp->spans);
    if (status != GYRE_OK || (status = gyre_buckets_wait(ddp->buckets)) != GYRE_OK)
        return status;
    model_spans_add(ddp->spans, MODEL_SPAN_REDUCE, start, model_spans_now(ddp->spans), -1, -1);
    double total = 0.0, exposed = 0.0;
    if ((status = gyre_buckets_times(ddp->buckets, &total, &exposed)) != GYRE_OK)
        return status;
    step->exposed_s = exposed;
    step->hidden_s = total > exposed && ddp->ranks > 1 ? total - exposed : 0.0; /* alone: nothing travels */
    return reduce_loss(ddp, step);
}

gyre_status_t optim_ddp_evaluate(optim_ddp_t *ddp, optim_fetch_fn fetch, void *user, size_t count,
                                 double *loss)
{
    size_t seq = ddp->params->config.seq;
    double *each = calloc(count ? count : 1, sizeof *each);
    if (!each)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the losses of %zu sequences", count);
    gyre_status_t status = GYRE_OK;
    for (size_t i = ddp->rank; status == GYRE_OK && i < count; i += ddp->ranks) {
        fetch(user, i, ddp->tokens, ddp->targets);
        status = model_gpt_forward_f32(ddp->gpt, ddp->tokens, ddp->targets, seq, &each[i]);
    }
    if (status == GYRE_OK) /* one rank has each loss and the others zero: the sum is exact */
        status = gyre_all_reduce(each, each, count, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), ddp->comm);
    if (status == GYRE_OK)
        *loss = optim_tree_sum(each, count, 1) / (double)(count ? count : 1);
    free(each);
    return status;
}

gyre_status_t optim_ddp_verify(const optim_ddp_t *ddp, const float *flat, uint64_t *hash)
{
    uint64_t mine = base_hash64(flat, ddp->params->total * sizeof *flat, 0), ends[2] = {mine, ~mine};
    /* the smallest hash and, as complement, the largest: they are equal only if all are */
    gyre_status_t status = gyre_all_reduce(ends, ends, 2, GYRE_UINT64, GYRE_OP(GYRE_MIN), ddp->comm);
    if (status != GYRE_OK)
        return status;
    if (ends[0] != ~ends[1])
        return gyre_fail(
            GYRE_ERR_MISMATCH,
            "weights differ between ranks (hash %016llx here): ranks run on machines whose arithmetic "
            "differs, or memory is faulty; compare the machines with gyre-doctor",
            (unsigned long long)mine);
    *hash = mine;
    return GYRE_OK;
}
