/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/f64/kernels.c: the kernels in double, for the compiler's default target only: every instruction
 * set has the same bits. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "tests/model/f64/f64.h"

#define MODEL_TABLE model_table_f64_base
extern const model_kernels_t_f64 MODEL_TABLE;
#include "model/kernels/instance.inc"

const model_kernels_t_f64 *model_kernels_f64(model_isa_t isa)
{
    (void)isa;
    return &model_table_f64_base;
}

void model_rope_table_f64(double *turn, size_t T, size_t half, const model_rope_t *rope)
{
    for (size_t t = 0; t < T; t++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)t * model_rope_frequency(rope, i, half);
            turn[2 * t * half + i] = model_rope_attention(rope) * cos(angle);
            turn[(2 * t + 1) * half + i] = model_rope_attention(rope) * sin(angle);
        }
}

size_t f64_block;

int model_matmul_may_cut_f64(size_t M, size_t N, size_t K)
{
    (void)M, (void)N, (void)K;
    return 0; /* f64_block is that of all ranks */
}

size_t model_matmul_block_f64(size_t M, size_t N, size_t K)
{
    (void)N;
    (void)K;
    return f64_block > 0 && f64_block < M ? f64_block : M;
}

void model_matmul_f64(int trans_a, int trans_b, size_t M, size_t N, size_t K, double alpha, const double *A,
                      size_t lda, const double *B, size_t ldb, double beta, double *C, size_t ldc)
{
    cblas_dgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans,
                (int)M, (int)N, (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
}

/* Stages in double have no precision that it would be for. */
void model_matmul_bf16_f64(void *pack, int trans_a, int trans_b, size_t M, size_t N, size_t K,
                           const double *A, size_t lda, const double *B, size_t ldb, int add, double *C,
                           size_t ldc)
{
    (void)pack;
    model_matmul_f64(trans_a, trans_b, M, N, K, 1, A, lda, B, ldb, add ? 1 : 0, C, ldc);
}
