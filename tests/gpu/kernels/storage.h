/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/storage.h: floats that a tensor of either storage holds exactly, there and back, for
 * tests that compare bits. */
#ifndef TESTS_GPU_KERNELS_STORAGE_H
#define TESTS_GPU_KERNELS_STORAGE_H

#include <stdlib.h>
#include <string.h>

#include "model/gpu/products/matmul.h"
#include "model/kernels/kernels.h"
#include "model/random.h"
#include "tests/gpu/memory.h"

static inline float of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t to_bf16(float x) /* one that has no lower 16 bits */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline float *numbers(size_t n)
{
    static uint64_t drawn;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)model_random_normal(4, MODEL_RANDOM_PROBE, 0, drawn++);
    return x;
}

/* Rounds x [n] to what `type` holds. */
static inline void round_to(model_cuda_type_t type, float *x, size_t n)
{
    if (type == MODEL_CUDA_BF16)
        model_kernels_f32(MODEL_ISA_BEST)->round_bf16(x, n);
}

/* Random numbers that `type` holds. */
static inline float *stored(model_cuda_type_t type, size_t n)
{
    float *x = numbers(n);
    round_to(type, x, n);
    return x;
}

/* On the device, as `type`. */
static inline void *send(model_cuda_type_t type, const float *x, size_t n)
{
    if (type == MODEL_CUDA_F32)
        return to_device(x, n * sizeof *x);
    uint16_t *half = malloc(n * sizeof *half + 1);
    assert_non_null(half);
    for (size_t i = 0; i < n; i++)
        half[i] = to_bf16(x[i]);
    void *memory = to_device(half, n * sizeof *half);
    free(half);
    return memory;
}

/* The device's elements, whose memory is given back, are `want` rounded. */
static inline void expect_bits(const char *what, model_cuda_type_t type, const float *want, void *memory,
                               size_t n, cudaStream_t stream)
{
    size_t element = type == MODEL_CUDA_BF16 ? sizeof(uint16_t) : sizeof(float);
    char *got = malloc(n * element + 1);
    assert_non_null(got);
    from_device(got, memory, n * element, stream);
    for (size_t i = 0; i < n; i++) {
        float is, should = want[i];
        round_to(type, &should, 1);
        if (type == MODEL_CUDA_BF16)
            is = of_bf16(((const uint16_t *)(const void *)got)[i]);
        else
            memcpy(&is, got + i * element, sizeof is);
        if (memcmp(&is, &should, sizeof is) != 0)
            fail_msg("%s: element %zu is %a, not %a", what, i, (double)is, (double)should);
    }
    free(got);
}

#endif
