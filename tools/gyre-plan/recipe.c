/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe.c: a recipe, what the command line wants otherwise, a machine. */
#include "tools/gyre-plan/recipe.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/text/json.h"
#include "model/network/hf_config.h"
#include "pipeline/config/config.h"
#include "pipeline/plan/choices.h"
#include "pipeline/plan/search.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/recipe_flags.h"
#include "tools/shared/flags.h"

/* ---- the model and the layout -------------------------------------------------------------------------- */

static void resize_model(const given_t *g, model_config_t *c)
{
    const size_t hidden = c->hidden, heads = c->heads, groups = c->heads / c->kv_heads;
    c->layers = plan_given_count(g, LAYERS, c->layers);
    c->hidden = plan_given_count(g, HIDDEN, c->hidden);
    c->heads = plan_given_count(g, HEADS, c->heads);
    c->seq = plan_given_count(g, SEQ, c->seq);
    c->ffn = plan_given_count(g, FFN, (size_t)llround((double)c->ffn * (double)c->hidden / (double)hidden));
    if (c->hidden != hidden || c->heads != heads) {
        double part = (double)c->rotary_dim / (double)c->head_dim;
        c->head_dim = c->heads <= c->hidden && c->hidden % c->heads == 0 ? c->hidden / c->heads : 0;
        c->rotary_dim = 2 * base_max_size(1, (size_t)llround(part * (double)c->head_dim / 2));
        c->kv_heads = c->heads % groups == 0 ? c->heads / groups : c->heads;
    }
    c->vocab = plan_given_count(g, VOCAB, c->vocab);
    c->vocab_padded = plan_given_count(g, VOCAB, c->vocab_padded);
}

static int apply_names(const char *what, const given_t *g, pipe_recipe_t *r)
{
    if (g->text[SCHEDULE]) {
        if (pipe_kind_parse(g->text[SCHEDULE], &r->layout.schedule) != GYRE_OK)
            return PLAN_USAGE;
        if (!g->is[CHUNKS])
            r->layout.chunks = 0;
    }
    if (g->text[RING])
        r->layout.ring = !strcmp(g->text[RING], "ring");
    if (g->text[BALANCE])
        r->layout.balance = !strcmp(g->text[BALANCE], "embedding");
    if (g->text[RECOMPUTE] && !pipe_recompute_parse(g->text[RECOMPUTE], &r->recompute))
        return plan_usage(what, "--recompute is none, selective or full, not %s", g->text[RECOMPUTE]);
    if (g->text[OPTIMIZER] && !pipe_word_parse(pipe_optimizer_words, g->text[OPTIMIZER], &r->optimizer.muon))
        return plan_usage(what, "--optimizer is adamw or muon, not %s", g->text[OPTIMIZER]);
    if (g->text[DTYPE] && !pipe_precision_parse(g->text[DTYPE], &r->precision.type))
        return plan_usage(what, "--dtype is fp32, bf16 or fp16, not %s", g->text[DTYPE]);
    if (g->text[GRAD] && !pipe_precision_parse(g->text[GRAD], &r->precision.grad))
        return plan_usage(what, "--grad-dtype is fp32, bf16 or fp16, not %s", g->text[GRAD]);
    if (r->precision.grad != r->precision.type && r->precision.grad != MODEL_FLOAT32) {
        if (g->text[GRAD])
            return plan_usage(what, "gradients are %s or fp32, not %s",
                              pipe_precision_name(r->precision.type), g->text[GRAD]);
        r->precision.grad = r->precision.type;
    }
    return PLAN_OK;
}

static int of_trainer(const given_t *g)
{
    return g->is[TRAINER] || g->is[LORA];
}

/* What gyre-train takes by itself without a recipe, or with other degrees than the recipe's. */
static void take_own_defaults(const given_t *g, pipe_recipe_t *r)
{
    pipe_layout_t *l = &r->layout;
    if (g->is[TP] || g->is[CP] || g->is[PP])
        l->ep = 1;
    if (g->is[PP]) {
        l->schedule = PIPE_1F1B;
        l->chunks = 0;
        l->balance = 0;
    }
    if (!g->text[RECIPE] && !g->text[MODEL]) {
        resize_model(g, &r->model);
        r->model.leaves = model_config_leaves(&r->model);
    }
}

