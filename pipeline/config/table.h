/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/config/table.h: a row of the table of settings (table.c): flag, key of a config file, line of
 * the help. */
#ifndef PIPELINE_CONFIG_TABLE_H
#define PIPELINE_CONFIG_TABLE_H

#include "pipeline/config/config.h"
#include "pipeline/plan/choices.h"

typedef enum {
    TRAIN_TEXT,   /* char *; "" is refused */
    TRAIN_COUNT,  /* uint64_t */
    TRAIN_BYTES,  /* uint64_t; K, M and G are understood */
    TRAIN_REAL,   /* double */
    TRAIN_SWITCH, /* int, 0 or 1; the flag alone means 1 */
    TRAIN_CHOICE  /* int: the value of a word in `words` */
} train_kind_t;

/* Order and headings of --help. */
typedef enum {
    TRAIN_RECIPE,
    TRAIN_MODEL,
    TRAIN_DATA,
    TRAIN_RUN,
    TRAIN_OPTIMISER,
    TRAIN_PARALLELISM,
    TRAIN_SUMS,
    TRAIN_PRECISION,
    TRAIN_EVALUATION,
    TRAIN_CHECKPOINTS,
    TRAIN_OUTPUT,
    TRAIN_GROUPS
} train_group_t;

/* Who must have the same value: the ranks of a run, and a run that resumes from a checkpoint. Those before
 * TRAIN_CURVE do not change the bits of a run. */
typedef enum {
    TRAIN_FREE,     /* all ranks; a run that resumes may have another */
    TRAIN_OWN,      /* nobody: files that have other names on another host, and what one rank alone uses */
    TRAIN_TOGETHER, /* nobody, but all ranks have one, or none: they do together what it asks for */
    TRAIN_CURVE,    /* all ranks, and a run that resumes unless --may-change names it */
    TRAIN_CONTENT,  /* the same, but what the file holds is compared, not its name */
    TRAIN_SHAPE     /* all ranks, and a run that resumes, always */
} train_matters_t;

typedef struct {
    train_group_t group;
    const char *name;
    train_kind_t kind;
    size_t at;                   /* in train_config_t */
    const char *preset;          /* default, as text; NULL: none */
    double low, high;            /* of COUNT, BYTES and REAL */
    const char *argument, *help; /* argument: what the help calls the value; NULL: the words */
    train_matters_t matters;
    const pipe_word_t *words; /* of CHOICE */
} train_row_t;

extern const train_row_t train_rows[];
extern const size_t train_rows_count;
extern const char *const train_group_names[TRAIN_GROUPS];

/* The value of a row from its text. 1, or 0 with nothing changed: it is malformed or out of range (or, for
 * text, memory is exhausted). */
int train_config_set(train_config_t *options, const train_row_t *row, const char *text);
/* Notes that a row was given, by flag or config file; 1 if it was. */
void train_config_mark(train_config_t *options, const train_row_t *row);
/* What the help calls its value: "N", "none|selective|full", "" for a switch. */
void train_row_argument(const train_row_t *row, char *text, size_t bytes);
/* What a row wants, for messages: "wants a number from 0 to 1". */
void train_row_wanted(const train_row_t *row, char *text, size_t bytes);

#endif
