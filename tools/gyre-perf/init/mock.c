/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/init/mock.c: `gyre-perf init --mock N`: the bootstrap by itself, for more ranks than this
 * machine could run.
 *
 * A mock rank is a thread that joins over loopback like any rank (comm/boot/bootstrap.h): handshakes, tree,
 * MACs and all. Three things are timed, each from when the first rank may begin until the last one is done:
 *  - joining
 *  - an exchange: every rank puts a card, a fence, every rank gets its successor's card, a barrier;
 *    questions travel up the tree
 *  - a barrier
 *
 * The ranks share this machine's cores, so times grow with the work of all ranks together, N log N at least.
 * Messages, rounds and memory per rank, which grow with log N, are what a rank would see on cores of its own.
 *
 * All ranks walk through the same phases whether they failed or not, so no rank waits forever for a phase. */
#include "tools/gyre-perf/init/init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/boot/stats.h"

enum { JOIN = 0, EXCHANGE, BARRIER, PHASES, CARD = 8, BARRIERS = 8, STACK = 256 << 10 };

/* What one size gave. */
typedef struct {
    int ranks, starts, rounds;
    double ms[PHASES], messages[PHASES], most[PHASES]; /* messages: mean and most of any rank */
    double connections, most_connections;
    double bytes, most_bytes; /* of state after joining: median and most of any rank */
    double most_card_bytes;   /* after the exchange */
} row_t;

typedef struct {
    int n, root_fd, port;
    double timeout_s;
    pthread_barrier_t gate;
    _Atomic base_time_t began[PHASES];
    struct rank *ranks;
} job_t;

typedef struct rank {
    job_t *job;
    int rank;
    gyre_status_t status;
    char error[256];
    base_time_t ended[PHASES];
    comm_boot_stats_t stats[PHASES]; /* after each */
} rank_t;

static void identity(const job_t *job, int rank, comm_identity_t *who)
{
    memset(who, 0, sizeof *who);
    who->rank = rank;
    who->size = job->n;
    who->root_fd = rank == 0 ? job->root_fd : -1;
    who->have_secret = 1;
    memset(who->secret, 0x5a, sizeof who->secret); /* nothing to protect: both ends are in this process */
    snprintf(who->root, sizeof who->root, "127.0.0.1:%d", job->port);
    snprintf(who->job, sizeof who->job, "mock");
}

static gyre_status_t exchange(comm_boot_t *boot, int rank, int n, base_time_t deadline)
{
    char card[CARD], *all = malloc((size_t)n * CARD);
    gyre_status_t st;
    if (all == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the cards of %d ranks", n);
    memset(card, rank, sizeof card);
    st = comm_boot_all_gather(boot, card, sizeof card, all, deadline);
    free(all);
    return st == GYRE_OK ? comm_boot_barrier(boot, deadline) : st;
}

/* All ranks begin the phase together; its clock runs from when the first one may. */
static void begin(job_t *job, int phase)
{
    base_time_t none = 0;
    pthread_barrier_wait(&job->gate);
    atomic_compare_exchange_strong(&job->began[phase], &none, base_now());
}

static void end(rank_t *r, int phase, comm_boot_t *boot)
{
    r->ended[phase] = base_now();
    pthread_barrier_wait(&r->job->gate); /* what is counted below moves no more */
    if (boot)
        comm_boot_stats(boot, &r->stats[phase]);
}

static void *rank_main(void *user)
{
    rank_t *r = user;
    job_t *job = r->job;
    comm_boot_t *boot = NULL;
    comm_identity_t who;
    identity(job, r->rank, &who);
    const base_time_t deadline = base_deadline(job->timeout_s);

    begin(job, JOIN);
    r->status = comm_boot_join(&who, deadline, &boot);
    end(r, JOIN, boot);
    begin(job, EXCHANGE);
    if (r->status == GYRE_OK)
        r->status = exchange(boot, r->rank, job->n, deadline);
    end(r, EXCHANGE, boot);
    begin(job, BARRIER);
    for (int i = 0; i < BARRIERS && r->status == GYRE_OK; i++)
        r->status = comm_boot_barrier(boot, deadline);
    end(r, BARRIER, boot);
    if (r->status != GYRE_OK)
        snprintf(r->error, sizeof r->error, "%s", gyre_last_error());
    comm_boot_leave(boot, r->status == GYRE_OK);
    return NULL;
}

static int listen_loopback(job_t *job)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    job->root_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->root_fd < 0 || bind(job->root_fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(job->root_fd, 16384) != 0 || getsockname(job->root_fd, (struct sockaddr *)&at, &length) != 0) {
        fprintf(stderr, "gyre-perf: init: no socket on loopback: %s\n", strerror(errno));
        return 0;
    }
    job->port = ntohs(at.sin_port);
    return 1;
}

