/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/gpu_kernels.c: the speed of the kernels of training on this GPU: device copies, products
 * by cuBLASLt and by Gyre's own kernels, attention forward and backward as a share of the measured matrix
 * rate. A part of gpu-check.
 *
 * usage: gpu_kernels [--json FILE] [--device N] [--tiny] Each figure is the median of 7 rounds, with the
 * least and the most of them. A round is as many successive calls as take 50 ms, timed by the device's own
 * events. --tiny: one short round of tiny problems, to see that the program works (the emulator).
 * Floating-point operations of products are counted as in model/network/stage/flops.h, 2 M N K. Attention
 * counts only pairs that a causal mask lets see each other, T (T + 1) / 2: two products of them forward and
 * five backward (Dao 2023), without what is computed again. A row that fails is a line "failed: ROW; why",
 * and the others go on, unless the device takes no more work. Exit status: 0; 1 a row failed; 2 there is no
 * GPU. Goals that are missed are printed, and are not a failure. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/text/json.h"
#include "base/settings/settings.h"
#include "model/gpu/attention/attention.h"
#include "model/gpu/products/matmul.h"
#include "tests/gpu/rows.h"

enum { ROUNDS = 7 };

typedef struct {
    int tiny;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    json_t *rows;
} bench_t;

/* ---- timing -------------------------------------------------------------------------------------------- */

typedef void work_t(bench_t *bench, void *of);

static double seconds_of(bench_t *bench, work_t *work, void *of, int calls)
{
    float ms = 0;
    CUDA(cudaEventRecord(bench->begin, bench->stream));
    for (int i = 0; i < calls; i++)
        work(bench, of);
    CUDA(cudaEventRecord(bench->end, bench->stream));
    CUDA(cudaEventSynchronize(bench->end));
    CUDA(cudaEventElapsedTime(&ms, bench->begin, bench->end));
    return (double)ms / 1e3;
}

/* Seconds of one call. */
static spread_t time_of(bench_t *bench, work_t *work, void *of)
{
    double rounds[ROUNDS];
    double once = seconds_of(bench, work, of, 1); /* the first call loads code and chooses algorithms */
    if (bench->tiny)
        return (spread_t){once, once, once};
    once = seconds_of(bench, work, of, 3) / 3;
    int calls = once > 0.05 ? 1 : (int)(0.05 / (once > 1e-6 ? once : 1e-6)) + 1;
    for (int i = 0; i < ROUNDS; i++)
        rounds[i] = seconds_of(bench, work, of, calls) / calls;
    return spread_of(rounds, ROUNDS);
}

/* One line of the result, of `work` units in each call; share_of 0: of nothing. goal: of the share, 0: none.
 * Returns the rate. */
static double tell(bench_t *bench, const char *name, spread_t seconds, double work, const char *unit,
                   double share_of, double goal)
{
    const double rate = work / seconds.median;
    json_t *told =
        json_pack("{s:s, s:f, s:f, s:s, s:f, s:f}", "name", name, "us", seconds.median * 1e6, "rate", rate,
                  "unit", unit, "least", work / seconds.most, "most", work / seconds.least);
    printf("%-58s %10.1f us %9.2f %s [%.2f to %.2f]", name, seconds.median * 1e6, rate, unit,
           work / seconds.most, work / seconds.least);
    if (share_of > 0) {
        double share = rate / share_of;
        printf("  %3.0f %% of the matrix rate", 100 * share);
        json_object_set_new(told, "share", json_real(share));
        if (goal > 0) {
            printf(", goal %.0f %%: %s", 100 * goal,
                   bench->tiny     ? "too small to say"
                   : share >= goal ? "met"
                                   : "missed");
            json_object_set_new(told, "goal", json_real(goal));
        }
    }
    printf("\n");
    fflush(stdout);
    json_array_append_new(bench->rows, told);
    return rate;
}

/* ---- what is timed ------------------------------------------------------------------------------------- */

/* Numbers in (-1, 1), not zeros: power, and with it the clock, depends on the bits that change. A megabyte
 * of them, over and over. */
