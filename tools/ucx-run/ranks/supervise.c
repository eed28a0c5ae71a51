/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/supervise.c: the event loop of ucx-run: signals, deaths and deadlines of one attempt.
 *
 * poll(2) waits without a timeout unless a deadline is running, so nothing is called while nothing happens.
 *
 *     running --a rank fails--> FAILED --grace--> TERM sent --grace/2--> KILL sent --> all reaped --> sweep
 *     running --timeout-------------------------> TERM sent ...
 *     running --second INT---------------------------------------------> KILL sent ...
 *
 * KILL after TERM waits for ranks that write a checkpoint (unfinished.c), but not after a second INT.
 *
 * With --no-kill-on-bad-exit a rank that fails is reported and the phase stays what it is. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

static const int forwarded[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};
enum { FORWARDED = sizeof forwarded / sizeof forwarded[0] };

#define ANSWERS_SECONDS 1.0 /* for agents to send the calls of their ranks */
#define PART_SECONDS    2.0 /* and to go, beyond what the ranks are given */
#define WRITE_SECONDS   1.0 /* the same for a reader of our output */
#define STILL_SECONDS   1.0 /* for agents to take the word that we are about to be stopped */

static int signal_fd = -1;

typedef enum { PHASE_RUNNING, PHASE_FAILED, PHASE_TERM, PHASE_KILL } phase_t;
typedef struct {
    run_job_t *job;
    phase_t phase;
    base_time_t next;    /* when the present phase ends */
    base_time_t timeout; /* --timeout */
    int interrupts;
    run_unfinished_t unfinished;
    /* the signal from outside that ends the ranks; 0: no such signal */
    int ended_by;
    base_time_t stop;    /* time to kill those that ignored it */
    base_time_t spare;   /* until then ranks that fail do not end the others */
    int suspect;         /* most probably the rank that failed first; -1: none failed */
    int told;            /* its end was printed already */
    int first;           /* the same once it is decided and printed */
    base_time_t verdict; /* when it is decided at the latest, unless a host has been silent since ... */
    base_time_t failed_at;
    int closed[2]; /* stdout, stderr: the ranks know that it has no reader */
    /* until then the agents' answers about their ranks are waited for */
    base_time_t answers;
    int over;    /* the rest is not waited for: agents end their ranks */
    int writing; /* nothing is left to do but to write what the ranks have printed */
    run_result_t *result;
} watch_t;

