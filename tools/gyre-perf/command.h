/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/command.h: shared by subcommands that have flags of their own (gyre-perf bucket, overlap).
 *
 *   values.c   values of command lines
 *   session.c  settings, joining the job, the head of table and JSON, the end
 *   work.c     a stand-in for computing */
#ifndef GYRE_PERF_COMMAND_H
#define GYRE_PERF_COMMAND_H

#include "tools/gyre-perf/perf.h"
#include "tools/shared/flags.h"

/* ---- command lines ---- */
/* flags_parse for a subcommand: PERF_OK; PERF_USAGE with the reason in `why`; -1: help or version was
 * printed on `out`. */
int perf_flags_read(const flags_t *flags, int argc, char **argv, int *words, FILE *out, char *why,
                    size_t bytes);

/* 1: the file `path` can be written, as far as one sees, or it is NULL or "-" (flags_output). 0: not, and
 * `why` says so. No file is changed. */
int perf_can_write(const char *path, char *why, size_t bytes);
/* FLAG_READ: a gyre_type_t, by its name or as fp16, bf16, fp32, fp64. */
int perf_read_type(void *to, const char *word);
/* Their names, separated by blanks. */
const char *perf_type_names(void);
/* FLAG_READ: const char *, a word of GYRE_TRANSPORT. */
int perf_read_transport(void *to, const char *text);
/* These words: "auto|shm|ucx|verbs". */
const char *perf_transports(void);

/* Sizes from a list such as "64K,1M,25M" to list[*count], at most `room`; 0 if malformed, a size of 0, or
 * too many. */
int perf_parse_sizes(const char *text, size_t *list, size_t room, size_t *count);

/* ---- a run ---- */
typedef struct {
    const char *json, *transport, *order; /* NULL: not given */
    double timeout_s;                     /* 0: the library's */
    int progress_thread;                  /* 0, 1; -1: GYRE_PROGRESS_THREAD */
} perf_common_t;

/* Rows that every table has; c: pointer to a perf_common_t, or of PERF_RUN_ROWS to a perf_options_t. */
#define PERF_RUN_ROWS(c)                                                                                 \
    {FLAG('J', "json", TEXT, &(c)->json, "FILE", "also write the results there; - is standard output")}, \
        {FLAG('T', "timeout", REAL, &(c)->timeout_s, "SECONDS", "deadline of every operation")},         \
    {                                                                                                    \
        FLAG(0, "transport", READ, &(c)->transport, perf_transports(), "how ranks reach each other"),    \
            .read = perf_read_transport                                                                  \
    }
#define PERF_COMMON_ROWS(c)                                                                \
    PERF_RUN_ROWS(c),                                                                      \
    {                                                                                      \
        FLAG(0, "order", WORD, &(c)->order, "canonical|fast|exact",                        \
             "order of reductions: reproducible bits, whatever is fastest, or exact sums") \
    }
#define PERF_TYPE_ROW(to)                                                                                   \
    {                                                                                                       \
        FLAG('d', "datatype", READ, to, "TYPE", "type of the elements (float)"), .read = perf_read_type,    \
                                                                                 .wants = perf_type_names() \
    }

typedef struct {
    const perf_common_t *common;
    gyre_comm_t *world; /* NULL after a failed perf_session_rejoin */
    int rank, n;
    perf_machine_t machine; /* of rank 0 */
    json_t *json;     /* rank 0, if asked for: the head, with "config" and "results" to fill; else NULL */
    uint64_t nwrong;  /* over all ranks; rank 0 reports it at the end */
    char error[1024]; /* what ended the run, or "" */
} perf_session_t;

/* Prints `why` once for all ranks; returns PERF_USAGE. */
int perf_usage(const char *why);

/* Applies the settings, joins the job, measures the machine; on rank 0 prints the head of the report.
 * PERF_OK; on any other code there is nothing to close. */
int perf_session_open(perf_session_t *s, const perf_common_t *common, const char *title, int typed_count,
                      char **typed);
/* Leaves the job and joins it again with or without a progress thread. */
gyre_status_t perf_session_rejoin(perf_session_t *s, int progress_thread);
/* Rank 0 prints the totals and writes the JSON file; all leave the job. status: how the measuring ended. A
 * PERF_ code. */
int perf_session_close(perf_session_t *s, gyre_status_t status);

/* ---- a stand-in for computing ---- */

/* Multiplies and adds over a ring of memory larger than a core's caches, each piece 16 times before the next,
 * like the matrix products of a backward pass: about one GB/s of memory traffic each way. A given amount is
 * the same work on a shared processor, too, so the time that communication takes from computing shows. */
typedef struct {
    float *memory;
    size_t at;   /* the next element of the ring */
    double rate; /* elements per second on a core by itself: the best that was seen */
} perf_work_t;
/* Calibrates for some tens of milliseconds, on all ranks together. Collective. */
gyre_status_t perf_work_create(gyre_comm_t *comm, perf_work_t *w);
void perf_work_destroy(perf_work_t *w);
/* How many elements take so long. */
size_t perf_work_amount(const perf_work_t *w, double seconds);
void perf_work_do(perf_work_t *w, size_t amount);

/* Sorts them; 0 if there are none. */
double perf_median(double *values, size_t count);

#endif
