/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/config/recipe.c: what --recipe says, where flags and config file do not.
 *
 * A recipe counts in sequences (pipeline/plan/recipe.h), options count in steps: what goes by sequences
 * becomes the steps in which so many are through, while the batch grows and after it. These are counted from
 * the first step of the run with the batch that is asked for now: checkpoints are not known yet. */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "pipeline/config/config.h"

gyre_status_t train_recipe_read(const train_config_t *options, pipe_recipe_t *out)
{
    pipe_recipe_t full;
    gyre_status_t status = pipe_recipe_load(options->recipe, &full);
    if (status == GYRE_OK)
        *out = options->scale == TRAIN_SCALE_TINY ? pipe_recipe_tiny(&full) : full;
    return status;
}

#define OPEN(name) (!train_config_given(o, name))
#define TAKE(name, field, value) \
    do {                         \
        if (OPEN(name))          \
            (field) = (value);   \
    } while (0)

static void take_layout(train_config_t *o, const pipe_recipe_t *r)
{
    const pipe_layout_t *l = &r->layout;
    /* with another --tp, --cp or --pp, --dp is what the ranks leave over; chunks are the schedule's */
    int own = OPEN("tp") && OPEN("cp") && OPEN("pp");
    int own_form = OPEN("pp") && OPEN("schedule");
    TAKE("dp", o->dp, own ? l->dp : 0);
    TAKE("tp", o->tp, l->tp);
    TAKE("ep", o->ep, own ? l->ep : 1); /* some of dp */
    TAKE("chunks", o->chunks, own_form ? l->chunks : 0);
    TAKE("balance", o->balance, OPEN("pp") ? l->balance : 0);
    TAKE("schedule", o->schedule, OPEN("pp") ? (int)l->schedule : PIPE_1F1B);
    TAKE("pp", o->pp, l->pp);
    TAKE("zero", o->zero, (uint64_t)l->zero);
    TAKE("sequence-parallel", o->sequence_parallel, l->sequence);
    TAKE("micro-batch", o->micro_batch, l->micro_batch);
    TAKE("recompute", o->recompute, (int)r->recompute);
    TAKE("grad-sequences", o->grad_sequences, r->batch.leaf);
    TAKE("lanes", o->lanes, r->batch.lanes);
    TAKE("groups", o->groups, OPEN("batch") ? r->batch.groups : 0);
    TAKE("batch", o->batch, r->batch.batch);
}

static void take_precision(train_config_t *o, const pipe_recipe_t *r)
{
    const pipe_precision_t *p = &r->precision;
    if (!OPEN("precision")) /* gradients and loss scale go with it */
        return;
    o->precision = (int)p->type;
    TAKE("grad-type", o->grad_type, p->type != MODEL_FLOAT32 && p->grad == p->type);
    if (p->scale > 0.0)
        TAKE("loss-scale", o->loss_scale, p->scale);
    if (p->scale_min > 0.0)
        TAKE("loss-scale-min", o->loss_scale_min, p->scale_min);
    if (p->scale_window > 0)
        TAKE("loss-scale-interval", o->loss_scale_interval, p->scale_window);
    if (p->scale_hysteresis > 0)
        TAKE("loss-scale-hysteresis", o->loss_scale_hysteresis, p->scale_hysteresis);
}

/* The batch grows as the recipe's, if it is the recipe's. */
static gyre_status_t take_ramp(train_config_t *o, const pipe_optimizer_t *p, int own_batch)
{
    char text[96];
    if (!p->ramp_start || !own_batch || !OPEN("batch-rampup"))
        return GYRE_OK;
    snprintf(text, sizeof text, "%zu:%zu:%zu", p->ramp_start, p->ramp_step, p->ramp_over);
    o->batch_rampup = strdup(text);
    return o->batch_rampup ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for --batch-rampup");
}

