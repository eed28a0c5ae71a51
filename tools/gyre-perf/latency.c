/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/latency.c: `gyre-perf latency`: times each call singly, and shows the distribution of the
 * times.
 *
 * A sample is one call at its slowest rank: calls run back to back, every rank times each of its own, and
 * afterwards the maximum over the ranks is taken call by call. Samples are kept whole, so percentiles are
 * exact. The cost of timing itself is measured and printed, not subtracted. */
#include "tools/gyre-perf/perf.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "base/clock.h"
#include "base/error.h"
#include "base/order.h"
#include "comm/boot/bootstrap.h"

int perf_latency_main(int argc, char **argv, int typed_count, char **typed);

enum {
    CALLS_LEAST = 100, /* without -n: as many calls as take CALLS_NS, within these */
    CALLS_MOST = 100000,
    CALLS_NS = 1000000000,
    ROWS_MOST = 24, /* lines of a histogram */
    BAR = 50        /* columns of its longest bar */
};
static const size_t NO_STEP = SIZE_MAX / 2;

/* ---- the clock ---- */
typedef struct {
    int tsc; /* 0: the kernel's monotonic clock */
    double ns_per_tick, overhead_ns;
} ticker_t;

/* The counter runs at one rate and never stops: only then it is a clock. */
static int have_tsc(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
    return 0;
#endif
}

static inline int64_t ticks(const ticker_t *t)
{
#if defined(__x86_64__)
    if (t->tsc) {
        _mm_lfence(); /* not before what it times is done */
        return (int64_t)__rdtsc();
    }
#endif
    (void)t;
    return base_now();
}

static ticker_t ticker(void)
{
    ticker_t t = {.tsc = have_tsc(), .ns_per_tick = 1.0};
    if (t.tsc) {
        base_time_t from = base_now(), to;
        int64_t first = ticks(&t), last;
        do {
            to = base_now();
            last = ticks(&t);
        } while (to - from < 20 * 1000 * 1000);
        t.ns_per_tick = (double)(to - from) / (double)(last - first);
    }
    static double gaps[1001];
    const size_t n = sizeof gaps / sizeof *gaps;
    for (size_t i = 0; i < n; i++) {
        int64_t before = ticks(&t);
        gaps[i] = (double)(ticks(&t) - before);
    }
    qsort(gaps, n, sizeof *gaps, base_order_double);
    t.overhead_ns = gaps[n / 2] * t.ns_per_tick;
    return t;
}

/* ---- one row ---- */
/* What ranks did while they waited, summed over the ranks. Preemptions are an estimate: the
 * kernel counts a yield that let another thread run as one, too, so yields are subtracted. */
enum { WAIT_YIELDS, WAIT_YIELD_S, WAIT_SLEEPS, WAIT_SLEEP_S, WAIT_PREEMPTED, WAIT_FIGURES };

typedef struct {
    double *ns; /* [calls], ascending */
    int calls;
    double mean, stdev;
    double waits[WAIT_FIGURES];
    uint64_t nwrong;
} samples_t;

static double percentile(const samples_t *s, double percent)
{
    const double rank = ceil(s->calls * percent / 100.0);
    return s->ns[rank < 1.0 ? 0 : (size_t)rank - 1];
}

/* The number of calls: -n, or what fits into the time, by rank 0's clock. */
static gyre_status_t choose_calls(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                                  int *calls)
{
    gyre_status_t status = GYRE_OK;
    const base_time_t start = base_now();
    const int tries = 20;
    *calls = o->iters;
    if (o->iters > 0)
        return GYRE_OK;
    for (int i = 0; i < tries && status == GYRE_OK; i++)
        status = perf_case_run(c, p->send, p->recv);
    int64_t fit = (int64_t)CALLS_NS * tries / (base_now() - start + 1);
    fit = fit < CALLS_LEAST ? CALLS_LEAST : fit > CALLS_MOST ? CALLS_MOST : fit;
    if (status == GYRE_OK)
        status = gyre_broadcast(&fit, &fit, 1, GYRE_INT64, 0, c->comm);
    *calls = (int)fit;
    return status;
}

