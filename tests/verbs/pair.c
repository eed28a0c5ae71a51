/* SPDX-License-Identifier: Apache-2.0 */
/* tests/verbs/pair.c: the figures of two ranks for a transport through Gyre's public calls, to compare with
 * ib_write_lat, ib_write_bw and ucx_perftest, and measured as they measure.
 *
 *   pair lat BYTES COUNT          rank 0 and 1 send one message to and fro: half a round trip: median over
 *                                 blocks of ten, since under emulation a reading of the clock is a system
 *                                 call
 *   pair bw BYTES COUNT [DEPTH]   rank 0 sends COUNT messages to rank 1, DEPTH (8) under way at a time
 *
 * Rank 0 prints "lat_us X" or "bw_mib_s X" (2^20 bytes per second, as the others count). Every message is
 * checked by its first and last byte; exit status 1 if one is wrong. */
#include "tests/support/mp.h"

#include <string.h>
#include <time.h>

#include "base/order.h"

enum { WARM = 200, BLOCK = 10, DEPTH_MOST = 32, DEPTH = 8 };

static gyre_comm_t *world;
static int rank;
static size_t bytes;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static unsigned char *buffer(void)
{
    void *p;

    MP_OK(gyre_mem_alloc(bytes, &p));
    return p;
}

static void stamp(unsigned char *p, int number)
{
    p[0] = p[bytes - 1] = (unsigned char)number;
}

static void check(const unsigned char *p, int number)
{
    MP_CHECK(p[0] == (unsigned char)number && p[bytes - 1] == (unsigned char)number,
             "message %d arrived as %d, %d", number, p[0], p[bytes - 1]);
}

static void latency(int count)
{
    unsigned char *mine = buffer(), *theirs = buffer();
    int blocks = 0;
    double *half = malloc(((size_t)count / BLOCK + 1) * sizeof *half);

    MP_CHECK(half, "no memory");
    double from = 0, to;
    for (int i = -WARM; i < count; i++) {
        stamp(mine, i);
        if (rank == 0)
            MP_OK(gyre_send(mine, bytes, GYRE_UINT8, 1, world));
        MP_OK(gyre_recv(theirs, bytes, GYRE_UINT8, 1 - rank, world));
        if (rank == 1)
            MP_OK(gyre_send(mine, bytes, GYRE_UINT8, 0, world));
        check(theirs, i);
        if (i < -1 || (i + 1) % BLOCK != 0)
            continue;
        to = now_us();
        if (i >= 0)
            half[blocks++] = (to - from) / 2 / BLOCK;
        from = to;
    }
    qsort(half, (size_t)blocks, sizeof *half, base_order_double);
    if (rank == 0)
        printf("lat_us %.3f\n", half[blocks / 2]);
    free(half);
    MP_OK(gyre_mem_free(mine));
    MP_OK(gyre_mem_free(theirs));
}

/* Number `i` is started as soon as number i - depth has ended. */
static void stream(int count, int depth, unsigned char **ring)
{
    gyre_request_t *requests[DEPTH_MOST] = {NULL};

    for (int i = 0; i < count + depth; i++) {
        unsigned char *at = ring[i % depth];
        if (requests[i % depth]) {
            MP_OK(gyre_wait(&requests[i % depth]));
            if (rank == 1)
                check(at, i - depth);
        }
        if (i >= count)
            continue;
        if (rank == 0) {
            stamp(at, i);
            MP_OK(gyre_isend(at, bytes, GYRE_UINT8, 1, world, &requests[i % depth]));
        } else {
            MP_OK(gyre_irecv(at, bytes, GYRE_UINT8, 0, world, &requests[i % depth]));
        }
    }
    /* all have arrived */
    unsigned char done = 0;
    if (rank == 1)
        MP_OK(gyre_send(&done, 1, GYRE_UINT8, 0, world));
    else
        MP_OK(gyre_recv(&done, 1, GYRE_UINT8, 1, world));
}

static void bandwidth(int count, int depth)
{
    unsigned char *ring[DEPTH_MOST];

    for (int i = 0; i < depth; i++)
        ring[i] = buffer();
    stream(2 * depth, depth, ring);
    double from = now_us();
    stream(count, depth, ring);
    double took = now_us() - from;
    if (rank == 0)
        printf("bw_mib_s %.3f\n", (double)count * (double)bytes / 1048576.0 / (took * 1e-6));
    for (int i = 0; i < depth; i++)
        MP_OK(gyre_mem_free(ring[i]));
}

int main(int argc, char **argv)
{
    int count = argc > 3 ? atoi(argv[3]) : 0, depth = argc > 4 ? atoi(argv[4]) : DEPTH;

    bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (bytes < 1 || count < BLOCK || depth < 1 || depth > DEPTH_MOST ||
        (strcmp(argv[1], "lat") != 0 && strcmp(argv[1], "bw") != 0)) {
        fprintf(stderr, "usage: pair lat|bw BYTES COUNT [DEPTH up to %d]\n", DEPTH_MOST);
        return 2;
    }
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    MP_CHECK(gyre_comm_size(world) == 2, "two ranks, not %d", gyre_comm_size(world));
    if (strcmp(argv[1], "lat") == 0)
        latency(count);
    else
        bandwidth(count, depth);
    MP_OK(gyre_finalize(world));
    return 0;
}