int run_signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < FORWARDED; i++) {
        struct sigaction old;
        /* A signal that was ignored at the start (nohup) stays ignored, by ucx-run and by the ranks. */
        if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&set, forwarded[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would reap the ranks before ucx-run does */
    if (sigprocmask(SIG_BLOCK, &set, &run_inherited.mask) != 0 ||
        (signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0) {
        fprintf(stderr, "ucx-run: cannot receive signals: %s\n", strerror(errno));
        return RUN_RC_SYSTEM;
    }
    return 0;
}

void run_signals_close(void)
{
    if (signal_fd >= 0)
        close(signal_fd);
    signal_fd = -1;
}

int run_signals_fd(void)
{
    return signal_fd;
}

void run_kill_all(run_job_t *job, int signal)
{
    if (job->remote) {
        run_remote_signal(job, signal, 0);
        return;
    }
    for (int r = 0; r < job->ranks; r++)
        if (job->rank[r].alive)
            kill(-job->rank[r].pid, signal);
}

static void enter(watch_t *w, phase_t phase)
{
    double grace = w->job->options->kill_grace_s;
    if (phase <= w->phase)
        return;
    if (phase == PHASE_FAILED && grace <= 0)
        phase = PHASE_KILL;
    w->phase = phase;
    w->next = BASE_TIME_NEVER;
    if (phase == PHASE_FAILED) {
        w->next = base_deadline(grace);
    } else if (phase == PHASE_TERM) {
        run_kill_all(w->job, SIGCONT); /* a stopped rank would not get it */
        run_kill_all(w->job, SIGTERM);
        w->next = base_deadline(grace > 0 ? grace / 2 : 1e-9);
    } else {
        if (w->job->remote)
            run_remote_drop_output(w->job);
        run_kill_all(w->job, SIGKILL);
    }
}

static int rank_of(const run_job_t *job, pid_t pid)
{
    for (int r = 0; r < job->ranks && !job->remote; r++)
        if (job->rank[r].alive && job->rank[r].pid == pid)
            return r;
    return -1;
}

static int failed(int status)
{
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* How surely a failed rank is the cause and not a victim. The order in which ucx-run learns of deaths does
 * not show that. A killed rank closes its connections some time before the kernel reports it, and on a busy
 * machine the ranks that notice may be gone first. The order: lost hosts, then ranks that Gyre had not
 * reported an error to, then the others; among equals killed ranks before those that exited. */
static int guilt(const run_job_t *job, int rank)
{
    const run_rank_t *r = &job->rank[rank];
    uint32_t state =
        job->slots ? atomic_load_explicit(&job->slots[rank].state, memory_order_acquire) : r->state;
    if (r->lost)
        return 4;
    return (state != 3 ? 2 : 0) + (WIFSIGNALED(r->status) ? 1 : 0);
}

/* Ranks that fail do not end the others. Once the job shall end it ends as any other. */
static int keeps_going(const watch_t *w)
{
    return w->job->options->keep_going && !w->result->stopped;
}

enum { VERDICT_MS = 300 }; /* how long a likelier suspect than a mere victim is waited for */

static void decide(watch_t *w)
{
    if (w->suspect < 0 || w->first >= 0)
        return;
    const run_rank_t *r = &w->job->rank[w->suspect];
    w->first = w->suspect;
    w->verdict = BASE_TIME_NEVER;
    w->result->rc = r->lost                  ? RUN_RC_LOST
                    : WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status)
                                             : WEXITSTATUS(r->status);
    if (!w->told)
        run_report_end(w->job, w->suspect);
}

/* Rank r has ended. */
static void died(watch_t *w, int r)
{
    /* Once TERM or KILL went out, deaths are our own doing. */
    const run_rank_t *rank = &w->job->rank[r];
    if (!failed(rank->status) || (w->phase > PHASE_FAILED && !rank->lost))
        return;
    if (keeps_going(w))
        run_report_end(w->job, r);
    if (w->first < 0 && (w->suspect < 0 || guilt(w->job, r) > guilt(w->job, w->suspect))) {
        w->suspect = r;
        w->told = keeps_going(w);
    }
}

static void judge(watch_t *w)
{
    if (w->suspect < 0 || w->first >= 0 || w->over)
        return;
    if (w->phase < PHASE_FAILED && !w->failed_at) {
        w->verdict = base_deadline(VERDICT_MS / 1e3);
        w->failed_at = base_now();
        if (w->job->remote)
            run_remote_ping(w->job);
    }
    if (base_now() >= w->spare)
        enter(w, PHASE_FAILED);
    if (guilt(w->job, w->suspect) >= 2 || w->job->alive == 0)
        decide(w);
}

static void reap(watch_t *w)
{
    run_job_t *job = w->job;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int r = rank_of(job, pid);
        if (job->remote)
            run_remote_reaped(job, pid, status);
        if (r < 0)
            continue; /* an orphan of a rank, inherited by ucx-run */
        run_leash_remove(pid);
        job->rank[r].alive = 0;
        job->rank[r].status = status;
        job->alive--;
        comm_recorder_note_end(&job->slots[r], status);
        died(w, r);
    }
    /* with other hosts on_hosts judges, once it has the ends of all dead ranks: an ssh that ends may cost
     * a host */
    if (!job->remote)
        judge(w);
}

/* USR1 and USR2 mean something to the program only, not to helpers that it has started. */
static void pass_on(run_job_t *job, int signal)
{
    int alone = signal == SIGUSR1 || signal == SIGUSR2;
    if (job->remote) {
        run_remote_signal(job, signal, alone);
        return;
    }
    for (int r = 0; r < job->ranks; r++)
        if (job->rank[r].alive)
            kill(alone ? job->rank[r].pid : -job->rank[r].pid, signal);
}

/* A signal that ends came before all ranks were started: there is no rank yet to receive it. */
static void give_up(watch_t *w, int signal)
{
    char name[16];
    run_say("ucx-run: %s while the ranks were being started", run_signal_name(signal, name));
    w->result->rc = 128 + signal;
    w->over = 1;
}

/* The end of the time for ranks to end by themselves, after a signal that asks them to. */
static base_time_t stop_deadline(const watch_t *w)
{
    return base_now() + (base_time_t)(run_stop_seconds(w->job->options) * 1e9);
}

static void forward(watch_t *w, int signal)
{
    run_job_t *job = w->job;
    char name[16];
    int ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (ends && w->writing) {
        w->result->stopped = 1;
        w->writing = 0;
        if (!w->result->rc)
            w->result->rc = 128 + signal;
        return;
    }
    if (ends && job->remote && !run_remote_running(job) && w->phase == PHASE_RUNNING) {
        w->result->stopped = 1;
        give_up(w, signal);
        return;
    }
    if (ends) {
        w->result->stopped = 1;
        if (signal == SIGINT && ++w->interrupts >= 2) {
            run_say("ucx-run: interrupted again: killing %d rank%s", job->alive, job->alive == 1 ? "" : "s");
            decide(w);
            if (w->first < 0)
                w->result->rc = 128 + SIGINT;
            run_output_give_up();
            enter(w, PHASE_KILL);
            if (job->remote) /* agents put only the first one off */
                run_kill_all(job, SIGKILL);
            return;
        }
        run_say("ucx-run: %s: passed on to %d rank%s%s", run_signal_name(signal, name), job->alive,
                job->alive == 1 ? "" : "s", signal == SIGINT ? "; once more kills them" : "");
    }
    if (signal == SIGWINCH) {
        if (job->remote)
            return; /* agents do not hear of sizes */
        run_capture_t size;
        run_output_terminals(&size);
        run_capture_resize(&size);
    }
    pass_on(job, signal);
    if (ends && w->phase < PHASE_TERM) {
        /* Some ranks die of it, others use the time. */
        w->spare = stop_deadline(w);
        /* INT comes from a user at a keyboard, who can press it again. Senders of other signals do not wait
         * forever. */
        if (signal != SIGINT && !w->ended_by) {
            w->ended_by = signal;
            w->stop = w->spare;
        }
    }
    if (signal == SIGTSTP) {
        if (job->remote)
            run_remote_flush(job, STILL_SECONDS);
        raise(SIGSTOP); /* the shell then sees ucx-run stopped; its SIGCONT is passed on when it comes */
    }
}

static void on_signals(watch_t *w)
{
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            reap(w);
        else
            forward(w, (int)info.ssi_signo);
    }
}

