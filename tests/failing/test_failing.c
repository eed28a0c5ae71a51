/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* ASan in check-long: make check-oom runs every k with ASan */
/* tests/failing/test_failing.c: the k-th request for memory, a descriptor, a mapping, a thread, a write, a
 * service of UCX or memory inside jansson fails on one rank: for all k, until a run passes untouched. Every
 * such run ends with an error at that rank that blames no file and no argument, or without one where Gyre
 * does without; at the others with none or with one that leads to it. Nothing crashes or hangs, no descriptor
 * is left (and no memory, with ASan), no file is left out, and the same processes then join a new job in
 * which all works. The jobs are in scenario.h.
 * takes: 15
 * deadline: 300
 *
 *     test_failing                          a sample of k
 *     test_failing SCENARIO RANK KIND       all k
 *     test_failing SCENARIO RANK KIND K     one run, with its messages
 *     test_failing SCENARIO RANK KIND F/N   every N-th k from F on
 *     test_failing list                     SCENARIO RANK KIND of all, a line each
 *
 * With FAILING_PATHS=1, of the requests that are made through the same calls only the first and the last.
 *
 * The emulator's build has scenarios of a device, in which calls of CUDA fail: once for lack of memory, or
 * from then on, as where the device is lost (tests/gpu/failing.sh).
 *
 * With FAILING_ONLY=FUNCTION, such as ucp_put_nbx, only its requests count. */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/failing/inject.h"
#include "tests/failing/scenario.h"
#include "tests/support/descriptors.h"

enum { SECONDS = 20, KEPT = 1 /* windows for small buffers that a process may keep open */ };
enum { TRACED = 1 << 20 };
/* Instead of k: nothing fails, and the victim's requests are traced, or all ranks' are counted. */
enum { TRACE = 0 };
#define COUNT LONG_MAX

/* What a rank reports, in memory that all share. */
typedef struct {
    _Atomic int finished; /* 1: after the first job; 2: after the second, too */
    gyre_status_t status; /* of the first job's first call that failed */
    char step[32], text[1024];
    char struck[32]; /* the function that failed; empty: k was larger than all requests */
    long offset, requests, seen[INJECT_KINDS];
    gyre_status_t second; /* the second job's; and what went wrong there */
    char why[1100];
    int windows, descriptors; /* left by both jobs: of windows; all others */
    long left,
        arenas; /* and of the emulated device: pieces of its memory, which peers may have mapped, and more */
} report_t;

typedef struct {
    report_t report[RANKS];
    meeting_t meeting[JOBS];
    uint64_t calls[TRACED]; /* inject_trace() of the victim */
} shared_t;
static shared_t *shared;
static char folder[64]; /* "files" that scenarios load, and "run" for what a run writes */

typedef struct {
    const char *name;
    int n, joins; /* processes; the last of them are newcomers */
    const char *transport;
    work_t body;
    double patience; /* of the job in which a request fails, in seconds */
    /* a sample has every fifth of these k, twentieth of those of memory, fiftieth of JSON's; 0: nothing */
    long every;
    int in_turn; /* in a sample a request of a kind fails on one rank only */
} scenario_t;
static const scenario_t scenarios[] = {
    {"alone", 1, 0, "auto", calls_all, 3, 5, 0},        {"pair", 2, 0, "auto", calls_all, 3, 29, 0},
    {"ucx", 2, 0, "ucx", calls_all, 3, 47, 0},          {"grow", 3, 1, "auto", calls_grow, 2, 41, 1},
    {"train", 1, 0, "auto", training_alone, 3, 47, 0},  {"zero-1", 2, 0, "auto", training_zero_1, 3, 101, 1},
    {"zero-2", 2, 0, "auto", training_zero_2, 3, 0, 1}, {"zero-3", 2, 0, "auto", training_zero_3, 3, 127, 1},
    {"formats", 1, 0, "auto", formats_load, 3, 47, 0},  {"direct", 2, 0, "auto", device_direct, 3, 0, 0},
    {"staged", 2, 0, "auto", device_staged, 3, 0, 0},
};

