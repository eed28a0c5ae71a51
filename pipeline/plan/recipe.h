/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/recipe.h: a published training run as data: architecture, layout, precision, optimizer,
 * machines.
 *
 * The files are in examples/recipes/; docs/planning.md has their keys. gyre-plan answers questions about
 * them, gyre-train runs them, full size or `tiny`: the same architecture and the same shape of layout on 8
 * local ranks. */
#ifndef PIPELINE_PLAN_RECIPE_H
#define PIPELINE_PLAN_RECIPE_H

#include <jansson.h>

#include "model/data/infill.h"
#include "model/network/stage/stage.h"
#include "optim/batch.h"
#include "optim/schedule.h"
#include "pipeline/plan/layout.h"

/* Sequences, not steps or tokens: those change their meaning while the batch ramps up. */
typedef struct {
    int muon; /* 1: matrices of layers take Muon, with `momentum`, and all else AdamW */
    double momentum;
    double lr, min_lr, beta1, beta2, eps;
    double weight_decay; /* decoupled, on matrices */
    double clip;         /* largest norm of the gradient; 0: no clipping */
    optim_curve_t curve; /* from lr down to min_lr */
    size_t warmup;       /* sequences from 0 up to lr */
    size_t decay;        /* sequences, warm-up among them, until min_lr */
    size_t cooldown;     /* of wsd: the last of these, in which the rate falls; 0: a tenth */
    /* the batch grows from ramp_start by ramp_step until ramp_over sequences are through and it is
     * batch.batch; ramp_start 0: it does not grow */
    size_t ramp_start, ramp_step, ramp_over;
} pipe_optimizer_t;

typedef struct {
    model_precision_t type;  /* of weights and activations; the master copy is fp32 */
    model_precision_t grad;  /* in which gradients are summed and sent */
    double scale;            /* fp16: the loss scale that training begins with; 0: none */
    double scale_min;        /* the least that it may become */
    size_t scale_window;     /* steps without overflow after which it doubles */
    size_t scale_hysteresis; /* overflows until it halves */
} pipe_precision_t;

typedef struct {
    int said;                  /* 0: the file does not say, and neither do the others */
    model_objective_t kind;    /* what is learned of a sequence */
    model_infill_ids_t infill; /* with MODEL_OBJECTIVE_INFILL */
} pipe_objective_t;

#define PIPE_RECIPE_NAME 64
typedef struct {
    char name[PIPE_RECIPE_NAME]; /* the file's, without folder and ".json" */
    model_config_t model;        /* complete, checked; seq is that of training */
    pipe_layout_t layout;        /* complete; fits the model on tp * pp * dp ranks */
    optim_batch_t batch;         /* of a step; groups are dp where that is no power of two and divides it */
    model_recompute_t recompute;
    pipe_precision_t precision;
    pipe_optimizer_t optimizer;
    pipe_objective_t objective;
    char accelerator[PIPE_RECIPE_NAME]; /* "" if the file names none */
    size_t nodes, per_node;             /* 0: not said */
} pipe_recipe_t;

/* "none" "selective" "full"; "fp32" "bf16" "fp16". */
const char *pipe_recompute_name(model_recompute_t recompute);
const char *pipe_precision_name(model_precision_t precision);
/* 1, or 0: no such name. */
int pipe_recompute_parse(const char *name, model_recompute_t *out);
int pipe_precision_parse(const char *name, model_precision_t *out);
size_t pipe_precision_bytes(model_precision_t precision);

/* NOT_FOUND, IO; FORMAT: not a recipe (an unknown key, a value of another type or out of range: the text
 * names file and key); INVALID: the layout does not fit the model, or the batch or the machines the layout
 * (pipe_layout_check). */
gyre_status_t pipe_recipe_load(const char *path, pipe_recipe_t *out);
/* The same from memory; `where` stands for the file in messages and gives the name. */
gyre_status_t pipe_recipe_from_json(const json_t *object, const char *where, pipe_recipe_t *out);

/* Replaces zeros in layout and batch by what they mean on tp * pp * dp ranks. */
void pipe_recipe_complete(pipe_recipe_t *recipe);
/* The same of a run that keeps weights or offloads its state, on which micro_batch 0 depends
 * (pipe_load_t). */
void pipe_recipe_complete_for(pipe_recipe_t *recipe, int keep, int offload);
/* GYRE_OK if model, layout, batch and machines fit each other; INVALID as above. */
gyre_status_t pipe_recipe_check(const pipe_recipe_t *recipe);

/* 1 if gyre-train can let the recipe's batch grow in its layout, which is complete and works; 0, and `why`
 * names the size that it cannot have. */
int pipe_recipe_grows(const pipe_recipe_t *recipe, char why[PIPE_LAYOUT_WHY]);

/* The same recipe for 8 local ranks and a few hundred quick steps. A pure function. The result passes
 * pipe_recipe_check.
 *
 * These stay: the features of the architecture (ratios of heads, of the MLP's width, of rotated channels), of
 * the layout (which of tp, ep, pp, dp are more than 1, schedule, ZeRO stage, sequence parallelism,
 * recomputation) and of the optimizer. Sizes are cut: degrees to 8 ranks in all, 2 to 4 layers, 64 channels,
 * 256 tokens, sequences of 64, a batch of 8. The warm-up is 10 steps, up to a learning rate that suits so
 * small a model. */
pipe_recipe_t pipe_recipe_tiny(const pipe_recipe_t *recipe);

#endif
