/* tools/gyre-train/run.h: a run and its parts: setup.c makes it, run.c trains, results.c leaves what is asked for. */
#ifndef GYRE_TRAIN_RUN_H
#define GYRE_TRAIN_RUN_H

#include "model/data/infill.h"
#include "optim/checkpoint/saver.h"
#include "pipeline/train/train.h"
#include "tools/gyre-train/train.h"

/* What a checkpoint may hold training up for, should the one before still be under way. */
#define SAVE_PATIENCE_S 5.0
/* What the end of a run waits for the last one. */
#define SAVE_END_S 300.0

typedef struct {
    train_options_t *options;
    model_config_t shape; /* complete */
    gyre_comm_t *comm;
    int rank;
    base_device_t device; /* that stages compute on */
    model_data_t *data;
    model_objective_t objective;
    model_infill_ids_t infill_ids; /* of MODEL_OBJECTIVE_INFILL */
    model_infill_t *infill;        /* the same; else NULL */
    pipe_train_t *train;
    model_tokenizer_t *tokenizer; /* rank 0; NULL: unknown */
    float
        *weights; /* rank 0, at the end, for the sample: all canonical rows in the order of the whole table */
    gyre_status_t written; /* what became of --save */
    size_t val_count;      /* validation sequences in use */
    uint64_t next;         /* 0-based number of the step whose batch is fetched */
    optim_ramp_t ramp;     /* how its size follows from that */
    optim_ramp_at_t ramp_at;
    uint64_t before_next; /* sequences of the steps before it */
    double progress;      /* part of the time limit that is gone, as rank 0 told it last */
    base_time_t start;    /* of this process's part of training */
    double before;        /* seconds of training of the processes before it */
    int resuming;         /* a checkpoint is gone on with, if there is one: rank 0 decides */
    int resumed;          /* from a checkpoint */
    optim_saver_t *saver; /* with --checkpoint, where this rank has something to write */
    uint64_t saved_step;  /* of the last checkpoint that was begun; 0: none */
    gyre_status_t saved;  /* the last checkpoint */
    int interrupted;      /* a signal ended the run */
    uint64_t unsound;     /* steps in a row whose loss was not finite */
    int agreed;           /* an error is that of every rank: nobody waits for one that fails alone */
    train_record_t record;
    train_progress_t bar;
    train_timeline_t *timeline; /* NULL: nobody asks for one */
} train_run_t;

/* Joins the job, opens the data, builds the model in its layout, goes on from a checkpoint. Collective. */
gyre_status_t train_join(train_run_t *run);
gyre_status_t train_set_up(train_run_t *run);

/* ramp.c: every size on the way is one that this layout can train. INVALID. */
gyre_status_t train_ramp_check(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks);
/* Of dp data-parallel ranks: those without a sequence. */
size_t train_ramp_idle(const optim_batch_t *batch, size_t dp);
/* Says how many those are, and how long, while a batch that will be `batch` is small. */
void train_ramp_tell(const optim_ramp_t *ramp, const optim_batch_t *batch, size_t dp);

/* config_compare.c: all ranks have the same options, model and data, but for what may differ. INVALID, on all of them: rank 0 has named
 * the first option that differs and the lowest rank where it does. Collective; changes nothing but run->agreed. */
gyre_status_t train_compare_ranks(train_run_t *run);

/* objective.c: what --objective, the recipe and the model say is learned, and what that needs; behind model_data_prepare. INVALID,
 * NO_MEMORY. */
gyre_status_t train_objective_choose(train_run_t *run);
/* Sequences of a step and of the validation set, as pipe_fetch_fn; user is the run. */
gyre_status_t train_fetch(void *user, size_t index, model_example_t *out);
gyre_status_t train_fetch_validation(void *user, size_t index, model_example_t *out);

/* Bytes of each kind on each rank, as the arenas say now, to the record. Collective. */
gyre_status_t train_gather_memory(train_run_t *run);

/* The run as checkpoints see it. */
train_parts_t train_parts_of(train_run_t *run);

/* The weights, row by row, to rank 0's --save, and all of them there if a sample needs them. Collective. */
gyre_status_t train_gather(train_run_t *run);
void train_print_start(const train_run_t *run);
/* 1: --save names a folder, for the model in Hugging Face's form. */
int train_saves_folder(const train_options_t *options);
/* Rank 0, behind the job: sample, weights, report, what the terminal says. What went wrong with one output is no reason to
 * lose the others. Returns the first failure. */
gyre_status_t train_leave_results(train_run_t *run);

#endif
