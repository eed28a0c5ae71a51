/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/collectives/mp_tags.c: gyre_options_t.tag: which calls carry it in the flight recorder, that ranks
 * need not agree on it, and that errors show the tag of each rank's call.
 * ranks: 1 2 3
 * over UCX: 2 */
#include "tests/support/mp.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/run/communicator.h"

static gyre_comm_t *world;
static int rank, n;
static int32_t x[8], y[8 * 3];

static gyre_options_t tagged(uint64_t tag)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.tag = tag;
    return options;
}

/* A communicator of its own, with another tag on each rank. */
static gyre_comm_t *made(uint64_t tag, double timeout_s)
{
    gyre_comm_t *comm;
    gyre_options_t options = tagged(tag + (uint64_t)rank);
    options.timeout_s = timeout_s;
    MP_OK(gyre_comm_dup(world, &comm));
    MP_OK(gyre_comm_set(comm, &options));
    return comm;
}

static void newest_has(uint32_t tag, const char *what)
{
    const comm_recorder_slot_t *slot = world->world->recorder;
    const comm_call_t *call = &slot->calls[(slot->head - 1) % COMM_RECORDER_CALLS];
    MP_CHECK(call->user_tag == tag, "%s has tag %u, not %u", what, call->user_tag, tag);
}

static void says(const char *text)
{
    MP_CHECK(strstr(gyre_last_error(), text), "\"%s\" does not say \"%s\"", gyre_last_error(), text);
}

/* Calls of all kinds carry the tag of their communicator. */
static void calls(void)
{
    gyre_comm_t *comm = made(70, 0), *copy;
    const uint32_t tag = 70 + (uint32_t)rank;
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const size_t one = 1;
    gyre_request_t *request;
    MP_OK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    newest_has(tag, "a short call");
    MP_OK(gyre_iall_gather(x, y, 8, GYRE_INT32, comm, &request));
    MP_OK(gyre_wait(&request));
    newest_has(tag, "a request");
    MP_OK(gyre_barrier(comm));
    newest_has(tag, "a barrier");
    MP_OK(gyre_group_start());
    MP_OK(gyre_send(x, 1, GYRE_INT32, next, comm));
    MP_OK(gyre_recv(y, 1, GYRE_INT32, before, comm));
    MP_OK(gyre_group_end());
    newest_has(tag, "a message of a group");
    if (n > 1 && rank < 2) {
        MP_OK(rank ? gyre_recv(y, 1, GYRE_INT32, 0, comm) : gyre_send(x, 1, GYRE_INT32, 1, comm));
        newest_has(tag, "a message alone");
    }
    MP_OK(gyre_neighbor_exchange(x, &one, NULL, 1, &next, y, &one, NULL, 1, &before, GYRE_INT32, comm));
    newest_has(tag, "an exchange");
    MP_OK(gyre_comm_dup(comm, &copy));
    MP_OK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), copy));
    newest_has(tag, "a call on a copy");
    MP_OK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), world));
    newest_has(500 + (uint32_t)rank, "a call on a job with options");
    MP_OK(gyre_comm_set(comm, NULL));
    newest_has(0, "a call that the library makes");
    MP_OK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    newest_has(0, "a call without one");
    MP_OK(gyre_comm_destroy(copy));
    MP_OK(gyre_comm_destroy(comm));
}

