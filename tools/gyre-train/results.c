/* tools/gyre-train/results.c: what a run leaves behind: sample, weights, report, and what the terminal says. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/formats/weights.h"
#include "model/formats/hf.h"
#include "pipeline/train/sample.h"
#include "tools/gyre-train/run.h"

#define SHARD_BYTES ((size_t)5000000000) /* of a file of an exported model, as `transformers` cuts them */

/* A sample of text needs the tokenizer, which rank 0 has or has not. */
static int wants_sample(const train_run_t *run)
{
    return run->options->sample_tokens > 0 && run->tokenizer;
}

static gyre_status_t gather_row(void *user, size_t row, float *canonical)
{
    train_run_t *run = user;
    if (run->rank == 0 && !canonical)
        return GYRE_ERR_NO_MEMORY; /* as model_checkpoint_stream has said */
    return optim_zero_gather_row(pipe_train_zero(run->train), pipe_train_whole(run->train), row,
                                 run->rank == 0 ? canonical : NULL);
}

/* The sample is drawn by rank 0 alone. */
static gyre_status_t gather_all(train_run_t *run)
{
    const model_params_t *whole = pipe_train_whole(run->train);
    gyre_status_t status = GYRE_OK;
    if (run->rank == 0 && !(run->weights = calloc(whole->total, sizeof *run->weights)))
        status =
            gyre_fail(GYRE_ERR_NO_MEMORY,
                      "no memory for the whole model, which --sample-tokens needs on rank 0: leave it out "
                      "(--sample-tokens 0)");
    for (size_t r = 0; status == GYRE_OK && r < whole->rows; r++)
        if (whole->row[r].alias == MODEL_NONE)
            status = gather_row(run, r, run->rank == 0 ? run->weights + whole->row[r].offset : NULL);
    return status;
}

int train_saves_folder(const train_options_t *options)
{
    size_t n = options->save ? strlen(options->save) : 0;
    return n > 0 && options->save[n - 1] == '/';
}

/* Rank 0's part of model_checkpoint_stream, for a folder as Hugging Face has them: rows come in the same order. */
static gyre_status_t save_folder(train_run_t *run)
{
    const model_params_t *whole = pipe_train_whole(run->train);
    model_hf_writer_t *writer = NULL;
    size_t largest = 0;
    for (size_t r = 0; r < whole->rows; r++)
        largest = base_max_size(largest, whole->row[r].count);
    float *row = malloc(largest * sizeof *row);
    if (!row)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a row of %zu weights, which --save needs",
                         largest);
    gyre_status_t status = GYRE_OK,
                  written = model_hf_create(run->options->save, whole, MODEL_HF_F32, SHARD_BYTES, &writer);
    for (size_t r = 0; status == GYRE_OK && r < whole->rows; r++) {
        if (whole->row[r].alias != MODEL_NONE)
            continue;
        status = gather_row(run, r, row); /* also when nothing can be written: the others take part */
        if (status == GYRE_OK && written == GYRE_OK)
            written = model_hf_write(writer, r, row);
    }
    free(row);
    if (status != GYRE_OK || written != GYRE_OK) {
        model_hf_abandon(writer);
        return status != GYRE_OK ? status : written;
    }
    return model_hf_finish(writer);
}

gyre_status_t train_gather(train_run_t *run)
{
    uint64_t wanted[2] = {run->options->save != NULL, (uint64_t)wants_sample(run)};
    gyre_status_t status = gyre_broadcast(wanted, wanted, 2, GYRE_UINT64, 0, run->comm);
    if (status == GYRE_OK && wanted[0]) {
        int folder = run->rank == 0 && train_saves_folder(run->options);
        gyre_status_t written = folder
                                    ? save_folder(run)
                                    : model_checkpoint_stream(run->rank == 0 ? run->options->save : NULL,
                                                              pipe_train_whole(run->train), gather_row, run);
        if (run->rank == 0 &&
            written == GYRE_ERR_IO) /* told at the end, with the other outputs; the ranks are well */
            run->written = written;
        else
            status = written;
    }
    return status == GYRE_OK && wanted[1] ? gather_all(run) : status;
}

