/* tests/comm/test_identity.c: who a process is, from config, GYRE_* and torchrun's variables; half of it is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/bootstrap.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const char *const names[] = {
    "GYRE_RANK",    "GYRE_SIZE",           "GYRE_ROOT",   "GYRE_ROOT_FD", "GYRE_SECRET",         "GYRE_JOB",
    "RANK",         "WORLD_SIZE",          "MASTER_ADDR", "MASTER_PORT",  "TORCHELASTIC_RUN_ID", "PMI_RANK",
    "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};

/* The identity that a process with these variables ("NAME=value", ended by NULL) would find. */
static gyre_status_t with(const char *const *variables, const gyre_config_t *config, comm_identity_t *who)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    for (; *variables != NULL; variables++) {
        char name[64];
        const char *value = strchr(*variables, '=');
        snprintf(name, sizeof(name), "%.*s", (int)(value - *variables), *variables);
        setenv(name, value + 1, 1);
    }
    base_settings_reload();
    base_log_set_level(BASE_LOG_NONE);
    memset(who, 0xee, sizeof(*who));
    return comm_identity_find(config, who);
}
#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_ENV   ((const char *const[]){NULL})

static void alone(void **state)
{
    (void)state;
    comm_identity_t a, b;
    assert_int_equal(with(NO_ENV, NULL, &a), GYRE_OK);
    assert_int_equal(a.rank, 0);
    assert_int_equal(a.size, 1);
    assert_int_equal(a.root_fd, -1);
    assert_string_equal(a.root, "");
    assert_string_equal(a.source, "singleton");
    assert_true(a.have_secret);
    assert_int_equal(with(NO_ENV, NULL, &b), GYRE_OK);
    assert_memory_not_equal(a.secret, b.secret, 32); /* random: no two singletons share one */
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=1"), NULL, &a), GYRE_OK);
    assert_int_equal(a.size, 1);
    assert_string_equal(a.source, "GYRE_*");
    assert_int_equal(with(ENV("RANK=0", "WORLD_SIZE=1"), NULL, &a), GYRE_OK);
    assert_string_equal(a.source, "torchrun");
    assert_int_equal(with(ENV("MASTER_ADDR=h", "MASTER_PORT=1"), NULL, &a),
                     GYRE_OK); /* many scripts export these */
    assert_string_equal(a.source, "singleton");
}

/* Tools that speak before gyre_init speak at the same rank. */
static void the_hint_agrees(void **state)
{
    (void)state;
    static const char *const good[][5] = {
        {NULL},
        {"GYRE_RANK=2", "GYRE_SIZE=4", "GYRE_ROOT=127.0.0.1:9", "RANK=1", NULL},
        {"GYRE_RANK=0", "GYRE_SIZE=1", "RANK=3", NULL},
        {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=29500", NULL},
        {"RANK=0", "WORLD_SIZE=1", NULL},
        {"PMI_RANK=3", "OMPI_COMM_WORLD_RANK=3", "SLURM_PROCID=3", NULL}, /* not launchers of ours */
    };
    comm_identity_t who;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(with(good[i], NULL, &who), GYRE_OK);
        assert_int_equal(comm_identity_rank_hint(), who.rank);
    }
    static const char *const bad[][4] = {{"RANK=3", NULL},
                                         {"GYRE_RANK=3", NULL},
                                         {"GYRE_ROOT=h:1", "RANK=2", "WORLD_SIZE=4", NULL},
                                         {"RANK=4", "WORLD_SIZE=4", NULL}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(with(bad[i], NULL, &who), GYRE_OK);
        assert_int_equal(comm_identity_rank_hint(), 0);
    }
}

static void from_gyre(void **state)
{
    (void)state;
    comm_identity_t who;
    assert_int_equal(with(ENV("GYRE_RANK=2", "GYRE_SIZE=4", "GYRE_ROOT=far:1234", "GYRE_SECRET=" SECRET,
                              "GYRE_JOB=j7", "GYRE_ROOT_FD=5", "RANK=1", "WORLD_SIZE=2"),
                          NULL, &who),
                     GYRE_OK);
    assert_int_equal(who.rank, 2);
    assert_int_equal(who.size, 4);
    assert_int_equal(who.root_fd, -1); /* for rank 0 only */
    assert_string_equal(who.root, "far:1234");
    assert_string_equal(who.job, "j7");
    assert_string_equal(who.source, "GYRE_*");
    assert_int_equal(who.secret[1], 0x11);
    assert_int_equal(who.secret[31], 0xff);
    assert_int_equal(
        with(ENV("GYRE_RANK=0", "GYRE_SIZE=4", "GYRE_ROOT=[::1]:1234", "GYRE_ROOT_FD=5"), NULL, &who),
        GYRE_OK);
    assert_int_equal(who.root_fd, 5);
}