static void note(gyre_status_t st, const char *step, gyre_status_t *status, report_t *report)
{
    if (st == GYRE_OK || *status != GYRE_OK)
        return;
    *status = st;
    snprintf(report->step, sizeof report->step, "%s", step);
    snprintf(report->text, sizeof report->text, "%s", gyre_last_error());
}

/* Over UCX each rank counts as a host, so that puts and gets go over it, too. */
static int spans_hosts(const scenario_t *s)
{
    return strcmp(s->transport, "ucx") == 0;
}

/* One job, from gyre_init to gyre_finalize, as a program does it that gives up at the first error. */
static gyre_status_t run_job(int rank, const scenario_t *s, int number, double patience, report_t *report)
{
    char own_folder[72];
    job_t whole = {.rank = rank, .n = s->n, .meeting = &shared->meeting[number], .folder = own_folder};
    whole.hosts = spans_hosts(s);
    job_t *job = &whole;
    snprintf(own_folder, sizeof own_folder, "%s/run", folder);
    gyre_status_t status = GYRE_OK;
    job->own = aligned_alloc(4096, LARGE * sizeof(double));
    if (!job->own) { /* it is the test's own */
        inject_disarm();
        job->own = aligned_alloc(4096, LARGE * sizeof(double));
    }
    memset(job->own, 0, LARGE * sizeof(double));
    gyre_status_t worked = s->body(job, patience);
    note(worked, job->step, &status, report);
    if (status == GYRE_OK && job->wrong) {
        status = GYRE_ERR_INTERNAL;
        snprintf(report->text, sizeof report->text, "a result is wrong");
    }
    if (status != GYRE_OK && job->world)
        (void)gyre_comm_abort(job->world, report->text);
    if (status != GYRE_OK && job->aside)
        (void)gyre_comm_abort(job->aside, report->text);
    note(gyre_train_destroy(job->train), "train_destroy", &status, report);
    note(gyre_buckets_destroy(job->buckets), "buckets_destroy", &status, report);
    while (job->registered) { /* if there was no memory for it, it must not be freed yet */
        gyre_status_t st = gyre_mem_deregister(job->own);
        note(st, "mem_deregister", &status, report);
        job->registered = st == GYRE_ERR_NO_MEMORY;
    }
    note(gyre_mem_free(job->window), "mem_free", &status, report);
    note(gyre_mem_free(job->shared), "mem_free of shared memory", &status, report);
    if (job->part)
        note(gyre_comm_destroy(job->part), "comm_destroy", &status, report);
    if (job->later)
        note(gyre_comm_destroy(job->later), "comm_destroy", &status, report);
    for (int i = 0; i < MORE; i++)
        if (job->more[i])
            note(gyre_comm_destroy(job->more[i]), "comm_destroy", &status, report);
    if (job->aside)
        note(gyre_finalize(job->aside), "finalize of the job aside", &status, report);
    if (job->world)
        note(gyre_finalize(job->world), "finalize", &status, report);
    if (job->device)
        device_end(job);
    free(job->own);
    return status;
}

static int listening(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        perror("socket");
        exit(2);
    }
    *port = ntohs(at.sin_port);
    return fd;
}

