/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/run.c: the steps of a run, from the first to the last. Every rank runs all of it; rank 0
 * also keeps the record. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "collectives/run/communicator.h"
#include "optim/schedule.h"
#include "pipeline/train/run.h"

/* With a loss scale: so many steps in a row whose loss is not finite are a run that will learn nothing more.
 * The loss does not depend on the scale, so a smaller one mends none of them. */
#define UNSOUND_STEPS 20
/* How long ranks that wait for checkpoints do not hear of one another, at most. */
#define AWAIT_S 1.0
/* How often rank 0 looks whether a rank has died, while it waits for a checkpoint. */
#define LOOK_S 0.05
/* After this time other ranks see what a thread was asked to write. */
#define BEGUN_S 2.0

/* ---- steps --------------------------------------------------------------------------------------------- */

/* What a rank asks of all: bits of pipe_train_step_t. WAIT: that a checkpoint which is owed is not begun yet,
 * since this rank still writes the one before. */
enum { ASK_INT = 1, ASK_TERM = 2, ASK_SAVE = 4, ASK_WAIT = 8 };

static unsigned asks(void *user)
{
    const train_run_t *run = user;
    int signal = run->signal ? *run->signal : 0;
    unsigned save = run->saves && *run->saves != run->saves_seen ? ASK_SAVE : 0;
    return save | (signal == SIGTERM ? ASK_TERM : signal != 0 ? ASK_INT : 0);
}

/* What any rank asks for. */
static void take_requests(train_run_t *run, unsigned asked)
{
    if (asked & (ASK_TERM | ASK_INT))
        run->stopped = asked & ASK_TERM ? SIGTERM : SIGINT;
    if (asked & ASK_SAVE)
        run->save_asked = 1;
}

/* During a validation; before the first step there is nothing to save, and after a checkpoint of this step,
 * of this process or of the one before it, nothing more. */
static unsigned asks_meanwhile(void *user)
{
    const train_run_t *run = user;
    const int saved = run->begun == run->next || run->saved_step == run->next;
    return asks(user) & (saved ? ~(unsigned)ASK_SAVE : ~0u);
}

gyre_status_t train_evaluate(train_run_t *run, double *each, double *mean)
{
    const size_t sets = run->data->sets;
    unsigned asked = 0;
    double sum = 0.0;
    gyre_status_t status = GYRE_OK;
    for (size_t s = 0; s < sets; s++)
        each[s] = NAN;
    for (size_t s = 0; status == GYRE_OK && asked == 0 && s < sets; s++) {
        run->val_set = s;
        status = pipe_train_evaluate(run->train, train_fetch_validation, run, run->val_count[s],
                                     asks_meanwhile, &asked, &each[s]);
        run->agreed |= pipe_train_unread(run->train);
        sum += each[s];
    }
    take_requests(run, asked);
    *mean = sets > 0 && asked == 0 ? sum / (double)sets : NAN;
    return status;
}

/* Seconds of training, of all processes of this run. */
static double elapsed(const train_run_t *run)
{
    return run->before + (double)(base_now() - run->start) * 1e-9;
}

/* Rank 0 says whether this step is the last and how far the clock has come; its words reach all with the
 * loss. */
static void take_notes(train_run_t *run, double longest_step, pipe_train_step_t *step)
{
    double limit = run->options->time_limit;
    double part = limit > 0.0 ? elapsed(run) / limit : 0.0;
    const int waits = run->save_owed && run->saver && !optim_saver_ready(run->saver, 0.0);
    step->asked = asks(run) | (waits ? ASK_WAIT : 0);
    step->note[0] = (limit > 0.0 && elapsed(run) + longest_step >= limit);
    step->note[1] = part < 1.0 ? part : 1.0;
}

/* An error that all ranks come to by themselves, since all know the same: rank 0 logs it. */
#define DIVERGED(run, ...)                                                          \
    ((run)->agreed = 1, (run)->rank == 0 ? gyre_fail(GYRE_ERR_INVALID, __VA_ARGS__) \
                                         : gyre_fail_quiet(GYRE_ERR_INVALID, __VA_ARGS__))

