/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/library.c: filters, tests, functions, and what they have in common. Methods: methods.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/jinja/internal.h"

const jinja_value_t *jinja_argument(jinja_arguments_t with, size_t i, const char *name)
{
    const jinja_value_t *items = with.item;
    if (i < with.count)
        return &items[i];
    return with.named ? jinja_find(with.named, name, strlen(name)) : NULL;
}

int64_t jinja_number_argument(jinja_run_t *run, jinja_arguments_t with, size_t i, const char *name,
                              int64_t usual)
{
    const jinja_value_t *value = jinja_argument(with, i, name);
    if (!value || value->kind == VALUE_NONE)
        return usual;
    if (!jinja_is_number(*value))
        jinja_fail(run, "'%s' is %s, not a number", name, jinja_kind_name(*value));
    return value->number;
}

const jinja_text_t *jinja_text_argument(jinja_run_t *run, jinja_arguments_t with, size_t i, const char *name)
{
    static const jinja_text_t empty = {"", NULL, 0};
    const jinja_value_t *value = jinja_argument(with, i, name);
    if (value && value->kind == VALUE_TEXT)
        return value->text;
    jinja_fail(run, "'%s' is %s, not a text", name, value ? jinja_kind_name(*value) : "missing");
    return &empty;
}

/* ---- comparisons --------------------------------------------------------------------------------------- */

static int contains(jinja_run_t *run, jinja_value_t in, jinja_value_t value)
{
    if (!jinja_reads(run, in))
        return 0;
    if (in.kind == VALUE_TEXT) {
        if (value.kind != VALUE_TEXT)
            jinja_fail(run, "%s in a text: only a text can be", jinja_kind_name(value));
        return value.kind == VALUE_TEXT &&
               (value.text->bytes == 0 ||
                memmem(in.text->text, in.text->bytes, value.text->text, value.text->bytes) != NULL);
    }
    if (in.kind == VALUE_MAP && (value.kind == VALUE_LIST || value.kind == VALUE_MAP))
        jinja_fail(run, "%s in a map: it cannot be a key", jinja_kind_name(value));
    if (in.kind == VALUE_MAP)
        return jinja_look(in.list, value) != NULL;
    const jinja_list_t *items = jinja_items(run, in);
    for (size_t i = 0; items && i < items->count; i++)
        if (jinja_equal(run, items->item[i], value))
            return 1;
    return 0;
}

int jinja_compare(jinja_run_t *run, const char *sign, jinja_value_t a, jinja_value_t b)
{
    if (strcmp(sign, "==") == 0 || strcmp(sign, "!=") == 0)
        return jinja_equal(run, a, b) == (*sign == '=');
    if (strcmp(sign, "in") == 0)
        return contains(run, b, a);
    if (strcmp(sign, "not in") == 0)
        return !contains(run, b, a);
    int order = 0;
    if (jinja_is_any_number(a) && jinja_is_any_number(b))
        order = jinja_order(a, b);
    else if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT) {
        if (!jinja_reads(run, a))
            return 0;
        const size_t least = a.text->bytes < b.text->bytes ? a.text->bytes : b.text->bytes;
        order = memcmp(a.text->text, b.text->text, least);
        if (order == 0)
            order = (a.text->bytes > b.text->bytes) - (a.text->bytes < b.text->bytes);
    } else
        jinja_fail(run, "%s %s %s is not supported", jinja_kind_name(a), sign, jinja_kind_name(b));
    const int equal = sign[1] == '=' && order == 0;
    return equal || (*sign == '<' ? order < 0 : order > 0);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *sign;
} compared[] = {{"eq", "=="}, {"equalto", "=="}, {"ne", "!="},         {"lt", "<"},  {"lessthan", "<"},
                {"le", "<="}, {"gt", ">"},       {"greaterthan", ">"}, {"ge", ">="}, {"in", "in"}};

static const char *compared_by(const char *test)
{
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        if (strcmp(compared[i].name, test) == 0)
            return compared[i].sign;
    return NULL;
}

static int is_divisible(jinja_run_t *run, jinja_value_t value, int64_t by)
{
    if (!jinja_is_number(value))
        jinja_fail(run, "the remainder of %s is not supported", jinja_kind_name(value));
    else if (by == 0)
        jinja_fail(run, "a division by 0");
    return !jinja_fails(run) && by != -1 ? value.number % by == 0 : 1;
}

