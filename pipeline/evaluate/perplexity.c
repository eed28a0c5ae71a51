/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/perplexity.c: windows go through the stages one after another; a stage computes a window
 * while the one before it computes the next. */
#include "pipeline/evaluate/perplexity.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/network/stage/plain_store.h"
#include "optim/tree.h"
#include "pipeline/agree/agree.h"

struct pipe_evaluator {
    const pipe_part_t *part;
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
    float *x_in, *x_out, *losses;    /* [T, C]; [T] */
    model_token_t *tokens, *targets; /* [T] of a window */
};

/* ---- making it ----------------------------------------------------------------------------------------- */

static gyre_status_t make_stage(void *user)
{
    pipe_evaluator_t *e = user;
    const pipe_part_t *part = e->part;
    const size_t T = part->whole->config.seq, C = part->whole->config.hidden;
    const model_stage_config_t how = {.first = part->first,
                                      .layers = part->layers,
                                      .embed = part->embed,
                                      .head = part->head,
                                      .slots = 1,
                                      .recompute = MODEL_RECOMPUTE_FULL, /* nothing is kept for backward */
                                      .precision = pipe_source_precision(part->source),
                                      .threads = part->threads};
    e->plain = (model_plain_store_t_f32){.params = part->slice, .weights = part->weights};
    const model_store_t_f32 store = model_plain_store_f32(&e->plain);
    e->x_in = calloc(T * C, sizeof *e->x_in);
    e->x_out = calloc(T * C, sizeof *e->x_out);
    e->losses = calloc(T, sizeof *e->losses);
    e->tokens = calloc(T, sizeof *e->tokens);
    e->targets = calloc(T, sizeof *e->targets);
    if (!e->x_in || !e->x_out || !e->losses || !e->tokens || !e->targets)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a window of %zu positions", T);
    return model_stage_create_f32(part->slice, &part->tp, &how, &store, MODEL_ISA_BEST, &e->stage);
}

gyre_status_t pipe_evaluator_create(const pipe_part_t *part, pipe_evaluator_t **out)
{
    pipe_evaluator_t *e = calloc(1, sizeof *e);
    if (!e)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for an evaluator");
    e->part = part;
    gyre_status_t status = pipe_by_all(part->world, make_stage, e, NULL);
    if (status != GYRE_OK) {
        pipe_evaluator_destroy(e);
        return status;
    }
    *out = e;
    return GYRE_OK;
}

void pipe_evaluator_destroy(pipe_evaluator_t *e)
{
    if (!e)
        return;
    model_stage_destroy_f32(e->stage);
    free(e->x_in);
    free(e->x_out);
    free(e->losses);
    free(e->tokens);
    free(e->targets);
    free(e);
}

/* ---- windows ------------------------------------------------------------------------------------------- */

/* Tokens first .. end - 1 of the text are scored by the window that begins at `begin`. */
typedef struct {
    size_t begin, first, end;
} window_t;

static size_t window_count(size_t count, size_t T, size_t stride)
{
    return count - 1 <= T ? 1 : 1 + (count - 1 - T + stride - 1) / stride;
}

static window_t window_at(size_t w, size_t count, size_t T, size_t stride)
{
    const size_t begin = w * stride;
    return (window_t){.begin = begin,
                      .first = w == 0 ? 1 : begin - stride + T + 1,
                      .end = base_min_size(begin + T + 1, count)};
}

