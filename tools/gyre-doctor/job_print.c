/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/job_print.c: a job as text and as JSON. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "collectives/run/communicator.h"
#include "tools/gyre-doctor/job.h"

enum { LAST_CALLS = 4 };

/* "in all_reduce #12 (...) for 4.2 s" */
static void doing_text(const member_t *m, char *text, size_t bytes)
{
    char call[JOB_CALL_TEXT] = "", since[80] = "";
    const comm_call_t *newest = job_call(m);
    if (newest != NULL)
        coll_call_text(newest, call, sizeof(call));
    if (m->since >= 0)
        snprintf(since, sizeof(since), " for %.1f s%s", m->since,
                 m->life == LIFE_DEAD ? " until it ended" : "");
    else if (m->began[0] != '\0')
        snprintf(since, sizeof(since), " since %s", m->began);
    switch ((uint32_t)m->slot->state) {
    case 0:
        snprintf(text, bytes, "has not joined the job");
        break;
    case 2:
        snprintf(text, bytes, "in %s%s", call, m->moved ? ", moving" : since);
        break;
    case 3:
        snprintf(text, bytes, "failed%s%s", newest != NULL ? " in " : "", call);
        break;
    case 4:
        snprintf(text, bytes, "has left the job%s%s", newest != NULL ? " after " : "", call);
        break;
    default:
        snprintf(text, bytes, "in the program's own code%s%s%s", newest != NULL ? ", after " : "", call,
                 m->moved ? ", moving" : "");
    }
}

static void process_text(const member_t *m, char *text, size_t bytes)
{
    if (m->slot->ended_ns != 0 && WIFSIGNALED(m->slot->status))
        snprintf(text, bytes, "signal %d", WTERMSIG(m->slot->status));
    else if (m->slot->ended_ns != 0)
        snprintf(text, bytes, "exit code %d", WEXITSTATUS(m->slot->status));
    else
        snprintf(text, bytes, "%s", job_life_word(m->life));
}

/* The calls before the newest, newest first, runs of like ones in one: "all_gather #9-#11 (count 4,
 * float)". */
static void earlier_text(const member_t *m, char *text, size_t bytes)
{
    size_t used = 0;
    int shown = 0;
    text[0] = '\0';
    if (!m->known || m->slot->state == 0 || m->slot->head < 2)
        return;
    uint32_t oldest = m->slot->head > COMM_RECORDER_CALLS ? m->slot->head - COMM_RECORDER_CALLS : 0;
    for (uint32_t k = m->slot->head - 1; k-- > oldest && shown < LAST_CALLS; shown++) {
        const comm_call_t *last = &m->slot->calls[k % COMM_RECORDER_CALLS], *first = last;
        while (k > oldest) {
            const comm_call_t *before = &m->slot->calls[(k - 1) % COMM_RECORDER_CALLS];
            if (before->comm != first->comm || before->sig != first->sig || before->seq != first->seq - 1 ||
                before->flags != first->flags || before->root != first->root ||
                before->user_tag != first->user_tag)
                break;
            first = before;
            k--;
        }
        char call[JOB_CALL_TEXT];
        coll_call_text(last, call, sizeof(call));
        int n = snprintf(text + used, bytes - used, "%s%s", used > 0 ? "; " : "", call);
        if (first != last && n > 0 && (size_t)n < bytes - used)
            n += snprintf(text + used + n, bytes - used - (size_t)n, " and %u like it before",
                          last->seq - first->seq);
        if (n < 0 || (size_t)n >= bytes - used)
            return;
        used += (size_t)n;
    }
}

/* "2 -> 3", or "0-2, 4 -> 3" for all that wait for the same. */
static void print_waits(const job_t *job, FILE *out)
{
    typedef struct {
        int n;         /* ranks that it waits for; 0: none, or it has been printed */
        uint64_t hash; /* of these */
    } waits_t;
    size_t size = (size_t)job->size;
    int *list = calloc(size + 1, sizeof(int)), *like = calloc(size + 1, sizeof(int)), lines = 0;
    waits_t *waits = calloc(size + 1, sizeof(*waits));
    for (int r = 0; r < job->size && list && like && waits; r++) {
        waits[r].n = job_waits_for(job, r, list);
        waits[r].hash = base_hash64(list, (size_t)waits[r].n * sizeof(int), 0);
    }
    for (int r = 0; r < job->size && list && like && waits; r++) {
        const waits_t of = waits[r];
        int same = 0;
        for (int p = r; p < job->size && of.n > 0; p++)
            if (waits[p].n == of.n && waits[p].hash == of.hash) {
                waits[p].n = 0;
                like[same++] = p;
            }
        if (same == 0)
            continue;
        char from[512], to[512];
        job_ranks_text(like, same, from, sizeof(from));
        job_ranks_text(list, job_waits_for(job, r, list), to, sizeof(to));
        fprintf(out, "%s  %s -> %s\n", lines++ == 0 ? "\nwho waits for whom\n" : "", from, to);
    }
    free(list);
    free(like);
    free(waits);
}

static void print_head(const job_t *job, FILE *out)
{
    fprintf(out, "job %s: %d rank%s, %d alive; started %s", job->id, job->size, job->size == 1 ? "" : "s",
            job->alive, job->began);
    if (job->age >= 0)
        fprintf(out, ", %.1f s ago", job->age);
    if (job->launcher > 0)
        fprintf(out, ", by ucx-run (pid %d%s)", job->launcher, job->launcher_alive ? "" : ", gone");
    fputc('\n', out);
    if (job->path[0] != '\0')
        fprintf(out, job->files > 1 ? "flight recorder: %s and %d more\n" : "flight recorder: %s\n",
                job->path, job->files - 1);
    if (job->known < job->size) {
        int *list = calloc((size_t)job->size, sizeof(int)), n = 0;
        char text[512];
        for (int r = 0; r < job->size && list != NULL; r++)
            if (!job->rank[r].known)
                list[n++] = r;
        job_ranks_text(list, n, text, sizeof(text));
        fprintf(out, "not seen from this host (%s): rank%s %s; ask gyre-doctor --job %s where they run\n",
                job->host, n == 1 ? "" : "s", text, job->id);
        free(list);
    }
}

