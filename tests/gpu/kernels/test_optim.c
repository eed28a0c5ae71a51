/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_optim.c: optim/gpu/kernels.cu gives the bits of the host's loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/kernels/kernels.h"
#include "optim/convert.h"
#include "optim/gpu/kernels.h"
#include "tests/gpu/memory.h"

enum { N = 5003, SPANS = 3 };
static cudaStream_t stream;
static const size_t length[SPANS] = {3, 4000, 1000}, begins[SPANS] = {0, 3, 4003};

/* Any finite bits, of all magnitudes; with `special`, some infinities and NaNs, too. */
static void fill(uint64_t seed, float *x, size_t n, int special)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(state >> 32);
        if (!special && (bits >> 23 & 0xff) == 0xff)
            bits ^= 1u << 30;
        memcpy(x + i, &bits, sizeof(bits));
    }
}

/* Numbers of a training's size. */
static void fill_plain(uint64_t seed, float *x, size_t n)
{
    uint64_t state = seed;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = ((float)(state >> 40) / 8388608.0f - 1.0f) * 0.37f;
    }
}

static void an_update(void **state)
{
    (void)state;
    static float w[N], m[N], v[N], g[N], gw[N], gm[N], gv[N];
    static uint16_t g16[N], w16[N], got16[N];
    const optim_adamw_config_t config = {0.9, 0.95, 1e-8, 0.1};
    for (int sixteen = 0; sixteen < 2; sixteen++) {
        fill_plain(1, w, N);
        fill_plain(2, m, N);
        fill_plain(3, v, N);
        fill_plain(4, g, N);
        for (size_t i = 0; i < N; i++)
            v[i] *= v[i];
        const optim_adamw_factors_t f = optim_adamw_factors(&config, 7, 0.125f, 3e-4);
        float *dw = to_device(w, sizeof(w)), *dm = to_device(m, sizeof(m)), *dv = to_device(v, sizeof(v));
        optim_round(MODEL_BFLOAT16, g, g16, N);
        if (sixteen)
            optim_expand(MODEL_BFLOAT16, g16, g, N);
        char *dg = sixteen ? to_device(g16, sizeof(g16)) : to_device(g, sizeof(g));
        uint16_t *rounded = to_device(w16, sizeof(w16));
        optim_cuda_span_t span[SPANS];
        for (int s = 0; s < SPANS; s++) {
            size_t at = begins[s];
            span[s] = (optim_cuda_span_t){.w = dw + at,
                                          .m = dm + at,
                                          .v = dv + at,
                                          .grad = dg + at * (sixteen ? 2 : 4),
                                          .rounded = rounded + at,
                                          .n = length[s],
                                          .decay = s % 2};
            optim_adamw_update(&f, s % 2, w + at, m + at, v + at, g + at, length[s]);
        }
        optim_cuda_span_t *list = to_device(span, sizeof(span));
        assert_cuda(optim_cuda_adamw(list, SPANS, 4000, sixteen ? OPTIM_CUDA_BFLOAT16 : OPTIM_CUDA_FLOAT32,
                                     OPTIM_CUDA_BFLOAT16, &f, stream));
        optim_round(MODEL_BFLOAT16, w, w16, N);
        from_device(gw, dw, sizeof(gw), stream);
        from_device(gm, dm, sizeof(gm), stream);
        from_device(gv, dv, sizeof(gv), stream);
        from_device(got16, rounded, sizeof(got16), stream);
        assert_memory_equal(gw, w, sizeof(w));
        assert_memory_equal(gm, m, sizeof(m));
        assert_memory_equal(gv, v, sizeof(v));
        assert_memory_equal(got16, w16, sizeof(w16));
        assert_cuda(cudaFree(dg));
        assert_cuda(cudaFree(list));
    }
}

