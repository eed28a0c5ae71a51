/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/tuning/tune.c: gyre-perf --tune: measures the machine anew, and under ucx-run also which
 * algorithm is fastest here for each collective and size; writes both to the tuning file (docs/tuning.md)
 * that later jobs read.
 *
 * All candidates of a cell are measured in short blocks that take turns, with buffers of both kinds; a
 * time is the median over blocks of the slowest rank's. What Gyre would choose by itself (the exchange of
 * outboxes, for small messages) is a candidate, too, and a choose line is written only where another is
 * faster by more than the noise, twice over: the fastest of many has been lucky, so the two are measured
 * against each other once more. */
#include "tools/gyre-perf/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "base/settings/size.h"
#include "collectives/run/communicator.h"
#include "collectives/run/reach/joint.h"
#include "comm/boot/bootstrap.h"
#include "tools/gyre-perf/tuning/choice.h"

enum { ROUNDS_MOST = 31, KINDS = 2, SLOTS = PERF_CANDIDATES_MOST + 1, CELLS_MOST = 64 };
enum { FIRST_BYTES = 8, LAST_BYTES = 16 << 20 }; /* without -b and -e: they stand for all sizes */
static const double BLOCK_SECONDS = 1e-3, CLEARLY = 0.93, HOPELESS = 3;

typedef struct {
    size_t min_bytes, max_bytes;
    int factor, rounds;
    const char *file; /* NULL: the cache */
    perf_common_t common;
} options_t;

/* One collective at one size. */
typedef struct {
    uint64_t bytes;
    int n, best;                  /* candidates; the fastest. 0 is Gyre's own choice */
    coll_tune_line_t what[SLOTS]; /* [0]: its name is in `own` */
    double us[SLOTS][KINDS];      /* medians; 0: given up as hopeless */
    double ratio[SLOTS];          /* to Gyre's own choice, of the same round: the median; [0]: 1 */
    int sure[SLOTS];              /* it was faster in all rounds but one in eight */
    perf_choice_t own;
} cell_t;

typedef struct {
    const options_t *o;
    perf_session_t session;
    gyre_comm_t *comm; /* where candidates are pinned */
    perf_options_t buffers_of[KINDS];
    perf_buffers_t buffers[KINDS];
    perf_case_t c;
    coll_tune_t tune; /* at rank 0 */
} tuner_t;

/* ---- measuring ---- */

/* Seconds of one call: the slowest rank's mean over a block. */
static gyre_status_t block(tuner_t *t, int kind, int iters, double *seconds)
{
    const perf_place_t p = perf_place(&t->buffers_of[kind], &t->c, &t->buffers[kind], 0);
    gyre_status_t status = perf_iterate(&t->c, &p, 1); /* builds plan and connections */
    if (status == GYRE_OK)
        status = gyre_barrier(t->session.world);
    const base_time_t start = base_now();
    for (int i = 0; i < iters && status == GYRE_OK; i++)
        status = perf_iterate(&t->c, &p, 1);
    *seconds = (double)(base_now() - start) * 1e-9 / iters;
    if (status == GYRE_OK)
        status = gyre_all_reduce(seconds, seconds, 1, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), t->session.world);
    return status;
}

static double product(const cell_t *cell, int i)
{
    return cell->us[i][0] * cell->us[i][1];
}

/* What else the machine does hits all candidates of a round alike, so they are compared within rounds.
 * Both kinds of memory count the same: the geometric mean. */
static void compare(cell_t *cell, int i, int out, int rounds, double times[SLOTS][KINDS][ROUNDS_MOST])
{
    double ratios[ROUNDS_MOST];
    if (out) {
        cell->us[i][0] = cell->us[i][1] = 0;
        cell->ratio[i] = INFINITY;
        return;
    }
    for (int r = 0; r < rounds; r++)
        ratios[r] = sqrt(times[i][0][r] / times[0][0][r] * (times[i][1][r] / times[0][1][r]));
    cell->ratio[i] = perf_median(ratios, (size_t)rounds); /* sorts them */
    cell->sure[i] = ratios[rounds - 1 - rounds / 8] < 1;
    for (int kind = 0; kind < KINDS; kind++) {
        double sorted[ROUNDS_MOST];
        memcpy(sorted, times[i][kind], sizeof sorted);
        cell->us[i][kind] = perf_median(sorted, (size_t)rounds);
    }
}

