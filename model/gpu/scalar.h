/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/scalar.h: for .cu files: elements of tensors in memory as float or bfloat16, the
 * arithmetic of one number (the host's source, model/kernels/scalar.inc), Philox, and sums over the 16
 * threads of a row.
 *
 * Storage S is float, or uint16_t for bfloat16; all arithmetic is in float. Rounding is that of
 * model/kernels/residual.inc: to nearest, ties to even. In files that are compiled without contraction
 * (--fmad=false, all but products and attention) a kernel whose order of sums is the host's has the host's
 * bits. */
#ifndef MODEL_GPU_SCALAR_H
#define MODEL_GPU_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/device/kernel.h"
#include "model/types.h"

#define MODEL_SCALAR    static __device__ __forceinline__
#define MODEL_REAL_BITS 32
#include "model/kernels/real.h"
#include "model/kernels/scalar.inc"
#include "model/philox.h"

/* ---- powers of two ------------------------------------------------------------------------------------- */

#define LOG2E 1.44269504088896340736f

/* 2^x in one instruction, within 2^-22 of it; below 2^-126: 0. */
static __device__ __forceinline__ float power_2(float x)
{
#ifdef GYRE_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- elements ------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float model_load(const float *p)
{
    return *p;
}

static __device__ __forceinline__ float model_load(const uint16_t *p)
{
    return of_bits_f32((uint32_t)*p << 16);
}

static __device__ __forceinline__ void model_store(float *p, float x)
{
    *p = x;
}

static __device__ __forceinline__ void model_store(uint16_t *p, float x)
{
    uint32_t u = bits_of_f32(x), r = u + 0x7fffu + (u >> 16 & 1u);
    *p = (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? u | 0x00400000u : r) >> 16);
}

/* The value of x once it has been stored. */
static __device__ __forceinline__ float model_rounded(const float *, float x)
{
    return x;
}

static __device__ __forceinline__ float model_rounded(const uint16_t *, float x)
{
    uint16_t stored;
    model_store(&stored, x);
    return model_load(&stored);
}

/* ---- activations --------------------------------------------------------------------------------------- */

/* act (model_act_t) is the same for all threads of a launch. An activation without a case is a warning
 * (-Wswitch). */
static __device__ __forceinline__ float model_act(int act, float v)
{
    switch ((model_act_t)act) {
    case MODEL_ACT_GELU_TANH:
        return gelu_tanh_f32(v);
    case MODEL_ACT_GELU_ERF:
        return gelu_erf_f32(v);
    case MODEL_ACT_GELU_FAST:
        return gelu_fast_f32(v);
    case MODEL_ACT_RELU:
        return relu_f32(v);
    case MODEL_ACT_SILU:
        return silu_f32(v);
    }
    return NAN; /* not an activation */
}

static __device__ __forceinline__ float model_act_slope(int act, float v)
{
    switch ((model_act_t)act) {
    case MODEL_ACT_GELU_TANH:
        return gelu_tanh_slope_f32(v);
    case MODEL_ACT_GELU_ERF:
        return gelu_erf_slope_f32(v);
    case MODEL_ACT_GELU_FAST:
        return gelu_fast_slope_f32(v);
    case MODEL_ACT_RELU:
        return relu_slope_f32(v);
    case MODEL_ACT_SILU:
        return silu_slope_f32(v);
    }
    return NAN;
}

/* ---- dropout ------------------------------------------------------------------------------------------- */

/* The number of element `index`, of the four of its block. */
static __device__ __forceinline__ uint32_t model_number(const uint32_t number[4], uint64_t index)
{
    const uint32_t at = (uint32_t)(index % 4);
    return at == 0 ? number[0] : at == 1 ? number[1] : at == 2 ? number[2] : number[3];
}

/* x, or 0: element `index` of the tensor at `place` (4 layer + site) of the sequence whose key this is. */
static __device__ __forceinline__ float model_drop(float x, const uint32_t *key, uint32_t place,
                                                   uint64_t index, uint32_t below, float scale)
{
    uint32_t number[4];
    model_dropout_numbers(key, place, index / 4, number);
    return model_number(number, index) < below ? 0.0f : x * scale;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Kernels that reduce rows give each row 16 threads, half a warp: thread l takes elements l, l + 16, ... The
 * 16 sums are joined like the lanes in join_lanes of model/kernels/math.inc. So the bits are the host's,
 * loads are coalesced, and no thread waits for another except in these shuffles. All 32 threads of a warp
 * must call this. */
#define MODEL_LANES 16

static __device__ __forceinline__ float model_join_lanes(float x)
{
    for (int w = MODEL_LANES / 2; w > 0; w /= 2)
        x = x + __shfl_xor_sync(0xffffffffu, x, w);
    return x;
}

/* The sum over leaves of part [leaves][count] at element i, in the tree of docs/contract.md; leaves is a
 * power of two up to 64. */
static __device__ __forceinline__ float model_join_leaves(const float *part, size_t leaves, size_t count,
                                                          size_t i)
{
    if (leaves == 1)
        return part[i];
    if (leaves == 2)
        return part[i] + part[count + i];
    if (leaves == 4)
        return (part[i] + part[count + i]) + (part[2 * count + i] + part[3 * count + i]);
    float level[6]; /* level[k]: a finished subtree of 2^k leaves that waits for its neighbour */
    float sum = 0.0f;
    for (size_t leaf = 0; leaf < leaves; leaf++) {
        sum = part[leaf * count + i];
        int k = 0;
        for (size_t n = leaf; n & 1; n >>= 1, k++)
            sum = level[k] + sum;
        if (k < 6)
            level[k] = sum;
    }
    return sum;
}

#endif
