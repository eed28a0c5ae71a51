/* tools/ucx-run/remote.c: the hosts of a job that runs elsewhere, seen from the launcher.
 *
 * On each host an agent (agent.c) is called through ssh or srun; wire.h is what we say to each other. No rank starts
 * before every host has answered, so a host that cannot be reached costs nothing but the wait:
 *
 *     QUEUED -> CALLING --hello--> PLANNING --ready--> (all hosts are) STARTING --all ranks--> RUNNING -> ENDING -> GONE
 *
 * At most CALLS_AT_ONCE connections are being made at a time: sshd refuses crowds (its MaxStartups), and so may srun.
 * A host whose connection ends early, or from which nothing is heard for --lost-after seconds (an agent answers a PING
 * each second), is lost, and so are its ranks. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/remote.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/wire.h"

enum { CALLS_AT_ONCE = 64, READ_BYTES = 1 << 18, ERROR_LINE_MAX = 1000 };
#define CALL_SECONDS       30.0 /* for a host to answer; ssh itself gives up after 10 */
#define PING_SECONDS       1.0  /* between signs of life */
#define LEASH_FACTOR       4.0  /* times --lost-after: how long an agent bears our silence */
#define LAST_WORDS_SECONDS 1.0  /* from the end of a connection to the status of the process that held it */

typedef enum { QUEUED, CALLING, PLANNING, STARTING, RUNNING, ENDING, GONE } state_t;

typedef struct {
    const char *name;
    int listed; /* its place in remote->left */
    state_t state;
    pid_t pid; /* of ssh, srun, or the agent itself on this host; 0: not started or reaped */
    int status;
    int in, out, err; /* its standard descriptors, our ends; -1: closed */
    run_buffer_t to, from, errors;
    int greeted; /* the magic has come */
    int ranks, started, alive;
    int ready;          /* can take GO */
    int owes;           /* has not yet taken the last INPUT */
    int lost;           /* without having been asked to go */
    base_time_t heard;  /* last sign of life */
    base_time_t closed; /* its output has ended; the rest of the story until then */
    size_t polled;      /* place of its first pollfd */
} host_t;

struct run_remote {
    run_hostlist_t left; /* hosts that have not been lost */
    int *of;             /* [world] place in host */
    host_t *host;        /* [hosts] those that have ranks */
    int hosts;
    int *died; /* [world] ranks whose end nobody has asked for yet */
    int ndied;
    int refused;   /* exit code; 0: not */
    int gone;      /* GO went out */
    int stillborn; /* it never will: a host was lost before */
    int stopping;
    int dropping;   /* the ranks are being ended: what they print must not keep us from hearing of it */
    int dropped[2]; /* stdout, stderr: some was, so the rest is as well */
    base_time_t tick, ticked; /* the next one is due; the last one was */
    char **passed, **exports; /* environment */
    char wdir[PATH_MAX], output_dir[PATH_MAX];
};

static run_job_t *current; /* for the callbacks of input.c, of which there is one */

/* --- planning --- */

static int out_of_memory(void)
{
    fprintf(stderr, "ucx-run: out of memory for the hosts\n");
    return RUN_RC_SYSTEM;
}

static void free_hosts(run_remote_t *m)
{
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        run_buffer_free(&h->to);
        run_buffer_free(&h->from);
        run_buffer_free(&h->errors);
    }
    free(m->host);
    free(m->of);
    free(m->died);
    m->host = NULL;
    m->of = m->died = NULL;
    m->hosts = 0;
}

static void free_ranks(run_job_t *job)
{
    for (int r = 0; job->rank && r < job->ranks; r++)
        free(job->rank[r].doing);
    free(job->rank);
    job->rank = NULL;
}

