/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine/copy.h"

enum { WIDTH = 16, VECTORS = 8, STRIDE = VECTORS * WIDTH, LINE = 64 };

typedef unsigned char vector_t __attribute__((vector_size(WIDTH), aligned(1), may_alias));

/* Backward, no load is of an address after one that has just been stored to. A stride's loads come before its
 * stores; stores do not cross lines. */
void base_copy_backward(void *to, const void *from, size_t bytes)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    const size_t over = (uintptr_t)(out + bytes) % LINE, tail = over < bytes ? over : bytes;
    size_t left = bytes - tail;
    memcpy(out + left, in + left, tail);
    while (left >= STRIDE) {
        vector_t v[VECTORS];
        left -= STRIDE;
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++)
            v[i] = *(const vector_t *)(in + left + i * WIDTH);
#pragma GCC unroll 8
        for (int i = VECTORS - 1; i >= 0; i--)
            *(vector_t *)(out + left + i * WIDTH) = v[i];
    }
    memcpy(out, in, left);
}
