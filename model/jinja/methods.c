/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/methods.c: attributes, the methods of texts and maps, and tojson. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "model/jinja/internal.h"

/* ---- texts --------------------------------------------------------------------------------------------- */

static jinja_value_t strip(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with, int left,
                           int right)
{
    const jinja_value_t *set = jinja_argument(with, 0, "chars");
    size_t begin, end;
    if (set && set->kind != VALUE_TEXT && set->kind != VALUE_NONE)
        return jinja_fail(run, "a method that strips is given %s", jinja_kind_name(*set));
    jinja_strip(text, set && set->kind == VALUE_TEXT ? set->text : NULL, left, right, &begin, &end);
    return jinja_cut(run, text, begin, end);
}

static jinja_value_t method_strip(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return strip(run, text, with, 1, 1);
}
static jinja_value_t method_lstrip(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return strip(run, text, with, 1, 0);
}
static jinja_value_t method_rstrip(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return strip(run, text, with, 0, 1);
}

/* The next place of `part` from `at` on; SIZE_MAX: there is none. */
static size_t place_of(const jinja_text_t *text, size_t at, const jinja_text_t *part)
{
    const char *found = part->bytes == 0 ? text->text + at
                                         : memmem(text->text + at, text->bytes - at, part->text, part->bytes);
    return found ? (size_t)(found - text->text) : SIZE_MAX;
}

/* Words between white space. */
static jinja_value_t words(jinja_run_t *run, const jinja_text_t *text, int64_t most)
{
    jinja_value_t list = jinja_list(run);
    const jinja_text_t *rest = text;
    while (!jinja_fails(run)) {
        size_t begin, end, stop;
        jinja_strip(rest, NULL, 1, 0, &begin, &end);
        if (begin == end)
            break;
        rest = jinja_cut(run, rest, begin, end).text;
        if (jinja_fails(run))
            break;
        for (stop = 0; stop < rest->bytes;) {
            const jinja_text_t tail = {rest->text + stop, NULL, rest->bytes - stop};
            jinja_strip(&tail, NULL, 1, 0, &begin, &end);
            if (begin > 0)
                break;
            stop += jinja_offset(&tail, 1);
        }
        const int last = most >= 0 && (int64_t)list.list->count >= most;
        jinja_push(run, list.list, jinja_cut(run, rest, 0, last ? rest->bytes : stop));
        if (last || jinja_fails(run))
            break;
        rest = jinja_cut(run, rest, stop, rest->bytes).text;
    }
    return list;
}

static jinja_value_t method_split(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    const jinja_value_t *given = jinja_argument(with, 0, "sep");
    const int64_t most = jinja_number_argument(run, with, 1, "maxsplit", -1);
    if (!given || given->kind == VALUE_NONE)
        return words(run, text, most);
    const jinja_text_t *sep = jinja_text_argument(run, with, 0, "sep");
    jinja_value_t list = jinja_list(run);
    if (!jinja_fails(run) && sep->bytes == 0)
        return jinja_fail(run, "a text is split at nothing");
    for (size_t done = 0, end; !jinja_fails(run) && done <= text->bytes; done = end + sep->bytes) {
        end = most >= 0 && (int64_t)list.list->count >= most ? SIZE_MAX : place_of(text, done, sep);
        const size_t stop = end == SIZE_MAX ? text->bytes : end;
        jinja_push(run, list.list, jinja_cut(run, text, done, stop));
        if (end == SIZE_MAX)
            break;
    }
    return list;
}

static jinja_value_t ends(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with, int at_end)
{
    const jinja_value_t *given = jinja_argument(with, 0, "prefix");
    if (!given || (given->kind != VALUE_TEXT && given->kind != VALUE_LIST) || with.count > 1)
        return jinja_fail(run, "startswith or endswith with these arguments is not supported");
    const size_t count = given->kind == VALUE_LIST ? given->list->count : 1;
    for (size_t i = 0; i < count; i++) {
        const jinja_value_t *one = given->kind == VALUE_LIST ? &given->list->item[i] : given;
        if (one->kind != VALUE_TEXT)
            return jinja_fail(run, "a text begins or ends with %s", jinja_kind_name(*one));
        const size_t n = one->text->bytes;
        if (!jinja_reads(run, *one))
            break;
        if (n <= text->bytes && memcmp(text->text + (at_end ? text->bytes - n : 0), one->text->text, n) == 0)
            return jinja_bool(1);
    }
    return jinja_bool(0);
}

