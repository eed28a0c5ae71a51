/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_rows.c: residual, norms and sums over positions to the bit, in the order of sums of
 * model/gpu/layers/norm.h, in both storages: rows that 16-byte loads take and rows that they do not, rows too
 * long for shared memory, an odd number of rows, a part of the positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "model/gpu/layers/norm.h"
#include "tests/gpu/kernels/storage.h"

static const model_kernels_t_f32 *k;
static struct CUstream_st *stream;

/* ---- residual and norm --------------------------------------------------------------------------------- */

static void tree_of(float *sum, size_t terms, size_t n) /* sum [terms][n] -> [n] */
{
    for (; terms > 1; terms /= 2)
        for (size_t i = 0; i < terms / 2; i++)
            k->add(sum + i * n, sum + 2 * i * n, sum + (2 * i + 1) * n, n);
}

enum { SITE = 6 * 4 + 2, SITE_Y = 4 };

/* Element `first` of a tensor's dropout at `place`, of the sequence i. */
static void drop_row(float *row, size_t i, uint32_t place, size_t first, size_t C)
{
    uint32_t key[4];
    model_dropout_key(5, i + 7, 11, place / 4, place % 4, key);
    k->dropout(row, row, key, model_dropout_below(0.3), (float)(1.0 / 0.7), first, C);
}

static void norm_of(model_cuda_type_t type, size_t C, size_t leaves, int rms, int drops)
{
    enum { B = 3, T = 3, ROWS = B * T };
    const size_t step_x = (T + 1) * C, step_y = (T + 2) * C, n = ROWS * C;
    const float eps = 1e-5f;
    float *x = stored(type, B * step_x), *part = numbers((leaves > 0 ? leaves : 1) * n);
    float *bias = stored(type, C), *w = stored(type, C), *b = stored(type, C);
    float *sum = malloc((leaves + 1) * n * sizeof *sum), *out = malloc(n * sizeof *out);
    float *y = calloc(B * step_y, sizeof *y), mean[ROWS] = {0}, rstd[ROWS];
    uint32_t keys[B][4];
    memcpy(sum, part, (leaves > 0 ? leaves : 1) * n * sizeof *sum);
    tree_of(sum, leaves, n);
    for (size_t r = 0; r < ROWS; r++) {
        const float *from = x + r / T * step_x + r % T * C;
        float *s = sum + r * C, *to = y + r / T * step_y + r % T * C;
        model_dropout_key(5, r / T + 7, 11, 0, 0, keys[r / T]);
        k->add(s, s, bias, C);
        if (drops)
            drop_row(s, r / T, SITE, 2 * C + r % T * C, C);
        k->scale_add(s, 1.5f, from, s, C);
        memcpy(out + r * C, leaves > 0 ? s : from, C * sizeof *out);
        round_to(type, out + r * C, C);
        if (rms)
            k->rmsnorm(to, rstd + r, out + r * C, w, 1, C, eps);
        else
            k->layernorm(to, mean + r, rstd + r, out + r * C, w, b, 1, C, eps);
        if (drops)
            drop_row(to, r / T, SITE_Y, r % T * C, C);
    }
    void *d[] = {send(type, x, B * step_x), leaves > 0 ? to_device(part, leaves * n * 4) : NULL,
                 send(type, bias, C),       send(type, w, C),
                 send(type, b, C),          to_device(keys, sizeof keys)};
    void *d_out = send(type, out, n), *d_y = send(type, y, B * step_y);
    float *d_mean = to_device(mean, sizeof mean), *d_rstd = to_device(NULL, sizeof rstd);
    size_t element = type == MODEL_CUDA_BF16 ? 2 : 4;
    assert_cuda(cudaMemset(d_y, 0, B * step_y * element));
    if (leaves > 0)
        assert_cuda(cudaMemset(d_out, 0, n * element));
    const model_cuda_dropout_t drop = {.keys = drops ? d[5] : NULL,
                                       .place = SITE,
                                       .below = model_dropout_below(0.3),
                                       .kept = (float)(1.0 / 0.7),
                                       .first = 2 * C};
    model_cuda_norm_t p = {.type = type,
                           .sequences = B,
                           .rows = T,
                           .channels = C,
                           .x = d[0],
                           .step_x = step_x,
                           .sum = d[1],
                           .leaves = leaves,
                           .bias = d[2],
                           .alpha = 1.5f,
                           .drop = drop,
                           .out = d_out,
                           .y = d_y,
                           .step_y = step_y,
                           .norm = rms ? MODEL_NORM_RMS : MODEL_NORM_LAYER,
                           .w = d[3],
                           .b = d[4],
                           .mean = d_mean,
                           .rstd = d_rstd,
                           .eps = eps,
                           .drop_y = drop};
    p.drop_y.place = SITE_Y;
    p.drop_y.first = 0;
    assert_int_equal(model_cuda_norm(&p, stream), GYRE_OK);
    expect_bits("residual", type, out, d_out, n, stream);
    expect_bits("norm", type, y, d_y, B * step_y, stream);
    expect_bits("rstd", MODEL_CUDA_F32, rstd, d_rstd, ROWS, stream);
    expect_bits("mean", MODEL_CUDA_F32, mean, d_mean, ROWS, stream);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        assert_cuda(cudaFree(d[i]));
    free(x), free(part), free(bias), free(w), free(b), free(sum), free(out), free(y);
}

