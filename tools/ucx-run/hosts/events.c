/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/events.c: the agents' messages: up to the start of all ranks, then their output and
 * their ends. See hosts.h for the states of a host and wire.h for the frames. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ucx-run/hosts/hosts.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/hosts/wire.h"

enum { READ_BYTES = 1 << 18 };
/* times --lost-after: how long an agent accepts the launcher's silence */
#define LEASH_FACTOR       4.0
#define LAST_WORDS_SECONDS 1.0 /* from the end of a connection to the status of the process that held it */

static uint32_t milliseconds(double seconds)
{
    return seconds * 1e3 < UINT32_MAX ? (uint32_t)(seconds * 1e3) : UINT32_MAX;
}

static void send_job(run_job_t *job, run_node_t *h)
{
    run_remote_t *m = job->remote;
    const run_options_t *o = job->options;
    run_capture_t capture;
    int n = 0, here = (int)(h - m->host);
    double grace = o->kill_grace_s / 2;
    int *number = calloc((size_t)h->ranks, sizeof *number);
    for (int r = 0; number && r < job->world; r++)
        if (m->of[r] == here)
            number[n++] = r;
    run_output_terminals(&capture);
    run_wire_job_t wire = {.world = job->world,
                           .ranks = h->ranks,
                           .number = number,
                           .node = here,
                           .nodes = m->hosts,
                           .attempt = job->attempt,
                           .bind = (int)(o->bind_given ? o->bind : TOPO_BIND_CORE),
                           .bind_given = o->bind_given,
                           .report_bindings = o->report_bindings,
                           .stdin_to = run_input_ended() ? RUN_STDIN_NONE : o->stdin_to,
                           .terminal = {capture.terminal[0], capture.terminal[1]},
                           .columns = capture.columns,
                           .rows = capture.rows,
                           .silence_ms = milliseconds(LEASH_FACTOR * o->lost_after_s),
                           .grace_ms = milliseconds(grace < 60 ? grace : 60),
                           .stop_ms = milliseconds(run_stop_seconds(o)),
                           .id = job->id,
                           .secret = job->secret,
                           .wdir = m->wdir,
                           .output_dir = m->output_dir,
                           .peer = m->host[here == 0 && m->hosts > 1].name,
                           .program = o->program,
                           .environment = m->passed,
                           .exports = m->exports};
    h->state = NODE_PLANNING;
    h->ready = m->of[0] != here; /* rank 0's host first sends its listening address */
    run_node_put(job, h, number && run_wire_put_job(&h->to, &wire));
    free(number);
}

static void go_if_ready(run_job_t *job)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != NODE_PLANNING || !m->host[i].ready)
            return;
    m->gone = 1;
    for (int i = 0; i < m->hosts; i++) {
        m->host[i].state = NODE_STARTING;
        run_node_put(job, &m->host[i],
                     run_wire_put_root(&m->host[i].to, RUN_WIRE_GO, job->root, job->master_port));
    }
}

static const char *on_hello(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    uint32_t version, pid;
    const char *name;
    if (h->state != NODE_CALLING || !run_wire_hello(frame, &version, &pid, &name))
        return "a malformed HELLO";
    if (version != RUN_WIRE_VERSION)
        return "the word of another version of ucx-run; install the same one on all hosts";
    send_job(job, h);
    run_node_call_more(job);
    go_if_ready(job);
    return NULL;
}

static const char *on_root(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    const char *root;
    if (h->state != NODE_PLANNING || h->ready || !run_wire_root(frame, &root, &job->master_port))
        return "a malformed ROOT";
    snprintf(job->root, sizeof job->root, "%s", root);
    h->ready = 1;
    go_if_ready(job);
    return NULL;
}

/* Whether `rank` is one that this host may speak of. */
static int is_of(const run_job_t *job, const run_node_t *h, int rank)
{
    return rank < job->world && &job->remote->host[job->remote->of[rank]] == h && h->state >= NODE_STARTING;
}

static const char *on_started(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    int rank, pid;
    if (!run_wire_started(frame, &rank, &pid) || !is_of(job, h, rank) || job->rank[rank].pid)
        return "a malformed STARTED";
    job->rank[rank].pid = pid;
    if (++h->started == h->ranks && h->state == NODE_STARTING)
        h->state = NODE_RUNNING;
    return NULL;
}

static const char *on_refused(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    int rc;
    const char *why;
    if (h->state < NODE_PLANNING || !run_wire_refused(frame, &rc, &why))
        return "a malformed REFUSED";
    if (!job->remote->refused) {
        const char *own = "ucx-run: ";
        size_t n = strncmp(why, own, strlen(own)) == 0 ? strlen(own) : 0;
        run_say("ucx-run: %s: %s", h->name, why + n);
        job->remote->refused = rc;
    }
    h->state = NODE_ENDING;
    return NULL;
}

