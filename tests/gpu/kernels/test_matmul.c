/* SPDX-License-Identifier: Apache-2.0 */
/* guard: 0, since the stand-in for cuBLASLt computes on the host, in device memory */
/* tests/gpu/kernels/test_matmul.c: products on the GPU against sums in double: every type, transposition,
 * epilogue, tile, odd extents, leading dimensions and alignments, batches. The bits are the same on every
 * run, and for a row with any neighbours. Also cuBLASLt's side of it (model/gpu/products/lt.c) against a
 * library that keeps a record (fake_cublaslt.c), and on a GPU the real one.
 *
 * A product's tolerance: its fp32 sums err by at most (K + 4) 2^-23 times the sum of |a b| (tensor cores
 * truncate), a stored value by half a unit in the last place of its type. An activation passes errors on
 * times its slope (at most 1.2) and adds 1e-6 of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "model/gpu/products/internal.h"
#include "tests/gpu/kernels/tensors.h"

static double act_of(model_act_t act, double x)
{
    switch (act) {
    case MODEL_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case MODEL_ACT_GELU_ERF:
        return x * 0.5 * erfc(-x / sqrt(2));
    case MODEL_ACT_GELU_FAST:
        return x / (1 + exp(-1.702 * x));
    case MODEL_ACT_RELU:
        return x > 0 ? x : 0;
    default:
        return x / (1 + exp(-x));
    }
}

/* How far the real library's GELU may be off: it may take the GPU's approximate tanh. */
static double library_error;

static double slope_of(model_act_t act, double x)
{
    if (act == MODEL_ACT_RELU)
        return x > 0;
    return (act_of(act, x + 1e-5) - act_of(act, x - 1e-5)) / 2e-5;
}

typedef struct {
    model_cuda_product_t p;
    tensor_t a, b, d, bias, pre;
    tensor_t before; /* of d: value only */
} product_t;

static size_t last(size_t lines, size_t ld, size_t columns, size_t batch, size_t step)
{
    return (batch - 1) * step + (lines - 1) * ld + columns;
}

/* Fills in what `p` leaves open, and the tensors. `shift`: elements by which they miss 16 bytes'
 * alignment. */
static product_t product_make(model_cuda_product_t p, size_t pad, size_t shift)
{
    product_t t = {.p = p};
    size_t lines_a = p.trans_a ? p.K : p.M, wide_a = p.trans_a ? p.M : p.K;
    size_t lines_b = p.trans_b ? p.N : p.K, wide_b = p.trans_b ? p.K : p.N;
    t.p.lda = wide_a + pad, t.p.ldb = wide_b + pad, t.p.ldd = p.N + pad, t.p.ldpre = p.N + 2 * pad;
    if (p.batch > 1) {
        t.p.step_a = lines_a * t.p.lda + pad, t.p.step_b = lines_b * t.p.ldb,
        t.p.step_d = p.M * t.p.ldd + 2 * pad;
        t.p.step_bias = p.N + pad, t.p.step_pre = p.M * t.p.ldpre;
    }
    t.a = tensor_random(p.in, last(lines_a, t.p.lda, wide_a, p.batch, t.p.step_a), 1, shift);
    t.b = tensor_random(p.in, last(lines_b, t.p.ldb, wide_b, p.batch, t.p.step_b), 1, shift);
    t.d = tensor_random(p.out, last(p.M, t.p.ldd, p.N, p.batch, t.p.step_d), 1, shift);
    t.bias = tensor_random(p.out, last(1, 0, p.N, p.batch, t.p.step_bias), 1, shift);
    t.pre = tensor_random(p.out, last(p.M, t.p.ldpre, p.N, p.batch, t.p.step_pre), 2, shift);
    if (t.p.bias)
        t.p.bias = t.bias.device;
    if (t.p.pre)
        t.p.pre = t.pre.device;
    t.before.value = malloc(t.d.count * sizeof(double));
    memcpy(t.before.value, t.d.value, t.d.count * sizeof(double));
    return t;
}

