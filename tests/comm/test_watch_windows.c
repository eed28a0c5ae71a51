/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_watch_windows.c: windows are handed over by watchers, and to no other process. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "tests/support/boot_job.h"
#include "tests/support/descriptors.h"

#define SOON base_deadline(10.0)

static void count_wake(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

static int window_of(const char *text)
{
    int fd = memfd_create("window", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int holds(int fd, const char *text)
{
    char got[64] = {0};
    return pread(fd, got, sizeof(got) - 1, 0) == (ssize_t)strlen(text) && strcmp(got, text) == 0;
}

static int fetch_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    int n = comm_boot_size(boot), rank = comm_boot_rank(boot), fd = -1;
    unsigned char mine[32], all[4 * 32];
    char text[32];
    snprintf(text, sizeof(text), "window of %d", rank);
    int window = window_of(text);
    RANK_CHECK(window >= 0);
    for (uint64_t key = 0; key < 40; key++)
        RANK_CHECK(comm_watch_offer(watch, key, window) == GYRE_OK);
    RANK_CHECK(comm_watch_offer(watch, 7, window) == GYRE_ERR_INVALID);
    RANK_CHECK(comm_watch_offer(watch, 99, -1) == GYRE_ERR_INVALID);
    comm_watch_address(watch, mine);
    RANK_CHECK(comm_boot_all_gather(boot, mine, 32, all, SOON) == GYRE_OK);
    for (int r = 0; r < n; r++)
        for (uint64_t key = 0; key < 40; key += 13) {
            RANK_CHECK(comm_watch_fetch(watch, all + 32 * r, key, &fd, SOON) == GYRE_OK);
            snprintf(text, sizeof(text), "window of %d", r);
            RANK_CHECK(holds(fd, text));
            RANK_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            close(fd);
        }
    RANK_CHECK(comm_watch_fetch(watch, all + 32 * ((rank + 1) % n), 1000, &fd, SOON) == GYRE_ERR_NOT_FOUND);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    comm_watch_withdraw(watch, 13);
    comm_watch_withdraw(watch, 5000); /* never offered: nothing happens */
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(comm_watch_fetch(watch, all + 32 * ((rank + 1) % n), 13, &fd, SOON) == GYRE_ERR_NOT_FOUND);
    RANK_CHECK(comm_watch_fetch(watch, all + 32 * ((rank + 1) % n), 12, &fd, SOON) == GYRE_OK);
    close(fd);
    base_time_t start = base_now();
    memcpy(mine, all + 32 * ((rank + 1) % n), 32);
    mine[31] ^= 1; /* another host */
    RANK_CHECK(comm_watch_fetch(watch, mine, 12, &fd, SOON) == GYRE_ERR_UNSUPPORTED);
    mine[31] ^= 1;
    mine[0] ^= 1; /* no process of this host */
    RANK_CHECK(comm_watch_fetch(watch, mine, 12, &fd, SOON) == GYRE_ERR_UNSUPPORTED);
    RANK_CHECK(base_now() - start < 5000000000);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    for (uint64_t key = 0; key < 40; key++)
        comm_watch_withdraw(watch, key);
    close(window);
    return 0;
}

static void fetch(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(1, 1, fetch_body, NULL), 0);
    assert_int_equal(boot_job_threads(2, 1, fetch_body, NULL), 0);
    assert_int_equal(boot_job_processes(4, 1, fetch_body, NULL, NULL, 20.0), 0);
}

static void alone(comm_identity_t *who, unsigned char fill)
{
    memset(who, 0, sizeof(*who));
    who->size = 1;
    who->root_fd = -1;
    who->have_secret = 1;
    memset(who->secret, fill, sizeof(who->secret));
    strcpy(who->job, "test");
}

/* A singleton that offers nothing has no socket and no thread; two with one secret can trade windows. */
static void singletons(void **state)
{
    (void)state;
    comm_identity_t who;
    comm_boot_t *boot[3];
    comm_watch_t *watch[3];
    unsigned char address[32];
    int fd = -1;
    int before = descriptors();
    for (int i = 0; i < 3; i++) {
        alone(&who, i == 2 ? 1 : 0); /* the last one has another secret */
        assert_int_equal(comm_boot_join(&who, SOON, &boot[i]), GYRE_OK);
        assert_int_equal(comm_watch_start(boot[i], &watch[i]), GYRE_OK);
    }
    assert_int_equal(descriptors(), before);
    assert_int_equal(comm_boot_barrier(boot[0], SOON), GYRE_OK);
    _Atomic int wakes = 0;
    comm_watch_sleeper_t sleeper = {.wake = count_wake, .user = &wakes};
    comm_watch_on_trouble(watch[0], &sleeper);
    comm_watch_abort(watch[0], 5, GYRE_ERR_ABORTED, NULL);
    assert_int_equal(atomic_load(&wakes), 1);
    char text[64];
    comm_watch_abort(watch[0], 6, GYRE_ERR_ABORTED, "rank 0 has had enough"); /* the rank is named once */
    assert_int_equal(comm_watch_aborted(watch[0], 6, text, sizeof(text)), GYRE_ERR_ABORTED);
    assert_string_equal(text, "rank 0 has had enough");
    comm_watch_abort(watch[0], 7, GYRE_ERR_ABORTED, "rank 01 is not us");
    assert_int_equal(comm_watch_aborted(watch[0], 7, text, sizeof(text)), GYRE_ERR_ABORTED);
    assert_string_equal(text, "rank 0: rank 01 is not us");
    assert_int_equal(comm_watch_aborted(watch[0], 5, NULL, 0), GYRE_ERR_ABORTED);
    assert_int_equal(descriptors(), before);

    int window = window_of("alone");
    assert_int_equal(comm_watch_offer(watch[0], 3, window), GYRE_OK);
    comm_watch_address(watch[0], address);
    assert_int_equal(comm_watch_fetch(watch[1], address, 3, &fd, SOON), GYRE_OK);
    assert_true(holds(fd, "alone"));
    close(fd);
    assert_int_equal(comm_watch_fetch(watch[2], address, 3, &fd, SOON), GYRE_ERR_AUTH);
    for (int i = 0; i < 3; i++) {
        comm_watch_stop(watch[i]);
        comm_boot_leave(boot[i], 1);
    }
    close(window);
    assert_int_equal(descriptors(), before);
}

/* A socket, and the name of the window socket of `address`. */
static int window_socket(const unsigned char address[32], struct sockaddr_un *name, socklen_t *bytes)
{
    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    char *p = name->sun_path + 1;
    memcpy(p, "gyre-", 5);
    for (int i = 0; i < 16; i++)
        snprintf(p + 5 + 2 * i, 3, "%02x", address[i]);
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 38);
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

/* Connects to the window socket of `address` without the library. */
static int knock(const unsigned char address[32])
{
    struct sockaddr_un name;
    socklen_t bytes;
    int fd = window_socket(address, &name, &bytes);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);
    return fd;
}