static void an_exact_norm(void **state)
{
    (void)state;
    enum { LONG = 200000 };
    float *x = malloc(LONG * sizeof(float));
    for (int kind = 0; kind < 3; kind++) {
        const int special = kind == 1;
        uint64_t words[OPTIM_EXACT_WORDS] = {0};
        gyre_exact_t *got, *want;
        double value[2];
        if (kind < 2) {
            fill(11, x, LONG, special);
        } else { /* what gradients are: nothing at first, then near each other, with few that are far away */
            fill_plain(11, x, LONG);
            memset(x, 0, 7000 * sizeof(float));
            for (size_t i = 1; i < LONG; i += 1000)
                x[i] *= i % 3000 == 1 ? 0x1p-90f : i % 3000 == 1001 ? 0x1p80f : 0x1p-130f;
        }
        x[5] = 0.0f;
        char *dx = to_device(x, LONG * sizeof(float));
        uint64_t *dw = to_device(words, sizeof(words));
        const optim_cuda_values_t two[2] = {{dx, 150000}, {dx + 150000 * sizeof(float), LONG - 150000}};
        optim_cuda_values_t *list = to_device(two, sizeof(two));
        assert_cuda(
            optim_cuda_exact(list, 2, kind < 2 ? 150000 : 1 /* one block */, OPTIM_CUDA_FLOAT32, dw, stream));
        from_device(words, dw, sizeof(words), stream);
        int infinite = 0;
        for (int i = 0; i < LONG; i++)
            infinite += !isfinite(x[i]);
        assert_int_equal(words[OPTIM_EXACT_LIMBS], infinite);
        assert_true((infinite > 0) == special);
        assert_int_equal(gyre_exact_create(&got), GYRE_OK);
        assert_int_equal(gyre_exact_create(&want), GYRE_OK);
        for (int i = 0; i < LONG; i++)
            if (isfinite(x[i]))
                assert_int_equal(gyre_exact_add_norm2(want, x + i, 1, GYRE_FLOAT32), GYRE_OK);
        assert_int_equal(gyre_exact_value(want, &value[0]), GYRE_OK);
        if (special) {
            assert_int_equal(optim_cuda_exact_add(got, words), GYRE_OK);
            assert_int_equal(gyre_exact_value(got, &value[1]), GYRE_OK);
            assert_true(isnan(value[1]));
            words[OPTIM_EXACT_LIMBS] = 0;
            assert_int_equal(gyre_exact_reset(got), GYRE_OK);
        }
        assert_int_equal(optim_cuda_exact_add(got, words), GYRE_OK);
        assert_int_equal(gyre_exact_value(got, &value[1]), GYRE_OK);
        assert_memory_equal(&value[0], &value[1], sizeof(double));
        gyre_exact_destroy(got);
        gyre_exact_destroy(want);
        assert_cuda(cudaFree(dx));
        assert_cuda(cudaFree(list));
    }
    free(x);
}

static void conversions(void **state)
{
    (void)state;
    static float x[N];
    static uint16_t half[N], got[N];
    fill(5, x, N, 1);
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i * 17 - 500) * 0x1p-25f; /* around the smallest halves */
    for (int type = 0; type < 2; type++) {
        model_precision_t host = type ? MODEL_FLOAT16 : MODEL_BFLOAT16;
        optim_cuda_type_t device = type ? OPTIM_CUDA_FLOAT16 : OPTIM_CUDA_BFLOAT16;
        float *dx = to_device(x, sizeof(x));
        uint16_t *dh = to_device(half, sizeof(half));
        assert_cuda(optim_cuda_round(device, dx, dh, N, stream));
        from_device(got, dh, sizeof(got), stream);
        optim_round(host, x, half, N);
        assert_memory_equal(got, half, sizeof(half));
        assert_cuda(cudaFree(dx));
    }
}

