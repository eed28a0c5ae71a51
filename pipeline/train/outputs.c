/* pipeline/train/outputs.c: what a run leaves in files: weights, a sample of text, the log's end, page and
 * trace. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/machine/cgroup.h"
#include "base/machine/memory.h"
#include "model/formats/hf.h"
#include "model/formats/peft.h"
#include "model/formats/weights.h"
#include "pipeline/generate/draw.h"
#include "pipeline/report/page.h"
#include "pipeline/report/trace.h"
#include "pipeline/train/run.h"
#include "pipeline/train/sample.h"
#include "pipeline/train/text.h"

/* A sample of text needs the tokenizer, which rank 0 has or has not. After a signal there is none. */
static int wants_sample(const train_run_t *run)
{
    return run->options->sample_tokens > 0 && run->tokenizer && !run->stopped;
}

void train_choose_sample(train_run_t *run)
{
    train_config_t *options = run->options;
    if (train_config_given(options, "sample-tokens") || train_text_prompted(options) ||
        options->sample_tokens == 0 || pipe_train_whole(run->train)->total <= PIPE_SMALL_PARAMETERS)
        return;
    options->sample_tokens = 0;
    run->sample_left_out = 1;
}

/* Memory for the whole model on rank 0, which alone draws the sample. What the kernel would have to kill for,
 * on the host or in a control group, is not taken: with overcommitment, calloc does not fail. */
static gyre_status_t take_weights(train_run_t *run)
{
    const size_t elements = pipe_train_whole(run->train)->total, bytes = elements * sizeof *run->weights;
    const uint64_t host = base_memory_now().available, group = base_cgroup_limits("").left;
    if (bytes < (group < host ? group : host) / 2)
        run->weights = calloc(elements, sizeof *run->weights);
    return run->weights
               ? GYRE_OK
               : gyre_fail(
                     GYRE_ERR_NO_MEMORY,
                     "no sample of text: it needs the whole model on rank 0, %.3g GB, which is too much "
                     "for its memory: leave it out (--sample-tokens 0)",
                     (double)bytes * 1e-9);
}

gyre_status_t train_gather_sample(train_run_t *run)
{
    const model_params_t *whole = pipe_train_whole(run->train);
    if (run->rank == 0 && wants_sample(run))
        run->sampled = take_weights(run);
    uint64_t wanted = run->weights != NULL; /* rank 0's word counts */
    gyre_status_t status = gyre_broadcast(&wanted, &wanted, 1, GYRE_UINT64, 0, run->comm);
    for (size_t r = 0; status == GYRE_OK && wanted && r < whole->rows; r++)
        if (whole->row[r].alias == MODEL_NONE)
            status = pipe_train_gather_row(run->train, r,
                                           run->rank == 0 ? run->weights + whole->row[r].offset : NULL);
    return status;
}

static int ends_in_slash(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    return n > 0 && path[n - 1] == '/';
}

int train_saves_folder(const train_config_t *options)
{
    return ends_in_slash(options->save);
}

/* The table that is written: the run's, or with all positions of the model that was loaded. */
static const model_params_t *table_of(const train_run_t *run)
{
    return run->origin ? model_hf_origin_params(run->origin) : pipe_train_whole(run->train);
}

/* Rows on their way to rank 0's file. */
typedef struct {
    train_run_t *run;
    float *row;           /* rank 0: room for the largest, should a writer have none; else NULL */
    gyre_status_t status; /* of the ranks, which all take part in every row */
} export_t;

static gyre_status_t export_row(void *user, size_t row, float *canonical)
{
    export_t *export = user;
    train_run_t *run = export->run;
    canonical = canonical ? canonical : export->row;
    export->status = pipe_train_gather_row(run->train, row, canonical);
    if (export->status == GYRE_OK && run->origin)
        model_hf_origin_fill(run->origin, row, canonical);
    return export->status;
}

static model_hf_type_t save_type(const train_run_t *run)
{
    if (run->options->save_type == TRAIN_SAVE_AUTO)
        return run->origin ? model_hf_origin_type(run->origin) : MODEL_HF_F32;
    return run->options->save_type == TRAIN_SAVE_BF16 ? MODEL_HF_BF16 : MODEL_HF_F32;
}

/* Rank 0's part of model_checkpoint_stream, for a folder as Hugging Face has them: rows come in the same
 * order. */
static gyre_status_t save_folder(export_t *export, const char *path)
{
    const train_run_t *run = export->run;
    const model_params_t *whole = table_of(run);
    model_hf_writer_t *writer = NULL;
    gyre_status_t written =
        model_hf_create(path, whole, save_type(run), MODEL_HF_SHARD_BYTES, run->origin, &writer);
    for (size_t r = 0; export->status == GYRE_OK && r < whole->rows; r++) {
        if (whole->row[r].alias != MODEL_NONE)
            continue;
        /* also when nothing can be written: the others take part */
        if (export_row(export, r, export->row) == GYRE_OK && written == GYRE_OK)
            written = model_hf_write(writer, r, export->row);
    }
    if (export->status == GYRE_OK && written == GYRE_OK)
        return model_hf_finish(writer);
    model_hf_abandon(writer);
    return written;
}

/* Rank 0: memory for the largest row; NULL: there is none. */
static float *take_row(const model_params_t *whole)
{
    size_t largest = 0;
    for (size_t r = 0; r < whole->rows; r++)
        largest = base_max_size(largest, whole->row[r].count);
    float *row = malloc(largest * sizeof *row);
    if (!row)
        (void)gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a row of %zu weights, which --save needs",
                        largest);
    return row;
}

/* The weights to `path`, row by row: a file, or a folder where it ends in a slash. *written: an error on rank
 * 0, whose file it is; the ranks are well then. */
