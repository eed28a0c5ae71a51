/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/lt.c: cuBLASLt by dlopen.
 *
 * Row-major D = op(A) op(B) is column-major D' = op(B)' op(A)' on the same memory: the library's "A" is
 * Gyre's B and the library's M is Gyre's N.
 *
 * Bits must be the same in every layout of a run. A product of a shape may come alone or in a batch of
 * leaves. So the library is asked for an algorithm once per shape, without the batch, and that algorithm
 * serves both. It is the library's first proposal that neither splits K nor reduces between blocks: the
 * algorithm then fixes the order of sums. The library's proposals depend on its version and the GPU's kind,
 * which ranks of a run share.
 *
 * Fused are bias, and, in bf16, bias with the tanh form of GELU (the library's GELU), with the pre-activation
 * stored, and its backward. Other activations are applied by Gyre's kernel after the product. */
#include "model/gpu/products/lt.h"

#if defined(GYRE_CUDA) && !__has_include(<cublasLt.h>) /* a toolkit without the library's headers */

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"

gyre_status_t model_cuda_lt_create(model_cuda_lt_t **lt, char *told, size_t bytes)
{
    const char *wish = base_setting_string(SET_CUBLASLT);
    *lt = NULL;
    if (strcmp(wish, "auto") != 0 && strcmp(wish, "off") != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "GYRE_CUBLASLT=%s: this build's CUDA toolkit had no cublasLt.h", wish);
    snprintf(told, bytes, "own kernels: built without cublasLt.h");
    return GYRE_OK;
}

void model_cuda_lt_destroy(model_cuda_lt_t *lt)
{
    (void)lt; /* no library in this build */
}

gyre_status_t model_cuda_lt_matmul(model_cuda_lt_t *lt, const model_cuda_product_t *product, const void *A,
                                   const void *B, void *D, void *workspace, size_t bytes,
                                   struct CUstream_st *stream, model_cuda_by_t *by)
{
    (void)lt, (void)product, (void)A, (void)B, (void)D, (void)workspace, (void)bytes, (void)stream;
    *by = MODEL_CUDA_BY_US;
    return GYRE_OK;
}

#elif defined(GYRE_CUDA)

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "model/gpu/products/internal.h"

/* Every function that is used, by its name. */
#define FUNCTIONS(f)                                                                                       \
    f(Create) f(Destroy) f(GetVersion) f(Matmul) f(MatmulDescCreate) f(MatmulDescDestroy)                  \
        f(MatmulDescSetAttribute) f(MatrixLayoutCreate) f(MatrixLayoutDestroy) f(MatrixLayoutSetAttribute) \
            f(MatmulPreferenceCreate) f(MatmulPreferenceDestroy) f(MatmulPreferenceSetAttribute)           \
                f(MatmulAlgoGetHeuristic) f(MatmulAlgoCheck) f(MatmulAlgoConfigGetAttribute)

/* What decides on an algorithm; compared as bytes, so always zeroed first. */
typedef struct {
    size_t M, N, K, lda, ldb, ldd, ldpre;
    int trans_a, trans_b, in, out;
    int epilogue; /* cublasLtEpilogue_t */
    uint32_t align_a, align_b, align_d, align_bias, align_pre;
    int beta; /* whether D is read */
} shape_t;

typedef struct {
    shape_t shape;
    int used, found; /* found 0: the library has no algorithm for this shape */
    size_t batch;    /* of `a`, `b`, `d` */
    size_t step_a, step_b, step_d;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d; /* the library's A, B, D */
    cublasLtMatmulAlgo_t algo;
    int together; /* whether `algo` takes the batch of the last call as one */
} entry_t;

struct model_cuda_lt {
    void *library;
    cublasLtHandle_t handle;
    entry_t *table; /* open addressing; `size` is a power of two */
    size_t size, count;
#define POINTER(name) __typeof__(&cublasLt##name) name;
    FUNCTIONS(POINTER)
#undef POINTER
};

static gyre_status_t failed(const char *call, cublasStatus_t rc, const shape_t *shape)
{
    if (shape == NULL)
        return gyre_fail(GYRE_ERR_SYSTEM,
                         "cublasLt%s failed with status %d; GYRE_CUBLASLT=off uses our own kernels", call,
                         (int)rc);
    return gyre_fail(GYRE_ERR_SYSTEM,
                     "cublasLt%s failed with status %d for a product [%zu,%zu] x [%zu,%zu], %s to %s; "
                     "GYRE_CUBLASLT=off uses our own kernels",
                     call, (int)rc, shape->M, shape->K, shape->K, shape->N,
                     shape->in == MODEL_CUDA_BF16 ? "bf16" : "fp32",
                     shape->out == MODEL_CUDA_BF16 ? "bf16" : "fp32");
}

/* ---- finding the library ------------------------------------------------------------------------------- */

static void *open_library(const char *wish, char *name, size_t bytes)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    if (strcmp(wish, "auto") != 0) {
        snprintf(name, bytes, "%s", wish);
        return dlopen(wish, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library != NULL) {
            snprintf(name, bytes, "%s", names[i]);
            return library;
        }
    }
    snprintf(name, bytes, "%s, %s", names[0], names[1]);
    return NULL;
}

