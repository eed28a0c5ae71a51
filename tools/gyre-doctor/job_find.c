/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/job_find.c: finds flight recorders: open files of the processes of this host, and
 * files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gyre/status.h>

#include "tools/gyre-doctor/job.h"

/* Makes room for one more of *n elements. */
static int grow(void **list, int n, size_t bytes)
{
    if (n & (n - 1))
        return 1; /* room doubles at powers of two */
    void *more = realloc(*list, (size_t)(n > 0 ? 2 * n : 1) * bytes);
    if (more != NULL)
        *list = more;
    return more != NULL;
}

/* Returns the index of the recorder of `fd`, which is added if new. -1: not a recorder; -2: no memory; -3: of
 * another version, which a line on stderr reports. */
static int add(recorders_t *found, int fd, const char *path)
{
    struct stat info;
    recorder_t r;
    comm_recorder_slot_t *slots;
    if (fstat(fd, &info) != 0)
        return -1;
    for (int i = 0; i < found->n; i++)
        if (found->list[i].dev == info.st_dev && found->list[i].ino == info.st_ino)
            return i;
    for (int i = 0; i < found->others_n; i++)
        if (found->others[i].dev == info.st_dev && found->others[i].ino == info.st_ino)
            return -3;
    memset(&r, 0, sizeof(r));
    r.dev = info.st_dev;
    r.ino = info.st_ino;
    gyre_status_t st = comm_recorder_read(fd, &r.head, &slots);
    if (st == GYRE_ERR_UNSUPPORTED) {
        fprintf(stderr, "gyre-doctor: %s\n", gyre_last_error());
        if (!grow((void **)&found->others, found->others_n, sizeof(r)))
            return -2;
        found->others[found->others_n++] = r;
        return -3;
    }
    if (st != GYRE_OK)
        return -1;
    free(slots);
    snprintf(r.path, sizeof(r.path), "%s", path);
    if (!grow((void **)&found->list, found->n, sizeof(r)))
        return -2;
    found->list[found->n] = r;
    return found->n++;
}

static int looks_like_file(const char *path)
{
    const char *name = strrchr(path, '/');
    size_t n = strlen(path);
    return name != NULL && strncmp(name, "/gyre-", 6) == 0 && n > 4 && strcmp(path + n - 4, ".rec") == 0;
}

/* The process's number for itself: the last of NSpid. */
static int inner_pid(pid_t pid)
{
    char path[64], line[256];
    int inner = (int)pid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0) {
            const char *last = strrchr(line, '\t');
            inner = last != NULL ? atoi(last) : inner;
            break;
        }
    if (file != NULL)
        fclose(file);
    return inner;
}

/* What one process has open. 0: no memory. */
static int scan_process(recorders_t *found, pid_t pid)
{
    char folder[64], path[330], target[1100];
    struct dirent *entry;
    int ok = 1;
    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(folder); /* another user's process, or gone: nothing to see */
    while (dir != NULL && ok && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        char *deleted = strstr(target, " (deleted)");
        if (deleted != NULL)
            *deleted = '\0';
        /* base/memory_file.h: a memfd, or a file that never had a name, which /proc shows by its number */
        int memory =
            strcmp(target, "/memfd:gyre-recorder") == 0 || (deleted != NULL && strstr(target, "/#") != NULL);
        if (!memory && !looks_like_file(target))
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            continue;
        int i = add(found, fd, memory || deleted != NULL ? "" : target);
        close(fd);
        if (i == -2 || (i >= 0 && !grow((void **)&found->holders, found->holders_n, sizeof(holder_t))))
            ok = 0;
        else if (i >= 0)
            found->holders[found->holders_n++] = (holder_t){pid, inner_pid(pid), i, atoi(entry->d_name)};
    }
    if (dir != NULL)
        closedir(dir);
    return ok;
}

int recorders_add_file(const char *path, recorders_t *found)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        fprintf(stderr, "gyre-doctor: cannot read %s: %s\n", path, strerror(errno));
        return -1;
    }
    int i = add(found, fd, path);
    close(fd);
    if (i == -1)
        fprintf(stderr, "gyre-doctor: %s: %s\n", path, gyre_last_error());
    if (i == -2)
        fputs("gyre-doctor: no memory left\n", stderr);
    return i >= 0 ? i : -1;
}

static int scan_folder(const char *folder, recorders_t *found)
{
    struct dirent *entry;
    char path[1200];
    int ok = 1;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        fprintf(stderr, "gyre-doctor: cannot look into %s: %s\n", folder, strerror(errno));
        return 1;
    }
    while (ok && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (!looks_like_file(path))
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
            ok = add(found, fd, path) != -2;
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
    return ok;
}

int recorders_find(const char *folder, recorders_t *found)
{
    struct dirent *entry;
    int ok = 1;
    *found = (recorders_t){0};
    DIR *dir = opendir("/proc");
    while (dir != NULL && ok && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            ok = scan_process(found, (pid_t)atoi(entry->d_name));
    if (dir != NULL)
        closedir(dir);
    if (ok && *folder != '\0')
        ok = scan_folder(folder, found);
    if (!ok)
        recorders_free(found);
    return ok;
}

void recorders_free(recorders_t *found)
{
    free(found->list);
    free(found->holders);
    free(found->others);
    *found = (recorders_t){0};
}

comm_recorder_slot_t *recorder_slots(const recorders_t *found, int i)
{
    comm_recorder_slot_t *slots = NULL;
    comm_recorder_head_t head;
    int fd = -1;
    for (int h = 0; h < found->holders_n && fd < 0; h++)
        if (found->holders[h].recorder == i) {
            char path[64];
            snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)found->holders[h].pid, found->holders[h].fd);
            fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
            struct stat info;
            if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_ino != found->list[i].ino)) {
                close(fd); /* that process is gone, or has closed it */
                fd = -1;
            }
        }
    if (fd < 0 && found->list[i].path[0] != '\0')
        fd = open(found->list[i].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 &&
        (comm_recorder_read(fd, &head, &slots) != GYRE_OK || head.slots != found->list[i].head.slots)) {
        free(slots);
        slots = NULL;
    }
    if (fd >= 0)
        close(fd);
    return slots;
}
