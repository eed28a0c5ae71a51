/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/select.c: which algorithm serves a call. In this order: GYRE_ALGO; a choose line of
 * the tuning file (collectives/choose/tune.h); rules that were measured on shared memory and TCP, and that
 * weigh a machine's costs (collectives/choose/cost.h) where machines differ. Nothing here builds or
 * simulates a schedule: gyre-perf --tune measures the candidates, and gyre-plan simulates them. */
#include "collectives/choose/choose.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/schedules/algorithms.h"

enum {
    ONE_SHOT_BYTES = 8192,      /* below: everyone adds everything himself, one exchange */
    ONE_SHOT_TOTAL = 64 << 10,  /* ... as long as all contributions together stay below this */
    SHARED_COPY = 16 << 10,     /* and share a broadcast above */
    SHARED_PAIR = 4096,         /* two ranks work in each other's memory above */
    EXCHANGE_BYTES = 8192,      /* see oneshot_pays */
    EXCHANGE_WHOLE = 16 << 10,  /* a broadcast up to here is one exchange; above, one for each piece, */
    EXCHANGE_PIECES = 32 << 10, /* up to here, */
    EXCHANGE_CROWD = 64 << 10,  /* or, among many ranks, here: EXCHANGE_EACH for each */
    EXCHANGE_EACH = 4 << 10,
    EXCHANGE_TOTAL = 512 << 10, /* bytes that each of more than DIRECT_RANKS ranks reads at most */
    SHARE_REDUCE_BYTES = 1 << 20,
    DIRECT_RANKS = 32,           /* flat schedules open n connections and take n messages: fine up to here */
    SHORT_MESSAGE = 4096,        /* a longer one may be fetched by a system call */
    SCAN_RANKS = 16,             /* see choose_scan */
    CELL_RANKS = 16,             /* see choose_inside_host: a reduction by cells, for as many ranks, */
    CELL_PART = 4096,            /* if each rank adds up so many bytes; */
    CELL_BLOCK = 16 << 10,       /* an all_gather, if each rank has so many */
    HOST_CHUNK_LEAST = 64 << 10, /* see host_chunk */
    HOST_CHUNK_BLOCK = 256 << 10,
    HOST_CHUNK_MOST = 512 << 10,
    REDUCE_CHUNK_MOST = 128 << 10,
    HOSTS_CHUNK = 128 << 10,
    HOSTS_CHUNK_LEAST = 16 << 10
};

/* Costs are known to a quarter or so; the flat schedules were measured. */
static const double SURELY = 0.75;

static const char *algos_that_serve(coll_op_t op, const coll_args_t *args, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = 0;
    for (int a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++)
        if (coll_algo_serves((coll_algo_t)a, op, args) && at < bytes) {
            int k = snprintf(text + at, bytes - at, "%s%s", at ? " " : "", coll_algo_name((coll_algo_t)a));
            at += k > 0 ? (size_t)k : 0;
        }
    return text;
}

gyre_status_t coll_check_algorithms(const char *name, const char *text)
{
    unsigned named = 0; /* collectives so far, by bits */
    const char *p = text;
    for (int more = *p != 0; more; p += more) {
        char item[64], *algo = item;
        const size_t len = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", (int)base_min_size(len, sizeof item - 1), p);
        p += len;
        more = *p == ',';
        char *colon = strchr(item, ':');
        if (colon) {
            *colon = 0;
            algo = colon + 1;
            int op = COLL_ALL_REDUCE;
            while (op < COLL_OP_END && strcmp(item, coll_op_name((coll_op_t)op)) != 0)
                op++;
            if (op == COLL_OP_END)
                return gyre_fail(GYRE_ERR_INVALID, "%s: algorithm \"%s\": there is no collective \"%s\"",
                                 name, text, item);
            if (named >> op & 1)
                return gyre_fail(GYRE_ERR_INVALID, "%s: algorithm \"%s\": %s has two algorithms", name, text,
                                 item);
            named |= 1u << op;
        }
        if (coll_algo_parse(algo) == COLL_ALGO_END)
            return gyre_fail(GYRE_ERR_INVALID, "%s: algorithm \"%s\": there is no algorithm \"%s\" (%s auto)",
                             name, text, algo, coll_algo_names + 1);
    }
    return GYRE_OK;
}

