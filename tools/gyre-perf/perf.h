/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/perf.h: what the parts of gyre-perf share.
 *
 *   options.c  the command line            cases.c   the collectives: sizes, calls, bandwidth
 *   data.c     inputs and exact results    check.c   every element
 *   measure.c  buffers, timing             machine.c ranks, memcpy floor
 *   report.c   table and JSON               orders.c  --order canonical,fast
 *   job.c      joining and leaving          commands.c the subcommands; each has a file of its own
 *   explain.c  --explain                tune.c     --tune
 *   start.c    the calls, non-blocking      command.h  what subcommands with flags of their own share
 *   modes/cold.c     --cold                 modes/streams.c  --streams
 *   memory.c   --memory: buffers of the host or of a device
 *   modes/gpus.c     -g: several ranks in this process
 *   modes/groups.c   NCCL_TESTS_SPLIT       persistent.c  --persistent
 */
#ifndef GYRE_PERF_H
#define GYRE_PERF_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <gyre/gyre.h>

#include "collectives/schedules/schedule.h"

enum {
    PERF_OK = 0,
    PERF_WRONG = 1, /* some element was wrong */
    PERF_USAGE = 2, /* the command line is; nothing was sent */
    PERF_ERROR = 3  /* Gyre or the system reported an error */
};

/* ---- the collectives ---- */
typedef struct {
    const char *name;  /* as typed */
    const char *title; /* one line for the help */
    coll_op_t op;
    int reduces, rooted, uneven; /* uneven: the v-variant */
    int in_place;                /* has an in-place form */
    int neighbors;               /* of COLL_SENDRECV: one call with lists of neighbours */
} perf_coll_t;

extern const perf_coll_t perf_colls[];
extern const int perf_coll_count;
/* By name, alias (alltoall) or program name (all_reduce_perf, a path is cut off); NULL if unknown. */
const perf_coll_t *perf_coll_find(const char *name);

/* ---- reductions ---- */
/* The library's kinds, and a scaled sum. */
typedef enum {
#define REDOP(id, name, kernels, device) PERF_##id,
#include "base/redops.def"
#undef REDOP
    PERF_MULSUM,
    PERF_OPS
} perf_op_t;
const char *perf_op_name(perf_op_t op); /* nccl-tests' names */
/* 1 if `coll` can reduce elements of `type` so; device: by device code. */
int perf_has(const perf_coll_t *coll, gyre_type_t type, perf_op_t op, int device);

/* ---- the command line ---- */
/* What --order lists: the orders of the library, and canonical order with several leaves on each rank. */
enum { PERF_LEAVES = GYRE_ORDER_EXACT + 1, PERF_ORDERS = 4 };
const char *perf_order_name(int order); /* as typed */

typedef struct {
    const perf_coll_t *coll;
    size_t min_bytes, max_bytes, step_bytes;
    int step_factor;           /* > 1: sizes are multiplied, else step_bytes is added */
    int first_type, last_type; /* gyre_type_t, a range */
    int first_op, last_op;     /* perf_op_t */
    int root;                  /* -1: all */
    int iters, warmup, aggregate;
    int cycles;       /* 0: forever */
    int check;        /* checked runs per row; 0: none */
    int average;      /* 0 rank 0, 1 average, 2 minimum, 3 maximum over ranks */
    double timeout_s; /* 0: the library's */
    size_t misalign;  /* bytes */
    int windows;      /* 1: buffers from gyre_mem_alloc, 0: from malloc */
    int timestamps;
    int out_of_place, in_place;                  /* which halves run */
    const char *algo, *transport, *order, *json; /* NULL: not given */
    int orders[PERF_ORDERS];                     /* --order canonical,fast: those that are compared */
    int norders;                                 /* 0: one order of the library */
    int leaves;                                  /* of a rank with PERF_LEAVES; 0: not compared */
    int explain;                                 /* a table of choices instead of the usual one */
    int no_columns;                              /* a subcommand prints a table of its own */
    int cold;                                    /* buffers are in no cache when an iteration starts */
    /* --memory cuda: 1, once the job is joined 1 + the number of the buffers' device; 0: the host */
    int cuda;
    int gpus;       /* -g: ranks of this process, on devices; 1: it is one rank */
    int host;       /* --memory host was given */
    int registered; /* --register */
    int streams;    /* communicators that run it at once */
    int persistent; /* operations are made once, and started (gyre/plan.h) */
    int iterations; /* -I: figures of single iterations, the first `skipped` left out */
    int skipped;
    int blocking;    /* -z; 3: a barrier after each iteration, not timed */
    int memory;      /* -M */
    const char *csv; /* NULL: not given */
} perf_options_t;

