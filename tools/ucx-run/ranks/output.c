/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/output.c: writes the ranks' output to ucx-run's own stdout and stderr.
 *
 * Whole lines (also those that end with a carriage return, as progress bars do) move into one queue per
 * destination, and from there to the descriptor without ever blocking: a write of at most PIPE_BUF bytes
 * after POLLOUT, and to a terminal, which may have room for fewer, through a descriptor that never waits. A
 * reader that sleeps thus stops the ranks in time, but never keeps ucx-run from receiving signals. A line
 * longer than LINE_MAX_BYTES goes out in pieces; if another rank writes before its end, a line break is put
 * in between. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tools/ucx-run/hosts/buffer.h"
#include "tools/ucx-run/run.h"

enum { LINE_MAX_BYTES = 1 << 20, QUEUE_MAX_BYTES = 4 << 20 };

typedef struct {
    int rank;
    int to; /* 0: stdout, 1: stderr */
    run_buffer_t line;
} stream_t;

typedef struct {
    int fd;         /* standard output or error; of a terminal one that never waits */
    int plain_file; /* takes any amount without blocking */
    int terminal;
    int broken; /* it has no reader any more */
    int error;  /* errno of the write that failed; 0: none */
    run_buffer_t queue;
    /* the stream of the unfinished line at its end; NULL: it ends with a whole line */
    const stream_t *open_line;
} sink_t;

static int ranks, tag;
static stream_t *streams; /* [2 * ranks] */
static sink_t sinks[2] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
static void (*divert)(const char *line);

/* `sink` has no reader: run_output_broken reports that, and the ranks get SIGPIPE, as they would without
 * ucx-run. */
static void break_sink(sink_t *sink)
{
    sink->broken = 1;
    sink->queue.head = sink->queue.tail = 0;
}

/* No reader, or no descriptor from the start: nobody wants the output. Else somebody does. */
static void fail_sink(sink_t *sink, int error)
{
    break_sink(sink);
    if (error == EPIPE || error == EBADF)
        return;
    sink->error = error;
    if (sink == &sinks[0])
        run_say("ucx-run: cannot write to standard output: %s; the output is lost from here on",
                strerror(error));
}

static void flush_sink(sink_t *sink)
{
    run_buffer_t *q = &sink->queue;
    while (q->head < q->tail && !sink->broken) {
        size_t n = q->tail - q->head;
        if (!sink->plain_file) {
            struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
            if (poll(&ready, 1, 0) <= 0)
                return;
            n = n < PIPE_BUF ? n : PIPE_BUF;
        }
        ssize_t wrote = write(sink->fd, q->data + q->head, n);
        if (wrote > 0)
            q->head += (size_t)wrote;
        else if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        else if (wrote < 0 && errno != EINTR)
            fail_sink(sink, errno);
    }
}

static void sink_add(sink_t *sink, const char *data, size_t n)
{
    if (!sink->broken && n > 0 && !run_buffer_add(&sink->queue, data, n)) {
        flush_sink(sink); /* no memory: make room by writing, else these bytes are lost, which is reported */
        if (!run_buffer_add(&sink->queue, data, n))
            fprintf(stderr, "ucx-run: out of memory: %zu bytes of output are lost\n", n);
    }
}

/* Appends text of `from` (NULL: ourselves), starting a fresh line if someone else's is unfinished. */
static void emit(sink_t *sink, const stream_t *from, const char *data, size_t n)
{
    if (n == 0)
        return;
    if (sink->open_line && sink->open_line != from)
        sink_add(sink, "\n", 1);
    if (tag && from && sink->open_line != from) {
        char prefix[24];
        int length = snprintf(prefix, sizeof prefix, "[%d] ", from->rank);
        sink_add(sink, prefix, (size_t)length);
    }
    sink_add(sink, data, n);
    sink->open_line = data[n - 1] == '\n' || data[n - 1] == '\r' ? NULL : from;
}

/* Length of the first whole line in data[0, n), 0 if there is no whole line. */
static size_t first_line(const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n')
            return i + 1;
        if (data[i] == '\r' && i + 1 < n && data[i + 1] != '\n')
            return i + 1;
    }
    return 0;
}

static size_t last_line(const char *data, size_t n)
{
    while (n > 0 && data[n - 1] != '\n' && data[n - 1] != '\r')
        n--;
    return n;
}

static void emit_lines(stream_t *s)
{
    run_buffer_t *b = &s->line;
    sink_t *sink = &sinks[s->to];
    while (b->head < b->tail) {
        const char *data = b->data + b->head;
        size_t n = b->tail - b->head;
        size_t whole = tag ? first_line(data, n) : last_line(data, n);
        /* On a terminal a single rank's prompt, and a progress bar that begins with a carriage return and has
         * no end; else too long to be kept. */
        int shown = sink->terminal && ((ranks == 1 && !tag) || (b->head > 0 && data[-1] == '\r'));
        if (whole == 0 && (n > LINE_MAX_BYTES || shown))
            whole = n;
        if (whole == 0)
            return;
        emit(sink, s, data, whole);
        b->head += whole;
    }
}

