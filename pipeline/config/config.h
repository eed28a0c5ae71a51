/* pipeline/config/config.h: the settings of a training run, one struct for flags, config files, recipes and checkpoints.
 *
 * A new setting is a field of train_config_t, a row of the table (table.c), and what it does. */
#ifndef PIPELINE_CONFIG_CONFIG_H
#define PIPELINE_CONFIG_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <gyre/status.h>

#include "optim/ramp.h"
#include "pipeline/plan/recipe.h"

/* Room for options in the table. */
enum { TRAIN_KEYS = 128 };
/* --progress */
enum { TRAIN_PROGRESS_AUTO, TRAIN_PROGRESS_BAR, TRAIN_PROGRESS_LINES, TRAIN_PROGRESS_NONE };

/* --objective */
enum { TRAIN_OBJECTIVE_AUTO };

/* --scale */
enum { TRAIN_SCALE_FULL, TRAIN_SCALE_TINY };

/* Values as given by flags, then the config file, then the recipe, then defaults. Strings: NULL where there is none. steps is
 * UINT64_MAX where only the clock ends the run. */
typedef struct {
    char *recipe, *model, *data, *valid_data, *tokenizer;
    char *log, *tensorboard, *trace, *trace_steps, *report, *save, *load, *config, *prompt, *checkpoint,
        *may_change;
    uint64_t layers, hidden, heads, seq, vocab;
    uint64_t leaves;
    double dropout;
    uint64_t tp, pp, dp, zero, chunks, micro_batch, groups, grad_sequences;
    int schedule, sequence_parallel, recompute, offload_activations;
    int cuda_graphs; /* model_graphs_t */
    int device;      /* 0 the CPU, 1 CUDA */
    int variant;     /* --invariant off */
    int keep_weights;
    char *offload;
    int scale, balance;       /* TRAIN_SCALE_; pipe_layout_t.balance */
    int precision, grad_type; /* model_precision_t; 1: 16 bits */
    double loss_scale, loss_scale_min;
    uint64_t loss_scale_interval, loss_scale_hysteresis;
    int lr_schedule;    /* optim_curve_t */
    char *batch_rampup; /* train_ramp_read; NULL: the batch does not grow */
    uint64_t batch, steps, warmup, lr_decay, seed, bucket_bytes;
    uint64_t eval_every, eval_sequences, sample_tokens, top_k, checkpoint_every, checkpoint_keep;
    double lr, min_lr, weight_decay, clip, beta1, beta2, epsilon, temperature, time_limit;
    double peak_flops;
    int progress_thread, resume;
    int data_format, sampling;          /* model_tokens_format_t, model_sampling_t */
    int objective;                      /* TRAIN_OBJECTIVE_AUTO, or 1 + model_objective_t */
    char *infill_ids;                   /* NULL: the last of the vocabulary */
    int progress;                       /* TRAIN_PROGRESS_ */
    unsigned char given[TRAIN_KEYS]; /* one per row of the table in table.c */
} train_config_t;

/* Defaults, and nothing given; train_config_free frees it, whatever this returns. 1; 0: no memory. */
int train_config_defaults(train_config_t *options);
void train_config_free(train_config_t *options);

/* Bytes of the reason why settings are refused. */
enum { TRAIN_WHY = 768 };
/* Sets what a JSON object says: keys are names of options with - or _, values strings, numbers, true and false. An option
 * that is given already stays. 1; 0: `why` names the key and what it wants. */
int train_config_read(train_config_t *options, const json_t *object, char why[TRAIN_WHY]);
/* After all values are given: fills in the recipe's, checks what goes together, replaces "none" by NULL. 1; 0: `why` has the
 * reason, or is empty where it is logged (an error of the recipe). */
int train_config_complete(train_config_t *options, char why[TRAIN_WHY]);
/* recipe.c: fills in what neither flags nor config file say from --recipe, at its --scale. NOT_FOUND, IO, FORMAT, INVALID: it is
 * no recipe that can be trained, or a flag contradicts it; told. Does nothing without --recipe. */
gyre_status_t train_recipe_apply(train_config_t *options);
/* Warns of what the recipe says and another flag switches off: a batch that grows. */
void train_recipe_tell(const train_config_t *options);
/* The recipe at its --scale; options->recipe is not NULL. */
gyre_status_t train_recipe_read(const train_config_t *options, pipe_recipe_t *out);
/* ramp.c: --batch-rampup, or a batch that does not grow. INVALID: it is none, or cannot grow so to --batch; told. */
gyre_status_t train_ramp_read(const train_config_t *options, optim_ramp_t *out);
/* The option whose name is nearest to `name` in edits; NULL if none is near. */
const char *train_config_nearest(const char *name);
/* 1 if the option was given by flag or config file. */
int train_config_given(const train_config_t *options, const char *name);
/* Row i of the table: its name and present value as text; 0 behind the last row. */
int train_config_row(const train_config_t *options, size_t i, const char **name, char *value, size_t bytes);
/* The first row from i on that matters to the bits of the run, and its exact value as text ("none": it was not given and has no
 * default); -1: there is none. */
int train_config_exact(const train_config_t *options, size_t i, const char **name, char *value,
                        size_t bytes);
/* 1 if row i's `value` (train_config_exact) is what a checkpoint says it was, `old`, however many digits that has. shown: it as
 * messages have it. */
int train_config_same(size_t i, const char *value, const char *old, char *shown, size_t bytes);
/* What the run of a checkpoint that does not name row i was begun with: the checkpoint is older than the option, which by default
 * changes nothing. prefix_masks: its model has them. 0: every checkpoint names this row, one of the model's shape. */
int train_config_unsaid(size_t i, int prefix_masks, char *value, size_t bytes);
/* The object that --config takes: given to a new gyre-train on as many ranks it is the same run. What is implied by others
 * of its keys is not in it. A path that is not UTF-8 has no place in JSON and is left out. NO_MEMORY; errors of `out` are the
 * caller's to see. */
gyre_status_t train_config_write(const train_config_t *options, FILE *out);
/* 1 if --may-change lists the option and it is none of the model's shape. The ids of infill go with the objective. */
int train_config_may_change(const train_config_t *options, const char *name);
int train_config_is_shape(const char *name);

enum { TRAIN_WATCHED = 64 }; /* steps at most that --trace-steps names */
/* "FROM:TO", at most TRAIN_WATCHED steps: 1, or 0. `text` may be NULL. */
int train_steps_range(const char *text, uint64_t *from, uint64_t *to);

#endif
