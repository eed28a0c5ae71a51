/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/run.h: a training run: setup.c makes it, run.c trains, outputs.c writes what is asked for.
 *
 * In this order, all of it collective: train_join, train_set_up, train_start, train_advance as often as
 * wanted, train_conclude, train_leave; then train_write_outputs on rank 0, and train_free. */
#ifndef PIPELINE_TRAIN_RUN_H
#define PIPELINE_TRAIN_RUN_H

#include <signal.h>

#include "model/data/infill.h"
#include "model/formats/hf.h"
#include "model/tokenizer/tokenizer.h"
#include "optim/checkpoint/saver.h"
#include "pipeline/load/source.h"
#include "pipeline/train/train.h"
#include "pipeline/report/record.h"
#include "pipeline/report/timeline.h"
#include "pipeline/train/checkpoint/checkpoint.h"

/* What a checkpoint may hold training up for, should the one before still be under way. */
#define SAVE_PATIENCE_S 5.0
/* What rank 0 waits for shards of dead ranks: a shared file system may show late what they have finished. */
#define SAVE_LOST_S 3.0
/* What the end of a run waits for the last one. */
#define SAVE_END_S 300.0

typedef struct {
    train_config_t *options;
    model_config_t shape; /* complete */
    gyre_comm_t *comm;
    int borrowed; /* 1: comm was split from the caller's; 0: it is the job's */
    int rank;
    base_device_t device; /* that stages compute on */
    model_data_t *data;
    model_objective_t objective;
    model_infill_ids_t infill_ids; /* of MODEL_OBJECTIVE_INFILL */
    model_infill_t *infill;        /* the same; else NULL */
    pipe_train_t *train;
    pipe_source_config_t chosen;  /* --load, and which checkpoint of it */
    pipe_source_t *source;        /* the checkpoint of --load; NULL: it names none */
    model_hf_origin_t *origin;    /* rank 0: what --save keeps of --load; NULL: nothing */
    model_tokenizer_t *tokenizer; /* rank 0; NULL: unknown */
    pipe_tokenizer_t ids;         /* rank 0: of the data, as checkpoints record it */
    /* rank 0, at the end, for the sample: all canonical rows in the order of the whole table */
    float *weights;
    gyre_status_t written;             /* what became of --save */
    gyre_status_t written_adapters;    /* and of --save-adapters */
    int sample_left_out;               /* nobody asked for a sample, and the model is not small */
    gyre_status_t sampled;             /* rank 0: NO_MEMORY: not for the sample's weights */
    size_t val_count[MODEL_DATA_SETS]; /* of each validation set the sequences in use */
    size_t val_set;                    /* whose sequences are fetched */
    uint64_t next;                     /* 0-based number of the step whose batch is fetched */
    optim_ramp_t ramp;                 /* how its size follows from the sequences before it */
    optim_ramp_at_t ramp_at;           /* of a resumed run: from what its steps before had */
    uint64_t before_next;              /* sequences of the steps before it */
    optim_spike_t spike;               /* of the steps before it; on all ranks the same */
    int unvalidated;                   /* a validation that was due after the last step is not made */
    optim_scaler_t scaler;             /* of the steps in fp16 before this process; scale 0: none */
    double progress;                   /* part of the time limit that is gone, as rank 0 sent it last */
    base_time_t start;                 /* of this process's part of training; 0: it has not begun */
    double before;                     /* seconds of training of the processes before it */
    int made_checkpoints;              /* rank 0: their folder was not there before */
    int resuming;                      /* a checkpoint is gone on with, if there is one: rank 0 decides */
    int resumed;                       /* from a checkpoint */
    const char *folder;                /* of checkpoints, instead of the settings'; NULL: theirs */
    optim_lock_t *lock;                /* rank 0: that of the settings' folder */
    optim_saver_t *saver;              /* with --checkpoint, where this rank has something to write */
    uint64_t saved_step;               /* of the last checkpoint that was begun; 0: none */
    uint64_t begun;                    /* the same of this process, and of all ranks alike */
    gyre_status_t saved;               /* the last checkpoint */
    /* Of signals, which a handler changes; NULL: nobody catches them. The last SIGINT or SIGTERM that came,
     * or 0; how many SIGUSR1 came. */
    const volatile sig_atomic_t *signal, *saves;
    sig_atomic_t saves_seen;    /* of *saves */
    int stopped;                /* the signal that ends the run, on all ranks; 0: none */
    int save_asked;             /* some rank had a SIGUSR1, and all know */
    int save_owed;              /* the same, but the checkpoint before was still under way */
    char id[OPTIM_SNAPSHOT_ID]; /* under which rank 0 writes checkpoints; "": none was begun */
    double longest_step;        /* seconds of the last one: what the clock must leave for the next */
    int warned_unlearned;       /* rank 0 has warned of a step of which no token is learned */
    uint64_t unsound;           /* steps in a row whose loss was not finite */
    int hung; /* a checkpoint was not written within SAVE_END_S: nobody waits for it again */
    /* rank 0, after an error: what becomes of the checkpoint under way is not logged yet */
    int unnamed;
    int stuck;     /* the file system keeps the thread of a saver: the table stays */
    int agreed;    /* an error is that of every rank: nobody waits for one that fails alone */
    uint64_t base; /* of adapters: a hash of the weights that they are for */
    train_record_t record;
    train_timeline_t *timeline; /* NULL: nobody asks for one */
} train_run_t;

/* comm NULL: joins the job (gyre_init); else the run gets a communicator of its own with the ranks of
 * `comm`. Collective. */
gyre_status_t train_join(train_run_t *run, gyre_comm_t *comm);
/* Opens the data, builds the model in its layout, resumes from a checkpoint if the settings say so.
 * Collective. */
