/* SPDX-License-Identifier: Apache-2.0 */
/* optim/batch.h: the global batch, the tree over its sequences, and which rank has which of them.
 *
 * A batch is `groups` groups of equally many consecutive sequences; the tree of docs/contract.md joins what a
 * group has, and then the groups. Its leaves are the sequences, or `leaf` consecutive ones each, whose
 * gradient of a weight is one product over all their positions. The tree belongs to the batch alone: no
 * layout changes it, so no layout changes the bits of a sum over the batch, as long as every data-parallel
 * rank's share is a subtree of it.
 *
 * With `lanes` the batch is cut into rounds of so many leaves. Groups are those of a round, the tree joins
 * the leaves of a round, and the sums of rounds are added from the first to the last:
 *
 *     12 leaves, lanes 4:       (R0 + R1) + R2, where R0 = (l0 + l1) + (l2 + l3), R1 = (l4 + l5) + ...
 *
 * So what a rank keeps does not grow with the batch (optim/store/zero.h). As many ranks as lanes can work on
 * a batch at most.
 *
 * With `parts` each sequence is cut into so many equal parts, whose gradients are leaves of their own: a tree
 * over them comes in the place of the sequence's one leaf. A rank may have some of the parts of its sequences
 * (context parallelism); what the functions here call leaves, shares and runs are sequences all the same.
 *
 * Groups decide which degrees get equal shares: with a power of two of
 * groups every power of two of ranks up to it does; for DP 24 take 24 groups, or 48, or 96 (then 24, 12,
 * 6, 3 and 1 have equal shares). */
#ifndef OPTIM_BATCH_H
#define OPTIM_BATCH_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct {
    size_t batch;  /* sequences of a step */
    size_t leaf;   /* sequences of a leaf; divides batch; 0: 1 */
    size_t lanes;  /* leaves of a round; divides the number of leaves, or is no less; 0: all: one round */
    size_t groups; /* divides the leaves of a round; 0: the largest power of two that does */
    size_t parts;  /* of a sequence, a power of two; more than 1 with leaf 1 only; 0: 1 */
    int equal;     /* 1: equal shares wherever ranks divide the batch, even where that changes the bits */
} optim_batch_t;

/* `batch` with leaf, parts and groups filled in. */
optim_batch_t optim_batch_complete(const optim_batch_t *batch);
/* The batch with so many sequences: with the same number of groups where they divide its leaves, else as
 * if none had been named. */
optim_batch_t optim_batch_sized(const optim_batch_t *batch, size_t sequences);
/* Sequences of a group. */
size_t optim_batch_group(const optim_batch_t *batch);
/* The largest number of sequences of a leaf, no larger than the batch's, that divides it and leaves a leaf to
 * each of `ranks`; 1 where there are more ranks than sequences. */
size_t optim_batch_nearest_leaf(const optim_batch_t *batch, size_t ranks);
/* Leaves that so many sequences of it are: whole ones. */
size_t optim_batch_leaves(const optim_batch_t *batch, size_t sequences);
/* Leaves of a round: lanes, or all leaves. */
size_t optim_batch_lanes(const optim_batch_t *batch);
/* Rounds of the batch, at least 1. */
size_t optim_batch_rounds(const optim_batch_t *batch);
/* Sum of value[batch * parts], one of each part of each sequence: the tree over each round, and the rounds
 * from the first on. */
double optim_batch_sum(const optim_batch_t *batch, const double *value);

/* INVALID if leaves do not divide the batch, lanes the leaves, or groups the leaves of a round, or if there
 * are more ranks than leaves; with several rounds also if ranks do not have equal shares of each that are
 * subtrees. Names the way out. */
gyre_status_t optim_batch_check(const optim_batch_t *batch, size_t ranks);

/* Of several rounds: 1 if every one of `ranks` ranks has as many leaves of each, and they are a subtree of
 * its tree; 0: these ranks cannot work on this batch, and `why` says the rule. Of one round: 1. */
#define OPTIM_BATCH_WHY 160
int optim_batch_dealt(const optim_batch_t *batch, size_t ranks, char why[OPTIM_BATCH_WHY]);

/* Sequences [*first, *first + *count) are rank `rank`'s of `ranks` data-parallel ones: whole leaves. Of
 * several rounds *count is the sum over all, and optim_batch_part says which they are. Equal shares where
 * they are subtrees; else the leaves of the subtree that the rank is in the tree over the ranks: 8 sequences
 * are shared out to 3 ranks as 2, 2, 4, for (r0 + r1) + r2 is ((0 1) + (2 3)) + (4 5 6 7); to 5 ranks as 2,
 * 2, 2, 2, 0. The longest share is then that of the largest power of two of ranks. */
void optim_batch_share(const optim_batch_t *batch, size_t ranks, size_t rank, size_t *first, size_t *count);

/* A rank's sequences as runs of consecutive ones. The ranks' sums of a run are reduced over the ranks;
 * `blocks` reductions are joined in a tree (of group `block_group`) into the sum of a round. */
typedef struct {
    size_t first, count; /* the first sequence; all sequences of the rank */
    size_t run;          /* sequences of a run, whole leaves; divides count; 0 if count is */
    size_t stride;       /* from the first sequence of a run to that of the next */
    size_t blocks, block_group;
    size_t parts; /* of each sequence that the rank has, which optim_batch_part leaves open; 0: 1 */
} optim_part_t;
/* A run is what a rank has of a round. With `spread` and lanes or parts it is one leaf, where those that the
 * ranks have at the same place are a subtree of the round's tree: no rank keeps sums of its own
 * then. */
optim_part_t optim_batch_part(const optim_batch_t *batch, size_t ranks, size_t rank, int spread);
/* 1 if leaves can be dealt out to `ranks` ranks one by one: shares are equal, and those at the same place are
 * a subtree of the round's tree. */
int optim_batch_deals(const optim_batch_t *batch, size_t ranks);
/* The sequence of the batch that is the rank's i-th. */
static inline size_t optim_part_index(const optim_part_t *part, size_t i)
{
    return part->first + i / part->run * part->stride + i % part->run;
}

/* 1 if on `ranks` ranks this batch gives the bits that it gives on one. */
int optim_batch_invariant(const optim_batch_t *batch, size_t ranks);

#endif
