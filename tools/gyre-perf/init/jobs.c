/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/init/jobs.c: starts whole jobs under ucx-run, sizes taking turns, and prints the
 * medians. */
#include "tools/gyre-perf/init/init.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/json.h"

enum { SIZES_MOST = 16 };

/* Finds this program, and the launcher next to it. */
static int find_programs(char *self, char *launcher, size_t bytes)
{
    ssize_t got = readlink("/proc/self/exe", self, bytes - 1);
    if (got <= 0)
        return 0;
    self[got] = '\0';
    int dir = (int)(strrchr(self, '/') - self);
    int need = snprintf(launcher, bytes, "%.*s/ucx-run", dir, self);
    if (need < 0 || (size_t)need >= bytes || access(launcher, X_OK) != 0)
        snprintf(launcher, bytes, "ucx-run"); /* posix_spawnp looks for it */
    return 1;
}

/* What the process writes until it ends: up to bytes - 1 of it. */
static void read_all(int fd, char *text, size_t bytes)
{
    size_t at = 0;
    char waste[512];
    for (;;) {
        int full = at == bytes - 1;
        ssize_t got = read(fd, full ? waste : text + at, full ? sizeof waste : bytes - 1 - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        at += full ? 0 : (size_t)got;
    }
    text[at] = '\0';
}

/* Runs args with standard output into `text`; its exit status, or -1 with errno. */
static int capture(char *const *args, char *text, size_t bytes)
{
    int ends[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (!failed)
            failed = posix_spawnp(&pid, args[0], &actions, NULL, args, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (!failed)
        read_all(ends[0], text, bytes);
    close(ends[0]);
    errno = failed;
    if (failed)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One start of n ranks; 0 with the reason on standard error. */
static int start(const init_options_t *o, char *self, char *launcher, int n, init_row_t *row)
{
    char ranks[16], since[32], timeout[32], text[4096];
    char *args[] = {launcher, "-n", ranks, self, "init", "--since", since, "--timeout", timeout, NULL};
    snprintf(ranks, sizeof ranks, "%d", n);
    snprintf(timeout, sizeof timeout, "%g", o->timeout_s);
    snprintf(since, sizeof since, "%lld", (long long)base_now());
    int code = capture(args, text, sizeof text);
    if (code < 0) {
        fprintf(stderr, "gyre-perf: init: %s cannot be started: %s\n", launcher, strerror(errno));
        return 0;
    }
    json_error_t error;
    int lacks;
    json_t *json = base_json_text(text, strlen(text), &error, &lacks);
    int good = code == 0 && init_from_json(json, row);
    json_decref(json);
    if (!good)
        fprintf(stderr, "gyre-perf: init: the job of %d ranks failed with code %d\n", n, code);
    return good;
}

/* rows: [starts] of one size. */
static init_row_t median_of(const init_row_t *rows, int starts)
{
    init_row_t out = {.ranks = rows[0].ranks, .starts = starts};
    double values[1000]; /* --starts is at most that */
    for (int i = 0; i < INIT_FIGURES; i++) {
        for (int s = 0; s < starts; s++)
            values[s] = rows[s].figure[i];
        out.figure[i] = init_median(values, starts);
    }
    return out;
}

int init_jobs(const init_options_t *o)
{
    char self[4096], launcher[4096];
    int sizes[SIZES_MOST], nsizes = 0, good = 1;
    for (int n = 2; n <= o->max && nsizes < SIZES_MOST; n = n < o->max && n * 2 > o->max ? o->max : n * 2)
        sizes[nsizes++] = n;
    init_row_t *rows = calloc((size_t)nsizes * (size_t)o->starts, sizeof *rows);
    json_t *results = json_array();
    if (!rows || !results || !find_programs(self, launcher, sizeof self)) {
        fprintf(stderr, "gyre-perf: init: %s\n",
                rows && results ? "cannot find out which program this is" : "no memory");
        free(rows);
        json_decref(results);
        return PERF_ERROR;
    }
    /* all sizes once, then again: what else the machine does hits all sizes alike */
    for (int s = 0; s < o->starts && good; s++) {
        for (int i = 0; i < nsizes && good; i++)
            good = start(o, self, launcher, sizes[i], &rows[i * o->starts + s]);
    }
    if (good) {
        printf("# gyre-perf %s: init, medians of %d starts under ucx-run\n", gyre_version(), o->starts);
        init_columns();
    }
    for (int i = 0; i < nsizes && good; i++) {
        init_row_t row = median_of(&rows[i * o->starts], o->starts);
        init_print(&row);
        (void)json_array_append_new(results, init_json(&row));
    }
    free(rows);
    if (good)
        return init_write(o, results);
    json_decref(results);
    return PERF_ERROR;
}
