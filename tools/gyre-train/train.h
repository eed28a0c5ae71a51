/* tools/gyre-train/train.h: what the parts of gyre-train share.
 *
 *   options.c, options_table.c, options_text.c   flags and config file, one table of them, their values as text
 *   recipe.c      what --recipe says              setup.c     from options to a run that is ready
 *   run.c         steps, evaluation, checkpoints  results.c   sample, weights and report at the end
 *   progress.c    what the terminal shows         record.c    the JSON-lines log and the history of the run
 *   config_compare.c   whether all ranks were given the same run
 *   save.c        writing checkpoints, all ranks together
 *   resume.c      what a checkpoint says of its run, and resuming from the newest good one
 *   checkpoint_broadcast.c   the same where only one rank sees the folder
 *   job_identity.c     whose checkpoints are in the folder
 *   ramp.c        a batch that grows              peak.c      what the processors can do
 *   text.c        between text and token ids
 *   report/       the HTML page and its drawings, the timeline, TensorBoard and Chrome trace files
 */
#ifndef GYRE_TRAIN_H
#define GYRE_TRAIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <gyre/gyre.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "model/data/data.h"
#include "model/network/params.h"
#include "base/spans.h"
#include "model/tokenizer/tokenizer.h"
#include "optim/ramp.h"
#include "optim/checkpoint/ranges.h"
#include "optim/checkpoint/saver.h"
#include "optim/scaler.h"
#include "pipeline/plan/layout.h"
#include "pipeline/plan/recipe.h"

/* Room for options in the table. */
enum { TRAIN_OPTIONS = 128 };
/* --progress */
enum { TRAIN_PROGRESS_AUTO, TRAIN_PROGRESS_BAR, TRAIN_PROGRESS_LINES, TRAIN_PROGRESS_NONE };

/* --objective */
enum { TRAIN_OBJECTIVE_AUTO };

/* --scale */
enum { TRAIN_SCALE_FULL, TRAIN_SCALE_TINY };

enum { TRAIN_OK = 0, TRAIN_ERROR = 1, TRAIN_USAGE = 2 };

/* ---- options --------------------------------------------------------------------------------------------- */

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
    unsigned char given[TRAIN_OPTIONS]; /* one per row of the table in options_table.c */
} train_options_t;

/* Writes to `options`, which train_options_free frees. -1: go on; else the exit status (--help and --version have been
 * answered on stdout, an error has been told on stderr if `speak`). */
int train_options_parse(int argc, char **argv, train_options_t *options, int speak);
void train_options_free(train_options_t *options);
/* recipe.c: fills in what neither flags nor config file say from --recipe, at its --scale. NOT_FOUND, IO, FORMAT, INVALID: it is
 * no recipe that can be trained, or a flag contradicts it; told. Does nothing without --recipe. */
gyre_status_t train_recipe_apply(train_options_t *options);
/* Warns of what the recipe says and another flag switches off: a batch that grows. */
void train_recipe_tell(const train_options_t *options);
/* The recipe at its --scale; options->recipe is not NULL. */
gyre_status_t train_recipe_read(const train_options_t *options, pipe_recipe_t *out);
/* ramp.c: --batch-rampup, or a batch that does not grow. INVALID: it is none, or cannot grow so to --batch; told. */
gyre_status_t train_ramp_read(const train_options_t *options, optim_ramp_t *out);
/* The option whose name is nearest to `name` in edits; NULL if none is near. */
const char *train_options_nearest(const char *name);
/* 1 if the option was given by flag or config file. */
int train_options_given(const train_options_t *options, const char *name);
/* Row i of the table: its name and present value as text; 0 behind the last row. */
int train_options_row(const train_options_t *options, size_t i, const char **name, char *value, size_t bytes);
/* The first row from i on that matters to the bits of the run, and its exact value as text ("none": it was not given and has no
 * default); -1: there is none. */
int train_options_exact(const train_options_t *options, size_t i, const char **name, char *value,
                        size_t bytes);
/* 1 if row i's `value` (train_options_exact) is what a checkpoint says it was, `old`, however many digits that has. shown: it as
 * messages have it. */
int train_options_same(size_t i, const char *value, const char *old, char *shown, size_t bytes);
/* What the run of a checkpoint that does not name row i was begun with: the checkpoint is older than the option, which by default
 * changes nothing. prefix_masks: its model has them. 0: every checkpoint names this row, one of the model's shape. */
int train_options_unsaid(size_t i, int prefix_masks, char *value, size_t bytes);
/* The object that --config takes: given to a new gyre-train on as many ranks it is the same run. What is implied by others
 * of its keys is not in it. A path that is not UTF-8 has no place in JSON and is left out. NO_MEMORY; errors of `out` are the
 * caller's to see. */
