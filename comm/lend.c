/* SPDX-License-Identifier: Apache-2.0 */
/* comm/lend.c: see the header. */
#include "comm/lend.h"

#include <stdio.h>

#include "base/device/rdma.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/link.h"

int comm_group_has_network(const comm_group_t *group)
{
    return group->network_state != NULL;
}

int comm_group_is_networked(const comm_group_t *group, int peer)
{
    return peer != group->rank && comm_group_has_network(group) &&
           (group->local_of[peer] < 0 || comm_group_shuns_memory(group));
}

static gyre_status_t lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                          comm_lent_t *out)
{
    base_rdma_order_t order;
    gyre_status_t status = base_device_rdma_order(device, &order);

    if (status != GYRE_OK)
        return status;
    out->flush = order == BASE_RDMA_FLUSH;
    if (order == BASE_RDMA_BLIND) {
        snprintf(out->why, sizeof out->why, "this device need not see what adapters write to its memory");
        return GYRE_OK;
    }
    return group->network->lend(group, device, base, bytes, out);
}

gyre_status_t comm_group_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                              comm_lent_t *out)
{
    gyre_status_t status = GYRE_OK;
    const comm_rdma_t want = (comm_rdma_t)base_setting_int(SET_CUDA_RDMA);

    *out = (comm_lent_t){0};
    if (want == COMM_RDMA_OFF)
        snprintf(out->why, sizeof out->why, "GYRE_CUDA_RDMA=off");
    else if (!comm_group_has_network(group))
        snprintf(out->why, sizeof out->why, "no rank is reached over a network");
    else
        status = lend(group, device, base, bytes, out);
    if (status == GYRE_OK && !out->works && (want == COMM_RDMA_DMABUF || want == COMM_RDMA_PEERMEM))
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "GYRE_CUDA_RDMA=%s is not possible: %s",
                               base_setting_string(SET_CUDA_RDMA), out->why);
    return status;
}
