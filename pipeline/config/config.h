/* pipeline/config/config.h: the settings of a training run, one struct for flags, config files, recipes and
 * checkpoints.
 *
 * A new setting is a field of train_config_t, a row of the table (table.c), and what it does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PIPELINE_CONFIG_CONFIG_H
#define PIPELINE_CONFIG_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <gyre/status.h>

#include "optim/ramp.h"
#include "pipeline/plan/recipe.h"

/* Room for rows of the table. */
enum { TRAIN_KEYS = 128 };
/* "progress" */
enum { TRAIN_PROGRESS_AUTO, TRAIN_PROGRESS_BAR, TRAIN_PROGRESS_LINES, TRAIN_PROGRESS_NONE };
/* "save-type" */
enum { TRAIN_SAVE_AUTO, TRAIN_SAVE_FP32, TRAIN_SAVE_BF16 };
/* "objective"; the others are 1 + model_objective_t */
enum { TRAIN_OBJECTIVE_AUTO };
/* "scale" */
enum { TRAIN_SCALE_FULL, TRAIN_SCALE_TINY };

/* A value comes from a flag, else from the config file, else from the recipe, else from the table. Names are
 * those of the keys, and the table has their meaning and range. Strings are NULL where nothing is given. */
typedef struct {
    char *recipe, *config;
    int scale; /* TRAIN_SCALE_ */

    /* model; set-up completes the shape from data, folder or recipe */
    char *model, *load;
    uint64_t layers, hidden, heads, seq, vocab, leaves;
    double dropout;
    double z_loss, router_z; /* model_config_t */

    /* data */
    char *data, *valid_data, *tokenizer;
    double valid_fraction;     /* without valid_data: of each source */
    int data_format, sampling; /* model_tokens_format_t, model_sampling_t */
    int objective;             /* TRAIN_OBJECTIVE_AUTO, or 1 + model_objective_t */
    char *infill_ids;          /* NULL: the last of the vocabulary */

    /* run */
    uint64_t batch; /* sequences */
    char *batch_rampup;
    uint64_t steps;    /* UINT64_MAX: the clock alone ends the run */
    double time_limit; /* seconds; 0: none */
    uint64_t seed;
    int device; /* 0 the CPU, 1 CUDA */

    /* optimizer */
    int optimizer;   /* 0 AdamW, 1 Muon */
    double momentum; /* Muon's */
    double lr, min_lr, weight_decay, clip, beta1, beta2, epsilon;
    double spike_loss, spike_norm; /* times the median; 0: off */
    uint64_t spike_window;         /* steps */
    uint64_t warmup, lr_decay;     /* steps */
    uint64_t lr_cooldown;          /* steps */
    int lr_schedule;               /* optim_curve_t */
    char *freeze;                  /* names of rows; NULL: all are trained */
    char *lr_scale, *decay_on;     /* PATTERN=X,... of names of rows; NULL: none */
    uint64_t lora;                 /* rank of adapters; 0: none */
    double lora_alpha;             /* 0: twice the rank */
    char *lora_on;                 /* names of rows; NULL: all that can have adapters */

    /* parallelism */
    uint64_t threads; /* of a rank; 0: its share of the processors */
    uint64_t tp, cp, ep, pp, dp, zero, chunks, micro_batch, groups, grad_sequences, sequence_parts, lanes,
        bucket_bytes;
    int schedule;     /* pipe_kind_t */
    int cp_attention; /* pipe_layout_t.ring */
    int balance;      /* pipe_layout_t.balance */
    int recompute;    /* model_recompute_t */
    int sequence_parallel, offload_activations, keep_weights, progress_thread;
    int cuda_graphs; /* model_graphs_t */
    int variant;     /* "invariant" is off */
    char *offload;   /* folder */

    /* precision */
    int precision, grad_type; /* model_precision_t; 1: 16 bits */
    int matmul_type;          /* 1: bf16 */
    double loss_scale, loss_scale_min;
    uint64_t loss_scale_interval, loss_scale_hysteresis;

    /* evaluation and sample */
    uint64_t eval_every, eval_sequences, sample_tokens, top_k;
    double temperature;
    char *prompt;

    /* checkpoints */
    char *checkpoint, *may_change;
    uint64_t checkpoint_every, checkpoint_keep;
    int resume;

    /* output */
    char *save, *log, *tensorboard, *trace, *trace_steps, *report;
    char *save_adapters; /* a folder */
    char *load_adapters; /* a folder; NULL: none */
    int save_type;       /* TRAIN_SAVE_ */
    double peak_flops;   /* 0: measured */
    int progress;        /* TRAIN_PROGRESS_ */

    /* a byte per row of the table: 1 if it was given, by flag or config file */
    unsigned char given[TRAIN_KEYS];
} train_config_t;

