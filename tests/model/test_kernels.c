/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures' operators: values against libm, gradients against central differences in double, masks
 * of dropout, and the same bits from every instruction set. A router's values: test_router.c. */
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

enum { T = 5, C = 19, F = 21, E = 6, K = 3 }; /* lanes (16) have a tail */

/* ---- rmsnorm ---- */
typedef struct {
    double x[T * C], w[C], dy[T * C], y[T * C], rstd[T];
} norm_t;

static double norm_scalar(void *context)
{
    norm_t *n = context;
    k->rmsnorm(n->y, n->rstd, n->x, n->w, T, C, 1e-6);
    return gradient_dot(n->y, n->dy, T * C);
}

static void rmsnorm(void **state)
{
    (void)state;
    static norm_t n;
    double dx[T * C], dw[C];
    fill(n.x, T * C, 1, 1.5);
    fill(n.w, C, 2, 1.0);
    fill(n.dy, T * C, 4, 1.0);
    norm_scalar(&n);
    for (size_t i = 0; i < T * C; i++)
        dx[i] = 100.0; /* it must add */
    k->rmsnorm_backward(dx, dw, n.dy, n.x, n.w, n.rstd, T, C);
    for (size_t i = 0; i < T * C; i++)
        dx[i] -= 100.0;
    gradient_check("rmsnorm x", norm_scalar, &n, n.x, dx, T * C);
    gradient_check("rmsnorm weight", norm_scalar, &n, n.w, dw, C);
    norm_scalar(&n);
    double squares = gradient_dot(n.x, n.x, C);
    for (size_t c = 0; c < C; c++)
        assert_true(fabs(n.y[c] - n.x[c] * n.w[c] / sqrt(squares / C + 1e-6)) < 1e-14);
}

/* ---- activations ---- */
static double reference(model_act_t act, double v)
{
    switch (act) {
    case MODEL_ACT_GELU_TANH:
        return 0.5 * v * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case MODEL_ACT_GELU_ERF:
        return 0.5 * v * erfc(-v / sqrt(2.0));
    case MODEL_ACT_GELU_FAST:
        return v / (1.0 + exp(-1.702 * v));
    case MODEL_ACT_RELU:
        return v > 0.0 ? v : 0.0;
    case MODEL_ACT_SILU:
        return v / (1.0 + exp(-v));
    }
    return NAN;
}

typedef struct {
    model_act_t act;
    double x[2 * T * F], dy[T * F], y[T * F];
} act_t;

static double act_scalar(void *context)
{
    act_t *n = context;
    k->act[n->act](n->y, n->x, T * F);
    return gradient_dot(n->y, n->dy, T * F);
}

static double gated_scalar(void *context)
{
    act_t *n = context;
    k->gated[n->act](n->y, n->x, T, F);
    return gradient_dot(n->y, n->dy, T * F);
}

static void activations(void **state)
{
    (void)state;
    static act_t n;
    double dx[2 * T * F];
    for (int act = 0; act < MODEL_ACTS; act++) {
        n.act = (model_act_t)act;
        fill(n.x, 2 * T * F, 5, 2.0);
        fill(n.dy, T * F, 6, 1.0);
        memcpy(dx, n.dy, sizeof n.dy);
        k->act_backward[act](dx, dx, n.x, T * F); /* in place is allowed */
        gradient_check("activation", act_scalar, &n, n.x, dx, T * F);
        k->gated_backward[act](dx, n.dy, n.x, T, F);
        gradient_check("gated", gated_scalar, &n, n.x, dx, 2 * T * F);
        k->gated[act](n.y, n.x, T, F);
        for (size_t t = 0; t < T; t++)
            for (size_t i = 0; i < F; i++) {
                double want = reference(n.act, n.x[2 * t * F + i]) * n.x[(2 * t + 1) * F + i];
                assert_true(fabs(n.y[t * F + i] - want) < 1e-13 * fmax(1.0, fabs(want)));
            }
    }
}

