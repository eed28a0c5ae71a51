/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/pipeline.c: `gyre-plan pipeline`: a pipeline schedule, proved, in virtual time: a chart,
 * the bubble next to its formula, what each rank holds; or all schedules side by side. */
#include "tools/gyre-plan/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gyre/version.h>

#include "base/file.h"
#include "base/text/json.h"
#include "pipeline/schedules/check.h"
#include "tools/gyre-plan/plan.h"
#include "tools/shared/flags.h"
#include "pipeline/schedules/kinds.h"

enum {
    COLUMNS = 160, /* where the output is no terminal */
    MOST_STAGES = 512,
    MOST_MICRO_BATCHES = 4096,
    MOST_SCALES = 4096
};
#define MOST_TIME 1e9

static const char program[] = "gyre-plan pipeline";
static const char usage[] =
    "usage: gyre-plan pipeline [--schedule NAME|all] [--stages P] [--micro-batches M] [options]\n"
    "\n"
    "Makes a pipeline schedule, proves it (order, messages, no deadlock, memory), runs it in virtual time "
    "and prints a chart\n"
    "with a line per rank, the bubble next to the formula of the paper, and what each rank holds at most. "
    "With all: one line\n"
    "per schedule.\n";

/* "gpipe, 1f1b, ..., or all" */
static const char schedules[] =
#define KIND(id, stem, name, ...) name ", "
#include "pipeline/schedules/kinds.def"
#undef KIND
    "or all";

typedef struct {
    pipe_kind_t kind;
    int all, ranks, micro_batches, chunks, evaluate, columns;
    double forward, backward, weight, hop; /* weight < 0: half of backward */
    double *scale;                         /* [MOST_SCALES]; the command line's, `scales` of them; 0: all 1 */
    int scales;
    const char *svg, *json;
} options_t;

/* ---- the command line ---------------------------------------------------------------------------------- */

static int read_schedule(void *options, const char *text)
{
    options_t *o = options;
    o->all = !strcmp(text, "all");
    for (int k = 0; k < PIPE_KIND_END; k++)
        if (!strcmp(text, pipe_kind_name((pipe_kind_t)k))) {
            o->kind = (pipe_kind_t)k;
            return 1;
        }
    return o->all;
}

static int read_scale(void *options, const char *text)
{
    static double scale[MOST_SCALES];
    options_t *o = options;
    char *end = NULL;
    o->scale = scale;
    for (o->scales = 0; o->scales < MOST_SCALES; text = end + 1) {
        double value = strtod(text, &end);
        if (end == text || (*end && *end != ',') || !(value >= 0.0 && value <= 1e6))
            break;
        scale[o->scales++] = value;
        if (!*end)
            return 1;
    }
    return 0;
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : COLUMNS;
}

static int parse(int argc, char **argv, options_t *o)
{
    *o = (options_t){
        .kind = PIPE_1F1B, .ranks = 4, .micro_batches = 8, .forward = 1, .backward = 2, .weight = -1};
    char names[160];
    snprintf(names, sizeof names, "%s (default 1f1b)", schedules);
    const flag_t rows[] = {
        {FLAG('s', "schedule", READ, o, "NAME", names), .read = read_schedule, .wants = schedules},
        {FLAG('p', "stages", INT, &o->ranks, "P", "ranks of the pipeline (default 4)"), .low = 1,
         .high = MOST_STAGES},
        {FLAG('m', "micro-batches", INT, &o->micro_batches, "M", "of a batch (default 8)"), .low = 1,
         .high = MOST_MICRO_BATCHES},
        {FLAG('v', "chunks", INT, &o->chunks, "V",
              "stages per rank: interleaved 2 or more (default 2), zb-v 2, others 1"),
         .low = 1, .high = 64},
        {FLAG(0, "forward", REAL, &o->forward, "T",
              "time of a rank's layers for a micro-batch, all chunks together (default 1)"),
         .high = MOST_TIME},
        {FLAG(0, "backward", REAL, &o->backward, "T", "the same, backward: inputs and weights (default 2)"),
         .high = MOST_TIME},
        {FLAG(0, "weight", REAL, &o->weight, "T",
              "of --backward, what the weights take (default: half of it)"),
         .high = MOST_TIME},
        {FLAG(0, "hop", REAL, &o->hop, "T", "from one stage to the next (default 0)"), .high = MOST_TIME},
        {FLAG(0, "scale", READ, o, "A,B,...",
              "times of the stages, in order, as multiples of the above: uneven layers,\nembedding, head"),
         .read = read_scale, .wants = "numbers from 0 on, separated by commas"},
        {FLAG(0, "evaluate", SWITCH, &o->evaluate, NULL, "forward passes only, as in evaluation")},
        {FLAG(0, "columns", INT, &o->columns, "N", "width of the chart (default: the terminal's, else 160)"),
         .low = 20, .high = 10000},
        {FLAG(0, "svg", TEXT, &o->svg, "FILE", "also draws it there")},
        {FLAG(0, "json", TEXT, &o->json, "FILE",
              "also writes all actions with their times there;\n"
              "- is standard output")},
    };
    const flags_t flags = {.program = program, .usage = usage, FLAG_ROWS(rows)};
    int done = flags_take(&flags, argc, argv, NULL);
    if (done >= 0)
        return done;
    o->weight = o->weight < 0 ? o->backward / 2 : o->weight;
    o->columns = o->columns ? o->columns : terminal_columns();
    if (o->weight > o->backward)
        return flags_wrong(program, "--weight is a part of --backward and cannot be more");
    if (o->forward + o->backward <= 0 || (o->evaluate && o->forward <= 0))
        return flags_wrong(program,
                           "--forward and --backward cannot both be 0, nor --forward with --evaluate");
    if (o->all && (o->svg || o->json || o->evaluate))
        return flags_wrong(program,
                           "--schedule all prints a table; --svg, --json and --evaluate take one schedule");
    return -1;
}