/* GYRE_ALGO: "ring" for everything that ring serves, or "all_reduce:ring,broadcast:tree". */
gyre_status_t coll_forced(const char *setting, const coll_args_t *args, coll_algo_t *out)
{
    const char *p = setting;
    *out = COLL_ALGO_AUTO;
    while (*p) {
        size_t len = strcspn(p, ",");
        char item[64];
        snprintf(item, sizeof item, "%.*s", (int)(len < 63 ? len : 63), p);
        p += len + (p[len] == ',');
        char *colon = strchr(item, ':');
        if (colon)
            *colon = 0;
        const char *name = colon ? colon + 1 : item;
        coll_algo_t algo = coll_algo_parse(name);
        if (!strcmp(name, "auto"))
            algo = COLL_ALGO_AUTO;
        else if (algo == COLL_ALGO_END)
            return gyre_fail(GYRE_ERR_NOT_FOUND, "GYRE_ALGO: there is no algorithm \"%s\" (%s auto)", name,
                             coll_algo_names + 1);
        if (colon && strcmp(item, coll_op_name(args->op)))
            continue;
        if (algo == COLL_ALGO_AUTO || coll_algo_serves(algo, args->op, args)) {
            *out = algo;
        } else if (colon) {
            char list[256];
            return gyre_fail(
                GYRE_ERR_UNSUPPORTED,
                "algorithm %s (GYRE_ALGO, or gyre_comm_set) does not serve this %s; these do: %s", name, item,
                algos_that_serve(args->op, args, list, sizeof list));
        }
    }
    return GYRE_OK;
}

static coll_algo_t first_that_serves(const coll_args_t *args, const coll_algo_t *wish, int n)
{
    for (int i = 0; i < n; i++)
        if (coll_algo_serves(wish[i], args->op, args))
            return wish[i];
    return COLL_DIRECT;
}

static int reduces(coll_op_t op)
{
    return op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER;
}

/* Rounds of butterfly and binomial. */
static int rounds_of(int n)
{
    int rounds = 0;
    while (rounds < 31 && 1 << rounds < n)
        rounds++;
    return rounds;
}

/* 1: log n rounds of messages, which wait for each other, take less than n - 1 messages that do not. That
 * is so for short messages of many ranks. Every rank has a core: where ranks take turns on the cores, the
 * number of turns decides, and those are fewest with a flat schedule. bytes: of the vector, or of a block.
 * tests/collectives/schedules/test_rules.c compares this with the simulator. */
static int few_rounds_pay(const coll_facts_t *facts, const coll_args_t *args, double bytes, int small)
{
    const coll_cost_t *cost = &facts->cost;
    const double n = args->n, rounds = rounds_of(args->n);
    /* an all_reduce that is not small scatters and gathers blocks of the vector */
    const int blocks = !coll_op_is_vector(args->op) || (args->op == COLL_ALL_REDUCE && !small);
    const double block = args->op == COLL_ALL_REDUCE && !small ? bytes / n : bytes;
    const double longest = blocks ? block * n / 2 : block, moved = blocks ? (n - 1) * block : rounds * block;
    if (args->op == COLL_ALL_TO_ALL || args->n > cost->cores || block > SHORT_MESSAGE)
        return 0;
    const double flat = (n - 1) * (2 * cost->step + cost->line + block / cost->peer_cache);
    double few = rounds * (2 * cost->step + cost->message) + moved / cost->peer_cache;
    double message = longest; /* of one round each */
    while (message > SHORT_MESSAGE) {
        few += cost->cma_call;
        message /= 2;
    }
    return few < SURELY * flat;
}

/* The last rank adds n vectors at once, or log2 n vectors one after the other, most of which it has to write,
 * and the others work as much. So adding all at once takes less up to 16 ranks (simulator: gyre-plan schedule
 * --collective scan --topology host). Between hosts the volume counts. */
static coll_algo_t choose_scan(const coll_facts_t *facts, const coll_args_t *args, size_t bytes, int small)
{
    const int flat =
        facts->hosts < 2 && args->n <= SCAN_RANKS && !few_rounds_pay(facts, args, (double)bytes, small);
    const coll_algo_t wish[] = {flat ? COLL_DIRECT : COLL_BUTTERFLY, COLL_DIRECT};
    return first_that_serves(args, wish, 2);
}

