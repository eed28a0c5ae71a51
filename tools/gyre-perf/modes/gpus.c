/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/modes/gpus.c: -g N: N ranks in this one process (gyre_cuda_comms_create), on a GPU each,
 * or in turns on the present ones.
 *
 * As nccl-tests do it: one thread makes the call of every rank within a group, and an iteration lasts until
 * all ranks have their result. A time is thus that of the whole process, and includes the launches of all
 * ranks; -m divides the cost of one wait among several operations. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "base/error.h"

typedef struct {
    gyre_comm_t *comm;
    perf_case_t c;
    perf_buffers_t buffers;
    perf_place_t place;
} gpu_t;

typedef struct {
    const perf_options_t *o;
    int n;
    gpu_t *gpu; /* [n] */
    perf_report_t report;
} gpus_t;

static int device_of(int rank)
{
    return rank % base_device_count(BASE_CUDA);
}

static void close_gpus(gpus_t *g)
{
    for (int r = 0; r < g->n; r++) {
        perf_memory_unregister(&g->gpu[r].buffers);
        if (g->gpu[r].comm)
            (void)gyre_comm_destroy(g->gpu[r].comm); /* the library logs its errors */
        perf_case_close(&g->gpu[r].c);
    }
    for (int r = 0; r < g->n; r++)
        perf_buffers_destroy(&g->gpu[r].buffers);
    free(g->gpu);
}

static gyre_status_t open_gpus(gpus_t *g)
{
    gyre_comm_t **comms = calloc((size_t)g->n, sizeof *comms);
    int *devices = calloc((size_t)g->n, sizeof *devices);
    gyre_status_t status = GYRE_OK;
    if (!comms || !devices)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", g->n);
    for (int r = 0; r < g->n && status == GYRE_OK; r++)
        devices[r] = device_of(r);
    if (status == GYRE_OK)
        status = gyre_cuda_comms_create(g->n, devices, comms);
    for (int r = 0; r < g->n && status == GYRE_OK; r++)
        g->gpu[r].comm = comms[r];
    free(comms);
    free(devices);
    for (int r = 0; r < g->n && status == GYRE_OK; r++) {
        perf_options_t mine = *g->o;
        mine.cuda = 1 + device_of(r);
        status = perf_buffers_create(&mine, &g->gpu[r].buffers);
        if (status == GYRE_OK && !perf_case_open(&g->gpu[r].c, g->gpu[r].comm))
            status = gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a case");
        if (status == GYRE_OK && g->o->registered)
            status = perf_memory_register(&mine, &g->gpu[r].buffers, g->gpu[r].comm);
    }
    return status;
}

/* Operation m of an iteration, of one rank. */
static gyre_status_t call(const gpu_t *gpu, int m)
{
    const perf_place_t *p = &gpu->place;
    const perf_case_t *c = &gpu->c;
    const size_t shift = (size_t)m * p->stride;
    unsigned char *send = p->send ? p->send + shift : NULL, *recv = p->recv ? p->recv + shift : NULL;
    if (c->coll->op != COLL_SENDRECV)
        return perf_case_run(c, send, recv);
    return perf_case_enqueue(c, send, recv, base_stream_native(gpu->buffers.stream));
}

/* Collectives have ended with their group, messages with their streams. */
static gyre_status_t wait_for_messages(const gpus_t *g)
{
    gyre_status_t status = GYRE_OK;
    for (int r = 0; r < g->n && status == GYRE_OK; r++) {
        status = base_stream_wait(g->gpu[r].buffers.stream);
        if (status == GYRE_OK)
            status = gyre_comm_error(g->gpu[r].comm);
    }
    return status;
}

/* One iteration of all ranks. */
static gyre_status_t iterate(const gpus_t *g)
{
    gyre_status_t status = gyre_group_start();
    if (status != GYRE_OK)
        return status;
    for (int m = 0; m < g->o->aggregate; m++)
        for (int r = 0; r < g->n && status == GYRE_OK; r++)
            status = call(&g->gpu[r], m);
    const gyre_status_t ended = gyre_group_end(); /* with the error of a call, if one was refused */
    if (status != GYRE_OK || ended != GYRE_OK)
        return status == GYRE_OK ? ended : status;
    return g->o->coll->op == COLL_SENDRECV ? wait_for_messages(g) : GYRE_OK;
}

