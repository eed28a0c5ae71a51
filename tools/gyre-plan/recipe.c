/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe.c: one table of flags for the questions about recipes. */
#include "tools/gyre-plan/recipe.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text/json.h"
#include "pipeline/plan/choices.h"
#include "pipeline/plan/search.h"
#include "tools/gyre-plan/plan.h"
#include "tools/shared/flags.h"

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
    CP,
    EP,
    RING,
    PP,
    CHUNKS,
    SCHEDULE,
    BALANCE,
    ZERO,
    SEQUENCE,
    MICRO,
    GLOBAL,
    LEAF,
    PARTS,
    LANES,
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
    BANDWIDTH,
    SOFTWARE,
    ATTENTION,
    HOST,
    LATENCY,
    STEP,
    LOGIT,
    KEPT,
    BUCKET,
    EXTRA,
    TRAINER,
    LORA,
    OPTIMIZER,
    LORA_ON,
    RESERVE,
    JSON,
    ROWS,
    FIT,
    GPUS,
    TOP,
    FLAGS
};

/* What was given; each row of the table writes to its place. */
typedef struct {
    int is[FLAGS];
    const char *text[FLAGS]; /* of TEXT and WORD; NULL: not given */
    uint64_t count[FLAGS];   /* of COUNT */
    double real[FLAGS];      /* of REAL */
    size_t bytes;            /* of BUCKET */
} given_t;

#define RUN    (PLAN_FOR_MEMORY | PLAN_FOR_TIME)
#define TIME   (PLAN_FOR_TIME | PLAN_FOR_SEARCH)
#define MEMORY (PLAN_FOR_MEMORY | PLAN_FOR_SEARCH)
#define SIZES  1e6

#define KIND(id, stem, name, ...) " " name
static const char schedules[] = "one of"
#include "pipeline/schedules/kinds.def"
    ;
#undef KIND

