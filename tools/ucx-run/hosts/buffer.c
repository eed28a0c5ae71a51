/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/buffer.c: see buffer.h. */
#include "tools/ucx-run/hosts/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

int run_buffer_reserve(run_buffer_t *b, size_t n)
{
    if (b->head == b->tail)
        b->head = b->tail = 0;
    if (b->room - b->tail < n && b->head > 0) {
        memmove(b->data, b->data + b->head, b->tail - b->head);
        b->tail -= b->head;
        b->head = 0;
    }
    return base_grow(&b->data, &b->room, b->tail, n, 1);
}

int run_buffer_add(run_buffer_t *b, const void *data, size_t n)
{
    if (n == 0)
        return 1;
    if (!run_buffer_reserve(b, n))
        return 0;
    memcpy(b->data + b->tail, data, n);
    b->tail += n;
    return 1;
}

void run_buffer_free(run_buffer_t *b)
{
    free(b->data);
    *b = (run_buffer_t){NULL, 0, 0, 0};
}
