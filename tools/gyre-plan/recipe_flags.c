/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe_flags.c: one table of flags for the questions about recipes. */
#include "tools/gyre-plan/recipe_flags.h"

#include <stdarg.h>
#include <stdio.h>

#include "tools/gyre-plan/plan.h"
#include "tools/shared/flags.h"

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
     0,
     {FLAG(0, "trainer", SWITCH, NULL, NULL,
           "a run of gyre-train: memory is what it holds itself, to the byte, instead of the\n"
           "papers' formulas; the recipe's lanes and grad_sequences count")}},
    {DEVICE,
     PLAN_FOR_MEMORY,
     {FLAG(0, "device", TEXT, NULL, "cpu|cuda",
           "of gyre-train, as its flag: where it computes (default cpu)")}},
    {AWAY,
     PLAN_FOR_MEMORY,
     {FLAG(0, "offload-activations", SWITCH, NULL, NULL,
           "of gyre-train, as its flag: what layers keep waits on the host")}},
    {FREEZE,
     MEMORY,
     {FLAG(0, "freeze", TEXT, NULL, "PATTERN,...",
           "of gyre-train, as its flag: weights that are not trained")}},
    {Z_LOSS,
     MEMORY,
     {FLAG(0, "z-loss", REAL, NULL, "X", "of gyre-train, as its flag: weight of the logits' z-loss"),
      .high = 1}},
    {ROUTER_Z,
     MEMORY,
     {FLAG(0, "router-z-loss", REAL, NULL, "X",
           "of gyre-train, as its flag: weight of the z-loss of experts' routers"),
      .high = 1}},
    {KEEP,
     MEMORY,
     {FLAG(0, "keep-weights", SWITCH, NULL, NULL,
           "of gyre-train, as its flag: weights gathered once per step")}},
    {OFFLOAD,
     MEMORY,
     {FLAG(0, "offload", TEXT, NULL, "DIR",
           "of gyre-train, as its flag: master weights and moments in a file")}},
    {THREADS,
     MEMORY,
     {FLAG(0, "threads", COUNT, NULL, "N", "of gyre-train, per rank (default 1): each has a workspace"),
      .low = 1, .high = 4096}},
    {MATMUL,
     MEMORY,
     {FLAG(0, "matmul-type", TEXT, NULL, "fp32|bf16",
           "of gyre-train, as its flag: bf16 has a workspace to pack in")}},
    {LORA,
     MEMORY,
     {FLAG(0, "lora", COUNT, NULL, "RANK", "of gyre-train: adapters of this rank alone are trained"),
      .low = 1, .high = SIZES}},
    {OPTIMIZER,
     MEMORY,
     {FLAG(0, "optimizer", TEXT, NULL, "adamw|muon", "muon: one moment of the layers' matrices")}},
    {LORA_ON, MEMORY, {FLAG(0, "lora-on", TEXT, NULL, "PATTERN,...", "weights that have them")}},
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
    {MODEL,
     0,
     {FLAG(0, "model", TEXT, NULL, "FILE",
           "the architecture: a config.json of Hugging Face, instead of the recipe's")}},
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
    {GROUPS,
     0,
     {FLAG(0, "groups", COUNT, NULL, "N", "equal groups of a round (default: a power of two, or dp)"),
      .low = 1, .high = 1048576}},
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
           "V100-32 A100-40 A100-80 jean-zay H100 H200 B200 GB200 Ascend910 (default: the\n"
           "recipe's accelerator)")}},
    {PEAK, TIME, {FLAG(0, "peak", REAL, NULL, "TFLOPS", "its peak"), .low = 1e-6, .high = 1e9}},
    {PRODUCTS,
     TIME,
     {FLAG(0, "products", WORD, NULL, "16|fp8",
           "fp8: layers multiply with their weights in fp8, at the machine's rate of it; the\n"
           "rest, and all memory, as without")}},
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

int plan_usage(const char *what, const char *format, ...)
{
    char program[40], text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(program, sizeof program, "gyre-plan %s", what);
    return flags_wrong(program, "%s", text);
}

int plan_given_collect(int argc, char **argv, plan_for_t what, const char *help, given_t *given)
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

int plan_given_column(const char *where, const char *name, const char *value, given_t *given)
{
    flag_t row[ROWS_MOST];
    int id[ROWS_MOST];
    char why[300];
    const flags_t flags = {
        .program = "gyre-plan time", .flag = row, .count = rows_for(PLAN_FOR_TIME, given, row, id)};
    const flag_t *flag = flags_find(&flags, name);
    if (!flag || id[flag - row] < LAYERS || id[flag - row] >= MACHINE)
        return plan_usage("time", "%s: there is no column %s", where, name);
    if (!flags_set(flag, value, why, sizeof why))
        return plan_usage("time", "%s: %s", where, why);
    return PLAN_OK;
}

size_t plan_given_count(const given_t *given, int id, size_t otherwise)
{
    return given->is[id] ? (size_t)given->count[id] : otherwise;
}
