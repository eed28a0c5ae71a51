/* SPDX-License-Identifier: Apache-2.0 */
/* comm/watch/fd_pass.h: passes descriptors of memory windows to local peers, over an abstract Unix socket.
 *
 * Sequenced packets; K = comm_boot_key(boot, "fd"); MACs are keyed BLAKE2b:
 *     client -> server  question  nonce, key                          40 bytes
 *     server -> client  challenge nonce, MAC_K("S", question, nonce)  64
 *     client -> server  proof     MAC_K("C", question, nonce)         32
 *                   or later     any byte: closed to make room; the client may connect again  1
 *     server -> client  answer    status, MAC_K("R", question, nonce, status), and the descriptor
 *     (SCM_RIGHTS)
 * An address has 32 bytes. The first 16 are random and name the socket. The other 16 identify the host's boot
 * and the network namespace in which such names are visible. */
#ifndef COMM_WATCH_FD_PASS_H
#define COMM_WATCH_FD_PASS_H

#include <poll.h>
#include <pthread.h>
#include <stdint.h>

#include "comm/boot/refusals.h"
#include "comm/watch/watch.h"

enum {
    WATCH_CLIENTS_MAX = 64, /* served at one time; others wait in the socket's backlog */
    WATCH_FD_POLLS = WATCH_CLIENTS_MAX + 1,
    WATCH_BUCKETS = 256
};

typedef struct watch_offer {
    struct watch_offer *next;
    uint64_t key;
    int fd; /* the offerer's: open until it is withdrawn */
} watch_offer_t;

typedef struct {
    int fd; /* -1: free place */
    int asked;
    base_time_t since, deadline;
    unsigned char question[40];
    unsigned char nonce[32];
} watch_client_t;

typedef struct {
    unsigned char address[32];
    unsigned char key[32];
    int fd;                                    /* listening socket; -1: not opened yet */
    base_time_t paused;                        /* out of descriptors: no accept before this time */
    boot_refusals_t refused;                   /* the watcher's thread only, like the clients */
    watch_client_t clients[WATCH_CLIENTS_MAX]; /* the watcher's thread only */
    pthread_mutex_t lock;                      /* guards offers */
    watch_offer_t *offers[WATCH_BUCKETS];
} watch_fds_t;

gyre_status_t watch_fds_init(watch_fds_t *fds, const comm_boot_t *boot);
void watch_fds_free(watch_fds_t *fds);
gyre_status_t watch_fds_listen(watch_fds_t *fds);

/* The watcher's thread: what to poll (fds->fd must be open), until when at most, and what to do then. */
int watch_fds_polls(watch_fds_t *fds, struct pollfd polls[WATCH_FD_POLLS], base_time_t *until);
void watch_fds_handle(watch_fds_t *fds, const struct pollfd *polls, int n);

/* Any thread. */
gyre_status_t watch_fds_offer(watch_fds_t *fds, uint64_t key, int fd);
void watch_fds_withdraw(watch_fds_t *fds, uint64_t key);
/* See comm_watch_fetch_some. */
gyre_status_t watch_fds_fetch(watch_fds_t *fds, const unsigned char address[32], uint64_t key,
                              comm_watch_fetch_t *fetch, int *fd, base_time_t until);

#endif
