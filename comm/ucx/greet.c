/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/greet.c: the first messages on a TCP connection: nothing else is sent before both ends have said
 * hello.
 *
 * UCX answers the first real message with messages of its own ("wireup"), and ends the process if one of
 * these still waits for its connection when the peer goes: 1.13 in ucp_wireup_ep_pending_purge
 * (`pending_count == 0`), where the asking one waits, and in ucp_request_send_state_ff
 * (`req->send.wireup.type == ...`), where the answer does. So both ends first send an active message that
 * UCX either writes to an open connection at once or refuses (UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL); such a
 * message asks for no wireup. An end that has said hello and has heard one knows that both directions are
 * open. It then makes UCX exchange its own messages, which wait for nothing, and is ready when that is done.
 *
 * A hello is answered with another one: the end that gets it may have been ready long since, if only the
 * other end's connection has failed and was made anew. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/ucx/ucx.h"

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
        ucx_peer_t *peer;
        if (ucx_peer_meet(stranger->address_hash, &peer) == 0) { /* not yet */
            at = &stranger->next;
            continue;
        }
        if (peer)
            peer->heard = 1;
        *at = stranger->next;
        free(stranger);
    }
}

/* Says hello, if that can be done at once. 1: said. */
static int say(ucx_peer_t *peer, uint32_t wants_answer, uint32_t flags)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
                                       .flags = UCP_AM_SEND_FLAG_EAGER | flags};
    const ucx_hello_t hello = {.address_hash = ucx_own_hash(), .wants_answer = wants_answer};
    ucs_status_t status =
        UCS_PTR_STATUS(ucp_am_send_nbx(peer->ep, UCX_AM_ID, &hello, sizeof hello, NULL, 0, &param));

    if (status != UCS_OK && status != UCS_ERR_NO_RESOURCE)
        ucx_peer_fail(peer, status);
    return status == UCS_OK;
}

/* 1: more is to be said. */
static int greet(ucx_peer_t *peer)
{
    if (!peer->told)
        peer->told = say(peer, 1, 0);
    if (peer->told && peer->owes && peer->failed == UCS_OK)
        peer->owes = !say(peer, 0, 0);
    /* A message that can be replied to needs UCX's own messages first. */
    if (peer->told && peer->heard && !peer->ready && peer->failed == UCS_OK)
        peer->ready = say(peer, 0, UCP_AM_SEND_FLAG_REPLY);
    return peer->failed == UCS_OK && (!peer->ready || peer->owes);
}

void ucx_greet(void)
{
    int more = 0;

    if (!under_way)
        return;
    meet_strangers();
    for (ucx_peer_t *peer = ucx_peers(); peer; peer = peer->next) {
        if (peer->tcp && peer->ep && peer->failed == UCS_OK && (!peer->ready || peer->owes))
            more |= greet(peer);
    }
    under_way = more; /* strangers wait for another group */
}
