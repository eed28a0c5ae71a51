/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_hostile.c: strangers that have a job's address and not its secret. Whatever they
 * send, the job forms, what it gathers is right, each kind of stranger costs one line of the log, and it all
 * ends in time. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "tests/base/capture.h"
#include "tests/support/boot_job.h"

#define SOON base_deadline(20.0)
enum { RANKS = 5, EACH = 30, CROWD = 450 };

typedef struct {
    comm_identity_t who;
    gyre_status_t status;
    char error[512];
    pthread_t thread;
} member_t;

static void *member_main(void *user)
{
    member_t *m = user;
    comm_boot_t *boot = NULL;
    m->status = comm_boot_join(&m->who, SOON, &boot);
    if (m->status == GYRE_OK) {
        int mine = m->who.rank * 7 + 1, all[RANKS];
        m->status = comm_boot_all_gather(boot, &mine, sizeof(mine), all, SOON);
        for (int r = 0; r < RANKS && m->status == GYRE_OK; r++)
            if (all[r] != r * 7 + 1)
                m->status = GYRE_ERR_INTERNAL;
    }
    snprintf(m->error, sizeof(m->error), "%s", m->status == GYRE_OK ? "" : gyre_last_error());
    comm_boot_leave(boot, 1);
    return NULL;
}

static void member_start(member_t *m, const boot_job_t *job, int rank)
{
    boot_job_identity(job, rank, &m->who);
    assert_int_equal(pthread_create(&m->thread, NULL, member_main, m), 0);
}

static void members_end(member_t *m, int n)
{
    for (int r = 0; r < n; r++) {
        pthread_join(m[r].thread, NULL);
        if (m[r].status != GYRE_OK)
            fail_msg("rank %d: %s", r, m[r].error);
    }
}