static const struct {
    int id, for_; /* for_: bits of plan_for_t; 0: all */
    flag_t flag;
} table[] = {
    {TRAINER,
     PLAN_FOR_MEMORY,
     {FLAG(0, "trainer", SWITCH, NULL, NULL,
           "also prints what gyre-train itself will hold of weights and optimizer state: with\n"
           "the sums over a rank's sequences that keep results the same in every layout")}},
    {LORA,
     PLAN_FOR_MEMORY,
     {FLAG(0, "lora", COUNT, NULL, "RANK",
           "a run that trains adapters of this rank alone; with the table of --trainer"),
      .low = 1, .high = SIZES}},
    {OPTIMIZER,
     MEMORY,
     {FLAG(0, "optimizer", TEXT, NULL, "adamw|muon", "muon: one moment of the layers' matrices")}},
    {LORA_ON, PLAN_FOR_MEMORY, {FLAG(0, "lora-on", TEXT, NULL, "PATTERN,...", "weights that have them")}},
    {ROWS,
     PLAN_FOR_TIME,
     {FLAG(0, "rows", TEXT, NULL, "TABLE",
           "measured runs (docs/data/bloom-sweep.txt is one): a line of column names, which\n"
           "are flags without --, and seconds, tflops; a line per run")}},
    {ROWS,
     PLAN_FOR_MEMORY,
     {FLAG(0, "rows", TEXT, NULL, "TABLE",
           "measured runs, as of gyre-plan time --rows; column memory is GB per rank, -1\n"
           "where a run was out of memory; prints the estimate of each next to it")}},
    {FIT,
     PLAN_FOR_TIME,
     {FLAG(0, "fit", TEXT, NULL, "ROW,...",
           "first fits efficiency, intra and overhead to these rows; errors are then of the\n"
           "others")}},
    {FIT,
     PLAN_FOR_MEMORY,
     {FLAG(0, "fit", TEXT, NULL, "ROW,...",
           "first sets --reserve to what is between estimate and measurement in the middle\n"
           "of these rows; errors are then of the others")}},
    {GPUS,
     PLAN_FOR_SEARCH,
     {FLAG(0, "gpus", COUNT, NULL, "N", "accelerators (default: the recipe's)"), .low = 1, .high = SIZES}},
    {TOP,
     PLAN_FOR_SEARCH,
     {FLAG(0, "top", COUNT, NULL, "N", "layouts to print (default 10)"), .low = 1, .high = 1e4}},
    {BUCKET,
     MEMORY,
     {FLAG(0, "bucket-bytes", SIZE, NULL, "SIZE", "of a gradient bucket (default 25M)"), .high = 1e15}},
    {RESERVE,
     MEMORY,
     {FLAG(0, "reserve", REAL, NULL, "GIB",
           "what driver, libraries and allocator take (default: the machine's)"),
      .high = 1e6}},
    {EXTRA,
     MEMORY,
     {FLAG(0, "extra", COUNT, NULL, "N",
           "further bytes per parameter of the software (default 0; DeepSpeed's BF16\n"
           "optimizer: 2)"),
      .high = 64}},
    {JSON, 0, {FLAG(0, "json", TEXT, NULL, "FILE", "also writes all of it there; - is standard output")}},
    {FLAGS,
     0,
     {.kind = FLAG_HEADING,
      .help =
          "Recipe (docs/planning.md has the files' keys); without --recipe: GPT-2, 124M, on one rank, fp32"}},
    {RECIPE,
     0,
     {FLAG(0, "recipe", TEXT, NULL, "FILE",
           "a published run (examples/recipes/), or one of yours; options win over it")}},
    {SCALE,
     0,
     {FLAG(0, "scale", WORD, NULL, "tiny", "the same for 8 local ranks: every feature, small sizes")}},
    {LAYERS,
     0,
     {FLAG(0, "layers", COUNT, NULL, "N", "layers of another size of the model"), .low = 1, .high = SIZES}},
    {HIDDEN, 0, {FLAG(0, "hidden", COUNT, NULL, "N", "channels"), .low = 1, .high = SIZES}},
    {HEADS,
     0,
     {FLAG(0, "heads", COUNT, NULL, "N", "attention heads; key-value heads in proportion"), .low = 1,
      .high = SIZES}},
    {FFN,
     0,
     {FLAG(0, "ffn", COUNT, NULL, "N", "width of the MLP (default: in proportion)"), .low = 1,
      .high = SIZES}},
    {VOCAB, 0, {FLAG(0, "vocab", COUNT, NULL, "N", "token ids"), .low = 1, .high = SIZES}},
    {SEQ, 0, {FLAG(0, "seq", COUNT, NULL, "N", "tokens of a sequence"), .low = 1, .high = SIZES}},
    {GLOBAL, 0, {FLAG(0, "global-batch", COUNT, NULL, "N", "sequences of a step"), .low = 1, .high = 1e9}},
    {LEAF,
     0,
     {FLAG(0, "grad-sequences", COUNT, NULL, "N", "sequences that one gradient sums up"), .low = 1,
      .high = 1048576}},
    {PARTS,
     0,
     {FLAG(0, "sequence-parts", COUNT, NULL, "N", "parts of a sequence with a gradient each"), .low = 1,
      .high = MODEL_SEQUENCE_PARTS}},
    {LANES,
     0,
     {FLAG(0, "lanes", COUNT, NULL, "N", "gradients per round of accumulation; 0: the batch is one round"),
      .high = 1048576}},
    {BALANCE,
     0,
     {FLAG(0, "balance", WORD, NULL, "layers|embedding",
           "embedding: it and the head count as a layer each")}},
    {DTYPE,
     0,
     {FLAG(0, "dtype", TEXT, NULL, "fp32|bf16|fp16", "type of weights and activations in products")}},
    {GRAD, 0, {FLAG(0, "grad-dtype", TEXT, NULL, "fp32|bf16|fp16", "type of gradients: this one or fp32")}},
    {FLAGS, RUN, {.kind = FLAG_HEADING, .help = "Layout: other degrees, and so on"}},
    {DP, RUN, {FLAG(0, "dp", COUNT, NULL, "N", "replicas"), .low = 1, .high = SIZES}},
    {TP, RUN, {FLAG(0, "tp", COUNT, NULL, "N", "ranks that share a layer"), .low = 1, .high = SIZES}},
    {CP,
     RUN,
     {FLAG(0, "cp", COUNT, NULL, "N", "ranks that share each sequence; divides --sequence-parts"), .low = 1,
      .high = MODEL_SEQUENCE_PARTS}},
    {RING, 0, {FLAG(0, "cp-attention", WORD, NULL, "heads|ring", "how --cp ranks share attention")}},
    {EP,
     RUN,
     {FLAG(0, "ep", COUNT, NULL, "N", "replicas that share the experts; divides --dp"), .low = 1,
      .high = SIZES}},
    {PP, RUN, {FLAG(0, "pp", COUNT, NULL, "N", "stages of the pipeline"), .low = 1, .high = SIZES}},
    {SCHEDULE, RUN, {FLAG(0, "schedule", TEXT, NULL, "NAME", schedules)}},
    {SCHEDULE,
     PLAN_FOR_SEARCH,
     {FLAG(0, "schedule", TEXT, NULL, "NAME", "only this schedule; gyre-plan time --help has the names")}},
    {CHUNKS, RUN, {FLAG(0, "chunks", COUNT, NULL, "N", "stages per rank"), .low = 1, .high = SIZES}},
    {ZERO, RUN, {FLAG(0, "zero", COUNT, NULL, "0..3", "ZeRO stage"), .high = 3}},
    {SEQUENCE,
     RUN,
     {FLAG(0, "sequence-parallel", COUNT, NULL, "0|1", "1: ranks that share a layer share sequences, too"),
      .high = 1}},
    {MICRO,
     RUN,
     {FLAG(0, "micro-batch", COUNT, NULL, "N", "sequences of a micro-batch"), .low = 1, .high = SIZES}},
    {RECOMPUTE,
     RUN,
     {FLAG(0, "recompute", TEXT, NULL, "none|selective|full", "activations that backward computes again")}},
    {FLAGS, 0, {.kind = FLAG_HEADING, .help = "Machine"}},
    {MACHINE,
     0,
     {FLAG(0, "machine", TEXT, NULL, "NAME",
           "V100-32 A100-40 A100-80 jean-zay H100 Ascend910 (default: the recipe's\n"
           "accelerator)")}},
    {PEAK, TIME, {FLAG(0, "peak", REAL, NULL, "TFLOPS", "its peak"), .low = 1e-6, .high = 1e9}},
    {HBM, 0, {FLAG(0, "hbm", REAL, NULL, "GIB", "its memory"), .low = 1e-3, .high = 1e6}},
    {PER_NODE, 0, {FLAG(0, "per-node", COUNT, NULL, "N", "ranks per node"), .low = 1, .high = SIZES}},
    {INTRA,
     TIME,
     {FLAG(0, "intra", REAL, NULL, "GBS", "bytes that a rank sends inside a node (GB/s)"), .low = 1e-6,
      .high = 1e9}},
    {INTER,
     TIME,
     {FLAG(0, "inter", REAL, NULL, "GBS", "the same, to other nodes"), .low = 1e-6, .high = 1e9}},
    {EFFICIENCY,
     TIME,
     {FLAG(0, "efficiency", REAL, NULL, "PART", "part of the peak that products achieve"), .low = 1e-6,
      .high = 1}},
    {OVERHEAD,
     TIME,
     {FLAG(0, "overhead", REAL, NULL, "MS", "milliseconds more per layer and micro-batch"), .high = 1e6}},
    {OVERLAP,
     TIME,
     {FLAG(0, "overlap", REAL, NULL, "PART",
           "part of the messages between replicas that is hidden by computing"),
      .high = 1}},
    {BANDWIDTH,
     TIME,
     {FLAG(0, "bandwidth", REAL, NULL, "GBS", "what its memory reads and writes (GB/s)"), .low = 1e-6,
      .high = 1e9}},
    {FLAGS, 0, {.kind = FLAG_HEADING, .help = "Software"}},
    {SOFTWARE,
     0,
     {FLAG(0, "software", TEXT, NULL, "NAME",
           "what it makes of the machine: megatron (default) nanotron fsdp\n"
           "megatron-deepspeed internevo (docs/planning.md)")}},
    {ATTENTION,
     TIME,
     {FLAG(0, "attention", REAL, NULL, "PART", "rate of attention's products, over that of other products"),
      .low = 1e-3, .high = 1e3}},
    {HOST,
     TIME,
     {FLAG(0, "host", REAL, NULL, "MS",
           "milliseconds in which the host launches a layer's forward and backward"),
      .high = 1e6}},
    {LATENCY,
     TIME,
     {FLAG(0, "latency", REAL, NULL, "US", "microseconds more of each tensor-parallel collective"),
      .high = 1e9}},
    {STEP, TIME, {FLAG(0, "step", REAL, NULL, "MS", "milliseconds more per step"), .high = 1e9}},
    {LOGIT,
     MEMORY,
     {FLAG(0, "logit-bytes", REAL, NULL, "N", "bytes that each logit takes at the peak"), .high = 64}},
    {KEPT,
     MEMORY,
     {FLAG(0, "activations", REAL, NULL, "X", "activations, times those of the formulas"), .low = 0.1,
      .high = 10}},
};
enum { ROWS_MOST = sizeof table / sizeof *table };