/* Puts `world` ranks on the hosts that are left. */
static int place(run_job_t *job, int world)
{
    run_remote_t *m = job->remote;
    free_ranks(job);
    free_hosts(m);
    job->ranks = job->world = world;
    job->rank = calloc((size_t)world, sizeof *job->rank);
    m->of = calloc((size_t)world, sizeof *m->of);
    m->died = calloc((size_t)world, sizeof *m->died);
    m->host = calloc((size_t)m->left.count, sizeof *m->host);
    int *index = calloc((size_t)m->left.count, sizeof *index);
    if (!job->rank || !m->of || !m->died || !m->host || !index) {
        free(index);
        return out_of_memory();
    }
    run_hostlist_place(&m->left, job->options->map, world, m->of);
    for (int r = 0; r < world; r++)
        index[m->of[r]]++;
    for (int i = 0; i < m->left.count; i++) {
        int ranks = index[i];
        index[i] = m->hosts;
        if (ranks == 0)
            continue;
        m->host[m->hosts++] = (host_t){.name = m->left.host[i].name,
                                       .listed = i,
                                       .in = -1,
                                       .out = -1,
                                       .err = -1,
                                       .ranks = ranks,
                                       .closed = BASE_TIME_NEVER};
    }
    for (int r = 0; r < world; r++) {
        m->of[r] = index[m->of[r]];
        job->rank[r].number = r;
        job->rank[r].host = m->host[m->of[r]].name;
        job->rank[r].core = -1;
    }
    free(index);
    return 0;
}

int run_remote_plan(run_job_t *job, const run_options_t *options)
{
    memset(job, 0, sizeof *job);
    job->options = options;
    job->root_fd = job->recorder.fd = -1;
    run_remote_t *m = job->remote = calloc(1, sizeof *m);
    if (!m || !run_hostlist_copy(&options->hosts, &m->left))
        return out_of_memory();
    m->passed = run_environment_passed(options);
    m->exports = run_environment_exports(options);
    if (!m->passed || !m->exports)
        return out_of_memory();
    if (options->wdir && options->wdir[0] == '/')
        snprintf(m->wdir, sizeof m->wdir, "%s", options->wdir);
    else if (!getcwd(m->wdir, sizeof m->wdir)) {
        fprintf(stderr, "ucx-run: the working directory has no name: %s; give --wdir\n", strerror(errno));
        return RUN_RC_SYSTEM;
    }
    size_t n = strlen(m->wdir);
    int fits = 1;
    if (options->output_dir)
        fits =
            snprintf(m->output_dir, sizeof m->output_dir, "%s%s%s",
                     options->output_dir[0] == '/' ? "" : m->wdir, options->output_dir[0] == '/' ? "" : "/",
                     options->output_dir) < (int)sizeof m->output_dir;
    if (fits && options->wdir && options->wdir[0] != '/')
        fits = (size_t)snprintf(m->wdir + n, sizeof m->wdir - n, "/%s", options->wdir) < sizeof m->wdir - n;
    if (!fits) {
        fprintf(stderr, "ucx-run: the name of --wdir or --output-filename is too long\n");
        return RUN_RC_USAGE;
    }
    return place(job, options->ranks);
}

void run_remote_unplan(run_job_t *job)
{
    run_remote_t *m = job->remote;
    if (!m)
        return;
    free_ranks(job);
    free_hosts(m);
    run_hostlist_free(&m->left);
    run_environment_free(m->passed);
    free(m->exports);
    free(m);
    job->remote = NULL;
}

int run_remote_regroup(run_job_t *job)
{
    run_remote_t *m = job->remote;
    const run_options_t *o = job->options;
    int dropped = 0;
    for (int i = m->hosts - 1; i >= 0; i--) /* from the end: the places before stay what they are */
        if (m->host[i].lost) {
            run_hostlist_drop(&m->left, m->host[i].listed);
            dropped++;
        }
    if (m->left.count == 0) {
        run_say("ucx-run: no host is left to go on with");
        return RUN_RC_LOST;
    }
    /* As crowded as it was at the beginning, and no more. */
    long crowd = (o->ranks - 1) / o->hosts.slots + 1, most = crowd * m->left.slots;
    int world = most < o->ranks ? (int)most : o->ranks;
    if (dropped && world < job->world)
        run_say("ucx-run: %d host%s left with %d slot%s: going on with %d of %d ranks", m->left.count,
                m->left.count == 1 ? "" : "s", m->left.slots, m->left.slots == 1 ? "" : "s", world, o->ranks);
    else if (dropped)
        run_say("ucx-run: %d host%s left, with slots for all %d ranks", m->left.count,
                m->left.count == 1 ? "" : "s", world);
    return place(job, world);
}

