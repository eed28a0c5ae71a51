/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/peers.c: connections over UCX to other processes' workers, shared by the groups that have ranks
 * there; and which failed connections concern a group. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/ucx/ucx.h"

enum { CLOSE_MS = 1000 };

static ucx_peer_t *peers; /* of the process, the newest first */

ucx_peer_t *ucx_peers(void)
{
    return peers;
}

int ucx_peers_over_tcp(void)
{
    int tcp = 0;

    for (const ucx_peer_t *peer = peers; peer && !tcp; peer = peer->next)
        tcp = peer->tcp;
    return tcp;
}

void ucx_peer_fail(ucx_peer_t *peer, ucs_status_t status)
{
    if (peer->failed != UCS_OK)
        return;
    peer->failed = status;
    peer->failed_at = base_now();
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ucx_peer_fail(arg, status);
    log_debug("ucx: a connection failed: %s", ucx_lib.ucs_status_string(status));
}

/* Does the connection go over TCP? UCX 1.13 shows that only in its printed text. */
static int goes_over_tcp(ucp_ep_h ep)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    int tcp;

    if (!stream)
        return 0;
    ucx_lib.ucp_ep_print_info(ep, stream);
    fclose(stream);
    tcp = text && strstr(text, ":tcp/") != NULL;
    free(text);
    return tcp;
}

static const ucp_address_t *address_of(const comm_ucx_group_t *ug, int rank, uint64_t *hash)
{
    const unsigned char *record = ug->addresses + (size_t)rank * ug->record_bytes;
    uint32_t length;

    memcpy(&length, record, sizeof length);
    *hash = base_hash64(record + sizeof length, length, UCX_ADDRESS_SEED);
    return (const ucp_address_t *)(const void *)(record + sizeof length);
}

uint64_t ucx_address_hash(const comm_ucx_group_t *ug, int rank)
{
    uint64_t hash;

    (void)address_of(ug, rank, &hash);
    return hash;
}

/* *out stays as it is if that fails. */
static ucs_status_t connect_to(comm_ucx_group_t *ug, int rank, ucx_peer_t **out)
{
    ucx_peer_t *peer = calloc(1, sizeof *peer);
    ucs_status_t status;

    if (!peer)
        return UCS_ERR_NO_MEMORY;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address_of(ug, rank, &peer->address_hash),
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = peer}};
    status = ucx_lib.ucp_ep_create(ucx_worker(), &params, &peer->ep);
    if (status != UCS_OK) {
        free(peer);
        return status;
    }
    peer->tcp = goes_over_tcp(peer->ep);
    peer->ready = !peer->tcp;
    peer->made_at = base_now();
    ucx_greetings_begin();
    peer->next = peers;
    peers = peer;
    *out = peer;
    return UCS_OK;
}

static gyre_status_t peer_new(comm_ucx_group_t *ug, int rank, ucx_peer_t **out)
{
    ucs_status_t status = connect_to(ug, rank, out);

    if (status == UCS_OK)
        return GYRE_OK;
    return gyre_fail(status == UCS_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_TRANSPORT,
                     "UCX cannot connect to rank %d (world rank %d): %s; look at UCX_TLS and UCX_NET_DEVICES "
                     "on both hosts",
                     rank, ug->group->world_ranks[rank], ucx_lib.ucs_status_string(status));
}

/* Did it fail before this group was made? Then it does not concern the group. */
static int failed_before(const comm_ucx_group_t *ug, const ucx_peer_t *peer)
{
    return peer->failed != UCS_OK && peer->failed_at <= ug->made_at;
}

/* The connection of the group with the process of that address; NULL: not made yet. */
static ucx_peer_t *find_peer(const comm_ucx_group_t *ug, uint64_t hash)
{
    ucx_peer_t *found = NULL;

    /* The oldest: the newest are listed first. */
    for (ucx_peer_t *peer = peers; peer; peer = peer->next) {
        if (peer->address_hash == hash && !failed_before(ug, peer))
            found = peer;
    }
    return found;
}

gyre_status_t ucx_peer_get(comm_ucx_group_t *ug, int rank, ucx_peer_t **out)
{
    ucx_peer_t *found;
    uint64_t hash;

    (void)address_of(ug, rank, &hash);
    found = find_peer(ug, hash);
    if (!found)
        return peer_new(ug, rank, out);
    *out = found;
    return GYRE_OK;
}

ucx_peer_t *ucx_peer_meet(uint64_t address_hash)
{
    int rank;
    comm_ucx_group_t *ug = ucx_group_with(address_hash, &rank);
    ucx_peer_t *peer = ug ? find_peer(ug, address_hash) : NULL;
    ucs_status_t status = UCS_OK;

    if (ug && !peer)
        status = connect_to(ug, rank, &peer);
    if (status != UCS_OK)
        log_debug("ucx: a peer that has connected cannot be reached: %s", ucx_lib.ucs_status_string(status));
    return peer && peer->failed == UCS_OK ? peer : NULL; /* the group has failed with it */
}

/* Waits for one of Gyre's requests, a short time. breathe: other threads may have the lock meanwhile. Returns
 * the request if it is still under way, else NULL. */
static ucs_status_ptr_t await(ucs_status_ptr_t request, base_time_t until, int breathe)
{
    if (!UCS_PTR_IS_PTR(request))
        return NULL;
    while (ucx_lib.ucp_request_check_status(request) == UCS_INPROGRESS) {
        const int idle = ucx_poll(NULL) == 0;
        if (base_now() >= until)
            break;
        if (idle && breathe)
            ucx_breathe();
    }
    if (ucx_lib.ucp_request_check_status(request) == UCS_INPROGRESS)
        return request;
    ucx_lib.ucp_request_free(request);
    return NULL;
}

