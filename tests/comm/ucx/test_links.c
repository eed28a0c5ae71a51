/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_links.c: messages over UCX between processes and threads of one machine, taken for
 * separate hosts. */
/* takes: 15 */
/* TSan in check-long: mp_worlds runs UCX from the same threads */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/ucx/ucx.h"
#include "tests/comm/ucx/pair.h"

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

static int count_files(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 60, echo, NULL), 0);
}

static int own_shm; /* other programs do not see this process's /dev/shm, nor it theirs */
static int shm_files;

/* Permitted to root. */
static int make_own_shm(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

static void test_sizes_forced(void **state)
{
    (void)state;
    shm_files = count_files("/dev/shm");
    set(SET_HOST_RANKS, "0"); /* on one host */
    assert_int_equal(ranks_fork(2, 60, echo, NULL), 0);
    assert_int_equal(ranks_threads(2, 60, echo, NULL), 0);
    set(SET_HOST_RANKS, "1");
}

/* After test_sizes_forced. */
static void test_nothing_stays_in_shm(void **state)
{
    (void)state;
    if (!own_shm)
        skip();
    assert_int_equal(count_files("/dev/shm"), shm_files);
}

/* 64 open messages, large and small mixed: large ones go by rendezvous and are overtaken, yet arrive in
 * order. */
enum { FLIGHT = COMM_SENDS_OPEN, BIG = 200000 };
static size_t flight_bytes(unsigned k)
{
    return k % 3 == 0 ? BIG : k % 3 == 1 ? 0 : 100 + k;
}

static int flight(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char *buf = malloc((size_t)FLIGHT * BIG);
    comm_msg_t msgs[FLIGHT] = {{0}};
    int open = FLIGHT;

    RANKS_CHECK(self, link && buf);
    if (self->rank == 1) {
        for (unsigned k = 0; k < FLIGHT; k++) {
            RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, flight_bytes(k), (comm_tag_t){k, 9}) == GYRE_OK);
            RANKS_CHECK(self, ranks_wrong(buf, flight_bytes(k), k) == -1);
        }
        free(buf);
        return 0;
    }
    for (unsigned k = 0; k < FLIGHT; k++)
        ranks_fill(buf + (size_t)k * BIG, flight_bytes(k), k);
    for (base_time_t end = base_deadline(20); open > 0 && base_now() < end;) {
        open = 0;
        for (unsigned k = 0; k < FLIGHT; k++) {
            gyre_status_t status = msgs[k].pad ? GYRE_OK
                                               : comm_send(link, buf + (size_t)k * BIG, flight_bytes(k),
                                                           (comm_tag_t){k, 9}, &msgs[k]);
            RANKS_CHECK(self, status == GYRE_OK || status == GYRE_IN_PROGRESS);
            msgs[k].pad = status == GYRE_OK;
            open += status != GYRE_OK;
            if (status != GYRE_OK && !comm_send_accepted(&msgs[k]))
                break; /* the next may not start before it */
        }
        comm_group_progress(self->group);
    }
    RANKS_CHECK(self, open == 0);
    free(buf);
    return 0;
}

static void test_many_in_flight(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 40, flight, NULL), 0);
}

/* A receiver that is late: the sender gets so far ahead and no further, whatever the messages' size, and
 * nothing is lost. */
enum { FLOOD = 40000, FLOOD_MOST = 8 << 20 };