/* --- talking --- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Sends what goes without blocking. A connection that has ended is noticed where we read. */
static void flush_host(host_t *h)
{
    while (h->in >= 0 && run_buffer_length(&h->to) > 0) {
        ssize_t n = write(h->in, run_buffer_front(&h->to), run_buffer_length(&h->to));
        if (n > 0)
            h->to.head += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n < 0 && errno != EINTR)
            close_fd(&h->in);
    }
}

static int can_hear(const host_t *h)
{
    return h->in >= 0 && h->greeted && h->state >= PLANNING && h->state <= RUNNING;
}

static void push_died(run_job_t *job, int r, int status)
{
    run_remote_t *m = job->remote;
    job->rank[r].alive = 0;
    job->rank[r].status = status;
    job->alive--;
    m->host[m->of[r]].alive--;
    m->died[m->ndied++] = r;
}

/* The ranks of a host that we do not hear of any more. */
static void give_up_ranks(run_job_t *job, host_t *h)
{
    run_remote_t *m = job->remote;
    for (int r = 0; r < job->world && h->alive > 0; r++)
        if (&m->host[m->of[r]] == h && job->rank[r].alive) {
            job->rank[r].lost = 1;
            push_died(job, r, SIGKILL);
        }
}

static void hang_up(host_t *h)
{
    close_fd(&h->in);
    close_fd(&h->out);
    close_fd(&h->err);
    if (h->pid > 0)
        kill(h->pid, SIGKILL);
    h->state = GONE;
}

/* Lines of the standard error of ssh, srun or the agent: they tell why something failed. */
static void say_errors(host_t *h, int all)
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
        /* srun's word on our --cpu-bind=none where nothing would be bound anyway */
        if (shown > 0 && !memmem(line, (size_t)shown, "lacks support for cpu binding", 29))
            run_say("ucx-run: %s: %.*s", h->name, shown, line);
        b->head += n + (newline == line + n);
    }
}

static void read_errors(host_t *h)
{
    while (h->err >= 0 && run_buffer_reserve(&h->errors, 4096)) {
        ssize_t n = read(h->err, h->errors.data + h->errors.tail, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            close_fd(&h->err);
            break;
        }
        h->errors.tail += (size_t)n;
        say_errors(h, 0);
    }
}

static void lose(run_job_t *job, host_t *h, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void lose(run_job_t *job, host_t *h, const char *format, ...)
{
    run_remote_t *m = job->remote;
    char why[400];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    read_errors(h);
    say_errors(h, 1);
    state_t was = h->state;
    hang_up(h);
    if (was >= ENDING || m->stopping) {
        give_up_ranks(job, h);
        return;
    }
    h->lost = 1;
    if (was < STARTING &&
        job->attempt == 0) { /* nothing has run: this is a mistake rather than an accident */
        run_say("ucx-run: cannot start ranks on %s: %s", h->name, why);
        m->refused = m->refused ? m->refused : RUN_RC_SYSTEM;
    } else if (h->alive > 0) {
        run_say("ucx-run: host %s is lost (%s): its %d rank%s count%s as failed", h->name, why, h->alive,
                h->alive == 1 ? "" : "s", h->alive == 1 ? "s" : "");
    }
    m->stillborn |= !m->gone;
    give_up_ranks(job, h);
}

/* Why the process that held the connection ended, for a host that should have gone on. */
static void lose_by_status(run_job_t *job, host_t *h)
{
    const run_options_t *o = job->options;
    char name[16];
    int code = WIFEXITED(h->status) ? WEXITSTATUS(h->status) : -1;
    int first = !h->greeted;
    if (h->pid > 0)
        lose(job, h, "its connection was closed");
    else if (WIFSIGNALED(h->status))
        lose(job, h, "%s was killed by %s", run_remote_caller(o, h->name),
             run_signal_name(WTERMSIG(h->status), name));
    else if (first && (code == 127 || code == 126))
        lose(job, h,
             "%s %s there: install Gyre at the same place on all hosts, or say with --agent where ucx-run "
             "lies "
             "on them",
             run_remote_agent_path(o), code == 127 ? "was not found" : "cannot be executed");
    else if (first)
        lose(job, h, "%s ended with code %d before an agent answered", run_remote_caller(o, h->name), code);
    else if (code == 255 && !run_is_here(h->name))
        lose(job, h, "the connection broke: %s ended with code 255", run_remote_caller(o, h->name));
    else
        lose(job, h, "its agent ended with code %d", code);
}

static void put(run_job_t *job, host_t *h, int ok)
{
    if (!ok)
        lose(job, h,
             "out of memory for what it should be told, or more of it than fits: environment and "
             "arguments must stay below 16 MiB");
    else
        flush_host(h);
}

static void send_plain(run_job_t *job, host_t *h, run_wire_kind_t kind)
{
    put(job, h, run_wire_put(&h->to, kind, NULL, 0));
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
    setpgid(0, 0); /* a terminal's ^C is for us to deal with */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == launcher && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2) {
        run_undo_launcher();
        execvp(command[0], command);
        fprintf(stderr, "cannot execute %s: %s\n", command[0], strerror(errno));
    }
    _exit(errno == ENOENT ? RUN_RC_NOT_FOUND : RUN_RC_NOT_RUNNABLE);
}

