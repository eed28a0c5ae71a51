/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/tuning/choice.c: the algorithm of a call, the source of the decision, and the model's
 * prediction for it and for the next best. See choice.h. */
#include "tools/gyre-perf/tuning/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "collectives/run/reach/stage.h"
#include "collectives/schedules/algorithms.h"

enum {
    /* whole vectors to all ranks: beyond this size it was far slower in every measurement */
    ONE_SHOT_MOST = 256 << 10,
    CHUNKS_FROM = 512 << 10, /* sizes for which the length of a chunk can matter */
    MODEL_RANKS = 64
};

static int add(coll_tune_line_t *list, int n, const coll_args_t *args, coll_algo_t algo, int one_shot,
               uint64_t chunk)
{
    if (n < PERF_CANDIDATES_MOST)
        list[n++] = (coll_tune_line_t){.op = (uint8_t)args->op,
                                       .algo = (uint8_t)algo,
                                       .one_shot = (int8_t)one_shot,
                                       .any_bytes = 1,
                                       .ranks = {1, INT32_MAX},
                                       .hosts = {1, INT32_MAX},
                                       .bytes = {0, UINT64_MAX},
                                       .chunk = chunk};
    return n;
}

int perf_candidates(const coll_args_t *args, int parts, uint64_t bytes, coll_tune_line_t *list)
{
    static const uint64_t chunks[] = {64 << 10, 1 << 20};
    int n = 0;
    for (int a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++) {
        const coll_algo_t algo = (coll_algo_t)a;
        if (!coll_algo_serves(algo, args->op, args) || (coll_algo_is(algo, COLL_BY_PARTS) && parts == 1))
            continue;
        const int forms = args->op == COLL_ALL_REDUCE && coll_algo_is(algo, COLL_TWO_FORMS);
        n = add(list, n, args, algo, forms ? 0 : -1, 0);
        if (forms && bytes <= ONE_SHOT_MOST)
            n = add(list, n, args, algo, 1, 0);
        const int pipelined =
            args->op == COLL_ALL_REDUCE || args->op == COLL_REDUCE_SCATTER || args->op == COLL_REDUCE;
        for (int i = 0; pipelined && coll_algo_is(algo, COLL_TRY_CHUNKS) && bytes >= CHUNKS_FROM && i < 2;
             i++)
            n = add(list, n, args, algo, forms ? 0 : -1, chunks[i]);
    }
    return n;
}

/* Predicted time of a call like args, of `bytes`, by an algorithm in a form, for a communicator on one host.
 * Equal blocks, root 0, out of place: what all ranks know. chunk in bytes. 0: no prediction (several hosts,
 * more than 64 ranks, not served, no memory). */
static double model_ns(const gyre_comm_t *comm, const coll_cost_t *cost, const coll_args_t *args,
                       uint64_t bytes, coll_algo_t algo, int one_shot, uint64_t chunk, coll_memory_t memory)
{
    enum { ESIZE = 4 };
    const size_t n = (size_t)comm->n;
    size_t counts[MODEL_RANKS], displs[MODEL_RANKS];
    if (comm->hosts > 1 || n < 2 || n > MODEL_RANKS || bytes > SIZE_MAX / 2)
        return 0;
    coll_args_t a = {.op = args->op,
                     .n = comm->n,
                     .fast_order = args->fast_order,
                     .exact = args->exact,
                     .place = args->place,
                     .host = comm->part_of};
    const size_t block =
        base_max_size((size_t)bytes / ESIZE / (coll_op_is_vector(a.op) ? 1 : n), args->op != COLL_BARRIER);
    a.count = block;
    a.uniform = !coll_op_is_vector(a.op);
    a.one_shot = one_shot;
    a.chunk = base_max_size((size_t)chunk / ESIZE, 1);
    for (size_t r = 0; r < n; r++) {
        counts[r] = block;
        displs[r] = r * block;
    }
    if (a.uniform && a.op != COLL_BARRIER) {
        a.counts = a.rcounts = counts;
        a.displs = a.rdispls = displs;
    }
    double ns = 0;
    return coll_predict(cost, &a, algo, ESIZE, memory, &ns) == GYRE_OK ? ns : 0;
}

/* The same for the exchange of outboxes (small messages, one host), by a closed formula: a call, the
 * flight of a line, and reading what the others posted. */
static double model_exchange_ns(const coll_cost_t *cost, int ranks, coll_op_t op, uint64_t bytes)
{
    const double n = ranks, share = coll_op_is_vector(op) ? (double)bytes : (double)bytes / n;
    const double crowd = n > cost->cores ? n / cost->cores : 1; /* ranks that take turns on a core */
    double posted = share, read = share * (n - 1);
    if (op == COLL_BROADCAST || op == COLL_SCATTER)
        read = share;
    if (op == COLL_REDUCE_SCATTER || op == COLL_ALL_TO_ALL)
        posted = share * n;
    /* Writing a line that others have read costs as much as reading one that another has written. */
    const double line = read > 0 || op == COLL_BARRIER ? cost->line : 0;
    const double work = cost->call + line + (posted + read) / cost->peer_cache;
    return work * crowd +
           (crowd > 1 ? cost->yield * n : 0); /* each must have run before the last can go on */
}

