/* SPDX-License-Identifier: Apache-2.0 */
/* optim/schedule.c: warm-up and what follows. */
#include <math.h>

#include "optim/schedule.h"

double optim_schedule_rate(const optim_schedule_t *schedule, size_t step, double progress)
{
    if (step < schedule->warmup)
        return schedule->peak * (double)(step + 1) / (double)schedule->warmup;
    if (schedule->curve == OPTIM_CURVE_CONSTANT)
        return schedule->peak;
    if (schedule->curve == OPTIM_CURVE_INVERSE_SQRT)
        return schedule->peak *
               fmax(schedule->floor, sqrt(fmax(1.0, (double)schedule->warmup) / (double)(step + 1)));
    size_t span = schedule->steps > schedule->warmup ? schedule->steps - schedule->warmup : 1;
    double done = fmin(1.0, fmax(progress, (double)(step - schedule->warmup) / (double)span));
    double low = schedule->peak * schedule->floor;
    if (schedule->curve == OPTIM_CURVE_WSD) {
        const double tenth = fmax(1.0, (double)schedule->steps / 10);
        const double fall = fmin((double)span, schedule->cooldown ? (double)schedule->cooldown : tenth);
        const double at = fmax(progress * (double)span, (double)(step - schedule->warmup));
        const double fallen = fmin(1.0, fmax(0.0, (at - ((double)span - fall)) / fall));
        return low + (schedule->peak - low) * (1.0 - sqrt(fallen));
    }
    if (schedule->curve == OPTIM_CURVE_LINEAR)
        return low + (schedule->peak - low) * (1.0 - done);
    return low + 0.5 * (schedule->peak - low) * (1.0 + cos(3.14159265358979323846 * done));
}