/* The order in which candidates are measured changes from round to round. Candidates that are far slower in
 * the first round are left out. */
static gyre_status_t measure_cell(tuner_t *t, cell_t *cell)
{
    static double times[SLOTS][KINDS][ROUNDS_MOST];
    int iters[SLOTS][KINDS], out[SLOTS] = {0};
    double seconds = 0, least = INFINITY;
    gyre_status_t status = GYRE_OK;
    for (int round = -1; round < t->o->rounds; round++) {
        for (int k = 0; k < cell->n; k++) {
            const int i = (k + (round > 0 ? round : 0)) % cell->n;
            if (out[i])
                continue;
            status = coll_comm_pin(t->comm, &cell->what[i]);
            for (int kind = 0; kind < KINDS && status == GYRE_OK; kind++) {
                status = block(t, kind, round < 0 ? 2 : iters[i][kind], &seconds);
                if (round >= 0)
                    times[i][kind][round] = seconds * 1e6;
                else
                    iters[i][kind] = 0;
                /* by the fastest so far: one that was disturbed says nothing about how many fit a block */
                const int fit = (int)fmin(fmax(BLOCK_SECONDS / (seconds + 1e-9), 1), 2000);
                iters[i][kind] = fit > iters[i][kind] ? fit : iters[i][kind];
                cell->us[i][kind] = seconds * 1e6;
            }
            if (status != GYRE_OK)
                return status;
        }
        for (int i = 0; i < cell->n && round == 0; i++)
            least = fmin(least, product(cell, i));
        for (int i = 1; i < cell->n && round == 0; i++)
            out[i] = product(cell, i) > least * HOPELESS * HOPELESS;
    }
    for (int i = 0; i < cell->n; i++)
        compare(cell, i, out[i], t->o->rounds, times);
    return GYRE_OK;
}

/* Gyre's own choice under its name: faster than itself by noise only. */
static int is_own(const cell_t *cell, const coll_tune_line_t *l)
{
    const coll_choice_t *c = &cell->own.choice;
    return !cell->own.oneshot && l->algo == c->algo && (l->one_shot > 0) == c->one_shot && !l->chunk;
}

/* The best but Gyre's own choice; 0: none. */
static int winner(const cell_t *cell)
{
    int best = 0;
    for (int i = 1; i < cell->n; i++)
        if (cell->sure[i] && cell->ratio[i] < CLEARLY && cell->ratio[i] < cell->ratio[best] &&
            !is_own(cell, &cell->what[i]))
            best = i;
    return best;
}

/* Gyre's choice and the winner alone: does it win again? */
static gyre_status_t confirm(tuner_t *t, cell_t *cell)
{
    static cell_t again;
    again = (cell_t){.bytes = cell->bytes, .n = 2, .own = cell->own};
    again.what[0] = cell->what[0];
    again.what[1] = cell->what[cell->best];
    gyre_status_t status = measure_cell(t, &again);
    if (status == GYRE_OK && !winner(&again))
        cell->best = 0;
    return status;
}

static coll_shape_t shape_of(const perf_case_t *c)
{
    const int vector = coll_op_is_vector(c->coll->op);
    return (coll_shape_t){.op = c->coll->op,
                          .type = c->coll->op == COLL_BARRIER ? 0 : c->type,
                          .order = c->comm->options.order,
                          .root = c->coll->rooted ? c->root : -1,
                          .uniform = !vector && c->coll->op != COLL_BARRIER,
                          .count = c->param};
}

