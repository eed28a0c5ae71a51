/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/swing.c: Swing (De Sensi et al., "Swing: Short-cutting Rings for Higher
 * Bandwidth Allreduce", NSDI 2024, arXiv 2401.09356).
 *
 * The partners are those of bine.c: rho(s) = (1 - (-2)^(s + 1)) / 3 ranks further on for even ranks, further
 * back for odd ones, swinging from side to side, so that a message in step s crosses about 2^(s + 1) / 3
 * links of a ring or torus instead of 2^s, and fewer messages share a link. Each block's data is halved: one
 * half goes as said, the other half in the mirror image (even ranks back, odd ranks on), on a channel of its
 * own. So both links of a rank are busy in both directions in every step: Swing's multiport form for one
 * dimension. (With d dimensions Swing goes around them by turns; ranks are taken as one ring here, as a
 * schedule does not know the network's dimensions.)
 *
 *  reduce_scatter  Nearest partners, who exchange most, first. ceil(log2 n) steps, volume (n - 1) / n of the
 * vector.  all_gather      The same backwards.
 *  all_reduce      Both, by shards. one_shot: whole vectors with the same partners (not halved).
 *
 * Small vectors are not halved, either. Odd n, other n that are no powers of two, and the price of the
 * canonical order: as in bine.c; for the mirrored half pairs are no nodes either, and together a reduction
 * sends up to 1.7 times as much. Where it wins, by the simulator: docs/algorithms.md. */
#include "collectives/schedules/forest/forest.h"

enum { HALVE_FROM = 64 }; /* elements of the largest block: below, two messages cost more than they save */

typedef struct {
    coll_forest_t forest;
    coll_forest_blocks_t blocks;
} half_t;

static size_t largest_block(const coll_args_t *a)
{
    size_t most = 0;
    for (int o = 0; o < a->n; o++)
        most = base_max_size(most,
                             a->op == COLL_ALL_REDUCE ? coll_shard(a->count, a->n, o).count : a->counts[o]);
    return most;
}

void coll_generate_swing(coll_builder_t *b, const coll_args_t *args)
{
    half_t halves[2];
    int n = largest_block(args) >= HALVE_FROM ? 2 : 1;
    int *position = coll_scratch(b, (size_t)args->n, sizeof *position);
    if (!position)
        return;
    if (args->op == COLL_ALL_REDUCE && args->one_shot) {
        coll_negabinary_doubling(b, args);
        return;
    }
    for (int i = 0; i < n; i++)
        if (!coll_negabinary_forest(b, args->n, 1, i, &halves[i].forest, position) ||
            !coll_forest_blocks(b, args, position, i, n, &halves[i].blocks))
            return;
    if (args->op == COLL_ALL_GATHER)
        for (int i = 0; i < n; i++)
            coll_forest_own(b, args, &halves[i].blocks);
    for (int i = 0; i < n && args->op != COLL_ALL_GATHER; i++)
        coll_forest_reduce(b, args, &halves[i].forest, &halves[i].blocks);
    for (int i = 0; i < n && args->op != COLL_REDUCE_SCATTER; i++)
        coll_forest_gather(b, args, &halves[i].forest, &halves[i].blocks);
}

/* In one shot, lists of nodes in every step. */
size_t coll_swing_factor(const coll_tmp_ask_t *ask)
{
    return ask->one_shot ? 2 * (size_t)ask->n + 2 : coll_plain_factor(ask);
}
