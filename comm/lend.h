/* comm/lend.h: device memory from which a group's transport sends, and into which it receives, without the host's memory
 * between: verbs that have registered it (GPUDirect RDMA), or a UCX that knows CUDA memory.
 *
 * Only memory that Gyre itself allocates is lent: its end is ours to bring about, as that of windows (comm/verbs/memory.c), so no
 * registration is ever left of memory that the program has freed. The program's own buffers are copied from and to it, which on
 * the device costs a hundredth of what the network does.
 *
 * Messages longer than COMM_LEND_LEAST alone may be made from lent memory, and only where both ends lend: those are never
 * touched by the host, on any transport. Which is found out by doing it once, never from what a machine claims. */
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

/* Lends the group [base, + bytes) of `device`, one range at a time. OK if not, too (out->works). UNSUPPORTED, quiet: not in the
 * way that GYRE_CUDA_RDMA names. By the thread that drives the group. */
gyre_status_t comm_group_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                              comm_lent_t *out);

/* 1: some rank of the group is reached over a network; the same on all ranks. */
int comm_group_has_network(const comm_group_t *group);
/* 1: `peer` is. */
int comm_group_is_networked(const comm_group_t *group, int peer);

#endif
