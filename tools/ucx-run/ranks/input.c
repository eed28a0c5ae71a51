/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/input.c: standard input for the ranks that get it; the others read /dev/null.
 *
 * A single rank on this host simply inherits a file or pipe. In three cases ucx-run reads the input and
 * passes it on:
 *  - A terminal cannot be inherited: the ranks are in process groups of their own and would be stopped for
 *    reading it.
 *  - `all` needs copies.
 *  - Ranks on other hosts cannot inherit it.
 *
 * It passes on one chunk at a time, the next when all ranks have taken the last. On other hosts the agent
 * does the second half: its chunks are fed to it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

#define FOREGROUND_SECONDS 1.0 /* between looks whether we are in the terminal's foreground */

static run_input_t how;
static int copying;  /* we read, or are fed, and pass on */
static int finished; /* end of input */
static int *targets; /* [ranks] write ends, -1: no pipe */
static size_t *sent; /* [ranks] bytes of chunk passed on */
static char chunk[RUN_INPUT_BYTES];
static size_t chunk_bytes;

int run_input_open(const run_input_t *given)
{
    how = *given;
    copying = how.fed || how.pass || how.to == RUN_STDIN_ALL || (how.to >= 0 && isatty(STDIN_FILENO));
    finished = how.to == RUN_STDIN_NONE;
    chunk_bytes = 0;
    targets = calloc((size_t)how.ranks, sizeof *targets);
    sent = calloc((size_t)how.ranks, sizeof *sent);
    if (!targets || !sent) {
        run_say("ucx-run: out of memory for %d ranks", how.ranks);
        return RUN_RC_SYSTEM;
    }
    for (int r = 0; r < how.ranks; r++)
        targets[r] = -1;
    return 0;
}

static void close_target(int rank)
{
    if (targets[rank] >= 0)
        close(targets[rank]);
    targets[rank] = -1;
}

int run_input_attach(int i, int number, run_stdio_t *stdio)
{
    stdio->in = -1;
    if (finished || (how.to != RUN_STDIN_ALL && how.to != number))
        return 0;
    if (!copying) {
        stdio->in = STDIN_FILENO;
        return 0;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        run_say("ucx-run: cannot make a pipe for rank %d: %s", number, strerror(errno));
        return RUN_RC_SYSTEM;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    close_target(i); /* of an attempt before */
    stdio->in = ends[0];
    targets[i] = ends[1];
    sent[i] = chunk_bytes;
    return 0;
}

void run_input_attached(run_stdio_t *stdio)
{
    if (stdio->in > STDERR_FILENO)
        close(stdio->in);
    stdio->in = -1;
}

static int behind(int rank)
{
    return targets[rank] >= 0 && sent[rank] < chunk_bytes;
}

/* Only its foreground process group may read a terminal. The shell's `fg` of a job that runs sends no
 * signal. */
static int may_read(void)
{
    return !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static int wants_more(int readers)
{
    return !how.fed && !finished && (how.pass ? how.ready() : readers > 0);
}

size_t run_input_poll(struct pollfd *fds, base_time_t *again)
{
    size_t n = 0;
    int readers = 0;
    *again = BASE_TIME_NEVER;
    if (!copying)
        return 0;
    for (int r = 0; r < how.ranks; r++) {
        readers += targets[r] >= 0;
        if (behind(r))
            fds[n++] = (struct pollfd){.fd = targets[r], .events = POLLOUT};
    }
    if (n > 0 || !wants_more(readers))
        return n;
    if (may_read())
        fds[n++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    else
        *again = base_deadline(FOREGROUND_SECONDS);
    return n;
}

static void pass_on(int rank)
{
    while (behind(rank)) {
        ssize_t n = write(targets[rank], chunk + sent[rank], chunk_bytes - sent[rank]);
        if (n > 0)
            sent[rank] += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n < 0 && errno != EINTR)
            close_target(rank); /* the rank closed its standard input */
    }
}

static void give(size_t n)
{
    chunk_bytes = n;
    finished = n == 0;
    for (int r = 0; r < how.ranks; r++) {
        sent[r] = 0;
        if (finished)
            close_target(r);
        else
            pass_on(r);
    }
}

static void read_more(void)
{
    ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (how.pass)
        how.pass(chunk, n > 0 ? (size_t)n : 0);
    give(n > 0 ? (size_t)n : 0);
}

void run_input_feed(const char *data, size_t n)
{
    memcpy(chunk, data, n);
    give(n);
}

int run_input_ended(void)
{
    return finished;
}

int run_input_taken(void)
{
    for (int r = 0; r < how.ranks; r++)
        if (behind(r))
            return 0;
    return 1;
}

void run_input_event(const struct pollfd *fd)
{
    if (!copying)
        return;
    if (fd->fd == STDIN_FILENO && fd->events == POLLIN) {
        read_more();
        return;
    }
    for (int r = 0; r < how.ranks; r++)
        if (fd->events == POLLOUT && targets[r] == fd->fd)
            pass_on(r);
}

void run_input_close(void)
{
    for (int r = 0; targets && r < how.ranks; r++)
        close_target(r);
    free(targets);
    free(sent);
    targets = NULL;
    sent = NULL;
}
