/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/session.c: a run from the command line: the engine's steps, signals, and what the
 * terminal shows. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/gyre-train/options.h"
#include "tools/gyre-train/progress.h"
#include "tools/gyre-train/results.h"
#include "tools/gyre-train/session.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1; /* the run ends after the present step; a second signal kills */
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

static gyre_status_t train(train_run_t *run)
{
    const train_config_t *options = run->options;
    train_progress_t bar;
    train_step_t step = {0};
    gyre_status_t status = train_start(run);
    if (run->rank == 0)
        train_progress_start(&bar, stderr, options->progress, run->next, options->steps, run->before,
                             options->time_limit);
    for (int stop = 0; status == GYRE_OK && !stop && run->next < options->steps;) {
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
    if (status == GYRE_OK)
        return TRAIN_OK;
    int input = status == GYRE_ERR_INVALID || status == GYRE_ERR_NOT_FOUND || status == GYRE_ERR_FORMAT ||
                status == GYRE_ERR_UNSUPPORTED;
    return input && !trained ? TRAIN_USAGE : TRAIN_ERROR;
}

int train_session(train_config_t *options)
{
    train_run_t run = {.options = options, .interrupted = &interrupted};
    int trained = 0;
    gyre_status_t status = train_join(&run, NULL);
    if (status == GYRE_OK) {
        status = train_set_up(&run);
        if (status == GYRE_OK && run.rank == 0)
            train_print_start(&run);
        if (status == GYRE_OK) {
            watch_signals();
            status = train(&run);
        }
        trained = run.start > 0 && !(run.train && pipe_train_unread(run.train));
        status = train_leave(&run, status);
    }
    if (status == GYRE_OK && run.rank == 0)
        status = train_print_results(&run, interrupted);
    if (status == GYRE_OK && run.rank != 0 && run.saver)
        status = optim_saver_wait(run.saver, SAVE_END_S, NULL);
    train_free(&run);
    return exit_code(status, trained);
}
