/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.c: whole files through a temporary one and a rename; pieces of them by number. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

int base_file_is_stdout(const char *path)
{
    return path && path[0] == '-' && path[1] == '\0';
}

/* The folder of a file that is not there. 0: it is not there either. */
static int folder_of(const char *path, struct stat *info)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int there = folder && stat(folder, info) == 0;
    free(folder);
    return there;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Where the links of a path lead that has no file: what would be made. malloc'd; NULL: in a circle, or no
 * memory. */
static char *end_of_links(const char *path)
{
    enum { MOST = 40 }; /* the kernel's */
    char to[PATH_MAX], *at = strdup(path);
    for (int links = 0; at; links++) {
        const ssize_t n = readlink(at, to, sizeof to);
        if (n < 0)
            return at;
        const size_t folder = to[0] == '/' ? 0 : (size_t)(name_of(at) - at), all = folder + (size_t)n;
        char *next = links < MOST && n < (ssize_t)sizeof to ? malloc(all + 1) : NULL;
        if (next) {
            memcpy(next, at, folder);
            memcpy(next + folder, to, (size_t)n);
            next[all] = '\0';
        }
        free(at);
        at = next;
    }
    return NULL;
}

/* base_file_same of files that are not there: the folders that would hold them. 0: they have other names. */
static int folders_of(const char *a, const char *b, struct stat *x, struct stat *y)
{
    char *one = end_of_links(a), *other = end_of_links(b);
    const int alike =
        one && other && strcmp(name_of(one), name_of(other)) == 0 && folder_of(one, x) && folder_of(other, y);
    free(one);
    free(other);
    return alike;
}

