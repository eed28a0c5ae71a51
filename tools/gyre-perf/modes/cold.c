/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/modes/cold.c: --cold: buffers that are in no cache when an operation starts.
 *
 * Caches are emptied line by line if the processor lets a program do so: clflushopt or clflush on x86, dc
 * civac on Arm. That also removes the lines from the caches of other cores, and from a last-level cache that
 * is too large (or too shared) to be filled with something else. On other processors a walk through memory
 * takes the buffers' place in the caches, which is sure for a core's own and likely for a shared one of up to
 * 64 MiB.
 *
 * The library's own memory (staging, flags) stays in the caches, as in a program. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.h"

enum { WALK_BYTES = 64 << 20 };

#if defined(__x86_64__)
enum { LINE = 64 };

static int have_clflushopt(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 23 & 1);
}

const char *perf_cold_method(void)
{
    return have_clflushopt() ? "clflushopt" : "clflush";
}

gyre_status_t perf_cold_open(perf_cold_t *cold)
{
    *cold = (perf_cold_t){.optimised = have_clflushopt()};
    return GYRE_OK;
}

void perf_cold_flush(const perf_cold_t *cold, unsigned char *from, size_t bytes)
{
    unsigned char *p = (unsigned char *)((uintptr_t)from & ~(uintptr_t)(LINE - 1)), *end = from + bytes;
    __asm__ volatile("mfence" ::: "memory"); /* what was written before must be in the line that is flushed */
    if (cold->optimised) {
        for (; p < end; p += LINE)
            __asm__ volatile("clflushopt %0" : "+m"(*p));
    } else {
        for (; p < end; p += LINE)
            __asm__ volatile("clflush %0" : "+m"(*p));
    }
    __asm__ volatile("mfence" ::: "memory"); /* clflushopt is complete only after a fence */
}

#elif defined(__aarch64__)
const char *perf_cold_method(void)
{
    return "dc civac";
}

gyre_status_t perf_cold_open(perf_cold_t *cold)
{
    uint64_t ctr;
    __asm__("mrs %0, ctr_el0" : "=r"(ctr));
    *cold = (perf_cold_t){.line = (size_t)4 << (ctr >> 16 & 15)};
    return GYRE_OK;
}

void perf_cold_flush(const perf_cold_t *cold, unsigned char *from, size_t bytes)
{
    unsigned char *p = (unsigned char *)((uintptr_t)from & ~(uintptr_t)(cold->line - 1)), *end = from + bytes;
    for (; p < end; p += cold->line)
        __asm__ volatile("dc civac, %0" ::"r"(p) : "memory");
    __asm__ volatile("dsb sy" ::: "memory");
}

#else
const char *perf_cold_method(void)
{
    return "a walk through 64 MiB";
}

gyre_status_t perf_cold_open(perf_cold_t *cold)
{
    *cold = (perf_cold_t){.walk = calloc(1, WALK_BYTES)};
    if (!cold->walk)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "--cold: no memory for %d bytes to walk through", WALK_BYTES);
    return GYRE_OK;
}

void perf_cold_flush(const perf_cold_t *cold, unsigned char *from, size_t bytes)
{
    (void)from;
    for (size_t i = 0; i < WALK_BYTES && bytes > 0; i += 64)
        ((volatile unsigned char *)cold->walk)[i]++;
}
#endif

void perf_cold_close(perf_cold_t *cold)
{
    free(cold->walk);
    *cold = (perf_cold_t){0};
}