/* 1: many ranks take turns on few cores. Then the time depends on the messages of all ranks together. Of an
 * all_reduce binomial has 2 n, butterfly 2 n log n, and flat schedules 2 n^2 (64 ranks on 2 cores, 64 KiB:
 * 1.2, 8.5 and 12 ms; 128 ranks: 10, 41 and 46 ms). */
static int takes_turns(const coll_facts_t *facts, const coll_args_t *args)
{
    return args->n > DIRECT_RANKS && args->n > facts->cost.cores;
}

/* bytes: of the vector or of the longest block. known: all ranks know them. */
static coll_algo_t choose_inside_host(const coll_facts_t *facts, const coll_args_t *args, size_t bytes,
                                      int small, int known)
{
    const int n = args->n, few = known && few_rounds_pay(facts, args, (double)bytes, small);
    const coll_algo_t wish[] = {n <= DIRECT_RANKS && !few ? COLL_DIRECT : COLL_BUTTERFLY, COLL_BUTTERFLY,
                                COLL_BINOMIAL, COLL_PAIRWISE, COLL_DIRECT};
    /* Broadcast among two only: 32 KiB to 4 MiB in 0.35 to 0.65 of direct's time, since the root works,
     * too. Among more ranks, called again and again, a root that copies nothing is done sooner (by 1.1 to
     * 1.8, gyre-perf --tune). */
    const int pair = n == 2 && bytes > SHARED_PAIR;
    const int share = args->op == COLL_BROADCAST ? pair && bytes > SHARED_COPY
                                                 : args->op == COLL_ALL_REDUCE && (pair || !small);
    if (share && !few && n <= DIRECT_RANKS && coll_algo_serves(COLL_SHARED, args->op, args))
        return COLL_SHARED;
    if (args->op == COLL_ALL_REDUCE && takes_turns(facts, args) &&
        coll_algo_serves(COLL_BINOMIAL, args->op, args))
        return COLL_BINOMIAL;
    /* All ranks of a cell add up a part each, then those of the cells do: 0.4 to 0.85 of binomial's time. A
     * block of an all_gather goes into each cell once, and on from there: a third of butterfly's time. Both
     * by the simulator (docs/tuning.md). */
    const int by_cells = (args->op == COLL_REDUCE && bytes / (size_t)n >= CELL_PART) ||
                         (args->op == COLL_ALL_GATHER && bytes >= CELL_BLOCK);
    if (by_cells && facts->parts > 1 && n >= CELL_RANKS && n <= facts->cost.cores &&
        coll_algo_serves(COLL_HIERARCHICAL, args->op, args))
        return COLL_HIERARCHICAL;
    /* A root that adds up everything alone keeps the other cores idle (1.2 to 2 times slower on 2 to 8
     * ranks). */
    if (args->op == COLL_REDUCE && bytes >= SHARE_REDUCE_BYTES && !args->exact)
        return n == 2 ? COLL_TREE : COLL_BINOMIAL;
    return first_that_serves(args, wish, 5);
}

static coll_algo_t choose_between_hosts(const coll_facts_t *facts, const coll_args_t *args, int small)
{
    const int crowded = facts->hosts < args->n; /* several ranks on some host */
    const coll_algo_t crowd[] = {COLL_HIERARCHICAL, COLL_BINOMIAL, COLL_PAIRWISE, COLL_DIRECT};
    const coll_algo_t small_net[] = {COLL_BUTTERFLY, COLL_BRUCK, COLL_BINOMIAL, COLL_DIRECT};
    const coll_algo_t ring[] = {COLL_RING}; /* least volume, in an order of its own */
    /* One rank per host: hierarchical is a pairwise exchange in pipelined rounds, a ring's volume for any
     * n; butterfly's volume grows where n is no power of two (3 hosts, 16 MiB at 1 Gbit/s: 189 and 263
     * ms). But it joins all with all. */
    const int pairwise = args->n <= DIRECT_RANKS && (args->op == COLL_ALL_REDUCE || args->op == COLL_REDUCE);
    const int rooted = args->op == COLL_BROADCAST || args->op == COLL_REDUCE;
    const coll_algo_t large_net[] = {pairwise ? COLL_HIERARCHICAL
                                     : rooted ? COLL_TREE
                                              : COLL_BUTTERFLY,
                                     COLL_PAIRWISE, COLL_BINOMIAL, COLL_DIRECT};
    if (crowded)
        return first_that_serves(args, crowd, 4);
    if (args->fast_order && !small && reduces(args->op))
        return first_that_serves(args, ring, 1);
    return first_that_serves(args, small ? small_net : large_net, 4);
}

