/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_matmul.c: products in tiles, also in those of bfloat16, and transposition, against plain
 * loops in double; rows of products against whole products, to the bit. */
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
#include "model/kernels/order.h"

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
        x[i] =
            (float)((i * 2654435761u + stream * 40503u) % 65521u) * 6e-5f - 2.0f; /* cheap, and not round */
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

/* ---- tiles of bfloat16 --------------------------------------------------------------------------------- */

/* An element of C, of numbers that bfloat16 has, as Intel's manual (TDPBF16PS) and amx.c say. */
static float in_tiles(const float *a, size_t step_a, const float *b, size_t step_b, size_t K, float sum)
{
    for (size_t k = 0; k < K; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (size_t i = k; i < k + 32 && i < K; i++) {
            float *to = i % 2 == 0 ? &even : &odd;
            *to = fmaf(a[i * step_a], b[i * step_b], *to);
        }
        sum += even + odd;
    }
    return sum;
}

/* Against sums in double of rounded numbers, and to the bit against in_tiles; all blocks have the same
 * bits. */
static void check_tiles(void *pack, const shape_t *s, int trans_a, int trans_b, int add)
{
    const size_t lda = (trans_a ? s->M : s->K) + GAP, ldb = (trans_b ? s->K : s->N) + GAP, ldc = s->N + GAP;
    const size_t rows_a = trans_a ? s->K : s->M, rows_b = trans_b ? s->N : s->K;
    float *A = numbers(rows_a * lda, 1), *B = numbers(rows_b * ldb, 2);
    float *before = numbers(s->M * ldc, 3), *C = numbers(s->M * ldc, 3), *again = numbers(s->M * ldc, 3);
    for (size_t i = 0; !add && i < s->M * ldc; i++)
        C[i] = i % ldc < s->N ? NAN : C[i]; /* what a new result held does not matter */
    model_matmul_bf16_f32(pack, trans_a, trans_b, s->M, s->N, s->K, A, lda, B, ldb, add, C, ldc);
    model_matmul_bf16_f32(NULL, trans_a, trans_b, s->M, s->N, s->K, A, lda, B, ldb, add, again, ldc);
    assert_memory_equal(C, again, s->M * ldc * sizeof *C);
    model_kernels_f32(MODEL_ISA_BEST)->round_bf16(A, rows_a * lda);
    model_kernels_f32(MODEL_ISA_BEST)->round_bf16(B, rows_b * ldb);
    for (size_t m = 0; m < s->M; m++)
        for (size_t n = 0; n < ldc; n++) {
            const float *a = A + (trans_a ? m : m * lda), *b = B + (trans_b ? n * ldb : n),
                        was = before[m * ldc + n];
            double sum = add ? was : 0.0, size = fabs(sum);
            for (size_t k = 0; n < s->N && k < s->K; k++) {
                const double one = (double)a[trans_a ? k * lda : k] * b[trans_b ? k : k * ldb];
                sum += one;
                size += fabs(one);
            }
            const float same =
                n < s->N ? in_tiles(a, trans_a ? lda : 1, b, trans_b ? 1 : ldb, s->K, add ? was : 0.0f) : was;
            if (memcmp(&C[m * ldc + n], &same, sizeof same) != 0 ||
                (n < s->N && !(fabs(C[m * ldc + n] - sum) <= 2e-6 * size)))
                fail_msg("%zu x %zu x %zu, transposed %d %d, add %d: C[%zu][%zu] is %.9g, expected %.9g (in "
                         "double %.9g)",
                         s->M, s->N, s->K, trans_a, trans_b, add, m, n, (double)C[m * ldc + n], (double)same,
                         sum);
        }
    free(A);
    free(B);
    free(before);
    free(C);
    free(again);
}

/* 0: the test is skipped. */
static int has_tiles(void)
{
    if (model_matmul_has_bf16())
        return 1;
    print_message("skipped: this processor has no tiles of bfloat16 (amx_bf16)\n");
    return 0;
}

