/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* What only gpt-oss has: gates with limits, and YaRN that scales from and to a part of a pair. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/kernels/kernels.h"
#include "tests/model/f64/f64.h"
#include "tests/support/gradient.h"

enum { T = 5, F = 21 };
#define LIMIT 1.3

typedef struct {
    double x[2 * T * F], dy[T * F], y[T * F];
} gates_t;

static double scalar(void *context)
{
    gates_t *n = context;
    model_kernels_f64(MODEL_ISA_BEST)->limited(n->y, n->x, T, F, LIMIT);
    return gradient_dot(n->y, n->dy, T * F);
}

/* Gates above the limit, and ups beyond it on both sides, are at it, and have no gradient. */
static void limits(void **state)
{
    (void)state;
    gates_t n;
    double dx[2 * T * F];
    size_t beyond[2] = {0, 0};
    gradient_fill(n.x, 2 * T * F, 5, 0, 2.0);
    gradient_fill(n.dy, T * F, 6, 0, 1.0);
    model_kernels_f64(MODEL_ISA_BEST)->limited_backward(dx, n.dy, n.x, T, F, LIMIT);
    gradient_check("limits", scalar, &n, n.x, dx, 2 * T * F);
    scalar(&n);
    for (size_t t = 0; t < T; t++)
        for (size_t i = 0; i < F; i++) {
            const double gate = fmin(n.x[2 * t * F + i], LIMIT), up = n.x[(2 * t + 1) * F + i],
                         u = fmax(fmin(up, LIMIT), -LIMIT),
                         want = gate / (1.0 + exp(-1.702 * gate)) * (u + 1.0);
            assert_true(fabs(n.y[t * F + i] - want) < 1e-13 * fmax(1.0, fabs(want)));
            beyond[0] += gate == LIMIT;
            beyond[1] += u != up;
        }
    assert_true(beyond[0] > 0 && beyond[1] > 0);
}

/* `transformers` says so, with its formula in double: scaling begins at pair 8.09 and ends at 17.4. */
static void untruncated(void **state)
{
    (void)state;
    const model_rope_t rope = {.theta = 15e4,
                               .type = MODEL_ROPE_YARN,
                               .factor = 32,
                               .low = 1,
                               .high = 32,
                               .original = 4096,
                               .untruncated = 1};
    const struct {
        size_t pair;
        double want;
    } known[] = {{8, 0.050813274815461475},
                 {9, 0.03170569618466376},
                 {12, 0.006794959489732216},
                 {17, 0.00012931870124506263},
                 {18, 3.8308812373753384e-05}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(fabs(model_rope_frequency(&rope, known[i].pair, 32) / known[i].want - 1.0) < 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits), cmocka_unit_test(untruncated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
