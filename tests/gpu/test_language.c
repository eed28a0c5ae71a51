/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_language.c: every word of CUDA and of base/device/kernel.h that Gyre's kernels use means
 * what they think it means: on a GPU, and in the emulator, which is thereby shown to speak the same
 * language. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/memory.h"
#include "tests/gpu/language.h"

static cudaStream_t stream;

static void a_plain_loop(void **state)
{
    (void)state;
    enum { N = 10007 };
    static float x[N], y[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 97) * 0.37f;
        y[i] = (float)i;
    }
    float *dx = to_device(x, sizeof(x)), *dy = to_device(y, sizeof(y));
    assert_cuda(language_axpy(N, 1.7f, dx, dy, stream));
    from_device(got, dy, sizeof(got), stream);
    for (int i = 0; i < N; i++) {
        volatile float product = 1.7f * x[i]; /* not contracted, here and there */
        assert_true(got[i] == y[i] + product);
    }
    assert_cuda(cudaFree(dx));
}

static void barriers_and_shuffles(void **state)
{
    (void)state;
    enum { BLOCKS = 5 };
    static int x[BLOCKS * 1024], sums[BLOCKS];
    for (int i = 0; i < BLOCKS * 1024; i++)
        x[i] = i * 31 % 1009 - 400;
    int *dx = to_device(x, sizeof(x)), *out = to_device(sums, sizeof(sums));
    assert_cuda(language_block_sums(BLOCKS, dx, out, stream));
    from_device(sums, out, sizeof(sums), stream);
    for (int b = 0; b < BLOCKS; b++) {
        int sum = 0;
        for (int i = 0; i < 1024; i++)
            sum += x[1024 * b + i];
        assert_int_equal(sums[b], sum);
    }
    assert_cuda(cudaFree(dx));
}

static uint16_t small_bf16(int value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16); /* exact for small integers */
}

static void matrix_products(void **state)
{
    (void)state;
    int left[16][16], right[16][8];
    uint16_t a[16][16], b[16][8], bt[8][16];
    float d[16][8];
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            a[i][k] = small_bf16(left[i][k] = (i * 7 + k * 3) % 23 - 11);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            b[k][j] = bt[j][k] = small_bf16(right[k][j] = (k * 5 + j * 11) % 19 - 9);
    for (int trans = 0; trans < 2; trans++) {
        uint16_t *da = to_device(a, sizeof(a)), *db = to_device(trans ? (void *)b : (void *)bt, sizeof(b));
        float *dd = to_device(d, sizeof(d));
        assert_cuda((trans ? language_product_trans : language_product)(da, db, dd, stream));
        from_device(d, dd, sizeof(d), stream);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                int sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += left[i][k] * right[k][j];
                assert_true(d[i][j] == (float)sum);
            }
        assert_cuda(cudaFree(da));
        assert_cuda(cudaFree(db));
    }
}

static int number_at(int seed, int line, int column)
{
    return (line * (seed + 4) + column * (seed + 1) + line * column % 7) % 23 - 11;
}

static void fill_numbers(uint16_t *x, int lines, int seed)
{
    for (int i = 0; i < lines * 128; i++)
        x[i] = small_bf16(number_at(seed, i / 128, i % 128));
}

