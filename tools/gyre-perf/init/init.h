/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/init/init.h: what the parts of `gyre-perf init` share.
 *
 *   options.c       command line, table          start.c  one start, as a rank of a job
 *   jobs.c  many jobs under ucx-run      mock.c   the bootstrap alone, many ranks in this process */
#ifndef TOOLS_GYRE_PERF_INIT_INIT_H
#define TOOLS_GYRE_PERF_INIT_INIT_H

#include "base/clock.h"
#include "tools/gyre-perf/perf.h"

typedef struct {
    int max;          /* the largest job to start */
    int starts;       /* of each size */
    int mock;         /* mock ranks; 0: real ones */
    double timeout_s; /* of a start; 0: the library's */
    /* when the launcher was started, on this machine's monotonic clock; 0: unknown */
    base_time_t since;
    const char *json;
    int argc; /* of gyre-perf, as typed */
    char **argv;
} init_options_t;

/* The figures of a start in the order of the table, all over the ranks' slowest or largest. */
typedef enum {
    INIT_LAUNCH, /* from the launcher's start to main of the last rank */
    INIT_JOIN,   /* settings, bootstrap, watcher */
    INIT_CREATE, /* the communicator: segments, which ranks share a host */
    INIT_BARRIER,
    INIT_REDUCE, /* the first all_reduce, of one float */
    INIT_TOTAL,  /* from the launcher's start to the end of the first all_reduce */
    INIT_AGAIN,  /* the all_reduce after it */
    /* the first all_reduce of INIT_LARGE_BYTES: connects what small ones do not need */
    INIT_LARGE,
    INIT_SPLIT,  /* gyre_comm_split of all ranks, once the job is under way: the median of some */
    INIT_FIRST,  /* the first all_reduce on such a communicator, of one float */
    INIT_LINKS,  /* gyre_comm_stats: connections */
    INIT_BOOT,   /* connections of the bootstrap */
    INIT_SHARED, /* gyre_comm_stats: bytes */
    INIT_PRIVATE,
    INIT_RESIDENT, /* of the process, bytes */
    INIT_FIGURES
} init_figure_t;

enum { INIT_LARGE_BYTES = 1 << 20 };

typedef struct {
    int ranks, starts;
    double figure[INIT_FIGURES]; /* ms, connections, bytes */
} init_row_t;

void init_columns(void);
void init_print(const init_row_t *row);
json_t *init_json(const init_row_t *row);
int init_from_json(const json_t *json, init_row_t *row);
double init_median(double *values, int n); /* sorts them */
/* Writes {version, command, args, results} to o->json, if given. Takes `results` over. The exit status. */
int init_write(const init_options_t *o, json_t *results);

int init_start(const init_options_t *o);
int init_jobs(const init_options_t *o);
int init_mock(const init_options_t *o);

#endif
