/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/engines/foreign.c: other programs as engines: mpirun (Open MPI), mpiexec.hydra (MPICH, Intel
 * MPI) and prterun (PRRTE) start the ranks and give them their identity (PMIx, PMI-1:
 * comm/launch/identity.c). This file translates ucx-run's options to theirs; supervise.c runs them. An option
 * that an engine does not have is an error; it is not ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/engines/foreign.h"

int run_is_foreign(run_engine_t engine)
{
    return engine == RUN_ENGINE_OPENMPI || engine == RUN_ENGINE_HYDRA || engine == RUN_ENGINE_PRRTE;
}

/* The first of `names` that is in PATH, else the last one. */
static const char *first_program(const char *const *names)
{
    for (; names[1]; names++)
        if (run_in_path(*names))
            return *names;
    return *names;
}

const char *run_foreign_program(run_engine_t engine)
{
    /* With several MPIs installed, Debian gives the bare name to one of them. */
    static const char *const openmpi[] = {"mpirun.openmpi", "mpirun", NULL};
    static const char *const hydra[] = {"mpiexec.hydra", NULL};
    static const char *const prrte[] = {"prterun", NULL};
    return first_program(engine == RUN_ENGINE_OPENMPI ? openmpi : engine == RUN_ENGINE_HYDRA ? hydra : prrte);
}

/* "a:2,b", as all three take it. */
static void add_hosts(run_words_t *words, const char *flag, const run_options_t *o, int slots)
{
    size_t n = 0;
    char *text = NULL;
    FILE *out = o->hosts.count ? open_memstream(&text, &n) : NULL;
    if (!o->hosts.count)
        return;
    for (int i = 0; out && i < o->hosts.count; i++)
        fprintf(out, "%s%s:%d", i ? "," : "", o->hosts.host[i].name, slots ? slots : o->hosts.host[i].slots);
    if (!out || fclose(out) != 0 || !text) {
        words->failed = 1;
    } else {
        run_words_add(words, flag);
        run_words_add(words, text);
    }
    free(text);
}

static void add_pair(run_words_t *words, const char *flag, const char *value)
{
    run_words_add(words, flag);
    run_words_add(words, value);
}

static const char *bind_word(topo_bind_t bind)
{
    return bind == TOPO_BIND_L3 ? "l3cache" : topo_bind_name(bind);
}

/* -x NAME for every variable to pass on. Values stay out of the argument list: the engine takes them from its
 * own environment, where run_foreign_environment has put them. */
static void add_names(run_words_t *words, char *const *environment)
{
    for (; *environment; environment++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*environment, "="), *environment);
        add_pair(words, "-x", name);
    }
}

/* What mpirun and prterun call alike. rsh: their option for the program that reaches hosts. */
static void add_ranks(run_words_t *words, const run_options_t *o)
{
    if (geteuid() == 0)
        run_words_add(words, "--allow-run-as-root");
    run_words_add(words, "-n");
    run_words_add_format(words, "%d", o->ranks);
    add_hosts(words, "--host", o, 0);
}

static void add_rest(run_words_t *words, const run_options_t *o, const char *rsh, char *const *environment)
{
    run_words_add(words, "--stdin");
    if (o->stdin_to == RUN_STDIN_ALL)
        run_words_add(words, "all");
    else if (o->stdin_to == RUN_STDIN_NONE)
        run_words_add(words, "none");
    else
        run_words_add_format(words, "%d", o->stdin_to);
    if (o->wdir)
        add_pair(words, "--wdir", o->wdir);
    if (o->rsh) {
        run_words_split(words, rsh);
        run_words_add(words, o->rsh);
    }
    add_names(words, environment);
}

