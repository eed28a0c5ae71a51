/* comm/verbs/planes.h: who tries to reach whom over RDMA when a communicator is made, and which rails are used after that; pure
 * functions of what was heard, so that all ranks come to the same answer and tests need no adapter.
 *
 * A *plane* has one rail of every rank, such that all pairs of ranks that tried reach each other over it. Where every rank has
 * the same rails and all is well, plane k is everybody's rail k. Where a port of one host is down, its only rail may be what others call
 * rail 1, and where a switch fails, a rail is of no use to anyone: then there are fewer planes.
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
    VERBS_TRY_ALL = 17 /* in communicators of so many ranks all pairs are tried */
};

/* Whom `rank` of `n` tries: in small communicators all others; in larger ones those whose number differs by a power of two, modulo n,
 * so that what a rank does grows with log n, and still every split into parts that do not reach each other runs between
 * partners. partners: [verbs_partners_most(n)], in the same order on all ranks. Returns how many; a partner's partners include
 * `rank`. */
int verbs_partners(int n, int rank, int *partners);
int verbs_partners_most(int n);
/* Which of its partners `partner` is; -1: none. */
int verbs_partner_number(int n, int rank, int partner);

/* What came in at a rank from one of its partners: a bit for every rail that it was sent from and rail that it arrived at. */
static inline uint16_t verbs_heard_bit(int from, int at)
{
    return (uint16_t)(1u << (from * VERBS_RAILS + at));
}

typedef struct {
    int n;
    const int *rails;      /* [n] how many each rank has */
    const int *host_of;    /* [n]; ranks of one host are not tried. NULL: they are, too */
    const uint16_t *heard; /* [n, verbs_partners_most(n)] at rank r from its partner number k */
} verbs_heard_t;

/* Why there are fewer planes than rails. */
typedef struct {
    int a, b;           /* two ranks; -1: no pair is to blame, some rank has fewer rails */
    int rail_a, rail_b; /* theirs that do not reach each other */
    int a_hears, b_hears;
} verbs_gap_t;

/* Returns the number of planes. rail_of: [VERBS_RAILS, n], the rail of rank r in plane k at k * n + r. *gap: the first that was
 * found. Greedy, plane by plane and rank by rank, taking a rank's rail k for plane k where that will do: it may miss planes
 * of fabrics wired without any order, never find one that was not tried. */
int verbs_planes(const verbs_heard_t *heard, uint8_t *rail_of, verbs_gap_t *gap);

#endif
