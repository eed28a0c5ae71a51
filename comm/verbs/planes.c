/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/planes.c: see the header. */
#include "comm/verbs/planes.h"

enum { PARTNERS = 2 * 31 /* of whatever n an int holds */ };

/* ---- partners ------------------------------------------------------------------------------------------ */

int verbs_partners_most(int n)
{
    int most = 0;

    if (n <= VERBS_TRY_ALL)
        return n > 1 ? n - 1 : 0;
    for (int64_t distance = 1; distance < n; distance *= 2)
        most += 2;
    return most;
}

int verbs_partners(int n, int rank, int *partners)
{
    int count = 0;

    if (n <= VERBS_TRY_ALL) {
        for (int distance = 1; distance < n; distance++)
            partners[count++] = (rank + distance) % n;
        return count;
    }
    /* A distance and n minus another one may be the same. */
    for (int64_t distance = 1; distance < n; distance *= 2) {
        const int both[2] = {(int)((rank + distance) % n), (int)(((int64_t)rank + n - distance) % n)};
        for (int i = 0; i < 2; i++) {
            int known = 0;
            for (int k = 0; k < count; k++)
                known |= partners[k] == both[i];
            if (!known)
                partners[count++] = both[i];
        }
    }
    return count;
}

int verbs_partner_number(int n, int rank, int partner)
{
    int partners[PARTNERS], count = verbs_partners(n, rank, partners);

    for (int k = 0; k < count; k++) {
        if (partners[k] == partner)
            return k;
    }
    return -1;
}

/* ---- planes -------------------------------------------------------------------------------------------- */

/* All ranks have the same partners relative to themselves: partner number k is offset[k] further, and this
 * rank is its partner number back[k]. */
typedef struct {
    const verbs_heard_t *heard;
    int count, most;
    int offset[PARTNERS], back[PARTNERS];
} ways_t;

static int partner(const ways_t *ways, int r, int k)
{
    return (int)(((int64_t)r + ways->offset[k]) % ways->heard->n);
}

/* Did what partner number k of rank r sent over its rail `from` arrive at our rail `at`? */
static int came(const ways_t *ways, int r, int k, int from, int at)
{
    return (ways->heard->heard[(int64_t)r * ways->most + k] & verbs_heard_bit(from, at)) != 0;
}

/* May rank r be in the plane with this rail, as far as its partners before it are concerned? *with: the
 * number of the first that it does not reach, else -1. */
static int fits(const ways_t *ways, const uint8_t *plane, int r, int rail, int *with)
{
    const int *host_of = ways->heard->host_of;

    *with = -1;
    for (int k = 0; k < ways->count; k++) {
        int p = partner(ways, r, k);
        if (p > r || (host_of && host_of[p] == host_of[r]))
            continue;
        if ((!came(ways, r, k, plane[p], rail) || !came(ways, p, ways->back[k], rail, plane[p])) &&
            (*with < 0 || p < partner(ways, r, *with)))
            *with = k;
    }
    return *with < 0;
}

static int is_used(const uint8_t *rail_of, int n, int planes, int r, int rail)
{
    for (int k = 0; k < planes; k++) {
        if (rail_of[(int64_t)k * n + r] == rail)
            return 1;
    }
    return 0;
}

/* Finds a rail of rank r for the plane after `planes` others; -1: there is no such rail. Prefers the rail
 * with the plane's number. */
static int rail_for(const ways_t *ways, const uint8_t *rail_of, int planes, int wanted, int r,
                    verbs_gap_t *gap)
{
    const int n = ways->heard->n, rails = ways->heard->rails[r];
    const uint8_t *plane = rail_of + (int64_t)planes * n;
    int tried = -1, with = -1;

    for (int i = -1; i < rails; i++) {
        int rail = i < 0 ? wanted : i, blamed;
        if (rail >= rails || (i >= 0 && rail == wanted) || is_used(rail_of, n, planes, r, rail))
            continue;
        if (fits(ways, plane, r, rail, &blamed))
            return rail;
        if (tried < 0)
            tried = rail, with = blamed;
    }
    if (tried >= 0 && gap->a < 0) {
        int a = partner(ways, r, with);
        *gap = (verbs_gap_t){.a = a,
                             .b = r,
                             .rail_a = plane[a],
                             .rail_b = tried,
                             .a_hears = came(ways, a, ways->back[with], tried, plane[a]),
                             .b_hears = came(ways, r, with, plane[a], tried)};
    }
    return -1;
}

int verbs_planes(const verbs_heard_t *heard, uint8_t *rail_of, verbs_gap_t *gap)
{
    ways_t ways = {.heard = heard, .most = verbs_partners_most(heard->n)};
    int planes = 0;

    *gap = (verbs_gap_t){.a = -1, .b = -1};
    ways.count = verbs_partners(heard->n, 0, ways.offset);
    for (int k = 0; k < ways.count; k++)
        ways.back[k] = verbs_partner_number(heard->n, 0, heard->n - ways.offset[k]);
    for (int wanted = 0; wanted < VERBS_RAILS; wanted++) {
        int r = 0, rail = 0;
        for (; r < heard->n && rail >= 0; r++) {
            rail = rail_for(&ways, rail_of, planes, wanted, r, gap);
            if (rail >= 0)
                rail_of[(int64_t)planes * heard->n + r] = (uint8_t)rail;
        }
        planes += rail >= 0;
    }
    return planes;
}
