/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/malloc/malloc.c: libgyre-malloc.so, which a program preloads (LD_PRELOAD): large allocations of
 * malloc and its relatives come from gyre_mem_alloc, so that ranks of one host read them where they lie.
 *
 * Allocations of LEAST bytes and more are *blocks*, each a window of its own (gyre_mem_alloc(3)). All else is
 * the C library's, whose own names (__libc_malloc ...) are called here, so that nothing has to be looked up
 * before the first allocation. What realloc grows in the C library stays there.
 *
 * Blocks begin at a page, which allocations of the C library below a page's alignment never do: free looks
 * into the table of blocks only for such addresses.
 *
 * Freed blocks are kept for a while: programs allocate temporaries of the same size again and again, and
 * fresh pages cost more than all else here.
 *
 * The program's own libgyre makes the windows: the shared one, linked or preloaded, too; or a static one in a
 * program that exports what used.list names.
 *
 * fork: a window is shared with the child, and memory of malloc must not be. The child copies every block
 * into private memory at the same address before it runs on, while the parent waits. A child has no new
 * blocks: it is no rank. vfork and posix_spawn, and so system and popen, copy nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gyre/comm.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    LEAST = 1 << 20, /* bytes of a block: smaller allocations of gyre_mem_alloc share windows */
    PLACES = 1 << 17,
    MOST = PLACES / 2,
    KEPT_MOST = 16,
    KEPT_BYTES = 64 << 20
};

/* The C library's. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *ptr);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

typedef struct {
    void *at; /* NULL: the place is free */
    size_t bytes;
} block_t;

