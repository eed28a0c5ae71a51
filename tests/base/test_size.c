/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_size.c: counts of bytes from text, exactly back to text, and about, for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/settings/size.h"

static void parses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"8", 8},
                {"007", 7},
                {"512k", 512 << 10},
                {"512K", 512 << 10},
                {"4kB", 4 << 10},
                {"4KiB", 4 << 10},
                {"4kib", 4 << 10},
                {"64M", 64 << 20},
                {"1g", 1 << 30},
                {"1.5M", 3 << 19},
                {"0.25K", 256},
                {"1.000K", 1 << 10},
                {"1.5GiB", (uint64_t)3 << 29},
                {"16777215.5T", (UINT64_MAX >> 40 << 40) + ((uint64_t)1 << 39)},
                {"3GB", (uint64_t)3 << 30},
                {"2T", (uint64_t)2 << 40},
                {"18446744073709551615", UINT64_MAX},
                {"16777215T", UINT64_MAX >> 40 << 40}};
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1 K",
                                      "1.5",
                                      "1.M",
                                      ".5M",
                                      "1.1K",
                                      "1.5.5M",
                                      "1.1234567M",
                                      "0x10",
                                      "8B",
                                      "4X",
                                      "4MM",
                                      "4iB",
                                      "4Mi",
                                      "4MiBs",
                                      "4KB ",
                                      "1e6",
                                      "1,2",
                                      "1Ki",
                                      "1P",
                                      "18446744073709551616",
                                      "99999999999999999999",
                                      "16777216T",
                                      "18446744073709551615K"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        bytes = 1;
        if (!base_size_parse(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("\"%s\" is %llu", good[i].text, (unsigned long long)bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes = 99;
        if (base_size_parse(bad[i], &bytes))
            fail_msg("\"%s\" was taken for a size", bad[i]);
        assert_int_equal(bytes, 99);
    }
}

static void writes_exactly(void **state)
{
    (void)state;
    char text[BASE_SIZE_TEXT];
    assert_string_equal(base_size_text(0, text), "0");
    assert_string_equal(base_size_text(1000, text), "1000");
    assert_string_equal(base_size_text(1024, text), "1K");
    assert_string_equal(base_size_text(1536, text), "1536");
    assert_string_equal(base_size_text((uint64_t)3 << 30, text), "3G");
    assert_string_equal(base_size_text((uint64_t)4096 << 40, text), "4096T");
    assert_string_equal(base_size_text(UINT64_MAX, text), "18446744073709551615");
    /* what is written is read back: ones, and their neighbours, at each bit */
    for (int bit = 0; bit < 64; bit++)
        for (int more = -1; more <= 1; more++) {
            uint64_t bytes = ((uint64_t)1 << bit) + (uint64_t)(int64_t)more, back;
            if (!base_size_parse(base_size_text(bytes, text), &back) || back != bytes)
                fail_msg("%llu is written as %s", (unsigned long long)bytes, text);
        }
}

static void writes_about(void **state)
{
    (void)state;
    char text[BASE_SIZE_TEXT];
    assert_string_equal(base_size_about(0, text), "0 B");
    assert_string_equal(base_size_about(1023, text), "1023 B");
    assert_string_equal(base_size_about(1024, text), "1 KiB");
    assert_string_equal(base_size_about(1536, text), "1.5 KiB");
    assert_string_equal(base_size_about(2.5, text), "2.5 B");
    assert_string_equal(base_size_about(480.0 * 1024 * 1024, text), "480 MiB");
    assert_string_equal(base_size_about(31.9 * 1024 * 1024 * 1024, text), "32 GiB");
    assert_string_equal(base_size_about(3.0 * 1152921504606846976.0, text), "3 EiB");
    assert_string_equal(base_size_about(1024.0 * 1152921504606846976.0, text), "1024 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),
        cmocka_unit_test(writes_exactly),
        cmocka_unit_test(writes_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
