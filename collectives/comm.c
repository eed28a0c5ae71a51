/* collectives/comm.c: communicators: joining the job, splitting, leaving, statistics. */
#include "collectives/communicator.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/mem.h"

/* The process's place in the job. One at a time: gyre_init refuses a second. */
static struct {
    pthread_mutex_t lock;
    int joined;
    comm_world_t world;
    double timeout_s;
    int threaded;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static gyre_status_t exchange_by_bootstrap(void *user, const void *mine, size_t bytes, void *all)
{
    comm_world_t *world = user;
    base_time_t deadline = base_deadline(base_setting_seconds(SET_INIT_TIMEOUT));
    if (world->size == 1) {
        memcpy(all, mine, bytes);
        return GYRE_OK;
    }
    return comm_boot_all_gather(world->boot, mine, bytes, all, deadline);
}

/* The members of a split exchange over the parent's point-to-point lane, so that ranks of other colors need not take part. */
typedef struct {
    gyre_comm_t *parent;
    const int *members; /* [n] parent ranks */
    int n, rank;
} subset_t;

static gyre_status_t swap_blocks(const subset_t *s, int to, int from, char *blocks, int have, int get,
                                 size_t bytes)
{
    gyre_request_t *r[2] = {NULL, NULL};
    gyre_status_t st = gyre_isend(blocks, (size_t)get * bytes, GYRE_UINT8, s->members[to], s->parent, &r[0]);
    gyre_status_t st2 = gyre_irecv(blocks + (size_t)have * bytes, (size_t)get * bytes, GYRE_UINT8,
                                   s->members[from], s->parent, &r[1]);
    gyre_status_t st3 = gyre_wait_all(2, r);
    return st != GYRE_OK ? st : st2 != GYRE_OK ? st2 : st3;
}

/* All-gather by Bruck's algorithm (1997): blocks of the next ranks, doubling; ceil(log2 n) steps. */
static gyre_status_t exchange_by_parent(void *user, const void *mine, size_t bytes, void *all)
{
    const subset_t *s = user;
    char *blocks = malloc((size_t)s->n * bytes); /* block i belongs to member (rank + i) mod n */
    if (!blocks)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to exchange %zu bytes with %d ranks", bytes, s->n);
    memcpy(blocks, mine, bytes);
    gyre_status_t st = GYRE_OK;
    for (int have = 1; st == GYRE_OK && have < s->n; have *= 2) {
        int get = have < s->n - have ? have : s->n - have;
        st =
            swap_blocks(s, (s->rank - have + s->n) % s->n, (s->rank + have) % s->n, blocks, have, get, bytes);
    }
    for (int i = 0; st == GYRE_OK && i < s->n; i++)
        memcpy((char *)all + (size_t)((s->rank + i) % s->n) * bytes, blocks + (size_t)i * bytes, bytes);
    free(blocks);
    return st;
}

static gyre_status_t comm_make(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                               comm_exchange_fn exchange, void *user, base_time_t deadline, gyre_comm_t **out)
{
    gyre_comm_t *comm = calloc(1, sizeof *comm);
    if (!comm)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator");
    gyre_status_t st =
        comm_group_create(world, id, world_ranks, n, rank, exchange, user, deadline, &comm->group);
    if (st != GYRE_OK) {
        free(comm);
        return st;
    }
    comm->world = world;
    comm->rank = rank;
    comm->n = n;
    comm->id = id;
    comm->timeout_s = process.timeout_s;
    /* no deadline, or one beyond a century: so far off that nothing adds up to an overflow */
    comm->timeout_ns = process.timeout_s > 0 && process.timeout_s < 3e9
                           ? (base_time_t)(process.timeout_s * 1e9)
                           : BASE_TIME_NEVER / 4;
    comm->host_of = comm_group_hosts(comm->group, &comm->hosts);
    for (int r = 0; r < n; r++)
        if (comm->host_of[r] == comm->host_of[rank]) {
            comm->local_rank += r < rank;
            comm->local_size++;
        }
    *out = comm;
    return GYRE_OK;
}

static void comm_free(gyre_comm_t *comm)
{
    coll_registry_remove(comm);
    coll_drive(comm);
    if (!coll_comm_idle(comm)) {
        log_warning("a communicator is destroyed while operations are under way: they end with \"aborted\"");
        atomic_store(&comm->error, GYRE_ERR_ABORTED);
        coll_comm_fail(comm, comm->head ? comm->head : comm->p2p_head, GYRE_ERR_ABORTED, "destroyed");
    }
    coll_stop_driving(comm);
    for (gyre_request_t *r = comm->free_requests, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    coll_plan_cache_free(&comm->plans);
    if (comm->scratch.base)
        comm_mem_free(comm->scratch.base);
    if (comm->world->watch)
        comm_watch_forget(comm->world->watch, comm->id);
    comm_group_destroy(comm->group);
    free(comm->own_count);
    free(comm->p2p);
    free(comm);
}

static gyre_status_t check_config(const gyre_config_t *config)
{
    if (config && (config->size < offsetof(gyre_config_t, init_timeout_s) || config->size > 4096))
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_init: config.size is %zu; start from GYRE_CONFIG_INITIALIZER", config->size);
    return GYRE_OK;
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

static gyre_status_t world_join(comm_world_t *world, const comm_identity_t *who, base_time_t deadline)
{
    base_log_set_rank(who->size > 1 ? who->rank : -1);
    world->rank = who->rank;
    world->size = who->size;
    world->recorder = comm_recorder_open(who->rank);
    gyre_status_t st = comm_boot_join(who, deadline, &world->boot);
    if (st == GYRE_OK)
        st = comm_watch_start(world->boot, &world->watch);
    if (st == GYRE_OK)
        st = comm_mem_attach(world->watch);
    if (st != GYRE_OK)
        world_leave(world, 0);
    return st;
}

static gyre_status_t world_communicator(comm_world_t *world, base_time_t deadline, gyre_comm_t **out)
{
    int *ranks = malloc((size_t)world->size * sizeof *ranks);
    if (!ranks)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", world->size);
    for (int r = 0; r < world->size; r++)
        ranks[r] = r;
    const char *job = comm_boot_job(world->boot);
    uint64_t id = base_hash64(job, strlen(job), 1);
    gyre_status_t st =
        comm_make(world, id, ranks, world->size, world->rank, exchange_by_bootstrap, world, deadline, out);
    free(ranks);
    return st;
}

static gyre_status_t init_locked(const gyre_config_t *config, gyre_comm_t **out)
{
    if (process.joined)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_init was called before; call gyre_finalize first");
    gyre_config_t c = GYRE_CONFIG_INITIALIZER;
    gyre_status_t st = check_config(config);
    if (st != GYRE_OK)
        return st;
    if (config)
        memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    st = base_settings_load();
    if (st != GYRE_OK)
        return st;
    comm_identity_t who;
    st = comm_identity_find(config ? &c : NULL, &who);
    if (st != GYRE_OK)
        return st;
    process.timeout_s = c.timeout_s > 0 ? c.timeout_s : base_setting_seconds(SET_TIMEOUT);
    process.threaded =
        c.progress_thread >= 0 ? c.progress_thread : (int)base_setting_int(SET_PROGRESS_THREAD);
    base_time_t deadline =
        base_deadline(c.init_timeout_s > 0 ? c.init_timeout_s : base_setting_seconds(SET_INIT_TIMEOUT));
    st = world_join(&process.world, &who, deadline);
    if (st != GYRE_OK)
        return st;
    gyre_comm_t *comm;
    st = world_communicator(&process.world, deadline, &comm);
    if (st == GYRE_OK && process.threaded) {
        st = coll_progress_thread_start();
        if (st != GYRE_OK)
            comm_free(comm);
    }
    if (st != GYRE_OK) {
        world_leave(&process.world, 0);
        return st;
    }
    comm->is_world = 1;
    process.joined = 1;
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
    if (!world->is_world)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_finalize takes the communicator of gyre_init; others are destroyed "
                         "with gyre_comm_destroy");
    gyre_status_t st = GYRE_OK;
    if (gyre_comm_error(world) == GYRE_OK && world->n > 1)
        st = gyre_barrier(world);
    int graceful = gyre_comm_error(world) == GYRE_OK;
    pthread_mutex_lock(&process.lock);
    if (process.threaded)
        coll_progress_thread_stop();
    comm_free(world);
    world_leave(&process.world, graceful);
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
    int n = split_members(asks, comm->n, comm->rank, members, &rank);
    for (int i = 0; i < n; i++)
        world_ranks[i] = comm_group_world_rank(comm->group, members[i]);
    uint64_t words[3] = {comm->id, comm->splits, (uint64_t)(uint32_t)mine.color};
    uint64_t id = base_hash64(words, sizeof words, 3);
    subset_t subset = {.parent = comm, .members = members, .n = n, .rank = rank};
    base_time_t deadline = base_deadline(comm->timeout_s);
    return comm_make(comm->world, id, world_ranks, n, rank, exchange_by_parent, &subset, deadline, out);
}

gyre_status_t gyre_comm_split(gyre_comm_t *comm, int color, int key, gyre_comm_t **out)
{
    if (!comm || !out)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_split: %s is NULL", comm ? "out" : "comm");
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_split cannot be part of a group");
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
    if (st == GYRE_OK && color >= 0)
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
    comm_free(comm);
    return GYRE_OK;
}

gyre_status_t gyre_comm_abort(gyre_comm_t *comm, const char *reason)
{
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_abort: comm is NULL");
    char text[512];
    snprintf(text, sizeof text, "aborted: %s", reason ? reason : "no reason given");
    int none = GYRE_OK;
    coll_drive(comm);
    if (atomic_compare_exchange_strong(&comm->error, &none, GYRE_ERR_ABORTED)) {
        snprintf(comm->error_text, sizeof comm->error_text, "%s", text);
        if (comm->world->watch)
            comm_watch_abort(comm->world->watch, comm->id, GYRE_ERR_ABORTED, text);
    }
    if (!coll_comm_idle(comm))
        coll_comm_fail(comm, comm->head ? comm->head : comm->p2p_head, GYRE_ERR_ABORTED, text);
    coll_stop_driving(comm);
    return GYRE_OK;
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

static size_t plans_bytes(const coll_plan_cache_t *cache)
{
    size_t sum = 0;
    for (const coll_plan_t *p = cache->plans; p; p = p->next) {
        sum += sizeof *p + p->arena.bytes;
        for (uint32_t i = 0; i < p->ndistinct; i++)
            sum += p->segments[i].arena.bytes + p->segments[i].schedule.arena.bytes;
    }
    return sum;
}

gyre_status_t gyre_comm_stats(const gyre_comm_t *comm, gyre_comm_stats_t *stats)
{
    if (!comm || !stats)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_stats: %s is NULL", comm ? "stats" : "comm");
    if (stats->size < offsetof(gyre_comm_stats_t, bytes_sent))
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_comm_stats: set stats.size to sizeof(gyre_comm_stats_t) first");
    gyre_comm_t *driven =
        (gyre_comm_t *)(uintptr_t)comm; /* reading takes a turn, too: the counters belong to the driver */
    comm_group_stats_t g;
    coll_drive(driven);
    comm_group_stats(comm->group, &g);
    gyre_comm_stats_t s = {.size = stats->size,
                           .operations = comm->operations,
                           .bytes_sent = comm->traffic.bytes_sent,
                           .bytes_received = comm->traffic.bytes_received,
                           .messages_sent = comm->traffic.messages_sent,
                           .plans_built = comm->plans.built,
                           .allocations = comm->allocations,
                           .sleeps = comm->sleeps,
                           .shared_bytes = g.shared_bytes,
                           .private_bytes = g.private_bytes + sizeof *comm + comm->scratch.bytes +
                                            plans_bytes(&comm->plans),
                           .connections = g.connections,
                           .wait_seconds = (double)comm->waited * 1e-9};
    coll_stop_driving(driven);
    memcpy(stats, &s, stats->size < sizeof s ? stats->size : sizeof s);
    return GYRE_OK;
}
