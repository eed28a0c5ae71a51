/* SPDX-License-Identifier: Apache-2.0 */
/* TSan in check-long: what ranks share are other processes' copies, which it does not see */
/* tests/collectives/mp_stage.c: memory that peers cannot map goes through rings where the kernel's way costs
 * more (GYRE_TUNE: a dear call), is staged through windows where rings are too short, and neither where the
 * kernel's way costs nothing. Every operation has the bits that it has in registered memory, at sizes around
 * the limits, at odd addresses and in place; what lies around the result, and inputs, stay. Chunks of a
 * broadcast go through windows where the kernel's pages are dear. Where only those beyond the caches are, an
 * input is staged that no call has had of late, once a communicator has had some; and where plain copies from
 * there are dear, a repeated call allocates nothing all the same.
 *
 * ranks: 2 3 4 8 */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "comm/peer_memory.h"
#include "comm/shm/link.h"
#include "tests/support/mp.h"
#include "tests/support/random.h"

enum { MOST = 300 * 1024, EDGE = 64, BEYOND = 4096, BUFFERS = 2, MIXES = 4 };

static gyre_comm_t *world;
static int n, rank;

/* What a machine costs, and where its memory of malloc goes. */
typedef struct {
    /* ns of the kernel's call; GB/s, of staging and of the kernel, within the caches and beyond;
     * of plain copies beyond; GYRE_SHM_BUDGET of rings */
    const char *name, *call, *stage, *rate, *memory, *pages, *budget;
    const char *turns; /* GB/s of messages whose lines receivers take */
    int staged, rings; /* -1: either */
    int chunks;        /* a root stages its chunks */
    int takes;         /* receivers take lines */
} machine_t;

static const machine_t machines[] = {
    {"a dear call", "1000000", "1", "1000", "1000", "1000", "4M", "1", -1, 1, 0, 0},
    {"a dear call, lines are taken", "1000000", "1", "1000", "1000", "1000", "4M", "50", -1, 1, 0, 1},
    {"a dear call, short rings", "1000000", "15", "1000", "1000", "0.001", "128K", "50", 1, -1, 0, 1},
    {"a call for nothing", "0.001", "15", "1000", "1000", "1000", "4M", "1", 0, 0, 0, 0},
    {"dear pages", "1300", "15", "1", "1", "1000", "4M", "1", -1, -1, 1, 0},
    {"dear pages beyond the caches", "0.001", "15", "1000", "1", "1000", "4M", "1", 0, 0, 1, 0}};