static int flood(ranks_t *self)
{
    const size_t bytes = *(size_t *)self->arg;
    const unsigned count = bytes > 1000 ? 200 : FLOOD;
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char *buf = malloc(bytes);
    comm_msg_t *msgs = calloc(FLOOD, sizeof *msgs);
    unsigned sent = 0;

    RANKS_CHECK(self, link && buf && msgs);
    ranks_fill(buf, bytes, 5);
    if (self->rank == 0) {
        for (base_time_t end = base_deadline(0.5); sent < count && base_now() < end;) {
            gyre_status_t status = comm_send(link, buf, bytes, (comm_tag_t){sent, 3}, &msgs[sent]);
            RANKS_CHECK(self, status == GYRE_OK || status == GYRE_IN_PROGRESS);
            sent += status == GYRE_OK;
            if (status == GYRE_IN_PROGRESS) /* or it is by rendezvous: waits either way */
                comm_group_progress(self->group);
        }
        RANKS_CHECK(self, sent < count && sent * (bytes + 256) <= FLOOD_MOST);
    }
    ranks_barrier(self);
    for (base_time_t end = base_deadline(50); self->rank == 0 && sent < count && base_now() < end;) {
        gyre_status_t status = comm_send(link, buf, bytes, (comm_tag_t){sent, 3}, &msgs[sent]);
        RANKS_CHECK(self, status == GYRE_OK || status == GYRE_IN_PROGRESS);
        sent += status == GYRE_OK;
    }
    RANKS_CHECK(self, self->rank == 1 || sent == count);
    for (unsigned k = 0; self->rank == 1 && k < count; k++) {
        memset(buf, 0, bytes);
        RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, bytes, (comm_tag_t){k, 3}) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(buf, bytes, 5) == -1);
    }
    free(msgs);
    free(buf);
    return 0;
}

static void test_flood(void **state)
{
    (void)state;
    for (size_t bytes = 8; bytes <= 100000; bytes = bytes * 100 + 8)
        assert_int_equal(ranks_fork(2, 60, flood, &bytes), 0);
}

static int late(ranks_t *self)
{
    return ranks_late(self, 4, 300, 0.2, 1); /* the first byte makes the connection */
}

static void test_late(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 20, late, NULL), 0);
}

static int tcp_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;

    return getsockopt(fd, level, name, &value, &bytes) == 0 ? value : -1;
}

/* Rank 1 does something else while megabytes are on their way to it: nothing of its connection is in a
 * hurry, and all arrives. */
enum { BUSY_COUNT = 32, BUSY_BYTES = 1 << 18, UCX_KEEPCNT = 3 };

static int is_ucx_connection(int fd)
{
    return tcp_option(fd, SOL_SOCKET, SO_KEEPALIVE) > 0 && tcp_option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 &&
           tcp_option(fd, IPPROTO_TCP, TCP_KEEPCNT) == UCX_KEEPCNT;
}

static int busy(ranks_t *self)
{
    const unsigned ms = *(unsigned *)self->arg;
    unsigned char *buf = malloc(BUSY_BYTES);
    int sockets = 0;

    RANKS_CHECK(self, buf != NULL);
    ranks_fill(buf, BUSY_BYTES, 6);
    for (uint32_t k = 0; k < BUSY_COUNT; k++) {
        if (self->rank == 1 && k == 1)
            usleep(ms * 1000);
        if (self->rank == 1)
            memset(buf, 0, BUSY_BYTES);
        RANKS_CHECK(self, (self->rank == 0
                               ? ranks_send(self, 1, 0, buf, BUSY_BYTES, (comm_tag_t){k, 4})
                               : ranks_recv(self, 0, 0, buf, BUSY_BYTES, (comm_tag_t){k, 4})) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(buf, BUSY_BYTES, 6) == -1);
    }
    for (int fd = 0; fd < 200; fd++) {
        if (!is_ucx_connection(fd))
            continue;
        sockets++;
        RANKS_CHECK(self, tcp_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
    }
    RANKS_CHECK(self, sockets > 0);
    free(buf);
    return 0;
}

static void test_busy(void **state)
{
    unsigned ms = getenv("TEST_LONG") ? 10000 : 100;

    (void)state;
    assert_int_equal(fork_over_tcp(40, busy, &ms), 0);
}

/* Rank 1 is killed; rank 0, which sends to it and receives from it, gets the error within its deadline. */
static int death(ranks_t *self)
{
    unsigned char *buf = calloc(1, BIG);
    base_time_t start;
    gyre_status_t status = GYRE_OK;

    RANKS_CHECK(self, buf != NULL);
    if (self->rank == 1) {
        RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, 8, (comm_tag_t){1, 0}) == GYRE_OK);
        raise(SIGKILL);
    }
    RANKS_CHECK(self, ranks_send(self, 1, 0, buf, 8, (comm_tag_t){1, 0}) == GYRE_OK);
    start = base_now();
    for (uint32_t k = 2; status == GYRE_OK && base_now() - start < 4000000000; k++)
        status = ranks_send(self, 1, 0, buf, *(int *)self->arg ? BIG : 8, (comm_tag_t){k, 0});
    RANKS_CHECK(self, status == GYRE_ERR_PEER_DEAD);
    RANKS_CHECK(self, strstr(gyre_last_error(), "rank 1") != NULL);
    RANKS_CHECK(self, ranks_recv(self, 1, 1, buf, 8, (comm_tag_t){1, 0}) == GYRE_ERR_PEER_DEAD);
    RANKS_CHECK(self, base_now() - start < 4000000000);
    comm_group_destroy(self->group);
    RANKS_CHECK(self, base_now() - start < 6000000000);
    free(buf);
    fflush(NULL);
    _exit(0); /* no farewell: the other rank is gone */
}

