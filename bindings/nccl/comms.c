/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/comms.c: NCCL's calls for communicators: making, asking, ending. make.c makes them. */
#include "bindings/nccl/shim.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Sets *blocking where the config does. No other field has an effect. Before NCCL 2.17 it was the last. */
static ncclResult_t read_config(const char *name, const ncclConfig_t *config, int *blocking)
{
    if (!config)
        return ncclSuccess;
    if (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, cgaClusterSize))
        return shim_fail(ncclInvalidArgument, "%s: config was not initialised with NCCL_CONFIG_INITIALIZER",
                         name);
    if (config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
        return shim_fail(ncclInvalidArgument, "%s: config.blocking is %d: it must be 0 or 1", name,
                         config->blocking);
    if (config->size >= offsetof(ncclConfig_t, netName) &&
        ((config->minCTAs != INT_MIN && config->minCTAs < 1) ||
         (config->maxCTAs != INT_MIN && (config->maxCTAs < 1 || config->minCTAs > config->maxCTAs))))
        return shim_fail(ncclInvalidArgument,
                         "%s: config.minCTAs is %d and maxCTAs %d: at least 1, and the first not larger",
                         name, config->minCTAs, config->maxCTAs);
    if (config->blocking != INT_MIN)
        *blocking = config->blocking;
    return ncclSuccess;
}

static ncclResult_t init(const char *name, ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config)
{
    shim_call_t call = {.kind = SHIM_INIT,
                        .name = name,
                        .out = out,
                        .rank = rank,
                        .nranks = nranks,
                        .id = *id,
                        .blocking = 1};
    if (!out)
        return shim_fail(ncclInvalidArgument, "%s: comm is NULL", name);
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return shim_fail(ncclInvalidArgument,
                         "%s: rank %d of %d ranks: at least 1 rank, and ranks count from 0", name, rank,
                         nranks);
    const ncclResult_t result = read_config(name, config, &call.blocking);
    if (result != ncclSuccess)
        return result;
    const cudaError_t error = cudaGetDevice(&call.device);
    if (error != cudaSuccess)
        return shim_cuda(name, "there is no CUDA device to work on: cudaGetDevice", error);
    *out = NULL;
    return shim_submit(&call);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return shim_refused(init(__func__, comm, nranks, &id, rank, NULL));
}
SHIM_API(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    return shim_refused(init(__func__, comm, nranks, &id, rank, config));
}
SHIM_API(ncclCommInitRankConfig);

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    if (nids < 1 || !ids)
        return shim_refused(shim_fail(ncclInvalidArgument,
                                      "%s: nId is %d, or commIds is NULL: at least one id", __func__, nids));
    return shim_refused(init(__func__, comm, nranks, &ids[0], rank, config)); /* the first id is rank 0's */
}
SHIM_API(ncclCommInitRankScalable);

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    int list[SHIM_TEAM], count = 0;
    ncclComm_t *out[SHIM_TEAM];
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return shim_cuda(__func__, "there is no CUDA device to work on: cudaGetDeviceCount", error);
    if (!comms || n < 1)
        return shim_fail(ncclInvalidArgument, "%s: ndev is %d, or comm is NULL: at least one device",
                         __func__, n);
    if (n > SHIM_TEAM || (!devices && n > count))
        return shim_fail(ncclInvalidUsage,
                         "%s: ndev is %d: this machine has %d devices, and Gyre makes 64 ranks at "
                         "most",
                         __func__, n, count);
    for (int r = 0; r < n; r++) {
        list[r] = devices ? devices[r] : r;
        out[r] = &comms[r];
    }
    return shim_make_team(__func__, n, list, 1, out);
}
SHIM_API(ncclCommInitAll);

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    shim_call_t call = {
        .kind = SHIM_SPLIT, .name = __func__, .comm = comm, .out = out, .color = color, .key = key};
    ncclResult_t result = shim_check(__func__, comm);
    if (result == ncclSuccess && !out)
        result = shim_fail(ncclInvalidArgument, "%s: newcomm is NULL", __func__);
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = shim_fail(ncclInvalidArgument, "%s: color %d is negative and not NCCL_SPLIT_NOCOLOR",
                           __func__, color);
    if (result == ncclSuccess) {
        call.blocking = comm->blocking;
        result = read_config(__func__, config, &call.blocking);
    }
    return shim_refused(result == ncclSuccess ? shim_submit(&call) : result);
}
SHIM_API(ncclCommSplit);

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *out, ncclConfig_t *config,
                            int flags)
{
    shim_call_t call = {.kind = SHIM_SHRINK, .name = __func__, .comm = comm, .out = out};
    ncclResult_t result = shim_check(__func__, comm);
    if (result == ncclSuccess && (!out || !excluded || count < 1 || count >= comm->size))
        result = shim_fail(ncclInvalidArgument,
                           "%s: newcomm or excludeRanksList is NULL, or excludeRanksCount, %d, "
                           "is not in 1 to %d",
                           __func__, count, comm->size - 1);
    if (result == ncclSuccess && flags == NCCL_SHRINK_ABORT && comm->job && comm->gyre != comm->job->world)
        result =
            shim_fail(ncclInvalidUsage,
                      "%s: NCCL_SHRINK_ABORT: the communicator was made by ncclCommSplit or ncclCommShrink; "
                      "Gyre goes on after a failure in the one that the id made",
                      __func__);
    if (result == ncclSuccess) {
        call.blocking = comm->blocking;
        result = read_config(__func__, config, &call.blocking);
    }
    if (result != ncclSuccess)
        return shim_refused(result);
    /* from a job's communicator that was revoked, and so aborted, Gyre makes one in this way only */
    call.abort = flags == NCCL_SHRINK_ABORT || (comm->revoked && comm->job && comm->gyre == comm->job->world);
    call.members = malloc((size_t)comm->size * sizeof *call.members);
    if (!call.members)
        return shim_refused(shim_no_memory(__func__));
    for (int r = 0; r < comm->size; r++) {
        int out_of_it = 0;
        for (int i = 0; i < count; i++)
            out_of_it |= excluded[i] == r;
        if (!out_of_it)
            call.members[call.nranks++] = r;
        else if (r == comm->rank)
            result = shim_fail(ncclInvalidArgument, "%s: rank %d calls it and is in excludeRanksList",
                               __func__, r);
    }
    if (result == ncclSuccess && call.nranks != comm->size - count)
        result = shim_fail(ncclInvalidArgument,
                           "%s: excludeRanksList has a rank twice, or one that is not in 0 to %d", __func__,
                           comm->size - 1);
    if (result == ncclSuccess)
        return shim_refused(shim_submit(&call));
    free(call.members);
    return shim_refused(result);
}
SHIM_API(ncclCommShrink);

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const ncclResult_t result = shim_check(__func__, comm);
    if (result == ncclSuccess)
        comm->finalized = 1;
    return result;
}
SHIM_API(ncclCommFinalize);