static void product_free(product_t *t)
{
    tensor_free(&t->a);
    tensor_free(&t->b);
    tensor_free(&t->d);
    tensor_free(&t->bias);
    tensor_free(&t->pre);
    free(t->before.value);
}

static void close_to(const product_t *t, const char *what, double got, double want, double error, size_t i,
                     size_t j, size_t z)
{
    const model_cuda_product_t *p = &t->p;
    double stored = p->out == MODEL_CUDA_BF16 ? 0x1p-8 : 0x1p-24;
    if (p->epilogue >= MODEL_CUDA_ACT) /* the activation may read what was stored */
        stored *= 2;
    double most = error * 1.2 + stored * 1.01 * fabs(want) + 1e-6;
    if (fabs(got - want) <= most)
        return;
    fail_msg("%s[%zu][%zu] of product %zu: %.9g, not %.9g (+- %g); M %zu N %zu K %zu trans %d %d %s to %s, "
             "epilogue %d, act %d, beta %g",
             what, i, j, z, got, want, most, p->M, p->N, p->K, p->trans_a, p->trans_b,
             p->in == MODEL_CUDA_BF16 ? "bf16" : "fp32", p->out == MODEL_CUDA_BF16 ? "bf16" : "fp32",
             (int)p->epilogue, (int)p->act, (double)p->beta);
}

/* Compares d and pre on the device with sums in double; what lies between rows is as it was. */
static void product_check(product_t *t)
{
    const model_cuda_product_t *p = &t->p;
    tensor_t old_pre = t->pre;
    char *touched = calloc(t->d.count, 1);
    old_pre.value = malloc(t->pre.count * sizeof(double));
    memcpy(old_pre.value, t->pre.value, t->pre.count * sizeof(double));
    tensor_receive(&t->d);
    tensor_receive(&t->pre);
    for (size_t z = 0; z < p->batch; z++)
        for (size_t i = 0; i < p->M; i++)
            for (size_t j = 0; j < p->N; j++) {
                double sum = 0, size = 0;
                const double *a = t->a.value + z * p->step_a, *b = t->b.value + z * p->step_b;
                for (size_t k = 0; k < p->K; k++) {
                    double x = a[p->trans_a ? k * p->lda + i : i * p->lda + k] *
                               b[p->trans_b ? j * p->ldb + k : k * p->ldb + j];
                    sum += x;
                    size += fabs(x);
                }
                size_t at = z * p->step_d + i * p->ldd + j, at_pre = z * p->step_pre + i * p->ldpre + j;
                double error = ((double)p->K + 4) * 0x1p-23 * size * fabs((double)p->alpha);
                double v = (double)p->alpha * sum;
                if (p->beta != 0)
                    v += (double)p->beta * t->before.value[at];
                if (p->bias && p->epilogue != MODEL_CUDA_PLAIN && p->epilogue != MODEL_CUDA_ACT_BACK)
                    v += t->bias.value[z * p->step_bias + j];
                error += 0x1p-22 * fabs(v);
                if (p->epilogue == MODEL_CUDA_ACT) {
                    double rounded = p->out == MODEL_CUDA_BF16 ? 0x1p-8 * fabs(v) : 0;
                    if (p->pre)
                        close_to(t, "pre", t->pre.value[at_pre], v, error, i, j, z);
                    close_to(t, "d", t->d.value[at], act_of(p->act, v),
                             error + rounded + library_error * (1 + fabs(v)), i, j, z);
                } else if (p->epilogue == MODEL_CUDA_ACT_BACK) {
                    double slope = slope_of(p->act, old_pre.value[at_pre]);
                    close_to(t, "d", t->d.value[at], v * slope, error + (1e-6 + 4 * library_error) * fabs(v),
                             i, j, z);
                } else {
                    close_to(t, "d", t->d.value[at], v, error, i, j, z);
                }
                touched[at] = 1;
            }
    for (size_t i = 0; i < t->d.count; i++)
        if (!touched[i])
            assert_true(t->d.value[i] == t->before.value[i]);
    free(touched);
    free(old_pre.value);
}

