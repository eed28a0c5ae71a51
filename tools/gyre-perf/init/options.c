/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/init/options.c: `gyre-perf init`: the time to the first collective, and where it goes.
 *
 * As a rank of a job it measures this one start. Without a launcher it starts jobs of 2, 4, 8, ... ranks
 * under ucx-run, several times each, and prints medians. With --mock it runs the bootstrap's protocol
 * among many ranks in one process. */
#include "tools/gyre-perf/init/init.h"

#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "base/text/json.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"
#include "tools/gyre-perf/command.h"

int perf_init_main(int argc, char **argv, int typed_count, char **typed);

static const char *const init_keys[INIT_FIGURES] = {
    "launch_ms",   "join_ms",          "create_ms",    "barrier_ms",    "all_reduce_ms",
    "total_ms",    "again_ms",         "large_ms",     "split_ms",      "first_ms",
    "connections", "boot_connections", "shared_bytes", "private_bytes", "resident_bytes"};

static const char usage[] =
    "usage: gyre-perf init [--max N] [--starts K]     starts jobs of 2, 4, 8, ... N ranks here\n"
    "       ucx-run -n N gyre-perf init               measures this one start\n"
    "       gyre-perf init --mock N                   the bootstrap alone, up to N ranks in one process\n"
    "How long until the first collective is done, and what it is spent on; connections and memory per "
    "rank.\n";

/* As perf_options_parse. */
static int parse(int argc, char **argv, init_options_t *o, char *why, size_t bytes)
{
    uint64_t since = 0;
    const flag_t rows[] = {
        {FLAG(0, "max", INT, &o->max, "N", "the largest job (64); at most 1024"), .low = 2, .high = 1024},
        {FLAG('s', "starts", INT, &o->starts, "K",
              "starts of each size; their medians are printed (5; with --mock 3)"),
         .low = 1, .high = 1000},
        {FLAG(0, "mock", INT, &o->mock, "N",
              "2 to 16384 mock ranks: threads that speak the bootstrap's own protocol over\nloopback"),
         .low = 2, .high = 16384},
        {FLAG('J', "json", TEXT, &o->json, "FILE", "also write the results there; - is standard output")},
        {FLAG('T', "timeout", REAL, &o->timeout_s, "S", "deadline of each start (GYRE_INIT_TIMEOUT)")},
        {FLAG(0, "since", COUNT, &since, "NS", NULL), .low = 1}, /* for our own jobs */
    };
    const flags_t flags = {.program = "gyre-perf init", .usage = usage, FLAG_ROWS(rows)};
    int code = perf_flags_read(&flags, argc, argv, NULL, stdout, why, bytes);
    o->since = (base_time_t)since;
    return code;
}

void init_columns(void)
{
    printf(
        "# ms, of the slowest rank: launch (launcher to main), join (bootstrap: the first rank waits for "
        "the last),\n"
        "# create (communicator), the first barrier, the first all_reduce (4 B); total (launcher to its "
        "end); again (one\n"
        "# more); large (the first of 1 MiB, which connects); split (another communicator of all ranks), "
        "first "
        "(its\n"
        "# first all_reduce, 4 B). links, memory: the most of any rank; boot: connections of the bootstrap\n"
        "# %5s  %6s  %9s  %9s  %9s  %9s  %10s  %9s  %8s  %8s  %7s  %7s  %5s  %4s  %9s  %9s  %9s\n",
        "ranks", "starts", "launch", "join", "create", "barrier", "all_reduce", "total", "again", "large",
        "split", "first", "links", "boot", "shared", "private", "resident");
    printf("# %5s  %6s  %9s  %9s  %9s  %9s  %10s  %9s  %8s  %8s  %7s  %7s  %5s  %4s  %9s  %9s  %9s\n", "", "",
           "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "", "", "(KiB)",
           "(KiB)", "(KiB)");
    fflush(stdout);
}

void init_print(const init_row_t *row)
{
    const double *f = row->figure;
    printf("%7d  %6d  %9.2f  %9.2f  %9.2f  %9.3f  %10.3f  %9.2f  %8.4f  %8.2f  %7.3f  %7.3f  %5.0f  "
           "%4.0f  %9.0f  %9.0f  %9.0f\n",
           row->ranks, row->starts, f[INIT_LAUNCH], f[INIT_JOIN], f[INIT_CREATE], f[INIT_BARRIER],
           f[INIT_REDUCE], f[INIT_TOTAL], f[INIT_AGAIN], f[INIT_LARGE], f[INIT_SPLIT], f[INIT_FIRST],
           f[INIT_LINKS], f[INIT_BOOT], f[INIT_SHARED] / 1024, f[INIT_PRIVATE] / 1024,
           f[INIT_RESIDENT] / 1024);
    fflush(stdout);
}

json_t *init_json(const init_row_t *row)
{
    json_t *json = json_object();
    perf_put(json, "ranks", json_integer(row->ranks));
    perf_put(json, "starts", json_integer(row->starts));
    for (int i = 0; i < INIT_FIGURES; i++)
        perf_put(json, init_keys[i], json_real(row->figure[i]));
    return json;
}

int init_from_json(const json_t *json, init_row_t *row)
{
    *row = (init_row_t){.ranks = (int)json_integer_value(json_object_get(json, "ranks")),
                        .starts = (int)json_integer_value(json_object_get(json, "starts"))};
    for (int i = 0; i < INIT_FIGURES; i++) {
        const json_t *figure = json_object_get(json, init_keys[i]);
        if (!json_is_number(figure))
            return 0;
        row->figure[i] = json_number_value(figure);
    }
    return row->ranks > 0 && row->starts > 0;
}

double init_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, base_order_double);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

int init_write(const init_options_t *o, json_t *results)
{
    int code = PERF_OK;
    if (o->json) {
        json_t *json = perf_json_begin(o->argc, o->argv);
        perf_put(json, "command", json_string("init"));
        perf_put(json, "mock", json_boolean(o->mock > 0));
        perf_put(json, "results", json_incref(results));
        if (base_json_write(o->json, json) != GYRE_OK) {
            perf_tell_unlogged();
            code = PERF_ERROR;
        }
        json_decref(json);
    }
    json_decref(results);
    return code;
}

int perf_init_main(int argc, char **argv, int typed_count, char **typed)
{
    init_options_t o = {.max = 64, .argc = typed_count, .argv = typed};
    comm_identity_t who;
    char why[512];
    int code = parse(argc, argv, &o, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    if (code == PERF_OK && (base_settings_load() != GYRE_OK || comm_identity_find(NULL, &who) != GYRE_OK)) {
        snprintf(why, sizeof why, "%s", gyre_last_error());
        code = PERF_USAGE;
    }
    if (code == PERF_OK && who.rank == 0 && !perf_can_write(o.json, why, sizeof why))
        code = PERF_USAGE;
    if (code != PERF_OK) {
        if (comm_identity_rank_hint() == 0)
            fprintf(stderr, "gyre-perf: init: %s\n", why);
        return code;
    }
    const int alone = strcmp(who.source, "singleton") == 0;
    if (!o.starts)
        o.starts = o.mock ? 3 : 5;
    if (o.mock && !alone) {
        if (who.rank == 0)
            fprintf(stderr, "gyre-perf: init: --mock makes its own ranks: run it without a launcher\n");
        return PERF_USAGE;
    }
    return o.mock ? init_mock(&o) : alone ? init_jobs(&o) : init_start(&o);
}
