/* collectives/api/comm.c: communicators: joining the job, splitting, leaving, statistics. */
#include "collectives/run/communicator.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread/fence.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/run/bounce.h"
#include "collectives/gpu/gpu.h"
#include "collectives/schedules/algorithms.h"
#include "collectives/choose/tune.h"
#include "comm/memory/memory.h"

/* The process's place in the job. One at a time: gyre_init refuses a second. */
static struct {
    pthread_mutex_t lock;
    int joined;
    pid_t pid; /* that joined: a child of fork has not */
    int exits; /* at_exit is registered */
    comm_world_t world;
    double timeout_s;
    int threaded;
    coll_tune_t tune; /* the same on all ranks of the job */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

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

/* The members of a split exchange over the parent. Its other ranks, who may need more exchanges, fewer or none, take part in each
 * round all the same, so that a split is nothing but collectives of the parent. */
typedef struct {
    gyre_comm_t *parent;
    const int *members; /* [n] parent ranks */
    int n;
} subset_t;

typedef struct {
    uint64_t bytes; /* that this rank wants to exchange in this round */
    int32_t needs;  /* 0: it has all it needs and only helps the others */
    int32_t failed;
} split_round_t;

/* One round. *busy: somebody still needed one; *failed: the lowest member that has given up, or -1. */
static gyre_status_t split_round(const subset_t *s, const split_round_t *ask, const void *mine, void *all,
                                 int *busy, int *failed)
{
    size_t n = (size_t)s->parent->n, most = 0;
    split_round_t *asks = malloc(n * sizeof *asks);
    char *everything = NULL, *padded = NULL;
    gyre_status_t st = asks ? gyre_all_gather(ask, asks, sizeof *ask, GYRE_UINT8, s->parent)
                            : gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_comm_split: no memory for %zu ranks", n);
    *busy = 0;
    *failed = -1;
    for (size_t r = 0; st == GYRE_OK && r < n; r++) {
        *busy |= asks[r].needs;
        most = asks[r].needs && asks[r].bytes > most ? asks[r].bytes : most;
    }
    for (int i = s->n; st == GYRE_OK && i-- > 0;)
        *failed = asks[s->members[i]].failed ? i : *failed;
    if (st == GYRE_OK && most) {
        everything = malloc(n * most);
        padded = calloc(1, most);
        if (!everything || !padded)
            st = gyre_fail(GYRE_ERR_NO_MEMORY,
                           "gyre_comm_split: no memory to exchange %zu bytes with %zu ranks", most, n);
    }
    if (st == GYRE_OK && most) {
        if (ask->needs)
            memcpy(padded, mine, ask->bytes);
        st = gyre_all_gather(padded, everything, most, GYRE_UINT8, s->parent);
    }
    for (int i = 0; st == GYRE_OK && ask->needs && i < s->n; i++)
        memcpy((char *)all + (size_t)i * ask->bytes, everything + (size_t)s->members[i] * most, ask->bytes);
    free(padded);
    free(everything);
    free(asks);
    return st;
}

static gyre_status_t exchange_by_parent(void *user, const void *mine, size_t bytes, void *all)
{
    const subset_t *s = user;
    split_round_t ask = {.bytes = bytes, .needs = 1};
    int busy, failed;
    gyre_status_t st = split_round(s, &ask, mine, all, &busy, &failed);
    if (st == GYRE_OK && failed >= 0)
        st = gyre_fail(GYRE_ERR_ABORTED, "gyre_comm_split: rank %d of the new communicator could not go on",
                       failed);
    return st;
}

/* Helps the others until nobody needs a round any more; all ranks of the new communicator then agree on whether it was made. */
static gyre_status_t split_finish(const subset_t *s, gyre_status_t mine)
{
    split_round_t ask = {.failed = mine != GYRE_OK};
    int busy, failed;
    gyre_status_t st;
    do
        st = split_round(s, &ask, NULL, NULL, &busy, &failed);
    while (st == GYRE_OK && busy);
    if (mine != GYRE_OK)
        return mine;
    if (st == GYRE_OK && failed >= 0)
        st = gyre_fail(GYRE_ERR_ABORTED, "gyre_comm_split: rank %d could not make the new communicator",
                       failed);
    return st;
}

static int size_of_part(const int *part_of, int n, int part)
{
    int size = 0;
    for (int r = 0; r < n; r++)
        size += part_of[r] == part;
    return size;
}

/* What hierarchical works on: hosts, or one host's cells if there are several and in each at least two ranks. */
static void find_parts(gyre_comm_t *comm)
{
    int cells, least = comm->n;
    const int *cell_of = comm_group_cells(comm->group, &cells);
    for (int c = 0; c < cells && least > 1; c++) {
        const int size = size_of_part(cell_of, comm->n, c);
        least = size < least ? size : least;
    }
    const int use_cells = comm->hosts == 1 && cells > 1 && least > 1;
    comm->part_of = use_cells ? cell_of : comm->host_of;
    comm->parts = use_cells ? cells : comm->hosts;
    comm->even_parts = 1;
    for (int p = 0; p < comm->parts && comm->even_parts; p++)
        comm->even_parts = size_of_part(comm->part_of, comm->n, p) * comm->parts == comm->n;
    comm->part_places = coll_places_by_parts(comm->part_of, comm->n, comm->parts);
}

/* No deadline, or one beyond a century: so far off that nothing adds up to an overflow. */
static void set_timeout(gyre_comm_t *comm, double seconds)
{
    comm->timeout_s = seconds;
    comm->timeout_ns = seconds > 0 && seconds < 3e9 ? (base_time_t)(seconds * 1e9) : BASE_TIME_NEVER / 4;
}

static gyre_status_t comm_make(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                               comm_all_gather_fn exchange, void *user, base_time_t deadline,
                               gyre_comm_t **out)
{
    const base_time_t start = base_now();
    gyre_comm_t *comm = calloc(1, sizeof *comm);
    if (!comm)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator");
    gyre_status_t st =
        comm_group_create(world, id, world_ranks, n, rank, exchange, user, deadline, &comm->group);
    if (st != GYRE_OK) {
        free(comm);
        return st;
    }
    comm->world_ranks = malloc((size_t)n * sizeof *comm->world_ranks);
    if (!comm->world_ranks) {
        comm_group_destroy(comm->group);
        free(comm);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", n);
    }
    memcpy(comm->world_ranks, world_ranks, (size_t)n * sizeof *comm->world_ranks);
    comm->world = world;
    comm->rank = rank;
    comm->n = n;
    comm->id = id;
    comm->tune = &process.tune;
    comm->troubles = comm_watch_trouble(world->watch);
    set_timeout(comm, process.timeout_s);
    comm->host_of = comm_group_hosts(comm->group, &comm->hosts);
    for (int r = 0; r < n; r++)
        if (comm->host_of[r] == comm->host_of[rank]) {
            comm->local_rank += r < rank;
            comm->local_size++;
        }
    find_parts(comm);
    comm->made_in = base_now() - start;
    *out = comm;
    return GYRE_OK;
}

gyre_status_t coll_comm_make_member(coll_team_t *team, int rank, gyre_comm_t **out)
{
    static _Atomic uint64_t made;
    gyre_comm_t *comm = calloc(1, sizeof *comm);
    int *ranks = malloc((size_t)team->n * sizeof *ranks);
    if (!comm || !ranks) {
        free(comm);
        free(ranks);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", team->n);
    }
    for (int r = 0; r < team->n; r++)
        ranks[r] = r;
    comm->team = team;
    comm->world = &team->rank[rank].world;
    comm->world_ranks = ranks;
    comm->troubles = &team->trouble;
    comm->rank = comm->local_rank = rank;
    comm->n = comm->local_size = team->n;
    comm->hosts = comm->parts = comm->even_parts = 1;
    comm->host_of = comm->part_of = team->host_of;
    comm->id = atomic_fetch_add(&made, 1) + 1;
    comm->tune = &process.tune;
    comm->fast_order = base_setting_string(SET_ORDER)[0] == 'f';
    pthread_mutex_lock(&process.lock);
    set_timeout(comm, process.joined ? process.timeout_s : base_setting_seconds(SET_TIMEOUT));
    pthread_mutex_unlock(&process.lock);
    atomic_fetch_add(&team->users, 1);
    *out = comm;
    return GYRE_OK;
}

void coll_comm_free(gyre_comm_t *comm)
{
    coll_registry_remove(comm);
    coll_drive(comm); /* whoever took it from the registry is done with it now; nobody finds it any more */
    coll_stop_driving(comm);
    coll_cuda_free(comm); /* its guard and its proxy drive, too, until they have gone */
    coll_drive(comm);
    for (gyre_request_t *r = comm->free_requests, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    coll_plan_cache_free(&comm->plans);
    coll_bounce_free_all(comm);
    /* Before the watcher forgets, so that the group is known to have failed; before the scratch memory goes, in which messages may
     * be under way after an error. */
    if (comm->group)
        comm_group_destroy(comm->group);
    if (comm->scratch.base)
        comm_mem_free(comm->scratch.base);
    if (comm->world->watch)
        comm_watch_forget(comm->world->watch, comm->id);
    if (comm->team)
        coll_team_leave(comm->team, comm->rank);
    free(comm->world_ranks);
    free(comm->own_count);
    free(comm->p2p);
    free(comm);
}

/* Takes apart what world_join put together; any part may be missing. */
static void world_leave(comm_world_t *world, int graceful)
{
    if (world->watch) {
        comm_mem_attach(NULL);
        comm_mem_unmap_all();
        comm_watch_stop(world->watch);
    }
    if (world->boot)
        comm_boot_leave(world->boot, graceful);
    if (world->recorder)
        comm_recorder_close(world->recorder);
    *world = (comm_world_t){0};
}

/* exit() without gyre_finalize: the others hear that, rather than of a connection that closed. Children of fork keep quiet. */
static void at_exit(void)
{
    if (process.joined && process.pid == getpid())
        comm_boot_ending(process.world.boot, "it ended (exit) without gyre_finalize");
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
        st = comm_boot_knock(&who, deadline, &world->boot);
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
    if (st != GYRE_OK)
        world_leave(world, 0);
    return st;
}

gyre_status_t coll_world_retune(comm_world_t *world, base_time_t deadline)
{
    world->size = comm_boot_size(world->boot);
    return coll_tune_share(world->boot, GYRE_OK, &process.tune, deadline);
}

/* Rank 0 knows or measures, the others sleep meanwhile and get it from there. Alone there is nothing to choose. */
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
    gyre_status_t st = comm_make(world, id, ranks, n, place, exchange_by_bootstrap, &joining, deadline, out);
    free(ranks);
    if (st == GYRE_OK)
        (*out)->is_world = 1;
    return st;
}

static gyre_status_t init_locked(const gyre_config_t *config, gyre_comm_t **out)
{
    if (process.joined)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_init was called before; call gyre_finalize first");
    gyre_config_t c = GYRE_CONFIG_INITIALIZER;
    gyre_status_t st = GYRE_OK;
    if (config)
        st = coll_sized_read(&c, sizeof c, offsetof(gyre_config_t, init_timeout_s), config, "gyre_init");
    if (st == GYRE_OK && c.reserved != 0)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "gyre_init: config.reserved is %d; start from GYRE_CONFIG_INITIALIZER", c.reserved);
    if (st == GYRE_OK)
        st = base_settings_load();
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
    /* Asked first while this process has one thread, as a rule: with more (the watcher's), the kernel waits for all
     * processors before it registers, 10 ms and more each time. */
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
    comm->fast_order = base_setting_string(SET_ORDER)[0] == 'f';
    process.joined = 1;
    process.pid = getpid();
    if (!process.exits) /* once: handlers cannot be taken back */
        process.exits = atexit(at_exit) == 0;
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

/* Requests point into their communicator: it goes last. */
gyre_status_t coll_check_unused(const char *name, gyre_comm_t *comm)
{
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "%s cannot be part of a group: call gyre_group_end first", name);
    coll_drive(comm);
    uint32_t open = comm->open;
    coll_stop_driving(comm);
    if (open)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s: %u requests of the communicator were not waited for (gyre_wait; gyre_comm_abort ends "
            "what cannot finish)",
            name, open);
    return GYRE_OK;
}

