/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/bucket/options.c: `gyre-perf bucket`: reduces the gradients of a real model through buckets
 * of different sizes, and for comparison by one large all_reduce, by one per tensor, and together with a
 * stand-in for computing.
 *
 * The machine's speed drifts while a table is made. So curves and best sizes use ratios to measurements of
 * the same iterations: time to that of one large all_reduce, a step to computing followed by one large
 * all_reduce. */
#include "tools/gyre-perf/bucket/bucket.h"

#include <inttypes.h>
#include <string.h>

#include "base/settings/size.h"

enum { MAX_SIZES = 64, BAR = 50 };

typedef struct {
    perf_common_t common;
    const char *model, *list;
    size_t sizes[MAX_SIZES], count;
    size_t min_bytes, max_bytes;
    int factor, progress_thread;
    double compute_ms; /* below 0: not given */
    perf_bucket_plan_t plan;
} options_t;

int perf_bucket_main(int argc, char **argv, int typed_count, char **typed);

/* ---- figures that follow from others ---- */
static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}
static double hidden_share(const perf_bucket_row_t *r)
{
    return ratio(r->hidden, r->hidden + r->exposed);
}

/* ---- the table ---- */
static void print_header(const options_t *o, const perf_session_t *s)
{
    const perf_tensors_t *t = o->plan.tensors;
    const size_t esize = gyre_type_size(o->plan.type);
    printf("# model %s: %zu tensors, %zu elements of type %s, %.1f MB; the largest has %zu, the mean %zu\n",
           o->model, t->count, t->elements, gyre_type_name(o->plan.type),
           (double)(t->elements * esize) * 1e-6, t->largest, t->elements / t->count);
    printf(
        "# one: one all_reduce of all; each: one per tensor; step: computing, tensors reduced as they become "
        "ready, %s\n",
        s->common->progress_thread > 0 ? "with a progress thread" : "no progress thread");
    printf("# exposed: the rank waits or moves data; hidden: under way while it computes; gain: (compute + "
           "one) / "
           "step\n#\n");
    printf("# %10s  %7s  %9s  %6s  %6s  %9s  %6s  %9s  %6s  %9s  %9s  %9s  %9s  %6s  %5s  %6s\n", "bucket",
           "buckets", "time", "algbw", "busbw", "one", "one/", "each", "each/", "compute", "step", "exposed",
           "hidden", "hidden", "gain", "#wrong");
    printf("# %10s  %7s  %9s  %6s  %6s  %9s  %6s  %9s  %6s  %9s  %9s  %9s  %9s  %6s  %5s  %6s\n", "(B)", "",
           "(us)", "(GB/s)", "(GB/s)", "(us)", "time", "(us)", "time", "(us)", "(us)", "(us)", "(us)", "(%)",
           "", "");
}

static json_t *json_row(const options_t *o, const perf_bucket_row_t *r, double algbw, double busbw)
{
    json_t *j = json_pack("{s:I, s:I, s:I, s:I, s:s, s:s, s:i}", "bucket_bytes", (json_int_t)r->bucket_bytes,
                          "buckets", (json_int_t)r->buckets, "size", (json_int_t)r->bytes, "count",
                          (json_int_t)o->plan.tensors->elements, "type", gyre_type_name(o->plan.type),
                          "redop", "sum", "root", -1);
    const struct {
        const char *key;
        double value;
    } figures[] = {
        {"time", r->time * 1e6},
        {"alg_bw", algbw},
        {"bus_bw", busbw},
        {"one", r->one * 1e6},
        {"one_ratio", r->one_ratio},
        {"each", r->each * 1e6},
        {"each_ratio", r->each_ratio},
        {"compute", r->compute * 1e6},
        {"step", r->step * 1e6},
        {"exposed", r->exposed * 1e6},
        {"hidden", r->hidden * 1e6},
        {"hidden_fraction", hidden_share(r)},
        {"gain", r->gain},
    };
    const int beside = r->step > 0.0; /* computing was asked for */
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        perf_put(j, figures[i].key, i < 7 || beside ? json_real(figures[i].value) : json_null());
    perf_put(j, "nwrong", o->plan.check ? json_integer((json_int_t)r->nwrong) : json_null());
    perf_put(j, "experiment_name", json_string("bucket"));
    return j;
}

