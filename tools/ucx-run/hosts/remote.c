/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/remote.c: all hosts of a job on other hosts together: beginning and end of an attempt,
 * the event loop's side, signs of life, and messages to every agent. See hosts.h. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ucx-run/hosts/hosts.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/hosts/wire.h"

#define CALL_SECONDS 30.0 /* for a host to answer; ssh itself gives up after 10 */
#define PING_SECONDS 1.0  /* between signs of life */

static run_job_t *current; /* for the callbacks of input.c, which is one per process */

/* --- an attempt --- */

int run_remote_start(run_job_t *job)
{
    run_remote_t *m = job->remote;
    current = job;
    m->ndied = m->refused = m->gone = m->stillborn = m->stopping = m->stopped = 0;
    m->dropping = m->dropped[0] = m->dropped[1] = 0;
    m->ticked = base_now();
    m->tick = base_deadline(PING_SECONDS);
    job->alive = job->world;
    for (int r = 0; r < job->world; r++)
        job->rank[r].alive = 1;
    for (int i = 0; i < m->hosts; i++)
        m->host[i].alive = m->host[i].ranks;
    run_node_call_more(job);
    return 0;
}

/* --- the event loop's side --- */

size_t run_remote_poll_max(const run_job_t *job)
{
    return job->remote ? 3 * (size_t)job->remote->hosts : 0;
}

/* There is room for more output of the hosts. */
static int room(const run_remote_t *m)
{
    return m->dropping || (run_output_room(0) && run_output_room(1));
}

size_t run_remote_poll(run_job_t *job, struct pollfd *fds)
{
    run_remote_t *m = job->remote;
    size_t n = 0;
    int reading = room(m);
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        h->polled = n;
        if (h->state == NODE_QUEUED || h->state == NODE_GONE)
            continue;
        fds[n++] = (struct pollfd){.fd = reading ? h->out : -1, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = h->err, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = run_buffer_length(&h->to) > 0 ? h->in : -1, .events = POLLOUT};
    }
    return n;
}

void run_remote_event(run_job_t *job, const struct pollfd *fds, size_t n)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        const struct pollfd *mine = fds + h->polled;
        if (h->state == NODE_QUEUED || h->state == NODE_GONE || h->polled + 3 > n)
            continue;
        if (mine[1].revents && h->err >= 0)
            run_node_read_errors(h);
        if (mine[2].revents && h->in >= 0)
            run_node_flush(h);
        if (mine[0].revents && h->out >= 0)
            run_node_read(job, h);
    }
}

void run_remote_reaped(run_job_t *job, pid_t pid, int status)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        if (h->pid != pid)
            continue;
        h->pid = 0;
        h->status = status;
        if (h->out < 0 && h->state != NODE_GONE)
            run_node_lose_by_status(job, h);
        return;
    }
}

base_time_t run_remote_deadline(const run_job_t *job)
{
    const run_remote_t *m = job->remote;
    base_time_t next = m->tick;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != NODE_GONE && m->host[i].closed < next)
            next = m->host[i].closed;
    return next;
}

static double silence(const run_node_t *h)
{
    return (double)(base_now() - h->heard) / 1e9;
}

/* An agent that is starting its ranks, perhaps from a slow file system, does not answer meanwhile. */
static double patience(const run_job_t *job, const run_node_t *h)
{
    double given = job->options->lost_after_s;
    return h->state == NODE_RUNNING || given > CALL_SECONDS ? given : CALL_SECONDS;
}

void run_remote_tick(run_job_t *job)
{
    run_remote_t *m = job->remote;
    base_time_t now = base_now();
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state != NODE_GONE && now >= m->host[i].closed)
            run_node_lose_by_status(job, &m->host[i]);
    if (now < m->tick)
        return;
    /* If this process was stopped, or did not read because its own output had no reader, the hosts were not
     * silent. */
    base_time_t away = now - m->ticked > (base_time_t)(2.5e9 * PING_SECONDS) ? now - m->ticked : 0;
    m->ticked = now;
    m->tick = base_deadline(PING_SECONDS);
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        h->heard = room(m) ? h->heard + away : now;
        h->heard = h->heard < now ? h->heard : now;
        if (h->state == NODE_CALLING && silence(h) > CALL_SECONDS)
            run_node_lose(job, h, "no answer within %g s", CALL_SECONDS);
        else if (run_node_can_hear(h) && silence(h) > patience(job, h))
            run_node_lose(job, h, "no sign of life for %.1f s", silence(h));
        else if (run_node_can_hear(h) && run_buffer_length(&h->to) == 0)
            run_node_send(job, h, RUN_WIRE_PING);
    }
}

void run_remote_ping(run_job_t *job)
{
    run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (run_node_can_hear(&m->host[i]))
            run_node_send(job, &m->host[i], RUN_WIRE_PING);
}

int run_remote_doubtful(const run_job_t *job, base_time_t since)
{
    const run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (run_node_can_hear(&m->host[i]) && m->host[i].alive > 0 && m->host[i].heard < since)
            return 1;
    return 0;
}

int run_remote_died(run_job_t *job)
{
    run_remote_t *m = job->remote;
    if (m->ndied == 0)
        return -1;
    int r = m->died[0];
    memmove(m->died, m->died + 1, (size_t)--m->ndied * sizeof *m->died);
    return r;
}

