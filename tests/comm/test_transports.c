/* tests/comm/test_transports.c: the table of transports (comm/transports.c): GYRE_TRANSPORT names its rows
 * and no others, and each row has the calls that comm makes without a check.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "comm/link.h"

static void test_words_of_the_setting(void **state)
{
    char words[256], *rest = NULL;
    int named[COMM_TRANSPORTS] = {0};

    (void)state;
    snprintf(words, sizeof words, "%s", base_setting_row(SET_TRANSPORT).unit);
    for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        const int number = comm_transport_find(word);
        if (strcmp(word, "auto") == 0)
            continue;
        assert_true(number >= 0);
        assert_int_equal(named[number]++, 0);
    }
    for (int i = 0; i < COMM_TRANSPORTS && comm_transports[i]; i++)
        assert_int_equal(named[i], comm_transports[i]->scope != COMM_TO_ITSELF);
}

static void test_numbers(void **state)
{
    int count = 0;

    (void)state;
    for (; count < COMM_TRANSPORTS && comm_transports[count]; count++) {
        assert_int_equal(comm_transport_number(comm_transports[count]), count);
        assert_int_equal(comm_transport_find(comm_transports[count]->name), count);
    }
    assert_int_equal(comm_transport_find("auto"), -1);
    assert_int_equal(comm_transport_is_network(count), 0);
}

static void test_calls(void **state)
{
    int scopes[3] = {0};

    (void)state;
    for (int i = 0; i < COMM_TRANSPORTS && comm_transports[i]; i++) {
        const comm_transport_ops_t *ops = comm_transports[i];
        if (ops->missing)
            continue;
        scopes[ops->scope]++;
        assert_true(ops->send && ops->recv && ops->recv_view && ops->release && ops->their_call);
        assert_true(ops->connect && ops->close);
        if (ops->scope == COMM_BETWEEN_HOSTS) {
            assert_true(ops->introduce && ops->prepare && ops->leave && ops->progress && ops->sleep_on);
            assert_true(ops->lend && ops->reclaim);
        }
    }
    assert_int_equal(scopes[COMM_TO_ITSELF], 1);
    assert_int_equal(scopes[COMM_ON_HOST], 1);
    assert_true(scopes[COMM_BETWEEN_HOSTS] >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_the_setting),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
