/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/bucket/run.c: one bucket size: through buckets, in one piece, one by one, and together with
 * computing.
 *
 * All of them work on the memory of one buckets object, in turn in every iteration. They thus differ only in
 * how the tensors are grouped, and a disturbance of the machine hits all alike. The tensors hold zeros while
 * they are timed, which no number of sums changes; checked runs have numbers whose sums are exact. */
#include "tools/gyre-perf/bucket/bucket.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"

/* What is timed in an iteration. */
enum { BUCKETS, ONE, EACH, COMPUTE, STEP, EXPOSED, HIDDEN, ONE_RATIO, EACH_RATIO, GAIN, FIGURES };

typedef struct {
    gyre_comm_t *comm;
    perf_bucket_plan_t *plan;
    perf_work_t *work;
    gyre_buckets_t *buckets;
    perf_case_t c;
    size_t esize, span; /* elements from the first tensor to the end of the last */
    double work_s;      /* of computing, in addition to writing the gradients */
    double *samples;    /* [FIGURES * iters] */
} bench_t;

static void *tensor(const bench_t *b, size_t i)
{
    return gyre_buckets_tensor(b->buckets, i);
}

/* ---- ways to reduce ---- */
static gyre_status_t through_buckets(bench_t *b)
{
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; i < b->plan->tensors->count && status == GYRE_OK; i++)
        status = gyre_buckets_ready(b->buckets, i);
    return status == GYRE_OK ? gyre_buckets_wait(b->buckets) : status;
}

static gyre_status_t in_one(bench_t *b)
{
    void *all = tensor(b, 0);
    return gyre_all_reduce(all, all, b->span, b->plan->type, GYRE_OP(GYRE_SUM), b->comm);
}

static gyre_status_t one_by_one(bench_t *b)
{
    const perf_tensors_t *t = b->plan->tensors;
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; i < t->count && status == GYRE_OK; i++)
        status = gyre_all_reduce(tensor(b, i), tensor(b, i), t->counts[i], b->plan->type, GYRE_OP(GYRE_SUM),
                                 b->comm);
    return status;
}

/* A stand-in for backward: for each tensor its share of the computing, then its gradient is written. */
static gyre_status_t backward(bench_t *b, int reduce)
{
    const perf_tensors_t *t = b->plan->tensors;
    const double per_element =
        (double)perf_work_amount(b->work, b->work_s) / (double)(t->elements ? t->elements : 1);
    size_t elements = 0, done = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; i < t->count && status == GYRE_OK; i++) {
        elements += t->counts[i];
        const size_t until = (size_t)((double)elements * per_element);
        perf_work_do(b->work, until - done);
        done = until;
        memset(tensor(b, i), 0, t->counts[i] * b->esize);
        if (reduce)
            status = gyre_buckets_ready(b->buckets, i);
    }
    return status == GYRE_OK && reduce ? gyre_buckets_wait(b->buckets) : status;
}

static gyre_status_t run(bench_t *b, int what)
{
    switch (what) {
    case BUCKETS:
        return through_buckets(b);
    case ONE:
        return in_one(b);
    case EACH:
        return one_by_one(b);
    default:
        return backward(b, what == STEP);
    }
}

/* ---- timing ---- */
static gyre_status_t average(const bench_t *b, double *values, size_t count)
{
    return gyre_all_reduce(values, values, count, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), b->comm);
}

static gyre_status_t timed_once(bench_t *b, int what, double *seconds)
{
    gyre_status_t status = gyre_barrier(b->comm);
    const base_time_t start = base_now();
    if (status == GYRE_OK)
        status = run(b, what);
    *seconds = (double)(base_now() - start) * 1e-9;
    return status;
}

static gyre_status_t keep_exposure(bench_t *b, int iteration)
{
    const int iters = b->plan->iters;
    double total = 0.0, exposed = 0.0;
    gyre_status_t status = gyre_buckets_times(b->buckets, &total, &exposed);
    b->samples[EXPOSED * iters + iteration] = exposed;
    /* alone nothing travels */
    b->samples[HIDDEN * iters + iteration] =
        total > exposed && gyre_comm_size(b->comm) > 1 ? total - exposed : 0.0;
    return status;
}

static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}

