/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/predict.c: how long a collective will take on this host, in a loop of such
 * calls: the simulator, quickly.
 *
 * Where nobody waits for everybody (rooted operations, scans) one call begins before the other ends: the root
 * of a broadcast is two messages ahead. Then several calls are simulated, and what each further one takes is
 * the answer.
 *
 * A long vector is a long pipeline, and its chunks are all alike: two short ones of the same kind are
 * simulated, and what the longer of them took more is what every further chunk will take. */
#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "collectives/proof/simulate/internal.h"

enum { CALLS = 3 };
enum { SHORT = 4, LONG = 8, WORTH = 12 }; /* chunks of every rank's part; even, as some cut it in halves */

/* The same call with `count` elements in the vector, or in each block. arrays: [2 * n]. */
static coll_args_t shortened(const coll_args_t *args, size_t count, size_t *arrays)
{
    coll_args_t a = *args;
    size_t n = (size_t)args->n;
    a.count = count;
    if (!args->counts)
        return a;
    for (size_t r = 0; r < n; r++) {
        arrays[r] = count;
        arrays[n + r] = r * count;
    }
    a.counts = a.rcounts = arrays;
    a.displs = a.rdispls = arrays + n;
    return a;
}

/* Elements that grow with the call: of the vector, or of a block if all are equal; 0: do not shorten. */
static size_t length_of(const coll_args_t *args, size_t *parts)
{
    int vector = coll_op_is_vector(args->op);
    *parts = vector ? (size_t)args->n : 1;
    if (vector)
        return args->count;
    return args->op != COLL_BARRIER && args->uniform && args->counts ? args->counts[0] : 0;
}

gyre_status_t coll_predict(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo, size_t esize,
                           coll_memory_t memory, double *ns)
{
    coll_simulation_t first, second;
    double in_cache = sim_cached_part(cost, args, esize);
    int ahead = args->op == COLL_BROADCAST || args->op == COLL_REDUCE || args->op == COLL_GATHER ||
                args->op == COLL_SCATTER || coll_op_scans(args->op);
    int calls = ahead ? CALLS : 1;
    size_t parts, count = length_of(args, &parts), unit;
    if (!base_mul(parts, args->chunk, &unit) || count / unit < WORTH) {
        gyre_status_t st = sim_run_host(cost, args, algo, esize, memory, in_cache, calls, &first);
        if (st == GYRE_OK)
            *ns = first.ns;
        return st;
    }
    base_arena_t arena = {0};
    size_t *arrays = base_arena_alloc(&arena, 2 * (size_t)args->n, sizeof *arrays);
    if (!arrays)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to predict %s", coll_op_name(args->op));
    coll_args_t a = shortened(args, SHORT * unit, arrays);
    gyre_status_t st = sim_run_host(cost, &a, algo, esize, memory, in_cache, calls, &first);
    if (st == GYRE_OK) {
        a = shortened(args, LONG * unit, arrays);
        st = sim_run_host(cost, &a, algo, esize, memory, in_cache, calls, &second);
    }
    if (st == GYRE_OK)
        *ns = second.ns + (second.ns - first.ns) * ((double)count / (double)unit - LONG) / (LONG - SHORT);
    base_arena_free(&arena);
    return st;
}