/* Tunes the process before gyre_init. */
static void tune(const machine_t *machine)
{
    char path[64];
    snprintf(path, sizeof path, "build/mp_stage.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    MP_CHECK(file, "%s", path);
    fprintf(file,
            "gyre-tune 1\ncost cma_call %s\ncost peer_stage %s\ncost cma_rate %s\ncost cma_memory %s\n"
            "cost copy_pages %s\ncost cache_bytes 8388608\n"
            "cost peer_cache 40\ncost peer_write 10\ncost copy_memory 10\ncost turn_write %s\ncost turn_load "
            "%s\n",
            machine->call, machine->stage, machine->rate, machine->memory, machine->pages, machine->turns,
            machine->turns);
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

static int staged_now(coll_op_t op)
{
    const coll_plan_t *plan = world->plans.last[op];
    return plan && (plan->staging.in || plan->staging.out);
}

/* One call in memory of malloc and in registered memory, and where input and result are of different kinds.
 * Returns 1 if the first was staged. */
static int compare(coll_op_t op, size_t bytes, int in_place, unsigned char *plain[BUFFERS],
                   unsigned char *windows[BUFFERS], uint64_t *seed)
{
    const size_t count = bytes / sizeof(float) / (coll_op_has_blocks(op) ? (size_t)n : 1),
                 shift = 4 * (bytes % 5);
    const size_t watched = EDGE + shift + bytes + BEYOND; /* of each buffer */
    const int root = (int)(bytes % (size_t)n), scaled = op == COLL_ALL_REDUCE && bytes % 3 == 0;
    uint64_t mine = *seed + (uint64_t)rank;
    unsigned char *kept = malloc(bytes), *right = malloc(watched);
    MP_CHECK(kept && right && watched <= MOST + 2 * EDGE, "no memory");
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
        const float x = (float)(random_next(&mine) >> 40) / (1 << 20) - 7;
        memcpy(kept + i, &x, sizeof x);
    }
    *seed += 1000;
    int staged = 0;
    /* Then, at some sizes, other mixes on each rank. bit 0: the input is registered; bit 1: the result is */
    const int turns = bytes < 2100 || (bytes > 60000 && bytes < 66000) ? MIXES : 2;
    for (int turn = 0; turn < turns; turn++) {
        const int mix = turn < 2 ? turn * 3 : (turn + rank) % MIXES;
        unsigned char *in_at = mix & 1 ? windows[0] : plain[0], *out_at = mix & 2 ? windows[1] : plain[1];
        unsigned char *in = in_at + EDGE + shift, *out = in_place ? in : out_at + EDGE + shift;
        memset(out_at, 0x5a, watched);
        memset(in_at, 0x5a, watched);
        memcpy(in, kept, bytes);
        MP_OK(call(op, in, out, count, root, scaled));
        if (turn == 0) {
            staged = staged_now(op);
            MP_CHECK(op != COLL_BROADCAST || n == 2 || rank != root || !staged ||
                         world->plans.last[op]->staging.out == 0,
                     "a broadcast of %zu bytes: the root copies back what it has", bytes);
            memcpy(right, in_place ? in_at : out_at, watched);
        }
        MP_CHECK(in_place || memcmp(in, kept, bytes) == 0, "%s changed its input", coll_op_name(op));
        MP_CHECK(memcmp(right, in_place ? in_at : out_at, watched) == 0,
                 "%s of %zu bytes%s, %s, input %sregistered, result %sregistered: other bytes than in memory "
                 "of malloc",
                 coll_op_name(op), bytes, in_place ? " in place" : "", staged ? "staged" : "not staged",
                 mix & 1 ? "" : "not ", mix & 2 ? "" : "not ");
    }
    free(right);
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
    static const size_t sizes[] = {48,   1000,  2052,  4096,  4100,   5000,
                                   8192, 16388, 40000, 65536, 131072, 262144};
    enum { SIZES = sizeof sizes / sizeof *sizes, OPS = sizeof ops / sizeof *ops };
    unsigned char *plain[BUFFERS], *windows[BUFFERS];
    uint64_t seed = 1;
    for (int k = 0; k < BUFFERS; k++) {
        MP_CHECK(plain[k] = malloc(MOST + 2 * EDGE), "no memory");
        MP_OK(gyre_mem_alloc(MOST + 2 * EDGE, (void **)&windows[k]));
    }
    for (size_t o = 0; o < OPS; o++) {
        int32_t staged = 0, some = 0;
        for (size_t s = 0; s < SIZES; s++)
            for (int in_place = 0; in_place < (coll_op_has_blocks(ops[o]) ? 1 : 2); in_place++)
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
    MP_CHECK(world->oneshot.takes == (n == 2 && machine->takes), "%s: lines are taken: %d", machine->name,
             world->oneshot.takes);
    MP_CHECK(machine->rings < 0 || (bulk > 0) == (machine->rings || always),
             "%s: %d messages went through rings", machine->name, bulk);
    for (int k = 0; k < BUFFERS; k++) {
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
    MP_CHECK(!staged || again <= CALLS * COUNT * sizeof *in / (room - COUNT * sizeof *in),
             "%zu times from the beginning: input and result do not share their place", again);
    MP_CHECK(!staged || (comm->scratch.bytes >= room && grown == 1 && early == 0),
             "%zu bytes of scratch memory, grown %zu times; %zu of the first calls had another place",
             comm->scratch.bytes, grown, early);
    MP_OK(gyre_comm_destroy(comm));
    free(in);
    free(out);
}

enum { SHORT = 16 << 10, LONG_INPUT = 512 << 10 }; /* elements */

/* 1: a sum of this input was staged. */
static int stages_sum(gyre_comm_t *comm, const float *in, float *out, size_t count)
{
    const int before = comm->scratch.staged;
    MP_OK(gyre_all_reduce(in, out, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    for (size_t i = 0; i < count; i++)
        MP_CHECK(out[i] == (float)n, "element %zu is %g", i, (double)out[i]);
    return comm->scratch.staged > before;
}

/* A communicator on which so many sums of `count` elements had inputs that no call had had. */
static gyre_comm_t *after_cold_calls(const float *in, float *out, size_t count)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    for (size_t i = 0; i < COLL_RECENT; i++)
        MP_CHECK(stages_sum(comm, in + i * count, out, count) == 0, "cold call %zu was staged", i);
    MP_CHECK(comm->scratch.bytes < coll_cost_stage_room(&comm->tune->cost), "%zu bytes of scratch memory",
             comm->scratch.bytes);
    return comm;
}

/* Where the kernel's pages are dear beyond the caches only, an input is staged at its first call, and again
 * after others that are more than a cache holds, or than are remembered. A new communicator stages none. */
static void recent_inputs(void)
{
    enum { OTHERS = COLL_RECENT, PASSES = 9 << 20 };
    float *in = malloc((OTHERS + 4) * SHORT * sizeof *in), *out = malloc(LONG_INPUT * sizeof *out),
          *large = malloc(LONG_INPUT * sizeof *large), *fresh = in ? in + OTHERS * SHORT : NULL;
    char *passing = calloc(1, PASSES);
    MP_CHECK(in && out && large && passing, "no memory");
    for (size_t i = 0; i < (OTHERS + 4) * SHORT; i++)
        in[i] = 1;
    for (size_t i = 0; i < LONG_INPUT; i++)
        large[i] = 1;
    gyre_comm_t *comm = after_cold_calls(in, out, SHORT);
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 1, "a new input was not staged");
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 0, "the last input was staged");
    MP_CHECK(stages_sum(comm, fresh + SHORT, out, SHORT) == 1, "another input was not staged");
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 0, "the last input but one was staged");
    MP_CHECK(stages_sum(comm, fresh, out, 2 * SHORT) == 1, "a longer one at the same place was not staged");
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 0, "the shorter one was staged");
    for (int i = 0; i < 3; i++)
        (void)stages_sum(comm, large, out, LONG_INPUT);
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 1, "an input was not staged after what fills a cache");
    MP_OK(gyre_broadcast(passing, passing, PASSES, GYRE_UINT8, 0, comm)); /* n > 2: the same, warm and cold */
    MP_CHECK(stages_sum(comm, fresh, out, SHORT) == 1, "an input was not staged after a long broadcast");
    MP_OK(gyre_comm_destroy(comm));
    comm = after_cold_calls(in, out, SHORT);
    (void)stages_sum(comm, fresh, out, SHORT);
    MP_CHECK(stages_sum(comm, in, out, SHORT) == 1, "an input was not staged after %d others", OTHERS);
    MP_OK(gyre_comm_destroy(comm));
    free(passing);
    free(large);
    free(out);
    free(in);
}

