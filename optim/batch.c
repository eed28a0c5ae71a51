/* optim/batch.c: subtrees of the batch's tree for data-parallel ranks. */
#include "base/checked.h"
#include "base/error.h"
#include "optim/batch.h"
#include "optim/tree.h"

optim_batch_t optim_batch_complete(const optim_batch_t *batch)
{
    optim_batch_t b = *batch;
    if (b.groups == 0)
        b.groups = b.batch & (~b.batch + 1);
    return b;
}

optim_batch_t optim_batch_sized(const optim_batch_t *batch, size_t sequences)
{
    optim_batch_t b = *batch;
    b.batch = sequences;
    if (b.groups > 0 && sequences % b.groups != 0)
        b.groups = 0;
    return b;
}

size_t optim_batch_group(const optim_batch_t *batch)
{
    const optim_batch_t b = optim_batch_complete(batch);
    return b.groups ? b.batch / b.groups : 0;
}

/* The least batch of equal groups that is no smaller and feeds all ranks. */
static size_t nearest_batch(const optim_batch_t *batch, size_t ranks)
{
    size_t least = base_max_size(batch->batch, ranks), groups = base_max_size(1, batch->groups);
    return (least + groups - 1) / groups * groups;
}

gyre_status_t optim_batch_check(const optim_batch_t *batch, size_t ranks)
{
    if (batch->batch < 1)
        return gyre_fail(GYRE_ERR_INVALID, "batch %zu: it must be 1 or more", batch->batch);
    const optim_batch_t b = optim_batch_complete(batch);
    if (b.batch % b.groups != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a batch of %zu sequences cannot be %zu equal groups: take a batch of %zu", b.batch,
                         b.groups, nearest_batch(batch, ranks));
    if (b.batch < ranks)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "batch %zu has fewer sequences than there are data-parallel ranks (%zu): take a batch of %zu, "
            "or fewer ranks",
            b.batch, ranks, nearest_batch(batch, ranks));
    return GYRE_OK;
}

/* Both trees are walked down to the rank: its leaves are those below the node where it stands alone. Where few ranks
 * stand to the right (less than half as many as to the left) they would be the slowest with half of the leaves: the left
 * gets all. */
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

static int has_equal(const optim_batch_t *b, size_t ranks)
{
    return b->batch % ranks == 0 &&
           (b->equal || equal_is_tree(b->batch / ranks, optim_batch_group(b), ranks));
}

void optim_batch_share(const optim_batch_t *batch, size_t ranks, size_t rank, size_t *first, size_t *count)
{
    if (has_equal(batch, ranks)) {
        *count = batch->batch / ranks;
        *first = rank * *count;
    } else {
        tree_share(batch->batch, optim_batch_group(batch), ranks, rank, first, count);
    }
}

int optim_batch_invariant(const optim_batch_t *batch, size_t ranks)
{
    return !batch->equal || batch->batch % ranks != 0 ||
           equal_is_tree(batch->batch / ranks, optim_batch_group(batch), ranks);
}
