/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/zero.h: one rank's weights, gradients and optimiser state, under data parallelism with ZeRO
 * stage 0, 1, 2 or 3 (Rajbhandari et al. 2020).
 *
 * One object holds them for the rank's slice of the table (model_params_slice) and is the store that its
 * stages of the model work on (model/network/stage/stage.h). Rows lie in buckets, in the order in which
 * backward finishes them; when the gradient of a rank's last sequence is there for all rows of a bucket, the
 * bucket's reduction starts and runs during backward: one per bucket and step, whatever the stage, the
 * pipeline's schedule and the number of micro-batches. The stage says who keeps what:
 *
 *     stage   weights      gradients    fp32 master, moments   travels per step (x parameters, of 2 = data
 *             parallelism)
 *       0     whole        whole        whole                  all-reduce
 *             2
 *       1     whole        whole        shard                  reduce-scatter, all-gather
 *             2
 *       2     whole        shard        shard                  the same
 *             2
 *       3     shard        shard        shard                  reduce-scatter, 2 all-gathers per micro-batch
 *             3 (one)
 *
 * With several reductions per step (config.run) stage 1 keeps gradients as stage 2 does, and each reduction
 * sends as much again. What a reduction gives is added to the gradients that are kept, so memory is the same
 * for any number of them.
 *
 * Bits do not depend on the stage, nor on the ranks: gradients are joined in the tree of optim/tree.h over
 * the sequences of the batch, their norm is exact (gyre/exact.h), AdamW goes element by element.
 *
 * All calls but the pure ones are collective over the groups that they name. One thread at a time. */
#ifndef OPTIM_STORE_ZERO_H
#define OPTIM_STORE_ZERO_H

#include <gyre/gyre.h>

#include "model/gpu/stage/store.h"
#include "model/spans.h"
#include "model/network/stage/stage.h"
#include "optim/adamw.h"
#include "optim/batch.h"
#include "optim/muon.h"
#include "optim/scaler.h"

typedef struct {
    int stage; /* 0 .. 3 */
    /* 1: weights alone, which nobody updates: no gradients, master weights and moments. Stage 0 or 3; no
     * device, no offload. place and optim_zero_finish are not called, and of 16-bit weights the state's fp32
     * values are those of the 16 bits. */
    int weights_only;
    /* Of this DP rank in every step, and of a group of their tree; ranks' shares may differ (optim/batch.h).
     * What is called a sequence here is a leaf of that tree: a sequence, or several that have one
     * gradient, or a part of one. */
    size_t share, group;
    /* Expert parallelism: so many neighbours in dp, a power of two that divides its size, have different
     * experts in their slices (model_slice_t.ep_size), each of which gets the gradients of the sequences of
     * all. Equal shares. INVALID on a device. 0: 1 */
    size_t ep;
    /* Leaves between two reductions of a bucket; divides share. 0: share, one reduction per step. With
     * several reductions the sums of `blocks` of them are joined in the tree of optim/tree.h (of group
     * `block_group`), and those of such trees are added from the first to the last (optim_batch_part; blocks
     * 0: all, one tree). Ranks of dp must have the same share, run and blocks then. */
    size_t run, blocks, block_group;
    size_t bucket_bytes; /* of fp32 gradients; 0: GYRE_BUCKET_BYTES. A tied row is alone in its bucket. */

    /* MODEL_FLOAT32: weights are fp32. Else weights that the model computes with are held in these 16 bits,
     * with fp32 master weights that are updated. */
    model_precision_t precision;
    /* 1: gradients of the batch are held and reduced in the 16 bits of `precision`, rounded at every node of
     * the tree over the sequences, inside a rank (where sums are kept as floats) as between ranks. 0:
     * fp32. */
    int grad16;
    /* Weights of a unit (the rows of a layer, or those before or after the layers) that had to be gathered
     * (stage 3) or expanded (16 bits) are, with 0, dropped when the model releases them; with 1, kept until
     * the weights change: memory for all units, and stage 3 gathers each unit once per step. */
    int keep;

    optim_adamw_config_t adamw;
    /* 1: matrices of layers are updated by Muon (optim/muon.h), which holds no second moments of them, and
     * all else by AdamW. INVALID with offload or on a device. */
    int muon;
    double momentum;              /* of Muon, 0 .. 1 */
    double clip;                  /* largest gradient norm; 0: no clipping */
    optim_scaler_config_t scaler; /* of MODEL_FLOAT16; zeros: defaults */
    /* Replicated state is compared with its replicas once in so many steps, a part of each row in each; 0:
     * 16. Weights that each update makes anew (stages 1 and 2, 16 bits) are compared whole in every step. */
    size_t verify_steps;
    /* 1: everything that is held lies on CUDA device `device`, and all work on it goes into `stream` (a
     * cudaStream_t, the caller's), where the model's stages work, too; reductions and gathers run on streams
     * of their own. The same bits as on the host. The model computes in the type that weights are held in,
     * nothing is expanded. INVALID: MODEL_FLOAT16, offload. UNSUPPORTED: no CUDA. */
    int on_device, device;
    void *stream;
    const char *
        /* folder in which moments and master weights live, in a file without a name; NULL: in memory */
        offload;
} optim_zero_config_t;