/* The rows for a question, pointing into `given`. Returns how many; id: [ROWS_MOST], which flag each row
 * is. */
static size_t rows_for(int what, given_t *given, flag_t *row, int *id)
{
    size_t rows = 0;
    for (size_t i = 0; i < ROWS_MOST; i++) {
        const int at = table[i].id;
        if (table[i].for_ && !(table[i].for_ & what))
            continue;
        row[rows] = table[i].flag;
        id[rows] = at;
        if (at < FLAGS) {
            row[rows].given = &given->is[at];
            row[rows].to = table[i].flag.kind == FLAG_COUNT    ? (void *)&given->count[at]
                           : table[i].flag.kind == FLAG_REAL   ? (void *)&given->real[at]
                           : table[i].flag.kind == FLAG_SIZE   ? (void *)&given->bytes
                           : table[i].flag.kind == FLAG_SWITCH ? NULL
                                                               : (void *)&given->text[at];
        }
        rows++;
    }
    return rows;
}

static int usage(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int usage(const char *what, const char *format, ...)
{
    char program[40], text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(program, sizeof program, "gyre-plan %s", what);
    return flags_wrong(program, "%s", text);
}

/* PLAN_OK, PLAN_USAGE, or -1: help was printed. */
static int collect(int argc, char **argv, plan_for_t what, const char *help, given_t *given)
{
    flag_t row[ROWS_MOST];
    int id[ROWS_MOST];
    char program[40];
    snprintf(program, sizeof program, "gyre-plan %s", argv[0]);
    const flags_t flags = {
        .program = program, .usage = help, .flag = row, .count = rows_for((int)what, given, row, id)};
    int done = flags_take(&flags, argc, argv, NULL);
    return done < 0 ? PLAN_OK : done == 0 ? -1 : PLAN_USAGE;
}

static size_t count_of(const given_t *given, int id, size_t otherwise)
{
    return given->is[id] ? (size_t)given->count[id] : otherwise;
}

/* ---- the model and the layout -------------------------------------------------------------------------- */

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
    c->vocab = count_of(g, VOCAB, c->vocab);
    c->vocab_padded = count_of(g, VOCAB, c->vocab_padded);
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
        return usage(what, "--recompute is none, selective or full, not %s", g->text[RECOMPUTE]);
    if (g->text[OPTIMIZER] && !pipe_word_parse(pipe_optimizer_words, g->text[OPTIMIZER], &r->optimizer.muon))
        return usage(what, "--optimizer is adamw or muon, not %s", g->text[OPTIMIZER]);
    if (g->text[DTYPE] && !pipe_precision_parse(g->text[DTYPE], &r->precision.type))
        return usage(what, "--dtype is fp32, bf16 or fp16, not %s", g->text[DTYPE]);
    if (g->text[GRAD] && !pipe_precision_parse(g->text[GRAD], &r->precision.grad))
        return usage(what, "--grad-dtype is fp32, bf16 or fp16, not %s", g->text[GRAD]);
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
    l->cp = count_of(g, CP, l->cp);
    l->ep = count_of(g, EP, l->ep);
    l->pp = count_of(g, PP, l->pp);
    l->chunks = count_of(g, CHUNKS, l->chunks);
    l->micro_batch = count_of(g, MICRO, l->micro_batch);
    l->zero = (int)count_of(g, ZERO, (size_t)l->zero);
    l->sequence = (int)count_of(g, SEQUENCE, (size_t)l->sequence);
    r->batch.leaf = count_of(g, LEAF, r->batch.leaf);
    if (g->is[LEAF] && !g->is[MICRO]) /* the least that holds as many */
        l->micro_batch = (l->micro_batch + r->batch.leaf - 1) / r->batch.leaf * r->batch.leaf;
    r->batch.parts = count_of(g, PARTS, r->batch.parts);
    r->batch.lanes = count_of(g, LANES, r->batch.lanes);
    if (g->is[GLOBAL] || g->is[DP] || g->is[LEAF] || g->is[LANES]) {
        r->batch.batch = count_of(g, GLOBAL, r->batch.batch);
        r->batch.groups = 0;
    }
    r->per_node = count_of(g, PER_NODE, r->per_node);
    if (r->nodes * r->per_node != l->tp * l->pp * pipe_layout_replicas(l))
        r->nodes = 0;
    plan_fit_leaves(&r->model, l->tp, l->ring ? 1 : pipe_layout_context(l));
    pipe_recipe_complete(r);
    return pipe_recipe_check(r);
}

