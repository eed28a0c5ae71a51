/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/compare.c: see compare.h.
 *
 * Each rank sends rank 0 a list of [section, name, value], after the name of its host. */
#include "tools/gyre-doctor/compare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/settings/settings.h"
#include "base/text/json.h"

enum { RANGES_MOST = 12 }; /* that are printed for one value */

/* What may differ from rank to rank in a sound job: addresses, what is free at the moment, measured numbers,
 * and what a launcher gives to each process. */
static const char *const own[] = {
    "interfaces",           "/dev/shm",        "huge pages",     "CPU set",
    "costs in ns",          "costs in GB/s",   "costs in bytes", "GYRE_RANK",
    "GYRE_LOCAL_RANK",      "GYRE_LOCAL_SIZE", "GYRE_ROOT_FD",   "GYRE_RECORDER_FD",
    "CUDA_VISIBLE_DEVICES",
};
/* Of the environment, in addition to Gyre's settings. */
static const char *const prefixes[] = {"UCX_", "OMP_", "OPENBLAS_", "CUDA_", "NCCL_", "LD_"};

static int is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return 1;
    return strncmp(name, "tuning", 6) == 0; /* and "tuning, busy" */
}

static void add_settings(report_t *report)
{
    report->section = "Settings";
    for (int i = 0; i < SET_COUNT; i++) {
        const base_setting_row_t row = base_setting_row((base_setting_t)i);
        report_add(report, FOUND_OK, row.name, "", "%s", row.value);
    }
    report->section = "Environment";
    for (char **entry = environ; *entry != NULL; entry++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
            char name[128];
            const size_t length = strcspn(*entry, "=");
            if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) != 0 || length >= sizeof name)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)length, *entry);
            report_add(report, FOUND_OK, name, "", "%s", *entry + length + ((*entry)[length] == '='));
        }
}

/* The list that this rank sends; NULL: no memory. The caller frees it. */
static char *list_of(const report_t *report)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    json_t *list = json_pack("[s]", host);
    int ok = list != NULL;
    for (const finding_t *f = report->first; ok && f != NULL; f = f->next)
        if (!is_own(f->name))
            ok = json_array_append_new(list, json_pack("[s, o, o]", f->section, report_text_json(f->name),
                                                       report_text_json(f->value))) == 0;
    char *text = ok ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}

/* What rank 0 knows. */
typedef struct {
    json_t *rows;  /* {"section: name": [n]}, null where a rank has no such thing */
    json_t *hosts; /* [n] */
    int n;
} judge_t;

/* The row of this name; borrowed. NULL: no memory. */
static json_t *row_of(judge_t *judge, const char *section, const char *name)
{
    char key[400];
    snprintf(key, sizeof key, "%s: %s", section, name);
    json_t *row = json_object_get(judge->rows, key);
    if (row != NULL)
        return row;
    row = json_array();
    for (int r = 0; r < judge->n; r++)
        json_array_append_new(row, json_null());
    return json_object_set_new(judge->rows, key, row) == 0 && json_array_size(row) == (size_t)judge->n ? row
                                                                                                       : NULL;
}

/* Adds what rank `r` sent. 0: no memory, or not what list_of makes. */
static int take(judge_t *judge, const char *text, size_t bytes, int r)
{
    json_error_t error;
    int lacks;
    json_t *list = base_json_text(text, bytes, &error, &lacks), *entry;
    size_t i;
    int ok = json_array_append(judge->hosts, json_array_get(list, 0)) == 0;
    json_array_foreach(list, i, entry)
    {
        const char *section, *name;
        json_t *value;
        if (i == 0 || !ok)
            continue;
        ok = json_unpack(entry, "[s, s, o]", &section, &name, &value) == 0;
        json_t *row = ok ? row_of(judge, section, name) : NULL;
        const char *before = json_string_value(json_array_get(row, (size_t)r));
        if (before == NULL) /* else the name is there twice: */
            ok = row != NULL && json_array_set(row, (size_t)r, value) == 0;
        else
            ok = json_array_set_new(row, (size_t)r,
                                    json_sprintf("%s; %s", before, json_string_value(value))) == 0;
    }
    json_decref(list);
    return ok;
}

/* One object for each value of a row, the most frequent first: {"value", "ranks"}. NULL: all are alike, or
 * no memory. */
static json_t *groups_of(const json_t *row)
{
    json_t *groups = json_array(), *value, *group;
    size_t r, g;
    json_array_foreach(row, r, value)
    {
        json_t *found = NULL;
        json_array_foreach(groups, g, group) if (json_equal(json_object_get(group, "value"), value)) found =
            group;
        if (found == NULL) {
            found = json_pack("{s:O, s:[]}", "value", value, "ranks");
            json_array_append_new(groups, found);
        }
        json_array_append_new(json_object_get(found, "ranks"), json_integer((json_int_t)r));
    }
    size_t most = 0;
    json_array_foreach(groups, g,
                       group) if (json_array_size(json_object_get(group, "ranks")) >
                                  json_array_size(json_object_get(json_array_get(groups, most), "ranks")))
        most = g;
    if (json_array_size(groups) < 2) {
        json_decref(groups);
        return NULL;
    }
    json_t *first = json_incref(json_array_get(groups, most));
    json_array_remove(groups, most);
    json_array_insert_new(groups, 0, first);
    return groups;
}

static int rank_at(const json_t *ranks, size_t i)
{
    return (int)json_integer_value(json_array_get(ranks, i));
}

