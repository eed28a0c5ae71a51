/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 4, over UCX: 2 */
/* one thread: TSan has nothing to see */
/* tests/collectives/comms/mp_shared.c: gyre_mem_alloc_shared and gyre_mem_peer: loads and stores in other
 * ranks' memory, sizes, orders of freeing, errors, use as buffers of collectives, the death of a rank, and
 * what is left open at the end. */
#include "tests/support/descriptors.h"
#include "tests/support/mp.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 300000 /* words: more than an arena's limit */, MANY = 200, ROUNDS = 3 };

#define HUGE ((size_t)5 << 30)

static gyre_comm_t *world;
static int rank, n;

static uint64_t *part(void *base, int of, size_t words)
{
    void *at = NULL;
    size_t bytes = 1;
    MP_OK(gyre_mem_peer(base, of, &at, &bytes));
    MP_CHECK(at && bytes == words * 8, "rank %d has %zu bytes", of, bytes);
    MP_CHECK((uintptr_t)at % 4096 == 0, "%p", at);
    MP_CHECK((of == rank) == (at == base), "part %d is at %p, ours at %p", of, at, base);
    return at;
}

/* No more than before, once the watcher has closed what peers have fetched from. */
static void settles(int before)
{
    for (int ms = 0; ms < 20000 && descriptors() > before; ms++)
        usleep(1000);
    MP_CHECK(descriptors() <= before, "%d descriptors, %d before", descriptors(), before);
}

/* Of all windows that this process has mapped, what is in memory. */
static size_t windows_kib(void)
{
    char line[512];
    size_t kib, sum = 0;
    int counts = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    MP_CHECK(file, "no /proc");
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, " /")) /* a mapping's first line */
            counts = strstr(line, "gyre-window") != NULL;
        if (sscanf(line, "Rss: %zu", &kib) == 1 && counts)
            sum += kib;
    }
    fclose(file);
    return sum;
}

/* Rank r has words_of(r, round) words. */
static size_t words_of(int r, int round)
{
    return round == 0 ? 1 : round == 1 ? (size_t)r * 700 : r == 0 ? LARGE : 0;
}

/* Each writes a word of its own into each part, then all look at all. */
static void exchange(gyre_comm_t *comm, int round)
{
    void *base = NULL;
    const size_t mine = words_of(rank, round);
    MP_OK(gyre_mem_alloc_shared(comm, mine * 8, &base));
    for (size_t i = 0; i < mine; i++)
        MP_CHECK(((uint64_t *)base)[i] == 0, "word %zu is not zero", i);
    MP_OK(gyre_barrier(comm));
    for (int turn = 1; turn < 4; turn++) {
        for (int r = 0; r < n; r++) {
            uint64_t *theirs = part(base, r, words_of(r, round));
            for (size_t i = (size_t)rank; i < words_of(r, round); i += (size_t)n)
                theirs[i] = (uint64_t)(1000 * turn + 10 * r + rank);
        }
        MP_OK(gyre_barrier(comm));
        for (int r = 0; r < n; r++) {
            const uint64_t *theirs = part(base, r, words_of(r, round));
            for (size_t i = 0; i < words_of(r, round); i++)
                MP_CHECK(theirs[i] == 1000 * (uint64_t)turn + 10 * (uint64_t)r + i % (size_t)n,
                         "round %d, word %zu of rank %d: %llu", round, i, r, (unsigned long long)theirs[i]);
        }
        MP_OK(gyre_barrier(comm));
    }
    MP_OK(gyre_mem_free(base));
}

/* A counter at rank 0, which all raise. */
static void atomics(void)
{
    void *base, *first;
    MP_OK(gyre_mem_alloc_shared(world, rank == 0 ? 8 : 0, &base));
    MP_OK(gyre_mem_peer(base, 0, &first, NULL));
    _Atomic uint64_t *counter = first;
    for (int i = 0; i < 1000; i++)
        atomic_fetch_add(counter, 1);
    MP_OK(gyre_barrier(world));
    MP_CHECK(atomic_load(counter) == 1000 * (uint64_t)n, "%llu", (unsigned long long)atomic_load(counter));
    MP_OK(gyre_mem_free(base));
}