gyre_status_t train_set_up(train_run_t *run);
/* The log's first lines, and the validation loss before training, or that which a resumed run owes
 * (run->unvalidated): it counts as training time. run->stopped: a signal came meanwhile, and
 * no step is to be made. Collective. */
gyre_status_t train_start(train_run_t *run);
/* One update, and what the settings want after it: validation, a line of the log, a checkpoint. *stop: it was
 * the last. If a signal made it the last (run->stopped) there is no validation, and the checkpoint is on disk
 * when this returns. Collective. */
gyre_status_t train_advance(train_run_t *run, train_step_t *step, int *stop);
/* A checkpoint of the state after the last step, to which the previous one may hold it up for `patience`
 * seconds; run->saved says what became of it. Collective. */
gyre_status_t train_save(train_run_t *run, double patience);
/* Waits until no rank writes a checkpoint any more, at most SAVE_END_S. The ranks hear of one another once a
 * second, so none runs into GYRE_TIMEOUT. Collective. */
gyre_status_t train_await(train_run_t *run);
/* For train_by_all: the newest good checkpoint, if there is one, becomes the run's state; what writes
 * checkpoints. */
gyre_status_t train_resume_run(void *run);
gyre_status_t train_open_saver(void *run);
/* Mean loss over the learned positions of the sequences in use, of each validation set [data->sets]; *mean:
 * the mean of these. Sets that a signal left out are NaN, and so is the mean then. Collective. */
gyre_status_t train_evaluate(train_run_t *run, double *each, double *mean);
/* Compares the ranks' weights, takes their hash, writes --save, waits for the last checkpoint, and at last
 * brings to rank 0 what a sample of text needs (not after a signal). Collective. */
gyre_status_t train_conclude(train_run_t *run);
/* Ends what other ranks wait for, unless all of them have the error. */
void train_abort(train_run_t *run);
/* Leaves the job; other ranks do not wait for one that failed alone. Returns `status`, or what leaving
 * returned. After an error all ranks that can wait until the checkpoint under way is written: a launcher may
 * end them all when the first one ends. */
gyre_status_t train_leave(train_run_t *run, gyre_status_t status);
/* Waits for the checkpoint under way, too. */
void train_free(train_run_t *run);

/* pipe_by_all of a run. Collective. */
gyre_status_t train_by_all(train_run_t *run, gyre_status_t (*step)(void *run));

/* input.c: what the settings ask of the engine; whether they fit the model, the data and the ranks, with
 * warnings of what has no effect, after the data was opened. INVALID. */
pipe_train_config_t train_engine_config(const train_run_t *run);
gyre_status_t train_check_input(train_run_t *run);

/* config_compare.c: all ranks have the same options, model and data, but for what may differ. INVALID, on all
 * of them: rank 0 has named the first option that differs and the lowest rank where it does. Collective;
 * changes nothing but run->agreed. */
gyre_status_t train_compare_ranks(train_run_t *run);

/* objective.c: what --objective, the recipe and the model say is learned, and what that needs; after
 * model_data_prepare. INVALID, NO_MEMORY. */
gyre_status_t train_objective_choose(train_run_t *run);
/* How many sequences of each validation set are in use. INVALID: no token of one of them is learned. */
gyre_status_t train_count_validation(train_run_t *run);
/* Logs how documents fit into sequences, if the data has documents. */
void train_documents_tell(const train_run_t *run);
/* Sequences of a step and of the validation set run->val_set, as pipe_fetch_fn; user is the run. */
gyre_status_t train_fetch(void *user, size_t index, model_example_t *out);
gyre_status_t train_fetch_validation(void *user, size_t index, model_example_t *out);

/* Bytes of each kind on each rank, as the arenas say now, to the record. Collective. */
gyre_status_t train_gather_memory(train_run_t *run);

/* The run as checkpoints see it. */
train_parts_t train_parts_of(train_run_t *run);

/* 1: `path` (NULL: none) is a folder: to --load, a model in Hugging Face's form. */
int train_is_folder(const char *path);
/* outputs_open.c: rank 0 opens the log, and looks whether the other outputs can be written. A run that is
 * refused after it leaves none of them. IO, INVALID. */
gyre_status_t train_open_outputs(train_run_t *run);
/* outputs.c: the weights, row by row, to rank 0's --save. Collective. */
gyre_status_t train_write_weights(train_run_t *run);
/* Leaves out a sample that nobody asked for and that could cost minutes, or rank 0's memory. */
void train_choose_sample(train_run_t *run);
/* All of them to rank 0's memory, if a sample of text is wanted and there is room. Collective. */
gyre_status_t train_gather_sample(train_run_t *run);
/* The weights to rank 0's `path`: a file, or a folder where it ends in a slash. *written: an error of rank 0
 * only; the ranks are well. Collective. */
gyre_status_t train_export(train_run_t *run, const char *path, gyre_status_t *written);
/* 1: --save names a folder, for the model in Hugging Face's form. */
int train_saves_folder(const train_config_t *options);
/* Rank 0, after train_conclude: writes each output, whatever became of the others. The first failure. */
enum {
    TRAIN_OUT_RECORD,
    TRAIN_OUT_WEIGHTS,
    TRAIN_OUT_ADAPTERS,
    TRAIN_OUT_CHECKPOINT,
    TRAIN_OUT_SAMPLE,
    TRAIN_OUT_REPORT,
    TRAIN_OUT_TRACE,
    TRAIN_OUTPUTS
};
gyre_status_t train_write_outputs(train_run_t *run, gyre_status_t status[TRAIN_OUTPUTS]);

#endif