/* Adds `sign` times what the communicator and the kernel have counted for this thread. */
static gyre_status_t count_waits(gyre_comm_t *comm, double sign, double waits[WAIT_FIGURES])
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    struct rusage use = {0};
    gyre_status_t status = gyre_comm_stats(comm, &stats);

    getrusage(RUSAGE_THREAD, &use);
    waits[WAIT_YIELDS] += sign * (double)stats.yields;
    waits[WAIT_YIELD_S] += sign * stats.yield_seconds;
    waits[WAIT_SLEEPS] += sign * (double)stats.sleeps;
    waits[WAIT_SLEEP_S] += sign * stats.sleep_seconds;
    waits[WAIT_PREEMPTED] += sign * (double)use.ru_nivcsw;
    return status;
}

static gyre_status_t sample(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                            const ticker_t *t, samples_t *s)
{
    gyre_status_t status = GYRE_OK;
    for (int i = 0; i < o->warmup && status == GYRE_OK; i++)
        status = perf_case_run(c, p->send, p->recv);
    if (status == GYRE_OK)
        status = choose_calls(o, c, p, &s->calls);
    if (status != GYRE_OK)
        return status;
    s->ns = calloc((size_t)s->calls, sizeof *s->ns); /* touched below before the calls are timed */
    if (!s->ns)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d samples; a smaller -n helps", s->calls);
    memset(s->ns, 1, (size_t)s->calls * sizeof *s->ns);
    status = gyre_barrier(c->comm);
    if (status == GYRE_OK)
        status = count_waits(c->comm, -1, s->waits);
    for (int i = 0; i < s->calls && status == GYRE_OK; i++) {
        const int64_t before = ticks(t);
        status = perf_case_run(c, p->send, p->recv);
        s->ns[i] = (double)(ticks(t) - before) * t->ns_per_tick;
    }
    if (status == GYRE_OK)
        status = count_waits(c->comm, 1, s->waits);
    s->waits[WAIT_PREEMPTED] = fmax(s->waits[WAIT_PREEMPTED] - s->waits[WAIT_YIELDS], 0.0);
    if (status == GYRE_OK)
        status = gyre_all_reduce(s->ns, s->ns, (size_t)s->calls, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), c->comm);
    if (status == GYRE_OK)
        status = gyre_all_reduce(s->waits, s->waits, WAIT_FIGURES, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), c->comm);
    return status;
}

static void summarize(samples_t *s)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < s->calls; i++)
        sum += s->ns[i];
    s->mean = sum / s->calls;
    for (int i = 0; i < s->calls; i++)
        squares += (s->ns[i] - s->mean) * (s->ns[i] - s->mean);
    s->stdev = sqrt(squares / s->calls);
    qsort(s->ns, (size_t)s->calls, sizeof *s->ns, base_order_double);
}

/* ---- the histogram: `per` bins to a doubling; bin i holds [2^(i/per), 2^((i+1)/per)) ns ---- */
static int bin_of(double ns, int per)
{
    return ns > 1.0 ? (int)floor(log2(ns) * per) : 0;
}

static double bin_from(int bin, int per)
{
    return exp2((double)bin / per);
}

static int count_from(const samples_t *s, int *at, int bin, int per)
{
    int n = 0;
    while (*at < s->calls && bin_of(s->ns[*at], per) <= bin) {
        n++;
        (*at)++;
    }
    return n;
}

static void print_bar(double part, double most)
{
    int bar = (int)ceil(part / most * BAR);
    for (int i = 0; i < bar; i++)
        putchar('#');
    putchar('\n');
}

/* As fine as fits the page between the fastest call and p99.9; what is slower is one line. */
static void print_histogram(const samples_t *s)
{
    int per = 16, first = 0, last = 0, at = 0, most = 1;
    for (;; per /= 2) {
        first = bin_of(s->ns[0], per);
        last = bin_of(percentile(s, 99.9), per);
        if (per == 1 || last - first < ROWS_MOST)
            break;
    }
    for (int bin = first; bin <= last; bin++) {
        int n = count_from(s, &at, bin, per);
        most = n > most ? n : most;
    }
    at = 0;
    for (int bin = first; bin <= last; bin++) {
        int n = count_from(s, &at, bin, per);
        printf("#   %10.2f - %10.2f us  %8d  %5.1f%%  ", bin_from(bin, per) * 1e-3,
               bin_from(bin + 1, per) * 1e-3, n, 100.0 * n / s->calls);
        print_bar(n, most);
    }
    if (at < s->calls) {
        printf("#   %10s - %10.2f us  %8d  %5.1f%%  ", "slower", s->ns[s->calls - 1] * 1e-3, s->calls - at,
               100.0 * (s->calls - at) / s->calls);
        print_bar(s->calls - at, most);
    }
    printf("#\n");
}