static pipe_shape_t shape_for(const options_t *o, pipe_kind_t kind)
{
    int several = pipe_kind_row(kind)->any_chunks || !o->all;
    return (pipe_shape_t){.kind = kind,
                          .ranks = o->ranks,
                          .chunks = o->chunks && several ? o->chunks : pipe_kind_chunks(kind),
                          .micro_batches = o->micro_batches,
                          .forward_only = o->evaluate};
}

static pipe_times_t times_for(const options_t *o, const pipe_shape_t *shape)
{
    double v = shape->chunks;
    return (pipe_times_t){.forward = o->forward / v,
                          .backward = o->backward / v,
                          .weight = o->weight / v,
                          .hop = o->hop,
                          .scale = o->scale};
}

/* One number per stage, of which not all are 0. */
static int check_scale(const options_t *o)
{
    const pipe_shape_t shape = shape_for(o, o->kind);
    double sum = 0.0;
    for (int i = 0; i < o->scales; i++)
        sum += o->scale[i];
    if (o->scales == 0)
        return -1;
    if (o->all)
        return flags_wrong(program, "--schedule all compares different stages: --scale takes one schedule");
    if (o->scales != pipe_stages(&shape))
        return flags_wrong(program, "--scale wants a number for each of the %d stages, not %d",
                           pipe_stages(&shape), o->scales);
    return sum > 0.0 ? -1 : flags_wrong(program, "--scale makes all times 0");
}

/* ---- what is said -------------------------------------------------------------------------------------- */

static const char *plural(int n, const char *many)
{
    return n == 1 ? "" : many;
}

static void print_heading(const pipeline_t *p, const options_t *o)
{
    const pipe_shape_t *s = &p->schedule->shape;
    printf("%s%s: %d rank%s, %d stage%s each, %d micro-batch%s; a rank's layers: forward %g, ",
           pipe_kind_name(s->kind), s->forward_only ? ", evaluation" : "", s->ranks, plural(s->ranks, "s"),
           s->chunks, plural(s->chunks, "s"), s->micro_batches, plural(s->micro_batches, "es"), o->forward);
    if (!s->forward_only)
        printf("backward %g of which weights %g, ", o->backward, o->weight);
    printf("hop %g\n\n", o->hop);
}

static void print_bubble(const pipeline_t *p)
{
    const pipe_shape_t *s = &p->schedule->shape;
    printf("\nstep %g, bubble %.2f %%; ", p->sim->makespan, 100 * p->sim->bubble);
    if (!isnan(p->formula))
        printf("formula %.2f %%: %s%s\n", 100 * p->formula, pipe_kind_row(s->kind)->formula,
               p->times.hop > 0 ? ", without hops" : "");
    else if (s->forward_only || p->times.scale)
        printf("no formula knows %s\n", s->forward_only ? "evaluation" : "stages of different lengths");
    else
        printf("the formula wants %s\n", pipe_kind_row(s->kind)->formula_wants);
}

