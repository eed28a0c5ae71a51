/* collectives/predict.c: how long a collective will take on this host: the simulator, quickly. */
#include "collectives/simulate.h"

gyre_status_t coll_predict(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo, size_t esize,
                           coll_memory_t memory, double *ns)
{
    coll_simulation_t result;
    gyre_status_t st = coll_simulate_host(cost, args, algo, esize, memory, &result);
    if (st == GYRE_OK)
        *ns = result.ns;
    return st;
}
