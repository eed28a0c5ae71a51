/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_mem.c: windows: allocation, lookup, peers' mappings, limits. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/descriptors.h"
#include "../support/ranks.h"
#include "comm/memory/memory.h"

enum { MIB = 1 << 20 };

static int all_zero(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (at[i])
            return 0;
    }
    return 1;
}

static void test_alloc(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 100000, MIB - 4096, MIB - 1, MIB, MIB + 1, 9 * MIB};
    void *got[sizeof sizes / sizeof sizes[0]];
    uint64_t id;
    size_t offset;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(comm_mem_alloc(sizes[i], &got[i]), GYRE_OK);
        assert_int_equal((uintptr_t)got[i] % 4096, 0);
        assert_true(all_zero(got[i], sizes[i]));
        memset(got[i], 0x5a, sizes[i]);
        assert_true(comm_mem_find(got[i], sizes[i], &id, &offset));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizes[i]; k += 4095)
            assert_int_equal(((unsigned char *)got[i])[k], 0x5a);
        assert_int_equal(comm_mem_free(got[i]), GYRE_OK);
    }
    /* What is given again is zeroed again. */
    assert_int_equal(comm_mem_alloc(100000, &got[0]), GYRE_OK);
    assert_true(all_zero(got[0], 100000));
    assert_int_equal(comm_mem_free(got[0]), GYRE_OK);
    assert_int_equal(comm_mem_free(NULL), GYRE_OK);
}

static void test_bad_input(void **state)
{
    unsigned char *ptr, *big;
    int local;
    char array[16];

    (void)state;
    assert_int_equal(comm_mem_alloc(1, NULL), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_alloc(SIZE_MAX, (void **)&ptr), GYRE_ERR_OVERFLOW);
    assert_int_equal(comm_mem_alloc((size_t)1 << 62, (void **)&ptr), GYRE_ERR_NO_MEMORY);
    assert_int_equal(comm_mem_free(&local), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_alloc(20000, (void **)&ptr), GYRE_OK);
    assert_int_equal(comm_mem_alloc(2 * MIB, (void **)&big), GYRE_OK);
    assert_int_equal(comm_mem_free(ptr + 1), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_free(ptr + 4096), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_free(big + 4096), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_free(ptr), GYRE_OK);
    assert_int_equal(comm_mem_free(ptr), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_free(big), GYRE_OK);
    assert_int_equal(comm_mem_free(big), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(NULL, 1), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(array, 0), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(array + 4, 8), GYRE_OK);
    assert_int_equal(comm_mem_register(array + 4, 8), GYRE_ERR_INVALID); /* again */
    assert_int_equal(comm_mem_register(array + 11, 1), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(array, 5), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(array, 16), GYRE_ERR_INVALID);
    assert_int_equal(comm_mem_register(array, 4), GYRE_OK); /* next to it */
    assert_int_equal(comm_mem_register(array + 12, 4), GYRE_OK);
    assert_int_equal(comm_mem_deregister(array + 5), GYRE_ERR_INVALID);
    for (int i = 0; i <= 12; i += i == 0 ? 4 : 8)
        assert_int_equal(comm_mem_deregister(array + i), GYRE_OK);
    assert_int_equal(comm_mem_deregister(array + 4), GYRE_ERR_INVALID);
}

/* Memory of malloc, registered: its content stays, also around it, and it is a window meanwhile. */
static void test_register(void **state)
{
    const size_t bytes = 3 * MIB + 100;
    unsigned char *ptr = malloc(bytes);
    uint64_t id;
    size_t offset;

    (void)state;
    assert_non_null(ptr);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < bytes; i++)
            ptr[i] = (unsigned char)(i * 7 + (size_t)round);
        assert_false(comm_mem_find(ptr, bytes, &id, &offset));
        assert_int_equal(comm_mem_register(ptr, bytes), GYRE_OK);
        assert_true(comm_mem_find(ptr, bytes, &id, &offset));
        assert_int_equal(offset, (uintptr_t)ptr % 4096);
        assert_int_equal(comm_mem_register(ptr + bytes - 1, 1), GYRE_ERR_INVALID);
        assert_int_equal(comm_mem_free(ptr), GYRE_ERR_INVALID);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(ptr[i], (unsigned char)(i * 7 + (size_t)round));
            ptr[i] = (unsigned char)(ptr[i] + 1);
        }
        assert_int_equal(comm_mem_deregister(ptr), GYRE_OK);
        assert_false(comm_mem_find(ptr, 1, &id, &offset));
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(ptr[i], (unsigned char)(i * 7 + (size_t)round + 1));
    }
    free(ptr);
}

