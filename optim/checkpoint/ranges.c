/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/ranges.c: see ranges.h. */
#include "optim/checkpoint/ranges.h"

typedef struct {
    optim_checkpoint_fn fn;
    void *user;
} visitor_t;

static gyre_status_t visit_range(void *user, const optim_zero_range_t *range)
{
    const visitor_t *visitor = user;
    const optim_range_t same = {.row = range->global,
                                .first = range->first,
                                .count = range->count,
                                .part = {range->weight, range->exp_avg, range->exp_avg_sq}};
    return visitor->fn(visitor->user, &same);
}

gyre_status_t optim_checkpoint_visit(optim_zero_t *zero, optim_state_t what, optim_checkpoint_fn fn,
                                     void *user)
{
    visitor_t visitor = {fn, user};
    return optim_zero_state(zero, what, visit_range, &visitor);
}