static const char *on_output(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    int rank, to;
    const char *data;
    size_t n;
    if (!run_wire_output(frame, &rank, &to, &data, &n) || !is_of(job, h, rank))
        return "a malformed OUTPUT";
    run_remote_t *m = job->remote;
    if (m->dropping && !m->dropped[to] && !run_output_room(to)) {
        m->dropped[to] = 1;
        run_say("ucx-run: nobody reads our %s: what the ranks still print there is lost",
                to ? "standard error" : "output");
    }
    if (!m->dropped[to])
        run_output_take(rank, to, data, n);
    return NULL;
}

static void set_doing(run_job_t *job, int rank, const char *doing)
{
    free(job->rank[rank].doing);
    job->rank[rank].doing = *doing ? strdup(doing) : NULL;
}

static const char *on_exit_of(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    int rank, status;
    unsigned state;
    const char *doing;
    if (!run_wire_exit(frame, &rank, &status, &state, &doing) || !is_of(job, h, rank) ||
        !job->rank[rank].alive)
        return "a malformed EXIT";
    job->rank[rank].state = state;
    set_doing(job, rank, doing);
    run_node_push_died(job, rank, status);
    return NULL;
}

static const char *on_doing(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    int rank;
    const char *doing;
    if (!run_wire_doing(frame, &rank, &doing) || !is_of(job, h, rank))
        return "a malformed DOING";
    set_doing(job, rank, doing);
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *on_frame(run_job_t *job, run_node_t *h, const run_frame_t *frame)
{
    const char *text;
    switch (frame->kind) {
    case RUN_WIRE_HELLO:
        return on_hello(job, h, frame);
    case RUN_WIRE_ROOT:
        return on_root(job, h, frame);
    case RUN_WIRE_STARTED:
        return on_started(job, h, frame);
    case RUN_WIRE_REFUSED:
        return on_refused(job, h, frame);
    case RUN_WIRE_OUTPUT:
        return on_output(job, h, frame);
    case RUN_WIRE_EXIT:
        return on_exit_of(job, h, frame);
    case RUN_WIRE_DOING:
        return on_doing(job, h, frame);
    case RUN_WIRE_NOTE:
        if (!run_wire_note(frame, &text))
            return "a malformed NOTE";
        run_say("%s", text);
        return NULL;
    case RUN_WIRE_TAKEN:
        h->owes = 0;
        return NULL;
    case RUN_WIRE_PONG:
        return NULL;
    case RUN_WIRE_STOPPED:
        job->remote->stopped = 1;
        return NULL;
    default:
        return "a frame of an unknown kind";
    }
}

/* A login shell's output comes before the magic; it is shown only if no agent answers. */
static int greeted(run_job_t *job, run_node_t *h)
{
    long at = run_wire_find_magic(run_buffer_front(&h->from), run_buffer_length(&h->from));
    if (at >= 0) {
        h->from.head += (size_t)at;
        h->greeted = 1;
    } else if (run_buffer_length(&h->from) > RUN_WIRE_NOISE_MAX) {
        run_node_lose(job, h, "%d bytes came that are not from an agent; what does its shell print at login?",
                      RUN_WIRE_NOISE_MAX);
    }
    return h->greeted;
}

static void read_frames(run_job_t *job, run_node_t *h)
{
    run_frame_t frame;
    const char *why = NULL;
    long bytes;
    if (!h->greeted && !greeted(job, h))
        return;
    while (h->state != NODE_GONE &&
           (bytes = run_wire_next(run_buffer_front(&h->from), run_buffer_length(&h->from),
                                  RUN_WIRE_TO_LAUNCHER, &frame, &why)) != 0) {
        if (bytes > 0)
            why = on_frame(job, h, &frame);
        if (why) {
            run_node_lose(job, h, "its agent sent %s", why);
            return;
        }
        h->from.head += (size_t)bytes;
    }
}

static void ended(run_job_t *job, run_node_t *h)
{
    run_node_close(&h->out);
    if (h->state == NODE_ENDING || job->remote->stopping) {
        run_node_last_errors(h);
        run_node_give_up(job, h);
        run_node_close(&h->in);
        run_node_close(&h->err);
        h->state = NODE_GONE;
    } else if (h->pid > 0) {
        h->closed = base_deadline(LAST_WORDS_SECONDS);
    } else {
        run_node_lose_by_status(job, h);
    }
}

void run_node_read(run_job_t *job, run_node_t *h)
{
    if (!run_buffer_reserve(&h->from, READ_BYTES)) {
        run_node_lose(job, h, "out of memory for what it says");
        return;
    }
    ssize_t n = read(h->out, h->from.data + h->from.tail, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        ended(job, h);
        return;
    }
    h->from.tail += (size_t)n;
    h->heard = base_now();
    read_frames(job, h);
}