static gyre_status_t make_sample(train_run_t *run)
{
    const train_options_t *options = run->options;
    const model_sample_t how = {.temperature = options->temperature,
                                .top_k = options->top_k,
                                .seed = options->seed,
                                .infill = run->infill ? &run->infill_ids : NULL};
    model_token_t *tokens = NULL;
    size_t length;
    gyre_status_t status = train_words_prompt(run->tokenizer, options->prompt, run->shape.vocab,
                                              options->sample_tokens, &tokens, &length);
    if (status == GYRE_OK)
        status = model_sample(pipe_train_whole(run->train), run->weights, &how, tokens, &length,
                              options->sample_tokens);
    if (status == GYRE_OK && !(run->record.sample = train_words_text(run->tokenizer, tokens, length)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", length);
    free(tokens);
    return status;
}

/* What ZeRO 3 gathers, and what its micro-batches hold. */
static void print_gathers(const train_run_t *run)
{
    const pipe_layout_t *l = pipe_train_layout(run->train);
    const optim_batch_t batch = {.batch = run->options->batch,
                                 .leaf = run->options->grad_sequences,
                                 .groups = run->options->groups,
                                 .equal = run->options->variant};
    size_t rounds = pipe_layout_rounds(l, &batch);
    if (l->zero != 3 || l->dp < 2)
        return;
    printf("ZeRO 3: micro-batches of %zu%s, activations %.1f MB on rank 0, ", l->micro_batch,
           run->options->micro_batch ? "" : " (chosen)",
           (double)pipe_train_activation_bytes(run->train) / 1e6);
    if (run->options->keep_weights)
        printf("weights gathered once a step: it sends 2 values per parameter\n");
    else
        printf("weights gathered 2 x %zu times a step: it sends %zu values per parameter%s\n", rounds,
               2 * rounds + 1, rounds > 1 ? " (larger --micro-batch: fewer; --keep-weights: 2)" : "");
}

/* Micro-batches of a GPU that could have one gradient each. */
static void tell_gradients(const train_run_t *run)
{
    const train_options_t *o = run->options;
    const pipe_layout_t *l = pipe_train_layout(run->train);
    if (!o->device || run->resumed || run->record.grows || l->micro_batch == 1 || o->groups > 0 ||
        train_options_given(o, "grad-sequences") || o->batch % l->micro_batch != 0 ||
        o->batch / l->micro_batch < l->dp)
        return;
    printf("--grad-sequences %zu spares a GPU the gradients of each sequence; its bits are then those of "
           "this number\n",
           l->micro_batch);
}

void train_print_start(const train_run_t *run)
{
    printf("%.2f million parameters, %d rank%s, %llu x %zu tokens per step",
           (double)run->record.parameters / 1e6, run->record.ranks, run->record.ranks == 1 ? "" : "s",
           (unsigned long long)run->options->batch, run->shape.seq);
    if (run->record.grows)
        printf(" in the end, from %zu on over %llu sequences (%llu steps)", run->ramp.start,
               (unsigned long long)run->ramp.over,
               (unsigned long long)optim_ramp_steps(&run->ramp, run->ramp.over));
    printf("\n");
    printf("%llu %s in %zu file%s from %s, ", (unsigned long long)run->data->tokens,
           run->data->is_text ? "bytes of text" : "tokens", run->data->files,
           run->data->files == 1 ? "" : "s", run->options->data);
    printf(run->options->valid_data ? "%s for validation\n" : "the last tenth for validation\n",
           run->options->valid_data);
    print_gathers(run);
    if (run->options->device)
        printf("on CUDA device %d (%s), %s\n", run->device.index, run->record.device,
               run->options->precision == MODEL_BFLOAT16 ? "bf16" : "fp32");
    if (run->options->device && !run->resumed && run->shape.leaves > 1 && run->options->tp == 1 &&
        !train_options_given(run->options, "leaves"))
        printf("--leaves 1 is faster on a GPU; its bits are then not those of --tp 2 and more\n");
    tell_gradients(run);
    if (run->resumed)
        printf("going on after step %llu, from the checkpoint in %s\n", (unsigned long long)run->next,
               run->options->checkpoint);
    else if (run->resuming)
        printf("no checkpoint in %s yet: beginning with step 1\n", run->options->checkpoint);
    fflush(stdout);
}

static void print_end(const train_run_t *run)
{
    const train_record_t *record = &run->record;
    train_step_t total = train_record_total(record);
    if (run->interrupted)
        printf("stopped by a signal\n");
    if (record->sample) {
        printf("\n---- a sample of text, temperature %g ----\n%s\n", run->options->temperature,
               record->sample);
        printf("----------------------------------------\n");
    }
    const char *unit = run->data->is_text ? "byte" : "token";
    printf("\nunigram entropy  %.4f nats/%s (what %s frequencies alone can reach)\n", record->unigram, unit,
           unit);
    printf("validation loss  %.4f nats/%s, %.0f %% of it; %.4f before training\n", record->final_val, unit,
           100.0 * record->final_val / record->unigram, record->first_val);
    if (record->steps > 0)
        printf("training         %llu steps in %.1f s with validation; %.0f tokens/s in steps",
               (unsigned long long)record->done, record->seconds,
               train_record_parts(record) * (double)record->tokens_per_step / fmax(total.seconds, 1e-9));
    if (record->steps > 0 && !isnan(total.exposed_s))
        printf("; communication: %.2f s exposed, %.2f s hidden", total.exposed_s, total.hidden_s);
    if (record->steps > 0)
        printf("\n");
}

/* Where an output is, or that it is not. */
static void print_output(const char *name, const char *path, gyre_status_t status)
{
    if (path)
        printf("%-16s %s%s\n", name, path, status == GYRE_OK ? "" : ": not written");
}

/* Waits for the last checkpoint. */
static gyre_status_t finish_saving(train_run_t *run)
{
    gyre_status_t status = optim_saver_wait(run->saver, SAVE_END_S, NULL);
    return run->saved != GYRE_OK ? GYRE_ERR_IO : status;
}

gyre_status_t train_leave_results(train_run_t *run)
{
    const train_options_t *options = run->options;
    enum { RECORD, WEIGHTS, CHECKPOINT, SAMPLE, REPORT, TRACE, SHOWN, OUTPUTS };
    gyre_status_t status[OUTPUTS] = {GYRE_OK};
    const train_watched_t *watched;
    size_t steps = train_timeline_steps(run->timeline, &watched);
    status[WEIGHTS] = run->written;
    if (run->saver)
        status[CHECKPOINT] = finish_saving(run); /* which syncs the log that the next line closes */
    status[RECORD] = train_record_finish(&run->record);
    if (wants_sample(run))
        status[SAMPLE] = make_sample(run);
    if (options->report)
        status[REPORT] = train_report_write(options->report, options, &run->record, run->data,
                                            steps > 0 ? &watched[steps - 1] : NULL);
    if (options->trace)
        status[TRACE] = train_trace_write(options->trace, &run->record, watched, steps);
    if (options->sample_tokens > 0 && !run->tokenizer)
        log_warning("no sample of text: name the tokenizer of %s with --tokenizer", options->data);
    print_end(run);
    print_output("log", options->log, run->record.log_status);
    print_output("tensorboard", options->tensorboard, run->record.board_status);
    print_output("weights", options->save, status[WEIGHTS]);
    print_output("checkpoint", options->checkpoint, status[CHECKPOINT]);
    print_output("report", options->report, status[REPORT]);
    print_output("trace", options->trace, status[TRACE]);
    if (fflush(stdout) != 0)
        status[SHOWN] = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the results to standard output");
    for (size_t i = 0; i < OUTPUTS; i++)
        if (status[i] != GYRE_OK)
            return status[i];
    return GYRE_OK;
}
