/* SPDX-License-Identifier: Apache-2.0 */
/* comm/lend.h: device memory that a group's transport sends from and receives into, without a copy in host
 * memory.
 *
 * Two transports can do this: verbs that have registered the memory (GPUDirect RDMA), and a UCX that knows
 * CUDA memory.
 *
 * Only memory that Gyre itself allocates is lent. Gyre decides when that memory is freed, as with windows
 * (comm/verbs/memory.c), so no registration outlives memory that the program has freed. The program's own
 * buffers are copied from and to lent memory. On the device the copy costs a hundredth of the network's time.
 *
 * Only messages longer than COMM_LEND_LEAST may be made from lent memory, and only where both ends lend. The
 * host never touches such messages, on any transport. A trial transfer decides whether lending works, never a
 * machine's claim. */
#ifndef COMM_LEND_H
#define COMM_LEND_H

#include "base/device/device.h"
#include "comm/transport.h"

enum { COMM_LEND_LEAST = 64 << 10 };

/* As the words of GYRE_CUDA_RDMA. */
typedef enum { COMM_RDMA_AUTO = 0, COMM_RDMA_DMABUF, COMM_RDMA_PEERMEM, COMM_RDMA_OFF } comm_rdma_t;

typedef struct {
    int works;
    int flush;     /* 1: base_device_rdma_flush before the device looks at what came */
    char why[440]; /* how, or why not */
} comm_lent_t;

/* Lends the group [base, + bytes) of `device`, one range at a time. By the thread that drives the group.
 * Returns OK even if lending does not work (out->works is 0). UNSUPPORTED, quiet: not in the way that
 * GYRE_CUDA_RDMA names. */
gyre_status_t comm_group_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                              comm_lent_t *out);

/* 1: some rank of the group is reached over a network; the same on all ranks. */
int comm_group_has_network(const comm_group_t *group);
/* 1: `peer` is. */
int comm_group_is_networked(const comm_group_t *group, int peer);

#endif
