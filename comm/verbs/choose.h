/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/choose.h: the verbs transport's choices, as pure functions that tests can call without an
 * adapter: the GID, how long a queue pair tries, the ports, and the meaning of a completion status in
 * words. */
#ifndef COMM_VERBS_CHOOSE_H
#define COMM_VERBS_CHOOSE_H

#include <stddef.h>
#include <stdint.h>

/* --- GIDs --- */

typedef struct {
    unsigned char raw[16];
    int index;    /* in the port's table */
    int version;  /* of RoCE, 1 or 2; 0: InfiniBand */
    char dev[16]; /* network interface of the entry; "" unknown */
} verbs_gid_t;

/* Returns the entry of table[n] for a port to use, or -1. why: [bytes] the reason in words. wanted: the index
 * that the user asked for, -1: not given.
 *  - InfiniBand: the first entry, which is the port's own.
 *  - RoCE: version 2 before 1 (only version 2 is routed); then an IPv4 address before a global IPv6 one
 *    (administrators route the former), link-local last; then the lowest index. */
int verbs_gid_choose(const verbs_gid_t *table, int n, int wanted, char *why, size_t bytes);
/* "192.0.2.1" or "fe80::1" into text[46]. */
void verbs_gid_text(const unsigned char raw[16], char text[46]);

/* Does an InfiniBand packet from one port to another need a global route header? Then the GID is used and not
 * the LID alone. */
int verbs_needs_grh(int roce, int port_demands_it, const unsigned char ours[16],
                    const unsigned char theirs[16]);

/* --- how long a queue pair tries --- */

typedef struct {
    uint8_t timeout; /* exponent: 4.096 us x 2^timeout between two tries */
    uint8_t retries; /* further tries; at most 6: Soft-RoCE takes 7 for "forever" */
    double seconds;  /* until it gives up; adapters may take up to four times as long (IBTA 9.7.6.1.3) */
} verbs_patience_t;

/* For operations that may last `deadline` seconds (<= 0: forever). Long enough for a network that loses
 * packets or a host that is busy. Short enough that the error, which says more than a timeout, comes well
 * before the deadline. The time is half the deadline, at most VERBS_PATIENCE_S: the heartbeat (5 s) notices a
 * silent host anyway. */
#define VERBS_PATIENCE_S 4.0
verbs_patience_t verbs_patience(double deadline);

/* --- ports --- */

typedef struct {
    char name[64];
    int port;
    int active;     /* 0: down */
    int roce;       /* 0: InfiniBand */
    int distance;   /* 0 same NUMA node, 1 same package, 2 further or unknown (topo_rdma_distance) */
    double gbits;   /* per second */
    char state[32]; /* in words, of a port that is not active */
} verbs_port_t;

/* Chooses up to `most` of ports[n] to stripe over. Candidates are those named in `list` ("mlx5_0,mlx5_1:2";
 * without a port number all active ports of the device): all of them must be there, and of one link layer.
 * With an empty list: the nearest ports of one link layer that are at least half as fast as the fastest of
 * them. chosen: [most] indices. Returns how many, 0 if no port qualifies; why: [bytes] what decided, or what
 * is missing. */
int verbs_ports_choose(const verbs_port_t *ports, int n, const char *list, int most, int *chosen, char *why,
                       size_t bytes);

/* --- errors --- */

/* A completion status (enum ibv_wc_status) in words, and what usually causes it. Never NULL. */
const char *verbs_wc_words(int status);
const char *verbs_wc_cause(int status);

#endif
