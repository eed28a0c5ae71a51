/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/comms.c: a communicator of Gyre for each of MPI that has had some collectives, kept in an
 * attribute. */
#include "shim.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shim_comm_t *world; /* of MPI_COMM_WORLD */
static int keyval = MPI_KEYVAL_INVALID;

/* With MPI_THREAD_MULTIPLE, two communicators of all ranks may ask for the job at once. */
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
/* This rank is in a communicator of some ranks that waits for the job. */
static atomic_bool wanted;

/* Communicators of Gyre whose MPI communicator was freed, newest first: one of the same ranks takes it
 * over. */
static struct {
    pthread_mutex_t lock;
    shim_comm_t *first;
} spare = {PTHREAD_MUTEX_INITIALIZER, NULL};
enum { SPARE_MOST = 16 };

static shim_comm_t *comm_new(int rank, int size)
{
    shim_comm_t *made = calloc(1, sizeof(*made));
    int *members = made != NULL ? calloc((size_t)size, sizeof(*members)) : NULL;
    if (members == NULL)
        shim_no_memory("a communicator");
    pthread_mutex_init(&made->lock, NULL);
    made->rank = rank;
    made->size = size;
    atomic_init(&made->requests, 1);
    made->members = members;
    made->why = WHY_NEW;
    /* One of all ranks asks early whether others wait for the job. */
    enum { EARLY = 4 };
    made->next_try = size == shim_job.size && shim_job.begins > EARLY ? EARLY : shim_job.begins;
    return made;
}
static void comm_end(shim_comm_t *comm)
{
    if (comm->gyre != NULL)
        GYRE(comm_destroy)(comm->gyre);
    free(comm->members);
    free(comm->to.ranks);
    free(comm->from.ranks);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static bool same_members(const shim_comm_t *a, const shim_comm_t *b)
{
    return a->size == b->size && memcmp(a->members, b->members, (size_t)a->size * sizeof(int)) == 0;
}
/* Takes one of the same ranks off the list; NULL: there is none. */
static shim_comm_t *spare_take(const shim_comm_t *like)
{
    pthread_mutex_lock(&spare.lock);
    shim_comm_t **at = &spare.first;
    while (*at != NULL && !same_members(*at, like))
        at = &(*at)->next;
    shim_comm_t *found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&spare.lock);
    return found;
}
static void spare_put(shim_comm_t *comm)
{
    pthread_mutex_lock(&spare.lock);
    comm->next = spare.first;
    spare.first = comm;
    shim_comm_t **at = &spare.first;
    for (int i = 0; i < SPARE_MOST && *at != NULL; i++)
        at = &(*at)->next;
    shim_comm_t *oldest = *at;
    *at = NULL;
    pthread_mutex_unlock(&spare.lock);
    for (shim_comm_t *next; oldest != NULL; oldest = next) {
        next = oldest->next;
        comm_end(oldest);
    }
}
/* Its communicator of MPI is freed, and no request of it is left. */
static void retire(shim_comm_t *comm)
{
    if (shim_job.open && comm->gyre != NULL && GYRE(comm_error)(comm->gyre) == GYRE_OK) {
        spare_put(comm);
        return;
    }
    /* gyre_finalize has ended it, or ends it if it failed: over UCX, gyre_comm_destroy of such a one waits
     * for other ranks to call Gyre. */
    comm->gyre = NULL;
    comm_end(comm);
}
/* `requests` counts the communicator of MPI, too: what is freed last retires it. */
void shim_comm_leave(shim_comm_t *comm)
{
    if (atomic_fetch_sub(&comm->requests, 1) == 1)
        retire(comm);
}
static int destroy(MPI_Comm comm, int key, void *value, void *extra)
{
    shim_comm_t *state = value;
    (void)comm;
    (void)key;
    (void)extra;
    atomic_store(&state->freed, true);
    shim_comm_leave(state);
    return MPI_SUCCESS;
}

/* Ranks in MPI_COMM_WORLD. False: a member is not in it, as after MPI_Comm_spawn; then all members see
 * that. */
