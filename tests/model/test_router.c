/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* The router of experts: choices against choices by hand, weights, gradients against central differences in
 * double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/kernels/kernels.h"
#include "tests/support/gradient.h"
#include "tests/model/f64/f64.h"

static const model_kernels_t_f64 *k;

static void fill(double *x, size_t n, uint32_t stream, double scale)
{
    gradient_fill(x, n, 12, stream, scale);
}

enum { T = 5, E = 6, K = 3 };

typedef struct {
    double logits[T * E], prob[T * E], weight[T * K], dw[T * K], dp[E];
    int32_t choice[T * K];
    size_t k;
    model_router_t_f64 router;
} route_t;

static double route_scalar(void *context)
{
    route_t *n = context;
    memcpy(n->prob, n->logits, sizeof n->prob);
    n->router.experts = E;
    n->router.top_k = n->k;
    k->route(n->prob, n->choice, n->weight, T, &n->router);
    double s = gradient_dot(n->weight, n->dw, T * n->k);
    for (size_t t = 0; t < T; t++)
        s += gradient_dot(n->prob + t * E, n->dp, E);
    return s;
}

/* Sigmoids and softmax, groups, weights as they are, a scale and biases of choices, against choices by
 * hand. */
static void groups(void **state)
{
    (void)state;
    static route_t all;
    route_t *n = &all;
    fill(n->dw, T * K, 12, 1.0);
    fill(n->dp, E, 13, 1.0);
    static const double choice[E] = {0.5, -0.25, 0, 0.25, -0.5, 0.75};
    double d[T * E];
    for (int how = 0; how < 4; how++) {
        const int sigmoid = how % 2;
        n->k = 2;
        n->router = (model_router_t_f64){.groups = 3,
                                         .top_groups = 2,
                                         .sigmoid = sigmoid,
                                         .raw = how / 2,
                                         .scale = 2.5,
                                         .choice = sigmoid ? choice : NULL};
        fill(n->logits, T * E, 17, 1.0);
        route_scalar(n);
        for (size_t t = 0; t < T; t++) {
            double by[E], group[3], *p = n->prob + t * E, sum = 0.0;
            for (size_t e = 0; e < E; e++)
                by[e] = p[e] + (sigmoid ? choice[e] : 0.0);
            for (size_t g = 0; g < 3; g++)
                group[g] = sigmoid ? by[2 * g] + by[2 * g + 1] : fmax(by[2 * g], by[2 * g + 1]);
            size_t worst = group[0] < group[1] ? 0 : 1;
            worst = group[2] < group[worst] ? 2 : worst;
            for (size_t j = 0; j < 2; j++) {
                size_t best = E;
                for (size_t e = 0; e < E; e++)
                    if (e / 2 != worst && !(j == 1 && (int32_t)e == n->choice[2 * t]) &&
                        (best == E || by[e] > by[best]))
                        best = e;
                assert_int_equal(n->choice[2 * t + j], best);
                sum += p[best];
            }
            for (size_t j = 0; j < 2; j++) {
                const double want = 2.5 * p[n->choice[2 * t + j]] / (how / 2 ? 1.0 : sum);
                assert_true(fabs(n->weight[2 * t + j] - want) < 1e-14);
            }
        }
        k->route_backward(d, n->prob, n->choice, n->weight, n->dw, n->dp, T, &n->router);
        gradient_check("router with groups", route_scalar, n, n->logits, d, T * E);
    }
}

static void routing(void **state)
{
    (void)state;
    static route_t n;
    double d[T * E];
    fill(n.dw, T * K, 12, 1.0);
    fill(n.dp, E, 13, 1.0);
    for (n.k = 1; n.k <= K; n.k++) {
        fill(n.logits, T * E, 11, 1.0);
        route_scalar(&n);
        for (size_t t = 0; t < T; t++) {
            double sum = 0.0;
            for (size_t j = 0; j < n.k; j++) {
                sum += n.weight[t * n.k + j];
                assert_true(j == 0 || n.weight[t * n.k + j] <= n.weight[t * n.k + j - 1]);
            }
            assert_true(n.k == 1 ? n.weight[t] == n.prob[t * E + (size_t)n.choice[t]]
                                 : fabs(sum - 1.0) < 1e-14);
        }
        k->route_backward(d, n.prob, n.choice, n.weight, n.dw, n.dp, T, &n.router);
        gradient_check("router", route_scalar, &n, n.logits, d, T * E);
        for (size_t i = 0; i < T * E; i++)
            n.logits[i] = 0.5; /* of equals the first */
        route_scalar(&n);
        for (size_t t = 0; t < T; t++)
            for (size_t j = 0; j < n.k; j++)
                assert_int_equal(n.choice[t * n.k + j], j);
    }
}

int main(void)
{
    k = model_kernels_f64(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(routing), cmocka_unit_test(groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