/* All of it, eight bins to a doubling. */
static json_t *json_histogram(const samples_t *s)
{
    const int per = 8, first = bin_of(s->ns[0], per), last = bin_of(s->ns[s->calls - 1], per);
    json_t *edges = json_array(), *counts = json_array();
    int at = 0;
    for (int bin = first; bin <= last; bin++) {
        (void)json_array_append_new(edges, json_real(bin_from(bin, per) * 1e-3));
        (void)json_array_append_new(counts, json_integer(count_from(s, &at, bin, per)));
    }
    (void)json_array_append_new(edges, json_real(bin_from(last + 1, per) * 1e-3));
    return json_pack("{s:o, s:o}", "edges_us", edges, "counts", counts);
}

static void report_row(perf_report_t *report, const perf_options_t *o, const perf_case_t *c, int in_place,
                       const samples_t *s)
{
    const struct {
        const char *key;
        double us;
    } figures[] = {
        {"min", s->ns[0] * 1e-3},
        {"p50", percentile(s, 50.0) * 1e-3},
        {"p90", percentile(s, 90.0) * 1e-3},
        {"p99", percentile(s, 99.0) * 1e-3},
        {"p999", percentile(s, 99.9) * 1e-3},
        {"max", s->ns[s->calls - 1] * 1e-3},
        {"avg", s->mean * 1e-3},
        {"stdev", s->stdev * 1e-3},
    };
    const double jitter = figures[3].us / fmax(figures[1].us, 1e-3);
    json_t *row = perf_json_case(c);
    perf_put(row, "in_place", json_boolean(in_place));
    perf_put(row, "calls", json_integer(s->calls));
    printf("%12zu  %8s  %5s  %7d", c->bytes, c->coll->op == COLL_BARRIER ? "none" : gyre_type_name(c->type),
           in_place ? "in" : "out", s->calls);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        printf("  %9.2f", figures[i].us);
        perf_put(row, figures[i].key, json_real(figures[i].us));
    }
    if (o->check)
        printf("  %7.2f  %6" PRIu64 "\n", jitter, s->nwrong);
    else
        printf("  %7.2f  %6s\n", jitter, "N/A");
    const double *w = s->waits, each = (double)s->calls * gyre_comm_size(c->comm);
    printf("#   a rank in a call: %.2f yields (%.2f us), %.4f sleeps (%.2f us); ranks were preempted about "
           "%.0f times\n",
           w[WAIT_YIELDS] / each, w[WAIT_YIELD_S] / each * 1e6, w[WAIT_SLEEPS] / each,
           w[WAIT_SLEEP_S] / each * 1e6, w[WAIT_PREEMPTED]);
    print_histogram(s);
    fflush(stdout);
    perf_put(row, "waits",
             json_pack("{s:f, s:f, s:f, s:f, s:f}", "yields", w[WAIT_YIELDS] / each, "yield_us",
                       w[WAIT_YIELD_S] / each * 1e6, "sleeps", w[WAIT_SLEEPS] / each, "sleep_us",
                       w[WAIT_SLEEP_S] / each * 1e6, "preempted", w[WAIT_PREEMPTED]));
    perf_put(row, "jitter", json_real(jitter));
    perf_put(row, "nwrong", o->check ? json_integer((json_int_t)s->nwrong) : json_null());
    perf_put(row, "histogram", json_histogram(s));
    perf_report_add(report, row, s->nwrong);
}

