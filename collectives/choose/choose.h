/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/choose.h: which algorithm serves a call. A pure function of facts that all ranks
 * share, so that all ranks choose the same. Files, in reading order:
 *   select.c     GYRE_ALGO, then a choose line of the tuning file, then rules
 *   cost.h       what a machine's primitive operations cost, by which the rules weigh
 *   tune.h       the tuning file: tune.c obtains it, tune_file.c reads and writes it; measure.c measures
 *                costs */
#ifndef COLLECTIVES_CHOOSE_CHOOSE_H
#define COLLECTIVES_CHOOSE_CHOOSE_H

#include "collectives/choose/tune.h"
#include "collectives/schedules/schedule.h"

/* What a choice depends on in addition to the call. The same on all ranks of a communicator. Two things are
 * not facts, because a rank knows them only of itself: the kind of memory of the buffers, and whether the
 * call is in-place. */
typedef struct {
    int hosts;
    int parts;                   /* hosts, or the cells of one host (comm_group_cells) */
    int reach;                   /* 1: every rank can work in every other rank's memory */
    size_t chunk;                /* GYRE_CHUNK, bytes; 0: not set */
    const char *algo;            /* GYRE_ALGO; "": not set */
    coll_cost_t cost;            /* cores: those that this communicator's ranks may use */
    const coll_tune_t *tune;     /* its choose lines count; NULL: there are none */
    const coll_tune_line_t *pin; /* coll_comm_pin; NULL: nothing is pinned */
} coll_facts_t;

typedef enum {
    COLL_WHY_RULE = 0, /* the rules of select.c */
    COLL_WHY_LINE,     /* a choose line of the tuning file */
    COLL_WHY_FORCED    /* GYRE_ALGO, or coll_comm_pin */
} coll_why_t;

typedef struct {
    coll_algo_t algo;
    int one_shot;
    size_t chunk; /* elements */
    int forced;   /* a setting or tune line named the algorithm: run its schedule, not a shorter way */
    /* no schedule at all: collectives/run/oneshot.h; algo and the rest are what would run otherwise */
    int oneshot;
    coll_why_t why; /* of the algorithm; form and chunk may come from a line all the same */
    int line;       /* of the tuning file; 0: none speaks of this call */
} coll_choice_t;

/* args: op, n, count (of the vector, or of the longest block), uniform, fast_order, place, host. esize:
 * bytes of an element. oneshot: 1: the outboxes could serve the call. Errors: those of coll_forced; then
 * *out is unchanged. */
gyre_status_t coll_select(const coll_facts_t *facts, const coll_args_t *args, size_t esize, int oneshot,
                          coll_choice_t *out);
/* What `setting`, the value of GYRE_ALGO, names for this call; AUTO: nothing. NOT_FOUND, UNSUPPORTED: the
 * setting is wrong. */
gyre_status_t coll_forced(const char *setting, const coll_args_t *args, coll_algo_t *out);
/* INVALID: `text` is no list as GYRE_ALGO takes it; errors begin with `name`. */
gyre_status_t coll_check_algorithms(const char *name, const char *text);
/* The size by which choices are made: of the larger buffer, as gyre-perf's first column. 0: not all ranks
 * know it. */
int coll_known_bytes(const coll_args_t *args, size_t esize, uint64_t *bytes);

#endif
