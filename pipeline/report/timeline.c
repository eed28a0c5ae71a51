/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/timeline.c: brings the spans of chosen steps to rank 0 and to one clock.
 *
 * Monotonic clocks of different hosts are not related. All ranks leave a barrier at nearly the same moment,
 * so the times of a few barriers give the difference of two hosts' clocks. Ranks on the host of rank 0 need
 * no correction. The remaining error is the time that a barrier's end takes to travel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/order.h"
#include "pipeline/report/timeline.h"

enum {
    SPANS = 1 << 14, /* of a rank in a step */
    BARRIERS = 5,
    REPORTED = 10 /* the step of this start that is watched if nobody says which: caches are warm */
};

struct train_timeline {
    gyre_comm_t *comm;
    int rank, ranks;
    uint64_t from, to;  /* watched */
    model_spans_t mine; /* of the present step */
    int64_t *ahead;     /* [ranks] rank 0: how far a rank's clock is ahead of ours */
    train_watched_t *step;
    size_t steps;
    int told; /* that spans were dropped */
};

uint64_t train_host_clock(void)
{
    char text[64] = "";
    FILE *in = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (in) {
        if (!fgets(text, sizeof text, in))
            text[0] = '\0';
        fclose(in);
    }
    return base_hash64(text, strlen(text), 0);
}

/* all: [ranks, 1 + BARRIERS]: a host's clock and its times after each barrier. */
static gyre_status_t compare_clocks(train_timeline_t *timeline, const int64_t *all)
{
    size_t ranks = (size_t)timeline->ranks, row = 1 + BARRIERS;
    int64_t *apart = calloc(ranks * BARRIERS, sizeof *apart);
    if (!apart)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the clocks of %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++) {
        int known = all[r * row] == all[0]; /* our own host's: not ahead */
        for (size_t q = 0; !known && q < r; q++)
            if (all[q * row] == all[r * row]) {
                timeline->ahead[r] = timeline->ahead[q];
                known = 1;
            }
        if (known)
            continue;
        size_t n =
            0; /* of all ranks of that host: the median is late by what a barrier's end takes to travel */
        for (size_t q = r; q < ranks; q++)
            for (size_t k = 1; all[q * row] == all[r * row] && k < row; k++)
                apart[n++] = all[q * row + k] - all[k];
        qsort(apart, n, sizeof *apart, base_order_int64);
        timeline->ahead[r] = apart[n / 2];
    }
    free(apart);
    return GYRE_OK;
}

static gyre_status_t meet(train_timeline_t *timeline)
{
    size_t ranks = (size_t)timeline->ranks, row = 1 + BARRIERS;
    int64_t mine[1 + BARRIERS] = {(int64_t)train_host_clock()}, *all = NULL;
    gyre_status_t status = GYRE_OK;
    if (timeline->rank == 0 && (!(all = calloc(ranks * row, sizeof *all)) ||
                                !(timeline->ahead = calloc(ranks, sizeof *timeline->ahead)))) {
        free(all);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the clocks of %zu ranks", ranks);
    }
    for (size_t k = 1; status == GYRE_OK && k < row; k++) {
        status = gyre_barrier(timeline->comm);
        mine[k] = base_now();
    }
    if (status == GYRE_OK)
        status = gyre_gather(mine, all, row, GYRE_INT64, 0, timeline->comm);
    if (status == GYRE_OK && timeline->rank == 0)
        status = compare_clocks(timeline, all);
    free(all);
    return status;
}

gyre_status_t train_timeline_create(gyre_comm_t *comm, const train_config_t *options, uint64_t done,
                                    train_timeline_t **out)
{
    train_timeline_t *timeline = calloc(1, sizeof *timeline);
    if (timeline)
        timeline->mine.span = malloc(SPANS * sizeof *timeline->mine.span);
    if (!timeline || !timeline->mine.span) {
        free(timeline);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a timeline of %d spans", SPANS);
    }
    timeline->comm = comm;
    timeline->rank = gyre_comm_rank(comm);
    timeline->ranks = gyre_comm_size(comm);
    timeline->mine.room = SPANS;
    if (!train_steps_range(options->trace_steps, &timeline->from, &timeline->to)) {
        timeline->to = done + base_min_size(REPORTED, options->steps > done ? options->steps - done : 0);
        timeline->from = timeline->to;
    }
    gyre_status_t status = timeline->ranks > 1 ? meet(timeline) : GYRE_OK;
    if (status != GYRE_OK)
        train_timeline_destroy(timeline);
    else
        *out = timeline;
    return status;
}

