/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_matmul.c: products in tiles, and transposition, against plain loops in double. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/kernels/kernels.h"
#include "model/random.h"

typedef struct {
    size_t M, N, K;
} shape_t;

/* One multiplication; both sides of a million; tiles that do not divide; several tiles in either
 * direction; K too long for tiles. */
static const shape_t shapes[] = {{1, 1, 1},       {3, 5, 2},      {64, 32, 128},  {64, 128, 128},
                                 {100, 100, 100}, {101, 99, 101}, {67, 201, 131}, {200, 130, 255},
                                 {64, 128, 257},  {520, 66, 256}};

static float *numbers(size_t n, uint32_t stream)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)model_random_normal(3, MODEL_RANDOM_PROBE, stream, i);
    return x;
}

/* Rows of every matrix are further apart than they are long, and what lies between stays as it was. */
enum { GAP = 3 };

static void check_product(const shape_t *s, int trans_a, int trans_b, float alpha, float beta)
{
    size_t lda = (trans_a ? s->M : s->K) + GAP, ldb = (trans_b ? s->K : s->N) + GAP, ldc = s->N + GAP;
    float *A = numbers((trans_a ? s->K : s->M) * lda, 1), *B = numbers((trans_b ? s->N : s->K) * ldb, 2);
    float *before = numbers(s->M * ldc, 3), *C = numbers(s->M * ldc, 3);
    model_matmul_f32(trans_a, trans_b, s->M, s->N, s->K, alpha, A, lda, B, ldb, beta, C, ldc);
    for (size_t m = 0; m < s->M; m++)
        for (size_t n = 0; n < ldc; n++) {
            double sum = 0.0, size = 0.0;
            for (size_t k = 0; n < s->N && k < s->K; k++) {
                double one =
                    (double)A[trans_a ? k * lda + m : m * lda + k] * B[trans_b ? n * ldb + k : k * ldb + n];
                sum += one;
                size += fabs(one);
            }
            double was = before[m * ldc + n], expected = n < s->N ? alpha * sum + beta * was : was;
            double allowed = n < s->N ? 1e-6 * (fabs(alpha) * size + fabs(beta * was)) : 0.0;
            if (!(fabs(C[m * ldc + n] - expected) <= allowed))
                fail_msg("%zu x %zu x %zu, transposed %d %d, alpha %g, beta %g: C[%zu][%zu] is %.9g, "
                         "expected %.9g",
                         s->M, s->N, s->K, trans_a, trans_b, (double)alpha, (double)beta, m, n,
                         (double)C[m * ldc + n], expected);
        }
    free(A);
    free(B);
    free(before);
    free(C);
}

static void products(void **state)
{
    (void)state;
    model_matmul_init();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int trans = 0; trans < 4; trans++) {
            check_product(&shapes[i], trans & 1, trans >> 1, 1.0f, 0.0f);
            check_product(&shapes[i], trans & 1, trans >> 1, 1.0f, 1.0f);
            check_product(&shapes[i], trans & 1, trans >> 1, -0.5f, 2.0f);
        }
}

/* beta 0: what C held, NaN too, does not matter. */
static void nothing_is_read_of_a_new_result(void **state)
{
    (void)state;
    enum { M = 70, N = 130, K = 120 };
    float *A = numbers(M * K, 1), *B = numbers(N * K, 2), *C = numbers(M * N, 3);
    model_matmul_init();
    for (int trans_b = 0; trans_b < 2; trans_b++) {
        for (size_t i = 0; i < M * N; i++)
            C[i] = NAN;
        model_matmul_f32(0, trans_b, M, N, K, 1.0f, A, K, B, trans_b ? K : N, 0.0f, C, N);
        for (size_t i = 0; i < M * N; i++)
            assert_true(isfinite(C[i]));
    }
    free(A);
    free(B);
    free(C);
}

static void transposition(void **state)
{
    (void)state;
    enum { MOST = 50, LD = MOST + GAP };
    static float y[MOST * MOST + 1];
    float *x = numbers(MOST * LD, 4);
    const size_t sizes[] = {1, 15, 16, 17, 32, 47, 50};
    for (int isa = MODEL_ISA_BASE; isa < MODEL_ISA_COUNT; isa++) {
        const model_kernels_t_f32 *k = model_kernels_f32((model_isa_t)isa);
        for (size_t i = 0; k && i < 49; i++) {
            size_t R = sizes[i / 7], C = sizes[i % 7];
            y[R * C] = 7.0f;
            k->transpose(y, x, R, C, LD);
            for (size_t r = 0; r < R; r++)
                for (size_t c = 0; c < C; c++)
                    assert_true(y[c * R + r] == x[r * LD + c]);
            assert_true(y[R * C] == 7.0f);
        }
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products),
                                       cmocka_unit_test(nothing_is_read_of_a_new_result),
                                       cmocka_unit_test(transposition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
