/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/engines/supervise.c: supervises an engine that is another program (foreign.h): signals,
 * deadline, restarts, and its end if ucx-run is killed. The engine inherits ucx-run's input and output; its
 * exit code is what it makes of its ranks'.
 *
 * The engine always gets TERM first: mpirun that is killed outright leaves its ranks running. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "tools/ucx-run/engines/foreign.h"

#define TERM_SECONDS 3.0 /* at least, for an engine to end its ranks */

typedef struct {
    const run_options_t *options;
    pid_t pid;
    int status;
    /* it is in ucx-run's process group, and the terminal's signals reach it directly */
    int shares_terminal;
    int interrupts;
    int stopped;  /* from outside: no restart */
    int ended_by; /* the first signal from outside that ends; 0: no such signal */
    int rc;       /* decided by ucx-run; 0: its own */
    int rc_kill;  /* what it is should the engine have to be killed; 0: its own */
    base_time_t timeout, kill;
} tend_t;

static int make_output_folders(const run_options_t *o)
{
    char path[PATH_MAX];
    for (int r = 0; r < o->ranks; r++) {
        int n = snprintf(path, sizeof path, "%s/rank.%d", o->output_dir, r);
        if (n >= (int)sizeof path || (mkdir(o->output_dir, 0777) != 0 && errno != EEXIST) ||
            (mkdir(path, 0777) != 0 && errno != EEXIST)) {
            run_say("ucx-run: --output-filename: cannot make '%s': %s", path, strerror(errno));
            return RUN_RC_SYSTEM;
        }
    }
    return 0;
}

static void __attribute__((noreturn))
become(const tend_t *t, char **command, char **environment, pid_t launcher)
{
    if (!t->shares_terminal)
        setpgid(0, 0);
    /* No PR_SET_PDEATHSIG: if ucx-run is killed, the leash asks the engine to end. mpirun that is asked twice
     * gives up at once and leaves its ranks running. */
    if (getppid() != launcher)
        _exit(RUN_RC_SYSTEM);
    run_environment_drop_identity(); /* of a job around this one; the engine would pass it on */
    for (; *environment; environment++)
        putenv(*environment);
    if (t->options->stdin_to == RUN_STDIN_NONE) {
        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, 0) != 0)
            _exit(RUN_RC_SYSTEM);
    }
    run_undo_launcher();
    execvp(command[0], command);
    fprintf(stderr, "ucx-run: cannot execute %s: %s\n", command[0], strerror(errno));
    _exit(errno == ENOENT ? RUN_RC_NOT_FOUND : RUN_RC_NOT_RUNNABLE);
}

static int start(tend_t *t, const run_job_t *job)
{
    char **environment = run_foreign_environment(t->options, job, 0);
    char **command = environment ? run_foreign_command(t->options, environment) : NULL;
    pid_t self = getpid();
    fflush(NULL);
    t->pid = command ? fork() : -1;
    if (t->pid == 0)
        become(t, command, environment, self);
    int why = command ? errno : ENOMEM;
    if (t->pid > 0)
        run_leash_add(t->pid);
    else
        run_say("ucx-run: cannot start %s: %s", run_foreign_program(t->options->engine), strerror(why));
    run_words_free(command);
    run_words_free(environment);
    return t->pid > 0 ? 0 : RUN_RC_SYSTEM;
}

/* It is killed after `grace` at the latest; asked before, perhaps sooner. */
static void limit(tend_t *t, double grace)
{
    base_time_t kill_at = base_deadline(grace > TERM_SECONDS ? grace : TERM_SECONDS);
    t->kill = kill_at < t->kill ? kill_at : t->kill;
}

static void end_it(tend_t *t, double grace)
{
    kill(t->pid, SIGCONT);
    kill(t->pid, SIGTERM);
    limit(t, grace);
}

static void on_signal(tend_t *t, const struct signalfd_siginfo *info)
{
    int signal = (int)info->ssi_signo;
    char name[16];
    if (signal == SIGCHLD) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == t->pid) {
                run_leash_remove(pid);
                t->status = status;
                t->pid = 0;
            }
        return;
    }
    int ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    t->stopped |= ends;
    if (ends && !t->ended_by)
        t->ended_by = signal;
    if (signal == SIGINT && ++t->interrupts >= 2) {
        run_say("ucx-run: interrupted again: ending %s", run_foreign_program(t->options->engine));
        t->rc = 128 + SIGINT;
        end_it(t, 0);
        return;
    }
    if (!(t->shares_terminal && info->ssi_code == SI_KERNEL)) {
        if (ends)
            run_say("ucx-run: %s: passed on to %s%s", run_signal_name(signal, name),
                    run_foreign_program(t->options->engine), signal == SIGINT ? "; once more ends it" : "");
        kill(t->pid, signal);
    }
    /* INT comes from a user at a keyboard, who can press it again. */
    if (ends && signal != SIGINT) {
        limit(t, run_stop_seconds(t->options));
        t->rc_kill = t->rc_kill ? t->rc_kill : 128 + signal;
    }
    if (signal == SIGTSTP)
        raise(SIGSTOP);
}