gyre_status_t train_options_write(const train_options_t *options, FILE *out);
/* 1 if --may-change lists the option and it is none of the model's shape. The ids of infill go with the objective. */
int train_options_may_change(const train_options_t *options, const char *name);
int train_options_is_shape(const char *name);

/* ---- the record of a run (rank 0) ------------------------------------------------------------------------- */

typedef struct {
    uint64_t step; /* 1-based: after this many updates */
    double loss, grad_norm, lr;
    uint64_t batch;          /* sequences; 0: as many as in every step */
    double balance, dropped; /* of models with experts, else NaN: pipe_train_step_t */
    double val;              /* NaN: not evaluated behind this step */
    double seconds;
    double compute_s, exposed_s, hidden_s; /* NaN on a GPU, of which the training thread does not know them */
    double loss_scale; /* the gradients of this step were scaled by it; 1: there is no scaling */
    int skipped;       /* the update was left out since gradients overflowed; grad_norm is then no number */
    double
        bubble; /* part of the step in which rank 0 waits for its neighbours in the pipeline; NaN: there are none */
    double mfu; /* set by train_record_step */
} train_step_t;

/* Memory by kind, and who has how much of it. */
enum { TRAIN_MEMORY_KINDS = 12 };
typedef struct {
    const char *kind[TRAIN_MEMORY_KINDS]; /* static: "weights", "gradients" ... */
    size_t kinds, ranks;
    uint64_t *bytes; /* [ranks, kinds], owned */
} train_memory_t;

typedef struct train_board train_board_t;
typedef struct train_timeline train_timeline_t;

typedef struct {
    train_step_t *step; /* [steps], owned */
    size_t steps, room;
    FILE *log;            /* NULL: none, or it failed */
    train_board_t *board; /* TensorBoard's file; NULL: none, or it failed */
    uint64_t done; /* updates of the whole run; steps is less where a run was resumed without its log */
    gyre_status_t log_status, board_status; /* the first error of each */
    double unigram, first_val, final_val;
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
        flops_per_step; /* of a whole batch, of the model: forward and backward, without what is computed twice; 0: not known */
    double peak_flops;     /* per second, of all ranks together; 0: not known */
    pipe_layout_t layout;  /* complete */
    train_memory_t memory; /* kinds 0: not known */
    char *sample;          /* UTF-8, owned */
} train_record_t;

/* Opens what options name, --log and --tensorboard, and leaves what is in it. */
gyre_status_t train_record_open(train_record_t *record, const train_options_t *options);
/* The log begins anew, with the line of options; a new file of events begins with step 1. */
gyre_status_t train_record_start(train_record_t *record, const train_options_t *options,
                                 const model_data_t *data);
/* Reads the lines of steps up to `last` into the history; *keep (0 before): where the last of them ends, or the first line.
 * What was being written when the run was killed is no whole line and lies behind. `path` is for messages. FORMAT: no log
 * of gyre-train; IO, NO_MEMORY. */
gyre_status_t train_record_read(train_record_t *record, FILE *in, const char *path, uint64_t last,
                                off_t *keep);
/* The log goes on behind the line of `step`, and so does a new file of events: lines behind it are cut off, those up to it are read into the history, and
 * a line {"resumed": step, "ranks": n} is added. FORMAT: the file is no log of gyre-train; it is left as it is. */
gyre_status_t train_record_resume(train_record_t *record, const char *log_path,
                                  const train_options_t *options, const model_data_t *data, uint64_t step);
/* An error of an output is told, kept for train_record_finish, and stops nothing. Sets step->mfu. NO_MEMORY. */
gyre_status_t train_record_step(train_record_t *record, train_step_t *step);
/* Writes the last line and closes the log and TensorBoard's file. The first error of them. */
gyre_status_t train_record_finish(train_record_t *record);
void train_record_free(train_record_t *record);
/* A step's part of a whole batch; of all steps: how many whole batches they are. */
double train_step_part(const train_record_t *record, const train_step_t *step);
double train_record_parts(const train_record_t *record);
/* Sums over all steps. */
train_step_t train_record_total(const train_record_t *record);

/* ---- TensorBoard (rank 0) --------------------------------------------------------------------------------- */

/* Makes the folder if it is not there; no file yet. IO, NO_MEMORY. */
gyre_status_t train_board_open(const char *folder, train_board_t **out);
/* A new file of events, of a run that goes on behind `step`: readers forget what older files of the folder say of later
 * steps. IO. */