/* Buffers that share a page: both do without it, and come back whole in any order. */
static void test_register_neighbours(void **state)
{
    unsigned char *base = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const size_t half = MIB / 2 + 100;
    uint64_t id, other;
    size_t offset;

    (void)state;
    assert_true(base != MAP_FAILED);
    for (size_t i = 0; i < MIB; i++)
        base[i] = (unsigned char)(i % 251);
    assert_int_equal(comm_mem_register(base, half), GYRE_OK);
    assert_int_equal(comm_mem_register(base + half, MIB - half), GYRE_OK);
    assert_true(comm_mem_find(base, half, &id, &offset));
    assert_true(comm_mem_find(base + half, MIB - half, &other, &offset) && other != id);
    assert_int_equal(offset, (uintptr_t)(base + half) % 4096);
    assert_false(comm_mem_find(base + half - 8, 16, &id, &offset));
    assert_int_equal(comm_mem_deregister(base), GYRE_OK);
    assert_int_equal(comm_mem_deregister(base + half), GYRE_OK);
    for (size_t i = 0; i < MIB; i++)
        assert_int_equal(base[i], (unsigned char)(i % 251));
    munmap(base, MIB);
}

/* Others' words in the pages at both ends, counted up without a pause. */
typedef struct {
    _Atomic uint64_t *word[2];
    uint64_t counted;
    _Atomic int stop;
} neighbour_t;

static void *count_up(void *arg)
{
    neighbour_t *n = arg;

    for (; !n->stop; n->counted++)
        for (int i = 0; i < 2; i++)
            if (atomic_fetch_add_explicit(n->word[i], 1, memory_order_relaxed) != n->counted)
                return n; /* one of its stores was lost */
    return NULL;
}

/* What another thread writes next to the range is never lost. */
static void test_register_beside_a_writer(void **state)
{
    const size_t all = MIB / 4;
    unsigned char *base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    neighbour_t neighbour = {.word = {(_Atomic uint64_t *)(void *)base,
                                      (_Atomic uint64_t *)(void *)(base + all - sizeof(uint64_t))}};
    const size_t bytes = all - 2 * sizeof(uint64_t);
    unsigned char *range = base + sizeof(uint64_t);
    pthread_t thread;
    void *lost = NULL;

    (void)state;
    assert_true(base != MAP_FAILED);
    assert_int_equal(pthread_create(&thread, NULL, count_up, &neighbour), 0);
    for (unsigned round = 0; round < 50; round++) {
        ranks_fill(range, bytes, round);
        assert_int_equal(comm_mem_register(range, bytes), GYRE_OK);
        assert_int_equal(ranks_wrong(range, bytes, round), -1);
        assert_int_equal(comm_mem_deregister(range), GYRE_OK);
        assert_int_equal(ranks_wrong(range, bytes, round), -1);
    }
    neighbour.stop = 1;
    assert_int_equal(pthread_join(thread, &lost), 0);
    assert_null(lost);
    munmap(base, all);
}