static void watch(tend_t *t)
{
    while (t->pid > 0) {
        struct pollfd fd = {.fd = run_signals_fd(), .events = POLLIN};
        struct signalfd_siginfo info;
        base_time_t next = t->timeout < t->kill ? t->timeout : t->kill;
        if (poll(&fd, 1, base_poll_ms(next)) > 0)
            while (t->pid > 0 && read(fd.fd, &info, sizeof info) == (ssize_t)sizeof info)
                on_signal(t, &info);
        if (t->pid > 0 && base_now() >= t->timeout) {
            run_say("ucx-run: --timeout %g s has passed: ending %s", t->options->timeout_s,
                    run_foreign_program(t->options->engine));
            t->timeout = BASE_TIME_NEVER;
            t->rc = RUN_RC_TIMEOUT;
            t->stopped = 1;
            end_it(t, t->options->kill_grace_s);
        }
        if (t->pid > 0 && base_now() >= t->kill) {
            run_say("ucx-run: %s does not end: killing it", run_foreign_program(t->options->engine));
            t->kill = BASE_TIME_NEVER;
            t->rc = t->rc ? t->rc : t->rc_kill;
            kill(t->shares_terminal ? t->pid : -t->pid, SIGKILL);
        }
    }
}

static int result(const tend_t *t)
{
    char name[16];
    if (t->rc)
        return t->rc;
    /* mpiexec.hydra returns 0 although its ranks died of the signal; 0 of the other engines means that the
     * ranks returned 0. */
    if (t->options->engine == RUN_ENGINE_HYDRA && t->ended_by && WIFEXITED(t->status) &&
        WEXITSTATUS(t->status) == 0)
        return 128 + t->ended_by;
    if (WIFEXITED(t->status))
        return WEXITSTATUS(t->status);
    run_say("ucx-run: %s was killed by %s", run_foreign_program(t->options->engine),
            run_signal_name(WTERMSIG(t->status), name));
    return 128 + WTERMSIG(t->status);
}

static int run_attempts(const run_options_t *o)
{
    run_job_t job;
    tend_t t = {
        .options = o, .timeout = base_deadline(o->timeout_s), .shares_terminal = isatty(STDIN_FILENO)};
    memset(&job, 0, sizeof job);
    for (;; job.attempt++) {
        run_job_identify(&job);
        t.kill = BASE_TIME_NEVER;
        int rc = start(&t, &job);
        if (rc)
            return rc;
        watch(&t);
        rc = result(&t);
        if (rc == 0 || t.stopped || job.attempt >= o->max_restarts)
            return rc;
        if (rc == RUN_RC_USAGE || rc == RUN_RC_NOT_RUNNABLE || rc == RUN_RC_NOT_FOUND) {
            run_say("ucx-run: not started anew: code %d says that %s", rc,
                    rc == RUN_RC_USAGE ? "a command line is wrong" : "a program cannot be run");
            return rc;
        }
        run_say("ucx-run: %s ended with code %d: restarting it (restart %d of %d)",
                run_foreign_program(o->engine), rc, job.attempt + 1, o->max_restarts);
    }
}

int run_foreign(const run_options_t *o)
{
    const char *program = run_foreign_program(o->engine);
    if (!run_in_path(program)) {
        run_say("ucx-run: --launcher %s: %s is not in PATH: install it, or use another launcher",
                run_engine_name(o->engine), program);
        return RUN_RC_NOT_FOUND;
    }
    int rc = o->engine == RUN_ENGINE_HYDRA && o->output_dir ? make_output_folders(o) : 0;
    if (!rc)
        rc = run_leash_open(RUN_LEASH_TERM);
    if (!rc)
        rc = run_signals_open();
    if (!rc)
        rc = run_attempts(o);
    run_leash_close();
    run_sweep();
    run_signals_close();
    return rc;
}