int jinja_test(jinja_run_t *run, const char *name, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_value_kind_t kind = value.kind;
    const char *sign = compared_by(name);
    if (sign && with.count != 1)
        jinja_fail(run, "the test '%s' takes one argument", name);
    if (jinja_fails(run))
        return 0;
    if (sign)
        return jinja_compare(run, sign, value, with.item[0]);
    if (strcmp(name, "defined") == 0)
        return kind != VALUE_UNDEFINED;
    if (strcmp(name, "undefined") == 0)
        return kind == VALUE_UNDEFINED;
    if (strcmp(name, "none") == 0)
        return kind == VALUE_NONE;
    if (strcmp(name, "string") == 0)
        return kind == VALUE_TEXT;
    if (strcmp(name, "mapping") == 0)
        return kind == VALUE_MAP;
    if (strcmp(name, "sequence") == 0 || strcmp(name, "iterable") == 0)
        return kind == VALUE_TEXT || kind == VALUE_LIST || kind == VALUE_MAP || kind == VALUE_UNDEFINED;
    if (strcmp(name, "number") == 0)
        return jinja_is_any_number(value);
    if (strcmp(name, "integer") == 0)
        return kind == VALUE_INT;
    if (strcmp(name, "float") == 0)
        return kind == VALUE_REAL;
    if (strcmp(name, "boolean") == 0)
        return kind == VALUE_BOOL;
    if (strcmp(name, "true") == 0)
        return kind == VALUE_BOOL && value.number;
    if (strcmp(name, "false") == 0)
        return kind == VALUE_BOOL && !value.number;
    if (strcmp(name, "divisibleby") == 0)
        return is_divisible(run, value, jinja_number_argument(run, with, 0, "num", 0));
    if (strcmp(name, "odd") == 0 || strcmp(name, "even") == 0)
        return is_divisible(run, value, 2) == (*name == 'e');
    jinja_fail(run, "the test %.60s is not supported", name);
    return 0;
}

/* ---- filters ------------------------------------------------------------------------------------------- */

static jinja_value_t filter_trim(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_text_t *text = jinja_string(run, value);
    const jinja_value_t *set = jinja_argument(with, 0, "chars");
    size_t begin, end;
    jinja_strip(text, set && set->kind == VALUE_TEXT ? set->text : NULL, 1, 1, &begin, &end);
    return jinja_cut(run, text, begin, end);
}

static jinja_value_t filter_length(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    if (value.kind == VALUE_TEXT)
        return jinja_int((int64_t)jinja_length(value.text));
    const jinja_list_t *items = value.kind == VALUE_MAP ? value.list : jinja_items(run, value);
    return items ? jinja_int((int64_t)items->count) : JINJA_UNDEFINED;
}

static jinja_value_t filter_default(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_value_t *other = jinja_argument(with, 0, "default_value"),
                        *falsy = jinja_argument(with, 1, "boolean");
    const int lacks = value.kind == VALUE_UNDEFINED || (falsy && jinja_true(*falsy) && !jinja_true(value));
    return !lacks ? value : other ? *other : jinja_word(run, "");
}

static jinja_value_t filter_string(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    const jinja_text_t *text = jinja_string(run, value);
    return jinja_cut(run, text, 0, text->bytes);
}

static jinja_value_t filter_same(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)run;
    (void)with;
    return value;
}

static jinja_value_t filter_list(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    const jinja_list_t *items = jinja_items(run, value);
    jinja_value_t list = jinja_list(run);
    for (size_t i = 0; !jinja_fails(run) && i < items->count; i++)
        jinja_push(run, list.list, items->item[i]);
    return list;
}

static jinja_value_t filter_reverse(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    jinja_value_t list = filter_list(run, value, with);
    if (jinja_fails(run))
        return list;
    jinja_list_t *items = list.list;
    for (size_t i = 0; i < items->count / 2; i++) {
        const jinja_value_t kept = items->item[i];
        items->item[i] = items->item[items->count - 1 - i];
        items->item[items->count - 1 - i] = kept;
    }
    if (value.kind != VALUE_TEXT)
        return list;
    const jinja_value_t none = jinja_word(run, "");
    return jinja_fails(run) ? none
                            : jinja_call_method(run, "join", none, (jinja_arguments_t){&list, 1, NULL});
}

