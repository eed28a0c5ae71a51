/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/joiners.h: the gate: a rank's listening socket while the job joins, and its guests: peers that
 * have proved the secret (admit.h). See join.c. */
#ifndef COMM_BOOT_JOINERS_H
#define COMM_BOOT_JOINERS_H

#include "comm/boot/admit.h"
#include "comm/boot/tree.h"

typedef enum {
    GUEST_ADDRESS, /* says where it listens (rank 0 only) */
    GUEST_WAITING, /* its parent is not known yet */
    GUEST_ASKS,    /* its question is awaited (rank 0 only) */
    GUEST_LEAVING, /* has all it needs, or was refused: closes */
    GUEST_GONE
} boot_guest_state_t;

typedef struct {
    boot_conn_t conn;
    boot_guest_state_t state;
    base_time_t deadline;
    boot_hello_t hello;
} boot_guest_t;

typedef struct boot_gate {
    comm_boot_t *boot;
    boot_admit_t admit;
    int inherited; /* 1: the listening socket is the launcher's */
    boot_guest_t *guests;
    int guests_n, guests_cap;
    boot_addr_t *places; /* rank 0: [size], where each rank listens; family 0: has not joined */
    int missing;         /* rank 0: ranks that are not here */
    char *seen;          /* rank 0: [size] it was here, and may have given up since */
    int unseen;          /* rank 0: ranks that were never here */
} boot_gate_t;

/* All zero but for what concerns rank 0. fd: listening; the gate closes it. */
void boot_gate_open(boot_gate_t *gate, comm_boot_t *boot, int fd);
/* Admits ranks until all that belong here have come. TIMEOUT names the missing ranks: those of the whole job,
 * if rank 0 can be asked. */
gyre_status_t boot_gate_keep(boot_gate_t *gate, base_time_t deadline);
/* Rank 0 has given up with `st` and gyre_last_error. Sends the error to the ranks that are here at once. For
 * a while also answers ranks that ask later, with other clocks or from outside the tree. */
void boot_gate_linger(boot_gate_t *gate, gyre_status_t st);
/* st: how the joining ended; ranks that still wait here get it. */
void boot_gate_close(boot_gate_t *gate, gyre_status_t st);

#endif
