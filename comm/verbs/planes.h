/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/planes.h: which ranks try to reach which over RDMA when a communicator is made, and which rails
 * they use after that. Pure functions of what arrived: all ranks come to the same answer, and tests need no
 * adapter.
 *
 * A *plane* has one rail of every rank, such that all pairs of ranks that tried reach each other over it. If
 * every rank has the same rails and all work, plane k is rail k of every rank. If a port of one host is down,
 * the host's only rail may be what other hosts call rail 1. If a switch fails, a rail may reach nobody. In
 * both cases there are fewer planes.
 *
 *     rank 0   rail 0 --+-- plane 0      rank 0   rail 0               rank 1 lacks the port in the first
 *              rail 1 --|-+ plane 1               rail 1 --+ plane 0   subnet: there is one plane, of the
 *     rank 1   rail 0 --+ |              rank 1   rail 0 --+           second one
 *              rail 1 ----+ */
#ifndef COMM_VERBS_PLANES_H
#define COMM_VERBS_PLANES_H

#include <stdint.h>

enum {
    VERBS_RAILS = 4,   /* of a rank, at most */
    VERBS_TRY_ALL = 17 /* in communicators with at most that many ranks all pairs are tried */
};

/* Writes the ranks that `rank` of `n` tries: in small communicators all others, in larger ones those whose
 * number differs by a power of two, modulo n. The work of a rank thus grows with log n, and every split into
 * parts that do not reach each other still runs between partners. partners: [verbs_partners_most(n)], in the
 * same order on all ranks. Returns how many. If b is a partner of a, a is a partner of b. */
int verbs_partners(int n, int rank, int *partners);
int verbs_partners_most(int n);
/* The index of `partner` in the rank's list of partners; -1: not a partner. */
int verbs_partner_number(int n, int rank, int partner);

/* The bit of a rail that a datagram was sent from and a rail that it arrived at, in what a rank received from
 * one partner. */
static inline uint16_t verbs_heard_bit(int from, int at)
{
    return (uint16_t)(1u << (from * VERBS_RAILS + at));
}

typedef struct {
    int n;
    const int *rails; /* [n] number of rails of each rank */
    /* [n]; ranks of one host are not tried. NULL: all pairs are tried */
    const int *host_of;
    const uint16_t *heard; /* [n, verbs_partners_most(n)] at rank r from its partner number k */
} verbs_heard_t;

/* Why there are fewer planes than rails. */
typedef struct {
    /* two ranks; -1: no pair caused it, some rank has fewer rails */
    int a, b;
    int rail_a, rail_b; /* their rails that do not reach each other */
    int a_hears, b_hears;
} verbs_gap_t;

/* Returns the number of planes. rail_of: [VERBS_RAILS, n], the rail of rank r in plane k at k * n + r. *gap:
 * the first gap found. Greedy, plane by plane and rank by rank, taking a rank's rail k for plane k if that
 * works. It may miss planes of fabrics wired without any order. It never returns a plane that was not
 * tried. */
int verbs_planes(const verbs_heard_t *heard, uint8_t *rail_of, verbs_gap_t *gap);

#endif
