/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/kernel.h: what CUDA sources (.cu) use beyond CUDA's own language; for .cu files only.
 *
 * A .cu file is compiled twice: by nvcc for GPUs, and by g++ with GYRE_EMULATED=1 for the emulator of the
 * tests (tests/emulated), which runs the same kernels on the CPU: threads of a block as fibers, warps,
 * barriers, shared memory. So a .cu file holds kernels and extern "C" launchers, written in CUDA's own words
 * (threadIdx, __shared__, __syncthreads, __shfl_xor_sync, __nv_bfloat16, atomicAdd, float4), and takes from
 * here what those words do not say: launches, dynamic shared memory, waiting for other blocks or processes,
 * and the instructions that need assembly. The names below mean the same on both sides.
 *
 *   GYRE_LAUNCH(kernel, grid, block, bytes, stream, arguments...)   -> cudaError_t
 *       `bytes` of dynamic shared memory, over 48 KiB too. Put commas in template arguments between
 *       parentheses.
 *   gyre_load(kernel)                   -> cudaError_t; the driver then need not load it while another kernel
 *   waits
 *   GYRE_DYNAMIC_SHARED(type, name);   in a kernel: type *name, its dynamic shared memory, 128-byte aligned
 *   GYRE_SPIN();                        in every loop that waits for something another block or process does
 */
#ifndef BASE_DEVICE_KERNEL_H
#define BASE_DEVICE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef GYRE_EMULATED
#include <emulated.h> /* tests/emulated */
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* P..., not to be deduced from the arguments: they are converted to what the kernel takes. */
template <typename T> struct gyre_same {
    typedef T type;
};

template <typename... P>
static inline cudaError_t gyre_launch(const char *, void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes,
                                      cudaStream_t stream, typename gyre_same<P>::type... arguments)
{
    void *list[] = {(void *)&arguments..., NULL};
    if (bytes > 48 * 1024) { /* more than a kernel gets unasked */
        cudaError_t rc = cudaFuncSetAttribute((const void *)kernel,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (rc != cudaSuccess)
            return rc;
    }
    return cudaLaunchKernel((const void *)kernel, grid, block, list, bytes, stream);
}

/* One name in all kernels of a file must have one type: hence bytes, and a pointer. */
#define GYRE_DYNAMIC_SHARED(type, name)                                   \
    extern __shared__ __align__(128) unsigned char gyre_dynamic_shared[]; \
    type *const name = (type *)gyre_dynamic_shared

/* Lets a block that waits leave the issue slots to those it waits for. */
#define GYRE_SPIN() __nanosleep(40)

/* ---- flags and data that other devices, processes and the host see ------------------------------------- */

/* Sees everything that was written before the matching store_release, on any device or host. */
static __device__ __forceinline__ uint32_t gyre_load_acquire(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

static __device__ __forceinline__ void gyre_store_release(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

/* Adds and returns what was there; orders what came before and comes after, system-wide. */
static __device__ __forceinline__ uint32_t gyre_add_acq_rel(uint32_t *counter, uint32_t value)
{
    uint32_t before;
    asm volatile("atom.add.acq_rel.sys.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(value)
                 : "memory");
    return before;
}

/* 16 bytes that somebody else may have written a moment ago: not cached in L1. `from` is 16-byte aligned. */
static __device__ __forceinline__ uint4 gyre_load16(const void *from)
{
    uint4 value;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

static __device__ __forceinline__ void gyre_store16(void *to, uint4 value)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

/* Two words of 8 bytes, each of which is read, or written, as a whole: who reads a word that somebody else
 * writes sees all of it or nothing. The address is 16-byte aligned. */
static __device__ __forceinline__ void gyre_load8x2(const void *from, uint64_t word[2])
{
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(word[0]), "=l"(word[1])
                 : "l"(from)
                 : "memory");
}

static __device__ __forceinline__ void gyre_store8x2(void *to, uint64_t first, uint64_t second)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" : : "l"(to), "l"(first), "l"(second) : "memory");
}

/* ---- matrix products of a warp ------------------------------------------------------------------------- */

/* D[16,8] += A[16,16] B[16,8] in bf16 with sums in fp32: mma.sync.m16n8k16. With group = lane / 4 and t =
 * lane % 4 (PTX ISA, "Matrix fragments for mma.m16n8k16"), two neighbours per register:
 *   a[0], a[1]: rows group, group + 8 of columns 2t, 2t+1;  a[2], a[3]: the same rows of columns 2t+8, 2t+9
 *   b[0], b[1]: rows 2t, 2t+1 and 2t+8, 2t+9 of column group
 *   d[0], d[1]: row group, columns 2t, 2t+1;  d[2], d[3]: row group + 8 */
static __device__ __forceinline__ void gyre_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8x8 matrices of 16-bit elements from shared memory: lane l names row l % 8 of matrix l / 8 (16 bytes,
 * aligned). Each lane gets elements 2t, 2t+1 of row `group` of matrix i in r[i]; _trans: of its transpose. */
static __device__ __forceinline__ void gyre_ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

static __device__ __forceinline__ void gyre_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* ---- copies from global to shared memory that go on while the thread does other things ----------------- */

/* 16 bytes, both ends 16-byte aligned; the first `valid` of them (0 to 16) are read, the rest becomes
 * zero. */
static __device__ __forceinline__ void gyre_cp_async16(void *shared, const void *global, int valid = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid)
                 : "memory");
}

/* Ends a group of this thread's copies. */
static __device__ __forceinline__ void gyre_cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most N of this thread's groups are under way; others' copies are seen after a barrier. */
template <int N> static __device__ __forceinline__ void gyre_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

#endif

#define GYRE_LAUNCH(kernel, ...) gyre_launch(#kernel, kernel, __VA_ARGS__)

/* Has the driver load a kernel now, rather than at its first launch, and gives the current device the
 * stack that it takes. A launch that needs more waits for all work of the device first: forever, if some
 * of it waits for a peer. */
template <typename... P> static inline cudaError_t gyre_load(void (*kernel)(P...))
{
    cudaFuncAttributes attributes;
    size_t stack = 0;
    cudaError_t rc = cudaFuncGetAttributes(&attributes, (const void *)kernel);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetLimit(&stack, cudaLimitStackSize);
    if (rc == cudaSuccess && attributes.localSizeBytes > stack)
        rc = cudaDeviceSetLimit(cudaLimitStackSize, attributes.localSizeBytes);
    return rc;
}

#endif
