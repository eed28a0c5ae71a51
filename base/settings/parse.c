/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/parse.c: the text of a setting to its value, strictly: the whole text must be of the kind. */
#include "base/settings/parse.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/settings/size.h"

/* Decimal digits at `text`; *end is after them. 0 if there is none or they do not fit. */
static int digits(const char *text, uint64_t *value, const char **end)
{
    uint64_t sum = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(sum, 10u, &sum) || __builtin_add_overflow(sum, (uint64_t)(*p - '0'), &sum))
            return 0;
    }
    *value = sum;
    *end = p;
    return p != text;
}

/* Ranks, descriptors and the like: what fits in an int, so that nobody who stores it in one gets a
 * surprise. */
static int parse_int(const char *text, int64_t *number)
{
    uint64_t value;
    const char *end;
    int negative = *text == '-';
    if (!digits(text + (negative || *text == '+'), &value, &end) || *end != '\0' || value > INT_MAX)
        return 0;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return 1;
}

static int parse_size(const char *text, int64_t *number)
{
    uint64_t value;
    if (!base_size_parse(text, &value) || value > INT64_MAX)
        return 0;
    *number = (int64_t)value;
    return 1;
}

static int64_t bound(const char *text)
{
    char *end;
    const int64_t value = strtoll(text, &end, 10);
    return *end == 'K' ? value << 10 : *end == 'G' ? value << 30 : value;
}

/* 1 unless `unit` ends with a range ("level 0..15", "bytes 4K..256K", "ranks 0..") without `number`. */
static int in_range(const char *unit, int64_t number)
{
    const char *dots = strstr(unit, ".."), *low = dots;
    while (low != NULL && low > unit && low[-1] != ' ')
        low--;
    return dots == NULL || (number >= bound(low) && (dots[2] == '\0' || number <= bound(dots + 2)));
}

#define SECONDS_MOST 1e8 /* three years, for longer times: a multiple of it in ns fits in an int64_t */

/* 60, 0.5, .5, 60s, 500ms. Not strtod, which would want a comma in half of the world's locales. */
static int parse_seconds(const char *text, double *seconds)
{
    double value = 0.0, place = 1.0;
    int seen = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++, seen = 1)
        value = value * 10.0 + (*p - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++, seen = 1) {
            place *= 10.0;
            value = value * 10.0 + (*p - '0');
        }
    if (!seen || p - text > 20) /* more digits than time has */
        return 0;
    if (strcmp(p, "ms") == 0)
        place *= 1000.0;
    else if (strcmp(p, "s") != 0 && *p != '\0')
        return 0;
    value /= place;
    *seconds = value < SECONDS_MOST ? value : SECONDS_MOST;
    return 1;
}

static int parse_bool(const char *text, int64_t *number)
{
    static const char *const words[] = {"0", "1", "no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *number = (int64_t)(i % 2);
            return 1;
        }
    return 0;
}

const char *base_setting_word(const char *list, int index, size_t *length)
{
    for (const char *word = list;; word++, index--) {
        *length = strcspn(word, "|");
        if (index == 0)
            return word;
        word += *length;
        if (*word == '\0')
            return NULL;
    }
}

static int parse_choice(const char *list, const char *text, int64_t *number)
{
    size_t length;
    const char *word;
    for (int i = 0; (word = base_setting_word(list, i, &length)) != NULL; i++)
        if (strlen(text) == length && strncasecmp(text, word, length) == 0) {
            *number = i;
            return 1;
        }
    return 0;
}

int base_setting_parse(base_setting_kind_t kind, const char *unit, const char *text,
                       base_setting_value_t *out)
{
    out->text = text;
    switch (kind) {
    case BASE_SETTING_STRING:
        return 1;
    case BASE_SETTING_INT:
        return parse_int(text, &out->number) && in_range(unit, out->number);
    case BASE_SETTING_SIZE:
        return parse_size(text, &out->number) && in_range(unit, out->number);
    case BASE_SETTING_SECONDS:
        return parse_seconds(text, &out->seconds);
    case BASE_SETTING_BOOL:
        return parse_bool(text, &out->number);
    case BASE_SETTING_CHOICE:
        return parse_choice(unit, text, &out->number);
    }
    return 0;
}

void base_setting_accepts(base_setting_kind_t kind, const char *unit, char *text, size_t bytes)
{
    switch (kind) {
    case BASE_SETTING_STRING:
        snprintf(text, bytes, "any text");
        break;
    case BASE_SETTING_INT:
        snprintf(text, bytes, "a whole number (%s), such as 3", unit);
        break;
    case BASE_SETTING_SIZE:
        snprintf(text, bytes, "a whole number (%s) such as 65536, or with K, M, G or T after it such as 64K",
                 unit);
        break;
    case BASE_SETTING_SECONDS:
        snprintf(text, bytes, "seconds such as 60 or 0.5, or milliseconds such as 500ms");
        break;
    case BASE_SETTING_BOOL:
        snprintf(text, bytes, "0 or 1 (also no or yes, off or on, false or true)");
        break;
    case BASE_SETTING_CHOICE:
        snprintf(text, bytes, "one of %s", unit);
        break;
    }
}

size_t base_setting_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t na = strnlen(a, LONGEST), nb = strnlen(b, LONGEST); /* what differs after that is not a slip */
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = base_min_size(best, base_min_size(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = base_min_size(best, before[j - 2] + 1);
            row[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[nb];
}
