/* comm/boot/stats.c: see stats.h. */
#include "comm/boot/stats.h"

#include <string.h>

#include "comm/boot/tree.h"

static size_t pair_bytes(const comm_boot_t *boot)
{
    size_t bytes = 0;
    for (int b = 0; b < BOOT_KV_BUCKETS; b++)
        for (const boot_pair_t *p = boot->pairs[b]; p != NULL; p = p->next)
            bytes += sizeof(*p) + strlen(p->key) + 1 + p->bytes;
    return bytes;
}

void comm_boot_stats(comm_boot_t *boot, comm_boot_stats_t *out)
{
    comm_boot_stats_t s = {.parent = -1};
    pthread_mutex_lock(&boot->lock);
    s.messages = boot->past_messages;
    s.bytes = sizeof(*boot) + pair_bytes(boot) + (size_t)boot->deaths_n * sizeof(*boot->deaths) +
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
    pthread_mutex_unlock(&boot->lock);
    *out = s;
}
