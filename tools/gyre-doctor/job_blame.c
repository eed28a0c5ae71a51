/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/job_blame.c: which rank waits for which, and which is to blame.
 *
 * The edges of the graph: a rank in a call waits for the rank that its recorder names, else for those that
 * have not come to that call yet. A walk along the edges from a rank that waits leads to a rank that does not
 * wait: most walks end at the rank to blame. A walk without an end is a circle of ranks that wait for each
 * other. Two other causes come first: ranks that called different things, and ranks that were killed or
 * failed. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collectives/run/communicator.h"
#include "tools/gyre-doctor/job.h"

#define LONG_SECONDS 0.5 /* in one call: a shorter call does not count as waiting */

const char *job_life_word(life_t life)
{
    static const char *const words[] = {"unknown", "running",       "sleeping", "in the kernel",
                                        "stopped", "in a debugger", "dead"};
    return words[life];
}

const comm_call_t *job_call(const member_t *m)
{
    return m->known && m->slot->state != 0 && m->slot->head > 0
               ? &m->slot->calls[(m->slot->head - 1) % COMM_RECORDER_CALLS]
               : NULL;
}

/* It is in a call and waits. */
static int job_is_waiting(const member_t *m)
{
    if (!m->known || m->slot->state != 2 || job_call(m) == NULL || m->moved)
        return 0;
    return m->life == LIFE_DEAD || m->life == LIFE_UNKNOWN || m->since < 0 || m->since >= LONG_SECONDS;
}

/* Number of the newest collective call of m on communicator `comm`; 0: no such call is still recorded. */
static uint32_t newest_on(const member_t *m, uint32_t comm)
{
    uint32_t seq = 0;
    uint32_t n = m->slot->head < COMM_RECORDER_CALLS ? m->slot->head : COMM_RECORDER_CALLS;
    for (uint32_t k = 0; k < n; k++) {
        const comm_call_t *c = &m->slot->calls[k];
        if (c->comm == comm && !(c->flags & COMM_CALL_P2P) && c->seq > seq)
            seq = c->seq;
    }
    return seq;
}

int job_waits_for(const job_t *job, int r, int *list)
{
    const member_t *m = &job->rank[r];
    int n = 0;
    if (!job_is_waiting(m))
        return 0;
    const comm_call_t *call = job_call(m);
    if (!(call->flags & COMM_CALL_P2P))
        for (int p = 0; p < job->size; p++) {
            uint32_t seq = job->rank[p].known ? newest_on(&job->rank[p], call->comm) : call->seq;
            /* One that has made no call at all may belong to it; one that has made others may not. */
            if (p != r && seq < call->seq && (seq > 0 || job->rank[p].slot->head == 0))
                list[n++] = p;
        }
    int named = m->slot->waiting_for;
    if (named < 0 || named >= job->size || named == r)
        return n;
    for (int i = 0; i < n; i++)
        if (list[i] == named)
            return n;
    if (n == 0) /* all are in it: the one that its next step needs */
        list[n++] = named;
    return n;
}

void job_ranks_text(const int *ranks, int n, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n;) {
        int j = i;
        while (j + 1 < n && ranks[j + 1] == ranks[j] + 1)
            j++;
        char part[32];
        snprintf(part, sizeof(part), j == i ? "%s%d" : "%s%d-%d", used > 0 ? ", " : "", ranks[i], ranks[j]);
        if (used + strlen(part) + 6 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s", part);
        i = j + 1;
    }
}

static void computing_text(const member_t *m, char *text, size_t bytes)
{
    if (m->cpu >= 0.01) /* less: it had no turn while we looked */
        snprintf(text, bytes, "its process %d is computing (%.0f %% of a core)", m->pid, m->cpu * 100);
    else
        snprintf(text, bytes, "its process %d is computing", m->pid);
}

/* How a rank ended, or what its process does now. */
static void life_text(const member_t *m, char *text, size_t bytes)
{
    if (!m->known)
        snprintf(text, bytes, "it is on another host, or has not started: gyre-doctor --job there says more");
    else if (m->slot->ended_ns != 0 && WIFSIGNALED(m->slot->status))
        snprintf(text, bytes, "it was killed by signal %d (%s)", WTERMSIG(m->slot->status),
                 strsignal(WTERMSIG(m->slot->status)));
    else if (m->slot->ended_ns != 0)
        snprintf(text, bytes, "it exited with code %d", WEXITSTATUS(m->slot->status));
    else if (m->life == LIFE_STOPPED)
        snprintf(text, bytes, "its process %d is stopped (SIGSTOP or the like; kill -CONT %d lets it go on)",
                 m->pid, m->pid);
    else if (m->life == LIFE_TRACED)
        snprintf(text, bytes, "its process %d is held by a debugger", m->pid);
    else if (m->life == LIFE_KERNEL)
        snprintf(text, bytes,
                 "its process %d is in the kernel and cannot be woken (a disk or a network file system?)",
                 m->pid);
    else if (m->life == LIFE_RUNNING || (m->life == LIFE_SLEEPING && m->cpu > 0.5))
        computing_text(m, text, bytes);
    else if (m->life == LIFE_SLEEPING)
        snprintf(text, bytes, "its process %d sleeps, in the program's own code", m->pid);
    else if (m->life == LIFE_DEAD)
        snprintf(text, bytes, "its process %d is dead", m->pid);
    else
        snprintf(text, bytes, "what its process %d does cannot be seen from here", m->pid);
}

