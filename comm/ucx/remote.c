/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/remote.c: memory of other ranks by UCX's put, get and flush.
 *
 * Where the adapter can do it, no processor of the other host takes part. Over TCP UCX emulates it by
 * messages, which the other process answers while a thread of it moves UCX.
 *
 * UCX cannot take back what has begun. A request counts as open until its callback has run, and the
 * group does not end before: it waits, and then cuts the connection, which ends the requests. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/memory/memory.h"
#include "comm/remote.h"
#include "comm/ucx/ucx.h"

enum { LEAVE_MS = 1000, GRACE_MS = 1500 };

/* This rank's moves to and from one rank. UCX's callbacks may come after the group's end: if the group ends
 * with open requests, this is not freed. */
struct ucx_traffic {
    uint32_t open;            /* requests without answer, the flush among them */
    uint32_t flushing, begun; /* 1: a flush is under way; moves have begun since the last one did */
    ucs_status_t failed;      /* of a request; UCS_OK */
    ucx_peer_t *peer;         /* NULL: nothing was moved */
};

struct comm_remote {
    struct comm_remote *next; /* among those of its group */
    ucp_mem_h memory;         /* NULL: of no bytes */
    int n;
    comm_remote_key_t *keys; /* [n] */
    ucp_rkey_h *far;         /* [n] NULL: not used */
};

static gyre_status_t failed(const char *what, ucs_status_t status)
{
    return gyre_fail_quiet(status == UCS_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_TRANSPORT,
                           "UCX: %s: %s", what, ucx_lib.ucs_status_string(status));
}

static void free_remote(comm_remote_t *remote)
{
    for (int r = 0; remote->far && r < remote->n; r++)
        if (remote->far[r])
            ucx_lib.ucp_rkey_destroy(remote->far[r]);
    if (remote->memory)
        (void)ucx_lib.ucp_mem_unmap(ucx_context(), remote->memory);
    free(remote->far);
    free(remote->keys);
    free(remote);
}

static gyre_status_t map(comm_remote_t *remote, void *base, size_t bytes, comm_remote_key_t *key)
{
    const ucp_mem_map_params_t params = {.field_mask =
                                             UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                         .address = base,
                                         .length = bytes};
    void *packed;
    size_t length;
    ucs_status_t status = ucx_lib.ucp_mem_map(ucx_context(), &params, &remote->memory);

    if (status != UCS_OK) {
        remote->memory = NULL;
        return failed("memory cannot be registered (see ulimit -l)", status);
    }
    status = ucx_lib.ucp_rkey_pack(ucx_context(), remote->memory, &packed, &length);
    if (status != UCS_OK)
        return failed("no key for memory", status);
    *key = (comm_remote_key_t){.base = (uint64_t)(uintptr_t)base, .bytes = (uint32_t)length};
    if (length <= sizeof key->data)
        memcpy(key->data, packed, length);
    ucx_lib.ucp_rkey_buffer_release(packed);
    return length <= sizeof key->data
               ? GYRE_OK
               : gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "UCX has keys of %zu bytes for memory, more than %zu",
                                 length, sizeof key->data);
}

gyre_status_t ucx_expose(comm_group_t *group, void *base, size_t bytes, comm_remote_key_t *key,
                         comm_remote_t **out)
{
    comm_ucx_group_t *ug = ucx_of(group);
    comm_remote_t *remote = calloc(1, sizeof *remote);
    gyre_status_t status = GYRE_OK;

    *key = (comm_remote_key_t){0};
    if (!remote)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", group->n);
    remote->n = group->n;
    ucx_lock();
    if (!ug->traffic)
        ug->traffic = calloc((size_t)group->n, sizeof *ug->traffic);
    if (!ug->traffic)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d ranks", group->n);
    else if (bytes > 0)
        status = map(remote, base, bytes, key);
    if (status == GYRE_OK) {
        remote->next = ug->exposed;
        ug->exposed = remote;
        *out = remote;
    } else {
        free_remote(remote);
    }
    ucx_unlock();
    return status;
}

gyre_status_t ucx_know(comm_group_t *group, comm_remote_t *remote, const comm_remote_key_t *keys)
{
    const size_t n = (size_t)group->n;

    remote->keys = malloc(n * sizeof *keys);
    remote->far = calloc(n, sizeof(ucp_rkey_h));
    if (!remote->keys || !remote->far)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    memcpy(remote->keys, keys, n * sizeof *keys);
    return GYRE_OK;
}

void ucx_conceal(comm_group_t *group, comm_remote_t *remote)
{
    comm_remote_t **at = &ucx_of(group)->exposed;

    ucx_lock();
    while (*at != remote)
        at = &(*at)->next;
    *at = remote->next;
    free_remote(remote);
    ucx_unlock();
}

static void on_moved(void *request, ucs_status_t status, void *user)
{
    ucx_traffic_t *traffic = user;

    traffic->open--;
    if (status != UCS_OK)
        traffic->failed = status;
    ucx_lib.ucp_request_free(request);
}

static void on_flushed(void *request, ucs_status_t status, void *user)
{
    ucx_traffic_t *traffic = user;

    traffic->flushing = 0;
    on_moved(request, status, user);
}

/* The watcher names a rank that died, a moment after the connection broke. */
static gyre_status_t broken(const comm_group_t *group, int peer, ucx_traffic_t *traffic, ucs_status_t why)
{
    const gyre_status_t lost = comm_group_lost(group);

    if (traffic->peer->failed == UCS_OK)
        ucx_peer_fail(traffic->peer, why);
    if (lost != GYRE_OK)
        return lost;
    if (base_now() - traffic->peer->failed_at < GRACE_MS * BASE_MS)
        return GYRE_IN_PROGRESS;
    return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "the connection over UCX with rank %d is broken: %s", peer,
                           ucx_lib.ucs_status_string(traffic->peer->failed));
}

