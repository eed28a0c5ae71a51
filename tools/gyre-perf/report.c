/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/report.c: the table on standard output and the JSON file, with nccl-tests' columns and
 * keys.
 *
 * The first 13 columns are nccl-tests' in its order, so scripts that count columns work; p50 and p99 of both
 * halves follow them. In the JSON, each half has nccl-tests' four figures and more. */
#include "tools/gyre-perf/perf.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text/json.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"

enum { JSON_VERSION = 2 }; /* of nccl-tests' format */

static void time_now(char *text, size_t bytes)
{
    time_t now = time(NULL);
    struct tm parts;
    if (!localtime_r(&now, &parts) || strftime(text, bytes, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        snprintf(text, bytes, "unknown");
}

void perf_put(json_t *object, const char *key, json_t *value)
{
    /* fails only without memory; the file then lacks the key */
    (void)json_object_set_new(object, key, value);
}

static void perf_put_time(json_t *object, const char *key)
{
    char text[32];
    time_now(text, sizeof text);
    perf_put(object, key, json_string(text));
}

/* Settings that differ from their defaults, as NAME=value. The job's secret is not shown. */
static json_t *changed_settings(void)
{
    static const char *const names[] = {
#define SETTING(id, name, kind, def, unit, meaning) [SET_##id] = name,
#include "base/settings/table.def"
#undef SETTING
    };
    json_t *list = json_array();
    for (int id = 0; id < SET_COUNT; id++) {
        if (id != SET_SECRET && !base_setting_is_default((base_setting_t)id))
            (void)json_array_append_new(
                list, json_sprintf("%s=%s", names[id], base_setting_string((base_setting_t)id)));
    }
    return list;
}

static const char *algo_setting(const perf_options_t *o)
{
    return o->algo ? o->algo : *base_setting_string(SET_ALGO) ? base_setting_string(SET_ALGO) : "auto";
}

void perf_config_machine(json_t *c, const perf_machine_t *m)
{
    perf_put(c, "transport", json_string(base_setting_string(SET_TRANSPORT)));
    perf_put(c, "order", json_string(base_setting_string(SET_ORDER)));
    perf_put(c, "kernels", json_string(coll_kernel_isa()));
    if (m->large_gbs > 0.0)
        perf_put(c, "memcpy_gbs",
                 json_pack("{s:I, s:f, s:I, s:f}", "large_bytes", (json_int_t)m->large_bytes, "large",
                           m->large_gbs, "cache_bytes", (json_int_t)m->cache_bytes, "cache", m->cache_gbs));
    perf_put(c, "load_average", json_pack("[f, f, f]", m->load[0], m->load[1], m->load[2]));
}

static json_t *json_config(const perf_options_t *o, const perf_machine_t *m)
{
    json_t *c = json_object();
    perf_put(c, "nthreads", json_integer(1));
    perf_put(c, "ngpus", json_integer(o->gpus > 1 ? o->gpus : 0));
    perf_put(c, "minimum_bytes", json_integer((json_int_t)o->min_bytes));
    perf_put(c, "maximum_bytes", json_integer((json_int_t)o->max_bytes));
    if (o->step_factor > 1)
        perf_put(c, "step_factor", json_integer(o->step_factor));
    else
        perf_put(c, "step_bytes", json_integer((json_int_t)o->step_bytes));
    perf_put(c, "warmup_iters", json_integer(o->warmup));
    perf_put(c, "iterations", json_integer(o->iters));
    perf_put(c, "aggregated_iterations", json_integer(o->aggregate));
    perf_put(c, "validation", json_integer(o->check));
    perf_put(c, "average", json_integer(o->average));
    perf_put(c, "unalign", json_integer((json_int_t)o->misalign));
    perf_put(c, "registered", json_integer(o->cuda ? o->registered : o->windows));
    perf_put(c, "memory", json_string(o->cuda ? "cuda" : "host"));
    perf_put(c, "collective", json_string(o->coll->name));
    perf_put(c, "algorithm", json_string(algo_setting(o)));
    perf_config_machine(c, m);
    if (o->norders)
        perf_put(c, "order", json_string(o->order));
    if (o->leaves)
        perf_put(c, "leaves", json_integer(o->leaves));
    perf_put(c, "streams", json_integer(o->streams));
    perf_put(c, "persistent", json_boolean(o->persistent));
    perf_put(c, "cold", o->cold ? json_string(perf_cold_method()) : json_null());
    return c;
}

json_t *perf_json_begin(int argc, char **argv)
{
    json_t *json = json_object(), *args = json_array();
    perf_put(json, "version", json_integer(JSON_VERSION));
    perf_put_time(json, "start_time");
    for (int i = 0; i < argc; i++)
        (void)json_array_append_new(args, json_string(argv[i]));
    perf_put(json, "args", args);
    perf_put(json, "env", changed_settings());
    perf_put(json, "gyre_version", json_string(gyre_version()));
    return json;
}

json_t *perf_json_open(int argc, char **argv, int n, const perf_machine_t *m, json_t *config)
{
    json_t *json = perf_json_begin(argc, argv), *devices = json_array();
    perf_put(json, "config", config);
    for (int i = 0; i < n; i++) {
        const perf_rank_info_t *info = &m->ranks[i];
        char cores[PERF_CORES_TEXT];
        (void)json_array_append_new(
            devices,
            json_pack("{s:i, s:i, s:i, s:s, s:i, s:s}", "rank", i, "group", (int)info->group, "pid",
                      (int)info->pid, "hostname", info->host, "device", (int)info->device - 1, "device_info",
                      info->device ? info->device_name : perf_cores_text(&info->cpus, cores, sizeof cores)));
    }
    perf_put(json, "devices", devices);
    perf_put(json, "results", json_array());
    return json;
}

/* Where the ranks of this host outnumber the cores that they may use, times include the wait for a core. */
static void print_crowd(int n, const perf_machine_t *m)
{
    cpu_set_t all;
    int here = 0;
    CPU_ZERO(&all);
    for (int i = 0; i < n; i++)
        if (!m->ranks[i].device && strcmp(m->ranks[i].host, m->ranks[0].host) == 0) {
            CPU_OR(&all, &all, &m->ranks[i].cpus);
            here++;
        }
    const int cores = CPU_COUNT(&all);
    if (cores > 0 && here > cores)
        printf("# %d ranks on %d core%s of %s: times include the wait for a core\n", here, cores,
               cores == 1 ? "" : "s", m->ranks[0].host);
}

void perf_print_ranks(int n, const perf_machine_t *m)
{
    char cores[PERF_CORES_TEXT];
    printf("# Using %d rank%s\n", n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++)
        if (m->ranks[i].device)
            printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d %s\n", i, (int)m->ranks[i].group,
                   (int)m->ranks[i].pid, m->ranks[i].host, (int)m->ranks[i].device - 1,
                   m->ranks[i].device_name);
        else
            printf("#  Rank %2d Group %2d Pid %6d on %10s cores %s\n", i, (int)m->ranks[i].group,
                   (int)m->ranks[i].pid, m->ranks[i].host,
                   perf_cores_text(&m->ranks[i].cpus, cores, sizeof cores));
    print_crowd(n, m);
    printf("#\n");
}

void perf_print_machine(const perf_machine_t *m)
{
    if (m->large_gbs > 0.0)
        printf("# memcpy floor (rank 0 alone): %.2f GB/s for %zu MiB, %.2f GB/s for %zu KiB in cache\n",
               m->large_gbs, m->large_bytes >> 20, m->cache_gbs, m->cache_bytes >> 10);
    else if (m->large_bytes == 0)
        printf("# memcpy floor: not measured with -n below %d\n", PERF_FEW_ITERS);
    else
        printf("# memcpy floor: not measured, no memory for two buffers of %zu MiB\n", m->large_bytes >> 20);
    printf("# load average %.2f %.2f %.2f\n#\n", m->load[0], m->load[1], m->load[2]);
}

static void print_header(const perf_options_t *o, int n, const perf_machine_t *m)
{
    printf("# gyre-perf %s: %s\n", gyre_version(), o->coll->name);
    printf("# nThread 1 nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg "
           "iters: %d "
           "validation: %d unalign: %zu\n#\n",
           o->gpus > 1 ? o->gpus : 0, o->min_bytes, o->max_bytes,
           o->step_factor > 1 ? (size_t)o->step_factor : o->step_bytes,
           o->step_factor > 1 ? "factor" : "bytes", o->warmup, o->iters, o->aggregate, o->check, o->misalign);
    perf_print_ranks(n, m);
    printf("# transport %s, algorithm %s, order %s, kernels %s, buffers from %s\n",
           base_setting_string(SET_TRANSPORT), algo_setting(o),
           o->norders ? o->order : base_setting_string(SET_ORDER), coll_kernel_isa(),
           o->cuda      ? "the devices' memory"
           : o->windows ? "gyre_mem_alloc"
                        : "malloc");
    if (o->cold)
        printf(
            "# cold buffers: out of every cache before each iteration, by %s; a barrier follows, untimed\n",
            perf_cold_method());
    if (o->persistent)
        printf("# persistent operations: made once for their buffers, and started in each iteration\n");
    if (o->streams > 1)
        printf("# %d streams: time is that of one operation on each of %d communicators at once, algbw and "
               "busbw "
               "are those of all\n",
               o->streams, o->streams);
    perf_print_machine(m);
}

/* ---- the columns of a result --------------------------------------------------------------------------- */

#define FIELD(name)                                 \
    static double name##_of(const perf_result_t *h) \
    {                                               \
        return h->name;                             \
    }
FIELD(time_us)
FIELD(algbw)
FIELD(busbw)
FIELD(p50)
FIELD(p95)
FIELD(p99)
FIELD(avg)
FIELD(min)
FIELD(max)
FIELD(stdev)
FIELD(i_min)
FIELD(i_max)
FIELD(i_p99)
FIELD(i_cv)

static double nwrong_of(const perf_result_t *h)
{
    return h->checked ? (double)h->nwrong : NAN;
}

static double cv_of(const perf_result_t *h)
{
    return h->avg > 0.0 ? 100.0 * h->stdev / h->avg : 0.0;
}

typedef enum {
    FIRST,  /* printed for out of place and in place, before */
    LAST,   /* these, for both */
    EACH,   /* these, with -I */
    HIDDEN, /* in the JSON file only */
} place_t;

/* Each figure of a result once: its key of the JSON file, its head and unit, and its value: NAN if there is
 * none. */
static const struct {
    const char *key;
    double (*of)(const perf_result_t *h);
    place_t place;
    int width; /* of the printed column */
    const char *head, *unit;
    int whole; /* a count */
} columns[] = {
    {"time", time_us_of, FIRST, 7, "time", "(us)", 0},
    {"alg_bw", algbw_of, FIRST, 6, "algbw", "(GB/s)", 0},
    {"bus_bw", busbw_of, FIRST, 6, "busbw", "(GB/s)", 0},
    {"nwrong", nwrong_of, FIRST, 6, "#wrong", "", 1},
    {"p50", p50_of, LAST, 7, "p50", "(us)", 0},
    {"p95", p95_of, HIDDEN, 0, NULL, NULL, 0},
    {"p99", p99_of, LAST, 7, "p99", "(us)", 0},
    {"avg", avg_of, HIDDEN, 0, NULL, NULL, 0},
    {"min", min_of, HIDDEN, 0, NULL, NULL, 0},
    {"max", max_of, HIDDEN, 0, NULL, NULL, 0},
    {"stdev", stdev_of, HIDDEN, 0, NULL, NULL, 0},
    {"cv", cv_of, HIDDEN, 0, NULL, NULL, 0},
    {"i_min", i_min_of, EACH, 7, "i_min", "(us)", 0},
    {"i_max", i_max_of, EACH, 7, "i_max", "(us)", 0},
    {"i_p99", i_p99_of, EACH, 7, "i_p99", "(us)", 0},
    {"i_cv", i_cv_of, EACH, 6, "i_cv", "(%)", 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* The last columns that are printed. */
static place_t last_place(const perf_options_t *o)
{
    return o->iterations ? EACH : LAST;
}

/* "out-of-place" or "in-place", in the middle above its columns. */
static void print_title(place_t place, const char *title)
{
    int width = -2, length = (int)strlen(title);
    for (int i = 0; i < COLUMNS; i++)
        width += columns[i].place == place ? columns[i].width + 2 : 0;
    const int before = width > length ? (width - length) / 2 : 0;
    printf("  %*s%-*s", before, "", width - before, title);
}

static void print_heads(place_t place, int units)
{
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].place == place)
            printf("  %*s", columns[i].width, units ? columns[i].unit : columns[i].head);
}

static void print_columns(const perf_options_t *o)
{
    printf("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    for (place_t place = FIRST; place <= last_place(o); place++) {
        print_title(place, "out-of-place");
        print_title(place, "in-place");
    }
    printf("\n");
    for (int units = 0; units < 2; units++) {
        if (units)
            printf("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
        else
            printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
        for (int column = 0; column < 2 * ((int)last_place(o) + 1); column++)
            print_heads((place_t)(column / 2), units);
        printf("%s\n", o->timestamps && !units ? "  timestamp" : "");
    }
}

static void print_figures(place_t place, const perf_result_t *h)
{
    for (int i = 0; i < COLUMNS; i++) {
        if (columns[i].place != place)
            continue;
        const double value = h->ran ? columns[i].of(h) : NAN;
        if (isnan(value))
            printf("  %*s", columns[i].width, "N/A");
        else if (columns[i].whole)
            printf("  %*.0f", columns[i].width, value);
        else
            perf_print_figure(value, columns[i].width);
    }
}

json_t *perf_json_half(const perf_result_t *h)
{
    if (!h->ran)
        return json_null();
    json_t *j = json_object();
    for (int i = 0; i < COLUMNS; i++) {
        if (columns[i].place == EACH && !h->times)
            continue;
        const double value = columns[i].of(h);
        perf_put(j, columns[i].key,
                 isnan(value)       ? json_null()
                 : columns[i].whole ? json_integer((json_int_t)value)
                                    : json_real(value));
    }
    return j;
}

/* A line for each half that ran. */
static void write_csv(FILE *csv, const perf_case_t *c, const perf_result_t *h, int in_place)
{
    fprintf(csv, "%zu,%zu,%s,%s,%d,%s", c->bytes, c->param,
            c->coll->op == COLL_BARRIER ? "none" : gyre_type_name(c->type),
            c->coll->reduces ? perf_op_name(c->op) : "none", c->root, in_place ? "in" : "out");
    for (int i = 0; i < COLUMNS; i++) {
        const double value = columns[i].of(h);
        if (columns[i].place == EACH && !h->times)
            continue;
        if (isnan(value))
            fprintf(csv, ",");
        else
            fprintf(csv, ",%.*g", columns[i].whole ? 20 : 7, value);
    }
    fprintf(csv, "\n");
}

static void open_csv(perf_report_t *r)
{
    r->csv =
        base_file_is_stdout(r->options->csv) ? fdopen(dup(STDOUT_FILENO), "w") : fopen(r->options->csv, "w");
    if (!r->csv) {
        fprintf(stderr, "gyre-perf: -F %s: %s\n", r->options->csv, strerror(errno));
        return; /* perf_report_close sees it */
    }
    fprintf(r->csv, "size,count,type,redop,root,place");
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].place != EACH || r->options->iterations)
            fprintf(r->csv, ",%s", columns[i].key);
    fprintf(r->csv, "\n");
}

