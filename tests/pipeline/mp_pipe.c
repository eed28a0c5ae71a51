/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4 */
/* over UCX: 3 */
/* tests/pipeline/mp_pipe.c: the executor runs every schedule with a toy model of whole numbers. Loss and
 * weight gradients equal those that one process computes stage by stage, tensors stay as long as promised,
 * nothing is allocated after the first step, and a callback's error ends the step everywhere.
 *
 *   mp_pipe                            checks that
 *   mp_pipe measure [M [US [COUNT]]]   prints the measured bubble of every schedule next to its formula: M
 *   micro-batches;
 *                                      layers of a rank that take US microseconds forward and twice that
 *                                      backward, asleep, so that cores do not matter; COUNT elements of 8
 *                                      bytes between stages */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "pipeline/run/executor.h"
#include "pipeline/schedules/simulate.h"
#include "tests/support/mp.h"

enum { MOST_STAGES = 16, MOST_BATCHES = 8, SMALL = 96, LARGE = 3000, STEPS = 3 };

/* A stage: out = in * multiplier + addend, element by element, in arithmetic modulo 2^64. Its weight gradient
 * folds sum(in * d_out) of the micro-batches in their order, so another order gives another number. */
typedef struct {
    const pipe_schedule_t *schedule;
    pipe_executor_t *executor;
    int rank, step;
    size_t counts[MOST_BATCHES];
    const uint64_t *in[MOST_STAGES][MOST_BATCHES], *d_out[MOST_STAGES][MOST_BATCHES];
    uint64_t input_hash[MOST_STAGES][MOST_BATCHES];
    uint64_t loss[MOST_BATCHES], gradient[MOST_STAGES];
    int forwards[MOST_STAGES], backwards[MOST_STAGES], weights[MOST_STAGES];
    uint64_t jitter;
    /* the mishap */
    pipe_op_t fail_op;
    int fail_stage, fail_batch; /* -1: none */
} toy_t;

/* The measured bubble of the last step: 1 - (sum of busy_s over ranks) / (ranks * the longest span_s), to
 * compare with pipe_bubble_formula. Collective. */
static double measured_bubble(const pipe_executor_t *executor, gyre_comm_t *comm)
{
    pipe_report_t report;
    pipe_executor_report(executor, &report);
    double busy = report.busy_s, span = report.span_s;
    MP_OK(gyre_all_reduce(&busy, &busy, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_all_reduce(&span, &span, 1, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), comm));
    return span > 0.0 ? 1.0 - busy / (span * gyre_comm_size(comm)) : 0.0;
}

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t state = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c;
    return random_next(&state);
}

static uint64_t multiplier(int stage)
{
    return 2 * (uint64_t)stage + 3;
}

static uint64_t element(const toy_t *toy, int micro_batch, size_t i)
{
    return mix((uint64_t)toy->step, (uint64_t)micro_batch, i);
}

static uint64_t loss_gradient(int micro_batch, size_t i)
{
    return mix(77, (uint64_t)micro_batch, i);
}

static uint64_t hash(const uint64_t *data, size_t count)
{
    uint64_t h = count;
    for (size_t i = 0; i < count; i++)
        h = mix(h, data[i], i);
    return h;
}

static gyre_status_t mishap(const toy_t *toy, pipe_op_t op, int stage, int micro_batch)
{
    if (toy->fail_batch != micro_batch || toy->fail_stage != stage || toy->fail_op != op)
        return GYRE_OK;
    return gyre_fail_quiet(GYRE_ERR_IO, "the toy's disk is full");
}

static void dawdle(toy_t *toy)
{
    if (random_next(&toy->jitter) % 16 == 0)
        usleep(100);
}

