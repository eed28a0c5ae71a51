/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/record.h: what rank 0 knows of each step of a run: the history, the log, the last
 * figures. */
#ifndef PIPELINE_REPORT_RECORD_H
#define PIPELINE_REPORT_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <gyre/status.h>

#include "model/data/data.h"
#include "pipeline/config/config.h"
#include "pipeline/plan/layout.h"

typedef enum { TRAIN_SPIKE_NONE, TRAIN_SPIKE_LOSS, TRAIN_SPIKE_NORM } train_spike_t;

typedef struct {
    uint64_t step; /* 1-based: after this many updates */
    double loss, grad_norm, lr;
    uint64_t batch;          /* sequences; 0: not known, as many as in every step */
    double balance, dropped; /* of models with experts, else NaN: pipe_train_step_t */
    double z_loss, router_z; /* NaN: there are none */
    double val;              /* NaN: not evaluated after this step */
    double seconds;
    double compute_s, exposed_s, hidden_s; /* NaN on a GPU, of which the training thread does not know them */
    double loss_scale;   /* the gradients of this step were scaled by it; 1: there is no scaling */
    int skipped;         /* the update was left out since gradients overflowed; grad_norm is then no number */
    int unlearned;       /* no token of its batch is learned: the loss is 0 */
    train_spike_t spike; /* the update was left out since this was far above the median */
    double
        /* part of the step in which rank 0 waits for its neighbours in the pipeline; NaN: there are none */
        bubble;
    double mfu; /* set by train_record_step */
} train_step_t;

/* Memory by kind, and the bytes of each rank. */
enum { TRAIN_MEMORY_KINDS = 12 };
typedef struct {
    const char *kind[TRAIN_MEMORY_KINDS]; /* static: "weights", "gradients" ... */
    size_t kinds, ranks;
    uint64_t *bytes; /* [ranks, kinds], owned */
} train_memory_t;

/* Bytes on the rank that has most; 0: not known. *rank: which that is, unless NULL. */
uint64_t train_memory_most(const train_memory_t *memory, size_t *rank);

/* Of a validation set that has a name: the loss before training, and as it was measured last. */
typedef struct {
    char name[MODEL_DATA_NAME];
    double first_val, final_val;
} train_set_t;

typedef struct train_board train_board_t;

typedef struct {
    train_step_t *step; /* [steps], owned */
    size_t steps, room;
    FILE *log;            /* NULL: none, or it failed */
    const char *log_path; /* of the options, borrowed */
    train_board_t *board; /* TensorBoard's file; NULL: none, or it failed */
    uint64_t spikes;      /* steps of the whole run that were skipped as such */
    uint64_t unlearned;   /* steps of the whole run of which no token was learned */
    uint64_t done; /* updates of the whole run; steps is less where a run was resumed without its log */
    gyre_status_t log_status, board_status; /* the first error of each */
    uint64_t id; /* of the run, also in its checkpoints: drawn when it begins; 0: none, as before 0.2.0 */
    double unigram, first_val, final_val; /* over several sets their mean */
    size_t sets;                          /* 0: validation is on a set without a name, or there is none */
    train_set_t set[MODEL_DATA_SETS];
    double seconds;           /* of training, evaluations included */
    uint64_t hash;            /* of the final weights */
    uint64_t tokens_per_step; /* of a whole batch */
    uint64_t batch;           /* sequences of a whole batch; 0: not known */
    int grows;                /* steps may have less */
    int ranks;
    char device[96]; /* rank 0's GPU; "": the CPU */
    size_t parameters;
    const model_config_t *model; /* borrowed; NULL: not known */
    double
        /* of a whole batch, of the model: forward and backward, without what is computed twice; 0: not
         * known */
        flops_per_step;
    double peak_flops;     /* per second, of all ranks together; 0: not known */
    pipe_layout_t layout;  /* complete */
    train_memory_t memory; /* kinds 0: not known */
    char *sample;          /* UTF-8, owned */
} train_record_t;

/* Opens what options name, --log and --tensorboard, and leaves what is in it. FORMAT: the file for the log is
 * there, and holds something else; IO. */
gyre_status_t train_record_open(train_record_t *record, const train_config_t *options);
/* The log begins anew, with the line of options; a new file of events begins with step 1. */
gyre_status_t train_record_start(train_record_t *record, const train_config_t *options,
                                 const model_data_t *data);
/* Reads the lines of steps up to `last` into the history. *keep (0 before): where the last of these lines
 * ends, or the first line. *begin: where the last line of a step begins. `path` is for messages. FORMAT: not
 * a log of gyre-train; INVALID: that of another run; IO, NO_MEMORY. A line that was cut when the run was
 * killed lies after *keep. */
gyre_status_t train_record_read(train_record_t *record, FILE *in, const char *path, uint64_t last,
                                off_t *keep, off_t *begin);
/* Whether the run can go on in its log, which is left as it is. FORMAT, INVALID: as for train_record_read. */
gyre_status_t train_record_check(const train_record_t *record, const char *log_path);
/* The log goes on after the line of `step`, and so does a new file of events. Lines up to `step` are read
 * into the history. Later lines are cut off. `val`, unless NaN: the validation loss of `step`, which came
 * late: it goes to the events, and into the line of `step`, if that has none. A line {"resumed": step,
 * "ranks": n} is added. FORMAT, INVALID: the file is not a log of gyre-train, or that of another run; it is
 * left as it is. */
gyre_status_t train_record_resume(train_record_t *record, const char *log_path, const train_config_t *options,
                                  const model_data_t *data, uint64_t step, double val);
/* Sets step->mfu. NO_MEMORY. An error of an output is reported, kept for train_record_finish, and stops
 * nothing. */
gyre_status_t train_record_step(train_record_t *record, train_step_t *step);
/* Writes the last line and closes the log and TensorBoard's file. The first error of them. */
gyre_status_t train_record_finish(train_record_t *record);
void train_record_free(train_record_t *record);
/* A step's part of a whole batch; of all steps: how many whole batches they are. */
double train_step_part(const train_record_t *record, const train_step_t *step);
double train_record_parts(const train_record_t *record);
/* Sums over all steps. */
train_step_t train_record_total(const train_record_t *record);

/* bytes as UTF-8: valid sequences, tabs and newlines pass; other control characters, and what is not UTF-8
 * (base_utf8_bad), become U+FFFD. Caller frees; NULL: no memory. */
char *train_readable(const unsigned char *bytes, size_t count);

#endif
