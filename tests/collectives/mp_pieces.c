/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 5 9 */
/* tests/collectives/mp_pieces.c: a broadcast among ranks that share a core goes in pieces, an exchange of
 * outboxes for each: around the borders of pieces, from each root, one after the other without waiting, among
 * other calls under way, and with a rank that is late. */
#include "tests/support/mp.h"

#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "collectives/run/communicator.h"

enum { MOST = 40 << 10, PIECE = COLL_ONESHOT_MOST, OPEN = 6 };

static int n, rank;
static unsigned char *in, *out[OPEN]; /* [MOST], [MOST + 1] */

static unsigned char value(int of, int call, size_t i)
{
    return (unsigned char)(of * 31 + call * 7 + (int)(i % 251) + (int)(i / 251));
}

static void fill(unsigned char *at, int call, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = value(rank, call, i);
}

static void check(const unsigned char *at, int root, int call, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && at[i] == value(root, call, i))
        i++;
    MP_CHECK(i == bytes, "call %d, %zu bytes from rank %d: rank %d has another byte %zu", call, bytes, root,
             rank, i);
    MP_CHECK(at[bytes] == 0xee, "call %d, %zu bytes: rank %d wrote past them", call, bytes, rank);
}

static void in_pieces(const gyre_comm_t *comm, size_t bytes, int some)
{
    const coll_plan_t *plan = comm->plans.last[COLL_BROADCAST];
    MP_CHECK(plan && plan->oneshot && (plan->part.more > 0) == some, "%zu bytes: %s, %u pieces follow", bytes,
             plan && plan->oneshot ? "exchanges" : "a schedule", plan ? plan->part.more : 0);
}

static void one_after_another(gyre_comm_t *comm)
{
    static const size_t sizes[] = {1,         PIECE - 1, PIECE, PIECE + 1, PIECE + 48,
                                   PIECE * 2, PIECE - 8, 64,    30001,     PIECE + 49};
    int call = 0;
    for (int round = 0; round < 3; round++)
        for (int root = 0; root < n; root++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++, call++) {
                const int place = round == 1 && rank == root; /* in place */
                unsigned char *to = place ? in : out[0];
                if (round == 2 && rank == (root + 1) % n && s % 3 == 0)
                    usleep(2000);
                memset(out[0], 0xee, sizes[s] + 1);
                fill(in, call, sizes[s]);
                in[sizes[s]] = 0xee;
                MP_OK(gyre_broadcast(in, to, sizes[s], GYRE_UINT8, root, comm));
                check(to, root, call, sizes[s]);
                in_pieces(comm, sizes[s], sizes[s] > PIECE);
            }
}

/* Several at once, and a sum between them. */
static void together(gyre_comm_t *comm)
{
    for (int call = 1000; call < 1000 + 4 * n; call++) {
        const int root = call % n;
        gyre_request_t *request[OPEN], *sum_request;
        unsigned char *from[OPEN];
        uint64_t one = 1, sum = 0;
        for (int i = 0; i < OPEN; i++) {
            const size_t bytes = (size_t)PIECE + (size_t)i * 3001;
            from[i] = malloc(bytes);
            MP_CHECK(from[i], "no memory");
            fill(from[i], call + i, bytes);
            memset(out[i], 0xee, bytes + 1);
            MP_OK(gyre_ibroadcast(from[i], out[i], bytes, GYRE_UINT8, root, comm, &request[i]));
            if (i == OPEN / 2)
                MP_OK(gyre_iall_reduce(&one, &sum, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm, &sum_request));
        }
        MP_OK(gyre_wait(&sum_request));
        MP_CHECK(sum == (uint64_t)n, "the sum between: %llu", (unsigned long long)sum);
        for (int i = 0; i < OPEN; i++) {
            MP_OK(gyre_wait(&request[i]));
            check(out[i], root, call + i, (size_t)PIECE + (size_t)i * 3001);
            free(from[i]);
        }
    }
}

int main(void)
{
    gyre_comm_t *world;
    cpu_set_t set;
    /* All ranks share the first core that there is for this job, wherever the launcher has bound them. */
    memset(&set, 0xff, sizeof set);
    MP_CHECK(sched_setaffinity(0, sizeof set, &set) == 0 && sched_getaffinity(0, sizeof set, &set) == 0,
             "no affinity");
    int core = 0;
    while (!CPU_ISSET((size_t)core, &set))
        core++;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    MP_CHECK(sched_setaffinity(0, sizeof set, &set) == 0, "cannot be bound to core %d", core);
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    in = malloc(MOST + 1);
    MP_CHECK(in, "no memory");
    for (int i = 0; i < OPEN; i++) {
        out[i] = malloc(MOST + 1);
        MP_CHECK(out[i], "no memory");
    }
    one_after_another(world);
    together(world);
    free(in);
    for (int i = 0; i < OPEN; i++)
        free(out[i]);
    return gyre_finalize(world) != GYRE_OK;
}