/* Returns PERF_OK; PERF_USAGE with the reason in `why`; or -1: --help or --version was printed on `out`. */
int perf_options_parse(int argc, char **argv, perf_options_t *options, FILE *out, char *why,
                       size_t why_bytes);

/* ---- concurrent communicators ---- */
typedef struct {
    int count;
    gyre_comm_t **comms;       /* [count] */
    gyre_request_t **requests; /* [count * aggregate * 2] */
} perf_streams_t;

/* ---- cold buffers ---- */
typedef struct {
    int optimised; /* x86: has clflushopt */
    size_t line;   /* Arm: bytes */
    void *walk;    /* elsewhere: memory to walk through, which evicts the buffers */
} perf_cold_t;
const char *perf_cold_method(void); /* in words */
gyre_status_t perf_cold_open(perf_cold_t *cold);
void perf_cold_close(perf_cold_t *cold);
/* [from, from + bytes) is in no cache afterwards. */
void perf_cold_flush(const perf_cold_t *cold, unsigned char *from, size_t bytes);

/* ---- one row ---- */
typedef struct {
    const perf_coll_t *coll;
    gyre_comm_t *comm;
    int rank, n;
    gyre_type_t type;
    size_t elem;
    perf_op_t op;
    int root;                      /* -1: the collective has none */
    size_t param;                  /* count that the call gets; for v-variants the average block */
    size_t bytes;                  /* the size column: bytes of the larger of the two buffers */
    size_t send_count, recv_count; /* elements of this rank's buffers; what it lacks is 0 */
    int leaves;                    /* vectors of send_count elements in the send buffer; 1: no leaves */
    /* [n] blocks of this rank's send (all_to_all) or of the whole; neighbor_exchange: two of its send */
    size_t *counts, *displs;
    size_t *rcounts, *rdispls;     /* [n] all_to_all only */
    const perf_streams_t *streams; /* NULL: it runs on `comm` */
    const perf_cold_t *cold;       /* NULL: buffers stay in cache */
    struct base_stream *stream;    /* NULL, or the device's: messages go on it */
    gyre_plan_t **plans;           /* [aggregate] of one place; NULL: plain calls */
} perf_case_t;

/* Fills `c` for `bytes`; the four arrays must have room for n, and for 2. */
void perf_case_set(perf_case_t *c, const perf_coll_t *coll, gyre_type_t type, perf_op_t op, int root,
                   size_t bytes);
/* Elements before this rank's part in the in-place buffer. */
size_t perf_case_send_offset(const perf_case_t *c);
size_t perf_case_recv_offset(const perf_case_t *c);
/* Bytes that are filled and checked of the send buffer, or of the receive or in-place buffer. */
static inline size_t perf_case_range(const perf_case_t *c, int is_send)
{
    return is_send ? c->bytes * (size_t)c->leaves : c->bytes;
}
gyre_redop_t perf_case_redop(const perf_case_t *c);
/* neighbor_exchange: a ring in both directions. Block 0 goes to the rank before and block 1 to the next, so
 * block 0 comes from the next. */
typedef struct {
    int to[2], from[2];
} perf_neighbors_t;
perf_neighbors_t perf_neighbors(const perf_case_t *c);
/* The messages of COLL_SENDRECV on a stream; the caller has opened a group. */
gyre_status_t perf_case_enqueue(const perf_case_t *c, const void *send, void *recv,
                                gyre_cuda_stream_t stream);
gyre_status_t perf_case_run(const perf_case_t *c, const void *send, void *recv);
/* The same, non-blocking: sendrecv has two requests, all others one and NULL. After an error, what was
 * started is in `requests` and must be waited for. */