/* Over the whole range, both types; the tails of GELU keep relative accuracy. */
static void activations_are_accurate(void **state)
{
    (void)state;
    enum { N = 4001 };
    static double x[N], y[N];
    static float xf[N], yf[N];
    const double edge[] = {-INFINITY, INFINITY, NAN, -1000.0, 1000.0};
    for (int act = 0; act < MODEL_ACTS; act++) {
        double worst = 0.0, worst_f = 0.0;
        for (size_t i = 0; i < N; i++) {
            x[i] = -9.0 + 18.0 * (double)i / (N - 1);
            xf[i] = (float)x[i];
        }
        k->act[act](y, x, N);
        model_kernels_f32(MODEL_ISA_BEST)->act[act](yf, xf, N);
        for (size_t i = 0; i < N; i++) {
            double want = reference((model_act_t)act, x[i]),
                   want_f = reference((model_act_t)act, (double)xf[i]);
            /* the tanh form cancels on the left, in every implementation */
            double floor = act == MODEL_ACT_GELU_TANH ? 1.0 : 1e-12;
            worst = fmax(worst, fabs(y[i] - want) / fmax(floor, fabs(want)));
            worst_f = fmax(worst_f, fabs((double)yf[i] - want_f) / fmax(fmax(floor, 1e-12), fabs(want_f)));
        }
        print_message("activation %d: %.1e in double, %.1e in float\n", act, worst, worst_f);
        assert_true(worst < 5e-14 && worst_f < 1e-5);
        k->act[act](y, edge, 5);
        assert_true(isinf(y[1]) && isnan(y[2]) && y[3] == 0.0 && y[4] == 1000.0);
    }
}

/* ---- rope ---- */
typedef struct {
    double x[T * C], turn[T * 2 * 4], dy[T * C], y[T * C];
    int interleaved;
} rope_t;

static double rope_scalar(void *context)
{
    rope_t *n = context;
    memcpy(n->y, n->x, sizeof n->y);
    k->rope(n->y, n->turn, T, C, 4, n->interleaved, 0);
    return gradient_dot(n->y, n->dy, T * C);
}

static void rope(void **state)
{
    (void)state;
    static rope_t n;
    double dx[T * C];
    model_rope_table_f64(n.turn, T, 4, &(model_rope_t){.theta = 10000.0});
    for (n.interleaved = 0; n.interleaved < 2; n.interleaved++) {
        fill(n.x, T * C, 7, 1.0);
        fill(n.dy, T * C, 8, 1.0);
        memcpy(dx, n.dy, sizeof dx);
        k->rope(dx, n.turn, T, C, 4, n.interleaved, 1);
        gradient_check(n.interleaved ? "rope, neighbours" : "rope, halves", rope_scalar, &n, n.x, dx, T * C);
        rope_scalar(&n);
        for (size_t t = 0; t < T; t++)
            for (size_t c = 0; c < C; c++) {
                size_t pair = n.interleaved ? c / 2 : c % 4, a = n.interleaved ? 2 * pair : pair;
                size_t b = n.interleaved ? a + 1 : a + 4;
                double angle = (double)t * pow(10000.0, -(double)pair / 4.0), want = n.x[t * C + c];
                if (c < 8)
                    want = c == a ? n.x[t * C + a] * cos(angle) - n.x[t * C + b] * sin(angle)
                                  : n.x[t * C + b] * cos(angle) + n.x[t * C + a] * sin(angle);
                assert_true(fabs(n.y[t * C + c] - want) < 1e-15 * 8.0);
            }
    }
}

/* ---- norms of heads ---- */
enum { HEADS = 3, WIDTH = 5, APART = HEADS * WIDTH + 2 };
typedef struct {
    double x[T * APART], w[WIDTH], dy[T * APART], y[T * APART], raw[T * HEADS * WIDTH], rstd[T * HEADS];
} heads_t;

static double heads_scalar(void *context)
{
    heads_t *n = context;
    memcpy(n->y, n->x, sizeof n->y);
    k->head_norm(n->y, n->raw, n->rstd, n->w, T, APART, HEADS, WIDTH, 1e-5);
    return gradient_dot(n->y, n->dy, T * APART);
}

