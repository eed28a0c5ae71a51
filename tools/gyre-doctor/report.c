/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/report.c: keeps the findings and prints them, as text or as JSON. */
#include "tools/gyre-doctor/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/gyre.h>

#include "base/settings/settings.h"

static const char *const words[] = {"ok", "note", "warning", "missing"};

void report_add(report_t *report, found_t state, const char *name, const char *advice, const char *format,
                ...)
{
    char value[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    finding_t *finding = base_arena_alloc(&report->memory, 1, sizeof(*finding));
    char *kept_value = base_arena_strdup(&report->memory, value);
    char *kept_name = base_arena_strdup(&report->memory, name);
    char *kept_advice = base_arena_strdup(&report->memory, advice);
    if (finding == NULL || kept_value == NULL || kept_name == NULL || kept_advice == NULL) {
        fprintf(stderr, "gyre-doctor: no memory left to note: %s: %s\n", name, value);
        return;
    }
    *finding = (finding_t){NULL, state, report->section, kept_name, kept_value, kept_advice};
    if (report->last != NULL)
        report->last->next = finding;
    else
        report->first = finding;
    report->last = finding;
}

void report_word(char *list, size_t bytes, const char *word)
{
    size_t length = strlen(word), used = strlen(list);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return;
    if (used + length + 2 <= bytes)
        snprintf(list + used, bytes - used, "%s%s", used > 0 ? " " : "", word);
}

int report_count(const report_t *report, found_t state)
{
    int count = 0;
    for (const finding_t *f = report->first; f != NULL; f = f->next)
        count += f->state == state;
    return count;
}

void report_print(const report_t *report, FILE *out)
{
    static const char *const marks[] = {" ", "-", "!", "X"};
    const char *section = "";
    int width = 0;
    for (const finding_t *f = report->first; f != NULL; f = f->next)
        width = (int)strlen(f->name) > width ? (int)strlen(f->name) : width;
    for (const finding_t *f = report->first; f != NULL; f = f->next) {
        if (strcmp(section, f->section) != 0)
            fprintf(out, "%s%s\n", *section != '\0' ? "\n" : "", f->section);
        section = f->section;
        fprintf(out, "  %s %-*s  %s\n", marks[f->state], width, f->name, f->value);
        if (*f->advice != '\0')
            fprintf(out, "    %-*s  -> %s\n", width, "", f->advice);
    }
    int missing = report_count(report, FOUND_MISSING), warnings = report_count(report, FOUND_WARNING);
    fprintf(out, "\n%s", missing == 0 ? "Everything required is there" : "Something required is missing (X)");
    if (warnings > 0)
        fprintf(out, "; %d thing%s to improve (!)", warnings, warnings == 1 ? "" : "s");
    fprintf(out, ". gyre-doctor --settings lists what can be set.\n");
}

json_t *report_text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *plain = strdup(text);
    if (plain == NULL)
        return NULL;
    for (char *c = plain; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    value = json_string(plain);
    free(plain);
    return value;
}

json_t *report_json(const report_t *report)
{
    json_t *list = json_array();
    for (const finding_t *f = report->first; f != NULL; f = f->next)
        if (json_array_append_new(list,
                                  json_pack("{s:s, s:o, s:s, s:o, s:s}", "section", f->section, "name",
                                            report_text_json(f->name), "state", words[f->state], "value",
                                            report_text_json(f->value), "advice", f->advice)) != 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:s, s:b, s:o, s:o}", "version", gyre_version(), "ok",
                     report_count(report, FOUND_MISSING) == 0, "findings", list, "settings",
                     report_settings_json());
}

json_t *report_settings_json(void)
{
    static const char *const kinds[] = {"string", "int", "size", "seconds", "bool", "choice"};
    json_t *list = json_array();
    for (int i = 0; i < SET_COUNT; i++) {
        base_setting_row_t row = base_setting_row((base_setting_t)i);
        json_t *entry =
            json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:s}", "name", row.name, "kind", kinds[row.kind],
                      "value", report_text_json(row.value), "default", row.standard, "unit", row.unit,
                      "source", report_text_json(row.source), "meaning", row.meaning);
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void report_free(report_t *report)
{
    base_arena_free(&report->memory);
    *report = (report_t){0};
}