/* Whether this step's numbers are those of a run that goes on. `before`: the loss scale's state in front of
 * it; NULL: there is none. An overflow that a smaller scale may end is no error. */
static gyre_status_t check_sound(train_run_t *run, const pipe_train_step_t *step,
                                 const optim_scaler_t *before)
{
    unsigned long long number = (unsigned long long)run->next + 1;
    double lr = run->options->lr, least = run->options->loss_scale_min;
    run->unsound = isfinite(step->loss) ? 0 : run->unsound + 1;
    if (!before && number == 1 && run->options->load && !isfinite(step->loss))
        return DIVERGED(run,
                        "step 1: the loss is not finite (%g) before any update: %s has weights that are no "
                        "numbers, or are too large",
                        step->loss, run->options->load);
    if (!before && (!isfinite(step->loss) || !isfinite(step->zero.norm)))
        return DIVERGED(run,
                        "step %llu: the loss (%g) or the gradient's norm (%g) is no longer finite: take a "
                        "smaller --lr (it is %g), a longer --warmup or --clip 1",
                        number, step->loss, step->zero.norm, lr);
    if (before && run->unsound >= UNSOUND_STEPS)
        return DIVERGED(
            run,
            "step %llu: the loss is not finite (%g) for the %dth step in a row, which no loss scale "
            "(it is %g) can help: take a smaller --lr (it is %g), a longer --warmup or --precision "
            "bf16",
            number, step->loss, UNSOUND_STEPS, before->scale, lr);
    if (before && step->zero.skipped && before->scale <= least && before->left <= 1)
        return DIVERGED(
            run,
            "step %llu: gradients are not finite (the loss is %g) though the loss scale (%g) is the least "
            "that it "
            "may be: take a smaller --lr (it is %g), a longer --warmup, a smaller --loss-scale-min or "
            "--precision bf16",
            number, step->loss, before->scale, lr);
    return GYRE_OK;
}

static optim_spike_config_t spikes_of(const train_run_t *run)
{
    const train_config_t *o = run->options;
    return (optim_spike_config_t){o->spike_loss, o->spike_norm, o->spike_window};
}

static void log_spike(const train_run_t *run, const pipe_train_step_t *step, const optim_spike_limit_t *limit)
{
    const int by_loss = step->loss > limit->loss;
    if (run->rank == 0)
        log_warning("step %llu is skipped: its %s is %.6g, more than %g times the median of the %llu steps "
                    "before, %.6g",
                    (unsigned long long)run->next + 1, by_loss ? "loss" : "gradient norm",
                    by_loss ? step->loss : step->zero.norm,
                    by_loss ? run->options->spike_loss : run->options->spike_norm,
                    (unsigned long long)run->options->spike_window,
                    by_loss ? limit->median_loss : limit->median_norm);
}

/* Whether the step was a spike, for the log and for later steps. */
static train_spike_t note_spike(train_run_t *run, const pipe_train_step_t *step,
                                const optim_spike_limit_t *limit)
{
    const optim_spike_config_t config = spikes_of(run);
    if (step->zero.spiked)
        log_spike(run, step, limit);
    run->record.spikes = run->spike.skipped += step->zero.spiked != 0;
    if (config.loss > 0.0 || config.norm > 0.0)
        optim_spike_note(&run->spike, &config, step->loss, step->zero.norm);
    return !step->zero.spiked         ? TRAIN_SPIKE_NONE
           : step->loss > limit->loss ? TRAIN_SPIKE_LOSS
                                      : TRAIN_SPIKE_NORM;
}

/* A step whose batch teaches nothing: the first of them is worth a line. */
static void note_unlearned(train_run_t *run, size_t batch)
{
    if (run->warned_unlearned || run->rank != 0)
        return;
    run->warned_unlearned = 1;
    log_warning(
        "step %llu: no token of its %zu sequences is learned, so its loss is 0; "
        "the log has \"unlearned\" for such steps. Take --sampling packed (whole documents), a longer "
        "--seq or a larger --batch",
        (unsigned long long)run->next + 1, batch);
}

