/* tools/gyre-plan/recipe.c: one table of flags for the questions about recipes. */
#include "tools/gyre-plan/recipe.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text/json.h"
#include "pipeline/plan/search.h"
#include "tools/gyre-plan/plan.h"

static const char recipe_help[] =
    "Recipe (docs/planning.md has the files' keys); without --recipe: GPT-2, 124M, on one rank, fp32\n"
    "  --recipe FILE           a published run (examples/recipes/), or one of yours; flags win over it\n"
    "  --scale tiny            the same for 8 local ranks: every feature, small sizes\n"
    "  --layers N --hidden N --heads N --ffn N --vocab N --seq N\n"
    "                          another size of the model; key-value heads and the width of the MLP in\n"
    "                          proportion, unless given\n"
    "  --global-batch N --grad-sequences N --balance layers|embedding\n"
    "  --dtype fp32|bf16|fp16 --grad-dtype fp32|bf16|fp16\n";

static const char machine_help[] =
    "Machine\n"
    "  --machine NAME          V100-32 A100-40 A100-80 jean-zay H100 Ascend910 (default: the recipe's "
    "accelerator)\n"
    "  --peak TFLOPS --hbm GIB --per-node N\n"
    "                          its peak, memory and ranks per node\n"
    "  --intra GBS --inter GBS --efficiency PART --overhead MS --overlap PART\n"
    "                          bytes that a rank sends inside a node and to others (GB/s), the part of the "
    "peak that\n"
    "                          products achieve, milliseconds more per layer and micro-batch, the part of "
    "the\n"
    "                          messages between replicas that is hidden by computing\n";

static const char layout_help[] =
    "Layout\n"
    "  --dp N --tp N --pp N --schedule NAME --chunks N --zero 0..3 --sequence-parallel 0|1 --micro-batch N\n"
    "  --recompute none|selective|full\n"
    "                          other degrees, and so on; schedules:"
#define KIND(id, stem, name, ...) " " name
#include "pipeline/schedules/kinds.def"
#undef KIND
    "\n";

typedef enum { COUNT, REAL_, TEXT, CHOICE, SWITCH } kind_t;
typedef struct {
    const char *name;
    int id;
    kind_t kind;
    double low, high;
    int for_; /* bits of plan_for_t; 0: all */
} flag_t;

enum {
    RECIPE,
    SCALE,
    LAYERS,
    HIDDEN,
    HEADS,
    FFN,
    VOCAB,
    SEQ,
    DP,
    TP,
    PP,
    CHUNKS,
    SCHEDULE,
    BALANCE,
    ZERO,
    SEQUENCE,
    MICRO,
    GLOBAL,
    LEAF,
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
    BUCKET,
    EXTRA,
    TRAINER,
    RESERVE,
    JSON,
    ROWS,
    FIT,
    GPUS,
    TOP,
    FLAGS
};