static void sums_of_a_tree(void **state)
{
    (void)state;
    static float value[N], level[2][N], want[N], got[N];
    const model_kernels_t_f32 *k = model_kernels_f32(MODEL_ISA_BEST);
    for (int type = 0; type < 2; type++)
        for (int keep = 0; keep < 2; keep++) {
            fill_plain(6, value, N);
            fill_plain(7, level[0], N);
            fill_plain(8, level[1], N);
            if (type) {
                k->round_bf16(level[0], N);
                k->round_bf16(level[1], N);
            }
            float *dv = to_device(value, sizeof(value));
            float *left[2] = {to_device(level[0], sizeof(value)), to_device(level[1], sizeof(value))};
            assert_cuda(optim_cuda_join(dv, left, 2, keep, type ? OPTIM_CUDA_BFLOAT16 : OPTIM_CUDA_FLOAT32, N,
                                        stream));
            memcpy(want, value, sizeof(want));
            if (type)
                k->round_bf16(want, N);
            for (int j = 0; j < 2; j++) {
                k->add(want, level[j], want, N);
                if (type)
                    k->round_bf16(want, N);
            }
            from_device(got, keep ? left[1] : dv, sizeof(got), stream);
            assert_memory_equal(got, want, sizeof(want));
            assert_cuda(cudaFree(keep ? dv : left[1]));
            assert_cuda(cudaFree(left[0]));
        }
}

static void nothing_is_added(void **state)
{
    (void)state;
    static float x[N], got[N];
    static uint16_t x16[N], got16[N];
    fill(9, x, N, 0);
    optim_round(MODEL_BFLOAT16, x, x16, N);
    float *dx = to_device(x, sizeof(x)), *zero = to_device(x, sizeof(x));
    assert_cuda(optim_cuda_nothing(OPTIM_CUDA_FLOAT32, zero, N, stream));
    assert_cuda(optim_cuda_add(dx, zero, OPTIM_CUDA_FLOAT32, N, stream));
    from_device(got, dx, sizeof(got), stream);
    assert_memory_equal(got, x, sizeof(x));
    uint16_t *dx16 = to_device(x16, sizeof(x16));
    assert_cuda(optim_cuda_nothing(OPTIM_CUDA_BFLOAT16, zero, N, stream));
    assert_cuda(optim_cuda_add(dx16, zero, OPTIM_CUDA_BFLOAT16, N, stream));
    from_device(got16, dx16, sizeof(got16), stream);
    assert_memory_equal(got16, x16, sizeof(x16));
    assert_cuda(cudaFree(zero));
}

/* One flipped bit shows in its slice and nowhere else. */
static void hashes_see_a_bit(void **state)
{
    (void)state;
    enum { PARTS = 4 };
    static uint16_t data[2][N];
    uint64_t words[2 * PARTS] = {0};
    for (size_t i = 0; i < N; i++)
        data[0][i] = data[1][i] = (uint16_t)(i * 40503u);
    data[1][N - 2] ^= 0x40;
    uint16_t *copy[2] = {to_device(data[0], sizeof(data[0])), to_device(data[1], sizeof(data[1]))};
    uint64_t *dw = to_device(words, sizeof(words));
    for (size_t part = 0; part < PARTS; part++) {
        const optim_cuda_hashed_t two[2] = {{copy[0], N * 2, 0, 1, 99}, {copy[1], N * 2, PARTS, 1, 99}};
        optim_cuda_hashed_t *list = to_device(two, sizeof(two));
        assert_cuda(optim_cuda_hash(list, 2, N * 2, part, PARTS, dw + part, stream));
        assert_cuda(cudaStreamSynchronize(stream));
        assert_cuda(cudaFree(list));
    }
    from_device(words, dw, sizeof(words), stream);
    for (size_t part = 0; part < PARTS; part++)
        assert_true((words[part] != words[PARTS + part]) == (part == PARTS - 1));
    assert_cuda(cudaFree(copy[0]));
    assert_cuda(cudaFree(copy[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update),        cmocka_unit_test(an_exact_norm),
        cmocka_unit_test(conversions),      cmocka_unit_test(sums_of_a_tree),
        cmocka_unit_test(nothing_is_added), cmocka_unit_test(hashes_see_a_bit),
    };
    if (!gpu_here())
        return 77;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