static void explain_why(const gyre_comm_t *comm, perf_choice_t *x)
{
    const coll_choice_t *c = &x->choice;
    const coll_tune_t *tune = comm->tune;
    const char *slash = tune ? strrchr(tune->path, '/') : NULL;
    const char *file = slash ? slash + 1 : tune ? tune->path : "";
    const char *form = "";
    char line[160] = ""; /* a longer name is cut off */
    if (c->line)
        snprintf(line, sizeof line, "line %d of %.120s", c->line, file);
    switch (c->why) {
    case COLL_WHY_FORCED:
        form = comm->pin.op ? "pinned" : "forced: GYRE_ALGO";
        break;
    case COLL_WHY_LINE:
        form = line;
        break;
    case COLL_WHY_RULE:
        form = x->oneshot                             ? "rule: fits oneshot"
               : comm->hosts > 1                      ? "rule for several hosts"
               : coll_algo_is(c->algo, COLL_BY_PARTS) ? "rule: by caches or NUMA nodes"
                                                      : "rule for one host";
        break;
    }
    if (c->line && c->why != COLL_WHY_LINE)
        snprintf(x->why, sizeof x->why, "%.100s; form, chunk: %.150s", form, line);
    else
        snprintf(x->why, sizeof x->why, "%.200s%s", form,
                 base_setting_is_default(SET_CHUNK) ? "" : "; GYRE_CHUNK");
}

/* The best predicted candidate but the chosen one. */
static void find_second(const gyre_comm_t *comm, const coll_cost_t *cost, const coll_args_t *args,
                        coll_memory_t memory, perf_choice_t *x)
{
    coll_tune_line_t list[PERF_CANDIDATES_MOST];
    const int n = perf_candidates(args, comm->parts, x->bytes, list);
    for (int i = 0; i < n; i++) {
        const coll_tune_line_t *l = &list[i];
        const int form = l->one_shot > 0;
        if ((!x->oneshot && l->algo == x->choice.algo && form == x->choice.one_shot) || l->chunk ||
            (coll_algo_is((coll_algo_t)l->algo, COLL_LONG) && comm->n > 16)) /* no runner-up there */
            continue;
        double ns = model_ns(comm, cost, args, x->bytes, (coll_algo_t)l->algo, form, x->chunk, memory);
        if (ns > 0 && (x->second_predicted == 0 || ns < x->second_predicted)) {
            x->second = *l;
            x->second_predicted = ns;
        }
    }
}

static void name_transports(gyre_comm_t *comm, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", comm->n == 1 ? "self" : "");
    for (int r = 0; r < comm->n; r++) {
        comm_link_t *link;
        if (r == comm->rank || comm_group_link(comm->group, r, 0, &link) != GYRE_OK)
            continue;
        const char *name = comm_link_transport(link);
        const size_t used = strlen(text);
        if (!strstr(text, name)) /* no name is part of another */
            snprintf(text + used, bytes - used, "%s%s", used ? "+" : "", name);
    }
    if (!*text)
        snprintf(text, bytes, "?");
}

/* "links" or "staged"; both where it is another for inputs that are likely in no cache: these come second. */
static const char *path_of(const coll_plan_t *p, coll_memory_t memory)
{
    static const char *const paths[2][2] = {{"links", "links|staged"}, {"staged|links", "staged"}};
    if (memory != COLL_MEMORY_PLAIN)
        return "links";
    const int warm = p->staging.in || p->staging.out || p->staging.chunks;
    const int cold = p->staging_cold.in || p->staging_cold.out || p->staging.chunks;
    return paths[warm][cold];
}

gyre_status_t perf_choice_of(gyre_comm_t *comm, const coll_shape_t *shape, coll_memory_t memory,
                             perf_choice_t *out)
{
    perf_choice_t x = {.path = "links"};
    coll_plan_t *plan;
    coll_drive(comm);
    gyre_status_t st = coll_plan_get(comm, shape, &plan);
    if (st == GYRE_OK) {
        const coll_shape_t *s = &plan->shape;
        x.choice = plan->choice;
        x.oneshot = plan->oneshot;
        const int staged = memory == COLL_MEMORY_PLAIN && (plan->staging.in || plan->staging.out);
        x.segments = staged ? coll_stage_cut(plan)->n : plan->cut.n;
        x.path = plan->oneshot ? "oneshot" : path_of(plan, memory);
        x.chunk = (uint64_t)plan->chunk * plan->esize;
        for (uint32_t i = 0; i < plan->ndistinct; i++)
            for (uint32_t c = 0; c < COLL_MAX_CHANNELS; c++)
                if (plan->segments[i].last[c] > plan->segments[i].first[c] && c >= x.channels)
                    x.channels = c + 1;
        coll_args_t args = coll_plan_args(comm, s);
        args.in_place = 0;
        for (int r = 0; s->op != COLL_ALL_TO_ALL && s->counts && r < comm->n; r++)
            args.count = args.count > s->counts[r] ? args.count : s->counts[r];
        const coll_cost_t cost = coll_comm_facts(comm).cost;
        const int known = coll_known_bytes(&args, plan->esize, &x.bytes);
        if (known)
            x.predicted = x.oneshot ? model_exchange_ns(&cost, comm->n, s->op, x.bytes)
                                    : model_ns(comm, &cost, &args, x.bytes, plan->algo, plan->one_shot,
                                               x.chunk, staged ? COLL_MEMORY_WINDOW : memory);
        if (staged && x.predicted > 0)
            x.predicted += plan->staging.ns * coll_stage_cut(plan)->n;
        if (known && comm->n > 1)
            find_second(comm, &cost, &args, memory, &x);
        name_transports(comm, x.transport, sizeof x.transport);
        explain_why(comm, &x);
    }
    coll_stop_driving(comm);
    if (st == GYRE_OK)
        *out = x;
    return st;
}
