/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/failing/test_failing.c: the k-th request for memory, a descriptor, a mapping, a thread, a write or a
 * service of UCX fails on one rank: for all k, until a run passes untouched. Every such run ends with an
 * error at that rank, or without one where Gyre does without; at the others with none or with one that names
 * it. Nothing crashes or hangs, no descriptor is left (and no memory, with ASan), and the same processes
 * then join a new job in which all works.
 * takes: 15
 * deadline: 120
 *
 *     test_failing                          a sample of k; with TEST_LONG=1 all
 *     test_failing SCENARIO RANK KIND K     one run, with its messages */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>
#include <gyre/train.h>

#include "tests/failing/inject.h"

enum { RANKS = 2, SECONDS = 20, LARGE = 1 << 17 /* doubles: over the arenas' limit */ };

/* What a rank reports, in memory that all share. */
typedef struct {
    _Atomic int finished; /* 1: after the first job; 2: after the second, too */
    gyre_status_t status; /* of the first job's first call that failed */
    char step[32], text[1024];
    char struck[32]; /* the function that failed; empty: k was larger than all requests */
    long offset, requests;
    gyre_status_t second; /* the second job's; and what went wrong there */
    char why[1100];
    int descriptors; /* made and left by both jobs */
} report_t;

typedef struct {
    int rank, n;
    gyre_comm_t *world, *part, *later;
    gyre_buckets_t *buckets;
    double *window, *own, *shared;
    int registered;
    gyre_train_t *train;
    const char *step;
    int wrong; /* a result was */
} job_t;

#define STEP(name, call)            \
    do {                            \
        job->step = name;           \
        gyre_status_t st_ = (call); \
        if (st_ != GYRE_OK)         \
            return st_;             \
    } while (0)

static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};