static model_cuda_product_t product_random(size_t most)
{
    static const model_cuda_type_t in[3] = {MODEL_CUDA_BF16, MODEL_CUDA_BF16, MODEL_CUDA_F32};
    static const model_cuda_type_t out[3] = {MODEL_CUDA_BF16, MODEL_CUDA_F32, MODEL_CUDA_F32};
    static const float alphas[4] = {1, 1, 0.5f, -1.25f}, betas[4] = {0, 0, 1, 0.5f};
    size_t types = tensor_below(3);
    model_cuda_product_t p = {.trans_a = (int)tensor_below(2),
                              .trans_b = (int)tensor_below(2),
                              .M = 1 + tensor_below(most),
                              .N = 1 + tensor_below(most),
                              .K = 1 + tensor_below(most),
                              .batch = 1 + tensor_below(2),
                              .alpha = alphas[tensor_below(4)],
                              .beta = betas[tensor_below(4)],
                              .in = in[types],
                              .out = out[types],
                              .epilogue = (model_cuda_epilogue_t)tensor_below(4),
                              .act = (model_act_t)tensor_below(MODEL_ACTS)};
    static char some; /* product_make puts the device's address in its place */
    if (p.epilogue == MODEL_CUDA_BIAS || (p.epilogue == MODEL_CUDA_ACT && tensor_below(2)))
        p.bias = &some;
    if (p.epilogue == MODEL_CUDA_ACT_BACK || (p.epilogue == MODEL_CUDA_ACT && tensor_below(2)))
        p.pre = &some;
    return p;
}

/* Extents of tiles and near them, multiples of 8 with aligned rows (asynchronous copies) and others. */
static void random_products(void **state)
{
    (void)state;
    tensor_seed = 7;
    for (int i = 0; i < 36; i++) {
        model_cuda_product_t p = product_random(i % 9 == 0 ? 150 : 50);
        size_t pad = tensor_below(3), shift = tensor_below(2);
        if (i % 2 == 0) {
            p.M = (p.M + 7) / 8 * 8, p.N = (p.N + 7) / 8 * 8, p.K = (p.K + 7) / 8 * 8;
            pad *= 8, shift = 0;
        }
        product_t t = product_make(p, pad, shift);
        model_cuda_tile_t tile = i % 3 == 0 ? MODEL_CUDA_TILE_LARGE : MODEL_CUDA_TILE_SMALL;
        assert_cuda(model_cuda_product_launch(&t.p, t.a.device, t.b.device, t.d.device, tile, NULL));
        product_check(&t);
        product_free(&t);
    }
}

static void every_epilogue(void **state)
{
    (void)state;
    static char some;
    tensor_seed = 8;
    for (int act = 0; act < MODEL_ACTS; act++)
        for (int epilogue = MODEL_CUDA_ACT; epilogue <= MODEL_CUDA_ACT_BACK; epilogue++)
            for (int type = 0; type < 2; type++) {
                model_cuda_product_t p = {
                    .M = 24, .N = 19, .K = 9, .batch = 1, .alpha = 1, .act = (model_act_t)act};
                p.in = p.out = type ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
                p.epilogue = (model_cuda_epilogue_t)epilogue;
                p.pre = &some;
                p.bias = epilogue == MODEL_CUDA_ACT ? &some : NULL;
                product_t t = product_make(p, 1, 0);
                assert_cuda(model_cuda_product_launch(&t.p, t.a.device, t.b.device, t.d.device,
                                                      MODEL_CUDA_TILE_SMALL, NULL));
                product_check(&t);
                product_free(&t);
            }
}