/* Tiles and descriptors of base/device/wgmma.h, on a GPU that has these instructions. */
static void products_of_warpgroups(void **state)
{
    (void)state;
    static uint16_t a[128 * 128], b[64 * 128], c[64 * 128];
    static float d[128 * 256];
    int major = 0, minor = 0;
    assert_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    assert_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (major != 9 || minor != 0)
        skip();
    fill_numbers(a, 128, 1);
    fill_numbers(b, 64, 2);
    fill_numbers(c, 64, 3);
    uint16_t *da = to_device(a, sizeof(a)), *db = to_device(b, sizeof(b)), *dc = to_device(c, sizeof(c));
    float *dd = to_device(d, sizeof(d));
    cudaError_t rc = language_wgmma(da, db, dc, dd, stream);
    if (rc == cudaErrorNoKernelImageForDevice) {
        assert_cuda(cudaFree(dd));
    } else {
        assert_cuda(rc);
        from_device(d, dd, sizeof(d), stream);
        for (int i = 0; i < 128; i++)
            for (int j = 0; j < 128; j++) {
                int across = 0, along = 0;
                for (int k = 0; k < 128; k++) {
                    across += number_at(1, i, k) * number_at(2, j % 64, k);
                    along += k < 64 ? number_at(1, i, k) * number_at(3, k, j) : 0;
                }
                assert_true(d[i * 64 + j % 64] == (float)across);
                if (j < 64)
                    assert_true(d[(128 + i) * 64 + j] == (float)along);
                assert_true(d[2 * 128 * 64 + i * 128 + j] == (float)along);
            }
    }
    assert_cuda(cudaFree(da));
    assert_cuda(cudaFree(db));
    assert_cuda(cudaFree(dc));
}

static void blocks_that_wait_for_one_another(void **state)
{
    (void)state;
    enum { BLOCKS = 24 };
    uint32_t zero[BLOCKS] = {0}, order[BLOCKS];
    uint32_t *flags = to_device(zero, sizeof(zero)), *counter = to_device(zero, 4),
             *out = to_device(zero, sizeof(zero));
    assert_cuda(language_chain(BLOCKS, flags, counter, out, stream));
    from_device(order, out, sizeof(order), stream);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(order[i], BLOCKS - 1 - i);
    assert_cuda(cudaFree(flags));
    assert_cuda(cudaFree(counter));
}

static void votes_and_lanes(void **state)
{
    (void)state;
    enum { N = 192 };
    uint32_t x[N], out[4 * N];
    for (uint32_t i = 0; i < N; i++)
        x[i] = i * 2654435761u;
    uint32_t *dx = to_device(x, sizeof(x)), *to = to_device(out, sizeof(out));
    assert_cuda(language_votes(N, sizeof(x), dx, to, stream));
    from_device(out, to, sizeof(out), stream);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t ballot = 0;
        for (uint32_t lane = 0; lane < 32; lane++)
            ballot |= (uint32_t)((i / 32 * 32 + lane) % 3 == 0) << lane;
        assert_int_equal(out[4 * i], ballot);
        assert_int_equal(out[4 * i + 1], x[i ^ 5]);
        assert_int_equal(out[4 * i + 2], x[N - 1 - i]);
        assert_int_equal(out[4 * i + 3], (N + 6) / 7);
    }
    assert_cuda(cudaFree(dx));
}

static void words_with_flags(void **state)
{
    (void)state;
    enum { N = 3000 };
    static uint32_t x[2 * N], out[2 * N];
    static uint64_t lines[2 * N];
    for (uint32_t i = 0; i < 2 * N; i++)
        x[i] = i * 2654435761u;
    uint32_t *dx = to_device(x, sizeof(x)), *to = to_device(out, sizeof(out));
    uint64_t *between = to_device(lines, sizeof(lines));
    assert_cuda(language_lines(N, between, dx, to, stream));
    from_device(out, to, sizeof(out), stream);
    assert_memory_equal(out, x, sizeof(x));
    assert_cuda(cudaFree(between));
    assert_cuda(cudaFree(dx));
}

static void much_shared_memory(void **state)
{
    (void)state;
    enum { N = 24576 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    float *dx = to_device(x, sizeof(x)), *dy = to_device(y, sizeof(y));
    assert_cuda(language_reverse(dx, dy, stream));
    from_device(y, dy, sizeof(y), stream);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == x[N - 1 - i]);
    assert_cuda(cudaFree(dx));
}

