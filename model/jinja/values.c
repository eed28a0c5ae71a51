/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/values.c: texts, lists and maps, and what Python says of them: truth, equality, str(). */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "model/jinja/internal.h"

/* A run's memory: so much, and so much for each byte of its conversation. */
#define MOST_BYTES ((size_t)1 << 28)
enum { BYTES_PER_BYTE = 64, BUFFER_BYTES = 10 /* of a buffer's arrays for one of its text */ };

jinja_value_t jinja_fail(jinja_run_t *run, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (run->status == GYRE_OK)
        run->status = gyre_fail_quiet(GYRE_ERR_INVALID, "line %d: %s", run->line, text);
    return JINJA_UNDEFINED;
}

/* 0: an error, since the run would have more than it may. */
static int may_take(jinja_run_t *run, size_t bytes)
{
    const size_t most = MOST_BYTES + run->given * BYTES_PER_BYTE;
    if (bytes > most || run->arena.bytes + run->buffers > most - bytes)
        jinja_fail(run, "the program takes more than %zu MiB for this conversation", most >> 20);
    return run->status == GYRE_OK;
}

void *jinja_take(jinja_run_t *run, size_t count, size_t size)
{
    void *made = may_take(run, count * size) ? base_arena_alloc(&run->arena, count, size) : NULL;
    if (!made && run->status == GYRE_OK)
        run->status = jinja_no_memory();
    return made;
}

jinja_value_t jinja_bool(int truth)
{
    return (jinja_value_t){.kind = VALUE_BOOL, .number = truth != 0};
}

jinja_value_t jinja_int(int64_t number)
{
    return (jinja_value_t){.kind = VALUE_INT, .number = number};
}

jinja_value_t jinja_text(jinja_run_t *run, const char *text, size_t bytes, const uint32_t *from)
{
    jinja_text_t *made = jinja_take(run, 1, sizeof *made);
    if (!made)
        return JINJA_UNDEFINED;
    *made = (jinja_text_t){text, from, bytes};
    return (jinja_value_t){.kind = VALUE_TEXT, .text = made};
}

jinja_value_t jinja_word(jinja_run_t *run, const char *text)
{
    return jinja_text(run, text, strlen(text), NULL);
}

jinja_value_t jinja_cut(jinja_run_t *run, const jinja_text_t *text, size_t begin, size_t end)
{
    return jinja_text(run, text->text + begin, end - begin, text->from ? text->from + begin : NULL);
}

/* ---- lists and maps ------------------------------------------------------------------------------------ */

static jinja_value_t container(jinja_run_t *run, jinja_value_kind_t kind)
{
    jinja_list_t *list = jinja_take(run, 1, sizeof *list);
    return list ? (jinja_value_t){.kind = kind, .list = list} : JINJA_UNDEFINED;
}

jinja_value_t jinja_list(jinja_run_t *run)
{
    return container(run, VALUE_LIST);
}

jinja_value_t jinja_map(jinja_run_t *run)
{
    return container(run, VALUE_MAP);
}

/* Room for `more` values after `used`. */
static int grow(jinja_run_t *run, jinja_list_t *list, size_t used, size_t more)
{
    if (run->status != GYRE_OK)
        return 0;
    if (list->room - used >= more)
        return 1;
    const size_t room = 2 * list->room + 8;
    jinja_value_t *grown = jinja_take(run, room, sizeof *grown);
    if (!grown)
        return 0;
    if (used > 0)
        memcpy(grown, list->item, used * sizeof *grown);
    list->item = grown;
    list->room = room;
    return 1;
}

void jinja_push(jinja_run_t *run, jinja_list_t *list, jinja_value_t value)
{
    if (grow(run, list, list->count, 1))
        list->item[list->count++] = value;
}

static int is_list(jinja_value_t value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_MAP;
}

int jinja_order(jinja_value_t a, jinja_value_t b)
{
    const long double x = a.kind == VALUE_REAL ? (long double)a.real : (long double)a.number,
                      y = b.kind == VALUE_REAL ? (long double)b.real : (long double)b.number;
    return (x > y) - (x < y);
}

/* Of what has no parts; lists and maps are the same only as themselves. */
static int same(jinja_value_t a, jinja_value_t b)
{
    if (jinja_is_any_number(a) && jinja_is_any_number(b))
        return jinja_order(a, b) == 0;
    if (a.kind != b.kind)
        return 0;
    if (a.kind == VALUE_UNDEFINED || a.kind == VALUE_NONE)
        return 1;
    if (a.kind == VALUE_TEXT)
        return a.text->bytes == b.text->bytes && memcmp(a.text->text, b.text->text, a.text->bytes) == 0;
    return a.list == b.list;
}

