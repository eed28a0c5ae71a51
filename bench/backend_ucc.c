/* SPDX-License-Identifier: Apache-2.0 */
/* bench/backend_ucc.c: UCC (Unified Collective Communication, over UCX), for the benchmark loop (peers.h).
 * Arguments: RANK SIZE DIRECTORY. UCC asks its caller for an all-gather to set up contexts and teams: here
 * each rank writes a file into the directory and reads those of the others. */
#include "bench/peers.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucc/api/ucc.h>

static int rank, size, shares_cores;
static const char *directory;
static ucc_lib_h lib;
static ucc_context_h context;
static ucc_team_h world;

/* ---- the all-gather ------------------------------------------------------------------------------------ */

typedef struct {
    unsigned number; /* of the exchange: all ranks make the same ones */
    int next;        /* the rank whose part is read next */
    size_t bytes;
    char *parts;
} exchange_t;

static void path_of(char *path, size_t bytes, unsigned number, int of, const char *end)
{
    snprintf(path, bytes, "%s/%u.%d%s", directory, number, of, end);
}

static ucc_status_t exchange_start(void *mine, void *all, size_t bytes, void *unused, void **request)
{
    static unsigned exchanges;
    char unfinished[512], path[512];
    exchange_t *x = malloc(sizeof *x);
    (void)unused;
    if (!x)
        return UCC_ERR_NO_MEMORY;
    *x = (exchange_t){exchanges++, 0, bytes, all};
    path_of(unfinished, sizeof unfinished, x->number, rank, ".new");
    path_of(path, sizeof path, x->number, rank, "");
    FILE *f = fopen(unfinished, "wb");
    int good = f && fwrite(mine, 1, bytes, f) == bytes;
    good = f && fclose(f) == 0 && good;
    if (!good || rename(unfinished, path) != 0) {
        fprintf(stderr, "ucc: %s: %s\n", unfinished, strerror(errno));
        free(x);
        return UCC_ERR_NO_RESOURCE;
    }
    *request = x;
    return UCC_OK;
}

static ucc_status_t exchange_test(void *request)
{
    exchange_t *x = request;
    for (char path[512]; x->next < size; x->next++) {
        path_of(path, sizeof path, x->number, x->next, "");
        FILE *f = fopen(path, "rb");
        if (!f) {
            sched_yield();
            return errno == ENOENT ? UCC_INPROGRESS : UCC_ERR_NO_RESOURCE;
        }
        const size_t got = fread(x->parts + (size_t)x->next * x->bytes, 1, x->bytes, f);
        fclose(f);
        if (got != x->bytes)
            return UCC_ERR_NO_MESSAGE;
    }
    return UCC_OK;
}

static ucc_status_t exchange_free(void *request)
{
    free(request);
    return UCC_OK;
}

static ucc_oob_coll_t exchange(void)
{
    return (ucc_oob_coll_t){.allgather = exchange_start,
                            .req_test = exchange_test,
                            .req_free = exchange_free,
                            .n_oob_eps = (uint32_t)size,
                            .oob_ep = (uint32_t)rank};
}

/* ---- joining, and communicators ------------------------------------------------------------------------ */

static void go_on(void)
{
    if (shares_cores)
        sched_yield();
    ucc_context_progress(context);
}

static ucc_status_t make_team(ucc_team_h *team)
{
    ucc_team_params_t params = {
        .ep = (uint64_t)rank, .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG, .oob = exchange()};
    params.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB;
    ucc_status_t st = ucc_team_create_post(&context, 1, &params, team);
    if (st != UCC_OK)
        return st;
    while ((st = ucc_team_create_test(*team)) == UCC_INPROGRESS)
        go_on();
    return st;
}

static ucc_status_t free_team(ucc_team_h team)
{
    ucc_status_t st;
    while ((st = ucc_team_destroy(team)) == UCC_INPROGRESS)
        go_on();
    return st;
}

