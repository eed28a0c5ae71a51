/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/parent_death.c: the leash: a second process that ends the ranks' process groups if
 * ucx-run is killed outright. (PR_SET_PDEATHSIG ends the ranks themselves; the leash also reaches the
 * processes that they have started.) The leash sleeps in read(2) on a pipe whose other end only ucx-run
 * holds: end of file means that ucx-run is gone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/grow.h"
#include "tools/ucx-run/run.h"

enum { LEASH_TERM_SECONDS = 5 };

static int leash_fd = -1;
static pid_t leash_pid = -1;

typedef struct {
    pid_t *pid;
    size_t count, room;
} held_t;

static void take(held_t *held, pid_t pid)
{
    if (pid < 0) {
        for (size_t i = 0; i < held->count; i++)
            if (held->pid[i] == -pid)
                held->pid[i--] = held->pid[--held->count];
        return;
    }
    if (!base_grow(&held->pid, &held->room, held->count, 1, sizeof *held->pid))
        return; /* this one is still covered by PDEATHSIG */
    held->pid[held->count++] = pid;
}

static int any_left(const held_t *held)
{
    for (size_t i = 0; i < held->count; i++)
        if (kill(held->pid[i], 0) == 0)
            return 1;
    return 0;
}

/* An engine of others gets a chance to end its ranks. */
static void ask_to_end(const held_t *held)
{
    for (size_t i = 0; i < held->count; i++)
        kill(held->pid[i], SIGTERM);
    for (int tenths = 10 * LEASH_TERM_SECONDS; tenths > 0 && any_left(held); tenths--)
        poll(NULL, 0, 100);
}

static void __attribute__((noreturn)) leash(int fd, run_leash_t how)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "ucx-run-leash");
    setpgid(0, 0);
    if (chdir("/") != 0) /* holds no mount busy; harmless if it fails */
        errno = 0;
    if (dup2(fd, 0) != 0 || syscall(SYS_close_range, 1U, ~0U, 0U) != 0) /* Linux 5.9 */
        for (int other = 1; other < 1024; other++)
            close(other);
    fd = 0;
    held_t held = {NULL, 0, 0};
    pid_t pid;
    for (;;) {
        ssize_t n = read(fd, &pid, sizeof pid);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof pid)
            break;
        take(&held, pid);
    }
    if (how == RUN_LEASH_TERM)
        ask_to_end(&held);
    for (size_t i = 0; i < held.count; i++)
        if (kill(-held.pid[i], SIGKILL) != 0) /* not a group of its own */
            kill(held.pid[i], SIGKILL);
    _exit(0);
}

int run_leash_open(run_leash_t how)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        run_say("ucx-run: cannot make a pipe: %s", strerror(errno));
        return RUN_RC_SYSTEM;
    }
    leash_pid = fork();
    if (leash_pid < 0) {
        run_say("ucx-run: cannot fork: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return RUN_RC_SYSTEM;
    }
    if (leash_pid == 0)
        leash(ends[0], how);
    close(ends[0]);
    leash_fd = ends[1];
    return 0;
}

void run_leash_add(pid_t pid)
{
    /* Small writes to a pipe whose reader only reads: they cannot block for long. If the leash itself was
     * killed, PDEATHSIG remains. */
    if (leash_fd >= 0 && write(leash_fd, &pid, sizeof pid) < 0 && errno == EPIPE) {
        close(leash_fd);
        leash_fd = -1;
    }
}

void run_leash_remove(pid_t pid)
{
    run_leash_add(-pid);
}

void run_leash_close(void)
{
    if (leash_fd >= 0)
        close(leash_fd);
    leash_fd = -1;
    if (leash_pid > 0)
        while (waitpid(leash_pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    leash_pid = -1;
}
