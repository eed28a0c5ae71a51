/* SPDX-License-Identifier: Apache-2.0 */
/* optim/scaler.c: dynamic loss scaling. */
#include <math.h>
#include <stddef.h>

#include "base/error.h"
#include "optim/scaler.h"

optim_scaler_config_t optim_scaler_complete(const optim_scaler_config_t *config)
{
    optim_scaler_config_t c = *config;
    c.start = c.start != 0.0 ? c.start : 0x1p16;
    c.growth = c.growth != 0.0 ? c.growth : 2.0;
    c.backoff = c.backoff != 0.0 ? c.backoff : 0.5;
    c.min = c.min != 0.0 ? c.min : 1.0;
    c.max = c.max != 0.0 ? c.max : 0x1p24;
    c.interval = c.interval ? c.interval : 1000;
    c.hysteresis = c.hysteresis ? c.hysteresis : 2;
    return c;
}

static int power_of_two(double x)
{
    int exponent;
    return isfinite(x) && x > 0.0 && frexp(x, &exponent) == 0.5;
}

gyre_status_t optim_scaler_check(const optim_scaler_config_t *c)
{
    const struct {
        const char *name;
        double value;
    } part[] = {{"start", c->start},
                {"growth", c->growth},
                {"backoff", c->backoff},
                {"min", c->min},
                {"max", c->max}};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        if (!power_of_two(part[i].value))
            return gyre_fail(GYRE_ERR_INVALID,
                             "loss scale: %s %g is not a power of two, so scaling would round: take one",
                             part[i].name, part[i].value);
    if (c->growth < 1.0 || c->backoff > 1.0 || c->min > c->start || c->start > c->max)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "loss scale: growth %g must be 1 or more, backoff %g at most 1, and min %g <= start %g <= max %g",
            c->growth, c->backoff, c->min, c->start, c->max);
    return GYRE_OK;
}

int optim_scaler_valid(const optim_scaler_t *scaler)
{
    return power_of_two(scaler->scale) && scaler->scale >= OPTIM_SCALE_LEAST &&
           scaler->scale <= OPTIM_SCALE_MOST;
}

void optim_scaler_begin(optim_scaler_t *scaler, const optim_scaler_config_t *config)
{
    *scaler = (optim_scaler_t){.scale = config->start, .left = config->hysteresis};
}

void optim_scaler_update(optim_scaler_t *scaler, const optim_scaler_config_t *config, int overflowed)
{
    if (overflowed) {
        scaler->skipped++;
        scaler->good = 0;
        if (scaler->left > 1)
            scaler->left--;
        else /* from now on each overflow shrinks it, until it has grown again */
            scaler->scale = fmax(scaler->scale * config->backoff, config->min);
    } else if (++scaler->good >= config->interval) {
        scaler->good = 0;
        scaler->left = config->hysteresis;
        scaler->scale = fmin(scaler->scale * config->growth, config->max);
    }
}
