/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/kinds.h: what is known of each pipeline schedule: its one row of
 * pipeline/schedules/kinds.def. Users of schedules ask the row, so that nothing else needs to know
 * schedules by name. */
#ifndef PIPELINE_SCHEDULES_KINDS_H
#define PIPELINE_SCHEDULES_KINDS_H

#include "pipeline/schedules/schedule.h"
#include "pipeline/schedules/simulate.h"

/* Writes the computing actions of a rank, in order. */
typedef struct pipe_writer pipe_writer_t;
typedef void pipe_orderer_t(pipe_writer_t *w, int rank);
/* What `rank` has at most at any time. */
typedef int pipe_bound_t(const pipe_shape_t *shape, int rank);
/* The time in which a rank does not compute, by the paper; NAN where the paper has no formula. */
typedef double pipe_idle_t(const pipe_shape_t *shape, const pipe_times_t *times);

typedef struct {
    const char *name;
    pipe_orderer_t *order;
    pipe_bound_t *held; /* of pipe_activation_bound, but for evaluation */
    pipe_bound_t *left; /* of pipe_weight_bound; NULL: weight gradients are not split off */
    pipe_idle_t *idle;  /* NULL: (p - 1)(F + B) */
    int chunks;         /* per rank, unless asked otherwise */
    int any_chunks;     /* more of them are a schedule, too */
    int splits;         /* weight gradients are actions of their own */
    int folded;         /* the second chunk's stages ascend: a V */
    int grouped;        /* micro-batches are a multiple of ranks */
    int holds_logits;   /* the head holds logits, or gradients of them, of all that is in flight */
    int dominated;      /* another takes as long and holds less: gyre-plan search leaves it out */
    /* filling and draining takes (p - 1) / fill slots of a micro-batch where F = W = B / 2; 0: (p - 1) /
     * chunks, of any times */
    double fill;
    const char *formula;       /* of the bubble, for people */
    const char *formula_wants; /* where `idle` is not NAN; NULL: everywhere */
} pipe_kind_row_t;

/* NULL for a number that is not a kind. Static storage. */
const pipe_kind_row_t *pipe_kind_row(pipe_kind_t kind);

#endif
