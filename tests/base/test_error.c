/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_error.c: last errors belong to their thread, are whole lines on stderr, and never
 * overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "tests/base/capture.h"

static void records_and_logs(void **state)
{
    (void)state;
    char text[512];
    capture_t capture = capture_begin();
    errno = EAGAIN;
    gyre_status_t status = gyre_fail(GYRE_ERR_INVALID, "root %d is not in 0..%d", 9, 3);
    int err = errno;
    capture_end(capture, text, sizeof(text));
    assert_int_equal(status, GYRE_ERR_INVALID);
    assert_int_equal(err, EAGAIN);
    assert_string_equal(gyre_last_error(), "root 9 is not in 0..3");
    assert_string_equal(text, "gyre: error: root 9 is not in 0..3\n");
}

static void quiet(void **state)
{
    (void)state;
    char text[512];
    capture_t capture = capture_begin();
    assert_int_equal(gyre_fail_quiet(GYRE_ERR_TIMEOUT, "waited %s", "long"), GYRE_ERR_TIMEOUT);
    capture_end(capture, text, sizeof(text));
    assert_string_equal(text, "");
    assert_string_equal(gyre_last_error(), "waited long");
}

static void with_errno(void **state)
{
    (void)state;
    char text[512];
    capture_t capture = capture_begin();
    assert_int_equal(gyre_fail_errno(GYRE_ERR_IO, ENOENT, "cannot open %s", "x"), GYRE_ERR_IO);
    capture_end(capture, text, sizeof(text));
    assert_string_equal(gyre_last_error(), "cannot open x: No such file or directory");
    assert_string_equal(text, "gyre: error: cannot open x: No such file or directory\n");
}

/* A process that has run out of memory is reminded of the limit that it was given, once. */
static void names_the_address_space(void **state)
{
    (void)state;
    const char *limit = "; ulimit -v allows this process 1073741824 MiB of address space";
    struct rlimit before, large = {.rlim_cur = (rlim_t)1 << 50};
    char text[512], expected[512];
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_max < large.rlim_cur)
        skip();
    large.rlim_max = before.rlim_max;
    capture_t capture = capture_begin();
    gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a job");
    assert_null(strstr(gyre_last_error(), "ulimit"));
    assert_int_equal(setrlimit(RLIMIT_AS, &large), 0);
    gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a job");
    snprintf(expected, sizeof expected, "no memory for a job%s", limit);
    assert_string_equal(gyre_last_error(), expected);
    gyre_fail(GYRE_ERR_NO_MEMORY, "split: %s", gyre_last_error());
    snprintf(expected, sizeof expected, "split: no memory for a job%s", limit);
    assert_string_equal(gyre_last_error(), expected);
    gyre_fail_errno(GYRE_ERR_SYSTEM, EAGAIN, "cannot start a thread");
    assert_non_null(strstr(gyre_last_error(), limit)); /* it has no room for the thread's stack */
    gyre_fail_errno(GYRE_ERR_NO_MEMORY, EMFILE, "cannot open a file");
    assert_null(strstr(gyre_last_error(), limit));
    gyre_fail(GYRE_ERR_INVALID, "root 9 is not in 0..3");
    assert_null(strstr(gyre_last_error(), limit));
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    capture_end(capture, text, sizeof(text));
}

/* An error reported again with more around it. */
static void quotes_itself(void **state)
{
    (void)state;
    gyre_fail_quiet(GYRE_ERR_IO, "inner");
    gyre_fail_quiet(GYRE_ERR_IO, "outer: %s, and %s", gyre_last_error(), gyre_last_error());
    assert_string_equal(gyre_last_error(), "outer: inner, and inner");
}

static void long_text_is_cut(void **state)
{
    (void)state;
    static char big[100000], text[8192];
    memset(big, 'x', sizeof(big) - 1);
    capture_t capture = capture_begin();
    gyre_fail(GYRE_ERR_IO, "%s", big);
    capture_end(capture, text, sizeof(text));
    size_t length = strlen(gyre_last_error());
    assert_in_range(length, 1024, 4095);
    assert_string_equal(gyre_last_error() + length - 3, "...");
    assert_int_equal(strlen(text), strlen("gyre: error: ") + length + 1);
    gyre_fail_quiet(GYRE_ERR_IO, "short"); /* nothing of the long one is left */
    assert_string_equal(gyre_last_error(), "short");
}