static gyre_status_t forward(void *user, int chunk, int micro_batch, const void *in_v, void *out_v)
{
    toy_t *toy = user;
    const pipe_shape_t *shape = &toy->schedule->shape;
    int stage = pipe_stage_of(shape, toy->rank, chunk), last = pipe_stages(shape) - 1;
    const uint64_t *in = in_v;
    uint64_t *out = out_v;
    size_t count = toy->counts[micro_batch];
    MP_CHECK((in == NULL) == (stage == 0) && (out == NULL) == (stage == last), "stage %d", stage);
    MP_CHECK(micro_batch == toy->forwards[stage]++, "stage %d, micro-batch %d", stage, micro_batch);
    toy->in[stage][micro_batch] = in;
    toy->input_hash[stage][micro_batch] = in ? hash(in, count) : 0;
    toy->loss[micro_batch] = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = in ? in[i] : element(toy, micro_batch, i);
        uint64_t y = x * multiplier(stage) + (uint64_t)stage;
        if (out)
            out[i] = y;
        else
            toy->loss[micro_batch] += y * (i + 1);
    }
    dawdle(toy);
    gyre_status_t st = pipe_executor_progress(toy->executor); /* may learn of another rank's mishap */
    return st == GYRE_OK ? mishap(toy, PIPE_FORWARD, stage, micro_batch) : st;
}

static void add_weight_gradient(toy_t *toy, int stage, int micro_batch)
{
    const uint64_t *in = toy->in[stage][micro_batch], *d_out = toy->d_out[stage][micro_batch];
    size_t count = toy->counts[micro_batch];
    uint64_t sum = 0;
    MP_CHECK(micro_batch == toy->weights[stage]++, "stage %d, micro-batch %d", stage, micro_batch);
    MP_CHECK(!in || hash(in, count) == toy->input_hash[stage][micro_batch],
             "stage %d: the input of micro-batch %d was overwritten", stage, micro_batch);
    for (size_t i = 0; i < count; i++)
        sum +=
            (in ? in[i] : element(toy, micro_batch, i)) * (d_out ? d_out[i] : loss_gradient(micro_batch, i));
    toy->gradient[stage] = toy->gradient[stage] * 31 + sum;
}

static gyre_status_t backward(void *user, int chunk, int micro_batch, const void *d_out_v, void *d_in_v,
                              unsigned flags)
{
    toy_t *toy = user;
    const pipe_shape_t *shape = &toy->schedule->shape;
    int stage = pipe_stage_of(shape, toy->rank, chunk), last = pipe_stages(shape) - 1;
    int splits = pipe_kind_splits(shape->kind), end = micro_batch == shape->micro_batches - 1;
    const uint64_t *d_out = d_out_v;
    uint64_t *d_in = d_in_v;
    MP_CHECK((d_out == NULL) == (stage == last) && (d_in == NULL) == (stage == 0), "stage %d", stage);
    MP_CHECK(micro_batch == toy->backwards[stage]++, "stage %d, micro-batch %d", stage, micro_batch);
    MP_CHECK(flags == (splits ? PIPE_INPUT_ONLY : end ? PIPE_LAST : 0u), "flags %u", flags);
    toy->d_out[stage][micro_batch] = d_out;
    for (size_t i = 0; d_in && i < toy->counts[micro_batch]; i++)
        d_in[i] = (d_out ? d_out[i] : loss_gradient(micro_batch, i)) * multiplier(stage);
    if (!splits)
        add_weight_gradient(toy, stage, micro_batch);
    dawdle(toy);
    return mishap(toy, splits ? PIPE_BACKWARD_INPUT : PIPE_BACKWARD, stage, micro_batch);
}

static gyre_status_t backward_weight(void *user, int chunk, int micro_batch, unsigned flags)
{
    toy_t *toy = user;
    int stage = pipe_stage_of(&toy->schedule->shape, toy->rank, chunk);
    MP_CHECK(flags == (micro_batch == toy->schedule->shape.micro_batches - 1 ? PIPE_LAST : 0u), "flags %u",
             flags);
    add_weight_gradient(toy, stage, micro_batch);
    dawdle(toy);
    return mishap(toy, PIPE_BACKWARD_WEIGHT, stage, micro_batch);
}

static const pipe_callbacks_t callbacks = {forward, backward, backward_weight};

