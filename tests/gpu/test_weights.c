/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_weights.c: gradients of weights that are summed in pieces of their positions (model/gpu/
 * stage/steps.c): each has the bits of the products of its pieces, joined in the tree of docs/contract.md,
 * for all leaves at once and for one alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/settings/settings.h"
#include "model/gpu/stage/runtime.h"
#include "tests/gpu/kernels/storage.h"

enum { C = 24, WIDTH = 40, SIZE = C * WIDTH, LEAVES = 2, SEQUENCES = 4, MOST = 8 };

static struct CUstream_st *stream;
static model_cuda_matmul_t *matmul;

/* dw [LEAVES][SIZE], of rows-parallel weights or columns-parallel ones: pieces of K, one product each, and
 * their tree. x and dy: [leaf][K][WIDTH] of all leaves, and [K][C]. */
static void expected(float *dw, int rows, model_cuda_type_t type, size_t K, size_t pieces, const char *wide,
                     const char *narrow)
{
    const size_t element = type == MODEL_CUDA_BF16 ? 2 : 4, k = K / pieces;
    for (size_t leaf = 0; leaf < LEAVES; leaf++) {
        float part[MOST][SIZE];
        for (size_t i = 0; i < pieces; i++) {
            const model_cuda_product_t p = {.trans_a = 1,
                                            .M = rows ? WIDTH : C,
                                            .N = rows ? C : WIDTH,
                                            .K = k,
                                            .lda = rows ? WIDTH : C,
                                            .ldb = rows ? C : WIDTH,
                                            .ldd = rows ? C : WIDTH,
                                            .alpha = 1,
                                            .in = type,
                                            .out = MODEL_CUDA_F32};
            const char *of_leaf = wide + (leaf * K + i * k) * WIDTH * element,
                       *of_all = narrow + i * k * C * element;
            float *d = to_device(NULL, sizeof part[i]);
            assert_int_equal(
                model_cuda_matmul(matmul, &p, rows ? of_leaf : of_all, rows ? of_all : of_leaf, d, stream),
                GYRE_OK);
            from_device(part[i], d, sizeof part[i], stream);
        }
        for (size_t n = pieces; n > 1; n /= 2)
            for (size_t i = 0; i < n / 2; i++)
                for (size_t e = 0; e < SIZE; e++)
                    part[i][e] = part[2 * i][e] + part[2 * i + 1][e];
        memcpy(dw + leaf * SIZE, part[0], sizeof part[0]);
    }
}

static void gradients(model_cuda_type_t type, size_t T, size_t pieces)
{
    const size_t K = SEQUENCES * T, element = type == MODEL_CUDA_BF16 ? 2 : 4;
    float *wide = stored(type, LEAVES * K * WIDTH), *narrow = stored(type, K * C);
    char *d_wide = send(type, wide, LEAVES * K * WIDTH), *d_narrow = send(type, narrow, K * C);
    slot_t slot = {.n = SEQUENCES};
    stage_t s = {.stream = stream, .matmul = matmul, .type = type, .size = element, .status = GYRE_OK};
    s.c = (model_config_t){.hidden = C, .seq = T, .leaves = LEAVES};
    s.config.grad_sequences = SEQUENCES;
    s.part = to_device(NULL, K * C * sizeof(float));
    for (int rows = 0; rows < 2; rows++) {
        float want[LEAVES * SIZE];
        expected(want, rows, type, K, pieces, d_wide, d_narrow);
        for (s.g = 1; s.g <= LEAVES; s.g++)
            for (size_t first = 0; first < LEAVES; first += s.g) {
                float *dw = to_device(NULL, s.g * SIZE * sizeof *dw);
                const char *mine = d_wide + first * K * WIDTH * element;
                if (rows)
                    stage_rows_weight(&s, &slot, 0, dw, d_narrow, mine, WIDTH);
                else
                    stage_columns_weight(&s, &slot, 0, dw, NULL, mine, d_narrow, WIDTH);
                assert_int_equal(s.status, GYRE_OK);
                expect_bits("gradient", MODEL_CUDA_F32, want + first * SIZE, dw, s.g * SIZE, stream);
            }
    }
    assert_cuda(cudaFree(d_wide));
    assert_cuda(cudaFree(d_narrow));
    assert_cuda(cudaFree(s.part));
    free(wide), free(narrow);
}

static void in_pieces(void **state)
{
    (void)state;
    gradients(MODEL_CUDA_F32, 512, 8);
    gradients(MODEL_CUDA_BF16, 512, 8);
}

/* Few positions are not worth pieces. */
static void as_one(void **state)
{
    (void)state;
    gradients(MODEL_CUDA_BF16, 64, 1);
    gradients(MODEL_CUDA_F32, 64, 1);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_int_equal(base_settings_set(SET_CUBLASLT, "off", "test"), GYRE_OK);
    assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_OK);
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_pieces), cmocka_unit_test(as_one)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_cuda_matmul_destroy(matmul);
    return failed;
}