static int spawn_all(job_t *job)
{
    pthread_t *threads = calloc((size_t)job->n, sizeof *threads);
    pthread_attr_t attr;
    int started = 0, failed = threads ? pthread_attr_init(&attr) : ENOMEM;
    if (!failed) {
        failed = pthread_attr_setstacksize(&attr, STACK);
        while (!failed && started < job->n) {
            failed = pthread_create(&threads[started], &attr, rank_main, &job->ranks[started]);
            started += !failed;
        }
        pthread_attr_destroy(&attr);
    }
    if (failed && started > 0) { /* the others wait at a gate that will never open */
        fprintf(stderr, "gyre-perf: init: no thread for mock rank %d: %s; a smaller --mock helps\n", started,
                strerror(failed));
        exit(PERF_ERROR);
    }
    for (int r = 0; r < started; r++)
        pthread_join(threads[r], NULL);
    free(threads);
    if (failed)
        fprintf(stderr, "gyre-perf: init: no threads: %s\n", strerror(failed));
    return !failed;
}

/* Hops to rank 0 along the connections that there are. */
static int depth_of(const job_t *job, int rank)
{
    int depth = 0;
    while (job->ranks[rank].stats[JOIN].parent >= 0 && depth < job->n) {
        rank = job->ranks[rank].stats[JOIN].parent;
        depth++;
    }
    return depth;
}

static int collect(const job_t *job, row_t *row)
{
    double *bytes = calloc((size_t)job->n, sizeof *bytes);
    if (!bytes) {
        fprintf(stderr, "gyre-perf: init: no memory\n");
        return 0;
    }
    *row = (row_t){.ranks = job->n, .starts = 1};
    for (int i = 0; i < job->n; i++) {
        const rank_t *r = &job->ranks[i];
        const comm_boot_stats_t *joined = &r->stats[JOIN];
        const int rounds = 2 * depth_of(job, i);
        row->rounds = rounds > row->rounds ? rounds : row->rounds;
        row->connections += joined->connections / (double)job->n;
        row->most_connections =
            joined->connections > row->most_connections ? joined->connections : row->most_connections;
        bytes[i] = (double)joined->bytes;
        row->most_bytes = bytes[i] > row->most_bytes ? bytes[i] : row->most_bytes;
        const double after = (double)r->stats[EXCHANGE].bytes;
        row->most_card_bytes = after > row->most_card_bytes ? after : row->most_card_bytes;
        for (int phase = 0; phase < PHASES; phase++) {
            const double repeats = phase == BARRIER ? BARRIERS : 1;
            const double ms = (double)(r->ended[phase] - job->began[phase]) * 1e-6 / repeats;
            const uint64_t before = phase == JOIN ? 0 : r->stats[phase - 1].messages;
            const double messages = (double)(r->stats[phase].messages - before) / repeats;
            row->ms[phase] = ms > row->ms[phase] ? ms : row->ms[phase];
            row->messages[phase] += messages / job->n;
            row->most[phase] = messages > row->most[phase] ? messages : row->most[phase];
        }
    }
    row->bytes = init_median(bytes, job->n);
    free(bytes);
    return 1;
}

/* One job of n mock ranks; 0 with the reason on standard error. */
static int mock_job(const init_options_t *o, int n, row_t *row)
{
    job_t job = {.n = n, .root_fd = -1};
    job.timeout_s = o->timeout_s > 0.0 ? o->timeout_s : base_setting_seconds(SET_INIT_TIMEOUT);
    job.ranks = calloc((size_t)n, sizeof *job.ranks);
    int good = job.ranks && pthread_barrier_init(&job.gate, NULL, (unsigned)n) == 0;
    if (!good) {
        fprintf(stderr, "gyre-perf: init: no memory for %d mock ranks\n", n);
        free(job.ranks);
        return 0;
    }
    for (int r = 0; r < n; r++)
        job.ranks[r] = (rank_t){.job = &job, .rank = r};
    good = listen_loopback(&job) && spawn_all(&job);
    for (int r = 0; r < n && good; r++) {
        if (job.ranks[r].status != GYRE_OK) {
            fprintf(stderr, "gyre-perf: init: mock rank %d of %d: %s\n", r, n, job.ranks[r].error);
            good = 0;
        }
    }
    good = good && collect(&job, row);
    if (job.root_fd >= 0)
        close(job.root_fd);
    pthread_barrier_destroy(&job.gate);
    free(job.ranks);
    return good;
}