gyre_status_t gyre_finalize(gyre_comm_t *world)
{
    if (!world)
        return GYRE_OK;
    if (!world->is_world)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_finalize takes the communicator of gyre_init; others are destroyed "
                         "with gyre_comm_destroy");
    gyre_status_t st = coll_check_unused("gyre_finalize", world);
    if (st != GYRE_OK)
        return st;
    coll_cuda_end(world); /* before all meet: behind that the peers' memory may go */
    if (gyre_comm_error(world) == GYRE_OK && world->n > 1)
        st = gyre_barrier(world);
    int graceful = gyre_comm_error(world) == GYRE_OK;
    pthread_mutex_lock(&process.lock);
    if (process.threaded)
        coll_progress_thread_stop();
    coll_comm_free(world);
    coll_cuda_leave(graceful);
    world_leave(&process.world, graceful);
    comm_identity_leave();
    process.joined = 0;
    pthread_mutex_unlock(&process.lock);
    base_log_set_rank(-1);
    return st;
}

typedef struct {
    int32_t color, key;
} split_ask_t;

/* Fills members (parent ranks of `color`, by key then rank); -> how many, *mine: this rank's place. */
static int split_members(const split_ask_t *asks, int n, int rank, int *members, int *mine)
{
    int count = 0;
    for (int r = 0; r < n; r++) {
        if (asks[r].color != asks[rank].color)
            continue;
        int at = count++;
        while (at > 0 && asks[members[at - 1]].key > asks[r].key) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
    }
    for (int i = 0; i < count; i++)
        if (members[i] == rank)
            *mine = i;
    return count;
}