static struct {
    pthread_mutex_t lock;
    gyre_status_t (*mem_alloc)(size_t bytes, void **ptr);
    gyre_status_t (*mem_free)(void *ptr);
    size_t page, most;        /* bytes of a page; blocks there may be */
    size_t count, kept;       /* blocks in use, and freed ones */
    size_t kept_bytes;        /* of the freed ones */
    int copies;               /* 1: in a child of fork: blocks are private mappings */
    int pipe[2];              /* during a fork: its child closes it when it has copied */
    block_t freed[KEPT_MOST]; /* oldest first */
    block_t table[PLACES];    /* open addressing by `at` */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int started, any_blocks; /* any_blocks 0: there is nothing to look for */
/* This thread is in gyre_mem_alloc or gyre_mem_free: what they allocate is the C library's. */
static __thread int inside __attribute__((tls_model("initial-exec")));

/* ---- the table ----------------------------------------------------------------------------------------- */

static size_t home_of(const void *at)
{
    return (size_t)(((uintptr_t)at / heap.page * 0x9E3779B97F4A7C15u) >> 40) % PLACES;
}

/* The place of the block at `at`, or where it would go. */
static size_t place_of(const void *at)
{
    size_t i = home_of(at);
    while (heap.table[i].at && heap.table[i].at != at)
        i = (i + 1) % PLACES;
    return i;
}

/* Blocks that were put off their home by this one move up. */
static void remove_at(size_t hole)
{
    for (size_t i = (hole + 1) % PLACES; heap.table[i].at; i = (i + 1) % PLACES) {
        const size_t home = home_of(heap.table[i].at);
        if ((i - home + PLACES) % PLACES < (i - hole + PLACES) % PLACES)
            continue; /* its home lies after the hole */
        heap.table[hole] = heap.table[i];
        hole = i;
    }
    heap.table[hole] = (block_t){NULL, 0};
}

/* An address that free gets for the second time is refused as the C library does where it sees it. */
static void refuse(void)
{
    static const char text[] = "libgyre-malloc: free: this memory is free already\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    abort();
}

static int may_be_block(const void *ptr)
{
    return ptr && !inside && atomic_load_explicit(&any_blocks, memory_order_relaxed) &&
           (uintptr_t)ptr % heap.page == 0;
}

/* Bytes of the block at `ptr`; 0: it is the C library's. */
static size_t block_bytes(const void *ptr)
{
    size_t bytes = 0;
    if (!may_be_block(ptr))
        return 0;
    pthread_mutex_lock(&heap.lock);
    bytes = heap.table[place_of(ptr)].bytes;
    pthread_mutex_unlock(&heap.lock);
    return bytes;
}

/* ---- blocks --------------------------------------------------------------------------------------------
 *
 * The library is called without the lock: it has handlers of fork, too, and a thread that held both locks
 * the other way round would wait forever. */

static void release(const block_t *blocks, size_t count)
{
    inside = 1;
    for (size_t i = 0; i < count; i++) {
        if (heap.copies)
            munmap(blocks[i].at, blocks[i].bytes);
        else
            (void)heap.mem_free(blocks[i].at); /* logs why it is not free: an operation still uses it */
    }
    inside = 0;
}

/* Under the lock. Takes freed blocks out, oldest first, until there are at most `most` of at most `bytes` in
 * all. Returns how many, for release. */
static size_t drop(size_t most, size_t bytes, block_t out[KEPT_MOST])
{
    size_t count = 0;
    while (heap.kept - count > most || heap.kept_bytes > bytes) {
        out[count] = heap.freed[count];
        heap.kept_bytes -= out[count].bytes;
        count++;
    }
    heap.kept -= count;
    memmove(heap.freed, heap.freed + count, heap.kept * sizeof *heap.freed);
    return count;
}

/* Under the lock: the newest freed block that fits without much waste. */
static int take_kept(size_t bytes, block_t *out)
{
    for (size_t i = heap.kept; i-- > 0;) {
        const block_t block = heap.freed[i];
        if (block.bytes < bytes || block.bytes - bytes > bytes / 8)
            continue;
        heap.kept--;
        heap.kept_bytes -= block.bytes;
        memmove(heap.freed + i, heap.freed + i + 1, (heap.kept - i) * sizeof *heap.freed);
        *out = block;
        return 1;
    }
    return 0;
}

/* 1: the block has its place. 2: a window is to be made for it, which has a place in the count. 0: there may
 * be no more. */
static int find_block(block_t *block)
{
    block_t dropped[KEPT_MOST];
    size_t drops = 0;
    int found = 0;
    pthread_mutex_lock(&heap.lock);
    if (heap.count < heap.most) {
        found = take_kept(block->bytes, block) ? 1 : 2;
        heap.count++;
        if (found == 1)
            heap.table[place_of(block->at)] = *block;
        else if (heap.count + heap.kept > heap.most)
            drops = drop(heap.most - heap.count, KEPT_BYTES, dropped);
    }
    pthread_mutex_unlock(&heap.lock);
    release(dropped, drops);
    return found;
}

static void make_block(block_t *block)
{
    inside = 1;
    const gyre_status_t status = heap.mem_alloc(block->bytes, &block->at);
    inside = 0;
    pthread_mutex_lock(&heap.lock);
    if (status == GYRE_OK) {
        heap.table[place_of(block->at)] = *block;
        atomic_store_explicit(&any_blocks, 1, memory_order_relaxed);
    } else {
        block->at = NULL;
        heap.most = --heap.count; /* the library has logged why; it is not tried again and again */
    }
    pthread_mutex_unlock(&heap.lock);
}

/* NULL: none is to be had. *fresh: its bytes are 0. */
static void *block_new(size_t bytes, int *fresh)
{
    const int error = errno;
    block_t block = {NULL, 0};
    if (bytes < LEAST || inside || !atomic_load_explicit(&started, memory_order_acquire) ||
        bytes > PTRDIFF_MAX - heap.page)
        return NULL;
    block.bytes = (bytes + heap.page - 1) / heap.page * heap.page;
    *fresh = find_block(&block) == 2;
    if (*fresh)
        make_block(&block);
    errno = error;
    return block.at;
}

/* 1: it was a block. */
static int block_free(void *ptr)
{
    const int error = errno;
    block_t dropped[KEPT_MOST + 1];
    size_t drops = 0;
    if (!may_be_block(ptr))
        return 0;
    pthread_mutex_lock(&heap.lock);
    const size_t place = place_of(ptr);
    const block_t block = heap.table[place];
    for (size_t i = 0; !block.at && i < heap.kept; i++) {
        if (heap.freed[i].at == ptr)
            refuse();
    }
    if (block.at) {
        remove_at(place);
        heap.count--;
        if (heap.copies || block.bytes > KEPT_BYTES) {
            dropped[drops++] = block;
        } else {
            drops = drop(KEPT_MOST - 1, KEPT_BYTES - block.bytes, dropped);
            heap.freed[heap.kept++] = block;
            heap.kept_bytes += block.bytes;
        }
    }
    pthread_mutex_unlock(&heap.lock);
    release(dropped, drops);
    errno = error;
    return block.at != NULL;
}

/* ---- the functions of the C library -------------------------------------------------------------------- */

EXPORT void *malloc(size_t bytes)
{
    int fresh;
    void *at = block_new(bytes, &fresh);
    return at ? at : __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    size_t all;
    int fresh;
    void *at = NULL;
    if (!__builtin_mul_overflow(count, bytes, &all))
        at = block_new(all, &fresh);
    if (at && !fresh)
        memset(at, 0, all);
    return at ? at : __libc_calloc(count, bytes);
}

EXPORT void free(void *ptr)
{
    if (!block_free(ptr))
        __libc_free(ptr);
}

EXPORT void *realloc(void *ptr, size_t bytes)
{
    const size_t old = block_bytes(ptr);
    if (!ptr)
        return malloc(bytes);
    if (old == 0)
        return __libc_realloc(ptr, bytes);
    if (bytes == 0) {
        free(ptr);
        return NULL;
    }
    if (bytes <= old && bytes > old / 2)
        return ptr;
    void *at = malloc(bytes);
    if (at) {
        memcpy(at, ptr, bytes < old ? bytes : old);
        free(ptr);
    }
    return at;
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    int fresh;
    void *at = alignment <= heap.page ? block_new(bytes, &fresh) : NULL;
    return at ? at : __libc_memalign(alignment, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

EXPORT int posix_memalign(void **ptr, size_t alignment, size_t bytes)
{
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    const int error = errno;
    void *at = memalign(alignment, bytes);
    errno = error; /* which this function leaves alone */
    if (!at)
        return ENOMEM;
    *ptr = at;
    return 0;
}

EXPORT size_t malloc_usable_size(void *ptr)
{
    static size_t (*_Atomic next)(void *);
    const size_t bytes = block_bytes(ptr);
    if (bytes > 0)
        return bytes;
    if (!atomic_load(&next)) {
        size_t (*found)(void *);
        void *const symbol = dlsym(RTLD_NEXT, "malloc_usable_size");
        memcpy(&found, &symbol, sizeof found);
        atomic_store(&next, found);
    }
    return atomic_load(&next)(ptr);
}

/* ---- fork ---------------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&heap.lock);
    if (heap.count == 0 || heap.copies || pipe2(heap.pipe, O_CLOEXEC) != 0)
        heap.pipe[0] = -1;
}

/* Waits for the end of the child's copying, or of the child. */
static void after_fork_parent(void)
{
    const int error = errno;
    char byte;
    if (heap.pipe[0] >= 0) {
        close(heap.pipe[1]);
        while (read(heap.pipe[0], &byte, 1) < 0 && errno == EINTR) {
        }
        close(heap.pipe[0]);
    }
    pthread_mutex_unlock(&heap.lock);
    errno = error;
}

/* A child whose memory cannot be kept apart from its parent's must not run on. */
static void give_up(void)
{
    static const char text[] = "libgyre-malloc: no memory to copy the large blocks into a child of fork\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(127);
}

/* The library knows its window no more than the parent's communicators: a child of fork is no rank. */
static void make_private(const block_t *block)
{
    void *copy = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        give_up();
    memcpy(copy, block->at, block->bytes);
    /* Not mremap: UCX 1.13 puts a function of its own in its place, which forgets the new address. */
    if (syscall(SYS_mremap, copy, block->bytes, block->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, block->at) == -1)
        give_up();
}

static void after_fork_child(void)
{
    for (size_t i = 0; !heap.copies && heap.count > 0 && i < PLACES; i++) {
        if (heap.table[i].at)
            make_private(&heap.table[i]);
    }
    for (size_t i = 0; !heap.copies && i < heap.kept; i++)
        munmap(heap.freed[i].at, heap.freed[i].bytes);
    if (!heap.copies)
        heap.kept = heap.kept_bytes = 0;
    heap.copies = 1;
    heap.most = 0;
    if (heap.pipe[0] >= 0) {
        close(heap.pipe[0]);
        close(heap.pipe[1]);
    }
    pthread_mutex_unlock(&heap.lock);
}

/* The program's own libgyre is used. A program without one, such as a shell that it starts, is left alone. */
static int find_library(void)
{
    void *const alloc = dlsym(RTLD_DEFAULT, "gyre_mem_alloc"), *const end =
                                                                   dlsym(RTLD_DEFAULT, "gyre_mem_free");
    memcpy(&heap.mem_alloc, &alloc, sizeof alloc);
    memcpy(&heap.mem_free, &end, sizeof end);
    return alloc && end;
}

__attribute__((constructor)) static void start(void)
{
    struct rlimit files = {0, 0};
    if (!find_library())
        return;
    heap.page = (size_t)sysconf(_SC_PAGESIZE);
    if (pthread_atfork(before_fork, after_fork_parent, after_fork_child) != 0)
        return;
    /* Each block takes a descriptor: half of them are left to the program. */
    getrlimit(RLIMIT_NOFILE, &files);
    heap.most = files.rlim_cur / 2 < MOST ? (size_t)files.rlim_cur / 2 : MOST;
    atomic_store_explicit(&started, 1, memory_order_release);
}
