/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_join_sockets.c: joining with ports in use, roots that are late, and few descriptors.
 * */
/* takes: 8 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "comm/net/held.h"
#include "tests/comm/attempt.h"
#include "tests/support/boot_job.h"

/* ---- sockets ------------------------------------------------------------------------------------------- */

static void port_in_use(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a;
    char port[16];
    boot_job_begin(&job, 2);
    boot_job_identity(&job, 0, &a.who);
    a.who.root_fd = -1; /* so it must bind the port that the job's socket holds */
    a.seconds = 5.0;
    attempt_main(&a);
    snprintf(port, sizeof(port), "port %d", job.port);
    assert_int_equal(a.status, GYRE_ERR_BOOTSTRAP);
    assert_non_null(strstr(a.error, port));
    assert_non_null(strstr(a.error, "in use"));
    assert_non_null(strstr(a.error, "GYRE_PORT_RANGE"));
    boot_job_end(&job);
}

/* The job before this one still holds the port, and leaves it while rank 0 tries. */
static void port_soon_free(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[2];
    boot_job_begin(&job, 2);
    boot_job_identity(&job, 0, &a[0].who);
    a[0].who.root_fd = -1;
    a[0].seconds = 60.0;
    assert_int_equal(pthread_create(&a[0].thread, NULL, attempt_main, &a[0]), 0);
    nap(300);
    boot_job_end(&job);
    attempt_start(&a[1], &job, 1, 60.0);
    attempts_join(a, 2);
}

/* Also where the root has a name: the last attempt must not end in the look-up, for which there is no
 * time. */
static void nobody_at_the_root(void **state)
{
    (void)state;
    static const char *const roots[] = {"127.0.0.1:%d", "localhost:%d"};
    for (size_t k = 0; k < 2; k++) {
        boot_job_t job;
        attempt_t a;
        boot_job_reserve(&job, 2);
        boot_job_identity(&job, 1, &a.who);
        snprintf(a.who.root, sizeof(a.who.root), roots[k], job.port);
        a.seconds = 0.3;
        a.took = BASE_TIME_NEVER;
        for (int tries = 0; tries < 5 && a.took >= 2000000000; tries++) /* on a loaded machine */
            attempt_main(&a);
        assert_int_equal(a.status, GYRE_ERR_BOOTSTRAP);
        assert_true(a.took < 2000000000);
        assert_non_null(strstr(a.error, "refused"));
        assert_non_null(strstr(a.error, a.who.root));
        boot_job_end(&job);
    }
}

/* Rank 0 binds the port itself, and comes last. */
static void root_comes_last(void **state)
{
    (void)state;
    static const char *const roots[] = {"127.0.0.1:%d", "localhost:%d", "[::1]:%d"};
    for (size_t k = 0; k < 3; k++) {
        boot_job_t job;
        attempt_t a[3];
        boot_job_reserve(&job, 3);
        for (int r = 2; r >= 0; r--) {
            boot_job_identity(&job, r, &a[r].who);
            a[r].who.root_fd = -1;
            a[r].seconds = 60.0;
            snprintf(a[r].who.root, sizeof(a[r].who.root), roots[k], job.port);
            if (r == 0)
                nap(50);
            assert_int_equal(pthread_create(&a[r].thread, NULL, attempt_main, &a[r]), 0);
        }
        attempts_join(a, 3);
        boot_job_end(&job);
    }
}

/* What keeps a rank from listening is the error of all, at once, and not a rank that rank 0 waits for. */
static void port_range(void **state)
{
    (void)state;
    boot_job_t job, other;
    attempt_t a[2];
    char taken[32];
    boot_job_begin(&job, 2);
    boot_job_begin(&other, 1); /* holds the only port of the range */
    snprintf(taken, sizeof(taken), "%d-%d", other.port, other.port);
    const char *const ranges[] = {taken, "70000-1"};
    for (int k = 0; k < 2; k++) {
        base_settings_set(SET_PORT_RANGE, ranges[k], "test");
        for (int r = 0; r < 2; r++)
            attempt_start(&a[r], &job, r, 30.0);
        for (int r = 0; r < 2; r++) {
            attempt_end(&a[r]);
            assert_int_equal(a[r].status, k == 0 ? GYRE_ERR_BOOTSTRAP : GYRE_ERR_INVALID);
            assert_non_null(strstr(a[r].error, "GYRE_PORT_RANGE"));
        }
        assert_non_null(strstr(a[0].error, "rank 1 could not join"));
    }
    base_settings_set(SET_PORT_RANGE, "", "test");
    boot_job_end(&other);
    boot_job_end(&job);
}

/* The root's port is the last that a rank takes of the range: a program that joins again finds rank 0 there,
 * and not a rank that is about to leave the job before. */
