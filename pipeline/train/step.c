/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/step.c: a training step and an evaluation, in any layout. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "optim/tree.h"
#include "pipeline/schedules/program.h"
#include "pipeline/train/engine.h"

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

/* Gives `spans` to all that computes or communicates in a step. */
static void watch(pipe_train_t *train, model_spans_t *spans)
{
    for (size_t c = 0; c < train->layout.chunks; c++)
        pipe_worker_watch(train->chunk[c].worker, spans);
    pipe_executor_watch(train->executor, spans != NULL);
    optim_zero_watch(train->zero, spans);
    if (train->lora) {
        optim_zero_watch(train->base, spans);
        optim_lora_watch(train->lora, spans);
    }
}

/* Nanoseconds that this thread has spent in collectives of its groups of tp and cp so far. */
static base_time_t tensor_time(const pipe_train_t *train)
{
    base_time_t sum = train->lora ? optim_lora_exposed(train->lora) : 0;
    for (size_t c = 0; c < train->layout.chunks; c++)
        sum += pipe_worker_exposed(train->chunk[c].worker);
    return sum;
}

/* By which sums over sequences, or parts of them, are divided. The loss of each, and so its gradient, is a
 * sum over the positions that are learned, divided by its length. The mean over all learned positions of the
 * step is the sum of losses, times that length, over `learned` (docs/contract.md). Where every position is
 * learned that is the number of sequences or parts, to the bit. It is the same where none is: then the losses
 * are 0, and routers' auxiliary losses are the mean over sequences or parts. */
static double weight_of(const pipe_train_t *train, double learned)
{
    return learned > 0.0 ? learned / (double)(train->whole->config.seq / train->batch.parts)
                         : (double)(train->batch.batch * train->batch.parts);
}

/* What add_exactly has added up (callbacks.c). */
static double exact_sum(const double word[2])
{
    return (word[0] * AUXILIARY_SPLIT + word[1]) * AUXILIARY_UNIT;
}

/* From the words of all ranks. */
static void tell_routing(const pipe_train_t *train, const double *word, pipe_train_step_t *out)
{
    const model_config_t *c = &train->whole->config;
    const double batch = (double)train->batch.batch, weight = weight_of(train, word[WORD_LEARNED]),
                 choices = batch * (double)((c->layers - c->dense_first) * c->seq) * (double)c->top_k;
    out->balance = out->dropped = NAN;
    out->z_loss = c->z_loss > 0.0 ? exact_sum(word + WORD_Z) / weight : NAN;
    out->router_z = c->router_z > 0.0 ? exact_sum(word + WORD_ROUTER_Z) / weight : NAN;
    if (c->experts == 0)
        return;
    out->balance = exact_sum(word + WORD_BALANCE) / weight;
    out->dropped = word[WORD_DROPPED] / choices;
}

/* All passes of a batch; losses of this rank's sequences go to loss [sequences, parts], by their index. */
static gyre_status_t run(pipe_train_t *train, pipe_executor_t *executor, double *loss)
{
    const optim_part_t *part = &train->work.part;
    const size_t here = train_parts_here(train), parts = train->batch.parts;
    const size_t before = train->longest - part->count; /* idle ones */
    memset(train->own_loss, 0, train->longest * here * sizeof *train->own_loss);
    train->work.loss = train->own_loss;
    gyre_status_t status = pipe_executor_step(executor);
    if (status == GYRE_OK)
        status = pipe_gpu_finish(train->gpu);
    if (status == GYRE_OK)
        status = pipe_links_error(train->links);
    for (size_t i = 0; status == GYRE_OK && i < part->count; i++)
        memcpy(loss + optim_part_index(part, i) * parts + train->place.cp * here,
               train->own_loss + (before + i) * here, here * sizeof *loss);
    return status;
}

/* What ranks ask for, as words [PIPE_ASKS] whose sums over ranks tell what any of them does. */
static void put_asked(double *word, unsigned asked)
{
    for (unsigned i = 0; i < PIPE_ASKS; i++)
        word[i] = asked >> i & 1;
}

static unsigned get_asked(const double *word)
{
    unsigned asked = 0;
    for (unsigned i = 0; i < PIPE_ASKS; i++)
        asked |= (unsigned)(word[i] > 0.0) << i;
    return asked;
}

