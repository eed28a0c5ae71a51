/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/world.c: see world.h. What all worlds of a process share: the memory that peers map, which
 * is offered in each of them; the progress thread; what the first one has of the log and of the launcher's
 * flight recorder. */
#include "collectives/api/world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "base/thread/fence.h"
#include "collectives/api/comm.h"
#include "collectives/choose/tune.h"
#include "collectives/gpu/gpu.h"
#include "comm/memory/cma.h"
#include "comm/memory/memory.h"

static struct {
    pthread_mutex_t lock;
    coll_world_t *list;
    const coll_world_t *named; /* whose rank the log says */
    int shared;                /* memory is offered to peers, and theirs is mapped */
    /* The process that is in jobs; 0: none is. A child of fork has its parent's. Read without the lock, which
     * another thread may have held at the fork, or at exit(). */
    _Atomic pid_t pid;
    int left_badly;   /* one was left after an error: peers may still write to its memory on devices */
    coll_tune_t tune; /* of gyre_init's, kept for communicators that are in no job */
} worlds = {.lock = PTHREAD_MUTEX_INITIALIZER};

static coll_world_t *of(comm_world_t *world)
{
    return (coll_world_t *)(void *)world;
}

coll_world_t *coll_world_new(int by_launcher, double timeout_s, int progress_thread,
                             const coll_asked_t *asked)
{
    coll_world_t *world = calloc(1, sizeof *world);
    if (!world) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a job");
        return NULL;
    }
    world->by_launcher = by_launcher;
    world->asked = *asked;
    world->comm.timeout_s = timeout_s > 0 ? timeout_s : base_setting_seconds(SET_TIMEOUT);
    world->threaded = progress_thread >= 0 ? progress_thread : (int)base_setting_int(SET_PROGRESS_THREAD);
    /* Asked first while this process has one thread, as a rule: with more (the watcher's), the kernel waits
     * for all processors before it registers, 10 ms and more each time. */
    (void)base_fence_processes_ready();
    pthread_mutex_lock(&worlds.lock);
    world->next = worlds.list;
    worlds.list = world;
    atomic_store(&worlds.pid, getpid());
    pthread_mutex_unlock(&worlds.lock);
    return world;
}

static coll_world_t *find_launcher(void)
{
    coll_world_t *world = worlds.list;
    while (world && !world->by_launcher)
        world = world->next;
    return world;
}

coll_world_t *coll_world_of_launcher(void)
{
    pthread_mutex_lock(&worlds.lock);
    coll_world_t *world = find_launcher();
    pthread_mutex_unlock(&worlds.lock);
    return world;
}

/* The last of the worlds takes along what they shared. */
void coll_world_drop(coll_world_t *world)
{
    pthread_mutex_lock(&worlds.lock);
    coll_world_t **at = &worlds.list;
    while (*at != world)
        at = &(*at)->next;
    *at = world->next;
    if (worlds.named == world) {
        base_log_set_rank(-1);
        worlds.named = NULL;
    }
    if (!worlds.list)
        atomic_store(&worlds.pid, 0);
    if (!worlds.list && worlds.shared) {
        comm_mem_unmap_all();
        comm_cma_forbid();
        coll_cuda_leave(!worlds.left_badly);
        worlds.shared = 0;
    }
    pthread_mutex_unlock(&worlds.lock);
    free(world);
}

const coll_tune_t *coll_process_tune(void)
{
    return &worlds.tune;
}

const coll_tune_t *coll_world_tune(comm_world_t *world)
{
    return &of(world)->tune;
}

int coll_world_launched(const comm_world_t *world)
{
    return ((const coll_world_t *)(const void *)world)->by_launcher;
}

double coll_process_timeout(void)
{
    pthread_mutex_lock(&worlds.lock);
    const coll_world_t *world = find_launcher();
    const double seconds =
        world && world->state == COLL_WORLD_READY ? world->comm.timeout_s : base_setting_seconds(SET_TIMEOUT);
    pthread_mutex_unlock(&worlds.lock);
    return seconds;
}

gyre_status_t coll_world_refuse_child(const char *call)
{
    const pid_t pid = atomic_load(&worlds.pid);
    if (pid == 0 || pid == getpid())
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s: this process is a child of fork of one that is in a job: it can only exec or exit",
                     call);
}