static void test_register_refused(void **state)
{
    int fd = memfd_create("some file", 0);
    unsigned char *at;
    uint64_t id;
    size_t offset;

    (void)state;
    assert_int_equal(ftruncate(fd, MIB), 0);
    const struct {
        int rights, flags, fd, advice;
    } kinds[] = {{PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0},
                 {PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0},
                 {PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0},
                 {PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0},
                 {PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, MADV_DONTFORK}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        at = mmap(NULL, MIB, kinds[i].rights, kinds[i].flags, kinds[i].fd, 0);
        assert_true(at != MAP_FAILED);
        if (kinds[i].advice)
            assert_int_equal(madvise(at, MIB, kinds[i].advice), 0);
        assert_int_equal(comm_mem_register(at, MIB), GYRE_ERR_UNSUPPORTED);
        assert_int_equal(comm_mem_deregister(at), GYRE_ERR_INVALID);
        munmap(at, MIB);
    }
    assert_int_equal(comm_mem_register(at, MIB), GYRE_ERR_UNSUPPORTED); /* nothing is mapped there */
    close(fd);
    /* Freed while registered: logged, and the new memory at that address is left alone. */
    at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(comm_mem_register(at, MIB), GYRE_OK);
    assert_true(mmap(at, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    at[5] = 7;
    assert_int_equal(comm_mem_deregister(at), GYRE_ERR_INVALID);
    assert_int_equal(at[5], 7);
    assert_false(comm_mem_find(at, 1, &id, &offset));
    munmap(at, MIB);
}

static void test_find(void **state)
{
    unsigned char *big, *small;
    uint64_t id, id2;
    size_t offset;
    int local;

    (void)state;
    assert_int_equal(comm_mem_alloc(2 * MIB, (void **)&big), GYRE_OK);
    assert_int_equal(comm_mem_alloc(100, (void **)&small), GYRE_OK);
    assert_true(comm_mem_find(big, 2 * MIB, &id, &offset) && offset == 0);
    assert_true(comm_mem_find(big + 5, 2 * MIB - 5, &id, &offset) && offset == 5);
    assert_false(comm_mem_find(big + 5, 2 * MIB - 4, &id, &offset));
    assert_false(comm_mem_find(big - 1, 2, &id, &offset));
    assert_false(comm_mem_find(big, SIZE_MAX, &id, &offset));
    assert_false(comm_mem_find(&local, sizeof local, &id, &offset));
    assert_true(comm_mem_find(small, 100, &id2, &offset) && id2 != id);
    assert_int_equal(comm_mem_free(big), GYRE_OK);
    assert_false(comm_mem_find(big, 1, &id, &offset));
    assert_int_equal(comm_mem_alloc(2 * MIB, (void **)&big), GYRE_OK);
    assert_true(comm_mem_find(big, 1, &id2, &offset) && id2 != id); /* numbers are never used again */
    assert_int_equal(comm_mem_free(big), GYRE_OK);
    assert_int_equal(comm_mem_free(small), GYRE_OK);
}

/* Lookups while windows come and go: always the right answer for the one that stays. */
static _Atomic int stop;
static void *finder(void *arg)
{
    uint64_t id, first = 0;
    size_t offset;
    long wrong = 0;

    while (!atomic_load(&stop)) {
        if (!comm_mem_find((unsigned char *)arg + 7, 100, &id, &offset) || offset != 7)
            wrong++;
        else if (first == 0)
            first = id;
        else
            wrong += id != first;
    }
    return (void *)wrong;
}

static void test_find_races(void **state)
{
    void *kept, *wrong, *others[100];
    pthread_t thread;

    (void)state;
    assert_int_equal(comm_mem_alloc(2 * MIB, &kept), GYRE_OK);
    atomic_store(&stop, 0);
    pthread_create(&thread, NULL, finder, kept);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            assert_int_equal(comm_mem_alloc(MIB, &others[i]), GYRE_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(comm_mem_free(others[i]), GYRE_OK);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, &wrong);
    assert_ptr_equal(wrong, NULL);
    assert_int_equal(comm_mem_free(kept), GYRE_OK);
}

/* Few descriptors: small windows share them, and large ones say which limit ended them. */
/* After a fork both have what was allocated before, and neither gets memory that the other gets. */
static void test_fork(void **state)
{
    unsigned char *before, *mine;
    int ended;

    (void)state;
    assert_int_equal(comm_mem_alloc(50000, (void **)&before), GYRE_OK);
    assert_int_equal(comm_mem_free(before), GYRE_OK); /* an empty arena stays */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (comm_mem_alloc(50000, (void **)&mine) != GYRE_OK)
            _exit(1);
        memset(mine, 0xaa, 50000);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(comm_mem_alloc(50000, (void **)&mine), GYRE_OK);
    for (size_t i = 0; i < 50000; i++)
        assert_int_equal(mine[i], 0);
    assert_int_equal(comm_mem_free(mine), GYRE_OK);
}

static void test_few_descriptors(void **state)
{
    struct rlimit before, few = {64, 64};
    void *small[500], *large[64];
    gyre_status_t status = GYRE_OK;
    int count = 0;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(comm_mem_alloc(10000, &small[i]), GYRE_OK);
    while (count < 64 && (status = comm_mem_alloc(MIB, &large[count])) == GYRE_OK)
        count++;
    assert_int_equal(status, GYRE_ERR_NO_MEMORY);
    assert_non_null(strstr(gyre_last_error(), "64"));
    assert_non_null(strstr(gyre_last_error(), "ulimit -n"));
    while (count > 0)
        assert_int_equal(comm_mem_free(large[--count]), GYRE_OK);
    for (int i = 0; i < 500; i++)
        assert_int_equal(comm_mem_free(small[i]), GYRE_OK);
    setrlimit(RLIMIT_NOFILE, &before);
}

/* ---- peers --------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned char address[32];
    uint64_t id, id2;
} told_t;

static long mapped_kib(const char *name)
{
    char line[400], want[100];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps", "r");

    snprintf(want, sizeof want, "memfd:%s", name);
    for (int in = 0; file && fgets(line, sizeof line, file);) {
        long value;
        if (strchr(line, '-') && strstr(line, want))
            in = 1;
        if (in && sscanf(line, "Rss: %ld kB", &value) == 1) {
            kib += value;
            in = 0;
        }
    }
    if (file)
        fclose(file);
    return kib;
}

static int count_maps(void)
{
    char line[400];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");

    while (file && fgets(line, sizeof line, file))
        count += strstr(line, "memfd:gyre-window") != NULL;
    if (file)
        fclose(file);
    return count;
}

static const void *map_now(ranks_t *self, const unsigned char owner[32], uint64_t id, size_t offset,
                           size_t bytes)
{
    comm_watch_fetch_t fetch = {0};
    const void *at = NULL;
    comm_mapping_t *held = NULL;
    gyre_status_t status =
        comm_mem_map(self->world.watch, owner, id, offset, bytes, &fetch, base_deadline(5), &at, &held);

    comm_mapping_release(held);
    return status == GYRE_OK && fetch.step == 0 ? at : NULL;
}

/* Rank 0 owns windows, rank 1 maps them, and drops the mapping of one that was freed when it maps the
 * next. */
static int share(ranks_t *self)
{
    told_t mine = {0}, all[2];
    unsigned char *a = NULL, *b = NULL;
    const unsigned char *view;
    size_t offset;
    int maps;

    if (self->rank == 0) {
        RANKS_CHECK(self, comm_mem_alloc(4 * MIB, (void **)&a) == GYRE_OK);
        ranks_fill(a, 4 * MIB, 1);
        RANKS_CHECK(self, comm_mem_find(a + 1000, 3 * MIB, &mine.id, &offset));
        comm_watch_address(self->world.watch, mine.address);
    }
    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    maps = count_maps();
    if (self->rank == 1) {
        view = map_now(self, all[0].address, all[0].id, 1000, 3 * MIB);
        RANKS_CHECK(self, view && count_maps() == maps + 1);
        for (size_t i = 0; i < 3 * MIB; i++)
            RANKS_CHECK(self, view[i] == ranks_byte(i + 1000, 1));
        RANKS_CHECK(self, map_now(self, all[0].address, all[0].id, 1000, 3 * MIB) == view);
        /* Beyond its end, and one that does not exist. */
        RANKS_CHECK(self, !map_now(self, all[0].address, all[0].id, 1000, 4 * MIB));
        RANKS_CHECK(self, !map_now(self, all[0].address, 99999, 0, 1));
    }
    ranks_barrier(self);
    if (self->rank == 0) {
        RANKS_CHECK(self, comm_mem_free(a) == GYRE_OK);
        RANKS_CHECK(self, comm_mem_alloc(2 * MIB, (void **)&b) == GYRE_OK);
        RANKS_CHECK(self, comm_mem_find(b, 1, &mine.id2, &offset));
    }
    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    if (self->rank == 1) {
        RANKS_CHECK(self, mapped_kib("gyre-window") == 0 ||
                              mapped_kib("gyre-window") <= 8); /* punched: only control pages */
        RANKS_CHECK(self, map_now(self, all[0].address, all[0].id2, 0, 2 * MIB));
        RANKS_CHECK(self, count_maps() == maps + 1); /* the old one is gone */
        RANKS_CHECK(self, !map_now(self, all[0].address, all[0].id, 0, 1));
    }
    ranks_barrier(self);
    return b ? comm_mem_free(b) != GYRE_OK : 0;
}

static void test_share(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, share, NULL), 0);
}

