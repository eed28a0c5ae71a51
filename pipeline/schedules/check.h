/* pipeline/schedules/check.h: proves schedules.
 *
 * Proved for one schedule, all ranks together: every stage takes every micro-batch forward once and backward once (or once for its
 * input and once for its weights), each in the order 0 .. m-1; each action's input was made before; every message that should be is sent
 * right behind its making and received, and messages between two ranks match in order; no rank waits for ever, under the
 * rules and with the slots of pipeline/schedules/program.h, on a transport that buffers nothing; no slot is overwritten while
 * somebody may still read it; activations and weight gradients held stay inside what is promised
 * (pipe_activation_bound, pipe_weight_bound). */
#ifndef PIPELINE_SCHEDULES_CHECK_H
#define PIPELINE_SCHEDULES_CHECK_H

#include "pipeline/schedules/program.h"

/* OK, or GYRE_ERR_INTERNAL (quiet): gyre_last_error() names the action and what is wrong with it. NO_MEMORY. */
gyre_status_t pipe_check(const pipe_schedule_t *schedule);

/* The part about slots, of one rank: each action reads what it should, inputs and gradients stay as long as pipeline/run/executor.h
 * says, what is sent is what was made, nothing is waited for before it is posted. pipe_check asks it for each rank, with the program
 * that pipe_program_build makes. The schedule's lists are sound. */
gyre_status_t pipe_check_program(const pipe_schedule_t *schedule, int rank, const pipe_program_t *program);

#endif
