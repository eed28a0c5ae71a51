/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/agent_command.c: the command that starts the agent on a host, and lists of words.
 * See agent_command.h. */
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/hosts/agent_command.h"
#include "base/grow.h"
#include "tools/ucx-run/run.h"

const char *run_remote_agent_path(const run_options_t *options)
{
    static char self[PATH_MAX];
    if (options->agent)
        return options->agent;
    if (!self[0]) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        snprintf(self + (n > 0 ? n : 0), sizeof self - (size_t)(n > 0 ? n : 0), "%s", n > 0 ? "" : "ucx-run");
    }
    return self;
}

const char *run_remote_caller(const run_options_t *options, const char *host)
{
    if (options->engine == RUN_ENGINE_SLURM)
        return "srun";
    if (run_is_here(host))
        return "ucx-run";
    return options->rsh ? options->rsh : "ssh";
}

/* Whether the first of `words` is OpenSSH's client, which understands our options. */
static int is_ssh(const run_words_t *words)
{
    const char *name = words->count ? strrchr(words->word[0], '/') : NULL;
    return words->count && strcmp(name ? name + 1 : words->word[0], "ssh") == 0;
}

static void add_ssh(run_words_t *words, const run_options_t *o, const char *host)
{
    run_words_split(words, o->rsh ? o->rsh : "ssh");
    if (is_ssh(words)) {
        /* -x, -T: neither X11 nor a terminal, which would garble the agent's messages. Three missed signs of
         * life fit into lost_after_s. */
        double patience = o->lost_after_s - 2;
        run_words_split(words, "-x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=1");
        run_words_add(words, "-o");
        run_words_add_format(words, "ServerAliveCountMax=%d",
                             patience < 2     ? 2
                             : patience > 600 ? 600
                                              : (int)patience);
    }
    if (o->launcher_args)
        run_words_split(words, o->launcher_args);
    run_words_add(words, host);
}

static void add_srun(run_words_t *words, const run_options_t *o, const char *host)
{
    /* One step per node, in parallel with any other step of the allocation; the agent binds its ranks. */
    run_words_split(words,
                    "srun --quiet --overlap --nodes=1 --ntasks=1 --mpi=none --cpu-bind=none --unbuffered");
    run_words_add_format(words, "--nodelist=%s", host);
    if (o->launcher_args)
        run_words_split(words, o->launcher_args);
}

/* The remote shell takes the command apart again: the path is quoted for it. */
static void add_quoted_agent(run_words_t *words, const char *path)
{
    size_t n = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &n);
    if (!out) {
        words->failed = 1;
        return;
    }
    run_print_quoted(out, path);
    fputs(" " RUN_AGENT_FLAG, out);
    if (fclose(out) != 0 || !text)
        words->failed = 1;
    else
        run_words_add(words, text);
    free(text);
}

char **run_remote_command(const run_options_t *options, const char *host)
{
    run_words_t words = {NULL, 0, 0, 0};
    const char *path = run_remote_agent_path(options);
    int slurm = options->engine == RUN_ENGINE_SLURM;
    if (slurm)
        add_srun(&words, options, host);
    else if (!run_is_here(host))
        add_ssh(&words, options, host);
    if (slurm || words.count == 0) {
        run_words_add(&words, path);
        run_words_add(&words, RUN_AGENT_FLAG);
    } else {
        add_quoted_agent(&words, path);
    }
    return run_words_take(&words);
}

/* --- words --- */

void run_words_add(run_words_t *words, const char *word)
{
    if (!base_grow(&words->word, &words->room, (size_t)words->count, 2, sizeof *words->word)) {
        words->failed = 1;
        return;
    }
    char *copy = strdup(word);
    if (!copy) {
        words->failed = 1;
        return;
    }
    words->word[words->count++] = copy;
    words->word[words->count] = NULL;
}

void run_words_add_format(run_words_t *words, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        words->failed = 1;
    else
        run_words_add(words, text);
}

int run_words_split(run_words_t *words, const char *text)
{
    char *word = malloc(strlen(text) + 1);
    size_t n = 0;
    char quote = 0;
    int inside = 0;
    if (!word) {
        words->failed = 1;
        return 1;
    }
    for (; *text; text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"') {
            quote = quote ? 0 : *text;
            inside = 1;
        } else if (*text == '\\' && quote != '\'' && text[1]) {
            word[n++] = *++text;
            inside = 1;
        } else if (!quote && strchr(" \t\n", *text)) {
            word[n] = 0;
            if (inside)
                run_words_add(words, word);
            n = 0;
            inside = 0;
        } else {
            word[n++] = *text;
            inside = 1;
        }
    }
    word[n] = 0;
    if (inside)
        run_words_add(words, word);
    free(word);
    return quote == 0;
}

char **run_words_take(run_words_t *words)
{
    char **list = words->word;
    if (!words->failed)
        return list;
    run_words_free(list);
    return NULL;
}

void run_words_free(char **words)
{
    for (char **at = words; at && *at; at++)
        free(*at);
    free(words);
}

void run_print_words(FILE *out, char *const *words)
{
    for (char *const *at = words; *at; at++) {
        if (at > words)
            putc(' ', out);
        run_print_quoted(out, *at);
    }
    putc('\n', out);
}
