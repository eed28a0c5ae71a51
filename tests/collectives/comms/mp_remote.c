/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/mp_remote.c: gyre_put, gyre_get and gyre_flush between ranks of several hosts, of
 * which each has two ranks (GYRE_HOST_RANKS): sizes, offsets, without a matching call, with the progress
 * thread, errors, a rank that does not answer, and one that dies.
 * ranks: 1 2 4 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/mp.h"

enum { PART = 3000000, CHILDREN = 3 };

static gyre_comm_t *world;
static int rank, n;

static unsigned char byte_of(int from, int to, size_t i)
{
    return (unsigned char)((size_t)(17 * from + 5 * to) + i + i / 251 + 1);
}

/* Each puts a piece into each part, and then reads the piece of its neighbour from each. */
static void all_pairs(size_t piece, size_t offset)
{
    unsigned char *base, *from = malloc(piece * (size_t)n + 1), *to = malloc(piece * (size_t)n + 1);
    MP_CHECK(from && to, "no memory");
    MP_OK(gyre_mem_alloc_shared(world, offset + piece * (size_t)n + 3, (void **)&base));
    for (int turn = 0; turn < 3; turn++) {
        for (int r = 0; r < n; r++) {
            for (size_t i = 0; i < piece; i++)
                from[(size_t)r * piece + i] = byte_of(rank + turn, r, i);
            MP_OK(gyre_put(from + (size_t)r * piece, piece, base, r, offset + (size_t)rank * piece));
        }
        MP_OK(gyre_flush(base, -1));
        memset(from, 0xee, piece * (size_t)n); /* it is ours again */
        MP_OK(gyre_barrier(world));
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < piece; i++)
                MP_CHECK(base[offset + (size_t)r * piece + i] == byte_of(r + turn, rank, i),
                         "turn %d, byte %zu of %zu from rank %d: %d", turn, i, piece, r,
                         base[offset + (size_t)r * piece + i]);
        memset(to, 0, piece * (size_t)n);
        const int next = (rank + 1) % n;
        for (int r = 0; r < n; r++)
            MP_OK(gyre_get(to + (size_t)r * piece, piece, base, r, offset + (size_t)next * piece));
        for (int r = 0; r < n; r++)
            MP_OK(gyre_flush(base, r));
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < piece; i++)
                MP_CHECK(to[(size_t)r * piece + i] == byte_of(next + turn, r, i),
                         "turn %d, byte %zu of %zu gotten from rank %d", turn, i, piece, r);
        MP_OK(gyre_barrier(world));
    }
    for (size_t i = 0; i < offset; i++)
        MP_CHECK(base[i] == 0, "byte %zu was written", i);
    MP_OK(gyre_mem_free(base));
    free(from);
    free(to);
}

/* Many small ones in a row before one flush, into the part of the last rank, which only waits. */
static void many(void)
{
    int64_t *base, mine[500];
    MP_OK(gyre_mem_alloc_shared(world, rank == n - 1 ? 500 * 8 * (size_t)n : 0, (void **)&base));
    for (int i = 0; i < 500; i++) {
        mine[i] = 1000 * rank + i;
        MP_OK(gyre_put(&mine[i], 8, base, n - 1, (size_t)(500 * rank + i) * 8));
    }
    MP_OK(gyre_flush(base, n - 1));
    MP_OK(gyre_barrier(world));
    for (int r = 0; r < n && rank == n - 1; r++)
        for (int i = 0; i < 500; i++)
            MP_CHECK(base[500 * r + i] == 1000 * r + i, "word %d of rank %d: %d", i, r,
                     (int)base[500 * r + i]);
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
}

