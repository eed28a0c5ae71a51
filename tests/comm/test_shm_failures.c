/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_shm_failures.c: peers of one host that stop, die, abort, or do not hand over a window. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings/settings.h"
#include "comm/link.h"
#include "comm/memory/memory.h"

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

/* ---- windows that do not come -------------------------------------------------------------------------- */

enum { WINDOW_BYTES = 100000 };

/* The peer is stopped before its window was fetched: no call waits for it, and once it goes on the message
 * comes. */
static int stopped(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_tag_t tag = {4, 4};
    comm_msg_t msg = {0};
    unsigned char *buf = NULL;
    gyre_status_t status;

    RANKS_CHECK(self, link && comm_mem_alloc(WINDOW_BYTES, (void **)&buf) == GYRE_OK);
    ranks_barrier(self);
    if (self->rank == 1) {
        ranks_fill(buf, WINDOW_BYTES, 4);
        RANKS_CHECK(self, comm_send(link, buf, WINDOW_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
        raise(SIGSTOP);
        do
            status = comm_send(link, buf, WINDOW_BYTES, tag, &msg);
        while (status == GYRE_IN_PROGRESS);
        RANKS_CHECK(self, status == GYRE_OK);
    } else {
        usleep(200000);
        for (int i = 0; i < 20; i++) {
            base_time_t start = base_now();
            RANKS_CHECK(self, comm_recv(link, buf, WINDOW_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
            RANKS_CHECK(self, base_now() - start < 500000000); /* 2 ms, and what a busy machine adds */
        }
        RANKS_CHECK(self, kill((pid_t)self->group->cards[1].pid, SIGCONT) == 0);
        do
            status = comm_recv(link, buf, WINDOW_BYTES, tag, &msg);
        while (status == GYRE_IN_PROGRESS);
        RANKS_CHECK(self, status == GYRE_OK && ranks_wrong(buf, WINDOW_BYTES, 4) == -1);
    }
    ranks_barrier(self);
    return comm_mem_free(buf) != GYRE_OK;
}

/* A window that its owner does not hand over: CMA steps in, but not where windows were asked for. */
static int withheld(ranks_t *self)
{
    const char *mode = self->arg;
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_tag_t tag = {5, 5};
    comm_msg_t msg = {0};
    unsigned char *buf = NULL;
    gyre_status_t status;

    RANKS_CHECK(self, link && comm_mem_alloc(WINDOW_BYTES, (void **)&buf) == GYRE_OK);
    if (self->rank == 1) {
        ranks_fill(buf, WINDOW_BYTES, 5);
        RANKS_CHECK(self, comm_mem_attach(NULL) == GYRE_OK);
        RANKS_CHECK(self, comm_send(link, buf, WINDOW_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
        ranks_barrier(self);
        return 0;
    }
    do
        status = comm_recv(link, buf, WINDOW_BYTES, tag, &msg);
    while (status == GYRE_IN_PROGRESS);
    if (strcmp(mode, "window") == 0)
        RANKS_CHECK(self, status == GYRE_ERR_TRANSPORT && strstr(gyre_last_error(), "GYRE_SHM_COPY=window"));
    else
        RANKS_CHECK(self, status == GYRE_OK && ranks_wrong(buf, WINDOW_BYTES, 5) == -1);
    ranks_barrier(self);
    return 0;
}

static void test_windows_that_do_not_come(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 20, stopped, NULL), 0);
    assert_int_equal(ranks_fork(2, 20, withheld, "auto"), 0);
    set(SET_SHM_COPY, "window");
    assert_int_equal(ranks_fork(2, 20, withheld, "window"), 0);
    set(SET_SHM_COPY, "auto");
}

/* ---- trouble ------------------------------------------------------------------------------------------- */

static int death(ranks_t *self)
{
    unsigned char byte = 0;
    base_time_t start;

    RANKS_CHECK(self, ranks_link(self, 1 - self->rank, 0) != NULL);
    ranks_barrier(self);
    if (self->rank == 1) {
        usleep(150000); /* the other one sleeps by now */
        raise(SIGKILL);
    }
    start = base_now();
    RANKS_CHECK(self, ranks_recv(self, 1, 0, &byte, 1, (comm_tag_t){1, 0}) == GYRE_ERR_PEER_DEAD);
    RANKS_CHECK(self, base_now() - start < 2000000000 && strstr(gyre_last_error(), "rank 1"));
    comm_group_destroy(self->group);
    fflush(NULL);
    _exit(0);
}

/* An abort of another communicator does not concern this one; one of this communicator ends the wait. */
static int aborted(ranks_t *self)
{
    unsigned char byte = 5;

    RANKS_CHECK(self, ranks_link(self, 1 - self->rank, 0) != NULL);
    ranks_barrier(self);
    if (self->rank == 1) {
        usleep(100000);
        comm_watch_abort(self->world.watch, 4711, GYRE_ERR_ABORTED, "not this one");
        usleep(100000);
        RANKS_CHECK(self, ranks_send(self, 0, 0, &byte, 1, (comm_tag_t){1, 0}) == GYRE_OK);
        usleep(100000);
        comm_watch_abort(self->world.watch, comm_group_id(self->group), GYRE_ERR_ABORTED,
                         "rank 1 has had enough");
        return 0;
    }
    RANKS_CHECK(self, ranks_recv(self, 1, 0, &byte, 1, (comm_tag_t){1, 0}) == GYRE_OK && byte == 5);
    RANKS_CHECK(self, ranks_recv(self, 1, 0, &byte, 1, (comm_tag_t){2, 0}) == GYRE_ERR_ABORTED);
    RANKS_CHECK(self, strstr(gyre_last_error(), "had enough") != NULL);
    return 0;
}

/* Rank 1 leaves because rank 2 died: rank 0, whose link is with rank 1, names rank 2. */
static int domino(ranks_t *self)
{
    const _Atomic uint32_t *trouble = comm_watch_trouble(self->world.watch);
    comm_link_t *link = ranks_link(self, 1, 0);
    base_time_t deadline = base_deadline(5);
    unsigned char byte = 0;

    RANKS_CHECK(self, link != NULL);
    ranks_barrier(self);
    if (self->rank == 2)
        raise(SIGKILL);
    while (atomic_load(trouble) < (self->rank == 0 ? 2 : 1) && base_now() < deadline)
        usleep(1000);
    if (self->rank == 1) {
        comm_watch_stop(self->world.watch);
        comm_boot_leave(self->world.boot, 0);
        _exit(0);
    }
    RANKS_CHECK(self, atomic_load(trouble) == 2);
    RANKS_CHECK(self, comm_link_broken(link, "it broke") == GYRE_ERR_PEER_DEAD);
    RANKS_CHECK(self, strncmp(gyre_last_error(), "rank 2 died: ", 13) == 0);
    RANKS_CHECK(self, ranks_recv(self, 1, 0, &byte, 1, (comm_tag_t){1, 0}) == GYRE_ERR_PEER_DEAD);
    RANKS_CHECK(self, strncmp(gyre_last_error(), "rank 2 died: ", 13) == 0);
    fflush(NULL);
    _exit(0);
}

static void test_trouble(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(3, 20, domino, NULL), 1);
    assert_int_equal(ranks_fork(2, 20, death, NULL), 1); /* the killed one */
    assert_int_equal(ranks_fork(2, 20, aborted, NULL), 0);
    assert_int_equal(ranks_threads(2, 20, aborted, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_that_do_not_come),
        cmocka_unit_test(test_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
