/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_lock.c: one run at a time writes to a folder of checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "optim/checkpoint/lock.h"
#include "tests/support/entries.h"

static char folder[] = "/tmp/gyre-lock-XXXXXX";

static int no_locks; /* of the file system */

int flock(int fd, int operation)
{
    errno = ENOSYS;
    return no_locks ? -1 : (int)syscall(SYS_flock, fd, operation);
}

static int emptied;       /* times that a file was */
static const char *rival; /* what another process writes after this one; NULL: nothing */

int ftruncate(int fd, off_t length)
{
    emptied += length == 0;
    return (int)syscall(SYS_ftruncate, fd, length);
}

int fdatasync(int fd)
{
    return rival && pwrite(fd, rival, strlen(rival), 0) < 0 ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static int begin(void **unused)
{
    (void)unused;
    base_log_set_level(BASE_LOG_NONE);
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **unused)
{
    (void)unused;
    return rmdir(folder); /* fails if a test left something */
}

/* One run writes to a folder: the lock names its process, and does not outlive it. */
static void locked(void **unused)
{
    (void)unused;
    char path[PATH_MAX], who[64];
    optim_lock_t *lock = NULL, *second = NULL;
    int ready[2];
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    assert_int_equal(optim_lock_take(folder, 0.0, &second), GYRE_ERR_INVALID);
    snprintf(who, sizeof who, "process %ld on ", (long)getpid());
    assert_non_null(strstr(gyre_last_error(), who));
    optim_lock_leave(lock);
    assert_int_equal(entries(folder), 0);

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char taken = optim_lock_take(folder, 0.0, &lock) == GYRE_OK;
        for (ssize_t n = write(ready[1], &taken, 1); n > 0;)
            pause();
        _exit(1);
    }
    char taken = 0;
    assert_true(pid > 0 && read(ready[0], &taken, 1) == 1 && taken);
    assert_int_equal(optim_lock_take(folder, 0.2, &second), GYRE_ERR_INVALID);
    snprintf(who, sizeof who, "process %ld on ", (long)pid);
    assert_non_null(strstr(gyre_last_error(), who));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(optim_lock_take(folder, 60.0, &second), GYRE_OK);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
    /* a person has removed the file, and another run holds the new one, which stays */
    snprintf(path, sizeof path, "%s/lock", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    optim_lock_leave(second);
    assert_int_equal(entries(folder), 1);
    optim_lock_leave(lock);
    assert_int_equal(entries(folder), 0);
    assert_int_equal(optim_lock_take("/proc/self/none", 0.0, &lock), GYRE_ERR_IO);
    optim_lock_leave(NULL);
}

/* A process of another user, who may not write to the lock's file: what it gets, as its exit status. */
static int take_as_another(void)
{
    optim_lock_t *lock;
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(100);
        const gyre_status_t got = optim_lock_take(folder, 0.0, &lock);
        if (got == GYRE_OK)
            optim_lock_leave(lock);
        _exit(got);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* In a folder of a group: while the process of the first user lives, and after it has left the file. */
static void another_user(void **unused)
{
    (void)unused;
    char path[PATH_MAX];
    optim_lock_t *lock = NULL;
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    snprintf(path, sizeof path, "%s/lock", folder);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(take_as_another(), GYRE_ERR_INVALID);
    optim_lock_leave(lock);
    const int fd = open(path, O_WRONLY | O_CREAT, 0444);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(take_as_another(), GYRE_OK);
    assert_int_equal(entries(folder), 0);
    assert_int_equal(chmod(folder, 0700), 0);
}

/* Where a file system has no locks, the process that the file names is looked for on this host. */
static void without_locks(void **unused)
{
    (void)unused;
    char path[PATH_MAX], host[HOST_NAME_MAX + 1] = "";
    optim_lock_t *lock = NULL;
    int status = 0;
    snprintf(path, sizeof path, "%s/lock", folder);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    no_locks = 1;
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    const pid_t pid = fork();
    optim_lock_t *second;
    if (pid == 0)
        _exit(optim_lock_take(folder, 0.0, &second));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), GYRE_ERR_INVALID);
    assert_int_equal(optim_lock_take(folder, 0.0, &second), GYRE_ERR_INVALID);
    optim_lock_leave(lock);
    assert_int_equal(entries(folder), 0);
    /* of a process that is gone, and whose number another one has now */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "process %ld on %s\n1\n", (long)getppid(), host);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    optim_lock_leave(lock);
    assert_int_equal(entries(folder), 0);
    /* of two that found none there at once the last one has it; none finds it empty */
    rival = "process 7 on elsewhere\n8\n";
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "process 7 on elsewhere "));
    assert_int_equal(entries(folder), 1);
    rival = NULL;
    assert_int_equal(optim_lock_take(folder, 0.0, &lock), GYRE_OK);
    assert_int_equal(emptied, 0);
    optim_lock_leave(lock);
    no_locks = 0;
    assert_int_equal(entries(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(locked), cmocka_unit_test(another_user),
                                       cmocka_unit_test(without_locks)};
    return cmocka_run_group_tests(tests, begin, end);
}