void perf_report_open(perf_report_t *r, const perf_options_t *o, int argc, char **argv,
                      const gyre_comm_t *comm, const perf_machine_t *m)
{
    *r = (perf_report_t){.options = o};
    print_header(o, gyre_comm_size(comm), m);
    if (o->norders)
        perf_orders_columns(o);
    else if (o->explain)
        perf_explain_columns();
    else if (!o->no_columns)
        print_columns(o);
    if (o->json)
        r->json = perf_json_open(argc, argv, gyre_comm_size(comm), m, json_config(o, m));
    if (o->csv)
        open_csv(r);
    fflush(stdout);
}

void perf_print_figure(double value, int width)
{
    int digits = 1;
    double limit = 10.0;
    while (value >= limit) {
        limit *= 10.0;
        digits++;
    }
    int decimals = digits < width - 2 ? 2 : digits < width - 1 ? 1 : 0;
    if (digits <= width)
        printf("  %*.*f", width, decimals, value);
    else
        printf("  %*.1e", width, value);
}

json_t *perf_json_case(const perf_case_t *c)
{
    json_t *row = json_object();
    perf_put(row, "size", json_integer((json_int_t)c->bytes));
    perf_put(row, "count", json_integer((json_int_t)c->param));
    perf_put(row, "type", json_string(c->coll->op == COLL_BARRIER ? "none" : gyre_type_name(c->type)));
    perf_put(row, "redop", json_string(c->coll->reduces ? perf_op_name(c->op) : "none"));
    perf_put(row, "root", json_integer(c->root));
    return row;
}

