/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_bell.c: doorbells (comm/memory/bell.h): a ring ends a sleep in poll(2), also one by another
 * process, and the waiting of comm/wait.c uses that. An announcement that stands costs no fence. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/link.h"

enum { PATIENCE_MS = 20000 };

static comm_bell_t *shared_bell(void)
{
    void *bell = mmap(NULL, sizeof(comm_bell_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(bell != MAP_FAILED);
    return bell;
}

/* 1: it can be read, and now it is drained. */
static int heard(int fd, int ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    if (poll(&one, 1, ms) == 0)
        return 0;
    assert_true(one.revents & POLLIN);
    comm_bell_drain(fd);
    return 1;
}

static void test_fences(void **state)
{
    comm_bell_t bell = {0};
    uint32_t word, later;

    (void)state;
    assert_int_equal(comm_bell_announce(&bell, COMM_BELL_FUTEX, &word), 1);
    for (int i = 0; i < 100; i++)
        assert_int_equal(comm_bell_announce(&bell, COMM_BELL_FUTEX, &later), 0);
    assert_int_equal(later, word);
    comm_bell_ring(&bell);
    assert_int_not_equal(bell.bell, word);
    comm_bell_ring(&bell); /* nobody sleeps any more */
    assert_int_equal(bell.bell, word + 1);
    assert_int_equal(comm_bell_announce(&bell, COMM_BELL_FUTEX, &later), 1);
    assert_int_equal(later, word + 1);
    comm_bell_wake(&bell); /* takes nothing back, but ends the sleep */
    assert_int_not_equal(bell.bell, later);
    assert_int_equal(comm_bell_announce(&bell, COMM_BELL_FUTEX, &later), 0);
    assert_int_equal(later, bell.bell);
}

static void test_socket(void **state)
{
    comm_bell_t *bell = shared_bell();
    int fd = comm_bell_open(bell), status;
    uint32_t word;
    pid_t child;

    (void)state;
    assert_true(fd >= 0);
    comm_bell_ring(bell);
    assert_false(heard(fd, 0)); /* nobody sleeps */
    for (int times = 0; times < 3; times++) {
        assert_int_equal(comm_bell_announce(bell, COMM_BELL_SOCKET, &word), 1);
        child = fork();
        if (child == 0) {
            comm_bell_ring(bell);
            comm_bell_ring(bell);
            _exit(0);
        }
        assert_true(heard(fd, PATIENCE_MS));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_false(heard(fd, 0)); /* one ring was enough */
    }
    comm_bell_wake(bell);
    assert_true(heard(fd, PATIENCE_MS));
    comm_bell_close(fd);
    assert_int_equal(comm_bell_announce(bell, COMM_BELL_SOCKET, &word), 1);
    comm_bell_ring(bell); /* its owner is gone */
    munmap(bell, sizeof *bell);
}

static void no_progress(comm_group_t *group)
{
    (void)group;
}

static int sleep_on(comm_group_t *group, struct pollfd *polls)
{
    (void)group;
    polls[0] = (struct pollfd){.fd = -1};
    return 1;
}

/* A wait in a group with a network and with ranks on this host: the ring of one of these ends its sleep. */
static void test_sleep_in_a_group(void **state)
{
    static const comm_transport_ops_t network = {.progress = no_progress, .sleep_on = sleep_on};
    comm_world_t world = {.rank = 0};
    comm_group_t group = {.world = &world, .network = &network, .network_state = &world, .spin_ns = 1};
    comm_wait_t wait;

    (void)state;
    group.bell = shared_bell();
    group.bell_fd = comm_bell_open(group.bell);
    assert_true(group.bell_fd >= 0);
    comm_wait_begin(&wait, &group, BASE_TIME_NEVER);
    for (int sleeps = 0; sleeps < 3; sleeps++) {
        int rung = 0;
        do {
            assert_int_equal(comm_wait_idle(&wait), GYRE_OK);
            if (wait.armed && !rung) {
                comm_bell_ring(group.bell); /* a message comes just now */
                rung = 1;
            }
            if (wait.rest == COMM_REST_SLEEP)
                assert_int_equal(poll(wait.polls, (nfds_t)wait.npolls, PATIENCE_MS), 1);
            assert_int_equal(comm_wait_rest(&wait), GYRE_OK);
        } while (wait.rest != COMM_REST_SLEEP);
        assert_false(heard(group.bell_fd, 0)); /* it was heard, and will not end the next sleep, too */
    }
    comm_wait_end(&wait);
    assert_int_equal(wait.sleeps, 3);
    assert_int_equal(group.fences, 3);
    comm_bell_close(group.bell_fd);
    munmap(group.bell, sizeof *group.bell);
}

/* ---- a ring while the last bell of this process is closed ---- */

enum { QUIET, ARMED, SENDING, CLOSED };
static _Atomic int stage;
static int closing, tcp[2]; /* the bell's descriptor; a connection of the program */

/* Stands for the system's: the thread that rings gets no processor for a while just before it. */
ssize_t sendto(int fd, const void *data, size_t bytes, int flags, __CONST_SOCKADDR_ARG to, socklen_t length)
{
    int armed = ARMED;

    if (atomic_compare_exchange_strong(&stage, &armed, SENDING))
        for (int ms = 0; ms < 200 && atomic_load(&stage) == SENDING; ms++)
            usleep(1000);
    return syscall(SYS_sendto, fd, data, bytes, flags, to.__sockaddr__, length);
}

static void *close_the_last(void *unused)
{
    (void)unused;
    while (atomic_load(&stage) != SENDING)
        usleep(100);
    comm_bell_close(closing);
    for (int i = 0; i < 2; i++) /* in the place of the bell's descriptors */
        (void)!dup(tcp[0]);
    atomic_store(&stage, CLOSED);
    return NULL;
}

static void tcp_pair(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    tcp[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listening >= 0 && tcp[0] >= 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(connect(tcp[0], (struct sockaddr *)&at, bytes), 0);
    tcp[1] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(tcp[1] >= 0);
    close(listening);
}

static void test_ring_and_close(void **state)
{
    comm_bell_t mine = {0}, other = {.sleeping = COMM_BELL_SOCKET};
    pthread_t thread;
    char byte;

    (void)state;
    tcp_pair();
    closing = comm_bell_open(&mine);
    assert_true(closing >= 0);
    assert_int_equal(pthread_create(&thread, NULL, close_the_last, NULL), 0);
    atomic_store(&stage, ARMED);
    comm_bell_ring_slow(&other);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&stage), CLOSED);
    assert_int_equal(recv(tcp[1], &byte, 1, MSG_DONTWAIT), -1); /* it was not sent there */
    assert_int_equal(errno, EAGAIN);
    close(tcp[0]);
    close(tcp[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_socket),
        cmocka_unit_test(test_sleep_in_a_group),
        cmocka_unit_test(test_ring_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
