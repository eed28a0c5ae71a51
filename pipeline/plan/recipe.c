/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/recipe.c: reads recipes. One table of keys per object, so that what is read, what is refused
 * and what the messages say cannot differ. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/network/hf_config.h"
#include "optim/adamw.h"
#include "optim/ramp.h"
#include "pipeline/plan/recipe.h"
#include "pipeline/plan/choices.h"

#define LARGEST 9007199254740992.0 /* 2^53: every integer up to it is a double */

/* ---- names --------------------------------------------------------------------------------------------- */

const char *pipe_recompute_name(model_recompute_t recompute)
{
    return pipe_word_name(pipe_recompute_words, (int)recompute);
}

const char *pipe_precision_name(model_precision_t precision)
{
    return pipe_word_name(pipe_precision_words, (int)precision);
}

int pipe_recompute_parse(const char *name, model_recompute_t *out)
{
    int value, found = pipe_word_parse(pipe_recompute_words, name, &value);
    if (found)
        *out = (model_recompute_t)value;
    return found;
}

int pipe_precision_parse(const char *name, model_precision_t *out)
{
    int value, found = pipe_word_parse(pipe_precision_words, name, &value);
    if (found)
        *out = (model_precision_t)value;
    return found;
}

size_t pipe_precision_bytes(model_precision_t precision)
{
    return precision == MODEL_FLOAT32 ? 4 : 2;
}

/* ---- objects ------------------------------------------------------------------------------------------- */

typedef enum {
    COUNT,
    REAL_,
    SWITCH,
    TEXT,
    RECOMPUTE,
    PRECISION,
    CURVE,
    OPTIMIZER,
    SCHEDULE,
    BALANCE,
    OBJECTIVE,
    OBJECT
} kind_t;
typedef struct {
    const char *key;
    kind_t kind;
    void *out;        /* NULL: read elsewhere, or a text that is for people */
    double low, high; /* of COUNT and REAL_ */
} key_t_;

static gyre_status_t read_name(const char *where, const char *section, const key_t_ *key, const char *text)
{
    static const pipe_word_t *const choice[] = {
        [RECOMPUTE] = pipe_recompute_words, [PRECISION] = pipe_precision_words,
        [CURVE] = pipe_curve_words,         [SCHEDULE] = pipe_schedule_words,
        [OPTIMIZER] = pipe_optimizer_words, [BALANCE] = pipe_balance_words,
        [OBJECTIVE] = pipe_objective_words};
    char all[160];
    int found;
    if (!pipe_word_parse(choice[key->kind], text, &found)) {
        pipe_words_join(choice[key->kind], ", ", all, sizeof all);
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s.%s is \"%s\": it must be one of %s", where, section,
                         key->key, text, all);
    }
    if (key->kind == RECOMPUTE)
        *(model_recompute_t *)key->out = (model_recompute_t)found;
    else if (key->kind == PRECISION)
        *(model_precision_t *)key->out = (model_precision_t)found;
    else if (key->kind == CURVE)
        *(optim_curve_t *)key->out = (optim_curve_t)found;
    else if (key->kind == OBJECTIVE)
        *(model_objective_t *)key->out = (model_objective_t)found;
    else if (key->kind == SCHEDULE)
        *(pipe_kind_t *)key->out = (pipe_kind_t)found;
    else
        *(int *)key->out = found;
    return GYRE_OK;
}

static gyre_status_t read_number(const char *where, const char *section, const key_t_ *key,
                                 const json_t *value)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || (key->kind == COUNT && (!json_is_integer(value) || number > LARGEST)))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s.%s must be %s", where, section, key->key,
                         key->kind == COUNT ? "a whole number" : "a number");
    if (!(number >= key->low && number <= key->high))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s.%s is %g: it must lie in %g..%g", where, section, key->key,
                         number, key->low, key->high);
    if (key->kind == COUNT)
        *(size_t *)key->out = (size_t)json_integer_value(value);
    else
        *(double *)key->out = number;
    return GYRE_OK;
}

