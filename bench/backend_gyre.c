/* SPDX-License-Identifier: Apache-2.0 */
/* bench/backend_gyre.c: Gyre, as any user calls it, for the benchmark loop (peers.h). */
#include "bench/peers.h"

#include <stdio.h>

#include <gyre/gyre.h>

static gyre_comm_t *world;

static int start(int argc, char **argv, int *rank, int *size)
{
    (void)argc;
    (void)argv;
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 1; /* Gyre has logged why, here and below */
    *rank = gyre_comm_rank(world);
    *size = gyre_comm_size(world);
    return 0;
}

static int all_reduce(float *send, float *recv, size_t count)
{
    return (int)gyre_all_reduce(send, recv, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world);
}

static int reduce_scatter(float *send, float *recv, size_t count)
{
    return (int)gyre_reduce_scatter(send, recv, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world);
}

static int all_gather(float *send, float *recv, size_t count)
{
    return (int)gyre_all_gather(send, recv, count, GYRE_FLOAT32, world);
}

static int broadcast(float *send, float *recv, size_t count)
{
    (void)send;
    return (int)gyre_broadcast(recv, recv, count, GYRE_FLOAT32, 0, world);
}

static int all_to_all(float *send, float *recv, size_t count)
{
    return (int)gyre_all_to_all(send, recv, count, GYRE_FLOAT32, world);
}

static int barrier(float *send, float *recv, size_t count)
{
    (void)send;
    (void)recv;
    (void)count;
    return (int)gyre_barrier(world);
}

static int first_call(float *send, float *recv, size_t count)
{
    gyre_comm_t *comm;
    gyre_status_t st = gyre_comm_split(world, 0, 0, &comm);
    if (st != GYRE_OK)
        return (int)st;
    if (count)
        st = gyre_all_reduce(send, recv, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    const gyre_status_t freed = gyre_comm_destroy(comm);
    return (int)(st != GYRE_OK ? st : freed);
}

static int split(float *send, float *recv, size_t count)
{
    (void)count;
    return first_call(send, recv, 0);
}

static void *own_alloc(size_t bytes)
{
    void *memory = NULL;
    return gyre_mem_alloc(bytes, &memory) == GYRE_OK ? memory : NULL;
}

static void own_free(void *memory)
{
    if (gyre_mem_free(memory) != GYRE_OK)
        fputs("gyre_mem_free failed\n", stderr);
}

static const char *error(int code)
{
    (void)code;
    return gyre_last_error();
}

static const char *version(void)
{
    static char text[64];
    snprintf(text, sizeof text, "Gyre %s", gyre_version());
    return text;
}

static void finish(void)
{
    if (gyre_finalize(world) != GYRE_OK)
        fputs("gyre_finalize failed\n", stderr);
}

const bench_backend_t bench_backend = {
    .init = start,
    .call = {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, split, first_call},
    .own_alloc = own_alloc,
    .own_free = own_free,
    .error = error,
    .version = version,
    .finalize = finish,
};
