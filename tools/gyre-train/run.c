/* tools/gyre-train/run.c: a training run from set-up to report. Every rank runs all of it; rank 0 also speaks. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "model/checkpoint.h"
#include "model/flops.h"
#include "model/sample.h"
#include "optim/adamw.h"
#include "optim/ddp.h"
#include "optim/saver.h"
#include "optim/schedule.h"
#include "tools/gyre-train/train.h"

/* What a checkpoint may hold training up for, should the one before still be under way: the other ranks wait. */
#define SAVE_PATIENCE_S 5.0
/* What the end of a run waits for the last one. */
#define SAVE_END_S 300.0

typedef struct {
    train_options_t *options;
    model_config_t shape;
    gyre_comm_t *comm;
    int rank;
    model_data_t *data;
    model_tokenizer_t *tokenizer; /* rank 0; NULL: unknown */
    model_params_t *params;
    float *flat; /* [params->total] */
    model_gpt_t_f32 *gpt;
    optim_adamw_t *adamw;
    optim_ddp_t *ddp;
    size_t val_count;      /* validation sequences in use */
    uint64_t next;         /* 0-based number of the step whose batch is fetched */
    double progress;       /* part of the time limit that is gone, as rank 0 told it last */
    base_time_t start;     /* of this process's part of training */
    double before;         /* seconds of training of the processes before it */
    int resuming;          /* a checkpoint is gone on with, if there is one: rank 0 decides */
    int resumed;           /* from a checkpoint */
    optim_saver_t *saver;  /* rank 0, with --checkpoint */
    uint64_t saved_step;   /* of the last checkpoint that the saver took; 0: none */
    gyre_status_t saved;   /* the last checkpoint */
    gyre_status_t fetched; /* the first sequence of this rank that could not be read */
    int agreed;            /* an error is that of every rank: nobody waits for one that fails alone */
    train_record_t record;
    train_progress_t bar;
    train_timeline_t *timeline; /* NULL: nobody asks for one */
} run_t;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1; /* the run ends behind the present step; a second signal kills */
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    const int numbers[] = {SIGINT, SIGTERM};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < 2; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 &&
            before.sa_handler != SIG_IGN) /* as a shell's & leaves SIGINT */
            sigaction(numbers[i], &action, NULL);
    }
}

/* ---- set-up ------------------------------------------------------------------------------------------------ */

/* The checkpoint's shape where --load is given, else the flags' and the data's. A flag that contradicts the checkpoint is
 * an error. */
static gyre_status_t find_shape(const train_options_t *options, const model_data_t *data,
                                model_config_t *shape)
{
    *shape = (model_config_t){.vocab = options->vocab ? options->vocab : data->vocab,
                              .seq = options->seq,
                              .layers = options->layers,
                              .hidden = options->hidden,
                              .heads = options->heads};
    if (options->load) {
        model_config_t found;
        gyre_status_t status = model_checkpoint_config(options->load, &found);
        if (status != GYRE_OK)
            return status;
        if (found.heads == 0 && !train_options_given(options, "heads"))
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s does not say how many attention heads its model has: give --heads",
                             options->load);
        if (found.heads == 0)
            found.heads = shape->heads;
        const struct {
            const char *name;
            size_t flag, file;
        } pair[] = {{"vocab", shape->vocab, found.vocab},
                    {"seq", shape->seq, found.seq},
                    {"layers", shape->layers, found.layers},
                    {"hidden", shape->hidden, found.hidden},
                    {"heads", shape->heads, found.heads}};
        for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++)
            if (train_options_given(options, pair[i].name) && pair[i].flag != pair[i].file)
                return gyre_fail(GYRE_ERR_INVALID, "--%s is %zu, but the model in %s has %zu: leave --%s out",
                                 pair[i].name, pair[i].flag, options->load, pair[i].file, pair[i].name);
        *shape = found;
    }
    if (shape->vocab == 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s does not say how large its vocabulary is: give --vocab N (GPT-2's is 50257)",
                         options->data);
    return model_config_check(shape);
}

