/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/overlap.c: `gyre-perf overlap`: the share of a non-blocking collective that runs in
 * parallel with computing.
 *
 * As in OSU's micro-benchmarks: t_pure is the collective alone (started and waited for), t_cpu the computing
 * alone, t_overall the collective started, the computing done, then waited for. overlap = 1 - (t_overall -
 * t_cpu) / t_pure, between 0 and 1. Unlike OSU's, all three are measured in turn in every iteration, and the
 * median of each counts: a disturbance of the machine does not hit one of them alone. */
#include "tools/gyre-perf/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

typedef struct {
    perf_common_t common;
    size_t min_bytes, max_bytes;
    int factor;
    gyre_type_t type;
    int iters, warmup, check, polls;
    double compute_ms; /* 0: as long as the communication */
    const char *progress;
    const perf_coll_t *colls[32];
    int count;
} options_t;

/* The ways to move the collective while this rank computes. */
typedef enum { NOBODY, POLLED, THREAD, REGIMES } regime_t;
static const char *const regime_names[REGIMES + 1] = {"none", "polled", "thread", "all"};

typedef struct {
    double pure, cpu, overall; /* seconds, averages over ranks */
    double overlap;            /* 0..1 */
    uint64_t nwrong;
} row_t;

/* What a regime needs. */
typedef struct {
    const options_t *o;
    perf_session_t *s;
    regime_t regime;
    perf_case_t c;
    perf_buffers_t buffers;
    perf_work_t work;
    double *samples; /* [3 * iters] */
} bench_t;

/* ---- one iteration ---- */
static gyre_status_t wait_both(gyre_status_t status, gyre_request_t *requests[2])
{
    gyre_status_t waited = gyre_wait_all(2, requests);
    return status == GYRE_OK ? waited : status;
}

static gyre_status_t alone(bench_t *b, unsigned char *send, unsigned char *recv)
{
    gyre_request_t *requests[2];
    gyre_status_t status = perf_case_start(&b->c, send, recv, requests);
    return wait_both(status, requests);
}

static gyre_status_t together(bench_t *b, unsigned char *send, unsigned char *recv, size_t amount)
{
    gyre_request_t *requests[2];
    const size_t slices = b->regime == POLLED ? (size_t)b->o->polls + 1 : 1;
    gyre_status_t status = perf_case_start(&b->c, send, recv, requests);
    for (size_t i = 0; i < slices && status == GYRE_OK; i++) {
        if (i > 0)
            status = gyre_progress(b->c.comm);
        perf_work_do(&b->work, amount / slices + (i < amount % slices));
    }
    return wait_both(status, requests);
}

/* ---- one row ---- */
static gyre_status_t average(bench_t *b, double *seconds)
{
    return gyre_all_reduce(seconds, seconds, 1, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), b->c.comm);
}

/* Median time of the collective alone; the same number on all ranks. */
static gyre_status_t warm_up(bench_t *b, unsigned char *send, unsigned char *recv, double *seconds)
{
    gyre_status_t status = GYRE_OK;
    const int runs = b->o->warmup > 0 ? b->o->warmup : 1;
    for (int i = 0; i < 2 * runs && status == GYRE_OK; i++) {
        status = gyre_barrier(b->c.comm);
        base_time_t start = base_now();
        if (status == GYRE_OK)
            status = alone(b, send, recv);
        if (i % 2) /* the first of two may build a plan */
            b->samples[(i / 2) % (3 * b->o->iters)] = (double)(base_now() - start) * 1e-9;
    }
    const int kept = runs < 3 * b->o->iters ? runs : 3 * b->o->iters;
    *seconds = perf_median(b->samples, (size_t)kept);
    return status == GYRE_OK ? average(b, seconds) : status;
}