/* The first name that the library lacks, or NULL. */
static const char *find_functions(model_cuda_lt_t *lt)
{
#define FIND(name)                                                \
    *(void **)(&lt->name) = dlsym(lt->library, "cublasLt" #name); \
    if (lt->name == NULL)                                         \
        return "cublasLt" #name;
    FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

gyre_status_t model_cuda_lt_create(model_cuda_lt_t **lt, char *told, size_t bytes)
{
    const char *wish = base_setting_string(SET_CUBLASLT), *lacks;
    char name[256];
    const int forced = strcmp(wish, "auto") != 0;
    *lt = NULL;
    if (strcmp(wish, "off") == 0) {
        snprintf(told, bytes, "own kernels: GYRE_CUBLASLT=off");
        return GYRE_OK;
    }
    model_cuda_lt_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "cuBLASLt: no memory left");
    fresh->library = open_library(wish, name, sizeof(name));
    if (fresh->library == NULL) {
        free(fresh);
        if (forced)
            return gyre_fail(GYRE_ERR_UNSUPPORTED, "GYRE_CUBLASLT=%s: %s", wish, dlerror());
        snprintf(told, bytes, "own kernels: no cuBLASLt found (%s)", name);
        return GYRE_OK;
    }
    lacks = find_functions(fresh);
    if (lacks != NULL) {
        model_cuda_lt_destroy(fresh);
        if (forced)
            return gyre_fail(GYRE_ERR_UNSUPPORTED, "GYRE_CUBLASLT=%s: it has no %s", wish, lacks);
        snprintf(told, bytes, "own kernels: %s has no %s", name, lacks);
        return GYRE_OK;
    }
    cublasStatus_t rc = fresh->Create(&fresh->handle);
    if (rc != CUBLAS_STATUS_SUCCESS) {
        fresh->handle = NULL;
        model_cuda_lt_destroy(fresh);
        if (forced)
            return failed("Create", rc, NULL);
        snprintf(told, bytes, "own kernels: %s does not start (status %d)", name, (int)rc);
        return GYRE_OK;
    }
    size_t version = fresh->GetVersion(); /* 130002: 13.0.2; before 13: 120103 is 12.1.3 */
    snprintf(told, bytes, "cuBLASLt %zu.%zu.%zu (%s)", version / 10000, version / 100 % 100, version % 100,
             name);
    *lt = fresh;
    return GYRE_OK;
}

static void drop_entry(model_cuda_lt_t *lt, entry_t *entry)
{
    if (entry->desc)
        lt->MatmulDescDestroy(entry->desc);
    if (entry->a)
        lt->MatrixLayoutDestroy(entry->a);
    if (entry->b)
        lt->MatrixLayoutDestroy(entry->b);
    if (entry->d)
        lt->MatrixLayoutDestroy(entry->d);
    entry->desc = NULL;
    entry->a = entry->b = entry->d = NULL;
}

void model_cuda_lt_destroy(model_cuda_lt_t *lt)
{
    if (lt == NULL)
        return;
    for (size_t i = 0; i < lt->size; i++)
        if (lt->table[i].used)
            drop_entry(lt, &lt->table[i]);
    free(lt->table);
    if (lt->handle)
        lt->Destroy(lt->handle);
    dlclose(lt->library);
    free(lt);
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

static uint32_t alignment(const void *x, size_t step, size_t element)
{
    uintptr_t bits = (uintptr_t)x | step * element | 16; /* all matrices of a batch */
    return (uint32_t)(bits & (~bits + 1));
}

/* The library may approximate tanh, which bf16 does not notice; where all is fp32 our kernel does the
 * activation. */
static cublasLtEpilogue_t fused(const model_cuda_product_t *p)
{
    const int gelu = p->act == MODEL_ACT_GELU_TANH && p->out == MODEL_CUDA_BF16;
    if (p->epilogue == MODEL_CUDA_BIAS)
        return CUBLASLT_EPILOGUE_BIAS;
    if (p->epilogue == MODEL_CUDA_ACT && gelu) {
        if (p->bias)
            return p->pre ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
        return p->pre ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    }
    if (p->epilogue == MODEL_CUDA_ACT_BACK && gelu)
        return CUBLASLT_EPILOGUE_DGELU;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static uint64_t hash(const shape_t *shape)
{
    const unsigned char *byte = (const unsigned char *)shape;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof(*shape); i++)
        h = (h ^ byte[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static entry_t *slot_of(entry_t *table, size_t size, const shape_t *shape)
{
    size_t i = hash(shape) & (size - 1);
    while (table[i].used && memcmp(&table[i].shape, shape, sizeof(*shape)) != 0)
        i = (i + 1) & (size - 1);
    return &table[i];
}

/* The shape's entry, new ones with used 0. NULL: no memory. */
static entry_t *entry_of(model_cuda_lt_t *lt, const shape_t *shape)
{
    if (lt->size > 0) {
        entry_t *entry = slot_of(lt->table, lt->size, shape);
        if (entry->used || 2 * lt->count < lt->size)
            return entry;
    }
    size_t size = lt->size ? 2 * lt->size : 64;
    entry_t *table = calloc(size, sizeof(*table));
    if (table == NULL)
        return NULL;
    for (size_t i = 0; i < lt->size; i++)
        if (lt->table[i].used)
            *slot_of(table, size, &lt->table[i].shape) = lt->table[i];
    free(lt->table);
    lt->table = table;
    lt->size = size;
    return slot_of(table, size, shape);
}

/* ---- an algorithm for a shape -------------------------------------------------------------------------- */

static gyre_status_t layout(model_cuda_lt_t *lt, cublasLtMatrixLayout_t *made, cudaDataType_t type,
                            size_t rows, size_t columns, size_t ld, const shape_t *shape)
{
    cublasStatus_t rc = lt->MatrixLayoutCreate(made, type, rows, columns, (int64_t)ld);
    return rc == CUBLAS_STATUS_SUCCESS ? GYRE_OK : failed("MatrixLayoutCreate", rc, shape);
}

/* Attributes are set in rows like this; `rc` keeps the first failure. */
#define SET(call, object, attribute, value)                            \
    do {                                                               \
        if (rc == CUBLAS_STATUS_SUCCESS)                               \
            rc = lt->call(object, attribute, &(value), sizeof(value)); \
    } while (0)

static gyre_status_t describe(model_cuda_lt_t *lt, entry_t *entry)
{
    const shape_t *s = &entry->shape;
    const cudaDataType_t in = s->in == MODEL_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out = s->out == MODEL_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t of_a = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_b = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)s->epilogue;
    cublasStatus_t rc =
        lt->MatmulDescCreate(&entry->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F); /* fp32: never TF32 */
    if (rc != CUBLAS_STATUS_SUCCESS)
        return failed("MatmulDescCreate", rc, s);
    SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_TRANSA, of_a);
    SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_TRANSB, of_b);
    SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (s->align_bias)
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
    if (s->align_pre) {
        int64_t ld = (int64_t)s->ldpre;
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    }
    if (rc != CUBLAS_STATUS_SUCCESS)
        return failed("MatmulDescSetAttribute", rc, s);
    gyre_status_t status =
        layout(lt, &entry->a, in, s->trans_b ? s->K : s->N, s->trans_b ? s->N : s->K, s->ldb, s);
    if (status == GYRE_OK)
        status = layout(lt, &entry->b, in, s->trans_a ? s->M : s->K, s->trans_a ? s->K : s->M, s->lda, s);
    if (status == GYRE_OK)
        status = layout(lt, &entry->d, out, s->N, s->M, s->ldd, s);
    entry->batch = 1;
    return status;
}

/* Whether an algorithm neither splits K nor reduces between blocks. */
static int in_one_order(model_cuda_lt_t *lt, const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 0;
    uint32_t scheme = 0;
    size_t written;
    return lt->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof(split),
                                            &written) == CUBLAS_STATUS_SUCCESS &&
           lt->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                            sizeof(scheme), &written) == CUBLAS_STATUS_SUCCESS &&
           split <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static gyre_status_t choose(model_cuda_lt_t *lt, entry_t *entry, size_t bytes)
{
    const shape_t *s = &entry->shape;
    const uint64_t workspace = bytes;
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t proposal[8];
    cublasLtMatmulPreference_t preference;
    int count = 0;
    cublasStatus_t rc = lt->MatmulPreferenceCreate(&preference);
    if (rc != CUBLAS_STATUS_SUCCESS)
        return failed("MatmulPreferenceCreate", rc, s);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, none);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_d);
    SET(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_d);
    if (rc != CUBLAS_STATUS_SUCCESS) {
        lt->MatmulPreferenceDestroy(preference);
        return failed("MatmulPreferenceSetAttribute", rc, s);
    }
    rc = lt->MatmulAlgoGetHeuristic(lt->handle, entry->desc, entry->a, entry->b, entry->d, entry->d,
                                    preference, 8, proposal, &count);
    lt->MatmulPreferenceDestroy(preference);
    if (rc != CUBLAS_STATUS_SUCCESS && rc != CUBLAS_STATUS_NOT_SUPPORTED && rc != CUBLAS_STATUS_INVALID_VALUE)
        return failed("MatmulAlgoGetHeuristic", rc, s);
    for (int i = 0; rc == CUBLAS_STATUS_SUCCESS && i < count && !entry->found; i++)
        if (proposal[i].state == CUBLAS_STATUS_SUCCESS && in_one_order(lt, &proposal[i].algo)) {
            entry->algo = proposal[i].algo;
            entry->found = 1;
        }
    return GYRE_OK;
}

