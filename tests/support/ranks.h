/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/ranks.h: ranks of a job for tests of comm/: forked processes, or threads of one process, each
 * with a bootstrap and a watcher of its own on loopback, and an exchange over shared memory. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "comm/transport.h"
#include "comm/wait.h"

typedef struct ranks_shared ranks_shared_t;

typedef struct {
    int rank, n;
    comm_world_t world;
    comm_group_t *group; /* of all ranks; made before the body runs, destroyed after it */
    ranks_shared_t *shared;
    void *arg;
} ranks_t;

/* 0: fine. Anything else fails the test; print why on stderr first. */
typedef int (*ranks_body_t)(ranks_t *self);

/* Called by every forked rank before it joins, if set. */
extern void (*ranks_before_join)(int rank);

/* Runs `body` on n ranks and returns how many of them failed or did not end within `seconds`. */
int ranks_fork(int n, double seconds, ranks_body_t body, void *arg);
int ranks_threads(int n, double seconds, ranks_body_t body, void *arg);

/* A comm_all_gather_fn; user: ranks_t. At most RANKS_GATHER_BYTES bytes. */
enum { RANKS_GATHER_BYTES = 4096, RANKS_MAX = 64 };
gyre_status_t ranks_all_gather(void *user, const void *mine, size_t bytes, void *all);
void ranks_barrier(ranks_t *self);

/* Blocking message calls over a group, with the waiting of comm/wait.h. */
gyre_status_t ranks_send(ranks_t *self, int peer, int lane, const void *buf, size_t bytes, comm_tag_t tag);
gyre_status_t ranks_recv(ranks_t *self, int peer, int lane, void *buf, size_t bytes, comm_tag_t tag);
comm_link_t *ranks_link(ranks_t *self, int peer, int lane);

/* Byte i of message number `seed`: bits 3 to 10 of a sum. */
#define RANKS_FACTOR 2654435761u
static inline size_t ranks_sum(size_t i, unsigned seed)
{
    return i * RANKS_FACTOR + seed * 40503u + (i >> 8);
}
static inline unsigned char ranks_byte(size_t i, unsigned seed)
{
    return (unsigned char)(ranks_sum(i, seed) >> 3);
}
void ranks_fill(void *buf, size_t bytes, unsigned seed);
/* -1: all bytes are right; else where the first wrong one is. */
long ranks_wrong(const void *buf, size_t bytes, unsigned seed);

/* Rank 0 sends rank 1 `times` bytes, each `ms` late: the waiting rank sleeps most of it. Its processor time
 * for a byte is below `most` seconds; that for the first `free` ones, which may connect, is not checked. */
int ranks_late(ranks_t *self, int times, int ms, double most, int free);

/* Ranks 0 and 1 send each other messages of all interesting sizes up to `most`, at all kinds of misalignment,
 * within buf (RANKS_ECHO_BYTES); the other ranks return at once. */
enum { RANKS_ECHO_BYTES = 3145729 + 128 };
int ranks_echo(ranks_t *self, int lane, unsigned char *buf, size_t most);

#define RANKS_CHECK(self, condition)                                                                   \
    do {                                                                                               \
        if (!(condition)) {                                                                            \
            fprintf(stderr, "rank %d: %s:%d: %s (last error: %s)\n", (self)->rank, __FILE__, __LINE__, \
                    #condition, gyre_last_error());                                                    \
            return 1;                                                                                  \
        }                                                                                              \
    } while (0)

#endif
