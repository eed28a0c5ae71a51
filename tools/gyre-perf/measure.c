/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/measure.c: buffers, the timing loop, the checked runs.
 *
 * The loop itself does nothing but the operations and one reading of the clock per iteration, counted into a
 * fixed logarithmic histogram: no system call and no allocation of its own, whatever the number of
 * iterations. */
#include "tools/gyre-perf/perf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine/cgroup.h"
#include "base/machine/memory.h"
#include "base/order.h"
#include "base/settings/size.h"

/* ---- percentiles ---- */

/* Values below 64 have a bucket each; above, an octave is cut into 64, so that a bucket is at most 1/64 of
 * its value wide. */
static int bucket_of(int64_t ns)
{
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    if (v < 64)
        return (int)v;
    int octave = 63 - __builtin_clzll(v); /* >= 6 */
    int index = (octave - 5) * 64 + (int)(v >> (octave - 6) & 63);
    return index < PERF_BUCKETS ? index : PERF_BUCKETS - 1;
}

static double bucket_middle(int index)
{
    if (index < 64)
        return index;
    double width = ldexp(1.0, index / 64 - 1);
    return (64 + index % 64) * width + width / 2;
}

void perf_histogram_clear(perf_histogram_t *h)
{
    memset(h, 0, sizeof *h);
    h->min = INT64_MAX;
}

void perf_histogram_add(perf_histogram_t *h, int64_t ns)
{
    h->buckets[bucket_of(ns)]++;
    h->samples++;
    h->sum += (double)ns;
    h->squares += (double)ns * (double)ns;
    h->min = ns < h->min ? ns : h->min;
    h->max = ns > h->max ? ns : h->max;
}

double perf_histogram_percentile(const perf_histogram_t *h, double percent)
{
    uint64_t rank = (uint64_t)ceil((double)h->samples * percent / 100.0), seen = 0;
    for (int i = 0; i < PERF_BUCKETS && h->samples > 0; i++) {
        seen += h->buckets[i];
        if (seen >= (rank ? rank : 1)) /* a bucket's middle may lie outside of what was seen */
            return fmin(fmax(bucket_middle(i), (double)h->min), (double)h->max);
    }
    return 0.0;
}

