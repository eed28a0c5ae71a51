/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 2, over UCX: 2 3 */
/* tests/pipeline/mp_train_fails.c: a rank gives up in the middle of a step, while others have offered it
 * buckets, gathered weights and boundary tensors that are large enough for a rendezvous. Every rank gets
 * ABORTED at once. The buffers of operations are freed in the order of pipeline/train/train.h: after its
 * communicators, since until then other ranks may access them. The job's communicator goes on, and the next
 * run trains over it. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "pipeline/train/train.h"
#include "tests/support/mp.h"
#include "tests/support/create.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { SEQ = 8, VOCAB = 2048, BATCH = 6, BUCKET = 2 << 20 };
static const model_config_t shape = {
    .vocab = VOCAB, .seq = SEQ, .layers = 2, .hidden = 256, .heads = 4, .leaves = 4};

typedef struct {
    gyre_comm_t *world; /* of this run */
    pipe_train_t *train;
    int victim;     /* this rank gives up */
    size_t fetches; /* sequences until it does */
} job_t;

static gyre_status_t fetch(void *user, size_t index, model_example_t *out)
{
    job_t *job = user;
    for (size_t t = 0; t < SEQ; t++)
        out->tokens[t] = out->targets[t] = (model_token_t)((index * 31 + t * 7) % VOCAB);
    if (job->victim && job->fetches-- == 0) {
        usleep(100000); /* the others are at what they want from it */
        gyre_comm_abort(job->world, "the test gives up");
        pipe_train_abort(job->train, "the test gives up");
    }
    return GYRE_OK;
}

/* The last rank gives up at its `fetches`-th sequence; MOST: it does not, and two steps are made. */
static void run(gyre_comm_t *world, pipe_layout_t layout, size_t fetches)
{
    job_t job = {.victim = gyre_comm_rank(world) + 1 == gyre_comm_size(world), .fetches = fetches};
    const pipe_train_config_t config = {
        .model = shape,
        .layout = layout,
        .batch = {.batch = BATCH},
        .zero = {.adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, .bucket_bytes = BUCKET}};
    pipe_train_step_t step = {0};
    gyre_status_t status = GYRE_OK;
    MP_OK(gyre_comm_split(world, 0, 0, &job.world));
    MP_OK(create_train(job.world, &config, &job.train));
    MP_OK(optim_zero_init(pipe_train_zero(job.train), 1));
    for (size_t i = 0; status == GYRE_OK && (fetches < SIZE_MAX || i < 2); i++)
        status = pipe_train_step(job.train, i, fetch, &job, 1e-3, &step);
    CHECK(status == (fetches < SIZE_MAX ? GYRE_ERR_ABORTED : GYRE_OK));
    if (status != GYRE_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", gyre_last_error());
        CHECK(strstr(why, "the test gives up") != NULL);
        gyre_comm_abort(job.world, why);
        pipe_train_abort(job.train, why);
    }
    base_time_t begin = base_now();
    pipe_train_leave(job.train);
    MP_OK(gyre_comm_destroy(job.world));
    pipe_train_release(job.train);
    pipe_train_destroy(job.train);
    CHECK(base_now() - begin < base_deadline(20.0) - base_now());
}

/* Two documents in each sequence; the last rank cannot read the first sequence. */
static gyre_status_t fetch_documents(void *user, size_t index, model_example_t *out)
{
    job_t *job = user;
    if (job->victim && job->fetches-- == 0)
        return gyre_fail_quiet(GYRE_ERR_IO, "the test cannot read");
    for (size_t t = 0; t < SEQ; t++) {
        out->tokens[t] = out->targets[t] = (model_token_t)((index * 31 + t * 7) % VOCAB);
        out->documents[t] = t < SEQ / 2 ? 0 : SEQ / 2;
    }
    return GYRE_OK;
}

/* Ranks share sequences in a ring, where documents decide who sends what to whom. All go through the step in
 * which one of them cannot read, and hear of it. */
static void lose_a_step(gyre_comm_t *world)
{
    const int size = gyre_comm_size(world);
    job_t job = {.victim = gyre_comm_rank(world) + 1 == size};
    const pipe_train_config_t config = {
        .model = shape,
        .layout = {.cp = (size_t)size, .ring = 1, .schedule = PIPE_1F1B},
        .batch = {.batch = BATCH, .parts = (size_t)size},
        .documents = 1,
        .zero = {.adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, .bucket_bytes = BUCKET}};
    pipe_train_step_t step = {0};
    MP_OK(create_train(world, &config, &job.train));
    MP_OK(optim_zero_init(pipe_train_zero(job.train), 1));
    const gyre_status_t status = pipe_train_step(job.train, 0, fetch_documents, &job, 1e-3, &step);
    CHECK(status == (job.victim ? GYRE_ERR_IO : GYRE_ERR_FORMAT));
    pipe_train_destroy(job.train);
}

int main(void)
{
    gyre_comm_t *world = NULL;
    MP_OK(gyre_init(NULL, &world));
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for */
    size_t ranks = (size_t)gyre_comm_size(world), last = BATCH / ranks;
    run(world, (pipe_layout_t){.zero = 2, .schedule = PIPE_1F1B}, last - 1); /* reductions */
    run(world, (pipe_layout_t){.zero = 1, .schedule = PIPE_1F1B},
        2 * last - 1);                                                   /* and gathers after an update */
    run(world, (pipe_layout_t){.zero = 3, .schedule = PIPE_1F1B}, last); /* gathers just in time */
    if (ranks % 2 == 0)
        run(world, (pipe_layout_t){.pp = 2, .schedule = PIPE_1F1B}, 2);
    run(world, (pipe_layout_t){.zero = 3, .schedule = PIPE_1F1B}, SIZE_MAX);
    if (ranks == 2)
        lose_a_step(world);
    MP_OK(gyre_finalize(world));
    return 0;
}
