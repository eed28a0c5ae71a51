/* pipeline/plan/search.h: every layout of a model on N accelerators, timed and weighed by the estimates of
 * estimate.h. SPDX-License-Identifier: Apache-2.0 */
#ifndef PIPELINE_PLAN_SEARCH_H
#define PIPELINE_PLAN_SEARCH_H

#include "pipeline/plan/estimate.h"
#include "pipeline/plan/layout.h"
#include "pipeline/plan/memory_trainer.h"

/* A layout that fits into memory. */
typedef struct {
    pipe_recipe_t recipe;
    plan_time_t time;
    size_t bytes; /* of the stage that holds most */
} plan_found_t;

/* A split of which no way works, with any number of ranks that share experts. */
typedef struct {
    size_t tp, cp, pp, dp;
    char why[PIPE_LAYOUT_WHY + 64];
} plan_refused_t;

typedef struct {
    /* in */
    pipe_recipe_t recipe; /* model, batch and precision; its layout names the schedule of one_schedule */
    plan_machine_t machine;
    plan_software_t software;
    size_t gpus;
    int one_schedule;              /* 1: only the recipe's, with as many chunks as fit */
    const plan_trainer_t *trainer; /* memory is what gyre-train holds of such a run; NULL: the formulas */
    /* out */
    plan_base_t base;    /* counts of the model */
    plan_found_t *found; /* [founds], the fastest first */
    size_t founds, found_room;
    plan_refused_t *refused; /* [refuseds] */
    size_t refuseds, refused_room;
    size_t tried;
} plan_search_t;

/* Fills in the second half. 1; 0 after an error, which is logged: OVERFLOW, NO_MEMORY. plan_search_free
 * frees what it found. */
int plan_search(plan_search_t *search);
/* *bytes: what the stage that holds most holds, by search->trainer or the formulas. Errors of
 * plan_trainer. */
gyre_status_t plan_search_bytes(const plan_search_t *search, const pipe_recipe_t *recipe,
                                const plan_base_t *base, size_t *bytes);
void plan_search_free(plan_search_t *search);

/* As many leaves as tensor parallelism of tp and context parallelism of cp need, if they divide what leaves
 * must divide. */
void plan_fit_leaves(model_config_t *model, size_t tp, size_t cp);

#endif