static void narrow_types(void **state)
{
    (void)state;
    const float x[] = {0.0f,        -0.0f,    1.0f,     1.00390625f, 1.01171875f,
                       3.14159274f, 65504.0f, 65520.0f, 1e-8f,       INFINITY};
    const float bf16[] = {0.0f,     -0.0f,           1.0f,    1.0f, 1.015625f, 3.140625f, 65536.0f,
                          65536.0f, 1.00117177e-08f, INFINITY};
    const float fp16[] = {0.0f,      -0.0f,    1.0f,     1.00390625f, 1.01171875f,
                          3.140625f, 65504.0f, INFINITY, 0.0f,        INFINITY};
    enum { N = sizeof(x) / sizeof(x[0]) };
    float y[2 * N];
    float *dx = to_device(x, sizeof(x)), *dy = to_device(y, sizeof(y));
    assert_cuda(language_round(N, dx, dy, stream));
    from_device(y, dy, sizeof(y), stream);
    for (int i = 0; i < N; i++) {
        assert_memory_equal(&y[2 * i], &bf16[i], sizeof(float));
        assert_memory_equal(&y[2 * i + 1], &fp16[i], sizeof(float));
    }
    assert_cuda(cudaFree(dx));
}

/* What the test does with `how` in a process of its own, which that ends, it says as `words`. */
static void it_ends(const char *how, const char *const words[2])
{
    int end[2], status = 0;
    char text[16384] = "";
    if (!gpu_is_emulated())
        skip();
    assert_int_equal(pipe(end), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(end[1], 2);
        setenv("EMULATED_GUARD", "1", 1);
        setenv("UCX_HANDLE_ERRORS", "none", 1); /* it has a handler of its own, which may ask a debugger in */
        execl("/proc/self/exe", "test_language", how, (char *)NULL);
        _exit(99);
    }
    close(end[1]);
    for (ssize_t n, at = 0; (n = read(end[0], text + at, sizeof(text) - 1 - (size_t)at)) > 0;)
        at += n;
    close(end[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_non_null(strstr(text, words[0]));
    assert_non_null(strstr(text, words[1]));
}

static void beyond_an_allocation(void **state)
{
    (void)state;
    static const char *const words[] = {"kernel axpy", "of an allocation of 1000"};
    it_ends("beyond", words);
}

static void the_host_in_device_memory(void **state)
{
    (void)state;
    static const char *const words[] = {"host code touches device memory", "100 bytes from the beginning"};
    it_ends("host", words);
}

static int go_to_the_device(void)
{
    char *x = NULL;
    return cudaMalloc((void **)&x, 8192) == cudaSuccess && x[100] == 1;
}

static int go_beyond(void)
{
    float *x = NULL, *y = NULL;
    return cudaMalloc((void **)&x, 8192) == cudaSuccess && cudaMalloc((void **)&y, 1000) == cudaSuccess &&
           language_axpy(2048, 1.0f, x, y, NULL) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

/* Last: the device is lost afterwards. Only in the emulator, which detects it; a GPU would hang. */
static void lanes_that_never_meet(void **state)
{
    (void)state;
    uint32_t *out = NULL;
    if (!gpu_is_emulated())
        skip();
    assert_cuda(cudaMalloc((void **)&out, 64));
    assert_cuda(cudaMemset(out, 0, 64));
    assert_cuda(language_stuck(out, stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_int_equal(cudaMalloc((void **)&out, 64), cudaErrorLaunchFailure);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_loop),
        cmocka_unit_test(barriers_and_shuffles),
        cmocka_unit_test(matrix_products),
        cmocka_unit_test(products_of_warpgroups),
        cmocka_unit_test(blocks_that_wait_for_one_another),
        cmocka_unit_test(votes_and_lanes),
        cmocka_unit_test(words_with_flags),
        cmocka_unit_test(much_shared_memory),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(beyond_an_allocation),
        cmocka_unit_test(the_host_in_device_memory),
        cmocka_unit_test(lanes_that_never_meet),
    };
    if (!gpu_here())
        return 77;
    if (argc == 2 && strcmp(argv[1], "beyond") == 0)
        return go_beyond();
    if (argc == 2 && strcmp(argv[1], "host") == 0)
        return go_to_the_device();
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