/* Each head is normalised as a row of rmsnorm is; what is next to them stays. */
static void head_norm(void **state)
{
    (void)state;
    static heads_t n;
    double dx[T * APART], dw[WIDTH], y[WIDTH], rstd;
    fill(n.x, T * APART, 21, 1.0);
    fill(n.dy, T * APART, 22, 1.0);
    fill(n.w, WIDTH, 23, 1.0);
    heads_scalar(&n);
    for (size_t i = 0; i < T * HEADS; i++) {
        size_t at = i / HEADS * APART + i % HEADS * WIDTH;
        k->rmsnorm(y, &rstd, n.x + at, n.w, 1, WIDTH, 1e-5);
        assert_memory_equal(y, n.y + at, sizeof y);
        assert_memory_equal(n.raw + i * WIDTH, n.x + at, sizeof y);
    }
    assert_memory_equal(n.y + HEADS * WIDTH, n.x + HEADS * WIDTH, 2 * sizeof *y);
    memcpy(dx, n.dy, sizeof dx);
    k->head_norm_backward(dx, dw, n.raw, n.rstd, n.w, T, APART, HEADS, WIDTH);
    gradient_check("norms of heads, x", heads_scalar, &n, n.x, dx, T * APART);
    gradient_check("norms of heads, w", heads_scalar, &n, n.w, dw, WIDTH);
}

/* ---- one norm of all heads, in two parts ---- */
enum { SHARE = 7 };
typedef struct {
    double x[T * APART], w[APART], dy[T * APART], y[T * APART], raw[T * APART], rstd[T];
} parts_t;

static double parts_scalar(void *context)
{
    parts_t *n = context;
    double sum[T], more[T];
    memcpy(n->y, n->x, sizeof n->y);
    k->part_squares(sum, n->y, T, APART, SHARE);
    k->part_squares(more, n->y + SHARE, T, APART, APART - SHARE);
    k->add(sum, sum, more, T);
    k->part_norm(n->y, n->raw, n->rstd, sum, n->w, T, APART, SHARE, APART, 1e-5);
    k->part_norm(n->y + SHARE, n->raw + T * SHARE, n->rstd, sum, n->w + SHARE, T, APART, APART - SHARE, APART,
                 1e-5);
    return gradient_dot(n->y, n->dy, T * APART);
}

static void part_norm(void **state)
{
    (void)state;
    static parts_t n;
    double dx[T * APART], dw[APART], sum[T], more[T], y[T * APART], rstd[T], *raw = n.raw + T * SHARE;
    fill(n.x, T * APART, 31, 1.0);
    fill(n.dy, T * APART, 32, 1.0);
    fill(n.w, APART, 33, 1.0);
    parts_scalar(&n);
    k->rmsnorm(y, rstd, n.x, n.w, T, APART, 1e-5);
    for (size_t i = 0; i < T * APART; i++)
        assert_true(fabs(y[i] - n.y[i]) < 1e-14);
    memcpy(dx, n.dy, sizeof dx);
    k->part_dots(sum, dx, n.raw, n.rstd, n.w, T, APART, SHARE);
    k->part_dots(more, dx + SHARE, raw, n.rstd, n.w + SHARE, T, APART, APART - SHARE);
    k->add(sum, sum, more, T);
    k->part_norm_backward(dx, dw, n.raw, n.rstd, sum, n.w, T, APART, SHARE, APART);
    k->part_norm_backward(dx + SHARE, dw + SHARE, raw, n.rstd, sum, n.w + SHARE, T, APART, APART - SHARE,
                          APART);
    gradient_check("a norm in parts, x", parts_scalar, &n, n.x, dx, T * APART);
    gradient_check("a norm in parts, w", parts_scalar, &n, n.w, dw, APART);
}

