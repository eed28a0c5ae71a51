/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/team.c: communicators whose ranks are all in this process, one device (or a share of
 * one) each. The arenas are plain pointers, with peer access between devices, and everything else is the
 * direct path of collectives/gpu/shots/peers.c.
 *
 * Kernels wait here, not streams: those of one process run at once, also on one device, if each finds room
 * there. So the blocks of all ranks of a device together are no more than it has multiprocessors, if there
 * are enough, and never more than it holds at once; the same number on all ranks.
 *
 * Between the launches of one operation no rank may do alone what waits for a device: a kernel of a rank
 * whose peers' kernels come later would never end. That is loading kernels, and making and freeing memory.
 * All of it is done before the first call and after the last one. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"

/* What all ranks of a team have alike. */
typedef struct {
    int blocks;
    size_t region, engine_half, mail_at;
} plan_t;

static gyre_status_t use(int device)
{
    cudaError_t rc = cudaSetDevice(device);
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaSetDevice(%d)", device);
}

/* ---- what is possible ---------------------------------------------------------------------------------- */

static gyre_status_t no_device(int rank, int device)
{
    return gyre_fail(GYRE_ERR_INVALID,
                     "gyre_cuda_comms_create: devices[%d] is %d, and there are CUDA devices 0..%d", rank,
                     device, base_device_count(BASE_CUDA) - 1);
}

/* Where each rank works. devices NULL: dealt out one by one. */
static gyre_status_t place(coll_team_t *team, const int *devices)
{
    const int count = base_device_count(BASE_CUDA);
    for (int r = 0; r < team->n; r++) {
        const int device = devices ? devices[r] : r % count;
        if (device < 0 || device >= count)
            return no_device(r, device);
        team->rank[r].device = device;
    }
    for (int r = 0; r < team->n; r++)
        for (int other = 0; other < team->n; other++)
            team->rank[r].beside += team->rank[other].device == team->rank[r].device;
    return GYRE_OK;
}

static gyre_status_t room_on(const coll_team_rank_t *rank, int *blocks)
{
    int processors = 0, held = 0;
    gyre_status_t st = use(rank->device);
    if (st == GYRE_OK)
        st = coll_cuda_ask_processors(rank->device, &processors, &held);
    *blocks = coll_cuda_room(processors, held, rank->beside);
    return st;
}

static gyre_status_t make_plan(const coll_team_t *team, plan_t *plan)
{
    size_t ll;
    if (coll_cuda_ll_setting(&ll) != GYRE_OK)
        return GYRE_ERR_INVALID;
    plan->blocks = COLL_CUDA_BLOCKS;
    for (int r = 0; r < team->n; r++) {
        int room = 0, wanted = 0;
        gyre_status_t st = coll_cuda_wanted_blocks(team->rank[r].device, &wanted);
        if (st == GYRE_OK)
            st = room_on(&team->rank[r], &room);
        if (st != GYRE_OK)
            return st;
        if (room == 0)
            return gyre_fail(
                GYRE_ERR_UNSUPPORTED,
                "gyre_cuda_comms_create: CUDA device %d cannot run kernels of %d ranks at once; a process "
                "per rank (gyre_init) takes any number",
                team->rank[r].device, team->rank[r].beside);
        room = wanted < room ? wanted : room;
        plan->blocks = room < plan->blocks ? room : plan->blocks;
    }
    const size_t staging = (size_t)base_setting_int(SET_CUDA_STAGING),
                 least = 2 * COLL_CUDA_ALIGN * (size_t)team->n;
    plan->region = staging / (size_t)plan->blocks & ~(size_t)511;
    plan->engine_half = plan->region * (size_t)plan->blocks / 4 & ~(size_t)511;
    plan->mail_at = coll_cuda_arena_bytes(plan->region, plan->blocks, plan->engine_half);
    return plan->region >= least
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_INVALID,
                           "GYRE_CUDA_STAGING=%s is too little for %d ranks and %d blocks: %zu bytes "
                           "are needed",
                           base_setting_string(SET_CUDA_STAGING), team->n, plan->blocks,
                           base_round_up(least, 512) * (size_t)plan->blocks);
}

