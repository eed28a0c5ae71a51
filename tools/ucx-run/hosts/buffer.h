/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/buffer.h: bytes that wait: added at the end, taken from the front. */
#ifndef TOOLS_UCX_RUN_HOSTS_BUFFER_H
#define TOOLS_UCX_RUN_HOSTS_BUFFER_H

#include <stddef.h>

typedef struct {
    char *data; /* owned */
    size_t head, tail, room;
} run_buffer_t; /* all zero is empty; data[head, tail) waits */

static inline size_t run_buffer_length(const run_buffer_t *b)
{
    return b->tail - b->head;
}
static inline char *run_buffer_front(const run_buffer_t *b)
{
    return b->data + b->head;
}
/* Makes room for n bytes at data + tail; the caller writes there and moves tail. 0 if memory is exhausted. */
int run_buffer_reserve(run_buffer_t *b, size_t n);
int run_buffer_add(run_buffer_t *b, const void *data, size_t n);
void run_buffer_free(run_buffer_t *b);

#endif