static gyre_status_t join(run_t *run)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    if (run->options->progress_thread)
        config.progress_thread = 1;
    gyre_status_t status = gyre_init(&config, &run->comm);
    if (status == GYRE_OK)
        run->rank = gyre_comm_rank(run->comm);
    return status;
}

/* Every rank knows the text, and the number of ranks. */
static gyre_status_t check_input(run_t *run)
{
    const train_options_t *options = run->options;
    const optim_ddp_config_t config = {.batch = {.batch = options->batch}, .accum = options->accum};
    size_t ranks = (size_t)gyre_comm_size(run->comm);
    gyre_status_t status = optim_batch_check(&config.batch, ranks);
    if (status == GYRE_OK)
        status = model_data_prepare(run->data, run->shape.vocab, run->shape.seq);
    size_t idle = 0;
    for (size_t r = 0; status == GYRE_OK && r < ranks; r++) {
        size_t first, count;
        optim_batch_share(&config.batch, ranks, r, &first, &count);
        idle += count == 0;
    }
    if (idle > 0)
        log_warning("batch %zu on %zu ranks: %zu of them %s no sequence; %zu ranks are as fast",
                    config.batch.batch, ranks, idle, idle == 1 ? "has" : "have", ranks - idle);
    return status;
}

/* Better known now than at the end of the run. */
static gyre_status_t check_writable(const char *path, const char *flag)
{
    int why = path ? base_file_check(path) : 0;
    return why == 0 ? GYRE_OK
                    : gyre_fail_errno(GYRE_ERR_IO, why, "cannot write %s: name another file with --%s", path,
                                      flag);
}

static gyre_status_t open_outputs(run_t *run)
{
    const train_options_t *options = run->options;
    gyre_status_t status = check_writable(options->report, "report");
    if (status == GYRE_OK)
        status = check_writable(options->trace, "trace");
    if (status == GYRE_OK)
        status = check_writable(options->save, "save");
    if (status == GYRE_OK && options->checkpoint)
        status = train_resume_open(options, &run->resuming);
    return status == GYRE_OK ? train_record_open(&run->record, options) : status;
}

static gyre_status_t make_model(run_t *run)
{
    const train_options_t *options = run->options;
    const optim_adamw_config_t adamw = {.beta1 = options->beta1,
                                        .beta2 = options->beta2,
                                        .epsilon = 1e-8,
                                        .weight_decay = options->weight_decay};
    gyre_status_t status = model_params_create(&run->shape, &run->params);
    if (status != GYRE_OK)
        return status;
    if (!(run->flat = calloc(run->params->total, sizeof *run->flat)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu parameters: take a smaller model",
                         run->params->total);
    if (options->load)
        status = model_checkpoint_load(options->load, run->params, run->flat);
    else
        model_params_init(run->params, options->seed, run->flat);
    if (status == GYRE_OK)
        status = model_gpt_create_f32(run->params, run->flat, MODEL_ISA_BEST, &run->gpt);
    return status == GYRE_OK ? optim_adamw_create(run->params, &adamw, &run->adamw) : status;
}

static gyre_status_t open_data(run_t *run)
{
    const train_options_t *options = run->options;
    const model_data_config_t config = {.path = options->data,
                                        .valid_path = options->valid_data,
                                        .format = (model_tokens_format_t)options->data_format,
                                        .sampling = (model_sampling_t)options->sampling};
    gyre_status_t status = model_data_open(&config, &run->data);
    if (status == GYRE_OK && options->checkpoint)
        model_data_identify(run->data);
    return status;
}

/* What each rank does for itself, without a word to the others. */
static gyre_status_t prepare(run_t *run)
{
    train_options_t *options = run->options;
    gyre_status_t status = open_data(run);
    if (status == GYRE_OK)
        status = find_shape(options, run->data, &run->shape);
    options->vocab = run->shape.vocab;   /* the data may have said it */
    options->layers = run->shape.layers; /* --load may have given it */
    options->hidden = run->shape.hidden;
    options->heads = run->shape.heads;
    options->seq = run->shape.seq;
    if (status == GYRE_OK)
        status = check_input(run);
    if (status == GYRE_OK && run->rank == 0)
        status = train_words_open(options, run->data, &run->tokenizer);
    if (status == GYRE_OK && run->rank == 0)
        status = open_outputs(run);
    return status == GYRE_OK ? make_model(run) : status;
}

/* The ranks' `mine` become one: that of the lowest rank which failed. Most errors are those of all ranks and are told by
 * rank 0 as they happen; what happened to others only, the lowest of them tells here. */
static gyre_status_t agree(run_t *run, gyre_status_t mine)
{
    char text[512];
    snprintf(text, sizeof text, "%s", gyre_last_error()); /* the call below may change it */
    int64_t word = mine == GYRE_OK ? INT64_MAX : (int64_t)run->rank << 16 | (int64_t)mine;
    gyre_status_t status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), run->comm);
    if (status != GYRE_OK || word == INT64_MAX)
        return status;
    run->agreed = 1;
    if (run->rank > 0 && word >> 16 == run->rank)
        log_error("%s", text);
    return (gyre_status_t)(word & 0xffff);
}