/* Ranks free in turn, from the first or from the last one: the others still see what they wrote. New memory
 * is not what they see. */
static void free_orders(void)
{
    for (int back = 0; back < 2; back++) {
        void *base, *fresh;
        MP_OK(gyre_mem_alloc_shared(world, 8 * LARGE, &base));
        for (int i = 0; i < LARGE; i++)
            ((uint64_t *)base)[i] = (uint64_t)rank + 1;
        MP_OK(gyre_barrier(world));
        for (int turn = 0; turn < n; turn++) {
            const int gone = back ? n - 1 - turn : turn;
            if (gone == rank) {
                MP_OK(gyre_mem_free(base));
                MP_EXPECT(gyre_mem_free(base), GYRE_ERR_INVALID, "was not given by gyre_mem_alloc");
                MP_EXPECT(gyre_mem_peer(base, 0, &fresh, NULL), GYRE_ERR_INVALID, "is free already");
                MP_OK(gyre_mem_alloc(8 * LARGE, &fresh));
                memset(fresh, 0x55, 8 * LARGE);
            }
            MP_OK(gyre_barrier(world));
            for (int r = 0; r < n && (back ? rank < gone : rank > gone); r++)
                for (int i = 0; i < LARGE; i += 100)
                    MP_CHECK(part(base, r, LARGE)[i] == (uint64_t)r + 1, "word %d of rank %d is gone", i, r);
        }
        MP_OK(gyre_mem_free(fresh));
    }
}

/* In place, with a part of another rank as input, and refused to be freed meanwhile. */
static void buffers(void)
{
    void *base;
    gyre_request_t *request;
    MP_OK(gyre_mem_alloc_shared(world, 8 * LARGE, &base));
    uint64_t *mine = base;
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < LARGE; i++)
            mine[i] = (uint64_t)(rank + i);
        MP_OK(gyre_all_reduce(mine, mine, LARGE, GYRE_UINT64, GYRE_OP(GYRE_SUM), world));
        for (int i = 0; i < LARGE; i++)
            MP_CHECK(mine[i] == (uint64_t)(n * (n - 1) / 2 + n * i), "element %d", i);
    }
    for (int i = 0; i < LARGE; i++)
        mine[i] = (uint64_t)(rank * i);
    MP_OK(gyre_barrier(world));
    uint64_t *got = malloc(LARGE * sizeof *got);
    MP_CHECK(got, "no memory");
    uint64_t *theirs = part(base, (rank + 1) % n, LARGE);
    if (n > 1 && rank == 0) { /* the others come later */
        MP_OK(gyre_iall_reduce(theirs, got, LARGE, GYRE_UINT64, GYRE_OP(GYRE_SUM), world, &request));
        MP_EXPECT(gyre_mem_free(base), GYRE_ERR_INVALID, "has not finished and uses");
        for (int r = 1; r < n; r++)
            MP_OK(gyre_send(NULL, 0, GYRE_UINT8, r, world));
        MP_OK(gyre_wait(&request));
    } else {
        if (n > 1)
            MP_OK(gyre_recv(NULL, 0, GYRE_UINT8, 0, world));
        MP_OK(gyre_all_reduce(theirs, got, LARGE, GYRE_UINT64, GYRE_OP(GYRE_SUM), world));
    }
    for (int i = 0; i < LARGE; i++)
        MP_CHECK(got[i] == (uint64_t)(n * (n - 1) / 2 * i), "element %d: %llu", i,
                 (unsigned long long)got[i]);
    free(got);
    for (int r = 0; r < n; r++) {
        theirs = part(base, r, LARGE);
        for (int i = 0; i < LARGE; i++)
            MP_CHECK(theirs[i] == (uint64_t)(r * i), "word %d of rank %d", i, r);
    }
    /* Once all have freed it, the memory is the system's, although the communicator may have it mapped. */
    const size_t kib = windows_kib();
    MP_CHECK(kib > 7 * LARGE / 1024 * (size_t)n, "%zu KiB are in memory", kib);
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
    MP_OK(gyre_barrier(world));
    MP_CHECK(windows_kib() + 7 * LARGE / 1024 * (size_t)n < kib, "%zu KiB of %zu are left", windows_kib(),
             kib);
}

