/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/program.h: what one rank's list of actions means for buffers: slots, and when receives
 * are posted.
 *
 * The executor follows the program, the checker proves it, and the simulator times it. So the proved program
 * is the one that runs.
 *
 * Slots are of four kinds: activations received (or handed over from a stage of the same rank), gradients
 * received, and two rings to send from. A received tensor lives from its RECV until the backward pass of its
 * micro-batch is over. There are as many slots as live at a time, and `ahead` more of each kind. Slots are
 * given out strictly in the order of the list's needs. So at each RECV its own slot is there, and the rank
 * waits for the sender alone. A receive is posted as soon as its turn has come and a slot of its kind is
 * free. The program holds the step at which that is.
 *
 * Rules of execution, in the order of a step's fields:
 *   1. receives 0 .. posted-1 are posted before the step starts;
 *   2. RECV waits for its message;
 *   3. a computing step whose output goes into a send slot waits until the last message from this slot was
 *      taken. Messages are taken when their receives are posted, no earlier: no transport is trusted to
 *      buffer anything;
 *   4. SEND is posted and not waited for. */
#ifndef PIPELINE_SCHEDULES_PROGRAM_H
#define PIPELINE_SCHEDULES_PROGRAM_H

#include "pipeline/schedules/schedule.h"

enum {
    PIPE_AHEAD = 1,
    PIPE_SENDS = 2, /* slots of a kind: beyond those needed, and of each ring to send from */
    /* bytes: slots begin at pages, so that none shares one with its neighbour */
    PIPE_SLOT_ALIGN = 4096
};

typedef enum {
    PIPE_SLOT_ACT = 0,
    PIPE_SLOT_GRAD,
    PIPE_SLOT_SEND_ACT,
    PIPE_SLOT_SEND_GRAD,
    PIPE_SLOT_KINDS
} pipe_slot_kind_t;

typedef struct {
    pipe_action_t action;
    int posted; /* receives that are posted before this step, counted from the first */
    /* compute: slot of the input (of the gradient of the output, backward); -1: none. RECV: where it
     * lands. SEND: -1 */
    int in;
    int out;     /* compute: slot of what is made, -1: none. SEND: what is sent. RECV: -1 */
    int receive; /* RECV: its number; else -1 */
} pipe_step_t;

/* Receives in the order in which they are posted. */
typedef struct {
    size_t step; /* of the RECV */
    int slot;
} pipe_receive_t;

typedef struct {
    pipe_step_t *step; /* [steps] */
    size_t steps;
    pipe_receive_t *receive; /* [receives] */
    int receives;
    int first[PIPE_SLOT_KINDS + 1]; /* slots first[k] .. first[k + 1] - 1 are of kind k */
    base_arena_t arena;
} pipe_program_t;

/* Of rank `rank`. The schedule must be one that pipe_schedule_create made or that passed the structural part
 * of the checker. `program` is the caller's: pipe_program_free. INTERNAL (quiet): a tensor that is needed
 * is made nowhere. NO_MEMORY. */
gyre_status_t pipe_program_build(const pipe_schedule_t *schedule, int rank, pipe_program_t *program);
/* Bytes of a slot for tensors of `count` elements, and of all slots: 0 where nothing is held. OVERFLOW. */
gyre_status_t pipe_program_bytes(const pipe_program_t *program, size_t count, size_t element_bytes,
                                 size_t *slot, size_t *all);
void pipe_program_free(pipe_program_t *program);

#endif
