/* SPDX-License-Identifier: Apache-2.0 */
/* TSan in check-long: what ranks share are other processes' copies, which it does not see */
/* tests/collectives/mp_stage_long.c: sums that are longer than what caches hold of all ranks (GYRE_TUNE:
 * small caches) go part by part through staged copies once a rank's memory was seen that peers cannot map,
 * and in one go again once all is registered. Results, inputs and what lies around results are right in any
 * mix of memory, for calls that overlap and for persistent ones; staged copies take no more memory than some
 * parts.
 *
 * ranks: 2 3 4 8 */
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "comm/peer_memory.h"
#include "tests/support/mp.h"

enum { CACHE = 64 << 10, MOST = 1 << 20, EDGE = 64, FLIGHT = 5 };

static gyre_comm_t *world;
static int n, rank;

static void begin(void)
{
    char path[64];
    snprintf(path, sizeof path, "build/mp_stage_long.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    MP_CHECK(file, "%s", path);
    fprintf(file,
            "gyre-tune 1\ncost cma_rate 10\ncost cma_call 1000\ncost peer_cache 40\ncost cache_bytes %d\n",
            CACHE);
    MP_CHECK(fclose(file) == 0 && setenv("GYRE_TUNE", path, 1) == 0, "%s", path);
    MP_CHECK(setenv("GYRE_CHUNK", "64K", 1) == 0, "a chunk as small as the caches");
    MP_OK(base_settings_reload());
    MP_OK(gyre_init(NULL, &world));
    unlink(path);
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
}

/* Small whole numbers, whose sums are exact in any type. */
static int value(int of, size_t i, int call)
{
    return (int)((i * 7 + (size_t)of * 3 + (size_t)call) % 5);
}

static void fill(unsigned char *at, gyre_type_t type, size_t count, int call)
{
    for (size_t i = 0; i < count; i++) {
        const float x = (float)value(rank, i, call);
        if (type == GYRE_FLOAT32)
            memcpy(at + i * sizeof x, &x, sizeof x);
        else
            at[i] = (unsigned char)value(rank, i, call);
    }
}

static void check(const unsigned char *at, gyre_type_t type, size_t count, int call, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        int right = 0;
        float x = at[i];
        for (int r = 0; r < n; r++)
            right += value(r, i, call);
        if (type == GYRE_FLOAT32)
            memcpy(&x, at + i * sizeof x, sizeof x);
        MP_CHECK(x == (float)right, "%s, %zu elements: number %zu is %g, not %d", what, count, i, (double)x,
                 right);
    }
    MP_CHECK(at[count * gyre_type_size(type)] == 0x5a, "%s: one more was written", what);
}

typedef enum { PLAIN, REGISTERED, ONE_PLAIN, KINDS } kind_t;
static const char *const kinds[KINDS] = {"malloc", "registered", "malloc on one rank"};

static unsigned char *plain[2], *windows[2];

static int is_plain(kind_t kind, int call)
{
    return kind == PLAIN || (kind == ONE_PLAIN && call % n == rank);
}

static void one_sum(gyre_type_t type, size_t bytes, kind_t kind, int in_place, int call)
{
    const size_t count = bytes / gyre_type_size(type);
    unsigned char **at = is_plain(kind, call) ? plain : windows;
    unsigned char *in = at[0] + EDGE + 4 * (call % 5), *out = in_place ? in : at[1] + EDGE + 4 * (call % 3);
    fill(in, type, count, call);
    in[bytes] = out[bytes] = 0x5a;
    MP_OK(gyre_all_reduce(in, out, count, type, GYRE_OP(GYRE_SUM), world));
    check(out, type, count, call, kinds[kind]);
    for (size_t i = 0; !in_place && type != GYRE_FLOAT32 && i < count; i++)
        MP_CHECK(in[i] == value(rank, i, call), "%s: the input has changed at %zu", kinds[kind], i);
    const coll_plan_t *plan = world->plans.last[COLL_ALL_REDUCE];
    const size_t limit = (size_t)8 * CACHE / (size_t)n;
    MP_CHECK((plan->fine_cut.n > 0) == (bytes > limit), "%zu bytes: %u parts", bytes, plan->fine_cut.n);
    if (plan->fine_cut.n > 0)
        MP_CHECK(world->unmapped == (kind != REGISTERED), "%s: taken for %d", kinds[kind], world->unmapped);
}

