/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/verbs/test_windows.c: what is registered is let go before its memory is, and is never mistaken
 * for what is mapped there later. The registrar is a fake; the windows are real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/memory/memory.h"
#include "comm/verbs/windows.h"

enum { REGISTRATIONS = 16 };

/* The adapter: what it believes to be registered. */
static struct {
    void *base;
    size_t bytes;
    int live, ended;
} adapter[REGISTRATIONS];
static int registered, refuse;

static int grip(void *user, void *base, size_t bytes, verbs_keys_t *keys, void **out)
{
    (void)user;
    if (refuse)
        return 0;
    adapter[registered].base = base;
    adapter[registered].bytes = bytes;
    adapter[registered].live = 1;
    keys->lkey[0] = keys->rkey[0] = (uint32_t)registered;
    *out = &adapter[registered++];
    return 1;
}

static void let_go(void *user, void *gripped)
{
    int at = (int)((char *)gripped - (char *)adapter) / (int)sizeof *adapter;
    unsigned char resident;

    (void)user;
    assert_int_equal(adapter[at].live, 1);
    /* the memory is still mapped at this moment */
    assert_int_equal(mincore(adapter[at].base, 1, &resident), 0);
    adapter[at].live = 0;
    adapter[at].ended = 1;
}

static verbs_windows_t windows = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = let_go};

static void gone(uint64_t id)
{
    verbs_windows_gone(&windows, id);
}

static void take(void *user, uint64_t id, void *base, size_t bytes)
{
    verbs_windows_find(&windows, id, base, bytes, grip, NULL, user);
}

static verbs_keys_t keys_of(const void *ptr, size_t bytes)
{
    verbs_keys_t keys = {0};
    uint64_t id;
    size_t offset;

    assert_int_equal(comm_mem_find(ptr, bytes, &id, &offset), 1);
    assert_int_equal(comm_mem_hold(id, gone, take, &keys), 1);
    assert_int_equal(keys.window, id);
    return keys;
}

static void *window(size_t bytes)
{
    void *p;

    assert_int_equal(comm_mem_alloc(bytes, &p), GYRE_OK);
    return p;
}

static void test_freed_and_mapped_anew(void **state)
{
    const size_t bytes = 2 << 20;
    unsigned char *p = window(bytes);
    verbs_keys_t first = keys_of(p, bytes), second;
    int live = (int)first.lkey[0];

    (void)state;
    assert_int_equal(keys_of(p + 4096, 100).lkey[0], first.lkey[0]); /* registered once, as a whole */
    assert_ptr_equal(adapter[live].base, p);
    assert_int_equal(adapter[live].bytes, bytes);
    assert_int_equal(comm_mem_free(p), GYRE_OK);
    assert_int_equal(adapter[live].ended, 1); /* before comm_mem_free returned */
    p = window(bytes);                        /* as likely as not at the same address */
    second = keys_of(p, bytes);
    assert_int_not_equal(second.window, first.window);
    assert_int_not_equal(second.lkey[0], first.lkey[0]);
    assert_int_equal(adapter[second.lkey[0]].live, 1);
    assert_int_equal(comm_mem_free(p), GYRE_OK);
    assert_int_equal(adapter[second.lkey[0]].live, 0);
}

/* The physical page of an address, as far as this process may know; 0: unknown. */
static uint64_t frame(const void *at)
{
    uint64_t entry = 0;
    FILE *map = fopen("/proc/self/pagemap", "rb");

    if (map && fseek(map, (long)((uintptr_t)at / (uintptr_t)getpagesize() * 8), SEEK_SET) == 0 &&
        fread(&entry, sizeof entry, 1, map) != 1)
        entry = 0;
    if (map)
        fclose(map);
    return entry & ((1ull << 55) - 1);
}

/* Small allocations share a window. One that is freed and given again must be the same pages as those that
 * the adapter knows. */
static void test_arena(void **state)
{
    const size_t bytes = 64 << 10;
    unsigned char *keep = window(bytes), *p = window(bytes), *again;
    verbs_keys_t keys = keys_of(p, bytes);
    uint64_t before;

    (void)state;
    assert_int_equal(keys_of(keep, bytes).window, keys.window);
    memset(p, 7, bytes);
    before = frame(p);
    assert_int_equal(comm_mem_free(p), GYRE_OK);
    assert_int_equal(adapter[keys.lkey[0]].live, 1);
    again = window(bytes);
    assert_ptr_equal(again, p);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(again[i], 0);
    assert_true(before == frame(again)); /* both 0 without the right to know */
    assert_int_equal(keys_of(again, bytes).lkey[0], keys.lkey[0]);
    assert_int_equal(comm_mem_free(again), GYRE_OK);
    assert_int_equal(comm_mem_free(keep), GYRE_OK);
}

static void test_adopted(void **state)
{
    const size_t bytes = 1 << 20;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    verbs_keys_t keys;

    (void)state;
    assert_true(p != MAP_FAILED);
    assert_int_equal(comm_mem_register(p, bytes), GYRE_OK);
    keys = keys_of(p, bytes);
    assert_int_equal(comm_mem_deregister(p), GYRE_OK);
    assert_int_equal(adapter[keys.lkey[0]].ended, 1);
    munmap(p, bytes);
}

/* What the system refuses is asked for once. */
static void test_refused(void **state)
{
    void *p = window(2 << 20);
    int before = registered;

    (void)state;
    refuse = 1;
    assert_int_equal(keys_of(p, 1).usable, 0);
    refuse = 0;
    assert_int_equal(keys_of(p, 1).usable, 0);
    assert_int_equal(registered, before);
    assert_int_equal(comm_mem_free(p), GYRE_OK);
}

static void test_all_are_let_go(void **state)
{
    void *p = window(2 << 20);
    uint32_t at = keys_of(p, 1).lkey[0];

    (void)state;
    verbs_windows_free(&windows);
    for (int i = 0; i < registered; i++)
        assert_int_equal(adapter[i].live, 0);
    assert_int_equal(comm_mem_free(p), GYRE_OK); /* it is not registered any more */
    assert_int_equal(adapter[at].ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_and_mapped_anew),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_adopted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_all_are_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