static void *device_numbers(model_cuda_type_t type, size_t count)
{
    static uint32_t block[1 << 18];
    size_t bytes = count * (type == MODEL_CUDA_BF16 ? 2 : 4);
    char *memory = device_memory(bytes);
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof(block) / sizeof(block[0]); i++) {
        uint32_t bits[2] = {0, 0};
        for (int half = 0; half < 2; half++) {
            seed = seed * 1664525 + 1013904223;
            float x = (float)(seed >> 8) / 8388608 - 1;
            memcpy(&bits[half], &x, sizeof(x));
        }
        block[i] = type == MODEL_CUDA_BF16 ? (bits[0] >> 16 | (bits[1] & 0xffff0000u)) : bits[0];
    }
    for (size_t at = 0; at < bytes; at += sizeof(block))
        CUDA(cudaMemcpy(memory + at, block, bytes - at < sizeof(block) ? bytes - at : sizeof(block),
                        cudaMemcpyHostToDevice));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy)); /* the bytes may be on their way, and no stream waits */
    return memory;
}

typedef struct {
    void *to, *from;
    size_t bytes;
} copy_t;

static void copy(bench_t *bench, void *of)
{
    const copy_t *c = of;
    CUDA(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, bench->stream));
}

static void copies(bench_t *bench)
{
    snprintf(row.name, sizeof(row.name), "copy on the device");
    copy_t c = {.bytes = bench->tiny ? 1 << 16 : (size_t)1 << 30};
    c.to = device_memory(c.bytes);
    c.from = device_memory(c.bytes);
    CUDA(cudaMemset(c.from, 1, c.bytes));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    tell(bench, "copy on the device, read and written", time_of(bench, copy, &c), 2 * (double)c.bytes / 1e9,
         "GB/s", 0, 0);
}

typedef struct {
    model_cuda_matmul_t *matmul;
    model_cuda_product_t p;
    void *A, *B, *D, *bias, *pre;
} product_t;

static void product(bench_t *bench, void *of)
{
    const product_t *t = of;
    ours(model_cuda_matmul(t->matmul, &t->p, t->A, t->B, t->D, bench->stream), "model_cuda_matmul");
}

/* Printed with a share of `share_of`. *result: TFLOP/s, or as it was if the row fails; NULL: not wanted. */
static void product_row(bench_t *bench, model_cuda_matmul_t *matmul, const char *by, const char *what,
                        model_cuda_product_t p, double share_of, double *result)
{
    static const char *const way[] = {[MODEL_CUDA_BY_US] = "",
                                      [MODEL_CUDA_BY_LIBRARY] = ", in one call",
                                      [MODEL_CUDA_MATRIX_BY_MATRIX] = ", matrix by matrix",
                                      [MODEL_CUDA_ACTIVATED_BY_US] = ", our activation"};
    char *name = row.name;
    const char *type = p.in == MODEL_CUDA_F32 ? "fp32" : p.out == MODEL_CUDA_BF16 ? "bf16" : "bf16 to fp32";
    if (bench->tiny)
        p.M = p.M / 64 + 32, p.N = p.N / 64 + 32, p.K = p.K / 64 + 32;
    snprintf(name, sizeof(row.name), "%s, %s: %s [%zu,%zu] x [%zu,%zu]", by, type, what, p.M, p.K, p.K, p.N);
    p.lda = p.trans_a ? p.M : p.K;
    p.ldb = p.trans_b ? p.K : p.N;
    p.ldd = p.ldpre = p.N;
    p.batch = p.batch ? p.batch : 1;
    p.step_a = p.M * p.K;
    p.step_b = p.K * p.N;
    p.step_d = p.step_pre = p.M * p.N;
    p.step_bias = p.N;
    p.alpha = 1;
    product_t t = {.matmul = matmul, .p = p};
    t.A = device_numbers(p.in, p.batch * p.M * p.K);
    t.B = device_numbers(p.in, p.batch * p.K * p.N);
    t.D = device_numbers(p.out, p.batch * p.M * p.N);
    if (p.epilogue == MODEL_CUDA_ACT)
        t.p.bias = t.bias = device_numbers(p.out, p.batch * p.N);
    if (p.epilogue != MODEL_CUDA_PLAIN)
        t.p.pre = t.pre = device_numbers(p.out, p.batch * p.M * p.N);
    const spread_t seconds = time_of(bench, product, &t);
    size_t length = strlen(name);
    snprintf(name + length, sizeof(row.name) - length, "%s", way[model_cuda_matmul_by(matmul)]);
    double rate =
        tell(bench, name, seconds, 2 * (double)p.batch * (double)p.M * (double)p.N * (double)p.K / 1e12,
             "TFLOP/s", share_of, 0);
    if (result)
        *result = rate;
}

