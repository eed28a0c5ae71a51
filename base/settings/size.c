/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/size.c: counts of bytes from text and to text. */
#include "base/settings/size.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int base_size_parse(const char *text, uint64_t *bytes)
{
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return 0;
    }
    if (p == text)
        return 0;
    if (*p != '\0') {
        const char *units = "kKmMgGtT", *unit = strchr(units, *p);
        if (unit == NULL)
            return 0;
        int shift = 10 * (1 + (int)(unit - units) / 2);
        if (value > UINT64_MAX >> shift)
            return 0;
        value <<= shift;
        p++;
        if (*p != '\0' && strcasecmp(p, "B") != 0 && strcasecmp(p, "iB") != 0)
            return 0;
    }
    *bytes = value;
    return 1;
}

const char *base_size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int unit = 0;
    for (; unit < 4 && bytes > 0 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(text, BASE_SIZE_TEXT, "%llu%s", (unsigned long long)bytes, units[unit]);
    return text;
}

const char *base_size_about(double bytes, char *text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    for (; unit < 6 && bytes >= 1024; unit++)
        bytes /= 1024;
    snprintf(text, BASE_SIZE_TEXT, bytes < 10 && bytes != (double)(int)bytes ? "%.1f %s" : "%.0f %s", bytes,
             units[unit]);
    return text;
}
