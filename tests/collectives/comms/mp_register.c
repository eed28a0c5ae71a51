/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4 */
/* tests/collectives/comms/mp_register.c: collectives on memory of malloc that is registered, was registered,
 * or is on some ranks only. The results are the same, and nothing outside the buffers is touched. */
#include "tests/support/mp.h"

#include "comm/memory/memory.h"

enum { COUNT = 70001, GUARD = 64 };

static int n, rank;

static float *guarded(void)
{
    float *all = malloc((COUNT + 2 * GUARD) * sizeof *all);
    MP_CHECK(all, "no memory");
    for (int i = 0; i < GUARD; i++)
        all[i] = all[GUARD + COUNT + i] = -7.0f;
    return all + GUARD;
}

static void check_guards(const float *buf, const char *what)
{
    for (int i = 0; i < GUARD; i++)
        MP_CHECK(buf[-GUARD + i] == -7.0f && buf[COUNT + i] == -7.0f, "%s wrote outside its buffer", what);
}

static float input(int r, size_t i, int round)
{
    return (float)((r + 1) * (int)(i % 1000) + round);
}

static void one_round(gyre_comm_t *comm, float *send, float *recv, int round, const char *what)
{
    for (size_t i = 0; i < COUNT; i++)
        send[i] = input(rank, i, round);
    MP_OK(gyre_all_reduce(send, recv, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_all_reduce(send, send, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    for (size_t i = 0; i < COUNT; i++) {
        float want = (float)(n * (n + 1) / 2 * (int)(i % 1000) + n * round);
        MP_CHECK(recv[i] == want && send[i] == want, "%s: element %zu is %g and %g in place, not %g", what, i,
                 (double)recv[i], (double)send[i], (double)want);
    }
    for (int root = 0; root < n; root++) {
        for (size_t i = 0; i < COUNT; i++)
            send[i] = input(rank, i, round + 5);
        MP_OK(gyre_broadcast(send, recv, COUNT, GYRE_FLOAT32, root, comm));
        for (size_t i = 0; i < COUNT; i++)
            MP_CHECK(recv[i] == input(root, i, round + 5), "%s: broadcast, element %zu", what, i);
    }
    const size_t block = COUNT / (size_t)n;
    MP_OK(gyre_reduce_scatter(send, recv, block, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm));
    for (size_t i = 0; i < block; i++)
        MP_CHECK(recv[i] == input(n - 1, (size_t)rank * block + i, round + 5), "%s: reduce_scatter", what);
    MP_OK(gyre_all_gather(send, recv, block, GYRE_FLOAT32, comm));
    for (size_t i = 0; i < block * (size_t)n; i++)
        MP_CHECK(recv[i] == input((int)(i / block), i % block, round + 5), "%s: all_gather", what);
    check_guards(send, what);
    check_guards(recv, what);
}

int main(void)
{
    gyre_comm_t *comm;
    MP_OK(gyre_init(NULL, &comm));
    n = gyre_comm_size(comm);
    rank = gyre_comm_rank(comm);
    float *send = guarded(), *recv = guarded();
    one_round(comm, send, recv, 1, "plain");
    for (int again = 0; again < 3; again++) { /* new windows at the same addresses */
        MP_OK(gyre_mem_register(send, COUNT * sizeof *send));
        MP_OK(gyre_mem_register(recv, COUNT * sizeof *recv));
        one_round(comm, send, recv, 2 + again, "registered");
        MP_OK(gyre_mem_deregister(send));
        MP_OK(gyre_barrier(comm));
        one_round(comm, send, recv, 6 + again, "output registered");
        MP_OK(gyre_mem_deregister(recv));
        one_round(comm, send, recv, 9 + again, "no more registered");
    }
    if (rank == 0)
        MP_OK(gyre_mem_register(send, COUNT * sizeof *send));
    one_round(comm, send, recv, 20, "registered at rank 0 only");
    if (rank == 0)
        MP_OK(gyre_mem_deregister(send));
    if (rank == 0)
        MP_OK(comm_mem_attach(NULL)); /* others cannot map its windows and reach them through the kernel */
    MP_OK(gyre_mem_register(send, COUNT * sizeof *send));
    MP_OK(gyre_mem_register(recv, COUNT * sizeof *recv));
    one_round(comm, send, recv, 21, "registered and not mapped");
    MP_OK(gyre_mem_deregister(send));
    MP_OK(gyre_mem_deregister(recv));
    free(send - GUARD);
    free(recv - GUARD);
    MP_OK(gyre_finalize(comm));
    return 0;
}