gyre_status_t train_board_start(train_board_t *board, uint64_t step);
/* record: for memory and tokens per step. IO. */
gyre_status_t train_board_step(train_board_t *board, const train_record_t *record, const train_step_t *step);
/* Frees it; NULL is allowed. IO. */
gyre_status_t train_board_close(train_board_t *board);

/* ---- timeline and trace --------------------------------------------------------------------------------------- */

/* A step that was watched, as rank 0 knows it. */
typedef struct {
    uint64_t step;
    base_time_t start, end; /* of the first and last span, by rank 0's clock */
    model_span_t *span;     /* [count] by rank, then by start; owned by the timeline */
    size_t count;
} train_watched_t;

enum { TRAIN_WATCHED = 64 }; /* steps at most */

/* Watches the steps that --trace-steps names, else the tenth that is made behind `done` steps (or the last one).
 * Collective; `comm` must outlive it. NO_MEMORY, errors of the communicator. */
gyre_status_t train_timeline_create(gyre_comm_t *comm, const train_options_t *options, uint64_t done,
                                    train_timeline_t **out);
void train_timeline_destroy(train_timeline_t *timeline);
/* Where the spans of step `step` (1-based) go; NULL: nobody asks for them. `timeline` may be NULL. Not collective. */
model_spans_t *train_timeline_begin(train_timeline_t *timeline, uint64_t step);
/* Behind that step: brings them to rank 0. Collective on watched steps, nothing on others. */
gyre_status_t train_timeline_end(train_timeline_t *timeline, uint64_t step);
/* Rank 0: what was watched, in the order of steps. `timeline` may be NULL. */
size_t train_timeline_steps(const train_timeline_t *timeline, const train_watched_t **step);
/* "FROM:TO", at most TRAIN_WATCHED steps: 1, or 0. `text` may be NULL. */
int train_steps_range(const char *text, uint64_t *from, uint64_t *to);

const char *train_span_name(int kind);
/* Trace Event JSON. INVALID: there are no steps; IO. */
gyre_status_t train_trace_write(const char *path, const train_record_t *record, const train_watched_t *step,
                                size_t steps);

/* Which kernel's clock this rank reads: the same on ranks of one host. */
uint64_t train_host_clock(void);

/* Floating-point operations per second that the cores of all ranks can do together, measured for a moment; at rank 0, zero
 * elsewhere. Collective. */
gyre_status_t train_peak_measure(gyre_comm_t *comm, double *flops);
/* The same of the GPUs that the ranks work on, each once, for products of the precision. Collective. */
gyre_status_t train_peak_measure_gpu(gyre_comm_t *comm, base_device_t device, model_precision_t precision,
                                     double *flops);
/* The same from what the ranks told: [ranks] of {host, rate as the bits of a double, 1,024 bits of processors}. */
double train_peak_sum(const uint64_t *told, size_t ranks);

/* ---- the terminal (rank 0) ---------------------------------------------------------------------------------- */

typedef struct {
    FILE *out;
    int style;             /* TRAIN_PROGRESS_BAR, _LINES or _NONE */
    int drawn;             /* a bar stands in the present line */
    uint64_t skipped;      /* updates that were left out */
    uint64_t first, steps; /* done before; of the run */
    double before;         /* seconds of the time limit that were gone at the start */
    double time_limit;
    base_time_t start, last; /* of this process's part; of the last line */
    double val;              /* latest, NaN: none yet */
    double rate;             /* tokens per second, smoothed */
} train_progress_t;

/* `style` as --progress says. `first` steps and `before` seconds were done by the processes before this one. */
void train_progress_start(train_progress_t *progress, FILE *out, int style, uint64_t first, uint64_t steps,
                          double before, double time_limit);
/* `last`: this is the run's last step. */
void train_progress_step(train_progress_t *progress, const train_step_t *step, uint64_t tokens, int last);
/* Ends the bar's line, so that something else can be printed. */
void train_progress_end(train_progress_t *progress);

/* ---- the report ------------------------------------------------------------------------------------------------ */

/* step: that was watched; NULL: none. */
gyre_status_t train_report_write(const char *path, const train_options_t *options,
                                 const train_record_t *record, const model_data_t *data,
                                 const train_watched_t *step);

/* Inline SVG. is_text: tokens are bytes. */
void train_svg_loss(FILE *out, const train_record_t *record, int is_text);
void train_svg_time(FILE *out, const train_record_t *record);
/* A <figure> for each of learning rate, gradient norm, loss scale, speed, MFU and bubble that has something to show. */
void train_svg_curves(FILE *out, const train_record_t *record);
void train_svg_timeline(FILE *out, const train_record_t *record, const train_watched_t *step);
void train_svg_memory(FILE *out, const train_record_t *record);