/* Of a search, which tries other layouts than the recipe's: whether model and batch are sound. */
static gyre_status_t check_search(const pipe_recipe_t *r)
{
    pipe_recipe_t alone = *r;
    alone.nodes = 0;
    alone.layout = (pipe_layout_t){.tp = 1,
                                   .cp = 1,
                                   .pp = 1,
                                   .dp = 1,
                                   .ep = 1,
                                   .chunks = 1,
                                   .schedule = PIPE_1F1B,
                                   .micro_batch = optim_batch_complete(&r->batch).leaf};
    return pipe_recipe_check(&alone);
}

static gyre_status_t apply(const given_t *g, plan_for_t what, pipe_recipe_t *r)
{
    pipe_layout_t *l = &r->layout;
    const int own = of_trainer(g);
    resize_model(g, &r->model);
    r->model.z_loss = g->is[Z_LOSS] ? g->real[Z_LOSS] : r->model.z_loss;
    r->model.router_z = g->is[ROUTER_Z] ? g->real[ROUTER_Z] : r->model.router_z;
    l->dp = plan_given_count(g, DP, l->dp);
    l->tp = plan_given_count(g, TP, l->tp);
    l->cp = plan_given_count(g, CP, l->cp);
    l->ep = plan_given_count(g, EP, l->ep);
    l->pp = plan_given_count(g, PP, l->pp);
    l->chunks = plan_given_count(g, CHUNKS, l->chunks);
    l->micro_batch = plan_given_count(g, MICRO, l->micro_batch);
    l->zero = (int)plan_given_count(g, ZERO, (size_t)l->zero);
    l->sequence = (int)plan_given_count(g, SEQUENCE, (size_t)l->sequence);
    r->batch.leaf = plan_given_count(g, LEAF, r->batch.leaf);
    if (g->is[LEAF] && !g->is[MICRO]) /* the least that holds as many */
        l->micro_batch = (l->micro_batch + r->batch.leaf - 1) / r->batch.leaf * r->batch.leaf;
    r->batch.parts = plan_given_count(g, PARTS, r->batch.parts);
    r->batch.lanes = plan_given_count(g, LANES, r->batch.lanes);
    if (g->is[GLOBAL] || g->is[DP] || g->is[LEAF] || g->is[LANES]) {
        r->batch.batch = plan_given_count(g, GLOBAL, r->batch.batch);
        r->batch.groups = own && !g->is[GLOBAL] ? r->batch.groups : 0;
    }
    if (g->is[GLOBAL]) /* a constant one, as gyre-train takes it */
        r->optimizer.ramp_start = 0;
    r->batch.groups = plan_given_count(g, GROUPS, r->batch.groups);
    if (own && r->batch.batch && (g->is[GLOBAL] || !g->text[RECIPE])) /* not as many groups as ranks */
        r->batch = optim_batch_complete(&r->batch);
    r->per_node = plan_given_count(g, PER_NODE, r->per_node);
    if (r->nodes * r->per_node != l->tp * l->pp * pipe_layout_replicas(l))
        r->nodes = 0;
    plan_fit_leaves(&r->model, l->tp, l->ring ? 1 : pipe_layout_context(l));
    pipe_recipe_complete_for(r, g->is[KEEP], g->is[OFFLOAD]);
    gyre_status_t status = what == PLAN_FOR_SEARCH ? check_search(r) : pipe_recipe_check(r);
    if (status == GYRE_OK && own)
        status = optim_batch_check(&r->batch, what == PLAN_FOR_SEARCH ? 1 : l->dp);
    if (status == GYRE_OK) /* a rank has no more together than its share */
        l->micro_batch = base_min_size(l->micro_batch, pipe_layout_longest(l, &r->batch));
    return status;
}

int plan_row_recipe(const plan_question_t *q, const char *what, const char *const *name,
                    const char *const *value, size_t count, pipe_recipe_t *out)
{
    given_t given = {0};
    int code = PLAN_OK;
    for (size_t i = 0; code == PLAN_OK && i < count; i++)
        code = plan_given_column(what, name[i], value[i], &given);
    if (code != PLAN_OK)
        return code;
    *out = q->recipe;
    code = apply_names("time", &given, out);
    if (code == PLAN_OK && apply(&given, PLAN_FOR_TIME, out) != GYRE_OK)
        return plan_usage("time", "%s: a layout that does not work", what);
    return code;
}

static void standard(pipe_recipe_t *r)
{
    const model_config_t gpt2 = {.vocab = 50257, .seq = 1024, .layers = 12, .hidden = 768, .heads = 12};
    *r = (pipe_recipe_t){.name = "gpt2", .model = model_config_complete(&gpt2)};
    r->layout = (pipe_layout_t){.tp = 1, .pp = 1, .dp = 1, .schedule = PIPE_1F1B, .micro_batch = 1};
    pipe_recipe_complete(r);
}