/* A plan has the tag that its communicator had, or one of its own. */
static void plans(void)
{
    gyre_comm_t *comm = made(80, 0);
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const size_t one = 1;
    gyre_plan_t *plan[2];
    gyre_request_t *request;
    gyre_options_t options = tagged(UINT32_MAX);
    MP_OK(gyre_plan_all_reduce(x, y, 8, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, &plan[0]));
    MP_OK(gyre_plan_neighbor_exchange(x, &one, NULL, 1, &next, y, &one, NULL, 1, &before, GYRE_INT32, comm,
                                      &plan[1]));
    MP_OK(gyre_comm_set(comm, NULL));
    for (int k = 0; k < 2; k++) {
        MP_OK(gyre_start(plan[k], NULL));
        newest_has(80 + (uint32_t)rank, "a plan");
        MP_OK(gyre_plan_set(plan[k], &options));
        MP_OK(gyre_start(plan[k], &request));
        MP_OK(gyre_wait(&request));
        newest_has(UINT32_MAX, "a plan with a tag of its own");
    }
    options.chunk = 512; /* messages have none */
    MP_CHECK(gyre_plan_set(plan[1], &options) == GYRE_ERR_UNSUPPORTED, "%s", gyre_last_error());
    says("neighbor_exchange");
    MP_OK(gyre_plan_set(plan[0], NULL)); /* those of its communicator */
    MP_OK(gyre_start(plan[0], NULL));
    newest_has(0, "a plan with its communicator's options");
    MP_OK(gyre_all_reduce(x, y, 8, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    newest_has(0, "a plain call");
    for (int k = 0; k < 2; k++)
        MP_OK(gyre_plan_free(&plan[k]));
    MP_OK(gyre_comm_destroy(comm));
}

/* What is no tag, and a program that was built before there was one. */
static void sizes(void)
{
    gyre_comm_t *comm = made(90, 0);
    gyre_options_t options = tagged((uint64_t)1 << 32);
    MP_CHECK(gyre_comm_set(comm, &options) == GYRE_ERR_INVALID, "it was taken");
    says("tag is 4294967296");
    options.size = offsetof(gyre_options_t, tag);
    MP_OK(gyre_comm_set(comm, &options));
    MP_OK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    newest_has(0, "a program without tags");
    MP_OK(gyre_comm_destroy(comm));
}

/* Rank 0 calls, and the others do not: its tag, and that of their last call. 0: a busy machine did not let
 * rank 1 answer. */
static int late(void)
{
    int answers = 1;
    gyre_comm_t *comm = made(30, 0.3);
    MP_OK(gyre_barrier(comm));
    if (rank == 0 && n > 1) {
        MP_CHECK(gyre_all_reduce(x, y, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm) == GYRE_ERR_TIMEOUT,
                 "it was not late");
        says("(count 1, int32, sum, tag 30) on rank 0");
        answers = !strstr(gyre_last_error(), "does not answer");
        if (n == 2 && answers)
            says("(tag 31)");
    }
    while (rank > 0 && gyre_comm_error(comm) == GYRE_OK) /* in no call: rank 0 must not wait for a circle */
        usleep(1000);
    MP_OK(gyre_broadcast(&answers, &answers, 1, GYRE_INT32, 0, world));
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    return answers;
}

/* A message that nobody sends. */
static void lost(void)
{
    gyre_comm_t *comm = made(40, 0.3);
    if (rank == 0 && n > 1) {
        MP_CHECK(gyre_recv(y, 3, GYRE_INT32, 1, comm) == GYRE_ERR_TIMEOUT, "it came");
        says("recv from rank 1 #1 (count 3, int32, tag 40) on rank 0");
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

static void mismatch(void)
{
    gyre_comm_t *comm = made(50, 0);
    MP_OK(gyre_barrier(world)); /* a failure on one rank must not meet gyre_comm_set on another */
    gyre_status_t st = gyre_all_reduce(x, y, rank == 0 ? 4 : 5, GYRE_INT32, GYRE_OP(GYRE_SUM), comm);
    MP_CHECK(st == (n == 1 ? GYRE_OK : GYRE_ERR_MISMATCH), "%s: %s", gyre_status_string(st),
             gyre_last_error());
    if (n == 2) {
        says("(count 4, int32, sum, tag 50)");
        says("(count 5, int32, sum, tag 51)");
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    const char *number = getenv("GYRE_RANK"); /* the job's own number is not known before */
    const gyre_options_t options = tagged(500 + (number ? (uint64_t)atoi(number) : 0));
    config.options = &options;
    MP_OK(gyre_init(&config, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    calls();
    plans();
    sizes();
    int tries = 1;
    while (!late())
        MP_CHECK(++tries < 10, "rank 1 did not answer in any of %d calls", tries);
    lost();
    mismatch();
    MP_OK(gyre_finalize(world));
    return 0;
}
