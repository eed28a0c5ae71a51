/* SPDX-License-Identifier: Apache-2.0 */
/* optim/tree.h: sums over the sequences of a batch in one fixed tree, whatever the number of ranks.
 *
 * The tree over n leaves splits at the largest power of two below n. It is the tree that collectives use over
 * ranks (docs/contract.md), so when each rank's leaves are a subtree, its sum continues in the all-reduce and
 * the bits of the whole do not depend on the number of ranks. With groups (optim/batch.h) there are two such
 * trees: over the leaves of a group, and over the groups.
 *
 * Collectives have leaves, too (gyre_options_t), but a call with them wants all leaves of a rank in memory at
 * once, and knows no groups. A rank's gradients appear one after another, and here log2 of their number are
 * held. The store starts the all-reduce of a bucket when its last gradient has been joined to these. */
#ifndef OPTIM_TREE_H
#define OPTIM_TREE_H

#include <stddef.h>

#include <gyre/status.h>

/* Leaves on the left of the root of a tree over n >= 2 leaves in groups of `group`; 1 or 0: no groups. */
size_t optim_tree_split(size_t n, size_t group);

/* Sum of leaf[0..n) in tree order; 0 for n == 0. */
double optim_tree_sum(const double *leaf, size_t n, size_t group);

/* When leaf i of n comes, *held sums of complete left subtrees are kept; it joins the last *joins of them,
 * the innermost first. */
void optim_tree_joins(size_t n, size_t group, size_t i, size_t *held, size_t *joins);

/* Sums of long vectors whose leaves appear one by one, from the first to the last. What is held are the sums
 * of complete left subtrees: as many levels as the tree is deep, not as many as there are leaves. */
typedef struct optim_stack optim_stack_t;

/* For `leaves` vectors of `length` floats. With several `lanes`, which divide the leaves, leaves appear in
 * turns: the i-th is leaf i / lanes of lane i mod lanes. Each lane is a tree of its own, whose sum comes out
 * of its last leaf. 1: one tree.
 *
 * `round` rounds leaves and every sum of two, as a reduction in a type of fewer bits does (the value is still
 * a float); NULL: they are floats. NO_MEMORY, OVERFLOW. */
typedef void (*optim_round_fn)(float *x, size_t n);
gyre_status_t optim_stack_create(size_t leaves, size_t group, size_t lanes, size_t length,
                                 optim_round_fn round, optim_stack_t **out);
/* The same of one lane, in memory that is not the host's: who takes it, gives it back, and adds there. */
typedef struct {
    void *user;
    gyre_status_t (*take)(void *user, size_t bytes, void **out);
    void (*give)(void *user, void *memory);
    /* value [n] = left[0] + value, then left[1] + that, and so on, leaves and sums rounded as the stack's
     * are; the last sum goes to left[joins - 1] if `keep`. */
    gyre_status_t (*join)(void *user, float *value, float *const *left, size_t joins, int keep, size_t n);
} optim_stack_place_t;
gyre_status_t optim_stack_create_on(const optim_stack_place_t *on, size_t leaves, size_t group, size_t length,
                                    optim_stack_t **out);
void optim_stack_destroy(optim_stack_t *stack);
/* Vectors of `length` floats that each lane of so many leaves holds: a pure function of leaves and group. */
size_t optim_stack_levels(size_t leaves, size_t group);

/* Where leaf i may be computed without a copy: [length], or NULL where the caller must bring its own memory,
 * as for the last of a lane. */
float *optim_stack_place(optim_stack_t *stack, size_t i);

/* Leaf i, not the last of all, is complete. `value` [count] is its range [offset, offset + count): what
 * optim_stack_place gave, or the caller's memory, which is overwritten: of the last of a lane by the sum of
 * its lane. Once per range of the leaf; ranges are independent. On the host it cannot fail. */
gyre_status_t optim_stack_push(optim_stack_t *stack, size_t i, float *value, size_t offset, size_t count);

/* The last leaf's range: value [count], in: the leaf, out: the sum of all leaves of its lane. Ranges are
 * independent. */
gyre_status_t optim_stack_finish(const optim_stack_t *stack, float *value, size_t offset, size_t count);

#endif