static gyre_status_t split_make(gyre_comm_t *comm, const split_ask_t *asks, int *members, int *world_ranks,
                                gyre_comm_t **out)
{
    split_ask_t mine = asks[comm->rank];
    int rank = 0;
    subset_t subset = {.parent = comm, .members = members};
    if (mine.color < 0)
        return split_finish(&subset, GYRE_OK);
    int n = split_members(asks, comm->n, comm->rank, members, &rank);
    for (int i = 0; i < n; i++)
        world_ranks[i] = comm_group_world_rank(comm->group, members[i]);
    uint64_t words[3] = {comm->id, comm->splits, (uint64_t)(uint32_t)mine.color};
    uint64_t id = base_hash64(words, sizeof words, 3);
    base_time_t deadline = base_deadline(comm->timeout_s);
    gyre_comm_t *made = NULL;
    subset.n = n;
    gyre_status_t st =
        comm_make(comm->world, id, world_ranks, n, rank, exchange_by_parent, &subset, deadline, &made);
    if (st == GYRE_OK)
        made->fast_order = comm->fast_order;
    gyre_status_t agreed = split_finish(&subset, st);
    if (agreed != GYRE_OK && st == GYRE_OK)
        coll_comm_free(made);
    if (agreed == GYRE_OK)
        *out = made;
    return agreed;
}

