/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/time_rows.h: tables of measured runs, to hold an estimate against, and to fit a machine
 * to. */
#ifndef GYRE_PLAN_TIME_ROWS_H
#define GYRE_PLAN_TIME_ROWS_H

#include "tools/gyre-plan/recipe.h"

/* A negative figure: not in the table. */
typedef struct {
    pipe_recipe_t recipe;
    plan_base_t base;
    double seconds;   /* of a step; 0: it did not run */
    double teraflops; /* as its log printed them */
    double memory; /* GB per rank (1e9, or GiB: tools print either); 0: not known, below 0: it did not fit */
    double extra;  /* bytes per parameter, plan_software_t; below 0: not said */
} plan_row_t;

typedef struct {
    plan_row_t *row; /* [rows]; owned */
    size_t rows;
} plan_rows_t;

/* A text table: lines that begin with # and empty ones are passed over; the first names the columns, with the
 * flags' names ("micro_batch" or "micro-batch") and seconds, tflops, memory; "-" is: as the recipe has it.
 * Columns "date" and "note" are for people. PLAN_OK, or another exit status after a message that names the
 * line. */
int plan_rows_read(const plan_question_t *q, plan_rows_t *out);
void plan_rows_free(plan_rows_t *rows);

/* Moves efficiency, intra and overhead of `machine` to where they explain the rows `fit` (numbers from 1)
 * best: the least sum of the squared logarithms of the ratio of estimate and measurement, over 5 %, and of
 * the three from what they were, over factors of 1.2, 2 and 20: with few rows they do not say everything. A
 * row that is far off counts by the logarithm of its square (Cauchy's loss): runs that stalled do not move
 * the others. A simplex search (Nelder and Mead 1965). */
void plan_fit(const plan_rows_t *rows, const size_t *fit, size_t fits, const plan_software_t *software,
              plan_machine_t *machine);

typedef struct {
    size_t rows;                  /* that were compared */
    double median, ninety, worst; /* of |estimate / measurement - 1| */
} plan_errors_t;
/* Of errors [n], which are sorted. */
plan_errors_t plan_errors(double *error, size_t n);

#endif
