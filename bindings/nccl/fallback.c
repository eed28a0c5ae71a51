/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/fallback.c: what Gyre lacks: one-sided messages, the interface for kernels, communicators
 * that grow or give their memory back. These calls return ncclInvalidUsage.
 *
 * GYRE_NCCL_FALLBACK names another library with NCCL's interface. Each communicator then has one of that
 * library next to it, and the calls for signals, windows and kernels go there. Both hold device memory. */
#include "bindings/nccl/shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entry points that came after NCCL 2.28, or that its other headers declare. PyTorch, JAX and nccl-tests link
 * them. */
#pragma GCC visibility push(default)
/* Of 2.29, which appends fields: `size` says how many bytes the program has. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
} ncclCommProperties_t;
typedef struct {
    int nRanks, rank, stride;
} ncclTeam_t;
typedef struct {
    int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;
ncclResult_t ncclPutSignal(const void *buffer, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int ctx, unsigned flags,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *out);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *device_comm);
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *properties);
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **out);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **out);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **out);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **buffer);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *out,
                          ncclConfig_t *config);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, int which, uint64_t *value);
#pragma GCC visibility pop

static struct {
    void *library;       /* NULL: none */
    const char *problem; /* why there is none although it was asked for */
} other;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Its calls of its own functions must not come here: RTLD_DEEPBIND. */
static void load(void)
{
    const char *path = getenv("GYRE_NCCL_FALLBACK");
    if (!path || !*path)
        return;
    static char why[512]; /* dlerror's text ends with the thread, or its next call */
    other.library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!other.library) {
        (void)snprintf(why, sizeof why, "%s", dlerror());
        other.problem = why;
    } else if (dlsym(other.library, "ncclGetVersion") == __extension__(void *) ncclGetVersion)
        other.problem = "that is libgyre-nccl itself";
    else if (!dlsym(other.library, "ncclCommInitRank"))
        other.problem = "it has no ncclCommInitRank";
    if (other.problem)
        other.library = NULL;
}

/* POSIX has dlsym give functions as data pointers. */
#define THEIRS(name) (__extension__(__typeof__(&name))(other.library ? dlsym(other.library, #name) : NULL))

static ncclResult_t theirs_failed(const char *call, ncclResult_t result)
{
    __typeof__(&ncclGetErrorString) text = THEIRS(ncclGetErrorString);
    return shim_fail(result, "GYRE_NCCL_FALLBACK=%s: %s: %s", getenv("GYRE_NCCL_FALLBACK"), call,
                     text ? text(result) : "it failed");
}

ncclResult_t shim_fallback_open(ncclComm_t *comms, int n)
{
    ncclUniqueId id = {{0}};
    ncclResult_t result = ncclSuccess;
    int before = 0;
    (void)pthread_once(&once, load);
    if (other.problem)
        return shim_fail(ncclInvalidUsage, "GYRE_NCCL_FALLBACK=%s: %s: name a file of NCCL, or take it back",
                         getenv("GYRE_NCCL_FALLBACK"), other.problem);
    if (!other.library)
        return ncclSuccess;
    __typeof__(&ncclGetUniqueId) get_id = THEIRS(ncclGetUniqueId);
    __typeof__(&ncclCommInitRank) init = THEIRS(ncclCommInitRank);
    __typeof__(&ncclGroupStart) start = THEIRS(ncclGroupStart);
    __typeof__(&ncclGroupEnd) end = THEIRS(ncclGroupEnd);
    if (!get_id || !start || !end)
        return theirs_failed("ncclGetUniqueId or a group", ncclInvalidUsage);
    if (comms[0]->rank == 0 && (result = get_id(&id)) != ncclSuccess)
        return theirs_failed("ncclGetUniqueId", result);
    if (comms[0]->job) {
        const gyre_status_t st = gyre_broadcast(&id, &id, sizeof id, GYRE_UINT8, 0, comms[0]->gyre);
        if (st != GYRE_OK)
            return shim_status("GYRE_NCCL_FALLBACK", st);
    }
    (void)cudaGetDevice(&before);
    result = start();
    for (int r = 0; r < n && result == ncclSuccess; r++) {
        (void)cudaSetDevice(comms[r]->device);
        result = init(&comms[r]->real, comms[r]->size, id, comms[r]->rank);
    }
    const ncclResult_t ended = end();
    (void)cudaSetDevice(before);
    result = result == ncclSuccess ? ended : result;
    return result == ncclSuccess ? ncclSuccess : theirs_failed("ncclCommInitRank", result);
}