static jinja_value_t filter_first(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    const jinja_list_t *items = jinja_items(run, value);
    return items && items->count > 0 ? items->item[0] : JINJA_UNDEFINED;
}

static jinja_value_t filter_last(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    const jinja_list_t *items = jinja_items(run, value);
    return items && items->count > 0 ? items->item[items->count - 1] : JINJA_UNDEFINED;
}

static jinja_value_t filter_join(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_list_t *items = jinja_items(run, value);
    const jinja_value_t *given = jinja_argument(with, 0, "d");
    jinja_buffer_t buffer = {0};
    const jinja_value_t *path = jinja_argument(with, 1, "attribute");
    if (path && path->kind != VALUE_TEXT)
        return jinja_fail(run, "an attribute that is %s is not supported", jinja_kind_name(*path));
    for (size_t i = 0; items && i < items->count && !jinja_fails(run); i++) {
        if (i > 0 && given)
            jinja_add(run, &buffer, jinja_string(run, *given));
        const jinja_value_t item =
            path ? jinja_attribute_path(run, items->item[i], path->text, NULL) : items->item[i];
        jinja_add(run, &buffer, jinja_string(run, item));
    }
    return jinja_taken(run, &buffer);
}

static jinja_value_t filter_int(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const int64_t usual = jinja_number_argument(run, with, 0, "default", 0);
    if (jinja_is_number(value))
        return jinja_int(value.number);
    if (value.kind == VALUE_REAL && fabs(value.real) >= 0x1p63)
        return jinja_fail(run, "the filter int: a number is beyond 2^63");
    if (value.kind == VALUE_REAL)
        return jinja_int((int64_t)value.real);
    if (value.kind == VALUE_UNDEFINED)
        return jinja_fail(run, "the filter int: '%.60s' is undefined", value.name);
    if (value.kind != VALUE_TEXT || value.text->bytes > 18)
        return jinja_int(usual);
    char digits[20] = "", *end;
    memcpy(digits, value.text->text, value.text->bytes);
    const int64_t number = strtoll(digits, &end, 10);
    return jinja_int(end == digits || *end ? usual : number);
}

static jinja_value_t filter_abs(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    (void)with;
    if (value.kind != VALUE_INT || value.number == INT64_MIN)
        return jinja_fail(run, "the filter abs on %s", jinja_kind_name(value));
    return jinja_int(value.number < 0 ? -value.number : value.number);
}

static jinja_value_t filter_indent(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_text_t *text = jinja_text_argument(run, (jinja_arguments_t){&value, 1, NULL}, 0, "s");
    const int64_t width = jinja_number_argument(run, with, 0, "width", 4);
    const jinja_value_t *first = jinja_argument(with, 1, "first"), *blank = jinja_argument(with, 2, "blank");
    jinja_buffer_t buffer = {0};
    if (width < 0 || width > 64)
        return jinja_fail(run, "the filter indent takes a width of 0 to 64");
    char spaces[64];
    memset(spaces, ' ', sizeof spaces);
    const jinja_text_t margin = {spaces, NULL, (size_t)width};
    for (size_t done = 0, line = 0; done <= text->bytes && !jinja_fails(run); line++) {
        const char *end = done < text->bytes ? memchr(text->text + done, '\n', text->bytes - done) : NULL;
        const size_t stop = end ? (size_t)(end - text->text) : text->bytes;
        const int empty = stop == done && !(blank && jinja_true(*blank));
        if (line == 0 ? first && jinja_true(*first) : !empty)
            jinja_add(run, &buffer, &margin);
        const size_t after = stop + (end != NULL);
        if (after > done)
            jinja_add(run, &buffer, jinja_cut(run, text, done, after).text);
        done = end ? after : text->bytes + 1;
    }
    return jinja_taken(run, &buffer);
}