static void norms(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++)
        for (int rms = 0; rms < 2; rms++) {
            for (size_t leaves = 0; leaves <= 8; leaves = leaves ? 2 * leaves : 1)
                norm_of((model_cuda_type_t)type, leaves == 2 ? 37 : 264, leaves, rms, leaves == 1);
            norm_of((model_cuda_type_t)type, 37, 1, rms, 1);
            norm_of((model_cuda_type_t)type, type == MODEL_CUDA_BF16 ? 12400 : 6200, 1, rms, 0);
        }
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* The second half of each of two sequences of 40 positions: two of four pieces, of ten positions each. */
enum { ALL = 40, HERE = 20, PIECE = 10, PIECES = 2, TWO = 2, POSITIONS = TWO * HERE };
#define SPAN(C)                                                                                       \
    {                                                                                                 \
        .sequences = TWO, .rows = HERE, .channels = (C), .all = ALL, .begin = ALL - HERE, .leaves = 2 \
    }

/* sum [two][C], step apart, from the terms [two][positions][C]. */
static void pieces_of(float *sum, size_t step, const float *term, size_t C)
{
    for (size_t i = 0; i < TWO; i++) {
        float *piece = calloc(PIECES * C, sizeof *piece);
        for (size_t t = 0; t < HERE; t++) {
            float *to = piece + t / PIECE * C;
            k->add(to, to, term + (i * HERE + t) * C, C);
        }
        tree_of(piece, PIECES, C);
        memcpy(sum + i * step, piece, C * sizeof *sum);
        free(piece);
    }
}

