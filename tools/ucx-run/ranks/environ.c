/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/environ.c: the environment of the ranks. */
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/machine/cgroup.h"
#include "base/settings/settings.h"
#include "tools/ucx-run/run.h"

static const char *const identity[] = {
    "GYRE_RANK", "GYRE_SIZE",       "GYRE_ROOT",       "GYRE_ROOT_FD",     "GYRE_SECRET",
    "GYRE_JOB",  "GYRE_LOCAL_RANK", "GYRE_LOCAL_SIZE", "GYRE_RECORDER_FD", "GYRE_RESTART"};
enum { IDENTITY = sizeof identity / sizeof identity[0] };

int run_environment_is_identity(const char *name, size_t n)
{
    for (int i = 0; i < IDENTITY; i++)
        if (strlen(identity[i]) == n && strncmp(name, identity[i], n) == 0)
            return 1;
    return 0;
}

void run_environment_drop_identity(void)
{
    for (int i = 0; i < IDENTITY; i++)
        unsetenv(identity[i]);
}

typedef struct {
    char **entry;
    size_t count, room;
    int failed;
} env_t;

static int same_name(const char *a, const char *b)
{
    size_t n = strcspn(b, "=");
    return strncmp(a, b, n) == 0 && a[n] == '=';
}

/* Sets "K=V", or removes K when `text` has no '='. */
static void env_put(env_t *env, const char *text)
{
    size_t at = 0;
    while (at < env->count && !same_name(env->entry[at], text))
        at++;
    if (!strchr(text, '=')) {
        if (at < env->count) {
            free(env->entry[at]);
            env->entry[at] = env->entry[--env->count];
            env->entry[env->count] = NULL;
        }
        return;
    }
    if (!base_grow(&env->entry, &env->room, at, 2, sizeof *env->entry)) {
        env->failed = 1;
        return;
    }
    char *copy = strdup(text);
    if (!copy) {
        env->failed = 1;
        return;
    }
    if (at < env->count)
        free(env->entry[at]);
    else
        env->entry[++env->count] = NULL;
    env->entry[at] = copy;
}

static void env_number(env_t *env, const char *name, int value)
{
    char text[64];
    snprintf(text, sizeof text, "%s=%d", name, value);
    env_put(env, text);
}

static void env_text(env_t *env, const char *name, const char *value)
{
    char text[160];
    snprintf(text, sizeof text, "%s=%s", name, value);
    env_put(env, text);
}

static int env_has(const env_t *env, const char *name)
{
    for (size_t i = 0; i < env->count; i++)
        if (same_name(env->entry[i], name))
            return 1;
    return 0;
}

static void env_job(env_t *env, const run_job_t *job, int i, int mask)
{
    const run_rank_t *rank = &job->rank[i];
    char address[sizeof job->root];
    const char *from = job->root + (job->root[0] == '['), *to = strrchr(job->root, ':');
    if (to && to > from && to[-1] == ']')
        to--;
    snprintf(address, sizeof address, "%.*s", to ? (int)(to - from) : 0, from);
    env_number(env, "GYRE_RANK", rank->number);
    env_number(env, "GYRE_SIZE", job->world);
    env_text(env, "GYRE_ROOT", job->root);
    env_text(env, "GYRE_SECRET", mask ? "********" : job->secret);
    env_text(env, "GYRE_JOB", job->id);
    env_number(env, "GYRE_LOCAL_RANK", i);
    env_number(env, "GYRE_LOCAL_SIZE", job->ranks);
    env_number(env, "GYRE_RECORDER_FD", job->recorder.fd);
    env_number(env, "GYRE_RESTART", job->attempt);
    env_put(env, "GYRE_ROOT_FD");
    if (rank->number == 0)
        env_number(env, "GYRE_ROOT_FD", job->root_fd);
    env_number(env, "RANK", rank->number);
    env_number(env, "WORLD_SIZE", job->world);
    env_number(env, "LOCAL_RANK", i);
    env_number(env, "LOCAL_WORLD_SIZE", job->ranks);
    env_text(env, "MASTER_ADDR", address);
    env_number(env, "MASTER_PORT", job->master_port);
    /* As torchrun does: several ranks that each start a thread per core would only be in each other's way. */
    if (job->ranks > 1 && !env_has(env, "OMP_NUM_THREADS")) {
        const int each = base_cpus_allowed() / job->ranks;
        env_number(env, "OMP_NUM_THREADS", each > 1 ? each : 1);
    }
}