static void call_or_none(const member_t *m, char text[JOB_CALL_TEXT])
{
    const comm_call_t *call = job_call(m);
    if (call != NULL)
        coll_call_text(call, text, JOB_CALL_TEXT);
    else
        snprintf(text, JOB_CALL_TEXT, "%s",
                 m->known && m->slot->state != 0 ? "it has made no call yet" : "it has not joined the job");
}

/* ---- ranks that disagree ------------------------------------------------------------------------------- */

static int same_call(const comm_call_t *a, const comm_call_t *b)
{
    return a->comm == b->comm && a->seq == b->seq && !((a->flags | b->flags) & COMM_CALL_P2P);
}

static int blame_disagreement(const job_t *job, char *text)
{
    for (int r = 0; r < job->size; r++) {
        const comm_call_t *a = job_is_waiting(&job->rank[r]) ? job_call(&job->rank[r]) : NULL;
        int with = 1, against = 0, other = -1;
        for (int p = 0; a != NULL && p < job->size; p++) {
            const comm_call_t *b = p != r && job_is_waiting(&job->rank[p]) ? job_call(&job->rank[p]) : NULL;
            if (b == NULL || !same_call(a, b))
                continue;
            with += a->sig == b->sig;
            against += a->sig != b->sig;
            if (a->sig != b->sig && other < 0)
                other = p;
        }
        if (against == 0 || with > against || (with == against && r < other))
            continue; /* the fewer are wrong; among as many the later rank */
        char mine[JOB_CALL_TEXT], theirs[JOB_CALL_TEXT];
        call_or_none(&job->rank[r], mine);
        call_or_none(&job->rank[other], theirs);
        snprintf(text, JOB_BLAME_TEXT, "ranks disagree: rank %d called %s where rank %d%s called %s", r, mine,
                 other, against > 1 ? " and others" : "", theirs);
        return r;
    }
    return -1;
}

/* ---- ranks that ended or failed ------------------------------------------------------------------------ */

/* How surely it is a cause and not a victim: 3 killed, or gone, without an error of Gyre's; 2 exited so; 1
 * after an error of Gyre's; 0 not at all. */
static int guilt(const member_t *m)
{
    if (!m->known || m->slot->state == 4)
        return 0;
    if (m->slot->state == 3)
        return 1;
    if (m->slot->ended_ns != 0)
        return WIFSIGNALED(m->slot->status)                               ? 3
               : WEXITSTATUS(m->slot->status) != 0 || m->slot->state == 2 ? 2
                                                                          : 0;
    return m->life == LIFE_DEAD ? 3 : 0;
}

/* 1: a call on communicator `comm` is still recorded. 0 proves nothing: older calls are not. */
static int was_on(const member_t *m, uint32_t comm)
{
    const uint32_t n = m->slot->head < COMM_RECORDER_CALLS ? m->slot->head : COMM_RECORDER_CALLS;
    for (uint32_t k = 0; k < n; k++)
        if (m->slot->calls[k].comm == comm)
            return 1;
    return 0;
}

/* Rank r is dead, and the job goes on without it (gyre_comm_shrink): after its death, all that live and have
 * not left have begun calls on a communicator of which it has recorded none, and none of them waits for it. 0
 * without evidence: nobody lives or all have left, nothing recorded when it ended, or it has made no call. */
static int is_left_behind(const job_t *job, int r)
{
    const member_t *dead = &job->rank[r];
    int went = 0;
    if (dead->life != LIFE_DEAD || dead->slot->head == 0)
        return 0;
    for (int p = 0; p < job->size; p++) {
        const member_t *m = &job->rank[p];
        const comm_call_t *call = job_call(m);
        if (!m->known || m->life == LIFE_DEAD || m->slot->state == 4)
            continue;
        if (m->slot->state == 3 || call == NULL || was_on(dead, call->comm) || m->slot->waiting_for == r ||
            m->called <= dead->ended)
            return 0;
        went++;
    }
    return went > 0;
}

