/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/schedule.h: a pipeline schedule is data.
 *
 * The layers of a model are cut into stages, in order. A rank of the pipeline holds `chunks` stages (its
 * chunks, or virtual stages). A batch is cut into micro-batches. A generator is a pure function of (kind,
 * ranks, chunks, micro-batches): it lists for each rank the actions in their order. Nothing here computes or
 * sends. The checker (pipeline/schedules/check.h) proves schedules. The simulator
 * (pipeline/schedules/simulate.h) runs schedules in virtual time. The executor (pipeline/run/executor.h) runs
 * schedules for real. A new schedule is one new generator and one row of pipeline/schedules/kinds.def.
 *
 * Meaning of a list of actions
 *  - A rank does its actions one after the other.
 *  - SEND_x hands a message over and goes on: it takes no time and never waits. It stands directly after the
 *    action that made its contents.
 *  - RECV_x is the point at which the rank must have the message: it waits for it. Receives are posted
 * earlier
 *    (pipeline/schedules/program.h says how early), so that messages come while the rank computes.
 *  - Messages from one rank to another match in order, activations and gradients alike: the k-th SEND to b in
 * a's list is the
 *    k-th RECV from a in b's. Where b needs them in another order than a makes them, RECVs stand earlier than
 *    their use.
 *  - Between two stages on the same rank (the turn of ZB-V; everything in a pipeline of one rank) nothing is
 * sent: what one
 *    makes is where the other reads it.
 *  - Micro-batches of a chunk go forward in the order 0, 1, ... m-1, and so do their backward passes and
 * their weight
 *    gradients, in every schedule. So sums over micro-batches have one order, and bits do not depend on the
 *    schedule. (GPipe's paper goes backward from the last to the first; the bubble is the same.) */
#ifndef PIPELINE_SCHEDULES_SCHEDULE_H
#define PIPELINE_SCHEDULES_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "base/arena.h"

typedef enum {
#define KIND(id, stem, name, ...) PIPE_##id,
#include "pipeline/schedules/kinds.def"
#undef KIND
    PIPE_KIND_END
} pipe_kind_t;

/* As users type it: "1f1b", ...; "unknown" for another number. */
const char *pipe_kind_name(pipe_kind_t kind);
/* INVALID, with all names in the text. */
gyre_status_t pipe_kind_parse(const char *name, pipe_kind_t *kind);

/* BACKWARD makes the gradients of a stage's input and of its weights in one; BACKWARD_INPUT and
 * BACKWARD_WEIGHT one each. Which of the two forms a schedule uses does not depend on the rank
 * (pipe_kind_splits). */
typedef enum {
    PIPE_FORWARD = 0,
    PIPE_BACKWARD,
    PIPE_BACKWARD_INPUT,
    PIPE_BACKWARD_WEIGHT,
    PIPE_SEND_ACT, /* what FORWARD made, to the next stage */
    PIPE_RECV_ACT, /* what FORWARD needs, from the stage before */
    PIPE_SEND_GRAD,
    PIPE_RECV_GRAD,
    PIPE_OP_END
} pipe_op_t;

/* "forward", "backward-input", "send-act", ...; "unknown" for another number. */
const char *pipe_op_name(pipe_op_t op);
static inline int pipe_op_computes(pipe_op_t op)
{
    return op <= PIPE_BACKWARD_WEIGHT;
}

typedef struct {
    pipe_op_t op;
    int chunk; /* this rank's, 0-based: the one that makes what is sent, or needs what is received */
    int micro_batch;
    int peer; /* of sends and receives: a rank of the pipeline; else -1 */
} pipe_action_t;

typedef struct {
    pipe_kind_t kind;
    int ranks;         /* p */
    int chunks;        /* v: per rank */
    int micro_batches; /* m */
    int forward_only;  /* evaluation: FORWARD is all there is */
} pipe_shape_t;

typedef struct {
    pipe_shape_t shape;
    size_t *count;          /* [ranks] actions of each rank */
    pipe_action_t **action; /* [ranks][count[rank]] */
    base_arena_t arena;     /* all of the above */
} pipe_schedule_t;

/* OK if there is a schedule of this shape, else INVALID with the nearest that there is in the text:
 * interleaved wants micro_batches to be a multiple of ranks and 2 chunks or more, zb-v 2 chunks, the others
 * 1. Cheap: asked before anything is built. */
gyre_status_t pipe_shape_check(const pipe_shape_t *shape);

/* The schedule of all ranks. It belongs to the caller: pipe_schedule_destroy. INVALID as above, NO_MEMORY. */
gyre_status_t pipe_schedule_create(const pipe_shape_t *shape, pipe_schedule_t **out);
void pipe_schedule_destroy(pipe_schedule_t *schedule);

/* Chunks per rank that a kind has where nothing else is said: 1, or 2 for interleaved and zb-v. */
int pipe_kind_chunks(pipe_kind_t kind);
/* 1 if weight gradients are actions of their own. */
int pipe_kind_splits(pipe_kind_t kind);

/* ---- where stages lie: stage = chunk * ranks + rank; with zb-v chunk 1 ascends: stage = 2 * ranks - 1 -
 * rank ---- */

static inline int pipe_stages(const pipe_shape_t *shape)
{
    return shape->ranks * shape->chunks;
}
int pipe_stage_of(const pipe_shape_t *shape, int rank, int chunk);
/* rank and chunk of a stage; either may be NULL. */
void pipe_place_of(const pipe_shape_t *shape, int stage, int *rank, int *chunk);

/* ---- what a schedule promises -------------------------------------------------------------------------- */

/* The most activations that `rank` holds at any time: (chunk, micro-batch) pairs that went forward and whose
 * backward pass, weight gradient included, is not over. In units of one chunk's activations of one
 * micro-batch:
 *   gpipe m;  1f1b min(m, p - rank);  interleaved min(mv, 2(p - rank - 1) + (v - 1)p + 1);  zb-h1 min(m, p);
 *   zb-v min(2m, 2p): that is p whole stages, as 1f1b's first rank;  forward only: 1. */
int pipe_activation_bound(const pipe_shape_t *shape, int rank);
/* The most (chunk, micro-batch) pairs whose input gradient is done and whose weight gradient is not. 0
 * where they are not split. */
int pipe_weight_bound(const pipe_shape_t *shape, int rank);

/* Micro-batches of `chunk` that are between their forward and their (last) backward pass at the same time, at
 * least 1: what the rank has to keep the activations of. */
size_t pipe_schedule_in_flight(const pipe_schedule_t *schedule, size_t rank, size_t chunk);

/* "rank 2, action 17: backward-input of chunk 1 (stage 5), micro-batch 3", for messages. Returns text. */
const char *pipe_action_text(const pipe_schedule_t *schedule, int rank, size_t index, char *text,
                             size_t bytes);

#endif