static void test_death(void **state)
{
    int large;

    (void)state;
    for (large = 0; large < 2; large++)
        assert_int_equal(ranks_fork(2, 20, death, &large), 1); /* the killed one */
}

/* A group that was aborted is taken apart soon, though its peer will never receive what is under way, and
 * makes no call to say so. */
static int aborted(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char *buf = calloc(1, BIG);
    comm_msg_t msg = {0};
    base_time_t start;

    RANKS_CHECK(self, link && buf);
    if (self->rank == 0) {
        for (int i = 0; i < 100; i++)
            RANKS_CHECK(self, comm_send(link, buf, BIG, (comm_tag_t){1, 0}, &msg) == GYRE_IN_PROGRESS);
        comm_watch_abort(self->world.watch, comm_group_id(self->group), GYRE_ERR_ABORTED, "enough");
        start = base_now();
        comm_group_destroy(self->group);
        RANKS_CHECK(self, base_now() - start < 5000000000); /* a second, if this rank gets its turns */
    }
    ranks_barrier(self);
    if (self->rank == 1)
        comm_group_destroy(self->group);
    free(buf);
    fflush(NULL);
    _exit(0);
}

static void test_abort(void **state)
{
    (void)state;
    /* taking apart an RDMA connection may take longer, under emulation */
    assert_int_equal(fork_over_tcp(20, aborted, NULL), 0);
}

