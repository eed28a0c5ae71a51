/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/join.c: joining the job, as one of its first ranks or as a newcomer, and leaving it. */
#include "collectives/run/communicator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "base/thread/fence.h"
#include "collectives/api/comm.h"
#include "collectives/api/sized.h"
#include "collectives/choose/tune.h"
#include "collectives/gpu/gpu.h"
#include "comm/memory/cma.h"
#include "comm/memory/memory.h"

/* The process's place in the job. One at a time: gyre_init refuses a second. */
static struct {
    pthread_mutex_t lock;
    int joined;
    _Atomic pid_t pid; /* that joined: a child of fork has not */
    comm_world_t world;
    double timeout_s;
    int threaded;
    coll_tune_t tune; /* the same on all ranks of the job */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

const coll_tune_t *coll_process_tune(void)
{
    return &process.tune;
}

double coll_process_timeout(void)
{
    pthread_mutex_lock(&process.lock);
    const double seconds = process.joined ? process.timeout_s : base_setting_seconds(SET_TIMEOUT);
    pthread_mutex_unlock(&process.lock);
    return seconds;
}

typedef struct {
    comm_world_t *world;
    base_time_t deadline;
} joining_t;

static gyre_status_t exchange_by_bootstrap(void *user, const void *mine, size_t bytes, void *all)
{
    const joining_t *j = user;
    if (comm_boot_members(j->world->boot, NULL, NULL) == 1) {
        memcpy(all, mine, bytes);
        return GYRE_OK;
    }
    return comm_boot_all_gather(j->world->boot, mine, bytes, all, j->deadline);
}

/* Takes apart what world_join put together; any part may be missing. */
static void world_leave(comm_world_t *world, int graceful)
{
    if (world->watch) {
        comm_mem_attach(NULL);
        comm_mem_unmap_all();
        comm_watch_stop(world->watch);
        comm_cma_forbid();
    }
    if (world->boot)
        comm_boot_leave(world->boot, graceful);
    if (world->recorder)
        comm_recorder_close(world->recorder);
    *world = (comm_world_t){0};
}

/* exit() without gyre_finalize: the others hear that, rather than of a connection that closed. Children of
 * fork keep quiet. A destructor runs after the handlers of atexit and the destructors of C++ objects, which
 * may still call gyre_finalize; 101: after other destructors of the program. Another thread may be in
 * gyre_finalize now: its end is waited for, but not long, since exit may have been called in the middle of
 * it. */
__attribute__((destructor(101))) static void at_exit(void)
{
    struct timespec until;
    if (process.pid != getpid())
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    if (pthread_mutex_timedlock(&process.lock, &until) != 0)
        return;
    if (process.joined)
        comm_boot_ending(process.world.boot, "it ended (exit) without gyre_finalize");
    pthread_mutex_unlock(&process.lock);
}

static gyre_status_t world_join(comm_world_t *world, const comm_identity_t *who, base_time_t deadline)
{
    base_log_set_rank(who->size > 1 ? who->rank : -1);
    world->rank = who->rank;
    world->size = who->size;
    world->recorder = comm_recorder_open(who->job, who->rank, who->size);
    gyre_status_t st = comm_boot_join(who, deadline, &world->boot);
    if (st == GYRE_OK)
        comm_boot_record(world->boot, world->recorder);
    if (st == GYRE_OK)
        st = comm_watch_start(world->boot, &world->watch);
    if (st == GYRE_OK && who->size > 1)
        st = comm_boot_meet(world->boot, deadline);
    if (st == GYRE_OK)
        st = comm_mem_attach(world->watch);
    if (st == GYRE_OK)
        comm_cma_allow();
    if (st != GYRE_OK)
        world_leave(world, 0);
    return st;
}

/* The same for a newcomer to a running job. */
static gyre_status_t world_enter(comm_world_t *world, base_time_t deadline)
{
    comm_identity_t who;
    gyre_status_t st = comm_boot_newcomer(&who);
    if (st == GYRE_OK)
        st = comm_boot_dial_job(&who, deadline, &world->boot);
    if (st != GYRE_OK)
        return st;
    world->rank = comm_boot_rank(world->boot);
    world->size = comm_boot_size(world->boot);
    base_log_set_rank(world->rank);
    world->recorder = comm_recorder_open(who.job, world->rank, world->size);
    comm_boot_record(world->boot, world->recorder);
    st = comm_watch_start(world->boot, &world->watch);
    if (st == GYRE_OK)
        st = comm_boot_enter(world->boot, deadline);
    if (st == GYRE_OK)
        st = comm_mem_attach(world->watch);
    if (st == GYRE_OK)
        comm_cma_allow();
    if (st != GYRE_OK)
        world_leave(world, 0);
    return st;
}

gyre_status_t coll_world_retune(comm_world_t *world, base_time_t deadline)
{
    world->size = comm_boot_size(world->boot);
    return coll_tune_share(world->boot, GYRE_OK, &process.tune, deadline);
}

/* Rank 0 knows or measures, the others sleep meanwhile and get it from there. Alone there is nothing to
 * choose. */
static gyre_status_t world_tune(const comm_world_t *world, base_time_t deadline, coll_tune_t *tune)
{
    gyre_status_t st = GYRE_OK;
    coll_tune_builtin(tune);
    if (world->size == 1)
        return GYRE_OK;
    if (world->rank == 0)
        st = coll_tune_obtain(tune);
    return coll_tune_share(world->boot, st, tune, deadline);
}

gyre_status_t coll_world_make(comm_world_t *world, base_time_t deadline, gyre_comm_t **out)
{
    int place, n = comm_boot_members(world->boot, NULL, NULL);
    int *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", n);
    comm_boot_members(world->boot, ranks, &place); /* only this thread changes them */
    unsigned char key[32];                         /* strangers cannot guess the id that messages carry */
    uint64_t id, words[2];
    comm_boot_key(world->boot, "communicator", key);
    memcpy(&id, key, sizeof id);
    words[0] = id;
    words[1] = comm_boot_epoch(world->boot);
    if (words[1] > 0)
        id = base_hash64(words, sizeof words, 4);
    joining_t joining = {.world = world, .deadline = deadline};
    gyre_status_t st =
        coll_comm_make(world, id, ranks, n, place, exchange_by_bootstrap, &joining, deadline, out);
    free(ranks);
    if (st == GYRE_OK)
        (*out)->is_world = 1;
    return st;
}

static gyre_status_t init_locked(const gyre_config_t *config, gyre_comm_t **out)
{
    if (process.joined)
        return gyre_fail(GYRE_ERR_INVALID, process.pid == getpid()
                                               ? "gyre_init was called before; call gyre_finalize first"
                                               : "gyre_init: this process is a child of fork of one that is "
                                                 "in a job: it can only exec or exit");
    gyre_config_t c = GYRE_CONFIG_INITIALIZER;
    gyre_status_t st = GYRE_OK;
    if (config)
        st = coll_sized_read(&c, sizeof c, offsetof(gyre_config_t, init_timeout_s), config, "gyre_init");
    if (st == GYRE_OK && c.reserved != 0)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "gyre_init: config.reserved is %d; start from GYRE_CONFIG_INITIALIZER", c.reserved);
    if (st == GYRE_OK)
        st = base_settings_load();
    base_file_fill_standard();
    if (st != GYRE_OK)
        return st;
    const int newcomer = *base_setting_string(SET_JOIN) != '\0';
    comm_identity_t who = {0};
    st = newcomer ? GYRE_OK : comm_identity_find(config ? &c : NULL, &who);
    if (st != GYRE_OK)
        return st;
    process.timeout_s = c.timeout_s > 0 ? c.timeout_s : base_setting_seconds(SET_TIMEOUT);
    process.world.timeout_s = process.timeout_s;
    process.threaded =
        c.progress_thread >= 0 ? c.progress_thread : (int)base_setting_int(SET_PROGRESS_THREAD);
    base_time_t deadline =
        base_deadline(c.init_timeout_s > 0 ? c.init_timeout_s : base_setting_seconds(SET_INIT_TIMEOUT));
    /* Asked first while this process has one thread, as a rule: with more (the watcher's), the kernel waits
     * for all processors before it registers, 10 ms and more each time. */
    (void)base_fence_processes_ready();
    if (newcomer) {
        st = world_enter(&process.world, deadline);
    } else {
        base_log_set_rank(who.meet == COMM_MEET_KNOWN && who.size == 1 ? -1 : who.rank);
        st = comm_identity_meet(&who, deadline);
        if (st == GYRE_OK)
            st = world_join(&process.world, &who, deadline);
    }
    if (st != GYRE_OK) {
        comm_identity_leave();
        return st;
    }
    gyre_comm_t *comm;
    st = newcomer ? coll_world_retune(&process.world, deadline)
                  : world_tune(&process.world, deadline, &process.tune);
    if (st == GYRE_OK)
        st = coll_world_make(&process.world, deadline, &comm);
    if (st == GYRE_OK) {
        st = coll_fault_arm(comm);
        if (st != GYRE_OK)
            coll_comm_free(comm);
    }
    if (st == GYRE_OK && process.threaded) {
        st = coll_progress_thread_start();
        if (st != GYRE_OK)
            coll_comm_free(comm);
    }
    if (st != GYRE_OK) {
        world_leave(&process.world, 0);
        comm_identity_leave();
        return st;
    }
    comm->options = coll_options_default();
    process.joined = 1;
    process.pid = getpid();
    *out = comm;
    return GYRE_OK;
}

