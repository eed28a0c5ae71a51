/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/orders.c: --order canonical,exact,leaves,fast: what the promises of docs/contract.md cost,
 * several orders in one run.
 *
 * There is a communicator of the same ranks for each order. Every row is measured in short blocks that take
 * turns, also in which order goes first: other load of the machine hits all alike. The time of an order is
 * the median over its blocks. */
#include "tools/gyre-perf/command.h"

#include <inttypes.h>

#include "base/clock.h"
#include "collectives/run/communicator.h"

enum { ROUNDS = 21 }; /* blocks of each order, at most */

const char *perf_order_name(int order)
{
    return order == PERF_LEAVES ? "leaves" : coll_order_name((gyre_order_t)order);
}

gyre_status_t perf_orders_open(const perf_options_t *o, gyre_comm_t *comm, gyre_comm_t **comms)
{
    gyre_status_t status = GYRE_OK;
    for (int k = 0; k < o->norders && status == GYRE_OK; k++) {
        gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
        options.order = o->orders[k] == PERF_LEAVES ? GYRE_ORDER_CANONICAL : (gyre_order_t)o->orders[k];
        options.leaves = o->orders[k] == PERF_LEAVES ? o->leaves : 1;
        status = gyre_comm_split(comm, 0, gyre_comm_rank(comm), &comms[k]);
        if (status == GYRE_OK)
            status = gyre_comm_set(comms[k], &options);
    }
    return status;
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

/* comm: of the same ranks, with one leaf each. */
static gyre_status_t finish(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *comm,
                            const perf_place_t *p, int in_place, double *times, int rounds,
                            perf_histogram_t *h, perf_result_t *result)
{
    double seconds = perf_median(times, (size_t)rounds);
    gyre_status_t status = perf_across_ranks(o, comm, &seconds, 1);
    if (status == GYRE_OK)
        status = perf_histogram_merge(h, comm);
    if (status != GYRE_OK)
        return status;
    *result = (perf_result_t){.ran = 1, .checked = o->check > 0};
    perf_result_set(o, c, h, seconds, result);
    return o->check ? perf_check(o, c, comm, p, in_place, &result->nwrong) : GYRE_OK;
}

static void print_half(const perf_result_t *r)
{
    printf("  %9.2f  %8.2f  %9.2f", r->time_us, r->busbw, r->p99);
    if (r->checked)
        printf("  %6" PRIu64, r->nwrong);
    else
        printf("  %6s", "N/A");
}

/* What order k takes of the last one's time. */
static double cost_of(const perf_options_t *o, const perf_result_t *r, int k)
{
    const double last = r[o->norders - 1].time_us;
    return last > 0.0 ? r[k].time_us / last : 1.0;
}

static void report_row(const perf_options_t *o, perf_report_t *report, const perf_case_t *c,
                       const perf_result_t *r, int in_place)
{
    const int last = o->norders - 1;
    const perf_result_t *canonical = NULL, *fast = NULL;
    uint64_t nwrong = 0;
    json_t *row = perf_json_case(c), *costs = json_object();
    perf_put(row, "in_place", json_boolean(in_place));
    printf("%12zu  %12zu  %8s  %6s  %6d", c->bytes, c->param, gyre_type_name(c->type), perf_op_name(c->op),
           c->root);
    for (int k = 0; k <= last; k++) {
        print_half(&r[k]);
        perf_put(row, perf_order_name(o->orders[k]), perf_json_half(&r[k]));
        nwrong += r[k].nwrong;
        canonical = o->orders[k] == GYRE_ORDER_CANONICAL ? &r[k] : canonical;
        fast = o->orders[k] == GYRE_ORDER_FAST ? &r[k] : fast;
    }
    for (int k = 0; k < last; k++) {
        printf("  %9.3f", cost_of(o, r, k));
        perf_put(costs, perf_order_name(o->orders[k]), json_real(cost_of(o, r, k)));
    }
    printf("\n");
    fflush(stdout);
    perf_put(row, "costs", costs);
    if (canonical && fast && fast->time_us > 0.0)
        perf_put(row, "contract_cost", json_real(canonical->time_us / fast->time_us));
    perf_report_add(report, row, nwrong);
}

gyre_status_t perf_orders_row(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *const *comms,
                              const perf_buffers_t *b, perf_report_t *report)
{
    static perf_histogram_t h[PERF_ORDERS];
    const int in_place = !o->out_of_place, rounds = o->iters < ROUNDS ? o->iters : ROUNDS, n = o->norders;
    const perf_place_t p = perf_place(o, c, b, in_place);
    perf_case_t each[PERF_ORDERS];
    perf_result_t result[PERF_ORDERS];
    double times[PERF_ORDERS][ROUNDS];
    gyre_status_t status = GYRE_OK;
    for (int k = 0; k < n; k++) {
        each[k] = *c;
        each[k].comm = comms[k];
        each[k].leaves = o->orders[k] == PERF_LEAVES ? o->leaves : 1;
        for (int m = 0; m < o->aggregate; m++)
            perf_fill_input(&each[k], 0, in_place, p.send_base + (size_t)m * p.stride);
        perf_histogram_clear(&h[k]);
        for (int i = 0; i < o->warmup && status == GYRE_OK; i++)
            status = perf_iterate(&each[k], &p, o->aggregate);
    }
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < n && status == GYRE_OK; turn++) {
            const int k = (turn + round) % n;
            const int iters = o->iters / rounds + (round < o->iters % rounds);
            status = block(o, &each[k], &p, iters, &h[k], &times[k][round]);
        }
    }
    for (int k = 0; k < n && status == GYRE_OK; k++)
        status = finish(o, &each[k], c->comm, &p, in_place, times[k], rounds, &h[k], &result[k]);
    if (status == GYRE_OK && report)
        report_row(o, report, c, result, in_place);
    return status;
}

/* A line of the table's head: the first five columns, four for each order, and one for each cost. */
static void head(const perf_options_t *o, const char *const *first, const char *const *each)
{
    printf("# %10s  %12s  %8s  %6s  %6s", first[0], first[1], first[2], first[3], first[4]);
    for (int k = 0; k < o->norders; k++)
        printf("  %9s  %8s  %9s  %6s", each[0], each[1], each[2], each[3]);
}

void perf_orders_columns(const perf_options_t *o)
{
    static const char *const none[] = {"", "", "", "", ""};
    static const char *const first[] = {"size", "count", "type", "redop", "root"};
    static const char *const each[] = {"time", "busbw", "p99", "#wrong"};
    static const char *const units[] = {"(B)", "(elements)", "", "", ""};
    static const char *const each_units[] = {"(us)", "(GB/s)", "(us)", ""};
    const int last = o->norders - 1;
    char over[16];
    printf("# %10s  %12s  %8s  %6s  %6s", none[0], none[1], none[2], none[3], none[4]);
    for (int k = 0; k <= last; k++)
        printf("  %19s%-19s", "", perf_order_name(o->orders[k]));
    printf("\n");
    head(o, first, each);
    for (int k = 0; k < last; k++)
        printf("  %9s", perf_order_name(o->orders[k]));
    printf("\n");
    head(o, units, each_units);
    snprintf(over, sizeof over, "/ %s", perf_order_name(o->orders[last]));
    for (int k = 0; k < last; k++)
        printf("  %9s", over);
    printf("\n");
}
