/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/buckets.c: gradients on their way: places, starts in order, buffers that come back.
 *
 * Reductions start in the same order on all ranks of dp. Where there is one per step that is the order of
 * buckets, whatever order rows become ready in: shares may differ. Where there are several, ranks have equal
 * shares and follow the same schedule, so each starts as soon as its bucket is full; sums are added as they
 * land. */
#include <string.h>

#include "optim/store/internal.h"

static void travel_begins(optim_zero_t *zero)
{
    if (!zero_alone(zero) && zero->travel->running++ == 0) /* alone: nothing travels */
        zero->travel->since = base_now();
}

static void travel_ends(optim_zero_t *zero)
{
    if (zero_alone(zero) || --zero->travel->running > 0)
        return;
    const base_time_t now = base_now();
    zero->travel->total += now - zero->travel->since;
    model_spans_add(zero->spans, MODEL_SPAN_TRAVEL, zero->travel->since, now, -1, -1);
}

/* The idle buffers of a pool are a queue. They come back in the order of buckets, so which one a bucket gets
 * depends on the order of calls alone, not on when reductions end: graphs that write to it come again
 * (model/gpu/stage/graphs.c). */
static void put_idle(optim_zero_t *zero, size_t buffer)
{
    zero_idle_t *idle = &zero->idle[zero->buffer[buffer].pool];
    zero->buffer[buffer].next = ZERO_NO_BUFFER;
    *(idle->first == ZERO_NO_BUFFER ? &idle->first : &zero->buffer[idle->last].next) = buffer;
    idle->last = buffer;
}

static size_t take_idle(zero_idle_t *idle, const zero_buffer_t *buffer)
{
    size_t taken = idle->first;
    idle->first = buffer[taken].next;
    return taken;
}

gyre_status_t zero_buffer_add(optim_zero_t *zero, size_t pool)
{
    void *memory;
    gyre_status_t status = zero_take(zero, OPTIM_MEMORY_BUCKETS,
                                     zero->plan.pool[pool].count * zero->plan.grad_bytes, 1, &memory);
    if (status != GYRE_OK)
        return status;
    zero->buffer[zero->buffers] = (zero_buffer_t){.data = memory, .pool = pool};
    put_idle(zero, zero->buffers++);
    return GYRE_OK;
}

/* What this rank keeps of bucket b on a level of sums over reductions. */
static char *level_own(const optim_zero_t *zero, size_t b, size_t level)
{
    return zero->levels + (level * zero->plan.grads + zero->plan.bucket[b].grad_at) * zero->plan.grad_bytes;
}

/* The sum of bucket b's reduction, in its buffer, joins those before it. */
static gyre_status_t add_up(optim_zero_t *zero, size_t b)
{
    const zero_plan_t *plan = &zero->plan;
    const optim_zero_config_t *c = &plan->config;
    const zero_bucket_t *k = &plan->bucket[b];
    size_t i = zero->run[b].added++, j = i % c->blocks, bytes = k->own * plan->grad_bytes, held, joins;
    char *value = zero_sum_own(zero, b), *sum = zero_grad_own(zero, b);
    gyre_status_t status = GYRE_OK;
    optim_tree_joins(c->blocks, c->block_group, j, &held, &joins);
    for (; status == GYRE_OK && joins > 0; joins--)
        status = zero->on->add_grads(zero, value, level_own(zero, b, --held), k->own);
    if (status != GYRE_OK)
        return status;
    if (j + 1 < c->blocks)
        return zero->on->copy(zero, level_own(zero, b, held), value, bytes);
    return i < c->blocks ? zero->on->copy(zero, sum, value, bytes)
                         : zero->on->add_grads(zero, sum, value, k->own);
}

/* The oldest reduction has ended; `status`: whether well. */
static gyre_status_t landed(optim_zero_t *zero, gyre_status_t status)
{
    size_t b = zero->queue[zero->oldest++ % zero->plan.buckets];
    zero_run_t *run = &zero->run[b];
    if (status == GYRE_OK && zero_in_buffer(&zero->plan))
        status = add_up(zero, b);
    run->under_way = 0;
    if (run->buffer != ZERO_NO_BUFFER) {
        put_idle(zero, run->buffer);
        run->buffer = ZERO_NO_BUFFER;
    }
    if (zero->plan.pools > 0)
        run->data = NULL;
    travel_ends(zero);
    return status;
}

static gyre_status_t wait_oldest(optim_zero_t *zero)
{
    size_t b = zero->queue[zero->oldest % zero->plan.buckets];
    return landed(zero, zero->on->wait(zero, &zero->run[b].reduce));
}

static gyre_status_t wait_exposed(optim_zero_t *zero)
{
    base_time_t begin = base_now();
    gyre_status_t status = wait_oldest(zero);
    zero_exposed(zero, MODEL_SPAN_REDUCE, begin);
    return status;
}

gyre_status_t zero_bucket_open(optim_zero_t *zero, size_t b)
{
    zero_run_t *run = &zero->run[b];
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && run->under_way) /* with the sum of the run before */
        status = wait_exposed(zero);
    if (status != GYRE_OK || run->data)
        return status;
    size_t pool = zero->plan.bucket[b].pool;
    zero_idle_t *idle = &zero->idle[pool];
    while (idle->first == ZERO_NO_BUFFER && zero->oldest < zero->next)
        if ((status = wait_exposed(zero)) != GYRE_OK)
            return status;
    if (idle->first == ZERO_NO_BUFFER) {
        /* chunks of a pipeline fill several buckets in turns */
        status = zero_buffer_add(zero, pool);
        if (status != GYRE_OK)
            return status;
    }
    run->buffer = take_idle(idle, zero->buffer);
    run->data = zero->buffer[run->buffer].data;
    return GYRE_OK;
}

