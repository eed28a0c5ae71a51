/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/job_look.c: looks at the ranks of one job: their slots, twice, and the processes in
 * /proc. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine/identity.h"
#include "tools/gyre-doctor/job.h"

const comm_recorder_slot_t job_no_slot = {.waiting_for = -1};

enum { LOOK_MS = 300 }; /* between the two looks */

/* State letter and processor time (in clock ticks) of a process; 0: no such process. */
static char process_state(pid_t pid, unsigned long long *ticks)
{
    char path[64], line[1024], state = 0;
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    const char *text = file != NULL ? fgets(line, sizeof(line), file) : NULL;
    if (file != NULL)
        fclose(file);
    const char *end = text != NULL ? strrchr(text, ')') : NULL; /* the name before it may hold anything */
    if (end == NULL ||
        sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user, &system) != 3)
        return 0;
    *ticks = user + system;
    return state;
}

static life_t life_of(char state)
{
    switch (state) {
    case 'R':
        return LIFE_RUNNING;
    case 'D':
        return LIFE_KERNEL;
    case 'T':
        return LIFE_STOPPED;
    case 't':
        return LIFE_TRACED;
    case 0:
    case 'Z':
    case 'X':
        return LIFE_DEAD;
    default:
        return LIFE_SLEEPING;
    }
}

/* The process that has recorder i open and the number `inner` for itself; 0: no such process. */
static pid_t holder_of(const recorders_t *found, int i, int inner)
{
    for (int h = 0; inner > 0 && h < found->holders_n; h++)
        if (found->holders[h].recorder == i && found->holders[h].inner == inner)
            return found->holders[h].pid;
    return 0;
}

static void clock_text(int64_t wall_ns, char text[32])
{
    time_t s = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    char day[24];
    if (localtime_r(&s, &parts) == NULL || strftime(day, sizeof(day), "%F %T", &parts) == 0)
        day[0] = '\0';
    snprintf(text, 32, "%s", day);
}

typedef struct {
    comm_recorder_slot_t *first; /* of the first look */
    unsigned long long *ticks;   /* [slots] */
} look_t;

static int slot_pid(const comm_recorder_slot_t *slot)
{
    return slot->state != 0 ? slot->pid : slot->child;
}

static look_t look_once(const recorders_t *found, int i)
{
    look_t look = {recorder_slots(found, i), NULL};
    int n = found->list[i].head.slots;
    if (look.first != NULL)
        look.ticks = calloc((size_t)n, sizeof(*look.ticks));
    for (int s = 0; look.ticks != NULL && s < n; s++) {
        pid_t pid = holder_of(found, i, slot_pid(&look.first[s]));
        if (pid > 0)
            process_state(pid, &look.ticks[s]);
    }
    return look;
}

/* 1 if the processes of a recorder's host are visible here: those of this boot and this host, and of
 * containers if they are visible. */
static int sees_host_of(const comm_recorder_head_t *head, const char *host)
{
    const ino_t first_pid_namespace = 0xEFFFFFFC; /* as in the kernel's include/linux/proc_ns.h */
    char boot[BASE_BOOT_BYTES];
    struct stat pids;
    base_machine_boot(boot);
    return strcmp(boot, head->boot) == 0 &&
           (strcmp(host, head->host) == 0 ||
            (stat("/proc/self/ns/pid", &pids) == 0 && pids.st_ino == first_pid_namespace));
}

/* A time of the recorder, which counts from the start of its host, by the clock on the wall. */
static int64_t wall(const comm_recorder_head_t *head, int64_t ns)
{
    return head->wall_ns + (ns - head->made_ns);
}

/* Fills one rank from its slot. same: its host's processes can be seen. */
static void fill(const recorders_t *found, int i, const look_t *look, int s, const comm_recorder_slot_t *now,
                 int same, double seconds, member_t *m)
{
    const comm_recorder_head_t *head = &found->list[i].head;
    unsigned long long ticks = 0;
    *m = (member_t){.known = 1,
                    .pid = slot_pid(now),
                    .cpu = -1,
                    .since = -1,
                    .slot = now,
                    .host = head->host,
                    .called = now->started_ns != 0 ? wall(head, now->started_ns) : INT64_MAX,
                    .ended = now->ended_ns != 0 ? wall(head, now->ended_ns) : INT64_MAX};
    pid_t pid = holder_of(found, i, m->pid);
    if (now->ended_ns != 0 || (pid <= 0 && same && m->pid != 0))
        m->life = LIFE_DEAD;
    else if (pid > 0)
        m->life = life_of(process_state(pid, &ticks));
    if (m->life != LIFE_DEAD && m->life != LIFE_UNKNOWN) {
        m->pid = (int)pid;
        if (look->ticks[s] <= ticks)
            m->cpu = (double)(ticks - look->ticks[s]) / (double)sysconf(_SC_CLK_TCK) / seconds;
    }
    m->moved = look->first[s].head != now->head;
    int64_t until = m->life == LIFE_DEAD ? now->ended_ns : base_now();
    if (now->started_ns == 0)
        return;
    if (until != 0 && (same || m->life == LIFE_DEAD) && until > now->started_ns)
        m->since = (double)(until - now->started_ns) / 1e9;
    clock_text(wall(head, now->started_ns), m->began);
}