/* Each device reaches the memory of the others. */
static gyre_status_t open_access(const coll_team_t *team)
{
    for (int r = 0; r < team->n; r++)
        for (int other = 0; other < team->n; other++) {
            const int device = team->rank[r].device, peer = team->rank[other].device;
            int can = 0;
            if (device == peer)
                continue;
            gyre_status_t st = use(device);
            if (st != GYRE_OK)
                return st;
            cudaError_t rc = cudaDeviceCanAccessPeer(&can, device, peer);
            if (rc == cudaSuccess && !can)
                return gyre_fail(
                    GYRE_ERR_UNSUPPORTED,
                    "gyre_cuda_comms_create: CUDA device %d cannot reach the memory of device %d (no peer "
                    "access); a process per rank (gyre_init) goes through the host",
                    device, peer);
            if (rc == cudaSuccess)
                rc = cudaDeviceEnablePeerAccess(peer, 0);
            if (rc == cudaErrorPeerAccessAlreadyEnabled) { /* by an earlier pair, or by the program */
                (void)cudaGetLastError();
                rc = cudaSuccess;
            }
            if (rc != cudaSuccess)
                return coll_cuda_failed(rc, "cudaDeviceEnablePeerAccess(%d, 0) on device %d", peer, device);
        }
    return GYRE_OK;
}

/* ---- making and freeing -------------------------------------------------------------------------------- */

/* Rank r's, on the current device. */
static gyre_status_t make_arena(coll_team_t *team, int r, const plan_t *plan, cudaStream_t stream)
{
    const size_t bytes = plan->mail_at + coll_cuda_mail_bytes(plan->region * (size_t)plan->blocks, team->n);
    coll_team_rank_t *rank = &team->rank[r];
    cudaError_t rc = cudaMalloc((void **)&rank->arena, bytes);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaMalloc(%zu) on device %d for GYRE_CUDA_STAGING of rank %d", bytes,
                                rank->device, r);
    gyre_status_t st = coll_cuda_clear(rank->arena, COLL_CUDA_HEAD, stream);
    if (st == GYRE_OK && team->n > 1)
        st = coll_cuda_mail_clear(rank->arena + plan->mail_at, stream);
    return st;
}

static gyre_status_t make_arenas(coll_team_t *team, const plan_t *plan)
{
    gyre_status_t st = GYRE_OK;
    for (int r = 0; r < team->n && st == GYRE_OK; r++) {
        cudaStream_t stream; /* not the legacy one: coll_cuda_clear */
        st = use(team->rank[r].device);
        if (st != GYRE_OK)
            return st;
        cudaError_t rc = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (rc != cudaSuccess)
            return coll_cuda_failed(rc, "cudaStreamCreateWithFlags on device %d", team->rank[r].device);
        st = make_arena(team, r, plan, stream);
        (void)cudaStreamDestroy(stream);
    }
    return st;
}

/* The last communicator of the team has gone, and with it all that reads there. */
static void drop_arenas(coll_team_t *team)
{
    const base_device_t first = {BASE_CUDA, team->rank[0].device};
    int before;
    coll_cuda_team_plans_free(team);
    const gyre_status_t entered = base_device_enter(first, &before);
    for (int r = 0; r < team->n; r++)
        if (team->rank[r].arena &&
            (use(team->rank[r].device) != GYRE_OK || cudaFree(team->rank[r].arena) != cudaSuccess)) {
            (void)cudaGetLastError();
            log_info("the arena of rank %d on CUDA device %d could not be freed", r, team->rank[r].device);
        }
    if (entered == GYRE_OK) {
        (void)use(first.index); /* as leave wants it */
        base_device_leave(first, before);
    }
}

void coll_cuda_keep_arenas(coll_team_t *team)
{
    coll_team_lock(team);
    team->drop = NULL;
    coll_team_unlock(team);
}

/* Rank r's part on its device. The communicator owns it, whatever comes. */
static gyre_status_t make_part(gyre_comm_t *comm, const plan_t *plan)
{
    const coll_team_t *team = comm->team;
    coll_cuda_t *c = calloc(1, sizeof *c);
    if (!c)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator's part on a device");
    coll_cuda_attach(comm, c);
    c->comm = comm;
    c->device = team->rank[comm->rank].device;
    c->path = COLL_CUDA_PEERS;
    c->blocks = c->resident = plan->blocks;
    coll_cuda_ll_limit(c);
    c->region = plan->region;
    c->engine_half = plan->engine_half;
    c->mail_at = plan->mail_at;
    int same = 1, devices[COLL_CUDA_RANKS];
    for (int r = 0; r < team->n; r++)
        devices[r] = team->rank[r].device;
    for (int r = 0; r < team->n; r++) {
        c->uneven_links |= coll_cuda_uneven_links(devices[r], devices, team->n);
        c->arena[r] = team->rank[r].arena;
        same = same && team->rank[r].device == c->device;
    }
    snprintf(c->why, sizeof c->why, "all ranks are in one process%s; kernels wait",
             team->n > 1 && same ? " and share one device" : "");
    snprintf(c->messages, sizeof c->messages, "none, there is one rank");
    gyre_status_t st = use(c->device);
    if (st == GYRE_OK)
        st = coll_cuda_make_parts(c);
    if (st == GYRE_OK && team->n > 1)
        st = coll_cuda_make_rescue(c);
    if (st == GYRE_OK && team->n > 1)
        st = coll_cuda_mail_start(c); /* c->wait is NULL: kernels wait here, too */
    return st == GYRE_OK ? coll_cuda_guard_add(c) : st;
}

