/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_folder.c: what of an old folder stays when it is replaced, and what cannot be replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"

static char around[] = "/tmp/gyre-folder-XXXXXX";

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return mkdtemp(around) == NULL || chdir(around) != 0;
}

static int end(void **state)
{
    (void)state;
    return chdir("/") != 0 || rmdir(around) != 0;
}

static void sh(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static int replaced(const char *name)
{
    return strncmp(name, "part", 4) == 0;
}

static void fill(const base_folder_t *folder, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder->made, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("new", out);
    assert_int_equal(fclose(out), 0);
}

static void replaces(void **state)
{
    (void)state;
    base_folder_t folder;
    assert_int_equal(base_folder_begin("new/", &folder), GYRE_OK); /* not there yet */
    fill(&folder, "a");
    assert_int_equal(base_folder_commit(&folder, replaced), GYRE_OK);
    sh("test \"$(ls)\" = new && test \"$(cat new/a)\" = new");

    sh("echo old >new/a; echo old >new/part1; echo kept >new/kept; ln -s kept new/link; mkdir -m 700 new/sub;"
       "echo kept >new/sub/kept; chmod 750 new; ln -s new link");
    assert_int_equal(base_folder_begin("link/", &folder), GYRE_OK);
    fill(&folder, "a");
    sh("test \"$(cat link/a)\" = old"); /* until the commit */
    base_folder_abandon(&folder);
    sh("test \"$(echo *)\" = 'link new' && test \"$(cat new/a new/part1)\" = \"$(printf 'old\\nold')\"");

    assert_int_equal(base_folder_begin("link/", &folder), GYRE_OK);
    fill(&folder, "a");
    assert_int_equal(base_folder_commit(&folder, replaced), GYRE_OK);
    sh("test \"$(echo *)\" = 'link new' && test \"$(readlink link)\" = new && test \"$(stat -c %a new)\" = "
       "750 &&"
       "test \"$(echo new/*)\" = 'new/a new/kept new/link new/sub' && test \"$(cat new/a)\" = new &&"
       "test \"$(cat new/kept new/link new/sub/kept)\" = \"$(printf 'kept\\nkept\\nkept')\"");
    sh("rm -r link new");
}

static void refuses(void **state)
{
    (void)state;
    sh("echo >file; mkdir closed; chmod 500 closed");
    assert_int_equal(base_folder_check("file"), GYRE_ERR_IO);
    assert_int_equal(base_folder_check("none/new"), GYRE_ERR_IO);
    assert_int_equal(base_folder_check("/proc/none/"), GYRE_ERR_IO);
    assert_int_equal(base_folder_check("."), GYRE_ERR_INVALID);
    assert_int_equal(base_folder_check("/"), geteuid() == 0 ? GYRE_ERR_INVALID : GYRE_ERR_IO);
    assert_int_equal(base_folder_check("/dev/shm"), GYRE_ERR_INVALID);
    if (geteuid() != 0)
        assert_int_equal(base_folder_check("closed"), GYRE_ERR_IO);
    assert_int_equal(base_folder_check("new"), GYRE_OK);
    sh("test \"$(echo *)\" = 'closed file'; rm -r closed file");
}

/* Names that a killed process with this number has left do not stop another one. */
static void passes_over_names_that_are_taken(void **state)
{
    (void)state;
    char name[64];
    base_folder_t folder;
    for (int i = 0; i < 50; i++) { /* more than the tests before have counted */
        snprintf(name, sizeof name, "new.tmp-%ld-%d", (long)getpid(), i);
        assert_int_equal(mkdir(name, 0700), 0);
    }
    assert_int_equal(base_folder_check("new"), GYRE_OK);
    assert_int_equal(base_folder_begin("new", &folder), GYRE_OK);
    fill(&folder, "a");
    assert_int_equal(base_folder_commit(&folder, replaced), GYRE_OK);
    sh("test \"$(cat new/a)\" = new && rm -r new && rmdir new.tmp-*-* && test \"$(ls)\" = ''");
}

/* A folder with its files; of a link the link alone. */
static void removes(void **state)
{
    (void)state;
    sh("mkdir full && touch full/a full/.b && mkdir kept && touch kept/a && ln -s kept link && touch file");
    assert_int_equal(base_folder_remove("full"), 0);
    assert_int_equal(base_folder_remove("link"), 0);
    assert_int_equal(base_folder_remove("file"), 0);
    sh("rm kept/a && rmdir kept && [ ! -e full ] && [ ! -L link ] && [ ! -e file ]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces),
        cmocka_unit_test(refuses),
        cmocka_unit_test(removes),
        cmocka_unit_test(passes_over_names_that_are_taken),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
