/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/engine.h: the inside of pipe_train_t: make.c makes and ends it, callbacks.c computes for the
 * pipeline's executor, step.c steps and evaluates, weights.c has its weights. For these four files only. */
#ifndef PIPELINE_TRAIN_ENGINE_H
#define PIPELINE_TRAIN_ENGINE_H

#include "base/thread/team.h"
#include "pipeline/train/train.h"
#include "pipeline/train/worker.h"

typedef struct {
    pipe_worker_t *worker;
    size_t in_flight;   /* micro-batches between forward and backward */
    size_t first, rows; /* its rows of the local table */
    int embed, head;
} chunk_t;

/* Losses that a GPU may owe: more than most steps have, so that it is waited for at their end only. */
enum { LOSSES = 1024 };

/* Floating-point operations of an evaluation on a rank between two looks at what ranks ask for: a second or
 * two of a core. */
#define EVALUATED_FLOPS 1e11

/* What follows the losses in a message: rank 0's notes, numbers of ranks (that could not read, that ask for
 * something), and what became of the choices of experts. Balance losses and z-losses are added up as
 * multiples of 2^-40 in two halves of 26 bits and up, whose sums are exact: in any order, cut anywhere. */
enum {
    WORD_UNREAD = PIPE_NOTES,
    WORD_ASKED,
    WORD_BALANCE = WORD_ASKED + PIPE_ASKS,
    WORD_BALANCE_LOW,
    WORD_ROUTER_Z,
    WORD_ROUTER_Z_LOW,
    WORD_Z,
    WORD_Z_LOW,
    WORD_DROPPED,
    WORD_LEARNED, /* positions that are learned, of all sequences */
    WORDS
};
#define AUXILIARY_UNIT  0x1p-40
#define AUXILIARY_SPLIT 0x1p26

/* What the callbacks of the present step or evaluation work on. */
typedef struct {
    pipe_fetch_fn fetch;
    void *user;
    /* [longest, parts here], those of sequences that this column does not have first; the head's rank of
     * tensor rank 0 fills it in */
    double *loss;
    double *learned;   /* the same rank adds the positions that are learned */
    optim_part_t part; /* local sequences; idle ones come before them, so that all columns run one schedule */
    size_t micro;      /* sequences of a micro-batch */
    uint64_t number;   /* of the training step */
    float scale;
    int evaluate; /* 1: losses of validation, without dropout */
} work_t;

struct pipe_train {
    pipe_train_config_t config;
    gyre_comm_t *world, *tp, *cp, *dp, *pp, *tied; /* dp: the ranks of pipe_layout_replicas */
    gyre_comm_t *ep, *edp;      /* ranks of dp that share experts, that hold the same; NULL: ep is 1 */
    gyre_comm_t *keys;          /* ranks of tp that hold the same head of keys and values; NULL: none do */
    gyre_comm_t *plane;         /* dp and tp together, for Muon; NULL: not needed, or one of the two */
    gyre_comm_t *experts_plane; /* the same in the order of experts; NULL: not needed, or dp */
    pipe_layout_t layout;
    pipe_load_t load;
    pipe_place_t place;
    optim_batch_t batch;
    model_params_t *whole, *local;
    optim_zero_t *zero; /* what is trained: weights, or with adapters their factors */
    /* of a run that trains adapters; else NULL: their table, this rank's slice of it, the weights, and what
     * stages work on */
    model_adapters_t *adapters;
    model_params_t *factors;
    optim_zero_t *base;
    optim_lora_t *lora;
    pipe_gpu_t *gpu;     /* NULL: stages are on the CPU */
    base_team_t *team;   /* of config.threads, for stages and stores on the CPU; NULL: on a GPU */
    pipe_links_t *links; /* between the GPUs of pp; NULL like it */
    chunk_t *chunk;      /* [layout.chunks] */
    pipe_executor_t *executor, *evaluator;
    optim_part_t part;               /* sequences of this data-parallel rank */
    size_t longest;                  /* of the rank with most */
    int spread;                      /* 1: gradients are reduced leaf by leaf (optim_batch_part) */
    size_t boundary;                 /* elements of one sequence between stages */
    gyre_type_t type;                /* of them */
    double *loss;                    /* [batch * parts + WORDS] */
    double *own_loss;                /* [batch, at least PIPE_EVALUATED, parts here]: of local sequences */
    model_sequence_t *sequence;      /* [micro_batch, parts here], those of a forward pass */
    model_token_t *tokens, *targets; /* [micro_batch, seq] */
    int32_t *positions;              /* the same, of a model with prefixes and rotary positions; else NULL */
    int32_t *documents;              /* the same, with config.documents; else NULL */
    work_t work;
    double *lost;         /* losses of an evaluation that failed */
    gyre_status_t unread; /* the first sequence of this step that could not be read */
    int missed;           /* some rank had one, and all know */
};

/* Parts of a sequence that this rank has, and all, each of which is a sequence to stages and store; and where
 * the words after the losses begin. */
static inline size_t train_parts_here(const pipe_train_t *train)
{
    return train->batch.parts / train->layout.cp;
}
static inline double *train_words(const pipe_train_t *train)
{
    return train->loss + train->batch.batch * train->batch.parts;
}

/* callbacks.c: as pipe_executor_t asks for them; user is the pipe_train_t. */
gyre_status_t train_on_forward(void *user, int chunk_index, int mb, const void *in, void *out);
gyre_status_t train_on_backward(void *user, int chunk_index, int mb, const void *d_out, void *d_in,
                                unsigned flags);
gyre_status_t train_on_backward_weight(void *user, int chunk_index, int mb, unsigned flags);
/* What a stage with experts says of a layer and a sequence, and the z-loss of a sequence's logits; user is
 * the pipe_train_t. */
void train_on_routing(void *user, const model_routed_t *routed);
void train_on_z_loss(void *user, double z);
/* ranks: how many ranks could not read a sequence. GYRE_OK if none; else this rank's error, or that of
 * others. */
gyre_status_t train_unread(pipe_train_t *train, double ranks);

/* weights.c: rates and decay by name, to the table of what is trained; the adapters' tables; the stores of
 * weights and of what is trained; what stages work on, and optim_zero_idle of it. */
gyre_status_t train_set_groups(const pipe_train_t *train, model_params_t *table);
gyre_status_t train_make_adapters(pipe_train_t *train, const model_slice_t *slice);
gyre_status_t train_make_stores(pipe_train_t *train, const optim_zero_groups_t *groups,
                                const optim_zero_config_t *how);
/* Bytes of these stores, by kind. */
gyre_status_t train_predict_stores(const pipe_train_t *train, const optim_zero_config_t *how,
                                   size_t bytes[OPTIM_MEMORY_KINDS]);
const model_store_t_f32 *train_store(pipe_train_t *train);
gyre_status_t train_idle(pipe_train_t *train, const chunk_t *chunk, optim_pass_t pass);

/* make.c. micro: sequences of a micro-batch. */
gyre_status_t train_make_executor(pipe_train_t *train, const pipe_shape_t *shape, size_t micro,
                                  pipe_executor_t **out);

#endif
