/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/language.cu: see language.h. */
#include "tests/gpu/language.h"

#include "base/device/kernel.h"

/* grid: any, block: any */
static __global__ void axpy(size_t n, float a, const float *x, float *y)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}

/* block: 256, four integers each */
static __global__ void __launch_bounds__(256) block_sums(const int *x, int *sums)
{
    __shared__ int partial[8];
    const int4 four = ((const int4 *)x)[blockIdx.x * 256 + threadIdx.x];
    int sum = four.x + four.y + four.z + four.w;
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 8) {
        sum = partial[threadIdx.x];
        for (int by = 4; by > 0; by /= 2)
            sum += __shfl_xor_sync(0xffu, sum, by, 8);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = sum;
    }
}

/* block: 32 */
static __global__ void product(const uint16_t *a, const uint16_t *b, float *d, int trans)
{
    __shared__ __align__(16) uint16_t rows[16 * 16 + 8 * 16];
    uint16_t *const right = rows + 16 * 16;
    const int lane = threadIdx.x, group = lane / 4, t = lane % 4;
    gyre_cp_async16(rows + 8 * lane, a + 8 * lane);
    gyre_cp_async_commit();
    gyre_cp_async16(right + 8 * (lane % 16), b + 8 * (lane % 16), lane < 16 ? 16 : 16);
    gyre_cp_async_commit();
    gyre_cp_async_wait<0>();
    __syncwarp();
    uint32_t left[4], both[4];
    float sum[4] = {0, 0, 0, 0};
    /* matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15 */
    gyre_ldmatrix_x4(left, rows + 16 * (lane % 16) + 8 * (lane / 16));
    if (trans) /* b [16,8]: rows 0-7, 8-15; the other two are not used */
        gyre_ldmatrix_x4_trans(both, right + 8 * (lane % 16));
    else /* b [8,16]: columns 0-7, 8-15 */
        gyre_ldmatrix_x4(both, right + 16 * (lane % 8) + 8 * (lane / 8 % 2));
    gyre_mma_bf16(sum, left, both);
    d[8 * group + 2 * t] = sum[0];
    d[8 * group + 2 * t + 1] = sum[1];
    d[8 * (group + 8) + 2 * t] = sum[2];
    d[8 * (group + 8) + 2 * t + 1] = sum[3];
}

/* block: 64 */
static __global__ void chain(uint32_t *flags, uint32_t *counter, uint32_t *order)
{
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x)
            while (gyre_load_acquire(&flags[blockIdx.x + 1]) == 0)
                GYRE_SPIN();
        order[blockIdx.x] = gyre_add_acq_rel(counter, 1);
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1)
        gyre_store_release(&flags[blockIdx.x], 1);
}

static __global__ void votes(int n, const uint32_t *x, uint32_t *out)
{
    GYRE_DYNAMIC_SHARED(uint32_t, all);
    const int i = threadIdx.x;
    all[i] = x[i];
    const int sevenths = __syncthreads_count(i % 7 == 0);
    out[4 * i] = __ballot_sync(0xffffffffu, i % 3 == 0);
    out[4 * i + 1] = __shfl_xor_sync(0xffffffffu, x[i], 5);
    out[4 * i + 2] = all[n - 1 - i];
    out[4 * i + 3] = (uint32_t)sevenths;
}

/* block: 1024 */
static __global__ void reverse(int n, const float *x, float *y)
{
    GYRE_DYNAMIC_SHARED(float, all);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        all[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = all[n - 1 - i];
}

/* block: 32 */
static __global__ void stuck(uint32_t *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0x0001ffffu, 1u, 0);
    else
        __syncthreads();
}

template <typename T> static __device__ T narrow(float x);
template <> __device__ __nv_bfloat16 narrow<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __half narrow<__half>(float x)
{
    return __float2half_rn(x);
}

template <typename T> static __global__ void round_to(int n, const float *x, float *y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[2 * i] = (float)narrow<T>(x[i]);
}

static __global__ void flagged_lines(int n, uint64_t *lines, const uint32_t *x, uint32_t *out)
{
    const uint64_t flag = (uint64_t)0xfedcba98 << 32;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        uint64_t word[2] = {0, 0};
        if (blockIdx.x == 0) {
            gyre_store8x2(lines + 2 * i, flag | x[2 * i], flag | x[2 * i + 1]);
            continue;
        }
        while ((word[0] & word[1]) >> 32 != flag >> 32) {
            gyre_load8x2(lines + 2 * i, word);
            GYRE_SPIN();
        }
        out[2 * i] = (uint32_t)word[0];
        out[2 * i + 1] = (uint32_t)word[1];
    }
}

cudaError_t language_axpy(size_t n, float a, const float *x, float *y, cudaStream_t stream)
{
    return GYRE_LAUNCH(axpy, 6, 256, 0, stream, n, a, x, y);
}

cudaError_t language_block_sums(int blocks, const int *x, int *sums, cudaStream_t stream)
{
    return GYRE_LAUNCH(block_sums, blocks, 256, 0, stream, x, sums);
}

cudaError_t language_product(const uint16_t *a, const uint16_t *b, float *d, cudaStream_t stream)
{
    return GYRE_LAUNCH(product, 1, 32, 0, stream, a, b, d, 0);
}

cudaError_t language_product_trans(const uint16_t *a, const uint16_t *b, float *d, cudaStream_t stream)
{
    return GYRE_LAUNCH(product, 1, 32, 0, stream, a, b, d, 1);
}

cudaError_t language_chain(int blocks, uint32_t *flags, uint32_t *counter, uint32_t *order,
                           cudaStream_t stream)
{
    return GYRE_LAUNCH(chain, blocks, 64, 0, stream, flags, counter, order);
}

cudaError_t language_votes(int n, size_t shared_bytes, const uint32_t *x, uint32_t *out, cudaStream_t stream)
{
    return GYRE_LAUNCH(votes, 1, n, shared_bytes, stream, n, x, out);
}

cudaError_t language_lines(int n, uint64_t *lines, const uint32_t *x, uint32_t *out, cudaStream_t stream)
{
    return GYRE_LAUNCH(flagged_lines, 2, 64, 0, stream, n, lines, x, out);
}

cudaError_t language_reverse(const float *x, float *y, cudaStream_t stream)
{
    return GYRE_LAUNCH(reverse, 1, 1024, 24576 * sizeof(float), stream, 24576, x, y);
}

cudaError_t language_stuck(uint32_t *out, cudaStream_t stream)
{
    return GYRE_LAUNCH(stuck, 1, 32, 0, stream, out);
}

cudaError_t language_round(int n, const float *x, float *y, cudaStream_t stream)
{
    cudaError_t rc = GYRE_LAUNCH((round_to<__nv_bfloat16>), (n + 127) / 128, 128, 0, stream, n, x, y);
    return rc != cudaSuccess ? rc
                             : GYRE_LAUNCH((round_to<__half>), (n + 127) / 128, 128, 0, stream, n, x, y + 1);
}
