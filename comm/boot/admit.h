/* comm/boot/admit.h: letting strangers in at a listening socket: accept, challenge, make room, refuse.
 *
 * There are two such sockets: where ranks join (joiners.h), and each rank's in the running job (reconnect.h).
 * Each has a table of what a peer that has proved the secret may be, by the role in its hello. A stranger
 * that says nothing, or garbage, takes one place until its own deadline. When all places are taken and
 * another peer connects, the oldest stranger is closed, once it has had long enough for an honest rank. An
 * honest rank that was too slow connects again. So strangers can delay a rank only for a short time: the
 * queue before the rank shrinks by `most` each half second.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef COMM_BOOT_ADMIT_H
#define COMM_BOOT_ADMIT_H

#include <poll.h>

#include "comm/boot/refusals.h"
#include "comm/boot/wire.h"

struct comm_boot;

typedef enum { STRANGER_HELLO /* awaited */, STRANGER_PROOF /* then that */, STRANGER_GONE } stranger_state_t;

typedef struct {
    boot_conn_t conn;
    stranger_state_t state;
    base_time_t since, deadline;
    boot_hello_t hello;
    unsigned char hello_text[BOOT_HELLO_BYTES], challenge[BOOT_CHALLENGE_BYTES];
} boot_stranger_t;

/* The peer has proved the secret. The call takes the peer's connection, whose keys are set; a connection that
 * the call leaves is closed. */
typedef void (*boot_admit_fn)(void *user, boot_stranger_t *peer);

enum { BOOT_ADMIT_ROLES = 4 };
typedef struct {
    int most; /* strangers at one time; more wait in the kernel's backlog */
    struct {
        boot_role_t role;
        boot_admit_fn admit;
    } may[BOOT_ADMIT_ROLES];
    boot_admit_fn others; /* of every other role */
} boot_admit_rules_t;

typedef struct {
    struct comm_boot *boot;
    const boot_admit_rules_t *rules;
    void *user;
    int fd;                     /* listening; not owned; -1: none */
    boot_stranger_t *strangers; /* [strangers_n] in the order in which they came */
    int strangers_n;
    size_t strangers_cap;
    base_time_t rest; /* out of descriptors: no connection is accepted before; 0: accept */
    boot_refusals_t refused;
} boot_admit_t;

void boot_admit_open(boot_admit_t *admit, struct comm_boot *boot, const boot_admit_rules_t *rules, void *user,
                     int fd);
/* Sends all strangers away and logs how many were refused. */
void boot_admit_close(boot_admit_t *admit);

int boot_admit_count(
    const boot_admit_t *admit); /* entries that boot_admit_polls would write, given the room */
int boot_admit_polls(const boot_admit_t *admit, struct pollfd *polls, int room);
/* What poll(2) said of one entry. 0, or an errno: why no connection can be accepted for half a second or
 * less. */
int boot_admit_handle(boot_admit_t *admit, const struct pollfd *poll);
/* Deadlines. Returns when to call again. */
base_time_t boot_admit_tick(boot_admit_t *admit, base_time_t now);

/* Counts what went over a connection that is about to be closed. */
void boot_count_messages(struct comm_boot *boot, const boot_conn_t *conn);

#endif
