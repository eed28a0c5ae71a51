/* SPDX-License-Identifier: Apache-2.0 */
/* base/grow.h: arrays that grow as they are filled. */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* array: the address of a pointer to *room elements of `size` bytes from malloc, or of a NULL with *room 0.
 * 1: there is room for `more` elements after the first `count`; the array may have moved, and has then at
 * least doubled. 0: no memory, and nothing has changed. */
static inline int base_grow(void *array, size_t *room, size_t count, size_t more, size_t size)
{
    size_t wanted, doubled, bytes;
    void *old, *now;
    if (count <= *room && more <= *room - count)
        return 1;
    if (!base_add(count, more, &wanted))
        return 0;
    if (base_mul(*room, 2, &doubled) && base_add(doubled, 16, &doubled))
        wanted = base_max_size(wanted, doubled);
    if (!base_mul(wanted, size, &bytes) || bytes > PTRDIFF_MAX) /* no object is larger */
        return 0;
    memcpy(&old, array, sizeof old); /* whatever it points to */
    now = realloc(old, bytes);
    if (now == NULL)
        return 0;
    memcpy(array, &now, sizeof now);
    *room = wanted;
    return 1;
}

#endif