int base_file_same(const char *a, const char *b)
{
    struct stat x, y;
    if (!a || !b || base_file_is_stdout(a) || base_file_is_stdout(b))
        return 0;
    const int there = stat(a, &x) == 0;
    if (there != (stat(b, &y) == 0) || (there && !S_ISREG(x.st_mode)))
        return 0;
    if (!there && !folders_of(a, b, &x, &y))
        return 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int create(const char *name)
{
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Opens what is to be written; errno's value or 0. file->target is set if it is a regular file or does not
 * exist. */
static int open_target(const char *path, base_file_t *file, int *fd)
{
    struct stat info;
    if (base_file_is_stdout(path)) {
        *fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
        return *fd < 0 ? errno : 0;
    }
    int exists = stat(path, &info) == 0;
    if (!exists && errno != ENOENT)
        return errno;
    if (!exists &&
        lstat(path, &info) == 0) { /* a link to what is not there: make it, then it is as any other */
        int made = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (made < 0 || close(made) != 0 || stat(path, &info) != 0)
            return errno;
        exists = 1;
    }
    if (exists && S_ISDIR(info.st_mode))
        return EISDIR;
    if (exists && !S_ISREG(info.st_mode)) { /* nothing to rename over */
        *fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
        return *fd < 0 ? errno : 0;
    }
    if (exists && access(path, W_OK) != 0) /* a rename would not ask */
        return errno;
    file->target = exists ? realpath(path, NULL) : strdup(path);
    if (!file->target)
        return errno;
    *fd = base_file_temporary(file->target, create, &file->temporary);
    if (*fd < 0)
        return errno;
    if (exists) /* who may read it stays as it was; on file systems without modes it cannot */
        (void)fchmod(*fd, info.st_mode & 0777);
    return 0;
}

static void forget(base_file_t *file)
{
    free(file->path);
    free(file->target);
    free(file->temporary);
    *file = (base_file_t){0};
}

int base_file_check(const char *path)
{
    struct stat info;
    if (base_file_is_stdout(path))
        return fcntl(STDOUT_FILENO, F_GETFL) < 0 ? errno : 0;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* opening it could wait, or hang up a reader */
        return S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    int dangling = stat(path, &info) != 0 && lstat(path, &info) == 0, fd = -1;
    base_file_t file = {0};
    int why = open_target(path, &file, &fd);
    if (fd >= 0) {
        close(fd);
        unlink(file.temporary);
    }
    if (dangling && file.target)
        unlink(file.target);
    forget(&file);
    return why;
}

gyre_status_t base_file_begin(const char *path, base_file_t *file)
{
    base_file_t made = {.path = strdup(base_file_is_stdout(path) ? "standard output" : path)};
    int fd = -1;
    if (!made.path)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory left to write %s", path);
    int why = open_target(path, &made, &fd);
    if (why == 0 && !(made.out = fdopen(fd, "w"))) {
        why = errno;
        close(fd);
        if (made.temporary)
            unlink(made.temporary);
    }
    if (why != 0) {
        forget(&made);
        return gyre_fail_errno(base_file_status(why) == GYRE_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO,
                               why, "cannot write %s", path);
    }
    *file = made;
    return GYRE_OK;
}

void base_file_abandon(base_file_t *file)
{
    int err = errno;
    fclose(file->out);
    if (file->temporary)
        unlink(file->temporary);
    forget(file);
    errno = err;
}

gyre_status_t base_file_sync(base_file_t *file)
{
    if (fflush(file->out) != 0 || (file->target && base_sync_failed(fdatasync(fileno(file->out)))))
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", file->path);
    return GYRE_OK;
}

/* Why stdio failed, which keeps no reason: what comes next fails for the same one. */
static int why_failed(const base_file_t *file)
{
    if (fflush(file->out) != 0)
        return errno;
    return file->target && write(fileno(file->out), "", 1) < 0 ? errno : 0;
}

gyre_status_t base_file_commit(base_file_t *file)
{
    gyre_status_t status = GYRE_OK;
    int bad = ferror(file->out) != 0, err = bad ? why_failed(file) : 0;
    /* the content must be there before the name */
    if (!bad && (fflush(file->out) != 0 || (file->target && base_sync_failed(fsync(fileno(file->out)))))) {
        bad = 1;
        err = errno;
    }
    if (fclose(file->out) != 0 && !bad) {
        bad = 1;
        err = errno;
    }
    if (bad) {
        status = gyre_fail_errno(GYRE_ERR_IO, err ? err : EIO, "cannot write %s", file->path);
        if (file->temporary)
            unlink(file->temporary);
    } else if (file->target && rename(file->temporary, file->target) != 0) {
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename %s, which is complete and is kept, to %s",
                                 file->temporary, file->target);
    }
    forget(file);
    return status;
}

gyre_status_t base_file_read(int fd, const char *path, void *to, size_t bytes, uint64_t at)
{
    char *p = to;
    while (bytes > 0) {
        ssize_t n = pread(fd, p, bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
        if (n == 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s ends early", path);
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return GYRE_OK;
}

void base_file_fill_standard(void)
{
    const int saved = errno;
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        const int made = open("/dev/null", O_RDWR); /* the lowest that is free; -1: none will be made then */
        if (made > 2)
            close(made); /* another thread was faster */
    }
    errno = saved;
}

int base_file_temporary(const char *target, int (*make)(const char *name), char **name)
{
    static _Atomic unsigned counter;
    const size_t room = strlen(target) + 48;
    int made = -1;
    if (!(*name = malloc(room)))
        return -1;
    /* The name may be taken: by a process with this number that was killed, or runs on another host. */
    for (int tries = 0; tries < 1000; tries++) {
        snprintf(*name, room, "%s.tmp-%ld-%u", target, (long)getpid(), atomic_fetch_add(&counter, 1));
        made = make(*name);
        if (made >= 0 || errno != EEXIST)
            break;
    }
    return made;
}

int base_file_open_again(int fd)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

gyre_status_t base_file_status(int err)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
        return GYRE_ERR_NOT_FOUND;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return GYRE_ERR_NO_MEMORY;
    default:
        return GYRE_ERR_IO;
    }
}
