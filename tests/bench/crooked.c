/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/crooked.c: a library of one rank for the benchmark loop (bench/peers.h), whose last argument
 * makes it wrong: `honest`, `last` (the last element of every result is off), `late` (wrong from the second
 * call on), `lazy` (returns without doing anything), `frozen` (works once, then does nothing), `stale` (gives
 * the first result again and again), `moving` (a call with the buffers of the call before is an error) or
 * `failing` (every call but the barrier is an error). */
#include "bench/peers.h"

#include <string.h>

static const char *manner = "";
static unsigned calls;

static int start(int argc, char **argv, int *rank, int *size)
{
    if (argc != 1)
        return 1;
    manner = argv[0];
    *rank = 0;
    *size = 1;
    return 0;
}

static int copy(float *send, float *recv, size_t count)
{
    calls++;
    static const float *before;
    if (strcmp(manner, "failing") == 0 || (strcmp(manner, "moving") == 0 && recv == before))
        return 7;
    before = recv;
    if (strcmp(manner, "lazy") == 0 || (strcmp(manner, "frozen") == 0 && calls > 1))
        return 0;
    static float first[1024];
    if (strcmp(manner, "stale") == 0 && count <= 1024) {
        if (calls == 1)
            memcpy(first, send, count * sizeof *first);
        send = first;
    }
    memmove(recv, send, count * sizeof *recv);
    if (strcmp(manner, "last") == 0 || (strcmp(manner, "late") == 0 && calls > 1))
        recv[count - 1] += 1.0f;
    return 0;
}

static int nothing(float *send, float *recv, size_t count)
{
    (void)send;
    (void)recv;
    (void)count;
    return 0;
}

static const char *error(int code)
{
    return code == 7 ? "seven" : "not seven";
}

static const char *version(void)
{
    return "crooked 1";
}

static void finish(void) {}

const bench_backend_t bench_backend = {
    .init = start,
    .call = {copy, copy, copy, nothing, copy, nothing},
    .error = error,
    .version = version,
    .finalize = finish,
};