/* Nothing of it runs in another thread any more. */
static void wait_for_others(ncclComm_t comm)
{
    while (atomic_load(&comm->busy))
        usleep(100);
}

/* The last ones that ended are kept, so that a call on one of them is refused and reads no freed memory. */
static void forget(ncclComm_t comm)
{
    enum { KEPT = 64 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ncclComm_t ended[KEPT];
    static unsigned next;
    free(comm->scales);
    pthread_mutex_lock(&lock);
    free(ended[next]);
    ended[next] = comm;
    next = (next + 1) % KEPT;
    pthread_mutex_unlock(&lock);
}

static ncclResult_t destroy(const char *name, ncclComm_t comm, int aborted)
{
    if (!comm)
        return ncclSuccess;
    if (comm->magic != SHIM_MAGIC)
        return shim_fail(ncclInvalidArgument, "%s: comm is not a communicator, or was destroyed", name);
    if (shim_queued(comm))
        return shim_fail(ncclInvalidUsage, "%s: the open group has a call on comm: end the group first",
                         name);
    shim_relaxed_t relaxed = shim_relax();
    if (aborted)
        (void)gyre_comm_abort(comm->gyre, name);
    comm->magic = 0; /* a thread that is busy from here on sees it */
    if (aborted)
        shim_fallback_close(comm, 1); /* ends a call that waits in the other library, too */
    wait_for_others(comm);
    if (!aborted)
        shim_fallback_close(comm, 0);
    gyre_status_t st = GYRE_OK;
    if (comm->team || comm->gyre != comm->job->world)
        st = gyre_comm_destroy(comm->gyre);
    const ncclResult_t result = st == GYRE_OK ? ncclSuccess : shim_status(name, st);
    if (comm->team)
        shim_leave_team(comm->team);
    else
        shim_leave(comm->job, aborted);
    shim_relax_end(&relaxed);
    forget(comm);
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return destroy(__func__, comm, 0);
}
SHIM_API(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return destroy(__func__, comm, 1);
}
SHIM_API(ncclCommAbort);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    const ncclResult_t result = shim_check(__func__, comm);
    if (result != ncclSuccess)
        return result;
    if (flags)
        return shim_fail(ncclInvalidArgument, "%s: revokeFlags is %d: it must be NCCL_REVOKE_DEFAULT, 0",
                         __func__, flags);
    const gyre_status_t st = gyre_comm_abort(comm->gyre, __func__);
    comm->revoked = st == GYRE_OK;
    return st == GYRE_OK ? ncclSuccess : shim_status(__func__, st);
}
SHIM_API(ncclCommRevoke);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm || comm->magic != SHIM_MAGIC || !error)
        return shim_fail(ncclInvalidArgument, "%s: comm is not a communicator, or asyncError is NULL",
                         __func__);
    const gyre_status_t st = gyre_comm_error(comm->gyre);
    *error = st == GYRE_OK ? ncclSuccess : shim_status(__func__, st);
    return ncclSuccess;
}
SHIM_API(ncclCommGetAsyncError);

static ncclResult_t number(const char *name, ncclComm_t comm, int *out, int (*of)(const struct ncclComm *))
{
    if (!comm || comm->magic != SHIM_MAGIC || !out)
        return shim_fail(ncclInvalidArgument,
                         "%s: comm is not a communicator, or the result's pointer is NULL", name);
    *out = of(comm);
    return ncclSuccess;
}

static int size_of(const struct ncclComm *comm)
{
    return comm->size;
}
static int device_of(const struct ncclComm *comm)
{
    return comm->device;
}
static int rank_of(const struct ncclComm *comm)
{
    return comm->rank;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return number(__func__, comm, count, size_of);
}
SHIM_API(ncclCommCount);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return number(__func__, comm, device, device_of);
}
SHIM_API(ncclCommCuDevice);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return number(__func__, comm, rank, rank_of);
}
SHIM_API(ncclCommUserRank);
