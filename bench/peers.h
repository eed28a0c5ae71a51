/* SPDX-License-Identifier: Apache-2.0 */
/* bench/peers.h: what the benchmark loop (peers_loop.c) asks of a library that it measures.
 *
 * One program per library: the loop, which is the same for all, linked with one backend_*.c that defines
 * `bench_backend`. Nothing here belongs to Gyre's libraries, so that a peer is measured without any of Gyre
 * in its process.
 *
 * All data are fp32, all reductions sums, the root of a broadcast is rank 0. Every operation has the same
 * form, so that the timed loop makes the same indirect call whatever it measures; each returns 0, or a value
 * that bench_backend.error puts into words. `count` is in elements:
 *   all_reduce      send [count], recv [count]
 *   reduce_scatter  send [n * count], recv [count]
 *   all_gather      send [count], recv [n * count]
 *   broadcast       recv [count], in place; send is not used
 *   all_to_all      send [n * count], recv [n * count]
 *   barrier         nothing is used
 *   split           makes a communicator of all ranks and frees it; nothing is used
 *   first_call      the same, with an all_reduce on it in between: send [count], recv [count] */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*bench_call_fn)(float *send, float *recv, size_t count);

enum {
    BENCH_ALL_REDUCE,
    BENCH_REDUCE_SCATTER,
    BENCH_ALL_GATHER,
    BENCH_BROADCAST,
    BENCH_ALL_TO_ALL,
    BENCH_BARRIER,
    BENCH_SPLIT,
    BENCH_FIRST_CALL,
    BENCH_COLLECTIVES
};

typedef struct {
    /* Joins the job. argv: the program's arguments after the loop's own. Prints why and returns nonzero
     * if it fails. */
    int (*init)(int argc, char **argv, int *rank, int *size);
    bench_call_fn call[BENCH_COLLECTIVES]; /* NULL: the library has no such operation */
    /* The library's own allocator; NULL if it has none. own_alloc answers NULL if there is no memory. */
    void *(*own_alloc)(size_t bytes);
    void (*own_free)(void *memory);
    const char *(*error)(int code);
    const char *(*version)(void); /* one line */
    void (*finalize)(void);
} bench_backend_t;

extern const bench_backend_t bench_backend;

#ifdef __cplusplus
}
#endif
#endif
