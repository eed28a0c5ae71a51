/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/schedule.c: `gyre-plan schedule`: collectives in virtual time, as a table and as JSON. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/settings/size.h"
#include "base/text/json.h"
#include "collectives/proof/simulate/simulate.h"
#include "collectives/choose/tune.h"
#include "collectives/schedules/algorithms.h"
#include "tools/gyre-plan/plan.h"
#include "tools/shared/flags.h"

enum {
    MOST_RANKS = 1 << 20,
    ELEMENT = 4,          /* bytes: fp32 */
    STEP_BYTES = 32,      /* of a simulated step */
    ANNOUNCEMENT = 16,    /* elements with which a rank of a host says where its buffers are */
    FORM_BYTES = 1 << 20, /* up to this size the one-shot form is tried, too */
    NS_PER_MESSAGE = 150, /* what simulating takes on a present-day core, without building the schedules */
    NS_PER_ENTRY = 25,    /* a step, or an entry of its lists */
    MOST_SECONDS = 10,    /* `--algo all` leaves out what would take longer, about */
    SHOWN_SECONDS = 2,    /* what takes longer is shown on a terminal while it runs */
    ANNOUNCED_SECONDS = 20
};
#define MOST_BYTES 0x1p50

static const char program[] = "gyre-plan schedule";
static const char usage[] =
    "usage: gyre-plan schedule [--collective NAME] [--algo NAME|all] [--ranks N] [--topology NAME|FILE] "
    "[options]\n"
    "\n"
    "Runs the schedules of all ranks in virtual time and prints the time, algorithm and bus bandwidth (as "
    "nccl-tests\n"
    "define them), the longest chain of messages, what the links carry, and the link that limits.\n";

typedef struct {
    coll_op_t op;
    coll_algo_t algo; /* AUTO: all */
    int ranks, ranks_per_host, root, fast, factor;
    int deal;     /* topo_deal_t */
    int by_ranks; /* schedules do not follow places */
    size_t min, max, chunk;
    const char *topology, *json;
    coll_memory_t memory;
} options_t;

typedef struct {
    const options_t *o;
    topo_network_t *network; /* NULL: this host */
    coll_tune_t *tune;       /* of the host */
    size_t *counts, *displs; /* [ranks] equal blocks; NULL where the collective has none */
    int *host;               /* [ranks] parts for hierarchical: hosts, or the caches or NUMA nodes of one */
    int *order;              /* [ranks] coll_args_t.order; NULL: by rank */
    json_t *rows;
    base_arena_t arena;
} plan_t;

typedef struct {
    coll_algo_t algo;
    int forms, one_shot, skipped; /* forms: that were tried */
    double seconds;               /* that what was skipped would have taken, about */
    coll_simulation_t result;
} row_t;

/* ---- the command line ---------------------------------------------------------------------------------- */

static int read_collective(void *options, const char *text)
{
    for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++)
        if (!strcmp(text, coll_op_name(op))) {
            ((options_t *)options)->op = op;
            return 1;
        }
    return 0;
}

static int read_algo(void *options, const char *text)
{
    options_t *o = options;
    int all = !strcmp(text, "all");
    o->algo = all ? COLL_ALGO_AUTO : coll_algo_parse(text);
    return all || (o->algo != COLL_ALGO_END && o->algo != COLL_ALGO_AUTO);
}

/* Those that serve the collective, separated by blanks. */
static const char *list_algos(coll_op_t op, char *text, size_t bytes)
{
    text[0] = '\0';
    for (coll_algo_t a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++)
        if (coll_algo_serves(a, op, NULL))
            snprintf(text + strlen(text), bytes - strlen(text), " %s", coll_algo_name(a));
    return text;
}