static void set(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static int verbose, failed, runs, hit, without;

static int on_device(const scenario_t *s)
{
    return s->body && (s->body == device_direct || s->body == device_staged);
}

/* What the processes of one run do. */
static void be_rank(const scenario_t *s, int rank, int victim, inject_kind_t kind, long k)
{
    report_t *reports = shared->report, *report = &reports[rank];
    alarm(SECONDS);
    const int before = descriptors();
    if (k == COUNT)
        inject_watch();
    else if (rank == victim && k == TRACE)
        inject_trace(kind, shared->calls, TRACED);
    else if (rank == victim)
        inject_arm(kind, k);
    report->status = run_job(rank, s, 0, s->patience, report);
    inject_disarm();
    report->requests = inject_count();
    for (int each = 0; each < INJECT_KINDS; each++)
        report->seen[each] = inject_seen((inject_kind_t)each);
    const char *struck = inject_struck(&report->offset);
    snprintf(report->struck, sizeof report->struck, "%s", struck ? struck : "");
    report->finished = 1;
    report_t again = {0};
    for (int r = 0; r < s->n; r++) /* nobody meets a rank that is still in the first */
        while (!reports[r].finished)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (kind != INJECT_LOST || !*reports[victim].struck) { /* else that process has no device any more */
        report->second = run_job(rank, s, 1, 15, &again);
        snprintf(report->why, sizeof report->why, "%s: %s", again.step, again.text);
        report->left = inject_left(0);
        report->arenas = inject_left(1);
    }
    report->windows = descriptors_of("gyre-window");
    report->descriptors = descriptors() - report->windows - before;
    report->finished = 2;
    exit(0); /* with LeakSanitizer's check */
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void remove_all(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        printf("FAILED to remove %s: %s\n", path, strerror(errno));
        failed++;
    }
}

/* Each run begins with an empty folder. */
static void empty_folder(void)
{
    char path[72];
    snprintf(path, sizeof path, "%s/run", folder);
    remove_all(path);
    if (mkdir(path, 0700) != 0) {
        printf("FAILED to make %s: %s\n", path, strerror(errno));
        failed++;
    }
}

/* Forks the ranks, and waits for them. *died: what became of a rank that did not end by itself. */
static void run(const scenario_t *s, int victim, inject_kind_t kind, long k, char *died, size_t bytes)
{
    int port = 0, fd = s->n > 1 ? listening(&port) : -1;
    pid_t pids[RANKS];
    memset(shared, 0, offsetof(shared_t, calls));
    empty_folder();
    int hung = 0;
    *died = '\0';
    for (int r = 0; r < s->n; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        if (s->n > 1) {
            char root[32];
            snprintf(root, sizeof root, "127.0.0.1:%d", port);
            if (r < s->n - s->joins)
                setenv("GYRE_ROOT", root, 1);
            setenv("GYRE_SECRET", "0123456789012345678901234567890123456789012345678901234567890123", 1);
            if (r < s->n - s->joins) {
                set("GYRE_RANK", r);
                set("GYRE_SIZE", s->n - s->joins);
            }
            if (r == 0)
                set("GYRE_ROOT_FD", fd);
        }
        setenv("GYRE_TRANSPORT", s->transport, 1);
        if (spans_hosts(s))
            set("GYRE_HOST_RANKS", 1);
        setenv("GYRE_TUNE", "none", 1);
        if (!verbose)
            setenv("GYRE_LOG", "none", 1);
        be_rank(s, r, victim, kind, k);
    }
    for (int r = 0; r < s->n; r++) {
        int status = 0;
        waitpid(pids[r], &status, 0);
        const int alarmed = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        if (status == 0 || (*died && !(hung && !alarmed))) /* the others wait for one that crashed */
            continue;
        hung = alarmed;
        snprintf(died, bytes, "rank %d %s %d", r,
                 !WIFSIGNALED(status) ? "ended with code"
                 : alarmed            ? "hung: signal"
                                      : "crashed: signal",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (fd >= 0)
        close(fd);
}

/* Descriptors that a process keeps that meets no failure: of windows; all others. */
static int usual_windows[RANKS], usual[RANKS];

/* The error text of rank `r` speaks of rank `of`; a newcomer has no number yet, and knows an address only. */
static int speaks_of(const scenario_t *s, int r, int of)
{
    const char *text = shared->report[r].text, *address = shared->meeting[0].address;
    char name[24], names[24];
    snprintf(name, sizeof name, "rank %d", of);
    snprintf(names, sizeof names, "rank(s) %d", of);
    return strstr(text, name) || strstr(text, names) || (of >= s->n - s->joins && strstr(text, "newcomer")) ||
           (r >= s->n - s->joins && *address && strstr(text, address));
}

/* It speaks of the victim, or of one that gave up and speaks of the victim: its end may be seen first. */
static int leads_to(const scenario_t *s, int r, int victim)
{
    int leads = speaks_of(s, r, victim);
    for (int by = 0; by < s->n; by++)
        leads |= by != r && by != victim && shared->report[by].status != GYRE_OK && speaks_of(s, r, by) &&
                 speaks_of(s, by, victim);
    return leads;
}

/* 1: the status speaks of arguments, files or other ranks, not of what this process lacks. */
static int blames_another(gyre_status_t status)
{
    return status == GYRE_ERR_INVALID || status == GYRE_ERR_NOT_FOUND || status == GYRE_ERR_FORMAT ||
           status == GYRE_ERR_UNSUPPORTED || status == GYRE_ERR_MISMATCH;
}

/* One run and what it must be like. 0: k was larger than all requests. */
static int look(const scenario_t *s, int victim, inject_kind_t kind, long k)
{
    char died[64], why[1500] = "";
    run(s, victim, kind, k, died, sizeof died);
    const report_t *reports = shared->report, *v = &reports[victim];
    runs++;
    if (*died)
        snprintf(why, sizeof why, "%s", died);
    else if (v->status != GYRE_OK && !*v->text)
        snprintf(why, sizeof why, "no text");
    else if (v->status == GYRE_ERR_INTERNAL ||
             (v->status == GYRE_ERR_TIMEOUT && !strstr(v->text, "no memory"))) /* that has kept it waiting */
        snprintf(why, sizeof why, "got %s: %s", gyre_status_string(v->status), v->text);
    else if (kind != INJECT_WRITE && !on_device(s) && blames_another(v->status))
        snprintf(why, sizeof why, "got %s, which is not what is wrong: %s", gyre_status_string(v->status),
                 v->text);
    else if (v->status != GYRE_OK && !strstr(v->text, inject_words(kind)))
        snprintf(why, sizeof why, "%s: nothing of '%s': %s", v->step, inject_words(kind), v->text);
    for (int r = 0; r < s->n && !*why; r++) {
        const report_t *o = &reports[r];
        if (r != victim && o->status != GYRE_OK && !leads_to(s, r, victim))
            snprintf(why, sizeof why, "%s on rank %d does not name rank %d: %s", o->step, r, victim, o->text);
        else if (r != victim && o->status != GYRE_OK && v->status == GYRE_OK &&
                 !strstr(o->step, "shrink") && /* it may leave a rank out, and that one learn it later */
                 !strstr(o->step, "finalize")) /* the victim could not say that it leaves, and logged that */
            snprintf(why, sizeof why, "an error on rank %d only, in %s: %s", r, o->step, o->text);
        else if (o->second != GYRE_OK)
            snprintf(why, sizeof why, "the next job fails on rank %d: %s", r, o->why);
        else if (o->descriptors > usual[r])
            snprintf(why, sizeof why, "%d descriptors left on rank %d", o->descriptors - usual[r], r);
        else if (o->windows > usual_windows[r] && o->windows > KEPT)
            snprintf(why, sizeof why, "%d windows left on rank %d", o->windows - usual_windows[r], r);
        else if (o->left > 0 || o->arenas > JOBS)
            snprintf(why, sizeof why,
                     "left on rank %d: %ld streams, events and the like, %ld pieces of memory", r, o->left,
                     o->arenas);
    }
    if (*why) {
        printf("FAILED %s %d %s %ld: %s\n", s->name, victim, inject_names[kind], k, why);
        failed++;
    }
    hit += *v->struck != '\0';
    without += *v->struck && v->status == GYRE_OK;
    if (*why || verbose || getenv("FAILING_LIST"))
        printf("  %s %d %s %ld: %s at 0x%lx; %s: %s: %s\n", s->name, victim, inject_names[kind], k,
               *v->struck ? v->struck : "none", v->offset - 1, v->step, gyre_status_string(v->status),
               v->text);
    for (int r = 0; verbose && r < s->n; r++)
        printf("    rank %d: %s: %s: %s\n", r, reports[r].step, gyre_status_string(reports[r].status),
               reports[r].text);
    fflush(stdout);
    return *v->struck != '\0' || *died;
}

/* Every `stride`-th k from `first` on. */
static void sweep(const scenario_t *s, int victim, inject_kind_t kind, long first, long stride)
{
    const int before = failed;
    for (long k = first; look(s, victim, kind, k) && failed < before + 40;)
        k += stride;
    printf("%s, rank %d, %s: %ld requests, every %ld\n", s->name, victim, inject_names[kind],
           shared->report[victim].requests, stride);
}

/* Every `stride`-th of `all` requests, and at least one. It begins with a number that differs between kinds
 * and ranks. */
static void sample(const scenario_t *s, int victim, inject_kind_t kind, long all, long stride)
{
    const long within = stride < all ? stride : all;
    long k = within == 0 ? 1 : 1 + ((long)kind * 7 + victim * 3) % within;
    while (k <= all && look(s, victim, kind, k))
        k += stride;
    printf("%s, rank %d, %s: %ld requests, every %ld\n", s->name, victim, inject_names[kind], all, stride);
}

typedef struct {
    uint64_t calls;
    long k;
} request_t;

static int by_calls(const void *a, const void *b)
{
    const request_t *x = a, *y = b;
    return x->calls != y->calls ? (x->calls > y->calls) - (x->calls < y->calls)
                                : (x->k > y->k) - (x->k < y->k);
}

/* As sweep(), but of the requests that one run makes through the same calls only the first and the last: a
 * loop asks for the same again and again. */
static void sweep_paths(const scenario_t *s, int victim, inject_kind_t kind, long first, long stride)
{
    const int before = failed;
    if (look(s, victim, kind, TRACE))
        return;
    const long n = shared->report[victim].requests;
    request_t *all = malloc((size_t)n * sizeof *all);
    if (n > TRACED || (n > 0 && !all)) {
        printf("FAILED %s %d %s: %ld requests are too many\n", s->name, victim, inject_names[kind], n);
        failed++;
        free(all);
        return;
    }
    for (long i = 0; i < n; i++)
        all[i] = (request_t){shared->calls[i], i + 1};
    qsort(all, (size_t)n, sizeof *all, by_calls);
    long chosen = 0;
    for (long i = 0, begin = 0; i < n && failed < before + 40; i++) {
        if (i > 0 && all[i].calls != all[i - 1].calls)
            begin = i;
        const int last = i == n - 1 || all[i + 1].calls != all[i].calls;
        if ((i == begin || last) && chosen++ % stride == first - 1)
            look(s, victim, kind, all[i].k);
    }
    printf("%s, rank %d, %s: %ld of %ld requests, every %ld\n", s->name, victim, inject_names[kind], chosen,
           n, stride);
    free(all);
}

/* How many times rarer than `every` says. */
static long per_kind(inject_kind_t kind)
{
    return kind == INJECT_JSON ? 50 : kind == INJECT_MEMORY ? 20 : 5;
}

/* Calls of CUDA are made in scenarios of a device only. */
static int may_have(const scenario_t *s, inject_kind_t kind)
{
    return on_device(s) || (kind != INJECT_CUDA && kind != INJECT_LOST);
}

/* UCX is asked for services only where ranks count as hosts; JSON is the same in each of ZeRO's stages. */
static int has(const scenario_t *s, inject_kind_t kind)
{
    return !may_have(s, kind)    ? 0
           : kind == INJECT_UCX  ? spans_hosts(s)
           : kind == INJECT_JSON ? s->body != training_zero_2 && s->body != training_zero_3
                                 : 1;
}

/* Requests of this kind are made by every job. */
static int must_have(const scenario_t *s, inject_kind_t kind)
{
    return kind <= INJECT_WRITE || (kind == INJECT_UCX && spans_hosts(s));
}

/* A sample leaves this out. */
static int is_left_out(const scenario_t *s, int victim, inject_kind_t kind)
{
    return s->every == 0 || !s->body || (s->in_turn && (int)kind % s->n != victim) || !has(s, kind);
}

static void list(void)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        for (int victim = 0; scenarios[i].body && victim < scenarios[i].n; victim++)
            for (inject_kind_t kind = 0; kind < INJECT_KINDS; kind++)
                if (has(&scenarios[i], kind))
                    printf("%s %d %s\n", scenarios[i].name, victim, inject_names[kind]);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list();
        return 0;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    const char *temporary = getenv("TMPDIR");
    char files[72];
    snprintf(folder, sizeof folder, "%s/failing-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return 2;
    snprintf(files, sizeof files, "%s/files", folder);
    inject_json();
    char why[256];
    if (!inject_ucx(why, sizeof why)) {
        printf("UCX cannot be loaded: %s\n", why);
        remove_all(folder);
        return 2;
    }
    if (mkdir(files, 0700) != 0 || !training_prepare(files) || !formats_prepare(files)) {
        printf("the files cannot be made: %s\n", gyre_last_error());
        remove_all(folder);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int paths = getenv("FAILING_PATHS") != NULL;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const scenario_t *s = &scenarios[i];
        if (!s->body || (argc > 1 && strcmp(argv[1], s->name) != 0) || (argc == 1 && s->every == 0))
            continue;
        for (int r = 0; r < s->n; r++)
            usual[r] = usual_windows[r] = RANKS * 1000;
        long requests[RANKS][INJECT_KINDS];
        if (look(s, 0, INJECT_MEMORY, COUNT) || failed)
            break;
        for (int r = 0; r < s->n; r++) {
            usual[r] = shared->report[r].descriptors;
            usual_windows[r] = shared->report[r].windows;
            memcpy(requests[r], shared->report[r].seen, sizeof requests[r]);
            for (inject_kind_t kind = INJECT_MEMORY; kind < INJECT_KINDS; kind++)
                if (must_have(s, kind) && requests[r][kind] == 0) {
                    printf("FAILED %s %d %s: no request was counted\n", s->name, r, inject_names[kind]);
                    failed++;
                }
        }
        for (int victim = 0; victim < s->n; victim++) {
            if (argc > 2 && atoi(argv[2]) != victim)
                continue;
            for (inject_kind_t kind = 0; kind < INJECT_KINDS; kind++) {
                if (argc == 1 && is_left_out(s, victim, kind))
                    continue;
                if (!may_have(s, kind) || (argc > 3 && strcmp(argv[3], inject_names[kind]) != 0))
                    continue;
                const char *every = argc > 4 ? strchr(argv[4], '/') : NULL;
                if (every)
                    (paths && kind != INJECT_CUDA && kind != INJECT_LOST ? sweep_paths : sweep)(
                        s, victim, kind, atol(argv[4]), atol(every + 1));
                else if (argc > 4) {
                    verbose = 1;
                    look(s, victim, kind, atol(argv[4]));
                } else if (argc > 1) {
                    sweep(s, victim, kind, 1, 1);
                } else {
                    sample(s, victim, kind, requests[victim][kind], s->every * per_kind(kind));
                }
            }
        }
    }
    remove_all(folder);
    printf("%d runs, %d failed; in %d a request failed, in %d Gyre did without\n", runs, failed, hit,
           without);
    return failed != 0;
}
