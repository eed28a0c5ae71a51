/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/watched_saver.h: optim/checkpoint/saver.c for test_publication.c, with calls of libc that
 * are the test's: each call that changes a name in the folder is a step that explore.h interleaves with
 * those of other ranks, unless its rank is dead. Follows what is synced, and writes down the first
 * thing that must not be. */
#ifndef TESTS_OPTIM_WATCHED_SAVER_H
#define TESTS_OPTIM_WATCHED_SAVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "optim/checkpoint/path.h"
#include "tests/support/explore.h"

enum { RANKS = 2, OLD_STEP = 7, OLD = 1, NEW = 2 /* generations of what is saved */ };

typedef enum {
    RIGHT,
    ENTRY_FIRST,       /* a rank's entry has its name before its shard has */
    FOLDER_NOT_SYNCED, /* before the checkpoint gets its name */
    REPLACED_IN_TWO,   /* the old one is taken away before the new one comes, without need */
    OLD_REMOVED_EARLY  /* before the new one's name is synced */
} mistake_t;

typedef struct {
    const char *name;
    int ranks, victim;  /* a rank that dies at any moment; -1: none does */
    int failing;        /* a rank that cannot write its shard; -1: none */
    uint64_t old, step; /* 0: there is no old one */
    int exchanges;      /* 1: this file system can exchange two names; -1: nor give the new one its name */
} scene_t;

/* Everything that the ranks share. The files follow from it: ranks change files of their own, but for
 * those that rank 0 removes, which it learns. */
static struct {
    uint32_t dead[RANKS], ended[RANKS];
    uint32_t changes[RANKS]; /* calls that changed a file */
    uint32_t told[RANKS];    /* shards' entries, or reasons for having none */
    uint32_t learned[RANKS]; /* hash of what the calls have returned */
    uint32_t seen;           /* how many of these, when rank 0 looked */
    uint32_t late;           /* rank 0's time is up */
} shared;

static const scene_t *scene;
static mistake_t mistake;
static char folder[] = "/tmp/gyre-publication-XXXXXX", master[] = "/tmp/gyre-publication-old-XXXXXX";
static char wrong[300]; /* what was seen that must not be */

static int alive(int rank)
{
    return rank >= scene->ranks || !*(volatile uint32_t *)&shared.dead[rank];
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static uint32_t told(void)
{
    uint32_t all = 0;
    for (int r = 1; r < scene->ranks; r++)
        all += *(volatile uint32_t *)&shared.told[r];
    return all;
}

static int others_have_ended(void)
{
    for (int r = 1; r < scene->ranks; r++)
        if (alive(r) && !*(volatile uint32_t *)&shared.ended[r])
            return 0;
    return 1;
}

static int has_news(void)
{
    return !alive(0) || told() != shared.seen || others_have_ended();
}

/* Rank 0 sleeps until it makes sense to look again; its time is up when nothing more can come. */
static int wait_for_news(void)
{
    if (alive(0))
        explore_until(has_news);
    if (told() == shared.seen)
        shared.late = 1;
    return ETIMEDOUT;
}

#define base_now()                                ((base_time_t)shared.late << 60)
#define base_deadline(seconds)                    ((base_time_t)1 << 50)
#define pthread_cond_timedwait(cond, mutex, time) ((void)(time), (void)saver, wait_for_news())
#define nanosleep(time, rest)                     ((void)(time))
#include "optim/checkpoint/saver.c"
#undef nanosleep
#undef base_now
#undef base_deadline
#undef pthread_cond_timedwait

/* ---- the file system: these functions stand before libc's, for the whole program -------------------- */

#define NEXT(name)                                       \
    __extension__({                                      \
        static __typeof__(&name) next_;                  \
        if (!next_) {                                    \
            void *const found = dlsym(RTLD_NEXT, #name); \
            memcpy(&next_, &found, sizeof next_);        \
        }                                                \
        next_;                                           \
    })

/* What is on the disk already, were the power to fail now. */
static struct {
    char path[PATH_MAX];
    int synced, fd;
} file[64];
static int files;

static int looking; /* 1: the test itself asks */
static int unnamed; /* 1: the new checkpoint's name is not on the disk yet */

static int is_ours(const char *path)
{
    return explore_thread() >= 0 && !looking && strncmp(path, folder, sizeof folder - 1) == 0;
}

/* The names of temporary files are not the same in each run. */
static uint32_t hash_of(const char *path)
{
    const char *temporary = strstr(path, ".tmp-");
    return (uint32_t)base_hash64(path, temporary ? (size_t)(temporary - path) : strlen(path), 3);
}

/* The next step of the rank that runs, with that file. 0: it is dead, and does nothing any more. */
static int step(void)
{
    int me = explore_thread();
    if (alive(me) && explore_load(&shared.dead[me]) == 0)
        return 1;
    errno = EIO;
    return 0;
}

static int ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);
    return length >= n && strcmp(path + length - n, ending) == 0;
}

