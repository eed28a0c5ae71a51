/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/comms.c: communicators.
 *
 *   ncclCommInitRank, one rank of this process    gyre_comm_create_id: a job, which lives as long as the last
 *                                                 communicator that was made of it
 *   ncclCommInitAll, or all ranks in one group    gyre_cuda_comms_create: a team
 *   ncclCommSplit, ncclCommShrink of a job        gyre_comm_split, gyre_comm_create_group
 *   of a team, by all its ranks in one group      gyre_cuda_comms_create: a new team
 */
#include "bindings/nccl/shim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* gyre: owned by the communicator from here on. */
static ncclComm_t new_comm(gyre_comm_t *gyre, int device)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->magic = SHIM_MAGIC;
    comm->gyre = gyre;
    comm->rank = gyre_comm_rank(gyre);
    comm->size = gyre_comm_size(gyre);
    comm->device = device;
    return comm;
}

/* ---- jobs --------------------------------------------------------------------------------------------- */

static void leave_job(shim_job_t *job)
{
    if (atomic_fetch_sub(&job->users, 1) > 1)
        return;
    (void)gyre_finalize(job->world);
    free(job);
}

/* Maps the devices of the ranks into each other, on call->device. */
static ncclResult_t prepare(const shim_call_t *call, gyre_comm_t *gyre, int device)
{
    int before;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess)
        error = cudaSetDevice(device);
    if (error != cudaSuccess)
        return shim_cuda(call->name, "cudaSetDevice", error);
    const gyre_status_t st = gyre_comm_prepare_cuda(gyre);
    (void)cudaSetDevice(before);
    return st == GYRE_OK ? ncclSuccess : shim_status(call->name, st);
}

/* Takes `gyre` over: one of `job`, whose users already count it. */
static ncclResult_t open_in_job(const shim_call_t *call, gyre_comm_t *gyre, shim_job_t *job, int device)
{
    ncclResult_t result = prepare(call, gyre, device);
    ncclComm_t comm = result == ncclSuccess ? new_comm(gyre, device) : NULL;
    if (result == ncclSuccess && !comm)
        result = shim_no_memory(call->name);
    if (comm) {
        comm->job = job;
        result = shim_fallback_open(&comm, 1);
    }
    if (result == ncclSuccess) {
        *call->out = comm;
        return ncclSuccess;
    }
    (void)gyre_comm_abort(gyre, call->name);
    if (gyre != job->world)
        (void)gyre_comm_destroy(gyre);
    leave_job(job);
    free(comm);
    return result;
}

static ncclResult_t init_one(const shim_call_t *call)
{
    shim_job_t *job = calloc(1, sizeof *job);
    if (!job)
        return shim_no_memory(call->name);
    const ncclResult_t result = shim_create_by_id(call, &job->world);
    if (result != ncclSuccess) {
        free(job);
        return result;
    }
    atomic_store(&job->users, 1);
    return open_in_job(call, job->world, job, call->device);
}

static uint64_t tag_of(const int *members, int n)
{
    uint64_t tag = 14695981039346656037u;
    for (int i = 0; i < n; i++)
        tag = (tag ^ (unsigned)members[i]) * 1099511628211u;
    return tag;
}

/* The job goes on with the ranks that are left, which must be those that the program wants. */
static gyre_status_t shrink_job(const shim_call_t *call, gyre_comm_t **gyre)
{
    (void)gyre_comm_abort(call->comm->gyre, call->name);
    const gyre_status_t st = gyre_comm_shrink(call->comm->gyre, gyre);
    if (st == GYRE_OK)
        call->comm->job->world = *gyre;
    return st;
}

static ncclResult_t remake_in_job(const shim_call_t *call)
{
    ncclComm_t comm = call->comm;
    gyre_comm_t *gyre = NULL;
    gyre_status_t st;
    if (call->kind == SHIM_SPLIT)
        st = gyre_comm_split(comm->gyre, call->color, call->key, &gyre);
    else if (call->abort)
        st = shrink_job(call, &gyre);
    else
        st = gyre_comm_create_group(comm->gyre, call->members, call->nranks,
                                    tag_of(call->members, call->nranks), &gyre);
    if (st != GYRE_OK)
        return shim_status(call->name, st);
    if (!gyre) {
        *call->out = NULL;
        return ncclSuccess;
    }
    atomic_fetch_add(&comm->job->users, 1);
    const ncclResult_t result = open_in_job(call, gyre, comm->job, comm->device);
    if (result == ncclSuccess && call->abort && (*call->out)->size != call->nranks)
        return shim_fail(
            ncclRemoteError,
            "%s: %d ranks are left, and %d should be: newcomm is made; destroy it, or go on with it",
            call->name, (*call->out)->size, call->nranks);
    return result;
}