gyre_status_t gyre_init(const gyre_config_t *config, gyre_comm_t **world)
{
    if (!world)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_init: world is NULL");
    pthread_mutex_lock(&process.lock);
    gyre_status_t st = init_locked(config, world);
    pthread_mutex_unlock(&process.lock);
    return st;
}

gyre_status_t gyre_finalize(gyre_comm_t *world)
{
    if (!world)
        return GYRE_OK;
    gyre_status_t st = coll_check_live("gyre_finalize", world);
    if (st == GYRE_OK && !world->is_world)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "gyre_finalize takes the communicator of gyre_init; others are destroyed "
                       "with gyre_comm_destroy");
    gyre_comm_t *comm;
    for (int i = 0; st == GYRE_OK && (comm = coll_handle_find(&process.world, i)); i++)
        st = coll_check_unused("gyre_finalize", comm);
    if (st != GYRE_OK)
        return st;
    /* before all meet: after that the peers' memory may go */
    for (int i = 0; (comm = coll_handle_find(&process.world, i)); i++)
        coll_cuda_end(comm);
    if (gyre_comm_error(world) == GYRE_OK && world->n > 1)
        st = coll_inside_barrier(world, COLL_INSIDE_FINALIZE);
    int graceful = gyre_comm_error(world) == GYRE_OK;
    pthread_mutex_lock(&process.lock);
    if (process.threaded)
        coll_progress_thread_stop();
    /* The oldest first, which ends those that it keeps for itself. */
    while ((comm = coll_handle_find(&process.world, 0)))
        coll_comm_end(comm, "gyre_finalize has ended this communicator");
    coll_cuda_leave(graceful);
    world_leave(&process.world, graceful);
    comm_identity_leave();
    process.joined = 0;
    pthread_mutex_unlock(&process.lock);
    base_log_set_rank(-1);
    return st;
}
