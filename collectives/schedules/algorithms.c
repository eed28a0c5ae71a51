/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/algorithms.c: the table of algorithms (collectives/schedules/algorithms.def), and
 * building a schedule with one of them. */
#include "collectives/schedules/algorithms.h"

#include <string.h>

#include "base/error.h"
#include "collectives/schedules/generator.h"

#define OP(name) (1u << COLL_##name)

typedef struct {
    const char *name;
    coll_generator_t *generate;
    unsigned ops, uniform, ordered; /* sets of OP(...) */
    unsigned traits;                /* set of coll_trait_t */
    int parts;
    coll_tmp_bound_t *factor, *places;
} algorithm_t;

static const algorithm_t algorithms[COLL_ALGO_END] = {
    [COLL_ALGO_AUTO] = {.name = "auto"},
#define ALGORITHM(id, text, ...) [COLL_##id] = {.name = #text, .generate = coll_generate_##text, __VA_ARGS__},
#include "collectives/schedules/algorithms.def"
#undef ALGORITHM
};

#define ALGORITHM(id, text, ...) " " #text
#define ALGORITHM_UNNAMED(id, text, ...)
const char coll_algo_names[] =
#include "collectives/schedules/algorithms.def"
    ;
#undef ALGORITHM

static const char *const op_names[COLL_OP_END + 1] = {
    [COLL_ALL_REDUCE] = "all_reduce",
    [COLL_REDUCE_SCATTER] = "reduce_scatter",
    [COLL_ALL_GATHER] = "all_gather",
    [COLL_BROADCAST] = "broadcast",
    [COLL_REDUCE] = "reduce",
    [COLL_GATHER] = "gather",
    [COLL_SCATTER] = "scatter",
    [COLL_ALL_TO_ALL] = "all_to_all",
    [COLL_SCAN] = "scan",
    [COLL_EXSCAN] = "exscan",
    [COLL_BARRIER] = "barrier",
    [COLL_SENDRECV] = "send/recv",
};

const char *coll_algo_name(coll_algo_t algo)
{
    return algo < COLL_ALGO_END ? algorithms[algo].name : "unknown";
}

coll_algo_t coll_algo_parse(const char *name)
{
    for (coll_algo_t algo = COLL_ALGO_AUTO; name && algo < COLL_ALGO_END; algo++)
        if (strcmp(algorithms[algo].name, name) == 0)
            return coll_algo_is(algo, COLL_OF_LEAVES) ? COLL_ALGO_END : algo;
    return COLL_ALGO_END;
}

const char *coll_op_name(coll_op_t op)
{
    return op >= COLL_ALL_REDUCE && op <= COLL_SENDRECV ? op_names[op] : "unknown";
}

const char *coll_call_name(coll_op_t op, int v, unsigned inside)
{
    static const char *const whole[] = {NULL,
                                        "gyre_finalize",
                                        "gyre_comm_split",
                                        "gyre_comm_dup",
                                        "gyre_comm_split_type",
                                        "gyre_comm_set",
                                        "gyre_mem_alloc_shared",
                                        "gyre_exact_all_reduce"};
    static const char *const each[COLL_OP_END] = {[COLL_REDUCE_SCATTER] = "reduce_scatterv",
                                                  [COLL_ALL_GATHER] = "all_gatherv",
                                                  [COLL_GATHER] = "gatherv",
                                                  [COLL_SCATTER] = "scatterv",
                                                  [COLL_ALL_TO_ALL] = "all_to_allv"};
    if (inside > 0 && inside < sizeof whole / sizeof whole[0])
        return whole[inside];
    return v && op > 0 && op < COLL_OP_END && each[op] ? each[op] : coll_op_name(op);
}

int coll_algo_serves(coll_algo_t algo, coll_op_t op, const coll_args_t *args)
{
    if (algo <= COLL_ALGO_AUTO || algo >= COLL_ALGO_END || op < COLL_ALL_REDUCE || op >= COLL_OP_END)
        return 0;
    const algorithm_t *a = &algorithms[algo];
    if (!((a->ops | a->uniform) & (1u << op)))
        return 0;
    if (!(a->traits & COLL_OF_LEAVES) != !(args && args->leaves && coll_op_reduces(op)))
        return 0;
    if (!args)
        return 1;
    if (!(a->ops & (1u << op)) && !args->uniform)
        return 0;
    if (args->exact && args->n > 1 && coll_op_reduces(op) && !(a->traits & COLL_AT_ONCE))
        return 0;
    /* blocks of different sizes cannot be exchanged in one memory: the call has no such in-place form */
    if (op == COLL_ALL_TO_ALL && args->in_place && !args->uniform)
        return 0;
    if (a->traits & COLL_REACHES)
        return args->place > 0;
    return !(a->traits & COLL_BY_PARTS) || args->host != NULL;
}

int coll_algo_is(coll_algo_t algo, coll_trait_t trait)
{
    return algo < COLL_ALGO_END && (algorithms[algo].traits & trait) != 0;
}

int coll_algo_parts(coll_algo_t algo)
{
    return algo < COLL_ALGO_END ? algorithms[algo].parts : 0;
}

/* ---- TMP ---- */

size_t coll_plain_factor(const coll_tmp_ask_t *ask)
{
    return ask->one_shot ? (size_t)ask->n + 1 : (size_t)coll_levels(ask->n) + 2;
}

