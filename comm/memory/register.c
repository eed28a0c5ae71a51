/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/register.c: memory that a program got elsewhere, made into windows.
 *
 * Registering copies the pages of the range into a memfd and maps that over them, in one mmap, so that the
 * addresses are never without memory. Deregistering maps anonymous memory over them again and copies back
 * what they held. Only pages that lie in the range as a whole are exchanged: the page at an end holds others'
 * memory, too, which any thread may write to meanwhile. What lies there travels by copies (window.h). Ranges
 * that are too small to matter are only remembered. */
#include "comm/memory/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "comm/memory/window.h"

enum { LEAST = 64 << 10 }; /* bytes */

typedef struct reg {
    struct reg *next;
    unsigned char *base; /* as registered */
    size_t bytes;
    unsigned char *pages; /* that were exchanged; NULL: there is no window */
    size_t page_bytes;
    uint64_t window;
    ino_t inode; /* of its memfd: shows whether it is still what is mapped there */
} reg_t;

static struct {
    pthread_mutex_t lock; /* taken before the windows' */
    reg_t *list;
} regs = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what is mapped at some addresses ---- */

typedef struct {
    uintptr_t start, end;
    char rights[8], name[64], flags[256];
    unsigned long inode;
} mapped_t;

/* One mapping as /proc/self/smaps describes it; 0 at the end. The first line of the next one stays in
 * `line`. */
static int next_mapping(FILE *file, char *line, size_t room, mapped_t *m)
{
    *m = (mapped_t){0};
    if (!line[0] && !fgets(line, (int)room, file))
        return 0;
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %63[^\n]", &m->start, &m->end, m->rights, &m->inode, m->name) <
        4)
        return 0;
    while (fgets(line, (int)room, file)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            return 1;
        if (strncmp(line, "VmFlags:", 8) == 0)
            snprintf(m->flags, sizeof m->flags, "%.250s", line + 8);
    }
    line[0] = 0;
    return 1;
}

/* NULL: such a mapping may be replaced; else why not. */
static const char *objection(const mapped_t *m)
{
    static const struct {
        const char *flag, *why;
    } flags[] = {{" gd ", "is a stack"},
                 {" ht ", "consists of huge pages"},
                 {" lo ", "is locked (mlock)"},
                 {" dc ", "is kept from children (MADV_DONTFORK), as memory is that a device may write to"},
                 {" io ", "belongs to a device"},
                 {" pf ", "belongs to a device"}};
    if (strncmp(m->rights, "rw", 2) != 0)
        return "is not both readable and writable";
    if (m->rights[3] != 'p')
        return "is shared already";
    if (m->inode != 0)
        return "is mapped from a file";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char spaced[260];
        char *end;
        snprintf(spaced, sizeof spaced, " %s", m->flags);
        while ((end = strchr(spaced, '\n')))
            *end = ' ';
        if (strstr(spaced, flags[i].flag))
            return flags[i].why;
    }
    return NULL;
}

/* Walks the mappings of [from, from + bytes). With inode 0: OK if all of it may be replaced. Else OK if
 * all is mapped from it. */
static gyre_status_t look(const unsigned char *from, size_t bytes, ino_t inode)
{
    uintptr_t at = (uintptr_t)from, end = at + bytes;
    char line[512] = "";
    const char *why = NULL;
    mapped_t m;
    FILE *file = fopen("/proc/self/smaps", "re");

    if (!file)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot read /proc/self/smaps");
    while (at < end && !why && next_mapping(file, line, sizeof line, &m)) {
        if (m.end <= at)
            continue;
        if (m.start > at)
            break;
        if (inode ? m.inode != inode : (why = objection(&m)) != NULL)
            break;
        at = m.end;
    }
    fclose(file);
    if (at >= end)
        return GYRE_OK;
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "memory at %#lx %s", (unsigned long)at,
                           why ? why : "is not mapped as expected");
}

/* ---- exchanging pages ---- */

