/* SPDX-License-Identifier: Apache-2.0 */
/* optim/batch.h: the global batch, the tree over its sequences, and which rank has which of them.
 *
 * A batch is `groups` groups of equally many consecutive sequences; the tree of docs/contract.md joins what a
 * group has, and then the groups. Its leaves are the sequences, or `leaf` consecutive ones each, whose
 * gradient of a weight is one product over all their positions. The tree belongs to the batch alone: no
 * layout changes it, so no layout changes the bits of a sum over the batch, as long as every data-parallel
 * rank's share is a subtree of it. Groups decide which degrees get equal shares: with a power of two of
 * groups every power of two of ranks up to it does; for DP 24 take 24 groups, or 48, or 96 (then 24, 12,
 * 6, 3 and 1 have equal shares). */
#ifndef OPTIM_BATCH_H
#define OPTIM_BATCH_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct {
    size_t batch;  /* sequences of a step */
    size_t leaf;   /* sequences of a leaf; divides batch; 0: 1 */
    size_t groups; /* divides the number of leaves; 0: the largest power of two that does */
    int equal;     /* 1: equal shares wherever ranks divide the batch, even where that changes the bits */
} optim_batch_t;

/* `batch` with leaf and groups filled in. */
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

/* INVALID if leaves do not divide the batch, or groups the leaves, or if there are more ranks than leaves;
 * names the way out. */
gyre_status_t optim_batch_check(const optim_batch_t *batch, size_t ranks);

/* Sequences [*first, *first + *count) are rank `rank`'s of `ranks` data-parallel ones: whole leaves. Equal
 * shares where they are subtrees; else the leaves of the subtree that the rank is in the tree over the ranks:
 * 8 sequences are shared out to 3 ranks as 2, 2, 4, for (r0 + r1) + r2 is ((0 1) + (2 3)) + (4 5 6 7); to 5
 * ranks as 2, 2, 2, 2, 0. The longest share is then that of the largest power of two of ranks. */
void optim_batch_share(const optim_batch_t *batch, size_t ranks, size_t rank, size_t *first, size_t *count);

/* 1 if on `ranks` ranks this batch gives the bits that it gives on one. */
int optim_batch_invariant(const optim_batch_t *batch, size_t ranks);

#endif