static void call(run_job_t *job, host_t *h)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    char **command = run_remote_command(job->options, h->name);
    h->state = CALLING;
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
        close_fd(&in[i]);
        close_fd(&out[i]);
        close_fd(&err[i]);
    }
    run_words_free(command);
    if (h->out < 0) {
        h->pid = 0;
        lose(job, h, "%s", strerror(why));
    }
}

static void call_more(run_job_t *job)
{
    run_remote_t *m = job->remote;
    int calling = 0;
    for (int i = 0; i < m->hosts; i++)
        calling += m->host[i].state == CALLING;
    for (int i = 0; i < m->hosts && calling < CALLS_AT_ONCE && !m->refused && !m->stopping; i++)
        if (m->host[i].state == QUEUED) {
            call(job, &m->host[i]);
            calling++;
        }
}

int run_remote_start(run_job_t *job)
{
    run_remote_t *m = job->remote;
    current = job;
    m->ndied = m->refused = m->gone = m->stillborn = m->stopping = 0;
    m->dropping = m->dropped[0] = m->dropped[1] = 0;
    m->ticked = base_now();
    m->tick = base_deadline(PING_SECONDS);
    job->alive = job->world;
    for (int r = 0; r < job->world; r++)
        job->rank[r].alive = 1;
    for (int i = 0; i < m->hosts; i++)
        m->host[i].alive = m->host[i].ranks;
    call_more(job);
    return 0;
}

/* --- what agents say --- */

static void send_job(run_job_t *job, host_t *h)
{
    run_remote_t *m = job->remote;
    const run_options_t *o = job->options;
    run_capture_t capture;
    int n = 0, here = (int)(h - m->host);
    double grace = o->kill_grace_s / 2;
    int *number = calloc((size_t)h->ranks, sizeof *number);
    for (int r = 0; number && r < job->world; r++)
        if (m->of[r] == here)
            number[n++] = r;
    run_output_terminals(&capture);
    run_wire_job_t wire = {.world = job->world,
                           .ranks = h->ranks,
                           .number = number,
                           .node = here,
                           .nodes = m->hosts,
                           .attempt = job->attempt,
                           .bind = (int)(o->bind_given ? o->bind : TOPO_BIND_CORE),
                           .bind_given = o->bind_given,
                           .report_bindings = o->report_bindings,
                           .stdin_to = run_input_ended() ? RUN_STDIN_NONE : o->stdin_to,
                           .terminal = {capture.terminal[0], capture.terminal[1]},
                           .columns = capture.columns,
                           .rows = capture.rows,
                           .silence_ms = (uint32_t)(LEASH_FACTOR * o->lost_after_s * 1e3),
                           .grace_ms = grace < 60 ? (uint32_t)(grace * 1e3) : 60000,
                           .id = job->id,
                           .secret = job->secret,
                           .wdir = m->wdir,
                           .output_dir = m->output_dir,
                           .peer = m->host[here == 0 && m->hosts > 1].name,
                           .program = o->program,
                           .environment = m->passed,
                           .exports = m->exports};
    h->state = PLANNING;
    h->ready = m->of[0] != here; /* rank 0's host says first where it listens */
    put(job, h, number && run_wire_put_job(&h->to, &wire));
    free(number);
}

