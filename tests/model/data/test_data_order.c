/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Epochs are permutations, blends keep their proportions at every moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/data/order.h"
#include "model/random.h"

static void permutations(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static unsigned char seen[MOST];
    const uint64_t counts[] = {1,  2,  3,  4,   5,   7,   8,    15,   16,   17,
                               63, 64, 65, 255, 256, 257, 1000, 4096, 4097, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            uint64_t n = counts[c];
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = model_order_place(7, (uint32_t)c, epoch, n, i);
                assert_true(at < n);
                assert_int_equal(seen[at]++, 0);
            }
        }
}

/* Seeds, sources and epochs are different orders; a large count is as good as a small one. */
static void orders_differ(void **state)
{
    (void)state;
    const uint64_t n = (UINT64_C(1) << 40) + 12345;
    size_t fixed = 0, same = 0, rising = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t at = model_order_place(1, 0, 0, n, i);
        assert_true(at < n);
        fixed += at == i;
        same += at == model_order_place(2, 0, 0, n, i) || at == model_order_place(1, 1, 0, n, i) ||
                at == model_order_place(1, 0, 1, n, i);
        rising += model_order_place(1, 0, 0, n, i + 1) > at;
    }
    assert_int_equal(fixed, 0);
    assert_int_equal(same, 0);
    assert_in_range(rising, 400, 600);
    assert_true(model_order_place(1, 0, 0, UINT64_MAX, 5) < UINT64_MAX);
}

/* Neither neighbours nor ends of an epoch keep together: mean distance of neighbours is a third of the
 * length. */
static void well_mixed(void **state)
{
    (void)state;
    const uint64_t n = 3000;
    double sum = 0.0;
    for (uint64_t i = 0; i + 1 < n; i++) {
        double a = (double)model_order_place(5, 0, 3, n, i), b = (double)model_order_place(5, 0, 3, n, i + 1);
        sum += a > b ? a - b : b - a;
    }
    double mean = sum / (double)(n - 1) / (double)n;
    assert_true(mean > 0.31 && mean < 0.355);
}

/* Every prefix within one sample of each source's share, and numbers of a source in order without gaps. */
static void check_blend(const char *const *text, const double *weight, size_t sources, uint64_t prefix,
                        double slack)
{
    model_blend_t *blend = NULL;
    uint64_t had[MODEL_BLEND_SOURCES] = {0};
    double sum = 0.0;
    assert_int_equal(model_blend_create(text, sources, &blend), GYRE_OK);
    for (size_t s = 0; s < sources; s++)
        sum += weight[s];
    for (uint64_t i = 0; i < prefix; i++) {
        size_t source;
        uint64_t number;
        model_blend_find(blend, i, &source, &number);
        assert_true(source < sources);
        assert_int_equal(number, had[source]);
        had[source]++;
        for (size_t s = 0; s < sources; s++) {
            double error = (double)had[s] - weight[s] / sum * (double)(i + 1);
            assert_true(error < 1.0 + slack && error > -1.0 - slack);
        }
    }
    model_blend_destroy(blend);
}

static void proportions(void **state)
{
    (void)state;
    const char *const two[] = {"0.7", "0.3"};
    check_blend(two, (double[]){0.7, 0.3}, 2, 5000, 1e-9);
    const char *const one[] = {"5"};
    check_blend(one, (double[]){1}, 1, 100, 1e-9);
    /* here the source with the greatest error would leave another one a whole sample short */
    const char *const hard[] = {"5", "1", "3", "3", "1", "1", "35", "33", "5", "5", "47", "52"};
    check_blend(hard, (double[]){5, 1, 3, 3, 1, 1, 35, 33, 5, 5, 47, 52}, 12, 1000, 1e-9);
    /* no short period: rounded to 2^-18, which shows only after 2^17 samples or so */
    const char *const long_ones[] = {"0.33333333", "0.1234567", "0.54321003"};
    check_blend(long_ones, (double[]){0.33333333, 0.1234567, 0.54321003}, 3, 100000, 0.5);
    for (uint32_t t = 0; t < 60; t++) { /* any weights */
        size_t sources = 2 + t % 11;
        char text[16][16];
        const char *list[16];
        double weight[16];
        for (size_t s = 0; s < sources; s++) {
            uint64_t w = 1 + model_random_bits(3, MODEL_RANDOM_DATA, t, s) % (t % 2 ? 9 : 200);
            snprintf(text[s], sizeof text[s], "0.%03u", (unsigned)w);
            list[s] = text[s];
            weight[s] = (double)w;
        }
        check_blend(list, weight, sources, 3000, 1e-9);
    }
}

static void refused(void **state)
{
    (void)state;
    model_blend_t *blend = NULL;
    const char *const bad[] = {"0", "", ".", "-1", "1e3", "nan", "0.0", "1.2.3", "123456789012345678901"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const list[] = {"1", bad[i]};
        assert_int_equal(model_blend_create(list, 2, &blend), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "weight"));
    }
    assert_int_equal(model_blend_create(bad, 0, &blend), GYRE_ERR_INVALID);
    assert_null(blend);
}

static int quiet(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations), cmocka_unit_test(orders_differ), cmocka_unit_test(well_mixed),
        cmocka_unit_test(proportions),  cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
