/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/reconnect.h: connections to ranks that are not neighbours in the tree.
 *
 * Ranks find each other by them when the tree has lost a rank. Newcomers find a running job by them.
 *
 * Every rank keeps a listening socket, its door, and knows the addresses of all others (comm_boot_meet). A
 * visitor is a connection to this rank's door, or from this rank to another's door, after the handshake of
 * wire.h. The watcher's thread drives all visitors: it accepts, shakes hands, dials, sends heartbeats, and
 * turns a visitor's end into a death. Other threads dial, look at visitors and send messages to them, under
 * the boot's lock. Only the watcher's thread frees visitors. */
#ifndef COMM_BOOT_RECONNECT_H
#define COMM_BOOT_RECONNECT_H

#include <poll.h>

#include "comm/boot/tree.h"

typedef enum {
    VISITOR_DIALLING, /* ours: being connected, or about to be tried again (then without a descriptor) */
    VISITOR_ASKED,    /* ours: the answer to our hello is awaited */
    VISITOR_OPEN,     /* theirs: from the beginning (admit.h) */
    VISITOR_RETIRED,  /* both know that it is over: open only until the other side has read the last word */
    VISITOR_GONE      /* for the watcher's thread to free */
} visitor_state_t;

typedef struct boot_visitor {
    struct boot_visitor *next;
    boot_conn_t conn;
    visitor_state_t state;
    int ours;           /* this rank dialled */
    int rank;           /* at the other end; -1: not known yet, or a newcomer */
    int told;           /* it knows that this rank calls for a new membership, */
    int rallied;        /* and this rank that it does */
    boot_hello_t hello; /* of the one who dialled */
    boot_addr_t addr;   /* ours: where it is dialled */
    base_time_t since, deadline, retry;
    base_time_t heard, spoke;
    boot_place_t place; /* a newcomer's */
    boot_buf_t steps;   /* of a child that was ahead: what it sent up meanwhile (boot_edge_t.steps) */
    unsigned char hello_text[BOOT_HELLO_BYTES]; /* ours */
} boot_visitor_t;

void boot_door_init(comm_boot_t *boot); /* closed */

/* Opens this process's door, if that has not happened yet; *place: where it is. */
gyre_status_t boot_door_open(comm_boot_t *boot, boot_place_t *place);
void boot_door_close(comm_boot_t *boot); /* ends all visits, too */

/* Under the lock: */
int boot_door_count(const comm_boot_t *boot); /* entries that boot_door_polls would write, given the room */
/* visitors[i] NULL: the door, or a stranger at it */
int boot_door_polls(comm_boot_t *boot, struct pollfd *polls, boot_visitor_t **visitors, int room);
void boot_door_handle(comm_boot_t *boot, boot_visitor_t *visitor, const struct pollfd *poll);
/* Deadlines, heartbeats; frees peers that have gone. Returns when to call again. rested: this process slept
 * itself. */
base_time_t boot_door_tick(comm_boot_t *boot, base_time_t now);
void boot_door_rested(comm_boot_t *boot, base_time_t now);

/* Dials `rank` (never NULL unless memory is exhausted). */
boot_visitor_t *boot_door_dial(comm_boot_t *boot, int rank, boot_role_t role);
/* The visitor that is, or is to be, joined to `rank` in the present epoch, for `role`; ours or theirs. */
boot_visitor_t *boot_door_find(comm_boot_t *boot, int rank, boot_role_t role, int ours);
/* Says a last word and lets go. */
void boot_visitor_dismiss(comm_boot_t *boot, boot_visitor_t *visitor, boot_type_t word, const char *text);
/* Takes the connection out of the visitor, into an edge of the tree. */
void boot_visitor_promote(comm_boot_t *boot, boot_visitor_t *visitor, boot_edge_t *edge);

/* The other way round: the edge is closed, its connection goes on as an open visitor. NULL: memory. */
boot_visitor_t *boot_visitor_of_edge(comm_boot_t *boot, boot_edge_t *edge);

/* How long a rank may be silent before its word counts as given up: GYRE_HEARTBEAT, or the setting's
 * default. */
base_time_t boot_patience(const comm_boot_t *boot);
/* Where `rank` is to be dialled from here. 0: not known. */
int boot_where(const comm_boot_t *boot, int rank, boot_addr_t *addr);

#endif
