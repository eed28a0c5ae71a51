/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/options.c: the command line: nccl-tests' flags, short and long, and a few of our own. */
#include "tools/gyre-perf/command.h"

#include <string.h>

#include "base/file.h"
#include "base/settings/parse.h"
#include "collectives/api/start.h"
#include "collectives/run/communicator.h"

enum { GPUS_MOST = 64 }; /* ranks on devices of one process: gyre_cuda_comms_create takes no more */

/* Some algorithms need blocks of one size: they serve a collective but not its v-variant. */
static int serves(const perf_coll_t *coll, coll_algo_t algo)
{
    static const int host[2] = {0, 0};
    coll_args_t args = {.op = coll->op, .n = 2, .uniform = !coll->uneven, .host = host, .place = 64};
    return coll->op < COLL_OP_END && coll_algo_serves(algo, coll->op, &args);
}

/* Which algorithms serve a collective, in words. */
static void list_algos(const perf_coll_t *coll, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (coll_algo_t a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END && at < bytes; a++) {
        if (serves(coll, a))
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? " " : "", coll_algo_name(a));
    }
    if (at == 0)
        snprintf(text, bytes, "none to choose from");
}

static const char usage[] =
    "usage: gyre-perf COLLECTIVE [options]      one process per rank, for example\n"
    "       ucx-run -n 4 gyre-perf all_reduce -b 8 -e 64M -f 4\n"
    "       gyre-perf SUBCOMMAND [options]      see below, and gyre-perf SUBCOMMAND --help\n"
    "Measures a collective over a range of sizes and checks every element of its results.\n";

static const char notes[] =
    "  -t 1, -p 0|1, -G 0, -C 0, -y 0, -x 0\n"
    "                           accepted for scripts written for nccl-tests, without effect: no threads,\n"
    "                           streams or graphs are to choose\n"
    "  NCCL_TESTS_SPLIT=\"MOD 8\" (AND, OR, MOD, DIV) in the environment, or NCCL_TESTS_SPLIT_MASK=7\n"
    "                           (hexadecimal): the ranks of each result are a group; all groups run at once\n"
    "\n"
    "Exit status: 0 all right, 1 wrong results, 2 wrong usage or no such device, 3 an error of Gyre or the\n"
    "system.\n"
    "\n"
    "Subcommands:\n";

/* What follows the options in the help. */
static void print_names(FILE *out)
{
    for (int i = 0; i < perf_command_count; i++)
        fprintf(out, "  %-16s %s\n", perf_commands[i].name, perf_commands[i].title);
    fputs("\n"
          "Collectives and the algorithms that --algo can force:\n",
          out);
    for (int i = 0; i < perf_coll_count; i++) {
        char algos[160];
        list_algos(&perf_colls[i], algos, sizeof algos);
        fprintf(out, "  %-16s %s\n  %-16s   %s\n", perf_colls[i].name, perf_colls[i].title, "", algos);
    }
}

/* ---- values: FLAG_READ, to a perf_options_t ------------------------------------------------------------ */

static int read_types(void *to, const char *word)
{
    perf_options_t *o = to;
    gyre_type_t type = 0;
    const int all = strcmp(word, "all") == 0;
    if (!all && !perf_read_type(&type, word))
        return 0;
    o->first_type = (int)type;
    o->last_type = all ? GYRE_TYPE_COUNT - 1 : (int)type;
    return 1;
}

static int read_ops(void *to, const char *word)
{
    perf_options_t *o = to;
    if (strcmp(word, "all") == 0) {
        o->first_op = 0;
        o->last_op = PERF_OPS - 1;
        return 1;
    }
    if (strcmp(word, "scaled_sum") == 0)
        word = "mulsum";
    for (int op = 0; op < PERF_OPS; op++) {
        if (strcmp(word, perf_op_name((perf_op_t)op)) == 0) {
            o->first_op = o->last_op = op;
            return 1;
        }
    }
    return 0;
}

static int read_root(void *to, const char *text)
{
    char why[64];
    const flag_t number = {FLAG(0, "root", INT, to, NULL, NULL), .low = -1};
    *(int *)to = -1;
    return strcmp(text, "all") == 0 || flags_set(&number, text, why, sizeof why);
}