/* The place of a key, or the map's count. */
static size_t place_of(const jinja_list_t *map, jinja_value_t key)
{
    size_t i = 0;
    while (i < map->count && !same(map->item[2 * i], key))
        i++;
    return i;
}

/* A key that the map lacks. */
static void add_entry(jinja_run_t *run, jinja_list_t *map, jinja_value_t key, jinja_value_t value)
{
    if (!grow(run, map, 2 * map->count, 2))
        return;
    map->item[2 * map->count] = key;
    map->item[2 * map->count++ + 1] = value;
}

void jinja_put(jinja_run_t *run, jinja_list_t *map, jinja_value_t key, jinja_value_t value)
{
    const size_t i = place_of(map, key);
    if (i < map->count)
        map->item[2 * i + 1] = value;
    else
        add_entry(run, map, key, value);
}

const jinja_value_t *jinja_look(const jinja_list_t *map, jinja_value_t key)
{
    const size_t i = place_of(map, key);
    return i < map->count ? &map->item[2 * i + 1] : NULL;
}

const jinja_value_t *jinja_find(const jinja_list_t *map, const char *key, size_t bytes)
{
    const jinja_text_t text = {key, NULL, bytes};
    return jinja_look(map, (jinja_value_t){.kind = VALUE_TEXT, .text = &text});
}

/* ---- what Python says ---------------------------------------------------------------------------------- */

int jinja_true(jinja_value_t value)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return 0;
    case VALUE_BOOL:
    case VALUE_INT:
        return value.number != 0;
    case VALUE_REAL:
        return value.real < 0 || value.real > 0;
    case VALUE_TEXT:
        return value.text->bytes > 0;
    case VALUE_LIST:
    case VALUE_MAP:
        return value.list->count > 0;
    case VALUE_NAMESPACE:
    case VALUE_METHOD:
    case VALUE_FUNCTION:
    case VALUE_MACRO:
        break;
    }
    return 1;
}

static int equal(jinja_run_t *run, jinja_value_t a, jinja_value_t b, int depth)
{
    enum { DEEPEST = 100 };
    if (!jinja_reads(run, a))
        return 0;
    if (same(a, b) || a.kind != b.kind || !is_list(a))
        return same(a, b);
    if (depth == DEEPEST)
        jinja_fail(run, "values are compared that are nested more than %d deep", DEEPEST);
    if (a.list->count != b.list->count || depth == DEEPEST)
        return 0;
    for (size_t i = 0; i < a.list->count; i++) {
        const jinja_value_t *other =
            a.kind == VALUE_LIST ? &b.list->item[i] : jinja_look(b.list, a.list->item[2 * i]);
        if (!jinja_steps(run, 1) || !other ||
            !equal(run, a.list->item[a.kind == VALUE_LIST ? i : 2 * i + 1], *other, depth + 1))
            return 0;
    }
    return 1;
}

int jinja_equal(jinja_run_t *run, jinja_value_t a, jinja_value_t b)
{
    return equal(run, a, b, 0);
}

const char *jinja_kind_name(jinja_value_t value)
{
    static const char *const names[] = {
        "undefined",  "none",   "a truth value", "a number",    "a number with a point",
        "a text",     "a list", "a map",         "a namespace", "a method",
        "a function", "a macro"};
    return names[value.kind];
}

/* As Python's repr: the fewest digits that read back, with an exponent from 1e16 on and below 1e-4. */
static jinja_value_t real_text(jinja_run_t *run, double value)
{
    enum { BYTES = 32 };
    char *text = jinja_take(run, BYTES, 1);
    int digits = 0;
    if (!text)
        return JINJA_UNDEFINED;
    if (fabs(value) >= 0x1p63) /* 1e20, or an integer that lost digits (base/text/json.h) */
        return jinja_fail(run, "a number beyond 2^63 is taken for a text, which is not supported");
    do
        snprintf(text, BYTES, "%.*e", digits, value);
    while (digits++ < 16 && (strtod(text, NULL) < value || strtod(text, NULL) > value));
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    const int decimals = digits - 1 - exponent;
    if (exponent >= -4 && exponent < 16)
        snprintf(text, BYTES, "%.*f", decimals > 1 ? decimals : 1, value);
    return jinja_word(run, text);
}