static void errors(void)
{
    void *base = &base, *at = &at, *plain;
    MP_EXPECT(gyre_mem_alloc_shared(NULL, 8, &base), GYRE_ERR_INVALID, "gyre_mem_alloc_shared: comm is NULL");
    MP_EXPECT(gyre_mem_alloc_shared(world, 8, NULL), GYRE_ERR_INVALID, "gyre_mem_alloc_shared: ptr is NULL");
    MP_OK(gyre_group_start());
    MP_EXPECT(gyre_mem_alloc_shared(world, 8, &base), GYRE_ERR_INVALID, "cannot be part of a group");
    MP_OK(gyre_group_end());
    const int before = descriptors();
    /* the last rank alone: all get the error */
    MP_EXPECT(gyre_mem_alloc_shared(world, rank == n - 1 ? SIZE_MAX - 5 : 8, &base), GYRE_ERR_OVERFLOW,
              rank == n - 1 ? "more than any machine has" : "could not take part");
    MP_EXPECT(gyre_mem_alloc_shared(world, rank == n - 1 ? (size_t)1 << 62 : 8, &base), GYRE_ERR_NO_MEMORY,
              rank == n - 1 ? "cannot allocate" : "could not take part");
    if (n > 1) {
        gyre_comm_t *apart, *none = NULL;
        MP_OK(gyre_comm_dup(world, &apart));
        MP_EXPECT(rank ? gyre_comm_dup(apart, &none) : gyre_mem_alloc_shared(apart, 8, &base),
                  GYRE_ERR_MISMATCH, "gyre_mem_alloc_shared");
        MP_CHECK(!none, "a communicator was made");
        MP_OK(gyre_comm_destroy(apart));
    }
    MP_CHECK(base == &base, "ptr was set");
    settles(before);
    MP_OK(gyre_mem_alloc(8, &plain));
    MP_OK(gyre_mem_alloc_shared(world, 10000, &base));
    MP_EXPECT(gyre_mem_peer(plain, 0, &at, NULL), GYRE_ERR_INVALID, "was not given by gyre_mem_alloc_shared");
    MP_EXPECT(gyre_mem_peer(NULL, 0, &at, NULL), GYRE_ERR_INVALID, "was not given by gyre_mem_alloc_shared");
    MP_EXPECT(gyre_mem_peer((char *)base + 4096, 0, &at, NULL), GYRE_ERR_INVALID, "was not given by");
    MP_EXPECT(gyre_mem_peer(base, -1, &at, NULL), GYRE_ERR_INVALID, "rank -1 is out of range 0..");
    MP_EXPECT(gyre_mem_peer(base, n, &at, NULL), GYRE_ERR_INVALID, "is out of range 0..");
    MP_EXPECT(gyre_mem_peer(base, 0, NULL, NULL), GYRE_ERR_INVALID, "peer is NULL");
    MP_EXPECT(gyre_mem_free((char *)base + 4096), GYRE_ERR_INVALID, "was not given by gyre_mem_alloc");
    MP_CHECK(at == &at, "peer was set");
    MP_OK(gyre_mem_free(base));
    MP_OK(gyre_mem_free(plain));
}

/* Rank 1 has no descriptor for its own window, or none to pass it on. */
static void no_descriptors(void)
{
    struct rlimit full, limit;
    void *base, *extra = NULL;
    const int before = descriptors();
    for (int spare = 0; spare < 2; spare++) {
        MP_OK(gyre_barrier(world));
        MP_CHECK(getrlimit(RLIMIT_NOFILE, &full) == 0, "no limit");
        limit = full;
        int lowest = dup(0);
        MP_CHECK(lowest >= 0, "no descriptor");
        close(lowest);
        limit.rlim_cur = (rlim_t)(lowest + spare);
        if (rank == 1)
            MP_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "cannot limit");
        gyre_status_t st = gyre_mem_alloc_shared(world, 5000, &base);
        MP_CHECK(setrlimit(RLIMIT_NOFILE, &full) == 0, "cannot unlimit");
        MP_EXPECT(st, GYRE_ERR_NO_MEMORY, rank == 1 ? "ulimit -n" : "rank 1 could not take part");
        MP_OK(gyre_barrier(world));
    }
    settles(before);
    MP_OK(gyre_mem_alloc_shared(world, 5000, &extra));
    MP_OK(gyre_mem_free(extra));
}