static gyre_status_t start(optim_zero_t *zero, size_t b)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    uint64_t others = zero->plan.ranks - 1, scatter = k->count - k->cut_count;
    if (zero_alone(zero)) /* its memory is where the sum is to be */
        return GYRE_OK;
    if (zero->plan.config.stage == 0)
        zero->sent[OPTIM_TRAFFIC_ALL_REDUCE] += scatter + others * k->cut_count;
    else
        zero->sent[OPTIM_TRAFFIC_REDUCE_SCATTER] += scatter;
    return zero->on->reduce(zero, b);
}

static gyre_status_t start_next(optim_zero_t *zero, size_t b)
{
    gyre_status_t status = start(zero, b);
    if (status != GYRE_OK)
        return status;
    travel_begins(zero);
    zero->run[b].under_way = 1;
    zero->queue[zero->next++ % zero->plan.buckets] = b;
    return GYRE_OK;
}

/* What is full, in order. */
static gyre_status_t start_full(optim_zero_t *zero)
{
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && zero->next < zero->plan.buckets && zero->run[zero->next].missing == 0)
        status = start_next(zero, zero->next);
    return status;
}

gyre_status_t zero_progress(optim_zero_t *zero)
{
    gyre_status_t status = GYRE_OK;
    base_time_t begin = base_now();
    int moving = zero->oldest < zero->next;
    while (zero->oldest < zero->next) {
        size_t b = zero->queue[zero->oldest % zero->plan.buckets];
        if ((status = zero->on->test(zero, &zero->run[b].reduce)) == GYRE_IN_PROGRESS)
            break;
        if ((status = landed(zero, status)) != GYRE_OK)
            return status;
    }
    if (moving)
        zero_exposed(zero, MODEL_SPAN_REDUCE, begin);
    return status == GYRE_IN_PROGRESS ? GYRE_OK : status;
}

gyre_status_t zero_bucket_ready(optim_zero_t *zero, size_t b)
{
    base_time_t begin = base_now();
    zero_run_t *run = &zero->run[b];
    gyre_status_t status = GYRE_OK;
    run->missing--;
    if (zero_plan_reductions(&zero->plan) == 1) {
        status = start_full(zero);
    } else if (run->missing == 0) {
        run->missing = zero->plan.bucket[b].rows; /* of the next run */
        status = start_next(zero, b);
    }
    zero_exposed(zero, MODEL_SPAN_REDUCE, begin);
    return status == GYRE_OK ? zero_progress(zero) : status;
}

/* All at once and without waiting for any, since the others may need this rank's part in a gather first: what
 * goes out of a pool is one constant for all buckets. */
gyre_status_t zero_buckets_nothing(optim_zero_t *zero)
{
    if (zero->next > 0)
        return GYRE_OK;
    gyre_status_t status = GYRE_OK;
    if (zero->plan.pools > 0)
        status = zero->on->no_grads(zero, zero->buffer[0].data, zero->plan.max_bucket);
    for (size_t b = 0; status == GYRE_OK && b < zero->plan.buckets; b++) {
        zero_run_t *run = &zero->run[b];
        if (zero->plan.pools == 0)
            status = zero->on->no_grads(zero, run->data, zero->plan.bucket[b].count);
        else
            run->data = zero->buffer[0].data;
        run->missing = 0;
    }
    if (status != GYRE_OK)
        return status;
    return start_full(zero);
}

gyre_status_t zero_buckets_wait(optim_zero_t *zero)
{
    gyre_status_t status = GYRE_OK;
    base_time_t begin = base_now();
    while (status == GYRE_OK && zero->oldest < zero->next)
        status = wait_oldest(zero);
    zero_exposed(zero, MODEL_SPAN_REDUCE, begin);
    return status;
}

void zero_buckets_reset(optim_zero_t *zero)
{
    for (size_t b = 0; b < zero->plan.buckets; b++) {
        zero->run[b].missing = zero->plan.bucket[b].rows;
        zero->run[b].added = 0;
        zero->run[b].under_way = 0;
    }
    memset(zero->seen, 0, zero->plan.params->rows * sizeof *zero->seen);
    memset(zero->sent, 0, sizeof zero->sent);
    zero->next = zero->oldest = 0;
    zero->exposed = 0;
    *zero->travel = (zero_travel_t){0};
    for (size_t b = 0; b < zero->plan.buckets; b++)
        if (zero->run[b].buffer != ZERO_NO_BUFFER) /* after an error */
            return;
    for (size_t i = 0; i < zero->plan.pools; i++)
        zero->idle[i].first = ZERO_NO_BUFFER;
    for (size_t i = 0; i < zero->buffers; i++) /* each step begins with the same order */
        put_idle(zero, i);
}

void zero_buckets_abandon(optim_zero_t *zero)
{
    for (size_t b = 0; zero->run && b < zero->plan.buckets; b++) {
        zero->on->wait(zero, &zero->run[b].reduce);
        zero->on->wait(zero, &zero->run[b].gather);
    }
}
