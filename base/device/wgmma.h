/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/wgmma.h: matrix products of a warpgroup (four warps, 128 threads) by wgmma, for .cu files that
 * are compiled for sm_90a: compute capability 9.0 alone has these instructions. PTX ISA, "Asynchronous
 * Warpgroup Level Matrix Multiply-Accumulate Instructions". The emulator has the same names
 * (tests/emulated/emulated_wgmma.h).
 *
 * All 128 threads of a warpgroup call each function, with the same descriptors. The order of calls:
 *
 *   copies to shared memory; gyre_cp_async_wait; gyre_wgmma_publish by each thread that copied; __syncthreads
 *   gyre_wgmma_fence;  products;  gyre_wgmma_commit;  gyre_wgmma_wait(d) for each sum d
 *
 * Products read shared memory and registers until gyre_wgmma_wait returns.
 *
 * Tiles in shared memory are [columns / 64][lines][64] of bf16: lines of 128 bytes, whose eight groups of 16
 * bytes are permuted ("128-byte swizzle"): group c of line l lies at place c ^ l % 8. A tile begins at a
 * multiple of 1024 bytes. */
#ifndef BASE_DEVICE_WGMMA_H
#define BASE_DEVICE_WGMMA_H

#include "base/device/kernel.h"

/* The element of a tile of `lines` lines: an index. Eight from a multiple of 8 on lie together. */
static __device__ __forceinline__ int gyre_wgmma_at(int lines, int line, int column)
{
    return ((column / 64) * lines + line) * 64 + ((column / 8 % 8) ^ line % 8) * 8 + column % 8;
}

/* A descriptor's bits: the address, the distance between 64 columns and the next, and between eight lines and
 * the next (1024 bytes), each in units of 16 bytes; bit 62: the 128-byte swizzle. */
static __device__ __forceinline__ uint64_t gyre_wgmma_bits(uint32_t address, int lines)
{
    return (uint64_t)(address >> 4) | (uint64_t)(lines * 8) << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* Of a factor whose lines are rows of the left one or columns of the right one, with K across: the tile's
 * descriptor, moved to line `line` (a multiple of 8) and to element `k` of K (a multiple of 16). */
static __device__ __forceinline__ uint64_t gyre_wgmma_across(uint64_t tile, int lines, int line, int k)
{
    return tile + (uint64_t)((k / 64 * lines + line) * 8 + k % 64 / 8);
}

/* Of a right factor whose lines are K and whose columns are those of the result: moved to line k. */
static __device__ __forceinline__ uint64_t gyre_wgmma_along(uint64_t tile, int k)
{
    return tile + (uint64_t)(k * 8);
}

#ifdef GYRE_EMULATED
#include <emulated_wgmma.h>
#else

/* type *name: the kernel's dynamic shared memory, at a multiple of 1024 bytes */
#define GYRE_WGMMA_SHARED(type, name)                                    \
    extern __shared__ __align__(1024) unsigned char gyre_wgmma_shared[]; \
    type *const name = (type *)gyre_wgmma_shared

static __device__ __forceinline__ uint64_t gyre_wgmma_tile(const void *tile, int lines)
{
    return gyre_wgmma_bits((uint32_t)__cvta_generic_to_shared(tile), lines);
}

/* What this thread wrote to shared memory can be read by products, after a barrier. */
static __device__ __forceinline__ void gyre_wgmma_publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/* Products after it see registers written before it. */
static __device__ __forceinline__ void gyre_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

static __device__ __forceinline__ void gyre_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits for all products; the sums d are valid then. */
template <int J> static __device__ __forceinline__ void gyre_wgmma_wait(float (&d)[J][4])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
#pragma unroll
    for (int j = 0; j < J; j++) /* so that no use moves before the wait */
        asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]) : : "memory");
}

#define GYRE_D1(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define GYRE_D8(j)                                                                              \
    GYRE_D1(j), GYRE_D1(j + 1), GYRE_D1(j + 2), GYRE_D1(j + 3), GYRE_D1(j + 4), GYRE_D1(j + 5), \
        GYRE_D1(j + 6), GYRE_D1(j + 7)
#define GYRE_D64                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GYRE_D128                                                                                           \
    GYRE_D64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
             "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* d [64, 64] = (add ? d : 0) + 16 of K: rows of the tile `left` times rows of the tile `right`, both across.
 * A warp has 16 rows of d, in the layout of gyre_mma_bf16's d: d[j] are columns 8 j .. . */
static __device__ __forceinline__ void gyre_wgmma_tiles(float (&d)[8][4], uint64_t left, uint64_t right,
                                                        int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " GYRE_D64
                 "}, %32, %33, add, 1, 1, 0, 0;\n}"
                 : GYRE_D8(0)
                 : "l"(left), "l"(right), "r"(add));
}

/* d [64, 8 J] += 16 of K: `left` of registers, in the layout of gyre_mma_bf16's a for each warp's 16 rows,
 * times 16 lines of a tile, along. */
static __device__ __forceinline__ void gyre_wgmma_registers(float (&d)[8][4], const uint32_t (&left)[4],
                                                            uint64_t right)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " GYRE_D64
                 "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}"
                 : GYRE_D8(0)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

static __device__ __forceinline__ void gyre_wgmma_registers(float (&d)[16][4], const uint32_t (&left)[4],
                                                            uint64_t right)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " GYRE_D128
                 "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}"
                 : GYRE_D8(0), GYRE_D8(8)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

#endif
#endif