/* "config.json" says nothing: such a file is called by its folder. */
static void name_model(const char *path, pipe_recipe_t *r)
{
    const char *end = path + strlen(path), *begin;
    const char *const tail[] = {"/config.json", ".json"};
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++) {
        const size_t length = strlen(tail[i]);
        if ((size_t)(end - path) > length && strncmp(end - length, tail[i], length) == 0)
            end -= length;
    }
    for (begin = end; begin > path && begin[-1] != '/';)
        begin--;
    snprintf(r->name, sizeof r->name, "%.*s", (int)(end - begin), begin);
}

/* The architecture of --model. Sequences are as long as --seq says, or the recipe; at most, and without both,
 * as long as its positions. */
static gyre_status_t read_model(const given_t *g, pipe_recipe_t *r)
{
    json_t *object = NULL;
    const size_t recipe = g->text[RECIPE] && !g->is[SEQ] ? r->model.seq : 0;
    gyre_status_t status = base_json_read(g->text[MODEL], &object);
    if (status == GYRE_OK)
        status = model_config_from_json(object, g->text[MODEL], plan_given_count(g, SEQ, 0), &r->model);
    if (status == GYRE_OK && recipe > 0 && recipe < r->model.seq)
        status = model_config_from_json(object, g->text[MODEL], recipe, &r->model);
    json_decref(object);
    if (status != GYRE_OK)
        return status;
    name_model(g->text[MODEL], r);
    r->objective = (pipe_objective_t){0}; /* its ids are those of the recipe's vocabulary */
    return GYRE_OK;
}

/* As all software but gyre-train does, whatever a recipe says of rounds and gradients. */
static void accumulate_in_place(optim_batch_t *batch)
{
    if (batch->lanes == 0 && batch->leaf <= 1)
        return;
    batch->lanes = batch->groups = 0;
    batch->leaf = 1;
}

/* ---- the machine --------------------------------------------------------------------------------------- */

static void apply_software(const given_t *g, plan_software_t *s)
{
    s->attention = g->is[ATTENTION] ? g->real[ATTENTION] : s->attention;
    s->host = g->is[HOST] ? g->real[HOST] / 1e3 : s->host;
    s->latency = g->is[LATENCY] ? g->real[LATENCY] / 1e6 : s->latency;
    s->step = g->is[STEP] ? g->real[STEP] / 1e3 : s->step;
    s->logit = g->is[LOGIT] ? g->real[LOGIT] : s->logit;
    s->kept = g->is[KEPT] ? g->real[KEPT] : s->kept;
    s->bucket = g->is[BUCKET] ? g->bytes : s->bucket;
    s->extra = g->is[EXTRA] ? (size_t)g->count[EXTRA] : s->extra;
}

static int apply_machine(const char *what, const given_t *g, plan_question_t *q)
{
    const char *name = g->text[MACHINE]           ? g->text[MACHINE]
                       : q->recipe.accelerator[0] ? q->recipe.accelerator
                                                  : NULL;
    const plan_machine_t *found = name ? plan_machine_find(name) : NULL;
    if (name && !found) {
        char all[160] = "";
        for (size_t i = 0; i < plan_machine_count; i++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "",
                     plan_machines[i].name);
        return plan_usage(what, "does not know the machine %s; there is: %s", name, all);
    }
    q->machine = found ? *found : *plan_machine_find("A100-80");
    plan_machine_t *m = &q->machine;
    q->have_machine = found || g->is[HBM];
    name = g->text[SOFTWARE] ? g->text[SOFTWARE] : plan_softwares[0].name;
    const plan_software_t *software = plan_software_find(name);
    if (!software) {
        char all[160] = "";
        for (size_t i = 0; i < plan_software_count; i++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "",
                     plan_softwares[i].name);
        return plan_usage(what, "does not know the software %s; there is: %s", name, all);
    }
    q->software = *software;
    plan_software_on(software, m);
    q->software.fp8 = g->text[PRODUCTS] && strcmp(g->text[PRODUCTS], "fp8") == 0;
    if (q->software.fp8 && m->peak8 <= 0.0)
        return plan_usage(
            what, "--products fp8: %s has no rate of fp8; take --products 16, or another --machine", m->name);
    m->reserve = g->is[RESERVE] ? g->real[RESERVE] * 1073741824.0 : m->reserve;
    m->peak = g->is[PEAK] ? g->real[PEAK] * 1e12 : m->peak;
    m->memory = g->is[HBM] ? g->real[HBM] * 1073741824.0 : m->memory;
    m->intra = g->is[INTRA] ? g->real[INTRA] * 1e9 : m->intra;
    m->inter = g->is[INTER] ? g->real[INTER] * 1e9 : m->inter;
    m->efficiency = g->is[EFFICIENCY] ? g->real[EFFICIENCY] : m->efficiency;
    m->overlap = g->is[OVERLAP] ? g->real[OVERLAP] : m->overlap;
    m->overhead = g->is[OVERHEAD] ? g->real[OVERHEAD] / 1e3 : m->overhead;
    m->bandwidth = g->is[BANDWIDTH] ? g->real[BANDWIDTH] * 1e9 : m->bandwidth;
    apply_software(g, &q->software);
    if (g->is[PER_NODE])
        m->per_node = (int)g->count[PER_NODE];
    else if (q->recipe.per_node && (!g->text[MACHINE] || !strcmp(m->name, q->recipe.accelerator)))
        m->per_node = (int)q->recipe.per_node;
    return PLAN_OK;
}

