/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/window.c: windows: what gyre_mem_alloc gives.
 *
 * A window is a file without a name (base/memory_file.h). An allocation of 1 MiB or more has a window of its
 * own. Smaller allocations share arenas of 1024 pages, so that many small ones cost few descriptors. Every
 * window ends with a control page that peers map too. The control page says whether the owner has freed the
 * window, so that peers drop their mapping (comm/memory/map.c). Freed memory is given back to the system at
 * once, even while peers still map it. Memory that ranks allocated together has a window of its own, and is
 * given back once all of them have freed it.
 *
 *     | data: whole pages                     | control page: `closed`, `users` |
 *
 * All changes happen under one mutex. comm_mem_find takes no lock (comm/memory/ranges.h). */
#include "comm/memory/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "comm/memory/ranges.h"
#include "comm/memory/window.h"

enum { ARENA_PAGES = 1024, ARENA_LIMIT = 1 << 20, WATCHES = 256 };

typedef struct window {
    struct window *next;
    uint64_t id;
    unsigned char *base;
    size_t bytes; /* of data; the control page follows */
    mem_span_t span;
    mem_control_t *control;
    int fd;
    int adopted; /* 1: memory of others (comm/memory/register.c) */
    int held;    /* 1: comm_mem_hold */
    int arena;   /* 1: shared by small allocations */
    int used;    /* arena: allocations alive */
    /* A child of fork has it mapped, too: it only unmaps it, and takes nothing from an arena. */
    pid_t maker;
    /* arena: pages of the allocation that begins at a page; 0: none begins here */
    uint16_t runs[ARENA_PAGES];
    uint8_t taken[ARENA_PAGES]; /* arena: 1 where an allocation lies */
} window_t;

static struct {
    pthread_mutex_t lock;
    window_t *windows;
    uint64_t last_id;
    comm_watch_t *watches[WATCHES];
    void (*gone)(uint64_t id); /* NULL: no window was held so far */
    int watch_count;
} mem = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- windows ------------------------------------------------------------------------------------------- */

static gyre_status_t fail_memfd(size_t bytes, int err)
{
    struct rlimit limit = {0, 0};

    if (err == EMFILE) {
        getrlimit(RLIMIT_NOFILE, &limit);
        return gyre_fail(
            GYRE_ERR_NO_MEMORY,
            "cannot allocate a window of %zu bytes: all %llu file descriptors that this process may have are "
            "open; raise the limit (ulimit -n) or allocate fewer large windows",
            bytes, (unsigned long long)limit.rlim_cur);
    }
    return gyre_fail_errno(GYRE_ERR_NO_MEMORY, err, "cannot allocate a window of %zu bytes", bytes);
}

static gyre_status_t offer_everywhere(const window_t *window)
{
    for (int i = 0; i < mem.watch_count; i++) {
        gyre_status_t status = comm_watch_offer(mem.watches[i], window->id, window->fd);
        if (status != GYRE_OK) {
            for (int k = 0; k < i; k++)
                comm_watch_withdraw(mem.watches[k], window->id);
            return status;
        }
    }
    return GYRE_OK;
}

/* Only arenas need the tables at the end. Not inline: the compiler would take the shorter block for a
 * mistake. */
__attribute__((noinline)) static window_t *window_new(int arena)
{
    return calloc(1, arena ? sizeof(window_t) : offsetof(window_t, runs));
}

