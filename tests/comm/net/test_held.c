/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/net/test_held.c: which sockets of the bootstrap a child of fork keeps. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/net/address.h"
#include "comm/net/held.h"

/* How many sockets of TCP this process has. */
static int sockets(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        int family = 0, type = 0;
        socklen_t bytes = sizeof family;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0)
            n += (family == AF_INET || family == AF_INET6) && type == SOCK_STREAM;
    }
    return n;
}

static int sockets_of_child(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(sockets());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void loopback(boot_addr_t *addr)
{
    memset(addr, 0, sizeof *addr);
    addr->v4.sin_family = AF_INET;
    addr->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void listeners(void **state)
{
    (void)state;
    const int before = sockets();
    boot_addr_t at;
    char roots[256];
    int own = -1, of_id = -1, any;
    loopback(&at);
    assert_int_equal(boot_listen_child("127.0.0.1:1", &at, &own), GYRE_OK);
    any = boot_listen_at(NULL, 0);
    assert_int_equal(sockets(), before + 2);
    assert_int_equal(sockets_of_child(), before);
    /* The child may be rank 0 of an id of its parent. */
    assert_int_equal(boot_listen_here(1, roots, &of_id), GYRE_OK);
    assert_int_equal(sockets_of_child(), before + 1);
    boot_hold(of_id);
    boot_hold(of_id);
    assert_int_equal(sockets_of_child(), before);
    boot_keep(of_id);
    boot_let_go(own);
    boot_let_go(any);
    assert_int_equal(sockets(), before + 1);
    assert_int_equal(sockets_of_child(), before + 1);
    close(of_id);
}

typedef struct {
    boot_addr_t to;
    _Atomic int over;
} dial_t;

static void *dial(void *user)
{
    dial_t *d = user;
    int err = 0;
    const int fd = boot_dial(&d->to, base_deadline(0.5), &err);
    if (fd >= 0)
        boot_let_go(fd);
    atomic_store(&d->over, 1);
    return NULL;
}

/* A connection that is being made: the other side does not answer, since its queue is full. */
static void a_connection_on_its_way(void **state)
{
    (void)state;
    enum { FILLERS = 4 };
    dial_t d = {.over = 0};
    pthread_t thread;
    int fillers[FILLERS], before;
    socklen_t bytes = sizeof d.to;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    loopback(&d.to);
    assert_int_equal(bind(listener, &d.to.sa, sizeof d.to.v4), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, &d.to.sa, &bytes), 0);
    for (int i = 0; i < FILLERS; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fillers[i], &d.to.sa, sizeof d.to.v4);
    }
    before = sockets();
    assert_int_equal(pthread_create(&thread, NULL, dial, &d), 0);
    while (sockets() == before && !atomic_load(&d.over))
        usleep(1000);
    assert_int_equal(sockets_of_child(), before);
    pthread_join(thread, NULL);
    for (int i = 0; i < FILLERS; i++)
        close(fillers[i]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners),
        cmocka_unit_test(a_connection_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