static void report_row(const options_t *o, perf_session_t *s, const perf_bucket_row_t *r)
{
    const double n = s->n, algbw = ratio((double)r->bytes * 1e-9, r->time),
                 busbw = algbw * 2.0 * (n - 1.0) / n;
    s->nwrong += r->nwrong;
    if (s->rank != 0)
        return;
    printf("%12zu  %7zu", r->bucket_bytes, r->buckets);
    perf_print_figure(r->time * 1e6, 9);
    perf_print_figure(algbw, 6);
    perf_print_figure(busbw, 6);
    perf_print_figure(r->one * 1e6, 9);
    printf("  %6.2f", r->one_ratio);
    perf_print_figure(r->each * 1e6, 9);
    printf("  %6.2f", r->each_ratio);
    if (r->step > 0.0) {
        perf_print_figure(r->compute * 1e6, 9);
        perf_print_figure(r->step * 1e6, 9);
        perf_print_figure(r->exposed * 1e6, 9);
        perf_print_figure(r->hidden * 1e6, 9);
        printf("  %6.1f  %5.2f", hidden_share(r) * 100.0, r->gain);
    } else {
        printf("  %9s  %9s  %9s  %9s  %6s  %5s", "N/A", "N/A", "N/A", "N/A", "N/A", "N/A");
    }
    if (o->plan.check)
        printf("  %6" PRIu64 "\n", r->nwrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (s->json)
        (void)json_array_append_new(json_object_get(s->json, "results"), json_row(o, r, algbw, busbw));
}

/* ---- the curve ---- */
static double relative_time(const perf_bucket_row_t *r)
{
    return ratio(1.0, r->one_ratio);
}
static double relative_step(const perf_bucket_row_t *r)
{
    return ratio(1.0, r->gain);
}

static size_t least(const perf_bucket_row_t *rows, size_t count, double (*of)(const perf_bucket_row_t *))
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        best = of(&rows[i]) < of(&rows[best]) ? i : best;
    return best;
}

static size_t print_curve(const char *title, const perf_bucket_row_t *rows, size_t count,
                          double (*of)(const perf_bucket_row_t *))
{
    const size_t best = least(rows, count, of);
    double most = 0.0;
    for (size_t i = 0; i < count; i++)
        most = of(&rows[i]) > most ? of(&rows[i]) : most;
    printf("# %s\n", title);
    for (size_t i = 0; i < count; i++) {
        char size[BASE_SIZE_TEXT], bar[BAR + 1];
        const size_t length = (size_t)(ratio(of(&rows[i]), most) * BAR + 0.5);
        memset(bar, '#', length);
        bar[length] = '\0';
        base_size_text(rows[i].bucket_bytes, size);
        printf("# %8s  %-*s  %.3f%s\n", size, BAR, bar, of(&rows[i]), i == best ? "  <- best" : "");
    }
    printf("#\n");
    return best;
}

static void report_curve(perf_session_t *s, const perf_bucket_row_t *rows, size_t count)
{
    if (s->rank != 0 || count == 0)
        return;
    printf("#\n");
    size_t best =
        print_curve("time against bucket size; 1 is one large all_reduce", rows, count, relative_time);
    if (s->json)
        perf_put(s->json, "best_bucket_bytes", json_integer((json_int_t)rows[best].bucket_bytes));
    if (rows[0].step <= 0.0)
        return;
    best = print_curve("step against bucket size; 1 is computing and then one large all_reduce", rows, count,
                       relative_step);
    if (s->json)
        perf_put(s->json, "best_step_bucket_bytes", json_integer((json_int_t)rows[best].bucket_bytes));
}

/* ---- the run ---- */
static gyre_status_t run_all(options_t *o, perf_session_t *s)
{
    static perf_bucket_row_t rows[MAX_SIZES];
    perf_work_t work = {0};
    gyre_status_t status = perf_work_create(s->world, &work);
    for (size_t i = 0; i < o->count && status == GYRE_OK; i++) {
        status = perf_bucket_measure(s->world, &o->plan, &work, o->sizes[i], &rows[i]);
        if (status == GYRE_OK)
            report_row(o, s, &rows[i]);
    }
    perf_work_destroy(&work);
    if (status == GYRE_OK)
        report_curve(s, rows, o->count);
    return status;
}

static void describe(const options_t *o, perf_session_t *s)
{
    json_t *config = json_object_get(s->json, "config");
    perf_put(config, "collective", json_string("bucket"));
    perf_put(config, "model", json_string(o->model));
    perf_put(config, "tensors", json_integer((json_int_t)o->plan.tensors->count));
    perf_put(config, "elements", json_integer((json_int_t)o->plan.tensors->elements));
    perf_put(config, "largest", json_integer((json_int_t)o->plan.tensors->largest));
    perf_put(config, "progress_thread", json_boolean(o->common.progress_thread > 0));
    perf_put(config, "compute_ms", o->compute_ms < 0.0 ? json_null() : json_real(o->compute_ms));
    perf_put(config, "iterations", json_integer(o->plan.iters));
    perf_put(config, "warmup_iters", json_integer(o->plan.warmup));
    perf_put(config, "validation", json_integer(o->plan.check));
}

/* ---- the command line ---- */

/* From -b to -e, up to the first size that holds everything. */
static void range_of_sizes(options_t *o)
{
    const size_t all = o->plan.tensors->elements * gyre_type_size(o->plan.type);
    for (size_t size = o->min_bytes; o->count < MAX_SIZES; size *= (size_t)o->factor) {
        o->sizes[o->count++] = size;
        if (size >= all || size > o->max_bytes / (size_t)o->factor)
            return;
    }
}

