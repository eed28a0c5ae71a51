/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_broken.c: TCP connections that break, or lead nowhere, at the moments at which UCX by
 * itself aborts or waits: see comm/ucx/config.c and ucx_end_connections. */
/* takes: 4 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "comm/ucx/ucx.h"
#include "tests/comm/ucx/pair.h"

enum { MANY = 64, PIECE = 100000, DESCRIPTORS = 300 };
#define SECOND ((base_time_t)1000000000)

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;

    return getsockopt(fd, level, name, &value, &bytes) == 0 ? value : -1;
}

static int is_connection(int fd)
{
    return option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 &&
           option(fd, IPPROTO_TCP, TCP_KEEPCNT) == UCX_KEEP_COUNT;
}

/* Once the ranks are connected: their sockets hold little. */
static int connect_narrowly(ranks_t *self)
{
    const int few = 4096;
    unsigned char byte = 1;

    for (uint32_t k = 0; k < 2; k++)
        RANKS_CHECK(self,
                    ((self->rank == 0) == (k == 0)
                         ? ranks_send(self, 1 - self->rank, 0, &byte, 1, (comm_tag_t){k, 0})
                         : ranks_recv(self, 1 - self->rank, 0, &byte, 1, (comm_tag_t){k, 0})) == GYRE_OK);
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (is_connection(fd)) {
            RANKS_CHECK(self, setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few) == 0);
            RANKS_CHECK(self, setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
        }
    ranks_barrier(self);
    return 0;
}

/* Rank 0 sends what rank 1 does not take, until a socket is full in the middle of a message. */
static int fill_socket(ranks_t *self, unsigned char *buf, comm_msg_t *msgs)
{
    comm_link_t *link = ranks_link(self, 1, 0);
    int under_way = 0;

    RANKS_CHECK(self, link != NULL);
    for (uint32_t k = 0; k < MANY; k++)
        under_way += comm_send(link, buf, PIECE, (comm_tag_t){2 + k, 0}, &msgs[k]) == GYRE_IN_PROGRESS;
    RANKS_CHECK(self, under_way > 0);
    return 0;
}

/* The connection breaks under a message, and the next that UCX does is to send the rest. */
static int broken(ranks_t *self)
{
    unsigned char *buf = calloc(1, PIECE);
    comm_msg_t msgs[MANY] = {0};
    gyre_status_t status = GYRE_IN_PROGRESS;

    RANKS_CHECK(self, buf && connect_narrowly(self) == 0);
    if (self->rank == 0) {
        RANKS_CHECK(self, fill_socket(self, buf, msgs) == 0);
        for (int fd = 0; fd < DESCRIPTORS; fd++)
            if (is_connection(fd))
                (void)shutdown(fd, SHUT_WR); /* no news to read, as a reset would be */
        for (base_time_t end = base_deadline(5); status == GYRE_IN_PROGRESS && base_now() < end;)
            status =
                comm_send(ranks_link(self, 1, 0), buf, PIECE, (comm_tag_t){1 + MANY, 0}, &msgs[MANY - 1]);
        RANKS_CHECK(self, status == GYRE_ERR_TRANSPORT);
    }
    ranks_barrier(self);
    free(buf);
    return 0;
}

static void test_broken_under_a_message(void **state)
{
    (void)state;
    assert_int_equal(fork_over_tcp(30, broken, NULL), 0);
}

/* A failed communicator ends although its sockets are full and nobody empties them. */
static int full(ranks_t *self)
{
    static const unsigned char bytes[4096];
    base_time_t start;

    RANKS_CHECK(self, connect_narrowly(self) == 0);
    if (self->rank == 0) {
        for (base_time_t end = base_deadline(1); base_now() < end;
             usleep(1000)) /* kernels take more and more */
            for (int fd = 0; fd < DESCRIPTORS; fd++)
                while (is_connection(fd) && send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
                }
        comm_watch_abort(self->world.watch, comm_group_id(self->group), GYRE_ERR_ABORTED, "enough");
        start = base_now();
        alarm(8); /* the end of this process */
        comm_group_destroy(self->group);
        alarm(0);
        RANKS_CHECK(self, base_now() - start < 8 * SECOND);
    }
    ranks_barrier(self);
    fflush(NULL);
    _exit(0); /* rank 1 does not read what UCX would not understand */
}

static void test_end_of_a_full_socket(void **state)
{
    (void)state;
    assert_int_equal(fork_over_tcp(20, full, NULL), 0);
}

/* The rank that opens the connection waits seconds for an answer, not minutes. */
static int unanswered(ranks_t *self)
{
    int tries = 0, all[2];

    RANKS_CHECK(self, connect_narrowly(self) == 0);
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (is_connection(fd) && option(fd, IPPROTO_TCP, TCP_SYNCNT) == 2)
            tries = 2;
    RANKS_CHECK(self, ranks_all_gather(self, &tries, sizeof tries, all) == GYRE_OK);
    RANKS_CHECK(self, all[0] == 2 || all[1] == 2);
    return 0;
}

static void test_connection_that_nobody_answers(void **state)
{
    (void)state;
    assert_int_equal(fork_over_tcp(20, unanswered, NULL), 0);
}

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return choose_ucx();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_under_a_message),
        cmocka_unit_test(test_end_of_a_full_socket),
        cmocka_unit_test(test_connection_that_nobody_answers),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
