/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/perf/test_perf_parts.c: parts of gyre-perf's subcommands: types, lists of sizes, medians,
 * cold buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/gyre-perf/command.h"

static void test_size_lists(void **state)
{
    (void)state;
    size_t list[3], count;
    assert_true(perf_parse_sizes("64K,25M,1", list, 3, &count));
    assert_true(count == 3 && list[0] == 64 << 10 && list[1] == 25 << 20 && list[2] == 1);
    assert_true(perf_parse_sizes("8", list, 3, &count) && count == 1 && list[0] == 8);
    static const char *const bad[] = {"",     ",",       "1,",  ",1",
                                      "1,,2", "0",       "1,0", "1,x",
                                      "1 2",  "1,2,3,4", "-1",  "1111111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (perf_parse_sizes(bad[i], list, 3, &count))
            fail_msg("\"%s\" passes as a list of sizes", bad[i]);
    }
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {5.0, 1.0, 3.0}, even[] = {8.0, 2.0, 4.0, 6.0};
    assert_true(perf_median(odd, 3) > 2.999 && perf_median(odd, 3) < 3.001);
    assert_true(perf_median(even, 4) > 4.999 && perf_median(even, 4) < 5.001);
    assert_true(perf_median(NULL, 0) < 1e-9);
}

/* Every type by its name, some by a second one, and nothing else. */
static void test_types(void **state)
{
    (void)state;
    gyre_type_t type;
    for (int t = 0; t < GYRE_TYPE_COUNT; t++) {
        assert_true(perf_read_type(&type, gyre_type_name((gyre_type_t)t)) && (int)type == t);
        assert_non_null(strstr(perf_type_names(), gyre_type_name((gyre_type_t)t)));
    }
    assert_true(perf_read_type(&type, "bf16") && type == GYRE_BFLOAT16);
    assert_true(perf_read_type(&type, "fp64") && type == GYRE_FLOAT64);
    assert_true(perf_read_type(&type, "f8e5m2") && type == GYRE_FLOAT8_E5M2);
    static const char *const bad[] = {"", "float8", "Float", "float ", "all", "floa"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (perf_read_type(&type, bad[i]))
            fail_msg("\"%s\" passes as a type", bad[i]);
}

static void test_transports(void **state)
{
    (void)state;
    const char *word = NULL;
    assert_true(perf_read_transport(&word, "ucx"));
    assert_string_equal(word, "ucx");
    assert_true(perf_read_transport(&word, "auto"));
    static const char *const bad[] = {"", "tcp", "uc", "ucxx", "shm|ucx"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (perf_read_transport(&word, bad[i]))
            fail_msg("\"%s\" passes as a transport", bad[i]);
    assert_non_null(strstr(perf_transports(), "auto|shm|ucx"));
}

/* That memory is slower to read afterwards is a matter of time, and so of a quiet machine: gyre-perf --cold
 * shows it. Here: the method has a name, and nothing in or around the range changes, for any last write and
 * any place of lines. */
static void test_cold(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10 };
    perf_cold_t cold;
    static const char *const methods[] = {"clflushopt", "clflush", "dc civac", "a walk through 64 MiB"};
    int known = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        known += strcmp(perf_cold_method(), methods[i]) == 0;
    assert_int_equal(known, 1);
    assert_int_equal(perf_cold_open(&cold), GYRE_OK);
    unsigned char *memory = malloc(BYTES), *same = malloc(BYTES);
    assert_true(memory && same);
    for (size_t i = 0; i < BYTES; i++)
        memory[i] = same[i] = (unsigned char)(i * 167 >> 3);
    perf_cold_flush(&cold, memory, BYTES);
    assert_memory_equal(memory, same, BYTES);
    memory[1013] = same[1013] = 0x5a; /* in a line that is flushed right away */
    perf_cold_flush(&cold, memory + 1013, 100);
    perf_cold_flush(&cold, memory + 7, 0);
    assert_memory_equal(memory, same, BYTES);
    free(memory);
    free(same);
    perf_cold_close(&cold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_lists), cmocka_unit_test(test_median), cmocka_unit_test(test_types),
        cmocka_unit_test(test_transports), cmocka_unit_test(test_cold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
