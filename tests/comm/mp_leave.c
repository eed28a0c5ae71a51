/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 */
/* takes: 2 */
/* tests/comm/mp_leave.c: over UCX, an idle communicator is destroyed at once while another one has a message
 * under way to a busy peer, over the same connection. Several are destroyed in the time of one while the peer
 * does not take what has been sent. */
#include "tests/support/mp.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { BYTES = 8 << 20, TRIES = 3 };

static void tell(const char *go)
{
    FILE *file = fopen(go, "w");
    MP_CHECK(file && fclose(file) == 0, "cannot write %s", go);
}

/* Makes no call of Gyre until rank 0 is done. */
static void be_busy(const char *go)
{
    const base_time_t until = base_deadline(20.0);
    while (access(go, F_OK) != 0 && base_now() < until)
        usleep(1000);
    MP_CHECK(unlink(go) == 0, "rank 0 was not done in time");
}

/* A flush of rank 0 waits for rank 1, which does not take the message, for a second at most. The flushes
 * after the first wait no more. */
static void several(gyre_comm_t *world, const char *folder)
{
    enum { COMMS = 5 };
    const int rank = gyre_comm_rank(world);
    gyre_comm_t *idle[COMMS];
    char go[400];
    base_time_t first = 0;
    int word = 7;

    snprintf(go, sizeof go, "%s/go.several", folder);
    for (int i = 0; i < COMMS; i++) {
        MP_OK(gyre_comm_split(world, 0, rank, &idle[i]));
        MP_OK(gyre_barrier(idle[i]));
    }
    MP_OK(gyre_barrier(world));
    if (rank == 0)
        MP_OK(gyre_send(&word, 1, GYRE_INT32, 1, world));
    if (rank == 1)
        be_busy(go);
    const base_time_t from = base_now();
    for (int i = 0; i < COMMS; i++) {
        MP_OK(gyre_comm_destroy(idle[i]));
        first = first ? first : base_now() - from;
    }
    const base_time_t took = base_now() - from;
    MP_CHECK(rank != 0 || took < 2 * first + 1000000000,
             "destroying %d took %.3f s, and the first of them %.3f s", COMMS, (double)took * 1e-9,
             (double)first * 1e-9);
    if (rank == 0)
        tell(go);
    if (rank == 1)
        MP_OK(gyre_recv(&word, 1, GYRE_INT32, 0, world));
}

int main(void)
{
    static char data[BYTES];
    gyre_comm_t *world, *idle;
    gyre_request_t *request;
    char go[400];
    double best = 1e9;
    int word = 0;

    setenv("GYRE_HOST_RANKS", "1", 1);
    setenv("GYRE_TRANSPORT", "ucx", 1);
    setenv("UCX_NET_DEVICES", "lo", 0);
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world);
    const char *folder = getenv("TMPDIR");
    for (int i = 0; i < TRIES; i++) {
        snprintf(go, sizeof go, "%s/go.%d", folder ? folder : "/tmp", i);
        MP_OK(gyre_comm_split(world, 0, rank, &idle));
        MP_OK(gyre_all_reduce(&word, &word, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), idle));
        MP_OK(gyre_barrier(world));
        if (rank == 0) {
            memset(data, i + 1, sizeof data);
            MP_OK(gyre_isend(data, BYTES, GYRE_INT8, 1, world, &request));
            const base_time_t from = base_now();
            MP_OK(gyre_comm_destroy(idle));
            const double took = (double)(base_now() - from) * 1e-9;
            best = took < best ? took : best;
            tell(go);
            MP_OK(gyre_wait(&request));
        } else if (rank == 1) {
            be_busy(go);
            MP_OK(gyre_recv(data, BYTES, GYRE_INT8, 0, world));
            MP_CHECK(data[0] == i + 1 && data[BYTES - 1] == i + 1, "other bytes came: %d", data[0]);
            MP_OK(gyre_comm_destroy(idle));
        } else {
            MP_OK(gyre_comm_destroy(idle));
        }
    }
    MP_CHECK(rank != 0 || best < 0.7, "destroying the idle one took %.3f s at best", best);
    several(world, folder ? folder : "/tmp");
    MP_OK(gyre_finalize(world));
    return 0;
}