static gyre_status_t read_value(const char *where, const char *section, const key_t_ *key,
                                const json_t *value)
{
    switch (key->kind) {
    case OBJECT:
        return GYRE_OK;
    case COUNT:
    case REAL_:
        return read_number(where, section, key, value);
    case SWITCH:
        if (!json_is_boolean(value))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: %s.%s must be true or false", where, section, key->key);
        *(int *)key->out = json_is_true(value);
        return GYRE_OK;
    default:
        break;
    }
    if (!json_is_string(value))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s.%s must be a text", where, section, key->key);
    if (key->kind != TEXT)
        return read_name(where, section, key, json_string_value(value));
    if (key->out)
        snprintf(key->out, PIPE_RECIPE_NAME, "%s", json_string_value(value));
    return GYRE_OK;
}

/* Every member of `object` by its row of the table; a name that no row has is an error. Absent: as it was. */
static gyre_status_t read_object(const char *where, const char *section, const json_t *object,
                                 const key_t_ *keys, size_t count)
{
    if (!object)
        return GYRE_OK;
    if (!json_is_object(object))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s must be an object", where, section);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        size_t k = 0;
        while (k < count && strcmp(keys[k].key, name) != 0)
            k++;
        if (k == count) {
            char known[320] = "";
            for (size_t i = 0; i < count; i++)
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                         keys[i].key);
            return gyre_fail(GYRE_ERR_FORMAT, "%s: %s has no \"%s\"; it has %s", where, section, name, known);
        }
        gyre_status_t status = read_value(where, section, &keys[k], value);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}
#define READ(section, object, keys) read_object(where, section, object, keys, sizeof keys / sizeof keys[0])

static gyre_status_t read_layout(const char *where, const json_t *object, pipe_recipe_t *r)
{
    size_t zero = 0, seq = 0;
    const key_t_ keys[] = {{"dp", COUNT, &r->layout.dp, 1, 1e6},
                           {"tp", COUNT, &r->layout.tp, 1, 1e6},
                           {"ep", COUNT, &r->layout.ep, 1, 1024},
                           {"pp", COUNT, &r->layout.pp, 1, 1e6},
                           {"chunks", COUNT, &r->layout.chunks, 1, 1e6},
                           {"schedule", SCHEDULE, &r->layout.schedule, 0, 0},
                           {"balance", BALANCE, &r->layout.balance, 0, 0},
                           {"zero", COUNT, &zero, 0, 3},
                           {"sequence_parallel", SWITCH, &r->layout.sequence, 0, 0},
                           {"micro_batch", COUNT, &r->layout.micro_batch, 1, 1e6},
                           {"global_batch", COUNT, &r->batch.batch, 1, 1e9},
                           {"groups", COUNT, &r->batch.groups, 1, 1e9},
                           {"grad_sequences", COUNT, &r->batch.leaf, 1, 1048576},
                           {"lanes", COUNT, &r->batch.lanes, 1, 1048576},
                           {"seq", COUNT, &seq, 1, 1048576},
                           {"recompute", RECOMPUTE, &r->recompute, 0, 0}};
    gyre_status_t status = READ("layout", object, keys);
    r->layout.zero = (int)zero;
    if (r->batch.leaf > 1 && !json_object_get(object, "micro_batch"))
        r->layout.micro_batch = r->batch.leaf;
    if (status == GYRE_OK && seq) {
        if (seq > r->model.seq && r->model.pos == MODEL_POS_LEARNED)
            return gyre_fail(GYRE_ERR_INVALID, "%s: layout.seq is %zu, but the model knows %zu positions",
                             where, seq, r->model.seq);
        r->model.seq = seq;
    }
    return status;
}