static void openmpi(run_words_t *words, const run_options_t *o, char *const *environment)
{
    add_ranks(words, o);
    run_words_add(words,
                  "--oversubscribe"); /* as without an engine: more ranks than cores or slots are allowed */
    run_words_add(words, "--map-by");
    if (o->per_node)
        run_words_add_format(words, "ppr:%d:node", o->per_node);
    else
        run_words_add(words, o->map == RUN_MAP_NODE ? "node" : "slot");
    if (o->bind_given) {
        run_words_add(words, "--bind-to");
        run_words_add_format(words, o->bind == TOPO_BIND_NONE ? "%s" : "%s:overload-allowed",
                             bind_word(o->bind));
    }
    if (o->report_bindings)
        run_words_add(words, "--report-bindings");
    if (o->keep_going)
        run_words_add(words, "--enable-recovery");
    if (o->tag)
        run_words_add(words, "--tag-output");
    /* DIR/rank.R/stdout as with ucx-run's own launchers: neither a folder for the job nor a copy to
     * ucx-run */
    if (o->output_dir) {
        run_words_add(words, "--output-filename");
        run_words_add_format(words, "%s:nojobid,nocopy", o->output_dir);
    }
    add_rest(words, o, "--mca plm_rsh_agent", environment);
}

static void prrte(run_words_t *words, const run_options_t *o, char *const *environment)
{
    add_ranks(words, o);
    run_words_add(words, "--map-by");
    if (o->per_node)
        run_words_add_format(words, "ppr:%d:node:oversubscribe", o->per_node);
    else
        run_words_add(words, o->map == RUN_MAP_NODE ? "node:oversubscribe" : "slot:oversubscribe");
    if (o->bind_given) {
        run_words_add(words, "--bind-to");
        run_words_add_format(words, o->bind == TOPO_BIND_NONE ? "%s" : "%s:overload", bind_word(o->bind));
    }
    if (o->report_bindings)
        run_words_split(words, "--display bindings");
    if (o->tag || o->output_dir) {
        run_words_add(words, "--output");
        run_words_add_format(words, "%s%s%s%s", o->tag ? "tag" : "", o->tag && o->output_dir ? "," : "",
                             o->output_dir ? "dir=" : "", o->output_dir ? o->output_dir : "");
    }
    add_rest(words, o, "--prtemca plm_ssh_agent", environment);
}

/* Hydra hands its whole environment on by itself. */
static void hydra(run_words_t *words, const run_options_t *o)
{
    run_words_add(words, "-n");
    run_words_add_format(words, "%d", o->ranks);
    /* It goes round its list of hosts, as many ranks at a time as a host has slots there. */
    add_hosts(words, "-hosts", o, o->map == RUN_MAP_NODE ? 1 : 0);
    if (o->per_node) {
        run_words_add(words, "-ppn");
        run_words_add_format(words, "%d", o->per_node);
    }
    if (o->bind_given)
        add_pair(words, "-bind-to", bind_word(o->bind));
    if (o->tag)
        run_words_add(words, "-prepend-rank");
    if (o->output_dir) {
        run_words_add(words, "-outfile-pattern");
        run_words_add_format(words, "%s/rank.%%r/stdout", o->output_dir);
        run_words_add(words, "-errfile-pattern");
        run_words_add_format(words, "%s/rank.%%r/stderr", o->output_dir);
    }
    if (o->wdir)
        add_pair(words, "-wdir", o->wdir);
    if (o->rsh) {
        run_words_split(words, "-launcher ssh -launcher-exec");
        run_words_add(words, o->rsh);
    }
}

char **run_foreign_command(const run_options_t *o, char *const *environment)
{
    run_words_t words = {NULL, 0, 0, 0};
    run_words_add(&words, run_foreign_program(o->engine));
    if (o->engine == RUN_ENGINE_OPENMPI)
        openmpi(&words, o, environment);
    else if (o->engine == RUN_ENGINE_PRRTE)
        prrte(&words, o, environment);
    else
        hydra(&words, o);
    if (o->launcher_args)
        run_words_split(&words, o->launcher_args);
    for (char **at = o->program; *at; at++)
        run_words_add(&words, *at);
    return run_words_take(&words);
}