/* One order, or a list of different ones. */
static int read_order(void *to, const char *text)
{
    perf_options_t *o = to;
    o->order = text;
    o->norders = 0;
    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",");
        int order = GYRE_ORDER_CANONICAL;
        while (order <= PERF_LEAVES &&
               (strncmp(perf_order_name(order), p, len) != 0 || perf_order_name(order)[len] != 0))
            order++;
        for (int i = 0; i < o->norders; i++)
            if (o->orders[i] == order)
                return 0;
        if (order > PERF_LEAVES)
            return 0;
        o->orders[o->norders++] = order;
        p += len;
        if (!*p)
            break;
    }
    if (o->norders == 1 && o->orders[0] != PERF_LEAVES)
        o->norders = 0;
    return 1;
}

/* The help of a list of names: the list, broken where lines get long, and `rest`. */
static const char *names_help(const char *names, const char *rest, char *text, size_t bytes)
{
    enum { LONG = 50 };
    snprintf(text, bytes, "%s%s", names, rest);
    for (char *line = text, *blank; strlen(line) > LONG + 20; line = blank + 1) {
        blank = strchr(line + LONG, ' ');
        if (!blank)
            break;
        *blank = '\n';
    }
    return text;
}

static void list_ops(char *text, size_t bytes)
{
    text[0] = '\0';
    for (perf_op_t op = 0; op < PERF_OPS; op++)
        snprintf(text + strlen(text), bytes - strlen(text), "%s%s", op ? " " : "", perf_op_name(op));
}

/* 1: -d and -o have a pair that can be computed. */
static int has_any(const perf_options_t *o)
{
    for (int type = o->first_type; type <= o->last_type; type++)
        for (int op = o->first_op; op <= o->last_op; op++)
            if (perf_has(o->coll, (gyre_type_t)type, (perf_op_t)op, o->cuda || o->gpus > 1))
                return 1;
    return 0;
}

static int has_leaves(const perf_options_t *o)
{
    for (int k = 0; k < o->norders; k++)
        if (o->orders[k] == PERF_LEAVES)
            return 1;
    return 0;
}

/* 1: each pair of -d and -o that can be computed has an exact result, or --order is not exact. */
static int exact_enough(const perf_options_t *o, char *why, size_t bytes)
{
    int asked = o->norders == 0 && o->order && strcmp(o->order, "exact") == 0;
    for (int k = 0; k < o->norders; k++)
        asked |= o->orders[k] == GYRE_ORDER_EXACT;
    for (int type = o->first_type; asked && type <= o->last_type; type++)
        for (int op = o->first_op; op <= o->last_op; op++) {
            const gyre_redop_kind_t kind = op == PERF_MULSUM ? GYRE_SUM : (gyre_redop_kind_t)op;
            if (!perf_has(o->coll, (gyre_type_t)type, (perf_op_t)op, o->cuda || o->gpus > 1) ||
                coll_has_exact(kind, (gyre_type_t)type))
                continue;
            snprintf(why, bytes, "--order exact has no %s of %s: use --order canonical",
                     perf_op_name((perf_op_t)op), gyre_type_name((gyre_type_t)type));
            return 0;
        }
    return 1;
}