static void end_stream(stream_t *s)
{
    run_buffer_t *b = &s->line;
    sink_t *sink = &sinks[s->to];
    emit_lines(s);
    if (b->head < b->tail)
        emit(sink, s, b->data + b->head, b->tail - b->head);
    b->head = b->tail = 0;
    if (tag && sink->open_line == s) {
        sink_add(sink, "\n", 1);
        sink->open_line = NULL;
    }
}

void run_output_take(int rank, int to, const char *data, size_t n)
{
    stream_t *s = &streams[2 * rank + to];
    if (n == 0)
        end_stream(s);
    else if (run_buffer_add(&s->line, data, n))
        emit_lines(s);
    else
        emit(&sinks[to], s, data, n); /* no memory for a whole line */
    flush_sink(&sinks[to]);
}

static void open_sink(sink_t *sink, int fd)
{
    struct stat st;
    memset(sink, 0, sizeof *sink);
    sink->fd = fd;
    sink->plain_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    sink->terminal = isatty(fd);
    int again = sink->terminal ? base_file_open_again(fd) : -1;
    if (again >= 0)
        sink->fd = again;
}

static void close_sink(sink_t *sink, int fd)
{
    run_buffer_free(&sink->queue);
    if (sink->fd != fd)
        close(sink->fd);
    *sink = (sink_t){.fd = fd};
}

int run_output_open(int of_ranks, int tagged)
{
    ranks = of_ranks;
    tag = tagged;
    open_sink(&sinks[0], STDOUT_FILENO);
    open_sink(&sinks[1], STDERR_FILENO);
    streams = calloc(2 * (size_t)ranks, sizeof *streams);
    if (!streams) {
        fprintf(stderr, "ucx-run: out of memory for %d ranks\n", ranks);
        return RUN_RC_SYSTEM;
    }
    for (int i = 0; i < 2 * ranks; i++) {
        streams[i].rank = i / 2;
        streams[i].to = i % 2;
    }
    return 0;
}

void run_output_terminals(run_capture_t *capture)
{
    capture->columns = capture->rows = 0;
    for (int to = 0; to < 2; to++) {
        struct winsize size;
        capture->terminal[to] = sinks[to].terminal;
        if (!sinks[to].terminal || capture->columns || ioctl(sinks[to].fd, TIOCGWINSZ, &size) != 0)
            continue;
        capture->columns = tag && size.ws_col > 16 ? size.ws_col - 8 : size.ws_col;
        capture->rows = size.ws_row;
    }
}

void run_say_to(void (*to)(const char *line))
{
    divert = to;
}

void run_say(const char *format, ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    if (divert) {
        divert(text);
        return;
    }
    size_t length = (size_t)n < sizeof text - 2 ? (size_t)n : sizeof text - 2;
    text[length++] = '\n';
    emit(&sinks[1], NULL, text, length);
    flush_sink(&sinks[1]);
}

static size_t queued(const sink_t *sink)
{
    return run_buffer_length(&sink->queue);
}

size_t run_output_poll(struct pollfd *fds)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        if (queued(&sinks[i]) > 0)
            fds[n++] = (struct pollfd){.fd = sinks[i].fd, .events = POLLOUT};
    return n;
}

void run_output_event(const struct pollfd *fd)
{
    for (int i = 0; i < 2; i++)
        if (fd->fd == sinks[i].fd)
            flush_sink(&sinks[i]);
}

int run_output_room(int to)
{
    return queued(&sinks[to]) < QUEUE_MAX_BYTES;
}

int run_output_broken(int to)
{
    return sinks[to].broken;
}

int run_output_failed(void)
{
    return sinks[0].error || sinks[1].error;
}

void run_output_give_up(void)
{
    for (int i = 0; i < 2; i++)
        if (!run_output_room(i))
            break_sink(&sinks[i]);
}

void run_output_finish(void)
{
    for (int i = 0; i < 2 * ranks; i++) {
        end_stream(&streams[i]);
        run_buffer_free(&streams[i].line);
    }
    flush_sink(&sinks[0]);
    flush_sink(&sinks[1]);
}

int run_output_pending(void)
{
    return queued(&sinks[0]) > 0 || queued(&sinks[1]) > 0;
}

void run_output_close(void)
{
    close_sink(&sinks[0], STDOUT_FILENO);
    close_sink(&sinks[1], STDERR_FILENO);
    free(streams);
    streams = NULL;
}
