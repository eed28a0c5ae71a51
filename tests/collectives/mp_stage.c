/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/mp_stage.c: memory that peers cannot map goes through rings where the kernel's way costs
 * more (GYRE_TUNE: a dear call), is staged through windows where rings are too short, and neither where the
 * kernel's way costs nothing. Every operation has the bits that it has in registered memory, at sizes around
 * the limits, at odd addresses and in place; what lies around the result, and inputs, stay.
 *
 * ranks: 2 3 4 8 */
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "comm/peer_memory.h"
#include "comm/shm/link.h"
#include "tests/support/mp.h"
#include "tests/support/random.h"

enum { MOST = 300 * 1024, EDGE = 64, KINDS = 2 };

static gyre_comm_t *world;
static int n, rank;

/* What a machine costs, and where its memory of malloc goes. */
typedef struct {
    const char *name, *call, *stage, *budget; /* ns of the kernel's call; GB/s; GYRE_SHM_BUDGET of rings */
    int staged, rings;                        /* -1: either */
} machine_t;

static const machine_t machines[] = {{"a dear call", "1000000", "1", "4M", -1, 1},
                                     {"a dear call, short rings", "1000000", "15", "128K", 1, -1},
                                     {"a call for nothing", "0.001", "15", "4M", 0, 0}};

/* Tunes the process before gyre_init. */
static void tune(const machine_t *machine)
{
    char path[64];
    snprintf(path, sizeof path, "build/mp_stage.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    MP_CHECK(file, "%s", path);
    fprintf(
        file,
        "gyre-tune 1\ncost cma_call %s\ncost peer_stage %s\ncost cma_rate 1000\ncost cache_bytes 8388608\n",
        machine->call, machine->stage);
    MP_CHECK(fclose(file) == 0, "%s", path);
    MP_CHECK(setenv("GYRE_TUNE", path, 1) == 0 && setenv("GYRE_SHM_BUDGET", machine->budget, 1) == 0,
             "setenv");
    MP_OK(base_settings_reload());
    MP_OK(gyre_init(NULL, &world));
    unlink(path);
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
}

static gyre_status_t call(coll_op_t op, const void *in, void *out, size_t count, int root, int scaled)
{
    const gyre_redop_t sum = scaled ? GYRE_SCALED_SUM(0.5) : GYRE_OP(GYRE_SUM);
    switch (op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce(in, out, count, GYRE_FLOAT32, sum, world);
    case COLL_REDUCE:
        return gyre_reduce(in, out, count, GYRE_FLOAT32, sum, root, world);
    case COLL_BROADCAST:
        return gyre_broadcast(in, out, count, GYRE_FLOAT32, root, world);
    case COLL_REDUCE_SCATTER:
        return gyre_reduce_scatter(in, out, count, GYRE_FLOAT32, sum, world);
    case COLL_ALL_GATHER:
        return gyre_all_gather(in, out, count, GYRE_FLOAT32, world);
    case COLL_GATHER:
        return gyre_gather(in, out, count, GYRE_FLOAT32, root, world);
    case COLL_SCATTER:
        return gyre_scatter(in, out, count, GYRE_FLOAT32, root, world);
    case COLL_ALL_TO_ALL:
        return gyre_all_to_all(in, out, count, GYRE_FLOAT32, world);
    default:
        return gyre_scan(in, out, count, GYRE_FLOAT32, sum, world);
    }
}

static const coll_op_t ops[] = {COLL_ALL_REDUCE,     COLL_REDUCE,     COLL_BROADCAST,
                                COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_GATHER,
                                COLL_SCATTER,        COLL_ALL_TO_ALL, COLL_SCAN};

static int is_blocks(coll_op_t op)
{
    return op == COLL_REDUCE_SCATTER || op == COLL_ALL_GATHER || op == COLL_GATHER || op == COLL_SCATTER ||
           op == COLL_ALL_TO_ALL;
}

static int staged_now(coll_op_t op)
{
    const coll_plan_t *plan = world->plans.last[op];
    return plan && (plan->staging.in || plan->staging.out);
}

/* One call in memory of malloc and in registered memory. Returns 1 if the first was staged. */
static int compare(coll_op_t op, size_t bytes, int in_place, unsigned char *plain[KINDS],
                   unsigned char *windows[KINDS], uint64_t *seed)
{
    const size_t count = bytes / sizeof(float) / (is_blocks(op) ? (size_t)n : 1), shift = 4 * (bytes % 5);
    const int root = (int)(bytes % (size_t)n), scaled = op == COLL_ALL_REDUCE && bytes % 3 == 0;
    uint64_t mine = *seed + (uint64_t)rank;
    unsigned char *kept = malloc(MOST);
    MP_CHECK(kept, "no memory");
    for (size_t i = 0; i + sizeof(float) <= MOST; i += sizeof(float)) {
        const float x = (float)(random_next(&mine) >> 40) / (1 << 20) - 7;
        memcpy(kept + i, &x, sizeof x);
    }
    *seed += 1000;
    int staged = 0;
    for (int k = 0; k < KINDS; k++) {
        unsigned char **at = k == 0 ? plain : windows;
        unsigned char *in = at[0] + EDGE + shift, *out = in_place ? in : at[1] + EDGE + shift;
        memset(at[1], 0x5a, MOST + 2 * EDGE);
        memset(at[0], 0x5a, MOST + 2 * EDGE);
        memcpy(in, kept, bytes);
        MP_OK(call(op, in, out, count, root, scaled));
        if (k == 0)
            staged = staged_now(op);
        MP_CHECK(in_place || memcmp(in, kept, bytes) == 0, "%s changed its input", coll_op_name(op));
    }
    MP_CHECK(memcmp(plain[0], windows[0], MOST + 2 * EDGE) == 0 &&
                 memcmp(plain[1], windows[1], MOST + 2 * EDGE) == 0,
             "%s of %zu bytes%s, %s: other bytes than in registered memory", coll_op_name(op), bytes,
             in_place ? " in place" : "", staged ? "staged" : "not staged");
    free(kept);
    return staged;
}

/* Messages of all ranks that went through rings in parts. */
static int through_rings(void)
{
    int32_t mine = 0, all;
    for (int peer = 0; peer < n; peer++)
        for (int lane = 0; peer != rank && lane < COMM_LANES; lane++) {
            comm_link_t *link;
            MP_OK(comm_group_link(world->group, peer, lane, &link));
            mine += (int32_t)comm_shm_sent(link, COMM_SHM_BULK);
        }
    MP_OK(gyre_all_reduce(&mine, &all, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), world));
    return all;
}