static gyre_status_t take_optimizer(train_config_t *o, const pipe_recipe_t *r)
{
    const pipe_optimizer_t *p = &r->optimizer;
    optim_ramp_t ramp; /* which says how many steps so many sequences are */
    gyre_status_t status = take_ramp(o, p, OPEN("batch"));
    if (status == GYRE_OK)
        status = train_ramp_read(o, &ramp);
    if (status != GYRE_OK)
        return status;
    TAKE("min-lr", o->min_lr, p->lr > 0.0 ? p->min_lr / p->lr : 0.0);
    TAKE("optimizer", o->optimizer, p->muon);
    TAKE("momentum", o->momentum, p->momentum);
    TAKE("lr", o->lr, p->lr);
    TAKE("lr-schedule", o->lr_schedule, (int)p->curve);
    TAKE("lr-decay", o->lr_decay, optim_ramp_steps(&ramp, p->decay));
    const size_t stable = p->decay - base_min_size(p->cooldown, p->decay);
    TAKE("lr-cooldown", o->lr_cooldown,
         p->cooldown ? optim_ramp_steps(&ramp, p->decay) - optim_ramp_steps(&ramp, stable) : 0);
    TAKE("warmup", o->warmup, optim_ramp_steps(&ramp, p->warmup));
    TAKE("beta1", o->beta1, p->beta1);
    TAKE("beta2", o->beta2, p->beta2);
    TAKE("epsilon", o->epsilon, p->eps);
    TAKE("weight-decay", o->weight_decay, p->weight_decay);
    TAKE("clip", o->clip, p->clip);
    if (p->decay > 0)
        TAKE("steps", o->steps, optim_ramp_steps(&ramp, p->decay));
    return GYRE_OK;
}

static gyre_status_t take_objective(train_config_t *o, const pipe_objective_t *p)
{
    const model_infill_ids_t *ids = &p->infill;
    char text[64];
    if (!p->said)
        return GYRE_OK;
    TAKE("objective", o->objective, 1 + (int)p->kind);
    /* the ids are those of infill, which --objective infill asks for, or auto with a model that the recipe
     * lets infill */
    int infills = o->objective == 1 + MODEL_OBJECTIVE_INFILL || o->objective == TRAIN_OBJECTIVE_AUTO;
    if (p->kind != MODEL_OBJECTIVE_INFILL || !infills || !OPEN("infill-ids"))
        return GYRE_OK;
    snprintf(text, sizeof text, "%d,%d,%d,%d", ids->mask, ids->gmask, ids->sop, ids->eop);
    return (o->infill_ids = strdup(text)) ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", text);
}

void train_recipe_tell(const train_config_t *o)
{
    pipe_recipe_t recipe;
    const pipe_optimizer_t *p = &recipe.optimizer;
    if (!o->recipe || OPEN("batch") || !OPEN("batch-rampup") || train_recipe_read(o, &recipe) != GYRE_OK ||
        !p->ramp_start)
        return;
    size_t way = o->batch > p->ramp_start ? (size_t)o->batch - p->ramp_start : 0;
    size_t increment = p->ramp_step < way ? p->ramp_step : way;
    if (way == 0) {
        log_warning("--batch %zu: a batch of constant size replaces that of %s, which grows from %zu to %zu "
                    "sequences (--batch-rampup none silences this)",
                    (size_t)o->batch, o->recipe, p->ramp_start, recipe.batch.batch);
        return;
    }
    while (way % increment != 0)
        increment--;
    log_warning("--batch %zu: a batch of constant size replaces that of %s, which grows from %zu to %zu "
                "sequences: give "
                "--batch-rampup %zu:%zu:%zu to let it grow, or none to silence this",
                (size_t)o->batch, o->recipe, p->ramp_start, recipe.batch.batch, p->ramp_start, increment,
                p->ramp_over);
}

/* What says the same as the recipe, otherwise. */
static gyre_status_t check_contradictions(const train_config_t *o)
{
    static const char *const others[] = {"model", "load", "layers", "hidden", "heads", "vocab"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (train_config_given(o, others[i]))
            return gyre_fail(GYRE_ERR_INVALID, "--%s and --recipe exclude each other: %s describes the model",
                             others[i], o->recipe);
    return GYRE_OK;
}

gyre_status_t train_recipe_apply(train_config_t *o)
{
    pipe_recipe_t recipe;
    if (!o->recipe && train_config_given(o, "scale"))
        return gyre_fail(GYRE_ERR_INVALID, "--scale needs a --recipe: name its file");
    if (!o->recipe)
        return GYRE_OK;
    gyre_status_t status = check_contradictions(o);
    if (status == GYRE_OK)
        status = train_recipe_read(o, &recipe);
    if (status != GYRE_OK)
        return status;
    if (recipe.optimizer.lr > 0.0 && recipe.optimizer.min_lr > recipe.optimizer.lr)
        return gyre_fail(GYRE_ERR_INVALID, "%s: optimizer.min_lr is %g, more than lr, %g", o->recipe,
                         recipe.optimizer.min_lr, recipe.optimizer.lr);
    take_layout(o, &recipe); /* the batch among it, by which the others are counted */
    take_precision(o, &recipe);
    status = take_optimizer(o, &recipe);
    return status == GYRE_OK ? take_objective(o, &recipe.objective) : status;
}
