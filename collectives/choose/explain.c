/* collectives/choose/explain.c: what runs for a call, who decided it, and what the model thinks of it and of the next best. For
 * gyre-perf --explain. */
#include "collectives/choose/candidates.h"

#include <stdio.h>
#include <string.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "collectives/run/joint.h"
#include "collectives/schedules/algorithms.h"

static void explain_why(const gyre_comm_t *comm, coll_explanation_t *x)
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
    case COLL_WHY_MODEL:
        form = coll_algo_is(c->algo, COLL_BY_PARTS) ? "model: by caches or NUMA nodes" : "model";
        break;
    case COLL_WHY_RULE:
        form = x->exchange       ? "rule: fits the exchange"
               : comm->hosts > 1 ? "rule for several hosts"
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
static void find_second(const gyre_comm_t *comm, const coll_args_t *args, coll_memory_t memory,
                        coll_explanation_t *x)
{
    coll_tune_line_t list[COLL_CANDIDATES_MOST];
    const int n = coll_candidates(args, comm->parts, x->bytes, list);
    for (int i = 0; i < n; i++) {
        const coll_tune_line_t *l = &list[i];
        const int form = l->one_shot > 0;
        if ((!x->exchange && l->algo == x->choice.algo && form == x->choice.one_shot) || l->chunk ||
            (coll_algo_is((coll_algo_t)l->algo, COLL_LONG) && comm->n > 16)) /* no runner-up there */
            continue;
        double ns = coll_model_ns(comm, args, x->bytes, (coll_algo_t)l->algo, form, x->chunk, memory);
        if (ns > 0 && (x->second_predicted == 0 || ns < x->second_predicted)) {
            x->second = *l;
            x->second_predicted = ns;
        }
    }
}

static const char *transport_of(gyre_comm_t *comm)
{
    const char *name = NULL;
    if (comm->n == 1)
        return "self";
    for (int r = 0; r < comm->n; r++) {
        comm_link_t *link;
        if (r == comm->rank || comm_group_link(comm->group, r, 0, &link) != GYRE_OK)
            continue;
        if (name && strcmp(name, comm_link_transport(link)) != 0)
            return "shm+ucx";
        name = comm_link_transport(link);
    }
    return name ? name : "?";
}

gyre_status_t coll_explain(gyre_comm_t *comm, const coll_shape_t *shape, coll_memory_t memory,
                           coll_explanation_t *out)
{
    coll_explanation_t x = {.path = "links"};
    coll_plan_t *plan;
    coll_drive(comm);
    gyre_status_t st = coll_plan_get(comm, shape, &plan);
    if (st == GYRE_OK) {
        const coll_shape_t *s = &plan->shape;
        x.choice = plan->choice;
        x.segments = plan->nsegments;
        x.exchange = plan->exchange;
        x.path = plan->exchange ? "exchange" : "links";
        x.chunk = (uint64_t)plan->chunk * plan->esize;
        for (uint32_t i = 0; i < plan->ndistinct; i++)
            for (uint32_t c = 0; c < COLL_MAX_CHANNELS; c++)
                if (plan->segments[i].last[c] > plan->segments[i].first[c] && c >= x.channels)
                    x.channels = c + 1;
        coll_args_t args = coll_plan_args(comm, s);
        args.in_place = 0;
        for (int r = 0; s->op != COLL_ALL_TO_ALL && s->counts && r < comm->n; r++)
            args.count = args.count > s->counts[r] ? args.count : s->counts[r];
        const int known = coll_known_bytes(&args, plan->esize, &x.bytes);
        if (known)
            x.predicted =
                x.exchange ? coll_model_exchange_ns(comm, s->op, x.bytes)
                           : coll_model_ns(comm, &args, x.bytes, plan->algo, plan->one_shot, x.chunk, memory);
        if (known && comm->n > 1)
            find_second(comm, &args, memory, &x);
        x.transport = transport_of(comm);
        explain_why(comm, &x);
    }
    coll_stop_driving(comm);
    if (st == GYRE_OK)
        *out = x;
    return st;
}
