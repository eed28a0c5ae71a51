/* tools/ucx-run/supervise.c: the event loop of ucx-run: signals, deaths and deadlines of one attempt.
 *
 * poll(2) waits without a timeout unless a deadline is running, so nothing is called while nothing happens.
 *
 *     running --a rank fails--> FAILED --grace--> TERM sent --grace/2--> KILL sent --> all reaped --> sweep
 *     running --timeout-------------------------> TERM sent ...
 *     running --second INT---------------------------------------------> KILL sent ... */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};
enum { FORWARDED = sizeof forwarded / sizeof forwarded[0] };

static int signal_fd = -1;

typedef enum { PHASE_RUNNING, PHASE_FAILED, PHASE_TERM, PHASE_KILL } phase_t;
typedef struct {
    run_job_t *job;
    phase_t phase;
    base_time_t next;    /* when the present phase ends */
    base_time_t timeout; /* --timeout */
    int interrupts;
    int suspect;         /* most probably the rank that failed first; -1: none failed */
    int first;           /* the same once it is decided and said */
    base_time_t verdict; /* when it is decided at the latest */
    run_result_t *result;
} watch_t;

int run_signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < FORWARDED; i++) {
        struct sigaction old;
        /* What we were started to ignore (nohup) stays ignored, by us and by the ranks. */
        if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&set, forwarded[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would reap our ranks behind our back */
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

void run_kill_all(run_job_t *job, int signal)
{
    for (int r = 0; r < job->options->ranks; r++)
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
        run_kill_all(w->job, SIGCONT); /* a stopped rank could not hear it */
        run_kill_all(w->job, SIGTERM);
        w->next = base_deadline(grace > 0 ? grace / 2 : 1e-9);
    } else {
        run_kill_all(w->job, SIGKILL);
    }
}

static int rank_of(const run_job_t *job, pid_t pid)
{
    for (int r = 0; r < job->options->ranks; r++)
        if (job->rank[r].alive && job->rank[r].pid == pid)
            return r;
    return -1;
}

static int failed(int status)
{
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* How surely a failed rank is the cause and not a victim. The order in which we learn of deaths does not tell: a
 * rank that is killed closes its connections some time before the kernel reports it, and on a busy machine those
 * who notice may be gone first. So: whom Gyre had not told of an error before those whom it had, and among
 * equals killed ranks before those that exited. */
static int guilt(const run_job_t *job, int rank)
{
    uint32_t state = atomic_load_explicit(&job->slots[rank].state, memory_order_acquire);
    return (state != 3 ? 2 : 0) + (WIFSIGNALED(job->rank[rank].status) ? 1 : 0);
}

enum { VERDICT_MS = 300 }; /* how long a likelier suspect than a mere victim is waited for */

static void decide(watch_t *w)
{
    if (w->suspect < 0 || w->first >= 0)
        return;
    int status = w->job->rank[w->suspect].status;
    w->first = w->suspect;
    w->verdict = BASE_TIME_NEVER;
    w->result->rc = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    run_report_end(w->job, w->suspect);
}

static void reap(watch_t *w)
{
    run_job_t *job = w->job;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int r = rank_of(job, pid);
        if (r < 0)
            continue; /* an orphan of a rank, inherited by us */
        run_leash_remove(pid);
        job->rank[r].alive = 0;
        job->rank[r].status = status;
        job->alive--;
        comm_recorder_note_end(&job->slots[r], status);
        /* Once TERM or KILL went out, deaths are our own doing. */
        if (failed(status) && w->phase <= PHASE_FAILED && w->first < 0 &&
            (w->suspect < 0 || guilt(job, r) > guilt(job, w->suspect)))
            w->suspect = r;
    }
    if (w->suspect < 0 || w->first >= 0)
        return;
    if (w->phase < PHASE_FAILED)
        w->verdict = base_deadline(VERDICT_MS / 1e3);
    enter(w, PHASE_FAILED);
    if (guilt(job, w->suspect) >= 2 || job->alive == 0)
        decide(w);
}

static void forward(watch_t *w, int signal)
{
    run_job_t *job = w->job;
    char name[16];
    int ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (ends) {
        w->result->stopped = 1;
        if (signal == SIGINT && ++w->interrupts >= 2) {
            run_say("ucx-run: interrupted again: killing %d rank%s", job->alive, job->alive == 1 ? "" : "s");
            decide(w);
            if (w->first < 0)
                w->result->rc = 128 + SIGINT;
            enter(w, PHASE_KILL);
            return;
        }
        run_say("ucx-run: %s: passed on to %d rank%s%s", run_signal_name(signal, name), job->alive,
                job->alive == 1 ? "" : "s", signal == SIGINT ? "; once more kills them" : "");
    }
    for (int r = 0; r < job->options->ranks; r++) {
        if (!job->rank[r].alive)
            continue;
        /* USR1 and USR2 mean something to the program only, not to helpers that it has started. */
        int only = signal == SIGUSR1 || signal == SIGUSR2;
        kill(only ? job->rank[r].pid : -job->rank[r].pid, signal);
    }
    if (signal == SIGTSTP)
        raise(SIGSTOP); /* the shell then sees us stopped; its SIGCONT is forwarded when it comes */
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

static void on_deadlines(watch_t *w)
{
    base_time_t now = base_now();
    if (now >= w->timeout) {
        w->timeout = BASE_TIME_NEVER;
        if (w->suspect < 0 && w->phase < PHASE_KILL) {
            run_say("ucx-run: --timeout %g s has passed; the ranks were doing:", w->job->options->timeout_s);
            run_report_all(w->job);
            w->result->rc = RUN_RC_TIMEOUT;
            w->result->stopped = 1;
            enter(w, PHASE_TERM);
        }
    }
    if (now >= w->verdict || (w->next <= now && w->phase == PHASE_FAILED))
        decide(w);
    if (now >= w->next)
        enter(w, w->phase == PHASE_FAILED ? PHASE_TERM : PHASE_KILL);
}

/* Once around. `fds` has room for everything. */
static void turn(watch_t *w, struct pollfd *fds)
{
    size_t n = 0;
    fds[n++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    size_t output = n;
    n += run_output_poll(fds + n);
    size_t input = n;
    if (w->job->alive > 0)
        n += run_input_poll(fds + n);
    base_time_t next = w->next < w->timeout ? w->next : w->timeout;
    next = w->verdict < next ? w->verdict : next;
    if (poll(fds, n, w->job->alive > 0 ? base_poll_ms(next) : -1) < 0)
        return; /* EINTR: around again */
    for (size_t i = output; i < input; i++)
        if (fds[i].revents)
            run_output_event(&fds[i]);
    for (size_t i = input; i < n; i++)
        if (fds[i].revents)
            run_input_event(&fds[i]);
    if (fds[0].revents)
        on_signals(w);
    if (w->job->alive > 0)
        on_deadlines(w);
}

static void kill_children(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        char path[300], line[512];
        int pid = atoi(entry->d_name);
        if (pid <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        const char *text = fgets(line, sizeof line, file);
        fclose(file);
        const char *end = text ? strrchr(text, ')') : NULL; /* the name before it may hold anything */
        int parent = 0;
        char state = 0;
        if (end && sscanf(end + 1, " %c %d", &state, &parent) == 2 && parent == (int)getpid())
            kill(pid, SIGKILL);
    }
    if (proc)
        closedir(proc);
}

/* Kills and reaps whatever the ranks left behind: orphans have become our children (subreaper), and so do
 * the children of those that are killed here, which are found the next time around. */
static void sweep(void)
{
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid != 0)
            continue;
        kill_children();
        while (waitpid(-1, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}

void run_supervise(run_job_t *job, run_result_t *result)
{
    watch_t w = {.job = job, .suspect = -1, .first = -1, .result = result};
    w.next = w.verdict = BASE_TIME_NEVER;
    size_t room = 2 + run_output_poll_max() + (size_t)job->options->ranks;
    struct pollfd *fds = calloc(room, sizeof *fds);
    w.timeout = job->deadline;
    result->rc = 0;
    result->stopped = 0;
    if (!fds) {
        run_say("ucx-run: out of memory for %d ranks", job->options->ranks);
        result->rc = RUN_RC_SYSTEM;
        result->stopped = 1;
        run_kill_all(job, SIGKILL);
    }
    while (fds && job->alive > 0)
        turn(&w, fds);
    decide(&w);
    run_leash_close(); /* our last child but for orphans */
    sweep();
    run_output_finish();
    while (fds && run_output_pending() && w.interrupts < 2)
        turn(&w, fds);
    free(fds);
}
