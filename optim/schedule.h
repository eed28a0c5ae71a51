/* SPDX-License-Identifier: Apache-2.0 */
/* optim/schedule.h: the learning rate over a run: linear warm-up, then down to a part of the peak, and on at
 * that: a cosine (Loshchilov and Hutter 2017; the shape that GPT-3 was trained with) or a line (OPT). Or
 * it stays at the peak. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stddef.h>

typedef enum { OPTIM_CURVE_COSINE, OPTIM_CURVE_LINEAR, OPTIM_CURVE_CONSTANT } optim_curve_t;

typedef struct {
    double peak;   /* the rate after warm-up */
    double floor;  /* the rate at the end, as a part of peak */
    size_t warmup; /* steps */
    size_t steps;  /* until the floor is reached, warm-up among them */
    optim_curve_t curve;
} optim_schedule_t;

/* The rate of step `step` (0-based). `progress` in 0..1 is a lower bound of how far the run is, for runs that
 * end by the clock rather than by their steps; 0 otherwise. */
double optim_schedule_rate(const optim_schedule_t *schedule, size_t step, double progress);

#endif