static int is_alive(const member_t *m)
{
    return m->known && m->life != LIFE_DEAD && m->life != LIFE_UNKNOWN;
}

/* Puts the slots of recorder i into the job. If a living rank of another recorder has the slot's rank, the
 * slot is old. */
static void take(const recorders_t *found, int i, look_t *look, double seconds, job_t *job)
{
    const comm_recorder_head_t *head = &found->list[i].head;
    comm_recorder_slot_t *now = recorder_slots(found, i);
    int same = sees_host_of(head, job->host);
    if (now == NULL) { /* what we saw first must do */
        now = look->first;
        job->gone = 1;
    }
    job->slots[i] = now;
    for (int s = 0; s < head->slots; s++) {
        int r = now[s].rank;
        if ((now[s].state == 0 && now[s].child == 0) || r < 0 || r >= job->size)
            continue;
        member_t m;
        fill(found, i, look, s, &now[s], same, seconds, &m);
        member_t *old = &job->rank[r];
        if (is_alive(old) && is_alive(&m) && old->pid != m.pid) {
            job->twin[0] = old->pid;
            job->twin[1] = m.pid;
            job->twin_rank = r;
        }
        if (!old->known || (old->life == LIFE_DEAD && m.life != LIFE_DEAD))
            *old = m;
    }
    if (now == look->first)
        look->first = NULL; /* it is the job's now */
}

static void describe(const recorders_t *found, int i, job_t *job)
{
    const recorder_t *r = &found->list[i];
    char boot[BASE_BOOT_BYTES];
    base_machine_boot(boot);
    snprintf(job->id, sizeof(job->id), "%s", r->head.job);
    clock_text(r->head.wall_ns, job->began);
    job->age = strcmp(boot, r->head.boot) == 0 ? (double)(base_now() - r->head.made_ns) / 1e9 : -1;
    job->files += r->path[0] != '\0';
    if (r->path[0] != '\0')
        snprintf(job->path, sizeof(job->path), "%s", r->path);
    if (r->head.launcher) {
        pid_t pid = holder_of(found, i, r->head.maker);
        job->launcher = pid > 0 ? (int)pid : r->head.maker;
        job->launcher_alive = pid > 0;
    }
}

int job_look(const recorders_t *found, const char *id, job_t *job)
{
    look_t *looks = calloc((size_t)found->n + 1, sizeof(*looks));
    int ok = looks != NULL;
    *job = (job_t){.age = -1};
    if (gethostname(job->host, sizeof(job->host) - 1) != 0)
        strcpy(job->host, "localhost");
    base_time_t start = base_now();
    for (int i = 0; ok && i < found->n; i++) {
        if (strcmp(found->list[i].head.job, id) != 0)
            continue;
        looks[i] = look_once(found, i);
        ok = looks[i].first == NULL || looks[i].ticks != NULL;
        if (found->list[i].head.size > job->size)
            job->size = found->list[i].head.size;
        describe(found, i, job);
    }
    job->recorders = found->n;
    job->rank = ok ? calloc((size_t)job->size + 1, sizeof(*job->rank)) : NULL;
    job->slots = ok ? calloc((size_t)found->n + 1, sizeof(*job->slots)) : NULL;
    ok = ok && job->rank != NULL && job->slots != NULL;
    for (int r = 0; ok && r < job->size; r++) {
        job->rank[r].slot = &job_no_slot;
        job->rank[r].host = "";
    }
    if (ok && found->holders_n > 0)
        nanosleep(&(struct timespec){0, LOOK_MS * 1000000L}, NULL);
    double seconds = (double)(base_now() - start) / 1e9;
    if (job->age >= 0) /* as of the second look, as the calls' times are */
        job->age += seconds;
    for (int i = 0; i < found->n && looks != NULL; i++) {
        if (ok && looks[i].first != NULL)
            take(found, i, &looks[i], seconds > 0 ? seconds : 1e-9, job);
        free(looks[i].first);
        free(looks[i].ticks);
    }
    free(looks);
    for (int r = 0; ok && r < job->size; r++) {
        const member_t *m = &job->rank[r];
        job->known += m->known;
        job->alive += is_alive(m);
    }
    if (!ok)
        job_free(job);
    return ok;
}

void job_free(job_t *job)
{
    for (int i = 0; job->slots != NULL && i < job->recorders; i++)
        free(job->slots[i]);
    free(job->slots);
    free(job->rank);
    *job = (job_t){0};
}
