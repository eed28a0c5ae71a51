/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/stats.c: see stats.h. */
#include "comm/boot/stats.h"

#include "comm/boot/tree.h"

void comm_boot_stats(comm_boot_t *boot, comm_boot_stats_t *out)
{
    comm_boot_stats_t s = {.parent = -1};
    boot_lock(boot);
    s.messages = boot->past_messages;
    s.bytes = sizeof(*boot) + (size_t)boot->deaths_n * sizeof(*boot->deaths) +
              (size_t)boot->aborts_n * sizeof(*boot->aborts);
    for (int i = 0; i < boot->edges_n; i++) {
        const boot_edge_t *edge = &boot->edges[i];
        const boot_conn_t *conn = &edge->conn;
        s.connections += edge->open;
        s.messages += conn->count_in + conn->count_out;
        s.bytes += sizeof(*edge) + conn->in.cap + conn->out.cap + conn->message.cap + edge->steps.cap;
        if (edge->rank < boot->rank)
            s.parent = edge->rank;
    }
    boot_unlock(boot);
    *out = s;
}