/* It ended without an error of its own: nothing recorded how, or it got a signal that a launcher or a person
 * sends. */
static int ended_from_outside(const member_t *m)
{
    int signal = m->slot->ended_ns != 0 && WIFSIGNALED(m->slot->status) ? WTERMSIG(m->slot->status) : 0;
    return m->life == LIFE_DEAD && m->slot->state != 3 && m->slot->state != 4 &&
           (m->slot->ended_ns == 0 || signal == SIGTERM || signal == SIGKILL);
}

/* All ranks were ended, ucx-run included perhaps: what they waited for explains more than that they are dead.
 * If one alone was killed, it was killed before the others were asked to go. */
static int ended_together(const job_t *job)
{
    int outside = 0, killed = 0;
    for (int r = 0; r < job->size; r++) {
        const member_t *m = &job->rank[r];
        outside += m->known && ended_from_outside(m);
        killed += m->known && m->slot->ended_ns != 0 && m->slot->status == SIGKILL;
    }
    return outside > 0 && outside == job->known && !(killed == 1 && job->known > 1);
}

static const char *end_text(const job_t *job)
{
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].known && job->rank[r].slot->ended_ns != 0)
            return "then the job was ended from outside (SIGTERM, SIGKILL: --timeout, a lost launcher, "
                   "somebody)";
    return "then all ended together, and nobody saw how (the host went down, or all were killed)";
}

static int blame_failure(const job_t *job, char *text)
{
    int first = -1;
    for (int r = 0; r < job->size; r++) {
        const member_t *m = &job->rank[r];
        int g = guilt(m), best = first < 0 ? 0 : guilt(&job->rank[first]);
        if ((g > best || (g > 0 && g == best && m->ended < job->rank[first].ended)) &&
            !is_left_behind(job, r))
            first = r;
    }
    if (first < 0 || ended_together(job))
        return -1;
    const member_t *m = &job->rank[first];
    char call[JOB_CALL_TEXT], how[256];
    call_or_none(m, call);
    life_text(m, how, sizeof(how));
    if (m->slot->state == 3)
        snprintf(text, JOB_BLAME_TEXT, "rank %d on %s failed first: %s", first, m->host, m->slot->error);
    else
        snprintf(text, JOB_BLAME_TEXT, "rank %d on %s: %s, %s%s", first, m->host, how,
                 !job_call(m)          ? ""
                 : m->slot->state == 2 ? "in "
                                       : "its last call was ",
                 call);
    return first;
}

/* ---- ranks that do not come ---------------------------------------------------------------------------- */

typedef struct {
    int *list;  /* [size] scratch */
    int *next;  /* [size] the first rank that each waits for; -1: no rank */
    int *votes; /* [size] walks that end there */
    int *mark;  /* [size] */
} walk_t;

/* The rank where the walk from r ends; -1: in a circle, of which *in is a member. */
static int walk_end(const walk_t *w, int r, int stamp, int *in)
{
    while (w->next[r] >= 0) {
        if (w->mark[r] == stamp) {
            *in = r;
            return -1;
        }
        w->mark[r] = stamp;
        r = w->next[r];
    }
    return r;
}

static void circle_text(const walk_t *w, int in, char *text)
{
    int used = snprintf(text, JOB_BLAME_TEXT, "ranks wait for each other in a circle: %d", in), r = in;
    do {
        r = w->next[r];
        used += snprintf(text + used, (size_t)(JOB_BLAME_TEXT - used), " -> %d", r);
    } while (r != in && used < JOB_BLAME_TEXT - 200);
    snprintf(text + used, (size_t)(JOB_BLAME_TEXT - used), "%s", r != in ? " ..." : "");
}

/* The call that keeps most waiters of `culprit` waiting: of the one that waits longest. */
static int longest_waiter(const job_t *job, const walk_t *w, int culprit)
{
    int best = -1;
    for (int r = 0; r < job->size; r++) {
        int in = -1;
        if (w->next[r] < 0 || walk_end(w, r, job->size + r + 1, &in) != culprit)
            continue;
        if (best < 0 || job->rank[r].since > job->rank[best].since)
            best = r;
    }
    return best;
}