static void products_in_tiles(void **state)
{
    (void)state;
    /* several blocks of terms, columns and rows */
    static const shape_t more[] = {
        {35, 40, 1100}, {33, 550, 65}, {2070, 17, 31}, {150, 140, 200}, {40, 3100, 50}};
    if (!has_tiles())
        return;
    void *pack = malloc(MODEL_PACK_BYTES);
    assert_non_null(pack);
    uint32_t at = 1;
    for (size_t i = 0; i < 60; i++) {
        shape_t s;
        for (size_t *size = &s.M; size <= &s.K; size++)
            *size = 1 + (at = at * 1664525u + 1013904223u) / 65536u % 70;
        for (int how = 0; how < 8; how++)
            check_tiles(pack, &s, how & 1, how >> 1 & 1, how >> 2);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (int how = 0; how < 4; how++)
            check_tiles(pack, &more[i], how & 1, how >> 1, (int)(i & 1));
    free(pack);
}

/* A sum that is cut after 32 terms, or a multiple, and continued has the bits of the whole one. */
static void sums_in_tiles_are_cut(void **state)
{
    (void)state;
    enum { M = 20, N = 30, K = 130 };
    if (!has_tiles())
        return;
    float *A = numbers(M * K, 1), *B = numbers(K * N, 2), *whole = numbers(M * N, 3), *C = numbers(M * N, 3);
    model_matmul_bf16_f32(NULL, 0, 0, M, N, K, A, K, B, N, 0, whole, N);
    for (size_t cut = 32; cut < K; cut += 32) {
        model_matmul_bf16_f32(NULL, 0, 0, M, N, cut, A, K, B, N, 0, C, N);
        model_matmul_bf16_f32(NULL, 0, 0, M, N, K - cut, A + cut, K, B + cut * N, N, 1, C, N);
        assert_memory_equal(C, whole, M * N * sizeof *C);
    }
    /* no terms */
    model_matmul_bf16_f32(NULL, 0, 0, M, N, 0, A, K, B, N, 1, C, N);
    assert_memory_equal(C, whole, M * N * sizeof *C);
    model_matmul_bf16_f32(NULL, 0, 0, M, N, 0, A, K, B, N, 0, C, N);
    for (size_t i = 0; i < M * N; i++)
        assert_true(C[i] == 0.0f);
    free(A);
    free(B);
    free(whole);
    free(C);
}

/* Denormals are 0, of factors, products and what is there; a NaN stays in its row, an infinity in its
 * column. */
static void special_numbers_in_tiles(void **state)
{
    (void)state;
    enum { M = 5, N = 19, K = 37 };
    if (!has_tiles())
        return;
    float *A = numbers(M * K, 1), *B = numbers(K * N, 2), C[M * N];
    for (size_t k = 0; k < K; k++) {
        A[k] = 0x1p-130f;    /* times 2^100 of column 0 would be 2^-30 */
        A[K + k] = 0x1p-80f; /* times 2^-60 of column 1 is below 2^-126 */
        A[2 * K + k] = k ? 1 : NAN;
        B[k * N] = 0x1p100f;
        B[k * N + 1] = 0x1p-60f;
        B[k * N + 2] = k ? 1 : INFINITY;
    }
    for (size_t i = 0; i < M * N; i++)
        C[i] = 0x1p-130f;
    model_matmul_bf16_f32(NULL, 0, 0, M, N, K, A, K, B, N, 1, C, N);
    for (size_t n = 3; n < N; n++)
        assert_true(C[n] == 0.0f && isnan(C[2 * N + n]) && isfinite(C[3 * N + n]));
    assert_true(C[0] == 0.0f && C[1] == 0.0f && C[N + 1] == 0.0f);
    for (size_t m = 3; m < M; m++)
        assert_true(isinf(C[m * N + 2]) && isfinite(C[m * N + 1]));
    free(A);
    free(B);
}

/* Signs of zeros are in_tiles's, too: sums of products begin with +0, and what is there stays without any. */
static void zeros_in_tiles(void **state)
{
    (void)state;
    enum { M = 4, N = 3, K = 35 };
    if (!has_tiles())
        return;
    float A[M * K], B[K * N], C[M * N];
    for (size_t i = 0; i < M * K; i++)
        A[i] = i / K == 0 ? -0.0f : i / K == 1 ? 0.0f : i / K == 2 ? -1.5f : (i % 2 ? 2.0f : -2.0f);
    for (size_t i = 0; i < K * N; i++)
        B[i] = i % N == 0 ? -0.0f : i % N == 1 ? 0.0f : 1.0f;
    for (int add = 0; add < 2; add++)
        for (size_t terms = 0; terms <= K; terms += terms ? 1 : 2) {
            for (size_t i = 0; i < M * N; i++)
                C[i] = -0.0f;
            model_matmul_bf16_f32(NULL, 0, 0, M, N, terms, A, K, B, N, add, C, N);
            for (size_t i = 0; i < M * N; i++) {
                const float same = in_tiles(A + i / N * K, 1, B + i % N, N, terms, add ? -0.0f : 0.0f);
                assert_memory_equal(&C[i], &same, sizeof same);
            }
        }
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

/* Rows one by one, some of many, and all rows but the first two together, in the whole product's places. */
static void check_rows(const shape_t *s, int trans_b, int more)
{
    const size_t M = s->M, N = s->N, K = s->K, step = M > 64 ? 13 : 1;
    float *A = numbers(M * K, 1), *B = numbers(K * N, 2), *turned = numbers(K * N, 2),
          *whole = numbers(M * N, 3), *rows = numbers(M * N, 3), *again = numbers(M * N, 3);
    size_t *at = calloc(M, sizeof *at);
    model_order_t *order;
    assert_non_null(at);
    model_kernels_f32(MODEL_ISA_BEST)->transpose(turned, B, K, N, N);
    model_matmul_f32(0, trans_b, M, N, K, 1, A, K, trans_b ? turned : B, trans_b ? K : N, more ? 1 : 0, whole,
                     N);
    assert_int_equal(model_order_create(trans_b, M, N, K, more, 0, &order), GYRE_OK);
    for (size_t m = 0; m < M; m++)
        at[m] = m;
    for (size_t m = 0; m < M; m += step)
        model_order_rows(order, 1, at + m, N, K, A + m * K, K, B, N, rows + m * N, N);
    if (M > 2)
        model_order_rows(order, M - 2, at + 2, N, K, A + 2 * K, K, B, N, again + 2 * N, N);
    for (size_t m = 0; m < M; m++) {
        if ((m % step == 0 && memcmp(rows + m * N, whole + m * N, N * sizeof *rows) != 0) ||
            (m > 1 && memcmp(again + m * N, whole + m * N, N * sizeof *rows) != 0))
            fail_msg("%zu x %zu x %zu, transposed %d, more %d, order %s: row %zu has other bits", M, N, K,
                     trans_b, more, model_order_known(order) ? "found" : "not found", m);
    }
    model_order_destroy(order);
    free(A);
    free(B);
    free(turned);
    free(whole);
    free(rows);
    free(again);
    free(at);
}

static void rows_of_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int how = 0; how < 4; how++)
            check_rows(&shapes[i], how & 1, how >> 1);
    check_rows(&(shape_t){20, 32, 1000}, 0, 1); /* in pieces */
}

