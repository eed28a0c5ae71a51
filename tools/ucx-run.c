/* tools/ucx-run.c: starts the ranks of a job on this machine and looks after them (docs/man/ucx-run.1).
 *
 * The parts lie in tools/ucx-run/; run.h says what each is for. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

/* Descriptors 0 to 2 must exist, or a pipe would land there. */
static int have_stdio(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            return 0;
    return 1;
}

/* Two pipes per rank stay open (three with --stdin all). Raises our own soft limit as far as it goes; the
 * ranks get the old one back. */
static int have_descriptors(const run_options_t *o)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    run_inherited.nofile = limit.rlim_cur;
    rlim_t per_rank = o->output_dir || (o->ranks == 1 && !o->tag) ? 0 : 2;
    rlim_t need = 24 + (rlim_t)o->ranks * (per_rank + (o->stdin_to == RUN_STDIN_ALL ? 1 : 0));
    if (need <= limit.rlim_cur)
        return 1;
    rlim_t had = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > need ? need : limit.rlim_max;
    if (need <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 1;
    fprintf(stderr,
            "ucx-run: %d ranks need about %lu open files here but only %lu are allowed: raise the limit "
            "(ulimit -n %lu), or use --output-filename, which needs none\n",
            o->ranks, (unsigned long)need, (unsigned long)(limit.rlim_max < had ? had : limit.rlim_max),
            (unsigned long)need);
    return 0;
}

/* Starts all ranks; on a failure ends those that already run. */
static int start(run_job_t *job)
{
    int rc = 0;
    job->alive = 0;
    for (int r = 0; r < job->options->ranks && !rc; r++) {
        run_stdio_t stdio = {-1, -1, -1};
        rc = run_input_attach(r, &stdio);
        if (!rc)
            rc = run_output_attach(r, job->attempt, &stdio);
        if (!rc)
            rc = run_spawn(job, r, &stdio);
        run_output_attached(&stdio);
        run_input_attached(&stdio);
    }
    return rc;
}

static int attempt(run_job_t *job, run_result_t *result)
{
    int rc = run_leash_open();
    if (!rc)
        rc = run_job_open(job);
    if (rc) {
        run_leash_close();
        return rc;
    }
    rc = start(job);
    if (rc)
        run_kill_all(job, SIGKILL);
    else
        close(job->root_fd); /* rank 0 has it: when rank 0 dies the port must answer nobody */
    if (!rc)
        job->root_fd = -1;
    if (rc) {
        for (int r = 0; r < job->options->ranks; r++)
            if (job->rank[r].alive) {
                while (waitpid(job->rank[r].pid, NULL, 0) < 0 && errno == EINTR)
                    continue;
                run_leash_remove(job->rank[r].pid);
                job->rank[r].alive = 0;
            }
        job->alive = 0;
    }
    run_supervise(job, result); /* with no rank alive it only sweeps and writes what is left */
    job->failed = rc || result->rc;
    if (job->failed && job->recorder.path)
        run_say("ucx-run: the flight recorder is kept: gyre-doctor --job %s", job->recorder.path);
    run_job_close(job);
    return rc;
}

static int run(const run_options_t *options, run_job_t *job)
{
    int rc = run_output_open(options);
    if (!rc)
        rc = run_input_open(options);
    job->deadline = base_deadline(options->timeout_s); /* 0: never */
    for (job->attempt = 0; !rc; job->attempt++) {
        run_result_t result = {0, 0};
        int refused = attempt(job, &result);
        rc = refused ? refused : result.rc;
        if (refused || !rc || result.stopped || job->attempt >= options->max_restarts)
            break;
        run_say("ucx-run: starting all %d ranks anew (restart %d of %d)", options->ranks, job->attempt + 1,
                options->max_restarts);
        rc = 0;
    }
    run_input_close();
    run_output_close();
    return rc;
}

/* -x K without a value only says that K must not be missing: the ranks get all of our environment. */
static void check_exports(const run_options_t *options, char **environment)
{
    for (int i = 0; i < options->nexports; i++) {
        const char *name = options->exports[i];
        size_t n = strlen(name);
        char **at = environment;
        if (strchr(name, '='))
            continue;
        while (*at && !(strncmp(*at, name, n) == 0 && (*at)[n] == '='))
            at++;
        if (!*at)
            fprintf(stderr, "ucx-run: warning: -x %s: there is no such variable here\n", name);
    }
}

int main(int argc, char **argv, char **environment)
{
    run_options_t options;
    run_job_t job;
    if (!have_stdio())
        return RUN_RC_SYSTEM;
    int rc = run_options_parse(argc, argv, &options);
    if (rc >= 0) {
        run_options_free(&options);
        return rc;
    }
    check_exports(&options, environment);
    if (sodium_init() < 0) {
        fprintf(stderr, "ucx-run: libsodium found no source of random numbers\n");
        rc = RUN_RC_SYSTEM;
        goto out;
    }
    if (!have_descriptors(&options)) {
        rc = RUN_RC_SYSTEM;
        goto out;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = run_job_plan(&job, &options);
    if (rc)
        goto out;
    if (options.dry_run) {
        rc = run_job_open(&job);
        if (!rc)
            rc = run_job_dry(&job);
        run_job_close(&job);
    } else {
        rc = run_signals_open();
        if (!rc)
            rc = run(&options, &job);
        run_signals_close();
    }
    run_job_unplan(&job);
out:
    run_options_free(&options);
    return rc;
}
