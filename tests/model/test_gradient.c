/* Gradient checks in double: every operator and the whole of a tiny model against central differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/gpt.h"
#include "model/random.h"

#define EPS 1e-5
#define TOL 1e-7

static const model_kernels_t_f64 *k;

static void fill(double *x, size_t n, uint32_t stream, double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * model_random_normal(11, MODEL_RANDOM_DATA, stream, i);
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0.0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* f(context) is a scalar that reads x; its central difference in every x[i] must be g[i]. */
typedef double (*scalar_fn)(void *context);
static void check(const char *what, scalar_fn f, void *context, double *x, const double *g, size_t n)
{
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        double keep = x[i];
        x[i] = keep + EPS;
        double up = f(context);
        x[i] = keep - EPS;
        double down = f(context);
        x[i] = keep;
        double want = (up - down) / (2 * EPS);
        worst = fmax(worst, fabs(want - g[i]) / fmax(1.0, fabs(want)));
    }
    print_message("%-28s %.1e\n", what, worst);
    assert_true(worst < TOL);
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
    return dot(n->y, n->dy, T * C);
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
    check("layernorm x", norm_scalar, &n, n.x, dx, T * C);
    check("layernorm weight", norm_scalar, &n, n.w, dw, C);
    check("layernorm bias", norm_scalar, &n, n.b, db, C);
}

/* ---- cross-entropy ---- */
typedef struct {
    double logits[T * V], work[T * V], loss[T];
    model_token_t target[T];
} ce_t;

static double ce_scalar(void *context)
{
    ce_t *n = context;
    memcpy(n->work, n->logits, sizeof n->work);
    k->cross_entropy(n->loss, n->work, n->target, T, V, 0.7);
    double sum = 0.0;
    for (size_t t = 0; t < T; t++)
        sum += n->loss[t];
    return 0.7 * sum;
}

static void cross_entropy(void **state)
{
    (void)state;
    static ce_t n;
    static double d[T * V];
    fill(n.logits, T * V, 9, 3.0);
    for (size_t t = 0; t < T; t++)
        n.target[t] = (model_token_t)(t * 7 % V);
    ce_scalar(&n);
    memcpy(d, n.work, sizeof d);
    check("cross-entropy", ce_scalar, &n, n.logits, d, T * V);
}

/* ---- rows: bias, residual, embedding ---- */
typedef struct {
    double x[T * C], b[C], wte[V * C], wpe[T * C], y[T * C], dy[T * C];
    model_token_t token[T];
} rows_t;

static double bias_scalar(void *context)
{
    rows_t *n = context;
    k->bias_rows(n->y, n->x, n->b, T, C);
    return dot(n->y, n->dy, T * C);
}

static double embed_scalar(void *context)
{
    rows_t *n = context;
    k->embed(n->y, n->wte, n->wpe, n->token, T, C);
    return dot(n->y, n->dy, T * C);
}

static void rows(void **state)
{
    (void)state;
    static rows_t n;
    static double db[C], dwte[V * C];
    const model_token_t token[T] = {3, 0, 3, V - 1, 3}; /* repeated tokens add up */
    memcpy(n.token, token, sizeof token);
    fill(n.x, T * C, 10, 1.0);
    fill(n.b, C, 11, 1.0);
    fill(n.wte, V * C, 12, 1.0);
    fill(n.wpe, T * C, 13, 1.0);
    fill(n.dy, T * C, 14, 1.0);
    k->column_sum(db, n.dy, T, C);
    check("bias", bias_scalar, &n, n.b, db, C);
    check("residual", bias_scalar, &n, n.x, n.dy, T * C);
    k->embed_backward(dwte, n.dy, n.token, T, C);
    check("token embedding", embed_scalar, &n, n.wte, dwte, V * C);
    check("position embedding", embed_scalar, &n, n.wpe, n.dy, T * C);
}

/* ---- the whole model ---- */
typedef struct {
    model_gpt_t_f64 *gpt;
    const model_token_t *tokens, *targets;
    size_t count;
} whole_t;

static double whole_scalar(void *context)
{
    whole_t *w = context;
    double loss = 0.0;
    assert_int_equal(model_gpt_forward_f64(w->gpt, w->tokens, w->targets, w->count, &loss), GYRE_OK);
    return loss;
}

typedef struct {
    size_t next;
    gyre_status_t answer;
} order_t;

static gyre_status_t in_order(void *user, size_t row)
{
    order_t *order = user;
    assert_int_equal(row, order->next);
    order->next++;
    return row == 5 ? order->answer : GYRE_OK;
}

static void whole_model(void **state)
{
    (void)state;
    const model_config_t config = {.vocab = 11, .seq = 6, .layers = 2, .hidden = 20, .heads = 2};
    const model_token_t tokens[6] = {1, 10, 0, 1, 7, 3}, targets[6] = {10, 0, 1, 7, 3, 3};
    model_params_t *params = NULL;
    whole_t w = {.tokens = tokens, .targets = targets};
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    double *flat = calloc(params->total, sizeof *flat), *grad = calloc(params->total, sizeof *grad);
    double **grads = calloc(params->rows, sizeof *grads);
    assert_true(flat && grad && grads);
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        fill(flat + row->offset, row->count, (uint32_t)(100 + r), 0.3);
        for (size_t i = 0; row->init == MODEL_INIT_ONE && i < row->count; i++)
            flat[row->offset + i] += 1.0;
        grads[r] = grad + row->offset;
    }
    assert_int_equal(model_gpt_create_f64(params, flat, MODEL_ISA_BEST, &w.gpt), GYRE_OK);
    for (w.count = 6; w.count >= 4; w.count -= 2) { /* full length, and shorter: unused positions get zero */
        order_t order = {0, GYRE_OK};
        memset(grad, 0xff, params->total * sizeof *grad); /* NaN: every element must be written */
        whole_scalar(&w);
        assert_int_equal(model_gpt_backward_f64(w.gpt, grads, in_order, &order), GYRE_OK);
        assert_int_equal(order.next, params->rows);
        for (size_t r = 0; r < params->rows; r++)
            check(params->row[r].name, whole_scalar, &w, flat + params->row[r].offset, grads[r],
                  params->row[r].count);
    }

    /* backward once per forward; an error of the callback ends it and comes back */
    whole_scalar(&w);
    order_t order = {0, GYRE_ERR_ABORTED};
    assert_int_equal(model_gpt_backward_f64(w.gpt, grads, in_order, &order), GYRE_ERR_ABORTED);
    assert_int_equal(order.next, 6);
    assert_int_equal(model_gpt_backward_f64(w.gpt, grads, NULL, NULL), GYRE_ERR_INVALID);
    model_gpt_destroy_f64(w.gpt);
    model_params_destroy(params);
    free(flat);
    free(grad);
    free(grads);
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
        cmocka_unit_test(whole_model),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