/* One update. *stop: rank 0 wants it to be the last. */
static gyre_status_t update(train_run_t *run, train_step_t *out, int *stop)
{
    const train_config_t *options = run->options;
    const optim_schedule_t schedule = {.peak = options->lr,
                                       .floor = options->min_lr,
                                       .warmup = options->warmup,
                                       .steps = options->lr_decay ? options->lr_decay : options->steps,
                                       .cooldown = options->lr_cooldown,
                                       .curve = (optim_curve_t)options->lr_schedule};
    base_time_t start = base_now();
    pipe_train_step_t step = {.spans = train_timeline_begin(run->timeline, run->next + 1)};
    take_notes(run, run->longest_step, &step);
    const optim_spike_config_t spikes = spikes_of(run);
    const optim_spike_limit_t limit = optim_spike_limit(&run->spike, &spikes);
    step.limit[0] = limit.loss;
    step.limit[1] = limit.norm;
    double rate = optim_schedule_rate(&schedule, run->next, run->progress);
    size_t batch = optim_ramp_at(&run->ramp, &run->ramp_at, run->next, &run->before_next);
    const optim_scaler_t *scaler = optim_zero_scaler(pipe_train_zero(run->train));
    const optim_scaler_t before = scaler ? *scaler : (optim_scaler_t){.scale = 1.0};
    gyre_status_t status = pipe_train_resize(run->train, batch);
    if (status == GYRE_OK)
        status = pipe_train_step(run->train, run->next, train_fetch, run, rate, &step);
    run->agreed |= pipe_train_unread(run->train);
    if (status == GYRE_OK)
        status = check_sound(run, &step, scaler ? &before : NULL);
    if (status != GYRE_OK)
        return status;
    const train_spike_t spike = note_spike(run, &step, &limit);
    if (step.learned == 0.0)
        note_unlearned(run, batch);
    run->progress = step.note[1];
    take_requests(run, step.asked);
    run->save_asked |= run->save_owed && !(step.asked & ASK_WAIT);
    *stop = run->stopped || step.note[0] != 0.0;
    double seconds = run->longest_step = (double)(base_now() - start) * 1e-9;
    double waited = step.zero.exposed_s + step.pipe_wait_s + step.tensor_s + step.join_s;
    *out = (train_step_t){.step = ++run->next,
                          .loss = step.loss,
                          .grad_norm = step.zero.norm,
                          .lr = rate,
                          .batch = batch,
                          .balance = step.balance,
                          .dropped = step.dropped,
                          .z_loss = step.z_loss,
                          .router_z = step.router_z,
                          .val = NAN,
                          .seconds = seconds,
                          .compute_s = isnan(waited) ? NAN : fmax(seconds - waited, 0.0),
                          .exposed_s = waited,
                          .hidden_s =
                              isnan(waited) ? NAN : fmin(step.zero.hidden_s, fmax(seconds - waited, 0.0)),
                          .loss_scale = before.scale,
                          .skipped = step.zero.skipped,
                          .unlearned = step.learned == 0.0,
                          .spike = spike,
                          .bubble = pipe_train_layout(run->train)->pp > 1 ? step.pipe_wait_s / seconds : NAN};
    return train_timeline_end(run->timeline, run->next);
}

static train_state_t state_of(const train_run_t *run)
{
    const optim_scaler_t *scaler = optim_zero_scaler(pipe_train_zero(run->train));
    train_state_t state = {.step = run->next,
                           .ranks = (uint64_t)gyre_comm_size(run->comm),
                           .seconds = elapsed(run),
                           .progress = run->progress,
                           .first_val = run->record.first_val,
                           .final_val = run->record.final_val,
                           .id = run->record.id,
                           .scaler = scaler ? *scaler : run->scaler,
                           .spike = run->spike,
                           .unvalidated = run->unvalidated,
                           .unlearned = run->record.unlearned};
    optim_ramp_at_t at = run->ramp_at;
    (void)optim_ramp_at(&run->ramp, &at, run->next, &state.sequences);
    memcpy(state.set, run->record.set, sizeof state.set);
    return state;
}

