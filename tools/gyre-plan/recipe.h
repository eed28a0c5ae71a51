/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe.h: the command line of memory, time and search: a recipe, what is to be
 * otherwise, a machine. */
#ifndef GYRE_PLAN_RECIPE_H
#define GYRE_PLAN_RECIPE_H

#include <jansson.h>

#include "pipeline/plan/estimate.h"
#include "pipeline/plan/memory_trainer.h"

enum { PLAN_FIT = 16 }; /* rows that can be fitted */

typedef struct {
    pipe_recipe_t recipe;
    int have_machine; /* 0: none was named, by flag or recipe */
    plan_machine_t machine;
    plan_software_t software;
    /* of memory, search */
    int trainer; /* 1: memory is what gyre-train itself holds, of a run with `own` */
    plan_trainer_t own;
    const char *json; /* NULL: no file */
    /* of time */
    const char *rows;
    size_t fit[PLAN_FIT], fits; /* numbers of rows, from 1 */
    /* of search */
    size_t gpus, top;
    int one_schedule; /* 1: only the recipe's, with as many chunks as fit */
    int one_balance;  /* 1: --balance was given */
} plan_question_t;

typedef enum { PLAN_FOR_MEMORY = 1, PLAN_FOR_TIME = 2, PLAN_FOR_SEARCH = 4 } plan_for_t;

/* PLAN_OK and *out; PLAN_USAGE or PLAN_FAILED after a message; -1 after the help was printed: `help`, then
 * the flags that all three have. argv[0] is the subcommand. */
int plan_question(int argc, char **argv, plan_for_t what, const char *help, plan_question_t *out);
/* q's recipe with the flags of a table's row: `name` as in the help, with - or _. The same answers. */
int plan_row_recipe(const plan_question_t *q, const char *what, const char *const *name,
                    const char *const *value, size_t count, pipe_recipe_t *out);

/* 1 if a row of the table, from 1, is one that the machine is fitted to. */
int plan_is_fitted(const plan_question_t *q, size_t row);

/* 1 if the machine has so many bytes in addition to what the driver takes. */
int plan_fits(const plan_question_t *q, size_t bytes);

/* A line about the recipe, and another about its layout. */
void plan_print_recipe(const pipe_recipe_t *recipe, const plan_base_t *base);
json_t *plan_json_recipe(const pipe_recipe_t *recipe, const plan_base_t *base);
/* Writes `root` to q->json if there is one; steals it. Returns the exit status. */
int plan_json_write(const plan_question_t *q, json_t *root);

#endif
