/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/sums/arithmetic.h: what reductions do with two values, for device code: the bits of
 * collectives/kernels/kernels.h.
 *
 * A type is a struct with
 *   value          how an element lies in memory
 *   sum, prod (a, b), first(a, b, order)    one combination, rounded to the type; first: minimum or maximum
 *   scale(a, factor, whole)                 the input of a scaled sum
 *   divide(a, sign, n)                      the end of an average; integers are truncated towards zero
 * 16-bit floats are combined in fp32 and rounded once; integers wrap; minima and maxima compare bits, so
 * that -0 is below +0 and a NaN wins. Compiled without contraction (--fmad=false), so that a sum of
 * products would not fuse. */
#ifndef COLLECTIVES_GPU_SUMS_ARITHMETIC_H
#define COLLECTIVES_GPU_SUMS_ARITHMETIC_H

#include <stdint.h>
#include <string.h>

#include "base/device/kernel.h"
#ifdef GYRE_EMULATED
#include "collectives/kernels/float16.h"
#endif

/* How two values are compared: one function serves minimum and maximum, signed and unsigned, so that fewer
 * are compiled. */
struct coll_order_t {
    uint64_t sign; /* integers: the sign bit of a signed type, else 0 */
    int most;      /* the larger one wins */
};

/* ---- integers: sums and products in an unsigned type of at least 32 bits, which wraps ---- */
template <typename V, typename W> struct coll_integer {
    typedef V value;
    enum { is_float = 0 };
    /* Signed and unsigned types share this. sign: as in coll_order_t. */
    static __device__ __forceinline__ V divide(V a, uint64_t sign, int n)
    {
        if (a & (V)sign)
            return (V)((V)0 - (V)((W)(V)((V)0 - a) / (W)n));
        return (V)((W)a / (W)n);
    }
    static __device__ __forceinline__ V sum(V a, V b) { return (V)((W)a + (W)b); }
    static __device__ __forceinline__ V prod(V a, V b) { return (V)((W)a * (W)b); }
    static __device__ __forceinline__ V first(V a, V b, const coll_order_t &order)
    {
        const V x = (V)(a ^ (V)order.sign), y = (V)(b ^ (V)order.sign);
        return (order.most ? x < y : y < x) ? b : a;
    }
    static __device__ __forceinline__ V scale(V a, double, uint64_t whole) { return (V)((W)a * (W)whole); }
};

/* ---- the order of floats of any width, by their bits ---- */
template <typename U, typename S, int BITS, uint64_t INFINITE> struct coll_float_order {
    static __device__ __forceinline__ S key(U x)
    {
        const U sign = (U)(x >> (BITS - 1));
        return (S)(x ^ ((U)((U)0 - sign) >> 1));
    }
    static __device__ __forceinline__ U first(U a, U b, const coll_order_t &order)
    {
        const U magnitude = (U) ~((U)1 << (BITS - 1));
        const S x = key(a), y = key(b);
        const U by_order = (order.most ? x < y : y < x) ? b : a;
        const U r = (U)(b & magnitude) > (U)INFINITE ? b : by_order;
        return (U)(a & magnitude) > (U)INFINITE ? a : r;
    }
};

/* ---- 16-bit floats ---- */
struct coll_half_format {
    static __device__ __forceinline__ float load(uint16_t x)
    {
#ifdef GYRE_EMULATED
        return kernel_from_half(x);
#else
        return __half2float(__ushort_as_half(x));
#endif
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
#ifdef GYRE_EMULATED
        return kernel_to_half(x);
#else
        return __half_as_ushort(__float2half_rn(x));
#endif
    }
    typedef coll_float_order<uint16_t, int16_t, 16, 0x7c00u> order;
};

struct coll_bfloat_format {
    static __device__ __forceinline__ float load(uint16_t x)
    {
#ifdef GYRE_EMULATED
        return kernel_from_bfloat(x);
#else
        return __uint_as_float((uint32_t)x << 16);
#endif
    }
    static __device__ __forceinline__ uint16_t store(float x)
    {
#ifdef GYRE_EMULATED
        return kernel_to_bfloat(x);
#else
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
#endif
    }
    typedef coll_float_order<uint16_t, int16_t, 16, 0x7f80u> order;
};