/* Share, group, run and blocks of the rank that has `part` of the batch. */
void optim_zero_share(optim_zero_config_t *config, const optim_batch_t *batch, const optim_part_t *part);

/* Groups of this rank; NULL: it is alone in that group. They must outlive the object. */
typedef struct {
    gyre_comm_t *world; /* all ranks of the run */
    gyre_comm_t *dp;    /* ranks that hold the same slice; with config.ep but for its experts */
    gyre_comm_t *edp;   /* with config.ep: of dp the ranks that hold the same experts, in their order */
    gyre_comm_t *tp;    /* ranks that hold the other leaves of the same rows */
    /* The two ranks, of the same dp and tp rank, that hold the token embedding and the tied head on different
     * pipeline stages. NULL: no twin row here, or both. */
    gyre_comm_t *tied;
    /* with config.muon: all ranks of dp and tp, of which rank d * (ranks of tp) + t is d in dp and t in tp */
    gyre_comm_t *plane;
    /* with config.muon and config.ep: the same ranks, of which rank d * S + s is d in edp and has part s of S
     * of the experts (S: ranks of tp times ep) */
    gyre_comm_t *experts_plane;
} optim_zero_groups_t;

/* Kinds of memory. A tied head with its embedding (its gradient), and a copy of the embedding on the last
 * stage (all of it), are OPTIM_MEMORY_TIED; the first four kinds are thus exactly what the published formulas
 * speak of: with fp32 gradients 18, 6 + 12/N, 2 + 16/N, 18/N bytes per parameter for stages 0 to 3 in mixed
 * precision, 2 less (whole or of the N) with 16-bit gradients. */
typedef enum {
    OPTIM_MEMORY_WEIGHTS,
    OPTIM_MEMORY_GRADIENTS,
    OPTIM_MEMORY_MASTER,
    OPTIM_MEMORY_MOMENTS,
    OPTIM_MEMORY_TIED,
    /* sums over a rank's sequences between reductions: log2(run) levels of fp32; over reductions:
     * log2(blocks) levels of what is kept of gradients */
    OPTIM_MEMORY_ACCUMULATION,
    OPTIM_MEMORY_BUCKETS,  /* whole buckets in flight, gradients on their way into them */
    OPTIM_MEMORY_GATHERED, /* weights that were gathered or expanded */
    OPTIM_MEMORY_OFFLOAD,  /* what of the file is in memory at a time */
    OPTIM_MEMORY_MUON,     /* a whole matrix, what it is made orthogonal in, and pieces on their way */
    OPTIM_MEMORY_KINDS
} optim_memory_t;
const char *optim_memory_name(optim_memory_t kind);

/* Elements that this rank sends in a step, each kind by the formula of a bandwidth-optimal algorithm:
 * reduce-scatter: what is not its own; all-gather: its own to each other rank; all-reduce: both. */
typedef enum {
    OPTIM_TRAFFIC_ALL_REDUCE,     /* gradients, stage 0 */
    OPTIM_TRAFFIC_REDUCE_SCATTER, /* gradients, stages 1 to 3 */
    OPTIM_TRAFFIC_ALL_GATHER,     /* weights after the update, stages 1 and 2 */
    OPTIM_TRAFFIC_GATHER,         /* weights just in time, stage 3 */
    OPTIM_TRAFFIC_TIED,           /* gradients of tied rows between pipeline stages */
    OPTIM_TRAFFIC_MUON,           /* momentum to the rank that makes it orthogonal, and back */
    OPTIM_TRAFFIC_KINDS
} optim_traffic_t;

/* What rank dp_rank of dp_size holds for this slice, in bytes of each kind, and sends, in elements per step
 * in which stages make `passes` forward and as many backward over all their rows (one per micro-batch of the
 * longest share; with config->keep one pass counts). Pure: nothing is allocated but the plan of the buckets.
 * Either array may be NULL. INVALID, NO_MEMORY. */
gyre_status_t optim_zero_predict(const model_params_t *local, const optim_zero_config_t *config,
                                 size_t dp_size, size_t dp_rank, size_t passes,
                                 size_t bytes[OPTIM_MEMORY_KINDS], uint64_t sent[OPTIM_TRAFFIC_KINDS]);