static void sums(void)
{
    const size_t limit = (size_t)8 * CACHE / (size_t)n;
    const size_t sizes[] = {limit, limit + 4, limit + CACHE, 2 * limit - 4, 3 * limit / 2 + 60, MOST};
    int call = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int k = 0; k < 2 * KINDS; k++) /* each kind twice in a row: as found, and as expected */
            for (int in_place = 0; in_place < 2; in_place++, call++)
                one_sum(call % 2 ? GYRE_UINT8 : GYRE_FLOAT32, sizes[s] / 4 * 4, (kind_t)(k / 2), in_place,
                        call);
    MP_CHECK(world->scratch.bytes <= 8 * limit, "%zu bytes of scratch memory for parts of %d",
             world->scratch.bytes, CACHE);
}

/* Calls that are all posted before any ends, in memory of both kinds in turn. */
static void overlapping(void)
{
    enum { COUNT = MOST / FLIGHT };
    gyre_request_t *requests[FLIGHT];
    for (int pass = 0; pass < 4; pass++) {
        for (int k = 0; k < FLIGHT; k++) {
            unsigned char *at =
                (is_plain((kind_t)(k % KINDS), pass) ? plain : windows)[k % 2] + k * (COUNT + EDGE);
            fill(at, GYRE_UINT8, COUNT, k);
            at[COUNT] = 0x5a;
            MP_OK(gyre_iall_reduce(at, at, COUNT, GYRE_UINT8, GYRE_OP(GYRE_SUM), world, &requests[k]));
        }
        for (int k = 0; k < FLIGHT; k++)
            MP_OK(gyre_wait(&requests[k]));
        for (int k = 0; k < FLIGHT; k++)
            check((is_plain((kind_t)(k % KINDS), pass) ? plain : windows)[k % 2] + k * (COUNT + EDGE),
                  GYRE_UINT8, COUNT, k, "under way together");
    }
}

/* A persistent sum keeps its buffers, while calls between its starts change what is expected of the next. */
static void persistent(kind_t kind)
{
    enum { COUNT = MOST / sizeof(float) };
    unsigned char **at = is_plain(kind, 0) ? plain : windows;
    gyre_plan_t *plan;
    MP_OK(gyre_plan_all_reduce(at[0], at[1], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world, &plan));
    for (int call = 0; call < 6; call++) {
        fill(at[0], GYRE_FLOAT32, COUNT, call);
        at[1][MOST] = 0x5a;
        MP_OK(gyre_start(plan, NULL));
        check(at[1], GYRE_FLOAT32, COUNT, call, "persistent");
        if (call % 2)
            one_sum(GYRE_UINT8, MOST, (kind_t)(call % KINDS), 0, call);
    }
    MP_OK(gyre_plan_free(&plan));
}

int main(void)
{
    begin();
    MP_CHECK(comm_peer_memory_all(world->group), "ranks of this host cannot read each other's memory");
    for (int k = 0; k < 2; k++) {
        MP_CHECK(plain[k] = malloc(MOST + 2 * FLIGHT * EDGE), "no memory");
        MP_OK(gyre_mem_alloc(MOST + 2 * FLIGHT * EDGE, (void **)&windows[k]));
    }
    sums();
    overlapping();
    for (int k = 0; k < KINDS; k++)
        persistent((kind_t)k);
    for (int k = 0; k < 2; k++) {
        free(plain[k]);
        MP_OK(gyre_mem_free(windows[k]));
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