/* A communicator ends while the wire to its peer is full of another's messages, which do not concern it. */
static int shared(ranks_t *self)
{
    static const int world_ranks[] = {0, 1};
    enum { FULL = 48, PARTS = 8, LANES = 3 };
    unsigned char *buf = malloc(BUSY_BYTES);
    comm_msg_t msgs[FULL] = {{0}};
    comm_group_t *first = self->group, *second;
    int open = FULL;

    RANKS_CHECK(self, buf && comm_group_create(&self->world, 78, world_ranks, 2, self->rank, ranks_all_gather,
                                               self, base_deadline(20), &second) == GYRE_OK);
    ranks_fill(buf, BUSY_BYTES, 7);
    self->group = second;
    for (uint32_t k = 0; self->rank == 0 && k < PARTS; k++)
        RANKS_CHECK(self, ranks_send(self, 1, 0, buf, BUSY_BYTES, (comm_tag_t){k, 5}) == GYRE_OK);
    if (self->rank == 0)
        usleep(3500000); /* and reads nothing meanwhile */
    if (self->rank == 1) {
        self->group = first;
        comm_link_t *links[LANES]; /* each lane may be so far ahead */
        for (int lane = 0; lane < LANES; lane++)
            RANKS_CHECK(self, (links[lane] = ranks_link(self, 0, lane)) != NULL);
        for (uint32_t k = 0; k < FULL; k++) {
            gyre_status_t status = comm_send(links[k % LANES], buf, BUSY_BYTES, (comm_tag_t){k, 6}, &msgs[k]);
            RANKS_CHECK(self, status == GYRE_OK || status == GYRE_IN_PROGRESS);
            msgs[k].pad = status == GYRE_OK;
            if (status != GYRE_OK && !comm_send_accepted(&msgs[k]))
                break; /* the wire is full */
        }
        self->group = second;
        unsigned char *other = malloc(BUSY_BYTES);
        for (uint32_t k = 0; k < PARTS; k++)
            RANKS_CHECK(self,
                        other && ranks_recv(self, 0, 0, other, BUSY_BYTES, (comm_tag_t){k, 5}) == GYRE_OK);
        free(other);
        comm_group_destroy(second);
        for (base_time_t end = base_deadline(20); open > 0 && base_now() < end;) {
            open = 0;
            for (uint32_t k = 0; k < FULL; k++) {
                gyre_status_t status =
                    msgs[k].pad ? GYRE_OK
                                : comm_send(links[k % LANES], buf, BUSY_BYTES, (comm_tag_t){k, 6}, &msgs[k]);
                RANKS_CHECK(self, status == GYRE_OK || status == GYRE_IN_PROGRESS);
                msgs[k].pad = status == GYRE_OK;
                open += status != GYRE_OK;
                if (status != GYRE_OK && !comm_send_accepted(&msgs[k]))
                    break;
            }
        }
        RANKS_CHECK(self, open == 0);
    }
    self->group = first;
    for (uint32_t k = 0; self->rank == 0 && k < FULL; k++) {
        memset(buf, 0, BUSY_BYTES);
        RANKS_CHECK(self,
                    ranks_recv(self, 1, (int)k % LANES, buf, BUSY_BYTES, (comm_tag_t){k, 6}) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(buf, BUSY_BYTES, 7) == -1);
    }
    if (self->rank == 0)
        comm_group_destroy(second);
    free(buf);
    return 0;
}

static void test_shared(void **state)
{
    (void)state;
    assert_int_equal(fork_over_tcp(40, shared, NULL), 0);
}

/* A connection fails while a communicator is being made, too late to report it to the others: it then belongs
 * to that communicator. A second connection that this rank alone used would wait forever. */
static int exchanges, exchange_that_fails;

static gyre_status_t failing_all_gather(void *user, const void *mine, size_t bytes, void *all)
{
    ranks_t *self = user;
    ucx_peer_t *peer;

    if (++exchanges == exchange_that_fails) {
        ucx_lock();
        RANKS_CHECK(self, ucx_peer_get(ucx_of(self->group), 1 - self->rank, &peer) == GYRE_OK);
        ucx_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
        ucx_unlock();
    }
    return ranks_all_gather(user, mine, bytes, all);
}

static int meanwhile(ranks_t *self)
{
    static const int world_ranks[] = {0, 1};
    comm_group_t *first = self->group, *groups[2];

    RANKS_CHECK(self, echo(self) == 0);
    for (int i = 0; i < 2; i++) {
        exchange_that_fails = i == 1 && self->rank == 0 ? exchanges : 0; /* the last */
        exchanges = 0;
        RANKS_CHECK(self,
                    comm_group_create(&self->world, (uint64_t)(78 + i), world_ranks, 2, self->rank,
                                      failing_all_gather, self, base_deadline(20), &groups[i]) == GYRE_OK);
    }
    self->group = groups[1];
    if (self->rank == 0)
        RANKS_CHECK(self, ranks_send(self, 1, 0, "x", 1, (comm_tag_t){1, 0}) == GYRE_ERR_TRANSPORT);
    ranks_barrier(self);
    self->group = first;
    for (int i = 0; i < 2; i++)
        comm_group_destroy(groups[i]);
    return 0;
}

static void test_meanwhile(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, meanwhile, NULL), 0);
}

