/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/connection.c: the connection to one host's agent: called through ssh or srun, written
 * to without blocking, and lost with a reason. See hosts.h.
 *
 * At most CALLS_AT_ONCE connections are being made at a time: sshd refuses crowds (its MaxStartups), and
 * so may srun. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/hosts/hosts.h"
#include "tools/ucx-run/run.h"

enum { CALLS_AT_ONCE = 64, ERROR_LINE_MAX = 1000 };

void run_node_flush(run_node_t *h)
{
    while (h->in >= 0 && run_buffer_length(&h->to) > 0) {
        ssize_t n = write(h->in, run_buffer_front(&h->to), run_buffer_length(&h->to));
        if (n > 0)
            h->to.head += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n < 0 && errno != EINTR)
            run_node_close(&h->in);
    }
}

int run_node_can_hear(const run_node_t *h)
{
    return h->in >= 0 && h->greeted && h->state >= NODE_PLANNING && h->state <= NODE_RUNNING;
}

void run_node_push_died(run_job_t *job, int r, int status)
{
    run_remote_t *m = job->remote;
    job->rank[r].alive = 0;
    job->rank[r].status = status;
    job->alive--;
    m->host[m->of[r]].alive--;
    m->died[m->ndied++] = r;
}

void run_node_give_up(run_job_t *job, run_node_t *h)
{
    run_remote_t *m = job->remote;
    for (int r = 0; r < job->world && h->alive > 0; r++)
        if (&m->host[m->of[r]] == h && job->rank[r].alive) {
            job->rank[r].lost = 1;
            run_node_push_died(job, r, SIGKILL);
        }
}

void run_node_hang_up(run_node_t *h)
{
    run_node_close(&h->in);
    run_node_close(&h->out);
    run_node_close(&h->err);
    if (h->pid > 0)
        kill(h->pid, SIGKILL);
    h->state = NODE_GONE;
}

/* Lines of the standard error of ssh, srun or the agent, which have the reason of a failure. */
static void say_errors(run_node_t *h, int all)
{
    run_buffer_t *b = &h->errors;
    while (run_buffer_length(b) > 0) {
        const char *line = run_buffer_front(b), *newline = memchr(line, '\n', run_buffer_length(b));
        size_t n = newline ? (size_t)(newline - line) : run_buffer_length(b);
        if (!newline && !all && n < ERROR_LINE_MAX)
            return;
        n = n < ERROR_LINE_MAX ? n : ERROR_LINE_MAX;
        int shown = (int)n;
        while (shown > 0 && (line[shown - 1] == '\r' || line[shown - 1] == ' '))
            shown--;
        /* srun's message on --cpu-bind=none where nothing would be bound anyway */
        if (shown > 0 && !memmem(line, (size_t)shown, "lacks support for cpu binding", 29))
            run_say("ucx-run: %s: %.*s", h->name, shown, line);
        b->head += n + (newline == line + n);
    }
}

void run_node_read_errors(run_node_t *h)
{
    while (h->err >= 0 && run_buffer_reserve(&h->errors, 4096)) {
        ssize_t n = read(h->err, h->errors.data + h->errors.tail, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            run_node_close(&h->err);
            break;
        }
        h->errors.tail += (size_t)n;
        say_errors(h, 0);
    }
}

void run_node_last_errors(run_node_t *h)
{
    run_node_read_errors(h);
    say_errors(h, 1);
}

void run_node_lose(run_job_t *job, run_node_t *h, const char *format, ...)
{
    run_remote_t *m = job->remote;
    char why[400];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    run_node_last_errors(h);
    run_node_state_t was = h->state;
    run_node_hang_up(h);
    if (was >= NODE_ENDING || m->stopping) {
        run_node_give_up(job, h);
        return;
    }
    h->lost = 1;
    /* Where nothing has run yet it is a mistake rather than an accident. */
    if (was < NODE_STARTING && job->attempt == 0) {
        run_say("ucx-run: cannot start ranks on %s: %s", h->name, why);
        m->refused = m->refused ? m->refused : RUN_RC_SYSTEM;
    } else if (h->alive > 0) {
        run_say("ucx-run: host %s is lost (%s): its %d rank%s count%s as failed", h->name, why, h->alive,
                h->alive == 1 ? "" : "s", h->alive == 1 ? "s" : "");
    }
    m->stillborn |= !m->gone;
    run_node_give_up(job, h);
}

