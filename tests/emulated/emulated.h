/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/emulated.h: CUDA's kernel language for g++, so that .cu files run on the CPU.
 *
 * Longer than 600 lines: it is the one header that .cu files include, and its parts use each other.
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
int emulated_barrier_vote(int predicate, int kind); /* kind 0: count, 1: and, 2: or */
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
static inline int __syncthreads_count(int predicate)
{
    return emulated_barrier_vote(predicate, 0);
}
static inline int __syncthreads_and(int predicate)
{
    return emulated_barrier_vote(predicate, 1);
}
static inline int __syncthreads_or(int predicate)
{
    return emulated_barrier_vote(predicate, 2);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated_meet(mask, 1, NULL, 0, NULL);
}
static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __trap(void)
{
    emulated_fatal("the kernel called __trap()");
}
static inline long long clock64(void)
{
    return (long long)__builtin_ia32_rdtsc();
}
static inline unsigned __activemask(void)
{
    emulated_fatal("__activemask() says nothing that a kernel may build on");
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
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

template <typename T, typename F> static inline T emulated_reduce(unsigned mask, T value, F f)
{
    const emulated_slots *slots = emulated_meet(mask, 7, &value, sizeof(value), NULL);
    T result = value;
    int first = 1;
    for (int i = 0; i < 32; i++) {
        T other;
        if (!((slots->arrived & mask) >> i & 1))
            continue;
        memcpy(&other, slots->lane[i], sizeof(other));
        result = first ? other : f(result, other);
        first = 0;
    }
    return result;
}
#define EMULATED_REDUCE(T)                                                                            \
    static inline T __reduce_add_sync(unsigned mask, T value)                                         \
    {                                                                                                 \
        return emulated_reduce(mask, value, [](T a, T b) { return (T)((unsigned)a + (unsigned)b); }); \
    }                                                                                                 \
    static inline T __reduce_min_sync(unsigned mask, T value)                                         \
    {                                                                                                 \
        return emulated_reduce(mask, value, [](T a, T b) { return a < b ? a : b; });                  \
    }                                                                                                 \
    static inline T __reduce_max_sync(unsigned mask, T value)                                         \
    {                                                                                                 \
        return emulated_reduce(mask, value, [](T a, T b) { return a > b ? a : b; });                  \
    }
EMULATED_REDUCE(int)
EMULATED_REDUCE(unsigned)
#undef EMULATED_REDUCE
static inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return emulated_reduce(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned value)
{
    return emulated_reduce(mask, value, [](unsigned a, unsigned b) { return a & b; });
}

/* ---- atomics ------------------------------------------------------------------------------------------- */
#define EMULATED_ATOMIC(T)                                                                          \
    static inline T atomicAdd(T *p, T v)                                                            \
    {                                                                                               \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                               \
    static inline T atomicSub(T *p, T v)                                                            \
    {                                                                                               \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                               \
    static inline T atomicAnd(T *p, T v)                                                            \
    {                                                                                               \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                               \
    static inline T atomicOr(T *p, T v)                                                             \
    {                                                                                               \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                           \
    }                                                                                               \
    static inline T atomicXor(T *p, T v)                                                            \
    {                                                                                               \
        return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                               \
    static inline T atomicExch(T *p, T v)                                                           \
    {                                                                                               \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                               \
    static inline T atomicCAS(T *p, T expect, T v)                                                  \
    {                                                                                               \
        __atomic_compare_exchange_n(p, &expect, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        return expect;                                                                              \
    }                                                                                               \
    static inline T atomicMax(T *p, T v)                                                            \
    {                                                                                               \
        T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
        while (old < v &&                                                                           \
               !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
            ;                                                                                       \
        return old;                                                                                 \
    }                                                                                               \
    static inline T atomicMin(T *p, T v)                                                            \
    {                                                                                               \
        T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
        while (old > v &&                                                                           \
               !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
            ;                                                                                       \
        return old;                                                                                 \
    }
EMULATED_ATOMIC(int)
EMULATED_ATOMIC(unsigned)
EMULATED_ATOMIC(unsigned long long)
#undef EMULATED_ATOMIC
template <typename F, typename I> static inline F emulated_add_float(F *p, F v)
{
    I before = __atomic_load_n((I *)p, __ATOMIC_SEQ_CST), after;
    F old;
    do {
        memcpy(&old, &before, sizeof(old));
        F sum = old + v;
        memcpy(&after, &sum, sizeof(after));
    } while (!__atomic_compare_exchange_n((I *)p, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
static inline float atomicAdd(float *p, float v)
{
    return emulated_add_float<float, unsigned>(p, v);
}
static inline double atomicAdd(double *p, double v)
{
    return emulated_add_float<double, unsigned long long>(p, v);
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
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <typename T> static inline void __stcg(T *p, T v)
{
    *p = v;
}
template <typename To, typename From> static inline To emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline float __int_as_float(int v)
{
    return emulated_bits<float>(v);
}
static inline float __uint_as_float(unsigned v)
{
    return emulated_bits<float>(v);
}
static inline int __float_as_int(float v)
{
    return emulated_bits<int>(v);
}
static inline unsigned __float_as_uint(float v)
{
    return emulated_bits<unsigned>(v);
}
static inline double __longlong_as_double(long long v)
{
    return emulated_bits<double>(v);
}
static inline long long __double_as_longlong(double v)
{
    return emulated_bits<long long>(v);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
/* glibc has functions of these names */
#define __expf(a)    expf(a)
#define __logf(a)    logf(a)
#define __log2f(a)   log2f(a)
#define __powf(a, b) powf(a, b)
#define __sinf(a)    sinf(a)
#define __cosf(a)    cosf(a)
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __saturatef(float a)
{
    return a < 0 || a != a ? 0 : a > 1 ? 1 : a;
}
static inline float rsqrtf(float a)
{
    return 1.0f / sqrtf(a);
}
static inline double rsqrt(double a)
{
    return 1.0 / sqrt(a);
}
static inline int __float2int_rn(float a)
{
    return (int)rintf(a);
}
static inline int __float2int_rz(float a)
{
    return (int)a;
}
static inline float __int2float_rn(int a)
{
    return (float)a;
}
static inline float __uint2float_rn(unsigned a)
{
    return (float)a;
}
static inline float __double2float_rn(double a)
{
    return (float)a;
}
static inline int __popc(unsigned a)
{
    return __builtin_popcount(a);
}
static inline int __popcll(unsigned long long a)
{
    return __builtin_popcountll(a);
}
static inline int __clz(int a)
{
    return a == 0 ? 32 : __builtin_clz((unsigned)a);
}
static inline int __clzll(long long a)
{
    return a == 0 ? 64 : __builtin_clzll((unsigned long long)a);
}
static inline int __ffs(int a)
{
    return __builtin_ffs(a);
}
static inline int __ffsll(long long a)
{
    return __builtin_ffsll(a);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __brev(unsigned a)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (a >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> (8 * (select >> (4 * i) & 7)) & 0xff) << (8 * i);
    return r;
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