static int apply_fit(const char *what, const char *list, plan_question_t *q)
{
    for (const char *at = list; at && *at;) {
        char *end;
        unsigned long row = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || row < 1 || q->fits == PLAN_FIT)
            return plan_usage(what, "--fit wants up to 16 numbers of rows, as 1,5,9, not %s", list);
        q->fit[q->fits++] = row;
        at = *end ? end + 1 : end;
    }
    return PLAN_OK;
}

/* Bytes of gyre-train's buckets: as asked for, or its default. */
static size_t trainer_bucket(const given_t *g)
{
    train_config_t defaults;
    size_t bytes = g->is[BUCKET] ? g->bytes : 0;
    if (bytes > 0)
        return bytes;
    if (train_config_defaults(&defaults))
        bytes = defaults.bucket_bytes;
    train_config_free(&defaults);
    return bytes;
}

/* As gyre-train would with these flags. */
static gyre_status_t check_device(const given_t *g, const plan_question_t *q)
{
    const pipe_recipe_t *r = &q->recipe;
    char given[] = ""; /* whether, not what */
    const train_config_t run = {.device = q->own.device,
                                .threads = plan_given_count(g, THREADS, 0),
                                .sequence_parts = r->batch.parts,
                                .ep = r->layout.ep,
                                .matmul_type = q->own.matmul_bf16,
                                .optimizer = r->optimizer.muon,
                                .offload = g->is[OFFLOAD] ? given : NULL,
                                .freeze = g->is[FREEZE] ? given : NULL,
                                .lora = q->own.lora.rank};
    return train_config_check_device(&run);
}