/* Every rank holds everything; rank 0 writes it. */
static gyre_status_t visit(void *user, train_visit_t what, train_range_fn fn, void *to)
{
    run_t *run = user;
    gyre_status_t status = GYRE_OK;
    for (size_t r = 0; status == GYRE_OK && r < run->params->rows; r++) {
        size_t at = run->params->row[r].offset;
        const model_range_t range = {.row = r,
                                     .count = run->params->row[r].count,
                                     .part = {run->flat + at, optim_adamw_exp_avg(run->adamw) + at,
                                              optim_adamw_exp_avg_sq(run->adamw) + at}};
        if (what != TRAIN_STATE_OWNED || run->rank == 0)
            status = fn(to, &range);
    }
    return status;
}

static gyre_status_t loaded(void *user, uint64_t steps, const json_t *run)
{
    (void)run;
    optim_adamw_set_steps(((run_t *)user)->adamw, steps);
    return GYRE_OK;
}

static train_parts_t parts_of(const run_t *run)
{
    return (train_parts_t){.comm = run->comm,
                           .options = run->options,
                           .data = run->data,
                           .params = run->params,
                           .ranges = {.user = (void *)run, .visit = visit, .loaded = loaded}};
}

/* Goes on from the newest good checkpoint, if there is one. */
static gyre_status_t resume(run_t *run)
{
    const train_parts_t parts = parts_of(run);
    train_state_t state;
    gyre_status_t status = train_resume(&parts, &state, &run->resumed);
    if (status != GYRE_OK || !run->resumed)
        return status;
    run->next = run->saved_step = state.step;
    run->before = state.seconds;
    run->progress = state.progress;
    run->record.first_val = state.first_val;
    run->record.final_val = state.final_val;
    return GYRE_OK;
}

static gyre_status_t make_saver(run_t *run)
{
    const train_parts_t parts = parts_of(run);
    return train_save_open(&parts, run->next, &run->saver);
}

/* The environment may tell rank 0 only that the job was started anew: its word counts. */
static gyre_status_t decide(run_t *run)
{
    uint64_t word = (uint64_t)run->resuming;
    gyre_status_t status = gyre_broadcast(&word, &word, 1, GYRE_UINT64, 0, run->comm);
    run->resuming = word != 0;
    return status;
}

/* What the ranks do for themselves, and agree on. Only rank 0 speaks; what happened to others only is told by agree. */
static gyre_status_t by_all(run_t *run, gyre_status_t (*step)(run_t *run))
{
    int level = base_log_limit;
    if (run->rank != 0)
        base_log_set_level(BASE_LOG_NONE);
    gyre_status_t status = step(run);
    base_log_set_level((base_log_level_t)level);
    return agree(run, status);
}