static void go_if_ready(run_job_t *job)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != PLANNING || !m->host[i].ready)
            return;
    m->gone = 1;
    for (int i = 0; i < m->hosts; i++) {
        m->host[i].state = STARTING;
        put(job, &m->host[i], run_wire_put_root(&m->host[i].to, RUN_WIRE_GO, job->root, job->master_port));
    }
}

static const char *on_hello(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    uint32_t version, pid;
    const char *name;
    if (h->state != CALLING || !run_wire_hello(frame, &version, &pid, &name))
        return "a malformed HELLO";
    if (version != RUN_WIRE_VERSION)
        return "the word of another version of ucx-run; install the same one on all hosts";
    send_job(job, h);
    call_more(job);
    go_if_ready(job);
    return NULL;
}

static const char *on_root(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    const char *root;
    if (h->state != PLANNING || h->ready || !run_wire_root(frame, &root, &job->master_port))
        return "a malformed ROOT";
    snprintf(job->root, sizeof job->root, "%s", root);
    h->ready = 1;
    go_if_ready(job);
    return NULL;
}

/* Whether `rank` is one that this host may speak of. */
static int is_of(const run_job_t *job, const host_t *h, int rank)
{
    return rank < job->world && &job->remote->host[job->remote->of[rank]] == h && h->state >= STARTING;
}

static const char *on_started(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    int rank, pid;
    if (!run_wire_started(frame, &rank, &pid) || !is_of(job, h, rank) || job->rank[rank].pid)
        return "a malformed STARTED";
    job->rank[rank].pid = pid;
    if (++h->started == h->ranks && h->state == STARTING)
        h->state = RUNNING;
    return NULL;
}

static const char *on_refused(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    int rc;
    const char *why;
    if (h->state < PLANNING || !run_wire_refused(frame, &rc, &why))
        return "a malformed REFUSED";
    if (!job->remote->refused) {
        const char *own = "ucx-run: ";
        size_t n = strncmp(why, own, strlen(own)) == 0 ? strlen(own) : 0;
        run_say("ucx-run: %s: %s", h->name, why + n);
        job->remote->refused = rc;
    }
    h->state = ENDING;
    return NULL;
}

static const char *on_output(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    int rank, to;
    const char *data;
    size_t n;
    if (!run_wire_output(frame, &rank, &to, &data, &n) || !is_of(job, h, rank))
        return "a malformed OUTPUT";
    run_remote_t *m = job->remote;
    if (m->dropping && !m->dropped[to] && !run_output_room(to)) {
        m->dropped[to] = 1;
        run_say("ucx-run: nobody reads our %s: what the ranks still print there is lost",
                to ? "standard error" : "output");
    }
    if (!m->dropped[to])
        run_output_take(rank, to, data, n);
    return NULL;
}

static void set_doing(run_job_t *job, int rank, const char *doing)
{
    free(job->rank[rank].doing);
    job->rank[rank].doing = *doing ? strdup(doing) : NULL;
}

static const char *on_exit_of(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    int rank, status;
    unsigned state;
    const char *doing;
    if (!run_wire_exit(frame, &rank, &status, &state, &doing) || !is_of(job, h, rank) ||
        !job->rank[rank].alive)
        return "a malformed EXIT";
    job->rank[rank].state = state;
    set_doing(job, rank, doing);
    push_died(job, rank, status);
    return NULL;
}

