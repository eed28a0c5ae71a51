/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/ranks.c: see ranks.h. */
#include "ranks.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread/futex.h"
#include "base/log.h"
#include "comm/memory/memory.h"

struct ranks_shared {
    _Atomic uint32_t arrived, generation;
    unsigned char slots[RANKS_MAX][RANKS_GATHER_BYTES];
};

typedef struct {
    ranks_t self;
    int listen_fd;
    char root[64];
    ranks_body_t body;
    int result;
} start_t;

void (*ranks_before_join)(int rank);

void ranks_barrier(ranks_t *self)
{
    ranks_shared_t *shared = self->shared;
    uint32_t generation = atomic_load(&shared->generation);

    if (atomic_fetch_add(&shared->arrived, 1) == (uint32_t)self->n - 1) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
        base_futex_wake(&shared->generation, INT32_MAX);
        return;
    }
    while (atomic_load(&shared->generation) == generation)
        base_futex_wait(&shared->generation, generation, base_now() + 1000000000);
}

gyre_status_t ranks_all_gather(void *user, const void *mine, size_t bytes, void *all)
{
    ranks_t *self = user;

    if (bytes > RANKS_GATHER_BYTES)
        return GYRE_ERR_INTERNAL;
    memcpy(self->shared->slots[self->rank], mine, bytes);
    ranks_barrier(self);
    for (int r = 0; r < self->n; r++)
        memcpy((unsigned char *)all + (size_t)r * bytes, self->shared->slots[r], bytes);
    ranks_barrier(self);
    return GYRE_OK;
}

static int listen_on_loopback(char root[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, RANKS_MAX) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &length) != 0) {
        perror("listen");
        exit(1);
    }
    snprintf(root, 64, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static int join(start_t *start)
{
    ranks_t *self = &start->self;
    comm_identity_t who = {.rank = self->rank, .size = self->n, .root_fd = -1, .have_secret = 1};

    memset(who.secret, 7, sizeof who.secret);
    snprintf(who.root, sizeof who.root, "%s", start->root);
    snprintf(who.job, sizeof who.job, "test");
    snprintf(who.source, sizeof who.source, "config");
    if (self->rank == 0)
        who.root_fd = start->listen_fd;
    self->world.rank = self->rank;
    self->world.size = self->n;
    if (comm_boot_join(&who, base_deadline(20), &self->world.boot) != GYRE_OK)
        return 1;
    if (comm_watch_start(self->world.boot, &self->world.watch) != GYRE_OK)
        return 1;
    return comm_mem_attach(self->world.watch) != GYRE_OK;
}

static void leave(ranks_t *self)
{
    ranks_barrier(self);
    comm_watch_stop(self->world.watch);
    comm_boot_leave(self->world.boot, 1);
    comm_backing_close(self->world.backing);
}

static int run(start_t *start)
{
    ranks_t *self = &start->self;
    int world_ranks[RANKS_MAX], result;

    for (int r = 0; r < self->n; r++)
        world_ranks[r] = r;
    if (join(start) != 0) {
        fprintf(stderr, "rank %d: cannot join: %s\n", self->rank, gyre_last_error());
        return 1;
    }
    if (comm_group_create(&self->world, 77, world_ranks, self->n, self->rank, ranks_all_gather, self,
                          base_deadline(20), &self->group) != GYRE_OK) {
        fprintf(stderr, "rank %d: no group: %s\n", self->rank, gyre_last_error());
        return 1;
    }
    result = start->body(self);
    if (result != 0)
        return result; /* the others fail by their deadlines */
    ranks_barrier(self);
    comm_group_destroy(self->group);
    return 0;
}

static void prepare(start_t *starts, int n, ranks_body_t body, void *arg, ranks_shared_t **shared)
{
    char root[64];
    int fd = listen_on_loopback(root);

    *shared = mmap(NULL, sizeof **shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < n; r++) {
        memset(&starts[r], 0, sizeof starts[r]);
        starts[r].self.rank = r;
        starts[r].self.n = n;
        starts[r].self.shared = *shared;
        starts[r].self.arg = arg;
        starts[r].listen_fd = fd;
        starts[r].body = body;
        memcpy(starts[r].root, root, sizeof root);
    }
}

static _Noreturn void child(start_t *start)
{
    int result;

    base_log_set_rank(start->self.rank);
    if (ranks_before_join)
        ranks_before_join(start->self.rank);
    if (start->self.rank != 0)
        close(start->listen_fd);
    result = run(start);
    if (result == 0) {
        comm_mem_unmap_all();
        comm_mem_attach(NULL);
        leave(&start->self);
    }
    exit(result); /* not _exit: the leak checker runs at exit */
}

int ranks_fork(int n, double seconds, ranks_body_t body, void *arg)
{
    static start_t starts[RANKS_MAX];
    base_time_t deadline = base_deadline(seconds);
    pid_t pids[RANKS_MAX];
    ranks_shared_t *shared;
    int failed = 0;

    prepare(starts, n, body, arg, &shared);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            child(&starts[r]);
    }
    for (int r = 0; r < n; r++) {
        int status = -1;
        pid_t got;
        while ((got = waitpid(pids[r], &status, WNOHANG)) == 0 && base_now() < deadline)
            usleep(500);
        if (got == 0) {
            fprintf(stderr, "rank %d did not end in time\n", r);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], &status, 0);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "rank %d of %d: %s %d\n", r, n, WIFSIGNALED(status) ? "signal" : "exit code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            failed++;
        }
    }
    close(starts[0].listen_fd);
    munmap(shared, sizeof *shared);
    return failed;
}