/* Rank 1 has no room for the part of rank 0, which all others can map. */
static void no_room(void)
{
    struct rlimit full, limit;
    unsigned long pages = 0;
    void *base = &base;
    FILE *file = fopen("/proc/self/statm", "r");
    MP_CHECK(file && fscanf(file, "%lu", &pages) == 1, "no /proc");
    fclose(file);
    MP_CHECK(getrlimit(RLIMIT_AS, &full) == 0, "no limit");
    limit = full;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 30);
    const int before = descriptors();
    MP_OK(gyre_barrier(world));
    if (rank == 1)
        MP_CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "cannot limit");
    gyre_status_t st = gyre_mem_alloc_shared(world, rank == 0 ? HUGE : 5000, &base);
    MP_CHECK(setrlimit(RLIMIT_AS, &full) == 0, "cannot unlimit");
    MP_EXPECT(st, GYRE_ERR_NO_MEMORY,
              rank == 1 ? "bytes of rank 0 cannot be mapped here" : "rank 1 could not take part");
    MP_CHECK(base == &base, "ptr was set");
    settles(before);
}

/* Many at once, of two communicators with other ranks' numbers; one larger than 4 GiB, of which little is
 * touched. */
static void many(void)
{
    static void *base[MANY];
    gyre_comm_t *turned;
    void *at;
    MP_OK(gyre_comm_split(world, 0, -rank, &turned));
    const int before = descriptors();
    for (int i = 0; i < MANY; i++) {
        MP_OK(gyre_mem_alloc_shared(i % 2 ? turned : world, 8, &base[i]));
        *(int64_t *)base[i] = 1000 * i + rank;
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(turned)); /* the memory stays */
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < n; r++) {
            MP_OK(gyre_mem_peer(base[i], r, &at, NULL));
            MP_CHECK(*(int64_t *)at == 1000 * i + (i % 2 ? n - 1 - r : r), "%d of %d", i, r);
        }
    MP_OK(gyre_barrier(world));
    for (int i = 0; i < MANY; i++)
        MP_OK(gyre_mem_free(base[i]));
    settles(before);
    MP_OK(gyre_mem_alloc_shared(world, HUGE, &base[0]));
    ((char *)base[0])[HUGE - 1] = (char)(rank + 1);
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_peer(base[0], n - 1, &at, NULL));
    MP_CHECK(((char *)at)[HUGE - 1] == n, "the last byte is %d", ((char *)at)[HUGE - 1]);
    MP_OK(gyre_mem_free(base[0]));
}

/* ---- jobs of three children ---- */

enum { CHILDREN = 3 };

/* The last rank is killed while the others read its memory, and they go on with it and without it. */
static void death(void)
{
    void *base, *theirs, *none = NULL;
    gyre_comm_t *left;
    uint64_t looks = 0, right = 0;
    MP_OK(gyre_mem_alloc_shared(world, 8 * LARGE, &base));
    memset(base, 7, 8 * LARGE);
    MP_OK(gyre_mem_peer(base, n - 1, &theirs, NULL));
    MP_OK(gyre_barrier(world));
    volatile uint64_t *words = theirs;
    if (rank < n - 1)
        MP_OK(gyre_send(NULL, 0, GYRE_UINT8, n - 1, world)); /* it is through with the barrier */
    for (int r = 0; r < n - 1 && rank == n - 1; r++)
        MP_OK(gyre_recv(NULL, 0, GYRE_UINT8, r, world));
    if (rank == n - 1)
        raise(SIGKILL);
    for (; gyre_comm_error(world) == GYRE_OK; looks++)
        right += words[looks % LARGE] == 0x0707070707070707;
    MP_CHECK(looks == right, "%llu of %llu words have changed", (unsigned long long)(looks - right),
             (unsigned long long)looks);
    MP_EXPECT(gyre_mem_alloc_shared(world, 8, &none), GYRE_ERR_PEER_DEAD, "gyre_mem_alloc_shared");
    MP_CHECK(!none, "ptr was set");
    MP_OK(gyre_comm_shrink(world, &left));
    MP_OK(gyre_comm_destroy(world));
    world = left;
    words[rank] = 1;
    MP_OK(gyre_barrier(world));
    for (int i = 0; i < LARGE; i++)
        MP_CHECK(words[i] == (i < n - 1 ? 1 : 0x0707070707070707), "word %d is gone", i);
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
    MP_CHECK(windows_kib() < 7 * LARGE / 1024, "%zu KiB are in memory",
             windows_kib());                    /* not the dead one's */
    MP_OK(gyre_comm_split(world, 0, 0, &left)); /* on the survivors all is as before */
    n--;
    for (int round = 0; round < ROUNDS; round++)
        exchange(left, round);
    MP_OK(gyre_comm_destroy(left));
}

