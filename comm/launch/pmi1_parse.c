/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmi1_parse.c: see pmi1_parse.h. */
#include "comm/launch/pmi1_parse.h"

#include <string.h>

int pmi1_field(const char *line, size_t bytes, const char *key, const char **value, size_t *value_bytes)
{
    size_t key_bytes = strlen(key);
    const char *at = line, *end = line + bytes;
    while (at < end) {
        const char *stop = memchr(at, ' ', (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        int last = end - at >= 6 && memcmp(at, "value=", 6) == 0;
        if (last)
            stop = end;
        if ((size_t)(stop - at) > key_bytes && memcmp(at, key, key_bytes) == 0 && at[key_bytes] == '=') {
            *value = at + key_bytes + 1;
            *value_bytes = (size_t)(stop - *value);
            return 1;
        }
        at = stop < end ? stop + 1 : end;
    }
    return 0;
}

int pmi1_field_is(const char *line, size_t bytes, const char *key, const char *text)
{
    const char *value;
    size_t n;
    return pmi1_field(line, bytes, key, &value, &n) && n == strlen(text) && memcmp(value, text, n) == 0;
}

int pmi1_field_int(const char *line, size_t bytes, const char *key, int *value)
{
    const char *text;
    size_t n;
    if (!pmi1_field(line, bytes, key, &text, &n))
        return 0;
    int minus = n > 0 && text[0] == '-', number = 0;
    size_t digits = n - (size_t)minus;
    if (digits == 0 || digits > 9)
        return 0;
    for (size_t i = (size_t)minus; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        number = number * 10 + (text[i] - '0');
    }
    *value = minus ? -number : number;
    return 1;
}