/* What one process computes: loss [m] and gradient [stages] of the toy's step. */
static void reference(const toy_t *toy, uint64_t *loss, uint64_t *gradient)
{
    static uint64_t in[MOST_STAGES][LARGE];
    const pipe_shape_t *shape = &toy->schedule->shape;
    int stages = pipe_stages(shape);
    for (int b = 0; b < shape->micro_batches; b++) {
        size_t count = toy->counts[b];
        loss[b] = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t x = element(toy, b, i);
            for (int s = 0; s < stages; s++) {
                in[s][i] = x;
                x = x * multiplier(s) + (uint64_t)s;
            }
            loss[b] += x * (i + 1);
        }
        uint64_t factor = 1;
        for (int s = stages - 1; s >= 0; s--) {
            uint64_t sum = 0;
            for (size_t i = 0; i < count; i++)
                sum += in[s][i] * loss_gradient(b, i) * factor;
            gradient[s] = gradient[s] * 31 + sum;
            factor *= multiplier(s);
        }
    }
}

static void check_result(const toy_t *toy)
{
    const pipe_shape_t *shape = &toy->schedule->shape;
    uint64_t loss[MOST_BATCHES], gradient[MOST_STAGES] = {0};
    reference(toy, loss, gradient);
    for (int c = 0; c < shape->chunks; c++) {
        int stage = pipe_stage_of(shape, toy->rank, c), m = shape->micro_batches;
        MP_CHECK(toy->forwards[stage] == m, "stage %d went forward %d times", stage, toy->forwards[stage]);
        for (int b = 0; stage == pipe_stages(shape) - 1 && b < m; b++)
            MP_CHECK(toy->loss[b] == loss[b], "loss of micro-batch %d", b);
        if (shape->forward_only)
            continue;
        MP_CHECK(toy->backwards[stage] == m && toy->weights[stage] == m, "stage %d", stage);
        MP_CHECK(toy->gradient[stage] == gradient[stage], "gradient of stage %d", stage);
    }
}

static void check_record(const toy_t *toy)
{
    const pipe_shape_t *shape = &toy->schedule->shape;
    const pipe_event_t *event;
    pipe_report_t report;
    size_t n = pipe_executor_timeline(toy->executor, &event);
    size_t each = shape->forward_only ? 1 : pipe_kind_splits(shape->kind) ? 3 : 2;
    MP_CHECK(n == each * (size_t)shape->chunks * (size_t)shape->micro_batches, "%zu events", n);
    for (size_t i = 0; i < n; i++) {
        MP_CHECK(event[i].stage == pipe_stage_of(shape, toy->rank, event[i].chunk), "event %zu", i);
        MP_CHECK(event[i].end >= event[i].start && event[i].waited >= 0, "event %zu", i);
        MP_CHECK(i == 0 || event[i].start >= event[i - 1].end + event[i].waited, "event %zu", i);
    }
    pipe_executor_report(toy->executor, &report);
    MP_CHECK(report.busy_s > 0 && report.busy_s + report.wait_s <= report.span_s, "%g + %g of %g",
             report.busy_s, report.wait_s, report.span_s);
    size_t sent = 0;
    for (size_t i = 0; i < toy->schedule->count[toy->rank]; i++) {
        const pipe_action_t *a = &toy->schedule->action[toy->rank][i];
        if (a->op == PIPE_SEND_ACT || a->op == PIPE_SEND_GRAD)
            sent += toy->counts[a->micro_batch] * sizeof(uint64_t);
    }
    MP_CHECK(report.bytes_sent == sent, "%zu bytes sent, not %zu", report.bytes_sent, sent);
}

static void begin_step(toy_t *toy, int step)
{
    toy->step = step;
    memset(toy->gradient, 0, sizeof toy->gradient);
    memset(toy->forwards, 0, sizeof toy->forwards);
    memset(toy->backwards, 0, sizeof toy->backwards);
    memset(toy->weights, 0, sizeof toy->weights);
}