static void from_config(void **state)
{
    (void)state;
    comm_identity_t who;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.rank = 1;
    config.nranks = 3;
    config.root = "h:9";
    config.secret = SECRET;
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=x:1"), &config, &who), GYRE_OK);
    assert_int_equal(who.rank, 1);
    assert_int_equal(who.size, 3);
    assert_string_equal(who.root, "h:9");
    assert_string_equal(who.source, "config");
    config.nranks = -1; /* the rest from the environment */
    assert_int_equal(with(ENV("GYRE_SIZE=2"), &config, &who), GYRE_OK);
    assert_int_equal(who.size, 2);
    config.secret = "abc";
    assert_int_equal(with(ENV("GYRE_SIZE=2"), &config, &who), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.secret"));
}

static void from_torchrun(void **state)
{
    (void)state;
    comm_identity_t a, b;
    assert_int_equal(with(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=node0", "MASTER_PORT=29500",
                              "TORCHELASTIC_RUN_ID=run-1"),
                          NULL, &a),
                     GYRE_OK);
    assert_int_equal(a.rank, 1);
    assert_int_equal(a.size, 4);
    assert_string_equal(a.root, "node0:29501"); /* torchrun's own store holds MASTER_PORT */
    assert_string_equal(a.job, "run-1");
    assert_string_equal(a.source, "torchrun");
    assert_true(a.have_secret);
    assert_int_equal(with(ENV("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=node0", "MASTER_PORT=29500",
                              "TORCHELASTIC_RUN_ID=run-1"),
                          NULL, &b),
                     GYRE_OK);
    assert_memory_equal(a.secret, b.secret, 32); /* all ranks derive the same, */
    assert_int_equal(with(ENV("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=node0", "MASTER_PORT=29500",
                              "TORCHELASTIC_RUN_ID=run-2"),
                          NULL, &b),
                     GYRE_OK);
    assert_memory_not_equal(a.secret, b.secret, 32); /* other runs another */
    assert_int_equal(
        with(ENV("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=fe80::1", "MASTER_PORT=29500", "GYRE_SECRET=" SECRET),
             NULL, &b),
        GYRE_OK);
    assert_string_equal(b.root, "[fe80::1]:29501");
    assert_int_equal(b.secret[1], 0x11);
}

/* No secret: only where nobody but this host can knock. */
static void by_hand(void **state)
{
    (void)state;
    static const char *const near[] = {"GYRE_ROOT=127.0.0.1:80", "GYRE_ROOT=localhost:80",
                                       "GYRE_ROOT=[::1]:80"};
    static const char *const far[] = {"GYRE_ROOT=10.0.0.1:80", "GYRE_ROOT=node0:80",
                                      "GYRE_ROOT=localhost.evil:80", "GYRE_ROOT=127.evil.org:80",
                                      "GYRE_ROOT=[2001:db8::1]:80"};
    comm_identity_t who, again;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", near[i]), NULL, &who), GYRE_OK);
        assert_true(who.have_secret);
        assert_int_equal(with(ENV("GYRE_RANK=1", "GYRE_SIZE=2", near[i]), NULL, &again), GYRE_OK);
        assert_memory_equal(who.secret, again.secret, 32);
        assert_int_equal(with(ENV("GYRE_RANK=1", "GYRE_SIZE=2", near[i], "GYRE_JOB=other"), NULL, &again),
                         GYRE_OK);
        assert_memory_not_equal(who.secret, again.secret, 32);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", far[i]), NULL, &who), GYRE_ERR_AUTH);
        assert_non_null(strstr(gyre_last_error(), "od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'"));
    }
}

/* Each broken environment is INVALID and names the variable. */
static void broken(void **state)
{
    (void)state;
    static const struct {
        const char *variables[8];
        const char *named;
    } cases[] = {
        {{"GYRE_RANK=1", NULL}, "GYRE_SIZE"},
        {{"GYRE_SIZE=2", NULL}, "GYRE_RANK"},
        {{"GYRE_ROOT=h:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=1", "GYRE_SIZE=2", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=2", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK=2"},
        {{"GYRE_RANK=-3", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=0", "GYRE_SIZE=0", NULL}, "GYRE_SIZE"},
        {{"GYRE_RANK=x", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:0", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:65536", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:12x", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=:12", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=::1:12", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", "GYRE_SECRET=abcd", NULL}, "GYRE_SECRET"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1",
          "GYRE_SECRET=0011223344556677889zaabbccddeeff00112233445566778899aabbccddeeff", NULL},
         "GYRE_SECRET"},
        {{"GYRE_JOB=0123456789012345678901234567890123456789012345678901234567890123", NULL}, "GYRE_JOB"},
        {{"RANK=0", NULL}, "WORLD_SIZE"},
        {{"WORLD_SIZE=2", NULL}, "RANK"},
        {{"RANK=0", "WORLD_SIZE=2", NULL}, "MASTER_ADDR"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", NULL}, "MASTER_PORT"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65535", NULL}, "MASTER_PORT"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=0", NULL}, "MASTER_PORT"},
        {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=10", NULL}, "RANK=2"},
        {{"RANK=1x", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=10", NULL}, "RANK=1x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        comm_identity_t who, untouched;
        memset(&untouched, 0xee, sizeof(untouched));
        gyre_status_t st = with(cases[i].variables, NULL, &who);
        if (st != GYRE_ERR_INVALID || strstr(gyre_last_error(), cases[i].named) == NULL)
            fail_msg("case %zu (%s): status %d, \"%s\"", i, cases[i].variables[0], (int)st,
                     gyre_last_error());
        assert_memory_equal(&who, &untouched, sizeof(who)); /* outputs are set only on success */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),       cmocka_unit_test(the_hint_agrees), cmocka_unit_test(from_gyre),
        cmocka_unit_test(from_config), cmocka_unit_test(from_torchrun),   cmocka_unit_test(by_hand),
        cmocka_unit_test(broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