size_t coll_tmp_factor(coll_algo_t algo, const coll_tmp_ask_t *ask)
{
    coll_tmp_bound_t *own = algorithms[algo].factor;
    return own ? own(ask) : coll_plain_factor(ask);
}

size_t coll_tmp_places(coll_algo_t algo, const coll_tmp_ask_t *ask)
{
    coll_tmp_bound_t *own = algorithms[algo].places;
    return own && !ask->one_shot ? own(ask) : 0;
}

static gyre_status_t check_args(const coll_args_t *a)
{
    int blocks = coll_op_has_blocks(a->op);
    if (a->n < 1 || a->rank < 0 || a->rank >= a->n || a->root < 0 || a->root >= a->n)
        return gyre_fail(GYRE_ERR_INVALID, "schedule of %s: rank %d or root %d is out of range for %d ranks",
                         coll_op_name(a->op), a->rank, a->root, a->n);
    if (a->chunk == 0)
        return gyre_fail(GYRE_ERR_INVALID, "schedule of %s: a chunk must have 1 element or more",
                         coll_op_name(a->op));
    if ((blocks && (!a->counts || !a->displs)) || (a->op == COLL_ALL_TO_ALL && (!a->rcounts || !a->rdispls)))
        return gyre_fail(GYRE_ERR_INVALID, "schedule of %s: counts or displacements are missing",
                         coll_op_name(a->op));
    return GYRE_OK;
}

/* One rank alone: its input is the result. Reductions still pass their one FINAL step. */
static void generate_alone(coll_builder_t *b, const coll_args_t *args)
{
    coll_ref_t in = coll_in(0);
    switch (args->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
    case COLL_SCAN:
        coll_add_reduce(b, 0, coll_out(0), &in, 1, args->count, COLL_FINAL);
        break;
    case COLL_EXSCAN:
        break;
    case COLL_REDUCE_SCATTER:
        in = coll_in(args->displs[0]);
        coll_add_reduce(b, 0, coll_out(0), &in, 1, args->counts[0], COLL_FINAL);
        break;
    default:
        coll_add_own_copy(b, args);
        break;
    }
}

/* ---- ranks renumbered by their places ----
 *
 * Rank order[i] does what rank i of the schedule by rank does, with its own blocks. The tree of a canonical
 * reduction is one over ranks, so such a reduction is not renumbered. */

static int renumbers(coll_algo_t algo, const coll_args_t *args)
{
    return args->order && args->n > 1 && algorithms[algo].ordered >> args->op & 1 &&
           (args->fast_order || !coll_op_reduces(args->op));
}

static const size_t *in_order(base_arena_t *arena, const coll_args_t *args, const size_t *of_rank,
                              int *failed)
{
    size_t *made = of_rank ? base_arena_alloc(arena, (size_t)args->n, sizeof *made) : NULL;
    *failed |= of_rank && !made;
    for (int i = 0; made && i < args->n; i++)
        made[i] = of_rank[args->order[i]];
    return made;
}

/* What `args` are by renumbered ranks. arena: owns its arrays. 0: no memory. */
static int renumber(const coll_args_t *args, base_arena_t *arena, coll_args_t *out)
{
    int failed = 0, *host = args->host ? base_arena_alloc(arena, (size_t)args->n, sizeof *host) : NULL;
    *out = *args;
    out->order = NULL;
    out->counts = in_order(arena, args, args->counts, &failed);
    out->displs = in_order(arena, args, args->displs, &failed);
    out->host = host;
    for (int i = 0; i < args->n; i++) {
        if (args->order[i] == args->rank)
            out->rank = i;
        if (args->order[i] == args->root)
            out->root = i;
        if (host)
            host[i] = args->host[args->order[i]];
    }
    return !failed && !args->host == !host;
}

static gyre_status_t build(coll_algo_t algo, const coll_args_t *args, coll_schedule_t *out)
{
    coll_builder_t *b = coll_builder_new(args);
    if (!b)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule");
    if (args->n == 1 && !coll_algo_is(algo, COLL_OF_LEAVES))
        generate_alone(b, args);
    else
        algorithms[algo].generate(b, args);
    return coll_builder_finish(b, algo, out);
}

static gyre_status_t build_in_order(coll_algo_t algo, const coll_args_t *args, coll_schedule_t *out)
{
    base_arena_t arena = {0};
    coll_args_t renumbered;
    gyre_status_t status = renumber(args, &arena, &renumbered)
                               ? build(algo, &renumbered, out)
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule");
    for (uint32_t i = 0; status == GYRE_OK && i < out->nsteps; i++)
        if (out->steps[i].peer >= 0)
            out->steps[i].peer = args->order[out->steps[i].peer];
    base_arena_free(&arena);
    return status;
}

gyre_status_t coll_schedule_build(coll_algo_t algo, const coll_args_t *args, coll_schedule_t *out)
{
    if (!coll_algo_serves(algo, args->op, args))
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "algorithm %s does not serve this %s",
                               coll_algo_name(algo), coll_op_name(args->op));
    gyre_status_t status = check_args(args);
    if (status != GYRE_OK)
        return status;
    return renumbers(algo, args) ? build_in_order(algo, args, out) : build(algo, args, out);
}
