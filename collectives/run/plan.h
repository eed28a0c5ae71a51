/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/plan.h: a plan is a schedule that is ready to run again and again.
 *
 * In a plan, refs are byte offsets, links are remembered, and views are found. A large operation is cut into
 * segments whose scratch memory fits.
 *
 * Plans are cached per communicator and shape, so that a repeated call allocates nothing. One operation of a
 * communicator runs at a time, so the state of a run lives in the plan. */
#ifndef COLLECTIVES_RUN_PLAN_H
#define COLLECTIVES_RUN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <gyre/collectives.h>

#include "base/defined.h"
#include "collectives/choose/choose.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/schedule.h"
#include "comm/transport.h"

/* All that a plan depends on, in addition to the communicator. Lookups borrow the arrays; the cache copies
 * them. What is no array is compared in each call: it has no padding, and is short. */
typedef struct {
    coll_op_t op;
    gyre_type_t type;
    gyre_redop_kind_t redop;
    gyre_order_t order; /* DEFAULT: as CANONICAL */
    int root;
    bool scaled, in_place, uniform;
    uint8_t inside; /* coll_inside_t; not NONE: of Gyre's own, for which the program names no algorithm */
    size_t count;
    const size_t *counts, *displs, *rcounts, *rdispls; /* [n]; NULL: `uniform` blocks of count, or packed */
} coll_shape_t;

/* 1: they agree in all but their arrays. As words: a call of memcmp takes longer. */
static inline int coll_shape_alike(const coll_shape_t *a, const coll_shape_t *b)
{
    enum { PLAIN = offsetof(coll_shape_t, counts), WORDS = PLAIN / sizeof(uint64_t) };
    _Static_assert(PLAIN == 5 * sizeof(int) + 3 * sizeof(bool) + sizeof(uint8_t) + sizeof(size_t),
                   "what is compared has no padding");
    uint64_t differ = 0;
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t x, y;
        memcpy(&x, (const char *)a + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)b + i * sizeof y, sizeof y);
        differ |= x ^ y;
    }
    return differ == 0;
}

static inline int coll_shape_has_arrays(const coll_shape_t *s)
{
    return ((uintptr_t)s->counts | (uintptr_t)s->displs | (uintptr_t)s->rcounts | (uintptr_t)s->rdispls) != 0;
}

/* 1: a sum, or an average, that is to be rounded once. Other reductions do not depend on their order. */
static inline int coll_shape_is_exact(const coll_shape_t *s)
{
    return s->order == GYRE_ORDER_EXACT && coll_op_reduces(s->op) &&
           (s->redop == GYRE_SUM || s->redop == GYRE_AVG) && coll_kernel_has_exact(s->type);
}

/* Each rank knows its own counts only. */
static inline int coll_shape_is_uneven(const coll_shape_t *s)
{
    return !s->uniform && (s->op == COLL_GATHER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL);
}

enum { COLL_MAX_SOURCES = 1024 }; /* of one REDUCE step: bounds the executor's stack */

/* A step ready to run. Sizes in bytes. */
typedef struct {
    uint8_t kind, lane;
    uint16_t flags;
    int32_t peer;
    size_t bytes, offset; /* of `at`, from the start of its buffer */
    size_t staged_from;   /* SEND of what a COLL_STAGE copy brought to TMP: its offset in IN; else SIZE_MAX */
    uint8_t buf;          /* coll_buf_t of `at` */
    uint8_t may_view;     /* RECV into TMP that only one channel's REDUCE and COPY steps read */
    uint8_t viewed;       /* state: `view` is open */
    uint8_t done;         /* state: complete */
    uint32_t src, nsrc, dep, ndep;
    uint32_t release, nrelease; /* views to give back after this step: entries in coll_segment_t.releases */
    const void *view;
    comm_link_t *link; /* resolved on first use */
    comm_msg_t msg;
} coll_pstep_t;

typedef struct {
    size_t offset; /* bytes */
    uint8_t buf;
    uint32_t recv;      /* index of the viewable RECV that wrote exactly around here, or UINT32_MAX */
    size_t recv_offset; /* bytes from that RECV's start */
} coll_psource_t;

/* One schedule, run once per segment that has its sizes. */
typedef struct {
    coll_schedule_t schedule; /* kept for reports */
    coll_pstep_t *steps;
    coll_psource_t *sources;
    uint32_t *releases;
    uint32_t *open_sends;                                       /* state: [nsteps] */
    uint32_t first[COLL_MAX_CHANNELS], last[COLL_MAX_CHANNELS]; /* order[first..last) of a channel */
    uint32_t *order;                                            /* steps sorted by channel, list order kept */
    size_t tmp_bytes, scaled_count;
    int stages;                     /* 1: it has COLL_STAGE copies */
    size_t *counts;                 /* [n] of blocks, for scaling; NULL for element-wise operations */
    struct coll_joint_peer *joint;  /* [n] JOINT steps: collectives/run/reach/joint.c; NULL: there are none */
    size_t joint_bytes, joint_room; /* of the vector; of each of the n - 1 places at the end of TMP */
    int joint_window;               /* state: OUT lies in a window */
    int joint_unmapped;             /* state: this rank's announcement_t.unmapped */
    base_arena_t arena;
} coll_segment_t;

