/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_memory_file.c: memory that processes share, with memfd_create and where it is forbidden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory_file.h"
#include "tests/support/forbid.h"

enum { BYTES = 3 << 16, NO_FILTER = 99 };

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
            exit(1);                                                    \
        }                                                               \
    } while (0)

/* In a process of its own. sealed: it is a memfd. */
static void use(int sealed)
{
    const int fd = base_memory_file("gyre-test", BYTES, 16 * BYTES);
    struct stat info;
    CHECK(fd > 2);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(fstat(fd, &info) == 0 && info.st_nlink == 0);
    CHECK(info.st_size == (sealed ? 16 * BYTES : BYTES));
    CHECK(sealed || info.st_blocks * 512 >= BYTES); /* a full file system is no SIGBUS */
    CHECK(!sealed || ftruncate(fd, 0) != 0);
    unsigned char *here = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), zero[64] = {0};
    CHECK(here != MAP_FAILED && memcmp(here + BYTES - 64, zero, 64) == 0);
    memset(here, 7, BYTES);
    const pid_t child = fork();
    if (child == 0) {
        here[BYTES - 1] = 8;
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child && here[BYTES - 1] == 8);
    const int given = base_memory_file_give_back(fd, 0, 1 << 16) == 0;
    CHECK(given == sealed && here[0] == (sealed ? 0 : 7) && here[1 << 16] == 7);
    exit(0);
}

static void run(int sealed)
{
    char *const names[] = {"memfd_create"};
    int status;
    const pid_t child = fork();
    if (child == 0) {
        if (!sealed && forbid(names, 1) != 0)
            exit(NO_FILTER);
        use(sealed);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTER)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void memfd(void **state)
{
    (void)state;
    run(1);
}

static void without_memfd(void **state)
{
    (void)state;
    run(0);
}

/* KiB that the kernel says of the mapping that begins at `base`, such as "Rss". */
static long mapped(const void *base, const char *what)
{
    char line[512];
    int here = 0;
    long kib = -1;
    FILE *maps = fopen("/proc/self/smaps", "re");
    assert_non_null(maps);
    while (kib < 0 && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from == (uintptr_t)base;
        else if (here && strncmp(line, what, strlen(what)) == 0 && line[strlen(what)] == ':')
            kib = atol(line + strlen(what) + 1);
    }
    fclose(maps);
    return kib;
}

/* Mapped twice, as by a peer: the second mapping has huge pages, too, once it is used. */
static void huge_pages(void **state)
{
    (void)state;
    enum { HUGE_PAGE = 2 << 20, LENGTH = 3 * HUGE_PAGE + 4096 };
    const int fd = base_memory_file("gyre-test", LENGTH, 0);
    assert_true(fd > 2);
    unsigned char *own = base_memory_file_map(fd, LENGTH), *peers = base_memory_file_map(fd, LENGTH);
    assert_true(own != MAP_FAILED && peers != MAP_FAILED);
    assert_int_equal((uintptr_t)own % HUGE_PAGE, 0);
    assert_int_equal((uintptr_t)peers % HUGE_PAGE, 0);
    assert_int_equal(mapped(own, "Size"), LENGTH / 1024);
    const uint64_t got = base_memory_file_fill(own, LENGTH - 4096);
    print_message("           %llu bytes in huge pages\n", (unsigned long long)got);
    assert_true(got % HUGE_PAGE == 0 && got < LENGTH);
    if (got > 0) {
        assert_in_range(mapped(own, "Rss"), got / 1024, got / 1024 + 8);
        assert_int_equal(mapped(own, "ShmemPmdMapped"), got / 1024);
    }
    for (size_t i = 0; i < LENGTH; i++) {
        assert_true(own[i] == 0);
        peers[i] = (unsigned char)(i % 251);
    }
    for (size_t i = 0; i < LENGTH; i++)
        assert_true(own[i] == i % 251);
    if (got > 0)
        assert_int_equal(mapped(peers, "ShmemPmdMapped"), got / 1024);
    assert_int_equal(base_memory_file_fill(own + 4096, HUGE_PAGE), 0); /* not where a huge page begins */
    assert_int_equal(munmap(own, LENGTH), 0);
    assert_int_equal(munmap(peers, LENGTH), 0);
    assert_int_equal(close(fd), 0);
}

/* No descriptor, and no address space for the edges. */
static void not_mapped(void **state)
{
    (void)state;
    assert_true(base_memory_file_map(-1, 4096) == MAP_FAILED);
    errno = 0;
    assert_true(base_memory_file_map(-1, 8 << 20) == MAP_FAILED && errno == EBADF);
    const int fd = base_memory_file("gyre-test", 4096, 0);
    assert_true(base_memory_file_map(fd, UINT64_MAX / 2) == MAP_FAILED);
    unsigned char *small = base_memory_file_map(fd, 4096);
    assert_true(small != MAP_FAILED);
    assert_int_equal(base_memory_file_fill(small, 4096), 0);
    assert_int_equal(munmap(small, 4096), 0);
    assert_int_equal(close(fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memfd), cmocka_unit_test(without_memfd),
                                       cmocka_unit_test(huge_pages), cmocka_unit_test(not_mapped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
