/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/make.c: makes communicators of Gyre.
 *
 *   ncclCommInitRank                              gyre_comm_create_id: a job for each rank (ids.c)
 *   ncclCommInitAll, or all ranks in one group    gyre_cuda_comms_create: a team
 *   ncclCommSplit, ncclCommShrink of a job        gyre_comm_split, gyre_comm_create_group
 *   of a team, by all its ranks in one group      gyre_cuda_comms_create: a new team
 */
#include "bindings/nccl/shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (comm->rank == 0)
        shim_announce();
    return comm;
}

/* ---- jobs --------------------------------------------------------------------------------------------- */

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

/* Takes `gyre` over: one of `job`, which was held for it. */
static ncclResult_t open_in_job(const shim_call_t *call, gyre_comm_t *gyre, shim_job_t *job, int device)
{
    ncclResult_t result = prepare(call, gyre, device);
    ncclComm_t comm = result == ncclSuccess ? new_comm(gyre, device) : NULL;
    if (result == ncclSuccess && !comm)
        result = shim_no_memory(call->name);
    if (comm) {
        comm->job = job;
        comm->blocking = call->blocking;
        result = shim_fallback_open(&comm, 1);
    }
    if (result == ncclSuccess) {
        *call->out = comm;
        return ncclSuccess;
    }
    (void)gyre_comm_abort(gyre, call->name);
    if (gyre != job->world)
        (void)gyre_comm_destroy(gyre);
    shim_leave(job, 1);
    free(comm);
    return result;
}

static ncclResult_t init_one(const shim_call_t *call)
{
    shim_job_t *job = NULL;
    const ncclResult_t result = shim_join(call, &job);
    return result == ncclSuccess ? open_in_job(call, job->world, job, call->device) : result;
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
    shim_hold(comm->job);
    const ncclResult_t result = open_in_job(call, gyre, comm->job, comm->device);
    if (result == ncclSuccess && call->abort && (*call->out)->size != call->nranks)
        return shim_fail(
            ncclRemoteError,
            "%s: %d ranks are left, and %d should be: newcomm is made; destroy it, or go on with it",
            call->name, (*call->out)->size, call->nranks);
    return result;
}

/* ---- teams -------------------------------------------------------------------------------------------- */

void shim_leave_team(shim_team_t *team)
{
    if (atomic_fetch_sub(&team->users, 1) == 1)
        free(team);
}

static ncclResult_t make_team(const char *name, int n, const int *devices, int blocking,
                              ncclComm_t *const *out)
{
    gyre_comm_t *gyre[SHIM_TEAM];
    ncclComm_t comms[SHIM_TEAM];
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
        comms[r]->team = team;
        comms[r]->blocking = blocking;
        *out[r] = comms[r];
    }
    return ncclSuccess;
}

ncclResult_t shim_make_team(const char *name, int n, const int *devices, int blocking, ncclComm_t *const *out)
{
    shim_relaxed_t relaxed = shim_relax();
    const ncclResult_t result = make_team(name, n, devices, blocking, out);
    shim_relax_end(&relaxed);
    return result;
}

/* Calls of one id: all ranks, each once. */
static ncclResult_t init_team(shim_call_t *calls, size_t n, const shim_call_t *first)
{
    int devices[SHIM_TEAM];
    ncclComm_t *out[SHIM_TEAM];
    for (size_t i = 0; i < n; i++) {
        shim_call_t *call = &calls[i];
        if (call->kind != SHIM_INIT || memcmp(&call->id, &first->id, sizeof call->id) != 0)
            continue;
        call->done = 1;
        devices[call->rank] = call->device;
        out[call->rank] = call->out;
    }
    return shim_make_team(first->name, first->nranks, devices, first->blocking, out);
}

static int before(const shim_call_t *a, const shim_call_t *b)
{
    return a->key < b->key || (a->key == b->key && a->comm->rank < b->comm->rank);
}

