/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/size.c: counts of bytes from text and to text. */
#include "base/settings/size.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FRACTION_MOST = 6 }; /* digits after the point: shifted by 40 bits they fit into 64 */

/* Reads the digits after a point: *digits / *scale. 0: there are none, or too many. */
static int parse_fraction(const char **p, uint64_t *digits, uint64_t *scale)
{
    const char *from = *p;
    *digits = 0;
    *scale = 1;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (*p - from == FRACTION_MOST)
            return 0;
        *digits = *digits * 10 + (uint64_t)(**p - '0');
        *scale *= 10;
    }
    return *p != from;
}

int base_size_parse(const char *text, uint64_t *bytes)
{
    uint64_t value = 0, digits = 0, scale = 1;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return 0;
    }
    if (p == text)
        return 0;
    if (*p == '.' && (p++, !parse_fraction(&p, &digits, &scale) || *p == '\0'))
        return 0;
    if (*p != '\0') {
        const char *units = "kKmMgGtT", *unit = strchr(units, *p);
        if (unit == NULL)
            return 0;
        int shift = 10 * (1 + (int)(unit - units) / 2);
        if (value > UINT64_MAX >> shift)
            return 0;
        const uint64_t part = digits << shift;
        if (part % scale != 0)
            return 0;
        value = (value << shift) + part / scale; /* less than 1 << shift: fits */
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
