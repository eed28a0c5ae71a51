/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/internal.h: the inside of optim_zero_t, shared by the files of this folder: zero.c makes and
 * ends it, buckets.c sends gradients off, serve.c serves the model, step.c updates, state.c is for
 * checkpoints, verify.c compares replicas, experts.c serves two as one. */
#ifndef OPTIM_STORE_INTERNAL_H
#define OPTIM_STORE_INTERNAL_H

#include <gyre/exact.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "optim/tree.h"
#include "optim/store/plan.h"

#define ZERO_NO_BUFFER SIZE_MAX
#define ZERO_BLOCK     4096 /* elements that are converted at a time, on the stack */
#define ZERO_PARTS     16   /* sums of squares for a rank's threads, at most */

/* A collective that is under way: a request on the host, an event of its stream on a device. All zero:
 * none. */
typedef struct {
    gyre_request_t *request;
    base_event_t *event; /* kept from one use to the next */
    int pending;
} zero_ticket_t;

/* What a bucket does in this step, in addition to the plan's zero_bucket_t. */
typedef struct {
    size_t missing;       /* rows without the gradient of the whole run */
    char *data;           /* [count] gradients as they are reduced; NULL: no buffer of the pool yet */
    int under_way;        /* 1: its reduction was started, and is not known to have ended */
    size_t added;         /* reductions of this step whose sums are in place */
    size_t buffer;        /* which one that is; ZERO_NO_BUFFER: its own memory */
    size_t *shards;       /* [ranks] elements of each rank's shard */
    zero_ticket_t reduce; /* of gradients */
    zero_ticket_t gather; /* of weights, stages 1 and 2 */
} zero_run_t;

/* Weights of a unit. */
typedef struct {
    size_t first, rows; /* rows 0: free */
    int users;          /* 1 between acquire and release */
    int filled;         /* they are there as the model wants them; else requests are to be waited for */
    /* [elements of the unit] as they are gathered, at an end of zero->landing or in own_raw. NULL: they are
     * not gathered, or expanded already */
    char *raw;
    float *value; /* the same in fp32, in zero->expanded or own_value; NULL: the model takes what is in raw */
    char *own_raw;    /* NULL: none */
    float *own_value; /* NULL: none */
    size_t requests;
    zero_ticket_t *request; /* [max_unit_buckets] */
} zero_entry_t;

/* Memory for gradients of one bucket at a time. */
typedef struct {
    char *data;  /* [count of its pool] */
    size_t pool; /* of the plan */
    size_t next; /* in the queue of idle ones; ZERO_NO_BUFFER: it is the last */
} zero_buffer_t;

/* The idle buffers of a pool: a queue. ZERO_NO_BUFFER: it is empty. */
typedef struct {
    size_t first, last;
} zero_idle_t;

/* Fp32 weights and moments of what this rank updates of a bucket. */
typedef struct {
    float *w, *m, *v;
} zero_view_t;

/* When gradients are under way between ranks. Two stores that are served as one have one clock: what runs in
 * both at the same time counts once. */
typedef struct {
    size_t running;    /* reductions that were started and are not known to have ended */
    base_time_t since; /* when `running` became 1 */
    base_time_t total;
} zero_travel_t;

typedef enum { ZERO_GROUP_DP, ZERO_GROUP_TP, ZERO_GROUP_TIED, ZERO_GROUPS } zero_group_t;

/* What depends on where memory is: host.c, and optim/gpu/store.c. Each call that moves or computes comes
 * after those before it; on a device it is enqueued, and read is what waits. Gradients are of
 * plan.grad_bytes, weights of plan.weight_bytes. */