/* What the record and its drawings need to know beside the steps. */
static gyre_status_t set_up_record(run_t *run)
{
    const train_options_t *options = run->options;
    train_record_t *record = &run->record;
    const model_flops_t flops = model_flops(&run->shape);
    record->unigram = run->data->unigram_entropy;
    record->ranks = gyre_comm_size(run->comm);
    record->parameters = run->params->total;
    record->tokens_per_step = options->batch * run->shape.seq;
    record->flops_per_step =
        (double)options->batch * model_flops_step(&flops, (double)run->shape.layers, 1, MODEL_RECOMPUTE_NONE);
    const size_t share = (options->batch + (size_t)record->ranks - 1) / (size_t)record->ranks;
    const pipe_layout_t layout = {.micro_batch = (share + options->accum - 1) / options->accum};
    record->layout = pipe_layout_complete(&layout, (size_t)record->ranks);
    record->peak_flops = options->peak_flops;
    gyre_status_t status =
        options->peak_flops > 0.0 ? GYRE_OK : train_peak_measure(run->comm, &record->peak_flops);
    if (status == GYRE_OK && (options->report || options->trace))
        status = train_timeline_create(run->comm, options, run->next, &run->timeline);
    return status;
}

static gyre_status_t set_up(run_t *run)
{
    const train_options_t *options = run->options;
    const optim_ddp_config_t ddp = {
        .batch = {.batch = options->batch}, .accum = options->accum, .bucket_bytes = options->bucket_bytes};
    run->record.first_val = run->record.final_val = NAN;
    gyre_status_t status = by_all(run, prepare);
    if (status == GYRE_OK && options->checkpoint)
        status = decide(run);
    if (status == GYRE_OK && run->resuming)
        status = by_all(run, resume);
    if (status == GYRE_OK && options->checkpoint)
        status = by_all(run, make_saver);
    if (status == GYRE_OK)
        status = optim_ddp_create(run->comm, run->params, run->gpt, &ddp, &run->ddp);
    if (status == GYRE_OK) /* the ranks' files may differ */
        status = optim_ddp_verify(run->ddp, run->flat, &run->record.hash);
    if (status != GYRE_OK)
        return status;
    size_t all = model_data_validation_count(run->data);
    run->val_count = all < run->options->eval_sequences ? all : run->options->eval_sequences;
    return set_up_record(run);
}

/* ---- training -------------------------------------------------------------------------------------------------- */

/* A sequence that cannot be read is one of whatever ids, and an error behind the step. */
static void note_fetched(run_t *run, gyre_status_t status)
{
    if (run->fetched == GYRE_OK)
        run->fetched = status;
}

static void fetch_train(void *user, size_t index, model_token_t *tokens, model_token_t *targets)
{
    run_t *run = user;
    const model_data_step_t step = {
        .seed = run->options->seed, .step = run->next, .samples = run->next * run->options->batch};
    note_fetched(run, model_data_train(run->data, &step, index, tokens, targets));
}

static void fetch_val(void *user, size_t index, model_token_t *tokens, model_token_t *targets)
{
    run_t *run = user;
    size_t all = model_data_validation_count(run->data);
    size_t place = (size_t)((double)index * (double)all / (double)run->val_count); /* spread evenly */
    note_fetched(run, model_data_validation(run->data, place < all ? place : all - 1, tokens, targets));
}

static gyre_status_t evaluate(run_t *run, double *loss)
{
    gyre_status_t status = optim_ddp_evaluate(run->ddp, fetch_val, run, run->val_count, loss);
    return status == GYRE_OK ? run->fetched : status;
}

/* Seconds of training, of all processes of this run. */
static double elapsed(const run_t *run)
{
    return run->before + (double)(base_now() - run->start) * 1e-9;
}

/* Rank 0 says whether this step is the last and how far the clock has come; its words reach all with the loss. */
static void take_notes(const run_t *run, double longest_step, optim_ddp_step_t *step)
{
    double limit = run->options->time_limit;
    double part = limit > 0.0 ? elapsed(run) / limit : 0.0;
    step->note[0] = interrupted || (limit > 0.0 && elapsed(run) + longest_step >= limit);
    step->note[1] = part < 1.0 ? part : 1.0;
}