static gyre_status_t read_precision(const char *where, const json_t *object, pipe_precision_t *p)
{
    const key_t_ keys[] = {{"dtype", PRECISION, &p->type, 0, 0},
                           {"grad_dtype", PRECISION, &p->grad, 0, 0},
                           {"loss_scale", OBJECT, NULL, 0, 0}};
    const key_t_ scale[] = {{"start", REAL_, &p->scale, 1e-6, 1e18},
                            {"window", COUNT, &p->scale_window, 1, 1e9},
                            {"hysteresis", COUNT, &p->scale_hysteresis, 1, 1e9},
                            {"min", REAL_, &p->scale_min, 1e-12, 1e18}};
    gyre_status_t status = READ("precision", object, keys);
    p->grad = object && json_object_get(object, "grad_dtype") ? p->grad : p->type;
    if (status == GYRE_OK)
        status = READ("precision.loss_scale", json_object_get(object, "loss_scale"), scale);
    if (status == GYRE_OK && p->grad != p->type && p->grad != MODEL_FLOAT32)
        status = gyre_fail(GYRE_ERR_INVALID, "%s: precision.grad_dtype is %s: with %s it can be that or fp32",
                           where, pipe_precision_name(p->grad), pipe_precision_name(p->type));
    if (status == GYRE_OK && p->scale > 0.0 && p->type != MODEL_FLOAT16)
        status = gyre_fail(GYRE_ERR_INVALID, "%s: precision.loss_scale is for fp16; %s needs none", where,
                           pipe_precision_name(p->type));
    return status;
}

static gyre_status_t read_optimizer(const char *where, const json_t *object, pipe_optimizer_t *o)
{
    const key_t_ keys[] = {{"type", OPTIMIZER, &o->muon, 0, 0},
                           {"momentum", REAL_, &o->momentum, 0, 0.999999},
                           {"lr", REAL_, &o->lr, 0, 100},
                           {"min_lr", REAL_, &o->min_lr, 0, 100},
                           {"beta1", REAL_, &o->beta1, 0, 0.999999},
                           {"beta2", REAL_, &o->beta2, 0, 0.999999999},
                           {"eps", REAL_, &o->eps, OPTIM_ADAMW_EPSILON, 1},
                           {"weight_decay", REAL_, &o->weight_decay, 0, 100},
                           {"clip", REAL_, &o->clip, 0, 1e12},
                           {"schedule", CURVE, &o->curve, 0, 0},
                           {"warmup_samples", COUNT, &o->warmup, 0, 1e15},
                           {"decay_samples", COUNT, &o->decay, 0, 1e15},
                           {"cooldown_samples", COUNT, &o->cooldown, 0, 1e15},
                           {"rampup", OBJECT, NULL, 0, 0}};
    const key_t_ ramp[] = {{"start", COUNT, &o->ramp_start, 1, 1e9},
                           {"increment", COUNT, &o->ramp_step, 1, 1e9},
                           {"samples", COUNT, &o->ramp_over, 0, 1e15}};
    gyre_status_t status = READ("optimizer", object, keys);
    const json_t *rampup = object ? json_object_get(object, "rampup") : NULL;
    if (status == GYRE_OK)
        status = READ("optimizer.rampup", rampup, ramp);
    if (status == GYRE_OK && rampup && (!o->ramp_start || !o->ramp_step))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: optimizer.rampup needs start, increment and samples", where);
    return status;
}

