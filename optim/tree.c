/* optim/tree.c: the binary counter.
 *
 * Behind leaf i the levels that hold something are the one bits of i + 1. Leaf i joins the levels of the trailing
 * ones of i, lowest first, and lands on the level above them. The last leaf joins every level that is held: for n = 7
 * levels 1 and 2 hold (4 5) and (0 1 2 3), and it becomes (0 1 2 3) + ((4 5) + 6): the tree of the contract. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels.h"
#include "optim/tree.h"

#define MAX_LEVELS (8 * sizeof(size_t))

struct optim_stack {
    size_t leaves, length, levels;
    void (*add)(float *out, const float *a, const float *b, size_t n);
    float *level[MAX_LEVELS]; /* [length] each */
};

double optim_tree_sum(const double *leaf, size_t n)
{
    if (n < 2)
        return n ? leaf[0] : 0.0;
    size_t half = 1;
    while (2 * half < n)
        half *= 2;
    return optim_tree_sum(leaf, half) + optim_tree_sum(leaf + half, n - half);
}

gyre_status_t optim_stack_create(size_t leaves, size_t length, optim_stack_t **out)
{
    size_t bytes;
    if (!base_mul(length, sizeof(float), &bytes))
        return gyre_fail(GYRE_ERR_OVERFLOW, "gradients of %zu elements do not fit in memory", length);
    optim_stack_t *stack = calloc(1, sizeof *stack);
    if (!stack)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stack of gradients");
    stack->leaves = leaves;
    stack->length = length;
    stack->add = model_kernels_f32(MODEL_ISA_BEST)->add;
    for (size_t rest = leaves > 0 ? leaves - 1 : 0; rest > 0; rest /= 2) {
        if (!(stack->level[stack->levels] = malloc(bytes ? bytes : 1))) {
            optim_stack_destroy(stack);
            return gyre_fail(
                GYRE_ERR_NO_MEMORY,
                "no memory for partial sums of %zu gradients of %zu elements: take a smaller batch or "
                "model, or more ranks",
                leaves, length);
        }
        stack->levels++;
    }
    *out = stack;
    return GYRE_OK;
}

void optim_stack_destroy(optim_stack_t *stack)
{
    if (!stack)
        return;
    for (size_t l = 0; l < stack->levels; l++)
        free(stack->level[l]);
    free(stack);
}

size_t optim_stack_levels(const optim_stack_t *stack)
{
    return stack->levels;
}

float *optim_stack_place(optim_stack_t *stack, size_t i)
{
    return i % 2 == 0 && i + 1 < stack->leaves ? stack->level[0] : NULL;
}

void optim_stack_push(optim_stack_t *stack, size_t i, float *value, size_t offset, size_t count)
{
    size_t target = 0;
    if (i % 2 == 0)
        return; /* it was computed in place, on level 0 */
    while (i >> target & 1)
        target++;
    for (size_t l = 0; l < target; l++) {
        float *out = l + 1 == target ? stack->level[target] + offset : value;
        stack->add(out, stack->level[l] + offset, value, count);
    }
}

void optim_stack_finish(const optim_stack_t *stack, float *value, size_t offset, size_t count)
{
    size_t last = stack->leaves > 0 ? stack->leaves - 1 : 0;
    for (size_t l = 0; l < stack->levels; l++)
        if (last >> l & 1)
            stack->add(value, stack->level[l] + offset, value, count);
}