void perf_report_add(perf_report_t *r, json_t *row, uint64_t nwrong)
{
    r->nwrong += nwrong;
    if (r->json)
        (void)json_array_append_new(json_object_get(r->json, "results"), row);
    else
        json_decref(row);
}

static void print_row(const perf_report_t *r, const perf_case_t *c, const perf_result_t *out_of_place,
                      const perf_result_t *in_place)
{
    const char *type = c->coll->op == COLL_BARRIER ? "none" : gyre_type_name(c->type);
    const char *op = c->coll->reduces ? perf_op_name(c->op) : "none";
    printf("%12zu  %12zu  %8s  %6s  %6d", c->bytes, c->param, type, op, c->root);
    for (place_t place = FIRST; place <= last_place(r->options); place++) {
        print_figures(place, out_of_place);
        print_figures(place, in_place);
    }
    if (r->options->timestamps) {
        char text[32];
        time_now(text, sizeof text);
        printf("  %s", text);
    }
    printf("\n");
}

void perf_report_row(perf_report_t *r, const perf_case_t *c, const perf_result_t *out_of_place,
                     const perf_result_t *in_place)
{
    json_t *row = r->json ? perf_json_case(c) : NULL;
    const perf_result_t *halves[2] = {out_of_place, in_place};
    if (!r->options->explain)
        print_row(r, c, out_of_place, in_place);
    for (int half = 0; half < 2; half++)
        if (r->options->explain && halves[half]->ran)
            (void)perf_explain_row(r->options, c, halves[half], half,
                                   row); /* an error is printed; the figures count on */
    fflush(stdout);
    for (int half = 0; half < 2; half++) {
        const perf_result_t *h = half ? in_place : out_of_place;
        if (!h->ran)
            continue;
        r->nwrong += h->nwrong;
        r->busbw_sum += h->busbw;
        r->busbw_rows++;
        if (r->csv)
            write_csv(r->csv, c, h, half);
    }
    if (!row)
        return;
    for (int half = 0; half < 2; half++) {
        json_t *j = perf_json_half(halves[half]);
        perf_put(row, half ? "in_place" : "out_of_place", j); /* which has it now */
        if (!halves[half]->times)
            continue;
        json_t *times = json_array();
        for (int i = 0; i < r->options->iters; i++)
            (void)json_array_append_new(times, json_real(halves[half]->times[i]));
        perf_put(j, "times_us", times);
    }
    perf_put(row, "actual_iterations", json_integer(r->options->iters));
    perf_put(row, "experiment_name", json_string(c->coll->name));
    (void)json_array_append_new(json_object_get(r->json, "results"), row);
}