/* ---- teams -------------------------------------------------------------------------------------------- */

static void leave_team(shim_team_t *team)
{
    if (atomic_fetch_sub(&team->users, 1) == 1)
        free(team);
}

/* Makes rank r on devices[r], into *out[r]. */
static ncclResult_t make_team(const char *name, int n, const int *devices, ncclComm_t *const *out)
{
    gyre_comm_t *gyre[64];
    ncclComm_t comms[64];
    if (n > 64)
        return shim_fail(ncclInvalidUsage, "%s: %d ranks in one process; Gyre makes 64 at most", name, n);
    shim_team_t *team = calloc(1, sizeof *team);
    if (!team)
        return shim_no_memory(name);
    const gyre_status_t st = gyre_cuda_comms_create(n, devices, gyre);
    if (st != GYRE_OK) {
        free(team);
        return shim_status(name, st);
    }
    int made = 0;
    while (made < n && (comms[made] = new_comm(gyre[made], devices[made])) != NULL)
        made++;
    ncclResult_t result = made == n ? shim_fallback_open(comms, n) : shim_no_memory(name);
    if (result != ncclSuccess) {
        for (int r = 0; r < n; r++) {
            (void)gyre_comm_destroy(gyre[r]);
            if (r < made)
                free(comms[r]);
        }
        free(team);
        return result;
    }
    team->n = n;
    atomic_store(&team->users, n);
    for (int r = 0; r < n; r++) {
        team->devices[r] = devices[r];
        comms[r]->team = team;
        *out[r] = comms[r];
    }
    return ncclSuccess;
}

/* Calls of one id: all ranks, each once. */
static ncclResult_t init_team(shim_call_t *calls, size_t n, const shim_call_t *first)
{
    int devices[64];
    ncclComm_t *out[64] = {NULL};
    for (size_t i = 0; i < n; i++) {
        shim_call_t *call = &calls[i];
        if (call->kind != SHIM_INIT || memcmp(&call->id, &first->id, sizeof call->id) != 0)
            continue;
        if (call->nranks != first->nranks || out[call->rank])
            return shim_fail(ncclInvalidArgument,
                             "%s: the group makes rank %d of %d and rank %d of %d with one id", call->name,
                             call->rank, call->nranks, first->rank, first->nranks);
        call->done = 1;
        devices[call->rank] = call->device;
        out[call->rank] = call->out;
    }
    return make_team(first->name, first->nranks, devices, out);
}

static int before(const shim_call_t *a, const shim_call_t *b)
{
    return a->key < b->key || (a->key == b->key && a->comm->rank < b->comm->rank);
}

/* Calls of the ranks of one team: they are all that the team has or, of a shrink, all that it keeps. */
static ncclResult_t remake_team(shim_call_t *calls, size_t n, const shim_call_t *first)
{
    shim_call_t *mine[64];
    const shim_team_t *team = first->comm->team;
    const int want = first->kind == SHIM_SPLIT ? team->n : first->nranks;
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        shim_call_t *call = &calls[i];
        if (call->kind != first->kind || call->comm->team != team || call->done)
            continue;
        for (int r = 0; r < found; r++)
            if (mine[r]->comm == call->comm)
                return shim_fail(ncclInvalidUsage, "%s: rank %d calls it twice in one group: use two groups",
                                 call->name, call->comm->rank);
        if (call->kind == SHIM_SHRINK &&
            (call->nranks != want || memcmp(call->members, first->members, (size_t)want * sizeof(int)) != 0))
            return shim_fail(ncclInvalidArgument, "%s: ranks %d and %d exclude other ranks", call->name,
                             first->comm->rank, call->comm->rank);
        mine[found++] = call;
    }
    if (found != want)
        return shim_fail(ncclInvalidUsage,
                         "%s: %d of %d ranks of this process call it: all of them must, in one "
                         "group of one thread",
                         first->name, found, want);
    for (int i = 1; i < found; i++) /* by key and rank; all keys of a shrink are 0 */
        for (int j = i; j > 0 && before(mine[j], mine[j - 1]); j--) {
            shim_call_t *call = mine[j];
            mine[j] = mine[j - 1];
            mine[j - 1] = call;
        }
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < found; i++) {
        int devices[64], size = 0;
        ncclComm_t *out[64];
        const int color = mine[i]->color;
        if (mine[i]->done)
            continue;
        for (int j = i; j < found; j++)
            if (!mine[j]->done && mine[j]->color == color) {
                if (mine[j]->abort)
                    (void)gyre_comm_abort(mine[j]->comm->gyre, mine[j]->name);
                mine[j]->done = 1;
                devices[size] = mine[j]->comm->device;
                out[size++] = mine[j]->out;
            }
        if (color < 0)
            for (int j = 0; j < size; j++)
                *out[j] = NULL;
        else if (result == ncclSuccess)
            result = make_team(first->name, size, devices, out);
    }
    return result;
}

