/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 */
/* tests/verbs/mp_midway.c: a communicator is aborted in the middle of a large message. Once that is reported,
 * no rank writes to the receiver's buffer or reads the sender's any more, and the other communicators of the
 * same ranks work on.
 *
 * Over shared memory (make check) the receiver itself copies, and is not waited for: it may read what the
 * sender writes after the failure, but then returns an error. Over verbs between two hosts (make check-verbs)
 * adapters would go on for seconds. */
#include "tests/support/mp.h"

#include <string.h>
#include <time.h>

enum { BIG = 64 << 20, BEFORE = 0, MESSAGE = 1, LATER = 0x5a };

static gyre_comm_t *world;
static int rank, n;

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int count(const unsigned char *buf, unsigned char value)
{
    int found = 0;

    for (size_t i = 0; i < BIG; i++)
        found += buf[i] == value;
    return found;
}

/* Rank 0 receives, rank 1 sends, `who` aborts when the first bytes have come, or after a moment. 1: that
 * was midway. */
static int midway(gyre_comm_t *comm, int who)
{
    gyre_request_t *request;
    gyre_status_t status = GYRE_IN_PROGRESS;
    void *at;

    MP_OK(gyre_mem_alloc(BIG, &at));
    volatile unsigned char *buf = at;
    memset(at, rank == 0 ? BEFORE : MESSAGE, BIG);
    MP_OK(gyre_barrier(comm)); /* connected by now, for collectives at least */
    MP_OK(rank == 0 ? gyre_irecv(at, BIG, GYRE_UINT8, 1, comm, &request)
                    : gyre_isend(at, BIG, GYRE_UINT8, 0, comm, &request));
    double end = now() + 20, moment = now() + 0.3;
    while (status == GYRE_IN_PROGRESS && now() < end) {
        status = gyre_test(&request);
        if (rank == who && status == GYRE_IN_PROGRESS && (rank == 0 ? buf[0] == MESSAGE : now() > moment)) {
            MP_OK(gyre_comm_abort(comm, "midway"));
            status = gyre_wait(&request);
        }
    }
    MP_CHECK(status == GYRE_OK || status == GYRE_ERR_ABORTED, "%s: %s", gyre_status_string(status),
             gyre_last_error());
    if (status == GYRE_ERR_ABORTED) {
        /* In shared memory the receiver reads the sender's buffer, and learns afterwards that this has
         * failed: what a failed receive leaves there may be of what the sender wrote later. */
        const int mixed = who == 1 && !getenv("GYRE_TRANSPORT") && gyre_comm_local_size(comm) == 2;
        int came = rank == 0 ? count(at, MESSAGE) : 0;
        MP_CHECK(rank == 1 || mixed || came + count(at, BEFORE) == BIG,
                 "what is not of the message is as it was");
        if (rank == who || rank == 1) { /* the buffer serves another purpose from now on */
            memset(at, LATER, BIG);
            nap(1.0);
            MP_CHECK(count(at, LATER) == BIG, "%d bytes were written after the error",
                     BIG - count(at, LATER));
        } else { /* rank 1 has given up, and writes to its own */
            nap(1.0);
            MP_CHECK(mixed || count(at, LATER) == 0, "%d bytes of what the sender wrote later have come",
                     count(at, LATER));
            MP_CHECK(count(at, MESSAGE) == came, "bytes came after the error");
        }
        if (rank == 0)
            fprintf(stderr, "aborted by rank %d when %d of %d bytes had come\n", who, came, BIG);
    }
    MP_OK(gyre_mem_free(at));
    return status == GYRE_ERR_ABORTED;
}

/* Others have no part in it. */
static int once(int who)
{
    gyre_comm_t *comm;
    float x = 1;
    int aborted = 0;

    MP_OK(gyre_comm_split(world, rank < 2 ? 0 : -1, rank, &comm));
    if (comm)
        aborted = midway(comm, who);
    MP_OK(gyre_all_reduce(&x, &x, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world)); /* it is not harmed */
    MP_CHECK((int)x == n, "the sum over %d ranks is %g", n, (double)x);
    MP_OK(gyre_comm_destroy(comm));
    return aborted;
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    int times = once(0) + once(1);
    const char *must = getenv("MIDWAY");
    MP_CHECK(!must || rank > 1 || times == atoi(must), "only %d of %s messages were aborted midway", times,
             must);
    MP_OK(gyre_finalize(world));
    return 0;
}