/* "0-3 (n1), 4 (n2)" */
static void print_ranks(const json_t *ranks, const json_t *hosts)
{
    const size_t n = json_array_size(ranks);
    int printed = 0;
    for (size_t i = 0, end; i < n; i = end) {
        const char *host = json_string_value(json_array_get(hosts, (size_t)rank_at(ranks, i)));
        for (end = i + 1; end < n && rank_at(ranks, end) == rank_at(ranks, end - 1) + 1; end++)
            if (strcmp(host, json_string_value(json_array_get(hosts, (size_t)rank_at(ranks, end)))) != 0)
                break;
        if (printed++ == RANGES_MOST) {
            printf(", and %zu more", n - i);
            return;
        }
        printf("%s%d", i > 0 ? ", " : n > 1 ? "ranks " : "rank ", rank_at(ranks, i));
        if (end - i > 1)
            printf("-%d", rank_at(ranks, end - 1));
        printf(" (%s)", host);
    }
}

static void print(const judge_t *judge, const json_t *differences)
{
    const size_t differ = json_array_size(differences);
    json_t *row, *group;
    size_t i, g;
    if (judge->n == 1) {
        puts("1 rank: there is nothing to compare. Start it as the job is started: ucx-run -n 8 ... "
             "gyre-doctor "
             "--compare");
        return;
    }
    json_array_foreach(differences, i, row)
    {
        printf("%s\n", json_string_value(json_object_get(row, "name")));
        json_array_foreach(json_object_get(row, "values"), g, group)
        {
            const char *value = json_string_value(json_object_get(group, "value"));
            printf("    %s  ", value == NULL ? "(absent)" : *value == '\0' ? "(empty)" : value);
            print_ranks(json_object_get(group, "ranks"), judge->hosts);
            putchar('\n');
        }
    }
    printf("%s%d ranks were compared: %zu things are alike, %zu differ.\n", differ > 0 ? "\n" : "", judge->n,
           json_object_size(judge->rows) - differ, differ);
}

/* Rank 0 has all lists. *json as in compare_ranks. Returns the exit status. */
static int tell(const judge_t *judge, json_t **json)
{
    json_t *differences = json_array(), *row;
    const char *key;
    json_object_foreach(judge->rows, key, row)
    {
        json_t *groups = groups_of(row);
        if (groups != NULL)
            json_array_append_new(differences, json_pack("{s:s, s:o}", "name", key, "values", groups));
    }
    const size_t differ = json_array_size(differences);
    if (json != NULL)
        *json = json_pack("{s:s, s:i, s:O, s:I, s:O}", "version", gyre_version(), "ranks", judge->n, "hosts",
                          judge->hosts, "alike", (json_int_t)(json_object_size(judge->rows) - differ),
                          "differences", differences);
    else
        print(judge, differences);
    json_decref(differences);
    return differ > 0;
}

/* Brings all lists to rank 0, and its verdict to all. */
static gyre_status_t exchange(gyre_comm_t *world, const char *text, json_t **json, int *verdict)
{
    static const char no_memory[] = "gyre-doctor has no memory left to compare the ranks";
    judge_t judge = {.rows = json_object(), .hosts = json_array(), .n = gyre_comm_size(world)};
    const int judges = gyre_comm_rank(world) == 0;
    const uint64_t mine = strlen(text);
    uint64_t *sizes = calloc((size_t)judge.n, sizeof *sizes);
    size_t *counts = calloc((size_t)judge.n, sizeof *counts), total = 0;
    char *all = NULL;
    int ok = sizes != NULL && counts != NULL;
    gyre_status_t st = ok ? gyre_all_gather(&mine, sizes, 1, GYRE_UINT64, world) : GYRE_OK;
    for (int r = 0; ok && r < judge.n; r++)
        total += counts[r] = (size_t)sizes[r];
    if (ok && judges && st == GYRE_OK)
        ok = (all = malloc(total)) != NULL;
    if (ok && st == GYRE_OK)
        st = gyre_gatherv(text, (size_t)mine, all, counts, NULL, GYRE_UINT8, 0, world);
    const char *at = all;
    for (int r = 0; ok && judges && st == GYRE_OK && r < judge.n; at += counts[r], r++)
        ok = take(&judge, at, counts[r], r);
    if (!ok)
        st = gyre_comm_abort(world, no_memory);
    else if (judges && st == GYRE_OK)
        *verdict = tell(&judge, json);
    if (ok && st == GYRE_OK)
        st = gyre_broadcast(verdict, verdict, 1, GYRE_INT32, 0, world);
    json_decref(judge.rows);
    json_decref(judge.hosts);
    free(sizes);
    free(counts);
    free(all);
    return ok ? st : GYRE_ERR_NO_MEMORY;
}

int compare_ranks(report_t *report, json_t **json)
{
    static const base_setting_t alike[] = {SET_ALGO, SET_CHUNK, SET_SCRATCH, SET_ORDER, SET_TRANSPORT};
    gyre_comm_t *world;
    int verdict = 1;
    add_settings(report);
    char *text = list_of(report);
    if (text == NULL) {
        fputs("gyre-doctor: no memory left\n", stderr);
        return 1;
    }
    /* Collectives refuse ranks in which these differ, and that is what is to be found here. */
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        base_settings_set(alike[i], base_setting_row(alike[i]).standard, "gyre-doctor");
    if (gyre_init(NULL, &world) == GYRE_OK) { /* errors are logged */
        if (exchange(world, text, json, &verdict) != GYRE_OK)
            verdict = 1;
        gyre_finalize(world);
    }
    free(text);
    return verdict;
}
