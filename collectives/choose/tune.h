/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/tune.h: what Gyre knows of this machine's speed, and what a user has to say about its
 * choices.
 *
 * The numbers of collectives/choose/cost.h are measured once per machine and kept in a file below
 * $XDG_CACHE_HOME or ~/.cache; a later job reads them in microseconds. Rank 0 of the job reads or
 * measures, all others get its numbers with the bootstrap, so that all ranks choose alike. The file is
 * text (docs/tuning.md):
 *
 *     gyre-tune 1
 *     signature d627e6a485ac1d03
 *     cost line 55.2                                        # ns, see cost.h
 *     choose all_reduce ranks 2-8 bytes 8K-1M algo direct chunk 256K     # overrides the rules
 *
 *     busy 1.8 2 1764283000                                 # see coll_tune_busy_t
 *
 * `signature` is of the machine and the build: if a cached file has another signature, the costs are measured
 * anew. A file that GYRE_TUNE names counts with any signature. Costs that the file does not give come from
 * the machine's own numbers. */
#ifndef COLLECTIVES_CHOOSE_TUNE_H
#define COLLECTIVES_CHOOSE_TUNE_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>

#include <gyre/status.h>

#include "base/clock.h"
#include "collectives/choose/cost.h"
#include "collectives/schedules/schedule.h"
#include "comm/boot/bootstrap.h"

enum { COLL_TUNE_LINES_MOST = 256, COLL_TUNE_PATH = 512, COLL_TUNE_COMMENT = 64 };

/* A `choose` line. Ranges include both ends; not said: everything. */
typedef struct {
    uint8_t op;                      /* coll_op_t */
    uint8_t algo;                    /* coll_algo_t; AUTO: not said */
    int8_t one_shot;                 /* form: 1 one_shot, 0 blocks, -1 not said */
    uint8_t any_bytes;               /* 1: no range of bytes was said */
    int32_t line;                    /* of the file */
    int32_t ranks[2], hosts[2];      /* of the communicator */
    uint64_t bytes[2];               /* of the larger buffer, as in gyre-perf's first column */
    uint64_t chunk;                  /* bytes; 0: not said */
    char comment[COLL_TUNE_COMMENT]; /* the text after #; cut off where it is longer */
} coll_tune_line_t;

typedef enum {
    COLL_TUNE_BUILTIN = 0, /* not measured: GYRE_TUNE=none, or a job of one rank */
    COLL_TUNE_MEASURED,    /* just now */
    COLL_TUNE_CACHED,      /* read from the cache */
    COLL_TUNE_FILE         /* GYRE_TUNE */
} coll_tune_source_t;

/* The numbers were measured while others had the cores. A later job measures again. */
typedef struct {
    double stretch; /* of coll_measure; 0: they were not */
    int32_t times;  /* how often they were measured so, one time after the other */
    int64_t when;   /* the last time, in seconds since 1970 */
} coll_tune_busy_t;

typedef struct {
    coll_cost_t cost;
    uint64_t signature; /* of the machine and build that the numbers are of; 0: unknown */
    int32_t source;     /* coll_tune_source_t */
    int32_t nlines;
    coll_tune_busy_t busy;
    char path[COLL_TUNE_PATH]; /* of the file; "" if there is none */
    coll_tune_line_t lines[COLL_TUNE_LINES_MOST];
} coll_tune_t;

/* ---- measure.c ---- */
/* Sane numbers of a present-day server core, for where nothing can be measured. */
void coll_cost_builtin(coll_cost_t *out);
/* Measures what can be measured within about `seconds` (0.1 is plenty); what cannot (one core, no memory,
 * no CMA) keeps the built-in value. Uses a second thread on another core for the while, and leaves this
 * thread's binding as it was. Returns how many times longer it took than so many of its best samples: on a
 * quiet machine a little more than 1. */
double coll_measure(double seconds, coll_cost_t *out);
/* The processors that it measures with, `here` first if it may: one hardware thread of each core of `own`,
 * this thread's binding. If `own` is one core, to which a launcher has bound this rank: of `all`, what the
 * system would allow. folder: as topo_one_core's. Returns how many. */
