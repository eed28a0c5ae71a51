/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf.c: the communication benchmark: one collective, a range of sizes, every element checked.
 *
 * Measures with the public calls only, so its figures are what a program gets. The parts are in
 * tools/gyre-perf/, the subcommands among them. */
#include "base/device/device.h"
#include "base/settings/size.h"
#include "tools/gyre-perf/perf.h"
#include "tools/shared/output.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const perf_options_t *o;
    perf_case_t c;
    perf_buffers_t buffers;
    gyre_comm_t *orders[PERF_ORDERS]; /* of --order canonical,fast */
    perf_report_t *report;            /* NULL: another rank's */
    perf_groups_t *groups;            /* NULL: all ranks are one */
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
    if (j->groups)
        status = gyre_barrier(j->groups->world);
    if (status == GYRE_OK && o->out_of_place)
        status = perf_measure(o, &j->c, &j->buffers, 0, &out_of_place);
    if (status == GYRE_OK && o->in_place && o->coll->in_place)
        status = perf_measure(o, &j->c, &j->buffers, 1, &in_place);
    if (status == GYRE_OK && j->report)
        perf_report_row(j->report, &j->c, &out_of_place, &in_place);
    if (status == GYRE_OK && j->groups)
        status = perf_groups_row(j->groups, &out_of_place, &in_place);
    return status;
}

/* After the table, on rank 0. */
static void print_memory(const perf_memory_use_t *use, json_t *json)
{
    char shared[BASE_SIZE_TEXT], own[BASE_SIZE_TEXT], peak[BASE_SIZE_TEXT];
    printf("# Memory, most of any rank : communicator %s shared and %s of its own; process %s at its peak\n",
           base_size_about((double)use->shared_bytes, shared),
           base_size_about((double)use->private_bytes, own), base_size_about((double)use->peak_bytes, peak));
    if (json)
        perf_put(json, "memory",
                 json_pack("{s:I, s:I, s:I}", "shared_bytes", (json_int_t)use->shared_bytes, "private_bytes",
                           (json_int_t)use->private_bytes, "peak_bytes", (json_int_t)use->peak_bytes));
}

/* world: all ranks; comm: those of this rank's group, which are all but for NCCL_TESTS_SPLIT. ranks: of the
 * smallest group. */
static int measure(gyre_comm_t *world, gyre_comm_t *comm, int ranks, perf_groups_t *groups,
                   const perf_options_t *o, int argc, char **argv)
{
    const int rank = gyre_comm_rank(world);
    char error[1024];
    perf_machine_t machine = {0};
    perf_memory_use_t use;
    perf_report_t report = {0};
    job_t j = {.o = o, .groups = groups};
    int code = PERF_ERROR;
    perf_cold_t cold = {0};
    perf_streams_t streams = {0};
    if (!perf_case_open(&j.c, comm))
        return PERF_ERROR;
    if (perf_buffers_fit(o, gyre_comm_local_rank(world), gyre_comm_local_size(world)) != GYRE_OK ||
        perf_machine_probe(world, o->iters, &machine) != GYRE_OK) {
        perf_tell_error(rank, error, sizeof error);
        goto cleanup;
    }
    if (rank == 0) { /* filling large buffers takes a while */
        for (int r = 0; groups && r < groups->n; r++)
            machine.ranks[r].group = (int32_t)groups->of[r];
        perf_report_open(&report, o, argc, argv, world, &machine);
        j.report = &report;
    }
    if (perf_buffers_create(o, &j.buffers) != GYRE_OK ||
        (o->norders && perf_orders_open(o, comm, j.orders) != GYRE_OK) ||
        (o->cold && perf_cold_open(&cold) != GYRE_OK) ||
        (o->streams > 1 && perf_streams_open(comm, o->streams, o->aggregate, &streams) != GYRE_OK)) {
        perf_tell_error(rank, error, sizeof error);
        goto report;
    }
    gyre_status_t status = perf_memory_ready(&j.buffers, comm);
    for (int i = 0; i < streams.count && status == GYRE_OK; i++)
        status = perf_memory_ready(&j.buffers, streams.comms[i]);
    if (status == GYRE_OK && o->registered)
        status = perf_memory_register(o, &j.buffers, comm);
    j.c.stream = j.buffers.stream;
    j.c.cold = o->cold ? &cold : NULL;
    j.c.streams = o->streams > 1 ? &streams : NULL;
    if (status == GYRE_OK)
        status = perf_each_row(o, ranks, measure_row, &j);
    if (status == GYRE_OK && o->memory)
        status = perf_memory_use(world, comm, &use);
    code = status == GYRE_OK ? PERF_OK : perf_tell_error(rank, error, sizeof error);
report:
    if (j.report) {
        if (code == PERF_OK && groups)
            perf_groups_print(groups, &machine, report.json);
        report.nwrong += groups ? groups->nwrong : 0;
        if (code == PERF_OK && o->memory)
            print_memory(&use, report.json);
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

/* In the groups that the environment asks for, if it does. */
static int measure_groups(gyre_comm_t *world, const perf_options_t *o, int argc, char **argv)
{
    char why[256];
    const int rank = gyre_comm_rank(world), group = perf_groups_asked(rank, why, sizeof why);
    if (group == PERF_ONE_GROUP)
        return measure(world, world, gyre_comm_size(world), NULL, o, argc, argv);
    perf_groups_t groups;
    int code = PERF_ERROR, least = 0;
    gyre_status_t status = perf_groups_open(world, group, &groups);
    if (status == GYRE_OK) {
        least = gyre_comm_size(groups.part);
        status = gyre_all_reduce(&least, &least, 1, GYRE_INT32, GYRE_OP(GYRE_MIN), world);
    }
    if (status == GYRE_OK && o->coll->rooted && o->root >= least) {
        snprintf(why, sizeof why, "-r %d: the smallest group has the ranks 0..%d", o->root, least - 1);
        code = PERF_USAGE;
    } else if (status == GYRE_OK && o->norders) {
        snprintf(why, sizeof why, "--order %s: one order at a time, and no leaves, with NCCL_TESTS_SPLIT",
                 o->order);
        code = PERF_USAGE;
    } else if (status == GYRE_OK) {
        code = measure(world, groups.part, least, &groups, o, argc, argv);
    }
    if (code == PERF_USAGE && rank == 0)
        fprintf(stderr, "gyre-perf: %s\n", why);
    if (status != GYRE_OK)
        code = perf_tell_error(rank, why, sizeof why);
    if (perf_groups_close(&groups, code == PERF_ERROR) != GYRE_OK)
        code = perf_tell_error(rank, why, sizeof why);
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
                                                  : measure_groups(world, &options, argc, typed));
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
    return output_end("gyre-perf", code, PERF_ERROR);
}
