/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_join.c: what goes wrong while a job joins: strangers, wrong secrets, wrong numbers,
 * missing ranks. */
/* takes: 4 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "tests/comm/attempt.h"
#include "tests/support/boot_job.h"

/* ---- the secret ---------------------------------------------------------------------------------------- */

static void wrong_secret(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[4], stranger;
    boot_job_begin(&job, 4);
    for (int r = 0; r < 3; r++)
        attempt_start(&a[r], &job, r, 60.0);
    boot_job_identity(&job, 3, &stranger.who);
    stranger.who.secret[31] ^= 1;
    stranger.seconds = 5.0;
    attempt_main(&stranger);
    assert_int_equal(stranger.status, GYRE_ERR_AUTH);
    assert_non_null(strstr(stranger.error, "GYRE_SECRET"));
    boot_job_identity(&job, 3, &stranger.who);
    strcpy(stranger.who.job, "another job");
    attempt_main(&stranger);
    assert_int_equal(stranger.status, GYRE_ERR_AUTH);
    attempt_start(&a[3], &job, 3, 60.0); /* the right one still gets in */
    attempts_join(a, 4);
    boot_job_end(&job);
}

static void no_secret(void **state)
{
    (void)state;
    boot_job_t job;
    comm_identity_t who;
    comm_boot_t *boot = NULL;
    boot_job_begin(&job, 2);
    boot_job_identity(&job, 0, &who);
    who.have_secret = 0;
    assert_int_equal(comm_boot_join(&who, SOON, &boot), GYRE_ERR_AUTH);
    boot_job_end(&job);
}

/* ---- strangers and garbage -------------------------------------------------------------------------- */

static uint32_t seed = 12345;
static uint32_t roll(void)
{
    seed = seed * 1664525u + 1013904223u; /* Numerical Recipes */
    return seed >> 8;
}

static void auth_key(const comm_identity_t *who, unsigned char key[32])
{
    comm_boot_t fake = {0};
    memcpy(fake.secret, who->secret, 32);
    strcpy(fake.job, who->job);
    comm_boot_key(&fake, "auth", key);
}

/* An authenticated peer that then sends a broken frame: `kind` chooses how. */
static void garble_after_proof(int port, int rank, int size, int kind)
{
    boot_job_t job = {.n = size, .root_fd = -1, .port = port};
    comm_identity_t who;
    unsigned char key[32], frame[256];
    boot_hello_t hello = {BOOT_ROLE_JOIN, rank, size, 0, 0};
    boot_conn_t conn;
    boot_job_identity(&job, rank, &who);
    auth_key(&who, key);
    assert_int_equal(boot_reach_root(who.root, key, &hello, SOON, &conn), GYRE_OK);
    memset(frame, 0, sizeof(frame));
    boot_put32(frame, kind == 0 ? 0xffffffffu : kind == 1 ? BOOT_FRAME_PAYLOAD + 1u : roll() % 100);
    frame[4] = (unsigned char)roll();
    for (size_t i = 16; i < sizeof(frame); i++)
        frame[i] = (unsigned char)roll();
    if (kind == 3) { /* well-formed, but not what is expected */
        assert_int_equal(boot_conn_send(&conn, (boot_type_t)(roll() % 12), frame, roll() % 200), GYRE_OK);
    } else if (kind == 4) { /* half a frame */
        send(conn.fd, frame, 7, MSG_NOSIGNAL);
    } else {
        send(conn.fd, frame, sizeof(frame), MSG_NOSIGNAL);
    }
    boot_conn_close(&conn);
}