static gyre_status_t timed(bench_t *b, unsigned char *send, unsigned char *recv, size_t amount)
{
    const int iters = b->o->iters;
    gyre_status_t status = GYRE_OK;
    for (int i = 0; i < 3 * iters && status == GYRE_OK; i++) {
        const int what = i % 3;
        status = gyre_barrier(b->c.comm);
        if (status != GYRE_OK)
            break;
        base_time_t start = base_now();
        if (what == 0)
            status = alone(b, send, recv);
        else if (what == 1)
            perf_work_do(&b->work, amount);
        else
            status = together(b, send, recv, amount);
        b->samples[what * iters + i / 3] = (double)(base_now() - start) * 1e-9;
    }
    return status;
}

static gyre_status_t checked(bench_t *b, unsigned char *send, unsigned char *recv, size_t amount,
                             uint64_t *nwrong)
{
    int told = 0;
    *nwrong = 0;
    for (int run = 1; run <= b->o->check; run++) {
        perf_fill_poison(recv, b->c.bytes);
        perf_fill_poison(send, b->c.bytes);
        perf_fill_input(&b->c, run, 0, send);
        gyre_status_t status = together(b, send, recv, amount);
        if (status != GYRE_OK)
            return status;
        *nwrong += perf_check_range(&b->c, run, 0, 0, recv, &told);
        *nwrong += perf_check_range(&b->c, run, 0, 1, send, &told);
    }
    return gyre_all_reduce(nwrong, nwrong, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), b->c.comm);
}

static gyre_status_t measure_row(bench_t *b, row_t *row)
{
    unsigned char *send = b->buffers.send + PERF_GUARD_BYTES, *recv = b->buffers.recv + PERF_GUARD_BYTES;
    const size_t iters = (size_t)b->o->iters;
    double seconds = b->o->compute_ms * 1e-3;
    perf_fill_input(&b->c, 0, 0, send);
    double warm = 0.0;
    gyre_status_t status = warm_up(b, send, recv, &warm);
    if (seconds <= 0.0)
        seconds = warm;
    const size_t amount = perf_work_amount(&b->work, seconds);
    if (status == GYRE_OK)
        status = timed(b, send, recv, amount);
    if (status != GYRE_OK)
        return status;
    double figures[3];
    for (size_t i = 0; i < 3; i++)
        figures[i] = perf_median(b->samples + i * iters, iters);
    status = gyre_all_reduce(figures, figures, 3, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), b->c.comm);
    if (status != GYRE_OK)
        return status;
    row->pure = figures[0], row->cpu = figures[1], row->overall = figures[2];
    row->overlap = row->pure > 0.0 ? fmin(fmax(1.0 - (row->overall - row->cpu) / row->pure, 0.0), 1.0) : 0.0;
    return checked(b, send, recv, amount, &row->nwrong);
}

static void print_header(const options_t *o)
{
    if (o->compute_ms > 0.0)
        printf("# computing %g ms; ", o->compute_ms);
    else
        printf("# computing as long as the collective alone takes; ");
    printf("polled: %d calls of gyre_progress meanwhile\n#\n", o->polls);
    printf("# %10s  %12s  %8s  %6s  %15s  %8s  %9s  %9s  %9s  %7s  %6s\n", "size", "count", "type", "redop",
           "collective", "progress", "pure", "compute", "overall", "overlap", "#wrong");
    printf("# %10s  %12s  %8s  %6s  %15s  %8s  %9s  %9s  %9s  %7s  %6s\n", "(B)", "(elements)", "", "", "",
           "", "(us)", "(us)", "(us)", "(%)", "");
}