/* A rank's part in an exchange: collectives/run/oneshot.c. */
typedef struct {
    int posts;             /* 1: this rank posts */
    int streams;           /* 1: no rank both posts and reads */
    int first, end;        /* it needs the posts of ranks first..end - 1, neither of which it is itself */
    size_t post;           /* bytes of each post, */
    const size_t *counts;  /* or [n] elements of each rank's; NULL: post */
    size_t sent, received; /* bytes of its own post and of those that it needs */
    uint32_t more;         /* exchanges like this one that follow in the same call, the last one shorter */
} coll_oneshot_part_t;

/* Bytes of this rank's buffers that are brought to a window (collectives/run/reach/stage.h); 0: not. */
typedef struct {
    size_t in, out;
    size_t given;  /* of the input, wherever it lies */
    size_t chunks; /* of the input that COLL_STAGE copies bring, chunk by chunk */
    double ns;     /* that copies of in and out take, by the machine's costs */
    /* The result's place is the input's, too. So it is in place; and where each rank reads a part of all
     * inputs and then writes the same part of all results. Then two ranks write there in turn, which costs
     * less than if one writes and the other reads. */
    int one_place;
} coll_staging_t;

/* Segments that run one after the other. */
typedef struct {
    uint32_t n;
    uint32_t *of; /* [n] index into the plan's segments */
    size_t count; /* elements by which consecutive ones are shifted */
} coll_cut_t;

typedef struct coll_plan coll_plan_t;
struct coll_plan {
    coll_plan_t *next; /* in its chain of the cache */
    uint64_t used;     /* coll_plan_cache_t.uses at the last lookup */
    size_t bytes;      /* memory that it holds */
    uint64_t key;
    coll_shape_t shape; /* arrays owned; equal blocks and packed displs are spelled out here */
    unsigned given;     /* bit i: the caller passed array i of counts, displs, rcounts, rdispls */
    coll_algo_t algo;
    int one_shot;
    int oneshot; /* 1: no schedule, but collectives/run/oneshot.h; then there are no segments */
    coll_oneshot_part_t part, last; /* last: the part in the last of several exchanges */
    size_t chunk;                   /* elements */
    coll_choice_t choice;           /* how these came about */
    comm_call_t call;               /* a call with it as others see it, but for number, count and tag */
    size_t esize;
    coll_cut_t cut;
    coll_cut_t fine_cut; /* of a long sum, if a rank's memory cannot be mapped; no segments: always `cut` */
    coll_segment_t *segments;
    uint32_t ndistinct;
    size_t tmp_bytes;                     /* largest of all segments, scaled input included */
    size_t scaled_bytes;                  /* part of it that holds the scaled input (at its start) */
    coll_staging_t staging, staging_cold; /* cold: of buffers that are likely in no cache */
    size_t passes;                        /* bytes of this rank's buffers, all segments together */
    int exact;                            /* coll_shape_is_exact */
    int inputs;                           /* of a reduction: ranks, or leaves of all ranks */
    int busy;                             /* a queued or running request uses it: must not be evicted */
    base_arena_t arena;
};

/* dst = the k sources combined in the plan's order: coll_kernel_combine, or _reduce_exact. Not OK: what the
 * program's own operation returned (coll_kernel_failed). */
static inline gyre_status_t coll_plan_reduce(const coll_plan_t *p, void *dst, const void *const *srcs, int k,
                                             size_t count)
{
    if (p->shape.redop >= GYRE_REDOP_USER)
        return coll_kernel_combine(p->shape.redop, p->shape.type, dst, srcs, k, count);
    if (p->exact)
        coll_kernel_reduce_exact(p->shape.redop, p->shape.type, dst, srcs, k, count);
    else
        coll_kernel_reduce(p->shape.redop, p->shape.type, dst, srcs, k, count);
    return GYRE_OK;
}

/* A request, or a call without one, uses the plan from here on, or no longer: it is not evicted, and its
 * operation not freed. The caller is driving. */
static inline void coll_plan_hold(coll_plan_t *plan)
{
    plan->busy++;
    if (plan->shape.redop >= GYRE_REDOP_USER)
        base_redop_hold(plan->shape.redop);
}

static inline void coll_plan_release(coll_plan_t *plan)
{
    plan->busy--;
    if (plan->shape.redop >= GYRE_REDOP_USER)
        base_redop_release(plan->shape.redop);
}

/* Makes an average of a whole reduction; an exact one is an average already. */
static inline void coll_plan_finish(const coll_plan_t *p, void *dst, size_t count)
{
    if (p->shape.redop == GYRE_AVG && !p->exact)
        coll_kernel_divide(p->shape.type, dst, count, p->inputs);
}