static jinja_value_t filter_map(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_list_t *items = jinja_items(run, jinja_true(value) ? value : JINJA_UNDEFINED);
    const jinja_value_t *attribute = with.named ? jinja_find(with.named, "attribute", 9) : NULL,
                        *usual = attribute ? jinja_find(with.named, "default", 7) : NULL;
    const jinja_value_t *name = attribute ? attribute : with.count > 0 ? &with.item[0] : NULL;
    jinja_value_t list = jinja_list(run);
    if (!name || name->kind != VALUE_TEXT)
        return jinja_fail(run, "the filter map takes the name of a filter, or attribute=");
    for (size_t i = 0; !jinja_fails(run) && i < items->count; i++)
        jinja_push(run, list.list,
                   attribute ? jinja_attribute_path(run, items->item[i], name->text, usual)
                             : jinja_filter(run, name->text->text, items->item[i],
                                            (jinja_arguments_t){with.item + 1, with.count - 1, with.named}));
    return list;
}

/* select, reject, selectattr, rejectattr: items, or an attribute of each, that a test takes. */
static jinja_value_t select_by(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with, int attribute,
                               int wanted)
{
    const jinja_list_t *items = jinja_items(run, jinja_true(value) ? value : JINJA_UNDEFINED);
    jinja_value_t list = jinja_list(run);
    const size_t own = (size_t)attribute;
    if (with.count < own || (attribute && with.item[0].kind != VALUE_TEXT))
        return jinja_fail(run, "a filter needs the name of an attribute");
    const jinja_value_t *test = with.count > own ? &with.item[own] : NULL;
    if (test && test->kind != VALUE_TEXT)
        return jinja_fail(run, "a filter is given %s, not the name of a test", jinja_kind_name(*test));
    for (size_t i = 0; !jinja_fails(run) && i < items->count; i++) {
        const jinja_value_t item =
            attribute ? jinja_attribute_path(run, items->item[i], with.item[0].text, NULL) : items->item[i];
        const int truth = test ? jinja_test(run, test->text->text, item,
                                            (jinja_arguments_t){test + 1, with.count - own - 1, with.named})
                               : jinja_true(item);
        if (truth == wanted)
            jinja_push(run, list.list, items->item[i]);
    }
    return list;
}

static jinja_value_t filter_select(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return select_by(run, value, with, 0, 1);
}
static jinja_value_t filter_reject(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return select_by(run, value, with, 0, 0);
}
static jinja_value_t filter_selectattr(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return select_by(run, value, with, 1, 1);
}
static jinja_value_t filter_rejectattr(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return select_by(run, value, with, 1, 0);
}

/* Filters that are methods of texts, too, and take what str() makes of a value. */
static jinja_value_t as_method(jinja_run_t *run, const char *name, jinja_value_t value,
                               jinja_arguments_t with)
{
    jinja_value_t text = filter_string(run, value, with);
    return jinja_fails(run) ? text : jinja_call_method(run, name, text, with);
}
static jinja_value_t filter_upper(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return as_method(run, "upper", value, with);
}
static jinja_value_t filter_lower(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return as_method(run, "lower", value, with);
}
static jinja_value_t filter_capitalize(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return as_method(run, "capitalize", value, with);
}
static jinja_value_t filter_title(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    return as_method(run, "title", value, (jinja_arguments_t){&value, 1, with.named});
}
static jinja_value_t filter_replace(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    jinja_value_t list = jinja_list(run);
    for (size_t i = 0; i < with.count && !jinja_fails(run); i++)
        jinja_push(run, list.list, i < 2 ? filter_string(run, with.item[i], with) : with.item[i]);
    return jinja_fails(run) ? list
                            : as_method(run, "replace", value,
                                        (jinja_arguments_t){list.list->item, with.count, with.named});
}
static jinja_value_t filter_items(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    if (value.kind == VALUE_UNDEFINED)
        return jinja_list(run);
    if (value.kind != VALUE_MAP)
        return jinja_fail(run, "the filter items on %s", jinja_kind_name(value));
    return jinja_call_method(run, "items", value, with);
}