/* The same as a row of its own. */
static void products(bench_t *bench, model_cuda_matmul_t *matmul, const char *by, const char *what,
                     model_cuda_product_t p, double share_of, double *told)
{
    ROW(product_row(bench, matmul, by, what, p, share_of, told));
}

/* The largest bf16 rate of one backend, then the products of a layer of GPT-2 124M with 8 x 1024 tokens;
 * fp32 at last. */
static double products_by(bench_t *bench, model_cuda_matmul_t *matmul, const char *by, double share_of)
{
    const model_cuda_type_t b = MODEL_CUDA_BF16, f = MODEL_CUDA_F32;
    double rate = 0;
    products(bench, matmul, by, "square",
             (model_cuda_product_t){.M = 8192, .N = 8192, .K = 8192, .in = b, .out = b}, share_of, &rate);
    double of = share_of > 0 ? share_of : rate;
    products(bench, matmul, by, "MLP up, bias, GELU",
             (model_cuda_product_t){.M = 8192,
                                    .N = 3072,
                                    .K = 768,
                                    .in = b,
                                    .out = b,
                                    .epilogue = MODEL_CUDA_ACT,
                                    .act = MODEL_ACT_GELU_TANH},
             of, NULL);
    products(bench, matmul, by, "MLP up, bias, GELU, 4 leaves",
             (model_cuda_product_t){.batch = 4,
                                    .M = 8192,
                                    .N = 768,
                                    .K = 768,
                                    .in = b,
                                    .out = b,
                                    .epilogue = MODEL_CUDA_ACT,
                                    .act = MODEL_ACT_GELU_TANH},
             of, NULL);
    products(bench, matmul, by, "MLP down, back through GELU, 4 leaves",
             (model_cuda_product_t){.batch = 4,
                                    .trans_b = 1,
                                    .M = 8192,
                                    .N = 768,
                                    .K = 768,
                                    .in = b,
                                    .out = b,
                                    .epilogue = MODEL_CUDA_ACT_BACK,
                                    .act = MODEL_ACT_GELU_TANH},
             of, NULL);
    products(bench, matmul, by, "MLP up, back to its input",
             (model_cuda_product_t){.trans_b = 1, .M = 8192, .N = 768, .K = 3072, .in = b, .out = b}, of,
             NULL);
    products(bench, matmul, by, "MLP up, weights' gradient",
             (model_cuda_product_t){.trans_a = 1, .M = 768, .N = 3072, .K = 8192, .in = b, .out = f}, of,
             NULL);
    products(
        bench, matmul, by, "MLP up, weights' gradient, 4 pieces",
        (model_cuda_product_t){.batch = 4, .trans_a = 1, .M = 768, .N = 3072, .K = 2048, .in = b, .out = f},
        of, NULL);
    products(bench, matmul, by, "logits",
             (model_cuda_product_t){.trans_b = 1, .M = 8192, .N = 50304, .K = 768, .in = b, .out = b}, of,
             NULL);
    products(bench, matmul, by, "square",
             (model_cuda_product_t){.M = 4096, .N = 4096, .K = 4096, .in = f, .out = f}, 0, NULL);
    return rate;
}

static void attend(bench_t *bench, void *of)
{
    ours(model_cuda_attention(of, bench->stream), "model_cuda_attention");
}

static void attend_back(bench_t *bench, void *of)
{
    ours(model_cuda_attention_backward(of, bench->stream), "model_cuda_attention_backward");
}