static gyre_status_t do_cell(tuner_t *t, const perf_coll_t *coll, size_t bytes, cell_t *cell)
{
    perf_case_set(&t->c, coll, GYRE_FLOAT32, PERF_SUM, coll->rooted ? 0 : -1, bytes);
    const coll_shape_t shape = shape_of(&t->c);
    coll_args_t args = {.op = coll->op,
                        .n = t->c.n,
                        .count = t->c.param,
                        .counts = t->c.counts,
                        .displs = t->c.displs,
                        .rcounts = t->c.rcounts,
                        .rdispls = t->c.rdispls,
                        .uniform = shape.uniform,
                        .fast_order = shape.order == GYRE_ORDER_FAST,
                        .exact = coll_shape_is_exact(&shape),
                        .chunk = 1,
                        .place = coll_joint_place(t->comm, &shape),
                        .host = t->comm->part_of};
    memset(cell, 0, sizeof *cell);
    cell->bytes = t->c.bytes;
    cell->what[0] =
        (coll_tune_line_t){.op = (uint8_t)coll->op, .one_shot = -1}; /* pins nothing but leaves lines aside */
    cell->n = 1 + perf_candidates(&args, t->comm->parts, t->c.bytes, cell->what + 1);
    gyre_status_t status = measure_cell(t, cell);
    if (status == GYRE_OK)
        status = coll_comm_pin(t->comm, &cell->what[0]);
    if (status == GYRE_OK)
        status = perf_choice_of(t->comm, &shape, COLL_MEMORY_WINDOW, &cell->own);
    cell->best = status == GYRE_OK ? winner(cell) : 0;
    if (cell->best)
        status = confirm(t, cell);
    return status;
}

/* ---- lines ---- */

static void name_of(const coll_tune_line_t *l, char *text, size_t bytes)
{
    char chunk[BASE_SIZE_TEXT];
    snprintf(text, bytes, "%s%s%s%s", coll_algo_name((coll_algo_t)l->algo),
             l->one_shot > 0 ? " one_shot" : "", l->chunk ? " " : "",
             l->chunk ? base_size_text(l->chunk, chunk) : "");
}

static void own_name(const cell_t *cell, char *text, size_t bytes)
{
    if (cell->own.oneshot)
        snprintf(text, bytes, "oneshot");
    else
        snprintf(text, bytes, "%s%s", coll_algo_name(cell->own.choice.algo),
                 cell->own.choice.one_shot ? " one_shot" : "");
}

static int same_choice(const coll_tune_line_t *a, const coll_tune_line_t *b)
{
    return a->op == b->op && a->algo == b->algo && a->one_shot == b->one_shot && a->chunk == b->chunk;
}

/* What was measured: a size stands for those around it, half-way in factors, and the default ends for all
 * beyond them. */
static void span(const options_t *o, coll_op_t op, const cell_t *first, const cell_t *last, uint64_t bytes[2])
{
    const double step = sqrt(o->factor);
    bytes[0] = op == COLL_BARRIER ? 0 : (uint64_t)((double)first->bytes / step) + 1;
    bytes[1] = op == COLL_BARRIER ? UINT64_MAX : (uint64_t)((double)last->bytes * step);
}

/* Lines for just these ranks and hosts make place as far as their sizes were measured anew: what lies
 * beyond stays, perhaps at both ends. Others stay whole, for they speak of more. -1: too many lines. */