/* Of a device: where CUDA_DEVICE_MAX_CONNECTIONS is not set, or is no number from 1 on; and at most. */
enum { QUEUES = 8, QUEUES_MOST = 32 };

gyre_status_t coll_cuda_check_environment(const char *name, int device, int sharing)
{
    const char *blocking = base_env("CUDA_LAUNCH_BLOCKING");
    if (blocking && strcmp(blocking, "") != 0 && strcmp(blocking, "0") != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "%s: CUDA_LAUNCH_BLOCKING=%s has each launch wait for its kernel, which waits for "
                         "the kernels of the other ranks: none would end; unset it, or start a process per "
                         "rank (gyre_init)",
                         name, blocking);
    const char *queues = base_env("CUDA_DEVICE_MAX_CONNECTIONS");
    const long given = queues ? strtol(queues, NULL, 10) : 0;
    const int has = given <= 0 ? QUEUES : given < QUEUES_MOST ? (int)given : QUEUES_MOST;
    if (sharing > 1 && has < sharing)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "%s: %d ranks share CUDA device %d, whose streams have %d queue(s) "
                         "(CUDA_DEVICE_MAX_CONNECTIONS): kernels in one queue would wait for each other "
                         "forever; set it to %d before CUDA starts, or start a process per rank (gyre_init)",
                         name, sharing, device, has, QUEUES_MOST);
    if (sharing > 1 && has < QUEUES_MOST)
        log_warning("%s: %d ranks share CUDA device %d, whose streams have %d queues: with more streams, "
                    "kernels may wait for each other forever; set CUDA_DEVICE_MAX_CONNECTIONS=%d before CUDA "
                    "starts",
                    name, sharing, device, has, QUEUES_MOST);
    return GYRE_OK;
}

static gyre_status_t make_team(int n, const int *devices, coll_team_t *team, gyre_comm_t **comms)
{
    plan_t plan = {0};
    gyre_status_t st = place(team, devices);
    const coll_team_rank_t *most = &team->rank[0];
    for (int r = 1; r < n && st == GYRE_OK; r++)
        most = team->rank[r].beside > most->beside ? &team->rank[r] : most;
    if (st == GYRE_OK && n > 1)
        st = coll_cuda_check_environment("gyre_cuda_comms_create", most->device, most->beside);
    if (st == GYRE_OK)
        st = make_plan(team, &plan);
    if (st == GYRE_OK)
        st = open_access(team);
    if (st == GYRE_OK)
        st = make_arenas(team, &plan);
    for (int r = 0; r < n && st == GYRE_OK; r++) {
        st = coll_comm_make_member(team, r, &comms[r]);
        if (st == GYRE_OK)
            st = make_part(comms[r], &plan);
    }
    return st;
}

static gyre_status_t make_all(int n, const int *devices, gyre_comm_t **comms)
{
    coll_team_t *team = coll_team_create(n);
    if (!team)
        return GYRE_ERR_NO_MEMORY;
    team->drop = drop_arenas;
    gyre_status_t st = make_team(n, devices, team, comms);
    for (int r = 0; st != GYRE_OK && r < n; r++)
        if (comms[r])
            coll_comm_free(comms[r]);
    if (st == GYRE_OK)
        log_info("communicators of %d ranks in this process, on CUDA device %d and so on: %d blocks each", n,
                 team->rank[0].device, comms[0]->cuda->blocks);
    coll_team_release(team);
    return st;
}

