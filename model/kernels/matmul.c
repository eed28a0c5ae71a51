/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/matmul.c: the only caller of the BLAS.
 *
 * OpenBLAS multiplies small matrices in place, and copies both into packed panels from a million
 * multiplications on (its "small matrix" kernels, which it has for AVX-512). The products of one sequence are
 * of about that size: copying takes as long as a third of the multiplications. Such a product is therefore
 * cut into tiles of C that stay below that size. K is never cut, so every element is the sum of the same
 * numbers in the same order. Among the small kernels the one for C = A B^T has half the speed of the others:
 * B is transposed first, a panel at a time.
 *
 * The choice of tiles depends on the shape and the BLAS's kernels only, so equal shapes give equal bits. */
#include <cblas.h>
#include <string.h>

#include "base/checked.h"
#include "model/kernels/kernels.h"

/* Multiplications from which OpenBLAS packs (its kernel/x86_64/sgemm_small_kernel_permit_skylakex.c). */
#define SMALL_PRODUCT ((size_t)1000000)
/* Beyond these the panels, packed once, are as fast, measured with and without in turns: multiplications, of
 * A B and A^T B and of A B^T; and K. */
#define LARGEST_TILED      ((size_t)1 << 24)
#define LARGEST_TRANSPOSED ((size_t)1 << 26)
#define LARGEST_K          256
/* Columns of a tile; its rows are a multiple of ROW_STEP, which the kernels like. */
#define TILE_COLUMNS 64
#define ROW_STEP     16

void model_matmul_init(void)
{
    openblas_set_num_threads(1);
}

const char *model_matmul_kind(void)
{
    return openblas_get_corename();
}

/* 1 if the BLAS took kernels for which it has small ones. */
static int has_small_kernels(void)
{
    const char *kind = model_matmul_kind();
    return strcmp(kind, "SkylakeX") == 0 || strcmp(kind, "Cooperlake") == 0 ||
           strcmp(kind, "SapphireRapids") == 0;
}

static void multiply(int trans_a, int trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
                     size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans,
                (int)M, (int)N, (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
}

static int tiles_pay(int trans_b, size_t product, size_t K)
{
    if (product == 0 || K > LARGEST_K || product > (trans_b ? LARGEST_TRANSPOSED : LARGEST_TILED))
        return 0;
    return (trans_b || product > SMALL_PRODUCT) && has_small_kernels();
}

void model_matmul_f32(int trans_a, int trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
                      size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    float panel[LARGEST_K * TILE_COLUMNS]; /* 64 KiB on the stack */
    if (!tiles_pay(trans_b, M * N * K, K)) {
        multiply(trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    const model_kernels_t_f32 *k = trans_b ? model_kernels_f32(MODEL_ISA_BEST) : NULL;
    for (size_t n = 0; n < N; n += TILE_COLUMNS) {
        size_t columns = base_min_size(TILE_COLUMNS, N - n), ld = trans_b ? columns : ldb;
        size_t rows = SMALL_PRODUCT / (columns * K) / ROW_STEP * ROW_STEP; /* at least ROW_STEP */
        const float *b = trans_b ? panel : B + n;
        if (trans_b)
            k->transpose(panel, B + n * ldb, columns, K, ldb);
        for (size_t m = 0; m < M; m += rows)
            multiply(trans_a, 0, base_min_size(rows, M - m), columns, K, alpha, A + (trans_a ? m : m * lda),
                     lda, b, ld, beta, C + m * ldc + n, ldc);
    }
}