/* This process has both ends of every connection: two for each edge of the tree, as many again while ranks
 * still communicate with rank 0, and a listening socket for every second rank. */
static int have_descriptors(int n)
{
    struct rlimit limit;
    const rlim_t need = (rlim_t)n * 5 + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || need <= limit.rlim_cur)
        return 1;
    const rlim_t most = limit.rlim_max;
    limit.rlim_cur = most;
    if (need <= most && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 1;
    fprintf(stderr,
            "gyre-perf: init: %d mock ranks need %lu open files and %lu are allowed: a smaller --mock, or "
            "raise the "
            "limit (ulimit -n)\n",
            n, (unsigned long)need, (unsigned long)most);
    return 0;
}

static void print_row(const row_t *r)
{
    printf("%7d  %6.2f  %4.0f  %7.0f  %9.0f  %9.0f  %6d", r->ranks, r->connections, r->most_connections,
           r->bytes, r->most_bytes, r->most_card_bytes, r->rounds);
    for (int p = 0; p < PHASES; p++)
        printf("  %9.2f  %6.1f  %6.0f", r->ms[p], r->messages[p], r->most[p]);
    printf("\n");
    fflush(stdout);
}

static void print_columns(int starts)
{
    printf(
        "# gyre-perf %s: init, mock ranks: threads of one process that speak the bootstrap's protocol "
        "over loopback\n"
        "# medians of %d starts; all ranks share this machine's cores, so ms grow with the work of all of "
        "them together\n"
        "# conns: mean and most of a rank. state: bytes of a rank after joining, median and most, and most "
        "after the\n"
        "# exchange. rounds: up and down the tree that was built. msgs: mean and most of a rank\n",
        gyre_version(), starts);
    printf("# %5s  %12s  %29s  %6s  %25s  %25s  %25s\n", "", "conns", "state (B)", "", "join", "exchange",
           "barrier");
    printf("# %5s  %6s  %4s  %7s  %9s  %9s  %6s", "ranks", "mean", "most", "median", "most", "cards",
           "rounds");
    for (int p = 0; p < PHASES; p++)
        printf("  %9s  %6s  %6s", "(ms)", "msgs", "most");
    printf("\n");
    fflush(stdout);
}

static json_t *json_row(const row_t *r)
{
    static const char *const names[PHASES] = {"join", "exchange", "barrier"};
    json_t *json = json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "ranks", r->ranks, "starts",
                             r->starts, "rounds", r->rounds, "connections", r->connections,
                             "connections_most", r->most_connections, "state_bytes", r->bytes,
                             "state_bytes_most", r->most_bytes, "state_bytes_cards", r->most_card_bytes);
    for (int p = 0; p < PHASES; p++)
        perf_put(json, names[p],
                 json_pack("{s:f, s:f, s:f}", "ms", r->ms[p], "messages", r->messages[p], "messages_most",
                           r->most[p]));
    return json;
}

/* The starts differ in time alone: what is counted comes from the last one. */
static int mock_size(const init_options_t *o, int n, row_t *row)
{
    double ms[PHASES][1000]; /* --starts is at most that */
    for (int s = 0; s < o->starts; s++) {
        if (!mock_job(o, n, row))
            return 0;
        for (int p = 0; p < PHASES; p++)
            ms[p][s] = row->ms[p];
    }
    for (int p = 0; p < PHASES; p++)
        row->ms[p] = init_median(ms[p], o->starts);
    row->starts = o->starts;
    return 1;
}

int init_mock(const init_options_t *o)
{
    if (!have_descriptors(o->mock))
        return PERF_USAGE;
    json_t *results = json_array();
    print_columns(o->starts);
    for (int n = 2; n <= o->mock; n = n < o->mock && n * 2 > o->mock ? o->mock : n * 2) {
        row_t row;
        if (!mock_size(o, n, &row)) {
            json_decref(results);
            return PERF_ERROR;
        }
        print_row(&row);
        (void)json_array_append_new(results, json_row(&row));
    }
    return init_write(o, results);
}
