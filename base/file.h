/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.h: reading a piece of a file; writing a whole file, so that a reader never sees half of it and
 * nothing but a file is ever replaced.
 *
 * A regular file (or one that does not exist yet) is written next to its place, synced and renamed; a link
 * keeps pointing to the file, which is what gets replaced. Everything else (a pipe, a terminal, /dev/null)
 * is written to. The path "-" is standard output, and "./-" a file of that name. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include <gyre/status.h>

typedef struct {
    FILE *out;       /* the content goes here */
    char *path;      /* owned: as asked for, for messages */
    char *target;    /* owned: the regular file that is replaced; NULL: `out` is the thing itself */
    char *temporary; /* owned: what `out` writes; NULL with `target` */
} base_file_t;

int base_file_is_stdout(const char *path); /* NULL: no */
/* 1: what is written to `a` and to `b` is one regular file, there already or not, also through links. 0: of
 * other things, such as /dev/null, of standard output, and of NULL. */
int base_file_same(const char *a, const char *b);
/* errno's value if base_file_begin could not write to `path` now (EISDIR: a folder), else 0. Changes no
 * file. */
int base_file_check(const char *path);
/* Opens; on success commit or abandon must follow. A pipe waits for its reader. NO_MEMORY, IO. */
gyre_status_t base_file_begin(const char *path, base_file_t *file);
/* What was written so far is on disk, so that base_file_commit has less to wait for; nothing for what is no
 * regular file. IO: abandon follows. */
gyre_status_t base_file_sync(base_file_t *file);
/* Puts what was written to file->out in its place. IO: nothing was replaced; if only the rename failed, the
 * temporary file is kept and the message names it. Frees in any case. */
gyre_status_t base_file_commit(base_file_t *file);
/* Leaves the old file as it was. Keeps errno. */
void base_file_abandon(base_file_t *file);

/* What fsync or fdatasync has returned, with errno: 1: the content is not on disk. Some file systems cannot
 * sync: there is nothing to be done then. */
static inline int base_sync_failed(int rc)
{
    return rc != 0 && errno != EINVAL && errno != EROFS;
}

/* Opens those of the descriptors 0, 1 and 2 that are closed on /dev/null. Else one that is made next could
 * be one of these, and get what the program prints. */
void base_file_fill_standard(void);

/* Makes a file or folder next to `target` whose name nothing has: make(name) returns -1, and EEXIST, if it is
 * taken. *name: malloc'd, for the caller to free, also after an error. Returns what `make` did; -1: errno. */
int base_file_temporary(const char *target, int (*make)(const char *name), char **name);

/* Opens the pipe or terminal that `fd` has open once more, for writing without ever waiting. O_NONBLOCK on
 * `fd` itself would be seen by all processes that share it. The caller closes what it returns; -1, with
 * errno: that is not permitted here. */
int base_file_open_again(int fd);

/* The status for a file that cannot be opened, by errno: NOT_FOUND; NO_MEMORY: this process or machine has no
 * memory or descriptors left, which says nothing about the file; else IO. */
gyre_status_t base_file_status(int err);

/* Bytes at, at + 1, ... of what `fd` has open; `path` is for messages. IO; FORMAT: it ends before. */
gyre_status_t base_file_read(int fd, const char *path, void *to, size_t bytes, uint64_t at);

#endif
