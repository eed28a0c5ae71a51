/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_vocabulary.c: cross-entropy and the embedding's gradient to the bit, in the order of
 * sums that model/gpu/layers/vocabulary.cu promises, over rows that 16-byte loads take and rows that they do
 * not. test_elementwise.c compares the same kernels with sums in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "model/gpu/layers/vocabulary.h"
#include "model/kernels/kernels.h"
#include "tests/gpu/kernels/storage.h"

static const model_kernels_t_f32 *k;
static struct CUstream_st *stream;

/* ---- cross-entropy ------------------------------------------------------------------------------------- */

/* e^x with the bits of model/kernels/scalar.inc. */
static float exp_of(float x)
{
    float sum, zero = 0.0f;
    k->row_exp(&sum, &x, &zero, 1, 1, 1);
    return x;
}

enum { MOST_LANES = 256 };

/* The largest of x [n], and the sum of e^(x - largest): lane l takes l, l + lanes, ... with a running
 * maximum, then lanes meet in a tree. */
static void leaf_sum(const float *x, size_t n, size_t lanes, float *max, float *sum)
{
    float m[MOST_LANES], s[MOST_LANES];
    for (size_t l = 0; l < lanes; l++) {
        m[l] = -INFINITY;
        s[l] = 0.0f;
        for (size_t i = l; i < n; i += lanes)
            if (x[i] > m[l]) {
                s[l] = s[l] * exp_of(m[l] - x[i]) + 1.0f;
                m[l] = x[i];
            } else {
                s[l] = s[l] + exp_of(x[i] - m[l]);
            }
    }
    for (size_t w = lanes / 2; w > 0; w /= 2)
        for (size_t l = 0; l < w; l++) {
            float top = m[l] > m[l + w] ? m[l] : m[l + w];
            float a = m[l] < top ? s[l] * exp_of(m[l] - top) : s[l];
            float b = m[l + w] < top ? s[l + w] * exp_of(m[l + w] - top) : s[l + w];
            m[l] = top;
            s[l] = a + b;
        }
    *max = m[0];
    *sum = s[0];
}