static gyre_status_t row(const perf_options_t *o, const perf_case_t *c, const perf_buffers_t *b,
                         const ticker_t *t, int in_place, perf_report_t *report)
{
    const perf_place_t p = perf_place(o, c, b, in_place);
    samples_t s = {0};
    gyre_status_t status = perf_fill_slots(o, c, &p, in_place);
    if (status == GYRE_OK)
        status = sample(o, c, &p, t, &s);
    if (status == GYRE_OK && o->check)
        status = perf_check(o, c, c->comm, &p, in_place, &s.nwrong);
    if (status == GYRE_OK && report) {
        summarize(&s);
        report_row(report, o, c, in_place, &s);
    }
    free(s.ns);
    return status;
}

static gyre_status_t sizes(const perf_options_t *o, perf_case_t *c, const perf_buffers_t *b,
                           const ticker_t *t, perf_report_t *report)
{
    size_t size = o->min_bytes;
    do {
        perf_case_set(c, o->coll, (gyre_type_t)o->first_type, (perf_op_t)o->first_op,
                      !o->coll->rooted ? -1
                      : o->root < 0    ? 0
                                       : o->root,
                      size);
        for (int in_place = 0; in_place < 2; in_place++) {
            if (in_place ? !o->in_place || !o->coll->in_place : !o->out_of_place)
                continue;
            gyre_status_t status = row(o, c, b, t, in_place, report);
            if (status != GYRE_OK)
                return status;
        }
    } while (perf_next_size(o, &size));
    return GYRE_OK;
}

static void print_columns(const ticker_t *t)
{
    printf("# each call timed singly by %s; reading it twice takes %.0f ns, which every figure contains\n",
           t->tsc ? "the CPU's time stamp counter" : "the kernel's monotonic clock", t->overhead_ns);
    printf("# a sample is the slowest rank's time of one call; us; calls run back to back\n#\n");
    printf("# %10s  %8s  %5s  %7s  %9s  %9s  %9s  %9s  %9s  %9s  %9s  %9s  %7s  %6s\n", "size", "type",
           "place", "calls", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "stdev", "p99/p50",
           "#wrong");
    fflush(stdout);
}