gyre_status_t gyre_comm_split(gyre_comm_t *comm, int color, int key, gyre_comm_t **out)
{
    if (!comm || !out)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_split: %s is NULL", comm ? "out" : "comm");
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_split cannot be part of a group");
    if (comm->team)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "gyre_comm_split: the communicator's ranks are all in this process: make another of some "
            "of their devices with gyre_cuda_comms_create");
    size_t n = (size_t)comm->n;
    split_ask_t *asks = malloc(n * sizeof *asks);
    int *members = malloc(n * sizeof *members), *world_ranks = malloc(n * sizeof *world_ranks);
    gyre_status_t st = GYRE_OK;
    if (!asks || !members || !world_ranks)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_comm_split: no memory for %d ranks", comm->n);
    split_ask_t mine = {.color = color < 0 ? -1 : color, .key = key};
    if (st == GYRE_OK)
        st = gyre_all_gather(&mine, asks, sizeof mine, GYRE_UINT8, comm);
    comm->splits++;
    gyre_comm_t *made = NULL;
    if (st == GYRE_OK)
        st = split_make(comm, asks, members, world_ranks, &made);
    free(asks);
    free(members);
    free(world_ranks);
    if (st == GYRE_OK)
        *out = made;
    return st;
}

gyre_status_t gyre_comm_destroy(gyre_comm_t *comm)
{
    if (!comm)
        return GYRE_OK;
    if (comm->is_world)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_comm_destroy: this is the job's communicator; call gyre_finalize");
    gyre_status_t st = coll_check_unused("gyre_comm_destroy", comm);
    if (st == GYRE_OK)
        coll_comm_free(comm);
    return st;
}