static void absentee_text(const job_t *job, const walk_t *w, int culprit, char *text)
{
    const member_t *m = &job->rank[culprit];
    int waiter = longest_waiter(job, w, culprit), others = w->votes[culprit];
    const comm_call_t *theirs = job_call(&job->rank[waiter]);
    char call[JOB_CALL_TEXT], last[JOB_CALL_TEXT], life[256], since[80] = "";
    call_or_none(&job->rank[waiter], call);
    call_or_none(m, last);
    if (ended_together(job))
        snprintf(life, sizeof(life), "%s", end_text(job));
    else
        life_text(m, life, sizeof(life));
    if (job->rank[waiter].since >= 0)
        snprintf(since, sizeof(since), " for %.1f s", job->rank[waiter].since);
    else if (job->rank[waiter].began[0] != '\0')
        snprintf(since, sizeof(since), " since %s", job->rank[waiter].began);
    int inside = m->known && !(theirs->flags & COMM_CALL_P2P) && newest_on(m, theirs->comm) >= theirs->seq;
    snprintf(text, JOB_BLAME_TEXT, "rank %d%s%s %s %s, in which %d other%s wait%s%s; %s%s%s%s", culprit,
             m->known ? " on " : "", m->known ? m->host : "",
             inside ? "does not go on in" : "has not entered", call, others, others == 1 ? "" : "s",
             others == 1 ? "s" : "", since, life,
             !m->known     ? ""
             : job_call(m) ? "; its last call was "
                           : "; ",
             m->known ? last : "", m->known && m->slot->state == 3 ? ", which failed" : "");
}

static int blame_absence(const job_t *job, char *text)
{
    size_t n = (size_t)job->size + 1;
    walk_t w = {calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(int)),
                calloc(n, sizeof(int))};
    int culprit = -1, circle = -1, waiting = 0;
    if (w.list == NULL || w.next == NULL || w.votes == NULL || w.mark == NULL) {
        snprintf(text, JOB_BLAME_TEXT, "no memory to find out");
        goto out;
    }
    for (int r = 0; r < job->size; r++) {
        int named = job->rank[r].slot->waiting_for, k = job_waits_for(job, r, w.list);
        w.next[r] = k > 0 ? w.list[0] : -1;
        for (int i = 0; i < k; i++) /* of several the one that it named itself */
            if (w.list[i] == named)
                w.next[r] = named;
        waiting += job_is_waiting(&job->rank[r]);
    }
    for (int r = 0; r < job->size; r++) {
        int end = w.next[r] >= 0 ? walk_end(&w, r, r + 1, &circle) : -1;
        if (end >= 0)
            w.votes[end]++;
    }
    for (int r = 0; r < job->size; r++)
        if (w.votes[r] > 0 && (culprit < 0 || w.votes[r] > w.votes[culprit]))
            culprit = r;
    if (culprit >= 0)
        absentee_text(job, &w, culprit, text);
    else if (circle >= 0)
        circle_text(&w, circle, text);
    else if (waiting > 0)
        snprintf(text, JOB_BLAME_TEXT, "%d rank%s wait%s in a call, for nobody that can be seen from here",
                 waiting, waiting == 1 ? "" : "s", waiting == 1 ? "s" : "");
out:
    free(w.list);
    free(w.next);
    free(w.votes);
    free(w.mark);
    return culprit;
}

int job_blame(const job_t *job, char *text)
{
    int moving = 0, left = 0, absent = 0;
    text[0] = '\0';
    if (job->gone) {
        snprintf(text, JOB_BLAME_TEXT, "the job ended while we looked, and its flight recorder with it");
        return -1;
    }
    if (job->twin[0] != 0) {
        snprintf(
            text, JOB_BLAME_TEXT,
            "processes %d and %d are both rank %d: two jobs have this id, and are shown as one; jobs with "
            "one GYRE_SECRET need a GYRE_JOB each",
            job->twin[0], job->twin[1], job->twin_rank);
        return -1;
    }
    int culprit = blame_disagreement(job, text);
    if (text[0] == '\0')
        culprit = blame_failure(job, text);
    if (text[0] == '\0')
        culprit = blame_absence(job, text);
    if (text[0] != '\0')
        return culprit;
    for (int r = 0; r < job->size; r++) {
        moving += job->rank[r].moved;
        left += job->rank[r].known && job->rank[r].slot->state == 4;
        absent += job->rank[r].known && job->rank[r].slot->state == 0;
    }
    if (ended_together(job))
        snprintf(text, JOB_BLAME_TEXT, "nobody waited in a call; %s", end_text(job));
    else if (moving > 0)
        snprintf(text, JOB_BLAME_TEXT, "nobody: the job moves (%d rank%s made calls while we looked)", moving,
                 moving == 1 ? "" : "s");
    else if (absent > 0)
        snprintf(text, JOB_BLAME_TEXT, "nobody waits in a call; %d rank%s not joined the job yet", absent,
                 absent == 1 ? " has" : "s have");
    else if (job->known > 0 && left == job->known)
        snprintf(text, JOB_BLAME_TEXT, "nobody: all ranks left the job as they should");
    else
        snprintf(text, JOB_BLAME_TEXT, "nobody waits in a call: the ranks are in the program's own code");
    return -1;
}
