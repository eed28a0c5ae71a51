/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_attention.c: attention in blocks against one that has all [n,n] weights, in double, at
 * lengths around a block's, with windows, prefixes, ALiBi and dropout; gradients against central
 * differences; float and 16 bits against double; and nothing is read or written outside. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/model/f64/f64.h"
#include "tests/support/gradient.h"

enum { D = 5, LD = 17, LD_O = 7, MOST = 391, B = 128 };

typedef struct {
    size_t n, prefix, window;
    double slope, drop, cap, sink; /* sink 0: none */
} case_t;

static const case_t cases[] = {
    {.n = 1},
    {.n = 3, .window = 1},
    {.n = 127},
    {.n = 128, .slope = 0.25},
    {.n = 129, .drop = 0.3},
    {.n = 256, .window = 128},
    {.n = 257, .window = 129, .slope = 0.1},
    {.n = 300, .window = 1},
    {.n = 300, .window = 40, .drop = 0.2},
    {.n = 391},
    {.n = 391, .prefix = 5},
    {.n = 391, .prefix = 128, .window = 200},
    {.n = 391, .prefix = 129, .slope = 0.3},
    {.n = 391, .prefix = 390},
    {.n = 200, .window = 150, .drop = 0.3, .cap = 1.5},
    {.n = 150, .slope = 0.2, .cap = 2.5},
    {.n = 200, .prefix = 150, .drop = 0.5},
    {.n = 129, .sink = 0.8},
    {.n = 300, .window = 40, .drop = 0.2, .sink = 3},
    {.n = 200, .slope = 0.2, .cap = 1.5, .sink = -1},
};

/* q, k and v are in one memory, as a stage has them; so are their gradients. */
typedef struct {
    double qkv[MOST * LD], d_qkv[MOST * LD], o[MOST * LD_O], d_o[MOST * LD_O];
    double p[B * MOST], d_p[B * MOST], dropped[B * MOST], capped[B * MOST], rest[B], sink, d_sink;
    uint32_t key[4];
    model_attention_t_f64 a;
} head_t;

static void set(head_t *h, const case_t *c)
{
    gradient_fill(h->qkv, MOST * LD, 21, 1, 1.0);
    gradient_fill(h->d_o, MOST * LD_O, 21, 2, 1.0);
    model_dropout_key(1, 2, 3, 4, 3, h->key);
    h->sink = c->sink;
    h->a = (model_attention_t_f64){.k = model_kernels_f64(MODEL_ISA_BEST),
                                   .n = c->n,
                                   .head_dim = D,
                                   .query = h->qkv,
                                   .key = h->qkv + D,
                                   .value = h->qkv + 2 * D,
                                   .ld = LD,
                                   .ld_o = LD_O,
                                   .scale = 0.7,
                                   .slope = c->slope,
                                   .cap = c->cap,
                                   .capped = h->capped,
                                   .sink = c->sink != 0.0 ? &h->sink : NULL,
                                   .d_sink = &h->d_sink,
                                   .rest = h->rest,
                                   .prefix = c->prefix,
                                   .window = c->window,
                                   .drop = c->drop > 0.0 ? h->key : NULL,
                                   .below = model_dropout_below(c->drop),
                                   .kept = 1.0 / (1.0 - c->drop),
                                   .first = 1234567,
                                   .p = h->p,
                                   .d_p = h->d_p,
                                   .dropped = h->dropped};
}

/* ---- the plain one ---- */

typedef struct {
    double p[MOST * MOST], left[MOST * MOST], ds[MOST * MOST], o[MOST * D], bent[MOST * MOST];
    double dq[MOST * D], dk[MOST * D], dv[MOST * D], rest[MOST], d_sink;
} plain_t;

static double row_dot(const double *x, const double *y)
{
    double sum = 0.0;
    for (size_t i = 0; i < D; i++)
        sum += x[i] * y[i];
    return sum;
}

static int sees(const case_t *c, size_t i, size_t j)
{
    if (i < c->prefix && j < c->prefix)
        return c->window == 0 || j + c->window > i;
    return j <= i && (c->window == 0 || j + c->window > i);
}

static void plain_forward(plain_t *r, const head_t *h, const case_t *c)
{
    const size_t n = c->n;
    for (size_t i = 0; i < n; i++) {
        double total = 0.0;
        for (size_t j = 0; j < n; j++) {
            double s = h->a.scale * row_dot(h->a.query + i * LD, h->a.key + j * LD),
                   t = c->cap > 0.0 ? tanh(s / c->cap) : 0.0;
            s = (c->cap > 0.0 ? c->cap * t : s) - c->slope * fabs((double)i - (double)j);
            r->bent[i * n + j] = 1.0 - t * t;
            total += r->p[i * n + j] = sees(c, i, j) ? exp(s) : 0.0;
        }
        r->rest[i] = c->sink != 0.0 ? exp(c->sink) : 0.0;
        total += r->rest[i];
        r->rest[i] /= total;
        for (size_t j = 0; j < n; j++)
            r->p[i * n + j] /= total;
    }
    memcpy(r->left, r->p, n * n * sizeof *r->p);
    if (h->a.drop)
        h->a.k->dropout(r->left, r->p, h->a.drop, h->a.below, h->a.kept, h->a.first, n * n);
    memset(r->o, 0, sizeof r->o);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (size_t d = 0; d < D; d++)
                r->o[i * D + d] += r->left[i * n + j] * h->a.value[j * LD + d];
}

