/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* A batch that grows: the sizes are those that Megatron-LM's rule gives when it is followed step by step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "optim/ramp.h"

/* The size after `consumed` sequences: one more increment for each growths-th part of `over` that is
 * through. */
static size_t by_rule(const optim_ramp_t *r, uint64_t consumed)
{
    size_t growths = (r->batch - r->start) / r->increment;
    if (growths == 0 || consumed >= r->over)
        return r->batch;
    return r->start + (size_t)(consumed * growths / r->over) * r->increment;
}

static void follows_the_rule(void **state)
{
    (void)state;
    for (size_t start = 1; start <= 7; start++)
        for (size_t increment = 1; increment <= 5; increment++)
            for (size_t growths = 0; growths <= 6; growths++)
                for (uint64_t over = 0; over <= 260; over += 1 + over / 7) {
                    const optim_ramp_t r = {.batch = start + growths * increment,
                                            .start = start,
                                            .increment = increment,
                                            .over = over};
                    uint64_t consumed = 0, before;
                    optim_ramp_at_t at = {0};
                    assert_int_equal(optim_ramp_check(&r), GYRE_OK);
                    assert_int_equal(optim_ramp_sizes(&r), growths + 1);
                    assert_int_equal(optim_ramp_size(&r, growths), r.batch);
                    for (uint64_t step = 0; step < 90; step++) {
                        size_t size = optim_ramp_at(&r, &at, step, &before);
                        assert_int_equal(before, consumed);
                        assert_int_equal(size, by_rule(&r, consumed));
                        assert_int_equal(optim_ramp_at(&r, NULL, step, &before), size);
                        assert_int_equal(before, consumed);
                        assert_int_equal(optim_ramp_steps(&r, consumed), step);
                        assert_int_equal(optim_ramp_steps(&r, consumed + 1), step + 1);
                        consumed += size;
                    }
                    optim_ramp_at(&r, &at, 3, &before); /* back, as after a resume */
                    uint64_t again = before;
                    optim_ramp_at(&r, NULL, 3, &before);
                    assert_int_equal(again, before);
                }
}

/* A run whose first steps had other batches: each step has the size that its sequences before it give. */
static void goes_on(void **state)
{
    (void)state;
    const optim_ramp_t r = {.batch = 14, .start = 2, .increment = 3, .over = 90};
    for (uint64_t steps = 0; steps < 9; steps++)
        for (uint64_t sequences = 0; sequences < 120; sequences++) {
            optim_ramp_at_t at = {.steps = steps, .sequences = sequences};
            uint64_t consumed = sequences, before;
            for (uint64_t step = steps; step < steps + 30; step++) {
                const size_t size = optim_ramp_at(&r, &at, step, &before);
                assert_int_equal(before, consumed);
                assert_int_equal(size, by_rule(&r, consumed));
                consumed += size;
            }
        }
}

/* GPT-3's: 16 sequences more for each 95th part of 3,906,250, up to 1,536. Far steps cost no more than
 * near ones. */
static void published(void **state)
{
    (void)state;
    const optim_ramp_t r = {.batch = 1536, .start = 16, .increment = 16, .over = 3906250};
    uint64_t before, step = optim_ramp_steps(&r, r.over);
    assert_int_equal(optim_ramp_check(&r), GYRE_OK);
    assert_int_equal(optim_ramp_at(&r, NULL, step, &before), 1536);
    assert_in_range(before, r.over, r.over + 1536);
    assert_int_equal(optim_ramp_at(&r, NULL, step - 1, &before), 1520);
    assert_int_equal(optim_ramp_at(&r, NULL, step + 1000000000, &before), 1536);
    const optim_ramp_t huge = {.batch = 65536, .start = 1, .increment = 1, .over = (uint64_t)1 << 53};
    assert_int_equal(optim_ramp_check(&huge), GYRE_OK);
    step = optim_ramp_steps(&huge, huge.over);
    assert_int_equal(optim_ramp_at(&huge, NULL, step - 1, &before), 65535);
    assert_true(before < huge.over && before + 65535 >= huge.over);
    const optim_ramp_t none = {.batch = 8};
    assert_int_equal(optim_ramp_at(&none, NULL, 5, &before), 8);
    assert_int_equal(before, 40);
    assert_int_equal(optim_ramp_steps(&none, 41), 6);
}

/* Each refusal names an increment that is accepted, but where the beginning is too large. */
static void refused(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    size_t tried = 0;
    for (size_t batch = 1; batch < 30; batch++)
        for (size_t start = 1; start < 32; start++)
            for (size_t increment = 0; increment < 32; increment++) {
                optim_ramp_t r = {.batch = batch, .start = start, .increment = increment};
                if (optim_ramp_check(&r) == GYRE_OK)
                    continue;
                const char *take = strstr(gyre_last_error(), "take an increment of ");
                assert_true((take != NULL) == (start <= batch));
                if (!take)
                    continue;
                r.increment = strtoull(take + strlen("take an increment of "), NULL, 10);
                assert_int_equal(optim_ramp_check(&r), GYRE_OK);
                tried++;
            }
    assert_true(tried > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(follows_the_rule), cmocka_unit_test(goes_on),
                                       cmocka_unit_test(published), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
