/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/gradient.h: gradients in double against central differences. Include after cmocka.h. */
#ifndef SUPPORT_GRADIENT_H
#define SUPPORT_GRADIENT_H

#include <math.h>

#include "model/random.h"

#define GRADIENT_EPS 1e-5
#define GRADIENT_TOL 1e-7

/* Normal numbers, a function of (seed, stream). */
static inline void gradient_fill(double *x, size_t n, uint64_t seed, uint32_t stream, double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * model_random_normal(seed, MODEL_RANDOM_DATA, stream, i);
}

static inline double gradient_dot(const double *a, const double *b, size_t n)
{
    double s = 0.0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* f(context) is a scalar that reads x; its central difference in every x[i] must be g[i]. */
typedef double (*gradient_fn)(void *context);
static inline void gradient_check(const char *what, gradient_fn f, void *context, double *x, const double *g,
                                  size_t n)
{
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        double keep = x[i];
        x[i] = keep + GRADIENT_EPS;
        double up = f(context);
        x[i] = keep - GRADIENT_EPS;
        double down = f(context);
        x[i] = keep;
        double want = (up - down) / (2 * GRADIENT_EPS);
        worst = fmax(worst, fabs(want - g[i]) / fmax(1.0, fabs(want)));
    }
    print_message("%-28s %.1e\n", what, worst);
    assert_true(worst < GRADIENT_TOL);
}

#endif
