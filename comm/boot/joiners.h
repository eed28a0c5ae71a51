/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/joiners.h: a rank's listening socket while the job joins, and its joiners: peers that
 * have proved the secret (admit.h). See join.c. */
#ifndef COMM_BOOT_JOINERS_H
#define COMM_BOOT_JOINERS_H

#include "comm/boot/admit.h"
#include "comm/boot/tree.h"

typedef enum {
    JOINER_ADDRESS, /* says where it listens (rank 0 only) */
    JOINER_WAITING, /* its parent is not known yet */
    JOINER_ASKS,    /* its question is awaited (rank 0 only) */
    JOINER_LEAVING, /* has all it needs, or was refused: closes */
    JOINER_GONE
} boot_joiner_state_t;

typedef struct {
    boot_conn_t conn;
    boot_joiner_state_t state;
    base_time_t deadline;
    boot_hello_t hello;
} boot_joiner_t;

typedef struct boot_joiners {
    comm_boot_t *boot;
    boot_admit_t admit;
    int inherited; /* 1: the listening socket is the launcher's */
    boot_joiner_t *peers;
    int peers_n;
    size_t peers_cap;
    boot_addr_t *places; /* rank 0: [size], where each rank listens; family 0: has not joined */
    int missing;         /* rank 0: ranks that are not here */
    char *seen;          /* rank 0: [size] it was here, and may have given up since */
    int unseen;          /* rank 0: ranks that were never here */
} boot_joiners_t;

/* All zero but for what concerns rank 0. fd: listening, held until boot_joiners_close, which closes it unless
 * it was inherited. */
void boot_joiners_open(boot_joiners_t *joiners, comm_boot_t *boot, int fd);
/* Admits ranks until all that belong here have come. TIMEOUT names the missing ranks: those of the whole job,
 * if rank 0 can be asked. */
gyre_status_t boot_joiners_keep(boot_joiners_t *joiners, base_time_t deadline);
/* Rank 0 has given up with `st` and gyre_last_error. Sends the error to the ranks that are here at once. For
 * a while also answers ranks that ask later, with other clocks or from outside the tree. */
void boot_joiners_linger(boot_joiners_t *joiners, gyre_status_t st);
/* st: how the joining ended; ranks that still wait here get it. */
void boot_joiners_close(boot_joiners_t *joiners, gyre_status_t st);

#endif
