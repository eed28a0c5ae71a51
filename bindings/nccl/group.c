/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/group.c: groups. A call inside a group waits for the outermost ncclGroupEnd, which makes the
 * communicators of the group, or enqueues its calls that move data.
 *
 * A thread that drives several ranks may list all calls of one rank before those of the next. Their kernels
 * wait for each other, and a stream takes a limited number of launches ahead. So the calls run in rounds:
 * the first collective of each communicator, then the second one of each, and so on. All ranks of a
 * communicator make its collectives, so two of them have one order on every rank that makes both. Messages do
 * not count: only two ranks make them, and Gyre starts them when the group ends. */
#include "bindings/nccl/shim.h"

#include <stdlib.h>

static _Thread_local struct {
    int depth;
    shim_call_t *calls;
    size_t n, room;
    ncclResult_t error; /* the first one of a call in the group: nothing of it is run */
} group;

/* As NCCL has it, although no call of Gyre returns before it is done. */
static ncclResult_t check_blocking(const shim_call_t *call)
{
    const shim_call_t *first = group.n ? &group.calls[0] : call;
    const int blocking = call->comm ? call->comm->blocking : call->blocking;
    if (blocking == (first->comm ? first->comm->blocking : first->blocking))
        return ncclSuccess;
    return shim_fail(ncclInvalidArgument,
                     "%s: config.blocking of the communicator is %d, and not that of the group's first call, "
                     "%s: use a group for each kind",
                     call->name, blocking, first->name);
}

/* order: [n], the places of the calls in rounds. */
static ncclResult_t in_rounds(shim_call_t *calls, size_t n, size_t **order)
{
    size_t rounds = 0;
    for (size_t i = 0; i < n; i++)
        calls[i].comm->turns = 0;
    for (size_t i = 0; i < n; i++) {
        calls[i].turn = calls[i].comm->turns;
        calls[i].comm->turns += calls[i].kind < SHIM_SEND;
        rounds = calls[i].turn + 1 > rounds ? calls[i].turn + 1 : rounds;
    }
    size_t *first = calloc(rounds + 1, sizeof *first);
    *order = malloc(n * sizeof **order);
    if (!first || !*order) {
        free(first);
        return shim_fail(ncclSystemError, "ncclGroupEnd: no memory for a group of %zu calls", n);
    }
    for (size_t i = 0; i < n; i++)
        first[calls[i].turn + 1]++;
    for (size_t t = 1; t <= rounds; t++)
        first[t] += first[t - 1];
    for (size_t i = 0; i < n; i++)
        (*order)[first[calls[i].turn]++] = i;
    free(first);
    return ncclSuccess;
}

static ncclResult_t enqueue_all(shim_call_t *calls, size_t n)
{
    size_t *order = NULL;
    ncclResult_t result = in_rounds(calls, n, &order);
    /* what is refused here Gyre does not know of: it would run the others */
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = shim_pair(&calls[i], calls, n);
    /* all of them first: what waits for a stream must not come between two ranks' calls */
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = calls[i].factor ? shim_factor(&calls[i]) : ncclSuccess;
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = shim_meet(&calls[i], 0);
    if (result == ncclSuccess) {
        gyre_status_t st = gyre_group_start();
        if (st != GYRE_OK)
            result = shim_status("ncclGroupEnd", st);
        for (size_t i = 0; i < n && result == ncclSuccess; i++)
            result = shim_enqueue(&calls[order[i]]);
        st = gyre_group_end();
        if (st != GYRE_OK && result == ncclSuccess)
            result = shim_status("ncclGroupEnd", st);
    }
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = shim_meet(&calls[i], 1);
    free(order);
    return result;
}

static ncclResult_t run(shim_call_t *calls, size_t n)
{
    size_t making = 0;
    for (size_t i = 0; i < n; i++)
        making += calls[i].kind <= SHIM_SHRINK;
    if (making != 0 && making != n)
        return shim_fail(ncclInvalidUsage,
                         "ncclGroupEnd: %zu of the group's %zu calls make communicators and "
                         "the others move data: use a group for each kind",
                         making, n);
    for (size_t i = 0; i < n; i++)
        if (calls[i].comm)
            atomic_fetch_add(&calls[i].comm->busy, 1);
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < n && result == ncclSuccess; i++) /* another thread may have aborted one */
        if (calls[i].comm)
            result = shim_check(calls[i].name, calls[i].comm);
    if (result == ncclSuccess)
        result = making ? shim_make(calls, n) : enqueue_all(calls, n);
    for (size_t i = 0; i < n; i++)
        if (calls[i].comm)
            atomic_fetch_sub(&calls[i].comm->busy, 1);
    return result;
}

ncclResult_t shim_submit(const shim_call_t *call)
{
    if (group.depth == 0) {
        shim_call_t alone = *call;
        const ncclResult_t result = run(&alone, 1);
        free(alone.members);
        return result;
    }
    const ncclResult_t checked = check_blocking(call);
    if (checked != ncclSuccess) {
        free(call->members);
        return checked;
    }
    if (group.n == group.room) {
        const size_t room = group.room ? 2 * group.room : 16;
        shim_call_t *more = realloc(group.calls, room * sizeof *more);
        if (!more) {
            free(call->members);
            return shim_fail(ncclSystemError, "%s: no memory for one more call in a group", call->name);
        }
        group.calls = more;
        group.room = room;
    }
    group.calls[group.n++] = *call;
    return ncclSuccess;
}

int shim_queued(ncclComm_t comm)
{
    for (size_t i = 0; i < group.n; i++)
        if (group.calls[i].comm == comm)
            return 1;
    return 0;
}

ncclResult_t shim_refused(ncclResult_t result)
{
    if (group.depth > 0 && group.error == ncclSuccess)
        group.error = result;
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0)
        group.error = ncclSuccess;
    return ncclSuccess;
}
SHIM_API(ncclGroupStart);

static void drop(void)
{
    for (size_t i = 0; i < group.n; i++)
        free(group.calls[i].members);
    free(group.calls);
    group.calls = NULL;
    group.n = group.room = 0;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return shim_fail(ncclInvalidUsage, "ncclGroupEnd: there was no ncclGroupStart in this thread");
    if (--group.depth > 0)
        return ncclSuccess;
    ncclResult_t result = group.error;
    if (result == ncclSuccess && group.n)
        result = run(group.calls, group.n);
    drop();
    return result;
}
SHIM_API(ncclGroupEnd);

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    if (group.depth > 0 && --group.depth == 0)
        drop();
    return shim_fail(ncclInvalidUsage,
                     "ncclGroupSimulateEnd: Gyre has no such estimate; gyre-plan has others");
}
SHIM_API(ncclGroupSimulateEnd);
