/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/emulated.h: CUDA's kernel language for g++, so that .cu files run on the CPU.
 *
 * Included by base/device/kernel.h in .cu files that are compiled with GYRE_EMULATED=1. Types and host calls
 * are those of the toolkit's own headers; kernels run as execute.cc says: one block at a time on an OS
 * thread, its threads as fibers that run until they wait. Hence __shared__ is a thread's own static storage,
 * and all of a warp's instructions are meetings of the lanes that they name. */
#ifndef EMULATED_H
#define EMULATED_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <emmintrin.h>
#include <cmath>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __restrict__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict

/* ---- the thread that runs now on this OS thread ------------------------------------------------------- */
struct emulated_place {
    uint3 thread, block, block_size, grid_size;
    void *dynamic_shared;
};
extern __thread emulated_place emulated_here;
#define threadIdx emulated_here.thread
#define blockIdx  emulated_here.block
#define blockDim  emulated_here.block_size
#define gridDim   emulated_here.grid_size
#define warpSize  32

/* ---- launches ------------------------------------------------------------------------------------------ */
/* Arguments that are pointers must be device memory, mapped host memory or NULL: argument `index` of
 * kernel `name`. */
cudaError_t emulated_check_argument(const char *name, int index, const volatile void *pointer);
/* Takes the closure over: `run(closure)` is one thread of the kernel, `drop(closure)` its end. */
cudaError_t emulated_launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t bytes,
                            cudaStream_t stream, void (*run)(void *), void (*drop)(void *), void *closure);
void emulated_allow_shared(const void *kernel, size_t bytes);

template <typename T> struct gyre_same {
    typedef T type;
};

template <typename... P> struct emulated_closure {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(void *self)
    {
        emulated_closure *closure = (emulated_closure *)self;
        std::apply(closure->kernel, closure->arguments);
    }
    static void drop(void *self) { delete (emulated_closure *)self; }
};

template <typename T> cudaError_t emulated_check(const char *name, int index, const T &argument)
{
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
        return emulated_check_argument(name, index, (const volatile void *)argument);
    else
        return cudaSuccess;
}

template <typename... P>
static inline cudaError_t gyre_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                                      size_t bytes, cudaStream_t stream,
                                      typename gyre_same<P>::type... arguments)
{
    typedef emulated_closure<P...> closure;
    cudaError_t rc = cudaSuccess;
    int index = 0;
    ((rc = rc != cudaSuccess ? rc : emulated_check(name, ++index, arguments)), ...);
    (void)index;
    if (rc != cudaSuccess)
        return rc;
    if (bytes > 48 * 1024)
        emulated_allow_shared((const void *)kernel, bytes);
    return emulated_launch(name, (const void *)kernel, grid, block, bytes, stream, closure::run,
                           closure::drop, new closure{kernel, std::tuple<P...>(arguments...)});
}

#define GYRE_DYNAMIC_SHARED(type, name) type *const name = (type *)emulated_here.dynamic_shared

/* ---- a block's barriers, a warp's meetings ------------------------------------------------------------- */
void emulated_barrier(void);
int __syncthreads_count(int predicate);
void emulated_spin(void);
/* What the lanes of a meeting brought, 64 bytes each; valid until the lane's next meeting. */
struct emulated_slots {
    alignas(64) unsigned char lane[32][64];
    unsigned arrived;
};
/* Waits for all lanes of `mask` that have not ended, and brings `bytes` <= 64; `last` is called once, by
 * the last. */
const emulated_slots *emulated_meet(unsigned mask, int kind, const void *bring, size_t bytes,
                                    void (*last)(emulated_slots *));
unsigned emulated_lane(void);
void emulated_mma_all(emulated_slots *slots);
void emulated_read_rows(emulated_slots *slots);
void emulated_copy_later(void *to, const void *from, int bytes);
void emulated_copy_group(void);
void emulated_copy_wait(int groups);
[[noreturn]] void emulated_fatal(const char *what);

#define GYRE_SPIN() emulated_spin()
static inline void __nanosleep(unsigned)
{
    emulated_spin();
}
static inline void __syncthreads(void)
{
    emulated_barrier();
}
static inline int __syncthreads_or(int predicate)
{
    return __syncthreads_count(predicate) != 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated_meet(mask, 1, NULL, 0, NULL);
}
static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* `source` within `width` lanes as the hardware counts; out of range: the lane's own. */
template <typename T> static inline T emulated_shuffle(unsigned mask, T value, int kind, int by, int width)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    int lane = (int)emulated_lane(), first = lane & ~(width - 1), source = lane;
    switch (kind) {
    case 2:
        source = first + (by & (width - 1));
        break;
    case 3:
        source = lane - by >= first ? lane - by : lane;
        break;
    case 4:
        source = lane + by < first + width ? lane + by : lane;
        break;
    default:
        source = (lane ^ by) < first + width ? (lane ^ by) : lane;
        break;
    }
    const emulated_slots *slots = emulated_meet(mask, kind, &value, sizeof(value), NULL);
    if (!(slots->arrived >> source & 1))
        emulated_fatal("a shuffle reads a lane that takes no part in it");
    T result;
    memcpy(&result, slots->lane[source], sizeof(result));
    return result;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    return emulated_shuffle(mask, value, 2, source, width);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    return emulated_shuffle(mask, value, 3, (int)by, width);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    return emulated_shuffle(mask, value, 4, (int)by, width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32)
{
    return emulated_shuffle(mask, value, 5, by, width);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned char mine = predicate != 0;
    const emulated_slots *slots = emulated_meet(mask, 6, &mine, 1, NULL);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        if ((slots->arrived & mask) >> i & 1)
            bits |= (unsigned)slots->lane[i][0] << i;
    return bits;
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    const emulated_slots *slots = emulated_meet(mask, 7, &value, sizeof(value), NULL);
    for (int i = 0; i < 32; i++) {
        unsigned other = 0;
        if ((slots->arrived & mask) >> i & 1)
            memcpy(&other, slots->lane[i], sizeof(other));
        value = other > value ? other : value;
    }
    return value;
}

