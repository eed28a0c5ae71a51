/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/experts.c: expert parallelism: a store of two.
 *
 * Data-parallel ranks have the same rows but for those of experts, which fewer of them share. So the rows of
 * experts lie in a store of their own, over the ranks that hold the same ones (groups.edp), and all others in
 * the store that the caller has. This file serves both as one; a step ends for both with one norm and one
 * decision (step.c).
 *
 * An expert gets the gradients of the sequences of `ep` neighbours, as many at a time as there are ranks.
 * Their shares are equal subtrees of the batch's tree next to each other, which is what the lanes of a stack
 * are (optim/tree.h): the sum has the bits that the whole model's has. */
#include <stdlib.h>

#include "base/error.h"
#include "optim/store/internal.h"

gyre_status_t zero_experts_check(const model_params_t *given, const optim_zero_config_t *c, size_t ranks)
{
    if ((c->ep & (c->ep - 1)) != 0 || ranks % c->ep != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "ZeRO: expert parallelism of %zu must be a power of two that divides %zu "
                         "data-parallel ranks",
                         c->ep, ranks);
    if (c->on_device)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: expert parallelism is on the host: no device");
    for (size_t r = 0; r < given->rows; r++) {
        const model_param_t *row = &given->row[r];
        if (model_kind_of_experts(row->kind) && row->leaves * row->leaf_count / row->count % c->ep != 0)
            return gyre_fail(GYRE_ERR_INVALID,
                             "ZeRO: %s has %zu of its %zu elements here, which is not a slice for expert "
                             "parallelism of %zu",
                             row->name, row->count, row->leaves * row->leaf_count, c->ep);
    }
    return GYRE_OK;
}

/* The rows of a stage's unit that lie in one of the two tables, which follow each other there: the first, and
 * how many. */
static size_t part_of(const zero_experts_t *x, int experts, size_t first, size_t rows, size_t *count)
{
    size_t begin = x->table[experts]->rows;
    *count = 0;
    for (size_t r = first; r < first + rows && r < x->given->rows; r++)
        if (model_kind_of_experts(x->given->row[r].kind) == experts) {
            begin = *count ? begin : x->row[r];
            ++*count;
        }
    return begin;
}

static const model_store_t_f32 *store_of(const zero_experts_t *x, int experts)
{
    return experts ? &x->store->store : &x->others->store;
}

static gyre_status_t acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                             const float **value)
{
    const zero_experts_t *x = user;
    const float *part[MODEL_KINDS];
    gyre_status_t status = GYRE_OK;
    for (int experts = 0; status == GYRE_OK && experts < 2; experts++) {
        const model_store_t_f32 *s = store_of(x, experts);
        size_t count, next_count, at = 0, begin = part_of(x, experts, first, rows, &count),
                                  next = part_of(x, experts, next_first, next_rows, &next_count);
        if (count == 0)
            continue;
        status = s->acquire(s->user, begin, count, next, next_count, part);
        for (size_t r = first; status == GYRE_OK && r < first + rows; r++)
            if (model_kind_of_experts(x->given->row[r].kind) == experts)
                value[r - first] = part[at++];
    }
    return status;
}

static void release(void *user, size_t first, size_t rows)
{
    const zero_experts_t *x = user;
    for (int experts = 0; experts < 2; experts++) {
        const model_store_t_f32 *s = store_of(x, experts);
        size_t count, begin = part_of(x, experts, first, rows, &count);
        if (count > 0)
            s->release(s->user, begin, count);
    }
}

static gyre_status_t place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    const zero_experts_t *x = user;
    float *part[MODEL_KINDS];
    gyre_status_t status = GYRE_OK;
    for (int experts = 0; status == GYRE_OK && experts < 2; experts++) {
        const model_store_t_f32 *s = store_of(x, experts);
        size_t count, at = 0, begin = part_of(x, experts, first, rows, &count);
        if (count == 0)
            continue;
        status = s->place(s->user, slot, begin, count, part);
        for (size_t r = first; status == GYRE_OK && r < first + rows; r++)
            if (model_kind_of_experts(x->given->row[r].kind) == experts)
                grad[r - first] = part[at++];
    }
    return status;
}

static gyre_status_t ready(void *user, size_t slot, size_t first, size_t rows)
{
    const zero_experts_t *x = user;
    gyre_status_t status = GYRE_OK;
    for (int experts = 0; status == GYRE_OK && experts < 2; experts++) {
        const model_store_t_f32 *s = store_of(x, experts);
        size_t count, begin = part_of(x, experts, first, rows, &count);
        if (count > 0)
            status = s->ready(s->user, slot, begin, count);
    }
    return status;
}

gyre_status_t zero_experts_create(const model_params_t *given, zero_experts_t **out)
{
    zero_experts_t *x = calloc(1, sizeof *x);
    gyre_status_t status = GYRE_OK;
    if (!x || !(x->row = calloc(given->rows + 1, sizeof *x->row)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of %zu rows", given->rows);
    for (int experts = 0; status == GYRE_OK && experts < 2; experts++) {
        status = model_params_pick(given, experts, &x->table[experts]);
        if (status == GYRE_OK && !(x->from[experts] = calloc(given->rows + 1, sizeof *x->from[experts])))
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of %zu rows", given->rows);
    }
    if (status != GYRE_OK) {
        zero_experts_destroy(x);
        return status;
    }
    size_t rows[2] = {0, 0};
    for (size_t r = 0; r < given->rows; r++) {
        const int experts = model_kind_of_experts(given->row[r].kind);
        x->from[experts][rows[experts]] = r;
        x->row[r] = rows[experts]++;
    }
    x->given = given;
    x->serve = (model_store_t_f32){
        .acquire = acquire, .release = release, .place = place, .ready = ready, .user = x};
    *out = x;
    return GYRE_OK;
}

void zero_experts_destroy(zero_experts_t *x)
{
    if (!x)
        return;
    optim_zero_destroy(x->store);
    for (int experts = 0; experts < 2; experts++) {
        model_params_destroy(x->table[experts]);
        free(x->from[experts]);
    }
    free(x->row);
    free(x);
}
