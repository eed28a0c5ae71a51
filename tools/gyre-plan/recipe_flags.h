/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe_flags.h: what the command line of memory, time and search gave. */
#ifndef GYRE_PLAN_RECIPE_FLAGS_H
#define GYRE_PLAN_RECIPE_FLAGS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/gyre-plan/recipe.h"

enum {
    RECIPE,
    MODEL,
    SCALE,
    LAYERS,
    HIDDEN,
    HEADS,
    FFN,
    VOCAB,
    SEQ,
    DP,
    TP,
    CP,
    EP,
    RING,
    PP,
    CHUNKS,
    SCHEDULE,
    BALANCE,
    ZERO,
    SEQUENCE,
    MICRO,
    GLOBAL,
    LEAF,
    PARTS,
    LANES,
    GROUPS,
    RECOMPUTE,
    DTYPE,
    GRAD,
    MACHINE,
    PEAK,
    HBM,
    PER_NODE,
    INTRA,
    INTER,
    EFFICIENCY,
    OVERHEAD,
    OVERLAP,
    BANDWIDTH,
    SOFTWARE,
    PRODUCTS,
    ATTENTION,
    HOST,
    LATENCY,
    STEP,
    LOGIT,
    KEPT,
    BUCKET,
    EXTRA,
    TRAINER,
    DEVICE,
    AWAY,
    FREEZE,
    Z_LOSS,
    ROUTER_Z,
    KEEP,
    OFFLOAD,
    THREADS,
    MATMUL,
    LORA,
    OPTIMIZER,
    LORA_ON,
    RESERVE,
    JSON,
    ROWS,
    FIT,
    GPUS,
    TOP,
    FLAGS
};

/* What was given; each row of the table of flags writes to its place. */
typedef struct {
    int is[FLAGS];
    const char *text[FLAGS]; /* of TEXT and WORD; NULL: not given */
    uint64_t count[FLAGS];   /* of COUNT */
    double real[FLAGS];      /* of REAL */
    size_t bytes;            /* of BUCKET */
} given_t;

/* PLAN_OK, PLAN_USAGE, or -1: help was printed. As plan_question. */
int plan_given_collect(int argc, char **argv, plan_for_t what, const char *help, given_t *given);
/* A column of a table of runs, `where`, of gyre-plan time: a flag of the model or the layout. PLAN_OK or
 * PLAN_USAGE. */
int plan_given_column(const char *where, const char *name, const char *value, given_t *given);
size_t plan_given_count(const given_t *given, int id, size_t otherwise);
/* Says what is wrong with the command line of `what`; PLAN_USAGE. */
int plan_usage(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