/* Checks of several options together. */
static int check_together(const perf_options_t *o, char *why, size_t bytes)
{
    if (o->coll->reduces && !has_any(o)) {
        snprintf(why, bytes, "%s: there is no %s of %s%s", o->coll->name,
                 perf_op_name((perf_op_t)o->first_op), gyre_type_name((gyre_type_t)o->first_type),
                 o->cuda || o->gpus > 1 ? " on a device" : "");
        return 0;
    }
    if (o->coll->reduces && !exact_enough(o, why, bytes))
        return 0;
    if (o->min_bytes > o->max_bytes) {
        snprintf(why, bytes, "the first size (-b %zu) is larger than the last (-e %zu)", o->min_bytes,
                 o->max_bytes);
        return 0;
    }
    if (o->step_factor == 1 && o->step_bytes == 0 && o->min_bytes < o->max_bytes) {
        snprintf(why, bytes, "a step of 0 bytes (-i 0) never reaches the last size; use -f or a larger -i");
        return 0;
    }
    if (o->norders && !o->coll->reduces) {
        snprintf(why, bytes, "--order %s: %s reduces nothing, so there is no order to compare", o->order,
                 o->coll->name);
        return 0;
    }
    if (o->leaves && !has_leaves(o)) {
        snprintf(why, bytes, "--leaves %d: only with --order leaves", o->leaves);
        return 0;
    }
    if (o->leaves && (coll_op_scans(o->coll->op) || o->last_op == PERF_MULSUM || !o->out_of_place)) {
        snprintf(why, bytes,
                 "--order %s: there are no leaves of scans and scaled sums (mulsum), nor in place", o->order);
        return 0;
    }
    if (o->skipped > 0 && (!o->iterations || o->skipped >= o->iters)) {
        snprintf(why, bytes, "-K %d: %s", o->skipped,
                 o->iterations ? "fewer than the iterations (-n)" : "only with -I 1");
        return 0;
    }
    if ((o->iterations || o->blocking == 3 || o->csv) && (o->norders || o->explain)) {
        snprintf(why, bytes, "%s: goes with the usual table",
                 o->iterations ? "-I 1"
                 : o->csv      ? "-F"
                               : "-z 3");
        return 0;
    }
    if (o->csv && o->json && (strcmp(o->csv, o->json) == 0 || base_file_same(o->csv, o->json))) {
        snprintf(why, bytes, "%s: one file for -F and -J", o->csv);
        return 0;
    }
    if (o->gpus > 1 && (o->iterations || o->blocking == 3 || o->csv || o->memory)) {
        snprintf(why, bytes, "--ngpus %d: not together with -F, -I 1, -M 1 or -z 3", o->gpus);
        return 0;
    }
    if (o->norders && (o->cold || o->streams > 1)) {
        snprintf(why, bytes, "--order %s: not together with --cold or --streams", o->order);
        return 0;
    }
    if (o->gpus > 1 && (o->host || o->streams > 1)) {
        snprintf(why, bytes, "--ngpus %d: %s", o->gpus,
                 o->host ? "ranks of one process are on GPUs: not with --memory host"
                         : "not together with --streams");
        return 0;
    }
    if (o->persistent && o->coll->op == COLL_SENDRECV && !o->coll->neighbors) {
        snprintf(why, bytes, "--persistent: %s has no persistent form; neighbor_exchange has", o->coll->name);
        return 0;
    }
    if (o->persistent && (o->norders || o->streams > 1 || o->gpus > 1 || o->explain)) {
        snprintf(why, bytes,
                 "--persistent: not together with --streams, --ngpus, --explain or orders side by side");
        return 0;
    }
    /* on a device: the path of messages */
    const int chooses = o->coll->op != COLL_SENDRECV || o->cuda;
    if (o->explain && (o->norders || o->streams > 1 || o->aggregate > 1 || !chooses)) {
        snprintf(why, bytes, "--explain: %s%s", chooses ? "" : o->coll->name,
                 !chooses ? " has no algorithm to choose"
                          : "one operation at a time: no --streams, no -m, one --order");
        return 0;
    }
    if (o->registered && (!o->cuda || o->streams > 1)) {
        snprintf(why, bytes, "--register: %s",
                 o->cuda ? "one communicator at a time: no --streams" : "only with --memory cuda");
        return 0;
    }
    if (o->cuda && (o->norders || o->cold || o->coll->op == COLL_BARRIER)) {
        snprintf(why, bytes, "--memory cuda: %s",
                 o->norders ? "on a device only --algo ring and its like have another order: one at a time"
                 : o->cold  ? "not together with --cold"
                            : "a barrier has no buffers");
        return 0;
    }
    if (!o->coll->in_place && !o->out_of_place) {
        snprintf(why, bytes, "%s has no in-place form", o->coll->name);
        return 0;
    }
    if (o->algo && strcmp(o->algo, "auto") != 0) {
        coll_algo_t algo = coll_algo_parse(o->algo);
        if (algo == COLL_ALGO_END || !serves(o->coll, algo)) {
            char algos[160];
            list_algos(o->coll, algos, sizeof algos);
            snprintf(why, bytes, "--algo %s: %s; %s has: %s", o->algo,
                     algo == COLL_ALGO_END ? "no such algorithm" : "does not serve this collective",
                     o->coll->name, algos);
            return 0;
        }
    }
    return 1;
}