/* Of it the bytes of OPTIM_MEMORY_MOMENTS alone, in which ranks with equal shares differ where there is Muon.
 * Its time does not grow with dp_size. INVALID, NO_MEMORY. */
gyre_status_t optim_zero_predict_moments(const model_params_t *local, const optim_zero_config_t *config,
                                         size_t dp_size, size_t dp_rank, size_t *bytes);

/* Whether a file can be made in the folder of config->offload: what optim_zero_make would find, before
 * anyone waits for others. IO. */
gyre_status_t optim_offload_check(const char *folder);

typedef struct optim_zero optim_zero_t;

/* `local` and the groups must outlive it. INVALID (with the way out), NO_MEMORY, IO (offload). In two steps,
 * so that ranks can agree on what one of them lacks before any waits for it: all that is local, and then what
 * is collective over dp. */
gyre_status_t optim_zero_make(const model_params_t *local, const optim_zero_groups_t *groups,
                              const optim_zero_config_t *config, optim_zero_t **out);
gyre_status_t optim_zero_join(optim_zero_t *zero);
/* Waits for what it has under way, as optim_zero_abort ends it at once, and gives its own communicator back:
 * its groups may be destroyed then. Only optim_zero_destroy may follow. */
void optim_zero_leave(optim_zero_t *zero);
/* Leaves, if that has not been done. Where a call has failed, destroy the groups between the two: until then
 * a transport may work in its memory (docs/transports.md). */
void optim_zero_destroy(optim_zero_t *zero);
/* This rank cannot go on: what dp has under way, gathers among it, ends on all of its ranks
 * (gyre_comm_abort). */
void optim_zero_abort(optim_zero_t *zero, const char *reason);

/* Between two steps: from now on share, group, run and blocks are those of `config`, of which nothing else is
 * read. Weights and state stay. Local. INVALID: several
 * reductions, but it was made for one. NO_MEMORY: no further step can be made. */
gyre_status_t optim_zero_resize(optim_zero_t *zero, const optim_zero_config_t *config);

/* Initial weights (model_param_init), moments zero, steps 0. Collective over dp. */
gyre_status_t optim_zero_init(optim_zero_t *zero, uint64_t seed);

/* What stages are created with; lives as long as the object. Slots are free to the caller: what counts is
 * that each row's gradients come for the sequences 0 .. share - 1 of this rank in that order. With config.ep
 * a row of experts gets those for sequence 0 of each of these ranks in their order, then for sequence 1, and
 * so on.
 *
 * Stage 3 gathers, so every acquire is collective over dp: all ranks of dp acquire the same rows in the same
 * order, once for all sequences of a pass (a micro-batch's). Where shares differ, all follow the schedule of
 * the largest one, and a rank whose share is smaller by k has no part in the first k sequences of it: in
 * passes of which it has none it calls optim_zero_idle. The last sequences, whose gradients set off the
 * reductions, are so in the same place on all ranks: a rank that waits for a buffer, and with it for others'
 * gradients, never keeps them waiting in a gather. Evaluation of a number of sequences that ranks do not
 * share evenly does likewise. */
const model_store_t_f32 *optim_zero_store(optim_zero_t *zero);
/* The same for stages on the device (config->on_device); NULL on the host, as the other is on a device.
 * acquire and ready do not wait for the device, but for errors: the stream does. */
const model_cuda_store_t *optim_zero_cuda_store(optim_zero_t *zero);
typedef enum { OPTIM_PASS_FORWARD, OPTIM_PASS_BACKWARD, OPTIM_PASS_BACKWARD_WEIGHT } optim_pass_t;
/* Takes part in the gathers of one pass of a model's stage that owns rows first .. first + rows - 1, as it
 * would make it (model_stage_forward, _backward, _backward_weight). Where acquire is not collective all that
 * it does is to start the reductions of a rank without a sequence, once per step, for which others with
 * few buffers wait. INVALID with config.ep: stages need one another in each pass. */
gyre_status_t optim_zero_idle(optim_zero_t *zero, size_t first, size_t rows, optim_pass_t pass);

/* What the loss is to be multiplied by in the next step (`scale` of model_stage_backward); 1 but for
 * MODEL_FLOAT16. */
double optim_zero_loss_scale(const optim_zero_t *zero);

typedef struct {
    double norm; /* of the batch's mean gradient, before clipping; not finite: the step was skipped */
    int skipped; /* 1: some gradient was not finite; nothing has changed but the loss scale (MODEL_FLOAT16) */
    int spiked;  /* 1: the norm is above the limit (optim_zero_limit); no weight and no moment has changed */
    /* Since optim_zero_begin, or since the step before where it is not called: this thread moved gradients or
     * weights over dp, or waited for them; gradients were under way while it did something else; elements
     * sent. NaN on a device, where this thread enqueues and streams wait. */
    double exposed_s, hidden_s;
    uint64_t sent[OPTIM_TRAFFIC_KINDS];
} optim_zero_step_t;