static bool find_members(MPI_Comm comm, shim_comm_t *made)
{
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Group all = MPI_GROUP_NULL;
    int *ranks = calloc((size_t)made->size, sizeof(*ranks));
    bool inside = true;
    if (ranks == NULL)
        shim_no_memory("a list of ranks");
    for (int r = 0; r < made->size; r++)
        ranks[r] = r;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &all);
    PMPI_Group_translate_ranks(group, made->size, ranks, all, made->members);
    for (int r = 0; r < made->size; r++) {
        inside = inside && made->members[r] != MPI_UNDEFINED;
        made->root = made->members[r] == 0 ? r : made->root;
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&all);
    free(ranks);
    return inside;
}
/* Gives `made` a communicator of Gyre with the number `tag`. */
static void make_new(MPI_Comm comm, shim_comm_t *made, long long tag)
{
    gyre_comm_t *job = atomic_load(&shim_job.gyre);
    gyre_request_t *request = NULL;
    made->id = tag;
    if (made == world) {
        shim_comms_take_world();
        return;
    }
    gyre_status_t status = shim_wait(
        GYRE(comm_icreate_group)(job, made->members, made->size, (uint64_t)tag, &made->gyre, &request),
        &request);
    if (shim_all_well(comm, status == GYRE_OK))
        return;
    if (status == GYRE_OK)
        GYRE(comm_destroy)(made->gyre);
    made->gyre = NULL;
    made->why = WHY_FAILED;
    shim_need_order(comm, made->rank, "a communicator cannot be made in Gyre");
    if (made->rank == 0)
        fprintf(stderr,
                "libgyre-mpi: a communicator of %d ranks cannot be made in Gyre: its collectives go to MPI\n",
                made->size);
}
/* In this many collectives, or what they are worth to this rank, it gets one of Gyre. */
static bool is_worth(const shim_comm_t *made)
{
    return shim_job.joins > 0 ? made->work >= shim_job.joins : made->calls >= shim_job.begins;
}
static bool is_due(const shim_comm_t *made)
{
    return is_worth(made) || made->calls >= shim_job.begins;
}
/* A blocking collective would give it one, or join the ranks. */
static bool lacks_blocking(const shim_comm_t *made)
{
    if (atomic_load(&shim_job.gyre) != NULL)
        return is_due(made);
    return made->size == shim_job.size && is_worth(made);
}
/* The members see alike what each of them knows. False: the job was joined just now. */
static bool try_once(MPI_Comm comm, shim_comm_t *made)
{
    static atomic_uint tags;
    enum { MISSING, BUSY, FAILED, WANTED, DUE, SPARE, NOT_SPARE, TAG, OFFERS };
    const bool full = made->size == shim_job.size;
    const bool worth = is_worth(made);
    const bool due = is_due(made);
    /* Asked after locking: no other thread joins the ranks then. */
    const bool locked = full && pthread_mutex_trylock(&joining) == 0;
    const bool missing = atomic_load(&shim_job.gyre) == NULL;
    shim_comm_t *old = due ? spare_take(made) : NULL;
    long long tag = ((long long)shim_job.rank + 1) << 32 | (long long)(atomic_fetch_add(&tags, 1) + 1);
    long long id = old != NULL ? old->id : 0;
    const long long offers[OFFERS] = {[MISSING] = missing,
                                      [BUSY] = !locked || !missing,
                                      [FAILED] = atomic_load(&shim_job.failed),
                                      [WANTED] = worth || atomic_load(&wanted),
                                      [DUE] = due,
                                      [SPARE] = id,
                                      [NOT_SPARE] = -id,
                                      [TAG] = made->rank == 0 ? tag : 0};
    long long most[OFFERS] = {0};
    bool joined = false;
    REAL(Allreduce)(offers, most, OFFERS, MPI_LONG_LONG, MPI_MAX, comm);
    const bool reuse = most[SPARE] != 0 && most[SPARE] == -most[NOT_SPARE];
    if (old != NULL && !reuse)
        spare_put(old);
    if (most[FAILED]) {
        made->why = WHY_FAILED;
    } else if (most[MISSING]) {
        if (worth && !full)
            atomic_store(&wanted, true);
        if (!most[BUSY] && most[WANTED])
            joined = shim_join(comm, made->root);
    } else if (most[DUE]) {
        made->why = WHY_TAKEN;
        if (reuse) {
            made->gyre = old->gyre;
            made->id = old->id;
            old->gyre = NULL;
            comm_end(old);
        } else {
            make_new(comm, made, most[TAG]);
        }
    }
    if (locked)
        pthread_mutex_unlock(&joining);
    return !joined;
}
/* In a collective that waits. */
static void connect_members(MPI_Comm comm, shim_comm_t *made)
{
    while (!try_once(comm, made))
        ;
    /* Rarely while other ranks are not in the job, but at GYRE_MPI_AFTER. */
    const int twice = made->calls > INT_MAX / 2 ? INT_MAX : 2 * made->calls;
    made->next_try = made->calls < shim_job.begins && twice > shim_job.begins ? shim_job.begins : twice;
}
static shim_comm_t *make(MPI_Comm comm)
{
    int inter = 0;
    int rank = 0;
    int size = 1;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    shim_comm_t *made = comm_new(rank, size);
    if (inter)
        made->why = WHY_INTER;
    else if (size == 1)
        made->why = WHY_ALONE;
    else if (!find_members(comm, made))
        made->why = WHY_FOREIGN;
    PMPI_Comm_set_attr(comm, keyval, made);
    return made;
}
void shim_comm_made(MPI_Comm comm)
{
    if (!shim_job.open || shim_job.begins > 0 || comm == MPI_COMM_NULL)
        return;
    shim_comm_t *made = make(comm);
    if (made->why == WHY_NEW)
        connect_members(comm, made);
}
shim_comm_t *shim_comm_known(MPI_Comm comm)
{
    void *value = world;
    int found = 1;
    if (!shim_job.open)
        return NULL;
    if (comm != MPI_COMM_WORLD)
        PMPI_Comm_get_attr(comm, keyval, &value, &found);
    return found ? value : NULL;
}
/* In small collectives: Gyre saves some 0.3 us of one, and 60 us of 1 MiB (2 ranks). */
static double worth_of(int count, MPI_Datatype type)
{
    enum { BYTES = 4096 };
    MPI_Count size = 0;
    if (count > 0 && type != MPI_DATATYPE_NULL)
        PMPI_Type_size_x(type, &size);
    return 1 + (size > 0 ? (double)count * (double)size / BYTES : 0);
}
shim_comm_t *shim_comm_of(MPI_Comm comm, bool waits, int count, MPI_Datatype type, shim_why_t *why)
{
    void *value = world;
    int found = 1;
    *why = WHY_NO_JOB;
    if (!shim_job.open)
        return NULL;
    *why = WHY_ALONE;
    if (comm == MPI_COMM_SELF) /* whose attributes end while the program makes calls */
        return NULL;
    *why = WHY_ARGUMENT;
    if (comm != MPI_COMM_WORLD &&
        (comm == MPI_COMM_NULL || PMPI_Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS))
        return NULL;
    shim_comm_t *state = found ? value : make(comm);
    if (state->why == WHY_NEW && waits && state->calls >= state->next_try)
        connect_members(comm, state);
    *why = state->why == WHY_NEW && !waits && lacks_blocking(state) ? WHY_NOT_BLOCKING : state->why;
    if (state->why == WHY_NEW && state->calls < INT_MAX) {
        state->calls++;
        state->work += worth_of(count, type);
    }
    return state->gyre != NULL ? state : NULL;
}
void shim_comms_init(void)
{
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, destroy, &keyval, NULL);
    world = comm_new(shim_job.rank, shim_job.size);
    for (int r = 0; r < shim_job.size; r++)
        world->members[r] = r;
}
void shim_comms_take_world(void)
{
    world->why = WHY_TAKEN;
    world->gyre = atomic_load(&shim_job.gyre);
}
void shim_comms_end(void)
{
    for (shim_comm_t *next; spare.first != NULL; spare.first = next) {
        next = spare.first->next;
        comm_end(spare.first);
    }
    world->gyre = NULL;
    comm_end(world);
}
