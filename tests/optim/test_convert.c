/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_convert.c: conversions in bulk are those of collectives, one by one, for every 16-bit
 * value and around every rounding border. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/kernels/float16.h"
#include "optim/convert.h"

enum { ALL = 65536 };
static uint16_t half[ALL + 3], back[ALL + 3];
static float value[ALL + 3];

static void check_type(model_precision_t type)
{
    for (size_t i = 0; i < ALL + 3; i++)
        half[i] = (uint16_t)i;
    optim_expand(type, half, value, ALL + 3); /* + 3: a tail */
    for (size_t i = 0; i < ALL + 3; i++) {
        float want = type == MODEL_BFLOAT16 ? kernel_from_bfloat(half[i]) : kernel_from_half(half[i]);
        assert_memory_equal(&value[i], &want, sizeof want);
    }
    /* each 16-bit value, moved by some units of its last place in fp32 on either side, half a 16-bit unit
     * among them */
    static const int32_t move[] = {0,       1,      -1,     0x1000, 0xfff,  0x1001,
                                   -0x1000, -0xfff, 0x8000, 0x7fff, 0x8001, -0x8000};
    float near[ALL];
    for (size_t m = 0; m < sizeof move / sizeof move[0]; m++) {
        for (size_t i = 0; i < ALL; i++) {
            uint32_t bits;
            memcpy(&bits, &value[i], sizeof bits);
            bits += (uint32_t)move[m];
            memcpy(&near[i], &bits, sizeof bits);
        }
        optim_round(type, near, back, ALL);
        for (size_t i = 0; i < ALL; i++)
            assert_int_equal(back[i],
                             type == MODEL_BFLOAT16 ? kernel_to_bfloat(near[i]) : kernel_to_half(near[i]));
    }
}

static void test_bfloat(void **unused)
{
    (void)unused;
    check_type(MODEL_BFLOAT16);
}

static void test_half(void **unused)
{
    (void)unused;
    check_type(MODEL_FLOAT16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bfloat), cmocka_unit_test(test_half)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