static gyre_status_t collectives(job_t *job, gyre_comm_t *comm)
{
    double in[2 * RANKS], out[2 * RANKS] = {0};
    size_t counts[RANKS], displs[RANKS];
    gyre_request_t *request;
    const int n = job->n, peer = (job->rank + 1) % n;
    for (int i = 0; i < 2 * RANKS; i++)
        in[i] = 1;
    for (int r = 0; r < n; r++)
        counts[r] = 1, displs[r] = (size_t)r;
    STEP("all_reduce", gyre_all_reduce(in, out, 1, GYRE_FLOAT64, sum, comm));
    job->wrong |= out[0] != n;
    STEP("reduce_scatter", gyre_reduce_scatter(in, out, 1, GYRE_FLOAT64, sum, comm));
    STEP("reduce_scatterv", gyre_reduce_scatterv(in, out, counts, GYRE_FLOAT64, sum, comm));
    STEP("all_gather", gyre_all_gather(in, out, 1, GYRE_FLOAT64, comm));
    job->wrong |= out[n - 1] != 1;
    STEP("all_gatherv", gyre_all_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm));
    STEP("broadcast", gyre_broadcast(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("reduce", gyre_reduce(in, out, 1, GYRE_FLOAT64, sum, 0, comm));
    STEP("gather", gyre_gather(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("gatherv", gyre_gatherv(in, 1, out, counts, displs, GYRE_FLOAT64, 0, comm));
    STEP("scatter", gyre_scatter(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("scatterv", gyre_scatterv(in, counts, displs, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("all_to_all", gyre_all_to_all(in, out, 1, GYRE_FLOAT64, comm));
    STEP("all_to_allv", gyre_all_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm));
    STEP("barrier", gyre_barrier(comm));
    STEP("iall_reduce", gyre_iall_reduce(in, out, 1, GYRE_FLOAT64, sum, comm, &request));
    STEP("wait", gyre_wait(&request));
    job->wrong |= out[0] != n;
    STEP("group_start", gyre_group_start());
    gyre_status_t sent = gyre_send(in, 2, GYRE_FLOAT64, peer, comm);
    gyre_status_t received = gyre_recv(out, 2, GYRE_FLOAT64, peer, comm);
    gyre_status_t ended = gyre_group_end();
    STEP("send", sent);
    STEP("recv", received);
    STEP("group_end", ended);
    job->wrong |= out[1] != 1;
    return GYRE_OK;
}

/* Several messages with one request and as a plan, and a plan whose schedule is made twice. */
static gyre_status_t requests_and_plans(job_t *job, gyre_comm_t *comm)
{
    double in[3] = {1, 1, 1}, out[6] = {0};
    const int peer = (job->rank + 1) % job->n, peers[3] = {peer, peer, job->rank};
    const size_t ones[3] = {1, 1, 1};
    gyre_request_t *request;
    gyre_plan_t *plan;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    STEP("ineighbor_exchange", gyre_ineighbor_exchange(in, ones, NULL, 3, peers, out, ones, NULL, 3, peers,
                                                       GYRE_FLOAT64, comm, &request));
    STEP("wait for neighbours", gyre_wait(&request));
    job->wrong |= out[0] != 1 || out[1] != 1 || out[2] != 1;
    STEP("plan_neighbor_exchange", gyre_plan_neighbor_exchange(in, ones, NULL, 3, peers, out + 3, ones, NULL,
                                                               3, peers, GYRE_FLOAT64, comm, &plan));
    gyre_status_t exchanged = gyre_start(plan, NULL);
    gyre_status_t dropped = gyre_plan_free(&plan);
    STEP("start of messages", exchanged);
    STEP("plan_free of messages", dropped);
    job->wrong |= out[3] != 1 || out[5] != 1;
    STEP("plan_all_reduce", gyre_plan_all_reduce(in, out, 3, GYRE_FLOAT64, sum, comm, &plan));
    options.order = GYRE_ORDER_EXACT;
    gyre_status_t set = gyre_plan_set(plan, &options);
    gyre_status_t started = set == GYRE_OK ? gyre_start(plan, NULL) : set;
    gyre_status_t freed = gyre_plan_free(&plan);
    STEP("plan_set", set);
    STEP("start", started);
    STEP("plan_free", freed);
    job->wrong |= out[2] != job->n;
    return GYRE_OK;
}

static gyre_status_t large(job_t *job)
{
    for (int i = 0; i < LARGE; i++)
        job->window[i] = job->own[i] = 1;
    STEP("all_reduce of a window",
         gyre_all_reduce(job->window, job->window, LARGE, GYRE_FLOAT64, sum, job->world));
    STEP("all_reduce of malloc", gyre_all_reduce(job->own, job->own, LARGE, GYRE_FLOAT64, sum, job->world));
    job->wrong |= job->window[LARGE - 1] != job->n || job->own[LARGE / 2] != job->n;
    return GYRE_OK;
}

static gyre_status_t use_shared(job_t *job)
{
    void *theirs;
    if (gyre_comm_local_size(job->world) < job->n)
        return GYRE_OK; /* what failed has kept them from finding that they share a host */
    STEP("mem_alloc_shared", gyre_mem_alloc_shared(job->world, 8, (void **)&job->shared));
    STEP("mem_peer", gyre_mem_peer(job->shared, (job->rank + 1) % job->n, &theirs, NULL));
    *(double *)theirs = job->rank;
    STEP("barrier after a store", gyre_barrier(job->world));
    job->wrong |= *job->shared != (job->rank + job->n - 1) % job->n;
    return GYRE_OK;
}

static gyre_status_t use_buckets(job_t *job)
{
    const gyre_buckets_config_t config = {
        .size = sizeof config, .type = GYRE_FLOAT64, .op = GYRE_OP(GYRE_SUM), .bucket_bytes = 100};
    const size_t counts[] = {10, 1000};
    STEP("buckets_create", gyre_buckets_create(job->world, &config, 2, counts, &job->buckets));
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < counts[i]; k++)
            ((double *)gyre_buckets_tensor(job->buckets, i))[k] = 1;
    gyre_status_t ready = gyre_buckets_ready(job->buckets, 0);
    gyre_status_t more = gyre_buckets_ready(job->buckets, 1);
    gyre_status_t waited = gyre_buckets_wait(job->buckets);
    STEP("buckets_ready", ready);
    STEP("buckets_ready", more);
    STEP("buckets_wait", waited);
    job->wrong |= ((double *)gyre_buckets_tensor(job->buckets, 1))[999] != job->n;
    return GYRE_OK;
}

static gyre_status_t work(job_t *job, double patience)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.init_timeout_s = config.timeout_s = patience;
    STEP("init", gyre_init(&config, &job->world));
    gyre_status_t st = collectives(job, job->world);
    if (st == GYRE_OK)
        st = requests_and_plans(job, job->world);
    if (st != GYRE_OK)
        return st;
    STEP("comm_split", gyre_comm_split(job->world, 0, 0, &job->part));
    STEP("all_reduce of a split", gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->part));
    gyre_request_t *made;
    STEP("comm_idup", gyre_comm_idup(job->world, &job->later, &made));
    STEP("wait for comm_idup", gyre_wait(&made));
    STEP("all_reduce of it", gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->later));
    STEP("mem_alloc", gyre_mem_alloc(LARGE * sizeof(double), (void **)&job->window));
    st = large(job);
    if (st != GYRE_OK)
        return st;
    STEP("mem_register", gyre_mem_register(job->own, LARGE * sizeof(double)));
    job->registered = 1;
    st = large(job);
    if (st == GYRE_OK)
        st = use_shared(job);
    if (st == GYRE_OK)
        st = use_buckets(job);
    if (st != GYRE_OK)
        return st;
    if (job->n > 1) {
        gyre_comm_t *old = job->world;
        (void)gyre_barrier(old); /* the others' shrink may abort it */
        STEP("comm_shrink", gyre_comm_shrink(old, &job->world));
        STEP("comm_destroy", gyre_comm_destroy(old));
        STEP("all_reduce after a shrink",
             gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->world));
    }
    return GYRE_OK;
}

static char folder[64]; /* of the run's files */

/* One training step, a checkpoint, the model's files; then the checkpoint is resumed and the model loaded. */
static gyre_status_t train(job_t *job, double patience)
{
    static const char settings[] =
        "{\"data\": \"%s/text\", \"steps\": 2, \"seq\": 8, \"batch\": 2, \"eval-sequences\": 1%s}";
    char plain[512], loads[640], load[128], checkpoint[96], model[96];
    gyre_train_stats_t stats = {.size = sizeof stats};
    uint64_t step = 0;
    (void)patience;
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", folder);
    snprintf(model, sizeof model, "%s/model/", folder);
    snprintf(load, sizeof load, ", \"load\": \"%s\"", model);
    snprintf(plain, sizeof plain, settings, folder, ", \"layers\": 1, \"hidden\": 16, \"heads\": 2");
    snprintf(loads, sizeof loads, settings, folder, load);
    STEP("train_create", gyre_train_create(NULL, plain, &job->train));
    STEP("train_step", gyre_train_step(job->train, &stats));
    STEP("train_save", gyre_train_save(job->train, checkpoint));
    STEP("train_export", gyre_train_export(job->train, model));
    gyre_train_t *first = job->train;
    job->train = NULL;
    STEP("train_destroy", gyre_train_destroy(first));
    STEP("train_create to resume", gyre_train_create(NULL, plain, &job->train));
    STEP("train_resume", gyre_train_resume(job->train, checkpoint, &step));
    job->wrong |= step != 1;
    STEP("train_step after a resume", gyre_train_step(job->train, &stats));
    STEP("train_finish", gyre_train_finish(job->train));
    first = job->train;
    job->train = NULL;
    STEP("train_destroy", gyre_train_destroy(first));
    STEP("train_create with a model", gyre_train_create(NULL, loads, &job->train));
    STEP("train_step", gyre_train_step(job->train, &stats));
    return GYRE_OK;
}

static void note(gyre_status_t st, const char *step, gyre_status_t *status, report_t *report)
{
    if (st == GYRE_OK || *status != GYRE_OK)
        return;
    *status = st;
    snprintf(report->step, sizeof report->step, "%s", step);
    snprintf(report->text, sizeof report->text, "%s", gyre_last_error());
}

/* The calls of a job; patience: its deadlines in seconds. */
typedef gyre_status_t (*work_t)(job_t *job, double patience);

/* One job, from gyre_init to gyre_finalize, as a program does it that gives up at the first error. */
static gyre_status_t run_job(int rank, int n, work_t body, double patience, report_t *report)
{
    job_t whole = {.rank = rank, .n = n}, *job = &whole;
    gyre_status_t status = GYRE_OK;
    job->own = aligned_alloc(4096, LARGE * sizeof(double));
    if (!job->own) { /* it is the test's own */
        inject_disarm();
        job->own = aligned_alloc(4096, LARGE * sizeof(double));
    }
    memset(job->own, 0, LARGE * sizeof(double));
    gyre_status_t worked = body(job, patience);
    note(worked, job->step, &status, report);
    if (status == GYRE_OK && job->wrong) {
        status = GYRE_ERR_INTERNAL;
        snprintf(report->text, sizeof report->text, "a result is wrong");
    }
    if (status != GYRE_OK && job->world)
        (void)gyre_comm_abort(job->world, report->text);
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
    if (job->world)
        note(gyre_finalize(job->world), "finalize", &status, report);
    free(job->own);
    return status;
}

static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *e; all && (e = readdir(all));)
        count += e->d_name[0] != '.';
    if (all)
        closedir(all);
    return count;
}

