/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/messages.c: `gyre-perf messages`: latency and bandwidth of messages between pairs of
 * ranks, as OSU's osu_latency, osu_bw, osu_bibw and osu_mbw_mr define them.
 *
 * Rank r sends to rank r + n / 2, all pairs at once. Latency is half of a round trip. Bandwidth: a window of
 * messages is started one after the other, and the receiver answers with 4 bytes when all have come; both:
 * the two ranks send a window to each other. Messages of a window have buffers of their own up to 64 MiB in
 * all, then they share them. */
#include "tools/gyre-perf/command.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"

enum {
    ROOM = 64 << 20,
    ANSWER = 4,
    LARGE = 64 << 10, /* longer messages: */
    LARGE_PART = 10   /* one iteration of so many */
};

typedef struct {
    perf_common_t common;
    size_t min_bytes, max_bytes;
    int factor, iters, warmup, check, window, windows;
} options_t;

typedef struct {
    const options_t *o;
    perf_session_t *s;
    int peer, first; /* first: sends where one side does */
    size_t slots;    /* of the largest size, in each buffer */
    perf_buffers_t buffers;
    gyre_request_t **requests; /* [2 * window] */
    double *samples;           /* [iters] */
    int iters, warmup;         /* of this size */
} bench_t;

/* Of all pairs: medians in seconds, averages over them; bytes per second, sums. */
typedef struct {
    double latency, p99, one_way, both_ways, rate;
    uint64_t nwrong;
} row_t;

static unsigned char *slot(const bench_t *b, unsigned char *buffer, int message)
{
    return buffer + ((size_t)message % b->slots) * b->buffers.slot_bytes;
}

static gyre_status_t start(bench_t *b, int sends, size_t bytes, int message, gyre_request_t **request)
{
    gyre_comm_t *world = b->s->world;
    return sends ? gyre_isend(slot(b, b->buffers.send, message), bytes, GYRE_UINT8, b->peer, world, request)
                 : gyre_irecv(slot(b, b->buffers.recv, message), bytes, GYRE_UINT8, b->peer, world, request);
}

/* A window of messages to the peer, from it, or both, and the answer. */
static gyre_status_t window(bench_t *b, size_t bytes, int sends, int receives)
{
    gyre_status_t status = GYRE_OK;
    size_t count = 0;
    for (int m = 0; m < b->o->window; m++) {
        if (receives && status == GYRE_OK && (status = start(b, 0, bytes, m, &b->requests[count])) == GYRE_OK)
            count++;
        if (sends && status == GYRE_OK && (status = start(b, 1, bytes, m, &b->requests[count])) == GYRE_OK)
            count++;
    }
    const gyre_status_t waited = gyre_wait_all(count, b->requests);
    unsigned char answer[ANSWER] = {0};
    status = status == GYRE_OK ? waited : status;
    if (status == GYRE_OK && receives)
        status = gyre_isend(answer, ANSWER, GYRE_UINT8, b->peer, b->s->world, &b->requests[0]);
    if (status == GYRE_OK && sends)
        status = gyre_recv(answer, ANSWER, GYRE_UINT8, b->peer, b->s->world);
    if (status == GYRE_OK && receives)
        status = gyre_wait(&b->requests[0]);
    return status;
}

static gyre_status_t round_trip(bench_t *b, size_t bytes)
{
    gyre_comm_t *world = b->s->world;
    gyre_status_t status = GYRE_OK;
    for (int leg = 0; leg < 2 && status == GYRE_OK; leg++)
        status = (leg == 0) == b->first ? gyre_send(b->buffers.send, bytes, GYRE_UINT8, b->peer, world)
                                        : gyre_recv(b->buffers.recv, bytes, GYRE_UINT8, b->peer, world);
    return status;
}

typedef enum { TRIP, ONE_WAY, BOTH_WAYS } what_t;

static gyre_status_t once(bench_t *b, size_t bytes, what_t what)
{
    return what == TRIP ? round_trip(b, bytes)
                        : window(b, bytes, what == BOTH_WAYS || b->first, what == BOTH_WAYS || !b->first);
}

/* Times each iteration, into the samples. */
static gyre_status_t timed(bench_t *b, size_t bytes, what_t what)
{
    gyre_status_t status = GYRE_OK;
    for (int i = 0; i < b->warmup && status == GYRE_OK; i++)
        status = once(b, bytes, what);
    if (status == GYRE_OK)
        status = gyre_barrier(b->s->world);
    for (int i = 0; i < b->iters && status == GYRE_OK; i++) {
        const base_time_t before = base_now();
        status = once(b, bytes, what);
        b->samples[i] = (double)(base_now() - before) * 1e-9;
    }
    return status;
}

static unsigned char expected(int rank, int message, size_t at)
{
    return (unsigned char)((size_t)rank * 7 + (size_t)message * 13 + at * 31 + (at >> 8) + 1);
}

