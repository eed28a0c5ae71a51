/* tools/gyre-train/options.h: a row of the table of options, for options.c and the table itself, options_table.c. */
#ifndef GYRE_TRAIN_OPTIONS_H
#define GYRE_TRAIN_OPTIONS_H

#include "tools/gyre-train/train.h"

typedef enum {
    TRAIN_TEXT,   /* char *; "" is refused */
    TRAIN_COUNT,  /* uint64_t */
    TRAIN_BYTES,  /* uint64_t; K, M and G are understood */
    TRAIN_REAL,   /* double */
    TRAIN_SWITCH, /* int, 0 or 1; the flag alone means 1 */
    TRAIN_CHOICE  /* int: the place of the word in `argument`, such as "none|selective|full" */
} train_kind_t;

/* Order and headings of --help. */
typedef enum {
    TRAIN_RECIPE,
    TRAIN_MODEL,
    TRAIN_DATA,
    TRAIN_RUN,
    TRAIN_OPTIMISER,
    TRAIN_PARALLELISM,
    TRAIN_PRECISION,
    TRAIN_EVALUATION,
    TRAIN_CHECKPOINTS,
    TRAIN_OUTPUT,
    TRAIN_GROUPS
} train_group_t;

/* To the bits of a run that goes on: not; by its value, which --may-change permits to differ; by what it names, ditto; by
 * its value, always. */
typedef enum { TRAIN_FREE, TRAIN_CURVE, TRAIN_CONTENT, TRAIN_SHAPE } train_matters_t;

typedef struct {
    train_group_t group;
    const char *name;
    train_kind_t kind;
    size_t at;          /* in train_options_t */
    const char *preset; /* default, as text; NULL: none */
    double low, high;   /* of COUNT, BYTES and REAL */
    const char *argument, *help;
    train_matters_t matters;
} train_row_t;

extern const train_row_t train_rows[];
extern const size_t train_rows_count;
extern const char *const train_group_names[TRAIN_GROUPS];

#endif