static void errors(void)
{
    char *base, byte = 0;
    void *plain;
    MP_OK(gyre_mem_alloc_shared(world, 100, (void **)&base));
    MP_OK(gyre_mem_alloc(100, &plain));
    MP_EXPECT(gyre_put(&byte, 1, plain, 0, 0), GYRE_ERR_INVALID, "gyre_put: ");
    MP_EXPECT(gyre_get(&byte, 1, NULL, 0, 0), GYRE_ERR_INVALID, "was not given by gyre_mem_alloc_shared");
    MP_EXPECT(gyre_flush(plain, 0), GYRE_ERR_INVALID, "gyre_flush: ");
    MP_EXPECT(gyre_put(&byte, 1, base, n, 0), GYRE_ERR_INVALID, "is out of range 0..");
    MP_EXPECT(gyre_get(&byte, 1, base, -1, 0), GYRE_ERR_INVALID, "gyre_get: rank -1 is out of range 0..");
    MP_EXPECT(gyre_flush(base, -2), GYRE_ERR_INVALID, "rank -2 is out of range");
    MP_EXPECT(gyre_put(NULL, 1, base, 0, 0), GYRE_ERR_INVALID, "from is NULL");
    MP_EXPECT(gyre_get(NULL, 1, base, 0, 0), GYRE_ERR_INVALID, "to is NULL");
    MP_EXPECT(gyre_put(&byte, 2, base, n - 1, 99), GYRE_ERR_INVALID, "2 bytes from offset 99");
    MP_EXPECT(gyre_get(&byte, 1, base, n - 1, SIZE_MAX), GYRE_ERR_INVALID, "100 bytes");
    const pid_t pid = fork(); /* the memory is the parent's */
    if (pid == 0) {
        const int refuses = gyre_put(&byte, 1, base, n - 1, 0) == GYRE_ERR_INVALID &&
                            strstr(gyre_last_error(), "gyre_put: the memory is the parent's") &&
                            gyre_flush(base, -1) == GYRE_ERR_INVALID;
        _exit(refuses ? 0 : 1);
    }
    int status = -1;
    MP_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "status %d", status);
    MP_OK(gyre_put(NULL, 0, base, n - 1, 100));
    MP_OK(gyre_put(&byte, 1, base, n - 1, 99));
    MP_OK(gyre_flush(base, -1));
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
    MP_OK(gyre_mem_free(plain));
    MP_EXPECT(gyre_put(&byte, 1, base, 0, 0), GYRE_ERR_INVALID, "is free already");
}

/* The memory lives on, but other hosts cannot be reached any more. */
static void ended(void)
{
    gyre_comm_t *comm;
    char *base, byte = 7;
    void *peer;
    MP_OK(gyre_comm_dup(world, &comm));
    MP_OK(gyre_mem_alloc_shared(comm, 10, (void **)&base));
    MP_OK(gyre_put(&byte, 1, base, n - 1, (size_t)rank));
    MP_OK(gyre_flush(base, -1));
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_destroy(comm));
    if (gyre_mem_peer(base, n - 1, &peer, NULL) == GYRE_OK) /* on this host */
        MP_OK(gyre_put(&byte, 1, base, n - 1, 0));
    else
        MP_EXPECT(gyre_put(&byte, 1, base, n - 1, 0), GYRE_ERR_INVALID, "has ended");
    MP_CHECK(rank < n - 1 || (base[0] == 7 && base[rank] == 7), "%d", base[0]);
    MP_OK(gyre_mem_free(base));
}

/* ---- jobs of three children, each on a host of its own ---- */

