/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4 */
/* tests/collectives/mp_exact_value.c: an exact sum over ranks has the same bits however the data lie on
 * them, in all orders of reductions, and one call of one rank gives those bits, too. */
#include "tests/support/mp.h"

#include <math.h>
#include <string.h>

enum { MOST = 5000 };

static double x[MOST], y[MOST];

/* All exponents, or all alike. */
static void fill(int round, uint64_t *seed)
{
    for (int i = 0; i < MOST; i++) {
        uint64_t r = random_next(seed), r2 = random_next(seed);
        double m = (double)(int64_t)r * 0x1p-63;
        x[i] = round % 2 ? ldexp(m, (int)(r2 % 1000) - 500) : m;
        y[i] = (double)(int64_t)r2 * 0x1p-63;
    }
    if (round >= 4)
        x[MOST / 2] = round == 4 ? (double)INFINITY : (double)NAN;
}

static uint64_t value_of(const gyre_exact_t *sum)
{
    double v;
    uint64_t bits;
    MP_OK(gyre_exact_value(sum, &v));
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

int main(void)
{
    gyre_comm_t *world;
    gyre_exact_t *sum, *alone, *again;
    gyre_request_t *request;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    uint64_t seed = 1;
    setenv("GYRE_LOG", "none", 1); /* a refusal is wanted */
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    MP_OK(gyre_exact_create(&sum));
    MP_OK(gyre_exact_create(&alone));
    MP_OK(gyre_exact_create(&again));
    for (int round = 0; round < 6; round++) {
        fill(round, &seed);
        options.order = (gyre_order_t)(round % 4);
        MP_OK(gyre_comm_set(world, &options));
        MP_OK(gyre_exact_reset(alone));
        MP_OK(gyre_exact_add_dot(alone, x, y, MOST, GYRE_FLOAT64));
        MP_OK(gyre_exact_reset(sum));
        MP_OK(gyre_exact_reset(again));
        for (int at = 0, piece; at < MOST; at += piece) { /* each piece goes to some rank */
            uint64_t r = random_next(&seed);
            piece = 1 + (int)(r % 900);
            piece = piece < MOST - at ? piece : MOST - at;
            if ((r >> 32) % (uint64_t)n == (uint64_t)rank)
                MP_OK(gyre_exact_add_dot(sum, x + at, y + at, (size_t)piece, GYRE_FLOAT64));
        }
        MP_OK(gyre_exact_merge(again, sum));
        MP_OK(gyre_exact_all_reduce(sum, world));
        MP_CHECK(value_of(sum) == value_of(alone), "round %d: %llx, alone %llx", round,
                 (unsigned long long)value_of(sum), (unsigned long long)value_of(alone));
        MP_OK(gyre_exact_iall_reduce(again, world, &request));
        MP_OK(gyre_wait(&request));
        MP_CHECK(value_of(again) == value_of(alone), "round %d, non-blocking", round);
        MP_OK(gyre_exact_all_reduce(again, world)); /* n totals */
        for (int i = 1; i < n; i++)
            MP_OK(gyre_exact_merge(sum, alone));
        MP_CHECK(value_of(again) == value_of(sum), "round %d, again", round);
    }
    options.leaves = 2; /* a rank has one sum */
    MP_OK(gyre_comm_set(world, &options));
    MP_CHECK(gyre_exact_all_reduce(sum, world) == GYRE_ERR_UNSUPPORTED, "leaves were not refused");
    MP_CHECK(strstr(gyre_last_error(), "gyre_comm_dup"), "%s", gyre_last_error());
    MP_OK(gyre_exact_destroy(sum));
    MP_OK(gyre_exact_destroy(alone));
    MP_OK(gyre_exact_destroy(again));
    MP_OK(gyre_finalize(world));
    return 0;
}