static const char *on_doing(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    int rank;
    const char *doing;
    if (!run_wire_doing(frame, &rank, &doing) || !is_of(job, h, rank))
        return "a malformed DOING";
    set_doing(job, rank, doing);
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *on_frame(run_job_t *job, host_t *h, const run_frame_t *frame)
{
    const char *text;
    switch (frame->kind) {
    case RUN_WIRE_HELLO:
        return on_hello(job, h, frame);
    case RUN_WIRE_ROOT:
        return on_root(job, h, frame);
    case RUN_WIRE_STARTED:
        return on_started(job, h, frame);
    case RUN_WIRE_REFUSED:
        return on_refused(job, h, frame);
    case RUN_WIRE_OUTPUT:
        return on_output(job, h, frame);
    case RUN_WIRE_EXIT:
        return on_exit_of(job, h, frame);
    case RUN_WIRE_DOING:
        return on_doing(job, h, frame);
    case RUN_WIRE_NOTE:
        if (!run_wire_note(frame, &text))
            return "a malformed NOTE";
        run_say("%s", text);
        return NULL;
    case RUN_WIRE_TAKEN:
        h->owes = 0;
        return NULL;
    case RUN_WIRE_PONG:
        return NULL;
    default:
        return "a frame of an unknown kind";
    }
}

/* What a login shell prints comes before the magic; nobody wants to see it unless no agent answers. */
static int greeted(run_job_t *job, host_t *h)
{
    long at = run_wire_find_magic(run_buffer_front(&h->from), run_buffer_length(&h->from));
    if (at >= 0) {
        h->from.head += (size_t)at;
        h->greeted = 1;
    } else if (run_buffer_length(&h->from) > RUN_WIRE_NOISE_MAX) {
        lose(job, h, "%d bytes came that are not from an agent; what does its shell print at login?",
             RUN_WIRE_NOISE_MAX);
    }
    return h->greeted;
}

static void read_frames(run_job_t *job, host_t *h)
{
    run_frame_t frame;
    const char *why = NULL;
    long bytes;
    if (!h->greeted && !greeted(job, h))
        return;
    while (h->state != GONE && (bytes = run_wire_next(run_buffer_front(&h->from), run_buffer_length(&h->from),
                                                      RUN_WIRE_TO_LAUNCHER, &frame, &why)) != 0) {
        if (bytes > 0)
            why = on_frame(job, h, &frame);
        if (why) {
            lose(job, h, "its agent sent %s", why);
            return;
        }
        h->from.head += (size_t)bytes;
    }
}

static void ended(run_job_t *job, host_t *h)
{
    close_fd(&h->out);
    if (h->state == ENDING || job->remote->stopping) {
        read_errors(h);
        say_errors(h, 1);
        give_up_ranks(job, h);
        close_fd(&h->in);
        close_fd(&h->err);
        h->state = GONE;
    } else if (h->pid > 0) {
        h->closed = base_deadline(LAST_WORDS_SECONDS);
    } else {
        lose_by_status(job, h);
    }
}

static void read_host(run_job_t *job, host_t *h)
{
    if (!run_buffer_reserve(&h->from, READ_BYTES)) {
        lose(job, h, "out of memory for what it says");
        return;
    }
    ssize_t n = read(h->out, h->from.data + h->from.tail, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        ended(job, h);
        return;
    }
    h->from.tail += (size_t)n;
    h->heard = base_now();
    read_frames(job, h);
}

/* --- the event loop's side --- */

size_t run_remote_poll_max(const run_job_t *job)
{
    return job->remote ? 3 * (size_t)job->remote->hosts : 0;
}

/* More of what the hosts say can be taken. */
static int room(const run_remote_t *m)
{
    return m->dropping || (run_output_room(0) && run_output_room(1));
}

size_t run_remote_poll(run_job_t *job, struct pollfd *fds)
{
    run_remote_t *m = job->remote;
    size_t n = 0;
    int reading = room(m);
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        h->polled = n;
        if (h->state == QUEUED || h->state == GONE)
            continue;
        fds[n++] = (struct pollfd){.fd = reading ? h->out : -1, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = h->err, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = run_buffer_length(&h->to) > 0 ? h->in : -1, .events = POLLOUT};
    }
    return n;
}

void run_remote_event(run_job_t *job, const struct pollfd *fds, size_t n)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        const struct pollfd *mine = fds + h->polled;
        if (h->state == QUEUED || h->state == GONE || h->polled + 3 > n)
            continue;
        if (mine[1].revents && h->err >= 0)
            read_errors(h);
        if (mine[2].revents && h->in >= 0)
            flush_host(h);
        if (mine[0].revents && h->out >= 0)
            read_host(job, h);
    }
}

void run_remote_reaped(run_job_t *job, pid_t pid, int status)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        if (h->pid != pid)
            continue;
        h->pid = 0;
        h->status = status;
        if (h->out < 0 && h->state != GONE)
            lose_by_status(job, h);
        return;
    }
}

