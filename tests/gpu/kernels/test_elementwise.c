/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_elementwise.c: the kernels between products against those of the CPU
 * (model/kernels/kernels.h): in fp32 to the bit where they keep its order of sums (residual, norms and their
 * backward, gates, rotary positions, dropout), else to a part in a million (sums over positions,
 * cross-entropy); in bf16 the same numbers rounded once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu/layers/elementwise.h"
#include "model/gpu/layers/vocabulary.h"
#include "model/kernels/kernels.h"
#include "tests/gpu/kernels/storage.h"

enum { B = 2, T = 9, C = 37, N = B * T * C }; /* rows of no whole lanes, blocks of no whole rows */
static const model_kernels_t_f32 *k;
static struct CUstream_st *stream;

/* The device's floats, whose memory is given back. */
static float *back(void *memory, size_t n)
{
    float *x = malloc(n * sizeof *x);
    from_device(x, memory, n * sizeof *x, stream);
    return x;
}

/* tolerance 0: to the bit. */
static void expect(const char *what, const float *want, float *got, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (tolerance == 0.0
                ? memcmp(want + i, got + i, sizeof *got) != 0
                : !(fabs((double)want[i] - (double)got[i]) <= tolerance * (1.0 + fabs((double)want[i]))))
            fail_msg("%s: element %zu is %a, on the CPU %a", what, i, (double)got[i], (double)want[i]);
    free(got);
}

static void residual_and_norm(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++)
        for (size_t leaves = 1; leaves <= 8; leaves *= 2) {
            float *x = numbers(N), *part = numbers(leaves * N), *bias = numbers(C), *w = numbers(C),
                  *b = numbers(C);
            float *sum = malloc(N * sizeof *sum), *out = malloc(N * sizeof *out), *y = malloc(N * sizeof *y),
                  mean[B * T], rstd[B * T];
            float *tree = malloc(leaves * N * sizeof *tree);
            memcpy(tree, part, leaves * N * sizeof *tree);
            for (size_t n = leaves; n > 1; n /= 2)
                for (size_t i = 0; i < n / 2; i++)
                    k->add(tree + i * N, tree + 2 * i * N, tree + (2 * i + 1) * N, N);
            k->residual(out, x, tree, bias, B * T, C);
            if (rms)
                k->rmsnorm(y, rstd, out, w, B * T, C, 1e-5f);
            else
                k->layernorm(y, mean, rstd, out, w, b, B * T, C, 1e-5f);
            void *memory[] = {to_device(x, N * 4), to_device(part, leaves * N * 4), to_device(bias, C * 4),
                              to_device(w, C * 4), to_device(b, C * 4)};
            float *d_out = to_device(NULL, N * 4), *d_y = to_device(NULL, N * 4),
                  *d_mean = to_device(NULL, sizeof mean), *d_rstd = to_device(NULL, sizeof rstd);
            const model_cuda_norm_t p = {.type = MODEL_CUDA_F32,
                                         .sequences = B,
                                         .rows = T,
                                         .channels = C,
                                         .x = memory[0],
                                         .step_x = T * C,
                                         .sum = memory[1],
                                         .leaves = leaves,
                                         .bias = memory[2],
                                         .alpha = 1,
                                         .out = d_out,
                                         .y = d_y,
                                         .step_y = T * C,
                                         .norm = rms ? MODEL_NORM_RMS : MODEL_NORM_LAYER,
                                         .w = memory[3],
                                         .b = memory[4],
                                         .mean = d_mean,
                                         .rstd = d_rstd,
                                         .eps = 1e-5f};
            assert_int_equal(model_cuda_norm(&p, stream), GYRE_OK);
            expect("residual", out, back(d_out, N), N, 0);
            expect("norm", y, back(d_y, N), N, 0);
            expect("rstd", rstd, back(d_rstd, B * T), B * T, 0);
            free(back(d_mean, B * T));
            for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
                assert_cuda(cudaFree(memory[i]));
            free(x), free(part), free(bias), free(w), free(b), free(sum), free(out), free(y), free(tree);
        }
}