static void *thread(void *arg)
{
    start_t *start = arg;

    start->result = run(start);
    return NULL;
}

int ranks_threads(int n, double seconds, ranks_body_t body, void *arg)
{
    static start_t starts[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    ranks_shared_t *shared;
    int failed = 0;

    prepare(starts, n, body, arg, &shared);
    alarm((unsigned)seconds + 1); /* threads cannot be ended one by one: a stuck one ends the test program */
    for (int r = 0; r < n; r++)
        pthread_create(&threads[r], NULL, thread, &starts[r]);
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
        failed += starts[r].result != 0;
    }
    alarm(0);
    comm_mem_unmap_all();
    comm_mem_attach(NULL);
    for (int r = 0; r < n; r++) {
        if (starts[r].self.world.watch)
            comm_watch_stop(starts[r].self.world.watch);
        if (starts[r].self.world.boot)
            comm_boot_leave(starts[r].self.world.boot, failed == 0);
        comm_backing_close(starts[r].self.world.backing);
    }
    munmap(shared, sizeof *shared);
    return failed;
}

comm_link_t *ranks_link(ranks_t *self, int peer, int lane)
{
    comm_link_t *link = NULL;

    if (comm_group_link(self->group, peer, lane, &link) != GYRE_OK)
        fprintf(stderr, "rank %d: no link to %d: %s\n", self->rank, peer, gyre_last_error());
    return link;
}

static gyre_status_t drive(ranks_t *self, int peer, int lane, void *to, const void *from, size_t bytes,
                           comm_tag_t tag)
{
    comm_link_t *link = ranks_link(self, peer, lane);
    comm_msg_t msg = {0};
    comm_wait_t wait;
    gyre_status_t status, idle = GYRE_OK;

    if (!link)
        return GYRE_ERR_INTERNAL;
    comm_wait_begin(&wait, self->group, base_deadline(20));
    for (;;) {
        status = from ? comm_send(link, from, bytes, tag, &msg) : comm_recv(link, to, bytes, tag, &msg);
        if (status != GYRE_IN_PROGRESS)
            break;
        idle = comm_wait_idle(&wait);
        if (idle == GYRE_OK)
            idle = comm_wait_rest(&wait);
        if (idle != GYRE_OK) {
            status = idle;
            break;
        }
    }
    comm_wait_end(&wait);
    return status;
}

gyre_status_t ranks_send(ranks_t *self, int peer, int lane, const void *buf, size_t bytes, comm_tag_t tag)
{
    return drive(self, peer, lane, NULL, buf ? buf : "", bytes, tag);
}

gyre_status_t ranks_recv(ranks_t *self, int peer, int lane, void *buf, size_t bytes, comm_tag_t tag)
{
    return drive(self, peer, lane, buf, NULL, bytes, tag);
}

/* In pieces that a sanitizer does not look at byte by byte: memcpy and memcmp show it the whole of them. */
enum { PIECE = 1024, BLOCK = 256 };

/* ranks_byte of `from` and those after it. from: a multiple of BLOCK, in which i >> 8 stays the same. 16 bits
 * of each sum do, of which compilers make vectors. */