gyre_status_t perf_case_start(const perf_case_t *c, const void *send, void *recv,
                              gyre_request_t *requests[2]);
void perf_case_bandwidth(const perf_case_t *c, double seconds, double *algbw, double *busbw); /* GB/s */

/* ---- the job ---- */
/* Parses the command line, makes settings of its flags and joins the job. PERF_OK and *done 0: *world is
 * joined. Else the result is the exit status, and all errors are printed (*done 1: --help or --version). */
int perf_job_open(int argc, char **argv, perf_options_t *o, gyre_comm_t **world, int *done);
/* Leaves the job; the exit status. After PERF_ERROR it does not wait: the others learn it from the
 * library. */
int perf_job_close(gyre_comm_t *world, int code);
/* Keeps the error of this rank, since cleaning up may fail, too. The library has logged it, unless logging is
 * off. Returns PERF_ERROR. */
int perf_tell_error(int rank, char *text, size_t bytes);
/* A case of `comm` with room for its arrays, to be filled by perf_case_set. 0: no memory (printed). */
int perf_case_open(perf_case_t *c, gyre_comm_t *comm);
void perf_case_close(perf_case_t *c);

/* ---- subcommands ---- */
typedef struct {
    const char *name;  /* the first word after gyre-perf */
    const char *title; /* one line for the help */
    /* argv[0] is the subcommand, the rest its own. `typed`: all of gyre-perf's. Returns the exit status. */
    int (*run)(int argc, char **argv, int typed_count, char **typed);
} perf_command_t;
extern const perf_command_t perf_commands[];
extern const int perf_command_count;
const perf_command_t *perf_command_find(const char *name);

/* ---- data ---- */
enum { PERF_PERIOD = 16381 }; /* elements after which inputs repeat; a prime */
/* Bits of element i of the send buffer of `rank`, in run number `rep`. word: 1: of bytes 8 to 15 of an
 * element of 16 bytes. */
uint64_t perf_input_word(const perf_case_t *c, int rank, int rep, size_t i, int word);
/* Bits that element i of this rank's receive buffer must have; 0 and no answer in *bits if it must be left
 * alone. */
int perf_expected_word(const perf_case_t *c, int rep, size_t i, int word, uint64_t *bits);
static inline uint64_t perf_input(const perf_case_t *c, int rank, int rep, size_t i)
{
    return perf_input_word(c, rank, rep, i, 0);
}
static inline int perf_expected(const perf_case_t *c, int rep, size_t i, uint64_t *bits)
{
    return perf_expected_word(c, rep, i, 0, bits);
}
/* From element i of the receive buffer on, so many elements come from one place in one piece: they repeat
 * like inputs. At least 1; i < recv_count. */
size_t perf_expected_run(const perf_case_t *c, size_t i);
double perf_scale(int rank); /* the factor of mulsum */

/* ---- checking ---- */
enum { PERF_GUARD_BYTES = 256 }; /* before and after each buffer; must stay as they are */
/* Fills [base - PERF_GUARD_BYTES, base + bytes + PERF_GUARD_BYTES) with the pattern that marks bytes that
 * were not written. */
void perf_fill_poison(unsigned char *base, size_t bytes);
/* This rank's input, into the send buffer or its place in the in-place buffer, which starts at `base`. */
void perf_fill_input(const perf_case_t *c, int rep, int in_place, unsigned char *base);
/* Counts elements of the send buffer (is_send; out of place only) or of the receive or in-place buffer at
 * `base` that have a wrong value, plus bytes changed around it. Describes the first few on stderr, and counts
 * these in the last argument. */
uint64_t perf_check_range(const perf_case_t *c, int rep, int in_place, int is_send, const unsigned char *base,
                          int *told);