/* Frequencies of published models, by the formulas of their own programs in double. */
static void scaled_rope(void **state)
{
    (void)state;
    const model_rope_t llama = {.theta = 5e5,
                                .type = MODEL_ROPE_LLAMA3,
                                .factor = 8,
                                .low = 1,
                                .high = 4,
                                .original = 8192},
                       qwen = {.theta = 1e6,
                               .type = MODEL_ROPE_YARN,
                               .factor = 4,
                               .low = 1,
                               .high = 32,
                               .original = 32768,
                               .attention = 1.25},
                       linear = {.theta = 1e4, .type = MODEL_ROPE_LINEAR, .factor = 4},
                       dynamic = {.theta = 1e4, .type = MODEL_ROPE_DYNAMIC, .factor = 4};
    const struct {
        const model_rope_t *rope;
        size_t pair;
        double want;
    } known[] = {{&llama, 0, 1.0},
                 {&llama, 28, 0.003211445994752591},
                 {&llama, 29, 0.002166570763503359},
                 {&llama, 32, 0.0005248461609929547},
                 {&llama, 35, 9.556212353964683e-05},
                 {&llama, 63, 3.068925988914511e-07},
                 {&qwen, 0, 1.0},
                 {&qwen, 23, 0.006978305848598663},
                 {&qwen, 24, 0.005375321490790102},
                 {&qwen, 30, 0.001064360981247002},
                 {&qwen, 39, 6.490394320837029e-05},
                 {&qwen, 40, 4.445698525097307e-05},
                 {&qwen, 63, 3.102344401879299e-07}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double got = model_rope_frequency(known[i].rope, known[i].pair, 64);
        assert_true(fabs(got / known[i].want - 1.0) < 1e-14);
    }
    assert_true(model_rope_frequency(&linear, 1, 2) == 0.0025 &&
                model_rope_frequency(&dynamic, 1, 2) == 0.01);
    float turn[2 * 2 * 64];
    model_rope_table_f32(turn, 2, 64, &qwen);
    assert_true(turn[0] == 1.25f && turn[64] == 0.0f);
    assert_true(turn[128] == (float)(1.25 * cos(1.0)) && turn[192] == (float)(1.25 * sin(1.0)));
}

/* ---- softmax with a bias, a prefix and a window ---- */
enum { V = 23 };
typedef struct {
    double s[V * V], d[V * V], p[V * V], slope;
    model_scores_t at;
} softmax_t;

static double softmax_scalar(void *context)
{
    softmax_t *n = context;
    memcpy(n->p, n->s, sizeof n->p);
    k->softmax(n->p, &n->at, 0.4, n->slope, NULL, NULL, NULL);
    return gradient_dot(n->p, n->d, V * V);
}

/* Rows 11 .. 19 and the columns from 4 on, which they see with a window of 7, have the bits of all rows. */
static void softmax_of_some_rows(const softmax_t *n, const double *ds)
{
    enum { FIRST = 11, ROWS = 9 };
    const size_t from = n->at.window ? 4 : 0, columns = FIRST + ROWS + 2 - from;
    const model_scores_t at = {FIRST, ROWS, from, columns, n->at.prefix, n->at.window};
    double p[ROWS * V], d[ROWS * V];
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(p + i * columns, n->s + (FIRST + i) * V + from, columns * sizeof *p);
        memcpy(d + i * columns, n->d + (FIRST + i) * V + from, columns * sizeof *d);
    }
    k->softmax(p, &at, 0.4, n->slope, NULL, NULL, NULL);
    k->softmax_backward(d, p, &at, 0.4, NULL, NULL);
    for (size_t i = 0; i < ROWS; i++) {
        assert_memory_equal(p + i * columns, n->p + (FIRST + i) * V + from, columns * sizeof *p);
        assert_memory_equal(d + i * columns, ds + (FIRST + i) * V + from, columns * sizeof *d);
    }
}

static void softmax(void **state)
{
    (void)state;
    static softmax_t n;
    static double ds[V * V];
    fill(n.s, V * V, 9, 2.0);
    fill(n.d, V * V, 10, 1.0);
    for (int i = 0; i < 6; i++) {
        n.slope = i & 1 ? 0.25 : 0.0;
        n.at = (model_scores_t){.rows = V, .columns = V, .prefix = i & 2 ? 9 : 0, .window = i & 4 ? 7 : 0};
        softmax_scalar(&n);
        for (size_t t = 0; t < V; t++) {
            size_t seen = n.at.prefix && t < 9 ? 9 : t + 1, from = n.at.window && t >= 7 ? t - 6 : 0;
            double sum = 0.0, total = 0.0;
            for (size_t j = from; j < seen; j++)
                total += exp(0.4 * n.s[t * V + j] - n.slope * fabs((double)j - (double)t));
            for (size_t j = 0; j < V; j++) {
                double want = exp(0.4 * n.s[t * V + j] - n.slope * fabs((double)j - (double)t)) / total;
                assert_true(j >= from && j < seen ? fabs(n.p[t * V + j] - want) < 1e-14
                                                  : n.p[t * V + j] == 0.0);
                sum += n.p[t * V + j];
            }
            assert_true(fabs(sum - 1.0) < 1e-14);
        }
        memcpy(ds, n.d, sizeof ds);
        k->softmax_backward(ds, n.p, &n.at, 0.4, NULL, NULL);
        gradient_check("softmax", softmax_scalar, &n, n.s, ds, V * V);
        softmax_of_some_rows(&n, ds);
    }
}