void coll_world_name(const coll_world_t *world, int rank)
{
    pthread_mutex_lock(&worlds.lock);
    if (!worlds.named || worlds.named == world) {
        worlds.named = world;
        base_log_set_rank(rank);
    }
    pthread_mutex_unlock(&worlds.lock);
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
        comm_mem_detach(world->watch);
        comm_watch_stop(world->watch);
    }
    if (world->boot)
        comm_boot_leave(world->boot, graceful);
    comm_backing_close(atomic_load(&world->backing));
    if (world->recorder)
        comm_recorder_close(world->recorder);
}

/* Peers may reach this process's memory from here on. */
static gyre_status_t share_memory(comm_world_t *world)
{
    gyre_status_t st = comm_mem_attach(world->watch);
    if (st != GYRE_OK)
        return st;
    pthread_mutex_lock(&worlds.lock);
    worlds.shared = 1;
    comm_cma_allow();
    pthread_mutex_unlock(&worlds.lock);
    return GYRE_OK;
}

/* exit() without gyre_finalize: the others hear that, rather than of a connection that closed. Children of
 * fork keep quiet. A destructor runs after the handlers of atexit and the destructors of C++ objects, which
 * may still call gyre_finalize; 101: after other destructors of the program. Another thread may be in
 * gyre_finalize now: its end is waited for, but not long, since exit may have been called in the middle of
 * it. */
__attribute__((destructor(101))) static void at_exit(void)
{
    static const struct timespec moment = {.tv_nsec = 5000000};
    int leaving = 1;
    if (atomic_load(&worlds.pid) != getpid())
        return;
    for (int patience = 200; leaving && patience > 0; patience--) {
        if (pthread_mutex_trylock(&worlds.lock) == 0) {
            leaving = 0;
            for (const coll_world_t *world = worlds.list; world; world = world->next)
                leaving |= world->state == COLL_WORLD_LEAVING;
            if (!leaving)
                break; /* and keep the lock */
            pthread_mutex_unlock(&worlds.lock);
        }
        nanosleep(&moment, NULL);
    }
    for (coll_world_t *world = worlds.list; world && !leaving; world = world->next)
        if (world->state == COLL_WORLD_READY)
            comm_boot_ending(world->comm.boot, "it ended (exit) without gyre_finalize");
    if (!leaving)
        pthread_mutex_unlock(&worlds.lock);
}

static gyre_status_t world_join(coll_world_t *of_job, const comm_identity_t *who, base_time_t deadline)
{
    comm_world_t *world = &of_job->comm;
    coll_world_name(of_job, who->size > 1 ? who->rank : -1);
    world->rank = who->rank;
    world->size = who->size;
    comm_identity_job(who, world->job);
    world->recorder = comm_recorder_open(world->job, who->rank, who->size);
    gyre_status_t st = comm_boot_join(who, deadline, &world->boot);
    if (st == GYRE_OK)
        comm_boot_record(world->boot, world->recorder);
    if (st == GYRE_OK)
        st = comm_watch_start(world->boot, &world->watch);
    if (st == GYRE_OK && who->size > 1)
        st = comm_boot_meet(world->boot, deadline);
    if (st == GYRE_OK)
        st = share_memory(world);
    return st;
}

/* The same for a newcomer to a running job. */
static gyre_status_t world_enter(coll_world_t *of_job, base_time_t deadline)
{
    comm_world_t *world = &of_job->comm;
    comm_identity_t who;
    gyre_status_t st = comm_boot_newcomer(&who);
    if (st == GYRE_OK)
        st = comm_boot_dial_job(&who, deadline, &world->boot);
    if (st != GYRE_OK)
        return st;
    world->rank = comm_boot_rank(world->boot);
    world->size = comm_boot_size(world->boot);
    coll_world_name(of_job, world->rank);
    comm_identity_job(&who, world->job);
    world->recorder = comm_recorder_open(world->job, world->rank, world->size);
    comm_boot_record(world->boot, world->recorder);
    st = comm_watch_start(world->boot, &world->watch);
    if (st == GYRE_OK)
        st = comm_boot_enter(world->boot, deadline);
    if (st == GYRE_OK)
        st = share_memory(world);
    return st;
}

gyre_status_t coll_world_retune(comm_world_t *world, base_time_t deadline)
{
    world->size = comm_boot_size(world->boot);
    return coll_tune_share(world->boot, GYRE_OK, &of(world)->tune, deadline);
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

/* Of an attempt that failed nothing is left but its error, also for the launcher. */
static void give_back(coll_world_t *world)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", gyre_last_error());
    if (world->comm.recorder)
        comm_recorder_fail_join(world->comm.recorder, text);
    world_leave(&world->comm, 0);
    coll_world_drop(world);
    gyre_fail_quiet(GYRE_ERR_BOOTSTRAP, "%s", text);
}