/* ---- measuring ---- */
enum { PERF_BUCKETS = 40 * 64 };
typedef struct {
    uint64_t buckets[PERF_BUCKETS]; /* logarithmic, 64 per octave of nanoseconds */
    uint64_t samples;
    double sum, squares; /* ns, ns^2 */
    int64_t min, max;    /* ns */
} perf_histogram_t;
void perf_histogram_clear(perf_histogram_t *h);
void perf_histogram_add(perf_histogram_t *h, int64_t ns);
double perf_histogram_percentile(const perf_histogram_t *h, double percent); /* ns */
/* Adds up the histograms of all ranks, everywhere. */
gyre_status_t perf_histogram_merge(perf_histogram_t *h, gyre_comm_t *comm);

typedef struct {
    int ran;     /* 0: this half does not exist or was not asked for */
    int checked; /* 0: nwrong means nothing */
    double time_us, algbw, busbw;
    uint64_t nwrong;
    double p50, p95, p99, avg, min, max, stdev; /* us, one iteration, over all ranks */
    /* -I: of the iterations' times, each by -a over the ranks: us, and per cent */
    double i_min, i_max, i_p99, i_cv;
    const double *times; /* [iters] us, all of them; the buffers' */
} perf_result_t;

typedef struct {
    unsigned char *send, *recv; /* [aggregate * streams] slots of slot_bytes */
    size_t slot_bytes;
    int windows;
    int cuda;                   /* send and recv are on `device` */
    int device;                 /* its number */
    struct base_stream *stream; /* on it */
    gyre_comm_t *comm;          /* with which both are registered; NULL: not registered */
    gyre_cuda_registration_t *registered[2];
    /* host memory of one slot, to fill and to check it in; NULL: buffers are on the host */
    unsigned char *mirror;
    double *times[2]; /* [iters] each, for -I; else NULL */
} perf_buffers_t;
/* An error, logged by local rank 0: the buffers of all `ranks` of this host together need more memory than
 * it has. */
gyre_status_t perf_buffers_fit(const perf_options_t *o, int local, int ranks);
gyre_status_t perf_buffers_create(const perf_options_t *o, perf_buffers_t *b);
void perf_buffers_destroy(perf_buffers_t *b);

/* The pointers of one half of a row. `base` is where the in-place buffer starts, or the receive buffer. */
typedef struct {
    unsigned char *send, *recv;           /* slot 0, as passed to the call */
    unsigned char *send_base, *recv_base; /* the ranges that are filled and checked, [c->bytes] */
    size_t stride;                        /* to the next slot */
    unsigned char *mirror; /* NULL, or host memory in which one of the ranges is filled and checked */
} perf_place_t;
perf_place_t perf_place(const perf_options_t *o, const perf_case_t *c, const perf_buffers_t *b, int in_place);
/* Sets up the communicator by a first operation on a device. The set-up is not part of a measurement and not
 * possible within a group. Does nothing for buffers of the host. Collective. */
gyre_status_t perf_memory_ready(const perf_buffers_t *b, gyre_comm_t *comm);
/* --persistent: makes c->plans for these buffers. perf_plans_close also after an error. */
gyre_status_t perf_plans_open(const perf_options_t *o, const perf_place_t *p, perf_case_t *c);
gyre_status_t perf_plans_close(const perf_options_t *o, perf_case_t *c);
/* --register. Collective, after perf_memory_ready; perf_memory_unregister undoes it, before the communicator
 * is destroyed. */
gyre_status_t perf_memory_register(const perf_options_t *o, perf_buffers_t *b, gyre_comm_t *comm);
void perf_memory_unregister(perf_buffers_t *b);
gyre_status_t perf_memory_open(const perf_options_t *o, perf_buffers_t *b, size_t bytes);
void perf_memory_close(perf_buffers_t *b);
/* The range at `base` of c->bytes, with its guards: where to write or read it on the host; and back and
 * forth. */
unsigned char *perf_memory_on_host(const perf_place_t *p, unsigned char *base);
gyre_status_t perf_memory_upload(const perf_case_t *c, const perf_place_t *p, unsigned char *base);
gyre_status_t perf_memory_download(const perf_case_t *c, const perf_place_t *p, unsigned char *base);
/* Slots that one iteration uses. */
int perf_slots(const perf_options_t *o);
/* One iteration: `aggregate` operations, as a group if there are several; with streams, on each of them. */
gyre_status_t perf_iterate(const perf_case_t *c, const perf_place_t *p, int aggregate);
/* The checked runs of one half; *nwrong: of all ranks of `comm`, which has one leaf
 * on each. Collective. */