static void run(gyre_comm_t *comm, pipe_shape_t shape, size_t count, int uneven)
{
    toy_t toy = {.rank = gyre_comm_rank(comm), .fail_batch = -1, .jitter = (uint64_t)gyre_comm_rank(comm)};
    pipe_schedule_t *schedule = NULL;
    gyre_comm_stats_t stats = {.size = sizeof stats};
    uint64_t allocations = 0;
    shape.ranks = gyre_comm_size(comm);
    MP_OK(pipe_schedule_create(&shape, &schedule));
    toy.schedule = schedule;
    for (int b = 0; b < shape.micro_batches; b++)
        toy.counts[b] = uneven ? count * (size_t)(b % 3) / 2 : count;
    pipe_executor_config_t config = {.call = callbacks,
                                     .user = &toy,
                                     .count = count,
                                     .counts = uneven ? toy.counts : NULL,
                                     .type = GYRE_UINT64,
                                     .grad_type = GYRE_INT64};
    MP_OK(pipe_executor_create(comm, schedule, &config, &toy.executor));
    for (int step = 0; step < STEPS; step++) {
        begin_step(&toy, step);
        MP_OK(pipe_executor_step(toy.executor));
        check_result(&toy);
        check_record(&toy);
        MP_OK(gyre_comm_stats(comm, &stats));
        MP_CHECK(step == 0 || stats.allocations == allocations, "step %d allocated", step);
        allocations = stats.allocations;
    }
    double bubble = measured_bubble(toy.executor, comm);
    MP_CHECK(bubble >= 0.0 && bubble < 1.0, "bubble %g", bubble);
    pipe_executor_destroy(toy.executor);
    pipe_schedule_destroy(schedule);
}

static int allowed(pipe_shape_t shape, int ranks)
{
    shape.ranks = ranks;
    return pipe_shape_check(&shape) == GYRE_OK;
}

static void every_schedule(gyre_comm_t *comm)
{
    int n = gyre_comm_size(comm), ran = 0;
    for (int kind = 0; kind < PIPE_KIND_END; kind++)
        for (int v = 1; v <= 3; v++)
            for (int m = 1; m <= MOST_BATCHES; m++)
                for (int evaluate = 0; evaluate < 2; evaluate++) {
                    pipe_shape_t shape = {
                        .kind = (pipe_kind_t)kind, .chunks = v, .micro_batches = m, .forward_only = evaluate};
                    if ((m & (m - 1) && m % n) || !allowed(shape, n))
                        continue;
                    run(comm, shape, m % 2 ? SMALL : LARGE, m == 4);
                    ran++;
                }
    MP_CHECK(ran >= 40, "%d", ran);
}

/* A callback of one rank fails: it gets its own status, all others get the failure; the job lives on. */
static void mishaps(gyre_comm_t *world, pipe_kind_t kind, pipe_op_t op, int m)
{
    pipe_shape_t shape = {
        .kind = kind, .ranks = gyre_comm_size(world), .chunks = pipe_kind_chunks(kind), .micro_batches = m};
    int stages = pipe_stages(&shape);
    int stride = stages > 2 ? stages / 2 : 1;
    for (int stage = stages - 1; stage >= 0; stage -= stride) {
        gyre_comm_t *comm = NULL;
        pipe_schedule_t *schedule = NULL;
        char where[64];
        int culprit, chunk;
        MP_OK(gyre_comm_split(world, 0, 0, &comm));
        MP_OK(pipe_schedule_create(&shape, &schedule));
        toy_t toy = {.schedule = schedule,
                     .rank = gyre_comm_rank(comm),
                     .fail_op = op,
                     .fail_stage = stage,
                     .fail_batch = m / 2};
        for (int b = 0; b < shape.micro_batches; b++)
            toy.counts[b] = LARGE;
        pipe_executor_config_t config = {
            .call = callbacks, .user = &toy, .count = LARGE, .type = GYRE_UINT64, .grad_type = GYRE_UINT64};
        MP_OK(pipe_executor_create(comm, schedule, &config, &toy.executor));
        pipe_place_of(&shape, stage, &culprit, &chunk);
        snprintf(where, sizeof where, "%s of stage %d (chunk %d), micro-batch %d", pipe_op_name(op), stage,
                 chunk, m / 2);
        gyre_status_t st = pipe_executor_step(toy.executor);
        if (toy.rank == culprit) {
            MP_CHECK(st == GYRE_ERR_IO, "%s", gyre_status_string(st));
        } else if (st == GYRE_OK) { /* this rank had all it needed before: it gets the error the next time */
            begin_step(&toy, 1);
            st = pipe_executor_step(toy.executor);
        }
        if (toy.rank != culprit)
            MP_CHECK(st == GYRE_ERR_ABORTED, "%s: %s", gyre_status_string(st), gyre_last_error());
        MP_CHECK(strstr(gyre_last_error(), where) && strstr(gyre_last_error(), "the toy's disk is full"),
                 "\"%s\" lacks \"%s\"", gyre_last_error(), where);
        if (m == 1 && op == PIPE_FORWARD && stage == stages - 1 && toy.rank != culprit)
            MP_CHECK(strstr(gyre_last_error(), "waiting for the gradient of the output of stage"), "%s",
                     gyre_last_error()); /* all others have nothing else to do by then */
        MP_CHECK(pipe_executor_step(toy.executor) == st, "%s", gyre_last_error());
        MP_CHECK(strstr(gyre_last_error(), "cannot go on"), "%s", gyre_last_error());
        MP_OK(gyre_comm_destroy(comm)); /* no request was left over */
        pipe_executor_destroy(toy.executor);
        pipe_schedule_destroy(schedule);
        MP_OK(gyre_barrier(world));
    }
}

