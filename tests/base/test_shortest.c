/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Numbers for people: short, and the same when read back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text/shortest.h"

static void known(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *text;
    } one[] = {{0.003, "0.003"},
               {100.0, "100"},
               {1e-8, "1e-08"},
               {65536.0, "65536"},
               {1e12, "1e+12"},
               {0.1, "0.1"},
               {9e15, "9e+15"},
               {-2.5, "-2.5"},
               {0.0, "0"},
               {INFINITY, "inf"},
               {1.0 / 3.0, "0.3333333333333333"}};
    char text[BASE_SHORTEST];
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        assert_string_equal(base_shortest(one[i].value, text), one[i].text);
    assert_non_null(strstr(base_shortest(NAN, text), "nan"));
}

static void reads_back(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252u;
    char text[BASE_SHORTEST];
    for (int i = 0; i < 20000; i++) {
        double value;
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            assert_true(strtod(base_shortest(value, text), NULL) == value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(reads_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