int run_remote_refused(const run_job_t *job, int *rc)
{
    *rc = job->remote->refused;
    return *rc != 0;
}

int run_remote_stillborn(const run_job_t *job)
{
    return job->remote->stillborn;
}

int run_remote_stopped(run_job_t *job)
{
    int stopped = job->remote->stopped;
    job->remote->stopped = 0;
    return stopped;
}

int run_remote_running(const run_job_t *job)
{
    const run_remote_t *m = job->remote;
    for (int i = 0; i < m->hosts; i++)
        if (m->host[i].state < NODE_RUNNING)
            return 0;
    return 1;
}

/* --- orders to the agents --- */

void run_remote_signal(run_job_t *job, int signal, int alone)
{
    run_remote_t *m = job->remote;
    uint32_t numbers[] = {(uint32_t)signal, (uint32_t)alone};
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        if (run_node_can_hear(h) && (h->state >= NODE_STARTING || signal == SIGTSTP))
            run_node_put(job, h, run_wire_put_numbers(&h->to, RUN_WIRE_SIGNAL, numbers, 2, NULL));
    }
}

void run_remote_flush(run_job_t *job, double seconds)
{
    base_time_t until = base_deadline(seconds);
    for (int i = 0; i < job->remote->hosts; i++) {
        run_node_t *h = &job->remote->host[i];
        while (h->in >= 0 && run_buffer_length(&h->to) > 0) {
            struct pollfd fd = {.fd = h->in, .events = POLLOUT};
            if (poll(&fd, 1, base_poll_ms(until)) <= 0 || !(fd.revents & POLLOUT))
                break;
            run_node_flush(h);
        }
    }
}

void run_remote_close_stream(run_job_t *job, int to)
{
    run_remote_t *m = job->remote;
    uint32_t number = (uint32_t)to;
    for (int i = 0; i < m->hosts; i++)
        if (run_node_can_hear(&m->host[i]))
            run_node_put(job, &m->host[i],
                         run_wire_put_numbers(&m->host[i].to, RUN_WIRE_CLOSE, &number, 1, NULL));
}

void run_remote_drop_output(run_job_t *job)
{
    job->remote->dropping = 1;
}

void run_remote_ask(run_job_t *job)
{
    for (int r = 0; r < job->world; r++)
        if (job->rank[r].alive) {
            free(job->rank[r].doing);
            job->rank[r].doing = NULL;
        }
    for (int i = 0; i < job->remote->hosts; i++)
        if (run_node_can_hear(&job->remote->host[i]))
            run_node_send(job, &job->remote->host[i], RUN_WIRE_ASK);
}

int run_remote_answered(const run_job_t *job)
{
    for (int r = 0; r < job->world; r++)
        if (job->rank[r].alive && !job->rank[r].doing &&
            run_node_can_hear(&job->remote->host[job->remote->of[r]]))
            return 0;
    return 1;
}

static int reads_input(const run_job_t *job, const run_node_t *h)
{
    const run_remote_t *m = job->remote;
    int to = job->options->stdin_to;
    return h->in >= 0 && h->state == NODE_RUNNING && h->alive > 0 &&
           (to == RUN_STDIN_ALL || (to >= 0 && to < job->world && &m->host[m->of[to]] == h));
}

int run_remote_input_ready(void)
{
    const run_remote_t *m = current->remote;
    int readers = 0;
    if (!run_remote_running(current))
        return 0;
    for (int i = 0; i < m->hosts; i++) {
        int reads = reads_input(current, &m->host[i]);
        readers += reads;
        if (reads && m->host[i].owes)
            return 0;
    }
    return readers > 0;
}

void run_remote_input(const char *data, size_t n)
{
    run_remote_t *m = current->remote;
    for (int i = 0; i < m->hosts; i++)
        if (reads_input(current, &m->host[i])) {
            m->host[i].owes = 1;
            run_node_put(current, &m->host[i], run_wire_put(&m->host[i].to, RUN_WIRE_INPUT, data, n));
        }
}

/* The end of an agent's input is the end of its leash. */
void run_remote_stop(run_job_t *job)
{
    run_remote_t *m = job->remote;
    m->stopping = 1;
    for (int i = 0; i < m->hosts; i++) {
        run_node_t *h = &m->host[i];
        if (h->state == NODE_QUEUED) {
            h->state = NODE_GONE;
            run_node_give_up(job, h);
        } else if (h->state == NODE_CALLING) { /* no agent is there yet */
            run_node_hang_up(h);
            run_node_give_up(job, h);
        } else if (h->state != NODE_GONE) {
            h->state = NODE_ENDING;
            run_node_close(&h->in);
        }
    }
}

int run_remote_gone(const run_job_t *job)
{
    for (int i = 0; i < job->remote->hosts; i++)
        if (job->remote->host[i].state != NODE_GONE)
            return 0;
    return 1;
}

void run_remote_hang_up(run_job_t *job)
{
    for (int i = 0; i < job->remote->hosts; i++) {
        run_node_t *h = &job->remote->host[i];
        if (h->state == NODE_GONE)
            continue;
        run_node_last_errors(h);
        run_node_hang_up(h);
        run_node_give_up(job, h);
    }
}