/* One update. *stop: rank 0 wants it to be the last. */
static gyre_status_t update(run_t *run, const optim_schedule_t *schedule, train_step_t *out, int *stop)
{
    const train_options_t *options = run->options;
    base_time_t start = base_now();
    optim_ddp_step_t step = {.spans = train_timeline_begin(run->timeline, run->next + 1)};
    take_notes(run, out->seconds, &step);
    gyre_status_t status = optim_ddp_step(run->ddp, fetch_train, run, &step);
    if (status == GYRE_OK)
        status = run->fetched;
    double norm = 0.0, scale = 1.0 / (double)options->batch;
    if (status == GYRE_OK)
        status = optim_grad_norm(run->params, optim_ddp_grads(run->ddp), &norm);
    if (status != GYRE_OK)
        return status;
    norm *= scale;
    double rate = optim_schedule_rate(schedule, run->next, run->progress);
    if (!isfinite(step.loss) || !isfinite(norm)) {
        run->agreed = 1;
        if (run->rank != 0)
            return gyre_fail_quiet(GYRE_ERR_INVALID, "the loss is no longer finite");
        return gyre_fail(
            GYRE_ERR_INVALID,
            "step %llu: the loss (%g) or the gradient's norm (%g) is no longer finite: take a smaller "
            "--lr (it is %g), a longer --warmup or --clip 1",
            (unsigned long long)run->next + 1, step.loss, norm, options->lr);
    }
    base_time_t updating = model_spans_now(step.spans);
    optim_adamw_step(run->adamw, run->flat, optim_ddp_grads(run->ddp),
                     (float)(scale * optim_clip_factor(norm, options->clip)), rate);
    model_spans_add(step.spans, MODEL_SPAN_OPTIMISER, updating, model_spans_now(step.spans), -1, -1);
    run->progress = step.note[1];
    *stop = step.note[0] != 0.0;
    double seconds = (double)(base_now() - start) * 1e-9;
    *out = (train_step_t){.step = ++run->next,
                          .loss = step.loss,
                          .grad_norm = norm,
                          .lr = rate,
                          .val = NAN,
                          .seconds = seconds,
                          .compute_s = seconds - step.exposed_s,
                          .exposed_s = step.exposed_s,
                          .hidden_s = step.hidden_s,
                          .loss_scale = 1.0,
                          .bubble = NAN};
    return train_timeline_end(run->timeline, run->next);
}

static train_state_t state_of(const run_t *run)
{
    return (train_state_t){.step = run->next,
                           .ranks = (uint64_t)run->record.ranks,
                           .seconds = elapsed(run),
                           .progress = run->progress,
                           .first_val = run->record.first_val,
                           .final_val = run->record.final_val};
}

static int log_file(const run_t *run)
{
    return run->record.log ? fileno(run->record.log) : -1;
}

/* A checkpoint behind this step. */
static gyre_status_t save(run_t *run, double patience)
{
    const train_parts_t parts = parts_of(run);
    const train_state_t state = state_of(run);
    gyre_status_t status = train_save_step(&parts, run->saver, &state, log_file(run), patience, &run->saved);
    if (status == GYRE_OK && run->saved == GYRE_OK)
        run->saved_step = run->next;
    return status;
}

/* Behind an update: validation, record, checkpoint. */
static gyre_status_t settle(run_t *run, train_step_t *step, int stop)
{
    const train_options_t *options = run->options;
    gyre_status_t status = GYRE_OK;
    if (stop || (options->eval_every > 0 && run->next % options->eval_every == 0)) {
        status = evaluate(run, &step->val);
        run->record.final_val = step->val;
    }
    if (status == GYRE_OK && run->rank == 0) {
        status = train_record_step(&run->record, step);
        train_progress_step(&run->bar, step, run->record.tokens_per_step, stop);
    }
    if (status == GYRE_OK && options->checkpoint &&
        (stop || (options->checkpoint_every > 0 && run->next % options->checkpoint_every == 0)))
        status = save(run, stop ? SAVE_END_S : SAVE_PATIENCE_S);
    return status;
}

