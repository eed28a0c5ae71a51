/* SPDX-License-Identifier: Apache-2.0 */
/* bench/peers_loop.c: the benchmark loop, the same for every library. One rank of a contender of `make
 * bench-peers`.
 *
 *   peers-LIBRARY @SOCKET [what the backend wants]
 *
 * A contender is a resident program: its ranks join their job once, connect to the orchestrator
 * (bench_peers.py, which listens on the abstract Unix socket SOCKET) and then sleep in read(2), so that a
 * contender that waits its turn takes no time from the one that is measured. Lines from the orchestrator, the
 * same to every rank:
 *
 *   run COLLECTIVE BYTES malloc|own COLD SEED BUDGET_US DEADLINE_S SHARED  ->  ok ... | none | error TEXT
 *   quit
 *
 * BYTES is the whole vector (the larger of the two buffers), a multiple of 4 * n for the operations that
 * divide it. COLD is 0, or the bytes of each of a rank's two buffers: each call then uses the next BYTES of
 * them, so that neither its input nor its result is in a cache, if COLD is large enough. SHARED is 1 if there
 * are more ranks than cores: a rank that is bound cannot count them. A run:
 *   1. fresh data, a poisoned result, one call, every element of the result compared: all sums are of small
 *      integers and so exact in any order; then other data and a poisoned result again, for what is timed;
 *   2. warm-up: more and more calls until they take an eighth of the budget, from which rank 0 plans the
 *      rest;
 *   3. batches of calls back to back, each after a barrier, each timed as a whole: time per call;
 *   4. calls timed one by one, for the percentiles (calls that fill a batch alone are these themselves);
 *   5. the last result is compared; then other data, a poisoned result, one more call, and its result
 *      compared. So a library that works once and then does nothing, or gives again what it gave before, is
 *      found out.
 * The answer: ok CALLS_PER_BATCH SINGLES P50_NS P99_NS WRONG CPU_NS, and for each batch NS_PER_CALL/TAKEN.
 * CPU_NS is the processor time of this process since the line came. TAKEN is how often the kernel gave this
 * rank's core to somebody else while it could have run. The orchestrator takes the slowest rank's figure of
 * each batch. */
#include "bench/peers.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    PERIOD = 1009, /* of the data: a prime, so that no block boundary meets it */
    RESEED = 501,  /* no multiple of 31 or 61: every element changes, none to another rank's; see digit */
    MAX_BATCHES =
        10, /* the median of so many stands for the run; half as many, longer ones, where cores are shared */
    MAX_SINGLES = 2000, /* p99 of so many calls has 20 beyond it */
    MAX_CALLS = 1 << 20,
};
/* Larger buffers are given back after each run: seven contenders with eight ranks each would fill the
 * machine. */
static const size_t keep_bytes = 4u << 20;

static const char *const collective_names[BENCH_COLLECTIVES] = {"all_reduce", "reduce_scatter", "all_gather",
                                                                "broadcast",  "all_to_all",     "barrier",
                                                                "split",      "first_call"};

/* ---- time ---------------------------------------------------------------------------------------------- */

static double clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* What a call is timed with that takes less than the clock: on x86 the time-stamp counter, a third of the
 * cost. */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return (uint64_t)now_ns();
#endif
}

static double ns_per_tick(double since_ns, uint64_t since_ticks)
{
    return (now_ns() - since_ns) / (double)(ticks() - since_ticks);
}

/* How often this thread lost its core while it could have run; a sched_yield that let somebody in counts. */
static long times_taken(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts `values`, which are at least one. The smallest value that a fraction q of them do not exceed. */
static double quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof *values, by_size);
    size_t at = (size_t)ceil(q * (double)count);
    return values[at ? at - 1 : 0];
}

/* ---- data ---------------------------------------------------------------------------------------------- */

/* Element i of rank r's input is digit((i + 31 r + seed) % PERIOD): small integers, whose sums fp32 holds
 * exactly. */
