/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/tuning/explain.c: --explain: for each size what Gyre chose and why, what the cost model
 * predicted for it and for the next best, and what was measured. */
#include "tools/gyre-perf/perf.h"

#include "base/settings/size.h"
#include "collectives/schedules/algorithms.h"
#include "collectives/gpu/gpu.h"
#include "tools/gyre-perf/tuning/choice.h"

/* The call's shape as collectives/api/calls.c makes it, so that the plan found is the one that ran. */
static coll_shape_t shape_of(const perf_case_t *c, int in_place)
{
    const coll_op_t op = c->coll->op;
    const int vector = coll_op_is_vector(op);
    const gyre_redop_t redop = c->coll->reduces ? perf_case_redop(c) : (gyre_redop_t){.kind = GYRE_SUM};
    coll_shape_t s = {.op = op,
                      .type = op == COLL_BARRIER ? GYRE_INT8 : c->type,
                      .order = c->comm->options.order,
                      .root = c->coll->rooted ? c->root : -1,
                      .uniform = !vector && op != COLL_BARRIER && !c->coll->uneven,
                      .count = c->coll->uneven      ? 0
                               : c->coll->neighbors ? c->counts[1] /* of a message */
                                                    : c->param,
                      .in_place = in_place && (!c->coll->rooted || c->rank == c->root)};
    if (c->coll->reduces) {
        s.redop = redop.kind;
        s.scaled = redop.scaled != 0;
    }
    if (c->coll->uneven) {
        s.counts = c->counts;
        s.displs = op == COLL_REDUCE_SCATTER ? NULL : c->displs;
    }
    if (c->coll->uneven && op == COLL_ALL_TO_ALL) {
        s.rcounts = c->rcounts;
        s.rdispls = c->rdispls;
    }
    return s;
}

void perf_explain_columns(void)
{
    printf("# path: oneshot (outboxes, no schedule), links (a schedule over the transport) or staged (the "
           "same, from copies that peers can map); measured: the median call\n"
           "#   a|b: b for inputs that are likely in no cache\n"
           "# on a device: peers (each other's memory), staged (through the host), wire (between hosts)\n"
           "#   ch: blocks; chunk: rounds\n"
           "# why: who chose the algorithm; next: the best other one by the model, which knows one host only "
           "(- else)\n#\n");
    printf("# %10s  %5s  %-12s %-8s  %-12s  %-9s  %2s  %6s  %9s  %9s  %7s  %-21s  %9s  %s\n", "size", "place",
           "algorithm", "form", "path", "transport", "ch", "chunk", "predicted", "measured", "meas./", "next",
           "predicted", "why");
    printf("# %10s  %5s  %-12s %-8s  %-12s  %-9s  %2s  %6s  %9s  %9s  %7s  %-21s  %9s\n", "(B)", "", "", "",
           "", "", "", "(B)", "(us)", "(us)", "pred.", "", "(us)");
}

static void print_us(double us)
{
    if (us > 0)
        perf_print_figure(us, 9);
    else
        printf("  %9s", "-");
}

/* Only all_reduce has two forms; what is cut into segments says so. */
static const char *form_of(const perf_case_t *c, const perf_choice_t *x)
{
    const int two = c->coll->op == COLL_ALL_REDUCE && coll_algo_is(x->choice.algo, COLL_TWO_FORMS);
    return x->oneshot ? "-" : two ? x->choice.one_shot ? "one_shot" : "blocks" : "-";
}

static json_t *to_json(const perf_case_t *c, const perf_choice_t *x, double measured)
{
    json_t *j = json_object();
    perf_put(j, "algorithm", json_string(x->oneshot ? "oneshot" : coll_algo_name(x->choice.algo)));
    perf_put(j, "form", json_string(form_of(c, x)));
    perf_put(j, "path", json_string(x->path));
    perf_put(j, "transport", json_string(x->transport));
    perf_put(j, "channels", json_integer(x->channels));
    perf_put(j, "chunk", json_integer((json_int_t)x->chunk));
    perf_put(j, "segments", json_integer(x->segments));
    perf_put(j, "why", json_string(x->why));
    perf_put(j, "predicted", x->predicted > 0 ? json_real(x->predicted * 1e-3) : json_null());
    perf_put(j, "measured", json_real(measured));
    perf_put(j, "next",
             x->second_predicted > 0 ? json_string(coll_algo_name((coll_algo_t)x->second.algo))
                                     : json_null());
    perf_put(j, "next_predicted",
             x->second_predicted > 0 ? json_real(x->second_predicted * 1e-3) : json_null());
    return j;
}

/* On a device: what runs is collectives/gpu/gpu.h's to say, and no model predicts its time. */
static int explain_device(const perf_options_t *o, const perf_case_t *c, const perf_result_t *result,
                          int in_place, json_t *row)
{
    coll_cuda_explanation_t x;
    char chunk[BASE_SIZE_TEXT];
    const coll_shape_t shape = shape_of(c, in_place);
    if (coll_cuda_explain(c->comm, &shape, o->registered, &x) != GYRE_OK)
        return 0;
    snprintf(chunk, sizeof chunk, "x%u", x.rounds);
    printf("%12zu  %5s  %-12s %-8s  %-12s  %-9s  %2d  %6s", c->bytes, in_place ? "in" : "out", x.algorithm,
           "-", x.path, "cuda", x.blocks, chunk);
    print_us(0);
    print_us(result->p50);
    printf("  %7s  %-21s", "-", "-");
    print_us(0);
    printf("  %s%s\n", x.why, result->nwrong ? "  WRONG RESULTS" : "");
    if (row)
        perf_put(row, in_place ? "explain_in_place" : "explain_out_of_place",
                 json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:f}", "algorithm", x.algorithm, "path", x.path,
                           "transport", "cuda", "blocks", x.blocks, "rounds", (int)x.rounds, "why", x.why,
                           "measured", result->p50));
    return 1;
}

int perf_explain_row(const perf_options_t *o, const perf_case_t *c, const perf_result_t *result, int in_place,
                     json_t *row)
{
    perf_choice_t x;
    char chunk[BASE_SIZE_TEXT] = "-", next[40] = "-";
    if (o->cuda)
        return explain_device(o, c, result, in_place, row);
    const coll_shape_t shape = shape_of(c, in_place);
    if (perf_choice_of(c->comm, &shape, o->windows ? COLL_MEMORY_WINDOW : COLL_MEMORY_PLAIN, &x) != GYRE_OK)
        return 0;
    if (!x.oneshot)
        base_size_text(x.chunk, chunk);
    if (x.second_predicted > 0)
        snprintf(next, sizeof next, "%s%s", coll_algo_name((coll_algo_t)x.second.algo),
                 x.second.one_shot > 0 ? " one_shot" : "");
    printf("%12zu  %5s  %-12s %-8s  %-12s  %-9s  %2u  %6s", c->bytes, in_place ? "in" : "out",
           x.oneshot ? "-" : coll_algo_name(x.choice.algo), form_of(c, &x), x.path, x.transport, x.channels,
           chunk);
    print_us(x.predicted * 1e-3);
    print_us(result->p50);
    if (x.predicted > 0)
        printf("  %7.2f", result->p50 / (x.predicted * 1e-3));
    else
        printf("  %7s", "-");
    printf("  %-21s", next);
    print_us(x.second_predicted * 1e-3);
    printf("  %s%s\n", x.why, result->nwrong ? "  WRONG RESULTS" : "");
    if (row)
        perf_put(row, in_place ? "explain_in_place" : "explain_out_of_place", to_json(c, &x, result->p50));
    return 1;
}