/* A step begins: what was gathered, sent and waited for since the last one (an evaluation's) is not its
 * own. Local. */
void optim_zero_begin(optim_zero_t *zero);

/* Ends a step, in which every row got the gradients of `share` sequences: waits for the buckets, joins tied
 * rows, norm, clipping, AdamW at `rate` on gradients * scale (1/batch; the loss scale is taken off here),
 * gathers of weights (which go on during the next forward pass). Collective over all groups. MISMATCH:
 * replicas have drifted apart; the text names ranks and row. INVALID: a row has had fewer sequences. */
gyre_status_t optim_zero_finish(optim_zero_t *zero, double scale, double rate, optim_zero_step_t *step);
uint64_t optim_zero_steps(const optim_zero_t *zero); /* updates made */
/* 1: an update failed half-way: weights and moments are partly those of the step before, partly those of the
 * step. 0: they are those of one step. Local. */
int optim_zero_torn(const optim_zero_t *zero);
/* The next optim_zero_finish makes no update if the gradient's norm is above `norm`: below 0 in any case. The
 * same on all ranks. */
void optim_zero_limit(optim_zero_t *zero, double norm);
/* Adds what a store of weights alone has sent and waited for since optim_zero_begin. */
void optim_zero_moved(const optim_zero_t *zero, optim_zero_step_t *step);

/* From now on `spans` gets reductions, gathers, what travels, and the update; NULL: none does. Borrowed. */
void optim_zero_watch(optim_zero_t *zero, model_spans_t *spans);

/* Compares all replicated rows now. MISMATCH as above. Collective over dp, tp and tied. */
gyre_status_t optim_zero_verify(optim_zero_t *zero);
/* A hash of all fp32 weights of the model that is the same for the same bits in every layout. Collective
 * over world. */
gyre_status_t optim_zero_digest(optim_zero_t *zero, uint64_t *digest);

/* Bytes held now, by kind. */
void optim_zero_memory(const optim_zero_t *zero, size_t bytes[OPTIM_MEMORY_KINDS]);

/* ---- state, for checkpoints ---- */

/* A range of one row: elements first .. first + count - 1 of canonical row `global` of the whole table.
 * Pointers are valid during the call. */
typedef struct {
    size_t row, global, first, count;
    /* [count], fp32; the moments NULL with config.weights_only, exp_avg_sq NULL for a row of Muon's */
    float *weight, *exp_avg, *exp_avg_sq;
} optim_zero_range_t;
typedef gyre_status_t (*optim_zero_range_fn)(void *user, const optim_zero_range_t *range);
typedef enum {
    /* read: every element of the model is visited on exactly one rank of the world (the lowest replica) */
    OPTIM_STATE_OWNED,
    OPTIM_STATE_LISTED, /* the same ranges without what is in them: pointers are NULL, and no file is read */
    OPTIM_STATE_HELD,   /* read: all that this rank holds */
    OPTIM_STATE_LOAD    /* write: all that this rank holds; optim_zero_loaded must follow */
} optim_state_t;
/* Visits ranges in the order of the table (with config.ep: all rows but those of experts, then these); one
 * per row at most. Ends with the first answer that is not GYRE_OK. Local. */
gyre_status_t optim_zero_state(optim_zero_t *zero, optim_state_t what, optim_zero_range_fn fn, void *user);
/* For OPTIM_STATE_LOAD of weights alone: the range's moments, if it has any, begin as zeros. */
void optim_zero_no_moments(const optim_zero_range_t *range);
/* After OPTIM_STATE_LOAD: makes what the model computes with from the fp32 weights. `scaler` may be NULL.
 * Collective over dp. */
gyre_status_t optim_zero_loaded(optim_zero_t *zero, uint64_t steps, const optim_scaler_t *scaler);
/* The loss scale's state; NULL but for MODEL_FLOAT16. */
const optim_scaler_t *optim_zero_scaler(const optim_zero_t *zero);

/* The fp32 weights of canonical row `row` of `whole` (the whole table) on rank 0 of world: canonical [leaves
 * * leaf_count] there, NULL elsewhere. Collective over world, one row after the other. With offload each rank
 *   reads
 * what it owns of the row's weights, and nothing else. IO on all ranks: one of them cannot. */
gyre_status_t optim_zero_gather_row(optim_zero_t *zero, const model_params_t *whole, size_t row,
                                    float *canonical);

#endif
