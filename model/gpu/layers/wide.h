/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/wide.h: for .cu files: neighbouring elements of a tensor with loads and stores of up to 16
 * bytes. Which thread has which element decides no bit: only the order of sums does. */
#ifndef MODEL_GPU_LAYERS_WIDE_H
#define MODEL_GPU_LAYERS_WIDE_H

#include "model/gpu/scalar.h"

/* 1, 4 or 8 elements; the address is a multiple of their bytes, or of 16. */
static __device__ __forceinline__ void load_some(float (&v)[1], const float *p)
{
    v[0] = *p;
}

static __device__ __forceinline__ void load_some(float (&v)[1], const uint16_t *p)
{
    v[0] = model_load(p);
}

static __device__ __forceinline__ void load_some(float (&v)[4], const float *p)
{
    float4 f = *(const float4 *)p;
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
}

static __device__ __forceinline__ void load_some(float (&v)[4], const uint16_t *p)
{
    uint2 u = *(const uint2 *)p;
    v[0] = of_bits_f32(u.x << 16), v[1] = of_bits_f32(u.x & 0xffff0000u);
    v[2] = of_bits_f32(u.y << 16), v[3] = of_bits_f32(u.y & 0xffff0000u);
}

static __device__ __forceinline__ void load_some(float (&v)[8], const float *p)
{
    float4 f = *(const float4 *)p, g = *(const float4 *)(p + 4);
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    v[4] = g.x, v[5] = g.y, v[6] = g.z, v[7] = g.w;
}

static __device__ __forceinline__ void load_some(float (&v)[8], const uint16_t *p)
{
    uint4 u = *(const uint4 *)p;
    const uint32_t two[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[2 * i] = of_bits_f32(two[i] << 16), v[2 * i + 1] = of_bits_f32(two[i] & 0xffff0000u);
}

static __device__ __forceinline__ void store_some(float *p, const float (&v)[1])
{
    *p = v[0];
}

static __device__ __forceinline__ void store_some(float *p, const float (&v)[4])
{
    *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
}

static __device__ __forceinline__ void store_some(float *p, const float (&v)[8])
{
    *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
    *(float4 *)(p + 4) = make_float4(v[4], v[5], v[6], v[7]);
}

static __device__ __forceinline__ void store_some(uint16_t *p, const float (&v)[8])
{
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++) { /* model_store of both, in one instruction */
        __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        memcpy(&two[i], &pair, sizeof pair);
    }
    *(uint4 *)p = make_uint4(two[0], two[1], two[2], two[3]);
}

/* The first `left` of N elements, at least 0; the others are 0, or not stored. `wide`: the address allows
 * load_some and store_some. */
template <int N, typename S>
static __device__ __forceinline__ void load_part(float (&v)[N], const S *p, size_t left, int wide)
{
    if (wide && left >= N) {
        load_some(v, p);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = (size_t)i < left ? model_load(p + i) : 0.0f;
}

template <int N, typename S>
static __device__ __forceinline__ void store_part(S *p, const float (&v)[N], size_t left, int wide)
{
    if (wide && left >= N) {
        store_some(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((size_t)i < left)
            model_store(p + i, v[i]);
}

/* Whether rows that begin `step` elements of `size` bytes apart from p can be taken 16 bytes at a time. */
static inline int is_wide(const void *p, size_t step, size_t size)
{
    return (uintptr_t)p % 16 == 0 && step * size % 16 == 0;
}

#endif
