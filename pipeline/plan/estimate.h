/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/estimate.h: what a recipe takes, in bytes and in seconds. Memory, time and search use these
 * figures.
 *
 * Sizes are bytes, times seconds, rates per second. The functions are pure: they depend on a recipe that has
 * passed pipe_recipe_check (pipeline/plan/recipe.h) and on a machine's figures. A rank of the pipeline is
 * called a stage here, even if the rank has several chunks. */
#ifndef PIPELINE_PLAN_ESTIMATE_H
#define PIPELINE_PLAN_ESTIMATE_H

#include "model/network/count.h"
#include "model/network/stage/flops.h"
#include "pipeline/plan/recipe.h"

/* ---- machines (machines.c) ----------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double peak;    /* dense 16-bit FLOP/s */
    double peak8;   /* the same in fp8; 0: it has none */
    double memory;  /* bytes that its driver reports */
    double reserve; /* bytes that the driver's context and its libraries take */
    double intra;   /* bytes/s that a rank sends inside a node, as an all-reduce achieves them (busbw) */
    double inter;   /* the same to other nodes, when all ranks of the node do: a rank's part of the network */
    double bandwidth;  /* bytes/s of device memory */
    double efficiency; /* part of peak that the products of a large layer achieve */
    /* seconds per layer and micro-batch that are neither products nor messages (launching kernels, norms) */
    double overhead;
    double overlap; /* part of the messages between replicas that travels while the ranks compute */
    int per_node;
    const char *source;
} plan_machine_t;

extern const plan_machine_t plan_machines[];
extern const size_t plan_machine_count;
const plan_machine_t *plan_machine_find(const char *name); /* NULL: not there */

/* ---- software (software.c) ----------------------------------------------------------------------------- */

/* What the software that trains makes of a machine. */
typedef struct {
    const char *name;
    double efficiency; /* part of the peak that products achieve; 0: the machine's (plan_software_on) */
    double attention;  /* of attention's products, times that of other products */
    /* seconds in which a host launches a layer's forward and backward: the accelerator waits where it is
     * faster than that; a third more with full recomputation */
    double host;
    double latency; /* seconds per collective of a tensor-parallel group, over what its bytes take */
    double step;    /* seconds per step that do not depend on the layout */
    double overlap; /* below 0: the machine's (plan_software_on) */
    int fp8;        /* 1: layers' products with weights multiply in fp8 (plan_machine_t.peak8) */
    int traffic; /* 1: device memory's reads and writes count by themselves; 0: efficiency stands for them */
    int keeps;   /* 1: attention keeps its scores for backward, if nothing is computed again */
    int moves;   /* 1: its kernels read and write the scores; 0: one fused kernel does not */
    size_t bucket; /* bytes of a gradient bucket */
    /* bytes per parameter of a rank, in addition to ZeRO's formulas (DeepSpeed's BF16 optimizer: 2) */
    size_t extra;
    double logit;     /* bytes that each logit takes at the peak (4: one copy in fp32) */
    double kept;      /* activations, times those of the formulas */
    size_t workspace; /* bytes of its libraries */
    size_t reserve;   /* bytes that its allocator cannot use at the limit, in addition to the machine's */
    const char *source;
} plan_software_t;

extern const plan_software_t plan_softwares[]; /* the first: the papers' formulas and nothing else */
extern const size_t plan_software_count;
const plan_software_t *plan_software_find(const char *name); /* NULL: not there */
/* Replaces the machine's efficiency and overlap by those of the software, where it has some; adds its
 * reserve. A software with `traffic` has no use for the machine's overhead, which becomes 0. */
void plan_software_on(const plan_software_t *software, plan_machine_t *machine);

/* ---- counts that every estimate begins with ------------------------------------------------------------ */

typedef struct {
    model_count_t count;
    model_flops_t flops;
    pipe_shape_t shape;   /* of the pipeline; micro_batches are those of the longest share */
    size_t micro_batches; /* m */
} plan_base_t;

/* OVERFLOW, NO_MEMORY. */
gyre_status_t plan_base(const pipe_recipe_t *recipe, plan_base_t *out);
/* The same model in another layout: shape and micro_batches anew. */
void plan_base_layout(const pipe_recipe_t *recipe, plan_base_t *base);
/* Tokens of a micro-batch that a rank has. */
size_t plan_tokens(const pipe_recipe_t *recipe);
/* The layers of all chunks of stage `rank`, and whether embedding, head and the model's last layer are
 * there. */
model_holds_t plan_holds(const pipe_recipe_t *recipe, const plan_base_t *base, size_t rank);
/* Chunks of stage `rank` whose neighbour before (*lefts) and after them (*rights) is on another rank. */
void plan_sides(const pipe_recipe_t *recipe, const plan_base_t *base, size_t rank, size_t *lefts,
                size_t *rights);

/* ---- memory (memory.c) --------------------------------------------------------------------------- */

typedef struct {
    model_holds_t holds;
    size_t parameters; /* elements on a rank of this stage */
    size_t shard;      /* elements of the largest data-parallel shard */
    size_t in_flight;  /* (chunk, micro-batch) pairs whose activations are held at the peak */
    size_t weights, gradients, optimizer; /* of the rank with the largest shard */
    size_t activations;                   /* kept for backward by the layers, all in flight */
    size_t ends;                          /* kept by embedding, final norm and logits */
    size_t working;                       /* what backward computes again of one layer at a time */
    size_t
        /* gradients on their way to their owners (ZeRO-2, 3), gathered weights (ZeRO-3), boundary tensors */
        buffers;
    size_t total;
} plan_memory_t;

void plan_memory(const pipe_recipe_t *recipe, const plan_base_t *base, size_t rank,
                 const plan_software_t *software, plan_memory_t *out);
/* The stage that needs most; *out is its. */
size_t plan_memory_worst(const pipe_recipe_t *recipe, const plan_base_t *base,
                         const plan_software_t *software, plan_memory_t *out);

/* ---- time (time.c) ------------------------------------------------------------------------------- */

/* Bytes that a rank of the busiest stage sends in a step. */
typedef struct {
    double tp; /* all-reduces (or their halves), all_to_all of experts */
    double cp; /* all-to-alls of attention over the ranks that share sequences */
    double ep; /* all-to-alls of tokens over the ranks that share experts */
    double pp; /* activations and their gradients to neighbours */
    double dp; /* gradients, gathered weights */
} plan_volume_t;

typedef struct {
    /* of one micro-batch on the slowest stage: its slot is their sum. memory: reads and writes; overhead: the
     * machine's, and what the host takes longer than the accelerator */
    double compute, memory, tp, cp, ep, overhead, hops;
    double slots;  /* micro-batches and the bubble, in slots */
    double bubble; /* part of the step in which the slowest stage waits */
    double dp;     /* exposed */
    double update; /* the optimizer's step, and what a step takes in any layout */
    double step;
    double model_flops, hardware_flops; /* of the job, per step */
    double teraflops; /* hardware_flops per rank and second, in 1e12: what papers of this field print */
    double mfu, hfu;
    double tokens; /* per second, whole job */
    plan_volume_t volume;
} plan_time_t;

plan_volume_t plan_volume(const pipe_recipe_t *recipe, const plan_base_t *base, size_t rank);
void plan_time(const pipe_recipe_t *recipe, const plan_base_t *base, const plan_machine_t *machine,
               const plan_software_t *software, plan_time_t *out);

#endif
