/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 4, over UCX: 2 */
/* tests/collectives/mp_errors.c: bad arguments are refused with a text that names the culprit, and leave the
 * communicator usable. Ranks that disagree, or never come, get an error on all sides with the call of each
 * rank. */
/* takes: 3 */
#include "tests/support/mp.h"

#include <string.h>
#include <time.h>

static int n, rank;
static gyre_comm_t *world;

static void refused(gyre_status_t got, gyre_status_t want, const char *word)
{
    MP_CHECK(got == want, "got %s (%s), expected %s", gyre_status_string(got), gyre_last_error(),
             gyre_status_string(want));
    MP_CHECK(strstr(gyre_last_error(), word), "\"%s\" does not mention \"%s\"", gyre_last_error(), word);
    MP_CHECK(gyre_status_scope(got) == GYRE_SCOPE_OPERATION, "it kills more than the operation");
    MP_CHECK(gyre_comm_error(world) == GYRE_OK, "the communicator is dead");
}

static void bad_arguments(void)
{
    float a[64] = {0}, b[64];
    gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    refused(gyre_all_reduce(NULL, b, 4, GYRE_FLOAT32, sum, world), GYRE_ERR_INVALID, "send is NULL");
    refused(gyre_all_reduce(a, NULL, 4, GYRE_FLOAT32, sum, world), GYRE_ERR_INVALID, "recv is NULL");
    refused(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, sum, NULL), GYRE_ERR_INVALID, "comm is NULL");
    refused(gyre_all_reduce(a, b, 4, (gyre_type_t)99, sum, world), GYRE_ERR_TYPE, "99");
    refused(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, GYRE_OP((gyre_redop_kind_t)17), world), GYRE_ERR_TYPE,
            "17");
    gyre_redop_t scaled_max = {GYRE_MAX, 1, 2.0};
    refused(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, scaled_max, world), GYRE_ERR_TYPE, "scaled");
    refused(gyre_all_reduce(a, a + 1, 8, GYRE_FLOAT32, sum, world), GYRE_ERR_OVERLAP, "overlap");
    refused(gyre_all_reduce(a, b, SIZE_MAX / 2, GYRE_FLOAT32, sum, world), GYRE_ERR_OVERFLOW,
            "memory can hold");
    refused(gyre_all_gather(a, b, SIZE_MAX / 2 + 1, GYRE_INT8, world), GYRE_ERR_OVERFLOW,
            n > 1 ? "size_t" : "memory");
    refused(gyre_broadcast(a, b, 4, GYRE_FLOAT32, n, world), GYRE_ERR_INVALID, "root");
    refused(gyre_broadcast(a, b, 4, GYRE_FLOAT32, -1, world), GYRE_ERR_INVALID, "root -1");
    refused(gyre_send(a, 1, GYRE_FLOAT32, n, world), GYRE_ERR_INVALID, "peer");
    refused(gyre_send(a, 1, GYRE_FLOAT32, rank, world), GYRE_ERR_INVALID, "oneself");
    refused(gyre_all_gatherv(a, b, NULL, NULL, GYRE_FLOAT32, world), GYRE_ERR_INVALID, "counts is NULL");
    refused(gyre_iall_reduce(a, b, 4, GYRE_FLOAT32, sum, world, NULL), GYRE_ERR_INVALID, "request is NULL");
    refused(gyre_group_end(), GYRE_ERR_INVALID, "without");
    size_t huge[4] = {SIZE_MAX - 1, 2, 2, 2};
    if (n > 1)
        refused(gyre_all_gatherv(a, b, huge, NULL, GYRE_FLOAT32, world), GYRE_ERR_OVERFLOW, "add up");
    MP_OK(gyre_group_start());
    refused(gyre_all_reduce(NULL, b, 4, GYRE_FLOAT32, sum, world), GYRE_ERR_INVALID, "send is NULL");
    gyre_request_t *r;
    MP_OK(gyre_iall_reduce(a, b, 4, GYRE_FLOAT32, sum, world, &r));
    MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "the group's end returns the error again");
    refused(gyre_wait(&r), GYRE_ERR_INVALID, "all_reduce (count 4, float, sum) was not started");
    /* the refused group left no gap in the numbering: ranks that made no mistake still agree with this one */
    if (rank == 0) {
        MP_OK(gyre_group_start());
        refused(gyre_broadcast(NULL, b, 4, GYRE_FLOAT32, 0, world), GYRE_ERR_INVALID, "send is NULL");
        refused(gyre_isend(NULL, 4, GYRE_FLOAT32, n - 1, world, &r), GYRE_ERR_INVALID, "buffer is NULL");
        MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "refused");
    }
    MP_OK(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, sum, world));
    gyre_comm_t *second;
    refused(gyre_init(NULL, &second), GYRE_ERR_INVALID, "before");
    MP_OK(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, sum, world)); /* still alive */
}