static int drop_lines(coll_tune_t *tune, const coll_tune_line_t *measured)
{
    static coll_tune_line_t kept[COLL_TUNE_LINES_MOST];
    const uint64_t from = measured->bytes[0], to = measured->bytes[1];
    const int all = from == 0 && to == UINT64_MAX;
    int n = 0, wider = 0;
    for (int i = 0; i < tune->nlines; i++) {
        const coll_tune_line_t *l = &tune->lines[i];
        const int beyond = !l->any_bytes && (l->bytes[1] < from || l->bytes[0] > to);
        const int same = !memcmp(l->ranks, measured->ranks, sizeof l->ranks) &&
                         !memcmp(l->hosts, measured->hosts, sizeof l->hosts) && (!l->any_bytes || all);
        coll_tune_line_t below = *l, above = *l;
        below.bytes[1] = from ? from - 1 : 0;
        above.bytes[0] = to < UINT64_MAX ? to + 1 : to;
        const int cut = l->op == measured->op && !beyond && same;
        const int low = cut && !l->any_bytes && l->bytes[0] < from,
                  high = cut && !l->any_bytes && l->bytes[1] > to;
        if (n + low + high + !cut > COLL_TUNE_LINES_MOST)
            return -1;
        if (low)
            kept[n++] = below;
        if (high)
            kept[n++] = above;
        if (!cut)
            kept[n++] = *l;
        wider += l->op == measured->op && !beyond && !same && l->ranks[0] <= measured->ranks[0] &&
                 l->ranks[1] >= measured->ranks[1] && l->hosts[0] <= measured->hosts[0] &&
                 l->hosts[1] >= measured->hosts[1];
    }
    memcpy(tune->lines, kept, (size_t)n * sizeof *kept);
    tune->nlines = n;
    if (wider)
        printf(
            "# %d line%s of the file for more than these ranks, hosts or sizes stay%s, after the new ones\n",
            wider, wider == 1 ? "" : "s", wider == 1 ? "s" : "");
    return 0;
}

/* Before the older ones for the collective: the first that fits counts. */
static int insert_lines(coll_tune_t *tune, const coll_tune_line_t *fresh, int n)
{
    int at = 0;
    if (n == 0)
        return 0;
    if (tune->nlines + n > COLL_TUNE_LINES_MOST)
        return -1;
    while (at < tune->nlines && tune->lines[at].op != fresh->op)
        at++;
    memmove(&tune->lines[at + n], &tune->lines[at], (size_t)(tune->nlines - at) * sizeof *fresh);
    memcpy(&tune->lines[at], fresh, (size_t)n * sizeof *fresh);
    tune->nlines += n;
    return 0;
}

/* A line for each run of neighbouring sizes with one winner. */
static int add_lines(tuner_t *t, coll_op_t op, const cell_t *cells, int count)
{
    static coll_tune_line_t fresh[CELLS_MOST];
    coll_tune_line_t measured = {
        .op = (uint8_t)op, .ranks = {t->session.n, t->session.n}, .hosts = {t->comm->hosts, t->comm->hosts}};
    int n = 0;
    if (count == 0)
        return 0;
    span(t->o, op, &cells[0], &cells[count - 1], measured.bytes);
    if (t->o->min_bytes == FIRST_BYTES)
        measured.bytes[0] = 0;
    if (t->o->max_bytes == LAST_BYTES)
        measured.bytes[1] = UINT64_MAX;
    for (int i = 0, next; i < count; i = next) {
        const cell_t *c = &cells[i];
        const coll_tune_line_t *won = &c->what[c->best];
        for (next = i + 1;
             next < count && cells[next].best && same_choice(&cells[next].what[cells[next].best], won);
             next++)
            ;
        if (!c->best)
            continue;
        coll_tune_line_t line = *won;
        char own[48], times[512];
        own_name(c, own, sizeof own);
        snprintf(times, sizeof times, "%.1f/%.1f us, %s %.1f/%.1f", c->us[c->best][0], c->us[c->best][1], own,
                 c->us[0][0], c->us[0][1]);
        snprintf(line.comment, sizeof line.comment, "%.63s", times);
        memcpy(line.ranks, measured.ranks, sizeof line.ranks);
        memcpy(line.hosts, measured.hosts, sizeof line.hosts);
        span(t->o, op, c, &cells[next - 1], line.bytes);
        line.any_bytes = op == COLL_BARRIER;
        if (i == 0)
            line.bytes[0] = measured.bytes[0];
        if (next == count)
            line.bytes[1] = measured.bytes[1];
        fresh[n++] = line;
    }
    return drop_lines(&t->tune, &measured) < 0 ? -1 : insert_lines(&t->tune, fresh, n);
}

/* ---- the report ---- */

