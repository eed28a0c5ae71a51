/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/reconnect.h: connections to ranks that are not neighbours in the tree.
 *
 * Ranks find each other by them when the tree has lost a rank. Newcomers find a running job by them.
 *
 * Every rank keeps a listening socket and knows the addresses of all others (comm_boot_meet). A
 * contact is a connection to this socket, or from this rank to the socket of another, after the handshake of
 * wire.h. The watcher's thread drives all contacts: it accepts, shakes hands, dials, sends heartbeats, and
 * turns a contact's end into a death. Other threads dial, look at contacts and send messages to them, under
 * the boot's lock. Only the watcher's thread frees contacts. */
#ifndef COMM_BOOT_RECONNECT_H
#define COMM_BOOT_RECONNECT_H

#include <poll.h>

#include "comm/boot/tree.h"

typedef enum {
    CONTACT_DIALLING, /* ours: being connected, or about to be tried again (then without a descriptor) */
    CONTACT_ASKED,    /* ours: the answer to our hello is awaited */
    CONTACT_OPEN,     /* theirs: from the beginning (admit.h) */
    CONTACT_RETIRED,  /* both know that it is over: open only until the other side has read the last word */
    CONTACT_GONE      /* for the watcher's thread to free */
} contact_state_t;

typedef struct boot_contact {
    struct boot_contact *next;
    boot_conn_t conn;
    contact_state_t state;
    int ours;           /* this rank dialled */
    int rank;           /* at the other end; -1: not known yet, or a newcomer */
    int told;           /* it knows that this rank calls for a new membership, */
    int rallied;        /* and this rank that it does */
    int deaths_told;    /* it knows of so many of boot->deaths */
    boot_hello_t hello; /* of the one who dialled */
    boot_addr_t addr;   /* ours: where it is dialled */
    base_time_t since, deadline, retry;
    boot_ear_t ear;
    base_time_t spoke;
    boot_place_t place; /* a newcomer's */
    boot_buf_t steps;   /* of a child that was ahead: what it sent up meanwhile (boot_edge_t.steps) */
    unsigned char hello_text[BOOT_HELLO_BYTES]; /* ours */
} boot_contact_t;

void boot_listener_init(comm_boot_t *boot); /* closed */

/* Opens the listening socket, if that has not happened yet; *place: where it is. */
gyre_status_t boot_listener_open(comm_boot_t *boot, boot_place_t *place);
void boot_listener_close(comm_boot_t *boot); /* ends all contacts, too */

/* Under the lock: */
int boot_listener_count(
    const comm_boot_t *boot); /* entries that boot_listener_polls would write, given the room */
/* contacts[i] NULL: the listening socket, or a stranger at it */
int boot_listener_polls(comm_boot_t *boot, struct pollfd *polls, boot_contact_t **contacts, int room);
void boot_listener_handle(comm_boot_t *boot, boot_contact_t *contact, const struct pollfd *poll);
/* Deadlines, heartbeats; frees peers that have gone. Returns when to call again. rested: this process slept
 * itself. */
base_time_t boot_listener_tick(comm_boot_t *boot, base_time_t now);
void boot_listener_rested(comm_boot_t *boot, base_time_t now);

/* Dials `rank` (never NULL unless memory is exhausted). */
boot_contact_t *boot_listener_dial(comm_boot_t *boot, int rank, boot_role_t role);
/* The contact that is, or is to be, joined to `rank` in the present epoch, for `role`; ours or theirs. */
boot_contact_t *boot_listener_find(comm_boot_t *boot, int rank, boot_role_t role, int ours);
/* Says a last word and lets go. */
void boot_contact_dismiss(comm_boot_t *boot, boot_contact_t *contact, boot_type_t word, const char *text);
/* Takes the connection out of the contact, into an edge of the tree. */
void boot_contact_promote(comm_boot_t *boot, boot_contact_t *contact, boot_edge_t *edge);

/* The other way round: the edge is closed, its connection goes on as an open contact. NULL: memory. */
boot_contact_t *boot_contact_of_edge(comm_boot_t *boot, boot_edge_t *edge);

/* Where `rank` is to be dialled from here. 0: not known. */
int boot_where(const comm_boot_t *boot, int rank, boot_addr_t *addr);

#endif
