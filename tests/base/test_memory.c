/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_memory.c: arenas and hashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/hash.h"

static void aligned_zeroed_and_apart(void **state)
{
    (void)state;
    enum { N = 300 };
    base_arena_t arena = {0};
    unsigned char *ptrs[N];
    size_t bytes[N];
    for (size_t i = 0; i < N; i++) {
        bytes[i] = (i * i * 37) % 9000;
        ptrs[i] = base_arena_alloc(&arena, bytes[i], 1);
        assert_non_null(ptrs[i]);
        assert_int_equal((uintptr_t)ptrs[i] % 64, 0);
        for (size_t j = 0; j < bytes[i]; j++)
            assert_int_equal(ptrs[i][j], 0);
        memset(ptrs[i], (int)(i % 255) + 1, bytes[i]);
    }
    for (size_t i = 0; i < N; i++) /* no block overlaps another */
        for (size_t j = 0; j < bytes[i]; j++)
            assert_int_equal(ptrs[i][j], (i % 255) + 1);
    base_arena_free(&arena);
}

/* Memory that malloc hands out again after a free is dirty; an arena's is not. */
static void zeroed_again(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        base_arena_t arena = {0};
        unsigned char *ptr = base_arena_alloc(&arena, 1000, 3);
        for (int j = 0; j < 3000; j++)
            assert_int_equal(ptr[j], 0);
        memset(ptr, 0xff, 3000);
        base_arena_free(&arena);
        assert_null(arena.blocks);
        assert_int_equal(arena.bytes, 0);
    }
}

static void overflow(void **state)
{
    (void)state;
    base_arena_t arena = {0};
    assert_null(base_arena_alloc(&arena, SIZE_MAX / 2, 3));
    assert_null(base_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(base_arena_alloc(&arena, SIZE_MAX - 200, 1));
    assert_int_equal(arena.bytes, 0);
    assert_non_null(base_arena_alloc(&arena, 8, 8)); /* still good */
    base_arena_free(&arena);
}

static void small_ones_share_large_ones_do_not_waste(void **state)
{
    (void)state;
    base_arena_t arena = {0};
    base_arena_alloc(&arena, 1, 100);
    size_t one_block = arena.bytes;
    char *a = base_arena_alloc(&arena, 1, 100);
    assert_int_equal(arena.bytes, one_block);
    base_arena_alloc(&arena, 1, 1 << 20); /* its own block, after the newest */
    char *b = base_arena_alloc(&arena, 1, 100);
    assert_ptr_equal(b, a + 128);
    assert_in_range(arena.bytes, 1 << 20, (1 << 20) + one_block + 4096);
    void *empty = base_arena_alloc(&arena, 0, 5), *other = base_arena_alloc(&arena, 5, 0);
    assert_non_null(empty);
    assert_ptr_not_equal(empty, other);
    assert_string_equal(base_arena_strdup(&arena, "text"), "text");
    assert_string_equal(base_arena_strdup(&arena, ""), "");
    base_arena_free(&arena);
}

static void checked_sizes(void **state)
{
    (void)state;
    size_t out = 7;
    assert_true(base_mul(3, 5, &out));
    assert_int_equal(out, 15);
    assert_false(base_mul(SIZE_MAX, 2, &out));
    assert_false(base_add(SIZE_MAX, 1, &out));
    assert_int_equal(base_round_up(65, 64), 128);
    assert_int_equal(base_round_up(64, 64), 64);
}

static void hashes(void **state)
{
    (void)state;
    /* XXH3's published values: the format of checksums in files must never drift. */
    assert_true(base_hash64("", 0, 0) == 0x2D06800538D394C2ULL);
    assert_true(base_hash64("a", 1, 0) == base_hash64("a", 1, 0));
    assert_true(base_hash64("a", 1, 0) != base_hash64("b", 1, 0));
    assert_true(base_hash64("a", 1, 0) != base_hash64("a", 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligned_zeroed_and_apart),
        cmocka_unit_test(zeroed_again),
        cmocka_unit_test(overflow),
        cmocka_unit_test(small_ones_share_large_ones_do_not_waste),
        cmocka_unit_test(checked_sizes),
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
