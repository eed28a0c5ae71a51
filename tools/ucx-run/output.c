/* tools/ucx-run/output.c: what the ranks print, to our own stdout and stderr.
 *
 * Each rank writes to two pipes, or to pseudo-terminals where we have a terminal ourselves, so that programs show
 * progress bars and colours as they would without us. Whole lines (also those that end with a carriage return, as progress bars do)
 * move into one queue per destination, and from there to the descriptor without ever blocking: a write of at
 * most PIPE_BUF bytes after POLLOUT. So a reader that sleeps stops the ranks in time, but never stops us from
 * hearing signals. A line longer than LINE_MAX_BYTES goes out in pieces; should another rank write before its
 * end, a line break is put in between.
 *
 * A single rank without --tag inherits our descriptors, and with --output-filename the ranks write to files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "tools/ucx-run/run.h"

enum { LINE_MAX_BYTES = 1 << 20, QUEUE_MAX_BYTES = 4 << 20, READ_BYTES = 1 << 16 };

typedef struct {
    char *data;
    size_t head, tail, room; /* data[head, tail) is waiting */
} buffer_t;

typedef struct {
    int fd; /* read end; -1: closed */
    int rank;
    int to; /* 0: stdout, 1: stderr */
    buffer_t line;
} stream_t;

typedef struct {
    int fd;
    int plain_file; /* takes any amount without blocking */
    int terminal;
    int broken; /* nobody reads it any more */
    buffer_t queue;
    const stream_t *open_line; /* who wrote the unfinished line at its end; NULL: it ends with a whole line */
} sink_t;

static const run_options_t *options;
static stream_t *streams; /* [2 * ranks] */
static sink_t sinks[2] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
static int direct; /* ranks have our own descriptors */

static int buffer_add(buffer_t *b, const char *data, size_t n)
{
    if (b->head == b->tail)
        b->head = b->tail = 0;
    if (b->room - b->tail < n && b->head > 0) {
        memmove(b->data, b->data + b->head, b->tail - b->head);
        b->tail -= b->head;
        b->head = 0;
    }
    if (b->room - b->tail < n) {
        size_t room = b->room ? b->room : 4096;
        while (room - b->tail < n)
            room *= 2;
        char *more = realloc(b->data, room);
        if (!more)
            return 0;
        b->data = more;
        b->room = room;
    }
    memcpy(b->data + b->tail, data, n);
    b->tail += n;
    return 1;
}

static void close_stream(stream_t *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* Nobody reads `sink`: let the ranks notice as they would without us, by SIGPIPE. */
static void break_sink(sink_t *sink)
{
    sink->broken = 1;
    sink->queue.head = sink->queue.tail = 0;
    for (int i = 0; streams && i < 2 * options->ranks; i++)
        if (streams[i].fd >= 0 && &sinks[streams[i].to] == sink)
            close_stream(&streams[i]);
}

static void flush_sink(sink_t *sink)
{
    buffer_t *q = &sink->queue;
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
            break_sink(sink);
    }
}

static void sink_add(sink_t *sink, const char *data, size_t n)
{
    if (!sink->broken && n > 0 && !buffer_add(&sink->queue, data, n)) {
        flush_sink(sink); /* no memory: make room by writing, else these bytes are lost, which we say */
        if (!buffer_add(&sink->queue, data, n))
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
    if (options && options->tag && from && sink->open_line != from) {
        char prefix[24];
        int length = snprintf(prefix, sizeof prefix, "[%d] ", from->rank);
        sink_add(sink, prefix, (size_t)length);
    }
    sink_add(sink, data, n);
    sink->open_line = data[n - 1] == '\n' || data[n - 1] == '\r' ? NULL : from;
}

/* Length of the first whole line in data[0, n), 0 if there is none. */
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
    buffer_t *b = &s->line;
    sink_t *sink = &sinks[s->to];
    while (b->head < b->tail) {
        const char *data = b->data + b->head;
        size_t n = b->tail - b->head;
        size_t whole = options->tag ? first_line(data, n) : last_line(data, n);
        /* Too long to be kept, or a progress bar that begins with a carriage return and has no end. */
        if (whole == 0 && (n > LINE_MAX_BYTES || (sink->terminal && b->head > 0 && data[-1] == '\r')))
            whole = n;
        if (whole == 0)
            return;
        emit(sink, s, data, whole);
        b->head += whole;
    }
}