static jinja_value_t method_startswith(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return ends(run, text, with, 0);
}
static jinja_value_t method_endswith(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return ends(run, text, with, 1);
}

/* Which letters of a text become capital ones. */
typedef enum { CASE_LOWER, CASE_UPPER, CASE_FIRST, CASE_AFTER_OTHERS, CASE_AFTER_SIGNS } case_t;

/* Whether the character after `before` becomes a capital one; UINT32_MAX: it is the first one. */
static int is_upper(uint32_t before, case_t which)
{
    if (which <= CASE_UPPER || before == UINT32_MAX)
        return which > CASE_LOWER;
    if (which == CASE_AFTER_OTHERS)
        return !((before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z'));
    return which == CASE_AFTER_SIGNS &&
           ((before > 0 && before < 128 && strchr("-({[<\x1c\x1d\x1e\x1f", (int)before)) ||
            base_utf8_is_space(before)); /* of the filter title */
}

/* 1: the other case of `c` is several characters, which utf8proc does not know, or depends on what stands
 * around it. */
static int is_special(uint32_t c, int upper)
{
    static const uint32_t uppers[][2] = {
        {0xDF, 0xDF},   {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},
        {0x587, 0x587}, {0x1E96, 0x1E9A}, {0x1F50, 0x1F56}, {0x1F80, 0x1FFC}, {0xFB00, 0xFB17}};
    for (size_t i = 0; upper && i < sizeof uppers / sizeof *uppers; i++)
        if (c >= uppers[i][0] && c <= uppers[i][1])
            return 1;
    return !upper && (c == 0x130 || c == 0x3A3);
}

/* A text in another case. What comes of a character is of the same message. */
static jinja_value_t in_case(jinja_run_t *run, const jinja_text_t *text, case_t which)
{
    jinja_buffer_t buffer = {0};
    uint32_t c = 0, before = UINT32_MAX;
    for (size_t at = 0, n; at < text->bytes && !jinja_fails(run); at += n, before = c) {
        n = base_utf8_decode((const unsigned char *)text->text + at, text->bytes - at, &c);
        const int upper = is_upper(before, which);
        if (c > 127 && which == CASE_AFTER_OTHERS) {
            jinja_fail(run, "title() of U+%04X is not supported: it takes ASCII alone", c);
            break;
        }
        if (n == 0 || is_special(c, upper)) {
            jinja_fail(run, "the %s case of U+%04X is not supported", upper ? "upper" : "lower", c);
            break;
        }
        unsigned char made[4];
        const utf8proc_int32_t one = (utf8proc_int32_t)c;
        const size_t bytes = (size_t)utf8proc_encode_char(!upper                ? utf8proc_tolower(one)
                                                          : which == CASE_FIRST ? utf8proc_totitle(one)
                                                                                : utf8proc_toupper(one),
                                                          made);
        const uint32_t from = text->from ? text->from[at] : 0, all[4] = {from, from, from, from};
        jinja_add(run, &buffer, &(jinja_text_t){(const char *)made, all, bytes});
    }
    return jinja_taken(run, &buffer);
}

static jinja_value_t method_upper(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    (void)with;
    return in_case(run, text, CASE_UPPER);
}
static jinja_value_t method_lower(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    (void)with;
    return in_case(run, text, CASE_LOWER);
}
static jinja_value_t method_capitalize(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    (void)with;
    return in_case(run, text, CASE_FIRST);
}
/* With an argument, which texts' method does not have: the filter of that name. */
static jinja_value_t method_title(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    return in_case(run, text, with.count > 0 ? CASE_AFTER_SIGNS : CASE_AFTER_OTHERS);
}

static jinja_value_t method_replace(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    const jinja_text_t *old = jinja_text_argument(run, with, 0, "old"),
                       *new = jinja_text_argument(run, with, 1, "new");
    int64_t left = jinja_number_argument(run, with, 2, "count", -1);
    jinja_buffer_t buffer = {0};
    size_t done = 0;
    if (jinja_fails(run) || old->bytes == 0)
        return jinja_fail(run, "nothing is replaced by a text, which is not supported");
    for (size_t at; !jinja_fails(run) && left != 0 && (at = place_of(text, done, old)) != SIZE_MAX; left--) {
        jinja_add(run, &buffer, jinja_string(run, jinja_cut(run, text, done, at)));
        jinja_add(run, &buffer, new);
        done = at + old->bytes;
    }
    jinja_add(run, &buffer, jinja_string(run, jinja_cut(run, text, done, text->bytes)));
    return jinja_taken(run, &buffer);
}

static jinja_value_t method_find(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    const jinja_text_t *part = jinja_text_argument(run, with, 0, "sub");
    if (with.count > 1)
        return jinja_fail(run, "find from a place on is not supported");
    const size_t at = place_of(text, 0, part);
    return jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_length(&(jinja_text_t){text->text, NULL, at}));
}

static jinja_value_t method_count(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    const jinja_text_t *part = jinja_text_argument(run, with, 0, "sub");
    int64_t count = 0;
    if (jinja_fails(run) || part->bytes == 0 || with.count > 1)
        return jinja_fail(run, "count with these arguments is not supported");
    for (size_t at = 0; (at = place_of(text, at, part)) != SIZE_MAX; at += part->bytes)
        count++;
    return jinja_int(count);
}

static jinja_value_t method_join(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with)
{
    const jinja_value_t *given = jinja_argument(with, 0, "iterable");
    const jinja_list_t *items = given ? jinja_items(run, *given) : NULL;
    jinja_buffer_t buffer = {0};
    for (size_t i = 0; items && i < items->count && !jinja_fails(run); i++) {
        if (items->item[i].kind != VALUE_TEXT)
            jinja_fail(run, "join of %s", jinja_kind_name(items->item[i]));
        if (i > 0)
            jinja_add(run, &buffer, text);
        jinja_add(run, &buffer, jinja_string(run, items->item[i]));
    }
    return jinja_taken(run, &buffer);
}

static const struct {
    const char *name;
    jinja_value_t (*of)(jinja_run_t *run, const jinja_text_t *text, jinja_arguments_t with);
} of_texts[] = {{"strip", method_strip},
                {"lstrip", method_lstrip},
                {"rstrip", method_rstrip},
                {"split", method_split},
                {"startswith", method_startswith},
                {"endswith", method_endswith},
                {"upper", method_upper},
                {"lower", method_lower},
                {"capitalize", method_capitalize},
                {"title", method_title},
                {"replace", method_replace},
                {"find", method_find},
                {"count", method_count},
                {"join", method_join},
                /* Python's alone: an error names them */
                {"rsplit", NULL},
                {"splitlines", NULL},
                {"format", NULL},
                {"index", NULL},
                {"isdigit", NULL}};
static const char *const of_maps[] = {"items", "keys", "values", "get"};
static const char *const of_lists[] = {"append", "extend", "insert", "pop", "index"}; /* none is there */

/* ---- all of them --------------------------------------------------------------------------------------- */

static int same(const char *name, const char *word, size_t bytes)
{
    return strlen(name) == bytes && memcmp(name, word, bytes) == 0;
}

/* The name as these tables have it; NULL: it is no method of such a value. */
static const char *method_name(jinja_value_t value, const char *name, size_t bytes)
{
    for (size_t i = 0; value.kind == VALUE_TEXT && i < sizeof of_texts / sizeof *of_texts; i++)
        if (same(of_texts[i].name, name, bytes))
            return of_texts[i].name;
    for (size_t i = 0; value.kind == VALUE_MAP && i < sizeof of_maps / sizeof *of_maps; i++)
        if (same(of_maps[i], name, bytes))
            return of_maps[i];
    for (size_t i = 0; value.kind == VALUE_LIST && i < sizeof of_lists / sizeof *of_lists; i++)
        if (same(of_lists[i], name, bytes))
            return of_lists[i];
    return NULL;
}

jinja_value_t jinja_attribute(jinja_run_t *run, jinja_value_t value, const char *name, size_t bytes)
{
    if (value.kind == VALUE_UNDEFINED)
        return jinja_fail(run, "'%.60s' is undefined", value.name);
    const char *method = method_name(value, name, bytes);
    if (method) {
        jinja_method_t *made = jinja_take(run, 1, sizeof *made);
        if (!made)
            return JINJA_UNDEFINED;
        *made = (jinja_method_t){method, value};
        return (jinja_value_t){.kind = VALUE_METHOD, .method = made};
    }
    if (value.kind == VALUE_MAP || value.kind == VALUE_NAMESPACE) {
        const jinja_value_t *found = !jinja_reads(run, value) ? NULL : jinja_find(value.list, name, bytes);
        if (found)
            return *found;
    }
    char *copy = jinja_take(run, bytes + 1, 1);
    return (jinja_value_t){.kind = VALUE_UNDEFINED, .name = copy ? memcpy(copy, name, bytes) : "a value"};
}

static jinja_value_t call_map(jinja_run_t *run, const char *name, jinja_value_t map, jinja_arguments_t with)
{
    if (*name == 'g') {
        const jinja_value_t *key = jinja_argument(with, 0, "key"),
                            *usual = jinja_argument(with, 1, "default");
        const jinja_value_t *found = key && jinja_reads(run, map) ? jinja_look(map.list, *key) : NULL;
        return found ? *found : usual ? *usual : JINJA_NONE;
    }
    jinja_value_t list = jinja_list(run);
    for (size_t i = 0; !jinja_fails(run) && i < map.list->count; i++) {
        jinja_value_t one = map.list->item[2 * i + (*name == 'v')];
        if (*name == 'i') {
            one = jinja_list(run);
            for (size_t k = 0; k < 2 && !jinja_fails(run); k++)
                jinja_push(run, one.list, map.list->item[2 * i + k]);
        }
        jinja_push(run, list.list, one);
    }
    return list;
}

jinja_value_t jinja_call_method(jinja_run_t *run, const char *name, jinja_value_t of, jinja_arguments_t with)
{
    if (of.kind == VALUE_MAP)
        return call_map(run, name, of, with);
    size_t i = 0;
    while (of.kind == VALUE_TEXT && strcmp(of_texts[i].name, name) != 0)
        i++;
    if (of.kind != VALUE_TEXT || !of_texts[i].of)
        return jinja_fail(run, "the method %s of %s is not supported", name, jinja_kind_name(of));
    return jinja_reads(run, of) ? of_texts[i].of(run, of.text, with) : JINJA_NONE;
}

/* ---- tojson -------------------------------------------------------------------------------------------- */

static void put(jinja_run_t *run, jinja_buffer_t *out, const char *text)
{
    jinja_add(run, out, &(jinja_text_t){text, NULL, strlen(text)});
}

/* The arguments of json.dumps. */
typedef struct {
    jinja_run_t *run;
    jinja_buffer_t *out;
    const jinja_text_t *comma, *colon;
    int64_t indent; /* below 0: all on one line */
    int ascii, sorted;
} json_form_t;

/* Writes what a character of a text becomes, in `out` [16]: its bytes, or escapes. */
static void escape_of(const json_form_t *form, uint32_t c, const char *bytes, size_t n, char out[16])
{
    static const char known[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    memcpy(out, bytes, n);
    out[n] = 0;
    if (form->ascii && c > 0xFFFF)
        snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (unsigned)((c - 0x10000) >> 10),
                 0xDC00 + (unsigned)((c - 0x10000) & 0x3FF));
    else if (c < 0x20 || (form->ascii && c > 0x7E))
        snprintf(out, 16, "\\u%04x", (unsigned)c);
    for (size_t k = 0; known[k]; k += 2)
        if ((uint32_t)known[k] == c)
            snprintf(out, 16, "\\%c", known[k + 1]);
}

/* Escapes come from where the character did. */
static void put_text(const json_form_t *form, const jinja_text_t *text)
{
    put(form->run, form->out, "\"");
    for (size_t i = 0, n; i < text->bytes && !jinja_fails(form->run); i += n) {
        uint32_t c = 0, from[16];
        char escape[16];
        n = base_utf8_decode((const unsigned char *)text->text + i, text->bytes - i, &c);
        if (n == 0) {
            n = 1;
            c = 0xFFFD;
        }
        escape_of(form, c, text->text + i, n, escape);
        const size_t bytes = escape[0] ? strlen(escape) : 1;
        for (size_t k = 0; k < bytes; k++)
            from[k] = text->from ? text->from[i] : 0;
        jinja_add(form->run, form->out, &(jinja_text_t){escape, from, bytes});
    }
    put(form->run, form->out, "\"");
}

static void put_line(const json_form_t *form, int depth)
{
    if (form->indent >= 0)
        put(form->run, form->out, "\n");
    for (int64_t i = 0; i < form->indent * depth && !jinja_fails(form->run); i++)
        put(form->run, form->out, " ");
}

static void put_json(const json_form_t *form, jinja_value_t value, int depth);

static void put_items(const json_form_t *form, jinja_value_t value, int depth)
{
    jinja_run_t *run = form->run;
    const int map = value.kind == VALUE_MAP;
    jinja_value_t pairs = value;
    if (map)
        pairs = form->sorted
                    ? jinja_filter_dictsort(
                          run, value,
                          (jinja_arguments_t){&(jinja_value_t){.kind = VALUE_BOOL, .number = 1}, 1, NULL})
                    : jinja_call_method(run, "items", value, (jinja_arguments_t){0});
    put(run, form->out, map ? "{" : "[");
    for (size_t i = 0; !jinja_fails(run) && i < pairs.list->count; i++) {
        const jinja_value_t *item = &pairs.list->item[i];
        if (i > 0)
            jinja_add(run, form->out, form->comma);
        put_line(form, depth + 1);
        if (map) {
            item = item->list->item;
            if (item->kind != VALUE_TEXT)
                jinja_fail(run, "tojson of a map with %s as a key", jinja_kind_name(*item));
            put_json(form, *item++, depth + 1);
            jinja_add(run, form->out, form->colon);
        }
        put_json(form, *item, depth + 1);
    }
    if (value.list->count > 0)
        put_line(form, depth);
    put(run, form->out, map ? "}" : "]");
}

static void put_json(const json_form_t *form, jinja_value_t value, int depth)
{
    jinja_run_t *run = form->run;
    if (depth > 100)
        jinja_fail(run, "tojson of what is nested too deeply");
    if (jinja_fails(run))
        return;
    if (value.kind == VALUE_TEXT)
        put_text(form, value.text);
    else if (value.kind == VALUE_NONE || value.kind == VALUE_BOOL)
        put(run, form->out, value.kind == VALUE_NONE ? "null" : value.number ? "true" : "false");
    else if (value.kind == VALUE_INT || value.kind == VALUE_REAL)
        jinja_add(run, form->out, jinja_string(run, value));
    else if (value.kind != VALUE_MAP && value.kind != VALUE_LIST)
        jinja_fail(run, "tojson of %s", jinja_kind_name(value));
    else
        put_items(form, value, depth);
}

jinja_value_t jinja_to_json(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    static const jinja_text_t comma = {", ", NULL, 2}, bare = {",", NULL, 1}, colon = {": ", NULL, 2};
    jinja_buffer_t buffer = {0};
    const jinja_value_t *ascii = jinja_argument(with, 0, "ensure_ascii"),
                        *between = jinja_argument(with, 2, "separators"),
                        *sorted = jinja_argument(with, 3, "sort_keys");
    const int64_t indent = jinja_number_argument(run, with, 1, "indent", -1);
    json_form_t form = {.run = run,
                        .out = &buffer,
                        .comma = indent >= 0 ? &bare : &comma,
                        .colon = &colon,
                        .indent = indent,
                        .ascii = ascii && jinja_true(*ascii),
                        .sorted = sorted && jinja_true(*sorted)};
    if (indent > 64)
        return jinja_fail(run, "tojson takes an indent of up to 64");
    if (between && between->kind != VALUE_NONE) {
        const jinja_list_t *two = between->kind == VALUE_LIST ? between->list : NULL;
        if (!two || two->count != 2 || two->item[0].kind != VALUE_TEXT || two->item[1].kind != VALUE_TEXT)
            return jinja_fail(run, "tojson takes two texts as separators");
        form.comma = two->item[0].text;
        form.colon = two->item[1].text;
    }
    put_json(&form, value, 0);
    return jinja_taken(run, &buffer);
}