static void keep_ratios(bench_t *b, int iteration)
{
    const int iters = b->plan->iters;
    double *at = b->samples + iteration;
    at[ONE_RATIO * iters] = ratio(at[ONE * iters], at[BUCKETS * iters]);
    at[EACH_RATIO * iters] = ratio(at[EACH * iters], at[BUCKETS * iters]);
    at[GAIN * iters] = ratio(at[COMPUTE * iters] + at[ONE * iters], at[STEP * iters]);
}

/* The fastest of some, averaged over ranks. */
static gyre_status_t fastest(bench_t *b, int what, double *seconds)
{
    enum { TRIES = 4 };
    gyre_status_t status = GYRE_OK;
    *seconds = 1e30;
    for (int i = 0; i < TRIES && status == GYRE_OK; i++) {
        double one = 0.0;
        status = timed_once(b, what, &one);
        *seconds = one < *seconds ? one : *seconds;
    }
    return status == GYRE_OK ? average(b, seconds, 1) : status;
}

/* How much to compute: what was asked for, or twice as long as one large all_reduce, less what writing the
 * gradients takes. */
static gyre_status_t settle_compute(bench_t *b)
{
    double seconds = 0.0;
    gyre_status_t status = GYRE_OK;
    if (b->plan->compute_s < 0.0) {
        status = fastest(b, ONE, &seconds);
        b->plan->compute_s = 2.0 * seconds;
    }
    b->work_s = 0.0;
    if (status == GYRE_OK && b->plan->compute_s > 0.0)
        status = fastest(b, COMPUTE, &seconds);
    b->work_s = b->plan->compute_s > seconds ? b->plan->compute_s - seconds : 0.0;
    return status;
}

/* Iterations below 0 are warm-up. */
static gyre_status_t timed(bench_t *b)
{
    const int iters = b->plan->iters;
    gyre_status_t status = settle_compute(b);
    for (int i = -b->plan->warmup; i < iters && status == GYRE_OK; i++) {
        for (int what = BUCKETS; what <= STEP && status == GYRE_OK; what++) {
            double seconds = 0.0;
            if (what >= COMPUTE && !(b->plan->compute_s > 0.0))
                break;
            status = timed_once(b, what, &seconds);
            if (i >= 0)
                b->samples[what * iters + i] = seconds;
            if (i >= 0 && what == STEP && status == GYRE_OK)
                status = keep_exposure(b, i);
        }
        if (i >= 0)
            keep_ratios(b, i);
    }
    return status;
}

/* ---- checking ---- */
enum { PERIOD = 1021, MAX_TOLD = 3 }; /* elements after which a tensor's input repeats; a prime */

static void of_tensor(bench_t *b, size_t i)
{
    perf_case_set(&b->c, perf_coll_find("all_reduce"), b->plan->type, PERF_SUM, -1,
                  b->plan->tensors->counts[i] * b->esize);
}

/* One period: of this rank's input, or of the sum. Each tensor has numbers of its own. */
static size_t fill_period(const bench_t *b, size_t i, int run_number, int sum, unsigned char *table)
{
    const size_t count = base_min_size(PERIOD, b->plan->tensors->counts[i]);
    const int rep = (int)(i % 30000) + 30000 * (run_number % 2);
    for (size_t j = 0; j < count; j++) {
        for (size_t at = 0; at < b->esize; at += 8) {
            uint64_t bits = 0;
            if (sum)
                (void)perf_expected_word(&b->c, rep, j, at > 0, &bits); /* j lies in it */
            else
                bits = perf_input_word(&b->c, b->c.rank, rep, j, at > 0);
            memcpy(table + j * b->esize + at, &bits, base_min_size(b->esize - at, 8)); /* little-endian */
        }
    }
    return count;
}

static uint64_t check_tensor(const bench_t *b, size_t i, const unsigned char *want, size_t period, int *told)
{
    const unsigned char *got = tensor(b, i);
    const size_t count = b->plan->tensors->counts[i];
    uint64_t wrong = 0;
    for (size_t at = 0; at < count; at += period) {
        const size_t piece = base_min_size(period, count - at);
        if (memcmp(got + at * b->esize, want, piece * b->esize) == 0)
            continue;
        for (size_t j = 0; j < piece; j++) {
            if (memcmp(got + (at + j) * b->esize, want + j * b->esize, b->esize) == 0)
                continue;
            wrong++;
            if ((*told)++ < MAX_TOLD)
                fprintf(stderr, "gyre-perf: rank %d: element %zu of tensor %zu (%zu elements) is wrong\n",
                        b->c.rank, at + j, i, count);
        }
    }
    return wrong;
}