/* Twice, in both tiles, with fewer rows and columns, and as one of a batch: the same bits. */
static void bits_depend_on_k_alone(void **state)
{
    (void)state;
    tensor_seed = 9;
    for (int type = 0; type < 2; type++)
        for (int trans = 0; trans < 4; trans += 3) {
            model_cuda_type_t in = type ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
            model_cuda_product_t p = {.trans_a = trans & 1,
                                      .trans_b = trans >> 1,
                                      .M = 70,
                                      .N = 72,
                                      .K = 75,
                                      .batch = 1,
                                      .alpha = 1,
                                      .in = in,
                                      .out = MODEL_CUDA_F32};
            product_t t = product_make(p, 5, 0);
            assert_cuda(model_cuda_product_launch(&t.p, t.a.device, t.b.device, t.d.device,
                                                  MODEL_CUDA_TILE_SMALL, NULL));
            tensor_receive(&t.d);
            double *first = malloc(t.d.count * sizeof(double));
            memcpy(first, t.d.value, t.d.count * sizeof(double));
            for (int way = 0; way < 3; way++) {
                model_cuda_product_t q = t.p;
                q.M = way == 1 ? 5 : q.M;
                q.N = way == 1 ? 9 : q.N;
                if (way == 2) /* the same matrices twice */
                    q.batch = 2, q.step_d = q.N + 5, q.M = 1, q.ldd = q.N + 5;
                for (size_t i = 0; i < t.d.count; i++)
                    t.d.value[i] = 0;
                tensor_send(&t.d);
                assert_cuda(model_cuda_product_launch(
                    &q, t.a.device, t.b.device, t.d.device,
                    way == 0 ? MODEL_CUDA_TILE_LARGE : MODEL_CUDA_TILE_SMALL, NULL));
                tensor_receive(&t.d);
                for (size_t i = 0; i < q.M * q.batch; i++)
                    for (size_t j = 0; j < q.N; j++)
                        assert_true(t.d.value[i * q.ldd + j] == first[(way == 2 ? 0 : i) * q.ldd + j]);
            }
            free(first);
            product_free(&t);
        }
}

static void handle(void **state)
{
    (void)state;
    tensor_seed = 10;
    model_cuda_matmul_t *matmul;
    assert_int_equal(base_settings_set(SET_CUBLASLT, "off", "test"), GYRE_OK);
    assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_OK);
    assert_string_equal(model_cuda_matmul_told(matmul), "own kernels: GYRE_CUBLASLT=off");
    for (int i = 0; i < 4; i++) {
        product_t t = product_make(product_random(40), 1, 0);
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
        product_check(&t);
        product_free(&t);
    }
    /* nothing to add up: beta D */
    product_t t = product_make(
        (model_cuda_product_t){.M = 9, .N = 7, .K = 3, .batch = 1, .alpha = 1, .beta = 0.5f}, 0, 0);
    t.p.K = 0;
    assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
    tensor_receive(&t.d);
    for (size_t i = 0; i < t.d.count; i++)
        assert_true(t.d.value[i] == 0.5 * t.before.value[i]);
    /* invalid arguments are refused, not used */
    t.p.K = 3;
    t.p.ldd = 6;
    assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL),
                     GYRE_ERR_INVALID);
    t.p.ldd = 7;
    t.p.epilogue = MODEL_CUDA_ACT_BACK;
    assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL),
                     GYRE_ERR_INVALID);
    product_free(&t);
    model_cuda_matmul_destroy(matmul);
    model_cuda_matmul_destroy(NULL);
    /* a library that is asked for and not there */
    assert_int_equal(base_settings_set(SET_CUBLASLT, "/nowhere/libcublasLt.so", "test"), GYRE_OK);
    assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_ERR_UNSUPPORTED);
    assert_int_equal(base_settings_set(SET_CUBLASLT, NULL, NULL), GYRE_OK);
}