/* A rank that only receives gets the error of its connection, though its peer looks elsewhere. */
static int listener(ranks_t *self)
{
    unsigned char byte = 1;
    int sockets = 0;

    for (uint32_t k = 1; k <= 2; k++) { /* the second when the other rank sleeps */
        if (self->rank == 0) {
            usleep(200000);
            RANKS_CHECK(self, ranks_send(self, 1, 0, &byte, 1, (comm_tag_t){k, 0}) == GYRE_OK);
        } else {
            RANKS_CHECK(self, ranks_recv(self, 0, 0, &byte, 1, (comm_tag_t){k, 0}) == GYRE_OK);
        }
    }
    if (self->rank == 0)
        usleep(500000);
    for (int fd = 0; self->rank == 0 && fd < 200; fd++) {
        if (is_ucx_connection(fd))
            sockets += shutdown(fd, SHUT_RDWR) == 0;
    }
    RANKS_CHECK(self, self->rank == 1 || sockets > 0);
    if (self->rank == 1)
        RANKS_CHECK(self, ranks_recv(self, 0, 0, &byte, 1, (comm_tag_t){3, 0}) == GYRE_ERR_TRANSPORT);
    ranks_barrier(self);
    return 0;
}

static void test_listener(void **state)
{
    (void)state;
    assert_int_equal(fork_over_tcp(30, listener, NULL), 0);
}

/* Which peer is silent and which is merely busy, by the kernel's account; and the connections are found where
 * UCX keeps them. */
static void test_silence(void **state)
{
    struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED, .tcpi_last_ack_recv = 20000};
    ucx_silences_t silences = {0};
    base_time_t now = base_deadline(100);
    const base_time_t second = 1000000000;
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int outer = epoll_create1(EPOLL_CLOEXEC), inner = epoll_create1(EPOLL_CLOEXEC);
    int door = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 0); /* idle */
    info.tcpi_retransmits = 2;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 0); /* a loss or two, or only begun */
    info.tcpi_retransmits = 3;
    info.tcpi_rto = 1600000;         /* after waits of 0.2, 0.4 and 0.8 s */
    info.tcpi_last_ack_recv = 21400; /* it was idle until 1.4 s ago */
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now += second), 1400);
    info.tcpi_last_ack_recv = 24400;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now += 3 * second), 4400);
    assert_int_equal(ucx_socket_silent_ms(&silences, 8, &info, now), 1400); /* another */
    info.tcpi_last_ack_recv = 2000;                                         /* it has answered meanwhile */
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now += 3 * second), 1400);
    info.tcpi_last_ack_recv = 4000;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now += 2 * second), 3400);
    info.tcpi_retransmits = 0;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 0);
    info.tcpi_probes = 3; /* of a shut window */
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 1400);
    info.tcpi_last_ack_recv = 6000;
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now += 2 * second), 3400);
    info.tcpi_probes = 0; /* it answers that it is shut */
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 0);
    info.tcpi_retransmits = 5;
    info.tcpi_rto = 6400000; /* waits of 6.2 s, but it has answered 6 s ago */
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 6000);
    info = (struct tcp_info){.tcpi_state = TCP_SYN_SENT, .tcpi_retransmits = 5, .tcpi_last_ack_recv = 6000};
    assert_int_equal(ucx_socket_silent_ms(&silences, 7, &info, now), 0); /* UCX tries again by itself */

    assert_true(outer >= 0 && inner >= 0 && door >= 0 && one >= 0);
    assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(door, 1), 0);
    assert_int_equal(getsockname(door, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(connect(one, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(ucx_sockets_look(&silences, outer), 0);
    assert_int_equal(epoll_ctl(inner, EPOLL_CTL_ADD, one, &event), 0);
    assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), 0);
    assert_int_equal(ucx_sockets_look(&silences, outer), 1);
    assert_int_equal(send(one, "x", 1, MSG_NOSIGNAL), 1); /* and are left as they are */
    close(one);
    close(door);
    close(inner);
    close(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_sizes_forced),
        cmocka_unit_test(test_nothing_stays_in_shm),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_meanwhile),
        cmocka_unit_test(test_listener),
        cmocka_unit_test(test_silence),
    };
    own_shm = make_own_shm();
    if (choose_ucx() != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
