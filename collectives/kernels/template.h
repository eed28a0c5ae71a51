/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/template.h: the bodies of the reduction kernels, once for every instruction set.
 *
 * Included by avx2.c, avx512.c, neon.c and scalar.c, each of which first defines
 *   KERNEL_TABLE   the table to define      KERNEL_NAME   its name, a string
 * and, where the set has instructions for halves, how to work on KERNEL_HALF_WIDTH of them at once:
 *   kernel_half_v                a vector of that many floats, with + * and / on it
 *   kernel_half_load(p)          from unaligned halves          kernel_half_store(p, v)   rounds to nearest
 *   even
 *   kernel_half_round(v)         as if stored and loaded        kernel_half_splat(f)      f in every lane
 *
 * Only with KERNEL_ALL_TYPES (scalar.c) the table has the 8-bit floats and the pairs: they take long to
 * compile, and are served by that table whatever the set (reduce.c).
 *
 * All else is plain loops over elements, which the compiler turns into vectors of the file's -m flags: types
 * of alignment 1 give unaligned loads; KERNEL_LOOP says that iterations are independent (dst may be exactly
 * one of the sources, never a shifted one).
 *
 * The bits are the same in every set: integer arithmetic wraps, float sums and products are single IEEE
 * operations in a fixed order (the build forbids contraction), min and max are integer comparisons. Only
 * which NaN comes out of a sum or product of NaNs is not promised: compilers may swap operands. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "collectives/kernels/accumulate.h"
#include "collectives/kernels/exact_steps.h"
#include "collectives/kernels/float16.h"
#include "collectives/kernels/float8.h"
#include "collectives/kernels/isa.h"

#if defined(__clang__)
/* Loops that are vectors already, or that no vector can do. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define KERNEL_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define KERNEL_LOOP _Pragma("GCC ivdep")
#endif

#define KERNEL_UNALIGNED __attribute__((aligned(1), may_alias))
typedef uint8_t kernel_u8 KERNEL_UNALIGNED;
typedef int8_t kernel_i8 KERNEL_UNALIGNED;
typedef uint16_t kernel_u16 KERNEL_UNALIGNED;
typedef int16_t kernel_i16 KERNEL_UNALIGNED;
typedef uint32_t kernel_u32 KERNEL_UNALIGNED;
typedef int32_t kernel_i32 KERNEL_UNALIGNED;
typedef uint64_t kernel_u64 KERNEL_UNALIGNED;
typedef int64_t kernel_i64 KERNEL_UNALIGNED;
typedef float kernel_f32 KERNEL_UNALIGNED;
typedef double kernel_f64 KERNEL_UNALIGNED;

#ifndef KERNEL_HALF_WIDTH
#define KERNEL_HALF_WIDTH 1
typedef float kernel_half_v;
static inline float kernel_half_load(const kernel_u16 *p)
{
    return kernel_from_half(*p);
}
static inline void kernel_half_store(kernel_u16 *p, float v)
{
    *p = kernel_to_half(v);
}
static inline float kernel_half_round(float v)
{
    return kernel_from_half(kernel_to_half(v));
}
static inline float kernel_half_splat(float f)
{
    return f;
}
#endif

/* The last count < width elements: through buffers of a full width, with the same function. */
static inline void kernel_tail(kernel_reduce_fn fn, void *dst, const void *const *srcs, int k, size_t at,
                               size_t count, size_t width, size_t elem)
{
    unsigned char padded[8][KERNEL_HALF_WIDTH * 8] = {{0}};
    unsigned char result[KERNEL_HALF_WIDTH * 8];
    const void *rows[8];
    for (int s = 0; s < k; s++) {
        memcpy(padded[s], (const unsigned char *)srcs[s] + at * elem, (count - at) * elem);
        rows[s] = padded[s];
    }
    fn(result, rows, width);
    memcpy((unsigned char *)dst + at * elem, result, (count - at) * elem);
}

/* One kernel: NAME reduces K sources of T, WIDTH elements a step, by EXPRESSION over V(0), V(1), ... */
#define DEFINE_KERNEL(NAME, K, T, WIDTH, LOAD, STORE, EXPRESSION)            \
    static void NAME(void *dst, const void *const *srcs, size_t count)       \
    {                                                                        \
        T *d = dst;                                                          \
        const T *s[K];                                                       \
        for (int j = 0; j < (K); j++)                                        \
            s[j] = srcs[j];                                                  \
        size_t i = 0;                                                        \
        KERNEL_LOOP                                                          \
        for (; i + (WIDTH) <= count; i += (WIDTH))                           \
            STORE(d + i, EXPRESSION);                                        \
        if ((WIDTH) > 1 && i < count)                                        \
            kernel_tail(NAME, dst, srcs, (K), i, count, (WIDTH), sizeof(T)); \
    }