static void *slam(void *arg)
{
    const int listener = *(const int *)arg;
    intptr_t closed = 0;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; closed++)
        close(fd);
    return (void *)closed;
}

/* A peer that closes connections is asked again, but not forever. */
static void fetch_from_one_that_closes(void **state)
{
    (void)state;
    comm_identity_t who;
    comm_boot_t *boot;
    comm_watch_t *watch;
    struct sockaddr_un name;
    socklen_t bytes;
    pthread_t thread;
    unsigned char address[32];
    void *closed;
    int fd = -1;
    alone(&who, 0);
    assert_int_equal(comm_boot_join(&who, SOON, &boot), GYRE_OK);
    assert_int_equal(comm_watch_start(boot, &watch), GYRE_OK);
    comm_watch_address(watch, address);
    address[3] ^= 1;
    int listener = window_socket(address, &name, &bytes);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, bytes), 0);
    assert_int_equal(listen(listener, 100), 0);
    assert_int_equal(pthread_create(&thread, NULL, slam, &listener), 0);
    assert_int_equal(comm_watch_fetch(watch, address, 3, &fd, SOON), GYRE_ERR_TRANSPORT);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, &closed);
    assert_int_equal((intptr_t)closed, 9);
    close(listener);
    comm_watch_stop(watch);
    comm_boot_leave(boot, 1);
}

/* Strangers that say nothing, or nonsense, get nothing and do not keep others from being served. */
static void fetch_among_strangers(void **state)
{
    (void)state;
    comm_identity_t who;
    comm_boot_t *boot[2];
    comm_watch_t *watch[2];
    unsigned char address[32], noise[300];
    int silent[20], fd = -1;
    for (int i = 0; i < 2; i++) {
        alone(&who, 0);
        assert_int_equal(comm_boot_join(&who, SOON, &boot[i]), GYRE_OK);
        assert_int_equal(comm_watch_start(boot[i], &watch[i]), GYRE_OK);
    }
    int window = window_of("among");
    assert_int_equal(comm_watch_offer(watch[0], 3, window), GYRE_OK);
    comm_watch_address(watch[0], address);
    srand(7);
    for (int i = 0; i < 200; i++) {
        int s = knock(address);
        size_t bytes = i % 3 == 0 ? 40 : (size_t)(rand() % 300);
        for (size_t k = 0; k < bytes; k++)
            noise[k] = (unsigned char)rand();
        send(s, noise, bytes, MSG_NOSIGNAL);
        if (i % 3 == 0) {
            char challenge[64], rest[64];
            assert_int_equal(recv(s, challenge, sizeof(challenge), 0), 64);
            send(s, noise, 32, MSG_NOSIGNAL);
            assert_true(recv(s, rest, sizeof(rest), 0) <= 0); /* no descriptor for a forged proof */
        }
        close(s);
    }
    base_time_t start = base_now();
    for (int i = 0; i < 20;
         i++) /* more than are served at a time: their places come free by their deadline */
        silent[i] = knock(address);
    assert_int_equal(comm_watch_fetch(watch[1], address, 3, &fd, SOON), GYRE_OK);
    assert_true(base_now() - start < 5000000000);
    close(fd);
    for (int i = 0; i < 20; i++)
        close(silent[i]);
    for (int i = 0; i < 2; i++) {
        comm_watch_stop(watch[i]);
        comm_boot_leave(boot[i], 1);
    }
    close(window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch),
        cmocka_unit_test(singletons),
        cmocka_unit_test(fetch_among_strangers),
        cmocka_unit_test(fetch_from_one_that_closes),
    };
    base_settings_set(SET_LOG, "none", "test"); /* the failures are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
