/* SPDX-License-Identifier: Apache-2.0 */
/* optim/spike.h: whether a step is a spike, whose update is left out.
 *
 * A step is a spike if its loss is more than `loss` times the median loss of the `window` steps before it, or
 * the norm of its gradient more than `norm` times their median norm. Before there are so many steps none is.
 * Spikes are among the steps before later ones, so a level that lasts is no spike after half a window. The
 * median of an even number is the lower of the two in the middle. All ranks have the same losses and norms to
 * the bit, and so decide alike in every layout.
 *
 * Large runs have left out batches at which the loss spiked (Chowdhery et al. 2022, "PaLM", section 5.1) or
 * skipped such steps by a rule (OLMo 2, 2025, by deviations from the mean). A spike moves no median. */
#ifndef OPTIM_SPIKE_H
#define OPTIM_SPIKE_H

#include <stddef.h>
#include <stdint.h>

enum { OPTIM_SPIKE_LEAST = 4, OPTIM_SPIKE_MOST = 256 }; /* steps of a window */

typedef struct {
    double loss, norm; /* times the median; 0: whatever it is */
    size_t window;     /* OPTIM_SPIKE_LEAST .. OPTIM_SPIKE_MOST */
} optim_spike_config_t;

/* Everything that a checkpoint must hold. Zeros: a run begins. */
typedef struct {
    uint64_t skipped; /* spikes in all */
    size_t count;     /* steps that are known, the oldest first */
    double loss[OPTIM_SPIKE_MOST], norm[OPTIM_SPIKE_MOST];
} optim_spike_t;

/* Medians of the window, and the largest values with which the next step is no spike. INFINITY: any; the
 * median is NAN then. */
typedef struct {
    double loss, norm;
    double median_loss, median_norm;
} optim_spike_limit_t;
optim_spike_limit_t optim_spike_limit(const optim_spike_t *spike, const optim_spike_config_t *config);

/* After a step. What is not finite is no step of a window. */
void optim_spike_note(optim_spike_t *spike, const optim_spike_config_t *config, double loss, double norm);

#endif