/* Both ways once more, and every byte of every buffer is looked at. */
static gyre_status_t checked(bench_t *b, size_t bytes, uint64_t *nwrong)
{
    const options_t *o = b->o;
    gyre_status_t status = GYRE_OK;
    const int messages = (size_t)o->window < b->slots ? o->window : (int)b->slots;
    *nwrong = 0;
    for (int run = 0; run < o->check && status == GYRE_OK; run++) {
        for (int m = 0; m < messages; m++)
            for (size_t i = 0; i < bytes; i++) {
                slot(b, b->buffers.send, m)[i] = expected(b->s->rank, m + run, i);
                slot(b, b->buffers.recv, m)[i] = (unsigned char)~expected(b->peer, m + run, i);
            }
        status = once(b, bytes, BOTH_WAYS);
        for (int m = 0; m < messages && status == GYRE_OK; m++) {
            for (size_t i = 0; i < bytes; i++)
                *nwrong += slot(b, b->buffers.recv, m)[i] != expected(b->peer, m + run, i);
        }
    }
    return status == GYRE_OK ? gyre_all_reduce(nwrong, nwrong, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), b->s->world)
                             : status;
}

static gyre_status_t measure_row(bench_t *b, size_t bytes, row_t *row)
{
    const int part = bytes > LARGE ? LARGE_PART : 1;
    b->iters = (b->o->iters + part - 1) / part;
    b->warmup = (b->o->warmup + part - 1) / part;
    const size_t iters = (size_t)b->iters, moved = bytes * (size_t)b->o->window;
    double figures[5] = {0};
    gyre_status_t status = timed(b, bytes, TRIP);
    if (status == GYRE_OK) {
        figures[0] = perf_median(b->samples, iters) / 2; /* sorts them */
        figures[1] = b->samples[(iters * 99 + 99) / 100 - 1] / 2;
    }
    for (int both = 0; both < 2 && status == GYRE_OK; both++) {
        status = timed(b, bytes, both ? BOTH_WAYS : ONE_WAY);
        const double seconds = perf_median(b->samples, iters);
        if (status != GYRE_OK || seconds <= 0.0)
            continue;
        figures[2 + both] = (double)moved * (both + 1) / seconds;
        if (!both)
            figures[4] = b->o->window / seconds;
    }
    if (status == GYRE_OK)
        status = gyre_all_reduce(figures, figures, 5, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), b->s->world);
    if (status != GYRE_OK)
        return status;
    const double pairs = b->s->n / 2;
    *row = (row_t){.latency = figures[0],
                   .p99 = figures[1],
                   .one_way = figures[2] * pairs,
                   .both_ways = figures[3] * pairs,
                   .rate = figures[4] * pairs};
    return checked(b, bytes, &row->nwrong);
}

static void report_row(bench_t *b, size_t bytes, const row_t *row)
{
    b->s->nwrong += row->nwrong;
    if (b->s->rank != 0)
        return;
    printf("%12zu", bytes);
    perf_print_figure(row->latency * 1e6, 9);
    perf_print_figure(row->p99 * 1e6, 9);
    perf_print_figure(row->one_way * 1e-9, 9);
    perf_print_figure(row->both_ways * 1e-9, 9);
    perf_print_figure(row->rate * 1e-3, 9);
    if (b->o->check)
        printf("  %6llu\n", (unsigned long long)row->nwrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (!b->s->json)
        return;
    json_t *j = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "size", (json_int_t)bytes, "latency",
                          row->latency * 1e6, "latency_p99", row->p99 * 1e6, "bw", row->one_way * 1e-9,
                          "bibw", row->both_ways * 1e-9, "rate", row->rate);
    perf_put(j, "nwrong", b->o->check ? json_integer((json_int_t)row->nwrong) : json_null());
    (void)json_array_append_new(json_object_get(b->s->json, "results"), j);
}

static gyre_status_t run(const options_t *o, perf_session_t *s)
{
    bench_t b = {.o = o, .s = s, .first = s->rank < s->n / 2};
    b.peer = b.first ? s->rank + s->n / 2 : s->rank - s->n / 2;
    b.slots = o->max_bytes > 0 ? (size_t)ROOM / o->max_bytes : (size_t)o->window;
    b.slots = b.slots < 1 ? 1 : b.slots > (size_t)o->window ? (size_t)o->window : b.slots;
    const perf_options_t room = {.max_bytes = o->max_bytes, .aggregate = (int)b.slots, .windows = o->windows};
    b.samples = calloc((size_t)o->iters, sizeof *b.samples);
    b.requests = calloc((size_t)o->window * 2, sizeof *b.requests);
    gyre_status_t status = b.samples && b.requests
                               ? perf_buffers_create(&room, &b.buffers)
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d iterations", o->iters);
    for (size_t size = o->min_bytes; status == GYRE_OK;) {
        row_t row = {0};
        status = measure_row(&b, size, &row);
        if (status == GYRE_OK)
            report_row(&b, size, &row);
        if (size >= o->max_bytes || size > o->max_bytes / (size_t)o->factor)
            break;
        size = size ? size * (size_t)o->factor : 1;
    }
    perf_buffers_destroy(&b.buffers);
    free(b.requests);
    free(b.samples);
    return status;
}