/* The output and the gradients, which lie one after another, on the host. */
static uint16_t *results_of(const model_cuda_attention_t *a, size_t outputs, size_t gradients)
{
    uint16_t *all = malloc((outputs + gradients) * sizeof(*all));
    if (!all)
        failed("results_of", "out of memory");
    CUDA(cudaMemcpy(all, a->o.data, outputs * sizeof(*all), cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(all + outputs, a->d_q.data, gradients * sizeof(*all), cudaMemcpyDeviceToHost));
    return all;
}

static double of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

/* The kernels by wgmma and by mma.sync differ in the order of sums, and each rounds a result to bf16: by a
 * part of 2^-9 of it at most, often not at all. A fragment or a descriptor that is wrong changes all of it.
 * Frees the results. */
static void agree(uint16_t *results[2], size_t outputs, size_t gradients)
{
    double apart[2] = {0, 0}, size[2] = {0, 0};
    for (size_t i = 0; i < outputs + gradients; i++) {
        double x = of_bf16(results[0][i]), y = of_bf16(results[1][i]);
        apart[i >= outputs] += (x - y) * (x - y);
        size[i >= outputs] += y * y;
    }
    free(results[0]);
    free(results[1]);
    const double forward = sqrt(apart[0] / size[0]), backward = sqrt(apart[1] / size[1]);
    printf("wgmma and mma.sync differ by %.2g of the output, %.2g of the gradients\n", forward, backward);
    snprintf(row.name, sizeof(row.name), "attention by wgmma");
    if (!(forward < 0x1p-6) || !(backward < 0x1p-6)) /* not a number, too */
        failed("results", "they differ by more than 1/64: GYRE_WGMMA=off has those of mma.sync");
}

static void attention_rows(bench_t *bench, model_cuda_type_t type, size_t batch, size_t heads,
                           size_t kv_heads, size_t T, size_t D, double share_of, int goals)
{
    snprintf(row.name, sizeof(row.name), "attention: %zu x %zu heads of %zu, T %zu", batch, heads, D, T);
    if (bench->tiny)
        T = T / 16, batch = 1, heads = heads / kv_heads, kv_heads = 1;
    size_t width = (heads + 2 * kv_heads) * D, element = type == MODEL_CUDA_BF16 ? 2 : 4, rows = batch * T;
    char *qkv = device_numbers(type, rows * width), *d_qkv = device_memory(rows * width * element);
    model_cuda_attention_t a = {.type = type,
                                .batch = batch,
                                .leaves = 1,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .T = T,
                                .head_dim = D,
                                .scale = 1 / sqrtf((float)D),
                                .q = {.data = qkv, .row = width, .sequence = T * width},
                                .o = {.row = heads * D, .sequence = T * heads * D}};
    a.k = a.v = a.d_q = a.d_k = a.d_v = a.q;
    a.k.data = qkv + heads * D * element;
    a.v.data = qkv + (heads + kv_heads) * D * element;
    a.d_q.data = d_qkv;
    a.d_k.data = d_qkv + heads * D * element;
    a.d_v.data = d_qkv + (heads + kv_heads) * D * element;
    a.d_o = a.o;
    a.o.data = device_memory(rows * heads * D * element);
    a.d_o.data = device_numbers(type, rows * heads * D);
    a.lse = device_memory(rows * heads * sizeof(float));
    a.delta = device_memory(rows * heads * sizeof(float));
    double product = (double)batch * (double)heads * (double)T * ((double)T + 1) *
                     (double)D; /* one of the products, in operations */
    const char *types = type == MODEL_CUDA_BF16 ? "bf16" : "fp32", *by = model_cuda_attention_by(type, D);
    const int two = strcmp(by, "wgmma") == 0; /* kernels: those of GYRE_WGMMA=auto, and of off */
    uint16_t *results[2] = {NULL, NULL};
    for (int off = 0; off <= two; off++) {
        ours(base_settings_set(SET_WGMMA, off ? "off" : NULL, "gpu_kernels"), "GYRE_WGMMA");
        for (int back = 0; back < 2; back++) {
            snprintf(row.name, sizeof(row.name), "attention %s, %s, %s: %zu x %zu (%zu) heads of %zu, T %zu",
                     back ? "backward" : "forward", types, model_cuda_attention_by(type, D), batch, heads,
                     kv_heads, D, T);
            const spread_t seconds = time_of(bench, back ? attend_back : attend, &a);
            tell(bench, row.name, seconds, (back ? 5 : 2) * product / 1e12, "TFLOP/s", share_of,
                 !goals || off ? 0
                 : back        ? 0.4
                               : 0.5);
        }
        if (two)
            results[off] = results_of(&a, rows * heads * D, rows * width);
    }
    ours(base_settings_set(SET_WGMMA, NULL, NULL), "GYRE_WGMMA");
    if (two)
        agree(results, rows * heads * D, rows * width);
}

static void attention(bench_t *bench, model_cuda_type_t type, size_t batch, size_t heads, size_t kv_heads,
                      size_t T, size_t D, double share_of, int goals)
{
    ROW(attention_rows(bench, type, batch, heads, kv_heads, T, D, share_of, goals));
}

/* ---- the program --------------------------------------------------------------------------------------- */

static void backend(const char *which, model_cuda_matmul_t **matmul)
{
    snprintf(row.name, sizeof(row.name), "products by GYRE_CUBLASLT=%s", which);
    ours(base_settings_set(SET_CUBLASLT, which, "gpu_kernels"), "GYRE_CUBLASLT");
    ours(model_cuda_matmul_create(matmul), "model_cuda_matmul_create");
}

static void everything(bench_t *bench, json_t *result)
{
    const char *wish = base_setting_string(SET_CUBLASLT);
    model_cuda_matmul_t *library = NULL, *own = NULL;
    ROW(backend(wish, &library)); /* a library that is named and is not there fails */
    ROW(backend("off", &own));
    if (!own)
        return;
    const char *by = model_cuda_matmul_told(library ? library : own);
    const int has_library = strncmp(by, "cuBLASLt", 8) == 0;
    printf("products: %s\n", by);
    json_object_set_new(result, "products", json_string(by));

    ROW(copies(bench));
    double rate = has_library ? products_by(bench, library, "cuBLASLt", 0) : 0;
    double ours_rate = products_by(bench, own, "own", rate);
    double matrix = rate > ours_rate ? rate : ours_rate; /* the measured matrix rate */
    json_object_set_new(result, "matrix_tflops", json_real(matrix));
    attention(bench, MODEL_CUDA_BF16, 8, 16, 16, 2048, 128, matrix, 1);
    attention(bench, MODEL_CUDA_BF16, 8, 32, 8, 2048, 128, matrix, 0);
    attention(bench, MODEL_CUDA_BF16, 8, 12, 12, 1024, 64, matrix, 0);
    attention(bench, MODEL_CUDA_F32, 8, 12, 12, 1024, 64, 0, 0);
    model_cuda_matmul_destroy(library);
    model_cuda_matmul_destroy(own);
}

static int usage(void)
{
    fprintf(stderr, "usage: gpu_kernels [--json FILE] [--device N] [--tiny]\n");
    return 1;
}

int main(int argc, char **argv)
{
    bench_t bench = {.rows = json_array()};
    const char *json = NULL;
    char name[256] = "", *end;
    long device = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            bench.tiny = 1;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = strtol(argv[++i], &end, 10);
            if (*end || end == argv[i] || device < 0)
                return usage();
        } else {
            return usage();
        }
    }
    if (base_device_count(BASE_CUDA) == 0) {
        fprintf(stderr, "gpu_kernels: %s\n", base_device_why_not(BASE_CUDA));
        return 2;
    }
    if (device >= base_device_count(BASE_CUDA)) {
        fprintf(stderr, "gpu_kernels: there are %d GPUs, counted from 0, and no number %ld\n",
                base_device_count(BASE_CUDA), device);
        return 2;
    }
    ours(base_device_name((base_device_t){BASE_CUDA, (int)device}, name, sizeof(name)), "device");
    CUDA(cudaSetDevice((int)device));
    CUDA(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&bench.begin));
    CUDA(cudaEventCreate(&bench.end));
    json_t *result = json_pack("{s:s, s:b, s:O}", "device", name, "tiny", bench.tiny, "rows", bench.rows);
    printf("device: %s\n", name);
    everything(&bench, result);
    CUDA(cudaEventDestroy(bench.begin));
    CUDA(cudaEventDestroy(bench.end));
    CUDA(cudaStreamDestroy(bench.stream));
    if (json)
        ours(base_json_write(json, result), json);
    json_decref(result);
    json_decref(bench.rows);
    return row.failures != 0;
}