/* In the order that the header promises: exactly. */
static void column_sums(void **state)
{
    (void)state;
    enum { LANES = 32 };
    static const size_t rows[] = {1, 63, 64, 65, 200, 64 * (LANES + 1) + 1};
    model_cuda_matmul_t *matmul;
    tensor_seed = 11;
    assert_int_equal(base_settings_set(SET_CUBLASLT, "off", "test"), GYRE_OK);
    assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_OK);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (int type = 0; type < 2; type++) {
            size_t M = rows[r], N = 130 + r, ld = N + 3, step = M * ld + 1;
            tensor_t d = tensor_random(type ? MODEL_CUDA_BF16 : MODEL_CUDA_F32, 2 * step, 1, (size_t)type);
            tensor_t sum = tensor_random(MODEL_CUDA_F32, 2 * N, 1, 0);
            assert_int_equal(model_cuda_column_sum(matmul, (float *)(void *)sum.device, d.device, d.type, M,
                                                   N, ld, 2, step, NULL),
                             GYRE_OK);
            tensor_receive(&sum);
            for (size_t z = 0; z < 2; z++)
                for (size_t j = 0; j < N; j++) {
                    float lane[LANES] = {0};
                    for (size_t first = 0; first < M; first += 64) {
                        float block = 0;
                        for (size_t i = first; i < M && i < first + 64; i++)
                            block += (float)d.value[z * step + i * ld + j];
                        lane[first / 64 % LANES] += block;
                    }
                    for (size_t n = 1; n < LANES; n *= 2)
                        for (size_t i = 0; i < LANES; i += 2 * n)
                            lane[i] += lane[i + n];
                    assert_true(sum.value[z * N + j] == (double)lane[0]);
                }
            tensor_free(&d);
            tensor_free(&sum);
        }
    model_cuda_matmul_destroy(matmul);
    assert_int_equal(base_settings_set(SET_CUBLASLT, NULL, NULL), GYRE_OK);
}

/* ---- cuBLASLt ------------------------------------------------------------------------------------------ */

/* All epilogues through a handle, in batches that the algorithm takes as one and (three) not. */
static void through(model_cuda_matmul_t *matmul, int rounds)
{
    static char some;
    for (int i = 0; i < rounds; i++) {
        model_cuda_product_t p = product_random(30);
        p.epilogue = (model_cuda_epilogue_t)(i % 4);
        p.bias = p.epilogue == MODEL_CUDA_BIAS || (p.epilogue == MODEL_CUDA_ACT && i / 4 % 2) ? &some : NULL;
        p.pre =
            p.epilogue == MODEL_CUDA_ACT_BACK || (p.epilogue == MODEL_CUDA_ACT && i / 8 % 2) ? &some : NULL;
        p.act = i % 3 ? MODEL_ACT_GELU_TANH : p.act;
        p.batch = 1 + (size_t)i % 3;
        product_t t = product_make(p, tensor_below(2), 0);
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
        product_check(&t);
        product_free(&t);
    }
}

/* The bits of a batch of two are those of its products alone. */
static void batch_bits(model_cuda_matmul_t *matmul)
{
    product_t t = product_make(
        (model_cuda_product_t){
            .M = 64, .N = 96, .K = 256, .batch = 2, .alpha = 1, .in = MODEL_CUDA_BF16, .out = MODEL_CUDA_F32},
        0, 0);
    assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
    tensor_receive(&t.d);
    double *both = malloc(t.d.count * sizeof(*both));
    memcpy(both, t.d.value, t.d.count * sizeof(*both));
    for (size_t z = 0; z < 2; z++) {
        model_cuda_product_t one = t.p;
        one.batch = 1;
        assert_int_equal(model_cuda_matmul(matmul, &one, t.a.device + z * t.p.step_a * 2,
                                           t.b.device + z * t.p.step_b * 2, t.d.device + z * t.p.step_d * 4,
                                           NULL),
                         GYRE_OK);
    }
    tensor_receive(&t.d);
    assert_memory_equal(both, t.d.value, t.d.count * sizeof(*both));
    free(both);
    product_free(&t);
}

