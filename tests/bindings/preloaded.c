/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/preloaded.c: a program that knows nothing of libgyre-malloc.so, with it preloaded, or
 * without: what it checks is true of any malloc. PART as argument; prints what failed, and ends with 1.
 *
 *     calls      each function of the C library, sizes around the limit, contents kept
 *     threads    many threads allocate, grow, hand over and free
 *     fork       parent and child do not see each other's stores; a child's child; exec; posix_spawn
 *     sockets    libgyre makes sockets while a child copies blocks
 *     windows    large allocations are windows of libgyre, small ones are not
 *     twice      frees a block twice: ends by SIGABRT
 *     files      more blocks than descriptors
 *     fewer      the same, with a limit that the program sets */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#ifndef TURNS
#define TURNS 100 /* of each thread */
#endif
enum { MIB = 1 << 20, THREADS = 8, SHARED = 64 };

static int failures;

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            failures++;                                             \
        }                                                           \
    } while (0)

static void fill(unsigned char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i += 509)
        at[i] = (unsigned char)(seed + i / 509);
}

static int holds(const unsigned char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i += 509)
        if (at[i] != (unsigned char)(seed + i / 509))
            return 0;
    return 1;
}

static int all_zero(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return 0;
    return 1;
}

static void calls(void)
{
    static const size_t sizes[] = {0, 1, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 77, 80u * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t bytes = sizes[i];
        unsigned char *at = malloc(bytes);
        CHECK(at && (uintptr_t)at % 16 == 0 && malloc_usable_size(at) >= bytes);
        fill(at, bytes, 3);
        at = realloc(at, bytes + 2 * MIB);
        CHECK(at && holds(at, bytes, 3));
        at = realloc(at, bytes / 3 + 1);
        CHECK(at && holds(at, bytes / 3, 3));
        free(at);
        /* a freed block that held something comes back as zeros */
        at = malloc(bytes);
        CHECK(at != NULL);
        memset(at, 0xff, bytes);
        free(at);
        at = calloc(bytes / 4 + 1, 4);
        CHECK(at && all_zero(at, bytes / 4 * 4));
        free(at);
        for (size_t alignment = 16; alignment <= 65536; alignment *= 4) {
            void *other = NULL;
            CHECK(posix_memalign(&other, alignment, bytes) == 0 && (uintptr_t)other % alignment == 0);
            fill(other, bytes, 9);
            free(other);
            other = aligned_alloc(alignment, bytes);
            CHECK(other && (uintptr_t)other % alignment == 0);
            free(other);
        }
    }
    void *none = &failures;
    errno = 0;
    CHECK(posix_memalign(&none, 24, 2 * MIB) == EINVAL && none == &failures);
    volatile size_t huge = SIZE_MAX / 2;
    CHECK(malloc(huge) == NULL && errno == ENOMEM && calloc(huge, 3) == NULL && realloc(NULL, huge) == NULL);
    unsigned char *kept = malloc(2 * MIB);
    CHECK(kept != NULL);
    fill(kept, 2 * MIB, 5);
    CHECK(realloc(kept, huge) == NULL && holds(kept, 2 * MIB, 5)); /* is still there */
    CHECK(realloc(kept, 0) == NULL);                               /* frees it */
    free(NULL);
}

/* ---- threads ---- */
static struct {
    pthread_mutex_t lock;
    unsigned char *at[SHARED];
    size_t bytes[SHARED];
    unsigned seed[SHARED];
} handed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *worker(void *number)
{
    unsigned random = (unsigned)(uintptr_t)number * 7919 + 1;
    intptr_t wrong = 0;
    for (int i = 0; i < TURNS; i++) {
        random = random * 1103515245 + 12345;
        const size_t place = random >> 8 & (SHARED - 1),
                     bytes = (size_t)(random >> 10) % (2u * MIB) + MIB / 2;
        unsigned char *at = malloc(bytes);
        if (!at)
            return (void *)1;
        fill(at, bytes, random);
        pthread_mutex_lock(&handed.lock);
        unsigned char *old = handed.at[place];
        const size_t old_bytes = handed.bytes[place];
        const unsigned old_seed = handed.seed[place];
        handed.at[place] = at;
        handed.bytes[place] = bytes;
        handed.seed[place] = random;
        pthread_mutex_unlock(&handed.lock);
        if (!old)
            continue;
        wrong |= !holds(old, old_bytes, old_seed);
        if (random & 1) {
            old = realloc(old, old_bytes + MIB / 4);
            wrong |= !old || !holds(old, old_bytes, old_seed);
        }
        free(old);
    }
    return (void *)wrong;
}

static void *forker(void *unused)
{
    intptr_t wrong = 0;
    for (int i = 0; i < 5; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            free(malloc(3 * MIB));
            _exit(0);
        }
        wrong |= child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    (void)unused;
    return (void *)wrong;
}

static void threads(void)
{
    pthread_t thread[THREADS + 1];
    for (uintptr_t i = 0; i <= THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, i < THREADS ? worker : forker, (void *)i) == 0);
    for (int i = 0; i <= THREADS; i++) {
        void *wrong;
        CHECK(pthread_join(thread[i], &wrong) == 0 && !wrong);
    }
    for (int i = 0; i < SHARED; i++) {
        CHECK(!handed.at[i] || holds(handed.at[i], handed.bytes[i], handed.seed[i]));
        free(handed.at[i]);
    }
}