int plan_row_recipe(const plan_question_t *q, const char *what, const char *const *name,
                    const char *const *value, size_t count, pipe_recipe_t *out)
{
    given_t given = {0};
    flag_t row[ROWS_MOST];
    int id[ROWS_MOST];
    char why[300];
    const flags_t flags = {
        .program = "gyre-plan time", .flag = row, .count = rows_for(PLAN_FOR_TIME, &given, row, id)};
    for (size_t i = 0; i < count; i++) {
        const flag_t *flag = flags_find(&flags, name[i]);
        if (!flag || id[flag - row] < LAYERS || id[flag - row] >= MACHINE)
            return usage("time", "%s: there is no column %s", what, name[i]);
        if (!flags_set(flag, value[i], why, sizeof why))
            return usage("time", "%s: %s", what, why);
    }
    *out = q->recipe;
    int code = apply_names("time", &given, out);
    if (code == PLAN_OK && apply(&given, out) != GYRE_OK)
        return usage("time", "%s: a layout that does not work", what);
    return code;
}

static void standard(pipe_recipe_t *r)
{
    const model_config_t gpt2 = {.vocab = 50257, .seq = 1024, .layers = 12, .hidden = 768, .heads = 12};
    *r = (pipe_recipe_t){.name = "gpt2", .model = model_config_complete(&gpt2)};
    r->layout = (pipe_layout_t){.tp = 1, .pp = 1, .dp = 1, .schedule = PIPE_1F1B, .micro_batch = 1};
    pipe_recipe_complete(r);
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
        return usage(what, "does not know the machine %s; there is: %s", name, all);
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
        return usage(what, "does not know the software %s; there is: %s", name, all);
    }
    q->software = *software;
    plan_software_on(software, m);
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
            return usage(what, "--fit wants up to 16 numbers of rows, as 1,5,9, not %s", list);
        q->fit[q->fits++] = row;
        at = *end ? end + 1 : end;
    }
    return PLAN_OK;
}

