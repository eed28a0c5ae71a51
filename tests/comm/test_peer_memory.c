/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_peer_memory.c: working in peers' memory: mapped or through the kernel, and not after they
 * have closed it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings/settings.h"
#include "comm/memory/memory.h"
#include "comm/peer_memory.h"

enum { BYTES = 300000 };

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

/* Every rank writes its part of every other's buffer; the buffers of odd ranks are of malloc. */
static int everywhere(ranks_t *self)
{
    const size_t part = BYTES / (size_t)self->n;
    unsigned char *buf = NULL, *bounce = malloc(part);
    comm_place_t mine, all[RANKS_MAX];
    int mapped = 0;

    if (self->rank % 2 == 0)
        RANKS_CHECK(self, comm_mem_alloc(BYTES, (void **)&buf) == GYRE_OK);
    else
        buf = malloc(BYTES);
    RANKS_CHECK(self, buf && bounce && comm_peer_memory_all(self->group));
    memset(buf, 0, BYTES);
    mine = comm_place_of(buf, BYTES);
    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    RANKS_CHECK(self, comm_peer_memory_enter(self->group));
    ranks_fill(bounce, part, (unsigned)self->rank);
    for (int r = 0; r < self->n; r++) {
        void *at = r == self->rank ? buf : NULL;
        gyre_status_t status = GYRE_IN_PROGRESS;
        while (r != self->rank && status == GYRE_IN_PROGRESS)
            status = comm_peer_memory_map(comm_peer_memory(self->group, r), &all[r], BYTES, &at);
        mapped += r != self->rank && status == GYRE_OK;
        if (at)
            memcpy((unsigned char *)at + (size_t)self->rank * part, bounce, part);
        else
            RANKS_CHECK(self, comm_peer_memory_write(comm_peer_memory(self->group, r), &all[r],
                                                     (size_t)self->rank * part, bounce, part) == GYRE_OK);
    }
    comm_peer_memory_leave(self->group);
    ranks_barrier(self);
    int windows = strcmp(base_setting_string(SET_SHM_COPY), "cma") != 0;
    RANKS_CHECK(self, mapped == (windows ? (self->n + 1) / 2 - (self->rank % 2 == 0) : 0));
    for (int r = 0; r < self->n; r++)
        RANKS_CHECK(self, ranks_wrong(buf + (size_t)r * part, part, (unsigned)r) == -1);
    RANKS_CHECK(self, comm_peer_memory_read(comm_peer_memory(self->group, (self->rank + 1) % self->n),
                                            &all[(self->rank + 1) % self->n], (size_t)self->rank * part,
                                            bounce, part) == GYRE_OK);
    RANKS_CHECK(self, ranks_wrong(bounce, part, (unsigned)self->rank) == -1);
    ranks_barrier(self);
    if (self->rank % 2 == 0)
        RANKS_CHECK(self, comm_mem_free(buf) == GYRE_OK);
    else
        free(buf);
    free(bounce);
    return 0;
}

static void test_everywhere(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, everywhere, NULL), 0);
    assert_int_equal(ranks_fork(5, 30, everywhere, NULL), 0);
    set(SET_SHM_COPY, "cma");
    assert_int_equal(ranks_fork(3, 30, everywhere, NULL), 0);
    set(SET_SHM_COPY, "auto");
}

typedef struct {
    comm_place_t place[2];
    pid_t pid;
} offer_t;

