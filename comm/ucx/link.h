/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/link.h: a link over UCX, between link.c and close.c. */
#ifndef COMM_UCX_LINK_H
#define COMM_UCX_LINK_H

#include "comm/ucx/ucx.h"

/* A message that UCX has not sent yet; its header must stay where it is until then. */
typedef struct {
    ucx_header_t header;
    ucs_status_ptr_t request; /* NULL: this place is free */
} ucx_sending_t;

typedef struct ucx_link {
    comm_link_t base;
    struct ucx_link *next; /* among its group's links; then among those that are closed and not freed yet */
    ucx_peer_t *peer;      /* NULL until the first message is sent, or received by rendezvous */
    ucx_inbox_t *inbox;
    uint64_t sent;
    uint64_t spent;             /* cost of the messages that were sent */
    ucx_sending_t telling;      /* a message without a number that is under way */
    ucx_sending_t withdrawing;  /* likewise; its turn comes once */
    ucx_arrival_t *viewed;      /* messages that the caller is reading */
    ucs_status_ptr_t receiving; /* a rendezvous into the caller's buffer, or NULL */
    int know_their_call;
    comm_call_t their_call;
    ucx_sending_t sending[COMM_SENDS_OPEN];
} ucx_link_t;

/* What every message of the link says; its number, size and tag are the caller's to set. */
ucx_header_t ucx_header_of(const ucx_link_t *link);
/* close.c */
void ucx_link_close(comm_link_t *base);

#endif