void perf_tell_unlogged(void)
{
    if (base_log_limit < BASE_LOG_ERROR)
        fprintf(stderr, "gyre-perf: %s\n", gyre_last_error());
}

int perf_json_close(json_t *json, const char *path, uint64_t nwrong, const char *error, int code)
{
    perf_put(json, "out_of_bounds",
             json_pack("{s:I, s:s}", "count", (json_int_t)nwrong, "okay", nwrong ? "false" : "true"));
    perf_put(json, "errors", error ? json_pack("[s]", error) : json_array());
    perf_put_time(json, "end_time");
    if (base_json_write(path, json) != GYRE_OK) {
        perf_tell_unlogged();
        code = code == PERF_OK ? PERF_ERROR : code;
    }
    json_decref(json);
    return code;
}

int perf_report_close(perf_report_t *r, const char *error)
{
    const double bandwidth = r->busbw_rows ? r->busbw_sum / r->busbw_rows : 0.0;
    int result = error ? PERF_ERROR : r->nwrong ? PERF_WRONG : PERF_OK;
    if (!error) {
        printf("# %-20s : %" PRIu64 " %s\n", "Out of bounds values", r->nwrong, r->nwrong ? "FAILED" : "OK");
    }
    if (!error && r->busbw_rows) {
        printf("# %-20s : %g\n#\n", "Avg bus bandwidth", bandwidth);
    }
    if (r->json) {
        perf_put(r->json, "average_bus_bandwidth",
                 json_pack("{s:f, s:s}", "bandwidth", bandwidth, "okay", "unchecked"));
        result = perf_json_close(r->json, r->options->json, r->nwrong, error, result);
        r->json = NULL;
    }
    if (r->options->csv) {
        const int opened = r->csv != NULL, spoilt = opened && ferror(r->csv);
        const int closed = opened && fclose(r->csv) == 0 && !spoilt;
        if (opened && !closed)
            fprintf(stderr, "gyre-perf: -F %s: not all of it could be written\n", r->options->csv);
        result = closed ? result : PERF_ERROR;
        r->csv = NULL;
    }
    fflush(stdout);
    return result;
}
