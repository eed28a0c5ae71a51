/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/modes/groups.c: NCCL_TESTS_SPLIT: the ranks are split into groups, which all run the same
 * at the same time, so that a slow group shows. The table is that of world rank 0's group; the others'
 * figures follow it. */
#include "tools/gyre-perf/perf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/settings/settings.h"

/* What a rank's group measured in a row: all ranks of a group have the same. */
typedef struct {
    double busbw;
    uint64_t nwrong;
} figures_t;

static int read_number(const char *text, int base, long *value)
{
    char *end;
    *value = strtol(text, &end, base);
    return end != text && end[strspn(end, " ")] == '\0' && *value >= 0 && *value <= INT32_MAX;
}

/* The group of a rank by the text. -1: it is no such text. */
static int group_of(const char *text, int rank)
{
    static const struct {
        const char *word, *sign;
    } how[] = {{"AND", "&"}, {"OR", "|"}, {"MOD", "%"}, {"DIV", "/"}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        const size_t word = strlen(how[i].word);
        const char *rest = strncasecmp(text, how[i].word, word) == 0 ? text + word
                           : *text == *how[i].sign                   ? text + 1
                                                                     : NULL;
        long value;
        const int hexadecimal = rest && strncasecmp(rest + strspn(rest, " "), "0x", 2) == 0;
        if (!rest || !read_number(rest, hexadecimal ? 16 : 10, &value) || (i >= 2 && value == 0))
            continue;
        return (int)(i == 0 ? rank & value : i == 1 ? rank | value : i == 2 ? rank % value : rank / value);
    }
    return -1;
}

int perf_groups_asked(int rank, char *why, size_t bytes)
{
    const char *mask = base_env("NCCL_TESTS_SPLIT_MASK"), *split = base_env("NCCL_TESTS_SPLIT");
    long value;
    int group = PERF_ONE_GROUP;
    if (mask)
        group = read_number(mask, 16, &value) ? (int)(rank & value) : -1;
    else if (split)
        group = group_of(split, rank);
    if (group == -1)
        snprintf(why, bytes, "%s=%s: wants %s", mask ? "NCCL_TESTS_SPLIT_MASK" : "NCCL_TESTS_SPLIT",
                 mask ? mask : split,
                 mask ? "a hexadecimal number" : "AND, OR, MOD or DIV and a number, such as \"MOD 8\"");
    return group;
}

gyre_status_t perf_groups_open(gyre_comm_t *world, int group, perf_groups_t *g)
{
    *g = (perf_groups_t){.world = world, .n = gyre_comm_size(world)};
    g->busbw = calloc((size_t)g->n, sizeof *g->busbw);
    g->of = calloc((size_t)g->n, sizeof *g->of);
    g->row = calloc((size_t)g->n, sizeof(figures_t));
    if (!g->busbw || !g->of || !g->row)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the groups of %d ranks", g->n);
    gyre_status_t status = gyre_comm_split(world, group, 0, &g->part);
    const int64_t mine = group;
    if (status == GYRE_OK)
        status = gyre_all_gather(&mine, g->of, 1, GYRE_INT64, world);
    return status;
}

gyre_status_t perf_groups_close(perf_groups_t *g, int failed)
{
    gyre_status_t status = !failed && g->part ? gyre_comm_destroy(g->part) : GYRE_OK;
    free(g->busbw);
    free(g->of);
    free(g->row);
    *g = (perf_groups_t){0};
    return status;
}

/* The first rank of r's group, and the group's size. */
static int first_of(const perf_groups_t *g, int r)
{
    int first = 0;
    while (g->of[first] != g->of[r])
        first++;
    return first;
}

static int size_of(const perf_groups_t *g, int r)
{
    int size = 0;
    for (int i = 0; i < g->n; i++)
        size += g->of[i] == g->of[r];
    return size;
}

gyre_status_t perf_groups_row(perf_groups_t *g, const perf_result_t *out_of_place,
                              const perf_result_t *in_place)
{
    figures_t *row = g->row, mine = {0};
    const perf_result_t *halves[] = {out_of_place, in_place};
    int ran = 0;
    for (int i = 0; i < 2; i++) {
        mine.busbw += halves[i]->busbw;
        mine.nwrong += halves[i]->nwrong;
        ran += halves[i]->ran;
    }
    mine.busbw /= ran > 0 ? ran : 1;
    gyre_status_t status = gyre_gather(&mine, row, sizeof mine, GYRE_UINT8, 0, g->world);
    if (status != GYRE_OK || gyre_comm_rank(g->world) != 0)
        return status;
    for (int r = 0; r < g->n; r++) {
        g->busbw[r] += row[r].busbw;
        if (first_of(g, r) == r && g->of[r] != g->of[0])
            g->nwrong += row[r].nwrong; /* group 0's are in the table */
    }
    g->rows++;
    return GYRE_OK;
}

void perf_groups_print(const perf_groups_t *g, const perf_machine_t *m, json_t *json)
{
    json_t *list = json_array();
    double best = 0.0;
    int equal = 1; /* other numbers of ranks have other bandwidths */
    for (int r = 0; r < g->n; r++) {
        best = g->busbw[r] > best ? g->busbw[r] : best;
        equal = equal && size_of(g, r) == size_of(g, 0);
    }
    for (int r = 0; r < g->n; r++) {
        if (first_of(g, r) != r)
            continue;
        const int size = size_of(g, r);
        const double busbw = g->rows ? g->busbw[r] / g->rows : 0.0;
        printf("# Group %2" PRId64 ", %d rank%s from rank %d on %s : average bus bandwidth %g", g->of[r],
               size, size == 1 ? "" : "s", r, m->ranks[r].host, busbw);
        if (equal && best > 0.0)
            printf(", %.0f %% of the best group's", 100.0 * g->busbw[r] / best);
        printf("\n");
        (void)json_array_append_new(list, json_pack("{s:I, s:i, s:i, s:f}", "group", (json_int_t)g->of[r],
                                                    "first_rank", r, "size", size, "bus_bw", busbw));
    }
    if (json)
        perf_put(json, "groups", list);
    else
        json_decref(list);
}