/* How often `word` stands in the text. */
static int times(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

/* ---- one of each kind ---------------------------------------------------------------------------------- */

static const unsigned char a_hello[64] = "GYREBT2\n\1\0\0\0\2\0\0\0\5\0\0\0\0\0\0";

/* A hello, whatever is answered, and then `bytes` of what claims to be a proof. */
static void forge(int port, const unsigned char *hello, const unsigned char *proof, size_t bytes)
{
    unsigned char challenge[72];
    int fd = boot_job_dial(port, 0);
    send(fd, hello, 64, MSG_NOSIGNAL);
    assert_int_equal(recv(fd, challenge, sizeof(challenge), MSG_WAITALL), 72);
    send(fd, proof, bytes, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    char more;
    assert_true(recv(fd, &more, 1, 0) <= 0); /* nothing for a forged proof */
    close(fd);
}

/* Relays one honest rank's joining through `fd` (its connection to the stranger) to rank 0, and keeps the
 * rank's bytes. */
static size_t eavesdrop(int fd, int port, unsigned char *said, size_t room)
{
    int root = boot_job_dial(port, 0);
    size_t n = 0;
    struct pollfd p[2] = {{fd, POLLIN, 0}, {root, POLLIN, 0}};
    for (;;) {
        unsigned char part[4096];
        if (poll(p, 2, 10000) <= 0)
            break;
        ssize_t got = p[0].revents ? recv(fd, part, sizeof(part), 0) : 0;
        if (p[0].revents && got <= 0)
            break;
        if (got > 0 && n + (size_t)got <= room) {
            memcpy(said + n, part, (size_t)got);
            n += (size_t)got;
        }
        if (got > 0)
            send(root, part, (size_t)got, MSG_NOSIGNAL);
        got = p[1].revents ? recv(root, part, sizeof(part), 0) : 0;
        if (p[1].revents && got <= 0)
            break;
        if (got > 0)
            send(fd, part, (size_t)got, MSG_NOSIGNAL);
    }
    close(root);
    close(fd);
    return n;
}

typedef struct {
    int listener, port;
    unsigned char said[8192];
    size_t bytes;
} spy_t;

static void *spy_main(void *user)
{
    spy_t *spy = user;
    int fd = accept(spy->listener, NULL, NULL);
    if (fd >= 0)
        spy->bytes = eavesdrop(fd, spy->port, spy->said, sizeof(spy->said));
    return NULL;
}

/* The bytes of an honest rank to rank 0 of another job with the same secret and job id: a replay must come as
 * close. */
static size_t record(unsigned char *said, size_t room)
{
    boot_job_t job, front;
    member_t m[RANKS];
    pthread_t thread;
    spy_t *spy = calloc(1, sizeof(*spy));
    assert_non_null(spy);
    boot_job_begin(&job, RANKS);
    boot_job_begin(&front, RANKS);
    spy->listener = front.root_fd;
    spy->port = job.port;
    assert_int_equal(pthread_create(&thread, NULL, spy_main, spy), 0);
    for (int r = 0; r < RANKS; r++)
        member_start(&m[r], r == 1 ? &front : &job, r);
    members_end(m, RANKS);
    pthread_join(thread, NULL);
    boot_job_end(&job);
    boot_job_end(&front);
    size_t n = spy->bytes < room ? spy->bytes : room;
    memcpy(said, spy->said, n);
    free(spy);
    return n;
}

static void each_kind(void **state)
{
    (void)state;
    boot_job_t job;
    member_t m[RANKS];
    unsigned char said[4096], noise[65536], other[64], asks[64];
    static char log[200000];
    size_t heard = record(said, sizeof(said));
    assert_true(heard > 96 + 32);
    randombytes_buf(noise, sizeof(noise));
    memcpy(other, a_hello, sizeof(other));
    other[6] = '1';
    memcpy(asks, a_hello, sizeof(asks));
    asks[8] = BOOT_ROLE_ASK;
    boot_job_begin(&job, RANKS);
    capture_t capture = capture_begin();
    for (int r = 0; r < RANKS - 1; r++)
        member_start(&m[r], &job, r);
    base_time_t start = base_now();
    for (int i = 0; i < EACH; i++) {
        char answer[80];
        int fd = boot_job_dial(job.port, 0); /* another protocol */
        send(fd, "GET / HTTP/1.1\r\nHost: gyre\r\n\r\n", 30, MSG_NOSIGNAL);
        assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
        close(fd);
        fd = boot_job_dial(job.port, 0); /* far too much of anything */
        send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
        assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
        close(fd);
        fd = boot_job_dial(job.port, 0); /* a truncated hello */
        send(fd, a_hello, (size_t)(i * 2), MSG_NOSIGNAL);
        close(fd);
        fd = boot_job_dial(job.port, 0); /* another version */
        send(fd, other, sizeof(other), MSG_NOSIGNAL);
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), BOOT_MAGIC_BYTES);
        assert_memory_equal(answer, "GYRECH2\n", 8);
        close(fd);
        forge(job.port, a_hello, noise, 32);          /* a proof out of thin air */
        forge(job.port, said, said + 64, heard - 64); /* all bytes that an honest rank once sent */
        forge(job.port, said, said + 64, 20);         /* half of it */
        forge(job.port, asks, noise, 32);             /* a stranger that only asks must prove as much */
    }
    assert_true(base_now() - start < 20000000000);
    member_start(&m[RANKS - 1], &job, RANKS - 1);
    members_end(m, RANKS);
    capture_end(capture, log, sizeof(log));
    boot_job_end(&job);
    if (times(log, "another protocol") != 0 || times(log, "does not speak Gyre's bootstrap") != 1 ||
        times(log, "closed during the handshake (") != 1 || times(log, "it speaks version 1") != 1 ||
        times(log, "does not know the job's secret") + times(log, "its secret or job id may differ") != 1 ||
        times(log, "connections were refused in all") != 1 || times(log, "\n") != 5)
        fail_msg("the log is:\n%s", log);
    char all[64];
    snprintf(all, sizeof(all), "%d connections were refused in all", 8 * EACH);
    assert_non_null(strstr(log, all));
}

