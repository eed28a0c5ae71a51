/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/parse.h: one setting's text to its value, and what other tables of named values need, too. */
#ifndef BASE_SETTINGS_PARSE_H
#define BASE_SETTINGS_PARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/settings/settings.h"

typedef struct {
    const char *text; /* as given; for CHOICE the listed word itself, see base_setting_parse */
    int64_t number;   /* INT, SIZE, BOOL; CHOICE: the word's place in the list */
    double seconds;   /* SECONDS */
} base_setting_value_t;

/* Reads `text` as kind; `unit` is the row's unit column. 1, and number or seconds are set; 0: malformed.
 * Knows no locale: 0.5 is a half everywhere. For CHOICE, upper and lower case are the same. */
int base_setting_parse(base_setting_kind_t kind, const char *unit, const char *text,
                       base_setting_value_t *out);

/* What the kind accepts, in words for a message, such as "a whole number, in ranks". */
void base_setting_accepts(base_setting_kind_t kind, const char *unit, char *text, size_t bytes);

/* The `index`-th word of a list such as "auto|shm|ucx" and its length; NULL past the end. */
const char *base_setting_word(const char *list, int index, size_t *length);

/* Edits (insert, delete, replace, swap neighbours) that turn one name into the other. */
size_t base_setting_distance(const char *a, const char *b);

/* 1: fewer than *least edits turn `name` into `other`; *least is their number then. */
static inline int base_setting_nearer(const char *name, const char *other, size_t *least)
{
    const size_t distance = base_setting_distance(name, other);
    if (distance >= *least)
        return 0;
    *least = distance;
    return 1;
}

/* The most edits that make a name of `length` a slip rather than another word. */
static inline size_t base_setting_slip(size_t length)
{
    return (length + 2) / 3;
}

#endif