const jinja_text_t *jinja_string(jinja_run_t *run, jinja_value_t value)
{
    static const jinja_text_t none = {"None", NULL, 4}, yes = {"True", NULL, 4}, no = {"False", NULL, 5},
                              empty = {"", NULL, 0};
    char *number;
    switch (value.kind) {
    case VALUE_UNDEFINED:
        return &empty;
    case VALUE_NONE:
        return &none;
    case VALUE_BOOL:
        return value.number ? &yes : &no;
    case VALUE_INT:
        if (!(number = jinja_take(run, 24, 1)))
            return &empty;
        snprintf(number, 24, "%" PRId64, value.number);
        value = jinja_word(run, number);
        return value.kind == VALUE_TEXT ? value.text : &empty;
    case VALUE_REAL:
        value = real_text(run, value.real);
        return value.kind == VALUE_TEXT ? value.text : &empty;
    case VALUE_TEXT:
        return value.text;
    case VALUE_LIST:
    case VALUE_MAP:
    case VALUE_NAMESPACE:
    case VALUE_METHOD:
    case VALUE_FUNCTION:
    case VALUE_MACRO:
        break;
    }
    jinja_fail(run, "%s is taken for a text, which is not supported: write it with the filter tojson",
               jinja_kind_name(value));
    return &empty;
}

/* Bytes of the character at text[at]; what is not UTF-8 is one. */
static size_t character(const jinja_text_t *text, size_t at)
{
    const unsigned char *first = (const unsigned char *)text->text + at;
    uint32_t c;
    if (*first < 0x80) /* most are, and a text may have millions */
        return 1;
    const size_t n = base_utf8_decode(first, text->bytes - at, &c);
    return n > 0 ? n : 1;
}

size_t jinja_length(const jinja_text_t *text)
{
    size_t count = 0;
    for (size_t at = 0; at < text->bytes; at += character(text, at))
        count++;
    return count;
}

size_t jinja_offset(const jinja_text_t *text, size_t number)
{
    size_t at = 0;
    for (; at < text->bytes && number > 0; number--)
        at += character(text, at);
    return at;
}

const jinja_list_t *jinja_items(jinja_run_t *run, jinja_value_t value)
{
    static const jinja_list_t none;
    if (value.kind == VALUE_LIST)
        return value.list;
    if (value.kind == VALUE_UNDEFINED)
        return &none;
    jinja_value_t list = jinja_list(run);
    if (list.kind != VALUE_LIST)
        return NULL;
    if (value.kind == VALUE_MAP)
        for (size_t i = 0; i < value.list->count; i++)
            jinja_push(run, list.list, value.list->item[2 * i]);
    else if (value.kind == VALUE_TEXT)
        for (size_t at = 0, n; at < value.text->bytes && run->status == GYRE_OK; at += n) {
            n = character(value.text, at);
            jinja_push(run, list.list, jinja_cut(run, value.text, at, at + n));
        }
    else
        jinja_fail(run, "%s has no items", jinja_kind_name(value));
    return run->status == GYRE_OK ? list.list : NULL;
}

