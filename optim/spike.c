/* SPDX-License-Identifier: Apache-2.0 */
/* optim/spike.c: the medians of the last steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "optim/spike.h"

/* The largest of no spike: `times` the median of the last `window` of `count` values. */
static double limit_of(const double *value, size_t count, size_t window, double times, double *median)
{
    double sorted[OPTIM_SPIKE_MOST];
    *median = NAN;
    if (!(times > 0.0) || count < window)
        return INFINITY;
    memcpy(sorted, value + count - window, window * sizeof *sorted);
    qsort(sorted, window, sizeof *sorted, base_order_double);
    *median = sorted[(window - 1) / 2];
    return times * *median;
}

optim_spike_limit_t optim_spike_limit(const optim_spike_t *spike, const optim_spike_config_t *config)
{
    optim_spike_limit_t out;
    out.loss = limit_of(spike->loss, spike->count, config->window, config->loss, &out.median_loss);
    out.norm = limit_of(spike->norm, spike->count, config->window, config->norm, &out.median_norm);
    return out;
}

void optim_spike_note(optim_spike_t *spike, const optim_spike_config_t *config, double loss, double norm)
{
    if (!isfinite(loss) || !isfinite(norm))
        return;
    if (spike->count >= config->window) { /* a checkpoint may be of a longer one */
        const size_t keep = config->window - 1, from = spike->count - keep;
        memmove(spike->loss, spike->loss + from, keep * sizeof *spike->loss);
        memmove(spike->norm, spike->norm + from, keep * sizeof *spike->norm);
        spike->count = keep;
    }
    spike->loss[spike->count] = loss;
    spike->norm[spike->count++] = norm;
}