static gyre_status_t train(run_t *run)
{
    const train_options_t *options = run->options;
    const optim_schedule_t schedule = {
        .peak = options->lr, .floor = options->min_lr, .warmup = options->warmup, .steps = options->steps};
    train_step_t step = {0};
    gyre_status_t status = GYRE_OK;
    run->start = base_now();
    if (!run->resumed) {
        status = evaluate(run, &run->record.first_val);
        run->record.final_val = run->record.first_val;
    }
    if (run->rank == 0)
        train_progress_start(&run->bar, stderr, options->progress, run->next, options->steps, run->before,
                             options->time_limit);
    for (int stop = 0; status == GYRE_OK && !stop && run->next < options->steps;) {
        status = update(run, &schedule, &step, &stop);
        stop |= run->next == options->steps;
        if (status == GYRE_OK)
            status = settle(run, &step, stop);
    }
    if (run->rank == 0)
        train_progress_end(&run->bar);
    run->record.seconds = elapsed(run);
    return status == GYRE_OK ? optim_ddp_verify(run->ddp, run->flat, &run->record.hash) : status;
}

/* ---- what rank 0 leaves behind ------------------------------------------------------------------------------------ */

static gyre_status_t make_sample(run_t *run)
{
    const train_options_t *options = run->options;
    const model_sample_t how = {
        .temperature = options->temperature, .top_k = options->top_k, .seed = options->seed};
    model_token_t *tokens = NULL;
    size_t length;
    gyre_status_t status = train_words_prompt(run->tokenizer, options->prompt, run->shape.vocab,
                                              options->sample_tokens, &tokens, &length);
    if (status == GYRE_OK)
        status = model_sample(run->gpt, &run->shape, &how, tokens, &length, options->sample_tokens);
    if (status == GYRE_OK && !(run->record.sample = train_words_text(run->tokenizer, tokens, length)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", length);
    free(tokens);
    return status;
}

static void print_start(const run_t *run)
{
    printf("%.2f million parameters, %d rank%s, %llu x %zu tokens per step\n",
           (double)run->params->total / 1e6, run->record.ranks, run->record.ranks == 1 ? "" : "s",
           (unsigned long long)run->options->batch, run->shape.seq);
    printf("%llu %s in %zu file%s from %s, ", (unsigned long long)run->data->tokens,
           run->data->is_text ? "bytes of text" : "tokens", run->data->files,
           run->data->files == 1 ? "" : "s", run->options->data);
    printf(run->options->valid_data ? "%s for validation\n" : "the last tenth for validation\n",
           run->options->valid_data);
    if (run->resumed)
        printf("going on behind step %llu, from the checkpoint in %s\n", (unsigned long long)run->next,
               run->options->checkpoint);
    else if (run->resuming)
        printf("no checkpoint in %s yet: beginning with step 1\n", run->options->checkpoint);
    fflush(stdout);
}

static void print_end(const run_t *run)
{
    const train_record_t *record = &run->record;
    train_step_t total = train_record_total(record);
    if (interrupted)
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
        printf("training         %llu steps in %.1f s, %.0f tokens/s; communication: %.2f s exposed, %.2f s "
               "hidden\n",
               (unsigned long long)record->done, record->seconds,
               (double)record->steps * (double)record->tokens_per_step / fmax(total.seconds, 1e-9),
               total.exposed_s, total.hidden_s);
}

/* Where an output is, or that it is not. */
static void print_output(const char *name, const char *path, gyre_status_t status)
{
    if (path)
        printf("%-16s %s%s\n", name, path, status == GYRE_OK ? "" : ": not written");
}

/* Waits for the last checkpoint. */
static gyre_status_t finish_saving(run_t *run)
{
    gyre_status_t status = optim_saver_wait(run->saver, SAVE_END_S, NULL);
    return run->saved != GYRE_OK ? GYRE_ERR_IO : status;
}

/* What went wrong with one output is no reason to lose the others. Returns the first failure. */
static gyre_status_t leave_results(run_t *run)
{
    const train_options_t *options = run->options;
    enum { RECORD, WEIGHTS, CHECKPOINT, SAMPLE, REPORT, TRACE, SHOWN, OUTPUTS };
    gyre_status_t status[OUTPUTS] = {GYRE_OK};
    const train_watched_t *watched;
    size_t steps = train_timeline_steps(run->timeline, &watched);
    status[RECORD] = train_record_finish(&run->record);
    if (options->save)
        status[WEIGHTS] = model_checkpoint_save(options->save, run->params, run->flat);
    if (run->saver)
        status[CHECKPOINT] = finish_saving(run);
    if (options->sample_tokens > 0 && !run->tokenizer)
        log_warning("no sample of text: name the tokenizer of %s with --tokenizer", options->data);
    else if (options->sample_tokens > 0)
        status[SAMPLE] = make_sample(run);
    if (options->report)
        status[REPORT] = train_report_write(options->report, options, &run->record, run->data,
                                            steps > 0 ? &watched[steps - 1] : NULL);
    if (options->trace)
        status[TRACE] = train_trace_write(options->trace, &run->record, watched, steps);
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

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

static gyre_status_t run_together(run_t *run)
{
    gyre_status_t status = set_up(run);
    if (status != GYRE_OK)
        return status;
    if (run->rank == 0) {
        print_start(run);
        status = run->resumed ? train_record_resume(&run->record, run->options->log, run->options, run->data,
                                                    run->next)
                              : train_record_start(&run->record, run->options, run->data);
        if (status != GYRE_OK)
            return status;
    }
    watch_signals();
    return train(run);
}

/* The others are lost, but what rank 0 holds is whole: the state behind the last step that is in the record. It becomes a
 * checkpoint, so that no step is made twice. Weights that differ between ranks (MISMATCH) do not, nor does a run that ends
 * by its own fault. */
static void save_what_is_left(run_t *run, gyre_status_t status)
{
    uint64_t newest = UINT64_MAX;
    base_time_t until = base_deadline(SAVE_PATIENCE_S);
    if (run->rank != 0 || !run->saver || gyre_status_scope(status) != GYRE_SCOPE_COMMUNICATOR ||
        status == GYRE_ERR_MISMATCH)
        return;
    if (run->next > 0 && run->record.done == run->next && run->saved_step != run->next) {
        const train_parts_t parts = parts_of(run);
        const train_state_t state = state_of(run);
        (void)train_save_alone(&parts, run->saver, &state, log_file(run), SAVE_PATIENCE_S / 3);
    }
    if (optim_saver_wait(run->saver, (double)(until - base_now()) * 1e-9, &newest) == GYRE_OK &&
        newest != UINT64_MAX)
        log_warning(
            "the newest checkpoint in %s is of step %llu: the same command with --resume goes on behind it",
            run->options->checkpoint, (unsigned long long)newest);
}

/* Leaves the job; other ranks do not wait for one that failed alone. */
static gyre_status_t leave(run_t *run, gyre_status_t status)
{
    if (status != GYRE_OK && !run->agreed) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", gyre_last_error());
        gyre_comm_abort(run->comm, reason);
    }
    optim_ddp_destroy(run->ddp);
    run->ddp = NULL;
    gyre_status_t left = gyre_finalize(run->comm);
    run->comm = NULL;
    if (status != GYRE_OK)
        save_what_is_left(run, status);
    return status != GYRE_OK ? status : left;
}

static int exit_code(gyre_status_t status, int trained)
{
    if (status == GYRE_OK)
        return TRAIN_OK;
    int input = status == GYRE_ERR_INVALID || status == GYRE_ERR_NOT_FOUND || status == GYRE_ERR_FORMAT;
    return input && !trained ? TRAIN_USAGE : TRAIN_ERROR;
}

int train_run(train_options_t *options)
{
    run_t run = {.options = options};
    int trained = 0;
    gyre_status_t status = join(&run);
    if (status == GYRE_OK) {
        status = run_together(&run);
        trained = run.start > 0;
        status = leave(&run, status);
    }
    if (status == GYRE_OK && run.rank == 0)
        status = leave_results(&run);
    if (status == GYRE_OK && run.rank != 0 && run.saver)
        status = optim_saver_wait(run.saver, SAVE_END_S, NULL);
    int ended = optim_saver_destroy(run.saver, 1.0); /* a last moment for what is under way */
    train_timeline_destroy(run.timeline);
    train_record_free(&run.record);
    optim_adamw_destroy(run.adamw);
    model_gpt_destroy_f32(run.gpt);
    free(run.flat);
    if (ended)
        model_params_destroy(run.params);
    model_tokenizer_destroy(run.tokenizer);
    model_data_destroy(run.data);
    return exit_code(status, trained);
}
