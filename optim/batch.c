/* SPDX-License-Identifier: Apache-2.0 */
/* optim/batch.c: subtrees of the batch's tree for data-parallel ranks. */
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "optim/batch.h"
#include "optim/tree.h"

size_t optim_batch_lanes(const optim_batch_t *batch)
{
    size_t leaves = optim_batch_leaves(batch, batch->batch);
    return batch->lanes ? base_min_size(batch->lanes, leaves) : leaves;
}

optim_batch_t optim_batch_complete(const optim_batch_t *batch)
{
    optim_batch_t b = *batch;
    b.leaf = b.leaf ? b.leaf : 1;
    b.parts = b.parts ? b.parts : 1;
    size_t lanes = optim_batch_lanes(batch);
    if (b.groups == 0)
        b.groups = lanes & (~lanes + 1);
    return b;
}

size_t optim_batch_rounds(const optim_batch_t *batch)
{
    size_t lanes = optim_batch_lanes(batch);
    return lanes ? optim_batch_leaves(batch, batch->batch) / lanes : 1;
}

size_t optim_batch_leaves(const optim_batch_t *batch, size_t sequences)
{
    return batch->leaf > 1 ? sequences / batch->leaf : sequences;
}

optim_batch_t optim_batch_sized(const optim_batch_t *batch, size_t sequences)
{
    optim_batch_t b = *batch;
    b.batch = sequences;
    if (b.groups > 0 && optim_batch_lanes(&b) % b.groups != 0)
        b.groups = 0;
    return b;
}

size_t optim_batch_group(const optim_batch_t *batch)
{
    const optim_batch_t b = optim_batch_complete(batch);
    return b.groups ? optim_batch_lanes(&b) * b.leaf / b.groups : 0;
}

double optim_batch_sum(const optim_batch_t *batch, const double *value)
{
    const optim_batch_t b = optim_batch_complete(batch);
    /* in parts, a power of two of each sequence: the tree over them has each sequence as a node */
    size_t all = b.batch * b.parts, round = base_max_size(1, optim_batch_lanes(&b) * b.leaf) * b.parts;
    double sum = 0.0;
    for (size_t at = 0; at < all; at += round) {
        double next =
            optim_tree_sum(value + at, base_min_size(round, all - at), optim_batch_group(&b) * b.parts);
        sum = at == 0 ? next : sum + next;
    }
    return sum;
}

/* The least batch of equal groups of whole leaves that is no smaller and feeds all ranks. */
static size_t nearest_batch(const optim_batch_t *batch, size_t ranks)
{
    size_t leaf = base_max_size(1, batch->leaf), groups = base_max_size(1, batch->groups);
    size_t least = base_max_size((batch->batch + leaf - 1) / leaf, ranks);
    size_t unit = batch->lanes > 0 && least > batch->lanes ? batch->lanes : groups;
    return (least + unit - 1) / unit * unit * leaf;
}

size_t optim_batch_nearest_leaf(const optim_batch_t *batch, size_t ranks)
{
    size_t leaf = base_max_size(1, base_min_size(batch->leaf, batch->batch / ranks));
    while (batch->batch % leaf != 0)
        leaf--;
    return leaf;
}

gyre_status_t optim_batch_check(const optim_batch_t *batch, size_t ranks)
{
    if (batch->batch < 1)
        return gyre_fail(GYRE_ERR_INVALID, "batch %zu: it must be 1 or more", batch->batch);
    if (batch->parts > 1 && batch->leaf > 1)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--sequence-parts %zu with --grad-sequences %zu: a gradient is that of a part or of "
                         "several sequences; leave one of the options out",
                         batch->parts, batch->leaf);
    const optim_batch_t b = optim_batch_complete(batch);
    size_t leaves = b.batch / b.leaf;
    if (b.leaf > 1 && (b.batch % b.leaf != 0 || (leaves < ranks && b.batch >= ranks)))
        return gyre_fail(GYRE_ERR_INVALID,
                         "a batch of %zu sequences with %zu to a gradient (--grad-sequences) %s: take "
                         "--grad-sequences %zu (other bits), or a batch of %zu",
                         b.batch, b.leaf,
                         b.batch % b.leaf != 0 ? "does not divide evenly"
                                               : "has fewer gradients than there are data-parallel ranks",
                         optim_batch_nearest_leaf(batch, ranks), nearest_batch(batch, ranks));
    const char *what = b.leaf > 1 ? "gradients (--grad-sequences)" : "sequences";
    size_t lanes = optim_batch_lanes(&b);
    if (leaves % lanes != 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "a batch of %zu %s does not divide into rounds of %zu (--lanes): take a batch of %zu "
            "sequences, or --lanes 0 (other bits)",
            leaves, what, lanes, nearest_batch(batch, ranks));
    if (lanes % b.groups != 0 && lanes < leaves)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "a round of %zu %s (--lanes) does not divide into %zu equal groups: take --groups %zu, "
            "or --lanes %zu",
            lanes, what, b.groups, lanes, (lanes + b.groups - 1) / b.groups * b.groups);
    if (leaves % b.groups != 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "a batch of %zu %s does not divide into %zu equal groups: take a batch of %zu sequences", leaves,
            what, b.groups, nearest_batch(batch, ranks));
    if (b.batch < ranks)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "batch %zu has fewer sequences than there are data-parallel ranks (%zu): take a batch of %zu, "
            "or fewer ranks",
            b.batch, ranks, nearest_batch(batch, ranks));
    char why[OPTIM_BATCH_WHY];
    return optim_batch_dealt(batch, ranks, why) ? GYRE_OK : gyre_fail(GYRE_ERR_INVALID, "%s", why);
}

