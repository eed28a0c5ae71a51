/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy of exp and tanh in both types, their edges, and that every instruction set gives the same bits. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/kernels/kernels.h"
#include "model/random.h"
#include "tests/model/f64/f64.h"

#define N 20000

static double noise(uint32_t stream, uint64_t i)
{
    return 2.0 * model_random_uniform(7, MODEL_RANDOM_DATA, stream, i) - 1.0;
}

/* Units in the last place of `want` between `got` and `want`, with `bits` of significand. */
static double ulps(double got, long double want, int bits)
{
    int exponent;
    frexpl(want, &exponent);
    return (double)fabsl(((long double)got - want) / ldexpl(1.0L, exponent - bits));
}

static void exp_is_accurate(void **state)
{
    (void)state;
    static float xf[N], yf[N];
    static double x[N], y[N];
    double worst_f = 0.0, worst = 0.0;
    for (size_t i = 0; i < N; i++) {
        xf[i] = (float)(noise(0, i) * (i % 2 ? 87.3 : 1.0));
        x[i] = noise(1, i) * (i % 2 ? 708.3 : 1.0);
        if (i % 10 == 0) { /* where the exponent is the largest that there is */
            xf[i] = (float)(88.5 + 0.22 * noise(0, i));
            x[i] = 709.4 + 0.38 * noise(1, i);
        }
    }
    float last_f = logf(FLT_MAX);
    if (expl((long double)last_f) > (long double)FLT_MAX)
        last_f = nextafterf(last_f, 0.0f);
    const double last = log(DBL_MAX);
    xf[0] = last_f;
    x[0] = last;
    model_kernels_f32(MODEL_ISA_BEST)->exp(yf, xf, N);
    model_kernels_f64(MODEL_ISA_BEST)->exp(y, x, N);
    for (size_t i = 0; i < N; i++) {
        worst_f = fmax(worst_f, ulps((double)yf[i], expl((long double)xf[i]), 24));
        worst = fmax(worst, ulps(y[i], expl((long double)x[i]), 53));
    }
    print_message("exp: %.2f ulp in float, %.2f in double\n", worst_f, worst);
    assert_true(worst_f <= 2.0);
    assert_true(worst <= 2.0);
    for (int isa = MODEL_ISA_BASE; isa < MODEL_ISA_COUNT; isa++) {
        if (!model_kernels_f32((model_isa_t)isa))
            continue;
        const float in_f[] = {last_f, nextafterf(last_f, INFINITY)};
        const double in[] = {last, nextafter(last, INFINITY)};
        model_kernels_f32((model_isa_t)isa)->exp(yf, in_f, 2);
        model_kernels_f64((model_isa_t)isa)->exp(y, in, 2);
        assert_true(isfinite(yf[0]) && isfinite(y[0])); /* the last x with a finite result */
        assert_true(isinf(yf[1]) && isinf(y[1]));
    }
}

static void tanh_is_accurate(void **state)
{
    (void)state;
    static float xf[N], yf[N];
    static double x[N], y[N];
    double worst_f = 0.0, worst = 0.0;
    for (size_t i = 0; i < N; i++) {
        double range = i % 3 == 0 ? 20.0 : i % 3 == 1 ? 0.7 : 1e-3;
        xf[i] = (float)(noise(2, i) * range);
        x[i] = noise(3, i) * range;
    }
    model_kernels_f32(MODEL_ISA_BEST)->tanh(yf, xf, N);
    model_kernels_f64(MODEL_ISA_BEST)->tanh(y, x, N);
    for (size_t i = 0; i < N; i++) {
        worst_f = fmax(worst_f, ulps((double)yf[i], tanhl((long double)xf[i]), 24));
        worst = fmax(worst, ulps(y[i], tanhl((long double)x[i]), 53));
    }
    print_message("tanh: %.2f ulp in float, %.2f in double\n", worst_f, worst);
    assert_true(worst_f <= 2.0);
    assert_true(worst <= 2.0);
}