static const flag_t flags[FLAGS] = {
    [RECIPE] = {"recipe", RECIPE, TEXT, 0, 0, 0},
    [SCALE] = {"scale", SCALE, CHOICE, 0, 0, 0},
    [LAYERS] = {"layers", LAYERS, COUNT, 1, 1e6, 0},
    [HIDDEN] = {"hidden", HIDDEN, COUNT, 1, 1e6, 0},
    [HEADS] = {"heads", HEADS, COUNT, 1, 1e6, 0},
    [FFN] = {"ffn", FFN, COUNT, 1, 1e6, 0},
    [VOCAB] = {"vocab", VOCAB, COUNT, 1, 1e6, 0},
    [SEQ] = {"seq", SEQ, COUNT, 1, 1e6, 0},
    [DP] = {"dp", DP, COUNT, 1, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [TP] = {"tp", TP, COUNT, 1, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [PP] = {"pp", PP, COUNT, 1, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [CHUNKS] = {"chunks", CHUNKS, COUNT, 1, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [SCHEDULE] = {"schedule", SCHEDULE, CHOICE, 0, 0, 0},
    [BALANCE] = {"balance", BALANCE, CHOICE, 0, 0, 0},
    [ZERO] = {"zero", ZERO, COUNT, 0, 3, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [SEQUENCE] = {"sequence-parallel", SEQUENCE, COUNT, 0, 1, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [MICRO] = {"micro-batch", MICRO, COUNT, 1, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [GLOBAL] = {"global-batch", GLOBAL, COUNT, 1, 1e9, 0},
    [LEAF] = {"grad-sequences", LEAF, COUNT, 1, 1048576, 0},
    [RECOMPUTE] = {"recompute", RECOMPUTE, CHOICE, 0, 0, PLAN_FOR_MEMORY | PLAN_FOR_TIME},
    [DTYPE] = {"dtype", DTYPE, CHOICE, 0, 0, 0},
    [GRAD] = {"grad-dtype", GRAD, CHOICE, 0, 0, 0},
    [MACHINE] = {"machine", MACHINE, CHOICE, 0, 0, 0},
    [PEAK] = {"peak", PEAK, REAL_, 1e-6, 1e9, 0},
    [HBM] = {"hbm", HBM, REAL_, 1e-3, 1e6, 0},
    [PER_NODE] = {"per-node", PER_NODE, COUNT, 1, 1e6, 0},
    [INTRA] = {"intra", INTRA, REAL_, 1e-6, 1e9, 0},
    [INTER] = {"inter", INTER, REAL_, 1e-6, 1e9, 0},
    [EFFICIENCY] = {"efficiency", EFFICIENCY, REAL_, 1e-6, 1, 0},
    [OVERHEAD] = {"overhead", OVERHEAD, REAL_, 0, 1e6, 0},
    [OVERLAP] = {"overlap", OVERLAP, REAL_, 0, 1, 0},
    [BUCKET] = {"bucket-bytes", BUCKET, COUNT, 0, 1e15, PLAN_FOR_MEMORY | PLAN_FOR_SEARCH},
    [EXTRA] = {"extra", EXTRA, COUNT, 0, 64, PLAN_FOR_MEMORY | PLAN_FOR_SEARCH},
    [TRAINER] = {"trainer", TRAINER, SWITCH, 0, 0, PLAN_FOR_MEMORY},
    [RESERVE] = {"reserve", RESERVE, REAL_, 0, 1e6, PLAN_FOR_MEMORY | PLAN_FOR_SEARCH},
    [JSON] = {"json", JSON, TEXT, 0, 0, 0},
    [ROWS] = {"rows", ROWS, TEXT, 0, 0, PLAN_FOR_TIME | PLAN_FOR_MEMORY},
    [FIT] = {"fit", FIT, TEXT, 0, 0, PLAN_FOR_TIME | PLAN_FOR_MEMORY},
    [GPUS] = {"gpus", GPUS, COUNT, 1, 1e6, PLAN_FOR_SEARCH},
    [TOP] = {"top", TOP, COUNT, 1, 1e4, PLAN_FOR_SEARCH},
};

static int usage(const char *what, const char *format, const char *a, const char *b)
{
    fprintf(stderr, "gyre-plan %s: ", what);
    fprintf(stderr, format, a, b);
    fprintf(stderr, "; see gyre-plan %s --help\n", what);
    return PLAN_USAGE;
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *text[FLAGS]; /* NULL: not given */
    double number[FLAGS];
} given_t;

static int number(const flag_t *flag, const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && !*end && !errno && *out >= flag->low && *out <= flag->high &&
           (flag->kind != COUNT || *out == floor(*out));
}

/* The flag of this name, with - or _; NULL: there is none for this question. */
static const flag_t *find_flag(const char *name, size_t length, int what)
{
    for (size_t f = 0; f < FLAGS; f++) {
        size_t i = 0;
        while (i < length && (name[i] == flags[f].name[i] || (name[i] == '_' && flags[f].name[i] == '-')))
            i++;
        if (i == length && !flags[f].name[i] && (!flags[f].for_ || (flags[f].for_ & what)))
            return &flags[f];
    }
    return NULL;
}

static int take(const char *what, const flag_t *flag, const char *value, given_t *given)
{
    if ((flag->kind == COUNT || flag->kind == REAL_) && !number(flag, value, &given->number[flag->id])) {
        char range[64];
        snprintf(range, sizeof range, "%s, %g to %g", flag->kind == COUNT ? "a whole number" : "a number",
                 flag->low, flag->high);
        return usage(what, "--%s wants %s", flag->name, range);
    }
    given->text[flag->id] = value;
    return PLAN_OK;
}

static int collect(int argc, char **argv, plan_for_t what, const char *help, given_t *given)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!strcmp(arg, "-h") || !strcmp(arg, "--help")) {
            fputs(help, stdout);
            fputs(recipe_help, stdout);
            if (what != PLAN_FOR_SEARCH)
                fputs(layout_help, stdout);
            fputs(machine_help, stdout);
            return -1;
        }
        if (strncmp(arg, "--", 2) != 0)
            return usage(argv[0], "does not know what \"%s\" is for%s", arg, "");
        const char *equals = strchr(arg, '=');
        const flag_t *flag =
            find_flag(arg + 2, equals ? (size_t)(equals - arg - 2) : strlen(arg + 2), (int)what);
        if (!flag)
            return usage(argv[0], "there is no flag %s%s", arg, "");
        if (flag->kind == SWITCH && equals)
            return usage(argv[0], "--%s takes no value%s", flag->name, "");
        const char *value = equals ? equals + 1 : flag->kind == SWITCH ? "" : i + 1 < argc ? argv[++i] : NULL;
        if (!value)
            return usage(argv[0], "--%s wants a value%s", flag->name, "");
        int code = take(argv[0], flag, value, given);
        if (code != PLAN_OK)
            return code;
    }
    return PLAN_OK;
}

static size_t count_of(const given_t *given, int id, size_t otherwise)
{
    return given->text[id] ? (size_t)given->number[id] : otherwise;
}

/* ---- the model and the layout --------------------------------------------------------------------------------------- */

static void resize_model(const given_t *g, model_config_t *c)
{
    const size_t hidden = c->hidden, heads = c->heads, groups = c->heads / c->kv_heads;
    c->layers = count_of(g, LAYERS, c->layers);
    c->hidden = count_of(g, HIDDEN, c->hidden);
    c->heads = count_of(g, HEADS, c->heads);
    c->seq = count_of(g, SEQ, c->seq);
    c->ffn = count_of(g, FFN, (size_t)llround((double)c->ffn * (double)c->hidden / (double)hidden));
    if (c->hidden != hidden || c->heads != heads) {
        double part = (double)c->rotary_dim / (double)c->head_dim;
        c->head_dim = c->heads <= c->hidden && c->hidden % c->heads == 0 ? c->hidden / c->heads : 0;
        c->rotary_dim = 2 * base_max_size(1, (size_t)llround(part * (double)c->head_dim / 2));
        c->kv_heads = c->heads % groups == 0 ? c->heads / groups : c->heads;
    }
    if (g->text[VOCAB])
        c->vocab = c->vocab_padded = (size_t)g->number[VOCAB];
}

static int apply_names(const char *what, const given_t *g, pipe_recipe_t *r)
{
    if (g->text[SCHEDULE]) {
        if (pipe_kind_parse(g->text[SCHEDULE], &r->layout.schedule) != GYRE_OK)
            return PLAN_USAGE;
        if (!g->text[CHUNKS])
            r->layout.chunks = 0;
    }
    if (g->text[BALANCE]) {
        r->layout.balance = !strcmp(g->text[BALANCE], "embedding");
        if (!r->layout.balance && strcmp(g->text[BALANCE], "layers") != 0)
            return usage(what, "--balance is layers or embedding, not %s%s", g->text[BALANCE], "");
    }
    if (g->text[RECOMPUTE] && !pipe_recompute_parse(g->text[RECOMPUTE], &r->recompute))
        return usage(what, "--recompute is none, selective or full, not %s%s", g->text[RECOMPUTE], "");
    if (g->text[DTYPE] && !pipe_precision_parse(g->text[DTYPE], &r->precision.type))
        return usage(what, "--dtype is fp32, bf16 or fp16, not %s%s", g->text[DTYPE], "");
    if (g->text[GRAD] && !pipe_precision_parse(g->text[GRAD], &r->precision.grad))
        return usage(what, "--grad-dtype is fp32, bf16 or fp16, not %s%s", g->text[GRAD], "");
    if (r->precision.grad != r->precision.type && r->precision.grad != MODEL_FLOAT32) {
        if (g->text[GRAD])
            return usage(what, "gradients are %s or fp32, not %s", pipe_precision_name(r->precision.type),
                         g->text[GRAD]);
        r->precision.grad = r->precision.type;
    }
    return PLAN_OK;
}

static gyre_status_t apply(const given_t *g, pipe_recipe_t *r)
{
    pipe_layout_t *l = &r->layout;
    resize_model(g, &r->model);
    l->dp = count_of(g, DP, l->dp);
    l->tp = count_of(g, TP, l->tp);
    l->pp = count_of(g, PP, l->pp);
    l->chunks = count_of(g, CHUNKS, l->chunks);
    l->micro_batch = count_of(g, MICRO, l->micro_batch);
    l->zero = (int)count_of(g, ZERO, (size_t)l->zero);
    l->sequence = (int)count_of(g, SEQUENCE, (size_t)l->sequence);
    r->batch.leaf = count_of(g, LEAF, r->batch.leaf);
    if (g->text[LEAF] && !g->text[MICRO]) /* the least that holds as many */
        l->micro_batch = (l->micro_batch + r->batch.leaf - 1) / r->batch.leaf * r->batch.leaf;
    if (g->text[GLOBAL] || g->text[DP] || g->text[LEAF]) {
        r->batch.batch = count_of(g, GLOBAL, r->batch.batch);
        r->batch.groups = 0;
    }
    r->per_node = count_of(g, PER_NODE, r->per_node);
    if (r->nodes * r->per_node != l->tp * l->pp * l->dp)
        r->nodes = 0;
    plan_fit_leaves(&r->model, l->tp);
    pipe_recipe_complete(r);
    return pipe_recipe_check(r);
}

int plan_row_recipe(const plan_question_t *q, const char *what, const char *const *name,
                    const char *const *value, size_t count, pipe_recipe_t *out)
{
    given_t given = {0};
    for (size_t i = 0; i < count; i++) {
        const flag_t *flag = find_flag(name[i], strlen(name[i]), PLAN_FOR_TIME);
        if (!flag || flag->id == RECIPE || flag->id >= MACHINE)
            return usage("time", "%s: there is no column %s", what, name[i]);
        int code = take("time", flag, value[i], &given);
        if (code != PLAN_OK)
            return code;
    }
    *out = q->recipe;
    int code = apply_names("time", &given, out);
    if (code == PLAN_OK && apply(&given, out) != GYRE_OK)
        code = PLAN_USAGE;
    return code;
}

static void standard(pipe_recipe_t *r)
{
    const model_config_t gpt2 = {.vocab = 50257, .seq = 1024, .layers = 12, .hidden = 768, .heads = 12};
    *r = (pipe_recipe_t){.name = "gpt2", .model = model_config_complete(&gpt2)};
    r->layout = (pipe_layout_t){.tp = 1, .pp = 1, .dp = 1, .schedule = PIPE_1F1B, .micro_batch = 1};
    pipe_recipe_complete(r);
}

/* ---- the machine ---------------------------------------------------------------------------------------------------- */

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
        return usage(what, "does not know the machine %s; there is: %s", name, all);
    }
    q->machine = found ? *found : *plan_machine_find("A100-80");
    plan_machine_t *m = &q->machine;
    q->have_machine = found || g->text[HBM];
    m->reserve = g->text[RESERVE] ? g->number[RESERVE] * 1073741824.0 : m->reserve;
    m->peak = g->text[PEAK] ? g->number[PEAK] * 1e12 : m->peak;
    m->memory = g->text[HBM] ? g->number[HBM] * 1073741824.0 : m->memory;
    m->intra = g->text[INTRA] ? g->number[INTRA] * 1e9 : m->intra;
    m->inter = g->text[INTER] ? g->number[INTER] * 1e9 : m->inter;
    m->efficiency = g->text[EFFICIENCY] ? g->number[EFFICIENCY] : m->efficiency;
    m->overlap = g->text[OVERLAP] ? g->number[OVERLAP] : m->overlap;
    m->overhead = g->text[OVERHEAD] ? g->number[OVERHEAD] / 1e3 : m->overhead;
    if (g->text[PER_NODE])
        m->per_node = (int)g->number[PER_NODE];
    else if (q->recipe.per_node)
        m->per_node = (int)q->recipe.per_node;
    return PLAN_OK;
}

static int apply_fit(const char *what, const char *list, plan_question_t *q)
{
    for (const char *at = list; at && *at;) {
        char *end;
        unsigned long row = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || row < 1 || q->fits == PLAN_FIT)
            return usage(what, "--fit wants up to 16 numbers of rows, as 1,5,9, not %s%s", list, "");
        q->fit[q->fits++] = row;
        at = *end ? end + 1 : end;
    }
    return PLAN_OK;
}

int plan_question(int argc, char **argv, plan_for_t what, const char *help, plan_question_t *out)
{
    given_t given = {0};
    plan_question_t q = {.memory = {.bucket = 25u << 20}, .top = 10};
    int code = collect(argc, argv, what, help, &given);
    if (code != PLAN_OK)
        return code;
    standard(&q.recipe);
    if (!given.text[RECIPE]) /* by itself what gyre-train takes; a recipe says it */
        q.recipe.layout.micro_batch = 0;
    if (given.text[RECIPE] && pipe_recipe_load(given.text[RECIPE], &q.recipe) != GYRE_OK)
        return PLAN_FAILED;
    if (given.text[SCALE]) {
        if (strcmp(given.text[SCALE], "tiny") != 0)
            return usage(argv[0], "--scale is tiny, not %s%s", given.text[SCALE], "");
        q.recipe = pipe_recipe_tiny(&q.recipe);
    }
    code = apply_names(argv[0], &given, &q.recipe);
    if (code == PLAN_OK && apply(&given, &q.recipe) != GYRE_OK)
        code = PLAN_USAGE;
    if (code == PLAN_OK)
        code = apply_machine(argv[0], &given, &q);
    if (code == PLAN_OK)
        code = apply_fit(argv[0], given.text[FIT], &q);
    q.memory.bucket = count_of(&given, BUCKET, q.memory.bucket);
    q.memory.extra = count_of(&given, EXTRA, 0);
    q.gpus = count_of(&given, GPUS, q.recipe.layout.tp * q.recipe.layout.pp * q.recipe.layout.dp);
    q.top = count_of(&given, TOP, q.top);
    q.trainer = given.text[TRAINER] != NULL;
    q.one_schedule = given.text[SCHEDULE] != NULL;
    q.json = given.text[JSON];
    q.rows = given.text[ROWS];
    if (code == PLAN_OK && q.fits && !q.rows)
        code = usage(argv[0], "--fit needs --rows FILE%s%s", "", "");
    int err = code == PLAN_OK && q.json ? base_file_check(q.json) : 0;
    if (err) {
        fprintf(stderr, "gyre-plan %s: --json: cannot write %s: %s\n", argv[0], q.json, strerror(err));
        code = PLAN_FAILED;
    }
    if (code == PLAN_OK)
        *out = q;
    return code;
}

/* ---- output --------------------------------------------------------------------------------------------------------- */

void plan_print_recipe(const pipe_recipe_t *r, const plan_base_t *base)
{
    const pipe_layout_t *l = &r->layout;
    size_t active = model_count_active(&base->count), total = model_count_total(&base->count);
    printf("%s: %zu parameters", r->name, total);
    if (active != total)
        printf(" (%zu meet a token)", active);
    printf(", %zu layers, hidden %zu, %zu heads, sequences of %zu\n", r->model.layers, r->model.hidden,
           r->model.heads, r->model.seq);
    printf("%zu ranks: tp %zu%s x pp %zu (%s", l->tp * l->pp * l->dp, l->tp,
           l->sequence ? " with sequence" : "", l->pp, pipe_kind_name(l->schedule));
    if (l->chunks > 1)
        printf(", %zu chunks", l->chunks);
    printf(") x dp %zu, ZeRO %d; %zu sequences in micro-batches of %zu, ", l->dp, l->zero, r->batch.batch,
           l->micro_batch);
    if (r->batch.leaf > 1)
        printf("%zu to a gradient, ", r->batch.leaf);
    printf("recompute %s, %s, gradients %s\n", pipe_recompute_name(r->recompute),
           pipe_precision_name(r->precision.type), pipe_precision_name(r->precision.grad));
}

json_t *plan_json_recipe(const pipe_recipe_t *r, const plan_base_t *base)
{
    const pipe_layout_t *l = &r->layout;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:s, s:s, s:s}",
        "version", GYRE_VERSION, "recipe", r->name, "parameters", (json_int_t)model_count_total(&base->count),
        "active_parameters", (json_int_t)model_count_active(&base->count), "dp", (json_int_t)l->dp, "tp",
        (json_int_t)l->tp, "pp", (json_int_t)l->pp, "chunks", (json_int_t)l->chunks, "schedule",
        pipe_kind_name(l->schedule), "zero", l->zero, "sequence_parallel", l->sequence, "micro_batch",
        (json_int_t)l->micro_batch, "micro_batches", (json_int_t)base->micro_batches, "global_batch",
        (json_int_t)r->batch.batch, "grad_sequences", (json_int_t)optim_batch_complete(&r->batch).leaf,
        "recompute", pipe_recompute_name(r->recompute), "dtype", pipe_precision_name(r->precision.type),
        "grad_dtype", pipe_precision_name(r->precision.grad));
}

int plan_json_write(const plan_question_t *q, json_t *root)
{
    gyre_status_t status = GYRE_OK;
    if (q->json)
        status = root ? base_json_write(q->json, root)
                      : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the results");
    json_decref(root);
    return status == GYRE_OK ? PLAN_OK : PLAN_FAILED;
}
