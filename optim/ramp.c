/* SPDX-License-Identifier: Apache-2.0 */
/* optim/ramp.c: the sizes in turn, and how many steps each of them lasts. */
#include "base/error.h"
#include "optim/ramp.h"

#define MOST_SIZES 65536

size_t optim_ramp_sizes(const optim_ramp_t *r)
{
    return r->start ? (r->batch - r->start) / r->increment + 1 : 1;
}

size_t optim_ramp_size(const optim_ramp_t *r, size_t i)
{
    return r->start ? r->start + i * r->increment : r->batch;
}

gyre_status_t optim_ramp_check(const optim_ramp_t *r)
{
    if (r->start == 0 || (r->start == r->batch && r->increment > 0))
        return GYRE_OK;
    if (r->start > r->batch)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the batch begins with %zu sequences, which is more than its end, %zu", r->start,
                         r->batch);
    size_t way = r->batch - r->start;
    if (r->increment == 0 || r->increment > way || way % r->increment != 0) {
        size_t nearest = r->increment > way ? way : r->increment ? r->increment : 1;
        while (way % nearest != 0)
            nearest--;
        return gyre_fail(
            GYRE_ERR_INVALID,
            "the batch cannot grow from %zu to %zu sequences by %zu at a time: take an increment of %zu",
            r->start, r->batch, r->increment, nearest);
    }
    if (r->leaf > 1 && (r->start % r->leaf != 0 || r->increment % r->leaf != 0))
        return gyre_fail(GYRE_ERR_INVALID,
                         "the batch grows from %zu sequences by %zu at a time, but each gradient takes %zu "
                         "(--grad-sequences): take multiples of %zu for both",
                         r->start, r->increment, r->leaf, r->leaf);
    if (way / r->increment >= MOST_SIZES)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "the batch would have %zu sizes, which is too many: take a larger increment than %zu",
            way / r->increment + 1, r->increment);
    for (size_t i = 0, size; r->round > 1 && i < optim_ramp_sizes(r); i++)
        if ((size = optim_ramp_size(r, i)) > r->round && size % r->round != 0)
            return gyre_fail(GYRE_ERR_INVALID,
                             "the batch grows from %zu sequences by %zu at a time, but %zu sequences are no "
                             "whole number of rounds of %zu (--lanes): take multiples of %zu for both",
                             r->start, r->increment, size, r->round, r->round);
    return GYRE_OK;
}

/* Sequences after which the batch has another size than `i`, the number of a size but the last: the least
 * whole number that is no less than (i + 1) over / growths. */
static uint64_t end_of(const optim_ramp_t *r, size_t i, size_t growths)
{
    uint64_t whole = r->over / growths, rest = r->over % growths;
    return (i + 1) * whole + ((i + 1) * rest + growths - 1) / growths;
}

/* Steps of size i that begin with `before` sequences taken. */
static uint64_t steps_of(const optim_ramp_t *r, size_t i, size_t growths, uint64_t before)
{
    uint64_t end = end_of(r, i, growths), size = optim_ramp_size(r, i);
    return end > before ? (end - before + size - 1) / size : 0;
}

size_t optim_ramp_at(const optim_ramp_t *r, optim_ramp_at_t *at, uint64_t step, uint64_t *before)
{
    size_t growths = optim_ramp_sizes(r) - 1;
    optim_ramp_at_t now = at && at->steps <= step ? *at : (optim_ramp_at_t){0};
    for (; now.size < growths; now.size++) {
        uint64_t steps = steps_of(r, now.size, growths, now.sequences);
        if (step - now.steps < steps)
            break;
        now.steps += steps;
        now.sequences += steps * optim_ramp_size(r, now.size);
    }
    size_t size = optim_ramp_size(r, now.size);
    *before = now.sequences + (step - now.steps) * size;
    if (at)
        *at = now;
    return size;
}

uint64_t optim_ramp_steps(const optim_ramp_t *r, uint64_t sequences)
{
    size_t growths = optim_ramp_sizes(r) - 1;
    uint64_t before = 0, all = 0;
    for (size_t i = 0; i <= growths; i++) {
        uint64_t size = optim_ramp_size(r, i),
                 steps = i < growths ? steps_of(r, i, growths, before) : UINT64_MAX;
        uint64_t wanted = sequences > before ? (sequences - before + size - 1) / size : 0;
        if (wanted <= steps)
            return all + wanted;
        before += steps * size;
        all += steps;
    }
    return all;
}