/* The published slopes: 8 heads, and 12 (Press et al., get_slopes). */
static void alibi_slopes(void **state)
{
    (void)state;
    for (size_t h = 0; h < 8; h++) {
        assert_true(model_alibi_slope(h, 8) == ldexp(1.0, -(int)(h + 1)));
        assert_true(model_alibi_slope(h, 12) == ldexp(1.0, -(int)(h + 1)));
    }
    for (size_t h = 8; h < 12; h++) /* every second slope of 16 heads */
        assert_true(fabs(model_alibi_slope(h, 12) - model_alibi_slope(2 * (h - 8), 16)) < 1e-16);
    assert_true(model_alibi_slope(0, 1) == 1.0 / 256.0);
}

/* ---- dropout ---- */
static void dropout(void **state)
{
    (void)state;
    enum { N = 40000 };
    static double x[N], y[N], part[N];
    uint32_t key[4], other[4];
    for (size_t i = 0; i < N; i++)
        x[i] = 1.0;
    model_dropout_key(3, 17, 5, 2, 1, key);
    k->dropout(y, x, key, model_dropout_below(0.3), 1.0 / 0.7, 0, N);
    size_t dropped = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(y[i] == 0.0 || y[i] == 1.0 / 0.7);
        dropped += y[i] == 0.0;
    }
    assert_true(dropped > 0.29 * N && dropped < 0.31 * N);
    /* any piece of the tensor has the same mask, in place, too */
    for (size_t first = 0; first < 9; first++) {
        memcpy(part, x + first, 101 * sizeof *part);
        k->dropout(part, part, key, model_dropout_below(0.3), 1.0 / 0.7, first, 101);
        assert_memory_equal(part, y + first, 101 * sizeof *part);
    }
    /* another seed, sequence, step, layer, site: another mask */
    const uint64_t where[6][5] = {{3, 17, 5, 2, 1}, {4, 17, 5, 2, 1}, {3, 18, 5, 2, 1},
                                  {3, 17, 6, 2, 1}, {3, 17, 5, 3, 1}, {3, 17, 5, 2, 2}};
    for (size_t i = 1; i < 6; i++) {
        model_dropout_key(where[i][0], where[i][1], where[i][2], where[i][3], (unsigned)where[i][4], other);
        k->dropout(part, x, other, model_dropout_below(0.3), 1.0 / 0.7, 0, N);
        size_t same = 0;
        for (size_t j = 0; j < N; j++)
            same += (part[j] == 0.0) == (y[j] == 0.0);
        assert_true(same > 0.57 * N && same < 0.59 * N); /* 0.3^2 + 0.7^2, as independent ones agree */
    }
}

/* ---- the same bits ---- */
typedef struct {
    float act[MODEL_ACTS][T * F], slope[MODEL_ACTS][T * F], gated[MODEL_ACTS][T * F],
        dgated[MODEL_ACTS][2 * T * F];
    float norm[T * C], rstd[T], dx[T * C], dw[C], rope[T * C], heads[T * C], dheads[T * C], dgain[C / 3],
        raw[T * C], rstd_heads[3 * T], part[T * C], dpart[T * C], dwhole[C], cap[T * C], dcap[T * C],
        squares[T], dots[T], p[V * V], dp[V * V], pw[V * V], dpw[V * V], drop[T * C], prob[T * E],
        weight[T * K], dlogit[T * E], limited[T * F], dlimited[2 * T * F], ps[V * V], dps[V * V], rest[V],
        d_sink;
    int32_t choice[T * K];
} everything_t;