/* Where several calls fail, status and text are those of the first. */
static void first_of_several(void)
{
    static const char *const reasons[] = {"the first one", "the second one"};
    gyre_comm_t *comm[2];
    gyre_request_t *r[2];
    int32_t x = 0;
    MP_OK(gyre_group_start());
    refused(gyre_send(&x, 1, GYRE_INT32, n, world), GYRE_ERR_INVALID, "send: peer");
    refused(gyre_send(&x, 1, (gyre_type_t)99, rank, world), GYRE_ERR_TYPE, "99");
    refused(gyre_group_end(), GYRE_ERR_INVALID, "send: peer");
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_split(world, rank, 0, &comm[i])); /* alone */
    MP_OK(gyre_group_start());
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_recv(&x, 1, GYRE_INT32, 0, comm[i]));
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_irecv(&x, 1, GYRE_INT32, 0, comm[i], &r[i]));
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_abort(comm[i], reasons[i]));
    MP_EXPECT(gyre_group_end(), GYRE_ERR_ABORTED, reasons[0]);
    MP_EXPECT(gyre_wait_all(2, r), GYRE_ERR_ABORTED, reasons[0]);
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_destroy(comm[i]));
}

/* What still has requests or an open group cannot be freed under them. */
static void not_yet_unused(void)
{
    gyre_comm_t *comm;
    float x = 1, y;
    gyre_request_t *r;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_iall_reduce(&x, &y, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &r));
    refused(gyre_comm_destroy(comm), GYRE_ERR_INVALID, "not waited for");
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_group_start());
    refused(gyre_comm_destroy(comm), GYRE_ERR_INVALID, "group");
    refused(gyre_finalize(world), GYRE_ERR_INVALID, "group");
    refused(gyre_comm_destroy(world), GYRE_ERR_INVALID, "gyre_finalize");
    MP_OK(gyre_group_end());
    refused(gyre_finalize(comm), GYRE_ERR_INVALID, "gyre_comm_destroy");
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_destroy(NULL));
}

static void bad_buckets(void)
{
    size_t counts[2] = {1, SIZE_MAX / 4};
    gyre_buckets_t *b;
    gyre_buckets_config_t c = {.size = sizeof c, .type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM)};
    refused(gyre_buckets_create(world, &c, SIZE_MAX, counts, &b), GYRE_ERR_OVERFLOW, "tensors");
    refused(gyre_buckets_create(world, &c, 2, counts, &b), GYRE_ERR_OVERFLOW, "sizes");
    c.op.kind = (gyre_redop_kind_t)99;
    refused(gyre_buckets_create(world, &c, 1, counts, &b), GYRE_ERR_TYPE, "99");
    c.op = GYRE_OP(GYRE_SUM);
    c.size = 3;
    refused(gyre_buckets_create(world, &c, 1, counts, &b), GYRE_ERR_INVALID, "size");
    c.size = sizeof c;
    size_t empty = 0;
    MP_OK(gyre_buckets_create(world, &c, 1, &empty, &b));
    MP_CHECK(gyre_buckets_tensor(b, 0) && !gyre_buckets_tensor(b, 1), "an empty tensor has a place, too");
    MP_OK(gyre_buckets_ready(b, 0));
    MP_OK(gyre_buckets_wait(b));
    MP_OK(gyre_buckets_destroy(b));
}

/* Runs `wrong` on a communicator of its own: it must fail on every rank, soon, with a text that has both
 * words. */
typedef gyre_status_t (*wrong_fn)(gyre_comm_t *comm);