__attribute__((no_sanitize("thread", "address"))) static void expect(unsigned char *piece, size_t from,
                                                                     size_t bytes, unsigned seed)
{
    for (size_t block = 0; block < bytes; block += BLOCK) {
        const uint16_t first = (uint16_t)ranks_sum(from + block, seed), factor = (uint16_t)RANKS_FACTOR;
        const size_t end = bytes - block < BLOCK ? bytes - block : BLOCK;
        for (uint16_t k = 0; k < end; k++)
            piece[block + k] = (unsigned char)((uint16_t)(first + k * factor) >> 3);
    }
}

void ranks_fill(void *buf, size_t bytes, unsigned seed)
{
    unsigned char *at = buf, piece[PIECE];

    for (size_t i = 0, n; i < bytes; i += n) {
        n = bytes - i < PIECE ? bytes - i : PIECE;
        expect(piece, i, n, seed);
        memcpy(at + i, piece, n);
    }
}

long ranks_wrong(const void *buf, size_t bytes, unsigned seed)
{
    const unsigned char *at = buf;
    unsigned char piece[PIECE];

    for (size_t i = 0, n; i < bytes; i += n) {
        n = bytes - i < PIECE ? bytes - i : PIECE;
        expect(piece, i, n, seed);
        for (size_t k = 0; memcmp(at + i, piece, n) != 0 && k < n; k++)
            if (at[i + k] != piece[k])
                return (long)(i + k);
    }
    return -1;
}

static const size_t SIZES[] = {0,       1,      47,    48,    49,    63,     64,     111,    112,
                               113,     1000,   4095,  4096,  4097,  8191,   8192,   8193,   16383,
                               16384,   16385,  65535, 65536, 65537, 131072, 262143, 262144, 262145,
#ifndef __SANITIZE_THREAD__ /* which looks at every byte for seconds, and sees no more in so many */
                               1048576, 3145729
#endif
};

static int echo_one(ranks_t *self, int lane, unsigned char *buf, size_t shift, size_t bytes, comm_tag_t tag)
{
    int peer = 1 - self->rank;

    if (self->rank == 0) {
        ranks_fill(buf + shift, bytes, tag.seq);
        RANKS_CHECK(self, ranks_send(self, peer, lane, buf + shift, bytes, tag) == GYRE_OK);
    }
    memset(buf, 0xee, bytes + 64);
    RANKS_CHECK(self, ranks_recv(self, peer, lane, buf + shift, bytes, tag) == GYRE_OK);
    RANKS_CHECK(self, ranks_wrong(buf + shift, bytes, tag.seq) == -1);
    RANKS_CHECK(self, shift == 0 || buf[shift - 1] == 0xee);
    RANKS_CHECK(self, buf[shift + bytes] == 0xee);
    if (self->rank == 1)
        RANKS_CHECK(self, ranks_send(self, peer, lane, buf + shift, bytes, tag) == GYRE_OK);
    return 0;
}

int ranks_echo(ranks_t *self, int lane, unsigned char *buf, size_t most)
{
    uint32_t seq = 0;

    if (self->rank > 1)
        return 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0] && SIZES[i] <= most; i++) {
        for (size_t shift = 0; shift<64; shift += SIZES[i]> 100000 ? 61 : 13) {
            comm_tag_t tag = {++seq, 0x1234u + (uint32_t)i};
            if (echo_one(self, lane, buf, shift, SIZES[i], tag) != 0) {
                fprintf(stderr, "rank %d: %zu bytes, misaligned by %zu\n", self->rank, SIZES[i], shift);
                return 1;
            }
        }
    }
    return 0;
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int ranks_late(ranks_t *self, int times, int ms, double most, int free)
{
    unsigned char byte = 1;

    for (int k = 1; k <= times; k++) {
        const comm_tag_t tag = {(uint32_t)k, 0};
        if (self->rank == 0) {
            usleep((useconds_t)ms * 1000);
            RANKS_CHECK(self, ranks_send(self, 1, 0, &byte, 1, tag) == GYRE_OK);
        } else {
            double before = cpu_seconds();
            RANKS_CHECK(self, ranks_recv(self, 0, 0, &byte, 1, tag) == GYRE_OK);
            RANKS_CHECK(self, k <= free || cpu_seconds() - before < most);
        }
    }
    return 0;
}
