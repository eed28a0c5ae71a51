/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/comm/boot/test_pmi.c: PMI-1's wire protocol: its lines, the card that rank 0 publishes, and whole
 * jobs under a launcher that we play ourselves, good and bad. */
/* takes: 3 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"
#include "comm/launch/card.h"
#include "comm/launch/pmi1_parse.h"

enum { RANKS_MAX = 8 };

/* ---- lines and cards ---- */

static void fields(void **state)
{
    (void)state;
    const char *line = "cmd=get_result rc=-7 msg=a value=x y rc=3 cmd=no";
    const char *value;
    size_t n = strlen(line), bytes;
    int number;
    assert_true(pmi1_field_is(line, n, "cmd", "get_result"));
    assert_false(pmi1_field_is(line, n, "cmd", "get_resul"));
    assert_true(pmi1_field_int(line, n, "rc", &number));
    assert_int_equal(number, -7);
    assert_true(pmi1_field(line, n, "value", &value, &bytes)); /* takes the rest, whatever it looks like */
    assert_int_equal(bytes, strlen("x y rc=3 cmd=no"));
    assert_false(pmi1_field(line, n, "no", &value, &bytes));
    assert_false(pmi1_field(line, n, "sg", &value, &bytes)); /* the end of another word */
    assert_false(pmi1_field(line, n, "y rc", &value, &bytes));
    assert_false(pmi1_field("", 0, "cmd", &value, &bytes));
    assert_true(pmi1_field("  a=  b=", 8, "b", &value, &bytes));
    assert_int_equal(bytes, 0);
    static const char *const bad[] = {"rc=", "rc=-", "rc=1x", "rc=1234567890", "rc=--1", "rc", "rc= 1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(pmi1_field_int(bad[i], strlen(bad[i]), "rc", &number));
}

static void cards(void **state)
{
    (void)state;
    char text[MEET_CARD_MAX], cut[MEET_CARD_MAX];
    meet_card_t card = {.have_secret = 1, .root = "10.0.0.1:5,[fe80::1%eth0]:5"}, again;
    memset(card.secret, 0x5a, sizeof(card.secret));
    meet_card_make(&card, text);
    assert_int_equal(strcspn(text, " \n="), strlen(text)); /* any PMI takes it */
    assert_true(meet_card_parse(text, strlen(text), &again));
    assert_memory_equal(&card, &again, sizeof(card));
    card.have_secret = 0;
    memset(card.secret, 0, sizeof(card.secret));
    meet_card_make(&card, text);
    assert_true(meet_card_parse(text, strlen(text), &again));
    assert_memory_equal(&card, &again, sizeof(card));
    memset(&card, 0, sizeof(card));
    memset(card.error, 'e', sizeof(card.error) - 1); /* the longest */
    meet_card_make(&card, text);
    assert_true(strlen(text) < MEET_CARD_MAX - 1);
    assert_true(meet_card_parse(text, strlen(text), &again));
    assert_string_equal(again.error, card.error);
    static const char *const bad[] = {
        "",
        "gyre1;",
        "gyre2;-;h:1",
        "gyre1;-",
        "gyre1;-;",
        "gyre1;ab;h:1",
        "gyre1;-;h 1",
        "gyre1;-;h\n1",
        "gyre1;!;",
        "gyre1;!;0",
        "gyre1;!;zz",
        "gyre1;;h:1",
        "gyre1;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1;h:1",
        "gyre1;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20;h:1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (meet_card_parse(bad[i], strlen(bad[i]), &again))
            fail_msg("\"%s\" was taken", bad[i]);
    memset(cut, 'a', sizeof(cut));
    memcpy(cut, "gyre1;-;", 8);
    assert_false(meet_card_parse(cut, 8 + 256, &again)); /* no room for that root */
    assert_true(meet_card_parse(cut, 8 + 255, &again));
}

/* ---- a launcher ---- */

/* What is wrong with it. */
typedef enum {
    HEALTHY,
    REFUSES_INIT,
    NONSENSE,
    NO_END,       /* an answer without a newline */
    SMALL_VALUES, /* values of 16 bytes only */
    CLOSES,       /* at the barrier */
    SILENT,       /* answers no barrier */
    LOSES_VALUES, /* get finds nothing */
    FOREIGN_CARD  /* what rank 0 published comes out as something else */
} fault_t;

typedef struct {
    int n, waiting, finished;
    fault_t fault;
    int fd[RANKS_MAX]; /* -1: closed */
    char key[RANKS_MAX][64], value[RANKS_MAX][1100];
    int values;
    char card[1100]; /* rank 0's */
} server_t;

static void say(int fd, const char *text)
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        perror("fake launcher");
}

static void answer(server_t *s, int r, char *line)
{
    char key[64], text[1400];
    int fd = s->fd[r];
    if (s->fault == NONSENSE)
        say(fd, "HTTP/1.0 400 Bad Request\n");
    else if (s->fault == NO_END) {
        char endless[6000];
        memset(endless, 'x', sizeof(endless) - 1);
        endless[sizeof(endless) - 1] = '\0';
        say(fd, endless);
    } else if (strncmp(line, "cmd=init ", 9) == 0)
        say(fd, s->fault == REFUSES_INIT ? "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"
                                         : "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (strcmp(line, "cmd=get_maxes") == 0)
        say(fd, s->fault == SMALL_VALUES ? "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=16\n"
                                         : "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    else if (strcmp(line, "cmd=get_my_kvsname") == 0)
        say(fd, "cmd=my_kvsname kvsname=kvs_0\n");
    else if (sscanf(line, "cmd=put kvsname=kvs_0 key=%63s value=%1023s", s->key[s->values],
                    s->value[s->values]) == 2) {
        memcpy(s->card, s->value[s->values], sizeof(s->card));
        s->values++;
        say(fd, "cmd=put_result rc=0 msg=success\n");
    } else if (sscanf(line, "cmd=get kvsname=kvs_0 key=%63s", key) == 1) {
        int at = 0;
        while (at < s->values && strcmp(s->key[at], key) != 0)
            at++;
        if (at == s->values || s->fault == LOSES_VALUES)
            snprintf(text, sizeof(text), "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", key);
        else
            snprintf(text, sizeof(text), "cmd=get_result rc=0 msg=success value=%s\n",
                     s->fault == FOREIGN_CARD ? "hello" : s->value[at]);
        say(fd, text);
    } else if (strcmp(line, "cmd=barrier_in") == 0) {
        s->waiting++;
        if (s->fault == CLOSES) {
            close(fd);
            s->fd[r] = -1;
        } else if (s->waiting == s->n && s->fault != SILENT) {
            for (int i = 0; i < s->n; i++)
                say(s->fd[i], "cmd=barrier_out\n");
            s->waiting = 0;
        }
    } else if (strcmp(line, "cmd=finalize") == 0) {
        s->finished++;
        say(fd, "cmd=finalize_ack\n");
    } else {
        fail_msg("the client said \"%s\"", line);
    }
}

/* Serves until all ranks have closed. */
static void serve(server_t *s)
{
    for (;;) {
        struct pollfd polls[RANKS_MAX];
        int open = 0;
        for (int r = 0; r < s->n; r++) {
            polls[r] = (struct pollfd){.fd = s->fd[r], .events = POLLIN};
            open += s->fd[r] >= 0;
        }
        if (!open)
            return;
        if (poll(polls, (nfds_t)s->n, 20000) <= 0)
            fail_msg("the fake launcher waited in vain");
        for (int r = 0; r < s->n; r++) {
            char line[2048];
            if (!(polls[r].revents & (POLLIN | POLLHUP)))
                continue;
            ssize_t n =
                recv(s->fd[r], line, sizeof(line) - 1, 0); /* one request at a time: no rank sends ahead */
            if (n <= 0) {
                close(s->fd[r]);
                s->fd[r] = -1;
                continue;
            }
            assert_int_equal(line[n - 1], '\n');
            line[n - 1] = '\0';
            answer(s, r, line);
        }
    }
}

static double join_seconds = 20; /* less where some ranks are known not to come */

/* One rank: meets, joins, meets again. Its code: 0, or the status that comm_identity_meet gave. */
static int rank_main(int rank, int n, int fd, double seconds, const char *extra)
{
    char text[3][32];
    comm_identity_t who, again;
    comm_boot_t *boot = NULL;
    snprintf(text[0], 32, "%d", rank);
    snprintf(text[1], 32, "%d", n);
    snprintf(text[2], 32, "%d", fd);
    setenv("PMI_RANK", text[0], 1);
    setenv("PMI_SIZE", text[1], 1);
    setenv("PMI_FD", text[2], 1);
    if (extra != NULL && (rank == 0 || strncmp(extra, "GYRE_SECRET", 11) != 0))
        putenv((char *)extra);
    base_settings_reload();
    base_log_set_level(BASE_LOG_NONE);
    gyre_status_t st = comm_identity_find(NULL, &who);
    if (st == GYRE_OK)
        st = comm_identity_meet(&who, base_deadline(seconds));
    if (st != GYRE_OK) {
        return (int)st - 90; /* fits into an exit code */
    }
    if (comm_boot_join(&who, base_deadline(join_seconds), &boot) != GYRE_OK ||
        comm_boot_barrier(boot, base_deadline(20)) != GYRE_OK)
        return 1;
    comm_boot_leave(boot, 1);
    /* gyre_init after gyre_finalize: the launcher is not asked again, and the same socket serves. */
    if (comm_identity_find(NULL, &again) != GYRE_OK ||
        comm_identity_meet(&again, base_deadline(seconds)) != GYRE_OK || strcmp(again.root, who.root) != 0 ||
        (n > 1 && memcmp(again.secret, who.secret, 32) != 0) ||
        comm_boot_join(&again, base_deadline(join_seconds), &boot) != GYRE_OK ||
        comm_boot_barrier(boot, base_deadline(20)) != GYRE_OK)
        return 2;
    comm_boot_leave(boot, 1);
    comm_identity_leave();
    return 0;
}

/* A job of n ranks. codes: [n]. */
static void job(int n, fault_t fault, double seconds, const char *extra, int *codes, server_t *s)
{
    pid_t pids[RANKS_MAX];
    memset(s, 0, sizeof(*s));
    s->n = n;
    s->fault = fault;
    for (int r = 0; r < n; r++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        pids[r] = fork();
        if (pids[r] == 0) {
            close(ends[0]);
            for (int i = 0; i < r; i++)
                close(s->fd[i]);
            alarm(60);
            _exit(rank_main(r, n, ends[1], seconds, extra));
        }
        close(ends[1]);
        s->fd[r] = ends[0];
    }
    serve(s);
    for (int r = 0; r < n; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
}

static void jobs(void **state)
{
    (void)state;
    server_t s;
    int codes[RANKS_MAX];
    for (int n = 1; n <= 5; n++) {
        job(n, HEALTHY, 20, NULL, codes, &s);
        for (int r = 0; r < n; r++)
            assert_int_equal(codes[r], 0);
        assert_int_equal(s.values, n > 1); /* rank 0 alone publishes, once */
        assert_int_equal(s.finished, n > 1 ? n : 0);
    }
    meet_card_t card;
    assert_true(meet_card_parse(s.card, strlen(s.card), &card));
    assert_true(card.have_secret);
}

static void given_secret(void **state)
{
    (void)state;
    server_t s;
    int codes[2];
    static char secret[] = "GYRE_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static char root[] = "GYRE_ROOT=no colon";
    join_seconds = 0.3;
    job(2, HEALTHY, 20, secret, codes, &s); /* rank 0 alone has it, and waits for the other in vain */
    assert_int_equal(codes[1], GYRE_ERR_AUTH - 90);
    assert_non_null(strstr(s.card, "gyre1;-;"));
    assert_null(strstr(s.card, "aabbcc")); /* a secret that was given is not published */
    job(2, HEALTHY, 20, root, codes, &s);
    assert_int_equal(codes[0], GYRE_ERR_INVALID - 90);
}

/* All ranks get rank 0's failure at once: no rank waits for the deadline. */
static void root_fails(void **state)
{
    (void)state;
    server_t s;
    int codes[3];
    static char bad[] = "GYRE_PORT_RANGE=9-1";
    job(3, HEALTHY, 50, bad, codes, &s);
    assert_int_equal(codes[0], GYRE_ERR_BOOTSTRAP - 90);
    assert_int_equal(codes[1], GYRE_ERR_BOOTSTRAP - 90);
    assert_int_equal(codes[2], GYRE_ERR_BOOTSTRAP - 90);
}

static void bad_launchers(void **state)
{
    (void)state;
    static const struct {
        fault_t fault;
        int status[2];
        double seconds;
    } cases[] = {
        {REFUSES_INIT, {GYRE_ERR_BOOTSTRAP, GYRE_ERR_BOOTSTRAP}, 20},
        {NONSENSE, {GYRE_ERR_BOOTSTRAP, GYRE_ERR_BOOTSTRAP}, 20},
        {NO_END, {GYRE_ERR_BOOTSTRAP, GYRE_ERR_BOOTSTRAP}, 20},
        {SMALL_VALUES,
         {GYRE_ERR_BOOTSTRAP, GYRE_ERR_TIMEOUT},
         0.4}, /* the other waits at the barrier for rank 0 */
        {CLOSES, {GYRE_ERR_BOOTSTRAP, GYRE_ERR_BOOTSTRAP}, 20},
        {SILENT, {GYRE_ERR_TIMEOUT, GYRE_ERR_TIMEOUT}, 0.3},
        {LOSES_VALUES, {0, GYRE_ERR_BOOTSTRAP}, 20},
        {FOREIGN_CARD, {0, GYRE_ERR_BOOTSTRAP}, 20},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        server_t s;
        int codes[2];
        job(2, cases[i].fault, cases[i].seconds, cases[i].status[0] == 0 ? (char *)"GYRE_SIZE=" : NULL, codes,
            &s);
        for (int r = 0; r < 2; r++)
            if (cases[i].status[r] != 0 && codes[r] != cases[i].status[r] - 90)
                fail_msg("case %zu, rank %d: code %d", i, r, codes[r]);
    }
}

static void no_socket(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(rank_main(1, 2, 1000, 5, NULL));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), GYRE_ERR_INVALID - 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),       cmocka_unit_test(cards),      cmocka_unit_test(jobs),
        cmocka_unit_test(given_secret), cmocka_unit_test(root_fails), cmocka_unit_test(bad_launchers),
        cmocka_unit_test(no_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
