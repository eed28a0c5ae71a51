/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/results.c: what the terminal says when a run starts and when it has ended. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/size.h"
#include "pipeline/generate/draw.h"
#include "tools/gyre-train/results.h"

enum { BYTES = 256 }; /* ids of text */

/* What ZeRO 3 gathers, and what its micro-batches hold. */
static void print_gathers(const train_run_t *run)
{
    const pipe_layout_t *l = pipe_train_layout(run->train);
    const optim_batch_t batch = train_config_batch(run->options);
    const optim_part_t part = pipe_layout_most(l, &batch);
    size_t rounds = pipe_layout_rounds(l, &batch), reductions = part.run ? part.count / part.run : 1;
    if (l->zero != 3 || pipe_layout_replicas(l) < 2)
        return;
    printf("ZeRO 3: micro-batches of %zu%s, activations %.1f MB on rank 0, ", l->micro_batch,
           run->options->micro_batch ? "" : " (chosen)",
           (double)pipe_train_activation_bytes(run->train) / 1e6);
    if (run->options->keep_weights)
        printf("weights gathered once a step: it sends %zu values per parameter\n", 1 + reductions);
    else if (rounds > 1)
        printf("weights gathered 2 x %zu times a step: it sends %zu values per parameter (larger "
               "--micro-batch: fewer; --keep-weights: %zu)\n",
               rounds, 2 * rounds + reductions, 1 + reductions);
    else
        printf("weights gathered 2 x 1 times a step: it sends %zu values per parameter\n", 2 + reductions);
}

/* Micro-batches of a GPU that could have one gradient each. */
static void tell_gradients(const train_run_t *run)
{
    const train_config_t *o = run->options;
    const pipe_layout_t *l = pipe_train_layout(run->train);
    if (!o->device || run->resumed || run->record.grows || l->micro_batch == 1 || o->groups > 0 ||
        train_config_given(o, "grad-sequences") || o->batch % l->micro_batch != 0 ||
        o->batch / l->micro_batch < l->dp)
        return;
    printf("--grad-sequences %zu spares a GPU the gradients of each sequence; its bits are then those of "
           "this number\n",
           l->micro_batch);
}

/* What the fullest rank holds, and which kinds that is. */
static void print_memory(const train_memory_t *memory)
{
    char size[BASE_SIZE_TEXT];
    size_t rank = 0;
    const uint64_t most = train_memory_most(memory, &rank);
    if (most == 0)
        return;
    printf("%s of memory on the fullest rank (%zu)", base_size_about((double)most, size), rank);
    for (size_t k = 0, shown = 0; k < memory->kinds; k++) {
        const uint64_t bytes = memory->bytes[rank * memory->kinds + k];
        if (bytes > 0)
            printf("%s %s %s", shown++ ? "," : ":", memory->kind[k], base_size_about((double)bytes, size));
    }
    printf("\n");
}

/* What is for validation. */
static void print_validation(const train_run_t *run)
{
    const double fraction = run->options->valid_fraction;
    if (run->options->valid_data)
        printf("%s for validation\n", run->options->valid_data);
    else if (fraction == 0.1)
        printf("the last tenth for validation\n");
    else if (fraction > 0.0)
        printf("the last %.6g of it for validation\n", fraction);
    else
        printf("nothing for validation\n");
}

void train_print_start(const train_run_t *run)
{
    printf("%.2f million parameters, %d rank%s, %llu x %zu tokens per step",
           (double)run->record.parameters / 1e6, run->record.ranks, run->record.ranks == 1 ? "" : "s",
           (unsigned long long)run->options->batch, run->shape.seq);
    if (run->record.grows)
        printf(" in the end, from %zu on over %llu sequences", run->ramp.start,
               (unsigned long long)run->ramp.over);
    if (run->record.grows && !run->resumed) /* whose first steps may have had other sizes */
        printf(" (%llu steps)", (unsigned long long)optim_ramp_steps(&run->ramp, run->ramp.over));
    printf("\n");
    print_memory(&run->record.memory);
    if (pipe_train_threads(run->train) > 1)
        printf("%zu threads compute%s\n", pipe_train_threads(run->train),
               run->record.ranks > 1 ? " on rank 0" : "");
    printf("%llu %s in %zu file%s from %s, ", (unsigned long long)run->data->tokens,
           run->data->is_text ? "bytes of text" : "tokens", run->data->files,
           run->data->files == 1 ? "" : "s", run->options->data);
    if (run->data->is_text && run->shape.vocab > BYTES)
        printf("as the first %d of %zu ids, ", BYTES, run->shape.vocab);
    print_validation(run);
    if (run->options->load && !train_config_given(run->options, "lr"))
        printf("learning rate %g, the default for %s\n", run->options->lr,
               run->options->lora > 0 ? "adapters" : "weights that are loaded");
    if (run->options->lora > 0)
        printf("adapters of rank %llu on %zu weights: %.3f million parameters are trained, of %.2f million\n",
               (unsigned long long)run->options->lora, pipe_train_table(run->train)->rows / 2,
               (double)pipe_train_table(run->train)->total / 1e6, (double)run->record.parameters / 1e6);
    if (run->options->freeze)
        printf("%.2f of %.2f million parameters are frozen\n",
               (double)model_params_frozen(pipe_train_whole(run->train)) / 1e6,
               (double)run->record.parameters / 1e6);
    print_gathers(run);
    if (run->options->device)
        printf("on CUDA device %d (%s), %s\n", run->device.index, run->record.device,
               run->options->precision == MODEL_BFLOAT16 ? "bf16" : "fp32");
    if (run->options->device && !run->resumed && run->shape.leaves > 1 && run->options->tp == 1 &&
        !train_config_given(run->options, "leaves"))
        printf("--leaves 1 is faster on a GPU; its bits are then not those of --tp 2 and more\n");
    tell_gradients(run);
    if (run->resumed)
        printf("going on after step %llu, from the checkpoint in %s\n", (unsigned long long)run->next,
               run->options->checkpoint);
    else if (run->resuming)
        printf("no checkpoint in %s yet: beginning with step 1\n", run->options->checkpoint);
    fflush(stdout);
}