static void print_ranks(const pipeline_t *p)
{
    const pipe_shape_t *s = &p->schedule->shape;
    int splits = pipe_kind_splits(s->kind) && !s->forward_only;
    printf("\n%6s %8s %8s   %-22s %s%s\n", "rank", "busy", "idle", "activations (promised)",
           splits ? "weights left (promised)   " : "", "boundary tensors");
    for (int r = 0; r < s->ranks; r++) {
        printf("%6d %8g %6.1f %%   %11d (%d)%*s", r, p->sim->busy[r],
               100 * (1 - p->sim->busy[r] / p->sim->makespan), p->sim->activations[r],
               pipe_activation_bound(s, r),
               pipe_activation_bound(s, r) < 10    ? 8
               : pipe_activation_bound(s, r) < 100 ? 7
                                                   : 6,
               "");
        if (splits)
            printf(" %11d (%d)%*s", p->sim->weights[r], pipe_weight_bound(s, r),
                   pipe_weight_bound(s, r) < 10    ? 11
                   : pipe_weight_bound(s, r) < 100 ? 10
                                                   : 9,
                   "");
        printf(" %d\n", p->sim->slots[r]);
    }
    if (s->chunks > 1)
        printf("\nactivations are counted in chunks: %d are those of a whole rank for one micro-batch\n",
               s->chunks);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static json_t *actions_json(const pipeline_t *p, int r)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->schedule->count[r]; i++) {
        const pipe_action_t *a = &p->schedule->action[r][i];
        json_t *one =
            json_pack("{s:s, s:i, s:i, s:i, s:f, s:f}", "op", pipe_op_name(a->op), "chunk", a->chunk, "stage",
                      pipe_stage_of(&p->schedule->shape, r, a->chunk), "micro_batch", a->micro_batch, "start",
                      p->sim->start[r][i], "end", p->sim->end[r][i]);
        if (one && a->peer >= 0 && json_object_set_new(one, "peer", json_integer(a->peer)) != 0) {
            json_decref(one);
            one = NULL;
        }
        if (!one || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *ranks_json(const pipeline_t *p)
{
    const pipe_shape_t *s = &p->schedule->shape;
    json_t *list = json_array();
    for (int r = 0; list && r < s->ranks; r++) {
        json_t *actions = actions_json(p, r);
        json_t *one = actions ? json_pack("{s:i, s:f, s:i, s:i, s:i, s:i, s:i, s:o}", "rank", r, "busy",
                                          p->sim->busy[r], "activations", p->sim->activations[r],
                                          "activation_bound", pipe_activation_bound(s, r), "weights",
                                          p->sim->weights[r], "weight_bound", pipe_weight_bound(s, r),
                                          "boundary_tensors", p->sim->slots[r], "actions", actions)
                              : NULL;
        if (!one || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static gyre_status_t write_json(const pipeline_t *p, const char *path)
{
    const pipe_shape_t *s = &p->schedule->shape;
    json_t *ranks = ranks_json(p), *root = NULL;
    json_t *formula = isnan(p->formula) ? json_null() : json_real(p->formula);
    if (ranks && formula)
        root = json_pack("{s:s, s:s, s:i, s:i, s:i, s:b, s:{s:f, s:f, s:f, s:f}, s:f, s:f, s:O, s:O}",
                         "version", GYRE_VERSION, "schedule", pipe_kind_name(s->kind), "stages", s->ranks,
                         "chunks", s->chunks, "micro_batches", s->micro_batches, "evaluate", s->forward_only,
                         "chunk_times", "forward", p->times.forward, "backward", p->times.backward, "weight",
                         p->times.weight, "hop", p->times.hop, "makespan", p->sim->makespan, "bubble",
                         p->sim->bubble, "bubble_formula", formula, "ranks", ranks);
    json_decref(formula);
    json_decref(ranks);
    if (!root) {
        fputs("gyre-plan: no memory for the results\n", stderr);
        return GYRE_ERR_NO_MEMORY;
    }
    gyre_status_t st = base_json_write(path, root);
    json_decref(root);
    return st;
}

/* ---- making them --------------------------------------------------------------------------------------- */

typedef gyre_status_t (*show_fn)(const pipeline_t *p, const options_t *o);

/* Makes, proves and times one schedule, and shows it. */
static gyre_status_t with_schedule(const options_t *o, pipe_kind_t kind, show_fn show)
{
    const pipe_shape_t shape = shape_for(o, kind);
    pipeline_t p = {.times = times_for(o, &shape)};
    pipe_schedule_t *schedule = NULL;
    pipe_simulation_t sim = {0};
    gyre_status_t st = pipe_schedule_create(&shape, &schedule);
    if (st == GYRE_OK) {
        st = pipe_check(schedule);
        if (st == GYRE_OK)
            st = pipe_simulate(schedule, &p.times, &sim);
        if (st != GYRE_OK)
            fprintf(stderr, "gyre-plan: the schedule is not sound, which is a defect of Gyre: %s\n",
                    gyre_last_error());
    }
    if (st == GYRE_OK) {
        p.schedule = schedule;
        p.sim = &sim;
        p.formula = pipe_bubble_formula(&shape, &p.times);
        st = show(&p, o);
    }
    pipe_simulation_free(&sim);
    pipe_schedule_destroy(schedule);
    return st;
}

static gyre_status_t show_one(const pipeline_t *p, const options_t *o)
{
    print_heading(p, o);
    gyre_status_t st = pipeline_chart(p, o->columns, stdout);
    if (st != GYRE_OK)
        return st;
    print_bubble(p);
    print_ranks(p);
    if (o->svg)
        st = pipeline_svg(p, o->svg);
    if (st == GYRE_OK && o->json)
        st = write_json(p, o->json);
    return st;
}

/* A line of the table of all. Activations in micro-batches of a whole rank, so that they compare. */
static gyre_status_t show_line(const pipeline_t *p, const options_t *o)
{
    const pipe_shape_t *s = &p->schedule->shape;
    int first = p->sim->activations[0], most = 0;
    char formula[32] = "-";
    (void)o;
    for (int r = 0; r < s->ranks; r++)
        most = p->sim->activations[r] > most ? p->sim->activations[r] : most;
    if (!isnan(p->formula))
        snprintf(formula, sizeof formula, "%.2f %%", 100 * p->formula);
    printf("%-12s %6d %10g %8.2f %% %10s %10g %10g\n", pipe_kind_name(s->kind), s->chunks, p->sim->makespan,
           100 * p->sim->bubble, formula, (double)first / s->chunks, (double)most / s->chunks);
    return GYRE_OK;
}

static gyre_status_t show_all(const options_t *o)
{
    printf("%d rank%s, %d micro-batch%s; a rank's layers: forward %g, backward %g of which weights %g, hop "
           "%g\n\n",
           o->ranks, plural(o->ranks, "s"), o->micro_batches, plural(o->micro_batches, "es"), o->forward,
           o->backward, o->weight, o->hop);
    printf("%-12s %6s %10s %10s %10s %10s %10s\n", "schedule", "chunks", "step", "bubble", "formula",
           "held, r 0", "held, most");
    gyre_status_t st = GYRE_OK;
    for (int k = 0; k < PIPE_KIND_END && st == GYRE_OK; k++) {
        if (pipe_kind_row((pipe_kind_t)k)->grouped && o->micro_batches % o->ranks != 0)
            printf("%-12s %6s wants micro-batches in groups of %d\n", pipe_kind_name((pipe_kind_t)k), "-",
                   o->ranks);
        else
            st = with_schedule(o, (pipe_kind_t)k, show_line);
    }
    printf("\nheld: activations, in micro-batches of all layers of a rank\n");
    return st;
}

static int unwritable(const char *flag, const char *path)
{
    int error = path ? base_file_check(path) : 0;
    const int free = flags_output(path);
    if (error || !free)
        fprintf(stderr, "gyre-plan: %s: cannot write %s: %s\n", flag, path,
                error ? strerror(error) : "it is standard output, which another file has");
    return error || !free;
}

int plan_pipeline(int argc, char **argv)
{
    options_t o;
    int done = parse(argc, argv, &o);
    if (done >= 0)
        return done;
    if (base_file_same(o.svg, o.json))
        return flags_wrong(program, "--svg and --json name one file, %s", o.svg);
    if (unwritable("--svg", o.svg) || unwritable("--json", o.json))
        return PLAN_FAILED;
    if (!o.all) {
        const pipe_shape_t shape = shape_for(&o, o.kind);
        if (pipe_shape_check(&shape) != GYRE_OK) /* it has said why */
            return PLAN_USAGE;
    }
    done = check_scale(&o);
    if (done >= 0)
        return done;
    gyre_status_t st = o.all ? show_all(&o) : with_schedule(&o, o.kind, show_one);
    return st == GYRE_OK ? PLAN_OK : PLAN_FAILED;
}