static int read_options(int argc, char **argv, options_t *o)
{
    char algos[256];
    int plain = 0;
    snprintf(algos, sizeof algos, "all, or one of%s", coll_algo_names);
    const flag_t rows[] = {
        {FLAG('c', "collective", READ, o, "NAME",
              "all_reduce (default) reduce_scatter all_gather broadcast reduce gather scatter\n"
              "all_to_all scan exscan barrier"),
         .read = read_collective,
         .wants = "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, "
                  "scan, exscan or barrier"},
        {FLAG('a', "algo", READ, o, "NAME",
              "an algorithm, or all (default): each that serves the collective, the fastest\nfirst"),
         .read = read_algo, .wants = algos},
        {FLAG('n', "ranks", INT, &o->ranks, "N", "number of ranks (default 64)"), .low = 1,
         .high = MOST_RANKS},
        {FLAG('t', "topology", TEXT, &o->topology, "WHAT",
              "a preset or a JSON file (default nvswitch); presets: nvswitch, fat-tree,\n"
              "fat-tree:RATIO, torus, torus:AxB, torus:AxBxC, dragonfly, ethernet,\n"
              "machine:FILE (cores, caches and packages of an hwloc XML file), and host: this\nmachine")},
        {FLAG('b', "min", SIZE, &o->min, "BYTES",
              "smallest size (default 1M), of the larger buffer of a rank; 64K, 4MiB, 1g are\n"
              "understood"),
         .high = MOST_BYTES},
        {FLAG('e', "max", SIZE, &o->max, "BYTES", "largest size (default: the smallest)"),
         .high = MOST_BYTES},
        {FLAG('f', "factor", INT, &o->factor, "N", "from size to size (default 4)"), .low = 2,
         .high = 1 << 30},
        {FLAG(0, "order", CHOICE, &o->fast, "canonical|fast",
              "canonical (default): reductions add in the order of the contract; fast: in any")},
        {FLAG(0, "ranks-per-host", INT, &o->ranks_per_host, "K",
              "consecutive ranks on one host (default: 8 with nvswitch, else 1)"),
         .low = 1, .high = MOST_RANKS},
        {FLAG(0, "deal", CHOICE, &o->deal, "near|hosts|groups|caches",
              "near (default): consecutive ranks are near each other; or ranks are dealt out in\n"
              "turn to all hosts, to all groups of hosts (machine: NUMA nodes), or to all caches")},
        {FLAG(0, "follow", CHOICE, &o->by_ranks, "places|ranks",
              "places (default): rings and trees visit near ranks together, as the library's do;\n"
              "ranks: they go by rank")},
        {FLAG(0, "chunk", SIZE, &o->chunk, "BYTES", "length of pipelined chunks (default 256K)"),
         .low = ELEMENT, .high = MOST_BYTES},
        {FLAG(0, "root", INT, &o->root, "R", "of rooted collectives (default 0)"), .high = MOST_RANKS},
        {FLAG(0, "memory", CHOICE, &plain, "window|plain",
              "with host: window (default; buffers of gyre_mem_alloc) or plain (malloc)")},
        {FLAG(0, "json", TEXT, &o->json, "FILE", "also writes all results there; - is standard output")},
    };
    const flags_t flags = {.program = program, .usage = usage, FLAG_ROWS(rows)};
    int done = flags_take(&flags, argc, argv, NULL);
    o->memory = plain ? COLL_MEMORY_PLAIN : COLL_MEMORY_WINDOW;
    return done;
}

static int parse(int argc, char **argv, options_t *o)
{
    *o = (options_t){.op = COLL_ALL_REDUCE,
                     .ranks = 64,
                     .min = SIZE_MAX,
                     .max = SIZE_MAX,
                     .factor = 4,
                     .chunk = 256 << 10,
                     .topology = "nvswitch"};
    int done = read_options(argc, argv, o);
    if (done >= 0)
        return done;
    if (o->min == SIZE_MAX)
        o->min = o->max < 1 << 20 ? o->max : 1 << 20;
    if (o->max == SIZE_MAX)
        o->max = o->min;
    if (o->max < o->min)
        return flags_wrong(program, "-e %zu is smaller than -b %zu: no size is left", o->max, o->min);
    if (o->deal && !strcmp(o->topology, "host"))
        return flags_wrong(program, "--deal: the ranks of --topology host have no places");
    if (o->root >= o->ranks)
        return flags_wrong(program, "--root %d: wants a rank below --ranks %d", o->root, o->ranks);
    if (o->algo != COLL_ALGO_AUTO && !coll_algo_serves(o->algo, o->op, NULL)) {
        char algos[256];
        return flags_wrong(program, "%s has no %s; these serve it:%s", coll_algo_name(o->algo),
                           coll_op_name(o->op), list_algos(o->op, algos, sizeof algos));
    }
    return -1;
}

/* ---- one size and algorithm ---------------------------------------------------------------------------- */