gyre_status_t perf_check(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *comm,
                         const perf_place_t *p, int in_place, uint64_t *nwrong);
/* Parts of these two, of one rank, for a caller that drives several ranks: the inputs of a checked run; its
 * result, added to *wrong; inputs to be timed with; the figures of a half. */
gyre_status_t perf_check_fill(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place, int run);
gyre_status_t perf_check_look(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place, int run, uint64_t *wrong, int *told);
gyre_status_t perf_fill_slots(const perf_options_t *o, const perf_case_t *c, const perf_place_t *p,
                              int in_place);
void perf_result_set(const perf_options_t *o, const perf_case_t *c, const perf_histogram_t *h, double seconds,
                     perf_result_t *result);
/* -g: measures, checks and reports with o->gpus ranks in this process. The exit status. */
int perf_gpus_measure(gyre_comm_t *world, const perf_options_t *o, int argc, char **argv);
/* What is reported for all ranks, by -a, of each of `count` times. Collective. */
gyre_status_t perf_across_ranks(const perf_options_t *o, gyre_comm_t *comm, double *times, size_t count);
/* Warm-up, timing, check of one half. Collective. */
gyre_status_t perf_measure(const perf_options_t *o, const perf_case_t *c, const perf_buffers_t *b,
                           int in_place, perf_result_t *result);
/* Makes `count` communicators of the ranks of `comm`. Collective; perf_streams_close also after an error. */
gyre_status_t perf_streams_open(gyre_comm_t *comm, int count, int aggregate, perf_streams_t *s);
gyre_status_t perf_streams_close(perf_streams_t *s);
gyre_status_t perf_streams_iterate(const perf_case_t *c, const perf_place_t *p, int aggregate);

/* The size after *size; 0: there is no further size. */
int perf_next_size(const perf_options_t *o, size_t *size);

/* What a run measures, row by row: each cycle, type, reduction, root and size, with `ranks` ranks. The first
 * error of `visit` ends it, and is returned. */
typedef gyre_status_t perf_visit_t(void *user, gyre_type_t type, perf_op_t op, int root, size_t size);
gyre_status_t perf_each_row(const perf_options_t *o, int ranks, perf_visit_t *visit, void *user);

/* ---- the machine ---- */
typedef struct {
    int32_t pid;
    char host[64];
    cpu_set_t cpus; /* which the process may run on; none: unknown */
    int32_t device; /* of ranks of one process: 1 + its number; else 0 */
    int32_t group;  /* see groups.c */
    char device_name[64];
} perf_rank_info_t;
enum { PERF_CORES_TEXT = 56 };
/* "0-3,8", or "unknown" if there is none, into text [bytes], which it returns; what is longer is cut. */
const char *perf_cores_text(const cpu_set_t *set, char *text, size_t bytes);
typedef struct {
    perf_rank_info_t *ranks; /* [n], at rank 0; else NULL */
    size_t large_bytes, cache_bytes;
    double large_gbs, cache_gbs; /* memcpy, bytes copied per time; 0: not measured */
    double load[3];
} perf_machine_t;
/* Collective; rank 0 measures while the others wait. `iters`, of the run: below PERF_FEW_ITERS its figures
 * are not worth comparing, and memcpy is not measured. */
enum { PERF_FEW_ITERS = 5 };
gyre_status_t perf_machine_probe(gyre_comm_t *comm, int iters, perf_machine_t *m);
void perf_machine_free(perf_machine_t *m);

/* ---- groups ---- */
enum { PERF_ONE_GROUP = -2 };
typedef struct {
    gyre_comm_t *world, *part; /* part: this rank's group; NULL: not split */
    int n;                     /* of the world */
    int64_t *of;               /* [n] */
    double *busbw;             /* [n] at rank 0: sums over rows */
    void *row;                 /* [n] */
    int rows;
    uint64_t nwrong; /* in groups other than rank 0's */
} perf_groups_t;
/* The group that the environment puts a rank in; PERF_ONE_GROUP: it says nothing; -1: it is wrong, see
 * `why`. */
