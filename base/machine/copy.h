/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/copy.h: memcpy that is fast wherever the two places lie. */
#ifndef BASE_MACHINE_COPY_H
#define BASE_MACHINE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* From this size on the C library and the kernel copy by `rep movsb`. */
#define BASE_COPY_LONG ((size_t)2048)

/* 1: within their pages `to` begins 1 to 31 bytes after `from`, where AMD's Zen 3 and 4 do `rep movsb` at a
 * tenth of its speed: the processor takes each load for one of what it has just stored (4K aliasing; glibc's
 * bug 30994, mended in 2.39). Two blocks of the heap lie so if they were allocated one after the other and
 * the first is a multiple of a page long: malloc puts 16 bytes between them. */
static inline int base_copy_trips(uintptr_t to, uintptr_t from)
{
#if defined(__x86_64__)
    return ((to - from - 1) & 4095) < 31;
#else
    (void)to;
    (void)from;
    return 0;
#endif
}

/* memcpy from the end to the beginning, without `rep movsb`. */
void base_copy_backward(void *to, const void *from, size_t bytes);

/* memcpy. */
static inline void base_copy(void *to, const void *from, size_t bytes)
{
    if (bytes >= BASE_COPY_LONG && base_copy_trips((uintptr_t)to, (uintptr_t)from))
        base_copy_backward(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

#endif
