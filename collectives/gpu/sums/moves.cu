/* collectives/gpu/sums/moves.cu: the collectives' kernel for operations that add nothing: broadcast,
 * gather, scatter, all_gather, all_to_all, barrier.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/ll/kernel.h"
#include "collectives/gpu/sums/kernels.h"
#include "collectives/gpu/shots/rounds.h"

struct only_moves {
    enum { adds = 0 };
};

static cudaError_t load_moves(void)
{
    const cudaError_t rc = gyre_load(rounds_kernel<only_moves>);
    return rc == cudaSuccess ? gyre_load(ll_kernel<only_moves>) : rc;
}

const coll_cuda_kernels_t coll_cuda_moves = {
    load_moves, held_rounds<only_moves>, launch_rounds<only_moves>, NULL, NULL, launch_ll<only_moves>};
