/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/ids.c: unique ids, and the job that the processes with one id make. */
#include "bindings/nccl/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(gyre_unique_id_t), "an id of Gyre has the size of NCCL's");

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    gyre_unique_id_t made;
    if (!id)
        return shim_fail(ncclInvalidArgument, "%s: uniqueId is NULL", __func__);
    const gyre_status_t st = gyre_get_unique_id(&made);
    if (st != GYRE_OK)
        return shim_status(__func__, st);
    memcpy(id, &made, sizeof made);
    return ncclSuccess;
}
SHIM_API(ncclGetUniqueId);

/* Ids with which a thread of this process is making its rank now. A second thread with the same one gets an
 * error, and the first one stops waiting for it. */
typedef struct making {
    ncclUniqueId id;
    atomic_int twice;
    struct making *next;
} making_t;
static making_t *making;
static pthread_mutex_t making_lock = PTHREAD_MUTEX_INITIALIZER;

static ncclResult_t twice(const shim_call_t *call)
{
    return shim_fail(ncclInvalidUsage,
                     "%s: two threads of this process gave the same id. Gyre makes the ranks of "
                     "one process together: by ncclCommInitAll, or by one thread in one group",
                     call->name);
}

static int enter_id(making_t *mine)
{
    int first = 1;
    pthread_mutex_lock(&making_lock);
    for (making_t *other = making; other; other = other->next)
        if (memcmp(&other->id, &mine->id, sizeof mine->id) == 0) {
            atomic_store(&other->twice, 1);
            first = 0;
        }
    mine->next = making;
    making = mine;
    pthread_mutex_unlock(&making_lock);
    return first;
}

static void leave_id(making_t *mine)
{
    pthread_mutex_lock(&making_lock);
    making_t **at = &making;
    while (*at != mine)
        at = &(*at)->next;
    *at = mine->next;
    pthread_mutex_unlock(&making_lock);
}

/* What a request writes: it outlives a call that gives up. */
typedef struct {
    gyre_comm_t *world;
    gyre_request_t *request;
} pending_t;

ncclResult_t shim_create_by_id(const shim_call_t *call, gyre_comm_t **world)
{
    making_t mine = {.id = call->id};
    gyre_unique_id_t id;
    pending_t *pending = calloc(1, sizeof *pending);
    if (!pending)
        return shim_no_memory(call->name);
    memcpy(&id, &call->id, sizeof id);
    if (!enter_id(&mine)) {
        leave_id(&mine);
        free(pending);
        return twice(call);
    }
    gyre_status_t st =
        gyre_comm_icreate_id(&id, call->rank, call->nranks, NULL, &pending->world, &pending->request);
    while (st == GYRE_OK && (st = gyre_test(&pending->request)) == GYRE_IN_PROGRESS &&
           !atomic_load(&mine.twice)) {
        usleep(200);
        st = GYRE_OK;
    }
    leave_id(&mine);
    if (st == GYRE_IN_PROGRESS)
        return twice(call); /* the request ends by itself, at its deadline, and keeps *pending */
    *world = pending->world;
    free(pending);
    return st == GYRE_OK ? ncclSuccess : shim_status(call->name, st);
}