typedef struct {
    /* Zeroed; travels: collectives reach it without a copy. */
    gyre_status_t (*take)(optim_zero_t *zero, size_t bytes, int travels, void **out);
    void (*give)(optim_zero_t *zero, void *memory, int travels);
    gyre_status_t (*copy)(optim_zero_t *zero, void *to, const void *from, size_t bytes);
    gyre_status_t (*read)(optim_zero_t *zero, void *host, const void *from, size_t bytes);
    gyre_status_t (*write)(optim_zero_t *zero, void *to, const void *host,
                           size_t bytes); /* host: free again */

    gyre_status_t (*stack)(optim_zero_t *zero); /* makes zero->stack, and turns, for the share */
    gyre_status_t (*round_grads)(optim_zero_t *zero, const float *from, char *to, size_t n);
    gyre_status_t (*add_grads)(optim_zero_t *zero, char *sum, const char *other,
                               size_t n); /* as collectives add */
    gyre_status_t (*no_grads)(optim_zero_t *zero, char *data,
                              size_t n); /* what adds nothing, not even a zero's sign */
    gyre_status_t (*round_weights)(optim_zero_t *zero, const float *from, char *to, size_t n);
    /* zero->squares, a sum of nothing, becomes the sum of what zero_squares visits. */
    gyre_status_t (*squares)(optim_zero_t *zero);
    /* AdamW on this rank's part of bucket b, whose state is where it lies. *rounded 1: it has made 16-bit
     * weights, too. */
    gyre_status_t (*update)(optim_zero_t *zero, size_t b, const optim_adamw_factors_t *factors,
                            const zero_view_t *state, int *rounded);
    /* hash[r] of slice `part` of `parts` of every row r that the group replicates (zero_hashed); else 0. */
    gyre_status_t (*hash)(optim_zero_t *zero, zero_group_t group, size_t part, size_t parts, uint64_t *hash);

    gyre_status_t (*reduce)(optim_zero_t *zero, size_t b); /* starts it, of more than one rank */
    /* Starts the gather of `own`, which lies in `whole`, over dp or, ahead: gather_comm. */
    gyre_status_t (*gather)(optim_zero_t *zero, const char *own, char *whole, const size_t *counts, int ahead,
                            zero_ticket_t *ticket);
    gyre_status_t (*sum_tied)(optim_zero_t *zero, char *grad, size_t n); /* over groups.tied */
    /* What is enqueued afterwards (on the host: this thread) sees the result; the ticket is free again. */
    gyre_status_t (*wait)(optim_zero_t *zero, zero_ticket_t *ticket);
    gyre_status_t (*test)(optim_zero_t *zero, zero_ticket_t *ticket); /* IN_PROGRESS; else as wait */
    /* Collective over the groups: makes ready what steps call. */
    gyre_status_t (*join)(optim_zero_t *zero);
    void (*leave)(optim_zero_t *zero); /* everything has ended, whatever became of it */
    void (*end)(optim_zero_t *zero);
} zero_ops_t;
extern const zero_ops_t zero_host_ops;
/* Device memory: sets zero->on and zero->device. UNSUPPORTED: there is none. */
gyre_status_t zero_cuda_begin(optim_zero_t *zero);

/* With expert parallelism (experts.c): the caller's table, and the two that its rows lie in, [0] all but
 * experts, [1] experts. */
typedef struct {
    const model_params_t *given;
    model_params_t *table[2];
    size_t *row;     /* [given->rows] the place of a row in its table */
    size_t *from[2]; /* [table[i]->rows] and back */
    /* others: the store of table[0], which owns this object; store: that of table[1] */
    optim_zero_t *others, *store;
    model_store_t_f32 serve; /* of both */
} zero_experts_t;

struct optim_zero {
    zero_plan_t plan;
    const zero_ops_t *on;       /* where memory is */
    struct zero_device *device; /* optim/gpu/store.c's; NULL: the host */
    optim_zero_groups_t groups;
    gyre_comm_t *
        /* the same ranks as dp: gathers are not held up by reductions; NULL: plan.gathers is 0 */
        gather_comm;
    zero_experts_t *experts; /* NULL: no expert parallelism, or the store of experts itself */
    size_t tp_rank, world_rank;
    model_store_t_f32 store;
    model_cuda_store_t cuda_store;
    size_t bytes[OPTIM_MEMORY_KINDS];
    uint64_t steps; /* updates */
    /* whose turn it is in verify.c: the updates before a load, and all steps since, skipped ones too */
    uint64_t verified;
    int torn;     /* optim_zero_torn */
    double limit; /* of the norm, in the next step */
    optim_scaler_t scaler;

    /* Memory, as the plan lays it out. Whole layouts in stages 0 to 2 (weights), 0 and 1 (gradients); else
     * shards. */
    char *weights, *grads;
    /* [plan.state], v: [plan.seconds]; NULL: master: weights are fp32; all: in the file */
    float *master, *m, *v;
    int file;           /* -1: none */
    float *window;      /* of the file, or of a device's memory: [max_own] times 2 or 3 */
    uint64_t file_read; /* bytes read from it */
    float *lost; /* what a gather of a row that failed sends from; world may be at it until it is gone */
    optim_stack_t *stack;
    optim_stack_t *turns;          /* of one unit, over the sums of plan.lanes lanes; NULL: there is one */
    float *muon_whole, *muon_pack; /* [plan.muon.whole and .work], [.pack]; NULL: no row is Muon's */
    size_t *muon_counts;           /* [4, plan.muon.plane] */
    char *levels; /* [levels, plan.grads]: sums of reductions, as gradients are kept; NULL: none */