/* 1: KILL is put off to *due. A grace of 0 asks for KILL at once. */
static int kill_waits(watch_t *w, base_time_t *due)
{
    return w->phase < PHASE_KILL && w->job->options->kill_grace_s > 0 &&
           run_kill_waits(&w->unfinished, w->job, due);
}

static void on_deadlines(watch_t *w)
{
    base_time_t now = base_now();
    if (now >= w->timeout) {
        w->timeout = BASE_TIME_NEVER;
        if (w->phase < PHASE_FAILED) {
            decide(w); /* an earlier failure stays the failure; the job ends for another reason */
            w->result->rc = RUN_RC_TIMEOUT;
            w->result->stopped = 1;
            w->answers = now;
            if (w->job->remote && !run_remote_running(w->job)) {
                run_say("ucx-run: --timeout %g s has passed while the ranks were being started",
                        w->job->options->timeout_s);
                w->answers = BASE_TIME_NEVER;
                w->over = 1;
            } else if (w->job->remote) {
                run_remote_drop_output(w->job);
                run_remote_ask(w->job);
                w->answers = base_deadline(ANSWERS_SECONDS);
            }
        }
    }
    if (now >= w->answers || (w->answers != BASE_TIME_NEVER && run_remote_answered(w->job))) {
        w->answers = BASE_TIME_NEVER;
        run_say("ucx-run: --timeout %g s has passed; the ranks were doing:", w->job->options->timeout_s);
        run_report_all(w->job);
        enter(w, PHASE_TERM);
    }
    if (now >= w->verdict && w->job->remote && run_remote_doubtful(w->job, w->failed_at))
        w->verdict =
            base_deadline(VERDICT_MS / 1e3); /* perhaps its loss is what the suspect has suffered from */
    else if (now >= w->verdict)
        decide(w);
    if (now >= w->stop && !kill_waits(w, &w->stop)) {
        w->stop = BASE_TIME_NEVER;
        if (w->phase < PHASE_KILL) {
            run_say("ucx-run: %d rank%s did not end within the grace: killing", w->job->alive,
                    w->job->alive == 1 ? "" : "s");
            if (w->first < 0 && w->suspect < 0 && !w->result->rc)
                w->result->rc = 128 + w->ended_by;
        }
        enter(w, PHASE_KILL);
    }
    if (w->suspect >= 0 && now >= w->spare)
        enter(w, PHASE_FAILED);
    if (now >= w->next && w->phase == PHASE_FAILED)
        enter(w, PHASE_TERM);
    else if (now >= w->next && !kill_waits(w, &w->next))
        enter(w, PHASE_KILL);
}

