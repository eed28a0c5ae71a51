/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/spawn.c: starts one rank. The child reports over a close-on-exec pipe how far it came,
 * which separates "no such program" from a program that ends with 127. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

run_inherited_t run_inherited;

int run_have_descriptors(unsigned long need)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    run_inherited.nofile = limit.rlim_cur;
    if (need <= limit.rlim_cur)
        return 0;
    rlim_t had = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > need ? need : limit.rlim_max;
    if (need <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 0;
    run_say("ucx-run: this job needs about %lu open files on %s but only %lu are allowed: raise the limit "
            "(ulimit -n "
            "%lu), or use --output-filename, which needs fewer",
            need, run_hostname(), (unsigned long)(limit.rlim_max < had ? had : limit.rlim_max), need);
    return RUN_RC_SYSTEM;
}

typedef enum { STAGE_BOUND, STAGE_MEMORY, STAGE_STDIO, STAGE_WDIR, STAGE_EXEC } stage_t;
typedef struct {
    stage_t stage;
    int err;
    char text[160];
} news_t;

static void tell(int fd, stage_t stage, int err, const char *text)
{
    news_t news;
    memset(&news, 0, sizeof news);
    news.stage = stage;
    news.err = err;
    snprintf(news.text, sizeof news.text, "%s", text);
    ssize_t n = write(fd, &news, sizeof news); /* smaller than PIPE_BUF: whole or not at all */
    (void)n; /* if the launcher is gone there is no reader, and PDEATHSIG ends this process */
}

static void __attribute__((noreturn)) give_up(int fd, stage_t stage, int err)
{
    tell(fd, stage, err, "");
    _exit(RUN_RC_NOT_FOUND);
}

static int keep_open(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) == 0;
}

/* Puts `fd` at number `to`, open across exec. */
static int place(int fd, int to)
{
    return fd == to ? keep_open(fd) : dup2(fd, to) == to;
}

void run_undo_launcher(void)
{
    /* What is ignored on purpose (nohup) stays ignored; only SIGPIPE was ucx-run's. */
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &run_inherited.mask, NULL);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = run_inherited.nofile;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void __attribute__((noreturn))
child(run_job_t *job, int i, const run_stdio_t *stdio, int news, pid_t launcher)
{
    const run_options_t *o = job->options;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) /* it died before the line above took effect */
        _exit(RUN_RC_SYSTEM);
    if (job->topo && job->rank[i].core >= 0) {
        char text[128] = "";
        topo_bind_t how = o->bind_given ? o->bind : TOPO_BIND_CORE;
        if (topo_bind_self(job->topo, how, job->rank[i].core, text, sizeof text) == GYRE_OK)
            tell(news, STAGE_BOUND, 0, text);
        else
            tell(news, STAGE_BOUND, 1, gyre_last_error());
    }
    char **environment = run_environment(job, i, 0);
    if (!environment)
        give_up(news, STAGE_MEMORY, ENOMEM);
    int in = stdio->in >= 0 ? stdio->in : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || !place(in, 0) || !place(stdio->out, 1) || !place(stdio->err, 2) ||
        !keep_open(job->recorder.fd) || (job->rank[i].number == 0 && !keep_open(job->root_fd)))
        give_up(news, STAGE_STDIO, errno);
    if (o->wdir && chdir(o->wdir) != 0)
        give_up(news, STAGE_WDIR, errno);
    run_undo_launcher();
    environ = environment; /* execvp takes PATH from it */
    execvp(o->program[0], o->program);
    give_up(news, STAGE_EXEC, errno);
}

/* Prints why a rank could not be started. */
static int explain(const run_options_t *o, int rank, const news_t *news)
{
    const char *why = strerror(news->err);
    switch (news->stage) {
    case STAGE_WDIR:
        run_say("ucx-run: --wdir: cannot enter '%s': %s", o->wdir, why);
        return RUN_RC_SYSTEM;
    case STAGE_EXEC:
        if (news->err == ENOENT) {
            run_say("ucx-run: program '%s' not found%s", o->program[0],
                    strchr(o->program[0], '/') ? " (or the interpreter in its first line)" : " in PATH");
            return RUN_RC_NOT_FOUND;
        }
        run_say("ucx-run: cannot execute '%s': %s", o->program[0], why);
        return RUN_RC_NOT_RUNNABLE;
    default:
        run_say("ucx-run: cannot start rank %d: %s", rank, why);
        return RUN_RC_SYSTEM;
    }
}

static int listen_to(run_job_t *job, int i, int fd)
{
    const run_options_t *o = job->options;
    int rank = job->rank[i].number, pid = (int)job->rank[i].pid;
    int rc = 0, bound = 0;
    news_t news;
    for (;;) {
        ssize_t n = read(fd, &news, sizeof news);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof news)
            break; /* end of file: the program runs */
        if (news.stage != STAGE_BOUND) {
            rc = explain(o, rank, &news);
        } else if (news.err && o->bind_given) {
            run_say("ucx-run: rank %d could not be bound and runs anywhere: %s", rank, news.text);
        } else if (!news.err && o->report_bindings) {
            run_say("ucx-run: rank %d (pid %d, %s) bound to %s", rank, pid, run_hostname(), news.text);
            bound = 1;
        }
    }
    if (!rc && o->report_bindings && !bound)
        run_say("ucx-run: rank %d (pid %d, %s) not bound", rank, pid, run_hostname());
    return rc;
}

/* Starts rank[i]; returns when its program runs. 0, or an exit code after printing the reason. */
static int run_spawn(run_job_t *job, int i, const run_stdio_t *stdio)
{
    int news[2];
    if (pipe2(news, O_CLOEXEC) != 0) {
        run_say("ucx-run: cannot start rank %d: %s", job->rank[i].number, strerror(errno));
        return RUN_RC_SYSTEM;
    }
    fflush(NULL);
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0)
        child(job, i, stdio, news[1], self);
    int err = errno;
    close(news[1]);
    if (pid < 0) {
        close(news[0]);
        run_say("ucx-run: cannot start rank %d of %d: %s%s", job->rank[i].number, job->world, strerror(err),
                err == EAGAIN ? " (the limit of processes is reached: ulimit -u)" : "");
        return RUN_RC_SYSTEM;
    }
    setpgid(pid, pid); /* also done by the child: the first call counts */
    run_leash_add(pid);
    job->rank[i].pid = pid;
    job->rank[i].alive = 1;
    job->rank[i].status = 0;
    job->alive++;
    comm_recorder_note_child(&job->slots[i], job->rank[i].number, (int)pid);
    int rc = listen_to(job, i, news[0]);
    close(news[0]);
    return rc;
}

int run_spawn_all(run_job_t *job)
{
    int rc = 0;
    job->alive = 0;
    for (int i = 0; i < job->ranks && !rc; i++) {
        run_stdio_t stdio = {-1, -1, -1};
        rc = run_input_attach(i, job->rank[i].number, &stdio);
        if (!rc)
            rc = run_capture_attach(i, job->rank[i].number, job->attempt, &stdio);
        if (!rc)
            rc = run_spawn(job, i, &stdio);
        run_capture_attached(&stdio);
        run_input_attached(&stdio);
    }
    return rc;
}
