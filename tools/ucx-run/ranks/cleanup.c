/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/cleanup.c: ends what the ranks have left running when a job is over.
 *
 * Orphans of a rank have become ucx-run's children (PR_SET_CHILD_SUBREAPER), so every child is killed, except
 * those that were there before the start. A shell that becomes ucx-run by exec may leave it readers of its
 * output, as in `exec ucx-run ... > >(tee log)`. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

typedef struct {
    int pid;
    unsigned long long since; /* when it started: numbers of processes come again */
} child_t;

static child_t *kept;
static size_t nkept;

/* 1 if `pid` is a child of this process. */
static int read_child(int pid, child_t *child)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const char *text = fgets(line, sizeof line, file);
    fclose(file);
    const char *end = text ? strrchr(text, ')') : NULL; /* the name before it may hold anything */
    int parent = 0;
    child->pid = pid;
    /* fields 4 and 22 of proc(5) */
    return end &&
           sscanf(end + 1, " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &parent, &child->since) == 2 &&
           parent == (int)getpid();
}

/* Finds the next child of this process in `proc`. 1, or 0: there is no other. */
static int next_child(DIR *proc, child_t *child)
{
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        if (pid > 0 && read_child(pid, child))
            return 1;
    }
    return 0;
}

int run_sweep_spare(void)
{
    child_t child;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0; /* then run_sweep finds no child to kill, and reports that */
    while (next_child(proc, &child)) {
        child_t *more = realloc(kept, (nkept + 1) * sizeof *kept);
        if (!more) {
            closedir(proc);
            fprintf(stderr, "ucx-run: out of memory for the list of our children\n");
            return RUN_RC_SYSTEM;
        }
        kept = more;
        kept[nkept++] = child;
    }
    closedir(proc);
    return 0;
}

static int is_kept(const child_t *child)
{
    for (size_t i = 0; i < nkept; i++)
        if (kept[i].pid == child->pid && kept[i].since == child->since)
            return 1;
    return 0;
}

/* How many were killed; a program of another user (setuid) may not be. */
static int kill_children(void)
{
    child_t child;
    int killed = 0;
    DIR *proc = opendir("/proc");
    while (proc && next_child(proc, &child))
        killed += !is_kept(&child) && kill(child.pid, SIGKILL) == 0;
    if (proc)
        closedir(proc);
    else
        run_say("ucx-run: cannot look in /proc for processes that ranks have left: %s", strerror(errno));
    return killed;
}

void run_sweep(void)
{
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid != 0)
            continue;
        /* Children of those that are killed here become children of this process, and are found in the next
         * round. */
        if (kill_children() == 0)
            return;
        while (waitpid(-1, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}
