/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/comms.c: the job of Gyre with the ranks of MPI_COMM_WORLD, made in MPI_Init, and a
 * communicator of Gyre for each of MPI that has had some collectives, kept in an attribute. */
#include "shim.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHIM_POINTER(name)         __typeof__(&PMPI_##name) shim_real_##name;
#define SHIM_POINTERS(name, lower) SHIM_POINTER(name) SHIM_POINTER(I##lower)
SHIM_CALLS(SHIM_POINTERS)
SHIM_WAITS(SHIM_POINTER)
static __typeof__(&PMPI_Init) real_Init;
static __typeof__(&PMPI_Init_thread) real_Init_thread;
static __typeof__(&PMPI_Finalize) real_Finalize;

/* Of MPI_COMM_WORLD. Set by MPI_Init, unset by MPI_Finalize: while the program has one thread in MPI. */
static shim_comm_t *world;
static bool crowded;                  /* this host has more ranks than cores */
static int begins;                    /* the first collectives of a communicator, which MPI makes */
static MPI_Comm idle = MPI_COMM_NULL; /* no message is ever sent on it */
static int keyval = MPI_KEYVAL_INVALID;
static int destroy(MPI_Comm comm, int key, void *value, void *extra);

/* Communicators of Gyre whose MPI communicator was freed, newest first: one of the same ranks takes it
 * over. */
static struct {
    pthread_mutex_t lock;
    shim_comm_t *first;
} spare = {PTHREAD_MUTEX_INITIALIZER, NULL};
enum { SPARE_MOST = 16 };

/* What dlsym finds after this library: a program that has no MPI gets NULL, and calls none of it. */
static void find(void *pointer, const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(pointer, &symbol, sizeof(symbol));
}
__attribute__((constructor)) static void load(void)
{
#define SHIM_LOAD(name)         find(&shim_real_##name, "PMPI_" #name);
#define SHIM_LOADS(name, lower) SHIM_LOAD(name) SHIM_LOAD(I##lower)
    SHIM_CALLS(SHIM_LOADS)
    SHIM_WAITS(SHIM_LOAD)
    find(&real_Init, "PMPI_Init");
    find(&real_Init_thread, "PMPI_Init_thread");
    find(&real_Finalize, "PMPI_Finalize");
}

enum { TESTS = 64 }; /* of Gyre for each turn of MPI, which costs as much as some of them */
void shim_yield(unsigned turn)
{
    /* Where ranks share cores, the one that is waited for needs this one at once. */
    if (crowded || turn % TESTS == 0)
        sched_yield();
}
void shim_rest(unsigned turn, bool ended)
{
    /* At least once in each call, as in MPI's own. */
    if (ended || turn % TESTS == 0) {
        int flag = 0;
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, idle, &flag, MPI_STATUS_IGNORE);
    }
    if (!ended)
        shim_yield(turn);
}
/* The handles of another MPI's programs are not those that this library was compiled with. */
static void refuse_other_mpi(void)
{
    static char text[1 << 14]; /* MPICH's constant is 8192, Open MPI's 256 */
    int length = 0;
    __typeof__(&PMPI_Get_library_version) version = NULL;
#ifdef OPEN_MPI
    const bool for_open_mpi = true;
#else
    const bool for_open_mpi = false;
#endif
    find(&version, "PMPI_Get_library_version");
    if (version == NULL || version(text, &length) != MPI_SUCCESS)
        return;
    text[strcspn(text, "\n")] = '\0';
    if ((strncmp(text, "Open MPI", 8) == 0) == for_open_mpi)
        return;
    fprintf(stderr,
            "libgyre-mpi: MPI_Init: this library is built for %s, and the program runs with %.40s: start the "
            "program with gyre-mpi, which preloads the right library\n",
            for_open_mpi ? "Open MPI" : "MPICH", text);
    _exit(1);
}

gyre_status_t shim_wait(gyre_status_t started, gyre_request_t **request)
{
    if (started != GYRE_OK)
        return started;
    for (unsigned turn = 1;; turn++) {
        gyre_status_t status = gyre_test(request);
        shim_rest(turn, status != GYRE_IN_PROGRESS);
        if (status != GYRE_IN_PROGRESS)
            return status;
    }
}

