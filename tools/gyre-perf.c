/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf.c: the communication benchmark: one collective, a range of sizes, every element checked.
 *
 * Measures with the public calls only, so its figures are what a program gets. The parts are in
 * tools/gyre-perf/, the subcommands among them. */
#include "base/device/device.h"
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const perf_options_t *o;
    perf_case_t c;
    perf_buffers_t buffers;
    gyre_comm_t *orders[PERF_ORDERS]; /* of --order canonical,fast */
    perf_report_t *report;            /* NULL: another rank's */
} job_t;

static gyre_status_t measure_row(void *user, gyre_type_t type, perf_op_t op, int root, size_t size)
{
    job_t *j = user;
    const perf_options_t *o = j->o;
    perf_result_t out_of_place = {0}, in_place = {0};
    gyre_status_t status = GYRE_OK;
    perf_case_set(&j->c, o->coll, type, op, root, size);
    if (o->norders)
        return perf_orders_row(o, &j->c, j->orders, &j->buffers, j->report);
    if (o->out_of_place)
        status = perf_measure(o, &j->c, &j->buffers, 0, &out_of_place);
    if (status == GYRE_OK && o->in_place && o->coll->in_place)
        status = perf_measure(o, &j->c, &j->buffers, 1, &in_place);
    if (status == GYRE_OK && j->report)
        perf_report_row(j->report, &j->c, &out_of_place, &in_place);
    return status;
}

static int measure(gyre_comm_t *comm, const perf_options_t *o, int argc, char **argv)
{
    const int rank = gyre_comm_rank(comm);
    char error[1024];
    perf_machine_t machine = {0};
    perf_report_t report = {0};
    job_t j = {.o = o};
    int code = PERF_ERROR;
    perf_cold_t cold = {0};
    perf_streams_t streams = {0};
    if (!perf_case_open(&j.c, comm))
        return PERF_ERROR;
    if (perf_buffers_create(o, &j.buffers) != GYRE_OK || perf_machine_probe(comm, &machine) != GYRE_OK ||
        (o->norders && perf_orders_open(o, comm, j.orders) != GYRE_OK) ||
        (o->cold && perf_cold_open(&cold) != GYRE_OK) ||
        (o->streams > 1 && perf_streams_open(comm, o->streams, o->aggregate, &streams) != GYRE_OK)) {
        perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    gyre_status_t ready = perf_memory_ready(&j.buffers, comm);
    for (int i = 0; i < streams.count && ready == GYRE_OK; i++)
        ready = perf_memory_ready(&j.buffers, streams.comms[i]);
    if (ready == GYRE_OK && o->registered)
        ready = perf_memory_register(o, &j.buffers, comm);
    if (ready != GYRE_OK) {
        perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    j.c.stream = j.buffers.stream;
    j.c.cold = o->cold ? &cold : NULL;
    j.c.streams = o->streams > 1 ? &streams : NULL;
    if (rank == 0) {
        perf_report_open(&report, o, argc, argv, comm, &machine);
        j.report = &report;
    }
    code = perf_each_row(o, j.c.n, measure_row, &j) == GYRE_OK ? PERF_OK
                                                               : perf_tell_error(rank, error, sizeof error);
    if (j.report) {
        int told = perf_report_close(&report, code == PERF_OK ? NULL : error);
        code = code == PERF_OK ? told : code;
    }
cleanup:
    for (int k = 0; k < o->norders; k++)
        if (code != PERF_ERROR && gyre_comm_destroy(j.orders[k]) != GYRE_OK)
            code = perf_tell_error(rank, error, sizeof error);
    if (code != PERF_ERROR && perf_streams_close(&streams) != GYRE_OK)
        code = perf_tell_error(rank, error, sizeof error);
    perf_cold_close(&cold);
    perf_buffers_destroy(&j.buffers);
    perf_machine_free(&machine);
    perf_case_close(&j.c);
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
