/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_copy.c: base_copy copies all bytes and no others, wherever the two places lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/machine/copy.h"

enum { PAGE = 4096, MOST = 3 * PAGE, AROUND = 64 };

static unsigned char *room; /* [4 * PAGE + MOST], at a page: from there, and from its middle on */
static unsigned char *from, *to;

static int set_up(void **state)
{
    (void)state;
    room = aligned_alloc(PAGE, 8 * PAGE + 2 * MOST);
    from = room + PAGE;
    return room ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(room);
    return 0;
}

static void copy_once(void (*copy)(void *, const void *, size_t), size_t at, size_t ahead, size_t bytes)
{
    unsigned char *const in = from + at;
    to = room + 4 * PAGE + MOST + at + ahead;
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(i * 7 + i / 251);
    memset(to - AROUND, 0xa5, bytes + 2 * AROUND);
    copy(to, in, bytes);
    assert_memory_equal(to, in, bytes);
    for (size_t i = 0; i < AROUND; i++) {
        assert_int_equal(to[-1 - (ptrdiff_t)i], 0xa5);
        assert_int_equal(to[bytes + i], 0xa5);
    }
}

static const size_t sizes[] = {0,   1,   15,   16,   17,   63,   64,   65,   127,  128, 129,
                               191, 200, 2047, 2048, 2049, 4095, 4096, 4113, 8191, MOST};

static void copies(void **state)
{
    (void)state;
    for (size_t at = 0; at < 64; at += 21)
        for (size_t ahead = 0; ahead < 70; ahead++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                copy_once(base_copy, at, ahead, sizes[i]);
                copy_once(base_copy_backward, at, ahead, sizes[i]);
            }
}

#if defined(__x86_64__)
static void knows_where_it_trips(void **state)
{
    (void)state;
    const uintptr_t at = 0x7f0000001230;
    for (uintptr_t page = 0; page < 3 * PAGE; page += PAGE) {
        assert_false(base_copy_trips(at + page, at));
        assert_true(base_copy_trips(at + page + 1, at));
        assert_true(base_copy_trips(at + page + 31, at));
        assert_false(base_copy_trips(at + page + 32, at));
        assert_true(base_copy_trips(at, at - page - 16));
        assert_false(base_copy_trips(at, at + page + 16));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copies, set_up, tear_down),
#if defined(__x86_64__)
        cmocka_unit_test(knows_where_it_trips),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