static int log_file(const train_run_t *run)
{
    return run->record.log ? fileno(run->record.log) : -1;
}

gyre_status_t train_save(train_run_t *run, double patience)
{
    const train_parts_t parts = train_parts_of(run);
    const train_state_t state = state_of(run);
    gyre_status_t status = train_save_step(&parts, run->saver, &state, log_file(run), patience, &run->saved);
    if (status == GYRE_OK && run->saved == GYRE_OK)
        run->saved_step = run->next;
    if (status == GYRE_OK && run->saved != GYRE_IN_PROGRESS)
        run->begun = run->next;
    return status;
}

gyre_status_t train_await(train_run_t *run)
{
    const base_time_t until = base_deadline(SAVE_END_S);
    int64_t done = 0;
    gyre_status_t status = GYRE_OK;
    for (double pause = 0.25; status == GYRE_OK && !done; pause = fmin(2.0 * pause, AWAIT_S)) {
        int ready = !run->saver || optim_saver_ready(run->saver, run->hung ? 0.0 : pause);
        run->hung = !ready && (run->hung || base_now() >= until);
        done = ready || run->hung;
        status = gyre_all_reduce(&done, &done, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), run->comm);
    }
    return status;
}

/* 1: it is time for something that is done every so many steps; 0: never. */
static int is_due(const train_run_t *run, uint64_t every)
{
    return every > 0 && run->next % every == 0;
}

/* 1: a validation is due after the last step, and was not made: `val` is NaN. */
static int owes(const train_run_t *run, double val)
{
    const int due = is_due(run, run->options->eval_every) || run->next == run->options->steps;
    return due && run->data->sets > 0 && isnan(val);
}

/* Signals that want a checkpoint now put a validation off, or end it. */
static gyre_status_t validate(train_run_t *run, double *loss)
{
    double each[MODEL_DATA_SETS];
    if (run->stopped || run->save_asked)
        return GYRE_OK;
    gyre_status_t status = train_evaluate(run, each, loss);
    if (run->stopped || run->save_asked)
        return status;
    run->record.final_val = *loss;
    for (size_t s = 0; s < run->data->sets; s++)
        run->record.set[s].final_val = each[s];
    return status;
}

/* The checkpoint after a step, if one is wanted. */
static gyre_status_t save_step(train_run_t *run, int stop)
{
    const train_config_t *options = run->options;
    const int asked = run->save_asked;
    gyre_status_t status = GYRE_OK;
    run->save_asked = 0;
    if (asked && run->saves)
        run->saves_seen = *run->saves;
    if (!options->checkpoint) {
        if (asked && run->rank == 0)
            log_warning("SIGUSR1: there is no --checkpoint to save to");
        return GYRE_OK;
    }
    if (!stop && !asked && !is_due(run, options->checkpoint_every))
        return GYRE_OK;
    if (stop)
        status = train_await(run); /* none is left out at the end */
    if (status == GYRE_OK)
        status = train_save(run, stop ? 0.0 : SAVE_PATIENCE_S);
    run->save_owed = run->saved == GYRE_IN_PROGRESS && (asked || run->save_owed);
    return status == GYRE_OK && run->stopped ? train_await(run) : status;
}

/* After an update: validation, record, checkpoint. After a signal the checkpoint comes first: who sends one
 * kills in half a minute. A rank that dies in the validation does not undo the step: it is recorded, so that
 * rank 0 saves what it holds (save_what_is_left), and a run that goes on with it validates first. */
