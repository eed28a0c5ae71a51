/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run.c: starts the ranks of a job, here or on other hosts, and supervises them
 * (docs/man/ucx-run.1).
 *
 * The parts lie in tools/ucx-run/; run.h describes each. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/engines/foreign.h"
#include "tools/shared/output.h"
#include "tools/ucx-run/run.h"

/* Descriptors 0 to 2 must exist, or a pipe would land there. */
static int have_stdio(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            return 0;
    return 1;
}

static int is_remote(const run_options_t *o)
{
    return o->engine != RUN_ENGINE_FORK;
}

/* A single rank gets our descriptors, but no terminal: the rank is in a process group of its own, which the
 * kernel stops at the first change to the terminal's settings (tcsetattr), as programs with a prompt make. */
static int is_direct(const run_options_t *o)
{
    return o->ranks == 1 && !o->tag && !isatty(STDOUT_FILENO) && !isatty(STDERR_FILENO);
}

/* Two pipes per rank stay open (three with --stdin all), or three per host. */
static unsigned long descriptors(const run_options_t *o)
{
    unsigned long per_rank = o->output_dir || is_direct(o) ? 0 : 2;
    if (is_remote(o))
        return 24 + 3 * (unsigned long)o->hosts.count;
    return 24 + (unsigned long)o->ranks * (per_rank + (o->stdin_to == RUN_STDIN_ALL ? 1 : 0));
}

/* Starts all ranks on this host; on a failure ends those that already run. */
static int start(run_job_t *job)
{
    int rc = run_spawn_all(job);
    if (job->root_fd >= 0)
        close(job->root_fd); /* rank 0 has it: when rank 0 dies the port must not answer */
    job->root_fd = -1;
    if (!rc)
        return 0;
    run_kill_all(job, SIGKILL);
    for (int r = 0; r < job->ranks; r++)
        if (job->rank[r].alive) {
            while (waitpid(job->rank[r].pid, NULL, 0) < 0 && errno == EINTR)
                continue;
            run_leash_remove(job->rank[r].pid);
            job->rank[r].alive = 0;
        }
    job->alive = 0;
    return rc;
}

static int attempt_here(run_job_t *job, run_result_t *result)
{
    int rc = run_leash_open(RUN_LEASH_KILL);
    if (!rc)
        rc = run_job_open(job);
    if (rc) {
        run_leash_close();
        return rc;
    }
    rc = start(job);
    run_supervise(job, result); /* with no rank alive it only sweeps and writes what is left */
    job->failed = rc || result->rc;
    if (job->failed && job->recorder.path)
        run_say("ucx-run: the flight recorder is kept: gyre-doctor --job %s", job->recorder.path);
    run_job_close(job);
    return rc;
}

static int attempt(run_job_t *job, run_result_t *result)
{
    if (!job->remote)
        return attempt_here(job, result);
    run_job_identify(job);
    int rc = run_remote_start(job);
    if (!rc)
        run_supervise(job, result);
    run_job_close(job);
    return rc ? rc : result->refused ? result->rc : 0;
}

static int open_streams(const run_options_t *o)
{
    run_capture_t capture = {
        .ranks = o->ranks, .output_dir = o->output_dir, .direct = is_direct(o), .take = run_output_take};
    run_input_t input = {.ranks = o->ranks, .to = o->stdin_to};
    int rc = run_output_open(o->ranks, o->tag);
    if (is_remote(o)) {
        input.ready = run_remote_input_ready;
        input.pass = run_remote_input;
    } else if (!rc) {
        run_output_terminals(&capture);
        rc = run_capture_open(&capture);
    }
    return rc ? rc : run_input_open(&input);
}

static int run(const run_options_t *options, run_job_t *job)
{
    int rc = open_streams(options);
    job->deadline = base_deadline(options->timeout_s); /* 0: never */
    for (job->attempt = 0; !rc; job->attempt++) {
        run_result_t result = {0};
        int refused = attempt(job, &result);
        rc = refused ? refused : result.rc;
        if (refused || !rc || result.stopped || result.survived || job->attempt >= options->max_restarts)
            break;
        if (rc == RUN_RC_USAGE) {
            run_say("ucx-run: not started anew: code %d says that the command line is wrong", rc);
            break;
        }
        if (job->remote && run_remote_regroup(job) != 0)
            break;
        run_say("ucx-run: starting %s%d rank%s anew (restart %d of %d)", job->world == 1 ? "" : "all ",
                job->world, job->world == 1 ? "" : "s", job->attempt + 1, options->max_restarts);
        rc = 0;
    }
    run_input_close();
    run_capture_close();
    run_output_close();
    return rc;
}

static int run_or_print(const run_options_t *options, run_job_t *job)
{
    if (!options->dry_run) {
        int rc = run_signals_open();
        if (!rc)
            rc = run(options, job);
        run_signals_close();
        return rc;
    }
    if (job->remote) {
        run_job_identify(job);
        return run_remote_dry(job);
    }
    int rc = run_job_open(job);
    if (!rc)
        rc = run_dry(job);
    run_job_close(job);
    return rc;
}

static int run_foreign_or_print(const run_options_t *options)
{
    run_job_t job;
    if (!options->dry_run)
        return run_foreign(options);
    memset(&job, 0, sizeof job);
    run_job_identify(&job);
    return run_foreign_dry(options, &job);
}

/* The job's id and secret change with every start; this one stays, and travels as any other GYRE_ variable
 * does. */
static int name_launch(void)
{
    unsigned char id[8];
    char text[2 * sizeof id + 1];
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(text, sizeof text, id, sizeof id);
    if (setenv("GYRE_LAUNCH", text, 1) == 0)
        return 0;
    fprintf(stderr, "ucx-run: no memory for the environment\n");
    return RUN_RC_SYSTEM;
}

int main(int argc, char **argv)
{
    run_options_t options;
    run_job_t job;
    if (!have_stdio())
        return RUN_RC_SYSTEM;
    int rc = run_sweep_spare();
    if (rc)
        return rc;
    if (argc == 2 && strcmp(argv[1], RUN_AGENT_FLAG) == 0)
        return run_agent();
    rc = run_options_parse(argc, argv, &options);
    if (rc >= 0) {
        run_options_free(&options);
        return rc;
    }
    run_environment_check(&options);
    if (sodium_init() < 0) {
        fprintf(stderr, "ucx-run: libsodium found no source of random numbers\n");
        rc = RUN_RC_SYSTEM;
        goto out;
    }
    rc = run_have_descriptors(descriptors(&options));
    if (rc)
        goto out;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = name_launch();
    if (rc)
        goto out;
    if (run_is_foreign(options.engine)) {
        rc = run_foreign_or_print(&options);
        goto out;
    }
    rc = is_remote(&options) ? run_remote_plan(&job, &options) : run_job_plan(&job, &options);
    if (!rc)
        rc = run_or_print(&options, &job);
    if (job.remote)
        run_remote_unplan(&job);
    else
        run_job_unplan(&job);
out:
    if (options.dry_run)
        rc = output_end("ucx-run", rc, RUN_RC_SYSTEM);
    run_options_free(&options);
    return rc;
}