/* The validation loss of each set that has a name. */
static void print_sets(const train_record_t *record, const char *unit)
{
    for (size_t s = 0; s < record->sets; s++) {
        const train_set_t *set = &record->set[s];
        printf("  %-14s %.4f nats/%s", set->name, set->final_val, unit);
        if (!isnan(set->first_val))
            printf("; %.4f before training", set->first_val);
        printf("\n");
    }
}

static void print_end(const train_run_t *run)
{
    const train_record_t *record = &run->record;
    train_step_t total = train_record_total(record);
    if (run->stopped && record->done < run->options->steps)
        printf("stopped by SIG%s after step %llu\n", run->stopped == SIGTERM ? "TERM" : "INT",
               (unsigned long long)record->done);
    if (record->sample) {
        printf("\n---- a sample of text, temperature %g ----\n%s\n", run->options->temperature,
               record->sample);
        printf("----------------------------------------\n");
    }
    if (run->sample_left_out)
        printf(
            "no sample of text, which is for models of up to %g million parameters: --sample-tokens N draws "
            "one of others, too\n",
            PIPE_SMALL_PARAMETERS * 1e-6);
    const char *unit = run->data->is_text ? "byte" : "token";
    printf("\nunigram entropy  %.4f nats/%s (what %s frequencies alone can reach)\n", record->unigram, unit,
           unit);
    if (isnan(record->final_val)) /* a signal, or no sequences to validate on */
        printf("validation loss  was not measured\n");
    else
        printf("validation loss  %.4f nats/%s%s, %.0f %% of it%s; %.4f before training\n", record->final_val,
               unit, record->sets > 1 ? ", the mean of the sets" : "",
               100.0 * record->final_val / record->unigram, run->stopped ? " (as last measured)" : "",
               record->first_val);
    if (!isnan(record->final_val))
        print_sets(record, unit);
    if (record->unlearned > 0)
        printf("no token of %llu steps was learned\n", (unsigned long long)record->unlearned);
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

gyre_status_t train_print_results(train_run_t *run)
{
    const train_config_t *options = run->options;
    gyre_status_t output[TRAIN_OUTPUTS], status = train_write_outputs(run, output);
    if (options->sample_tokens > 0 && !run->tokenizer && !run->stopped &&
        !pipe_tokenizer_is_none(options->tokenizer))
        log_warning("no sample of text: name the tokenizer of %s with --tokenizer", options->data);
    print_end(run);
    print_output("log", options->log, run->record.log_status);
    print_output("tensorboard", options->tensorboard, run->record.board_status);
    print_output("weights", options->save, output[TRAIN_OUT_WEIGHTS]);
    print_output("adapters", options->save_adapters, output[TRAIN_OUT_ADAPTERS]);
    if (options->checkpoint && run->saved_step == 0 && output[TRAIN_OUT_CHECKPOINT] == GYRE_OK)
        printf("%-16s none: no step was made\n", "checkpoint");
    else
        print_output("checkpoint", options->checkpoint, output[TRAIN_OUT_CHECKPOINT]);
    print_output("report", options->report, output[TRAIN_OUT_REPORT]);
    print_output("trace", options->trace, output[TRAIN_OUT_TRACE]);
    if (fflush(stdout) != 0) {
        gyre_status_t shown =
            gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the results to standard output");
        status = status == GYRE_OK ? shown : status;
    }
    return status;
}