static void refusals(gyre_comm_t *comm)
{
    pipe_shape_t shape = {
        .kind = PIPE_ZB_H1, .ranks = gyre_comm_size(comm) + 1, .chunks = 1, .micro_batches = 2};
    pipe_executor_config_t config = {
        .call = callbacks, .count = 1, .type = GYRE_UINT64, .grad_type = GYRE_UINT64};
    pipe_schedule_t *schedule = NULL;
    pipe_executor_t *executor = NULL;
    MP_OK(pipe_schedule_create(&shape, &schedule));
    MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_INVALID, "ranks");
    pipe_schedule_destroy(schedule);
    shape.ranks--;
    MP_OK(pipe_schedule_create(&shape, &schedule));
    config.call.backward_weight = NULL;
    MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_INVALID, "no callback");
    MP_CHECK(strstr(gyre_last_error(), "backward_weight"), "%s", gyre_last_error());
    config.call = callbacks;
    config.type = (gyre_type_t)99;
    MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_TYPE, "type");
    config.type = GYRE_UINT64;
    config.counts = (const size_t[]){1, 2};
    MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_INVALID, "counts");
    MP_CHECK(strstr(gyre_last_error(), "micro-batch 1"), "%s", gyre_last_error());
    if (gyre_comm_size(comm) > 1) {
        config.counts = NULL;
        config.count = SIZE_MAX / 4;
        MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_OVERFLOW, "size");
    }
    config.count = 1;
    config.counts = NULL;
    schedule->action[0][0].op = PIPE_BACKWARD_WEIGHT; /* not sound: refused by all ranks */
    MP_CHECK(pipe_executor_create(comm, schedule, &config, &executor) == GYRE_ERR_INVALID, "unsound");
    MP_CHECK(strstr(gyre_last_error(), "is not sound: rank 0, action 0: backward-weight"), "%s",
             gyre_last_error());
    MP_CHECK(executor == NULL, "set without success");
    pipe_schedule_destroy(schedule);
}

/* ---- the measured bubble ------------------------------------------------------------------------------- */

typedef struct {
    long forward_us, input_us, weight_us; /* of a chunk */
} sleeper_t;

static gyre_status_t sleep_us(long us)
{
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    return nanosleep(&time, NULL) == 0 ? GYRE_OK : GYRE_ERR_SYSTEM;
}

static gyre_status_t sleep_forward(void *user, int chunk, int micro_batch, const void *in, void *out)
{
    (void)chunk, (void)micro_batch, (void)in, (void)out;
    return sleep_us(((sleeper_t *)user)->forward_us);
}