/* The second of two leaves ends in padding; what lies between rows is larger than all. */
static void loss_of(model_cuda_type_t type, size_t width, size_t ld, size_t lanes)
{
    enum { B = 2, T = 2, ROWS = B * T, LEAVES = 2 };
    const uint32_t prefix[B] = {0, 1};
    const float scale = 2.0f;
    size_t vocab = width + width / 2 + 1, count = LEAVES * ROWS * ld;
    float *x = numbers(count), *want = calloc(count, sizeof *want);
    float leaf[2 * LEAVES * ROWS], max[ROWS];
    int32_t targets[ROWS];
    for (size_t i = 0; i < count; i++)
        x[i] = i % ld < width ? 4.0f * x[i] + (float)(i % ld) / (float)width : 1e6f;
    for (size_t r = 0; r < ROWS; r++) {
        float pair = 0.0f, each = scale / (float)(T - prefix[r / T]);
        targets[r] = (int32_t)((r * 1001 + 3) % vocab);
        for (size_t l = 0; l < LEAVES; l++)
            leaf_sum(x + (l * ROWS + r) * ld, l == 0 ? width : vocab - width, lanes, &leaf[l * ROWS + r],
                     &leaf[(LEAVES + l) * ROWS + r]);
        max[r] = fmaxf(leaf[r], leaf[ROWS + r]);
        for (size_t l = 0; l < LEAVES; l++)
            pair = pair + leaf[(LEAVES + l) * ROWS + r] * exp_of(leaf[l * ROWS + r] - max[r]);
        for (size_t i = 0; i < vocab && r % T >= prefix[r / T]; i++) {
            size_t at = (i / width * ROWS + r) * ld + i % width;
            want[at] = exp_of(x[at] - max[r]) * (each / pair);
            if (i == (size_t)targets[r])
                want[at] = want[at] - each;
        }
    }
    float *d_x = to_device(x, count * 4), *d_leaf = to_device(NULL, sizeof leaf),
          *d_max = to_device(NULL, sizeof max), *d_pair = to_device(NULL, 2 * ROWS * 4);
    void *d_targets = to_device(targets, sizeof targets), *d_prefix = to_device(prefix, sizeof prefix);
    const model_cuda_loss_t p = {.type = type,
                                 .sequences = B,
                                 .T = T,
                                 .leaves = LEAVES,
                                 .width = width,
                                 .ld = ld,
                                 .vocab = vocab,
                                 .logits = d_x,
                                 .leaf = d_leaf,
                                 .max = d_max,
                                 .pair = d_pair,
                                 .targets = d_targets,
                                 .prefix = d_prefix};
    assert_int_equal(model_cuda_loss_max(&p, stream), GYRE_OK);
    assert_int_equal(model_cuda_loss_pair(&p, stream), GYRE_OK);
    assert_int_equal(model_cuda_loss_back(&p, scale, stream), GYRE_OK);
    expect_bits("sums of leaves", MODEL_CUDA_F32, leaf, d_leaf, 2 * LEAVES * ROWS, stream);
    expect_bits("largest logits", MODEL_CUDA_F32, max, d_max, ROWS, stream);
    assert_cuda(cudaMemcpy(x, d_x, count * 4, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        if (i % ld < width) {
            const float *row = x + i / ld * ld;
            float is = type == MODEL_CUDA_BF16 ? of_bf16(((const uint16_t *)(const void *)row)[i % ld])
                                               : row[i % ld];
            if (type == MODEL_CUDA_BF16)
                k->round_bf16(want + i, 1);
            if (memcmp(&is, want + i, sizeof is) != 0)
                fail_msg("gradient of logit %zu of row %zu, %zu wide: %a, not %a", i % ld, i / ld, width,
                         (double)is, (double)want[i]);
        }
    assert_true(cudaFree(d_x) == cudaSuccess && cudaFree(d_pair) == cudaSuccess &&
                cudaFree(d_targets) == cudaSuccess && cudaFree(d_prefix) == cudaSuccess);
    free(x), free(want);
}

static void losses(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        loss_of((model_cuda_type_t)type, 37, 39, 32); /* rows that begin anywhere */
        loss_of((model_cuda_type_t)type, 136, 144, 128);
        loss_of((model_cuda_type_t)type, 2603, 2608, 256); /* several turns, and the rest of one */
    }
}

/* ---- embedding ----------------------------------------------------------------------------------------- */

/* Half of the positions have one token; others have few each, and two tokens are another rank's. */
static void embedding_of(model_cuda_type_t type, size_t C)
{
    enum { T = 150, V = 40, FIRST = 1, HERE = 38 };
    int32_t tokens[T], segments[T], last[V];
    float *d = stored(type, T * C), *want = calloc(HERE * C, sizeof *want);
    memset(last, 0xff, sizeof last);
    for (size_t t = 0; t < T; t++) {
        tokens[t] = (int32_t)(t % 2 ? 7 : t * t / 4 % V);
        float *to = want + (size_t)(tokens[t] - FIRST) * C;
        if (tokens[t] >= FIRST && tokens[t] < FIRST + HERE)
            k->scale_add(to, 0.1f, d + t * C, to, C);
    }
    model_cuda_segments(segments, tokens, T, last);
    for (size_t i = 0; i < V; i++)
        assert_int_equal(last[i], -1);
    void *d_d = send(type, d, T * C), *d_tokens = to_device(tokens, sizeof tokens),
         *d_segments = to_device(segments, sizeof segments);
    float *dw = to_device(NULL, HERE * C * 4);
    assert_cuda(cudaMemset(dw, 0, HERE * C * 4));
    assert_int_equal(
        model_cuda_embed_back(type, dw, FIRST, HERE, d_d, d_tokens, d_segments, T, C, 0.1f, stream), GYRE_OK);
    expect_bits("gradient of an embedding", MODEL_CUDA_F32, want, dw, HERE * C, stream);
    assert_true(cudaFree(d_d) == cudaSuccess && cudaFree(d_tokens) == cudaSuccess &&
                cudaFree(d_segments) == cudaSuccess);
    free(d), free(want);
}

static void embeddings(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        embedding_of((model_cuda_type_t)type, 37);
        embedding_of((model_cuda_type_t)type, 264);
    }
}

/* The positions of a token lie side by side in their order; the first has a negative number. */
static void segments_of_tokens(void **state)
{
    (void)state;
    enum { T = 9, V = 6 };
    const int32_t tokens[T] = {3, 0, 3, 1, 5, 3, 4, 1, 0};
    const int32_t want[T] = {-1, 2, 5, -2, 8, -4, 7, -5, -7};
    int32_t got[T], last[V] = {-1, -1, -1, -1, -1, -1};
    model_cuda_segments(got, tokens, T, last);
    assert_memory_equal(got, want, sizeof want);
}

static void sums_of_terms(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++)
        for (size_t count = 131; count <= 512; count += 381) {
            enum { TERMS = 13 };
            float *d = stored((model_cuda_type_t)type, TERMS * count), *want = calloc(count, sizeof *want);
            void *d_d = send((model_cuda_type_t)type, d, TERMS * count), *out = to_device(NULL, count * 4);
            memcpy(want, d, count * sizeof *want);
            for (size_t i = 1; i < TERMS; i++)
                k->add(want, want, d + i * count, count);
            assert_int_equal(model_cuda_widen((model_cuda_type_t)type, out, d_d, TERMS, count, stream),
                             GYRE_OK);
            expect_bits("sum of terms", MODEL_CUDA_F32, want, out, count, stream);
            assert_cuda(cudaFree(d_d));
            free(d), free(want);
        }
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    k = model_kernels_f32(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses), cmocka_unit_test(embeddings),
                                       cmocka_unit_test(segments_of_tokens), cmocka_unit_test(sums_of_terms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