static gyre_status_t settle(train_run_t *run, train_step_t *step, int *stop)
{
    gyre_status_t status = GYRE_OK;
    if (*stop || is_due(run, run->options->eval_every))
        status = validate(run, &step->val);
    run->unvalidated = owes(run, step->val);
    const int put_off = *stop && run->save_asked; /* the validation at the run's end */
    *stop |= run->stopped != 0;
    const gyre_status_t recorded = run->rank == 0 ? train_record_step(&run->record, step) : GYRE_OK;
    if (status == GYRE_OK)
        status = recorded;
    if (status == GYRE_OK)
        status = save_step(run, *stop);
    if (status == GYRE_OK && put_off)
        status = validate(run, &step->val);
    run->unvalidated = owes(run, step->val);
    /* again: a checkpoint of the last step says what a run that goes on with it prints */
    return status == GYRE_OK && put_off && !isnan(step->val) ? save_step(run, 1) : status;
}

/* Of a resumed run: the validation after its last step, which a signal or a failure ended. */
static gyre_status_t make_up(train_run_t *run, double *val)
{
    if (!run->unvalidated || run->data->sets == 0)
        return GYRE_OK;
    if (run->rank == 0)
        log_info("the validation after step %llu was not made: it is made now",
                 (unsigned long long)run->next);
    const gyre_status_t status = validate(run, val);
    run->unvalidated = isnan(*val) != 0;
    return status;
}

gyre_status_t train_start(train_run_t *run)
{
    const train_config_t *options = run->options;
    gyre_status_t status = GYRE_OK;
    double val = NAN;
    if (run->resumed && run->rank == 0)
        status = train_record_check(&run->record, options->log);
    if (status != GYRE_OK)
        return status;
    run->start = base_now();
    status = make_up(run, &val);
    if (status == GYRE_OK && run->rank == 0)
        status = run->resumed
                     ? train_record_resume(&run->record, options->log, options, run->data, run->next, val)
                     : train_record_start(&run->record, options, run->data);
    if (status == GYRE_OK && (options->report || options->trace))
        status = train_timeline_create(run->comm, options, run->next, &run->timeline);
    if (status != GYRE_OK)
        return status;
    if (run->rank == 0 && options->checkpoint)
        train_resume_note(options->checkpoint);
    if (!run->resumed) {
        double each[MODEL_DATA_SETS];
        status = train_evaluate(run, each, &run->record.first_val);
        run->record.final_val = run->record.first_val;
        for (size_t s = 0; s < run->data->sets; s++)
            run->record.set[s].first_val = run->record.set[s].final_val = each[s];
    }
    return status;
}

gyre_status_t train_advance(train_run_t *run, train_step_t *step, int *stop)
{
    *stop = 0;
    gyre_status_t status = update(run, step, stop);
    *stop |= run->next == run->options->steps;
    return status == GYRE_OK ? settle(run, step, stop) : status;
}