/* Terms and columns at the end that do not count. */
static void part_of_a_row(void **state)
{
    (void)state;
    enum { M = 48, N = 48, K = 700, TERMS = 451, COLUMNS = 33 };
    float *A = numbers(M * K, 1), *B = numbers(K * N, 2), *whole = numbers(M * N, 3), row[N] = {0};
    const size_t at = 17;
    model_order_t *order;
    memset(A + at * K + TERMS, 0, (K - TERMS) * sizeof *A);
    model_matmul_f32(0, 0, M, N, K, 1, A, K, B, N, 0, whole, N);
    assert_int_equal(model_order_create(0, M, N, K, 0, 0, &order), GYRE_OK);
    model_order_rows(order, 1, &at, COLUMNS, TERMS, A + at * K, K, B, N, row, N);
    assert_memory_equal(row, whole + at * N, COLUMNS * sizeof *row);
    assert_true(row[COLUMNS] == 0.0f);
    model_order_destroy(order);
    free(A);
    free(B);
    free(whole);
}

/* Positions in blocks: products of a head, forward and backward, as of all positions. Returns the blocks. */
static size_t blocks_of_head(size_t T, size_t N, size_t K)
{
    float *x = numbers(T * K, 1), *w = numbers(N * K, 2), *y = numbers(T * N, 3), *dx = numbers(T * K, 4);
    float *dw = numbers(N * K, 5), *y1 = numbers(T * N, 6), *dx1 = numbers(T * K, 7),
          *dw1 = numbers(N * K, 8);
    size_t blocks = 0;
    model_matmul_f32(0, 1, T, N, K, 1, x, K, w, K, 0, y, N);
    model_matmul_f32(0, 0, T, K, N, 1, y, N, w, K, 0, dx, K);
    model_matmul_f32(1, 0, N, K, T, 1, y, N, x, K, 0, dw, K);
    for (size_t t = 0, n; t < T; t += n, blocks++) {
        n = model_matmul_block_f32(T - t, N, K);
        assert_in_range(n, 1, T - t);
        model_matmul_f32(0, 1, n, N, K, 1, x + t * K, K, w, K, 0, y1 + t * N, N);
        model_matmul_f32(0, 0, n, K, N, 1, y1 + t * N, N, w, K, 0, dx1 + t * K, K);
        model_matmul_f32(1, 0, N, K, n, 1, y1 + t * N, N, x + t * K, K, t > 0 ? 1 : 0, dw1, K);
    }
    assert_memory_equal(y, y1, T * N * sizeof *y);
    assert_memory_equal(dx, dx1, T * K * sizeof *dx);
    assert_memory_equal(dw, dw1, N * K * sizeof *dw);
    float *all[] = {x, w, y, dx, dw, y1, dx1, dw1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return blocks;
}

static void blocks_of_positions(void **state)
{
    (void)state;
    assert_int_equal(blocks_of_head(300, 70, 40), 1);
    assert_int_equal(blocks_of_head(1, 1030, 520), 1);
    /* one block, where the BLAS's order is not known, is right, too */
    for (size_t T = 600; T <= 1100; T += 97)
        blocks_of_head(T, 1030, 520);
    const char *kind = model_matmul_kind();
    if (model_matmul_divides() && (strcmp(kind, "SkylakeX") == 0 || strcmp(kind, "Cooperlake") == 0))
        assert_true(blocks_of_head(1280, 1024, 512) > 1);
}

static void chains_of_every_instruction_set(void **state)
{
    (void)state;
    enum { ROWS = 7, N = 173, K = 61 };
    float *x = numbers(ROWS * K, 1), *b = numbers(K * N, 2), *first = numbers(ROWS * N, 3);
    for (int how = 0; how < 4; how++)
        for (int isa = MODEL_ISA_BASE; isa < MODEL_ISA_COUNT; isa++) {
            const model_kernels_t_f32 *k = model_kernels_f32((model_isa_t)isa);
            float *y = numbers(ROWS * N, 3);
            if (k)
                k->chain(y, N, x, K, b, N, ROWS, N, K, how & 1, how >> 1);
            if (isa == MODEL_ISA_BASE)
                memcpy(first, y, ROWS * N * sizeof *y);
            else if (k)
                assert_memory_equal(first, y, ROWS * N * sizeof *y);
            free(y);
        }
    free(x);
    free(b);
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products),
                                       cmocka_unit_test(nothing_is_read_of_a_new_result),
                                       cmocka_unit_test(products_in_tiles),
                                       cmocka_unit_test(sums_in_tiles_are_cut),
                                       cmocka_unit_test(special_numbers_in_tiles),
                                       cmocka_unit_test(zeros_in_tiles),
                                       cmocka_unit_test(transposition),
                                       cmocka_unit_test(rows_of_products),
                                       cmocka_unit_test(part_of_a_row),
                                       cmocka_unit_test(blocks_of_positions),
                                       cmocka_unit_test(chains_of_every_instruction_set)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