/* ---- fork ---- */
static int ended_well(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void forks(void)
{
    unsigned char *at = malloc(3 * MIB), *freed = malloc(2 * MIB);
    int ready[2];
    char byte = 0;
    CHECK(at && freed && pipe(ready) == 0);
    fill(at, 3 * MIB, 1);
    free(freed);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(read(ready[0], &byte, 1) == 1); /* the parent has written */
        CHECK(holds(at, 3 * MIB, 1));
        fill(at, 3 * MIB, 3);
        unsigned char *own = malloc(2 * MIB); /* not what the parent has freed */
        CHECK(own != NULL);
        memset(own, 7, 2 * MIB);
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(holds(at, 3 * MIB, 3));
            fill(at, 3 * MIB, 4);
            free(at);
            _exit(failures != 0);
        }
        CHECK(ended_well(grandchild) && holds(at, 3 * MIB, 3));
        at = realloc(at, 5 * MIB);
        CHECK(at && holds(at, 3 * MIB, 3));
        free(at);
        free(own);
        _exit(failures != 0);
    }
    fill(at, 3 * MIB, 2);
    CHECK(write(ready[1], &byte, 1) == 1 && ended_well(child));
    CHECK(holds(at, 3 * MIB, 2));
    pid_t spawned;
    char *const words[] = {(char *)(uintptr_t) "true", NULL};
    CHECK(posix_spawnp(&spawned, "true", NULL, NULL, words, environ) == 0 && ended_well(spawned));
    CHECK(system("true") == 0);
    free(at);
    close(ready[0]);
    close(ready[1]);
}

/* What a parent and its child see of each other while the child copies. */
static struct {
    _Atomic int cloned, made;
} * copying;
enum { MADE = 3 };

/* Before the libraries': it runs first in a child, which has copied nothing yet. */
static void wait_in_child(void)
{
    if (!copying)
        return;
    copying->cloned = 1;
    for (int ms = 0; copying->made < MADE && ms < 5000; ms++)
        usleep(1000);
}
static void before_all(void)
{
    (void)pthread_atfork(NULL, NULL, wait_in_child);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = before_all;

static int (*get_unique_id)(void *);

static void *make_sockets(void *user)
{
    unsigned char id[128];
    (void)user;
    while (!copying->cloned)
        usleep(1000);
    while (copying->made < MADE && get_unique_id(id) == 0)
        copying->made++;
    return NULL;
}

static void sockets(void)
{
    void *const symbol = dlsym(RTLD_DEFAULT, "gyre_get_unique_id"), *block = malloc(2 * MIB);
    unsigned char id[128];
    pthread_t thread;
    memcpy(&get_unique_id, &symbol, sizeof symbol);
    copying = mmap(NULL, sizeof *copying, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(get_unique_id && get_unique_id(id) == 0 && block && copying != MAP_FAILED);
    CHECK(pthread_create(&thread, NULL, make_sockets, NULL) == 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(copying->made < MADE);
    CHECK(ended_well(child));
    pthread_join(thread, NULL);
    free(block);
}

static void twice(void)
{
    char *volatile at = malloc(3 * MIB);
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    free(at);
    free(at);
    failures++; /* NOLINT(clang-analyzer-unix.Malloc) */
}

static int is_window(const void *at)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && (uintptr_t)at >= from && (uintptr_t)at < to)
            found = strstr(line, "gyre-window") != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

static void windows(void)
{
    void *large = malloc(2 * MIB), *zeros = calloc(3, MIB), *grown = malloc(MIB), *small = malloc(MIB / 2);
    void *aligned = aligned_alloc(4096, MIB);
    grown = realloc(grown, 5 * MIB);
    CHECK(is_window(large) && is_window(zeros) && is_window(grown) && is_window(aligned));
    CHECK(!is_window(small) && small);
    free(large);
    free(zeros);
    free(grown);
    free(small);
    free(aligned);
}

static void files(const struct rlimit *few)
{
    enum { BLOCKS = 120 };
    unsigned char *at[BLOCKS];
    CHECK(!few || setrlimit(RLIMIT_NOFILE, few) == 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        at[i] = malloc(MIB + i);
        CHECK(at[i] != NULL);
        fill(at[i], MIB, i);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(holds(at[i], MIB, i));
        free(at[i]);
    }
}

int main(int argc, char **argv)
{
    const char *part = argc == 2 ? argv[1] : "";
    const struct rlimit few = {64, 64};
    if (!strcmp(part, "calls"))
        calls();
    else if (!strcmp(part, "threads"))
        threads();
    else if (!strcmp(part, "fork"))
        forks();
    else if (!strcmp(part, "sockets"))
        sockets();
    else if (!strcmp(part, "twice"))
        twice();
    else if (!strcmp(part, "windows"))
        windows();
    else if (!strcmp(part, "files"))
        files(NULL);
    else if (!strcmp(part, "fewer"))
        files(&few);
    else
        failures++;
    return failures != 0;
}
