/* SPDX-License-Identifier: Apache-2.0 */
/* tests/arm/cmocka.h: as much of cmocka as the tests of tests/arm/check use, for a compiler that has no
 * library of cmocka for its processor. The first check that fails ends the program. */
#ifndef TESTS_ARM_CMOCKA_H
#define TESTS_ARM_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define assert_true(condition)                                                        \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)
#define assert_false(condition)      assert_true(!(condition))
#define assert_non_null(pointer)     assert_true((pointer) != NULL)
#define assert_int_equal(a, b)       assert_true((unsigned long long)(a) == (unsigned long long)(b))
#define assert_string_equal(a, b)    assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define print_message                printf
#define fail_msg(...)                 \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fprintf(stderr, "\n");        \
        exit(1);                      \
    } while (0)

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(function) \
    {                              \
#function, function        \
    }
#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_run((tests), sizeof(tests) / sizeof(tests)[0], (setup), (teardown))

static inline int cmocka_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **),
                             int (*teardown)(void **))
{
    void *state = NULL;
    if (setup && setup(&state) != 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        tests[i].run(&state);
        printf("ok    %s\n", tests[i].name);
    }
    return teardown ? teardown(&state) : 0;
}

#endif
