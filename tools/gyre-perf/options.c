/* tools/gyre-perf/options.c: the command line: nccl-tests' flags, short and long, and a few of our own. */
#include "tools/gyre-perf/perf.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings/size.h"

enum {
    OPT_ALGO = 256,
    OPT_TRANSPORT,
    OPT_ORDER,
    OPT_INPLACE,
    OPT_VERSION,
    OPT_COLD,
    OPT_STREAMS,
    OPT_REGISTER,
    OPT_EXPLAIN,
    OPT_MEMORY
};
enum { GPUS_MOST = 64 }; /* ranks on devices of one process: gyre_cuda_comms_create takes no more */

static const struct option long_options[] = {
    {"nthreads", required_argument, NULL, 't'},
    {"ngpus", required_argument, NULL, 'g'},
    {"gpus", required_argument, NULL, 'g'},
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"datatype", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"root", required_argument, NULL, 'r'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"check", required_argument, NULL, 'c'},
    {"average", required_argument, NULL, 'a'},
    {"json", required_argument, NULL, 'J'},
    {"timeout", required_argument, NULL, 'T'},
    {"unalign", required_argument, NULL, 'u'},
    {"misalign", required_argument, NULL, 'u'},
    {"local_register", required_argument, NULL, 'R'},
    {"report_timestamps", no_argument, NULL, 'S'},
    {"timestamps", no_argument, NULL, 'S'},
    {"parallel_init", required_argument, NULL, 'p'},
    {"blocking", required_argument, NULL, 'z'},
    {"cudagraph", required_argument, NULL, 'G'},
    {"report_cputime", required_argument, NULL, 'C'},
    {"stream_null", required_argument, NULL, 'y'},
    {"cta_policy", required_argument, NULL, 'x'},
    {"memory_report", required_argument, NULL, 'M'},
    {"algo", required_argument, NULL, OPT_ALGO},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"order", required_argument, NULL, OPT_ORDER},
    {"inplace", required_argument, NULL, OPT_INPLACE},
    {"cold", no_argument, NULL, OPT_COLD},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"streams", required_argument, NULL, OPT_STREAMS},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"register", no_argument, NULL, OPT_REGISTER},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

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

void perf_help(FILE *out)
{
    fputs("usage: gyre-perf COLLECTIVE [options]      one process per rank, for example\n"
          "       ucx-run -n 4 gyre-perf all_reduce -b 8 -e 64M -f 4\n"
          "       gyre-perf SUBCOMMAND [options]      see below, and gyre-perf SUBCOMMAND --help\n"
          "Measures a collective over a range of sizes and checks every element of its results.\n"
          "\n"
          "  -b, --minbytes SIZE      first size (32M); sizes take K, M and G (powers of 1024)\n"
          "  -e, --maxbytes SIZE      last size (32M)\n"
          "  -i, --stepbytes SIZE     added from size to size (1M)\n"
          "  -f, --stepfactor N       multiplies from size to size instead\n"
          "  -d, --datatype TYPE      int8 uint8 int16 uint16 int32 uint32 int64 uint64 half\n"
          "                           bfloat16 float double, or all (float)\n"
          "  -o, --op OP              ",
          out);
    for (perf_op_t op = 0; op < PERF_OPS; op++)
        fprintf(out, "%s%s", op ? " " : "", perf_op_name(op));
    fputs(
        ", or all (sum)\n"
        "  -r, --root RANK          root of broadcast, reduce, gather, scatter, or all (0)\n"
        "  -n, --iters N            timed iterations (20)\n"
        "  -w, --warmup_iters N     iterations before them (5)\n"
        "  -m, --agg_iters N        operations issued together in each iteration (1)\n"
        "  -N, --run_cycles N       times to run it all; 0: until stopped (1)\n"
        "  -c, --check N            checked runs per size; 0: no check (1)\n"
        "  -a, --average 0|1|2|3    time of: rank 0, average, minimum, maximum over ranks (1)\n"
        "  -J, --json FILE          also write the results there\n"
        "  -T, --timeout SECONDS    deadline of every operation\n"
        "  -u, --unalign BYTES      move buffers that far off their alignment (0)\n"
        "  -R, --local_register 0|1 1: buffers from gyre_mem_alloc, zero-copy between local ranks (1)\n"
        "                           0: from malloc\n"
        "  -S, --report_timestamps  add the time of day to each row\n"
        "      --algo NAME          force an algorithm, see below\n"
        "      --transport shm|ucx|verbs  how ranks reach each other\n"
        "      --order canonical|fast|canonical,fast\n"
        "                           order of reductions: reproducible bits, or whatever is fastest;\n"
        "                           both: side by side, interleaved, with what the first one costs\n"
        "      --inplace 0|1|both   which halves of the table to measure (both)\n"
        "      --cold               buffers are flushed from every cache before each iteration\n"
        "      --explain            instead of the table: what was chosen for each size and why, the\n"
        "                           predicted time, the next best, and how the measured time compares\n"
        "      --streams K          the operation on K communicators at once; bandwidth of all (1)\n"
        "      --memory host|cuda   where buffers are: cuda: on the device with the rank's local number "
        "(host)\n"
        "      --register           with --memory cuda: buffers are registered, and read by peers directly\n"
        "  -g, --ngpus N            N ranks in this one process, each on a GPU, round robin over the GPUs "
        "(1)\n"
        "  -t 1, -p 0|1, -z 0, -G 0, -C 0, -y 0, -x 0, -M 0\n"
        "                           accepted for scripts written for nccl-tests, without effect: no "
        "threads,\n"
        "                           streams or graphs are to choose\n"
        "  -h, --help   --version\n"
        "\n"
        "Exit status: 0 all right, 1 wrong results, 2 wrong usage or no such device, 3 an error of Gyre or "
        "the\n"
        "system.\n"
        "\n"
        "Subcommands:\n",
        out);
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

int perf_parse_size(const char *text, size_t *bytes)
{
    uint64_t value;
    if (!base_size_parse(text, &value) || value > SIZE_MAX)
        return 0;
    *bytes = (size_t)value;
    return 1;
}

static int parse_int(const char *text, int low, int high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return 0;
    *out = (int)value;
    return 1;
}

static int parse_type(const char *word, perf_options_t *o)
{
    if (strcmp(word, "all") == 0) {
        o->first_type = 0;
        o->last_type = GYRE_TYPE_COUNT - 1;
        return 1;
    }
    static const char *const alias[][2] = {
        {"fp16", "half"}, {"bf16", "bfloat16"}, {"fp32", "float"}, {"fp64", "double"}};
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
        word = strcmp(word, alias[i][0]) == 0 ? alias[i][1] : word;
    for (int t = 0; t < GYRE_TYPE_COUNT; t++) {
        if (strcmp(word, gyre_type_name((gyre_type_t)t)) == 0) {
            o->first_type = o->last_type = t;
            return 1;
        }
    }
    return 0;
}

static int parse_op(const char *word, perf_options_t *o)
{
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

static int one_of(const char *word, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(word, *words) == 0)
            return 1;
    }
    return 0;
}