/* Bytes of a broadcast that goes in pieces among ranks that share cores: a rank copies what has come while
 * its turn lasts, instead of waiting for turns of all ranks, and has it copied twice. */
static size_t pieces_most(int n)
{
    return base_max_size(EXCHANGE_PIECES, base_min_size((size_t)n * EXCHANGE_EACH, EXCHANGE_CROWD));
}

/* Copying into an outbox and out of it costs less than telling each other where the buffers are, and a
 * process_vm_readv, up to here: above, two ranks on cores of their own reach into each other's memory
 * instead. */
static int oneshot_pays(const coll_facts_t *facts, const coll_args_t *args, size_t esize)
{
    /* Each of many ranks would read what all others post, more than rounds of messages move. */
    if (args->n > DIRECT_RANKS && args->op != COLL_BROADCAST &&
        args->count * esize * (size_t)args->n > EXCHANGE_TOTAL)
        return 0;
    if (args->op == COLL_BROADCAST && args->count > EXCHANGE_WHOLE / esize)
        return args->n > facts->cost.cores && args->count <= pieces_most(args->n) / esize;
    if (args->n != 2 || facts->cost.cores < 2 || !facts->reach)
        return 1;
    switch (args->op) {
    case COLL_ALL_REDUCE:
        return args->count <= EXCHANGE_BYTES / 2 / esize;
    case COLL_BROADCAST:
        return args->count <= EXCHANGE_BYTES / esize;
    case COLL_REDUCE_SCATTER:
        return args->count <= EXCHANGE_BYTES / 4 / esize;
    case COLL_ALL_GATHER:
    case COLL_ALL_TO_ALL:
        return args->count <= EXCHANGE_BYTES / 2 / esize;
    default:
        return 1;
    }
}

int coll_known_bytes(const coll_args_t *args, size_t esize, uint64_t *bytes)
{
    const int vector = coll_op_is_vector(args->op);
    size_t most = args->count, sum;
    if (!vector && args->op != COLL_BARRIER && !args->uniform && args->op != COLL_REDUCE_SCATTER &&
        args->op != COLL_ALL_GATHER)
        return 0; /* gatherv, scatterv, all_to_allv: ranks know their own counts only */
    if (args->op == COLL_BARRIER)
        most = 0;
    *bytes =
        !base_mul(most, esize, &sum) || !base_mul(sum, vector ? 1 : (size_t)args->n, &sum) ? SIZE_MAX : sum;
    return 1;
}

/* The largest power of two that fits a second-level cache with its sources: a quarter of it. Where more than
 * two ranks each have a block of their own, two messages for a block of 256 KiB cost more than they save,
 * also where that cache has 512 KiB (docs/optimizations.md, "Chunks of 256 KiB at least"). */
static size_t host_chunk(const coll_cost_t *cost, const coll_args_t *args)
{
    const int blocks = args->op == COLL_REDUCE_SCATTER || args->op == COLL_ALL_GATHER;
    size_t chunk = blocks && args->n > 2 ? HOST_CHUNK_BLOCK : HOST_CHUNK_LEAST;
    while (chunk < HOST_CHUNK_MOST && chunk * 2 <= cost->cache_bytes / 4)
        chunk *= 2;
    return chunk;
}

/* Bytes of a chunk. A reduction by a tree is a pipeline also inside a host: the root idles until the
 * first chunk has gone up all levels, so its chunks are shorter. Between hosts a message is taken in
 * whole before it goes on, while the link idles if nothing else is queued on it, so chunks are shorter (4
 * ranks on 2 hosts at 1 Gbit/s: a ring got 90 % of the link with 256 KiB, 99 % with 128 KiB; with 32 KiB
 * its messages cost two busy cores more than they gain). Hierarchical sends all other hosts a chunk at a
 * time: the more of them, the more arrives at a host at once, and what a switch has no room for is sent
 * again (4 hosts of 2 ranks at 100 Mbit/s: 85 % with 64 KiB or more, 98 % with 32 KiB). */