/* Of the gradient's norm, from those of the step. */
static void set_limit(pipe_train_t *train, const pipe_train_step_t *step)
{
    if (step->limit[0] > 0.0 && step->loss > step->limit[0])
        optim_zero_limit(train->zero, -1.0);
    else if (step->limit[1] > 0.0)
        optim_zero_limit(train->zero, step->limit[1]);
}

static gyre_status_t make_step(pipe_train_t *train, uint64_t step, pipe_fetch_fn fetch, void *user,
                               double rate, pipe_train_step_t *out)
{
    const size_t count = train->batch.batch * train->batch.parts + WORDS;
    double *const words = train_words(train);
    memset(train->loss, 0, count * sizeof *train->loss);
    train->work = (work_t){.fetch = fetch,
                           .user = user,
                           .part = train->part,
                           .learned = words + WORD_LEARNED,
                           .micro = train->layout.micro_batch,
                           .number = step,
                           .scale = (float)optim_zero_loss_scale(train->zero)};
    train->unread = GYRE_OK;
    train->missed = 0;
    base_time_t tensor = tensor_time(train);
    optim_zero_begin(train->zero);
    if (train->base)
        optim_zero_begin(train->base);
    watch(train, out->spans);
    gyre_status_t status = run(train, train->executor, train->loss);
    if (status == GYRE_OK)
        add_spans(train, out->spans);
    base_time_t reducing = base_now();
    if (gyre_comm_rank(train->world) == 0)
        memcpy(words, out->note, sizeof out->note);
    words[WORD_UNREAD] = train->unread != GYRE_OK;
    put_asked(words + WORD_ASKED, out->asked);
    if (status == GYRE_OK) /* one rank has each loss, and the others zero: sums are exact */
        status =
            gyre_all_reduce(train->loss, train->loss, count, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), train->world);
    base_time_t joined = base_now();
    model_spans_add(out->spans, MODEL_SPAN_REDUCE, reducing, joined, -1, -1);
    out->join_s = (double)(joined - reducing) * 1e-9;
    out->asked = get_asked(words + WORD_ASKED);
    if (status == GYRE_OK)
        status = train_unread(train, words[WORD_UNREAD]);
    out->learned = words[WORD_LEARNED];
    double weight = weight_of(train, out->learned);
    out->loss = optim_batch_sum(&train->batch, train->loss) / weight;
    set_limit(train, out);
    if (status == GYRE_OK)
        status = optim_zero_finish(train->zero, 1.0 / weight, rate, &out->zero);
    watch(train, NULL);
    if (status != GYRE_OK)
        return status;
    if (train->base)
        optim_zero_moved(train->base, &out->zero);
    memcpy(out->note, words, sizeof out->note);
    tell_routing(train, words, out);
    pipe_report_t report;
    pipe_executor_report(train->executor, &report);
    out->pipe_wait_s = report.wait_s;
    out->tensor_s = (double)(tensor_time(train) - tensor) * 1e-9;
    return GYRE_OK;
}

gyre_status_t pipe_train_step(pipe_train_t *train, uint64_t step, pipe_fetch_fn fetch, void *user,
                              double rate, pipe_train_step_t *out)
{
    base_team_t *before = base_team_use(train->team);
    gyre_status_t status = make_step(train, step, fetch, user, rate, out);
    base_team_use(before);
    return status;
}

/* Losses of sequences first .. first + count - 1 of `fetch` to each [count, parts], where this rank computes
 * them, and added to *learned their positions that are learned. They are dealt out to the columns one by
 * one. */
static gyre_status_t evaluate_some(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t first,
                                   size_t count, double *each, double *learned)
{
    size_t dp = train->layout.dp, longest = train->longest, column = train->place.dp;
    train->work = (work_t){.fetch = fetch,
                           .user = user,
                           .part = {.first = first + column,
                                    .run = 1,
                                    .stride = dp,
                                    .count = count > column ? (count - column - 1) / dp + 1 : 0},
                           .learned = learned,
                           .micro = pipe_layout_evaluated_together(&train->layout),
                           .number = 0,
                           .scale = 1.0f,
                           .evaluate = 1};
    train->longest = (count + dp - 1) / dp;
    base_team_t *before = base_team_use(train->team);
    gyre_status_t status = run(train, train->evaluator, each);
    base_team_use(before);
    train->longest = longest;
    return status;
}

