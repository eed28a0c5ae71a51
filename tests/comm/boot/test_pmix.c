/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_pmix.c: the conversation with PMIx, over a library that we play ourselves: what is
 * asked in which order, a server that refuses, contradicts or hangs, and a library that is not there. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "comm/launch/pmix.h"

/* What the server says, and what it was asked. */
static struct {
    uint32_t rank, size, local;
    int init, fence, get;           /* status of these calls */
    int hang;                       /* the fence does not come back until `release` */
    char published[1100], log[256]; /* log: one letter per call */
    pthread_mutex_t lock;
    pthread_cond_t released;
    int release;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

static void note(char call)
{
    size_t n = strlen(server.log);
    server.log[n] = call;
    server.log[n + 1] = '\0';
}

static int fake_init(pmix_id_t *me, pmix_option_t *options, size_t n)
{
    (void)options;
    (void)n;
    note('I');
    snprintf(me->space, sizeof(me->space), "fake.1");
    me->rank = server.rank;
    return server.init;
}

static int fake_finalize(const pmix_option_t *options, size_t n)
{
    (void)options;
    (void)n;
    note('F');
    return 0;
}

static int fake_get(const pmix_id_t *whose, const char *key, const pmix_option_t *options, size_t n,
                    pmix_datum_t **out)
{
    (void)options;
    (void)n;
    assert_string_equal(whose->space, "fake.1");
    pmix_datum_t *datum = calloc(1, sizeof(*datum));
    datum->type = 14;
    if (strcmp(key, "pmix.job.size") == 0) {
        datum->data.number = server.size;
    } else if (strcmp(key, "pmix.local.size") == 0) {
        datum->data.number = server.local;
    } else {
        note('G');
        assert_int_equal(whose->rank, 0);
        assert_string_equal(key, "gyre.test");
        datum->type = 3;
        datum->data.string = strdup(server.published);
        if (server.get != 0) {
            free(datum->data.string);
            free(datum);
            return server.get;
        }
        *out = datum;
        return 0;
    }
    assert_true(whose->rank == UINT32_MAX - 1); /* facts of the job are asked of all its ranks */
    *out = datum;
    return 0;
}

static int fake_put(uint8_t scope, const char *key, pmix_datum_t *value)
{
    note('P');
    assert_int_equal(scope, 3);
    assert_int_equal(value->type, 3);
    assert_string_equal(key, "gyre.test");
    snprintf(server.published, sizeof(server.published), "%s", value->data.string);
    return 0;
}

static int fake_commit(void)
{
    note('C');
    return 0;
}

static int fake_fence(const pmix_id_t *who, size_t whos, const pmix_option_t *options, size_t n)
{
    note('B');
    assert_int_equal(whos, 1);
    assert_true(who->rank == UINT32_MAX - 1);
    assert_int_equal(n, 1);
    assert_string_equal(options->key, "pmix.collect");
    assert_int_equal(options->value.type, 1);
    assert_int_equal(options->value.data.flag, 1);
    pthread_mutex_lock(&server.lock);
    while (server.hang && !server.release)
        pthread_cond_wait(&server.released, &server.lock);
    pthread_mutex_unlock(&server.lock);
    return server.fence;
}

static const char *fake_error(int status)
{
    return status == -25 ? "UNREACHABLE" : "SOME-ERROR";
}

static const pmix_calls_t fake = {fake_init,   fake_finalize, fake_get,  fake_put,
                                  fake_commit, fake_fence,    fake_error};

static void publish(void *user, int size, int local, char *text)
{
    *(int *)user = local;
    snprintf(text, 1024, "card of %d", size);
}

static gyre_status_t talk(pmix_talk_t *t, uint32_t rank, uint32_t size, uint32_t local_size, int *local)
{
    server.rank = rank;
    server.size = size;
    server.local = local_size;
    server.log[0] = '\0';
    *t = (pmix_talk_t){
        .calls = &fake, .rank = (int)rank, .key = "gyre.test", .publish = publish, .user = local};
    return pmix_talk(t, base_deadline(20));
}

static void good(void **state)
{
    (void)state;
    pmix_talk_t t;
    int local = -1;
    assert_int_equal(talk(&t, 0, 4, 4, &local), GYRE_OK);
    assert_string_equal(server.log, "IPCBF");
    assert_string_equal(t.text, "card of 4");
    assert_int_equal(t.size, 4);
    assert_int_equal(local, 1);
    assert_int_equal(talk(&t, 3, 4, 2, &local), GYRE_OK);
    assert_string_equal(server.log, "IBGF");
    assert_string_equal(t.text, "card of 4");
    assert_int_equal(talk(&t, 0, 4, 2, &local), GYRE_OK);
    assert_int_equal(local, 0);
    assert_int_equal(talk(&t, 0, 1, 1, &local), GYRE_OK);
    assert_string_equal(server.log, "IF");
    assert_int_equal(t.size, 1);
}

static void stays_for_mpi(void **state)
{
    (void)state;
    pmix_talk_t t = {.calls = &fake, .rank = 1, .key = "gyre.test", .stay = 1};
    server.rank = 1;
    server.size = 2;
    server.log[0] = '\0';
    assert_int_equal(pmix_talk(&t, base_deadline(20)), GYRE_OK);
    assert_string_equal(server.log, "IBG");
    pmix_leave(&fake, base_deadline(20));
    assert_string_equal(server.log, "IBGF");
}

static void bad(void **state)
{
    (void)state;
    pmix_talk_t t;
    int local;
    server.init = -25;
    assert_int_equal(talk(&t, 0, 2, 2, &local), GYRE_ERR_BOOTSTRAP);
    assert_non_null(strstr(gyre_last_error(), "UNREACHABLE"));
    assert_non_null(strstr(gyre_last_error(), "PMIX_NAMESPACE"));
    assert_string_equal(server.log, "I");
    server.init = 0;
    server.fence = -1;
    assert_int_equal(talk(&t, 1, 2, 2, &local), GYRE_ERR_BOOTSTRAP);
    assert_string_equal(server.log, "IBF"); /* hello and goodbye go together */
    server.fence = 0;
    server.get = -46;
    assert_int_equal(talk(&t, 1, 2, 2, &local), GYRE_ERR_BOOTSTRAP);
    server.get = 0;
    assert_int_equal(talk(&t, 2, 2, 2, &local), GYRE_ERR_BOOTSTRAP); /* rank 2 of 2 */
    assert_int_equal(talk(&t, 0, 0, 0, &local), GYRE_ERR_BOOTSTRAP);
    assert_int_equal(talk(&t, 0, UINT32_MAX, 1, &local), GYRE_ERR_BOOTSTRAP);
    t = (pmix_talk_t){.calls = &fake, .rank = 5, .key = "gyre.test"}; /* PMIX_RANK=5, the server: 0 */
    server.rank = 0;
    server.size = 9;
    assert_int_equal(pmix_talk(&t, base_deadline(20)), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "PMIX_RANK"));
}

/* PMIx's calls have no deadline; Gyre's have. */
static void hangs(void **state)
{
    (void)state;
    static pmix_talk_t t; /* stays in use */
    t = (pmix_talk_t){.calls = &fake, .rank = 1, .key = "gyre.test"};
    server.hang = 1;
    server.rank = 1;
    server.size = 2;
    server.log[0] = '\0';
    assert_int_equal(pmix_talk(&t, base_deadline(0.2)), GYRE_ERR_TIMEOUT);
    pthread_mutex_lock(&server.lock);
    server.release = 1;
    pthread_cond_broadcast(&server.released);
    pthread_mutex_unlock(&server.lock);
}

static void not_here(void **state)
{
    (void)state;
    char why[256] = "";
    assert_null(pmix_load("libgyre-no-such.so.9", why, sizeof(why)));
    assert_non_null(strstr(why, "libgyre-no-such.so.9"));
    assert_null(pmix_load("libm.so.6", why, sizeof(why)));
    assert_non_null(strstr(why, "PMIx_Init"));
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),  cmocka_unit_test(stays_for_mpi), cmocka_unit_test(bad),
        cmocka_unit_test(hangs), cmocka_unit_test(not_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
