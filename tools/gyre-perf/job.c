/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/job.c: from a command line to a communicator, and out again. */
#include "tools/gyre-perf/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"

static gyre_status_t apply_settings(const perf_options_t *o)
{
    gyre_status_t status = base_settings_load();
    if (status == GYRE_OK && o->transport)
        status = base_settings_set(SET_TRANSPORT, o->transport, "flag --transport");
    if (status == GYRE_OK && o->order)
        status = base_settings_set(SET_ORDER, o->norders ? "canonical" : o->order, "flag --order");
    if (status == GYRE_OK && o->algo) {
        /* for the measured collective only: others carry the results together */
        char value[64] = "";
        if (strcmp(o->algo, "auto") != 0)
            snprintf(value, sizeof value, "%s:%s", coll_op_name(o->coll->op), o->algo);
        status = base_settings_set(SET_ALGO, value, "flag --algo");
    }
    return status;
}

int perf_tell_error(int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d: %s", rank, gyre_last_error());
    if (base_log_limit < BASE_LOG_ERROR)
        fprintf(stderr, "gyre-perf: %s\n", text);
    return PERF_ERROR;
}

int perf_job_open(int argc, char **argv, perf_options_t *o, gyre_comm_t **world, int *done)
{
    char why[512], error[1024];
    int code = perf_options_parse(argc, argv, o, stdout, why, sizeof why);
    *done = code < 0; /* --help or --version */
    if (code < 0)
        return PERF_OK;
    if (code == PERF_OK && apply_settings(o) != GYRE_OK) {
        perf_tell_unlogged();
        return PERF_USAGE;
    }
    const int devices = code == PERF_OK && o->cuda ? base_device_count(BASE_CUDA) : 0;
    if (code == PERF_OK && o->cuda && devices == 0) {
        if (o->gpus > 1)
            snprintf(why, sizeof why, "--ngpus %d: %s; ucx-run -n %d starts %d ranks on the host", o->gpus,
                     base_device_why_not(BASE_CUDA), o->gpus, o->gpus);
        else
            snprintf(why, sizeof why, "--memory cuda: %s", base_device_why_not(BASE_CUDA));
        code = PERF_USAGE;
    }
    if (code == PERF_OK && comm_identity_rank_hint() == 0 && /* before all is measured in vain */
        (!perf_can_write(o->json, why, sizeof why) || !perf_can_write(o->csv, why, sizeof why)))
        code = PERF_USAGE;
    if (code == PERF_OK && perf_groups_asked(0, why, sizeof why) == -1)
        code = PERF_USAGE;
    if (code != PERF_OK) {
        if (comm_identity_rank_hint() == 0)
            fprintf(stderr, "gyre-perf: %s\n", why);
        return code;
    }
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.timeout_s = o->timeout_s;
    if (gyre_init(&config, world) != GYRE_OK)
        return perf_tell_error(comm_identity_rank_hint(), error, sizeof error);
    /* 1 + the number of its device, which is this thread's from here on: no call opens a context on device
     * 0 */
    if (o->cuda) {
        o->cuda = 1 + gyre_comm_local_rank(*world) % devices;
        if (base_device_use((base_device_t){BASE_CUDA, o->cuda - 1}) != GYRE_OK)
            return perf_tell_error(gyre_comm_rank(*world), error, sizeof error);
    }
    if (o->gpus > 1 && gyre_comm_size(*world) > 1) {
        if (gyre_comm_rank(*world) == 0)
            fprintf(
                stderr,
                "gyre-perf: -g %d: all ranks are in one process then, and this job has %d: leave out -g (a "
                "process per rank) or start one process\n",
                o->gpus, gyre_comm_size(*world));
        return perf_job_close(*world, PERF_USAGE);
    }
    const int n = o->gpus > 1 ? o->gpus : gyre_comm_size(*world);
    if (!o->coll->rooted || o->root < n)
        return PERF_OK;
    if (gyre_comm_rank(*world) == 0)
        fprintf(stderr, "gyre-perf: -r %d: the ranks are 0..%d\n", o->root, n - 1);
    return perf_job_close(*world, PERF_USAGE);
}

int perf_job_close(gyre_comm_t *world, int code)
{
    char error[1024];
    const int rank = gyre_comm_rank(world);
    if (code == PERF_ERROR)
        return code;
    if (gyre_finalize(world) != GYRE_OK && code == PERF_OK)
        code = perf_tell_error(rank, error, sizeof error);
    return code;
}

int perf_case_open(perf_case_t *c, gyre_comm_t *comm)
{
    const int n = gyre_comm_size(comm), room = n < 2 ? 2 : n;
    *c = (perf_case_t){.comm = comm, .rank = gyre_comm_rank(comm), .n = n};
    size_t *arrays = calloc((size_t)room * 4, sizeof *arrays);
    if (!arrays) {
        fprintf(stderr, "gyre-perf: rank %d: no memory for the counts of %d ranks\n", c->rank, n);
        return 0;
    }
    c->counts = arrays;
    c->displs = arrays + room;
    c->rcounts = arrays + 2 * room;
    c->rdispls = arrays + 3 * room;
    return 1;
}

void perf_case_close(perf_case_t *c)
{
    free(c->counts);
    c->counts = NULL;
}
