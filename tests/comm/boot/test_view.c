/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_view.c: a membership that this rank has no addresses for, newcomers of a failed
 * attempt to grow or that die early, who hears of a death, and how long the kernel waits for a neighbour. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "comm/boot/shrink.h"

static comm_boot_t *boot_of(int rank, int size)
{
    comm_identity_t who = {.rank = rank, .size = size, .have_secret = 1, .root_fd = -1, .job = "test"};
    comm_boot_t *boot = boot_new(&who);
    assert_non_null(boot);
    boot->places = calloc((size_t)size, sizeof(*boot->places));
    assert_non_null(boot->places);
    boot->places_n = size;
    return boot;
}

/* The job grew while the ranks above this one died: later decisions have ranks that this one does not
 * know. */
static void a_missed_growth(void **state)
{
    (void)state;
    comm_boot_t *boot = boot_of(1, 2);
    boot_addr_t addr;
    unsigned char view[12 + 3 * 4];
    const uint32_t words[6] = {2, 4, 3, 0, 1, 3}; /* epoch 2: ranks 0, 1 and 3 of 4 */
    for (int i = 0; i < 6; i++)
        boot_put32(view + 4 * i, words[i]);
    pthread_mutex_lock(&boot->lock);
    assert_true(boot_shrink_keep_sane(boot, view, sizeof(view)));
    assert_int_equal(boot_shrink_take_up(boot), GYRE_ERR_ABORTED);
    assert_non_null(strstr(gyre_last_error(), "rank 1 missed a gyre_comm_grow"));
    assert_non_null(strstr(gyre_last_error(), "rank(s) 2 to 3"));
    assert_int_equal(boot->epoch, 0); /* nothing has changed */
    assert_int_equal(boot->size, 2);
    boot->size = 4; /* and if it had: */
    assert_false(boot_where(boot, 3, &addr));
    assert_false(boot_where(boot, -1, &addr));
    boot_note_death(boot, 3, "gone", 0);
    assert_string_equal(boot_death_of(boot, 3)->how, "gone");
    pthread_mutex_unlock(&boot->lock);
    comm_boot_leave(boot, 1);
}

/* Takes up a membership of n ranks; size: rank numbers given out. */
static void take_up(comm_boot_t *boot, int size, const int *ranks, int n)
{
    unsigned char view[12 + 8 * 4];
    const uint32_t head[3] = {boot->epoch + 1, (uint32_t)size, (uint32_t)n};
    for (int i = 0; i < 3 + n; i++)
        boot_put32(view + 4 * i, i < 3 ? head[i] : (uint32_t)ranks[i - 3]);
    boot->places = realloc(boot->places, (size_t)size * sizeof(*boot->places));
    assert_non_null(boot->places);
    memset(boot->places, 0, (size_t)size * sizeof(*boot->places));
    boot->places_n = size;
    assert_true(boot_shrink_keep_sane(boot, view, (size_t)(12 + 4 * n)));
    assert_int_equal(boot_shrink_take_up(boot), GYRE_OK);
}

/* Another rank, which is ahead, says that rank 2 is dead. */
static void rank_2_is_dead(comm_boot_t *boot)
{
    unsigned char dead[8 + 4];
    boot_contact_t contact = {.rank = 0, .conn = {.fd = -1}, .state = CONTACT_OPEN};
    boot_put32(dead, 2);
    boot_put32(dead + 4, 0);
    memcpy(dead + 8, "gone", 4);
    boot_shrink_said(boot, &contact, &(boot_message_t){BOOT_DEAD, dead, sizeof(dead)});
}

/* A newcomer dies, and a rank hears that before it hears of the membership with the newcomer. Else it would
 * wait for the newcomer, and the others would leave it out as a rank that does not come. */
static void a_death_ahead_of_the_growth(void **state)
{
    (void)state;
    comm_boot_t *boot = boot_of(1, 2);
    pthread_mutex_lock(&boot->lock);
    rank_2_is_dead(boot);
    assert_null(boot_first_death(boot, boot->members, boot->members_n)); /* no member has died */
    take_up(boot, 3, (const int[]){0, 1, 2}, 3);
    const boot_death_t *death = boot_first_death(boot, boot->members, boot->members_n);
    assert_non_null(death);
    assert_int_equal(death->rank, 2);
    assert_string_equal(death->how, "gone");
    pthread_mutex_unlock(&boot->lock);
    comm_boot_leave(boot, 1);
}

/* All that knew the newcomer die, too: its number is given to the next one, which lives. */
static void a_death_of_nobody(void **state)
{
    (void)state;
    comm_boot_t *boot = boot_of(1, 2);
    pthread_mutex_lock(&boot->lock);
    rank_2_is_dead(boot);
    take_up(boot, 2, (const int[]){1}, 1);
    take_up(boot, 3, (const int[]){1, 2}, 2);
    assert_null(boot_first_death(boot, boot->members, boot->members_n));
    pthread_mutex_unlock(&boot->lock);
    comm_boot_leave(boot, 1);
}

