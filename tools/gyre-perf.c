/* tools/gyre-perf.c: the communication benchmark: one collective, a range of sizes, every element checked.
 *
 * Measures with the public calls only, so its figures are what a program gets. The parts are in tools/gyre-perf/. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/bootstrap.h"

static gyre_status_t apply_settings(const perf_options_t *o)
{
    gyre_status_t status = base_settings_load();
    if (status == GYRE_OK && o->transport)
        status = base_settings_set(SET_TRANSPORT, o->transport, "flag --transport");
    if (status == GYRE_OK && o->order)
        status = base_settings_set(SET_ORDER, o->order, "flag --order");
    if (status == GYRE_OK && o->algo) {
        /* for the measured collective only: others carry the results together */
        char value[64] = "";
        if (strcmp(o->algo, "auto") != 0)
            snprintf(value, sizeof value, "%s:%s", coll_op_name(o->coll->op), o->algo);
        status = base_settings_set(SET_ALGO, value, "flag --algo");
    }
    return status;
}

/* All sizes of one type, reduction and root. */
static gyre_status_t sweep(const perf_options_t *o, perf_case_t *c, const perf_buffers_t *b, gyre_type_t type,
                           perf_op_t op, int root, perf_report_t *report)
{
    for (size_t size = o->min_bytes; size <= o->max_bytes;) {
        perf_result_t out_of_place = {0}, in_place = {0};
        perf_case_set(c, o->coll, type, op, root, size);
        gyre_status_t status = GYRE_OK;
        if (o->out_of_place)
            status = perf_measure(o, c, b, 0, &out_of_place);
        if (status == GYRE_OK && o->in_place && o->coll->in_place)
            status = perf_measure(o, c, b, 1, &in_place);
        if (status != GYRE_OK)
            return status;
        if (report)
            perf_report_row(report, c, &out_of_place, &in_place);
        if (o->coll->op == COLL_BARRIER)
            break;
        size_t step = o->step_factor > 1 ? (size ? size : 1) * ((size_t)o->step_factor - 1) : o->step_bytes;
        if (step == 0 || step > o->max_bytes - size)
            break;
        size += step;
    }
    return GYRE_OK;
}

static gyre_status_t run_all(const perf_options_t *o, perf_case_t *c, const perf_buffers_t *b,
                             perf_report_t *report)
{
    const int barrier = o->coll->op == COLL_BARRIER;
    const int first_root = !o->coll->rooted ? -1 : o->root < 0 ? 0 : o->root;
    const int last_root = !o->coll->rooted ? -1 : o->root < 0 ? c->n - 1 : o->root;
    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++) {
        for (int type = o->first_type; type <= (barrier ? o->first_type : o->last_type); type++) {
            for (int op = o->first_op; op <= (o->coll->reduces ? o->last_op : o->first_op); op++) {
                for (int root = first_root; root <= last_root; root++) {
                    gyre_status_t status = sweep(o, c, b, (gyre_type_t)type, (perf_op_t)op, root, report);
                    if (status != GYRE_OK)
                        return status;
                }
            }
        }
    }
    return GYRE_OK;
}

/* The error of this rank, kept: what cleans up afterwards may fail too. The library has told it, unless it was to be
 * silent. */
static int tell_error(int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d: %s", rank, gyre_last_error());
    if (base_log_limit < BASE_LOG_ERROR)
        fprintf(stderr, "gyre-perf: %s\n", text);
    return PERF_ERROR;
}

static int measure(gyre_comm_t *comm, const perf_options_t *o, int argc, char **argv)
{
    const int rank = gyre_comm_rank(comm), n = gyre_comm_size(comm);
    char error[1024];
    perf_machine_t machine = {0};
    perf_buffers_t buffers = {0};
    perf_report_t report = {0};
    size_t *arrays = calloc((size_t)n * 4, sizeof *arrays);
    int code = PERF_ERROR, reporting = 0;
    if (!arrays) {
        fprintf(stderr, "gyre-perf: rank %d: no memory for the counts of %d ranks\n", rank, n);
        return PERF_ERROR;
    }
    perf_case_t c = {.comm = comm,
                     .rank = rank,
                     .n = n,
                     .counts = arrays,
                     .displs = arrays + n,
                     .rcounts = arrays + 2 * n,
                     .rdispls = arrays + 3 * n};
    if (perf_buffers_create(o, &buffers) != GYRE_OK || perf_machine_probe(comm, &machine) != GYRE_OK) {
        tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    if (rank == 0) {
        perf_report_open(&report, o, argc, argv, comm, &machine);
        reporting = 1;
    }
    code = run_all(o, &c, &buffers, rank == 0 ? &report : NULL) == GYRE_OK
               ? PERF_OK
               : tell_error(rank, error, sizeof error);
    if (reporting) {
        int told = perf_report_close(&report, code == PERF_OK ? NULL : error);
        code = code == PERF_OK ? told : code;
    }
cleanup:
    perf_buffers_destroy(&buffers);
    perf_machine_free(&machine);
    free(arrays);
    return code;
}

static int run(int argc, char **argv, char **typed)
{
    perf_options_t options;
    char why[512], error[1024];
    int code = perf_options_parse(argc, argv, &options, stdout, why, sizeof why);
    if (code < 0)
        return PERF_OK;
    if (code == PERF_OK && apply_settings(&options) != GYRE_OK) {
        snprintf(why, sizeof why, "%s", gyre_last_error());
        code = PERF_USAGE;
    }
    if (code != PERF_OK) {
        if (comm_identity_rank_hint() == 0)
            fprintf(stderr, "gyre-perf: %s\n", why);
        return code;
    }
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.timeout_s = options.timeout_s;
    gyre_comm_t *world = NULL;
    if (gyre_init(&config, &world) != GYRE_OK)
        return tell_error(comm_identity_rank_hint(), error, sizeof error);
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    if (options.coll->rooted && options.root >= n) {
        if (rank == 0)
            fprintf(stderr, "gyre-perf: -r %d: the ranks are 0..%d\n", options.root, n - 1);
        code = PERF_USAGE;
    } else {
        code = measure(world, &options, argc, typed);
    }
    if (code == PERF_ERROR) /* the others learn it from the library; nothing to wait for */
        return code;
    if (gyre_finalize(world) != GYRE_OK && code == PERF_OK)
        code = tell_error(rank, error, sizeof error);
    return code;
}

int main(int argc, char **argv)
{
    char **typed =
        calloc((size_t)argc + 1, sizeof *typed); /* getopt reorders argv; the report shows what was typed */
    if (!typed) {
        fprintf(stderr, "gyre-perf: no memory\n");
        return PERF_ERROR;
    }
    memcpy(typed, argv, (size_t)argc * sizeof *typed);
    int code = run(argc, argv, typed);
    free(typed);
    return code;
}