static void learn_result(const char *path, int result)
{
    int me = explore_thread(), why = errno;
    const uint32_t record[] = {shared.learned[me], hash_of(path), result < 0 ? (uint32_t)why : 0};
    shared.learned[me] = (uint32_t)base_hash64(record, sizeof record, 4);
    shared.changes[me] += result >= 0;
    if (result >= 0 && (ends_in(path, ".done") || ends_in(path, ".failed")))
        shared.told[me] = 1;
    errno = why;
}

static int find(const char *path)
{
    int i = 0;
    while (i < files && strcmp(file[i].path, path) != 0)
        i++;
    return i;
}

/* The folder of a file, or the file itself, is changed. */
static void touch(const char *path)
{
    int i = find(path);
    if (i == (int)(sizeof file / sizeof *file))
        abort();
    if (i == files) {
        snprintf(file[files++].path, PATH_MAX, "%s", path);
        file[i].fd = 0;
    }
    file[i].synced = 0;
}

static void touch_parent(const char *path)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    touch(parent);
}

static void forget_file(const char *path)
{
    int i = find(path);
    if (i < files)
        file[i] = file[--files];
}

/* The folder `from` and what is in it are now `to`. */
static void move(const char *from, const char *to)
{
    size_t length = strlen(from);
    for (int i = 0; i < files; i++)
        if (strncmp(file[i].path, from, length) == 0 &&
            (!file[i].path[length] || file[i].path[length] == '/')) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s%s", to, file[i].path + length);
            snprintf(file[i].path, PATH_MAX, "%s", path);
        }
}

static void is_wrong(const char *what, const char *path)
{
    if (!*wrong)
        snprintf(wrong, sizeof wrong, "%s: %.200s", what, path);
}

/* A folder gets the name of a checkpoint: all of it must be on the disk. */
static void look_whether_synced(const char *made)
{
    size_t length = strlen(made);
    for (int i = 0; i < files; i++)
        if (strncmp(file[i].path, made, length) == 0 && !file[i].synced && !ends_in(file[i].path, ".done"))
            is_wrong("is published before it is synced", file[i].path);
}

/* 1: `path` is FOLDER/step-N. */
static int is_public(const char *path)
{
    return strncmp(path + sizeof folder - 1, "/step-", 6) == 0 && !strchr(path + sizeof folder, '/');
}

static int sync_fd(int fd)
{
    for (int i = 0; i < files; i++)
        if (file[i].fd == fd + 1) {
            file[i].synced = 1;
            unnamed = unnamed && strcmp(file[i].path, folder) != 0;
        }
    return 0;
}

int fsync(int fd)
{
    return explore_thread() >= 0 ? sync_fd(fd) : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return explore_thread() >= 0 ? sync_fd(fd) : NEXT(fdatasync)(fd);
}

int close(int fd)
{
    for (int i = 0; i < files; i++)
        if (file[i].fd == fd + 1)
            file[i].fd = 0;
    return NEXT(close)(fd);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!is_ours(path))
        return NEXT(open)(path, flags, mode);
    if (!alive(explore_thread())) { /* what nobody looks for yet is no step of its own */
        errno = EIO;
        return -1;
    }
    int broken = flags & O_CREAT && explore_thread() == scene->failing && strstr(path, ".safetensors");
    int fd = broken ? -1 : NEXT(open)(path, flags, mode);
    if (broken)
        errno = ENOSPC;
    if (flags & O_CREAT) {
        learn_result(path, fd);
        if (fd >= 0) {
            touch(path);
            touch_parent(path);
        }
    }
    int i = find(path);
    int is_folder = strcmp(path, folder) == 0;
    int left_out = flags & O_DIRECTORY && mistake == (is_folder ? OLD_REMOVED_EARLY : FOLDER_NOT_SYNCED);
    if (fd >= 0 && i < files && !left_out)
        file[i].fd = fd + 1;
    return fd;
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    if (!is_ours(path) || *mode != 'w')
        return NEXT(fopen)(path, mode);
    if (!step())
        return NULL;
    FILE *out = NEXT(fopen)(path, mode);
    learn_result(path, out ? 0 : -1);
    if (out)
        touch_parent(path);
    return out;
}

