/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_memory_file.c: memory that processes share, with memfd_create and where it is forbidden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memfd), cmocka_unit_test(without_memfd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