static void print_cell(const tuner_t *t, const cell_t *cell)
{
    char size[BASE_SIZE_TEXT], name[48], own[48], second[64] = "-";
    int runner = -1;
    for (int i = 0; i < cell->n; i++)
        if (i != cell->best && cell->us[i][0] > 0 && (runner < 0 || cell->ratio[i] < cell->ratio[runner]))
            runner = i;
    own_name(cell, own, sizeof own);
    snprintf(name, sizeof name, "%s", own);
    if (cell->best)
        name_of(&cell->what[cell->best], name, sizeof name);
    if (runner == 0)
        snprintf(second, sizeof second, "%s (own choice)", own);
    else if (runner > 0)
        name_of(&cell->what[runner], second, sizeof second);
    printf("%-14s  %8s  %-22s  %9.2f  %9.2f  %-8s  %-28s  %9.2f  %9.2f\n", t->c.coll->name,
           base_size_text(cell->bytes, size), name, cell->us[cell->best][0], cell->us[cell->best][1],
           cell->best ? "line" : "own", second, runner < 0 ? 0.0 : cell->us[runner][0],
           runner < 0 ? 0.0 : cell->us[runner][1]);
    fflush(stdout);
    if (!t->session.json)
        return;
    json_t *row = json_object(), *all = json_array();
    for (int i = 0; i < cell->n; i++) {
        if (i)
            name_of(&cell->what[i], name, sizeof name);
        json_t *ratio = isfinite(cell->ratio[i]) ? json_real(cell->ratio[i]) : json_null();
        (void)json_array_append_new(all,
                                    json_pack("{s:s, s:f, s:f, s:o}", "name", i ? name : own, "window_us",
                                              cell->us[i][0], "malloc_us", cell->us[i][1], "ratio", ratio));
    }
    perf_put(row, "collective", json_string(t->c.coll->name));
    perf_put(row, "size", json_integer((json_int_t)cell->bytes));
    perf_put(row, "best", json_integer(cell->best));
    perf_put(row, "candidates", all);
    (void)json_array_append_new(json_object_get(t->session.json, "results"), row);
}

static void print_costs(const coll_tune_t *tune)
{
    for (int i = 0; i < coll_cost_field_count; i++) {
        const coll_cost_field_t *f = &coll_cost_fields[i];
        const double value = coll_cost_get(&tune->cost, f);
        if (value > 0)
            printf("# %-12s %10.*f %-5s %s\n", f->name, f->kind == 'd' ? 2 : 0, value, f->unit, f->meaning);
    }
    if (tune->busy.stretch > 0)
        printf(
            "# others had the cores: this took %.1f times the time of the best samples; a later job measures "
            "again\n",
            tune->busy.stretch);
}

/* ---- the run ---- */

/* Facts that need a job: a call that exchanges nothing, and a message there. */
static gyre_status_t measure_calls(tuner_t *t)
{
    double call[15], pass[15], nothing = 0, all[64] = {0};
    gyre_comm_t *world = t->session.world;
    gyre_status_t status = GYRE_OK;
    const int usable = t->session.n <= comm_group_cores(t->comm->group) && t->session.n <= 64;
    coll_tune_line_t line = {.op = COLL_ALL_GATHER, .algo = COLL_DIRECT, .one_shot = -1, .any_bytes = 1};
    if (t->session.n == 1 || !usable) /* with cores to share these would be times of the scheduler */
        return GYRE_OK;
    status = coll_comm_pin(t->comm, &line);
    for (int round = -1; round < 15 && status == GYRE_OK; round++) {
        const base_time_t a = base_now();
        for (int i = 0; i < 500 && status == GYRE_OK; i++)
            status = gyre_all_reduce(&nothing, &nothing, 0, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), t->comm);
        const base_time_t b = base_now();
        for (int i = 0; i < 500 && status == GYRE_OK; i++)
            status = gyre_all_gather(&nothing, all, 1, GYRE_FLOAT64, t->comm);
        if (round >= 0) {
            call[round] = (double)(b - a) / 500;
            pass[round] = (double)(base_now() - b) / 500;
        }
        if (status == GYRE_OK)
            status = gyre_barrier(world);
    }
    if (status != GYRE_OK || t->session.n != 2)
        return status;
    coll_cost_t *cost = &t->tune.cost;
    cost->call = perf_median(call, 15);
    const double rest = perf_median(pass, 15) - cost->call - 3 * cost->step; /* a send, a receive, a copy */
    cost->message = rest > cost->line ? rest : cost->line;
    return GYRE_OK;
}