void shim_fallback_close(ncclComm_t comm, int aborted)
{
    __typeof__(&ncclCommDestroy) close = aborted ? THEIRS(ncclCommAbort) : THEIRS(ncclCommDestroy);
    if (comm->real && close)
        (void)close(comm->real);
}

static ncclResult_t lacks(const char *name, ncclComm_t comm)
{
    const ncclResult_t result = comm ? shim_check(name, comm) : ncclSuccess;
    if (result != ncclSuccess)
        return result;
    return shim_fail(ncclInvalidUsage,
                     "%s: %s has no such call; GYRE_NCCL_FALLBACK=FILE passes the calls for "
                     "windows, signals and kernels on to NCCL in that file",
                     name, comm && comm->real ? "the library of GYRE_NCCL_FALLBACK" : "Gyre");
}

/* Calls theirs(arguments) with their communicator, where there is one; else it gives `own`. */
#define PASS_OR(own, name, ...)                                                                           \
    do {                                                                                                  \
        __typeof__(&name) theirs = comm && comm->magic == SHIM_MAGIC && comm->real ? THEIRS(name) : NULL; \
        return theirs ? theirs(__VA_ARGS__) : (own);                                                      \
    } while (0)
#define PASS_ON(name, ...) PASS_OR(lacks(#name, comm), name, __VA_ARGS__)

ncclResult_t ncclPutSignal(const void *buffer, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int ctx, unsigned flags,
                           ncclComm_t comm, cudaStream_t stream)
{
    PASS_ON(ncclPutSignal, buffer, count, type, peer, window, offset, signal, ctx, flags, comm->real, stream);
}
SHIM_API(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream)
{
    PASS_ON(ncclSignal, peer, signal, ctx, flags, comm->real, stream);
}
SHIM_API(ncclSignal);

ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream)
{
    PASS_ON(ncclWaitSignal, n, signals, comm->real, stream);
}
SHIM_API(ncclWaitSignal);

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *out)
{
    PASS_ON(ncclDevCommCreate, comm->real, requirements, out);
}
SHIM_API(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *device_comm)
{
    PASS_ON(ncclDevCommDestroy, comm->real, device_comm);
}
SHIM_API(ncclDevCommDestroy);

/* No kernels of the program, no messages of the host: all fields that say what there is are 0. */
static ncclResult_t own_properties(ncclComm_t comm, ncclCommProperties_t *properties)
{
    const size_t asked = offsetof(ncclCommProperties_t, rank);
    const ncclResult_t result = shim_check("ncclCommQueryProperties", comm);
    if (result != ncclSuccess)
        return result;
    if (!properties || properties->magic != 0xcafebeef || properties->size < asked)
        return shim_fail(ncclInvalidArgument,
                         "ncclCommQueryProperties: props is NULL, or was not initialised with "
                         "NCCL_COMM_PROPERTIES_INITIALIZER");
    const ncclCommProperties_t own = {.rank = comm->rank,
                                      .nRanks = comm->size,
                                      .cudaDev = comm->device,
                                      .nvmlDev = -1,
                                      .nLsaTeams = comm->size};
    const size_t end = properties->size < sizeof own ? properties->size : sizeof own;
    memset((char *)properties + asked, 0, properties->size - asked);
    memcpy((char *)properties + asked, (const char *)&own + asked, end - asked);
    return ncclSuccess;
}

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *properties)
{
    PASS_OR(own_properties(comm, properties), ncclCommQueryProperties, comm->real, properties);
}
SHIM_API(ncclCommQueryProperties);

/* Teams are ranks from a first one on, every `stride`th. Kernels reach the rank's own memory alone: for that
 * each rank is a team of its own. */
static ncclTeam_t team(ncclComm_t comm, int alone)
{
    if (shim_check("a team of ranks", comm) != ncclSuccess)
        return (ncclTeam_t){0, 0, 0};
    return alone ? (ncclTeam_t){1, 0, 1} : (ncclTeam_t){comm->size, comm->rank, 1};
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm)
{
    PASS_OR(team(comm, 0), ncclTeamWorld, comm->real);
}
SHIM_API(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm)
{
    PASS_OR(team(comm, 1), ncclTeamLsa, comm->real);
}
SHIM_API(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm)
{
    PASS_OR(team(comm, 0), ncclTeamRail, comm->real);
}
SHIM_API(ncclTeamRail);

