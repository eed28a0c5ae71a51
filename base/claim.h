/* base/claim.h: asking for cache lines ahead of writing to them. */
#ifndef BASE_CLAIM_H
#define BASE_CLAIM_H

#include <stddef.h>

/* Asks for the cache lines of [at, at + bytes) in order to write to them. A line that another core has read must be taken
 * from it first: 8 ns each on a 2-core Xeon when that happens line by line, 5 ns when asked for some lines ahead. A line
 * that nobody else has costs an instruction. Never faults. */
static inline void base_claim(const void *at, size_t bytes)
{
    const char *p = at;
    for (size_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0"
                         :
                         : "m"(p[i])); /* the builtin means a plain prefetch without -mprfchw */
#else
        __builtin_prefetch(p + i, 1, 3);
#endif
    }
}

#endif