static void garbage(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[3];
    boot_job_begin(&job, 3);
    attempt_start(&a[0], &job, 0, 60.0);
    attempt_start(&a[1], &job, 1, 60.0);
    /* plain noise of every length, some of it beginning like a hello */
    for (int i = 0; i < 1500; i++) {
        unsigned char noise[512];
        int fd = boot_job_dial(job.port, 0);
        assert_true(fd >= 0);
        size_t bytes = roll() % sizeof(noise);
        for (size_t k = 0; k < bytes; k++)
            noise[k] = (unsigned char)roll();
        if (i % 2 == 0)
            memcpy(noise, "GYREBT2\n\1\0\0\0\2\0\0\0\3\0\0\0", 20);
        if (bytes > 0)
            send(fd, noise, bytes, MSG_NOSIGNAL);
        close(fd);
    }
    for (int i = 0; i < 300; i++)
        garble_after_proof(job.port, 2, 3, i % 5);
    attempt_start(&a[2], &job, 2, 60.0);
    attempts_join(a, 3);
    boot_job_end(&job);
}

/* Strangers that connect and say nothing hold no rank up, though they come first. */
static void silent_strangers(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[4];
    int silent[20];
    boot_job_begin(&job, 4);
    for (int i = 0; i < 20; i++)
        silent[i] = boot_job_dial(job.port, 0);
    for (int r = 0; r < 4; r++)
        attempt_start(&a[r], &job, r, 60.0);
    attempts_join(a, 4);
    for (int r = 0; r < 4; r++)
        assert_true(a[r].took < 9000000000); /* a stranger has 10 s to say something */
    for (int i = 0; i < 20; i++)
        close(silent[i]);
    boot_job_end(&job);
}

/* Frames: what boot_conn_next accepts is what boot_conn_send made, and nothing else. */
static void frames(void **state)
{
    (void)state;
    int pair[2];
    const char *why = "";
    boot_conn_t a, b;
    boot_message_t m;
    static unsigned char big[200000];
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (unsigned char)roll();
    for (int flip = -1; flip < 60; flip++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        boot_conn_open(&a, pair[0]);
        boot_conn_open(&b, pair[1]);
        memset(a.key_out, 1, 32);
        memset(b.key_in, 1, 32);
        if (flip < 0) { /* several frames per message, read in pieces */
            assert_int_equal(boot_conn_send(&a, BOOT_UP, big, sizeof(big)), GYRE_OK);
            assert_int_equal(boot_conn_send(&a, BOOT_GOODBYE, NULL, 0), GYRE_OK);
            int got;
            while ((got = boot_conn_next(&b, &m, &why)) == 0) {
                boot_conn_flush(&a);
                assert_int_not_equal(
                    boot_conn_read(&b, BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC),
                    BOOT_READ_ERROR);
            }
            assert_int_equal(got, 1);
            assert_int_equal(m.type, BOOT_UP);
            assert_int_equal(m.bytes, sizeof(big));
            assert_memory_equal(m.data, big, sizeof(big));
            while ((got = boot_conn_next(&b, &m, &why)) == 0) {
                boot_conn_flush(&a);
                boot_conn_read(&b, BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC);
            }
            assert_int_equal(got, 1);
            assert_int_equal(m.type, BOOT_GOODBYE);
        } else {
            /* one flipped bit anywhere in a frame of 60 bytes is noticed, or only makes it wait for more */
            assert_int_equal(boot_conn_send(&a, BOOT_DEAD, big, 28), GYRE_OK);
            assert_int_equal(boot_conn_read(&b, 4096), BOOT_READ_SOME);
            b.in.data[flip] ^= (unsigned char)(1u << (roll() % 8));
            int got = boot_conn_next(&b, &m, &why);
            assert_true(got == -1 || (got == 0 && flip < 4));
        }
        boot_conn_close(&a);
        boot_conn_close(&b);
    }
    /* a replayed frame */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    boot_conn_open(&a, pair[0]);
    boot_conn_open(&b, pair[1]);
    assert_int_equal(boot_conn_send(&a, BOOT_DEAD, big, 28), GYRE_OK);
    assert_int_equal(boot_conn_read(&b, 4096), BOOT_READ_SOME);
    assert_true(boot_buf_add(&b.in, b.in.data, 60));
    assert_int_equal(boot_conn_next(&b, &m, &why), 1);
    assert_int_equal(boot_conn_next(&b, &m, &why), -1);
    assert_string_equal(why, "a frame is out of order");
    boot_conn_close(&a);
    boot_conn_close(&b);
}