/* Rank 0 looks who has come. */
DIR *opendir(const char *path)
{
    if (!is_ours(path))
        return NEXT(opendir)(path);
    if (!step())
        return NULL;
    DIR *all = NEXT(opendir)(path);
    uint32_t names = 0;
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (ends_in(entry->d_name, ".done") || ends_in(entry->d_name, ".failed"))
            names ^= hash_of(entry->d_name);
    if (all)
        rewinddir(all);
    if (explore_thread() == 0)
        shared.seen = told();
    shared.learned[explore_thread()] ^= names; /* the call is learned from the step */
    return all;
}

int mkdir(const char *path, mode_t mode)
{
    if (!is_ours(path))
        return NEXT(mkdir)(path, mode);
    if (!step())
        return -1;
    int result = NEXT(mkdir)(path, mode);
    learn_result(path, result);
    if (result == 0) {
        touch(path);
        touch_parent(path);
    }
    return result;
}

int unlink(const char *path)
{
    if (!is_ours(path))
        return NEXT(unlink)(path);
    if (!step())
        return -1;
    int result = NEXT(unlink)(path);
    learn_result(path, result);
    shared.told[explore_thread()] = shared.told[explore_thread()] && !ends_in(path, ".done");
    if (result == 0)
        forget_file(path);
    if (unnamed && ends_in(path, "index.json"))
        is_wrong("is removed before the new one's name is synced", path);
    return result;
}

/* The test's: looks at all names after one has changed. may_lack: perhaps no checkpoint is there. */
static void look_at_names(int may_lack);

int rmdir(const char *path)
{
    if (!is_ours(path))
        return NEXT(rmdir)(path);
    if (!step())
        return -1;
    int result = NEXT(rmdir)(path);
    learn_result(path, result);
    if (result == 0)
        forget_file(path);
    return result;
}

static char postponed[2][PATH_MAX]; /* a rename */

int rename(const char *from, const char *to)
{
    if (!is_ours(from))
        return NEXT(rename)(from, to);
    if (!step())
        return -1;
    if (mistake == ENTRY_FIRST && explore_thread() == 1 && ends_in(to, ".safetensors")) {
        snprintf(postponed[0], PATH_MAX, "%s", from);
        snprintf(postponed[1], PATH_MAX, "%s", to);
        return 0;
    }
    int leaves = is_public(from), comes = is_public(to);
    if (comes)
        look_whether_synced(from);
    int refused = scene->exchanges < 0 && comes && strstr(from, ".new") && access(to, F_OK) != 0;
    int result = refused ? -1 : NEXT(rename)(from, to);
    if (refused)
        errno = EIO;
    learn_result(to, result);
    if (result == 0) {
        move(from, to);
        touch_parent(to);
    }
    unnamed = unnamed || (comes && result == 0 && strstr(from, ".new"));
    if (leaves || comes)
        look_at_names(scene->exchanges != 1);
    if (mistake == ENTRY_FIRST && *postponed[0] && ends_in(to, ".done")) {
        if (step())
            NEXT(rename)(postponed[0], postponed[1]);
        *postponed[0] = 0;
    }
    return result;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (!is_ours(from))
        return NEXT(renameat2)(from_folder, from, to_folder, to, flags);
    if (!step())
        return -1;
    if (scene->exchanges != 1 || mistake == REPLACED_IN_TWO) {
        errno = EINVAL;
        return -1;
    }
    look_whether_synced(from);
    int result = NEXT(renameat2)(from_folder, from, to_folder, to, flags);
    learn_result(to, result);
    if (result == 0) {
        move(from, to);
        touch_parent(to);
        unnamed = 1;
        look_at_names(0);
    }
    return result;
}

#endif
