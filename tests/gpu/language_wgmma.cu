/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/language_wgmma.cu: see language.h. For sm_90a alone. */
#include "tests/gpu/language.h"

#include "base/device/wgmma.h"

#ifdef GYRE_NO_WGMMA

cudaError_t language_wgmma(const uint16_t *, const uint16_t *, const uint16_t *, float *, cudaStream_t)
{
    return cudaErrorNoKernelImageForDevice;
}

#else

/* tile = x [lines][128]; block: 256 */
static __device__ void fill(uint16_t *tile, const uint16_t *x, int lines)
{
    for (int i = threadIdx.x; i < lines * 16; i += 256)
        gyre_cp_async16(tile + gyre_wgmma_at(lines, i / 16, i % 16 * 8), x + i * 8);
}

template <int J> static __device__ void store(float *d, const float (&sum)[J][4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int j = 0; j < J; j++)
        for (int e = 0; e < 4; e++)
            d[(warp * 16 + lane / 4 + e / 2 * 8) * J * 8 + j * 8 + lane % 4 * 2 + e % 2] = sum[j][e];
}

/* block: 256, two warpgroups of 64 rows */
static __global__ void __launch_bounds__(256)
    products(const uint16_t *a, const uint16_t *b, const uint16_t *c, float *d)
{
    GYRE_WGMMA_SHARED(uint16_t, shared);
    uint16_t *tile_a = shared, *tile_b = tile_a + 128 * 128, *tile_c = tile_b + 64 * 128;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    fill(tile_a, a, 128);
    fill(tile_b, b, 64);
    fill(tile_c, c, 64);
    gyre_cp_async_commit();
    gyre_cp_async_wait<0>();
    gyre_wgmma_publish();
    __syncthreads();

    float across[8][4], narrow[8][4], wide[16][4];
    uint32_t left[4][4];
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            narrow[j % 8][e] = wide[j][e] = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            left[k][i] = *(const uint32_t *)(a + (warp * 16 + lane / 4 + i % 2 * 8) * 128 + k * 16 +
                                             lane % 4 * 2 + i / 2 * 8);
    const uint64_t of_a = gyre_wgmma_tile(tile_a, 128), of_b = gyre_wgmma_tile(tile_b, 64),
                   of_c = gyre_wgmma_tile(tile_c, 64);
    gyre_wgmma_fence();
#pragma unroll
    for (int k = 0; k < 128; k += 16)
        gyre_wgmma_tiles(across, gyre_wgmma_across(of_a, 128, warp / 4 * 64, k),
                         gyre_wgmma_across(of_b, 64, 0, k), k > 0);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        gyre_wgmma_registers(narrow, left[k], gyre_wgmma_along(of_c, k * 16));
        gyre_wgmma_registers(wide, left[k], gyre_wgmma_along(of_c, k * 16));
    }
    gyre_wgmma_commit();
    gyre_wgmma_wait(across);
    gyre_wgmma_wait(narrow);
    gyre_wgmma_wait(wide);
    store(d, across);
    store(d + 128 * 64, narrow);
    store(d + 2 * 128 * 64, wide);
}

cudaError_t language_wgmma(const uint16_t *a, const uint16_t *b, const uint16_t *c, float *d,
                           cudaStream_t stream)
{
    return GYRE_LAUNCH(products, dim3(1), dim3(256), 256 * 128 * 2, stream, a, b, c, d);
}

#endif
