/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_nodelist.c: Slurm's lists of hosts, good and bad, and that no byte outside of them is
 * looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/launch/nodelist.h"

static void good(void **state)
{
    (void)state;
    static const struct {
        const char *list, *first;
    } cases[] = {
        {"n0", "n0"},
        {"n[0-3,7],m05", "n0"},
        {"m05,n[0-3]", "m05"},
        {"n[007-012]", "n007"},
        {"n[7]", "n7"},
        {"r[1-2]n[08-11]-ib", "r1n08-ib"},
        {"a.b-c_d.example.org", "a.b-c_d.example.org"},
        {"10.0.0.1", "10.0.0.1"},
        {"[1-3]x", "1x"},
        {"n[000000001-999999999]", "n000000001"},
        {"n[0,0,0]", "n0"}, /* Slurm does not write it, but it names hosts */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[64];
        size_t n = strlen(cases[i].list);
        char *exact = malloc(n); /* a byte read beyond it is an error under ASan */
        memcpy(exact, cases[i].list, n);
        if (!comm_nodelist_first(exact, n, host, sizeof(host)) || strcmp(host, cases[i].first) != 0)
            fail_msg("%s: first \"%s\"", cases[i].list, host);
        free(exact);
    }
}

static void bad(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",      ",",      "n0,",     ",n0",           "n0,,n1",   "n[",    "n[]",     "n[1", "n[1-",
        "n[1-]", "n[3-1]", "n[1,]",   "n[a]",          "n]",       "n[1]]", "n[1[2]]", "n 1", "n0\nn1",
        "n0;rm", "n[-1]",  "n[1--2]", "n[1234567890]", "n[1-2-3]", "n/1",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[64] = "x";
        size_t n = strlen(cases[i]);
        char *exact = malloc(n + 1);
        memcpy(exact, cases[i], n);
        if (comm_nodelist_first(exact, n, host, sizeof(host)))
            fail_msg("\"%s\" was taken: first \"%s\"", cases[i], host);
        assert_string_equal(host, "");
        free(exact);
    }
}

static void room(void **state)
{
    (void)state;
    char host[8];
    assert_int_equal(comm_nodelist_first("n123456", 7, host, 8), 1);
    assert_string_equal(host, "n123456");
    assert_int_equal(comm_nodelist_first("n1234567", 8, host, 8), 0);
    assert_int_equal(comm_nodelist_first("n[1234567-1234568]", 18, host, 8), 0);
    assert_int_equal(comm_nodelist_first("n\0m", 3, host, 8), 0); /* a NUL is no letter */
    assert_int_equal(comm_nodelist_first("n", 1, host, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad), cmocka_unit_test(room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
