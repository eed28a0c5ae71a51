/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/hostlist.c: hosts, slots and the place of each rank. See hostlist.h. */
#include "tools/ucx-run/hosts/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

/* 1..RUN_SLOTS_MAX, or 0. */
static int slots_of(const char *text, size_t n)
{
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[i]) || value > RUN_SLOTS_MAX)
            return 0;
        value = 10 * value + (text[i] - '0');
    }
    return value <= RUN_SLOTS_MAX ? value : 0;
}

static int good_name(const char *name, size_t n)
{
    if (n == 0 || n > RUN_HOST_NAME_MAX || *name == '-')
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !memchr("._-:@%", name[i], 6)) /* a hostfile may hold a NUL */
            return 0;
    return 1;
}

int run_hostlist_add(run_hostlist_t *list, const char *name, size_t n, int slots, char *why, size_t bytes)
{
    if (!good_name(name, n)) {
        snprintf(why, bytes, "'%.*s' is no name of a host", n > 80 ? 80 : (int)n, name);
        return 0;
    }
    if (slots < 1 || list->slots > RUN_SLOTS_MAX - slots) {
        snprintf(why, bytes, "more than %d slots", RUN_SLOTS_MAX);
        return 0;
    }
    int i = 0;
    while (i < list->count && !(strlen(list->host[i].name) == n && memcmp(list->host[i].name, name, n) == 0))
        i++;
    if (i == RUN_HOSTS_MAX) {
        snprintf(why, bytes, "more than %d hosts", RUN_HOSTS_MAX);
        return 0;
    }
    if (i == list->count) {
        if (!base_grow(&list->host, &list->room, (size_t)list->count, 1, sizeof *list->host)) {
            snprintf(why, bytes, "out of memory");
            return 0;
        }
        list->host[i] = (run_host_t){strndup(name, n), 0};
        if (!list->host[i].name) {
            snprintf(why, bytes, "out of memory");
            return 0;
        }
        list->count++;
    }
    list->host[i].slots += slots;
    list->slots += slots;
    return 1;
}

/* text[0, n): a host and perhaps ":slots". slots: given elsewhere; 0: not given. */
static int add_item(run_hostlist_t *list, const char *text, size_t n, int slots, char *why, size_t bytes)
{
    size_t name = n;
    const char *count = NULL;
    if (n > 0 && *text == '[') { /* [address] or [address]:slots */
        const char *close = memchr(text, ']', n);
        if (!close || (close + 1 < text + n && close[1] != ':')) {
            snprintf(why, bytes, "'%.*s': a bracket without its other half", n > 80 ? 80 : (int)n, text);
            return 0;
        }
        count = close + 1 < text + n ? close + 2 : NULL;
        name = (size_t)(close - text) - 1;
    } else {
        const char *colon = memchr(text, ':', n);
        if (colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - text))) { /* two: an IPv6 address */
            count = colon + 1;
            name = (size_t)(colon - text);
        }
    }
    if (count) {
        size_t digits = n - (size_t)(count - text);
        slots = slots_of(count, digits);
        if (slots < 1) {
            snprintf(why, bytes, "'%.*s' is not a number of slots (1 to %d)", digits > 80 ? 80 : (int)digits,
                     count, RUN_SLOTS_MAX);
            return 0;
        }
    }
    if (name == 0) {
        snprintf(why, bytes, "a host name is missing");
        return 0;
    }
    return run_hostlist_add(list, *text == '[' ? text + 1 : text, name, slots ? slots : 1, why, bytes);
}

int run_hostlist_parse(run_hostlist_t *list, const char *text, char *why, size_t bytes)
{
    if (!*text) {
        snprintf(why, bytes, "the list of hosts is empty");
        return 0;
    }
    for (;;) {
        size_t n = strcspn(text, ",");
        if (!add_item(list, text, n, 0, why, bytes))
            return 0;
        if (!text[n])
            return 1;
        text += n + 1;
    }
}

static size_t word(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    size_t n = 0;
    while (*at + n < end && (*at)[n] != ' ' && (*at)[n] != '\t')
        n++;
    return n;
}

