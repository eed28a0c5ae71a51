/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/wire.c: frames between launcher and agents. See wire.h. */
#include "tools/ucx-run/hosts/wire.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    run_wire_kind_t kind;
    run_wire_way_t way;
    size_t most; /* bytes of payload */
} kinds[] = {
    {RUN_WIRE_JOB, RUN_WIRE_TO_AGENT, RUN_WIRE_JOB_MAX},
    {RUN_WIRE_GO, RUN_WIRE_TO_AGENT, 512},
    {RUN_WIRE_SIGNAL, RUN_WIRE_TO_AGENT, 8},
    {RUN_WIRE_INPUT, RUN_WIRE_TO_AGENT, RUN_WIRE_DATA_MAX},
    {RUN_WIRE_ASK, RUN_WIRE_TO_AGENT, 0},
    {RUN_WIRE_PING, RUN_WIRE_TO_AGENT, 0},
    {RUN_WIRE_CLOSE, RUN_WIRE_TO_AGENT, 4},
    {RUN_WIRE_HELLO, RUN_WIRE_TO_LAUNCHER, 512},
    {RUN_WIRE_ROOT, RUN_WIRE_TO_LAUNCHER, 512},
    {RUN_WIRE_STARTED, RUN_WIRE_TO_LAUNCHER, 8},
    {RUN_WIRE_REFUSED, RUN_WIRE_TO_LAUNCHER, 4096},
    {RUN_WIRE_OUTPUT, RUN_WIRE_TO_LAUNCHER, 8 + RUN_WIRE_DATA_MAX},
    {RUN_WIRE_TAKEN, RUN_WIRE_TO_LAUNCHER, 0},
    {RUN_WIRE_EXIT, RUN_WIRE_TO_LAUNCHER, 4096},
    {RUN_WIRE_DOING, RUN_WIRE_TO_LAUNCHER, 4096},
    {RUN_WIRE_NOTE, RUN_WIRE_TO_LAUNCHER, 4096},
    {RUN_WIRE_PONG, RUN_WIRE_TO_LAUNCHER, 0},
    {RUN_WIRE_STOPPED, RUN_WIRE_TO_LAUNCHER, 0},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

long run_wire_next(const void *data, size_t n, run_wire_way_t way, run_frame_t *frame, const char **why)
{
    const unsigned char *head = data;
    if (n < RUN_WIRE_HEAD)
        return 0;
    size_t bytes = get32(head);
    if (head[5] != 0 || (head[6] | head[7] << 8) != RUN_WIRE_MARK) {
        *why = "bytes that are no frame";
        return -1;
    }
    int i = 0;
    while (i < KINDS && !((int)kinds[i].kind == head[4] && kinds[i].way == way))
        i++;
    if (i == KINDS) {
        *why = "a frame of an unknown kind";
        return -1;
    }
    if (bytes > kinds[i].most) {
        *why = "a frame that is too long";
        return -1;
    }
    if (n - RUN_WIRE_HEAD < bytes)
        return 0;
    *frame = (run_frame_t){kinds[i].kind, head + RUN_WIRE_HEAD, bytes};
    return (long)(RUN_WIRE_HEAD + bytes);
}

long run_wire_find_magic(const void *data, size_t n)
{
    const char *at = n ? memmem(data, n, RUN_WIRE_MAGIC, sizeof RUN_WIRE_MAGIC - 1) : NULL;
    return at ? at + sizeof RUN_WIRE_MAGIC - 1 - (const char *)data : -1;
}

/* --- reading payloads --- */

typedef struct {
    const unsigned char *at;
    size_t left;
    int bad;
} reader_t;

static reader_t read_frame(const run_frame_t *frame)
{
    return (reader_t){frame->data, frame->bytes, 0};
}

static uint32_t number(reader_t *r)
{
    if (r->left < 4) {
        r->bad = 1;
        return 0;
    }
    uint32_t value = get32(r->at);
    r->at += 4;
    r->left -= 4;
    return value;
}

/* A number in low..high, else the reader is bad. */
static int ranged(reader_t *r, int64_t low, int64_t high)
{
    int32_t value = (int32_t)number(r);
    if (value < low || value > high)
        r->bad = 1;
    return r->bad ? 0 : value;
}

/* Never NULL. */
static const char *text(reader_t *r)
{
    size_t n = number(r);
    if (r->bad || n == 0 || n > r->left || r->at[n - 1] != 0 || memchr(r->at, 0, n) != r->at + n - 1) {
        r->bad = 1;
        return "";
    }
    const char *found = (const char *)r->at;
    r->at += n;
    r->left -= n;
    return found;
}

static int whole(const reader_t *r)
{
    return !r->bad && r->left == 0;
}

int run_wire_hello(const run_frame_t *frame, uint32_t *version, uint32_t *pid, const char **host)
{
    reader_t r = read_frame(frame);
    *version = number(&r);
    *pid = number(&r);
    *host = text(&r);
    return whole(&r);
}

int run_wire_root(const run_frame_t *frame, const char **root, int *master_port)
{
    reader_t r = read_frame(frame);
    *root = text(&r);
    *master_port = ranged(&r, 1, 65535);
    return whole(&r) && **root && strlen(*root) < 128;
}

int run_wire_signal(const run_frame_t *frame, int *signal, int *alone)
{
    reader_t r = read_frame(frame);
    *signal = ranged(&r, 1, 64);
    *alone = ranged(&r, 0, 1);
    return whole(&r);
}

int run_wire_close(const run_frame_t *frame, int *to)
{
    reader_t r = read_frame(frame);
    *to = ranged(&r, 0, 1);
    return whole(&r);
}

int run_wire_started(const run_frame_t *frame, int *rank, int *pid)
{
    reader_t r = read_frame(frame);
    *rank = ranged(&r, 0, RUN_WIRE_RANKS_MAX - 1);
    *pid = ranged(&r, 1, INT32_MAX);
    return whole(&r);
}

int run_wire_refused(const run_frame_t *frame, int *rc, const char **why)
{
    reader_t r = read_frame(frame);
    *rc = ranged(&r, 1, 255);
    *why = text(&r);
    return whole(&r);
}

int run_wire_output(const run_frame_t *frame, int *rank, int *to, const char **data, size_t *n)
{
    reader_t r = read_frame(frame);
    *rank = ranged(&r, 0, RUN_WIRE_RANKS_MAX - 1);
    *to = ranged(&r, 0, 1);
    *data = (const char *)r.at;
    *n = r.left;
    return !r.bad;
}

int run_wire_exit(const run_frame_t *frame, int *rank, int *status, unsigned *state, const char **doing)
{
    reader_t r = read_frame(frame);
    *rank = ranged(&r, 0, RUN_WIRE_RANKS_MAX - 1);
    *status = ranged(&r, 0, 0xffff);
    *state = (unsigned)ranged(&r, 0, 255);
    *doing = text(&r);
    /* An exit code, or a signal with or without a core dump; waitpid's status of a stopped process is
     * neither. */
    int signal = *status & 0x7f, code = *status >> 8;
    return whole(&r) && (signal == 0 ? (*status & 0xff) == 0 : signal != 0x7f && code == 0);
}

int run_wire_doing(const run_frame_t *frame, int *rank, const char **what)
{
    reader_t r = read_frame(frame);
    *rank = ranged(&r, 0, RUN_WIRE_RANKS_MAX - 1);
    *what = text(&r);
    return whole(&r);
}

int run_wire_note(const run_frame_t *frame, const char **note)
{
    reader_t r = read_frame(frame);
    *note = text(&r);
    return whole(&r);
}

/* A count and that many texts: an array of pointers to them with NULL at its end; NULL: malformed or no
 * memory. */
static char **texts(reader_t *r)
{
    size_t n = number(r);
    if (r->bad || n > r->left / 5) { /* each takes at least a length and a NUL */
        r->bad = 1;
        return NULL;
    }
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++)
        list[i] = (char *)(uintptr_t)text(r); /* exec wants them without const; nothing writes there */
    return list;
}