/* One option with its argument; 0 if the argument will not do. */
static int take(int option, const char *arg, perf_options_t *o)
{
    static const char *const orders[] = {"canonical", "fast", NULL};
    int one;
    switch (option) {
    case 't':
        return parse_int(arg, 1, 1, &one);
    case 'g':
        return parse_int(arg, 1, GPUS_MOST, &o->gpus);
    case 'p': /* each rank is a process that starts by itself, either way */
        return parse_int(arg, 0, 1, &one);
    case 'z':
    case 'G':
    case 'C':
    case 'y':
    case 'x':
    case 'M':
        return parse_int(arg, 0, 0, &one);
    case 'b':
        return perf_parse_size(arg, &o->min_bytes);
    case 'e':
        return perf_parse_size(arg, &o->max_bytes);
    case 'i':
        return perf_parse_size(arg, &o->step_bytes);
    case 'f':
        return parse_int(arg, 1, INT_MAX, &o->step_factor);
    case 'd':
        return parse_type(arg, o);
    case 'o':
        return parse_op(arg, o);
    case 'r':
        o->root = -1;
        return strcmp(arg, "all") == 0 || parse_int(arg, -1, INT_MAX, &o->root);
    case 'n':
        return parse_int(arg, 1, INT_MAX, &o->iters);
    case 'w':
        return parse_int(arg, 0, INT_MAX, &o->warmup);
    case 'm':
        return parse_int(arg, 1, 4096, &o->aggregate);
    case 'N':
        return parse_int(arg, 0, INT_MAX, &o->cycles);
    case 'c':
        return parse_int(arg, 0, INT_MAX, &o->check);
    case 'a':
        return parse_int(arg, 0, 3, &o->average);
    case 'J':
        o->json = arg;
        return *arg != '\0';
    case 'T': {
        char *end;
        o->timeout_s = strtod(arg, &end);
        return end != arg && *end == '\0' && isfinite(o->timeout_s) && o->timeout_s >= 0.0;
    }
    case 'u':
        return perf_parse_size(arg, &o->misalign) && o->misalign <= 4096;
    case 'R':
        return parse_int(arg, 0, 1, &o->windows);
    case 'S':
        return o->timestamps = 1;
    case OPT_ALGO:
        o->algo = arg;
        return 1;
    case OPT_TRANSPORT:
        o->transport = arg;
        return one_of(arg, perf_transports());
    case OPT_ORDER:
        o->order = arg;
        o->both_orders = strcmp(arg, "canonical,fast") == 0 || strcmp(arg, "fast,canonical") == 0;
        return o->both_orders || one_of(arg, orders);
    case OPT_MEMORY:
        o->cuda = strcmp(arg, "cuda") == 0;
        o->host = !o->cuda;
        return o->cuda || strcmp(arg, "host") == 0;
    case OPT_REGISTER:
        return o->registered = 1;
    case OPT_EXPLAIN:
        return o->explain = 1;
    case OPT_COLD:
        return o->cold = 1;
    case OPT_STREAMS:
        return parse_int(arg, 1, 64, &o->streams);
    case OPT_INPLACE:
        o->out_of_place = strcmp(arg, "1") != 0;
        o->in_place = strcmp(arg, "0") != 0;
        return strcmp(arg, "0") == 0 || strcmp(arg, "1") == 0 || strcmp(arg, "both") == 0;
    default:
        return 0;
    }
}

