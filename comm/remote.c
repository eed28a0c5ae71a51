/* SPDX-License-Identifier: Apache-2.0 */
/* comm/remote.c: see the header. */
#include "comm/remote.h"

#include <stdlib.h>

#include "base/error.h"
#include "comm/link.h"
#include "comm/memory/memory.h"

gyre_status_t comm_remote_check(const comm_group_t *group)
{
    if (group->network_state && group->network->expose)
        return GYRE_OK;
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the transport %s cannot reach memory of other hosts",
                           group->network ? group->network->name : "shm");
}

gyre_status_t comm_remote_expose(comm_group_t *group, void *base, size_t bytes, comm_remote_key_t *key,
                                 comm_remote_t **out)
{
    return group->network->expose(group, base, bytes, key, out);
}

gyre_status_t comm_remote_know(comm_group_t *group, comm_remote_t *remote, const comm_remote_key_t *keys)
{
    return group->network->know(group, remote, keys);
}

void comm_remote_conceal(comm_group_t *group, comm_remote_t *remote)
{
    if (group->network_state) /* else it has ended with that */
        group->network->conceal(group, remote);
}

gyre_status_t comm_remote_retire(comm_retired_t *retired)
{
    for (int t = 0; t < COMM_TRANSPORTS && comm_transports[t]; t++)
        if (comm_transports[t]->retire && comm_transports[t]->retire(retired))
            return GYRE_OK;
    const gyre_status_t status = comm_mem_free(retired->base);
    free(retired);
    return status;
}

gyre_status_t comm_remote_move(comm_group_t *group, comm_remote_t *remote, int peer, int writes,
                               size_t offset, void *local, size_t bytes)
{
    return group->network->move(group, remote, peer, writes, offset, local, bytes);
}

gyre_status_t comm_remote_flush(comm_group_t *group, int peer)
{
    return group->network->flush(group, peer);
}