/* A request, whose callback counts it. */
static gyre_status_t begun(const comm_group_t *group, int peer, ucx_traffic_t *traffic,
                           ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request))
        return broken(group, peer, traffic, UCS_PTR_STATUS(request));
    traffic->open += request != NULL;
    return GYRE_OK;
}

static gyre_status_t move(comm_group_t *group, comm_remote_t *remote, int peer, int writes, size_t offset,
                          void *local, size_t bytes)
{
    const comm_remote_key_t *key = &remote->keys[peer];
    ucx_traffic_t *traffic = &ucx_of(group)->traffic[peer];
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_moved,
                                       .user_data = traffic};
    gyre_status_t status = traffic->peer ? GYRE_OK : ucx_peer_get(ucx_of(group), peer, &traffic->peer);

    if (status != GYRE_OK)
        return status;
    ucx_poll(group);
    if (traffic->peer->failed != UCS_OK || traffic->failed != UCS_OK)
        return broken(group, peer, traffic, traffic->failed);
    if (!traffic->peer->ready)
        return GYRE_IN_PROGRESS;
    if (!remote->far[peer]) {
        const ucs_status_t unpacked =
            ucx_lib.ucp_ep_rkey_unpack(traffic->peer->ep, key->data, &remote->far[peer]);
        if (unpacked != UCS_OK) {
            remote->far[peer] = NULL;
            return failed("a key of another rank's memory is refused", unpacked);
        }
    }
    traffic->begun = 1;
    const uint64_t at = key->base + offset;
    return begun(group, peer, traffic,
                 writes
                     ? ucx_lib.ucp_put_nbx(traffic->peer->ep, local, bytes, at, remote->far[peer], &param)
                     : ucx_lib.ucp_get_nbx(traffic->peer->ep, local, bytes, at, remote->far[peer], &param));
}

gyre_status_t ucx_move(comm_group_t *group, comm_remote_t *remote, int peer, int writes, size_t offset,
                       void *local, size_t bytes)
{
    ucx_lock();
    const gyre_status_t status = move(group, remote, peer, writes, offset, local, bytes);
    ucx_unlock();
    return status;
}

static gyre_status_t flush(comm_group_t *group, int peer)
{
    ucx_traffic_t *traffic = ucx_of(group)->traffic ? &ucx_of(group)->traffic[peer] : NULL;
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_flushed,
                                       .user_data = traffic};
    gyre_status_t status = GYRE_OK;

    if (!traffic || !traffic->peer)
        return GYRE_OK;
    ucx_poll(group);
    if (traffic->peer->failed != UCS_OK || traffic->failed != UCS_OK)
        return traffic->begun || traffic->open ? broken(group, peer, traffic, traffic->failed) : GYRE_OK;
    if (traffic->begun && !traffic->flushing) {
        ucs_status_ptr_t request = ucx_lib.ucp_ep_flush_nbx(traffic->peer->ep, &param);
        status = begun(group, peer, traffic, request);
        traffic->begun = status != GYRE_OK;
        traffic->flushing = UCS_PTR_IS_PTR(request);
    }
    return status == GYRE_OK && traffic->open ? GYRE_IN_PROGRESS : status;
}

gyre_status_t ucx_flush(comm_group_t *group, int peer)
{
    ucx_lock();
    const gyre_status_t status = flush(group, peer);
    ucx_unlock();
    return status;
}

static uint32_t open_moves(const comm_ucx_group_t *ug)
{
    uint32_t open = 0;

    for (int r = 0; r < ug->group->n; r++)
        open += ug->traffic[r].open;
    return open;
}

static void wait_for_moves(const comm_ucx_group_t *ug)
{
    const base_time_t until = base_now() + LEAVE_MS * BASE_MS;

    while (open_moves(ug) && base_now() < until)
        if (ucx_poll(NULL) == 0)
            ucx_breathe();
}

void ucx_remote_leave(comm_ucx_group_t *ug)
{
    if (!ug->traffic)
        return;
    wait_for_moves(ug);
    if (open_moves(ug)) {
        for (int r = 0; r < ug->group->n; r++)
            if (ug->traffic[r].open && ug->traffic[r].peer)
                ucx_peer_cut(ug->traffic[r].peer);
        wait_for_moves(ug);
    }
    while (ug->exposed) {
        comm_remote_t *remote = ug->exposed;
        ug->exposed = remote->next;
        free_remote(remote);
    }
    if (open_moves(ug))
        log_warning("UCX still uses a buffer of a put or a get; do not free it before the process ends");
    else
        free(ug->traffic);
    ug->traffic = NULL;
}

/* ---- memory that may still be reached ------------------------------------------------------------------ */

static comm_retired_t *all_retired; /* under the lock */

int ucx_retire(comm_retired_t *retired)
{
    ucx_lock();
    const int runs = ucx_context() != NULL;
    if (runs) {
        retired->next = all_retired;
        all_retired = retired;
    }
    ucx_unlock();
    return runs;
}

void ucx_free_retired(void)
{
    comm_retired_t *list = NULL;

    ucx_lock();
    if (!ucx_context()) {
        list = all_retired;
        all_retired = NULL;
    }
    ucx_unlock();
    while (list) { /* without the lock: this asks the watchers */
        comm_retired_t *next = list->next;
        (void)comm_mem_free(list->base); /* it was allocated */
        free(list);
        list = next;
    }
}