/* Ids that the file does not name are the last of the vocabulary, which then names none. */
static gyre_status_t read_objective(const char *where, const json_t *object, pipe_recipe_t *r)
{
    size_t id[MODEL_INFILL_IDS], named = 0;
    double last = (double)r->model.vocab - 1;
    const key_t_ keys[] = {{"name", OBJECTIVE, &r->objective.kind, 0, 0},
                           {"mask_id", COUNT, &id[0], 0, last},
                           {"gmask_id", COUNT, &id[1], 0, last},
                           {"sop_id", COUNT, &id[2], 0, last},
                           {"eop_id", COUNT, &id[3], 0, last}};
    gyre_status_t status = READ("objective", object, keys);
    if (status != GYRE_OK || !object)
        return status;
    for (size_t i = 1; i < sizeof keys / sizeof keys[0]; i++)
        named += json_object_get(object, keys[i].key) != NULL;
    if (!json_object_get(object, "name") || (named != 0 && named != MODEL_INFILL_IDS) ||
        (named != 0 && r->objective.kind != MODEL_OBJECTIVE_INFILL))
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: objective needs a name; infill takes mask_id, gmask_id, sop_id and eop_id, all "
                         "four or none of them",
                         where);
    if (r->objective.kind != MODEL_OBJECTIVE_CAUSAL && !r->model.prefix)
        return gyre_fail(GYRE_ERR_INVALID, "%s: objective.name is %s, but the model has no prefix masks",
                         where, pipe_word_name(pipe_objective_words, (int)r->objective.kind));
    r->objective.said = 1;
    r->objective.infill = named ? (model_infill_ids_t){.mask = (model_token_t)id[0],
                                                       .gmask = (model_token_t)id[1],
                                                       .sop = (model_token_t)id[2],
                                                       .eop = (model_token_t)id[3]}
                                : model_infill_ids_last(r->model.vocab);
    return GYRE_OK;
}

/* ---- recipes ------------------------------------------------------------------------------------------- */

void pipe_recipe_complete(pipe_recipe_t *r)
{
    pipe_recipe_complete_for(r, 0, 0);
}

void pipe_recipe_complete_for(pipe_recipe_t *r, int keep, int offload)
{
    const pipe_load_t load = {.model = r->model,
                              .batch = r->batch,
                              .precision = r->precision.type,
                              .recompute = r->recompute,
                              .grad16 = r->precision.type != MODEL_FLOAT32 &&
                                        r->precision.grad == r->precision.type,
                              .keep = keep,
                              .offload = offload};
    r->layout = pipe_layout_complete(&r->layout,
                                     r->layout.tp * r->layout.pp * pipe_layout_replicas(&r->layout), &load);
    size_t dp = r->layout.dp;
    if (!r->batch.batch)
        r->batch.batch = dp * r->layout.micro_batch;
    if (!r->batch.groups && (dp & (dp - 1)) != 0 && optim_batch_lanes(&r->batch) % dp == 0)
        r->batch.groups = dp;
    r->batch = optim_batch_complete(&r->batch);
}

gyre_status_t pipe_recipe_check(const pipe_recipe_t *r)
{
    size_t ranks = r->layout.tp * r->layout.pp * pipe_layout_replicas(&r->layout);
    gyre_status_t status = model_config_check(&r->model);
    if (status == GYRE_OK)
        status = pipe_layout_check(&r->layout, &r->model, ranks, &r->batch);
    if (status == GYRE_OK && r->nodes && r->per_node && r->nodes * r->per_node != ranks)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "%zu nodes of %zu are %zu accelerators, but tp %zu x pp %zu x dp %zu are %zu",
                           r->nodes, r->per_node, r->nodes * r->per_node, r->layout.tp, r->layout.pp,
                           pipe_layout_replicas(&r->layout), ranks);
    return status;
}

static optim_ramp_t ramp_of(const pipe_recipe_t *r)
{
    return (optim_ramp_t){.batch = r->batch.batch,
                          .leaf = r->batch.leaf,
                          .round = r->batch.lanes * r->batch.leaf,
                          .start = r->optimizer.ramp_start,
                          .increment = r->optimizer.ramp_step,
                          .over = r->optimizer.ramp_over};
}

static gyre_status_t ramp_check(const pipe_recipe_t *r)
{
    const optim_ramp_t ramp = ramp_of(r);
    return optim_ramp_check(&ramp);
}

