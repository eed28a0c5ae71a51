/* SPDX-License-Identifier: Apache-2.0 */
/* tests/verbs/survivor.c: sees a peer die in the middle of a transfer.
 *
 *   survivor VICTIM BYTES AFTER_MS [WHAT]   WHAT: ring (default), all_reduce or p2p
 *
 * All ranks exchange messages of BYTES without end; rank VICTIM (of the job) kills itself with SIGKILL after
 * AFTER_MS, from a second thread, hence while a transfer is under way. Each survivor prints one line:
 *   survivor R: MS ms after its last good operation: TEXT
 * and exits with 0 if the operation failed (3 if it did not within 30 s). The time is an upper bound of what
 * it took to notice: it includes the operation that was under way. */
#include "tests/support/mp.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static int after_ms;

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *fate(void *unused)
{
    struct timespec t = {after_ms / 1000, after_ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
    raise(SIGKILL);
    return unused;
}

int main(int argc, char **argv)
{
    gyre_comm_t *world;
    gyre_status_t status = GYRE_OK;
    pthread_t thread;

    if (argc < 4) {
        fprintf(stderr, "usage: survivor VICTIM BYTES AFTER_MS [ring|all_reduce|p2p]\n");
        return 2;
    }
    int victim = atoi(argv[1]);
    size_t bytes = strtoul(argv[2], NULL, 10);
    const char *what = argc > 4 ? argv[4] : "ring";
    after_ms = atoi(argv[3]);
    MP_OK(gyre_init(NULL, &world));
    int rank = gyre_comm_rank(world), n = gyre_comm_size(world), next = (rank + 1) % n,
        before = (rank + n - 1) % n;
    void *send, *recv;
    MP_OK(gyre_mem_alloc(bytes, &send));
    MP_OK(gyre_mem_alloc(bytes, &recv));
    memset(send, rank, bytes);
    MP_OK(gyre_barrier(world));
    if (rank == victim)
        MP_CHECK(pthread_create(&thread, NULL, fate, NULL) == 0, "no thread");
    double start = now_ms(), good = start;
    long rounds = 0;
    while (status == GYRE_OK && now_ms() - start < 30e3) {
        good = now_ms();
        if (strcmp(what, "all_reduce") == 0) {
            status = gyre_all_reduce(send, recv, bytes / 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world);
        } else if (strcmp(what, "p2p") == 0) { /* one way: only sends, or only receives, are under way */
            status = rank == 0 ? gyre_send(send, bytes, GYRE_UINT8, 1, world)
                               : gyre_recv(recv, bytes, GYRE_UINT8, 0, world);
        } else {
            gyre_group_start();
            gyre_send(send, bytes, GYRE_UINT8, next, world);
            gyre_recv(recv, bytes, GYRE_UINT8, before, world);
            status = gyre_group_end();
        }
        rounds++;
    }
    if (status == GYRE_OK) {
        printf("survivor %d: no error in 30 s\n", rank);
        return 3;
    }
    printf("survivor %d: %.0f ms after its last good operation (%ld went well): %s\n", rank, now_ms() - good,
           rounds - 1, gyre_last_error());
    /* Freeing what the transport may still have had in its hands must be possible. */
    MP_OK(gyre_mem_free(send));
    MP_OK(gyre_mem_free(recv));
    gyre_finalize(world); /* the communicator is dead: it says so, and must not wait */
    printf("survivor %d: left %.0f ms after its last good operation\n", rank, now_ms() - good);
    return 0;
}