/* Calls of the ranks of one team: they are all that the team has or, of a shrink, all that it keeps. */
static ncclResult_t remake_team(shim_call_t *calls, size_t n, const shim_call_t *first)
{
    shim_call_t *mine[SHIM_TEAM];
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
        int devices[SHIM_TEAM], size = 0;
        ncclComm_t *out[SHIM_TEAM];
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
            result = shim_make_team(first->name, size, devices, first->blocking, out);
    }
    return result;
}

/* ---- groups ------------------------------------------------------------------------------------------- */

/* Ranks of jobs wait for each other, also two of this process. So each has a thread of its own, which makes
 * the calls on one communicator in order, or one call of ncclCommInitRank. */
typedef struct {
    shim_call_t *first, *end;
    pthread_t thread;
    int started;
    ncclResult_t result;
    char text[SHIM_TEXT];
} lane_t;

static void *run_lane(void *argument)
{
    lane_t *lane = argument;
    shim_relaxed_t relaxed = shim_relax();
    for (shim_call_t *call = lane->first; call < lane->end && lane->result == ncclSuccess; call++)
        if (call->lane == lane->first->lane)
            lane->result = call->kind == SHIM_INIT ? init_one(call) : remake_in_job(call);
    shim_relax_end(&relaxed);
    if (lane->result != ncclSuccess)
        (void)snprintf(lane->text, sizeof lane->text, "%s", ncclGetLastError(NULL));
    return NULL;
}

/* The calls that are left, which are of jobs. lanes: [n]. */
static ncclResult_t run_lanes(shim_call_t *calls, size_t n, lane_t *lanes)
{
    ncclResult_t result = ncclSuccess;
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        if (calls[i].done)
            continue;
        lanes[count] = (lane_t){.first = &calls[i], .end = calls + n};
        count++;
        for (size_t j = i; j < n; j++)
            if (j == i || (calls[i].comm && calls[j].comm == calls[i].comm)) {
                calls[j].lane = count;
                calls[j].done = 1;
            }
    }
    for (int k = 1; k < count; k++)
        lanes[k].started = pthread_create(&lanes[k].thread, NULL, run_lane, &lanes[k]) == 0;
    for (int k = 0; k < count; k++) {
        if (lanes[k].started)
            (void)pthread_join(lanes[k].thread, NULL);
        else /* the first one; another one has no thread, and ends at its deadline */
            (void)run_lane(&lanes[k]);
        if (lanes[k].result != ncclSuccess && result == ncclSuccess)
            result = shim_repeat(lanes[k].result, lanes[k].text);
    }
    return result;
}

/* Ranks that the group makes of call's id. */
static ncclResult_t count_ranks(const shim_call_t *calls, size_t n, const shim_call_t *call, int *ranks)
{
    *ranks = 0;
    for (size_t i = 0; i < n; i++) {
        const shim_call_t *other = &calls[i];
        if (other->kind != SHIM_INIT || memcmp(&other->id, &call->id, sizeof call->id) != 0)
            continue;
        ++*ranks;
        if (other != call && (other->nranks != call->nranks || other->rank == call->rank))
            return shim_fail(ncclInvalidArgument,
                             "%s: the group makes rank %d of %d and rank %d of %d with one id", call->name,
                             call->rank, call->nranks, other->rank, other->nranks);
    }
    return ncclSuccess;
}

ncclResult_t shim_make(shim_call_t *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        shim_call_t *call = &calls[i];
        ncclResult_t result = ncclSuccess;
        int ranks = 0;
        if (call->done)
            continue;
        if (call->kind == SHIM_INIT)
            result = count_ranks(calls, n, call, &ranks);
        else if (call->comm->team)
            result = remake_team(calls, n, call);
        if (result == ncclSuccess && ranks > 0 && ranks == call->nranks && ranks <= SHIM_TEAM)
            result = init_team(calls, n, call);
        if (result != ncclSuccess)
            return result;
    }
    lane_t *lanes = calloc(n, sizeof *lanes);
    if (!lanes)
        return shim_no_memory(calls[0].name);
    const ncclResult_t result = run_lanes(calls, n, lanes);
    free(lanes);
    return result;
}