/* The leader dialled rank 1 before it knew of a death. Rank 1 has not heard of it, and does not come. */
static void the_leader_tells_all(void **state)
{
    (void)state;
    comm_boot_t *boot = boot_of(0, 3);
    boot_contact_t *contact = calloc(1, sizeof(*contact));
    boot_conn_t other;
    boot_message_t m;
    const char *why = "";
    int fd[2];
    assert_non_null(contact);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    boot_conn_open(&contact->conn, fd[0]);
    boot_conn_open(&other, fd[1]);
    contact->state = CONTACT_OPEN;
    contact->ours = contact->rank = 1;
    contact->hello = (boot_hello_t){BOOT_ROLE_RALLY, 0, 3, 1, 0};
    contact->deadline = BASE_TIME_NEVER;
    boot->contacts = contact;
    pthread_mutex_lock(&boot->lock);
    boot_note_death(boot, 2, "gone", 0);
    boot_settle_death(boot, 2, 0);
    pthread_mutex_unlock(&boot->lock);
    assert_int_equal(comm_boot_shrink(boot, 0.05, base_deadline(5)), GYRE_OK);
    assert_int_equal(boot_conn_read(&other, 4096), BOOT_READ_SOME);
    assert_int_equal(boot_conn_next(&other, &m, &why), 1);
    assert_int_equal(m.type, BOOT_DEAD);
    assert_int_equal(boot_get32(m.data), 2);
    assert_int_equal(boot_conn_next(&other, &m, &why), 1); /* once */
    assert_int_equal(m.type, BOOT_EXPELLED);
    boot_conn_close(&other);
    comm_boot_leave(boot, 1);
}

static boot_contact_t *newcomer(comm_boot_t *boot, base_time_t since, int stale, int *other_end)
{
    boot_contact_t *v = calloc(1, sizeof(*v));
    int fd[2];
    assert_non_null(v);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    boot_conn_open(&v->conn, fd[0]);
    *other_end = fd[1];
    v->state = CONTACT_OPEN;
    v->hello.role = BOOT_ROLE_NEW;
    v->rank = stale;
    v->rallied = 1;
    v->since = since;
    v->deadline = BASE_TIME_NEVER;
    v->next = boot->contacts;
    boot->contacts = v;
    return v;
}

/* An attempt numbered two newcomers and failed; the next one lets one in: the other goes on waiting. */
static void a_second_attempt_to_grow(void **state)
{
    (void)state;
    comm_boot_t *boot = boot_of(0, 1);
    int ends[2];
    boot_contact_t *first = newcomer(boot, 1, 1, &ends[0]), *second = newcomer(boot, 2, 2, &ends[1]);
    /* No newcomer is there to be connected: that fails at once. */
    pthread_mutex_lock(&boot->lock);
    boot->size = 2;
    boot_note_death(boot, 1, "a test's", 0);
    boot->size = 1;
    pthread_mutex_unlock(&boot->lock);
    assert_int_equal(comm_boot_grow(boot, 1, base_deadline(1.0)), GYRE_ERR_PEER_DEAD);
    assert_int_equal(first->state, CONTACT_RETIRED); /* welcomed */
    assert_int_equal(first->rank, 1);
    assert_int_equal(second->state, CONTACT_OPEN);
    assert_int_equal(second->rank, -1);
    assert_int_equal(boot->size, 2);
    assert_int_equal(boot->places_n, 2);
    close(ends[0]);
    close(ends[1]);
    comm_boot_leave(boot, 1);
}

/* Neither sooner than GYRE_HEARTBEAT, which would take a busy rank's host for dead, nor seconds later. */
static void the_kernel_waits_as_long(void **state)
{
    (void)state;
    const struct {
        const char *heartbeat;
        int ms;
    } cases[] = {{"0", (int)(base_setting_standard_seconds(SET_HEARTBEAT) * 1000)},
                 {"0.4", 2000},
                 {"2.5", 2500},
                 {"5", 5000},
                 {"7.25", 7250},
                 {"9.99", 9990},
                 {"600", 600000},
                 {"1000000", 50000000}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ms = 0, idle = 0;
        socklen_t bytes = sizeof(ms);
        assert_true(fd >= 0);
        assert_int_equal(base_settings_set(SET_HEARTBEAT, cases[i].heartbeat, "test"), GYRE_OK);
        boot_socket_tune(fd);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes), 0);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &bytes), 0);
        assert_int_equal(ms, cases[i].ms);
        assert_true(idle >= 1 && 1000 * (int64_t)idle <= ms);
        close(fd);
    }
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missed_growth),          cmocka_unit_test(a_death_ahead_of_the_growth),
        cmocka_unit_test(a_death_of_nobody),        cmocka_unit_test(the_leader_tells_all),
        cmocka_unit_test(a_second_attempt_to_grow), cmocka_unit_test(the_kernel_waits_as_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