/* The agents' answers, or their absence. */
static void on_hosts(watch_t *w)
{
    int r, rc;
    run_remote_tick(w->job);
    if (run_remote_stopped(w->job) && w->phase < PHASE_TERM && stop_deadline(w) > w->spare)
        w->spare = stop_deadline(w); /* as if the signal had come to us */
    while ((r = run_remote_died(w->job)) >= 0)
        if (!w->over) /* else we have given them up ourselves */
            died(w, r);
    if (run_remote_refused(w->job, &rc) && !w->result->refused) {
        w->result->refused = 1;
        w->result->rc = rc;
        w->suspect = -1;
        w->over = 1; /* the ranks on other hosts end with their agents */
    } else if (run_remote_stillborn(w->job) && !w->over) {
        decide(w);
        w->over = 1;
    }
    judge(w);
}

/* A reader that has gone is one for the ranks, too: they get SIGPIPE. */
static void close_broken(watch_t *w)
{
    for (int to = 0; to < 2; to++) {
        if (!run_output_broken(to) || w->closed[to])
            continue;
        w->closed[to] = 1;
        if (w->job->remote)
            run_remote_close_stream(w->job, to);
        else
            run_capture_stop(to);
    }
}

static base_time_t next_deadline(const watch_t *w)
{
    base_time_t next = w->next < w->timeout ? w->next : w->timeout;
    next = w->verdict < next ? w->verdict : next;
    next = w->answers < next ? w->answers : next;
    next = w->stop < next ? w->stop : next;
    if (w->suspect >= 0 && w->phase < PHASE_FAILED && w->spare < next)
        next = w->spare;
    if (w->job->remote && run_remote_deadline(w->job) < next)
        next = run_remote_deadline(w->job);
    return next;
}