/* Both trees are walked down to the rank: its leaves are those below the node where it stands alone. Where
 * few ranks stand to the right (less than half as many as to the left) they would be the slowest with half of
 * the leaves: the left gets all. */
static void tree_share(size_t leaves, size_t group, size_t ranks, size_t rank, size_t *first, size_t *count)
{
    *first = 0;
    while (ranks > 1 && leaves > 0) {
        size_t left = optim_tree_split(ranks, 1), right = ranks - left;
        size_t left_leaves = leaves > 1 && 2 * right >= left ? optim_tree_split(leaves, group) : leaves;
        if (rank < left) {
            ranks = left;
            leaves = left_leaves;
        } else {
            rank -= left;
            ranks = right;
            *first += left_leaves;
            leaves -= left_leaves;
        }
    }
    *count = leaves;
}

/* The trees over so many ranks and over their shares split at the same place. */
static int splits_alike(size_t share, size_t group, size_t ranks)
{
    return optim_tree_split(share * ranks, group) == optim_tree_split(ranks, 1) * share;
}

/* 1 if equal shares are subtrees of the batch's tree, all the way down. Nodes over as many ranks are alike,
 * and the left half of each has a power of two. So those down the right side are looked at, and powers of
 * two. */
static int equal_is_tree(size_t share, size_t group, size_t ranks)
{
    for (size_t n = ranks; n > 1; n -= optim_tree_split(n, 1))
        if (!splits_alike(share, group, n))
            return 0;
    for (size_t n = 2; n < ranks; n *= 2)
        if (!splits_alike(share, group, n))
            return 0;
    return 1;
}

/* Both in leaves. */
static int has_equal(const optim_batch_t *batch, size_t leaves, size_t group, size_t ranks)
{
    return leaves % ranks == 0 && (batch->equal || equal_is_tree(leaves / ranks, group, ranks));
}

int optim_batch_dealt(const optim_batch_t *batch, size_t ranks, char why[OPTIM_BATCH_WHY])
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t lanes = optim_batch_lanes(&b);
    if (optim_batch_rounds(&b) == 1 || has_equal(&b, lanes, optim_batch_group(&b) / b.leaf, ranks))
        return 1;
    if (lanes < ranks)
        snprintf(why, OPTIM_BATCH_WHY,
                 "rounds of %zu gradients (--lanes) cannot feed dp %zu: take --lanes %zu (other bits)", lanes,
                 ranks, ranks);
    else if (lanes % ranks != 0)
        snprintf(why, OPTIM_BATCH_WHY, "dp %zu does not divide the %zu gradients of a round (--lanes)", ranks,
                 lanes);
    else
        snprintf(why, OPTIM_BATCH_WHY,
                 "dp %zu has no equal subtrees of rounds of %zu gradients in %zu groups: take --groups %zu "
                 "(other bits)",
                 ranks, lanes, b.groups, lanes);
    return 0;
}

void optim_batch_share(const optim_batch_t *batch, size_t ranks, size_t rank, size_t *first, size_t *count)
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t lanes = optim_batch_lanes(&b), group = optim_batch_group(&b) / b.leaf;
    if (has_equal(&b, lanes, group, ranks)) {
        *count = lanes / ranks;
        *first = rank * *count;
    } else {
        tree_share(lanes, group, ranks, rank, first, count);
    }
    *first *= b.leaf;
    *count *= b.leaf * optim_batch_rounds(&b);
}

/* 1 if the tree over `leaves` is one over blocks of `ranks` leaves, the tree over `ranks` in each. */
static int in_blocks(size_t leaves, size_t group, size_t ranks)
{
    if (leaves <= ranks)
        return leaves == ranks && equal_is_tree(1, group, ranks);
    size_t left = optim_tree_split(leaves, group);
    return in_blocks(left, group, ranks) && in_blocks(leaves - left, group, ranks);
}

int optim_batch_deals(const optim_batch_t *batch, size_t ranks)
{
    const optim_batch_t b = optim_batch_complete(batch);
    const size_t lanes = optim_batch_lanes(&b), group = optim_batch_group(&b) / b.leaf;
    return has_equal(&b, lanes, group, ranks) && in_blocks(lanes, group, ranks);
}

optim_part_t optim_batch_part(const optim_batch_t *batch, size_t ranks, size_t rank, int spread)
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t lanes = optim_batch_lanes(&b), group = optim_batch_group(&b) / b.leaf;
    optim_part_t part = {.stride = lanes * b.leaf, .blocks = 1, .block_group = 1};
    optim_batch_share(&b, ranks, rank, &part.first, &part.count);
    part.run = part.count / optim_batch_rounds(&b);
    if (spread && (b.lanes > 0 || b.parts > 1) && optim_batch_deals(&b, ranks)) {
        part.first = rank * b.leaf;
        part.run = b.leaf;
        part.stride = ranks * b.leaf;
        part.blocks = lanes / ranks;
        part.block_group = base_max_size(1, group / ranks);
    }
    return part;
}

int optim_batch_invariant(const optim_batch_t *batch, size_t ranks)
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t lanes = optim_batch_lanes(&b);
    return !b.equal || lanes % ranks != 0 ||
           equal_is_tree(lanes / ranks, optim_batch_group(&b) / b.leaf, ranks);
}