/* The arguments for `bytes` in the larger buffer; *bytes is rounded down to what they make. */
static coll_args_t args_for(plan_t *p, size_t *bytes)
{
    const options_t *o = p->o;
    size_t n = (size_t)o->ranks, count = *bytes / ELEMENT;
    if (o->op == COLL_BARRIER)
        count = 0;
    if (coll_op_has_blocks(o->op)) {
        count /= n;
        for (size_t r = 0; r < n; r++) {
            p->counts[r] = count;
            p->displs[r] = r * count;
        }
    }
    *bytes = count * ELEMENT * (coll_op_has_blocks(o->op) ? n : 1);
    return (coll_args_t){.op = o->op,
                         .n = o->ranks,
                         .root = o->root,
                         .count = count,
                         .counts = p->counts,
                         .displs = p->displs,
                         .rcounts = p->counts,
                         .rdispls = p->displs,
                         .uniform = 1,
                         .fast_order = o->fast,
                         .chunk = o->chunk / ELEMENT,
                         .place = p->network ? 0 : ANNOUNCEMENT,
                         .host = p->host,
                         .order = p->order};
}

/* What simulating takes, about: lists of the canonical order are far longer than their messages tell, and
 * no two ranks of a ring have the same. */
typedef struct {
    double seconds, memory; /* memory: bytes, the most; 0: next to nothing, for ranks share their programs */
    struct {
        uint64_t messages, bytes, entries;
    } volume; /* of the ranks that were asked; compared as memory */
} estimate_t;

static double cpu_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Adds `rank`, which stands for `ranks` of them. */
static gyre_status_t estimate_rank(coll_args_t args, coll_algo_t algo, int rank, double ranks,
                                   estimate_t *out, uint32_t *nsteps)
{
    coll_schedule_t s;
    uint64_t messages = 0;
    const double begun = cpu_seconds();
    args.rank = rank;
    gyre_status_t st = coll_schedule_build(algo, &args, &s);
    if (st != GYRE_OK)
        return st;
    const double build = cpu_seconds() - begun;
    const uint64_t entries = (uint64_t)s.nsteps + s.nsources + s.ndeps;
    for (uint32_t i = 0; i < s.nsteps; i++)
        if (s.steps[i].kind == COLL_STEP_SEND) {
            messages++;
            out->volume.bytes += s.steps[i].count;
        }
    out->volume.messages += messages;
    out->volume.entries += entries;
    out->seconds +=
        ranks * (build + 1e-9 * (NS_PER_MESSAGE * (double)messages + NS_PER_ENTRY * (double)entries));
    out->memory += ranks * ((double)s.nsteps * STEP_BYTES + (double)s.ndeps * sizeof *s.deps);
    *nsteps = s.nsteps;
    coll_schedule_free(&s);
    return GYRE_OK;
}

/* Goes by the root, and two others for all others. */
static gyre_status_t estimate(const coll_args_t *args, coll_algo_t algo, estimate_t *out)
{
    const int n = args->n, one = (args->root + 1 + n / 3) % n, other = (args->root + n - 1) % n;
    uint32_t steps[2] = {0}, root_steps;
    memset(out, 0, sizeof *out);
    gyre_status_t st = estimate_rank(*args, algo, args->root, 1, out, &root_steps);
    if (st == GYRE_OK && n > 1)
        st = estimate_rank(*args, algo, one, 0.5 * (n - 1), out, &steps[0]);
    if (st == GYRE_OK && n > 1)
        st = estimate_rank(*args, algo, other, 0.5 * (n - 1), out, &steps[1]);
    if (steps[0] == steps[1])
        out->memory = 0;
    return st;
}

/* Before what takes long: the user should know. */
static void announce(const plan_t *p, coll_args_t args, coll_algo_t algo, const estimate_t *e)
{
    char memory[32] = "";
    estimate_t fast = {0};
    if (p->o->algo == COLL_ALGO_AUTO || e->seconds <= ANNOUNCED_SECONDS) {
        if (e->seconds > SHOWN_SECONDS && isatty(STDERR_FILENO))
            fprintf(stderr, "\r\033[Kgyre-plan: %s, about %.0f s ", coll_algo_name(algo), e->seconds);
        return;
    }
    if (e->memory > 1 << 30)
        snprintf(memory, sizeof memory, " and up to %.0f GiB", e->memory / (1 << 30));
    fprintf(stderr, "gyre-plan: %s on %d ranks takes about %.0f s%s", coll_algo_name(algo), args.n,
            e->seconds, memory);
    const int canonical = !args.fast_order;
    args.fast_order = 1;
    if (canonical && estimate(&args, algo, &fast) == GYRE_OK && fast.seconds < e->seconds / 2)
        fprintf(stderr, " in canonical order; --order fast about %.0f s", fast.seconds);
    fputc('\n', stderr);
}

