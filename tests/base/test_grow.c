/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_grow.c: an array keeps what it has while it grows, and after what cannot be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/grow.h"

static void grows(void **state)
{
    (void)state;
    int *list = NULL, moves = 0;
    size_t room = 0;
    for (size_t n = 0; n < 10000; n++) {
        const size_t before = room;
        assert_true(base_grow(&list, &room, n, 1, sizeof *list));
        assert_true(room > n);
        moves += room != before;
        list[n] = (int)n;
    }
    assert_true(moves < 12); /* it doubles */
    assert_true(base_grow(&list, &room, 10000, 1000000, sizeof *list));
    assert_true(room >= 1010000);
    for (int n = 0; n < 10000; n++)
        assert_int_equal(list[n], n);
    free(list);
}

static void refused(void **state)
{
    (void)state;
    int *list = NULL;
    size_t room = 0;
    assert_true(base_grow(&list, &room, 0, 3, sizeof *list));
    const int *had = list;
    const size_t there = room;
    assert_false(base_grow(&list, &room, 3, SIZE_MAX, sizeof *list));
    assert_false(base_grow(&list, &room, 3, SIZE_MAX / 2, sizeof *list));
    assert_false(base_grow(&list, &room, 3, PTRDIFF_MAX / sizeof *list, sizeof *list));
    assert_true(list == had && room == there);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grows), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
