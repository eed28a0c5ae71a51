/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/recover/jobs.c: jobs for `gyre-perf recover`, of processes forked here: a launcher would
 * end a job that has lost a rank. */
#include "tools/gyre-perf/recover/recover.h"

#include <netinet/in.h>
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settings/settings.h"

typedef struct {
    _Atomic int through; /* ranks that are through all rounds of this job */
    _Atomic int done, left;
    _Atomic int failed; /* the first rank that met an error it could not recover from, plus 1 */
    char error[1024];   /* its text */
    recover_round_t records[];
} shared_t;

typedef struct {
    int fd;
    char secret[65], root[32];
} meeting_t;

static int meeting_open(meeting_t *m)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    unsigned char bytes[32];
    m->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (m->fd < 0 || bind(m->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(m->fd, RECOVER_RANKS) != 0 || getsockname(m->fd, (struct sockaddr *)&at, &length) != 0 ||
        sodium_init() < 0) {
        fprintf(stderr, "gyre-perf: recover: cannot listen: %s\n", strerror(errno));
        return 0;
    }
    snprintf(m->root, sizeof m->root, "127.0.0.1:%d", ntohs(at.sin_port));
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(m->secret, sizeof m->secret, bytes, sizeof bytes);
    return 1;
}

static void rank_main(const recover_options_t *o, const meeting_t *m, int rank, int first, int rounds,
                      shared_t *shared)
{
    char fd[16];
    int done = 0, none = 0;
    gyre_comm_t *comm = NULL;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    config.rank = rank;
    config.nranks = o->ranks;
    config.root = m->root;
    config.secret = m->secret;
    config.timeout_s = o->common.timeout_s;
    snprintf(fd, sizeof fd, "%d", m->fd);
    if (rank == 0)
        base_settings_set(SET_ROOT_FD, fd, "gyre-perf recover");
    else
        close(m->fd);
    gyre_status_t st = gyre_init(&config, &comm);
    recover_round_t *records = calloc((size_t)rounds, sizeof *records);
    if (st == GYRE_OK && records)
        st = recover_rounds(&comm, o, first, rounds, records, &done);
    if (st != GYRE_OK || !records) {
        if (atomic_compare_exchange_strong(&shared->failed, &none, rank + 1))
            snprintf(shared->error, sizeof shared->error, "%s", gyre_last_error());
        _exit(PERF_ERROR);
    }
    if (gyre_comm_rank(comm) == 0) {
        memcpy(shared->records, records, (size_t)done * sizeof *records);
        atomic_store(&shared->done, done);
        atomic_store(&shared->left, gyre_comm_size(comm));
    }
    st = gyre_finalize(comm);
    if (st == GYRE_OK)
        atomic_fetch_add(&shared->through, 1);
    _exit(st == GYRE_OK ? PERF_OK : PERF_ERROR);
}

/* One job; *done records more. A PERF_ code. */
static int job(const recover_options_t *o, int first, int rounds, recover_round_t *records, int *done)
{
    size_t bytes = sizeof(shared_t) + (size_t)rounds * sizeof *records;
    shared_t *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RECOVER_RANKS];
    meeting_t meeting;
    if (shared == MAP_FAILED || !meeting_open(&meeting))
        return PERF_ERROR;
    fflush(NULL);
    int started = 0, running = 0;
    for (; started < o->ranks; started++) {
        pids[started] = fork();
        if (pids[started] == 0)
            rank_main(o, &meeting, started, first, rounds, shared);
        if (pids[started] < 0)
            break;
        running++;
    }
    close(meeting.fd);
    /* Over when all survivors are through, or one has met an error; stopped and stuck ranks are not waited
     * for. */
    base_time_t deadline = base_deadline(600);
    while (running > 0 && started == o->ranks && base_poll_ms(deadline) != 0 &&
           !(atomic_load(&shared->left) > 0 && atomic_load(&shared->through) == atomic_load(&shared->left))) {
        if (atomic_load(&shared->failed) && deadline > base_deadline(3))
            deadline = base_deadline(2);
        for (int r = 0; r < started; r++)
            if (pids[r] > 0 && waitpid(pids[r], NULL, WNOHANG) == pids[r]) {
                pids[r] = 0;
                running--;
            }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    for (int r = 0; r < started; r++)
        if (pids[r] > 0) {
            kill(pids[r], SIGKILL);
            waitpid(pids[r], NULL, 0);
        }
    int code = PERF_OK;
    if (atomic_load(&shared->failed)) {
        fprintf(stderr, "gyre-perf: recover: rank %d: %s\n", atomic_load(&shared->failed) - 1, shared->error);
        code = PERF_ERROR;
    } else if (atomic_load(&shared->left) == 0 ||
               atomic_load(&shared->through) != atomic_load(&shared->left)) {
        fprintf(stderr,
                "gyre-perf: recover: %d of %d ranks got through: a job hangs, or could not be started\n",
                atomic_load(&shared->through), o->ranks);
        code = PERF_ERROR;
    } else {
        *done = atomic_load(&shared->done);
        memcpy(records, shared->records, (size_t)*done * sizeof *records);
    }
    munmap(shared, bytes);
    return code;
}

int recover_jobs(const recover_options_t *o, recover_round_t *records)
{
    int have = 0;
    while (have < o->rounds) {
        int done = 0;
        int code = job(o, have, o->rounds - have, records + have, &done);
        if (code != PERF_OK)
            return code;
        have += done;
    }
    return PERF_OK;
}