/* Sequences of a column between two looks at what ranks ask for. A GPU makes PIPE_EVALUATED in less time. */
static size_t evaluated_at_once(const pipe_train_t *train)
{
    const pipe_layout_t *l = &train->layout;
    double flops = 2.0 * (double)train->whole->total * (double)train->whole->config.seq;
    double sequences = EVALUATED_FLOPS * (double)(l->tp * l->cp * l->pp) / flops;
    return train->gpu || sequences >= PIPE_EVALUATED ? PIPE_EVALUATED
           : sequences > 1.0                         ? (size_t)sequences
                                                     : 1;
}

/* What any rank asks for. Collective. */
static gyre_status_t compare_asks(pipe_train_t *train, pipe_asks_fn asks, void *user, unsigned *asked)
{
    double word[PIPE_ASKS];
    put_asked(word, asks ? asks(user) : 0);
    gyre_status_t status =
        gyre_all_reduce(word, word, PIPE_ASKS, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), train->world);
    *asked = status == GYRE_OK ? get_asked(word) : 0;
    return status;
}

static pipe_shape_t evaluation_shape(const pipe_train_t *train)
{
    const size_t micro = pipe_layout_evaluated_together(&train->layout);
    return pipe_layout_shape(&train->layout, (PIPE_EVALUATED + micro - 1) / micro, 1);
}

gyre_status_t pipe_train_evaluate(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t count,
                                  pipe_asks_fn asks, unsigned *asked, double *loss)
{
    size_t at_once = train->layout.dp * evaluated_at_once(train);
    *loss = NAN;
    *asked = 0;
    if (count == 0)
        return GYRE_OK;
    if (!train->evaluator) {
        const pipe_shape_t shape = evaluation_shape(train);
        gyre_status_t status = train_make_executor(
            train, &shape, pipe_layout_evaluated_together(&train->layout), &train->evaluator);
        if (status != GYRE_OK)
            return status;
    }
    const size_t losses = count * train->batch.parts;
    double *each = calloc(losses + 2, sizeof *each); /* and ranks that could not read; learned positions */
    if (!each)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the losses of %zu sequences", count);
    double *learned = each + losses + 1;
    train->unread = GYRE_OK;
    train->missed = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && *asked == 0 && at < count; at += at_once) {
        if (at > 0)
            status = compare_asks(train, asks, user, asked);
        if (status == GYRE_OK && *asked == 0)
            status = evaluate_some(train, fetch, user, at, base_min_size(at_once, count - at), each, learned);
    }
    each[losses] = train->unread != GYRE_OK;
    if (status == GYRE_OK)
        status = gyre_all_reduce(each, each, losses + 2, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), train->world);
    if (status == GYRE_OK)
        status = train_unread(train, each[losses]);
    if (status == GYRE_OK && *asked == 0)
        *loss = optim_tree_sum(each, losses, 1) / weight_of(train, *learned);
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

const pipe_layout_t *pipe_train_layout(const pipe_train_t *train)
{
    return &train->layout;
}

size_t pipe_train_threads(const pipe_train_t *train)
{
    return base_team_threads(train->team);
}

/* Boundary tensors of an evaluation, also before the first one, which makes them. */
static size_t evaluation_bytes(const pipe_train_t *train)
{
    pipe_schedule_t *schedule = NULL;
    pipe_program_t program;
    size_t slot, bytes = 0;
    const pipe_shape_t shape = evaluation_shape(train);
    if (pipe_schedule_create(&shape, &schedule) != GYRE_OK)
        return 0;
    if (pipe_program_build(schedule, (int)train->place.pp, &program) == GYRE_OK) {
        const size_t count = pipe_layout_evaluated_together(&train->layout) * train->boundary;
        if (pipe_program_bytes(&program, count, gyre_type_size(train->type), &slot, &bytes) != GYRE_OK)
            bytes = 0;
        pipe_program_free(&program);
    }
    pipe_schedule_destroy(schedule);
    return bytes;
}

size_t pipe_train_activation_bytes(const pipe_train_t *train)
{
    pipe_report_t report;
    pipe_executor_report(train->executor, &report);
    size_t bytes = report.buffer_bytes;
    bytes += evaluation_bytes(train);
    for (size_t c = 0; c < train->layout.chunks; c++) {
        bytes += pipe_worker_bytes(train->chunk[c].worker);
    }
    return bytes;
}