/* Reads the options. PERF_OK, PERF_USAGE or -1, as perf_options_parse. */
static int read_options(int argc, char **argv, perf_options_t *o, int *words, FILE *out, char *why,
                        size_t why_bytes)
{
    char type_help[256], op_names[120], op_help[160];
    int place = 2, memory = -1; /* of the words of --inplace and --memory */
    list_ops(op_names, sizeof op_names);
    const flag_t rows[] = {
        {FLAG('b', "minbytes", SIZE, &o->min_bytes, "SIZE",
              "first size (32M); sizes such as 8, 64K, 4MiB, 1g")},
        {FLAG('e', "maxbytes", SIZE, &o->max_bytes, "SIZE", "last size (32M)")},
        {FLAG('i', "stepbytes", SIZE, &o->step_bytes, "SIZE", "added from size to size (1M)")},
        {FLAG('f', "stepfactor", INT, &o->step_factor, "N", "multiplies from size to size instead"),
         .low = 1},
        {FLAG('d', "datatype", READ, o, "TYPE",
              names_help(perf_type_names(), ", or all (float)", type_help, sizeof type_help)),
         .read = read_types, .wants = perf_type_names()},
        {FLAG('o', "op", READ, o, "OP", names_help(op_names, ", or all (sum)", op_help, sizeof op_help)),
         .read = read_ops, .wants = op_names},
        {FLAG('r', "root", READ, &o->root, "RANK", "root of broadcast, reduce, gather, scatter, or all (0)"),
         .read = read_root, .wants = "a rank, or all"},
        {FLAG('n', "iters", INT, &o->iters, "N", "timed iterations (20)"), .low = 1},
        {FLAG('w', "warmup_iters", INT, &o->warmup, "N", "iterations before them (5)")},
        {FLAG('m', "agg_iters", INT, &o->aggregate, "N", "operations issued together in each iteration (1)"),
         .low = 1, .high = 4096},
        {FLAG('N', "run_cycles", INT, &o->cycles, "N", "times to run it all; 0: until stopped (1)")},
        {FLAG('c', "check", INT, &o->check, "N", "checked runs per size; 0: no check (1)")},
        {FLAG('a', "average", CHOICE, &o->average, "0|1|2|3",
              "time of: rank 0, average, minimum, maximum over ranks (1)")},
        PERF_RUN_ROWS(o),
        {FLAG('u', "unalign", SIZE, &o->misalign, "BYTES", "move buffers that far off their alignment (0)"),
         .also = "misalign", .high = 4096},
        {FLAG('R', "local_register", CHOICE, &o->windows, "0|1",
              "1: buffers from gyre_mem_alloc, zero-copy between local ranks (1)\n0: from malloc")},
        {FLAG('S', "report_timestamps", SWITCH, &o->timestamps, NULL, "add the time of day to each row"),
         .also = "timestamps"},
        {FLAG('I', "iter_timing", CHOICE, &o->iterations, "0|1",
              "1: columns of single iterations: least, most, p99 and spread; JSON has each (0)")},
        {FLAG('K', "iter_skip", INT, &o->skipped, "N", "with -I: leaves the first N iterations out (0)")},
        {FLAG('z', "blocking", CHOICE, &o->blocking, "0|1|2|3",
              "3: a barrier after each iteration, not timed; the others: as calls are, which\n"
              "return when they are done (0)")},
        {FLAG('M', "memory_report", CHOICE, &o->memory, "0|1", "1: memory of a rank, after the table (0)")},
        {FLAG('F', "output_file", TEXT, &o->csv, "FILE",
              "also write the rows there, as CSV; - is standard output")},
        {FLAG(0, "algo", TEXT, &o->algo, "NAME", "force an algorithm, see below")},
        {FLAG(0, "order", READ, o, "canonical|fast|exact|leaves",
              "order of reductions: reproducible bits, whatever is fastest, exact sums, or the\n"
              "canonical order over several vectors of each rank; a list (canonical,fast):\n"
              "side by side, interleaved, with what each costs"),
         .read = read_order},
        {FLAG(0, "leaves", INT, &o->leaves, "K", "vectors that each rank has with --order leaves (2)"),
         .low = 1, .high = 1024},
        {FLAG(0, "inplace", CHOICE, &place, "0|1|both", "which halves of the table to measure (both)")},
        {FLAG(0, "cold", SWITCH, &o->cold, NULL,
              "buffers are flushed from every cache before each iteration")},
        {FLAG(0, "explain", SWITCH, &o->explain, NULL,
              "instead of the table: what was chosen for each size and why, the\n"
              "predicted time, the next best, and how the measured time compares")},
        {FLAG(0, "streams", INT, &o->streams, "K",
              "the operation on K communicators at once; bandwidth of all (1)"),
         .low = 1, .high = 64},
        {FLAG(0, "persistent", SWITCH, &o->persistent, NULL,
              "each operation is made once for its buffers, and then started")},
        {FLAG(0, "memory", CHOICE, &memory, "host|cuda",
              "where buffers are: cuda: on the device with the rank's local number (host)")},
        {FLAG(0, "register", SWITCH, &o->registered, NULL,
              "with --memory cuda: buffers are registered, and read by peers directly")},
        {FLAG('g', "ngpus", INT, &o->gpus, "N",
              "N ranks in this one process, each on a GPU, round robin over the GPUs (1)"),
         .also = "gpus", .low = 1, .high = GPUS_MOST},
        /* of nccl-tests, without effect; the notes have them together */
        {FLAG('t', "nthreads", WORD, NULL, "1", NULL), .wants = "1; ucx-run -n N starts N ranks"},
        {FLAG('p', "parallel_init", WORD, NULL, "0|1",
              NULL)}, /* each rank is a process that starts by itself, either way */
        {FLAG('G', "cudagraph", WORD, NULL, "0", NULL)},
        {FLAG('C', "report_cputime", WORD, NULL, "0", NULL)},
        {FLAG('y', "stream_null", WORD, NULL, "0", NULL)},
        {FLAG('x', "cta_policy", WORD, NULL, "0", NULL)},
    };
    const flags_t flags = {.program = "gyre-perf", .usage = usage, .notes = notes, FLAG_ROWS(rows)};
    flags_result_t result = flags_parse(&flags, argc, argv, words, out, why, why_bytes);
    if (result == FLAGS_HELP)
        print_names(out);
    o->out_of_place = place != 1;
    o->in_place = place != 0;
    o->cuda = memory == 1;
    o->host = memory == 0;
    if (result == FLAGS_WRONG && strncmp(why, "unknown option --tune", 21) == 0)
        snprintf(why, why_bytes, "--tune comes first: gyre-perf --tune[=FILE] [COLLECTIVE...]");
    return result == FLAGS_GO ? PERF_OK : result == FLAGS_WRONG ? PERF_USAGE : -1;
}

