/* SPDX-License-Identifier: Apache-2.0 */
/* comm/recorder/file.c: see file.h.
 *
 * Writers map the file. That needs two things that a plain file does not give. Its blocks exist before anyone
 * writes (posix_fallocate; otherwise a full disk is SIGBUS). Nobody shrinks it (a memfd is sealed; a file has
 * mode 0600). Readers use read(2), never a mapping. */
#include "comm/recorder/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine/identity.h"
#include "base/memory_file.h"
#include "base/utf8.h"

static const char magic[8] = {'G', 'Y', 'R', 'E', 'R', 'E', 'C', '\n'};

/* Job ids come from launchers and people: in a file's name only plain characters of them stay. */
static void plain(char *text)
{
    for (; *text != '\0'; text++)
        if (!((*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') ||
              (*text >= 'A' && *text <= 'Z') || *text == '-' || *text == '_' || *text == '.'))
            *text = '_';
}

/* A new file with all its blocks, or -1 and one warning. */
static int make_file(const char *dir, const char *job, const char *host, const char *part, size_t bytes,
                     char **path)
{
    char name[64 + 256 + 64 + 16];
    char *full = NULL;
    snprintf(name, sizeof(name), "gyre-%s.%s%s%s.rec", job, host, *part != '\0' ? "." : "", part);
    plain(name);
    if (asprintf(&full, "%s/%s", dir, name) < 0)
        return -1; /* the memfd will fail with "no memory" */
    const char *step = "be made";
    int fd = open(full, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int err = fd < 0 ? errno : 0;
    if (fd >= 0) {
        step = "get its blocks";
        err = posix_fallocate(fd, 0, (off_t)bytes);
    }
    if (err == 0) {
        *path = full;
        return fd;
    }
    log_warning("the flight recorder %s could not %s: %s; it stays in memory and ends with the job", full,
                step,
                err == EEXIST ? "there is a file of that name (one job id for two jobs?)" : strerror(err));
    if (fd >= 0) {
        unlink(full);
        close(fd);
    }
    free(full);
    return -1;
}

gyre_status_t comm_recorder_create(const char *dir, const char *job, const char *part, int size, int slots,
                                   comm_recorder_t *out)
{
    comm_recorder_t r = {.fd = -1, .bytes = comm_recorder_bytes(slots)};
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0)
        strcpy(host, "localhost");
    if (*dir != '\0')
        r.fd = make_file(dir, job, host, part, r.bytes, &r.path);
    if (r.fd < 0)
        r.fd = base_memory_file("gyre-recorder", r.bytes, 0);
    if (r.fd < 0)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the flight recorder (%zu bytes): %s",
                               r.bytes, strerror(errno));
    void *at = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    if (at == MAP_FAILED) {
        int err = errno;
        close(r.fd);
        if (r.path != NULL)
            unlink(r.path);
        free(r.path);
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "cannot map the flight recorder (%zu bytes): %s", r.bytes,
                               strerror(err));
    }
    struct timespec wall = {0, 0};
    clock_gettime(CLOCK_REALTIME, &wall);
    r.head = at;
    r.slots = (comm_recorder_slot_t *)(void *)((unsigned char *)at + COMM_RECORDER_HEAD);
    *r.head = (comm_recorder_head_t){.version = COMM_RECORDER_VERSION,
                                     .slot_bytes = sizeof(comm_recorder_slot_t),
                                     .slots = slots,
                                     .size = size,
                                     .maker = (int32_t)getpid(),
                                     .launcher = 1,
                                     .made_ns = base_now(),
                                     .wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec};
    base_machine_boot(r.head->boot);
    snprintf(r.head->job, sizeof(r.head->job), "%s", job);
    snprintf(r.head->host, sizeof(r.head->host), "%s", host);
    memcpy(r.head->magic, magic, sizeof(magic));
    *out = r;
    return GYRE_OK;
}

void comm_recorder_destroy(comm_recorder_t *recorder, int discard)
{
    if (recorder->slots == NULL)
        return;
    munmap(recorder->head, recorder->bytes);
    close(recorder->fd);
    if (discard && recorder->path != NULL && unlink(recorder->path) != 0 && errno != ENOENT)
        log_warning("the flight recorder %s could not be removed: %s", recorder->path, strerror(errno));
    free(recorder->path);
    *recorder = (comm_recorder_t){.fd = -1};
}

void comm_recorder_note_child(comm_recorder_slot_t *slot, int rank, int pid)
{
    slot->rank = rank; /* the rank itself writes the same once it joins */
    atomic_store_explicit(&slot->child, pid, memory_order_release);
}