int perf_groups_asked(int rank, char *why, size_t bytes);
/* Collective; close also after an error. */
gyre_status_t perf_groups_open(gyre_comm_t *world, int group, perf_groups_t *g);
gyre_status_t perf_groups_close(perf_groups_t *g, int failed);
/* After a row of every group. Collective over the world. */
gyre_status_t perf_groups_row(perf_groups_t *g, const perf_result_t *out_of_place,
                              const perf_result_t *in_place);
/* On rank 0. json may be NULL. */
void perf_groups_print(const perf_groups_t *g, const perf_machine_t *m, json_t *json);

/* -M: most of any rank. */
typedef struct {
    uint64_t shared_bytes, private_bytes; /* of the communicator */
    uint64_t peak_bytes;                  /* of the process */
} perf_memory_use_t;
/* Collective over `world`. */
gyre_status_t perf_memory_use(gyre_comm_t *world, const gyre_comm_t *comm, perf_memory_use_t *use);

/* ---- the report: on rank 0 only ---- */
typedef struct {
    const perf_options_t *options;
    json_t *json; /* NULL unless asked for */
    FILE *csv;    /* likewise */
    uint64_t nwrong;
    double busbw_sum;
    int busbw_rows;
} perf_report_t;
void perf_report_open(perf_report_t *r, const perf_options_t *o, int argc, char **argv,
                      const gyre_comm_t *comm, const perf_machine_t *m);
void perf_report_row(perf_report_t *r, const perf_case_t *c, const perf_result_t *out_of_place,
                     const perf_result_t *in_place);
/* What every JSON file begins with: version, time, arguments, settings that differ from their defaults. */
json_t *perf_json_begin(int argc, char **argv);
/* For rows of other tables: a field; the row itself (taken over), counted into the totals. */
void perf_put(json_t *object, const char *key, json_t *value);
void perf_report_add(perf_report_t *r, json_t *row, uint64_t nwrong);
json_t *perf_json_case(const perf_case_t *c); /* size, count, type, redop, root */
json_t *perf_json_half(const perf_result_t *h);
/* Totals; writes the JSON file. error: NULL or what ended the run. Returns a PERF_ code. */
int perf_report_close(perf_report_t *r, const char *error);

/* Pieces of it, for other reports. */
void perf_print_ranks(int n, const perf_machine_t *m);
void perf_print_machine(const perf_machine_t *m);
void perf_print_figure(double value, int width); /* after two blanks, with as many decimals as fit */
/* The head of the JSON file with an empty list of results; takes `config`. */
json_t *perf_json_open(int argc, char **argv, int n, const perf_machine_t *m, json_t *config);
void perf_config_machine(json_t *config, const perf_machine_t *m);
/* Prints gyre_last_error unless the library has logged it. */
void perf_tell_unlogged(void);
/* Out of bounds values, errors and the end time; writes the file and releases it. A PERF_ code, at least
 * `code`. */
int perf_json_close(json_t *json, const char *path, uint64_t nwrong, const char *error, int code);

/* ---- --explain: on rank 0 ---- */
void perf_explain_columns(void);
/* The row of one half, and its object in the JSON row (may be NULL). 0: an error of Gyre (printed). */
int perf_explain_row(const perf_options_t *o, const perf_case_t *c, const perf_result_t *result, int in_place,
                     json_t *row);

/* ---- orders side by side ---- */
/* Makes a communicator of the ranks of `comm` for each order. comms: [PERF_ORDERS]. Collective. */
gyre_status_t perf_orders_open(const perf_options_t *o, gyre_comm_t *comm, gyre_comm_t **comms);
/* One row: `c` on each of the communicators, interleaved. report: on rank 0. Collective. */
gyre_status_t perf_orders_row(const perf_options_t *o, const perf_case_t *c, gyre_comm_t *const *comms,
                              const perf_buffers_t *b, perf_report_t *report);
void perf_orders_columns(const perf_options_t *o);

#endif
