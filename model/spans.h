/* SPDX-License-Identifier: Apache-2.0 */
/* model/spans.h: what a rank does when, during one training step: for the timeline of a report and for a
 * trace.
 *
 * Code that computes or communicates for a training step notes it in the list that it is given, or nothing if
 * that is NULL. The list is allocated before the step; what does not fit is counted and dropped, so a step
 * allocates nothing. */
#ifndef MODEL_SPANS_H
#define MODEL_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* Computing kinds first; from MODEL_SPAN_WAIT on it is communication that the training thread spends time on,
 * from MODEL_SPAN_TRAVEL on communication that goes on meanwhile. */
typedef enum {
    MODEL_SPAN_FORWARD,
    MODEL_SPAN_BACKWARD,        /* whole, or of the input only where the schedule splits it */
    MODEL_SPAN_BACKWARD_WEIGHT, /* the weights' part of a split backward pass */
    MODEL_SPAN_OPTIMISER,
    MODEL_SPAN_WAIT,    /* for a neighbour in the pipeline: activations, their gradients, or room to send */
    MODEL_SPAN_TENSOR,  /* a collective of tensor or sequence parallelism */
    MODEL_SPAN_CONTEXT, /* an all-to-all of context parallelism */
    MODEL_SPAN_EXPERTS, /* an all-to-all of expert parallelism over data-parallel ranks */
    MODEL_SPAN_REDUCE,  /* gradients, norm, loss: waiting for them or moving them */
    MODEL_SPAN_GATHER,  /* parameters: of ZeRO */
    MODEL_SPAN_TRAVEL,  /* gradients or parameters under way while the training thread computes */
    MODEL_SPAN_KINDS
} model_span_kind_t;

typedef struct {
    base_time_t start, end;
    int32_t kind;               /* model_span_kind_t */
    int32_t rank;               /* set by who gathers spans */
    int32_t micro_batch, chunk; /* -1: of none */
} model_span_t;

typedef struct {
    model_span_t *span; /* [room], the caller's */
    size_t count, room;
    size_t dropped; /* did not fit */
} model_spans_t;

/* Notes one span. `spans` may be NULL. */
static inline void model_spans_add(model_spans_t *spans, model_span_kind_t kind, base_time_t start,
                                   base_time_t end, int micro_batch, int chunk)
{
    if (!spans)
        return;
    if (spans->count == spans->room) {
        spans->dropped++;
        return;
    }
    spans->span[spans->count++] =
        (model_span_t){.start = start, .end = end, .kind = kind, .micro_batch = micro_batch, .chunk = chunk};
}

/* The time now if somebody wants to know, else 0: for the start of a span. */
static inline base_time_t model_spans_now(const model_spans_t *spans)
{
    return spans ? base_now() : 0;
}

#endif