void coll_comm_abort(gyre_comm_t *comm, const char *text)
{
    if (atomic_load(&comm->error) == GYRE_OK) { /* whoever changes it drives */
        snprintf(comm->error_text, sizeof comm->error_text, "%s", text);
        char told[600];
        snprintf(told, sizeof told, "rank %d: %s", comm->rank, text);
        coll_comm_tell(comm, GYRE_ERR_ABORTED, comm->team ? told : text); /* the watcher says who it was */
        atomic_store(&comm->error,
                     GYRE_ERR_ABORTED); /* last: another thread that sees it may end the process */
    }
    if (coll_comm_idle(comm))
        coll_cuda_stop(comm); /* of what is on streams nobody may wait */
    else
        coll_comm_fail(comm, comm->head ? comm->head : comm->p2p_head, GYRE_ERR_ABORTED, text);
}

gyre_status_t gyre_comm_abort(gyre_comm_t *comm, const char *reason)
{
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_abort: comm is NULL");
    char text[512];
    snprintf(text, sizeof text, "aborted: %s", reason ? reason : "no reason given");
    coll_drive(comm);
    coll_comm_abort(comm, text);
    coll_stop_driving(comm);
    return GYRE_OK;
}

/* Plans were made for other choices. The caller is driving; INVALID while operations are under way. */
static gyre_status_t forget_choices(gyre_comm_t *comm)
{
    if (!coll_comm_idle(comm) || comm->open)
        return GYRE_ERR_INVALID;
    uint64_t built = comm->plans.built;
    coll_plan_cache_free(&comm->plans);
    comm->plans.built = built;
    return GYRE_OK;
}

gyre_status_t coll_comm_set_order(gyre_comm_t *comm, int fast)
{
    coll_drive(comm);
    gyre_status_t st = comm->fast_order != fast ? forget_choices(comm) : GYRE_OK;
    if (st == GYRE_OK)
        comm->fast_order = fast;
    coll_stop_driving(comm);
    return st == GYRE_OK
               ? st
               : gyre_fail(st, "the order of reductions cannot change while operations are under way");
}

gyre_status_t coll_comm_pin(gyre_comm_t *comm, const coll_tune_line_t *line)
{
    coll_drive(comm);
    gyre_status_t st = forget_choices(comm);
    if (st == GYRE_OK)
        comm->pin = line ? *line : (coll_tune_line_t){0};
    coll_stop_driving(comm);
    return st == GYRE_OK
               ? st
               : gyre_fail(st, "the choice of algorithms cannot change while operations are under way");
}

gyre_status_t gyre_comm_error(const gyre_comm_t *comm)
{
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_error: comm is NULL");
    return (gyre_status_t)atomic_load_explicit(&comm->error, memory_order_acquire);
}

int gyre_comm_rank(const gyre_comm_t *comm)
{
    return comm ? comm->rank : -1;
}

int gyre_comm_size(const gyre_comm_t *comm)
{
    return comm ? comm->n : -1;
}

int gyre_comm_local_rank(const gyre_comm_t *comm)
{
    return comm ? comm->local_rank : -1;
}

int gyre_comm_local_size(const gyre_comm_t *comm)
{
    return comm ? comm->local_size : -1;
}

gyre_status_t gyre_comm_stats(const gyre_comm_t *comm, gyre_comm_stats_t *stats)
{
    if (!comm || !stats)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_stats: %s is NULL", comm ? "stats" : "comm");
    gyre_comm_t *driven =
        (gyre_comm_t *)(uintptr_t)comm; /* reading takes a turn, too: the counters belong to the driver */
    comm_group_stats_t g = {0};
    coll_drive(driven);
    if (comm->group)
        comm_group_stats(comm->group, &g);
    gyre_comm_stats_t s = {.operations = comm->operations,
                           .bytes_sent = comm->traffic.bytes_sent,
                           .bytes_received = comm->traffic.bytes_received,
                           .messages_sent = comm->traffic.messages_sent,
                           .plans_built = comm->plans.built,
                           .allocations = comm->allocations,
                           .sleeps = comm->sleeps,
                           .shared_bytes = g.shared_bytes,
                           .private_bytes =
                               g.private_bytes + sizeof *comm + comm->scratch.bytes + comm->plans.bytes,
                           .connections = g.connections,
                           .wait_seconds = (double)comm->waited * 1e-9};
    coll_stop_driving(driven);
    return coll_sized_write(stats, offsetof(gyre_comm_stats_t, bytes_sent), &s, sizeof s, "gyre_comm_stats");
}
