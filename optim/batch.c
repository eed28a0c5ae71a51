/* SPDX-License-Identifier: Apache-2.0 */
/* optim/batch.c: subtrees of the batch's tree for data-parallel ranks. */
#include "base/checked.h"
#include "base/error.h"
#include "optim/batch.h"
#include "optim/tree.h"

optim_batch_t optim_batch_complete(const optim_batch_t *batch)
{
    optim_batch_t b = *batch;
    b.leaf = b.leaf ? b.leaf : 1;
    size_t leaves = b.batch / b.leaf;
    if (b.groups == 0)
        b.groups = leaves & (~leaves + 1);
    return b;
}

size_t optim_batch_leaves(const optim_batch_t *batch, size_t sequences)
{
    return batch->leaf > 1 ? sequences / batch->leaf : sequences;
}

optim_batch_t optim_batch_sized(const optim_batch_t *batch, size_t sequences)
{
    optim_batch_t b = *batch;
    b.batch = sequences;
    if (b.groups > 0 && optim_batch_leaves(&b, sequences) % b.groups != 0)
        b.groups = 0;
    return b;
}

size_t optim_batch_group(const optim_batch_t *batch)
{
    const optim_batch_t b = optim_batch_complete(batch);
    return b.groups ? b.batch / b.groups : 0;
}

/* The least batch of equal groups of whole leaves that is no smaller and feeds all ranks. */
static size_t nearest_batch(const optim_batch_t *batch, size_t ranks)
{
    size_t leaf = base_max_size(1, batch->leaf), groups = base_max_size(1, batch->groups);
    size_t least = base_max_size((batch->batch + leaf - 1) / leaf, ranks);
    return (least + groups - 1) / groups * groups * leaf;
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
    if (leaves % b.groups != 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "a batch of %zu %s does not divide into %zu equal groups: take a batch of %zu sequences", leaves,
            b.leaf > 1 ? "gradients (--grad-sequences)" : "sequences", b.groups, nearest_batch(batch, ranks));
    if (b.batch < ranks)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "batch %zu has fewer sequences than there are data-parallel ranks (%zu): take a batch of %zu, "
            "or fewer ranks",
            b.batch, ranks, nearest_batch(batch, ranks));
    return GYRE_OK;
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

/* 1 if equal shares are subtrees of the batch's tree, all the way down. */
static int equal_is_tree(size_t share, size_t group, size_t ranks)
{
    if (ranks < 2)
        return 1;
    size_t left = optim_tree_split(ranks, 1);
    return optim_tree_split(share * ranks, group) == left * share && equal_is_tree(share, group, left) &&
           equal_is_tree(share, group, ranks - left);
}

/* Both in leaves. */
static int has_equal(const optim_batch_t *batch, size_t leaves, size_t group, size_t ranks)
{
    return leaves % ranks == 0 && (batch->equal || equal_is_tree(leaves / ranks, group, ranks));
}

void optim_batch_share(const optim_batch_t *batch, size_t ranks, size_t rank, size_t *first, size_t *count)
{
    size_t leaf = base_max_size(1, batch->leaf), leaves = batch->batch / leaf,
           group = optim_batch_group(batch) / leaf;
    if (has_equal(batch, leaves, group, ranks)) {
        *count = leaves / ranks;
        *first = rank * *count;
    } else {
        tree_share(leaves, group, ranks, rank, first, count);
    }
    *first *= leaf;
    *count *= leaf;
}

int optim_batch_invariant(const optim_batch_t *batch, size_t ranks)
{
    size_t leaf = base_max_size(1, batch->leaf), leaves = batch->batch / leaf;
    return !batch->equal || leaves % ranks != 0 ||
           equal_is_tree(leaves / ranks, optim_batch_group(batch) / leaf, ranks);
}