typedef struct {
    const char *name;
    int n;
    const char *transport;
    work_t body;
    long every; /* a sample has every third of these k, and every twelfth of those of memory */
} scenario_t;
static const scenario_t scenarios[] = {
    {"alone", 1, "auto", work, 2},
    {"pair", 2, "auto", work, 13},
    {"ucx", 2, "ucx", work, 23},
    {"train", 1, "auto", train, 23},
};

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

/* What the processes of one run do. */
static void be_rank(const scenario_t *s, int rank, int victim, inject_kind_t kind, long k, report_t *reports)
{
    report_t *report = &reports[rank];
    alarm(SECONDS);
    const int before = descriptors();
    if (rank == victim)
        inject_arm(kind, k);
    report->status = run_job(rank, s->n, s->body, 3, report);
    inject_disarm();
    report->requests = inject_count();
    const char *struck = inject_struck(&report->offset);
    snprintf(report->struck, sizeof report->struck, "%s", struck ? struck : "");
    report->finished = 1;
    report_t again = {0};
    for (int r = 0; r < s->n; r++) /* nobody meets a rank that is still in the first */
        while (!reports[r].finished)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    report->second = run_job(rank, s->n, s->body, 15, &again);
    snprintf(report->why, sizeof report->why, "%s: %s", again.step, again.text);
    report->descriptors = descriptors() - before;
    report->finished = 2;
    exit(0); /* with LeakSanitizer's check */
}