static int start(int argc, char **argv, int *my_rank, int *ranks)
{
    ucc_lib_config_h lib_config;
    ucc_context_config_h config;
    ucc_lib_params_t lib_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE};
    if (argc != 3) {
        fprintf(stderr, "backend_ucc: wants RANK SIZE DIRECTORY\n");
        return 1;
    }
    rank = *my_rank = atoi(argv[0]);
    size = *ranks = atoi(argv[1]);
    directory = argv[2];
    cpu_set_t cores; /* of all ranks: none is bound */
    shares_cores = sched_getaffinity(0, sizeof cores, &cores) == 0 && size > CPU_COUNT(&cores);
    ucc_context_params_t params = {.mask = UCC_CONTEXT_PARAM_FIELD_TYPE | UCC_CONTEXT_PARAM_FIELD_OOB,
                                   .type = UCC_CONTEXT_SHARED,
                                   .oob = exchange()};
    ucc_status_t st = ucc_lib_config_read(NULL, NULL, &lib_config);
    if (st == UCC_OK) {
        st = ucc_init(&lib_params, lib_config, &lib);
        ucc_lib_config_release(lib_config);
    }
    if (st == UCC_OK && (st = ucc_context_config_read(lib, NULL, &config)) == UCC_OK) {
        st = ucc_context_create(lib, &params, config, &context);
        ucc_context_config_release(config);
    }
    if (st == UCC_OK)
        st = make_team(&world);
    if (st != UCC_OK)
        fprintf(stderr, "ucc: %s\n", ucc_status_string(st));
    return st != UCC_OK;
}

/* ---- the operations ------------------------------------------------------------------------------------ */

static int call(ucc_team_h team, ucc_coll_type_t type, float *send, size_t sent, float *recv, size_t received)
{
    ucc_coll_req_h request;
    ucc_coll_args_t args = {.coll_type = type, .op = UCC_OP_SUM};
    args.src.info = (ucc_coll_buffer_info_t){send, sent, UCC_DT_FLOAT32, UCC_MEMORY_TYPE_HOST};
    args.dst.info = (ucc_coll_buffer_info_t){recv, received, UCC_DT_FLOAT32, UCC_MEMORY_TYPE_HOST};
    ucc_status_t st = ucc_collective_init(&args, &request, team);
    if (st != UCC_OK)
        return st;
    st = ucc_collective_post(request);
    while (st >= UCC_OK && (st = ucc_collective_test(request)) == UCC_INPROGRESS)
        go_on();
    const ucc_status_t freed = ucc_collective_finalize(request);
    return st != UCC_OK ? st : freed;
}

static int all_reduce(float *send, float *recv, size_t count)
{
    return call(world, UCC_COLL_TYPE_ALLREDUCE, send, count, recv, count);
}

static int reduce_scatter(float *send, float *recv, size_t count)
{
    return call(world, UCC_COLL_TYPE_REDUCE_SCATTER, send, (size_t)size * count, recv, count);
}

static int all_gather(float *send, float *recv, size_t count)
{
    return call(world, UCC_COLL_TYPE_ALLGATHER, send, count, recv, (size_t)size * count);
}

static int broadcast(float *send, float *recv, size_t count)
{
    (void)send;
    return call(world, UCC_COLL_TYPE_BCAST, recv, count, NULL, 0);
}

static int all_to_all(float *send, float *recv, size_t count)
{
    return call(world, UCC_COLL_TYPE_ALLTOALL, send, (size_t)size * count, recv, (size_t)size * count);
}

static int barrier(float *send, float *recv, size_t count)
{
    (void)count;
    return call(world, UCC_COLL_TYPE_BARRIER, send, 0, recv, 0);
}

static int first_call(float *send, float *recv, size_t count)
{
    ucc_team_h team;
    int st = make_team(&team);
    if (st != UCC_OK)
        return st;
    if (count)
        st = call(team, UCC_COLL_TYPE_ALLREDUCE, send, count, recv, count);
    const int freed = free_team(team);
    return st != UCC_OK ? st : freed;
}

static int split(float *send, float *recv, size_t count)
{
    (void)count;
    return first_call(send, recv, 0);
}

static const char *error(int code)
{
    return ucc_status_string((ucc_status_t)code);
}

static const char *version(void)
{
    static char text[64];
    snprintf(text, sizeof text, "UCC %s", ucc_get_version_string());
    return text;
}

static void finish(void)
{
    free_team(world);
    ucc_context_destroy(context);
    ucc_finalize(lib);
}

const bench_backend_t bench_backend = {
    .init = start,
    .call = {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, split, first_call},
    .error = error,
    .version = version,
    .finalize = finish,
};