/* ---- the command line ---- */
static int parse(int argc, char **argv, options_t *o, char *why, size_t bytes)
{
    const flag_t rows[] = {
        {FLAG('b', "minbytes", SIZE, &o->min_bytes, "SIZE",
              "first size (8); sizes such as 8, 64K, 4MiB, 1g")},
        {FLAG('e', "maxbytes", SIZE, &o->max_bytes, "SIZE", "last size (4M)")},
        {FLAG('f', "stepfactor", INT, &o->factor, "N", "multiplies from size to size (8)"), .low = 2,
         .high = 1 << 30},
        {FLAG('n', "iters", INT, &o->iters, "N",
              "timed round trips, and windows (100); of messages over 64 KiB a tenth"),
         .low = 1, .high = 1 << 20},
        {FLAG('w', "warmup_iters", INT, &o->warmup, "N", "of each before them (10)"), .low = 0,
         .high = 1 << 20},
        {FLAG('c', "check", INT, &o->check, "N", "checked windows per row; 0: no check (1)"), .low = 0,
         .high = 1 << 20},
        {FLAG('W', "window", INT, &o->window, "N", "messages that are under way at once (64)"), .low = 1,
         .high = 4096},
        {FLAG('R', "local_register", CHOICE, &o->windows, "0|1",
              "1: buffers from gyre_mem_alloc (1)\n0: from malloc")},
        PERF_RUN_ROWS(&o->common),
    };
    const flags_t flags = {
        .program = "gyre-perf messages",
        .usage = "usage: gyre-perf messages [options]      an even number of ranks, for example\n"
                 "       ucx-run -n 2 gyre-perf messages -b 8 -e 4M -f 8\n"
                 "Measures messages between pairs of ranks: latency, bandwidth, both directions, rate.\n",
        .notes =
            "Rank r has rank r + n / 2 for its partner; all pairs run at once, and bandwidths and rates are\n"
            "their sums. Latency is half of a round trip: the median, and p99.\n",
        FLAG_ROWS(rows)};
    int word = 0;
    *o = (options_t){.min_bytes = 8,
                     .max_bytes = 4u << 20,
                     .factor = 8,
                     .iters = 100,
                     .warmup = 10,
                     .check = 1,
                     .window = 64,
                     .windows = 1,
                     .common = {.progress_thread = -1}};
    const int code = perf_flags_read(&flags, argc, argv, &word, stdout, why, bytes);
    if (code != PERF_OK)
        return code;
    if (word < argc)
        snprintf(why, bytes, "messages: \"%s\" is not an option", argv[word]);
    else if (o->min_bytes > o->max_bytes)
        snprintf(why, bytes, "the first size (-b %zu) is larger than the last (-e %zu)", o->min_bytes,
                 o->max_bytes);
    else
        return PERF_OK;
    return PERF_USAGE;
}

int perf_messages_main(int argc, char **argv, int typed_count, char **typed);
int perf_messages_main(int argc, char **argv, int typed_count, char **typed)
{
    options_t o;
    perf_session_t s;
    char why[512];
    int code = parse(argc, argv, &o, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    comm_identity_t who;
    if (code == PERF_OK && (base_settings_load() != GYRE_OK || comm_identity_find(NULL, &who) != GYRE_OK)) {
        snprintf(why, sizeof why, "%s", gyre_last_error());
        code = PERF_USAGE;
    } else if (code == PERF_OK && who.size % 2 != 0) {
        snprintf(why, sizeof why, "messages: an even number of ranks, and this job has %d", who.size);
        code = PERF_USAGE;
    }
    if (code != PERF_OK)
        return perf_usage(why);
    code = perf_session_open(&s, &o.common, "messages", typed_count, typed);
    if (code != PERF_OK)
        return code;
    if (s.rank == 0) {
        printf("# buffers from %s, windows of %d messages, %d pair%s\n#\n",
               o.windows ? "gyre_mem_alloc" : "malloc", o.window, s.n / 2, s.n == 2 ? "" : "s");
        printf("# %10s  %9s  %9s  %9s  %9s  %9s  %6s\n", "size", "latency", "p99", "bw", "bibw", "rate",
               "#wrong");
        printf("# %10s  %9s  %9s  %9s  %9s  %9s  %6s\n", "(B)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(K/s)",
               "");
    }
    if (s.json) {
        json_t *config = json_object_get(s.json, "config");
        perf_put(config, "collective", json_string("messages"));
        perf_put(config, "minimum_bytes", json_integer((json_int_t)o.min_bytes));
        perf_put(config, "maximum_bytes", json_integer((json_int_t)o.max_bytes));
        perf_put(config, "step_factor", json_integer(o.factor));
        perf_put(config, "iterations", json_integer(o.iters));
        perf_put(config, "warmup_iters", json_integer(o.warmup));
        perf_put(config, "validation", json_integer(o.check));
        perf_put(config, "window", json_integer(o.window));
        perf_put(config, "registered", json_integer(o.windows));
    }
    return perf_session_close(&s, run(&o, &s));
}
