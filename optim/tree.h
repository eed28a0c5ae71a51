/* optim/tree.h: sums over the sequences of a batch in one fixed tree, whatever the number of ranks.
 *
 * The tree over n leaves splits at the largest power of two below n. It is the tree that collectives use over ranks
 * (docs/contract.md), so when ranks hold equal power-of-two runs of leaves, each rank's subtree continues in the
 * all-reduce and the bits of the whole sum do not depend on the number of ranks. */
#ifndef OPTIM_TREE_H
#define OPTIM_TREE_H

#include <stddef.h>

#include <gyre/status.h>

/* Sum of leaf[0..n) in tree order; 0 for n == 0. */
double optim_tree_sum(const double *leaf, size_t n);

/* Sums of long vectors whose leaves appear one by one, from the first to the last: a binary counter. Level k holds
 * the sum of 2^k leaves; as many levels are needed as n - 1 has bits, not n. */
typedef struct optim_stack optim_stack_t;

/* For `leaves` vectors of `length` floats. NO_MEMORY, OVERFLOW. */
gyre_status_t optim_stack_create(size_t leaves, size_t length, optim_stack_t **out);
void optim_stack_destroy(optim_stack_t *stack);
size_t optim_stack_levels(const optim_stack_t *stack);

/* Where leaf i, not the last, may be computed without a copy: [length], or NULL where the caller must bring its own
 * memory. */
float *optim_stack_place(optim_stack_t *stack, size_t i);

/* Leaf i, not the last, is complete. `value` [count] is its range [offset, offset + count): what optim_stack_place
 * gave, or the caller's memory, which is overwritten. Once per range of the leaf; ranges are independent. */
void optim_stack_push(optim_stack_t *stack, size_t i, float *value, size_t offset, size_t count);

/* The last leaf's range: value [count], in: the leaf, out: the sum of all leaves. Ranges are independent. */
void optim_stack_finish(const optim_stack_t *stack, float *value, size_t offset, size_t count);

#endif