/* The window's log-probabilities, where this stage has the head. */
static gyre_status_t compute(pipe_evaluator_t *e, const model_token_t *tokens, const window_t *w,
                             float *log_probability)
{
    const pipe_part_t *part = e->part;
    const size_t T = part->whole->config.seq, used = w->end - 1 - w->begin,
                 n = model_stage_boundary_f32(e->stage);
    const model_sequence_t sequence = {.tokens = e->tokens, .targets = e->targets, .evaluate = 1};
    const int stage = (int)part->place.pp;
    double loss;
    gyre_status_t status = GYRE_OK;
    memset(e->tokens, 0, T * sizeof *e->tokens);
    memset(e->targets, 0, T * sizeof *e->targets);
    memcpy(e->tokens, tokens + w->begin, used * sizeof *tokens);
    memcpy(e->targets, tokens + w->begin + 1, used * sizeof *tokens);
    if (!part->embed)
        status = gyre_recv(e->x_in, n, GYRE_FLOAT32, stage - 1, part->pp);
    base_team_t *before = base_team_use(part->team);
    if (status == GYRE_OK)
        status = model_stage_forward_f32(e->stage, 0, &sequence, part->embed ? NULL : e->x_in,
                                         part->head ? NULL : e->x_out, &loss);
    base_team_use(before);
    if (status == GYRE_OK && !part->head)
        status = gyre_send(e->x_out, n, GYRE_FLOAT32, stage + 1, part->pp);
    if (status != GYRE_OK || !part->head)
        return status;
    model_stage_losses_f32(e->stage, e->losses);
    for (size_t t = w->first; t < w->end; t++)
        log_probability[t] = -e->losses[t - 1 - w->begin];
    return GYRE_OK;
}

static gyre_status_t check(const pipe_evaluator_t *e, const model_token_t *tokens, size_t count,
                           size_t stride)
{
    const model_config_t *c = &e->part->whole->config;
    if (count < 2)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the text has %zu token%s: 2 or more are needed, since the first is not scored",
                         count, count == 1 ? "" : "s");
    if (stride < 1 || stride > c->seq)
        return gyre_fail(GYRE_ERR_INVALID, "--stride %zu: a window has %zu positions: give 1 to %zu", stride,
                         c->seq, c->seq);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= c->vocab)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "token %zu of the text is id %d, but the model has %zu ids: the tokenizer is not "
                "the model's",
                i, (int)tokens[i], c->vocab);
    return GYRE_OK;
}

/* As the trainer: a window's sum in its order, and a tree over windows. A window that scores fewer tokens
 * than T weighs as much less. */
static gyre_status_t mean(const float *log_probability, size_t count, size_t T, size_t stride,
                          pipe_perplexity_t *out)
{
    double *each = calloc(out->windows, sizeof *each);
    if (!each)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the losses of %zu windows", out->windows);
    for (size_t w = 0; w < out->windows; w++) {
        const window_t window = window_at(w, count, T, stride);
        for (size_t t = window.first; t < window.end; t++)
            each[w] -= (double)log_probability[t];
        each[w] /= (double)T;
    }
    out->nats = optim_tree_sum(each, out->windows, 1) / ((double)out->tokens / (double)T);
    free(each);
    return GYRE_OK;
}

gyre_status_t pipe_perplexity(pipe_evaluator_t *e, const model_token_t *tokens, size_t count, size_t stride,
                              float *log_probability, pipe_perplexity_t *out)
{
    const pipe_part_t *part = e->part;
    const size_t T = part->whole->config.seq;
    int muted = base_log_mute(gyre_comm_rank(part->world) != 0); /* all ranks find the same */
    gyre_status_t status = check(e, tokens, count, stride);
    base_log_mute(muted);
    if (status != GYRE_OK)
        return status;
    *out = (pipe_perplexity_t){.windows = window_count(count, T, stride), .tokens = count - 1};
    log_probability[0] = 0.0f;
    for (size_t w = 0; status == GYRE_OK && w < out->windows; w++) {
        const window_t window = window_at(w, count, T, stride);
        status = compute(e, tokens, &window, log_probability);
    }
    if (status == GYRE_OK && part->stages > 1)
        status = gyre_broadcast(log_probability, log_probability, count, GYRE_FLOAT32, pipe_part_last(part),
                                part->world);
    return status == GYRE_OK ? mean(log_probability, count, T, stride, out) : status;
}