/* Where only what a cache holds is staged, the first call allocates what the next one needs. */
static void repeat_calls(void)
{
    float *in = calloc(SHORT, sizeof *in), *out = malloc(SHORT * sizeof *out);
    gyre_comm_stats_t first = {.size = sizeof first}, then = {.size = sizeof then};
    gyre_comm_t *comm;
    MP_CHECK(in && out, "no memory");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_all_reduce(in, out, SHORT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_comm_stats(comm, &first));
    for (int i = 0; i < 3; i++)
        MP_OK(gyre_all_reduce(in, out, SHORT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_comm_stats(comm, &then));
    MP_CHECK(comm->scratch.staged > 0, "nothing was staged");
    MP_CHECK(then.allocations == first.allocations, "repeated calls allocated %d times",
             (int)(then.allocations - first.allocations));
    MP_OK(gyre_comm_destroy(comm));
    free(out);
    free(in);
}

/* Staged blocks that one peer alone reads have a zero in each line afterwards, if receivers take lines; a
 * rank's own block, and blocks that several read, have what was staged. Returns 0 if a peer has taken
 * none: it could not map the window in time, and read by the kernel. */
static int give_lines(const machine_t *machine, coll_op_t op)
{
    enum { BLOCK = 32768, WORDS = BLOCK / sizeof(float) };
    float *in = malloc((size_t)n * BLOCK), *out = malloc((size_t)n * BLOCK);
    gyre_comm_t *comm;
    MP_CHECK(in && out, "no memory");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    for (int i = 0; i < n * WORDS; i++)
        in[i] = 1;
    if (op == COLL_ALL_TO_ALL)
        MP_OK(gyre_all_to_all(in, out, WORDS, GYRE_FLOAT32, comm));
    else if (op == COLL_REDUCE_SCATTER)
        MP_OK(gyre_reduce_scatter(in, out, WORDS, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    else
        MP_OK(gyre_all_gather(in, out, WORDS, GYRE_FLOAT32, comm));
    for (int i = 0; i < WORDS; i++)
        MP_CHECK(out[i] == (op == COLL_REDUCE_SCATTER ? (float)n : 1), "%s: %g", coll_op_name(op),
                 (double)out[i]);
    MP_OK(gyre_barrier(comm));
    const coll_plan_t *plan = comm->plans.last[op];
    const int gives = machine->takes && op != COLL_ALL_GATHER;
    int32_t taken = 1, all;
    if (plan && plan->staging.in == (op == COLL_ALL_GATHER ? BLOCK : (size_t)n * BLOCK)) {
        const char *staged = (const char *)comm->scratch.base + comm->scratch.stage - plan->staging.in;
        for (size_t at = 0; at < plan->staging.in; at += COMM_LINE) {
            const int own = op != COLL_ALL_GATHER && at / BLOCK == (size_t)rank;
            float word;
            memcpy(&word, staged + at, sizeof word);
            MP_CHECK(word == 1 || (gives && !own), "%s, %s: line %zu of %s block has %g", machine->name,
                     coll_op_name(op), at / COMM_LINE, own ? "the own" : "a peer's", (double)word);
            taken &= !gives || own || word == 0;
        }
    } else {
        MP_CHECK(machine->staged != 1, "%s: %s was not staged", machine->name, coll_op_name(op));
    }
    MP_OK(gyre_all_reduce(&taken, &all, 1, GYRE_INT32, GYRE_OP(GYRE_MIN), comm));
    MP_OK(gyre_comm_destroy(comm));
    free(in);
    free(out);
    return all;
}

/* Messages of this rank that went from where they lie, by the kernel's copy and from windows. */
static void count_ways(gyre_comm_t *comm, uint64_t *kernel, uint64_t *windows)
{
    *kernel = *windows = 0;
    for (int peer = 0; peer < n; peer++) {
        comm_link_t *link;
        if (peer == rank)
            continue;
        MP_OK(comm_group_link(comm->group, peer, 0, &link));
        *kernel += comm_shm_sent(link, COMM_SHM_CMA);
        *windows += comm_shm_sent(link, COMM_SHM_WINDOW);
    }
}

enum { CHUNK = 8192 };

/* One broadcast by direct of `bytes`, and what its root sent. */
static void send_chunks(gyre_comm_t *comm, const machine_t *machine, size_t bytes, int root, int in_place,
                        int window, unsigned char *in, unsigned char *out)
{
    const uint64_t chunks = (bytes + CHUNK - 1) / CHUNK, peers = rank == root ? (uint64_t)n - 1 : 0;
    uint64_t before[2], after[2];
    unsigned char *to = in_place ? in : out;
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)((rank == root) * (i + i / 251 + (size_t)root + bytes));
    memset(out, 0x5a, bytes + EDGE);
    in[bytes] = 0x5a;
    count_ways(comm, &before[0], &before[1]);
    MP_OK(gyre_broadcast(in, to, bytes, GYRE_UINT8, root, comm));
    count_ways(comm, &after[0], &after[1]);
    for (size_t i = 0; i < bytes; i++)
        MP_CHECK(to[i] == (unsigned char)(i + i / 251 + (size_t)root + bytes),
                 "%zu bytes of root %d: byte %zu is %d", bytes, root, i, to[i]);
    MP_CHECK(to[bytes] == 0x5a, "%zu bytes: one more was written", bytes);
    const uint64_t shown = after[1] - before[1], copied = after[0] - before[0];
    if (chunks > 1 && bytes % CHUNK == 0 && (window || machine->chunks))
        MP_CHECK(shown == peers * chunks && copied == 0,
                 "%s: %zu bytes of %s, root %d: %d messages from windows, %d by the kernel", machine->name,
                 bytes, window ? "a window" : "malloc", root, (int)shown, (int)copied);
    else if (chunks > 1 && !window && !machine->chunks)
        MP_CHECK(shown == 0, "%s: %d messages of malloc's memory from windows", machine->name, (int)shown);
}

/* Chunks of a broadcast go through windows if that costs less than the kernel's copies, unless the root's
 * memory is a window. */
static void chunk_broadcasts(const machine_t *machine)
{
    static const size_t sizes[] = {CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 1, 4 * CHUNK, 11 * CHUNK + 5};
    gyre_comm_t *comm;
    unsigned char *plain[2], *windows[2];
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    comm->options.chunk = CHUNK;
    snprintf(comm->options.algorithm, sizeof comm->options.algorithm, "broadcast:direct");
    for (int k = 0; k < 2; k++) {
        MP_CHECK(plain[k] = malloc(MOST), "no memory");
        MP_OK(gyre_mem_alloc(MOST, (void **)&windows[k]));
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int root = 0; root < n; root++)
            for (int in_place = 0; in_place < 2; in_place++) {
                send_chunks(comm, machine, sizes[s], root, in_place, 0, plain[0] + 1, plain[1] + 3);
                send_chunks(comm, machine, sizes[s], root, in_place, 1, windows[0] + 1, windows[1] + 3);
            }
    MP_OK(gyre_comm_destroy(comm));
    for (int k = 0; k < 2; k++) {
        free(plain[k]);
        MP_OK(gyre_mem_free(windows[k]));
    }
}

/* A root that gets no memory for chunks: peers read its own. */
static void without_memory(void)
{
    enum { LONG = 1 << 20 }; /* needs a window of its own */
    struct rlimit usual, none;
    gyre_comm_t *comm;
    uint64_t ways[2];
    unsigned char *data = malloc(4 * LONG);
    MP_CHECK(data, "no memory");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    comm->options.chunk = LONG;
    snprintf(comm->options.algorithm, sizeof comm->options.algorithm, "broadcast:direct");
    memset(data, rank == 0 ? 7 : 0, 4 * LONG);
    MP_CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0, "getrlimit");
    none = usual;
    /* No new descriptor; but poll refuses more than the limit, and the watcher polls those that it has. */
    const int next = dup(0);
    MP_CHECK(next >= 0 && close(next) == 0, "dup");
    none.rlim_cur = (rlim_t)next;
    MP_CHECK(rank > 0 || setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
    MP_OK(gyre_broadcast(data, data, 4 * LONG, GYRE_UINT8, 0, comm));
    MP_CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0, "setrlimit");
    for (size_t i = 0; i < 4 * LONG; i++)
        MP_CHECK(data[i] == 7, "byte %zu is %d", i, data[i]);
    count_ways(comm, &ways[0], &ways[1]);
    MP_CHECK(ways[1] == 0, "%d messages from windows without memory for them", (int)ways[1]);
    MP_OK(gyre_comm_destroy(comm));
    free(data);
}

int main(void)
{
    static const coll_op_t given[] = {COLL_ALL_TO_ALL, COLL_REDUCE_SCATTER, COLL_ALL_GATHER};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        tune(&machines[m]);
        MP_CHECK(comm_peer_memory_all(world->group), "ranks of this host cannot read each other's memory");
        compare_all(&machines[m]);
        turn_places(&machines[m]);
        if (strcmp(machines[m].rate, machines[m].memory) != 0)
            recent_inputs();
        if (strcmp(machines[m].pages, "1000") != 0)
            repeat_calls();
        for (size_t o = 0; o < sizeof given / sizeof *given; o++) {
            int taken = 0;
            for (int tries = 0; tries < 10 && !taken; tries++)
                taken = give_lines(&machines[m], given[o]);
            MP_CHECK(taken, "%s: lines of a staged %s were not taken", machines[m].name,
                     coll_op_name(given[o]));
        }
        chunk_broadcasts(&machines[m]);
        without_memory();
        MP_OK(gyre_finalize(world));
    }
    return 0;
}
