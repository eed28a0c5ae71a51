/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/capture.c: the output of the ranks of this host.
 *
 * Each rank writes to two pipes, or to pseudo-terminals if ucx-run has a terminal: programs then show
 * progress bars and colours as they would without ucx-run. Output goes to `take` as it comes. A single rank
 * without --tag and without a terminal inherits ucx-run's descriptors, and with --output-filename the ranks
 * write to files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

/* more than a pipe holds; a process that a rank has started may go on writing forever */
enum { DRAIN_READS = 32 };

static run_capture_t how;
static int *streams; /* [2 * how.ranks] read ends, -1: closed */

int run_capture_open(const run_capture_t *given)
{
    how = *given;
    streams = calloc(2 * (size_t)how.ranks, sizeof *streams);
    if (!streams) {
        run_say("ucx-run: out of memory for %d ranks", how.ranks);
        return RUN_RC_SYSTEM;
    }
    for (int i = 0; i < 2 * how.ranks; i++)
        streams[i] = -1;
    return 0;
}

static void close_stream(int i)
{
    if (streams[i] >= 0)
        close(streams[i]);
    streams[i] = -1;
}

static int open_file(int number, const char *name, int attempt)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rank.%d/%s", how.output_dir, number, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (attempt ? 0 : O_TRUNC), 0666);
    if (fd < 0)
        run_say("ucx-run: --output-filename: cannot write '%s': %s", path, strerror(errno));
    return fd;
}

static int attach_files(int number, int attempt, run_stdio_t *stdio)
{
    char path[PATH_MAX];
    if (strlen(how.output_dir) > PATH_MAX - 64) {
        run_say("ucx-run: --output-filename: the name is too long");
        return RUN_RC_SYSTEM;
    }
    snprintf(path, sizeof path, "%s/rank.%d", how.output_dir, number);
    if ((mkdir(how.output_dir, 0777) != 0 && errno != EEXIST) ||
        (mkdir(path, 0777) != 0 && errno != EEXIST)) {
        run_say("ucx-run: --output-filename: cannot make '%s': %s", path, strerror(errno));
        return RUN_RC_SYSTEM;
    }
    stdio->out = open_file(number, "stdout", attempt);
    stdio->err = open_file(number, "stderr", attempt);
    return stdio->out < 0 || stdio->err < 0 ? RUN_RC_SYSTEM : 0;
}

static void set_size(int terminal)
{
    struct winsize size = {.ws_col = (unsigned short)how.columns, .ws_row = (unsigned short)how.rows};
    if (size.ws_col)
        ioctl(terminal, TIOCSWINSZ, &size);
}

void run_capture_resize(const run_capture_t *size)
{
    how.columns = size->columns;
    how.rows = size->rows;
    for (int i = 0; streams && i < 2 * how.ranks; i++)
        if (streams[i] >= 0) /* a pipe has none */
            set_size(streams[i]);
}

/* Opens a raw pseudo-terminal: ends[0] its master, ends[1] the rank's end. 0 if that fails. */
static int open_terminal(int ends[2])
{
    char name[64];
    struct termios mode;
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0)
        return 0;
    if (grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0 && ptsname_r(ends[0], name, sizeof name) == 0 &&
        (ends[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0) {
        if (tcgetattr(ends[1], &mode) == 0) {
            cfmakeraw(&mode); /* the launcher's terminal does what is to be done with line ends */
            tcsetattr(ends[1], TCSANOW, &mode);
        }
        set_size(ends[1]);
        return 1;
    }
    close(ends[0]);
    return 0;
}

static int attach_pipe(int i, int to, int *write_end)
{
    int ends[2];
    if (!(how.terminal[to] && open_terminal(ends)) && pipe2(ends, O_CLOEXEC) != 0) {
        run_say("ucx-run: cannot make a pipe for a rank: %s", strerror(errno));
        return RUN_RC_SYSTEM;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* the read end only: the rank's end stays an ordinary pipe */
    streams[2 * i + to] = ends[0];
    *write_end = ends[1];
    return 0;
}

int run_capture_attach(int i, int number, int attempt, run_stdio_t *stdio)
{
    stdio->out = stdio->err = -1;
    if (how.output_dir)
        return attach_files(number, attempt, stdio);
    if (how.direct) {
        stdio->out = STDOUT_FILENO;
        stdio->err = STDERR_FILENO;
        return 0;
    }
    int rc = attach_pipe(i, 0, &stdio->out);
    return rc ? rc : attach_pipe(i, 1, &stdio->err);
}

void run_capture_attached(run_stdio_t *stdio)
{
    if (stdio->out > STDERR_FILENO)
        close(stdio->out);
    if (stdio->err > STDERR_FILENO)
        close(stdio->err);
    stdio->out = stdio->err = -1;
}

size_t run_capture_poll(struct pollfd *fds, const int room[2])
{
    size_t n = 0;
    for (int i = 0; i < 2 * how.ranks; i++)
        if (streams[i] >= 0 && room[i % 2])
            fds[n++] = (struct pollfd){.fd = streams[i], .events = POLLIN};
    return n;
}

/* Reads once. Returns 0 when there is nothing more to read now. */
static int read_stream(int i)
{
    static char data[RUN_CAPTURE_BYTES];
    ssize_t n = read(streams[i], data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        close_stream(i); /* end of file; of a pseudo-terminal EIO */
    how.take(i / 2, i % 2, data, n > 0 ? (size_t)n : 0);
    return n > 0;
}

void run_capture_event(const struct pollfd *fd)
{
    for (int i = 0; i < 2 * how.ranks; i++)
        if (streams[i] == fd->fd) {
            read_stream(i);
            return;
        }
}

void run_capture_drain(int i)
{
    for (int to = 0; to < 2; to++)
        for (int left = DRAIN_READS; left > 0 && streams[2 * i + to] >= 0 && read_stream(2 * i + to); left--)
            continue;
}

void run_capture_stop(int to)
{
    for (int i = to; streams && i < 2 * how.ranks; i += 2)
        close_stream(i);
}

void run_capture_finish(void)
{
    for (int i = 0; streams && i < 2 * how.ranks; i++) {
        while (streams[i] >= 0 && read_stream(i))
            continue;
        if (streams[i] >= 0) {
            close_stream(i);
            how.take(i / 2, i % 2, NULL, 0);
        }
    }
}

void run_capture_close(void)
{
    run_capture_stop(0);
    run_capture_stop(1);
    free(streams);
    streams = NULL;
}