/* The canonical trees over 2, 3, 4 and 8 sources. OP combines two values, ROUND brings a partial result to
 * the precision that it would have if it travelled; STORE does that for the last one. */
#define DEFINE_REDUCE(NAME, T, WIDTH, LOAD, STORE, ROUND, OP)                                               \
    DEFINE_KERNEL(NAME##_2, 2, T, WIDTH, LOAD, STORE, OP(LOAD(s[0] + i), LOAD(s[1] + i)))                   \
    DEFINE_KERNEL(NAME##_3, 3, T, WIDTH, LOAD, STORE,                                                       \
                  OP(ROUND(OP(LOAD(s[0] + i), LOAD(s[1] + i))), LOAD(s[2] + i)))                            \
    DEFINE_KERNEL(NAME##_4, 4, T, WIDTH, LOAD, STORE,                                                       \
                  OP(ROUND(OP(LOAD(s[0] + i), LOAD(s[1] + i))), ROUND(OP(LOAD(s[2] + i), LOAD(s[3] + i))))) \
    DEFINE_KERNEL(                                                                                          \
        NAME##_8, 8, T, WIDTH, LOAD, STORE,                                                                 \
        OP(ROUND(OP(ROUND(OP(LOAD(s[0] + i), LOAD(s[1] + i))), ROUND(OP(LOAD(s[2] + i), LOAD(s[3] + i))))), \
           ROUND(OP(ROUND(OP(LOAD(s[4] + i), LOAD(s[5] + i))), ROUND(OP(LOAD(s[6] + i), LOAD(s[7] + i)))))))

#define PLAIN_LOAD(p)      (*(p))
#define PLAIN_STORE(p, v)  (*(p) = (v))
#define PLAIN_ROUND(v)     (v)
#define BFLOAT_LOAD(p)     kernel_from_bfloat(*(p))
#define BFLOAT_STORE(p, v) (*(p) = kernel_to_bfloat(v))
#define BFLOAT_ROUND(v)    kernel_round_bfloat(v)
#define FLOAT_SUM(a, b)    ((a) + (b))
#define FLOAT_PROD(a, b)   ((a) * (b))

/* Integers wrap: unsigned, and at least 32 bits wide so that no promotion makes them signed. */
#define DEFINE_INTEGER_OPS(T, NAME, WIDE) \
    static inline T NAME##_add(T a, T b)  \
    {                                     \
        return (T)((WIDE)a + (WIDE)b);    \
    }                                     \
    static inline T NAME##_mul(T a, T b)  \
    {                                     \
        return (T)((WIDE)a * (WIDE)b);    \
    }
DEFINE_INTEGER_OPS(uint8_t, kernel_u8, uint32_t)
DEFINE_INTEGER_OPS(uint16_t, kernel_u16, uint32_t)
DEFINE_INTEGER_OPS(uint32_t, kernel_u32, uint32_t)
DEFINE_INTEGER_OPS(uint64_t, kernel_u64, uint64_t)

#define DEFINE_INTEGER_ORDER(T, NAME)     \
    static inline T NAME##_less(T a, T b) \
    {                                     \
        return b < a ? b : a;             \
    }                                     \
    static inline T NAME##_more(T a, T b) \
    {                                     \
        return a < b ? b : a;             \
    }
DEFINE_INTEGER_ORDER(uint8_t, kernel_u8)
DEFINE_INTEGER_ORDER(int8_t, kernel_i8)
DEFINE_INTEGER_ORDER(uint16_t, kernel_u16)
DEFINE_INTEGER_ORDER(int16_t, kernel_i16)
DEFINE_INTEGER_ORDER(uint32_t, kernel_u32)
DEFINE_INTEGER_ORDER(int32_t, kernel_i32)
DEFINE_INTEGER_ORDER(uint64_t, kernel_u64)
DEFINE_INTEGER_ORDER(int64_t, kernel_i64)

/* Floats of any width as their bits: flipping the magnitude of the negative ones makes signed integers that
 * order as the floats do, -0 below +0. A NaN wins over everything, the left one over the right one. */
#define DEFINE_FLOAT_ORDER(U, S, NAME, BITS, INFINITE)                  \
    static inline S NAME##_key(U x)                                     \
    {                                                                   \
        U sign = (U)(x >> ((BITS)-1));                                  \
        return (S)(x ^ ((U)((U)0 - sign) >> 1));                        \
    }                                                                   \
    static inline U NAME##_nan(U a, U b, U otherwise)                   \
    {                                                                   \
        U magnitude = (U) ~((U)1 << ((BITS)-1));                        \
        U r = (b & magnitude) > (INFINITE) ? b : otherwise;             \
        return (a & magnitude) > (INFINITE) ? a : r;                    \
    }                                                                   \
    static inline U NAME##_less(U a, U b)                               \
    {                                                                   \
        return NAME##_nan(a, b, NAME##_key(b) < NAME##_key(a) ? b : a); \
    }                                                                   \
    static inline U NAME##_more(U a, U b)                               \
    {                                                                   \
        return NAME##_nan(a, b, NAME##_key(a) < NAME##_key(b) ? b : a); \
    }
#ifdef KERNEL_ALL_TYPES
DEFINE_FLOAT_ORDER(uint8_t, int8_t, kernel_e4m3, 8, 0x7eu)
DEFINE_FLOAT_ORDER(uint8_t, int8_t, kernel_e5m2, 8, 0x7cu)
#endif
DEFINE_FLOAT_ORDER(uint16_t, int16_t, kernel_half, 16, 0x7c00u)
DEFINE_FLOAT_ORDER(uint16_t, int16_t, kernel_bfloat, 16, 0x7f80u)
DEFINE_FLOAT_ORDER(uint32_t, int32_t, kernel_float, 32, 0x7f800000u)
DEFINE_FLOAT_ORDER(uint64_t, int64_t, kernel_double, 64, 0x7ff0000000000000u)

#define DEFINE_PLAIN(NAME, T, OP) DEFINE_REDUCE(NAME, T, 1, PLAIN_LOAD, PLAIN_STORE, PLAIN_ROUND, OP)
/* Signed and unsigned integers of one width share sums and products. */
DEFINE_PLAIN(sum_8, kernel_u8, kernel_u8_add)
DEFINE_PLAIN(sum_16, kernel_u16, kernel_u16_add)
DEFINE_PLAIN(sum_32, kernel_u32, kernel_u32_add)
DEFINE_PLAIN(sum_64, kernel_u64, kernel_u64_add)
DEFINE_PLAIN(sum_f32, kernel_f32, FLOAT_SUM)
DEFINE_PLAIN(sum_f64, kernel_f64, FLOAT_SUM)
DEFINE_REDUCE(sum_f16, kernel_u16, KERNEL_HALF_WIDTH, kernel_half_load, kernel_half_store, kernel_half_round,
              FLOAT_SUM)
DEFINE_REDUCE(sum_b16, kernel_u16, 1, BFLOAT_LOAD, BFLOAT_STORE, BFLOAT_ROUND, FLOAT_SUM)
DEFINE_PLAIN(prod_8, kernel_u8, kernel_u8_mul)
DEFINE_PLAIN(prod_16, kernel_u16, kernel_u16_mul)
DEFINE_PLAIN(prod_32, kernel_u32, kernel_u32_mul)
DEFINE_PLAIN(prod_64, kernel_u64, kernel_u64_mul)
DEFINE_PLAIN(prod_f32, kernel_f32, FLOAT_PROD)
DEFINE_PLAIN(prod_f64, kernel_f64, FLOAT_PROD)
DEFINE_REDUCE(prod_f16, kernel_u16, KERNEL_HALF_WIDTH, kernel_half_load, kernel_half_store, kernel_half_round,
              FLOAT_PROD)
DEFINE_REDUCE(prod_b16, kernel_u16, 1, BFLOAT_LOAD, BFLOAT_STORE, BFLOAT_ROUND, FLOAT_PROD)

#ifdef KERNEL_ALL_TYPES
#define E4M3_LOAD(p)     kernel_from_e4m3(*(p))
#define E4M3_STORE(p, v) (*(p) = kernel_to_e4m3(v))
#define E4M3_ROUND(v)    kernel_from_e4m3(kernel_to_e4m3(v))
#define E5M2_LOAD(p)     kernel_from_e5m2(*(p))
#define E5M2_STORE(p, v) (*(p) = kernel_to_e5m2(v))
#define E5M2_ROUND(v)    kernel_from_e5m2(kernel_to_e5m2(v))
DEFINE_REDUCE(sum_e4m3, kernel_u8, 1, E4M3_LOAD, E4M3_STORE, E4M3_ROUND, FLOAT_SUM)
DEFINE_REDUCE(sum_e5m2, kernel_u8, 1, E5M2_LOAD, E5M2_STORE, E5M2_ROUND, FLOAT_SUM)
DEFINE_REDUCE(prod_e4m3, kernel_u8, 1, E4M3_LOAD, E4M3_STORE, E4M3_ROUND, FLOAT_PROD)
DEFINE_REDUCE(prod_e5m2, kernel_u8, 1, E5M2_LOAD, E5M2_STORE, E5M2_ROUND, FLOAT_PROD)
#endif

/* Complex sums are sums of twice as many floats. */
#define DEFINE_PAIRWISE(NAME, OF)                                      \
    static void NAME(void *dst, const void *const *srcs, size_t count) \
    {                                                                  \
        OF(dst, srcs, 2 * count);                                      \
    }
#define DEFINE_COMPLEX_SUM(NAME, OF)  \
    DEFINE_PAIRWISE(NAME##_2, OF##_2) \
    DEFINE_PAIRWISE(NAME##_3, OF##_3) \
    DEFINE_PAIRWISE(NAME##_4, OF##_4) \
    DEFINE_PAIRWISE(NAME##_8, OF##_8)
DEFINE_COMPLEX_SUM(sum_c64, sum_f32)
DEFINE_COMPLEX_SUM(sum_c128, sum_f64)

/* (a + bi)(c + di) = (ac - bd) + (ad + bc)i: four products, each rounded, then a difference and a sum. */
typedef struct __attribute__((packed, may_alias)) {
    float re, im;
} kernel_c64;
typedef struct __attribute__((packed, may_alias)) {
    double re, im;
} kernel_c128;
/* GCC 12 makes fused operations of a difference next to a sum, -ffp-contract=off or not (fmaddsub), unless
 * the products pass where it cannot look. */
#if defined(__x86_64__)
#define KERNEL_ROUNDED(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define KERNEL_ROUNDED(x) __asm__("" : "+w"(x))
#else
#define KERNEL_ROUNDED(x) ((void)0)
#endif
#define DEFINE_COMPLEX_PROD(NAME, T, PART)                                           \
    static inline T T##_mul(T a, T b)                                                \
    {                                                                                \
        PART ac = a.re * b.re, bd = a.im * b.im, ad = a.re * b.im, bc = a.im * b.re; \
        KERNEL_ROUNDED(ac);                                                          \
        KERNEL_ROUNDED(bd);                                                          \
        KERNEL_ROUNDED(ad);                                                          \
        KERNEL_ROUNDED(bc);                                                          \
        return (T){ac - bd, ad + bc};                                                \
    }                                                                                \
    DEFINE_PLAIN(NAME, T, T##_mul)
DEFINE_COMPLEX_PROD(prod_c64, kernel_c64, float)
DEFINE_COMPLEX_PROD(prod_c128, kernel_c128, double)

/* Bits are the same for signed and unsigned integers, and so is whether a number is 0. */
#define DEFINE_BITS(NAME, EXPRESSION)                                \
    static inline uint8_t kernel_u8_##NAME(uint8_t a, uint8_t b)     \
    {                                                                \
        return (uint8_t)(EXPRESSION);                                \
    }                                                                \
    static inline uint16_t kernel_u16_##NAME(uint16_t a, uint16_t b) \
    {                                                                \
        return (uint16_t)(EXPRESSION);                               \
    }                                                                \
    static inline uint32_t kernel_u32_##NAME(uint32_t a, uint32_t b) \
    {                                                                \
        return (uint32_t)(EXPRESSION);                               \
    }                                                                \
    static inline uint64_t kernel_u64_##NAME(uint64_t a, uint64_t b) \
    {                                                                \
        return (uint64_t)(EXPRESSION);                               \
    }                                                                \
    DEFINE_PLAIN(NAME##_8, kernel_u8, kernel_u8_##NAME)              \
    DEFINE_PLAIN(NAME##_16, kernel_u16, kernel_u16_##NAME)           \
    DEFINE_PLAIN(NAME##_32, kernel_u32, kernel_u32_##NAME)           \
    DEFINE_PLAIN(NAME##_64, kernel_u64, kernel_u64_##NAME)
DEFINE_BITS(band, (a & b))
DEFINE_BITS(bor, a | b)
DEFINE_BITS(bxor, a ^ b)
DEFINE_BITS(land, (a != 0) & (b != 0))
DEFINE_BITS(lor, (a | b) != 0)
DEFINE_BITS(lxor, (a != 0) ^ (b != 0))

#ifdef KERNEL_ALL_TYPES
/* Pairs, loaded as the bits of the value and an index. KEY makes of the bits a number that orders as min and
 * max do; a NaN is the first of all, so equal keys are one value or two NaNs. Equal in both: the left one. */
#define DEFINE_LOCATION(NAME, STRUCT, U, S, KEY)                               \
    typedef struct {                                                           \
        U value;                                                               \
        int32_t index;                                                         \
    } NAME##_pair;                                                             \
    static inline NAME##_pair NAME##_load(const unsigned char *p)              \
    {                                                                          \
        NAME##_pair x;                                                         \
        memcpy(&x.value, p, sizeof x.value);                                   \
        memcpy(&x.index, p + offsetof(STRUCT, index), sizeof x.index);         \
        return x;                                                              \
    }                                                                          \
    static inline void NAME##_store(unsigned char *p, NAME##_pair x)           \
    {                                                                          \
        memset(p, 0, sizeof(STRUCT)); /* padding */                            \
        memcpy(p, &x.value, sizeof x.value);                                   \
        memcpy(p + offsetof(STRUCT, index), &x.index, sizeof x.index);         \
    }                                                                          \
    static inline NAME##_pair minloc_##NAME##_of(NAME##_pair a, NAME##_pair b) \
    {                                                                          \
        const S x = KEY(a.value, 0), y = KEY(b.value, 0);                      \
        return y < x || (y == x && b.index < a.index) ? b : a;                 \
    }                                                                          \
    static inline NAME##_pair maxloc_##NAME##_of(NAME##_pair a, NAME##_pair b) \
    {                                                                          \
        const S x = KEY(a.value, 1), y = KEY(b.value, 1);                      \
        return y > x || (y == x && b.index < a.index) ? b : a;                 \
    }                                                                          \
    DEFINE_LOCATIONS(minloc_##NAME, NAME, STRUCT, minloc_##NAME##_of)          \
    DEFINE_LOCATIONS(maxloc_##NAME, NAME, STRUCT, maxloc_##NAME##_of)
#define LOCATION_AT(NAME, STRUCT, j) NAME##_load(s[j] + i * sizeof(STRUCT))
#define DEFINE_LOCATION_KERNEL(NAME, K, PAIR, STRUCT, EXPRESSION)      \
    static void NAME(void *dst, const void *const *srcs, size_t count) \
    {                                                                  \
        unsigned char *d = dst;                                        \
        const unsigned char *s[K];                                     \
        for (int j = 0; j < (K); j++)                                  \
            s[j] = srcs[j];                                            \
        for (size_t i = 0; i < count; i++)                             \
            PAIR##_store(d + i * sizeof(STRUCT), EXPRESSION);          \
    }
#define DEFINE_LOCATIONS(NAME, PAIR, STRUCT, OP)                                                        \
    static inline PAIR##_pair NAME##_pairs(const unsigned char *const *s, int j, size_t i)              \
    {                                                                                                   \
        return OP(LOCATION_AT(PAIR, STRUCT, j), LOCATION_AT(PAIR, STRUCT, j + 1));                      \
    }                                                                                                   \
    DEFINE_LOCATION_KERNEL(NAME##_2, 2, PAIR, STRUCT, NAME##_pairs(s, 0, i))                            \
    DEFINE_LOCATION_KERNEL(NAME##_3, 3, PAIR, STRUCT,                                                   \
                           OP(NAME##_pairs(s, 0, i), LOCATION_AT(PAIR, STRUCT, 2)))                     \
    DEFINE_LOCATION_KERNEL(NAME##_4, 4, PAIR, STRUCT, OP(NAME##_pairs(s, 0, i), NAME##_pairs(s, 2, i))) \
    DEFINE_LOCATION_KERNEL(NAME##_8, 8, PAIR, STRUCT,                                                   \
                           OP(OP(NAME##_pairs(s, 0, i), NAME##_pairs(s, 2, i)),                         \
                              OP(NAME##_pairs(s, 4, i), NAME##_pairs(s, 6, i))))
#define SIGNED_KEY(T)                            \
    static inline T kernel_key_##T(T x, int max) \
    {                                            \
        (void)max;                               \
        return x;                                \
    }
SIGNED_KEY(int16_t)
SIGNED_KEY(int32_t)
SIGNED_KEY(int64_t)
/* Keys of numbers lie strictly between the two ends, which no finite number or infinity has. */
static inline int32_t kernel_key_float(uint32_t x, int max)
{
    const int32_t first = max ? INT32_MAX : INT32_MIN;
    return (x & 0x7fffffffu) > 0x7f800000u ? first : kernel_float_key(x);
}
static inline int64_t kernel_key_double(uint64_t x, int max)
{
    const int64_t first = max ? INT64_MAX : INT64_MIN;
    return (x & 0x7fffffffffffffffu) > 0x7ff0000000000000u ? first : kernel_double_key(x);
}
DEFINE_LOCATION(f32, gyre_float32_int32_t, uint32_t, int32_t, kernel_key_float)
DEFINE_LOCATION(f64, gyre_float64_int32_t, uint64_t, int64_t, kernel_key_double)
DEFINE_LOCATION(i32, gyre_int32_int32_t, int32_t, int32_t, kernel_key_int32_t)
DEFINE_LOCATION(i64, gyre_int64_int32_t, int64_t, int64_t, kernel_key_int64_t)
DEFINE_LOCATION(i16, gyre_int16_int32_t, int16_t, int16_t, kernel_key_int16_t)
#endif

#define DEFINE_ORDERED(NAME, T, OPS)        \
    DEFINE_PLAIN(min_##NAME, T, OPS##_less) \
    DEFINE_PLAIN(max_##NAME, T, OPS##_more)
DEFINE_ORDERED(i8, kernel_i8, kernel_i8)
DEFINE_ORDERED(u8, kernel_u8, kernel_u8)
DEFINE_ORDERED(i16, kernel_i16, kernel_i16)
DEFINE_ORDERED(u16, kernel_u16, kernel_u16)
DEFINE_ORDERED(i32, kernel_i32, kernel_i32)
DEFINE_ORDERED(u32, kernel_u32, kernel_u32)
DEFINE_ORDERED(i64, kernel_i64, kernel_i64)
DEFINE_ORDERED(u64, kernel_u64, kernel_u64)
#ifdef KERNEL_ALL_TYPES
DEFINE_ORDERED(e4m3, kernel_u8, kernel_e4m3)
DEFINE_ORDERED(e5m2, kernel_u8, kernel_e5m2)
#endif
DEFINE_ORDERED(f16, kernel_u16, kernel_half)
DEFINE_ORDERED(b16, kernel_u16, kernel_bfloat)
DEFINE_ORDERED(f32, kernel_u32, kernel_float)
DEFINE_ORDERED(f64, kernel_u64, kernel_double)

/* ---- scaling and dividing ---- */
#define DEFINE_SCALE(NAME, T, EXPRESSION)                                                             \
    static void scale_##NAME(void *dst, const void *src, size_t count, double factor, uint64_t whole) \
    {                                                                                                 \
        T *d = dst;                                                                                   \
        const T *s = src;                                                                             \
        const float single = (float)factor;                                                           \
        (void)whole, (void)single;                                                                    \
        KERNEL_LOOP                                                                                   \
        for (size_t i = 0; i < count; i++)                                                            \
            d[i] = EXPRESSION;                                                                        \
    }
DEFINE_SCALE(8, kernel_u8, kernel_u8_mul(s[i], (uint8_t)whole))
DEFINE_SCALE(16, kernel_u16, kernel_u16_mul(s[i], (uint16_t)whole))
DEFINE_SCALE(32, kernel_u32, kernel_u32_mul(s[i], (uint32_t)whole))
DEFINE_SCALE(64, kernel_u64, kernel_u64_mul(s[i], whole))
DEFINE_SCALE(b16, kernel_u16, kernel_to_bfloat(kernel_from_bfloat(s[i]) * single))
DEFINE_SCALE(f32, kernel_f32, s[i] * single)
DEFINE_SCALE(f64, kernel_f64, s[i] * factor)
#ifdef KERNEL_ALL_TYPES
DEFINE_SCALE(e4m3, kernel_u8, kernel_to_e4m3(kernel_from_e4m3(s[i]) * single))
DEFINE_SCALE(e5m2, kernel_u8, kernel_to_e5m2(kernel_from_e5m2(s[i]) * single))
#endif

#define DEFINE_DIVIDE(NAME, T, C, EXPRESSION)                 \
    static void divide_##NAME(void *buf, size_t count, int n) \
    {                                                         \
        T *d = buf;                                           \
        const C by = (C)n;                                    \
        KERNEL_LOOP                                           \
        for (size_t i = 0; i < count; i++)                    \
            d[i] = EXPRESSION;                                \
    }
/* Integers that a float holds exactly are divided as floats, which has vectors; truncating gives the integer
 * quotient: a true quotient that is no integer is at least 1/n away from the next, rounding moves it by less
 * than x / 2^24 / n (fp64: x / 2^53 / n), and x is below 2^16 (2^32). */
DEFINE_DIVIDE(i8, kernel_i8, float, (int8_t)(int32_t)((float)d[i] / by))
DEFINE_DIVIDE(u8, kernel_u8, float, (uint8_t)(int32_t)((float)d[i] / by))
DEFINE_DIVIDE(i16, kernel_i16, float, (int16_t)(int32_t)((float)d[i] / by))
DEFINE_DIVIDE(u16, kernel_u16, float, (uint16_t)(int32_t)((float)d[i] / by))
DEFINE_DIVIDE(i32, kernel_i32, double, (int32_t)(d[i] / by))
DEFINE_DIVIDE(u32, kernel_u32, double, (uint32_t)(d[i] / by))
DEFINE_DIVIDE(i64, kernel_i64, int64_t, d[i] / by)
DEFINE_DIVIDE(u64, kernel_u64, uint64_t, d[i] / by)
DEFINE_DIVIDE(b16, kernel_u16, float, kernel_to_bfloat(kernel_from_bfloat(d[i]) / by))
DEFINE_DIVIDE(f32, kernel_f32, float, d[i] / by)
DEFINE_DIVIDE(f64, kernel_f64, double, d[i] / by)
#ifdef KERNEL_ALL_TYPES
DEFINE_DIVIDE(e4m3, kernel_u8, float, kernel_to_e4m3(kernel_from_e4m3(d[i]) / by))
DEFINE_DIVIDE(e5m2, kernel_u8, float, kernel_to_e5m2(kernel_from_e5m2(d[i]) / by))
#endif

#define DEFINE_COMPLEX(NAME, OF)                                                                      \
    static void scale_##NAME(void *dst, const void *src, size_t count, double factor, uint64_t whole) \
    {                                                                                                 \
        scale_##OF(dst, src, 2 * count, factor, whole);                                               \
    }                                                                                                 \
    static void divide_##NAME(void *buf, size_t count, int n)                                         \
    {                                                                                                 \
        divide_##OF(buf, 2 * count, n);                                                               \
    }
DEFINE_COMPLEX(c64, f32)
DEFINE_COMPLEX(c128, f64)

/* Halves: whole vectors, then a padded one. */
#define DEFINE_HALF_MAP(NAME, OP)                                                     \
    static void NAME(kernel_u16 *d, const kernel_u16 *s, size_t count, float operand) \
    {                                                                                 \
        const kernel_half_v by = kernel_half_splat(operand);                          \
        size_t i = 0;                                                                 \
        for (; i + KERNEL_HALF_WIDTH <= count; i += KERNEL_HALF_WIDTH)                \
            kernel_half_store(d + i, kernel_half_load(s + i) OP by);                  \
        if (i < count) {                                                              \
            uint16_t padded[KERNEL_HALF_WIDTH] = {0};                                 \
            memcpy(padded, s + i, (count - i) * sizeof *padded);                      \
            kernel_half_store(padded, kernel_half_load(padded) OP by);                \
            memcpy(d + i, padded, (count - i) * sizeof *padded);                      \
        }                                                                             \
    }
DEFINE_HALF_MAP(kernel_half_times, *)
DEFINE_HALF_MAP(kernel_half_over, /)

static void scale_f16(void *dst, const void *src, size_t count, double factor, uint64_t whole)
{
    (void)whole;
    kernel_half_times(dst, src, count, (float)factor);
}

static void divide_f16(void *buf, size_t count, int n)
{
    kernel_half_over(buf, buf, count, (float)n);
}

/* ---- exact sums ---- */
#include "collectives/kernels/exact_loops.h"
#include "collectives/kernels/accumulate_loops.h"

/* ---- the table ---- */
#define ROW(NAME)                              \
    {                                          \
        NAME##_2, NAME##_3, NAME##_4, NAME##_8 \
    }
#ifdef KERNEL_ALL_TYPES
#define FLOAT8_ROWS(OP) , [GYRE_FLOAT8_E4M3] = ROW(OP##_e4m3), [GYRE_FLOAT8_E5M2] = ROW(OP##_e5m2)
#define FLOAT8_MAPS(OP) , OP##_e4m3, OP##_e5m2
#else
#define FLOAT8_ROWS(OP)
#define FLOAT8_MAPS(OP)
#endif
#define FLOAT_ROWS(OP)                                                                               \
    [GYRE_FLOAT16] = ROW(OP##_f16), [GYRE_BFLOAT16] = ROW(OP##_b16), [GYRE_FLOAT32] = ROW(OP##_f32), \
    [GYRE_FLOAT64] = ROW(OP##_f64) FLOAT8_ROWS(OP)
#define WIDTH_ROWS(OP)                                                                       \
    [GYRE_INT8] = ROW(OP##_8), [GYRE_UINT8] = ROW(OP##_8), [GYRE_INT16] = ROW(OP##_16),      \
    [GYRE_UINT16] = ROW(OP##_16), [GYRE_INT32] = ROW(OP##_32), [GYRE_UINT32] = ROW(OP##_32), \
    [GYRE_INT64] = ROW(OP##_64), [GYRE_UINT64] = ROW(OP##_64)
#define SHARED_ROWS(OP)                                                                                      \
    {                                                                                                        \
        WIDTH_ROWS(OP), FLOAT_ROWS(OP), [GYRE_COMPLEX64] = ROW(OP##_c64), [GYRE_COMPLEX128] = ROW(OP##_c128) \
    }
#define ORDERED_ROWS(OP)                                                                            \
    {                                                                                               \
        [GYRE_INT8] = ROW(OP##_i8), [GYRE_UINT8] = ROW(OP##_u8), [GYRE_INT16] = ROW(OP##_i16),      \
        [GYRE_UINT16] = ROW(OP##_u16), [GYRE_INT32] = ROW(OP##_i32), [GYRE_UINT32] = ROW(OP##_u32), \
        [GYRE_INT64] = ROW(OP##_i64), [GYRE_UINT64] = ROW(OP##_u64), FLOAT_ROWS(OP)                 \
    }
#define INTEGER_ROWS(OP)                          \
    {                                             \
        WIDTH_ROWS(OP), [GYRE_BOOL] = ROW(OP##_8) \
    }
#ifdef KERNEL_ALL_TYPES
#define LOCATION_ROWS(OP)                                                           \
    {                                                                               \
        [GYRE_FLOAT32_INT32] = ROW(OP##_f32), [GYRE_FLOAT64_INT32] = ROW(OP##_f64), \
        [GYRE_INT32_INT32] = ROW(OP##_i32), [GYRE_INT64_INT32] = ROW(OP##_i64),     \
        [GYRE_INT16_INT32] = ROW(OP##_i16)                                          \
    }
#else
#define LOCATION_ROWS(OP) \
    {                     \
        {                 \
            NULL          \
        }                 \
    }
#endif

/* A type without a row does not have the reduction. */
const kernel_table_t KERNEL_TABLE = {
    .name = KERNEL_NAME,
    .exact = &exact_table,
    .accumulate = &accumulate_table,
    .reduce =
        {
#define REDOP(id, name, kernels, device) [GYRE_##id] = kernels,
#include "base/redops.def"
#undef REDOP
        },
    .scale = {scale_8, scale_8, scale_16, scale_16, scale_32, scale_32, scale_64, scale_64, scale_f16,
              scale_b16, scale_f32, scale_f64, NULL, scale_c64, scale_c128 FLOAT8_MAPS(scale)},
    .divide = {divide_i8, divide_u8, divide_i16, divide_u16, divide_i32, divide_u32, divide_i64, divide_u64,
               divide_f16, divide_b16, divide_f32, divide_f64, NULL, divide_c64,
               divide_c128 FLOAT8_MAPS(divide)},
};