static void norm_backward(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        float *x = numbers(N), *dy = numbers(N), *w = numbers(C), *b = numbers(C), *dx = numbers(N),
              *y = malloc(N * sizeof *y);
        float mean[B * T], rstd[B * T], dw[B][C], db[B][C];
        void *base = to_device(dx, N * 4);
        if (rms)
            k->rmsnorm(y, rstd, x, w, B * T, C, 1e-5f);
        else
            k->layernorm(y, mean, rstd, x, w, b, B * T, C, 1e-5f);
        void *d_x = to_device(x, N * 4), *d_dy = to_device(dy, N * 4), *d_w = to_device(w, C * 4);
        void *d_mean = to_device(mean, sizeof mean), *d_rstd = to_device(rstd, sizeof rstd);
        for (size_t i = 0; i < B; i++) {
            if (rms)
                k->rmsnorm_backward(dx + i * T * C, dw[i], dy + i * T * C, x + i * T * C, w, rstd + i * T, T,
                                    C);
            else
                k->layernorm_backward(dx + i * T * C, dw[i], db[i], dy + i * T * C, x + i * T * C, w,
                                      mean + i * T, rstd + i * T, T, C);
            if (rms)
                k->column_sum(db[i], dy + i * T * C, T, C, 0);
        }
        float *sum_w = to_device(NULL, sizeof dw), *sum_b = to_device(NULL, sizeof db);
        const model_norm_t norm = rms ? MODEL_NORM_RMS : MODEL_NORM_LAYER;
        float *partial = to_device(NULL, B * T * MODEL_CUDA_SUMMED * C * 4);
        const model_cuda_norm_back_t p = {
            .type = MODEL_CUDA_F32,
            .span = {.sequences = B, .rows = T, .channels = C, .all = T, .leaves = 4},
            .dy = d_dy,
            .x = d_x,
            .w = d_w,
            .mean = d_mean,
            .rstd = d_rstd,
            .norm = norm,
            .base = base,
            .out = base,
            .partial = partial,
            .sum = {sum_w, sum_b},
            .step_sum = C};
        assert_int_equal(model_cuda_norm_back(&p, stream), GYRE_OK);
        expect("gradient of a norm's input", dx, back(base, N), N, 0);
        expect("gradient of a gain", dw[0], back(sum_w, B * C), B * C, 1e-6);
        expect("gradient of a bias", db[0], back(sum_b, B * C), B * C, 1e-6);
        assert_true(cudaFree(d_x) == cudaSuccess && cudaFree(d_dy) == cudaSuccess &&
                    cudaFree(d_w) == cudaSuccess && cudaFree(d_mean) == cudaSuccess &&
                    cudaFree(d_rstd) == cudaSuccess && cudaFree(partial) == cudaSuccess);
        free(x), free(dy), free(w), free(b), free(dx), free(y);
    }
}

static void gates(void **state)
{
    (void)state;
    enum { F = 21, ROWS = 5 };
    for (int act = 0; act < MODEL_ACTS; act++) {
        float *x = numbers(2 * ROWS * F), *dy = numbers(ROWS * F), y[ROWS * F], dx[2 * ROWS * F];
        k->gated[act](y, x, ROWS, F);
        k->gated_backward[act](dx, dy, x, ROWS, F);
        void *d_x = to_device(x, sizeof dx), *d_dy = to_device(dy, sizeof y),
             *d_y = to_device(NULL, sizeof y), *d_dx = to_device(NULL, sizeof dx);
        assert_int_equal(model_cuda_gated(MODEL_CUDA_F32, (model_act_t)act, d_y, d_x, ROWS, F, stream),
                         GYRE_OK);
        assert_int_equal(
            model_cuda_gated_back(MODEL_CUDA_F32, (model_act_t)act, d_dx, d_dy, d_x, ROWS, F, stream),
            GYRE_OK);
        expect("gate", y, back(d_y, ROWS * F), ROWS * F, 0);
        expect("gradient of a gate", dx, back(d_dx, 2 * ROWS * F), 2 * ROWS * F, 0);
        assert_true(cudaFree(d_x) == cudaSuccess && cudaFree(d_dy) == cudaSuccess);
        free(x), free(dy);
    }
}