static void compare_all(const machine_t *machine)
{
    static const size_t sizes[] = {4096, 4100, 5000, 8192, 16388, 40000, 65536, 131072, 262144};
    enum { SIZES = sizeof sizes / sizeof *sizes, OPS = sizeof ops / sizeof *ops };
    unsigned char *plain[KINDS], *windows[KINDS];
    uint64_t seed = 1;
    for (int k = 0; k < KINDS; k++) {
        MP_CHECK(plain[k] = malloc(MOST + 2 * EDGE), "no memory");
        MP_OK(gyre_mem_alloc(MOST + 2 * EDGE, (void **)&windows[k]));
    }
    for (size_t o = 0; o < OPS; o++) {
        int32_t staged = 0, some = 0;
        for (size_t s = 0; s < SIZES; s++)
            for (int in_place = 0; in_place < (is_blocks(ops[o]) ? 1 : 2); in_place++)
                staged += compare(ops[o], sizes[s] / 4 / (size_t)n * 4 * (size_t)n, in_place, plain, windows,
                                  &seed);
        MP_OK(gyre_all_reduce(&staged, &some, 1, GYRE_INT32, GYRE_OP(GYRE_MAX), world));
        MP_CHECK(machine->staged < 0 || (some > 0) == machine->staged, "%s, %s: %d calls were staged",
                 machine->name, coll_op_name(ops[o]), (int)some);
    }
    /* Among many ranks rings are short, and what is small takes several packets, too. */
    const int always =
        comm_segment_ring_holds(&world->group->seg, COMM_LANE_P2P) < (size_t)3 * COMM_SHM_EAGER_MOST;
    const int bulk = through_rings();
    MP_CHECK(machine->rings < 0 || (bulk > 0) == (machine->rings || always),
             "%s: %d messages went through rings", machine->name, bulk);
    for (int k = 0; k < KINDS; k++) {
        free(plain[k]);
        MP_OK(gyre_mem_free(windows[k]));
    }
}

/* Staged copies of a communicator that stages again and again take turns in a bounded part of its scratch
 * memory, which does not grow; those of the first calls lie in one place. */
static void turn_places(const machine_t *machine)
{
    enum { COUNT = 4096, CALLS = 512 };
    float *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
    size_t places = 0, again = 0, grown = 0, early = 0;
    gyre_comm_t *comm;
    MP_CHECK(in && out, "no memory");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    const size_t room = coll_cost_stage_room(&comm->tune->cost);
    for (int i = 0; i < CALLS; i++) {
        const coll_scratch_t before = comm->scratch;
        for (int k = 0; k < COUNT; k++)
            in[k] = (float)(i + k + rank);
        MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
        for (int k = 0; k < COUNT; k++)
            MP_CHECK(out[k] == (float)(n * (i + k) + n * (n - 1) / 2), "call %d, element %d: %g", i, k,
                     (double)out[k]);
        places += comm->scratch.stage > before.stage;
        again += comm->scratch.stage < before.stage;
        grown += comm->scratch.bytes > before.bytes;
        early += i > 0 && i < 10 && comm->scratch.stage != before.stage;
    }
    const coll_plan_t *plan = comm->plans.last[COLL_ALL_REDUCE];
    const int staged = plan && plan->staging.in > 0;
    MP_CHECK(machine->staged < 0 || staged == machine->staged, "%s: staged %d", machine->name, staged);
    MP_CHECK(!staged || (places > 8 * again && again > 1),
             "%zu places were followed by another one, %zu by the first one", places, again);
    MP_CHECK(!staged || (comm->scratch.bytes >= room && grown == 1 && early == 0),
             "%zu bytes of scratch memory, grown %zu times; %zu of the first calls had another place",
             comm->scratch.bytes, grown, early);
    MP_OK(gyre_comm_destroy(comm));
    free(in);
    free(out);
}

int main(void)
{
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        tune(&machines[m]);
        MP_CHECK(comm_peer_memory_all(world->group), "ranks of this host cannot read each other's memory");
        compare_all(&machines[m]);
        turn_places(&machines[m]);
        MP_OK(gyre_finalize(world));
    }
    return 0;
}