int plan_question(int argc, char **argv, plan_for_t what, const char *help, plan_question_t *out)
{
    given_t given = {0};
    plan_question_t q = {.top = 10};
    int code = collect(argc, argv, what, help, &given);
    if (code != PLAN_OK)
        return code;
    standard(&q.recipe);
    if (!given.text[RECIPE]) /* by itself what gyre-train takes; a recipe says it */
        q.recipe.layout.micro_batch = 0;
    if (given.text[RECIPE] && pipe_recipe_load(given.text[RECIPE], &q.recipe) != GYRE_OK)
        return PLAN_FAILED;
    if (given.text[SCALE])
        q.recipe = pipe_recipe_tiny(&q.recipe);
    code = apply_names(argv[0], &given, &q.recipe);
    if (code == PLAN_OK && apply(&given, &q.recipe) != GYRE_OK)
        code = PLAN_USAGE;
    if (code == PLAN_OK)
        code = apply_machine(argv[0], &given, &q);
    if (code == PLAN_OK)
        code = apply_fit(argv[0], given.text[FIT], &q);
    q.trainer_bucket = given.is[BUCKET] ? given.bytes : 0;
    q.gpus = count_of(&given, GPUS, q.recipe.layout.tp * q.recipe.layout.pp * q.recipe.layout.dp);
    q.top = count_of(&given, TOP, q.top);
    q.trainer = given.is[TRAINER] || given.is[LORA];
    q.lora = (model_lora_t){.rank = count_of(&given, LORA, 0), .on = given.text[LORA_ON]};
    q.one_schedule = given.text[SCHEDULE] != NULL;
    q.json = given.text[JSON];
    q.rows = given.text[ROWS];
    if (code == PLAN_OK && q.lora.on && !given.is[LORA])
        code = usage(argv[0], "--lora-on needs --lora RANK");
    if (code == PLAN_OK && given.is[LORA] && q.recipe.optimizer.muon)
        code = usage(argv[0], "--lora: adapters take AdamW: --optimizer adamw");
    if (code == PLAN_OK && q.fits && !q.rows)
        code = usage(argv[0], "--fit needs --rows FILE");
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

int plan_is_fitted(const plan_question_t *q, size_t row)
{
    for (size_t i = 0; i < q->fits; i++)
        if (q->fit[i] == row)
            return 1;
    return 0;
}
