/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient checks in double: operators against central differences (whole models: test_stage.c). */
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
    gradient_fill(x, n, 11, stream, scale);
}

enum { T = 5, C = 19, V = 23 }; /* lanes (16) have a tail */

/* ---- layernorm ---- */
typedef struct {
    double x[T * C], w[C], b[C], dy[T * C], y[T * C], mean[T], rstd[T];
} norm_t;

static double norm_scalar(void *context)
{
    norm_t *n = context;
    k->layernorm(n->y, n->mean, n->rstd, n->x, n->w, n->b, T, C, 1e-5);
    return gradient_dot(n->y, n->dy, T * C);
}

static void layernorm(void **state)
{
    (void)state;
    static norm_t n;
    double dx[T * C], dw[C], db[C];
    fill(n.x, T * C, 1, 1.5);
    fill(n.w, C, 2, 1.0);
    fill(n.b, C, 3, 1.0);
    fill(n.dy, T * C, 4, 1.0);
    norm_scalar(&n);
    for (size_t i = 0; i < T * C; i++)
        dx[i] = 100.0; /* it must add */
    k->layernorm_backward(dx, dw, db, n.dy, n.x, n.w, n.mean, n.rstd, T, C);
    for (size_t i = 0; i < T * C; i++)
        dx[i] -= 100.0;
    gradient_check("layernorm x", norm_scalar, &n, n.x, dx, T * C);
    gradient_check("layernorm weight", norm_scalar, &n, n.w, dw, C);
    gradient_check("layernorm bias", norm_scalar, &n, n.b, db, C);
}

/* ---- cross-entropy over a vocabulary in two leaves, the second one padded ---- */
enum { LEAF = 13 };
typedef struct {
    double logits[2][T * LEAF], work[2][T * LEAF], total[T];
    model_token_t target[T];
} ce_t;

static double ce_scalar(void *context)
{
    ce_t *n = context;
    double max[T], sum[2][T], all = 0.0;
    memcpy(n->work, n->logits, sizeof n->work);
    k->row_max(max, n->work[0], T, LEAF, LEAF, 0);
    k->row_max(max, n->work[1], T, V - LEAF, LEAF, 1);
    k->row_exp(sum[0], n->work[0], max, T, LEAF, LEAF);
    k->row_exp(sum[1], n->work[1], max, T, V - LEAF, LEAF);
    k->add(n->total, sum[0], sum[1], T);
    for (size_t t = 0; t < T; t++) {
        size_t at = (size_t)n->target[t];
        all += log(n->total[t]) + max[t] - n->logits[at / LEAF][t * LEAF + at % LEAF];
    }
    return 0.7 * all;
}

static void cross_entropy(void **state)
{
    (void)state;
    static ce_t n;
    static double d[2][T * LEAF];
    fill(n.logits[0], 2 * T * LEAF, 9, 3.0);
    for (size_t t = 0; t < T; t++)
        n.target[t] = (model_token_t)(t * 7 % V);
    ce_scalar(&n);
    memcpy(d, n.work, sizeof d);
    k->row_softmax_backward(d[0], n.total, n.target, 0, 0.7, T, LEAF, LEAF);
    k->row_softmax_backward(d[1], n.total, n.target, LEAF, 0.7, T, V - LEAF, LEAF);
    gradient_check("cross-entropy", ce_scalar, &n, n.logits[0], d[0], 2 * T * LEAF);
    for (size_t t = 0; t < T; t++) /* no padding has a gradient */
        for (size_t i = V - LEAF; i < LEAF; i++)
            assert_true(d[1][t * LEAF + i] == 0.0);
}

/* ---- rows: bias, residual ---- */
typedef struct {
    double x[T * C], sum[T * C], b[C], y[T * C], dy[T * C];
} rows_t;

static double bias_scalar(void *context)
{
    rows_t *n = context;
    k->bias_rows(n->y, n->x, n->b, T, C);
    return gradient_dot(n->y, n->dy, T * C);
}

static double residual_scalar(void *context)
{
    rows_t *n = context;
    k->residual(n->y, n->x, n->sum, n->b, T, C);
    return gradient_dot(n->y, n->dy, T * C);
}

static void rows(void **state)
{
    (void)state;
    static rows_t n;
    static double db[C];
    fill(n.x, T * C, 10, 1.0);
    fill(n.b, C, 11, 1.0);
    fill(n.sum, T * C, 12, 1.0);
    fill(n.dy, T * C, 14, 1.0);
    k->column_sum(db, n.dy, T, C, 0);
    gradient_check("bias", bias_scalar, &n, n.b, db, C);
    gradient_check("bias, input", bias_scalar, &n, n.x, n.dy, T * C);
    gradient_check("residual, bias", residual_scalar, &n, n.b, db, C);
    gradient_check("residual, input", residual_scalar, &n, n.x, n.dy, T * C);
    gradient_check("residual, sum", residual_scalar, &n, n.sum, n.dy, T * C);
}

static int setup(void **state)
{
    (void)state;
    k = model_kernels_f64(MODEL_ISA_BEST);
    return k == NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