static void disagree(wrong_fn wrong, gyre_status_t want, const char *word)
{
    gyre_comm_t *comm;
    struct timespec t0, t1;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    clock_gettime(CLOCK_MONOTONIC, &t0);
    gyre_status_t st = wrong(comm);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    MP_CHECK(st == want, "rank %d: got %s (%s)", rank, gyre_status_string(st), gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), word), "rank %d: \"%s\" does not mention \"%s\"", rank,
             gyre_last_error(), word);
    MP_CHECK(t1.tv_sec - t0.tv_sec < 10, "it took %ld s", (long)(t1.tv_sec - t0.tv_sec));
    float x = 0;
    MP_CHECK(gyre_all_reduce(&x, &x, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm) == want, "it stays dead");
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world)); /* the others are not harmed */
}

static gyre_status_t other_count(gyre_comm_t *comm)
{
    float x[32] = {0};
    gyre_status_t st = gyre_all_reduce(x, x, rank == 1 ? 20 : 10, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

static gyre_status_t other_operation(gyre_comm_t *comm)
{
    float x[32] = {0}, y[256];
    gyre_status_t st = rank == 1 ? gyre_all_gather(x, y, 16, GYRE_FLOAT32, comm)
                                 : gyre_all_reduce(x, x, 16, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

static gyre_status_t other_type(gyre_comm_t *comm)
{
    float x[32] = {0};
    gyre_status_t st =
        gyre_all_reduce(x, x, 16, rank == 1 ? GYRE_INT32 : GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

/* A scaled vector is cut into other pieces than one that is not. */
static gyre_status_t other_scaling(gyre_comm_t *comm)
{
    static float x[20000], y[20000];
    gyre_redop_t half = {.kind = GYRE_SUM, .scaled = 1, .scale = 0.5};
    gyre_status_t st = gyre_all_reduce(x, y, 20000, GYRE_FLOAT32, rank == 1 ? half : GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

static gyre_status_t other_root(gyre_comm_t *comm)
{
    float x[32] = {0};
    gyre_status_t st = gyre_broadcast(x, x, 16, GYRE_FLOAT32, rank == 1 ? 1 : 0, comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

/* The text names the calls that the program made, not those that they are built from. */
static gyre_status_t other_form(gyre_comm_t *comm)
{
    float x[64] = {0}, y[64];
    const size_t counts[4] = {3, 3, 3, 3};
    gyre_status_t st = rank == 1 ? gyre_all_to_allv(x, counts, NULL, y, counts, NULL, GYRE_FLOAT32, comm)
                                 : gyre_all_reduce(x, x, 16, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

/* The sum's own name, not that of the sum of integers which it is made of. */
static gyre_status_t other_exact(gyre_comm_t *comm)
{
    if (rank == 0)
        return gyre_barrier(comm);
    gyre_exact_t *sum;
    MP_OK(gyre_exact_create(&sum));
    const gyre_status_t st = gyre_exact_all_reduce(sum, comm);
    gyre_exact_destroy(sum);
    return st;
}

static gyre_status_t other_split(gyre_comm_t *comm)
{
    float x[32] = {0};
    gyre_comm_t *part = NULL;
    gyre_status_t st = rank == 1 ? gyre_comm_split(comm, 0, 0, &part)
                                 : gyre_all_reduce(x, x, 16, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

static gyre_status_t other_message(gyre_comm_t *comm)
{
    float x[32] = {0};
    gyre_status_t st = GYRE_OK;
    if (rank == 0)
        st = gyre_send(x, 8, GYRE_FLOAT32, 1, comm);
    else if (rank == 1)
        st = gyre_recv(x, 9, GYRE_FLOAT32, 0, comm);
    return st == GYRE_OK ? gyre_barrier(comm) : st;
}

/* A rank that polls must get the error as well as one that blocks. */
static gyre_status_t poll_for_abort(gyre_comm_t *comm)
{
    gyre_request_t *r;
    gyre_status_t st;
    if (rank == 0) {
        MP_OK(gyre_comm_abort(comm, "enough"));
        return gyre_barrier(comm);
    }
    st = gyre_ibarrier(comm, &r); /* rank 0 never comes */
    if (st != GYRE_OK)
        return st; /* the news was faster */
    while ((st = gyre_test(&r)) == GYRE_IN_PROGRESS)
        ;
    return st;
}

static gyre_status_t abort_it(gyre_comm_t *comm)
{
    if (rank == 0) {
        MP_OK(gyre_comm_abort(comm, "the test says so"));
        float x = 0;
        return gyre_all_reduce(&x, &x, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    }
    return gyre_barrier(comm);
}

/* Rank 1 comes too late: this communicator's deadline is 2 s. */
static void late(void)
{
    gyre_comm_t *comm;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.timeout_s = 2.0;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_set(comm, &options)); /* its call #1 */
    if (rank == 1) {
        struct timespec pause = {.tv_sec = 3};
        nanosleep(&pause, NULL);
    }
    gyre_status_t st = gyre_barrier(comm);
    if (rank == 1 && st == GYRE_OK) /* all others had entered: only then came the news that they gave up */
        st = gyre_barrier(comm);
    MP_CHECK(st == GYRE_ERR_TIMEOUT, "got %s (%s)", gyre_status_string(st), gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), "rank 1"), "\"%s\" does not name rank 1", gyre_last_error());
    const char *call = strstr(gyre_last_error(), "barrier #2 on");
    MP_CHECK(rank == 1 || (call && !strstr(call + 1, "barrier #2 on")), "\"%s\" says it twice",
             gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
}

/* Empty blocks are not sent: rank 1 has left the call in which rank 0 waits for its block. */
static void empty_at_one_end(void)
{
    gyre_comm_t *comm;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const size_t counts[4] = {4, 4, 4, 4};
    float mine[4] = {0}, all[16];
    options.timeout_s = 1.0;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_set(comm, &options)); /* its call #1 */
    gyre_status_t st = gyre_gatherv(mine, rank == 1 ? 0 : 4, all, counts, NULL, GYRE_FLOAT32, 0, comm);
    if (st == GYRE_OK)
        st = gyre_barrier(comm);
    /* over UCX the barrier's message comes where that of the gatherv is expected */
    MP_CHECK(st == GYRE_ERR_MISMATCH ||
                 (st == GYRE_ERR_TIMEOUT &&
                  strstr(gyre_last_error(), "if a count of gatherv is 0 on one rank and not on the other")),
             "got %s (%s)", gyre_status_string(st), gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
}

/* The other way round: nobody reads the block that rank 1 sends, before the next call of that kind. */
static gyre_status_t unexpected_block(gyre_comm_t *comm)
{
    const size_t counts[2][4] = {{4, 0, 4, 4}, {4, 4, 4, 4}};
    float mine[4] = {0}, all[16];
    for (int i = 0; i < 2; i++) {
        gyre_status_t st = gyre_gatherv(mine, 4, all, counts[i], NULL, GYRE_FLOAT32, 0, comm);
        if (st != GYRE_OK)
            return st;
    }
    return gyre_barrier(comm);
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    bad_arguments();
    first_of_several();
    not_yet_unused();
    bad_buckets();
    if (n > 1) {
        disagree(other_count, GYRE_ERR_MISMATCH, "count 20");
        disagree(other_operation, GYRE_ERR_MISMATCH, "all_gather");
        disagree(other_type, GYRE_ERR_MISMATCH, "int32");
        disagree(other_scaling, GYRE_ERR_MISMATCH, "called all_reduce #1 (count 20000, float, scaled sum)");
        disagree(other_root, GYRE_ERR_MISMATCH, "root 1");
        disagree(other_form, GYRE_ERR_MISMATCH, "called all_to_allv #1 (count ");
        disagree(other_split, GYRE_ERR_MISMATCH, "called gyre_comm_split #1");
        disagree(other_exact, GYRE_ERR_MISMATCH, "called gyre_exact_all_reduce #1");
        disagree(unexpected_block, GYRE_ERR_MISMATCH, "differ in uneven counts");
        disagree(other_message, GYRE_ERR_MISMATCH, "count 9");
        disagree(poll_for_abort, GYRE_ERR_ABORTED, "enough");
        disagree(abort_it, GYRE_ERR_ABORTED, "the test says so");
        late();
        empty_at_one_end();
    }

    MP_OK(gyre_finalize(world));
    return 0;
}
