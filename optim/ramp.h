/* SPDX-License-Identifier: Apache-2.0 */
/* optim/ramp.h: a batch that grows while training begins (Brown et al. 2020, section 2.3; Megatron-LM's
 * --rampup-batch-size).
 *
 * The batch begins with `start` sequences and grows by `increment` until it is `batch`: at even distances
 * over the first `over` sequences of the run. Which size a step has is decided by the sequences that the
 * steps before it have taken: no layout and no restart changes it. */
#ifndef OPTIM_RAMP_H
#define OPTIM_RAMP_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

typedef struct {
    size_t batch;            /* in the end */
    size_t start, increment; /* start 0: it is `batch` from the first step on */
    uint64_t over;           /* sequences, at most 2^53 */
    size_t leaf;             /* that every size is a multiple of (optim/batch.h); 0: 1 */
    size_t round;            /* sequences; every larger size is a multiple of it; 0: 1 */
} optim_ramp_t;

/* INVALID, with the way out: increment does not lead from start to batch, or some size is no whole number
 * of leaves, or of rounds. */
gyre_status_t optim_ramp_check(const optim_ramp_t *ramp);

/* Sizes that the batch has one after the other, `batch` the last of them: size i is optim_ramp_size(ramp,
 * i). */
size_t optim_ramp_sizes(const optim_ramp_t *ramp);
size_t optim_ramp_size(const optim_ramp_t *ramp, size_t i);

/* Where a run is: its first steps and sequences, those of sizes before number `size`. Zeros: at the
 * beginning. A run whose first steps had batches of another ramp begins with size 0 and with the number of
 * these steps and of their sequences. */
typedef struct {
    size_t size;
    uint64_t steps, sequences;
} optim_ramp_at_t;

/* Sequences of step `step` (0-based); *before: those of all steps before it. `at` is the same ramp's; it is
 * brought to the step, so that time grows with the number of sizes since the last one; for a step before
 * at->steps it begins anew from zeros. NULL: nothing is kept. */
size_t optim_ramp_at(const optim_ramp_t *ramp, optim_ramp_at_t *at, uint64_t step, uint64_t *before);

/* Steps in which `sequences` or more are through. */
uint64_t optim_ramp_steps(const optim_ramp_t *ramp, uint64_t sequences);

#endif