static gyre_status_t do_collective(tuner_t *t, const perf_coll_t *coll)
{
    cell_t *cells = calloc(CELLS_MOST, sizeof *cells);
    int count = 0;
    gyre_status_t status = cells ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the sizes");
    for (size_t bytes = t->o->min_bytes; status == GYRE_OK && count < CELLS_MOST;) {
        status = do_cell(t, coll, bytes, &cells[count]);
        const int empty =
            cells[count].bytes == 0 && coll->op != COLL_BARRIER; /* less than an element for each */
        if (status == GYRE_OK && !empty && t->session.rank == 0)
            print_cell(t, &cells[count]);
        count += !empty;
        if (coll->op == COLL_BARRIER || bytes > t->o->max_bytes / (size_t)t->o->factor)
            break;
        bytes *= (size_t)t->o->factor;
    }
    if (status == GYRE_OK && t->session.rank == 0 && add_lines(t, coll->op, cells, count) < 0)
        fprintf(stderr, "gyre-perf: the tuning file is full (%d lines); not all of %s has found place\n",
                COLL_TUNE_LINES_MOST, coll->name);
    free(cells);
    return status;
}

static int wanted(const perf_coll_t *coll, int argc, char **argv, int words)
{
    if (coll->uneven || coll->op == COLL_SENDRECV) /* v-variants take the lines of the even ones */
        return 0;
    for (int i = words; i < argc; i++)
        if (perf_coll_find(argv[i]) == coll)
            return 1;
    return words == argc;
}

static gyre_status_t tune_all(tuner_t *t, int argc, char **argv, int words)
{
    gyre_status_t status = gyre_comm_split(t->session.world, 0, t->session.rank, &t->comm);
    if (status != GYRE_OK)
        return status;
    t->c.comm = t->comm;
    for (int kind = 0; kind < KINDS && status == GYRE_OK; kind++) {
        t->buffers_of[kind] =
            (perf_options_t){.max_bytes = t->o->max_bytes, .aggregate = 1, .windows = kind == 0};
        status = perf_buffers_create(&t->buffers_of[kind], &t->buffers[kind]);
    }
    if (status == GYRE_OK)
        status = measure_calls(t);
    if (status == GYRE_OK && t->session.rank == 0) {
        print_costs(&t->tune);
        printf("#\n# each size: the fastest, and the next; us with buffers from gyre_mem_alloc and from "
               "malloc\n");
        printf("# %-12s  %8s  %-22s  %9s  %9s  %-8s  %-28s  %9s  %9s\n", "collective", "size", "fastest",
               "window", "malloc", "written", "next", "window", "malloc");
    }
    for (int i = 0; i < perf_coll_count && status == GYRE_OK; i++)
        if (wanted(&perf_colls[i], argc, argv, words))
            status = do_collective(t, &perf_colls[i]);
    for (int kind = 0; kind < KINDS; kind++)
        perf_buffers_destroy(&t->buffers[kind]);
    if (status == GYRE_OK)
        status = gyre_comm_destroy(t->comm);
    return status;
}

/* Rank 0 alone, before the others spin in calls of its job: they sleep in gyre_init meanwhile. */
static gyre_status_t measure_machine(tuner_t *t, char *path)
{
    if (t->o->file)
        snprintf(path, COLL_TUNE_PATH, "%s", t->o->file);
    else
        coll_tune_cache_path(path);
    return comm_identity_rank_hint() == 0 ? coll_tune_refresh(path, &t->tune) : GYRE_OK;
}