void train_timeline_destroy(train_timeline_t *timeline)
{
    if (!timeline)
        return;
    for (size_t i = 0; i < timeline->steps; i++)
        free(timeline->step[i].span);
    free(timeline->step);
    free(timeline->ahead);
    free(timeline->mine.span);
    free(timeline);
}

static int watches(const train_timeline_t *timeline, uint64_t step)
{
    return timeline && step >= timeline->from && step <= timeline->to;
}

model_spans_t *train_timeline_begin(train_timeline_t *timeline, uint64_t step)
{
    if (!watches(timeline, step))
        return NULL;
    timeline->mine.count = 0;
    timeline->mine.dropped = 0;
    return &timeline->mine;
}

static int by_rank_and_start(const void *a, const void *b)
{
    const model_span_t *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end); /* what contains another comes before it */
}

/* Rank 0: counts[r] spans of each rank, as they came. Takes `all`. */
static gyre_status_t keep(train_timeline_t *timeline, uint64_t step, model_span_t *all, const size_t *bytes)
{
    train_watched_t *grown = realloc(timeline->step, (timeline->steps + 1) * sizeof *grown);
    if (!grown) {
        free(all);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the timeline of step %llu",
                         (unsigned long long)step);
    }
    timeline->step = grown;
    train_watched_t *watched = &timeline->step[timeline->steps++];
    *watched = (train_watched_t){.step = step, .span = all, .start = BASE_TIME_NEVER, .end = 0};
    for (int r = 0; r < timeline->ranks; r++)
        for (size_t i = 0, n = bytes[r] / sizeof *all; i < n; i++) {
            model_span_t *span = &all[watched->count++];
            int64_t ahead = timeline->ahead ? timeline->ahead[r] : 0;
            span->rank = r;
            span->start -= ahead;
            span->end -= ahead;
            watched->start = span->start < watched->start ? span->start : watched->start;
            watched->end = span->end > watched->end ? span->end : watched->end;
        }
    if (watched->count > 0)
        qsort(all, watched->count, sizeof *all, by_rank_and_start);
    return GYRE_OK;
}

gyre_status_t train_timeline_end(train_timeline_t *timeline, uint64_t step)
{
    if (!watches(timeline, step))
        return GYRE_OK;
    size_t ranks = (size_t)timeline->ranks, sum = 0;
    uint64_t mine = timeline->mine.count * sizeof(model_span_t), *each = NULL;
    size_t *bytes = NULL;
    model_span_t *all = NULL;
    gyre_status_t status = GYRE_OK;
    if (timeline->mine.dropped > 0 && !timeline->told++)
        log_warning("the timeline of step %llu lacks %zu spans: it holds %d of a rank",
                    (unsigned long long)step, timeline->mine.dropped, SPANS);
    if (timeline->rank == 0 &&
        (!(each = calloc(ranks, sizeof *each)) || !(bytes = calloc(ranks, sizeof *bytes))))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the timelines of %zu ranks", ranks);
    if (status == GYRE_OK)
        status = gyre_gather(&mine, each, 1, GYRE_UINT64, 0, timeline->comm);
    for (size_t r = 0; status == GYRE_OK && timeline->rank == 0 && r < ranks; r++)
        sum += bytes[r] = each[r];
    if (status == GYRE_OK && timeline->rank == 0 && !(all = malloc(sum ? sum : 1)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a timeline of %zu bytes", sum);
    if (status == GYRE_OK)
        status =
            gyre_gatherv(timeline->mine.span, (size_t)mine, all, bytes, NULL, GYRE_UINT8, 0, timeline->comm);
    if (status == GYRE_OK && timeline->rank == 0)
        status = keep(timeline, step, all, bytes);
    else
        free(all);
    free(each);
    free(bytes);
    return status;
}

size_t train_timeline_steps(const train_timeline_t *timeline, const train_watched_t **step)
{
    *step = timeline ? timeline->step : NULL;
    return timeline ? timeline->steps : 0;
}
