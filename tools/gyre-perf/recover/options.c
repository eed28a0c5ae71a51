/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/recover/options.c: `gyre-perf recover`: a rank dies; measures how long until all others
 * know, until they are a job again, until the next good result. */
#include "tools/gyre-perf/recover/recover.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"

int perf_recover_main(int argc, char **argv, int typed_count, char **typed);

static const char usage[] =
    "usage: gyre-perf recover [options]\n"
    "As a rank of a job (one whose launcher leaves it alone when a rank dies): one rank dies in each round, "
    "until two are\n"
    "left. Otherwise it starts jobs of its own on this host, as many as the rounds take.\n";

static const char notes[] =
    "All times in ms, of the slowest survivor. detect: from the last barrier with the victim to the error "
    "that names it;\n"
    "shrink: from there until gyre_comm_shrink has made a communicator that works; result: the first "
    "all_reduce over it.\n"
    "Kinds: kill (-9), exit (without gyre_finalize), stop (noticed by the heartbeat, GYRE_HEARTBEAT), stuck "
    "(noticed at the\n"
    "deadline, --timeout; the survivors then wait as long again before they go on without it).\n";

static double figure(const recover_round_t *r, int column)
{
    return column == 0   ? r->detect
           : column == 1 ? r->shrink
           : column == 2 ? r->result
                         : r->detect + r->shrink + r->result;
}
enum { COLUMNS = 4 };
static const char *const keys[COLUMNS] = {"detect_ms", "shrink_ms", "result_ms", "total_ms"};

static void print_round(int number, const recover_round_t *r)
{
    printf("%7d  %6d  ", number, r->victim);
    if (r->second >= 0)
        printf("%6d", r->second);
    else
        printf("%6s", "-");
    printf("  %5d  %7d", r->left, r->shrinks);
    for (int c = 0; c < COLUMNS; c++)
        printf("  %9.2f", figure(r, c));
    printf("  %6d\n", r->wrong);
}

/* Fills json with one figure's least, middle and most; prints them. */
static void summary(const recover_round_t *records, int count, json_t *json)
{
    double *values = malloc((size_t)count * sizeof *values);
    if (!values)
        return;
    printf("# ms         least     median        p99       most\n");
    for (int c = 0; c < COLUMNS; c++) {
        for (int i = 0; i < count; i++)
            values[i] = figure(&records[i], c);
        const double median = perf_median(values, (size_t)count); /* sorts them */
        const double at[4] = {values[0], median, values[(count * 99 + 99) / 100 - 1], values[count - 1]};
        printf("# %-6.*s  %9.2f  %9.2f  %9.2f  %9.2f\n", (int)strcspn(keys[c], "_"), keys[c], at[0], at[1],
               at[2], at[3]);
        perf_put(json, keys[c],
                 json_pack("{s:f, s:f, s:f, s:f}", "min", at[0], "p50", at[1], "p99", at[2], "max", at[3]));
    }
    free(values);
}

static int report(const recover_options_t *o, const recover_round_t *records, int count, int argc,
                  char **argv)
{
    int wrong = 0, code;
    json_t *json = perf_json_begin(argc, argv), *rows = json_array(), *total = json_object();
    printf("# %5s  %6s  %6s  %5s  %7s  %9s  %9s  %9s  %9s  %6s\n", "round", "victim", "second", "left",
           "shrinks", "detect", "shrink", "result", "total", "#wrong");
    for (int i = 0; i < count; i++) {
        const recover_round_t *r = &records[i];
        print_round(i, r);
        wrong += r->wrong;
        json_t *row = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "round", i, "victim", r->victim, "second",
                                r->second, "left", r->left, "shrinks", r->shrinks, "nwrong", r->wrong);
        for (int c = 0; c < COLUMNS; c++)
            perf_put(row, keys[c], json_real(figure(r, c)));
        (void)json_array_append_new(rows, row);
    }
    if (count > 0)
        summary(records, count, total);
    printf("# Out of bounds values : %d %s\n", wrong, wrong ? "FAILED" : "OK");
    fflush(stdout);
    perf_put(json, "command", json_string("recover"));
    perf_put(json, "kind", json_string(o->kind));
    perf_put(json, "rounds", json_integer(count));
    perf_put(json, "results", rows);
    perf_put(json, "summary", total);
    perf_put(json, "nwrong", json_integer(wrong));
    code = wrong ? PERF_WRONG : PERF_OK;
    if (o->common.json && base_json_write(o->common.json, json) != GYRE_OK) {
        perf_tell_unlogged();
        code = PERF_ERROR;
    }
    json_decref(json);
    return code;
}