/* What no single option can tell. */
static int check_together(const perf_options_t *o, char *why, size_t bytes)
{
    if (o->min_bytes > o->max_bytes) {
        snprintf(why, bytes, "the first size (-b %zu) is larger than the last (-e %zu)", o->min_bytes,
                 o->max_bytes);
        return 0;
    }
    if (o->step_factor == 1 && o->step_bytes == 0 && o->min_bytes < o->max_bytes) {
        snprintf(why, bytes, "a step of 0 bytes (-i 0) never reaches the last size; use -f or a larger -i");
        return 0;
    }
    if (o->both_orders && !o->coll->reduces) {
        snprintf(why, bytes, "--order %s: %s reduces nothing, so there is no order to compare", o->order,
                 o->coll->name);
        return 0;
    }
    if (o->both_orders && (o->cold || o->streams > 1)) {
        snprintf(why, bytes, "--order %s: not together with --cold or --streams", o->order);
        return 0;
    }
    if (o->gpus > 1 && (o->host || o->streams > 1)) {
        snprintf(why, bytes, "--ngpus %d: %s", o->gpus,
                 o->host ? "ranks of one process are on GPUs: not with --memory host"
                         : "not together with --streams");
        return 0;
    }
    /* on a device it tells how messages go */
    const int chooses = o->coll->op != COLL_SENDRECV || o->cuda;
    if (o->explain && (o->both_orders || o->streams > 1 || o->aggregate > 1 || !chooses)) {
        snprintf(why, bytes, "--explain: %s",
                 !chooses ? "sendrecv has no algorithm to choose"
                          : "one operation at a time: no --streams, no -m, one --order");
        return 0;
    }
    if (o->registered && (!o->cuda || o->streams > 1)) {
        snprintf(why, bytes, "--register: %s",
                 o->cuda ? "one communicator at a time: no --streams" : "only with --memory cuda");
        return 0;
    }
    if (o->cuda && (o->both_orders || o->cold || o->coll->op == COLL_BARRIER)) {
        snprintf(why, bytes, "--memory cuda: %s",
                 o->both_orders
                     ? "on a device only --algo ring and its like have another order: one at a time"
                 : o->cold ? "not together with --cold"
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

int perf_options_parse(int argc, char **argv, perf_options_t *o, FILE *out, char *why, size_t why_bytes)
{
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
                          .windows = 1,
                          .out_of_place = 1,
                          .in_place = 1};
    optind = 0; /* start over: tests parse more than once */
    opterr = 0;
    int option;
    while ((option = getopt_long(argc, argv, ":t:g:p:z:G:C:y:x:M:b:e:i:f:d:o:r:n:w:m:N:c:a:J:T:u:R:Sh",
                                 long_options, NULL)) != -1) {
        if (option == 'h') {
            perf_help(out);
            return -1;
        }
        if (option == OPT_VERSION) {
            fprintf(out, "gyre-perf %s\n", gyre_version());
            return -1;
        }
        if (option == '?' && strncmp(argv[optind - 1], "--tune", 6) == 0) {
            snprintf(why, why_bytes, "--tune comes first: gyre-perf --tune[=FILE] [COLLECTIVE...]");
            return PERF_USAGE;
        }
        if (option == '?' || option == ':') {
            snprintf(why, why_bytes, option == '?' ? "unknown option %s" : "%s needs an argument",
                     argv[optind - 1]);
            return PERF_USAGE;
        }
        if (!take(option, optarg, o)) {
            const char *name = "";
            for (const struct option *l = long_options; l->name && !*name; l++)
                name = l->val == option ? l->name : name;
            if (option == 'g')
                snprintf(why, why_bytes, "--%s %s: not a number of ranks in 1..%d", name, optarg,
                         (int)GPUS_MOST);
            else
                snprintf(why, why_bytes, "--%s %s: not a value that this option takes", name,
                         optarg ? optarg : "");
            return PERF_USAGE;
        }
    }
    const char *word = optind < argc ? argv[optind++] : argv[0];
    o->coll = perf_coll_find(word);
    if (!o->coll || optind < argc) {
        if (o->coll)
            snprintf(why, why_bytes, "one collective at a time, not also \"%s\"", argv[optind]);
        else if (word == argv[0])
            snprintf(why, why_bytes, "which collective? all_reduce, for example; --help lists them");
        else
            snprintf(why, why_bytes, "\"%s\" is no collective; --help lists them", word);
        return PERF_USAGE;
    }
    o->cuda = o->cuda || (o->gpus > 1 && !o->host);
    return check_together(o, why, why_bytes) ? PERF_OK : PERF_USAGE;
}
