/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/resolve.c: the hosts of a job on other hosts and the ranks on each, at first and after
 * hosts were lost, and --dry-run of it. See hosts.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/hosts/hosts.h"
#include "tools/ucx-run/run.h"

static int out_of_memory(void)
{
    fprintf(stderr, "ucx-run: out of memory for the hosts\n");
    return RUN_RC_SYSTEM;
}

static void free_hosts(run_remote_t *m)
{
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
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
        m->host[m->hosts++] = (run_node_t){.name = m->left.host[i].name,
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

/* `name` from our working directory on, which an agent's may not be; NULL: that directory. 0, or an exit code
 * after printing the reason. */
static int absolute(char to[PATH_MAX], const char *name)
{
    int relative = !name || name[0] != '/';
    if (relative && !getcwd(to, PATH_MAX)) {
        fprintf(stderr, "ucx-run: the working directory has no name: %s; give absolute folders\n",
                strerror(errno));
        return RUN_RC_SYSTEM;
    }
    size_t n = relative ? strlen(to) : 0;
    const char *slash = relative && name ? "/" : "";
    if ((size_t)snprintf(to + n, PATH_MAX - n, "%s%s", slash, name ? name : "") < PATH_MAX - n)
        return 0;
    fprintf(stderr, "ucx-run: the name of --wdir or --output-filename is too long\n");
    return RUN_RC_USAGE;
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
    int rc = absolute(m->wdir, options->wdir);
    if (!rc && options->output_dir)
        rc = absolute(m->output_dir, options->output_dir);
    return rc ? rc : place(job, options->ranks);
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
