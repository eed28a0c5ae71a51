/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/session.c: a run from the command line: the engine's steps, signals, and what the
 * terminal shows. */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "tools/gyre-train/cut_file.h"
#include "tools/gyre-train/progress.h"
#include "tools/gyre-train/results.h"
#include "tools/gyre-train/session.h"
#include "tools/shared/job.h"

static volatile sig_atomic_t stop_signal, saves;

/* The run ends after the present step. */
static void on_stop(int number)
{
    stop_signal = number;
}

/* It goes on. */
static void on_save(int number)
{
    (void)number;
    saves = (saves + 1) % 1000;
}

/* Unless it is ignored, as a shell's & leaves SIGINT. */
static void watch_signal(int number, void (*handler)(int), int flags)
{
    struct sigaction before, action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

/* A person who presses ^C twice means it. SIGTERM may come from several sides (a scheduler, and the launcher
 * that passes it on), and their next signal is SIGKILL. */
static void watch_signals(void)
{
    watch_signal(SIGINT, on_stop, (int)SA_RESETHAND);
    watch_signal(SIGTERM, on_stop, 0);
}

/* Not one more step fits in --time-limit, by the mean of the parts before. On all ranks the same. */
static int out_of_time(const train_run_t *run)
{
    const double limit = run->options->time_limit;
    return run->resumed && limit > 0.0 && run->before + run->before / (double)(run->next + 1) >= limit;
}

static gyre_status_t train(train_run_t *run)
{
    const train_config_t *options = run->options;
    train_progress_t bar;
    train_step_t step = {0};
    gyre_status_t status = train_start(run);
    if (run->rank == 0)
        train_progress_start(&bar, stderr, options->progress, run->next,
                             run->next - optim_zero_steps(pipe_train_zero(run->train)), options->steps,
                             run->before, options->time_limit, run->resumed ? run->record.final_val : NAN);
    const int late = status == GYRE_OK && run->next < options->steps && out_of_time(run);
    if (late && run->rank == 0)
        log_warning("the time limit (%g s) was used up by earlier parts of this run: raise --time-limit",
                    options->time_limit);
    for (int stop = run->stopped || late; status == GYRE_OK && !stop && run->next < options->steps;) {
        status = train_advance(run, &step, &stop);
        if (status == GYRE_OK && run->rank == 0)
            train_progress_step(&bar, &step, step.batch * run->shape.seq, stop);
    }
    if (run->rank == 0)
        train_progress_end(&bar);
    return status == GYRE_OK ? train_conclude(run) : status;
}

/* trained: steps were tried, with input that was good as far as one saw. */
static int exit_code(gyre_status_t status, int trained)
{
    const int code = job_exit(status);
    return code == JOB_USAGE && trained ? JOB_ERROR : code;
}

/* Rank 0 writes and prints. */
static gyre_status_t finish(train_run_t *run)
{
    if (run->rank == 0)
        return train_print_results(run);
    return run->saver ? optim_saver_wait(run->saver, 0.0, NULL) : GYRE_OK;
}

int train_session(train_config_t *options)
{
    train_run_t run = {.options = options, .signal = &stop_signal, .saves = &saves};
    int trained = 0, early = 0;
    watch_signal(SIGUSR1, on_save, 0); /* early: it must not end a run that is being set up */
    train_watch_files(&run);
    gyre_status_t finished = GYRE_OK, status = train_join(&run, NULL);
    if (status == GYRE_OK) {
        status = train_set_up(&run);
        if (status == GYRE_OK) {
            watch_signals();
            if (run.rank == 0)
                train_print_start(&run);
            status = train(&run);
        }
        trained = run.start > 0 && !(run.train && pipe_train_unread(run.train));
        early = status == GYRE_OK && run.stopped && run.next < options->steps;
        /* All ranks return a status that is not 0 then, which has a launcher end the others: rank 0 must have
         * written its outputs when the first one leaves. */
        if (early)
            finished = finish(&run);
        status = train_leave(&run, status);
    }
    if (status == GYRE_OK && !early)
        finished = finish(&run);
    status = status == GYRE_OK ? finished : status;
    train_watch_files(NULL);
    train_free(&run);
    return status == GYRE_OK && early ? 128 + run.stopped : exit_code(status, trained);
}