static int starts(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static int add_line(run_hostlist_t *list, const char *at, const char *end, char *why, size_t bytes)
{
    size_t n = word(&at, end);
    const char *name = at;
    size_t name_bytes = n;
    int slots = 0;
    if (n == 0)
        return 1;
    for (at += n; (n = word(&at, end)) > 0; at += n) {
        if (starts(at, n, "slots=")) {
            slots = slots_of(at + 6, n - 6);
            if (slots < 1) {
                snprintf(why, bytes, "'%.*s' is not a number of slots (1 to %d)", n > 80 ? 80 : (int)n - 6,
                         at + 6, RUN_SLOTS_MAX);
                return 0;
            }
        } else if (!starts(at, n, "max_slots=") && !starts(at, n, "max-slots=")) {
            snprintf(why, bytes, "'%.*s' is not understood (expected slots=N)", n > 80 ? 80 : (int)n, at);
            return 0;
        }
    }
    return add_item(list, name, name_bytes, slots, why, bytes);
}

int run_hostlist_parse_file(run_hostlist_t *list, const char *text, size_t n, const char *path, char *why,
                            size_t bytes)
{
    const char *end = text + n;
    int number = 0, before = list->slots;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;
        const char *comment = memchr(text, '#', (size_t)(stop - text));
        const char *last = comment ? comment : stop;
        char what[200];
        number++;
        if (last > text && last[-1] == '\r')
            last--;
        if (!add_line(list, text, last, what, sizeof what)) {
            snprintf(why, bytes, "%.250s:%d: %s", path, number, what);
            return 0;
        }
        text = newline ? newline + 1 : end;
    }
    if (list->slots == before) {
        snprintf(why, bytes, "'%.250s' names no host", path);
        return 0;
    }
    return 1;
}

/* --- Slurm --- */

/* The next number of "2(x3),1"; `left` counts how often it still holds. 0: malformed. */
static int next_count(const char **at, int *value, int *left)
{
    if (*left > 0) {
        --*left;
        return 1;
    }
    size_t n = strspn(*at, "0123456789");
    *value = slots_of(*at, n);
    *at += n;
    *left = 0;
    if (*value < 1)
        return 0;
    if (strncmp(*at, "(x", 2) == 0) {
        n = strspn(*at + 2, "0123456789");
        *left = slots_of(*at + 2, n) - 1;
        if (*left < 0 || (*at)[2 + n] != ')')
            return 0;
        *at += 3 + n;
    }
    if (**at == ',')
        ++*at;
    else if (**at)
        return 0;
    return 1;
}

typedef struct {
    run_hostlist_t *list;
    const char *counts;
    int value, left;
    char *why;
    size_t bytes;
} slurm_t;

static int malformed(slurm_t *s, const char *nodes)
{
    snprintf(s->why, s->bytes, "'%.100s' is no list of Slurm's hosts", nodes);
    return 0;
}

/* Expands the first brackets of `name`, then the later ones: name[0, n) and then `rest`. */
static int expand(slurm_t *s, const char *done, size_t ndone, const char *rest, size_t nrest);

static int expand_range(slurm_t *s, const char *done, size_t ndone, const char *range, size_t n,
                        const char *rest, size_t nrest)
{
    char name[RUN_HOST_NAME_MAX + 1];
    size_t width = 0;
    while (width < n && isdigit((unsigned char)range[width]))
        width++;
    size_t second = width < n && range[width] == '-' ? n - width - 1 : 0;
    int high_given = width < n;
    if (width == 0 || width > 9 || (high_given && (second == 0 || second > 9)))
        return malformed(s, range);
    for (size_t i = width + 1; i < n; i++)
        if (!isdigit((unsigned char)range[i]))
            return malformed(s, range);
    long low = strtol(range, NULL, 10), high = high_given ? strtol(range + width + 1, NULL, 10) : low;
    if (high < low || high - low >= RUN_SLOTS_MAX)
        return malformed(s, range);
    for (long k = low; k <= high; k++) {
        int wrote = snprintf(name, sizeof name, "%.*s%0*ld", (int)ndone, done, (int)width, k);
        if (wrote < 0 || (size_t)wrote >= sizeof name)
            return malformed(s, done);
        if (!expand(s, name, (size_t)wrote, rest, nrest))
            return 0;
    }
    return 1;
}