static float digit(size_t j)
{
    return (float)((int)(j * 37 % 61) - 30);
}

static void make_table(float *table, int rank, int sum_over, size_t seed)
{
    for (size_t j = 0; j < PERIOD; j++) {
        table[j] = 0.0f;
        for (int r = rank; r < rank + sum_over; r++)
            table[j] += digit((j + 31 * (size_t)r + seed) % PERIOD);
    }
}

/* data[i] = table[(first + i) % PERIOD] */
static void fill(float *data, size_t count, size_t first, const float *table)
{
    size_t at = first % PERIOD;
    for (size_t i = 0; i < count;) {
        size_t part = count - i < PERIOD - at ? count - i : PERIOD - at;
        memcpy(data + i, table + at, part * sizeof *data);
        i += part;
        at = 0;
    }
}

/* How many elements differ from what fill would have written. */
static size_t wrong(const float *data, size_t count, size_t first, const float *table)
{
    size_t bad = 0, at = first % PERIOD;
    for (size_t i = 0; i < count;) {
        size_t part = count - i < PERIOD - at ? count - i : PERIOD - at;
        if (memcmp(data + i, table + at, part * sizeof *data) != 0)
            for (size_t j = 0; j < part; j++)
                bad += memcmp(data + i + j, table + at + j, sizeof *data) != 0;
        i += part;
        at = 0;
    }
    return bad;
}

/* ---- one run ------------------------------------------------------------------------------------------- */

typedef struct {
    int rank, size;
    int collective;
    int own, shares_cores;
    size_t bytes, cold, seed;
    double budget_ns;
    size_t count;          /* what the call is given */
    size_t sent, received; /* elements of the two buffers that count */
    float *send, *recv;
    /* In elements, all 0 without COLD: where the next call's data begin, how far the ones after it are, and
     * where it goes on at the beginning. */
    size_t next, stride, end;
} run_t;

typedef struct {
    size_t calls, batches, singles;
} plan_t;

typedef struct {
    double ns[MAX_BATCHES]; /* per call */
    long taken[MAX_BATCHES];
    double singles[MAX_SINGLES]; /* ticks of each call */
} samples_t;

typedef struct {
    void *memory;
    size_t bytes;
} buffer_t;
static buffer_t buffers[2][2]; /* [own][send, recv] */

static void release(int own)
{
    for (int i = 0; i < 2; i++) {
        buffer_t *b = &buffers[own][i];
        if (b->memory && own)
            bench_backend.own_free(b->memory);
        else
            free(b->memory);
        *b = (buffer_t){0};
    }
}

/* At least `bytes` in each of the two buffers of this kind. */
static int provide(int own, size_t bytes)
{
    if (buffers[own][0].bytes >= bytes && buffers[own][0].memory)
        return 0;
    release(own);
    for (int i = 0; i < 2; i++) {
        buffer_t *b = &buffers[own][i];
        b->memory = own ? bench_backend.own_alloc(bytes) : malloc(bytes);
        if (!b->memory)
            return -1;
        b->bytes = bytes;
    }
    return 0;
}

static void set_counts(run_t *r)
{
    size_t whole = r->bytes / sizeof(float), part = whole / (size_t)r->size;
    switch (r->collective) {
    case BENCH_REDUCE_SCATTER:
        r->count = r->received = part;
        r->sent = whole;
        break;
    case BENCH_ALL_GATHER:
        r->count = r->sent = part;
        r->received = whole;
        break;
    case BENCH_BROADCAST:
        r->count = r->received = whole;
        r->sent = 0;
        break;
    case BENCH_ALL_TO_ALL:
        r->count = part;
        r->sent = r->received = whole;
        break;
    case BENCH_ALL_REDUCE:
    case BENCH_FIRST_CALL:
        r->count = r->sent = r->received = whole;
        break;
    default:
        r->count = r->sent = r->received = 0;
        break;
    }
    const size_t line = 64 / sizeof(float);
    r->next = 0;
    r->stride = r->cold ? (whole + line - 1) / line * line : 0;
    r->end = r->cold ? r->stride * (r->cold / sizeof(float) / r->stride + 1) : 0;
}