static const struct {
    const char *name;
    jinja_value_t (*of)(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with);
} filters[] = {{"trim", filter_trim},
               {"length", filter_length},
               {"count", filter_length},
               {"default", filter_default},
               {"d", filter_default},
               {"string", filter_string},
               {"safe", filter_same},
               {"list", filter_list},
               {"reverse", filter_reverse},
               {"first", filter_first},
               {"last", filter_last},
               {"join", filter_join},
               {"int", filter_int},
               {"abs", filter_abs},
               {"indent", filter_indent},
               {"map", filter_map},
               {"select", filter_select},
               {"reject", filter_reject},
               {"selectattr", filter_selectattr},
               {"rejectattr", filter_rejectattr},
               {"upper", filter_upper},
               {"lower", filter_lower},
               {"capitalize", filter_capitalize},
               {"title", filter_title},
               {"replace", filter_replace},
               {"items", filter_items},
               {"sort", jinja_filter_sort},
               {"dictsort", jinja_filter_dictsort},
               {"unique", jinja_filter_unique},
               {"tojson", jinja_to_json}};

jinja_value_t jinja_filter(jinja_run_t *run, const char *name, jinja_value_t value, jinja_arguments_t with)
{
    if (!jinja_reads(run, value))
        return JINJA_NONE;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return filters[i].of(run, value, with);
    return jinja_fail(run, "the filter %.60s is not supported", name);
}

/* ---- functions ----------------------------------------------------------------------------------------- */

jinja_value_t jinja_function(const jinja_run_t *run, const char *name)
{
    static const char *const names[] = {"range", "namespace", "dict", "raise_exception", "strftime_now"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0 && (i < 4 || run->date))
            return (jinja_value_t){.kind = VALUE_FUNCTION, .name = names[i]};
    return (jinja_value_t){.kind = VALUE_UNDEFINED, .name = name};
}

static jinja_value_t numbers(jinja_run_t *run, jinja_arguments_t with)
{
    const int64_t one = jinja_number_argument(run, with, 0, "stop", 0),
                  two = jinja_number_argument(run, with, 1, "stop", one),
                  step = jinja_number_argument(run, with, 2, "step", 1);
    const int64_t begin = with.count > 1 ? one : 0;
    jinja_value_t list = jinja_list(run);
    for (size_t i = 0; i < with.count; i++)
        if (with.item[i].kind == VALUE_NONE)
            return jinja_fail(run, "range of none");
    if (with.count < 1 || with.count > 3 || step == 0)
        return jinja_fail(run, "range takes one to three numbers, and no step of 0");
    for (int64_t i = begin; !jinja_fails(run) && (step > 0 ? i < two : i > two);) {
        jinja_push(run, list.list, jinja_int(i));
        if (list.list->count > 100000)
            return jinja_fail(run, "range has more than 100,000 numbers");
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

static jinja_value_t day(jinja_run_t *run, const jinja_text_t *format)
{
    struct tm tm = {0};
    char pattern[200], text[400];
    int year = 0, month = 0, of_month = 0;
    if (format->bytes >= sizeof pattern || sscanf(run->date, "%d-%d-%d", &year, &month, &of_month) != 3)
        return jinja_fail(run, "the format of strftime_now is too long");
    memcpy(pattern, format->text, format->bytes);
    pattern[format->bytes] = 0;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    tm.tm_mday = of_month;
    (void)timegm(&tm); /* the day of the week, and of the year */
    const size_t n = strftime(text, sizeof text, pattern, &tm);
    jinja_buffer_t buffer = {0};
    jinja_add(run, &buffer, &(jinja_text_t){text, NULL, n});
    return jinja_taken(run, &buffer);
}

jinja_value_t jinja_call_function(jinja_run_t *run, const char *name, jinja_arguments_t with)
{
    if (strcmp(name, "range") == 0)
        return numbers(run, with);
    if (strcmp(name, "strftime_now") == 0)
        return day(run, jinja_text_argument(run, with, 0, "format"));
    if (strcmp(name, "raise_exception") == 0) {
        const jinja_text_t *text = jinja_text_argument(run, with, 0, "message");
        return jinja_fail(run, "the template refuses the conversation: %.*s", (int)text->bytes, text->text);
    }
    if (with.count > 0)
        return jinja_fail(run, "the function %s with other arguments than NAME=VALUE is not supported", name);
    jinja_value_t made = jinja_map(run);
    for (size_t i = 0; !jinja_fails(run) && i < with.named->count; i++)
        jinja_put(run, made.list, with.named->item[2 * i], with.named->item[2 * i + 1]);
    made.kind = jinja_fails(run) ? VALUE_UNDEFINED : *name == 'n' ? VALUE_NAMESPACE : VALUE_MAP;
    return made;
}