static int verbose;

/* Forks the ranks, and waits for them. *died: what became of a rank that did not end by itself. */
static void run(const scenario_t *s, int victim, inject_kind_t kind, long k, report_t *reports, char *died,
                size_t bytes)
{
    int port = 0, fd = s->n > 1 ? listening(&port) : -1;
    pid_t pids[RANKS];
    memset(reports, 0, RANKS * sizeof *reports);
    *died = '\0';
    for (int r = 0; r < s->n; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        if (s->n > 1) {
            char root[32];
            snprintf(root, sizeof root, "127.0.0.1:%d", port);
            setenv("GYRE_ROOT", root, 1);
            setenv("GYRE_SECRET", "0123456789012345678901234567890123456789012345678901234567890123", 1);
            set("GYRE_RANK", r);
            set("GYRE_SIZE", s->n);
            if (r == 0)
                set("GYRE_ROOT_FD", fd);
        }
        setenv("GYRE_TRANSPORT", s->transport, 1);
        setenv("GYRE_TUNE", "none", 1);
        if (!verbose)
            setenv("GYRE_LOG", "none", 1);
        be_rank(s, r, victim, kind, k, reports);
    }
    for (int r = 0; r < s->n; r++) {
        int status = 0;
        waitpid(pids[r], &status, 0);
        if (status != 0 && !*died)
            snprintf(died, bytes, "rank %d %s %d", r,
                     !WIFSIGNALED(status)          ? "ended with code"
                     : WTERMSIG(status) == SIGALRM ? "hung: signal"
                                                   : "crashed: signal",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (fd >= 0)
        close(fd);
}

static int failed, runs, without;
static int usual[RANKS]; /* descriptors that a process keeps that meets no failure */

/* One run and what it must be like. 0: k was larger than all requests. */
static int look(const scenario_t *s, int victim, inject_kind_t kind, long k, report_t *reports)
{
    char died[64], name[24], names[24], why[1500] = "";
    run(s, victim, kind, k, reports, died, sizeof died);
    const report_t *v = &reports[victim];
    runs++;
    snprintf(name, sizeof name, "rank %d", victim);
    snprintf(names, sizeof names, "rank(s) %d", victim);
    if (*died)
        snprintf(why, sizeof why, "%s", died);
    else if (v->status != GYRE_OK && !*v->text)
        snprintf(why, sizeof why, "no text");
    else if (v->status == GYRE_ERR_INTERNAL ||
             (v->status == GYRE_ERR_TIMEOUT && !strstr(v->text, "no memory"))) /* that has kept it waiting */
        snprintf(why, sizeof why, "got %s: %s", gyre_status_string(v->status), v->text);
    for (int r = 0; r < s->n && !*why; r++) {
        const report_t *o = &reports[r];
        if (r != victim && o->status != GYRE_OK && !strstr(o->text, name) && !strstr(o->text, names))
            snprintf(why, sizeof why, "%s on rank %d does not name %s: %s", o->step, r, name, o->text);
        else if (r != victim && o->status != GYRE_OK && v->status == GYRE_OK &&
                 !strstr(o->step, "shrink")) /* it may leave a rank out, and that one learn it later */
            snprintf(why, sizeof why, "an error on rank %d only, in %s: %s", r, o->step, o->text);
        else if (o->second != GYRE_OK)
            snprintf(why, sizeof why, "the next job fails on rank %d: %s", r, o->why);
        else if (o->descriptors > usual[r])
            snprintf(why, sizeof why, "%d descriptors left on rank %d", o->descriptors - usual[r], r);
    }
    if (*why) {
        printf("FAILED %s %d %s %ld: %s\n", s->name, victim, inject_names[kind], k, why);
        failed++;
    }
    without += *v->struck && v->status == GYRE_OK;
    if (*why || verbose || getenv("FAILING_LIST"))
        printf("  %s %d %s %ld: %s at 0x%lx; %s: %s: %s\n", s->name, victim, inject_names[kind], k,
               *v->struck ? v->struck : "none", v->offset - 1, v->step, gyre_status_string(v->status),
               v->text);
    fflush(stdout);
    return *v->struck != '\0' || *died;
}

/* In a sample, every `stride`-th k, from a number that differs between kinds and ranks. */
static void sweep(const scenario_t *s, int victim, inject_kind_t kind, long stride, report_t *reports)
{
    long k = 1 + (stride > 1 ? ((long)kind * 7 + victim * 3) % stride : 0);
    const int before = failed;
    while (look(s, victim, kind, k, reports) && failed < before + 40)
        k += stride;
    printf("%s, rank %d, %s: %ld requests, every %ld\n", s->name, victim, inject_names[kind],
           reports[victim].requests, stride);
}

int main(int argc, char **argv)
{
    report_t *reports =
        mmap(NULL, RANKS * sizeof *reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reports == MAP_FAILED)
        return 2;
    const int all = getenv("TEST_LONG") != NULL;
    const char *temporary = getenv("TMPDIR");
    char text[96], command[96];
    snprintf(folder, sizeof folder, "%s/failing-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return 2;
    snprintf(text, sizeof text, "%s/text", folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    FILE *file = fopen(text, "w");
    for (int i = 0; file && i < 200; i++)
        fprintf(file, "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23);
    if (!file || fclose(file) != 0)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const scenario_t *s = &scenarios[i];
        if (argc > 1 && strcmp(argv[1], s->name) != 0)
            continue;
        for (int r = 0; r < s->n; r++)
            usual[r] = RANKS * 1000;
        if (look(s, 0, INJECT_MEMORY, LONG_MAX, reports) || failed)
            break;
        for (int r = 0; r < s->n; r++)
            usual[r] = reports[r].descriptors;
        for (int victim = 0; victim < s->n; victim++) {
            if (argc > 2 && atoi(argv[2]) != victim)
                continue;
            for (inject_kind_t kind = 0; kind < INJECT_KINDS; kind++) {
                if (argc > 3 && strcmp(argv[3], inject_names[kind]) != 0)
                    continue;
                if (argc > 4) {
                    verbose = 1;
                    look(s, victim, kind, atol(argv[4]), reports);
                } else {
                    const long stride =
                        all || argc > 1 ? 1 : (kind == INJECT_MEMORY ? s->every * 12 : s->every * 3);
                    sweep(s, victim, kind, stride, reports);
                }
            }
        }
    }
    if (system(command) != 0)
        failed++;
    printf("%d runs, %d failed; in %d Gyre did without what failed\n", runs, failed, without);
    return failed != 0;
}