/* Whatever was cut or is a file's name: programs that decode it get no other error instead. */
static void text_is_utf8(void **state)
{
    (void)state;
    gyre_fail_quiet(GYRE_ERR_INVALID, "%.4s, na\xefve, \xc3\xa9t\xc3\xa9 and %s", "abc\xc3\xa9", "\xe2\x82");
    assert_string_equal(gyre_last_error(), "abc?, na?ve, \xc3\xa9t\xc3\xa9 and ??");
    char name[5000];
    for (size_t i = 0; i < sizeof(name); i++)
        name[i] = i % 2 ? '\xa9' : '\xc3';
    name[sizeof(name) - 1] = '\0';
    for (int shift = 0; shift < 2; shift++) {
        gyre_fail_quiet(GYRE_ERR_IO, "%s%s", shift ? "a" : "", name);
        const size_t bytes = strlen(gyre_last_error());
        assert_int_equal(base_utf8_span((const unsigned char *)gyre_last_error(), bytes), bytes);
        assert_string_equal(gyre_last_error() + bytes - 3, "...");
    }
}

static void one_line_without_control_characters(void **state)
{
    (void)state;
    char text[512];
    capture_t capture = capture_begin();
    log_error("a\nb\033[2Jc\r\x7f\n\n");
    capture_end(capture, text, sizeof(text));
    assert_string_equal(text, "gyre: error: a b?[2Jc ?\n");
}

static void levels_and_rank(void **state)
{
    (void)state;
    char text[512];
    capture_t capture = capture_begin();
    log_info("not shown");
    log_warning("one");
    base_log_set_rank(3);
    base_log_set_level(BASE_LOG_DEBUG);
    log_debug("two");
    log_trace("not shown");
    base_log_set_level(BASE_LOG_NONE);
    gyre_fail(GYRE_ERR_IO, "not shown but kept");
    capture_end(capture, text, sizeof(text));
    int rank = base_log_rank();
    base_log_set_level(BASE_LOG_WARNING);
    base_log_set_rank(-5);
    assert_string_equal(text, "gyre: warning: one\ngyre[3] debug: two\n");
    assert_string_equal(gyre_last_error(), "not shown but kept");
    assert_int_equal(rank, 3);
    assert_int_equal(base_log_rank(), -1);
}

/* A pipe that nobody reads and that takes no more. Returns its reading end; stderr is its other end until
 * restore_stderr. */
static int block_stderr(int *saved)
{
    static const char waste[4096];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    *saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDERR_FILENO, waste, sizeof(waste)) > 0)
        ;
    fcntl(STDERR_FILENO, F_SETFL, 0);
    return ends[0];
}

static void restore_stderr(int end, int saved)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(end);
}

/* A thread in a hurry loses lines rather than wait, and the next line that finds room says how many. */
static void hurried_lines_do_not_wait(void **state)
{
    (void)state;
    static char text[1 << 17];
    int saved, end = block_stderr(&saved);
    base_log_hurry(1);
    log_warning("one");
    gyre_fail(GYRE_ERR_IO, "two");
    const int kept = strcmp(gyre_last_error(), "two") == 0;
    const int flags = fcntl(STDERR_FILENO, F_GETFL);
    ssize_t drained = read(end, text, sizeof(text));
    log_warning("three");
    base_log_hurry(-1);
    log_warning("four");
    const ssize_t n = read(end, text, sizeof(text) - 1);
    restore_stderr(end, saved);
    assert_true(kept && drained > 0 && n > 0);
    assert_int_equal(flags & O_NONBLOCK, 0); /* of the descriptor that others share */
    text[n] = '\0';
    assert_string_equal(text, "gyre: warning: 2 lines are missing here: stderr was full\n"
                              "gyre: warning: three\ngyre: warning: four\n");
}

static void *another(void *seen)
{
    *(int *)seen = gyre_last_error()[0] == '\0';
    gyre_fail_quiet(GYRE_ERR_IO, "of the other thread");
    return NULL;
}

static void threads_have_their_own(void **state)
{
    (void)state;
    pthread_t thread;
    int empty = 0;
    gyre_fail_quiet(GYRE_ERR_IO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, another, &empty), 0);
    pthread_join(thread, NULL);
    assert_int_equal(empty, 1);
    assert_string_equal(gyre_last_error(), "mine");
}

static void *shout(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        base_log_set_level(BASE_LOG_WARNING);
        log_warning("%s", "the quick brown fox jumps over the lazy dog");
    }
    return NULL;
}

/* Lines of threads do not mix: in append mode each write(2) is whole. */
static void lines_stay_whole(void **state)
{
    (void)state;
    static char text[65536];
    pthread_t threads[4];
    capture_t capture = capture_begin();
    fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, shout, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    capture_end(capture, text, sizeof(text));
    int lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++)
        assert_string_equal(line, "gyre: warning: the quick brown fox jumps over the lazy dog");
    assert_int_equal(lines, 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_and_logs),
        cmocka_unit_test(quiet),
        cmocka_unit_test(with_errno),
        cmocka_unit_test(names_the_address_space),
        cmocka_unit_test(quotes_itself),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(text_is_utf8),
        cmocka_unit_test(one_line_without_control_characters),
        cmocka_unit_test(levels_and_rank),
        cmocka_unit_test(hurried_lines_do_not_wait),
        cmocka_unit_test(threads_have_their_own),
        cmocka_unit_test(lines_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