int pipe_recipe_grows(const pipe_recipe_t *r, char why[PIPE_LAYOUT_WHY])
{
    const optim_ramp_t ramp = ramp_of(r);
    const pipe_layout_t *l = &r->layout;
    size_t rounds = 0, size;
    *why = 0;
    if (ramp.start == 0)
        return 1;
    if (pipe_layout_context(l) > 1)
        snprintf(why, PIPE_LAYOUT_WHY, "cp %zu does not go with a batch that grows, as the recipe's", l->cp);
    else if ((size = pipe_layout_uneven(l, &r->batch, &ramp, &rounds)) > 0)
        snprintf(why, PIPE_LAYOUT_WHY,
                 "the batch grows: of %zu of %zu sequences the longest share has %zu micro-batch%s, and %s "
                 "needs a multiple of pp %zu",
                 size, ramp.batch, rounds, rounds == 1 ? "" : "es", pipe_kind_name(l->schedule), l->pp);
    else if ((size = pipe_layout_unequal(l, &r->batch, &ramp)) > 0)
        snprintf(why, PIPE_LAYOUT_WHY,
                 "the batch grows: %zu of %zu sequences have no equal shares for dp %zu, as ep %zu needs",
                 size, ramp.batch, l->dp, l->ep);
    return *why == 0;
}

gyre_status_t pipe_recipe_from_json(const json_t *object, const char *where, pipe_recipe_t *out)
{
    pipe_recipe_t r = {.layout = {.tp = 1, .pp = 1, .dp = 1, .schedule = PIPE_1F1B, .micro_batch = 1},
                       .optimizer = {.momentum = 0.95,
                                     .lr = 1e-3,
                                     .min_lr = 1e-4,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .clip = 1.0,
                                     .curve = OPTIM_CURVE_COSINE}};
    const key_t_ top[] = {{"model", OBJECT, NULL, 0, 0},     {"layout", OBJECT, NULL, 0, 0},
                          {"precision", OBJECT, NULL, 0, 0}, {"optimizer", OBJECT, NULL, 0, 0},
                          {"objective", OBJECT, NULL, 0, 0}, {"hardware", OBJECT, NULL, 0, 0},
                          {"source", TEXT, NULL, 0, 0},      {"notes", OBJECT, NULL, 0, 0}};
    const key_t_ hardware[] = {{"accelerator", TEXT, r.accelerator, 0, 0},
                               {"nodes", COUNT, &r.nodes, 1, 1e6},
                               {"per_node", COUNT, &r.per_node, 1, 1e6}};
    const char *slash = strrchr(where, '/');
    snprintf(r.name, sizeof r.name, "%s", slash ? slash + 1 : where);
    size_t length = strlen(r.name);
    if (length > 5 && strcmp(r.name + length - 5, ".json") == 0)
        r.name[length - 5] = '\0';

    gyre_status_t status = READ("a recipe", object, top);
    const json_t *model = json_object_get(object, "model");
    if (status == GYRE_OK && !model)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: a recipe needs \"model\", as config.json has it", where);
    if (status == GYRE_OK)
        status = model_config_from_json(model, where, 0, &r.model);
    if (status == GYRE_OK)
        status = read_layout(where, json_object_get(object, "layout"), &r);
    if (status == GYRE_OK)
        status = read_precision(where, json_object_get(object, "precision"), &r.precision);
    if (status == GYRE_OK)
        status = read_optimizer(where, json_object_get(object, "optimizer"), &r.optimizer);
    if (status == GYRE_OK)
        status = read_objective(where, json_object_get(object, "objective"), &r);
    if (status == GYRE_OK)
        status = READ("hardware", json_object_get(object, "hardware"), hardware);
    if (status != GYRE_OK)
        return status;
    pipe_recipe_complete(&r);
    status = pipe_recipe_check(&r);
    if (status ==
        GYRE_OK) /* of the file's own batch: another's, as a planner may ask for, need not be reached so */
        status = ramp_check(&r);
    if (status == GYRE_OK)
        *out = r;
    return status;
}

gyre_status_t pipe_recipe_load(const char *path, pipe_recipe_t *out)
{
    json_t *object = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return gyre_fail_errno(
            GYRE_ERR_NOT_FOUND, errno,
            "cannot open the recipe %s: name a file such as examples/recipes/llama-7b.json (installed: "
            "share/gyre/recipes)",
            path);
    gyre_status_t status = base_json_read(path, &object);
    if (status == GYRE_OK)
        status = pipe_recipe_from_json(object, path, out);
    json_decref(object);
    return status;
}
