/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/bench_exact.c: how fast a gyre_exact_t takes 80 MB of doubles on one core, next
 * to plain vectorised loops over the same memory, in turns.
 *
 *   make build/tests/collectives/kernels/bench_exact
 *   build/tests/collectives/kernels/bench_exact [ROUNDS [COUNT]]     default: 21 rounds of 10 million doubles
 *
 * Prints for sums, dot products and squared norms, and for two kinds of data: the medians of both, and the
 * speed of the exact one as a part of the plain one's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <gyre/exact.h>

#include "base/clock.h"
#include "base/order.h"
#include "tests/support/random.h"

#define OK(call)                                                   \
    do {                                                           \
        if ((call) != GYRE_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, gyre_last_error()); \
            exit(1);                                               \
        }                                                          \
    } while (0)

enum { MOST_ROUNDS = 1000 };

static double median(double *x, size_t count)
{
    qsort(x, count, sizeof *x, base_order_double);
    return x[count / 2];
}

/* ---- the plain loops: the compiler may add in any order, and so makes vectors ---- */
#if defined(__x86_64__)
#define PLAIN __attribute__((noinline, optimize("O3", "fast-math"), target("avx2,fma")))
#else
#define PLAIN __attribute__((noinline, optimize("O3", "fast-math")))
#endif

PLAIN static double plain_sum(const double *x, const double *y, size_t count)
{
    double sum = 0;
    (void)y;
    for (size_t i = 0; i < count; i++)
        sum += x[i];
    return sum;
}

PLAIN static double plain_dot(const double *x, const double *y, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

PLAIN static double plain_norm2(const double *x, const double *y, size_t count)
{
    double sum = 0;
    (void)y;
    for (size_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sum;
}

static gyre_status_t exact_sum(gyre_exact_t *exact, const double *x, const double *y, size_t count)
{
    (void)y;
    return gyre_exact_add(exact, x, count, GYRE_FLOAT64);
}

static gyre_status_t exact_dot(gyre_exact_t *exact, const double *x, const double *y, size_t count)
{
    return gyre_exact_add_dot(exact, x, y, count, GYRE_FLOAT64);
}

static gyre_status_t exact_norm2(gyre_exact_t *exact, const double *x, const double *y, size_t count)
{
    (void)y;
    return gyre_exact_add_norm2(exact, x, count, GYRE_FLOAT64);
}

static const struct {
    const char *name;
    double (*plain)(const double *x, const double *y, size_t count);
    gyre_status_t (*exact)(gyre_exact_t *exact, const double *x, const double *y, size_t count);
} forms[] = {
    {"sum", plain_sum, exact_sum}, {"dot", plain_dot, exact_dot}, {"norm2", plain_norm2, exact_norm2}};

static void compare(const char *data, size_t form, size_t rounds, const double *x, const double *y,
                    size_t count)
{
    static double plain[MOST_ROUNDS], exact[MOST_ROUNDS];
    gyre_exact_t *sum;
    double value = 0, about = 0;
    OK(gyre_exact_create(&sum));
    for (size_t i = 0; i < rounds; i++) {
        OK(gyre_exact_reset(sum));
        const base_time_t start = base_now();
        about = forms[form].plain(x, y, count);
        const base_time_t middle = base_now();
        OK(forms[form].exact(sum, x, y, count));
        OK(gyre_exact_value(sum, &value));
        exact[i] = (double)(base_now() - middle) * 1e-9;
        plain[i] = (double)(middle - start) * 1e-9;
    }
    const double p = median(plain, rounds), e = median(exact, rounds);
    printf("%-10s %-6s plain %8.2f ms  exact %8.2f ms  speed %.2f  (%g, %g)\n", data, forms[form].name,
           p * 1e3, e * 1e3, p / e, about, value);
    OK(gyre_exact_destroy(sum));
}

int main(int argc, char **argv)
{
    const size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 21;
    const size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000000;
    uint64_t seed = 1;
    double *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
    if (!x || !y || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_exact [ROUNDS, 1 to %d [COUNT]]\n", MOST_ROUNDS);
        return 2;
    }
    for (int wide = 0; wide < 2; wide++) {
        for (size_t i = 0; i < count; i++) {
            const double a = (double)(int64_t)random_next(&seed) * 0x1p-63;
            const double b = (double)(int64_t)random_next(&seed) * 0x1p-63;
            x[i] = wide ? ldexp(a, (int)(random_next(&seed) % 40) - 20) : a;
            y[i] = wide ? ldexp(b, (int)(random_next(&seed) % 40) - 20) : b;
        }
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++)
            compare(wide ? "2^-20..20" : "alike", form, rounds, x, y, count);
    }
    free(x);
    free(y);
    return 0;
}