/* A window made before the job was joined travels like any other; descriptors and locked memory are short. */
static int poor(ranks_t *self)
{
    struct rlimit files = {64, 64}, locked = {65536, 65536};
    unsigned char *windows[40];

    RANKS_CHECK(self, setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_MEMLOCK, &locked) == 0);
    for (uint32_t k = 0; k < 40; k++) {
        comm_tag_t tag = {k, 1};
        RANKS_CHECK(self, comm_mem_alloc(k < 8 ? 2 * MIB : 50000, (void **)&windows[k]) == GYRE_OK);
        if (self->rank == 0) {
            ranks_fill(windows[k], 50000, k);
            RANKS_CHECK(self, ranks_send(self, 1, 0, windows[k], 50000, tag) == GYRE_OK);
        } else {
            RANKS_CHECK(self, ranks_recv(self, 0, 0, windows[k], 50000, tag) == GYRE_OK);
            RANKS_CHECK(self, ranks_wrong(windows[k], 50000, k) == -1);
        }
    }
    for (int k = 0; k < 40; k++)
        RANKS_CHECK(self, comm_mem_free(windows[k]) == GYRE_OK);
    return 0;
}

/* A window takes one descriptor, also while it is offered to the job: so docs/transports.md promises. */
static int frugal(ranks_t *self)
{
    enum { WINDOWS = 20 };
    unsigned char *windows[WINDOWS];
    const int before = descriptors_of("gyre-window");

    for (uint32_t k = 0; k < WINDOWS; k++) {
        comm_tag_t tag = {k, 1};
        RANKS_CHECK(self, comm_mem_alloc(MIB, (void **)&windows[k]) == GYRE_OK);
        if (self->rank == 0) {
            ranks_fill(windows[k], MIB, k);
            RANKS_CHECK(self, ranks_send(self, 1, 0, windows[k], MIB, tag) == GYRE_OK);
        } else {
            RANKS_CHECK(self, ranks_recv(self, 0, 0, windows[k], MIB, tag) == GYRE_OK);
            RANKS_CHECK(self, ranks_wrong(windows[k], MIB, k) == -1);
        }
    }
    /* a watcher may just be handing one over */
    RANKS_CHECK(self, descriptors_of("gyre-window") - before <= WINDOWS + 1);
    for (int k = 0; k < WINDOWS; k++)
        RANKS_CHECK(self, comm_mem_free(windows[k]) == GYRE_OK);
    return 0;
}

static void test_frugal(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, frugal, NULL), 0);
}

static void test_poor(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, poor, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_register),
        cmocka_unit_test(test_register_neighbours),
        cmocka_unit_test(test_register_beside_a_writer),
        cmocka_unit_test(test_register_refused),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_find_races),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_frugal),
        cmocka_unit_test(test_poor),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
