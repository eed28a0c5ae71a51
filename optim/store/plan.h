/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/plan.h: buckets and units of a slice of the table, as data: what lies where, and how much it
 * is. Pure functions that the optimiser, its prediction and tests share; nothing here knows a
 * communicator. */
#ifndef OPTIM_STORE_PLAN_H
#define OPTIM_STORE_PLAN_H

#include "optim/store/shard.h"
#include "optim/store/zero.h"

/* Consecutive rows whose gradients are reduced together. Counts and offsets in elements. */
typedef struct {
    size_t row, rows;
    size_t count;
    size_t grad;   /* of its first row in the layout of gradients */
    size_t weight; /* the same in the layout of weights */
    size_t alias;  /* the bucket whose weights these are (a tied head with its embedding); MODEL_NONE */
    int tied;      /* counted as OPTIM_MEMORY_TIED */
    size_t cut_first, cut_count; /* this rank's shard */
    size_t first,
        own;       /* what this rank updates: all of it in stage 0, else its shard; alias: as the embedding */
    size_t at;     /* where that lies in arrays of state; unused for an alias */
    size_t second; /* the same in the array of second moments, which rows of Muon have none of */
    size_t grad_at; /* the same in an array of gradients' shards */
    size_t pool;    /* whose buffers it takes, if there are pools */
} zero_bucket_t;

/* Buffers for buckets of about the same length, within a factor of two. */
typedef struct {
    size_t count;   /* elements of a buffer */
    size_t buffers; /* that are planned */
} zero_pool_t;

/* The rows that Muon updates, and the rounds in which they are made orthogonal (optim/store/muon.c). In a
 * round each rank of the plane, all ranks that hold pieces of the same rows, has one of them: row[i] is that
 * of rank i % plane in round i / plane. Elements. */
typedef struct {
    size_t rows, *row;  /* of the slice, the longest first; 0: there are none */
    size_t plane;       /* tp * ranks: rank d * tp + t holds part d of slice t */
    size_t tp, tp_rank; /* as the slice's rows tell */
    size_t whole;       /* of the longest canonical row */
    size_t work;        /* the most that optim_muon_direction works in */
    size_t pack;        /* the most of a round that one rank holds; 0: the plane is one rank */
} zero_muon_t;

typedef struct {
    const model_params_t *params;
    optim_zero_config_t config; /* complete */
    size_t ranks, rank;
    /* ranks whose sequences' gradients come in turns (experts.c); config.share and run count those of all */
    size_t lanes;
    size_t weight_bytes, grad_bytes; /* of one element as it is held */
    size_t buckets;
    zero_bucket_t *bucket; /* [buckets] */
    size_t *bucket_of;     /* [rows] */
    size_t state, grads;   /* elements of the arrays that `at` and `grad_at` are of */
    size_t seconds;        /* the same of the array that `second` is of */
    size_t *gap;           /* [rows] elements of Muon's rows before it in this rank's part of its bucket */
    zero_muon_t muon;
    size_t max_bucket;       /* elements of the longest */
    size_t max_own;          /* of the longest range of state */
    size_t units;            /* runs of rows of the same layer */
    size_t max_unit;         /* elements of the longest, aliases too */
    size_t max_unit_buckets; /* that one has rows in */
    int gathers;             /* 1: acquire gathers (stage 3 on more than one rank) */
    int expands;             /* 1: the model is given fp32 that is not held */
    int adds;                /* 1: buckets may be reduced several times in a step, and are added up */
    int grad_shards;         /* 1: of gradients only this rank's shards are kept */
    size_t pools;            /* 0: buckets have places of their own */
    zero_pool_t *pool;       /* [pools], the longest buffers first: those of the first hold max_bucket */
    size_t staging; /* elements of fp32 in which gradients are computed that have no place yet; 0: none */
    size_t entries; /* units that are held at a time: all with config.keep, else one and the next */
    /* elements, as weights are held, in which units arrive that are gathered (zero_plan_room): any two next
     * to each other; with `expands` one, since what is in use is in `expanded`. 0: none are, or each has a
     * place of its own */
    size_t landing;
    /* elements of fp32 of what is in use; keep: of each unit. 0: the model is given what arrives */
    size_t expanded;
} zero_plan_t;

/* INVALID: a value of config; NO_MEMORY, OVERFLOW. Freed by zero_plan_free. */
gyre_status_t zero_plan_make(const model_params_t *params, const optim_zero_config_t *config, size_t ranks,
                             size_t rank, size_t lanes, zero_plan_t *plan);
/* Another share, and what follows from it (optim_zero_resize). INVALID. */
gyre_status_t zero_plan_resize(zero_plan_t *plan, const optim_zero_config_t *config);
/* Bytes of the sums over the sequences of a run, and over the reductions of a round. */
size_t zero_plan_sums(const zero_plan_t *plan);
size_t zero_plan_levels(const zero_plan_t *plan);
/* Reductions of each bucket in a step. */
static inline size_t zero_plan_reductions(const zero_plan_t *plan)
{
    return plan->config.run ? plan->config.share / plan->config.run : 1;
}
void zero_plan_free(zero_plan_t *plan);

/* Part [*lo, *hi) of its bucket (elements of it) that row r has in what this rank updates; 0: none. */
int zero_plan_part(const zero_plan_t *plan, size_t r, size_t *lo, size_t *hi);
/* 1: Muon updates row r. */
int zero_plan_muon(const zero_plan_t *plan, size_t r);
/* muon.c: plan->muon. NO_MEMORY. */
gyre_status_t zero_plan_rounds(zero_plan_t *plan);
/* Elements that this rank sends to others in all rounds of a step. */
uint64_t zero_plan_muon_sent(const zero_plan_t *plan);

/* The unit of row `first`: rows [*begin, *end) of the same layer. */
void zero_plan_unit(const zero_plan_t *plan, size_t row, size_t *begin, size_t *end);
/* Elements that the unit of rows [begin, end) has, and those that it takes in `landing`. */
static inline size_t zero_plan_unit_count(const zero_plan_t *plan, size_t begin, size_t end)
{
    const model_param_t *row = plan->params->row;
    return row[end - 1].grad + row[end - 1].count - row[begin].grad;
}
static inline size_t zero_plan_room(size_t count)
{
    return (count + 127) / 128 * 128; /* what follows is aligned as memory that was taken */
}
/* The bucket whose weights bucket b has. */
static inline size_t zero_plan_weights(const zero_plan_t *plan, size_t b)
{
    return plan->bucket[b].alias != MODEL_NONE ? plan->bucket[b].alias : b;
}
/* 1: this rank holds one of the two twin rows, and another rank the other. */
int zero_plan_needs_partner(const zero_plan_t *plan);

#endif
