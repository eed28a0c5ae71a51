/* collectives/choose/candidates.c: the algorithms and forms that come into question for a call. See candidates.h. */
#include "collectives/choose/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "collectives/run/communicator.h"
#include "collectives/schedules/algorithms.h"

enum {
    ONE_SHOT_MOST =
        256 << 10, /* whole vectors to everyone: beyond this it is far behind wherever it was measured */
    CHUNKS_FROM = 512 << 10, /* sizes for which the length of a chunk can matter */
    MODEL_RANKS = 64,
    MODEL_BYTES = 256 << 10, /* beyond, moving the bytes is what costs, and the rules do that best */
    FLAT_RANKS = 32 /* more do not choose what connects everyone with everyone, however fast: memory */
};

/* The model errs by a quarter; the rules were measured. So it must promise much. */
static const double MUCH_FASTER = 0.7;

static int add(coll_tune_line_t *list, int n, const coll_args_t *args, coll_algo_t algo, int one_shot,
               uint64_t chunk)
{
    if (n < COLL_CANDIDATES_MOST)
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

int coll_candidates(const coll_args_t *args, int parts, uint64_t bytes, coll_tune_line_t *list)
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
        for (int i = 0; pipelined && coll_algo_is(algo, COLL_TRY_CHUNKS) && bytes >= CHUNKS_FROM && i < 2; i++)
            n = add(list, n, args, algo, forms ? 0 : -1, chunks[i]);
    }
    return n;
}

/* The cores are those that this communicator's ranks may use. */
static coll_cost_t cost_of(const gyre_comm_t *comm)
{
    coll_cost_t cost;
    if (comm->tune)
        cost = comm->tune->cost;
    else
        coll_cost_builtin(&cost);
    int cores = comm_group_cores(comm->group);
    cost.cores = cores < cost.cores ? cores : cost.cores;
    return cost;
}

