/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/test_unfinished.c: a signal leaves no half of a file, whether it comes while the file is made
 * or after that; and a process that waits for the reader of a pipe ends at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <glob.h>

#include "tools/shared/unfinished.h"

static char folder[] = "/tmp/gyre-unfinished-XXXXXX", path[64], fifo[64];

/* base_file_begin calls it when the temporary file is there. */
static int comes; /* a signal, just then */

FILE *fdopen(int fd, const char *mode)
{
    FILE *(*real)(int, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "fdopen");
    if (comes)
        raise(comes);
    return real(fd, mode);
}

/* The status of a process that writes to `to`: `number` comes while its file is made, or after that. */
static int end_of(const char *to, int number, int early)
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        base_file_t file = {0};
        signal(number, SIG_DFL); /* UCX has a handler of SIGHUP */
        comes = early ? number : 0;
        if (unfinished_begin(to, &file) == GYRE_OK)
            raise(number);
        _exit(1); /* not reached */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static size_t names_in_folder(void)
{
    char pattern[80];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    const size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

static void leaves_nothing(void **state)
{
    (void)state;
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int early = 0; early < 2; early++) {
            const int status = end_of(path, numbers[i], early);
            assert_int_equal(names_in_folder(), 0);
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), numbers[i]);
        }
}

static void commits(void **state)
{
    (void)state;
    base_file_t file = {0};
    assert_int_equal(unfinished_begin(path, &file), GYRE_OK);
    fputs("all", file.out);
    assert_int_equal(base_file_commit(&file), GYRE_OK);
    assert_int_equal(names_in_folder(), 1);
    assert_int_equal(unlink(path), 0);
}

static void ends_while_a_pipe_has_no_reader(void **state)
{
    (void)state;
    int status = 0;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        base_file_t file = {0};
        signal(SIGTERM, SIG_DFL);
        alarm(60); /* else it would wait forever */
        (void)unfinished_begin(fifo, &file);
        _exit(1); /* not reached */
    }
    usleep(50000); /* so that it waits by then, as a rule */
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_int_equal(unlink(fifo), 0);
}

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_nothing),
        cmocka_unit_test(commits),
        cmocka_unit_test(ends_while_a_pipe_has_no_reader),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