static void make_inputs(const run_t *r)
{
    float table[PERIOD];
    make_table(table, r->rank, 1, r->seed);
    size_t at = 0;
    do {
        fill(r->send + at, r->sent, 0, table);
        memset(r->recv + at, 0xff, r->received * sizeof(float)); /* NaN */
        if (r->collective == BENCH_BROADCAST && r->rank == 0)
            fill(r->recv + at, r->received, 0, table);
        at += r->stride;
    } while (at < r->end);
}

/* Other inputs than before, and nothing of the old result left. Needs no barrier: after a call the buffers
 * are ours. */
static void renew_inputs(run_t *r)
{
    r->seed += RESEED;
    make_inputs(r);
}

/* Elements of the result that are not what they must be. */
static size_t check(const run_t *r)
{
    float table[PERIOD];
    const float *recv = r->recv + (r->next ? r->next : r->end) - r->stride; /* of the last call */
    size_t bad = 0, mine = (size_t)r->rank * r->count;
    switch (r->collective) {
    case BENCH_ALL_REDUCE:
    case BENCH_FIRST_CALL:
    case BENCH_REDUCE_SCATTER:
        make_table(table, 0, r->size, r->seed);
        return wrong(recv, r->received, r->collective == BENCH_REDUCE_SCATTER ? mine : 0, table);
    case BENCH_BROADCAST:
        make_table(table, 0, 1, r->seed);
        return wrong(recv, r->received, 0, table);
    case BENCH_ALL_GATHER:
    case BENCH_ALL_TO_ALL:
        for (int p = 0; p < r->size; p++) {
            make_table(table, p, 1, r->seed);
            bad += wrong(recv + (size_t)p * r->count, r->count, r->collective == BENCH_ALL_GATHER ? 0 : mine,
                         table);
        }
        return bad;
    default:
        return 0;
    }
}

/* Ranks that were just woken may share a core although there is one for each: a moment of work before the
 * first call lets the kernel spread them. With more ranks than cores there is nothing to spread. */
static void spread(const run_t *r)
{
    double end = now_ns() + 2e6;
    while (!r->shares_cores && now_ns() < end)
        ;
}

static int barrier(void)
{
    return bench_backend.call[BENCH_BARRIER](NULL, NULL, 0);
}

static int call_once(run_t *r, bench_call_fn call)
{
    const size_t at = r->next;
    r->next += r->stride;
    if (r->next == r->end)
        r->next = 0;
    return call(r->send + at, r->recv + at, r->count);
}

static int call_many(run_t *r, size_t calls)
{
    const bench_call_fn call = bench_backend.call[r->collective];
    int rc = 0;
    for (size_t i = 0; i < calls && rc == 0; i++)
        rc = call_once(r, call);
    return rc;
}

/* What rank 0 says, in numbers that fp32 holds exactly, to all ranks. */
static int agree(float *numbers, size_t count)
{
    return bench_backend.call[BENCH_BROADCAST](NULL, numbers, count);
}

/* Warms up, and divides the budget: half of it goes to batches, a quarter to single calls. With COLD each
 * part of the buffers is used once before, so that the pages of all are mapped, unless that takes too
 * long. */
