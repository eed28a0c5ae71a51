/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_join_names.c: a root whose name has several addresses, of which one is another's. */
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/boot/tree.h"
#include "tests/comm/attempt.h"
#include "tests/support/boot_job.h"

static const char *addresses[2]; /* of every name */

/* Stands for the one of comm/net/resolve.c. */
int boot_resolve(const char *host, int port, base_time_t deadline, struct addrinfo **out)
{
    const struct addrinfo literal = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo **end = out;
    char service[8];
    (void)host;
    (void)deadline;
    snprintf(service, sizeof(service), "%d", port);
    for (int i = 0; i < 2; i++, end = &(*end)->ai_next)
        if (getaddrinfo(addresses[i], service, &literal, end) != 0)
            return EAI_NONAME;
    return 0;
}

/* Listens at the job's port of another address of this host. It answers with `says`, or only closes. */
typedef struct {
    int fd;
    const char *says;
} other_t;

static void *other_main(void *user)
{
    const other_t *other = user;
    for (int fd; (fd = accept(other->fd, NULL, NULL)) >= 0; close(fd))
        if (*other->says)
            (void)send(fd, other->says, strlen(other->says), MSG_NOSIGNAL);
    return NULL;
}

static void join_with(const char *first, const char *second, const char *says)
{
    boot_job_t job;
    attempt_t a[2];
    other_t other = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), says};
    pthread_t thread;
    boot_addr_t at = {.v4 = {.sin_family = AF_INET}};
    addresses[0] = first;
    addresses[1] = second;
    boot_job_begin(&job, 2); /* at 127.0.0.1 */
    at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    boot_addr_set_port(&at, job.port);
    assert_int_equal(bind(other.fd, &at.sa, sizeof(at.v4)), 0);
    assert_int_equal(listen(other.fd, 16), 0);
    assert_int_equal(pthread_create(&thread, NULL, other_main, &other), 0);
    attempt_start(&a[0], &job, 0, 60.0);
    boot_job_identity(&job, 1, &a[1].who);
    snprintf(a[1].who.root, sizeof(a[1].who.root), "two.addresses:%d", job.port);
    a[1].seconds = 60.0;
    assert_int_equal(pthread_create(&a[1].thread, NULL, attempt_main, &a[1]), 0);
    attempts_join(a, 2);
    shutdown(other.fd, SHUT_RDWR); /* ends its accept */
    pthread_join(thread, NULL);
    close(other.fd);
    boot_job_end(&job);
}

static void another_program(void **state)
{
    (void)state;
    join_with("127.0.0.1", "127.0.0.2", "");
    join_with("127.0.0.2", "127.0.0.1", "");
    join_with("127.0.0.2", "127.0.0.1", "SSH-2.0-other\r\n");
}

/* Nobody else: what the only one that answers says is the reason, and not that the last address refuses. */
static void no_rank(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a;
    pthread_t thread;
    addresses[0] = "127.0.0.1";
    addresses[1] = "127.0.0.3";
    boot_job_begin(&job, 2);
    other_t other = {job.root_fd, "SSH-2.0-other\r\n"};
    assert_int_equal(pthread_create(&thread, NULL, other_main, &other), 0);
    boot_job_identity(&job, 1, &a.who);
    snprintf(a.who.root, sizeof(a.who.root), "two.addresses:%d", job.port);
    a.error[0] = '\0';
    for (a.seconds = 0.4; a.seconds < 30 && !strstr(a.error, "is not a Gyre rank"); a.seconds *= 4) {
        attempt_main(&a); /* longer if the answer came too late, as on a loaded machine */
        assert_int_equal(a.status, GYRE_ERR_BOOTSTRAP);
    }
    assert_non_null(strstr(a.error, "is not a Gyre rank"));
    shutdown(job.root_fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    boot_job_end(&job);
}

/* Rank 0 answers at one of them, and does not know this rank's secret: no later attempt would help. */
static void another_secret(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        boot_job_t job;
        attempt_t root, a;
        addresses[first] = "127.0.0.1";
        addresses[1 - first] = "127.0.0.3";
        boot_job_begin(&job, 2);
        attempt_start(&root, &job, 0, 60.0);
        boot_job_identity(&job, 1, &a.who);
        snprintf(a.who.root, sizeof(a.who.root), "two.addresses:%d", job.port);
        a.who.secret[3] ^= 1;
        a.seconds = 60.0;
        attempt_main(&a);
        assert_int_equal(a.status, GYRE_ERR_AUTH);
        assert_non_null(strstr(a.error, "GYRE_SECRET"));
        assert_true(a.took < 30000000000);
        attempt_start(&a, &job, 1, 60.0); /* the right one still gets in */
        attempt_end(&root);
        attempt_end(&a);
        assert_int_equal(root.status, GYRE_OK);
        assert_int_equal(a.status, GYRE_OK);
        boot_job_end(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_program),
        cmocka_unit_test(no_rank),
        cmocka_unit_test(another_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