void comm_recorder_note_end(comm_recorder_slot_t *slot, int status)
{
    atomic_store_explicit(&slot->status, status, memory_order_relaxed);
    atomic_store_explicit(&slot->ended_ns, base_now(), memory_order_release); /* the status before it */
}

int comm_recorder_head_check(const void *data, size_t bytes, unsigned long long total, const char **why)
{
    comm_recorder_head_t head;
    *why = "it does not begin like one";
    if (bytes < sizeof(head) || memcmp(data, magic, sizeof(magic)) != 0)
        return 0;
    memcpy(&head, data, sizeof(head));
    *why = "it is of another version of Gyre";
    if (head.version != COMM_RECORDER_VERSION || head.slot_bytes != sizeof(comm_recorder_slot_t))
        return 0;
    *why = "its size is not what it says";
    return head.slots >= 1 && head.slots <= COMM_RECORDER_SLOTS_MAX && head.size >= 1 &&
           head.size <= 1 << 20 &&
           total >= COMM_RECORDER_HEAD + (unsigned long long)head.slots * sizeof(comm_recorder_slot_t);
}

/* Ends a text that came from outside, and makes it printable; with `ascii` also fit for JSON whatever it
 * was. text: [bytes]. */
static void tame(char *text, size_t bytes, int ascii)
{
    text[bytes - 1] = '\0';
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 32 || *text == 127 || (ascii && (unsigned char)*text > 127))
            *text = ' ';
}

static void tame_slot(comm_recorder_slot_t *slot)
{
    if (slot->state > 4)
        slot->state = 0;
    tame(slot->error, sizeof(slot->error), 0);
    /* a file's name need not be UTF-8, and what is too long was cut anywhere */
    base_utf8_mend(slot->error);
}

gyre_status_t comm_recorder_parse(const unsigned char *data, size_t bytes, comm_recorder_head_t *head,
                                  comm_recorder_slot_t **slots)
{
    const char *why;
    comm_recorder_head_t seen = {.version = COMM_RECORDER_VERSION, .slot_bytes = sizeof(**slots)};
    if (bytes >= sizeof(seen) && memcmp(data, magic, sizeof(magic)) == 0)
        memcpy(&seen, data, sizeof(seen));
    tame(seen.job, sizeof(seen.job), 1);
    tame(seen.host, sizeof(seen.host), 1);
    tame(seen.boot, sizeof(seen.boot), 1);
    if (seen.version != COMM_RECORDER_VERSION || seen.slot_bytes != sizeof(**slots))
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                               "the flight recorder of job %s has version %u and %u bytes a rank; this "
                               "program reads version %d with %zu bytes: use the job's own",
                               seen.job, seen.version, seen.slot_bytes, COMM_RECORDER_VERSION,
                               sizeof(**slots));
    if (!comm_recorder_head_check(data, bytes, bytes, &why))
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "it is not a flight recorder: %s", why);
    *head = seen;
    size_t n = (size_t)head->slots * sizeof(**slots);
    comm_recorder_slot_t *copy = aligned_alloc(_Alignof(comm_recorder_slot_t), n);
    if (copy == NULL)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for %d slots of a flight recorder",
                               head->slots);
    memcpy(copy, data + COMM_RECORDER_HEAD, n);
    for (int i = 0; i < head->slots; i++)
        tame_slot(&copy[i]);
    *slots = copy;
    return GYRE_OK;
}

gyre_status_t comm_recorder_read(int fd, comm_recorder_head_t *head, comm_recorder_slot_t **slots)
{
    struct stat info;
    unsigned char *data = NULL;
    const size_t most = comm_recorder_bytes(COMM_RECORDER_SLOTS_MAX);
    if (fstat(fd, &info) != 0)
        return gyre_fail_quiet(GYRE_ERR_IO, "%s", strerror(errno));
    size_t bytes = info.st_size > 0 ? (size_t)info.st_size : 0, got = 0;
    if (!S_ISREG(info.st_mode))
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "it is not a flight recorder: it is no regular file");
    const int too_large = bytes > most;
    if (too_large) /* another version may have longer slots: its head says so */
        bytes = sizeof(*head);
    data = malloc(bytes > 0 ? bytes : 1);
    if (data == NULL)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    while (got < bytes) {
        ssize_t n = pread(fd, data + got, bytes - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* a file that shrank: what is missing is noticed below */
        got += (size_t)n;
    }
    gyre_status_t st = comm_recorder_parse(data, got, head, slots);
    free(data);
    if (st == GYRE_ERR_FORMAT && too_large)
        return gyre_fail_quiet(st, "it is not a flight recorder: it is too large");
    return st;
}
