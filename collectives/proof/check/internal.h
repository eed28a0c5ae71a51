/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/internal.h: the checker's state, shared by run.c, memory.c (what a step
 * does to memory, races) and expected.c (what the result must be). */
#ifndef COLLECTIVES_PROOF_CHECK_INTERNAL_H
#define COLLECTIVES_PROOF_CHECK_INTERNAL_H

#include "base/arena.h"
#include "collectives/proof/check/check.h"
#include "collectives/proof/check/values.h"
#include "collectives/schedules/generator.h"

/* One element of a rank's memory. Steps are stored + 1, 0 is none. */
typedef struct {
    uint32_t value;
    uint32_t sends; /* SENDs since the last write that read it: index into check_t.pending */
    uint32_t write; /* last step that wrote it */
    uint32_t read[COLL_MAX_CHANNELS]; /* last COPY or REDUCE of each channel that read it */
    uint32_t joint_read, joint_write; /* rank + 1 whose JOINT step did; reads of several: UINT32_MAX */
} cell_t;

/* A SEND that reads a cell, in a list per cell. */
typedef struct {
    uint32_t send, next;
} pending_t;

typedef struct message message_t;
struct message {
    message_t *next;
    uint32_t step; /* the SEND, at its rank */
    size_t count;
    uint32_t *values; /* [count] */
    uint32_t *clock;  /* [clock_size] what had happened before the SEND, or NULL */
};

typedef struct {
    int src, dst, channel, used;
    int waiting; /* the receiver is stopped at a RECV from here */
    message_t *head, **tail;
    uint64_t arrived;
} queue_t;

/* SENDs that are complete when a step is done (a view of the data was read by it). */
typedef struct held held_t;
struct held {
    held_t *next;
    int rank;
    uint32_t step;
};

typedef struct {
    const coll_args_t *args;
    const coll_schedule_t *schedule;
    cell_t *cells;
    size_t base[3], extent[3]; /* by coll_buf_t: where in cells, and elements */
    int aliased;
    uint32_t *want; /* [extent[COLL_OUT]]: the value that must be there in the end; 0: must not be written */
    uint32_t *position;        /* [nsteps] 1, 2, ... within the step's channel */
    uint32_t *next_in_channel; /* [nsteps], UINT32_MAX at the end */
    uint32_t *last_view;       /* [nsteps] a RECV's last reading step + 1 if it can be a view, else 0 */
    uint32_t (
        *retired)[COLL_MAX_CHANNELS]; /* [nsteps] first step of each channel that depended on the SEND */
    unsigned char *complete, *wanted_clock; /* [nsteps] */
    uint32_t **clock_of;                    /* [nsteps] clocks of steps that other channels depend on */
    held_t **held;                          /* [nsteps] */
    uint32_t at[COLL_MAX_CHANNELS];         /* next step of each channel */
    int stopped[COLL_MAX_CHANNELS];         /* waits for a dependency */
    uint32_t *clock[COLL_MAX_CHANNELS];     /* [clock_size] */
} proc_t;

typedef struct {
    int n, reduces, fast, exact;
    uint32_t inputs; /* of a reduction: ranks, or leaves */
    coll_op_t op;
    proc_t *proc; /* [n] */
    coll_values_t values;
    pending_t *pending;
    size_t npending, pending_capacity;
    queue_t *queues;
    size_t queue_mask;
    uint32_t *work; /* ring of channels that may go on: rank * COLL_MAX_CHANNELS + channel */
    unsigned char *working;
    size_t work_head, work_count;
    int clocks; /* vector clocks are needed: some rank has two channels, or the operation is a barrier */
    size_t clock_size;
    uint32_t *operands, *seen; /* scratch */
    base_arena_t arena;
    char *why;
    size_t why_bytes;
    int out_of_memory;
} check_t;

/* Reports a failed proof at a step (UINT32_MAX: at none); always returns 0. */
int coll_check_fail(check_t *c, int rank, uint32_t step, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Arena memory; NULL sets out_of_memory. */
void *coll_check_alloc(check_t *c, size_t count, size_t size);

/* expected.c: fills want of every rank; 0 if memory ran out. And the comparison in the end. */
int coll_check_expect(check_t *c, const coll_args_t *args);
int coll_check_results(check_t *c);

/* memory.c: all return 0 after a report. */
int coll_check_shape(check_t *c, int rank, uint32_t step); /* the step makes sense by itself */
int coll_check_read_message(check_t *c, int rank, uint32_t step, message_t *m);        /* SEND */
int coll_check_write_message(check_t *c, int rank, uint32_t step, const message_t *m); /* RECV */
int coll_check_compute(check_t *c, int rank, uint32_t step);                           /* COPY, REDUCE */
/* joint.c: JOINT, and the messages around such steps */
int coll_check_joint(check_t *c, int rank, uint32_t step);
int coll_check_announcement(check_t *c, int rank, uint32_t step);
int coll_check_find_views(check_t *c, int rank);

#endif