/* A hash table; a model has as many shapes as it has buckets of different sizes. The least recently used go
 * first once there are too many, or too large ones. */
enum { COLL_PLAN_CHAINS = 64, COLL_PLANS_MOST = 1024, COLL_PLAN_BYTES_MOST = 32 << 20 };
typedef struct {
    coll_plan_t *chain[COLL_PLAN_CHAINS];
    coll_plan_t *last[COLL_OP_END]; /* of each operation: what was asked for last, found without hashing */
    uint32_t count;
    size_t bytes;
    uint64_t uses; /* lookups so far: the clock of `used` */
    uint64_t built;
} coll_plan_cache_t;

typedef struct {
    void *base;
    size_t bytes;
    size_t stage; /* where the next staged copies lie, if they fit there */
    int staged;   /* calls that staged so far; negative: their room could not be had */
} coll_scratch_t;

typedef struct {
    uint64_t bytes_sent, bytes_received, messages_sent;
} coll_traffic_t;

/* Inputs of the last calls for which plan->staging_cold is another one. */
enum { COLL_RECENT = 16 };
typedef struct {
    const void *at[COLL_RECENT];
    size_t bytes[COLL_RECENT];
    uint64_t when[COLL_RECENT]; /* `moved` after that call */
    uint64_t moved;             /* bytes of the buffers of all calls with a schedule */
    uint32_t last, next;        /* the entry of the last call, and the one that is taken next */
    uint32_t cold; /* of these calls, those whose input was likely in no cache; COLL_RECENT: or more */
} coll_recent_t;

/* The run of a plan: bound to buffers. */
typedef struct {
    const char *in;
    char *out;
    const coll_staging_t *staging; /* one of the plan's; set when the run starts */
    const char *staged_in;         /* the running segment's copies in a window; NULL: none */
    char *staged_out;
    double scale;
    int unstaged;          /* 1: COLL_STAGE copies are left out */
    const coll_cut_t *cut; /* one of the plan's; set when the run starts */
    uint32_t segment;      /* running one */
    int started;           /* state of the running segment is set up */
    uint32_t pc[COLL_MAX_CHANNELS];
    uint32_t nopen;    /* open sends */
    uint32_t nblocked; /* of them, not yet accepted by their lane */
} coll_run_t;

/* ---- segments.c ---- */
/* Elements of the longest block (or of the vector); 0 where not every rank knows them. */
size_t coll_longest_block(const coll_shape_t *shape, int n);
/* Sets the plan's segments and, where need be, a shorter chunk. The algorithm, form and chunk are chosen. */
void coll_size_segments(const gyre_comm_t *comm, coll_plan_t *plan);

/* A generator's arguments for a call of this shape on this rank, before the call is cut. The choice sets
 * chunk. For schedules in which no rank accesses another rank's buffers. */
coll_args_t coll_call_args(const gyre_comm_t *comm, const coll_shape_t *shape);
/* The same where a rank may access another rank's buffers. These follow the order of the processes'
 * places. */
coll_args_t coll_plan_args(const gyre_comm_t *comm, const coll_shape_t *shape);
/* How operations are made: gyre_options_t, checked. */
enum { COLL_ALGORITHM_BYTES = 256 };
typedef struct {
    gyre_order_t order;                   /* not DEFAULT */
    char algorithm[COLL_ALGORITHM_BYTES]; /* "": GYRE_ALGO */
    size_t chunk;                         /* bytes; 0: GYRE_CHUNK */
    uint32_t tag;                         /* no schedule depends on it, and ranks may differ; 0: none */
} coll_options_t;

/* Finds or builds the plan. Errors: NO_MEMORY, UNSUPPORTED (a forced algorithm that does not serve this). */
gyre_status_t coll_plan_find(gyre_comm_t *comm, const coll_shape_t *shape, coll_plan_t **out);
/* Builds one that is not in the cache: the caller's, until coll_plan_free. options: instead of the
 * communicator's; shape->order is theirs. Errors as above. The caller of both is driving. */
gyre_status_t coll_plan_make(gyre_comm_t *comm, const coll_options_t *options, const coll_shape_t *shape,
                             coll_plan_t **out);
void coll_plan_free(coll_plan_t *plan);
void coll_plan_cache_free(coll_plan_cache_t *cache);

/* As GYRE_ALGO: of the communicator's options, or the setting. */
const char *coll_comm_algorithm(const gyre_comm_t *comm);
/* What a choice for this communicator depends on, in addition to the call. Points into `comm`. */
coll_facts_t coll_comm_facts(const gyre_comm_t *comm);

/* Compiles a schedule into a segment (collectives/run/compile.c). Takes `schedule` over. */
gyre_status_t coll_segment_compile(coll_schedule_t *schedule, size_t esize, coll_segment_t *out);
void coll_segment_free(coll_segment_t *segment);

/* The executor: moves one operation a step. OK: finished. IN_PROGRESS: *moved is 1 if anything happened. */
gyre_status_t coll_run_advance(gyre_request_t *r, int *moved);

#endif