/* Flags that only a run of gyre-train has. */
static int apply_trainer(const char *what, const given_t *g, plan_question_t *q)
{
    static const struct {
        int id;
        const char *name;
    } own[] = {{KEEP, "keep-weights"},  {OFFLOAD, "offload"}, {THREADS, "threads"},
               {MATMUL, "matmul-type"}, {DEVICE, "device"},   {AWAY, "offload-activations"},
               {FREEZE, "freeze"},      {Z_LOSS, "z-loss"},   {ROUTER_Z, "router-z-loss"}};
    const char *matmul = g->text[MATMUL] ? g->text[MATMUL] : "fp32";
    const char *device = g->text[DEVICE] ? g->text[DEVICE] : "cpu";
    if (strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
        return plan_usage(what, "--device is cpu or cuda, not %s", device);
    if (strcmp(matmul, "fp32") != 0 && strcmp(matmul, "bf16") != 0)
        return plan_usage(what, "--matmul-type is fp32 or bf16, not %s", matmul);
    q->trainer = of_trainer(g);
    q->own = (plan_trainer_t){.bucket_bytes = q->trainer ? trainer_bucket(g) : 0,
                              .keep = g->is[KEEP],
                              .offload = g->is[OFFLOAD],
                              .threads = plan_given_count(g, THREADS, 1),
                              .matmul_bf16 = strcmp(matmul, "bf16") == 0,
                              .device = strcmp(device, "cuda") == 0,
                              .away = g->is[AWAY],
                              .freeze = g->text[FREEZE],
                              .lora = {.rank = plan_given_count(g, LORA, 0), .on = g->text[LORA_ON]}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (g->is[own[i].id] && !q->trainer)
            return plan_usage(what, "--%s is of gyre-train, and needs --trainer", own[i].name);
    if (q->trainer && q->rows)
        return plan_usage(what, "--%s is of one run, and --rows are runs of other software: leave one out",
                          g->is[LORA] ? "lora" : "trainer");
    if (check_device(g, q) != GYRE_OK)
        return PLAN_USAGE;
    if (g->is[FREEZE] && g->is[LORA])
        return plan_usage(what,
                          "--lora and --freeze exclude each other: adapters leave all weights as they are");
    if (q->own.away && (!q->own.device || q->recipe.recompute != MODEL_RECOMPUTE_FULL))
        return plan_usage(what, "--offload-activations needs --device cuda and --recompute full");
    if (q->own.matmul_bf16 && q->recipe.precision.type != MODEL_BFLOAT16)
        return plan_usage(what, "--matmul-type bf16 needs --dtype bf16");
    if (g->text[LORA_ON] && !g->is[LORA])
        return plan_usage(what, "--lora-on needs --lora RANK");
    if (g->is[LORA] && q->recipe.optimizer.muon)
        return plan_usage(what, "--lora: adapters take AdamW: --optimizer adamw");
    if (g->is[OFFLOAD] && q->recipe.optimizer.muon)
        return plan_usage(what, "--optimizer muon and --offload exclude each other: take --optimizer adamw");
    return PLAN_OK;
}

int plan_question(int argc, char **argv, plan_for_t what, const char *help, plan_question_t *out)
{
    given_t given = {0};
    plan_question_t q = {.top = 10};
    char why[PIPE_LAYOUT_WHY];
    int code = plan_given_collect(argc, argv, what, help, &given);
    if (code != PLAN_OK)
        return code;
    standard(&q.recipe);
    if (!given.text[RECIPE]) /* by itself what gyre-train takes; a recipe says it */
        q.recipe.layout.micro_batch = 0;
    if (given.text[RECIPE] && pipe_recipe_load(given.text[RECIPE], &q.recipe) != GYRE_OK)
        return PLAN_FAILED;
    if (given.text[MODEL] && read_model(&given, &q.recipe) != GYRE_OK)
        return PLAN_FAILED;
    if (given.text[SCALE])
        q.recipe = pipe_recipe_tiny(&q.recipe);
    if (of_trainer(&given))
        take_own_defaults(&given, &q.recipe);
    else
        accumulate_in_place(&q.recipe.batch);
    code = apply_names(argv[0], &given, &q.recipe);
    if (code == PLAN_OK && apply(&given, what, &q.recipe) != GYRE_OK)
        code = PLAN_USAGE;
    if (code == PLAN_OK && of_trainer(&given) && what != PLAN_FOR_SEARCH &&
        !pipe_recipe_grows(&q.recipe, why))
        code = plan_usage(argv[0], "%s", why);
    if (code == PLAN_OK)
        code = apply_machine(argv[0], &given, &q);
    if (code == PLAN_OK)
        code = apply_fit(argv[0], given.text[FIT], &q);
    q.gpus = plan_given_count(&given, GPUS, q.recipe.layout.tp * q.recipe.layout.pp * q.recipe.layout.dp);
    q.top = plan_given_count(&given, TOP, q.top);
    q.one_schedule = given.text[SCHEDULE] != NULL;
    q.one_balance = given.text[BALANCE] != NULL;
    q.json = given.text[JSON];
    q.rows = given.text[ROWS];
    if (code == PLAN_OK)
        code = apply_trainer(argv[0], &given, &q);
    if (code == PLAN_OK && q.fits && !q.rows)
        code = plan_usage(argv[0], "--fit needs --rows FILE");
    static const int read[] = {RECIPE, MODEL, ROWS};
    char same[2 * PATH_MAX];
    for (size_t i = 0; i < sizeof read / sizeof *read && code == PLAN_OK; i++)
        if (!flags_apart("json", q.json, given.text[read[i]], same, sizeof same))
            code = plan_usage(argv[0], "%s", same);
    int err = code == PLAN_OK && q.json ? base_file_check(q.json) : 0;
    if (err) {
        fprintf(stderr, "gyre-plan %s: --json: cannot write %s: %s\n", argv[0], q.json, strerror(err));
        code = PLAN_FAILED;
    }
    flags_output(q.json);
    if (code == PLAN_OK)
        *out = q;
    return code;
}

int plan_fits(const plan_question_t *q, size_t bytes)
{
    return (double)bytes + q->machine.reserve <= q->machine.memory;
}

int plan_is_fitted(const plan_question_t *q, size_t row)
{
    for (size_t i = 0; i < q->fits; i++)
        if (q->fit[i] == row)
            return 1;
    return 0;
}
