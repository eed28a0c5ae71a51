/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/check.h: proves schedules.
 *
 * Proved for one schedule, all ranks together:
 *  - Every stage takes every micro-batch forward once and backward once (or once for its input and once for
 *    its weights), each in the order 0 .. m-1.
 *  - Each action's input was made before the action.
 *  - Every message that is needed is sent directly after its contents are made, and is received.
 *  - Messages between two ranks match in order.
 *  - No rank waits forever, under the rules and with the slots of pipeline/schedules/program.h, on a
 *    transport that buffers nothing.
 *  - No slot is overwritten while an action may still read it.
 *  - The activations and weight gradients that a rank holds stay within pipe_activation_bound and
 *    pipe_weight_bound. */
#ifndef PIPELINE_SCHEDULES_CHECK_H
#define PIPELINE_SCHEDULES_CHECK_H

#include "pipeline/schedules/program.h"

/* OK, or GYRE_ERR_INTERNAL (quiet): gyre_last_error() names the action and what is wrong with it.
 * NO_MEMORY. */
gyre_status_t pipe_check(const pipe_schedule_t *schedule);

/* The part about slots, of one rank. The schedule's lists are sound. Each action reads the right slot. Inputs
 * and gradients stay as long as pipeline/run/executor.h says. A SEND sends what was made. Nothing is waited
 * for before it is posted. pipe_check calls it for each rank, with the program that pipe_program_build
 * makes. */
gyre_status_t pipe_check_program(const pipe_schedule_t *schedule, int rank, const pipe_program_t *program);

#endif
