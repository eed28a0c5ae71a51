/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/dry.c: --dry-run: prints what ucx-run would do, as words of the shell. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

void run_print_quoted(FILE *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%";
    if (*text && text[strspn(text, plain)] == 0) {
        fputs(text, out);
        return;
    }
    putc('\'', out);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            putc(*text, out);
    putc('\'', out);
}

/* What differs from our own environment is what the reader wants to see. */
static int is_inherited(const char *entry)
{
    for (char **at = environ; *at; at++)
        if (strcmp(*at, entry) == 0)
            return 1;
    return 0;
}

int run_dry(const run_job_t *job)
{
    static const char *const words[] = {"nothing", "core", "the L3 cache of core", "the NUMA node of core"};
    const run_options_t *o = job->options;
    topo_bind_t how = o->bind_given ? o->bind : TOPO_BIND_CORE;
    for (int r = 0; r < o->ranks; r++) {
        char **env = run_environment(job, r, 1);
        if (!env) {
            fprintf(stderr, "ucx-run: out of memory for the environment of rank %d\n", r);
            return RUN_RC_SYSTEM;
        }
        printf("# rank %d on %s, ", r, run_hostname());
        if (job->rank[r].core >= 0)
            printf("bound to %s %d\n", words[how], job->rank[r].core);
        else
            puts("not bound");
        if (o->wdir) {
            fputs("cd ", stdout);
            run_print_quoted(stdout, o->wdir);
            fputs(" && ", stdout);
        }
        fputs("env", stdout);
        for (char **at = env; *at; at++)
            if (!is_inherited(*at)) {
                putchar(' ');
                run_print_quoted(stdout, *at);
            }
        for (char **at = o->program; *at; at++) {
            putchar(' ');
            run_print_quoted(stdout, *at);
        }
        if (o->output_dir) {
            fputs(" >", stdout);
            run_print_quoted(stdout, o->output_dir);
            printf("/rank.%d/stdout 2>", r);
            run_print_quoted(stdout, o->output_dir);
            printf("/rank.%d/stderr", r);
        }
        putchar('\n');
        run_environment_free(env);
    }
    return 0;
}