static void report_row(bench_t *b, const row_t *row)
{
    const perf_case_t *c = &b->c;
    const char *type = c->coll->op == COLL_BARRIER ? "none" : gyre_type_name(c->type);
    const char *op = c->coll->reduces ? perf_op_name(c->op) : "none";
    b->s->nwrong += row->nwrong;
    if (b->s->rank != 0)
        return;
    printf("%12zu  %12zu  %8s  %6s  %15s  %8s", c->bytes, c->param, type, op, c->coll->name,
           regime_names[b->regime]);
    perf_print_figure(row->pure * 1e6, 9);
    perf_print_figure(row->cpu * 1e6, 9);
    perf_print_figure(row->overall * 1e6, 9);
    printf("  %7.1f", row->overlap * 100.0);
    if (b->o->check)
        printf("  %6llu\n", (unsigned long long)row->nwrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (!b->s->json)
        return;
    json_t *j = json_pack("{s:I, s:I, s:s, s:s, s:i, s:s, s:f, s:f, s:f, s:f}", "size", (json_int_t)c->bytes,
                          "count", (json_int_t)c->param, "type", type, "redop", op, "root", c->root,
                          "progress", regime_names[b->regime], "pure", row->pure * 1e6, "compute",
                          row->cpu * 1e6, "overall", row->overall * 1e6, "overlap", row->overlap * 100.0);
    perf_put(j, "nwrong", b->o->check ? json_integer((json_int_t)row->nwrong) : json_null());
    perf_put(j, "experiment_name", json_string(c->coll->name));
    (void)json_array_append_new(json_object_get(b->s->json, "results"), j);
}

/* ---- all rows ---- */
static void destroy(bench_t *b)
{
    perf_buffers_destroy(&b->buffers);
    perf_work_destroy(&b->work);
    perf_case_close(&b->c);
    free(b->samples);
}

static gyre_status_t create(bench_t *b)
{
    const perf_options_t room = {.max_bytes = b->o->max_bytes, .aggregate = 1, .windows = 1};
    b->samples = calloc((size_t)b->o->iters * 3, sizeof *b->samples);
    if (!b->samples || !perf_case_open(&b->c, b->s->world))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the times of %d iterations", b->o->iters);
    gyre_status_t status = perf_buffers_create(&room, &b->buffers);
    return status == GYRE_OK ? perf_work_create(b->s->world, &b->work) : status;
}

static gyre_status_t sweep(bench_t *b, const perf_coll_t *coll)
{
    for (size_t size = b->o->min_bytes;;) {
        row_t row = {0};
        perf_case_set(&b->c, coll, b->o->type, PERF_SUM, coll->rooted ? 0 : -1, size);
        gyre_status_t status = measure_row(b, &row);
        if (status != GYRE_OK)
            return status;
        report_row(b, &row);
        if (coll->op == COLL_BARRIER || size >= b->o->max_bytes ||
            size > b->o->max_bytes / (size_t)b->o->factor)
            return GYRE_OK;
        size = size ? size * (size_t)b->o->factor : 1;
    }
}

static gyre_status_t run_regime(const options_t *o, perf_session_t *s, regime_t regime)
{
    bench_t b = {.o = o, .s = s, .regime = regime};
    gyre_status_t status = create(&b);
    for (int i = 0; i < o->count && status == GYRE_OK; i++)
        status = sweep(&b, o->colls[i]);
    destroy(&b);
    return status;
}

static gyre_status_t run_all(const options_t *o, perf_session_t *s)
{
    int threaded = 0;
    gyre_status_t status = GYRE_OK;
    for (int regime = 0; regime < REGIMES && status == GYRE_OK; regime++) {
        if (strcmp(o->progress, "all") != 0 && strcmp(o->progress, regime_names[regime]) != 0)
            continue;
        if ((regime == THREAD) != threaded)
            status = perf_session_rejoin(s, threaded = regime == THREAD);
        if (status == GYRE_OK)
            status = run_regime(o, s, (regime_t)regime);
    }
    return status;
}

/* ---- the command line ---- */
static int parse(int argc, char **argv, options_t *o, char *why, size_t bytes)
{
    const flag_t rows[] = {
        {FLAG('b', "minbytes", SIZE, &o->min_bytes, "SIZE",
              "first size (1K); sizes such as 8, 64K, 4MiB, 1g")},
        {FLAG('e', "maxbytes", SIZE, &o->max_bytes, "SIZE", "last size (4M)")},
        {FLAG('f', "stepfactor", INT, &o->factor, "N", "multiplies from size to size (16)"), .low = 2,
         .high = 1 << 30},
        PERF_TYPE_ROW(&o->type),
        {FLAG('n', "iters", INT, &o->iters, "N", "timed iterations of each part (20)"), .low = 1,
         .high = 1 << 20},
        {FLAG('w', "warmup_iters", INT, &o->warmup, "N", "iterations before them (3)"), .low = 0,
         .high = 1 << 20},
        {FLAG('c', "check", INT, &o->check, "N", "checked runs per row; 0: no check (1)"), .low = 0,
         .high = 1 << 20},
        {FLAG(0, "compute", REAL, &o->compute_ms, "MS",
              "computing, milliseconds (0: as long as the collective alone takes)")},
        {FLAG(0, "polls", INT, &o->polls, "N", "calls of gyre_progress while computing, if polled (16)"),
         .low = 1, .high = 1 << 20},
        {FLAG(0, "progress", WORD, &o->progress, "none|polled|thread|all",
              "who advances the collective while the rank computes: none, the rank\n"
              "between pieces of its work, a progress thread, or one after the other (all)")},
        PERF_COMMON_ROWS(&o->common),
    };
    const flags_t flags = {
        .program = "gyre-perf overlap",
        .usage = "usage: gyre-perf overlap [COLLECTIVE...|all] [options]      (all_reduce)\n"
                 "Measures how much of a non-blocking collective is hidden by computing.\n",
        .notes =
            "overlap = 1 - (overall - compute) / pure: pure is the collective alone, compute the computing\n"
            "alone, overall the two together. Sizes are those of the larger buffer.\n",
        FLAG_ROWS(rows)};
    int word = 0;
    *o = (options_t){.min_bytes = 1024,
                     .max_bytes = 4u << 20,
                     .factor = 16,
                     .type = GYRE_FLOAT32,
                     .iters = 20,
                     .warmup = 3,
                     .check = 1,
                     .polls = 16,
                     .progress = "all",
                     .common = {.progress_thread = -1}};
    int code = perf_flags_read(&flags, argc, argv, &word, stdout, why, bytes);
    if (code != PERF_OK)
        return code;
    const int limit = (int)(sizeof o->colls / sizeof *o->colls);
    for (; word < argc; word++) {
        const perf_coll_t *coll = perf_coll_find(argv[word]);
        const int all = strcmp(argv[word], "all") == 0;
        if (!coll && !all) {
            snprintf(why, bytes, "\"%s\" is no collective; gyre-perf --help lists them", argv[word]);
            return PERF_USAGE;
        }
        for (int i = 0; i < perf_coll_count && o->count < limit; i++) {
            if (all || coll == &perf_colls[i])
                o->colls[o->count++] = &perf_colls[i];
        }
    }
    if (o->count == 0)
        o->colls[o->count++] = perf_coll_find("all_reduce");
    if (o->min_bytes > o->max_bytes) {
        snprintf(why, bytes, "the first size (-b %zu) is larger than the last (-e %zu)", o->min_bytes,
                 o->max_bytes);
        return PERF_USAGE;
    }
    return PERF_OK;
}

int perf_overlap_main(int argc, char **argv, int typed_count, char **typed)
{
    options_t o;
    perf_session_t s;
    char why[512];
    int code = parse(argc, argv, &o, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    if (code != PERF_OK)
        return perf_usage(why);
    o.common.progress_thread = 0; /* until run_all wants it */
    code = perf_session_open(&s, &o.common, "overlap", typed_count, typed);
    if (code != PERF_OK)
        return code;
    if (s.rank == 0)
        print_header(&o);
    if (s.json) {
        json_t *config = json_object_get(s.json, "config");
        perf_put(config, "collective", json_string("overlap"));
        perf_put(config, "minimum_bytes", json_integer((json_int_t)o.min_bytes));
        perf_put(config, "maximum_bytes", json_integer((json_int_t)o.max_bytes));
        perf_put(config, "step_factor", json_integer(o.factor));
        perf_put(config, "iterations", json_integer(o.iters));
        perf_put(config, "warmup_iters", json_integer(o.warmup));
        perf_put(config, "validation", json_integer(o.check));
        perf_put(config, "compute_ms", json_real(o.compute_ms));
        perf_put(config, "polls", json_integer(o.polls));
    }
    return perf_session_close(&s, run_all(&o, &s));
}