static size_t default_chunk(const coll_facts_t *facts, const coll_args_t *args, coll_algo_t algo)
{
    if (facts->chunk)
        return facts->chunk;
    if (facts->hosts < 2) {
        const size_t chunk = host_chunk(&facts->cost, args);
        const int pipeline = args->op == COLL_REDUCE && (algo == COLL_TREE || algo == COLL_BINOMIAL);
        return pipeline ? base_min_size(chunk, REDUCE_CHUNK_MOST) : chunk;
    }
    if (!coll_algo_is(algo, COLL_BY_PARTS))
        return HOSTS_CHUNK;
    return base_max_size(HOSTS_CHUNK / (size_t)facts->hosts & ~(size_t)4095, HOSTS_CHUNK_LEAST);
}

static size_t chunk_count(const coll_facts_t *facts, const coll_args_t *args, coll_algo_t algo, size_t esize)
{
    return base_max_size(default_chunk(facts, args, algo) / esize, 1);
}

static coll_choice_t choose_by_rule(const coll_facts_t *facts, const coll_args_t *args, size_t esize,
                                    int known)
{
    const size_t bytes = args->count * esize, n = (size_t)args->n;
    const int small = bytes <= ONE_SHOT_BYTES && bytes * n <= ONE_SHOT_TOTAL;
    coll_choice_t c = {.one_shot = small && args->op == COLL_ALL_REDUCE && !args->leaves};
    c.algo = args->leaves              ? COLL_LEAVES
             : coll_op_scans(args->op) ? choose_scan(facts, args, bytes, small)
             : facts->hosts > 1        ? choose_between_hosts(facts, args, small)
                                       : choose_inside_host(facts, args, bytes, small, known);
    c.chunk = chunk_count(facts, args, c.algo, esize);
    /* each chunk costs a turn of all ranks, and calls of the kernel if it is not staged */
    if (args->op == COLL_BROADCAST && c.algo == COLL_DIRECT && !facts->chunk &&
        !coll_cost_stages_pay(&facts->cost, args->n))
        c.chunk = base_max_size(args->count, 1);
    return c;
}

/* What a line says of form and chunk. Only all_reduce has two forms. */
static void apply_line(const coll_facts_t *facts, const coll_tune_line_t *line, const coll_args_t *args,
                       size_t esize, coll_choice_t *c)
{
    if (line->one_shot >= 0 && args->op == COLL_ALL_REDUCE)
        c->one_shot = line->one_shot;
    if (line->chunk && !facts->chunk)
        c->chunk = line->chunk / esize ? (size_t)(line->chunk / esize) : 1;
}

gyre_status_t coll_select(const coll_facts_t *facts, const coll_args_t *args, size_t esize, int oneshot,
                          coll_choice_t *out)
{
    coll_algo_t algo;
    uint64_t bytes = 0;
    const int known = coll_known_bytes(args, esize, &bytes);
    const int pinned = facts->pin && facts->pin->op == args->op;
    const coll_tune_line_t *line = NULL;
    gyre_status_t st = coll_forced(facts->algo, args, &algo);
    if (st != GYRE_OK)
        return st;
    coll_choice_t c = choose_by_rule(facts, args, esize, known);
    if (pinned)
        line = facts->pin;
    else if (facts->tune && algo == COLL_ALGO_AUTO)
        line = coll_tune_find(facts->tune, args, facts->hosts, known, bytes);
    const int named = algo != COLL_ALGO_AUTO || (line && line->algo);
    if (named) {
        c.algo = algo != COLL_ALGO_AUTO ? algo : (coll_algo_t)line->algo;
        c.chunk = chunk_count(facts, args, c.algo, esize);
        c.why = algo != COLL_ALGO_AUTO || pinned ? COLL_WHY_FORCED : COLL_WHY_LINE;
        c.forced = 1;
    }
    if (line) {
        c.line = pinned ? 0 : line->line;
        apply_line(facts, line, args, esize, &c);
    }
    c.oneshot = !named && oneshot && oneshot_pays(facts, args, esize);
    *out = c;
    return GYRE_OK;
}