gyre_status_t train_conclude(train_run_t *run)
{
    run->record.seconds = elapsed(run);
    gyre_status_t status = pipe_train_verify(run->train);
    if (status == GYRE_OK)
        status = pipe_train_digest(run->train, &run->record.hash);
    if (status == GYRE_OK) /* the first steps may have taken some */
        status = train_gather_memory(run);
    if (status == GYRE_OK)
        status = train_write_weights(run);
    if (status == GYRE_OK)
        status = train_await(run);
    return status == GYRE_OK && !run->stopped ? train_gather_sample(run) : status;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Waits for the checkpoint under way, and says where a run goes on. */
static void name_newest(train_run_t *run, double patience)
{
    uint64_t newest = UINT64_MAX;
    if (optim_saver_wait(run->saver, patience, &newest) == GYRE_OK && newest != UINT64_MAX)
        log_warning(
            "the newest checkpoint in %s is of step %llu: the same command with --resume goes on after it",
            run->options->checkpoint, (unsigned long long)newest);
}

/* To the saver: who has died. A rank that left after an error finishes its shard. */
static void name_dead(train_run_t *run)
{
    for (int r = 0; r < gyre_comm_size(run->comm); r++)
        if (coll_comm_has_died(run->comm, r))
            optim_saver_lost(run->saver, (size_t)r, SAVE_LOST_S);
}

/* The others are lost, but what rank 0 holds may be whole: the state after the last step that is in the
 * record. It becomes a checkpoint, so that no step is made twice. Weights that differ between ranks
 * (MISMATCH) do not, nor does a run that ends by its own fault. What takes longer than a moment is waited for
 * when this rank has left the job: train_free. */
static void save_what_is_left(train_run_t *run, gyre_status_t status)
{
    uint64_t step = run->begun;
    const base_time_t until = base_deadline(SAVE_PATIENCE_S);
    if (run->rank != 0 || !run->saver || gyre_status_scope(status) != GYRE_SCOPE_COMMUNICATOR ||
        status == GYRE_ERR_MISMATCH)
        return;
    if (run->next > 0 && run->record.done == run->next && run->saved_step != run->next) {
        const train_parts_t parts = train_parts_of(run);
        const train_state_t state = state_of(run);
        if (train_save_alone(&parts, run->saver, &state, log_file(run), SAVE_PATIENCE_S / 3))
            step = run->next;
    }
    /* A rank that heard of a death first may have aborted the job before the news came here. */
    do
        name_dead(run);
    while (!optim_saver_ready(run->saver, LOOK_S) && base_now() < until);
    run->unnamed = !optim_saver_ready(run->saver, 0.0);
    if (run->unnamed)
        log_warning(
            "the checkpoint of step %llu is still being written to %s: this rank ends when it is done",
            (unsigned long long)step, run->options->checkpoint);
    else
        name_newest(run, 0.0);
}

void train_abort(train_run_t *run)
{
    char reason[512];
    if (run->agreed || !run->comm)
        return;
    snprintf(reason, sizeof reason, "%s", gyre_last_error());
    gyre_comm_abort(run->comm, reason);
    pipe_train_abort(run->train, reason); /* nobody waits there for what does not come any more */
}

/* A rank that ends with an error has its launcher end the others. Rank 0 is among them, and may still be
 * writing the last checkpoint or waiting for shards. So it ends after rank 0, as far as the folder shows.
 * What was begun just now may not be in there yet. */
static void wait_for_rank_0(const train_run_t *run)
{
    const base_time_t until = base_deadline(SAVE_END_S), begun = base_deadline(BEGUN_S);
    for (double pause = 0.02; base_now() < until; pause = fmin(2.0 * pause, 1.0)) {
        int busy = optim_snapshot_busy(run->options->checkpoint, run->id);
        if (!busy && (optim_snapshot_has(run->options->checkpoint, run->begun) || base_now() >= begun))
            return;
        (void)nanosleep(
            &(struct timespec){.tv_sec = (time_t)pause, .tv_nsec = (long)((pause - floor(pause)) * 1e9)},
            NULL);
    }
}

gyre_status_t train_leave(train_run_t *run, gyre_status_t status)
{
    if (status != GYRE_OK) {
        train_abort(run);
        save_what_is_left(run, status);
        if (run->agreed && run->begun > 0)
            (void)train_await(run);
    }
    pipe_train_leave(run->train);
    gyre_status_t left = run->borrowed ? gyre_comm_destroy(run->comm) : gyre_finalize(run->comm);
    pipe_train_release(run->train);
    run->comm = NULL;
    int alive = !run->agreed && status != GYRE_ERR_PEER_DEAD; /* rank 0, as far as this one knows */
    if (status != GYRE_OK && alive && run->rank != 0 && run->begun > 0 && run->options->checkpoint)
        wait_for_rank_0(run);
    return status != GYRE_OK ? status : left;
}

void train_free(train_run_t *run)
{
    if (run->unnamed)
        name_newest(run, run->hung ? 0.0 : SAVE_END_S);
    int ended = optim_saver_destroy(run->saver, run->hung || run->unnamed ? 0.0 : SAVE_END_S);
    train_timeline_destroy(run->timeline);
    train_record_free(&run->record);
    if (ended && !run->stuck) { /* else its thread may still look at the table, and write */
        pipe_train_destroy(run->train);
        optim_lock_leave(run->lock);
    }
    free(run->weights);
    model_hf_origin_close(run->origin);
    pipe_source_close(run->source);
    model_tokenizer_destroy(run->tokenizer);
    model_infill_destroy(run->infill);
    model_data_destroy(run->data);
}