base_time_t run_remote_deadline(const run_job_t *job)
{
    const run_remote_t *m = job->remote;
    base_time_t next = m->tick;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != GONE && m->host[i].closed < next)
            next = m->host[i].closed;
    return next;
}

static double silence(const host_t *h)
{
    return (double)(base_now() - h->heard) / 1e9;
}

/* An agent that is starting its ranks, perhaps from a slow file system, answers nobody meanwhile. */
static double patience(const run_job_t *job, const host_t *h)
{
    double given = job->options->lost_after_s;
    return h->state == RUNNING || given > CALL_SECONDS ? given : CALL_SECONDS;
}

void run_remote_tick(run_job_t *job)
{
    run_remote_t *m = job->remote;
    base_time_t now = base_now();
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != GONE && now >= m->host[i].closed)
            lose_by_status(job, &m->host[i]);
    if (now < m->tick)
        return;
    /* While we were stopped, or did not read because nobody takes our output, the silence was ours. */
    base_time_t away = now - m->ticked > (base_time_t)(2.5e9 * PING_SECONDS) ? now - m->ticked : 0;
    m->ticked = now;
    m->tick = base_deadline(PING_SECONDS);
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        h->heard = room(m) ? h->heard + away : now;
        h->heard = h->heard < now ? h->heard : now;
        if (h->state == CALLING && silence(h) > CALL_SECONDS)
            lose(job, h, "no answer within %g s", CALL_SECONDS);
        else if (can_hear(h) && silence(h) > patience(job, h))
            lose(job, h, "no sign of life for %.1f s", silence(h));
        else if (can_hear(h) && run_buffer_length(&h->to) == 0)
            send_plain(job, h, RUN_WIRE_PING);
    }
}

void run_remote_ping(run_job_t *job)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (can_hear(&m->host[i]))
            send_plain(job, &m->host[i], RUN_WIRE_PING);
}

int run_remote_doubtful(const run_job_t *job, base_time_t since)
{
    const run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (can_hear(&m->host[i]) && m->host[i].alive > 0 && m->host[i].heard < since)
            return 1;
    return 0;
}

int run_remote_died(run_job_t *job)
{
    run_remote_t *m = job->remote;
    if (m->ndied == 0)
        return -1;
    int r = m->died[0];
    memmove(m->died, m->died + 1, (size_t)--m->ndied * sizeof *m->died);
    return r;
}

int run_remote_refused(const run_job_t *job, int *rc)
{
    *rc = job->remote->refused;
    return *rc != 0;
}

int run_remote_stillborn(const run_job_t *job)
{
    return job->remote->stillborn;
}

int run_remote_running(const run_job_t *job)
{
    const run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state < RUNNING)
            return 0;
    return 1;
}

/* --- what we tell them --- */

void run_remote_signal(run_job_t *job, int signal, int alone)
{
    run_remote_t *m = job->remote;
    uint32_t numbers[] = {(uint32_t)signal, (uint32_t)alone};
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        if (can_hear(h) && h->state >= STARTING)
            put(job, h, run_wire_put_numbers(&h->to, RUN_WIRE_SIGNAL, numbers, 2, NULL));
    }
}

void run_remote_close_stream(run_job_t *job, int to)
{
    run_remote_t *m = job->remote;
    uint32_t number = (uint32_t)to;
    for (int i = 0; i < m->hosts; i++)
        if (can_hear(&m->host[i]))
            put(job, &m->host[i], run_wire_put_numbers(&m->host[i].to, RUN_WIRE_CLOSE, &number, 1, NULL));
}

void run_remote_drop_output(run_job_t *job)
{
    job->remote->dropping = 1;
}

void run_remote_ask(run_job_t *job)
{
    for (int r = 0; r < job->world; r++)
        if (job->rank[r].alive)
            set_doing(job, r, "");
    for (int i = 0; i < job->remote->hosts; i++)
        if (can_hear(&job->remote->host[i]))
            send_plain(job, &job->remote->host[i], RUN_WIRE_ASK);
}

int run_remote_answered(const run_job_t *job)
{
    for (int r = 0; r < job->world; r++)
        if (job->rank[r].alive && !job->rank[r].doing && can_hear(&job->remote->host[job->remote->of[r]]))
            return 0;
    return 1;
}