/* A newcomer cannot ask the others, who are in gyre_comm_grow and have theirs. */
static gyre_status_t gather_nobody(void *comm, const void *mine, size_t bytes, void *all)
{
    for (int r = 0; r < ((const gyre_comm_t *)comm)->n; r++)
        memcpy((char *)all + (size_t)r * bytes, mine, bytes);
    return GYRE_OK;
}

/* The ranks are connected. */
static gyre_status_t make_comm(coll_world_t *world, int newcomer, gyre_status_t st, base_time_t deadline,
                               gyre_comm_t **out)
{
    gyre_comm_t *comm = NULL;
    joining_t joining = {.world = &world->comm, .deadline = deadline};
    if (st == GYRE_OK)
        st = coll_world_make(&world->comm, deadline, &comm);
    if (st == GYRE_OK)
        st = coll_options_agree("options of a job", &world->asked, comm,
                                newcomer ? gather_nobody : exchange_by_bootstrap,
                                newcomer ? (void *)comm : &joining);
    if (st == GYRE_OK)
        st = coll_fault_arm(comm);
    if (st == GYRE_OK && world->threaded)
        st = coll_progress_thread_start();
    if (st != GYRE_OK) {
        if (comm)
            coll_comm_free(comm);
        give_back(world);
        return st;
    }
    pthread_mutex_lock(&worlds.lock);
    if (world->by_launcher)
        worlds.tune = world->tune;
    world->state = COLL_WORLD_READY;
    pthread_mutex_unlock(&worlds.lock);
    *out = comm;
    return GYRE_OK;
}

gyre_status_t coll_world_begin(coll_world_t *world, const comm_identity_t *who, base_time_t deadline,
                               gyre_comm_t **out)
{
    gyre_status_t st = world_join(world, who, deadline);
    if (st == GYRE_OK)
        st = world_tune(&world->comm, deadline, &world->tune);
    return make_comm(world, 0, st, deadline, out);
}

gyre_status_t coll_world_enter(coll_world_t *world, base_time_t deadline, gyre_comm_t **out)
{
    gyre_status_t st = world_enter(world, deadline);
    if (st == GYRE_OK)
        st = coll_world_retune(&world->comm, deadline);
    return make_comm(world, 1, st, deadline, out);
}

gyre_status_t gyre_finalize(gyre_comm_t *comm)
{
    if (!comm)
        return GYRE_OK;
    gyre_status_t st = coll_check_live("gyre_finalize", comm);
    if (st == GYRE_OK && !comm->is_world)
        st = gyre_fail(
            GYRE_ERR_INVALID,
            "gyre_finalize takes the job's communicator: that of gyre_init or gyre_comm_create, or the "
            "newest of gyre_comm_shrink and gyre_comm_grow; others are destroyed with gyre_comm_destroy");
    coll_world_t *world = st == GYRE_OK ? of(comm->world) : NULL;
    gyre_comm_t *each;
    for (int i = 0; st == GYRE_OK && (each = coll_handle_find(&world->comm, i)); i++)
        st = each->is_part ? GYRE_OK : coll_check_unused("gyre_finalize", each);
    if (st != GYRE_OK)
        return st;
    /* before all meet: after that the peers' memory may go */
    for (int i = 0; (each = coll_handle_find(&world->comm, i)); i++)
        coll_cuda_end(each);
    if (gyre_comm_error(comm) == GYRE_OK && comm->n > 1)
        st = coll_inside_barrier(comm, COLL_INSIDE_FINALIZE);
    int graceful = gyre_comm_error(comm) == GYRE_OK;
    pthread_mutex_lock(&worlds.lock);
    world->state = COLL_WORLD_LEAVING;
    worlds.left_badly |= !graceful;
    pthread_mutex_unlock(&worlds.lock);
    if (world->threaded)
        coll_progress_thread_stop();
    /* The oldest first, which ends those that it keeps for itself. */
    while ((each = coll_handle_find(&world->comm, 0)))
        coll_comm_end(each, "gyre_finalize has ended this communicator");
    world_leave(&world->comm, graceful);
    if (world->by_launcher)
        comm_identity_leave();
    coll_world_drop(world);
    return st;
}
