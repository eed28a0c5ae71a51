/* SPDX-License-Identifier: Apache-2.0 */
/* topo/orders/ring.c: a short round trip over all places.
 *
 * The order is its own work space: the first i entries are the trip so far, the others the places still to
 * visit. */
#include "topo/orders/order.h"

#include <stddef.h>

#include "base/error.h"

static void swap(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

static void nearest_neighbour(int n, const unsigned char *near, int *order)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = 1; i < n; i++) {
        const unsigned char *from = near + (size_t)order[i - 1] * (size_t)n;
        int best = i;
        for (int j = i + 1; j < n; j++) {
            int nearer = from[order[j]] < from[order[best]];
            int lower = from[order[j]] == from[order[best]] && order[j] < order[best];
            if (nearer || lower)
                best = j;
        }
        swap(&order[i], &order[best]);
    }
}

/* One sweep of 2-opt: replaces links (a b) and (c d) by (a c) and (b d), which turns round what lies between,
 * wherever that makes the trip shorter. Place 0 stays first. Returns how often it did. */
static int two_opt(int n, const unsigned char *near, int *order)
{
    size_t width = (size_t)n;
    int improved = 0;
    for (int i = 0; i + 2 < n; i++) {
        for (int j = i + 2; j < n; j++) {
            size_t a = (size_t)order[i], b = (size_t)order[i + 1];
            size_t c = (size_t)order[j], d = (size_t)order[(j + 1) % n];
            int before = near[a * width + b] + near[c * width + d];
            int after = near[a * width + c] + near[b * width + d];
            if (after >= before)
                continue;
            for (int low = i + 1, high = j; low < high; low++, high--)
                swap(&order[low], &order[high]);
            improved++;
        }
    }
    return improved;
}

gyre_status_t topo_ring_order(int n, const unsigned char *near, int *order)
{
    if (n < 1 || !near || !order)
        return gyre_fail(GYRE_ERR_INVALID, "topo_ring_order: n is %d, near %s, order %s", n,
                         near ? "given" : "NULL", order ? "given" : "NULL");
    nearest_neighbour(n, near, order);
    while (two_opt(n, near, order) > 0) /* ends: the trip gets shorter each time and has a whole length */
        ;
    return GYRE_OK;
}
