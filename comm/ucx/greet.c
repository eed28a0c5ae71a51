/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/greet.c: the first messages on a TCP connection: nothing else is sent before both ends have said
 * hello.
 *
 * UCX answers the first real message with messages of its own ("wireup"), and ends the process if one of
 * these still waits for its connection when the peer goes: 1.13 in ucp_wireup_ep_pending_purge
 * (`pending_count == 0`), where the asking one waits, and in ucp_request_send_state_ff
 * (`req->send.wireup.type == ...`), where the answer does. So both ends first send an active message that UCX
 * either writes to an open connection at once or refuses (UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL); such a message
 * asks for no wireup. An end that has said hello and has heard one knows that both directions are open. It
 * then has UCX exchange its own messages, which wait for nothing, by a message that can be replied to, and is
 * ready when that one is sent.
 *
 * A UCX that knows device memory may have no messages of that kind. Then hello is an ordinary message: UCX
 * may end the process as above, but nobody waits in vain.
 *
 * A hello is answered with another one: the end that gets it may have been ready long since, if only the
 * other end's connection has failed and was made anew. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/ucx/ucx.h"

/* How long a connection may refuse what cannot be sent at once. */
enum { PATIENCE_MS = 2000 };

/* Who said hello before this process knew an address for them. */
typedef struct stranger {
    struct stranger *next;
    uint64_t address_hash;
} stranger_t;

static stranger_t *strangers;
static int under_way; /* 1: a peer is not ready, or has no answer yet */

void ucx_greetings_begin(void)
{
    under_way = 1;
}

void ucx_greetings_end(void)
{
    while (strangers) {
        stranger_t *stranger = strangers;
        strangers = stranger->next;
        free(stranger);
    }
    under_way = 0;
}

void ucx_greet_unknown(uint64_t address_hash)
{
    stranger_t *stranger;

    for (stranger = strangers; stranger; stranger = stranger->next) {
        if (stranger->address_hash == address_hash)
            return;
    }
    stranger = malloc(sizeof *stranger);
    if (!stranger) {
        log_warning("ucx: no memory to answer a peer that connects; it may wait until its deadline");
        return;
    }
    *stranger = (stranger_t){strangers, address_hash};
    strangers = stranger;
    under_way = 1;
}

void ucx_on_hello(const ucx_hello_t *hello)
{
    for (ucx_peer_t *peer = ucx_peers(); peer; peer = peer->next) {
        if (peer->address_hash != hello->address_hash || peer->failed != UCS_OK)
            continue;
        peer->heard = 1;
        peer->owes = peer->owes || hello->wants_answer;
        under_way = 1;
        return; /* the newest */
    }
    ucx_greet_unknown(hello->address_hash);
}

/* Connects to those whose address a group has by now. */
static void meet_strangers(void)
{
    stranger_t **at = &strangers;

    while (*at) {
        stranger_t *stranger = *at;
        ucx_peer_t *peer = ucx_peer_meet(stranger->address_hash);
        if (!peer) { /* not yet */
            at = &stranger->next;
            continue;
        }
        peer->heard = peer->owes = 1;
        *at = stranger->next;
        free(stranger);
    }
}

static ucs_status_ptr_t send_hello(ucx_peer_t *peer, int wants_answer, uint32_t attributes, uint32_t flags)
{
    static ucx_hello_t hellos[2]; /* UCX may read them later; all of a process say the same */
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | attributes,
                                       .flags = UCP_AM_SEND_FLAG_EAGER | flags};

    hellos[wants_answer] =
        (ucx_hello_t){.address_hash = ucx_own_hash(), .wants_answer = (uint32_t)wants_answer};
    return ucx_lib.ucp_am_send_nbx(peer->ep, UCX_AM_ID, &hellos[wants_answer], sizeof *hellos, NULL, 0,
                                   &param);
}

/* 1: said. 0: cannot be said yet, or the connection has failed. */
static int say(ucx_peer_t *peer, int wants_answer)
{
    const int at_once = ucx_sends_at_once() && base_now() - peer->made_at < PATIENCE_MS * BASE_MS;
    ucs_status_ptr_t request =
        send_hello(peer, wants_answer, at_once ? UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL : 0, 0);

    if (UCS_PTR_IS_PTR(request)) {
        ucx_lib.ucp_request_free(request); /* it is sent all the same */
        return 1;
    }
    if (UCS_PTR_STATUS(request) != UCS_OK && UCS_PTR_STATUS(request) != UCS_ERR_NO_RESOURCE)
        ucx_peer_fail(peer, UCS_PTR_STATUS(request));
    return UCS_PTR_STATUS(request) == UCS_OK;
}

/* Both directions are open: UCX's own messages, which the first one that can be replied to needs. */
static void get_ready(ucx_peer_t *peer)
{
    ucs_status_t status = UCS_OK;

    if (!peer->opening) {
        ucs_status_ptr_t request = send_hello(peer, 0, 0, UCP_AM_SEND_FLAG_REPLY);
        if (UCS_PTR_IS_PTR(request))
            peer->opening = request;
        else
            status = UCS_PTR_STATUS(request);
    }
    if (peer->opening) {
        status = ucx_lib.ucp_request_check_status(peer->opening);
        if (status == UCS_INPROGRESS)
            return;
        ucx_lib.ucp_request_free(peer->opening);
        peer->opening = NULL;
    }
    if (status == UCS_OK)
        peer->ready = 1;
    else
        ucx_peer_fail(peer, status);
}

/* 1: more is to be said. */
static int greet(ucx_peer_t *peer)
{
    if (!peer->told && !peer->ready)
        peer->told = say(peer, 1);
    if ((peer->told || peer->ready) && peer->owes && peer->failed == UCS_OK)
        peer->owes = !say(peer, 0);
    if (peer->told && peer->heard && !peer->ready && peer->failed == UCS_OK)
        get_ready(peer);
    return peer->failed == UCS_OK && (!peer->ready || peer->owes);
}

int ucx_greet(void)
{
    int more = 0, changed = 0;

    if (!under_way)
        return 0;
    meet_strangers();
    for (ucx_peer_t *peer = ucx_peers(); peer; peer = peer->next) {
        if (!peer->ep || peer->failed != UCS_OK || (peer->ready && !peer->owes))
            continue;
        const int ready = peer->ready;
        more |= greet(peer);
        changed |= peer->ready != ready || peer->failed != UCS_OK;
    }
    under_way = more; /* strangers wait for another group */
    return changed;
}