ncclResult_t shim_make(shim_call_t *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        shim_call_t *call = &calls[i];
        ncclResult_t result = ncclSuccess;
        int together = 0;
        if (call->done)
            continue;
        if (call->kind == SHIM_INIT)
            for (size_t j = i; j < n; j++)
                together +=
                    calls[j].kind == SHIM_INIT && memcmp(&calls[j].id, &call->id, sizeof call->id) == 0;
        if (call->kind == SHIM_INIT && together == call->nranks)
            result = init_team(calls, n, call);
        else if (call->kind == SHIM_INIT && together > 1)
            result = shim_fail(ncclInvalidUsage,
                               "%s: this process makes %d of %d ranks. Gyre makes all ranks of a "
                               "communicator in one process, or one rank in each",
                               call->name, together, call->nranks);
        else if (call->kind == SHIM_INIT)
            result = init_one(call);
        else if (call->comm->team)
            result = remake_team(calls, n, call);
        else
            result = remake_in_job(call);
        call->done = 1;
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

/* ---- NCCL's calls ------------------------------------------------------------------------------------- */

static ncclResult_t check_config(const char *name, const ncclConfig_t *config)
{
    if (config && (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, netName)))
        return shim_fail(ncclInvalidArgument, "%s: config was not initialised with NCCL_CONFIG_INITIALIZER",
                         name);
    return ncclSuccess;
}

static ncclResult_t init(const char *name, ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config)
{
    shim_call_t call = {
        .kind = SHIM_INIT, .name = name, .out = out, .rank = rank, .nranks = nranks, .id = *id};
    if (!out)
        return shim_fail(ncclInvalidArgument, "%s: comm is NULL", name);
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return shim_fail(ncclInvalidArgument,
                         "%s: rank %d of %d ranks: at least 1 rank, and ranks count from 0", name, rank,
                         nranks);
    const ncclResult_t result = check_config(name, config);
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
    int list[64], count = 0;
    ncclComm_t *out[64];
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return shim_cuda(__func__, "there is no CUDA device to work on: cudaGetDeviceCount", error);
    if (!comms || n < 1)
        return shim_fail(ncclInvalidArgument, "%s: ndev is %d, or comm is NULL: at least one device",
                         __func__, n);
    if (n > 64 || (!devices && n > count))
        return shim_fail(ncclInvalidUsage,
                         "%s: ndev is %d: this machine has %d devices, and Gyre makes 64 ranks at "
                         "most",
                         __func__, n, count);
    for (int r = 0; r < n; r++) {
        list[r] = devices ? devices[r] : r;
        out[r] = &comms[r];
    }
    return make_team(__func__, n, list, out);
}
SHIM_API(ncclCommInitAll);

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    ncclResult_t result = shim_check(__func__, comm);
    if (result == ncclSuccess && !out)
        result = shim_fail(ncclInvalidArgument, "%s: newcomm is NULL", __func__);
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = shim_fail(ncclInvalidArgument, "%s: color %d is negative and not NCCL_SPLIT_NOCOLOR",
                           __func__, color);
    if (result == ncclSuccess)
        result = check_config(__func__, config);
    if (result == ncclSuccess)
        result = shim_submit(&(shim_call_t){
            .kind = SHIM_SPLIT, .name = __func__, .comm = comm, .out = out, .color = color, .key = key});
    return shim_refused(result);
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
    if (result == ncclSuccess)
        result = check_config(__func__, config);
    if (result != ncclSuccess)
        return shim_refused(result);
    call.abort = flags == NCCL_SHRINK_ABORT;
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

void shim_quiet(ncclComm_t comm)
{
    while (atomic_load(&comm->busy))
        usleep(100);
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
    if (aborted)
        (void)gyre_comm_abort(comm->gyre, name);
    shim_quiet(comm);
    comm->magic = 0;
    shim_fallback_close(comm, aborted);
    gyre_status_t st = GYRE_OK;
    if (comm->team || comm->gyre != comm->job->world)
        st = gyre_comm_destroy(comm->gyre);
    const ncclResult_t result = st == GYRE_OK ? ncclSuccess : shim_status(name, st);
    if (comm->team)
        leave_team(comm->team);
    else
        leave_job(comm->job);
    free(comm->scales);
    free(comm);
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