static void no_collective(const char *word, char *why, size_t bytes)
{
    const char *near = NULL;
    size_t least = base_setting_slip(strlen(word)) + 1;
    char others[128] = "";
    for (int i = 0; i < perf_coll_count; i++)
        if (base_setting_nearer(word, perf_colls[i].name, &least))
            near = perf_colls[i].name;
    for (int i = 0; i < perf_command_count && perf_commands[i].name[0] != '-'; i++) {
        if (base_setting_nearer(word, perf_commands[i].name, &least))
            near = perf_commands[i].name;
        const size_t length = strlen(others);
        snprintf(others + length, sizeof others - length, "%s%s", i > 0 ? ", " : "", perf_commands[i].name);
    }
    if (near)
        snprintf(why, bytes, "\"%s\" is no collective (did you mean %s?); --help lists them", word, near);
    else
        snprintf(why, bytes, "\"%s\" is no collective, nor one of %s; --help lists them", word, others);
}

int perf_options_parse(int argc, char **argv, perf_options_t *o, FILE *out, char *why, size_t why_bytes)
{
    int words = 0;
    *o = (perf_options_t){.min_bytes = 32u << 20,
                          .max_bytes = 32u << 20,
                          .step_bytes = 1u << 20,
                          .step_factor = 1,
                          .first_type = GYRE_FLOAT32,
                          .last_type = GYRE_FLOAT32,
                          .iters = 20,
                          .warmup = 5,
                          .aggregate = 1,
                          .gpus = 1,
                          .streams = 1,
                          .cycles = 1,
                          .check = 1,
                          .average = 1,
                          .windows = 1};
    int code = read_options(argc, argv, o, &words, out, why, why_bytes);
    if (code != PERF_OK)
        return code;
    const size_t length = strlen(argv[0]); /* all_reduce_perf has its collective in its name */
    const int named = length > 5 && strcmp(argv[0] + length - 5, "_perf") == 0 && perf_coll_find(argv[0]);
    const char *word = words < argc && !named ? argv[words++] : argv[0];
    o->coll = perf_coll_find(word);
    if (!o->coll || words < argc) {
        if (o->coll)
            snprintf(why, why_bytes, "one collective at a time, not also \"%s\"", argv[words]);
        else if (word == argv[0])
            snprintf(why, why_bytes, "which collective? all_reduce, for example; --help lists them");
        else
            no_collective(word, why, why_bytes);
        return PERF_USAGE;
    }
    if (has_leaves(o) && o->leaves == 0)
        o->leaves = 2;
    o->cuda = o->cuda || (o->gpus > 1 && !o->host);
    return check_together(o, why, why_bytes) ? PERF_OK : PERF_USAGE;
}