gyre_status_t perf_histogram_merge(perf_histogram_t *h, gyre_comm_t *comm)
{
    double sums[2] = {h->sum, h->squares};
    int64_t ends[2] = {-h->min, h->max};
    gyre_status_t status =
        gyre_all_reduce(h->buckets, h->buckets, PERF_BUCKETS, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm);
    if (status == GYRE_OK)
        status = gyre_all_reduce(&h->samples, &h->samples, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm);
    if (status == GYRE_OK)
        status = gyre_all_reduce(sums, sums, 2, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
    if (status == GYRE_OK)
        status = gyre_all_reduce(ends, ends, 2, GYRE_INT64, GYRE_OP(GYRE_MAX), comm);
    if (status != GYRE_OK)
        return status;
    h->sum = sums[0], h->squares = sums[1];
    h->min = -ends[0], h->max = ends[1];
    return GYRE_OK;
}

/* ---- buffers ---- */
static gyre_status_t allocate(int windows, size_t bytes, unsigned char **out)
{
    void *p = NULL;
    if (windows) {
        gyre_status_t status = gyre_mem_alloc(bytes, &p);
        if (status != GYRE_OK)
            return status;
    } else {
        p = malloc(bytes);
        if (!p)
            return gyre_fail(GYRE_ERR_NO_MEMORY,
                             "no memory for a buffer of %zu bytes; a smaller -e or -m helps", bytes);
    }
    memset(p, 0, bytes); /* page faults belong to no iteration */
    *out = p;
    return GYRE_OK;
}

/* slot: bytes of one operation's buffer; total: of all that one iteration uses. 0: too many. */
static int sizes(const perf_options_t *o, size_t *slot, size_t *total)
{
    if (!base_mul(o->max_bytes, o->leaves > 1 ? (size_t)o->leaves : 1, slot) ||
        !base_add(*slot, 2 * PERF_GUARD_BYTES + o->misalign + 63, slot))
        return 0;
    *slot &= ~(size_t)63;
    return base_mul(*slot, (size_t)perf_slots(o), total);
}

gyre_status_t perf_buffers_fit(const perf_options_t *o, int local, int ranks)
{
    const base_memory_t host = base_memory_now();
    const uint64_t limit = base_cgroup_limits("").memory;
    uint64_t has = host.available == UINT64_MAX ? UINT64_MAX : host.available + host.swap;
    size_t slot, total, need;
    has = limit < has ? limit : has;
    if (o->cuda || !sizes(o, &slot, &total)) /* perf_buffers_create has words for it */
        return GYRE_OK;
    if (base_mul(total, 2 * (size_t)ranks, &need) && need <= has)
        return GYRE_OK;
    char all[BASE_SIZE_TEXT], least[BASE_SIZE_TEXT];
    base_size_about(2.0 * (double)total * ranks, all);
    base_size_about((double)has, least);
    return local != 0 ? gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the buffers")
                      : gyre_fail(GYRE_ERR_NO_MEMORY,
                                  "the buffers of %d rank%s on this host need %s, and it has %s: take a "
                                  "smaller -e or -m",
                                  ranks, ranks == 1 ? "" : "s", all, least);
}

gyre_status_t perf_buffers_create(const perf_options_t *o, perf_buffers_t *b)
{
    size_t slot = 0, total = 0;
    *b = (perf_buffers_t){.windows = o->windows};
    if (!sizes(o, &slot, &total))
        return gyre_fail(GYRE_ERR_OVERFLOW, "-e %zu with -m %d and --streams %d does not fit in memory",
                         o->max_bytes, o->aggregate, o->streams);
    b->slot_bytes = slot;
    gyre_status_t status;
    b->cuda = o->cuda;
    if (b->cuda) {
        b->device = o->cuda - 1;
        status = perf_memory_open(o, b, total);
    } else {
        status = allocate(o->windows, total, &b->send);
        if (status == GYRE_OK)
            status = allocate(o->windows, total, &b->recv);
    }
    for (int half = 0; half < 2 && o->iterations && status == GYRE_OK; half++) {
        b->times[half] = calloc((size_t)o->iters, sizeof *b->times[half]);
        if (!b->times[half])
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the times of %d iterations", o->iters);
    }
    if (status != GYRE_OK)
        perf_buffers_destroy(b);
    return status;
}

void perf_buffers_destroy(perf_buffers_t *b)
{
    if (b->cuda) {
        perf_memory_close(b);
    } else if (b->windows) { /* the library logs errors here; they change nothing */
        if (b->send)
            (void)gyre_mem_free(b->send);
        if (b->recv)
            (void)gyre_mem_free(b->recv);
    } else {
        free(b->send);
        free(b->recv);
    }
    b->send = b->recv = NULL;
    for (int half = 0; half < 2; half++) {
        free(b->times[half]);
        b->times[half] = NULL;
    }
}

perf_place_t perf_place(const perf_options_t *o, const perf_case_t *c, const perf_buffers_t *b, int in_place)
{
    perf_place_t p = {.stride = b->slot_bytes};
    p.mirror = b->mirror ? b->mirror + PERF_GUARD_BYTES : NULL;
    p.recv_base = b->recv + PERF_GUARD_BYTES + o->misalign;
    p.send_base = in_place ? p.recv_base : b->send + PERF_GUARD_BYTES + o->misalign;
    p.send = p.send_base + (in_place ? perf_case_send_offset(c) * c->elem : 0);
    p.recv = p.recv_base + (in_place ? perf_case_recv_offset(c) * c->elem : 0);
    if (in_place && c->rank != c->root) { /* only the root has both buffers */
        if (c->coll->op == COLL_GATHER)
            p.recv = NULL;
        if (c->coll->op == COLL_SCATTER)
            p.send = NULL;
    }
    return p;
}

/* ---- one iteration ---- */
int perf_slots(const perf_options_t *o)
{
    return o->aggregate * (o->streams > 1 ? o->streams : 1);
}

gyre_status_t perf_iterate(const perf_case_t *c, const perf_place_t *p, int aggregate)
{
    if (c->streams)
        return perf_streams_iterate(c, p, aggregate);
    if (aggregate == 1)
        return c->plans ? gyre_start(c->plans[0], NULL) : perf_case_run(c, p->send, p->recv);
    gyre_status_t status = gyre_group_start();
    for (int m = 0; m < aggregate && status == GYRE_OK; m++) {
        size_t shift = (size_t)m * p->stride;
        status = c->plans
                     ? gyre_start(c->plans[m], NULL)
                     : perf_case_run(c, p->send ? p->send + shift : NULL, p->recv ? p->recv + shift : NULL);
    }
    return status == GYRE_OK ? gyre_group_end() : status;
}

/* ---- checking ---- */

/* Fills the range at `base`, with the pattern first if `poison`, with the input of run `rep` unless it is
 * negative. */
static gyre_status_t put(const perf_case_t *c, const perf_place_t *p, unsigned char *base, int poison,
                         int rep, int in_place)
{
    unsigned char *at = perf_memory_on_host(p, base);
    if (poison)
        perf_fill_poison(at, perf_case_range(c, rep >= 0));
    if (rep >= 0)
        perf_fill_input(c, rep, in_place, at);
    return perf_memory_upload(c, p, base);
}

static gyre_status_t look_at(const perf_case_t *c, const perf_place_t *p, unsigned char *base, int rep,
                             int in_place, int is_send, uint64_t *wrong, int *told)
{
    gyre_status_t status = perf_memory_download(c, p, base);
    if (status == GYRE_OK)
        *wrong += perf_check_range(c, rep, in_place, is_send, perf_memory_on_host(p, base), told);
    return status;
}

/* Each slot of each run has inputs of its own: an operation of a group that got another's buffers shows. */
static int first_rep(const perf_options_t *o, int run)
{
    return (int)((int64_t)run * perf_slots(o) % (1 << 20)) + 1;
}

gyre_status_t perf_check_fill(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place, int run)
{
    gyre_status_t status = GYRE_OK;
    for (int m = 0; m < perf_slots(o) && status == GYRE_OK; m++) {
        const size_t shift = (size_t)m * p->stride;
        if (!in_place)
            status = put(c, p, p->recv_base + shift, 1, -1, in_place);
        if (status == GYRE_OK)
            status = put(c, p, p->send_base + shift, 1, first_rep(o, run) + m, in_place);
    }
    return status;
}

gyre_status_t perf_check_look(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place, int run, uint64_t *wrong, int *told)
{
    gyre_status_t status = GYRE_OK;
    for (int m = 0; m < perf_slots(o) && status == GYRE_OK; m++) {
        const size_t shift = (size_t)m * p->stride;
        const int rep = first_rep(o, run) + m;
        status = look_at(c, p, p->recv_base + shift, rep, in_place, 0, wrong, told);
        if (status == GYRE_OK && !in_place)
            status = look_at(c, p, p->send_base + shift, rep, in_place, 1, wrong, told);
    }
    return status;
}

gyre_status_t perf_check(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *comm,
                         const perf_place_t *p, int in_place, uint64_t *nwrong)
{
    uint64_t wrong = 0;
    int told = 0;
    for (int run = 0; run < o->check; run++) {
        gyre_status_t status = perf_check_fill(o, c, p, in_place, run);
        if (status == GYRE_OK)
            status = perf_iterate(c, p, o->aggregate);
        if (status == GYRE_OK)
            status = perf_check_look(o, c, p, in_place, run, &wrong, &told);
        if (status != GYRE_OK)
            return status;
    }
    *nwrong = wrong;
    return gyre_all_reduce(nwrong, nwrong, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm);
}

/* ---- timing ---- */
int perf_next_size(const perf_options_t *o, size_t *size)
{
    size_t step = o->step_bytes;
    if (o->step_factor > 1)
        step = *size ? *size * ((size_t)o->step_factor - 1) : 1; /* after 0: 1 */
    if (o->coll->op == COLL_BARRIER || step == 0 || *size > o->max_bytes || step > o->max_bytes - *size)
        return 0;
    *size += step;
    return 1;
}

gyre_status_t perf_each_row(const perf_options_t *o, int ranks, perf_visit_t *visit, void *user)
{
    const int barrier = o->coll->op == COLL_BARRIER;
    const int first_root = !o->coll->rooted ? -1 : o->root < 0 ? 0 : o->root;
    const int last_root = !o->coll->rooted ? -1 : o->root < 0 ? ranks - 1 : o->root;
    gyre_status_t status = GYRE_OK;
    for (int cycle = 0; (o->cycles == 0 || cycle < o->cycles) && status == GYRE_OK; cycle++)
        for (int type = o->first_type; type <= (barrier ? o->first_type : o->last_type); type++)
            for (int op = o->first_op; op <= (o->coll->reduces ? o->last_op : o->first_op); op++) {
                if (o->coll->reduces && !perf_has(o->coll, (gyre_type_t)type, (perf_op_t)op, o->cuda != 0))
                    continue; /* of a range: check_together has seen that some pair is left */
                for (int root = first_root; root <= last_root; root++) {
                    size_t size = o->min_bytes;
                    do
                        status = status == GYRE_OK ? visit(user, (gyre_type_t)type, (perf_op_t)op, root, size)
                                                   : status;
                    while (status == GYRE_OK && perf_next_size(o, &size));
                }
            }
    return status;
}

gyre_status_t perf_across_ranks(const perf_options_t *o, gyre_comm_t *comm, double *times, size_t count)
{
    static const gyre_redop_kind_t kinds[] = {GYRE_SUM, GYRE_AVG, GYRE_MIN, GYRE_MAX};
    if (o->average == 0)
        return gyre_broadcast(times, times, count, GYRE_FLOAT64, 0, comm);
    return gyre_all_reduce(times, times, count, GYRE_FLOAT64, GYRE_OP(kinds[o->average]), comm);
}

/* --cold: this rank's buffers leave the caches, and all ranks start together again. */
static gyre_status_t cool_down(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p)
{
    for (int m = 0; m < perf_slots(o); m++) {
        const size_t shift = (size_t)m * p->stride;
        perf_cold_flush(c->cold, p->recv_base + shift, c->bytes);
        if (p->send_base != p->recv_base)
            perf_cold_flush(c->cold, p->send_base + shift, c->bytes);
    }
    return gyre_barrier(c->comm);
}

gyre_status_t perf_fill_slots(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place)
{
    gyre_status_t status = GYRE_OK;
    for (int m = 0; m < perf_slots(o) && status == GYRE_OK; m++)
        status = put(c, p, p->send_base + (size_t)m * p->stride, 0, 0, in_place);
    return status;
}

void perf_result_set(const perf_options_t *o, const perf_case_t *c, const perf_histogram_t *h, double seconds,
                     perf_result_t *result)
{
    result->time_us = seconds * 1e6;
    perf_case_bandwidth(c, seconds, &result->algbw, &result->busbw);
    result->algbw *= o->streams;
    result->busbw *= o->streams;
    const double us = 1e-3 / o->aggregate, samples = (double)h->samples;
    result->p50 = perf_histogram_percentile(h, 50.0) * us;
    result->p95 = perf_histogram_percentile(h, 95.0) * us;
    result->p99 = perf_histogram_percentile(h, 99.0) * us;
    result->avg = h->sum / samples * us;
    result->min = (double)h->min * us;
    result->max = (double)h->max * us;
    result->stdev = sqrt(fmax(h->squares / samples - h->sum / samples * (h->sum / samples), 0.0)) * us;
}

/* -I: the figures of iterations, from their times at this rank. Collective. */
static gyre_status_t set_iterations(const perf_options_t *o, const perf_case_t *c, double *times,
                                    perf_result_t *result)
{
    const size_t n = (size_t)(o->iters - o->skipped);
    double *sorted = malloc(n * sizeof *sorted), sum = 0.0, squares = 0.0;
    gyre_status_t status =
        sorted ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the times of %zu iterations", n);
    if (status == GYRE_OK)
        status = perf_across_ranks(o, c->comm, times, (size_t)o->iters);
    if (status == GYRE_OK) {
        memcpy(sorted, times + o->skipped, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, base_order_double);
        for (size_t i = 0; i < n; i++)
            sum += sorted[i];
        for (size_t i = 0; i < n; i++)
            squares += (sorted[i] - sum / (double)n) * (sorted[i] - sum / (double)n);
        result->times = times;
        result->i_min = sorted[0];
        result->i_max = sorted[n - 1];
        result->i_p99 = sorted[(size_t)ceil((double)n * 0.99) - 1];
        result->i_cv = sum > 0.0 ? 100.0 * sqrt(squares / (double)n) / (sum / (double)n) : 0.0;
    }
    free(sorted);
    return status;
}

static gyre_status_t measure_at(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                                int in_place, double *times, perf_result_t *result)
{
    static perf_histogram_t h; /* 20 KiB, once */
    perf_histogram_clear(&h);
    gyre_status_t status = perf_fill_slots(o, c, p, in_place);

    if (times)
        memset(times, 1, (size_t)o->iters * sizeof *times); /* page faults belong to no iteration */
    for (int i = 0; i < o->warmup && status == GYRE_OK; i++)
        status = perf_iterate(c, p, o->aggregate);
    if (status == GYRE_OK)
        status = gyre_barrier(c->comm);
    base_time_t before = base_now(), timed = 0;
    for (int i = 0; i < o->iters && status == GYRE_OK; i++) {
        if (c->cold) {
            status = cool_down(o, c, p);
            before = base_now();
        }
        if (status == GYRE_OK)
            status = perf_iterate(c, p, o->aggregate);
        base_time_t now = base_now();
        perf_histogram_add(&h, now - before);
        if (times)
            times[i] = (double)(now - before) * 1e-3 / o->aggregate;
        timed += now - before;
        if (o->blocking == 3 && status == GYRE_OK) {
            status = gyre_barrier(c->comm);
            now = base_now();
        }
        before = now;
    }
    if (status != GYRE_OK)
        return status;

    double seconds = (double)timed * 1e-9 / o->iters / o->aggregate;
    status = perf_across_ranks(o, c->comm, &seconds, 1);
    if (status == GYRE_OK)
        status = perf_histogram_merge(&h, c->comm);
    if (status == GYRE_OK && times)
        status = set_iterations(o, c, times, result);
    if (status != GYRE_OK)
        return status;
    perf_result_set(o, c, &h, seconds, result);
    if (o->check == 0)
        return GYRE_OK;
    result->checked = 1;
    return perf_check(o, c, c->comm, p, in_place, &result->nwrong);
}

gyre_status_t perf_measure(const perf_options_t *o, const perf_case_t *c, const perf_buffers_t *b,
                           int in_place, perf_result_t *result)
{
    const perf_place_t p = perf_place(o, c, b, in_place);
    perf_case_t here = *c;
    *result = (perf_result_t){.ran = 1};
    gyre_status_t status = o->persistent ? perf_plans_open(o, &p, &here) : GYRE_OK;
    if (status == GYRE_OK)
        status = measure_at(o, &here, &p, in_place, b->times[in_place], result);
    const gyre_status_t closed = perf_plans_close(o, &here);
    return status == GYRE_OK ? closed : status;
}