static void plain_backward(plain_t *r, const head_t *h, size_t n)
{
    memset(r->dq, 0, sizeof r->dq);
    memset(r->dk, 0, sizeof r->dk);
    memset(r->dv, 0, sizeof r->dv);
    r->d_sink = 0.0;
    for (size_t i = 0; i < n; i++) {
        double *ds = r->ds + i * n, mean = 0.0;
        for (size_t j = 0; j < n; j++)
            ds[j] = row_dot(h->d_o + i * LD_O, h->a.value + j * LD);
        if (h->a.drop)
            h->a.k->dropout(ds, ds, h->a.drop, h->a.below, h->a.kept, h->a.first + i * n, n);
        for (size_t j = 0; j < n; j++)
            mean += r->p[i * n + j] * ds[j];
        r->d_sink -= r->rest[i] * mean;
        for (size_t j = 0; j < n; j++) {
            ds[j] = h->a.scale * r->bent[i * n + j] * r->p[i * n + j] * (ds[j] - mean);
            for (size_t d = 0; d < D; d++) {
                r->dq[i * D + d] += ds[j] * h->a.key[j * LD + d];
                r->dk[j * D + d] += ds[j] * h->a.query[i * LD + d];
                r->dv[j * D + d] += r->left[i * n + j] * h->d_o[i * LD_O + d];
            }
        }
    }
}

/* ---- comparison ---- */

static void near(const char *what, const double *got, size_t ld, double shift, const double *want, size_t n,
                 double tolerance)
{
    double worst = 0.0;
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < D; d++) {
            double error = fabs(got[i * ld + d] - shift - want[i * D + d]);
            worst = error <= worst ? worst : error; /* NaN is kept */
        }
    if (!(worst <= tolerance))
        print_error("%s of %zu positions: %g\n", what, n, worst);
    assert_true(worst <= tolerance);
}

/* Backward of blocks of rows, then of blocks of columns with what those kept, has the bits of the whole. */
static void check_pieces(head_t *h, const case_t *c)
{
    const size_t n = c->n;
    double *whole = malloc(sizeof h->d_qkv), *kept = malloc(3 * MOST * sizeof *kept);
    assert_true(whole && kept);
    memset(h->d_qkv, 0xff, sizeof h->d_qkv);
    h->d_sink = 0.0;
    model_attention_backward_f64(&h->a, h->d_o, h->d_qkv, h->d_qkv + D, h->d_qkv + 2 * D, 0);
    memcpy(whole, h->d_qkv, sizeof h->d_qkv);
    const double d_sink = h->d_sink;
    memset(h->d_qkv, 0xff, sizeof h->d_qkv);
    h->d_sink = 0.0;
    for (size_t first = 0; first < n; first += B)
        model_attention_rows_backward_f64(&h->a, first, h->d_o, h->d_qkv, kept + 3 * first);
    for (size_t from = 0; from < n; from += B)
        for (size_t first = 0; first < n; first += B)
            model_attention_columns_backward_f64(&h->a, first, from, from + B < n ? from + B : n,
                                                 kept + 3 * first, h->d_o, h->d_qkv + D, h->d_qkv + 2 * D, 0);
    assert_memory_equal(h->d_qkv, whole, sizeof h->d_qkv);
    assert_true(h->d_sink == d_sink);
    free(whole);
    free(kept);
}

static void check_case(head_t *h, plain_t *r, const case_t *c)
{
    const size_t n = c->n;
    set(h, c);
    if (c->prefix == 0)
        check_pieces(h, c);
    memset(h->o, 0xff, sizeof h->o); /* NaN: every element is written */
    model_attention_f64(&h->a, h->o);
    plain_forward(r, h, c);
    plain_backward(r, h, n);
    near("o", h->o, LD_O, 0.0, r->o, n, 1e-13);
    for (int add = 0; add < 2; add++) {
        memset(h->d_qkv, 0xff, sizeof h->d_qkv);
        for (size_t i = 0; add && i < n * LD; i++)
            h->d_qkv[i] = 10.0;
        h->d_sink = 10.0;
        model_attention_backward_f64(&h->a, h->d_o, h->d_qkv, h->d_qkv + D, h->d_qkv + 2 * D, add);
        assert_true(fabs(h->d_sink - 10.0 - r->d_sink) < 1e-12 * fmax(1.0, fabs(r->d_sink)));
        near("d_q", h->d_qkv, LD, 0.0, r->dq, n, 1e-12);
        near("d_k", h->d_qkv + D, LD, add ? 10.0 : 0.0, r->dk, n, 1e-12);
        near("d_v", h->d_qkv + 2 * D, LD, add ? 10.0 : 0.0, r->dv, n, 1e-12);
    }
    /* between the rows, and after them, nothing is written */
    for (size_t i = 0; i < MOST; i++) {
        for (size_t d = i < n ? 3 * D : 0; d < LD; d++)
            assert_true(isnan(h->d_qkv[i * LD + d]) || (i < n && h->d_qkv[i * LD + d] == 10.0));
        for (size_t d = i < n ? D : 0; d < LD_O; d++)
            assert_true(isnan(h->o[i * LD_O + d]));
    }
}