template <typename F> struct coll_float16 {
    typedef uint16_t value;
    enum { is_float = 1 };
    static __device__ __forceinline__ value sum(value a, value b)
    {
        return F::store(F::load(a) + F::load(b));
    }
    static __device__ __forceinline__ value prod(value a, value b)
    {
        return F::store(F::load(a) * F::load(b));
    }
    static __device__ __forceinline__ value first(value a, value b, const coll_order_t &by)
    {
        return F::order::first(a, b, by);
    }
    static __device__ __forceinline__ value scale(value a, double factor, uint64_t)
    {
        return F::store(F::load(a) * (float)factor);
    }
    static __device__ __forceinline__ value divide(value a, uint64_t, int n)
    {
        return F::store(F::load(a) / (float)n);
    }
};

/* ---- float and double; T is the type, U and S integers of its width ---- */
template <typename T, typename U, typename S, int BITS, uint64_t INFINITE> struct coll_float {
    typedef U value;
    enum { is_float = 1 };
    typedef coll_float_order<U, S, BITS, INFINITE> order;
    static __device__ __forceinline__ T load(U x)
    {
        T f;
        memcpy(&f, &x, sizeof f);
        return f;
    }
    static __device__ __forceinline__ U store(T f)
    {
        U x;
        memcpy(&x, &f, sizeof x);
        return x;
    }
    static __device__ __forceinline__ U sum(U a, U b) { return store(load(a) + load(b)); }
    static __device__ __forceinline__ U prod(U a, U b) { return store(load(a) * load(b)); }
    static __device__ __forceinline__ U first(U a, U b, const coll_order_t &by)
    {
        return order::first(a, b, by);
    }
    static __device__ __forceinline__ U scale(U a, double factor, uint64_t)
    {
        return store(load(a) * (T)factor);
    }
    static __device__ __forceinline__ U divide(U a, uint64_t, int n) { return store(load(a) / (T)n); }
};

typedef coll_integer<uint8_t, uint32_t> coll_u8;
typedef coll_integer<uint16_t, uint32_t> coll_u16;
typedef coll_integer<uint32_t, uint32_t> coll_u32;
typedef coll_integer<uint64_t, uint64_t> coll_u64;
typedef coll_float16<coll_half_format> coll_f16;
typedef coll_float16<coll_bfloat_format> coll_bf16;
typedef coll_float<float, uint32_t, int32_t, 32, 0x7f800000u> coll_f32;
typedef coll_float<double, uint64_t, int64_t, 64, 0x7ff0000000000000u> coll_f64;

/* ---- 16 bytes of elements at once ---- */
template <typename T> union coll_vector {
    uint4 whole;
    typename T::value each[16 / sizeof(typename T::value)];
};

/* The operations, to be chosen when a kernel is compiled. */
struct coll_do_sum {
    template <typename T>
    static __device__ __forceinline__ typename T::value one(typename T::value a, typename T::value b,
                                                            const coll_order_t &)
    {
        return T::sum(a, b);
    }
};
struct coll_do_prod {
    template <typename T>
    static __device__ __forceinline__ typename T::value one(typename T::value a, typename T::value b,
                                                            const coll_order_t &)
    {
        return T::prod(a, b);
    }
};
struct coll_do_first {
    template <typename T>
    static __device__ __forceinline__ typename T::value one(typename T::value a, typename T::value b,
                                                            const coll_order_t &order)
    {
        return T::first(a, b, order);
    }
};

template <typename T, typename O>
static __device__ __forceinline__ uint4 coll_join(uint4 a, uint4 b, const coll_order_t &order)
{
    coll_vector<T> x, y;
    x.whole = a;
    y.whole = b;
#pragma unroll
    for (unsigned i = 0; i < 16 / sizeof(typename T::value); i++)
        x.each[i] = O::template one<T>(x.each[i], y.each[i], order);
    return x.whole;
}

#endif