double coll_model_ns(const gyre_comm_t *comm, const coll_args_t *args, uint64_t bytes, coll_algo_t algo,
                     int one_shot, uint64_t chunk, coll_memory_t memory)
{
    enum { ESIZE = 4 };
    const size_t n = (size_t)comm->n;
    size_t counts[MODEL_RANKS], displs[MODEL_RANKS];
    if (comm->hosts > 1 || n < 2 || n > MODEL_RANKS || bytes > SIZE_MAX / 2)
        return 0;
    coll_args_t a = {.op = args->op,
                     .n = comm->n,
                     .fast_order = args->fast_order,
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
    const coll_cost_t cost = cost_of(comm);
    return coll_predict(&cost, &a, algo, ESIZE, memory, &ns) == GYRE_OK ? ns : 0;
}

double coll_model_exchange_ns(const gyre_comm_t *comm, coll_op_t op, uint64_t bytes)
{
    const coll_cost_t cost = cost_of(comm);
    const double n = comm->n, share = coll_op_is_vector(op) ? (double)bytes : (double)bytes / n;
    const double crowd = n > cost.cores ? n / cost.cores : 1; /* ranks that take turns on a core */
    double posted = share, read = share * (n - 1);
    if (op == COLL_BROADCAST || op == COLL_SCATTER)
        read = share;
    if (op == COLL_REDUCE_SCATTER || op == COLL_ALL_TO_ALL)
        posted = share * n;
    /* Writing a line that others have read costs as much as reading one that another has written. */
    const double line = read > 0 || op == COLL_BARRIER ? cost.line : 0;
    const double work = cost.call + line + (posted + read) / cost.peer_cache;
    return work * crowd + (crowd > 1 ? cost.yield * n : 0); /* each must have run before the last can go on */
}

/* 1 if the model may choose it. Its turn is not 0 if it is ahead anywhere inside a host; schedules as long as the canonical
 * ring's would cost more to predict than they could win. */
static int may_choose(const gyre_comm_t *comm, const coll_args_t *args, coll_algo_t algo)
{
    return !(coll_algo_is(algo, COLL_FLAT) && comm->n > FLAT_RANKS) &&
           !(coll_algo_is(algo, COLL_BY_PARTS) && comm->parts < 2) && coll_algo_serves(algo, args->op, args);
}

/* Those that the model may choose in order of their turns. list: [COLL_ALGO_END]. Returns how many. */
static int by_turn(const gyre_comm_t *comm, const coll_args_t *args, coll_algo_t *list)
{
    int n = 0;
    for (coll_algo_t algo = COLL_ALGO_AUTO + 1; algo < COLL_ALGO_END; algo++) {
        if (coll_algo_turn(algo) == 0 || !may_choose(comm, args, algo))
            continue;
        int at = n++;
        for (; at > 0 && coll_algo_turn(list[at - 1]) > coll_algo_turn(algo); at--)
            list[at] = list[at - 1];
        list[at] = algo;
    }
    return n;
}

/* The algorithm that the model prefers to the rules' for calls of `bytes`, or AUTO. Of two with the same time the one whose turn
 * comes first. */
static coll_algo_t ask_model(const gyre_comm_t *comm, const coll_args_t *args, uint64_t bytes)
{
    enum { ESIZE = 4 };
    double ours[2], best = MUCH_FASTER;
    coll_algo_t found = COLL_ALGO_AUTO, list[COLL_ALGO_END];
    coll_args_t like = *args;
    coll_choice_t rule;
    like.count = (size_t)bytes / ESIZE / (coll_op_is_vector(args->op) ? 1 : (size_t)comm->n);
    coll_select_rule(comm, &like, ESIZE, &rule);
    const uint64_t chunk = (uint64_t)rule.chunk * ESIZE;
    for (int m = 0; m < 2; m++)
        ours[m] = coll_model_ns(comm, args, bytes, rule.algo, rule.one_shot, chunk, (coll_memory_t)m);
    const int choices = ours[0] > 0 && ours[1] > 0 ? by_turn(comm, args, list) : 0;
    for (int i = 0; i < choices; i++) {
        const coll_algo_t algo = list[i];
        if (algo == rule.algo)
            continue;
        double worst = 0;
        for (int m = 0; m < 2 && worst < best; m++) {
            double ns = coll_model_ns(comm, args, bytes, algo, rule.one_shot, chunk, (coll_memory_t)m);
            double ratio = ns > 0 ? ns / ours[m] : 1;
            worst = ratio > worst ? ratio : worst;
        }
        if (worst < best) {
            best = worst;
            found = algo;
        }
    }
    return found;
}

int coll_model_choose(gyre_comm_t *comm, const coll_args_t *args, uint64_t bytes, coll_choice_t *choice)
{
    const int class = bytes > 1 ? 64 - __builtin_clzll(bytes - 1) : 0; /* 2^class is the next power of two */
    /* Where ranks take turns on the cores, the number of turns decides, and that is the scheduler's: rules only. */
    if (comm->hosts > 1 || comm->n < 2 || comm->n > MODEL_RANKS || comm->n > cost_of(comm).cores ||
        bytes > MODEL_BYTES)
        return 0;
    uint8_t *known = &comm->modelled[args->op][class];
    if (!*known) {
        coll_algo_t algo = ask_model(comm, args, args->op == COLL_BARRIER ? 0 : (uint64_t)1 << class);
        *known = (uint8_t)(algo == COLL_ALGO_AUTO ? 1 : 2 + (int)algo);
    }
    if (*known == 1 || !coll_algo_serves((coll_algo_t)(*known - 2), args->op, args))
        return 0;
    choice->algo = (coll_algo_t)(*known - 2);
    choice->one_shot = choice->one_shot && coll_algo_is(choice->algo, COLL_TWO_FORMS);
    choice->why = COLL_WHY_MODEL;
    return 1;
}