static void rotation_and_dropout(void **state)
{
    (void)state;
    enum { D = 8, HALF = 3, HEADS = 2, LD = 20, ROWS = B * T };
    float turn[T * 2 * HALF];
    model_rope_table_f32(turn, T, HALF, &(model_rope_t){.theta = 10000.0});
    void *d_turn = to_device(turn, sizeof turn);
    for (int mode = 0; mode < 4; mode++) {
        float *x = numbers(ROWS * LD);
        void *d_x = to_device(x, ROWS * LD * 4);
        const model_cuda_rope_t p = {.type = MODEL_CUDA_F32,
                                     .x = d_x,
                                     .turn = d_turn,
                                     .leaves = 1,
                                     .sequences = B,
                                     .T = T,
                                     .ld = LD,
                                     .heads = HEADS,
                                     .head_dim = D,
                                     .half = HALF,
                                     .interleaved = mode & 1,
                                     .back = mode >> 1};
        assert_int_equal(model_cuda_rope(&p, stream), GYRE_OK);
        for (size_t i = 0; i < B; i++)
            for (size_t h = 0; h < HEADS; h++)
                k->rope(x + i * T * LD + h * D, turn, T, LD, HALF, mode & 1, mode >> 1);
        expect("rotation", x, back(d_x, ROWS * LD), ROWS * LD, 0);
        free(x);
    }
    assert_cuda(cudaFree(d_turn));
    float *x = numbers(N), want[N];
    uint32_t keys[B][4];
    const float kept = (float)(1.0 / (1.0 - 0.3));
    for (size_t i = 0; i < B; i++) {
        uint32_t key[4];
        model_dropout_key(5, i + 7, 11, 0, 0, keys[i]);
        model_dropout_key(5, i + 7, 11, 6, 2, key);
        k->dropout(want + i * T * C, x + i * T * C, key, model_dropout_below(0.3), kept, 2 * C, T * C);
    }
    void *d_x = to_device(x, sizeof want), *d_keys = to_device(keys, sizeof keys);
    const model_cuda_dropout_t drop = {
        .keys = d_keys, .place = 6 * 4 + 2, .below = model_dropout_below(0.3), .kept = kept, .first = 2 * C};
    assert_int_equal(model_cuda_drop(MODEL_CUDA_F32, d_x, T * C, d_x, T * C, B, T, C, &drop, stream),
                     GYRE_OK);
    expect("dropout", want, back(d_x, N), N, 0);
    assert_cuda(cudaFree(d_keys));
    free(x);
}

