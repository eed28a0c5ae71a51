/* tools/gyre-perf/command.h: shared by subcommands that have flags of their own (gyre-perf bucket, overlap).
 *
 *   flags.c    a command line described by a table
 *   session.c  settings, joining the job, the head of table and JSON, the end
 *   work.c     a stand-in for computing */
#ifndef GYRE_PERF_COMMAND_H
#define GYRE_PERF_COMMAND_H

#include "tools/gyre-perf/perf.h"

/* ---- command lines ---- */
typedef enum {
    PERF_FLAG_INT,     /* int, low..high */
    PERF_FLAG_SIZE,    /* size_t, takes K, M and G */
    PERF_FLAG_TYPE,    /* gyre_type_t, one */
    PERF_FLAG_TEXT,    /* const char *, not empty */
    PERF_FLAG_SECONDS, /* double, at least 0 and finite; any unit */
    PERF_FLAG_SWITCH   /* int, set to 1; takes no argument */
} perf_flag_kind_t;

typedef struct {
    char letter;      /* 0: has none */
    const char *name; /* without the dashes */
    perf_flag_kind_t kind;
    void *to;
    int low, high;              /* PERF_FLAG_INT */
    const char *argument;       /* as the help calls it; NULL for a switch */
    const char *help;           /* may have several lines */
    const char *const *choices; /* PERF_FLAG_TEXT: the words that it may be, NULL at the end; NULL: any */
} perf_flag_t;

/* Reads the options into the variables of the table; handles -h, --help and --version itself. Moves the words
 * that are not options to the end; *words is the index of the first. Returns PERF_OK; PERF_USAGE with the
 * reason in `why`; or -1: help or version was printed on `out`. `usage` is printed before the options,
 * `notes` after them. */
int perf_flags_parse(int argc, char **argv, const perf_flag_t *flags, size_t count, const char *usage,
                     const char *notes, FILE *out, int *words, char *why, size_t why_bytes);

/* Sizes from a list such as "64K,1M,25M" to list[*count], at most `room`; 0 if malformed, a size of 0, or too many. */
int perf_parse_sizes(const char *text, size_t *list, size_t room, size_t *count);

/* ---- a run ---- */
typedef struct {
    const char *json, *transport, *order; /* NULL: not given */
    double timeout_s;                     /* 0: the library's */
    int progress_thread;                  /* 0, 1; -1: GYRE_PROGRESS_THREAD */
} perf_common_t;

/* The rows of a flag table that every subcommand has: --json, --timeout, --transport, --order. */
enum { PERF_COMMON_FLAGS = 4 };
void perf_common_flags(perf_common_t *c, perf_flag_t flags[PERF_COMMON_FLAGS]);

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
/* Rank 0 prints the totals and writes the JSON file; all leave the job. status: how the measuring ended. A PERF_ code. */
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
