/* optim/zero_internal.h: the inside of optim_zero_t, shared by zero*.c: zero.c makes and ends it, zero_buckets.c sends gradients off,
 * zero_store.c serves the model, zero_step.c updates, zero_state.c is for checkpoints, zero_verify.c compares replicas. */
#ifndef OPTIM_ZERO_INTERNAL_H
#define OPTIM_ZERO_INTERNAL_H

#include "base/clock.h"
#include "optim/exact.h"
#include "optim/tree.h"
#include "optim/zero_plan.h"

#define ZERO_NO_BUFFER SIZE_MAX
#define ZERO_BLOCK     4096 /* elements that are converted at a time, on the stack */

/* What a bucket does in this step, beside the plan's zero_bucket_t. */
typedef struct {
    size_t missing;         /* rows without the gradient of the whole share */
    char *data;             /* [count] gradients as they are reduced; NULL: no buffer of the pool yet */
    size_t buffer;          /* which one that is; ZERO_NO_BUFFER: its own memory */
    size_t *shards;         /* [ranks] elements of each rank's shard */
    gyre_request_t *reduce; /* of gradients */
    gyre_request_t *gather; /* of weights, stages 1 and 2 */
} zero_run_t;

/* Weights of a unit in fp32. */
typedef struct {
    size_t first, rows; /* rows 0: free */
    int users;          /* 1 between acquire and release */
    int filled;         /* value is complete; else requests are to be waited for */
    float *value;       /* [elements of the unit] */
    uint16_t *raw;      /* the same before expansion; NULL: gathered as fp32, or not at all */
    size_t requests;
    gyre_request_t **request; /* [max_unit_buckets] */
} zero_entry_t;

struct optim_zero {
    zero_plan_t plan;
    optim_zero_groups_t groups;
    gyre_comm_t *
        gather_comm; /* the same ranks as dp: gathers are not held up by reductions; NULL: plan.gathers is 0 */
    size_t tp_rank, world_rank;
    int impatient; /* 1: other ranks of dp need this one's part in gathers before they send the gradients that it waits for */
    model_store_t_f32 store;
    size_t bytes[OPTIM_MEMORY_KINDS];
    uint64_t steps;
    optim_scaler_t scaler;

    /* Memory, as the plan lays it out. Whole layouts in stages 0 to 2 (weights), 0 and 1 (gradients); else shards. */
    char *weights, *grads;
    float *master, *m, *v; /* [plan.state]; NULL: master: weights are fp32; all: in the file */
    int file;              /* -1: none */
    float *window;         /* of the file: [max_own] times 2 or 3 */
    uint64_t file_read;    /* bytes read from it */
    float *lost; /* what a gather of a row that failed sends from; world may be at it until it is gone */
    optim_stack_t *stack;

    zero_run_t *run; /* [buckets] */
    size_t *shards;  /* [buckets, ranks] */
    size_t next;     /* first bucket whose reduction was not started */
    size_t oldest;   /* first bucket whose reduction is not known to have ended */
    char **pool;     /* [buckets], `pooled` of them with memory */
    size_t *idle;    /* [idles] buffers that are free */
    size_t pooled, idles;

    size_t *seen;   /* [rows] sequences in this step */
    float **placed; /* [rows] */
    float
        *staging; /* [max_unit] fp32 gradients of one unit without a place of their own; NULL: all have one */
    size_t staged;       /* rows in it that are not ready yet */
    zero_entry_t *entry; /* [units], `entries` of them with memory */
    size_t entries;
    gyre_request_t **requests; /* [units, max_unit_buckets] */

    base_time_t under_way_since; /* of the oldest reduction that runs; 0: none does */
    base_time_t under_way, exposed;
    model_spans_t *spans; /* what goes there, too; NULL: nobody asks */
    uint64_t sent[OPTIM_TRAFFIC_KINDS];
    optim_exact_t exact;
    char drift[512]; /* what zero_verify_part found */
};

/* Memory that collectives reach without a copy if `shared`, zeroed; counted as `kind`. NO_MEMORY. */
gyre_status_t zero_take(optim_zero_t *zero, optim_memory_t kind, size_t bytes, int shared, void **out);

/* Since `begin` this thread has moved gradients (MODEL_SPAN_REDUCE) or weights (MODEL_SPAN_GATHER), or waited for them. */
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
/* What this rank updates of bucket b, which is no alias: weights as the model computes with them, and gradients. */
static inline char *zero_weight_own(const optim_zero_t *zero, size_t b)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    return zero->weights +
           (zero->plan.config.stage == 3 ? k->at : k->weight + k->first) * zero->plan.weight_bytes;
}
static inline char *zero_grad_own(const optim_zero_t *zero, size_t b)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    return zero->grads +
           (zero->plan.config.stage >= 2 ? k->grad_at : k->grad + k->first) * zero->plan.grad_bytes;
}

/* ---- zero_buckets.c ---- */
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

/* ---- zero_store.c ---- */
void zero_store_init(optim_zero_t *zero);
/* Weights have changed, or are about to: no unit is held any more. INVALID: the model still uses one. */
gyre_status_t zero_store_forget(optim_zero_t *zero);
/* Waits for the gathers of weights after an update. */
gyre_status_t zero_weights_wait(optim_zero_t *zero, size_t b);
/* Starts them, and rounds master weights. Bucket b of stages 1 and 2; elsewhere it rounds only. */
gyre_status_t zero_weights_publish(optim_zero_t *zero, size_t b, const float *master);

/* ---- zero_state.c ---- */
/* Fp32 weights and moments of what this rank updates of bucket b, from memory or the file, until zero_state_close. */
typedef struct {
    float *w, *m, *v;
} zero_view_t;
gyre_status_t zero_state_open(optim_zero_t *zero, size_t b, zero_view_t *view);
/* changed 1: goes back to the file. */
gyre_status_t zero_state_close(optim_zero_t *zero, size_t b, int changed);
/* The kernel may read that of bucket b ahead. */
void zero_state_ahead(optim_zero_t *zero, size_t b);
gyre_status_t zero_file_create(optim_zero_t *zero);
/* Part [*lo, *hi) of bucket b (elements of it) that row r has in what this rank updates; 0: none. */
int zero_row_part(const optim_zero_t *zero, size_t r, size_t *lo, size_t *hi);

/* ---- zero_verify.c ---- */
/* Compares slice `part` of `parts` of every replicated row over dp, tp and tied. *drifted 1: they differ on some of these
 * ranks; zero->drift says where. */
gyre_status_t zero_verify_part(optim_zero_t *zero, size_t part, size_t parts, int *drifted);

#endif
