/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/init/start.c: one start of a job, from the launcher to the third all_reduce, and further
 * communicators, measured by every rank. */
#include "tools/gyre-perf/init/init.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/run/communicator.h"

/* The start of the launcher, this process's parent: the kernel counts in ticks of 10 ms since boot. 0:
 * unknown. */
static base_time_t parent_start(void)
{
    char path[64], text[1024];
    unsigned long long ticks = 0;
    struct timespec boot;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)getppid());
    FILE *f = fopen(path, "r");
    size_t got = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[got] = '\0';
    char *at = strrchr(text, ')'); /* a name may hold anything; the start is the 20th word after it */
    for (int word = 0; at && word < 20; word++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0)
        return 0;
    const long rate = sysconf(_SC_CLK_TCK);
    const base_time_t since_boot = (base_time_t)boot.tv_sec * 1000000000 + boot.tv_nsec;
    return rate > 0
               ? base_now() - since_boot + (base_time_t)(ticks * (1000000000ULL / (unsigned long long)rate))
               : 0;
}

static double resident_bytes(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%llu %llu", &pages, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* The time since *before in ms, and starts anew. */
static double lap(base_time_t *before)
{
    base_time_t now = base_now();
    double ms = (double)(now - *before) * 1e-6;
    *before = now;
    return ms;
}

/* Of one communicator after the other. */
static gyre_status_t measure_split(gyre_comm_t *world, double *f)
{
    enum { ROUNDS = 21 };
    double split[ROUNDS], first[ROUNDS];
    gyre_status_t status = GYRE_OK;
    float value = 1.0f;
    for (int i = 0; i < ROUNDS && status == GYRE_OK; i++) {
        gyre_comm_t *comm = NULL;
        status = gyre_barrier(world);
        base_time_t before = base_now();
        if (status == GYRE_OK)
            status = gyre_comm_split(world, 0, 0, &comm);
        split[i] = lap(&before);
        if (status == GYRE_OK)
            status = gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
        first[i] = lap(&before);
        if (status == GYRE_OK)
            status = gyre_comm_destroy(comm);
    }
    if (status != GYRE_OK)
        return status;
    f[INIT_SPLIT] = init_median(split, ROUNDS);
    f[INIT_FIRST] = init_median(first, ROUNDS);
    return GYRE_OK;
}

static gyre_status_t measure(const init_options_t *o, gyre_comm_t **world, double *f)
{
    static float large[INIT_LARGE_BYTES / sizeof(float)];
    const base_time_t main_start = base_now(), since = o->since ? o->since : parent_start();
    memset(large, 0, sizeof large); /* page faults belong to no operation */
    base_time_t before = base_now();
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    float value = 1.0f;
    config.init_timeout_s = o->timeout_s;
    f[INIT_LAUNCH] = since ? (double)(main_start - since) * 1e-6 : 0.0;
    gyre_status_t status = gyre_init(&config, world);
    if (status != GYRE_OK)
        return status;
    f[INIT_CREATE] = (double)(*world)->made_in * 1e-6;
    f[INIT_JOIN] = lap(&before) - f[INIT_CREATE];
    status = gyre_barrier(*world);
    f[INIT_BARRIER] = lap(&before);
    if (status == GYRE_OK)
        status = gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), *world);
    f[INIT_REDUCE] = lap(&before);
    f[INIT_TOTAL] = (double)(before - (since ? since : main_start)) * 1e-6;
    if (status == GYRE_OK)
        status = gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), *world);
    f[INIT_AGAIN] = lap(&before);
    if (status == GYRE_OK)
        status = gyre_all_reduce(large, large, INIT_LARGE_BYTES / sizeof *large, GYRE_FLOAT32,
                                 GYRE_OP(GYRE_SUM), *world);
    f[INIT_LARGE] = lap(&before);
    gyre_comm_stats_t stats = {.size = sizeof stats};
    if (status == GYRE_OK)
        status = gyre_comm_stats(*world, &stats);
    f[INIT_LINKS] = (double)stats.connections;
    f[INIT_BOOT] = (double)comm_boot_connections((*world)->world->boot);
    f[INIT_SHARED] = (double)stats.shared_bytes;
    f[INIT_PRIVATE] = (double)stats.private_bytes;
    f[INIT_RESIDENT] = resident_bytes();
    return status == GYRE_OK ? measure_split(*world, f) : status;
}

static int report(const init_options_t *o, const init_row_t *row)
{
    if (o->since) { /* for init_jobs: one line */
        json_t *json = init_json(row);
        char *text = json_dumps(json, JSON_COMPACT);
        json_decref(json);
        printf("%s\n", text ? text : "");
        free(text);
        return fflush(stdout) == 0 && text ? PERF_OK : PERF_ERROR;
    }
    json_t *results = json_array();
    printf("# gyre-perf %s: init, one start; launch counts from a clock of 10 ms\n", gyre_version());
    init_columns();
    init_print(row);
    (void)json_array_append_new(results, init_json(row));
    return init_write(o, results);
}

int init_start(const init_options_t *o)
{
    gyre_comm_t *world = NULL;
    init_row_t row = {.starts = 1};
    char error[1024];
    gyre_status_t status = measure(o, &world, row.figure);
    if (!world)
        return perf_tell_error(comm_identity_rank_hint(), error, sizeof error);
    const int rank = gyre_comm_rank(world);
    row.ranks = gyre_comm_size(world);
    if (status == GYRE_OK)
        status =
            gyre_all_reduce(row.figure, row.figure, INIT_FIGURES, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), world);
    int code = status == GYRE_OK ? PERF_OK : perf_tell_error(rank, error, sizeof error);
    if (code == PERF_OK && rank == 0)
        code = report(o, &row);
    return perf_job_close(world, code);
}