void run_node_lose_by_status(run_job_t *job, run_node_t *h)
{
    const run_options_t *o = job->options;
    char name[16];
    int code = WIFEXITED(h->status) ? WEXITSTATUS(h->status) : -1;
    int first = !h->greeted;
    if (h->pid > 0)
        run_node_lose(job, h, "its connection was closed");
    else if (WIFSIGNALED(h->status))
        run_node_lose(job, h, "%s was killed by %s", run_remote_caller(o, h->name),
                      run_signal_name(WTERMSIG(h->status), name));
    else if (first && (code == 127 || code == 126))
        run_node_lose(job, h,
                      "%s %s there: install Gyre at the same place on all hosts, or say with --agent where "
                      "ucx-run lies on them",
                      run_remote_agent_path(o), code == 127 ? "was not found" : "cannot be executed");
    else if (first)
        run_node_lose(job, h, "%s ended with code %d before an agent answered", run_remote_caller(o, h->name),
                      code);
    else if (code == 255 && !run_is_here(h->name))
        run_node_lose(job, h, "the connection broke: %s ended with code 255", run_remote_caller(o, h->name));
    else
        run_node_lose(job, h, "its agent ended with code %d", code);
}

void run_node_put(run_job_t *job, run_node_t *h, int ok)
{
    if (!ok)
        run_node_lose(job, h,
                      "out of memory for its start message, or the message is too long: environment and "
                      "arguments must stay below 16 MiB");
    else
        run_node_flush(h);
}

void run_node_send(run_job_t *job, run_node_t *h, run_wire_kind_t kind)
{
    run_node_put(job, h, run_wire_put(&h->to, kind, NULL, 0));
}

/* --- calling --- */

static int pipe_for(int ends[2], int ours)
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    fcntl(ends[ours], F_SETFL, O_NONBLOCK);
    return 1;
}

static void __attribute__((noreturn)) become_caller(char **command, int in, int out, int err, pid_t launcher)
{
    setpgid(0, 0); /* ucx-run handles a terminal's ^C */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == launcher && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2) {
        run_undo_launcher();
        execvp(command[0], command);
        fprintf(stderr, "cannot execute %s: %s\n", command[0], strerror(errno));
    }
    _exit(errno == ENOENT ? RUN_RC_NOT_FOUND : RUN_RC_NOT_RUNNABLE);
}

static void call(run_job_t *job, run_node_t *h)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    char **command = run_remote_command(job->options, h->name);
    h->state = NODE_CALLING;
    h->heard = base_now();
    if (command && pipe_for(in, 1) && pipe_for(out, 0) && pipe_for(err, 0)) {
        pid_t self = getpid();
        fflush(NULL);
        h->pid = fork();
        if (h->pid == 0)
            become_caller(command, in[0], out[1], err[1], self);
        if (h->pid > 0) {
            h->in = in[1];
            h->out = out[0];
            h->err = err[0];
            in[1] = out[0] = err[0] = -1;
        }
    }
    int why = command ? errno : ENOMEM;
    for (int i = 0; i < 2; i++) {
        run_node_close(&in[i]);
        run_node_close(&out[i]);
        run_node_close(&err[i]);
    }
    run_words_free(command);
    if (h->out < 0) {
        h->pid = 0;
        run_node_lose(job, h, "%s", strerror(why));
    }
}

void run_node_call_more(run_job_t *job)
{
    run_remote_t *m = job->remote;
    int calling = 0;
    for (int i = 0; i < m->hosts; i++)
        calling += m->host[i].state == NODE_CALLING;
    for (int i = 0; i < m->hosts && calling < CALLS_AT_ONCE && !m->refused && !m->stopping; i++)
        if (m->host[i].state == NODE_QUEUED) {
            call(job, &m->host[i]);
            calling++;
        }
}