/* One round of the event loop. `fds` has room for everything. */
static void turn(watch_t *w, struct pollfd *fds, base_time_t until)
{
    run_job_t *job = w->job;
    size_t n = 0;
    const int room[2] = {run_output_room(0), run_output_room(1)};
    fds[n++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    size_t output = n;
    n += run_output_poll(fds + n);
    size_t capture = n;
    if (!job->remote)
        n += run_capture_poll(fds + n, room);
    size_t input = n;
    base_time_t again = BASE_TIME_NEVER;
    if (job->alive > 0)
        n += run_input_poll(fds + n, &again);
    size_t hosts = n;
    if (job->remote)
        n += run_remote_poll(job, fds + n);
    if (poll(fds, n, base_poll_ms(again < until ? again : until)) < 0)
        return; /* EINTR: around again */
    for (size_t i = output; i < hosts; i++) {
        if (!fds[i].revents)
            continue;
        if (i < capture)
            run_output_event(&fds[i]);
        else if (i < input)
            run_capture_event(&fds[i]);
        else
            run_input_event(&fds[i]);
    }
    if (job->remote)
        run_remote_event(job, fds + hosts, n - hosts);
    if (fds[0].revents)
        on_signals(w);
    if (job->remote)
        on_hosts(w);
    close_broken(w);
    if (job->alive > 0 && !w->over)
        on_deadlines(w);
}

/* Agents end what the ranks have left running, send their last messages, and go. */
static void part(watch_t *w, struct pollfd *fds)
{
    base_time_t patience = base_deadline(w->job->options->kill_grace_s + PART_SECONDS);
    run_remote_stop(w->job);
    while (!run_remote_gone(w->job) && base_poll_ms(patience) > 0 && w->interrupts < 2) {
        base_time_t next = run_remote_deadline(w->job);
        turn(w, fds, next < patience ? next : patience);
    }
    run_remote_hang_up(w->job);
}

/* A slow reader gets all output of the ranks. A reader that stalls does not delay the end that --timeout or a
 * signal asked for, before or now: output is then lost, which makes a good end a bad one. */
static void write_rest(watch_t *w, struct pollfd *fds)
{
    const run_options_t *o = w->job->options;
    base_time_t until = w->timeout;
    if (w->ended_by)
        until = base_deadline(run_stop_seconds(o) + WRITE_SECONDS);
    else if (w->result->rc == RUN_RC_TIMEOUT && w->result->stopped)
        until = base_deadline(o->kill_grace_s + WRITE_SECONDS);
    w->writing = w->interrupts < 2;
    while (run_output_pending() && w->writing && base_now() < until)
        turn(w, fds, until);
    if (!run_output_pending())
        return;
    if (w->writing && !w->result->rc)
        w->result->rc = w->ended_by ? 128 + w->ended_by : RUN_RC_TIMEOUT;
    w->result->stopped = 1;
    run_say("ucx-run: nobody reads our output: the end of it is lost");
}

void run_supervise(run_job_t *job, run_result_t *result)
{
    watch_t w = {.job = job, .suspect = -1, .first = -1, .result = result};
    w.next = w.verdict = w.answers = w.stop = BASE_TIME_NEVER;
    /* signals, output, capture or hosts, input */
    size_t room = 4 + 3 * (size_t)job->ranks + run_remote_poll_max(job);
    struct pollfd *fds = calloc(room, sizeof *fds);
    w.timeout = job->deadline;
    if (job->options->keep_going)
        w.spare = BASE_TIME_NEVER; /* until a signal from outside sets it */
    *result = (run_result_t){0};
    if (!fds) {
        run_say("ucx-run: out of memory for %d ranks", job->ranks);
        result->rc = RUN_RC_SYSTEM;
        result->stopped = 1;
        if (job->remote)
            run_remote_hang_up(job);
        else
            run_kill_all(job, SIGKILL);
    }
    while (fds && job->alive > 0 && !w.over)
        turn(&w, fds, next_deadline(&w));
    decide(&w);
    for (int r = 0; r < job->ranks && job->options->keep_going; r++)
        result->survived |= result->rc != 0 && !job->rank[r].alive && !failed(job->rank[r].status);
    if (job->remote && fds)
        part(&w, fds);
    else
        run_leash_close(); /* our last child but for orphans */
    run_sweep();
    if (!job->remote)
        run_capture_finish();
    run_output_finish();
    if (fds)
        write_rest(&w, fds);
    if (run_output_failed()) { /* no fault of the ranks, nor does another start help */
        result->rc = !result->rc || result->rc == 128 + SIGPIPE ? RUN_RC_SYSTEM : result->rc;
        result->stopped = 1;
    }
    free(fds);
}