static void cross_entropy(void **state)
{
    (void)state;
    enum { V = 29, WIDTH = 20, LD = 24, LEAVES = 2, ROWS = B * T }; /* the second leaf ends in padding */
    for (int half = 0; half < 2; half++) {
        const model_cuda_type_t type = half ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
        float *x = numbers(LEAVES * ROWS * LD), got[LEAVES * ROWS * LD];
        const uint32_t prefix[B] = {0, 3};
        int32_t targets[ROWS];
        double want_loss[B] = {0}, loss[B];
        for (size_t i = 0; i < LEAVES * ROWS * LD; i++) /* what lies between rows is larger than all */
            x[i] = i % LD < WIDTH ? 8.0f * x[i] : 1e6f;
        round_to(type, x, LEAVES * ROWS * LD);
        for (size_t r = 0; r < ROWS; r++)
            targets[r] = (int32_t)(r * 5 % V);
        void *d_x = send(type, x, LEAVES * ROWS * LD);
        float *leaf = to_device(NULL, 2 * LEAVES * ROWS * 4), *max = to_device(NULL, ROWS * 4),
              *pair = to_device(NULL, 2 * ROWS * 4);
        void *d_targets = to_device(targets, sizeof targets), *d_prefix = to_device(prefix, sizeof prefix);
        double *d_loss = to_device(NULL, sizeof loss);
        const model_cuda_loss_t p = {.type = type,
                                     .sequences = B,
                                     .T = T,
                                     .leaves = LEAVES,
                                     .width = WIDTH,
                                     .ld = LD,
                                     .vocab = V,
                                     .logits = d_x,
                                     .leaf = leaf,
                                     .max = max,
                                     .pair = pair,
                                     .targets = d_targets,
                                     .prefix = d_prefix,
                                     .loss = d_loss};
        assert_int_equal(model_cuda_loss(&p, 1, stream), GYRE_OK);
        assert_int_equal(model_cuda_loss_mean(&p, stream), GYRE_OK);
        assert_cuda(cudaStreamSynchronize(stream));
        assert_cuda(cudaMemcpy(loss, d_loss, sizeof loss, cudaMemcpyDeviceToHost));
        assert_cuda(cudaMemcpy(got, d_x, sizeof got / (half ? 2 : 1), cudaMemcpyDeviceToHost));
        for (size_t r = 0; r < ROWS; r++) {
            size_t first = prefix[r / T], learned = r % T >= first;
            double sum = 0.0, largest = -1e30, each = 1.0 / (double)(T - first);
#define LOGIT(i) ((double)x[((i) / WIDTH * ROWS + r) * LD + (i) % WIDTH])
            for (size_t i = 0; i < V; i++)
                largest = fmax(largest, LOGIT(i));
            for (size_t i = 0; i < V; i++)
                sum += exp(LOGIT(i) - largest);
            if (learned)
                want_loss[r / T] += (log(sum) + largest - LOGIT((size_t)targets[r])) / (double)(T - first);
            for (size_t i = 0; i < LEAVES * WIDTH; i++) {
                double want = !learned || i >= V
                                  ? 0.0
                                  : each * (exp(LOGIT(i) - largest) / sum - (i == (size_t)targets[r]));
                const size_t at = (i / WIDTH * ROWS + r) * LD + i % WIDTH;
                float is = half ? of_bf16(((const uint16_t *)(const void *)got)[at]) : got[at];
                if (!(fabs((double)is - want) <= (half ? 4e-3 * fabs(want) : 0.0) + 1e-6))
                    fail_msg("gradient of logit %zu of position %zu: %g, not %g", i, r, (double)is, want);
            }
        }
        for (size_t i = 0; i < B; i++)
            assert_true(fabs(loss[i] - want_loss[i]) <= (half ? 2e-6 : 1e-6) * want_loss[i]);
        void *memory[] = {d_x, leaf, max, pair, d_targets, d_prefix, d_loss};
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
            assert_cuda(cudaFree(memory[i]));
        free(x);
    }
}

/* Sixteen bits are the same numbers, rounded once to nearest, ties to even. */
static void sixteen_bits(void **state)
{
    (void)state;
    float *x = numbers(3 * N), want[N], *got = malloc(N * sizeof *got);
    uint16_t half[N];
    for (size_t i = 0; i < N; i++)
        x[i] = i % 3 == 0 ? 1.0f + (float)(2 * (i % 64) + 1) / 256.0f : x[i]; /* midpoints, too */
    for (size_t leaves = 1; leaves <= 2; leaves++) {
        float *part = to_device(x, 2 * N * 4);
        void *d_half = to_device(NULL, sizeof half);
        memcpy(want, x, sizeof want);
        if (leaves == 2)
            k->add(want, x, x + N, N);
        k->round_bf16(want, N);
        assert_int_equal(model_cuda_join(MODEL_CUDA_BF16, d_half, part, leaves, N, stream), GYRE_OK);
        float *wide = to_device(NULL, sizeof want);
        assert_int_equal(model_cuda_widen(MODEL_CUDA_BF16, wide, d_half, 1, N, stream), GYRE_OK);
        expect("bfloat16", want, back(wide, N), N, 0);
        assert_true(cudaFree(part) == cudaSuccess && cudaFree(d_half) == cudaSuccess);
    }
    free(x), free(got);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    k = model_kernels_f32(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(residual_and_norm),
                                       cmocka_unit_test(norm_backward),
                                       cmocka_unit_test(gates),
                                       cmocka_unit_test(rotation_and_dropout),
                                       cmocka_unit_test(cross_entropy),
                                       cmocka_unit_test(sixteen_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
