/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/lock.c: a lock on a file, and the name of the process that has it. */
#include "optim/checkpoint/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "optim/checkpoint/path.h"

#define NAME   "lock"
#define HOLDER (HOST_NAME_MAX + 64) /* bytes of the text in it */
#define LOOK_S 0.1                  /* between two looks whether the lock is free */
#define SIGN_S 0.2                  /* from a look to the name that follows it, with much to spare */

struct optim_lock {
    int fd;
    int bare; /* 1: the file system has no locks */
    char path[PATH_MAX];
};

/* 1: the path still names the file that `fd` has open. */
static int is_there(int fd, const char *path)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && stat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

/* When a process of this host started, in ticks since the host did; 0: it is not there, has ended, or cannot
 * be seen. */
static unsigned long long started(long pid)
{
    char path[48], text[1024] = "", state = 'X';
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *in = fopen(path, "re");
    const size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in)
        fclose(in);
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* "PID (NAME) STATE ...", of which it is word 22 */
    if (!at || sscanf(at, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                      &state, &ticks) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

static void name(char holder[HOLDER], long pid)
{
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof host - 1);
    snprintf(holder, HOLDER, "process %ld on %s", pid, host);
}

/* Who has it, and when that process started. */
static void read_holder(int fd, char holder[HOLDER], unsigned long long *since)
{
    const ssize_t n = pread(fd, holder, HOLDER - 1, 0);
    holder[n > 0 ? n : 0] = 0;
    char *end = strchr(holder, '\n');
    *since = end ? strtoull(end + 1, NULL, 10) : 0; /* older ones do not say */
    if (end)
        *end = 0;
    if (n <= 0) /* it has taken the lock just now */
        snprintf(holder, HOLDER, "another process");
}

/* 1: the file names a process of this host, maybe this one, which is still the same. */
static int lives_here(const char *holder, unsigned long long since)
{
    char here[HOLDER];
    long pid;
    if (since == 0 || sscanf(holder, "process %ld", &pid) != 1)
        return 0;
    name(here, pid);
    return strcmp(here, holder) == 0 && started(pid) == since;
}

static gyre_status_t not_written(const char *folder, int why)
{
    return gyre_fail_errno(base_file_status(why) == GYRE_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO,
                           why, "cannot write %s to the checkpoint folder %s", NAME, folder);
}

/* IN_PROGRESS: another process has it, which holder [HOLDER] names. */
static gyre_status_t try(optim_lock_t *lock, const char *folder, char *holder)
{
    for (;;) {
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        int why = lock->fd < 0 ? errno : 0;
        const int foreign = why == EACCES; /* perhaps another user's, which may only be read */
        if (foreign)
            lock->fd = open(lock->path, O_RDONLY | O_CLOEXEC);
        if (lock->fd < 0)
            return not_written(folder, why);
        lock->bare = 0;
        if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0) {
            const int none = errno;
            unsigned long long since;
            read_holder(lock->fd, holder, &since);
            if (none == EWOULDBLOCK || lives_here(holder, since)) {
                close(lock->fd);
                return GYRE_IN_PROGRESS;
            }
            lock->bare = 1;
            if (!foreign)
                log_info("the file system of %s has no locks (%s): a second run there is not recognised, "
                         "unless it is on the same host",
                         folder, strerror(none));
        } else if (foreign && (!is_there(lock->fd, lock->path) || unlink(lock->path) == 0)) {
            why = 0; /* the process of that file is gone, the next one is this process's own */
        }
        if (why == 0 && is_there(lock->fd, lock->path))
            return GYRE_OK;
        close(lock->fd); /* who had it has removed it since */
        if (why != 0)
            return not_written(folder, why);
    }
}

static void pause_for(double seconds)
{
    const struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    (void)nanosleep(&time, NULL);
}

/* Who has it is of use to a person: that it cannot be written stops nothing. Without locks several processes
 * may get here at once: the last one has it, for whose name the others wait (Fischer's algorithm; Lamport, A
 * fast mutual exclusion algorithm, 1987). IN_PROGRESS: holder [HOLDER] is another one. */
static gyre_status_t sign(const optim_lock_t *lock, char *holder)
{
    char own[HOLDER], text[HOLDER + 32], found[HOLDER];
    unsigned long long since;
    name(own, (long)getpid());
    /* all are of one length, so that each replaces another at one stroke */
    snprintf(text, sizeof text, "%s\n%-*llu\n", own, (int)(HOLDER - 3 - strlen(own)),
             started((long)getpid()));
    const int is_signed = pwrite(lock->fd, text, HOLDER - 1, 0) == HOLDER - 1;
    if (!is_signed || fdatasync(lock->fd) != 0)
        log_debug("the lock of a checkpoint folder is not signed: %s", strerror(errno));
    if (!is_signed || !lock->bare)
        return GYRE_OK;
    pause_for(SIGN_S);
    const ssize_t n = pread(lock->fd, found, HOLDER - 1, 0);
    if (n < 0 || (n == HOLDER - 1 && memcmp(found, text, HOLDER - 1) == 0))
        return GYRE_OK;
    read_holder(lock->fd, holder, &since);
    return GYRE_IN_PROGRESS;
}

static gyre_status_t take(optim_lock_t *lock, const char *folder, char *holder)
{
    gyre_status_t status = try(lock, folder, holder);
    if (status == GYRE_OK && (status = sign(lock, holder)) != GYRE_OK)
        close(lock->fd);
    return status;
}

gyre_status_t optim_lock_take(const char *folder, double patience, optim_lock_t **out)
{
    const base_time_t until = patience > 0.0 ? base_deadline(patience) : 0;
    char holder[HOLDER];
    optim_lock_t *lock = calloc(1, sizeof *lock);
    gyre_status_t status = checkpoint_make_folder(folder);
    if (!lock)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the lock of the checkpoint folder %s", folder);
    if (status == GYRE_OK && !checkpoint_path_join(lock->path, folder, NAME))
        status = checkpoint_path_too_long(folder);
    if (status == GYRE_OK)
        status = take(lock, folder, holder);
    if (status == GYRE_IN_PROGRESS && patience > 0.0)
        log_warning("%s is in use by %s: waiting at most %.0f s for its end", folder, holder, patience);
    while (status == GYRE_IN_PROGRESS && base_now() < until) {
        pause_for(LOOK_S);
        status = take(lock, folder, holder);
    }
    if (status == GYRE_IN_PROGRESS)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "%s is in use: %s writes the checkpoints of a run there: end that run, or name "
                           "another folder. If that process is gone, remove %s",
                           folder, holder, lock->path);
    if (status != GYRE_OK) {
        free(lock);
        return status;
    }
    *out = lock;
    return GYRE_OK;
}

void optim_lock_leave(optim_lock_t *lock)
{
    if (!lock)
        return;
    if (is_there(lock->fd, lock->path))
        (void)unlink(lock->path);
    close(lock->fd);
    free(lock);
}