/* ---- words --------------------------------------------------------------------------------------------------- */

/* The run's tokenizer: --tokenizer, or bytes where the data is. *out NULL: it is not known. INVALID: the data says that it was
 * written with another. */
gyre_status_t train_words_open(const train_options_t *options, const model_data_t *data,
                               model_tokenizer_t **out);
/* The prompt's ids [*count], with room for `more`; caller frees. INVALID: one is not below the model's vocabulary. */
gyre_status_t train_words_prompt(const model_tokenizer_t *tokenizer, const char *prompt, size_t vocab,
                                 size_t more, model_token_t **tokens, size_t *count);
/* Ids as train_readable has their bytes; caller frees. NULL: no memory. */
char *train_words_text(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count);

/* bytes as UTF-8: valid sequences, tabs and newlines pass, everything else becomes U+FFFD. Caller frees; NULL: no
 * memory. */
char *train_readable(const unsigned char *bytes, size_t count);

/* ---- going on from a checkpoint ------------------------------------------------------------------------------ */

/* What a run is beside its weights and moments, behind `step` updates. Everything random is a function of the seed and
 * the step. */
typedef struct {
    uint64_t step;
    uint64_t ranks;           /* that wrote the checkpoint */
    double seconds, progress; /* of training so far; the part of the time limit that is gone */
    double first_val, final_val;
    optim_scaler_t scaler; /* of the loss; scale 0: there is none */
} train_state_t;

/* The parts of a run that a checkpoint holds or is compared with; all borrowed. */
typedef struct {
    gyre_comm_t *comm;
    const train_options_t *options;
    const model_data_t *data;
    const model_params_t *params; /* the whole table */
    optim_zero_t *zero;
} train_parts_t;

/* The index's object for this state; NULL: no memory. */
json_t *train_resume_describe(const train_parts_t *parts, const train_state_t *state);

/* The scaler in what train_resume_describe said: 1, or 0 if there is none. */
int train_resume_scaler(const json_t *run, optim_scaler_t *scaler);

/* Finds the newest good checkpoint that any rank sees and gives every rank its ranges and state. Collective;
 * ranks may fail alone, and nobody waits for them. *found: 0 if there is none. INVALID: it is of a run with other
 * options; the message names the first. */
gyre_status_t train_resume(const train_parts_t *parts, train_state_t *state, int *found);

/* The part of that which looks at options: `run` is what train_resume_describe said in the checkpoint `at`. INVALID: the first
 * that differs and may not; FORMAT: `run` names no options. */
gyre_status_t train_resume_options(const train_options_t *options, int prefix_masks, const json_t *run,
                                   const char *at);

/* *well: every rank's `mine` is OK. This rank's own error is its answer; that of others is GYRE_OK. Collective. */
gyre_status_t train_all_well(const train_parts_t *parts, gyre_status_t mine, int *well);
/* Reads all ranges of `snapshot`, which this rank may lack (NULL) where rank `owner` has it. Collective. */
gyre_status_t train_resume_from_owner(const train_parts_t *parts, const model_snapshot_t *snapshot,
                                      int owner);

/* Makes what writes checkpoints of this run, which goes on behind `step`. Collective; ranks may fail alone. INVALID: this rank
 * does not see the folder of rank 0, and has something to write. *saver: NULL where there is nothing to write. */
gyre_status_t train_save_open(const train_parts_t *parts, uint64_t step, optim_saver_t **saver);
/* A checkpoint of this state, begun by all ranks or, if one before is not written after `patience` seconds, by none. What goes
 * wrong with it is told and stops nothing. Collective: an error is one of the communicator. *saved: IN_PROGRESS: left out. */
gyre_status_t train_save_step(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                              int first_sync, double patience, gyre_status_t *saved);
/* Rank 0, when the others are lost: the same without them, if it holds all of the model. 1: it is begun. */
int train_save_alone(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                     int first_sync, double patience);

/* Rank 0: makes the folder ready and notes in FOLDER/launch who launched this run. *resuming: the run goes on with what is in
 * it, since --resume says so, or since a launcher (ucx-run, torchrun, a requeued Slurm job) has started anew what wrote
 * there. INVALID: it holds checkpoints otherwise; nothing in it was changed. IO. */
gyre_status_t train_resume_open(const train_options_t *options, int *resuming);

/* ---- the run ------------------------------------------------------------------------------------------------------ */

/* The exit status; errors have been told. */
int train_run(train_options_t *options);

#endif