gyre_status_t gyre_cuda_comms_create(int n, const int *devices, gyre_comm_t **comms)
{
    int before;
    if (!comms)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_cuda_comms_create: comms is NULL");
    if (n < 1 || n > COLL_CUDA_RANKS)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_cuda_comms_create: %d ranks are not 1..%d", n,
                         (int)COLL_CUDA_RANKS);
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_cuda_comms_create cannot be part of a group");
    gyre_status_t st = base_settings_load();
    if (st != GYRE_OK)
        return st;
    if (base_device_count(BASE_CUDA) == 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "gyre_cuda_comms_create: no CUDA device: %s",
                         base_device_why_not(BASE_CUDA));
    if (strcmp(base_setting_string(SET_CUDA_PATH), "staged") == 0)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "gyre_cuda_comms_create: GYRE_CUDA_PATH=staged, and ranks of one process work in each other's "
            "device memory only");
    const base_device_t first = {BASE_CUDA, devices ? devices[0] : 0};
    if (first.index < 0 || first.index >= base_device_count(BASE_CUDA))
        return no_device(0, first.index);
    st = base_device_primary(first);
    if (st != GYRE_OK)
        return st;
    gyre_comm_t **made = calloc((size_t)n, sizeof *made);
    if (!made)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d communicators", n);
    st = base_device_enter(first, &before);
    if (st == GYRE_OK) {
        st = make_all(n, devices, made);
        (void)use(first.index); /* as leave wants it */
        base_device_leave(first, before);
    }
    if (st == GYRE_OK)
        memcpy(comms, made, (size_t)n * sizeof *made);
    free(made);
    return st;
}

/* ---- streams ------------------------------------------------------------------------------------------- */

gyre_status_t coll_cuda_team_default(const char *name, const gyre_comm_t *comm, cudaStream_t stream)
{
    const coll_team_rank_t *mine = &comm->team->rank[comm->rank];
    if (mine->beside == 1 || (stream != NULL && stream != cudaStreamLegacy))
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s: rank %d shares CUDA device %d with other ranks of this process, whose kernels wait for "
        "each other: the default stream waits for other streams and is invalid here; use one made with "
        "cudaStreamNonBlocking for each rank",
        name, comm->rank, mine->device);
}

/* Identifies streams. The default stream per thread has one handle in all threads, and is another stream in
 * each. */
static uintptr_t identity(cudaStream_t stream)
{
    return stream == cudaStreamPerThread ? 2 * (uintptr_t)gettid() + 1 : (uintptr_t)stream;
}

/* 1: another rank's call `seq` or a later one is on that stream. This rank's call `seq` would be enqueued
 * after it, and it waits for this call. */
static int comes_behind(const coll_team_rank_t *other, uintptr_t stream, uint32_t seq)
{
    for (int i = 0; i < COLL_TEAM_STREAMS; i++)
        if (other->used[i].seq && other->used[i].stream == stream && (int32_t)(other->used[i].seq - seq) >= 0)
            return 1;
    return 0;
}

/* Replaces the note on that stream, or the oldest note. Calls that failed have given their numbers back. */
static void note_stream(coll_team_rank_t *mine, uintptr_t stream, uint32_t seq)
{
    int place = -1, oldest = 0;
    for (int i = 0; i < COLL_TEAM_STREAMS; i++) {
        if (mine->used[i].seq && (int32_t)(mine->used[i].seq - seq) >= 0)
            mine->used[i].seq = 0;
        if (mine->used[i].seq && mine->used[i].stream == stream)
            place = i;
        if (!mine->used[i].seq ||
            (mine->used[oldest].seq && (int32_t)(mine->used[i].seq - mine->used[oldest].seq) < 0))
            oldest = i;
    }
    place = place < 0 ? oldest : place;
    mine->used[place].stream = stream;
    mine->used[place].seq = seq;
}

gyre_status_t coll_cuda_team_stream(const char *name, gyre_comm_t *comm, cudaStream_t stream)
{
    coll_team_t *team = comm->team;
    coll_team_rank_t *mine = &team->rank[comm->rank];
    const uint32_t seq = comm->seq + 1;
    const uintptr_t which = identity(stream);
    gyre_status_t st = coll_cuda_team_default(name, comm, stream);
    if (st != GYRE_OK || mine->beside == 1)
        return st;
    coll_team_lock(team);
    for (int r = 0; r < team->n && st == GYRE_OK; r++) {
        const coll_team_rank_t *other = &team->rank[r];
        if (other != mine && other->device == mine->device && comes_behind(other, which, seq))
            st = gyre_fail(GYRE_ERR_INVALID,
                           "%s: ranks %d and %d were given the same stream: call %u of rank %d would wait "
                           "there after one of rank %d that waits for it: use a stream for each rank",
                           name, r, comm->rank, seq, comm->rank, r);
    }
    if (st == GYRE_OK)
        note_stream(mine, which, seq);
    coll_team_unlock(team);
    return st;
}

#endif