/* bytes: whole pages; users: see mem_control_t. Under the lock. */
static gyre_status_t window_create(size_t bytes, int arena, uint32_t users, window_t **out)
{
    window_t *window = window_new(arena);
    gyre_status_t status = mem_ranges_reserve();

    if (!window || status != GYRE_OK) {
        free(window);
        return status != GYRE_OK ? status : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a window");
    }
    window->bytes = bytes;
    window->arena = arena;
    window->maker = getpid();
    window->id = ++mem.last_id;
    window->fd = base_memory_file("gyre-window", bytes + mem_page(), 0);
    if (window->fd < 0) {
        status = fail_memfd(bytes, errno);
        goto free_window;
    }
    window->base = base_memory_file_map(window->fd, bytes + mem_page());
    if (window->base == MAP_FAILED) {
        status = fail_memfd(bytes, errno);
        goto close_fd;
    }
    window->control = (mem_control_t *)(void *)(window->base + bytes);
    atomic_init(&window->control->users, users);
    window->span.start = window->span.mapped = (uintptr_t)window->base;
    window->span.end = window->span.mapped_end = (uintptr_t)window->base + bytes;
    status = offer_everywhere(window);
    if (status != GYRE_OK)
        goto unmap;
    window->next = mem.windows;
    mem.windows = window;
    mem_ranges_insert(window->id, window->base, &window->span);
    *out = window;
    return GYRE_OK;
unmap:
    munmap(window->base, bytes + mem_page());
close_fd:
    close(window->fd);
free_window:
    free(window);
    return status;
}

/* Gives pages back to the system; they read as zeros from now on. */
static void give_back(window_t *window, size_t offset, size_t bytes)
{
    /* Who holds it knows these very pages: other ones in their place would be strangers to an adapter. */
    if (window->held || base_memory_file_give_back(window->fd, offset, bytes) != 0)
        memset(window->base + offset, 0, bytes);
}

static void window_destroy(window_t *window)
{
    mem_control_t *control = window->control;
    window_t **link = &mem.windows;

    const int mine = window->maker == getpid();

    if (window->held && mine)
        mem.gone(window->id);
    while (*link != window)
        link = &(*link)->next;
    *link = window->next;
    mem_ranges_remove(window->id);
    for (int i = 0; mine && i < mem.watch_count; i++)
        comm_watch_withdraw(mem.watches[i], window->id);
    if (mine)
        atomic_store_explicit(&control->closed, 1, memory_order_release);
    /* Peers may map it until they look at `closed`; the memory itself goes back now. */
    if (mine && mem_control_leave(control) && base_memory_file_give_back(window->fd, 0, window->bytes) != 0)
        log_debug("window %llu: its memory goes back only when peers unmap it",
                  (unsigned long long)window->id);
    if (window->adopted)
        munmap(window->span.copy, window->bytes + mem_page());
    else
        munmap(window->base, window->bytes + mem_page());
    close(window->fd);
    free(window);
}

static window_t *window_at(const void *ptr)
{
    const unsigned char *at = ptr;

    for (window_t *window = mem.windows; window; window = window->next) {
        if (at >= window->base && at < window->base + window->bytes)
            return window;
    }
    return NULL;
}

/* ---- arenas: first fit over pages ---------------------------------------------------------------------- */

/* First page of a run of `pages` free ones; ARENA_PAGES: none. */
static size_t arena_find(const window_t *arena, size_t pages)
{
    size_t free_run = 0;

    for (size_t page = 0; page < ARENA_PAGES; page++) {
        free_run = arena->taken[page] ? 0 : free_run + 1;
        if (free_run == pages)
            return page + 1 - pages;
    }
    return ARENA_PAGES;
}

static gyre_status_t arena_alloc(size_t pages, void **ptr)
{
    window_t *arena;
    size_t page = ARENA_PAGES;
    const pid_t maker = getpid();
    gyre_status_t status;

    for (arena = mem.windows; arena; arena = arena->next) {
        if (arena->arena && arena->maker == maker && (page = arena_find(arena, pages)) < ARENA_PAGES)
            break;
    }
    if (!arena) {
        status = window_create(ARENA_PAGES * mem_page(), 1, 1, &arena);
        if (status != GYRE_OK)
            return status;
        page = 0;
    }
    memset(arena->taken + page, 1, pages);
    arena->runs[page] = (uint16_t)pages;
    arena->used++;
    *ptr = arena->base + page * mem_page();
    return GYRE_OK;
}