static int make_plan(run_t *r, plan_t *plan)
{
    float next = 1.0f, said[3];
    size_t calls = 1, parts = r->end ? r->end / r->stride : 0;
    double per_call = 0.0, latest = now_ns() + 10 * r->budget_ns;
    int rc = 0;
    while (next > 0.0f && rc == 0) {
        calls = (size_t)next;
        if ((rc = barrier()) != 0)
            break;
        double from = now_ns();
        if ((rc = call_many(r, calls)) != 0 || (rc = barrier()) != 0)
            break;
        double took = now_ns() - from;
        per_call = took / (double)calls;
        parts -= parts < calls ? parts : calls;
        const int long_enough = took >= r->budget_ns / 8 || calls >= MAX_CALLS / 4;
        next = !long_enough ? (float)(4 * calls) : parts && now_ns() < latest ? (float)calls : 0.0f;
        rc = agree(&next, 1);
    }
    if (rc)
        return rc;
    const int most = r->shares_cores ? MAX_BATCHES / 2 : MAX_BATCHES;
    double batch = r->budget_ns / 2 / most / per_call;
    said[0] = batch < 1 ? 1.0f : batch > MAX_CALLS ? (float)MAX_CALLS : (float)(size_t)batch;
    double batches = batch < 1 ? r->budget_ns / per_call : most;
    said[1] = batches < 0.25   ? 1.0f
              : batches < 2    ? 2.0f
              : batches > most ? (float)most
                               : (float)(size_t)batches;
    double singles = r->budget_ns / 4 / per_call;
    said[2] = batch < 2 ? 0.0f : singles > MAX_SINGLES ? (float)MAX_SINGLES : (float)(size_t)singles;
    rc = agree(said, 3);
    *plan = (plan_t){(size_t)said[0], (size_t)said[1], (size_t)said[2]};
    return rc;
}

static int measure(run_t *r, const plan_t *plan, samples_t *out)
{
    const bench_call_fn call = bench_backend.call[r->collective];
    int rc = 0;
    for (size_t b = 0; b < plan->batches && rc == 0; b++) {
        if ((rc = barrier()) != 0)
            break;
        long taken = times_taken();
        double from = now_ns();
        rc = call_many(r, plan->calls);
        out->ns[b] = (now_ns() - from) / (double)plan->calls;
        out->taken[b] = times_taken() - taken;
    }
    if (rc == 0 && plan->singles)
        rc = barrier();
    uint64_t before = ticks();
    for (size_t i = 0; i < plan->singles && rc == 0; i++) {
        rc = call_once(r, call);
        uint64_t after = ticks();
        out->singles[i] = (double)(after - before);
        before = after;
    }
    return rc;
}

/* ---- talking to the orchestrator ----------------------------------------------------------------------- */

static int control = -1;
static double start_ns, cpu_ns; /* cpu_ns: of this process, when the line began to come */
static uint64_t start_ticks;