/* Makes the layouts those of the product's batch, and finds out whether the algorithm takes it as one. */
static gyre_status_t set_batch(model_cuda_lt_t *lt, entry_t *entry, const model_cuda_product_t *p,
                               size_t bytes)
{
    const cublasLtMatrixLayout_t of[3] = {entry->a, entry->b, entry->d};
    const size_t step[3] = {p->step_b, p->step_a, p->step_d};
    if (entry->batch == p->batch && entry->step_a == p->step_a && entry->step_b == p->step_b &&
        entry->step_d == p->step_d)
        return GYRE_OK;
    for (int i = 0; i < 3; i++) {
        int32_t count = (int32_t)p->batch;
        int64_t apart = (int64_t)step[i];
        cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
        SET(MatrixLayoutSetAttribute, of[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
        SET(MatrixLayoutSetAttribute, of[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, apart);
        if (rc != CUBLAS_STATUS_SUCCESS)
            return failed("MatrixLayoutSetAttribute", rc, &entry->shape);
    }
    entry->batch = p->batch;
    entry->step_a = p->step_a;
    entry->step_b = p->step_b;
    entry->step_d = p->step_d;
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t rc = lt->MatmulAlgoCheck(lt->handle, entry->desc, entry->a, entry->b, entry->d, entry->d,
                                            &entry->algo, &result);
    entry->together = rc == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= bytes;
    return GYRE_OK;
}

/* ---- a product ----------------------------------------------------------------------------------------- */

/* Where the epilogue's bias and pre-activation are; proposals look at it, too. */
static gyre_status_t point(model_cuda_lt_t *lt, entry_t *entry, const model_cuda_product_t *p,
                           const void *bias, void *pre)
{
    const int64_t step_bias = (int64_t)p->step_bias, step_pre = (int64_t)p->step_pre;
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
    if (bias) {
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, step_bias);
    }
    if (pre) {
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
        SET(MatmulDescSetAttribute, entry->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, step_pre);
    }
    return rc == CUBLAS_STATUS_SUCCESS ? GYRE_OK : failed("MatmulDescSetAttribute", rc, &entry->shape);
}

/* A library that proposes an algorithm and then refuses it is not asked for the shape again: entry->found
 * becomes 0. */
static gyre_status_t run(model_cuda_lt_t *lt, entry_t *entry, const model_cuda_product_t *p, const void *A,
                         const void *B, void *D, const void *bias, void *pre, void *workspace, size_t bytes,
                         cudaStream_t stream)
{
    gyre_status_t status = point(lt, entry, p, bias, pre);
    if (status != GYRE_OK)
        return status;
    cublasStatus_t rc = lt->Matmul(lt->handle, entry->desc, &p->alpha, B, entry->a, A, entry->b, &p->beta, D,
                                   entry->d, D, entry->d, &entry->algo, workspace, bytes, stream);
    if (rc == CUBLAS_STATUS_NOT_SUPPORTED) {
        entry->found = 0;
        return GYRE_OK;
    }
    return rc == CUBLAS_STATUS_SUCCESS ? GYRE_OK : failed("Matmul", rc, &entry->shape);
}

static const void *ahead(const void *x, size_t elements, model_cuda_type_t type)
{
    return x ? (const char *)x + elements * (type == MODEL_CUDA_BF16 ? 2 : 4) : NULL;
}

/* The product, all of it in the library, or *by BY_US. */
static gyre_status_t whole(model_cuda_lt_t *lt, const model_cuda_product_t *p, cublasLtEpilogue_t epilogue,
                           const void *A, const void *B, void *D, void *workspace, size_t bytes,
                           cudaStream_t stream, model_cuda_by_t *by)
{
    const size_t in = p->in == MODEL_CUDA_BF16 ? 2 : 4, out = p->out == MODEL_CUDA_BF16 ? 2 : 4;
    const int biased = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
                       epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    const int kept = epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                     epilogue == CUBLASLT_EPILOGUE_DGELU;
    const void *bias = biased ? p->bias : NULL;
    void *pre = kept ? p->pre : NULL;
    shape_t shape;
    gyre_status_t status = GYRE_OK;
    memset(&shape, 0, sizeof(shape));
    shape.M = p->M, shape.N = p->N, shape.K = p->K;
    shape.lda = p->lda, shape.ldb = p->ldb, shape.ldd = p->ldd, shape.ldpre = kept ? p->ldpre : 0;
    shape.trans_a = p->trans_a != 0, shape.trans_b = p->trans_b != 0, shape.in = p->in, shape.out = p->out;
    shape.epilogue = epilogue;
    shape.beta = p->beta != 0;
    shape.align_a = alignment(A, p->step_a, in), shape.align_b = alignment(B, p->step_b, in);
    shape.align_d = alignment(D, p->step_d, out);
    shape.align_bias = biased ? alignment(bias, p->step_bias, out) : 0;
    shape.align_pre = kept ? alignment(pre, p->step_pre, out) : 0;
    /* The question was about a leaf of a batch, steps and all, so that both get one algorithm. From here on
     * the steps have no effect. */
    model_cuda_product_t alone = *p;
    if (p->batch == 1) {
        alone.step_a = alone.step_b = alone.step_d = alone.step_bias = alone.step_pre = 0;
        p = &alone;
    }

    *by = MODEL_CUDA_BY_US;
    entry_t *entry = entry_of(lt, &shape);
    if (entry == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "cuBLASLt: no memory left");
    if (!entry->used) {
        memset(entry, 0, sizeof(*entry));
        entry->shape = shape;
        status = describe(lt, entry);
        if (status == GYRE_OK)
            status = point(lt, entry, p, bias, pre);
        if (status == GYRE_OK)
            status = choose(lt, entry, bytes);
        if (status != GYRE_OK) {
            drop_entry(lt, entry);
            return status;
        }
        entry->used = 1;
        lt->count++;
    }
    if (!entry->found)
        return GYRE_OK;
    status = set_batch(lt, entry, p, bytes);
    const int together = p->batch == 1 || entry->together;
    if (status == GYRE_OK && together) {
        status = run(lt, entry, p, A, B, D, bias, pre, workspace, bytes, stream);
    } else if (status == GYRE_OK) {
        model_cuda_product_t one = *p;
        one.batch = 1;
        one.step_a = one.step_b = one.step_d = one.step_bias = one.step_pre = 0;
        status = set_batch(lt, entry, &one, bytes);
        for (size_t z = 0; z < p->batch && status == GYRE_OK; z++)
            status =
                run(lt, entry, &one, ahead(A, z * p->step_a, p->in), ahead(B, z * p->step_b, p->in),
                    (void *)(uintptr_t)ahead(D, z * p->step_d, p->out), ahead(bias, z * p->step_bias, p->out),
                    (void *)(uintptr_t)ahead(pre, z * p->step_pre, p->out), workspace, bytes, stream);
    }
    if (status == GYRE_OK && entry->found)
        *by = together ? MODEL_CUDA_BY_LIBRARY : MODEL_CUDA_MATRIX_BY_MATRIX;
    return status;
}

gyre_status_t model_cuda_lt_matmul(model_cuda_lt_t *lt, const model_cuda_product_t *product, const void *A,
                                   const void *B, void *D, void *workspace, size_t bytes,
                                   struct CUstream_st *stream, model_cuda_by_t *by)
{
    cublasLtEpilogue_t epilogue = fused(product);
    gyre_status_t status = GYRE_OK;
    *by = MODEL_CUDA_BY_US;
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT || product->epilogue == MODEL_CUDA_PLAIN) {
        status = whole(lt, product, epilogue, A, B, D, workspace, bytes, stream, by);
        if (status != GYRE_OK || *by != MODEL_CUDA_BY_US || product->epilogue == MODEL_CUDA_PLAIN ||
            product->epilogue == MODEL_CUDA_BIAS)
            return status;
    }
    /* The product by the library, its activation by Gyre's kernel. In between, act's argument lies where it
     * is kept, if it is. */
    model_cuda_product_t bare = *product;
    void *between = D;
    bare.epilogue = MODEL_CUDA_PLAIN;
    if (product->epilogue == MODEL_CUDA_ACT) {
        if (product->pre && product->beta == 0) {
            between = product->pre;
            bare.ldd = product->ldpre;
            bare.step_d = product->step_pre;
        }
        if (product->bias)
            bare.epilogue = MODEL_CUDA_BIAS;
    }
    status = whole(lt, &bare, fused(&bare), A, B, between, workspace, bytes, stream, by);
    if (status != GYRE_OK || *by == MODEL_CUDA_BY_US)
        return status;
    model_cuda_product_t rest = *product;
    rest.bias = NULL; /* it is in */
    if (between != D)
        rest.pre = NULL; /* it is there */
    *by = MODEL_CUDA_ACTIVATED_BY_US;
    cudaError_t rc = model_cuda_epilogue_launch(&rest, between, bare.ldd, bare.step_d, D, stream);
    if (rc == cudaSuccess)
        return GYRE_OK;
    cudaGetLastError();
    return gyre_fail(GYRE_ERR_SYSTEM, "an activation [%zu,%zu] on the GPU: %s", product->M, product->N,
                     cudaGetErrorString(rc));
}

#endif
