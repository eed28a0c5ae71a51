/* SPDX-License-Identifier: Apache-2.0 */
/* base/lines.h: who has written last to a cache line.
 *
 * On some processors a store takes several times as long to a line that this core has written and another has
 * read since than to one that the other has written last. There a reader of a message that it alone reads
 * writes to its lines, too: it takes them. On an AMD EPYC 128 KiB were stored at 6.5 and 35 GB/s where two
 * cores shared a cache, and at 2.2 and 18 where they did not; reading took a tenth longer. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <stddef.h>
#include <stdint.h>

enum { BASE_LINE = 64 };

/* Writes a zero to the beginning of each line of [bytes] at `at`, which is aligned to lines and at least 8
 * bytes long there. What lay there is lost. */
static inline void base_take_lines(void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += BASE_LINE)
        *(volatile uint64_t *)(void *)((char *)at + i) = 0;
}

/* The same of the lines that lie in [at, at + bytes) whole. */
static inline void base_take_lines_within(void *at, size_t bytes)
{
    const size_t before = (BASE_LINE - (uintptr_t)at % BASE_LINE) % BASE_LINE;
    if (bytes > before)
        base_take_lines((char *)at + before, (bytes - before) / BASE_LINE * BASE_LINE);
}

#endif