/* Ranks 0 and 1 are on one host, rank 2 is on another. */
static void hosts(void)
{
    void *base = NULL;
    gyre_comm_t *host;
    void *at = &at;
    MP_OK(gyre_mem_alloc_shared(world, 8, &base));
    for (int r = 0; r < n; r++) {
        if ((r == 2) == (rank == 2))
            MP_CHECK(part(base, r, 1), "no address");
        else
            MP_EXPECT(gyre_mem_peer(base, r, &at, NULL), GYRE_ERR_UNSUPPORTED, "is on another host");
    }
    MP_CHECK(at == &at, "peer was set");
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
    MP_OK(gyre_comm_split_type(world, GYRE_SPLIT_HOST, 0, &host));
    n = gyre_comm_size(host);
    rank = gyre_comm_rank(host);
    for (int round = 0; round < ROUNDS; round++)
        exchange(host, round);
    MP_OK(gyre_comm_destroy(host));
}

/* Before this process is in a job: three children are one. */
static void children(void (*body)(void), int dies)
{
    gyre_unique_id_t id;
    pid_t child[CHILDREN];
    int status;
    MP_OK(gyre_get_unique_id(&id));
    n = CHILDREN;
    for (rank = 0; rank < n; rank++) {
        child[rank] = fork();
        MP_CHECK(child[rank] >= 0, "no child");
        if (child[rank] == 0) {
            MP_OK(gyre_comm_create_id(&id, rank, n, NULL, &world));
            body();
            MP_OK(gyre_finalize(world));
            exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        MP_CHECK(waitpid(child[i], &status, 0) == child[i], "no end");
        MP_CHECK(i == dies ? WIFSIGNALED(status) : status == 0, "child %d: status %x", i, status);
    }
}

int main(void)
{
    void *base, *at;
    setenv("GYRE_LOG", "none", 1); /* the refusals are wanted */
    const char *size = getenv("GYRE_SIZE");
    if (!size || strcmp(size, "1") == 0) {
        int status;
        const pid_t apart = fork(); /* settings are read once */
        MP_CHECK(apart >= 0, "no child");
        if (apart == 0) {
            setenv("GYRE_HOST_RANKS", "2", 1);
            children(hosts, -1);
            exit(0);
        }
        MP_CHECK(waitpid(apart, &status, 0) == apart && status == 0, "status %x", status);
        children(death, CHILDREN - 1);
    }
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    for (int round = 0; round < ROUNDS; round++)
        exchange(world, round);
    atomics();
    free_orders();
    buffers();
    errors();
    if (n > 1) {
        no_descriptors();
        no_room();
    }
    many();
    MP_OK(gyre_mem_alloc_shared(world, 8, &base));
    *(int64_t *)base = rank;
    MP_OK(gyre_finalize(world));
    for (int r = 0; r < n; r++) { /* the job has ended; the memory has not */
        MP_OK(gyre_mem_peer(base, r, &at, NULL));
        MP_CHECK(*(int64_t *)at == r, "%lld", (long long)*(int64_t *)at);
    }
    MP_OK(gyre_mem_free(base));
    return 0;
}