static void drop(ucs_status_ptr_t request)
{
    if (request)
        ucx_lib.ucp_request_free(request);
}

static void close_ep(ucx_peer_t *peer, unsigned flags, base_time_t until, int breathe)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucp_ep_h ep = peer->ep;

    peer->ep = NULL; /* first: no other thread may use it or close it again */
    if (ep)
        drop(await(ucx_lib.ucp_ep_close_nbx(ep, &param), until, breathe));
}

void ucx_peer_cut(ucx_peer_t *peer)
{
    ucx_peer_fail(peer, UCS_ERR_CANCELED);
    close_ep(peer, UCP_EP_CLOSE_FLAG_FORCE, base_now() + CLOSE_MS * BASE_MS, 1);
}

void ucx_peers_close(int force)
{
    base_time_t until = base_now() + CLOSE_MS * BASE_MS;

    while (peers) {
        ucx_peer_t *peer = peers;
        peers = peer->next;
        /* Where UCX is still exchanging its own messages, nothing of Gyre's is held back. */
        const int now = force || peer->failed != UCS_OK || !peer->ready || base_now() >= until;
        close_ep(peer, now ? UCP_EP_CLOSE_FLAG_FORCE : 0, until, 0);
        drop(peer->opening);
        drop(peer->late);
        free(peer);
    }
}

/* A flush ends with all messages of the connection, of other groups, too. Where one of these waits for the
 * peer, UCX sends what it can now, and the thread that drives that group sends the rest. A peer that does
 * nothing for UCX, since it computes or waits in another group, is waited for once. */
void ucx_peers_flush(const comm_ucx_group_t *ug)
{
    ucp_request_param_t param = {0};
    base_time_t until = base_now() + CLOSE_MS * BASE_MS;

    for (int r = 0; ug->addresses && r < ug->group->n; r++) { /* none in a group that could not be made */
        uint64_t hash;
        (void)address_of(ug, r, &hash);
        ucx_peer_t *peer = r != ug->group->rank ? find_peer(ug, hash) : NULL;
        if (!peer || peer->failed != UCS_OK || !peer->ep || !peer->ready)
            continue;
        peer->late = await(peer->late, 0, 0);
        if (peer->late)
            continue;
        if (ucx_busy_elsewhere(ug, peer)) {
            ucx_poll(NULL);
        } else { /* peers stay listed while a group is there */
            ucs_status_ptr_t late = await(ucx_lib.ucp_ep_flush_nbx(peer->ep, &param), until, 1);
            drop(peer->late); /* a flush that another thread has left meanwhile */
            peer->late = late;
        }
    }
}

gyre_status_t ucx_peers_list_failed(comm_ucx_group_t *ug)
{
    uint32_t count = 0;

    ucx_poll(ug->group);
    for (const ucx_peer_t *peer = peers; peer; peer = peer->next)
        count += peer->failed != UCS_OK;
    ug->made_at = base_now();
    ug->failed = calloc((size_t)count + 1, sizeof *ug->failed);
    if (!ug->failed)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %u connections", count);
    for (const ucx_peer_t *peer = peers; peer; peer = peer->next) {
        if (peer->failed != UCS_OK)
            ug->failed[ug->nfailed++] = peer->address_hash;
    }
    return GYRE_OK;
}

/* A connection with `rank` has failed at the other end only. UCX may have only received over it here. Then
 * UCX made its end by itself, reports to nobody that it is dead, and would return it for the next connection
 * to that rank. So it is failed here, too. */
static gyre_status_t peer_forget(comm_ucx_group_t *ug, int rank)
{
    ucx_peer_t *peer;
    uint64_t hash;
    gyre_status_t status = GYRE_OK;
    int made;

    (void)address_of(ug, rank, &hash);
    peer = find_peer(ug, hash);
    made = !peer;
    if (made)
        status = peer_new(ug, rank, &peer);
    if (status != GYRE_OK)
        return status;
    ucx_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
    /* as at the other end: it does not concern this group, only the earlier ones */
    peer->failed_at = ug->made_at;
    if (made)
        ucx_peer_cut(peer);
    ucx_greet_unknown(
        hash); /* it may have said hello over its new connection, and this one was thought to be that */
    return GYRE_OK;
}

static uint32_t count_failed_before(const comm_ucx_group_t *ug, uint64_t hash)
{
    uint32_t count = 0;

    for (const ucx_peer_t *peer = peers; peer; peer = peer->next)
        count += peer->address_hash == hash && failed_before(ug, peer);
    return count;
}

gyre_status_t ucx_peers_agree(comm_ucx_group_t *ug, uint64_t mine, size_t failed_at, uint32_t most_failed)
{
    gyre_status_t status = GYRE_OK;

    for (int r = 0; r < ug->group->n && status == GYRE_OK; r++) {
        uint64_t hash, told;
        uint32_t theirs = 0;

        (void)address_of(ug, r, &hash);
        for (uint32_t i = 0; i < most_failed; i++) {
            memcpy(&told, ug->addresses + (size_t)r * ug->record_bytes + failed_at + i * sizeof told,
                   sizeof told);
            theirs += told == mine;
        }
        for (uint32_t ours = count_failed_before(ug, hash); ours < theirs && status == GYRE_OK; ours++)
            status = peer_forget(ug, r);
    }
    ug->agreed = status == GYRE_OK;
    ucx_greetings_begin();
    return status;
}
