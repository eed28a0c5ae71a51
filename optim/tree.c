/* SPDX-License-Identifier: Apache-2.0 */
/* optim/tree.c: a stack of the sums of complete left subtrees.
 *
 * Leaf i stands below some nodes to the right of their left half: as many sums are held when it comes (its
 * depth on the stack). Then it closes those nodes whose last leaf it is, the innermost first: for n = 7 leaf
 * 6 finds (0 1 2 3) and (4 5) and becomes (0 1 2 3) + ((4 5) + 6): the tree of the contract. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"
#include "optim/tree.h"

#define MAX_LEVELS (8 * sizeof(size_t))
#define BLOCK      ((size_t)2048) /* floats that are joined at a time */

struct optim_stack {
    size_t leaves, group, lanes; /* leaves: of a lane */
    size_t levels, lane_levels;  /* of all lanes, one lane after another; of each */
    void (*add)(float *out, const float *a, const float *b, size_t n);
    optim_round_fn round;   /* may be NULL */
    optim_stack_place_t on; /* join NULL: the host */
    float **level;          /* [levels], [length] each */
};

static size_t power_below(size_t n)
{
    size_t half = 1;
    while (2 * half < n)
        half *= 2;
    return half;
}

size_t optim_tree_split(size_t n, size_t group)
{
    if (group <= 1 || n <= group)
        return power_below(n);
    return power_below((n + group - 1) / group) * group;
}

double optim_tree_sum(const double *leaf, size_t n, size_t group)
{
    if (n < 2)
        return n ? leaf[0] : 0.0;
    size_t left = optim_tree_split(n, group);
    return optim_tree_sum(leaf, left, group) + optim_tree_sum(leaf + left, n - left, group);
}

void optim_tree_joins(size_t n, size_t group, size_t i, size_t *held, size_t *joins)
{
    *held = *joins = 0;
    while (n > 1) {
        size_t left = optim_tree_split(n, group);
        if (i < left) {
            n = left;
            *joins = 0; /* the nodes above go on after this leaf */
        } else {
            i -= left;
            n -= left;
            ++*held;
            ++*joins;
        }
    }
}

size_t optim_stack_levels(size_t leaves, size_t group)
{
    size_t most = 0, held, joins;
    for (size_t i = 0; i + 1 < leaves; i++) {
        optim_tree_joins(leaves, group, i, &held, &joins);
        most = base_max_size(most, held - joins + 1);
    }
    return most;
}

static gyre_status_t create(const optim_stack_place_t *on, size_t leaves, size_t group, size_t lanes,
                            size_t length, optim_round_fn round, optim_stack_t **out)
{
    const size_t lane_levels = optim_stack_levels(leaves / lanes, group), levels = lanes * lane_levels;
    size_t bytes;
    if (!base_mul(length, sizeof(float), &bytes))
        return gyre_fail(GYRE_ERR_OVERFLOW, "gradients of %zu elements do not fit in memory", length);
    optim_stack_t *stack = calloc(1, sizeof *stack);
    if (!stack || !(stack->level = calloc(levels + 1, sizeof *stack->level))) {
        free(stack);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a stack of gradients");
    }
    stack->leaves = leaves / lanes;
    stack->group = group;
    stack->lanes = lanes;
    stack->lane_levels = lane_levels;
    stack->round = round;
    if (on)
        stack->on = *on;
    stack->add = model_kernels_f32(MODEL_ISA_BEST)->add;
    for (; stack->levels < levels; stack->levels++) {
        void *memory = NULL;
        gyre_status_t status = GYRE_OK;
        if (on)
            status = on->take(on->user, bytes ? bytes : 1, &memory);
        else if (!(memory = malloc(bytes ? bytes : 1)))
            status = gyre_fail(
                GYRE_ERR_NO_MEMORY,
                "no memory for partial sums of %zu gradients of %zu elements: take --lanes (docs/zero.md), a "
                "smaller batch or model, or more ranks",
                leaves, length);
        if (status != GYRE_OK) {
            optim_stack_destroy(stack);
            return status;
        }
        stack->level[stack->levels] = memory;
    }
    *out = stack;
    return GYRE_OK;
}

gyre_status_t optim_stack_create(size_t leaves, size_t group, size_t lanes, size_t length,
                                 optim_round_fn round, optim_stack_t **out)
{
    return create(NULL, leaves, group, lanes, length, round, out);
}

gyre_status_t optim_stack_create_on(const optim_stack_place_t *on, size_t leaves, size_t group, size_t length,
                                    optim_stack_t **out)
{
    return create(on, leaves, group, 1, length, NULL, out);
}

void optim_stack_destroy(optim_stack_t *stack)
{
    if (!stack)
        return;
    for (size_t l = 0; l < stack->levels; l++)
        if (stack->on.join)
            stack->on.give(stack->on.user, stack->level[l]);
        else
            free(stack->level[l]);
    free(stack->level);
    free(stack);
}

/* Where the i-th leaf stands in the tree of its lane. */
typedef struct {
    float *const *level; /* of the sums that are held, `held` of them when it comes */
    size_t held, joins;
} standing_t;

static standing_t standing_of(const optim_stack_t *stack, size_t i)
{
    standing_t at = {.level = stack->level + i % stack->lanes * stack->lane_levels};
    optim_tree_joins(stack->leaves, stack->group, i / stack->lanes, &at.held, &at.joins);
    return at;
}

/* 1: the i-th leaf is the last of its lane. */
static int ends_lane(const optim_stack_t *stack, size_t i)
{
    return i / stack->lanes + 1 == stack->leaves;
}

float *optim_stack_place(optim_stack_t *stack, size_t i)
{
    const standing_t at = standing_of(stack, i);
    return at.joins == 0 && !ends_lane(stack, i) ? at.level[at.held] : NULL;
}

/* value [count] = level[held - 1] + value, then that of the level below, and so on, `joins` times; the last
 * sum goes to the level itself if `keep`. Block by block, so that value stays in the nearest cache from
 * one join to the next. */
static gyre_status_t join(const optim_stack_t *stack, standing_t place, float *value, size_t offset,
                          size_t count, int keep)
{
    const size_t joins = place.joins;
    if (stack->on.join) {
        float *left[MAX_LEVELS];
        for (size_t j = 0; j < joins; j++)
            left[j] = place.level[place.held - 1 - j] + offset;
        return stack->on.join(stack->on.user, value, left, joins, keep, count);
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = base_min_size(BLOCK, count - at);
        if (stack->round)
            stack->round(value + at, n);
        for (size_t j = 0; j < joins; j++) {
            float *left = place.level[place.held - 1 - j] + offset + at;
            float *out = keep && j + 1 == joins ? left : value + at;
            stack->add(out, left, value + at, n);
            if (stack->round)
                stack->round(out, n);
        }
    }
    return GYRE_OK;
}

gyre_status_t optim_stack_push(optim_stack_t *stack, size_t i, float *value, size_t offset, size_t count)
{
    /* nothing to add for a leaf that was computed in place */
    return join(stack, standing_of(stack, i), value, offset, count, !ends_lane(stack, i));
}

gyre_status_t optim_stack_finish(const optim_stack_t *stack, float *value, size_t offset, size_t count)
{
    return stack->leaves == 0
               ? GYRE_OK
               : join(stack, standing_of(stack, stack->leaves * stack->lanes - 1), value, offset, count, 0);
}