/* Two lanes want different windows of a peer whose watcher is slow: each gets its own. */
static int two_wanted(ranks_t *self)
{
    offer_t mine = {.pid = getpid()}, all[RANKS_MAX];
    gyre_status_t got[2] = {GYRE_IN_PROGRESS, GYRE_IN_PROGRESS};
    unsigned char *buf[2];
    void *at[2] = {NULL, NULL};

    for (int k = 0; k < 2; k++) {
        RANKS_CHECK(self, comm_mem_alloc((size_t)4 << 20, (void **)&buf[k]) == GYRE_OK);
        ranks_fill(buf[k], BYTES, (unsigned)k);
        mine.place[k] = comm_place_of(buf[k], BYTES);
    }
    RANKS_CHECK(self, mine.place[0].window != mine.place[1].window);
    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    if (self->rank == 0) {
        comm_peer_memory_t *memory = comm_peer_memory(self->group, 1);
        RANKS_CHECK(self, memory && comm_peer_memory(self->group, 1) == memory);
        RANKS_CHECK(self, kill(all[1].pid, SIGSTOP) == 0);
        usleep(50000);
        for (int k = 0; k < 2; k++)
            got[k] = comm_peer_memory_map(memory, &all[1].place[k], BYTES, &at[k]);
        RANKS_CHECK(self, kill(all[1].pid, SIGCONT) == 0);
        RANKS_CHECK(self, got[0] == GYRE_IN_PROGRESS && got[1] == GYRE_IN_PROGRESS);
        for (int turn = 1; got[0] == GYRE_IN_PROGRESS || got[1] == GYRE_IN_PROGRESS; turn++)
            got[turn % 2] = comm_peer_memory_map(memory, &all[1].place[turn % 2], BYTES, &at[turn % 2]);
        for (int k = 0; k < 2; k++)
            RANKS_CHECK(self, got[k] == GYRE_OK && ranks_wrong(at[k], BYTES, (unsigned)k) == -1);
    }
    ranks_barrier(self);
    RANKS_CHECK(self, comm_mem_free(buf[0]) == GYRE_OK && comm_mem_free(buf[1]) == GYRE_OK);
    return 0;
}

static void test_two_wanted(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, two_wanted, NULL), 0);
}

/* One rank's setting decides for all of them, alike. */
static void no_windows_at_one(int rank)
{
    if (rank == 1)
        set(SET_SHM_COPY, "copy");
}

static int out_of_reach(ranks_t *self)
{
    RANKS_CHECK(self, !comm_peer_memory_all(self->group));
    return 0;
}

static void test_agreed(void **state)
{
    (void)state;
    ranks_before_join = no_windows_at_one;
    assert_int_equal(ranks_fork(3, 30, out_of_reach, NULL), 0);
    ranks_before_join = NULL;
}

/* Rank 0 closes while rank 1 is inside: it waits for that, and no rank enters any more. */
static int closing(ranks_t *self)
{
    base_time_t start;

    if (self->rank == 1)
        RANKS_CHECK(self, comm_peer_memory_enter(self->group));
    ranks_barrier(self);
    if (self->rank == 1) {
        usleep(100000);
        comm_peer_memory_leave(self->group);
    }
    if (self->rank == 0) {
        start = base_now();
        comm_peer_memory_close(self->group);
        RANKS_CHECK(self, base_now() - start > 50000000 && base_now() - start < 900000000);
    }
    ranks_barrier(self);
    RANKS_CHECK(self, !comm_peer_memory_enter(self->group));
    return 0;
}

/* The one inside dies: no rank waits for it longer than it takes to learn of that. */
static int death_inside(ranks_t *self)
{
    base_time_t start;

    if (self->rank == 1)
        RANKS_CHECK(self, comm_peer_memory_enter(self->group));
    ranks_barrier(self);
    if (self->rank == 1)
        raise(SIGKILL);
    start = base_now();
    comm_peer_memory_close(self->group);
    RANKS_CHECK(self, base_now() - start < 900000000);
    comm_group_destroy(self->group);
    fflush(NULL);
    _exit(0);
}

/* 1: in one of some attempts `failing` ranks fail. What is timed may be late once on a busy machine. */
static int once(int ranks, int (*body)(ranks_t *self), int failing)
{
    for (int attempt = 0; attempt < 5; attempt++)
        if (ranks_fork(ranks, 10, body, NULL) == failing)
            return 1;
    return 0;
}