static void as_the_plain_one(void **state)
{
    (void)state;
    head_t *h = malloc(sizeof *h);
    plain_t *r = malloc(sizeof *r);
    assert_true(h && r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(h, r, &cases[i]);
    free(h);
    free(r);
}

static double output(head_t *h)
{
    double sum = 0.0;
    model_attention_f64(&h->a, h->o);
    for (size_t i = 0; i < h->a.n; i++)
        sum += row_dot(h->o + i * LD_O, h->d_o + i * LD_O);
    return sum;
}

/* Some elements of queries, keys and values, in every block. */
static void differences(void **state)
{
    (void)state;
    const case_t some[] = {{.n = 300}, {.n = 300, .window = 150, .drop = 0.2}, {.n = 300, .prefix = 140}};
    head_t *h = malloc(sizeof *h);
    assert_non_null(h);
    for (size_t c = 0; c < sizeof some / sizeof *some; c++) {
        set(h, &some[c]);
        model_attention_backward_f64(&h->a, h->d_o, h->d_qkv, h->d_qkv + D, h->d_qkv + 2 * D, 0);
        for (size_t i = 0; i < 300; i += 23)
            for (size_t d = i % 4; d < 3 * D; d += 4) {
                double *x = h->qkv + i * LD + d, keep = *x;
                *x = keep + GRADIENT_EPS;
                double up = output(h);
                *x = keep - GRADIENT_EPS;
                double want = (up - output(h)) / (2 * GRADIENT_EPS);
                *x = keep;
                assert_true(fabs(h->d_qkv[i * LD + d] - want) < GRADIENT_TOL * fmax(1.0, fabs(want)));
            }
    }
    free(h);
}

/* ---- float, and weights of 16 bits ---- */

typedef struct {
    float qkv[MOST * LD], d_qkv[MOST * LD], o[MOST * LD_O], d_o[MOST * LD_O], p[B * MOST], d_p[B * MOST];
} head32_t;

static void in_float(void **state)
{
    (void)state;
    const case_t c = {.n = 391};
    const model_kernels_t_f32 *k = model_kernels_f32(MODEL_ISA_BEST);
    /* roundings: of sums of 391 numbers; of weights and gradients of scores, to 8 and 11 bits */
    void (*const round[])(float *, size_t) = {NULL, k->round_bf16, k->round_fp16};
    const double tolerance[] = {1e-5, 0x1p-6, 0x1p-9};
    head_t *h = malloc(sizeof *h);
    head32_t *f = malloc(sizeof *f);
    assert_true(h && f);
    set(h, &c);
    for (size_t i = 0; i < MOST * LD; i++)
        h->qkv[i] = (double)(f->qkv[i] = (float)h->qkv[i]);
    for (size_t i = 0; i < MOST * LD_O; i++)
        h->d_o[i] = (double)(f->d_o[i] = (float)h->d_o[i]);
    model_attention_f64(&h->a, h->o);
    model_attention_backward_f64(&h->a, h->d_o, h->d_qkv, h->d_qkv + D, h->d_qkv + 2 * D, 0);
    for (int how = 0; how < 3; how++) {
        const model_attention_t_f32 a = {.k = k,
                                         .n = c.n,
                                         .head_dim = D,
                                         .query = f->qkv,
                                         .key = f->qkv + D,
                                         .value = f->qkv + 2 * D,
                                         .ld = LD,
                                         .ld_o = LD_O,
                                         .scale = 0.7f,
                                         .round = round[how],
                                         .p = f->p,
                                         .d_p = f->d_p};
        model_attention_f32(&a, f->o);
        model_attention_backward_f32(&a, f->d_o, f->d_qkv, f->d_qkv + D, f->d_qkv + 2 * D, 0);
        double worst = 0.0, most = 0.0;
        for (size_t i = 0; i < c.n; i++)
            for (size_t d = 0; d < 3 * D; d++) {
                double want = h->d_qkv[i * LD + d];
                worst = fmax(worst, fabs((double)f->d_qkv[i * LD + d] - want) / fmax(1.0, fabs(want)));
                most = d < D ? fmax(most, fabs((double)f->o[i * LD_O + d] - h->o[i * LD_O + d])) : most;
            }
        print_message("precision %d: output %.1e, gradients %.1e\n", how, most, worst);
        assert_true(most < tolerance[how] && worst < tolerance[how]);
        assert_true(how == 0 || worst > tolerance[0]); /* it was rounded */
    }
    free(h);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_plain_one), cmocka_unit_test(differences),
                                       cmocka_unit_test(in_float)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
