/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/schedule.h: a collective algorithm is a pure function that returns data.
 *
 * A generator gets coll_args_t and returns, for one rank, a schedule: a list of steps grouped into channels.
 * The checker (collectives/proof/check/check.h) proves schedules, the executor (collectives/run/executor.c)
 * runs them, and no other code needs to know how an algorithm works. A new algorithm is one new generator and
 * one row in collectives/schedules/algorithms.def.
 *
 * Meaning of a schedule
 *  - Steps of one channel start in list order. SEND is posted and continues in the background; RECV, COPY
 *    and REDUCE are finished before the channel's next step starts.
 *  - A step also waits until each step in its dependency list is *complete* (a SEND: its source may be
 *    overwritten). A step needs that for steps of other channels, and for earlier SENDs of its own channel
 *    if it overwrites their source. The operation is over when all steps are complete.
 *  - Messages between two ranks on one channel match in order: the k-th SEND to p on channel c here is the
 *    k-th RECV from this rank on channel c at p, with equal count. Message patterns never depend on
 *    in_place.
 *  - REDUCE combines its sources, given in rank order, in the canonical tree over k sources (balanced, split
 *    at the largest power of two below k). dst may be exactly one of the sources.
 *  - A REDUCE or COPY flagged COLL_FINAL produces fully reduced elements (of a scan: the rank's own prefix):
 *    each element of the result passes exactly one such step on the rank that first has it (an average is
 *    divided there).
 *  - A COPY flagged COLL_STAGE brings a part of IN to TMP, where only SENDs of just that part read it, before
 *    the next such copy. Where their receivers can read IN itself, the executor leaves the copy out, and the
 *    SENDs read IN, which nothing overwrites.
 *  - JOINT works in other ranks' buffers, at the same range everywhere. Towards COLL_FROM_ALL: OUT of every
 *    rank becomes the reduction of all ranks' IN (FINAL, as above). Towards rank p: OUT of p becomes IN of
 *    the root. Every rank announces its buffers to the ranks that access them, in a message of args.place
 *    elements. The executor fills the first args.place elements of TMP with the announcement, and finds the
 *    announcements of peers at the destination of their first message. A further message from this rank
 *    reports the end. No two ranks' steps touch the same element of a buffer, unless both read it.
 *  - All ranges are in elements of the operation's type. Zero-count steps are left out, except in
 *    barriers. */
#ifndef COLLECTIVES_SCHEDULES_SCHEDULE_H
#define COLLECTIVES_SCHEDULES_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "base/arena.h"

typedef enum {
    COLL_ALL_REDUCE = 1,
    COLL_REDUCE_SCATTER,
    COLL_ALL_GATHER,
    COLL_BROADCAST,
    COLL_REDUCE,
    COLL_GATHER,
    COLL_SCATTER,
    COLL_ALL_TO_ALL,
    COLL_SCAN,
    COLL_EXSCAN,
    COLL_BARRIER,
    COLL_OP_END,                /* one past the last that has schedules */
    COLL_SENDRECV = COLL_OP_END /* point to point: not scheduled, but recorded and compared like the others */
} coll_op_t;

/* One vector of count elements, not a block for each rank. */
static inline int coll_op_is_vector(coll_op_t op)
{
    return op == COLL_ALL_REDUCE || op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_SCAN ||
           op == COLL_EXSCAN;
}

/* A block for each rank. */
static inline int coll_op_has_blocks(coll_op_t op)
{
    return op == COLL_REDUCE_SCATTER || op == COLL_ALL_GATHER || op == COLL_GATHER || op == COLL_SCATTER ||
           op == COLL_ALL_TO_ALL;
}

/* Rank r gets a reduction of its own, over the ranks up to r. */
static inline int coll_op_scans(coll_op_t op)
{
    return op == COLL_SCAN || op == COLL_EXSCAN;
}

static inline int coll_op_reduces(coll_op_t op)
{
    return op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER || op == COLL_REDUCE || coll_op_scans(op);
}

/* The ranks whose inputs a reduction at `rank` combines: 0 .. the result - 1. */
static inline int coll_op_inputs(coll_op_t op, int n, int rank)
{
    return op == COLL_SCAN ? rank + 1 : op == COLL_EXSCAN ? rank : n;
}

typedef enum {
    COLL_ALGO_AUTO = 0,
#define ALGORITHM(id, name, ...) COLL_##id,
#include "collectives/schedules/algorithms.def"
#undef ALGORITHM
    COLL_ALGO_END
} coll_algo_t;

enum { COLL_MAX_CHANNELS = 2 };

/* What a generator is asked for. Arrays are borrowed. IN is the caller's send buffer, OUT its receive buffer.
 *  all_reduce      IN [count], OUT [count]
 *  reduce_scatter  IN: block r is [displs[r], displs[r] + counts[r]); OUT [counts[rank]]
 *  all_gather      IN [counts[rank]]; OUT: block r is [displs[r], displs[r] + counts[r])
 *  broadcast       IN [count] at root; OUT [count] everywhere (also at root)
 *  reduce          IN [count]; OUT [count] at root only
 *  gather          IN [counts[rank]]; OUT at root: blocks. Non-roots know counts[rank] only (other entries
 * are 0):
 *                  binomial therefore serves only `uniform` calls, where counts are equal and known
 *  scatter         IN at root: blocks; OUT [counts[rank]]. Same remark.
 *  all_to_all      IN: block p is [displs[p], + counts[p]); OUT: block p is [rdispls[p], + rcounts[p]).
 *                  Unless `uniform`, a rank knows only its own counts.
 *  scan            IN [count], OUT [count]
 *  exscan          IN [count]; OUT [count], at rank 0: none
 *  barrier         no buffers
 * in_place: IN and OUT share memory in the form that include/gyre/collectives.h gives for the call:
 *  all_reduce, broadcast (root), reduce (root), all_to_all, scan, exscan: OUT == IN
 *  reduce_scatter: OUT == IN + displs[rank]     all_gather: IN == OUT + displs[rank]
 *  gather (root): IN == OUT + displs[root]      scatter (root): OUT == IN + displs[root] */
typedef struct {
    coll_op_t op;
    int n, rank, root;
    size_t count;
    const size_t *counts, *displs;   /* [n] */
    const size_t *rcounts, *rdispls; /* [n], all_to_all only */
    int uniform; /* all counts are equal on all ranks; the places are still those of displs */
    int in_place;
    int fast_order; /* 1: reductions need not follow the canonical tree */
    int exact;      /* 1: every REDUCE has all inputs of its result (coll_op_inputs) as its sources */
    /* [n + 1] a reduction's inputs leaves[r] .. leaves[r + 1] - 1 are those of rank r, one after the other in
     * IN, each `stride` elements after the one before; never in place. NULL: one of each rank. */
    const int *leaves;
    size_t stride;
    size_t chunk; /* elements per pipelined chunk, > 0 */
    int one_shot; /* latency form of the algorithms that have one (direct, butterfly: whole vectors) */
    size_t
        /* elements that hold an announcement of buffers; 0: not all ranks can reach each other's memory
         * (shared) */
        place;
    const int *host; /* [n] host number of each rank; hierarchical only, else may be NULL */
    /* [n] the ranks in an order in which those that are near each other follow each other (topo_seat_order),
     * the same on all ranks; NULL: by rank. Algorithms follow it where it changes no bit. */
    const int *order;
} coll_args_t;

typedef enum {
    COLL_STEP_SEND = 0,
    COLL_STEP_RECV,
    COLL_STEP_COPY,
    COLL_STEP_REDUCE,
    COLL_STEP_JOINT
} coll_step_kind_t;
typedef enum { COLL_IN = 0, COLL_OUT, COLL_TMP } coll_buf_t;

typedef struct {
    size_t offset; /* elements from the start of the buffer */
    coll_buf_t buf;
} coll_ref_t;

enum { COLL_FINAL = 1, COLL_STAGE = 2 };
enum { COLL_FROM_ALL = -1 }; /* coll_step_t.peer of a JOINT step that reduces */

typedef struct {
    uint8_t kind; /* coll_step_kind_t */
    uint8_t channel;
    uint16_t flags;
    int32_t peer;  /* SEND: to; RECV: from; JOINT: see above; else -1 */
    size_t count;  /* elements */
    coll_ref_t at; /* SEND: source; RECV, COPY, REDUCE: destination */
    uint32_t src;  /* COPY, REDUCE: first of nsrc entries in coll_schedule_t.sources */
    uint32_t nsrc;
    uint32_t dep; /* first of ndep entries in coll_schedule_t.deps: indices of steps of this schedule */
    uint32_t ndep;
} coll_step_t;

typedef struct {
    coll_algo_t algo;
    uint32_t nsteps, nsources, ndeps;
    uint32_t channels;
    coll_step_t *steps;
    coll_ref_t *sources;
    uint32_t *deps;
    size_t tmp_count;   /* elements of TMP that this rank needs */
    base_arena_t arena; /* owns all of it */
} coll_schedule_t;

/* Builds this rank's schedule. UNSUPPORTED (quiet) where `algo` does not serve args (see
 * coll_algo_serves). */
gyre_status_t coll_schedule_build(coll_algo_t algo, const coll_args_t *args, coll_schedule_t *out);
void coll_schedule_free(coll_schedule_t *schedule);

/* 1 if `algo` has a generator for `op` (and, unless args is NULL, serves these arguments). */
int coll_algo_serves(coll_algo_t algo, coll_op_t op, const coll_args_t *args);
/* As users type it: "ring", ...; "unknown" for another number. */
const char *coll_algo_name(coll_algo_t algo);
/* COLL_ALGO_END if unknown, or COLL_OF_LEAVES: a call has leaves or has not. */
coll_algo_t coll_algo_parse(const char *name);
const char *coll_op_name(coll_op_t op); /* all_reduce ... */
/* A call that the program made, which this module knows as an operation: all_to_allv, or gyre_finalize for
 * the barrier in it. v: the form with a count per rank. inside: coll_inside_t. */
typedef enum {
    COLL_INSIDE_NONE,
    COLL_INSIDE_FINALIZE,
    COLL_INSIDE_SPLIT,
    COLL_INSIDE_DUP,
    COLL_INSIDE_SPLIT_TYPE,
    COLL_INSIDE_SET,
    COLL_INSIDE_MEM_SHARED,
    COLL_INSIDE_EXACT
} coll_inside_t;
const char *coll_call_name(coll_op_t op, int v, unsigned inside);

/* One line per step, for hang reports and `explain`. */
int coll_step_print(const coll_schedule_t *schedule, uint32_t step, char *text, size_t bytes);

/* --- for generators: append to a schedule under construction (collectives/schedules/builder.c) --- */
typedef struct coll_builder coll_builder_t;
coll_builder_t *coll_builder_new(const coll_args_t *args);
/* Each returns the new step's index (UINT32_MAX when count is 0 and the step was left out; memory errors are
 * kept in the builder and reported by finish). */
uint32_t coll_add_send(coll_builder_t *b, int channel, int peer, coll_ref_t from, size_t count);
uint32_t coll_add_recv(coll_builder_t *b, int channel, int peer, coll_ref_t to, size_t count);
uint32_t coll_add_copy(coll_builder_t *b, int channel, coll_ref_t to, coll_ref_t from, size_t count,
                       int flags);
uint32_t coll_add_reduce(coll_builder_t *b, int channel, coll_ref_t to, const coll_ref_t *from,
                         uint32_t nfrom, size_t count, int flags);
uint32_t coll_add_joint(coll_builder_t *b, int peer, coll_ref_t to, size_t count, int flags);
/* `step` waits for `on` to be complete; ignored if either is UINT32_MAX. Call right after adding `step`. */
void coll_add_dep(coll_builder_t *b, uint32_t step, uint32_t on);
void coll_add_sync_send(coll_builder_t *b, int peer); /* zero bytes, on channel 0: barriers */
void coll_add_sync_recv(coll_builder_t *b, int peer);
/* Reserves `count` elements of TMP (64-byte aligned for every type when offsets are multiples of 64). */
coll_ref_t coll_tmp(coll_builder_t *b, size_t count);
/* Adds the dependencies that memory reuse demands: for every step that overwrites what an earlier,
 * possibly unfinished SEND reads (in any channel, in-place aliasing taken into account). Then hands the
 * schedule over and frees b. */
gyre_status_t coll_builder_finish(coll_builder_t *b, coll_algo_t algo, coll_schedule_t *out);

#endif