static gyre_status_t sleep_backward(void *user, int chunk, int micro_batch, const void *d_out, void *d_in,
                                    unsigned flags)
{
    const sleeper_t *s = user;
    (void)chunk, (void)micro_batch, (void)d_out, (void)d_in;
    return sleep_us(s->input_us + (flags & PIPE_INPUT_ONLY ? 0 : s->weight_us));
}

static gyre_status_t sleep_weight(void *user, int chunk, int micro_batch, unsigned flags)
{
    (void)chunk, (void)micro_batch, (void)flags;
    return sleep_us(((sleeper_t *)user)->weight_us);
}

static void measure_one(gyre_comm_t *world, pipe_kind_t kind, int m, long us, size_t count)
{
    pipe_shape_t shape = {
        .kind = kind, .ranks = gyre_comm_size(world), .chunks = pipe_kind_chunks(kind), .micro_batches = m};
    sleeper_t sleeper = {us / shape.chunks, us / shape.chunks, us / shape.chunks};
    pipe_times_t times = {.forward = 1, .backward = 2, .weight = 1};
    pipe_executor_config_t config = {.call = {sleep_forward, sleep_backward, sleep_weight},
                                     .user = &sleeper,
                                     .count = count,
                                     .type = GYRE_UINT64,
                                     .grad_type = GYRE_UINT64};
    pipe_schedule_t *schedule = NULL;
    pipe_executor_t *executor = NULL;
    pipe_report_t report;
    double bubble = 0.0, least = 1.0;
    if (pipe_shape_check(&shape) != GYRE_OK)
        return;
    MP_OK(pipe_schedule_create(&shape, &schedule));
    MP_OK(pipe_executor_create(world, schedule, &config, &executor));
    for (int step = 0; step < 6; step++) {
        MP_OK(gyre_barrier(world));
        MP_OK(pipe_executor_step(executor));
        bubble = measured_bubble(executor, world);
        least = step > 0 && bubble < least ? bubble : least;
    }
    pipe_executor_report(executor, &report);
    if (gyre_comm_rank(world) == 0)
        printf("%-12s %6d %10.2f %% %10.2f %% %9.1f ms %12zu\n", pipe_kind_name(kind), shape.chunks,
               100 * pipe_bubble_formula(&shape, &times), 100 * least, 1e3 * report.span_s,
               report.buffer_bytes);
    pipe_executor_destroy(executor);
    pipe_schedule_destroy(schedule);
}

static void measure(gyre_comm_t *world, int argc, char **argv)
{
    int m = argc > 2 ? atoi(argv[2]) : 8;
    long us = argc > 3 ? atol(argv[3]) : 4000, count = argc > 4 ? atol(argv[4]) : 32768;
    MP_CHECK(m > 0 && us > 0 && count > 0, "mp_pipe measure [M [US [COUNT]]]");
    if (gyre_comm_rank(world) == 0)
        printf("%-12s %6s %12s %12s %12s %12s\n", "schedule", "chunks", "formula", "measured", "step",
               "buffers, B");
    for (int kind = 0; kind < PIPE_KIND_END; kind++)
        measure_one(world, (pipe_kind_t)kind, m, us, (size_t)count);
}

int main(int argc, char **argv)
{
    gyre_comm_t *world = NULL;
    MP_OK(gyre_init(NULL, &world));
    if (argc > 1 && !strcmp(argv[1], "measure")) {
        measure(world, argc, argv);
        MP_OK(gyre_finalize(world));
        return 0;
    }
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for below */
    every_schedule(world);
    refusals(world);
    mishaps(world, PIPE_1F1B, PIPE_FORWARD, 1);
    mishaps(world, PIPE_1F1B, PIPE_FORWARD, 4);
    mishaps(world, PIPE_1F1B, PIPE_BACKWARD, 4);
    mishaps(world, PIPE_ZB_V, PIPE_BACKWARD_INPUT, 4);
    mishaps(world, PIPE_ZB_V, PIPE_BACKWARD_WEIGHT, 4);
    MP_OK(gyre_finalize(world));
    return 0;
}
