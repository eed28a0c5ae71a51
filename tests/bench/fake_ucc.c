/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/fake_ucc.c: a library with UCC's names for bench/backend_ucc.c: every collective is the
 * caller's own all-gather of the inputs, and a loop. It believes what the caller says of its buffers, so a
 * wrong count is a wrong result. */
#include <stdlib.h>
#include <string.h>

#include <ucc/api/ucc.h>

struct ucc_coll_req {
    ucc_coll_args_t args;
    ucc_team_h team;
    float *all;
    void *exchange;
};
struct ucc_team {
    ucc_oob_coll_t oob;
    void *exchange;
    uint32_t ranks[1024];
};

ucc_status_t ucc_lib_config_read(const char *prefix, const char *file, ucc_lib_config_h *config)
{
    *config = NULL;
    return prefix || file ? UCC_ERR_INVALID_PARAM : UCC_OK;
}
void ucc_lib_config_release(ucc_lib_config_h config)
{
    (void)config;
}
ucc_status_t ucc_init(const ucc_lib_params_t *params, const ucc_lib_config_h config, ucc_lib_h *lib)
{
    (void)config;
    *lib = NULL;
    return params->mask == UCC_LIB_PARAM_FIELD_THREAD_MODE ? UCC_OK : UCC_ERR_INVALID_PARAM;
}
ucc_status_t ucc_finalize(ucc_lib_h lib)
{
    (void)lib;
    return UCC_OK;
}
ucc_status_t ucc_context_config_read(ucc_lib_h lib, const char *file, ucc_context_config_h *config)
{
    (void)lib;
    *config = NULL;
    return file ? UCC_ERR_INVALID_PARAM : UCC_OK;
}
void ucc_context_config_release(ucc_context_config_h config)
{
    (void)config;
}
ucc_status_t ucc_context_create(ucc_lib_h lib, const ucc_context_params_t *params,
                                const ucc_context_config_h config, ucc_context_h *context)
{
    (void)lib;
    (void)config;
    *context = NULL;
    return params->oob.allgather && params->oob.oob_ep < params->oob.n_oob_eps ? UCC_OK
                                                                               : UCC_ERR_INVALID_PARAM;
}
ucc_status_t ucc_context_progress(ucc_context_h context)
{
    (void)context;
    return UCC_OK;
}
ucc_status_t ucc_context_destroy(ucc_context_h context)
{
    (void)context;
    return UCC_OK;
}

/* A team exchanges the ranks, which must come back in order. */
ucc_status_t ucc_team_create_post(ucc_context_h *contexts, uint32_t count, const ucc_team_params_t *params,
                                  ucc_team_h *team)
{
    (void)contexts;
    *team = calloc(1, sizeof **team);
    if (!*team || count != 1 || params->ep != params->oob.oob_ep || params->oob.n_oob_eps > 1024)
        return UCC_ERR_INVALID_PARAM;
    (*team)->oob = params->oob;
    return params->oob.allgather(&(*team)->oob.oob_ep, (*team)->ranks, sizeof(uint32_t),
                                 params->oob.coll_info, &(*team)->exchange);
}
ucc_status_t ucc_team_create_test(ucc_team_h team)
{
    ucc_status_t st = team->oob.req_test(team->exchange);
    if (st != UCC_OK)
        return st;
    for (uint32_t r = 0; r < team->oob.n_oob_eps; r++)
        if (team->ranks[r] != r)
            return UCC_ERR_NO_MESSAGE;
    return team->oob.req_free(team->exchange);
}
ucc_status_t ucc_team_destroy(ucc_team_h team)
{
    free(team);
    return UCC_OK;
}

ucc_status_t ucc_collective_init(ucc_coll_args_t *args, ucc_coll_req_h *request, ucc_team_h team)
{
    *request = calloc(1, sizeof **request);
    (*request)->args = *args;
    (*request)->team = team;
    (*request)->all = malloc((args->src.info.count + 1) * team->oob.n_oob_eps * sizeof(float));
    return args->root == 0 ? UCC_OK : UCC_ERR_INVALID_PARAM;
}
ucc_status_t ucc_collective_post(ucc_coll_req_h request)
{
    const ucc_coll_buffer_info_t *src = &request->args.src.info;
    return request->team->oob.allgather(src->buffer ? src->buffer : request->all, request->all,
                                        src->count * sizeof(float), NULL, &request->exchange);
}
ucc_status_t ucc_collective_test(ucc_coll_req_h request)
{
    const ucc_coll_args_t *a = &request->args;
    const size_t n = request->team->oob.n_oob_eps, me = request->team->oob.oob_ep, count = a->src.info.count;
    float *to = a->dst.info.buffer;
    ucc_status_t st = request->team->oob.req_test(request->exchange);
    if (st != UCC_OK)
        return st;
    request->team->oob.req_free(request->exchange);
    if (a->coll_type == UCC_COLL_TYPE_BCAST && count)
        memcpy(a->src.info.buffer, request->all, count * sizeof(float));
    for (size_t i = 0; i < a->dst.info.count; i++) {
        const size_t block = a->dst.info.count / n;
        if (a->coll_type == UCC_COLL_TYPE_ALLGATHER)
            to[i] = request->all[i];
        if (a->coll_type == UCC_COLL_TYPE_ALLTOALL)
            to[i] = request->all[i / block * count + me * block + i % block];
        if (a->coll_type == UCC_COLL_TYPE_ALLREDUCE || a->coll_type == UCC_COLL_TYPE_REDUCE_SCATTER) {
            const size_t first = a->coll_type == UCC_COLL_TYPE_ALLREDUCE ? 0 : me * a->dst.info.count;
            to[i] = 0;
            for (size_t r = 0; r < n; r++)
                to[i] += request->all[r * count + first + i];
        }
    }
    return UCC_OK;
}
ucc_status_t ucc_collective_finalize(ucc_coll_req_h request)
{
    free(request->all);
    free(request);
    return UCC_OK;
}

const char *ucc_status_string(ucc_status_t status)
{
    return status == UCC_OK ? "success" : "an error of the fake";
}
const char *ucc_get_version_string(void)
{
    return "0.0 fake";
}