static void test_close(void **state)
{
    (void)state;
    assert_true(once(3, closing, 0));
    assert_true(once(2, death_inside, 1)); /* the killed one */
}

/* memfd_secret where the kernel has it, else pages without rights: of either the kernel says EFAULT. */
static unsigned char *unreachable_memory(size_t bytes)
{
    int fd = -1;
    void *at = MAP_FAILED;
#ifdef SYS_memfd_secret
    fd = (int)syscall(SYS_memfd_secret, 0);
#endif
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED) {
        fprintf(stderr, "no memfd_secret here: pages without rights instead\n");
        at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    return at == MAP_FAILED ? NULL : at;
}

static int refused(ranks_t *self, gyre_status_t got, base_time_t start, const char *buffer)
{
    RANKS_CHECK(self, got == GYRE_ERR_TRANSPORT && base_now() - start < 5000000000);
    RANKS_CHECK(self, strstr(gyre_last_error(), buffer) && strstr(gyre_last_error(), "it was freed during") &&
                          strstr(gyre_last_error(), "GYRE_SHM_COPY=copy"));
    return 0;
}

/* A living peer's buffer that the kernel lets no other process reach is reported at once, and harms nothing
 * else. */
static int secret_buffer(ranks_t *self)
{
    unsigned char word[64] = {0}, *secret = unreachable_memory(BYTES);
    comm_place_t mine[2], all[RANKS_MAX][2];

    RANKS_CHECK(self, secret);
    mine[0] = comm_place_of(secret, BYTES);
    mine[1] = comm_place_of(word, sizeof word);
    RANKS_CHECK(self, ranks_all_gather(self, mine, sizeof mine, all) == GYRE_OK);
    if (self->rank == 0) {
        base_time_t start = base_now();
        gyre_status_t status =
            comm_peer_memory_write(comm_peer_memory(self->group, 1), &all[1][0], 0, word, sizeof word);
        RANKS_CHECK(self, refused(self, status, start, "output buffer of rank 1") == 0);
        start = base_now();
        status = comm_peer_memory_read(comm_peer_memory(self->group, 1), &all[1][0], 64, word, sizeof word);
        RANKS_CHECK(self, refused(self, status, start, "input buffer of rank 1") == 0);
        RANKS_CHECK(self, comm_peer_memory_read(comm_peer_memory(self->group, 1), &all[1][1], 0, word,
                                                sizeof word) == GYRE_OK);
    }
    ranks_barrier(self);
    munmap(secret, BYTES);
    return 0;
}

static void test_secret(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, secret_buffer, NULL), 0);
}

/* A dead peer is another case: there is a grace, in which its death becomes known, and which begins anew
 * after a success. */
static int death_reached(ranks_t *self)
{
    unsigned char word[64] = {0};
    comm_place_t mine = comm_place_of(word, sizeof word), all[RANKS_MAX];
    gyre_status_t status = GYRE_IN_PROGRESS;

    RANKS_CHECK(self, ranks_all_gather(self, &mine, sizeof mine, all) == GYRE_OK);
    ranks_barrier(self);
    if (self->rank == 1)
        raise(SIGKILL);
    for (base_time_t start = base_now();
         base_now() - start < 5000000000 && (status == GYRE_OK || status == GYRE_IN_PROGRESS);)
        status = comm_peer_memory_read(comm_peer_memory(self->group, 1), &all[1], 0, word, sizeof word);
    RANKS_CHECK(self, status == GYRE_ERR_PEER_DEAD);
    comm_group_destroy(self->group);
    fflush(NULL);
    _exit(0);
}

static void test_death(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, death_reached, NULL), 1); /* the killed one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_everywhere), cmocka_unit_test(test_two_wanted),
                                       cmocka_unit_test(test_agreed),     cmocka_unit_test(test_close),
                                       cmocka_unit_test(test_secret),     cmocka_unit_test(test_death)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