static int run(tuner_t *t, int argc, char **argv, int words, int typed_count, char **typed)
{
    char path[COLL_TUNE_PATH];
    coll_tune_builtin(&t->tune);
    /* what a file says already must not end the run that is to write it anew */
    if (base_settings_set(SET_TUNE, "none", "flag --tune") != GYRE_OK || measure_machine(t, path) != GYRE_OK)
        return perf_usage(gyre_last_error());
    if (!path[0])
        return perf_usage(
            "--tune: neither XDG_CACHE_HOME nor HOME says where the cache is; name a file: --tune=FILE");
    int code = perf_session_open(&t->session, &t->o->common, "tuning", typed_count, typed);
    if (code != PERF_OK)
        return code;
    gyre_status_t status = GYRE_OK;
    if (t->session.n == 1) {
        print_costs(&t->tune);
        printf("# one rank has nothing to choose: under ucx-run -n N --tune also finds the fastest "
               "algorithms for N ranks\n");
    } else {
        status =
            perf_case_open(&t->c, t->session.world) ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory");
        if (status == GYRE_OK)
            status = tune_all(t, argc, argv, words);
        perf_case_close(&t->c);
    }
    if (status == GYRE_OK && t->session.rank == 0) {
        status = coll_tune_save(&t->tune, path);
        if (status == GYRE_OK)
            printf("# written to %s: %d choose lines\n", path, t->tune.nlines);
    }
    return perf_session_close(&t->session, status);
}

int perf_tune_main(int argc, char **argv, int typed_count, char **typed)
{
    options_t o = {.min_bytes = FIRST_BYTES,
                   .max_bytes = LAST_BYTES,
                   .factor = 4,
                   .rounds = 11,
                   .common = {.progress_thread = -1}};
    const flag_t rows[] = {
        {FLAG('b', "minbytes", SIZE, &o.min_bytes, "SIZE", "first size (8)")},
        {FLAG('e', "maxbytes", SIZE, &o.max_bytes, "SIZE", "last size (16M)")},
        {FLAG('f', "stepfactor", INT, &o.factor, "N", "multiplies from size to size (4)"), .low = 2,
         .high = 1024},
        {FLAG('n', "rounds", INT, &o.rounds, "N", "blocks of each candidate (11)"), .low = 1,
         .high = ROUNDS_MOST},
        PERF_COMMON_ROWS(&o.common),
    };
    const flags_t flags = {
        .program = "gyre-perf --tune",
        .usage =
            "usage: gyre-perf --tune[=FILE] [COLLECTIVE...] [options]      under ucx-run -n N, or alone\n"
            "Measures this machine again, and with several ranks which algorithm is fastest for each "
            "collective "
            "(or those\n"
            "named) and size. Writes the numbers and choose lines for this number of ranks to the tuning "
            "cache, or to FILE\n"
            "for GYRE_TUNE=FILE; lines for other numbers of ranks and hosts stay, and those for sizes that "
            "-b and -e leave out.\n",
        .notes = "--order: only canonical. docs/tuning.md describes the file.\n",
        FLAG_ROWS(rows)};
    static tuner_t t;
    char why[512];
    int words = 0;
    int code = perf_flags_read(&flags, argc, argv, &words, stdout, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    for (int i = words; i < argc && code == PERF_OK; i++)
        if (!perf_coll_find(argv[i])) {
            snprintf(why, sizeof why, "\"%s\" is no collective; --help lists them", argv[i]);
            code = PERF_USAGE;
        }
    if (code == PERF_OK && (o.min_bytes < 4 || o.min_bytes > o.max_bytes)) {
        snprintf(why, sizeof why,
                 "--tune: sizes from -b %zu to -e %zu: at least 4, and the first not above the last",
                 o.min_bytes, o.max_bytes);
        code = PERF_USAGE;
    }
    if (code == PERF_OK && o.common.order && strcmp(o.common.order, "canonical") != 0) {
        snprintf(why, sizeof why, "--tune: --order %s: only canonical; lines serve jobs of all orders",
                 o.common.order);
        code = PERF_USAGE;
    }
    if (code != PERF_OK)
        return perf_usage(why);
    o.common.order = "canonical"; /* whatever GYRE_ORDER says */
    o.file = !strncmp(argv[0], "--tune=", 7) && argv[0][7] ? argv[0] + 7 : NULL;
    t.o = &o;
    return run(&t, argc, argv, words, typed_count, typed);
}
