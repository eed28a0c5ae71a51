/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/orders.c: --order canonical,fast: the cost of the contract of docs/contract.md, both orders
 * in one run.
 *
 * There are two communicators of the same ranks, one for each order. Every row is measured in short blocks
 * that take turns, also in which order goes first: other load of the machine hits both alike. The time of an
 * order is the median over its blocks. */
#include "tools/gyre-perf/perf.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/order.h"
#include "collectives/run/communicator.h"

enum { ROUNDS = 21 }; /* blocks of each order; odd, so that the median is one of them */

gyre_status_t perf_orders_open(gyre_comm_t *comm, gyre_comm_t **fast)
{
    gyre_status_t status = gyre_comm_split(comm, 0, gyre_comm_rank(comm), fast);
    return status == GYRE_OK ? coll_comm_set_order(*fast, 1) : status;
}

/* A block of iterations: seconds of one operation. */
static gyre_status_t block(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p, int iters,
                           perf_histogram_t *h, double *seconds)
{
    gyre_status_t status = gyre_barrier(c->comm);
    const base_time_t start = base_now();
    base_time_t before = start;
    for (int i = 0; i < iters && status == GYRE_OK; i++) {
        status = perf_iterate(c, p, o->aggregate);
        base_time_t now = base_now();
        perf_histogram_add(h, now - before);
        before = now;
    }
    *seconds = (double)(before - start) * 1e-9 / iters / o->aggregate;
    return status;
}

static gyre_status_t finish(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                            int in_place, double *times, int rounds, perf_histogram_t *h,
                            perf_result_t *result)
{
    qsort(times, (size_t)rounds, sizeof *times, base_order_double);
    double seconds = times[rounds / 2];
    gyre_status_t status = perf_across_ranks(o, c->comm, &seconds);
    if (status == GYRE_OK)
        status = perf_histogram_merge(h, c->comm);
    if (status != GYRE_OK)
        return status;
    const double us = 1e-3 / o->aggregate;
    *result = (perf_result_t){.ran = 1, .time_us = seconds * 1e6, .checked = o->check > 0};
    perf_case_bandwidth(c, seconds, &result->algbw, &result->busbw);
    result->p50 = perf_histogram_percentile(h, 50.0) * us;
    result->p95 = perf_histogram_percentile(h, 95.0) * us;
    result->p99 = perf_histogram_percentile(h, 99.0) * us;
    result->avg = h->sum / (double)h->samples * us;
    result->min = (double)h->min * us;
    result->max = (double)h->max * us;
    return o->check ? perf_check(o, c, p, in_place, &result->nwrong) : GYRE_OK;
}

static void print_half(const perf_result_t *r)
{
    printf("  %9.2f  %8.2f  %9.2f", r->time_us, r->busbw, r->p99);
    if (r->checked)
        printf("  %6" PRIu64, r->nwrong);
    else
        printf("  %6s", "N/A");
}

static void report_row(perf_report_t *report, const perf_case_t *c, const perf_result_t *r, int in_place)
{
    const double cost = r[1].time_us > 0.0 ? r[0].time_us / r[1].time_us : 1.0;
    printf("%12zu  %12zu  %8s  %6s  %6d", c->bytes, c->param, gyre_type_name(c->type), perf_op_name(c->op),
           c->root);
    print_half(&r[0]);
    print_half(&r[1]);
    printf("  %9.3f\n", cost);
    fflush(stdout);
    json_t *row = perf_json_case(c);
    perf_put(row, "in_place", json_boolean(in_place));
    perf_put(row, "canonical", perf_json_half(&r[0]));
    perf_put(row, "fast", perf_json_half(&r[1]));
    perf_put(row, "contract_cost", json_real(cost));
    perf_report_add(report, row, r[0].nwrong + r[1].nwrong);
}

gyre_status_t perf_orders_row(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *fast,
                              const perf_buffers_t *b, perf_report_t *report)
{
    static perf_histogram_t h[2];
    const int in_place = !o->out_of_place, rounds = o->iters < ROUNDS ? o->iters : ROUNDS;
    const perf_place_t p = perf_place(o, c, b, in_place);
    perf_case_t both[2] = {*c, *c};
    perf_result_t result[2];
    double times[2][ROUNDS];
    gyre_status_t status = GYRE_OK;
    both[1].comm = fast;
    for (int m = 0; m < o->aggregate; m++)
        perf_fill_input(c, 0, in_place, p.send_base + (size_t)m * p.stride);
    for (int k = 0; k < 2; k++) {
        perf_histogram_clear(&h[k]);
        for (int i = 0; i < o->warmup && status == GYRE_OK; i++)
            status = perf_iterate(&both[k], &p, o->aggregate);
    }
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2 && status == GYRE_OK; turn++) {
            const int k = (turn + round) % 2;
            const int iters = o->iters / rounds + (round < o->iters % rounds);
            status = block(o, &both[k], &p, iters, &h[k], &times[k][round]);
        }
    }
    for (int k = 0; k < 2 && status == GYRE_OK; k++)
        status = finish(o, &both[k], &p, in_place, times[k], rounds, &h[k], &result[k]);
    if (status == GYRE_OK && report)
        report_row(report, c, result, in_place);
    return status;
}

void perf_orders_columns(void)
{
    printf("# %10s  %12s  %8s  %6s  %6s  %-38s  %-38s\n", "", "", "", "", "", "          canonical",
           "          fast");
    printf("# %10s  %12s  %8s  %6s  %6s  %9s  %8s  %9s  %6s  %9s  %8s  %9s  %6s  %9s\n", "size", "count",
           "type", "redop", "root", "time", "busbw", "p99", "#wrong", "time", "busbw", "p99", "#wrong",
           "canonical");
    printf("# %10s  %12s  %8s  %6s  %6s  %9s  %8s  %9s  %6s  %9s  %8s  %9s  %6s  %9s\n", "(B)", "(elements)",
           "", "", "", "(us)", "(GB/s)", "(us)", "", "(us)", "(GB/s)", "(us)", "", "/ fast");
}