/* Python's str.isspace. */
static int is_space(uint32_t c)
{
    return base_utf8_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

static int is_stripped(const char *text, size_t bytes, const jinja_text_t *set)
{
    uint32_t c;
    if (!set)
        return base_utf8_decode((const unsigned char *)text, bytes, &c) > 0 && is_space(c);
    for (size_t at = 0, n; at < set->bytes; at += n) {
        n = character(set, at);
        if (n == bytes && memcmp(set->text + at, text, n) == 0)
            return 1;
    }
    return 0;
}

void jinja_strip(const jinja_text_t *text, const jinja_text_t *set, int left, int right, size_t *begin,
                 size_t *end)
{
    *begin = 0;
    *end = text->bytes;
    for (size_t n; left && *begin < *end; *begin += n) {
        n = character(text, *begin);
        if (!is_stripped(text->text + *begin, n, set))
            break;
    }
    while (right && *begin < *end) {
        size_t last = *end - 1;
        while (last > *begin && (text->text[last] & 0xC0) == 0x80)
            last--;
        if (!is_stripped(text->text + last, *end - last, set))
            break;
        *end = last;
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static jinja_value_t text_from(jinja_run_t *run, const char *text, size_t bytes, uint32_t from)
{
    run->given += bytes;
    uint32_t *all = from ? jinja_take(run, bytes + 1, sizeof *all) : NULL;
    for (size_t i = 0; all && i < bytes; i++)
        all[i] = from;
    return jinja_text(run, text, bytes, all);
}

jinja_value_t jinja_from_json(jinja_run_t *run, const json_t *value, uint32_t from)
{
    const char *key;
    json_t *item;
    jinja_value_t made;
    switch (json_typeof(value)) {
    case JSON_STRING:
        return text_from(run, json_string_value(value), json_string_length(value), from);
    case JSON_INTEGER:
        return jinja_int(json_integer_value(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return jinja_bool(json_is_true(value));
    case JSON_NULL:
        return JINJA_NONE;
    case JSON_REAL:
        return (jinja_value_t){.kind = VALUE_REAL, .real = json_real_value(value)};
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    made = json_is_array(value) ? jinja_list(run) : jinja_map(run);
    if (++run->depth > 100)
        jinja_fail(run, "an object is nested too deeply");
    for (size_t i = 0; run->status == GYRE_OK && i < json_array_size(value); i++)
        jinja_push(run, made.list, jinja_from_json(run, json_array_get(value, i), from));
    for (void *at = json_object_iter((json_t *)(uintptr_t)value); run->status == GYRE_OK && at;
         at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
        key = json_object_iter_key(at);
        item = json_object_iter_value(at);
        /* a template writes roles into its tokens, so the role of a message is as its own */
        const int role = run->depth == 1 && strcmp(key, "role") == 0;
        const uint32_t call = run->depth == 1 && from > 0 && strcmp(key, "tool_calls") == 0 ? JINJA_CALL : 0;
        add_entry(run, made.list, text_from(run, key, strlen(key), from),
                  jinja_from_json(run, item, role ? 0 : from | call));
    }
    run->depth--;
    return made;
}

/* ---- buffers ------------------------------------------------------------------------------------------- */

void jinja_add(jinja_run_t *run, jinja_buffer_t *buffer, const jinja_text_t *text)
{
    if (run->status != GYRE_OK || text->bytes == 0)
        return;
    if (buffer->room - buffer->bytes < text->bytes) {
        const size_t room = 2 * buffer->room + text->bytes + 256;
        const size_t more = (room - buffer->room) * BUFFER_BYTES;
        if (!may_take(run, more))
            return;
        char *grown = realloc(buffer->text, room);
        buffer->text = grown ? grown : buffer->text;
        uint32_t *from = grown ? realloc(buffer->from, room * sizeof *from) : NULL;
        buffer->from = from ? from : buffer->from;
        uint32_t *turn = from ? realloc(buffer->turn, room * sizeof *turn) : NULL;
        buffer->turn = turn ? turn : buffer->turn;
        unsigned char *generated = turn ? realloc(buffer->generated, room) : NULL;
        if (!generated) {
            run->status = jinja_no_memory();
            return;
        }
        buffer->generated = generated;
        buffer->room = room;
        run->buffers += more;
    }
    memcpy(buffer->text + buffer->bytes, text->text, text->bytes);
    if (text->from)
        memcpy(buffer->from + buffer->bytes, text->from, text->bytes * sizeof *text->from);
    else
        memset(buffer->from + buffer->bytes, 0, text->bytes * sizeof *buffer->from);
    for (size_t i = 0; i < text->bytes; i++)
        buffer->turn[buffer->bytes + i] = run->turn;
    memset(buffer->generated + buffer->bytes, run->generating, text->bytes);
    buffer->bytes += text->bytes;
}

jinja_value_t jinja_taken(jinja_run_t *run, jinja_buffer_t *buffer)
{
    const size_t bytes = buffer->bytes;
    char *text = jinja_take(run, bytes + 1, 1);
    uint32_t *from = text ? jinja_take(run, bytes + 1, sizeof *from) : NULL;
    if (from && bytes > 0) {
        memcpy(text, buffer->text, bytes);
        memcpy(from, buffer->from, bytes * sizeof *from);
    }
    run->buffers -= buffer->room * BUFFER_BYTES;
    jinja_buffer_free(buffer);
    return from ? jinja_text(run, text, bytes, from) : JINJA_UNDEFINED;
}

void jinja_buffer_free(jinja_buffer_t *buffer)
{
    free(buffer->text);
    free(buffer->from);
    free(buffer->turn);
    free(buffer->generated);
    *buffer = (jinja_buffer_t){0};
}
