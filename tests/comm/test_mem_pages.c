/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_mem_pages.c: windows where pages are larger than 4 KiB, as on some ARM machines: this
 * program's sysconf says 64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "comm/memory/memory.h"
#include "comm/memory/window.h"
#include "comm/peer_memory.h"

enum { LARGE = 64 << 10, BYTES = 300000 };

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
long sysconf(int name) /* instead of libc's */
{
    static long (*real)(int);

    if (name == _SC_PAGESIZE)
        return LARGE;
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "sysconf");
        memcpy(&real, &found, sizeof real);
    }
    return real ? real(name) : -1;
}
#endif

static int seen_by_peers(ranks_t *self, unsigned char *buf)
{
    const int peer = (self->rank + 1) % self->n;
    comm_place_t mine, all[RANKS_MAX];
    gyre_status_t status = GYRE_IN_PROGRESS;
    void *at = NULL;

    ranks_fill(buf, BYTES, (unsigned)self->rank);
    mine = comm_place_of(buf, BYTES);
    RANKS_CHECK(self, mine.window != 0);
    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    while (status == GYRE_IN_PROGRESS)
        status = comm_peer_memory_map(comm_peer_memory(self->group, peer), &all[peer], BYTES, &at);
    RANKS_CHECK(self, status == GYRE_OK && ranks_wrong(at, BYTES, (unsigned)peer) == -1);
    ranks_barrier(self);
    ranks_fill(at, BYTES, (unsigned)self->rank + 7);
    ranks_barrier(self);
    comm_mem_fetch(buf, BYTES);
    RANKS_CHECK(self, ranks_wrong(buf, BYTES, (unsigned)peer + 7) == -1);
    ranks_fill(buf, BYTES, (unsigned)self->rank);
    ranks_barrier(self);
    return 0;
}

static int windows(ranks_t *self)
{
    unsigned char *small, *large, *mapped;
    void *ptr = NULL;

    RANKS_CHECK(self, comm_mem_alloc(BYTES, &ptr) == GYRE_OK);
    small = ptr;
    RANKS_CHECK(self, comm_mem_alloc(5000000, &ptr) == GYRE_OK);
    large = ptr;
    RANKS_CHECK(self, seen_by_peers(self, small) == 0 && seen_by_peers(self, large) == 0);
    RANKS_CHECK(self, comm_mem_free(small) == GYRE_OK && comm_mem_free(large) == GYRE_OK);

    mapped = mmap(NULL, 16 * (size_t)LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANKS_CHECK(self, mapped != MAP_FAILED);
    large = mapped + LARGE - (uintptr_t)mapped % LARGE; /* a page of this machine */
    large[0] = large[7 * (size_t)LARGE - 1] = 77;
    RANKS_CHECK(self, comm_mem_register(large + 5000, BYTES) == GYRE_OK); /* pages 1 to 3 */
    uint64_t id;
    size_t offset;
    RANKS_CHECK(self, comm_mem_find(large + 5000, BYTES, &id, &offset) && offset == 5000);
    RANKS_CHECK(self, !comm_mem_find(large + 4999, 1, &id, &offset));
    RANKS_CHECK(self, !comm_mem_find(large + 5000 + BYTES, 1, &id, &offset));
    RANKS_CHECK(self, seen_by_peers(self, large + 5000) == 0);
    RANKS_CHECK(self, comm_mem_deregister(large + 5000) == GYRE_OK);
    RANKS_CHECK(self, ranks_wrong(large + 5000, BYTES, (unsigned)self->rank) == -1);
    RANKS_CHECK(self, large[0] == 77 && large[7 * (size_t)LARGE - 1] == 77);
    munmap(mapped, 16 * (size_t)LARGE);
    return 0;
}

static void test_windows(void **state)
{
    (void)state;
    if (mem_page() != LARGE) { /* sanitizers call sysconf themselves, before main */
        fprintf(stderr, "skipped: not with a sanitizer\n");
        skip();
    }
    assert_int_equal(ranks_fork(2, 30, windows, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