/* Fills in the defaults; nothing is given. The caller frees with train_config_free, whatever this returns.
 * 1, or 0 if there is no memory. */
int train_config_defaults(train_config_t *options);
void train_config_free(train_config_t *options);

/* Bytes of the reason why settings are refused. */
enum { TRAIN_WHY = 768 };
/* Takes the values of a JSON object. Its keys are names of rows, with - or _; its values are strings,
 * numbers, true and false. A value that is given already stays. INVALID: `why` names the key and what it
 * wants; NO_MEMORY: `why` names the key. Neither is logged. */
gyre_status_t train_config_read(train_config_t *options, const json_t *object, char why[TRAIN_WHY]);
/* Call it after all values are given. It takes the recipe's values, checks what goes together, and replaces
 * "none" by NULL. INVALID: `why` has the reason. With an error of the recipe (train_recipe_apply), which is
 * logged, `why` is empty. */
gyre_status_t train_config_complete(train_config_t *options, char why[TRAIN_WHY]);

/* device.c: INVALID: the device is a GPU, and a setting is for the CPU alone, which the message names. */
gyre_status_t train_config_check_device(const train_config_t *options);

/* The batch that the settings describe. */
optim_batch_t train_config_batch(const train_config_t *options);

/* recipe.c: takes from "recipe", at its "scale", what is not given; does nothing without a recipe. Logs its
 * errors. NOT_FOUND, IO, FORMAT: the file; INVALID: it cannot be trained, or a given value contradicts it. */
gyre_status_t train_recipe_apply(train_config_t *options);
/* Warns if the recipe has a batch that grows and another setting switches that off. */
void train_recipe_tell(const train_config_t *options);
/* The recipe at its scale; options->recipe is not NULL. */
gyre_status_t train_recipe_read(const train_config_t *options, pipe_recipe_t *out);
/* ramp.c: "batch-rampup", or a batch that does not grow. INVALID: it is malformed or cannot reach "batch". */
gyre_status_t train_ramp_read(const train_config_t *options, optim_ramp_t *out);

/* The name of a row that is nearest to `name` in edits; NULL if none is near. */
const char *train_config_nearest(const char *name);
/* 1 if the value was given, by flag or config file. */
int train_config_given(const train_config_t *options, const char *name);

/* text.c: row i of the table, its name and its value as text; 0 after the last row. */
int train_config_row(const train_config_t *options, size_t i, const char **name, char *value, size_t bytes);
/* Bytes of a value that checkpoints hold. */
enum { TRAIN_VALUE = 256 };
/* The first row from i on that matters to the bits of the run; -1 if there is none. value: its exact value as
 * text; "none": it is not given and has no default. A text with no room in `bytes` ends in a hash of the
 * whole. */
int train_config_exact(const train_config_t *options, size_t i, const char **name, char *value, size_t bytes);
/* Compares row i's `value` (train_config_exact) with `old`, which a checkpoint has with any number of
 * digits. 1 if they are the same. shown: `old` as messages print it. */
int train_config_same(size_t i, const char *value, const char *old, char *shown, size_t bytes);
/* The value of row i in a checkpoint that does not name it, since it is older than the row. prefix_masks: its
 * model has them. 1 and `value`; 0: every checkpoint names this row, which is part of the model's shape. */
int train_config_unsaid(size_t i, int prefix_masks, char *value, size_t bytes);
/* Writes the object that "config" takes: with it a new gyre-train on as many ranks is the same run. Values
 * that follow from others are left out, and so is a path that is not UTF-8. NO_MEMORY. The caller checks
 * `out` for errors. */
gyre_status_t train_config_write(const train_config_t *options, FILE *out);

/* 1 if "may-change" lists the row and it is not part of the model's shape. "infill-ids" goes with
 * "objective", "valid-fraction" with "data", and "loss-scale" and its kin with "precision". */
int train_config_may_change(const train_config_t *options, const char *name);
int train_config_is_shape(const char *name);

enum { TRAIN_WATCHED = 64 }; /* steps at most that "trace-steps" names */
/* "FROM:TO", at most TRAIN_WATCHED steps. 1, or 0 if it is malformed; `text` may be NULL. */
int train_steps_range(const char *text, uint64_t *from, uint64_t *to);

#endif