static int empty_arenas(void)
{
    int count = 0;
    const pid_t maker = getpid();

    for (window_t *window = mem.windows; window; window = window->next)
        count += window->arena && window->maker == maker && window->used == 0;
    return count;
}

static gyre_status_t arena_free(window_t *arena, const void *ptr)
{
    size_t offset = (size_t)((const unsigned char *)ptr - arena->base), page = offset / mem_page(), pages;

    if (offset % mem_page() != 0 || arena->runs[page] == 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_mem_free: %p was not given by gyre_mem_alloc, or is free already", ptr);
    pages = arena->runs[page];
    arena->runs[page] = 0;
    memset(arena->taken + page, 0, pages);
    if (arena->maker == getpid())
        give_back(arena, offset, pages * mem_page()); /* so the next owner finds zeros */
    arena->used--;
    if (arena->used == 0 && arena->maker == getpid() &&
        empty_arenas() > 1) /* one stays, for programs that allocate and free in turn */
        window_destroy(arena);
    return GYRE_OK;
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

/* users: 0: those of gyre_mem_alloc. */
static gyre_status_t allocate(const char *name, size_t bytes, uint32_t users, void **ptr)
{
    window_t *window;
    gyre_status_t status;

    if (!ptr)
        return gyre_fail(GYRE_ERR_INVALID, "%s: ptr is NULL", name);
    if (bytes > (size_t)INT64_MAX - 2 * mem_page())
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s: %zu bytes is more than any machine has", name, bytes);
    bytes = base_round_up(base_max_size(bytes, 1), mem_page());
    pthread_mutex_lock(&mem.lock);
    if (users == 0 && bytes < ARENA_LIMIT) {
        status = arena_alloc(bytes / mem_page(), ptr);
    } else {
        status = window_create(bytes, 0, users == 0 ? 1 : users, &window);
        if (status == GYRE_OK)
            *ptr = window->base;
    }
    pthread_mutex_unlock(&mem.lock);
    return status;
}

gyre_status_t comm_mem_alloc(size_t bytes, void **ptr)
{
    return allocate("gyre_mem_alloc", bytes, 0, ptr);
}

gyre_status_t comm_mem_alloc_now(size_t bytes, void **ptr)
{
    const gyre_status_t status = comm_mem_alloc(bytes, ptr);

    if (status == GYRE_OK)
        base_memory_file_fill(*ptr, bytes);
    return status;
}

gyre_status_t comm_mem_alloc_shared(size_t bytes, uint32_t users, void **ptr)
{
    return allocate("gyre_mem_alloc_shared", bytes, users, ptr);
}

size_t comm_mem_allocated(const void *ptr)
{
    size_t bytes = 0;
    const window_t *window;

    pthread_mutex_lock(&mem.lock);
    window = window_at(ptr);
    if (window && window->arena)
        bytes = window->runs[(size_t)((const unsigned char *)ptr - window->base) / mem_page()] * mem_page();
    else if (window && window->base == ptr && !window->adopted)
        bytes = window->bytes;
    pthread_mutex_unlock(&mem.lock);
    return bytes;
}

gyre_status_t comm_mem_free(void *ptr)
{
    gyre_status_t status = GYRE_OK;
    window_t *window;

    if (!ptr)
        return GYRE_OK;
    pthread_mutex_lock(&mem.lock);
    window = window_at(ptr);
    if (window && window->arena)
        status = arena_free(window, ptr);
    else if (window && window->base == ptr && !window->adopted)
        window_destroy(window);
    else
        status = gyre_fail(GYRE_ERR_INVALID,
                           "gyre_mem_free: %p was not given by gyre_mem_alloc, or is free already", ptr);
    pthread_mutex_unlock(&mem.lock);
    return status;
}

/* ---- memory of others: comm/memory/register.c ---------------------------------------------------------- */

gyre_status_t comm_window_adopt(const mem_span_t *span, int fd, uint64_t *id)
{
    const uintptr_t page = mem_page(), from = span->start & ~(page - 1), to = base_round_up(span->end, page);
    window_t *window = window_new(0);
    gyre_status_t status;

    if (!window)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a window");
    window->base = (unsigned char *)from; /* NOLINT: a page */
    window->bytes = to - from;
    window->span = *span;
    window->fd = fd;
    window->control = (mem_control_t *)(void *)(span->copy + window->bytes);
    atomic_init(&window->control->users, 1);
    window->adopted = 1;
    window->maker = getpid();
    pthread_mutex_lock(&mem.lock);
    status = mem_ranges_reserve();
    window->id = ++mem.last_id;
    if (status == GYRE_OK)
        status = offer_everywhere(window);
    if (status == GYRE_OK) {
        window->next = mem.windows;
        mem.windows = window;
        mem_ranges_insert(window->id, window->base, &window->span);
        *id = window->id;
    }
    pthread_mutex_unlock(&mem.lock);
    if (status != GYRE_OK)
        free(window);
    return status;
}

void comm_window_retire(uint64_t id)
{
    window_t *window;

    pthread_mutex_lock(&mem.lock);
    for (window = mem.windows; window && window->id != id; window = window->next) {
    }
    if (window)
        window_destroy(window);
    pthread_mutex_unlock(&mem.lock);
}

int comm_window_touches(const void *from, size_t bytes)
{
    const unsigned char *at = from;
    int touches = 0;

    pthread_mutex_lock(&mem.lock);
    for (const window_t *window = mem.windows; window && !touches; window = window->next)
        touches = (uintptr_t)at < window->span.mapped_end && window->span.mapped < (uintptr_t)at + bytes;
    pthread_mutex_unlock(&mem.lock);
    return touches;
}

int comm_mem_hold(uint64_t id, void (*gone)(uint64_t id),
                  void (*take)(void *user, uint64_t id, void *base, size_t bytes), void *user)
{
    window_t *window;

    pthread_mutex_lock(&mem.lock);
    for (window = mem.windows; window && window->id != id; window = window->next) {
    }
    if (window) {
        mem.gone = gone;
        window->held = 1;
        take(user, id, window->base, window->bytes);
    }
    pthread_mutex_unlock(&mem.lock);
    return window != NULL;
}

static void detach_all(void)
{
    for (int i = 0; i < mem.watch_count; i++) {
        for (window_t *window = mem.windows; window; window = window->next)
            comm_watch_withdraw(mem.watches[i], window->id);
    }
    mem.watch_count = 0;
}

void comm_mem_detach(comm_watch_t *watch)
{
    pthread_mutex_lock(&mem.lock);
    for (int i = 0; i < mem.watch_count; i++) {
        if (mem.watches[i] != watch)
            continue;
        for (window_t *window = mem.windows; window; window = window->next)
            comm_watch_withdraw(watch, window->id);
        mem.watches[i] = mem.watches[--mem.watch_count];
        break;
    }
    pthread_mutex_unlock(&mem.lock);
}

gyre_status_t comm_mem_attach(comm_watch_t *watch)
{
    gyre_status_t status = GYRE_OK;
    window_t *window;

    pthread_mutex_lock(&mem.lock);
    if (!watch) {
        detach_all();
    } else if (mem.watch_count == WATCHES) {
        status =
            gyre_fail(GYRE_ERR_NO_MEMORY,
                      "this process is in %d jobs already, between which it shares its memory: no more can "
                      "be joined at once",
                      WATCHES);
    } else {
        for (window = mem.windows; window && status == GYRE_OK; window = window->next)
            status = comm_watch_offer(watch, window->id, window->fd);
        if (status == GYRE_OK)
            mem.watches[mem.watch_count++] = watch;
        else
            for (window = mem.windows; window; window = window->next)
                comm_watch_withdraw(watch, window->id); /* those that were not offered are ignored */
    }
    pthread_mutex_unlock(&mem.lock);
    return status;
}
