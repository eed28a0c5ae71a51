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
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings/settings.h"
#include "comm/link.h"
#include "comm/memory/memory.h"
#include "comm/peer_memory.h"

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
        int late = 0;
        usleep(200000);
        for (int i = 0; i < 20; i++) {
            base_time_t start = base_now();
            RANKS_CHECK(self, comm_recv(link, buf, WINDOW_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
            late +=
                base_now() - start > 500000000; /* they take 2 ms; a busy machine may add more now and then */
        }
        RANKS_CHECK(self, late < 10);
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

/* ---- senders that give up while they are read ------------------------------------------------------ */

typedef struct {
    _Atomic int copying, closed; /* rank 0 stands in the middle of its copy; rank 1 has given up */
} race_t;

static race_t *race;
static unsigned char *guarded; /* rank 0: the page at which the copy is held up */

/* Holds the copy up until its source has changed. */
static void hold_up(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if ((unsigned char *)info->si_addr < guarded || (unsigned char *)info->si_addr >= guarded + 4096) {
        signal(sig, SIG_DFL);
        return;
    }
    race->copying = 1;
    for (int i = 0; !race->closed && i < 10000; i++)
        usleep(1000);
    if (mprotect(guarded, 4096, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
}

enum { RACE_BYTES = 1 << 20 };

/* The sender fails while its message is copied, and its program writes to the buffer: that is no message. */
static int given_up(ranks_t *self)
{
    const int by_window = self->arg != NULL;
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_tag_t tag = {6, 6};
    comm_msg_t msg = {0};
    unsigned char *buf = NULL;

    RANKS_CHECK(self, link && comm_mem_alloc(RACE_BYTES, (void **)&buf) == GYRE_OK);
    if (self->rank == 1) {
        unsigned char *from = by_window ? buf : malloc(RACE_BYTES);
        RANKS_CHECK(self, from);
        ranks_fill(from, RACE_BYTES, 6);
        RANKS_CHECK(self, comm_send(link, from, RACE_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
        for (int i = 0; by_window && !race->copying && i < 10000; i++)
            usleep(1000);
        comm_group_let_go(self->group);
        memset(from, 0, RACE_BYTES);
        race->closed = 1;
        ranks_barrier(self);
        if (!by_window)
            free(from);
        return 0;
    }
    const struct sigaction action = {.sa_sigaction = hold_up, .sa_flags = SA_SIGINFO};
    guarded = buf + RACE_BYTES / 2;
    RANKS_CHECK(self, sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(guarded, 4096, PROT_NONE) == 0);
    while (!by_window && !race->closed)
        usleep(1000);
    for (int i = 0; i < 100 || (by_window && !race->copying && i < 10000); i++) {
        RANKS_CHECK(self, comm_recv(link, buf, RACE_BYTES, tag, &msg) == GYRE_IN_PROGRESS);
        usleep(1000);
    }
    RANKS_CHECK(self, race->copying == by_window);
    ranks_barrier(self);
    return 0;
}

/* A view stays readable after its sender has failed and freed it, and the reader has mapped another
 * window. */
static int freed_view(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_tag_t tag[2] = {{7, 7}, {8, 8}};
    comm_msg_t msg[2] = {{0}};
    unsigned char *buf[2] = {NULL, NULL};
    const void *view[2];
    gyre_status_t status;

    for (int k = 0; k < 2; k++)
        RANKS_CHECK(self, link && comm_mem_alloc((size_t)2 << 20, (void **)&buf[k]) == GYRE_OK);
    for (int k = 0; k < 2; k++) {
        if (self->rank == 1)
            RANKS_CHECK(self, comm_send(link, buf[k], RACE_BYTES, tag[k], &msg[k]) == GYRE_IN_PROGRESS);
        do
            status = self->rank == 0 ? comm_recv_view(link, RACE_BYTES, tag[k], &msg[k], &view[k]) : GYRE_OK;
        while (status == GYRE_IN_PROGRESS);
        RANKS_CHECK(self, status == GYRE_OK && (k == 1 || !comm_view_lost(link)));
        ranks_barrier(self);
        if (k == 0 && self->rank == 1) {
            comm_peer_memory_close(self->group);
            RANKS_CHECK(self, comm_mem_free(buf[0]) == GYRE_OK);
        }
        ranks_barrier(self);
    }
    if (self->rank == 0) {
        RANKS_CHECK(self, comm_view_lost(link));
        RANKS_CHECK(self, ((const unsigned char *)view[0])[RACE_BYTES / 2] == 0); /* and no SIGSEGV */
        for (int k = 0; k < 2; k++)
            comm_release(link, &msg[k]);
    }
    ranks_barrier(self);
    return 0;
}

static void test_given_up(void **state)
{
    (void)state;
    race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(race != MAP_FAILED);
    assert_int_equal(ranks_fork(2, 30, given_up, NULL), 0);
    *race = (race_t){0};
    assert_int_equal(ranks_fork(2, 30, given_up, race), 0);
    assert_int_equal(ranks_fork(2, 30, freed_view, NULL), 0);
    munmap(race, sizeof *race);
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
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
