/* collectives/schedules/algorithms.c: the table of algorithms: which operations each serves, its generator and its
 * name. A new algorithm is one new generator and one new row here. */
#include <string.h>

#include "base/error.h"
#include "collectives/schedules/generator.h"

#define OP(name) (1u << COLL_##name)

typedef struct {
    const char *name;
    coll_generator_t *generate;
    unsigned ops;     /* served always */
    unsigned uniform; /* served if all ranks know that all counts are equal */
} algorithm_t;

static const algorithm_t algorithms[COLL_ALGO_END] = {
    [COLL_ALGO_AUTO] = {"auto", NULL, 0, 0},
    [COLL_RING] = {"ring", coll_generate_ring,
                   OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(BROADCAST) | OP(REDUCE), 0},
    [COLL_TREE] = {"tree", coll_generate_tree, OP(ALL_REDUCE) | OP(BROADCAST) | OP(REDUCE), 0},
    [COLL_BINOMIAL] = {"binomial", coll_generate_binomial,
                       OP(ALL_REDUCE) | OP(BROADCAST) | OP(REDUCE) | OP(BARRIER), OP(GATHER) | OP(SCATTER)},
    [COLL_BRUCK] = {"bruck", coll_generate_bruck, OP(ALL_GATHER) | OP(BARRIER), OP(ALL_TO_ALL)},
    [COLL_PAIRWISE] = {"pairwise", coll_generate_pairwise,
                       OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(ALL_TO_ALL), 0},
    [COLL_DIRECT] = {"direct", coll_generate_direct,
                     OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(BROADCAST) | OP(REDUCE) |
                         OP(GATHER) | OP(SCATTER) | OP(ALL_TO_ALL) | OP(BARRIER),
                     0},
    [COLL_BUTTERFLY] = {"butterfly", coll_generate_butterfly,
                        OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(BARRIER), 0},
    [COLL_HIERARCHICAL] = {"hierarchical", coll_generate_hierarchical,
                           OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(BROADCAST) | OP(REDUCE) |
                               OP(BARRIER),
                           0},
    [COLL_SHARED] = {"shared", coll_generate_shared, OP(ALL_REDUCE) | OP(BROADCAST), 0},
    [COLL_BINE] = {"bine", coll_generate_bine,
                   OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) | OP(BROADCAST) | OP(REDUCE), 0},
    [COLL_SWING] = {"swing", coll_generate_swing, OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER), 0},
    [COLL_PAT] = {"pat", coll_generate_pat, OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER), 0},
};

static const char *const op_names[COLL_OP_END + 1] = {
    [COLL_ALL_REDUCE] = "all_reduce", [COLL_REDUCE_SCATTER] = "reduce_scatter",
    [COLL_ALL_GATHER] = "all_gather", [COLL_BROADCAST] = "broadcast",
    [COLL_REDUCE] = "reduce",         [COLL_GATHER] = "gather",
    [COLL_SCATTER] = "scatter",       [COLL_ALL_TO_ALL] = "all_to_all",
    [COLL_BARRIER] = "barrier",       [COLL_SENDRECV] = "send/recv",
};

const char *coll_algo_name(coll_algo_t algo)
{
    return algo < COLL_ALGO_END && algorithms[algo].name ? algorithms[algo].name : "unknown";
}

coll_algo_t coll_algo_parse(const char *name)
{
    for (coll_algo_t algo = COLL_ALGO_AUTO; name && algo < COLL_ALGO_END; algo++)
        if (algorithms[algo].name && strcmp(algorithms[algo].name, name) == 0)
            return algo;
    return COLL_ALGO_END;
}

const char *coll_op_name(coll_op_t op)
{
    return op >= COLL_ALL_REDUCE && op <= COLL_SENDRECV ? op_names[op] : "unknown";
}

int coll_algo_serves(coll_algo_t algo, coll_op_t op, const coll_args_t *args)
{
    if (algo <= COLL_ALGO_AUTO || algo >= COLL_ALGO_END || op < COLL_ALL_REDUCE || op >= COLL_OP_END)
        return 0;
    const algorithm_t *a = &algorithms[algo];
    if (!((a->ops | a->uniform) & (1u << op)))
        return 0;
    if (!args)
        return 1;
    if (!(a->ops & (1u << op)) && !args->uniform)
        return 0;
    /* blocks of different sizes cannot be exchanged in one memory: the call has no such in-place form */
    if (op == COLL_ALL_TO_ALL && args->in_place && !args->uniform)
        return 0;
    if (algo == COLL_SHARED)
        return args->place > 0;
    return algo != COLL_HIERARCHICAL || args->host != NULL;
}

static gyre_status_t check_args(const coll_args_t *a)
{
    int blocks = a->op == COLL_REDUCE_SCATTER || a->op == COLL_ALL_GATHER || a->op == COLL_ALL_TO_ALL ||
                 a->op == COLL_GATHER || a->op == COLL_SCATTER;
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
        coll_add_reduce(b, 0, coll_out(0), &in, 1, args->count, COLL_FINAL);
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

gyre_status_t coll_schedule_build(coll_algo_t algo, const coll_args_t *args, coll_schedule_t *out)
{
    if (!coll_algo_serves(algo, args->op, args))
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "algorithm %s does not serve this %s",
                               coll_algo_name(algo), coll_op_name(args->op));
    gyre_status_t status = check_args(args);
    if (status != GYRE_OK)
        return status;
    coll_builder_t *b = coll_builder_new(args);
    if (!b)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a schedule");
    if (args->n == 1)
        generate_alone(b, args);
    else
        algorithms[algo].generate(b, args);
    return coll_builder_finish(b, algo, out);
}