static void port_of_the_root(void **state)
{
    (void)state;
    boot_job_t job;
    comm_identity_t who;
    boot_addr_t mine;
    char range[32];
    int fd = -1;
    boot_job_reserve(&job, 2);
    boot_job_identity(&job, 1, &who);
    for (int more = 30; more >= 0; more -= 30) {
        memset(&mine, 0, sizeof(mine));
        mine.v4.sin_family = AF_INET;
        mine.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        snprintf(range, sizeof(range), "%d-%d", job.port, job.port + more);
        base_settings_set(SET_PORT_RANGE, range, "test");
        assert_int_equal(boot_listen_child(who.root, &mine, &fd), GYRE_OK);
        assert_int_equal(boot_addr_port(&mine) == job.port, more == 0);
        boot_let_go(fd);
    }
    base_settings_set(SET_PORT_RANGE, "", "test");
    boot_job_end(&job);
}

static _Thread_local int is_cut; /* rank 0 has closed what this thread asks about */

/* Stands for the system's. */
int getpeername(int fd, __SOCKADDR_ARG address, socklen_t *restrict bytes)
{
    if (is_cut) {
        errno = ENOTCONN;
        return -1;
    }
    return (int)syscall(SYS_getpeername, fd, address.__sockaddr__, bytes);
}

/* Rank 0 closes a connection right after the handshake: that is said, whichever call meets it first. */
static void cut_by_the_root(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[2];
    boot_job_begin(&job, 2);
    attempt_start(&a[0], &job, 0, 30.0);
    boot_job_identity(&job, 1, &a[1].who);
    a[1].seconds = 30.0;
    is_cut = 1;
    attempt_main(&a[1]);
    is_cut = 0;
    assert_int_equal(a[1].status, GYRE_ERR_BOOTSTRAP);
    assert_non_null(strstr(a[1].error, "closed the connection while the job was joining"));
    attempt_main(&a[1]);
    attempt_end(&a[0]);
    assert_int_equal(a[0].status, GYRE_OK);
    assert_int_equal(a[1].status, GYRE_OK);
    boot_job_end(&job);
}

static void bad_inherited_socket(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a;
    boot_job_begin(&job, 2);
    boot_job_identity(&job, 0, &a.who);
    a.seconds = 1.0;
    a.who.root_fd = 2; /* no socket */
    attempt_main(&a);
    assert_int_equal(a.status, GYRE_ERR_INVALID);
    a.who.root_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    attempt_main(&a);
    assert_int_equal(a.status, GYRE_ERR_INVALID);
    assert_non_null(strstr(a.error, "GYRE_ROOT_FD"));
    close(a.who.root_fd);
    boot_job_end(&job);
}

/* ---- few descriptors ---------------------------------------------------------------------------------- */

static int tight_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    struct rlimit limit;
    RANK_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 64);
    char mine = (char)comm_boot_rank(boot), all[64];
    RANK_CHECK(comm_boot_all_gather(boot, &mine, 1, all, SOON) == GYRE_OK);
    for (int r = 0; r < comm_boot_size(boot); r++)
        RANK_CHECK(all[r] == (char)r);
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void few_descriptors(void **state)
{
    (void)state;
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    tight.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int failed = boot_job_processes(40, 1, tight_body, NULL, NULL, 30.0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(failed, 0);
}

/* Rank 0 without descriptors for all ranks that join: an error that says what to do, not a spin or a hang. */
static void no_descriptors(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[12];
    int status = 0;
    boot_job_begin(&job, 12);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit tight = {.rlim_cur = 7, .rlim_max = 7}; /* ranks 1, 2, 4, 9, 10 will not fit */
        attempt_t root;
        for (int fd = 3; fd < 7; fd++)
            if (fd != job.root_fd)
                close(fd);
        setrlimit(RLIMIT_NOFILE, &tight);
        boot_job_identity(&job, 0, &root.who);
        root.seconds = 60.0;
        attempt_main(&root);
        _exit(root.status == GYRE_ERR_NO_MEMORY && strstr(root.error, "ulimit -n") ? 0 : 1);
    }
    for (int r = 1; r < 12; r++) {
        if (r == 8) /* which its children wait for */
            continue;
        attempt_start(&a[r], &job, r, 2.5);
    }
    for (int r = 1; r < 12; r++) {
        if (r == 8)
            continue;
        attempt_end(&a[r]);
        assert_int_not_equal(a[r].status, GYRE_OK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    boot_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_in_use),        cmocka_unit_test(port_soon_free),
        cmocka_unit_test(nobody_at_the_root), cmocka_unit_test(root_comes_last),
        cmocka_unit_test(port_range),         cmocka_unit_test(port_of_the_root),
        cmocka_unit_test(cut_by_the_root),    cmocka_unit_test(bad_inherited_socket),
        cmocka_unit_test(few_descriptors),    cmocka_unit_test(no_descriptors),
    };
    if (sodium_init() < 0)
        return 99;
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE); /* the failures are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
