/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/test_compile.c: which receives may be read where the sender has them (views), and when
 * they are given back. A wrong answer here would give a peer's buffer to a rank that writes into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "collectives/run/plan.h"

static const coll_args_t args = {.op = COLL_ALL_REDUCE, .n = 4, .rank = 0, .count = 100, .chunk = 100};

static coll_ref_t at(coll_buf_t buf, size_t offset)
{
    return (coll_ref_t){.offset = offset, .buf = buf};
}

static coll_segment_t compiled(coll_builder_t *b)
{
    coll_schedule_t s;
    coll_segment_t g;
    assert_int_equal(coll_builder_finish(b, COLL_DIRECT, &s), GYRE_OK);
    assert_int_equal(coll_segment_compile(&s, 4, &g), GYRE_OK);
    return g;
}

static void read_once_by_a_reduce(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 200);
    coll_ref_t second = at(COLL_TMP, tmp.offset + 100);
    coll_add_recv(b, 0, 1, tmp, 100);
    coll_add_recv(b, 0, 2, second, 100);
    coll_ref_t from[3] = {at(COLL_IN, 0), tmp, second};
    coll_add_reduce(b, 0, at(COLL_OUT, 0), from, 3, 100, COLL_FINAL);
    coll_segment_t g = compiled(b);
    assert_true(g.steps[0].may_view && g.steps[1].may_view);
    assert_int_equal(g.steps[2].nrelease, 2);
    assert_int_equal(g.sources[0].recv, UINT32_MAX);
    assert_int_equal(g.sources[1].recv, 0);
    assert_int_equal(g.sources[2].recv, 1);
    coll_segment_free(&g);
}

static void given_back_after_the_last_reader(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 100), upper = at(COLL_TMP, tmp.offset + 60);
    coll_add_recv(b, 0, 1, tmp, 100);
    coll_add_copy(b, 0, at(COLL_OUT, 0), tmp, 60, 0);
    coll_add_copy(b, 0, at(COLL_OUT, 60), upper, 40, 0);
    coll_segment_t g = compiled(b);
    assert_true(g.steps[0].may_view);
    assert_int_equal(g.steps[1].nrelease, 0);
    assert_int_equal(g.steps[2].nrelease, 1);
    assert_int_equal(g.sources[1].recv_offset, 240);
    coll_segment_free(&g);
}

static void forwarded_is_copied(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 100);
    coll_add_recv(b, 0, 1, tmp, 100);
    coll_add_copy(b, 0, at(COLL_OUT, 0), tmp, 100, 0);
    coll_add_send(b, 0, 2, tmp, 100);
    coll_segment_t g = compiled(b);
    assert_false(g.steps[0].may_view);
    coll_segment_free(&g);
}

static void accumulated_into_is_copied(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 100);
    coll_add_recv(b, 0, 1, tmp, 100);
    coll_ref_t from[2] = {at(COLL_IN, 0), tmp};
    coll_add_reduce(b, 0, tmp, from, 2, 100, 0);
    coll_segment_t g = compiled(b);
    assert_false(g.steps[0].may_view);
    coll_segment_free(&g);
}

static void read_by_another_channel_is_copied(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 100);
    uint32_t recv = coll_add_recv(b, 0, 1, tmp, 100);
    uint32_t copy = coll_add_copy(b, 1, at(COLL_OUT, 0), tmp, 100, 0);
    coll_add_dep(b, copy, recv);
    coll_segment_t g = compiled(b);
    assert_false(g.steps[0].may_view);
    coll_segment_free(&g);
}

static void straddling_reader_is_copied(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 200);
    coll_add_recv(b, 0, 1, tmp, 100);
    coll_add_recv(b, 0, 2, at(COLL_TMP, tmp.offset + 100), 100);
    coll_add_copy(b, 0, at(COLL_OUT, 0), at(COLL_TMP, tmp.offset + 50), 100, 0);
    coll_segment_t g = compiled(b);
    assert_false(g.steps[0].may_view || g.steps[1].may_view);
    coll_segment_free(&g);
}

static void reused_range_is_viewed_each_time(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_ref_t tmp = coll_tmp(b, 50);
    for (size_t half = 0; half < 2; half++) {
        coll_add_recv(b, 0, 1, tmp, 50);
        coll_add_copy(b, 0, at(COLL_OUT, half * 50), tmp, 50, 0);
    }
    coll_segment_t g = compiled(b);
    assert_true(g.steps[0].may_view && g.steps[2].may_view);
    assert_int_equal(g.sources[0].recv, 0);
    assert_int_equal(g.sources[1].recv, 2);
    assert_int_equal(g.releases[g.steps[3].release], 2);
    coll_segment_free(&g);
}

static void received_into_the_result_is_not_viewed(void **state)
{
    (void)state;
    coll_builder_t *b = coll_builder_new(&args);
    coll_add_recv(b, 0, 1, at(COLL_OUT, 0), 100);
    coll_segment_t g = compiled(b);
    assert_false(g.steps[0].may_view);
    coll_segment_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_once_by_a_reduce),
        cmocka_unit_test(given_back_after_the_last_reader),
        cmocka_unit_test(forwarded_is_copied),
        cmocka_unit_test(accumulated_into_is_copied),
        cmocka_unit_test(read_by_another_channel_is_copied),
        cmocka_unit_test(straddling_reader_is_copied),
        cmocka_unit_test(reused_range_is_viewed_each_time),
        cmocka_unit_test(received_into_the_result_is_not_viewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