static void the_library(void **state)
{
    (void)state;
    char path[4096];
    model_cuda_matmul_t *matmul;
    tensor_seed = 12;
    if (!gpu_is_emulated()) { /* the real one, where there is one */
        assert_int_equal(base_settings_set(SET_CUBLASLT, "auto", "test"), GYRE_OK);
        assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_OK);
        printf("%s\n", model_cuda_matmul_told(matmul));
        library_error = 0x1p-10;
        through(matmul, 48);
        library_error = 0;
        batch_bits(matmul);
        model_cuda_matmul_destroy(matmul);
        assert_int_equal(base_settings_set(SET_CUBLASLT, NULL, NULL), GYRE_OK);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);
    assert_true(length > 0);
    path[length] = 0;
    strcpy(strrchr(path, '/'), "/fake_cublaslt.so");
    if (access(path, R_OK) != 0) {
        printf("no stand-in for cuBLASLt: the toolkit has not its header\n");
        skip();
    }
    assert_int_equal(base_settings_set(SET_CUBLASLT, path, "test"), GYRE_OK);
    assert_int_equal(model_cuda_matmul_create(&matmul), GYRE_OK);
    assert_int_equal(strncmp(model_cuda_matmul_told(matmul), "cuBLASLt 13.0.1 (", 17), 0);
    void *fake = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(fake);
    int *asked = dlsym(fake, "fake_asked"), *products = dlsym(fake, "fake_products");
    assert_true(asked && products);
    through(matmul, 48);
    batch_bits(matmul);

    /* A shape is asked for once, whatever the batch; a batch of three goes one by one; K of 13 (no algorithm)
     * and 14 (one that is refused) are our own kernels'. */
    model_cuda_product_t p = {.M = 16, .N = 16, .K = 16, .batch = 3, .alpha = 1};
    product_t t = product_make(p, 0, 0);
    *asked = *products = 0;
    for (t.p.batch = 1; t.p.batch <= 3; t.p.batch++) {
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
        assert_int_equal(model_cuda_matmul_by(matmul),
                         t.p.batch == 3 ? MODEL_CUDA_MATRIX_BY_MATRIX : MODEL_CUDA_BY_LIBRARY);
    }
    assert_int_equal(*asked, 1);
    assert_int_equal(*products, 5);
    /* Nor has a matrix alone another algorithm where the next of its batch begins less aligned. */
    t.p.step_b -= 1;
    for (t.p.batch = 1; t.p.batch <= 2; t.p.batch++)
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
    assert_int_equal(*asked, 2);
    product_free(&t);
    *asked = 1;
    *products = 5;
    p.batch = 1;
    for (p.K = 13; p.K <= 14; p.K++) {
        t = product_make(p, 0, 0);
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
        assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
        assert_int_equal(model_cuda_matmul_by(matmul), MODEL_CUDA_BY_US);
        product_check(&t);
        product_free(&t);
    }
    assert_int_equal(*asked, 3);
    assert_int_equal(*products, 6);
    /* fp32's activation is Gyre's kernel */
    p = (model_cuda_product_t){.batch = 1,
                               .M = 16,
                               .N = 16,
                               .K = 16,
                               .alpha = 1,
                               .epilogue = MODEL_CUDA_ACT,
                               .act = MODEL_ACT_GELU_TANH};
    t = product_make(p, 0, 0);
    assert_int_equal(model_cuda_matmul(matmul, &t.p, t.a.device, t.b.device, t.d.device, NULL), GYRE_OK);
    assert_int_equal(model_cuda_matmul_by(matmul), MODEL_CUDA_ACTIVATED_BY_US);
    product_check(&t);
    product_free(&t);
    model_cuda_matmul_destroy(matmul);
    dlclose(fake);
    assert_int_equal(base_settings_set(SET_CUBLASLT, NULL, NULL), GYRE_OK);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_products),
                                       cmocka_unit_test(every_epilogue),
                                       cmocka_unit_test(bits_depend_on_k_alone),
                                       cmocka_unit_test(handle),
                                       cmocka_unit_test(column_sums),
                                       cmocka_unit_test(the_library)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
