/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/session.c: what a subcommand does before and after its measuring: settings, joining the
 * job, the head of table and JSON, totals, leaving. */
#include "tools/gyre-perf/command.h"

#include <inttypes.h>

#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "comm/boot/bootstrap.h"

int perf_usage(const char *why)
{
    if (comm_identity_rank_hint() == 0)
        fprintf(stderr, "gyre-perf: %s\n", why);
    return PERF_USAGE;
}

static int tell_error(perf_session_t *s, int rank)
{
    return perf_tell_error(rank, s->error, sizeof s->error);
}

static gyre_status_t join(perf_session_t *s, int progress_thread)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.timeout_s = s->common->timeout_s;
    config.progress_thread = progress_thread;
    gyre_status_t status = gyre_init(&config, &s->world);
    if (status != GYRE_OK)
        return status;
    s->rank = gyre_comm_rank(s->world);
    s->n = gyre_comm_size(s->world);
    return GYRE_OK;
}

static gyre_status_t leave(perf_session_t *s)
{
    gyre_comm_t *world = s->world;
    s->world = NULL;
    return gyre_finalize(world);
}

int perf_session_open(perf_session_t *s, const perf_common_t *common, const char *title, int typed_count,
                      char **typed)
{
    *s = (perf_session_t){.common = common};
    if (comm_identity_rank_hint() == 0 && !perf_can_write(common->json, s->error, sizeof s->error))
        return perf_usage(s->error);
    gyre_status_t status = base_settings_load();
    if (status == GYRE_OK && common->transport)
        status = base_settings_set(SET_TRANSPORT, common->transport, "flag --transport");
    if (status == GYRE_OK && common->order)
        status = base_settings_set(SET_ORDER, common->order, "flag --order");
    if (status != GYRE_OK) {
        perf_tell_unlogged();
        return PERF_USAGE;
    }
    if (join(s, common->progress_thread) != GYRE_OK)
        return tell_error(s, comm_identity_rank_hint());
    /* the others learn it from the library */
    if (perf_machine_probe(s->world, PERF_FEW_ITERS, &s->machine) != GYRE_OK)
        return tell_error(s, s->rank);
    if (s->rank != 0)
        return PERF_OK;
    printf("# gyre-perf %s: %s\n", gyre_version(), title);
    perf_print_ranks(s->n, &s->machine);
    printf("# transport %s, order %s, kernels %s\n", base_setting_string(SET_TRANSPORT),
           base_setting_string(SET_ORDER), coll_kernel_isa());
    perf_print_machine(&s->machine);
    fflush(stdout);
    if (common->json) {
        json_t *config = json_object();
        perf_config_machine(config, &s->machine);
        s->json = perf_json_open(typed_count, typed, s->n, &s->machine, config);
    }
    return PERF_OK;
}

gyre_status_t perf_session_rejoin(perf_session_t *s, int progress_thread)
{
    gyre_status_t status = leave(s);
    return status == GYRE_OK ? join(s, progress_thread) : status;
}

int perf_session_close(perf_session_t *s, gyre_status_t status)
{
    int code = s->nwrong ? PERF_WRONG : PERF_OK;
    if (status != GYRE_OK)
        code = tell_error(s, s->rank);
    if (s->rank == 0 && code != PERF_ERROR)
        printf("# %-20s : %" PRIu64 " %s\n", "Out of bounds values", s->nwrong, s->nwrong ? "FAILED" : "OK");
    if (s->json)
        code = perf_json_close(s->json, s->common->json, s->nwrong, *s->error ? s->error : NULL, code);
    s->json = NULL;
    fflush(stdout);
    perf_machine_free(&s->machine);
    if (code == PERF_ERROR || !s->world) /* the others learn it from the library; nothing to wait for */
        return code;
    if (leave(s) != GYRE_OK && code == PERF_OK)
        code = tell_error(s, s->rank);
    return code;
}