/* A rank of another version gets the other's version, at once. */
static void *old_root(void *user)
{
    char hello[64];
    int fd = accept(*(int *)user, NULL, NULL);
    recv(fd, hello, sizeof(hello), MSG_WAITALL);
    send(fd, "GYRECH7\n", 8, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void version_at_the_root(void **state)
{
    (void)state;
    boot_job_t job;
    member_t m;
    pthread_t thread;
    boot_job_begin(&job, RANKS);
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(pthread_create(&thread, NULL, old_root, &job.root_fd), 0);
    base_time_t start = base_now();
    member_start(&m, &job, 3);
    pthread_join(m.thread, NULL);
    pthread_join(thread, NULL);
    base_log_set_level(BASE_LOG_WARNING);
    assert_int_equal(m.status, GYRE_ERR_BOOTSTRAP);
    assert_non_null(strstr(m.error, "speaks version 7"));
    assert_true(base_now() - start < 15000000000); /* not at its deadline */
    boot_job_end(&job);
}

/* ---- crowds -------------------------------------------------------------------------------------------- */

typedef struct {
    int port, n;
    int *fd;
    _Atomic int stop;
    pthread_t thread;
} crowd_t;

/* Keeps every connection just alive: a byte now and then, and a new one for each that was closed. */
static void *crowd_main(void *user)
{
    crowd_t *crowd = user;
    for (unsigned turn = 0; !atomic_load(&crowd->stop); turn++) {
        for (int i = 0; i < crowd->n; i++) {
            unsigned char byte = a_hello[turn % 64];
            if (crowd->fd[i] >= 0 && send(crowd->fd[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
                continue;
            if (crowd->fd[i] >= 0)
                close(crowd->fd[i]);
            crowd->fd[i] = boot_job_dial(crowd->port, SOCK_NONBLOCK);
        }
        nap(100);
    }
    return NULL;
}

/* More half-open connections than are let in at a time come first, stay, and come back: the ranks still
 * find in. */
static void slow_crowd(void **state)
{
    (void)state;
    boot_job_t job;
    member_t m[RANKS];
    static int fds[CROWD];
    static char log[200000];
    boot_job_begin(&job, RANKS);
    crowd_t crowd = {.port = job.port, .n = CROWD, .fd = fds};
    for (int i = 0; i < CROWD; i++)
        fds[i] = boot_job_dial(job.port, 0);
    capture_t capture = capture_begin();
    assert_int_equal(pthread_create(&crowd.thread, NULL, crowd_main, &crowd), 0);
    for (int r = 0; r < RANKS; r++)
        member_start(&m[r], &job, r);
    members_end(m, RANKS); /* within their deadline: it takes about two seconds */
    atomic_store(&crowd.stop, 1);
    pthread_join(crowd.thread, NULL);
    capture_end(capture, log, sizeof(log));
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    boot_job_end(&job);
    if (times(log, "it was slow to prove who it is") != 1 ||
        times(log, "connections were refused in all") != 1 || times(log, "\n") > 4)
        fail_msg("the log is:\n%s", log);
}

/* ---- windows ------------------------------------------------------------------------------------------- */

static int knock(const unsigned char address[32])
{
    struct sockaddr_un name;
    memset(&name, 0, sizeof(name));
    name.sun_family = AF_UNIX;
    memcpy(name.sun_path + 1, "gyre-", 5);
    sodium_bin2hex(name.sun_path + 6, 33, address, 16);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 38);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, bytes), 0);
    return fd;
}

static void crowd_at_the_windows(void **state)
{
    (void)state;
    enum { SILENT = 200, RUDE = 50 };
    comm_identity_t who = {.rank = 0, .size = 1, .root_fd = -1, .have_secret = 1};
    comm_boot_t *boot[2];
    comm_watch_t *watch[2];
    unsigned char address[32], noise[4096] = {1};
    int silent[SILENT], fd = -1;
    static char log[200000];
    strcpy(who.job, "windows");
    capture_t capture = capture_begin();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(comm_boot_join(&who, SOON, &boot[i]), GYRE_OK);
        assert_int_equal(comm_watch_start(boot[i], &watch[i]), GYRE_OK);
    }
    int window = memfd_create("window", MFD_CLOEXEC);
    assert_int_equal(comm_watch_offer(watch[0], 3, window), GYRE_OK);
    comm_watch_address(watch[0], address);
    for (int i = 0; i < RUDE; i++) {
        char challenge[64], rest[64];
        int s = knock(address);
        send(s, noise, i % 2 ? 40 : sizeof(noise), MSG_NOSIGNAL);
        if (i % 2) {
            assert_int_equal(recv(s, challenge, sizeof(challenge), 0), 64);
            send(s, noise, 32, MSG_NOSIGNAL);
        }
        assert_true(recv(s, rest, sizeof(rest), 0) <= 0);
        close(s);
    }
    for (int i = 0; i < SILENT; i++)
        silent[i] = knock(address);
    assert_int_equal(comm_watch_fetch(watch[1], address, 3, &fd, SOON), GYRE_OK);
    close(fd);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    for (int i = 0; i < 2; i++) {
        comm_watch_stop(watch[i]);
        comm_boot_leave(boot[i], 1);
    }
    capture_end(capture, log, sizeof(log));
    close(window);
    if (times(log, "does not speak Gyre's protocol") != 1 ||
        times(log, "does not know the job's secret") != 1 ||
        times(log, "it was slow to prove who it is") != 1 || times(log, "were refused in all") != 1 ||
        times(log, "\n") != 4)
        fail_msg("the log is:\n%s", log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),
        cmocka_unit_test(version_at_the_root),
        cmocka_unit_test(slow_crowd),
        cmocka_unit_test(crowd_at_the_windows),
    };
    if (sodium_init() < 0)
        return 99;
    base_settings_load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