static int is_secret(const char *secret)
{
    return strlen(secret) == 64 && strspn(secret, "0123456789abcdef") == 64;
}

static int are_settings(char **list)
{
    for (; *list; list++)
        if (!strchr(*list, '=') || **list == '=')
            return 0;
    return 1;
}

static const char *read_numbers(reader_t *r, run_wire_job_t *job)
{
    job->number = r->bad || (size_t)job->ranks > r->left / 4 ? NULL : calloc((size_t)job->ranks, sizeof(int));
    if (!job->number)
        return "its list of ranks";
    for (int i = 0; i < job->ranks; i++) {
        job->number[i] = ranged(r, 0, job->world - 1);
        if (i > 0 && job->number[i] <= job->number[i - 1])
            return "its list of ranks";
    }
    return NULL;
}

static const char *read_job(reader_t *r, run_wire_job_t *job)
{
    job->world = ranged(r, 1, RUN_WIRE_RANKS_MAX);
    job->ranks = ranged(r, 1, job->world);
    job->nodes = ranged(r, 1, job->world);
    job->node = ranged(r, 0, (int64_t)job->nodes - 1);
    job->attempt = ranged(r, 0, INT32_MAX);
    job->bind = ranged(r, 0, 3);
    job->bind_given = ranged(r, 0, 1);
    job->report_bindings = ranged(r, 0, 1);
    job->stdin_to = ranged(r, -2, RUN_WIRE_RANKS_MAX - 1);
    job->terminal[0] = ranged(r, 0, 1);
    job->terminal[1] = ranged(r, 0, 1);
    job->columns = ranged(r, 0, 65535);
    job->rows = ranged(r, 0, 65535);
    job->silence_ms = number(r);
    job->grace_ms = number(r);
    job->stop_ms = number(r);
    const char *why = read_numbers(r, job);
    if (why)
        return why;
    job->id = text(r);
    job->secret = text(r);
    job->wdir = text(r);
    job->output_dir = text(r);
    job->peer = text(r);
    job->program = texts(r);
    job->environment = texts(r);
    job->exports = texts(r);
    if (!whole(r) || !job->program || !job->environment || !job->exports)
        return "its layout";
    if (!job->program[0] || !*job->program[0])
        return "its program";
    if (!is_secret(job->secret) || strlen(job->id) > 23)
        return "its secret or id";
    return are_settings(job->environment) && are_settings(job->exports) ? NULL : "its environment";
}

