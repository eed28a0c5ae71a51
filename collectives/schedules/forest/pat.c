/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/pat.c: PAT, parallel aggregated trees (Jeaugey, "PAT: a new algorithm for
 * all-gather and reduce-scatter operations at scale", arXiv 2506.20252), which NCCL has for reduce_scatter
 * and all_gather; here for all_reduce, too.
 *
 * Block o flows along a binomial tree laid around the ring from rank o: place v, that is rank o + v, hangs
 * below place v minus its lowest set bit. The tree is cut off at n, so any n will do. An edge spans as many
 * ranks as that bit, and the long ones are few: they carry one partial result for all places beyond them.
 *
 * Small blocks go in ceil(log2 n) steps, one distance per step: in the step of distance d a rank sends the n
 * / (2 d) blocks whose tree has such an edge below it, as one message. That takes memory for half of the
 * vector and large messages; so when the blocks of a step outgrow a chunk, only as many trees as fill a chunk
 * (`together`, a power of two) are walked side by side, the parts of each tree that are shorter than n /
 * together one place after the other, in an order in which a partial result is sent on as soon as it is
 * whole. Then at most log2(n) * together of them exist at once: n / together - 1 + log2(together) steps, and
 * memory for about log2 n chunks.
 *
 *  reduce_scatter  Short edges first: in steps of one chunk or less. Volume (n - 1) / n of the vector.
 *  all_gather      The same backwards. Blocks land where they belong; TMP only for messages of several
 * blocks.  all_reduce      Both, by shards: 2 log2 n steps for short vectors.
 *
 * Canonical order: forest.h. A place's subtree is an interval of ranks that starts anywhere; reductions send
 * up to about twice the volume that fast_order needs. Where it wins, by the simulator: docs/algorithms.md. */
#include "collectives/schedules/forest/forest.h"

static int lowest_bit(int v)
{
    return v & -v;
}

/* How many blocks make a chunk, as a power of two, at most the number of trees. */
static int blocks_together(const coll_args_t *a, const coll_forest_blocks_t *blocks, int width)
{
    size_t most = 1;
    int together = 1;
    for (int o = 0; o < a->n; o++)
        most = base_max_size(most, blocks->at[o].count);
    while (together < width && most <= a->chunk / (2 * (size_t)together))
        together *= 2;
    return together;
}

static int make_forest(coll_builder_t *b, const coll_args_t *a, const coll_forest_blocks_t *blocks,
                       coll_forest_t *f)
{
    int levels = coll_levels(a->n), width = 1;
    for (int i = 0; i < levels; i++)
        width *= 2;
    int span = width / blocks_together(a, blocks, width); /* places that are walked one after the other */
    int steps = span - 1 + coll_levels(width / span);
    if (!coll_forest_init(b, f, a->n, steps))
        return 0;
    f->parent[0] = -1;
    for (int v = 1; v < a->n; v++) {
        f->parent[v] = v - lowest_bit(v);
        f->start[v] = v;
        f->round[v] = v % span ? span - 1 - v % span : span - 1 + coll_levels(lowest_bit(v) / span);
    }
    coll_forest_finish(f);
    return 1;
}

void coll_generate_pat(coll_builder_t *b, const coll_args_t *args)
{
    coll_forest_t f;
    coll_forest_blocks_t blocks;
    if (!coll_forest_blocks(b, args, NULL, 0, 1, &blocks) || !make_forest(b, args, &blocks, &f))
        return;
    if (args->op != COLL_ALL_GATHER)
        coll_forest_reduce(b, args, &f, &blocks);
    else
        coll_add_own_copy(b, args);
    if (args->op != COLL_REDUCE_SCATTER)
        coll_forest_gather(b, args, &f, &blocks);
}