static void announce_end(const plan_t *p, const estimate_t *e)
{
    const int shown =
        e->seconds > SHOWN_SECONDS && (p->o->algo == COLL_ALGO_AUTO || e->seconds <= ANNOUNCED_SECONDS);
    if (shown && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static gyre_status_t simulate(const plan_t *p, const coll_args_t *args, coll_algo_t algo,
                              coll_simulation_t *out)
{
    if (p->network)
        return coll_simulate(p->network, args, algo, ELEMENT, out);
    return coll_simulate_host(&p->tune->cost, args, algo, ELEMENT, p->o->memory, out);
}

/* The faster of the forms that the algorithm has: blocks, and for all_reduce perhaps whole vectors. */
static gyre_status_t run(const plan_t *p, coll_args_t args, row_t *row)
{
    int most = args.op == COLL_ALL_REDUCE && args.count * ELEMENT <= FORM_BYTES ? 2 : 1, found = 0;
    estimate_t e[2];
    for (int form = 0; form < most; form++) {
        coll_simulation_t result = {0};
        args.one_shot = form;
        gyre_status_t st = estimate(&args, row->algo, &e[form]);
        if (st != GYRE_OK)
            return st;
        if (form && !memcmp(&e[0].volume, &e[1].volume, sizeof e[0].volume))
            break; /* it has but one */
        row->forms++;
        if (p->o->algo == COLL_ALGO_AUTO && e[form].seconds > MOST_SECONDS) {
            row->seconds = e[form].seconds;
            continue;
        }
        announce(p, args, row->algo, &e[form]);
        st = simulate(p, &args, row->algo, &result);
        announce_end(p, &e[form]);
        if (st != GYRE_OK)
            return st;
        if (!found || result.ns < row->result.ns) {
            row->one_shot = form;
            row->result = result;
        }
        found = 1;
    }
    row->skipped = !found;
    return GYRE_OK;
}

static const char *form_name(const row_t *row)
{
    return row->forms < 2 ? "-" : row->one_shot ? "one-shot" : "blocks";
}

/* ---- output -------------------------------------------------------------------------------------------- */

static void heading(const plan_t *p)
{
    const options_t *o = p->o;
    char chunk[BASE_SIZE_TEXT];
    if (p->network)
        printf("# %s over %s\n", coll_op_name(o->op), p->network->title);
    else
        printf("# %s on this host: %d rank%s on %d cores, %s buffers; costs: %s\n", coll_op_name(o->op),
               o->ranks, o->ranks == 1 ? "" : "s", p->tune->cost.cores,
               o->memory == COLL_MEMORY_PLAIN ? "plain" : "window", coll_tune_source_name(p->tune));
    printf("# %d rank%s, float, %s order, chunks of %s\n#\n", o->ranks, o->ranks == 1 ? "" : "s",
           o->fast ? "fast" : "canonical", base_size_text(o->chunk, chunk));
    printf("# %11s   %-13s %-8s %12s %9s %9s %7s", "size", "algorithm", "form", "time", "algbw", "busbw",
           "steps");
    if (p->network)
        printf(" %10s %10s %10s  %s", "link max", "link mean", "global", "hottest link");
    printf("\n# %11s   %-13s %-8s %12s %9s %9s", "(B)", "", "", "(us)", "(GB/s)", "(GB/s)");
    if (p->network)
        printf(" %7s %10s %10s %10s", "", "(B)", "(B)", "(B)");
    putchar('\n');
}

/* What the links of a network carry. */
static void print_links(const plan_t *p, const coll_simulation_t *r)
{
    char most[BASE_SIZE_TEXT], mean[BASE_SIZE_TEXT], global[BASE_SIZE_TEXT], name[96];
    printf(" %10s %10s %10s  ", base_size_about(r->link_most, most), base_size_about(r->link_mean, mean),
           base_size_about(r->between_groups, global));
    if (r->link_most > 0) {
        topo_network_link_name(p->network, r->hottest, name, sizeof name);
        printf("%s, busy %.0f %%", name, 100 * r->hottest_busy);
    }
}

static void print_row(const plan_t *p, const row_t *row, size_t bytes, int wins)
{
    const coll_simulation_t *r = &row->result;
    printf("  %11zu %c %-13s ", bytes, wins ? '*' : ' ', coll_algo_name(row->algo));
    if (row->skipped) {
        printf("left out: it would take about %.0f s; name it with --algo to run it\n", row->seconds);
        return;
    }
    double rate = r->ns > 0 ? (double)bytes / r->ns : 0;
    printf("%-8s %12.2f %9.2f %9.2f %7u", form_name(row), r->ns / 1e3, rate,
           rate * coll_bus_factor(p->o->op, p->o->ranks), r->steps);
    if (p->network)
        print_links(p, r);
    putchar('\n');
}

static gyre_status_t keep_row(plan_t *p, const row_t *row, size_t bytes, int wins)
{
    const coll_simulation_t *r = &row->result;
    char link[96] = "";
    double rate = r->ns > 0 ? (double)bytes / r->ns : 0;
    if (!p->rows || row->skipped)
        return GYRE_OK;
    if (p->network && r->link_most > 0)
        topo_network_link_name(p->network, r->hottest, link, sizeof link);
    json_t *made = json_pack(
        "{s:s, s:I, s:s, s:s, s:b, s:f, s:f, s:f, s:i, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:f}",
        "collective", coll_op_name(p->o->op), "size", (json_int_t)bytes, "algorithm",
        coll_algo_name(row->algo), "form", form_name(row), "winner", wins, "time_us", r->ns / 1e3, "alg_bw",
        rate, "bus_bw", rate * coll_bus_factor(p->o->op, p->o->ranks), "steps", (int)r->steps, "messages",
        (json_int_t)r->messages, "most_sent", (int)r->most_sent, "payload_bytes", r->payload,
        "between_nodes_bytes", r->between_nodes, "between_groups_bytes", r->between_groups,
        "link_total_bytes", r->link_total, "link_max_bytes", r->link_most, "link_mean_bytes", r->link_mean,
        "hottest_link", link, "hottest_busy", r->hottest_busy);
    if (!made || json_array_append_new(p->rows, made)) {
        fputs("gyre-plan: no memory for the results\n", stderr);
        return GYRE_ERR_NO_MEMORY;
    }
    return GYRE_OK;
}

static int row_order(const void *x, const void *y)
{
    const row_t *a = x, *b = y;
    if (a->skipped != b->skipped)
        return a->skipped - b->skipped;
    if (a->result.ns > b->result.ns || a->result.ns < b->result.ns)
        return a->result.ns < b->result.ns ? -1 : 1;
    return (int)a->algo - (int)b->algo;
}

static gyre_status_t run_size(plan_t *p, size_t bytes)
{
    row_t rows[COLL_ALGO_END] = {0};
    size_t n = 0;
    int all = p->o->algo == COLL_ALGO_AUTO;
    coll_args_t args = args_for(p, &bytes);
    for (coll_algo_t a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++) {
        if (all ? !coll_algo_serves(a, args.op, &args) : a != p->o->algo)
            continue;
        rows[n].algo = a;
        gyre_status_t st = run(p, args, &rows[n]);
        if (st == GYRE_ERR_UNSUPPORTED && all)
            continue; /* serves the collective, but not so many ranks */
        if (st == GYRE_ERR_UNSUPPORTED)
            fprintf(stderr, "gyre-plan: %s does not serve this %s\n", coll_algo_name(a),
                    coll_op_name(args.op));
        if (st != GYRE_OK)
            return st;
        n++;
    }
    qsort(rows, n, sizeof *rows, row_order);
    gyre_status_t st = GYRE_OK;
    for (size_t i = 0; i < n && st == GYRE_OK; i++) {
        int wins = all && i == 0 && !rows[i].skipped;
        print_row(p, &rows[i], bytes, wins);
        st = keep_row(p, &rows[i], bytes, wins);
    }
    fflush(stdout);
    return st;
}

static gyre_status_t write_json(plan_t *p)
{
    const options_t *o = p->o;
    json_t *root =
        json_pack("{s:s, s:s, s:i, s:s, s:I, s:o}", "version", GYRE_VERSION, "topology",
                  p->network ? p->network->title : "host", "ranks", o->ranks, "order",
                  o->fast ? "fast" : "canonical", "chunk", (json_int_t)o->chunk, "results", p->rows);
    p->rows = NULL;
    gyre_status_t st = GYRE_ERR_NO_MEMORY;
    if (root)
        st = base_json_write(o->json, root);
    else
        fputs("gyre-plan: no memory for the results\n", stderr);
    json_decref(root);
    return st;
}

/* What the library's ranks find out when they make a communicator. */
static gyre_status_t find_places(plan_t *p)
{
    const size_t n = (size_t)p->o->ranks;
    topo_seat_t *seats = base_arena_alloc(&p->arena, n, sizeof *seats);
    int *order = base_arena_alloc(&p->arena, n, sizeof *order);
    if (!seats || !order)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the places of %zu ranks", n);
    for (size_t r = 0; r < n; r++) {
        const topo_seat_t *seat = &seats[r];
        seats[r] = topo_network_seat(p->network, (int)r);
        p->host[r] = p->network->nodes > 1 || seat->numa < 0 ? seat->host
                     : seat->cache >= 0                      ? seat->cache
                                                             : seat->numa;
    }
    const gyre_status_t st = topo_seat_order(p->o->ranks, seats, order);
    int moved = 0;
    for (size_t i = 0; i < n; i++)
        moved |= order[i] != (int)i;
    p->order = moved && !p->o->by_ranks ? order : NULL;
    return st;
}

static gyre_status_t set_up(plan_t *p)
{
    const options_t *o = p->o;
    size_t n = (size_t)o->ranks;
    gyre_status_t st = GYRE_OK;
    if (!strcmp(o->topology, "host")) {
        p->tune = base_arena_alloc(&p->arena, 1, sizeof *p->tune);
        st = p->tune ? coll_tune_obtain(p->tune) : GYRE_ERR_NO_MEMORY;
    } else {
        st = topo_network_open(o->topology, o->ranks, o->ranks_per_host, &p->network);
        if (st == GYRE_OK)
            st = topo_network_deal(p->network, (topo_deal_t)o->deal);
    }
    if (st != GYRE_OK)
        return st;
    p->host = base_arena_alloc(&p->arena, n, sizeof *p->host);
    if (coll_op_has_blocks(o->op)) {
        p->counts = base_arena_alloc(&p->arena, n, sizeof *p->counts);
        p->displs = base_arena_alloc(&p->arena, n, sizeof *p->displs);
    }
    if (o->json)
        p->rows = json_array();
    if (!p->host || (coll_op_has_blocks(o->op) && (!p->counts || !p->displs)) || (o->json && !p->rows)) {
        fputs("gyre-plan: no memory for so many ranks\n", stderr);
        return GYRE_ERR_NO_MEMORY;
    }
    return p->network ? find_places(p) : GYRE_OK;
}

int plan_schedule(int argc, char **argv)
{
    options_t o;
    int done = parse(argc, argv, &o);
    if (done >= 0)
        return done;
    char why[2 * PATH_MAX];
    if (!flags_apart("json", o.json, o.topology, why, sizeof why))
        return flags_wrong("gyre-plan schedule", "%s", why);
    const int unwritable = o.json ? base_file_check(o.json) : 0; /* not only after minutes */
    if (unwritable) {
        fprintf(stderr, "gyre-plan: --json: cannot write %s: %s\n", o.json, strerror(unwritable));
        return PLAN_FAILED;
    }
    flags_output(o.json);
    plan_t p = {.o = &o};
    gyre_status_t st = set_up(&p);
    if (st == GYRE_OK) {
        heading(&p);
        fflush(stdout);
    }
    for (size_t bytes = o.min; st == GYRE_OK && bytes <= o.max; bytes *= (size_t)o.factor) {
        st = run_size(&p, bytes);
        if (bytes == 0 || bytes > o.max / (size_t)o.factor)
            break;
    }
    if (st == GYRE_OK && o.json)
        st = write_json(&p);
    json_decref(p.rows);
    topo_network_free(p.network);
    base_arena_free(&p.arena);
    return st == GYRE_OK ? PLAN_OK : PLAN_FAILED;
}
