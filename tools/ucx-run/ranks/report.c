/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/report.c: the call of a rank when it ended or when time was up, read from its slot of
 * the flight recorder (comm/recorder/recorder.h), which outlives the rank. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <gyre/types.h>

#include "base/clock.h"
#include "collectives/schedules/schedule.h"
#include "tools/ucx-run/run.h"

const char *run_signal_name(int signal, char text[16])
{
    const char *name = sigabbrev_np(signal);
    if (name)
        snprintf(text, 16, "SIG%s", name);
    else
        snprintf(text, 16, "signal %d", signal);
    return text;
}

static void describe_call(const comm_call_t *call, char *text, size_t bytes)
{
    const char *type = gyre_type_name((gyre_type_t)call->type);
    const char *redop = gyre_redop_name((gyre_redop_kind_t)call->redop);
    unsigned long long count = (unsigned long long)call->count;
    const int inside = call->flags & COMM_CALL_INSIDE;
    char tag[20] = "";
    if (call->user_tag)
        snprintf(tag, sizeof tag, ", tag %u", call->user_tag);
    int n = snprintf(text, bytes, "%s #%u",
                     coll_call_name((coll_op_t)call->op, call->flags & COMM_CALL_V,
                                    inside ? call->redop : COLL_INSIDE_NONE),
                     call->seq);
    if (n < 0 || (size_t)n >= bytes)
        return;
    text += n;
    bytes -= (size_t)n;
    switch (inside ? COLL_BARRIER : (coll_op_t)call->op) {
    case COLL_BARRIER:
        if (tag[0])
            snprintf(text, bytes, " (%s)", tag + 2);
        break;
    case COLL_ALL_REDUCE:
    case COLL_REDUCE_SCATTER:
    case COLL_SCAN:
    case COLL_EXSCAN:
        snprintf(text, bytes, " (count %llu, %s, %s%s)", count, type, redop, tag);
        break;
    case COLL_REDUCE:
        snprintf(text, bytes, " (count %llu, %s, %s, root %d%s)", count, type, redop, call->root, tag);
        break;
    case COLL_BROADCAST:
    case COLL_GATHER:
    case COLL_SCATTER:
        snprintf(text, bytes, " (count %llu, %s, root %d%s)", count, type, call->root, tag);
        break;
    case COLL_SENDRECV:
        snprintf(text, bytes, " (count %llu, %s, peer %d%s)", count, type, call->root, tag);
        break;
    default:
        snprintf(text, bytes, " (count %llu, %s%s)", count, type, tag);
    }
}

void run_report_doing(const comm_recorder_slot_t *slot, char *text, size_t bytes)
{
    text[0] = 0;
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    uint32_t head = atomic_load_explicit(&slot->head, memory_order_acquire);
    if (state == 0)
        return;
    char call[128] = "";
    if (head > 0)
        describe_call(&slot->calls[(head - 1) % COMM_RECORDER_CALLS], call, sizeof call);
    if (state == 2 && call[0]) {
        int n = snprintf(text, bytes, "in %s", call);
        if (slot->waiting_for >= 0 && n > 0 && (size_t)n < bytes)
            snprintf(text + n, bytes - (size_t)n, ", waiting for rank %d", slot->waiting_for);
    } else if (state == 3) {
        size_t room = sizeof slot->error - 1;
        snprintf(text, bytes, "after the error: %.*s", (int)strnlen(slot->error, room), slot->error);
    } else if (state == 4) {
        snprintf(text, bytes, "after it had left the job");
    } else if (call[0]) {
        snprintf(text, bytes, "after %s", call);
    }
}

static void doing_at_end(const run_job_t *job, int i, char *text, size_t bytes)
{
    text[0] = 0;
    if (job->slots)
        run_report_doing(&job->slots[i], text, bytes);
    else if (job->rank[i].doing)
        snprintf(text, bytes, "%s", job->rank[i].doing);
}

void run_report_end(const run_job_t *job, int i)
{
    const run_rank_t *r = &job->rank[i];
    char doing[700], name[16];
    const char *joint = " ";
    if (r->lost) {
        run_say("ucx-run: rank %d (%s) is lost with its host", r->number, r->host);
        return;
    }
    doing_at_end(job, i, doing, sizeof doing);
    if (!doing[0])
        joint = "";
    else if (strncmp(doing, "in ", 3) == 0)
        joint = " while ";
    if (WIFSIGNALED(r->status))
        run_say("ucx-run: rank %d (pid %d, %s) killed by signal %d (%s)%s%s%s", r->number, (int)r->pid,
                r->host, WTERMSIG(r->status), run_signal_name(WTERMSIG(r->status), name),
                WCOREDUMP(r->status) ? ", core dumped," : "", joint, doing);
    else
        run_say("ucx-run: rank %d (pid %d, %s) exited with code %d%s%s", r->number, (int)r->pid, r->host,
                WEXITSTATUS(r->status), joint, doing);
}

void run_report_now(const comm_recorder_slot_t *slot, char *text, size_t bytes)
{
    char doing[700];
    run_report_doing(slot, doing, sizeof doing);
    int64_t since = atomic_load_explicit(&slot->started_ns, memory_order_relaxed);
    if (atomic_load_explicit(&slot->state, memory_order_acquire) == 0)
        snprintf(text, bytes, "has not joined the Gyre job");
    else if (strncmp(doing, "in ", 3) != 0)
        snprintf(text, bytes, "in the program's own code%s%s", doing[0] ? ", " : ", no call made", doing);
    else if (since != 0) /* 0: not long enough for the time to be noted */
        snprintf(text, bytes, "%s for %.1f s", doing, (double)(base_now() - since) / 1e9);
    else
        snprintf(text, bytes, "%s, just begun", doing);
}

void run_report_all(const run_job_t *job)
{
    for (int i = 0; i < job->ranks; i++) {
        const run_rank_t *r = &job->rank[i];
        char now[800] = "is silent, as is its host";
        if (!r->alive) {
            run_say("ucx-run:   rank %d has ended", r->number);
            continue;
        }
        if (job->slots)
            run_report_now(&job->slots[i], now, sizeof now);
        else if (r->doing)
            snprintf(now, sizeof now, "%s", r->doing);
        if (job->remote)
            run_say("ucx-run:   rank %d (pid %d, %s): %s", r->number, (int)r->pid, r->host, now);
        else
            run_say("ucx-run:   rank %d (pid %d): %s", r->number, (int)r->pid, now);
    }
}
