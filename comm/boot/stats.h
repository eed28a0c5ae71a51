/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/stats.h: what the bootstrap costs a rank: for tests and for gyre-perf init. */
#ifndef COMM_BOOT_STATS_H
#define COMM_BOOT_STATS_H

#include "comm/boot/bootstrap.h"

typedef struct {
    int parent;        /* rank at the other end of the connection towards rank 0; -1: none */
    int connections;   /* open now */
    uint64_t messages; /* sent and received since the join began, its handshakes included */
    size_t bytes;      /* memory held now: tree, connections with their buffers */
} comm_boot_stats_t;

void comm_boot_stats(comm_boot_t *boot, comm_boot_stats_t *out);

#endif