static gyre_status_t check(bench_t *b, uint64_t *nwrong)
{
    static unsigned char table[PERIOD * 16]; /* complex128 is the largest type */
    const perf_tensors_t *t = b->plan->tensors;
    int told = 0;
    *nwrong = 0;
    for (int run_number = 0; run_number < b->plan->check; run_number++) {
        for (size_t i = 0; i < t->count; i++) {
            unsigned char *data = tensor(b, i);
            of_tensor(b, i);
            const size_t period = fill_period(b, i, run_number, 0, table);
            for (size_t at = 0; at < t->counts[i]; at += period)
                memcpy(data + at * b->esize, table, base_min_size(period, t->counts[i] - at) * b->esize);
        }
        gyre_status_t status = through_buckets(b);
        if (status != GYRE_OK)
            return status;
        for (size_t i = 0; i < t->count; i++) {
            of_tensor(b, i);
            const size_t period = fill_period(b, i, run_number, 1, table);
            *nwrong += check_tensor(b, i, table, period, &told);
        }
    }
    return gyre_all_reduce(nwrong, nwrong, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), b->comm);
}

/* ---- one bucket size ---- */
static gyre_status_t create(bench_t *b, size_t bucket_bytes)
{
    const perf_tensors_t *t = b->plan->tensors;
    const gyre_buckets_config_t config = {.size = sizeof config,
                                          .type = b->plan->type,
                                          .op = GYRE_OP(GYRE_SUM),
                                          .mode = GYRE_BUCKET_ALL_REDUCE,
                                          .bucket_bytes = bucket_bytes};
    b->samples = calloc((size_t)b->plan->iters * FIGURES, sizeof *b->samples);
    if (!b->samples || !perf_case_open(&b->c, b->comm))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the times of %d iterations", b->plan->iters);
    gyre_status_t status = gyre_buckets_create(b->comm, &config, t->count, t->counts, &b->buckets);
    if (status != GYRE_OK)
        return status;
    const char *first = tensor(b, 0), *last = tensor(b, t->count - 1);
    b->span = (size_t)(last - first) / b->esize + t->counts[t->count - 1];
    memset(tensor(b, 0), 0, b->span * b->esize); /* page faults belong to no iteration */
    return GYRE_OK;
}

static gyre_status_t fill_row(bench_t *b, perf_bucket_row_t *row)
{
    const size_t iters = (size_t)b->plan->iters;
    double figures[FIGURES];
    for (size_t what = 0; what < FIGURES; what++)
        figures[what] = perf_median(b->samples + what * iters, iters);
    gyre_status_t status = average(b, figures, FIGURES);
    if (status != GYRE_OK)
        return status;
    row->buckets = gyre_buckets_count(b->buckets);
    row->bytes = b->span * b->esize;
    row->time = figures[BUCKETS];
    row->one = figures[ONE];
    row->each = figures[EACH];
    row->compute = figures[COMPUTE];
    row->step = figures[STEP];
    row->exposed = figures[EXPOSED];
    row->hidden = figures[HIDDEN];
    row->one_ratio = figures[ONE_RATIO];
    row->each_ratio = figures[EACH_RATIO];
    row->gain = figures[GAIN];
    return GYRE_OK;
}

gyre_status_t perf_bucket_measure(gyre_comm_t *comm, perf_bucket_plan_t *plan, perf_work_t *work,
                                  size_t bucket_bytes, perf_bucket_row_t *row)
{
    bench_t b = {.comm = comm, .plan = plan, .work = work, .esize = gyre_type_size(plan->type)};
    *row = (perf_bucket_row_t){.bucket_bytes = bucket_bytes};
    gyre_status_t status = create(&b, bucket_bytes);
    if (status == GYRE_OK)
        status = timed(&b);
    if (status == GYRE_OK)
        status = fill_row(&b, row);
    if (status == GYRE_OK)
        status = check(&b, &row->nwrong);
    gyre_status_t destroyed = gyre_buckets_destroy(b.buckets);
    perf_case_close(&b.c);
    free(b.samples);
    return status == GYRE_OK ? destroyed : status;
}
