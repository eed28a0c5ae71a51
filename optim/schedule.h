/* SPDX-License-Identifier: Apache-2.0 */
/* optim/schedule.h: the learning rate over a run: linear warm-up, then down to a part of the peak, and on at
 * that:
 *
 *   cosine        Loshchilov and Hutter, "SGDR", 2017; the shape that GPT-3 was trained with
 *   linear        a line (OPT)
 *   constant      it stays at the peak
 *   wsd           warm-up, stable, decay: it stays at the peak until the last `cooldown` steps, in which it
 *                 falls as 1 - sqrt(x) (Haegele et al., "Scaling laws and compute-optimal training beyond
 *                 fixed training durations", 2024; the idea is of MiniCPM, Hu et al. 2024)
 *   inverse-sqrt  peak * sqrt(warmup / steps so far), not below the floor (Vaswani et al. 2017; T5): it needs
 *                 no end */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stddef.h>

typedef enum {
    OPTIM_CURVE_COSINE,
    OPTIM_CURVE_LINEAR,
    OPTIM_CURVE_CONSTANT,
    OPTIM_CURVE_WSD,
    OPTIM_CURVE_INVERSE_SQRT
} optim_curve_t;

typedef struct {
    double peak;     /* the rate after warm-up */
    double floor;    /* the rate at the end, as a part of peak */
    size_t warmup;   /* steps */
    size_t steps;    /* until the floor is reached, warm-up among them */
    size_t cooldown; /* of wsd: the last of these, the first of which has the peak; 0: a tenth */
    optim_curve_t curve;
} optim_schedule_t;

/* The rate of step `step` (0-based). `progress` in 0..1 is a lower bound of how far the run is, for runs that
 * end by the clock rather than by their steps; 0 otherwise. */
double optim_schedule_rate(const optim_schedule_t *schedule, size_t step, double progress);

#endif
