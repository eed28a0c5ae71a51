/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_spike.c: the rule by which steps are spikes, against one that counts for every step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/spike.h"

/* The lower median by counting: so many values are below it, and so many are not above it. */
static double median(const double *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t below = 0, upto = 0;
        for (size_t j = 0; j < n; j++) {
            below += value[j] < value[i];
            upto += value[j] <= value[i];
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < upto)
            return value[i];
    }
    return NAN;
}

static double noise(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    return (double)((i ^ i >> 29) % 1000) / 1000.0;
}

static void follows_the_rule(void **state)
{
    (void)state;
    enum { STEPS = 600 };
    double loss[STEPS], norm[STEPS];
    const size_t window[] = {OPTIM_SPIKE_LEAST, 5, 64, OPTIM_SPIKE_MOST};
    for (size_t i = 0; i < STEPS; i++) {
        loss[i] = 3.0 - 0.001 * (double)i + noise(i);
        norm[i] = 1.0 + noise(i + 7777);
    }
    for (size_t k = 0; k < sizeof window / sizeof *window; k++) {
        const optim_spike_config_t config = {.loss = 1.2, .norm = k % 2 ? 1.5 : 0.0, .window = window[k]};
        optim_spike_t spike = {0};
        for (size_t i = 0; i < STEPS; i++) {
            const optim_spike_limit_t limit = optim_spike_limit(&spike, &config);
            if (i < window[k]) {
                assert_true(isinf(limit.loss) && isinf(limit.norm) && isnan(limit.median_loss));
            } else {
                double want = median(loss + i - window[k], window[k]);
                assert_true(limit.median_loss == want && limit.loss == 1.2 * want);
                assert_true(k % 2 == 0 ? isinf(limit.norm)
                                       : limit.norm == 1.5 * median(norm + i - window[k], window[k]));
            }
            optim_spike_note(&spike, &config, loss[i], norm[i]);
            optim_spike_note(&spike, &config, NAN, norm[i]); /* no steps */
            optim_spike_note(&spike, &config, loss[i], INFINITY);
        }
    }
}

/* A level that lasts is none after half a window. */
static void gets_used_to_a_level(void **state)
{
    (void)state;
    const optim_spike_config_t config = {.loss = 2.0, .window = 8};
    optim_spike_t spike = {0};
    for (int i = 0; i < 8; i++)
        optim_spike_note(&spike, &config, 1.0, 1.0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(5.0 > optim_spike_limit(&spike, &config).loss, i < 5);
        optim_spike_note(&spike, &config, 5.0, 1.0);
    }
}

/* A checkpoint of a longer window: the last steps count. */
static void takes_a_shorter_window(void **state)
{
    (void)state;
    const optim_spike_config_t longer = {.loss = 2.0, .window = 32}, shorter = {.loss = 2.0, .window = 4};
    optim_spike_t spike = {0};
    for (int i = 0; i < 32; i++)
        optim_spike_note(&spike, &longer, i, 1.0);
    assert_true(optim_spike_limit(&spike, &shorter).median_loss == 29.0);
    optim_spike_note(&spike, &shorter, 50.0, 1.0);
    assert_int_equal(spike.count, 4);
    assert_true(optim_spike_limit(&spike, &shorter).median_loss == 30.0);
    assert_true(isinf(optim_spike_limit(&spike, &longer).loss));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_rule),
        cmocka_unit_test(gets_used_to_a_level),
        cmocka_unit_test(takes_a_shorter_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
