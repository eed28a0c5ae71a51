/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf.c: the communication benchmark: one collective, a range of sizes, every element checked.
 *
 * Measures with the public calls only, so its figures are what a program gets. The parts are in
 * tools/gyre-perf/, the subcommands among them. */
#include "base/device/device.h"
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>
#include <string.h>

/* All sizes of one type, reduction and root. fast: NULL, or the communicator of --order canonical,fast. */
static gyre_status_t sweep(const perf_options_t *o, perf_case_t *c, const perf_buffers_t *b, gyre_type_t type,
                           perf_op_t op, int root, gyre_comm_t *fast, perf_report_t *report)
{
    for (size_t size = o->min_bytes;;) {
        perf_result_t out_of_place = {0}, in_place = {0};
        perf_case_set(c, o->coll, type, op, root, size);
        gyre_status_t status = GYRE_OK;
        if (fast)
            status = perf_orders_row(o, c, fast, b, report);
        else if (o->out_of_place)
            status = perf_measure(o, c, b, 0, &out_of_place);
        if (status == GYRE_OK && !fast && o->in_place && o->coll->in_place)
            status = perf_measure(o, c, b, 1, &in_place);
        if (status != GYRE_OK)
            return status;
        if (report && !fast)
            perf_report_row(report, c, &out_of_place, &in_place);
        if (!perf_next_size(o, &size))
            return GYRE_OK;
    }
}

static gyre_status_t run_all(const perf_options_t *o, perf_case_t *c, const perf_buffers_t *b,
                             gyre_comm_t *fast, perf_report_t *report)
{
    const int barrier = o->coll->op == COLL_BARRIER;
    const int first_root = !o->coll->rooted ? -1 : o->root < 0 ? 0 : o->root;
    const int last_root = !o->coll->rooted ? -1 : o->root < 0 ? c->n - 1 : o->root;
    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++) {
        for (int type = o->first_type; type <= (barrier ? o->first_type : o->last_type); type++) {
            for (int op = o->first_op; op <= (o->coll->reduces ? o->last_op : o->first_op); op++) {
                for (int root = first_root; root <= last_root; root++) {
                    gyre_status_t status =
                        sweep(o, c, b, (gyre_type_t)type, (perf_op_t)op, root, fast, report);
                    if (status != GYRE_OK)
                        return status;
                }
            }
        }
    }
    return GYRE_OK;
}

static int measure(gyre_comm_t *comm, const perf_options_t *o, int argc, char **argv)
{
    const int rank = gyre_comm_rank(comm);
    char error[1024];
    perf_machine_t machine = {0};
    perf_buffers_t buffers = {0};
    perf_report_t report = {0};
    gyre_comm_t *fast = NULL;
    int code = PERF_ERROR, reporting = 0;
    perf_case_t c;
    perf_cold_t cold = {0};
    perf_streams_t streams = {0};
    if (!perf_case_open(&c, comm))
        return PERF_ERROR;
    if (perf_buffers_create(o, &buffers) != GYRE_OK || perf_machine_probe(comm, &machine) != GYRE_OK ||
        (o->both_orders && perf_orders_open(comm, &fast) != GYRE_OK) ||
        (o->cold && perf_cold_open(&cold) != GYRE_OK) ||
        (o->streams > 1 && perf_streams_open(comm, o->streams, o->aggregate, &streams) != GYRE_OK)) {
        perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    gyre_status_t ready = perf_memory_ready(&buffers, comm);
    for (int i = 0; i < streams.count && ready == GYRE_OK; i++)
        ready = perf_memory_ready(&buffers, streams.comms[i]);
    if (ready == GYRE_OK && o->registered)
        ready = perf_memory_register(o, &buffers, comm);
    if (ready != GYRE_OK) {
        perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    c.stream = buffers.stream;
    c.cold = o->cold ? &cold : NULL;
    c.streams = o->streams > 1 ? &streams : NULL;
    if (rank == 0) {
        perf_report_open(&report, o, argc, argv, comm, &machine);
        reporting = 1;
    }
    code = run_all(o, &c, &buffers, fast, rank == 0 ? &report : NULL) == GYRE_OK
               ? PERF_OK
               : perf_tell_error(rank, error, sizeof error);
    if (reporting) {
        int told = perf_report_close(&report, code == PERF_OK ? NULL : error);
        code = code == PERF_OK ? told : code;
    }
cleanup:
    if (fast && code != PERF_ERROR && gyre_comm_destroy(fast) != GYRE_OK)
        code = perf_tell_error(rank, error, sizeof error);
    if (code != PERF_ERROR && perf_streams_close(&streams) != GYRE_OK)
        code = perf_tell_error(rank, error, sizeof error);
    perf_cold_close(&cold);
    perf_buffers_destroy(&buffers);
    perf_machine_free(&machine);
    perf_case_close(&c);
    return code;
}

static int run(int argc, char **argv, char **typed)
{
    const perf_command_t *command = argc > 1 ? perf_command_find(argv[1]) : NULL;
    if (command)
        return command->run(argc - 1, argv + 1, argc, typed);
    perf_options_t options;
    gyre_comm_t *world = NULL;
    int done = 0, code = perf_job_open(argc, argv, &options, &world, &done);
    if (code != PERF_OK || done)
        return code;
    return perf_job_close(world, options.gpus > 1 ? perf_gpus_measure(world, &options, argc, typed)
                                                  : measure(world, &options, argc, typed));
}

int main(int argc, char **argv)
{
    base_device_prepare_process();
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