static void end_stream(stream_t *s)
{
    buffer_t *b = &s->line;
    sink_t *sink = &sinks[s->to];
    emit_lines(s);
    if (b->head < b->tail)
        emit(sink, s, b->data + b->head, b->tail - b->head);
    b->head = b->tail = 0;
    if (options->tag && sink->open_line == s) {
        sink_add(sink, "\n", 1);
        sink->open_line = NULL;
    }
    close_stream(s);
}

/* Reads once. Returns 0 when there is nothing more to read now. */
static int read_stream(stream_t *s)
{
    static char data[READ_BYTES];
    ssize_t n = read(s->fd, data, sizeof data);
    if (n > 0) {
        if (!buffer_add(&s->line, data, (size_t)n)) {
            emit(&sinks[s->to], s, data, (size_t)n);
            return 1;
        }
        emit_lines(s);
        return 1;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    end_stream(s);
    return 0;
}

static void open_sink(sink_t *sink, int fd)
{
    struct stat st;
    memset(sink, 0, sizeof *sink);
    sink->fd = fd;
    sink->plain_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    sink->terminal = isatty(fd);
}

int run_output_open(const run_options_t *given)
{
    options = given;
    open_sink(&sinks[0], STDOUT_FILENO);
    open_sink(&sinks[1], STDERR_FILENO);
    direct = options->ranks == 1 && !options->tag;
    streams = calloc(2 * (size_t)options->ranks, sizeof *streams);
    if (!streams) {
        fprintf(stderr, "ucx-run: out of memory for %d ranks\n", options->ranks);
        return RUN_RC_SYSTEM;
    }
    for (int i = 0; i < 2 * options->ranks; i++)
        streams[i].fd = -1;
    return 0;
}

static int open_file(int rank, const char *name, int attempt)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rank.%d/%s", options->output_dir, rank, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (attempt ? 0 : O_TRUNC), 0666);
    if (fd < 0)
        run_say("ucx-run: --output-filename: cannot write '%s': %s", path, strerror(errno));
    return fd;
}

static int attach_files(int rank, int attempt, run_stdio_t *stdio)
{
    char path[PATH_MAX];
    if (strlen(options->output_dir) > PATH_MAX - 64) {
        run_say("ucx-run: --output-filename: the name is too long");
        return RUN_RC_SYSTEM;
    }
    snprintf(path, sizeof path, "%s/rank.%d", options->output_dir, rank);
    if ((mkdir(options->output_dir, 0777) != 0 && errno != EEXIST) ||
        (mkdir(path, 0777) != 0 && errno != EEXIST)) {
        run_say("ucx-run: --output-filename: cannot make '%s': %s", path, strerror(errno));
        return RUN_RC_SYSTEM;
    }
    stdio->out = open_file(rank, "stdout", attempt);
    stdio->err = open_file(rank, "stderr", attempt);
    return stdio->out < 0 || stdio->err < 0 ? RUN_RC_SYSTEM : 0;
}

