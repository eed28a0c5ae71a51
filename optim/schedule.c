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
    size_t span = schedule->steps > schedule->warmup ? schedule->steps - schedule->warmup : 1;
    double done = fmin(1.0, fmax(progress, (double)(step - schedule->warmup) / (double)span));
    double low = schedule->peak * schedule->floor;
    if (schedule->curve == OPTIM_CURVE_LINEAR)
        return low + (schedule->peak - low) * (1.0 - done);
    return low + 0.5 * (schedule->peak - low) * (1.0 + cos(3.14159265358979323846 * done));
}