static void backward_of(model_cuda_type_t type, size_t C, int rms, int with_base)
{
    const size_t n = POSITIONS * C, element = type == MODEL_CUDA_BF16 ? 2 : 4;
    float *x = stored(type, n), *dy = stored(type, n), *w = stored(type, C), *base = stored(type, n);
    float *out = calloc(n, sizeof *out), *dyn = malloc(n * sizeof *dyn), *unused = malloc(2 * C * 4);
    float *want[MODEL_CUDA_SUMMED], mean[POSITIONS], rstd[POSITIONS];
    for (size_t r = 0; r < POSITIONS; r++) {
        const float *from = x + r * C, *d = dy + r * C;
        float *to = out + r * C;
        if (with_base)
            memcpy(to, base + r * C, C * sizeof *to);
        if (rms)
            k->rmsnorm(unused, rstd + r, from, w, 1, C, 1e-5f);
        else
            k->layernorm(unused, mean + r, rstd + r, from, w, w, 1, C, 1e-5f);
        if (rms)
            k->rmsnorm_backward(to, unused, d, from, w, rstd + r, 1, C);
        else
            k->layernorm_backward(to, unused, unused + C, d, from, w, mean + r, rstd + r, 1, C);
        for (size_t c = 0; c < C; c++)
            dyn[r * C + c] = d[c] * (rms ? from[c] * rstd[r] : (from[c] - mean[r]) * rstd[r]);
    }
    round_to(type, out, n);
    const float *term[MODEL_CUDA_SUMMED] = {dyn, dy, base, out};
    void *d_dy = send(type, dy, n), *d_x = send(type, x, n), *d_w = send(type, w, C);
    void *d_out = send(type, base, n), *d_mean = to_device(mean, sizeof mean),
         *d_rstd = to_device(rstd, sizeof rstd),
         *partial = to_device(NULL, TWO * PIECES * MODEL_CUDA_SUMMED * C * 4);
    model_cuda_norm_back_t p = {.type = type,
                                .span = SPAN(C),
                                .dy = d_dy,
                                .x = d_x,
                                .w = d_w,
                                .mean = d_mean,
                                .rstd = d_rstd,
                                .norm = rms ? MODEL_NORM_RMS : MODEL_NORM_LAYER,
                                .base = with_base ? d_out : NULL, /* in place */
                                .out = with_base ? d_out : d_dy,
                                .partial = partial,
                                .step_sum = C + 8};
    int sums = with_base ? MODEL_CUDA_SUMMED : MODEL_CUDA_SUM_BASE;
    for (int i = 0; i < sums; i++) {
        want[i] = calloc(TWO * (C + 8), 4);
        pieces_of(want[i], C + 8, term[i], C);
        p.sum[i] = to_device(NULL, TWO * (C + 8) * 4);
        assert_cuda(cudaMemset(p.sum[i], 0, TWO * (C + 8) * 4));
    }
    assert_int_equal(model_cuda_norm_back(&p, stream), GYRE_OK);
    expect_bits("gradient of a norm's input", type, out, p.out, n, stream);
    for (int i = 0; i < sums; i++) {
        static const char *const what[] = {"gain", "bias", "base", "out"};
        expect_bits(what[i], MODEL_CUDA_F32, want[i], p.sum[i], TWO * (C + 8), stream);
        free(want[i]);
    }
    /* the same sums of a tensor alone, of the last rows of longer sequences */
    float *whole = stored(type, TWO * ALL * C), *term_of = malloc(n * sizeof *term_of);
    for (size_t i = 0; i < TWO; i++)
        memcpy(term_of + i * HERE * C, whole + (i * ALL + ALL - HERE) * C, HERE * C * sizeof *whole);
    float *total = calloc(TWO * C, sizeof *total), *d_total = to_device(NULL, TWO * C * 4);
    void *d_whole = send(type, whole, TWO * ALL * C);
    pieces_of(total, C, term_of, C);
    const model_cuda_position_sums_t q = {.type = type,
                                          .span = SPAN(C),
                                          .dy = (char *)d_whole + (ALL - HERE) * C * element,
                                          .step_dy = ALL * C,
                                          .partial = partial,
                                          .sum = d_total,
                                          .step_sum = C};
    assert_int_equal(model_cuda_position_sums(&q, stream), GYRE_OK);
    expect_bits("sum over positions", MODEL_CUDA_F32, total, d_total, TWO * C, stream);
    void *rest[] = {d_x, d_w, d_mean, d_rstd, partial, with_base ? d_dy : d_out, d_whole};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        assert_cuda(cudaFree(rest[i]));
    free(x), free(dy), free(w), free(base), free(out), free(dyn), free(unused);
    free(whole), free(term_of), free(total);
}

static void backward(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        for (int type = 0; type < 2; type++) {
            backward_of((model_cuda_type_t)type, 37, rms, rms);
            backward_of((model_cuda_type_t)type, 264, rms, 0);
            backward_of((model_cuda_type_t)type, 2056, rms, 1); /* a few rows at a time, threads twice */
        }
        backward_of(rms ? MODEL_CUDA_F32 : MODEL_CUDA_BF16, rms ? 8368 : 16736, rms, 1); /* too long */
    }
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    k = model_kernels_f32(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