/* ---- wrong numbers ------------------------------------------------------------------------------------- */

#define LATE  60.0                       /* seconds: a deadline that is not waited for, */
#define EARLY ((base_time_t)30000000000) /* on a loaded machine either */

/* Seconds in which all ranks of a job surely are here, but one that is missing. */
static double until_here(void)
{
    boot_job_t job;
    attempt_t a[8];
    base_time_t most = 0;
    boot_job_begin(&job, 8);
    for (int r = 0; r < 8; r++)
        attempt_start(&a[r], &job, r, LATE);
    attempts_join(a, 8);
    for (int r = 0; r < 8; r++)
        most = a[r].took > most ? a[r].took : most;
    boot_job_end(&job);
    return 0.4 + 4 * (double)most * 1e-9;
}

static void missing_ranks(void **state)
{
    (void)state;
    const double soon = until_here();
    boot_job_t job;
    attempt_t a[8];
    boot_job_begin(&job, 8);
    for (int r = 0; r < 5; r++)
        if (r != 2)
            attempt_start(&a[r], &job, r, r == 0 ? soon : LATE);
    for (int r = 0; r < 5; r++)
        if (r != 2)
            attempt_end(&a[r]);
    assert_int_equal(a[0].status, GYRE_ERR_TIMEOUT);
    assert_true(a[0].took < EARLY);
    assert_non_null(strstr(a[0].error, "rank(s) 2, 5-7 to join (4 of 8 are here)"));
    /* the others get the reason and do not wait for their own deadline */
    for (int r = 1; r < 5; r++)
        if (r != 2) {
            assert_int_not_equal(a[r].status, GYRE_OK);
            assert_true(a[r].took < EARLY);
            if (strstr(a[r].error, "2, 5-7") == NULL)
                fail_msg("rank %d: %s", r, a[r].error);
        }
    boot_job_end(&job);
}

/* For any place of the missing rank in the tree and any order of deadlines: all name the rank, soon after the
 * first deadline. */
static void missing_rank_is_named_by_all(void **state)
{
    (void)state;
    const double soon = until_here();
    const struct {
        int missing;
        double root, others;
        const char *text;
    } cases[] = {
        {4, soon, LATE, "rank(s) 4 to join"}, /* 5 and 6 wait at rank 0, 7 for its parent 6 */
        {4, LATE, soon, "rank(s) 4 to join"},
        {5, LATE, soon, "rank(s) 5 to join"}, /* a leaf: the others are in the tree */
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        boot_job_t job;
        attempt_t a[8];
        boot_job_begin(&job, 8);
        for (int r = 0; r < 8; r++)
            if (r != cases[c].missing)
                attempt_start(&a[r], &job, r, r == 0 ? cases[c].root : cases[c].others);
        for (int r = 0; r < 8; r++) {
            if (r == cases[c].missing)
                continue;
            attempt_end(&a[r]);
            if (a[r].status != GYRE_ERR_TIMEOUT || strstr(a[r].error, cases[c].text) == NULL ||
                a[r].took > EARLY)
                fail_msg("%d is missing, rank %d after %.1f s: %s", cases[c].missing, r,
                         (double)a[r].took * 1e-9, a[r].error);
        }
        boot_job_end(&job);
    }
}

static void joined_twice(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[4], twin;
    boot_job_begin(&job, 4);
    for (int r = 0; r < 4; r++)
        if (r != 2)
            attempt_start(&a[r], &job, r, 60.0);
    nap(150); /* rank 3 now waits for its parent, rank 2 */
    for (int r = 1; r < 4; r += 2) {
        boot_job_identity(&job, r, &twin.who);
        twin.seconds = 60.0;
        attempt_main(&twin);
        assert_int_equal(twin.status, GYRE_ERR_BOOTSTRAP);
        assert_non_null(strstr(twin.error, r == 1 ? "rank 1 joined twice" : "rank 3 joined twice"));
    }
    attempt_start(&a[2], &job, 2, 60.0);
    attempts_join(a, 4);
    boot_job_end(&job);
}