/* A raw pseudo-terminal as wide as ours: ends[0] its master, ends[1] what the rank gets. 0 if there is none. */
static int open_terminal(int like, int ends[2])
{
    char name[64];
    struct termios mode;
    struct winsize size;
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0)
        return 0;
    if (grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0 && ptsname_r(ends[0], name, sizeof name) == 0 &&
        (ends[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0) {
        if (tcgetattr(ends[1], &mode) == 0) {
            cfmakeraw(&mode); /* our own terminal does what is to be done with line ends */
            tcsetattr(ends[1], TCSANOW, &mode);
        }
        if (ioctl(like, TIOCGWINSZ, &size) == 0) {
            if (options->tag && size.ws_col > 16)
                size.ws_col = (unsigned short)(size.ws_col - 8);
            ioctl(ends[1], TIOCSWINSZ, &size);
        }
        return 1;
    }
    close(ends[0]);
    return 0;
}

static int attach_pipe(int rank, int to, int *write_end)
{
    int ends[2];
    if (!(sinks[to].terminal && open_terminal(sinks[to].fd, ends)) && pipe2(ends, O_CLOEXEC) != 0) {
        run_say("ucx-run: cannot make a pipe for rank %d: %s", rank, strerror(errno));
        return RUN_RC_SYSTEM;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* the read end only: the rank's end stays an ordinary pipe */
    stream_t *s = &streams[2 * rank + to];
    s->fd = ends[0];
    s->rank = rank;
    s->to = to;
    *write_end = ends[1];
    return 0;
}

int run_output_attach(int rank, int attempt, run_stdio_t *stdio)
{
    stdio->out = stdio->err = -1;
    if (options->output_dir)
        return attach_files(rank, attempt, stdio);
    if (direct) {
        stdio->out = STDOUT_FILENO;
        stdio->err = STDERR_FILENO;
        return 0;
    }
    int rc = attach_pipe(rank, 0, &stdio->out);
    if (!rc)
        rc = attach_pipe(rank, 1, &stdio->err);
    if (!rc && sinks[0].broken)
        close_stream(&streams[2 * rank]);
    return rc;
}

void run_output_attached(run_stdio_t *stdio)
{
    if (stdio->out > STDERR_FILENO)
        close(stdio->out);
    if (stdio->err > STDERR_FILENO)
        close(stdio->err);
    stdio->out = stdio->err = -1;
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
    size_t length = (size_t)n < sizeof text - 2 ? (size_t)n : sizeof text - 2;
    text[length++] = '\n';
    emit(&sinks[1], NULL, text, length);
    flush_sink(&sinks[1]);
}

size_t run_output_poll_max(void)
{
    return 2 * (size_t)options->ranks + 2;
}

static size_t queued(const sink_t *sink)
{
    return sink->queue.tail - sink->queue.head;
}

size_t run_output_poll(struct pollfd *fds)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        if (queued(&sinks[i]) > 0)
            fds[n++] = (struct pollfd){.fd = sinks[i].fd, .events = POLLOUT};
    for (int i = 0; i < 2 * options->ranks; i++)
        if (streams[i].fd >= 0 && queued(&sinks[streams[i].to]) < QUEUE_MAX_BYTES)
            fds[n++] = (struct pollfd){.fd = streams[i].fd, .events = POLLIN};
    return n;
}

void run_output_event(const struct pollfd *fd)
{
    for (int i = 0; i < 2; i++)
        if (fd->events == POLLOUT && fd->fd == sinks[i].fd)
            flush_sink(&sinks[i]);
    for (int i = 0; fd->events == POLLIN && i < 2 * options->ranks; i++)
        if (streams[i].fd == fd->fd) {
            read_stream(&streams[i]);
            flush_sink(&sinks[streams[i].to]);
            return;
        }
}

void run_output_finish(void)
{
    for (int i = 0; i < 2 * options->ranks; i++) {
        stream_t *s = &streams[i];
        while (s->fd >= 0 && read_stream(s))
            continue;
        if (s->fd >= 0)
            end_stream(s);
        free(s->line.data);
        memset(&s->line, 0, sizeof s->line);
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
    free(sinks[0].queue.data);
    free(sinks[1].queue.data);
    free(streams);
    open_sink(&sinks[0], STDOUT_FILENO);
    open_sink(&sinks[1], STDERR_FILENO);
    streams = NULL;
}
