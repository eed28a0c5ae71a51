/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/memory.c: see the header. */
#include "base/machine/memory.h"

#include <stdio.h>

base_memory_t base_memory_now(void)
{
    base_memory_t now = {.available = UINT64_MAX};
    char line[128];
    unsigned long long kib;
    FILE *in = fopen("/proc/meminfo", "re");
    while (in && fgets(line, sizeof line, in)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            now.available = kib * 1024;
        else if (sscanf(line, "SwapFree: %llu kB", &kib) == 1)
            now.swap = kib * 1024;
    }
    if (in)
        fclose(in);
    return now;
}