static void edges(void **state)
{
    (void)state;
    const float xf[] = {0.0f, -INFINITY, INFINITY, NAN, -200.0f, 200.0f, -1e-30f};
    const double x[] = {0.0, -INFINITY, INFINITY, NAN, -1000.0, 1000.0, -1e-300};
    float yf[7];
    double y[7];
    for (int isa = MODEL_ISA_BASE; isa < MODEL_ISA_COUNT; isa++) {
        if (!model_kernels_f32((model_isa_t)isa))
            continue;
        model_kernels_f32((model_isa_t)isa)->exp(yf, xf, 7);
        model_kernels_f64((model_isa_t)isa)->exp(y, x, 7);
        assert_true(yf[0] == 1.0f && y[0] == 1.0);
        assert_true(yf[1] == 0.0f && y[1] == 0.0);
        assert_true(isinf(yf[2]) && isinf(y[2]));
        assert_true(isnan(yf[3]) && isnan(y[3]));
        assert_true(yf[4] == 0.0f && y[4] == 0.0);
        assert_true(isinf(yf[5]) && isinf(y[5]));
        model_kernels_f32((model_isa_t)isa)->tanh(yf, xf, 7);
        model_kernels_f64((model_isa_t)isa)->tanh(y, x, 7);
        assert_true(yf[1] == -1.0f && y[1] == -1.0);
        assert_true(yf[2] == 1.0f && y[2] == 1.0);
        assert_true(isnan(yf[3]) && isnan(y[3]));
        assert_true(yf[6] == -1e-30f && y[6] == -1e-300);
    }
}

/* T, C, V chosen so that lanes have a tail. */
enum { T = 7, C = 37, V = 53 };

typedef struct {
    float exp[T * V], gelu[T * V], norm[T * C], mean[T], rstd[T], dx[T * C], dw[C], db[C], p[V * V],
        dp[V * V];
    float max[T], loss[T], logits[T * V], residual[T * C];
} everything_t;

static void run_everything(const model_kernels_t_f32 *k, everything_t *e)
{
    static float x[V * V], d[V * V], w[C];
    model_token_t target[T];
    memset(e, 0, sizeof *e);
    for (size_t i = 0; i < V * V; i++) {
        x[i] = (float)(3.0 * noise(4, i));
        d[i] = (float)noise(5, i);
    }
    for (size_t i = 0; i < C; i++)
        w[i] = (float)(1.0 + 0.1 * noise(6, i));
    for (size_t i = 0; i < T; i++)
        target[i] = (model_token_t)(i * 5 % V);
    k->exp(e->exp, x, T * V);
    k->act[MODEL_ACT_GELU_TANH](e->gelu, x, T * V);
    k->layernorm(e->norm, e->mean, e->rstd, x, w, w, T, C, 1e-5f);
    k->layernorm_backward(e->dx, e->dw, e->db, d, x, w, e->mean, e->rstd, T, C);
    memcpy(e->p, x, sizeof e->p);
    memcpy(e->dp, d, sizeof e->dp);
    const model_scores_t all = {.rows = V, .columns = V};
    k->softmax(e->p, &all, 0.3f, 0.0f, NULL, NULL, NULL);
    k->softmax_backward(e->dp, e->p, &all, 0.3f, NULL, NULL);
    memcpy(e->logits, x, sizeof e->logits);
    k->row_max(e->max, e->logits, T, V, V, 0);
    k->row_exp(e->loss, e->logits, e->max, T, V, V);
    k->row_softmax_backward(e->logits, e->loss, target, 0, 0.1f, T, V, V);
    k->residual(e->residual, x, d, w, T, C);
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    static everything_t base, other;
    run_everything(model_kernels_f32(MODEL_ISA_BASE), &base);
    for (int isa = MODEL_ISA_BASE + 1; isa < MODEL_ISA_COUNT; isa++) {
        if (!model_kernels_f32((model_isa_t)isa))
            continue;
        run_everything(model_kernels_f32((model_isa_t)isa), &other);
        print_message("%s against base\n", model_isa_name((model_isa_t)isa));
        assert_memory_equal(&base, &other, sizeof base);
    }
}

/* The known answers of Random123's kat_vectors for philox4x32-10. */
static void philox_known_answers(void **state)
{
    (void)state;
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    uint32_t out[4];
    model_philox(zero, zero, out);
    const uint32_t want_zero[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    assert_memory_equal(out, want_zero, sizeof out);
    model_philox(ones, ones, out);
    const uint32_t want_ones[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
    assert_memory_equal(out, want_ones, sizeof out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(tanh_is_accurate),
        cmocka_unit_test(edges),
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(philox_known_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
