/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_scaler.c: the loss scale's steps up and down. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "optim/scaler.h"

static void test_steps(void **unused)
{
    (void)unused;
    const optim_scaler_config_t given = {.interval = 3}, c = optim_scaler_complete(&given);
    optim_scaler_t s;
    assert_int_equal(optim_scaler_check(&c), GYRE_OK);
    optim_scaler_begin(&s, &c);
    assert_true(s.scale == 65536.0);
    optim_scaler_update(&s, &c, 1); /* forgiven: hysteresis is 2 */
    assert_true(s.scale == 65536.0);
    optim_scaler_update(&s, &c, 0);
    optim_scaler_update(&s, &c, 1); /* a good step between them gives nothing back */
    assert_true(s.scale == 32768.0);
    optim_scaler_update(&s, &c, 1);
    assert_true(s.scale == 16384.0);
    optim_scaler_update(&s, &c, 0);
    optim_scaler_update(&s, &c, 0);
    assert_true(s.scale == 16384.0);
    optim_scaler_update(&s, &c, 0);
    assert_true(s.scale == 32768.0);
    optim_scaler_update(&s, &c, 1); /* forgiven again since it has grown */
    assert_true(s.scale == 32768.0);
    assert_int_equal(s.skipped, 4);
}

static void test_ends(void **unused)
{
    (void)unused;
    const optim_scaler_config_t given = {.start = 2.0, .max = 4.0, .interval = 1, .hysteresis = 1},
                                c = optim_scaler_complete(&given);
    optim_scaler_t s;
    optim_scaler_begin(&s, &c);
    for (int i = 0; i < 3; i++)
        optim_scaler_update(&s, &c, 0);
    assert_true(s.scale == 4.0);
    for (int i = 0; i < 5; i++)
        optim_scaler_update(&s, &c, 1);
    assert_true(s.scale == 1.0);
}

/* A state that was saved with a longer interval grows at once, and not never. */
static void test_read_back(void **unused)
{
    (void)unused;
    const optim_scaler_config_t given = {.interval = 10}, c = optim_scaler_complete(&given);
    optim_scaler_t s = {.scale = 4.0, .good = 500, .left = 1};
    optim_scaler_update(&s, &c, 0);
    assert_true(s.scale == 8.0 && s.good == 0);
    const double bad[] = {0.0, -2.0, 3.0, NAN, INFINITY, 0x1p-65, 0x1p65};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        s.scale = bad[i];
        assert_false(optim_scaler_valid(&s));
    }
    for (s.scale = 0x1p-64; s.scale <= 0x1p64; s.scale *= 2.0)
        assert_true(optim_scaler_valid(&s));
}

static void test_refused(void **unused)
{
    (void)unused;
    const optim_scaler_config_t bad[] = {
        {.start = 1000.0}, {.growth = 0.5}, {.backoff = 2.0}, {.start = 0.5}, {.growth = -2.0}};
    base_log_set_level(BASE_LOG_NONE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const optim_scaler_config_t c = optim_scaler_complete(&bad[i]);
        assert_int_equal(optim_scaler_check(&c), GYRE_ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