    zero_run_t *run;       /* [buckets] */
    size_t *shards;        /* [buckets, ranks] */
    size_t *queue;         /* [buckets] in the order in which reductions were started, a ring */
    size_t next;           /* reductions that were started in this step */
    size_t oldest;         /* of them the first that is not known to have ended */
    zero_buffer_t *buffer; /* [buckets], `buffers` of them with memory; the first is of the first pool */
    size_t buffers;
    zero_idle_t *idle; /* [pools] */

    size_t *seen;   /* [rows] sequences in this step */
    float **placed; /* [rows] */
    /* [max_unit] fp32 gradients of one unit without a place of their own; NULL: all have one */
    float *staging;
    size_t staged;       /* rows in it that are not ready yet */
    zero_entry_t *entry; /* [units], of which there are `entries` */
    size_t entries;
    char *landing;           /* [plan.landing] */
    zero_entry_t *end[2];    /* whose raw lies where landing begins, and where it ends; NULL: free */
    float *expanded;         /* [max_unit]; NULL: entries have their own, or need none */
    zero_entry_t *expands;   /* whose value that is; NULL: free */
    zero_ticket_t *requests; /* [units, max_unit_buckets] */

    base_time_t exposed;
    zero_travel_t *travel, own_travel; /* the store's own, or that of the others (zero_experts_t) */
    model_spans_t *spans;              /* what goes there, too; NULL: nobody asks */
    uint64_t sent[OPTIM_TRAFFIC_KINDS];
    /* rows that 16 bits do not round (model_kind_is_exact), in fp32, one after another; NULL: none.
     * exact_parts 1: of each this rank has what it was given, and -0.0 elsewhere */
    float *exact;
    size_t exact_count;
    int exact_parts;
    gyre_exact_t *squares; /* of the gradients, for their norm */
    /* on the host: what the threads of the rank add up, which is joined to `squares` */
    gyre_exact_t *part[ZERO_PARTS];
    char drift[512]; /* what zero_verify_part found */
};

/* The store of experts' rows; NULL: they are here like all others. */
static inline optim_zero_t *zero_of_experts(const optim_zero_t *zero)
{
    return zero->experts ? zero->experts->store : NULL;
}

/* Memory that collectives reach without a copy if `shared`, zeroed; counted as `kind`. NO_MEMORY. */
gyre_status_t zero_take(optim_zero_t *zero, optim_memory_t kind, size_t bytes, int shared, void **out);

/* Since `begin` this thread has moved gradients (MODEL_SPAN_REDUCE) or weights (MODEL_SPAN_GATHER), or
 * waited for them. */
static inline void zero_exposed(optim_zero_t *zero, model_span_kind_t kind, base_time_t begin)
{
    base_time_t end = base_now();
    zero->exposed += end - begin;
    model_spans_add(zero->spans, kind, begin, end, -1, -1);
}

static inline int zero_half(const optim_zero_t *zero)
{
    return zero->plan.config.precision != MODEL_FLOAT32;
}
static inline int zero_alone(const optim_zero_t *zero)
{
    return zero->plan.ranks == 1;
}
static inline gyre_type_t zero_type16(const optim_zero_t *zero)
{
    return zero->plan.config.precision == MODEL_BFLOAT16 ? GYRE_BFLOAT16 : GYRE_FLOAT16;
}
static inline gyre_type_t zero_grad_type(const optim_zero_t *zero)
{
    return zero->plan.config.grad16 ? zero_type16(zero) : GYRE_FLOAT32;
}
/* What this rank updates of bucket b, which is no alias: weights as the model computes with them, and
 * gradients. */
static inline char *zero_weight_own(const optim_zero_t *zero, size_t b)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    return zero->weights +
           (zero->plan.config.stage == 3 ? k->at : k->weight + k->first) * zero->plan.weight_bytes;
}
static inline char *zero_grad_own(const optim_zero_t *zero, size_t b)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    return zero->grads + (zero->plan.grad_shards ? k->grad_at : k->grad + k->first) * zero->plan.grad_bytes;
}
/* 1: the sum of bucket b's reduction is to be added to others: it stays in the bucket's buffer until then. */
static inline int zero_in_buffer(const zero_plan_t *plan)
{
    return plan->adds && (plan->ranks == 1 || zero_plan_reductions(plan) > 1);
}
/* Where the sum of bucket b's reduction goes. */
static inline char *zero_sum_own(const optim_zero_t *zero, size_t b)
{
    return zero_in_buffer(&zero->plan)
               ? zero->run[b].data + zero->plan.bucket[b].first * zero->plan.grad_bytes
               : zero_grad_own(zero, b);
}