static int say(const char *text)
{
    size_t length = strlen(text);
    while (length) {
        ssize_t n = write(control, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

/* A line without its end; -1 when the orchestrator is gone. */
static int hear(char *line, size_t bytes)
{
    size_t at = 0;
    while (at + 1 < bytes) {
        ssize_t n = read(control, line + at, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        if (at == 0)
            cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        if (line[at] == '\n') {
            line[at] = '\0';
            return 0;
        }
        at++;
    }
    return -1;
}

static int connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (name[0] != '@' || length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path + 1, name + 1, length - 1); /* abstract: no file to clean up */
    control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return control < 0 ? -1
                       : connect(control, (struct sockaddr *)&address,
                                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

/* After an error the library's state is unknown: says why, and asks to be ended. */
static int fail(const char *what, int rc)
{
    char line[600];
    snprintf(line, sizeof line, "error %s: %.500s", what, rc ? bench_backend.error(rc) : "no memory");
    for (char *c = line; *c; c++)
        if (*c == '\n')
            *c = ' ';
    strcat(line, "\n");
    say(line);
    return -1;
}

static int report(const plan_t *plan, samples_t *samples, size_t bad)
{
    char line[512];
    double scale = ns_per_tick(start_ns, start_ticks), p50, p99;
    if (plan->singles) {
        p50 = scale * quantile(samples->singles, plan->singles, 0.5);
        p99 = scale * quantile(samples->singles, plan->singles, 0.99);
    } else {
        double sorted[MAX_BATCHES];
        memcpy(sorted, samples->ns, plan->batches * sizeof *sorted);
        p50 = quantile(sorted, plan->batches, 0.5);
        p99 = quantile(sorted, plan->batches, 0.99);
    }
    const double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    int at = snprintf(line, sizeof line, "ok %zu %zu %.1f %.1f %zu %.0f", plan->calls, plan->singles, p50,
                      p99, bad, cpu);
    for (size_t b = 0; b < plan->batches; b++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %.2f/%ld", samples->ns[b], samples->taken[b]);
    snprintf(line + at, sizeof line - (size_t)at, "\n");
    return say(line);
}

/* Nonzero: the rank has to end. */
static int run(run_t *r)
{
    static samples_t samples;
    plan_t plan;
    if (!bench_backend.call[r->collective] || (r->own && !bench_backend.own_alloc))
        return say("none\n");
    set_counts(r);
    const size_t bytes = r->end ? r->end * sizeof(float) : r->bytes ? r->bytes : sizeof(float);
    if (provide(r->own, bytes) != 0)
        return fail("allocating", 0);
    r->send = buffers[r->own][0].memory;
    r->recv = buffers[r->own][1].memory;
    make_inputs(r);
    spread(r);
    int rc = call_many(r, 1);
    if (rc)
        return fail(collective_names[r->collective], rc);
    size_t bad = check(r);
    renew_inputs(r);
    if ((rc = make_plan(r, &plan)) != 0 || (rc = measure(r, &plan, &samples)) != 0)
        return fail(collective_names[r->collective], rc);
    bad += check(r);
    renew_inputs(r);
    if ((rc = call_many(r, 1)) != 0)
        return fail(collective_names[r->collective], rc);
    bad += check(r);
    /* Nobody gives memory back that a peer still reads. */
    if ((rc = barrier()) != 0)
        return fail("barrier", rc);
    if (bytes > keep_bytes)
        release(r->own);
    return report(&plan, &samples, bad);
}

static int parse(const char *line, run_t *r, unsigned *deadline_s)
{
    char collective[32], kind[16];
    double budget_us;
    if (sscanf(line, "run %31s %zu %15s %zu %zu %lf %u %d", collective, &r->bytes, kind, &r->cold, &r->seed,
               &budget_us, deadline_s, &r->shares_cores) != 8 ||
        (r->cold && r->bytes < sizeof(float)))
        return -1;
    r->own = strcmp(kind, "own") == 0;
    r->budget_ns = 1000.0 * budget_us;
    for (r->collective = 0; r->collective < BENCH_COLLECTIVES; r->collective++)
        if (strcmp(collective, collective_names[r->collective]) == 0)
            return 0;
    return -1;
}

int main(int argc, char **argv)
{
    char line[256];
    run_t r = {0};
    unsigned deadline_s;
    if (argc < 2) {
        fprintf(stderr, "usage: %s @SOCKET [arguments of the backend]; bench_peers.py starts it\n", argv[0]);
        return 2;
    }
    const char *address = argv[1];
    start_ns = now_ns();
    start_ticks = ticks();
    alarm(60); /* for joining the job; each run sets its own */
    if (bench_backend.init(argc - 2, argv + 2, &r.rank, &r.size) != 0)
        return 1;
    if (connect_to(address) != 0) {
        fprintf(stderr, "rank %d: no orchestrator at %s: %s\n", r.rank, address, strerror(errno));
        return 1;
    }
    snprintf(line, sizeof line, "hello %d %d %ld %.200s\n", r.rank, r.size, (long)getpid(),
             bench_backend.version());
    if (say(line) != 0)
        return 1;
    for (;;) {
        alarm(0);
        if (hear(line, sizeof line) != 0)
            _exit(1); /* the orchestrator is gone, and with it the one who would end a finalize that hangs */
        if (strcmp(line, "quit") == 0)
            break;
        if (parse(line, &r, &deadline_s) != 0) {
            fprintf(stderr, "rank %d: cannot read '%s'\n", r.rank, line);
            _exit(1);
        }
        alarm(deadline_s);
        if (run(&r) != 0)
            _exit(1);
    }
    alarm(20);
    release(0);
    release(1);
    bench_backend.finalize();
    return 0;
}
