/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/nodelist.c: see nodelist.h.
 *
 *     list   = item { "," item }
 *     item   = { plain | "[" range { "," range } "]" }      at least one character
 *     range  = digits [ "-" digits ]                        low <= high; leading zeros give the width
 *     plain  = letters, digits, "-", "_", "."
 *
 * The first host is each item's text with every bracket replaced by its first number, as it is written. */
#include "comm/launch/nodelist.h"

#include <string.h>

enum { DIGITS_MAX = 9 };

typedef struct {
    const char *at, *end;
    char *host; /* where the first host is being put, or NULL */
    size_t used, room;
    int too_long;
} reader_t;

static int more(const reader_t *r)
{
    return r->at < r->end;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_plain(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
}

static void put(reader_t *r, const char *text, size_t bytes)
{
    if (r->host == NULL)
        return;
    if (bytes >= r->room - r->used) {
        r->too_long = 1;
        return;
    }
    memcpy(r->host + r->used, text, bytes);
    r->used += bytes;
}

/* Digits into *value; their number, or 0. */
static size_t number(reader_t *r, long *value)
{
    size_t n = 0;
    *value = 0;
    while (more(r) && is_digit(*r->at) && n < DIGITS_MAX) {
        *value = *value * 10 + (*r->at++ - '0');
        n++;
    }
    return more(r) && is_digit(*r->at) ? 0 : n;
}

/* What stands between brackets; 0: malformed. */
static int bracket(reader_t *r)
{
    for (int first = 1;; first = 0) {
        long low, high;
        const char *digits = r->at;
        size_t width = number(r, &low);
        if (width == 0)
            return 0;
        if (first)
            put(r, digits, width);
        if (more(r) && *r->at == '-') {
            r->at++;
            if (number(r, &high) == 0 || high < low)
                return 0;
        }
        if (!more(r))
            return 0;
        char c = *r->at++;
        if (c != ',')
            return c == ']';
    }
}

/* One item; 0: malformed. */
static int item(reader_t *r)
{
    const char *from = r->at;
    while (more(r) && *r->at != ',') {
        if (*r->at == '[') {
            r->at++;
            if (!bracket(r))
                return 0;
        } else if (is_plain(*r->at)) {
            put(r, r->at++, 1);
        } else {
            return 0;
        }
    }
    return r->at > from;
}

static int list(reader_t *r)
{
    for (;;) {
        if (!item(r))
            return 0;
        if (r->host != NULL) /* the first item is complete */
            r->host[r->used] = '\0';
        r->host = NULL;
        if (!more(r))
            return 1;
        r->at++; /* the comma: another item must follow */
    }
}

int comm_nodelist_first(const char *text, size_t bytes, char *host, size_t room)
{
    if (room == 0)
        return 0;
    reader_t r = {.at = text, .end = text + bytes, .host = host, .room = room};
    if (list(&r) && !r.too_long)
        return 1;
    host[0] = '\0';
    return 0;
}