static int expand(slurm_t *s, const char *done, size_t ndone, const char *rest, size_t nrest)
{
    char name[RUN_HOST_NAME_MAX + 1];
    const char *open = memchr(rest, '[', nrest);
    size_t plain = open ? (size_t)(open - rest) : nrest;
    if (ndone + plain > RUN_HOST_NAME_MAX)
        return malformed(s, rest);
    memcpy(name, done, ndone);
    memcpy(name + ndone, rest, plain);
    if (!open) {
        if (s->counts && !next_count(&s->counts, &s->value, &s->left)) {
            snprintf(s->why, s->bytes, "Slurm's counts per host do not fit its list of hosts");
            return 0;
        }
        return run_hostlist_add(s->list, name, ndone + plain, s->value, s->why, s->bytes);
    }
    const char *close = memchr(open, ']', nrest - plain);
    if (!close)
        return malformed(s, rest);
    const char *after = close + 1;
    size_t nafter = nrest - (size_t)(after - rest);
    for (const char *range = open + 1; range <= close;) {
        const char *comma = memchr(range, ',', (size_t)(close - range));
        const char *stop = comma ? comma : close;
        if (!expand_range(s, name, ndone + plain, range, (size_t)(stop - range), after, nafter))
            return 0;
        range = stop + 1;
    }
    return 1;
}

int run_hostlist_parse_slurm(run_hostlist_t *list, const char *nodes, const char *counts, char *why,
                             size_t bytes)
{
    slurm_t s = {list, counts, 1, 0, why, bytes};
    if (!*nodes)
        return malformed(&s, nodes);
    while (*nodes) {
        size_t n = 0;
        int depth = 0;
        while (nodes[n] && !(nodes[n] == ',' && depth == 0)) {
            depth += nodes[n] == '[' ? 1 : nodes[n] == ']' ? -1 : 0;
            n++;
        }
        if (n == 0 || depth != 0)
            return malformed(&s, nodes);
        if (!expand(&s, "", 0, nodes, n))
            return 0;
        nodes += n;
        if (*nodes == ',' && !*++nodes)
            return malformed(&s, ",");
    }
    return 1;
}

/* --- the list --- */

int run_hostlist_set_slots(run_hostlist_t *list, int slots)
{
    if (list->count > 0 && slots > RUN_SLOTS_MAX / list->count)
        return 0;
    for (int i = 0; i < list->count; i++)
        list->host[i].slots = slots;
    list->slots = slots * list->count;
    return 1;
}

void run_hostlist_drop(run_hostlist_t *list, int i)
{
    list->slots -= list->host[i].slots;
    free(list->host[i].name);
    list->count--;
    memmove(list->host + i, list->host + i + 1, (size_t)(list->count - i) * sizeof *list->host);
}

int run_hostlist_copy(const run_hostlist_t *from, run_hostlist_t *to)
{
    char why[80];
    memset(to, 0, sizeof *to);
    for (int i = 0; i < from->count; i++)
        if (!run_hostlist_add(to, from->host[i].name, strlen(from->host[i].name), from->host[i].slots, why,
                              sizeof why)) {
            run_hostlist_free(to);
            return 0;
        }
    return 1;
}

void run_hostlist_free(run_hostlist_t *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->host[i].name);
    free(list->host);
    memset(list, 0, sizeof *list);
}

/* --- places --- */

/* Every host is filled up to its slots, as often as there are ranks for all; the rest goes to the first
 * ones. */
static void place_by_slot(const run_hostlist_t *list, int ranks, int *of)
{
    int rounds = ranks / list->slots, extra = ranks % list->slots, rank = 0;
    for (int i = 0; i < list->count; i++) {
        int slots = list->host[i].slots;
        int more = extra < slots ? extra : slots;
        for (int k = rounds * slots + more; k > 0; k--)
            of[rank++] = i;
        extra -= more;
    }
}

static void place_by_node(const run_hostlist_t *list, int ranks, int *of)
{
    int rank = 0;
    /* Pass p gives one rank to each host that has more than p slots; the passes begin anew when all are
     * full. */
    for (int pass = 0; rank < ranks; pass++) {
        int before = rank;
        for (int i = 0; i < list->count && rank < ranks; i++)
            if (list->host[i].slots > pass)
                of[rank++] = i;
        if (rank == before)
            pass = -1;
    }
}

void run_hostlist_place(const run_hostlist_t *list, run_map_t map, int ranks, int *of)
{
    if (map == RUN_MAP_NODE)
        place_by_node(list, ranks, of);
    else
        place_by_slot(list, ranks, of);
}
