/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/order.c: filters that put items in order, or find those that are the same; and attributes of
 * items by their path. */
#include <string.h>

#include "model/jinja/internal.h"

/* ---- attributes by a path ------------------------------------------------------------------------------ */

/* A part of a path: an entry, before a method of that name; a number is a place in a list. */
static jinja_value_t part_of(jinja_run_t *run, jinja_value_t value, const char *part, size_t bytes)
{
    size_t number = 0, digits = 0;
    while (digits < bytes && digits < 9 && part[digits] >= '0' && part[digits] <= '9')
        number = 10 * number + (size_t)(part[digits++] - '0');
    if (bytes > 0 && digits == bytes && (value.kind == VALUE_LIST || value.kind == VALUE_TEXT)) {
        const jinja_list_t *items = jinja_items(run, value);
        return items && number < items->count ? items->item[number] : JINJA_UNDEFINED;
    }
    const jinja_value_t *entry =
        value.kind == VALUE_MAP && jinja_reads(run, value) ? jinja_find(value.list, part, bytes) : NULL;
    return entry ? *entry : jinja_attribute(run, value, part, bytes);
}

jinja_value_t jinja_attribute_path(jinja_run_t *run, jinja_value_t value, const jinja_text_t *path,
                                   const jinja_value_t *usual)
{
    for (size_t at = 0, end; at <= path->bytes && !jinja_fails(run); at = end + 1) {
        const char *dot = at < path->bytes ? memchr(path->text + at, '.', path->bytes - at) : NULL;
        end = dot ? (size_t)(dot - path->text) : path->bytes;
        value = part_of(run, value, path->text + at, end - at);
        if (usual && value.kind == VALUE_UNDEFINED)
            value = *usual;
    }
    return value;
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* What an item is compared by: an attribute of it, if `path` names one, without regard to case unless
 * `exact`. */
typedef struct {
    const jinja_text_t *path;
    int exact, reverse;
} rule_t;

static jinja_value_t key_of(jinja_run_t *run, jinja_value_t item, const rule_t *rule)
{
    const jinja_value_t key = rule->path ? jinja_attribute_path(run, item, rule->path, NULL) : item;
    return key.kind == VALUE_TEXT && !rule->exact && !jinja_fails(run)
               ? jinja_call_method(run, "lower", key, (jinja_arguments_t){0})
               : key;
}

static rule_t rule_of(jinja_run_t *run, jinja_arguments_t with, size_t first)
{
    const jinja_value_t *exact = jinja_argument(with, first, "case_sensitive"),
                        *path = jinja_argument(with, first + 1, "attribute");
    if (path && path->kind == VALUE_NONE)
        path = NULL;
    if (path && path->kind != VALUE_TEXT)
        jinja_fail(run, "an attribute that is %s is not supported", jinja_kind_name(*path));
    else if (path && memchr(path->text->text, ',', path->text->bytes))
        jinja_fail(run, "a list of attributes is not supported");
    return (rule_t){.path = path && path->kind == VALUE_TEXT ? path->text : NULL,
                    .exact = exact && jinja_true(*exact)};
}

/* ---- in order ------------------------------------------------------------------------------------------ */

/* Puts an item and its key into lists that are in order: after those that are the same. */
static void insert(jinja_run_t *run, jinja_list_t *items, jinja_list_t *keys, jinja_value_t item,
                   jinja_value_t key, int reverse)
{
    size_t at = items->count;
    while (at > 0 && jinja_steps(run, 1) &&
           jinja_compare(run, "<", reverse ? keys->item[at - 1] : key, reverse ? key : keys->item[at - 1]))
        at--;
    jinja_push(run, items, item);
    jinja_push(run, keys, key);
    if (jinja_fails(run))
        return;
    memmove(items->item + at + 1, items->item + at, (items->count - 1 - at) * sizeof *items->item);
    memmove(keys->item + at + 1, keys->item + at, (keys->count - 1 - at) * sizeof *keys->item);
    items->item[at] = item;
    keys->item[at] = key;
}

jinja_value_t jinja_filter_sort(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_value_t *reverse = jinja_argument(with, 0, "reverse");
    const rule_t rule = rule_of(run, with, 1);
    const jinja_list_t *items = jinja_fails(run) ? NULL : jinja_items(run, value);
    jinja_value_t made = jinja_list(run), keys = jinja_list(run);
    for (size_t i = 0; items && i < items->count && !jinja_fails(run); i++)
        insert(run, made.list, keys.list, items->item[i], key_of(run, items->item[i], &rule),
               reverse && jinja_true(*reverse));
    return made;
}

jinja_value_t jinja_filter_dictsort(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const jinja_value_t *exact = jinja_argument(with, 0, "case_sensitive"),
                        *by = jinja_argument(with, 1, "by"), *reverse = jinja_argument(with, 2, "reverse");
    const rule_t rule = {.exact = exact && jinja_true(*exact)};
    const int values = by && by->kind == VALUE_TEXT && strcmp(by->text->text, "value") == 0;
    if (value.kind != VALUE_MAP)
        return jinja_fail(run, "the filter dictsort on %s", jinja_kind_name(value));
    if (by && !values && (by->kind != VALUE_TEXT || strcmp(by->text->text, "key") != 0))
        return jinja_fail(run, "the filter dictsort is by 'key' or 'value'");
    jinja_value_t pairs = jinja_call_method(run, "items", value, (jinja_arguments_t){0}),
                  made = jinja_list(run), keys = jinja_list(run);
    for (size_t i = 0; !jinja_fails(run) && i < pairs.list->count; i++)
        insert(run, made.list, keys.list, pairs.list->item[i],
               key_of(run, pairs.list->item[i].list->item[values], &rule), reverse && jinja_true(*reverse));
    return made;
}

jinja_value_t jinja_filter_unique(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with)
{
    const rule_t rule = rule_of(run, with, 0);
    const jinja_list_t *items = jinja_fails(run) ? NULL : jinja_items(run, value);
    jinja_value_t made = jinja_list(run), seen = jinja_map(run);
    for (size_t i = 0; items && i < items->count && !jinja_fails(run); i++) {
        const jinja_value_t key = key_of(run, items->item[i], &rule);
        if (key.kind == VALUE_LIST || key.kind == VALUE_MAP)
            jinja_fail(run, "the filter unique on %s is not supported", jinja_kind_name(key));
        if (jinja_fails(run) || !jinja_steps(run, seen.list->count) || jinja_look(seen.list, key))
            continue;
        jinja_put(run, seen.list, key, JINJA_NONE);
        jinja_push(run, made.list, items->item[i]);
    }
    return made;
}
