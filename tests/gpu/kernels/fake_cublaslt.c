/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/fake_cublaslt.c: a stand-in for cuBLASLt, for the emulator, whose device memory the CPU
 * reaches: what model/gpu/products/lt.c calls, computed at once by plain loops, as the library's
 * documentation says it (column-major, its own words for epilogues). It is strict where the library is,
 * and proposes algorithms that lt.c must not take. Not linked: test_matmul.c names it in GYRE_CUBLASLT. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a test looks at. */
__attribute__((visibility("default"))) int fake_asked;    /* calls for proposals */
__attribute__((visibility("default"))) int fake_products; /* calls of cublasLtMatmul */

typedef struct {
    cublasOperation_t of_a, of_b;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    const void *bias;
    void *aux;
    int64_t aux_ld, aux_step, bias_step;
} desc_t;

typedef struct {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, step;
    int32_t batch;
} matrix_t;

static float get(const void *x, cudaDataType_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float y;
    memcpy(&y, &bits, sizeof(y));
    return y;
}

static void put(void *x, cudaDataType_t type, int64_t i, float y)
{
    if (type == CUDA_R_32F) {
        ((float *)x)[i] = y;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &y, sizeof(bits));
    ((uint16_t *)x)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define EXPORT __attribute__((visibility("default")))

EXPORT size_t cublasLtGetVersion(void)
{
    return 130001;
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) /* another would be TF32 */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    desc_t *desc = calloc(1, sizeof(*desc));
    desc->of_a = desc->of_b = CUBLAS_OP_N;
    desc->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *made = (cublasLtMatmulDesc_t)(void *)desc;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t keep(void *to, size_t wants, const void *from, size_t bytes)
{
    if (bytes != wants)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define KEEP(field) keep(&(field), sizeof(field), value, bytes)

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                                     cublasLtMatmulDescAttributes_t name, const void *value,
                                                     size_t bytes)
{
    desc_t *desc = (desc_t *)(void *)of;
    switch ((int)name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return KEEP(desc->of_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return KEEP(desc->of_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return KEEP(desc->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return KEEP(desc->bias_type);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return KEEP(desc->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return KEEP(desc->bias_step);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return KEEP(desc->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return KEEP(desc->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        return KEEP(desc->aux_step);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld)
{
    if (ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    matrix_t *matrix = calloc(1, sizeof(*matrix));
    *matrix = (matrix_t){.type = type, .rows = rows, .columns = columns, .ld = ld, .batch = 1};
    *made = (cublasLtMatrixLayout_t)(void *)matrix;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
    free(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of,
                                                       cublasLtMatrixLayoutAttribute_t name,
                                                       const void *value, size_t bytes)
{
    matrix_t *matrix = (matrix_t *)(void *)of;
    switch ((int)name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return KEEP(matrix->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return KEEP(matrix->step);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

typedef struct {
    uint32_t schemes, align_a;
    uint64_t workspace;
} preference_t;

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
    preference_t *preference = calloc(1, sizeof(*preference));
    preference->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    *made = (cublasLtMatmulPreference_t)(void *)preference;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                           cublasLtMatmulPreferenceAttributes_t name,
                                                           const void *value, size_t bytes)
{
    preference_t *preference = (preference_t *)(void *)of;
    uint32_t ignored;
    switch ((int)name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return KEEP(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return KEEP(preference->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return KEEP(preference->align_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return KEEP(ignored);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* An algorithm: data[0] parts of K, data[1] its number. The third of the proposals is the one to take; K of
 * 13: none at all; of 14: one that is refused when it is used. */
enum { GOOD = 3, NO_ALGORITHM_FOR = 13, REFUSED_FOR = 14, NO_BATCH_OF = 3 };

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int wanted,
                                                     cublasLtMatmulHeuristicResult_t *result, int *count)
{
    const matrix_t *first = (const matrix_t *)(void *)a;
    const desc_t *of = (const desc_t *)(void *)desc;
    (void)handle, (void)b, (void)c, (void)d;
    fake_asked++;
    *count = 0;
    if (((const preference_t *)(void *)preference)->schemes != CUBLASLT_REDUCTION_SCHEME_NONE ||
        first->batch != 1 || wanted < GOOD)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((of->of_a == CUBLAS_OP_T ? first->rows : first->columns) == NO_ALGORITHM_FOR)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((of->epilogue == CUBLASLT_EPILOGUE_BIAS && of->bias == NULL) ||
        (of->epilogue == CUBLASLT_EPILOGUE_DGELU && of->aux == NULL))
        return CUBLAS_STATUS_INVALID_VALUE; /* their alignment counts */
    memset(result, 0, GOOD * sizeof(*result));
    for (uint64_t i = 0; i < GOOD; i++) {
        result[i].algo.data[0] = i == 0 ? 4 : 1;
        result[i].algo.data[1] = i + 1;
        result[i].state = i == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    *count = GOOD;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                           cublasLtMatmulAlgoConfigAttributes_t name,
                                                           void *value, size_t bytes, size_t *written)
{
    uint32_t answer = 0; /* no reduction between blocks */
    if (name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM)
        answer = (uint32_t)algo->data[0];
    else if (name != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != sizeof(answer))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &answer, sizeof(answer));
    *written = sizeof(answer);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)desc, (void)b, (void)c, (void)d, (void)algo;
    memset(result, 0, sizeof(*result));
    return ((const matrix_t *)(void *)a)->batch == NO_BATCH_OF ? CUBLAS_STATUS_NOT_SUPPORTED
                                                               : CUBLAS_STATUS_SUCCESS;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

/* One element, as the epilogue leaves it. `row` of the library's D. */
static float finish(const desc_t *desc, double v, cudaDataType_t type, int64_t z, int64_t row, int64_t column)
{
    const int e = desc->epilogue;
    int64_t aux = z * desc->aux_step + column * desc->aux_ld + row;
    if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
        e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        v += (double)get(desc->bias, desc->bias_type, z * desc->bias_step + row);
    if (e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        put(desc->aux, type, aux, (float)v);
    if (e == CUBLASLT_EPILOGUE_DGELU)
        return (float)(v * gelu_slope((double)get(desc->aux, type, aux)));
    return (float)(e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS ? v : gelu(v));
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t of, const void *alpha,
                                     const void *A, cublasLtMatrixLayout_t of_a, const void *B,
                                     cublasLtMatrixLayout_t of_b, const void *beta, const void *C,
                                     cublasLtMatrixLayout_t of_c, void *D, cublasLtMatrixLayout_t of_d,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                                     cudaStream_t stream)
{
    const desc_t *desc = (const desc_t *)(void *)of;
    const matrix_t *a = (const matrix_t *)(void *)of_a, *b = (const matrix_t *)(void *)of_b,
                   *d = (const matrix_t *)(void *)of_d;
    const int ta = desc->of_a == CUBLAS_OP_T, tb = desc->of_b == CUBLAS_OP_T;
    const int64_t M = (int64_t)d->rows, N = (int64_t)d->columns, K = (int64_t)(ta ? a->rows : a->columns);
    (void)handle, (void)stream;
    fake_products++;
    if (algo == NULL || algo->data[1] != GOOD || workspace == NULL || bytes == 0 || C != D || of_c != of_d ||
        (int64_t)(ta ? a->columns : a->rows) != M || (int64_t)(tb ? b->rows : b->columns) != N ||
        (int64_t)(tb ? b->columns : b->rows) != K || a->batch != d->batch || b->batch != d->batch ||
        a->batch == NO_BATCH_OF || a->type != b->type)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (K == REFUSED_FOR)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int64_t z = 0; z < d->batch; z++)
        for (int64_t j = 0; j < N; j++)
            for (int64_t i = 0; i < M; i++) {
                double sum = 0;
                for (int64_t k = 0; k < K; k++)
                    sum += (double)get(A, a->type, z * a->step + (ta ? i * a->ld + k : k * a->ld + i)) *
                           (double)get(B, b->type, z * b->step + (tb ? k * b->ld + j : j * b->ld + k));
                int64_t at = z * d->step + j * d->ld + i;
                double v = (double)*(const float *)alpha * sum;
                if (*(const float *)beta != 0)
                    v += (double)*(const float *)beta * (double)get(D, d->type, at);
                put(D, d->type, at, finish(desc, v, d->type, z, i, j));
            }
    return CUBLAS_STATUS_SUCCESS;
}