static gyre_status_t check(const gpus_t *g, int in_place, uint64_t *nwrong)
{
    int told = 0;
    for (int run = 0; run < g->o->check; run++) {
        gyre_status_t status = GYRE_OK;
        for (int r = 0; r < g->n && status == GYRE_OK; r++)
            status = perf_check_fill(g->o, &g->gpu[r].c, &g->gpu[r].place, in_place, run);
        if (status == GYRE_OK)
            status = iterate(g);
        for (int r = 0; r < g->n && status == GYRE_OK; r++)
            status = perf_check_look(g->o, &g->gpu[r].c, &g->gpu[r].place, in_place, run, nwrong, &told);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status_t measure(gpus_t *g, int in_place, perf_result_t *result)
{
    static perf_histogram_t h; /* 20 KiB, once */
    const perf_options_t *o = g->o;
    gyre_status_t status = GYRE_OK;
    *result = (perf_result_t){.ran = 1};
    perf_histogram_clear(&h);
    for (int r = 0; r < g->n && status == GYRE_OK; r++) {
        gpu_t *gpu = &g->gpu[r];
        gpu->place = perf_place(o, &gpu->c, &gpu->buffers, in_place);
        status = perf_fill_slots(o, &gpu->c, &gpu->place, in_place);
    }
    for (int i = 0; i < o->warmup && status == GYRE_OK; i++)
        status = iterate(g);
    base_time_t before = base_now(), timed = 0;
    for (int i = 0; i < o->iters && status == GYRE_OK; i++) {
        status = iterate(g);
        const base_time_t now = base_now();
        perf_histogram_add(&h, now - before);
        timed += now - before;
        before = now;
    }
    if (status != GYRE_OK)
        return status;
    perf_result_set(o, &g->gpu[0].c, &h, (double)timed * 1e-9 / o->iters / o->aggregate, result);
    if (o->check == 0)
        return GYRE_OK;
    result->checked = 1;
    return check(g, in_place, &result->nwrong);
}

static gyre_status_t measure_row(void *user, gyre_type_t type, perf_op_t op, int root, size_t size)
{
    gpus_t *g = user;
    const perf_options_t *o = g->o;
    perf_result_t out_of_place = {0}, in_place = {0};
    gyre_status_t status = GYRE_OK;
    for (int r = 0; r < g->n; r++)
        perf_case_set(&g->gpu[r].c, o->coll, type, op, root, size);
    if (o->out_of_place)
        status = measure(g, 0, &out_of_place);
    if (status == GYRE_OK && o->in_place && o->coll->in_place)
        status = measure(g, 1, &in_place);
    if (status == GYRE_OK)
        perf_report_row(&g->report, &g->gpu[0].c, &out_of_place, &in_place);
    return status;
}

/* The ranks as the report shows them: this process, so many times, each with its device. */
static gyre_status_t probe(gyre_comm_t *world, int n, int iters, perf_machine_t *m)
{
    gyre_status_t status = perf_machine_probe(world, iters, m);
    if (status != GYRE_OK)
        return status;
    perf_rank_info_t *all = calloc((size_t)n, sizeof *all);
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the names of %d ranks", n);
    for (int r = 0; r < n; r++) {
        all[r] = m->ranks[0];
        all[r].device = 1 + device_of(r);
        base_device_name((base_device_t){BASE_CUDA, device_of(r)}, all[r].device_name,
                         sizeof all[r].device_name);
    }
    free(m->ranks);
    m->ranks = all;
    return GYRE_OK;
}

int perf_gpus_measure(gyre_comm_t *world, const perf_options_t *o, int argc, char **argv)
{
    char error[1024];
    perf_machine_t machine = {0};
    gpu_t *gpu = calloc((size_t)o->gpus, sizeof *gpu);
    gpus_t g = {.o = o, .n = gpu ? o->gpus : 0, .gpu = gpu};
    gyre_status_t status =
        gpu ? open_gpus(&g) : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", o->gpus);
    int code = PERF_ERROR;
    if (status == GYRE_OK)
        status = probe(world, g.n, o->iters, &machine);
    if (status == GYRE_OK) {
        perf_report_open(&g.report, o, argc, argv, gpu[0].comm, &machine);
        status = perf_each_row(o, g.n, measure_row, &g);
        if (status != GYRE_OK)
            perf_tell_error(0, error, sizeof error);
        code = perf_report_close(&g.report, status == GYRE_OK ? NULL : error);
    } else {
        perf_tell_error(0, error, sizeof error);
    }
    close_gpus(&g);
    perf_machine_free(&machine);
    return code;
}
