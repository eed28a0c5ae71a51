/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to bfloat16 and binary16: every value of the type stays, every midpoint goes to the even
 * neighbour, everything between goes to the nearer one, in every instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/kernels/kernels.h"

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* The value of a binary16, by its definition. */
static double half_value(uint32_t h)
{
    uint32_t exponent = h >> 10 & 31u, fraction = h & 1023u;
    double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
    return exponent == 31 ? INFINITY : value;
}

static double bfloat_value(uint32_t h)
{
    return (double)of_bits(h << 16);
}

typedef void (*round_fn)(float *x, size_t n);

/* Positive values of a type in their order: value(0), value(1), .. value(last), then infinity. */
static void check_type(round_fn round, double (*value)(uint32_t), uint32_t last, double overflow)
{
    static float x[16];
    for (uint32_t i = 0; i <= last; i++) {
        double here = value(i), next = i < last ? value(i + 1) : overflow * 2 - here;
        double middle = here + (next - here) / 2, up = i < last ? next : INFINITY;
        float below = (float)(here + (next - here) * 0.4999), above = (float)(here + (next - here) * 0.5001);
        float in[6] = {(float)here, (float)middle, below, above, -(float)here, -(float)middle};
        double even = i % 2 == 0 ? here : up;
        double want[6] = {here, even, here, up, -here, -even};
        if ((double)(float)middle != middle || (double)below >= middle || (double)above <= middle)
            continue; /* finer than float: at the small end of bfloat16 */
        for (size_t k = 0; k < 16; k++)
            x[k] = in[k % 6];
        round(x, 16); /* 16: what vectors do to the first 12 their tails do to others */
        for (size_t k = 0; k < 16; k++)
            assert_int_equal(bits_of(x[k]), bits_of((float)want[k % 6]));
    }
    float odd[4] = {INFINITY, -INFINITY, NAN, of_bits(0x7fffffffu)};
    round(odd, 4);
    assert_true(odd[0] == INFINITY && odd[1] == -INFINITY && isnan(odd[2]) && isnan(odd[3]));
}

static void bfloat16(void **state)
{
    (void)state;
    for (int isa = MODEL_ISA_BEST; isa < MODEL_ISA_COUNT; isa++) {
        const model_kernels_t_f32 *k = model_kernels_f32((model_isa_t)isa);
        if (k)
            check_type(k->round_bf16, bfloat_value, 0x7f7fu, 0x1.ffp127);
    }
}

static void binary16(void **state)
{
    (void)state;
    for (int isa = MODEL_ISA_BEST; isa < MODEL_ISA_COUNT; isa++) {
        const model_kernels_t_f32 *k = model_kernels_f32((model_isa_t)isa);
        if (k)
            check_type(k->round_fp16, half_value, 0x7bffu, 65520.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bfloat16), cmocka_unit_test(binary16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