int run_wire_job(const run_frame_t *frame, run_wire_job_t *job, const char **why)
{
    reader_t r = read_frame(frame);
    memset(job, 0, sizeof *job);
    *why = read_job(&r, job);
    if (*why)
        run_wire_job_free(job);
    return *why == NULL;
}

void run_wire_job_free(run_wire_job_t *job)
{
    free(job->number);
    free(job->program);
    free(job->environment);
    free(job->exports);
    memset(job, 0, sizeof *job);
}

/* --- building --- */

/* A frame being built: its head is filled in at the end, when its length is known. */
typedef struct {
    run_buffer_t *to;
    size_t from; /* bytes that waited before */
    int ok;
} writer_t;

static void add(writer_t *w, const void *data, size_t n)
{
    w->ok = w->ok && run_buffer_add(w->to, data, n);
}

static writer_t begin(run_buffer_t *to)
{
    static const unsigned char head[RUN_WIRE_HEAD];
    writer_t w = {to, run_buffer_length(to), 1};
    add(&w, head, sizeof head);
    return w;
}

static void add_number(writer_t *w, int64_t value)
{
    unsigned char bytes[4];
    put32(bytes, (uint32_t)value);
    add(w, bytes, sizeof bytes);
}

static void add_text(writer_t *w, const char *value)
{
    size_t n = strlen(value) + 1;
    add_number(w, (int64_t)n);
    add(w, value, n);
}

static void add_texts(writer_t *w, char *const *list)
{
    int n = 0;
    while (list[n])
        n++;
    add_number(w, n);
    for (int i = 0; i < n; i++)
        add_text(w, list[i]);
}

static size_t most_of(run_wire_kind_t kind)
{
    int i = 0;
    while (kinds[i].kind != kind)
        i++;
    return kinds[i].most;
}

static int end(writer_t *w, run_wire_kind_t kind)
{
    if (!w->ok || run_buffer_length(w->to) - w->from - RUN_WIRE_HEAD > most_of(kind)) {
        w->to->tail = w->to->head + w->from;
        return 0;
    }
    unsigned char *head = (unsigned char *)run_buffer_front(w->to) + w->from;
    put32(head, (uint32_t)(run_buffer_length(w->to) - w->from - RUN_WIRE_HEAD));
    head[4] = (unsigned char)kind;
    head[5] = 0;
    head[6] = RUN_WIRE_MARK & 255;
    head[7] = RUN_WIRE_MARK >> 8;
    return 1;
}

int run_wire_put(run_buffer_t *to, run_wire_kind_t kind, const void *data, size_t n)
{
    writer_t w = begin(to);
    add(&w, data, n);
    return end(&w, kind);
}

int run_wire_put_numbers(run_buffer_t *to, run_wire_kind_t kind, const uint32_t *numbers, int count,
                         const char *value)
{
    writer_t w = begin(to);
    for (int i = 0; i < count; i++)
        add_number(&w, numbers[i]);
    if (value)
        add_text(&w, value);
    return end(&w, kind);
}

int run_wire_put_root(run_buffer_t *to, run_wire_kind_t kind, const char *root, int master_port)
{
    writer_t w = begin(to);
    add_text(&w, root);
    add_number(&w, master_port);
    return end(&w, kind);
}

int run_wire_put_output(run_buffer_t *to, int rank, int stream, const char *data, size_t n)
{
    writer_t w = begin(to);
    add_number(&w, rank);
    add_number(&w, stream);
    add(&w, data, n);
    return end(&w, RUN_WIRE_OUTPUT);
}

int run_wire_put_job(run_buffer_t *to, const run_wire_job_t *job)
{
    const int64_t numbers[] = {job->world,    job->ranks,       job->nodes,       job->node,
                               job->attempt,  job->bind,        job->bind_given,  job->report_bindings,
                               job->stdin_to, job->terminal[0], job->terminal[1], job->columns,
                               job->rows,     job->silence_ms,  job->grace_ms,    job->stop_ms};
    writer_t w = begin(to);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        add_number(&w, numbers[i]);
    for (int i = 0; i < job->ranks; i++)
        add_number(&w, job->number[i]);
    add_text(&w, job->id);
    add_text(&w, job->secret);
    add_text(&w, job->wdir);
    add_text(&w, job->output_dir);
    add_text(&w, job->peer);
    add_texts(&w, job->program);
    add_texts(&w, job->environment);
    add_texts(&w, job->exports);
    return end(&w, RUN_WIRE_JOB);
}