/* Two that prove the secret as rank 1 before either says where it listens. One of them is let in, and rank 0
 * goes on to wait for rank 2. */
static void twins_at_once(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t root;
    comm_identity_t who;
    boot_conn_t twin[2];
    boot_message_t m;
    boot_addr_t addr = {.v4 = {.sin_family = AF_INET, .sin_port = 99}};
    unsigned char key[32], packed[BOOT_ADDR_BYTES];
    const boot_hello_t hello = {BOOT_ROLE_JOIN, 1, 3, 0, 0};
    int let_in = 0, rejected = 0;
    boot_job_begin(&job, 3);
    attempt_start(&root, &job, 0, 0.5);
    boot_job_identity(&job, 1, &who);
    auth_key(&who, key);
    addr.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    boot_addr_pack(&addr, packed);
    for (int i = 0; i < 2; i++)
        assert_int_equal(boot_reach_root(who.root, key, &hello, SOON, &twin[i]), GYRE_OK);
    nap(100); /* both proofs are read */
    for (int i = 0; i < 2; i++)
        assert_int_equal(boot_conn_send(&twin[i], BOOT_JOIN, packed, sizeof(packed)), GYRE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(boot_conn_receive(&twin[i], &m, SOON), GYRE_OK);
        let_in += m.type == BOOT_PARENT;
        rejected += m.type == BOOT_REJECT;
    }
    attempt_end(&root);
    for (int i = 0; i < 2; i++)
        boot_conn_close(&twin[i]);
    assert_int_equal(let_in, 1);
    assert_int_equal(rejected, 1);
    assert_int_equal(root.status, GYRE_ERR_TIMEOUT);
    assert_non_null(strstr(root.error, "for rank(s) 2 to join"));
    boot_job_end(&job);
}

static void wrong_size(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[3], odd;
    boot_job_begin(&job, 3);
    attempt_start(&a[0], &job, 0, 60.0);
    attempt_start(&a[1], &job, 1, 60.0);
    boot_job_identity(&job, 2, &odd.who);
    odd.who.size = 5;
    odd.seconds = 5.0;
    attempt_main(&odd);
    assert_int_equal(odd.status, GYRE_ERR_BOOTSTRAP);
    assert_non_null(strstr(odd.error, "5 ranks"));
    assert_non_null(strstr(odd.error, "rank 0 says 3"));
    attempt_start(&a[2], &job, 2, 60.0);
    attempts_join(a, 3);
    boot_job_end(&job);
}

/* A rank that dies while it waits for its parent may be started again. */
static void died_while_joining(void **state)
{
    (void)state;
    boot_job_t job;
    attempt_t a[4];
    boot_job_begin(&job, 4);
    attempt_start(&a[0], &job, 0, 60.0);
    attempt_start(&a[3], &job, 3, 0.2);
    attempt_end(&a[3]);
    assert_int_equal(a[3].status, GYRE_ERR_TIMEOUT);
    for (int r = 1; r < 4; r++)
        attempt_start(&a[r], &job, r, 60.0);
    attempts_join(a, 4);
    boot_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_secret),
        cmocka_unit_test(no_secret),
        cmocka_unit_test(garbage),
        cmocka_unit_test(silent_strangers),
        cmocka_unit_test(frames),
        cmocka_unit_test(missing_ranks),
        cmocka_unit_test(missing_rank_is_named_by_all),
        cmocka_unit_test(joined_twice),
        cmocka_unit_test(twins_at_once),
        cmocka_unit_test(wrong_size),
        cmocka_unit_test(died_while_joining),
    };
    if (sodium_init() < 0)
        return 99;
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE); /* the failures are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