enum { COLL_MEASURE_CPUS = 8 };
int coll_measure_cpus(const char *folder, const cpu_set_t *own, const cpu_set_t *all, int here,
                      int cpus[COLL_MEASURE_CPUS]);
/* Processors that the system would allow this process, whatever it is bound to: the cores of coll_measure. 0:
 * they are more than CPU_SETSIZE. */
int coll_measure_cores(void);

/* ---- tune_file.c ---- */
/* A field of coll_cost_t as the file spells it. */
typedef struct {
    const char *name, *unit, *meaning;
    size_t offset;
    int kind; /* 'd' double, 'z' size_t, 'i' int */
} coll_cost_field_t;
extern const coll_cost_field_t coll_cost_fields[];
extern const int coll_cost_field_count;
double coll_cost_get(const coll_cost_t *cost, const coll_cost_field_t *field);

/* Reads a tuning file into `out`, whose costs are kept where the file is silent; `name` is for messages
 * and out->path. boot (may be NULL, [64]): the boot id that it mentions. FORMAT: the message names file
 * and line and says what is expected. `quiet`: the error is recorded but not logged. */
gyre_status_t coll_tune_parse(FILE *in, const char *name, int quiet, coll_tune_t *out, char *boot);
/* Writes it. Whether that went well is for the caller to ask (ferror). */
void coll_tune_print(FILE *out, const coll_tune_t *tune, const char *boot);

/* ---- tune.c ---- */
void coll_tune_builtin(coll_tune_t *out);
/* Where this machine's numbers are kept; "" if neither XDG_CACHE_HOME nor HOME says where. path:
 * [COLL_TUNE_PATH]. */
void coll_tune_cache_path(char *path);
/* What GYRE_TUNE asks for: a file, the built-in numbers, or this machine's from the cache, measured and
 * kept there if they are not. A cache that cannot be used is no error. Errors (a file that GYRE_TUNE
 * names): NOT_FOUND, IO, FORMAT. */
gyre_status_t coll_tune_obtain(coll_tune_t *out);
/* What coll_tune_obtain would find, without measuring or writing anything: BUILTIN where it would measure,
 * with the reason in `why` ([256], else ""). Errors as there. For gyre-doctor. */
gyre_status_t coll_tune_peek(coll_tune_t *out, char *why);
/* Measures anew. Keeps the choose lines of the file at `path`, if there is one (of the cache: if it is of
 * this machine). Of a file of this machine it also keeps what takes a job to measure (call, step, message,
 * net_*). Does not write. IO, FORMAT: the file cannot be read or understood. */
gyre_status_t coll_tune_refresh(const char *path, coll_tune_t *out);
/* 1: numbers that were measured on a busy machine, long enough ago: a minute, and twice as long each further
 * time, up to a day. now: as in coll_tune_busy_t. */
int coll_tune_due(const coll_tune_busy_t *busy, int64_t now);
/* Puts numbers that were measured just now, with that stretch, into `tune`, unless it has some of a less busy
 * machine. */
void coll_tune_take(coll_tune_t *tune, const coll_cost_t *fresh, double stretch, int64_t now);
/* Writes to `path`, atomically; makes the folders of the cache path. IO: the message says why. */
gyre_status_t coll_tune_save(const coll_tune_t *tune, const char *path);
/* Collective: rank 0's `tune` to all. status: of rank 0's coll_tune_obtain: if not OK, all fail with its
 * text. */
gyre_status_t coll_tune_share(comm_boot_t *boot, gyre_status_t status, coll_tune_t *tune,
                              base_time_t deadline);

/* The first choose line that speaks of this, or NULL. known: 0: ranks do not all know the size, so only
 * lines without a range of bytes count. args: the call (the algorithm must serve it). */
const coll_tune_line_t *coll_tune_find(const coll_tune_t *tune, const coll_args_t *args, int hosts, int known,
                                       uint64_t bytes);
const char *
coll_tune_source_name(const coll_tune_t *tune); /* "built in", "measured now", "cache", "GYRE_TUNE" */

#endif