static void run_everything(const model_kernels_t_f32 *f, everything_t *e)
{
    static float x[V * V], d[V * V], w[C], turn[T * 8];
    uint32_t key[4];
    memset(e, 0, sizeof *e);
    for (size_t i = 0; i < V * V; i++) {
        x[i] = (float)(3.0 * model_random_normal(2, MODEL_RANDOM_DATA, 0, i));
        d[i] = (float)model_random_normal(2, MODEL_RANDOM_DATA, 1, i);
    }
    for (size_t i = 0; i < C; i++)
        w[i] = 1.0f + 0.1f * d[i];
    model_rope_table_f32(turn, T, 4, &(model_rope_t){.theta = 10000.0});
    for (int a = 0; a < MODEL_ACTS; a++) {
        f->act[a](e->act[a], x, T * F);
        f->act_backward[a](e->slope[a], d, x, T * F);
        f->gated[a](e->gated[a], x, T, F);
        f->gated_backward[a](e->dgated[a], d, x, T, F);
    }
    f->limited(e->limited, x, T, F, 1.5f);
    f->limited_backward(e->dlimited, d, x, T, F, 1.5f);
    f->rmsnorm(e->norm, e->rstd, x, w, T, C, 1e-5f);
    f->rmsnorm_backward(e->dx, e->dw, d, x, w, e->rstd, T, C);
    memcpy(e->heads, x, sizeof e->heads);
    memcpy(e->dheads, d, sizeof e->dheads);
    f->head_norm(e->heads, e->raw, e->rstd_heads, w, T, C, 3, C / 3, 1e-5f);
    f->head_norm_backward(e->dheads, e->dgain, e->raw, e->rstd_heads, w, T, C, 3, C / 3);
    memcpy(e->part, x, sizeof e->part);
    memcpy(e->dpart, d, sizeof e->dpart);
    f->part_squares(e->squares, x, T, C, C);
    f->part_norm(e->part, e->raw, e->rstd_heads, e->squares, w, T, C, C, C, 1e-5f);
    f->part_dots(e->dots, d, e->raw, e->rstd_heads, w, T, C, C);
    f->part_norm_backward(e->dpart, e->dwhole, e->raw, e->rstd_heads, e->dots, w, T, C, C, C);
    memcpy(e->rope, x, sizeof e->rope);
    f->rope(e->rope, turn, T, C, 4, 0, 0);
    memcpy(e->p, x, sizeof e->p);
    memcpy(e->dp, d, sizeof e->dp);
    const model_scores_t prefix = {.rows = V, .columns = V, .prefix = 5},
                         window = {.rows = V, .columns = V, .window = 6};
    memcpy(e->cap, x, sizeof e->cap);
    memcpy(e->dcap, d, sizeof e->dcap);
    f->cap(e->cap, T * C, 0.3f, 0.7f);
    f->cap_backward(e->dcap, e->cap, T * C, 0.3f, 0.7f);
    f->softmax(e->p, &prefix, 0.3f, 0.25f, NULL, NULL, NULL);
    f->softmax_backward(e->dp, e->p, &prefix, 0.3f, NULL, NULL);
    memcpy(e->pw, x, sizeof e->pw);
    memcpy(e->dpw, d, sizeof e->dpw);
    f->softmax(e->pw, &window, 0.3f, 0.0f, NULL, NULL, NULL);
    f->softmax_backward(e->dpw, e->pw, &window, 0.3f, NULL, NULL);
    memcpy(e->ps, x, sizeof e->ps);
    memcpy(e->dps, d, sizeof e->dps);
    f->softmax(e->ps, &window, 0.3f, 0.0f, d, e->rest, NULL);
    e->d_sink = f->softmax_backward(e->dps, e->ps, &window, 0.3f, e->rest, NULL);
    model_dropout_key(1, 2, 3, 4, 0, key);
    f->dropout(e->drop, x, key, model_dropout_below(0.5), 2.0f, 3, T * C);
    memcpy(e->prob, x, sizeof e->prob);
    const model_router_t_f32 router = {.experts = E, .top_k = K};
    f->route(e->prob, e->choice, e->weight, T, &router);
    f->route_backward(e->dlogit, e->prob, e->choice, e->weight, d, d, T, &router);
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

static int setup(void **state)
{
    (void)state;
    k = model_kernels_f64(MODEL_ISA_BEST);
    return k == NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm),
        cmocka_unit_test(activations),
        cmocka_unit_test(activations_are_accurate),
        cmocka_unit_test(rope),
        cmocka_unit_test(scaled_rope),
        cmocka_unit_test(head_norm),
        cmocka_unit_test(part_norm),
        cmocka_unit_test(softmax),
        cmocka_unit_test(alibi_slopes),
        cmocka_unit_test(dropout),
        cmocka_unit_test(instruction_sets_agree),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