/* ---- atomics ------------------------------------------------------------------------------------------- */
static inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

/* ---- what base/device/kernel.h declares ---------------------------------------------------------------- */
static inline uint32_t gyre_load_acquire(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
static inline void gyre_store_release(uint32_t *flag, uint32_t value)
{
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}
static inline uint32_t gyre_add_acq_rel(uint32_t *counter, uint32_t value)
{
    return __atomic_fetch_add(counter, value, __ATOMIC_ACQ_REL);
}
static inline void emulated_aligned(const void *p, const char *what)
{
    if ((uintptr_t)p % 16 != 0)
        emulated_fatal(what);
}
static inline uint4 gyre_load16(const void *from)
{
    uint4 value;
    emulated_aligned(from, "gyre_load16: the address is not a multiple of 16");
    __m128i bits = _mm_load_si128((const __m128i *)from);
    __asm__ volatile("" : "+x"(bits) : : "memory"); /* one load, here */
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline void gyre_store16(void *to, uint4 value)
{
    __m128i bits;
    emulated_aligned(to, "gyre_store16: the address is not a multiple of 16");
    memcpy(&bits, &value, sizeof(bits));
    _mm_store_si128((__m128i *)to, bits);
    __asm__ volatile("" : : : "memory");
}
static inline void gyre_load8x2(const void *from, uint64_t word[2])
{
    emulated_aligned(from, "gyre_load8x2: the address is not a multiple of 16");
    for (int i = 0; i < 2; i++)
        word[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_ACQUIRE);
}
static inline void gyre_store8x2(void *to, uint64_t first, uint64_t second)
{
    emulated_aligned(to, "gyre_store8x2: the address is not a multiple of 16");
    __atomic_store_n((uint64_t *)to, first, __ATOMIC_RELEASE);
    __atomic_store_n((uint64_t *)to + 1, second, __ATOMIC_RELEASE);
}
static inline void gyre_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    struct {
        uint32_t a[4], b[2];
        float d[4];
    } mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
    const emulated_slots *slots = emulated_meet(0xffffffffu, 8, &mine, sizeof(mine), emulated_mma_all);
    memcpy(d, slots->lane[emulated_lane()] + 24, 16);
}
template <bool TRANSPOSED> static inline void emulated_ldmatrix(uint32_t r[4], const void *row)
{
    emulated_aligned(row, "ldmatrix: a row's address is not a multiple of 16");
    /* The instruction has read all rows before any lane goes on. */
    const emulated_slots *slots =
        emulated_meet(0xffffffffu, TRANSPOSED ? 10 : 9, &row, sizeof(row), emulated_read_rows);
    unsigned lane = emulated_lane(), group = lane / 4, t = lane % 4;
    auto at = [slots](unsigned matrix, unsigned k, unsigned column) {
        uint16_t value;
        memcpy(&value, slots->lane[8 * matrix + k] + 2 * column, sizeof(value));
        return (uint32_t)value;
    };
    for (unsigned i = 0; i < 4; i++) {
        uint32_t low = TRANSPOSED ? at(i, 2 * t, group) : at(i, group, 2 * t);
        uint32_t high = TRANSPOSED ? at(i, 2 * t + 1, group) : at(i, group, 2 * t + 1);
        r[i] = low | high << 16;
    }
}
static inline void gyre_ldmatrix_x4(uint32_t r[4], const void *row)
{
    emulated_ldmatrix<false>(r, row);
}
static inline void gyre_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    emulated_ldmatrix<true>(r, row);
}
static inline void gyre_cp_async16(void *shared, const void *global, int valid = 16)
{
    emulated_aligned(shared, "cp.async: the address in shared memory is not a multiple of 16");
    emulated_aligned(global, "cp.async: the address in global memory is not a multiple of 16");
    emulated_copy_later(shared, global, valid);
}
static inline void gyre_cp_async_commit(void)
{
    emulated_copy_group();
}
template <int N> static inline void gyre_cp_async_wait(void)
{
    emulated_copy_wait(N);
}

/* ---- arithmetic that CUDA has and C has not ------------------------------------------------------------ */
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename To, typename From> static inline To emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline float __uint_as_float(unsigned v)
{
    return emulated_bits<float>(v);
}
/* glibc has functions of these names */
static inline int __popc(unsigned a)
{
    return __builtin_popcount(a);
}
static inline int __clz(int a)
{
    return a == 0 ? 32 : __builtin_clz((unsigned)a);
}
static inline int __ffs(int a)
{
    return __builtin_ffs(a);
}

#define EMULATED_MIN_MAX(T)       \
    static inline T min(T a, T b) \
    {                             \
        return a < b ? a : b;     \
    }                             \
    static inline T max(T a, T b) \
    {                             \
        return a > b ? a : b;     \
    }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
#undef EMULATED_MIN_MAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

#endif