/* As a rank of a job that another launcher has started. */
static int as_rank(const recover_options_t *o, int argc, char **argv, recover_round_t *records)
{
    gyre_comm_t *comm;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    char error[1024];
    int done = 0, code = PERF_OK, first;
    config.timeout_s = o->common.timeout_s;
    if (gyre_init(&config, &comm) != GYRE_OK)
        return perf_tell_error(comm_identity_rank_hint(), error, sizeof error);
    if (gyre_comm_size(comm) < 3 || gyre_comm_size(comm) > RECOVER_RANKS) {
        if (gyre_comm_rank(comm) == 0)
            fprintf(stderr, "gyre-perf: recover: wants 3 to %d ranks\n", RECOVER_RANKS);
        return perf_job_close(comm, PERF_USAGE);
    }
    first = gyre_comm_rank(comm);
    if (first == 0)
        printf("# gyre-perf %s: recover: %d ranks, kind %s\n", gyre_version(), gyre_comm_size(comm), o->kind);
    fflush(stdout);
    if (recover_rounds(&comm, o, 0, o->rounds, records, &done) != GYRE_OK)
        return perf_tell_error(first, error, sizeof error);
    if (gyre_comm_rank(comm) == 0)
        code = report(o, records, done, argc, argv);
    return perf_job_close(comm, code);
}

static gyre_status_t apply(const recover_options_t *o)
{
    gyre_status_t st = base_settings_load();
    if (st == GYRE_OK && o->common.transport)
        st = base_settings_set(SET_TRANSPORT, o->common.transport, "flag --transport");
    if (st == GYRE_OK && o->common.order)
        st = base_settings_set(SET_ORDER, o->common.order, "flag --order");
    if (st == GYRE_OK && base_setting_is_default(SET_LOG))
        st = base_settings_set(SET_LOG, "none", "gyre-perf recover: the deaths are meant");
    return st;
}

int perf_recover_main(int argc, char **argv, int typed_count, char **typed)
{
    recover_options_t o = {
        .ranks = 8, .rounds = 12, .seed = 1, .kind = "kill", .common = {.progress_thread = -1}};
    comm_identity_t who;
    char why[512];
    const flag_t rows[] = {
        {FLAG('n', "ranks", INT, &o.ranks, "N", "ranks of its own jobs (8)"), .low = 3,
         .high = RECOVER_RANKS},
        {FLAG('r', "rounds", INT, &o.rounds, "N", "deaths (12)"), .low = 1, .high = 1000000},
        {FLAG('s', "seed", INT, &o.seed, "N", "of the choice of victims (1)"), .low = 0, .high = 1 << 30},
        {FLAG(0, "kind", WORD, &o.kind, "kill|exit|stop|stuck", "how a rank ends (kill)")},
        {FLAG(0, "during", SWITCH, &o.during, NULL,
              "in every other round another rank dies while the others shrink")},
        PERF_COMMON_ROWS(&o.common),
    };
    const flags_t flags = {.program = "gyre-perf recover", .usage = usage, .notes = notes, FLAG_ROWS(rows)};
    int code = perf_flags_read(&flags, argc, argv, NULL, stdout, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    if (code == PERF_OK && comm_identity_rank_hint() == 0 && !perf_can_write(o.common.json, why, sizeof why))
        code = PERF_USAGE;
    if (code == PERF_OK && (apply(&o) != GYRE_OK || comm_identity_find(NULL, &who) != GYRE_OK)) {
        snprintf(why, sizeof why, "%s", gyre_last_error());
        code = PERF_USAGE;
    }
    if (code != PERF_OK)
        return perf_usage(why);
    recover_round_t *records = calloc((size_t)o.rounds, sizeof *records);
    if (!records)
        return PERF_ERROR;
    if (strcmp(who.source, "singleton") != 0) {
        code = as_rank(&o, typed_count, typed, records);
    } else {
        printf("# gyre-perf %s: recover: jobs of %d ranks on this host, kind %s\n", gyre_version(), o.ranks,
               o.kind);
        code = recover_jobs(&o, records);
        if (code == PERF_OK)
            code = report(&o, records, o.rounds, typed_count, typed);
    }
    free(records);
    return code;
}