int shim_class(gyre_status_t status)
{
    return status == GYRE_OK              ? MPI_SUCCESS
           : status == GYRE_ERR_NO_MEMORY ? MPI_ERR_NO_MEM
           : status == GYRE_ERR_MISMATCH  ? MPI_ERR_TRUNCATE
           : status == GYRE_ERR_OVERLAP   ? MPI_ERR_BUFFER
           : status == GYRE_ERR_INVALID   ? MPI_ERR_ARG
           : status == GYRE_ERR_TYPE      ? MPI_ERR_TYPE
           : status == GYRE_ERR_OVERFLOW  ? MPI_ERR_COUNT
                                          : MPI_ERR_OTHER;
}
int shim_result(MPI_Comm comm, gyre_status_t status)
{
    if (status != GYRE_OK)
        PMPI_Comm_call_errhandler(comm, shim_class(status));
    return shim_class(status);
}
void shim_no_memory(const char *what)
{
    fprintf(stderr, "libgyre-mpi: no memory for %s\n", what);
    PMPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* Seconds to wait for other ranks in MPI_Init. */
static double init_timeout(void)
{
    const char *text = getenv("GYRE_INIT_TIMEOUT");
    double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : 60;
}

/* A rank without this library would make MPI's collectives where this one makes others, and all would wait.
 * So each rank sends one message to the next one, which only this library receives. */
static void ask_neighbor(int rank, int size)
{
    enum { TAG = 32767 }; /* the highest that every MPI has */
    int before = (rank + size - 1) % size;
    int done = 0;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    PMPI_Irecv(NULL, 0, MPI_BYTE, before, TAG, MPI_COMM_WORLD, &requests[0]);
    PMPI_Isend(NULL, 0, MPI_BYTE, (rank + 1) % size, TAG, MPI_COMM_WORLD, &requests[1]);
    double deadline = PMPI_Wtime() + init_timeout();
    while (!done && PMPI_Wtime() < deadline) {
        PMPI_Testall(2, requests, &done, statuses);
        if (!done)
            usleep(100);
    }
    if (done)
        return;
    fprintf(stderr,
            "libgyre-mpi: MPI_Init: rank %d waited %.0f s for rank %d, which does not load libgyre-mpi: "
            "start all ranks with gyre-mpi, or none (GYRE_INIT_TIMEOUT sets the seconds)\n",
            rank, init_timeout(), before);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

/* Whether `well` holds on all ranks. */
static bool all_well(MPI_Comm comm, bool well)
{
    int mine = well;
    int all = 0;
    REAL(Allreduce)(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
    return all;
}
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
    return made;
}
static void comm_end(shim_comm_t *comm)
{
    gyre_comm_destroy(comm->gyre);
    free(comm->members);
    free(comm->to.ranks);
    free(comm->from.ranks);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* To make a communicator of Gyre takes about as long as so many small collectives, and programs make many
 * that have few. With GYRE_ORDER the program wants all its sums in that order. */
static int choose_begins(void)
{
    enum { MOST = 1000000000, USUAL = 64 };
    const char *text = getenv("GYRE_MPI_AFTER");
    const char *order = getenv("GYRE_ORDER");
    const int usual = order != NULL && order[0] != '\0' ? 0 : USUAL;
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return usual;
    const long given = strtol(text, &end, 10);
    if (end != text && *end == '\0' && given >= 0 && given <= MOST)
        return (int)given;
    fprintf(stderr, "libgyre-mpi: GYRE_MPI_AFTER=%s is not a number from 0 to %d: %d is used\n", text,
            (int)MOST, usual);
    return usual;
}

static void start(void)
{
    int rank = 0;
    int size = 1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    shim_report_init();
    if (size == 1)
        return;
    ask_neighbor(rank, size);
    PMPI_Comm_dup(MPI_COMM_WORLD, &idle);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, destroy, &keyval, NULL);
    shim_types_init();
    shim_requests_init();

    struct {
        gyre_unique_id_t id;
        int begins;
    } root = {{{0}}, 0}; /* what rank 0 says to all */
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_comm_t *gyre = NULL;
    gyre_request_t *request = NULL;
    /* A rank of an MPI program may compute for hours while others wait; one that died is found all the
     * same. */
    config.timeout_s = getenv("GYRE_TIMEOUT") != NULL ? 0 : 86400.0 * 365;
    config.name = "mpi";
    bool well = rank != 0 || gyre_get_unique_id(&root.id) == GYRE_OK;
    if (rank == 0)
        root.begins = choose_begins();
    if (all_well(idle, well)) {
        REAL(Bcast)(&root, (int)sizeof(root), MPI_BYTE, 0, idle);
        begins = root.begins;
        well = shim_wait(gyre_comm_icreate_id(&root.id, rank, size, &config, &gyre, &request), &request) ==
               GYRE_OK;
    }
    if (all_well(idle, well && gyre != NULL)) {
        world = comm_new(rank, size);
        world->gyre = gyre;
        crowded = gyre_comm_local_size(gyre) > sysconf(_SC_NPROCESSORS_ONLN);
        for (int r = 0; r < size; r++)
            world->members[r] = r;
    } else if (rank == 0) {
        fprintf(stderr,
                "libgyre-mpi: MPI_Init: the ranks cannot be joined in Gyre: all collectives go to MPI\n");
    }
}

int MPI_Init(int *argc, char ***argv)
{
    refuse_other_mpi();
    int rc = real_Init(argc, argv);
    if (rc == MPI_SUCCESS)
        start();
    return rc;
}
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    refuse_other_mpi();
    int rc = real_Init_thread(argc, argv, required, provided);
    if (rc == MPI_SUCCESS)
        start();
    return rc;
}
int MPI_Finalize(void)
{
    int finalized = 0;
    PMPI_Finalized(&finalized);
    if (world != NULL && !finalized) {
        shim_comm_t *ended = world;
        shim_requests_end(ended->rank);
        shim_report_print(ended->rank);
        /* All messages that need this rank's progress are delivered before Gyre waits for the ranks. */
        REAL(Barrier)(idle);
        world = NULL;
        for (shim_comm_t *next; spare.first != NULL; spare.first = next) {
            next = spare.first->next;
            comm_end(spare.first);
        }
        gyre_finalize(ended->gyre);
        ended->gyre = NULL;
        comm_end(ended);
        PMPI_Comm_free(&idle);
    }
    return real_Finalize();
}
/* Fortran calls these in both MPI libraries, or may. */
SHIM_ALIAS(Init)
SHIM_ALIAS(Init_thread)
SHIM_ALIAS(Finalize)

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
    if (world == NULL) { /* gyre_finalize has ended it */
        comm->gyre = NULL;
        comm_end(comm);
    } else if (comm->gyre != NULL && gyre_comm_error(comm->gyre) == GYRE_OK) {
        spare_put(comm);
    } else {
        comm_end(comm);
    }
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
    for (int r = 0; r < made->size; r++)
        inside = inside && made->members[r] != MPI_UNDEFINED;
    PMPI_Group_free(&group);
    PMPI_Group_free(&all);
    free(ranks);
    return inside;
}
/* Gives `made` its communicator of Gyre: a spare one that all members have, or a new one. */
static void connect_members(MPI_Comm comm, shim_comm_t *made)
{
    static atomic_uint tags;
    shim_comm_t *old = spare_take(made);
    long long tag = ((long long)world->rank + 1) << 32 | (long long)(atomic_fetch_add(&tags, 1) + 1);
    long long id = old != NULL ? old->id : 0;
    long long offers[3] = {id, -id, made->rank == 0 ? tag : 0};
    long long most[3] = {0, 0, 0};
    REAL(Allreduce)(offers, most, 3, MPI_LONG_LONG, MPI_MAX, comm);
    made->why = WHY_TAKEN;
    made->id = most[2];
    if (most[0] != 0 && most[0] == -most[1]) {
        made->gyre = old->gyre;
        made->id = old->id;
        old->gyre = NULL;
        comm_end(old);
        return;
    }
    if (old != NULL)
        spare_put(old);
    gyre_request_t *request = NULL;
    gyre_status_t status = shim_wait(gyre_comm_icreate_group(world->gyre, made->members, made->size,
                                                             (uint64_t)made->id, &made->gyre, &request),
                                     &request);
    if (all_well(comm, status == GYRE_OK))
        return;
    if (status == GYRE_OK)
        gyre_comm_destroy(made->gyre);
    made->gyre = NULL;
    made->why = WHY_FAILED;
    if (made->rank == 0)
        fprintf(stderr,
                "libgyre-mpi: a communicator of %d ranks cannot be made in Gyre: its collectives go to MPI\n",
                made->size);
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
    else
        made->why = WHY_NEW;
    PMPI_Comm_set_attr(comm, keyval, made);
    return made;
}
shim_comm_t *shim_comm_of(MPI_Comm comm, bool waits, shim_why_t *why)
{
    void *value = NULL;
    int found = 0;
    *why = WHY_NO_JOB;
    if (world == NULL)
        return NULL;
    *why = WHY_TAKEN;
    if (comm == MPI_COMM_WORLD)
        return world;
    *why = WHY_ARGUMENT;
    if (comm == MPI_COMM_NULL || PMPI_Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    shim_comm_t *state = found ? value : make(comm);
    if (state->why == WHY_NEW && state->calls < begins)
        state->calls++;
    else if (state->why == WHY_NEW && waits)
        connect_members(comm, state);
    *why = state->why;
    return state->gyre != NULL ? state : NULL;
}