static int check_together(options_t *o, char *why, size_t bytes)
{
    if (o->list && !perf_parse_sizes(o->list, o->sizes, MAX_SIZES, &o->count))
        snprintf(why, bytes, "--bucket-bytes %s: not a list of at most %d sizes such as 64K,1M,25M", o->list,
                 (int)MAX_SIZES);
    else if (!o->list && (o->min_bytes == 0 || o->min_bytes > o->max_bytes))
        snprintf(why, bytes, "sizes from -b %zu to -e %zu: none", o->min_bytes, o->max_bytes);
    else if (flags_apart("json", o->common.json, o->model, why, bytes))
        return PERF_OK;
    return PERF_USAGE;
}

static int parse(int argc, char **argv, options_t *o, char *why, size_t bytes)
{
    const flag_t rows[] = {
        {FLAG(0, "model", TEXT, &o->model, "gpt2|bloom|FILE",
              "whose tensors: GPT-2 124M (148 tensors, 498 MB as float), BLOOM's list scaled\n"
              "(2525, 168 MB), or a file with one number of elements per line (gpt2)")},
        {FLAG(0, "bucket-bytes", TEXT, &o->list, "LIST", "sizes of buckets, such as 64K,1M,25M")},
        {FLAG('b', "minbytes", SIZE, &o->min_bytes, "SIZE",
              "or: the first size (64K); sizes such as 8, 64K, 4MiB, 1g")},
        {FLAG('e', "maxbytes", SIZE, &o->max_bytes, "SIZE",
              "the last size (256M); it ends where one bucket holds everything")},
        {FLAG('f', "stepfactor", INT, &o->factor, "N", "multiplies from size to size (4)"), .low = 2,
         .high = 1 << 30},
        PERF_TYPE_ROW(&o->plan.type),
        {FLAG(0, "compute", REAL, &o->compute_ms, "MS",
              "milliseconds of computing per step; 0: none (twice those of one large all_reduce)")},
        {FLAG(0, "progress-thread", SWITCH, &o->progress_thread, NULL,
              "a thread moves the reductions while the rank computes")},
        {FLAG('n', "iters", INT, &o->plan.iters, "N", "timed iterations (5)"), .low = 1, .high = 1 << 20},
        {FLAG('w', "warmup_iters", INT, &o->plan.warmup, "N", "iterations before them (1)"), .low = 0,
         .high = 1 << 20},
        {FLAG('c', "check", INT, &o->plan.check, "N", "checked runs per size; 0: no check (1)"), .low = 0,
         .high = 1 << 20},
        PERF_COMMON_ROWS(&o->common),
    };
    const flags_t flags = {
        .program = "gyre-perf bucket",
        .usage =
            "usage: gyre-perf bucket [options]      one process per rank, for example\n"
            "       ucx-run -n 2 gyre-perf bucket --model bloom --bucket-bytes 256K,1M,4M,25M\n"
            "Reduces the gradients of a model through buckets (gyre/bucket.h) of different sizes, against "
            "one "
            "large\n"
            "all_reduce of all of them, with one per tensor, and during a stand-in for the backward pass.\n",
        .notes = "Every rank needs memory for the model, once.\n",
        FLAG_ROWS(rows)};
    *o = (options_t){.model = "gpt2",
                     .min_bytes = 64u << 10,
                     .max_bytes = 256u << 20,
                     .factor = 4,
                     .compute_ms = -1.0,
                     .plan = {.type = GYRE_FLOAT32, .iters = 5, .warmup = 1, .check = 1}};
    int code = perf_flags_read(&flags, argc, argv, NULL, stdout, why, bytes);
    o->plan.compute_s = o->compute_ms * 1e-3;
    o->common.progress_thread = o->progress_thread ? 1 : -1;
    return code == PERF_OK ? check_together(o, why, bytes) : code;
}

int perf_bucket_main(int argc, char **argv, int typed_count, char **typed)
{
    options_t o;
    perf_session_t s;
    perf_tensors_t tensors = {0};
    char why[512];
    int code = parse(argc, argv, &o, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    if (code == PERF_OK)
        code = perf_tensors_load(o.model, &tensors, why, sizeof why);
    if (code != PERF_OK)
        return perf_usage(why);
    o.plan.tensors = &tensors;
    if (!o.list)
        range_of_sizes(&o);
    code = perf_session_open(&s, &o.common, "bucket", typed_count, typed);
    if (code == PERF_OK) {
        if (s.rank == 0)
            print_header(&o, &s);
        if (s.json)
            describe(&o, &s);
        code = perf_session_close(&s, run_all(&o, &s));
    }
    perf_tensors_free(&tensors);
    return code;
}