/* ---- buckets.c ---- */
/* One more buffer of a pool, which is idle. NO_MEMORY. */
gyre_status_t zero_buffer_add(optim_zero_t *zero, size_t pool);
/* Where bucket b's gradients go; may wait for a buffer of the pool. */
gyre_status_t zero_bucket_open(optim_zero_t *zero, size_t b);
/* A row of bucket b is complete: starts what is full, in order. */
gyre_status_t zero_bucket_ready(optim_zero_t *zero, size_t b);
/* Moves what is under way. */
gyre_status_t zero_progress(optim_zero_t *zero);
/* Until all reductions of the step have ended. */
gyre_status_t zero_buckets_wait(optim_zero_t *zero);
/* Starts every bucket of a rank that has no sequence in this step: it adds nothing. Once per step. */
gyre_status_t zero_buckets_nothing(optim_zero_t *zero);
void zero_buckets_reset(optim_zero_t *zero);
/* Waits for requests whatever happens, so that groups may be destroyed. */
void zero_buckets_abandon(optim_zero_t *zero);

/* ---- serve.c ---- */
void zero_store_init(optim_zero_t *zero);
/* Weights have changed, or are about to: no unit is held any more. INVALID: the model still uses one. */
gyre_status_t zero_store_forget(optim_zero_t *zero);
/* Waits for the gathers of weights after an update. */
gyre_status_t zero_weights_wait(optim_zero_t *zero, size_t b);
/* Starts them, and rounds master weights (NULL: has been done). Bucket b of stages 1 and 2; elsewhere it
 * rounds only. */
gyre_status_t zero_weights_publish(optim_zero_t *zero, size_t b, const float *master);

/* ---- state.c ---- */
/* Fp32 weights and moments of what this rank updates of bucket b, where they lie, or out of the file, until
 * zero_state_close. */
gyre_status_t zero_state_open(optim_zero_t *zero, size_t b, zero_view_t *view);
/* changed 1: goes back to the file. */
gyre_status_t zero_state_close(optim_zero_t *zero, size_t b, int changed);
/* The kernel may read that of bucket b ahead. */
void zero_state_ahead(optim_zero_t *zero, size_t b);
gyre_status_t zero_file_create(optim_zero_t *zero);
/* The second moments of row r from element `lo` of its bucket on; NULL: Muon's row has none. */
float *zero_second(const optim_zero_t *zero, const zero_view_t *view, size_t r, size_t lo);

/* ---- step.c ---- */
/* Where row r is in zero->exact; NULL: it is not there. */
float *zero_exact(const optim_zero_t *zero, size_t r);
/* Ranges of gradients whose squares only this rank counts. Ends with the first answer that is not GYRE_OK. */
typedef gyre_status_t (*squares_fn)(optim_zero_t *zero, void *user, const char *grad, size_t n);
gyre_status_t zero_squares(optim_zero_t *zero, squares_fn fn, void *user);

/* ---- muon.c ---- */
/* What rounds work in. NO_MEMORY. */
gyre_status_t zero_muon_take(optim_zero_t *zero);
/* Muon's update of all rows that it takes. Collective over groups.plane. */
gyre_status_t zero_muon_update(optim_zero_t *zero, const optim_adamw_factors_t *factors);

/* ---- experts.c ---- */
/* Whether a config with ep > 1, and the rows given for it, can be. INVALID. */
gyre_status_t zero_experts_check(const model_params_t *given, const optim_zero_config_t *config,
                                 size_t ranks);
/* Tables and what serves them, without the stores. NO_MEMORY. */
gyre_status_t zero_experts_create(const model_params_t *given, zero_experts_t **out);
void zero_experts_destroy(zero_experts_t *experts);

/* ---- verify.c ---- */
/* What the group replicates of row r: pieces of n elements of `bytes` each, sliced: of which a slice is
 * compared at a time. The pieces of a row, at most 4; 0: none of its. */
typedef struct {
    const char *data;
    size_t n, bytes;
    int sliced;
} zero_piece_t;
enum { ZERO_PIECES = 4 };
size_t zero_hashed(const optim_zero_t *zero, zero_group_t group, size_t r, zero_piece_t piece[ZERO_PIECES]);
/* Compares slice `part` of `parts` of every replicated row over dp, tp and tied. *drifted 1: they differ on
 * some of these ranks; zero->drift says where. */
gyre_status_t zero_verify_part(optim_zero_t *zero, size_t part, size_t parts, int *drifted);

#endif