static int reads_input(const run_job_t *job, const host_t *h)
{
    const run_remote_t *m = job->remote;
    int to = job->options->stdin_to;
    return h->in >= 0 && h->state == RUNNING && h->alive > 0 &&
           (to == RUN_STDIN_ALL || (to >= 0 && to < job->world && &m->host[m->of[to]] == h));
}

int run_remote_input_ready(void)
{
    const run_remote_t *m = current->remote;
    int readers = 0;
    if (!run_remote_running(current))
        return 0;
    for (int i = 0; i < m->hosts; i++) {
        int reads = reads_input(current, &m->host[i]);
        readers += reads;
        if (reads && m->host[i].owes)
            return 0;
    }
    return readers > 0;
}

void run_remote_input(const char *data, size_t n)
{
    run_remote_t *m = current->remote;
    for (int i = 0; i < m->hosts; i++)
        if (reads_input(current, &m->host[i])) {
            m->host[i].owes = 1;
            put(current, &m->host[i], run_wire_put(&m->host[i].to, RUN_WIRE_INPUT, data, n));
        }
}

/* The end of an agent's input is the end of its leash. */
void run_remote_stop(run_job_t *job)
{
    run_remote_t *m = job->remote;
    m->stopping = 1;
    for (int i = 0; i < m->hosts; i++) {
        host_t *h = &m->host[i];
        if (h->state == QUEUED) {
            h->state = GONE;
            give_up_ranks(job, h);
        } else if (h->state == CALLING) { /* nobody is there yet who would heed it */
            hang_up(h);
            give_up_ranks(job, h);
        } else if (h->state != GONE) {
            h->state = ENDING;
            close_fd(&h->in);
        }
    }
}

int run_remote_gone(const run_job_t *job)
{
    for (int i = 0; i < job->remote->hosts; i++)
        if (job->remote->host[i].state != GONE)
            return 0;
    return 1;
}

void run_remote_hang_up(run_job_t *job)
{
    for (int i = 0; i < job->remote->hosts; i++) {
        host_t *h = &job->remote->host[i];
        if (h->state == GONE)
            continue;
        read_errors(h);
        say_errors(h, 1);
        hang_up(h);
        give_up_ranks(job, h);
    }
}

/* --- dry run --- */

static void print_ranks(const run_job_t *job, int host)
{
    const int *of = job->remote->of;
    int shown = 0;
    for (int r = 0; r < job->world; r++) {
        int last = r;
        if (of[r] != host)
            continue;
        while (last + 1 < job->world && of[last + 1] == host)
            last++;
        printf("%s%d", shown++ ? "," : "", r);
        if (last > r)
            printf("-%d", last);
        r = last;
    }
}

int run_remote_dry(const run_job_t *job)
{
    const run_remote_t *m = job->remote;
    const run_options_t *o = job->options;
    printf("# launcher %s: %d ranks on %d host%s; each agent hears over its standard input what to run\n",
           run_engine_name(o->engine), job->world, m->hosts, m->hosts == 1 ? "" : "s");
    for (int i = 0; i < m->hosts; i++) {
        char **command = run_remote_command(o, m->host[i].name);
        if (!command)
            return out_of_memory();
        printf("# %s: rank%s ", m->host[i].name, m->host[i].ranks == 1 ? "" : "s");
        print_ranks(job, i);
        putchar('\n');
        run_print_words(stdout, command);
        run_words_free(command);
    }
    puts("# and each rank R there, with GYRE_LOCAL_RANK and the like, on top of what that host's environment "
         "holds:");
    fputs("cd ", stdout);
    run_print_quoted(stdout, m->wdir);
    printf(" && env GYRE_RANK=R GYRE_SIZE=%d GYRE_JOB=%s GYRE_SECRET=******** GYRE_RESTART=0", job->world,
           job->id);
    for (int list = 0; list < 2; list++)
        for (char **at = list ? m->exports : m->passed; *at; at++) {
            putchar(' ');
            run_print_quoted(stdout, *at);
        }
    putchar(' ');
    run_print_words(stdout, o->program);
    return 0;
}