static gyre_status_t no_memory(const char *what, size_t bytes)
{
    return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "gyre_mem_%s: no memory for %zu bytes", what, bytes);
}

/* memcpy of whole pages, in which a program may keep several objects: not for AddressSanitizer's eyes. */
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize("address"))) static void copy_pages(void *to, const void *from, size_t bytes)
{
    volatile unsigned long *t = to;
    const volatile unsigned long *f = from;
    for (size_t i = 0; i < bytes / sizeof *t; i++)
        t[i] = f[i];
}
#else
#define copy_pages memcpy
#endif

/* Replaces the span's whole pages by those of a new memfd. On success *fd and span->copy are the caller's. */
static gyre_status_t share_pages(mem_span_t *span, int *fd)
{
    const size_t page = mem_page(), bytes = span->mapped_end - span->mapped;
    const uintptr_t first = span->start & ~(uintptr_t)(page - 1);
    const size_t all = base_round_up(span->end, page) - first + page, offset = span->mapped - first;
    unsigned char *pages = (unsigned char *)span->mapped; /* NOLINT: a page */
    gyre_status_t status;

    *fd = base_memory_file("gyre-window", all, 0);
    if (*fd < 0)
        return no_memory("register", bytes);
    span->copy = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (span->copy == MAP_FAILED) {
        status = no_memory("register", bytes);
        close(*fd);
        return status;
    }
    copy_pages(span->copy + offset, pages, bytes);
    if (mmap(pages, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *fd, (off_t)offset) ==
        MAP_FAILED) {
        status = no_memory("register", bytes);
        munmap(span->copy, all);
        close(*fd);
        return status;
    }
    madvise(span->copy + offset, bytes, MADV_DONTNEED); /* mapped twice: counted twice */
    return GYRE_OK;
}

/* The way back. Not by mremap with a new address, which would be one step: UCX's hook of it drops the
 * address, and its registration cache must hear that these pages go. */