static char **finished(env_t *env)
{
    if (!env->failed)
        return env->entry;
    run_environment_free(env->entry);
    return NULL;
}

char **run_environment(const run_job_t *job, int i, int mask)
{
    env_t env = {NULL, 0, 0, 0};
    env_put(&env, "GYRE_RANK=0"); /* the list is never empty */
    for (char **at = environ; *at; at++)
        if (strchr(*at, '='))
            env_put(&env, *at);
    env_job(&env, job, i, mask);
    for (int k = 0; k < job->options->nexports; k++)
        if (strchr(job->options->exports[k], '='))
            env_put(&env, job->options->exports[k]);
    return finished(&env);
}

char **run_environment_passed(const run_options_t *options)
{
    static const char *const always[] = {"UCX_*", "GYRE_*", "OMP_*", "PATH", "LD_LIBRARY_PATH"};
    env_t env = {NULL, 0, 0, 0};
    for (char **at = environ; *at; at++) {
        char name[256];
        size_t n = strcspn(*at, "=");
        if (n == 0 || n >= sizeof name || !(*at)[n] || run_environment_is_identity(*at, n))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)n, *at);
        int wanted = 0;
        for (size_t i = 0; i < sizeof always / sizeof always[0] && !wanted; i++)
            wanted = fnmatch(always[i], name, 0) == 0;
        for (int i = 0; i < options->nexports && !wanted; i++)
            wanted = !strchr(options->exports[i], '=') && fnmatch(options->exports[i], name, 0) == 0;
        if (wanted)
            env_put(&env, *at);
    }
    /* A flag of ucx-run that the agents take as a setting, since the folder means the same there. */
    const char *record = base_setting_string(SET_RECORD);
    char setting[PATH_MAX + 32], here[PATH_MAX];
    if (*record && (record[0] == '/' || getcwd(here, sizeof here))) {
        int n = snprintf(setting, sizeof setting, "GYRE_RECORD=%s%s%s", record[0] == '/' ? "" : here,
                         record[0] == '/' ? "" : "/", record);
        env.failed |= n < 0 || (size_t)n >= sizeof setting;
        env_put(&env, setting);
    }
    if (!env.entry && !env.failed && !(env.entry = calloc(1, sizeof *env.entry)))
        env.failed = 1;
    return finished(&env);
}

char **run_environment_exports(const run_options_t *options)
{
    char **list = calloc((size_t)options->nexports + 1, sizeof *list);
    int n = 0;
    for (int i = 0; list && i < options->nexports; i++)
        if (strchr(options->exports[i], '='))
            list[n++] = (char *)(uintptr_t)options->exports[i];
    return list;
}

void run_environment_check(const run_options_t *options)
{
    for (int i = 0; i < options->nexports; i++) {
        const char *name = options->exports[i];
        char **at = environ;
        if (strchr(name, '='))
            continue;
        for (; *at; at++) {
            char found[256];
            snprintf(found, sizeof found, "%.*s", (int)strcspn(*at, "="), *at);
            if (fnmatch(name, found, 0) == 0)
                break;
        }
        if (!*at)
            fprintf(stderr, "ucx-run: warning: -x %s: there is no such variable here\n", name);
    }
}

void run_environment_free(char **environment)
{
    for (char **at = environment; at && *at; at++)
        free(*at);
    free(environment);
}