/* The last rank is in no call of Gyre until its memory has changed: its progress thread answers. */
static void progress_thread(void)
{
    int64_t *base, got = 0;
    const int64_t one = 1;
    MP_OK(gyre_mem_alloc_shared(world, 80, (void **)&base));
    MP_OK(gyre_barrier(world));
    if (rank == n - 1) {
        for (int r = 0; r < n - 1; r++)
            while (((volatile int64_t *)base)[r] != 1)
                mp_nap(1);
    } else {
        MP_OK(gyre_put(&one, 8, base, n - 1, (size_t)rank * 8));
        MP_OK(gyre_flush(base, n - 1));
        MP_OK(gyre_get(&got, 8, base, n - 1, (size_t)rank * 8));
        MP_OK(gyre_flush(base, n - 1));
        MP_CHECK(got == 1, "%d", (int)got);
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
}

static int in_pipe[2], out_pipe[2];

/* Without that thread the others get TIMEOUT, and the communicator has failed. */
static void no_answer(void)
{
    gyre_comm_t *comm;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    char *base, byte = 1;
    MP_OK(gyre_comm_dup(world, &comm));
    MP_OK(gyre_mem_alloc_shared(comm, 10, (void **)&base));
    options.timeout_s = 0.5;
    if (rank == 0)
        MP_OK(gyre_put(&byte, 1, base, n - 1, 0));
    MP_OK(gyre_flush(base, -1));
    MP_OK(gyre_comm_set(comm, &options));
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_barrier(world));
    if (rank == n - 1) { /* in no call of Gyre from here on */
        MP_CHECK(write(out_pipe[1], &byte, 1) == 1, "no byte");
        MP_CHECK(read(in_pipe[0], &byte, 1) == 1, "no byte");
    } else if (rank == 0) {
        MP_CHECK(read(out_pipe[0], &byte, 1) == 1, "no byte");
        MP_OK(gyre_put(&byte, 1, base, n - 1, 1));
        MP_EXPECT(gyre_flush(base, n - 1), GYRE_ERR_TIMEOUT, "rank 2 on another host has not answered");
        MP_EXPECT(gyre_comm_error(comm), GYRE_ERR_TIMEOUT, "gyre_flush");
        MP_EXPECT(gyre_put(&byte, 1, base, 1, 1), GYRE_ERR_TIMEOUT, "gyre_flush");
        MP_CHECK(write(in_pipe[1], &byte, 1) == 1, "no byte");
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* The last rank is killed: a flush that waits for it ends. */
static void death(void)
{
    char *base, byte = 0;
    static char data[PART];
    gyre_comm_t *left;
    MP_OK(gyre_mem_alloc_shared(world, PART, (void **)&base));
    MP_OK(gyre_put(&byte, 1, base, n - 1, 0));
    MP_OK(gyre_flush(base, n - 1));
    MP_OK(gyre_barrier(world));
    if (rank == n - 1) {
        MP_CHECK(read(in_pipe[0], &byte, 1) == 1, "no byte");
        raise(SIGKILL);
    }
    gyre_status_t st = GYRE_OK;
    for (int i = 0; i < 5 && st == GYRE_OK; i++)
        st = gyre_put(data, PART, base, n - 1, 0);
    if (rank == 0)
        MP_CHECK(write(in_pipe[1], &byte, 1) == 1, "no byte");
    while (st == GYRE_OK) {
        st = gyre_flush(base, n - 1);
        if (st == GYRE_OK)
            st = gyre_put(data, PART, base, n - 1, 0);
    }
    MP_EXPECT(st, GYRE_ERR_PEER_DEAD, "rank 2 died");
    MP_OK(gyre_comm_shrink(world, &left));
    if (rank == 0)
        MP_OK(gyre_mem_free(base));
    MP_OK(gyre_comm_destroy(world));
    world = left;
    if (rank > 0)
        MP_OK(gyre_mem_free(base));
    MP_OK(gyre_mem_alloc_shared(world, 8, (void **)&base));
    MP_OK(gyre_put(&byte, 1, base, 1 - rank, 0));
    MP_OK(gyre_flush(base, -1));
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_mem_free(base));
}

static void children(void (*body)(void), int threaded, int dies)
{
    gyre_unique_id_t id;
    pid_t child[CHILDREN];
    int status;
    MP_CHECK(pipe(in_pipe) == 0 && pipe(out_pipe) == 0, "no pipe");
    MP_OK(gyre_get_unique_id(&id));
    n = CHILDREN;
    for (rank = 0; rank < n; rank++) {
        child[rank] = fork();
        MP_CHECK(child[rank] >= 0, "no child");
        if (child[rank] == 0) {
            gyre_create_t config = GYRE_CREATE_INITIALIZER;
            config.progress_thread = threaded;
            config.timeout_s = 60;
            MP_OK(gyre_comm_create_id(&id, rank, n, &config, &world));
            body();
            MP_OK(gyre_finalize(world));
            exit(0);
        }
    }
    for (int r = 0; r < n; r++) {
        MP_CHECK(waitpid(child[r], &status, 0) == child[r], "no child");
        MP_CHECK(r == n - 1 && dies ? WIFSIGNALED(status) : status == 0, "rank %d: status %d", r, status);
    }
    for (int end = 0; end < 2; end++) {
        close(in_pipe[end]);
        close(out_pipe[end]);
    }
}

int main(void)
{
    const char *ranks = getenv("GYRE_SIZE");
    if (!ranks || atoi(ranks) == 1) { /* before this process is in a job */
        setenv("GYRE_HOST_RANKS", "1", 1);
        children(progress_thread, 1, 0);
        children(no_answer, 0, 0);
        children(death, 0, 1);
    }
    setenv("GYRE_HOST_RANKS", ranks && atoi(ranks) == 2 ? "1" : "2", 1);
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_CHECK(gyre_comm_hosts(world) == (n == 1 ? 1 : 2), "%d hosts", gyre_comm_hosts(world));
    all_pairs(1, 0);
    all_pairs(1000, 7);
    all_pairs(70001, 4096);
    all_pairs(PART / 2, 1);
    many();
    errors();
    ended();
    char *outlives; /* the network, too */
    MP_OK(gyre_mem_alloc_shared(world, 100, (void **)&outlives));
    MP_OK(gyre_finalize(world));
    outlives[99] = 1;
    MP_OK(gyre_mem_free(outlives));
    return 0;
}
