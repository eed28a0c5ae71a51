/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_file.c: what gets replaced, what gets written to, and what is left when something fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

static char folder[] = "/tmp/gyre-file-XXXXXX";
static char path[64], linked[64], fifo[64];

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/a", folder);
    snprintf(linked, sizeof(linked), "%s/link", folder);
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    unlink(linked);
    unlink(fifo);
    return rmdir(folder); /* fails if a temporary file was left */
}

static gyre_status_t put(const char *to, const char *text)
{
    base_file_t file;
    gyre_status_t status = base_file_begin(to, &file);
    if (status != GYRE_OK)
        return status;
    fputs(text, file.out);
    return base_file_commit(&file);
}

static void holds(const char *from, const char *text)
{
    char got[64] = "";
    FILE *file = fopen(from, "r");
    assert_non_null(file);
    size_t n = fread(got, 1, sizeof(got) - 1, file);
    fclose(file);
    assert_int_equal(n, strlen(text));
    assert_string_equal(got, text);
}

static void replaces_a_file(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(base_file_check(path), 0);
    assert_int_equal(access(path, F_OK), -1); /* a check makes nothing */
    assert_int_equal(put(path, "one"), GYRE_OK);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(base_file_check(path), 0);
    holds(path, "one");
    assert_int_equal(put(path, "two"), GYRE_OK);
    holds(path, "two");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    base_file_t file;
    assert_int_equal(base_file_begin(path, &file), GYRE_OK);
    fputs("three", file.out);
    base_file_abandon(&file);
    holds(path, "two");
}

static void follows_a_link(void **state)
{
    (void)state;
    struct stat info;
    for (int there = 1; there >= 0; there--) {
        assert_int_equal(symlink(path, linked), 0);
        if (!there)
            assert_int_equal(unlink(path), 0);
        assert_int_equal(base_file_check(linked), 0);
        assert_int_equal(access(path, F_OK), there ? 0 : -1);
        assert_int_equal(put(linked, "by link"), GYRE_OK);
        assert_int_equal(lstat(linked, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        holds(path, "by link");
        assert_int_equal(unlink(linked), 0);
    }
}

static void writes_to_what_is_no_file(void **state)
{
    (void)state;
    struct stat info;
    char got[16] = "";
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(fifo, linked), 0);
    int fd = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    const char *const ways[] = {fifo, linked};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(base_file_check(ways[i]), 0);
        assert_int_equal(put(ways[i], "piped"), GYRE_OK);
        assert_int_equal(read(fd, got, sizeof(got)), 5);
        assert_memory_equal(got, "piped", 5);
        assert_int_equal(lstat(fifo, &info), 0);
        assert_true(S_ISFIFO(info.st_mode));
    }
    close(fd);
    assert_int_equal(put("/dev/null", "nothing"), GYRE_OK);
    assert_int_equal(lstat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(put("/dev/full", "too much"), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), "/dev/full"));
}

/* By what they are, not by how they are written. */
static void knows_one_file_by_two_names(void **state)
{
    (void)state;
    char other[96], beside[96];
    snprintf(other, sizeof(other), "%s/./a", folder);
    snprintf(beside, sizeof(beside), "%s/b", folder);
    unlink(path);
    unlink(linked);
    for (int there = 0; there < 2; there++) {
        assert_true(base_file_same(path, path));
        assert_true(base_file_same(path, other));
        assert_false(base_file_same(path, beside));
        assert_false(base_file_same(beside, path));
        assert_int_equal(put(path, "x"), GYRE_OK);
    }
    assert_int_equal(symlink(path, linked), 0);
    assert_true(base_file_same(path, linked));
    assert_int_equal(unlink(linked), 0);
    /* links to what is not there: by where they lead, from the link's folder or from the root */
    assert_int_equal(unlink(path), 0);
    const char *const targets[] = {"a", "./a", path};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(symlink(targets[i], linked), 0);
        assert_true(base_file_same(path, linked));
        assert_true(base_file_same(linked, other));
        assert_false(base_file_same(linked, beside));
        assert_int_equal(unlink(linked), 0);
    }
    assert_int_equal(symlink(linked, linked), 0); /* in a circle */
    assert_false(base_file_same(linked, path));
    assert_int_equal(unlink(linked), 0);
    assert_true(base_file_same("x", "./x"));
    assert_false(base_file_same("/no/such/folder/x", "/no/such/folder/./x"));
    assert_false(base_file_same("/dev/null", "/dev/null"));
    assert_false(base_file_same("-", "-"));
    assert_false(base_file_same(path, NULL));
}

static void refuses(void **state)
{
    (void)state;
    char inside[80];
    assert_int_equal(base_file_check(folder), EISDIR);
    assert_int_equal(put(folder, "x"), GYRE_ERR_IO);
    assert_int_equal(base_file_check("/no/such/folder/x"), ENOENT);
    assert_int_equal(put(path, "x"), GYRE_OK);
    snprintf(inside, sizeof(inside), "%s/x", path);
    assert_int_equal(base_file_check(inside), ENOTDIR);
    assert_true(base_file_check("/proc/gyre-file") != 0); /* also for users whom no permission stops */
}

/* The reason is that of the write that failed, however much came after it. */
static void names_the_reason_of_an_early_write(void **state)
{
    (void)state;
    static char text[100001];
    struct rlimit before, small;
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8192;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    base_file_t file;
    for (size_t pieces = 1; pieces <= 100; pieces += 99) {
        assert_int_equal(base_file_begin(path, &file), GYRE_OK);
        for (size_t i = 0; i < pieces; i++)
            fwrite(text, 1, (sizeof(text) - 1) / pieces, file.out);
        assert_int_equal(base_file_commit(&file), GYRE_ERR_IO);
        assert_non_null(strstr(gyre_last_error(), strerror(EFBIG)));
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
}

/* What a run worked for is not thrown away because its name was taken meanwhile. */
static void keeps_what_cannot_be_renamed(void **state)
{
    (void)state;
    base_file_t file;
    char kept[96];
    unlink(path);
    assert_int_equal(base_file_begin(path, &file), GYRE_OK);
    fputs("weights", file.out);
    snprintf(kept, sizeof(kept), "%s", file.temporary);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(base_file_commit(&file), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), kept));
    holds(kept, "weights");
    assert_int_equal(unlink(kept), 0);
    assert_int_equal(rmdir(path), 0);
}

/* Names that a killed process with this number has left do not stop another one. */
static void passes_over_names_that_are_taken(void **state)
{
    (void)state;
    enum { LEFT = 50 }; /* more than the tests before have counted */
    char left[LEFT][96];
    for (int i = 0; i < LEFT; i++) {
        snprintf(left[i], sizeof(left[i]), "%s.tmp-%ld-%d", path, (long)getpid(), i);
        FILE *file = fopen(left[i], "wx");
        assert_non_null(file);
        fputs("left", file);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(base_file_check(path), 0);
    assert_int_equal(put(path, "mine"), GYRE_OK);
    holds(path, "mine");
    for (int i = 0; i < LEFT; i++) {
        holds(left[i], "left");
        assert_int_equal(unlink(left[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replaces_a_file),
                                       cmocka_unit_test(follows_a_link),
                                       cmocka_unit_test(writes_to_what_is_no_file),
                                       cmocka_unit_test(knows_one_file_by_two_names),
                                       cmocka_unit_test(refuses),
                                       cmocka_unit_test(names_the_reason_of_an_early_write),
                                       cmocka_unit_test(keeps_what_cannot_be_renamed),
                                       cmocka_unit_test(passes_over_names_that_are_taken)};
    return cmocka_run_group_tests(tests, begin, end);
}
