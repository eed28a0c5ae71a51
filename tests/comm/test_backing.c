/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_backing.c: groups that are made later lie in the file of the first one
 * (comm/memory/backing.h): no descriptor and no fetch for each, all memory given back, and without it
 * the same groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memory_file.h"
#include "comm/link.h"
#include "tests/support/descriptors.h"
#include "tests/support/ranks.h"

enum { BYTES = 5000, GROUPS = 20 };

static int long_file(int places)
{
    const int fd = base_memory_file("test", BYTES, comm_backing_length(BYTES, places));
    assert_true(fd >= 0);
    return fd;
}

static blkcnt_t blocks(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 ? file.st_blocks : -1;
}

/* Each rank gives out places of its own, apart from the first segment's and from one another, until its part
 * is used up. */
static void test_places(void **state)
{
    (void)state;
    const int fd = long_file(3);
    const unsigned char reads[3] = {0, 1, 0};
    uint64_t last[3] = {0};
    assert_null(comm_backing_open(fd, BYTES, 7, 4, 0, reads)); /* it is not long enough for 4 */
    for (int place = 0; place < 3; place++) {
        comm_backing_t *backing = comm_backing_open(fd, BYTES, 7, 3, place, reads);
        assert_non_null(backing);
        assert_true(comm_backing_name(backing) == 7 && comm_backing_place(backing) == place);
        for (int other = -1; other <= 3; other++)
            assert_int_equal(comm_backing_reads(backing, other), other == 1);
        const uint64_t first = comm_backing_take(backing, 1), second = comm_backing_take(backing, BYTES);
        assert_true(first >= BYTES && first % 4096 == 0 && second % 4096 == 0 && second > first);
        assert_true(place == 0 || first > last[place - 1]);
        size_t half = (size_t)1 << 43;
        last[place] = comm_backing_take(backing, half);
        assert_true(last[place] > second);
        assert_true(comm_backing_take(backing, half) == 0); /* what was taken before is missing */
        assert_true(comm_backing_take(backing, BYTES) > last[place]);
        comm_backing_close(backing);
    }
    close(fd);
    assert_true(comm_backing_name(NULL) == 0);
    comm_backing_close(NULL);
}

static void test_given_back(void **state)
{
    (void)state;
    const int fd = long_file(1);
    const unsigned char reads[1] = {0};
    comm_backing_t *backing = comm_backing_open(fd, BYTES, 7, 1, 0, reads);
    const uint64_t at = comm_backing_take(backing, 1 << 20);
    char text[] = "not zero", now[sizeof text] = "";
    assert_int_equal(pwrite(fd, text, sizeof text, (off_t)at), sizeof text);
    assert_true(blocks(fd) > 0);
    comm_backing_give_back(backing, at, 1 << 20);
    assert_int_equal(blocks(fd), 0);
    assert_int_equal(pread(fd, now, sizeof now, (off_t)at), sizeof now);
    assert_memory_equal(now, (char[sizeof text]){0}, sizeof now);
    comm_backing_close(backing);
    close(fd);
}

/* A file longer than RLIMIT_FSIZE would end the process. */
static void test_limit(void **state)
{
    (void)state;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 64 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(comm_backing_length(BYTES, 1) == 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(comm_backing_length(BYTES, 1) > BYTES);
}

/* ---- groups -------------------------------------------------------------------------------------------- */

/* One more group of all ranks; they have talked in it. */
static int more(ranks_t *self, int number, comm_group_t **group)
{
    const int ranks[] = {0, 1, 2}, to = (self->rank + 1) % self->n,
              from = (self->rank + self->n - 1) % self->n;
    comm_group_t *first = self->group;
    int value = -1;

    RANKS_CHECK(self, comm_group_create(&self->world, 1000u + (uint64_t)number, ranks, self->n, self->rank,
                                        ranks_all_gather, self, base_deadline(10), group) == GYRE_OK);
    self->group = *group;
    RANKS_CHECK(self, ranks_send(self, to, 0, &self->rank, 4, (comm_tag_t){1, 2}) == GYRE_OK);
    RANKS_CHECK(self, ranks_recv(self, from, 0, &value, 4, (comm_tag_t){1, 2}) == GYRE_OK);
    RANKS_CHECK(self, value == from);
    self->group = first;
    return 0;
}

static int later_groups(ranks_t *self)
{
    comm_backing_t *backing = self->world.backing;
    comm_group_t *group[GROUPS];

    RANKS_CHECK(self, backing && !self->group->seg.backing); /* the first one's file is that file */
    ranks_barrier(self);
    const int open = descriptors();
    const blkcnt_t before = blocks(comm_backing_fd(backing));
    ranks_barrier(self);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < GROUPS; i++) {
            if (more(self, i, &group[i]) != 0)
                return 1;
            RANKS_CHECK(self, group[i]->seg.backing == backing &&
                                  group[i]->cma_call_ns == self->group->cma_call_ns);
            for (int r = 0; r < self->n; r++) /* as it was tried when the first one was made */
                RANKS_CHECK(self, *comm_segment_cma(&group[i]->seg, self->rank, r) ==
                                      *comm_segment_cma(&self->group->seg, self->rank, r));
        }
        RANKS_CHECK(self, descriptors_settle(open) <= open);
        RANKS_CHECK(self, blocks(comm_backing_fd(backing)) > before);
        for (int i = 0; i < GROUPS; i++)
            comm_group_destroy(group[i]);
        ranks_barrier(self);
        RANKS_CHECK(self, blocks(comm_backing_fd(backing)) == before);
        ranks_barrier(self);
    }
    return 0;
}

/* As above, in a file of their own or in `backing`. */
static int lie_in(ranks_t *self, const comm_backing_t *backing)
{
    comm_group_t *group;

    for (int i = 0; i < 3; i++) {
        if (more(self, i, &group) != 0)
            return 1;
        RANKS_CHECK(self, group->seg.backing == backing);
        comm_group_destroy(group);
    }
    return 0;
}

static int own_files(ranks_t *self)
{
    return lie_in(self, NULL);
}

static int after_an_abort(ranks_t *self)
{
    if (self->rank == 0)
        comm_watch_abort(self->world.watch, 999, GYRE_ERR_ABORTED, "test");
    while (atomic_load(comm_watch_trouble(self->world.watch)) == 0)
        usleep(100);
    ranks_barrier(self);
    return lie_in(self, self->world.backing);
}

static int without(ranks_t *self)
{
    RANKS_CHECK(self, !self->world.backing);
    return own_files(self);
}

/* One rank has none, for want of a descriptor: it is asked for, and missing, on all. */
static int one_without(ranks_t *self)
{
    if (self->rank == 1) {
        comm_backing_close(self->world.backing);
        self->world.backing = NULL;
    }
    return own_files(self);
}

static void limit_files(int rank)
{
    const struct rlimit limit = {64 << 20, RLIM_INFINITY};

    if (rank >= 0 && setrlimit(RLIMIT_FSIZE, &limit) != 0)
        perror("setrlimit");
}

static void test_groups(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(3, 30, later_groups, NULL), 0);
    assert_int_equal(ranks_fork(3, 30, after_an_abort, NULL), 0);
    assert_int_equal(ranks_fork(3, 30, one_without, NULL), 0);
    ranks_before_join = limit_files;
    assert_int_equal(ranks_fork(3, 30, without, NULL), 0);
    ranks_before_join = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_given_back),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