static int measure(gyre_comm_t *comm, const perf_options_t *o, int argc, char **argv)
{
    const int rank = gyre_comm_rank(comm);
    const ticker_t t = ticker();
    char error[1024];
    perf_machine_t machine = {0};
    perf_buffers_t buffers = {0};
    perf_report_t report = {0};
    perf_case_t c;
    int code = PERF_ERROR;
    if (!perf_case_open(&c, comm))
        return PERF_ERROR;
    const int iters = o->iters > 0 ? o->iters : PERF_FEW_ITERS; /* 0: as many as take --seconds */
    if (perf_buffers_create(o, &buffers) != GYRE_OK || perf_machine_probe(comm, iters, &machine) != GYRE_OK) {
        code = perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    if (rank == 0) {
        perf_report_open(&report, o, argc, argv, comm, &machine);
        print_columns(&t);
        if (report.json)
            perf_put(
                report.json, "clock",
                json_pack("{s:s, s:f}", "source", t.tsc ? "tsc" : "monotonic", "overhead_ns", t.overhead_ns));
    }
    c.stream = buffers.stream;
    gyre_status_t status = perf_memory_ready(&buffers, comm);
    if (status == GYRE_OK)
        status = sizes(o, &c, &buffers, &t, rank == 0 ? &report : NULL);
    code = status == GYRE_OK ? PERF_OK : perf_tell_error(rank, error, sizeof error);
    if (rank == 0) {
        int told = perf_report_close(&report, code == PERF_OK ? NULL : error);
        code = code == PERF_OK ? told : code;
    }
cleanup:
    perf_buffers_destroy(&buffers);
    perf_machine_free(&machine);
    perf_case_close(&c);
    return code;
}

static const char help[] =
    "usage: gyre-perf latency [COLLECTIVE] [options]      one process per rank, for example\n"
    "       ucx-run -n 2 gyre-perf latency all_reduce -b 8 -e 64K -f 8\n"
    "Times every call singly (all_reduce unless another collective is named) and prints, of the slowest "
    "rank's time\n"
    "of each call, the least, p50, p90, p99, p99.9, the most, mean, standard deviation and jitter (p99 / "
    "p50), a\n"
    "histogram, and what a rank did on average while it waited: yields, sleeps and their time; the rest it "
    "spun.\n"
    "\n"
    "  -b, -e SIZE    first and last size (8)\n"
    "  -f N, -i SIZE  multiplies, or adds, from size to size (-f 8)\n"
    "  -n N           calls per size (as many as take a second, 100 to 100000)\n"
    "  -w N           calls before them (20)\n"
    "  --inplace 0|1|both   which halves to measure (0)\n"
    "  -d TYPE, -o OP, -r RANK   one type (float), one reduction (sum), one root (0)\n"
    "  -c N           0: no check (1)\n"
    "  -u BYTES, -R 0|1   buffers off their alignment; from gyre_mem_alloc (1) or malloc (0)\n"
    "  --memory host|cuda   where the buffers lie (host)\n"
    "  --algo NAME, --transport auto|shm|ucx|verbs, --order canonical|fast|exact   as in gyre-perf --help\n"
    "  -J, --json FILE; -T, --timeout SECONDS; -h, --help; --version\n"
    "\n"
    "No -g, -m, -F, -I, -M, -N, -S, -z 3, --cold, --explain, --register, --persistent and --streams; -a has "
    "no effect: a "
    "sample is the "
    "slowest rank's.\n";

/* What of the collectives' options makes no sense here, or NULL. */
static const char *unsuitable(const perf_options_t *o)
{
    if (o->aggregate > 1)
        return "-m: a call of a group has no time of its own";
    if (o->cycles != 1)
        return "-N: one histogram per size";
    if (o->first_type != o->last_type || o->first_op != o->last_op || o->root < 0)
        return "one type, one reduction and one root, not all";
    if (o->iterations || o->blocking == 3 || o->memory || o->csv)
        return "-I, -z 3, -M and -F go with the usual table";
    if (o->timestamps)
        return "no -S: its rows have no column for the time of day";
    if (o->cold || o->streams > 1 || o->explain || o->registered || o->persistent)
        return "--cold, --streams, --persistent, --explain and --register go with the usual table";
    if (o->gpus > 1)
        return "-g: ranks of one process go with the usual table; here each rank is a process";
    return o->norders ? "one --order at a time, and no leaves" : NULL;
}

/* The options are the collectives', with defaults of their own: defaults go first, so the user's options
 * win. -n and -i begin with values that no user gives: these stand for "not given". */
int perf_latency_main(int argc, char **argv, int typed_count, char **typed)
{
    static char name[] = "all_reduce", calls[16], step[32];
    static char *const defaults[] = {name, "-b", "8",         "-e", "8",  "-i", step,
                                     "-w", "20", "--inplace", "0",  "-n", calls};
    const int given = sizeof defaults / sizeof *defaults;
    snprintf(calls, sizeof calls, "%d", INT_MAX);
    snprintf(step, sizeof step, "%zu", NO_STEP);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return PERF_OK;
        }
    }
    char **args = calloc((size_t)(given + argc + 1), sizeof *args);
    if (!args) {
        fprintf(stderr, "gyre-perf: no memory\n");
        return PERF_ERROR;
    }
    memcpy(args, defaults, sizeof defaults);
    memcpy(args + given, argv + 1, (size_t)argc * sizeof *args); /* and its NULL */
    perf_options_t options;
    gyre_comm_t *world = NULL;
    char why[512];
    int done = 0, code = perf_options_parse(given + argc - 1, args, &options, stdout, why, sizeof why);
    const char *wrong = code == PERF_OK ? unsuitable(&options) : NULL;
    if (wrong && comm_identity_rank_hint() == 0)
        fprintf(stderr, "gyre-perf: latency: %s\n", wrong);
    code = wrong      ? PERF_USAGE
           : code < 0 ? PERF_OK
                      : perf_job_open(given + argc - 1, args, &options, &world, &done);
    if (code == PERF_OK && world && !done) {
        options.no_columns = 1;
        if (options.step_factor == 1 && options.step_bytes == NO_STEP)
            options.step_factor = 8;
        options.iters = options.iters == INT_MAX ? 0 : options.iters;
        code = perf_job_close(world, measure(world, &options, typed_count, typed));
    }
    free(args);
    return code;
}