gyre_status_t train_export(train_run_t *run, const char *path, gyre_status_t *written)
{
    export_t export = {.run = run, .row = run->rank == 0 ? take_row(table_of(run)) : NULL};
    uint64_t room = export.row != NULL; /* rank 0's word counts */
    *written = run->rank == 0 && !room ? GYRE_ERR_NO_MEMORY : GYRE_OK;
    gyre_status_t status = gyre_broadcast(&room, &room, 1, GYRE_UINT64, 0, run->comm);
    if (status == GYRE_OK && room) {
        *written =
            run->rank == 0 && ends_in_slash(path)
                ? save_folder(&export, path)
                : model_checkpoint_stream(run->rank == 0 ? path : NULL, table_of(run), export_row, &export);
        status = export.status;
    }
    free(export.row);
    return status;
}

/* Memory for the largest adapter. NULL: there is none. */
static float *take_factors(const model_adapters_t *adapters)
{
    size_t largest = 0;
    for (size_t i = 0; i < adapters->table->rows / 2; i++)
        largest =
            base_max_size(largest, adapters->table->row[2 * i].count + adapters->table->row[2 * i + 1].count);
    float *factors = malloc(largest * sizeof *factors);
    if (!factors)
        (void)gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for an adapter of %zu weights", largest);
    return factors;
}

/* The adapters to --save-adapters on rank 0, one by one. *written as train_export has it. */
static gyre_status_t export_adapters(train_run_t *run, gyre_status_t *written)
{
    const model_adapters_t *adapters = pipe_train_adapters(run->train);
    model_peft_writer_t *writer = NULL;
    float *factors = run->rank == 0 ? take_factors(adapters) : NULL;
    uint64_t room = factors != NULL; /* rank 0's word counts */
    gyre_status_t status = gyre_broadcast(&room, &room, 1, GYRE_UINT64, 0, run->comm);
    *written = run->rank == 0 && !room ? GYRE_ERR_NO_MEMORY : GYRE_OK;
    if (factors)
        *written = model_peft_create(run->options->save_adapters, pipe_train_whole(run->train), adapters,
                                     run->options->load, &writer);
    for (size_t i = 0; status == GYRE_OK && room && i < adapters->table->rows / 2; i++) {
        /* also when nothing can be written: the others take part */
        status = pipe_train_gather_adapter(run->train, i, factors);
        if (status == GYRE_OK && factors && *written == GYRE_OK)
            *written = model_peft_write(writer, factors, factors + adapters->table->row[2 * i].count);
    }
    if (factors && status == GYRE_OK && *written == GYRE_OK)
        *written = model_peft_finish(writer);
    else
        model_peft_abandon(writer);
    free(factors);
    return status;
}

gyre_status_t train_write_weights(train_run_t *run)
{
    uint64_t wanted[2] = {run->options->save != NULL, run->options->save_adapters != NULL};
    gyre_status_t status = gyre_broadcast(wanted, wanted, 2, GYRE_UINT64, 0, run->comm);
    if (status == GYRE_OK && wanted[0]) /* what fails there is reported at the end, with the other outputs */
        status = train_export(run, run->options->save, &run->written);
    if (status == GYRE_OK && wanted[1])
        status = export_adapters(run, &run->written_adapters);
    return status;
}

static gyre_status_t make_sample(train_run_t *run)
{
    const train_config_t *options = run->options;
    const model_sample_t how = {.temperature = options->temperature,
                                .top_k = options->top_k,
                                .seed = options->seed,
                                .infill = run->infill ? &run->infill_ids : NULL};
    model_token_t *tokens = NULL;
    size_t length;
    gyre_status_t status = train_text_prompt(run->tokenizer, options->prompt, run->shape.vocab,
                                             options->sample_tokens, &tokens, &length);
    if (status == GYRE_OK)
        status = model_sample(pipe_train_whole(run->train), run->weights, &how, tokens, &length,
                              options->sample_tokens);
    if (status == GYRE_OK && !(run->record.sample = train_text_of(run->tokenizer, tokens, length)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", length);
    free(tokens);
    return status;
}

/* What became of the last checkpoint, for which train_conclude has waited. */
static gyre_status_t finish_saving(train_run_t *run)
{
    gyre_status_t status = optim_saver_wait(run->saver, 0.0, NULL);
    return run->saved != GYRE_OK ? GYRE_ERR_IO : status;
}

gyre_status_t train_write_outputs(train_run_t *run, gyre_status_t status[TRAIN_OUTPUTS])
{
    const train_config_t *options = run->options;
    const train_watched_t *watched;
    size_t steps = train_timeline_steps(run->timeline, &watched);
    for (size_t i = 0; i < TRAIN_OUTPUTS; i++)
        status[i] = GYRE_OK;
    status[TRAIN_OUT_WEIGHTS] = run->written;
    status[TRAIN_OUT_ADAPTERS] = run->written_adapters;
    if (run->saver)
        status[TRAIN_OUT_CHECKPOINT] = finish_saving(run); /* which syncs the log that the next line closes */
    status[TRAIN_OUT_RECORD] = train_record_finish(&run->record);
    if (wants_sample(run)) /* when all that counts is on disk */
        status[TRAIN_OUT_SAMPLE] = run->weights ? make_sample(run) : run->sampled;
    if (options->report)
        status[TRAIN_OUT_REPORT] = train_report_write(options->report, options, &run->record, run->data,
                                                      steps > 0 ? &watched[steps - 1] : NULL);
    if (options->trace)
        status[TRAIN_OUT_TRACE] = train_trace_write(options->trace, &run->record, watched, steps);
    for (size_t i = 0; i < TRAIN_OUTPUTS; i++)
        if (status[i] != GYRE_OK)
            return status[i];
    return GYRE_OK;
}