static gyre_status_t unshare_pages(unsigned char *pages, size_t bytes)
{
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        return no_memory("deregister", bytes);
    copy_pages(copy, pages, bytes);
    gyre_status_t status = GYRE_OK;
    if (mmap(pages, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        status = no_memory("deregister", bytes);
    else
        copy_pages(pages, copy, bytes);
    munmap(copy, bytes);
    return status;
}

/* The window that the range would be. 0: it has too few whole pages, or some of them are a window's. */
static int span_of(const reg_t *reg, mem_span_t *span)
{
    const uintptr_t page = mem_page(), start = (uintptr_t)reg->base, end = start + reg->bytes;
    const uintptr_t from = base_round_up(start, page), to = end & ~(page - 1);

    *span = (mem_span_t){.start = start, .end = end, .mapped = from, .mapped_end = to};
    return to > from && to - from >= LEAST &&
           !comm_window_touches((const void *)from, to - from); /* NOLINT: a page */
}

static gyre_status_t make_window(reg_t *reg)
{
    struct stat info;
    mem_span_t span;
    int fd = -1;

    if (!span_of(reg, &span))
        return GYRE_OK;
    unsigned char *pages = (unsigned char *)span.mapped; /* NOLINT: a page */
    const size_t bytes = span.mapped_end - span.mapped;
    gyre_status_t status = look(pages, bytes, 0);
    if (status == GYRE_ERR_UNSUPPORTED) {
        char why[300];
        snprintf(why, sizeof why, "%s", gyre_last_error());
        return gyre_fail(status, "gyre_mem_register: %zu bytes at %p cannot be shared: %s", reg->bytes,
                         (void *)reg->base, why);
    }
    if (status == GYRE_OK)
        status = share_pages(&span, &fd);
    if (status != GYRE_OK)
        return status;
    reg->inode = fstat(fd, &info) == 0 ? info.st_ino : 0;
    status = comm_window_adopt(&span, fd, &reg->window);
    if (status != GYRE_OK) {
        char why[300];
        snprintf(why, sizeof why, "%s", gyre_last_error());
        if (unshare_pages(pages, bytes) != GYRE_OK)
            log_warning("%zu bytes at %p stay shared", bytes, (void *)pages);
        close(fd);
        return gyre_fail_quiet(status, "%s", why);
    }
    reg->pages = pages;
    reg->page_bytes = bytes;
    return GYRE_OK;
}

/* Memory that was given back to the system, and perhaps mapped anew by others, while it was registered:
 * its pages are left alone. */
static int is_stale(const reg_t *reg)
{
    return reg->pages && look(reg->pages, reg->page_bytes, reg->inode) == GYRE_ERR_UNSUPPORTED;
}

/* ---- the calls ---- */

/* The registration that has bytes in common with [ptr, ptr + bytes), or where the list ends. Under the
 * lock. */
static reg_t **registered(const void *ptr, size_t bytes)
{
    reg_t **link = &regs.list;
    uintptr_t at = (uintptr_t)ptr;

    while (*link &&
           (at >= (uintptr_t)(*link)->base + (*link)->bytes || (uintptr_t)(*link)->base >= at + bytes))
        link = &(*link)->next;
    return link;
}

static void forget(reg_t **link)
{
    reg_t *reg = *link;

    *link = reg->next;
    if (reg->pages)
        comm_window_retire(reg->window);
    free(reg);
}

gyre_status_t comm_mem_register(void *ptr, size_t bytes)
{
    gyre_status_t status = GYRE_OK;
    reg_t *reg, **other;

    if (!ptr || bytes == 0)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_mem_register: the range is empty: %zu bytes at %p", bytes,
                         ptr);
    size_t end;
    if (!base_add((uintptr_t)ptr, bytes, &end) || !base_add(end, mem_page(), &end))
        return gyre_fail(GYRE_ERR_OVERFLOW, "gyre_mem_register: %zu bytes at %p exceed the address space",
                         bytes, ptr);
    reg = calloc(1, sizeof *reg);
    if (!reg)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to register %zu bytes", bytes);
    reg->base = ptr;
    reg->bytes = bytes;
    pthread_mutex_lock(&regs.lock);
    other = registered(ptr, bytes);
    if (*other && is_stale(*other)) {
        log_warning("%zu bytes at %p were freed before gyre_mem_deregister", (*other)->bytes,
                    (void *)(*other)->base);
        forget(other);
        other = registered(ptr, bytes);
    }
    if (*other)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "gyre_mem_register: %zu bytes at %p overlap %zu bytes at %p, which are registered",
                           bytes, ptr, (*other)->bytes, (void *)(*other)->base);
    if (status == GYRE_OK)
        status = make_window(reg);
    if (status == GYRE_OK) {
        reg->next = regs.list;
        regs.list = reg;
    }
    pthread_mutex_unlock(&regs.lock);
    if (status != GYRE_OK)
        free(reg);
    return status;
}

size_t comm_mem_registered(const void *ptr)
{
    size_t bytes;

    pthread_mutex_lock(&regs.lock);
    const reg_t *reg = *registered(ptr, 1);
    bytes = reg && reg->base == ptr ? reg->bytes : 0;
    pthread_mutex_unlock(&regs.lock);
    return bytes;
}

gyre_status_t comm_mem_deregister(void *ptr)
{
    gyre_status_t status = GYRE_OK;
    reg_t **link;

    pthread_mutex_lock(&regs.lock);
    link = registered(ptr, 1);
    if (!*link || (*link)->base != ptr) {
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_mem_deregister: %p is not registered", ptr);
    } else if (is_stale(*link)) {
        forget(link);
        status = gyre_fail(GYRE_ERR_INVALID,
                           "gyre_mem_deregister: the memory at %p was freed while it was registered", ptr);
    } else {
        if ((*link)->pages)
            status = unshare_pages((*link)->pages, (*link)->page_bytes);
        if (status == GYRE_OK)
            forget(link);
    }
    pthread_mutex_unlock(&regs.lock);
    return status;
}
