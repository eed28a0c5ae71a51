/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Files that are given by mistake are known by how they begin, and text is not one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text/foreign.h"

static void begins(const char *head, size_t bytes, const char *want)
{
    const char *what = base_foreign(head, bytes);
    if (want) {
        assert_non_null(what);
        assert_non_null(strstr(what, want));
    } else {
        assert_null(what);
    }
}
#define BEGINS(head, want) begins(head, sizeof head - 1, want)

static void known(void **state)
{
    (void)state;
    BEGINS("\x1f\x8b\x08\0rest", "gzip");
    BEGINS("\x28\xb5\x2f\xfd\x24", "zstd");
    BEGINS("\xfd"
           "7zXZ\0\0\4",
           "xz");
    BEGINS("BZh91AY&SY\xa1", "bzip2");
    BEGINS("PK\3\4\x14", "zip");
    BEGINS("PAR1\x15\4\x15", "Parquet");
    BEGINS("ARROW1\0\0\xff\xff", "Arrow file");
    BEGINS("\xff\xff\xff\xff\x58\1\0\0\x10\0\0\0\0", "Arrow stream");
    BEGINS("\x93NUMPY\1\0v\0{'descr'", "NumPy");
    BEGINS("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "Git LFS");
    BEGINS("\xff\xfeH\0i\0", "UTF-16");
    BEGINS("\xfe\xff\0H\0i", "UTF-16");
    BEGINS("\xff\xfe\0\0H\0\0\0", "iconv -f UTF-32 ");
    BEGINS("\0\0\xfe\xff\0\0\0H", "iconv -f UTF-32 ");
}

static void others(void **state)
{
    (void)state;
    BEGINS("", NULL);
    BEGINS("\x1f", NULL);
    BEGINS("BZh is how it begins", NULL);
    BEGINS("PAR1 is a word", NULL);
    BEGINS("version https://example.org", NULL);
    BEGINS("\xff\xff\xff\xff\x58\1\0\0\x11\0\0\0\0", NULL);
    BEGINS("\xef\xbb\xbf{\"text\": 1}", NULL);
    assert_null(base_foreign_file("/nowhere/at/all"));
    assert_null(base_foreign_file("/dev/null"));
    assert_null(base_foreign_file("tests/base/test_foreign.c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