void job_print(const job_t *job, FILE *out)
{
    char text[1600], process[32];
    print_head(job, out);
    fprintf(out, "\n%5s %8s  %-13s  %s\n", "rank", "pid", "process", "doing");
    for (int r = 0; r < job->size; r++) {
        const member_t *m = &job->rank[r];
        if (!m->known)
            continue;
        doing_text(m, text, sizeof(text));
        process_text(m, process, sizeof(process));
        fprintf(out, "%5d %8d  %-13s  %s", r, m->pid, process, text);
        if (strcmp(m->host, job->host) != 0)
            fprintf(out, "  [%s]", m->host);
        fputc('\n', out);
        if (m->slot->state == 3)
            fprintf(out, "%30s  error: %s\n", "", m->slot->error);
        earlier_text(m, text, sizeof(text));
        if (text[0] != '\0')
            fprintf(out, "%30s  before: %s\n", "", text);
    }
    print_waits(job, out);
    int culprit = job_blame(job, text);
    fprintf(out, "\n%s: %s\n", culprit >= 0 ? "likely culprit" : "verdict", text);
}

static json_t *call_json(const comm_call_t *call)
{
    char text[JOB_CALL_TEXT];
    coll_call_text(call, text, sizeof(text));
    return json_pack("{s:s, s:i, s:i, s:I}", "text", text, "seq", (int)call->seq, "communicator",
                     (int)call->comm, "tag", (json_int_t)call->user_tag);
}

static json_t *member_json(const job_t *job, int r, int *list)
{
    static const char *const states[] = {"not joined", "outside", "in a call", "failed", "left"};
    const member_t *m = &job->rank[r];
    json_t *calls = json_array(), *waits = json_array();
    uint32_t n = m->slot->state == 0                   ? 0
                 : m->slot->head > COMM_RECORDER_CALLS ? COMM_RECORDER_CALLS
                                                       : m->slot->head;
    for (uint32_t k = 0; k < n; k++)
        json_array_append_new(calls,
                              call_json(&m->slot->calls[(m->slot->head - 1 - k) % COMM_RECORDER_CALLS]));
    int waits_n = job_waits_for(job, r, list);
    for (int i = 0; i < waits_n; i++)
        json_array_append_new(waits, json_integer(list[i]));
    json_t *out = json_pack("{s:i, s:s, s:i, s:s, s:s, s:b, s:o, s:o}", "rank", r, "host", m->host, "pid",
                            m->pid, "process", job_life_word(m->life), "state", states[m->slot->state],
                            "moved", m->moved, "waits_for", waits, "calls", calls);
    if (out == NULL)
        return NULL;
    if (m->since >= 0)
        json_object_set_new(out, "seconds", json_real(m->since));
    if (m->cpu >= 0)
        json_object_set_new(out, "cpu", json_real(m->cpu));
    if (m->slot->state == 3)
        json_object_set_new(out, "error", json_stringn_nocheck(m->slot->error, strlen(m->slot->error)));
    if (m->slot->ended_ns != 0 && WIFSIGNALED(m->slot->status))
        json_object_set_new(out, "signal", json_integer(WTERMSIG(m->slot->status)));
    else if (m->slot->ended_ns != 0)
        json_object_set_new(out, "exit", json_integer(WEXITSTATUS(m->slot->status)));
    return out;
}

json_t *job_json(const job_t *job)
{
    char text[JOB_BLAME_TEXT];
    json_t *ranks = json_array();
    int *list = calloc((size_t)job->size + 1, sizeof(int));
    for (int r = 0; list != NULL && r < job->size; r++)
        if (job->rank[r].known)
            json_array_append_new(ranks, member_json(job, r, list));
    free(list);
    int culprit = job_blame(job, text);
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:i, s:s, s:o}", "job", job->id, "size", job->size, "alive",
                     job->alive, "host", job->host, "started", job->began, "culprit", culprit, "verdict",
                     text, "ranks", ranks);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

/* The recorder that first has the job's id. */
static int is_first(const recorders_t *found, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(found->list[k].head.job, found->list[i].head.job) == 0)
            return 0;
    return 1;
}

void job_list_print(const recorders_t *found, FILE *out)
{
    for (int i = 0; i < found->n; i++) {
        job_t job;
        if (!is_first(found, i) || !job_look(found, found->list[i].head.job, &job))
            continue;
        if (i == 0)
            fprintf(out, "%-24s %6s %6s  %-19s  %s\n", "job", "ranks", "alive", "started", "recorder");
        fprintf(out, "%-24s %6d %6d  %-19s  %s\n", job.id, job.size, job.alive, job.began,
                job.path[0] != '\0' ? job.path : "memory");
        job_free(&job);
    }
}

json_t *job_list_json(const recorders_t *found)
{
    json_t *list = json_array();
    for (int i = 0; i < found->n; i++) {
        job_t job;
        if (!is_first(found, i) || !job_look(found, found->list[i].head.job, &job))
            continue;
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:s, s:s}", "job", job.id, "size", job.size,
                                              "alive", job.alive, "started", job.began, "path", job.path));
        job_free(&job);
    }
    return json_pack("{s:o}", "jobs", list);
}