/* The rank in `to` that is `rank` in `from`: both teams know where this rank is. */
static int rank_in(ncclTeam_t to, ncclTeam_t from, int rank)
{
    return to.rank + (rank - from.rank) * from.stride;
}

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t of, int rank)
{
    PASS_OR(rank_in(team(comm, 0), of, rank), ncclTeamRankToWorld, comm->real, of, rank);
}
SHIM_API(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t of, int rank)
{
    PASS_OR(rank_in(team(comm, 1), of, rank), ncclTeamRankToLsa, comm->real, of, rank);
}
SHIM_API(ncclTeamRankToLsa);

/* These three have a window alone: with a fallback, all windows are of the other library. */
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **out)
{
    __typeof__(&ncclGetLsaDevicePointer) theirs = THEIRS(ncclGetLsaDevicePointer);
    return theirs ? theirs(window, offset, rank, out) : lacks(__func__, NULL);
}
SHIM_API(ncclGetLsaDevicePointer);

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **out)
{
    __typeof__(&ncclGetLsaMultimemDevicePointer) theirs = THEIRS(ncclGetLsaMultimemDevicePointer);
    return theirs ? theirs(window, offset, out) : lacks(__func__, NULL);
}
SHIM_API(ncclGetLsaMultimemDevicePointer);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **out)
{
    __typeof__(&ncclGetPeerDevicePointer) theirs = THEIRS(ncclGetPeerDevicePointer);
    return theirs ? theirs(window, offset, peer, out) : lacks(__func__, NULL);
}
SHIM_API(ncclGetPeerDevicePointer);

/* Windows wait for other ranks. ncclCommAbort by another thread ends that, and waits for the call. */
static ncclResult_t begin_waiting(const char *name, ncclComm_t comm)
{
    ncclResult_t result = shim_check(name, comm);
    if (result != ncclSuccess)
        return result;
    atomic_fetch_add(&comm->busy, 1);
    result = shim_check(name, comm);
    if (result != ncclSuccess)
        atomic_fetch_sub(&comm->busy, 1);
    return result;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                    int flags)
{
    ncclResult_t result = begin_waiting(__func__, comm);
    if (result != ncclSuccess)
        return result;
    __typeof__(&ncclCommWindowRegister) theirs = comm->real ? THEIRS(ncclCommWindowRegister) : NULL;
    result = theirs ? theirs(comm->real, buffer, size, window, flags)
                    : shim_window_register(comm, buffer, size, window, flags);
    atomic_fetch_sub(&comm->busy, 1);
    return result;
}
SHIM_API(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    ncclResult_t result = begin_waiting(__func__, comm);
    if (result != ncclSuccess)
        return result;
    __typeof__(&ncclCommWindowDeregister) theirs = comm->real ? THEIRS(ncclCommWindowDeregister) : NULL;
    result = theirs ? theirs(comm->real, window) : shim_window_deregister(comm, window);
    atomic_fetch_sub(&comm->busy, 1);
    return result;
}
SHIM_API(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **buffer)
{
    const ncclResult_t result = shim_check(__func__, comm);
    if (result != ncclSuccess)
        return result;
    if (!comm->real || !THEIRS(ncclCommWindowRegister))
        return shim_window_buffer(comm, window, buffer);
    __typeof__(&ncclWinGetUserPtr) theirs = THEIRS(ncclWinGetUserPtr);
    return theirs ? theirs(comm->real, window, buffer) : lacks(__func__, comm);
}
SHIM_API(ncclWinGetUserPtr);

/* These make or change communicators, of which the other library's would be a part only: never passed on. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    (void)id;
    return lacks(__func__, comm);
}
SHIM_API(ncclCommGetUniqueId);

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *out,
                          ncclConfig_t *config)
{
    (void)nranks, (void)id, (void)rank, (void)out, (void)config;
    return lacks(__func__, comm);
}
SHIM_API(ncclCommGrow);

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    (void)flags;
    return lacks(__func__, comm);
}
SHIM_API(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm)
{
    return lacks(__func__, comm);
}
SHIM_API(ncclCommResume);

ncclResult_t ncclCommMemStats(ncclComm_t comm, int which, uint64_t *value)
{
    (void)which, (void)value;
    return lacks(__func__, comm);
}
SHIM_API(ncclCommMemStats);