int run_foreign_check(const run_options_t *o)
{
    const char *name = run_engine_name(o->engine);
    if (o->engine == RUN_ENGINE_HYDRA && (o->stdin_to == RUN_STDIN_ALL || o->stdin_to > 0))
        return run_usage("--stdin: %s gives its standard input to rank 0 and to no other", name);
    /* Seen with 4.1: ranks on mpirun's host never see the end of it. */
    if (o->engine == RUN_ENGINE_OPENMPI && o->stdin_to == RUN_STDIN_ALL)
        return run_usage("--stdin all: not with %s, whose ranks would wait forever for its end: use the "
                         "launcher ssh or slurm",
                         name);
    if (o->engine == RUN_ENGINE_HYDRA && o->rsh && strpbrk(o->rsh, " \t"))
        return run_usage("--rsh: %s takes one program without arguments", name);
    if (o->engine == RUN_ENGINE_OPENMPI && o->output_dir && strchr(o->output_dir, ':'))
        return run_usage("--output-filename: %s takes no folder with a colon in its name", name);
    if (o->agent)
        return run_usage("--agent: %s brings its own", name);
    /* Hydra ends all when a rank is killed, with -disable-auto-cleanup, too. */
    if (o->keep_going && o->engine != RUN_ENGINE_OPENMPI)
        return run_usage("--no-kill-on-bad-exit: not with %s: use the launcher fork, ssh, slurm or openmpi",
                         name);
    if (o->lost_after_given)
        return run_usage("--lost-after: %s decides by itself when a host is lost", name);
    if (o->engine != RUN_ENGINE_HYDRA && o->per_node && o->map == RUN_MAP_NODE)
        return run_usage(
            "--map-by node: %s does not deal ranks out in turn when -N says how many a host gets", name);
    return -1;
}

char **run_foreign_environment(const run_options_t *o, const run_job_t *job, int mask)
{
    run_words_t all = {NULL, 0, 0, 0};
    char **passed = run_environment_passed(o);
    all.failed = !passed;
    for (char **at = passed; at && *at; at++) {
        int given = 0; /* again by -x K=V */
        size_t n = strcspn(*at, "=") + 1;
        for (int i = 0; i < o->nexports; i++)
            given |= strncmp(o->exports[i], *at, n) == 0;
        if (!given)
            run_words_add(&all, *at);
    }
    for (int i = 0; i < o->nexports; i++)
        if (strchr(o->exports[i], '='))
            run_words_add(&all, o->exports[i]);
    run_words_add_format(&all, "GYRE_SECRET=%s", mask ? "********" : job->secret);
    run_words_add_format(&all, "GYRE_JOB=%s", job->id);
    run_words_add_format(&all, "GYRE_RESTART=%d", job->attempt);
    if (o->engine == RUN_ENGINE_HYDRA && o->report_bindings)
        run_words_add(&all, "HYDRA_TOPO_DEBUG=1"); /* its only way to report where ranks are bound */
    run_environment_free(passed);
    return run_words_take(&all);
}

int run_foreign_dry(const run_options_t *o, const run_job_t *job)
{
    char **environment = run_foreign_environment(o, job, 1);
    char **command = environment ? run_foreign_command(o, environment) : NULL;
    if (!command) {
        run_words_free(environment);
        fprintf(stderr, "ucx-run: out of memory for the engine's command\n");
        return RUN_RC_SYSTEM;
    }
    printf("# launcher %s: %d rank%s%s\n", run_engine_name(o->engine), o->ranks, o->ranks == 1 ? "" : "s",
           run_in_path(command[0]) ? "" : "; it is not installed here");
    fputs("env", stdout);
    for (char **at = environment; *at; at++) {
        putchar(' ');
        run_print_quoted(stdout, *at);
    }
    putchar(' ');
    run_print_words(stdout, command);
    run_words_free(command);
    run_words_free(environment);
    return 0;
}
